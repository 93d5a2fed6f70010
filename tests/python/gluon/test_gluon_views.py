"""Views of shared memory: slices, reshaped and reinterpreted tiles, against torch."""

from __future__ import annotations

import pytest
import torch
from tilewright.experimental.gluon.language.nvidia.ampere import async_copy
from tilewright.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCKED = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])


@gluon.jit
def offsets_of(M: gl.constexpr, N: gl.constexpr, stride, layout: gl.constexpr):
    i = gl.arange(0, M, layout=gl.SliceLayout(1, layout))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, layout))
    return i[:, None] * stride + j[None, :]


@gluon.jit
def slices(
    x_ptr, out_ptr, shared: gl.constexpr, layout: gl.constexpr, DIM: gl.constexpr, PARTS: gl.constexpr
):
    """Stores the parts of a tile along an axis in reverse order."""
    memory = gl.allocate_shared_memory(
        gl.float16, [64, 64], shared, gl.load(x_ptr + offsets_of(64, 64, 64, layout))
    )
    LENGTH: gl.constexpr = 64 // PARTS
    for part in gl.static_range(PARTS):
        view = memory.slice(part * LENGTH, LENGTH, dim=DIM)
        tile = view.load(layout)
        M: gl.constexpr = view.shape[0]
        N: gl.constexpr = view.shape[1]
        gl.static_assert(M * N == 64 * LENGTH)
        start = (PARTS - 1 - part) * LENGTH * (64 if DIM == 0 else 1)
        gl.store(out_ptr + start + offsets_of(M, N, 64, layout), tile)


