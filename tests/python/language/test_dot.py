"""Matrix products: every type of operand, odd combinations of shapes, accumulators, transposed and batched operands."""

import itertools
import math

import numpy as np
import pytest
import torch
from conftest import DEVICE
from helpers import (
    CARRIER,
    FLOAT_FORMAT,
    assert_same,
    empty,
    moderate_values,
    module,
    round_to,
    to_device,
    to_host,
)

import tilewright as triton
import tilewright.language as tl

DOT = """@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + j[None, :])
    c = tl.load(c_ptr + i[:, None] * N + j[None, :])
    result = {expression}
    tl.static_assert(result.dtype == out_ptr.dtype.element_ty)
    tl.store(out_ptr + i[:, None] * N + j[None, :], result)
"""
SHAPES = [(16, 16, 16), (16, 128, 32), (128, 16, 64), (64, 64, 128), (32, 128, 16), (128, 128, 128)]
RESULT = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
    "int8": "int32",
}


def operands(dtype, m, n, k, seed=0):
    if dtype == "int8":
        rng = np.random.default_rng(seed)
        return rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    return moderate_values(dtype, (m, k), seed), moderate_values(dtype, (k, n), seed + 1)


def dot(expression, a, b, c, dtype, out, device):
    (m, k), n = a.shape, b.shape[1]
    result = empty((m, n), out, device)
    tensors = [to_device(a, dtype, device), to_device(b, dtype, device), to_device(c, out, device)]
    module(DOT.format(expression=expression)).kernel[(1,)](*tensors, result, M=m, N=n, K=k)
    return to_host(result)


def rounds_to_tf32(dtype):
    """Returns whether operands are rounded to tf32 by default: on a GPU, as with the official Triton."""
    return dtype == "float32" and DEVICE != "cpu"


def assert_product(found, a, b, c, out, is_tf32=False, lost=0.0):
    """Equal where integers are multiplied, else within what rounding to `out` at each step, or to tf32, allows.

    `lost` is what an operand may lose besides.
    """
    if out == "int32":
        assert_same(found, (a.astype(np.int64) @ b.astype(np.int64) + c).astype(np.int32))
        return
    wide = np.longdouble if out == "float64" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    scale = np.abs(x) @ np.abs(y) + np.abs(c.astype(wide))
    error = np.abs(found.astype(wide) - (x @ y + c.astype(wide)))
    digits = FLOAT_FORMAT[out][0]
    bound = scale * (2.0**-digits * 2 * np.sqrt(a.shape[-1]) + 2.0**-10 * is_tf32 + lost)
    assert (error <= bound).all(), float((error / bound).max())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", RESULT)
def test_products(dtype, shape, device):
    a, b = operands(dtype, *shape)
    out = RESULT[dtype]
    c = np.zeros((shape[0], shape[1]), out)
    assert_product(dot("tl.dot(a, b)", a, b, c, dtype, out, device), a, b, c, out, rounds_to_tf32(dtype))


SMALL = [(1, 1, 1), (2, 4, 8), (4, 2, 1), (8, 8, 8), (1, 16, 32), (16, 1, 16), (8, 32, 4), (16, 8, 2)]


@pytest.mark.parametrize("dtype", RESULT)
def test_products_smaller_than_an_instruction(dtype, device):
    out = RESULT[dtype]
    for seed, shape in enumerate(SMALL):
        a, b = operands(dtype, *shape, seed=seed)
        c = moderate_values(out, shape[:2], 7)
        found = dot("tl.dot(a, b, c)", a, b, c, dtype, out, device)
        assert_product(found, a, b, c, out, rounds_to_tf32(dtype))


MIXED = [
    *itertools.product(("int8", "uint8"), repeat=2),
    *itertools.product(("float8e5", "float8e4nv", "float8e4b8", "float8e5b16"), repeat=2),
]


