"""A pipeline of tensor copies (TMA) in Gluon: one thread starts a copy of a block, and a barrier says when it is there.

```text
  TMA      load 0   load 1   load 2              load 3   store 0           load 4   store 1
  threads                    wait 0   compute 0           wait 1   compute 1
```

A load names a descriptor, the coordinates of a block, shared memory, and an `mbarrier`: first `expect` tells the
barrier how many bytes will arrive. Its phase ends with the last byte, so the k-th use of a barrier waits for the parity
of k. A store reads shared memory after the threads have written it: `fence_async_shared` orders the two, and
`store_wait(1)` lets one store run while its memory's neighbor is filled.

Run it with `python examples/52_gluon_tma_pipeline.py`; it checks itself against torch. Shapes: [M, N].
"""

import torch
from tilewright.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK_M, BLOCK_N, STAGES = 32, 64, 3


@gluon.jit
def start_load(x_desc, smem, bars, row, step, steps, STAGES: gl.constexpr):
    """Starts the load of a block of columns to its slot, if there is one."""
    is_there = step < steps
    slot = step % STAGES
    mbarrier.expect(bars.index(slot), x_desc.nbytes_per_cta, pred=is_there)
    column = step * x_desc.block_shape[1]
    tma.async_load(x_desc, [row, column], bars.index(slot), smem.index(slot), pred=is_there)


@gluon.jit
def silu_kernel(x_desc, out_desc, N, STAGES: gl.constexpr):
    """x * sigmoid(x) of the rows of a block, which a program visits from left to right."""
    BLOCK_M: gl.constexpr = x_desc.block_shape[0]
    BLOCK_N: gl.constexpr = x_desc.block_shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    x_smem = gl.allocate_shared_memory(x_desc.dtype, [STAGES, BLOCK_M, BLOCK_N], x_desc.layout)
    out_smem = gl.allocate_shared_memory(out_desc.dtype, [2, BLOCK_M, BLOCK_N], out_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(bars.index(stage), count=1)
    row = gl.program_id(0) * BLOCK_M
    steps = gl.cdiv(N, BLOCK_N)
    for step in gl.static_range(STAGES - 1):
        start_load(x_desc, x_smem, bars, row, step, steps, STAGES)
    for step in range(steps):
        start_load(x_desc, x_smem, bars, row, step + STAGES - 1, steps, STAGES)
        slot = step % STAGES
        mbarrier.wait(bars.index(slot), step // STAGES & 1)
        x = x_smem.index(slot).load(layout).to(gl.float32)
        y = x / (1 + gl.exp(-x))
        # At most the store of the last step may still read, and it reads the other memory.
        tma.store_wait(1)
        out_smem.index(step % 2).store(y.to(out_desc.dtype))
        fence_async_shared()
        tma.async_store(out_desc, [row, step * BLOCK_N], out_smem.index(step % 2))
    tma.store_wait(0)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(bars.index(stage))


def silu(x: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(x)."""
    out = torch.empty_like(x)
    layout = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_N], gl.float16)
    descriptors = [TensorDescriptor.from_tensor(each, [BLOCK_M, BLOCK_N], layout) for each in (x, out)]
    silu_kernel[(triton.cdiv(x.shape[0], BLOCK_M),)](*descriptors, x.shape[1], STAGES)
    return out


def main() -> None:
    """Compare with torch, at sizes that are no multiples of the blocks."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda" and target.arch != 90:
        print("skipped: the GPU is not of the architecture Hopper")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n in ((64, 64), (50, 456)):
        x = torch.randn(m, n, device=device).half()
        out, expected = silu(x), torch.nn.functional.silu(x.float())
        torch.testing.assert_close(out.float(), expected, rtol=2e-3, atol=1e-3)
        print(f"[{m}, {n}]: largest difference {(out - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
