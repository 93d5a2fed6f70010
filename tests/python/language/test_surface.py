"""Neither functions nor syntax: operators by their names, types as values, slices as values."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import module, to_device, to_host

import tilewright as triton

HEAD = """@triton.jit
def kernel(x_ptr, i_ptr, out_ptr):
    r = tl.arange(0, 16)
    x = tl.load(x_ptr + r)
    i = tl.load(i_ptr + r)
    y = x + 1
    j = i // 4 + 1
"""


def values(lines, device):
    """The values of expressions on `x`, `y` (floats) and `i`, `j` (integers), as fp32 tiles of 16."""
    body = "".join(
        f"    tl.store(out_ptr + {16 * row} + r, tl.broadcast_to(tl.cast({line}, tl.float32), [16]))\n"
        for row, line in enumerate(lines)
    )
    x = np.arange(1, 17, dtype=np.float32)
    i = np.arange(16, dtype=np.int32)
    out = to_device(np.full((len(lines), 16), -77, np.float32), "float32", device)
    module(HEAD + body).kernel[(1,)](to_device(x, "float32", device), to_device(i, "int32", device), out)
    return to_host(out)


def static(lines):
    """Compiles a kernel that asserts these expressions while it is compiled."""
    import torch

    body = "".join(f"    tl.static_assert({line}, {line!r})\n" for line in lines)
    return module(HEAD + body).kernel.warmup(torch.float32, torch.int32, torch.float32, grid=(1,))


BINARY = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "mod": "%"}
OF_INTEGERS = {
    "floordiv": "//",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "mod": "%",
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def pairs():
    """A call of a method, and the operator that it is."""
    for name, sign in BINARY.items():
        yield f"x.__{name}__(y)", f"x {sign} y"
        yield f"x.__r{name}__(y)", f"y {sign} x"
        yield f"x.__{name}__(3.0)", f"x {sign} 3.0"
        yield f"x.__r{name}__(3.0)", f"3.0 {sign} x"
    for name, sign in OF_INTEGERS.items():
        yield f"i.__{name}__(j)", f"i {sign} j"
        yield f"j.__r{name}__(i)", f"i {sign} j"
    for name, sign in COMPARISONS.items():
        yield f"i.__{name}__(7)", f"i {sign} 7"
        yield f"i.__r{name}__(7)", f"7 {sign} i"
    yield "x.__neg__()", "-x"
    yield "x.__pos__()", "x"
    yield "i.__invert__()", "~i"
    yield "(i > 3).__not__()", "not (i > 3)"
    yield "tl.sum(x.__getitem__(None), 0)", "x"
    yield "tl.sum(x.__getitem__((slice(None), None)), 1)", "x"
    yield "tl.sum(x[tl.slice(None, None, None), None], 1)", "x"
    yield "tl.cat(x[tl.slice(8, None, None)], x[slice(8)])", "tl.cat(x[8:], x[:8])"
    # A scalar has no axis that `:` could keep.
    yield "tl.max(i, 0)[:, None] + i", "15 + i"
    yield "tl.max(i, 0)[None, :] + i", "15 + i"
    yield "(x, y).__getitem__(1)", "y"
    yield "((x,).__add__((y,)))[1]", "y"
    yield "(x, y).__mul__(2)[3]", "y"
    yield "(x, y).__len__() + i", "2 + i"


def test_operators_by_their_names(device):
    calls, operators = zip(*pairs(), strict=True)
    found = values([*calls, *operators], device)
    for row, (call, operator) in enumerate(zip(calls, operators, strict=True)):
        np.testing.assert_array_equal(found[row], found[len(calls) + row], f"{call} is not {operator}")
    # So that both sides are not wrong alike.
    assert list(found[0]) == [2 * number + 1 for number in range(1, 17)]


def test_what_is_an_object_of_python_when_interpreted(device):
    sliced, made, y, x = values(
        ["(x, y)[tl.slice(1, None, None)][0]", "tl.tensor(x.handle, x.type)", "y", "x"], device
    )
    np.testing.assert_array_equal(sliced, y)
    np.testing.assert_array_equal(made, x)


def test_operators_of_compile_time_values():
    of_three = [
        *(
            f"tl.constexpr(3).__{name}__(2) == (3 {sign} 2)"
            for name, sign in {**BINARY, **OF_INTEGERS}.items()
        ),
        *(f"tl.constexpr(3).__r{name}__(7) == (7 {sign} 3)" for name, sign in BINARY.items()),
        *(f"tl.constexpr(3).__{name}__(3) == (3 {sign} 3)" for name, sign in COMPARISONS.items()),
        *(f"tl.constexpr(3).__r{name}__(4) == (4 {sign} 3)" for name, sign in COMPARISONS.items()),
        "tl.constexpr(3).__pow__(2) == 9",
        "tl.constexpr(3).__rpow__(2) == 8",
        "tl.constexpr(3).__neg__() == -3",
        "tl.constexpr(3).__pos__() == 3",
        "tl.constexpr(3).__invert__() == -4",
        "tl.constexpr(3).__not__() == False",
        "tl.constexpr(3).__bool__()",
        "tl.constexpr(3).__index__() == 3",
        "tl.constexpr(3).__hash__() == tl.constexpr(3).__hash__()",
        "tl.constexpr(3).__repr__() == '3'",
        "tl.constexpr((1, 2)).__getitem__(1) == 2",
        "tl.constexpr(3).logical_and(False) == False",
        "tl.tuple((1, 2)) == (1, 2)",
        "tl.tuple((1, 2)).__eq__((1, 2))",
        "tl.tuple((1, 2)) != (1, 3)",
        "x.__str__() == 'fp32[constexpr[16]]'",
    ]
    static(of_three)


PREDICATES = (
    "is_bf16 is_block is_bool is_const is_floating is_fp16 is_fp32 is_fp64 is_fp8 is_fp8e4b15 is_fp8e4b8 is_fp8e4nv "
    "is_fp8e5 is_fp8e5b16 is_int is_int1 is_int16 is_int32 is_int64 is_int8 is_int_signed is_int_unsigned is_ptr "
    "is_standard_floating is_uint16 is_uint32 is_uint64 is_uint8 is_void mangle codegen_name"
).split()
DTYPES = (
    "void int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8e5 float8e5b16 float8e4nv float8e4b8 "
    "float8e4b15 float16 bfloat16 float32 float64 pi32_t"
).split()


def test_types_say_in_a_kernel_what_they_say_on_the_host():
    lines = []
    for dtype in DTYPES:
        of_host = getattr(triton.language, dtype)
        for name in PREDICATES:
            if dtype != "pi32_t" or name.startswith("is_"):
                lines.append(f"tl.{dtype}.{name}() == {getattr(of_host, name)()!r}")
        lines.append(f"tl.{dtype}.name == {of_host.name!r}")
        lines.append(f"tl.{dtype}.primitive_bitwidth == {of_host.primitive_bitwidth}")
    static(lines)


DESCRIPTOR = "tl.make_tensor_descriptor(x_ptr, [4, 4], [4, 1], [4, 4])"


def test_types_are_values():
    static(
        [
            "tl.void != tl.float32",
            "tl.void == tl.void",
            "tl.dtype('void') == tl.void",
            "tl.pointer_type(tl.float32, const=True).is_const()",
            "tl.pointer_type(tl.float32, const=True).is_ptr()",
            "tl.pointer_type(tl.float32, const=True).const",
            "tl.pointer_type(tl.float32, const=True).element_ty == tl.float32",
            "tl.pointer_type(tl.float32, const=True) != tl.pointer_type(tl.float32)",
            "tl.str_to_ty('*kfp32', None) == tl.pointer_type(tl.float32, const=True)",
            "not x_ptr.dtype.const",
            "(x, i).type == tl.tuple_type([x.type, i.type])",
            "(x, i).type != tl.tuple_type([i.type, x.type])",
            "(x, i).type.types[1] == i.type",
            "(x, i).type[1] == i.type",
            "((x, i), y).type.types[0] == (x, i).type",
            "tl.tuple_type([tl.int32], ['a']).fields == ('a',)",
            "tl.tuple((x, i), tl.tuple_type([x.type, i.type], ['a', 'b'])).b.dtype == tl.int32",
            "tl.constexpr_type(3) == tl.constexpr_type(3)",
            "tl.constexpr_type(3) != tl.constexpr_type(4)",
            "tl.constexpr_type(3).value == 3",
            "tl.constexpr_type(3).mangle() == 'c3'",
            f"{DESCRIPTOR}.type.block_type == tl.block_type(tl.float32, [4, 4])",
            "tl.tensor_descriptor_type(tl.block_type(tl.float32, [4, 4])).mangle() == 'TDfp32S4_4S'",
            "isinstance((x, i).type, tl.tuple_type)",
            "isinstance(tl.constexpr_type(3), tl.constexpr_type)",
            "isinstance(tl.void, tl.dtype)",
            "isinstance(tl.pointer_type(tl.int8, const=True), tl.pointer_type)",
            "isinstance(x.dtype, tl.core.base_type)",
            "isinstance(x, tl.core.base_value)",
            "isinstance((x, i), tl.core.base_value)",
            f"isinstance({DESCRIPTOR}, tl.core.tensor_descriptor_base)",
            f"isinstance({DESCRIPTOR}.type, tl.core.tensor_descriptor_type)",
            "not isinstance(tl.void, tl.tuple_type)",
        ]
    )


def test_a_pointer_says_that_its_memory_is_only_read(device):
    kernel = module("""@triton.jit
