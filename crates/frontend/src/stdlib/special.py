"""`triton.language.extra.libdevice`: inverse trigonometric and hyperbolic functions, powers, error functions, the gamma
function, Bessel functions.

Each is computed in fp64, so that a result in fp32 is off by one unit in the last place at most. Polynomials interpolate at
Chebyshev nodes; comments in the functions describe their range reduction.
"""

import triton
import triton.language as tl


@triton.jit
def _horner(x, coefficients: tl.constexpr):
    """Evaluates the polynomial with these coefficients, the one of the highest power first."""
    result = x * coefficients[0] + coefficients[1]
    for index in tl.static_range(2, len(coefficients)):
        result = result * x + coefficients[index]
    return result


@triton.jit
def _copysign(x, y):
    return tl.extra.libdevice.copysign(x, y)


@triton.jit
def _atan(x):
    """The arc tangent of an fp64 that is not negative."""
    inverted = x > 1.0
    u = tl.where(inverted, 1.0 / x, x)
    # Above tan(pi / 8), compute the angle minus pi / 4, which is smaller.
    turned = u > 0.41421356237309503
    v = tl.where(turned, (u - 1.0) / (u + 1.0), u)
    s = v * v
    coefficients: tl.constexpr = (
        -0.01391619613961017, 0.030633694931617585, -0.04104349551664522, 0.04719373571989158,
        -0.05258038193993904, 0.05881924906427421, -0.06666641996244854, 0.07692306734927001,
        -0.09090909066979425, 0.11111111110754218, -0.14285714285711515, 0.19999999999999993,
        -0.3333333333333333,
    )
    angle = v + (v * s) * _horner(s, coefficients)
    angle = tl.where(turned, 0.7853981633974483 + (angle + 3.061616997868383e-17), angle)
    return tl.where(inverted, 1.5707963267948966 - (angle - 6.123233995736766e-17), angle)


@triton.jit
def atan(arg0):
    """Arc tangent in radians; 3 ulp."""
    x = arg0.to(tl.float64)
    return _copysign(_atan(tl.abs(x)), x).to(arg0.dtype)


@triton.jit
def atan2(arg0, arg1):
    """The angle in radians, from -pi to pi, of the point whose ordinate is the first and whose abscissa is the second; 4 ulp."""
    first, second = tl.broadcast(arg0, arg1)
    y = first.to(tl.float64)
    x = second.to(tl.float64)
    high = tl.maximum(tl.abs(x), tl.abs(y))
    low = tl.minimum(tl.abs(x), tl.abs(y))
    ratio = tl.where(high == 0.0, 0.0, tl.where(low == float("inf"), 1.0, tl.div_rn(low, high)))
    angle = _atan(ratio)
    angle = tl.where(tl.abs(y) > tl.abs(x), 1.5707963267948966 - (angle - 6.123233995736766e-17), angle)
    backwards = tl.extra.libdevice.signbit(x) != 0
    angle = tl.where(backwards, 3.141592653589793 - (angle - 1.2246467991473532e-16), angle)
    angle = tl.where((x != x) | (y != y), float("nan"), angle)
    return _copysign(angle, y).to(first.dtype)


@triton.jit
def _asin(x):
    """The arc sine of an fp64 from -1/2 to 1/2."""
    s = x * x
    coefficients: tl.constexpr = (
        0.02963502626354855, -0.019277545928584557, 0.019579201619744684, 0.0030350071727267623,
        0.009322101501082774, 0.00962140274734483, 0.011566511821890942, 0.013963775787848137,
        0.017352816768546473, 0.022372157435623815, 0.030381944475693704, 0.04464285714255019,
        0.07500000000000119, 0.16666666666666666,
    )
    return x + (x * s) * _horner(s, coefficients)


@triton.jit
def asin(arg0):
    """Arc sine in radians; 3 ulp. NaN beyond -1 and 1."""
    x = arg0.to(tl.float64)
    size = tl.abs(x)
    # asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2))
    near = _asin(tl.where(size > 0.5, 0.0, x))
    far = 1.5707963267948966 - (2.0 * _asin(tl.sqrt_rn(0.5 * (1.0 - tl.maximum(size, 0.5)))) - 6.123233995736766e-17)
    return tl.where(size <= 0.5, near, tl.where(size <= 1.0, _copysign(far, x), float("nan"))).to(arg0.dtype)


@triton.jit
def acos(arg0):
    """Arc cosine in radians; 3 ulp. NaN beyond -1 and 1."""
    x = arg0.to(tl.float64)
    size = tl.abs(x)
    near = 1.5707963267948966 - (_asin(tl.where(size > 0.5, 0.0, x)) - 6.123233995736766e-17)
    far = 2.0 * _asin(tl.sqrt_rn(0.5 * (1.0 - tl.maximum(size, 0.5))))
    far = tl.where(x < 0.0, 3.141592653589793 - (far - 1.2246467991473532e-16), far)
    return tl.where(size <= 0.5, near, tl.where(size <= 1.0, far, float("nan"))).to(arg0.dtype)


