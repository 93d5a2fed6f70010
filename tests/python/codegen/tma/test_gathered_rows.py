"""Rows of a tensor by their numbers (`desc.gather`, `desc.scatter`), as the simulated `sm_100` copies them:
`tile::gather4`, `tile::scatter4`. Without a device, one test runs this file again on that one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import DEVICE

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

on_blackwell = pytest.mark.skipif(DEVICE != "sim:sm_100", reason="it is about copies that sm_100a has")

GATHER, SCATTER = "tile::gather4", "tile::scatter4"
WIDTHS = {
    "int8": torch.int8,
    "float16": torch.float16,
    "int32": torch.int32,
    "float32": torch.float32,
    "int64": torch.int64,
}


@triton.jit
def gather(source, rows_ptr, out, column, R: tl.constexpr, C: tl.constexpr):
    rows = tl.load(rows_ptr + tl.arange(0, R))
    tile = source.gather(rows, column)
    tl.store(out + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :], tile)


@triton.jit
def scatter(target, rows_ptr, values, column, R: tl.constexpr, C: tl.constexpr):
    rows = tl.load(rows_ptr + tl.arange(0, R))
    tile = tl.load(values + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    target.scatter(tile, rows, column)


@triton.jit
def moved(source, target, rows_ptr, count, R: tl.constexpr, C: tl.constexpr):
    for start in range(0, count, R):
        rows = tl.load(rows_ptr + start + tl.arange(0, R))
        for column in range(0, 4 * C, C):
            target.scatter(source.gather(rows + 1, column), rows, column)


@triton.jit
def moved_within(tensor, rows_ptr, count, R: tl.constexpr, C: tl.constexpr):
    for start in range(0, count, R):
        rows = tl.load(rows_ptr + start + tl.arange(0, R))
        for column in range(0, 4 * C, C):
            tensor.scatter(tensor.gather(rows + 1, column), rows, column)


@triton.jit
def product(a, b, rows_ptr, out, k, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EACH: tl.constexpr):
    rows = tl.load(rows_ptr + tl.arange(0, R))
    acc = tl.zeros((R, N), tl.float32)
    for i in range(0, k, K):
        if EACH:
            rows = tl.load(rows_ptr + tl.arange(0, R) + i)
        acc = tl.dot(a.gather(rows, i), b.load([i, 0]), acc)
    tl.store(out + tl.arange(0, R)[:, None] * N + tl.arange(0, N)[None, :], acc)


def matrix(rows, columns, dtype):
    return (
        torch.arange(1, rows * columns + 1).reshape(rows, columns).to(dtype)
        if dtype == torch.int64
        else torch.randint(-100, 100, (rows, columns)).to(dtype)
    )


def descriptor(tensor, columns):
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [1, columns])


def numbers(rows, count, dtype=np.int32):
    """Some of them are rows, some are before the first row or after the last."""
    found = np.random.default_rng(count).integers(-3, rows + 3, count).astype(dtype)
    found[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    return found


def window(tensor, rows, column, columns):
    """The rows with these numbers; zeros where there are none."""
    out = torch.zeros((len(rows), columns), dtype=tensor.dtype)
    for place, row in enumerate(rows.tolist()):
        if 0 <= row < tensor.shape[0]:
            part = tensor[row, max(column, 0) : max(column + columns, 0)]
            out[place, max(-column, 0) : max(-column, 0) + len(part)] = part
    return out


@on_blackwell
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize(
    ("count", "row_bytes", "warps"), [(8, 32, 1), (32, 64, 4), (64, 128, 4), (256, 32, 2), (16, 512, 8)]
)
def test_rows_come_and_go_by_number(dtype, count, row_bytes, warps, device):
    dtype = WIDTHS[dtype]
    columns = row_bytes // dtype.itemsize
    if columns > 256 and dtype.itemsize == 1:
        columns = 256
    tensor = matrix(19, 1024 // dtype.itemsize, dtype)
    rows = numbers(19, count)
    step = 16 // dtype.itemsize
    for column in (0, step, 1024 // dtype.itemsize - step, -step, 2048):
        out = torch.full((count, columns), 77, dtype=dtype)
        handle = gather[(1,)](
            descriptor(tensor, columns), torch.from_numpy(rows), out, column, count, columns, num_warps=warps
        )
        assert torch.equal(out, window(tensor, rows, column, columns)), column
        if column % 16 == 0:
            assert GATHER in handle.asm["ptx"]
        if column < 0:
            continue
        target = torch.full((19, 1024 // dtype.itemsize), 5, dtype=dtype)
        expected, values = target.clone(), matrix(count, columns, dtype)
        distinct = np.where(
            np.isin(np.arange(count), np.unique(rows, return_index=True)[1]), rows, -1
        ).astype(np.int32)
        for place, row in enumerate(distinct.tolist()):
            if 0 <= row < 19:
                part = expected[row, column : column + columns]
                part[:] = values[place, : len(part)]
        handle = scatter[(1,)](
            descriptor(target, columns),
            torch.from_numpy(distinct),
            values,
            column,
            count,
            columns,
            num_warps=warps,
        )
        assert torch.equal(target, expected), column
        if column % 16 == 0:
            assert SCATTER in handle.asm["ptx"]


@on_blackwell
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_numbers_of_any_width(dtype, device):
    tensor, rows = matrix(100, 64, torch.float16), numbers(100, 32, dtype)
    out = torch.zeros((32, 64), dtype=torch.float16)
    handle = gather[(1,)](descriptor(tensor, 64), torch.from_numpy(rows), out, 0, 32, 64)
    assert torch.equal(out, window(tensor, rows, 0, 64))
    assert GATHER in handle.asm["ptx"]


@on_blackwell
def test_loops_of_rows(device):
    source, rows = (
        matrix(40, 64, torch.float16),
        np.random.default_rng(3).permutation(48).astype(np.int32) - 4,
    )
    target = torch.zeros((40, 64), dtype=torch.float16)
    handle = moved[(1,)](descriptor(source, 16), descriptor(target, 16), torch.from_numpy(rows), 48, 16, 16)
    expected = torch.zeros_like(target)
    expected[:39] = source[1:]
    assert torch.equal(target, expected)
    assert GATHER in handle.asm["ptx"]
    assert SCATTER in handle.asm["ptx"]


@on_blackwell
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("stages", [1, 3])
def test_products_of_rows(each, stages, device):
    k = 160
    a, b = torch.randint(-3, 4, (50, k)).half(), torch.randint(-3, 4, (k, 32)).half()
    rows = numbers(50, 64 + k)
    out = torch.zeros((64, 32))
    handle = product[(1,)](
        descriptor(a, 32),
        TensorDescriptor(b, [k, 32], [32, 1], [32, 32]),
        torch.from_numpy(rows),
        out,
        k,
        64,
        32,
        32,
        each,
        num_stages=stages,
    )
    expected = torch.zeros((64, 32))
    for i in range(0, k, 32):
        these = rows[i : i + 64] if each else rows[:64]
        expected += window(a, these, i, 32).float() @ b[i : i + 32].float()
    assert torch.equal(out, expected)
    assert GATHER in handle.asm["ptx"]


@on_blackwell
def test_rows_of_a_tensor_that_is_written_stay_with_threads(device):
    tensor, rows = matrix(40, 64, torch.float16), np.arange(32, dtype=np.int32)
    expected = tensor.clone()
    expected[:32] = tensor[1:33]
    handle = moved_within[(1,)](descriptor(tensor, 16), torch.from_numpy(rows), 32, 16, 16)
    assert torch.equal(tensor, expected)
    assert GATHER not in handle.asm["ptx"]
    assert SCATTER not in handle.asm["ptx"]


@on_blackwell
def test_what_is_no_such_copy_stays_with_threads(device):
    tensor = matrix(20, 64, torch.float16)
    for count, columns, column in [(4, 64, 0), (16, 8, 0), (16, 64, 3)]:
        rows, out = numbers(20, count), torch.zeros((count, columns), dtype=torch.float16)
        handle = gather[(1,)](
            descriptor(tensor, columns), torch.from_numpy(rows), out, column, count, columns
        )
        assert torch.equal(out, window(tensor, rows, column, columns))
        assert GATHER not in handle.asm["ptx"]


@pytest.mark.skipif(DEVICE != "cpu", reason="once is enough")
@pytest.mark.parametrize(
    ("rows", "columns", "column", "said"),
    [
        (32, 64, "i32:16", "by tensor copies of rows"),
        (4, 64, "i32:16", "the tile has fewer than 8 rows"),
        (16, 8, "i32:16", "a copy would move less than 32 bytes of a row"),
        (16, 64, "i32", "strides are not known to be aligned"),
    ],
)
def test_what_is_decided_is_said(rows, columns, column, said):
    signature = f"tensordesc<fp16[1, {columns}]>,*i32:16,*fp16:16,{column},{rows},{columns}"
    command = [
        "explain",
        f"{__file__}::gather",
        "--signature",
        signature,
        "--target",
        "sm_100a",
        "--tensor-maps",
        "--why",
    ]
    ran = subprocess.run([sys.executable, "-m", "tilewright", *command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout


@pytest.mark.skipif(DEVICE != "cpu", reason="once is enough")
def test_on_the_simulated_device():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    ran = subprocess.run(
        command, env={**os.environ, "TILEWRIGHT_DEVICE": "sim:sm_100"}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
