"""Buffers of Python itself as arguments: `array.array`, `memoryview`, `bytearray`, `ctypes`."""

import array
import ctypes

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import _native


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x + x, mask=i < n)


@triton.jit
def size_of(x_ptr, out_ptr, SIZE: tl.constexpr):
    tl.static_assert(x_ptr.dtype.element_ty.primitive_bitwidth == SIZE * 8)
    tl.store(out_ptr, tl.load(x_ptr).to(tl.float32))


@pytest.fixture(params=["cpu", "sim:sm_90"])
def device(request):
    before = _native.device()
    _native.set_device(request.param)
    yield request.param
    _native.set_device(before)


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_arrays_of_each_type(device, code):
    x = array.array(code, range(60))
    out = array.array(code, [0] * 60)
    double[(1,)](x, out, 60, BLOCK=64)
    assert list(out) == [2 * value for value in range(60)]
    size_of[(1,)](x, array.array("f", [1]), SIZE=x.itemsize)


def test_views_and_bytes(device):
    data = bytearray(range(60))
    double[(1,)](memoryview(data)[10:], data, 4, BLOCK=4)
    assert list(data[:6]) == [20, 22, 24, 26, 4, 5]
    numbers = (ctypes.c_int * 4)(1, 2, 3, 4)
    out = memoryview(bytearray(16)).cast("f")
    double[(1,)](numbers, out, 4, BLOCK=4)
    assert out.tolist() == [2.0, 4.0, 6.0, 8.0]


def test_an_array_cannot_grow_while_a_kernel_may_use_it():
    x = array.array("f", [1, 2])
    double[(1,)](x, x, 2, BLOCK=2)
    x.append(3)
    assert list(x) == [2, 4, 3]


def test_a_store_to_a_read_only_buffer_is_refused(device):
    x = memoryview(bytes(16)).cast("f")
    out = array.array("f", [9] * 4)
    double[(1,)](x, out, 4, BLOCK=4)
    assert list(out) == [0.0] * 4
    with pytest.raises(triton.TritonError, match=r"TW0201|read-only|read only") as raised:
        double[(1,)](out, x, 4, BLOCK=4)
    assert "out_ptr" in str(raised.value)


def test_an_access_out_of_bounds_is_found(device):
    with pytest.raises(triton.errors.OutOfBoundsError, match="TW0201"):
        double[(1,)](array.array("i", [1, 2]), array.array("i", [0] * 8), 8, BLOCK=8)


@pytest.mark.parametrize(
    ("buffer", "named"),
    [
        (memoryview(bytearray(8)).cast("c"), "'c'"),
        ((ctypes.c_int.__ctype_be__ * 4)(), "'>i'"),
    ],
)
def test_formats_that_kernels_do_not_have(buffer, named):
    with pytest.raises(TypeError, match="TW0105") as raised:
        double[(1,)](buffer, array.array("f", [0] * 8), 4, BLOCK=4)
    assert f"a buffer of dtype {named}" in str(raised.value)


def test_bytes_as_a_compile_time_value():
    @triton.jit
    def kernel(out_ptr, TEXT: tl.constexpr):
        tl.store(out_ptr, 1.0)

    out = array.array("f", [0])
    kernel[(1,)](out, TEXT=b"text")
    assert out[0] == 1.0
