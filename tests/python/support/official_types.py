"""Writes `official_types.txt`: the types that the official package gives to the cases of `type_cases.py`.

    python tests/python/support/official_types.py [--new]

needs the package `triton` (3.9), and no GPU. A kernel has all cases of a template; a function of the compiler's own
evaluates each with the compiler's code generator and takes down the type, or that it is refused; what the compiler's
verifier refuses afterwards counts as refused. With `--new` only expressions that the table lacks are evaluated.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.language.core import builtin
from type_cases import (
    CODES,
    HELPERS,
    TABLE,
    TEMPLATES,
    Case,
    cases,
    columns,
    packed,
    prologue,
    read_table,
    short,
)

RESULTS: dict[Case, str] = {}
WANTED: list[Case] = []
NUMBERS = itertools.count()
HEADER = """# The types that the official package (triton {version}) gives to the expressions of type_cases.py.
# After "## " an expression; then rows: the types of X | the results for each type of Y, or each number of K, in the
# order of type_cases.py. "-" is refused, "ok" gives no value; a shape follows a type where it is not [4]; ":3" is three
# times. Only figures: `python tests/python/support/official_types.py` writes this file.
"""


class Finished(Exception):
    """Ends a compilation that has told what it was made for."""


def found(value: object, case: Case) -> str:
    if case.is_statement:
        return "ok"
    kind = value.type
    return short(str(kind.scalar), tuple(int(n) for n in getattr(kind, "shape", ())), (4,))


@builtin
def take_down(_semantic=None, _generator=None):
    builder = _generator.builder
    place = builder.save_insertion_point() if hasattr(builder, "save_insertion_point") else None
    block = builder.get_insertion_block()
    for case in WANTED:
        node = ast.parse(str(case), mode="eval").body
        try:
            RESULTS[case] = found(_generator.visit(node), case)
        except Exception as error:
            if "-v" in sys.argv:
                print(case, repr(error.__cause__ or error)[-200:])
            RESULTS[case] = "-"
        if place is not None:
            builder.restore_insertion_point(place)
        else:
            builder.set_insertion_point_to_end(block)
    raise Finished


def lowered(text: str, folder: Path) -> None:
    """Compiles a module's `kernel` to the first, verified form of the compiler's IR."""
    path = folder / f"kernel_{next(NUMBERS)}.py"
    path.write_text(
        f"import triton\nimport triton.language as tl\nfrom __main__ import take_down\n\n\n{HELPERS}{text}"
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = ASTSource(module.kernel, {"memory": "*i8"}, {})
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    every_fp8 = tuple(f"fp{name.removeprefix('float')}" for name in CODES if name.startswith("float8"))
    options = backend.parse_options({"supported_fp8_dtypes": every_fp8})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    implementation = backend.get_codegen_implementation(options)
    lowered = source.make_ir(target, options, implementation, backend.get_module_map(), context)
    if not lowered.verify():
        raise RuntimeError("the verifier refuses the kernel")


def evaluate(template: str, folder: Path) -> None:
    """Takes down the types of a template's cases."""
    WANTED[:] = cases(template)
    names = "\n".join(map(str, WANTED))
    try:
        lowered(f"@triton.jit\ndef kernel(memory):\n{prologue(names)}    take_down()\n", folder)
    except Exception as error:
        chain = [error]
        while chain[-1].__cause__ or chain[-1].__context__:
            chain.append(chain[-1].__cause__ or chain[-1].__context__)
        if not any(isinstance(each, Finished) for each in chain):
            raise
    refuse_invalid([case for case in WANTED if RESULTS[case] != "-"], folder)


def refuse_invalid(accepted: list[Case], folder: Path) -> None:
    """Refuses the cases whose IR the compiler's own verifier does not take."""
    if not accepted:
        return
    names = "\n".join(map(str, accepted))
    body = "".join(f"    r{number} = {case}\n" for number, case in enumerate(accepted))
    try:
        lowered(f"@triton.jit\ndef kernel(memory):\n{prologue(names)}{body}", folder)
    except Exception as error:
        if len(accepted) > 1:
            refuse_invalid(accepted[: len(accepted) // 2], folder)
            refuse_invalid(accepted[len(accepted) // 2 :], folder)
        else:
            RESULTS[accepted[0]] = "-"
            if "-v" in sys.argv:
                print(accepted[0], "verifier", repr(error)[-200:])


def table() -> str:
    lines = [HEADER.format(version=triton.__version__).rstrip()]
    for template in TEMPLATES:
        lines += ["", f"## {template}"]
        rows: dict[str, list[str]] = {}
        for x in CODES:
            row = packed([RESULTS[Case(template, x, column)] for column in columns(template)])
            rows.setdefault(row, []).append(x)
        lines += [f"{' '.join(names)} | {row}" for row, names in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    wanted = sys.argv[2:] if "-v" in sys.argv else TEMPLATES
    if "--new" in sys.argv:
        RESULTS.update(read_table())
        wanted = [template for template in TEMPLATES if next(cases(template)) not in RESULTS]
    with tempfile.TemporaryDirectory() as folder:
        for template in wanted:
            evaluate(template, Path(folder))
    if "-v" in sys.argv:
        print({str(case): result for case, result in RESULTS.items()})
    else:
        TABLE.write_text(table())