@triton.jit
def acosh(arg0):
    """Inverse hyperbolic cosine; 8 ulp. NaN below 1."""
    x = arg0.to(tl.float64)
    t = x - 1.0
    near = tl.extra.libdevice.log1p(t + tl.sqrt_rn(t * (2.0 + t)))
    return tl.where(x > 268435456.0, tl.log(x) + 0.6931471805599453, near).to(arg0.dtype)


@triton.jit
def asinh(arg0):
    """Inverse hyperbolic sine; 8 ulp."""
    x = arg0.to(tl.float64)
    size = tl.abs(x)
    square = size * size
    near = tl.extra.libdevice.log1p(size + square / (1.0 + tl.sqrt_rn(1.0 + square)))
    result = tl.where(size > 268435456.0, tl.log(size) + 0.6931471805599453, near)
    return _copysign(result, x).to(arg0.dtype)


@triton.jit
def atanh(arg0):
    """Inverse hyperbolic tangent; 8 ulp. NaN beyond -1 and 1."""
    x = arg0.to(tl.float64)
    size = tl.abs(x)
    double = size + size
    inside = tl.where(size < 0.5, double + double * size / (1.0 - size), double / (1.0 - size))
    return _copysign(0.5 * tl.extra.libdevice.log1p(inside), x).to(arg0.dtype)


@triton.jit
def _quarter_turns(x):
    """Sine and cosine of pi * x minus the nearest quarter turn, and the quarter turns modulo 4, for an fp64 of at least 0."""
    rest = x % 2.0
    turns = tl.floor(2.0 * rest + 0.5)
    angle = (rest - 0.5 * turns) * 3.141592653589793
    return tl.sin(angle), tl.cos(angle), turns.to(tl.int32) & 3


@triton.jit
def _sinpi(x):
    sine, cosine, turns = _quarter_turns(tl.abs(x))
    size = tl.where((turns & 1) != 0, cosine, sine)
    return _copysign(1.0, x) * tl.where((turns & 2) != 0, 0.0 - size, size)


@triton.jit
def sinpi(arg0):
    """The sine of pi times x; 4 ulp."""
    return _sinpi(arg0.to(tl.float64)).to(arg0.dtype)


@triton.jit
def cospi(arg0):
    """The cosine of pi times x; 4 ulp."""
    sine, cosine, turns = _quarter_turns(tl.abs(arg0.to(tl.float64)))
    size = tl.where((turns & 1) != 0, 0.0 - sine, cosine)
    return tl.where((turns & 2) != 0, 0.0 - size, size).to(arg0.dtype)


@triton.jit
def _erfcx(x):
    """exp(x * x) erfc(x) of an fp64 that is not negative.

    (1 + 2x) exp(x * x) erfc(x) is smooth in (x - 4) / (x + 4) (Shepherd and Laframboise, Math. Comp. 36, 1981).
    """
    x = tl.minimum(x, 1e300)
    t = (x - 4.0) / (x + 4.0)
    coefficients: tl.constexpr = (
        -2.764120233734578e-10, 9.297625263709659e-10, 3.2323973445082033e-09, -1.2338731403798444e-08,
        -2.0725802488181963e-08, 1.0631817593818149e-07, 7.771943241086912e-08, -8.210647933297337e-07,
        2.9173425573089733e-07, 5.70657829924074e-06, -1.1221135665965907e-05, -2.4397731143023292e-05,
        0.00015062142608651945, -0.0001992571524726518, -0.0007577732435942576, 0.005031970069102256,
        -0.01619773406293477, 0.037167515526338006, -0.06633036581186058, 0.09373283499911264,
        -0.10103906603631811, 0.06809705425466839, 0.015379652102619974, -0.13962111684056228,
        1.2329951186255526,
    )
    return _horner(t, coefficients) / (1.0 + 2.0 * x)


@triton.jit
def _square(x):
    """x * x, and its rounding error."""
    square = x * x
    return square, tl.where(square < float("inf"), tl.fma(x, x, -square), 0.0)


@triton.jit
def _erfc(x, rest):
    """The complementary error function of x + rest, in fp64."""
    size = tl.maximum(x, 0.5)
    square, lost = _square(size)
    far = tl.exp(-square) * (1.0 - lost) * (_erfcx(size) - 1.1283791670955126 * rest)
    return tl.where(x < 0.5, 1.0 - tl.erf(x), tl.where(x > 28.0, 0.0, far))


@triton.jit
def erfc(arg0):
    """Complementary error function; 8 ulp."""
    x = arg0.to(tl.float64)
    return tl.where(x != x, x, _erfc(x, 0.0)).to(arg0.dtype)


