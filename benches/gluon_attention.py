"""Attention forward in Gluon: copies into rings, and the scores of the next block beside the softmax of this one.

The order of the dots is that of FlashAttention-3 inside a warpgroup (Shah et al. 2024, section 3.2).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def load(desc, row, bar, memory, pred):
    """Starts the copy of a block of rows, if `pred`."""
    mbarrier.expect(bar, desc.block_type.nbytes, pred=pred)
    tma.async_copy_global_to_shared(desc, [row, 0], bar, memory, pred=pred)


@gluon.jit
def attention(
    q_desc, k_desc, v_desc, out_desc, length, scale,
    STAGES: gl.constexpr, IS_CAUSAL: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """softmax(Q @ K.T * scale) @ V for the block of queries of a program; `scale` is for base 2."""
    BLOCK_M: gl.constexpr = q_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = k_desc.block_type.shape[0]
    D: gl.constexpr = q_desc.block_type.shape[1]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    q_memory = gl.allocate_shared_memory(gl.float16, [BLOCK_M, D], q_desc.layout)
    k_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BLOCK_N, D], k_desc.layout)
    v_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BLOCK_N, D], v_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2 * STAGES + 1, 1], mbarrier.MBarrierLayout())
    for bar in gl.static_range(2 * STAGES + 1):
        mbarrier.init(bars.index(bar), count=1)
    q_bar = bars.index(2 * STAGES)

    # The programs with the most keys begin first.
    block = gl.num_programs(0) - 1 - gl.program_id(0) if IS_CAUSAL else gl.program_id(0)
    start = block * BLOCK_M
    first = gl.program_id(1) * length
    end = start + BLOCK_M if IS_CAUSAL else length
    blocks = gl.cdiv(end, BLOCK_N)
    load(q_desc, first + start, q_bar, q_memory, True)
    load(k_desc, first, bars.index(0), k_memory.index(0), True)
    for stage in gl.static_range(STAGES - 1):
        row = first + (stage + 1) * BLOCK_N
        load(k_desc, row, bars.index(stage + 1), k_memory.index(stage + 1), stage + 1 < blocks)
        row = first + stage * BLOCK_N
        load(v_desc, row, bars.index(STAGES + stage), v_memory.index(stage), stage < blocks)

    mbarrier.wait(q_bar, 0)
    mbarrier.wait(bars.index(0), 0)
    zeros = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, s_layout)
    rows = start + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, s_layout))
    largest = gl.full([BLOCK_M], float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
    total = gl.zeros([BLOCK_M], gl.float32, gl.SliceLayout(1, s_layout))
    out = gl.zeros([BLOCK_M, D], gl.float32, o_layout)
    scores = warpgroup_mma(q_memory, k_memory.index(0).permute((1, 0)), zeros, use_acc=False)
    for turn in range(blocks):
        # Every warp has read the block of keys of this turn: its slot is free.
        slot = turn % STAGES
        k_turn = turn + STAGES
        load(k_desc, first + k_turn * BLOCK_N, bars.index(slot), k_memory.index(slot), k_turn < blocks)
        v_turn = turn + STAGES - 1
        v_slot = v_turn % STAGES
        load(
            v_desc,
            first + v_turn * BLOCK_N,
            bars.index(STAGES + v_slot),
            v_memory.index(v_slot),
            v_turn < blocks,
        )
        columns = turn * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, s_layout))
        if IS_CAUSAL and (turn + 1) * BLOCK_N > start:
            scores = gl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        next_slot = gl.minimum(turn + 1, blocks - 1) % STAGES
        if turn + 1 < blocks:
            mbarrier.wait(bars.index(next_slot), (turn + 1) // STAGES % 2)
        # After the last block, this dot reads that block again, and its result is unused.
        next_scores = warpgroup_mma(
            q_memory, k_memory.index(next_slot).permute((1, 0)), zeros, use_acc=False, is_async=True
        )
        next_largest = gl.maximum(largest, gl.max(scores, axis=1) * scale)
        p = gl.exp2(scores * scale - next_largest[:, None])
        alpha = gl.exp2(largest - next_largest)
        total = total * alpha + gl.sum(p, axis=1)
        largest = next_largest
        out *= gl.convert_layout(alpha, gl.SliceLayout(1, o_layout))[:, None]
        p = gl.convert_layout(p.to(gl.float16), p_layout)
        mbarrier.wait(bars.index(STAGES + slot), turn // STAGES % 2)
        out = warpgroup_mma(p, v_memory.index(slot), out, is_async=True)
        scores, out = warpgroup_mma_wait(num_outstanding=0, deps=(next_scores, out))

    out /= gl.convert_layout(total, gl.SliceLayout(1, o_layout))[:, None]
    q_memory.store(out.to(gl.float16))
    fence_async_shared()
    tma.async_copy_shared_to_global(out_desc, [first + start, 0], q_memory)
    tma.store_wait(0)
