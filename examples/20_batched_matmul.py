"""Multiplies matrices in a batch, C[b] = A[b] @ B[b]. All matrices of the batch may share one A or one B.

```text
  grid (tiles of C, batch)          strides of the batch, in elements

  A[0] ┌──┐  B[0] ┌──┐  C[0]        A of [batch, M, K]             M * K
  A[1] ┌──┐  B[1] ┌──┐  C[1]        B of [K, N], the same for all  0: each program reads the same matrix
  A[2] ┌──┐  B[2] ┌──┐  C[2]        B of [batch, N, K] transposed  N * K, with the strides of row and column exchanged
```

A kernel that takes all strides needs no copy for a transposed, sliced or broadcast operand. Offsets of the batch
are computed in 64 bits: the offset of the last matrix may exceed 2^31, even if no offset within a matrix does.

Run it with `python examples/20_batched_matmul.py`; it checks itself against torch. Shapes: [batch, M, K] @ [batch, K,
N].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def batched_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    a_batch, a_row, a_column, b_batch, b_row, b_column, c_batch, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program computes a tile of one product."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    a_ptr += batch * a_batch
    b_ptr += batch * b_batch
    c_ptr += batch * c_batch
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        in_a = (rows[:, None] < M) & (k[None, :] < K)
        in_b = (k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * a_row + k[None, :] * a_column, mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * b_row + columns[None, :] * b_column, mask=in_b, other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
    in_c = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * c_row + columns[None, :] * c_column, sums, mask=in_c)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the products. An operand without a batch, or with a batch of 1, is used for all of them."""
    batch = max(x.shape[0] if x.dim() == 3 else 1 for x in (a, b))
    # `expand` copies nothing: it sets the stride to 0.
    a, b = (x.expand(batch, *x.shape[-2:]) for x in (a, b))
    (_, m, k), n = a.shape, b.shape[2]
    c = torch.empty(batch, m, n, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 16) * triton.cdiv(n, 32), batch)
    batched_kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BLOCK_M=16, BLOCK_N=32, BLOCK_K=32
    )
    return c


def main() -> None:
    """Compares products with torch's: both operands in a batch, one operand shared, one operand transposed."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)):
        a = torch.randn(3, 21, 50, device=device).to(dtype)
        b = torch.randn(3, 50, 37, device=device).to(dtype)
        transposed = torch.randn(3, 37, 50, device=device).to(dtype).transpose(1, 2)
        for name, x, y in (
            ("both in a batch", a, b),
            ("B is shared", a, b[0]),
            ("A is shared", a[:1], b),
            ("B is transposed", a, transposed),
        ):
            found, expected = matmul(x, y), x.double() @ y.double()
            torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
            print(f"{dtype}, {name}: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
