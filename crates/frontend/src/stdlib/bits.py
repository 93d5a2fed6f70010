"""`triton.language.extra.libdevice`: integers and the encodings of floats. Exact.

Counting and reversing bits work on all bits of a word at once (Warren, Hacker's Delight, chapters 5 and 7).
"""

import triton
import triton.language as tl


@triton.constexpr_function
def _bits_of(dtype):
    return tl.get_int_dtype(dtype.primitive_bitwidth, False)


@triton.constexpr_function
def _every(width, pattern, period):
    """Returns the word of ``width`` bits that repeats a pattern with a period."""
    return ((1 << width) - 1) // ((1 << period) - 1) * pattern


@triton.jit
def popc(arg0):
    """The number of set bits of a 32- or 64-bit integer; int32."""
    width: tl.constexpr = arg0.dtype.primitive_bitwidth
    x = arg0.to(_bits_of(arg0.dtype), bitcast=True)
    x = x - ((x >> 1) & _every(width, 0x1, 2))
    x = (x & _every(width, 0x3, 4)) + ((x >> 2) & _every(width, 0x3, 4))
    x = (x + (x >> 4)) & _every(width, 0xF, 8)
    return ((x * _every(width, 0x1, 8)) >> (width - 8)).to(tl.int32)


@triton.jit
def clz(arg0):
    """The number of zero bits above the highest set bit of a 32- or 64-bit integer; int32."""
    x = arg0.to(_bits_of(arg0.dtype), bitcast=True)
    # Sets every bit below the highest set bit.
    for step in tl.static_range(5 if arg0.dtype.primitive_bitwidth == 32 else 6):
        x = x | (x >> (1 << step))
    return popc(~x)


@triton.jit
def ffs(arg0):
    """The position of the lowest set bit, counted from 1, or 0 if no bit is set; int32."""
    x = arg0.to(_bits_of(arg0.dtype), bitcast=True)
    lowest = x & (~x + 1)
    return tl.where(x == 0, 0, popc(lowest - 1) + 1)


@triton.jit
def brev(arg0):
    """A 32- or 64-bit integer with its bits in reverse order."""
    width: tl.constexpr = arg0.dtype.primitive_bitwidth
    x = arg0.to(_bits_of(arg0.dtype), bitcast=True)
    for step in tl.static_range(5 if width == 32 else 6):
        half: tl.constexpr = 1 << step
        low: tl.constexpr = _every(width, (1 << half) - 1, 2 * half)
        x = ((x >> half) & low) | ((x & low) << half)
    return x.to(arg0.dtype, bitcast=True)


@triton.jit
def byte_perm(arg0, arg1, arg2):
    """Four of the eight bytes of two 32-bit integers. Each of the four lowest hexadecimal digits of the third selects
    one by its lower three bits."""
    first = tl.to_tensor(arg0).to(tl.uint32).to(tl.uint64)
    second = tl.to_tensor(arg1).to(tl.uint32).to(tl.uint64)
    selector = tl.to_tensor(arg2).to(tl.uint64)
    both = first | (second << 32)
    result = both & 0
    for place in tl.static_range(4):
        byte = (selector >> (4 * place)) & 7
        result = result | (((both >> (8 * byte)) & 0xFF) << (8 * place))
    return result.to(tl.int32)


@triton.jit
def hadd(arg0, arg1):
    """The average of two integers, rounded down, without overflow."""
    return (arg0 & arg1) + ((arg0 ^ arg1) >> 1)


@triton.jit
def rhadd(arg0, arg1):
    """The average of two integers, rounded up, without overflow."""
    return (arg0 | arg1) - ((arg0 ^ arg1) >> 1)


@triton.jit
def mul24(arg0, arg1):
    """The lower 32 bits of the product of the lower 24 bits of two integers."""
    x, y = tl.broadcast(arg0, arg1)
    return ((x << 8) >> 8) * ((y << 8) >> 8)


@triton.jit
def sad(arg0, arg1, arg2):
    """The absolute difference of two integers, plus a third, as uint32."""
    x, y = tl.broadcast(arg0, arg1)
    difference = tl.where(x > y, x.to(tl.uint32) - y.to(tl.uint32), y.to(tl.uint32) - x.to(tl.uint32))
    return difference + tl.to_tensor(arg2).to(tl.uint32)