@pytest.mark.parametrize(
    ("shared", "dim", "parts"),
    [
        (gl.NVMMASharedLayout(128, 16, 2), 0, 8),
        (gl.NVMMASharedLayout(32, 16, 2), 1, 4),
        # Loads of slices that are not contiguous.
        (gl.NVMMASharedLayout(128, 16, 2), 1, 2),
        (gl.NVMMASharedLayout(128, 16, 2), 1, 16),
        (gl.NVMMASharedLayout(128, 16, 2), 0, 32),
        (gl.SwizzledSharedLayout(8, 1, 8, [1, 0]), 1, 8),
        (gl.NVMMASharedLayout(128, 16, 2, transposed=True), 1, 4),
        (gl.SwizzledSharedLayout(8, 1, 8, [1, 0]), 0, 4),
        (gl.SwizzledSharedLayout(1, 1, 1, [0, 1]), 1, 64),
    ],
)
def test_slices(device, shared, dim, parts):
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).half().to(device)
    out = torch.empty_like(x)
    slices[(1,)](x, out, shared, BLOCKED, dim, parts)
    assert torch.equal(out, torch.cat(x.split(64 // parts, dim)[::-1], dim))


@gluon.jit
def stores_to_columns(x_ptr, shared: gl.constexpr, layout: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
    memory.slice(32, 32, dim=1).store(gl.load(x_ptr + offsets_of(64, 32, 64, layout)))


def test_a_slice_with_gaps_is_refused(device):
    x = torch.empty(64, 64, device=device, dtype=torch.float16)
    with pytest.raises(tilewright.CompilationError, match="not contiguous in shared memory") as raised:
        stores_to_columns[(1,)](x, gl.NVMMASharedLayout(128, 16, 2), BLOCKED)
    assert raised.value.code == "TW0028"


@gluon.jit
def transposed_slices(x_ptr, out_ptr, shared: gl.constexpr, layout: gl.constexpr):
    """Stores through a slice of a transpose, in a part of an array."""
    memory = gl.allocate_shared_memory(gl.float16, [4, 64, 64], shared)
    middle = memory.slice(1, 2)
    gl.static_assert(middle.shape[0] == 2)
    for turn in range(2):
        view = middle.index(turn).permute((1, 0))
        for part in gl.static_range(2):
            # The transpose of rows 32 * part and following.
            rows = view.slice(32 * part, 32, dim=1)
            gl.static_assert(rows.shape[0] == 64)
            gl.static_assert(rows.shape[1] == 32)
            rows.store(gl.load(x_ptr + turn * 4096 + 32 * part + offsets_of(64, 32, 64, layout)))
    for turn in range(2):
        tile = memory.index(1 + turn).load(layout)
        gl.store(out_ptr + turn * 4096 + offsets_of(64, 64, 64, layout), tile)


def test_slices_of_a_transpose(device):
    x = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(2)).half().to(device)
    out = torch.empty_like(x)
    transposed_slices[(1,)](x, out, gl.NVMMASharedLayout(128, 16, 2), BLOCKED)
    assert torch.equal(out, x.transpose(1, 2))


@gluon.jit
def reshapes(x_ptr, out_ptr, shared: gl.constexpr, layout: gl.constexpr, flat: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float16, [2, 64, 64], shared)
    other = memory.reshape([2, 32, 128])
    line = memory.index(1).reshape([4096])
    other.index(0).store(gl.load(x_ptr + offsets_of(32, 128, 128, layout)))
    i = gl.arange(0, 4096, layout=flat)
    line.store(gl.load(x_ptr + 4096 + i))
    cube = memory.index(1).reshape([4, 16, 64]).permute((0, 2, 1))
    gl.static_assert(cube.shape[1] == 64)
    gl.store(out_ptr + offsets_of(64, 64, 64, layout), memory.index(0).load(layout))
    gl.store(out_ptr + 4096 + i, cube.reshape([4096]).load(flat))


@pytest.mark.parametrize(
    "shared", [gl.NVMMASharedLayout(128, 16, 2), gl.SwizzledSharedLayout(4, 2, 8, [0, 1])]
)
def test_reshapes(device, shared):
    x = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(3)).half().to(device)
    out = torch.empty_like(x)
    reshapes[(1,)](x, out, shared, BLOCKED, gl.BlockedLayout([4], [32], [4], [0]))
    assert torch.equal(out[0], x[0])
    assert torch.equal(out[1].flatten(), x[1].view(4, 16, 64).transpose(1, 2).flatten())


@gluon.jit
def reinterprets(x_ptr, out_ptr, layout: gl.constexpr, flat: gl.constexpr, shared: gl.constexpr):
    """Stores words and loads halves; then one allocation has two arrays in turn."""
    words = gl.allocate_shared_memory(gl.int32, [2, 1024], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    i = gl.arange(0, 1024, layout=flat)
    words.index(1).store(gl.load(x_ptr + i))
    halves = words.index(1).reinterpret(gl.float16, [32, 64], shared)
    gl.static_assert(halves.dtype == gl.float16)
    gl.store(out_ptr + offsets_of(32, 64, 64, layout), halves.load(layout))
    bytes = words._reinterpret(gl.int8, [4, 2048], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    bytes.index(3).store(gl.full([2048], 1, gl.int8, flat))
    last = words.reinterpret(shape=[4, 512]).index(3)
    gl.store(out_ptr + 2048 + gl.arange(0, 512, layout=flat), last.load(flat).to(gl.float16))


def test_reinterprets(device):
    halves = torch.randn(2048, generator=torch.Generator().manual_seed(4)).half()
    x = halves.view(torch.int32).to(device)
    out = torch.empty(2560, device=device, dtype=torch.float16)
    flat = gl.BlockedLayout([4], [32], [4], [0])
    shared = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    reinterprets[(1,)](x, out, BLOCKED, flat, shared)
    assert torch.equal(out[:2048].cpu(), halves)
    assert torch.equal(out[2048:].cpu(), torch.full((512,), 0x01010101).half())


TRANSPOSED = gl.NVMMASharedLayout(128, 16, 2, transposed=True)


@gluon.jit
def reinterprets_a_transpose(x_ptr, out_ptr, shared: gl.constexpr, other: gl.constexpr, layout: gl.constexpr):
    memory = gl.allocate_shared_memory(
        gl.float16, [32, 64], shared, gl.load(x_ptr + offsets_of(32, 64, 64, layout))
    )
    turned = memory.permute((1, 0))
    gl.static_assert(turned.layout == other)
    halves = turned.reinterpret(gl.int16)
    gl.static_assert(halves.shape[0] == 64)
    gl.store(out_ptr + offsets_of(64, 32, 32, layout), halves.load(layout))


@pytest.mark.parametrize(
    ("shared", "other"),
    [
        (gl.NVMMASharedLayout(128, 16, 2), TRANSPOSED),
        (TRANSPOSED, gl.NVMMASharedLayout(128, 16, 2)),
        (gl.SwizzledSharedLayout(8, 1, 4, [1, 0]), gl.SwizzledSharedLayout(8, 1, 4, [0, 1])),
    ],
)
def test_a_transpose_is_reinterpreted(device, shared, other):
    if shared == TRANSPOSED:
        shared, other = (gl.NVMMASharedLayout(64, 16, 2, transposed=each) for each in (True, False))
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(8)).half().to(device)
    out = torch.empty(64, 32, dtype=torch.int16, device=device)
    reinterprets_a_transpose[(1,)](x, out, shared, other, BLOCKED)
    assert torch.equal(out, x.T.contiguous().view(torch.int16))


@gluon.jit
def copies_to_few_rows(x_desc, out_ptr, layout: gl.constexpr, SLOT: gl.constexpr):
    """Copies four rows to a slot of a view; the swizzle repeats after eight rows."""
    memory = gl.allocate_shared_memory(gl.float16, [16, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    slots = memory.reinterpret(gl.float16, [4, 4, 64], x_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    tma.async_load(x_desc, [0, 0], bar, slots.index(SLOT))
    mbarrier.wait(bar, 0)
    gl.store(out_ptr + offsets_of(4, 64, 64, layout), slots.index(SLOT).load(layout))
    mbarrier.invalidate(bar)


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_copies_to_views_that_are_smaller_than_the_swizzle(device, slot):
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(9)).half().to(device)
    out = torch.empty_like(x)
    descriptor = TensorDescriptor.from_tensor(x, [4, 64], gl.NVMMASharedLayout(128, 16, 2))
    if slot == 1:
        with pytest.raises(tilewright.CompilationError, match="its slots are 512 bytes apart") as raised:
            copies_to_few_rows[(1,)](descriptor, out, BLOCKED, slot)
        assert raised.value.code == "TW0029"
    else:
        copies_to_few_rows[(1,)](descriptor, out, BLOCKED, slot)
        assert torch.equal(out, x)


@gluon.jit
def copies(x_ptr, out_ptr, layout: gl.constexpr, shared: gl.constexpr):
    """Asynchronous copies fill the parts of a tile, which is read as a whole, in a loop."""
    memory = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
    for turn in range(3):
        for part in gl.static_range(2):
            rows = memory.slice(32 * part, 32)
            offsets = turn * 4096 + part * 2048 + offsets_of(32, 64, 64, layout)
            async_copy.async_load(rows, x_ptr + offsets)
        async_copy.commit_group()
        async_copy.wait_group(0)
        gl.store(out_ptr + turn * 4096 + offsets_of(64, 64, 64, layout), memory.load(layout))


def test_copies_to_slices(device):
    x = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(5)).half().to(device)
    out = torch.empty_like(x)
    copies[(1,)](x, out, BLOCKED, gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    assert torch.equal(out, x)


@gluon.jit
def dot_of_slices(a_desc, b_desc, c_desc, layout: gl.constexpr):
    """C = A @ B in two dots of rows, whose operands and result are parts of tiles."""
    a = gl.allocate_shared_memory(gl.float16, [128, 64], a_desc.layout)
    b = gl.allocate_shared_memory(gl.float16, [64, 64], b_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, 2 * a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    for part in gl.static_range(2):
        tma.async_load(a_desc, [64 * part, 0], bar, a.slice(64 * part, 64))
    tma.async_load(b_desc, [0, 0], bar, b)
    mbarrier.wait(bar, 0)
    out = gl.allocate_shared_memory(gl.float32, [2, 64, 64], c_desc.layout)
    for part in gl.static_range(2):
        zeros = gl.zeros([64, 64], gl.float32, layout)
        acc = warpgroup_mma(a.slice(64 * part, 64), b, zeros)
        out.index(part).store(acc)
    fence_async_shared()
    for part in gl.static_range(2):
        tma.async_store(c_desc, [64 * part, 0], out.slice(part, 1).index(0))
    tma.store_wait(0)


def test_dots_of_slices(device):
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")
    generator = torch.Generator().manual_seed(6)
    a = torch.randint(-4, 5, (128, 64), generator=generator).half().to(device)
    b = torch.randint(-4, 5, (64, 64), generator=generator).half().to(device)
    c = torch.empty(128, 64, device=device)
    half, single = gl.NVMMASharedLayout(128, 16, 2), gl.NVMMASharedLayout(128, 32, 2)
    descriptors = [
        TensorDescriptor.from_tensor(tensor, [64, 64], layout)
        for tensor, layout in ((a, half), (b, half), (c, single))
    ]
    dot_of_slices[(1,)](*descriptors, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
    assert torch.equal(c, a.float() @ b.float())


@gluon.jit
def misuse(x_ptr, CASE: gl.constexpr, shared: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [2, 32, 32], shared)
    if CASE == "beyond":
        memory.index(0).slice(16, 32)
    elif CASE == "unaligned":
        memory.index(0).slice(8, 16)
    elif CASE == "array":
        memory.slice(0, 16, dim=1)
    elif CASE == "elements":
        memory.index(0).reshape([512])
    elif CASE == "powers":
        memory.index(0).reshape([1024, 1]).reshape([16, 64]).permute((1, 1))
    elif CASE == "larger":
        memory.index(1).reinterpret(gl.float32, [64, 32], shared)
    elif CASE == "length":
        memory.index(0).slice(0, x_ptr)


@pytest.mark.parametrize(
    ("case", "message", "code"),
    [
        ("beyond", "a part of the 32 elements of axis 0", "TW0016"),
        ("unaligned", "a power of two that divides the start", "TW0016"),
        ("array", "0 for shared memory for several tiles", "TW0016"),
        ("elements", "a shape with the elements of", "TW0016"),
        ("powers", "each axis from 0 to 1 once", "TW0016"),
        ("larger", "8192 bytes is no view of 4096 bytes", "TW0005"),
        ("length", "must be known at compile time", "TW0008"),
    ],
)
def test_misuse(device, case, message, code):
    x = torch.empty(1, device=device)
    with pytest.raises(tilewright.CompilationError, match=message) as raised:
        misuse[(1,)](x, case, gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    assert raised.value.code == code
