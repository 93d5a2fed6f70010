"""Planted mistakes in Gluon kernels: the compiler or the simulator finds each, and names the line that it is in."""

from __future__ import annotations

import importlib.util
import re
import textwrap

import pytest
import torch
from conftest import ROOT
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright
from tilewright.experimental.gluon import language as gl

PRELUDE = """\
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl
from tilewright.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from tilewright.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait,
)
LAYOUT = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
MATRIX = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
FLAT = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))
SHARED = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2))
WGMMA = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
MMA = gl.constexpr(gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8]))


@gluon.jit
def largest(tile):
    return gl.max(gl.max(tile.to(gl.float32), axis=1), axis=0)


@gluon.jit
def ones():
    return gl.full([64, 64], 1.0, gl.float16, MATRIX)


@gluon.jit
def kernel(x_ptr, out_ptr, x_desc, out_desc):
"""

BARRIER = """
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED)
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)"""

CASES = {
    "wgmma without a fence": (
        "TW0029",
        r"wgmma reads %a by the asynchronous proxy",
        """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        acc = warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, WGMMA))  # here
        gl.store(out_ptr, largest(acc))
        """,
    ),
    "a store in place without a fence": (
        "TW0029",
        r"tensor_store reads %smem by the asynchronous proxy",
        BARRIER
        + """
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)
        smem.store(smem.load(MATRIX) * 2)
        tma.async_store(out_desc, [0, 0], smem)  # here
        tma.store_wait(0)
        """,
    ),
    "the same phase in each turn": (
        "TW0029",
        r"waits for a phase of parity 0 of %bar",
        BARRIER
        + """
        total = gl.zeros([64, 64], gl.float32, MATRIX)
        for turn in range(3):
            mbarrier.expect(bar, x_desc.nbytes_per_cta)
            tma.async_load(x_desc, [0, 0], bar, smem)
            mbarrier.wait(bar, 0)  # here
            total += smem.load(MATRIX)
        gl.store(out_ptr, largest(total))
        mbarrier.invalidate(bar)
        """,
    ),
    "the phase after the next": (
        "TW0029",
        r"waits for a phase of parity 1 of %bar, .* nothing completes it",
        BARRIER
        + """
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 1)  # here
        gl.store(out_ptr, largest(smem.load(MATRIX)))
        mbarrier.invalidate(bar)
        """,
    ),
    # The parity of the turn, in place of that of the use of the slot: a wait may pass at once.
    "the phase of the turn": (
        "TW0207",
        r"race: writes shared memory .* which warp \d read without synchronization",
        """
        slots = gl.allocate_shared_memory(gl.float16, [2, 64, 64], SHARED)
        bars = mbarrier.allocate_mbarrier(batch=2)
        for i in gl.static_range(2):
            mbarrier.init(bars.index(i), count=1)
        total = gl.zeros([64, 64], gl.float32, MATRIX)
        for turn in range(4):
            slot = turn % 2
            mbarrier.expect(bars.index(slot), x_desc.nbytes_per_cta)
            tma.async_load(x_desc, [0, 0], bars.index(slot), slots.index(slot))  # here
            mbarrier.wait(bars.index(slot), turn & 1)
            total += slots.index(slot).load(MATRIX)
        gl.store(out_ptr, largest(total))
        for i in gl.static_range(2):
            mbarrier.invalidate(bars.index(i))
        """,
    ),
    "a phase that ends before all warps have seen it": (
        "TW0207",
        r"deadlock: every warp waits for another one",
        BARRIER
        + """
        mbarrier.wait(bar, 1)
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)
        gl.store(out_ptr, largest(smem.load(MATRIX)))
        mbarrier.invalidate(bar)
        """,
    ),
    "a read before the wait": (
        "TW0029",
        r"local_load uses %smem while it is being copied to: add an mbarrier_wait",
        BARRIER
        + """
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        tile = smem.load(MATRIX)  # here
        mbarrier.wait(bar, 0)
        gl.store(out_ptr, largest(tile))
        """,
    ),
    "a dot before the wait": (
        "TW0029",
        r"wgmma uses %smem while it is being copied to: add an mbarrier_wait",
        BARRIER
        + """
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        acc = warpgroup_mma(smem, smem, gl.zeros([64, 64], gl.float32, WGMMA))  # here
        mbarrier.wait(bar, 0)
        gl.store(out_ptr, largest(acc))
        """,
    ),
    "no wait at all": (
        "TW0207",
        r"exits while an asynchronous operation may access its shared memory",
        BARRIER
        + """
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        gl.store(out_ptr, 1.0)
        """,
    ),
    "no expected bytes": (
        "TW0029",
        r"mbarrier_wait waits for %bar, but nothing arrives there",
        BARRIER
        + """
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)
        gl.store(out_ptr, largest(smem.load(MATRIX)))
        mbarrier.invalidate(bar)
        """,
    ),
    "too few expected bytes": (
        "TW0207",
        r"waits? in line \d+ for phase 0 of `bar`, which lacks 0 of 1 arrivals, and got \d+ bytes more than it expects",
        BARRIER
        + """
        mbarrier.expect(bar, x_desc.nbytes_per_cta // 2)
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)  # here
        gl.store(out_ptr, largest(smem.load(MATRIX)))
        mbarrier.invalidate(bar)
        """,
    ),
    "too many expected bytes": (
        "TW0207",
        r"waits? in line \d+ for phase 0 of `bar`, which lacks \d+ bytes: ",
        BARRIER
        + """
        mbarrier.expect(bar, 2 * x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)  # here
        gl.store(out_ptr, largest(smem.load(MATRIX)))
        mbarrier.invalidate(bar)
        """,
    ),
    "too few arrivals": (
        "TW0029",
        r"with 1 of 2 arrivals: nothing completes it",
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=2)
        mbarrier.arrive(bar)
        mbarrier.wait(bar, 0)  # here
        """,
    ),
    "an arrival that may not happen": (
        "TW0029",
        r"with 0 of 1 arrivals: nothing completes it",
        """
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        if gl.load(x_ptr) > 0:
            mbarrier.arrive(bar)
        mbarrier.wait(bar, 0)  # here
        """,
    ),
    "two copies to one slot": (
        "TW0029",
        r"tensor_load uses %smem while it is being copied to",
        BARRIER
        + """
        for turn in range(2):
            mbarrier.expect(bar, x_desc.nbytes_per_cta)
            tma.async_load(x_desc, [0, 0], bar, smem)  # here
        mbarrier.wait(bar, 0)
        gl.store(out_ptr, largest(smem.load(MATRIX)))
        """,
    ),
    "a copy to the operand of a dot in flight": (
        "TW0029",
        r"tensor_load .*%smem.*dot",
        BARRIER
        + """
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)
        mbarrier.wait(bar, 0)
        acc = warpgroup_mma(smem, smem, gl.zeros([64, 64], gl.float32, WGMMA), is_async=True)
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem)  # here
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.wait(bar, 1)
        gl.store(out_ptr, largest(acc))
        """,
    ),
    "a store to the operand of a dot in flight": (
        "TW0029",
        r"local_store writes %a, which the dot %acc may still read",
        """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        acc = warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, WGMMA), is_async=True)
        a.store(ones())  # here
        acc = warpgroup_mma_wait(0, deps=[acc])
        gl.store(out_ptr, largest(acc))
        """,
    ),
    "a dot without a wait": (
        "TW0029",
        r"%acc is not consumed on every path",
        """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        acc = warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, WGMMA), is_async=True)
        gl.store(out_ptr, 1.0)
        """,
    ),
    "memory that a tensor copy still reads": (
        "TW0029",
        r"local_store uses %smem while a tensor_store reads it",
        """
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        tma.async_store(out_desc, [0, 0], smem)
        smem.store(ones())  # here
        fence_async_shared()
        tma.async_store(out_desc, [0, 0], smem)
        tma.store_wait(0)
        """,
    ),
    "a wait that leaves one store too many": (
        "TW0029",
        r"local_store .* while a tensor_store reads it: .* at most 1 pending",
        """
        slots = gl.allocate_shared_memory(gl.float16, [2, 64, 64], SHARED)
        for turn in range(4):
            tma.store_wait(2)
            slots.index(turn % 2).store(ones())  # here
            fence_async_shared()
            tma.async_store(out_desc, [0, 0], slots.index(turn % 2))
        tma.store_wait(0)
        """,
    ),
    "no wait after the last store": (
        "TW0029",
        r"dealloc uses %smem while a tensor_store reads it",
        """
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        tma.async_store(out_desc, [0, 0], smem)  # here
        """,
    ),
    "a wait that leaves one group too many": (
        "TW0029",
        r"local_load .* while it is being copied to: add a wait_group that leaves at most 1 pending",
        """
        slots = gl.allocate_shared_memory(gl.float32, [2, 128], FLAT)
        i = gl.arange(0, 128, layout=LAYOUT)
        total = gl.zeros([128], gl.float32, LAYOUT)
        async_copy.async_load(slots.index(0), x_ptr + i)
        async_copy.commit_group()
        for turn in range(4):
            async_copy.async_load(slots.index((turn + 1) % 2), x_ptr + i)
            async_copy.commit_group()
            async_copy.wait_group(2)
            total += slots.index(turn % 2).load(LAYOUT)  # here
        async_copy.wait_group(0)
        gl.store(out_ptr + i, total)
        """,
    ),
    "a slot that is filled before its read": (
        "TW0029",
        r"local_load .* while it is being copied to",
        """
        slots = gl.allocate_shared_memory(gl.float32, [2, 128], FLAT)
        i = gl.arange(0, 128, layout=LAYOUT)
        total = gl.zeros([128], gl.float32, LAYOUT)
        for turn in gl.static_range(2):
            async_copy.async_load(slots.index(turn), x_ptr + i)
            async_copy.commit_group()
        for turn in range(4):
            async_copy.wait_group(1)
            async_copy.async_load(slots.index(turn % 2), x_ptr + i)
            async_copy.commit_group()
            total += slots.index(turn % 2).load(LAYOUT)  # here
        async_copy.wait_group(0)
        gl.store(out_ptr + i, total)
        """,
    ),
    "a copy without a group": (
        "TW0029",
        r"local_load uses %smem while it is being copied to: add commit_group and wait_group",
        """
        smem = gl.allocate_shared_memory(gl.float32, [128], FLAT)
        i = gl.arange(0, 128, layout=LAYOUT)
        async_copy.async_load(smem, x_ptr + i)
        async_copy.wait_group(0)
        gl.store(out_ptr + i, smem.load(LAYOUT))  # here
        """,
    ),
    "a copy that nothing awaits": (
        "TW0029",
        r"dealloc frees %smem while it is being copied to",
        """
        smem = gl.allocate_shared_memory(gl.float32, [128], FLAT)
        async_copy.async_load(smem, x_ptr + gl.arange(0, 128, layout=LAYOUT))  # here
        async_copy.commit_group()
        """,
    ),
    "memory that nothing wrote": (
        "TW0207",
        r"reads uninitialized shared memory",
        """
        smem = gl.allocate_shared_memory(gl.float32, [128], FLAT)
        gl.store(out_ptr + gl.arange(0, 128, layout=LAYOUT), smem.load(LAYOUT))  # here
        """,
    ),
    "pointers beyond the tensor": (
        "TW0201",
        r"load out of bounds of `x_ptr`",
        """
        smem = gl.allocate_shared_memory(gl.float32, [128], FLAT)
        i = gl.arange(0, 128, layout=LAYOUT)
        async_copy.async_load(smem, x_ptr + 64 + i)  # here
        async_copy.commit_group()
        async_copy.wait_group(0)
        gl.store(out_ptr + i, smem.load(LAYOUT))
        """,
    ),
    "a tile of wgmma as the accumulator of mma": (
        "TW0028",
        r"`acc` of `mma_v2` must have a layout NVMMADistributedLayout\(\[2, 0\]",
        """
        a = gl.full([64, 16], 1.0, gl.float16, gl.DotOperandLayout(0, MMA, 2))
        b = gl.full([16, 64], 1.0, gl.float16, gl.DotOperandLayout(1, MMA, 2))
        acc = mma_v2(a, b, gl.zeros([64, 64], gl.float32, WGMMA))  # here
        """,
    ),
    "a tile of mma as the accumulator of wgmma": (
        "TW0028",
        r"`acc` of `warpgroup_mma` must have a layout NVMMADistributedLayout\(\[3, 0\]",
        """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        acc = warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, MMA))  # here
        """,
    ),
    "a left operand in a layout of memory accesses": (
        "TW0028",
        r"`a` of `warpgroup_mma` must have the layout DotOperandLayout\(0",
        """
        b = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        acc = warpgroup_mma(ones(), b, gl.zeros([64, 64], gl.float32, WGMMA))  # here
        """,
    ),
    "the probabilities in the layout of the scores": (
        "TW0028",
        r"`a` of `warpgroup_mma` must have the layout DotOperandLayout\(0",
        """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        scores = warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, WGMMA))
        acc = warpgroup_mma(scores.to(gl.float16), a, gl.zeros([64, 64], gl.float32, WGMMA))  # here
        """,
    ),
    "operands in the wrong order": (
        "TW0028",
        r"`a` of `mma_v2` must have the layout DotOperandLayout\(0",
        """
        a = gl.full([64, 16], 1.0, gl.float16, gl.DotOperandLayout(1, MMA, 2))
        b = gl.full([16, 8], 1.0, gl.float16, gl.DotOperandLayout(0, MMA, 2))
        acc = mma_v2(a, b, gl.zeros([64, 8], gl.float32, MMA))  # here
        """,
    ),
    "the k_width of another type": (
        "TW0028",
        r"must have the layout DotOperandLayout\(0, .*, 2\)",
        """
        a = gl.full([64, 16], 1.0, gl.float16, gl.DotOperandLayout(0, MMA, 4))
        b = gl.full([16, 8], 1.0, gl.float16, gl.DotOperandLayout(1, MMA, 2))
        acc = mma_v2(a, b, gl.zeros([64, 8], gl.float32, MMA))  # here
        """,
    ),
    "too few rows for the warps": (
        "TW0016",
        r"expected multiples of \[64, 8, 16\]",
        """
        a = gl.full([32, 16], 1.0, gl.float16, gl.DotOperandLayout(0, MMA, 2))
        b = gl.full([16, 8], 1.0, gl.float16, gl.DotOperandLayout(1, MMA, 2))
        acc = mma_v2(a, b, gl.zeros([32, 8], gl.float32, MMA))  # here
        """,
    ),
    "a row in the layout of a column": (
        "TW0028",
        r"a new axis 0 needs a tile whose layout is a SliceLayout\(0",
        """
        tile = gl.zeros([64, 64], gl.float32, MATRIX)
        y = tile - gl.max(tile, axis=1)[None, :]  # here
        """,
    ),
    "an accumulator that changes in a loop": (
        "TW0011",
        r"'acc' changes its type",
        """
        a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED, ones())
        fence_async_shared()
        acc = gl.zeros([64, 64], gl.float32, WGMMA)
        for _ in range(3):
            acc = warpgroup_mma(a, a, acc, is_async=True)  # here
        gl.store(out_ptr, largest(warpgroup_mma_wait(0, deps=[acc])))
        """,
    ),
}
"""By name: the code, the message, and a kernel. `here` marks the line that the message names."""


FIXES = {
    "wgmma without a fence": (
        "acc = warpgroup_mma(a",
        "fence_async_shared()\n        acc = warpgroup_mma(a",
    ),
    "a store in place without a fence": (
        "tma.async_store(",
        "fence_async_shared()\n        tma.async_store(",
    ),
    "the same phase in each turn": ("mbarrier.wait(bar, 0)", "mbarrier.wait(bar, turn & 1)"),
    "the phase after the next": ("mbarrier.wait(bar, 1)", "mbarrier.wait(bar, 0)"),
    "the phase of the turn": ("turn & 1", "turn // 2 & 1"),
    "a phase that ends before all warps have seen it": (
        "mbarrier.wait(bar, 1)",
        "mbarrier.wait(bar, 1)\n        gl.barrier()",
    ),
    "no expected bytes": (
        "tma.async_load(",
        "mbarrier.expect(bar, x_desc.nbytes_per_cta)\n        tma.async_load(",
    ),
    "too few expected bytes": ("x_desc.nbytes_per_cta // 2", "x_desc.nbytes_per_cta"),
    "too many expected bytes": ("2 * x_desc.nbytes_per_cta", "x_desc.nbytes_per_cta"),
    "too few arrivals": ("mbarrier.arrive(bar)", "mbarrier.arrive(bar, count=2)"),
    "an arrival that may not happen": ("if gl.load(x_ptr) > 0:", "if True:"),
    "a dot without a wait": (
        "gl.store(out_ptr, 1.0)",
        "gl.store(out_ptr, largest(warpgroup_mma_wait(0, deps=[acc])))",
    ),
    "memory that a tensor copy still reads": (
        "smem.store(ones())",
        "tma.store_wait(0)\n        smem.store(ones())",
    ),
    "a wait that leaves one store too many": ("tma.store_wait(2)", "tma.store_wait(1)"),
    "no wait after the last store": ("smem)  # here", "smem)\n        tma.store_wait(0)"),
    "a wait that leaves one group too many": ("async_copy.wait_group(2)", "async_copy.wait_group(1)"),
    "a copy without a group": (
        "async_copy.wait_group(0)",
        "async_copy.commit_group()\n        async_copy.wait_group(0)",
    ),
    "a copy that nothing awaits": (
        "async_copy.commit_group()",
        "async_copy.commit_group()\n        async_copy.wait_group(0)",
    ),
    "pointers beyond the tensor": ("x_ptr + 64 + i", "x_ptr + i"),
    "an accumulator that changes in a loop": (
        "acc = gl.zeros([64, 64], gl.float32, WGMMA)",
        "acc = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, WGMMA))",
    ),
}
"""By the name of a mistake: the text that is wrong, and the text with which the kernel runs."""


def launch(source, device, tmp_path):
    """Launches the kernel of a program."""
    path = tmp_path / "mistake.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("mistake", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, out = torch.ones(128, device=device), torch.zeros(128, device=device)
    layout = gl.NVMMASharedLayout(128, 16, 2)
    descriptors = [
        TensorDescriptor.from_tensor(torch.ones(64, 64, device=device).half(), [64, 64], layout)
        for _ in range(2)
    ]
    module.kernel[(1,)](x, out, *descriptors)


@pytest.fixture(autouse=True)
def hopper():
    """Skips a test of what sm_90 has and the device lacks."""
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")


@pytest.mark.parametrize("name", CASES)
def test_mistake(name, device, tmp_path):
    code, expected, body = CASES[name]
    if device == "cuda" and code.startswith("TW02"):
        pytest.skip("the simulator finds it")
    source = PRELUDE + textwrap.indent(textwrap.dedent(body), "    ")
    with pytest.raises(tilewright.TritonError) as raised:
        launch(source, device, tmp_path)
    assert raised.value.code == code, raised.value
    assert re.search(expected, str(raised.value)), raised.value
    for number, line in enumerate(source.splitlines(), 1):
        if line.endswith("# here"):
            assert f"mistake.py:{number}:" in str(raised.value), raised.value


@pytest.mark.parametrize("name", FIXES)
def test_kernel_without_the_mistake(name, device, tmp_path):
    wrong, right = FIXES[name]
    body = CASES[name][2]
    assert wrong in body
    launch(PRELUDE + textwrap.indent(textwrap.dedent(body.replace(wrong, right)), "    "), device, tmp_path)


RELEASE = "        mbarrier.arrive(empty.index(slot))\n"
DONE = "        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))\n"

PARTITIONS = {
    # Both sides are named: who waits, and where the arrivals would come from.
    "the producer begins with the wrong parity": (
        ("(step // STAGES & 1) ^ 1)", "step // STAGES & 1)"),
        (
            "TW0207",
            r"deadlock: every warp waits for another one[\s\S]*"
            r"warps 0 to 3 \(default\) wait in line 58 for phase 0 of `full\[0\]`, which lacks 1 of 1 arrivals: "
            r"mbarrier_expect in line 44 \(worker 1\), tensor_load in line 45 \(worker 1\) and tensor_load in line 46 "
            r"\(worker 1\) arrive there[\s\S]*"
            r"warp 4 \(worker 1\) waits in line 43 for phase 0 of `empty\[0\]`, which lacks 1 of 1 arrivals: "
            r"only mbarrier_arrive_times in line 61 \(default\) arrives there",
        ),
    ),
    "the consumer begins with the wrong parity": (
        ("full.index(slot), step // STAGES & 1)", "full.index(slot), (step // STAGES & 1) ^ 1)"),
        ("TW0207", "deadlock: every warp waits for another one"),
    ),
    "the consumer releases no slot": (
        (RELEASE, ""),
        ("TW0029", "tensor_load uses .* while it is being copied to"),
    ),
    "the producer does not wait": (
        ("        mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)\n", ""),
        ("TW0029", "tensor_load uses .* while it is being copied to"),
    ),
    "the consumer does not wait": (
        ("        mbarrier.wait(full.index(slot), step // STAGES & 1)\n", ""),
        ("TW0029", "arrives at %full after all 1 arrivals of the phase"),
    ),
    "the consumer releases a slot before its dot is done": (
        (DONE + RELEASE, RELEASE + DONE),
        ("TW0207", "race: writes shared memory .* which an asynchronous operation read"),
    ),
}
"""By name: the text of the example of partitions that is wrong, the text in place of it, the code and the message."""


@pytest.mark.parametrize("name", PARTITIONS)
def test_mistake_in_a_partition(name, device, tmp_path):
    (right, wrong), (code, message) = PARTITIONS[name]
    if device == "cuda" and code.startswith("TW02"):
        pytest.skip("the simulator finds it")
    text = (ROOT / "examples" / "57_gluon_warp_specialize.py").read_text()
    assert text.count(right) == 1
    path = tmp_path / "partitions.py"
    path.write_text(text.replace(right, wrong))
    spec = importlib.util.spec_from_file_location("partitions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        module.main()
    assert raised.value.code == code


CLUSTERS = {
    "a copy to both blocks before the other one has read": (
        "59_gluon_clusters",
        ("        mbarrier.wait(bar, (ahead // STAGES & 1) ^ 1, pred=step > 0)\n", ""),
        ("TW0207", r"race: writes shared memory .* read"),
    ),
    "both blocks wait for different arrivals": (
        "59_gluon_clusters",
        ("mbarrier.init(empty.index(stage), count=1)", "mbarrier.init(empty.index(stage), count=2)"),
        ("TW0207", "deadlock"),
    ),
    "a barrier of each block in place of one for both": (
        "59_gluon_clusters",
        (
            "empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], shared)",
            "empty = mbarrier.allocate_mbarrier(batch=STAGES)",
        ),
        ("TW0207", r"race: writes shared memory .* read"),
    ),
    "a multicast to blocks that need other parts": (
        "59_gluon_clusters",
        ("rows, all_of_it = [[1, 0]], [[0, 0]]", "rows, all_of_it = [[1, 0]], [[1, 0]]"),
        ("TW0028", "the cga_layout of `b` of `warpgroup_mma` does not fit the accumulator's"),
    ),
    "a layout of one block": (
        "59_gluon_clusters",
        ("[16, BLOCK_N, 16], cga_layout=[[1, 0]]", "[16, BLOCK_N, 16]"),
        ("TW0028", "is for 1 block, but the kernel has 2 blocks"),
    ),
    "another number of blocks at the launch": (
        "59_gluon_clusters",
        ("STAGES, num_ctas=2)", "STAGES, num_ctas=4)"),
        ("TW0028", "is for 2 blocks, but the kernel has 4 blocks"),
    ),
    "a box that begins after the first pixel": (
        "58_gluon_convolution",
        ("pixel_box_lower_corner=[-padding, -padding]", "pixel_box_lower_corner=[padding, padding]"),
        ("TW0207", "begins at -1 along dimension 1, outside of its bounding box from 1 to"),
    ),
    "an offset for another axis": (
        "58_gluon_convolution",
        ("offsets = [(tap // S).to(gl.int16), (tap % S).to(gl.int16)]", "offsets = [(tap % S).to(gl.int16)]"),
        ("TW0016", "a list of 2 offsets"),
    ),
    "memory for other pixels": (
        "58_gluon_convolution",
        ("[STAGES, PIXELS, CHANNELS], x_desc.layout", "[STAGES, 2 * PIXELS, CHANNELS], x_desc.layout"),
        ("TW0005", "do not fit shared memory"),
    ),
}
"""By name: an example, its text that is wrong, the text in place of it, the code and the message."""


@pytest.mark.parametrize("name", CLUSTERS)
def test_mistake_in_a_cluster_or_a_window(name, device, tmp_path):
    example, (right, wrong), (code, message) = CLUSTERS[name]
    if device == "cuda" and code.startswith("TW02"):
        pytest.skip("the simulator finds it")
    text = (ROOT / "examples" / f"{example}.py").read_text()
    assert text.count(right) == 1
    path = tmp_path / "cluster.py"
    path.write_text(text.replace(right, wrong))
    spec = importlib.util.spec_from_file_location("cluster", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        module.main()
    assert raised.value.code == code


TWICE = """\
import torch
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl
from tilewright.experimental.gluon.language.nvidia.hopper import cluster, mbarrier, tma

