"""The programs of docs/gluon.md run and compile; `test_sessions.py` runs its commands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs/gluon.md"


def test_the_programs_of_the_page_run_together(run, script):
    """The later programs of the page use the imports and the tensors of the first one."""
    programs = re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text(), re.S)
    assert len(programs) > 1
    done = run("-m", "tilewright", "run", script("".join(programs)))
    assert done.code == 0, done


def test_the_first_program_prints_the_shown_table(run, script):
    text = PAGE.read_text()
    program = re.search(r"```python file=blocks.py\n(.*?)```", text, re.S)[1]
    shown = re.search(r"```console\n\$ tilewright run blocks.py\n(.*?)```", text, re.S)[1]
    assert run("-m", "tilewright", "run", script(program)).out == shown


def test_the_kernels_of_the_page_compile_without_python(run, script, tmp_path):
    program = script("".join(re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text(), re.S)))
    kernel = f"{program}::sum_of_blocks"
    arguments = ("--signature", "*fp32:16,*fp32:16,i32,512,3", "--target", "sm_90")
    done = run("-m", "tilewright", "compile", kernel, *arguments, "--emit", "gpu")
    assert done.code == 0, done.err
    assert "explicit" in done.out.splitlines()[0]
    assert "copy_async" in done.out
    page = tmp_path / "page.html"
    done = run("-m", "tilewright", "explain", kernel, *arguments, "-o", str(page))
    assert done.code == 0, done.err
    assert "copy_async" in page.read_text()
    partitions = ("--signature", "*fp32:16,*fp32:16,i32,512", "--target", "sm_90", "--emit", "ptx")
    done = run("-m", "tilewright", "compile", f"{program}::sum_in_partitions", *partitions)
    assert done.code == 0, done.err
    assert "setmaxnreg" in done.out


LAYOUTS = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

GLOBAL: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 4], [2, 16], [4, 1], order=[1, 0]))


@gluon.jit
def copy(x_desc, out_ptr, layout: gl.constexpr, BM: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    memory = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    gl.static_assert(memory.layout == gl.NVMMASharedLayout.get_default_for([BM, 64], gl.float16))
    gl.static_assert(memory.layout != gl.NVMMASharedLayout(64, 16))
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    tma.async_load(x_desc, [0, 0], bar, memory)
    mbarrier.wait(bar, 0)
    other: gl.constexpr = gl.SliceLayout(dim=1, parent=GLOBAL)
    gl.static_assert(other.parent.order[0] == 1 and other.rank == 1)
    i = gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    gl.store(out_ptr + i[:, None] * 64 + j[None, :], memory.load(layout))


if __name__ == "__main__":
    x = torch.randn(64, 64).half()
    out = torch.empty_like(x)
    descriptor = TensorDescriptor.from_tensor(x, [64, 64], gl.NVMMASharedLayout(128, 16, 2))
    copy[(1,)](descriptor, out, gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]), 64)
    assert torch.equal(x, out)
"""


def test_signatures_have_layouts(run, script):
    """The code is the same for layouts that the command states and for those of a launch."""
    program = script(LAYOUTS)
    kernel = f"{program}::copy"
    target = ("--target", "sm_90", "--emit", "ptx")
    signature = (
        "tensordesc<fp16[64, 64], NVMMASharedLayout(128, 16, 2)>,*fp16:16,"
        "layout=BlockedLayout([1, 8], [4, 8], warps_per_cta=[4, 1], order=[1, 0]),BM=64"
    )
    stated = run("-m", "tilewright", "compile", kernel, "--signature", signature, "--tensor-maps", *target)
    assert stated.code == 0, stated.err
    launched = run("-m", "tilewright", "compile", kernel, "--run", program, *target)
    assert launched.code == 0, launched.err
    assert "cp.async.bulk.tensor" in stated.out
    body = [line for line in launched.out.splitlines() if ".file" not in line]
    assert [line for line in stated.out.splitlines() if ".file" not in line] == body


def test_wrong_layouts_of_a_signature_are_errors(run, script):
    kernel = f"{script(LAYOUTS)}::copy"
    for layout in ("BlockedLayout([1, 8])", "BlockLayout([1], [32], [4], [0])"):
        signature = f"tensordesc<fp16[64, 64], NVMMASharedLayout(128, 16, 2)>,*fp16:16,{layout},64"
        done = run("-m", "tilewright", "compile", kernel, "--signature", signature, "--target", "sm_90")
        assert done.code == 1
        assert "TW0105" in done.err
