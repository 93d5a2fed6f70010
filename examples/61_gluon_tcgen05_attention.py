"""Attention in Gluon for Blackwell, with warps for each task and the probabilities in tensor memory.

```text
  worker, one warp      copies Q, then a block of K and of V for each slot
  worker, one warp      S = Q @ K.T             O = P @ V
  default, four warps           P = softmax(S)            O, rescaled, … and stored at the end

  tensor memory         S, a cell for each element        P, two elements in a cell       O
```

`tcgen05_mma` reads its left operand from tensor memory, so the probabilities never go through shared memory. A thread
of the default partition holds a row of S: the softmax needs no exchange between threads. The partitions hand over
tensor memory by mbarriers:

```text
  scores_full   a commit after S            p_full      an arrival after P and the rescaled O
  out_full      a commit after O, before the next rescaling; P and the slot are free as well
```

Run it with `tilewright run --device sim:sm_100 examples/61_gluon_tcgen05_attention.py`; it checks itself against torch.
It has run on the simulator only, not on a GPU.
"""

import math

import torch
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_mma,
    tma,
)
from tilewright.experimental.gluon.nvidia.blackwell import TensorDescriptor

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK_M, BLOCK_N, STAGES = 128, 64, 2


@gluon.jit
def load(
    q_desc, k_desc, v_desc, q_smem, k_smem, v_smem, q_full, full, empty, row, steps, STAGES: gl.constexpr
):
    """Starts the copies of Q, and of each block of K and V as soon as its slot is empty."""
    BLOCK_N: gl.constexpr = k_desc.block_shape[0]
    mbarrier.expect(q_full, q_desc.nbytes_per_cta)
    tma.async_load(q_desc, [row, 0], q_full, q_smem)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), k_desc.nbytes_per_cta + v_desc.nbytes_per_cta)
        tma.async_load(k_desc, [step * BLOCK_N, 0], full.index(slot), k_smem.index(slot))
        tma.async_load(v_desc, [step * BLOCK_N, 0], full.index(slot), v_smem.index(slot))


@gluon.jit
def multiply(
    q_smem,
    k_smem,
    v_smem,
    scores,
    p,
    out,
    q_full,
    full,
    empty,
    scores_full,
    p_full,
    out_full,
    steps,
    STAGES: gl.constexpr,
):
    """Starts the dots."""
    mbarrier.wait(q_full, 0)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        tcgen05_mma(
            q_smem, k_smem.index(slot).permute((1, 0)), scores, use_acc=False, mbarriers=[scores_full]
        )
        mbarrier.wait(p_full, step & 1)
        tcgen05_mma(p, v_smem.index(slot), out, use_acc=step > 0, mbarriers=[out_full, empty.index(slot)])


@gluon.jit
def softmax(o_desc, scores, p, out, scores_full, p_full, out_full, row, steps, scale):
    """Computes the probabilities of each block, and the result."""
    layout: gl.constexpr = scores.get_reg_layout()
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    out_layout: gl.constexpr = out.get_reg_layout()
    highest = gl.full([scores.shape[0]], float("-inf"), gl.float32, rows)
    total = gl.zeros([scores.shape[0]], gl.float32, rows)
    for step in range(steps):
        mbarrier.wait(scores_full, step & 1)
        s = scores.load(layout) * scale
        higher = gl.maximum(highest, gl.max(s, axis=1))
        weights = gl.exp2(s - higher[:, None])
        factor = gl.exp2(highest - higher)
        total = total * factor + gl.sum(weights, axis=1)
        highest = higher
        if step > 0:
            mbarrier.wait(out_full, (step - 1) & 1)
            rescaled = gl.convert_layout(factor, gl.SliceLayout(1, out_layout))
            out.store(out.load(out_layout) * rescaled[:, None])
        p.store(gl.convert_layout(weights.to(p.dtype), p.get_reg_layout()))
        mbarrier.arrive(p_full, count=1)
    mbarrier.wait(out_full, (steps - 1) & 1)
    last = gl.convert_layout(total, gl.SliceLayout(1, out_layout))
    o_smem = gl.allocate_shared_memory(o_desc.dtype, o_desc.block_shape, o_desc.layout)
    o_smem.store((out.load(out_layout) / last[:, None]).to(o_desc.dtype))
    fence_async_shared()
    tma.async_store(o_desc, [row, 0], o_smem)
    tma.store_wait(0)


@gluon.jit
def attention_kernel(q_desc, k_desc, v_desc, o_desc, length, scale, STAGES: gl.constexpr):
    """A program computes the result of a block of rows of Q."""
    BLOCK_M: gl.constexpr = q_desc.block_shape[0]
    D: gl.constexpr = q_desc.block_shape[1]
    BLOCK_N: gl.constexpr = k_desc.block_shape[0]
    q_smem = gl.allocate_shared_memory(q_desc.dtype, [BLOCK_M, D], q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [STAGES, BLOCK_N, D], k_desc.layout)
    v_smem = gl.allocate_shared_memory(v_desc.dtype, [STAGES, BLOCK_N, D], v_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    q_full, scores_full = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    p_full, out_full = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(q_full, count=1)
    mbarrier.init(scores_full, count=1)
    mbarrier.init(p_full, count=1)
    mbarrier.init(out_full, count=1)
    scores = allocate_tensor_memory(
        gl.float32, [BLOCK_M, BLOCK_N], TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    )
    p = allocate_tensor_memory(
        v_desc.dtype, [BLOCK_M, BLOCK_N], TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    )
    out = allocate_tensor_memory(gl.float32, [BLOCK_M, D], TensorMemoryLayout([BLOCK_M, D], col_stride=1))
    row = gl.program_id(0) * BLOCK_M
    steps = gl.cdiv(length, BLOCK_N)
    gl.warp_specialize(
        [
            (softmax, (o_desc, scores, p, out, scores_full, p_full, out_full, row, steps, scale)),
            (load, (q_desc, k_desc, v_desc, q_smem, k_smem, v_smem, q_full, full, empty, row, steps, STAGES)),
            (
                multiply,
                (
                    q_smem,
                    k_smem,
                    v_smem,
                    scores,
                    p,
                    out,
                    q_full,
                    full,
                    empty,
                    scores_full,
                    p_full,
                    out_full,
                    steps,
                    STAGES,
                ),
            ),
        ],
        worker_num_warps=[1, 1],
    )


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """softmax(q @ k.T / sqrt(D)) @ v; the number of keys is a multiple of 64."""
    d, out = q.shape[1], torch.empty_like(q)
    blocks = (q, [BLOCK_M, d]), (k, [BLOCK_N, d]), (v, [BLOCK_N, d]), (out, [BLOCK_M, d])
    descriptors = [
        TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for tensor, block in blocks
    ]
    scale = 1 / math.sqrt(d) / math.log(2)
    attention_kernel[(triton.cdiv(q.shape[0], BLOCK_M),)](*descriptors, k.shape[0], scale, STAGES)
    return out


def main() -> None:
    """Compare with torch."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend != "cuda" or target.arch not in (100, 103):
        print("skipped: the GPU is not of the architecture Blackwell")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, d in ((128, 64, 32), (200, 256, 64)):
        q, k, v = (torch.randn(rows, d, device=device).half() for rows in (m, n, n))
        found = attention(q, k, v)
        expected = torch.softmax(q.double() @ k.double().T / math.sqrt(d), 1) @ v.double()
        torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)
        print(f"{m} queries, {n} keys of {d}: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
