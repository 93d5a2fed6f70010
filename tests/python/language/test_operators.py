"""Operators of tensors: every operator on every pair of element types, against numpy, with the type of the result.

A kernel asserts at compile time that its result has the element type of `out`, so each case tests promotion as well.
"""

import itertools
import random

import numpy as np
import pytest
import torch
from helpers import (
    CARRIER,
    DTYPES,
    FLOATS,
    INTEGERS,
    assert_same,
    assert_within,
    bits,
    convert,
    elementwise,
    empty,
    is_float,
    is_unsigned,
    moderate_values,
    module,
    pairs,
    promote,
    promote_scalar,
    round_to,
    sample,
    to_device,
    to_host,
)
from helpers_oracle import ARITHMETIC, BITWISE, COMPARISONS, arithmetic, c_quotient, c_remainder, shifted


@pytest.mark.parametrize("right", DTYPES)
@pytest.mark.parametrize("left", DTYPES)
def test_arithmetic_of_every_pair_of_types(left, right, device):
    x, y = pairs(left, right, 200)
    dtype = promote(left, right)
    a, b = convert(x, dtype), convert(y, dtype)
    for symbol in ARITHMETIC:
        found = elementwise(f"x {symbol} y", {"x": (x, left), "y": (y, right)}, dtype, device=device)
        assert_same(found, arithmetic(symbol, a, b, dtype), (x, y), f"{left} {symbol} {right}")


@pytest.mark.parametrize("right", DTYPES)
@pytest.mark.parametrize("left", DTYPES)
def test_comparison_of_every_pair_of_types(left, right, device):
    x, y = pairs(left, right, 200)
    dtype = promote(left, right)
    a, b = convert(x, dtype), convert(y, dtype)
    expression = " | ".join(
        f"((x {symbol} y).to(tl.uint8) << {position})" for position, symbol in enumerate(COMPARISONS)
    )
    found = elementwise(expression, {"x": (x, left), "y": (y, right)}, "uint8", device=device)
    expected = sum(
        compare(a, b).astype(np.uint8) << position for position, compare in enumerate(COMPARISONS.values())
    )
    assert_same(found, expected.astype(np.uint8), (x, y), f"{left} ? {right}")


