"""Loops with three dots an iteration, for `gpu/products.py`: any implementation can run them."""

import triton
import triton.language as tl


@triton.jit
def gated_mlp(
    x_ptr, gate_ptr, up_ptr, down_ptr, out_ptr,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """`out = (silu(x @ gate.T) * (x @ up.T)) @ down` for BLOCK_M rows of WIDTH; the weights are [HIDDEN, WIDTH]."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + rows[:, None] * WIDTH + columns[None, :])
    acc = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    for start in range(0, HIDDEN, BLOCK_N):
        place = (start + tl.arange(0, BLOCK_N))[:, None] * WIDTH + columns[None, :]
        gate = tl.dot(x, tl.load(gate_ptr + place).T)
        up = tl.dot(x, tl.load(up_ptr + place).T)
        hidden = gate * tl.sigmoid(gate) * up
        acc = tl.dot(hidden.to(tl.float16), tl.load(down_ptr + place), acc)
    tl.store(out_ptr + rows[:, None] * WIDTH + columns[None, :], acc)


@triton.jit
def two_part_attention(
    q_ptr, q_rope_ptr, k_ptr, k_rope_ptr, v_ptr, out_ptr, scale,
    STEPS: tl.constexpr, HEAD: tl.constexpr, ROPE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attention of one head whose scores are the sum of two dots; scores are in units of log 2."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, HEAD)
    rope = tl.arange(0, ROPE)
    q = tl.load(q_ptr + rows[:, None] * HEAD + columns[None, :])
    q_rope = tl.load(q_rope_ptr + rows[:, None] * ROPE + rope[None, :])
    acc = tl.zeros((BLOCK_M, HEAD), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    for start in range(0, STEPS, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + keys[:, None] * HEAD + columns[None, :])
        k_rope = tl.load(k_rope_ptr + keys[:, None] * ROPE + rope[None, :])
        scores = tl.dot(q_rope, k_rope.T, tl.dot(q, k.T)) * scale
        new = tl.maximum(largest, tl.max(scores, 1))
        p = tl.math.exp2(scores - new[:, None])
        decay = tl.math.exp2(largest - new)
        v = tl.load(v_ptr + keys[:, None] * HEAD + columns[None, :])
        acc = tl.dot(p.to(tl.float16), v, acc * decay[:, None])
        total = total * decay + tl.sum(p, 1)
        largest = new
    tl.store(out_ptr + rows[:, None] * HEAD + columns[None, :], acc / total[:, None])
