"""Tensor copies and `wgmma` that a Gluon program states, against torch."""

from __future__ import annotations

import pytest
import torch
from tilewright.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl


@pytest.fixture(autouse=True)
def hopper():
    """Skips a test of what sm_90 has and the device lacks."""
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")


@gluon.jit
def copy_blocks(x_desc, out_desc, BM: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    row = gl.program_id(0) * BM
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    tma.async_load(x_desc, [row, 0], bar, memory)
    mbarrier.wait(bar, 0, deps=(memory,))
    tma.async_store(out_desc, [row, 0], memory)
    tma.store_wait(0)
    mbarrier.invalidate(bar)


@pytest.mark.parametrize("width", [128, 64, 32, 0])
def test_tensor_copies(device, width):
    """The tensor has fewer rows than its blocks: what is outside is not written."""
    columns = max(width, 32) // 2
    x = torch.randn(100, columns, generator=torch.Generator().manual_seed(3)).half().to(device)
    out = torch.zeros_like(x)
    layout = gl.NVMMASharedLayout(width, 16, 2)
    descriptors = [TensorDescriptor.from_tensor(tensor, [64, columns], layout) for tensor in (x, out)]
    handle = copy_blocks[(2,)](*descriptors, 64)
    assert torch.equal(out, x)
    assert "cp.async.bulk.tensor" in handle.asm["ptx"]


@gluon.jit
def issue(a_desc, b_desc, m, n, turn, K, bars, a_memory, b_memory, STAGES: gl.constexpr):
    BK: gl.constexpr = a_desc.block_type.shape[1]
    there = turn * BK < K
    slot = turn % STAGES
    mbarrier.expect(bars.index(slot), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=there)
    tma.async_load(a_desc, [m, turn * BK], bars.index(slot), a_memory.index(slot), pred=there)
    tma.async_load(b_desc, [n, turn * BK], bars.index(slot), b_memory.index(slot), pred=there)


@gluon.jit
def matmul(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr, IS_ASYNC: gl.constexpr):
    """C = A @ B.T by tensor copies, a ring of slots and `wgmma`."""
    BM: gl.constexpr = a_desc.block_type.shape[0]
    BK: gl.constexpr = a_desc.block_type.shape[1]
    BN: gl.constexpr = b_desc.block_type.shape[0]
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    a_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], a_desc.layout)
    b_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BN, BK], b_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(bars.index(stage), count=1)
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    for stage in gl.static_range(STAGES - 2):
        issue(a_desc, b_desc, m, n, stage, K, bars, a_memory, b_memory, STAGES)
    acc = gl.zeros([BM, BN], gl.float32, acc_layout)
    for turn in range(gl.cdiv(K, BK)):
        issue(a_desc, b_desc, m, n, turn + STAGES - 2, K, bars, a_memory, b_memory, STAGES)
        slot = turn % STAGES
        mbarrier.wait(bars.index(slot), turn // STAGES % 2)
        acc = warpgroup_mma(
            a_memory.index(slot), b_memory.index(slot).permute((1, 0)), acc, is_async=IS_ASYNC
        )
        if IS_ASYNC:
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
    if IS_ASYNC:
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    c_memory = gl.allocate_shared_memory(gl.float16, [BM, BN], c_desc.layout)
    c_memory.store(acc.to(gl.float16))
    fence_async_shared()
    tma.async_store(c_desc, [m, n], c_memory)
    tma.store_wait(0)


@pytest.mark.parametrize("is_async", [False, True])
def test_matmul(device, is_async):
    M, N, K = 128, 256, 320
    generator = torch.Generator().manual_seed(4)
    a = torch.randn(M, K, generator=generator).half().to(device)
    b = torch.randn(N, K, generator=generator).half().to(device)
    c = torch.empty(M, N, device=device, dtype=torch.float16)
    layout = gl.NVMMASharedLayout(128, 16, 2)
    blocks = (a, [64, 64]), (b, [128, 64]), (c, [64, 128])
    descriptors = [TensorDescriptor.from_tensor(tensor, block, layout) for tensor, block in blocks]
    handle = matmul[(2, 2)](*descriptors, K, 4, is_async)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2e-3, atol=2e-2)
    assert "wgmma.mma_async" in handle.asm["ptx"]


