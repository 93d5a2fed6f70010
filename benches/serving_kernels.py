"""Kernels of serving engines, for `gpu/products.py`: any implementation can run them."""

import triton
import triton.language as tl

# --- Low-rank adapters ---


@triton.jit
def lora_rows(slot, tile, order_ptr, starts_ptr, count, BLOCK_M: tl.constexpr):
    """The tokens of a tile of one adapter; lanes after the last token repeat the first ones."""
    first = tile * BLOCK_M
    lanes = tl.arange(0, BLOCK_M)
    left = min(count - first, BLOCK_M)
    start = tl.load(starts_ptr + slot) + first
    return tl.load(order_ptr + start + lanes % left), lanes < left


@triton.jit
def lora_shrink(
    x_ptr, a_ptr, y_ptr, order_ptr, starts_ptr, counts_ptr, adapters_ptr, N, K, scale,
    stride_xm, stride_al, stride_an, stride_ym, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """y[token] += scale * x[token] @ A[adapter].T, for a part of K and a tile of one adapter."""
    pid = tl.program_id(0)
    slot = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    split = pid % SPLIT_K
    tile_m = pid // SPLIT_K // tiles_n
    tile_n = pid // SPLIT_K % tiles_n
    adapter = tl.load(adapters_ptr + slot)
    if adapter == -1:
        return
    count = tl.load(counts_ptr + slot)
    if tile_m * BLOCK_M >= count:
        return
    tokens, real = lora_rows(slot, tile_m, order_ptr, starts_ptr, count, BLOCK_M)
    ranks = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    wrapped = tl.max_contiguous(tl.multiple_of(ranks % N, BLOCK_N), BLOCK_N)
    depth = split * BLOCK_K + tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + tokens[:, None] * stride_xm + depth[None, :]
    a_ptrs = a_ptr + adapter * stride_al + wrapped[None, :] * stride_an + depth[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        if EVEN_K:
            x = tl.load(x_ptrs)
            a = tl.load(a_ptrs)
        else:
            left = K - k * BLOCK_K * SPLIT_K
            x = tl.load(x_ptrs, mask=depth[None, :] < left, other=0.0)
            a = tl.load(a_ptrs, mask=depth[:, None] < left, other=0.0)
        acc += tl.dot(x, a)
        x_ptrs += BLOCK_K * SPLIT_K
        a_ptrs += BLOCK_K * SPLIT_K
    acc *= scale
    y_ptrs = y_ptr + tokens[:, None] * stride_ym + ranks[None, :]
    mask = real[:, None] & (ranks[None, :] < N)
    if SPLIT_K == 1:
        tl.store(y_ptrs, acc, mask=mask)
    else:
        tl.atomic_add(y_ptrs, acc, mask=mask, sem="relaxed")


@triton.jit
def lora_expand(
    y_ptr, b_ptr, out_ptr, order_ptr, starts_ptr, counts_ptr, adapters_ptr, N, K,
    stride_ym, stride_bl, stride_bn, stride_om, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out[token] += y[token] @ B[adapter].T for a tile of one adapter; y is fp32."""
    pid = tl.program_id(0)
    slot = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = pid // tiles_n, pid % tiles_n
    adapter = tl.load(adapters_ptr + slot)
    if adapter == -1:
        return
    count = tl.load(counts_ptr + slot)
    if tile_m * BLOCK_M >= count:
        return
    tokens, real = lora_rows(slot, tile_m, order_ptr, starts_ptr, count, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    wrapped = tl.max_contiguous(tl.multiple_of(columns % N, BLOCK_N), BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    y_ptrs = y_ptr + tokens[:, None] * stride_ym + depth[None, :]
    b_ptrs = b_ptr + adapter * stride_bl + wrapped[None, :] * stride_bn + depth[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            y = tl.load(y_ptrs)
            b = tl.load(b_ptrs)
        else:
            y = tl.load(y_ptrs, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
            b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        acc += tl.dot(y.to(b.dtype), b)
        y_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    out_ptrs = out_ptr + tokens[:, None] * stride_om + columns[None, :]
    mask = real[:, None] & (columns[None, :] < N)
    result = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptrs, result + tl.load(out_ptrs, mask=mask, other=0.0), mask=mask)


# --- Weights of 4 bits ---


@triton.jit
def awq_split_k(
    x_ptr, w_ptr, zeros_ptr, scales_ptr, parts_ptr, M, N, K, GROUP_K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """parts[split] = x @ ((w - zeros) * scales): eight weights of a row of K are in an int32.

    The nibbles of a word, from the lowest one, are its columns 0, 2, 4, 6, 1, 3, 5, 7.
    """
    pid = tl.program_id(0)
    split = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    words = pid % tiles_n * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)
    nibbles = (tl.arange(0, 2)[None, :] * 4 + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = tl.broadcast_to((nibbles * 4)[None, :], (BLOCK_N // 8, 8)).reshape(BLOCK_N)
    depth = split * BLOCK_K + tl.arange(0, BLOCK_K)
    row_mask = rows[:, None] < M
    column_mask = columns[None, :] < N
    word_mask = words[None, :] < N // 8
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        depth_mask = depth < K
        x_ptrs = x_ptr + rows[:, None] * K + depth[None, :]
        x = tl.load(x_ptrs, mask=row_mask & depth_mask[None, :], other=0.0)
        w_ptrs = w_ptr + depth[:, None] * (N // 8) + words[None, :]
        w = tl.load(w_ptrs, mask=depth_mask[:, None] & word_mask, other=0)
        w = tl.interleave(w, w)
        w = tl.interleave(w, w)
        w = tl.interleave(w, w)
        group = (k * SPLIT_K + split) * BLOCK_K // GROUP_K + tl.arange(0, 1)
        group_mask = group[:, None] < K // GROUP_K
        zeros_ptrs = zeros_ptr + group[:, None] * (N // 8) + words[None, :]
        zeros = tl.load(zeros_ptrs, mask=group_mask & word_mask, other=0)
        zeros = tl.interleave(zeros, zeros)
        zeros = tl.interleave(zeros, zeros)
        zeros = tl.interleave(zeros, zeros)
        zeros = tl.broadcast_to(zeros, (BLOCK_K, BLOCK_N))
        scales_ptrs = scales_ptr + group[:, None] * N + columns[None, :]
        scales = tl.load(scales_ptrs, mask=group_mask & column_mask, other=0.0)
        scales = tl.broadcast_to(scales, (BLOCK_K, BLOCK_N))
        w = ((w >> shifts[None, :]) & 15) - ((zeros >> shifts[None, :]) & 15)
        acc = tl.dot(x, (w * scales).to(x.dtype), acc)
        depth += BLOCK_K * SPLIT_K
    parts_ptrs = parts_ptr + split * M * N + rows[:, None] * N + columns[None, :]
    tl.store(parts_ptrs, acc, mask=row_mask & column_mask)


@triton.jit
def add_parts(parts_ptr, y_ptr, count, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    """y = the sum of the parts that split-K leaves."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLIT_K):
        acc += tl.load(parts_ptr + split * count + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, acc.to(y_ptr.dtype.element_ty), mask=mask)


# --- Paged attention ---


@triton.jit
def softmax_step(scores, v, acc, total, largest):
    """A step of online softmax; scores are in units of log 2."""
    new = tl.maximum(largest, tl.max(scores, 1))
    decay = tl.math.exp2(largest - new)
    p = tl.math.exp2(scores - new[:, None])
    acc = tl.dot(p.to(v.dtype), v, acc * decay[:, None])
    return acc, total * decay + tl.sum(p, 1), new


@triton.jit
def prefix_attention(
    q_ptr, k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, out_ptr, tables_ptr, starts_ptr, lengths_ptr,
    scale, stride_qt, stride_qh, stride_kt, stride_kh,
    stride_cb, stride_cs, stride_ch, stride_table,
    GROUP: tl.constexpr, HEAD: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attention of new tokens over the pages of their prefix, then over themselves.

    q and out are [tokens, heads, HEAD]; a cache is [pages, PAGE, KV heads, HEAD].
    """
    request = tl.program_id(0)
    head = tl.program_id(1)
    tile = tl.program_id(2)
    kv_head = head // GROUP
    first = tl.load(starts_ptr + request)
    count = tl.load(starts_ptr + request + 1) - first
    if tile * BLOCK_M >= count:
        return
    prefix = tl.load(lengths_ptr + request) - count
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD)
    steps = tl.arange(0, BLOCK_N)
    q_offsets = (first + rows[:, None]) * stride_qt + head * stride_qh + dims[None, :]
    q = tl.load(q_ptr + q_offsets, mask=rows[:, None] < count, other=0.0)
    acc = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    for start in range(0, prefix, BLOCK_N):
        keys = start + steps
        mask = keys < prefix
        pages = tl.load(tables_ptr + request * stride_table + keys // PAGE, mask=mask, other=0)
        slots = pages.to(tl.int64) * stride_cb + keys % PAGE * stride_cs + kv_head * stride_ch
        k_ptrs = k_cache_ptr + slots[None, :] + dims[:, None]
        k = tl.load(k_ptrs, mask=mask[None, :], other=0.0)
        scores = tl.where(mask[None, :], tl.dot(q, k) * scale, -float("inf"))
        v_ptrs = v_cache_ptr + slots[:, None] + dims[None, :]
        v = tl.load(v_ptrs, mask=mask[:, None], other=0.0)
        acc, total, largest = softmax_step(scores, v, acc, total, largest)
    k_ptrs = k_ptr + (first + steps[None, :]) * stride_kt + kv_head * stride_kh + dims[:, None]
    v_ptrs = v_ptr + (first + steps[:, None]) * stride_kt + kv_head * stride_kh + dims[None, :]
    for start in range(0, min((tile + 1) * BLOCK_M, count), BLOCK_N):
        keys = start + steps
        k = tl.load(k_ptrs + start * stride_kt, mask=keys[None, :] < count, other=0.0)
        scores = tl.dot(q, k) * scale
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        v = tl.load(v_ptrs + start * stride_kt, mask=keys[:, None] < count, other=0.0)
        acc, total, largest = softmax_step(scores, v, acc, total, largest)
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + q_offsets, out, mask=rows[:, None] < count)


@triton.jit
def split_range(length, split, SPLITS: tl.constexpr, PAGE: tl.constexpr):
    """The keys of a split, in whole pages."""
    keys = tl.cdiv(tl.cdiv(length, SPLITS), PAGE) * PAGE
    return split * keys, min((split + 1) * keys, length)


@triton.jit
def paged_decode(
    q_ptr, k_cache_ptr, v_cache_ptr, parts_ptr, lse_ptr, tables_ptr, lengths_ptr, scale,
    stride_qr, stride_qh, stride_cb, stride_cs, stride_ch, stride_table,
    HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr, PAGE: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attention of one token: all query heads of a KV head over a split of the pages.

    The dots have BLOCK_H rows for GROUP query heads. A cache is [pages, PAGE, KV heads, HEAD].
    """
    request = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    lanes = tl.arange(0, BLOCK_H)
    heads = kv_head * GROUP + lanes
    real = lanes < GROUP
    dims = tl.arange(0, HEAD)
    q_ptrs = q_ptr + request * stride_qr + heads[:, None] * stride_qh + dims[None, :]
    q = tl.load(q_ptrs, mask=real[:, None], other=0.0)
    begin, end = split_range(tl.load(lengths_ptr + request), split, SPLITS, PAGE)
    if begin < end:
        acc = tl.zeros((BLOCK_H, HEAD), dtype=tl.float32)
        total = tl.zeros((BLOCK_H,), dtype=tl.float32)
        largest = tl.full((BLOCK_H,), -float("inf"), dtype=tl.float32)
        for start in range(begin, end, BLOCK_N):
            keys = start + tl.arange(0, BLOCK_N)
            mask = keys < end
            pages = tl.load(tables_ptr + request * stride_table + keys // PAGE, mask=mask, other=0)
            slots = pages.to(tl.int64) * stride_cb + keys % PAGE * stride_cs + kv_head * stride_ch
            k_ptrs = k_cache_ptr + slots[None, :] + dims[:, None]
            k = tl.load(k_ptrs, mask=mask[None, :], other=0.0)
            scores = tl.where(mask[None, :], tl.dot(q, k) * scale, -float("inf"))
            v_ptrs = v_cache_ptr + slots[:, None] + dims[None, :]
            v = tl.load(v_ptrs, mask=mask[:, None], other=0.0)
            acc, total, largest = softmax_step(scores, v, acc, total, largest)
        part = (request * HEADS + heads) * SPLITS + split
        parts_ptrs = parts_ptr + part[:, None] * HEAD + dims[None, :]
        tl.store(parts_ptrs, acc / total[:, None], mask=real[:, None])
        tl.store(lse_ptr + part, largest + tl.math.log2(total), mask=real)


@triton.jit
def decode_reduce(
    parts_ptr, lse_ptr, out_ptr, lengths_ptr,
    HEADS: tl.constexpr, HEAD: tl.constexpr, PAGE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The output of a head: the mean of its splits, weighted by the logarithms of their sums."""
    request = tl.program_id(0)
    row = request * HEADS + tl.program_id(1)
    dims = tl.arange(0, HEAD)
    length = tl.load(lengths_ptr + request)
    acc = tl.zeros((HEAD,), dtype=tl.float32)
    total = 0.0
    largest = -float("inf")
    for split in range(SPLITS):
        begin, end = split_range(length, split, SPLITS, PAGE)
        if begin < end:
            part = tl.load(parts_ptr + (row * SPLITS + split) * HEAD + dims)
            lse = tl.load(lse_ptr + row * SPLITS + split)
            new = tl.maximum(largest, lse)
            decay = tl.math.exp2(largest - new)
            p = tl.math.exp2(lse - new)
            acc = acc * decay + p * part
            total = total * decay + p
            largest = new
    tl.store(out_ptr + row * HEAD + dims, (acc / total).to(out_ptr.dtype.element_ty))


# --- State-space models ---


@triton.jit
def chunk_state(
    x_ptr, b_ptr, states_ptr, dt_ptr, decay_ptr, HDIM, DSTATE, CHUNK, seqlen, batch, ratio,
    stride_xb, stride_xt, stride_xh, stride_bb, stride_bt, stride_bg,
    stride_sb, stride_sc, stride_sh, stride_db, stride_dh, stride_dc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The state that a chunk adds: x.T @ (B * dt * decay to the end of the chunk), for one head.

    dt and decay, the cumulative sum of dt * A, are [batch, heads, chunks, CHUNK]; `ratio` heads
    share a group of B.
    """
    chunk, in_batch = tl.program_id(1) // batch, tl.program_id(1) % batch
    head = tl.program_id(2)
    tiles_n = tl.cdiv(DSTATE, BLOCK_N)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    x_ptr += in_batch * stride_xb + chunk * CHUNK * stride_xt + head * stride_xh
    b_ptr += in_batch * stride_bb + chunk * CHUNK * stride_bt + head // ratio * stride_bg
    dt_ptr += in_batch * stride_db + head * stride_dh + chunk * stride_dc
    decay_ptr += in_batch * stride_db + head * stride_dh + chunk * stride_dc
    last = tl.load(decay_ptr + CHUNK - 1)
    x_ptrs = x_ptr + rows[:, None] + depth[None, :] * stride_xt
    b_ptrs = b_ptr + columns[None, :] + depth[:, None] * stride_bt
    limit = min(CHUNK, seqlen - chunk * CHUNK)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, limit, BLOCK_K):
        left = limit - k
        x_mask = (rows[:, None] < HDIM) & (depth[None, :] < left)
        x = tl.load(x_ptrs, mask=x_mask, other=0.0)
        b_mask = (depth[:, None] < left) & (columns[None, :] < DSTATE)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0).to(tl.float32)
        decay = tl.load(decay_ptr + k + depth, mask=depth < left, other=0.0)
        dt = tl.load(dt_ptr + k + depth, mask=depth < left, other=0.0)
        b *= (tl.exp(last - decay) * dt)[:, None]
        acc += tl.dot(x, b.to(x.dtype))
        x_ptrs += BLOCK_K * stride_xt
        b_ptrs += BLOCK_K * stride_bt
    states_ptr += in_batch * stride_sb + chunk * stride_sc + head * stride_sh
    states_ptrs = states_ptr + rows[:, None] * DSTATE + columns[None, :]
    mask = (rows[:, None] < HDIM) & (columns[None, :] < DSTATE)
    tl.store(states_ptrs, acc.to(states_ptr.dtype.element_ty), mask=mask)


@triton.jit
def state_passing(
    states_ptr, out_ptr, final_ptr, decay_ptr, dim, chunks, CHUNK,
    stride_sb, stride_sc, stride_sh, stride_fb, stride_fh, stride_db, stride_dh, stride_dc,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[chunk] = the state before the chunk; final = the state after the last one."""
    in_batch = tl.program_id(1)
    head = tl.program_id(2)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = columns < dim
    states_ptr += in_batch * stride_sb + head * stride_sh
    out_ptr += in_batch * stride_sb + head * stride_sh
    decay_ptr += in_batch * stride_db + head * stride_dh + CHUNK - 1
    state = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for _ in range(chunks):
        tl.store(out_ptr + columns, state.to(out_ptr.dtype.element_ty), mask=mask)
        new = tl.load(states_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        state = tl.exp(tl.load(decay_ptr)) * state + new
        states_ptr += stride_sc
        out_ptr += stride_sc
        decay_ptr += stride_dc
    final_ptrs = final_ptr + in_batch * stride_fb + head * stride_fh + columns
    tl.store(final_ptrs, state, mask=mask)


@triton.jit
def chunk_scan(
    cb_ptr, x_ptr, c_ptr, states_ptr, d_ptr, out_ptr, dt_ptr, decay_ptr,
    HDIM, CHUNK, seqlen, batch, ratio,
    stride_mb, stride_mc, stride_mg, stride_xb, stride_xt, stride_xh,
    stride_cb, stride_ct, stride_cg, stride_sb, stride_sc, stride_sh,
    stride_db, stride_dh, stride_dc,
    DSTATE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The output of a chunk: C @ (the state before) + (C @ B.T, decayed) @ x + D * x.

    cb is C @ B.T of each chunk and group, [batch, chunks, groups, CHUNK, CHUNK].
    """
    chunk, in_batch = tl.program_id(1) // batch, tl.program_id(1) % batch
    head = tl.program_id(2)
    group = head // ratio
    tiles_n = tl.cdiv(HDIM, BLOCK_N)
    tile_m = tl.program_id(0) // tiles_n
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    state_dims = tl.arange(0, DSTATE)
    cb_ptr += in_batch * stride_mb + chunk * stride_mc + group * stride_mg
    x_ptr += in_batch * stride_xb + chunk * CHUNK * stride_xt + head * stride_xh
    out_ptr += in_batch * stride_xb + chunk * CHUNK * stride_xt + head * stride_xh
    c_ptr += in_batch * stride_cb + chunk * CHUNK * stride_ct + group * stride_cg
    states_ptr += in_batch * stride_sb + chunk * stride_sc + head * stride_sh
    dt_ptr += in_batch * stride_db + head * stride_dh + chunk * stride_dc
    decay_ptr += in_batch * stride_db + head * stride_dh + chunk * stride_dc
    limit = min(CHUNK, seqlen - chunk * CHUNK)
    decay_m = tl.load(decay_ptr + rows, mask=rows < limit, other=0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_ct + state_dims[None, :]
    c = tl.load(c_ptrs, mask=rows[:, None] < limit, other=0.0)
    states_ptrs = states_ptr + columns[None, :] * DSTATE + state_dims[:, None]
    states = tl.load(states_ptrs, mask=columns[None, :] < HDIM, other=0.0)
    acc = tl.dot(c, states.to(c.dtype)) * tl.exp(decay_m)[:, None]
    cb_ptrs = cb_ptr + rows[:, None] * CHUNK + depth[None, :]
    x_ptrs = x_ptr + depth[:, None] * stride_xt + columns[None, :]
    for k in range(0, min((tile_m + 1) * BLOCK_M, limit), BLOCK_K):
        left = limit - k
        cb_mask = (rows[:, None] < CHUNK) & (depth[None, :] < CHUNK - k)
        cb = tl.load(cb_ptrs, mask=cb_mask, other=0.0).to(tl.float32)
        decay_k = tl.load(decay_ptr + k + depth, mask=depth < left, other=0.0)
        # Not above 0 where the causal mask keeps the element.
        cb *= tl.exp(tl.minimum(decay_m[:, None] - decay_k[None, :], 0.0))
        cb *= tl.load(dt_ptr + k + depth, mask=depth < left, other=0.0)[None, :]
        cb = tl.where(rows[:, None] >= k + depth[None, :], cb, 0.0)
        x_mask = (depth[:, None] < left) & (columns[None, :] < HDIM)
        x = tl.load(x_ptrs, mask=x_mask, other=0.0)
        acc += tl.dot(cb.to(x.dtype), x)
        cb_ptrs += BLOCK_K
        x_ptrs += BLOCK_K * stride_xt
    mask = (rows[:, None] < limit) & (columns[None, :] < HDIM)
    offsets = rows[:, None] * stride_xt + columns[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    acc += x * tl.load(d_ptr + head)
    tl.store(out_ptr + offsets, acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def causal_conv_update(
    x_ptr, w_ptr, bias_ptr, state_ptr, new_state_ptr, lines_ptr, out_ptr, dim,
    stride_xb, stride_sl, stride_st, WIDTH: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One step of a causal convolution with SiLU; the state of a request, its last inputs, shifts.

    A state is [WIDTH - 1, dim]. Engines pass the same state twice.
    """
    request = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = columns < dim
    line = tl.load(lines_ptr + request).to(tl.int64)
    if line == -1:
        return
    state_ptrs = state_ptr + line * stride_sl + columns
    new_state_ptrs = new_state_ptr + line * stride_sl + columns
    acc = tl.load(bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + request * stride_xb + columns, mask=mask, other=0.0)
    for tap in tl.static_range(WIDTH):
        w = tl.load(w_ptr + columns * WIDTH + tap, mask=mask, other=0.0).to(tl.float32)
        if tap < WIDTH - 1:
            past = tl.load(state_ptrs + tap * stride_st, mask=mask, other=0.0)
        else:
            past = x
        if tap > 0:
            tl.store(new_state_ptrs + (tap - 1) * stride_st, past, mask=mask)
        acc += past.to(tl.float32) * w
    acc = acc / (1 + tl.exp(-acc))
    out_ptrs = out_ptr + request * stride_xb + columns
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


# --- Block scales ---


@triton.jit
def block_scaled_fp8(
    a_ptr, b_ptr, c_ptr, a_scales_ptr, b_scales_ptr, M, N, K,
    stride_am, stride_bn, stride_cm, stride_asm, stride_ask, stride_bsn,
    SCALED_N: tl.constexpr, SCALED_K: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """C = A @ B.T, a scale for each 1 x SCALED_K block of A and SCALED_N x SCALED_K of B."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP * tiles_n
    first_m = pid // in_group * GROUP
    group_m = min(tiles_m - first_m, GROUP)
    tile_m = first_m + pid % in_group % group_m
    tile_n = pid % in_group // group_m
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :]
    b_ptrs = b_ptr + columns[None, :] * stride_bn + depth[:, None]
    a_scales_ptrs = a_scales_ptr + rows * stride_asm
    b_scales_ptr += tile_n * BLOCK_N // SCALED_N * stride_bsn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        scale = k * BLOCK_K // SCALED_K
        a_s = tl.load(a_scales_ptrs + scale * stride_ask)
        b_s = tl.load(b_scales_ptr + scale)
        acc += tl.dot(a, b) * a_s[:, None] * b_s
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


# --- Sampling ---


@triton.jit
def gumbel_local(
    logits_ptr, temperatures_ptr, seeds_ptr, positions_ptr, ids_ptr, best_ptr, vocabulary,
    stride_logits, stride_ids, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The largest logit of a block, with Gumbel noise, and its token."""
    request = tl.program_id(0)
    block = tl.program_id(1)
    tokens = block * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = tokens < vocabulary
    logits_ptrs = logits_ptr + request * stride_logits + tokens
    logits = tl.load(logits_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
    temperature = tl.load(temperatures_ptr + request)
    if temperature != 0.0:
        seed = tl.load(seeds_ptr + request)
        position = tl.load(positions_ptr + request)
        u = tl.maximum(tl.rand(tl.randint(seed, position), tokens), 1e-7)
        logits = logits / temperature - tl.log(-tl.log(u))
    best, index = tl.max(logits, 0, return_indices=True)
    tl.store(ids_ptr + request * stride_ids + block, (block * BLOCK_N + index).to(tl.int64))
    tl.store(best_ptr + request * stride_ids + block, best)


@triton.jit
def gumbel_reduce(ids_ptr, best_ptr, out_ptr, blocks, stride_ids, BLOCK: tl.constexpr):
    """The token of the block whose logit is the largest one."""
    request = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    best_ptrs = best_ptr + request * stride_ids + offsets
    best = tl.load(best_ptrs, mask=offsets < blocks, other=-float("inf"))
    block = tl.argmax(best, 0)
    tl.store(out_ptr + request, tl.load(ids_ptr + request * stride_ids + block))


@triton.jit
def recovered_tokens(
    draft_probs_ptr, target_probs_ptr, noise_ptr, recovered_ptr, starts_ptr, vocabulary,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The token that replaces a draft: argmax of max(target - draft, 0) / exponential noise."""
    request = tl.program_id(0)
    position = tl.program_id(1)
    first = tl.load(starts_ptr + request)
    if position >= tl.load(starts_ptr + request + 1) - first:
        return
    draft = (first + position).to(tl.int64)
    best = -1.0
    token = 0
    for start in range(0, vocabulary, BLOCK_N):
        tokens = start + tl.arange(0, BLOCK_N)
        mask = tokens < vocabulary
        q = tl.load(draft_probs_ptr + draft * vocabulary + tokens, mask=mask, other=0.0)
        p = tl.load(target_probs_ptr + draft * vocabulary + tokens, mask=mask, other=0.0)
        noise_ptrs = noise_ptr + request.to(tl.int64) * vocabulary + tokens
        noise = tl.load(noise_ptrs, mask=mask, other=float("inf"))
        scores = tl.maximum(p - q, 0.0) / noise
        score, index = tl.max(scores, 0, return_indices=True)
        token = tl.where(score > best, start + index, token)
        best = tl.maximum(best, score)
    tl.store(recovered_ptr + draft, token)


@triton.jit
def rejection_sample(
    drafts_ptr, draft_probs_ptr, target_probs_ptr, bonus_ptr, recovered_ptr, uniform_ptr,
    starts_ptr, out_ptr, vocabulary, MAX_DRAFT: tl.constexpr,
):  # fmt: skip
    """Accepts drafts while target / draft >= uniform; then a recovered or the bonus token."""
    request = tl.program_id(0)
    first = tl.load(starts_ptr + request)
    count = tl.load(starts_ptr + request + 1) - first
    out_ptr += request * (MAX_DRAFT + 1)
    rejected = False
    for position in range(count):
        if not rejected:
            draft = (first + position).to(tl.int64)
            token = tl.load(drafts_ptr + draft)
            q = tl.load(draft_probs_ptr + draft * vocabulary + token)
            p = tl.load(target_probs_ptr + draft * vocabulary + token)
            if q > 0 and p / q >= tl.load(uniform_ptr + draft):
                tl.store(out_ptr + position, token)
            else:
                rejected = True
                tl.store(out_ptr + position, tl.load(recovered_ptr + draft))
    if not rejected:
        tl.store(out_ptr + count, tl.load(bonus_ptr + request))


# --- Grouped matmul ---


@triton.jit
def grouped_matmul(
    a_ptr, b_ptr, c_ptr, ends_ptr, GROUPS, N, K, stride_am, stride_be, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """C = A @ B[group].T for rows sorted by group; `ends` has the row after each group.

    A fixed number of programs takes the tiles of all groups in turn.
    """
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_tile = 0
    begin = 0
    for group in range(GROUPS):
        end = tl.load(ends_ptr + group)
        tiles_m = tl.cdiv(end - begin, BLOCK_M)
        last_tile = first_tile + tiles_m * tiles_n
        while tile < last_tile:
            tile_m = (tile - first_tile) % tiles_m
            tile_n = (tile - first_tile) // tiles_m
            rows = begin + tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            depth = tl.arange(0, BLOCK_K)
            a_rows = tl.where(rows < end, rows, begin)
            b_rows = tl.where(columns < N, columns, 0)
            a_ptrs = a_ptr + a_rows[:, None] * stride_am + depth[None, :]
            b_ptrs = b_ptr + group.to(tl.int64) * stride_be
            b_ptrs = b_ptrs + b_rows[None, :] * stride_bn + depth[:, None]
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(tl.cdiv(K, BLOCK_K)):
                a = tl.load(a_ptrs, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
                b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
                acc = tl.dot(a, b, acc)
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K
            c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :]
            mask = (rows[:, None] < end) & (columns[None, :] < N)
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
            tile += tl.num_programs(0)
        first_tile = last_tile
        begin = end
