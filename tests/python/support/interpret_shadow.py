"""A plugin for pytest that runs each launch twice, compiled and interpreted, and compares all memory bit for bit.

    TILEWRIGHT_NUM_THREADS=1 python -m pytest -p interpret_shadow tests/python/language/test_operators.py

With one thread, both run the programs of a grid in the same order. ``TILEWRIGHT_SHADOW=7`` takes every seventh test.
"""

from __future__ import annotations

import math
import os
import re

import numpy
import pytest
import torch

import tilewright
from tilewright.runtime.interpreter import interpret
from tilewright.runtime.jit import JITFunction

OTHER_ROUNDING = ("test_products_are_added_to_an_accumulator",)
"""A pass of the compiler fuses a multiplication and an addition there, which rounds once less."""

OTHER_IN_PYTHON = ("test_what_is_an_object_of_python_when_interpreted",)
"""Differences of interpret mode: tuples of Python take Python's slices only, and operations only make tensors."""

MOST_PROGRAMS = 100
"""Larger grids take minutes when interpreted, and their programs differ in their number only."""

_launch = JITFunction.run
_compiled = 0


def pytest_collection_modifyitems(config, items):
    """Takes some of the tests, the same ones each time."""
    step = int(os.environ.get("TILEWRIGHT_SHADOW", "1"))
    dropped = [item for number, item in enumerate(items) if number % step]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items[::step] if item.originalname not in OTHER_ROUNDING + OTHER_IN_PYTHON]


def pytest_terminal_summary(terminalreporter):
    """Says how many launches were compared."""
    terminalreporter.write_line(f"{_compiled} launches compared")


def _copied(value):
    if isinstance(value, torch.Tensor):
        # The whole memory that it is a view of: kernels reach all of it.
        storage = value.untyped_storage()
        copy = torch.empty(0, dtype=value.dtype)
        return copy.set_(storage.clone(), value.storage_offset(), value.size(), value.stride())
    if isinstance(value, numpy.ndarray) and value.base is None:
        return value.copy()
    return value


def _bytes(value):
    if isinstance(value, torch.Tensor):
        return bytes(value.untyped_storage())
    return value.tobytes() if isinstance(value, numpy.ndarray) else b""


def _are_same(ours, theirs):
    """Returns whether the bits are the same; those of a NaN do not count, and passes may change them."""
    if _bytes(ours) == _bytes(theirs):
        return True
    if not isinstance(ours, torch.Tensor) or not ours.is_floating_point():
        return False
    both = [torch.empty(0, dtype=value.dtype).set_(value.untyped_storage()) for value in (ours, theirs)]
    nans = [torch.isnan(flat.to(torch.float64)) for flat in both]
    rest = [bytes(flat[~mask].contiguous().untyped_storage()) for flat, mask in zip(both, nans, strict=True)]
    return torch.equal(*nans) and rest[0] == rest[1]


def _shadowed(kernel, *args, grid, warmup=False, **kwargs):
    """Runs a launch both ways; the interpreted one is what the test sees."""
    global _compiled
    # A sum with a product is one op when compiled, which rounds once less.
    is_large = isinstance(grid, tuple) and math.prod(grid) > MOST_PROGRAMS
    if warmup or is_large or kernel._is_to_be_interpreted() or re.search(r"\+=? *tl\.dot\(", kernel.src):
        return _launch(kernel, *args, grid=grid, warmup=warmup, **kwargs)
    copies = [_copied(value) for value in args], {name: _copied(value) for name, value in kwargs.items()}
    # An argument that cannot be copied would be changed twice.
    values = [*args, *kwargs.values()]
    if any(getattr(value, "is_cuda", False) for value in values) or _share_memory(values):
        return _launch(kernel, *args, grid=grid, warmup=False, **kwargs)
    failed = None
    try:
        result = _launch(kernel, *copies[0], grid=grid, warmup=False, **copies[1])
    except tilewright.TritonError as error:
        failed = error
    twin = kernel.__dict__.get("_shadow")
    if twin is None:
        twin = kernel._shadow = interpret(kernel)
    _compiled += 1
    try:
        _launch(twin, *args, grid=grid, warmup=False, **kwargs)
    except Exception:
        # Both fail; the exception of an interpreted kernel may be Python's own.
        if failed is None:
            raise
        raise failed from None
    if failed is not None and any(found.code == "TW0022" for found in failed.diagnostics):
        # The limits of the compiler do not apply to Python.
        raise failed
    assert failed is None, f"compiled it fails, interpreted it does not: {failed}"
    for ours, theirs in zip(values, [*copies[0], *copies[1].values()], strict=True):
        assert _are_same(ours, theirs), "the interpreted kernel gives other bits"
    return result


def _share_memory(values):
    places = [
        value.untyped_storage().data_ptr()
        for value in values
        if isinstance(value, torch.Tensor) and value.numel()
    ]
    plain = (torch.Tensor, numpy.ndarray, int, float, bool, str, type(None), tilewright.language.dtype)
    known = (*plain, tilewright.language.constexpr, JITFunction)
    return len(set(places)) < len(places) or not all(isinstance(value, known) for value in values)


@pytest.fixture(autouse=True)
def _shadow_launches(monkeypatch):
    """Puts the double run in the place of a launch."""

    def item(kernel, grid):
        return lambda *args, **kwargs: _shadowed(kernel, *args, grid=grid, **kwargs)

    monkeypatch.setattr(JITFunction, "run", _shadowed, raising=False)
    monkeypatch.setattr(JITFunction, "__getitem__", item, raising=False)
