"""The formats of 8-bit floats, and conversions from and to their patterns."""

import numpy as np

# Exponent bits, significand bits, bias, and what the patterns at the end of the range mean.
FP8 = {
    "float8e5": (5, 2, 15, "ieee"),
    "float8e4nv": (4, 3, 7, "finite"),
    "float8e4b8": (4, 3, 8, "unsigned zero"),
    "float8e5b16": (5, 2, 16, "unsigned zero"),
    "float8e4b15": (4, 3, 15, "no specials"),
}


def fp8_values(dtype):
    """The number that each of the 256 patterns encodes."""
    exponent_bits, digits, bias, specials = FP8[dtype]
    code = np.arange(256)
    sign = np.where(code >= 128, -1.0, 1.0)
    exponent, fraction = (code & 127) >> digits, code & (2**digits - 1)
    normal = np.ldexp(1 + fraction / 2**digits, exponent - bias)
    value = sign * np.where(exponent == 0, np.ldexp(fraction / 2**digits, 1 - bias), normal)
    top = exponent == 2**exponent_bits - 1
    if specials == "ieee":
        value = np.where(top, np.where(fraction == 0, sign * np.inf, np.nan), value)
    elif specials == "finite":
        value = np.where((code & 127) == 127, np.nan, value)
    elif specials == "unsigned zero":
        value = np.where(code == 128, np.nan, value)
    return value


def fp8_patterns(x, dtype):
    """The nearest pattern of each number, ties to even; what is too large becomes the largest number."""
    values = fp8_values(dtype)[:128]
    finite = values[np.isfinite(values)]
    magnitude = np.minimum(np.abs(x.astype(np.float64)), finite[-1])
    above = np.clip(np.searchsorted(finite, magnitude), 1, len(finite) - 1)
    low, high = finite[above - 1], finite[above]
    to_high = (high - magnitude < magnitude - low) | (
        (high - magnitude == magnitude - low) & (above % 2 == 0)
    )
    code = np.where(to_high, above, above - 1)
    negative = np.signbit(x)
    if FP8[dtype][3] == "unsigned zero":
        negative = negative & (code != 0)
        nan = 0x80
    else:
        nan = 0x7F
    return np.where(np.isnan(x), nan, code + 128 * negative).astype(np.uint8)
