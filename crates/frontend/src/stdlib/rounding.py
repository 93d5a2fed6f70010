"""`triton.language.extra.libdevice`: arithmetic and conversions with directed rounding, exact for every input.

A result is first rounded to nearest. The sign of the error is known exactly: for fp32 from fp64, which
holds sums and products of fp32 without loss, or with a loss that a second number holds; for fp64 from error-free
transformations (Dekker; Knuth, TAOCP 4.2.2), on operands scaled by powers of two if an error could be lost to underflow.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def _int_of(dtype):
    return tl.get_int_dtype(dtype.primitive_bitwidth, True)


@triton.jit
def _next_up(x):
    """Returns the next larger number; infinity and NaN are unchanged."""
    bits = x.to(_int_of(x.dtype), bitcast=True)
    # The next number above a negative number has its encoding minus 1.
    moved = tl.where(x == 0.0, bits * 0 + 1, tl.where(bits >= 0, bits + 1, bits - 1))
    return tl.where((x < float("inf")), moved.to(x.dtype, bitcast=True), x)


@triton.jit
def _next_down(x):
    """Returns the next smaller number; minus infinity and NaN are unchanged."""
    return -_next_up(-x)


@triton.jit
def _towards(nearest, below, above, direction: tl.constexpr):
    """Moves a number that is rounded to nearest in a direction, if the exact result is below or above it."""
    if direction == "down":
        result = tl.where(below, _next_down(nearest), nearest)
    elif direction == "up":
        result = tl.where(above, _next_up(nearest), nearest)
    else:
        smaller = tl.where((nearest > 0.0) & below, _next_down(nearest), nearest)
        result = tl.where((nearest < 0.0) & above, _next_up(nearest), smaller)
    return result


@triton.jit
def _narrowed(wide, rest, dtype: tl.constexpr, direction: tl.constexpr):
    """Rounds wide + rest to a narrower type in a direction; rest is less than half of the last place of wide."""
    nearest = wide.to(dtype)
    back = nearest.to(wide.dtype)
    below = (wide < back) | ((wide == back) & (rest < 0.0))
    above = (wide > back) | ((wide == back) & (rest > 0.0))
    return _towards(nearest, below, above, direction)


@triton.jit
def _two_sum(x, y):
    """x + y, and its rounding error (Knuth)."""
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


@triton.jit
def _is_negative(x):
    return x.to(_int_of(x.dtype), bitcast=True) < 0


@triton.jit
def _zero_of_sum(result, x, y, direction: tl.constexpr):
    """Replaces an exact sum of zero, of operands with different signs, by -0 when rounding down."""
    if direction == "down":
        result = tl.where((result == 0.0) & (x == -y) & (_is_negative(x) != _is_negative(y)), -0.0, result)
    return result


@triton.jit
def _add(x, y, direction: tl.constexpr):
    x, y = tl.broadcast(x, y)
    if x.dtype == tl.float64:
        total, rest = _two_sum(x, y)
        # If finite operands overflow, the exact result is below infinity, or above minus infinity.
        finite = (tl.abs(x) < float("inf")) & (tl.abs(y) < float("inf"))
        below = (rest < 0.0) | ((total == float("inf")) & finite)
        above = (rest > 0.0) | ((total == float("-inf")) & finite)
        result = _towards(total, below, above, direction)
    else:
        total, rest = _two_sum(x.to(tl.float64), y.to(tl.float64))
        result = _narrowed(total, rest, x.dtype, direction)
    return _zero_of_sum(result, x, y, direction)


@triton.jit
def _scale(x, exponent: tl.constexpr):
    """Returns x times a power of two that is representable."""
    return x * (2.0**exponent)


@triton.jit
def _mul(x, y, direction: tl.constexpr):
    x, y = tl.broadcast(x, y)
    if x.dtype == tl.float64:
        product = x * y
        tiny = tl.abs(product) < 2.0**-960
        # A scaled factor is infinite only if the other is 0; the error is then NaN, which counts as 0: the product is exact.
        a = tl.where(tiny, _scale(x, 600), x)
        b = tl.where(tiny, _scale(y, 500), y)
        error = tl.fma(a, b, -tl.where(tiny, _scale(_scale(product, 600), 500), product))
        finite = (tl.abs(x) < float("inf")) & (tl.abs(y) < float("inf"))
        below = (error < 0.0) | ((product == float("inf")) & finite)
        above = (error > 0.0) | ((product == float("-inf")) & finite)
        # The sign of the error is also right for a product that is rounded to zero.
        result = _towards(product, below, above, direction)
    else:
        product = x.to(tl.float64) * y.to(tl.float64)
        result = _narrowed(product, product * 0.0, x.dtype, direction)
    return result


@triton.jit
def _div(x, y, direction: tl.constexpr):
    x, y = tl.broadcast(x, y)
    if x.dtype == tl.float64:
        quotient = tl.div_rn(x, y)
        small = tl.abs(x) < 1.0
        large = tl.abs(y) > 1.0
        a = tl.where(small, _scale(x, 200), x)
        q = tl.where(small & large, _scale(quotient, 200), quotient)
        b = tl.where(small & (tl.abs(y) <= 1.0), _scale(y, 200), y)
        rest = tl.fma(-q, b, a)
        rest = tl.where(_is_negative(y), -rest, rest)
        finite = (tl.abs(x) < float("inf")) & (y != 0.0)
        below = (rest < 0.0) | ((quotient == float("inf")) & finite)
        above = (rest > 0.0) | ((quotient == float("-inf")) & finite)
        result = _towards(quotient, below, above, direction)
    else:
        a = x.to(tl.float64)
        b = y.to(tl.float64)
        quotient = tl.div_rn(a, b)
        rest = tl.fma(-quotient, b, a)
        result = _narrowed(quotient, tl.where(b < 0.0, -rest, rest), x.dtype, direction)
    return result


@triton.jit
def _sqrt(x, direction: tl.constexpr):
    if x.dtype == tl.float64:
        root = tl.sqrt_rn(x)
        small = x < 1.0
        r = tl.where(small, _scale(root, 300), root)
        rest = tl.fma(-r, r, tl.where(small, _scale(x, 600), x))
        result = _towards(root, rest < 0.0, rest > 0.0, direction)
    else:
        a = x.to(tl.float64)
        root = tl.sqrt_rn(a)
        result = _narrowed(root, tl.fma(-root, root, a), x.dtype, direction)
    return result


@triton.jit
def _fma(x, y, z, direction: tl.constexpr):
    x, y = tl.broadcast(x, y)
    x, z = tl.broadcast(x, z)
    y, z = tl.broadcast(y, z)
    if x.dtype == tl.float64:
        result = _fma_fp64(x, y, z, direction)
    else:
        product = x.to(tl.float64) * y.to(tl.float64)
        total, rest = _two_sum(product, z.to(tl.float64))
        result = _narrowed(total, rest, x.dtype, direction)
        result = _zero_of_sum(result, product, z.to(tl.float64), direction)
    return result


@triton.jit
def _fma_fp64(x, y, z, direction: tl.constexpr):
    nearest = tl.fma(x, y, z)
    # Scale the smaller factor up, or the larger one down, so that the scaled factor neither overflows nor underflows.
    size = tl.maximum(tl.abs(x) * tl.abs(y), tl.abs(z))
    tiny = size < 2.0**-600
    huge = size > 2.0**900
    wide = tl.abs(x) > tl.abs(y)
    large = tl.where(wide, x, y)
    little = tl.where(wide, y, x)
    little = tl.where(tiny, _scale(little, 600), little)
    large = tl.where(huge, _scale(large, -300), large)
    factor = tl.where(tiny, 2.0**600, tl.where(huge, 2.0**-300, 1.0))
    product = large * little
    error = tl.fma(large, little, -product)
    # Only the sign of a term that underflows matters: replace it by a small number of this sign that does not underflow.
    lost = (tl.abs(product) < 2.0**-960) & (x != 0.0) & (y != 0.0)
    product = tl.where(lost, tl.where(_is_negative(x) == _is_negative(y), 2.0**-960, -(2.0**-960)), product)
    error = tl.where(lost, 0.0, error)
    z_lost = huge & (tl.abs(z) < 2.0**-500) & (z != 0.0)
    term = tl.where(z_lost, tl.where(z < 0.0, -(2.0**-500), 2.0**-500), z * factor)
    # The four numbers add up to the exact result minus `nearest`; each pass moves more of the sum to the first number.
    a, b = _two_sum(product, term)
    s = -nearest * factor
    a, s = _two_sum(a, s)
    b, s = _two_sum(b, s)
    b, error = _two_sum(b, error)
    a, b = _two_sum(a, b)
    s, error = _two_sum(s, error)
    b, s = _two_sum(b, s)
    a, b = _two_sum(a, b)
    b, s = _two_sum(b, s)
    s, error = _two_sum(s, error)
    rest = tl.where(a != 0.0, a, tl.where(b != 0.0, b, tl.where(s != 0.0, s, error)))
    finite = (tl.abs(x) < float("inf")) & (tl.abs(y) < float("inf")) & (tl.abs(z) < float("inf"))
    below = tl.where(nearest == float("inf"), finite, rest < 0.0)
    above = tl.where(nearest == float("-inf"), finite, rest > 0.0)
    result = _towards(nearest, below, above, direction)
    return tl.where(rest == 0.0, _zero_of_sum(result, x * y, z, direction), result)


@triton.jit
def _from_integer(x, dtype: tl.constexpr, direction: tl.constexpr):
    nearest = x.to(dtype)
    # `nearest` is out of range only if it is rounded up to the power of two above the largest integer.
    top: tl.constexpr = 2.0 ** (x.dtype.primitive_bitwidth - x.dtype.is_int_signed())
    beyond = nearest >= top
    back = tl.where(beyond, 0.0, nearest).to(x.dtype)
    return _towards(nearest, beyond | (x < back), (x > back) & (nearest < top), direction)


@triton.jit
def add_rd(arg0, arg1):
    """x + y, rounded down."""
    return _add(arg0, arg1, "down")


@triton.jit
def add_ru(arg0, arg1):
    """x + y, rounded up."""
    return _add(arg0, arg1, "up")


@triton.jit
def add_rz(arg0, arg1):
    """x + y, rounded towards zero."""
    return _add(arg0, arg1, "zero")


@triton.jit
def sub_rd(arg0, arg1):
    """x - y, rounded down."""
    return _add(arg0, -arg1, "down")


@triton.jit
def sub_ru(arg0, arg1):
    """x - y, rounded up."""
    return _add(arg0, -arg1, "up")


@triton.jit
def sub_rz(arg0, arg1):
    """x - y, rounded towards zero."""
    return _add(arg0, -arg1, "zero")


@triton.jit
def mul_rd(arg0, arg1):
    """x * y, rounded down."""
    return _mul(arg0, arg1, "down")


@triton.jit
def mul_ru(arg0, arg1):
    """x * y, rounded up."""
    return _mul(arg0, arg1, "up")


@triton.jit
def mul_rz(arg0, arg1):
    """x * y, rounded towards zero."""
    return _mul(arg0, arg1, "zero")


@triton.jit
def div_rd(arg0, arg1):
    """x / y, rounded down."""
    return _div(arg0, arg1, "down")


@triton.jit
def div_ru(arg0, arg1):
    """x / y, rounded up."""
    return _div(arg0, arg1, "up")


@triton.jit
def div_rz(arg0, arg1):
    """x / y, rounded towards zero."""
    return _div(arg0, arg1, "zero")


@triton.jit
def fma_rd(arg0, arg1, arg2):
    """x * y + z, rounded down."""
    return _fma(arg0, arg1, arg2, "down")


@triton.jit
def fma_ru(arg0, arg1, arg2):
    """x * y + z, rounded up."""
    return _fma(arg0, arg1, arg2, "up")


@triton.jit
def fma_rz(arg0, arg1, arg2):
    """x * y + z, rounded towards zero."""
    return _fma(arg0, arg1, arg2, "zero")


@triton.jit
def sqrt_rd(arg0):
    """The square root, rounded down."""
    return _sqrt(arg0, "down")


@triton.jit
def sqrt_ru(arg0):
    """The square root, rounded up."""
    return _sqrt(arg0, "up")


@triton.jit
def sqrt_rz(arg0):
    """The square root, rounded towards zero."""
    return _sqrt(arg0, "zero")


@triton.jit
def rcp_rd(arg0):
    """1 / x, rounded down."""
    return _div(tl.to_tensor(1.0).to(arg0.dtype), arg0, "down")


@triton.jit
def rcp_ru(arg0):
    """1 / x, rounded up."""
    return _div(tl.to_tensor(1.0).to(arg0.dtype), arg0, "up")


@triton.jit
def rcp_rz(arg0):
    """1 / x, rounded towards zero."""
    return _div(tl.to_tensor(1.0).to(arg0.dtype), arg0, "zero")


@triton.jit
def int2float_rd(arg0):
    """The integer as fp32, rounded down."""
    return _from_integer(arg0, tl.float32, "down")


@triton.jit
def int2float_ru(arg0):
    """The integer as fp32, rounded up."""
    return _from_integer(arg0, tl.float32, "up")


@triton.jit
def int2float_rz(arg0):
    """The integer as fp32, rounded towards zero."""
    return _from_integer(arg0, tl.float32, "zero")


@triton.jit
def uint2float_rd(arg0):
    """The integer as fp32, rounded down."""
    return _from_integer(arg0, tl.float32, "down")


@triton.jit
def uint2float_ru(arg0):
    """The integer as fp32, rounded up."""
    return _from_integer(arg0, tl.float32, "up")


@triton.jit
def uint2float_rz(arg0):
    """The integer as fp32, rounded towards zero."""
    return _from_integer(arg0, tl.float32, "zero")


@triton.jit
def ll2float_rd(arg0):
    """The integer as fp32, rounded down."""
    return _from_integer(arg0, tl.float32, "down")


@triton.jit
def ll2float_ru(arg0):
    """The integer as fp32, rounded up."""
    return _from_integer(arg0, tl.float32, "up")


@triton.jit
def ll2float_rz(arg0):
    """The integer as fp32, rounded towards zero."""
    return _from_integer(arg0, tl.float32, "zero")


@triton.jit
def ull2float_rd(arg0):
    """The integer as fp32, rounded down."""
    return _from_integer(arg0, tl.float32, "down")


@triton.jit
def ull2float_ru(arg0):
    """The integer as fp32, rounded up."""
    return _from_integer(arg0, tl.float32, "up")


@triton.jit
def ull2float_rz(arg0):
    """The integer as fp32, rounded towards zero."""
    return _from_integer(arg0, tl.float32, "zero")


@triton.jit
def ll2double_rd(arg0):
    """The integer as fp64, rounded down."""
    return _from_integer(arg0, tl.float64, "down")


@triton.jit
def ll2double_ru(arg0):
    """The integer as fp64, rounded up."""
    return _from_integer(arg0, tl.float64, "up")


@triton.jit
def ll2double_rz(arg0):
    """The integer as fp64, rounded towards zero."""
    return _from_integer(arg0, tl.float64, "zero")


@triton.jit
def ull2double_rd(arg0):
    """The integer as fp64, rounded down."""
    return _from_integer(arg0, tl.float64, "down")


@triton.jit
def ull2double_ru(arg0):
    """The integer as fp64, rounded up."""
    return _from_integer(arg0, tl.float64, "up")


@triton.jit
def ull2double_rz(arg0):
    """The integer as fp64, rounded towards zero."""
    return _from_integer(arg0, tl.float64, "zero")


@triton.jit
def double2float_rd(arg0):
    """The number as fp32, rounded down."""
    return _narrowed(arg0, arg0 * 0.0, tl.float32, "down")


@triton.jit
def double2float_ru(arg0):
    """The number as fp32, rounded up."""
    return _narrowed(arg0, arg0 * 0.0, tl.float32, "up")
