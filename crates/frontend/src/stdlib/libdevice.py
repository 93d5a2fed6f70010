"""`triton.language.extra.libdevice`: the functions that are written in the kernel language.

The functions of the elementwise table (exp2, tanh, fma, …) are builtins.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def _int_of(dtype):
    return tl.get_int_dtype(dtype.primitive_bitwidth, True)


@triton.constexpr_function
def _wider(dtype):
    return tl.float64 if dtype.is_floating() else dtype


@triton.jit
def isnan(arg0):
    """True if x is NaN."""
    return arg0 != arg0


@triton.jit
def isinf(arg0):
    """True if x is an infinity."""
    return tl.abs(arg0) == float("inf")


@triton.jit
def finitef(arg0):
    """True if x is neither an infinity nor NaN."""
    return tl.abs(arg0) < float("inf")


@triton.jit
def isfinited(arg0):
    """True if x is neither an infinity nor NaN."""
    return tl.abs(arg0) < float("inf")


@triton.jit
def signbit(arg0):
    """1 if the sign bit is set (also that of -0 and of NaN), else 0; int32."""
    return (arg0.to(_int_of(arg0.dtype), bitcast=True) < 0).to(tl.int32)


@triton.jit
def copysign(arg0, arg1):
    """The magnitude of the first with the sign of the second."""
    negative = signbit(arg1) != 0
    magnitude = tl.abs(arg0)
    return tl.where(negative, -magnitude, magnitude)


@triton.jit
def trunc(arg0):
    """The integer part: rounded towards zero."""
    return copysign(tl.floor(tl.abs(arg0)), arg0)


@triton.jit
def rint(arg0):
    """The nearest integer, to even if two are equally near."""
    size = tl.abs(arg0)
    down = tl.floor(size)
    rest = size - down
    half = down * 0.5
    up = (rest > 0.5) | ((rest == 0.5) & (tl.floor(half) != half))
    return copysign(tl.where(up, down + 1.0, down), arg0)


@triton.jit
def nearbyint(arg0):
    """The nearest integer, to even if two are equally near."""
    return rint(arg0)


@triton.jit
def round(arg0):
    """The nearest integer, away from zero if two are equally near."""
    size = tl.abs(arg0)
    down = tl.floor(size)
    return copysign(tl.where(size - down >= 0.5, down + 1.0, down), arg0)


@triton.jit
def llrint(arg0):
    """The nearest integer, to even if two are equally near, as int64."""
    return rint(arg0).to(tl.int64)


@triton.jit
def llround(arg0):
    """The nearest integer, away from zero if two are equally near, as int64."""
    return round(arg0).to(tl.int64)


@triton.jit
def fmod(arg0, arg1):
    """The remainder with the sign of the first, exact."""
    return arg0 % arg1


@triton.jit
def fdim(arg0, arg1):
    """The difference if it is positive, else 0; NaN if either is NaN."""
    return tl.where(arg0 <= arg1, 0.0, arg0 - arg1)


@triton.jit
def saturatef(arg0):
    """The number, limited to the range from 0 to 1; 0 for NaN."""
    return tl.minimum(tl.maximum(arg0, 0.0), 1.0)


@triton.jit
def log10(arg0):
    """Decimal logarithm; 4 ulp."""
    return tl.log2(arg0) * 0.30102999566398120


@triton.jit
def exp10(arg0):
    """10 to the power of x; 2 ulp for fp32, 4 for fp64."""
    x = arg0.to(tl.float64)
    power = x * 3.3219280948873622
    # The rounding errors of the product and of the constant, which matter if the power is large.
    lost = tl.fma(x, 3.3219280948873622, -power) + x * 1.661617516973592e-16
    result = tl.exp2(power)
    inside = (power > -1100.0) & (power < 1100.0)
    return tl.where(inside, result * (1.0 + 0.6931471805599453 * lost), result).to(arg0.dtype)


@triton.jit
def log1p(arg0):
    """log(1 + x), without loss near 0; 4 ulp."""
    u = 1.0 + arg0
    near = tl.log(u) * (arg0 / (u - 1.0))
    return tl.where(u == 1.0, arg0, tl.where(u == float("inf"), u, near))


@triton.jit
def expm1(arg0):
    """exp(x) - 1, without loss near 0; 8 ulp."""
    u = tl.extra.libdevice.exp(arg0)
    near = (u - 1.0) * (arg0 / tl.log(u))
    return tl.where(u == 1.0, arg0, tl.where((u - 1.0 == -1.0) | (u == float("inf")), u - 1.0, near))


@triton.jit
def sinh(arg0):
    """Hyperbolic sine; 8 ulp."""
    size = tl.abs(arg0)
    e = expm1(size)
    # The square of exp(x / 2) overflows only if the result does.
    half = tl.extra.libdevice.exp(0.5 * size)
    return copysign(tl.where(size > 20.0, (0.5 * half) * half, 0.5 * (e + e / (e + 1.0))), arg0)


@triton.jit
def cosh(arg0):
    """Hyperbolic cosine; 6 ulp."""
    half = tl.extra.libdevice.exp(0.5 * tl.abs(arg0))
    return (0.5 * half) * half + (0.5 / half) / half


@triton.jit
def tan(arg0):
    """Tangent of radians; 6 ulp."""
    return tl.sin(arg0) / tl.cos(arg0)


@triton.jit
def cbrt(arg0):
    """Cube root; 2 ulp."""
    x = tl.abs(arg0.to(tl.float64))
    root = tl.exp2(tl.log2(x) / 3.0)
    # One step of Newton's method, if the divisor is not zero.
    better = root - (root - x / (root * root)) / 3.0
    size = tl.where((x > 0.0) & (x < float("inf")), better, root)
    return copysign(size.to(arg0.dtype), arg0)


@triton.jit
def rcp_rn(arg0):
    """1 / x, rounded to nearest."""
    return tl.div_rn(1.0, arg0)


@triton.jit
def rsqrt_rn(arg0):
    """1 / sqrt(x)."""
    return tl.rsqrt(arg0)


@triton.jit
def add_rn(arg0, arg1):
    """x + y, never contracted with another operation."""
    return arg0 + arg1


@triton.jit
def sub_rn(arg0, arg1):
    """x - y, never contracted with another operation."""
    return arg0 - arg1


@triton.jit
def mul_rn(arg0, arg1):
    """x * y, never contracted with another operation."""
    return arg0 * arg1


@triton.jit
def fma_rn(arg0, arg1, arg2):
    """x * y + z, rounded once."""
    return tl.fma(arg0, arg1, arg2)


@triton.jit
def fast_sinf(arg0):
    """Sine of radians."""
    return tl.sin(arg0)


@triton.jit
def fast_cosf(arg0):
    """Cosine of radians."""
    return tl.cos(arg0)


@triton.jit
def fast_tanf(arg0):
    """Tangent of radians."""
    return tan(arg0)


@triton.jit
def fast_expf(arg0):
    """e to the power of x."""
    return tl.exp(arg0)


@triton.jit
def fast_exp10f(arg0):
    """10 to the power of x."""
    return exp10(arg0)


@triton.jit
def fast_logf(arg0):
    """Natural logarithm."""
    return tl.log(arg0)


@triton.jit
def fast_log2f(arg0):
    """Binary logarithm."""
    return tl.log2(arg0)


@triton.jit
def fast_log10f(arg0):
    """Decimal logarithm."""
    return log10(arg0)


@triton.jit
def fast_powf(arg0, arg1):
    """x to the power of y."""
    return tl.extra.libdevice.pow(arg0, arg1)


@triton.jit
def fast_tanhf(arg0):
    """Hyperbolic tangent."""
    return tl.math.tanh(arg0)


@triton.jit
def fast_dividef(arg0, arg1):
    """x / y."""
    return tl.fdiv(arg0, arg1)


@triton.jit
def float_as_int(arg0):
    """The bits of an fp32 as int32."""
    return arg0.to(tl.int32, bitcast=True)


@triton.jit
def float_as_uint(arg0):
    """The bits of an fp32 as uint32."""
    return arg0.to(tl.uint32, bitcast=True)


@triton.jit
def int_as_float(arg0):
    """The fp32 with these bits."""
    return arg0.to(tl.float32, bitcast=True)


@triton.jit
def uint_as_float(arg0):
    """The fp32 with these bits."""
    return arg0.to(tl.float32, bitcast=True)


@triton.jit
def double_as_longlong(arg0):
    """The bits of an fp64 as int64."""
    return arg0.to(tl.int64, bitcast=True)


@triton.jit
def longlong_as_double(arg0):
    """The fp64 with these bits."""
    return arg0.to(tl.float64, bitcast=True)


@triton.jit
def float2int_rd(arg0):
    """The number as int32, rounded down."""
    return tl.floor(arg0).to(tl.int32)


@triton.jit
def float2int_rn(arg0):
    """The number as int32, rounded to nearest."""
    return rint(arg0).to(tl.int32)


@triton.jit
def float2int_ru(arg0):
    """The number as int32, rounded up."""
    return tl.ceil(arg0).to(tl.int32)


@triton.jit
def float2int_rz(arg0):
    """The number as int32, rounded towards zero."""
    return arg0.to(tl.int32)


@triton.jit
def float2uint_rd(arg0):
    """The number as uint32, rounded down."""
    return tl.floor(arg0).to(tl.uint32)


@triton.jit
def float2uint_rn(arg0):
    """The number as uint32, rounded to nearest."""
    return rint(arg0).to(tl.uint32)


@triton.jit
def float2uint_ru(arg0):
    """The number as uint32, rounded up."""
    return tl.ceil(arg0).to(tl.uint32)


@triton.jit
def float2uint_rz(arg0):
    """The number as uint32, rounded towards zero."""
    return arg0.to(tl.uint32)


@triton.jit
def float2ll_rd(arg0):
    """The number as int64, rounded down."""
    return tl.floor(arg0).to(tl.int64)


@triton.jit
def float2ll_rn(arg0):
    """The number as int64, rounded to nearest."""
    return rint(arg0).to(tl.int64)


@triton.jit
def float2ll_ru(arg0):
    """The number as int64, rounded up."""
    return tl.ceil(arg0).to(tl.int64)


@triton.jit
def float2ll_rz(arg0):
    """The number as int64, rounded towards zero."""
    return arg0.to(tl.int64)


@triton.jit
def float2ull_rd(arg0):
    """The number as uint64, rounded down."""
    return tl.floor(arg0).to(tl.uint64)


@triton.jit
def float2ull_rn(arg0):
    """The number as uint64, rounded to nearest."""
    return rint(arg0).to(tl.uint64)


@triton.jit
def float2ull_ru(arg0):
    """The number as uint64, rounded up."""
    return tl.ceil(arg0).to(tl.uint64)


@triton.jit
def float2ull_rz(arg0):
    """The number as uint64, rounded towards zero."""
    return arg0.to(tl.uint64)


@triton.jit
def double2int_rd(arg0):
    """The number as int32, rounded down."""
    return tl.floor(arg0).to(tl.int32)


@triton.jit
def double2int_rn(arg0):
    """The number as int32, rounded to nearest."""
    return rint(arg0).to(tl.int32)


@triton.jit
def double2int_ru(arg0):
    """The number as int32, rounded up."""
    return tl.ceil(arg0).to(tl.int32)


@triton.jit
def double2int_rz(arg0):
    """The number as int32, rounded towards zero."""
    return arg0.to(tl.int32)


@triton.jit
def double2uint_rd(arg0):
    """The number as uint32, rounded down."""
    return tl.floor(arg0).to(tl.uint32)


@triton.jit
def double2uint_rn(arg0):
    """The number as uint32, rounded to nearest."""
    return rint(arg0).to(tl.uint32)


@triton.jit
def double2uint_ru(arg0):
    """The number as uint32, rounded up."""
    return tl.ceil(arg0).to(tl.uint32)


@triton.jit
def double2uint_rz(arg0):
    """The number as uint32, rounded towards zero."""
    return arg0.to(tl.uint32)


@triton.jit
def double2ll_rd(arg0):
    """The number as int64, rounded down."""
    return tl.floor(arg0).to(tl.int64)


@triton.jit
def double2ll_rn(arg0):
    """The number as int64, rounded to nearest."""
    return rint(arg0).to(tl.int64)


@triton.jit
def double2ll_ru(arg0):
    """The number as int64, rounded up."""
    return tl.ceil(arg0).to(tl.int64)


@triton.jit
def double2ll_rz(arg0):
    """The number as int64, rounded towards zero."""
    return arg0.to(tl.int64)


@triton.jit
def double2ull_rd(arg0):
    """The number as uint64, rounded down."""
    return tl.floor(arg0).to(tl.uint64)


@triton.jit
def double2ull_rn(arg0):
    """The number as uint64, rounded to nearest."""
    return rint(arg0).to(tl.uint64)


@triton.jit
def double2ull_ru(arg0):
    """The number as uint64, rounded up."""
    return tl.ceil(arg0).to(tl.uint64)


@triton.jit
def double2ull_rz(arg0):
    """The number as uint64, rounded towards zero."""
    return arg0.to(tl.uint64)


@triton.jit
def int2float_rn(arg0):
    """The integer as fp32, rounded to nearest."""
    return arg0.to(tl.float32)


@triton.jit
def int2double_rn(arg0):
    """The integer as fp64, rounded to nearest."""
    return arg0.to(tl.float64)


@triton.jit
def uint2float_rn(arg0):
    """The integer as fp32, rounded to nearest."""
    return arg0.to(tl.float32)


@triton.jit
def uint2double_rn(arg0):
    """The integer as fp64, rounded to nearest."""
    return arg0.to(tl.float64)


@triton.jit
def ll2float_rn(arg0):
    """The integer as fp32, rounded to nearest."""
    return arg0.to(tl.float32)


@triton.jit
def ll2double_rn(arg0):
    """The integer as fp64, rounded to nearest."""
    return arg0.to(tl.float64)


@triton.jit
def ull2float_rn(arg0):
    """The integer as fp32, rounded to nearest."""
    return arg0.to(tl.float32)


@triton.jit
def ull2double_rn(arg0):
    """The integer as fp64, rounded to nearest."""
    return arg0.to(tl.float64)


@triton.jit
def double2float_rn(arg0):
    """The number as fp32, rounded to nearest."""
    return arg0.to(tl.float32)


@triton.jit
def double2float_rz(arg0):
    """The number as fp32, rounded towards zero."""
    return arg0.to(tl.float32, fp_downcast_rounding="rtz")


@triton.jit
def double2hiint(arg0):
    """The upper 32 bits of an fp64 as int32."""
    return (arg0.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@triton.jit
def double2loint(arg0):
    """The lower 32 bits of an fp64 as int32."""
    return arg0.to(tl.int64, bitcast=True).to(tl.int32)


@triton.jit
def fast_tanh(arg0):
    """Hyperbolic tangent."""
    return tl.math.tanh(arg0)


@triton.jit
def fast_erf(arg0):
    """Error function."""
    return tl.erf(arg0)


@triton.jit
def _largest_near_one(x, y, z, w):
    """The power of two by which four fp64 must be multiplied so that their squares neither overflow nor underflow."""
    size = tl.maximum(tl.maximum(tl.abs(x), tl.abs(y)), tl.maximum(tl.abs(z), tl.abs(w)))
    return tl.where(size > 2.0**500, 2.0**-600, tl.where(size < 2.0**-400, 2.0**600, 1.0))


@triton.jit
def _norm(x, y, z, w):
    """The square root of the sum of the squares, in fp64, and the power of two by which it has to be divided."""
    scale = _largest_near_one(x, y, z, w)
    a = x * scale
    b = y * scale
    c = z * scale
    d = w * scale
    infinite = (tl.abs(x) == float("inf")) | (tl.abs(y) == float("inf")) | (tl.abs(z) == float("inf"))
    infinite = infinite | (tl.abs(w) == float("inf"))
    length = tl.sqrt_rn(a * a + b * b + (c * c + d * d))
    return tl.where(infinite, float("inf"), length), scale


@triton.jit
def hypot(arg0, arg1):
    """sqrt(x * x + y * y), without intermediate overflow; 2 ulp."""
    length, scale = _norm(arg0.to(tl.float64), tl.to_tensor(arg1).to(tl.float64), 0.0, 0.0)
    return (length / scale).to(arg0.dtype)


@triton.jit
def rhypot(arg0, arg1):
    """1 / sqrt(x * x + y * y); 2 ulp."""
    length, scale = _norm(arg0.to(tl.float64), tl.to_tensor(arg1).to(tl.float64), 0.0, 0.0)
    return (scale / length).to(arg0.dtype)


@triton.jit
def norm3d(arg0, arg1, arg2):
    """The length of a vector of three components; 2 ulp."""
    y = tl.to_tensor(arg1).to(tl.float64)
    length, scale = _norm(arg0.to(tl.float64), y, tl.to_tensor(arg2).to(tl.float64), 0.0)
    return (length / scale).to(arg0.dtype)


@triton.jit
def rnorm3d(arg0, arg1, arg2):
    """1 over the length of a vector of three components; 2 ulp."""
    y = tl.to_tensor(arg1).to(tl.float64)
    length, scale = _norm(arg0.to(tl.float64), y, tl.to_tensor(arg2).to(tl.float64), 0.0)
    return (scale / length).to(arg0.dtype)


@triton.jit
def norm4d(arg0, arg1, arg2, arg3):
    """The length of a vector of four components; 2 ulp."""
    y = tl.to_tensor(arg1).to(tl.float64)
    z = tl.to_tensor(arg2).to(tl.float64)
    length, scale = _norm(arg0.to(tl.float64), y, z, tl.to_tensor(arg3).to(tl.float64))
    return (length / scale).to(arg0.dtype)


@triton.jit
def rnorm4d(arg0, arg1, arg2, arg3):
    """1 over the length of a vector of four components; 2 ulp."""
    y = tl.to_tensor(arg1).to(tl.float64)
    z = tl.to_tensor(arg2).to(tl.float64)
    length, scale = _norm(arg0.to(tl.float64), y, z, tl.to_tensor(arg3).to(tl.float64))
    return (scale / length).to(arg0.dtype)


@triton.jit
def remainder(arg0, arg1):
    """x less the nearest multiple of y, an even one if two are equally near; exact."""
    x, y = tl.broadcast(arg0, arg1)
    period = tl.abs(y)
    double = period + period
    rest = tl.abs(x)
    rest = tl.where(double < float("inf"), rest % double, rest)
    # Neither half of a tiny number nor twice a huge number is exact.
    tiny = period < 1.0
    beyond = tl.where(tiny, rest + rest > period, rest > 0.5 * period)
    once = rest - period
    still = tl.where(tiny, once + once >= period, once >= 0.5 * period)
    rest = tl.where(beyond, tl.where(still, once - period, once), rest)
    rest = tl.where(period == float("inf"), tl.abs(x), rest)
    rest = tl.where((period == 0.0) | (tl.abs(x) == float("inf")) | (x != x) | (y != y), float("nan"), rest)
    negative = signbit(x) != 0
    return tl.where(negative, -rest, rest)


@triton.jit
def rcbrt(arg0):
    """1 over the cube root; 2 ulp."""
    return (1.0 / cbrt(arg0.to(tl.float64))).to(arg0.dtype)