@triton.jit
def erfcx(arg0):
    """exp(x * x) erfc(x); 8 ulp."""
    x = arg0.to(tl.float64)
    square, lost = _square(x)
    positive = _erfcx(tl.abs(x))
    growing = tl.exp(square)
    negative = tl.where(growing < float("inf"), 2.0 * growing * (1.0 + lost) - positive, float("inf"))
    result = tl.where(x < 0.0, negative, tl.where(x == float("inf"), 0.0, positive))
    return tl.where(x != x, x, result).to(arg0.dtype)


@triton.jit
def normcdf(arg0):
    """The probability that a standard normal number is below x; 8 ulp."""
    x = arg0.to(tl.float64)
    scaled = x * -0.7071067811865476
    # The rounding errors of the product and of the constant matter if x is far below zero.
    lost = tl.fma(x, -0.7071067811865476, -scaled) + x * 4.833646656726457e-17
    lost = tl.where(tl.abs(x) < 100.0, lost, 0.0)
    return tl.where(x != x, x, 0.5 * _erfc(scaled, lost)).to(arg0.dtype)


@triton.jit
def _erfcinv_below_half(z):
    """The inverse of erfc for an fp64 from 0 to 1/2.

    Newton's method on the logarithm of erfc, which is concave: it starts above the root, at exp(-x * x) = z, and the
    iterates decrease to the root.
    """
    log_z = tl.log(z)
    x = tl.sqrt_rn(-log_z)
    for _ in tl.static_range(6):
        scaled = _erfcx(x)
        square, lost = _square(x)
        x = x + ((tl.log(scaled) - square - log_z) - lost) * 0.886226925452758 * scaled
    return tl.where(z == 0.0, float("inf"), x)


@triton.jit
def _erfinv_near_zero(x):
    """The inverse of erf for an fp64 from -1/2 to 1/2: two steps of Newton's method from the series."""
    s = x * x
    y = x * _horner(s, (0.06495961774538540, 0.08655212924154753, 0.1275561753055979, 0.2320136665346545, 0.886226925452758))
    for _ in tl.static_range(2):
        y = y - (tl.erf(y) - x) * 0.886226925452758 * tl.exp(y * y)
    return y


@triton.jit
def erfinv(arg0):
    """The inverse of the error function; 8 ulp. Infinite at -1 and 1, NaN beyond."""
    x = arg0.to(tl.float64)
    size = tl.abs(x)
    near = _erfinv_near_zero(tl.where(size > 0.5, 0.0, x))
    far = _copysign(_erfcinv_below_half(1.0 - tl.maximum(size, 0.5)), x)
    result = tl.where(x == 0.0, x, tl.where(size > 0.5, far, near))
    return tl.where(size <= 1.0, result, float("nan")).to(arg0.dtype)


@triton.jit
def _erfcinv(z):
    middle = _erfinv_near_zero(1.0 - tl.minimum(tl.maximum(z, 0.5), 1.5))
    low = _erfcinv_below_half(tl.minimum(z, 0.5))
    high = -_erfcinv_below_half(2.0 - tl.maximum(z, 1.5))
    result = tl.where(z < 0.5, low, tl.where(z > 1.5, high, middle))
    return tl.where((z >= 0.0) & (z <= 2.0), result, float("nan"))


@triton.jit
def erfcinv(arg0):
    """The inverse of the complementary error function; 8 ulp. NaN below 0 and beyond 2."""
    return _erfcinv(arg0.to(tl.float64)).to(arg0.dtype)


@triton.jit
def normcdfinv(arg0):
    """The number below which a standard normal number lies with this probability; 8 ulp."""
    return (1.4142135623730951 * (0.0 - _erfcinv(2.0 * arg0.to(tl.float64)))).to(arg0.dtype)


@triton.jit
def _log_in_two(x):
    """The logarithm of a positive fp64, as the sum of two numbers.

    log(m) = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1), the first two terms in double-double arithmetic.
    """
    small = x < 2.0**-1022
    bits = tl.where(small, x * 2.0**54, x).to(tl.int64, bitcast=True)
    # The significand from sqrt(1/2) to sqrt(2): the bits above those of sqrt(1/2) are the exponent.
    exponent = (bits - 4604544271217802189) >> 52
    m = (bits - (exponent << 52)).to(tl.float64, bitcast=True)
    e = exponent.to(tl.float64) - tl.where(small, 54.0, 0.0)
    f = m - 1.0
    d = 2.0 + f
    s = tl.div_rn(f, d)
    s_rest = (tl.fma(-s, d, f) - s * (f - (d - 2.0))) / d
    t = s * s
    t_rest = tl.fma(s, s, -t) + 2.0 * s * s_rest
    cube = t * s
    cube_rest = tl.fma(t, s, -cube) + t_rest * s + t * s_rest
    third = cube * 0.6666666666666666
    third_rest = tl.fma(cube, 0.6666666666666666, -third) + cube * 3.700743415417188e-17 + cube_rest * 0.6666666666666666
    series: tl.constexpr = (
        2 / 27, 2 / 25, 2 / 23, 2 / 21, 2 / 19, 2 / 17, 2 / 15, 2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5,
    )
    tail = cube * t * _horner(t, series)
    # Add the terms from the largest to the smallest; `rest` has the rounding errors of the sums.
    power = e * 0.6931471803691238
    first = power + 2.0 * s
    rest = 2.0 * s - (first - power)
    near = tl.abs(power) < tl.abs(2.0 * s)
    rest = tl.where(near, power - (first - 2.0 * s), rest)
    total = first + third
    rest = rest + (third - (total - first)) + (third_rest + 2.0 * s_rest) + (tail + e * 1.9082149292705877e-10)
    high = total + rest
    return high, rest - (high - total)


