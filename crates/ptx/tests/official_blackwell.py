"""Compiles kernels with the official Triton for Blackwell, without a GPU, and computes their results with torch.

Usage: official_blackwell.py DIRECTORY [NAME …]. The test `official_blackwell` runs the script where Triton and torch
are installed, and runs the PTX in the simulator. For each case, the script writes the PTX, the memory of the
arguments, and a description of the launch.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import GluonASTSource, GluonJITFunction
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    mbarrier,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import cluster

# Types --------------------------------------------------------------------------------------------

NAMES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
}


@dataclass
class Case:
    """A launch of a kernel, with its result."""

    name: str
    kernel: object
    arguments: list  # tensors, integers and floats, in the order of the parameters that are not constexpr
    constants: dict
    output: int  # the index of the argument that the kernel writes
    expected: torch.Tensor
    grid: tuple
    tolerance: float
    options: dict = field(default_factory=dict)
    uses: tuple = ()  # texts that the PTX contains
    target: int = 100


CASES = {}


def case(function):
    """Registers a function that makes cases."""
    CASES[function.__name__] = function
    return function


def numbers(*shape, dtype, seed, scale=1.0):
    """Returns small random numbers that the type represents exactly."""
    generator = torch.Generator().manual_seed(seed)
    if dtype in (torch.int8, torch.uint8):
        return torch.randint(-7 if dtype == torch.int8 else 0, 8, shape, generator=generator).to(dtype)
    values = torch.randint(-8, 9, shape, generator=generator).to(torch.float64) / 8 * scale
    return values.to(dtype)


def exact(tensor):
    """Returns a tensor in binary64."""
    return (
        tensor.to(torch.float32).to(torch.float64)
        if tensor.dtype.is_floating_point
        else tensor.to(torch.float64)
    )


# Kernels ------------------------------------------------------------------------------------------


@triton.jit
def matmul(
    a, b, c, am, ak, bk, bn, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr, RESULT: tl.constexpr,
):  # fmt: skip
    """Multiplies matrices with any strides."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    kk = tl.arange(0, K)
    pa = a + i[:, None] * am + kk[None, :] * ak
    pb = b + kk[:, None] * bk + j[None, :] * bn
    acc = tl.zeros((M, N), dtype=RESULT)
    for _ in tl.range(0, k // K, num_stages=STAGES):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc, out_dtype=RESULT)
        pa += K * ak
        pb += K * bk
    tl.store(c + i[:, None] * n + j[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_descriptors(
    a, b, c, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr, TRANSPOSED: tl.constexpr,
    SPECIALIZED: tl.constexpr,
):  # fmt: skip
    """Multiplies matrices that tensor copies load; perhaps with a warp for each task."""
    da = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[M, K])
    if TRANSPOSED:
        db = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[N, K])
    else:
        db = tl.make_tensor_descriptor(b, shape=[k, n], strides=[n, 1], block_shape=[K, N])
    dc = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    i = tl.program_id(0) * M
    j = tl.program_id(1) * N
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(0, k // K, num_stages=STAGES, warp_specialize=SPECIALIZED):
        left = da.load([i, step * K])
        right = db.load([j, step * K]).T if TRANSPOSED else db.load([step * K, j])
        acc = tl.dot(left, right, acc)
    dc.store([i, j], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_persistent(
    a, b, c, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr, SPECIALIZED: tl.constexpr,
    FLATTENED: tl.constexpr,
):  # fmt: skip
    """Multiplies matrices; each program computes several tiles."""
    da = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[M, K])
    db = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[N, K])
    dc = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    columns = n // N
    for tile in tl.range(
        tl.program_id(0), m // M * columns, PROGRAMS, flatten=FLATTENED, warp_specialize=SPECIALIZED
    ):
        i = tile // columns * M
        j = tile % columns * N
        acc = tl.zeros((M, N), dtype=tl.float32)
        for step in range(k // K):
            acc = tl.dot(da.load([i, step * K]), db.load([j, step * K]).T, acc)
        dc.store([i, j], acc.to(c.dtype.element_ty))


@triton.jit
def grouped(a, b, c, sizes, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUPS: tl.constexpr):
    """Multiplies the rows of each group by the matrix of the group."""
    start = 0
    for group in range(GROUPS):
        size = tl.load(sizes + group)
        tiles = tl.cdiv(size, M)
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            row = tile * M + tl.arange(0, M)
            j = tl.program_id(1) * N + tl.arange(0, N)
            kk = tl.arange(0, K)
            acc = tl.zeros((M, N), dtype=tl.float32)
            for step in range(0, k, K):
                left = tl.load(
                    a + (start + row)[:, None] * k + step + kk[None, :], mask=row[:, None] < size, other=0.0
                )
                right = tl.load(b + group * k * n + (step + kk)[:, None] * n + j[None, :])
                acc = tl.dot(left, right, acc)
            tl.store(
                c + (start + row)[:, None] * n + j[None, :],
                acc.to(c.dtype.element_ty),
                mask=row[:, None] < size,
            )
        start += size


@triton.jit
def matmul_scaled(
    a, sa, b, sb, c, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Multiplies matrices with scale factors for blocks of elements. B is stored by columns."""
    pack_a: tl.constexpr = 2 if A == "e2m1" else 1
    pack_b: tl.constexpr = 2 if B == "e2m1" else 1
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(0, k // K, num_stages=STAGES):
        ka = step * (K // pack_a) + tl.arange(0, K // pack_a)
        kb = step * (K // pack_b) + tl.arange(0, K // pack_b)
        ks = step * (K // BLOCK) + tl.arange(0, K // BLOCK)
        left = tl.load(a + i[:, None] * (k // pack_a) + ka[None, :])
        right = tl.load(b + j[None, :] * (k // pack_b) + kb[:, None])
        left_scales = tl.load(sa + i[:, None] * (k // BLOCK) + ks[None, :])
        right_scales = tl.load(sb + j[:, None] * (k // BLOCK) + ks[None, :])
        acc = tl.dot_scaled(left, left_scales, A, right, right_scales, B, acc)
    tl.store(c + i[:, None] * n + j[None, :], acc)


@triton.jit
def attention(
    q, k, v, o, length, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, STAGES: tl.constexpr,
    SPECIALIZED: tl.constexpr,
):  # fmt: skip
    """Attention of one head, with an online softmax."""
    dq = tl.make_tensor_descriptor(q, shape=[length, D], strides=[D, 1], block_shape=[M, D])
    dk = tl.make_tensor_descriptor(k, shape=[length, D], strides=[D, 1], block_shape=[N, D])
    dv = tl.make_tensor_descriptor(v, shape=[length, D], strides=[D, 1], block_shape=[N, D])
    start = tl.program_id(0) * M
    rows = start + tl.arange(0, M)
    query = dq.load([start, 0])
    most = tl.full((M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    acc = tl.zeros((M, D), dtype=tl.float32)
    end = start + M if CAUSAL else length
    for at in tl.range(0, end, N, num_stages=STAGES, warp_specialize=SPECIALIZED):
        scores = tl.dot(query, dk.load([at, 0]).T) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= (at + tl.arange(0, N))[None, :], scores, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        correction = tl.exp2(most - new)
        probabilities = tl.exp2(scores - new[:, None])
        total = total * correction + tl.sum(probabilities, 1)
        acc = acc * correction[:, None]
        acc = tl.dot(probabilities.to(v.dtype.element_ty), dv.load([at, 0]), acc)
        most = new
    acc = acc / total[:, None]
    tl.store(o + rows[:, None] * D + tl.arange(0, D)[None, :], acc.to(o.dtype.element_ty))


@triton.jit
def chain(a, b, c, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, L: tl.constexpr):
    """(A B) C: the result of the first dot is the left operand of the second."""
    i = tl.arange(0, M)
    left = tl.load(a + i[:, None] * K + tl.arange(0, K)[None, :])
    right = tl.load(b + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    last = tl.load(c + tl.arange(0, N)[:, None] * L + tl.arange(0, L)[None, :])
    first = tl.dot(left, right).to(a.dtype.element_ty)
    tl.store(d + i[:, None] * L + tl.arange(0, L)[None, :], tl.dot(first, last))


@triton.jit
def split(a, b, c, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SPLITS: tl.constexpr):
    """Programs add their parts of the inner dimension by atomic operations."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    part = k // SPLITS
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in range(tl.program_id(2) * part, tl.program_id(2) * part + part, K):
        kk = step + tl.arange(0, K)
        acc = tl.dot(
            tl.load(a + i[:, None] * k + kk[None, :]), tl.load(b + kk[:, None] * n + j[None, :]), acc
        )
    tl.atomic_add(c + i[:, None] * n + j[None, :], acc)


@gluon.jit
def pair(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """Two blocks multiply together: each has half of the rows of A and half of the columns of B."""
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0], [[1, 0]])
    columns: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0], [[0, 1]])
    i = gl.arange(0, M, layout=gl.SliceLayout(1, rows))
    ka = gl.arange(0, K, layout=gl.SliceLayout(0, rows))
    kb = gl.arange(0, K, layout=gl.SliceLayout(1, columns))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, columns))
    left = gl.load(a + i[:, None] * K + ka[None, :])
    right = gl.load(b + kb[:, None] * N + j[None, :])
    shared_a: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2, cga_layout=[[1, 0]])
    shared_b: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2, cga_layout=[[0, 1]])
    left = gl.allocate_shared_memory(gl.float16, [M, K], shared_a, left)
    right = gl.allocate_shared_memory(gl.float16, [K, N], shared_b, right)
    layout: gl.constexpr = TensorMemoryLayout([M // 2, N], 1, [[1, 0]], two_ctas=True)
    accumulator = allocate_tensor_memory(gl.float32, [M, N], layout)
    fence_async_shared(cluster=True)
    barrier = mbarrier.allocate_mbarrier()
    mbarrier.init(barrier, count=1)
    cluster.barrier()
    tcgen05_mma(left, right, accumulator, use_acc=False, multicast=True, mbarriers=[barrier])
    mbarrier.wait(barrier, 0)
    result = accumulator.load()
    registers: gl.constexpr = result.type.layout
    i = gl.arange(0, M, layout=gl.SliceLayout(1, registers))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, registers))
    gl.store(c + i[:, None] * N + j[None, :], result)


