"""Warnings of what the official Triton refuses (`TILEWRIGHT_PORTABLE=1`), and results that must be used."""

import textwrap
import warnings

import pytest
import torch

import tilewright
from tilewright import _native


@pytest.fixture
def portable(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PORTABLE", "1")
    _native.reload_knobs()
    yield
    monkeypatch.delenv("TILEWRIGHT_PORTABLE")
    _native.reload_knobs()


def warned(module, body):
    kernel = module(
        "@triton.jit\ndef kernel(x_ptr, N: tl.constexpr):\n" + textwrap.indent(body, "    ")
    ).kernel
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel[(1,)](torch.zeros(4096), N=16)
    return [str(one.message) for one in caught]


# Triton 3.9.0 raises CompilationError for each of these.
REFUSED = {
    "tl.store(x_ptr + tl.arange(0, 250), 1.0)": "250 is no power of two",
    "x = tl.zeros((16, 3), tl.float32)": "3 is no power of two",
    "x = tl.full([N - 1], 1.0, tl.float32)": "15 is no power of two",
    "x = tl.arange(0, 16).reshape(1, 16)\ny = tl.arange(0, 24)": "24 is no power of two",
    "n = 16\nx = tl.arange(0, n)": "refuses `n` in `arange`",
    "n = 16\nx = tl.zeros((n, 16), tl.float32)": "refuses `(n, 16)` in `zeros`",
    "n = 4\nx = tl.arange(0, 16).reshape(n, 4)": "refuses `n` in `reshape`",
}
ACCEPTED = (
    "tl.store(x_ptr + tl.arange(0, 256), 1.0)",
    "n: tl.constexpr = 16\nx = tl.zeros((n, N), tl.float32)",
    "n = 16\nx = tl.full((N,), n, tl.float32)",
    "x = tl.arange(0, N).reshape(4, N // 4)",
)


@pytest.mark.parametrize("body", REFUSED)
def test_refused_tiles_are_warned_of(module, portable, body):
    (text,) = warned(module, body)
    assert "TW0052" in text
    assert REFUSED[body] in text


@pytest.mark.parametrize("body", ACCEPTED)
def test_accepted_tiles_are_not(module, portable, body):
    assert warned(module, body) == []


@pytest.mark.parametrize("body", REFUSED)
def test_the_warning_is_off_by_default(module, body):
    assert warned(module, body) == []


FUNCTIONS = """\
@triton.must_use_result("it changes no tile")
@triton.jit
def doubled(x):
    return x * 2


@triton.jit
@triton.must_use_result
def tripled(x):
    return x * 3


@triton.jit
def plain(x):
    return x


@triton.jit
def kernel(x_ptr):
    x = tl.load(x_ptr)
    {line}
    tl.store(x_ptr, x)
"""


@pytest.mark.parametrize(("line", "reason"), [("doubled(x)", "it changes no tile"), ("tripled(x)", "")])
def test_a_discarded_result_is_an_error(module, line, reason):
    with pytest.raises(tilewright.CompilationError, match="TW0027") as raised:
        module(FUNCTIONS.format(line=line)).kernel[(1,)](torch.ones(1))
    assert f"the result of `{line[:-3]}` is not used" in str(raised.value)
    assert reason in str(raised.value)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("line", "expected"), [("x = doubled(x)", 2), ("x = x + tripled(x)", 4), ("plain(doubled(x))", 1)]
)
def test_a_used_result_is_none(module, line, expected):
    x = torch.ones(1)
    module(FUNCTIONS.format(line=line)).kernel[(1,)](x)
    assert x.item() == expected


def test_advance_changes_no_pointer(module):
    text = (
        "@triton.jit\ndef kernel(x_ptr):\n"
        "    p = tl.make_block_ptr(x_ptr, (16,), (1,), (0,), (4,), (0,))\n    tl.advance(p, (4,))\n"
    )
    with pytest.raises(tilewright.CompilationError, match=r"TW0027.*tl\.advance"):
        module(text).kernel[(1,)](torch.ones(16))
