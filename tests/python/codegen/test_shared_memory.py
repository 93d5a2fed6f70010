"""Shared memory of loops that are not pipelined.

An iteration reuses the memory of tiles that it does not read any more, and consecutive loops share theirs. The bytes
are compared with those of the official compiler, which are kept here as numbers.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import DEVICE, PATIENCE, ROOT

import tilewright as triton
import tilewright.language as tl


@triton.jit
def two_parts(
    q_ptr, k_ptr, v_ptr, out_ptr, n, scale,
    M: tl.constexpr, N: tl.constexpr, HEAD: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    d, e = tl.arange(0, HEAD), HEAD + tl.arange(0, ROPE)
    width: tl.constexpr = HEAD + ROPE
    q = tl.load(q_ptr + rows[:, None] * width + d[None, :])
    q_rope = tl.load(q_ptr + rows[:, None] * width + e[None, :])
    acc = tl.zeros((M, HEAD), tl.float32)
    m, total = tl.full((M,), -1e30, tl.float32), tl.zeros((M,), tl.float32)
    for start in range(0, n, N):
        cols = start + tl.arange(0, N)
        inside = cols < n
        kn = tl.load(k_ptr + cols[None, :] * width + d[:, None], mask=inside[None, :], other=0.0)
        s = tl.dot(q, kn)
        kp = tl.load(k_ptr + cols[None, :] * width + e[:, None], mask=inside[None, :], other=0.0)
        s += tl.dot(q_rope, kp)
        s = tl.where(inside[None, :], s * scale, -1e30)
        m_new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp(m - m_new)
        p = tl.exp(s - m_new[:, None])
        total = total * alpha + tl.sum(p, 1)
        vn = tl.load(v_ptr + cols[:, None] * HEAD + d[None, :], mask=inside[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(vn.dtype), vn)
        m = m_new
    tl.store(out_ptr + rows[:, None] * HEAD + d[None, :], acc / total[:, None])


@triton.jit
def latent(
    q_ptr, cache_ptr, cached_v_ptr, k_ptr, v_ptr, ids_ptr, out_ptr, prefix, n, scale,
    M: tl.constexpr, N: tl.constexpr, HEAD: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    """A prefix, whose rows are found by their ids, and then new rows; each new row sees those before it."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    d, e = tl.arange(0, HEAD), HEAD + tl.arange(0, ROPE)
    width: tl.constexpr = HEAD + ROPE
    q = tl.load(q_ptr + rows[:, None] * width + d[None, :], mask=(rows < n)[:, None], other=0.0)
    q_rope = tl.load(q_ptr + rows[:, None] * width + e[None, :], mask=(rows < n)[:, None], other=0.0)
    acc = tl.zeros((M, HEAD), tl.float32)
    m, total = tl.full((M,), -1e30, tl.float32), tl.zeros((M,), tl.float32)
    for start in range(0, prefix, N):
        cols = start + tl.arange(0, N)
        inside = cols < prefix
        ids = tl.load(ids_ptr + cols, mask=inside, other=0)
        kn = tl.load(cache_ptr + ids[None, :] * width + d[:, None], mask=inside[None, :], other=0.0)
        s = tl.dot(q, kn)
        kp = tl.load(cache_ptr + ids[None, :] * width + e[:, None], mask=inside[None, :], other=0.0)
        s += tl.dot(q_rope, kp)
        s = tl.where(inside[None, :], s * scale, -1e30)
        m_new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp(m - m_new)
        p = tl.exp(s - m_new[:, None])
        total = total * alpha + tl.sum(p, 1)
        vn = tl.load(cached_v_ptr + ids[:, None] * HEAD + d[None, :], mask=inside[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(vn.dtype), vn)
        m = m_new
    for start in range(0, n, N):
        cols = start + tl.arange(0, N)
        inside = cols < n
        kn = tl.load(k_ptr + cols[None, :] * width + d[:, None], mask=inside[None, :], other=0.0)
        s = tl.dot(q, kn)
        kp = tl.load(k_ptr + cols[None, :] * width + e[:, None], mask=inside[None, :], other=0.0)
        s += tl.dot(q_rope, kp)
        s = tl.where(inside[None, :] & (rows[:, None] >= cols[None, :]), s * scale, -1e30)
        m_new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp(m - m_new)
        p = tl.exp(s - m_new[:, None])
        total = total * alpha + tl.sum(p, 1)
        vn = tl.load(v_ptr + cols[:, None] * HEAD + d[None, :], mask=inside[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(vn.dtype), vn)
        m = m_new
    out = out_ptr + rows[:, None] * HEAD + d[None, :]
    tl.store(out, acc / total[:, None], mask=(rows < n)[:, None])


@triton.jit
def gated(x_ptr, gate_ptr, up_ptr, out_ptr, n, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Two weights, one after the other."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    gate = tl.zeros((M, N), tl.float32)
    up = tl.zeros((M, N), tl.float32)
    for start in range(0, depth, K):
        i = start + tl.arange(0, K)
        x = tl.load(x_ptr + rows[:, None] * depth + i[None, :])
        gate = tl.dot(x, tl.load(gate_ptr + i[:, None] * n + cols[None, :]), gate)
        up = tl.dot(x, tl.load(up_ptr + i[:, None] * n + cols[None, :]), up)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], gate * up)


@triton.jit
def heads_in_turn(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, n, first, scale, M: tl.constexpr, N: tl.constexpr, HEAD: tl.constexpr
):  # fmt: skip
    """A loop in a loop, and blocks of keys that a condition leaves out."""
    r, d = tl.arange(0, M), tl.arange(0, HEAD)
    for head in range(heads):
        q = tl.load(q_ptr + (head * M + r)[:, None] * HEAD + d[None, :])
        acc = tl.zeros((M, HEAD), tl.float32)
        total = tl.zeros((M,), tl.float32)
        for start in range(0, n, N):
            if start >= first:
                cols = start + tl.arange(0, N)
                kn = tl.load(k_ptr + (head * n + cols)[None, :] * HEAD + d[:, None])
                p = tl.exp(tl.dot(q, kn) * scale)
                total += tl.sum(p, 1)
                vn = tl.load(v_ptr + (head * n + cols)[:, None] * HEAD + d[None, :])
                acc = tl.dot(p.to(vn.dtype), vn, acc)
        tl.store(out_ptr + (head * M + r)[:, None] * HEAD + d[None, :], acc / total[:, None])


@triton.jit
def three_queries(q_ptr, k_ptr, out_ptr, n, M: tl.constexpr, N: tl.constexpr, HEAD: tl.constexpr):
    """Three operands of a loop that is around none of them."""
    rows, d = tl.arange(0, M), tl.arange(0, HEAD)
    q = q_ptr + rows[:, None] * (3 * HEAD) + d[None, :]
    q0, q1, q2 = tl.load(q), tl.load(q + HEAD), tl.load(q + 2 * HEAD)
    for start in range(0, n, N):
        cols = start + tl.arange(0, N)
        k = k_ptr + cols[None, :] * (3 * HEAD) + d[:, None]
        s = tl.dot(q0, tl.load(k))
        s += tl.dot(q1, tl.load(k + HEAD))
        s += tl.dot(q2, tl.load(k + 2 * HEAD))
        tl.store(out_ptr + rows[:, None] * n + cols[None, :], s)


H = "*fp16:16"
SIGNATURES = {
    "two_parts": f"{H},{H},{H},{H},i32:16,fp32",
    "latent": f"{H},{H},{H},{H},{H},*i32:16,{H},i32,i32:16,fp32",
    "gated": f"{H},{H},{H},{H},i32:16,i32:16",
    "three_queries": f"{H},{H},{H},i32:16",
}

IS_AMPERE = DEVICE.startswith("sim:sm_8")

SMALL = 1024
"""Bytes of barriers, and what is lost between tiles that begin at multiples of their swizzle."""

CHEAP = 48 << 10
"""So much a kernel may take to spare a barrier."""


def command(words, name, constants, target, **options):
    """The command on a kernel as launches have it, with tensor maps."""
    options = {"num_stages": 1, **options}
    return subprocess.run(
        [
            sys.executable, "-m", "tilewright", *words, f"{__file__}::{name}", "-s", f"{SIGNATURES[name]},{constants}",
            "--target", target, "--tensor-maps", *(f"--option={key}={value}" for key, value in options.items()),
        ],
        capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), timeout=PATIENCE,
    )  # fmt: skip