@triton.jit
def _power_of_positive(x, y):
    """x to the power of y, for fp64 with x positive and finite."""
    high, low = _log_in_two(x)
    product = y * high
    lost = tl.fma(y, high, -product) + y * low
    result = tl.exp(product)
    # Correct only finite results: the correction would make an infinite result NaN.
    is_finite = (tl.abs(product) < 800.0) & (result < float("inf"))
    return tl.where(is_finite, tl.fma(result, lost, result), result)


@triton.jit
def pow(arg0, arg1):
    """x to the power of y, which may be an integer; 2 ulp. NaN for a negative x and a y that is not an integer."""
    x = arg0.to(tl.float64)
    y = tl.to_tensor(arg1).to(tl.float64)
    base = tl.abs(x)
    size = _power_of_positive(tl.where((base > 0.0) & (base < float("inf")), base, 1.0), y)
    # For a base of zero or infinity, the result is zero or infinity.
    grows = (base > 1.0) == (y > 0.0)
    size = tl.where((base == 0.0) | (base == float("inf")), tl.where(grows, float("inf"), 0.0), size)
    whole = tl.floor(y) == y
    odd = whole & (y % 2.0 != 0.0) & (tl.abs(y) < 9007199254740992.0)
    result = tl.where((tl.extra.libdevice.signbit(x) != 0) & odd, -size, size)
    result = tl.where((x < 0.0) & (x != float("-inf")) & (whole == 0), float("nan"), result)
    result = tl.where((x != x) | (y != y), float("nan"), result)
    is_one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (tl.abs(y) == float("inf")))
    return tl.where(is_one, 1.0, result).to(arg0.dtype)


@triton.jit
def _to_near_two(x):
    """A number from 3/2 to 5/2 that differs by an integer from an fp64 from 1/2 to 25/2, and the quotient of the gamma
    functions of the two."""
    low = x < 1.5
    y = tl.where(low, x + 1.0, x)
    quotient = tl.where(low, 1.0 / x, 1.0)
    for _ in tl.static_range(10):
        lower = y > 2.5
        y = tl.where(lower, y - 1.0, y)
        quotient = tl.where(lower, quotient * y, quotient)
    return y, quotient


@triton.jit
def _stirling(x):
    """The error of Stirling's formula: log gamma(x) - ((x - 1/2) log(x) - x + log(2 pi) / 2), for an fp64 from 12."""
    inverse = 1.0 / x
    coefficients: tl.constexpr = (
        -0.025128787873605268, 0.006362342242491387, -0.0019172508386761757, 0.0008417499529518316,
        -0.0005952380936774251, 0.0007936507936494443, -0.0027777777777777775, 0.08333333333333333,
    )
    return inverse * _horner(inverse * inverse, coefficients)


@triton.jit
def _gamma(x):
    """The gamma function of an fp64 from 1/2."""
    y, quotient = _to_near_two(tl.minimum(x, 12.5))
    coefficients: tl.constexpr = (
        -3.390056123785759e-07, 6.77974127504978e-07, -8.897039850770277e-07, 1.7791273142125606e-06,
        -3.83415775529414e-06, 7.665873301695216e-06, -1.5230257414126883e-05, 3.044420030823771e-05,
        -6.079352487679263e-05, 0.0001216750736322682, -0.00024094138093676038, 0.000490388341051095,
        -0.0009195738417827377, 0.0021039333466108274, -0.002852645821062589, 0.011154045717945493,
        -0.0002669820687465048, 0.07424901075351688, 0.08157691924708628, 0.4118403304264397,
        0.42278433509846713, 1.0,
    )
    near = quotient * _horner(y - 2.0, coefficients)
    large = tl.minimum(tl.maximum(x, 12.0), 180.0)
    # Compute the power as a product of two factors, because it overflows before the result does.
    half = _power_of_positive(large, 0.5 * large - 0.25)
    far = (half * tl.exp(-large)) * (half * 2.5066282746310002) * tl.exp(_stirling(large))
    return tl.where(x < 12.5, near, far)


