"""Python's own values at compile time: methods of numbers and strings, functions of ``math``."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from conftest import ON_GPU

import tilewright as triton
import tilewright.language as tl


@triton.jit
def _methods(out_ptr, N: tl.constexpr, F: tl.constexpr, NAME: tl.constexpr):
    tl.store(out_ptr, N.bit_length())
    tl.store(out_ptr + 1, F.is_integer())
    tl.store(out_ptr + 2, 1.0 if NAME.startswith("re") else 2.0)
    tl.store(out_ptr + 3, NAME.upper().count("L") + len(NAME.replace("re", "")))
    tl.store(out_ptr + 4, N.numerator + F.hex().find("p"))
    tl.store(out_ptr + 5, F.as_integer_ratio()[1])


@pytest.mark.parametrize(("n", "f", "name"), [(1, 2.0, "relu"), (300, 0.75, "gelu"), (0, -1.5, "")])
def test_methods(n, f, name, device):
    out = torch.zeros(6, dtype=torch.float64, device=device)
    _methods[(1,)](out, n, f, name)
    starts = 1.0 if name.startswith("re") else 2.0
    letters = name.upper().count("L") + len(name.replace("re", ""))
    numbers = [
        n.bit_length(),
        f.is_integer(),
        starts,
        letters,
        n + f.hex().find("p"),
        f.as_integer_ratio()[1],
    ]
    assert out.tolist() == [float(number) for number in numbers]


@triton.jit
def _math(out_ptr, N: tl.constexpr, X: tl.constexpr):
    tl.store(out_ptr, math.log2(N))
    tl.store(out_ptr + 1, math.sqrt(X) * math.pi)
    tl.store(out_ptr + 2, math.ceil(X) + math.floor(-X))
    tl.store(out_ptr + 3, math.gcd(N, 12))
    tl.store(out_ptr + 4, math.pow(2, X))
    LEVELS: tl.constexpr = int(math.log2(N))
    for level in tl.static_range(LEVELS):
        tl.store(out_ptr + 5 + level, level)


def test_functions_of_math(device):
    n, x = 16, 2.25
    out = torch.full((10,), -1.0, dtype=torch.float64, device=device)
    _math[(1,)](out, n, x)
    first = [
        math.log2(n),
        math.sqrt(x) * math.pi,
        math.ceil(x) + math.floor(-x),
        math.gcd(n, 12),
        math.pow(2, x),
    ]
    # A compile-time float is a binary32 where it is stored.
    want = torch.tensor([*first, 0, 1, 2, 3, -1], dtype=torch.float64)
    torch.testing.assert_close(out.cpu(), want, rtol=1e-7, atol=0)


@triton.jit
def _number(out_ptr, n):
    tl.store(out_ptr, n.to(tl.float32) / 2)
    tl.store(out_ptr + 1, tl.cast(n, n.dtype) + 1)
    tl.static_assert(n.dtype == tl.int32)


@pytest.mark.parametrize("n", [1, 2, 16, -3])
def test_a_number_that_is_1_is_used_as_any_other(n, device):
    """An argument of 1 is part of the code."""
    out = torch.zeros(2, device=device)
    _number[(1,)](out, n)
    assert out.tolist() == [n / 2, n + 1]


@triton.jit
def _fails(out_ptr, KIND: tl.constexpr):
    if KIND == "domain":
        tl.store(out_ptr, math.sqrt(-1.0))
    elif KIND == "method":
        tl.store(out_ptr, "abc".index("d"))
    elif KIND == "missing":
        tl.store(out_ptr, (3).bits())
    elif KIND == "private":
        tl.store(out_ptr, (3).__sizeof__())
    else:
        tl.store(out_ptr, math.exp(tl.load(out_ptr)))


@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        ("domain", "TW0020", "function 'sqrt' failed: ValueError: "),
        ("method", "TW0020", "function 'str.index' failed: ValueError: substring not found"),
        ("missing", "TW0015", "the constant 3 has no attribute `bits`"),
        ("private", "TW0015", "the constant 3 has no attribute `__sizeof__`"),
        ("run time", "TW0010", "function 'exp' is Python's, and only takes compile-time values"),
    ],
)
def test_failures_are_findings(kind, code, text):
    with pytest.raises(triton.CompilationError) as raised:
        _fails[(1,)](torch.zeros(1), kind)
    finding = raised.value.diagnostics[0]
    assert (finding.code, finding.message[: len(text)]) == (code, text)
    if kind == "run time":
        assert finding.hint == "use `tl.exp`, or decorate the function with @triton.jit if it is yours"


@pytest.mark.skipif(ON_GPU, reason="its arrays are the host's")
def test_types_as_arguments_and_functions_as_values(device, module):
    k = module(
        """
        @tl.constexpr
        def wider(dtype):
            return tl.float32 if dtype.is_fp16() else dtype

        @triton.jit
        def least(dtype):
            dtype_ = dtype.value
            if dtype_.is_floating():
                value: tl.constexpr = float("-inf")
                return value
            value: tl.constexpr = -(2 ** (dtype_.int_bitwidth - 1))
            return value

        @triton.jit
        def kernel(x_ptr, o_ptr, wide_ptr):
            x = tl.load(x_ptr)
            tl.store(o_ptr, least(x_ptr.type.element_ty))
            tl.store(wide_ptr, wider(x.dtype).primitive_bitwidth)
        """
    )
    for dtype, lowest, bits in ((np.float16, -np.inf, 32), (np.int8, -128, 8), (np.int32, -(2**31), 32)):
        out, wide = np.zeros(1, dtype), np.zeros(1, np.int32)
        k.kernel[(1,)](np.ones(1, dtype), out, wide)
        assert (out[0], wide[0]) == (lowest, bits)
