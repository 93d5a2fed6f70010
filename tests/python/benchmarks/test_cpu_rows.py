"""The table of `benches/cpu_rows.py`: its rows, a run of one of them, and the comparison with an earlier run."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from conftest import PATIENCE, ROOT

pytest.importorskip("torch")
sys.path.append(str(ROOT / "benches"))

import cpu_rows
from cpu_rows import Result

BEFORE = Result("add", "16k", "fp32", "into", threads=1, ours_cpu=1.0, ratio_cpu=2.0, ratio_best=2.0)


def run_script(*arguments):
    command = [sys.executable, str(ROOT / "benches/cpu_rows.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_names_differ():
    done = run_script("--list")
    assert done.returncode == 0, done.stderr
    names = done.stdout.splitlines()
    assert len(names) >= 60
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_a_row_is_measured_and_compared(tmp_path):
    file = tmp_path / "results.json"
    done = run_script("--only", "add 16k", "--threads", 1, "--rounds", 1, "--seconds", 0.0001, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    results = cpu_rows.read_results(file)
    assert [result.name for result in results] == [
        f"add 16k {dtype}" for dtype in ("fp32", "bf16", "fp16", "int32")
    ]
    assert all(result.threads == 1 and result.ours_cpu > 0 and result.torch_cpu > 0 for result in results)
    assert all(f"| {result.dtype} " in done.stdout for result in results)

    compared = run_script("--compare", file, file)
    assert (compared.returncode, compared.stdout) == (0, "no ratio fell below 0.9 of the ratio before\n")

    content = json.loads(file.read_text(encoding="utf-8"))
    content["results"][1]["ratio_cpu"] /= 2
    content["results"][1]["ratio_best"] /= 2
    lower = tmp_path / "lower.json"
    lower.write_text(json.dumps(content), encoding="utf-8")
    compared = run_script("--compare", file, lower)
    assert compared.returncode == 1
    assert [line.split(",")[0] for line in compared.stdout.splitlines()] == ["fell: add 16k bf16"]
    assert run_script("--compare", lower, file).returncode == 0


@pytest.mark.parametrize(
    ("change", "fell"),
    [
        ({}, False),
        ({"ratio_cpu": 1.85, "ratio_best": 1.85}, False),
        ({"ratio_cpu": 1.75, "ratio_best": 1.75}, True),
        # A fall of only one ratio can come from another program on the machine.
        ({"ratio_cpu": 1.75}, False),
        ({"ratio_best": 1.75}, False),
        ({"error": "AssertionError: differs"}, True),
        ({"threads": 2, "ratio_cpu": 1.0, "ratio_best": 1.0}, False),
    ],
    ids=["same", "a little", "much", "median only", "best only", "failed", "other threads"],
)
def test_fallen(change, fell):
    after = replace(BEFORE, **change)
    assert cpu_rows.fallen([BEFORE], [after]) == ([(BEFORE, after)] if fell else [])


def test_a_row_that_failed_before_cannot_fall():
    assert cpu_rows.fallen([replace(BEFORE, error="broken")], [BEFORE]) == []


def test_the_better_of_two_measurements_counts():
    low, high = replace(BEFORE, ratio_best=1.0), replace(BEFORE, ratio_best=1.5)
    failed = replace(BEFORE, error="broken")
    assert cpu_rows.keep_better([low], [high]) == [high]
    assert cpu_rows.keep_better([high], [low]) == [high]
    assert cpu_rows.keep_better([failed], [low]) == [low]
    assert cpu_rows.keep_better([low], [failed]) == [low]
