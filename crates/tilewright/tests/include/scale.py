"""Defines kernels that the tests compile into their binary."""

import triton
import triton.language as tl

from helpers import clamp


@triton.jit
def scale(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, clamp(x * factor), mask=at < n)


@triton.jit
def fill(out_ptr, value: tl.int64, type, mode: tl.constexpr, dtype: tl.constexpr):
    at = tl.arange(0, 8)
    if mode == "index":
        tl.store(out_ptr + at, (at + value).to(dtype))
    else:
        tl.store(out_ptr + at, type)


@triton.jit
def keywords(self, super, crate, Self, type, _, self_):
    tl.store(self, super + 10 * crate + 100 * Self + 1000 * type + 10000 * _ + 100000 * self_)
