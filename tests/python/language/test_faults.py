"""Faults of running kernels: each names its line, program, argument and offset, and writes nothing."""

import linecache

import numpy as np
import pytest
import torch
from helpers import INTEGERS, TORCH, module
from helpers_errors import facts, failing, lines, unmarked

import tilewright

OutOfBounds = tilewright.errors.OutOfBoundsError
Execution = tilewright.errors.ExecutionError


LOAD = """@triton.jit
def kernel(x_ptr, out_ptr, start, BLOCK: tl.constexpr):
    i = start + tl.arange(0, BLOCK)
    x = «tl.load(x_ptr + i)»
    tl.store(out_ptr + tl.arange(0, BLOCK), x)
"""
STORE = """@triton.jit
def kernel(x_ptr, start, BLOCK: tl.constexpr):
    i = start + tl.arange(0, BLOCK)
    «tl.store(x_ptr + i, 7.0)»
"""


@pytest.mark.parametrize(
    ("start", "offset"), [(70, 100), (99, 100), (1000, 1000), (-1, -1), (-64, -64), (2**40, 2**40)]
)
def test_a_load_beyond_the_argument(start, offset, device):
    x, out = torch.zeros(100, device=device), torch.full((64,), 5.0, device=device)
    (found,) = failing(LOAD, x, out, start, error=OutOfBounds, BLOCK=64)
    assert found.code == "TW0201"
    assert "`x_ptr`" in found.message
    assert "load" in found.message
    assert f"the offset in elements is {offset}" in facts(found)
    assert "elements 0 to 99" in facts(found)
    assert "program (0, 0, 0)" in facts(found)
    assert found.hint
    assert (out == 5).all()


@pytest.mark.parametrize(("start", "offset"), [(70, 100), (99, 100), (1000, 1000), (-1, -1), (-64, -64)])
def test_a_store_beyond_the_argument_writes_nothing(start, offset, device):
    x = torch.zeros(100, device=device)
    (found,) = failing(STORE, x, start, error=OutOfBounds, BLOCK=64)
    assert found.code == "TW0201"
    assert "store" in found.message
    assert f"the offset in elements is {offset}" in facts(found)
    assert (x == 0).all()


@pytest.mark.parametrize("dtype", ["int1", "int8", "float16", "int32", "float64"])
def test_offsets_are_elements_of_every_type(dtype, device):
    x = torch.zeros(33, device=device).to(TORCH[dtype])
    (found,) = failing(LOAD, x, torch.zeros(32).to(x.dtype), 2, error=OutOfBounds, BLOCK=32)
    assert "the offset in elements is 33" in facts(found)
    assert f"{33 * x.element_size()} bytes" in facts(found)


def test_one_lane_of_a_gather(device):
    text = """@triton.jit
def kernel(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i)
    tl.store(out_ptr + i, «tl.load(x_ptr + index)»)
"""
    index = torch.arange(64, device=device) % 10
    index[37] = 10
    out = torch.zeros(64, device=device)
    (found,) = failing(text, torch.zeros(10, device=device), index, out, error=OutOfBounds, BLOCK=64)
    assert "the offset in elements is 10" in facts(found)
    assert "[37]" in facts(found)


def test_one_lane_of_a_scatter_stops_the_others(device):
    text = """@triton.jit
def kernel(x_ptr, index_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    «tl.store(x_ptr + tl.load(index_ptr + i), 1.0)»
"""
    index = torch.arange(64, device=device)
    index[63] = 64
    x = torch.zeros(64, device=device)
    (found,) = failing(text, x, index, error=OutOfBounds, BLOCK=64)
    assert "[63]" in facts(found)
    assert (x == 0).all()


def test_a_matrix_names_row_and_column(device):
    text = """@triton.jit
def kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = «tl.load(x_ptr + i * N + j)»
    tl.store(out_ptr + i * N + j, x)
"""
    out = torch.zeros(8, 16, device=device)
    (found,) = failing(text, torch.zeros(7, 16, device=device)[:, :15], out, error=OutOfBounds, M=8, N=16)
    assert "[7, 0]" in facts(found)


def test_the_program_is_named(device):
    text = """@triton.jit
def kernel(x_ptr, n):
    place = (tl.program_id(2) * 4 + tl.program_id(1)) * 3 + tl.program_id(0)
    «tl.store(x_ptr + place, 1)»
"""
    x = torch.zeros(23, dtype=torch.int32, device=device)
    (found,) = failing(text, x, 1, error=OutOfBounds, grid=(3, 4, 2))
    assert "program (2, 3, 1)" in facts(found)
    # A scalar access has no place in a tile.
    assert "element [" not in facts(found)


