"""The expressions whose types are compared with those of the official package, and how their types are written down.

A case is an expression of the kernel language, with `X` and `Y` for operands of an element type each, or `K` for a
number. `X` is a tile, `sX` a scalar, `mX` a matrix, `pX` a tile of pointers and `psX` one pointer; `dX` is the type.
`official_types.py` computes the official results, `test_type_table.py` compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("official_types.txt")

# The short name of each element type.
CODES = {
    "int1": "b",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "float8e4nv": "e4nv",
    "float8e5": "e5",
    "float8e4b15": "e4b15",
    "float8e4b8": "e4b8",
    "float8e5b16": "e5b16",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}
# How a kernel's message names an element type.
SPOKEN = {
    **{name: name for name in CODES},
    "fp8e4nv": "float8e4nv",
    "fp8e5": "float8e5",
    "fp8e4b15": "float8e4b15",
    "fp8e4b8": "float8e4b8",
    "fp8e5b16": "float8e5b16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
}
NUMBERS = (
    "True",
    "1",
    "-1",
    "200",
    "40000",
    "3000000000",
    "1099511627776",
    "9223372036854775808",
    "1.5",
    "1e-40",
    "1e300",
    "float('inf')",
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=")
FUNCTIONS = ("add", "sub", "mul", "minimum", "maximum", "fdiv", "div_rn", "umulhi", "cdiv")
UNARY = (
    *("-X", "~X", "+X", "not sX", "tl.abs(X)", "X.to(tl.int32)", "tl.to_tensor(X)"),
    *(
        f"tl.{name}(X)"
        for name in (
            "exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt floor ceil erf sigmoid softmax ravel zeros_like sort "
            "flip sum max min xor_sum reduce_or"
        ).split()
    ),
    *(f"tl.{name}(X, 0)" for name in "sum max min argmax argmin xor_sum reduce_or cumsum cumprod".split()),
    *(f"tl.max(X, 0, return_indices=True)[{n}]" for n in (0, 1)),
    *(f"tl.min(X, 0, return_indices=True)[{n}]" for n in (0, 1)),
    *("tl.sum(mX, 1, keep_dims=True)", "tl.cumsum(mX, 1, reverse=True)", "tl.sum(sX)"),
    *("tl.topk(X, 1)", "tl.topk(X, 2)", "tl.topk(X, 4)", "tl.topk(mX, 2)", "tl.bitonic_merge(X)"),
    *("tl.split(tl.reshape(X, (2, 2)))[0]", "tl.trans(mX)", "mX.T", "tl.permute(mX, (1, 0))", "X[None, :]"),
    *("tl.expand_dims(X, 0)", "tl.broadcast_to(X, (2, 4))", "tl.reshape(mX, (1024,))", "tl.view(X, (2, 2))"),
    *("tl.broadcast(X, mX[:4, :4])[0]", "tl.histogram(X, 4)", "tl.gather(X, tl.arange(0, 4), 0)"),
    *("tl.gather(tl.arange(0, 4), X, 0)", "tl.zeros((4,), dX)", "tl.zeros((4,), dtype=dX)", "tl.load(pX)"),
    *("tl.atomic_load(pX)", "tl.dot(mX, mX)", "tl.dot(mX, mX, mX)", "tl.rand(X, tl.arange(0, 4))"),
    *("tl.rand(0, X)", "tl.randint(0, X)", "tl.randn(0, X)", "tl.swizzle2d(sX, sX, 4, 4, 2)[0]"),
    *(
        "tl.uint_to_uniform_float(X)",
        "pX + 1",
        "pX == pX",
        "pX.to(tl.int64)",
        "X.to(tl.pointer_type(tl.int32))",
    ),
    *(
        "tl.clamp(X, X, X)",
        "tl.fma(X, X, X)",
        "tl.where(X, 1, 2)",
        "tl.where(X, 1.0, 2)",
        "tl.multiple_of(X, 4)",
    ),
    *(
        "tl.cast(X, tl.float32)",
        "X.item()",
        "tl.assume(sX)",
        "tl.squeeze(X[None, :], 0)",
        "tl.unsqueeze(X, 0)",
    ),
    *("tl.map_elementwise(twice, X)", "tl.reduce(X, 0, plus)", "tl.associative_scan(X, 0, plus)"),
    *(
        "tl.rand4x(0, X)[0]",
        "tl.randint4x(0, X)[0]",
        "tl.randn4x(0, X)[0]",
        "tl.argmax(X, 0, keep_dims=True)",
    ),
    *(
        "tl.max(mX)",
        "tl.sum(mX, 0)",
        "tl.sort(mX, 0)",
        "tl.flip(mX, 1)",
        "tl.cdiv(X, X)",
        "X.sum(0)",
        "X.abs()",
    ),
)
PAIRS = (
    *(f"X {operator} Y" for operator in OPERATORS),
    *("X + sY", "sX + Y", "sX / sY", "sX << Y"),
    *(f"tl.{name}(X, Y)" for name in FUNCTIONS),
    *("tl.fdiv(X, Y, ieee_rounding=True)", "tl.minimum(X, Y, propagate_nan=tl.PropagateNan.ALL)"),
    *("tl.where(X > X, X, Y)", "tl.where(X, Y, Y)", "tl.fma(X, X, Y)", "tl.fma(X, Y, Y)", "tl.fma(Y, X, Y)"),
    *("tl.clamp(X, Y, Y)", "tl.clamp(X, X, Y)", "tl.cat(X, Y, can_reorder=True)", "tl.join(X, Y)"),
    *("tl.interleave(X, Y)", "tl.broadcast(X, Y)[0]", "X.logical_and(Y)", "X.logical_or(Y)", "X.to(dY)"),
    *("sX and sY", "sX or sY", "X and Y"),
    *("tl.cast(X, dY, bitcast=True)", "tl.sum(X, 0, dtype=dY)", "tl.cumsum(X, 0, dtype=dY)"),
    *("tl.full((4,), sX, dY)", "pX + Y", "pX - Y", "pX == pY", "tl.where(X > X, pX, pY)"),
    *(
        "tl.load(pX, X == X, Y)",
        "tl.load(pX, Y)",
        "tl.store(pX, Y)",
        "tl.store(pX, X, Y)",
        "tl.atomic_store(pX, Y)",
    ),
    *(f"tl.atomic_{name}(pX, Y)" for name in "add max min and or xor xchg".split()),
    *(
        "tl.atomic_add(pX, X, Y)",
        "tl.atomic_cas(pX, Y, Y)",
        "tl.atomic_cas(pX, X, Y)",
        "tl.atomic_poll(psX, sY)",
    ),
    *("tl.atomic_cas(psX, sY, sY)", "tl.atomic_cas(psX, sX, sY)", "tl.atomic_cas(psX, sY, sX)"),
    *("tl.atomic_add(psX, sY)", "tl.atomic_xchg(psX, sY)", "tl.cat(X, Y)"),
    *(
        "tl.dot(mX, mY)",
        "tl.dot(mX, mX, out_dtype=dY)",
        "tl.dot(mX, mX, mY)",
        "tl.dot(mX, mX, mY, out_dtype=dY)",
    ),
    *("tl.gather(X, Y, 0)", "tl.histogram(X, 4, Y)", "tl.swizzle2d(sX, sY, 4, 4, 2)[0]", "tl.rand(sX, Y)"),
    *("X.to(tl.pointer_type(dY))", "pX.to(dY)", "pX.to(tl.pointer_type(dY))"),
)
WITH_NUMBERS = (
    *(f"X {operator} K" for operator in OPERATORS),
    *(f"K {operator} X" for operator in OPERATORS),
    *("sX + K", "sX / K", "K % sX", "sX and K", "K or sX"),
    *(f"tl.{name}(X, K)" for name in FUNCTIONS),
    *(f"tl.{name}(K, X)" for name in FUNCTIONS),
    *(
        "tl.where(X > X, X, K)",
        "tl.where(X > X, K, X)",
        "tl.fma(X, X, K)",
        "tl.fma(K, X, X)",
        "tl.fma(K, K, X)",
    ),
    *(
        "tl.clamp(X, K, K)",
        "tl.clamp(X, X, K)",
        "tl.full((4,), K, dX)",
        "tl.full((), K, dX)",
        "tl.store(pX, K)",
    ),
    *("tl.load(pX, X == X, K)", "tl.store(pX, X, K)", "tl.atomic_store(pX, K)", "tl.cast(K, dX)", "pX + K"),
    *(f"tl.atomic_{name}(pX, K)" for name in "add max min and or xor xchg".split()),
    *(
        "tl.atomic_cas(pX, K, K)",
        "tl.atomic_cas(pX, X, K)",
        "tl.atomic_poll(psX, K)",
        "tl.atomic_cas(psX, K, K)",
    ),
    *(
        "tl.atomic_cas(psX, sX, K)",
        "tl.atomic_cas(psX, K, sX)",
        "tl.atomic_add(psX, K)",
        "tl.histogram(X, 4, K)",
    ),
    *("X.logical_and(K)", "tl.sum(X * K, 0)", "tl.join(X, K)", "tl.cat(X, K, can_reorder=True)"),
)
TEMPLATES = (*UNARY, *PAIRS, *WITH_NUMBERS)
# Statements without a value.
STATEMENTS = ("tl.store(", "tl.atomic_store(", "tl.assume(")

HELPERS = """@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def twice(a):
    return a + a


