"""Conversions between element types: every pair, rounding modes, the 8-bit floats by all of their values, bit casts."""

import numpy as np
import pytest
import torch
from fp8_formats import FP8, fp8_patterns, fp8_values
from helpers import (
    CARRIER,
    DTYPES,
    FLOATS,
    INTEGERS,
    TORCH,
    assert_same,
    convert,
    elementwise,
    empty,
    is_float,
    module,
    random_values,
    round_to,
    sample,
    to_device,
    to_host,
)
from helpers_oracle import cast

import tilewright as triton
import tilewright.language as tl


def test_the_oracle_agrees_with_torch_on_the_numbers_of_8_bit_floats():
    for dtype in FP8:
        if dtype in TORCH:
            numbers = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(TORCH[dtype]).float().numpy()
            assert np.array_equal(numbers, fp8_values(dtype).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("out", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_pair_of_types(dtype, out, device):
    x = sample(dtype, 2000)
    found = elementwise(f"x.to(tl.{out})", {"x": (x, dtype)}, out, device=device)
    # Floats truncate towards zero; what is beyond the range becomes its end, NaN becomes 0.
    expected = cast(x, dtype, out)
    assert_same(found, expected, (x,), f"{dtype} -> {out}")


@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint64"])
def test_narrowing_rounds_once(dtype, out, device):
    """Just beside the middle between two numbers, where rounding twice goes wrong."""
    digits = {"bfloat16": 8, "float16": 11, "float32": 24}[out]
    rng = np.random.default_rng(11)
    steps = rng.integers(2 ** (digits - 1), 2**digits, 500).astype(np.float64) + 0.5
    if is_float(dtype):
        tails = np.exp2(-rng.integers(2, 28, 500)) * rng.choice([-1, 0, 1], 500)
        x = ((steps + tails) * 2.0 ** rng.integers(-8, 3, 500)).astype(dtype)
    else:
        shift = {"bfloat16": 40, "float16": 4, "float32": 30}[out]
        x = np.array([int(2 * step) << (shift - 1) for step in steps], dtype)
        x = x + rng.integers(-1, 2, 500).astype(dtype)
    found = elementwise(f"x.to(tl.{out})", {"x": (x, dtype)}, out, device=device)
    assert_same(found, convert(x, out), (x,))


def toward_zero(x, out):
    near = round_to(x.astype(np.float64), out)
    word = near.view(np.uint16) if out == "float16" else (near.view(np.uint32) >> 16).astype(np.uint16)
    with np.errstate(invalid="ignore"):
        word = word - (np.abs(near.astype(np.float64)) > np.abs(x)).astype(np.uint16)
    return word.view(np.float16) if out == "float16" else (word.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("out", ["bfloat16", "float16"])
def test_rounding_modes(out, device):
    x = np.random.default_rng(2).standard_normal(4000).astype(np.float32) * 100
    inputs = {"x": (x, "float32")}
    for mode, expected in (("rtz", toward_zero(x, out)), ("rtne", round_to(x.astype(np.float64), out))):
        for form in (
            f"x.to(tl.{out}, fp_downcast_rounding='{mode}')",
            f"tl.cast(x, tl.{out}, fp_downcast_rounding='{mode}')",
        ):
            assert_same(elementwise(form, inputs, out, device=device), expected, (x,), mode)


FROM_FP8 = """@triton.jit
def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i).to(tl.{dtype}, bitcast=True)
    tl.store(out_ptr + i, x.to(tl.{out}))
"""
TO_FP8 = """@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x.to(tl.{dtype}).to(tl.uint8, bitcast=True), mask=i < n)
"""


@pytest.mark.parametrize("out", FLOATS)
@pytest.mark.parametrize("dtype", FP8)
def test_every_8_bit_float_becomes_its_number(dtype, out, device):
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).to(device)
    result = empty((256,), out, device)
    module(FROM_FP8.format(dtype=dtype, out=out)).kernel[(1,)](codes, result, BLOCK=256)
    assert_same(to_host(result), round_to(fp8_values(dtype), out))


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("dtype", FP8)
def test_numbers_become_the_nearest_8_bit_float(dtype, source, device):
    exact = fp8_values(dtype)
    exact = exact[np.isfinite(exact)]
    middles = (np.sort(exact)[1:] + np.sort(exact)[:-1]) / 2
    beside = np.concatenate([middles * (1 + tail) for tail in (0, 2.0**-7, -(2.0**-7))])
    normal = np.random.default_rng(1).standard_normal(3000) * np.exp2(
        np.random.default_rng(2).integers(-12, 10, 3000)
    )
    x = round_to(np.concatenate([exact, beside, normal, [np.inf, -np.inf, np.nan, 1e6, -1e6, 1e-30]]), source)
    out = torch.zeros(len(x), dtype=torch.uint8, device=device)
    kernel = module(TO_FP8.format(dtype=dtype)).kernel
    kernel[(triton.cdiv(len(x), 1024),)](to_device(x, source, device), out, len(x), BLOCK=1024)
    expected = fp8_patterns(x, dtype)
    found = out.cpu().numpy()
    if dtype == "float8e4b15":
        # It has neither infinities nor NaN: nothing is said of what they become.
        finite = np.isfinite(x)
        found, expected, x = found[finite], expected[finite], x[finite]
    both_nan = np.isnan(fp8_values(dtype)[found]) & np.isnan(x)
    assert_same(np.where(both_nan, 0, found), np.where(np.isnan(x), 0, expected), (x,), dtype)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [("float32", "int32"), ("int32", "float32"), ("float32", "uint32"), ("float16", "int16"), ("int64", "float64"),
     ("float64", "uint64"), ("int8", "uint8"), ("uint16", "float16"), ("uint64", "int64")],
)  # fmt: skip
def test_bit_casts(dtype, out, device):
    x = random_values(dtype, 1000)
    if is_float(dtype):
        x = np.where(np.isnan(x), np.asarray(1, x.dtype), x)
    expected = x.view(out)
    if is_float(out):
        keep = ~np.isnan(expected)
        x, expected = x[keep], expected[keep]
    for form in (f"x.to(tl.{out}, bitcast=True)", f"tl.cast(x, tl.{out}, bitcast=True)"):
        assert_same(elementwise(form, {"x": (x, dtype)}, out, device=device), expected, (x,))


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_bit_casts_of_bf16(dtype, device):
    x = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    found = elementwise(
        "x.to(tl.bfloat16, bitcast=True).to(tl.uint16, bitcast=True)",
        {"x": (x, "uint16")},
        "uint16",
        device=device,
    )
    assert_same(found, x)
    inputs = {"x": (x, "uint16")}
    found = elementwise("x.to(tl.bfloat16, bitcast=True).to(tl.float32)", inputs, "float32", device=device)
    assert_same(found, (x.astype(np.uint32) << 16).view(np.float32))


@pytest.mark.parametrize("value", [0, 1, -1, 2.75, True, float("inf")], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_full_and_zeros_of_every_type(dtype, value, device):
    if isinstance(value, float) and not is_float(dtype):
        pytest.skip("a fraction or an infinity is no integer")
    if value == -1 and dtype.startswith(("u", "int1")):
        pytest.skip("-1 is no unsigned integer")
    x = np.zeros(16, CARRIER[dtype])
    text = f'float("{value}")' if value == float("inf") else repr(value)
    expected = np.full(16, convert(np.asarray([value]), dtype)[0])
    for form in (f"tl.full((BLOCK,), {text}, tl.{dtype})", f"tl.full([BLOCK], {text}, dtype=x.dtype)"):
        assert_same(elementwise(form, {"x": (x, dtype)}, dtype, device=device, block=16), expected)
    for form in (f"tl.zeros((BLOCK,), dtype=tl.{dtype})", "tl.zeros_like(x)"):
        assert_same(elementwise(form, {"x": (x, dtype)}, dtype, device=device, block=16), x)


@triton.jit
def to_dtype_of_pointer_kernel(x_ptr, out_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.static_assert(out_ptr.dtype.element_ty == DTYPE)
    tl.store(out_ptr + i, x.to(out_ptr.type.element_ty) + x.to(DTYPE), mask=i < n)


@pytest.mark.parametrize("dtype", ["int16", "float32", "float16"])
def test_types_are_values_at_compile_time(dtype, device):
    x = np.arange(20, dtype=np.int32)
    out = to_device(np.zeros(20), dtype, device)
    to_dtype_of_pointer_kernel[(1,)](
        to_device(x, "int32", device), out, 20, DTYPE=getattr(tl, dtype), BLOCK=32
    )
    assert_same(to_host(out), (2 * x).astype(CARRIER[dtype]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_python_integer_becomes_a_tensor(dtype, device):
    x = sample(dtype, 30)
    found = elementwise(f"(x * 0 + 5).to(tl.{dtype})", {"x": (x, dtype)}, dtype, device=device)
    assert_same(found, np.full_like(x, 5))


WITH_FP8 = """@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0){read}
    tl.store(out_ptr + i, {expression}, mask=i < n)
"""


def converted(x, expression, out, device, read=""):
    result = empty(x.shape, out, device)
    kernel = module(WITH_FP8.format(expression=expression, read=read)).kernel
    source = torch.from_numpy(x.copy()).to(device)
    kernel[(triton.cdiv(len(x), 1024),)](source, result, len(x), BLOCK=1024)
    return to_host(result)


def same_patterns(found, expected, dtype):
    """Returns whether patterns are the same; NaN equal each other, and those of e4b15 are unspecified."""
    nan = np.isnan(fp8_values(dtype)[found]) & np.isnan(fp8_values(dtype)[expected])
    return bool((nan | (found == expected)).all())


@pytest.mark.parametrize("dtype", FP8)
def test_8_bit_floats_and_integers(dtype, device):
    codes, values = np.arange(256, dtype=np.uint8), fp8_values(dtype)
    read = f".to(tl.{dtype}, bitcast=True)"
    for other in INTEGERS:
        assert_same(
            converted(codes, f"x.to(tl.{other})", other, device, read), cast(values, "float64", other)
        )
        info = np.iinfo(other)
        near = np.arange(-600, 600).astype(np.float64)
        far = np.array([info.min, info.max // 2, 57343, 57344, 57345, 61440, 100000], np.float64)
        x = np.concatenate([near, far])
        x = x[(x >= info.min) & (x <= info.max)].astype(other)
        found = converted(x, f"x.to(tl.{dtype}).to(tl.uint8, bitcast=True)", "uint8", device)
        assert_same(found, fp8_patterns(x.astype(np.float64), dtype), (x,), f"{other} -> {dtype}")


@pytest.mark.parametrize("dtype", FP8)
def test_8_bit_floats_of_other_kinds(dtype, device):
    codes, values = np.arange(256, dtype=np.uint8), fp8_values(dtype)
    for other in FP8:
        expression = f"x.to(tl.{other}).to(tl.uint8, bitcast=True)"
        found = converted(codes, expression, "uint8", device, f".to(tl.{dtype}, bitcast=True)")
        expected = codes if dtype == other else fp8_patterns(values, other)
        known = np.isfinite(values) if other == "float8e4b15" else np.ones(256, bool)
        assert same_patterns(found[known], expected[known], other), (dtype, other)


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_8_bit_floats_rounded_towards_zero(source, device):
    rng = np.random.default_rng(5)
    x = round_to(rng.standard_normal(2000) * np.exp2(rng.integers(-20, 20, 2000)), source)
    x = x[np.isfinite(x)]
    for dtype in FP8:
        numbers = fp8_values(dtype)[:128]
        numbers = numbers[np.isfinite(numbers)]
        code = np.searchsorted(numbers, np.abs(x.astype(np.float64)), side="right") - 1
        negative = np.signbit(x) & ((code != 0) | (FP8[dtype][3] != "unsigned zero"))
        result = empty(x.shape, "uint8", device)
        text = TO_FP8.format(dtype=f"{dtype}, fp_downcast_rounding='rtz'")
        module(text).kernel[(triton.cdiv(len(x), 1024),)](
            to_device(x, source, device), result, len(x), BLOCK=1024
        )
        assert_same(to_host(result), (code + 128 * negative).astype(np.uint8), (x,), dtype)


@triton.jit
def pointer_kernel(x_ptr, number_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    numbers = (x_ptr + i).to(tl.uint64)
    tl.store(number_ptr + i, numbers.to(tl.int64) - x_ptr.to(tl.int64))
    back = tl.cast(numbers, tl.pointer_type(tl.int32))
    tl.store(out_ptr + i, tl.load(back, mask=back.to(tl.int1)))


def test_pointers_and_integers(device):
    x = torch.arange(64, dtype=torch.int32, device=device) * 3
    numbers, out = torch.zeros(64, dtype=torch.int64, device=device), torch.zeros_like(x)
    pointer_kernel[(1,)](x, numbers, out, N=64)
    assert numbers.tolist() == list(range(0, 256, 4))
    assert torch.equal(out, x)
