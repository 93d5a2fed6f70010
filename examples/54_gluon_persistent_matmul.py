"""A persistent matmul in Gluon: a program computes many tiles of C, and its pipeline never runs empty between them.

```text
  step of the ring    0  1  2  3  4  5  6  7  8 …             a step is a block of K of a tile
  tile                A  A  A  A  B  B  B  B  C …
  copies in flight       two steps ahead of the dots, over the border of a tile
  store of a tile                    A           B …          while the dots of the next tile run
```

The step of the ring goes on from tile to tile, and says which slot it uses and with which parity. The copies that it
starts are those of a later step, which may belong to the next tile. After the last step of a tile, the accumulator goes
to shared memory and from there to C, and `store_wait` comes only before the next use of this memory.

Run it with `python examples/54_gluon_persistent_matmul.py`; it checks itself against torch. Shapes: [M, K] @ [N, K].T.
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
def tile_of(step, steps_of_a_tile, tiles_n, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """The first row and column of the tile of a step: each program has every P-th tile."""
    tile = gl.program_id(0) + step // steps_of_a_tile * gl.num_programs(0)
    return tile // tiles_n * BLOCK_M, tile % tiles_n * BLOCK_N


@gluon.jit
def start_loads(
    a_desc, b_desc, step, steps, steps_of_a_tile, tiles_n, a_smem, b_smem, bars, STAGES: gl.constexpr
):  # fmt: skip
    """Starts the copies of a step, if there is one."""
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    row, column = tile_of(step, steps_of_a_tile, tiles_n, a_desc.block_shape[0], b_desc.block_shape[0])
    is_there = step < steps
    slot = step % STAGES
    bar = bars.index(slot)
    k = step % steps_of_a_tile * BLOCK_K
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(a_desc, [row, k], bar, a_smem.index(slot), pred=is_there)
    tma.async_load(b_desc, [column, k], bar, b_smem.index(slot), pred=is_there)


@gluon.jit
def persistent_kernel(a_desc, b_desc, c_desc, M, N, K, STAGES: gl.constexpr):
    """Each program computes the tiles p, p + P, p + 2P, … of the P programs."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(bars.index(stage), count=1)
    tiles_n = gl.cdiv(N, BLOCK_N)
    tiles = gl.cdiv(M, BLOCK_M) * tiles_n
    steps_of_a_tile = gl.cdiv(K, BLOCK_K)
    steps = gl.cdiv(tiles - gl.program_id(0), gl.num_programs(0)) * steps_of_a_tile
    for ahead in gl.static_range(STAGES - 2):
        start_loads(a_desc, b_desc, ahead, steps, steps_of_a_tile, tiles_n, a_smem, b_smem, bars, STAGES)

    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    for first in range(0, steps, steps_of_a_tile):
        acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, acc_layout)
        for step in range(first, first + steps_of_a_tile):
            slot = step % STAGES
            mbarrier.wait(bars.index(slot), step // STAGES & 1)
            acc = warpgroup_mma(a_smem.index(slot), b_smem.index(slot).permute((1, 0)), acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            start_loads(
                a_desc, b_desc, step + STAGES - 2, steps, steps_of_a_tile, tiles_n, a_smem, b_smem, bars, STAGES
            )  # fmt: skip
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        # The store of the last tile has read the memory.
        tma.store_wait(0)
        c_smem.store(acc.to(c_desc.dtype))
        fence_async_shared()
        row, column = tile_of(first, steps_of_a_tile, tiles_n, BLOCK_M, BLOCK_N)
        tma.async_store(c_desc, [row, column], c_smem)
    tma.store_wait(0)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(bars.index(stage))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B.T; the rows of both begin at multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    blocks = (a, [BLOCK_M, BLOCK_K]), (b, [BLOCK_N, BLOCK_K]), (c, [BLOCK_M, BLOCK_N])
    descriptors = [
        TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for tensor, block in blocks
    ]
    # Few on the CPU, so that each has several tiles and the loop is worth its name.
    at_once = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 2
    tiles = triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N)
    persistent_kernel[(min(at_once, tiles),)](*descriptors, m, n, k, STAGES)
    return c


def main() -> None:
    """Compare with torch, at sizes that are no multiples of the blocks."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda" and target.arch != 90:
        print("skipped: the GPU is not of the architecture Hopper")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((128, 128, 64), (100, 136, 232)):
        a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (n, k)))
        found, expected = matmul(a, b), a.double() @ b.double().T
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)
        print(f"[{m}, {k}] @ [{n}, {k}].T: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