@pytest.mark.parametrize("pair", MIXED, ids="-".join)
def test_operands_of_different_types_of_8_bits(pair, device):
    rng = np.random.default_rng(3)
    for m, n, k in ((16, 16, 32), (4, 8, 2)):
        if pair[0].endswith("int8"):
            infos = [np.iinfo(dtype) for dtype in pair]
            a, b = (
                rng.integers(i.min, i.max, s, i.dtype, True)
                for i, s in zip(infos, ((m, k), (k, n)), strict=True)
            )
            outs = ["int32"]
        else:
            a, b = (rng.integers(-6, 7, shape).astype(np.float32) / 4 for shape in ((m, k), (k, n)))
            outs = ["float32", "float16"]
        for out in outs:
            c = moderate_values(out, (m, n), 5)
            result = empty((m, n), out, device)
            tensors = [
                to_device(a, pair[0], device),
                to_device(b, pair[1], device),
                to_device(c, out, device),
            ]
            kernel = module(DOT.format(expression="tl.dot(a, b, c)")).kernel
            kernel[(1,)](*tensors, result, M=m, N=n, K=k)
            left, right = (to_host(tensor) for tensor in tensors[:2])
            assert_product(to_host(result), left, right, c, out)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"])
def test_every_precision_takes_every_type(precision, device):
    for dtype in ("float32", "float16", "bfloat16"):
        for shape in ((32, 16, 32), (4, 4, 4)):
            a, b = operands(dtype, *shape, seed=6)
            c = moderate_values("float32", shape[:2], 7)
            found = dot(f"tl.dot(a, b, c, input_precision={precision!r})", a, b, c, dtype, "float32", device)
            is_split = precision == "bf16x3" and rounds_to_tf32(dtype)
            is_tf32 = precision == "tf32" and rounds_to_tf32(dtype)
            assert_product(found, a, b, c, "float32", is_tf32, 2.0**-15 if is_split else 0.0)


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
@pytest.mark.parametrize("dtype", RESULT)
@pytest.mark.parametrize("form", ["tl.dot(a, b, c)", "tl.dot(a, b, acc=c)", "c + tl.dot(a, b)"])
def test_products_are_added_to_an_accumulator(form, dtype, shape, device):
    a, b = operands(dtype, *shape, seed=3)
    out = RESULT[dtype]
    c = moderate_values(out, (shape[0], shape[1]), 7)
    assert_product(dot(form, a, b, c, dtype, out, device), a, b, c, out, rounds_to_tf32(dtype))


@pytest.mark.parametrize("form", ["tl.dot(a, b, c)", "tl.dot(a, b, c, out_dtype=tl.float16)"])
def test_a_half_accumulator(form, device):
    a, b = operands("float16", 32, 32, 16)
    c = moderate_values("float16", (32, 32), 5)
    assert_product(dot(form, a, b, c, "float16", "float16", device), a, b, c, "float16")


def test_half_results(device):
    a, b = operands("float16", 64, 32, 32)
    c = np.zeros((64, 32), np.float16)
    found = dot("tl.dot(a, b, out_dtype=tl.float16)", a, b, c, "float16", "float16", device)
    assert_product(found, a, b, c, "float16")


@pytest.mark.parametrize("form", ["allow_tf32=False", 'input_precision="ieee"', 'input_precision="tf32x3"'])
def test_full_precision_of_fp32(form, device):
    a, b = operands("float32", 64, 64, 64)
    c = np.zeros((64, 64), np.float32)
    assert_product(dot(f"tl.dot(a, b, {form})", a, b, c, "float32", "float32", device), a, b, c, "float32")


@pytest.mark.parametrize("form", ["allow_tf32=True", 'input_precision="tf32"'])
def test_tf32_is_at_least_as_good_as_its_name(form, device):
    a, b = operands("float32", 32, 32, 32)
    c = np.zeros((32, 32), np.float32)
    found = dot(f"tl.dot(a, b, {form})", a, b, c, "float32", "float32", device)
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", ["float8e5", "float8e4nv"])
def test_fp8_operands(dtype, device):
    m, n, k = 32, 64, 32
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-6, 7, shape).astype(np.float32) / 4 for shape in ((m, k), (k, n)))
    a, b = (to_host(to_device(value, dtype, device)) for value in (a, b))
    c = np.zeros((m, n), np.float32)
    assert_product(dot("tl.dot(a, b)", a, b, c, dtype, "float32", device), a, b, c, "float32")


def test_infinities_and_nan_pass_through(device):
    a, b = np.ones((16, 16), np.float32), np.ones((16, 16), np.float32)
    a[0, 3], a[1, 2], b[5, 7] = np.inf, np.nan, -np.inf
    c = np.zeros((16, 16), np.float32)
    found = dot("tl.dot(a, b, allow_tf32=False)", a, b, c, "float32", "float32", device)
    with np.errstate(invalid="ignore"):
        expected = np.array([[np.sum(a[i] * b[:, j]) for j in range(16)] for i in range(16)], np.float32)
    assert_same(found, expected)


