"""Queries of a kernel about the machine: its target, its clock, its numbers, the grids before and after it."""

import numpy as np
import pytest
import torch
from conftest import DEVICE
from helpers import module

import tilewright as triton
import tilewright.language as tl
from tilewright.language import target_info
from tilewright.language.extra import cuda
from tilewright.language.target_info import cuda_capability_geq, current_target, is_cuda


@triton.jit
def asks(out_ptr):
    first = cuda.globaltimer()
    cuda.gdc_wait()
    tl.store(out_ptr + 0, tl.extra.cuda.num_threads())
    tl.store(out_ptr + 1, cuda.num_warps())
    tl.store(out_ptr + 2, cuda.smid() >= 0)
    tl.store(out_ptr + 3, is_cuda())
    tl.store(out_ptr + 4, tl.target_info.cuda_capability_geq(9, 0))
    tl.store(out_ptr + 5, target_info.cuda_capability_geq(7))
    tl.store(out_ptr + 6, target_info.is_hip() or target_info.is_hip_cdna3() or target_info.is_hip_gfx1250())
    target: tl.constexpr = current_target()
    if target.backend == "cuda":
        tl.store(out_ptr + 7, target.arch * target.warp_size)
    cuda.gdc_launch_dependents()
    tl.store(out_ptr + 8, cuda.globaltimer() >= first)


@pytest.mark.parametrize("num_warps", [1, 8])
def test_machine(num_warps, device):
    out = torch.zeros(9, dtype=torch.int32, device=device)
    asks[(1,)](out, num_warps=num_warps)
    capability = int(DEVICE.rpartition("_")[2]) if DEVICE.startswith("sim:") else 0
    if DEVICE.startswith("cuda"):
        major, minor = torch.cuda.get_device_capability()
        capability = 10 * major + minor
    expected = [
        32 * num_warps,
        num_warps,
        1,
        capability > 0,
        capability >= 90,
        capability >= 70,
        0,
        32 * capability,
        1,
    ]
    assert out.tolist() == [int(value) for value in expected]


def test_the_target_of_the_host():
    target = current_target()
    assert is_cuda() == (target.backend == "cuda")
    assert isinstance(cuda_capability_geq(8, 0), bool)
    assert not target_info.is_hip()


def test_programs_have_a_common_clock(device):
    kernel = module(
        "@triton.jit\ndef k(out_ptr):\n    tl.store(out_ptr + tl.program_id(0), tl.extra.cuda.globaltimer())\n"
    ).k
    out = torch.zeros(16, dtype=torch.int64, device=device)
    kernel[(16,)](out)
    times = np.array(out.tolist())
    assert (times >= 0).all()
    assert times.max() - times.min() < 10**11
