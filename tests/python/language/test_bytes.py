"""Integers of 8 bits, which a GPU converts and combines four at a time: every value, in words and apart."""

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl

torch = pytest.importorskip("torch")

BLOCK = 1024


@triton.jit
def convert_kernel(x_ptr, y_ptr, APART: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if APART:
        # No word of memory holds these together.
        x = (x.to(tl.int32) + at * 0).to(x.dtype) + 1
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("source", [torch.int8, torch.uint8])
def test_every_value_is_converted_exactly(source, target, apart, device):
    x = torch.arange(BLOCK, dtype=torch.int32).to(source)
    x = x[torch.randperm(BLOCK, generator=torch.Generator().manual_seed(0))].to(device)
    y = torch.empty(BLOCK, dtype=target, device=device)
    convert_kernel[(1,)](x, y, APART=apart, BLOCK=BLOCK)
    expected = (x + 1 if apart else x).to(target)
    assert torch.equal(y, expected)
    assert not torch.signbit(y[expected == 0]).any()


@triton.jit
def bitwise_kernel(x_ptr, y_ptr, out_ptr, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    if FUNCTION == "nibbles":
        out = (x & 15) | (y >> 4)
    elif FUNCTION == "shifts":
        out = ((x << 3) ^ (y >> 1)) & (x >> 7)
    elif FUNCTION == "complement":
        out = ~x & y | (x << 0)
    else:
        out = (x << 8) | (y >> 9)
    tl.store(out_ptr + at, out)


@pytest.mark.parametrize("function", ["nibbles", "shifts", "complement", "all shifted out"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bitwise_functions_of_words(dtype, function, device):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, BLOCK).astype(np.uint8).view(dtype) for _ in range(2))
    out = torch.empty(BLOCK, dtype=torch.int8 if dtype == np.int8 else torch.uint8, device=device)
    tensors = [torch.from_numpy(each).to(device) for each in (x, y)]
    bitwise_kernel[(1,)](*tensors, out, FUNCTION=function, BLOCK=BLOCK)
    wide_x, wide_y = x.astype(np.int32), y.astype(np.int32)
    expected = {
        "nibbles": (wide_x & 15) | (wide_y >> 4),
        "shifts": ((wide_x << 3) ^ (wide_y >> 1)) & (wide_x >> 7),
        "complement": ~wide_x & wide_y | wide_x,
        "all shifted out": (wide_x << 8) | (wide_y >> 9),
    }[function]
    assert np.array_equal(out.cpu().numpy(), expected.astype(dtype))


@triton.jit
def turned_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    # Loaded along one axis and stored along the other: bytes of one word go to different ones.
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + columns)
    tl.store(y_ptr + rows + columns * M, x.to(y_ptr.dtype.element_ty))


@pytest.mark.parametrize("target", [torch.int8, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("source", [torch.int8, torch.uint8])
def test_bytes_of_a_tile_that_is_turned_over(source, target, device):
    for shape in ((64, 32), (16, 128), (4, 4)):
        x = torch.arange(shape[0] * shape[1], dtype=torch.int32).reshape(shape).to(source)
        y = torch.empty(shape[::-1], dtype=target, device=device)
        turned_kernel[(1,)](x.to(device), y, *shape)
        assert torch.equal(y.cpu(), x.T.to(target)), shape


@triton.jit
def zero_point_kernel(x_ptr, y_ptr, BITS: tl.constexpr, ZERO: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if BITS == 4:
        x = x & 15
    elif BITS == -4:
        x = (x >> 4) & 15
    elif BITS == 7:
        x = x & 127
    y = x.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + at, y - ZERO)
    tl.store(y_ptr + BLOCK + at, ZERO + y)


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("source", [torch.int8, torch.uint8])
def test_a_zero_point_beside_a_conversion(source, target, device):
    # Some of these sums are exact, others are rounded: as if the conversion were a separate op.
    x = torch.arange(BLOCK, dtype=torch.int32).to(source)
    x = x[torch.randperm(BLOCK, generator=torch.Generator().manual_seed(0))]
    for bits in (4, -4, 7, 8):
        for zero in (8, 128, -7, 131, 0.5, -0.0, 1000, 2049):
            y = torch.empty(2, BLOCK, dtype=target, device=device)
            zero_point_kernel[(1,)](x.to(device), y, BITS=bits, ZERO=zero, BLOCK=BLOCK)
            numbers = {4: x & 15, -4: (x >> 4) & 15, 7: x & 127, 8: x}[bits].to(target)
            constant = torch.tensor(zero).to(target)
            expected = torch.stack([numbers - constant, constant + numbers])
            assert torch.equal(y.cpu(), expected), (bits, zero)
            assert torch.equal(torch.signbit(y.cpu()), torch.signbit(expected)), (bits, zero)
