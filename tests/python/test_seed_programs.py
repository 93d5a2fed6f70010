"""Programs of real users, unmodified, through ``tilewright run``: what each prints or asserts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import PROGRAMS

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the programs are not beside this checkout")


@pytest.fixture
def program(run):
    """Runs a program by its number and name; one that works says nothing on stderr but where cuda is."""

    def start(name, path=None):
        done = run("-m", "tilewright", "run", path or PROGRAMS / f"{name}.py")
        done.err = "".join(line for line in done.err.splitlines(True) if not line.startswith("tilewright: "))
        return done

    return start


def succeed(done):
    assert (done.code, done.err) == (0, ""), done.err
    return done.out


def test_vector_add(program):
    lines = succeed(program("000_vector_add")).splitlines()
    assert lines[0] == lines[1]
    assert lines[2] == "The maximum difference between torch and triton is 0.0"


def test_fused_softmax(program):
    # The first ends with an assert that the result is torch's; the second says so.
    assert succeed(program("000_fused_softmax")) == ""
    assert succeed(program("002_fused_softmax")) == "softmax matches\n"


def test_add_basic(program):
    out = succeed(program("001_add_basic"))
    assert out.splitlines()[-1] == "Output: tensor([11., 22., 33., 44., 44., 33., 22., 11.,  0., 11.])"


def test_type_promotion(program):
    dtypes = re.findall(r"torch\.\w+", succeed(program("001_type_promotion")))
    assert [dtype.removeprefix("torch.") for dtype in dtypes] == [
        *("int32", "float32", "float32"),
        *("float16", "float32", "float32"),
        *("float16", "bfloat16", "float16"),
        *("int32", "uint32", "uint32"),
    ]


def test_broadcast_scalar(program):
    out = succeed(program("001_broadcast_scalar"))
    assert out.splitlines()[-1] == "Output:  tensor([10., 11., 12., 13., 14., 15., 16., 17.])"


def test_broadcast_2d(program):
    numbers = re.findall(r"\d+(?=\.)", succeed(program("001_broadcast_2d")).partition("Result (x + y):")[2])
    assert [int(number) for number in numbers] == [10 * row + x for row in (1, 2, 3, 4) for x in range(1, 9)]


def test_integer_division(program):
    assert succeed(program("001_integer_division")) == (
        "Triton:\n\ta // b = -7 // 3 =  -2\n\ta % b = -7 % 3 =  -1\n\n"
        "Python:\n\ta // b = -7 // 3 = -3\n\ta % b = -7 % 3 =  2\n"
    )


def test_div_mod_exercise(program):
    assert succeed(program("001_div_mod_exercise")) == "tensor([-2, -2, -2, -1], dtype=torch.int32)\n"


@pytest.mark.parametrize(("name", "count"), [("001_device_print", 16), ("001_device_print_32", 32)])
def test_device_print(program, name, count):
    printed = [f"pid (0, 0, 0) idx ({index:2}) VAL: {2 * index}" for index in range(count)]
    lines = succeed(program(name)).splitlines()
    assert lines[: count + 1] == [*printed, ""]
    numbers = " ".join(lines[count + 1 :]).partition("tensor([")[2].partition("]")[0]
    assert [int(number) for number in numbers.split(",")] == [2 * index for index in range(count)]


def test_static_print(program):
    assert succeed(program("001_static_print")) == (
        "BLOCK_SIZE=8\nx int32[constexpr[8]]\n"
        "Output tensor: tensor([ 0,  2,  4,  6,  8, 10, 12, 14], dtype=torch.int32)\n"
    )


def test_copy_interpreted(run, script):
    """The program sets TRITON_INTERPRET itself, and prints f-strings in its kernels."""
    script("", "IPython/__init__.py")
    script("", "IPython/core/__init__.py")
    stand_in = script("from pdb import set_trace", "IPython/core/debugger.py")
    path = {"PYTHONPATH": str(stand_in.parents[2])}
    done = run("-m", "tilewright", "run", PROGRAMS / "003_copy_interpreted.py", env=joined(path))
    first = "pid = [0] | offs = [0 1], mask = [ True  True], x = [1 2]"
    assert succeed(done).splitlines() == [
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


def joined(env):
    """The variables, with the path of this process behind theirs."""
    import os

    import tilewright

    package = str(Path(tilewright.__file__).resolve().parents[1])
    path = os.pathsep.join([env["PYTHONPATH"], package])
    return {**env, "PYTHONPATH": path}


def test_atomic_add(program):
    # The second program loads what is there before or after the first one has added 2 to it.
    numbers = re.findall(r"\d+(?=\.)", succeed(program("001_atomic_add")).partition("Output:")[2])
    assert len(numbers) == 8
    assert all(number in ("5", "7") for number in numbers[:5])
    assert numbers[5:] == ["1"] * 3


def test_racy_add(program):
    out = succeed(program("001_racy_add")).partition("Output:")[2]
    numbers = [float(number) for number in re.findall(r"\d\.\d*(?:e[+-]\d+)?", out)]
    # Ten programs double numbers, without regard to each other.
    assert len(numbers) == 8
    assert all(number in [2.0**power for power in range(1, 11)] for number in numbers[:5])
    assert numbers[5:] == [1.0] * 3


def test_grouped_matmul(program):
    assert succeed(program("003_grouped_matmul")) == "✅ Triton and Torch match\n"


def test_naive_matmul_out_of_bounds(program):
    done = program("003_naive_matmul_out_of_bounds")
    assert (done.code, done.out) == (1, "")
    text = done.err.partition("tilewright.errors.OutOfBoundsError: ")[2]
    path = PROGRAMS / "003_naive_matmul_out_of_bounds.py"
    assert text == (
        "error[TW0201]: load out of bounds of `a_ptr`\n"
        f"  --> {path}:52:13\n"
        "   |\n"
        "52 |         a = tl.load(offs_a)\n"
        "   |             ^^^^^^^^^^^^^^^ reads element 12 of `a_ptr`\n"
        "   |\n"
        "   = note: `a_ptr` has the elements 0 to 11: 48 bytes; the offset is 12\n"
        "   = note: in program (0, 0, 0), at element [0, 12] of the tile\n"
        "   = help: mask the access, `tl.load(…, mask=…)`, so that it stays inside where the tile reaches over the "
        "end\n"
    )


def test_naive_matmul(program):
    assert succeed(program("003_naive_matmul")) == "✅ Triton and Torch match\n"


def test_swizzle(program):
    assert succeed(program("003_swizzle")) == (
        "tensor([[ 0,  1,  2,  3],\n"
        "        [ 4,  5,  6,  7],\n"
        "        [ 8,  9, 10, 11],\n"
        "        [12, 13, 14, 15],\n"
        "        [16, 17, 18, 19]])\n"
        # Three rows at a time, column by column.
        "tensor([[ 0,  3,  6,  9],\n"
        "        [ 1,  4,  7, 10],\n"
        "        [ 2,  5,  8, 11],\n"
        "        [12, 14, 16, 18],\n"
        "        [13, 15, 17, 19]])\n"
    )


def test_greyscale(program):
    assert succeed(program("003_greyscale")) == "greyscale matches\n"


def test_heuristics(program):
    out = succeed(program("001_heuristics"))
    name, _, sums = out.partition("\n")
    assert name == "BLOCK_SIZE 64"
    assert [float(number) for number in re.findall(r"\d+\.", sums)] == [11, 22, 33, 44] * 10


def test_matmul_autotuned(program):
    assert succeed(program("003_matmul_autotuned")) == "autotuned matmul matches\n"


@pytest.fixture
def reduced(program, tmp_path, monkeypatch):
    """Runs a program with fewer sizes, or fewer repetitions; everything else is as its user wrote it."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)

    def start(name, changes):
        text = (PROGRAMS / f"{name}.py").read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        done = program(name, path)
        # matplotlib, there or not, says something of a plot that no screen shows.
        assert done.code == 0, done.err
        return done.out

    return start


