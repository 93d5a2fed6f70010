"""Loads and stores: masks, other, scalar pointers, strides of every kind, implicit casts, addresses beyond 4 GiB."""

import numpy as np
import pytest
import torch
from helpers import (
    DTYPES,
    FLOATS,
    INTEGERS,
    TORCH,
    assert_same,
    convert,
    empty,
    moderate_values,
    sample,
    to_device,
    to_host,
)

import tilewright as triton
import tilewright.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("n", [1, 7, 64, 1000, 4097])
@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_copy_of_every_type_keeps_every_value_and_touches_nothing_else(dtype, n, device):
    x = sample(dtype, n)[:n]
    out = empty((n + 64,), dtype, device)
    before = to_host(out)
    copy_kernel[(triton.cdiv(n, 64),)](to_device(x, dtype, device), out, n, BLOCK=64)
    assert_same(to_host(out)[:n], x)
    assert_same(to_host(out)[n:], before[n:])


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_copy_keeps_the_bits_of_nan(dtype, device):
    word = {"float16": torch.int16, "bfloat16": torch.int16, "float32": torch.int32, "float64": torch.int64}[
        dtype
    ]
    nan = {"float16": 0x7E01, "bfloat16": 0x7FC1, "float32": 0x7FC00123, "float64": 0x7FF8000000000123}[dtype]
    x = torch.full((16,), nan, dtype=word, device=device)
    out = torch.zeros_like(x)
    copy_kernel[(1,)](x.view(TORCH[dtype]), out.view(TORCH[dtype]), 16, BLOCK=16)
    assert torch.equal(out, x)


@pytest.mark.parametrize("dtype", ["float8e5", "float8e4nv", "float8e4b8", "float8e5b16"])
def test_copy_of_fp8_keeps_every_pattern(dtype, device):
    x = torch.arange(256, dtype=torch.int32).to(torch.uint8).to(device)
    out = torch.zeros_like(x)
    copy_kernel[(4,)](x.view(TORCH[dtype]), out.view(TORCH[dtype]), 256, BLOCK=64)
    assert torch.equal(out, x)


