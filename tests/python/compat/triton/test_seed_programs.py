"""Programs of real users through ``tilewright run``: one row of a table for each, with what it prints or draws.

Each runs on the CPU, as it is or, where that takes long, at sizes that ``reduced.py`` gives it from
outside; no text is changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import DEVICE, PROGRAMS, ROOT

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the programs are not beside this checkout")

REDUCED = ROOT / "tests/python/support/reduced.py"

ON_CPU = DEVICE == "cpu"

CHECKED_ELSEWHERE = {
    "001_add_2d_traced": "tools/test_viz.py",
    "001_add_traced": "tools/test_viz.py",
    "001_dot_traced": "tools/test_viz.py",
    "001_dtypes_table": "tools/test_viz.py",
    "001_swap_neighbours_traced": "tools/test_viz.py",
}
"""Those of the visualizer."""


@dataclass(frozen=True)
class Row:
    """How a program is run, and what is to be seen of it."""

    check: Callable[[Any], None]
    small: dict[str, Any] | None = None
    """Smaller sizes on every device."""
    small_on_sim: dict[str, Any] | None = None
    """Smaller sizes in a simulator, if they are not the same on every device."""


ROWS: dict[str, Row] = {}


def row(*names, small=None, small_on_sim=None):
    """Makes a function the check of programs."""

    def enter(check):
        ROWS.update(dict.fromkeys(names, Row(check, small, small_on_sim)))
        return check

    return enter


def test_each_program_has_a_row():
    there = {path.stem for path in PROGRAMS.glob("*.py")}
    assert there == ROWS.keys() | CHECKED_ELSEWHERE.keys()
    assert not ROWS.keys() & CHECKED_ELSEWHERE.keys()
    for name, other in CHECKED_ELSEWHERE.items():
        assert f'"{name}.py"' in (ROOT / "tests/python" / other).read_text()


def output(done):
    """The output of a program that worked; on stderr it only says which device cuda is."""
    assert (done.code, done.err) == (0, ""), done.err
    return done.out


# -- what they print --


@row("000_vector_add")
@row("002_vector_add", small={"names": {"size": "98765"}})
def vector_add(done):
    lines = output(done).splitlines()
    assert re.fullmatch(r"tensor\(\[\d.*\]\)|tensor\(\[\d.*device='cuda:0'\)", lines[0])
    assert lines[0] == lines[1]
    assert lines[2] == "The maximum difference between torch and triton is 0.0"


@row("000_fused_softmax", small_on_sim={"names": {"x": "x[:123].contiguous()"}})
def fused_softmax(done):
    # It ends with an assert that the result is torch's.
    assert output(done) == ""


@row("002_fused_softmax", small_on_sim={"names": {"x": "x[:123].contiguous()"}})
def fused_softmax_of_a_handle(done):
    assert output(done) == "softmax matches\n"


@row("001_add_basic")
def add_basic(done):
    last = output(done).splitlines()[-1]
    assert last.startswith("Output: tensor([11., 22., 33., 44., 44., 33., 22., 11.,  0., 11.]")


@row("001_type_promotion")
def type_promotion(done):
    dtypes = re.findall(r"torch\.\w+", output(done))
    assert [dtype.removeprefix("torch.") for dtype in dtypes] == [
        *("int32", "float32", "float32"),
        *("float16", "float32", "float32"),
        *("float16", "bfloat16", "float16"),
        *("int32", "uint32", "uint32"),
    ]


@row("001_broadcast_scalar")
def broadcast_scalar(done):
    last = output(done).splitlines()[-1]
    assert last.startswith("Output:  tensor([10., 11., 12., 13., 14., 15., 16., 17.]")


@row("001_broadcast_2d")
def broadcast_2d(done):
    numbers = re.findall(r"\d+(?=\.)", output(done).partition("Result (x + y):")[2])
    assert [int(number) for number in numbers] == [10 * row + x for row in (1, 2, 3, 4) for x in range(1, 9)]


@row("001_integer_division")
def integer_division(done):
    assert output(done) == (
        "Triton:\n\ta // b = -7 // 3 =  -2\n\ta % b = -7 % 3 =  -1\n\n"
        "Python:\n\ta // b = -7 // 3 = -3\n\ta % b = -7 % 3 =  2\n"
    )


@row("001_div_mod_exercise")
def div_mod_exercise(done):
    assert output(done).startswith("tensor([-2, -2, -2, -1]")


@row("001_device_print", "001_device_print_32")
def device_print(done):
    before, _, after = output(done).partition("tensor([")
    numbers = [int(number) for number in after.partition("]")[0].replace("\n", " ").split(",")]
    assert numbers == [2 * index for index in range(len(numbers))]
    assert len(numbers) in (16, 32)
    printed = before.splitlines()[: len(numbers)]
    assert sorted(printed) == sorted(
        f"pid (0, 0, 0) idx ({index:2}) VAL: {2 * index}" for index in numbers_of(numbers)
    )


def numbers_of(numbers):
    """0, 1, 2 and so on, one for each."""
    return range(len(numbers))


@row("001_static_print")
def static_print(done):
    assert output(done).splitlines()[:2] == ["BLOCK_SIZE=8", "x int32[constexpr[8]]"]
    assert "Output tensor: tensor([ 0,  2,  4,  6,  8, 10, 12, 14]" in done.out


@row("003_copy_interpreted")
def copy_interpreted(done):
    """It sets TRITON_INTERPRET itself, and prints f-strings in its kernels."""
    first = "pid = [0] | offs = [0 1], mask = [ True  True], x = [1 2]"
    assert output(done).splitlines() == [
        *(first.replace("pid = [0]", f"pid = [{pid}]") for pid in range(3)),
        "tensor([1, 2, 0, 0, 0, 0])",
        first,
        "pid = [1] | offs = [6 7], mask = [False False], x = [0 0]",
        "pid = [2] | offs = [12 13], mask = [False False], x = [0 0]",
        "tensor([1, 2, 0, 0, 0, 0])",
        first,
        "pid = [1] | offs = [2 3], mask = [ True  True], x = [3 4]",
        "pid = [2] | offs = [4 5], mask = [ True  True], x = [5 6]",
        "tensor([1, 2, 3, 4, 5, 6]) tensor([1, 2, 3, 4, 5, 6])",
    ]


@row("001_atomic_add")
def atomic_add(done):
    # The second program loads what is there before or after the first one has added 2 to it.
    numbers = re.findall(r"\d+(?=\.)", output(done).partition("Output:")[2])
    assert len(numbers) == 8
    assert all(number in ("5", "7") for number in numbers[:5])
    assert numbers[5:] == ["1"] * 3


@row("001_racy_add")
def racy_add(done):
    out = output(done).partition("Output:")[2]
    numbers = [float(number) for number in re.findall(r"\d\.\d*(?:e[+-]\d+)?", out)]
    # Ten programs add up what they have read twice, between which others may have written.
    assert len(numbers) == 8
    assert all(number.is_integer() and 2 <= number <= 2**10 for number in numbers[:5])
    assert numbers[5:] == [1.0] * 3


SMALL_PRODUCT = {"names": {"a": "a[:128, :128].contiguous()", "b": "b[:128, :128].contiguous()"}}


@row("003_grouped_matmul", "003_naive_matmul", small_on_sim=SMALL_PRODUCT)
def products(done):
    assert output(done) == "✅ Triton and Torch match\n"


# Its largest blocks, which no mask keeps inside, are 256 columns wide.
QUARTER = {"names": {"a": "a[:128, :256].contiguous()", "b": "b[:256, :256].contiguous()"}}


# Some sums of 512 terms are beyond 64, where one ulp of fp16 is more than the tolerance of the program: torch and
# another product that rounds to nearest differ by one now and then.
@row("003_matmul_autotuned", small=QUARTER)
def matmul_autotuned(done):
    assert output(done) == "autotuned matmul matches\n"


@row("003_naive_matmul_out_of_bounds")
def naive_matmul_out_of_bounds(done):
    assert (done.code, done.out) == (1, "")
    text = done.err.partition("tilewright.errors.OutOfBoundsError: ")[2]
    path = PROGRAMS / "003_naive_matmul_out_of_bounds.py"

    def where(line, name):
        shown = f"{line} |         {name} = tl.load(offs_{name})\n   |             ^^^^^^^^^^^^^^^ "
        return f"  --> {path}:{line}:13\n   |\n{shown}"

    if not ON_CPU:
        # Both loads are out of bounds. Asynchronous copies load A and B, in any order.
        assert where(52, "a") in text or where(53, "b") in text
        return
    assert text == (
        f"error[TW0201]: load out of bounds of `a_ptr`\n{where(52, 'a')}reads element 12 of `a_ptr`\n"
        "   |\n"
        "   = note: `a_ptr` has the elements 0 to 11 (48 bytes); the offset in elements is 12\n"
        "   = note: in program (0, 0, 0), at element [0, 12] of the tile\n"
        "   = help: mask the access, `tl.load(…, mask=…)`, where the tile extends past the end of the tensor\n"
    )


@row("003_swizzle")
def swizzle(done):
    numbers = [int(number) for number in re.findall(r"\d+(?=[,\]])", output(done))]
    # Three rows at a time, column by column.
    assert numbers == [*range(20), 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 12, 14, 16, 18, 13, 15, 17, 19]


@row("003_greyscale")
def greyscale(done):
    assert output(done) == "greyscale matches\n"


@row("001_heuristics")
def heuristics(done):
    name, _, sums = output(done).partition("\n")
    assert name == "BLOCK_SIZE 64"
    assert [float(number) for number in re.findall(r"\d+\.", sums)] == [11, 22, 33, 44] * 10


# -- what they measure --


@row(
    "001_matmul_block_sizes",
    small={
        "names": {"get_time.repeat": "2", "x": "x[:64, :96].contiguous()", "y": "y[:96, :128].contiguous()"}
    },
)
def matmul_block_sizes(done):
    # Most are larger than the matrices and store beyond them; a warning tells.
    assert done.code == 0, done.err
    assert re.findall(r"MAX DIFFERENCE:  (\S+)", done.out) == ["0.0"] * 4
    assert "B0 = AUTOTUNED" in done.out


@row(
    "001_matmul_table",
    # The program's mask of the product is right where the blocks divide the sizes.
    small={"names": {"get_time.repeat": "2", "dimensions": "dimensions[1:4]"}},
    small_on_sim={"names": {"get_time.repeat": "1", "dimensions": "dimensions[1:2]"}},
)
def matmul_table(done):
    pytest.importorskip("tabulate")
    cells = [line.strip("|").split("|") for line in output(done).splitlines() if line.startswith("|")]
    titles, *lines = [[cell.strip() for cell in line] for line in cells]
    assert titles == ["Dimensions", "Triton Time", "Triton Autotuned Time", "PyTorch Time"]
    timed = [line for line in lines if line[0]]
    assert timed
    assert all(re.fullmatch(r"\d+\.\d{3} ms", cell) for line in timed for cell in line[1:])


@row("000_vector_add_benchmark", "002_vector_add_benchmark", small={"points": [0, 3]})
def vector_add_benchmark(done):
    plots = check_benchmark(
        done, "vector-add-performance", ["size", "Triton", "Torch"], [4096.0, 8192.0, 16384.0]
    )
    if not (done.folder / "results.html").exists():
        assert len(plots) == 1
        return
    # One of them asks for files.
    csv = (done.folder / "vector-add-performance.csv").read_text().splitlines()
    assert csv[0] == "size,Triton,Torch"
    assert [line.split(",")[0] for line in csv[1:]] == ["4096", "8192", "16384"]
    assert all(float(cell) > 0 for line in csv[1:] for cell in line.split(","))
    assert '<image src="vector-add-performance.png"/>' in (done.folder / "results.html").read_text()


@row(
    "000_fused_softmax_benchmark",
    small={"points": [0, 2], "args": {"M": 64}, "names": {"x": "x[:64].contiguous()"}},
    small_on_sim={"points": [0, 2], "args": {"M": 8}, "names": {"x": "x[:8].contiguous()"}},
)
def fused_softmax_benchmark(done):
    columns = ["N", "Triton", "Torch", "Naive", "Softmax"]
    assert len(check_benchmark(done, "softmax-performance", columns, [256.0, 384.0])) == 1


# Its second benchmark is of matrices of 512 by 512 whatever the sizes are: in a simulator one size is enough.
@row("003_matmul_benchmark", small={"points": [0, 2]}, small_on_sim={"points": [0, 1]})
def matmul_benchmark(done):
    columns = ["Naive", "Grouped", "Torch"]
    sizes = [32.0] if DEVICE.startswith("sim") else [32.0, 64.0]
    # It runs two of its three; the second is of sizes of blocks.
    plots = check_benchmark(done, "matmul-performance", ["square_matrix_size", *columns], sizes)
    assert len(plots) == 2
    assert re.search(r"^\s+batch_size\s+Naive\s+Grouped\s+Torch$", done.out, re.MULTILINE)


# Blocks that are larger than the matrices reach beyond them.
@row("003_matmul_autotuned_benchmark", small={"points": [1, 3]})
def matmul_autotuned_benchmark(done):
    columns = ["square_matrix_size", "Naive", "Grouped", "Grouped", "&", "Auto-Tuned", "Torch"]
    assert len(check_benchmark(done, "matmul-performance", columns, [64.0, 128.0])) == 1


def check_benchmark(done, title, columns, sizes):
    """Checks the table that a benchmark prints, and what it draws; returns what it has shown."""
    # matplotlib, there or not, may say something of a plot.
    assert done.code == 0, done.err
    table = done.out[re.search(f"^{title}:$", done.out, re.MULTILINE).end() :].splitlines()[1:]
    assert table[0].split() == columns
    found = [[float(cell) for cell in line.split()] for line in table[1 : len(sizes) + 1]]
    assert [line[:2] for line in found] == [[number, size] for number, size in enumerate(sizes)]
    assert all(cell > 0 for line in found for cell in line[2:])
    pytest.importorskip("matplotlib")
    for path in done.folder.glob("*.png"):
        check_plot(path, 1 + ("Naive" in columns) + ("Torch" in columns))
    return list(done.folder.glob("shown_*.png"))


def check_plot(path, lines):
    """Checks that a picture has as many colors of lines, at least, as it should have."""
    from matplotlib import pyplot

    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = pyplot.imread(path)[..., :3].reshape(-1, 3)
    of_lines = [(0, 0, 1), (0, 0.5, 0), (1, 0, 0), (1, 0.65, 0)]
    seen = [abs(pixels - color).sum(axis=1).min() < 0.05 for color in of_lines]
    assert sum(seen) >= lines, (path, seen)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_program(name, run_forked, script, tmp_path, device):
    entry = ROWS[name]
    small = (entry.small_on_sim if DEVICE.startswith("sim") else None) or entry.small
    path = PROGRAMS / f"{name}.py"
    command = [path] if small is None else [REDUCED, path, json.dumps(small)]
    folder = tmp_path / "folder"
    folder.mkdir()
    # Reads past the end of a tensor are errors, also in the padding that a GPU's allocator leaves there.
    environment = {"MPLBACKEND": "agg", "TILEWRIGHT_STRICT": "1", **stand_in_for_ipython(script)}
    done = run_forked("-m", "tilewright", "run", *command, env=environment, cwd=folder)
    done.err = "".join(line for line in done.err.splitlines(True) if not line.startswith("tilewright: "))
    done.folder = folder
    entry.check(done)


def stand_in_for_ipython(script):
    """The path of what a program imports of it, where it is not installed."""
    if find_spec("IPython") is not None:
        return {}
    import tilewright

    script("", "IPython/__init__.py")
    script("", "IPython/core/__init__.py")
    path = script("from pdb import set_trace", "IPython/core/debugger.py").parents[2]
    package = Path(tilewright.__file__).resolve().parents[1]
    return {"PYTHONPATH": os.pathsep.join(map(str, (path, package)))}