def shared_bytes(*arguments, **options):
    made = command(["compile", "--emit", "gpu"], *arguments, **options)
    assert made.returncode == 0, made.stderr
    return int(re.search(r", (\d+) bytes of shared memory", made.stdout)[1])


OFFICIAL = [
    # The kernel, its blocks, warps, and the bytes of the official compiler (3.9) on sm_90 and sm_80.
    ("two_parts", "32,64,512,64", 4, (106496, 106496)),
    ("two_parts", "64,64,512,64", 4, (139264, 147456)),
    ("two_parts", "64,32,512,64", 4, (106496, 110592)),
    ("two_parts", "16,64,512,64", 4, (86016, 86016)),
    ("two_parts", "64,64,256,32", 8, (69632, 77824)),
    ("two_parts", "128,64,128,64", 8, (65536, 65536)),
    ("latent", "32,64,512,64", 4, (106496, 106496)),
    ("latent", "32,64,512,64", 8, (106496, 106496)),
    ("latent", "64,64,128,64", 4, (40960, 49152)),
    ("gated", "128,128,64", 4, (32768, 32768)),
    ("gated", "64,256,128", 8, (81920, 81920)),
]


@pytest.mark.parametrize(("name", "constants", "warps", "official"), OFFICIAL)
@pytest.mark.parametrize("target", ["sm_90", "sm_80"])
def test_no_more_than_the_official_compiler_takes(name, constants, warps, official, target):
    found = shared_bytes(name, constants, target, num_warps=warps)
    assert found <= max(official[target == "sm_80"] + SMALL, CHEAP)


