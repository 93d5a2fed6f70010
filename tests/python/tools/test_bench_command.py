"""``tilewright bench``: the statistics on numbers that are known, the command, and the mistakes that a user makes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from conftest import PATIENCE, environment_of

from tilewright._bench_command import _counts, _difference, _Function, _Launch, _measured, compare, verdict

KERNELS = """
import tilewright as triton
import tilewright.language as tl


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, FACTOR * tl.load(x + at * STRIDE, mask=at < n), mask=at < n)


def work():
    return sum(range(1000))


def takes(what):
    pass
"""


def bench(folder, *arguments, **environment):
    """Runs the command in a folder with two versions of kernels."""
    for name, factor, stride in (("a", 1, 1), ("b", 1, 1), ("other", 2, 1), ("strided", 1, 8)):
        constants = f"FACTOR = tl.constexpr({factor})\nSTRIDE = tl.constexpr({stride})\n"
        text = KERNELS.replace("\n\n@triton.jit", f"\n{constants}\n@triton.jit", 1)
        (folder / f"{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "tilewright", "bench", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**{k: v for k, v in os.environ.items() if k != "TILEWRIGHT_DEVICE"}, **environment},
        timeout=PATIENCE,
    )


LAUNCH = [
    "--args",
    "np.ones(8000, np.float32), np.zeros(1000, np.float32), 1000, BLOCK=128",
    "--grid",
    "(8,)",
]


def samples(seed, center, count=60):
    """Times of a noisy machine: skewed, with outliers."""
    draw = random.Random(seed)
    return [center * (1 + draw.expovariate(20)) * (5 if draw.random() < 0.05 else 1) for _ in range(count)]


def test_equal_distributions_are_no_difference():
    wrong = sum(compare(samples(seed, 1.0), samples(1000 + seed, 1.0)).is_different for seed in range(60))
    # At 95 % confidence some 3 of 60.
    assert wrong <= 8


def test_a_difference_is_found_with_its_size():
    for seed in range(20):
        found = compare(samples(seed, 1.0), samples(1000 + seed, 1.25))
        assert found.is_different
        assert found.low <= found.ratio <= found.high
        assert 1.2 < found.ratio < 1.3


def test_the_interval_is_of_the_ratio_whichever_comes_first():
    a, b = samples(1, 1.0), samples(2, 1.5)
    one, other = compare(a, b), compare(b, a)
    assert one.ratio == pytest.approx(1 / other.ratio)
    assert verdict(one, ("a", "b")).startswith("a is 1.")
    assert verdict(other, ("b", "a")).startswith("a is 1.")
    assert verdict(compare(a, a), ("a", "b")).startswith("no difference: b takes 1.000 times what a takes")
    with pytest.raises(ValueError, match="in pairs"):
        compare([1.0], [1.0, 2.0])


def test_the_ratio_is_that_of_the_medians():
    """The median of the pairs' own ratios is 1 here."""
    assert compare([1.0, 4.0, 9.0], [2.0, 2.0, 9.0]).ratio == pytest.approx(2.0 / 4.0)


def test_kernels_are_compared(tmp_path):
    made = bench(tmp_path, "a.py::copy", "b.py::copy", *LAUNCH, "--device", "cpu", "--time", "0.2", "--json")
    assert (made.returncode, made.stderr) == (0, "")
    found = json.loads(made.stdout)
    assert found["names"] == ["a.py::copy", "b.py::copy"]
    assert found["low"] <= found["ratio"] <= found["high"]
    assert found["pairs"] >= 15
    assert found["ratio"] == pytest.approx(found["ns"][1] / found["ns"][0])
    assert found["different"] == (found["low"] > 1 or found["high"] < 1)


def test_kernels_exchange_their_tensors():
    """The places of tensors in memory are no difference between the versions."""

    class Recorder:
        def __init__(self):
            self.seen = []

        def __getitem__(self, grid):
            return lambda *args, **kwargs: self.seen.append((grid, args, kwargs))

    versions = [
        _Launch(Recorder(), (1,), (np.ones(8), np.ones(4 + number), f"own {number}"), {"out": np.ones(2)})
        for number in (0, 1)
    ]
    first = [(*version.args, version.kwargs["out"]) for version in versions]
    found = _measured(versions, 0.0)
    assert found["comparison"].pairs == 15
    for number, version in enumerate(versions):
        seen = version.kernel.seen
        assert {grid for grid, _, _ in seen} == {(1,)}
        both = {id(one[0]) for one in first}
        assert {id(args[0]) for _, args, _ in seen} == both
        assert {id(kwargs["out"]) for _, _, kwargs in seen} == {id(one[3]) for one in first}
        # A tensor that the other version does not have like this, and what is no tensor, stay.
        assert {id(args[1]) for _, args, _ in seen} == {id(first[number][1])}
        assert {args[2] for _, args, _ in seen} == {f"own {number}"}


