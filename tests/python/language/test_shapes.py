"""Operations on the shape of tensors: broadcasting, new axes, reshape, transposition, and what makes tensors."""

import numpy as np
import pytest
import torch
from helpers import DTYPES, assert_same, empty, moderate_values, module, to_device, to_host

import tilewright as triton
import tilewright.language as tl

MATRIX = """@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    y = tl.load(y_ptr + j)
    z = tl.load(y_ptr + N + i)
    s = tl.load(y_ptr)
    result = {expression}
    tl.static_assert(result.dtype == out_ptr.dtype.element_ty)
    flat = tl.reshape(result, [result.numel])
    tl.store(out_ptr + tl.arange(0, result.numel), flat)
"""


def matrix(expression, expected, dtype="int32", m=8, n=16, device="cpu"):
    """Checks `expression` of x [m, n], y [n], z [m] and the scalar s against `expected(x, y, z, s)`."""
    x, more = moderate_values(dtype, (m, n)), moderate_values(dtype, (m + n,), 1)
    wanted = np.asarray(expected(x, more[:n], more[n:], more[0]))
    out = empty((wanted.size,), str(wanted.dtype).replace("bool", "int1"), device)
    tensors = [to_device(x, dtype, device), to_device(more, dtype, device)]
    module(MATRIX.format(expression=expression)).kernel[(1,)](*tensors, out, M=m, N=n)
    assert_same(to_host(out), wanted.ravel(), expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x + y", lambda x, y, z, s: x + y),
        ("y + x", lambda x, y, z, s: x + y),
        ("x + y[None, :]", lambda x, y, z, s: x + y),
        ("x * z[:, None]", lambda x, y, z, s: x * z[:, None]),
        ("z[:, None] - y[None, :]", lambda x, y, z, s: z[:, None] - y),
        ("y[None, :] - z[:, None]", lambda x, y, z, s: y - z[:, None]),
        ("x + s", lambda x, y, z, s: x + s),
        ("s - x", lambda x, y, z, s: s - x),
        ("y * s", lambda x, y, z, s: y * s),
        ("z[:, None] * y[None, :] + x * s", lambda x, y, z, s: z[:, None] * y + x * s),
        ("x[None, :, :] + z[:, None, None]", lambda x, y, z, s: x[None] + z[:, None, None]),
        ("tl.where(z[:, None] > y[None, :], x, s)", lambda x, y, z, s: np.where(z[:, None] > y, x, s)),
        ("tl.where(x > 0, 1, y)", lambda x, y, z, s: np.where(x > 0, 1, y).astype(y.dtype)),
        ("tl.where(s > 0, x, 0)", lambda x, y, z, s: x if s > 0 else 0 * x),
        ("tl.maximum(x, y)", lambda x, y, z, s: np.maximum(x, y)),
        ("tl.minimum(z[:, None], x)", lambda x, y, z, s: np.minimum(x, z[:, None])),
        ("(x < y) & (z[:, None] > 0)", lambda x, y, z, s: (x < y) & (z[:, None] > 0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize(("m", "n"), [(8, 16), (1, 32), (16, 1)])
def test_broadcasting(expression, expected, m, n, device):
    matrix(expression, expected, m=m, n=n, device=device)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.reshape(x, (N, M))", lambda x, y, z, s: x.reshape(x.shape[::-1])),
        ("tl.reshape(x, N, M)", lambda x, y, z, s: x.reshape(x.shape[::-1])),
        ("x.reshape(4, M // 2, N // 2)", lambda x, y, z, s: x.reshape(4, 4, 8)),
        ("tl.view(x, (N * M,))", lambda x, y, z, s: x.ravel()),
        ("tl.ravel(x)", lambda x, y, z, s: x.ravel()),
        ("tl.trans(x)", lambda x, y, z, s: x.T),
        ("x.T", lambda x, y, z, s: x.T),
        ("tl.trans(x, 1, 0)", lambda x, y, z, s: x.T),
        ("tl.permute(x, (1, 0))", lambda x, y, z, s: x.T),
        ("tl.trans(x.reshape(2, 4, N), 2, 0, 1)", lambda x, y, z, s: x.reshape(2, 4, -1).transpose(2, 0, 1)),
        (
            "tl.trans(x.reshape(2, 4, N), (1, 0, 2))",
            lambda x, y, z, s: x.reshape(2, 4, -1).transpose(1, 0, 2),
        ),
        ("tl.trans(x) + z", lambda x, y, z, s: x.T + z),
        ("x.trans().trans()", lambda x, y, z, s: x),
        ("tl.expand_dims(y, 0)", lambda x, y, z, s: y[None]),
        ("tl.expand_dims(z, 1) + x", lambda x, y, z, s: z[:, None] + x),
        ("tl.expand_dims(z, -1) + x", lambda x, y, z, s: z[:, None] + x),
        ("y.expand_dims(0).expand_dims(2)", lambda x, y, z, s: y[None, :, None]),
        ("tl.broadcast_to(y[None, :], (M, N))", lambda x, y, z, s: np.broadcast_to(y, x.shape)),
        ("tl.broadcast_to(z[:, None], M, N)", lambda x, y, z, s: np.broadcast_to(z[:, None], x.shape)),
        ("tl.broadcast_to(s, (M, N))", lambda x, y, z, s: np.broadcast_to(s, x.shape)),
        ("z.expand_dims(1).broadcast_to(M, N)", lambda x, y, z, s: np.broadcast_to(z[:, None], x.shape)),
        ("x[:, :]", lambda x, y, z, s: x),
        ("x[:, None, :]", lambda x, y, z, s: x[:, None]),
        ("x[None]", lambda x, y, z, s: x[None]),
        ("tl.squeeze(y[None, :], 0)", lambda x, y, z, s: y),
        ("tl.unsqueeze(y, 1)", lambda x, y, z, s: y[:, None]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_changes_of_shape(expression, expected, dtype, device):
    matrix(expression, expected, dtype=dtype, device=device)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.arange(0, N) + x", lambda x, y, z, s: np.arange(16, dtype=np.int32) + x),
        ("tl.arange(4, 8)", lambda *_: np.arange(4, 8, dtype=np.int32)),
        ("tl.arange(M, N)", lambda *_: np.arange(8, 16, dtype=np.int32)),
        ("tl.arange(start=0, end=M * 2)", lambda *_: np.arange(16, dtype=np.int32)),
        ("tl.full((M, N), 7, tl.int32)", lambda x, *_: np.full_like(x, 7)),
        ("tl.full([M, 2], s, tl.int32)", lambda x, y, z, s: np.full((8, 2), s)),
        ("tl.full((M,), s, tl.float32)", lambda x, y, z, s: np.full(8, s, np.float32)),
        ("tl.zeros([N], dtype=tl.int32) + s", lambda x, y, z, s: np.full(16, s)),
        ("tl.zeros_like(x)", lambda x, *_: np.zeros_like(x)),
        ("tl.zeros(x.shape, x.dtype)", lambda x, *_: np.zeros_like(x)),
        ("tl.full(x.shape, 1, x.dtype) * x.shape[1]", lambda x, *_: np.full_like(x, 16)),
        ("tl.cdiv(x + 100, 7)", lambda x, *_: -(-(x + 100) // 7)),
        ("(x + 100).cdiv(7)", lambda x, *_: -(-(x + 100) // 7)),
        ("tl.abs(x)", lambda x, *_: np.abs(x)),
        ("x.abs()", lambda x, *_: np.abs(x)),
        (
            "x.to(tl.float32).sqrt() * 0 + x.numel",
            lambda x, *_: np.where(x < 0, np.nan, 128).astype(np.float32),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_tensors(expression, expected, device):
    matrix(expression, expected, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposition_of_every_type(dtype, device):
    expression = "tl.trans(x)" if dtype != "bfloat16" else "tl.trans(x).to(tl.float32)"
    matrix(expression, lambda x, *_: x.T, dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_of_every_type(dtype, device):
    expression = "tl.where(y > s, y, x)"
    if dtype == "bfloat16":
        expression += ".to(tl.float32)"
    matrix(expression, lambda x, y, z, s: np.where(y > s, y, x), dtype=dtype, device=device)


@triton.jit
def transposes_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + i)
    for _ in range(3):
        x = tl.trans(tl.trans(x) + tl.arange(0, M))
    tl.store(out_ptr + i, x)


def test_transposes_in_a_loop(device):
    x = torch.arange(128, dtype=torch.int32, device=device).reshape(8, 16)
    out = torch.zeros_like(x)
    transposes_kernel[(1,)](x, out, M=8, N=16)
    assert torch.equal(out, x + 3 * torch.arange(8, dtype=torch.int32, device=device)[:, None])


@triton.jit
def attributes_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * 4 + tl.arange(0, 4)[None, :])
    rows: tl.constexpr = x.shape[0]
    tl.static_assert(rows == N)
    tl.static_assert(x.shape[-1] == 4)
    tl.static_assert(len(x.shape) == 2)
    tl.static_assert(x.numel == N * 4)
    tl.static_assert(x.dtype.primitive_bitwidth == 16)
    tl.static_assert(x.dtype.is_floating())
    tl.static_assert(not x.dtype.is_int())
    tl.static_assert(x.type.scalar == tl.float16)
    tl.static_assert(x.type.element_ty == tl.float16)
    tl.static_assert(x_ptr.dtype.element_ty == tl.float16)
    tl.static_assert(x_ptr.dtype.is_ptr())
    tl.static_assert(x_ptr.type.is_ptr())
    tl.store(out_ptr, 1)


def test_attributes_are_known_at_compile_time(device):
    out = torch.zeros(1, dtype=torch.int32, device=device)
    attributes_kernel[(1,)](torch.zeros(32, 4, dtype=torch.float16, device=device), out, N=32)
    assert out.item() == 1