@triton.jit
def tgamma(arg0):
    """The gamma function; 12 ulp. NaN for negative integers, 0 below -171."""
    x = arg0.to(tl.float64)
    near_zero = tl.abs(x) < 0.5
    positive = _gamma(tl.where(near_zero, x + 1.0, tl.abs(x)))
    # gamma(x) gamma(-x) = -pi / (x sin(pi x))
    mirrored = -3.141592653589793 / (x * _sinpi(x)) / positive
    result = tl.where(near_zero, positive / x, tl.where(x < 0.0, mirrored, positive))
    result = tl.where((x < 0.0) & (tl.floor(x) == x), float("nan"), result)
    return tl.where((x == float("inf")) | (x != x), x, result).to(arg0.dtype)


@triton.jit
def _log_gamma(x):
    """The logarithm of the gamma function of a positive fp64."""
    tiny = x < 0.5
    y, quotient = _to_near_two(tl.where(tiny, x + 1.0, tl.minimum(x, 12.5)))
    coefficients: tl.constexpr = (
        -5.832930129320894e-08, 1.2211977636940668e-07, -1.8333634733806836e-07, 3.863844148542206e-07,
        -8.554745925302383e-07, 1.813340925941714e-06, -3.846868630984396e-06, 8.221243547899526e-06,
        -1.7661727092640293e-05, 3.816899450869808e-05, -8.309512288139664e-05, 0.00018255263198029055,
        -0.0004057073976405256, 0.0009153769225258352, -0.0021081308339532027, 0.00499864116469194,
        -0.012384192193371297, 0.032965000621155864, -0.10031730167435392, 0.42278433509846713,
    )
    near = (y - 1.0) * (y - 2.0) * _horner(y - 2.0, coefficients) + tl.log(tl.where(tiny, quotient / x, quotient))
    large = tl.maximum(x, 12.0)
    far = (large - 0.5) * (tl.log(large) - 1.0) + (0.4189385332046727 + _stirling(large))
    return tl.where(x < 12.5, near, far)


@triton.jit
def lgamma(arg0):
    """The logarithm of the absolute value of the gamma function; 8 ulp, but near its zeros below zero an error of 1e-15."""
    x = arg0.to(tl.float64)
    size = tl.abs(x)
    positive = _log_gamma(size)
    # log |gamma(-x)| = log(pi / |x sin(pi x)|) - log gamma(x)
    mirrored = 1.1447298858494002 - tl.log(tl.abs(_sinpi(x))) - tl.log(size) - positive
    result = tl.where(x < 0.0, tl.where(size < 1e-20, -tl.log(size), mirrored), positive)
    ends = (size == float("inf")) | ((x <= 0.0) & (tl.floor(x) == x))
    return tl.where(x != x, x, tl.where(ends, float("inf"), result)).to(arg0.dtype)


@triton.jit
def _phase(x, amplitude, correction, order: tl.constexpr):
    """sqrt(2 / (pi x)) times (amplitude cos - correction sin, amplitude sin + correction cos) of x - (order / 2 + 1/4) pi."""
    sine = tl.sin(x)
    cosine = tl.cos(x)
    if order == 0:
        # sqrt(2) times cosine and sine of x - pi / 4
        c = cosine + sine
        s = sine - cosine
    else:
        c = sine - cosine
        s = -cosine - sine
    scale = 0.5641895835477563 / tl.sqrt_rn(x)
    return scale * (amplitude * c - correction * s), scale * (amplitude * s + correction * c)


@triton.jit
def _bessel_far(x, order: tl.constexpr):
    """The Bessel functions of the first and of the second kind of an fp64 from 8 (Hankel's expansion, DLMF 10.17)."""
    inverse = 8.0 / x
    t = inverse * inverse
    if order == 0:
        amplitude_0: tl.constexpr = (
        -9.29540244708693e-11, 7.407863558784998e-10, -2.7665349658558268e-09, 6.567427583744966e-09,
        -1.1558696461579817e-08, 1.7236203631456423e-08, -2.5395434404600186e-08, 4.3812698516604044e-08,
        -1.0239239991285941e-07, 3.6203309521173534e-07, -2.183919034228364e-06, 2.738088367210925e-05,
        -0.0010986328124996737, 1.0,
    )
        correction_0: tl.constexpr = (
        9.990260231299514e-11, -7.890947302910965e-10, 2.9079119519191425e-09, -6.759985995299675e-09,
        1.1495656939319899e-08, -1.6184477247197964e-08, 2.1732482992173363e-08, -3.2742372523054726e-08,
        6.410321789956967e-08, -1.816397742561537e-07, 8.238440109229583e-07, -6.930786160011295e-06,
        0.0001430511474605607, -0.015624999999999998,
    )
        amplitude = _horner(t, amplitude_0)
        correction = inverse * _horner(t, correction_0)
    else:
        amplitude_1: tl.constexpr = (
        9.840821678448612e-11, -7.846707061002526e-10, 2.932813230777702e-09, -6.971334048415056e-09,
        1.229719716702473e-08, -1.8410150403133396e-08, 2.7310862271339776e-08, -4.763576237721032e-08,
        1.1317408863913823e-07, -4.103048089140431e-07, 2.580995295001314e-06, -3.5203993297701904e-05,
        0.0018310546874996559, 1.0,
    )
        correction_1: tl.constexpr = (
        -1.0555534000090123e-10, 8.341325540212788e-10, -3.0760470774786643e-09, 7.158878603278361e-09,
        -1.2196990845798082e-08, 1.7228425906769903e-08, -2.326589984434877e-08, 3.5375008495598944e-08,
        -7.021176710460138e-08, 2.0300976808767121e-07, -9.505893103666689e-07, 8.470960866466581e-06,
        -0.00020027160644491584, 0.046875,
    )
        amplitude = _horner(t, amplitude_1)
        correction = inverse * _horner(t, correction_1)
    return _phase(x, amplitude, correction, order)


