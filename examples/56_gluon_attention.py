"""Attention in Gluon, forward: FlashAttention-2 by `wgmma`, with the probabilities and the accumulator in registers.

```text
  Q ──TMA──▶ shared memory, once
  K, V ──TMA──▶ a ring of slots, one block of keys a step

  S = Q @ Kᵀ           wgmma, both operands in shared memory
  m, P, l              the online softmax: the largest score so far, the probabilities, their sum
  O = O * alpha + P @ V    wgmma, P from registers
```

The result of a dot and the left operand of the next dot have different layouts, but the same elements in the same
threads: `convert_layout` of the probabilities to a `DotOperandLayout` only renames registers. The tiles S and O have
different widths, so `alpha` is converted from the slice of S to the slice of O.

Run it with `python examples/56_gluon_attention.py`; it checks itself against torch. Shapes: [batch * heads, length, D].
"""

import torch
from tilewright.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK_M, BLOCK_N, STAGES = 64, 32, 2


@gluon.jit
def start_loads(k_desc, v_desc, first, step, steps, k_smem, v_smem, k_bars, v_bars, STAGES: gl.constexpr):
    """Starts the copies of the keys and values of a step, if there is one; each has a barrier of its own."""
    BLOCK_N: gl.constexpr = k_desc.block_shape[0]
    is_there = step < steps
    slot = step % STAGES
    row = first + step * BLOCK_N
    mbarrier.expect(k_bars.index(slot), k_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(k_desc, [row, 0], k_bars.index(slot), k_smem.index(slot), pred=is_there)
    mbarrier.expect(v_bars.index(slot), v_desc.nbytes_per_cta, pred=is_there)
    tma.async_load(v_desc, [row, 0], v_bars.index(slot), v_smem.index(slot), pred=is_there)


@gluon.jit
def attention_kernel(
    q_desc, k_desc, v_desc, out_desc, length, scale, STAGES: gl.constexpr, IS_CAUSAL: gl.constexpr
):  # fmt: skip
    """A program has BLOCK_M queries of a head, and visits the keys of the head in blocks. `scale` is for base 2."""
    BLOCK_M: gl.constexpr = q_desc.block_shape[0]
    BLOCK_N: gl.constexpr = k_desc.block_shape[0]
    D: gl.constexpr = q_desc.block_shape[1]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)

    q_smem = gl.allocate_shared_memory(q_desc.dtype, q_desc.block_shape, q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [STAGES, BLOCK_N, D], k_desc.layout)
    v_smem = gl.allocate_shared_memory(v_desc.dtype, [STAGES, BLOCK_N, D], v_desc.layout)
    q_bar = mbarrier.allocate_mbarrier()
    k_bars, v_bars = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    mbarrier.init(q_bar, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_bars.index(stage), count=1)
        mbarrier.init(v_bars.index(stage), count=1)

    start = gl.program_id(0) * BLOCK_M
    first = gl.program_id(1) * length
    end = gl.minimum(length, start + BLOCK_M) if IS_CAUSAL else length
    steps = gl.cdiv(end, BLOCK_N)
    mbarrier.expect(q_bar, q_desc.nbytes_per_cta)
    tma.async_load(q_desc, [first + start, 0], q_bar, q_smem)
    for step in gl.static_range(STAGES - 1):
        start_loads(k_desc, v_desc, first, step, steps, k_smem, v_smem, k_bars, v_bars, STAGES)
    mbarrier.wait(q_bar, 0)

    rows = start + gl.arange(0, BLOCK_M, layout=row_layout)
    largest = gl.full([BLOCK_M], float("-inf"), gl.float32, row_layout)
    total = gl.zeros([BLOCK_M], gl.float32, row_layout)
    out = gl.zeros([BLOCK_M, D], gl.float32, o_layout)
    for step in range(steps):
        start_loads(k_desc, v_desc, first, step + STAGES - 1, steps, k_smem, v_smem, k_bars, v_bars, STAGES)
        slot, phase = step % STAGES, step // STAGES & 1
        mbarrier.wait(k_bars.index(slot), phase)
        zeros = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, s_layout)
        scores = warpgroup_mma(q_smem, k_smem.index(slot).permute((1, 0)), zeros) * scale
        columns = step * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, s_layout))
        mask = (columns < length)[None, :]
        if IS_CAUSAL:
            mask &= rows[:, None] >= columns[None, :]
        scores = gl.where(mask, scores, float("-inf"))
        next_largest = gl.maximum(largest, gl.max(scores, axis=1))
        p = gl.exp2(scores - next_largest[:, None])
        alpha = gl.exp2(largest - next_largest)
        total = total * alpha + gl.sum(p, axis=1)
        largest = next_largest
        out *= gl.convert_layout(alpha, gl.SliceLayout(1, o_layout))[:, None]
        mbarrier.wait(v_bars.index(slot), phase)
        p = gl.convert_layout(p.to(v_desc.dtype), p_layout)
        out = warpgroup_mma(p, v_smem.index(slot), out)

    mbarrier.invalidate(q_bar)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(k_bars.index(stage))
        mbarrier.invalidate(v_bars.index(stage))
    out /= gl.convert_layout(total, gl.SliceLayout(1, o_layout))[:, None]
    # The queries are not needed any more.
    q_smem.store(out.to(q_desc.dtype))
    fence_async_shared()
    tma.async_store(out_desc, [first + start, 0], q_smem)
    tma.store_wait(0)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """softmax(Q @ K.T / sqrt(D)) @ V of each head; the length is a multiple of BLOCK_M."""
    heads, length, d = q.shape
    out = torch.empty_like(q)
    descriptors = []
    for tensor, rows in ((q, BLOCK_M), (k, BLOCK_N), (v, BLOCK_N), (out, BLOCK_M)):
        layout = gl.NVMMASharedLayout.get_default_for([rows, d], gl.float16)
        descriptors.append(TensorDescriptor.from_tensor(tensor.view(-1, d), [rows, d], layout))
    grid = (triton.cdiv(length, BLOCK_M), heads)
    attention_kernel[grid](*descriptors, length, d**-0.5 * 1.44269504, STAGES, is_causal)
    return out


def main() -> None:
    """Compare with torch."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda" and target.arch != 90:
        print("skipped: the GPU is not of the architecture Hopper")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for heads, length, d in ((1, 64, 64), (2, 128, 64)):
        q, k, v = (torch.randn(heads, length, d, device=device).half() for _ in range(3))
        for is_causal in (False, True):
            found = attention(q, k, v, is_causal).float()
            expected = torch.nn.functional.scaled_dot_product_attention(
                q.float(), k.float(), v.float(), is_causal=is_causal
            )
            torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)
            kind = "causal" if is_causal else "full"
            difference = (found - expected).abs().max().item()
            print(f"{heads} heads, {length} x {d}, {kind}: largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
