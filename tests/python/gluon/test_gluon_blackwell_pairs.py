"""Gluon for Blackwell on the simulator: dots of pairs of blocks (`cta_group::2`), against torch."""

from __future__ import annotations

import re

import pytest
import torch
from conftest import DEVICE, ROOT
from support.assembler import find_assembler, spilled_bytes
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tma,
)
from tilewright.experimental.gluon.language.nvidia.hopper import cluster
from tilewright.experimental.gluon.nvidia.blackwell import TensorDescriptor

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl


@pytest.fixture(autouse=True)
def blackwell(device):
    """Runs a test on the simulator of a Blackwell GPU."""
    if device != "cpu":
        pytest.skip("these kernels have run on the simulator only")
    tilewright.runtime.set_device("sim:sm_100")
    yield
    tilewright.runtime.set_device(DEVICE)


def assemble(handle, tmp_path):
    """Checks that NVIDIA's assembler accepts the code of a launch, without spills."""
    assembler = find_assembler()
    if assembler is not None:
        assert spilled_bytes(assembler, handle.asm["ptx"], tmp_path) == 0


def numbers(*shape, dtype, seed=0):
    """Small numbers that each type represents exactly."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-8, 9, shape, generator=generator)
    return whole.to(dtype) if dtype in (torch.int8, torch.uint8) else (whole / 8).to(dtype)


def groups(ptx):
    """The numbers of blocks for which the instructions on tensor memory are."""
    return {found for line in ptx.splitlines() for found in re.findall(r"tcgen05.*cta_group::(\d)", line)}


@gluon.jit
def stored(pointer, shape: gl.constexpr, bases: gl.constexpr):
    """A matrix in shared memory, to which the threads of each block store a part."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0], bases)
    rows = gl.arange(0, shape[0], layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, shape[1], layout=gl.SliceLayout(0, layout))
    tile = gl.load(pointer + rows[:, None] * shape[1] + columns[None, :])
    memory: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, tile.dtype, cga_layout=bases)
    return gl.allocate_shared_memory(tile.dtype, shape, memory, tile)


@gluon.jit
def store(pointer, tile, layout: gl.constexpr):
    """Stores a matrix."""
    rows = gl.arange(0, tile.shape[0], layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, tile.shape[1], layout=gl.SliceLayout(0, layout))
    gl.store(pointer + rows[:, None] * tile.shape[1] + columns[None, :], tile)


@gluon.jit
def one_tile(
    a_ptr,
    b_ptr,
    c_ptr,
    SHAPE: gl.constexpr,
    ACC: gl.constexpr,
    LAYOUT: gl.constexpr,
    BASES: gl.constexpr,
    VARIANT: gl.constexpr,
    FORM: gl.constexpr,
):
    M: gl.constexpr = SHAPE[0]
    N: gl.constexpr = SHAPE[1]
    K: gl.constexpr = SHAPE[2]
    a = stored(a_ptr, (M, K), BASES[0])
    if FORM == "rows":
        b = stored(b_ptr, (K, N), BASES[1])
    else:
        b = stored(b_ptr, (N, K), BASES[1]).permute((1, 0))
    acc = allocate_tensor_memory(ACC, [M, N], LAYOUT)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=tcgen05_mma_barrier_count([a, b], multicast=False, two_ctas=LAYOUT.two_ctas))
    fence_async_shared(cluster=True)
    cluster.barrier()
    if FORM == "awaited":
        tcgen05_mma(a, b, acc, use_acc=False)
    elif FORM == "commit":
        tcgen05_mma(a, b, acc, use_acc=False, mbarriers=[])
        tcgen05_commit(bar)
        mbarrier.wait(bar, 0)
    else:
        tcgen05_mma(a, b, acc, use_acc=False, multicast=FORM == "multicast", mbarriers=[bar])
        mbarrier.wait(bar, 0)
    layout: gl.constexpr = acc.get_reg_layout(instr_variant=VARIANT)
    store(c_ptr, acc.load(layout), layout)


PAIR = [[1, 0]], [[1, 0]]


