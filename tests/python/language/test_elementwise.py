"""Conformance of the elementwise table: every function, every element type that it takes, against higher precision.

The table is that of the compiler, so that a new row fails here until it has its case. 16-bit types are tested on all of
their values.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import (
    CARRIER,
    FLOAT_FORMAT,
    FLOATS,
    INTEGERS,
    assert_same,
    assert_within,
    elementwise,
    pairs,
    random_values,
    round_to,
    sample,
    special_values,
)

import tilewright as triton
import tilewright.language as tl
from tilewright import _native
from tilewright.language import PropagateNan

# Name: (operands, family, ulp; None where the result is exact, further ulp of fp32 by |x|).
TABLE = {
    name: (operands, family, ulp, slope)
    for family, name, operands, _, ulp, slope in _native.elementwise_functions()
}
WIDE = np.longdouble


def wide_erf(x):
    # The C library's is good to one ulp of binary64; for that type, its ulp is added to what is allowed.
    return np.array([math.erf(value) for value in np.asarray(x, np.float64).ravel()]).reshape(x.shape)


def minimum(x, y):
    return np.where((x < y) | ((x == y) & np.signbit(x)), x, y)


def maximum(x, y):
    return np.where((x > y) | ((x == y) & ~np.signbit(x)), x, y)


def skipping_nan(choose):
    return lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, choose(x, y)))


def keeping_nan(choose):
    return lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.asarray(np.nan, x.dtype), choose(x, y))


# The functions of floats that may be off by some ulp: expression of the language, truth in higher precision.
APPROXIMATE = {
    "div": ("x / y", lambda x, y: x / y),
    "sqrt": ("tl.sqrt(x)", np.sqrt),
    "rsqrt": ("tl.rsqrt(x)", lambda x: 1 / np.sqrt(x)),
    "erf": ("tl.erf(x)", wide_erf),
    "accurate_exp": ("tl.extra.libdevice.exp(x)", np.exp),
}
# Functions of analysis are members of tl.math; numpy has most of them under the same name.
APPROXIMATE |= {
    name: (f"tl.math.{name}({', '.join(operands)})", getattr(np, name))
    for name, (operands, family, *_) in TABLE.items()
    if family == "Math" and name not in APPROXIMATE and hasattr(np, name)
}
# The functions of floats that are exact: expression, truth in the element type or wider.
EXACT_FLOAT = {
    "add": ("x + y", np.add),
    "sub": ("x - y", np.subtract),
    "mul": ("x * y", np.multiply),
    "div_rn": ("tl.div_rn(x, y)", np.divide),
    "float_rem": ("x % y", np.fmod),
    "neg": ("-x", np.negative),
    "abs": ("tl.abs(x)", np.abs),
    "min": ("tl.minimum(x, y)", skipping_nan(minimum)),
    "max": ("tl.maximum(x, y)", skipping_nan(maximum)),
    "min_nan": ("tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)", keeping_nan(minimum)),
    "max_nan": ("tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", keeping_nan(maximum)),
    "sqrt_rn": ("tl.sqrt_rn(x)", np.sqrt),
    "floor": ("tl.floor(x)", np.floor),
    "ceil": ("tl.ceil(x)", np.ceil),
    "fma": ("tl.fma(x, y, z)", None),
    "select": ("tl.where(x > y, x, y)", lambda x, y: np.where(x > y, x, y)),
}
EXACT_INTEGER = {
    "abs": ("tl.abs(x)", np.abs),
    "min": ("tl.minimum(x, y)", np.minimum),
    "max": ("tl.maximum(x, y)", np.maximum),
    "select": ("tl.where(x > y, x, y)", lambda x, y: np.where(x > y, x, y)),
    "mul_high": ("tl.umulhi(x, y)", None),
}
# Operators, on all pairs of types: test_operators.py.
OPERATORS = {"add", "sub", "mul", "neg", "int_div", "int_rem", "and", "or", "xor", "not", "shl", "shr"}
OPERATORS |= {"eq", "ne", "lt", "le", "gt", "ge"}
# Functions that the language computes in fp32 for narrower operands.
WIDENING = {"div", "float_rem", "div_rn"}


def test_every_row_of_the_table_has_a_case():
    assert set(TABLE) == {*APPROXIMATE, *EXACT_FLOAT, *EXACT_INTEGER, *OPERATORS}
    for name, (_, _, ulp, _) in TABLE.items():
        assert (ulp is not None) == (name in APPROXIMATE), name


def every_value(dtype, seed=0):
    """All values of a 16-bit type; special values, random bits and moderate numbers of a wider one."""
    if dtype == "float16":
        return np.arange(65536, dtype=np.uint16).view(np.float16)
    if dtype == "bfloat16":
        return (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
    rng = np.random.default_rng(seed)
    moderate = [scale * rng.standard_normal(6000) for scale in (1e-3, 1, 10, 300)]
    near = 1 + rng.standard_normal(2000) * np.exp2(-rng.integers(1, 40, 2000))
    multiples = np.arange(-200, 200) * np.pi / 2
    tame = round_to(np.concatenate([*moderate, near, multiples]), dtype)
    return np.concatenate([special_values(dtype), random_values(dtype, 12_000, seed), tame])


def growing(name, x):
    """The ulp of fp32 that the table allows at x; results are finite and not 0 up to |x| = 104."""
    _, _, ulp, slope = TABLE[name]
    return ulp + slope * np.fmin(np.abs(x), np.float32(104))


def computed_in(name, dtype):
    return "float32" if name in WIDENING and dtype in ("float16", "bfloat16") else dtype


def wider(x, dtype):
    return x.astype(WIDE if dtype == "float64" else np.float64)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", APPROXIMATE)
def test_functions_within_their_ulp(name, dtype, device):
    operands, _, ulp, slope = TABLE[name]
    expression, truth = APPROXIMATE[name]
    if len(operands) == 1:
        values = (every_value(dtype),)
    else:
        values = pairs(dtype, dtype, 20_000)
    inputs = {operand: (value, dtype) for operand, value in zip(operands, values, strict=True)}
    out = computed_in(name, dtype)
    found = elementwise(expression, inputs, out, device=device, block=4096)
    with np.errstate(all="ignore"):
        exact = np.asarray(truth(*(wider(value, out) for value in values)))
    if out in ("float16", "bfloat16"):
        # Computed in binary32 and rounded once: half a unit, and what binary32's own error may tip over.
        allowed = 0.5 + (ulp + slope * 104) * 2.0**-13
    else:
        inexact_truth = name == "erf" or np.finfo(WIDE).eps >= np.finfo(np.float64).eps
        allowed = ulp + (1 if out == "float64" and inexact_truth else 0)
        if out == "float32":
            allowed = growing(name, values[0])
    if name == "exp2" and out in ("float32", "bfloat16"):
        # In binary32, 0 may stand for a subnormal result.
        is_flushed = (found == 0) & (exact < 2.0**-126)
        exact = np.where(is_flushed, 0, exact)
    assert_within(found, exact, out, allowed, values, name)
    # Exact results must be exact: NaN, infinities of the function itself, zeros with their signs.
    edge = ~np.isfinite(exact) | (exact == 0)
    if out == "float64" and name in ("exp", "exp2"):
        edge = ~np.isfinite(exact)
    assert_same(
        found[edge], exact[edge].astype(found.dtype), [value[edge] for value in values], f"edges of {name}"
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [name for name, (_, truth) in EXACT_FLOAT.items() if truth])
def test_exact_functions_of_floats(name, dtype, device):
    operands = [operand for operand in TABLE[name][0] if operand != "condition"]
    expression, truth = EXACT_FLOAT[name]
    values = (every_value(dtype),) if len(operands) == 1 else pairs(dtype, dtype, 20_000)
    inputs = {operand: (value, dtype) for operand, value in zip(operands, values, strict=True)}
    out = computed_in(name, dtype)
    if name == "div_rn" and dtype != "float32":
        pytest.skip("the language has it for fp32 only")
    wide = [value.astype(CARRIER[out]) for value in values]
    if out in ("float16", "bfloat16"):
        # Sums, products and roots of 16-bit floats, rounded once.
        wide = [value.astype(np.float64) for value in values]
    with np.errstate(all="ignore"):
        expected = round_to(truth(*wide), out)
    found = elementwise(expression, inputs, out, device=device, block=4096)
    assert_same(found, expected, values, name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_rounds_once(dtype, device):
    x, y = pairs(dtype, dtype, 6000, seed=1)
    z = sample(dtype, len(x), seed=3)[: len(x)]
    # Sums that cancel but for what the product's rounding would lose.
    near = random_values(dtype, 6000, seed=5)
    with np.errstate(all="ignore"):
        cancel = -round_to(near.astype(np.float64) ** 2, dtype)
    x, y, z = np.concatenate([x, near]), np.concatenate([y, near]), np.concatenate([z, cancel])
    found = elementwise(
        "tl.fma(x, y, z)", {"x": (x, dtype), "y": (y, dtype), "z": (z, dtype)}, dtype, device=device
    )
    expected = np.array([exact_fma(*map(float, lane), dtype) for lane in zip(x, y, z, strict=True)])
    assert_same(found, expected.astype(found.dtype), (x, y, z))


def exact_fma(x, y, z, dtype):
    """x * y + z in rational arithmetic, rounded once."""
    if not (math.isfinite(x) and math.isfinite(y)):
        with np.errstate(all="ignore"):
            return float(np.float64(x) * np.float64(y) + np.float64(z))
    if not math.isfinite(z):
        return z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        product_sign = math.copysign(1, x) * math.copysign(1, y)
        is_cancellation = x != 0 and y != 0 and z != 0
        return 0.0 if is_cancellation or product_sign != math.copysign(1, z) else math.copysign(0.0, z)
    return exact_round(exact, dtype)


def exact_round(exact, dtype):
    """A rational number rounded to nearest even in a floating-point type."""
    digits, low, high = FLOAT_FORMAT[dtype]
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, low) - digits + 1)
    rounded = round(magnitude / unit) * unit
    result = math.inf if rounded >= Fraction(2) ** (high + 1) else float(rounded)
    return math.copysign(result, 1 if exact > 0 else -1)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", [name for name, (_, truth) in EXACT_INTEGER.items() if truth])
def test_exact_functions_of_integers(name, dtype, device):
    operands = [operand for operand in TABLE[name][0] if operand != "condition"]
    expression, truth = EXACT_INTEGER[name]
    values = (sample(dtype, 3000),) if len(operands) == 1 else pairs(dtype, dtype, 3000)
    inputs = {operand: (value, dtype) for operand, value in zip(operands, values, strict=True)}
    with np.errstate(all="ignore"):
        expected = truth(*values)
    assert_same(elementwise(expression, inputs, dtype, device=device), expected, values, name)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_upper_half_of_the_unsigned_product(dtype, device):
    x, y = pairs(dtype, dtype, 2000)
    width = int(dtype[-2:])
    products = [((int(a) % 2**width) * (int(b) % 2**width)) >> width for a, b in zip(x, y, strict=True)]
    expected = np.array(products, f"uint{width}").view(dtype)
    found = elementwise("tl.umulhi(x, y)", {"x": (x, dtype), "y": (y, dtype)}, dtype, device=device)
    assert_same(found, expected, (x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "method",
    ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "abs", "floor", "ceil", "erf", "sqrt_rn"],
)
def test_functions_are_methods_and_members_of_math(method, dtype, device):
    if method == "sqrt_rn" and dtype == "float64":
        pytest.skip("the language has it for fp32 only")
    x = {"x": (sample(dtype, 500), dtype)}
    function = elementwise(f"tl.{method}(x)", x, dtype, device=device)
    assert_same(elementwise(f"x.{method}()", x, dtype, device=device), function)
    assert_same(elementwise(f"tl.math.{method}(x)", x, dtype, device=device), function)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sigmoid(dtype, device):
    if dtype in ("float16", "bfloat16"):
        pytest.skip("the language has exp for fp32 and fp64 only")
    x = np.linspace(-80, 80, 1001).astype(CARRIER[dtype])
    truth = 1 / (1 + np.exp(-wider(x, dtype)))
    allowed = 4 + (growing("exp", x) if dtype == "float32" else 2)
    found = elementwise("tl.sigmoid(x)", {"x": (x, dtype)}, dtype, device=device)
    assert_within(found, truth, dtype, allowed, (x,))


@pytest.mark.parametrize(
    "expression", ["tl.fdiv(x, y)", "tl.fdiv(x, y, ieee_rounding=True)", "tl.math.fdiv(x, y)"]
)
def test_division_by_name(expression, device):
    x, y = pairs("float32", "float32", 3000)
    found = elementwise(expression, {"x": (x, "float32"), "y": (y, "float32")}, "float32", device=device)
    with np.errstate(all="ignore"):
        truth = x.astype(np.float64) / y.astype(np.float64)
    assert_within(found, truth, "float32", 0.5 if "ieee" in expression else 2, (x, y))


@pytest.mark.parametrize("propagate", ["NONE", "ALL"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_clamp(dtype, propagate, device):
    x = sample(dtype, 3000)
    clamp = f"tl.clamp(x, -1.5, 2.0, tl.PropagateNan.{propagate})"
    found = elementwise(clamp, {"x": (x, dtype)}, dtype, device=device)
    expected = np.minimum(np.maximum(x, np.asarray(-1.5, x.dtype)), np.asarray(2, x.dtype))
    if propagate == "NONE":
        # As minimum(maximum(x, low), high), which give the other one for NaN.
        expected = np.where(np.isnan(x), np.asarray(-1.5, x.dtype), expected)
    assert_same(found, expected, (x,))


NONE = tl.constexpr(tl.PropagateNan.NONE)
ALL = tl.constexpr(PropagateNan.ALL)


@triton.jit
def least_with(x_ptr, out_ptr, MODE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 2))
    out = out_ptr + tl.arange(0, 2)
    tl.store(out, tl.minimum(x, 1, MODE))
    tl.store(out + 2, tl.minimum(x, 1, NONE))
    tl.store(out + 4, tl.minimum(x, 1, ALL))
    tl.store(out + 6, tl.minimum(x, 1, PropagateNan.NONE))
    tl.store(out + 8, tl.clamp(x, -1, 1, propagate_nan=tl.PropagateNan.NONE))
    tl.store(out + 10, MODE == PropagateNan.ALL)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("mode", ["NONE", "ALL"])
def test_the_treatment_of_nan_is_a_value(mode, dtype, device):
    """It may come from an argument, a global or the class under another name."""
    x = torch.tensor([math.nan, 0.5], dtype=getattr(torch, dtype), device=device)
    out = torch.zeros(12, dtype=x.dtype, device=device)
    least_with[(1,)](x, out, PropagateNan[mode])
    own = 1 if mode == "NONE" else math.nan
    expected = [own, 0.5, 1, 0.5, math.nan, 0.5, 1, 0.5, -1, 0.5, *[mode == "ALL"] * 2]
    np.testing.assert_array_equal(out.float().cpu().numpy(), np.array(expected, np.float32))


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64"])
def test_clamp_of_integers(dtype, device):
    x = sample(dtype, 300)
    found = elementwise("tl.clamp(x, 2, 90)", {"x": (x, dtype)}, dtype, device=device)
    assert_same(found, np.clip(x, 2, 90).astype(dtype), (x,))