@gluon.jit
def unfenced(x_ptr, out_desc, layout: gl.constexpr):
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    memory = gl.allocate_shared_memory(gl.float16, [64, 64], out_desc.layout)
    memory.store(gl.load(x_ptr + rows[:, None] * 64 + columns[None, :]))
    tma.async_store(out_desc, [0, 0], memory)
    tma.store_wait(0)


def test_a_missing_fence_is_named(device):
    x = torch.randn(64, 64, device=device, dtype=torch.float16)
    out = TensorDescriptor.from_tensor(torch.empty_like(x), [64, 64], gl.NVMMASharedLayout(128, 16, 2))
    with pytest.raises(tilewright.CompilationError, match=r"tensor_store .*%memory.*fence_proxy") as raised:
        unfenced[(1,)](x, out, gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
    assert raised.value.code == "TW0029"


@gluon.jit
def uses_a_dot_in_flight(out_ptr, layout: gl.constexpr, shared: gl.constexpr):
    a = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
    b = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
    acc = warpgroup_mma(a, b, gl.zeros([64, 64], gl.float32, layout), is_async=True)
    gl.store(out_ptr + gl.zeros([64, 64], gl.int32, layout), acc)


@gluon.jit
def two_accumulators(
    a_ptr, b_ptr, c_ptr, USE_EARLY: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr
):
    """C = A @ B + A @ B, with the first dot done when the second may be in flight."""
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    i, j = (
        gl.arange(0, 64, layout=gl.SliceLayout(1, blocked)),
        gl.arange(0, 64, layout=gl.SliceLayout(0, blocked)),
    )
    offsets = i[:, None] * 64 + j[None, :]
    a = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.load(a_ptr + offsets))
    b = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.load(b_ptr + offsets))
    fence_async_shared()
    gl.barrier()
    zeros = gl.zeros([64, 64], gl.float32, layout)
    first = warpgroup_mma(a, b, warpgroup_mma_init(zeros), is_async=True)
    second = warpgroup_mma(a, b, zeros, is_async=True)
    first = warpgroup_mma_wait(1, deps=[first])
    total = first * 1.0
    if USE_EARLY:
        total += warpgroup_mma_wait(1, deps=[second])
    else:
        total += warpgroup_mma_wait(0, deps=[second])
    i, j = (
        gl.arange(0, 64, layout=gl.SliceLayout(1, layout)),
        gl.arange(0, 64, layout=gl.SliceLayout(0, layout)),
    )
    gl.store(c_ptr + i[:, None] * 64 + j[None, :], total)


def test_waits_for_one_of_two_dots(device):
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randint(-4, 5, (64, 64), generator=generator).half().to(device) for _ in range(2))
    c = torch.empty(64, 64, device=device)
    layout = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    shared = gl.NVMMASharedLayout(128, 16, 2)
    two_accumulators[(1,)](a, b, c, False, layout, shared)
    assert torch.equal(c, 2 * (a.float() @ b.float()))
    with pytest.raises(tilewright.CompilationError, match=r"TW0029.*wgmma_wait"):
        two_accumulators[(1,)](a, b, c, True, layout, shared)


def test_an_accumulator_in_flight_is_no_tile(device):
    out = torch.empty(1, device=device)
    layout = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    with pytest.raises(tilewright.CompilationError, match="AccumulatorInFlight") as raised:
        uses_a_dot_in_flight[(1,)](out, layout, gl.NVMMASharedLayout(128, 16, 2))
    assert raised.value.code == "TW0028"


