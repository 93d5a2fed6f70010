"""Joining tiles and taking parts of them: join, split, cat, interleave, gather, slices; against numpy."""

import numpy as np
import pytest
import torch
from helpers import DTYPES, assert_same, empty, moderate_values, module, to_device, to_host
from helpers_errors import underlined

import tilewright as triton
import tilewright.language as tl

PAIR = """@triton.jit
def flip_halves(x):
    a, b = tl.split(x)
    return tl.join(b, a)

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    row, s = tl.load(x_ptr + j), tl.load(y_ptr)
    result = {expression}
    tl.static_assert(result.dtype == out_ptr.dtype.element_ty)
    tl.store(out_ptr + tl.arange(0, result.numel), tl.reshape(result, [result.numel]))
"""


def pair(expression, expected, dtype="int32", m=8, n=16, device="cpu", out_dtype=None, **options):
    """Checks `expression` of x and y [m, n], row [n] and the scalar s against `expected(x, y, row, s)`."""
    x, y = moderate_values(dtype, (m, n)), moderate_values(dtype, (m, n), 1)
    wanted = np.ascontiguousarray(expected(x, y, x[0], y[0, 0]))
    out = empty((wanted.size,), out_dtype or str(wanted.dtype).replace("bool", "int1"), device)
    tensors = [to_device(x, dtype, device), to_device(y, dtype, device)]
    module(PAIR.format(expression=expression)).kernel[(1,)](*tensors, out, M=m, N=n, **options)
    assert_same(to_host(out), wanted.ravel(), expression)


def joined(x, y):
    return np.stack(np.broadcast_arrays(x, y), -1)


