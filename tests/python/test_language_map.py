"""``tl.map_elementwise``: functions of scalars on each element."""

import pytest
import torch
from helpers import module

import tilewright as triton
import tilewright.language as tl


@triton.jit
def divmod_of(a, b):
    q = a // b
    return q, a - q * b, 7


@triton.jit
def clipped(x, limit):
    return tl.where(x > limit, limit, tl.where(x < -limit, -limit, x * 0.5))


@triton.jit
def maps(a_ptr, b_ptr, x_ptr, q_ptr, r_ptr, s_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    q, r, s = tl.map_elementwise(divmod_of, tl.load(a_ptr + i), tl.load(b_ptr + j))
    tl.store(q_ptr + i * N + j, q)
    tl.store(r_ptr + i * N + j, r)
    tl.store(s_ptr + i * N + j, s)
    k = tl.arange(0, M)
    tl.store(y_ptr + k, tl.map_elementwise(clipped, tl.load(x_ptr + k), 1.5))


def test_map(device):
    m, n = 8, 4
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(0, 100, (m,), generator=generator, dtype=torch.int32)
    b = torch.randint(1, 9, (n,), generator=generator, dtype=torch.int32)
    x = torch.randn(m, generator=generator) * 2
    outs = [torch.zeros(m, n, dtype=torch.int32, device=device) for _ in range(3)]
    y = torch.zeros(m, device=device)
    maps[(1,)](a.to(device), b.to(device), x.to(device), *outs, y, M=m, N=n)
    q, r, s = (out.cpu() for out in outs)
    assert torch.equal(q, a[:, None] // b[None, :])
    assert torch.equal(r, a[:, None] % b[None, :])
    assert (s == 7).all()
    expected = torch.where(x.abs() > 1.5, x.clamp(-1.5, 1.5), x * 0.5)
    torch.testing.assert_close(y.cpu(), expected)


REFUSED = {
    "pack": ("    tl.map_elementwise(f, i, pack=2)\n", "    return x\n", "one element at a time"),
    "branch": (
        "    tl.map_elementwise(f, i)\n",
        "    if x > 2:\n        x = x + 1\n    return x\n",
        "neither true nor",
    ),
    "shape": (
        "    tl.map_elementwise(f, i)\n",
        "    return tl.zeros((2,), tl.int32)\n",
        "gives [2] for elements of [8]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    line, body, phrase = REFUSED[name]
    text = f"@triton.jit\ndef f(x):\n{body}\n\n@triton.jit\ndef k():\n    i = tl.arange(0, 8)\n{line}"
    with pytest.raises(triton.CompilationError) as raised:
        module(text).k[(1,)]()
    assert phrase in str(raised.value)
