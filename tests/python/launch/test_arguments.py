"""Arguments of every kind that a launch takes."""

from __future__ import annotations

import ctypes
import enum
import threading
import time

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


@triton.jit
def store(y_ptr, value):
    tl.store(y_ptr, value)


@triton.jit
def copy_rows(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * stride))


DTYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_arrays(dtype):
    x = np.arange(10).astype(dtype)
    y = np.zeros_like(x)
    add[(2,)](x, y, 10, BLOCK=8)
    np.testing.assert_array_equal(y, x + 1)


def test_numpy_bools():
    x = np.array([True, False])
    y = np.zeros(2, np.int32)
    copy_rows[(1,)](x, y, 1, BLOCK=2)
    np.testing.assert_array_equal(y, [1, 0])


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_torch_tensors(dtype):
    torch = pytest.importorskip("torch")
    x = torch.arange(10).to(getattr(torch, dtype))
    y = torch.zeros_like(x)
    add[(2,)](x, y, 10, BLOCK=8)
    assert torch.equal(y.to(torch.float64), x.to(torch.float64) + 1)


def test_torch_parameters_and_subclasses():
    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    y = torch.zeros(4)
    add[(1,)](torch.nn.Parameter(torch.ones(4)), y.as_subclass(Mine), 4, BLOCK=4)
    assert y.tolist() == [2, 2, 2, 2]


def test_views_reach_their_whole_storage_and_not_beyond():
    torch = pytest.importorskip("torch")
    base = torch.arange(16, dtype=torch.float32)
    y = torch.zeros(4)
    copy_rows[(1,)](base[8:], y, -2, BLOCK=4)
    assert y.tolist() == [8, 6, 4, 2]
    with pytest.raises(triton.errors.OutOfBoundsError):
        copy_rows[(1,)](base[8:], y, 4, BLOCK=4)


def test_numpy_views_of_any_stride():
    base = np.arange(32, dtype=np.float32)
    y = np.zeros(4, np.float32)
    copy_rows[(1,)](base[::-1], y, -1, BLOCK=4)
    assert y.tolist() == [31, 30, 29, 28]
    copy_rows[(1,)](base.reshape(4, 8)[:, 3], y, 8, BLOCK=4)
    assert y.tolist() == [3, 11, 19, 27]
    # The elements of a view need not be its own: the array that it is a view of bounds them.
    copy_rows[(1,)](base[16:17], y, -5, BLOCK=4)
    assert y.tolist() == [16, 11, 6, 1]
    with pytest.raises(triton.errors.OutOfBoundsError):
        copy_rows[(1,)](base[16:17], y, -6, BLOCK=4)


def test_read_only_numpy_arrays():
    x = np.broadcast_to(np.float32(5), (8,))
    y = np.zeros(4, np.float32)
    copy_rows[(1,)](x, y, 0, BLOCK=4)
    assert y.tolist() == [5, 5, 5, 5]


def test_empty_arrays_and_tensors():
    add[(1,)](np.zeros(0, np.float32), np.zeros(0, np.float32), 0, BLOCK=8)
    torch = pytest.importorskip("torch")
    add[(0,)](torch.zeros(0), torch.zeros(0), 0, BLOCK=8)


class ArrayInterface:
    """An array that only has the array interface."""

    def __init__(self, values):
        self._memory = (ctypes.c_float * len(values))(*values)
        self.__array_interface__ = {
            "data": (ctypes.addressof(self._memory), False),
            "typestr": "<f4",
            "shape": (len(values),),
            "version": 3,
        }

    def tolist(self):
        return list(self._memory)


@triton.jit
def mark_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_tensors_without_memory_are_refused_and_never_touched():
    torch = pytest.importorskip("torch")
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake_tensor.FakeTensorMode():
        fake = torch.ones(16)
    with pytest.raises(IndexError, match="has no elements"):
        mark_kernel[(1,)](fake, BLOCK=16)
    for tensor in (torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr()):
        with pytest.raises(TypeError) as caught:
            mark_kernel[(1,)](tensor, BLOCK=4)
        assert caught.value.code == "TW0105"


