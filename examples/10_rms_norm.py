"""RMS norm (arXiv 1910.07467), forward and backward: y = x * r * w with r = 1 / sqrt(mean(x²) + eps) of each row.

```text
            reads          keeps for the backward pass    computes for each row, in fp32
forward     x, w           r: one number a row            r, then y
backward    x, dy, w, r                                   dx = r * (w dy - x̂ * mean(x̂ * w dy)) with x̂ = x * r

            sums of dy * x̂
program 0   rows 0, 4, 8, …   ─> parts[0] ─┐
program 1   rows 1, 5, 9, …   ─> parts[1] ─┼─> dw
…                                …        ─┘
```

The gradient of w is a sum over all rows. Each program keeps the sum over its own rows in registers, and torch adds the
sums of the programs.

Run it with `python examples/10_rms_norm.py`; it checks itself against torch. Shapes: x and dy are [rows, n], w is
[n].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def forward_kernel(x_ptr, w_ptr, y_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr):
    """Each program computes one row."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(x * x, 0) / n + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * n + columns, x * rstd * w, mask=mask)


@triton.jit
def backward_kernel(x_ptr, w_ptr, dy_ptr, rstd_ptr, dx_ptr, parts_ptr, rows, n, BLOCK: tl.constexpr):
    """Program p of P programs computes rows p, p + P, p + 2P, …, and its part of the gradient of w."""
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * n + columns, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normalized = x * rstd
        dw += dy * normalized
        wdy = w * dy
        dx = rstd * (wdy - normalized * (tl.sum(normalized * wdy, 0) / n))
        tl.store(dx_ptr + row * n + columns, dx, mask=mask)
    tl.store(parts_ptr + program * n + columns, dw, mask=mask)


class RMSNorm(torch.autograd.Function):
    """The norm of the rows of a contiguous matrix, for autograd."""

    @staticmethod
    def forward(ctx, x, w, eps):
        rows, n = x.shape
        y, rstd = torch.empty_like(x), torch.empty(rows, device=x.device)
        forward_kernel[(rows,)](x, w, y, rstd, n, eps, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, w, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, rstd = ctx.saved_tensors
        rows, n = x.shape
        # On a GPU, the best number is that of the programs that run at once: one or two for each multiprocessor.
        programs = min(rows, 4)
        dx, parts = torch.empty_like(x), torch.empty(programs, n, device=x.device)
        backward_kernel[(programs,)](
            x, w, dy.contiguous(), rstd, dx, parts, rows, n, BLOCK=triton.next_power_of_2(n)
        )
        return dx, parts.sum(0).to(w.dtype), None


def main() -> None:
    """Compares the norm and its gradients with those of torch in double precision."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        for rows, n in ((1, 1), (37, 100), (10, 768)):
            x, dy = (torch.randn(rows, n, device=device).to(dtype) for _ in range(2))
            w = (torch.rand(n, device=device) + 0.5).to(dtype)
            leaves = [x.requires_grad_(), w.requires_grad_()]
            y = RMSNorm.apply(x, w, 1e-5)
            found = (y, *torch.autograd.grad(y, leaves, dy))
            by_torch = torch.nn.functional.rms_norm(x.double(), (n,), w.double(), 1e-5)
            expected = (by_torch, *torch.autograd.grad(by_torch, leaves, dy.double()))
            errors = []
            for name, a, b in zip(("y", "dx", "dw"), found, expected, strict=True):
                torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=tolerance)
                errors.append(f"{name} {(a.double() - b.double()).abs().max().item():.1e}")
            print(f"{dtype} [{rows}, {n}]: largest differences: {', '.join(errors)}")


if __name__ == "__main__":
    main()
