"""``JITFunction.cache_key``: a digest that changes whenever the code of a kernel may."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tilewright import _native

Read = tuple[Any, str] | tuple[Any, str, Any]
"""A variable that a key depends on: a dict or an object, a name, and the value; without a value if there is none."""


class _Digest:
    """The parts of the program that a kernel reads."""

    def __init__(self) -> None:
        self.lines = [f"tilewright {_native.__version__}"]
        self.seen: set[int] = set()
        self.reads: list[Read] | None = []
        """The variables that the lines depend on; None if one is a list, whose items may change."""
        self.note(vars(_native), "__version__")

    def key(self) -> str:
        return hashlib.sha256("\0".join(self.lines).encode(errors="surrogatepass")).hexdigest()

    def note(self, owner: Any, *names: str) -> None:
        """Notes variables: entries of a dict, or attributes of a function or a cell."""
        if self.reads is None:
            return
        for name in names:
            try:
                found = owner[name] if isinstance(owner, dict) else getattr(owner, name)
            except (KeyError, AttributeError, ValueError):  # a cell without a value raises a ValueError
                self.reads.append((owner, name))
            else:
                self.reads.append((owner, name, found))


def cache_key(kernel: Any) -> tuple[str, list[Read] | None]:
    """Returns a digest of a kernel, the functions that it calls, the values that it reads, and tilewright's version.

    The digest is the same while ``_native.is_unchanged`` is true of the second result.
    """
    digest = _Digest()
    _function(kernel, digest)
    return digest.key(), digest.reads


def _function(function: Any, digest: _Digest) -> None:
    """Adds a function, and the values that it reads."""
    lines, seen = digest.lines, digest.seen
    if id(function) in seen:
        lines.append(f"again {function.__qualname__}")
        return
    seen.add(id(function))
    if hasattr(function, "fn"):
        digest.note(vars(function), "fn", "_src", "_starting_line_number", "noinline", "_is_replaced")
    fn = function.fn if hasattr(function, "fn") else function
    if not hasattr(fn, "__code__"):  # a `constexpr_function` of a function of the language or of C
        lines.append(
            f"{getattr(fn, '__module__', None)}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        )
        return
    source = getattr(function, "_src", None)
    if source is None:
        import inspect

        try:
            source = inspect.getsource(fn)
        except (OSError, TypeError):
            source = fn.__code__.co_code.hex() + repr(fn.__code__.co_consts)
    digest.note(fn, "__code__", "__qualname__", "__defaults__", "__kwdefaults__")
    first_line = getattr(function, "starting_line_number", fn.__code__.co_firstlineno)
    lines.append(f"{fn.__qualname__} {first_line} {getattr(function, 'noinline', None)} {source}")
    is_replaced = getattr(function, "_is_replaced", False)
    names = sorted(set(_names_of_text(source) if is_replaced else _names(fn.__code__)))
    for name, value in _values(fn, names, digest):
        _value(name, value, names, digest)
    for name, value in sorted((fn.__kwdefaults__ or {}).items()):
        digest.note(fn.__kwdefaults__, name)
        _value(name, value, (), digest)
    for number, value in enumerate(fn.__defaults__ or ()):
        _value(str(number), value, (), digest)


def _names_of_text(text: str) -> Iterator[str]:
    """Does the same for a text that replaces a function's source, if it is Python."""
    import ast

    try:
        nodes = [*ast.walk(ast.parse(text))]
    except SyntaxError:
        return
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _names(code: CodeType) -> Iterator[str]:
    """The variables and attributes in a function and in nested functions."""
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _values(fn: FunctionType, names: list[str], digest: _Digest) -> Iterator[tuple[str, Any]]:
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    for name in names:
        if name in cells:
            digest.note(cells[name], "cell_contents")
            try:
                yield name, cells[name].cell_contents
            except ValueError:  # the cell is empty
                continue
            continue
        digest.note(fn.__globals__, name)
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def _value(name: str, value: Any, attributes: Any, digest: _Digest) -> None:
    """Adds a value that is read, with the attributes that may be read of it."""
    from tilewright.language._constexpr import constexpr
    from tilewright.language._types import dtype
    from tilewright.runtime.jit import ConstexprFunction, JITFunction

    lines, seen = digest.lines, digest.seen
    while isinstance(value, constexpr):
        value = value.value
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if isinstance(value, (JITFunction, ConstexprFunction)):
        lines.append(f"{name}:")
        _function(value, digest)
    elif isinstance(value, (bool, int, float, str, bytes, type(None), dtype)):
        lines.append(f"{name} = {type(value).__name__} {value!r}")
    elif isinstance(value, (tuple, list)):
        if isinstance(value, list):
            digest.reads = None
        lines.append(f"{name}: {len(value)} items")
        for number, item in enumerate(value):
            _value(f"{name}[{number}]", item, attributes, digest)
    elif str(module).partition(".")[0] in ("tilewright", "triton"):
        lines.append(f"{name} = {module}.{getattr(value, '__qualname__', '')}")
    elif id(value) not in seen:
        seen.add(id(value))
        lines.append(f"{name}: {type(value).__qualname__} {getattr(value, '__qualname__', '')}")
        own = getattr(value, "__dict__", {})
        if isinstance(own, dict):
            digest.note(own, *attributes)
        elif attributes:
            digest.reads = None
        for attribute in attributes:
            if attribute in own:
                _value(f"{name}.{attribute}", own[attribute], attributes, digest)


class DependenciesFinder(ast.NodeVisitor):
    """Digests the parts of the program that a function reads: ``visit`` its tree, then ``ret`` is the digest."""

    def __init__(self, name: str, globals: dict[str, Any], nonlocals: dict[str, Any], src: str) -> None:
        self.name = name
        self.globals = globals
        self.nonlocals = nonlocals
        self.used_global_vals: dict[tuple[str, int], tuple[Any, dict[str, Any]]] = {}
        """The plain values that it reads, by name and the identity of the dict that they are in."""
        self._digest = _Digest()
        self._digest.lines.append(src)

    @property
    def ret(self) -> str:
        """The digest."""
        return self._digest.key()

    def visit_Name(self, node: ast.Name) -> None:
        """Adds a variable, and its value."""
        for names in (self.nonlocals, self.globals):
            if isinstance(node.ctx, ast.Load) and node.id in names:
                value = names[node.id]
                _value(node.id, value, (), self._digest)
                if not callable(value) and not isinstance(value, ModuleType):
                    self.used_global_vals[(node.id, id(names))] = (value, names)
                return
