"""Gathered rows in Gluon: out[i] = sum over j of weights[i, j] * table[indices[i, j]], as an embedding bag computes it.

```text
  indices[i, 0…2]      7        2        9
  table               row 7    row 2    row 9     ──cp.async──▶  slots 0, 1, 2 of a ring  ──▶  acc += weight * row
```

A tensor copy moves a box, but these rows are anywhere in the table. The pointers of an asynchronous copy are a tile, so
that each row has its own base. A program has the rows of a block of `i`; the steps of its ring are the positions `j`.
The layout has the lanes of a warp along the columns, so that a gathered row is read in full sectors, and the index of a
row is a tile in the `SliceLayout` of its axis: `rows[:, None]` then has the layout of the pointers.

Run it with `python examples/55_gluon_gather_rows.py`; it checks itself against torch. Shapes: [V, D], [M, J], [M, J].
"""

import torch
from tilewright.experimental.gluon.language.nvidia.ampere import async_copy

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK_M, BLOCK_D, STAGES = 8, 64, 3


@gluon.jit
def start_gather(
    table_ptr, indices_ptr, smem, step, steps, D, rows, columns, mask, STAGES: gl.constexpr
):  # fmt: skip
    """Starts the copies of the rows whose indices are at position `step`; the slot gets zeros after the last one."""
    is_there = (rows >= 0) & (step < steps)
    indices = gl.load(indices_ptr + rows * steps + step, mask=is_there, other=0)
    pointers = table_ptr + indices.to(gl.int64)[:, None] * D + columns[None, :]
    async_copy.async_load(smem.index(step % STAGES), pointers, mask=mask & (step < steps))
    async_copy.commit_group()


@gluon.jit
def gather_kernel(
    table_ptr, indices_ptr, weights_ptr, out_ptr, M, D, steps,
    BLOCK_M: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A program computes BLOCK_M rows and BLOCK_D columns of the result."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    rows = gl.program_id(0) * BLOCK_M + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, layout))
    columns = gl.program_id(1) * BLOCK_D + gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, layout))
    mask = (rows < M)[:, None] & (columns < D)[None, :]
    # Rows after the last one read the indices of the last one, and are not stored.
    inside = gl.minimum(rows, M - 1)
    smem = gl.allocate_shared_memory(table_ptr.dtype.element_ty, [STAGES, BLOCK_M, BLOCK_D], shared)
    for step in gl.static_range(STAGES - 1):
        start_gather(table_ptr, indices_ptr, smem, step, steps, D, inside, columns, mask, STAGES)
    acc = gl.zeros([BLOCK_M, BLOCK_D], gl.float32, layout)
    for step in range(steps):
        start_gather(
            table_ptr, indices_ptr, smem, step + STAGES - 1, steps, D, inside, columns, mask, STAGES
        )  # fmt: skip
        weights = gl.load(weights_ptr + inside * steps + step)
        async_copy.wait_group(STAGES - 1)
        acc += weights[:, None] * smem.index(step % STAGES).load(layout)
    gl.store(out_ptr + rows[:, None] * D + columns[None, :], acc, mask=mask)


def embedding_bag(table: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of the rows that each row of `indices` names."""
    (m, steps), d = indices.shape, table.shape[1]
    out = torch.empty(m, d, device=table.device)
    grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(d, BLOCK_D))
    gather_kernel[grid](table, indices, weights, out, m, d, steps, BLOCK_M, BLOCK_D, STAGES)
    return out


def main() -> None:
    """Compare with torch, at sizes that are no multiples of the blocks."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for v, d, m, steps in ((100, 64, 16, 4), (37, 100, 13, 1)):
        table, weights = torch.randn(v, d, device=device), torch.randn(m, steps, device=device)
        indices = torch.randint(v, (m, steps), device=device, dtype=torch.int32)
        found = embedding_bag(table, indices, weights)
        expected = torch.nn.functional.embedding_bag(
            indices.long(), table, mode="sum", per_sample_weights=weights
        )
        torch.testing.assert_close(found, expected)
        print(
            f"{m} x {steps} of {v} rows of {d}: largest difference {(found - expected).abs().max().item():.1e}"
        )


if __name__ == "__main__":
    main()
