"""Computes dropout without storing a mask: a seed and the position of an element decide whether the element is kept.

```text
               forward            kept for the backward pass       backward
with a mask    y = x * mask / q   n bytes                          dx = dy * mask / q
by seed        y = x * f(seed)    4 bytes: the seed                dx = dy * f(seed)
```

`tl.rand(seed, position)` is the Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
It has no state: any program can compute the number of any position, in any order, and each device gets the same number.
Dropout is linear in x, so its backward pass is the same kernel on the gradient.

Run it with `python examples/04_dropout.py`; it checks itself against torch. Shapes: any.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    """Keeps each element with the probability 1 - p, and scales it so that the expected mean stays the same."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = position < n
    x = tl.load(x_ptr + position, mask=mask)
    is_kept = tl.rand(seed, position) >= p
    tl.store(y_ptr + position, tl.where(is_kept, x / (1 - p), 0.0), mask=mask)


def scale_or_drop(x: torch.Tensor, p: float, seed: int, block: int) -> torch.Tensor:
    """Launches the kernel."""
    x = x.contiguous()
    y = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), p, seed, BLOCK=block)
    return y


class Dropout(torch.autograd.Function):
    """Dropout for autograd. Only the seed is saved for the backward pass."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return scale_or_drop(x, p, seed, block=1024)

    @staticmethod
    def backward(ctx, dy):
        # Another block size: the mask does not depend on it.
        return scale_or_drop(dy, ctx.p, ctx.seed, block=256), None, None


def main() -> None:
    """Compares the gradient with that of a product with the mask, and counts the kept elements."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p = 0.3
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(50, 201, device=device).to(dtype).requires_grad_()
        dy = torch.randn_like(x)
        y = Dropout.apply(x, p, 123)
        (found,) = torch.autograd.grad(y, x, dy)

        # Dropout of a tensor of ones shows which elements are kept; torch computes the expected result from this mask.
        mask = scale_or_drop(torch.ones_like(x), p, 123, block=512) != 0
        by_torch = x.float() * mask / (1 - p)
        (expected,) = torch.autograd.grad(by_torch, x, dy.float())
        torch.testing.assert_close(y, by_torch.to(dtype))
        torch.testing.assert_close(found, expected)

        kept = mask.float().mean().item()
        assert abs(kept - (1 - p)) < 0.02
        other = scale_or_drop(torch.ones_like(x), p, 124, block=512) != 0
        alike = (mask == other).float().mean().item()
        assert abs(alike - (p * p + (1 - p) * (1 - p))) < 0.02
        print(f"{dtype}: {kept:.1%} are kept; with the next seed {alike:.1%} of the decisions are the same")


if __name__ == "__main__":
    main()