@pytest.mark.parametrize("symbol", COMPARISONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_comparison_gives_booleans(symbol, dtype, device):
    x, y = pairs(dtype, dtype, 100)
    found = elementwise(f"x {symbol} y", {"x": (x, dtype), "y": (y, dtype)}, "int1", device=device)
    assert_same(found, COMPARISONS[symbol](x, y), (x, y), symbol)


@pytest.mark.parametrize("right", ["int1", *INTEGERS])
@pytest.mark.parametrize("left", ["int1", *INTEGERS])
def test_bitwise_operators_of_every_pair_of_types(left, right, device):
    x, y = pairs(left, right, 200)
    dtype = promote(left, right)
    a, b = convert(x, dtype), convert(y, dtype)
    for symbol, function in BITWISE.items():
        found = elementwise(f"x {symbol} y", {"x": (x, left), "y": (y, right)}, dtype, device=device)
        assert_same(found, function(a, b), (x, y), f"{left} {symbol} {right}")


@pytest.mark.parametrize("symbol", ["<<", ">>"])
@pytest.mark.parametrize("right", INTEGERS)
@pytest.mark.parametrize("left", INTEGERS)
def test_shifts_by_any_number_of_bits(symbol, left, right, device):
    x, y = pairs(left, right, 200)
    dtype = promote(left, right)
    # `>>` keeps the sign where the left operand has one.
    a, b = convert(x, dtype), convert(y, dtype)
    expected = shifted(symbol, a, b)
    if symbol == ">>" and not is_unsigned(left) and is_unsigned(dtype):
        signed = a.view(f"i{a.dtype.itemsize}")
        expected = shifted(symbol, signed, b).view(a.dtype)
    found = elementwise(f"x {symbol} y", {"x": (x, left), "y": (y, right)}, dtype, device=device)
    assert_same(found, expected, (x, y), f"{left} {symbol} {right}")


@pytest.mark.parametrize("right", INTEGERS)
@pytest.mark.parametrize("left", INTEGERS)
def test_integer_division_truncates_and_takes_zero(left, right, device):
    dtype = promote(left, right, division=True)
    if dtype is None:
        pytest.skip("the language refuses operands of different signedness: see test_errors.py")
    x, y = pairs(left, right, 400)
    assert (y == 0).any()
    a, b = convert(x, dtype), convert(y, dtype)
    inputs = {"x": (x, left), "y": (y, right)}
    assert_same(elementwise("x // y", inputs, dtype, device=device), c_quotient(a, b), (x, y), "//")
    assert_same(elementwise("x % y", inputs, dtype, device=device), c_remainder(a, b), (x, y), "%")


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_division_of_64_bits(dtype, device):
    chance, info = random.Random(5), np.iinfo(dtype)

    def any_size() -> int:
        """A number of any count of bits, often beside a power of two."""
        size = chance.getrandbits(chance.randint(0, 64))
        size = 2 ** chance.randint(0, 63) + chance.randint(-2, 2) if chance.random() < 0.3 else size
        return size if info.min == 0 else chance.choice((-size, size))

    x, y = ([any_size() for _ in range(1 << 13)] for _ in range(2))
    for n, divisor in enumerate(y):
        if n % 2:
            # One below, at or above a multiple of the divisor, where a quotient that is off by one shows.
            x[n] = divisor * chance.randint(0, 2**64 // max(1, abs(divisor))) + chance.randint(-1, 1)
    x, y = (np.array([number & (2**64 - 1) for number in numbers], np.uint64) for numbers in (x, y))
    x, y = x.view(dtype), y.view(dtype)
    inputs = {"x": (x, dtype), "y": (y, dtype)}
    assert_same(elementwise("x // y", inputs, dtype, device=device), c_quotient(x, y), (x, y), "//")
    assert_same(elementwise("x % y", inputs, dtype, device=device), c_remainder(x, y), (x, y), "%")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_by_zero_in_every_form(dtype, device):
    x = sample(dtype, 60)
    full = "tl.full(x.shape, {}, x.dtype)"
    seven, zero = full.format(7), full.format(0)
    ones = ~np.zeros_like(x)
    for texts in (
        (f"x // {zero}", f"x % {zero}"),
        ("x // (x ^ x)", "x % (x ^ x)"),
        ("x // 0", "x % 0"),
        (f"{seven} // {zero}", f"{seven} % {zero}"),
        ("7 // (x - x)", "7 % (x - x)"),
    ):
        for text in texts:
            assert_same(elementwise(text, {"x": (x, dtype)}, dtype, device=device), ones, (x,), text)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_of_numbers_by_zero(dtype, device):
    text = """@triton.jit
def kernel(x_ptr, out_ptr):
    n, zero = tl.load(x_ptr), tl.load(x_ptr + 1)
    tl.store(out_ptr, n // zero)
    tl.store(out_ptr + 1, n % zero)
    tl.store(out_ptr + 2, zero // zero)
    tl.store(out_ptr + 3, zero % zero)
"""
    kernel = module(text).kernel
    for n in sample(dtype, 20):
        out = to_device(np.full(4, 3, CARRIER[dtype]), dtype, device)
        kernel[(1,)](to_device(np.asarray([n, 0], CARRIER[dtype]), dtype, device), out)
        ones = ~np.zeros_like(n)
        assert to_host(out).tolist() == [ones] * 4


@pytest.mark.parametrize("right", DTYPES)
@pytest.mark.parametrize("left", DTYPES)
def test_true_division(left, right, device):
    dtype = promote(left, right, division=True)
    if dtype is None:
        pytest.skip("the language refuses operands of different signedness: see test_errors.py")
    x, y = pairs(left, right, 300)
    common = dtype if is_float(dtype) else "float32"
    a, b = convert(convert(x, dtype), common), convert(convert(y, dtype), common)
    with np.errstate(all="ignore"):
        wide = np.longdouble if common == "float64" else np.float64
        truth = a.astype(wide) / b.astype(wide)
    found = elementwise("x / y", {"x": (x, left), "y": (y, right)}, common, device=device)
    assert_within(found, truth, common, 2, (x, y), f"{left} / {right}")
    # Exact results must be exact: infinities, zeros with their signs, NaN.
    edge = ~np.isfinite(truth) | (truth == 0)
    assert_same(found[edge], truth[edge].astype(CARRIER[common]), (x[edge], y[edge]), "edges of /")


@pytest.mark.parametrize("right", DTYPES)
@pytest.mark.parametrize("left", FLOATS)
def test_float_remainder_has_the_sign_of_the_dividend(left, right, device):
    dtype = promote(left, right, division=True)
    x, y = pairs(left, right, 300)
    a, b = convert(x, dtype), convert(y, dtype)
    with np.errstate(all="ignore"):
        expected = np.fmod(a, b)
    found = elementwise("x % y", {"x": (x, left), "y": (y, right)}, dtype, device=device)
    assert_same(found, expected, (x, y), f"{left} % {right}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_unary_operators(dtype, device):
    x = sample(dtype, 300)
    inputs = {"x": (x, dtype)}
    with np.errstate(all="ignore"):
        negated = x if dtype == "int1" else -x
    assert_same(elementwise("-x", inputs, dtype, device=device), negated, (x,), "-")
    assert_same(elementwise("+x", inputs, dtype, device=device), x, (x,), "+")
    if not is_float(dtype):
        assert_same(elementwise("~x", inputs, dtype, device=device), ~x, (x,), "~")


def test_and_or_not_of_booleans(device):
    x, y = pairs("int1", "int1", 60)
    inputs = {"x": (x, "int1"), "y": (y, "int1")}
    assert_same(elementwise("x and y", inputs, "int1", device=device), x & y)
    assert_same(elementwise("x or y", inputs, "int1", device=device), x | y)
    assert_same(elementwise("not x", inputs, "int1", device=device), ~x)
    assert_same(elementwise("not x and (y or not y)", inputs, "int1", device=device), ~x)


SCALARS = [
    0,
    1,
    3,
    -1,
    100,
    255,
    40_000,
    2**31 - 1,
    2**31,
    2**40,
    -(2**40),
    2**63,
    True,
    0.5,
    2.0,
    -1.5,
    1e30,
    1e300,
]


def fits(value, dtype) -> bool:
    if is_float(dtype):
        return True
    if is_float(scalar_kind(value)):
        return False
    low, high = (0, 1) if dtype == "int1" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return low <= value <= high


def scalar_kind(value) -> str:
    return "float32" if isinstance(value, float) else "int32"


def as_element(value, dtype):
    """A Python number as one element of a type."""
    if dtype == "int1":
        return np.bool_(value)
    if is_float(dtype):
        return round_to(np.float64(value), dtype).astype(CARRIER[dtype])[()]
    return CARRIER[dtype].type(value)


@pytest.mark.parametrize("value", SCALARS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_python_scalar_takes_the_type_of_the_tensor_where_its_kind_is_no_higher(dtype, value, device):
    common = promote_scalar(dtype, value)
    if not fits(value, common):
        pytest.skip("the scalar does not fit: see test_errors.py")
    x = sample(dtype, 60)
    a, scalar = convert(x, common), as_element(value, common)
    s = np.broadcast_to(np.asarray(scalar), a.shape)
    text = f"({value!r})"
    for symbol in ARITHMETIC:
        for expression, left, right in ((f"x {symbol} {text}", a, s), (f"{text} {symbol} x", s, a)):
            found = elementwise(expression, {"x": (x, dtype)}, common, device=device)
            assert_same(found, arithmetic(symbol, left, right, common), (x,), expression)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64", "uint64"])
def test_reversed_operators_with_a_scalar(dtype, device):
    x = sample(dtype, 100)
    inputs = {"x": (x, dtype)}
    seven = np.full_like(x, 7)
    assert_same(elementwise("7 // x", inputs, dtype, device=device), c_quotient(seven, x), (x,))
    assert_same(elementwise("7 % x", inputs, dtype, device=device), c_remainder(seven, x), (x,))
    assert_same(elementwise("7 << x", inputs, dtype, device=device), shifted("<<", seven, x), (x,))
    assert_same(elementwise("7 & x", inputs, dtype, device=device), seven & x, (x,))
    assert_same(elementwise("7 < x", inputs, "int1", device=device), seven < x, (x,))
    with np.errstate(all="ignore"):
        truth = 1.0 / convert(x, "float32").astype(np.float64)
    assert_within(elementwise("1 / x", inputs, "float32", device=device), truth, "float32", 2, (x,))


@pytest.mark.parametrize("dtype", FLOATS)
def test_reversed_division_of_floats(dtype, device):
    x = sample(dtype, 200)
    out = promote_scalar(dtype, 1.0, division=True)
    wide = np.longdouble if dtype == "float64" else np.float64
    with np.errstate(all="ignore"):
        truth = 1 / x.astype(wide)
        remainder = np.fmod(np.asarray(5.5, CARRIER[out]), x.astype(CARRIER[out]))
    assert_within(elementwise("1 / x", {"x": (x, dtype)}, out, device=device), truth, out, 2, (x,))
    assert_same(elementwise("5.5 % x", {"x": (x, dtype)}, out, device=device), remainder, (x,))


def test_a_chain_of_operators_binds_as_in_python(device):
    x, y = pairs("int32", "int32", 100)
    x, y = x % 1000, y % 1000
    inputs = {"x": (x, "int32"), "y": (y, "int32")}
    found = elementwise("x + y * 2 - -x & y | x ^ 3 << 1", inputs, "int32", device=device)
    assert_same(found, x + y * 2 - -x & y | x ^ 3 << 1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(dtype, device):
    info = np.iinfo(dtype)
    x = np.array([info.max, info.min, info.max, info.min], dtype)
    inputs = {"x": (x, dtype)}
    width = bits(dtype)
    with np.errstate(over="ignore"):
        assert_same(elementwise("x + 1", inputs, dtype, device=device), x + np.asarray(1, dtype))
        assert_same(elementwise("x - 1", inputs, dtype, device=device), x - np.asarray(1, dtype))
        assert_same(elementwise("x * x", inputs, dtype, device=device), x * x)
    exact = [int(value) * int(value) % 2**width for value in x]
    assert [int(value) % 2**width for value in x * x] == exact


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_comparison_sees_that_numbers_wrapped_around(dtype, device):
    info = np.iinfo(dtype)
    x = np.resize(np.array([info.min, info.min + 1, info.min + 2, 0, 1, 2, 3, info.max], dtype), 512)
    # By ranges only, the difference would be at most 0 for signed numbers, and every element of the mask the same.
    found = elementwise("tl.minimum(x, 2) - 2 < 2", {"x": (x, dtype)}, "int1", device=device)
    with np.errstate(over="ignore"):
        two = np.asarray(2, dtype)
        assert_same(found, np.minimum(x, two) - two < two)


@pytest.mark.parametrize(
    "expression",
    [
        "tl.maximum(x, 3)",
        "tl.minimum(3, x)",
        "tl.where(x > 3, x, 3)",
        "tl.where(x > 3, 3, x)",
        "tl.clamp(x, 1, 3)",
        "tl.add(x, 3)",
        "tl.mul(x, 3)",
        "tl.sub(3, x)",
    ],
)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_a_python_scalar_does_not_widen_in_functions_either(expression, dtype, device):
    x = moderate_values(dtype, 100)
    three, one = np.asarray(3, x.dtype), np.asarray(1, x.dtype)
    with np.errstate(all="ignore"):
        expected = {
            "tl.maximum": np.maximum(x, three),
            "tl.minimum": np.minimum(x, three),
            "tl.where": np.where(x > three, x, three)
            if "x, 3)" in expression
            else np.where(x > three, three, x),
            "tl.clamp": np.clip(x, one, three),
            "tl.add": round_to(x + three, dtype) if is_float(dtype) else x + three,
            "tl.mul": round_to(x * three, dtype) if is_float(dtype) else x * three,
            "tl.sub": round_to(three - x, dtype) if is_float(dtype) else three - x,
        }[expression.split("(")[0]]
    assert_same(elementwise(expression, {"x": (x, dtype)}, dtype, device=device), expected, (x,))


CONSTANTS = """@triton.jit
def kernel(x_ptr, start_ptr, out, DIVISORS: tl.constexpr, COUNT: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    # Values whose relation to their neighbors the compiler knows.
    near = tl.load(start_ptr + tl.program_id(0)) * STEP + tl.arange(0, N).to(x.dtype)
    for k in tl.static_range(COUNT):
        d: tl.constexpr = DIVISORS[k]
        row = out + (tl.program_id(0) * COUNT + k) * 4 * N + i
        tl.store(row, x // d)
        tl.store(row + N, x % d)
        tl.store(row + 2 * N, near // d)
        tl.store(row + 3 * N, near % d)
"""


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_by_constants(dtype, device):
    """Every kind of constant: products, shifts, both; with quotients next to multiples of each."""
    n, step, info = 128, 8, np.iinfo(dtype)
    divisors = {
        1,
        2,
        3,
        5,
        6,
        7,
        8,
        10,
        12,
        14,
        28,
        60,
        64,
        100,
        127,
        641,
        768,
        1000,
        4096,
        65535,
        999_999_937,
    }
    divisors |= {
        6_700_417,
        2**31 - 1,
        2**31,
        2**31 + 1,
        2**32 - 1,
        2**32 + 15,
        2**62 + 1,
        2**63 - 25,
        2**63,
        2**64 - 1,
    }
    divisors |= {info.max, info.max - 1, info.max // 2 + 1, info.max // 2 + 2}
    if info.min < 0:
        divisors |= {-divisor for divisor in divisors} | {info.min, info.min + 1}
    divisors = sorted(divisor for divisor in divisors if info.min <= divisor <= info.max)
    rng, chance = np.random.default_rng(7), random.Random(7)
    edges = [info.min, info.min + 1, -1, 0, 1, info.max - 1, info.max]
    for divisor in divisors:
        multiple = divisor * chance.randint(0, max(1, info.max // abs(divisor)))
        edges += [multiple - 1, multiple, multiple + 1, -multiple, 1 - multiple]
    edges = [edge for edge in edges if info.min <= edge <= info.max]
    x = np.array([*(edges[i % len(edges)] for i in rng.permutation(len(edges))[:n])], dtype)
    x = np.concatenate([x, rng.integers(info.min, info.max, n, dtype, endpoint=True)])[:n]
    lowest = max(info.min // step, -96 * 3)
    starts = np.array([0, lowest, lowest + 1, -96, -1 if info.min < 0 else 12], np.int64).astype(dtype)
    with np.errstate(all="ignore"):
        near = starts[:, None] * np.asarray(step, dtype) + np.arange(n).astype(dtype)
    out = empty((len(starts), len(divisors), 4, n), dtype, device)
    module(CONSTANTS).kernel[(len(starts),)](
        to_device(x, dtype, device), to_device(starts, dtype, device), out,
        DIVISORS=tuple(divisors), COUNT=len(divisors), N=n, STEP=step,
    )  # fmt: skip
    found = to_host(out)
    for row, numbers in enumerate(near):
        for place, divisor in enumerate(divisors):
            d = np.asarray(divisor, dtype)
            for kind, (a, function) in enumerate(
                [(x, c_quotient), (x, c_remainder), (numbers, c_quotient), (numbers, c_remainder)]
            ):
                assert_same(found[row, place, kind], function(a, d), (a,), f"{kind} by {divisor}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_float_scalar_does_not_widen_a_narrow_float_in_functions(dtype, device):
    x = moderate_values(dtype, 100)
    half = np.asarray(0.5, x.dtype)
    for expression, expected in (
        ("tl.maximum(x, 0.5)", np.maximum(x, half)),
        ("tl.minimum(0.5, x)", np.minimum(x, half)),
        ("tl.where(x > 0.5, x, 0.5)", np.maximum(x, half)),
        ("tl.where(x > 0.5, float('inf'), x)", np.where(x > half, np.asarray(np.inf, x.dtype), x)),
        ("tl.clamp(x, -0.5, 0.5)", np.clip(x, -half, half)),
    ):
        assert_same(
            elementwise(expression, {"x": (x, dtype)}, dtype, device=device), expected, (x,), expression
        )


FP8 = {"float8e4nv": torch.float8_e4m3fn, "float8e5": torch.float8_e5m2, "float8e4b8": torch.float8_e4m3fnuz,
       "float8e5b16": torch.float8_e5m2fnuz, "float8e4b15": None}  # fmt: skip
DIVISIONS = ("x / y", "x % y", "tl.fdiv(x, y)", "tl.fdiv(x, y, ieee_rounding=True)")
BESIDE_FP8 = (*FP8, "int1", "int8", "int32", "uint64", "float16", "bfloat16", "float32", "3", "-0.7", "True")


def every_fp8(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a type of 8 bits, and the numbers that they are."""
    bits = np.arange(256, dtype=np.uint8)
    if FP8[dtype] is not None:
        return bits, torch.from_numpy(bits).view(FP8[dtype]).float().numpy()
    exponent, fraction = (bits >> 3) & 15, (bits & 7) / 8
    size = np.where(exponent == 0, fraction * 2.0**-14, (1 + fraction) * 2.0 ** (exponent.astype(float) - 15))
    return bits, np.where(bits >> 7, -size, size).astype(np.float32)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("dtype", FP8)
def test_fp8_is_divided_in_fp32(dtype, is_reversed, device):
    raw, x = every_fp8(dtype)
    order = np.random.default_rng(3).permutation(256)
    truths, tensors, parameters, rows = [], [], [], itertools.count()
    lines = [f"    x = tl.load(x_ptr + i).to(tl.{dtype}, bitcast=True)"]
    for other in BESIDE_FP8:
        if other in FP8:
            bytes_of, y = (each[order] for each in every_fp8(other))
            tensors.append(torch.from_numpy(bytes_of))
            value = f"tl.load(y{len(tensors)} + i).to(tl.{other}, bitcast=True)"
        elif other in DTYPES:
            y = sample(other, 300)[order]
            tensors.append(to_device(y, other))
            value = f"tl.load(y{len(tensors)} + i)"
        else:
            y, value = np.full(256, eval(other)), other
        if value != other:
            parameters.append(f"y{len(tensors)}")
        with np.errstate(all="ignore"):
            a, b = x.astype(np.float64), y.astype(np.float32).astype(np.float64)
            a, b = (b, a) if is_reversed else (a, b)
            truths += [np.fmod(a, b) if "%" in form else a / b for form in DIVISIONS]
        if value != other:
            lines.append(f"    y = {value}")
        for form in DIVISIONS:
            text = form.translate(str.maketrans("xy", "yx")) if is_reversed else form
            text = text.replace("y", "y" if value != other else f"({value})")
            lines.append(f"    z = {text}\n    tl.static_assert(z.dtype == tl.float32)")
            lines.append(f"    tl.store(out + {256 * next(rows)} + i, z)")
    text = f"@triton.jit\ndef k(x_ptr, out, {', '.join(parameters)}):\n    i = tl.arange(0, 256)\n"
    out = torch.zeros(len(truths), 256, device=device)
    module(text + "\n".join(lines) + "\n").k[(1,)](
        torch.from_numpy(raw).to(device), out, *(tensor.to(device) for tensor in tensors)
    )
    for number, (found, truth) in enumerate(zip(to_host(out), truths, strict=True)):
        what = BESIDE_FP8[number // len(DIVISIONS)], DIVISIONS[number % len(DIVISIONS)]
        assert_within(found, truth, "float32", 0.5 if "%" in what[1] or "ieee" in what[1] else 2, what)
