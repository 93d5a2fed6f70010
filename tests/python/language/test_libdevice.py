"""Functions of `tl.extra.libdevice` and of the library, which are written in the kernel language, against numpy."""

import math

import numpy as np
import pytest
from helpers import (
    FLOAT_FORMAT,
    assert_same,
    assert_within,
    elementwise,
    pairs,
    random_values,
    round_to,
    special_values,
)

WIDE = np.longdouble
# Name: (truth, ulp of fp32, ulp of fp64).
APPROXIMATE = {
    "log10": (np.log10, 4, 4),
    "exp10": (lambda x: WIDE(10) ** x, 2, 4),
    "log1p": (np.log1p, 4, 4),
    "expm1": (np.expm1, 8, 8),
    "sinh": (np.sinh, 8, 8),
    "cosh": (np.cosh, 6, 6),
    "tan": (np.tan, 6, 6),
    "cbrt": (np.cbrt, 2, 2),
    "rsqrt_rn": (lambda x: 1 / np.sqrt(x), 2, 2),
    "exp": (np.exp, 2, 2),
    "tanh": (np.tanh, 4, 4),
}
EXACT = {
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "abs": np.abs,
    "round": lambda x: np.where(np.isfinite(x), half_away(x), x),
    "saturatef": lambda x: np.where(np.isnan(x), 0, np.clip(x, 0, 1)) + np.asarray(0.0, x.dtype),
}
PREDICATES = {"isnan": np.isnan, "isinf": np.isinf, "signbit": np.signbit}


def half_away(x):
    """The nearest integer, ties away from zero, as C's round."""
    whole = np.trunc(x)
    return np.copysign(np.where(np.abs(x - whole) >= 0.5, np.abs(whole) + 1, np.abs(whole)), x).astype(
        x.dtype
    )


def library(name, *operands):
    return f"tl.extra.libdevice.{name}({', '.join(operands)})"


