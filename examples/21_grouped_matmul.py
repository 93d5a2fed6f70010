"""Multiplies matrices of different sizes in one launch, C[g] = A[g] @ B[g], as for the experts of a mixture.

```text
  tiles of C[0]   C[1]      C[2]                 a few programs take turns at the tiles of all products
  ┌──┬──┐        ┌──┐      ┌──┬──┬──┐
  │ 0│ 1│        │ 4│      │ 5│ 0│ 1│            6 programs, 11 tiles: program 0 has tile 0 of C[0] and tile 1 of C[2].
  ├──┼──┤        └──┘      ├──┼──┼──┤            One launch for each product would leave most of a GPU idle
  │ 2│ 3│                  │ 2│ 3│ 4│            while the small ones run.
  └──┴──┘                  └──┴──┴──┘
```

The addresses of the matrices are numbers in a tensor, which the kernel converts to pointers.

Run it with `python examples/21_grouped_matmul.py`; it checks itself against torch. Shapes: [M_g, K_g] @ [K_g, N_g].
"""

import torch

import tilewright as triton
import tilewright.language as tl

DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def tile_of_product(
    a_ptr, b_ptr, c_ptr, M, N, K, tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """Computes one tile of C. The matrices are contiguous."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        in_a = (rows[:, None] < M) & (k[None, :] < K)
        in_b = (k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :], mask=in_b, other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
    in_c = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], accumulator, mask=in_c)


@triton.jit
def grouped_kernel(
    addresses_ptr, sizes_ptr, GROUPS, DTYPE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Computes tiles of one product after the other in each program. `tile` counts the tiles of all products."""
    tile = tl.program_id(0)
    first = 0
    for group in range(GROUPS):
        M = tl.load(sizes_ptr + group * 3)
        N = tl.load(sizes_ptr + group * 3 + 1)
        K = tl.load(sizes_ptr + group * 3 + 2)
        end = first + tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        if tile < end:
            a_ptr = tl.load(addresses_ptr + group * 3).to(tl.pointer_type(DTYPE))
            b_ptr = tl.load(addresses_ptr + group * 3 + 1).to(tl.pointer_type(DTYPE))
            c_ptr = tl.load(addresses_ptr + group * 3 + 2).to(tl.pointer_type(DTYPE))
            while tile < end:
                tile_of_product(a_ptr, b_ptr, c_ptr, M, N, K, tile - first, BLOCK_M, BLOCK_N, BLOCK_K)
                tile += tl.num_programs(0)
        first = end


def grouped_matmul(pairs: list[tuple[torch.Tensor, torch.Tensor]], programs: int = 6) -> list[torch.Tensor]:
    """Returns the product of each pair. On a GPU, `programs` should be the number of multiprocessors."""
    device = pairs[0][0].device
    products = [torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=device) for a, b in pairs]
    addresses = [[x.data_ptr() for x in (a, b, c)] for (a, b), c in zip(pairs, products, strict=True)]
    sizes = [[a.shape[0], b.shape[1], a.shape[1]] for a, b in pairs]
    grouped_kernel[(programs,)](
        torch.tensor(addresses, dtype=torch.int64, device=device),
        torch.tensor(sizes, dtype=torch.int32, device=device),
        len(pairs), DTYPE=DTYPES[products[0].dtype], BLOCK_M=16, BLOCK_N=16, BLOCK_K=32,
    )  # fmt: skip
    return products


def main() -> None:
    """Compares each product with torch's. One group is empty, because an expert may have no tokens."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = ((20, 30, 64), (16, 8, 100), (0, 24, 16), (27, 40, 33), (1, 1, 1))
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)):
        pairs = [
            (torch.randn(m, k, device=device).to(dtype), torch.randn(k, n, device=device).to(dtype))
            for m, n, k in shapes
        ]
        for (m, n, k), (a, b), found in zip(shapes, pairs, grouped_matmul(pairs), strict=True):
            expected = a.double() @ b.double()
            torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
            largest = (found - expected).abs().max().item() if found.numel() else 0.0
            print(f"{dtype} [{m}, {k}] @ [{k}, {n}]: largest difference {largest:.1e}")


if __name__ == "__main__":
    main()
