"""Registers, spills and instructions of the benchmarks' and the examples' kernels, beside the official compiler's.

Needs its package, which has the assembler, and no GPU. The results are recorded, so that only changed kernels compile.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT

pytest.importorskip("triton")
pytest.importorskip("torch")
sys.path.append(str(ROOT / "benches"))

import static_figures

ROUNDING = 0.005
"""The means are given with two decimals."""


@pytest.mark.parametrize("family", ["others", "reductions", "products"])
def test_no_more_than_the_official_compiler_takes(family):
    comparison = static_figures.Comparison()
    kernels = [kernel for kernel in static_figures.KERNELS if kernel.family == family]
    with ThreadPoolExecutor(2) as pool:
        ours = list(pool.map(comparison.ours, kernels))
    theirs = [comparison.theirs(kernel) for kernel in kernels]
    pairs = list(zip(kernels, ours, theirs, strict=True))
    spilling = {str(kernel) for kernel, mine, other in pairs if mine.spilled > 0 == other.spilled}
    assert not spilling
    # Of two that spill, the one with more registers spills less.
    compared = {
        "registers": [pair for pair in pairs if not (pair[1].spilled or pair[2].spilled)],
        "spilled": [pair for pair in pairs if pair[1].spilled and pair[2].spilled],
        "instructions": pairs,
    }
    for figure, members in compared.items():
        mean = static_figures.geometric_mean(
            [getattr(mine, figure) / getattr(other, figure) for _, mine, other in members]
        )
        assert mean <= 1 + ROUNDING, f"{figure} of {family}: {mean:.3f} of the official compiler's"
