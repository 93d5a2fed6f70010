"""A matmul of clusters in Gluon: two blocks compute 128 rows of C, and one copy of B is for both.

```text
  block 0    copies rows 0 to 63 of A       copies B to both blocks       dot    arrives at the barrier of block 0
  block 1    copies rows 64 to 127 of A                                   dot    arrives at the barrier of block 0
```

With `num_ctas=2`, two blocks run a program together. `cga_layout` of a layout says which part of a tile each of them
holds: [[1, 0]] divides the rows, and with [[0, 0]] both hold all of it. `multicast=True` copies such a tile once for
all blocks that hold it, and its bytes arrive at the barrier of each, which waits for them as for its own.

Block 0 may copy to a slot only after both blocks have read it. So the barriers `empty` have the `cga_layout` [[0]]:
both blocks arrive at that of block 0, and only block 0 waits. The compiler inserts the barrier of the cluster after
the initialization of barriers, and before the end of the program; everything else the program states.

Run it with `python examples/59_gluon_clusters.py`; it checks itself against torch. Shapes: [M, K] @ [N, K].T.
"""

import torch
from tilewright.experimental.gluon.language.nvidia.hopper import (
    cluster,
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

BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 128, 64, 32, 3


@gluon.jit
def start_loads(a_desc, b_desc, step, is_there, a_smem, b_smem, full, STAGES: gl.constexpr):
    """Starts the copies of a step: each block its rows of A, block 0 all of B for both blocks."""
    slot = step % STAGES
    bar = full.index(slot)
    k = step * a_desc.block_shape[1]
    row, column = gl.program_id(0) * a_desc.block_shape[0], gl.program_id(1) * b_desc.block_shape[0]
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(a_desc, [row, k], bar, a_smem.index(slot), pred=is_there)
    tma.async_load(b_desc, [column, k], bar, b_smem.index(slot), pred=is_there, multicast=True)


@gluon.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """Each cluster computes a tile of C, and each of its blocks half of the rows."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], b_desc.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    shared: gl.constexpr = mbarrier.MBarrierLayout(cga_layout=[[0]])
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], shared)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        # One arrival of each block.
        mbarrier.init(empty.index(stage), count=1)
    steps = gl.cdiv(K, BLOCK_K)
    for step in gl.static_range(STAGES - 1):
        start_loads(a_desc, b_desc, step, step < steps, a_smem, b_smem, full, STAGES)

    acc_layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, BLOCK_N, 16], cga_layout=[[1, 0]]
    )
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, acc_layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        acc = warpgroup_mma(a_smem.index(slot), b_smem.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
        # The dot of the last step has read its slot; the other block may still read its own.
        ahead = step + STAGES - 1
        bar = empty.index(ahead % STAGES)
        mbarrier.arrive(bar, count=1, pred=step > 0)
        mbarrier.wait(bar, (ahead // STAGES & 1) ^ 1, pred=step > 0)
        start_loads(a_desc, b_desc, ahead, ahead < steps, a_smem, b_smem, full, STAGES)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))

    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N], c_smem)
    tma.store_wait(0)
    # The copies that one block starts arrive at the barriers of both.
    cluster.barrier()
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(stage))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B.T; the rows of both begin at multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    rows, all_of_it = [[1, 0]], [[0, 0]]
    blocks = (
        (a, [BLOCK_M, BLOCK_K], rows),
        (b, [BLOCK_N, BLOCK_K], all_of_it),
        (c, [BLOCK_M, BLOCK_N], rows),
    )
    descriptors = []
    for tensor, block, cga_layout in blocks:
        layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16, cga_layout=cga_layout)
        descriptors.append(TensorDescriptor.from_tensor(tensor, block, layout))
    grid = triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N)
    matmul_kernel[grid](*descriptors, k, STAGES, num_ctas=2)
    return c


def main() -> None:
    """Compare with torch, at sizes that are no multiples of the blocks."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda" and target.arch != 90:
        print("skipped: the GPU is not of the architecture Hopper")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((128, 64, 128), (200, 136, 232)):
        a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (n, k)))
        found, expected = matmul(a, b), a.double() @ b.double().T
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)
        print(f"[{m}, {k}] @ [{n}, {k}].T: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
