"""Atomic operations on blocks that the tensor memory accelerator does, against integers and torch."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

HAS_TMA = (os.environ.get("TILEWRIGHT_DEVICE") or "").endswith("sm_90")

OPERATIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
DTYPES = ["int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32"]


def by_copies(dtype, kind):
    """Returns whether tensor copies have this combination with the meaning of the atomic operation."""
    if kind not in ("min", "max") and dtype == "int64":
        return False
    if kind == "add":
        return True
    return "float" not in dtype


def reductions(handle):
    """The instructions that combine boxes, by their operations."""
    lines = handle.asm["ptx"].splitlines()
    return [line.split("cp.reduce.async.bulk.tensor.")[1].split()[0] for line in lines if "cp.reduce" in line]


@triton.jit
def combine(target, source, N, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    for column in range(0, N, BN):
        value = source.load([row, column])
        if KIND == "add":
            target.atomic_add([row, column], value)
        elif KIND == "min":
            target.atomic_min([row, column], value)
        elif KIND == "max":
            target.atomic_max([row, column], value)
        elif KIND == "and":
            target.atomic_and([row, column], value)
        elif KIND == "or":
            target.atomic_or([row, column], value)
        else:
            target.atomic_xor([row, column], value)


CASES = [
    (dtype, kind)
    for dtype, kind in itertools.product(DTYPES, OPERATIONS)
    if "float" not in dtype or kind in ("add", "min", "max")
]


@pytest.mark.parametrize(("dtype", "kind"), CASES)
def test_each_operation(device, dtype, kind):
    M, N, more, (BM, BN) = 11, 24, 16, (8, 16)
    rng = np.random.default_rng(6)
    low = 0 if dtype.startswith("u") else -40
    before = rng.integers(low, 40, (M + 2, N + more))
    values = rng.integers(low, 40, (M, N))
    torch_dtype = getattr(torch, dtype)
    memory = torch.from_numpy(before.copy()).to(torch_dtype).to(device)
    source = TensorDescriptor.from_tensor(torch.from_numpy(values).to(torch_dtype).to(device), [BM, BN])
    target = TensorDescriptor(memory, [M, N], [N + more, 1], [BM, BN])
    handle = combine[(2,)](target, source, N, kind, BM, BN, num_warps=2)
    expected = before.copy()
    expected[:M, :N] = OPERATIONS[kind](expected[:M, :N], values)
    found = memory.cpu().to(torch.int64).numpy()
    assert np.array_equal(found, expected)
    if HAS_TMA:
        copied = [f"2d.global.shared::cta.{kind}.tile.bulk_group"] if by_copies(dtype, kind) else []
        assert sorted(set(reductions(handle))) == copied


@pytest.mark.parametrize(
    ("dtype", "columns"), [("int32", 21), ("float16", 18), ("int64", 31), ("float32", 28)]
)
def test_rows_that_end_within_16_bytes(device, dtype, columns):
    # Copies write chunks of 16 bytes: they must not write after the last column of a padded row.
    M, (BM, BN) = 11, (8, 16)
    rng = np.random.default_rng(9)
    before, values = rng.integers(-40, 40, (M + 2, 48)), rng.integers(-40, 40, (M, 32))
    torch_dtype = getattr(torch, dtype)
    memory = torch.from_numpy(before.copy()).to(torch_dtype).to(device)
    source = TensorDescriptor.from_tensor(torch.from_numpy(values).to(torch_dtype).to(device), [BM, BN])
    target = TensorDescriptor(memory, [M, columns], [48, 1], [BM, BN])
    combine[(2,)](target, source, columns, "add", BM, BN, num_warps=2)
    expected = before.copy()
    expected[:M, :columns] += values[:, :columns]
    assert np.array_equal(memory.cpu().to(torch.int64).numpy(), expected)


@triton.jit
def split_k(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.program_id(2) * BK, K, BK * tl.num_programs(2)):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.atomic_add([m, n], acc.to(c.dtype))


@pytest.mark.parametrize("out", [torch.float32, torch.float16])
def test_products_add_up(device, out):
    M, N, K, BM, BN, BK = 72, 104, 128, 64, 64, 32
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randint(-2, 3, (extent, K), generator=generator).half().to(device) for extent in (M, N))
    c = torch.randint(-2, 3, (M, N), generator=generator).to(out).to(device)
    expected = c.double() + a.double() @ b.double().T
    blocks = (a, [BM, BK]), (b, [BN, BK]), (c, [BM, BN])
    descriptors = [TensorDescriptor.from_tensor(x, block) for x, block in blocks]
    handle = split_k[(2, 2, 2)](*descriptors, K, BM, BN, BK, num_warps=4, num_stages=2)
    assert torch.equal(c.double(), expected)
    if HAS_TMA:
        assert reductions(handle)
        assert "red.global" not in handle.asm["ptx"]
        assert "red.relaxed" not in handle.asm["ptx"]


@triton.jit
def mixed(target, source, other_ptr, WHAT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    for i in range(3):
        value = source.load([i * BM, 0])
        if WHAT == "max after add":
            target.atomic_add([0, 0], value)
            target.atomic_max([0, 0], value * 3)
        elif WHAT == "stored first":
            target.store([0, 0], value)
            target.atomic_add([0, 0], value)
        elif WHAT == "read":
            target.atomic_add([0, 0], value)
            value = target.load([0, 0])
            tl.store(other_ptr + rows * BN + columns, value)
        else:
            tl.atomic_add(other_ptr + rows * BN + (columns + 3) % BN, value, sem="relaxed")


@pytest.mark.parametrize("what", ["max after add", "stored first", "read", "wrapped"])
def test_operations_that_do_not_commute_keep_their_order(device, what):
    BM, BN = 8, 16
    rng = np.random.default_rng(8)
    values = rng.integers(-50, 50, (3, BM, BN)).astype(np.int32)
    before = rng.integers(-50, 50, (BM, BN)).astype(np.int32)
    memory, other = (torch.from_numpy(before.copy()).to(device) for _ in range(2))
    source = TensorDescriptor.from_tensor(
        torch.from_numpy(values.reshape(3 * BM, BN).copy()).to(device), [BM, BN]
    )
    target = TensorDescriptor.from_tensor(memory, [BM, BN])
    mixed[(1,)](target, source, other, what, BM, BN, num_warps=1)
    expected, rest = before.copy(), before.copy()
    for value in values:
        if what == "max after add":
            expected = np.maximum(expected + value, value * 3)
        elif what == "stored first":
            expected = value * 2
        elif what == "read":
            expected += value
            rest = expected.copy()
        else:
            rest += np.roll(value, 3, 1)
    assert np.array_equal(memory.cpu().numpy(), expected)
    assert np.array_equal(other.cpu().numpy(), rest)
