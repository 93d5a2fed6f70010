"""Planted mistakes in Gluon kernels for Blackwell: the verifier or the simulator finds each."""

from __future__ import annotations

import pytest
import torch
from conftest import DEVICE
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
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


@gluon.jit(do_not_specialize=["phase"])
def kernel(out_ptr, phase, MISTAKE: gl.constexpr):
    matrix: gl.constexpr = gl.BlockedLayout([1, 8], [16, 2], [4, 1], [1, 0])
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    a = gl.allocate_shared_memory(gl.float16, [128, 16], gl.NVMMASharedLayout(32, 16, 2))
    b = gl.allocate_shared_memory(gl.float16, [16, 64], gl.NVMMASharedLayout(128, 16, 2))
    a.store(gl.full([128, 16], 1.0, gl.float16, matrix))
    b.store(gl.full([16, 64], 1.0, gl.float16, matrix))
    acc = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    if MISTAKE != "fence":
        fence_async_shared()
    tcgen05_mma(a, b, acc, use_acc=MISTAKE == "initial", mbarriers=[])
    if MISTAKE != "commit":
        tcgen05_commit(bar)
    if MISTAKE == "operand":
        a.store(gl.full([128, 16], 2.0, gl.float16, matrix))
    if MISTAKE != "wait":
        mbarrier.wait(bar, phase)
    layout: gl.constexpr = acc.get_reg_layout()
    gl.store(out_ptr, gl.max(gl.max(acc.load(layout), axis=1), axis=0))


def launch(mistake, phase=0):
    out = torch.zeros(1)
    kernel[(1,)](out, phase, mistake)
    return out.item()


def test_without_a_mistake():
    assert launch("none") == 16


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("fence", r"tcgen05_mma reads %a by the asynchronous proxy"),
        ("wait", r"tmem_load reads %acc while a tcgen05_mma writes it: add an mbarrier_wait for %bar"),
        ("commit", r"tmem_load reads %acc while a tcgen05_mma writes it: add a tcgen05_commit"),
        ("operand", r"local_store writes %a while a tcgen05_mma reads it"),
    ],
)
def test_mistakes_that_the_compiler_finds(mistake, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        launch(mistake)
    assert raised.value.code == "TW0029"


def test_a_wait_for_the_phase_before_is_a_race():
    """Parity 1 is that of the phase before the first one: the wait returns at once."""
    with pytest.raises(tilewright.TritonError, match="tensor memory") as raised:
        launch("none", phase=1)
    assert raised.value.code == "TW0207"


def test_an_accumulator_without_initial_values():
    """The dot reads cells that nothing has written."""
    with pytest.raises(
        tilewright.TritonError, match=r"uninitialized|nothing has written|not written"
    ) as raised:
        launch("initial")
    assert raised.value.code.startswith("TW02")
