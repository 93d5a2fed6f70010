"""Kernels of public libraries whose figures `static_figures.py --libraries FOLDER` compares.

The folder has a clone of each repository under its own name. Nothing of a library is imported: of its files the kernel
is taken, what it calls, and the constants that both use, so that no library and none of their dependencies has to be
installed.

A line of `library_kernels.txt` says the types by the names of the parameters: `x y=*fp16 n=i32 BLOCK=1024`. Pointers
have 16-byte alignment; a number without a type is an `i32` that 16 divides, such a constant `False`.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).resolve().with_suffix(".txt")
MADE_AT_RUN_TIME = {"tl_extra_shim": "language.extra.libdevice"}
"""Names that a library gives a value when it is imported, and the module that this is on a GPU."""


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel of a library, by its repository and the file in it."""

    family: str
    file: str
    name: str
    types: str
    num_warps: int = 4
    num_stages: int = 3

    def __str__(self) -> str:
        return f"{self.file.split('/')[0]} {self.name}"

    def arguments(self, text: str) -> str:
        """The types in the order of the parameters, as `static_figures.Kernel` has them."""
        known, names = {}, []
        for word in self.types.split():
            name, _, value = word.partition("=")
            names.append(name)
            if value:
                known |= dict.fromkeys(names, f"{value}:16" if value.startswith("*") else value)
                names = []
        function = next(node for node in _functions(ast.parse(text)) if node.name == self.name)
        found = []
        for parameter in function.args.args:
            constant = parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)
            found.append(known.pop(parameter.arg, "False" if constant else "i32:16"))
        if known:
            raise ValueError(f"{self}: no parameters {', '.join(known)}")
        return ",".join(found)


def _of_module(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a file outside of functions and classes, in branches too."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield from _of_module(node)


def _functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in _of_module(tree) if isinstance(node, ast.FunctionDef)]


class Cutter:
    """Takes a kernel and what it needs out of the files of a library, as one text for one of the two packages."""

    def __init__(self, root: Path, package: str) -> None:
        self.root, self.package = root, package
        self.parts: list[str] = []
        self.done: set[tuple[Path, str]] = set()

    def text(self, file: Path, name: str) -> str:
        """The file of one kernel."""
        self.take(file, name)
        head = [f"import {self.package} as triton", f"import {self.package}.language as tl", "import math"]
        return "\n".join(
            [*head, "from triton.language import constexpr".replace("triton", self.package), *self.parts, ""]
        )

    def take(self, file: Path, name: str) -> None:
        """Appends the definition of a name in a file, after all definitions that it needs."""
        if (file, name) in self.done:
            return
        self.done.add((file, name))
        if name in MADE_AT_RUN_TIME:
            self.parts.append(f"import {self.package}.{MADE_AT_RUN_TIME[name]} as {name}")
            return
        tree = ast.parse(file.read_text(encoding="utf-8"))
        functions = [node for node in _functions(tree) if node.name == name]
        if functions:
            function = functions[-1]
            function.decorator_list = [ast.parse("triton.jit", mode="eval").body]
            self._take_names(file, function)
            self.parts.append(ast.unparse(function))
            return
        for node in reversed([*_of_module(tree)]):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(at, ast.Name) and at.id == name for at in targets):
                self._take_names(file, node.value)
                self.parts.append(ast.unparse(node))
                return
        for node in _of_module(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name and self._take_import(file, node, alias):
                        return
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        module = alias.name
                        if module.split(".")[0] == "triton":
                            module = self.package + module.removeprefix("triton")
                        self.parts.append(f"import {module} as {name}")
                        return

    def _take_names(self, file: Path, tree: ast.AST) -> None:
        _Modules(self, file).visit(tree)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        local |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
        for node in names:
            if node.id not in {"triton", "tl", "math"} | local:
                self.take(file, node.id)

    def _take_import(self, file: Path, node: ast.ImportFrom, alias: ast.alias) -> bool:
        name, module = alias.asname or alias.name, node.module or ""
        if module.split(".")[0] == "triton" and not node.level:
            module = self.package + module.removeprefix("triton")
            try:
                if not hasattr(importlib.import_module(module), alias.name):
                    importlib.import_module(f"{module}.{alias.name}")
            except ImportError:
                return False
            self.parts.append(f"from {module} import {alias.name} as {name}")
            return True
        found = self.module(file, node)
        if found is None:
            return False
        self.take(found, alias.name)
        if name != alias.name:
            self.parts.append(f"{name} = {alias.name}")
        return True

    def module(self, file: Path, node: ast.ImportFrom, name: str = "") -> Path | None:
        """The file of a module of the library, or of one in a package that a line imports from."""
        steps = [*(node.module or "").split("."), name]
        for folder in [file.parents[node.level - 1]] if node.level else [self.root, self.root / "src"]:
            path = folder.joinpath(*steps)
            for found in (path.with_suffix(".py"), path / "__init__.py") if path != folder else ():
                if found.exists():
                    return found
        return None


class _Modules(ast.NodeTransformer):
    """Puts `name` for `module.name` where the module is the library's."""

    def __init__(self, cutter: Cutter, file: Path) -> None:
        self.cutter, self.file = cutter, file
        tree = ast.parse(file.read_text(encoding="utf-8"))
        self.modules = {
            alias.asname or alias.name: found
            for node in _of_module(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (found := cutter.module(file, node, alias.name))
        }

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replaces `module.name` by the name, and appends the definition of the name."""
        self.generic_visit(node)
        module = self.modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if module is None:
            return node
        self.cutter.take(module, node.attr)
        return ast.copy_location(ast.Name(node.attr, node.ctx), node)


def kernels() -> list[LibraryKernel]:
    """Those of the list."""
    found, family = [], ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            family = line.strip("[]")
        elif line and not line.startswith("#"):
            file, name, warps, stages, types = line.split(" ", 4)
            found.append(LibraryKernel(family, file, name, types, int(warps), int(stages)))
    return found
