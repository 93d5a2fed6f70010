"""Multiplies matrices by stream-K (arXiv 2301.03598): all programs get equal parts of the work, across tile boundaries.

```text
  a tile each: 5 tiles for 4 programs            stream-K: 5 tiles of 8 steps along K are 40, 10 for each of 4 programs

  program 0  [tile 0  ][tile 4  ]                program 0  [tile 0  |1 ]
  program 1  [tile 1  ]                          program 1  [1     |2   ]       tile 1 is 2 steps of program 0
  program 2  [tile 2  ]          idle            program 2  [2   |3     ]       and 6 of program 1
  program 3  [tile 3  ]                          program 3  [3 |  tile 4]
             ──────────────────> 16 steps                   ───────────> 10 steps
```

If one program computes all steps of a tile, it stores the tile. If several programs share a tile, each adds its sums to
C by atomic operations, in any order, so the last bits of such a tile may differ from run to run. (In the paper, one of
these programs collects the sums.)

Run it with `python examples/24_stream_k_matmul.py`; it checks itself against torch. Shapes: [M, K] @ [K, N].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def stream_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Computes the steps from `step` to `end` in each program. Steps are numbered through all tiles."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps_of_tile = tl.cdiv(K, BLOCK_K)
    steps = tl.cdiv(M, BLOCK_M) * tiles_n * steps_of_tile
    program, programs = tl.program_id(0), tl.num_programs(0)
    # If the division has a remainder, the first programs have one step more.
    step = program * (steps // programs) + tl.minimum(program, steps % programs)
    end = (program + 1) * (steps // programs) + tl.minimum(program + 1, steps % programs)
    while step < end:
        tile = step // steps_of_tile
        first_k = step % steps_of_tile
        end_k = tl.minimum(steps_of_tile, first_k + end - step)
        rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for block in range(first_k, end_k):
            k = block * BLOCK_K + tl.arange(0, BLOCK_K)
            in_a = (rows[:, None] < M) & (k[None, :] < K)
            in_b = (k[:, None] < K) & (columns[None, :] < N)
            a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=in_a, other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + columns[None, :], mask=in_b, other=0.0)
            sums = tl.dot(a, b, sums, input_precision="ieee")
        c_ptrs = c_ptr + rows[:, None] * N + columns[None, :]
        in_c = (rows[:, None] < M) & (columns[None, :] < N)
        if end_k - first_k == steps_of_tile:
            tl.store(c_ptrs, sums, mask=in_c)
        else:
            # The additions are relaxed, because nothing reads C before the kernel ends.
            tl.atomic_add(c_ptrs, sums, mask=in_c, sem="relaxed")
        step += end_k - first_k


def matmul(a: torch.Tensor, b: torch.Tensor, programs: int) -> torch.Tensor:
    """Returns the product in fp32, computed by `programs` programs. On a GPU, use as many as run at the same time."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.zeros(m, n, device=a.device)
    stream_k_kernel[(programs,)](a, b, c, m, n, k, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32)
    return c


def main() -> None:
    """Compares with torch, with fewer programs than tiles, more programs than tiles, and more programs than steps."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-3), (torch.bfloat16, 1e-3)):
        a, b = (torch.randn(shape, device=device).to(dtype) for shape in ((16, 250), (250, 75)))
        expected = a.double() @ b.double()
        for programs in (1, 4, 7, 50):
            found = matmul(a, b, programs)
            torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
            difference = (found - expected).abs().max().item()
            print(f"{dtype}, 5 tiles for {programs} programs: largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
