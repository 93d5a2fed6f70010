"""Helpers that the kernels share."""

import functools

import torch
import triton
import triton.language as tl

try:
    from triton.language.extra.libdevice import tanh
except ModuleNotFoundError:
    from triton.language.extra.cuda.libdevice import tanh

MAX_BLOCK = 65536


def settings(n):
    """The block of a row, and the warps for it."""
    block = triton.next_power_of_2(n)
    if block > MAX_BLOCK:
        raise RuntimeError(f"rows of {n} are too long")
    return block, 4 if block < 2048 else 8


@triton.constexpr_function
def with_margin(n):
    """A compile-time value."""
    return 2 * n


@triton.jit
def softcap(x, CAP: tl.constexpr):
    """Squeezes logits."""
    return CAP * tanh(x / CAP)


@functools.lru_cache
def programs(device):
    """How many programs fill the device."""
    return triton.runtime.driver.active.utils.get_device_properties(device)["multiprocessor_count"]


def device_of(tensor):
    """The number of the device."""
    return tensor.device.index or (torch.cuda.current_device() if tensor.is_cuda else 0)
