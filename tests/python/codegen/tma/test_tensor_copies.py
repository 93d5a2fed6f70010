"""Loads that the tensor memory accelerator does, on a simulated sm_90: results against numpy."""

from __future__ import annotations

import pytest

PROGRAM = """
import numpy as np
import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

def copies(handle):
    # The tensor maps that it takes.
    lines = handle.asm["gpu"].splitlines() if "gpu" in handle.asm else []
    return sum(line.startswith("T") for line in lines) if lines else None

def check(found, a, b):
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2 * abs(expected).max())

@triton.jit
def pointers(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
             BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WRAP: tl.constexpr):
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_am, offs_bn = offs_m, offs_n
    if WRAP:
        offs_am, offs_bn = offs_m % M, offs_n % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_am[:, None] * sam + offs_k[None, :] * sak
    b_ptrs = b_ptr + offs_k[:, None] * sbk + offs_bn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        inside = offs_k < K - k * BK
        if WRAP:
            a = tl.load(a_ptrs, mask=inside[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=inside[:, None], other=0.0)
        else:
            a = tl.load(a_ptrs, mask=(offs_m < M)[:, None] & inside[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=(offs_n < N)[None, :] & inside[:, None], other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    c_ptrs = c_ptr + offs_m[:, None] * scm + offs_n[None, :] * scn
    tl.store(c_ptrs, acc, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])

@triton.jit
def descriptors(a, b, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OFFSET: tl.constexpr):
    om, on = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(OFFSET, K, BK):
        acc = tl.dot(a.load([om, k]), b.load([k, on]), acc)
    offs_m, offs_n = om + tl.arange(0, BM), on + tl.arange(0, BN)
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])

@triton.jit
def device_descriptors(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    om, on = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([om, k]), b.load([on, k]).T, acc)
    offs_m, offs_n = om + tl.arange(0, BM), on + tl.arange(0, BN)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])

@triton.jit
def batched(a_ptr, b_ptr, c_ptr, M, N, K, sab, sam, sbb, sbk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    a_ptr += batch * sab
    b_ptr += batch * sbb
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        places = k + offs_k
        a_mask = (offs_m < M)[:, None] & (places < K)[None, :]
        b_mask = (places < K)[:, None] & (offs_n < N)[None, :]
        a = tl.load(a_ptr + offs_m[:, None] * sam + places[None, :], mask=a_mask)
        b = tl.load(b_ptr + places[:, None] * sbk + offs_n[None, :], mask=b_mask)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + batch * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])

rng = np.random.default_rng(11)

def tensor(*shape, dtype=np.float16):
    return rng.standard_normal(shape).astype(dtype)

def strides(x):
    return [stride // x.itemsize for stride in x.strides]

BLOCKS = dict(BM=32, BN=32, BK=32)

def multiply(a, b, wrap, **blocks):
    blocks = BLOCKS | blocks
    (M, K), N = a.shape, b.shape[1]
    c = np.full((M, N), 7, np.float32)
    grid = (triton.cdiv(M, blocks["BM"]), triton.cdiv(N, blocks["BN"]))
    numbers = (M, N, K, *strides(a), *strides(b), *strides(c))
    handle = pointers[grid](a, b, c, *numbers, WRAP=wrap, **blocks)
    check(c, a, b)
    return copies(handle)
"""

