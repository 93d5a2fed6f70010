"""Gluon kernels of several blocks (``num_ctas``), on the simulator of an H100, against torch."""

from __future__ import annotations

import pytest
import torch
from tilewright.experimental.gluon.language.nvidia.hopper import (
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl


@gluon.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    x = gl.load(x_ptr + offsets, mask=mask)
    gl.store(out_ptr + offsets, x * 2.0 + gl.load(y_ptr + offsets, mask=mask), mask=mask)


@pytest.mark.parametrize("bases", [[[1]], [[0]], [[1], [2]], [[2], [1]], [[1], [0]], [[0], [1]]])
def test_each_block_has_a_part(bases):
    """Also if several blocks hold the same part: one of them stores."""
    layout = gl.BlockedLayout([2], [32], [4], [0], cga_layout=bases)
    x, y, out = torch.randn(5000), torch.randn(5000), torch.zeros(5001)
    made = add_kernel[(tilewright.cdiv(5000, 1024),)](x, y, out, 5000, 1024, layout, num_ctas=1 << len(bases))
    torch.testing.assert_close(out[:5000], x * 2 + y)
    assert out[5000] == 0
    assert made.metadata.num_ctas == 1 << len(bases)


@gluon.jit
def grid_kernel(out_ptr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]])
    index = gl.program_id(0) * gl.num_programs(1) + gl.program_id(1)
    offsets = index * 256 + gl.arange(0, 256, layout=layout)
    gl.store(out_ptr + offsets, gl.full([256], gl.num_programs(0) * 100 + index, gl.int32, layout))


def test_programs_are_counted_without_their_blocks():
    out = torch.zeros(6, 256, dtype=torch.int32)
    grid_kernel[(3, 2)](out, num_ctas=2)
    assert torch.equal(out, (300 + torch.arange(6, dtype=torch.int32))[:, None].expand(6, 256))


@gluon.jit
def matrix_kernel(x_ptr, out_ptr, sums_ptr, most_ptr, layout: gl.constexpr):
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    columns: gl.constexpr = gl.SliceLayout(0, layout)
    i, j = gl.arange(0, 64, layout=rows), gl.arange(0, 32, layout=columns)
    x = gl.load(x_ptr + i[:, None] * 32 + j[None, :])
    gl.store(out_ptr + j[None, :] * 64 + i[:, None], x + i[:, None].to(gl.float32))
    gl.store(sums_ptr + i, gl.sum(x, axis=1))
    gl.store(most_ptr + j, gl.max(x, axis=0))


@pytest.mark.parametrize(
    "bases", [[[1, 0]], [[0, 1]], [[1, 0], [0, 1]], [[0, 1], [0, 0]], [[0, 0], [1, 0]], [[2, 0], [1, 0]]]
)
def test_reductions_over_split_and_whole_axes(bases):
    """Of an axis that is split, the blocks exchange their results through distributed shared memory."""
    x = torch.randn(64, 32)
    out, sums, most = torch.zeros(32, 64), torch.zeros(64), torch.zeros(32)
    layout = gl.BlockedLayout([1, 2], [4, 8], [2, 2], [1, 0], cga_layout=bases)
    matrix_kernel[(1,)](x, out, sums, most, layout, num_ctas=1 << len(bases))
    torch.testing.assert_close(out, (x + torch.arange(64.0)[:, None]).T)
    torch.testing.assert_close(sums, x.sum(1))
    torch.testing.assert_close(most, x.max(0).values)


@gluon.jit
def softmax_kernel(x_ptr, out_ptr, index_ptr, N: gl.constexpr, layout: gl.constexpr):
    offsets = gl.arange(0, N, layout=layout)
    x = gl.load(x_ptr + gl.program_id(0) * N + offsets)
    most, index = gl.max(x, axis=0, return_indices=True)
    y = gl.exp(x - most)
    gl.store(out_ptr + gl.program_id(0) * N + offsets, y / gl.sum(y, axis=0))
    gl.store(index_ptr + gl.program_id(0), index)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_softmax_of_rows_that_blocks_share(bits):
    layout = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1 << bit] for bit in range(bits)])
    x, out, index = torch.randn(3, 2048), torch.zeros(3, 2048), torch.zeros(3, dtype=torch.int32)
    softmax_kernel[(3,)](x, out, index, 2048, layout, num_ctas=1 << bits)
    torch.testing.assert_close(out, torch.softmax(x, 1))
    assert torch.equal(index.long(), x.argmax(1))


