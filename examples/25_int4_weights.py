"""Computes a linear layer with weights of 4-bit integers, which the kernel dequantizes: y = x @ ((q - zero) * scale).

```text
  memory: bytes [K / 2, N]                  in the kernel

             column 0     column 1          packed & 15, packed >> 4     two tiles [K / 2, N]
            high  low    high  low          tl.join                      [K / 2, N, 2]
  byte 0   │ w1 │ w0 │  │ w1 │ w0 │ …       permute                      [K / 2, 2, N]: each pair of rows together
  byte 1   │ w3 │ w2 │  │ w3 │ w2 │ …       reshape                      [K, N]
  …                                         (q - zero) * scale           in the dtype of x, then tl.dot

  a scale and a zero for each column of every GROUP rows
```

A layer that serves a few tokens reads each weight once and computes little with it. The memory bandwidth limits the
layer, and 4-bit weights need a quarter of the bytes of 16-bit weights.

Run it with `python examples/25_int4_weights.py`; it checks itself against torch. Shapes: x is [M, K], the packed
weights are [K / 2, N], scales and zeros are [K / GROUP, N].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def int4_kernel(
    x_ptr, packed_ptr, scales_ptr, zeros_ptr, y_ptr, M, N, K,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program computes a tile of y. A block along K lies in one group, so that it has one row of scales."""
    tl.static_assert(GROUP % BLOCK_K == 0, "a block must not reach into two groups")
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_n = columns < N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        x = tl.load(
            x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0
        )
        pair = first // 2 + tl.arange(0, BLOCK_K // 2)
        packed = tl.load(
            packed_ptr + pair[:, None] * N + columns[None, :],
            mask=(pair[:, None] < K // 2) & in_n[None, :],
            other=0,
        )
        # `tl.join` adds a last axis, [K / 2, N, 2]. `permute` moves it after the first; `reshape` merges the two.
        q = tl.join(packed & 15, packed >> 4).permute(0, 2, 1).reshape(BLOCK_K, BLOCK_N)
        scale = tl.load(scales_ptr + first // GROUP * N + columns, mask=in_n, other=0.0)
        zero = tl.load(zeros_ptr + first // GROUP * N + columns, mask=in_n, other=0.0)
        w = (q.to(tl.float32) - zero[None, :].to(tl.float32)) * scale[None, :].to(tl.float32)
        sums = tl.dot(x, w.to(x.dtype), sums, input_precision="ieee")
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], sums, mask=(rows[:, None] < M) & in_n[None, :])


def quantize(w: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns packed weights, scales and zeros. In each group of a column, the least weight is 0, the greatest 15."""
    k, n = w.shape
    groups = w.float().reshape(k // group, group, n)
    least, most = groups.amin(1), groups.amax(1)
    scale = (most - least) / 15
    zero = torch.round(-least / scale)
    q = torch.round(groups / scale[:, None] + zero[:, None]).clamp(0, 15).to(torch.uint8).reshape(k, n)
    return q[0::2] | q[1::2] << 4, scale.to(w.dtype), zero.to(w.dtype)


def linear(x, packed, scales, zeros, group):
    """Returns the output of the layer."""
    (m, k), n = x.shape, packed.shape[1]
    y = torch.empty(m, n, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 32))
    int4_kernel[grid](x, packed, scales, zeros, y, m, n, k, GROUP=group, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)
    return y


def main() -> None:
    """Compares the layer with torch's product of x and the dequantized weights."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k, group = 5, 75, 192, 64
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)):
        x, w = (torch.randn(shape, device=device).to(dtype) for shape in ((m, k), (k, n)))
        packed, scales, zeros = quantize(w, group)
        y = linear(x, packed, scales, zeros, group)

        q = torch.stack((packed & 15, packed >> 4), 1).reshape(k, n)
        by_row = (each.float().repeat_interleave(group, 0) for each in (zeros, scales))
        zero, scale = by_row
        restored = ((q - zero) * scale).to(dtype)
        expected = x.double() @ restored.double()
        torch.testing.assert_close(y.double(), expected, atol=tolerance, rtol=tolerance)
        loss = ((restored - w).float().norm() / w.float().norm()).item()
        bits = (packed.nbytes + scales.nbytes + zeros.nbytes) * 8 / w.numel()
        difference = (y - expected).abs().max().item()
        print(
            f"{dtype}: largest difference {difference:.1e}; {bits:.2f} bits a weight, which are off by {loss:.1%}"
        )


if __name__ == "__main__":
    main()
