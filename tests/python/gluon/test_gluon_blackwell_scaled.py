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
    tcgen05_mma_scaled,
    tma,
)
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


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def operand(rows, k, kind, seed):
    """An operand as a kernel takes it, and its values."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "e2m1":
        codes = torch.randint(0, 16, (rows, k), generator=generator)
        return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8), E2M1[codes].double()
    dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]
    values = (torch.randint(-8, 9, (rows, k), generator=generator) / 8).to(dtype)
    return values, values.double()


def scale_factors(rows, k, vector, seed):
    """Scales as a kernel takes them, and the factor of each element."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, k // vector)
    if vector == 32:
        exponents = torch.randint(-4, 5, shape, generator=generator)
        stored, values = (exponents + 127).to(torch.uint8), torch.exp2(exponents.double())
    else:
        stored = (torch.randint(1, 17, shape, generator=generator) / 4).to(torch.float8_e4m3fn)
        values = stored.double()
    return stored, values.repeat_interleave(vector, dim=1)


@gluon.jit
def byte_matrix(pointer, ROWS: gl.constexpr, COLUMNS: gl.constexpr, IS_PADDED: gl.constexpr):
    tile = load_matrix(pointer, ROWS, COLUMNS)
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(
        [ROWS, COLUMNS], tile.dtype, fp4_padded=IS_PADDED
    )
    return gl.allocate_shared_memory(tile.dtype, [ROWS, COLUMNS], layout, tile)