@gluon.jit
def transpose_kernel(x_ptr, out_ptr, layout: gl.constexpr, shared: gl.constexpr, other: gl.constexpr):
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    smem.store(gl.load(x_ptr + i[:, None] * 64 + j[None, :]))
    y = gl.permute(smem.load(layout), [1, 0])
    z = gl.convert_layout(y, other)
    j = gl.arange(0, 64, layout=gl.SliceLayout(1, other))
    i = gl.arange(0, 64, layout=gl.SliceLayout(0, other))
    gl.store(out_ptr + j[:, None] * 64 + i[None, :], z)


def test_shared_memory_and_shapes():
    x, out = torch.randn(64, 64), torch.zeros(64, 64)
    layout = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=[[1, 0]])
    other = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=[[0, 1]])
    shared = gl.SwizzledSharedLayout(4, 1, 8, [1, 0], cga_layout=[[1, 0]])
    transpose_kernel[(1,)](x, out, layout, shared, other, num_ctas=2)
    torch.testing.assert_close(out, x.T)


@gluon.jit
def multicast_kernel(x_desc, out_desc):
    smem = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.static_assert(smem.nbytes_per_cta == x_desc.nbytes_per_cta)
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    tma.async_load(x_desc, [0, 64], bar, smem, multicast=True)
    mbarrier.wait(bar, 0, deps=[smem])
    tma.async_store(out_desc, [0, 0], smem)
    tma.store_wait(0)


@pytest.mark.parametrize("bases", [[[0, 0]], [[1, 0]], [[0, 0], [1, 0]], [[1, 0], [0, 0]], [[0, 0], [0, 0]]])
def test_multicast(bases):
    """To all blocks that hold the same part of a tile."""
    layout = gl.NVMMASharedLayout(128, 16, 2, cga_layout=bases)
    x, out = torch.randn(64, 128).half(), torch.zeros(64, 64).half()
    x_desc, out_desc = (TensorDescriptor.from_tensor(tensor, [64, 64], layout) for tensor in (x, out))
    made = multicast_kernel[(1,)](x_desc, out_desc, num_ctas=1 << len(bases))
    assert torch.equal(out, x[:, 64:])
    assert (".multicast::cluster" in made.asm["ptx"]) == ([0, 0] in bases)


@gluon.jit
def arrivals_kernel(out_ptr, FROM: gl.constexpr):
    """Each block waits for the blocks whose rank has no bits but those of FROM, and stores what they stored."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1], [2]])
    offsets = gl.arange(0, 512, layout=layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.store(out_ptr + offsets, offsets)
    mbarrier.arrive(bar, count=1, from_cta=FROM)
    mbarrier.wait(bar, 0)
    gl.store(out_ptr + 512 + offsets, offsets + 1)


@pytest.mark.parametrize("sources", [None, 0, 1, 2, 3])
def test_arrivals_at_other_blocks(sources):
    out = torch.zeros(1024, dtype=torch.int32)
    made = arrivals_kernel[(1,)](out, sources, num_ctas=4)
    assert torch.equal(out, torch.cat([torch.arange(512), torch.arange(512) + 1]).int())
    remote = made.asm["ptx"].count("mbarrier.arrive.shared::cluster")
    assert remote == {None: 0, 0: 4, 1: 2, 2: 2, 3: 0}[sources]


@gluon.jit
def pair_kernel(out_ptr):
    """Block 0 of a pair waits for both."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]])
    offsets = gl.arange(0, 256, layout=layout)
    bar = mbarrier.allocate_mbarrier(two_ctas=True)
    mbarrier.init(bar, count=1)
    mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 0)
    cluster.barrier()
    gl.store(out_ptr + offsets, offsets)


def test_an_mbarrier_of_a_pair():
    out = torch.zeros(256, dtype=torch.int32)
    made = pair_kernel[(1,)](out, num_ctas=2)
    assert torch.equal(out, torch.arange(256).int())
    assert re_count(made.asm["ptx"], "mbarrier.init") == 1


def re_count(text, word):
    return sum(
        word in line
        for line in text.splitlines()
        if not line.lstrip().startswith("//") and "fence" not in line
    )


@gluon.jit
def dot_kernel(a_desc, b_desc, c_desc, acc_layout: gl.constexpr):
    a_smem = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    tma.async_load(a_desc, [0, 0], bar, a_smem, multicast=True)
    tma.async_load(b_desc, [0, 0], bar, b_smem, multicast=True)
    mbarrier.wait(bar, 0)
    acc = gl.zeros(c_desc.block_shape, gl.float32, acc_layout)
    acc = warpgroup_mma(a_smem, b_smem, acc)
    c_smem.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [0, 0], c_smem)
    tma.store_wait(0)


