"""Inline assembly: constraints, packing, several results, effects, and what is said of mistakes."""

import numpy as np
import pytest
import torch
from conftest import DEVICE, ON_GPU
from helpers import CARRIER, assert_same, empty, module, to_device, to_host

import tilewright as triton
import tilewright.language as tl

# Text, constraints, types of the arguments, type of the result, pack, and what it is in numpy.
CASES = {
    "add": ("add.u32 $0, $1, $2;", "=r,r,r", ("int32", "int32"), "int32", 1, lambda x, y: x + y),
    "funnel shift": (
        "shf.l.wrap.b32 $0, $1, $2, 5;", "=r,r,r", ("uint32", "uint32"), "uint32", 1,
        lambda x, y: (y << np.uint32(5)) | (x >> np.uint32(27)),
    ),
    "wide": ("add.s64 $0, $1, $2;", "=l,l,l", ("int64", "int64"), "int64", 1, lambda x, y: x + y),
    "fp32": ("mul.rn.f32 $0, $1, $2;", "=f,f,f", ("float32", "float32"), "float32", 1, lambda x, y: x * y),
    "fp32 in r": ("mul.rn.f32 $0, $1, $2;", "=r,r,r", ("float32", "float32"), "float32", 1, lambda x, y: x * y),
    "fp64": ("add.rn.f64 $0, $1, $2;", "=d,d,d", ("float64", "float64"), "float64", 1, lambda x, y: x + y),
    "fp16": ("mul.rn.f16 $0, $1, $2;", "=h,h,h", ("float16", "float16"), "float16", 1, lambda x, y: x * y),
    "pairs of fp16": (
        "mul.rn.f16x2 $0, $1, $2;", "=r,r,r", ("float16", "float16"), "float16", 2, lambda x, y: x * y
    ),
    "four of fp16": (
        "{ mul.rn.f16x2 $0, $2, $4; mul.rn.f16x2 $1, $3, $5; }", "=r,=r,r,r,r,r", ("float16", "float16"),
        "float16", 4, lambda x, y: x * y,
    ),
    "int8": (
        "{ .reg .b16 t; add.s16 t, $1, $2; mov.b16 $0, t; }", "=h,h,h", ("int8", "int8"), "int8", 1,
        lambda x, y: x + y,
    ),
    "int8 in r": ("add.s32 $0, $1, $2;", "=r,r,r", ("int8", "uint8"), "int8", 1, lambda x, y: x + y.astype(np.int8)),
    "four of int8": ("and.b32 $0, $1, $2;", "=r,r,r", ("int8", "int8"), "int8", 4, lambda x, y: x & y),
    "two of int16": (
        "xor.b32 $0, $1, $2;", "=r,r,r", ("int16", "uint16"), "uint16", 2, lambda x, y: x.view(np.uint16) ^ y
    ),
    "tied": ("add.s32 $0, $0, $1;", "=r,r,0", ("int32", "int32"), "int32", 1, lambda x, y: x + y),
    "braces and clobbers": (
        "{\n  .reg .pred p; // $$ is a dollar\n  setp.lt.s32 p, ${1}, ${2};\n  selp.s32 ${0}, ${1}, ${2}, p;\n}",
        "=&r,r,r,~{memory}", ("int32", "int32"), "int32", 1, np.minimum,
    ),
    "predicates": ("and.pred $0, $1, $2;", "=b,b,b", ("int1", "int1"), "int1", 1, np.logical_and),
}  # fmt: skip

KERNEL = """@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i, mask=i < n, other=0), tl.load(y_ptr + i, mask=i < n, other=0)
    z = tl.inline_asm_elementwise({text!r}, {constraints!r}, [x, y], dtype={dtype}, is_pure={pure}, pack={pack})
    tl.store(out_ptr + i, z, mask=i < n)
"""


def numbers(dtype, count, seed):
    rng = np.random.default_rng(seed)
    if dtype == "int1":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.startswith("float"):
        return rng.standard_normal(count).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, count, dtype, endpoint=True)


