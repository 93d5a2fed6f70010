"""Multiplies matrices with K split over programs, which add their partial sums to C by atomic operations.

```text
      K                 N
  ┌───┬───┬───┐      ┌─────┐ part 0     C tile = part 0 + part 1 + part 2
M │ 0 │ 1 │ 2 │  @   ├─────┤ part 1     one program each, tl.atomic_add into C
  └───┴───┴───┘      ├─────┤ part 2
                     └─────┘
```

If M and N are small and K is large, C has too few tiles to keep a device busy, so K is split to get more programs. The
order of the additions is not fixed, so the last bits may differ from run to run.

Run it with `python examples/23_split_k_matmul.py`; it checks itself against torch. Shapes: [M, K] @ [K, N].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def split_k_matmul(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Each program adds to a tile of C the products of every SPLIT_K-th block along K."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(part * BLOCK_K, K, SPLIT_K * BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        in_a = (rows[:, None] < M) & (k[None, :] < K)
        in_b = (k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :], mask=in_b, other=0.0)
        sums = tl.dot(a, b, sums)
    in_c = (rows[:, None] < M) & (columns[None, :] < N)
    # The additions are relaxed, because nothing reads C before the kernel ends.
    tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], sums, mask=in_c, sem="relaxed")


def matmul(a, b, split_k):
    """Returns the product, in fp32."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.zeros(m, n, device=a.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 16), split_k)
    split_k_matmul[grid](a, b, c, m, n, k, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32, SPLIT_K=split_k)
    return c


def main() -> None:
    """Compares the products for several splits with torch's."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (torch.randn(shape, dtype=torch.float16, device=device) for shape in ((24, 500), (500, 40)))
    expected = a.float() @ b.float()
    for split_k in (1, 3, 8):
        found = matmul(a, b, split_k)
        print(f"{split_k} parts: largest difference {(found - expected).abs().max().item():.1e}")
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


if __name__ == "__main__":
    main()
