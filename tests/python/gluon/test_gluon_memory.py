"""Shared memory, asynchronous copies and barriers of Gluon programs, against torch; and wrong uses of them."""

from __future__ import annotations

import pytest
import torch
from tilewright.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from tilewright.experimental.gluon.language.nvidia.hopper import mbarrier

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

FLAT = gl.SwizzledSharedLayout(1, 1, 1, [0])


@gluon.jit
def softmax(x_ptr, out_ptr, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    rows = gl.arange(0, M, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, N, layout=gl.SliceLayout(0, layout))
    offsets = rows[:, None] * N + columns[None, :]
    x = gl.load(x_ptr + offsets)
    e = gl.exp(x - gl.max(x, axis=1)[:, None])
    gl.store(out_ptr + offsets, e / gl.sum(e, axis=1)[:, None])


@pytest.mark.parametrize(
    "layout",
    [
        gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]),
        gl.BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0]),
        gl.BlockedLayout([2, 2], [32, 1], [2, 2], [0, 1]),
    ],
    ids=["rows", "warps along rows", "columns"],
)
def test_reductions(device, layout):
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).to(device)
    out = torch.empty_like(x)
    softmax[(1,)](x, out, 32, 64, layout)
    torch.testing.assert_close(out, x.softmax(1))


def test_accesses_of_a_thread_are_vectors(device):
    x = torch.zeros(32, 64, device=device)
    handle = softmax[(1,)](x, x.clone(), 32, 64, gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
    assert "ld.global.v4.b32" in handle.asm["ptx"]
    assert "st.global.v4.b32" in handle.asm["ptx"]


@gluon.jit
def transpose(x_ptr, out_ptr, M: gl.constexpr, N: gl.constexpr, shared: gl.constexpr):
    rows: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1])
    i, j = gl.arange(0, M, layout=gl.SliceLayout(1, rows)), gl.arange(0, N, layout=gl.SliceLayout(0, rows))
    tile = gl.load(x_ptr + i[:, None] * N + j[None, :])
    memory = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [M, N], shared, tile)
    i, j = (
        gl.arange(0, M, layout=gl.SliceLayout(1, columns)),
        gl.arange(0, N, layout=gl.SliceLayout(0, columns)),
    )
    gl.store(out_ptr + i[:, None] + j[None, :] * M, memory.load(columns))


def test_buffers_of_every_layout(device):
    wrong = []
    for dtype, bits in ((torch.float16, 16), (torch.float32, 32)):
        x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        for shared in (
            gl.SwizzledSharedLayout(1, 1, 1, [1, 0]),
            gl.SwizzledSharedLayout(1, 1, 1, [0, 1]),
            gl.SwizzledSharedLayout(4, 1, 8, [1, 0]),
            gl.SwizzledSharedLayout(8, 2, 4, [0, 1]),
            gl.NVMMASharedLayout(128, bits, 2),
            gl.NVMMASharedLayout(64, bits, 2),
            gl.NVMMASharedLayout(0, bits, 2),
        ):
            out = torch.empty(64, 32, device=device, dtype=dtype)
            transpose[(1,)](x, out, 32, 64, shared)
            if not torch.equal(out, x.T):
                wrong.append((dtype, shared))
    assert wrong == []


@gluon.jit
def fetch(x_ptr, memory, block, n, BLOCK: gl.constexpr, STAGES: gl.constexpr, layout: gl.constexpr):
    offsets = block * BLOCK + gl.arange(0, BLOCK, layout=layout)
    async_copy.async_load(memory.index(block % STAGES), x_ptr + offsets, mask=offsets < n)
    async_copy.commit_group()


