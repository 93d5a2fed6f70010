"""Computes C = relu(A @ B + bias) by as many programs as run at the same time, so each program computes many tiles.

```text
  one program a tile                          persistent: a program a multiprocessor, which takes every P-th tile

  SM 0  [start|tile 0|store][start|tile 4|…   SM 0  [start|tile 0|store|tile 4|store|…
  SM 1  [start|tile 1|store][start|tile 5|…   SM 1  [start|tile 1|store|tile 5|store|…
```

The prologue of a program runs P times, not once for each tile. `flatten=True` fuses the loop over tiles with the loop
along K, so that the loads of the next tile do not wait for the store of the previous tile.

The operands are tensor descriptors that the host makes. A descriptor has base, sizes and strides, so a load needs only
the position of its block in the matrix. Elements outside of the matrix are loaded as 0, and are not stored. The matrix
and each of its rows must begin at a multiple of 16 bytes.

Run it with `python examples/22_persistent_matmul.py`; it checks itself against torch. Shapes: [M, K] @ [K, N] + [N].
"""

import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def persistent_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program p of P programs computes tiles p, p + P, p + 2P, …"""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row = tile // tiles_n * BLOCK_M
        column = tile % tiles_n * BLOCK_N
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([row, k])
            b = b_desc.load([k, column])
            accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        columns = column + tl.arange(0, BLOCK_N)
        accumulator += tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
        c_desc.store([row, column], tl.maximum(accumulator, 0.0).to(c_desc.dtype))


def linear_relu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Returns relu(a @ b + bias)."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    block_m, block_n, block_k = 32, 32, 32
    # On the CPU, a few programs are enough: then each program computes several tiles in its loop.
    at_once = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 3
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    persistent_kernel[(min(at_once, tiles),)](
        TensorDescriptor.from_tensor(a, [block_m, block_k]),
        TensorDescriptor.from_tensor(b, [block_k, block_n]),
        TensorDescriptor.from_tensor(c, [block_m, block_n]),
        bias, m, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
    )  # fmt: skip
    return c


def main() -> None:
    """Compares results with torch's, for sizes that are not multiples of the block sizes."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)):
        for m, n, k in ((77, 104, 72), (5, 200, 136)):
            a, b, bias = (torch.randn(shape, device=device).to(dtype) for shape in ((m, k), (k, n), (n,)))
            found = linear_relu(a, b, bias)
            expected = torch.relu(a.double() @ b.double() + bias.double())
            torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
            difference = (found - expected).abs().max().item()
            print(f"{dtype} [{m}, {k}] @ [{k}, {n}]: largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