@triton.jit
def rows_kernel(x_ptr, rows_ptr, out_ptr, again_ptr, n, W: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = i // W
    column = i % W
    mask = i < n
    moved = tl.load(rows_ptr + row, mask)
    # Of the second half of each row, the column; of the first, what is read.
    read = tl.load(x_ptr + moved * W + column, mask & (column < W // 2), other=column)
    again = tl.load(rows_ptr + row, mask & (column < W // 2), other=column)
    tl.store(out_ptr + i, read, mask)
    tl.store(again_ptr + i, again, mask)


@pytest.mark.parametrize(("width", "rows"), [(64, 9), (16, 33), (8, 65), (6, 85), (1, 513)])
def test_rows_that_are_numbered_in_memory(width, rows, device):
    generator = np.random.default_rng(11)
    n = width * rows
    x = generator.integers(-(2**30), 2**30, n).astype(np.int32)
    order = generator.permutation(rows).astype(np.int32)
    out, again = (torch.full((n,), -1, dtype=torch.int32, device=device) for _ in range(2))
    arguments = [torch.from_numpy(values).to(device) for values in (x, order)]
    rows_kernel[(triton.cdiv(n, 256),)](*arguments, out, again, n, W=width, BLOCK=256, num_warps=1)
    column = np.arange(n) % width
    first = column < width // 2
    moved = np.repeat(order, width)
    np.testing.assert_array_equal(out.cpu().numpy(), np.where(first, x[moved * width + column], column))
    np.testing.assert_array_equal(again.cpu().numpy(), np.where(first, moved, column))


@triton.jit
def other_kernel(x_ptr, out_ptr, n, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=OTHER))


@pytest.mark.parametrize("other", [0, 1, 7, -1.0, -2.5, float("-inf"), float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_other_fills_the_masked_lanes(dtype, other, device):
    if dtype not in FLOATS and isinstance(other, float):
        pytest.skip(
            "a float as `other` of integers is truncated where it is finite; tested by the implicit casts"
        )
    x = sample(dtype, 40)[:40]
    n = 27 if len(x) > 27 else len(x)
    out = empty((64,), dtype, device)
    other_kernel[(1,)](to_device(x, dtype, device), out, n, OTHER=other, BLOCK=64)
    fill = convert(np.full(64 - n, other), dtype)
    assert_same(to_host(out), np.concatenate([x[:n], fill]))


def test_masked_lanes_without_other_are_zero(device):
    x = to_device(np.arange(1, 17, dtype=np.float32), "float32", device)
    out = empty((32,), "float32", device)
    other_kernel[(1,)](x, out, 16, OTHER=None, BLOCK=32)
    assert_same(to_host(out), np.r_[np.arange(1, 17), np.zeros(16)].astype(np.float32))


@triton.jit
def other_tensor_kernel(x_ptr, other_ptr, mask_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = tl.load(mask_ptr + i)
    x = tl.load(x_ptr + i, mask=mask, other=tl.load(other_ptr + i))
    tl.store(out_ptr + i, x)
    tl.store(out_ptr + BLOCK + i, x + 1, mask=mask)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32"])
def test_any_mask_and_a_tensor_as_other(dtype, device):
    rng = np.random.default_rng(5)
    mask = rng.integers(0, 2, 128).astype(bool)
    x, other = moderate_values(dtype, 128, 1), moderate_values(dtype, 128, 2)
    out = to_device(np.zeros(256), dtype, device)
    tensors = [to_device(x, dtype, device), to_device(other, dtype, device), to_device(mask, "int1", device)]
    other_tensor_kernel[(1,)](*tensors, out, BLOCK=128)
    expected = np.where(mask, x, other)
    assert_same(to_host(out)[:128], expected)
    assert_same(to_host(out)[128:], np.where(mask, expected + np.asarray(1, x.dtype), np.asarray(0, x.dtype)))


@triton.jit
def scalar_kernel(x_ptr, out_ptr, flag):
    x = tl.load(x_ptr)
    y = tl.load(x_ptr + 3)
    tl.store(out_ptr, x + y)
    tl.store(out_ptr + 1, y, mask=flag > 0)
    tl.store(out_ptr + 2, tl.load(x_ptr + 100, mask=flag > 5, other=9.0))
    tl.store(out_ptr + 3 + tl.arange(0, 4), y)


@pytest.mark.parametrize("flag", [0, 1])
def test_scalar_pointers(flag, device):
    x = to_device(np.array([1, 2, 3, 4], np.float32), "float32", device)
    out = torch.zeros(8, device=device)
    scalar_kernel[(1,)](x, out, flag)
    assert to_host(out).tolist() == [5, 4 * flag, 9, 4, 4, 4, 4, 0]


@triton.jit
def strided_kernel(
    x_ptr, out_ptr, rows, columns, x0, x1, out0, out1, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (i < rows) & (j < columns)
    x = tl.load(x_ptr + i * x0 + j * x1, mask=mask, other=0)
    tl.store(out_ptr + i * out0 + j * out1, x, mask=mask)


def strided_copy(x, out, block=(16, 32)):
    rows, columns = x.shape
    size = x.element_size() if isinstance(x, torch.Tensor) else x.itemsize
    strides = [*x.stride(), *out.stride()] if size and isinstance(x, torch.Tensor) else None
    if strides is None:
        strides = [step // x.itemsize for step in x.strides] + [step // out.itemsize for step in out.strides]
    grid = (triton.cdiv(rows, block[0]), triton.cdiv(columns, block[1]))
    strided_kernel[grid](x, out, rows, columns, *strides, ROWS=block[0], COLUMNS=block[1])


@pytest.mark.parametrize("block", [(16, 32), (1, 64), (64, 1), (4, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["int1", "int8", "bfloat16", "float32", "int64"])
def test_transposed_and_sliced_tensors(dtype, block, device):
    base = to_device(moderate_values(dtype, (60, 90)), dtype, device)
    views = [
        base,
        base.T,
        base[3:50, 5:77],
        base[::2, ::3],
        base.T[1::4, ::2],
        base[:1].expand(20, 90),
        base[:, 7:8],
    ]
    for view in views:
        out = empty(view.shape, dtype, device)
        strided_copy(view, out, block)
        assert torch.equal(out, view)
        back = torch.zeros_like(base).T[: view.shape[0], : view.shape[1]]
        if back.shape == view.shape:
            strided_copy(view, back, block)
            assert torch.equal(back, view)


def test_negative_strides_of_numpy(device):
    if device == "cuda":
        pytest.skip("numpy has no memory of a GPU")
    base = np.arange(60 * 90, dtype=np.float32).reshape(60, 90)
    for view in (base[::-1], base[:, ::-1], base[::-2, ::-3], base.T[::-1, ::2]):
        out = np.zeros(view.shape, np.float32)
        strided_copy(view, out)
        assert np.array_equal(out, view)
        out = np.zeros(view.shape, np.float32)[::-1, ::-1]
        strided_copy(view, out)
        assert np.array_equal(out, view)


def test_a_stride_of_zero_reads_one_element_everywhere(device):
    x = torch.tensor([[1.5], [2.5]], device=device).expand(2, 40)
    out = torch.empty(2, 40, device=device)
    strided_copy(x, out)
    assert torch.equal(out, x)


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, tl.load(x_ptr + index, mask=i < n), mask=i < n)


@triton.jit
def scatter_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + index, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("index", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_gather_and_scatter_by_every_type_of_index(index, device):
    rng = np.random.default_rng(7)
    count = 100 if index == "int8" else 250
    order = rng.permutation(count).astype(index)
    x = rng.standard_normal(count).astype(np.float32)
    tensors = [to_device(x, "float32", device), to_device(order, index, device)]
    for kernel, expected in ((gather_kernel, x[order]), (scatter_kernel, x[np.argsort(order)])):
        out = empty((count,), "float32", device)
        kernel[(triton.cdiv(count, 64),)](*tensors, out, count, BLOCK=64)
        assert_same(to_host(out), expected)


@triton.jit
def backwards_kernel(end_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(end_ptr + n - 1 - i, mask=i < n), mask=i < n)
    tl.store(out_ptr + n + i, tl.load((end_ptr + n) - (i + 1), mask=i < n), mask=i < n)
    tl.store(out_ptr + 2 * n + i, tl.load(i + end_ptr, mask=i < n), mask=i < n)


def test_pointers_move_backwards(device):
    x = np.arange(50, dtype=np.int32)
    out = empty((150,), "int32", device)
    backwards_kernel[(1,)](to_device(x, "int32", device), out, 50, BLOCK=64)
    assert_same(to_host(out), np.concatenate([x[::-1], x[::-1], x]))


def test_a_view_is_checked_against_its_storage_not_its_shape(device):
    base = torch.arange(100, dtype=torch.int32, device=device)
    out = torch.zeros(100, dtype=torch.int32, device=device)
    # The view begins at 40; the kernel walks back to the beginning of the storage.
    backwards_from_view[(1,)](base[40:60], out, BLOCK=32)
    assert to_host(out)[:32].tolist() == list(range(8, 40))


@triton.jit
def backwards_from_view(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr - BLOCK + i))


@triton.jit
def cast_on_store_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("out", ["int1", "int8", "uint16", "int32", "uint64", *FLOATS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_store_casts_to_the_type_of_the_pointer(dtype, out, device):
    x = moderate_values(dtype, 200) if dtype in FLOATS else sample(dtype, 200)
    if out == "int1" or (dtype in FLOATS and out not in FLOATS):
        x = np.abs(x) if dtype in FLOATS else x
    n = len(x)
    result = empty((n,), out, device)
    cast_on_store_kernel[(triton.cdiv(n, 128),)](to_device(x, dtype, device), result, n, BLOCK=128)
    assert_same(to_host(result), convert(x, out), (x,), f"{dtype} -> {out}")


@triton.jit
def overlap_kernel(out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i // 4, 7)
    tl.store(out_ptr + 4 + i % 4, i * 0 + 5)


def test_lanes_that_store_one_value_to_one_address(device):
    out = torch.zeros(16, dtype=torch.int32, device=device)
    overlap_kernel[(1,)](out, BLOCK=16)
    assert out.tolist() == [7] * 4 + [5] * 4 + [0] * 8


@triton.jit
def read_after_write_kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    before = tl.load(x_ptr + i)
    tl.store(x_ptr + i, before * 2)
    after = tl.load(x_ptr + i)
    tl.store(x_ptr + i, after + before)


def test_a_load_sees_the_stores_before_it(device):
    x = torch.arange(64, dtype=torch.int32, device=device)
    read_after_write_kernel[(1,)](x, BLOCK=64)
    assert x.tolist() == [3 * value for value in range(64)]


@triton.jit
def far_kernel(x_ptr, out_ptr, offset, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + offset + i))
    tl.store(x_ptr + offset + 2 * BLOCK + i, i.to(tl.uint8))


def test_offsets_beyond_4_gib(device):
    # The pages are there only once they are touched.
    x = torch.empty(5 << 30, dtype=torch.uint8, device=device)
    for offset in (0, (1 << 31) - 16, (1 << 32) - 16, (1 << 32) + 12345, (5 << 30) - 96):
        x[offset : offset + 32] = torch.arange(100, 132, dtype=torch.uint8)
        out = torch.zeros(32, dtype=torch.uint8, device=device)
        far_kernel[(1,)](x, out, offset, BLOCK=32)
        assert out.tolist() == list(range(100, 132))
        assert x[offset + 64 : offset + 96].tolist() == list(range(32))


@triton.jit
def wide_rows_kernel(x_ptr, out_ptr, stride, row, BLOCK: tl.constexpr):
    i = (row + tl.program_id(0)).to(tl.int64)
    j = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + j, tl.load(x_ptr + i * stride + j))


def test_rows_of_a_view_over_4_gib(device):
    x = torch.empty(3 << 30, dtype=torch.int16, device=device).view(3 * 1024, 1 << 20)
    x[3000:3004, :64] = torch.arange(256, dtype=torch.int16).view(4, 64)
    out = torch.zeros(4, 64, dtype=torch.int16, device=device)
    wide_rows_kernel[(4,)](x, out, x.stride(0), 3000, BLOCK=64)
    assert out.flatten().tolist() == list(range(256))


def test_int32_arithmetic_of_offsets_wraps_before_the_pointer_is_moved(device):
    # 65536 * 65536 is 0 in int32: the address is that of the first element, as on a GPU.
    x = torch.arange(8, dtype=torch.int32, device=device)
    out = torch.zeros(8, dtype=torch.int32, device=device)
    wrapping_offset_kernel[(1,)](x, out, 65536)
    assert out[0].item() == 0
    assert out[1].item() == 3


@triton.jit
def wrapping_offset_kernel(x_ptr, out_ptr, n):
    tl.store(out_ptr, tl.load(x_ptr + n * n))
    tl.store(out_ptr + 1, tl.load(x_ptr + n * n + 3))


@triton.jit
def options_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    i = tl.max_contiguous(tl.multiple_of(i, BLOCK), BLOCK)
    x = tl.load(x_ptr + i, cache_modifier=".ca", eviction_policy="evict_last", volatile=True)
    y = tl.load(x_ptr + i, cache_modifier=".cg", eviction_policy="evict_first")
    tl.store(out_ptr + i, x + y, cache_modifier=".wb", eviction_policy="evict_first")


def test_hints_and_cache_options_change_nothing(device):
    x = torch.arange(32, dtype=torch.float32, device=device)
    out = torch.zeros_like(x)
    options_kernel[(1,)](x, out, BLOCK=32)
    assert torch.equal(out, 2 * x)


def test_pointers_loaded_from_memory(device):
    tensors = [torch.full((16,), float(k), device=device) for k in range(3)]
    holder = torch.cat(tensors)
    table = torch.tensor([holder[16 * k :].data_ptr() for k in range(3)], dtype=torch.int64, device=device)
    out = torch.zeros(48, device=device)
    pointer_table_kernel[(3,)](table, holder, out, BLOCK=16)
    assert torch.equal(out, holder + 1)


@triton.jit
def pointer_table_kernel(table_ptr, holder_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x_ptr = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    x = tl.load(x_ptr + i) + 0 * tl.load(holder_ptr + i)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + i, x + 1)


@triton.jit
def pointer_select_kernel(x_ptr, y_ptr, out_ptr, which, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if which == 0:
        pointer = x_ptr
    else:
        pointer = y_ptr
    tl.store(out_ptr + i, tl.load(pointer + i))
    both = tl.where(i % 2 == 0, x_ptr + i, y_ptr + i)
    tl.store(out_ptr + BLOCK + i, tl.load(both))


@pytest.mark.parametrize("which", [0, 1])
def test_a_pointer_may_come_from_either_of_two_arguments(which, device):
    x, y = torch.arange(16, device=device), torch.arange(100, 116, device=device)
    out = torch.zeros(32, dtype=torch.int64, device=device)
    pointer_select_kernel[(1,)](x, y, out, which, BLOCK=16)
    assert torch.equal(out[:16], (x, y)[which])
    assert torch.equal(out[16:], torch.where(x % 2 == 0, x, y))


@triton.jit
def three_axes_kernel(x_ptr, out_ptr, n0, n1, n2, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)[:, None, None]
    j = tl.arange(0, BLOCK)[None, :, None]
    k = tl.arange(0, BLOCK)[None, None, :]
    mask = (i < n0) & (j < n1) & (k < n2)
    x = tl.load(x_ptr + (i * n1 + j) * n2 + k, mask=mask)
    tl.store(out_ptr + (k * n1 + j) * n0 + i, x, mask=mask)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_three_axes(dtype, device):
    x = moderate_values(dtype, (5, 8, 3))
    out = empty((3, 8, 5), dtype, device)
    three_axes_kernel[(1,)](to_device(x, dtype, device), out, 5, 8, 3, BLOCK=8)
    assert_same(to_host(out), x.transpose(2, 1, 0))


@triton.jit
def in_place_kernel(x_ptr, n, END: tl.constexpr, STEP: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.arange(0, 2)[:, None] * ROW + tl.arange(0, BLOCK)[None, :]
    for first in range(0, n if END is None else END, STEP):
        x = tl.load(x_ptr + first + place)
        tl.store(x_ptr + first + place, tl.flip(x, 1) + first + 1)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("step", "row"), [(256, 1024), (256, 512), (256, 2048), (128, 1024), (255, 1024), (512, 256)]
)
def test_iterations_that_overwrite_what_later_ones_load(step, row, known, device):
    """Rows and steps that share elements between iterations, and such that do not."""
    block, end = 256, 1024
    x = torch.randint(
        -100, 100, (row + 2 * end,), dtype=torch.int32, generator=torch.Generator().manual_seed(5)
    )
    expected = x.clone()
    place = (torch.arange(2)[:, None] * row + torch.arange(block)).flatten()
    for first in range(0, end, step):
        loaded = expected[first + place].reshape(2, block)
        expected[first + place] = loaded.flip(1).flatten() + first + 1
    found = x.to(device)
    in_place_kernel[(1,)](found, end, END=end if known else None, STEP=step, ROW=row, BLOCK=block)
    assert torch.equal(found.cpu(), expected)
