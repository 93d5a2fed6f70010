"""Multiplies quantized operands, C = A @ B, in which each group of 32 elements along K shares a scale.

```text
  A, fp8: a byte for each element               B, fp4: two elements in a byte, packed along K

     K = 32   32   32                              N
     ┌──────┬──────┬──────┐                     ┌───────┐
  M  │ e4m3 │ e4m3 │ e4m3 │                K/2  │ e2m1  │
     └──────┴──────┴──────┘                     └───────┘
     [ 2^s  | 2^s  | 2^s  ]  scales [M, K/32]   [N, K/32]  scales of the columns

  accumulator += (A * 2^a_scale) @ (B * 2^b_scale)
```

These are the microscaling formats of the Open Compute Project (MX, version 1.0). A scale is a power of two: a byte
holds its exponent plus 127. `tl.dot_scaled` takes the elements and the scales as they are in memory. An element times
its scale is exact in bf16, for which every target has dots, so `tl.dot_scaled` multiplies in bf16.

Run it with `python examples/26_block_scaled_matmul.py`; it checks itself against torch. Shapes: [M, K] @ [K, N], K a
multiple of 32.
"""

import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.mxfp import MXFP4Tensor

# The largest exponents of e4m3 (448 = 1.75 * 2^8) and of e2m1 (6 = 1.5 * 2^2).
LARGEST_EXPONENT = {"e4m3": 8, "e2m1": 2}


@triton.jit
def block_scaled_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program computes one tile of C. All matrices are contiguous."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        in_a = (rows[:, None] < M) & (k[None, :] < K)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=in_a, other=0)
        # B has half as many rows of bytes: byte i of a column has the elements 2 i and 2 i + 1.
        pair = first // 2 + tl.arange(0, BLOCK_K // 2)
        in_b = (pair[:, None] < K // 2) & (columns[None, :] < N)
        b = tl.load(b_ptr + pair[:, None] * N + columns[None, :], mask=in_b, other=0)
        # A scale for each group of 32. Past the end of K the elements are 0, so any scale will do.
        group = first // 32 + tl.arange(0, BLOCK_K // 32)
        in_groups = group[None, :] < K // 32
        a_scale_ptrs = a_scale_ptr + rows[:, None] * (K // 32) + group[None, :]
        b_scale_ptrs = b_scale_ptr + columns[:, None] * (K // 32) + group[None, :]
        a_scale = tl.load(a_scale_ptrs, mask=(rows[:, None] < M) & in_groups, other=127)
        b_scale = tl.load(b_scale_ptrs, mask=(columns[:, None] < N) & in_groups, other=127)
        accumulator = tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e2m1", accumulator)
    in_c = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], accumulator, mask=in_c)


def quantize(x: torch.Tensor, element: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the bytes of the elements of [rows, K], the bytes of the scales, and the values that both represent."""
    groups = x.view(x.shape[0], -1, 32)
    largest = groups.abs().amax(2).clamp(min=2.0**-100)
    # The largest element of a group gets the largest exponent of the element type.
    exponent = torch.floor(torch.log2(largest)) - LARGEST_EXPONENT[element]
    scaled = (groups / torch.exp2(exponent)[:, :, None]).view_as(x)
    if element == "e4m3":
        narrow = scaled.clamp(-448, 448).to(torch.float8_e4m3fn)
        data, values = narrow.view(torch.uint8), narrow.double()
    else:
        narrow = MXFP4Tensor(data=scaled)
        data, values = narrow.to_packed_tensor(dim=1), narrow.to(torch.float32).double()
    values = (values.view(groups.shape) * torch.exp2(exponent.double())[:, :, None]).view_as(x)
    return data, (exponent + 127).to(torch.uint8), values


def block_scaled_matmul(a, a_scale, b, b_scale) -> torch.Tensor:
    """Returns the product, in fp32."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    block_scaled_kernel[grid](a, a_scale, b, b_scale, c, m, n, k, BLOCK_M=32, BLOCK_N=32, BLOCK_K=64)
    return c


def main() -> None:
    """Compares with torch's product, exactly for the quantized matrices and roughly for the original ones."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((64, 64, 128), (50, 70, 96), (5, 33, 32)):
        a, b = torch.randn(m, k, device=device), torch.randn(n, k, device=device)
        a_data, a_scale, a_values = quantize(a, "e4m3")
        b_data, b_scale, b_values = quantize(b, "e2m1")
        # B is quantized by its columns, which are the rows of its transpose.
        found = block_scaled_matmul(a_data, a_scale, b_data.T.contiguous(), b_scale)
        expected = a_values @ b_values.T
        torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-5)
        original = a @ b.T
        error = ((found - original).norm() / original.norm()).item()
        assert error < 0.2, error
        difference = (found - expected).abs().max().item()
        print(f"[{m}, {k}] @ [{k}, {n}]: largest difference {difference:.1e}; quantization error {error:.1%}")


if __name__ == "__main__":
    main()