def values(dtype):
    rng = np.random.default_rng(3)
    spread = [scale * rng.standard_normal(3000) for scale in (1e-20, 1e-6, 1e-3, 1, 10, 80, 700)]
    halves = np.arange(-20, 20) / 2
    return np.concatenate(
        [
            special_values(dtype),
            random_values(dtype, 4000),
            round_to(np.concatenate([*spread, halves]), dtype),
        ]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions(name, dtype, device):
    truth, *ulps = APPROXIMATE[name]
    x = values(dtype)
    if name == "tan":
        x = x[~(np.abs(x) > 1e5)]
    with np.errstate(all="ignore"):
        exact = truth(x.astype(WIDE))
    found = elementwise(library(name, "x"), {"x": (x, dtype)}, dtype, device=device, block=2048)
    assert_within(found, exact, dtype, ulps[dtype == "float64"], (x,), name)
    edge = ~np.isfinite(exact) | (x == 0)
    with np.errstate(all="ignore"):
        assert_same(found[edge], exact[edge].astype(dtype), (x[edge],), f"edges of {name}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_functions(name, dtype, device):
    if name == "saturatef" and dtype == "float64":
        pytest.skip("the library has it for fp32 only")
    x = values(dtype)
    # The largest below a half, and odd numbers so large that adding a half is inexact.
    digits = FLOAT_FORMAT[dtype][0]
    x = np.concatenate(
        [
            x,
            round_to(
                np.array([0.5 - 2.0 ** (-digits - 1), 2.0 ** (digits - 1) + 1, 4503599627370497.5]), dtype
            ),
        ]
    )
    with np.errstate(all="ignore"):
        expected = EXACT[name](x).astype(dtype)
    found = elementwise(library(name, "x"), {"x": (x, dtype)}, dtype, device=device, block=2048)
    if name == "saturatef":
        found = found + np.asarray(0.0, dtype)
    assert_same(found, expected, (x,), name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PREDICATES)
def test_predicates(name, dtype, device):
    x = values(dtype)
    x = x[~np.isnan(x) | np.full(len(x), name != "signbit")]
    found = elementwise(
        f"({library(name, 'x')} != 0).to(tl.int8)", {"x": (x, dtype)}, "int8", device=device, block=2048
    )
    assert_same(found != 0, PREDICATES[name](x), (x,), name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pow(dtype, device):
    x, y = pairs(dtype, dtype, 3000)
    rng = np.random.default_rng(7)
    base, exponent = rng.standard_normal(4000) * 5, rng.standard_normal(4000) * 20
    whole = np.round(exponent[:2000])
    x = np.concatenate([x, round_to(np.abs(base), dtype), round_to(base[:2000], dtype)])
    y = np.concatenate([y, round_to(exponent, dtype), round_to(whole, dtype)])
    # Around the largest and the smallest fp64, and of a small base as of a large one.
    base = rng.uniform(1.5, 9, 1000) ** np.repeat([1, -1], 500)
    x = np.concatenate([x, round_to(base, dtype)])
    y = np.concatenate([y, round_to(rng.uniform(690, 810, 1000) / np.log(base), dtype)])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(WIDE), y.astype(WIDE))
    found = elementwise(
        library("pow", "x", "y"), {"x": (x, dtype), "y": (y, dtype)}, dtype, device=device, block=2048
    )
    moderate = np.abs(y) < 1e4
    allowed = 2 if dtype == "float32" else 1500
    assert_within(found[moderate], exact[moderate], dtype, allowed, (x[moderate], y[moderate]))
    edge = ((exact == 0) | ~np.isfinite(exact) | (exact == 1)) & ((np.abs(x) != 1) | np.isinf(y) | (y == 0))
    with np.errstate(all="ignore"):
        exact_type = exact.astype(dtype)
    special = edge & (np.isin(np.abs(x), [0, np.inf]) | np.isinf(y) | np.isnan(x) | np.isnan(y) | (x < 0))
    assert_same(found[special], exact_type[special], (x[special], y[special]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_two(dtype, device):
    x, y = pairs(dtype, dtype, 4000)
    inputs = {"x": (x, dtype), "y": (y, dtype)}
    with np.errstate(all="ignore"):
        difference = np.where(x > y, x - y, np.where(np.isnan(x) | np.isnan(y), np.asarray(np.nan, dtype), 0))
        cases = {
            "copysign": np.copysign(x, y),
            "fmod": np.fmod(x, y),
            "fdim": difference.astype(dtype),
            "add_rn": x + y,
            "sub_rn": x - y,
            "mul_rn": x * y,
        }
    for name, expected in cases.items():
        found = elementwise(library(name, "x", "y"), inputs, dtype, device=device, block=2048)
        if name == "copysign":
            keep = ~np.isnan(y)
            found, expected = found[keep], expected[keep]
        assert_same(found, expected, (), name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hypot(dtype, device):
    rng = np.random.default_rng(5)
    x, y = (
        round_to(rng.standard_normal(4000) * 10.0 ** rng.integers(-15, 15, 4000), dtype) for _ in range(2)
    )
    found = elementwise(library("hypot", "x", "y"), {"x": (x, dtype), "y": (y, dtype)}, dtype, device=device)
    assert_within(found, np.hypot(x.astype(WIDE), y.astype(WIDE)), dtype, 2, (x, y))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_upper_half_of_the_product_by_type(dtype, device):
    x, y = pairs(dtype, dtype, 1000)
    width = int(dtype[-2:])
    expected = np.array([(int(a) * int(b)) >> width for a, b in zip(x, y, strict=True)], object).astype(dtype)
    found = elementwise(library("mulhi", "x", "y"), {"x": (x, dtype), "y": (y, dtype)}, dtype, device=device)
    assert_same(found, expected, (x, y))


@pytest.mark.parametrize("n", [1, 7, 64, 100])
def test_softmax(n, device):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32) * 30
    padded = np.concatenate([x, np.full(128 - n, -np.inf, np.float32)])
    for expression in ("tl.softmax(x)", "x.softmax()", "tl.softmax(x, ieee_rounding=True)"):
        found = elementwise(expression, {"x": (padded, "float32")}, "float32", device=device, block=128)
        wide = np.exp(x.astype(np.float64) - x.max())
        np.testing.assert_allclose(found[:n], wide / wide.sum(), rtol=2e-5, atol=1e-12)
        assert (found[n:] == 0).all()


def test_the_oracle_rounds_halves_away_from_zero():
    assert half_away(np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994])).tolist() == [
        1,
        -1,
        2,
        3,
        -3,
        0,
    ]
    assert math.isclose(float(WIDE(10) ** WIDE(0.5)), math.sqrt(10))
