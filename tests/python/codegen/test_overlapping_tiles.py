"""Two tiles of one tensor, a constant apart, exchanged in place.

The result is that of one access after the other, whether they overlap or not, and threads of a GPU wait for each other
exactly where they do.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

import tilewright as triton
import tilewright.language as tl

ON_GPU = os.environ.get("TILEWRIGHT_DEVICE", "").startswith("sim")


@triton.jit
def exchange(
    x_ptr, base, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr, APART: tl.constexpr
):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    places = x_ptr + base + rows[:, None] * STRIDE + columns[None, :]
    one = tl.load(places)
    other = tl.load(places + APART)
    tl.store(places, other)
    tl.store(places + APART, one)


CASES = [
    (rows, columns, stride, apart)
    for rows, columns, stride in [(8, 64, 128), (16, 32, 32), (4, 16, 100), (8, 8, 24), (32, 4, 5)]
    for apart in sorted({1, columns - 1, columns, columns + 1, stride - 1, stride, 3 * stride, rows * stride})
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exchanged(device, case):
    rows, columns, stride, apart = case
    base = 7
    x = torch.arange(base + rows * stride + columns + apart, dtype=torch.float32).to(device)
    expected = x.cpu().numpy().copy()
    places = base + np.arange(rows)[:, None] * stride + np.arange(columns)[None, :]
    one, other = expected[places], expected[places + apart]
    expected[places] = other
    expected[places + apart] = one
    handle = exchange[(1,)](x, base, rows, columns, stride, apart)
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    if ON_GPU and rows * columns >= 128:
        # In smaller tiles threads hold copies, and who stores waits for all that load the same.
        overlaps = bool(np.isin(places, places + apart).any())
        assert ("bar.sync" in handle.asm["ptx"]) == overlaps
