"""Computes fused attention, o = softmax(q kᵀ * scale) v, forward and backward, causal and not.

The algorithm is FlashAttention-2 (arXiv 2307.08691).

```text
  causal: blocks of the scores                 forward: a program has a block of queries and loops over keys →
         keys
       0  1  2  3     █ all visible            m  the largest score so far       m' = max(m, max(s))
     0 ◣              ◣ some: masked           l  the sum of e^(s - m)           l = l * e^(m - m') + sum(e^(s - m'))
  q  1 █  ◣           empty: never computed    o  the sum of e^(s - m) v         o = o * e^(m - m') + e^(s - m') v
     2 █  █  ◣
     3 █  █  █  ◣     at the end: o / l, and m + log(l), from which the backward pass computes the scores again

  backward, with p = softmax and D = sum(do * o) of each query
       dv = pᵀ do        dp = do vᵀ        ds = p * (dp - D)        dq = ds k * scale        dk = dsᵀ q * scale
       for dk and dv, a program has a block of keys and loops over queries ↓; for dq, it has queries, over keys →
```

No matrix of scores is ever in memory: the forward pass keeps only o and one number for each query.
Exponentials are computed as powers of two, for which GPUs have an instruction: log2(e) is a factor of the scale.

Run it with `python examples/40_attention.py`; it checks itself against torch. Shapes: all are [batch, heads, steps,
width].
"""

import math

import torch

import tilewright as triton
import tilewright.language as tl

LOG2_E = tl.constexpr(1 / math.log(2))


