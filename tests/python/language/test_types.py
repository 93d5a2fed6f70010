"""The types of the language on the host: dtypes, tuples, the attributes of a tensor."""

import pytest
import torch
from helpers import module

import tilewright as triton
import tilewright.language as tl

DTYPES = ["int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float8e4b15",
          "float8e4nv", "float8e4b8", "float8e5", "float8e5b16", "float16", "bfloat16", "float32", "float64",
          "void"]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name):
    dtype = getattr(tl, name)
    assert eval(repr(dtype), {"triton": triton}) == dtype
    assert tl.dtype(dtype.name) == dtype
    assert tl.dtype.is_dtype(dtype.name)
    assert hash(tl.dtype(dtype.name)) == hash(dtype)
    predicates = [one for one in dir(dtype) if one.startswith("is_") and one != "is_dtype"]
    assert len(predicates) >= 28
    assert all(isinstance(getattr(dtype, one)(), bool) for one in predicates)
    assert dtype.scalar is dtype
    assert (dtype.is_floating() + dtype.is_int() + dtype.is_void()) == 1


@pytest.mark.parametrize("name", DTYPES[:-1])
def test_a_kernel_says_the_same_of_a_dtype(name, device):
    dtype = getattr(tl, name)
    names = [
        "is_floating",
        "is_int",
        "is_int_signed",
        "is_int_unsigned",
        "is_fp8",
        "is_bf16",
        "is_bool",
        "is_ptr",
    ]
    lines = [f"    tl.store(out_ptr + {n}, D.{one}())\n" for n, one in enumerate(names)]
    lines += [f"    tl.store(out_ptr + {len(names)}, D.primitive_bitwidth)\n"]
    kernel = module("@triton.jit\ndef k(out_ptr, D: tl.constexpr):\n" + "".join(lines)).k
    out = torch.zeros(len(names) + 1, dtype=torch.int32, device=device)
    kernel[(1,)](out, dtype)
    assert out.tolist() == [int(getattr(dtype, one)()) for one in names] + [dtype.primitive_bitwidth]


def test_tuples():
    values = tl.tuple([1, 2.5, "s"], tl.tuple_type([tl.int32, tl.float32, None], ["a", "b", "c"]))
    assert (values.a, values.b, values[tl.constexpr(2)], len(values)) == (1, 2.5, "s", 3)
    first = values[:2]
    assert [*(first + tl.tuple((4,))), *tl.tuple([7]) * 2] == [1, 2.5, 4, 7, 7]
    values._setitem(tl.constexpr(0), 5)
    assert values == [5, 2.5, "s"]
    assert repr(values) == "(5, 2.5, 's')"
    assert tl.tuple_type([tl.int32, tl.pi32_t]) == tl.tuple_type([tl.int32, tl.pi32_t])
    with pytest.raises(AttributeError):
        _ = values.d


def test_a_tuple_is_an_argument(device):
    kernel = module("@triton.jit\ndef k(xs, out_ptr):\n    tl.store(out_ptr, xs[0] + xs[1])\n").k
    out = torch.zeros(1, dtype=torch.int32, device=device)
    kernel[(1,)](tl.tuple([3, 4]), out)
    assert out.item() == 7


def test_what_a_tensor_has():
    for name in ("sum", "max", "to", "reshape", "store", "exp", "cdiv", "sigmoid"):
        assert callable(getattr(tl.tensor, name))
    with pytest.raises(RuntimeError, match=r"tl\.sum"):
        tl.tensor.sum(None)


@triton.jit
def int_dtype_kernel(out_ptr, WIDTHS: tl.constexpr):
    for k in tl.static_range(len(WIDTHS)):
        tl.static_assert(tl.get_int_dtype(WIDTHS[k], True).primitive_bitwidth == WIDTHS[k])
        tl.static_assert(tl.get_int_dtype(WIDTHS[k], False).primitive_bitwidth == WIDTHS[k])
    # A boolean has no sign.
    tl.static_assert(tl.get_int_dtype(1, True) == tl.int1)
    tl.store(out_ptr, 1)


def test_the_integers_of_a_width(device):
    out = torch.zeros(1, dtype=torch.int32, device=device)
    int_dtype_kernel[(1,)](out, (1, 8, 16, 32, 64))
    assert out.item() == 1


@triton.jit
def dtype_names_kernel(out_ptr, D: tl.constexpr):
    tl.store(out_ptr, D.kind())
    tl.store(out_ptr + 1, D.kind() == tl.dtype.KIND.FLOATING)
    tl.store(out_ptr + 2, D.name in tl.dtype.SINT_TYPES)
    tl.store(out_ptr + 3, D.name in D.UINT_TYPES)
    tl.store(out_ptr + 4, D.name in tl.dtype.FP_TYPES)
    tl.store(out_ptr + 5, D.name in tl.dtype.STANDARD_FP_TYPES)
    tl.store(out_ptr + 6, tl.dtype(D.name) == D)
    tl.store(out_ptr + 7, tl.str_to_ty(D.name, None) == D)
    tl.store(out_ptr + 8, tl.dtype.is_dtype(D.name) and not D.is_dtype("int31"))
    tl.store(out_ptr + 9, D.cache_key_part == D.name)
    tl.static_assert(D.mangle() == D.mangle())
    tl.store(out_ptr + 10, tl.pointer_type(D).mangle() == "P" + D.mangle())
    if D.is_int():
        tl.store(out_ptr + 11, D.int_signedness == tl.dtype.SIGNEDNESS.UNSIGNED)


@pytest.mark.parametrize("name", DTYPES[:-1])
def test_what_the_class_of_dtypes_has(name, device):
    dtype = getattr(tl, name)
    out = torch.zeros(12, dtype=torch.int32, device=device)
    dtype_names_kernel[(1,)](out, dtype)
    lists = (dtype.SINT_TYPES, dtype.UINT_TYPES, dtype.FP_TYPES, dtype.STANDARD_FP_TYPES)
    expected = [
        dtype.kind().value,
        dtype.is_floating(),
        *(dtype.name in each for each in lists),
        1,
        1,
        1,
        1,
        1,
    ]
    unsigned = dtype.is_int() and dtype.int_signedness == dtype.SIGNEDNESS.UNSIGNED
    assert out.tolist() == [int(each) for each in (*expected, unsigned)]
