"""Computes the attention of one token of each sequence, with a paged cache of keys and values."""

import triton
import triton.language as tl


@triton.jit
def cache_row(page_table_ptr, sequence, position, pages, PAGE: tl.constexpr):
    """Returns the row of the cache that has a position of a sequence."""
    page = tl.load(page_table_ptr + sequence * pages + position // PAGE)
    return page * PAGE + position % PAGE


@triton.jit
def rotary(
    qkv_ptr,
    position_ptr,
    page_table_ptr,
    key_ptr,
    value_ptr,
    pages,
    log2_theta,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    PAGE: tl.constexpr,
):
    """Rotates queries and keys by their positions, and stores keys and values in the cache. A program has one head."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(position_ptr + sequence)
    half = tl.arange(0, HEAD // 2)
    own_ptr = qkv_ptr + (sequence * (HEADS + 2 * KV_HEADS) + head) * HEAD
    first = tl.load(own_ptr + half).to(tl.float32)
    second = tl.load(own_ptr + HEAD // 2 + half).to(tl.float32)
    row = cache_row(page_table_ptr, sequence, position, pages, PAGE) * KV_HEADS
    if head < HEADS + KV_HEADS:
        angle = position * tl.exp2(half * (-2.0 / HEAD) * log2_theta)
        cos, sin = tl.cos(angle), tl.sin(angle)
        rotated = first * cos - second * sin
        second = second * cos + first * sin
        first = rotated
    if head < HEADS:
        tl.store(own_ptr + half, first)
        tl.store(own_ptr + HEAD // 2 + half, second)
    elif head < HEADS + KV_HEADS:
        keys = key_ptr + (row + head - HEADS) * HEAD
        tl.store(keys + half, first)
        tl.store(keys + HEAD // 2 + half, second)
    else:
        values = value_ptr + (row + head - HEADS - KV_HEADS) * HEAD
        tl.store(values + half, first)
        tl.store(values + HEAD // 2 + half, second)


@triton.jit
def paged_attention(
    qkv_ptr,
    position_ptr,
    page_table_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    pages,
    scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    PAGE: tl.constexpr,
):
    """Computes the attention of one head of a sequence, page after page, by an online softmax."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(position_ptr + sequence) + 1
    columns = tl.arange(0, HEAD)
    query_ptr = qkv_ptr + (sequence * (HEADS + 2 * KV_HEADS) + head) * HEAD
    query = tl.load(query_ptr + columns).to(tl.float32) * scale
    kv_head = head // (HEADS // KV_HEADS)
    maximum = -float("inf")
    total = 0.0
    accumulator = tl.zeros((HEAD,), tl.float32)
    for start in range(0, length, PAGE):
        row = cache_row(page_table_ptr, sequence, start, pages, PAGE)
        slots = tl.arange(0, PAGE)
        at = ((row + slots) * KV_HEADS + kv_head)[:, None] * HEAD + columns[None, :]
        scores = tl.sum(tl.load(key_ptr + at).to(tl.float32) * query[None, :], 1)
        scores = tl.where(start + slots < length, scores, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 0))
        rescale = tl.exp(maximum - new_maximum)
        weights = tl.exp(scores - new_maximum)
        values = tl.load(value_ptr + at).to(tl.float32)
        accumulator = accumulator * rescale + tl.sum(weights[:, None] * values, 0)
        total = total * rescale + tl.sum(weights, 0)
        maximum = new_maximum
    tl.store(out_ptr + (sequence * HEADS + head) * HEAD + columns, accumulator / total)