@gluon.jit
def stored_scales(pointer, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Scales in tensor memory, which the threads store."""
    tile = load_matrix(pointer, ROWS, COLUMNS)
    memory = allocate_tensor_memory(tile.dtype, [ROWS, COLUMNS], TensorMemoryScalesLayout())
    memory.store(gl.convert_layout(tile, memory.get_reg_layout()))
    return memory


@gluon.jit
def copied_scales(pointer, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Scales in tensor memory, which a copy fills."""
    source = packed_scales(pointer, ROWS, COLUMNS)
    memory = allocate_tensor_memory(source.dtype, [ROWS, COLUMNS], TensorMemoryScalesLayout())
    fence_async_shared()
    tcgen05_copy(source, memory)
    return memory


@gluon.jit
def scaled_tile(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    c_ptr,
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    A_TYPE: gl.constexpr,
    B_TYPE: gl.constexpr,
    VECTOR: gl.constexpr,
    BLOCK_N: gl.constexpr,
    ROUTE: gl.constexpr,
    ROW_MAJOR: gl.constexpr,
):
    """C = C + A @ B.T with scales, twice."""
    A_K: gl.constexpr = K // 2 if A_TYPE == "e2m1" else K
    B_K: gl.constexpr = K // 2 if B_TYPE == "e2m1" else K
    IS_MIXED: gl.constexpr = A_TYPE != B_TYPE
    if ROUTE == "left":
        tile = load_matrix(a_ptr, M, A_K)
        a = allocate_tensor_memory(tile.dtype, [M, A_K], TensorMemoryLayout([128, A_K], col_stride=1))
        a.store(gl.convert_layout(tile, a.get_reg_layout()))
    else:
        a = byte_matrix(a_ptr, M, A_K, IS_MIXED and A_TYPE == "e2m1")
    if ROW_MAJOR:
        b = byte_matrix(b_ptr, B_K, N, False)
    else:
        b = byte_matrix(b_ptr, N, B_K, IS_MIXED and B_TYPE == "e2m1").permute((1, 0))
    if ROUTE == "copy":
        a_scale = copied_scales(a_scale_ptr, M, K // VECTOR)
        b_scale = copied_scales(b_scale_ptr, N, K // VECTOR)
    else:
        a_scale = stored_scales(a_scale_ptr, M, K // VECTOR)
        b_scale = stored_scales(b_scale_ptr, N, K // VECTOR)
    acc = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([128, BLOCK_N], col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared()
    for step in gl.static_range(2):
        tcgen05_mma_scaled(a, b, acc, a_scale, b_scale, A_TYPE, B_TYPE, use_acc=step > 0, mbarriers=[])
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    store(c_ptr, acc.load(), acc.get_reg_layout())


def check_scaled(tmp_path, kinds, vector, shape, block_n=None, route="store", row_major=False, warps=4):
    """Multiplies one tile, and compares with torch."""
    m, n, k = shape
    (a, a_values), (b, b_values) = operand(m, k, kinds[0], 0), operand(n, k, kinds[1], 1)
    (a_scale, a_factors), (b_scale, b_factors) = (
        scale_factors(m, k, vector, 2),
        scale_factors(n, k, vector, 3),
    )
    if route == "copy":
        a_scale, b_scale = pack(a_scale), pack(b_scale)
    if row_major:
        b = b.view(torch.uint8).T.contiguous().view(b.dtype)
    c = torch.zeros(m, n)
    handle = scaled_tile[(1,)](
        a, b, a_scale, b_scale, c, m, n, k, *kinds, vector, block_n or n, route, row_major, num_warps=warps
    )
    expected = 2 * (a_values * a_factors) @ (b_values * b_factors).T
    torch.testing.assert_close(c.double(), expected, rtol=1e-5, atol=1e-3)
    assemble(handle, tmp_path)
    return handle.asm["ptx"]


@pytest.mark.parametrize(
    ("kinds", "vector", "expected"),
    [
        (("e4m3", "e4m3"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e4m3", "e5m2"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e4m3", "e2m1"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e2m1", "e5m2"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e2m1", "e2m1"), 32, ".kind::mxf4.block_scale.scale_vec::2X"),
        (("e2m1", "e2m1"), 16, ".kind::mxf4nvf4.block_scale.scale_vec::4X"),
    ],
    ids=["mxfp8", "e5m2", "mixed", "mixed_left", "mxfp4", "nvfp4"],
)
@pytest.mark.parametrize("route", ["store", "copy"])
def test_scaled_dots(tmp_path, kinds, vector, expected, route):
    assert expected in check_scaled(tmp_path, kinds, vector, (128, 128, 256), route=route)


@pytest.mark.parametrize(
    ("shape", "block_n", "route", "warps"),
    [
        ((128, 64, 128), 64, "store", 4),
        ((128, 32, 32), 32, "store", 4),
        ((128, 64, 64), 32, "store", 8),
        ((256, 128, 128), 64, "copy", 8),
        ((128, 256, 128), 256, "copy", 8),
        ((128, 128, 128), 128, "left", 4),
    ],
)
def test_shapes_of_scaled_dots(tmp_path, shape, block_n, route, warps):
    check_scaled(tmp_path, ("e4m3", "e4m3"), 32, shape, block_n, route, warps=warps)


def test_scaled_dots_of_a_row_major_b(tmp_path):
    check_scaled(tmp_path, ("e5m2", "e4m3"), 32, (128, 128, 64), row_major=True)


def test_e2m1_of_a_row_major_b():
    with pytest.raises(tilewright.TritonError, match="operand B of e2m1 is not contiguous along K") as raised:
        check_scaled(None, ("e2m1", "e2m1"), 32, (128, 128, 128), row_major=True)
    assert raised.value.code == "TW0028"


@gluon.jit
def mistaken_dot(out_ptr, MISTAKE: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    ones = gl.full([128, 64], 0x38, gl.uint8, gl.BlockedLayout([1, 16], [8, 4], [4, 1], [1, 0]))
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, 64], gl.uint8)
    a = gl.allocate_shared_memory(gl.uint8, [128, 64], layout, ones)
    b = gl.allocate_shared_memory(gl.uint8, [128, 64], layout, ones).permute((1, 0))
    acc = allocate_tensor_memory(gl.float32, [128, 128], TensorMemoryLayout([128, 128], col_stride=1))
    scales = allocate_tensor_memory(gl.uint8, [128, 2], TensorMemoryScalesLayout())
    registers: gl.constexpr = scales.get_reg_layout()
    if MISTAKE != "scales":
        scales.store(gl.full([128, 2], 127, gl.uint8, registers))
    if MISTAKE != "fence":
        fence_async_shared()
    tcgen05_mma_scaled(a, b, acc, scales, scales, "e4m3", "e4m3", use_acc=False, mbarriers=[])
    tcgen05_commit(bar)
    if MISTAKE == "store":
        scales.store(gl.full([128, 2], 128, gl.uint8, registers))
    if MISTAKE == "operand":
        a.store(ones)
    if MISTAKE != "wait":
        mbarrier.wait(bar, 0)
    gl.store(out_ptr, gl.max(gl.max(acc.load(), axis=1), axis=0))


def test_a_scaled_dot_without_a_mistake():
    out = torch.zeros(1)
    mistaken_dot[(1,)](out, "none")
    assert out.item() == 64


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("fence", r"tcgen05_mma_scaled reads %a by the asynchronous proxy"),
        ("wait", r"tmem_load reads %acc while a tcgen05_mma_scaled writes it: add an mbarrier_wait for %bar"),
        ("store", r"tmem_store writes %scales while a tcgen05_mma_scaled reads it"),
        ("operand", r"local_store writes %a while a tcgen05_mma_scaled reads it"),
    ],
)
def test_mistakes_of_scaled_dots_that_the_compiler_finds(mistake, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        mistaken_dot[(1,)](torch.zeros(1), mistake)
    assert raised.value.code == "TW0029"


def test_scales_that_nothing_has_written():
    with pytest.raises(
        tilewright.TritonError, match=r"uninitialized|nothing has written|not written"
    ) as raised:
        mistaken_dot[(1,)](torch.zeros(1), "scales")
    assert raised.value.code.startswith("TW02")


@gluon.jit
def dot_of(
    A: gl.constexpr,
    B: gl.constexpr,
    ACC: gl.constexpr,
    SCALES: gl.constexpr,
    TYPES: gl.constexpr,
    PADDED: gl.constexpr,
):
    """A dot of uninitialized memory: each argument states shapes and types."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(A, gl.uint8, fp4_padded=PADDED)
    a = gl.allocate_shared_memory(gl.uint8, A, layout)
    b = gl.allocate_shared_memory(gl.uint8, B, gl.NVMMASharedLayout.get_default_for(B, gl.uint8)).permute(
        (1, 0)
    )
    acc = allocate_tensor_memory(ACC[0], ACC[1], TensorMemoryLayout(ACC[2], ACC[3]))
    a_scale = allocate_tensor_memory(SCALES[2], SCALES[0], TensorMemoryScalesLayout())
    if SCALES[3] == "memory":
        b_scale = allocate_tensor_memory(SCALES[2], SCALES[1], TensorMemoryScalesLayout())
    elif SCALES[3] == "layout":
        b_scale = allocate_tensor_memory(SCALES[2], SCALES[1], TensorMemoryLayout([128, 4], 1))
    else:
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
        b_scale = gl.allocate_shared_memory(SCALES[2], SCALES[1], plain)
    tcgen05_mma_scaled(a, b, acc, a_scale, b_scale, TYPES[0], TYPES[1], use_acc=False)


VALID = {
    "A": [128, 128],
    "B": [128, 128],
    "ACC": (gl.float32, [128, 128], [128, 128], 1),
    "SCALES": ([128, 4], [128, 4], gl.uint8, "memory"),
    "TYPES": ("e4m3", "e4m3"),
    "PADDED": False,
}


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"TYPES": ("e4m3", "e3m2")}, "TW0016", "must be"),
        ({"B": [128, 64]}, "TW0005", "cannot multiply"),
        ({"TYPES": ("e4m3", "e2m1"), "B": [128, 64]}, "TW0005", "fp4_padded=True"),
        ({"PADDED": True}, "TW0005", "only an operand of e2m1 has"),
        ({"SCALES": ([128, 2], [128, 4], gl.uint8, "memory")}, "TW0005", r"needs scales \[128, 4\] for A"),
        ({"SCALES": ([128, 4], [64, 4], gl.uint8, "memory")}, "TW0005", r"needs scales \[128, 4\] for B"),
        ({"SCALES": ([128, 4], [128, 4], gl.uint8, "layout")}, "TW0028", "is not for scales"),
        ({"SCALES": ([128, 4], [128, 4], gl.uint8, "shared")}, "TW0016", "must be tensor memory"),
        ({"SCALES": ([128, 8], [128, 8], gl.float8e4nv, "memory")}, "TW0005", "for two operands of e2m1"),
        (
            {"SCALES": ([128, 4], [128, 4], gl.float8e5, "memory")},
            "TW0005",
            "the scales of both operands are",
        ),
        ({"A": [128, 16], "B": [128, 16]}, "TW0005", "must be a multiple of 32"),
        ({"TYPES": ("e2m1", "e2m1"), "A": [128, 16], "B": [128, 16]}, "TW0005", "must be a multiple of 64"),
        ({"ACC": (gl.float16, [128, 128], [128, 128], 2)}, "TW0005", "is fp32"),
        ({"ACC": (gl.float32, [128, 128], [64, 128], 1)}, "TW0028", "blocks of 128 rows"),
        ({"ACC": (gl.float32, [128, 128], [128, 16], 1)}, "TW0028", "a multiple of 32 columns"),
    ],
)
def test_scaled_dots_that_no_instruction_makes(changes, code, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        dot_of[(1,)](*(VALID | changes).values())
    assert raised.value.code == code


@gluon.jit
def dot_on_another_gpu(
    A: gl.constexpr,
    B: gl.constexpr,
    ACC: gl.constexpr,
    SCALES: gl.constexpr,
    TYPES: gl.constexpr,
    PADDED: gl.constexpr,
):
    dot_of(A, B, ACC, SCALES, TYPES, PADDED)


def test_other_gpus_have_no_scaled_dots():
    tilewright.runtime.set_device("sim:sm_90")
    with pytest.raises(tilewright.TritonError) as raised:
        dot_on_another_gpu[(1,)](*VALID.values())
    assert raised.value.code == "TW0024"


@gluon.jit
def padded_copy(desc):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, 64], gl.uint8, fp4_padded=True)
    smem = gl.allocate_shared_memory(gl.uint8, [128, 64], layout)
    tma.async_load(desc, [0, 0], bar, smem)


def test_tensor_copies_do_not_pad():
    layout = gl.NVMMASharedLayout(128, 8, 2, False, True)
    desc = TensorDescriptor.from_tensor(torch.zeros(128, 64, dtype=torch.uint8), [128, 64], layout)
    with pytest.raises(tilewright.TritonError, match="no tensor copy accesses memory with") as raised:
        padded_copy[(1,)](desc)
    assert raised.value.code == "TW0028"
