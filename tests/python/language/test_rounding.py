"""Directed rounding and the functions of integers of `tl.extra.libdevice`, against exact arithmetic."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from helpers import FLOAT_FORMAT, assert_same, elementwise

DIRECTIONS = ["rd", "ru", "rz"]
RNG = np.random.default_rng(5)


def library(name, *operands):
    return f"tl.extra.libdevice.{name}({', '.join(operands)})"


def apply(name, arguments, dtype, out, device):
    inputs = {f"x{index}": (values, dtype) for index, values in enumerate(arguments)}
    return elementwise(library(name, *inputs), inputs, out, device=device, block=1024)


def directed(exact: Fraction, dtype, direction):
    """The number of a type next to an exact one in a direction."""
    digits, low, high = FLOAT_FORMAT[dtype]
    size = abs(exact)
    if size == 0:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** max(exponent - digits + 1, low - digits + 1)
    count, rest = divmod(size, unit)
    away = (direction == "ru" and exact > 0) or (direction == "rd" and exact < 0)
    count += bool(rest) and away
    largest = (Fraction(2) ** digits - 1) * Fraction(2) ** (high - digits + 1)
    if count * unit > largest:
        result = math.inf if away else float(largest)
    else:
        result = float(count * unit)
    return -result if exact < 0 else result


def square_root(exact: Fraction):
    """The square root, or a number between it and whatever number of 100 bits is next above."""
    shift = 2500
    scaled = exact * Fraction(4) ** shift
    root = math.isqrt(int(scaled))
    inexact = root * root != scaled
    return Fraction(2 * root + inexact, 2 ** (shift + 1))


EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
    "sqrt": square_root,
    "rcp": lambda x: 1 / x,
}
NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fma": lambda x, y, z: np.where(np.isfinite(x) & np.isfinite(y), z, x * y + z),
    "sqrt": np.sqrt,
    "rcp": lambda x: 1 / x,
}


def zero_of(name, values, direction):
    """The sign of an exact zero: that of the operands where they agree, else minus if rounding is down."""
    signs = [math.copysign(1, value) for value in values]
    if name in ("mul", "div"):
        return math.copysign(0.0, signs[0] * signs[1])
    if name in ("sqrt", "rcp"):
        return math.copysign(0.0, signs[0])
    first, second = (signs[0] * signs[1], signs[2]) if name == "fma" else signs
    second = -second if name == "sub" else second
    if first == second:
        return math.copysign(0.0, first)
    return -0.0 if direction == "rd" else 0.0


def truth(name, values, dtype, direction):
    numbers = [float(value) for value in values]
    by_zero = (name == "div" and numbers[1] == 0) or (name == "rcp" and numbers[0] == 0)
    if not all(map(math.isfinite, numbers)) or by_zero or (name == "sqrt" and numbers[0] < 0):
        return float(NUMPY[name](*(np.asarray(value, dtype) for value in values)))
    exact = EXACT[name](*map(Fraction, numbers))
    return directed(exact, dtype, direction) if exact else zero_of(name, numbers, direction)


def samples(name, count, dtype):
    """Combinations of special values, random encodings, and operands whose result cancels or is tiny."""
    limits = np.finfo(dtype)
    special = [
        0.0,
        -0.0,
        1.0,
        limits.max,
        -limits.max,
        limits.tiny,
        limits.smallest_subnormal,
        np.inf,
        np.nan,
    ]
    special += [-limits.smallest_subnormal, 1 - limits.eps, -3.0, 0.1]
    chosen = special if count < 3 else special[:8:1]
    combinations = np.array(list(itertools.product(chosen, repeat=count)), dtype).T
    unsigned = np.dtype(f"uint{limits.bits}")
    encodings = RNG.integers(0, np.iinfo(unsigned).max, (count, 150), unsigned, endpoint=True).view(dtype)
    near = RNG.standard_normal((count, 100)).astype(dtype)
    scale = np.ldexp(np.ones(100, dtype), RNG.integers(limits.minexp - 20, limits.maxexp // 2, 100))
    canceling = near.copy()
    with np.errstate(all="ignore"):
        canceling[0] *= scale.astype(dtype)
        if name == "fma":
            canceling[2] = -(canceling[0] * canceling[1])
        elif count > 1:
            canceling[1] = (canceling[0] * near[1] * 2.0**-30).astype(dtype)
        if name == "mul":
            canceling[1] = (limits.tiny * near[1] / canceling[0]).astype(dtype)
    return list(np.concatenate([combinations, encodings, near, canceling], axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXACT)
def test_directed_arithmetic(name, dtype, device):
    arguments = samples(name, {"fma": 3, "sqrt": 1, "rcp": 1}.get(name, 2), dtype)
    for direction in DIRECTIONS:
        found = apply(f"{name}_{direction}", arguments, dtype, dtype, device)
        with np.errstate(all="ignore"):
            expected = [truth(name, values, dtype, direction) for values in zip(*arguments, strict=True)]
        assert_same(found, np.array(expected, dtype), tuple(arguments), f"{name}_{direction}")


@pytest.mark.parametrize("source", ["int", "uint", "ll", "ull"])
def test_directed_conversion_of_integers(source, device):
    dtype = {"int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64"}[source]
    limits = np.iinfo(dtype)
    wide = RNG.integers(limits.min, limits.max, 300, dtype, endpoint=True)
    narrow = wide >> RNG.integers(0, limits.bits - 1, 300).astype(dtype)
    ends = np.array([limits.min, limits.max, limits.max - 1, 0, 1], dtype)
    x = np.concatenate([wide, narrow, ends])
    for target, out in (("float", "float32"), ("double", "float64")):
        if target == "double" and limits.bits == 32:
            continue
        for direction in DIRECTIONS:
            found = apply(f"{source}2{target}_{direction}", [x], dtype, out, device)
            expected = [directed(Fraction(int(value)), out, direction) for value in x]
            assert_same(found, np.array(expected, out), (x,), f"{source}2{target}_{direction}")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_directed_narrowing(direction, device):
    (x,) = samples("narrow", 1, "float64")
    x = np.concatenate([x, RNG.standard_normal(200) * 1e38, RNG.standard_normal(200) * 1e-41])
    found = apply(f"double2float_{direction}", [x], "float64", "float32", device)
    expected = [
        directed(Fraction(value), "float32", direction) if np.isfinite(value) and value else value
        for value in x
    ]
    assert_same(found, np.array(expected, "float32"), (x,))


def words(dtype):
    limits = np.iinfo(dtype)
    wide = RNG.integers(limits.min, limits.max, 300, dtype, endpoint=True)
    narrow = wide >> RNG.integers(0, limits.bits - 1, 300).astype(dtype)
    return np.concatenate([wide, narrow, np.array([0, 1, limits.min, limits.max], dtype)])


def wrapped(values, dtype):
    bits = np.iinfo(dtype).bits
    return np.array([value & (2**bits - 1) for value in values], f"uint{bits}").astype(dtype)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_counting_bits(dtype, device):
    x = words(dtype)
    width = np.iinfo(dtype).bits
    encodings = [int(value) & (2**width - 1) for value in x]
    counts = {
        "popc": [value.bit_count() for value in encodings],
        "clz": [width - value.bit_length() for value in encodings],
        "ffs": [(value & -value).bit_length() for value in encodings],
    }
    for name, expected in counts.items():
        assert_same(apply(name, [x], dtype, "int32", device), np.array(expected, "int32"), (x,), name)
    reversed_ = [int(f"{value:0{width}b}"[::-1], 2) for value in encodings]
    assert_same(apply("brev", [x], dtype, dtype, device), wrapped(reversed_, dtype), (x,), "brev")


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_functions_of_two_integers(dtype, device):
    x = words(dtype)
    y = RNG.permutation(x)
    pairs = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]

    def low(value):
        value &= 2**24 - 1
        return value - 2**24 if dtype == "int32" and value >= 2**23 else value

    expected = {
        "hadd": [(a + b) >> 1 for a, b in pairs],
        "rhadd": [(a + b + 1) >> 1 for a, b in pairs],
        "mul24": [low(a) * low(b) for a, b in pairs],
    }
    for name, values in expected.items():
        assert_same(apply(name, [x, y], dtype, dtype, device), wrapped(values, dtype), (x, y), name)
    found = elementwise(
        library("sad", "x", "y", "7"), {"x": (x, dtype), "y": (y, dtype)}, "uint32", device=device
    )
    assert_same(found, wrapped([abs(a - b) + 7 for a, b in pairs], "uint32"), (x, y), "sad")


def test_bytes_and_encodings(device):
    x, y, selector = (RNG.permutation(words("int32")) for _ in range(3))
    found = apply("byte_perm", [x, y, selector], "int32", "int32", device)
    both = [(int(a) & 0xFFFFFFFF) | ((int(b) & 0xFFFFFFFF) << 32) for a, b in zip(x, y, strict=True)]
    chosen = [
        sum(((value >> (8 * ((int(s) >> (4 * place)) & 7))) & 0xFF) << (8 * place) for place in range(4))
        for value, s in zip(both, selector, strict=True)
    ]
    assert_same(found, wrapped(chosen, "int32"), (x, y, selector))
    doubles = apply("hiloint2double", [y, x], "int32", "float64", device)
    assert_same(doubles.view("int64"), wrapped(both, "int64"), (y, x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighbors_and_exponents(dtype, device):
    x, y = samples("pairs", 2, dtype)
    with np.errstate(all="ignore"):
        assert_same(apply("nextafter", [x, y], dtype, dtype, device), np.nextafter(x, y), (x, y))
    regular = np.isfinite(x) & (x != 0)
    exponent = np.frexp(np.where(regular, x, 1).astype("float64"))[1] - 1
    ends = np.where(np.isinf(x), 2**31 - 1, -(2**31))
    assert_same(
        apply("ilogb", [x], dtype, "int32", device), np.where(regular, exponent, ends).astype("int32"), (x,)
    )
    ends = np.where(x == 0, -np.inf, np.abs(x))
    assert_same(
        apply("logb", [x], dtype, dtype, device), np.where(regular, exponent, ends).astype(dtype), (x,)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["ldexp", "scalbn"])
def test_scaling_by_powers_of_two(name, dtype, device):
    (x,) = samples("scale", 1, dtype)
    power = np.concatenate(
        [RNG.integers(-2200, 2200, len(x) // 2), RNG.integers(-160, 160, len(x) - len(x) // 2)]
    )

    def scaled(value, exponent):
        if not np.isfinite(value):
            return value
        try:
            return math.ldexp(float(value), int(exponent))
        except OverflowError:
            return math.copysign(math.inf, value)

    with np.errstate(over="ignore"):
        if dtype == "float32":
            expected = np.ldexp(x.astype("float64"), np.clip(power, -700, 700)).astype(dtype)
        else:
            expected = np.array([scaled(*pair) for pair in zip(x, power, strict=True)])
    inputs = {"x": (x, dtype), "n": (power.astype("int32"), "int32")}
    assert_same(elementwise(library(name, "x", "n"), inputs, dtype, device=device), expected, (x, power))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainder(dtype, device):
    x, y = samples("pairs", 2, dtype)
    halves = np.array(list(itertools.product(np.arange(-20, 20) / 4, [0.5, 1, 1.5, 2])), dtype).T
    x, y = np.concatenate([x, halves[0]]), np.concatenate([y, halves[1]])

    def exact(a, b):
        if not np.isfinite(a) or b == 0 or np.isnan(b):
            return math.nan
        return math.remainder(float(a), float(b))

    expected = np.array([exact(*pair) for pair in zip(x, y, strict=True)], dtype)
    assert_same(apply("remainder", [x, y], dtype, dtype, device), expected, (x, y))
