"""A convolution in Gluon: an implicit matmul whose rows the hardware gathers from the images (im2col).

```text
  row of A     pixel of the output, in the order of images, rows, columns
  column of A  tap of the filter and channel of the input
  A            never in global memory: a copy takes 64 pixels, and 32 channels of each, for one tap
```

`TensorDescriptorIm2Col` describes the input [N, H, W, C] and the pixels that a filter begins at: from
`pixel_box_lower_corner` to `pixel_box_upper_corner`, in the steps `element_strides`. A copy takes a number of these
pixels from its coordinates on, over the ends of rows and of images, and its offsets, those of a tap of the filter, move
all of them. Pixels outside of an image are zeros, so the padding of the convolution costs nothing.

Run it with `python examples/58_gluon_convolution.py`; it checks itself against torch. Shapes: input [N, H, W, C],
filters [K, R, S, C], output [N, P, Q, K].
"""

import torch
from tilewright.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

PIXELS, FILTERS, CHANNELS, STAGES = 64, 64, 32, 3


@gluon.jit
def start_loads(
    x_desc, w_desc, step, is_there, pixel, filters, C, P, Q, S, stride, padding, x_smem, w_smem, bars,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Starts the copies of a step: of 32 channels, for one tap of the filter."""
    CHANNELS: gl.constexpr = x_desc.block_shape[1]
    slot = step % STAGES
    bar = bars.index(slot)
    steps_of_a_tap = gl.cdiv(C, CHANNELS)
    tap, channel = step // steps_of_a_tap, step % steps_of_a_tap * CHANNELS
    image, rest = pixel // (P * Q), pixel % (P * Q)
    row, column = rest // Q * stride - padding, rest % Q * stride - padding
    offsets = [(tap // S).to(gl.int16), (tap % S).to(gl.int16)]
    mbarrier.expect(bar, x_desc.nbytes_per_cta + w_desc.nbytes_per_cta, pred=is_there)
    tma.async_load_im2col(
        x_desc, [image, row, column, channel], offsets, bar, x_smem.index(slot), pred=is_there
    )
    tma.async_load(w_desc, [filters, tap * C + channel], bar, w_smem.index(slot), pred=is_there)


@gluon.jit
def convolution_kernel(x_desc, w_desc, out_desc, C, P, Q, R, S, stride, padding, STAGES: gl.constexpr):
    """Each program computes 64 pixels of 64 filters."""
    PIXELS: gl.constexpr = x_desc.block_shape[0]
    CHANNELS: gl.constexpr = x_desc.block_shape[1]
    FILTERS: gl.constexpr = w_desc.block_shape[0]
    x_smem = gl.allocate_shared_memory(x_desc.dtype, [STAGES, PIXELS, CHANNELS], x_desc.layout)
    w_smem = gl.allocate_shared_memory(w_desc.dtype, [STAGES, FILTERS, CHANNELS], w_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(bars.index(stage), count=1)
    pixel, filters = gl.program_id(0) * PIXELS, gl.program_id(1) * FILTERS
    steps = R * S * gl.cdiv(C, CHANNELS)
    for step in gl.static_range(STAGES - 2):
        start_loads(
            x_desc, w_desc, step, step < steps, pixel, filters, C, P, Q, S, stride, padding, x_smem, w_smem, bars,
            STAGES,
        )  # fmt: skip
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, FILTERS, 16])
    acc = gl.zeros([PIXELS, FILTERS], gl.float32, acc_layout)
    for step in range(steps):
        ahead = step + STAGES - 2
        start_loads(
            x_desc, w_desc, ahead, ahead < steps, pixel, filters, C, P, Q, S, stride, padding, x_smem, w_smem, bars,
            STAGES,
        )  # fmt: skip
        slot = step % STAGES
        mbarrier.wait(bars.index(slot), step // STAGES & 1)
        acc = warpgroup_mma(x_smem.index(slot), w_smem.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))

    out_smem = gl.allocate_shared_memory(out_desc.dtype, out_desc.block_shape, out_desc.layout)
    out_smem.store(acc.to(out_desc.dtype))
    fence_async_shared()
    tma.async_store(out_desc, [pixel, filters], out_smem)
    tma.store_wait(0)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(bars.index(stage))


def convolve(x: torch.Tensor, w: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    """The convolution of images [N, H, W, C] with filters [K, R, S, C]."""
    (n, h, width, c), (k, r, s, _) = x.shape, w.shape
    p, q = ((size + 2 * padding - taps) // stride + 1 for size, taps in ((h, r), (width, s)))
    out = torch.empty(n, p, q, k, dtype=x.dtype, device=x.device)
    default = gl.NVMMASharedLayout.get_default_for
    x_desc = TensorDescriptorIm2Col.from_tensor(
        x,
        [PIXELS, CHANNELS],
        default([PIXELS, CHANNELS], gl.float16),
        element_strides=[1, stride, stride, 1],
        pixel_box_lower_corner=[-padding, -padding],
        pixel_box_upper_corner=[padding + 1 - r, padding + 1 - s],
    )
    matrices = (w.view(k, r * s * c), [FILTERS, CHANNELS]), (out.view(n * p * q, k), [PIXELS, FILTERS])
    w_desc, out_desc = (
        TensorDescriptor.from_tensor(tensor, block, default(block, gl.float16)) for tensor, block in matrices
    )
    grid = triton.cdiv(n * p * q, PIXELS), triton.cdiv(k, FILTERS)
    convolution_kernel[grid](x_desc, w_desc, out_desc, c, p, q, r, s, stride, padding, STAGES)
    return out


def main() -> None:
    """Compare with torch, with and without padding, and with a stride."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda" and target.arch != 90:
        print("skipped: the GPU is not of the architecture Hopper")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for (n, h, width, c), (k, r, s), stride, padding in (
        ((2, 9, 11, 32), (64, 3, 3), 1, 1),
        ((1, 12, 10, 40), (72, 3, 2), 2, 0),
        ((2, 7, 7, 64), (64, 1, 1), 1, 0),
    ):
        x = torch.randn(n, h, width, c, device=device).half()
        w = (torch.randn(k, r, s, c, device=device) / (r * s * c) ** 0.5).half()
        found = convolve(x, w, stride, padding)
        expected = torch.nn.functional.conv2d(
            x.double().permute(0, 3, 1, 2), w.double().permute(0, 3, 1, 2), stride=stride, padding=padding
        ).permute(0, 2, 3, 1)
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-3)
        error = (found - expected).abs().max().item()
        print(
            f"{[n, h, width, c]} * {[k, r, s, c]}, stride {stride}, padding {padding}: difference {error:.1e}"
        )


if __name__ == "__main__":
    main()
