"""The backward pass of attention in the form of the public tutorial on fused attention, for `gpu/products.py`.

The algorithm is FlashAttention-2's (arXiv 2307.08691), with dQ in a second pass of the same program instead of by
atomics. As there, strides are run-time numbers, loops count their steps and carry pointers, the two passes have blocks
of their own, and blocks at the diagonal are cut in halves. Scores are in units of log 2. No block passes the end:
STEPS is a multiple of blocks.
"""

import triton
import triton.language as tl

LN_2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def output_sums(o_ptr, do_ptr, delta_ptr, steps, HEAD: tl.constexpr, BLOCK_M: tl.constexpr):
    """Of each query the sum of O dO, which the gradient of the softmax takes away."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    place = (tl.program_id(1) * steps + rows)[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    o = tl.load(o_ptr + place).to(tl.float32)
    do = tl.load(do_ptr + place).to(tl.float32)
    tl.store(delta_ptr + tl.program_id(1) * steps + rows, tl.sum(o * do, axis=1))


@triton.jit
def walk_queries(
    dk, dv, q_ptr, k, v, do_ptr, lse_ptr, delta_ptr, row_stride, column_stride, key, first, count,
    HEAD: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """What `count` blocks of queries from `first` on give to dK and dV."""
    query = first + tl.arange(0, BLOCK)
    column = tl.arange(0, HEAD)
    q_places = q_ptr + query[None, :] * row_stride + column[:, None] * column_stride
    do_places = do_ptr + query[:, None] * row_stride + column[None, :] * column_stride
    start = first
    for _ in range(count):
        q_turned = tl.load(q_places)
        query = start + tl.arange(0, BLOCK)
        lse = tl.load(lse_ptr + query)
        weights = tl.math.exp2(tl.dot(k, q_turned) - lse[None, :])
        if MASKED:
            weights = tl.where(query[None, :] >= key[:, None], weights, 0.0)
        do = tl.load(do_places)
        dv += tl.dot(weights.to(tl.float16), do)
        delta = tl.load(delta_ptr + query)
        change = tl.dot(v, tl.trans(do)).to(tl.float32)
        ds = weights * (change - delta[None, :])
        dk += tl.dot(ds.to(tl.float16), tl.trans(q_turned))
        start += BLOCK
        q_places += BLOCK * row_stride
        do_places += BLOCK * row_stride
    return dk, dv


@triton.jit
def walk_keys(
    dq, q, k_ptr, v_ptr, do, lse, delta_ptr, row_stride, column_stride, query, first, count,
    HEAD: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """What `count` blocks of keys from `first` on give to dQ."""
    key = first + tl.arange(0, BLOCK)
    column = tl.arange(0, HEAD)
    k_places = k_ptr + key[None, :] * row_stride + column[:, None] * column_stride
    v_places = v_ptr + key[None, :] * row_stride + column[:, None] * column_stride
    delta = tl.load(delta_ptr + query)
    start = first
    for _ in range(count):
        k_turned = tl.load(k_places)
        v_turned = tl.load(v_places)
        weights = tl.math.exp2(tl.dot(q, k_turned) - lse)
        if MASKED:
            key = start + tl.arange(0, BLOCK)
            weights = tl.where(query[:, None] >= key[None, :], weights, 0.0)
        change = tl.dot(do, v_turned).to(tl.float32)
        ds = weights * (change - delta[:, None])
        dq += tl.dot(ds.to(tl.float16), tl.trans(k_turned))
        start += BLOCK
        k_places += BLOCK * row_stride
        v_places += BLOCK * row_stride
    return dq


@triton.jit
def tutorial_backward(
    q_ptr, k_ptr, v_ptr, scale, do_ptr, dq_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr,
    batch_stride, head_stride, row_stride, column_stride, heads, steps,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, BLOCK_M2: tl.constexpr, BLOCK_N2: tl.constexpr,
    SLICES: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dK and dV of BLOCK_N1 keys, then dQ of BLOCK_M2 queries. Keys come multiplied by scale / log 2."""
    number = tl.program_id(2)
    rows_before = (number * steps).to(tl.int64)
    before = (head_stride * (number % heads) + batch_stride * (number // heads)).to(tl.int64)
    q_ptr += before
    k_ptr += before
    v_ptr += before
    do_ptr += before
    dq_ptr += before
    dk_ptr += before
    dv_ptr += before
    lse_ptr += rows_before
    delta_ptr += rows_before

    column = tl.arange(0, HEAD)
    first_key = tl.program_id(0) * BLOCK_N1
    key = first_key + tl.arange(0, BLOCK_N1)
    place = key[:, None] * row_stride + column[None, :] * column_stride
    dv = tl.zeros([BLOCK_N1, HEAD], dtype=tl.float32)
    dk = tl.zeros([BLOCK_N1, HEAD], dtype=tl.float32)
    k = tl.load(k_ptr + place)
    v = tl.load(v_ptr + place)
    start = 0
    if CAUSAL:
        SLICE_M: tl.constexpr = BLOCK_M1 // SLICES
        start = first_key
        count = BLOCK_N1 // SLICE_M
        dk, dv = walk_queries(
            dk, dv, q_ptr, k, v, do_ptr, lse_ptr, delta_ptr, row_stride, column_stride, key, start, count,
            HEAD, SLICE_M, True,
        )  # fmt: skip
        start += count * SLICE_M
    count = (steps - start) // BLOCK_M1
    dk, dv = walk_queries(
        dk, dv, q_ptr, k, v, do_ptr, lse_ptr, delta_ptr, row_stride, column_stride, key, start, count,
        HEAD, BLOCK_M1, False,
    )  # fmt: skip
    tl.store(dv_ptr + place, dv)
    tl.store(dk_ptr + place, dk * scale)

    first_query = tl.program_id(0) * BLOCK_M2
    query = first_query + tl.arange(0, BLOCK_M2)
    place = query[:, None] * row_stride + column[None, :] * column_stride
    q = tl.load(q_ptr + place)
    do = tl.load(do_ptr + place)
    dq = tl.zeros([BLOCK_M2, HEAD], dtype=tl.float32)
    lse = tl.load(lse_ptr + query)[:, None]
    start = 0
    count = steps // BLOCK_N2
    if CAUSAL:
        SLICE_N: tl.constexpr = BLOCK_N2 // SLICES
        end = first_query + BLOCK_M2
        count = BLOCK_M2 // SLICE_N
        dq = walk_keys(
            dq, q, k_ptr, v_ptr, do, lse, delta_ptr, row_stride, column_stride, query,
            end - count * SLICE_N, count, HEAD, SLICE_N, True,
        )  # fmt: skip
        end -= count * SLICE_N
        count = end // BLOCK_N2
        start = end - count * BLOCK_N2
    dq = walk_keys(
        dq, q, k_ptr, v_ptr, do, lse, delta_ptr, row_stride, column_stride, query, start, count,
        HEAD, BLOCK_N2, False,
    )  # fmt: skip
    tl.store(dq_ptr + place, dq * LN_2)
