"""Computes the cross entropy of rows of logits, and its gradient, which overwrites the logits.

With a vocabulary of 100,000 the logits are the largest tensor of a training step, and their gradient is as large. So
one kernel does both passes, and writes the gradient where the logits were:

```text
  logits of a row    [ block 0 | block 1 | block 2 | … ]     a row is longer than a tile
  first pass          ──────────────────────────────>        largest logit m and sum s of e^(x - m), of all so far
  loss = m + log(s) - x[target]
  second pass         ──────────────────────────────>        x = (e^(x - m) / s - [column is target]) / rows
```

When a block has a larger logit than all before it, the sum so far is scaled: s = s * e^(m - m') (Milakov and
Gimelshein, arXiv 1805.02867). Rows whose target is IGNORED do not contribute. The backward pass only multiplies by the
gradient of the loss, and does nothing if that gradient is 1.

Run it with `python examples/14_cross_entropy.py`; it checks itself against torch. Shapes: logits are [rows, columns],
targets are [rows].
"""

import torch

import tilewright as triton
import tilewright.language as tl

IGNORED = -100


@triton.jit
def loss_and_gradient(
    logits_ptr, targets_ptr, losses_ptr, counted, columns, row_stride, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Each program has one row; `counted` says how many rows are not ignored."""
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * row_stride
    target = tl.load(targets_ptr + row)
    column = tl.arange(0, BLOCK)

    largest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    of_target = tl.zeros([], tl.float32)
    for first in range(0, columns, BLOCK):
        place = first + column
        x = tl.load(logits_ptr + place, mask=place < columns, other=float("-inf")).to(tl.float32)
        before, largest = largest, tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(before - largest) + tl.sum(tl.exp(x - largest), 0)
        of_target += tl.sum(tl.where(place == target, x, 0.0), 0)
    is_counted = target != IGNORED
    tl.store(losses_ptr + row, tl.where(is_counted, largest + tl.log(total) - of_target, 0.0))

    # All threads have read the row before one of them writes to it.
    tl.debug_barrier()
    scale = tl.where(is_counted, 1.0 / counted, 0.0)
    for first in range(0, columns, BLOCK):
        place = first + column
        x = tl.load(logits_ptr + place, mask=place < columns, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(x - largest) / total - tl.where(place == target, 1.0, 0.0)
        tl.store(logits_ptr + place, gradient * scale, mask=place < columns)


@triton.jit
def scale_kernel(x_ptr, factor_ptr, n, BLOCK: tl.constexpr):
    """Multiplies x by the factor in place, if the factor is not 1."""
    factor = tl.load(factor_ptr)
    if factor != 1.0:
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + place, mask=place < n)
        tl.store(x_ptr + place, x * factor, mask=place < n)


class CrossEntropy(torch.autograd.Function):
    """The mean loss, for autograd. The gradient overwrites the logits, so no other operation may need the logits."""

    @staticmethod
    def forward(ctx, logits, targets):
        rows, columns = logits.shape
        losses = torch.empty(rows, device=logits.device)
        counted = (targets != IGNORED).sum().item()
        loss_and_gradient[(rows,)](
            logits, targets, losses, counted, columns, logits.stride(0), IGNORED=IGNORED, BLOCK=256
        )
        # A detached tensor: autograd must not see that the kernel overwrites the logits.
        ctx.gradient = logits.detach()
        return losses.sum() / counted

    @staticmethod
    def backward(ctx, of_loss):
        gradient = ctx.gradient
        # The kernel reads the factor on the device, so that the host does not wait for it.
        scale_kernel[(triton.cdiv(gradient.numel(), 1024),)](gradient, of_loss, gradient.numel(), BLOCK=1024)
        return gradient, None


def main() -> None:
    """Compares the loss, and the gradients of the tensors from which the logits are computed, with torch's."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, width, columns = 19, 24, 1000
    targets = torch.randint(0, columns, (rows,), device=device)
    targets[3] = targets[7] = IGNORED
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 2e-2)):
        x, w = (torch.randn(n, width, device=device).to(dtype).requires_grad_() for n in (rows, columns))
        loss = CrossEntropy.apply(x @ w.T, targets)
        found = torch.autograd.grad(3 * loss, (x, w))

        logits = (x @ w.T).double()
        expected = torch.nn.functional.cross_entropy(logits, targets, ignore_index=IGNORED)
        torch.testing.assert_close(loss.double(), expected, atol=1e-4, rtol=1e-4)
        for a, b in zip(found, torch.autograd.grad(3 * expected, (x, w)), strict=True):
            torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
        print(f"{dtype}: the loss is {loss.item():.5f}, and by torch {expected.item():.5f}")


if __name__ == "__main__":
    main()
