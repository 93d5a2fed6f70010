"""Partitions of warps in Gluon: one warp loads the operands of a matmul, and four compute.

```text
  worker, one warp       wait until a slot is empty, start its copies        wait …        wait …
  default, four warps                  wait until the slot is full, wgmma, release the slot

  full[slot]    one arrival, and the bytes of two copies
  empty[slot]   one arrival, of the consumer
```

`warp_specialize` runs its first function in the warps of the kernel, and each further one in warps of its own. The
partitions share memory and barriers only: the producer waits for `empty`, and the consumer for `full`. An `empty`
barrier has no arrivals at first, so the first wait of the producer is for the phase before the first one: parity 1.
Neither partition waits for a step of the other that it does not need, and the copies run ahead by as many slots as are
empty.

Run it with `python examples/57_gluon_warp_specialize.py`; it checks itself against torch. Shapes: [M, K] @ [N, K].T.
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

BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 64, 64, 32, 3


@gluon.jit
def produce(a_desc, b_desc, a_smem, b_smem, full, empty, row, column, steps, STAGES: gl.constexpr):
    """Starts the copies of each step as soon as its slot is empty."""
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [row, step * BLOCK_K], full.index(slot), a_smem.index(slot))
        tma.async_load(b_desc, [column, step * BLOCK_K], full.index(slot), b_smem.index(slot))


@gluon.jit
def consume(c_desc, a_smem, b_smem, full, empty, row, column, steps, STAGES: gl.constexpr):
    """Multiplies the blocks of each step as soon as they are there, and stores the result."""
    BLOCK_M: gl.constexpr = c_desc.block_shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_shape[1]
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, acc_layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        acc = warpgroup_mma(a_smem.index(slot), b_smem.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index(slot))
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(0)


@gluon.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """A program computes a block of C."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], b_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    steps = gl.cdiv(K, BLOCK_K)
    gl.warp_specialize(
        [
            (consume, (c_desc, a_smem, b_smem, full, empty, row, column, steps, STAGES)),
            (produce, (a_desc, b_desc, a_smem, b_smem, full, empty, row, column, steps, STAGES)),
        ],
        worker_num_warps=[1],
        worker_num_regs=[24],
    )


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
