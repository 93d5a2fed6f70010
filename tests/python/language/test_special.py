"""The special functions of `tl.extra.libdevice` against mpmath, in units in the last place."""

import mpmath
import numpy as np
import pytest
from helpers import FLOAT_FORMAT, assert_same, elementwise, round_to

mpmath.mp.prec = 200
M = mpmath.mpf
RNG = np.random.default_rng(11)


def spread(low, high, count=80):
    """Numbers of either sign, whose sizes are spread evenly over the exponents."""
    return np.exp(RNG.uniform(np.log(low), np.log(high), count)) * RNG.choice([-1, 1], count)


def even(low, high, count=100):
    return RNG.uniform(low, high, count)


def near_one():
    return 1 - np.abs(spread(1e-15, 0.1))


def erfcinv(z):
    """The inverse of erfc, by Newton's method on its logarithm."""
    if z > 1:
        return -erfcinv(2 - z)
    start = mpmath.sqrt(-mpmath.log(z)) if z < 0.5 else M(0)
    return mpmath.findroot(lambda x: mpmath.log(mpmath.erfc(x)) - mpmath.log(z), start)


def log_gamma(x):
    return mpmath.log(abs(mpmath.gamma(x))) if x < 1e5 else mpmath.loggamma(x)


def bessel(function, order):
    return lambda x: function(order, x)


# Name: (truth, arguments, ulp of fp64, absolute error of fp64 that is allowed besides).
FUNCTIONS = {
    "atan": (mpmath.atan, spread(1e-10, 1e10), 3, 0),
    "asin": (mpmath.asin, np.concatenate([even(-1, 1), near_one()]), 3, 0),
    "acos": (mpmath.acos, np.concatenate([even(-1, 1), near_one(), -near_one()]), 3, 0),
    "acosh": (mpmath.acosh, 1 + np.abs(np.concatenate([spread(1e-14, 1e3), spread(1, 1e300)])), 8, 0),
    "asinh": (mpmath.asinh, np.concatenate([spread(1e-12, 1e5), spread(1e-3, 1e300)]), 8, 0),
    "atanh": (mpmath.atanh, np.concatenate([even(-1, 1), spread(1e-12, 1)]), 8, 0),
    "sinpi": (mpmath.sinpi, np.concatenate([spread(1e-10, 1e6), even(-3, 3)]), 4, 0),
    "cospi": (mpmath.cospi, np.concatenate([spread(1e-10, 1e6), even(-3, 3)]), 4, 0),
    "erfc": (mpmath.erfc, np.concatenate([even(-6, 26, 200), spread(1e-10, 1)]), 8, 0),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), even(-25, 30, 200), 8, 0),
    "normcdf": (lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2, even(-37, 8, 200), 8, 0),
    "erfinv": (mpmath.erfinv, np.concatenate([even(-1, 1), spread(1e-10, 1), near_one()]), 8, 0),
    "erfcinv": (erfcinv, np.concatenate([np.abs(spread(1e-300, 1)), even(0.01, 1.99)]), 8, 0),
    "normcdfinv": (
        lambda p: -mpmath.sqrt(2) * erfcinv(2 * p),
        np.concatenate([np.abs(spread(1e-300, 0.5)), even(0.01, 0.99)]),
        8,
        0,
    ),
    "tgamma": (
        mpmath.gamma,
        np.concatenate([even(0, 20), even(0, 171.6), even(-20, 0), spread(1e-200, 1)]),
        12,
        0,
    ),
    "lgamma": (
        log_gamma,
        np.concatenate([even(0, 30, 200), np.abs(spread(1e-200, 1e300)), even(-10, 0)]),
        8,
        2e-15,
    ),
    "j0": (bessel(mpmath.besselj, 0), np.concatenate([even(-8, 8), even(8, 300)]), 0, 1e-15),
    "j1": (bessel(mpmath.besselj, 1), np.concatenate([even(-8, 8), spread(1e-8, 1), even(8, 300)]), 0, 1e-15),
    "y0": (
        bessel(mpmath.bessely, 0),
        np.concatenate([even(0, 8), even(8, 300), np.abs(spread(1e-100, 1))]),
        8,
        2e-15,
    ),
    "y1": (
        bessel(mpmath.bessely, 1),
        np.concatenate([even(0, 8), even(8, 300), np.abs(spread(1e-8, 1))]),
        8,
        2e-15,
    ),
    "cyl_bessel_i0": (bessel(mpmath.besseli, 0), np.concatenate([even(-20, 20), even(0, 712)]), 8, 0),
    "cyl_bessel_i1": (bessel(mpmath.besseli, 1), np.concatenate([even(-20, 20), even(0, 712)]), 8, 0),
    "rcbrt": (lambda x: 1 / mpmath.cbrt(x), np.abs(spread(1e-300, 1e300)), 2, 0),
}
DOMAIN = {
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-1, 1),
    "erfinv": (-1, 1),
    "acosh": (1, np.inf),
    "erfcinv": (0, 2),
    "normcdfinv": (0, 1),
}


