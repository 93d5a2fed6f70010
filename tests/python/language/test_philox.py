"""Random numbers: the published vectors of Philox, and every form against the algorithm in numpy."""

import numpy as np
import pytest
import torch
from helpers import assert_same, to_host

import tilewright as triton
import tilewright.language as tl

# From the known-answer file of Random123: width, counters, keys, results of ten rounds.
KNOWN = [
    (32, (0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (32, (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        32,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
    (
        64,
        (0, 0, 0, 0),
        (0, 0),
        (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
    ),
    (
        64,
        (2**64 - 1,) * 4,
        (2**64 - 1,) * 2,
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
]


def philox(counters, keys, width=32, rounds=10):
    """The algorithm on Python's integers."""
    mask = 2**width - 1
    multipliers, steps = {
        32: ((0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)),
        64: ((0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)),
    }[width]
    (c0, c1, c2, c3), (k0, k1) = counters, keys
    for _ in range(rounds):
        a, b = c0 * multipliers[0], c2 * multipliers[1]
        c0, c1, c2, c3 = (b >> width) ^ c1 ^ k0, b & mask, (a >> width) ^ c3 ^ k1, a & mask
        k0, k1 = (k0 + steps[0]) & mask, (k1 + steps[1]) & mask
    return c0, c1, c2, c3


@triton.jit
def rounds_kernel(c_ptr, k_ptr, out_ptr, WIDE: tl.constexpr):
    dtype: tl.constexpr = tl.uint64 if WIDE else tl.uint32
    c0, c1 = tl.load(c_ptr).to(dtype, bitcast=True), tl.load(c_ptr + 1).to(dtype, bitcast=True)
    c2, c3 = tl.load(c_ptr + 2).to(dtype, bitcast=True), tl.load(c_ptr + 3).to(dtype, bitcast=True)
    k0, k1 = tl.load(k_ptr).to(dtype, bitcast=True), tl.load(k_ptr + 1).to(dtype, bitcast=True)
    r0, r1, r2, r3 = tl.philox_impl(c0, c1, c2, c3, k0, k1)
    tl.store(out_ptr, r0)
    tl.store(out_ptr + 1, r1)
    tl.store(out_ptr + 2, r2)
    tl.store(out_ptr + 3, r3)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known[0]}-{known[3][0]:x}")
def test_known_answers(known, device):
    width, counters, keys, expected = known
    assert philox(counters, keys, width) == expected
    dtype = f"uint{width}"
    tensors = [
        torch.from_numpy(np.array(numbers, dtype).view(f"int{width}")).to(device)
        for numbers in (counters, keys)
    ]
    out = torch.zeros(4, dtype=tensors[0].dtype, device=device)
    rounds_kernel[(1,)](*tensors, out, WIDE=width == 64)
    assert to_host(out).view(dtype).tolist() == list(expected)


@triton.jit
def forms_kernel(
    seed, offset_ptr, four_ptr, one_ptr, uniform_ptr, uniforms_ptr, normal_ptr, normals_ptr, N: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, N)
    offset = tl.load(offset_ptr + i)
    a, b, c, d = tl.randint4x(seed, offset, ROUNDS)
    tl.store(four_ptr + i, a)
    tl.store(four_ptr + N + i, b)
    tl.store(four_ptr + 2 * N + i, c)
    tl.store(four_ptr + 3 * N + i, d)
    tl.store(one_ptr + i, tl.randint(seed, offset, ROUNDS))
    tl.store(uniform_ptr + i, tl.rand(seed, offset, ROUNDS))
    a, b, c, d = tl.rand4x(seed, offset, ROUNDS)
    tl.store(uniforms_ptr + i, a)
    tl.store(uniforms_ptr + N + i, b)
    tl.store(uniforms_ptr + 2 * N + i, c)
    tl.store(uniforms_ptr + 3 * N + i, d)
    tl.store(normal_ptr + i, tl.randn(seed, offset, ROUNDS))
    a, b, c, d = tl.randn4x(seed, offset, ROUNDS)
    tl.store(normals_ptr + i, a)
    tl.store(normals_ptr + N + i, b)
    tl.store(normals_ptr + 2 * N + i, c)
    tl.store(normals_ptr + 3 * N + i, d)


def uniform(x):
    """Integers as numbers in [0, 1), in binary32 at each step."""
    signed = x.view(np.int32)
    return np.where(signed < 0, ~signed, signed).astype(np.float32) * np.float32(4.6566127342e-10)


def normals(u, v):
    radius = np.sqrt(-2 * np.log(np.maximum(1e-7, u.astype(np.float64))))
    return radius * np.cos(2 * np.pi * v.astype(np.float64)), radius * np.sin(
        2 * np.pi * v.astype(np.float64)
    )


@pytest.mark.parametrize("seed", [0, 42, 2**31 + 5, 2**63 - 1, -1], ids=str)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_forms(dtype, seed, device):
    rng = np.random.default_rng(1)
    info, count = np.iinfo(dtype), 64
    offset = np.concatenate(
        [np.arange(8, dtype=dtype), rng.integers(info.min, info.max, count - 8, dtype, endpoint=True)]
    )
    rounds = 7 if seed == 42 else 10
    words = seed & (2**64 - 1)
    made = []
    for number in offset.tolist():
        bits = number & (2 ** np.iinfo(dtype).bits - 1)
        made.append(
            philox((bits & 0xFFFFFFFF, bits >> 32, 0, 0), (words & 0xFFFFFFFF, words >> 32), 32, rounds)
        )
    expected = np.array(made, np.uint32).T
    shapes = [(4, count), (count,), (count,), (4, count), (count,), (4, count)]
    types = [torch.int32, torch.int32] + [torch.float32] * 4
    outs = [torch.zeros(shape, dtype=kind, device=device) for shape, kind in zip(shapes, types, strict=True)]
    stored = torch.from_numpy(offset.view("int32") if dtype == "uint32" else offset)
    stored = stored.view(torch.uint32) if dtype == "uint32" else stored
    forms_kernel[(1,)](seed, stored.to(device), *outs, N=count, ROUNDS=rounds)
    four, one, single, quadruple, normal, normal4 = (to_host(out) for out in outs)
    assert_same(four.view(np.uint32), expected)
    assert_same(one.view(np.uint32), expected[0])
    assert_same(single, uniform(expected[0]))
    assert_same(quadruple, uniform(expected))
    u = uniform(expected)
    (first, second), (third, fourth) = normals(u[0], u[1]), normals(u[2], u[3])
    np.testing.assert_allclose(normal, first, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(normal4, np.stack([first, second, third, fourth]), rtol=1e-4, atol=1e-5)
