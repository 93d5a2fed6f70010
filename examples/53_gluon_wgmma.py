"""A matmul in Gluon by `wgmma`, the matrix instruction of Hopper: C = A @ B, fp16 with an fp32 accumulator.

```text
  A, B ──TMA──▶ ring of slots in shared memory ──wgmma──▶ accumulator in registers ──▶ shared memory ──TMA──▶ C

  step k      wait for the bytes of slot k
              start the dot of slot k              (asynchronous)
              wait for the dot of step k - 1       its slot is free again
              start the copies of step k + STAGES - 2, to a slot whose dot is done
```

The four warps of a warpgroup compute 64 rows together. The operands stay in shared memory, in the layout that the
tensor copies write; `permute` makes the transpose of a block of B an operand, without a copy. The accumulator is a tile
in `NVMMADistributedLayout([3, 0], …)`: while a dot is in flight, only `warpgroup_mma_wait` returns it.

Run it with `python examples/53_gluon_wgmma.py`; it checks itself against torch. Shapes: [M, K] @ [N, K].T.
"""

import torch
from tilewright.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 64, 64, 32, 4


@gluon.jit
def start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, bars, STAGES: gl.constexpr):
    """Starts the copies of the blocks of A and B of a step, if there is one; one barrier waits for both."""
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    is_there = step < steps
    slot = step % STAGES
    bar = bars.index(slot)
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(a_desc, [row, step * BLOCK_K], bar, a_smem.index(slot), pred=is_there)
    tma.async_load(b_desc, [column, step * BLOCK_K], bar, b_smem.index(slot), pred=is_there)


@gluon.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """A program computes a block of C."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], b_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(bars.index(stage), count=1)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    steps = gl.cdiv(K, BLOCK_K)
    for step in gl.static_range(STAGES - 2):
        start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, bars, STAGES)

    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, acc_layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(bars.index(slot), step // STAGES & 1)
        acc = warpgroup_mma(a_smem.index(slot), b_smem.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
        start_loads(a_desc, b_desc, row, column, step + STAGES - 2, steps, a_smem, b_smem, bars, STAGES)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(bars.index(stage))

    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(0)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B.T; the rows of both begin at multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    blocks = (a, [BLOCK_M, BLOCK_K]), (b, [BLOCK_N, BLOCK_K]), (c, [BLOCK_M, BLOCK_N])
    descriptors = [
        TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for tensor, block in blocks
    ]
    matmul_kernel[(triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))](*descriptors, k, STAGES)
    return c


def main() -> None:
    """Compare with torch, at sizes that are no multiples of the blocks."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda" and target.arch != 90:
        print("skipped: the GPU is not of the architecture Hopper")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((64, 64, 32), (100, 136, 232)):
        a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (n, k)))
        found, expected = matmul(a, b), a.double() @ b.double().T
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)
        print(f"[{m}, {k}] @ [{n}, {k}].T: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