@gluon.jit
def canceling(x, y, BLOCK: gl.constexpr):
    """Each running program takes over the work of programs that have not begun."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    response = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    barrier = mbarrier.allocate_mbarrier()
    mbarrier.init(barrier, count=1)
    program = gl.program_id(0)
    phase = 0
    has_work = True
    while has_work:
        clc.try_cancel(response, barrier)
        mbarrier.expect(barrier, 16)
        i = program * BLOCK + gl.arange(0, BLOCK, layout=layout)
        gl.store(y + i, gl.load(y + i) + 2 * gl.load(x + i))
        mbarrier.wait(barrier, phase)
        phase ^= 1
        result = clc.load_result(response)
        has_work = result.is_canceled()
        program = result.program_id(0)
    mbarrier.invalidate(barrier)


# Cases --------------------------------------------------------------------------------------------


def plain(name, dtype, m=128, n=128, k=128, tile=(128, 128, 64), result=tl.float32, other=None, **changes):
    """Returns a case of `matmul`."""
    transposed = changes.pop("transposed", "")
    stages = changes.pop("stages", 3)
    uses = changes.pop("uses", ("tcgen05.mma.cta_group::1", "tcgen05.alloc", "tcgen05.commit", "tcgen05.ld"))
    out = changes.pop("out", torch.float32)
    a = numbers(m, k, dtype=dtype, seed=1)
    b = numbers(k, n, dtype=other or dtype, seed=2)
    expected = exact(a) @ exact(b)
    left = a.T.contiguous() if "a" in transposed else a
    right = b.T.contiguous() if "b" in transposed else b
    strides = [*((1, m) if "a" in transposed else (k, 1)), *((1, k) if "b" in transposed else (n, 1))]
    return Case(
        name,
        matmul,
        [left, right, torch.zeros(m, n, dtype=out), *strides, n, k],
        {"M": tile[0], "N": tile[1], "K": tile[2], "STAGES": stages, "RESULT": result},
        2,
        expected,
        (m // tile[0], n // tile[1], 1),
        1e-2 if out in (torch.float16, torch.bfloat16) else 1e-5,
        changes,
        uses,
    )


@case
def matmuls():
    """Matmuls of all element types, shapes and orders."""
    f16, bf16, e4m3, e5m2 = torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
    yield plain("fp16", f16, uses=("tcgen05.mma.cta_group::1.kind::f16",))
    yield plain("fp16_wide", f16, n=512, tile=(128, 256, 64), num_warps=8)
    yield plain("fp16_64_rows", f16, tile=(64, 128, 64))
    yield plain("fp16_256_rows", f16, m=256, tile=(256, 64, 64), num_warps=8)
    yield plain("fp16_narrow", f16, n=32, tile=(128, 32, 32), k=64)
    yield plain("fp16_transposed_a", f16, transposed="a")
    yield plain("fp16_transposed_b", f16, transposed="b")
    yield plain("fp16_transposed_both", f16, transposed="ab", out=f16)
    yield plain("fp16_accumulator", f16, k=64, result=tl.float16, out=f16)
    yield plain("bf16", bf16, m=256, n=256, k=256, uses=("tcgen05.mma.cta_group::1.kind::f16",))
    yield plain("bf16_out", bf16, out=bf16, stages=2)
    yield plain("tf32", torch.float32, tile=(128, 128, 32), uses=("kind::tf32",))
    yield plain("tf32_transposed_b", torch.float32, tile=(128, 64, 32), transposed="b", uses=("kind::tf32",))
    yield plain("fp8", e4m3, k=256, tile=(128, 128, 128), uses=("kind::f8f6f4",))
    yield plain("fp8_e5m2", e5m2, k=256, tile=(128, 128, 128), transposed="b", uses=("kind::f8f6f4",))
    yield plain(
        "fp8_mixed", e4m3, other=e5m2, k=128, tile=(128, 64, 64), transposed="b", uses=("kind::f8f6f4",)
    )
    yield plain("int8", torch.int8, tile=(128, 128, 64), result=tl.int32, out=torch.int32, uses=())


def with_descriptors(name, dtype, m=256, n=256, k=256, tile=(128, 128, 64), **changes):
    """Returns a case of `matmul_descriptors`."""
    transposed, specialized = changes.pop("transposed", False), changes.pop("specialized", False)
    stages = changes.pop("stages", 3)
    uses = changes.pop("uses", ("tcgen05.mma.cta_group::1", "cp.async.bulk.tensor"))
    a, b = numbers(m, k, dtype=dtype, seed=3), numbers(k, n, dtype=dtype, seed=4)
    right = b.T.contiguous() if transposed else b
    out = torch.zeros(m, n, dtype=torch.float16)
    constants = {"M": tile[0], "N": tile[1], "K": tile[2], "STAGES": stages}
    constants |= {"TRANSPOSED": transposed, "SPECIALIZED": specialized}
    expected, grid = exact(a) @ exact(b), (m // tile[0], n // tile[1], 1)
    arguments = [a, right, out, m, n, k]
    return Case(name, matmul_descriptors, arguments, constants, 2, expected, grid, 1e-2, changes, uses)


@case
def descriptors():
    """Matmuls whose operands tensor copies load."""
    yield with_descriptors("descriptors_fp16", torch.float16)
    yield with_descriptors("descriptors_bf16", torch.bfloat16, transposed=True, num_warps=8)
    yield with_descriptors("descriptors_fp8", torch.float8_e4m3fn, transposed=True, tile=(128, 128, 128))
    yield with_descriptors("descriptors_specialized", torch.float16, transposed=True, specialized=True)
    yield with_descriptors(
        "descriptors_pair", torch.float16, transposed=True, tile=(256, 128, 64), num_ctas=2, uses=()
    )


def persistent_case(name, specialized, flattened, dtype=torch.float16, **options):
    """Returns a case of `matmul_persistent`."""
    m, n, k, tile = 256, 384, 128, (128, 128, 64)
    a, b = numbers(m, k, dtype=dtype, seed=5), numbers(n, k, dtype=dtype, seed=6)
    constants = {"M": tile[0], "N": tile[1], "K": tile[2], "PROGRAMS": 2}
    constants |= {"SPECIALIZED": specialized, "FLATTENED": flattened}
    arguments = [a, b, torch.zeros(m, n, dtype=dtype), m, n, k]
    expected = exact(a) @ exact(b).T
    return Case(
        name, matmul_persistent, arguments, constants, 2, expected, (2, 1, 1), 1e-2, options, ("tcgen05.mma",)
    )


@case
def persistent():
    """Matmuls in which a program computes several tiles."""
    yield persistent_case("persistent", False, False)
    yield persistent_case("persistent_flattened", False, True)
    yield persistent_case("persistent_specialized", True, False)
    yield persistent_case("persistent_specialized_bf16", True, True, dtype=torch.bfloat16)


@case
def groups():
    """A matmul of groups of rows."""
    n, k, sizes = 128, 128, [100, 0, 200, 128]
    a = numbers(sum(sizes), k, dtype=torch.float16, seed=7)
    b = numbers(len(sizes), k, n, dtype=torch.float16, seed=8)
    parts = torch.split(exact(a), sizes)
    expected = torch.cat([part @ exact(b[index]) for index, part in enumerate(parts)])
    arguments = [
        a,
        b,
        torch.zeros(sum(sizes), n, dtype=torch.float32),
        torch.tensor(sizes, dtype=torch.int32),
        n,
        k,
    ]
    constants = {"M": 128, "N": 64, "K": 64, "GROUPS": len(sizes)}
    yield Case("grouped", grouped, arguments, constants, 2, expected, (2, 2, 1), 1e-5, {}, ("tcgen05.mma",))


FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def scaled_operand(rows, k, kind, block, seed):
    """Returns the stored elements and scale factors of a matrix, and its values."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "e2m1":
        codes = torch.randint(0, 16, (rows, k), generator=generator)
        table = torch.tensor(FP4 + [-value for value in FP4], dtype=torch.float64)
        values = table[codes]
        stored = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    else:
        stored = numbers(
            rows, k, dtype=torch.float8_e4m3fn if kind == "e4m3" else torch.float8_e5m2, seed=seed
        )
        values = exact(stored)
    if block == 16:
        scales = torch.tensor([0.5, 1.0, 1.5, 2.0])[
            torch.randint(0, 4, (rows, k // block), generator=generator)
        ]
        scales = scales.to(torch.float8_e4m3fn)
        factors = exact(scales)
    else:
        scales = torch.randint(125, 130, (rows, k // block), generator=generator).to(torch.uint8)
        factors = 2.0 ** (scales.to(torch.float64) - 127)
    return stored, scales, values * factors.repeat_interleave(block, 1)


def scaled(name, kind_a, kind_b, block=32, m=128, n=128, k=256, tile=(128, 128, 128), **changes):
    """Returns a case of `matmul_scaled`."""
    uses = changes.pop("uses", ("block_scale",))
    a, sa, left = scaled_operand(m, k, kind_a, block, 9)
    b, sb, right = scaled_operand(n, k, kind_b, block, 10)
    constants = {
        "M": tile[0],
        "N": tile[1],
        "K": tile[2],
        "A": kind_a,
        "B": kind_b,
        "BLOCK": block,
        "STAGES": 2,
    }
    arguments = [a, sa, b, sb, torch.zeros(m, n, dtype=torch.float32), n, k]
    grid = (m // tile[0], n // tile[1], 1)
    return Case(name, matmul_scaled, arguments, constants, 4, left @ right.T, grid, 1e-5, changes, uses)


@case
def scales():
    """Matmuls with scale factors."""
    yield scaled("mxfp8", "e4m3", "e4m3", uses=("kind::mxf8f6f4",))
    yield scaled("mxfp8_e5m2", "e5m2", "e4m3", tile=(128, 64, 128))
    yield scaled("mxfp8_wide", "e4m3", "e4m3", n=256, tile=(128, 256, 128), num_warps=8)
    yield scaled("mxfp4", "e2m1", "e2m1", uses=("kind::mxf4",))
    yield scaled("mxfp4_wide", "e2m1", "e2m1", n=256, tile=(128, 256, 256), num_warps=8)
    yield scaled("nvfp4", "e2m1", "e2m1", block=16, uses=("kind::mxf4nvf4",))
    yield scaled("mxfp8_mxfp4", "e4m3", "e2m1", uses=())


def attended(name, dtype, causal=False, length=256, d=64, tile=(128, 64), **options):
    """Returns a case of `attention`."""
    specialized = options.pop("specialized", False)
    q, k, v = (numbers(length, d, dtype=dtype, seed=seed) for seed in (11, 12, 13))
    scale = 0.125 * 1.4426950408889634
    scores = exact(q) @ exact(k).T * 0.125
    if causal:
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
    expected = torch.softmax(scores, 1) @ exact(v)
    constants = {
        "M": tile[0],
        "N": tile[1],
        "D": d,
        "CAUSAL": causal,
        "STAGES": 2,
        "SPECIALIZED": specialized,
    }
    arguments = [q, k, v, torch.zeros(length, d, dtype=torch.float32), length, scale]
    uses = ("tcgen05.mma", "tcgen05.st")
    return Case(
        name, attention, arguments, constants, 3, expected, (length // tile[0], 1, 1), 2e-2, options, uses
    )


@case
def attentions():
    """Attention, plain, causal and with a warp for each task."""
    yield attended("attention_fp16", torch.float16)
    yield attended("attention_bf16_causal", torch.bfloat16, causal=True)
    yield attended("attention_wide", torch.float16, d=128, tile=(128, 128), num_warps=8)
    yield attended("attention_specialized", torch.float16, specialized=True)


@case
def chains():
    """Two matmuls, the first in tensor memory."""
    a, b = (
        numbers(128, 64, dtype=torch.float16, seed=14),
        numbers(64, 64, dtype=torch.float16, seed=15, scale=0.25),
    )
    c = numbers(64, 128, dtype=torch.float16, seed=16)
    expected = exact((exact(a) @ exact(b)).to(torch.float16)) @ exact(c)
    arguments = [a, b, c, torch.zeros(128, 128, dtype=torch.float32)]
    yield Case(
        "chain", chain, arguments, {"M": 128, "N": 64, "K": 64, "L": 128}, 3, expected, (1, 1, 1), 1e-5
    )


@case
def splits():
    """A matmul with a split inner dimension."""
    a, b = numbers(128, 256, dtype=torch.bfloat16, seed=17), numbers(256, 64, dtype=torch.bfloat16, seed=18)
    arguments = [a, b, torch.zeros(128, 64, dtype=torch.float32), 64, 256]
    constants = {"M": 128, "N": 64, "K": 64, "SPLITS": 2}
    yield Case(
        "split", split, arguments, constants, 2, exact(a) @ exact(b), (1, 1, 2), 1e-5, {}, ("tcgen05.mma",)
    )


def paired(name, m, n, k=64):
    """Returns a case of `pair`."""
    a, b = numbers(m, k, dtype=torch.float16, seed=19), numbers(k, n, dtype=torch.float16, seed=20)
    arguments = [a, b, torch.zeros(m, n, dtype=torch.float32)]
    options, uses = {"num_ctas": 2}, ("tcgen05.mma.cta_group::2", "tcgen05.commit.cta_group::2")
    constants = {"M": m, "N": n, "K": k}
    return Case(name, pair, arguments, constants, 2, exact(a) @ exact(b), (1, 1, 1), 1e-5, options, uses)


@case
def pairs():
    """Matmuls of two blocks together (Gluon)."""
    yield paired("pair", 256, 128)
    yield paired("pair_wide", 256, 256)
    yield paired("pair_128_rows", 128, 128)


@case
def cancellations():
    """Programs that take over the work of others (Gluon)."""
    x = numbers(8 * 256, dtype=torch.float32, seed=21)
    arguments = [x, torch.zeros(8 * 256, dtype=torch.float32)]
    uses = ("clusterlaunchcontrol.try_cancel",)
    yield Case("canceling", canceling, arguments, {"BLOCK": 256}, 1, 2 * exact(x), (8, 1, 1), 1e-5, {}, uses)


@case
def other_targets():
    """Matmuls for the other GPUs with tensor memory."""
    for target in (103, 110):
        for made in (plain(f"fp16_{target}", torch.float16), scaled(f"mxfp4_{target}", "e2m1", "e2m1")):
            made.target = target
            yield made


# Files --------------------------------------------------------------------------------------------


def compile_case(case):
    """Compiles the kernel of a case."""
    names = case.kernel.arg_names
    runtime = [name for name in names if name not in case.constants]
    signature = dict.fromkeys(case.constants, "constexpr")
    attributes = {}
    for name, value in zip(runtime, case.arguments, strict=True):
        if isinstance(value, torch.Tensor):
            signature[name] = "*" + NAMES[value.dtype]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
        if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[(names.index(name),)] = [["tt.divisibility", 16]]
    constants = {(names.index(name),): value for name, value in case.constants.items()}
    make = GluonASTSource if isinstance(case.kernel, GluonJITFunction) else ASTSource
    source = make(case.kernel, {name: signature[name] for name in names}, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", case.target, 32), options=case.options)


def write(case, compiled, folder):
    """Writes the PTX, the memory and the launch of a case."""
    ptx, metadata = compiled.asm["ptx"], compiled.metadata
    for text in case.uses:
        assert text in ptx, f"{case.name}: the code has no {text}"
    (folder / f"{case.name}.ptx").write_text(ptx)
    threads = next(line.split()[1] for line in ptx.splitlines() if line.startswith((".reqntid", ".maxntid")))
    lines = [
        "grid " + " ".join(map(str, (case.grid[0] * metadata.num_ctas, *case.grid[1:]))),
        f"threads {threads}",
        f"target {case.target}",
        f"cluster {metadata.num_ctas}",
        f"shared {metadata.shared}",
        f"scratch {metadata.global_scratch_size}",
        f"tolerance {case.tolerance}",
    ]
    for index, value in enumerate(case.arguments):
        if isinstance(value, torch.Tensor):
            file = folder / f"{case.name}.{index}"
            file.write_bytes(value.contiguous().view(torch.uint8).numpy().tobytes())
            is_output = index == case.output
            lines.append(f"output {NAMES[value.dtype]} {file}" if is_output else f"input {file}")
        else:
            lines.append(f"f32 {value!r}" if isinstance(value, float) else f"i32 {value}")
    expected = folder / f"{case.name}.expected"
    expected.write_bytes(case.expected.contiguous().numpy().tobytes())
    lines.append(f"expected {expected}")
    (folder / f"{case.name}.launch").write_text("\n".join(lines) + "\n")


def main():
    """Writes the cases, or those with the names of the command line."""
    folder, wanted = Path(sys.argv[1]), set(sys.argv[2:])
    for made in CASES.values():
        for case in made():
            if not wanted or case.name in wanted:
                write(case, compile_case(case), folder)


if __name__ == "__main__":
    main()