@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TRANS_A: tl.constexpr,
    TRANS_B: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    if TRANS_A:
        if HOW == "strides":
            a = tl.load(a_ptr + i[:, None] + k[None, :] * M)
        else:
            a = tl.trans(tl.load(a_ptr + k[:, None] * M + i[None, :]))
    else:
        a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    if TRANS_B:
        if HOW == "strides":
            b = tl.load(b_ptr + k[:, None] + j[None, :] * K)
        else:
            b = tl.load(b_ptr + j[:, None] * K + k[None, :]).T
    else:
        b = tl.load(b_ptr + k[:, None] * N + j[None, :])
    tl.store(out_ptr + i[:, None] * N + j[None, :], tl.dot(a, b, allow_tf32=False))


@pytest.mark.parametrize("how", ["strides", "trans"])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_transposed_operands(dtype, trans_a, trans_b, how, device):
    m, n, k = 32, 64, 128
    a, b = operands(dtype, m, n, k, seed=1)
    out = empty((m, n), RESULT[dtype], device)
    stored = [np.ascontiguousarray(a.T) if trans_a else a, np.ascontiguousarray(b.T) if trans_b else b]
    transposed_kernel[(1,)](
        *(to_device(value, dtype, device) for value in stored),
        out, M=m, N=n, K=k, TRANS_A=trans_a, TRANS_B=trans_b, HOW=how,
    )  # fmt: skip
    assert_product(to_host(out), a, b, np.zeros((m, n), RESULT[dtype]), RESULT[dtype])