def check_tile(
    tmp_path,
    shape,
    dtype=torch.float16,
    acc=gl.float32,
    layout=None,
    bases=PAIR,
    variant="32x32b",
    form="barrier",
    blocks=2,
    **options,
):
    """Multiplies one tile, and compares with torch."""
    m, n, k = shape
    layout = layout or TensorMemoryLayout([m // 2, n], 32 // acc.primitive_bitwidth, [[1, 0]], two_ctas=True)
    a, b = numbers(m, k, dtype=dtype), numbers(n, k, dtype=dtype, seed=1)
    right = b.T.contiguous() if form == "rows" else b
    c = torch.zeros(m, n, dtype={gl.float16: torch.float16, gl.int32: torch.int32}.get(acc, torch.float32))
    handle = one_tile[(1,)](a, right, c, shape, acc, layout, bases, variant, form, num_ctas=blocks, **options)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=1e-3, atol=1e-3)
    assert groups(handle.asm["ptx"]) == {"2" if layout.two_ctas else "1"}
    assemble(handle, tmp_path)
    return handle.asm["ptx"]


@pytest.mark.parametrize("form", ["barrier", "multicast", "commit", "awaited"])
def test_a_dot_arrives_at_the_barriers_of_both_blocks(tmp_path, form):
    """The first block starts it, for both, and each block waits for its own barrier."""
    ptx = check_tile(tmp_path, (256, 64, 32), form=form)
    commits = [line for line in ptx.splitlines() if "tcgen05.commit" in line]
    assert len(commits) == 1
    assert ".multicast::cluster" in commits[0]


@pytest.mark.parametrize(
    ("dtype", "acc"),
    [
        (torch.float16, gl.float16),
        (torch.bfloat16, gl.float32),
        (torch.float32, gl.float32),
        (torch.float8_e4m3fn, gl.float32),
        (torch.int8, gl.int32),
    ],
    ids=str,
)
def test_types(tmp_path, dtype, acc):
    check_tile(tmp_path, (256, 64, 64), dtype, acc)


@pytest.mark.parametrize(
    "shape", [(256, 16, 16), (256, 256, 16), (128, 32, 16), (128, 128, 64), (512, 32, 16)]
)
def test_shapes(tmp_path, shape):
    """Of 128 rows, each block has 64: lanes from 64 on have the second half of the columns."""
    m, n, _ = shape
    layout = TensorMemoryLayout([min(m // 2, 128), n], 1, [[1, 0]], two_ctas=True)
    check_tile(tmp_path, shape, layout=layout, num_warps=8 if n == 256 else 4)


def test_b_by_rows(tmp_path):
    """B is [K, N]. Each block has half of its columns."""
    check_tile(tmp_path, (256, 128, 32), bases=([[1, 0]], [[0, 1]]), form="rows")


@pytest.mark.parametrize("rows", [128, 256])
@pytest.mark.parametrize("variant", ["16x64b", "16x128b", "16x256b"])
def test_other_instructions_load_the_accumulator(tmp_path, rows, variant):
    check_tile(tmp_path, (rows, 64, 16), variant=variant)


def test_eight_warps(tmp_path):
    check_tile(tmp_path, (256, 128, 16), num_warps=8)


def test_two_pairs_of_a_cluster(tmp_path):
    """Each pair has half of the rows, and its first block starts its dots."""
    layout = TensorMemoryLayout([128, 32], 1, [[1, 0], [2, 0]], two_ctas=True)
    bases = [[1, 0], [2, 0]], [[1, 0], [0, 0]]
    check_tile(tmp_path, (512, 32, 16), layout=layout, bases=bases, blocks=4)


@pytest.mark.parametrize(
    ("shape", "bases", "acc_bases"),
    [
        ((256, 64, 16), ([[1, 0]], [[0, 0]]), [[1, 0]]),
        ((128, 128, 16), ([[0, 0]], [[1, 0]]), [[0, 1]]),
        ((256, 128, 16), ([[1, 0], [0, 0]], [[0, 0], [1, 0]]), [[1, 0], [0, 1]]),
    ],
)
def test_blocks_of_a_cluster_compute_by_themselves(tmp_path, shape, bases, acc_bases):
    """Without `two_ctas`, each block has its part of the accumulator, and all of A and B for it."""
    layout = TensorMemoryLayout([128, 64], 1, acc_bases)
    check_tile(tmp_path, shape, layout=layout, bases=bases, blocks=1 << len(acc_bases))


@gluon.jit
def left_in_tensor_memory(a_ptr, b_ptr, c_ptr, N: gl.constexpr, K: gl.constexpr, HOW: gl.constexpr):
    """A is copied to tensor memory, by threads or by `tcgen05_copy`."""
    halves: gl.constexpr = [[1, 0]]
    a_smem = stored(a_ptr, (256, K), halves)
    b = stored(b_ptr, (N, K), halves).permute((1, 0))
    a = allocate_tensor_memory(gl.float16, [256, K], TensorMemoryLayout([128, K], 1, halves, two_ctas=True))
    acc = allocate_tensor_memory(gl.float32, [256, N], TensorMemoryLayout([128, N], 1, halves, two_ctas=True))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    if HOW == "store":
        a.store(a_smem.load(a.get_reg_layout()))
    fence_async_shared(cluster=True)
    cluster.barrier()
    if HOW == "copy":
        tcgen05_copy(a_smem, a)
    tcgen05_mma(a, b, acc, use_acc=False, mbarriers=[bar])
    mbarrier.wait(bar, 0)
    layout: gl.constexpr = acc.get_reg_layout()
    store(c_ptr, acc.load(layout), layout)
    part = acc.slice(N // 2, N // 2)
    part_layout: gl.constexpr = part.get_reg_layout()
    store(c_ptr + 256 * N, part.load(part_layout), part_layout)


@pytest.mark.parametrize("how", ["store", "copy"])
def test_a_in_tensor_memory(tmp_path, how):
    a, b = numbers(256, 32, dtype=torch.float16), numbers(64, 32, dtype=torch.float16, seed=1)
    c = torch.zeros(256 * 96)
    handle = left_in_tensor_memory[(1,)](a, b, c, 64, 32, how, num_ctas=2)
    expected = a.float() @ b.float().T
    torch.testing.assert_close(c[: 256 * 64].view(256, 64), expected)
    torch.testing.assert_close(c[256 * 64 :].view(256, 32), expected[:, 32:])
    assert groups(handle.asm["ptx"]) == {"2"}
    assemble(handle, tmp_path)


@gluon.jit
def load_tiles(a_desc, b_desc, steps, a_smem, b_smem, full, empty, STAGES: gl.constexpr):
    for step in range(steps):
        slot = step % STAGES
        bar = full.index(slot)
        mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)
        mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [0, step * a_desc.block_shape[1]], bar, a_smem.index(slot))
        tma.async_load(b_desc, [0, step * a_desc.block_shape[1]], bar, b_smem.index(slot))


@gluon.jit
def multiply(steps, a_smem, b_smem, acc, full, empty, done, STAGES: gl.constexpr):
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        b = b_smem.index(slot).permute((1, 0))
        tcgen05_mma(a_smem.index(slot), b, acc, use_acc=step > 0, mbarriers=[empty.index(slot)])
    tcgen05_commit(done)


@gluon.jit
def finish(c_ptr, acc, done):
    mbarrier.wait(done, 0)
    layout: gl.constexpr = acc.get_reg_layout()
    store(c_ptr, acc.load(layout), layout)


@gluon.jit
def specialized(a_desc, b_desc, c_ptr, steps, STAGES: gl.constexpr):
    """A warp of each block copies, one starts dots, and four store."""
    M: gl.constexpr = a_desc.block_shape[0]
    N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_shape, a_desc.layout)  # noqa: RUF005
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_shape, b_desc.layout)  # noqa: RUF005
    acc = allocate_tensor_memory(
        gl.float32, [M, N], TensorMemoryLayout([M // 2, N], 1, [[1, 0]], two_ctas=True)
    )
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=True)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    gl.warp_specialize(
        [
            (finish, (c_ptr, acc, done)),
            (load_tiles, (a_desc, b_desc, steps, a_smem, b_smem, full, empty, STAGES)),
            (multiply, (steps, a_smem, b_smem, acc, full, empty, done, STAGES)),
        ],
        worker_num_warps=[1, 1],
    )


def descriptors(a, b, depth, rows=256):
    """The descriptors of A and B, whose blocks have half of each tile."""
    blocks = (a, [rows, depth]), (b, [b.shape[0], depth])
    layouts = [
        gl.NVMMASharedLayout.get_default_for(block, gl.float16, cga_layout=[[1, 0]]) for _, block in blocks
    ]
    return [
        TensorDescriptor.from_tensor(tensor, block, layout)
        for (tensor, block), layout in zip(blocks, layouts, strict=True)
    ]


@pytest.mark.parametrize("rows", [128, 256])
def test_partitions(tmp_path, rows):
    """Copies of both blocks arrive at the barrier of the first one (`two_ctas=True`)."""
    a, b = numbers(rows, 160, dtype=torch.float16), numbers(64, 160, dtype=torch.float16, seed=1)
    c = torch.zeros(rows, 64)
    handle = specialized[(1,)](*descriptors(a, b, 32, rows), c, 5, 3, num_ctas=2)
    torch.testing.assert_close(c, a.float() @ b.float().T)
    copies = [line for line in handle.asm["ptx"].splitlines() if "cp.async.bulk.tensor" in line]
    assert copies
    assert all(".cta_group::2" in line for line in copies)
    assemble(handle, tmp_path)


def test_the_register_layout_has_the_blocks():
    @gluon.jit
    def kernel(out_ptr, M: gl.constexpr):
        layout: gl.constexpr = TensorMemoryLayout([M // 2, 32], 1, [[1, 0]], two_ctas=True)
        acc = allocate_tensor_memory(gl.float32, [M, 32], layout)
        registers: gl.constexpr = acc.get_reg_layout()
        gl.static_assert(registers.block_bases == [[M // 2, 0]])
        gl.static_assert(registers.warp_bases == ([[32, 0], [64, 0]] if M == 256 else [[32, 0], [0, 16]]))
        acc.store(gl.full([M, 32], 3.0, gl.float32, registers))
        store(out_ptr, acc.load(registers), registers)

    for rows in (128, 256):
        out = torch.zeros(rows, 32)
        kernel[(1,)](out, rows, num_ctas=2)
        assert (out == 3).all()


@pytest.mark.parametrize("target", ["sm_100", "sm_103"])
def test_the_example(run, target):
    done = run("-m", "tilewright", "run", "--device", f"sim:{target}", ROOT / "examples/64_gluon_pairs.py")
    assert done.code == 0, done.err
    assert done.out.count("largest difference") == 2