@triton.jit
def load_rows(ptr, first, steps, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Loads the rows from `first` on; rows past the last one are 0."""
    row = first + tl.arange(0, ROWS)[:, None]
    return tl.load(ptr + row * WIDTH + tl.arange(0, WIDTH)[None, :], mask=row < steps, other=0.0)


@triton.jit
def store_rows(ptr, tile, first, steps, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Stores the rows of a tile that are not past the last row."""
    row = first + tl.arange(0, ROWS)[:, None]
    tl.store(ptr + row * WIDTH + tl.arange(0, WIDTH)[None, :], tile, mask=row < steps)


@triton.jit
def is_visible(query, key, steps, CAUSAL: tl.constexpr):
    """Returns for each query and key whether the query attends to the key."""
    if CAUSAL:
        return (query >= key) & (key < steps)
    else:
        return (query >= 0) & (key < steps)


@triton.jit
def attend(
    o, l, m, q, k_ptr, v_ptr, query, start, end, steps, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Updates o, l and m with the keys from `start` to `end`."""
    for first in range(start, end, KEYS):
        k = load_rows(k_ptr, first, steps, KEYS, WIDTH)
        v = load_rows(v_ptr, first, steps, KEYS, WIDTH)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
        if MASKED:
            key = first + tl.arange(0, KEYS)
            s = tl.where(is_visible(query[:, None], key[None, :], steps, CAUSAL), s, float("-inf"))
        larger = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - larger[:, None])
        shrink = tl.exp2(m - larger)
        l = l * shrink + tl.sum(p, 1)
        o = tl.dot(p.to(v.dtype), v, o * shrink[:, None], input_precision="ieee")
        m = larger
    return o, l, m


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, steps, scale,
    CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Each program computes the outputs of a block of queries of one head."""
    head = tl.program_id(1).to(tl.int64) * steps
    first = tl.program_id(0) * QUERIES
    query = first + tl.arange(0, QUERIES)
    q = load_rows(q_ptr + head * WIDTH, first, steps, QUERIES, WIDTH)
    k_ptr += head * WIDTH
    v_ptr += head * WIDTH
    o = tl.zeros([QUERIES, WIDTH], tl.float32)
    l = tl.zeros([QUERIES], tl.float32)
    m = tl.full([QUERIES], float("-inf"), tl.float32)
    # The first blocks of keys need no mask, because all queries see them. Those on the diagonal or at the end need one.
    if CAUSAL:
        whole = tl.minimum(first, steps) // KEYS * KEYS
        end = tl.minimum(first + QUERIES, steps)
    else:
        whole = steps // KEYS * KEYS
        end = steps
    o, l, m = attend(o, l, m, q, k_ptr, v_ptr, query, 0, whole, steps, scale, False, CAUSAL, KEYS, WIDTH)
    o, l, m = attend(o, l, m, q, k_ptr, v_ptr, query, whole, end, steps, scale, True, CAUSAL, KEYS, WIDTH)
    store_rows(o_ptr + head * WIDTH, o / l[:, None], first, steps, QUERIES, WIDTH)
    tl.store(lse_ptr + head + query, m + tl.log2(l), mask=query < steps)


@triton.jit
def delta_kernel(o_ptr, do_ptr, delta_ptr, steps, QUERIES: tl.constexpr, WIDTH: tl.constexpr):
    """Computes D for the backward pass: the sum of do * o of each query."""
    head = tl.program_id(1).to(tl.int64) * steps
    first = tl.program_id(0) * QUERIES
    o = load_rows(o_ptr + head * WIDTH, first, steps, QUERIES, WIDTH).to(tl.float32)
    do = load_rows(do_ptr + head * WIDTH, first, steps, QUERIES, WIDTH).to(tl.float32)
    query = first + tl.arange(0, QUERIES)
    tl.store(delta_ptr + head + query, tl.sum(o * do, 1), mask=query < steps)


@triton.jit
def scores_again(q, k, v, do, lse, delta, query, key, steps, scale, CAUSAL: tl.constexpr):
    """Returns p and ds of a block, [queries, keys]."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
    p = tl.exp2(s - lse[:, None])
    # The gradient of a query past the end is 0, so it adds nothing.
    p = tl.where(is_visible(query[:, None], key[None, :], steps, CAUSAL), p, 0.0)
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    return p, p * (dp - delta[:, None])


@triton.jit
def dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, steps, scale,
    CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Each program computes the gradients of a block of keys and values."""
    head = tl.program_id(1).to(tl.int64) * steps
    first_key = tl.program_id(0) * KEYS
    key = first_key + tl.arange(0, KEYS)
    k = load_rows(k_ptr + head * WIDTH, first_key, steps, KEYS, WIDTH)
    v = load_rows(v_ptr + head * WIDTH, first_key, steps, KEYS, WIDTH)
    dk = tl.zeros([KEYS, WIDTH], tl.float32)
    dv = tl.zeros([KEYS, WIDTH], tl.float32)
    # Queries before the first key of the block do not attend to any key of the block.
    start = first_key // QUERIES * QUERIES if CAUSAL else 0
    for first in range(start, steps, QUERIES):
        query = first + tl.arange(0, QUERIES)
        q = load_rows(q_ptr + head * WIDTH, first, steps, QUERIES, WIDTH)
        do = load_rows(do_ptr + head * WIDTH, first, steps, QUERIES, WIDTH)
        lse = tl.load(lse_ptr + head + query, mask=query < steps, other=0.0)
        delta = tl.load(delta_ptr + head + query, mask=query < steps, other=0.0)
        p, ds = scores_again(q, k, v, do, lse, delta, query, key, steps, scale, CAUSAL)
        dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv, input_precision="ieee")
        dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk, input_precision="ieee")
    store_rows(dk_ptr + head * WIDTH, dk * scale, first_key, steps, KEYS, WIDTH)
    store_rows(dv_ptr + head * WIDTH, dv, first_key, steps, KEYS, WIDTH)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, steps, scale,
    CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Each program computes the gradients of a block of queries."""
    head = tl.program_id(1).to(tl.int64) * steps
    first_query = tl.program_id(0) * QUERIES
    query = first_query + tl.arange(0, QUERIES)
    q = load_rows(q_ptr + head * WIDTH, first_query, steps, QUERIES, WIDTH)
    do = load_rows(do_ptr + head * WIDTH, first_query, steps, QUERIES, WIDTH)
    lse = tl.load(lse_ptr + head + query, mask=query < steps, other=0.0)
    delta = tl.load(delta_ptr + head + query, mask=query < steps, other=0.0)
    dq = tl.zeros([QUERIES, WIDTH], tl.float32)
    end = tl.minimum(first_query + QUERIES, steps) if CAUSAL else steps
    for first in range(0, end, KEYS):
        k = load_rows(k_ptr + head * WIDTH, first, steps, KEYS, WIDTH)
        v = load_rows(v_ptr + head * WIDTH, first, steps, KEYS, WIDTH)
        key = first + tl.arange(0, KEYS)
        _, ds = scores_again(q, k, v, do, lse, delta, query, key, steps, scale, CAUSAL)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    store_rows(dq_ptr + head * WIDTH, dq * scale, first_query, steps, QUERIES, WIDTH)


BLOCKS = {"QUERIES": 32, "KEYS": 32}


class Attention(torch.autograd.Function):
    """Attention of contiguous tensors, for autograd. The width of a head is a power of two."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        batch, heads, steps, width = q.shape
        o = torch.empty_like(q)
        lse = torch.empty(batch, heads, steps, device=q.device)
        grid = (triton.cdiv(steps, BLOCKS["QUERIES"]), batch * heads)
        # Both passes launch all their kernels with these options.
        shared = {"CAUSAL": is_causal, "WIDTH": width, **BLOCKS}
        forward_kernel[grid](q, k, v, o, lse, steps, width**-0.5, **shared)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.shared = shared
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        do = do.contiguous()
        batch, heads, steps, width = q.shape
        dq, dk, dv, delta = (torch.empty_like(x) for x in (q, k, v, lse))
        queries = (triton.cdiv(steps, BLOCKS["QUERIES"]), batch * heads)
        keys = (triton.cdiv(steps, BLOCKS["KEYS"]), batch * heads)
        scale = width**-0.5
        delta_kernel[queries](o, do, delta, steps, QUERIES=BLOCKS["QUERIES"], WIDTH=width)
        dk_dv_kernel[keys](q, k, v, do, lse, delta, dk, dv, steps, scale, **ctx.shared)
        dq_kernel[queries](q, k, v, do, lse, delta, dq, steps, scale, **ctx.shared)
        return dq, dk, dv, None


def main() -> None:
    """Compares outputs and gradients with torch's in double precision. One length is no multiple of the block sizes."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)):
        for is_causal in (False, True):
            for steps, width in ((64, 32), (75, 16)):
                shape = (2, 2, steps, width)
                q, k, v, do = (torch.randn(shape, device=device).to(dtype) for _ in range(4))
                leaves = [x.requires_grad_() for x in (q, k, v)]
                o = Attention.apply(*leaves, is_causal)
                found = (o, *torch.autograd.grad(o, leaves, do))
                by_torch = torch.nn.functional.scaled_dot_product_attention(
                    q.double(), k.double(), v.double(), is_causal=is_causal
                )
                expected = (by_torch, *torch.autograd.grad(by_torch, leaves, do.double()))
                errors = []
                for name, a, b in zip(("o", "dq", "dk", "dv"), found, expected, strict=True):
                    torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=tolerance)
                    errors.append(f"{name} {(a.double() - b.double()).abs().max().item():.1e}")
                kind = "causal" if is_causal else "full"
                print(f"{dtype} {kind}, {steps} steps of {width}: largest differences: {', '.join(errors)}")


if __name__ == "__main__":
    main()
