"""Tensor copies of pixels (im2col), on the simulator of an H100, against windows that torch takes."""

from __future__ import annotations

import itertools

import pytest
import torch
from tilewright.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl


@pytest.fixture(autouse=True)
def hopper():
    """Skips a test of what sm_90 has and the device lacks."""
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")


@gluon.jit
def copy_kernel(x_desc, out_desc, image, d, h, w, channel, offsets: gl.constexpr, AXES: gl.constexpr):
    smem = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    if AXES == 1:
        tma.async_load_im2col(x_desc, [image, w, channel], offsets, bar, smem)
    elif AXES == 2:
        tma.async_load_im2col(x_desc, [image, h, w, channel], offsets, bar, smem)
    else:
        tma.async_load_im2col(x_desc, [image, d, h, w, channel], offsets, bar, smem)
    mbarrier.wait(bar, 0)
    tma.async_store(out_desc, [0, 0], smem)
    tma.store_wait(0)


def pixels_of(x, block, coordinates, offsets, steps, lower, upper):
    """The pixels of a copy, by the words of the PTX ISA."""
    *pixel, channel = coordinates
    axes = range(len(lower))
    ends = [x.shape[axis + 1] - 1 + upper[axis] for axis in axes]
    rows = []
    for _ in range(block[0]):
        at = [pixel[0], *(pixel[axis + 1] + offsets[axis] for axis in axes)]
        row = torch.zeros(block[1], dtype=x.dtype)
        if all(0 <= index < extent for index, extent in zip(at, x.shape[:-1], strict=True)):
            values = x[tuple(at)][channel : channel + block[1]]
            row[: len(values)] = values
        rows.append(row)
        for axis in reversed(axes):
            pixel[axis + 1] += steps[axis + 1]
            if pixel[axis + 1] <= ends[axis]:
                break
            pixel[axis + 1] = lower[axis]
            if axis == 0:
                pixel[0] += steps[0]
    return torch.stack(rows)


CASES = [
    # shape, block, coordinates, offsets, element strides, lower and upper corner
    ((2, 8, 64), (16, 32), (0, 0, 0), (0,), None, (0,), (0,)),
    ((2, 9, 64), (16, 64), (0, -1, 32), (2,), (1, 2, 1), (-1,), (-1,)),
    ((2, 4, 5, 32), (32, 32), (0, -1, -1, 0), (0, 0), None, (-1, -1), (-1, -1)),
    ((2, 4, 5, 32), (32, 32), (0, 1, 2, 0), (2, 1), None, (-1, -1), (-1, -1)),
    ((3, 7, 6, 64), (16, 64), (1, 2, 0, 0), (1, 2), (1, 2, 2, 1), (0, 0), (-2, -2)),
    ((2, 3, 4, 40), (8, 32), (1, 0, 0, 32), (0, 0), None, (0, 0), (0, 0)),
    ((2, 3, 4, 5, 32), (64, 32), (0, -1, 0, 1, 0), (1, 0, 2), None, (-1, 0, -2), (0, -1, -2)),
    ((1, 5, 4, 6, 64), (16, 64), (0, 0, 0, 0, 0), (0, 1, 0), (1, 2, 1, 3, 1), (0, 0, 0), (0, -1, 0)),
]


@pytest.mark.parametrize("swizzle", [None, 0])
@pytest.mark.parametrize("case", CASES)
def test_pixels_in_the_order_of_the_box(case, swizzle, device):
    shape, block, coordinates, offsets, steps, lower, upper = case
    x = torch.randn(shape).half().to(device)
    out = torch.full(block, 7.0, dtype=torch.float16, device=device)
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
    if swizzle == 0:
        layout = gl.NVMMASharedLayout(0, 16, 2)
    x_desc = TensorDescriptorIm2Col.from_tensor(
        x,
        block,
        layout,
        element_strides=steps,
        pixel_box_lower_corner=lower,
        pixel_box_upper_corner=upper,
    )
    assert x_desc.mode == "im2col"
    out_desc = TensorDescriptor.from_tensor(out, block, layout)
    image, *inner, channel = coordinates
    d, h, w = [0] * (3 - len(inner)) + inner
    copy_kernel[(1,)](x_desc, out_desc, image, d, h, w, channel, offsets, len(inner))
    expected = pixels_of(x.cpu(), block, list(coordinates), offsets, x_desc.element_strides, lower, upper)
    assert torch.equal(out.cpu(), expected)