@triton.jit
def hiloint2double(arg0, arg1):
    """The fp64 whose upper and lower 32 bits are these."""
    upper = tl.to_tensor(arg0).to(tl.int64) << 32
    return (upper | tl.to_tensor(arg1).to(tl.uint32).to(tl.int64)).to(tl.float64, bitcast=True)


@triton.jit
def nextafter(arg0, arg1):
    """The next number after the first in the direction of the second."""
    x, y = tl.broadcast(arg0, arg1)
    word: tl.constexpr = tl.get_int_dtype(x.dtype.primitive_bitwidth, True)
    bits = x.to(word, bitcast=True)
    # The encodings of floats grow with the distance from zero.
    away = (x < y) == (x > 0.0)
    moved = tl.where(away, bits + 1, bits - 1).to(x.dtype, bitcast=True)
    smallest = tl.where(y > 0.0, bits * 0 + 1, bits * 0 + _sign_and_one(word)).to(x.dtype, bitcast=True)
    result = tl.where(x == 0.0, smallest, moved)
    return tl.where(x == y, y, tl.where((x != x) | (y != y), x + y, result))


@triton.constexpr_function
def _sign_and_one(word):
    return 1 - 2 ** (word.primitive_bitwidth - 1)


@triton.jit
def _normal(x):
    """The number, scaled by a power of two so that it is not subnormal, and the exponent of that power, in fp64."""
    wide = x.to(tl.float64)
    small = tl.abs(wide) < 2.0**-1022
    return tl.where(small, wide * 2.0**54, wide), tl.where(small, 54, 0)


@triton.jit
def _exponent(x):
    """The exponent of a finite number other than zero."""
    wide, scale = _normal(x)
    return ((wide.to(tl.int64, bitcast=True) >> 52) & 0x7FF).to(tl.int32) - 1023 - scale


@triton.jit
def ilogb(arg0):
    """The binary exponent, rounded down, as int32: -2147483648 for zero and NaN, 2147483647 for infinity."""
    size = tl.abs(arg0)
    ends = tl.where(size == float("inf"), 2147483647, -2147483648)
    return tl.where((size > 0.0) & (size < float("inf")), _exponent(arg0), ends)


@triton.jit
def logb(arg0):
    """The binary exponent, rounded down: minus infinity for zero, infinity for infinity, NaN for NaN."""
    size = tl.abs(arg0)
    exponent = _exponent(arg0).to(arg0.dtype)
    ends = tl.where(size == 0.0, float("-inf"), size)
    return tl.where((size > 0.0) & (size < float("inf")), exponent, ends)


@triton.jit
def _power_of_two(exponent):
    """2 to the power of an integer from -1022 to 1023, in fp64."""
    return ((exponent.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def ldexp(arg0, arg1):
    """x times 2 to the power of an integer, rounded once."""
    x, power = tl.broadcast(arg0, arg1)
    wide, _ = _normal(x)
    # The significand, from 1 to 2, and the exponent of the result.
    bits = (wide.to(tl.int64, bitcast=True) & -9218868437227405313) | 4607182418800017408
    exponent = _exponent(x) + tl.minimum(tl.maximum(power, -5000), 5000)
    # The first product is exact.
    first = tl.where(exponent < -1022, -900, tl.minimum(exponent, 1023))
    rest = tl.minimum(tl.maximum(exponent - first, -1022), 1023)
    result = bits.to(tl.float64, bitcast=True) * _power_of_two(first) * _power_of_two(rest)
    return tl.where((x != 0.0) & (tl.abs(x) < float("inf")), result.to(x.dtype), x)


@triton.jit
def scalbn(arg0, arg1):
    """x times 2 to the power of an integer, rounded once."""
    return ldexp(arg0, arg1)


@triton.jit
def rcp64h(arg0):
    """1 / x of an fp64, about 20 bits of it: the lower half of the result is zero."""
    bits = tl.div_rn(1.0, arg0).to(tl.int64, bitcast=True)
    return (bits & -4294967296).to(tl.float64, bitcast=True)