def library(name, *operands):
    return f"tl.extra.libdevice.{name}({', '.join(operands)})"


def check(found, exact, dtype, ulps, absolute, context):
    """Each result within its units in the last place; what overflows or is subnormal in the type is left out."""
    digits, low, high = FLOAT_FORMAT[dtype]
    largest, smallest = M(2) ** high * (2 - M(2) ** (1 - digits)), M(2) ** low
    for value, truth, argument in zip(found, exact, context, strict=True):
        if not smallest <= abs(truth) <= largest:
            continue
        unit = M(2) ** (mpmath.frexp(truth)[1] - digits)
        allowed = max(ulps * unit, absolute)
        assert np.isfinite(value), (argument, value, truth)
        assert abs(M(float(value)) - truth) <= allowed, (argument, value, float(truth))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions(name, dtype, device):
    truth, arguments, ulps, absolute = FUNCTIONS[name]
    with np.errstate(over="ignore"):
        x = round_to(arguments, dtype)
    x = x[np.isfinite(x) & (x != 0)]
    if name in DOMAIN:
        x = x[(x > DOMAIN[name][0]) & (x < DOMAIN[name][1])]
    if name in ("tgamma", "lgamma", "y0", "y1"):
        x = x[np.floor(x) != x]
    found = elementwise(library(name, "x"), {"x": (x, dtype)}, dtype, device=device, block=256)
    exact = [truth(M(float(value))) for value in x]
    if dtype == "float32":
        ulps, absolute = 1, 0
    check(found, exact, dtype, ulps, M(absolute), x)