@gluon.jit
def sum_of_blocks(x_ptr, out_ptr, n, BLOCK: gl.constexpr, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    memory = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    for block in gl.static_range(STAGES - 1):
        fetch(x_ptr, memory, block, n, BLOCK, STAGES, layout)
    acc = gl.zeros([BLOCK], gl.float32, layout)
    for block in range(gl.cdiv(n, BLOCK)):
        fetch(x_ptr, memory, block + STAGES - 1, n, BLOCK, STAGES, layout)
        async_copy.wait_group(STAGES - 1)
        acc += memory.index(block % STAGES).load(layout)
    gl.store(out_ptr + gl.arange(0, BLOCK, layout=layout), acc)


@pytest.mark.parametrize("stages", [2, 3])
def test_rings_of_asynchronous_copies(device, stages):
    for n in (512, 1000, 5000):
        x = torch.randn(n, generator=torch.Generator().manual_seed(n)).to(device)
        out = torch.empty(512, device=device)
        handle = sum_of_blocks[(1,)](x, out, n, 512, stages)
        blocks = torch.nn.functional.pad(x, (0, -n % 512)).view(-1, 512)
        torch.testing.assert_close(out, blocks.sum(0))
        assert "cp.async" in handle.asm["ptx"]


@gluon.jit
def dot(a_ptr, b_ptr, c_ptr, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, width: gl.constexpr):
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[2, 0], warps_per_cta=[2, 2], instr_shape=[16, 8]
    )
    a_layout: gl.constexpr = gl.DotOperandLayout(0, acc_layout, width)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, acc_layout, width)
    m, k = (
        gl.arange(0, M, layout=gl.SliceLayout(1, blocked)),
        gl.arange(0, K, layout=gl.SliceLayout(0, blocked)),
    )
    a = gl.load(a_ptr + m[:, None] * K + k[None, :])
    k, n = (
        gl.arange(0, K, layout=gl.SliceLayout(1, blocked)),
        gl.arange(0, N, layout=gl.SliceLayout(0, blocked)),
    )
    b = gl.load(b_ptr + k[:, None] * N + n[None, :])
    acc = gl.zeros([M, N], gl.float32, acc_layout)
    acc = mma_v2(gl.convert_layout(a, a_layout), gl.convert_layout(b, b_layout), acc)
    m, n = (
        gl.arange(0, M, layout=gl.SliceLayout(1, acc_layout)),
        gl.arange(0, N, layout=gl.SliceLayout(0, acc_layout)),
    )
    gl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_dots_by_mma(device, dtype):
    M, N, K = 64, 32, 64
    generator = torch.Generator().manual_seed(2)
    # Sums of small integers are exact in every type.
    a = torch.randint(-4, 5, (M, K), generator=generator).to(device, dtype)
    b = torch.randint(-4, 5, (K, N), generator=generator).to(device, dtype)
    c = torch.empty(M, N, device=device)
    handle = dot[(1,)](a, b, c, M, N, K, 4 // dtype.itemsize)
    assert torch.equal(c, a.float() @ b.float())
    assert "mma.sync" in handle.asm["ptx"]


@gluon.jit
def through_barriers(x_ptr, out_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    offsets = gl.arange(0, BLOCK, layout=layout)
    phase = 0
    for block in range(n):
        memory.store(gl.load(x_ptr + block * BLOCK + offsets))
        mbarrier.arrive(bar, count=1)
        mbarrier.wait(bar, phase)
        phase ^= 1
        gl.store(out_ptr + block * BLOCK + offsets, memory.load(layout))
    mbarrier.invalidate(bar)


@pytest.fixture
def hopper():
    """Skips a test of what sm_90 has and the device lacks."""
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no mbarriers with transactions")


def test_barriers(device, hopper):
    x = torch.randn(1536, device=device)
    out = torch.empty_like(x)
    handle = through_barriers[(1,)](x, out, 3, 512)
    assert torch.equal(out, x)
    assert "mbarrier.init" in handle.asm["ptx"]


@gluon.jit
def reads_without_wait(x_ptr, out_ptr, layout: gl.constexpr, shared: gl.constexpr):
    offsets = gl.arange(0, 512, layout=layout)
    memory = gl.allocate_shared_memory(gl.float32, [512], shared)
    async_copy.async_load(memory, x_ptr + offsets)
    async_copy.commit_group()
    gl.store(out_ptr + offsets, memory.load(layout))


@gluon.jit
def waits_for_nobody(x_ptr, out_ptr, layout: gl.constexpr, shared: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.wait(bar, 0)
    gl.store(out_ptr + gl.arange(0, 512, layout=layout), 1.0)


@gluon.jit
def does_not_initialize(x_ptr, out_ptr, layout: gl.constexpr, shared: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 0)
    gl.store(out_ptr + gl.arange(0, 512, layout=layout), 1.0)


@gluon.jit
def overwrites_a_copy(x_ptr, out_ptr, layout: gl.constexpr, shared: gl.constexpr):
    offsets = gl.arange(0, 512, layout=layout)
    memory = gl.allocate_shared_memory(gl.float32, [512], shared)
    async_copy.async_load(memory, x_ptr + offsets)
    async_copy.commit_group()
    memory.store(gl.zeros([512], gl.float32, layout))
    async_copy.wait_group(0)
    gl.store(out_ptr + offsets, memory.load(layout))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (reads_without_wait, "local_load uses %memory while it is being copied to"),
        (overwrites_a_copy, "local_store uses %memory while it is being copied to"),
        (waits_for_nobody, "mbarrier_wait waits for %bar, but nothing arrives there"),
        (does_not_initialize, "%bar before mbarrier_init"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_wrong_uses_are_named(device, hopper, kernel, expected):
    x = torch.randn(512, device=device)
    with pytest.raises(tilewright.CompilationError, match=expected) as raised:
        kernel[(1,)](x, torch.empty_like(x), gl.BlockedLayout([4], [32], [4], [0]), FLAT)
    assert raised.value.code == "TW0029"


@gluon.jit
def wrong_memory(x_ptr, CASE: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [2, 512], shared)
    tile = gl.load(x_ptr + gl.arange(0, 512, layout=layout))
    if CASE == "array":
        memory.store(tile)
    elif CASE == "index":
        memory.index(2).store(tile)
    elif CASE == "dtype":
        memory.index(0).store(tile.to(gl.float16))
    elif CASE == "name":
        memory.index(0).stores(tile)
    elif CASE == "barrier":
        mbarrier.init(memory.index(0), count=1)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("array", r"shared memory for one tile"),
        ("index", r"an index from 0 to 1"),
        ("dtype", r"does not take fp16\[512\]"),
        ("name", r"no attribute `stores`[\s\S]*did you mean `store`"),
        ("barrier", r"must be an mbarrier"),
    ],
)
def test_mistakes_have_codes(device, case, expected):
    x = torch.randn(512, device=device)
    with pytest.raises(tilewright.CompilationError, match=expected) as raised:
        wrong_memory[(1,)](x, case, gl.BlockedLayout([4], [32], [4], [0]), FLAT)
    assert raised.value.code.startswith("TW00")


@gluon.jit
def chosen_at_run_time(x_ptr, n, layout: gl.constexpr, shared: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [512], shared)
    if n > 0:
        memory = gl.allocate_shared_memory(gl.float32, [512], shared)
    memory.store(gl.zeros([512], gl.float32, layout))
    gl.store(x_ptr + gl.arange(0, 512, layout=layout), memory.load(layout))


@gluon.jit
def swaps(x_ptr, n, layout: gl.constexpr, shared: gl.constexpr):
    """Stores to two buffers in turn. Each is a tile of an array."""
    offsets = gl.arange(0, 512, layout=layout)
    memory = gl.allocate_shared_memory(gl.float32, [2, 512], shared).index(0)
    other = gl.allocate_shared_memory(gl.float32, [2, 512], shared).index(1)
    memory.store(gl.load(x_ptr + offsets))
    other.store(gl.load(x_ptr + 512 + offsets))
    for turn in range(n):
        memory.store(memory.load(layout) + turn)
        memory, other = other, memory
    gl.store(x_ptr + offsets, memory.load(layout))
    gl.store(x_ptr + 512 + offsets, other.load(layout))


@pytest.mark.parametrize("turns", [0, 1, 4, 5])
def test_a_loop_swaps_buffers(device, turns):
    x = torch.randn(2, 512, generator=torch.Generator().manual_seed(12)).to(device)
    buffers = [*x.clone()]
    swaps[(1,)](x, turns, gl.BlockedLayout([4], [32], [4], [0]), FLAT)
    for turn in range(turns):
        buffers[0] += turn
        buffers.reverse()
    assert torch.equal(x, torch.stack(buffers))


def test_allocations_are_known_at_compile_time(device):
    x = torch.randn(512, device=device)
    with pytest.raises(tilewright.CompilationError, match="chosen at run time") as raised:
        chosen_at_run_time[(1,)](x, 3, gl.BlockedLayout([4], [32], [4], [0]), FLAT)
    assert raised.value.code.startswith("TW0")


@gluon.jit
def allocates_in_a_loop(x_ptr, out_ptr, n, layout: gl.constexpr, shared: gl.constexpr):
    offsets = gl.arange(0, 512, layout=layout)
    acc = gl.zeros([512], gl.float32, layout)
    for i in range(n):
        memory = gl.allocate_shared_memory(gl.float32, [512], shared)
        async_copy.async_load(memory, x_ptr + i * 512 + offsets)
        async_copy.commit_group()
        async_copy.wait_group(0)
        acc += memory.load(layout)
    gl.store(out_ptr + offsets, acc)


def test_allocations_in_loops(device):
    x = torch.randn(3, 512, generator=torch.Generator().manual_seed(6)).to(device)
    out = torch.empty(512, device=device)
    allocates_in_a_loop[(1,)](x, out, 3, gl.BlockedLayout([4], [32], [4], [0]), FLAT)
    torch.testing.assert_close(out, x.sum(0))


@gluon.jit
def copies_to_a_phase(x_ptr, out_ptr, layout: gl.constexpr, COUNTED: gl.constexpr):
    """The phase of an mbarrier ends after copies that its arrivals count, or do not count."""
    memory = gl.allocate_shared_memory(gl.float32, [2, 512], FLAT)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=128 if COUNTED else 1)
    i = gl.arange(0, 512, layout=layout)
    for turn in range(3):
        for part in gl.static_range(2):
            async_copy.async_load(memory.index(part), x_ptr + (2 * turn + part) * 512 + i)
        if COUNTED:
            async_copy.mbarrier_arrive(bar, increment_count=False)
        else:
            async_copy.mbarrier_arrive(bar)
            mbarrier.arrive(bar, count=1)
        mbarrier.wait(bar, turn % 2)
        total = memory.index(0).load(layout) + memory.index(1).load(layout)
        gl.store(out_ptr + turn * 512 + i, total)


@pytest.mark.parametrize("counted", [True, False])
def test_copies_arrive_at_a_phase(device, counted):
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the compiler uses mbarriers of sm_90")
    x = torch.randn(3, 2, 512, generator=torch.Generator().manual_seed(8)).to(device)
    out = torch.empty(3, 512, device=device)
    handle = copies_to_a_phase[(1,)](x, out, gl.BlockedLayout([4], [32], [4], [0]), counted)
    torch.testing.assert_close(out, x.sum(1))
    assert ("arrive.noinc" in handle.asm["ptx"]) == counted


@gluon.jit
def scalar_dot(a_ptr, b_ptr, c_ptr, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, layout: gl.constexpr):
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 0)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 0)
    i, j = (
        gl.arange(0, M, layout=gl.SliceLayout(1, layout)),
        gl.arange(0, N, layout=gl.SliceLayout(0, layout)),
    )
    ka, kb = gl.arange(0, K, layout=gl.SliceLayout(0, left)), gl.arange(0, K, layout=gl.SliceLayout(1, right))
    ia, jb = gl.arange(0, M, layout=gl.SliceLayout(1, left)), gl.arange(0, N, layout=gl.SliceLayout(0, right))
    a = gl.load(a_ptr + ia[:, None] * K + ka[None, :])
    b = gl.load(b_ptr + kb[:, None] * N + jb[None, :])
    acc = gl.full([M, N], 1.0, gl.float32, layout)
    gl.store(c_ptr + i[:, None] * N + j[None, :], gl.dot_fma(a, b, acc))


