"""A matmul in Gluon by pairs of blocks on Blackwell: two multiprocessors compute a tile of C with one `tcgen05_mma`.

```text
  block 0   rows 0 to 127 of A       columns 0 to 31 of B      rows 0 to 127 of C       starts the dots of both
  block 1   rows 128 to 255 of A     columns 32 to 63 of B     rows 128 to 255 of C
                     │                        │
                     └── the copies of both blocks arrive at the barrier `full` of block 0
                                              │
       empty of block 0, empty of block 1 ◀── dot, when it is complete
```

Each block has half of A and half of B in its shared memory, and a dot reads the halves of both. So a block copies only
half of B: two blocks on their own would copy all of it twice. The layout of the accumulator states the pair
(`two_ctas=True`), and `cga_layout` divides its rows.

- The barriers `full` have `two_ctas=True`. The copies of both blocks arrive at that of block 0, which starts the dot
  after it has waited; the wait of block 1 returns at once.
- A dot arrives at the barriers `empty` of both blocks: each block fills its slot again after it has waited for its own.

The compiler inserts the barrier of the cluster after the initialization of barriers, and before the end of the program,
where the blocks free their tensor memory.

Run it with `tilewright run --device sim:sm_100 examples/64_gluon_pairs.py`; it checks itself against torch. Shapes:
[M, K] @ [N, K].T. It has run on the simulator only, not on a GPU.
"""

import torch
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)
from tilewright.experimental.gluon.nvidia.blackwell import TensorDescriptor

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 256, 64, 32, 3
HALVES = [[1, 0]]


@gluon.jit
def start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, full, STAGES: gl.constexpr):
    """Starts the copies of a step, if there is one: each block its half of A and of B."""
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    is_there = step < steps
    slot = step % STAGES
    bar = full.index(slot)
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(a_desc, [row, step * BLOCK_K], bar, a_smem.index(slot), pred=is_there)
    tma.async_load(b_desc, [column, step * BLOCK_K], bar, b_smem.index(slot), pred=is_there)


@gluon.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """A pair of blocks computes a tile of C, and each block half of the rows."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], b_desc.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=True)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    for stage in gl.static_range(STAGES):
        # One arrival of each block.
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    steps = gl.cdiv(K, BLOCK_K)
    for step in gl.static_range(STAGES - 1):
        start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, full, STAGES)

    acc_layout: gl.constexpr = TensorMemoryLayout([BLOCK_M // 2, BLOCK_N], 1, [[1, 0]], two_ctas=True)
    acc = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], acc_layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        b = b_smem.index(slot).permute((1, 0))
        tcgen05_mma(a_smem.index(slot), b, acc, use_acc=step > 0, mbarriers=[empty.index(slot)])
        before = step - 1
        mbarrier.wait(empty.index(before % STAGES), before // STAGES & 1, pred=step > 0)
        start_loads(a_desc, b_desc, row, column, step + STAGES - 1, steps, a_smem, b_smem, full, STAGES)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)

    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.load(acc.get_reg_layout()).to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(0)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B.T; the rows of both begin at multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    descriptors = []
    for tensor, block in ((a, [BLOCK_M, BLOCK_K]), (b, [BLOCK_N, BLOCK_K]), (c, [BLOCK_M, BLOCK_N])):
        layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16, cga_layout=HALVES)
        descriptors.append(TensorDescriptor.from_tensor(tensor, block, layout))
    grid = triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N)
    matmul_kernel[grid](*descriptors, k, STAGES, num_ctas=2)
    return c


def main() -> None:
    """Compare with torch, at sizes that are no multiples of the blocks."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend != "cuda" or target.arch not in (100, 103):
        print("skipped: the GPU is not of the architecture Blackwell")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((256, 64, 32), (300, 136, 232)):
        a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (n, k)))
        found, expected = matmul(a, b), a.double() @ b.double().T
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)
        print(f"[{m}, {k}] @ [{n}, {k}].T: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
