"""Gluon for Blackwell on the simulator: tensor memory and `tcgen05` dots, against torch."""

from __future__ import annotations

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
    tcgen05_mma,
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


@gluon.jit
def shared(pointer, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """A matrix in shared memory, in the layout of dots and tensor copies."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    tile = gl.load(pointer + rows[:, None] * COLUMNS + columns[None, :])
    memory: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, COLUMNS], tile.dtype)
    return gl.allocate_shared_memory(tile.dtype, [ROWS, COLUMNS], memory, tile)


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
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    ACC: gl.constexpr,
    BLOCK: gl.constexpr,
    VARIANT: gl.constexpr,
    IS_TRANSPOSED: gl.constexpr,
):
    a = shared(a_ptr, M, K)
    b = shared(b_ptr, N, K).permute((1, 0)) if IS_TRANSPOSED else shared(b_ptr, K, N)
    acc = allocate_tensor_memory(
        ACC, [M, N], TensorMemoryLayout(BLOCK, col_stride=32 // ACC.primitive_bitwidth)
    )
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared()
    tcgen05_mma(a, b, acc, use_acc=False, mbarriers=[bar])
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    layout: gl.constexpr = acc.get_reg_layout(instr_variant=VARIANT)
    store(c_ptr, acc.load(layout), layout)


KINDS = [
    (torch.int8, gl.int32),
    (torch.uint8, gl.int32),
    (torch.float16, gl.float32),
    (torch.float16, gl.float16),
    (torch.bfloat16, gl.float32),
    (torch.float32, gl.float32),
    (torch.float8_e4m3fn, gl.float32),
    (torch.float8_e5m2, gl.float32),
]


def check_tile(tmp_path, dtype, acc, shape, block, variant="32x32b", transposed=True, warps=4):
    """Multiplies one tile, and compares with torch."""
    m, n, k = shape
    a, b = numbers(m, k, dtype=dtype), numbers(*(n, k) if transposed else (k, n), dtype=dtype, seed=1)
    c = torch.zeros(m, n, dtype={gl.float16: torch.float16, gl.int32: torch.int32}.get(acc, torch.float32))
    handle = one_tile[(1,)](a, b, c, m, n, k, acc, block, variant, transposed, num_warps=warps)
    expected = a.double() @ (b.double().T if transposed else b.double())
    torch.testing.assert_close(c.double(), expected, rtol=1e-3, atol=1e-3)
    assert "tcgen05.mma" in handle.asm["ptx"]
    assemble(handle, tmp_path)


@pytest.mark.parametrize(("dtype", "acc"), KINDS, ids=[f"{kind[0]}-{kind[1]}" for kind in KINDS])
def test_kinds(tmp_path, dtype, acc):
    check_tile(tmp_path, dtype, acc, (128, 64, 64), (128, 64))


@pytest.mark.parametrize("variant", ["32x32b", "16x64b", "16x128b", "16x256b"])
@pytest.mark.parametrize("rows", [64, 128])
def test_instructions_of_loads(tmp_path, rows, variant):
    check_tile(tmp_path, torch.float16, gl.float32, (rows, 64, 32), (rows, 64), variant)


@pytest.mark.parametrize(
    ("shape", "block", "warps"),
    [
        ((256, 64, 32), (128, 64), 4),
        ((128, 128, 32), (128, 32), 4),
        ((128, 128, 32), (64, 64), 8),
        ((128, 256, 16), (128, 256), 8),
    ],
)
def test_blocks(tmp_path, shape, block, warps):
    check_tile(tmp_path, torch.float16, gl.float32, shape, block, warps=warps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_row_major_b(tmp_path, dtype):
    """N is the contiguous axis of B: the instruction reads its transpose."""
    check_tile(tmp_path, dtype, gl.float32, (128, 128, 64), (128, 128), transposed=False)


@gluon.jit
def start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, bars, STAGES: gl.constexpr):
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    there = step < steps
    slot = step % STAGES
    mbarrier.expect(bars.index(slot), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=there)
    tma.async_load(a_desc, [row, step * BLOCK_K], bars.index(slot), a_smem.index(slot), pred=there)
    tma.async_load(b_desc, [column, step * BLOCK_K], bars.index(slot), b_smem.index(slot), pred=there)


@gluon.jit
def matmul(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """C = A @ B.T by tensor copies, a ring of slots, and an epilogue through tensor memory."""
    BM: gl.constexpr = a_desc.block_shape[0]
    BK: gl.constexpr = a_desc.block_shape[1]
    BN: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BM, BK], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BN, BK], b_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    acc = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    steps = gl.cdiv(K, BK)
    for step in gl.static_range(STAGES - 1):
        start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, full, STAGES)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        tcgen05_mma(a_smem.index(slot), b_smem.index(slot).permute((1, 0)), acc, use_acc=step > 0)
        start_loads(a_desc, b_desc, row, column, step + STAGES - 1, steps, a_smem, b_smem, full, STAGES)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.load().to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(0)


def descriptors(a, b, c, blocks):
    """Descriptors of the operands and of the result."""
    made = []
    for tensor, block in zip((a, b, c), blocks, strict=True):
        dtype = getattr(
            gl, {torch.float8_e4m3fn: "float8e4nv"}.get(tensor.dtype, str(tensor.dtype).split(".")[1])
        )
        layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
        made.append(TensorDescriptor.from_tensor(tensor, block, layout))
    return made


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_matmul(tmp_path, dtype):
    m, n, k = 200, 136, 208
    a, b = numbers(m, k, dtype=dtype), numbers(n, k, dtype=dtype, seed=1)
    c = torch.zeros(m, n, dtype=torch.float16)
    made = descriptors(a, b, c, ([128, 64], [64, 64], [128, 64]))
    handle = matmul[(2, 3)](*made, k, 3)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=1e-3, atol=1e-2)
    assemble(handle, tmp_path)


@gluon.jit
def pipelined(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """As `matmul`, with dots in flight: a commit releases each slot."""
    BM: gl.constexpr = a_desc.block_shape[0]
    BK: gl.constexpr = a_desc.block_shape[1]
    BN: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BM, BK], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BN, BK], b_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    acc = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    steps = gl.cdiv(K, BK)
    for step in gl.static_range(STAGES - 1):
        start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, full, STAGES)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        tcgen05_mma(
            a_smem.index(slot),
            b_smem.index(slot).permute((1, 0)),
            acc,
            use_acc=step > 0,
            mbarriers=[empty.index(slot)],
        )
        after = step + STAGES - 1
        before = step - 1
        mbarrier.wait(empty.index(after % STAGES), before // STAGES & 1, pred=step > 0)
        start_loads(a_desc, b_desc, row, column, after, steps, a_smem, b_smem, full, STAGES)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    layout: gl.constexpr = acc.get_reg_layout()
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.load(layout).to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(0)


def test_dots_in_flight(tmp_path):
    m, n, k = 128, 128, 256
    a, b = numbers(m, k, dtype=torch.float16), numbers(n, k, dtype=torch.float16, seed=1)
    c = torch.zeros(m, n, dtype=torch.float16)
    handle = pipelined[(1, 1)](*descriptors(a, b, c, ([128, 32], [128, 32], [128, 128])), k, 3)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=1e-3, atol=1e-2)
    assemble(handle, tmp_path)


@gluon.jit
def two_dots(a_ptr, b_ptr, v_ptr, c_ptr, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, D: gl.constexpr):
    """(A @ B.T + 1) @ V: the result of the first dot is the left operand of the second, in tensor memory."""
    a, b, v = shared(a_ptr, M, K), shared(b_ptr, N, K), shared(v_ptr, N, D)
    scores = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    result = allocate_tensor_memory(gl.float32, [M, D], TensorMemoryLayout([M, D], col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared()
    tcgen05_mma(a, b.permute((1, 0)), scores, use_acc=False)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    # The probabilities reuse the columns of the scores.
    p = scores._reinterpret(v.dtype, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    layout: gl.constexpr = p.get_reg_layout()
    tile = scores.load(scores.get_reg_layout()) + 1
    p.store(gl.convert_layout(tile.to(v.dtype), layout))
    tcgen05_mma(p, v, result, use_acc=False, mbarriers=[bar])
    mbarrier.wait(bar, 1)
    out: gl.constexpr = result.get_reg_layout()
    store(c_ptr, result.load(out), out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [64, 128])
def test_left_operand_in_tensor_memory(tmp_path, rows, dtype):
    m, n, k, d = rows, 64, 32, 64
    a, b, v = (
        numbers(m, k, dtype=dtype),
        numbers(n, k, dtype=dtype, seed=1),
        numbers(n, d, dtype=dtype, seed=2),
    )
    c = torch.zeros(m, d)
    handle = two_dots[(1,)](a, b, v, c, m, n, k, d)
    p = (a.double() @ b.double().T + 1).to(torch.float32).to(dtype)
    torch.testing.assert_close(c.double(), p.double() @ v.double(), rtol=1e-3, atol=1e-3)
    assemble(handle, tmp_path)


@gluon.jit
def load_partition(a_desc, b_desc, a_smem, b_smem, full, empty, row, column, steps, STAGES: gl.constexpr):
    BK: gl.constexpr = a_desc.block_shape[1]
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [row, step * BK], full.index(slot), a_smem.index(slot))
        tma.async_load(b_desc, [column, step * BK], full.index(slot), b_smem.index(slot))


@gluon.jit
def dot_partition(a_smem, b_smem, acc, full, empty, done, steps, STAGES: gl.constexpr):
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        tcgen05_mma(
            a_smem.index(slot),
            b_smem.index(slot).permute((1, 0)),
            acc,
            use_acc=step > 0,
            mbarriers=[empty.index(slot)],
        )
    tcgen05_commit(done)


@gluon.jit
def store_partition(c_desc, acc, done, row, column):
    mbarrier.wait(done, 0)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.load(acc.get_reg_layout()).to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(0)


@gluon.jit
def specialized(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """C = A @ B.T: a warp loads, a warp starts the dots, and four warps store the result."""
    BM: gl.constexpr = a_desc.block_shape[0]
    BK: gl.constexpr = a_desc.block_shape[1]
    BN: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BM, BK], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BN, BK], b_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    acc = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    steps = gl.cdiv(K, BK)
    gl.warp_specialize(
        [
            (store_partition, (c_desc, acc, done, row, column)),
            (load_partition, (a_desc, b_desc, a_smem, b_smem, full, empty, row, column, steps, STAGES)),
            (dot_partition, (a_smem, b_smem, acc, full, empty, done, steps, STAGES)),
        ],
        worker_num_warps=[1, 1],
    )


def test_warp_specialize(tmp_path):
    m, n, k = 200, 136, 208
    a, b = numbers(m, k, dtype=torch.float16), numbers(n, k, dtype=torch.float16, seed=1)
    c = torch.zeros(m, n, dtype=torch.float16)
    handle = specialized[(2, 2)](*descriptors(a, b, c, ([128, 32], [128, 32], [128, 128])), k, 3)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=1e-3, atol=1e-2)
    assemble(handle, tmp_path)


@gluon.jit
def views(x_ptr, out_ptr):
    """Stores parts of a tile, and loads the whole; tiles of an array."""
    memory = allocate_tensor_memory(gl.float32, [2, 128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    tile = memory.index(1)
    for part in gl.static_range(4):
        view = tile.slice(part * 16, 16)
        layout: gl.constexpr = view.get_reg_layout()
        rows = gl.arange(0, 128, layout=gl.SliceLayout(1, layout))
        columns = gl.arange(0, 16, layout=gl.SliceLayout(0, layout)) + part * 16
        view.store(gl.load(x_ptr + rows[:, None] * 64 + columns[None, :]))
    memory.index(0).store(tile.load(), pred=out_ptr.to(gl.int64) != 0)
    whole = memory.index(0).load()
    store(out_ptr, whole * 2, memory.index(0).get_reg_layout())


def test_views(tmp_path):
    x, out = torch.arange(128 * 64, dtype=torch.float32).view(128, 64), torch.zeros(128, 64)
    handle = views[(1,)](x, out)
    assert torch.equal(out, x * 2)
    assemble(handle, tmp_path)


@gluon.jit
def too_many(out_ptr):
    layout: gl.constexpr = TensorMemoryLayout([128, 128], col_stride=1)
    memory = allocate_tensor_memory(gl.float32, [5, 128, 128], layout)
    store(out_ptr, memory.index(0).load(), memory.index(0).get_reg_layout())


def test_columns_that_do_not_fit():
    with pytest.raises(tilewright.TritonError, match="640 columns of tensor memory") as raised:
        too_many[(1,)](torch.zeros(128, 128))
    assert raised.value.code == "TW0114"


@gluon.jit
def on_another_gpu(out_ptr):
    memory = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    store(out_ptr, memory.load(), memory.get_reg_layout())


def test_other_gpus_have_no_tensor_memory():
    tilewright.runtime.set_device("sim:sm_90")
    with pytest.raises(tilewright.TritonError) as raised:
        on_another_gpu[(1,)](torch.zeros(128, 64))
    assert raised.value.code == "TW0024"


@gluon.jit
def integer_tile(a_ptr, c_ptr):
    one_tile(a_ptr, a_ptr, c_ptr, 128, 128, 32, gl.int32, [128, 128], "32x32b", True)


def test_a_gpu_without_dots_of_integers():
    tilewright.runtime.set_device("sim:sm_103")
    with pytest.raises(tilewright.TritonError, match="`tcgen05_mma` of integers") as raised:
        integer_tile[(1,)](numbers(128, 32, dtype=torch.int8), torch.zeros(128, 128, dtype=torch.int32))
    assert raised.value.code == "TW0024"


@pytest.mark.parametrize("target", ["sm_100", "sm_103"])
@pytest.mark.parametrize(
    "example", ["60_gluon_tcgen05", "61_gluon_tcgen05_attention", "62_gluon_scaled_matmul"]
)
def test_examples(run, example, target):
    done = run("-m", "tilewright", "run", "--device", f"sim:{target}", ROOT / f"examples/{example}.py")
    assert done.code == 0, done.err
    assert done.out.count("largest difference") == 2
