"""Small programs of Gluon: each has one property of the language, and its result or the message about it."""

from __future__ import annotations

import importlib.util
import re
import textwrap

import pytest
import torch
from gluon_programs import GLUON_IMPORTS
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright
from tilewright.experimental.gluon import language as gl

HEAD = """\
from tilewright.experimental.gluon.language.nvidia import hopper


@gluon.jit
def kernel(x_ptr, out_ptr, x_desc):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    matrix: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    wgmma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    i = gl.arange(0, 512, layout=layout)
    x = gl.load(x_ptr + i)
"""

DOT = """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.full([64, 64], 1.0, gl.float16, matrix))
        fence_async_shared()
        acc = gl.zeros([64, 64], gl.float32, wgmma)"""

RUNS = {
    "an mbarrier that is never initialized": (
        1.0,
        """
        bars = mbarrier.allocate_mbarrier(batch=2)
        mbarrier.init(bars.index(0), count=1)
        gl.store(out_ptr, 1.0)
        """,
    ),
    "an mbarrier that is initialized again": (
        1.0,
        """
        bar = mbarrier.allocate_mbarrier()
        for _ in range(2):
            mbarrier.init(bar, count=1)
            mbarrier.arrive(bar)
            mbarrier.wait(bar, 0)
            mbarrier.invalidate(bar)
        gl.store(out_ptr, 1.0)
        """,
    ),
    "an arrival and a wait with one predicate": (
        1.0,
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.arrive(bar, pred=gl.program_id(0) == 0)
        mbarrier.wait(bar, 0, pred=gl.program_id(0) == 0)
        gl.store(out_ptr, 1.0)
        """,
    ),
    "a descriptor with NaN outside of its tensor": (
        64.0,
        """
        own = tma.make_tensor_descriptor(
            x_ptr, [4, 16], [16, 1], [8, 16], gl.NVMMASharedLayout(64, 32, 2), padding_option="nan"
        )
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        smem = gl.allocate_shared_memory(own.dtype, own.block_shape, own.layout)
        mbarrier.expect(bar, own.nbytes_per_cta)
        tma.async_load(own, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)
        tile = smem.load(matrix)
        gl.store(out_ptr, gl.sum(gl.sum((tile != tile).to(gl.float32), axis=1), axis=0))
        mbarrier.invalidate(bar)
        """,
    ),
    "a slice of the columns of swizzled memory": (
        64.0,
        DOT
        + """
        for part in gl.static_range(4):
            acc = warpgroup_mma(a.slice(16 * part, 16, dim=1), a.slice(16 * part, 16), acc)
        gl.store(out_ptr, gl.max(gl.max(acc, axis=1), axis=0))
        """,
    ),
    "join": (1.0, "gl.store(out_ptr, gl.max(gl.max(gl.join(x, x) * 0 + 1, axis=1), axis=0))"),
    "use_acc at run time": (
        64.0,
        DOT
        + """
        for step in range(1):
            acc = warpgroup_mma(a, a, acc + 1, use_acc=step > 0)
        gl.store(out_ptr, gl.max(gl.max(acc, axis=1), axis=0))
        """,
    ),
    "shared memory among the deps of a wait": (
        64.0,
        DOT
        + """
        acc = warpgroup_mma(a, a, acc, is_async=True)
        acc, a = warpgroup_mma_wait(0, deps=[acc, a])
        gl.store(out_ptr, gl.max(gl.max(acc, axis=1), axis=0))
        """,
    ),
    "shared memory that a loop swaps": (
        1.0,
        """
        a = gl.allocate_shared_memory(gl.float32, [512], flat, x)
        b = gl.allocate_shared_memory(gl.float32, [512], flat, x)
        for _ in range(3):
            a, b = b, a
        gl.store(out_ptr, gl.max(a.load(layout), axis=0) - 510)
        """,
    ),
    "mma of fp8": (
        32.0,
        """
        a = gl.full([64, 32], 1.0, gl.float8e5, gl.DotOperandLayout(0, mma, 4))
        b = gl.full([32, 8], 1.0, gl.float8e5, gl.DotOperandLayout(1, mma, 4))
        gl.store(out_ptr, gl.max(gl.max(mma_v2(a, b, gl.zeros([64, 8], gl.float32, mma)), axis=1), axis=0))
        """,
    ),
    "mma of fp64": (
        32.0,
        """
        a = gl.full([64, 32], 1.0, gl.float64, gl.DotOperandLayout(0, mma, 1))
        b = gl.full([32, 8], 1.0, gl.float64, gl.DotOperandLayout(1, mma, 1))
        gl.store(out_ptr, gl.max(gl.max(mma_v2(a, b, gl.zeros([64, 8], gl.float64, mma)), axis=1), axis=0))
        """,
    ),
    "operands with a larger k_width": (
        32.0,
        """
        a = gl.full([64, 32], 1.0, gl.float16, gl.DotOperandLayout(0, mma, 4))
        b = gl.full([32, 8], 1.0, gl.float16, gl.DotOperandLayout(1, mma, 4))
        gl.store(out_ptr, gl.max(gl.max(mma_v2(a, b, gl.zeros([64, 8], gl.float32, mma)), axis=1), axis=0))
        """,
    ),
    "an mbarrier whose memory is int64": (
        1.0,
        """
        bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(bar, count=1)
        mbarrier.arrive(bar)
        mbarrier.wait(bar, 0)
        mbarrier.invalidate(bar)
        gl.store(out_ptr, 1.0)
        """,
    ),
    "memory of one int64": (
        7.0,
        """
        memory = gl.allocate_shared_memory(gl.int64, [2, 1], flat)
        for slot in range(2):
            memory.index(slot).store(gl.full([1], 3 + slot, gl.int64, layout))
        total = memory.index(0).load(layout) + memory.index(1).load(layout)
        gl.store(out_ptr, gl.sum(total, axis=0).to(gl.float32))
        """,
    ),
    "an mbarrier of a loop, in slots": (
        1.0,
        """
        bars = mbarrier.allocate_mbarrier(batch=2)
        for slot in range(2):
            mbarrier.init(bars.index(slot), count=2)
        for slot in range(2):
            mbarrier.arrive(bars.index(slot), count=2)
            mbarrier.wait(bars.index(slot), 0)
        for slot in range(2):
            mbarrier.invalidate(bars.index(slot))
        gl.store(out_ptr, 1.0)
        """,
    ),
    "one of two buffers, by a branch": (
        510.0,
        """
        a = gl.allocate_shared_memory(gl.float32, [512], flat, x)
        b = gl.allocate_shared_memory(gl.float32, [512], flat, x * 2)
        if gl.program_id(0) == 0:
            chosen = b
        else:
            chosen = a
        chosen.store(chosen.load(layout) - 512)
        gl.store(out_ptr, gl.max(b.load(layout), axis=0))
        """,
    ),
    "join of a slice": (
        1.0,
        """
        rows = gl.arange(0, 64, layout=gl.SliceLayout(1, matrix))
        pair = gl.join(rows, rows + 1)
        first, second = gl.split(pair)
        gl.store(out_ptr, gl.max(second - first, axis=0).to(gl.float32))
        """,
    ),
    "join and split of one layout": (
        511.0,
        """
        first, second = gl.split(gl.join(x, x))
        gl.store(out_ptr, gl.max(gl.convert_layout(first + second, layout) - x, axis=0))
        """,
    ),
    "a load of a slice of columns": (
        8.0,
        """
        columns = gl.arange(0, 64, layout=gl.SliceLayout(0, matrix))
        tile = gl.zeros([64, 64], gl.float16, matrix) + columns[None, :].to(gl.float16)
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], shared, tile)
        part = smem.slice(32, 32, dim=1).slice(8, 8, dim=1).load(matrix)
        gl.store(out_ptr, gl.sum(gl.max(part, axis=0) - gl.min(part, axis=0) + 1, axis=0).to(gl.float32))
        """,
    ),
    "a batch of dots by mma": (
        32.0,
        """
        batch: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [2, 2, 1], [1, 16, 8])
        a = gl.full([2, 32, 32], 1.0, gl.float16, gl.DotOperandLayout(0, batch, 2))
        b = gl.full([2, 32, 8], 1.0, gl.float16, gl.DotOperandLayout(1, batch, 2))
        acc = mma_v2(a, b, gl.zeros([2, 32, 8], gl.float32, batch))
        gl.store(out_ptr, gl.min(gl.min(gl.min(acc, axis=2), axis=1), axis=0))
        """,
    ),
    "a layout that the compiler chooses for accesses": (
        127.0,
        """
        offsets = gl.arange(0, 128, layout=gl.CoalescedLayout())
        gl.store(out_ptr + offsets, 127.0 - gl.load(x_ptr + offsets))
        """,
    ),
    "a cache modifier without a dot": (1.0, 'gl.store(out_ptr, gl.load(x_ptr + 1, cache_modifier="ca"))'),
}
"""By name: the first element of the result, and a kernel."""

REFUSED = {
    "a tile without a layout": (
        "TW0028",
        "layout",
        "gl.store(out_ptr + gl.arange(0, 4), gl.zeros([4], gl.float32))",
    ),
    "an array of several tiles without a layout": (
        "TW0028",
        "no tile of this store has a layout",
        "gl.store(out_ptr + gl.arange(0, 4), gl.load(x_ptr + gl.arange(0, 4)))",
    ),
    "memory of an mbarrier as a tile": (
        "TW0029",
        "the memory of an mbarrier is accessed as a tile",
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        gl.store(out_ptr, gl.sum(bar.load(layout), axis=0).to(gl.float32))
        """,
    ),
    "an mbarrier that is initialized twice": (
        "TW0029",
        "initializes %bar twice",
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.init(bar, count=1)
        """,
    ),
    "more arrivals than an mbarrier counts": (
        "TW0016",
        "from 1 to 1048575",
        "mbarrier.arrive(mbarrier.allocate_mbarrier(), count=1 << 20)",
    ),
    "more bytes than an mbarrier counts": (
        "TW0016",
        "at most 1048575",
        "mbarrier.expect(mbarrier.allocate_mbarrier(), 1 << 20)",
    ),
    "a swizzle of no axes": (
        "TW0028",
        "a rank of at least 1",
        "gl.allocate_shared_memory(gl.float16, [1], gl.NVMMASharedLayout(0, 16, 0))",
    ),
    "a swizzle of wide elements": (
        "TW0028",
        "8, 16, 32 or 64 bits",
        "gl.allocate_shared_memory(gl.float16, [64, 64], gl.NVMMASharedLayout(128, 512, 2))",
    ),
    "a cache policy of a tensor copy": (
        "TW0016",
        "`cache_policy` of `async_store` must be None",
        """
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
        tma.async_store(x_desc, [0, 0], smem, cache_policy=1)
        """,
    ),
    "an eviction policy of an asynchronous copy": (
        "TW0016",
        "`eviction_policy` of `async_load`",
        """
        smem = gl.allocate_shared_memory(gl.float32, [512], flat)
        async_copy.async_load(smem, x_ptr + i, eviction_policy="evict_first")
        """,
    ),
    "a volatile asynchronous copy": (
        "TW0016",
        "`volatile` of `async_load`",
        """
        smem = gl.allocate_shared_memory(gl.float32, [512], flat)
        async_copy.async_load(smem, x_ptr + i, volatile=True)
        """,
    ),
    "a cache modifier that no asynchronous copy has": (
        "TW0016",
        "`cache_modifier` of `async_load`",
        """
        smem = gl.allocate_shared_memory(gl.float32, [512], flat)
        async_copy.async_load(smem, x_ptr + i, cache_modifier=".cs")
        """,
    ),
    "a precision that wgmma lacks": (
        "TW0016",
        "`precision` of `warpgroup_mma`",
        """
        single: gl.constexpr = gl.NVMMASharedLayout(128, 32, 2)
        a = gl.allocate_shared_memory(gl.float32, [64, 64], single, gl.full([64, 64], 1.0, gl.float32, matrix))
        warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, wgmma), precision="ieee")
        """,
    ),
    "operands with different k_width": (
        "TW0028",
        r"`a` of `mma_v2` must have the layout DotOperandLayout\(0, .*, 2\)",
        """
        a = gl.full([64, 32], 1.0, gl.float16, gl.DotOperandLayout(0, mma, 4))
        b = gl.full([32, 8], 1.0, gl.float16, gl.DotOperandLayout(1, mma, 2))
        mma_v2(a, b, gl.zeros([64, 8], gl.float32, mma))
        """,
    ),
    "a store to a slice of columns": (
        "TW0028",
        "not contiguous in shared memory",
        """
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
        smem.slice(16, 16, dim=1).store(gl.full([64, 16], 1.0, gl.float16, matrix))
        """,
    ),
    "a wrong type of zeros names its parameter": ("TW0016", "`dtype`", "gl.zeros([4], 5, layout)"),
    "an extent that is no power of two": ("TW0\\d+", "power of two", "gl.arange(0, 6, layout=layout)"),
    "operand B of wgmma in registers": (
        "TW0028",
        "DotOperandLayout",
        "gl.full([64, 64], 1.0, gl.float16, gl.DotOperandLayout(1, wgmma, 2))",
    ),
    "a missing function": ("TW0117", "async_store is not available", "hopper.async_store(0)"),
    "a missing method": (
        "TW0117",
        "gather",
        "gl.allocate_shared_memory(gl.float32, [512], flat).gather(i, 0)",
    ),
    "a use after the end of an mbarrier": (
        "TW0029",
        "%bar",
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.invalidate(bar)
        mbarrier.arrive(bar)
        mbarrier.wait(bar, 0)
        """,
    ),
    "a wait for nothing has a line": (
        "TW0029",
        r"mistake.py:\d+",
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)
        """,
    ),
    "a dot without a wait has a line": (
        "TW0029",
        r"mistake.py:\d+",
        DOT + "\n        acc = warpgroup_mma(a, a, acc, is_async=True)\n        gl.store(out_ptr, 1.0)",
    ),
    "a missing fence has the name of Gluon": (
        "TW0029",
        r"fence_async_shared\(\)",
        """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.full([64, 64], 1.0, gl.float16, matrix))
        gl.store(out_ptr, gl.max(gl.max(warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, wgmma)), axis=1), axis=0))
        """,
    ),
    "an operand of wgmma in plain memory": (
        "TW0028",
        "NVMMASharedLayout",
        """
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
        a = gl.allocate_shared_memory(gl.float16, [64, 64], plain, gl.full([64, 64], 1.0, gl.float16, matrix))
        fence_async_shared()
        gl.store(out_ptr, gl.max(gl.max(warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, wgmma)), axis=1), axis=0))
        """,
    ),
    "a wrong cache modifier is not `volatile`": (
        "TW0016",
        "`cache_modifier`",
        'gl.load(x_ptr, cache_modifier="fast")',
    ),
}
"""By name: the code, a part of the message, and a kernel."""


def source_of(body):
    """Returns the program of a kernel."""
    return GLUON_IMPORTS + HEAD + textwrap.indent(textwrap.dedent(body), "    ") + "\n"


def launch(body, tmp_path):
    """Launches a kernel; returns its output and its handle."""
    path = tmp_path / "mistake.py"
    path.write_text(source_of(body))
    spec = importlib.util.spec_from_file_location("mistake", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, out = torch.arange(512.0), torch.full((512,), -1.0)
    descriptor = TensorDescriptor.from_tensor(
        torch.ones(64, 64).half(), [64, 64], gl.NVMMASharedLayout(128, 16, 2)
    )
    handle = module.kernel[(1,)](x, out, descriptor)
    return out, handle


@pytest.mark.parametrize("name", RUNS)
def test_runs(name, tmp_path):
    expected, body = RUNS[name]
    out, _ = launch(body, tmp_path)
    assert out[0].item() == expected


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name, tmp_path):
    code, message, body = REFUSED[name]
    with pytest.raises(tilewright.TritonError) as raised:
        launch(body, tmp_path)
    assert re.fullmatch(code, raised.value.code)
    assert re.search(message, str(raised.value))


PTX = {
    "many arrivals by one instruction": (
        r"mbarrier.arrive.shared::cta.b64 _, \[[^]]*\], 1000000;",
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=10**6)
        mbarrier.arrive(bar, count=10**6)
        mbarrier.wait(bar, 0)
        """,
    ),
    "a copy through L1": (
        r"cp.async.ca.shared.global \[[^]]*\], \[[^]]*\], 16",
        """
        smem = gl.allocate_shared_memory(gl.float32, [512], flat)
        async_copy.async_load(smem, x_ptr + i, cache_modifier=".ca")
        async_copy.commit_group()
        async_copy.wait_group(0)
        gl.store(out_ptr + i, smem.load(layout))
        """,
    ),
    "a copy that bypasses L1": (
        r"cp.async.cg.shared.global \[[^]]*\], \[[^]]*\], 16",
        """
        smem = gl.allocate_shared_memory(gl.float32, [512], flat)
        async_copy.async_load(smem, x_ptr + i, cache_modifier=".cg", eviction_policy="evict_normal")
        async_copy.commit_group()
        async_copy.wait_group(0)
        gl.store(out_ptr + i, smem.load(layout))
        """,
    ),
}
"""By name: an instruction, once in the PTX, and a kernel."""


@pytest.mark.parametrize("name", PTX)
def test_ptx(name, tmp_path):
    pattern, body = PTX[name]
    _, handle = launch(body, tmp_path)
    assert len(re.findall(pattern, handle.asm["ptx"])) == 1


def test_a_wait_for_writes_is_no_wait_for_reads(tmp_path):
    body = """
    smem = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.full([64, 64], 1.0, gl.float16, matrix))
    fence_async_shared()
    tma.async_store(x_desc, [0, 0], smem)
    tma.store_wait(0, read_only=False)
    """
    _, handle = launch(body, tmp_path)
    assert "cp.async.bulk.wait_group 0" in handle.asm["ptx"]


def test_the_table_of_a_wrong_layout():
    with pytest.raises(ValueError, match="powers of two"):
        gl.BlockedLayout([3], [32], [1], [0]).format_tensor_view([64])


def test_the_table_of_a_wrong_shape():
    with pytest.raises(ValueError, match="powers of two"):
        gl.BlockedLayout([1], [32], [1], [0]).format_tensor_view([6])
