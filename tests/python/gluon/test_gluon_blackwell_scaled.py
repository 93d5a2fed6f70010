"""Gluon for Blackwell on the simulator: copies to tensor memory, and dots with scales, against torch."""

from __future__ import annotations

import pytest
import torch
from conftest import DEVICE
from test_gluon_blackwell import assemble, store
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
)

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


@gluon.jit
def load_matrix(pointer, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """A row-major matrix."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    return gl.load(pointer + rows[:, None] * COLUMNS + columns[None, :])


@gluon.jit
def packed_scales(pointer, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Scales in shared memory, as `pack` orders them: a view [ROWS, COLUMNS]."""
    tile = load_matrix(pointer, ROWS * COLUMNS // 16, 16)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    memory = gl.allocate_shared_memory(tile.dtype, [ROWS * COLUMNS // 16, 16], plain, tile)
    blocks = memory.reshape([ROWS // 128, COLUMNS // 4, 32, 4, 4])
    return blocks.permute((0, 3, 2, 1, 4)).reshape([ROWS, COLUMNS])


def pack(scales):
    """Scales [rows, columns] as [rows / 128, columns / 4, 32, 4, 4]: rows 32 apart share 16 bytes."""
    rows, columns = scales.shape
    blocks = scales.view(rows // 128, 4, 32, columns // 4, 4).permute(0, 3, 2, 1, 4)
    return blocks.reshape(rows * columns // 16, 16).contiguous()


@gluon.jit
def copy_scales(x_ptr, out_ptr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    scales = packed_scales(x_ptr, ROWS, COLUMNS)
    memory = allocate_tensor_memory(scales.dtype, [ROWS, COLUMNS], TensorMemoryScalesLayout())
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared()
    tcgen05_copy(scales, memory)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    store(out_ptr, memory.load(), memory.get_reg_layout())


@pytest.mark.parametrize("shape", [(128, 4), (128, 16), (256, 8), (512, 4)])
def test_copies_of_scales(tmp_path, shape):
    x = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    out = torch.zeros_like(x)
    handle = copy_scales[(1,)](pack(x), out, *shape)
    assert torch.equal(out, x)
    assert handle.asm["ptx"].count("tcgen05.cp.cta_group::1.32x128b.warpx4") == x.numel() // 512
    assemble(handle, tmp_path)


@gluon.jit
def copy_narrow_scales(x_ptr, out_ptr):
    """64 rows: a copy moves eight scales of each row."""
    tile = load_matrix(x_ptr, 32, 16)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    shared = gl.allocate_shared_memory(tile.dtype, [32, 16], plain, tile)
    scales = shared.reshape([32, 2, 2, 4]).permute((2, 0, 1, 3)).reshape([64, 8])
    memory = allocate_tensor_memory(scales.dtype, [64, 8], TensorMemoryScalesLayout())
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared()
    tcgen05_copy(scales, memory)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    store(out_ptr, memory.load(), memory.get_reg_layout())


def test_copies_of_few_rows_of_scales(tmp_path):
    x = torch.arange(512, dtype=torch.int32).to(torch.uint8).view(64, 8)
    out = torch.zeros_like(x)
    packed = x.view(2, 32, 2, 4).permute(1, 2, 0, 3).reshape(32, 16).contiguous()
    handle = copy_narrow_scales[(1,)](packed, out)
    assert torch.equal(out, x)
    assemble(handle, tmp_path)


@gluon.jit
def copy_tile(
    x_ptr, out_ptr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, BLOCK: gl.constexpr, SWIZZLE: gl.constexpr
):
    tile = load_matrix(x_ptr, ROWS, COLUMNS)
    layout: gl.constexpr = gl.NVMMASharedLayout(SWIZZLE, tile.dtype.primitive_bitwidth, 2)
    shared = gl.allocate_shared_memory(tile.dtype, [ROWS, COLUMNS], layout, tile)
    memory = allocate_tensor_memory(tile.dtype, [ROWS, COLUMNS], TensorMemoryLayout(BLOCK, col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared()
    tcgen05_copy(shared, memory)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    store(out_ptr, memory.load(), memory.get_reg_layout())


@pytest.mark.parametrize(
    ("shape", "block", "dtype", "swizzle"),
    [
        ((128, 64), (128, 64), torch.float32, 128),
        ((128, 64), (128, 32), torch.float32, 64),
        ((256, 32), (128, 32), torch.float32, 32),
        ((128, 64), (128, 64), torch.float16, 128),
        ((128, 64), (128, 64), torch.uint8, 64),
    ],
)
def test_copies_of_tiles(tmp_path, shape, block, dtype, swizzle):
    x = torch.arange(shape[0] * shape[1]).to(dtype).view(shape)
    out = torch.zeros_like(x)
    handle = copy_tile[(1,)](x, out, *shape, block, swizzle)
    assert torch.equal(out, x)
    assert handle.asm["ptx"].count("tcgen05.cp.cta_group::1.128x256b") == x.numel() * x.itemsize // (128 * 32)
    assemble(handle, tmp_path)


@gluon.jit(do_not_specialize=["phase"])
def mistaken_copy(x_ptr, out_ptr, phase, MISTAKE: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    tile = load_matrix(x_ptr, 128, 32)
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 32, 2)
    shared = gl.allocate_shared_memory(tile.dtype, [128, 32], layout, tile)
    memory = allocate_tensor_memory(tile.dtype, [128, 32], TensorMemoryLayout([128, 32], col_stride=1))
    if MISTAKE != "fence":
        fence_async_shared()
    tcgen05_copy(shared, memory)
    if MISTAKE != "commit":
        tcgen05_commit(bar)
    if MISTAKE == "source":
        shared.store(tile)
    if MISTAKE == "destination":
        memory.store(gl.convert_layout(tile, memory.get_reg_layout()))
    if MISTAKE != "wait":
        mbarrier.wait(bar, phase)
    store(out_ptr, memory.load(), memory.get_reg_layout())


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("fence", r"tcgen05_copy reads %shared by the asynchronous proxy"),
        ("wait", r"tmem_load reads %memory while a tcgen05_copy writes it: add an mbarrier_wait for %bar"),
        ("commit", r"tmem_load reads %memory while a tcgen05_copy writes it: add a tcgen05_commit"),
        ("source", r"local_store writes %shared while a tcgen05_copy reads it"),
        ("destination", r"tmem_store writes %memory while a tcgen05_copy writes it"),
    ],
)
def test_mistakes_of_copies_that_the_compiler_finds(mistake, message):
    x = torch.zeros(128, 32)
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        mistaken_copy[(1,)](x, x.clone(), 0, mistake)
    assert raised.value.code == "TW0029"


def test_a_copy_that_is_not_awaited_is_a_race():
    """Parity 1 is that of the phase before the first one: the wait returns at once."""
    x, out = torch.ones(128, 32), torch.zeros(128, 32)
    mistaken_copy[(1,)](x, out, 0, "none")
    assert torch.equal(out, x)
    with pytest.raises(tilewright.TritonError, match="tensor memory") as raised:
        mistaken_copy[(1,)](x, out, 1, "none")
    assert raised.value.code == "TW0207"


@gluon.jit
def copy_between(
    SHAPE: gl.constexpr,
    LAYOUT: gl.constexpr,
    SOURCE: gl.constexpr,
    SOURCE_SHAPE: gl.constexpr,
    DTYPE: gl.constexpr,
):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    source = gl.allocate_shared_memory(DTYPE, SOURCE_SHAPE, SOURCE)
    tcgen05_copy(source, allocate_tensor_memory(DTYPE, SHAPE, LAYOUT))
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)


ROWS = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
SCALES = TensorMemoryScalesLayout()


@pytest.mark.parametrize(
    ("shape", "layout", "source", "own", "dtype", "code", "message"),
    [
        ((128, 8), SCALES, ROWS, (128, 4), gl.uint8, "TW0005", "copies tiles of one shape and element type"),
        (
            (128, 4),
            SCALES,
            ROWS,
            (128, 4),
            gl.uint8,
            "TW0028",
            "has a layout that no copy to tensor memory reads",
        ),
        ((32, 8), SCALES, ROWS, (32, 8), gl.uint8, "TW0028", "scales need four columns"),
        ((128, 2), SCALES, ROWS, (128, 2), gl.uint8, "TW0028", "scales need four columns"),
        (
            (64, 32),
            TensorMemoryLayout([64, 32], 1),
            ROWS,
            (64, 32),
            gl.float32,
            "TW0028",
            "blocks need 128 rows",
        ),
        ((128, 32), TensorMemoryLayout([128, 32], 2), ROWS, (128, 32), gl.float16, "TW0028", "col_stride=1"),
        (
            (128, 32),
            TensorMemoryLayout([128, 32], 1),
            ROWS,
            (128, 32),
            gl.float32,
            "TW0028",
            "has a layout that no",
        ),
        ((16, 4), SCALES, ROWS, (16, 4), gl.uint8, "TW0028", "a multiple of 32 rows"),
        ((128, 4), SCALES, ROWS, (128, 4), gl.float16, "TW0028", "scales of 8 bits"),
    ],
)
def test_copies_that_no_instruction_makes(shape, layout, source, own, dtype, code, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        copy_between[(1,)](shape, layout, source, own, dtype)
    assert raised.value.code == code


@gluon.jit
def copy_on_another_gpu(x_ptr, out_ptr):
    copy_tile(x_ptr, out_ptr, 128, 32, [128, 32], 128)


def test_other_gpus_have_no_copies():
    tilewright.runtime.set_device("sim:sm_90")
    x = torch.zeros(128, 32)
    with pytest.raises(tilewright.TritonError) as raised:
        copy_on_another_gpu[(1,)](x, x.clone())
    assert raised.value.code == "TW0024"
