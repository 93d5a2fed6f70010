"""Computes the backward pass of layer norm, which sums dw and db over rows, in two ways.

```text
          rows of x and dy                 partial sums of dw, db              dw, db
locks     program 0 ─┐ each adds to one
          program 1 ─┼─ of GROUPS partial ──> [GROUPS, N] ──second kernel──> [N]
          …         ─┘ sums, under a lock
two-stage program p sums its own rows ──────> [PROGRAMS, N] ──second kernel──> [N]
```

Run it with `python examples/12_layer_norm_backward.py`; it checks itself against torch. Shapes: x and dy are [rows, N],
w is [N].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def gradient_of_row(x_ptr, dy_ptr, w_ptr, dx_ptr, row, columns, N, EPS: tl.constexpr):
    """Stores the gradient of x for one row, and returns the terms that the row adds to the gradients of w and b."""
    mask = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + row * N + columns, mask=mask, other=0.0)
    w = tl.load(w_ptr + columns, mask=mask, other=0.0)
    mean = tl.sum(x, 0) / N
    centered = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centered * centered, 0) / N + EPS)
    normalized = centered * rstd
    wdy = w * dy
    along = tl.sum(normalized * wdy, 0) / N
    offset = tl.sum(wdy, 0) / N
    tl.store(dx_ptr + row * N + columns, (wdy - normalized * along - offset) * rstd, mask=mask)
    return dy * normalized, dy


@triton.jit
def backward_with_locks(
    x_ptr, dy_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, locks_ptr, N,
    EPS: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes one row in each program. The program adds to one of GROUPS partial sums, each protected by a lock."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    dw, db = gradient_of_row(x_ptr, dy_ptr, w_ptr, dx_ptr, row, columns, N, EPS)
    group = row % GROUPS
    lock_ptr = locks_ptr + group
    is_begun_ptr = lock_ptr + GROUPS
    dw_ptrs = dw_ptr + group * N + columns
    db_ptrs = db_ptr + group * N + columns
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(is_begun_ptr) == 0:
        tl.atomic_xchg(is_begun_ptr, 1)
    else:
        dw += tl.load(dw_ptrs, mask=mask)
        db += tl.load(db_ptrs, mask=mask)
    tl.store(dw_ptrs, dw, mask=mask)
    tl.store(db_ptrs, db, mask=mask)
    # The exchange releases the lock. It orders the stores of all threads of the program before the release.
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def backward_two_stage(
    x_ptr, dy_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, rows, N, EPS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program p of P programs computes rows p, p + P, p + 2P, …, and a partial sum of its own."""
    first, programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for row in range(first, rows, programs):
        of_w, of_b = gradient_of_row(x_ptr, dy_ptr, w_ptr, dx_ptr, row, columns, N, EPS)
        dw += of_w
        db += of_b
    tl.store(dw_ptr + first * N + columns, dw, mask=columns < N)
    tl.store(db_ptr + first * N + columns, db, mask=columns < N)


@triton.jit
def sum_of_parts(parts_ptr, out_ptr, PARTS, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Adds up the columns of a matrix [PARTS, N]."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, PARTS, ROWS):
        rows = first + tl.arange(0, ROWS)
        mask = (rows[:, None] < PARTS) & (columns[None, :] < N)
        total += tl.sum(tl.load(parts_ptr + rows[:, None] * N + columns[None, :], mask=mask, other=0.0), 0)
    tl.store(out_ptr + columns, total, mask=columns < N)


def layer_norm_backward(x, dy, w, eps, way):
    """Returns the gradients of x, w and b."""
    rows, n = x.shape
    parts = 4
    dx = torch.empty_like(x)
    dw_parts, db_parts = (torch.zeros(parts, n, device=x.device) for _ in range(2))
    block = triton.next_power_of_2(n)
    if way == "locks":
        locks = torch.zeros(2 * parts, dtype=torch.int32, device=x.device)
        backward_with_locks[(rows,)](
            x, dy, w, dx, dw_parts, db_parts, locks, n, EPS=eps, GROUPS=parts, BLOCK=block
        )
    else:
        backward_two_stage[(parts,)](x, dy, w, dx, dw_parts, db_parts, rows, n, EPS=eps, BLOCK=block)
    dw, db = torch.empty_like(w), torch.empty_like(w)
    for of_parts, out in ((dw_parts, dw), (db_parts, db)):
        sum_of_parts[(triton.cdiv(n, 32),)](of_parts, out, parts, n, ROWS=4, COLUMNS=32)
    return dx, dw, db


def main() -> None:
    """Compares both ways with torch's gradients."""
    torch.manual_seed(0)
    rows, n, eps = 37, 100, 1e-5
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, dy, w = (torch.randn(shape, device=device) for shape in ((rows, n), (rows, n), (n,)))
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_(), torch.zeros_like(w).requires_grad_()]
    torch.nn.functional.layer_norm(leaves[0], (n,), leaves[1], leaves[2], eps).backward(dy)
    for way in ("locks", "two-stage"):
        gradients = layer_norm_backward(x, dy, w, eps, way)
        for name, found, leaf in zip(("dx", "dw", "db"), gradients, leaves, strict=True):
            difference = (found - leaf.grad).abs().max().item()
            print(f"{way:9} {name}: largest difference {difference:.1e}")
            torch.testing.assert_close(found, leaf.grad, atol=1e-4, rtol=1e-4)


if __name__ == "__main__":
    main()