def attention(q, k, v, scale, mask=None):
    """In fp64."""
    q, k, v = (x.cpu().double() for x in (q, k, v))
    s = q @ k.T * scale
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return s.softmax(-1) @ v


def random_tensor(shape, device, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(torch.float16).to(device)


def close(found, expected):
    torch.testing.assert_close(found.cpu().double(), expected, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(
    ("blocks", "n"), [((64, 64, 128, 64), 200), ((32, 64, 256, 32), 64), ((128, 32, 128, 64), 97)]
)
def test_a_head_in_two_parts(device, blocks, n, warps):
    m, _, head, rope = blocks
    q, k = (random_tensor((rows, head + rope), device, seed) for seed, rows in enumerate((2 * m, n)))
    v, scale = random_tensor((n, head), device, 2), (head + rope) ** -0.5
    out = torch.zeros((2 * m, head), dtype=torch.float16, device=device)
    two_parts[(2,)](q, k, v, out, n, scale, *blocks, num_warps=warps, num_stages=1)
    close(out, attention(q, k, v, scale))


@pytest.mark.parametrize(("prefix", "n"), [(130, 96), (0, 70), (64, 1)])
def test_loops_in_a_row(device, prefix, n):
    m, _, head, rope = blocks = 32, 64, 512, 64
    q, k, cache = (random_tensor((rows, head + rope), device, seed) for seed, rows in enumerate((n, n, 300)))
    v, cached_v = random_tensor((n, head), device, 3), random_tensor((300, head), device, 4)
    ids = torch.randperm(300, generator=torch.Generator().manual_seed(5))[:prefix].to(torch.int32).to(device)
    out, scale = torch.zeros((n, head), dtype=torch.float16, device=device), (head + rope) ** -0.5
    grid = (triton.cdiv(n, m),)
    latent[grid](
        q, cache, cached_v, k, v, ids, out, prefix, n, scale, *blocks, num_warps=8, num_stages=1
    )  # fmt: skip
    mask = torch.cat([torch.ones(n, prefix, dtype=torch.bool), torch.ones(n, n, dtype=torch.bool).tril()], 1)
    keys, values = torch.cat([cache[ids.long()], k]), torch.cat([cached_v[ids.long()], v])
    close(out, attention(q, keys, values, scale, mask))


@pytest.mark.parametrize("warps", [4, 8])
def test_two_weights_in_turn(device, warps):
    m, n, k = blocks = 64, 128, 128
    x, gate, up = (random_tensor(shape, device, 7) / 8 for shape in ((m, 3 * k), (3 * k, n), (3 * k, n)))
    out = torch.zeros((m, n), dtype=torch.float16, device=device)
    gated[(1, 1)](x, gate, up, out, n, 3 * k, *blocks, num_warps=warps, num_stages=1)
    x, gate, up = (y.cpu().double() for y in (x, gate, up))
    close(out, (x @ gate) * (x @ up))


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("first", [0, 64])
def test_a_loop_in_a_loop(device, warps, first):
    m, n, head, heads, scale = 64, 192, 256, 3, 1 / 16
    q, k, v = (random_tensor((heads * rows, head), device, rows) for rows in (m, n, n))
    out = torch.zeros((heads * m, head), dtype=torch.float16, device=device)
    heads_in_turn[(1,)](q, k, v, out, heads, n, first, scale, m, 64, head, num_warps=warps, num_stages=1)
    for number in range(heads):
        rows, cols = slice(number * m, (number + 1) * m), slice(number * n + first, (number + 1) * n)
        close(out[rows], attention(q[rows], k[cols], v[cols], scale))


@pytest.mark.parametrize(
    ("name", "constants", "target", "limit", "operands"),
    [
        ("three_queries", "64,64,512", "sm_90", 232448, 1),
        ("three_queries", "16,128,512", "sm_80", 166912, 1),
        ("two_parts", "32,64,512,64", "sm_89", 101376, 1),
    ],
)
def test_what_does_not_fit_takes_operands_from_registers(name, constants, target, limit, operands):
    assert shared_bytes(name, constants, target, num_warps=4) <= limit
    said = command(["explain", "--why"], name, constants, target, num_warps=4).stdout
    assert (
        len(re.findall(r"\[register_operands\] missed: .*: [AB] is read from \d+ registers", said))
        == operands
    )
    assert f"bytes of shared memory would be needed, but the target has {limit}" in said


def test_operands_from_registers(device):
    n, head = 256, 512
    m, columns = (16, 128) if IS_AMPERE else (64, 64)
    q, k = (random_tensor((rows, 3 * head), device, rows) / 16 for rows in (m, n))
    out = torch.zeros((m, n), dtype=torch.float16, device=device)
    three_queries[(1,)](q, k, out, n, m, columns, head, num_warps=4, num_stages=1)
    close(out, q.cpu().double() @ k.cpu().double().T)


def test_a_refusal_says_what_takes_how_much():
    made = command(["compile", "--emit", "gpu"], "two_parts", "32,64,512,64", "sm_75", num_warps=4)
    assert made.returncode != 0
    lines = [line for line in made.stderr.splitlines() if " bytes: fp16" in line]
    assert "error[TW0114]: the kernel needs 102400 bytes of shared memory, and sm_75 has 65536" in made.stderr
    found = {re.search(r"\d+ bytes: fp16\[.*\]", line)[0] for line in lines if "note" not in line}
    assert found == {"65536 bytes: fp16[64, 512]", "32768 bytes: fp16[32, 512]", "4096 bytes: fp16[32, 64]"}
    # At the loads.
    source = made.stderr.split("= note")[0]
    assert "q = tl.load(" in source
    assert "vn = tl.load(" in source


def test_a_remark_says_that_tiles_share_their_memory():
    said = command(["explain", "--why"], "two_parts", "64,64,512,64", "sm_90", num_warps=4).stdout
    assert "its memory serves other tiles in the same iteration" in said
