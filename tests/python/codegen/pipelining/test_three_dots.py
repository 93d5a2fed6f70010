"""Loops with three dots an iteration, which the schedule pipelines as it does those with one or two."""

import subprocess
import sys

import pytest
import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def gated_mlp(
    x_ptr, gate_ptr, up_ptr, down_ptr, out_ptr, hidden,
    M: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.arange(0, D)
    x = tl.load(x_ptr + rows[:, None] * D + columns[None, :])
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, hidden, H):
        units = start + tl.arange(0, H)
        gate = tl.load(gate_ptr + units[:, None] * D + columns[None, :])
        up = tl.load(up_ptr + units[:, None] * D + columns[None, :])
        down = tl.load(down_ptr + units[:, None] * D + columns[None, :])
        g = tl.dot(x, tl.trans(gate))
        u = tl.dot(x, tl.trans(up))
        h = g * tl.sigmoid(g) * u
        acc = tl.dot(h.to(tl.float16), down, acc)
    tl.store(out_ptr + rows[:, None] * D + columns[None, :], acc)


@triton.jit
def latent_attention(
    q_ptr, q_rope_ptr, k_ptr, k_rope_ptr, v_ptr, out_ptr, length, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, M)
    columns = tl.arange(0, D)
    rope = tl.arange(0, R)
    q = tl.load(q_ptr + rows[:, None] * D + columns[None, :])
    q_rope = tl.load(q_rope_ptr + rows[:, None] * R + rope[None, :])
    acc = tl.zeros((M, D), tl.float32)
    total = tl.zeros((M,), tl.float32)
    highest = tl.full((M,), -1e30, tl.float32)
    for start in range(0, length, N):
        keys = start + tl.arange(0, N)
        k = tl.load(k_ptr + keys[:, None] * D + columns[None, :])
        k_rope = tl.load(k_rope_ptr + keys[:, None] * R + rope[None, :])
        v = tl.load(v_ptr + keys[:, None] * D + columns[None, :])
        s = tl.dot(q, tl.trans(k))
        s = tl.dot(q_rope, tl.trans(k_rope), s) * scale
        higher = tl.maximum(highest, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(highest - higher)
        acc = tl.dot(p.to(tl.float16), v, acc * shrink[:, None])
        total = total * shrink + tl.sum(p, 1)
        highest = higher
    tl.store(out_ptr + rows[:, None] * D + columns[None, :], acc / total[:, None])


@triton.jit
def gated_matmul(
    a_ptr, b_ptr, c_ptr, first_ptr, second_ptr, depth,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    first = tl.zeros((M, N), tl.float32)
    second = tl.zeros((M, N), tl.float32)
    for start in range(0, depth, K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + rows[:, None] * depth + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
        c = tl.load(c_ptr + inner[:, None] * N + columns[None, :])
        first = tl.dot(a, b, first)
        second = tl.dot(a, c, second)
    tl.store(first_ptr + rows[:, None] * N + columns[None, :], first)
    tl.store(second_ptr + rows[:, None] * N + columns[None, :], second)


def random(generator, *shape):
    return torch.randn(shape, generator=generator) * 0.5


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_gated_mlp(device, count, stages):
    generator = torch.Generator().manual_seed(7)
    m, d, h = 64, 64, 32
    x = random(generator, m, d).half()
    # One row too many: a kernel of no iterations has tensors all the same.
    gate, up, down = (random(generator, max(count * h, 1), d).half() for _ in range(3))
    out = torch.empty(m, d)
    tensors = [tensor.to(device) for tensor in (x, gate, up, down, out)]
    gated_mlp[(1,)](*tensors, count * h, m, d, h, num_warps=4, num_stages=stages)
    parts = [tensor[: count * h].double() for tensor in (gate, up, down)]
    g, u = (x.double() @ part.T for part in parts[:2])
    expected = (g * torch.sigmoid(g) * u).half().double() @ parts[2]
    torch.testing.assert_close(tensors[4].cpu().double(), expected, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_latent_attention(device, count, warps):
    generator = torch.Generator().manual_seed(8)
    m, n, d, r = 16 * warps, 32, 64, 32
    q, q_rope = random(generator, m, d).half(), random(generator, m, r).half()
    k, k_rope = random(generator, count * n, d).half(), random(generator, count * n, r).half()
    v = random(generator, count * n, d).half()
    out = torch.empty(m, d)
    tensors = [tensor.to(device) for tensor in (q, q_rope, k, k_rope, v, out)]
    latent_attention[(1,)](*tensors, count * n, 0.2, m, n, d, r, num_warps=warps, num_stages=3)
    scores = (q.double() @ k.double().T + q_rope.double() @ k_rope.double().T) * 0.2
    p = torch.exp2(scores - scores.max(1, keepdim=True).values)
    expected = (p / p.sum(1, keepdim=True)) @ v.double()
    torch.testing.assert_close(tensors[5].cpu().double(), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_two_dots_in_flight(device, count, stages):
    generator = torch.Generator().manual_seed(9)
    m, n, depth = 64, 64, 32
    a = random(generator, m, max(count * depth, 1)).half()
    b, c = (random(generator, max(count * depth, 1), n).half() for _ in range(2))
    first, second = torch.empty(m, n), torch.empty(m, n)
    tensors = [tensor.to(device) for tensor in (a, b, c, first, second)]
    gated_matmul[(1,)](*tensors, count * depth, m, n, depth, num_warps=4, num_stages=stages)
    used = a[:, : count * depth].double()
    for found, other in zip(tensors[3:], (b, c), strict=True):
        expected = used @ other[: count * depth].double()
        torch.testing.assert_close(found.cpu().double(), expected, atol=1e-2, rtol=1e-2)


HALF, SINGLE = "*fp16:16", "*fp32:16"
LATE = "start one stage later"


@pytest.mark.parametrize(
    ("kernel", "signature", "expected"),
    [
        ("gated_mlp", [*[HALF] * 4, SINGLE, "i32:16", "64", "64", "32"], LATE),
        ("latent_attention", [*[HALF] * 5, SINGLE, "i32:16", "fp32", "64", "32", "64", "32"], LATE),
        (
            "gated_matmul",
            [*[HALF] * 3, *[SINGLE] * 2, "i32:16", "64", "64", "32"],
            "run into the next iteration",
        ),
    ],
)
def test_the_schedule_finds_them(kernel, signature, expected):
    command = [sys.executable, "-m", "tilewright", "explain", f"{__file__}::{kernel}"]
    options = ["-s", ",".join(signature), "--target", "sm_90", "--tensor-maps", "--why"]
    made = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert expected in made.stdout
