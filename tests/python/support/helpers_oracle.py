"""The meaning of operators, in numpy: integer division as in C, shifts by any count, arithmetic rounded once."""

from __future__ import annotations

import operator

import numpy as np
from helpers import bits, convert, is_float, round_to

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
BITWISE = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
INT1_ARITHMETIC = {"+": operator.xor, "-": operator.xor, "*": operator.and_}


def c_quotient(x, y):
    """Integer division that truncates, as in C; by zero all bits are one."""
    with np.errstate(all="ignore"):
        floored = x // y
        inexact = floored * y != x
        truncated = np.where(inexact & ((x < 0) != (y < 0)), floored + np.asarray(1, x.dtype), floored)
        return np.where(y == 0, ~np.asarray(0, x.dtype), truncated)


def c_remainder(x, y):
    """The remainder of `c_quotient`, which has the sign of x; by zero all bits are one."""
    with np.errstate(all="ignore"):
        rest = (x - c_quotient(x, y) * y).astype(x.dtype)
        return np.where(y == 0, ~np.asarray(0, x.dtype), rest)


def shifted(symbol, x, y):
    """Shifts by an unsigned number of bits; from the width on, nothing but the sign is left."""
    width = x.dtype.itemsize * 8
    count = y.view(f"u{y.dtype.itemsize}").astype(np.uint64)
    if symbol == "<<":
        safe = np.minimum(count, width - 1).astype(x.dtype)
        return np.where(count < width, x << safe, np.asarray(0, x.dtype))
    safe = np.minimum(count, width - 1).astype(x.dtype)
    rest = x >> safe
    return rest if x.dtype.kind == "i" else np.where(count < width, rest, np.asarray(0, x.dtype))


def arithmetic(symbol, x, y, dtype):
    """+, - or * in an element type, rounded once."""
    if dtype == "int1":
        return INT1_ARITHMETIC[symbol](x, y)
    with np.errstate(all="ignore"):
        if dtype in ("float16", "bfloat16"):
            return round_to(ARITHMETIC[symbol](x.astype(np.float64), y.astype(np.float64)), dtype)
        return ARITHMETIC[symbol](x, y)


def cast(x, dtype, out):
    """Conversion of numbers of one element type to another, where floats to integers saturate."""
    if not is_float(dtype) or is_float(out) or out == "int1":
        return convert(x, out)
    info = np.iinfo(out)
    with np.errstate(invalid="ignore"):
        whole = np.trunc(x.astype(np.float64))
        inside = (whole >= float(info.min)) & (whole < float(info.max) + (bits(out) < 64))
        found = np.where(inside, whole, 0).astype(out)
    found = np.where(~inside & (whole > 0), info.max, found)
    return np.where(~inside & (whole < 0), info.min, found).astype(out)