@triton.jit
def batched_kernel(a_ptr, b_ptr, out_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch = tl.arange(0, B)[:, None, None]
    i, j = tl.arange(0, M), tl.arange(0, N)
    k = tl.arange(0, K)
    a = tl.load(a_ptr + batch * M * K + i[None, :, None] * K + k[None, None, :])
    b = tl.load(b_ptr + batch * K * N + k[None, :, None] * N + j[None, None, :])
    result = tl.dot(a, b, allow_tf32=False)
    tl.store(out_ptr + batch * M * N + i[None, :, None] * N + j[None, None, :], result)


@pytest.mark.parametrize("shape", [(1, 16, 16, 16), (4, 16, 32, 64), (8, 64, 16, 32)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_batches(dtype, shape, device):
    count, m, n, k = shape
    pairs = [operands(dtype, m, n, k, seed=index) for index in range(count)]
    a, b = (np.stack([pair[side] for pair in pairs]) for side in (0, 1))
    out = empty((count, m, n), RESULT[dtype], device)
    batched_kernel[(1,)](
        to_device(a, dtype, device), to_device(b, dtype, device), out, B=count, M=m, N=n, K=k
    )
    assert_product(to_host(out), a, b, np.zeros((count, m, n), RESULT[dtype]), RESULT[dtype])


STACK = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, out_ptr):
    a = tl.load(a_ptr + tl.arange(0, tl.constexpr({a}))).reshape({left})
    b = tl.load(b_ptr + tl.arange(0, tl.constexpr({b}))).reshape({right})
    c = tl.load(c_ptr + tl.arange(0, tl.constexpr({c}))).reshape({out})
    result = tl.dot(a, b, c, allow_tf32=False)
    tl.static_assert(result.shape == c.shape)
    tl.store(out_ptr + tl.arange(0, tl.constexpr({c})), result.reshape([{c}]))
"""


@pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("batch", [(2, 2), (2, 1, 2), (1, 1, 2, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_more_than_one_batch_axis(dtype, batch, interpret, device):
    m, n, k = 16, 32, 16
    pairs = [operands(dtype, m, n, k, seed=index) for index in range(math.prod(batch))]
    a, b = (np.stack([pair[side] for pair in pairs]).reshape(*batch, m, -1) for side in (0, 1))
    b = b.reshape(*batch, k, n)
    c = moderate_values(RESULT[dtype], (*batch, m, n), 5)
    out = empty(c.shape, RESULT[dtype], device)
    shapes = {"left": a.shape, "right": b.shape, "out": c.shape, "a": a.size, "b": b.size, "c": c.size}
    kernel = triton.JITFunction(module(STACK.format(**shapes)).kernel.fn, interpret=interpret)
    tensors = [to_device(x, name, device) for x, name in ((a, dtype), (b, dtype), (c, RESULT[dtype]))]
    kernel[(1,)](*tensors, out)
    assert_product(to_host(out), a, b, c, RESULT[dtype])


@pytest.mark.parametrize("other", ["[2, 1, 16, 16]", "[2, 16, 16]", "[16, 16]"])
def test_batch_axes_that_differ(other):
    text = f"""
@triton.jit
def kernel(out):
    x = tl.zeros([2, 2, 16, 16], tl.float16)
    tl.store(out, tl.sum(tl.sum(tl.dot(x, tl.zeros({other}, tl.float16)).reshape([16, 64]), 1), 0))
"""
    with pytest.raises(triton.CompilationError) as caught:
        module(text).kernel[(1,)](np.zeros(1, np.float32))
    assert caught.value.code == "TW0019"


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a0, a1, b0, b1, c0, c1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    row, column = tl.swizzle2d(tl.program_id(0) // columns, tl.program_id(0) % columns, rows, columns, GROUP)
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + i[:, None] * a0 + k[None, :] * a1
    b_ptrs = b_ptr + k[:, None] * b0 + j[None, :] * b1
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        a = tl.load(a_ptrs, mask=(i[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < left) & (j[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, allow_tf32=False)
        a_ptrs += BK * a1
        b_ptrs += BK * b0
    c_mask = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c_ptr + i[:, None] * c0 + j[None, :] * c1, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


@pytest.mark.parametrize("shape", [(1, 1, 1), (37, 53, 71), (128, 64, 96), (200, 100, 333)], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_blocked_matmul(dtype, layout, shape, device):
    m, n, k = shape
    a, b = operands(dtype, m, n, k, seed=4)
    left, right = to_device(a, dtype, device), to_device(b, dtype, device)
    if layout[0] == "t":
        left = left.T.contiguous().T
    if layout[1] == "t":
        right = right.T.contiguous().T
    out = empty((m, n), dtype, device)

    def grid(meta):
        return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

    matmul_kernel[grid](
        left,
        right,
        out,
        m,
        n,
        k,
        *left.stride(),
        *right.stride(),
        *out.stride(),
        BM=32,
        BN=32,
        BK=16,
        GROUP=3,
    )
    truth = a.astype(np.float64) @ b.astype(np.float64)
    tolerance = (np.abs(a).astype(np.float64) @ np.abs(b)) * 2.0**-24 * max(4, np.sqrt(k))
    tolerance += np.abs(truth) * 2.0 ** -(FLOAT_FORMAT[dtype][0])
    assert (np.abs(to_host(out) - truth) <= tolerance).all()


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(k_ptr + j[None, :] * D + d[:, None], mask=j[None, :] < n, other=0.0)
        v = tl.load(v_ptr + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        scores = tl.where(j[None, :] < n, tl.dot(q, k, allow_tf32=False) * scale, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        shrink = tl.exp(largest - new)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v, allow_tf32=False)
        largest = new
    tl.store(out_ptr + i[:, None] * D + d[None, :], acc / total[:, None], mask=i[:, None] < n)


@pytest.mark.parametrize("n", [16, 50, 130])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention(dtype, n, device):
    q, k, v = (to_device(moderate_values(dtype, (n, 32), seed), dtype, device) for seed in range(3))
    out = torch.empty(n, 32, dtype=q.dtype, device=device)
    attention_kernel[(triton.cdiv(n, 16),)](q, k, v, out, n, 32**-0.5, BM=16, BN=32, D=32)
    expected = torch.softmax(q.double() @ k.double().T * 32**-0.5, 1) @ v.double()
    tolerance = 1e-5 if dtype == "float32" else 3e-3
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def test_rounding_of_operands_is_exact_before_the_product():
    """The basis of the tolerances: products of fp16 and bf16 numbers are exact in fp32."""
    for dtype in ("float16", "bfloat16"):
        a, b = operands(dtype, 8, 8, 8)
        exact = a.astype(np.float64)[:, :, None] * b.astype(np.float64)[None]
        assert np.array_equal(round_to(exact, "float32").astype(np.float64), exact)
        assert a.dtype == CARRIER[dtype]


IN_BOTH_ORDERS = """@triton.jit
def kernel(q_ptr, k_ptr, out_ptr, STEPS, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, TRANSPOSED: tl.constexpr):
    i, j, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + i[:, None] * D + d[None, :])
    acc = tl.zeros((M, D), tl.float32)
    for step in tl.range(0, STEPS, num_stages=3):
        if TRANSPOSED:
            k_transposed = tl.load(k_ptr + (step * N + j)[None, :] * D + d[:, None])
            scores = tl.dot(q, k_transposed)
            acc += tl.dot(scores.to(q.dtype), tl.trans(k_transposed))
        else:
            k = tl.load(k_ptr + (step * N + j)[:, None] * D + d[None, :])
            scores = tl.dot(q, tl.trans(k))
            acc = tl.dot(scores.to(q.dtype), k, acc)
    tl.store(out_ptr + i[:, None] * D + d[None, :], acc)
"""


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(64, 32, 64), (128, 64, 128), (64, 128, 16), (128, 16, 64)], ids=str)
def test_a_tile_in_both_orders(shape, dtype, is_transposed, warps, device):
    """The operand that two dots read is in shared memory once, if the instruction can read its transpose."""
    m, n, depth = shape
    rng = np.random.default_rng(m + n)
    # Integers so small that all sums are exact.
    q, k = (rng.integers(-2, 3, size).astype(np.float32) for size in ((m, depth), (3 * n, depth)))
    out = empty((m, depth), "float32", device)
    module(IN_BOTH_ORDERS).kernel[(1,)](
        *(to_device(x, dtype, device) for x in (q, k)), out, 3, M=m, N=n, D=depth, TRANSPOSED=is_transposed,
        num_warps=warps,
    )  # fmt: skip
    expected = sum(
        torch.from_numpy(q @ block.T).to(getattr(torch, dtype)).double().numpy() @ block.astype(np.float64)
        for block in np.split(k, 3)
    )
    assert_same(to_host(out), expected.astype(np.float32))


WIDE = """@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, STEPS, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(STEPS):
        a = tl.load(a_ptr + i[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + j[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * N + j[None, :], acc)
"""


@pytest.mark.parametrize(
    ("options", "warps"), [({}, 8), ({"num_warps": 2}, 8), ({"num_warps": 8}, 8), ({"maxnreg": 255}, 4)]
)
def test_more_warps_where_accumulators_do_not_fit(options, warps, device):
    """256 registers of a thread of four warps are too many; a limit of registers is the program's own business."""
    a, b = operands("float16", 128, 256, 16)
    out = empty((128, 256), "float32", device)
    tensors = [to_device(x, "float16", device) for x in (a, b)]
    compiled = module(WIDE).kernel[(1,)](*tensors, out, 2, M=128, N=256, K=16, **options)
    assert_product(to_host(out) / 2, a, b, np.zeros((128, 256), np.float32), "float32")
    if DEVICE != "cpu":
        assert compiled.metadata.num_warps == warps
        assert f".reqntid {32 * warps}\n" in compiled.asm["ptx"]


THREADS = """@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, threads_ptr, PURE: tl.constexpr):
    m, n, k = tl.arange(0, 128), tl.arange(0, 256), tl.arange(0, 16)
    a = tl.load(a_ptr + m[:, None] * 16 + k[None, :])
    b = tl.load(b_ptr + k[:, None] * 256 + n[None, :])
    tl.store(out_ptr + m[:, None] * 256 + n[None, :], tl.dot(a, b))
    threads = tl.inline_asm_elementwise("mov.u32 $0, %ntid.x;", "=r,r", [m], tl.int32, PURE, 1)
    tl.store(threads_ptr + m, threads)
"""


@pytest.mark.parametrize("is_pure", [True, False])
def test_assembly_may_count_the_threads(is_pure, device):
    """A kernel with assembly keeps its warps, although the accumulators need more registers than four warps have."""
    if DEVICE == "cpu":
        pytest.skip("the CPU runs the assembly with its own number of threads")
    a, b = operands("float16", 128, 256, 16)
    out, threads = empty((128, 256), "float32", device), empty((128,), "int32", device)
    tensors = [to_device(x, "float16", device) for x in (a, b)]
    module(THREADS).kernel[(1,)](*tensors, out, threads, PURE=is_pure, num_warps=4)
    assert (to_host(threads) == 128).all()
