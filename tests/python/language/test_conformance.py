"""Conformance of the table of ops: every op of the tile IR, on every type that it takes, against exact arithmetic.

The table is that of the compiler, so that a new op fails here until it has a row. The second table, of elementwise
functions, is walked in test_elementwise.py; operators by pairs of types in test_operators.py; casts
by pairs of types in test_casts.py. Types that an op does not take are refused: nothing is in between.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import conformance_computes
import conformance_moves
import pytest
import torch
from conformance_computes import ATOMIC, KINDS, TAKEN
from conftest import ON_GPU
from helpers import module
from helpers_conformance import DTYPES, FP8, INTEGERS, IR_NAMES, run_cases

import tilewright as triton
import tilewright.language as tl
from tilewright import _native

ROWS = {row.__name__: row for row in [*conformance_moves.ROWS, *conformance_computes.ROWS]}

# Cases in one kernel.
GROUP = 36

# Ops whose whole walk is a test below, or another file's.
ELSEWHERE = {
    "program_id": "test_the_grid",
    "num_programs": "test_the_grid",
    "print": "test_printing",
    "machine": "test_the_machine",
    "dependency": "test_the_machine",
    "elementwise": "test_elementwise.py",
    "cast": "test_casts.py",
    # Layouts that a program states, and ops that only one kind of device has.
    "set_layout": "../gluon/test_gluon_layouts.py",
    "device": "../gluon/test_gluon_hopper.py",
    "start_workers": "../gluon/test_gluon_warp_specialize.py",
    # The back end for Blackwell makes it of calls of `tl.dot_scaled`.
    "dot_scaled": "../codegen/test_blackwell_scaled.py",
}


def groups_of(row) -> list:
    cases = list(ROWS[row]())
    return [cases[start : start + GROUP] for start in range(0, len(cases), GROUP)]


def test_every_op_has_a_row():
    walked = {case.op for row in ROWS.values() for case in row()}
    table = {name for name, _, _ in _native.tile_ops()}
    assert walked | set(ELSEWHERE) == table
    assert not walked & set(ELSEWHERE)
    for place in ELSEWHERE.values():
        assert place in globals() or (Path(__file__).parent / place).is_file(), f"there is no {place}"


def test_every_element_type_has_a_name():
    assert set(IR_NAMES.values()) == set(_native.element_types())


def test_every_type_is_walked_or_refused():
    """Of the ops that say nothing of types, all; of the others, the types that they take."""
    about: dict[str, set[str]] = {}
    for row in ROWS.values():
        for case in row():
            about.setdefault(case.op, set()).update(dtype for _, dtype in case.inputs.values())
            about[case.op].update(dtype for _, _, dtype in case.memory.values())
            about[case.op].update(dtype for _, dtype in case.outputs.values())
    any_type = set(DTYPES)
    for name, _, _ in _native.tile_ops():
        takes = {
            "arange": {"int32"},
            "histogram": set(INTEGERS),
            "bitonic": any_type - set(FP8),
            "hint": set(INTEGERS),
            "bitcast": any_type - {"int1"},
            "assume": {"int32"},
            "atomic_rmw": set(ATOMIC),
            "atomic_cas": set(ATOMIC),
            "atomic_poll": set(ATOMIC[2:6]),
            "dot": {dtype for pair in TAKEN for dtype in pair},
        }.get(name, any_type)
        if name not in ELSEWHERE:
            assert takes <= about[name], f"{name} is not walked on {sorted(takes - about[name])}"


@pytest.mark.parametrize("row", ROWS)
def test_ops_do_what_their_rows_say(row, device):
    for number, cases in enumerate(groups_of(row)):
        run_cases(cases, device, num_warps=(4, 1, 2)[number % 3], debug=row == "checks")


GRID = """@triton.jit
def kernel(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    place = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out_ptr + place * 6 + 0, x)
    tl.store(out_ptr + place * 6 + 1, y)
    tl.store(out_ptr + place * 6 + 2, z)
    tl.store(out_ptr + place * 6 + 3, tl.num_programs(0))
    tl.store(out_ptr + place * 6 + 4, tl.num_programs(1))
    tl.store(out_ptr + place * 6 + 5, tl.num_programs(2))