REGISTERS = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0], cga_layout=[[0, 0]]))


@gluon.jit
def kernel(x_desc, out_ptr):
    smem = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    total = gl.zeros([64, 64], gl.float32, REGISTERS)
    for turn in range(2):
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [0, 0], bar, smem, multicast=True)
        mbarrier.wait(bar, turn)
        total += smem.load(REGISTERS).to(gl.float32)
        cluster.barrier()
    gl.store(out_ptr, gl.sum(gl.sum(total, axis=1), axis=0))
"""


def test_a_missing_barrier_of_the_cluster(device, tmp_path):
    """Block 1 may still read its memory when block 0 copies to it again."""
    layout = gl.NVMMASharedLayout(128, 16, 2, cga_layout=[[0, 0]])
    x = TensorDescriptor.from_tensor(torch.ones(64, 64, dtype=torch.float16, device=device), [64, 64], layout)
    for number, text in enumerate((TWICE, TWICE.replace("        cluster.barrier()\n", ""))):
        path = tmp_path / f"twice_{number}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(f"twice_{number}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        out = torch.zeros(1, device=device)
        if number == 0:
            module.kernel[(1,)](x, out, num_ctas=2)
            assert out.item() == 8192
        elif device != "cuda":
            with pytest.raises(tilewright.TritonError, match=r"race: writes shared memory .* read") as raised:
                module.kernel[(1,)](x, out, num_ctas=2)
            assert raised.value.code == "TW0207"
