"""A pipeline of asynchronous copies in Gluon: while a program works on a block, the next blocks are on their way.

```text
  slots of the ring     |  0: columns 0-63  |  1: columns 64-127  |  2: columns 128-191  |

  step 0                   wait, read          in flight              started now
  step 1                   started now         wait, read             in flight
  step 2                   in flight           started now            wait, read
```

`cp.async` copies from global to shared memory without registers, and the threads go on. `commit_group` makes a group of
the copies since the last one, and `wait_group(k)` waits until at most `k` groups are in flight; the copies of the other
steps stay in flight. A group without copies keeps the numbers right at the end of a row.

Run it with `python examples/51_gluon_async_copy.py`; it checks itself against torch. Shapes: [M, N] to [M].
"""

import torch
from tilewright.experimental.gluon.language.nvidia.ampere import async_copy

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK_M, BLOCK_N, STAGES = 16, 64, 3


@gluon.jit
def start_copy(
    x_ptr, smem, step, M, N, row,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Starts the copy of a block of columns to its slot; outside of the matrix, the slot gets zeros."""
    rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, layout))
    columns = step * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    pointers = x_ptr + rows[:, None] * N + columns[None, :]
    async_copy.async_load(smem.index(step % STAGES), pointers, mask=mask)
    async_copy.commit_group()


@gluon.jit
def row_norms(
    x_ptr, out_ptr, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr
):  # fmt: skip
    """The Euclidean norm of each row; a program has BLOCK_M rows."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    row = gl.program_id(0) * BLOCK_M
    smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M, BLOCK_N], shared)
    for step in gl.static_range(STAGES - 1):
        start_copy(x_ptr, smem, step, M, N, row, BLOCK_M, BLOCK_N, STAGES, layout)
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    for step in range(gl.cdiv(N, BLOCK_N)):
        start_copy(x_ptr, smem, step + STAGES - 1, M, N, row, BLOCK_M, BLOCK_N, STAGES, layout)
        async_copy.wait_group(STAGES - 1)
        x = smem.index(step % STAGES).load(layout)
        acc += x * x
    norms = gl.sqrt(gl.sum(acc, axis=1))
    rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, layout))
    gl.store(out_ptr + rows, norms, mask=rows < M)


def main() -> None:
    """Compare with torch, for rows that end within a block."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n in ((40, 64), (5, 500)):
        x, out = torch.randn(m, n, device=device), torch.empty(m, device=device)
        row_norms[(triton.cdiv(m, BLOCK_M),)](x, out, m, n, BLOCK_M, BLOCK_N, STAGES)
        torch.testing.assert_close(out, x.norm(dim=1))
        print(f"[{m}, {n}]: largest difference {(out - x.norm(dim=1)).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
