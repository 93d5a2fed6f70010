"""Launches that differ in options which only a GPU follows: on the CPU they are compiled once."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from conftest import DEVICE

import tilewright as triton
import tilewright.language as tl

ON_CPU = DEVICE == "cpu"

# The last follows the language's options, and is always compiled on its own.
OPTIONS = (
    {"num_warps": 1},
    {"num_warps": 8, "num_stages": 1},
    {"maxnreg": 64},
    {"num_warps": 8, "debug": True},
)

SCALE = tl.constexpr(2)


@triton.jit
def scale(out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, i * SCALE)


@triton.jit
def warps_of_helper():
    return tl.extra.cuda.num_warps()


@triton.jit
def asks(out_ptr):
    tl.store(out_ptr, warps_of_helper())


@triton.jit
def says(out_ptr, BLOCK: tl.constexpr):
    tl.static_print("compiled")
    tl.store(out_ptr + tl.arange(0, BLOCK), 1)


def codes(handles):
    return [handle._code_number for handle in handles]


def test_code_is_shared_and_options_are_not(device):
    out = torch.zeros(16, dtype=torch.int32, device=device)
    handles = [scale.warmup(out, BLOCK=16, **options) for options in OPTIONS]
    assert len(set(map(id, handles))) == len(OPTIONS)
    assert len(set(codes(handles))) == (2 if ON_CPU else len(OPTIONS))
    assert [handle.metadata.num_warps for handle in handles] == [1, 8, 4, 8]
    assert [handle.metadata.maxnreg for handle in handles] == [None, None, 64, None]
    assert len({handle.hash for handle in handles}) == len(OPTIONS)
    other = scale.warmup(out, BLOCK=32, num_warps=1)
    assert other._code_number not in codes(handles)
    for options, handle in zip(OPTIONS, handles, strict=True):
        assert scale.warmup(out, BLOCK=16, **options) is handle
        assert scale[(1,)](out, BLOCK=16, **options) is handle
        assert out.tolist() == list(range(0, 32, 2))


def test_who_asks_for_warps_is_told(device):
    out = torch.zeros(1, dtype=torch.int32, device=device)
    for warps in (1, 8, 2, 8, 1):
        asks[(1,)](out, num_warps=warps)
        assert out.tolist() == [warps]


def test_each_compilation_prints(device, capfd):
    out = torch.zeros(16, dtype=torch.int32, device=device)
    for warps in (1, 2, 1):
        says[(1,)](out, BLOCK=16, num_warps=warps)
    assert capfd.readouterr().out.count("compiled") == 2


def test_what_is_out_of_date_is_shared_with_nobody(device):
    global SCALE
    out = torch.zeros(16, dtype=torch.int32, device=device)
    before = SCALE
    try:
        for value, first in ((3, 4), (5, 1), (7, 16)):
            SCALE = tl.constexpr(value)
            # One of them is new, and meets what the others were compiled with.
            for warps in (first, 1, 2, 4, 8):
                scale[(1,)](out, BLOCK=16, num_warps=warps)
                assert out.tolist() == list(range(0, 16 * value, value))
    finally:
        SCALE = before


@pytest.mark.parametrize("collects", [False, True])
def test_the_garbage_collector_counts_once(device, collects):
    """Forms that share their code share the objects that the code was made from."""

    def factory(value):
        held = [tl.constexpr(value)]
        factor = held[0]

        @triton.jit
        def times(out_ptr, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK)
            tl.store(out_ptr + i, i * factor)

        return times

    out = torch.zeros(16, dtype=torch.int32, device=device)
    kernel = factory(3)
    kernel.itself = kernel
    for warps in (1, 2, 4, 1):
        kernel[(1,)](out, BLOCK=16, num_warps=warps)
        if collects:
            gc.collect()
        assert out.tolist() == list(range(0, 48, 3))
    found = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert found() is None