def test_dots_of_scalars(device):
    generator = torch.Generator().manual_seed(9)
    a = torch.randn(32, 16, generator=generator).to(device)
    b = torch.randn(16, 64, generator=generator).to(device)
    c = torch.empty(32, 64, device=device)
    handle = scalar_dot[(1,)](a, b, c, 32, 64, 16, gl.BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0]))
    torch.testing.assert_close(c, a @ b + 1)
    assert "mma" not in handle.asm["ptx"]


@gluon.jit
def scalar_dot_of_other_layouts(c_ptr, layout: gl.constexpr):
    x = gl.zeros([32, 32], gl.float32, layout)
    gl.dot_fma(x, x, x)


def test_dots_of_scalars_need_operand_layouts(device):
    c = torch.empty(1, device=device)
    with pytest.raises(
        tilewright.CompilationError, match=r"must have the layout DotOperandLayout\(0"
    ) as raised:
        scalar_dot_of_other_layouts[(1,)](c, gl.BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0]))
    assert raised.value.code == "TW0028"


@gluon.jit
def padded_transpose(x_ptr, out_ptr, N: gl.constexpr, shared: gl.constexpr, COPIES: gl.constexpr):
    """Transposes tiles in an array of memory with padding."""
    rows: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1])
    memory = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [3, N, N], shared)
    i, j = gl.arange(0, N, layout=gl.SliceLayout(1, rows)), gl.arange(0, N, layout=gl.SliceLayout(0, rows))
    for tile in range(3):
        pointers = x_ptr + tile * N * N + i[:, None] * N + j[None, :]
        if COPIES:
            async_copy.async_load(memory.index(tile), pointers)
            async_copy.commit_group()
        else:
            memory.index(tile).store(gl.load(pointers))
    async_copy.wait_group(0)
    i, j = (
        gl.arange(0, N, layout=gl.SliceLayout(1, columns)),
        gl.arange(0, N, layout=gl.SliceLayout(0, columns)),
    )
    for tile in range(3):
        gl.store(out_ptr + tile * N * N + i[:, None] + j[None, :] * N, memory.index(tile).load(columns))


