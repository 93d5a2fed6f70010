"""``triton.tools``: ragged descriptors, machine code as text; and what tools take from ``runtime.jit``."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.tools import disasm, ragged_tma

torch = pytest.importorskip("torch")


@triton.jit
def copy_slices(
    x,
    out,
    offsets_ptr,
    sizes_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ADD: tl.constexpr,
    AXIS: tl.constexpr,
):
    slice_off = tl.load(offsets_ptr + tl.program_id(0))
    slice_size = tl.load(sizes_ptr + tl.program_id(0))
    at = tl.program_id(1) * ROWS
    block = ragged_tma.load_ragged(x, slice_off, slice_size, (at, 0), AXIS)
    if ADD:
        ragged_tma.atomic_add_ragged(out, slice_off, slice_size, (at, 0), block + 1, AXIS)
    else:
        ragged_tma.store_ragged(out, slice_off, slice_size, (at, 0), block + 1, AXIS)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("axis", [0, -2])
def test_slices_end_where_they_end(device, add, axis):
    sizes, gap = [5, 0, 9, 1], 2
    offsets = np.cumsum([0, *[size + gap for size in sizes]])[:-1]
    rows = int(offsets[-1]) + sizes[-1]
    x = torch.arange(rows * 8, dtype=torch.float32, device=device).reshape(rows, 8)
    out = torch.full_like(x, -1)
    expected = out.clone()
    for offset, size in zip(offsets, sizes, strict=True):
        part = x[offset : offset + size] + 1
        expected[offset : offset + size] = part - 1 if add else part
    described = [ragged_tma.create_ragged_descriptor(tensor, [4, 8], axis) for tensor in (x, out)]
    places = [torch.tensor(np.asarray(v), dtype=torch.int32, device=device) for v in (offsets, sizes)]
    copy_slices[(len(sizes), 3)](*described, *places, ROWS=4, COLUMNS=8, ADD=add, AXIS=axis)
    torch.testing.assert_close(out, expected)


def test_control_codes():
    """The bits are those that disassemblers of these GPUs show: barriers to wait for, to set, yield, stall."""

    def line(wait, read, write, no_yield, stall):
        bits = stall | no_yield << 4 | write << 5 | read << 8 | wait << 11
        return f"                    /* 0x{bits << 41:016x} */"

    assert disasm.parseCtrl(line(0b000101, 7, 2, 0, 4)) == "0-2---:-:2:Y:4"
    assert disasm.parseCtrl(line(0, 1, 7, 1, 15)) == "------:1:-:-:f"
    first = "        /*0a10*/                   BRA 0x9f0 ;                 /* 0xfffffff000007947 */"
    labels: dict[int, int] = {}
    assert disasm.processSassLines(first, line(0, 7, 7, 0, 5), labels) == ("------:-:-:Y:5", "BRA 0x9f0 ;")
    assert list(labels) == [0x9F0]


@triton.jit
def scale(x_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, at < n) * factor, at < n)


def test_a_launch_in_parts():
    """The Python binder of a launch's arguments gives the form that a launch compiles."""
    from tilewright.runtime.jit import compute_cache_key, serialize_specialization_data

    # Tools read the binder of a device that no launch has used yet.
    caches, keys, target, backend, bind = scale.device_caches[0]
    assert scale.device_caches[0][4] is bind
    assert (caches, keys) == ({}, {})
    x = torch.ones(32)
    bound, specialization, options = bind(x, 16, factor=2.5, BLOCK=32, num_warps=2)
    assert list(bound) == ["x_ptr", "n", "factor", "BLOCK"]
    assert options == {"num_warps": 2}
    assert specialization[3] == ("constexpr", 32)
    assert [kind for kind, _ in specialization[:3]] == ["*fp32", "i32", "fp32"]
    assert specialization[1][1] == "D"
    assert bind(x, 1, 2.5, 32)[1][1] == ("constexpr", 1)
    key = compute_cache_key(keys, specialization, options)
    assert compute_cache_key(keys, list(specialization), dict(options)) == key
    parsed, signature, constants, attrs = scale._pack_args(backend, options, bound, specialization, options)
    assert parsed.num_warps == 2
    text = serialize_specialization_data(scale._fn_name, signature, constants, attrs, options, key, target)
    kernel = scale.preload(text)
    kernel[(1,)](x, 16, 2.5, 32)
    np.testing.assert_array_equal(x.numpy(), [2.5] * 16 + [1.0] * 16)


def test_tools_compile_as_launches_do():
    """Helion's autotuner compiles in another process what it does not find in Triton's cache of a device."""
    kernel = triton.jit(scale.fn)
    cache, _, target, backend, bind = kernel.device_caches["cpu"]
    x = torch.ones(32)
    bound, specialization, options = bind(x, 32, 2.0, BLOCK=16)
    parsed, signature, constants, attrs = kernel._pack_args(backend, options, bound, specialization, options)
    source = kernel.ASTSource(kernel, signature, constants, attrs)
    cache["key"] = kernel.compile(source, target=target, options=parsed.__dict__)
    kernel.device_caches["cpu"][0]["key"][(1,)](x, 32, 2.0, 16)
    np.testing.assert_array_equal(x.numpy(), [2.0] * 16 + [1.0] * 16)
    kernel.device_caches.clear()
    assert kernel.device_caches == {}


def test_the_options_of_jit_are_in_its_signature():
    import inspect

    names = {"version", "repr", "launch_metadata", "do_not_specialize", "do_not_specialize_on_alignment"}
    assert {*names, "debug", "noinline"} <= set(inspect.signature(triton.jit).parameters)
    with pytest.raises(TypeError, match="takes no num_warps, but version, repr"):
        triton.jit(scale.fn, num_warps=4)


def test_dependencies():
    import ast

    from tilewright.runtime.jit import DependenciesFinder

    def digest(value):
        source = "def f():\n    return LIMIT + helper(2)\n"
        finder = DependenciesFinder("f", {"LIMIT": value, "helper": scale}, {}, source)
        finder.visit(ast.parse(source))
        return finder

    assert digest(3).ret == digest(3).ret != digest(4).ret
    assert [name for name, _ in digest(3).used_global_vals] == ["LIMIT"]