@pytest.mark.parametrize("cls", [int, np.float32, object])
def test_a_class_is_not_taken_for_its_instances(cls):
    with pytest.raises(TypeError) as caught:
        mark_kernel[(1,)](cls, BLOCK=4)
    assert caught.value.code == "TW0105"


def test_array_interface():
    x, y = ArrayInterface([1, 2, 3]), ArrayInterface([0, 0, 0])
    add[(1,)](x, y, 3, BLOCK=4)
    assert y.tolist() == [2, 3, 4]
    with pytest.raises(triton.errors.OutOfBoundsError):
        add[(1,)](x, y, 4, BLOCK=4)


@triton.jit
def wait_for_flag(x_ptr, flag_ptr):
    tl.store(flag_ptr + 1, 1)
    while tl.load(flag_ptr, volatile=True) == 0:
        tl.store(x_ptr, tl.load(x_ptr, volatile=True) + 1)


class Resizable(bytearray):
    """Memory that its owner can resize, as an array."""

    @property
    def __array_interface__(self):
        address = ctypes.addressof(ctypes.c_char.from_buffer(self))
        return {"version": 3, "data": (address, False), "typestr": "<i4", "shape": (len(self) // 4,)}


def _whole(n):
    array = np.zeros(n, np.int32)
    return array, lambda: array.resize(16 * n, refcheck=False)


def _part(n):
    array = np.zeros(n, np.int32)
    return array[2:], lambda: array.resize(16 * n, refcheck=False)


def _bytearray(n):
    memory = Resizable(4 * n)
    return memory, lambda: memory.extend(bytes(64 * n))


@pytest.mark.parametrize("make", [_whole, _part, _bytearray])
def test_memory_cannot_be_resized_while_a_kernel_runs(make):
    """The kernel runs until another thread has tried; a moment later it may."""
    x, resize = make(1 << 16)
    flag = np.zeros(2, np.int32)
    errors = []

    def other():
        while not flag[1]:
            time.sleep(0.001)
        try:
            resize()
            errors.append(None)
        except (BufferError, ValueError) as error:
            errors.append(error)
        flag[0] = 1

    thread = threading.Thread(target=other)
    thread.start()
    wait_for_flag[(1,)](x, flag)
    thread.join()
    assert errors[0] is not None
    resize()


class DLPack:
    """A tensor that only has DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **_options):
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_dlpack():
    x, y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    add[(1,)](DLPack(x), DLPack(y), 6, BLOCK=8)
    np.testing.assert_array_equal(y, x + 1)
    copy_rows[(1,)](DLPack(x[::2]), DLPack(y), 2, BLOCK=2)
    assert y.tolist()[:2] == [0, 2]
    with pytest.raises(triton.errors.OutOfBoundsError):
        add[(1,)](DLPack(x), DLPack(y), 8, BLOCK=8)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        (1, 1),
        (-(2**40), -(2**40)),
        (2**63, 2**63),
        (True, 1),
        (2.5, 2.5),
        (np.int8(-3), -3),
        (np.uint16(65535), 65535),
        (np.int64(2**40), 2**40),
        (np.float16(0.5), 0.5),
        # A Python float: fp32, as Triton has it.
        (np.float64(0.1), float(np.float32(0.1))),
        (np.bool_(True), 1),
        (tl.constexpr(7), 7),
        (enum.IntEnum("E", "A B").B, 2),
        (np.array(9, np.int32).item(), 9),
    ],
)
def test_scalars(value, expected):
    y = np.zeros(1, np.float64)
    store[(1,)](y, value)
    assert y[0] == expected


def test_an_object_with_index_is_an_int():
    class Index:
        def __index__(self):
            return 42

    y = np.zeros(1, np.int32)
    store[(1,)](y, Index())
    assert y[0] == 42


@triton.jit
def add_if(y_ptr, bias_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if bias_ptr is None:
        tl.store(y_ptr + offsets, 1.0)
    else:
        tl.store(y_ptr + offsets, tl.load(bias_ptr + offsets))


def test_none_is_known_at_compile_time():
    y = np.zeros(4, np.float32)
    add_if[(1,)](y, None, BLOCK=4)
    assert y.tolist() == [1, 1, 1, 1]
    add_if[(1,)](y, np.full(4, 3, np.float32), BLOCK=4)
    assert y.tolist() == [3, 3, 3, 3]


@triton.jit
def choose(y_ptr, MODE: tl.constexpr, DTYPE: tl.constexpr, SHAPE: tl.constexpr):
    if MODE == "ones":
        value = tl.full(SHAPE, 1, DTYPE)
    else:
        value = tl.full(SHAPE, 2, DTYPE)
    tl.store(y_ptr + tl.arange(0, SHAPE[0]), value)


def test_constexprs_of_any_kind():
    y = np.zeros(4, np.float32)
    choose[(1,)](y, "ones", tl.float32, (4,))
    assert y.tolist() == [1, 1, 1, 1]
    choose[(1,)](y, MODE="twos", DTYPE=tl.int32, SHAPE=(4,))
    assert y.tolist() == [2, 2, 2, 2]


class Mode(enum.Enum):
    ONE = 1
    TWO = 2


@triton.jit
def by_enum(y_ptr, MODE: tl.constexpr):
    if MODE == Mode.ONE:
        tl.store(y_ptr, 1)
    else:
        tl.store(y_ptr, 2)


def test_enums():
    y = np.zeros(1, np.int32)
    by_enum[(1,)](y, Mode.ONE)
    assert y[0] == 1
    by_enum[(1,)](y, Mode.TWO)
    assert y[0] == 2


@triton.jit
def double(x):
    return x * 2


@triton.jit
def square(x):
    return x * x


@triton.jit
def apply(x_ptr, function: tl.constexpr, n=3, BLOCK: tl.constexpr = 4):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(x_ptr + offsets, tl.where(offsets < n, function(x), x))


def test_functions_and_defaults():
    x = np.full(4, 3, np.int32)
    apply[(1,)](x, double)
    assert x.tolist() == [6, 6, 6, 3]
    apply[(1,)](x, square, n=1)
    assert x.tolist() == [36, 6, 6, 3]


@triton.jit
def types(y_ptr, a: tl.int64, b: fp32, c):  # noqa: F821
    tl.store(y_ptr, a)
    tl.store(y_ptr + 1, b)
    tl.store(y_ptr + 2, c)


def test_annotations_decide_the_type():
    y = np.zeros(3, np.float64)
    handle = types[(1,)](y, 1, 2, 3)
    assert repr(handle) == "<compiled kernel types(y_ptr: *fp64, a: i64, b: fp32, c: i32)>"
    assert y.tolist() == [1, 2, 3]


def test_reinterpret():
    torch = pytest.importorskip("torch")
    x = torch.tensor([0x3C, 0x40], dtype=torch.int8)
    y = torch.zeros(2)
    copy_rows[(1,)](triton.reinterpret(x, tl.float8e5), y, 1, BLOCK=2)
    assert y.tolist() == [1, 2]


def test_warmup_needs_no_tensors():
    torch = pytest.importorskip("torch")
    handle = add.warmup(torch.float32, tl.float16, 10, BLOCK=8, grid=(1,))
    assert repr(handle) == "<compiled kernel add(x_ptr: *fp32, y_ptr: *fp16, n: i32, BLOCK: constexpr)>"
    with pytest.raises(triton.errors.OutOfBoundsError):
        add[(1,)](triton.MockTensor(torch.float32), triton.MockTensor(torch.float32), 8, BLOCK=8)