INF, NAN = np.inf, np.nan
EDGES = {
    "atan": ([0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, np.pi / 2, -np.pi / 2, NAN]),
    "asin": ([0.0, -0.0, 1.5, -INF, NAN], [0.0, -0.0, NAN, NAN, NAN]),
    "acos": ([1.0, -1.0, 1.5, NAN], [0.0, np.pi, NAN, NAN]),
    "acosh": ([1.0, 0.5, INF, NAN], [0.0, NAN, INF, NAN]),
    "asinh": ([0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, INF, -INF, NAN]),
    "atanh": ([0.0, -0.0, 1.0, -1.0, 2.0, NAN], [0.0, -0.0, INF, -INF, NAN, NAN]),
    "sinpi": ([0.0, -0.0, 2.0, -3.0, 0.5, INF, NAN], [0.0, -0.0, 0.0, -0.0, 1.0, NAN, NAN]),
    "cospi": ([0.0, 1.0, 0.5, 1.5, INF, NAN], [1.0, -1.0, 0.0, 0.0, NAN, NAN]),
    "erfc": ([INF, -INF, 0.0, 300.0, NAN], [0.0, 2.0, 1.0, 0.0, NAN]),
    "erfcx": ([INF, -INF, 0.0, -100.0, NAN], [0.0, INF, 1.0, INF, NAN]),
    "normcdf": ([INF, -INF, 0.0, NAN], [1.0, 0.0, 0.5, NAN]),
    "erfinv": ([0.0, -0.0, 1.0, -1.0, 1.5, NAN], [0.0, -0.0, INF, -INF, NAN, NAN]),
    "erfcinv": ([1.0, 0.0, 2.0, -1.0, 2.5, NAN], [0.0, INF, -INF, NAN, NAN, NAN]),
    "normcdfinv": ([0.5, 0.0, 1.0, -1.0, NAN], [0.0, -INF, INF, NAN, NAN]),
    "tgamma": ([0.0, -0.0, 1.0, 5.0, -2.0, 500.0, INF, NAN], [INF, -INF, 1.0, 24.0, NAN, INF, INF, NAN]),
    "lgamma": ([0.0, 1.0, 2.0, -2.0, INF, -INF, NAN], [INF, 0.0, 0.0, INF, INF, INF, NAN]),
    "j0": ([0.0, INF, NAN], [1.0, 0.0, NAN]),
    "j1": ([0.0, INF, NAN], [0.0, 0.0, NAN]),
    "y0": ([0.0, INF, -1.0, NAN], [-INF, 0.0, NAN, NAN]),
    "y1": ([0.0, INF, -1.0, NAN], [-INF, 0.0, NAN, NAN]),
    "cyl_bessel_i0": ([0.0, INF, NAN, 2000.0], [1.0, INF, NAN, INF]),
    "cyl_bessel_i1": ([0.0, INF, -INF, NAN], [0.0, INF, -INF, NAN]),
    "rcbrt": ([8.0, -8.0, 0.0, INF, NAN], [0.5, -0.5, INF, 0.0, NAN]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EDGES)
def test_edges(name, dtype, device):
    x, expected = (np.array(values, dtype) for values in EDGES[name])
    found = elementwise(library(name, "x"), {"x": (x, dtype)}, dtype, device=device, block=16)
    tiny = np.abs(expected) < 1e-3
    rounded = np.where(tiny | ~np.isfinite(expected), found, np.round(found.astype(np.float64), 6))
    assert_same(
        rounded.astype(dtype),
        np.where(tiny, expected, np.round(expected.astype(np.float64), 6)).astype(dtype),
        (x,),
        name,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_atan2(dtype, device):
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 1e30])
    y, x = (grid.ravel() for grid in np.meshgrid(special, special))
    y = round_to(np.concatenate([y, spread(1e-10, 1e10, 200)]), dtype)
    x = round_to(np.concatenate([x, spread(1e-10, 1e10, 200)]), dtype)
    found = elementwise(library("atan2", "y", "x"), {"y": (y, dtype), "x": (x, dtype)}, dtype, device=device)
    finite = np.isfinite(y) & np.isfinite(x) & (y != 0)
    exact = [mpmath.atan2(M(float(a)), M(float(b))) for a, b in zip(y[finite], x[finite], strict=True)]
    check(found[finite], exact, dtype, 4 if dtype == "float64" else 1, M(0), x[finite])
    expected = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    zero = expected == 0
    assert_same(found[zero], expected[zero].astype(dtype), (y[zero], x[zero]))
    np.testing.assert_allclose(found[~finite], expected[~finite], rtol=1e-6)


@pytest.mark.parametrize(("name", "truth"), [("jn", mpmath.besselj), ("yn", mpmath.bessely)])
def test_bessel_functions_of_integer_order(name, truth, device):
    order = np.concatenate([RNG.integers(0, 40, 200), [0, 1, 2, -3, 3]])
    x = np.concatenate([even(0.01, 60, 150), even(0.01, 2, 50), [1.0, 1.0, 1.0, 2.0, 2.0]])
    operands = {"n": (order, "int32"), "x": (x, "float64")}
    found = elementwise(library(name, "n", "x"), operands, "float64", device=device)
    for value, n, argument in zip(found, order, x, strict=True):
        exact = truth(int(n), M(float(argument)))
        if abs(exact) < 1e308:
            scale = max(abs(exact), M(1) / 20) if name == "yn" else abs(exact) + M(10) ** -2
            assert abs(M(float(value)) - exact) <= M(10) ** -14 * scale, (n, argument, value, float(exact))