"""


def prologue(names: str) -> str:
    """The lines that make the operands which a text names."""
    lines = ["tile = tl.arange(0, 4)", "square = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]"]
    for dtype in CODES:
        used = [kind for kind in ("", "s", "m", "p", "ps") if re.search(rf"\b{kind}_{dtype}\b", names)]
        if used:
            lines.append(f"ps_{dtype} = memory.to(tl.pointer_type(tl.{dtype}))")
            lines.append(f"p_{dtype} = ps_{dtype} + tile")
            lines.append(f"_{dtype} = tl.load(p_{dtype})")
            lines.append(f"s_{dtype} = tl.load(ps_{dtype})")
        if "m" in used:
            lines.append(f"m_{dtype} = tl.load(ps_{dtype} + square)")
    return "".join(f"    {line}\n" for line in lines)


def columns(template: str) -> tuple[str, ...]:
    """The replacements of `Y` or `K` in a template."""
    if re.search(r"\b(s|m|p|ps|d)?Y\b", template):
        return tuple(CODES)
    return NUMBERS if re.search(r"\bK\b", template) else ("",)


def expression(template: str, x: str, column: str) -> str:
    """A case as it is written in a kernel."""
    text = re.sub(r"\bdX\b", f"tl.{x}", template)
    text = re.sub(r"\b(s|m|p|ps|)X\b", rf"\1_{x}", text)
    text = re.sub(r"\bdY\b", f"tl.{column}", text)
    text = re.sub(r"\b(s|m|p|ps|)Y\b", rf"\1_{column}", text)
    # A negative number keeps its sign beside an operator.
    return re.sub(r"\bK\b", f"({column})" if column.startswith("-") else column, text)


@dataclass(frozen=True)
class Case:
    """One cell of the table."""

    template: str
    x: str
    column: str

    def __str__(self) -> str:
        return expression(self.template, self.x, self.column)

    @property
    def is_statement(self) -> bool:
        return self.template.startswith(STATEMENTS)


def cases(template: str) -> Iterator[Case]:
    for x in CODES:
        for column in columns(template):
            yield Case(template, x, column)


def short(dtype: str, shape: tuple[int, ...], usual: tuple[int, ...]) -> str:
    """A type as the table has it: its shape only where it is not the usual one of the template."""
    for spoken, name in SPOKEN.items():
        dtype = re.sub(rf"\b{spoken}\b", CODES[name], dtype)
    dtype = dtype.removeprefix("pointer<").removesuffix(">") + "*" if dtype.startswith("pointer") else dtype
    return dtype if shape == usual else dtype + str(list(shape)).replace(" ", "")


def packed(cells: list[str]) -> str:
    """Cells of a row, equal neighbors as one with their count."""
    groups: list[tuple[str, int]] = []
    for cell in cells:
        if groups and groups[-1][0] == cell:
            groups[-1] = (cell, groups[-1][1] + 1)
        else:
            groups.append((cell, 1))
    return " ".join(cell if count == 1 else f"{cell}:{count}" for cell, count in groups)


def unpacked(row: str) -> list[str]:
    """The reverse of `packed`."""
    cells: list[str] = []
    for group in row.split():
        cell, _, count = group.partition(":")
        cells += [cell] * int(count or 1)
    return cells


def read_table() -> dict[Case, str]:
    """The official results."""
    found: dict[Case, str] = {}
    template = ""
    for line in TABLE.read_text().splitlines():
        if line.startswith("## "):
            template = line.removeprefix("## ")
        elif line and not line.startswith("#"):
            names, _, row = line.partition(" | ")
            for x in names.split():
                for column, cell in zip(columns(template), unpacked(row), strict=True):
                    found[Case(template, x, column)] = cell
    return found