def test_functions_exchange_the_equal_tensors_of_their_modules():
    seen = [[], []]
    modules = [
        {
            "x": np.ones(8),
            "nested": {"list": [np.zeros(4)]},
            "own": np.full(2, number),
            "longer": np.ones(3 + number),
            "name": f"own {number}",
        }
        for number in (0, 1)
    ]

    def work(number):
        names = modules[number]
        both = (names["x"], names["nested"]["list"][0])
        mine = (names["own"], names["longer"], names["name"])
        seen[number].append((*map(id, both), *map(id, mine)))

    first = [(names["x"], names["nested"]["list"][0]) for names in modules]
    own = [(names["own"], names["longer"], names["name"]) for names in modules]
    versions = [_Function(lambda number=number: work(number), modules[number]) for number in (0, 1)]
    assert _measured(versions, 0.0)["comparison"].pairs == 15
    for number in (0, 1):
        assert {one[0] for one in seen[number]} == {id(tensors[0]) for tensors in first}
        assert {one[1] for one in seen[number]} == {id(tensors[1]) for tensors in first}
        assert {one[2:] for one in seen[number]} == {tuple(map(id, own[number]))}
        assert modules[number]["x"] is first[number][0]


def test_versions_of_similar_durations_run_equally_often_in_a_sample():
    assert _counts([1e-4, 2e-4]) == [10, 10]
    assert _counts([1e-4, 1.0]) == [10, 1]
    assert _counts([2.0, 3.0]) == [1, 1]


def test_a_package_that_is_not_installed_is_named(tmp_path, script):
    script("raise ImportError('no torch here')", "torch.py")
    made = bench(
        tmp_path,
        "a.py::copy",
        "b.py::copy",
        "--args",
        "torch.ones(1)",
        "--grid",
        "1",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{environment_of()['PYTHONPATH']}",
    )
    assert (made.returncode, made.stderr) == (
        2,
        "error: --args: NameError: name 'torch' is not defined: torch is not installed\n",
    )


def test_functions_are_compared(tmp_path):
    made = bench(tmp_path, "a.py::work", "b.py::work", "--device", "cpu", "--time=0.1")
    assert made.returncode == 0, made.stderr
    assert "95 % confidence" in made.stdout


def test_another_result_is_said(tmp_path):
    made = bench(tmp_path, "a.py::copy", "other.py::copy", *LAUNCH, "--device", "cpu", "--time", "0.1")
    assert made.returncode == 1
    assert "do not compute the same: 1000 elements of tensor 1 differ, by up to 1" in made.stderr
    assert "at the level of the file" not in made.stderr
    (tmp_path / "drawn.py").write_text("import numpy as np\n\ndef work():\n    return np.random.rand(9)\n")
    drawn = ["drawn.py::work", "drawn.py::work", "--device", "cpu", "--time", "0.1", "--gpu", "H100"]
    made = bench(tmp_path, *drawn)
    assert made.returncode == 1
    assert "draw them at the level of the file" in made.stderr
    assert "warning: --gpu H100 has no effect on cpu: it is for simulated GPUs" in made.stderr


def test_a_single_element_that_differs_is_one_element():
    assert _difference(np.zeros(4), np.array([0, 0, 0.5, 0])) == "1 element of tensor 0 differs, by up to 0.5"
    assert _difference([], [1]) == "0 results and 1"
    assert _difference([1], []) == "1 result and 0"


def test_elements_may_differ_by_the_documented_tolerance():
    second = np.array([0.0, 100.0])
    assert _difference(second + np.array([0.0009, 1.0009]), second) is None
    found = _difference(second + np.array([0.0011, 1.0011]), second)
    assert found.startswith("2 elements of tensor 0 differ")


@pytest.mark.parametrize(
    ("module", "draw"), [("random", "random.random()"), ("numpy", "numpy.random.rand(9)")]
)
def test_both_files_draw_the_same_numbers_at_their_import(tmp_path, module, draw):
    text = f"import {module}\nimport numpy\nDATA = numpy.atleast_1d({draw})\ndef work():\n    return DATA\n"
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(text)
    made = bench(tmp_path, "first.py::work", "second.py::work", "--time", "0.01")
    assert (made.returncode, made.stderr) == (0, "")


