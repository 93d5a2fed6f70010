"""A walk through the tests of the language: each launch compiled and interpreted, all memory compared bit for bit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

HERE = Path(__file__).resolve().parent

NOT_OF_LAUNCHES = ("advice", "errors", "faults", "namespace", "print", "machine")
"""What they look at is how a compilation fails or warns, what is printed, or the clock."""


def test_the_language_interpreted(run):
    names = sorted(path for path in HERE.glob("test_language_*.py"))
    chosen = [path for path in names if path.stem.removeprefix("test_language_") not in NOT_OF_LAUNCHES]
    options = ("-q", "-p", "interpret_shadow", "-p", "no:cacheprovider", "--no-header")
    env = {"TILEWRIGHT_SHADOW": "59", "TILEWRIGHT_NUM_THREADS": "1", "TILEWRIGHT_DEVICE": "cpu"}
    env["PYTHONPATH"] = f"{HERE.parents[1] / 'python'}:{HERE}"
    done = run("-m", "pytest", *options, *chosen, env=env, cwd=HERE.parents[1])
    assert done.code == 0, done.out + done.err
    found = re.search(r"(\d+) launches compared", done.out)
    assert found, done.out
    assert int(found.group(1)) > 100, "the walk has become too short"