@triton.jit
def _first_kind_near(x, order: tl.constexpr):
    """The Bessel function of the first kind of an fp64 from 0 to 8."""
    u = x * x * 0.03125 - 1.0
    if order == 0:
        even: tl.constexpr = (
        4.119188501604005e-23, -2.452709043267423e-21, 1.3262931393838077e-19, -6.502886511901176e-18,
        2.871432654679696e-16, -1.1351303470286548e-14, 3.990826074990789e-13, -1.2384699122414587e-11,
        3.3634718459325886e-10, -7.91540767057116e-09, 1.5956108859131898e-07, -2.717749145067604e-06,
        3.8473197857390745e-05, -0.0004435459224727048, 0.0040580789891404906, -0.028472718610869578,
        0.14598884856759273, -0.507468045847102, 1.0383794611437211, -0.808088807669687,
        -0.6484692830871837, 0.9303012472958572, 0.04582966485981377,
    )
        result = _horner(u, even)
    else:
        odd: tl.constexpr = (
        -5.664190094153212e-23, 3.2194078124428144e-21, -1.657866279620654e-19, 7.72217665371798e-18,
        -3.2303617368040493e-16, 1.206075993935198e-14, -3.99082607499047e-13, 1.161065542726126e-11,
        -2.9430378651910154e-10, 6.431268732339069e-09, -1.1967081644348923e-07, 1.8684525372339777e-06,
        -2.4045748660869218e-05, 0.0002494945813908964, -0.0020290394945702453, 0.01245681439225544,
        -0.054745818212847276, 0.15858376432721938, -0.2595948652859303, 0.15151665143806634,
        0.08105866038589796, -0.05814382795599107,
    )
        result = x * _horner(u, odd)
    return result


@triton.jit
def _first_kind(x, order: tl.constexpr):
    size = tl.abs(x)
    near = _first_kind_near(tl.minimum(size, 8.0), order)
    far, _ = _bessel_far(tl.maximum(size, 8.0), order)
    result = tl.where(size < 8.0, near, tl.where(size == float("inf"), 0.0, far))
    return tl.where(x != x, x, result)


@triton.jit
def _second_kind(x, order: tl.constexpr):
    small = tl.minimum(tl.maximum(x, 1e-320), 8.0)
    u = small * small * 0.03125 - 1.0
    logarithm = 0.6366197723675814 * tl.log(small)
    if order == 0:
        even: tl.constexpr = (
        -9.942393754034603e-23, 5.8468196753327915e-21, -3.1198938472239003e-19, 1.508188428372186e-17,
        -6.559193232747408e-16, 2.5508678674073302e-14, -8.810558653862417e-13, 2.6818364861016742e-11,
        -7.130516901249926e-10, 1.639106511129848e-08, -3.2185077885300363e-07, 5.321318633837152e-06,
        -7.279541882784531e-05, 0.0008061586060550243, -0.007025741057269826, 0.046367047681347105,
        -0.2189574709617165, 0.6721770783431723, -1.0775477338215995, 0.14412632369302442,
        1.6470964788745466, -0.8284358903604587, -0.382250654459425,
    )
        near = logarithm * _first_kind_near(small, 0) + _horner(u, even)
    else:
        odd: tl.constexpr = (
        -2.2065277823699545e-24, 1.3589146768289643e-22, -7.61274564485037e-21, 3.8729852156751364e-19,
        -1.7777704810351117e-17, 7.320646459632401e-16, -2.687129945774464e-14, 8.728846975754977e-13,
        -2.488766012891418e-11, 6.169742573031707e-10, -1.3153322399203942e-08, 2.3804929913922264e-07,
        -3.6009998744473516e-06, 4.46743301291431e-05, -0.00044381734351146775, 0.003422490739918046,
        -0.01962875683309943, 0.07854786922242545, -0.19639839859930425, 0.23507209206669755,
        0.023367571720993584, -0.24337743079193114, 0.07075985882118005,
    )
        near = (logarithm * _first_kind_near(small, 1) + small * _horner(u, odd)) - 0.6366197723675814 / small
    _, far = _bessel_far(tl.maximum(x, 8.0), order)
    result = tl.where(x < 8.0, near, tl.where(x == float("inf"), 0.0, far))
    return tl.where(x > 0.0, result, tl.where(x == 0.0, float("-inf"), float("nan")))