def test_a_fault_in_a_helper_shows_the_calls(device):
    text = """@triton.jit
def fetch(p, i):
    return «tl.load(p + i)»


@triton.jit
def kernel(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(n):
        total += fetch(x_ptr, i)
    tl.store(out_ptr, total)
"""
    x, out = torch.zeros(10, device=device), torch.zeros(1, device=device)
    (found,) = failing(text, x, out, 11, error=OutOfBounds)
    assert "the offset in elements is 10" in facts(found)
    assert "called from here" in facts(found)


def test_a_view_may_reach_its_whole_storage_and_no_further(device):
    base = torch.arange(100, dtype=torch.float32, device=device)
    out = torch.zeros(32, device=device)
    kernel = module(unmarked(LOAD)).kernel
    kernel[(1,)](base[50:60], out, -50, BLOCK=32)
    kernel[(1,)](base[50:60], out, 18, BLOCK=32)
    assert out.tolist() == base[68:].tolist()
    (found,) = failing(LOAD, base[50:60], out, -51, error=OutOfBounds, BLOCK=32)
    assert "the offset in elements is -51" in facts(found)
    (found,) = failing(LOAD, base[50:60], out, 19, error=OutOfBounds, BLOCK=32)
    assert "the offset in elements is 50" in facts(found)


def test_numpy_views_reach_the_array_that_owns_the_memory(device):
    base = np.arange(100, dtype=np.float32)
    out = np.zeros(16, np.float32)
    kernel = module(unmarked(LOAD)).kernel
    kernel[(1,)](base[::-1], out, -15, BLOCK=16)
    assert out.tolist() == base[84:].tolist()
    failing(LOAD, base[::-1], out, 1, error=OutOfBounds, BLOCK=16)


def test_tensors_without_elements(device):
    nothing = torch.zeros(0, device=device)
    (found,) = failing(LOAD, nothing, torch.zeros(16), 0, error=OutOfBounds, BLOCK=16)
    assert "no elements" in facts(found)


def test_memory_that_belongs_to_no_argument(device):
    text = """@triton.jit
def kernel(address, out_ptr):
    x = «tl.load(address.to(tl.pointer_type(tl.float32)))»
    tl.store(out_ptr, x)
"""
    # A tensor of torch can be found; see test_addresses_in_memory.py.
    stranger, out = np.zeros(1 << 20, np.float32), torch.zeros(1, device=device)
    (found,) = failing(text, stranger.ctypes.data, out, error=OutOfBounds)
    assert found.code == "TW0201"
    failing(text, 2**40 + 1, out, error=OutOfBounds)


def test_programs_before_the_faulty_one_may_have_run_and_the_next_launch_works(device):
    x = torch.zeros(100, device=device)
    kernel = module(unmarked(STORE)).kernel
    with pytest.raises(OutOfBounds):
        kernel[(1,)](x, 90, BLOCK=16)
    kernel[(1,)](x, 84, BLOCK=16)
    assert x.sum().item() == 7 * 16