def kernel(x_ptr: tl.const, out_ptr):
    tl.static_assert(x_ptr.dtype.is_const())
    tl.static_assert((x_ptr + 1).dtype.is_const())
    tl.static_assert(not out_ptr.dtype.is_const())
    out = out_ptr.to(x_ptr.dtype)
    tl.store(out_ptr, tl.load(x_ptr))
""").kernel
    x, out = (to_device(np.full(1, value, np.float32), "float32", device) for value in (3, 0))
    kernel[(1,)](x, out)
    assert to_host(out)[0] == 3


def test_a_wrong_call_of_an_operator_is_explained():
    with pytest.raises(triton.CompilationError, match=r"TW0009.*__add__ takes 1 argument, found 2"):
        static(["x.__add__(y, y)"])
    with pytest.raises(triton.CompilationError, match="shape"):
        static(["x.__add__(tl.zeros([3], tl.float32))"])
    with pytest.raises(triton.CompilationError, match="has no attribute"):
        static(["x.__enter__()"])


CASTS = """@triton.jit
def kernel(x_ptr, out_ptr):
    tl.static_assert(x_ptr.dtype.is_const() == {is_const})
    tl.static_assert((x_ptr + 1).dtype.is_const() == {is_const})
    written: tl.constexpr = tl.pointer_type(tl.float32)
    read: tl.constexpr = tl.pointer_type(tl.float32, const=True)
    tl.static_assert(out_ptr.to(read).dtype.is_const())
    tl.static_assert(out_ptr.to(tl.pointer_type(tl.int32, const=True)).dtype.is_const())
    tl.static_assert((out_ptr.to(read) + 1).dtype.is_const())
    tl.static_assert(not out_ptr.to(written).dtype.is_const())
    tl.static_assert(not x_ptr.to(written).dtype.is_const())
    tl.static_assert(not x_ptr.to(tl.pointer_type(tl.int32)).dtype.is_const())
    tl.static_assert(not out_ptr.to(read).to(written).dtype.is_const())
    tl.static_assert(not out_ptr.dtype.is_const())
    tl.store(x_ptr.to(written), 5.0)
    tl.store(out_ptr, tl.load(out_ptr.to(read) + 1))
