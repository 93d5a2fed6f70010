"""Defines a function that a kernel of another file calls."""

import triton
import triton.language as tl


@triton.jit
def clamp(x):
    return tl.minimum(x, 100.0)
