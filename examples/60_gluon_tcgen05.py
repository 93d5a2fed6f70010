"""A matmul in Gluon by `tcgen05`, the matrix instruction of Blackwell: C = A @ B, fp16 with an fp32 accumulator.

```text
  A, B ──TMA──▶ ring of slots in shared memory ──tcgen05──▶ accumulator in tensor memory
                                                                     │ load
                                      C ◀──TMA── shared memory ◀── registers

  step k      wait for the bytes of slot k
              start the dot of slot k; when it is complete, it arrives at empty[slot]
              wait until the dot of step k - 1 is complete
              start the copies of step k + STAGES - 1, to the slot of that dot
```

The accumulator is in tensor memory, which has 128 lanes and 512 columns of 32 bits: row r of C is in lane r. One thread
starts a dot, and dots execute in order, so a dot may use the accumulator of the one before it. The threads see the
result after they have waited for an mbarrier at which the dots arrive (`tcgen05_commit`). Each of the four warps then
loads its 32 lanes, a row for each thread, in the layout of `get_reg_layout`.

Run it with `tilewright run --device sim:sm_100 examples/60_gluon_tcgen05.py`; it checks itself against torch. Shapes:
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

BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 128, 64, 32, 3


@gluon.jit
def start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, full, STAGES: gl.constexpr):
    """Starts the copies of the blocks of A and B of a step, if there is one; one barrier waits for both."""
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    is_there = step < steps
    slot = step % STAGES
    mbarrier.expect(full.index(slot), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(a_desc, [row, step * BLOCK_K], full.index(slot), a_smem.index(slot), pred=is_there)
    tma.async_load(b_desc, [column, step * BLOCK_K], full.index(slot), b_smem.index(slot), pred=is_there)


@gluon.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    """A program computes a block of C."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], b_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    steps = gl.cdiv(K, BLOCK_K)
    for step in gl.static_range(STAGES - 1):
        start_loads(a_desc, b_desc, row, column, step, steps, a_smem, b_smem, full, STAGES)

    acc_layout: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
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
    if target.backend != "cuda" or target.arch not in (100, 103):
        print("skipped: the GPU is not of the architecture Blackwell")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((128, 64, 32), (200, 136, 232)):
        a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (n, k)))
        found, expected = matmul(a, b), a.double() @ b.double().T
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)
        print(f"[{m}, {k}] @ [{n}, {k}].T: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
