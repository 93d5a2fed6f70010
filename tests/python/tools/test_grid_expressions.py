"""Grids as expressions of arguments: ``tilewright compile --grid``."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest


KERNEL = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, M, N, desc, scale, BLOCK: tl.constexpr, ONE, NAME: tl.constexpr):
    tl.store(x_ptr, desc.load([0, 0]).sum() * scale)
"""
SIGNATURE = "*fp32,i32,i64,tensordesc<fp32[8, 16]>,fp32,64,i32:1,'x'"

FUNCTIONS = {
    "cdiv": lambda a, b: (a + b - 1) // b,
    "min": min,
    "max": max,
    "next_power_of_2": lambda a: 0 if a <= 0 else 1 << (a - 1).bit_length(),
}


def random_expression(generator: random.Random, names: list[str], depth: int = 3) -> str:
    """Returns an expression; no divisor is 0."""

    def inner() -> str:
        return random_expression(generator, names, depth - 1)

    kind = generator.randrange(3 if depth == 0 else 13)
    if kind == 0:
        return str(generator.randrange(100))
    if kind < 3:
        return generator.choice(names)
    if kind < 6:
        return f"{inner()} {generator.choice('+-')} {inner()}"
    if kind == 6:
        return f"{inner()}*{inner()}"
    if kind == 7:
        return f"({inner()})"
    if kind == 8:
        return f"-{inner()}"
    divisor = f"({generator.choice('-2')}{generator.randrange(1, 30)})"
    if kind < 11:
        return f"{inner()} {generator.choice(['//', '%'])} {divisor}"
    function = generator.choice(["cdiv", "min", "max", "next_power_of_2"])
    if function == "next_power_of_2":
        return f"next_power_of_2({inner()})"
    if function == "cdiv":
        return f"cdiv({inner()}, {divisor})"
    return f"{function}({', '.join(inner() for _ in range(generator.randrange(2, 4)))})"


def value(text: str, names: dict[str, int]) -> int:
    """Evaluates an expression in Python."""
    found = eval(
        re.sub(r"desc\.shape\[(\d)\]", r"shape_\1", text), {"__builtins__": {}}, {**FUNCTIONS, **names}
    )
    assert isinstance(found, int)
    return found


@pytest.fixture
def describe(run: Any, script: Any) -> Any:
    path = script(KERNEL, "kernel.py")

    def start(grid: str, *more: str) -> Any:
        words = ("--signature", SIGNATURE, "--emit", "json", "--grid", grid, *more)
        return run("-m", "tilewright", "compile", f"{path.name}::kernel", *words, cwd=path.parent)

    return start


def test_the_description_has_the_expressions(describe: Any) -> None:
    done = describe("cdiv(M, BLOCK), (N + 2*BLOCK - 1) // ONE, 3 - 2")
    assert done.code == 0, done.err
    assert json.loads(done.out)["grid"] == ["cdiv(M, 64)", "(N + 128 - 1)//1", "1"]


def test_random_expressions_keep_their_values(describe: Any) -> None:
    generator = random.Random(1)
    for _ in range(4):
        texts = []
        while len(texts) < 3:
            text = random_expression(generator, ["M", "N", "desc.shape[1]", "BLOCK", "ONE"])
            constant = not re.search(r"\b[MNd]", text)
            texts += [] if constant and value(text, {"BLOCK": 64, "ONE": 1}) < 0 else [text]
        done = describe(", ".join(texts))
        assert done.code == 0, (texts, done.err)
        for text, found in zip(texts, json.loads(done.out)["grid"], strict=True):
            for _ in range(20):
                names = {name: generator.randrange(1000) for name in ("M", "N", "shape_1")}
                assert value(found, names) == value(text, {**names, "BLOCK": 64, "ONE": 1}), (text, found)


@pytest.mark.parametrize(
    ("grid", "message", "carets"),
    [
        ("m, 1, 1", "the grid has the name 'm', which is no parameter", "^"),
        ("1, cdiv(BLOK, 2), 1", "the grid has the name 'BLOK', which is no parameter", "^^^^"),
        ("x_ptr, 1, 1", "the grid has the parameter 'x_ptr', which is no integer", "^^^^^ this is a tensor"),
        ("1, scale, 1", "the parameter 'scale', which is no integer", "^^^^^ this is a number of type fp32"),
        ("NAME, 1, 1", "the parameter 'NAME', which is no integer", "^^^^ this is 'x', a compile-time value"),
        ("desc, 1, 1", "the parameter 'desc', which is no integer", "^^^^ this is a tensor descriptor"),
        ("desc.shape[2], 1, 1", "the name 'desc.shape[2]', which is no parameter", "^^^^^^^^^^^^^"),
        ("M, 1", "the grid has 2 expressions, expected 3", "^^^^"),
        ("", "the grid ends where an operand is missing", "^ expected an integer"),
        ("M / 2, 1, 1", "the grid has '/' after an expression", "^ expected an operator or a comma"),
        ("M N, 1, 1", "the grid has 'N' after an expression", "^ expected an operator or a comma"),
        ("M ** 2, 1, 1", "the grid has '*' where an operand is missing", "^ expected an integer"),
        ("(M, 1, 1", "the grid has '(' without ')'", "^"),
        ("ceil(M), 1, 1", "the grid has the function 'ceil'", "^^^^"),
        ("cdiv(M), 1, 1", "'cdiv' has 1 operands, expected 2", "^^^^^^^"),
        ("M // (BLOCK - 64), 1, 1", "the grid divides by 0", "^^^^^^^^^^^^^^^^^"),
        ("2 - 5, 1, 1", "the grid has -3 programs along axis 0", "^^^^^"),
        ("M, 1 << 2, 1", "the grid has '<' after an expression", "^ expected an operator"),
        ("9223372036854775807 + 1, 1, 1", "the grid exceeds integers of 64 bits", "^^^"),
        ("99999999999999999999, 1, 1", "expected an integer of 64 bits", "^^^"),
        ("(" * 70 + "M" + ")" * 70 + ", 1, 1", "the grid is nested more than 64 deep", "^"),
        ("-" * 70 + "M, 1, 1", "the grid is nested more than 64 deep", "^"),
        ("é, 1, 1", "the grid has the name 'é', which is no parameter", "^"),
    ],
)  # fmt: skip
def test_wrong_grids_are_shown(describe: Any, grid: str, message: str, carets: str) -> None:
    done = describe(grid)
    assert (done.code, done.out) == (1, "")
    first, *lines = done.err.splitlines()
    assert first.startswith("error[TW0103]: ")
    assert message in first
    (marked,) = (line for line in lines if re.match(r" *\| +\^", line))
    assert marked.lstrip(" |").startswith(carets)
    # The carets are under the text that the message names.
    if quoted := re.search(r"(?:name|parameter|function) '(.*?)'", message):
        assert grid.index(quoted[1]) == marked.index("^") - marked.index("|") - 2


def test_another_stage_has_no_grid(run: Any, script: Any) -> None:
    path = script(KERNEL, "kernel.py")
    words = ("--signature", SIGNATURE, "--emit", "ir", "--grid", "1, 1, 1")
    done = run("-m", "tilewright", "compile", path, *words)
    assert (done.code, done.out) == (2, "")
    assert "--grid needs --emit json" in done.err
