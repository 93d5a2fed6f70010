"""Kernels that load addresses and reach through them, as a grouped matrix product does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.errors import OutOfBoundsError


@triton.jit
def _grouped(
    a_ptrs,
    b_ptrs,
    c_ptrs,
    sizes_ptr,
    groups,
    STEP: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """C = A B for each group, all in one launch: a program takes each STEP-th block."""
    block, end = tl.program_id(0), 0
    for group in range(groups):
        rows = tl.load(sizes_ptr + 3 * group)
        columns = tl.load(sizes_ptr + 3 * group + 1)
        depth = tl.load(sizes_ptr + 3 * group + 2)
        across = tl.cdiv(columns, N)
        count = tl.cdiv(rows, M) * across
        while block < end + count:
            a_ptr = tl.load(a_ptrs + group).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_ptrs + group).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_ptrs + group).to(tl.pointer_type(tl.float32))
            i = (block - end) // across * M + tl.arange(0, M)[:, None]
            j = (block - end) % across * N + tl.arange(0, N)[None, :]
            total = tl.zeros((M, N), tl.float32)
            for start in range(0, depth, K):
                k = start + tl.arange(0, K)
                a = tl.load(a_ptr + i * depth + k[None, :], mask=(i < rows) & (k[None, :] < depth), other=0)
                b = tl.load(
                    b_ptr + k[:, None] * columns + j, mask=(j < columns) & (k[:, None] < depth), other=0
                )
                total = tl.dot(a, b, total)
            tl.store(c_ptr + i * columns + j, total, mask=(i < rows) & (j < columns))
            block += STEP
        end += count


def addresses(tensors, device):
    return torch.tensor([tensor.data_ptr() for tensor in tensors], device=device)


def test_a_grouped_product(device):
    torch.manual_seed(0)
    sizes = [(40, 24, 16), (16, 70, 33), (1, 1, 1), (64, 16, 48)]
    a = [torch.randn(m, k).half().to(device) for m, n, k in sizes]
    b = [torch.randn(k, n).half().to(device) for m, n, k in sizes]
    c = [torch.full((m, n), 7.0, device=device) for m, n, k in sizes]
    arguments = [addresses(tensors, device) for tensors in (a, b, c)]
    listed = torch.tensor(sizes, dtype=torch.int32, device=device).flatten()
    for step in (1, 3, 64):
        _grouped[(step,)](*arguments, listed, len(sizes), STEP=step, M=16, N=32, K=16)
        for left, right, found in zip(a, b, c, strict=True):
            torch.testing.assert_close(
                found.cpu().double(), left.cpu().double() @ right.cpu().double(), rtol=1e-3, atol=1e-3
            )
            found.fill_(7.0)


@triton.jit
def _through(table_ptr, out_ptr, offset):
    pointer = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr, tl.load(pointer + offset))
    tl.store(pointer, 5.0)


def test_views_parameters_and_what_lives_elsewhere(device):
    base = torch.arange(100.0, device=device)
    parameter = torch.nn.Parameter(torch.full((3,), 2.0, device=device))
    view = base.view(10, 10)[3:, 2:]
    del base
    out = torch.zeros(1, device=device)
    for tensor, offset, expected in [
        (view, 1, 33.0),
        (view, -32, 0.0),
        (view, 67, 99.0),
        (parameter, 2, 2.0),
    ]:
        _through[(1,)](addresses([tensor], device), out, offset)
        assert out.item() == expected
        assert tensor.detach().flatten()[0].item() == 5.0


def test_what_no_tensor_has_is_still_refused():
    held = torch.zeros(4)
    out, table = torch.zeros(1), addresses([held], "cpu")
    array = np.ones(4, np.float32)
    # Beyond the end; memory of numpy, which the garbage collector does not know; no memory at all.
    for address, offset in [(held.data_ptr(), 1 << 20), (array.ctypes.data, 0), (64, 0)]:
        table[0] = address
        with pytest.raises(OutOfBoundsError) as raised:
            _through[(1,)](table, out, offset)
        assert raised.value.code == "TW0201"
    assert (held.tolist(), array.tolist()) == ([0.0] * 4, [1.0] * 4)


def test_kernels_that_make_no_pointers_look_at_no_tensors(monkeypatch):
    import gc

    @triton.jit
    def plain(out_ptr):
        tl.store(out_ptr, 1.0)
        tl.store(out_ptr + 1, (out_ptr.to(tl.int64) != 0).to(tl.float32))

    def fail():
        raise RuntimeError("the garbage collector is asked")

    out = torch.zeros(2)
    monkeypatch.setattr(gc, "get_objects", fail)
    plain[(1,)](out)
    assert out.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="the garbage collector is asked"):
        _through[(1,)](addresses([out], "cpu"), out, 0)