"""


def test_a_cast_says_whether_memory_is_only_read(device):
    for annotation in ("", ": tl.const"):
        text = CASTS.format(is_const=bool(annotation)).replace("x_ptr, out", f"x_ptr{annotation}, out")
        x, out = (to_device(np.arange(2, dtype=np.float32), "float32", device) for _ in range(2))
        module(text).kernel[(1,)](x, out)
        assert to_host(x)[0] == 5
        assert to_host(out)[0] == 1


def test_a_signature_says_whether_memory_is_only_read():
    kernel = module(CASTS.format(is_const=True)).kernel
    triton.compile(triton.compiler.ASTSource(kernel, {"x_ptr": "*kfp32", "out_ptr": "*fp32"}))
    kernel = module(CASTS.format(is_const=False)).kernel
    triton.compile(triton.compiler.ASTSource(kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32"}))
    kernel = module("@triton.jit\ndef kernel(x_ptr):\n    tl.store(x_ptr, 1.0)\n").kernel
    with pytest.raises(triton.CompilationError, match="Cannot store to a constant pointer"):
        triton.compile(triton.compiler.ASTSource(kernel, {"x_ptr": "*kfp32"}))


def test_a_store_through_a_cast_to_memory_that_is_only_read():
    kernel = module("""@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr.to(tl.pointer_type(tl.float32, const=True)), 1.0)
""").kernel
    with pytest.raises(triton.CompilationError, match="was cast to a pointer whose memory is only read"):
        kernel[(1,)](np.zeros(1, np.float32))
