"""Layouts in Gluon: which thread holds which element, and what an access to memory costs.

```text
  a block of a matrix, and the lanes of a warp that read it together

  along rows      l0 l0 l0 l0  l1 l1 l1 l1  …  l7        along columns    l0  l0  l0  l0  …
  ([1, 4] a       l8 l8 l8 l8  l9 l9 l9 l9  …  l15       (a lane a row)   l1  l1  l1  l1  …
  thread)         …                                                       …
```

A warp reads memory in sectors of 32 bytes. Along rows a lane moves 16 bytes at once, and neighboring lanes have
neighboring elements: each sector is read once. Along columns each lane is in another row, and a warp touches 32
sectors for 32 elements. A transpose needs both: it reads along rows, writes along columns of the result, and exchanges
the elements between its threads in shared memory, where a swizzled layout avoids conflicts of banks.

`tilewright profile --device sim:sm_90 examples/50_gluon_layouts.py` counts the sectors and the conflicts of each line.
Run it with `python examples/50_gluon_layouts.py`; it checks itself against torch. Shapes: [M, N].
"""

import torch

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK = 32
ROWS = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
# A lane has four elements of a column, so that a row of the transpose is written in vectors.
TRANSPOSED = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
SWIZZLED = gl.SwizzledSharedLayout(vec=4, per_phase=1, max_phase=8, order=[1, 0])


@gluon.jit
def block_offsets(row, column, M, N, BLOCK: gl.constexpr, layout: gl.constexpr):
    """The rows and columns of a block, as tiles in a layout, and the mask of those inside of the matrix."""
    rows = row + gl.arange(0, BLOCK, layout=gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, BLOCK, layout=gl.SliceLayout(0, layout))
    return rows, columns, (rows < M)[:, None] & (columns < N)[None, :]


@gluon.jit
def double_rows(x_ptr, out_ptr, M, N, BLOCK: gl.constexpr, layout: gl.constexpr):
    """Each warp reads rows: the sectors that it touches are full."""
    rows, columns, mask = block_offsets(
        gl.program_id(0) * BLOCK, gl.program_id(1) * BLOCK, M, N, BLOCK, layout
    )
    offsets = rows[:, None] * N + columns[None, :]
    gl.store(out_ptr + offsets, 2 * gl.load(x_ptr + offsets, mask=mask), mask=mask)


@gluon.jit
def double_columns(x_ptr, out_ptr, M, N, BLOCK: gl.constexpr, layout: gl.constexpr):
    """The same program in a layout whose lanes are in different rows: each touches a sector of its own."""
    rows, columns, mask = block_offsets(
        gl.program_id(0) * BLOCK, gl.program_id(1) * BLOCK, M, N, BLOCK, layout
    )
    offsets = rows[:, None] * N + columns[None, :]
    gl.store(out_ptr + offsets, 2 * gl.load(x_ptr + offsets, mask=mask), mask=mask)


@gluon.jit
def transpose(
    x_ptr, out_ptr, M, N,
    BLOCK: gl.constexpr, read: gl.constexpr, write: gl.constexpr, shared: gl.constexpr,
):  # fmt: skip
    """Reads in one layout, and writes in another: threads exchange the elements in shared memory."""
    row, column = gl.program_id(0) * BLOCK, gl.program_id(1) * BLOCK
    rows, columns, mask = block_offsets(row, column, M, N, BLOCK, read)
    tile = gl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=mask)
    smem = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [BLOCK, BLOCK], shared, tile)
    rows, columns, mask = block_offsets(row, column, M, N, BLOCK, write)
    gl.store(out_ptr + columns[None, :] * M + rows[:, None], smem.load(write), mask=mask)


def main() -> None:
    """Compare with torch, at a size that is no multiple of the blocks."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(
        "the first elements of a row, along rows:    ", ROWS.format_tensor_view([32, 32]).splitlines()[0][:60]
    )
    print(
        "the first elements of a row, along columns: ",
        COLUMNS.format_tensor_view([32, 32]).splitlines()[0][:60],
    )
    m, n = 80, 112
    x = torch.randn(m, n, device=device)
    grid = (triton.cdiv(m, BLOCK), triton.cdiv(n, BLOCK))
    for kernel, layout in ((double_rows, ROWS), (double_columns, COLUMNS)):
        out = torch.empty_like(x)
        kernel[grid](x, out, m, n, BLOCK, layout)
        torch.testing.assert_close(out, 2 * x)
        print(f"{kernel.__name__}: right")
    for name, shared in (("plain", PLAIN), ("swizzled", SWIZZLED)):
        out = torch.empty(n, m, device=device)
        transpose[grid](x, out, m, n, BLOCK, ROWS, TRANSPOSED, shared)
        torch.testing.assert_close(out, x.T)
        print(f"transpose through {name} memory: right")


if __name__ == "__main__":
    main()
