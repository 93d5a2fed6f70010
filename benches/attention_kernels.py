"""Attention as programs write it, for `gpu/products.py`: any implementation can run it.

The algorithm is FlashAttention-2's (arXiv 2307.08691). Q, K, V and what becomes of them lie head after head:
[heads * STEPS, HEAD], contiguous. Scores are in units of log 2. No block passes the end: STEPS is a multiple of blocks.
"""

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def attend(
    acc, total, largest, q, k_desc, v_desc, head, query, first, last, factor,
    STEPS: tl.constexpr, HEAD: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, V_BY_COLUMNS: tl.constexpr,
):  # fmt: skip
    """The running softmax over the keys from `first` to `last`."""
    for start in tl.range(first, last, BLOCK_N):
        k = k_desc.load([head * STEPS + start, 0])
        scores = tl.dot(q, k.T)
        if MASKED:
            visible = query[:, None] >= (start + tl.arange(0, BLOCK_N))[None, :]
            scores = scores * factor + tl.where(visible, 0, -1.0e6)
            new = tl.maximum(largest, tl.max(scores, 1))
            p = tl.math.exp2(scores - new[:, None])
        else:
            new = tl.maximum(largest, tl.max(scores, 1) * factor)
            p = tl.math.exp2(scores * factor - new[:, None])
        decay = tl.math.exp2(largest - new)
        acc = acc * decay[:, None]
        if V_BY_COLUMNS:
            v = v_desc.load([head * HEAD, start]).T
        else:
            v = v_desc.load([head * STEPS + start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        total = total * decay + tl.sum(p, 1)
        largest = new
    return acc, total, largest


@triton.jit
def attention_forward(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, scale,
    STEPS: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr, V_BY_COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head a program; the blocks that a causal mask leaves whole are not masked.

    V_BY_COLUMNS is for 8-bit V, stored as [heads * HEAD, STEPS].
    """
    head = tl.program_id(1)
    first = tl.program_id(0) * BLOCK_M
    query = first + tl.arange(0, BLOCK_M)
    q = q_desc.load([head * STEPS + first, 0])
    acc = tl.zeros((BLOCK_M, HEAD), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32) + 1.0
    largest = tl.zeros((BLOCK_M,), tl.float32) - float("inf")
    factor = scale * LOG2_E
    if CAUSAL:
        acc, total, largest = attend(
            acc, total, largest, q, k_desc, v_desc, head, query, 0, first, factor,
            STEPS, HEAD, BLOCK_N, False, V_BY_COLUMNS,
        )  # fmt: skip
        acc, total, largest = attend(
            acc, total, largest, q, k_desc, v_desc, head, query, first, first + BLOCK_M, factor,
            STEPS, HEAD, BLOCK_N, True, V_BY_COLUMNS,
        )  # fmt: skip
    else:
        acc, total, largest = attend(
            acc, total, largest, q, k_desc, v_desc, head, query, 0, STEPS, factor,
            STEPS, HEAD, BLOCK_N, False, V_BY_COLUMNS,
        )  # fmt: skip
    tl.store(lse_ptr + head * STEPS + query, largest + tl.math.log2(total))
    o_desc.store([head * STEPS + first, 0], (acc / total[:, None]).to(o_desc.dtype))


@triton.jit
def key_gradients(
    dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, key, first, last,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds what the queries from `first` to `last` give to the gradients of a block of keys and values."""
    column = tl.arange(0, HEAD)
    for start in range(first, last, BLOCK_M):
        query = start + tl.arange(0, BLOCK_M)
        q_transposed = tl.load(q_ptr + query[None, :] * HEAD + column[:, None])
        lse = tl.load(lse_ptr + query)
        p_transposed = tl.math.exp2(tl.dot(k, q_transposed) - lse[None, :])
        if MASKED:
            p_transposed = tl.where(query[None, :] >= key[:, None], p_transposed, 0.0)
        do = tl.load(do_ptr + query[:, None] * HEAD + column[None, :])
        dv += tl.dot(p_transposed.to(do.dtype), do)
        delta = tl.load(delta_ptr + query)
        dp_transposed = tl.dot(v, tl.trans(do)).to(tl.float32)
        ds_transposed = p_transposed * (dp_transposed - delta[None, :])
        dk += tl.dot(ds_transposed.to(k.dtype), tl.trans(q_transposed))
    return dk, dv


@triton.jit
def query_gradients(
    dq, q, do, lse, delta, k_ptr, v_ptr, query, first, last,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds what the keys from `first` to `last` give to the gradients of a block of queries."""
    column = tl.arange(0, HEAD)
    for start in range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        k_transposed = tl.load(k_ptr + key[None, :] * HEAD + column[:, None])
        v_transposed = tl.load(v_ptr + key[None, :] * HEAD + column[:, None])
        p = tl.math.exp2(tl.dot(q, k_transposed) - lse[:, None])
        if MASKED:
            p = tl.where(query[:, None] >= key[None, :], p, 0.0)
        dp = tl.dot(do, v_transposed).to(tl.float32)
        ds = p * (dp - delta[:, None])
        dq += tl.dot(ds.to(k_transposed.dtype), tl.trans(k_transposed))
    return dq


@triton.jit
def attention_backward(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, scale,
    STEPS: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradients of BLOCK_N keys, then those of as many queries; each step has BLOCK_M of the others.

    Keys come multiplied by scale / log 2. The blocks at the diagonal have half as many rows a step.
    """
    head = tl.program_id(1).to(tl.int64) * STEPS
    q_ptr += head * HEAD
    k_ptr += head * HEAD
    v_ptr += head * HEAD
    do_ptr += head * HEAD
    lse_ptr += head
    delta_ptr += head
    first = tl.program_id(0) * BLOCK_N
    row = first + tl.arange(0, BLOCK_N)
    place = row[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    HALF: tl.constexpr = BLOCK_M // 2

    k = tl.load(k_ptr + place)
    v = tl.load(v_ptr + place)
    dk = tl.zeros((BLOCK_N, HEAD), tl.float32)
    dv = tl.zeros((BLOCK_N, HEAD), tl.float32)
    start = 0
    if CAUSAL:
        start = first + BLOCK_N
        dk, dv = key_gradients(
            dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, row, first, start, HEAD, HALF, True
        )
    dk, dv = key_gradients(
        dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, row, start, STEPS, HEAD, BLOCK_M, False
    )
    tl.store(dv_ptr + head * HEAD + place, dv.to(dv_ptr.dtype.element_ty))
    tl.store(dk_ptr + head * HEAD + place, (dk * scale).to(dk_ptr.dtype.element_ty))

    q = tl.load(q_ptr + place)
    do = tl.load(do_ptr + place)
    lse = tl.load(lse_ptr + row)
    delta = tl.load(delta_ptr + row)
    dq = tl.zeros((BLOCK_N, HEAD), tl.float32)
    end = STEPS
    if CAUSAL:
        end = first
        dq = query_gradients(
            dq, q, do, lse, delta, k_ptr, v_ptr, row, first, first + BLOCK_N, HEAD, HALF, True
        )
    dq = query_gradients(dq, q, do, lse, delta, k_ptr, v_ptr, row, 0, end, HEAD, BLOCK_M, False)
    tl.store(dq_ptr + head * HEAD + place, (dq * (1 / LOG2_E)).to(dq_ptr.dtype.element_ty))
