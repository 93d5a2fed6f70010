"""A matmul in Gluon: tensor copies into a ring, and `wgmma` with the last dot in flight."""

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
def issue(a_desc, b_desc, m, n, turn, K, bars, a_memory, b_memory, STAGES: gl.constexpr):
    """Starts the copies of the blocks of A and B of a turn, if there is one."""
    BK: gl.constexpr = a_desc.block_type.shape[1]
    there = turn * BK < K
    slot = turn % STAGES
    mbarrier.expect(bars.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=there)
    tma.async_copy_global_to_shared(
        a_desc, [m, turn * BK], bars.index(slot), a_memory.index(slot), pred=there
    )
    tma.async_copy_global_to_shared(
        b_desc, [n, turn * BK], bars.index(slot), b_memory.index(slot), pred=there
    )


@gluon.jit
def matmul(
    a_desc, b_desc, c_desc, M, N, K, STAGES: gl.constexpr, GROUP: gl.constexpr, num_warps: gl.constexpr
):  # fmt: skip
    """C = A @ B.T, in groups of GROUP rows of blocks."""
    BM: gl.constexpr = a_desc.block_type.shape[0]
    BK: gl.constexpr = a_desc.block_type.shape[1]
    BN: gl.constexpr = b_desc.block_type.shape[0]
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BN, 16]
    )
    a_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], a_desc.layout)
    b_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BN, BK], b_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(bars.index(stage), count=1)
    pid = gl.program_id(0)
    tiles_m = gl.cdiv(M, BM)
    tiles_n = gl.cdiv(N, BN)
    first = pid // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    m = (first + pid % (GROUP * tiles_n) % rows) * BM
    n = (pid % (GROUP * tiles_n) // rows) * BN
    for stage in gl.static_range(STAGES - 2):
        issue(a_desc, b_desc, m, n, stage, K, bars, a_memory, b_memory, STAGES)
    acc = gl.zeros([BM, BN], gl.float32, acc_layout)
    for turn in range(gl.cdiv(K, BK)):
        issue(a_desc, b_desc, m, n, turn + STAGES - 2, K, bars, a_memory, b_memory, STAGES)
        slot = turn % STAGES
        mbarrier.wait(bars.index(slot), turn // STAGES % 2)
        acc = warpgroup_mma(a_memory.index(slot), b_memory.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    c_memory = gl.allocate_shared_memory(gl.float16, [BM, BN], c_desc.layout)
    c_memory.store(acc.to(gl.float16))
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [m, n], c_memory)
    tma.store_wait(0)
