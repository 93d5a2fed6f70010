"""`make gpu`: a pack is complete, says what is missing, and makes a table; none of this needs a GPU."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import PATIENCE, ROOT
from wheels import tilewright_wheel

import tilewright

sys.path.append(str(ROOT / "benches"))

from gpu import cases, measure, pack, report, suite
from gpu.report import Row

PACKAGE = Path(tilewright.__file__).resolve().parent


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A pack with a wheel made of the package as it is imported here, without pytest and compiled tests."""
    folder = tmp_path_factory.mktemp("gpu")
    assert 0 < pack.pack(folder / "pack", tilewright_wheel(folder), [], {}) < pack.LIMIT
    return folder / "pack"


@pytest.fixture
def run_pack(packed, tmp_path):
    """Runs the pack as its user does: from another folder, knowing nothing of this tree."""

    def run(*arguments):
        hidden = {"PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": "", "OUT": ""}
        return subprocess.run(
            [sys.executable, packed, "--out", tmp_path / "out", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUTF8": "1", **hidden},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return run


def test_without_a_gpu_the_pack_is_checked(run_pack, tmp_path):
    done = run_pack()
    assert (done.returncode, done.stderr) == (suite.NO_GPU, "")
    checks = {
        check["name"]: check
        for check in json.loads((tmp_path / "out" / "results.json").read_text())["checks"]
    }
    assert {name for name, check in checks.items() if not check["passed"]} == {"GPU"}
    assert f"tilewright {tilewright.__version__}" in checks["versions"]["outcome"]
    has_peer = importlib.util.find_spec("triton") is not None
    assert ("import triton" in checks) == (not has_peer)
    assert (tmp_path / "out" / "results.md").read_text().count("✗") == 1
    assert (tmp_path / "out" / "log.txt").exists()


def test_a_file_that_is_cut_off_is_named(run_pack, packed):
    helpers = packed / "tests" / "python" / "support" / "helpers.py"
    text = helpers.read_bytes()
    helpers.write_bytes(text[:100])
    try:
        done = run_pack("--dry")
    finally:
        helpers.write_bytes(text)
    assert done.returncode == 1
    assert "missing or cut off: tests/python/support/helpers.py (1 in all)" in done.stdout


def test_the_pages_of_kernels_are_in_the_pack(packed):
    pages = {path.name for path in (ROOT / "tests" / "kernels").glob("*.md")}
    assert pages
    assert {path.name for path in (packed / "tests" / "kernels").iterdir()} == pages


@pytest.mark.parametrize("number", range(6))
def test_kernels_whose_compilation_is_timed_compile(number, monkeypatch):
    torch = pytest.importorskip("torch")

    def random(*shape, dtype="float32"):
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    monkeypatch.setattr(cases, "_random", random)
    case = cases.compiled()[number]
    assert measure.ptx_ours(case.prepare(), "sm_90a") > 0


def test_rows_of_compilation_have_names_of_their_own():
    names = [f"{case.name} {case.size}" for case in cases.compiled()]
    assert len(set(names)) == len(names) == 6
    assert "matmul fp16 1024 in 128x256x64" in names


def test_the_kernels_are_loaded_once_for_each_implementation():
    pytest.importorskip("triton")
    from gpu import sides

    for side in ("triton", "tilewright"):
        kernel = sides.load(side).add_kernel
        assert type(kernel).__module__.partition(".")[0] == side
    import triton

    assert sys.modules["triton"] is triton
    assert triton.__name__ == "triton"
    assert not triton.__file__.startswith(str(PACKAGE))


# --- The table ---


def row(ours, official, theirs, asked=1.0, size="8"):
    times = {"tilewright": ours, "triton": official, "torch": theirs}
    return Row("a case", size, "GB/s", 6e6, asked, {side: time for side, time in times.items() if time})


def test_figures_are_medians_of_rounds():
    found = row([2.0, 3.0, 1.0], [3.0, 3.0, 3.0], [8.0, 3.0, 1.0])
    assert found.time("tilewright") == 2.0
    # 6 MB in 2 µs.
    assert found.figure("tilewright") == pytest.approx(3000)
    # Round by round, not of medians: 4, 1, 1.
    assert found.ratio("torch") == 1.0
    assert found.ratio("triton") == 1.5
    assert Row("", "", "TFLOP/s", 8e9, None, {"torch": [4000.0]}).figure("torch") == pytest.approx(2.0)
    assert Row("", "", "ms", 0.0, None, {"torch": [4000.0]}).figure("torch") == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("ours", "official", "asked", "passed"),
    [
        ([1.0], [1.0], 1.0, True),
        ([1.0], [0.981], 1.0, True),
        ([1.0], [0.979], 1.0, False),
        ([1.0], [0.5], None, True),
        ([1.0], [], 1.0, True),
        ([], [1.0], 1.0, False),
        ([], [1.0], None, True),
    ],
)
def test_what_is_asked_for(ours, official, asked, passed):
    assert row(ours, official, [1.0], asked).passed == passed


@pytest.mark.parametrize(
    ("torch", "asked", "passed"),
    [([0.95], 0.95, True), ([0.9], 0.95, False), ([], 0.95, True), ([0.1], None, True)],
)
def test_what_is_asked_for_beside_torch(torch, asked, passed):
    both = replace(row([1.0], [1.0], torch), asked_torch=asked)
    assert both.passed == passed
    wanted = "1.0" if asked is None else "1.0, 0.95 of torch"
    assert f"{wanted} at {int(passed)} of 1" in report.terminal([], [both])
    # And where nothing is asked beside triton.
    assert replace(both, asked=None).passed == passed


def test_a_side_that_failed_is_a_line_and_the_worst_size_is_named():
    bad = row([], [1.0], [1.0], size="16")
    bad.errors["tilewright"] = report.first_line(ValueError("\n  no | such op\nmore"))
    rows = [row([1.0], [1.5], [1.0]), row([1.0], [0.5], [1.0], size="12"), bad]
    text = report.terminal([report.Check("tests", True, "3 passed")], rows)
    assert "tilewright failed (1 of 3 sizes, first 16): ValueError: no | such op\n" in text
    assert "1.00, worst 0.50 at 12" in text
    assert "1.0 at 1 of 3" in text
    cells = [line.replace("\\|", "").count("|") for line in report.sizes_markdown(rows).splitlines()]
    assert len(set(cells)) == 1
    assert report.as_json([], rows)["rows"][1]["triton_ratio"] == 0.5


def test_times_are_a_line_for_each_size():
    rows = [
        Row("launch", size, "µs", 0.0, None, {"tilewright": [time]})
        for size, time in (("5", 1.5), ("20", 3.0))
    ]
    lines = [line.split() for line in report.terminal([], rows).splitlines() if "launch" in line]
    assert [line[:6] for line in lines] == [
        ["launch", "5", "µs", "–", "–", "1.5"],
        ["launch", "20", "µs", "–", "–", "3"],
    ]


def test_the_exit_status_says_what_passed():
    good, bad = report.Check("tests", True, ""), report.Check("tests", False, "")
    no_gpu = report.Check(suite.GPU, False, "")
    fast, slow = row([1.0], [1.0], []), row([2.0], [1.0], [])
    assert suite.status([good], [fast]) == 0
    assert suite.status([good], [fast, slow]) == 1
    assert suite.status([bad], [fast]) == 1
    assert suite.status([good, no_gpu], []) == suite.NO_GPU
    assert suite.status([bad, no_gpu], []) == 1


# --- Processes that die ---


def test_a_journal_says_what_a_process_was_at(tmp_path):
    done, begun = row([1.0], [1.0], [1.0]), Row("a case", "16", "GB/s", 6e6, 1.0)
    lines = [
        {"begin": vars(done)},
        {"side": "torch"},
        {"row": vars(done)},
        {"begin": vars(begun)},
        {"side": "triton"},
    ]
    path = tmp_path / "journal"
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"ro')
    assert suite.read_journal(path) == ([done], (begun, "triton"), False)
    path.write_text("\n".join(map(json.dumps, [*lines, {"row": vars(begun)}, {"finished": True}])))
    assert suite.read_journal(path) == ([done, begun], None, True)
    assert suite.read_journal(tmp_path / "none") == ([], None, False)


@pytest.fixture
def a_suite(tmp_path):
    with (tmp_path / "log").open("w+") as log:
        options = argparse.Namespace(limit=PATIENCE, silence=PATIENCE, step=1, rounds=1)
        yield suite.Suite(options, tmp_path, log)


def test_a_process_that_hangs_is_ended(a_suite, tmp_path):
    command = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(9999)"]
    # On a busy machine it takes long to begin.
    for limit in (0.5, 8, 128):
        assert a_suite.run(command, dict(os.environ), limit) == f"no answer in {limit:.0f} s"
        if "begun" in (tmp_path / "log").read_text():
            break
    output = tmp_path / "output"
    with output.open("w") as file:
        ends = [sys.executable, "-c", "print(3); exit(4)"]
        assert a_suite.run(ends, dict(os.environ), PATIENCE, output=file) == 4
    assert output.read_text() == "3\n"
    assert "begun" in (tmp_path / "log").read_text()
    a_suite.options.limit = -1
    assert a_suite.run(command, dict(os.environ), PATIENCE) == "the time of the suite is over"


@pytest.mark.parametrize(
    ("program", "passed", "outcome"),
    [
        (
            "echo '46 kernels of tests/kernels are right, 0 are not'; echo 'test result: ok. 1 passed; 0 failed; 0'",
            True,
            "1 passed; 0 failed; 46 kernels of tests/kernels are right, 0 are not",
        ),
        (
            "echo 'test kernels_on_the_gpu ... 45 kernels of tests/kernels are right, 1 are not' && "
            "echo 'test kernels_on_the_gpu ... FAILED' && echo 'test result: FAILED. 0 passed; 1 failed; 0'; exit 101",
            False,
            "ended with 101: 0 passed; 1 failed; kernels_on_the_gpu; 45 kernels of tests/kernels are right, 1 are not",
        ),
        (
            "echo 'skipped: no GPU'; echo 'test result: ok. 1 passed; 0 failed; 0'",
            True,
            "1 passed; 0 failed; skipped: no GPU",
        ),
        ("echo 'CUDA is gone'; kill -9 $$", False, "ended with -9: CUDA is gone"),
    ],
)
def test_what_a_compiled_test_says(a_suite, tmp_path, monkeypatch, program, passed, outcome):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pages").write_text(f"#!/bin/sh\n{program}\n")
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    a_suite.rust_tests()
    assert [check.outcome for check in a_suite.checks[:2]] == ["not in this pack"] * 2
    assert (a_suite.checks[2].passed, a_suite.checks[2].outcome) == (passed, outcome)


@pytest.mark.parametrize(
    ("deaths", "sizes"),
    [
        ((), ["1", "2", "3", "4"]),
        ((2,), ["1", "2 died", "3", "4"]),
        ((1, 2), ["1 died", "2 died", "3", "4"]),
        ((1, 2, 3), ["1 died", "2 died", "3 died", "rest died"]),
    ],
)
def test_a_process_that_dies_costs_one_size(a_suite, monkeypatch, deaths, sizes):
    def measure(case, journal, skip):
        lines = []
        for size in range(skip + 1, 5):
            lines += [{"begin": vars(row([], [], [], size=str(size)))}, {"side": "triton"}]
            if size in deaths:
                break
            lines.append({"row": vars(row([1.0], [1.0], [1.0], size=str(size)))})
        else:
            lines.append({"finished": True})
        journal.write_text("\n".join(map(json.dumps, lines)))
        return 0 if size not in deaths else -11

    monkeypatch.setattr(a_suite, "measure", measure)
    a_suite.benchmark("a case")
    assert [found.size + " died" * bool(found.errors) for found in a_suite.rows] == sizes
    errors = [error for found in a_suite.rows for error in found.errors.items() if found.size != "rest"]
    assert set(errors) <= {("triton", "the process ended with status -11")}
    assert all(found.passed == (not found.errors) for found in a_suite.rows)


@pytest.mark.parametrize("ended", [0, -11])
def test_products_are_rows_of_the_table(a_suite, monkeypatch, ended):
    commands = []

    def run(command, environment, limit, *, alive=None):
        commands.append(command[3:])
        if alive is None:
            return 0
        times = {"triton": [2.0], "tilewright": [1.0]}
        errors = {"triton 8x8 w4 s3": "too large", "torch": "none"}
        config = {"triton": "8x8 w4 s2", "tilewright": "8x8 w4 s3"}
        found = {"name": "matmul", "unit": "TFLOP/s", "work": 4e6, "asked": 1.05, "asked_torch": 0.95}
        alive.write_text(
            json.dumps([{**found, "errors": errors, "config": config, "tried": {}, "times": times}])
        )
        return ended

    monkeypatch.setattr(a_suite, "run", run)
    a_suite.options.workers, a_suite.options.rounds, a_suite.options.silence = 2, 3, 60
    a_suite.compare(suite.PRODUCTS)
    assert sorted(command[:2] for command in commands[:2]) == [["--compile", "0/2"], ["--compile", "1/2"]]
    assert commands[2][2:] == ["--rounds", "3"]
    matmul, *rest = a_suite.rows
    assert (matmul.case, matmul.size, matmul.errors) == ("matmul", "8x8 w4 s3", {"torch": "none"})
    assert matmul.passed
    assert matmul.ratio("triton") == 2.0
    assert [(last.size, last.passed) for last in rest] == ([] if ended == 0 else [("rest", False)])


def test_products_are_compared_with_the_official_compiler(a_suite):
    a_suite.note("import triton", True, "No module named 'triton'")
    a_suite.compare(suite.PRODUCTS)
    assert a_suite.rows == []
    assert a_suite.checks[-1].outcome == "not compared without the official triton"


@pytest.mark.parametrize("part", [suite.BANDWIDTH, suite.TORCH_COMPILE])
@pytest.mark.parametrize("ended", [0, 1])
def test_what_modules_compare_is_rows_of_the_table(a_suite, monkeypatch, part, ended):
    def run(command, environment, limit, *, alive):
        assert ("--rounds" in command) == (part == suite.BANDWIDTH)
        fast = {"name": "sum", "times": {"triton": [2.0, 2.0], "tilewright": [1.0, 1.0]}, "errors": {}}
        wrong = {"name": "mean", "times": {"triton": [1.0]}, "errors": {"tilewright": "wrong"}}
        alive.write_text(json.dumps([fast, wrong][: ended + 1]))
        return ended

    monkeypatch.setattr(a_suite, "run", run)
    a_suite.options.rounds, a_suite.options.silence = 2, 60
    a_suite.compare(part)
    assert [(row.case, row.passed) for row in a_suite.rows] == [("sum", True), ("mean", False)][: ended + 1]
    assert a_suite.rows[0].ratio("triton") == 2.0


@pytest.mark.parametrize(
    ("ended", "text"), [(0, "135 launches, 0 bad"), (1, "135 launches, 2 bad"), (-9, "")]
)
def test_what_sanitizers_find_is_a_check(a_suite, monkeypatch, ended, text):
    def run(command, environment, limit, *, output):
        output.write(f"| launch |\n{text}\n" if text else "")
        return ended

    monkeypatch.setattr(suite.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(a_suite, "run", run)
    a_suite.options.workers = 2
    a_suite.sanitizers()
    expected = text or "the process ended with -9"
    assert (a_suite.checks[-1].passed, a_suite.checks[-1].outcome) == (ended == 0, expected)