CASES = {
    "pointers": """
for wrap in (False, True):
    for M, N, K in ((32, 32, 32), (48, 80, 112), (64, 16, 16), (33, 48, 96)):
        found = multiply(tensor(M, K), tensor(K, N), wrap)
        assert found in (None, 2, 3), (wrap, found)
        # Columns are contiguous.
        found = multiply(tensor(K, M).T, tensor(N, K).T, wrap) if M % 16 == 0 else None
        assert found in (None, 2, 3), (wrap, found)
""",
    "element types": """
for dtype in (np.float32, np.float16):
    for wide in (dict(), dict(BK=64, BN=64)):
        found = multiply(tensor(40, 96, dtype=dtype), tensor(96, 64, dtype=dtype), True, **wide)
        assert found is None or found > 0, (dtype, wide, found)
""",
    "strides of 16 bytes that are unknown when the kernel is compiled": """
# Rows of 8 elements, not 16: B lies by rows, and the product of warpgroups reads it as it lies.
# Threads would hold columns of it.
for M, N, K in ((72, 88, 104), (64, 136, 40)):
    for wrap in (False, True):
        found = multiply(tensor(M, K), tensor(K, N), wrap, BM=64, BN=128, BK=64)
        assert found in (None, 2), (M, N, K, wrap, found)
""",
    "products of tf32 as their transposes": """
def loop(handle):
    # The loop and the code after it, where there is text of it.
    text = handle.asm["gpu"] if "gpu" in handle.asm else ""
    return text[text.find("for_loop"):text.rfind("yield_values")]

@triton.jit
def sums(a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sbk, scm, tiles,
         BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORM: tl.constexpr):
    # A program takes several tiles; sums begin with a bias, are used beside the next product, or are none of a loop.
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        offs_m = tile % tl.cdiv(M, BM) * BM + tl.arange(0, BM)
        offs_n = tile // tl.cdiv(M, BM) * BN + tl.arange(0, BN)
        offs_k = tl.arange(0, BK)
        is_c = (offs_m < M)[:, None] & (offs_n < N)[None, :]
        c_places = offs_m[:, None] * scm + offs_n[None, :]
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        most = acc
        if FORM == "bias":
            acc = tl.load(bias_ptr + c_places, mask=is_c, other=0.0)
        if FORM == "single":
            a = tl.load(a_ptr + offs_m[:, None] * sam + offs_k[None, :], mask=(offs_m < M)[:, None])
            b = tl.load(b_ptr + offs_k[:, None] * sbk + offs_n[None, :], mask=(offs_n < N)[None, :])
            acc = tl.dot(a, b)
        else:
            for k in range(0, K, BK):
                a_mask = (offs_m < M)[:, None] & (offs_k < K - k)[None, :]
                b_mask = (offs_k < K - k)[:, None] & (offs_n < N)[None, :]
                a = tl.load(a_ptr + offs_m[:, None] * sam + (k + offs_k)[None, :], mask=a_mask)
                b = tl.load(b_ptr + (k + offs_k)[:, None] * sbk + offs_n[None, :], mask=b_mask)
                acc = tl.dot(a, b, acc)
                if FORM == "used":
                    most = tl.maximum(most, acc)
        if FORM == "used":
            acc += most
        tl.store(c_ptr + c_places, acc, mask=is_c)

# All orders in memory; rows of B that are no multiple of its blocks, of 16 elements, of 16 bytes.
SIZES = ((100, 136, 72, 64, 64, 4, 3), (72, 152, 40, 64, 128, 8, 2), (67, 75, 33, 64, 64, 4, 4))
for M, N, K, BM, BN, warps, stages in SIZES:
    a, b = tensor(M, K, dtype=np.float32), tensor(K, N, dtype=np.float32)
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b)):
            c = np.full((M, N), 7, np.float32)
            grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
            numbers = (M, N, K, *strides(left), *strides(right), *strides(c))
            blocks = dict(BM=BM, BN=BN, BK=32, num_warps=warps, num_stages=stages)
            handle = pointers[grid](left, right, c, *numbers, WRAP=M > 72, **blocks)
            check(c, left, right)
            # Unless both lie along M and N, tensor copies bring both, and no thread stores them again.
            is_direct = N % 4 == 0 and (left is a or right is not b)
            by_threads = [word for word in ("local_store", "copy_async") if word in loop(handle)]
            assert not (is_direct and by_threads), (M, N, K, left is a, right is b, by_threads)

for form in ("plain", "bias", "used", "single"):
    M, N, K = 100, 136, 32 if form == "single" else 72
    a, b, bias = (tensor(*shape, dtype=np.float32) for shape in ((M, K), (K, N), (M, N)))
    c = np.full((M, N), 7, np.float32)
    sums[(2,)](a, b, c, bias, M, N, K, K, N, N, 6, BM=64, BN=64, BK=32, FORM=form)
    a, b, bias = (x.astype(np.float64) for x in (a, b, bias))
    expected = a @ b
    if form == "bias":
        expected += bias
    if form == "used":
        parts = [np.zeros((M, N))] + [a[:, :k] @ b[:k] for k in (32, 64, 72)]
        expected += np.max(parts, axis=0)
    np.testing.assert_allclose(c, expected, rtol=2e-2, atol=2e-2 * abs(expected).max(), err_msg=form)
""",
    "no tensor map": """
# The rows of a matrix are no multiple of 16 bytes: known at the launch.
assert multiply(tensor(40, 33), tensor(33, 31), True) in (None, 2, 3)
# It begins in the middle of 16 bytes.
assert multiply(tensor(41 * 48)[1:1 + 40 * 48].reshape(40, 48), tensor(48, 32), True) in (None, 1, 2)
# The rows go backwards, which no tensor map describes: only known at the launch, after one that had maps.
assert multiply(tensor(64, 48), tensor(48, 32), True) in (None, 2, 3)
assert multiply(tensor(64, 48)[::-1], tensor(48, 32), True) in (None, 2, 3)
assert multiply(tensor(64, 48), tensor(48, 32), True) in (None, 2, 3)
# Nothing to add up.
assert multiply(tensor(64, 0), tensor(0, 32), False) in (None, 0, 1, 2, 3)
""",
    "views": """
base = tensor(200, 160)
for view in (base[8:72, 16:112], base[::2][:64, :96], base[3:60, 64:]):
    assert multiply(view, tensor(view.shape[1], 48), True) in (None, 2, 3)
""",
    "descriptors": """
for M, N, K in ((32, 32, 32), (40, 56, 72), (33, 24, 104)):
    a, b = tensor(M, K), tensor(K, N)
    for offset in (0, -16):
        c = np.full((M, N), 7, np.float32)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        described = TensorDescriptor.from_tensor(a, [32, 32]), TensorDescriptor.from_tensor(b, [32, 32])
        handle = descriptors[grid](*described, c, M, N, K, **BLOCKS, OFFSET=offset)
        check(c, a, b)
        assert copies(handle) in (None, 2, 3)
    c, transposed = np.full((M, N), 7, np.float32), np.ascontiguousarray(b.T)
    handle = device_descriptors[grid](a, transposed, c, M, N, K, **BLOCKS)
    check(c, a, b)
    assert copies(handle) in (None, 2, 3)
""",
    "batches": """
a, b = tensor(3, 40, 64), tensor(3, 64, 48)
c = np.full((3, 40, 48), 7, np.float32)
handle = batched[(2, 2, 3)](a, b, c, 40, 48, 64, *strides(a)[:2], *strides(b)[:2], **BLOCKS)
for batch in range(3):
    check(c[batch], a[batch], b[batch])
assert copies(handle) in (None, 2, 3), copies(handle)
""",
    "random shapes": """
seeds = np.random.default_rng(5)
for case in range(24):
    M, N, K = (int(seeds.integers(1, 90)) for _ in range(3))
    if case % 3:
        N, K = -(-N // 16) * 16, -(-K // 16) * 16
    blocks = {name: int(2 ** seeds.integers(4, 7)) for name in BLOCKS}
    options = dict(num_warps=int(2 ** seeds.integers(0, 4)), num_stages=int(seeds.integers(1, 5)))
    dtype = [np.float16, np.float32][case % 2]
    # Beside the tensors, and between their rows, is what must not be read as a part of them.
    space = np.full((3, 100, 128), np.nan, dtype)
    a, b = space[0, 1:1 + M, 16:16 + K], space[1, :K, :N]
    a[:], b[:] = tensor(M, K, dtype=dtype), tensor(K, N, dtype=dtype)
    if case % 4 == 3:
        b = np.asfortranarray(b)
    multiply(a, b, case % 5 != 0, **blocks, **options)
""",
    "parts of the work": """
@triton.jit
def parts(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # A program has steps of one tile, and goes on with the next.
    tiles_n, steps_of_tile = tl.cdiv(N, BN), tl.cdiv(K, BK)
    steps = tl.cdiv(M, BM) * tiles_n * steps_of_tile
    program, programs = tl.program_id(0), tl.num_programs(0)
    step = program * (steps // programs) + tl.minimum(program, steps % programs)
    end = (program + 1) * (steps // programs) + tl.minimum(program + 1, steps % programs)
    while step < end:
        tile, first_k = step // steps_of_tile, step % steps_of_tile
        end_k = tl.minimum(steps_of_tile, first_k + end - step)
        offs_m = tile // tiles_n * BM + tl.arange(0, BM)
        offs_n = tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for block in range(first_k, end_k):
            k = block * BK + tl.arange(0, BK)
            a_mask = (offs_m[:, None] < M) & (k[None, :] < K)
            b_mask = (k[:, None] < K) & (offs_n[None, :] < N)
            a = tl.load(a_ptr + offs_m[:, None] * K + k[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + offs_n[None, :], mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc)
        c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
        if end_k - first_k == steps_of_tile:
            tl.store(c_ptrs, acc, mask=c_mask)
        else:
            tl.atomic_add(c_ptrs, acc, mask=c_mask, sem="relaxed")
        step += end_k - first_k

for M, N, K, programs, stages in ((64, 48, 176, 3, 3), (33, 32, 64, 7, 2), (40, 80, 48, 2, 4)):
    a, b = tensor(M, K), tensor(K, N)
    c = np.zeros((M, N), np.float32)
    handle = parts[(programs,)](a, b, c, M, N, K, **BLOCKS, num_stages=stages)
    check(c, a, b)
    assert copies(handle) in (None, 2, 3), copies(handle)
""",
    "starts before the base": """
@triton.jit
def shifted(a_ptr, b_ptr, c_ptr, start, count, K, BM: tl.constexpr, BK: tl.constexpr, WALK: tl.constexpr):
    # `start` may be negative, and so may what is left of a number that is.
    rows = tl.arange(0, BM)
    offs_k = tl.arange(0, BK)
    b = tl.load(b_ptr + offs_k[:, None] * BK + offs_k[None, :])
    step = start
    while step < start + count:
        first = step
        if WALK:
            first = step % 64
        a = tl.load(a_ptr + (first + rows)[:, None] * K + offs_k[None, :])
        tl.store(c_ptr + ((step - start) * BM + rows)[:, None] * BK + offs_k[None, :], tl.dot(a, b))
        step += 1

space, b = tensor(96, 32), tensor(32, 32)
for start in (5, -7, 3):
    for walk in (False, True):
        c = np.full((3 * 16, 32), 7, np.float32)
        shifted[(1,)](space[20:], b, c, start, 3, 32, BM=16, BK=32, WALK=walk)
        for step in range(3):
            first = 20 + start + step
            check(c[step * 16:step * 16 + 16], space[first:first + 16], b)
""",
    "what is needed": """
@triton.jit
def sums(a_ptr, b_ptr, c_ptr, M, K, sam, BM: tl.constexpr, BK: tl.constexpr, ALL: tl.constexpr):
    # With ALL, the rows that wrap around are in the sum as well.
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_k = tl.arange(0, BK)
    a = tl.load(a_ptr + (offs_m % M)[:, None] * sam + offs_k[None, :])
    b = tl.load(b_ptr + offs_k[:, None] * BK + offs_k[None, :])
    product = tl.dot(a, b)
    if ALL:
        tl.store(c_ptr + offs_k, tl.sum(product, 0))
    else:
        tl.store(c_ptr + offs_m, tl.sum(product, 1), mask=offs_m < M)

a, b = tensor(48, 32), tensor(32, 32)
product = a.astype(np.float64) @ b.astype(np.float64)
c = np.zeros(32, np.float32)
handle = sums[(1,)](a, b, c, 48, 32, 32, BM=64, BK=32, ALL=True)
np.testing.assert_allclose(c, product.sum(0) + product[:16].sum(0), rtol=1e-2, atol=0.5)
# Only that of B.
assert copies(handle) in (None, 1, 2), copies(handle)
c = np.zeros(48, np.float32)
handle = sums[(1,)](a, b, c, 48, 32, 32, BM=64, BK=32, ALL=False)
np.testing.assert_allclose(c, product.sum(1), rtol=1e-2, atol=0.5)
assert copies(handle) in (None, 2, 3), copies(handle)
""",
}


@pytest.mark.parametrize("case", CASES)
def test_boxes_of_tensors_are_what_the_loads_say(run, tmp_path, case):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + CASES[case])
    for target in ("cpu", "sim:sm_90"):
        done = run("-m", "tilewright", "run", "--device", target, path, env={})
        assert done.code == 0, (target, done.err)
