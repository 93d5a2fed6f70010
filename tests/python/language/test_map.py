"""``tl.map_elementwise``: functions of scalars on each element."""

import textwrap

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


@triton.jit
def collatz(x, limit):
    steps = 0
    while (x != 1) & (steps < limit):
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    return steps


@triton.jit
def power_of(base, exponent):
    result = 1.0
    for _ in range(exponent):
        result *= base
    return result


@triton.jit
def clipped_or_looked_up(i, table_ptr, n):
    if i >= n:
        return -1.0
    return tl.load(table_ptr + i)


@triton.jit
def branching(x_ptr, y_ptr, table_ptr, steps_ptr, power_ptr, found_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    # Nothing but the bound on its steps ends the loop for 0, and no element is 0.
    tl.store(steps_ptr + at, tl.map_elementwise(collatz, x, 1 << 30))
    tl.store(power_ptr + at, tl.map_elementwise(power_of, tl.load(y_ptr + at), x % 7))
    tl.store(found_ptr + at, tl.map_elementwise(clipped_or_looked_up, x, table_ptr, 16))


def collatz_steps(x):
    steps = 0
    while x != 1:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        steps += 1
    return steps


@pytest.mark.parametrize("shape", [(4, 8), (3, 5), (1, 33)], ids=str)
def test_elements_branch_and_loop(shape, device):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(1, 40, shape, generator=generator, dtype=torch.int32)
    y = torch.randint(-3, 4, shape, generator=generator).float()
    table = torch.randn(16, generator=generator)
    steps = torch.zeros(shape, dtype=torch.int32, device=device)
    power, found = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
    on = [each.to(device) for each in (x, y, table)]
    branching[(1,)](*on, steps, power, found, *shape)
    assert steps.tolist() == [[collatz_steps(each) for each in row] for row in x.tolist()]
    assert torch.equal(power.cpu(), y ** (x % 7))
    assert torch.equal(found.cpu(), torch.where(x < 16, table[x.clamp(max=15).long()], -1.0))


@triton.jit
def pairs(a0, a1, b0, b1):
    if a0 > a1:
        a0 += 100
    return a0 + b0, a1 + b1, b0 * 2, b1 * 2


@triton.jit
def quads(x0, x1, x2, x3):
    n = 0
    while n < x0 + 3:
        n += 1
    return x0 * 0 + n, x1 + 1, x2 + 1, x3 + 1


@triton.jit
def packs(a_ptr, b_ptr, sum_ptr, twice_ptr, quad_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(a_ptr + i), tl.load(b_ptr + i)
    total, twice = tl.map_elementwise(pairs, a, b, pack=2)
    tl.store(sum_ptr + i, total)
    tl.store(twice_ptr + i, twice)
    tl.store(quad_ptr + i, tl.map_elementwise(quads, b, pack=4))


@pytest.mark.parametrize("n", [1, 2, 12, 13, 256])
def test_packs(n, device):
    generator = torch.Generator().manual_seed(n)
    a = torch.randint(0, 50, (n,), generator=generator, dtype=torch.int32)
    b = torch.randint(0, 50, (n,), generator=generator, dtype=torch.int32)
    total, twice, quad = (torch.zeros(n, dtype=torch.int32, device=device) for _ in range(3))
    packs[(1,)](a.to(device), b.to(device), total, twice, quad, N=n)
    plain = a + b
    # Which elements share a call is not said: of each, it may be the first one, whose sum is larger by 100.
    assert ((total.cpu() == plain) | (total.cpu() == plain + 100)).all()
    assert torch.equal(twice.cpu(), b * 2)
    assert ((quad.cpu() == b + 1) | (quad.cpu() == b + 3)).all()


def test_scalars(device):
    text = """
    @triton.jit
    def f(a0, a1):
        return a0 + 1, a1 + 1

    @triton.jit
    def k(out_ptr, n):
        tl.store(out_ptr, tl.map_elementwise(f, n, pack=2))
    """
    out = torch.zeros(1, dtype=torch.int32, device=device)
    module(textwrap.dedent(text)).k[(1,)](out, 5)
    assert out.item() == 6


REFUSED = {
    "pack": ("    tl.map_elementwise(f, i, pack=3)\n", "    return x\n", "cannot be 3"),
    "results": ("    tl.map_elementwise(f, i, i, pack=1)\n", "    return x\n", "f takes"),
    "too few": (
        "    tl.map_elementwise(g, i, pack=2)\n",
        "    return x\n",
        "returns 1 values for 2 elements",
    ),
    "store": ("    tl.map_elementwise(h, i)\n", "    return x\n", "contains the op `print`"),
    "shape": (
        "    tl.map_elementwise(f, i)\n",
        "    return tl.zeros((2,), tl.int32)\n",
        "gives [2] for elements of [8]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    line, body, phrase = REFUSED[name]
    others = "@triton.jit\ndef g(x, y):\n    return x\n\n"
    others += "@triton.jit\ndef h(x):\n    tl.device_print('x', x)\n    return x\n\n"
    text = f"@triton.jit\ndef f(x):\n{body}\n\n{others}@triton.jit\ndef k():\n    i = tl.arange(0, 8)\n{line}"
    with pytest.raises(triton.CompilationError) as raised:
        module(text).k[(1,)]()
    assert phrase in str(raised.value)