@pytest.mark.parametrize("name", CASES)
def test_constraints_and_packing(name, device):
    text, constraints, dtypes, result, pack, expected = CASES[name]
    kernel = module(
        KERNEL.format(text=text, constraints=constraints, dtype=f"tl.{result}", pure=True, pack=pack)
    ).kernel
    for count, extent in ((1000, 1024), (2, 2)):
        x, y = (numbers(dtype, count, seed) for seed, dtype in enumerate(dtypes))
        out = empty((count,), result, device)
        kernel[(1,)](to_device(x, dtypes[0], device), to_device(y, dtypes[1], device), out, count, N=extent)
        with np.errstate(over="ignore"):
            assert_same(to_host(out), expected(x, y).astype(CARRIER[result]))


@triton.jit
def several_results(a_ptr, b_ptr, int_ptr, max_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    wide, largest = tl.inline_asm_elementwise(
        asm="""
        {
            .reg .b8 part<4>;
            mov.b32 {part0, part1, part2, part3}, $8;
            cvt.u32.u8 $0, part0;
            cvt.u32.u8 $1, part1;
            cvt.u32.u8 $2, part2;
            cvt.u32.u8 $3, part3;
        }
        {
            .reg .f32 f<4>;
            cvt.rn.f32.s32 f0, $0;
            cvt.rn.f32.s32 f1, $1;
            cvt.rn.f32.s32 f2, $2;
            cvt.rn.f32.s32 f3, $3;
            max.f32 $4, f0, $9;
            max.f32 $5, f1, $10;
            max.f32 $6, f2, $11;
            max.f32 $7, f3, $12;
        }
        """,
        constraints="=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r",
        args=[tl.load(a_ptr + i), tl.load(b_ptr + i)],
        dtype=(tl.int32, tl.float32),
        is_pure=True,
        pack=4,
    )
    tl.store(int_ptr + i, wide)
    tl.store(max_ptr + i, largest)


def test_several_results_of_packed_arguments(device):
    a, b = numbers("uint8", 256, 1), numbers("float32", 256, 2) * 100
    ints, largest = empty((256,), "int32", device), empty((256,), "float32", device)
    several_results[(1,)](
        to_device(a, "uint8", device), to_device(b, "float32", device), ints, largest, N=256
    )
    assert_same(to_host(ints), a.astype(np.int32))
    assert_same(to_host(largest), np.maximum(a.astype(np.float32), b))


@triton.jit
def broadcast_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + i)
    scalar = tl.inline_asm_elementwise("mov.u32 $0, 7;", "=r", [], tl.int32, True, 1)
    one = tl.inline_asm_elementwise("add.s32 $0, $1, 1;", "=r,r", [scalar], tl.int32, True, 1)
    made = tl.inline_asm_elementwise("mad.lo.s32 $0, $1, $2, $3;", "=r,r,r,r", [x, j, one], tl.int32, True, 1)
    tl.store(out_ptr + i * N + j, made)


def test_arguments_broadcast(device):
    x = numbers("int32", 16, 3)
    out = empty((16, 8), "int32", device)
    broadcast_kernel[(1,)](to_device(x, "int32", device), out, M=16, N=8)
    with np.errstate(over="ignore"):
        assert_same(to_host(out), x[:, None] * np.arange(8, dtype=np.int32) + np.int32(8))