@gluon.jit
def copy_by_own_descriptors(x_ptr, out_ptr, M, N, BLOCK: gl.constexpr, layout: gl.constexpr):
    """The launch knows the tensor of the load; the kernel computes that of the store."""
    source = tma.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, BLOCK], layout)
    batch = gl.program_id(0)
    target = tma.make_tensor_descriptor(
        out_ptr + batch * M * N, [M - batch, N], [N, 1], [BLOCK, BLOCK], layout
    )
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(source.dtype, source.block_shape, source.layout)
    for turn in range(2):
        mbarrier.expect(bar, source.nbytes_per_cta)
        tma.async_load(source, [turn * BLOCK, 0], bar, memory)
        mbarrier.wait(bar, turn)
        tma.async_store(target, [turn * BLOCK, 0], memory)
        tma.store_wait(0)


def test_descriptors_that_the_kernel_makes(device):
    x = torch.randn(60, 32, generator=torch.Generator().manual_seed(7)).half().to(device)
    out = torch.zeros(3, 60, 32, device=device, dtype=torch.float16)
    layout = gl.NVMMASharedLayout(64, 16, 2)
    handle = copy_by_own_descriptors[(3,)](x, out, 60, 32, 32, layout)
    expected = x.expand(3, 60, 32).clone()
    for batch in range(3):
        # The tensor of a batch lacks its last rows.
        expected[batch, 60 - batch :] = 0
    assert torch.equal(out, expected)
    assert "tensormap.replace" in handle.asm["ptx"]


