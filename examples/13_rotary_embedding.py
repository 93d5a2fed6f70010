"""Rotary position embedding (arXiv 2104.09864), forward and backward: rotates pairs of features by angles.

```text
  one head     x0 x1 … x(h-1) | xh … x(2h-1)       the pair (x[i], x[i + h]) is a point of a plane, which turns by the
               └──────── pair 0 ──┘                angle step * base^(-i / h)

  (y0, y1) = (x0 * cos - x1 * sin, x1 * cos + x0 * sin)         the gradient turns back: the same with -sin
```

A program loads the cosines and sines of its step once, for all heads; all heads are one tile.

Run it with `python examples/13_rotary_embedding.py`; it checks itself against torch, where the pairs are complex
numbers. Shapes: x is [batch, steps, heads, width], the angles are [steps, width / 2].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def rotate_kernel(
    x_ptr, y_ptr, cos_ptr, sin_ptr, steps, heads, half, stride_batch, stride_step, stride_head,
    IS_BACKWARD: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Rotates all heads of one step in each program. y is contiguous; in x, only each head is contiguous."""
    step, batch = tl.program_id(0), tl.program_id(1)
    head = tl.arange(0, HEADS)[:, None]
    pair = tl.arange(0, HALF)[None, :]
    mask = (head < heads) & (pair < half)
    cos = tl.load(cos_ptr + step * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(sin_ptr + step * half + pair, mask=pair < half, other=0.0)
    if IS_BACKWARD:
        sin = -sin
    x_ptrs = x_ptr + batch.to(tl.int64) * stride_batch + step * stride_step + head * stride_head + pair
    y_ptrs = y_ptr + ((batch.to(tl.int64) * steps + step) * heads + head) * 2 * half + pair
    x0 = tl.load(x_ptrs, mask=mask).to(tl.float32)
    x1 = tl.load(x_ptrs + half, mask=mask).to(tl.float32)
    tl.store(y_ptrs, x0 * cos - x1 * sin, mask=mask)
    tl.store(y_ptrs + half, x1 * cos + x0 * sin, mask=mask)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_backward: bool) -> torch.Tensor:
    """Launches the kernel. x may be a view, such as the queries in the result of one projection."""
    batch, steps, heads, width = x.shape
    assert x.stride(3) == 1
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    blocks = {"HEADS": triton.next_power_of_2(heads), "HALF": triton.next_power_of_2(width // 2)}
    rotate_kernel[(steps, batch)](
        x, y, cos, sin, steps, heads, width // 2, *x.stride()[:3], IS_BACKWARD=is_backward, **blocks
    )
    return y


class Rotary(torch.autograd.Function):
    """The rotation, for autograd. The angles have no gradient."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin, is_backward=False)

    @staticmethod
    def backward(ctx, dy):
        return rotate(dy.contiguous(), *ctx.saved_tensors, is_backward=True), None, None


def main() -> None:
    """Compares the rotation and its gradient with a product of complex numbers."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, steps, heads, width = 2, 11, 3, 40
    frequencies = 10_000 ** -(torch.arange(width // 2, device=device) / (width // 2))
    angles = torch.arange(steps, device=device)[:, None] * frequencies[None, :]
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        # One tensor has queries, keys and values, as the result of a projection does; the queries are a view of it.
        qkv = torch.randn(batch, steps, 3, heads, width, device=device).to(dtype).requires_grad_()
        dy = torch.randn(batch, steps, heads, width, device=device).to(dtype)
        y = Rotary.apply(qkv[:, :, 0], angles.cos(), angles.sin())
        (found,) = torch.autograd.grad(y, qkv, dy)

        x0, x1 = qkv[:, :, 0].double().chunk(2, -1)
        turn = torch.polar(torch.ones_like(angles), angles).to(torch.complex128)
        turned = torch.complex(x0, x1) * turn[None, :, None, :]
        expected = torch.cat((turned.real, turned.imag), -1)
        (of_qkv,) = torch.autograd.grad(expected, qkv, dy.double())
        torch.testing.assert_close(y.double(), expected, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(found, of_qkv, atol=tolerance, rtol=tolerance)
        print(f"{dtype}: largest difference {(y.double() - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
