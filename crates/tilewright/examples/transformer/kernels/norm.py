"""Normalizes the input of a layer."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(x_ptr, weight_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    """Divides each row by its root mean square. A program normalizes one row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x) / columns + eps)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + row * columns + at, x * scale * weight, mask=mask)
