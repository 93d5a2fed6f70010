"""A persistent matmul in Gluon whose programs take over the tiles of programs that have not begun: C = A @ B, fp16.

```text
  grid: a program for each tile          began: ■■■■■■    not begun: □□□□□□□□□□
                                                │ clc.try_cancel       │
                                                └──────────────────────┘
  a program   request the next tile      the response arrives at an mbarrier
              compute the own tile       while the request is in flight
              wait for the response      canceled: the program has one more tile
                                         not canceled: each program has begun, so this one ends
```

A grid of as many programs as multiprocessors needs a rule that gives each program its tiles. Here the grid has a
program for each tile, and the GPU gives them out: `clc.try_cancel` cancels a program that has not begun, and the
response says which. So a program that began late, or that runs beside another kernel, computes fewer tiles. The ring of
slots, the mbarriers and tensor memory serve all tiles of a program, and one counter of steps goes on from tile to tile.
Only the response of the last request says that no program was left; a program must not request after it.

Run it with `tilewright run --device sim:sm_100 examples/63_gluon_cluster_launch_control.py`; it checks itself against
torch. Shapes: [M, K] @ [N, K].T. It has run on the simulator only, not on a GPU.
"""

import torch
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
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
def start_loads(a_desc, b_desc, row, column, step, steps, number, a_smem, b_smem, full, STAGES: gl.constexpr):
    """Starts the copies of a step of a tile, if there is one; `number` counts the steps of all tiles."""
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    is_there = step < steps
    slot = number % STAGES
    mbarrier.expect(full.index(slot), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(a_desc, [row, step * BLOCK_K], full.index(slot), a_smem.index(slot), pred=is_there)
    tma.async_load(b_desc, [column, step * BLOCK_K], full.index(slot), b_smem.index(slot), pred=is_there)


@gluon.jit
def matmul_kernel(a_desc, b_desc, c_desc, tiles_ptr, K, STAGES: gl.constexpr):
    """A program computes its block of C, and those of the programs that it takes over."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    response = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    done, ready = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    mbarrier.init(ready, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    acc_layout: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    acc = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], acc_layout)

    steps = gl.cdiv(K, BLOCK_K)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    tiles = 0
    has_work = True
    while has_work:
        clc.try_cancel(response, ready)
        mbarrier.expect(ready, 16)
        first = tiles * steps
        for step in gl.static_range(STAGES - 1):
            start_loads(a_desc, b_desc, row, column, step, steps, first + step, a_smem, b_smem, full, STAGES)
        for step in range(steps):
            number = first + step
            slot = number % STAGES
            mbarrier.wait(full.index(slot), number // STAGES & 1)
            b = b_smem.index(slot).permute((1, 0))
            tcgen05_mma(a_smem.index(slot), b, acc, use_acc=step > 0, mbarriers=[empty.index(slot)])
            # The slot of the dot before gets the next blocks.
            before, later = number - 1, STAGES - 1
            mbarrier.wait(empty.index(before % STAGES), before // STAGES & 1, pred=step > 0)
            start_loads(
                a_desc, b_desc, row, column, step + later, steps, number + later, a_smem, b_smem, full, STAGES
            )
        tcgen05_commit(done)
        mbarrier.wait(done, tiles & 1)
        tma.store_wait(0)
        c_smem.store(acc.load(acc.get_reg_layout()).to(c_desc.dtype))
        fence_async_shared()
        tma.async_store(c_desc, [row, column], c_smem)

        mbarrier.wait(ready, tiles & 1)
        tiles += 1
        result = clc.load_result(response)
        has_work = result.is_canceled()
        row, column = result.program_id(0) * BLOCK_M, result.program_id(1) * BLOCK_N
    tma.store_wait(0)
    gl.store(tiles_ptr + gl.program_id(1) * gl.num_programs(0) + gl.program_id(0), tiles)


def matmul(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A @ B.T, and the number of tiles of each program; the rows of A and B begin at multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    blocks = (a, [BLOCK_M, BLOCK_K]), (b, [BLOCK_N, BLOCK_K]), (c, [BLOCK_M, BLOCK_N])
    descriptors = [
        TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for tensor, block in blocks
    ]
    grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))
    tiles = torch.zeros(grid[0] * grid[1], dtype=torch.int32, device=a.device)
    matmul_kernel[grid](*descriptors, tiles, k, STAGES)
    return c, tiles


def main() -> None:
    """Compare with torch, at sizes that are no multiples of the blocks."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend != "cuda" or target.arch not in (100, 103):
        print("skipped: the GPU is not of the architecture Blackwell")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((128, 64, 32), (1000, 1160, 104)):
        a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (n, k)))
        (found, tiles), expected = matmul(a, b), a.double() @ b.double().T
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)
        torch.testing.assert_close(tiles.sum().item(), tiles.numel())
        print(f"[{m}, {k}] @ [{n}, {k}].T: {tiles.numel()} tiles by {int((tiles > 0).sum())} programs")


if __name__ == "__main__":
    main()