@triton.jit
def memory_kernel(x_ptr, count_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.inline_asm_elementwise("ld.global.b32 $0, [$1];", "=r,l", [x_ptr + i], tl.int32, False, 1)
    for _ in range(2):
        tl.inline_asm_elementwise(
            "{ .reg .u32 t; atom.global.add.u32 t, [$1], 1; mov.u32 $0, t; }",
            "=r,l",
            [count_ptr + i],
            tl.int32,
            False,
            1,
        )
    tl.store(out_ptr + i, x)


def test_effects_happen_as_often_as_the_program_says(device):
    x = numbers("int32", 256, 4)
    count, out = empty((256,), "int32", device), empty((256,), "int32", device)
    count.zero_()
    memory_kernel[(3,)](to_device(x, "int32", device), count, out, N=256)
    assert_same(to_host(out), x)
    assert_same(to_host(count), np.full(256, 6, np.int32))


@pytest.mark.skipif(DEVICE == "cpu", reason="a CPU has no PTX")
def test_text_is_in_the_ptx_as_it_was_written(device):
    text = "add.u32   $0, $1,   $2;   // kept"
    kernel = module(
        KERNEL.format(text=text, constraints="=r,r,r", dtype="tl.int32", pure=True, pack=1)
    ).kernel
    x = torch.zeros(32, dtype=torch.int32, device=device)
    compiled = kernel[(1,)](x, x, x.clone(), 32, N=32)
    assert "   // kept" in compiled.asm["ptx"]
    assert "add.u32   %r" in compiled.asm["ptx"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "add.u32 $0, $1, $3;"}, r"`\$3` does not exist: the constraints have 3 operands"),
        ({"text": "add.u32 $0, $1, $2"}, r"end of the text: .*expected"),
        ({"text": "add.u32 $0, $1, nothing;"}, r"line 1, .*: `nothing` is not declared"),
        (
            {"text": "neg.s32 $0, $1;", "constraints": "=r,r"},
            r"the constraints have 1 input, but `pack=1` elements of each of \(int32, int32\) need 2 registers",
        ),
        ({"constraints": "=r,r,x"}, "the constraint `x` must be one of"),
        (
            {"constraints": "=l,r,r"},
            "an output of 64 bits cannot hold one element of type int32, 32 bits in total",
        ),
        ({"constraints": "r,r,=r"}, "the output `=r` comes after an input"),
        ({"pack": 3}, "`pack` cannot be 3"),
        ({"dtype": "(tl.int32, 3)"}, "`dtype` of `inline_asm_elementwise` is a type or a tuple of types"),
    ],
)
def test_mistakes(arguments, message, device):
    defaults = {
        "text": "add.u32 $0, $1, $2;",
        "constraints": "=r,r,r",
        "dtype": "tl.int32",
        "pure": True,
        "pack": 1,
    }
    kernel = module(KERNEL.format(**{**defaults, **arguments})).kernel
    x = empty((32,), "int32", device)
    with pytest.raises(triton.CompilationError, match=message):
        kernel[(1,)](x, x, x, 32, N=32)


@pytest.mark.skipif(ON_GPU, reason="a GPU does not check accesses")
def test_a_fault_in_the_text_names_its_instruction(device):
    x = empty((32,), "int32", device)
    with pytest.raises(IndexError, match=r"ld\.global\.b32 %|inline_asm_elementwise"):
        far_kernel[(1,)](x, N=32)


@triton.jit
def far_kernel(x_ptr, N: tl.constexpr):
    far = x_ptr + (1 << 40) + tl.arange(0, N)
    x = tl.inline_asm_elementwise("ld.global.b32 $0, [$1];", "=r,l", [far], tl.int32, False, 1)
    tl.store(x_ptr + tl.arange(0, N), x)


@pytest.mark.parametrize("extent", [1, 4, 32, 256])
def test_the_text_may_be_a_barrier(extent, device):
    # Programs order what they store and what they load again by one; its output is written by none.
    @triton.jit
    def kernel(x_ptr, out_ptr, EXTENT: tl.constexpr, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(out_ptr + i, tl.load(x_ptr + i) + 1)
        if EXTENT == 1:
            tl.inline_asm_elementwise("bar.sync 0;", "=r", [], tl.int32, is_pure=False, pack=1)
        else:
            zeros = tl.zeros((EXTENT,), tl.int32)
            tl.inline_asm_elementwise(
                "bar.sync 0; mov.u32 $0, $1;", "=r,r", [zeros], tl.int32, is_pure=False, pack=1
            )
        tl.store(x_ptr + i, tl.load(out_ptr + (N - 1 - i)) * 2)

    x = np.arange(64, dtype=np.int32)
    x_dev, out = to_device(x, "int32", device), empty((64,), "int32", device)
    kernel[(1,)](x_dev, out, extent, 64)
    assert_same(to_host(out), x + 1)
    assert_same(to_host(x_dev), (x[::-1] + 1) * 2)