def test_all_windows_of_a_convolution(device):
    """The matrix of im2col: a copy for each tap of the filter has the columns of ``unfold``."""
    x = torch.randn(2, 6, 5, 32).half().to(device)
    layout = gl.NVMMASharedLayout.get_default_for([64, 32], gl.float16)
    x_desc = TensorDescriptorIm2Col.from_tensor(
        x, [64, 32], layout, pixel_box_lower_corner=[-1, -1], pixel_box_upper_corner=[-1, -1]
    )
    windows = torch.nn.functional.unfold(x.cpu().float().permute(0, 3, 1, 2), 3, padding=1)
    windows = windows.view(2, 32, 9, 30).permute(2, 0, 3, 1).reshape(9, 60, 32)
    for tap, (r, s) in enumerate(itertools.product(range(3), range(3))):
        out = torch.zeros(64, 32, dtype=torch.float16, device=device)
        out_desc = TensorDescriptor.from_tensor(out, [64, 32], layout)
        copy_kernel[(1,)](x_desc, out_desc, 0, 0, -1, -1, 0, (r, s), 2)
        assert torch.equal(out[:60].cpu().float(), windows[tap])
        assert not out[60:].any()


@gluon.jit
def channels_kernel(x_desc, out_desc):
    smem = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    tma.async_load_im2col(x_desc, [0, 0, 0], [0], bar, smem, multicast=True)
    mbarrier.wait(bar, 0)
    tma.async_store(out_desc, [0, 0], smem)
    tma.store_wait(0)


@pytest.mark.parametrize("bases", [[[0, 0]], [[0, 1]], [[0, 1], [0, 0]]])
def test_blocks_of_a_cluster_copy_channels(bases, device):
    x = torch.randn(2, 8, 64).half().to(device)
    out = torch.zeros(16, 64, dtype=torch.float16, device=device)
    layout = gl.NVMMASharedLayout(64, 16, 2, cga_layout=bases)
    x_desc = TensorDescriptorIm2Col.from_tensor(
        x, [16, 64], layout, pixel_box_lower_corner=[0], pixel_box_upper_corner=[0]
    )
    made = channels_kernel[(1,)](
        x_desc, TensorDescriptor.from_tensor(out, [16, 64], layout), num_ctas=1 << len(bases)
    )
    assert torch.equal(out, x.view(16, 64))
    assert (".multicast::cluster" in made.asm["ptx"]) == ([0, 0] in bases)


def test_the_window_belongs_to_the_specialization(device):
    """A descriptor with another window is another kernel; one of other memory is not."""
    layout = gl.NVMMASharedLayout(64, 16, 2)
    out = torch.zeros(16, 32, dtype=torch.float16, device=device)
    out_desc = TensorDescriptor.from_tensor(out, [16, 32], layout)
    made = []
    for corner in (0, -1, 0):
        x = torch.randn(2, 8, 32).half().to(device)
        x_desc = TensorDescriptorIm2Col.from_tensor(
            x, [16, 32], layout, pixel_box_lower_corner=[corner], pixel_box_upper_corner=[0]
        )
        made.append(copy_kernel[(1,)](x_desc, out_desc, 0, 0, 0, corner, 0, (0,), 1))
        assert torch.equal(out[-corner], x[0, 0])
    assert made[0] is made[2]
    assert made[0] is not made[1]