@triton.jit
def j0(arg0):
    """The Bessel function of the first kind of order 0; an error of 1e-15 for fp64, of 6e-8 for fp32."""
    return _first_kind(arg0.to(tl.float64), 0).to(arg0.dtype)


@triton.jit
def j1(arg0):
    """The Bessel function of the first kind of order 1; an error of 1e-15 for fp64, of 6e-8 for fp32."""
    x = arg0.to(tl.float64)
    return (_copysign(1.0, x) * _first_kind(x, 1)).to(arg0.dtype)


@triton.jit
def y0(arg0):
    """The Bessel function of the second kind of order 0: an error of 2e-15 for fp64 (relative, where it is large). NaN below
    0."""
    return _second_kind(arg0.to(tl.float64), 0).to(arg0.dtype)


@triton.jit
def y1(arg0):
    """The Bessel function of the second kind of order 1: an error of 2e-15 for fp64 (relative, where it is large). NaN below
    0."""
    return _second_kind(arg0.to(tl.float64), 1).to(arg0.dtype)


@triton.jit
def _largest(x):
    """The largest element, as a scalar."""
    return tl.max(tl.ravel(x)) if len(x.shape) > 0 else x


@triton.jit
def jn(arg0, arg1):
    """The Bessel function of the first kind of an integer order; an error of 1e-14 for fp64.

    Recurs upwards from the orders 0 and 1 if the order is below the number; else downwards from a sufficiently high order,
    and then divides by the sum that must be 1 (Miller; Numerical Recipes 6.5).
    """
    order, number = tl.broadcast(tl.to_tensor(arg0), tl.to_tensor(arg1))
    x = tl.abs(number.to(tl.float64))
    n = tl.abs(order).to(tl.int32)
    zeroth = _first_kind(x, 0)
    first = _first_kind(x, 1)
    most = _largest(n)

    upwards = tl.where(n == 0, zeroth, first)
    before = zeroth
    current = first
    for k in range(1, most):
        following = current * (2.0 * k) / x - before
        before = current
        current = following
        upwards = tl.where(n == k + 1, current, upwards)

    bounded = tl.minimum(tl.maximum(x, 1e-300), 2.0 * n.to(tl.float64) + 1.0)
    start = 2 * ((most + 20 + tl.sqrt(60.0 * most.to(tl.float32)).to(tl.int32)) // 2)
    after = bounded * 0.0
    current = bounded * 0.0 + 1e-280
    downwards = bounded * 0.0
    total = bounded * 0.0
    for step in range(start):
        k = start - step
        preceding = current * (2.0 * k) / bounded - after
        after = current
        current = preceding
        # Scale a large value down, and all earlier values with it.
        shrink = tl.where(tl.abs(current) > 1e200, 1e-250, 1.0)
        current = current * shrink
        after = after * shrink
        downwards = downwards * shrink
        total = total * shrink
        downwards = tl.where(n == k - 1, current, downwards)
        total += tl.where((k & 1) != 0, (2.0 if k > 1 else 1.0) * current, 0.0)
    result = tl.where((n.to(tl.float64) <= x) | (n < 2), upwards, downwards / total)
    result = tl.where((x == 0.0) & (n > 0), 0.0, tl.where(x == float("inf"), 0.0, result))
    odd = (n & 1) != 0
    flipped = odd & ((number < 0.0) != (order < 0))
    return tl.where(x != x, x, tl.where(flipped, -result, result)).to(number.dtype)


@triton.jit
def yn(arg0, arg1):
    """The Bessel function of the second kind of an integer order; 1e-14 relative for fp64, except near its zeros. NaN below 0."""
    order, number = tl.broadcast(tl.to_tensor(arg0), tl.to_tensor(arg1))
    x = number.to(tl.float64)
    n = tl.abs(order).to(tl.int32)
    before = _second_kind(x, 0)
    current = _second_kind(x, 1)
    result = tl.where(n == 0, before, current)
    for k in range(1, _largest(n)):
        following = current * (2.0 * k) / x - before
        # Keep minus infinity, which the recurrence would turn into NaN.
        following = tl.where(current == float("-inf"), current, following)
        before = current
        current = following
        result = tl.where(n == k + 1, current, result)
    flipped = ((n & 1) != 0) & (order < 0)
    return tl.where(flipped, -result, result).to(number.dtype)


@triton.jit
def _exp_scaled(x, scaled):
    """Returns exp(x) times a number, without overflow if only exp(x) overflows."""
    half = tl.exp(0.5 * x)
    return (scaled * half) * half


@triton.jit
def cyl_bessel_i0(arg0):
    """The modified Bessel function of the first kind of order 0; 8 ulp."""
    size = tl.abs(arg0.to(tl.float64))
    near: tl.constexpr = (
        -1.1662904878442954e-09, 4.469372581856615e-09, -7.860369707508212e-09, 2.6273368345256394e-08,
        -1.1339523685907105e-07, 3.675592893288293e-07, -1.0891964284507317e-06, 3.2293850630678377e-06,
        -9.25059710625537e-06, 2.5202271984440893e-05, -6.550956130635514e-05, 0.0001624054672701359,
        -0.0003829015089457559, 0.0008563152483951447, -0.0018118870527295522, 0.0036171264596770616,
        -0.006792399792271578, 0.011960077903963348, -0.019682654708082413, 0.03017791202356886,
        -0.04298594945226738, 0.056777032019843215, -0.06954119561742342, 0.07927522590716898,
        -0.08496338091615124, 0.08734341617552291, -0.08904344136075991, 0.09451562853995103,
        -0.11300432688620549, 0.2070019212239867,
    )
    far: tl.constexpr = (
        -0.0002048663554674442, 0.002738263837752635, -0.016791949477110713, 0.06285201508381587,
        -0.16100963317693315, 0.29987297185940914, -0.42094258347212365, 0.4556287877301034,
        -0.3859026077992908, 0.2580992080192533, -0.13698120823027515, 0.05776361827802655,
        -0.01931244568460856, 0.0050904820028860685, -0.0010476617349148346, 0.00016615960818617352,
        -1.9519000504419075e-05, 2.6120860781361487e-06, 2.6572976409659063e-06, 1.0927829611821598e-05,
        5.706903933602758e-05, 0.0004382910810252777, 0.006233473131264595, 0.3989422804014327,
    )
    x = tl.minimum(size, 1e3)
    scaled_near = _horner(tl.minimum(x, 8.0) * 0.25 - 1.0, near)
    scaled_far = _horner(8.0 / tl.maximum(x, 8.0), far) / tl.sqrt_rn(tl.maximum(x, 8.0))
    result = _exp_scaled(x, tl.where(x < 8.0, scaled_near, scaled_far))
    return tl.where(size != size, size, result).to(arg0.dtype)


@triton.jit
def cyl_bessel_i1(arg0):
    """The modified Bessel function of the first kind of order 1; 8 ulp."""
    number = arg0.to(tl.float64)
    size = tl.abs(number)
    near: tl.constexpr = (
        -9.365751909742237e-11, 3.727630409237771e-10, -7.379291130374042e-10, 2.6037822441041467e-09,
        -1.1191257727176943e-08, 3.8028049651067336e-08, -1.2000364861910367e-07, 3.759400376008922e-07,
        -1.1380759138279984e-06, 3.2938951625746042e-06, -9.131846315273642e-06, 2.4233756432468166e-05,
        -6.142651349494123e-05, 0.00014842124144631648, -0.0003411747437353928, 0.000744512345281566,
        -0.0015388749636515487, 0.003005762419557192, -0.005534567760544582, 0.00958396215077406,
        -0.01557130925657511, 0.023686016957724227, -0.03367135551994034, 0.044674572621255064,
        -0.05528003922705058, 0.0637674037134072, -0.0684826062058255, 0.0680575999095116,
        -0.06112433802966629, 0.044687709875608835,
    )
    far: tl.constexpr = (
        0.00018808742742566323, -0.0025611241538240083, 0.015934351103983755, -0.06033344687037048,
        0.15601059164093772, -0.2928067089778249, 0.4136564860011281, -0.45013702470606143,
        0.3829619784863703, -0.25710046207762116, 0.13688693321132753, -0.05788007476491161,
        0.01939582767173978, -0.005122435967250107, 0.001055972485996503, -0.0001677306733708273,
        1.967739416539261e-05, -2.790526998738193e-06, -3.270413841903024e-06, -1.4048856164010065e-05,
        -7.989669823357456e-05, -0.0007304851340739996, -0.01870041939380926, 0.39894228040143265,
    )
    x = tl.minimum(size, 1e3)
    scaled_near = x * _horner(tl.minimum(x, 8.0) * 0.25 - 1.0, near)
    scaled_far = _horner(8.0 / tl.maximum(x, 8.0), far) / tl.sqrt_rn(tl.maximum(x, 8.0))
    result = _exp_scaled(x, tl.where(x < 8.0, scaled_near, scaled_far))
    return _copysign(tl.where(size != size, size, result), number).to(arg0.dtype)
