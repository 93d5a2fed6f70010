"""The kernels of `benches/gpu/products.py` at small sizes, in the smallest configuration."""

import sys

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "benches"))

pytest.importorskip("torch")

from gpu import products
from gpu.sides import TILEWRIGHT

ROWS = {row.name: row for row in products.rows(small=True)}
"""Their names differ, as the option `--only` needs."""


@pytest.fixture(scope="module")
def side():
    return products.Side(TILEWRIGHT)


@pytest.mark.parametrize("name", ROWS)
def test_row(name, side, device):
    row = ROWS[name]
    problem = row.make()
    config = row.configs[-1]
    run = side.launcher(problem, config)
    assert products.wrong(problem, run, problem.expected()) == ""
