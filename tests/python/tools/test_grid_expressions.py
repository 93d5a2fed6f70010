"""Grids as expressions of arguments: ``tilewright compile --grid`` and the C of ``triton.tools.compile``."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE

from tilewright import _native
from tilewright.tools import _c_templates as templates

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


def test_grids_in_c(tmp_path: Path) -> None:
    """Half of the random expressions have values near the limits of 64 bits."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    generator = random.Random(2)
    names = [("M", None, None), ("N", None, None), ("a.shape[0]", None, None), ("B", 64, None)]
    large = (1 << 62, (1 << 63) - 1, -(1 << 61), 0, 1, -7)
    cases, calls = [], []
    while len(cases) < 400:
        text = random_expression(generator, [name for name, _, _ in names])
        if not re.search(r"\b[MN]\b|shape", text):
            continue  # A constant may be negative.
        found, _, _ = _native.grid_in_c(f"{text}, 1, 1", names)
        is_large = len(cases) % 2 == 1
        given = [generator.choice(large) if is_large else generator.randrange(-50, 5000) for _ in range(3)]
        known = dict(zip(("M", "N", "a_shape_0"), given, strict=True))
        cases.append((text, given, value(text.replace("a.shape[0]", "a_shape_0"), {**known, "B": 64}), found))
        defined = ", ".join(f"{name} = {number}LL" for name, number in known.items())
        used = "(void)M, (void)N, (void)a_shape_0"
        calls.append(f'    {{ long long {defined}; {used}; printf("%lld\\n", {found}); }}')
    includes = "".join(f"#include <{name}.h>\n" for name in ("limits", "stdio", "stdlib"))
    functions = templates.grid_functions([found for *_, found in cases])
    source = tmp_path / "main.c"
    source.write_text(
        f"{includes}{functions}\nint main(void)\n{{\n{chr(10).join(calls)}\n    return 0;\n}}\n"
    )
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"]
    subprocess.run(["cc", *options, source, "-o", tmp_path / "main"], check=True, timeout=PATIENCE)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True, timeout=PATIENCE)
    marked = 0
    for (text, given, exact, _), found in zip(cases, map(int, done.stdout.split()), strict=True):
        if found == -(1 << 63):
            marked += 1
            # An intermediate result exceeds 64 bits.
            assert max(map(abs, given)) >= 1 << 61, (text, given)
        else:
            assert found == exact, (text, given)
    assert 10 < marked < 200