def test_standard_output_may_be_closed_early(tmp_path):
    loud = "def work():\n    for _ in range(5000):\n        print('a line of this version')\n"
    (tmp_path / "loud.py").write_text(loud)
    for arguments in (["loud.py::work", "loud.py::work", "--time", "0.01"], ["--help"]):
        with subprocess.Popen(
            [sys.executable, "-m", "tilewright", "bench", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment_of(),
            text=True,
        ) as command:
            command.stdout.close()
            assert command.stderr.read() == ""
            assert command.wait(PATIENCE) == 0


def test_the_simulator_compares_by_its_model(tmp_path):
    same = bench(tmp_path, "a.py::copy", "b.py::copy", *LAUNCH, "--device", "sim:sm_90", "--gpu", "H200")
    assert same.returncode == 0, same.stderr
    assert same.stdout.splitlines()[-1] == "no difference on H200, as the model sees it"
    slower = bench(tmp_path, "a.py::copy", "strided.py::copy", *LAUNCH, "--device", "sim:sm_90")
    assert slower.stdout.splitlines()[-1].startswith("a.py::copy is ")


INTERRUPTED = """
import os, signal, time

calls = 0


def first():
    global calls
    calls += 1
    time.sleep(1.1e-3)
    if calls == LAST:
        os.kill(os.getpid(), signal.SIGINT)


def second():
    time.sleep(1.1e-3)
"""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_reports_the_pairs_so_far(tmp_path, options):
    """The first version takes 1.1 ms, so each sample is one call: one before the measurement, three to count, pairs."""
    (tmp_path / "c.py").write_text(INTERRUPTED.replace("LAST", "1 + 3 + 6"))
    made = bench(tmp_path, "c.py::first", "c.py::second", "--time", "60", *options)
    assert made.returncode == 130, made.stderr
    (line,) = made.stderr.splitlines()
    assert line == "tilewright: interrupted after 5 pairs"
    if options:
        assert json.loads(made.stdout)["pairs"] == 5
    else:
        assert made.stdout.splitlines()[-1].endswith(", 5 pairs)")


def test_ctrl_c_before_the_first_pair_is_a_line(tmp_path):
    (tmp_path / "c.py").write_text(INTERRUPTED.replace("LAST", "1"))
    made = bench(tmp_path, "c.py::first", "c.py::second")
    assert (made.returncode, made.stdout) == (130, "")
    assert made.stderr == "tilewright: interrupted before a pair was measured\n"


def test_without_numpy(tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/numpy.py").write_text("raise ImportError\n")
    path = os.pathsep.join([str(tmp_path / "hidden"), os.environ.get("PYTHONPATH", "")])
    text = "class Tensor:\n    shape = (1,)\ndef plain(): return 1\ndef shaped(): return Tensor()\n"
    (tmp_path / "versions.py").write_text(text)
    short = ["--time", "0.1", "--device", "cpu"]
    made = bench(tmp_path, "versions.py::plain", "versions.py::plain", *short, PYTHONPATH=path)
    assert made.returncode == 0, made.stderr
    made = bench(tmp_path, "versions.py::shaped", "versions.py::shaped", *short, PYTHONPATH=path)
    assert made.returncode == 2, made.stderr
    assert "numpy, which compares the results, is not installed: pip install numpy" in made.stderr
    assert "Traceback" not in made.stderr


def test_mistakes(tmp_path):
    for arguments, expected in (
        (["a.py::copy"], "two versions are compared"),
        (["a.py::copy", "b.py"], "not 'b.py'"),
        (["a.py::copy", "no.py::copy", *LAUNCH], "cannot read no.py"),
        (["a.py::copi", "b.py::copy", *LAUNCH], "did you mean 'copy'?"),
        (["a.py::copy", "b.py::copy"], "--args and --grid"),
        (["a.py::copy", "b.py::copy", "--args", "x +", "--grid", "1"], "--args: SyntaxError"),
        (["a.py::copy", "b.py::copy", "--args", "nothing", "--grid", "1"], "--args: NameError"),
        (["a.py::takes", "b.py::takes"], "takes arguments (what)"),
        (["a.py::tl", "b.py::tl"], "neither a function nor a kernel"),
        (["a.py::work", "b.py::work", "--time", "long"], "argument --time: invalid float value: 'long'"),
        (["a.py::work", "b.py::work", "--jsom"], "unknown option '--jsom'; did you mean `--json`?\nhelp: "),
        (
            ["a.py::copy", "b.py::copy", *LAUNCH, "--device", "sim:sm_90", "--gpu", "H300"],
            "error[TW0109]: there is no model of a GPU 'H300'",
        ),
        (["a.py::work", "b.py::work", "--device", "sim:sm_90"], "launches no kernel"),
    ):
        made = bench(tmp_path, *arguments)
        assert made.returncode == 2, (arguments, made.stdout, made.stderr)
        assert expected in made.stderr, made.stderr
        assert "error: error" not in made.stderr
        assert "--gpu: error" not in made.stderr
        assert "Traceback" not in made.stderr
    (tmp_path / "bytes.py").write_bytes(b'x = "\xff"\n')
    made = bench(tmp_path, "bytes.py::k", "a.py::work")
    assert made.returncode == 2
    assert "cannot read bytes.py" in made.stderr


def test_kernels_that_the_arguments_do_not_fit_are_named(tmp_path):
    other = "import tilewright as triton\n\n\n@triton.jit\ndef copy(x, BLOCK):\n    pass\n"
    (tmp_path / "fewer.py").write_text(other)
    made = bench(tmp_path, "a.py::copy", "fewer.py::copy", *LAUNCH)
    assert made.returncode == 2
    assert made.stderr.startswith("error: fewer.py::copy cannot run: error[TW01")
    assert "name functions\n  without arguments that launch them" in made.stderr
    (tmp_path / "wrong.py").write_text(
        other.replace("x, BLOCK", "x, out, n, BLOCK").replace("pass", "nothing")
    )
    made = bench(tmp_path, "a.py::copy", "wrong.py::copy", *LAUNCH)
    assert made.returncode == 2
    assert "wrong.py::copy cannot run: error[TW0001]: 'nothing' is not defined" in made.stderr
    assert "Traceback" not in made.stderr