@pytest.mark.parametrize("copies", [False, True])
def test_memory_with_padding(device, copies):
    wrong = []
    layouts = [
        gl.PaddedSharedLayout.with_identity_for([[64, 4]], [64, 64], [1, 0]),
        gl.PaddedSharedLayout.with_identity_for([[16, 2], [256, 8]], [64, 64], [1, 0]),
        gl.PaddedSharedLayout.with_identity_for([[64, 4]], [64, 64], [0, 1]),
    ]
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        # Asynchronous copies move at least 4 bytes that are contiguous.
        for layout in layouts[: 2 if copies else 3]:
            out = torch.empty_like(x)
            padded_transpose[(1,)](x, out, 64, layout, copies)
            if not torch.equal(out, x.transpose(1, 2)):
                wrong.append((layout, dtype))
    assert wrong == []


@gluon.jit
def conflicts_with_padding(layout: gl.constexpr, plain: gl.constexpr, padded: gl.constexpr):
    x = gl.full([64, 64], 0, gl.float32, layout)
    bare = gl.allocate_shared_memory(gl.float32, [64, 64], plain)
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], padded)
    gl.static_assert(gl.bank_conflicts(x.type, bare.type) == 31)
    gl.static_assert(gl.bank_conflicts(x.type, memory.type) == 0)


def test_padding_avoids_bank_conflicts(device):
    columns = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
    plain = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    conflicts_with_padding[(1,)](
        columns, plain, gl.PaddedSharedLayout.with_identity_for([[64, 1]], [64, 64], [1, 0])
    )


@gluon.jit
def reshaped_padding(layout: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], layout)
    memory.reshape([4096])


def test_memory_with_padding_has_no_views(device):
    with pytest.raises(tilewright.CompilationError, match="padding has no such view") as raised:
        reshaped_padding[(1,)](gl.PaddedSharedLayout.with_identity_for([[64, 4]], [64, 64], [1, 0]))
    assert raised.value.code == "TW0028"


def test_padding_is_checked():
    with pytest.raises(AssertionError, match="powers of two"):
        gl.PaddedSharedLayout([[3, 1]], [[1]], [], [2])
    with pytest.raises(AssertionError, match="two paddings"):
        gl.PaddedSharedLayout([[4, 1], [4, 2]], [[1]], [], [2])
    with pytest.raises(AssertionError, match="a shape of powers of two"):
        gl.PaddedSharedLayout.with_identity_for([[4, 1]], [48], [0])
