"""Multiplies matrices, C = A @ B, with block sizes that autotuning chooses.

```text
          K                     N
     ┌──┬──┬──┬──┐        ┌───┬───┬───┬───┐
     │  │  │  │  │        │   │   │ ↓ │   │     A program computes one tile of C. It goes along K, and adds the product
     ├──┼──┼──┼──┤        ├───┼───┼───┼───┤     of a tile of A and a tile of B in each step.
  M  │→ │→ │→ │→ │  @  K  │   │   │ ↓ │   │
     ├──┼──┼──┼──┤        ├───┼───┼───┼───┤
     │  │  │  │  │        │   │   │ ↓ │   │
     └──┴──┴──┴──┘        └───┴───┴───┴───┘

  the order of programs over the tiles of C

  row after row            in groups of 2 rows      Programs that run at the same time, 0 to 3 say, share what they
   0  1  2  3               0  2  4  6              read through the cache. In the first order these read 1 row of
   4  5  6  7               1  3  5  7              tiles of A and 4 columns of B: 5. In the second 2 and 2: 4; with
   8  9 10 11               8 10 12 14              64 programs and groups of 8 rows, 16 and not 65.
  12 13 14 15               9 11 13 15
```

`triton.autotune` measures all configurations for each new value of its `key`, here the sizes, and keeps the fastest.

Run it with `python examples/03_matmul.py`; it checks itself against torch. Shapes: [M, K] @ [K, N].
"""

import torch

import tilewright as triton
import tilewright.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 4}, num_warps=warps)
    for m, n, k, warps in ((16, 16, 32, 2), (32, 32, 32, 4), (64, 64, 32, 4))
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row, a_column, b_row, b_column, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Each program computes one tile of C. `a_row` is the distance in memory from one row of A to the next."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    # A group is several rows of tiles; within it, programs go down each column. The last group may have fewer rows.
    program = tl.program_id(0)
    first_m = program // (GROUP * tiles_n) * GROUP
    rows_of_group = tl.minimum(tiles_m - first_m, GROUP)
    tile_m = first_m + program % (GROUP * tiles_n) % rows_of_group
    tile_n = program % (GROUP * tiles_n) // rows_of_group

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * a_row + k[None, :] * a_column
    b_ptrs = b_ptr + k[:, None] * b_row + columns[None, :] * b_column
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        # Past the end of K, both are 0 and add nothing. Past the ends of M and N, nothing is stored.
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (first + k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(first + k[:, None] < K) & (columns[None, :] < N), other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        a_ptrs += BLOCK_K * a_column
        b_ptrs += BLOCK_K * b_row
    c_ptrs = c_ptr + rows[:, None] * c_row + columns[None, :] * c_column
    tl.store(c_ptrs, accumulator, mask=(rows[:, None] < M) & (columns[None, :] < N))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the product, in the dtype of the operands."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    # The number of tiles depends on the configuration, so the grid is a function of the configuration.
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()
    )
    return c


def main() -> None:
    """Compares products with torch's, also for a transposed view as B."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        a = torch.randn(77, 130, dtype=dtype, device=device)
        b = torch.randn(93, 130, dtype=dtype, device=device).T
        found = matmul(a, b)
        expected = (a.double() @ b.double()).to(dtype)
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
        difference = (found.float() - expected.float()).abs().max().item()
        best = matmul_kernel.best_config.kwargs
        print(f"{dtype}: largest difference {difference:.1e}; the fastest here: {best}")


if __name__ == "__main__":
    main()