@pytest.mark.parametrize("bases", [[[1, 0]], [[0, 1]], [[1, 0], [0, 1]], [[1, 0], [2, 0]]])
def test_dots_by_block(bases):
    """A has the rows of the accumulator and B its columns, and neither is split along K."""
    m, n = (64 << sum(basis[axis] > 0 for basis in bases) for axis in (0, 1))
    rows, columns = [[row, 0] for row, _ in bases], [[0, column] for _, column in bases]
    a, b, c = torch.randn(m, 64).half(), torch.randn(64, n).half(), torch.zeros(m, n).half()
    descriptors = [
        TensorDescriptor.from_tensor(
            tensor, list(tensor.shape), gl.NVMMASharedLayout(128, 16, 2, cga_layout=own)
        )
        for tensor, own in ((a, rows), (b, columns), (c, bases))
    ]
    acc_layout = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16], cga_layout=bases)
    dot_kernel[(1,)](*descriptors, acc_layout, num_ctas=1 << len(bases))
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=5e-2)


@gluon.jit
def produce(x_desc, steps, smem, full, own, empty, STAGES: gl.constexpr):
    for step in range(steps):
        slot = step % STAGES
        # The block itself expects bytes again, and block 0 copies to both.
        mbarrier.wait(own.index(slot), (step // STAGES & 1) ^ 1)
        mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [step * 32, 0], full.index(slot), smem.index(slot), multicast=True)


@gluon.jit
def consume(steps, smem, full, own, empty, STAGES: gl.constexpr, layout: gl.constexpr):
    acc = gl.zeros([32, 64], gl.float32, layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        acc += smem.index(slot).load(layout).to(gl.float32)
        mbarrier.arrive(own.index(slot), count=1)
        mbarrier.arrive(empty.index(slot), count=1)
    return acc


@gluon.jit
def partitions_kernel(x_desc, out_ptr, steps, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=[[0, 0]])
    smem = gl.allocate_shared_memory(x_desc.dtype, [STAGES, 32, 64], x_desc.layout)
    full, own = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout(cga_layout=[[0]]))
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(own.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    acc = gl.warp_specialize(
        [
            (consume, (steps, smem, full, own, empty, STAGES, layout)),
            (produce, (x_desc, steps, smem, full, own, empty, STAGES)),
        ],
        worker_num_warps=[1],
    )
    i, j = (
        gl.arange(0, 32, layout=gl.SliceLayout(1, layout)),
        gl.arange(0, 64, layout=gl.SliceLayout(0, layout)),
    )
    gl.store(out_ptr + i[:, None] * 64 + j[None, :], acc)


def test_a_producer_of_both_blocks_in_a_worker():
    """The barrier of the cluster after the initializations is before the partitions: all warps take part."""
    x, out = torch.randn(224, 64).half(), torch.zeros(32, 64)
    layout = gl.NVMMASharedLayout(128, 16, 2, cga_layout=[[0, 0]])
    x_desc = TensorDescriptor.from_tensor(x, [32, 64], layout)
    partitions_kernel[(1,)](x_desc, out, 7, 2, num_ctas=2)
    torch.testing.assert_close(out, x.float().view(7, 32, 64).sum(0), rtol=1e-4, atol=1e-4)


def test_layouts_on_the_host():
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=[[1, 0], [0, 0]])
    linear = gl.to_linear_layout(layout, [64, 128])
    assert linear.block_bases == [[32, 0], [0, 0]]
    assert linear.shape == [64, 128]
    assert gl.SliceLayout(0, layout).cga_layout == [[0], [0]]
    assert gl.SliceLayout(1, layout).cga_layout == [[1], [0]]
    assert mbarrier.MBarrierLayout.multicta(8, two_cta=True).cga_layout == [[0], [1], [2]]
    assert mbarrier.MBarrierLayout.multicta(4) == mbarrier.MBarrierLayout([[1], [2]])
    shared = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16, cga_layout=[[1, 0]])
    assert shared.cga_layout == [[1, 0]]
    assert gl.to_linear_layout(shared, [64, 64]).block_bases == [[32, 0]]
    table = gl.BlockedLayout([2], [2], [1], [0], cga_layout=[[1]]).format_tensor_view([8])
    assert "b0" in table
    assert "b1" in table
