"""Random numbers: the counter-based generator Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").

The same seed and offset give the same number on every device.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def _is_wide(dtype):
    return dtype.primitive_bitwidth == 64


@triton.jit
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: tl.constexpr = 10):
    """The rounds of Philox on four counters and two keys, all uint32 or all uint64."""
    wide: tl.constexpr = _is_wide(c0.dtype)
    key_a: tl.constexpr = 0x9E3779B97F4A7C15 if wide else 0x9E3779B9
    key_b: tl.constexpr = 0xBB67AE8584CAA73B if wide else 0xBB67AE85
    round_a: tl.constexpr = 0xD2E7470EE14C6C93 if wide else 0xD2511F53
    round_b: tl.constexpr = 0xCA5A826395121157 if wide else 0xCD9E8D57
    for _ in tl.static_range(n_rounds):
        a, b = c0, c2
        c0 = tl.umulhi(b, round_b) ^ c1 ^ k0
        c2 = tl.umulhi(a, round_a) ^ c3 ^ k1
        c1 = b * round_b
        c3 = a * round_a
        k0 = k0 + key_a
        k1 = k1 + key_b
    return c0, c1, c2, c3


@triton.jit
def philox(seed, c0, c1, c2, c3, n_rounds: tl.constexpr = 10):
    """Four random unsigned integers from a seed and four counters, as wide as the first counter."""
    seed = tl.to_tensor(seed).to(tl.uint64)
    c0 = tl.to_tensor(c0)
    c1 = tl.to_tensor(c1)
    c2 = tl.to_tensor(c2)
    c3 = tl.to_tensor(c3)
    if _is_wide(c0.dtype):
        return philox_impl(c0.to(tl.uint64), c1.to(tl.uint64), c2.to(tl.uint64), c3.to(tl.uint64), seed, seed * 0,
                           n_rounds)
    else:
        low = (seed & 0xFFFFFFFF).to(tl.uint32)
        high = (seed >> 32).to(tl.uint32)
        return philox_impl(c0.to(tl.uint32), c1.to(tl.uint32), c2.to(tl.uint32), c3.to(tl.uint32), low, high, n_rounds)


@triton.jit
def randint4x(seed, offset, n_rounds: tl.constexpr = 10):
    """Four tiles of random uint32 from a seed and a tile of offsets."""
    offset = tl.to_tensor(offset)
    low = offset.to(tl.uint32)
    zero = low * 0
    if _is_wide(offset.dtype):
        return philox(seed, low, (offset >> 32).to(tl.uint32), zero, zero, n_rounds)
    else:
        return philox(seed, low, zero, zero, zero, n_rounds)


@triton.jit
def randint(seed, offset, n_rounds: tl.constexpr = 10):
    """A tile of random uint32 from a seed and a tile of offsets; `randint4x` is the faster way to get four."""
    result, _, _, _ = randint4x(seed, offset, n_rounds)
    return result


@triton.jit
def uint_to_uniform_float(x):
    """Converts random integers to fp32 (with an fp64 scale for 64-bit ones), evenly distributed in [0, 1)."""
    if _is_wide(x.dtype):
        wide = x.to(tl.int64, bitcast=True)
        return tl.where(wide < 0, ~wide, wide) * 1.0842020432385337e-19
    else:
        narrow = x.to(tl.int32, bitcast=True)
        return tl.where(narrow < 0, ~narrow, narrow) * 4.6566127342e-10


@triton.jit
def rand(seed, offset, n_rounds: tl.constexpr = 10):
    """A tile of random fp32, evenly distributed in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@triton.jit
def rand4x(seed, offsets, n_rounds: tl.constexpr = 10):
    """Four tiles of random fp32, evenly distributed in [0, 1)."""
    i1, i2, i3, i4 = randint4x(seed, offsets, n_rounds)
    return uint_to_uniform_float(i1), uint_to_uniform_float(i2), uint_to_uniform_float(i3), uint_to_uniform_float(i4)


@triton.jit
def pair_uniform_to_normal(u1, u2):
    """Two normally distributed numbers from two evenly distributed ones, by the method of Box and Muller."""
    angle = 6.283185307179586 * u2
    radius = tl.sqrt(-2.0 * tl.log(tl.maximum(1.0e-7, u1)))
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def randn(seed, offset, n_rounds: tl.constexpr = 10):
    """A tile of random fp32, normally distributed with mean 0 and variance 1."""
    i1, i2, _, _ = randint4x(seed, offset, n_rounds)
    n1, _ = pair_uniform_to_normal(uint_to_uniform_float(i1), uint_to_uniform_float(i2))
    return n1


@triton.jit
def randn4x(seed, offset, n_rounds: tl.constexpr = 10):
    """Four tiles of random fp32, normally distributed with mean 0 and variance 1."""
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    n1, n2 = pair_uniform_to_normal(u1, u2)
    n3, n4 = pair_uniform_to_normal(u3, u4)
    return n1, n2, n3, n4