@gluon.jit
def sum_of_a_copy(x_desc, out_ptr, layout: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    tma.async_load(x_desc, [32, 0], bar, memory)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    gl.store(out_ptr, gl.sum(gl.sum(memory.load(layout).to(gl.float32), axis=1), axis=0))


def test_the_memory_of_an_mbarrier_is_used_again_after_its_end(device):
    """The scratch memory of the reduction is that of the mbarrier."""
    x, out = torch.ones(64, 64, device=device).half(), torch.zeros(1, device=device)
    descriptor = TensorDescriptor.from_tensor(x, [64, 64], gl.NVMMASharedLayout(128, 16, 2))
    sum_of_a_copy[(1,)](descriptor, out, gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
    assert out.item() == 32 * 64


@gluon.jit
def sum_of_a_conditional_copy(x_desc, out_ptr, count, layout: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    mbarrier.expect(bar, x_desc.nbytes_per_cta, pred=count > 0)
    tma.async_load(x_desc, [32, 0], bar, memory, pred=count > 0)
    if count > 0:
        mbarrier.wait(bar, 0)
    gl.store(out_ptr, gl.sum(gl.sum(memory.load(layout).to(gl.float32), axis=1), axis=0))


def test_a_copy_and_its_wait_with_one_condition(device):
    """The compiler does not know that the wait is there whenever the copy is: it accepts what may be right."""
    x, out = torch.ones(64, 64, device=device).half(), torch.zeros(1, device=device)
    descriptor = TensorDescriptor.from_tensor(x, [64, 64], gl.NVMMASharedLayout(128, 16, 2))
    sum_of_a_conditional_copy[(1,)](descriptor, out, 1, gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
    assert out.item() == 32 * 64


@gluon.jit
def does_nothing(x_ptr):
    pass


@gluon.jit
def copies_in_worker(x_ptr, bar, memory, layout: gl.constexpr):
    own = tma.make_tensor_descriptor(x_ptr + 64, [64, 64], [64, 1], [64, 64], layout)
    tma.async_load(own, [0, 0], bar, memory)


@gluon.jit
def worker_with_own_descriptor(x_ptr, layout: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(gl.float16, [64, 64], layout)
    gl.warp_specialize([(does_nothing, (x_ptr,)), (copies_in_worker, (x_ptr, bar, memory, layout))], [1])


def test_a_worker_makes_no_descriptors(device):
    x = torch.empty(4096, device=device, dtype=torch.float16)
    with pytest.raises(tilewright.TritonError, match="a worker copies by a descriptor") as raised:
        worker_with_own_descriptor[(1,)](x, gl.NVMMASharedLayout(128, 16, 2))
    assert raised.value.code == "TW0024"


@gluon.jit
def copies_rows(
    x_ptr, out_ptr, rows, HOW: gl.constexpr, PADDING: gl.constexpr, shared: gl.constexpr, layout: gl.constexpr
):
    """Copies a block of 8 rows of a tensor, whose number of rows is a cast of an argument."""
    if HOW == "float":
        rows = rows.to(gl.int32)
    elif HOW == "narrow":
        rows = rows.to(gl.int8).to(gl.int32)
    elif HOW == "computed":
        rows = rows - gl.program_id(0)
    source = tma.make_tensor_descriptor(x_ptr, [rows, 16], [16, 1], [8, 16], shared, padding_option=PADDING)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(source.dtype, source.block_shape, source.layout)
    mbarrier.expect(bar, source.nbytes_per_cta)
    tma.async_load(source, [0, 0], bar, memory)
    mbarrier.wait(bar, 0)
    i = gl.arange(0, 8, layout=gl.SliceLayout(1, layout))[:, None] * 16
    gl.store(out_ptr + i + gl.arange(0, 16, layout=gl.SliceLayout(0, layout))[None, :], memory.load(layout))


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(
    ("rows", "how"), [(5, "none"), (5.75, "float"), (256 + 5, "narrow"), (5, "computed"), (0, "computed")]
)
def test_rows_of_a_descriptor_are_a_cast(device, rows, how, padding):
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(8)).to(device)
    out = torch.zeros_like(x)
    layout = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    copies_rows[(1,)](x, out, rows, how, padding, gl.NVMMASharedLayout(64, 32, 2), layout)
    expected = x.clone()
    expected[5 if rows else 0 :] = 0 if padding == "zero" else float("nan")
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@gluon.jit
def copies_to_a_column(x_desc, layout: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(x_desc.dtype, [64, 1], layout)
    tma.async_load(x_desc, [0, 0], bar, memory)


def test_a_row_is_not_copied_to_a_column(device):
    x = torch.zeros(64, 64, device=device, dtype=torch.float16)
    layout = gl.NVMMASharedLayout(0, 16, 2)
    with pytest.raises(tilewright.CompilationError, match="do not fit shared memory") as raised:
        copies_to_a_column[(1,)](TensorDescriptor.from_tensor(x, [1, 64], layout), layout)
    assert raised.value.code == "TW0005"


@gluon.jit
def matmul_by_columns(
    a_ptr, b_ptr, out_ptr, shared: gl.constexpr, SWAPPED: gl.constexpr, wgmma: gl.constexpr
):
    """Multiplies in four steps along K, each with slices of both operands."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))[:, None] * 64
    offsets = i + gl.arange(0, 64, layout=gl.SliceLayout(0, layout))[None, :]
    a = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.load(a_ptr + offsets))
    b = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.load(b_ptr + offsets))
    fence_async_shared()
    acc = gl.zeros([64, 32], gl.float32, wgmma)
    for part in gl.static_range(4):
        left = a.slice(16 * part, 16, dim=1)
        if SWAPPED:
            right = b.slice(32, 32).permute((1, 0)).slice(16 * part, 16)
        else:
            right = b.slice(16 * part, 16).slice(32, 32, dim=1)
        gl.static_assert(right.shape[0] == 16)
        acc = warpgroup_mma(left, right, acc)
    acc = gl.convert_layout(acc, layout)
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))[:, None] * 32
    gl.store(out_ptr + i + gl.arange(0, 32, layout=gl.SliceLayout(0, layout))[None, :], acc)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("width", [128, 64, 32])
def test_dots_of_slices_of_columns(device, width, swapped):
    generator = torch.Generator().manual_seed(9)
    a, b = (torch.randint(-4, 5, (64, 64), generator=generator).half().to(device) for _ in range(2))
    out = torch.zeros(64, 32, device=device)
    wgmma = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])
    matmul_by_columns[(1,)](a, b, out, gl.NVMMASharedLayout(width, 16, 2), swapped, wgmma)
    right = b[32:].T if swapped else b[:, 32:]
    assert torch.equal(out, a.float() @ right.float())
