"""Layer norm, forward and backward: for each row, y = (x - mean) * rstd * w + b with rstd = 1 / sqrt(variance + eps).

```text
  forward     one program a row       x ────> mean, rstd ────> y          mean and rstd are kept: two numbers a row

  backward    one program for rows p, p + P, p + 2P, …
              of each row             dx = (w dy - x̂ mean(x̂ w dy) - mean(w dy)) * rstd,     x̂ = (x - mean) * rstd
              over its rows           dw += x̂ dy       db += dy          in registers
              at the end              a row of partial sums [P, N], which torch adds
```

Run it with `python examples/05_layer_norm.py`; it checks itself against torch. Shapes: x is [rows, N], w and b are [N].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, N, EPS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program normalizes one row."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / N
    # Past the end of the row, `x - mean` is not 0: without the mask, it would be added to the variance.
    centered = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centered * centered, 0) / N + EPS)
    w = tl.load(w_ptr + columns, mask=mask)
    b = tl.load(b_ptr + columns, mask=mask)
    tl.store(y_ptr + row * N + columns, centered * rstd * w + b, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def backward_kernel(
    x_ptr, w_ptr, dy_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, N, BLOCK: tl.constexpr
):
    """Program p of P programs computes rows p, p + P, p + 2P, …, and one row of partial sums."""
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normalized = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        wdy = w * dy
        along = tl.sum(normalized * wdy, 0) / N
        offset = tl.sum(wdy, 0) / N
        tl.store(dx_ptr + row * N + columns, (wdy - normalized * along - offset) * rstd, mask=mask)
        dw += normalized * dy
        db += dy
    tl.store(dw_ptr + program * N + columns, dw, mask=mask)
    tl.store(db_ptr + program * N + columns, db, mask=mask)


class LayerNorm(torch.autograd.Function):
    """Layer norm of the rows of a contiguous matrix, for autograd."""

    @staticmethod
    def forward(ctx, x, w, b, eps):
        rows, n = x.shape
        y = torch.empty_like(x)
        mean, rstd = torch.empty(2, rows, device=x.device)
        block = triton.next_power_of_2(n)
        forward_kernel[(rows,)](x, w, b, y, mean, rstd, n, EPS=eps, BLOCK=block)
        ctx.save_for_backward(x, w, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, mean, rstd = ctx.saved_tensors
        rows, n = x.shape
        # On a GPU, a few programs for each multiprocessor are enough: more programs make the last sum longer.
        programs = min(rows, 4)
        dx = torch.empty_like(x)
        dw, db = torch.empty(2, programs, n, device=x.device)
        backward_kernel[(programs,)](
            x, w, dy.contiguous(), mean, rstd, dx, dw, db, rows, n, BLOCK=triton.next_power_of_2(n)
        )
        return dx, dw.sum(0).to(w.dtype), db.sum(0).to(w.dtype), None


def main() -> None:
    """Compares outputs and gradients with torch's in double precision."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
        for rows, n in ((37, 100), (3, 1024), (1, 1)):
            leaves = [
                torch.randn(shape, device=device).to(dtype).requires_grad_() for shape in ((rows, n), n, n)
            ]
            dy = torch.randn(rows, n, device=device).to(dtype)
            y = LayerNorm.apply(*leaves, 1e-5)
            found = (y, *torch.autograd.grad(y, leaves, dy))
            x, w, b = (leaf.double() for leaf in leaves)
            by_torch = torch.nn.functional.layer_norm(x, (n,), w, b, 1e-5)
            expected = (by_torch, *torch.autograd.grad(by_torch, leaves, dy.double()))
            errors = []
            for name, one, other in zip(("y", "dx", "dw", "db"), found, expected, strict=True):
                torch.testing.assert_close(one.double(), other.double(), atol=tolerance, rtol=tolerance)
                errors.append(f"{name} {(one.double() - other.double()).abs().max().item():.1e}")
            print(f"{dtype} [{rows}, {n}]: largest differences: {', '.join(errors)}")


if __name__ == "__main__":
    main()
