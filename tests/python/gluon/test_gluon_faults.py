"""Programs of the official Gluon that this version gets wrong, and messages that do not help.

Each test is expected to fail. A fix lets it pass, and removes its case from here to the tests of the feature.
"""

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
    # `mbarrier_invalidate` is translated to nothing.
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
    "a cache modifier without a dot": (1.0, 'gl.store(out_ptr, gl.load(x_ptr + 1, cache_modifier="ca"))'),
}
"""By name: the first element of the result, and a kernel."""

REFUSED = {
    "a tile without a layout": (
        "TW0028",
        "layout",
        "gl.store(out_ptr + gl.arange(0, 4), gl.zeros([4], gl.float32))",
    ),
    "an extent that is no power of two": ("TW0\\d+", "power of two", "gl.arange(0, 6, layout=layout)"),
    "operand B of wgmma in registers": (
        "TW0028",
        "DotOperandLayout",
        "gl.full([64, 64], 1.0, gl.float16, gl.DotOperandLayout(1, wgmma, 2))",
    ),
    "a missing function": ("TW0117", "cluster.barrier is not available", "hopper.cluster.barrier()"),
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


def launch(body, tmp_path):
    """Launches a kernel; returns its output and its handle."""
    path = tmp_path / "mistake.py"
    path.write_text(GLUON_IMPORTS + HEAD + textwrap.indent(textwrap.dedent(body), "    ") + "\n")
    spec = importlib.util.spec_from_file_location("mistake", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, out = torch.arange(512.0), torch.full((512,), -1.0)
    descriptor = TensorDescriptor.from_tensor(
        torch.ones(64, 64).half(), [64, 64], gl.NVMMASharedLayout(128, 16, 2)
    )
    handle = module.kernel[(1,)](x, out, descriptor)
    return out, handle


@pytest.mark.xfail
@pytest.mark.parametrize("name", RUNS)
def test_runs(name, tmp_path):
    expected, body = RUNS[name]
    out, _ = launch(body, tmp_path)
    assert out[0].item() == expected


@pytest.mark.xfail
@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name, tmp_path):
    code, message, body = REFUSED[name]
    with pytest.raises(tilewright.TritonError) as raised:
        launch(body, tmp_path)
    assert re.fullmatch(code, raised.value.code)
    assert re.search(message, str(raised.value))


@pytest.mark.xfail
def test_a_wait_for_writes_is_no_wait_for_reads(tmp_path):
    body = """
    smem = gl.allocate_shared_memory(gl.float16, [64, 64], shared, gl.full([64, 64], 1.0, gl.float16, matrix))
    fence_async_shared()
    tma.async_store(x_desc, [0, 0], smem)
    tma.store_wait(0, read_only=False)
    """
    _, handle = launch(body, tmp_path)
    assert "cp.async.bulk.wait_group 0" in handle.asm["ptx"]


@pytest.mark.xfail
def test_the_table_of_a_wrong_layout():
    with pytest.raises(ValueError, match="powers of two"):
        gl.BlockedLayout([3], [32], [1], [0]).format_tensor_view([64])


@pytest.mark.xfail
def test_the_table_of_a_wrong_shape():
    with pytest.raises(ValueError, match="powers of two"):
        gl.BlockedLayout([1], [32], [1], [0]).format_tensor_view([6])