@pytest.mark.parametrize("operator", ["//", "%"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_by_zero_under_debug(dtype, operator, device):
    text = f"""@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    z = «tl.load(x_ptr + i) {operator} tl.load(y_ptr + i)»
    tl.store(out_ptr + i, z)
"""
    x = torch.ones(32, dtype=torch.int32, device=device).to(TORCH[dtype])
    y = torch.ones(32, dtype=torch.int32, device=device)
    y[5] = 0
    y = y.to(TORCH[dtype])
    out = torch.zeros(32, dtype=torch.int32, device=device).to(TORCH[dtype])
    (found,) = failing(text, x, y, out, error=Execution, BLOCK=32, debug=True)
    assert found.code == "TW0202"
    assert "[5]" in facts(found)
    assert "program (0, 0, 0)" in facts(found)
    assert found.hint
    assert (out.to(torch.int32) == 0).all()


@pytest.mark.parametrize("division", ["n // d", "n % d", "n // (d * 0)", "n % 0", "n // ZERO"])
def test_division_of_numbers_by_zero_under_debug(division, device):
    text = f"""@triton.jit
def kernel(out_ptr, n, d, ZERO: tl.constexpr):
    tl.store(out_ptr, «{division}»)
"""
    out = torch.full((1,), 3, dtype=torch.int32, device=device)
    assert failing(text, out, 5, 0, error=Execution, ZERO=0, debug=True)[0].code == "TW0202"
    assert out.item() == 3
    module(unmarked(text)).kernel[(1,)](out, 5, 0, ZERO=0)
    assert out.item() == -1


AVERAGE = """@triton.jit
def kernel(total_ptr, count_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    total = tl.load(total_ptr + i, mask=mask)
    count = tl.load(count_ptr + i, mask=mask)
    tl.store(out_ptr + i, «total // count», mask=mask)
"""


def test_lanes_that_a_mask_discards_may_divide_by_zero(device):
    total = torch.arange(-50, 50, dtype=torch.int32, device=device) * 1000
    count = torch.arange(100, dtype=torch.int32, device=device) % 7 + 1
    out = torch.zeros_like(total)
    module(unmarked(AVERAGE)).kernel[(4,)](total, count, out, 100, BLOCK=32)
    assert torch.equal(out, torch.div(total, count, rounding_mode="trunc"))
    # Under debug, lane 4 of the last program is reported: it is the first beyond the end.
    (found,) = failing(AVERAGE, total, count, out, 100, error=Execution, grid=(4,), BLOCK=32, debug=True)
    assert found.code == "TW0202"
    assert "in program (3, 0, 0), at element [4] of the tile" in found.notes


def test_division_by_zero_in_a_library_function_names_the_caller(device):
    text = """@triton.jit
def kernel(out_ptr, n, d):
    tl.store(out_ptr, tl.cdiv(n, d))
"""
    kernel = module(text).kernel
    out = torch.zeros(1, dtype=torch.int32, device=device)
    kernel[(1,)](out, 5, 0)
    assert out.item() == -1
    with pytest.raises(Execution) as raised:
        kernel[(1,)](out, 5, 0, debug=True)
    (found,) = raised.value.diagnostics
    assert found.code == "TW0202"
    assert any("tl.cdiv(n, d)" in linecache.getline(file, line) for file, line, *_ in found.labels)


def test_the_smallest_number_by_minus_one_wraps(device):
    text = """@triton.jit
def kernel(out_ptr, n, d):
    tl.store(out_ptr, n // d)
    tl.store(out_ptr + 1, n % d)
"""
    out = torch.ones(2, dtype=torch.int32, device=device)
    module(text).kernel[(1,)](out, -(2**31), -1)
    assert out.tolist() == [-(2**31), 0]


@pytest.mark.parametrize(
    "call", ['tl.device_assert(x > 0, "x is positive")', 'assert x > 0, "x is positive"']
)
def test_assertions_that_fail(call, device):
    text = f"""@triton.jit
def kernel(out_ptr, x):
    «{call}»
    tl.store(out_ptr, x)
"""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    (found,) = failing(text, out, -5, error=tilewright.errors.DeviceAssertionError, debug=True)
    assert found.code == "TW0203"
    assert "x is positive" in found.message
    assert out.item() == 0


def test_a_loop_with_a_step_of_zero(device):
    text = """@triton.jit
def kernel(out_ptr, n, step):
    total = 0
    for i in «range(0, n, step)»:
        total += i
    tl.store(out_ptr, total)
"""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    (found,) = failing(text, out, 5, 0, error=Execution)
    assert found.code == "TW0205"
    assert "never end" in found.label
    assert found.hint


def test_a_loop_with_a_step_of_zero_in_a_helper_names_the_call(device):
    text = """@triton.jit
def total(n, step):
    sum = 0
    for i in «range(0, n, step)»:
        sum += i
    return sum

@triton.jit
def kernel(out_ptr, n, step):
    for j in range(0, n, step + 1):
        tl.store(out_ptr, total(n, step))
"""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    (found,) = failing(text, out, 5, 0, error=Execution)
    assert found.code == "TW0205"
    assert [number - found.line for number in lines(found)] == [0, 7]


def test_exceptions_are_those_that_python_programs_expect(device):
    x = torch.zeros(4, device=device)
    kernel = module(unmarked(STORE)).kernel
    with pytest.raises(IndexError) as raised:
        kernel[(1,)](x, 0, BLOCK=16)
    assert isinstance(raised.value, RuntimeError)
    assert raised.value.diagnostics[0].code == raised.value.code