"""


@pytest.mark.parametrize("grid", [(1, 1, 1), (5, 2, 3), (1, 7), (3,)], ids=str)
def test_the_grid(grid, device):
    extents = (*grid, 1, 1)[:3]
    programs = [(x, y, z, *extents) for z, y, x in itertools.product(*map(range, reversed(extents)))]
    out = torch.zeros(len(programs), 6, dtype=torch.int32, device=device)
    module(GRID).kernel[grid](out)
    assert out.tolist() == [list(program) for program in programs]


PRINT = """@triton.jit
def kernel(memory):
{lines}
"""


def test_printing(device, capfd):
    """A number of each type, and a tile."""
    values = {dtype: 1 if dtype in ("int1", *FP8) else 3 for dtype in DTYPES}
    lines = [f"    tl.device_print('{dtype}:', tl.full((), {v}, tl.{dtype}))" for dtype, v in values.items()]
    lines.append("    tl.device_print('tile', tl.arange(0, 3))")
    module(PRINT.format(lines="\n".join(lines))).kernel[(1,)](torch.zeros(1, device=device))
    if ON_GPU:
        torch.cuda.synchronize()
    found = sorted(capfd.readouterr().out.splitlines())
    number = {dtype: f"{v:f}" if "float" in dtype else str(v) for dtype, v in values.items()}
    expected = [f"pid (0, 0, 0) idx () {dtype}: {number[dtype]}" for dtype in DTYPES]
    expected += [f"pid (0, 0, 0) idx ({n}) tile: {n}" for n in range(3)]
    assert found == sorted(expected)


@triton.jit
def asks(out_ptr):
    before = tl.extra.cuda.globaltimer()
    tl.extra.cuda.gdc_wait()
    tl.store(out_ptr, tl.extra.cuda.smid() >= 0)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out_ptr + 1, tl.extra.cuda.globaltimer() >= before)


def test_the_machine(device):
    out = torch.zeros(2, dtype=torch.int32, device=device)
    asks[(3,)](out)
    assert out.tolist() == [1, 1]


# --- Refused types ---

REFUSED = """@triton.jit
def kernel(memory):
    i = tl.arange(0, 16)
    pointer = memory.to(tl.pointer_type(tl.{a}))
    other = memory.to(tl.pointer_type(tl.{b}))
    x, y = tl.load(pointer + i), tl.load(other + i)
    matrix, right = tl.load(pointer + i[:, None] + i[None, :]), tl.load(other + i[:, None] + i[None, :])
    {line}
"""


def refusals():
    """Lines that must not compile, of each type that an op does not take."""
    atomic = [dtype for dtype in DTYPES if dtype not in ATOMIC]
    for dtype in atomic:
        yield from ((f"tl.atomic_{kind}(pointer, x[0])", dtype, dtype) for kind in KINDS)
        yield "tl.atomic_cas(pointer, x[0], x[0])", dtype, dtype
        yield "tl.atomic_poll(pointer, x[0])", dtype, dtype
    for kind in ("and", "or", "xor"):
        yield from (
            (f"tl.atomic_{kind}(pointer, x[0])", dtype, dtype) for dtype in ATOMIC if "float" in dtype
        )
    yield from (
        ("tl.histogram(x, 8)", dtype, dtype) for dtype in DTYPES if dtype not in INTEGERS and dtype != "int1"
    )
    yield from (("pointer + y", "int32", dtype) for dtype in DTYPES if "float" in dtype)
    yield from (
        ("tl.dot(matrix, right)", *pair) for pair in itertools.product(DTYPES, repeat=2) if pair not in TAKEN
    )


def test_what_an_op_does_not_take_is_refused():
    taken = []
    for line, a, b in refusals():
        kernel = module(REFUSED.format(line=line, a=a, b=b)).kernel
        try:
            kernel.warmup(torch.uint8, grid=(1,))
        except triton.CompilationError as error:
            codes = re.findall(r"error\[(TW\d+)\]", str(error))
        else:
            codes = []
        if not codes:
            taken.append(f"{line} of {a} and {b}")
    assert not taken, "\n".join(taken)