MOVEMENTS = [
    ("tl.join(x, y)", lambda x, y, row, s: joined(x, y)),
    ("tl.join(x, row)", lambda x, y, row, s: joined(x, row)),
    ("tl.join(s, x)", lambda x, y, row, s: joined(s, x)),
    ("tl.join(s, s + 1)", lambda x, y, row, s: np.array([s, s + 1], x.dtype)),
    ("tl.join(tl.join(x, y), tl.join(y, x))", lambda x, y, row, s: joined(joined(x, y), joined(y, x))),
    ("tl.permute(tl.join(x, y), (2, 1, 0))", lambda x, y, row, s: joined(x, y).transpose(2, 1, 0)),
    ("tl.interleave(x, y)", lambda x, y, row, s: joined(x, y).reshape(len(x), -1)),
    ("tl.interleave(row, s)", lambda x, y, row, s: joined(row, s).ravel()),
    ("tl.interleave(s, s + 1)", lambda x, y, row, s: np.array([s, s + 1], x.dtype)),
    ("tl.split(tl.join(x, y))[1]", lambda x, y, row, s: y),
    ("tl.split(x.reshape(M, N // 2, 2))[0]", lambda x, y, row, s: x[:, ::2]),
    ("x.reshape(M, N // 2, 2).split()[1]", lambda x, y, row, s: x[:, 1::2]),
    (
        "tl.split(tl.trans(x.reshape(M, 2, N // 2), (0, 2, 1)))[1]",
        lambda x, y, row, s: x[:, x.shape[1] // 2 :],
    ),
    ("tl.split(tl.join(s, s + 1))[1] + row", lambda x, y, row, s: (s + 1 + row).astype(x.dtype)),
    ("flip_halves(x.reshape(M, N // 2, 2))", lambda x, y, row, s: x.reshape(len(x), -1, 2)[..., ::-1]),
    ("tl.cat(x, y)", lambda x, y, row, s: np.concatenate([x, y])),
    ("tl.cat(x, y, can_reorder=True)", lambda x, y, row, s: np.concatenate([x, y])),
    ("tl.cat(x, y, dim=1)", lambda x, y, row, s: np.concatenate([x, y], 1)),
    ("tl.cat(row, row + 1, dim=-1)", lambda x, y, row, s: np.concatenate([row, row + 1])),
    ("tl.cat(x, tl.cat(y, y))", lambda x, y, row, s: np.concatenate([x, y, y])),
    ("tl.cat(x, y[:, 0:4], dim=1)", lambda x, y, row, s: np.concatenate([x, y[:, :4]], 1)),
]


@pytest.mark.parametrize(("expression", "expected"), MOVEMENTS, ids=[text for text, _ in MOVEMENTS])
def test_tiles_are_joined_and_split(expression, expected, device):
    pair(expression, expected, device=device)
    pair(expression, expected, m=2, n=128, device=device, num_warps=2)


SLICES = [
    ("x[0]", lambda x: x[0]),
    ("x[-1]", lambda x: x[-1]),
    ("x[:, 3]", lambda x: x[:, 3]),
    ("x[1, 2] + x", lambda x: (x[1, 2] + x).astype(x.dtype)),
    ("x[..., 0]", lambda x: x[..., 0]),
    ("x[0:4]", lambda x: x[0:4]),
    ("x[4:]", lambda x: x[4:]),
    ("x[:-4, None]", lambda x: x[:-4, None]),
    ("x[:, 8:24]", lambda x: x[:, 8:24]),
    ("x[None, ::2, ::4]", lambda x: x[None, ::2, ::4]),
    ("x[1::2, 2::4]", lambda x: x[1::2, 2::4]),
    ("x[::-1]", lambda x: x[::-1]),
    ("x[:, ::-1]", lambda x: x[:, ::-1]),
    ("x[3:1:-1, 5]", lambda x: x[3:1:-1, 5]),
    ("x[1:6, 3:30:3]", lambda x: x[1:6, 3:30:3]),
    ("x[2, 1:2]", lambda x: x[2, 1:2]),
    ("x[M // 2:, :N // 2]", lambda x: x[4:, :16]),
    ("x[0:6].reshape(2, 3, N)[1, ::2]", lambda x: x[0:6].reshape(2, 3, -1)[1, ::2]),
    ("tl.trans(x)[3]", lambda x: x.T[3]),
    ("tl.arange(0, 32)[4:12] + x[0, 0]", lambda x: (np.arange(4, 12) + x[0, 0]).astype(x.dtype)),
]


@pytest.mark.parametrize(("expression", "expected"), SLICES, ids=[text for text, _ in SLICES])
def test_parts_of_tiles(expression, expected, device):
    pair(expression, lambda x, y, row, s: expected(x), n=32, device=device)


GATHER = """@triton.jit
def kernel(x_ptr, index_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
           axis: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, A)[:, None] * B + tl.arange(0, B))
    at = tl.arange(0, P)[:, None] * Q + tl.arange(0, Q)
    tl.store(out_ptr + at, tl.gather(x, tl.load(index_ptr + at), axis))
"""


def gather(shape, index, axis, dtype, device, **options):
    x = moderate_values(dtype, shape)
    wanted = np.take_along_axis(x, index.astype(np.int64) % shape[axis], axis)
    out = empty(wanted.shape, dtype, device)
    tensors = [to_device(x, dtype, device), to_device(index, str(index.dtype), device)]
    module(GATHER).kernel[(1,)](*tensors, out, *shape, *index.shape, axis, **options)
    assert_same(to_host(out), wanted, f"{shape} {index.shape} {axis} {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_takes_every_type(dtype, device):
    index = np.random.default_rng(3).integers(0, 16, (4, 64), np.int32)
    gather((4, 16), index, 1, dtype, device)


@pytest.mark.parametrize(
    ("shape", "index_shape", "axis"),
    [((16, 4), (64, 4), 0), ((64, 2), (8, 2), 0), ((2, 128), (2, 128), 1), ((128, 1), (128, 1), 0), ((6, 5), (6, 9), 1),
     ((7, 3), (20, 3), 0)],
)  # fmt: skip
def test_gather_along_axes(shape, index_shape, axis, device):
    random = np.random.default_rng(4)
    for dtype in (np.int32, np.int8, np.int64, np.uint16):
        index = random.integers(0, min(shape[axis], 128), index_shape, dtype)
        gather(shape, index, axis, "int32", device, num_warps=2)
    index = random.integers(0, shape[axis], index_shape, np.int32)
    gather(shape, index, axis, "float16", device)


# One past the end, below 0, and what 32 bits take for another number.
OUTSIDE = [
    (dtype, outside)
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32)
    for outside in (
        lambda n: n,
        lambda n: -1,
        lambda n: 2**31,
        lambda n: -(2**31),
        lambda n: 2**32,
        lambda n: 2**63 - 1,
    )
]


@pytest.mark.parametrize(("shape", "axis"), [((8, 4), 0), ((8, 4), 1), ((6, 5), 0), ((6, 5), 1)])
def test_an_index_outside_of_its_axis_is_an_error(shape, axis, device):
    if device == "cuda":
        pytest.skip("a GPU checks indices with debug=True only")
    wrong, blamed = [], "tl.gather(x, tl.load(index_ptr + at), axis)"
    for dtype, outside in OUTSIDE:
        bad = outside(shape[axis])
        if not np.iinfo(dtype).min <= bad <= np.iinfo(dtype).max:
            continue
        # The last row and column lie next to the padding of tiles whose extents are no powers of two.
        index = np.zeros(shape, dtype)
        index[-1, -1] = bad
        try:
            gather(shape, index, axis, "int32", device)
        except triton.errors.OutOfBoundsError as error:
            if error.code != "TW0212" or underlined(error.diagnostics[0]) != blamed:
                wrong.append((dtype, bad, str(error)))
        except AssertionError as error:
            wrong.append((dtype, bad, str(error)[:80]))
        else:
            wrong.append((dtype, bad, "no error"))
    assert not wrong


def test_a_gather_that_does_not_run_is_no_error(device):
    """Its index is the same in each iteration, and there is none."""

    @triton.jit
    def kernel(x_ptr, out_ptr, n, N: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, N))
        index = tl.arange(0, N) + n + 1
        for _ in range(n):
            x += tl.gather(x, index, 0)
        tl.store(out_ptr + tl.arange(0, N), x)

    x = to_device(np.arange(8, dtype=np.int32), "int32", device)
    out = empty((8,), "int32", device)
    kernel[(1,)](x, out, 0, 8)
    assert_same(to_host(out), to_host(x), "no iteration")


