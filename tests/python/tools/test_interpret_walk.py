"""Walks through the tests of the language in interpret mode: every test by itself, and launches bit for bit."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT

pytest.importorskip("torch")

TESTS = ROOT / "tests/python"
SUPPORT = TESTS / "support"

ELSEWHERE = [
    TESTS / f"{name}.py"
    for name in (
        "codegen/test_clusters",
        "codegen/test_dot_split",
        "codegen/test_dot_warpgroups",
        "codegen/test_dot_weights",
        "codegen/test_shared_lanes",
        "codegen/tma/test_cluster_multicast",
        "launch/test_grids",
    )
]
"""Tests of other folders that say what the language means."""

FILES = sorted({*TESTS.glob("language/**/test_*.py"), *ELSEWHERE} - {TESTS / "language/test_conformance.py"})

NOT_OF_LAUNCHES = ("advice", "errors", "faults", "namespace", "odd_arguments", "print", "machine")
"""These tests check how a compilation fails or warns, the output, or the clock."""


def test_the_language_interpreted(run):
    chosen = [path for path in FILES if path.stem.removeprefix("test_") not in NOT_OF_LAUNCHES]
    options = ("-q", "-p", "interpret_shadow", "-p", "no:cacheprovider", "--no-header")
    env = {"TILEWRIGHT_SHADOW": "59", "TILEWRIGHT_NUM_THREADS": "1", "TILEWRIGHT_DEVICE": "cpu"}
    env["PYTHONPATH"] = f"{ROOT / 'python'}:{SUPPORT}"
    done = run("-m", "pytest", *options, *chosen, env=env, cwd=ROOT)
    assert done.code == 0, done.out + done.err
    found = re.search(r"(\d+) launches compared", done.out)
    assert found, done.out
    assert int(found.group(1)) > 100, "the walk has become too short"


PARTS = 4
"""How many processes walk through the files; each has its own part of them."""


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_every_test_of_the_language_interpreted(part, run):
    """All differences are in ``interpret_differences.py``, and must differ: a test there that passes fails."""
    options = ("-q", "-p", "interpret_walk", "-p", "no:cacheprovider", "--no-header", "--timeout=120")
    env = {"TRITON_INTERPRET": "1", "TILEWRIGHT_DEVICE": "cpu"}
    env["PYTHONPATH"] = f"{ROOT / 'python'}:{SUPPORT}"
    done = run("-m", "pytest", *options, *FILES[part::PARTS], env=env, cwd=ROOT)
    assert done.code == 0, done.out + done.err
    found = re.search(r"(\d+) tests launched (\d+) interpreted kernels, (\d+) launched none", done.out)
    assert found, done.out
    launching, launches, others = map(int, found.groups())
    assert launching > 700, "the walk has become too short"
    assert launches >= launching > 10 * others