@pytest.mark.parametrize(
    ("name", "sizes", "columns", "lines"),
    [
        ("000_vector_add_benchmark", {"range(12, 28, 1)": "range(8, 11, 1)"}, ["size", "Triton", "Torch"], 3),
        (
            "000_fused_softmax_benchmark",
            {"range(2, 100)": "range(2, 4)", "'M': 4096": "'M': 16", "1823, 781": "23, 781"},
            ["N", "Triton", "Torch", "Naive", "Softmax"],
            2,
        ),
        ("002_vector_add_benchmark", {"range(12, 28, 1)": "range(8, 10, 1)"}, ["size", "Triton", "Torch"], 2),
        (
            "003_matmul_benchmark",
            {"range(5, 12, 1)": "range(5, 7, 1)", "sz = 512": "sz = 64"},
            ["square_matrix_size", "Naive", "Grouped", "Torch"],
            2,
        ),
        (
            "003_matmul_autotuned_benchmark",
            {"range(5, 12, 1)": "range(6, 8, 1)"},
            [*("square_matrix_size", "Naive", "Grouped"), *("Grouped", "&", "Auto-Tuned", "Torch")],
            2,
        ),
    ],
)
def test_benchmarks(reduced, name, sizes, columns, lines, tmp_path):
    out = reduced(name, sizes)
    table = out[re.search(r"^\S+-performance:$", out, re.MULTILINE).end() :].splitlines()[1:]
    assert table[0].split() == columns
    for number, row in enumerate(table[1 : lines + 1]):
        cells = row.split()
        assert int(cells[0]) == number
        assert all(float(cell) > 0 for cell in cells[1:])
    if "save_path" in (tmp_path / f"{name}.py").read_text():
        assert (tmp_path / "vector-add-performance.csv").read_text().startswith("size,Triton,Torch\n256")
        assert "vector-add-performance.png" in (tmp_path / "results.html").read_text()


def test_matmul_block_sizes(reduced):
    # 18 configurations, of which most are larger than the matrices.
    out = reduced(
        "001_matmul_block_sizes",
        {"repeat=1000": "repeat=2", "[1024, 512]": "[64, 96]", "[512, 2048]": "[96, 128]"},
    )
    assert re.findall(r"MAX DIFFERENCE:  (\S+)", out) == ["0.0"] * 4
    assert "B0 = AUTOTUNED" in out


def test_matmul_table(reduced):
    pytest.importorskip("tabulate")
    # The program's mask of the product is right where the blocks divide the sizes.
    smaller = dict.fromkeys(("1024", "2048", "4096", "512"), "256")
    out = reduced("001_matmul_table", {"repeat=100": "repeat=2", **smaller})
    assert "Triton Autotuned Time" in out