def test_gather_in_a_loop_of_pointers_and_masks(device):
    @triton.jit
    def kernel(x_ptr, out_ptr, n, N: tl.constexpr):
        i = tl.arange(0, N)
        lut = tl.load(x_ptr + tl.arange(0, 16))
        codes = i
        for _ in range(n):
            codes = tl.gather(lut, codes & 15, 0)
        pointers = tl.gather(x_ptr + tl.arange(0, 16), codes & 15, 0)
        mask = tl.gather(tl.arange(0, 16) < 12, codes & 15, 0)
        tl.store(out_ptr + i, tl.load(pointers, mask, other=-1))

    x = np.random.default_rng(5).permutation(16).astype(np.int32)
    out = torch.zeros(64, dtype=torch.int32, device=device)
    kernel[(1,)](torch.tensor(x, device=device), out, 3, N=64)
    codes = np.arange(64)
    for _ in range(3):
        codes = x[codes & 15]
    assert_same(to_host(out), np.where(codes < 12, x[codes], -1), "gather")


def test_many_axes(device):
    @triton.jit
    def kernel(x_ptr, out_ptr):
        x = tl.load(x_ptr + tl.arange(0, 512)).reshape(2, 2, 2, 2, 2, 2, 2, 2, 2)
        a, b = tl.split(tl.permute(x, (8, 7, 6, 5, 4, 3, 2, 0, 1)))
        y = tl.permute(tl.join(b, a), (3, 1, 2, 0, 4, 5, 8, 7, 6))[:, ::-1]
        tl.store(out_ptr + tl.arange(0, 512), tl.ravel(y))

    x = np.arange(512, dtype=np.int32)
    out = torch.zeros(512, dtype=torch.int32, device=device)
    kernel[(1,)](torch.tensor(x, device=device), out)
    wanted = x.reshape((2,) * 9).transpose(8, 7, 6, 5, 4, 3, 2, 0, 1)[..., ::-1]
    wanted = wanted.transpose(3, 1, 2, 0, 4, 5, 8, 7, 6)[:, ::-1]
    assert_same(to_host(out), wanted.ravel(), "nine axes")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_joined_and_sliced(dtype, device):
    pair(
        "tl.split(tl.join(x, y)[1::2])[0]",
        lambda x, y, row, s: x[1::2],
        dtype,
        device=device,
        out_dtype=dtype,
    )
