"""A matmul of mxfp8 matrices in Gluon on Blackwell: C = A @ B.T, each 32 elements along K with a scale.

```text
  A, B ───────TMA──▶ ring of slots in shared memory ───────────────────tcgen05──▶ accumulator ──▶ C
  scales ─────TMA──▶ ring of slots in shared memory ──copy──▶ scales ─────┘
                                                        in tensor memory

  step k      wait for the bytes of slot k
              start the copies of the scales to tensor memory, then the dot of slot k
              wait until the dot of step k - 1 is complete
              start the TMA copies of step k + STAGES - 1, to the slot of that dot
```

A scale is a power of two (e8m0, a byte), so the tensor cores apply it exactly. `tcgen05_mma_scaled` reads the scales
from tensor memory, where 32 lanes by one column of 32 bits have four scales of each of 32 rows. A copy (`tcgen05_copy`)
of 512 bytes fills four columns: the scales of 128 rows. So the host orders the scales [M, K / 32] as
[M / 128, K / 128, 32, 4, 4], in which rows 32 apart share 16 bytes; the kernel views a block of them as [128, 4].
Copies and dots execute in order, so all steps use one tile of scales in tensor memory, and the commit of a dot
(`mbarriers`) also counts for the copies.

Run it with `tilewright run --device sim:sm_100 examples/62_gluon_scaled_matmul.py`; it checks itself against torch.
Shapes: [M, K] @ [N, K].T, multiples of 128. It has run on the simulator only, not on a GPU.
"""

import torch
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma_scaled,
    tma,
)
from tilewright.experimental.gluon.nvidia.blackwell import TensorDescriptor

import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCK, VECTOR, STAGES = 128, 32, 2


@gluon.jit
def start_loads(descs, smems, row, column, step, steps, full, STAGES: gl.constexpr):
    """Starts the copies of the blocks and of their scales of a step, if there is one; one barrier waits for all."""
    a_desc, b_desc, a_scale_desc, b_scale_desc = descs
    a_smem, b_smem, a_scale_smem, b_scale_smem = smems
    BLOCK: gl.constexpr = a_desc.block_shape[0]
    is_there = step < steps
    slot = step % STAGES
    bar = full.index(slot)
    in_slot: gl.constexpr = 2 * (a_desc.nbytes_per_cta + a_scale_desc.nbytes_per_cta)
    mbarrier.expect(bar, in_slot, pred=is_there)
    tma.async_load(a_desc, [row * BLOCK, step * BLOCK], bar, a_smem.index(slot), pred=is_there)
    tma.async_load(b_desc, [column * BLOCK, step * BLOCK], bar, b_smem.index(slot), pred=is_there)
    # The blocks of scales follow each other, the steps of one row first; each has 32 rows of 16 bytes.
    tma.async_load(a_scale_desc, [(row * steps + step) * 32, 0], bar, a_scale_smem.index(slot), pred=is_there)
    tma.async_load(
        b_scale_desc, [(column * steps + step) * 32, 0], bar, b_scale_smem.index(slot), pred=is_there
    )


@gluon.jit
def as_scales(smem):
    """Views 512 bytes as the scales of 128 rows, four of each."""
    return smem.reshape([32, 4, 4]).permute((1, 0, 2)).reshape([128, 4])


@gluon.jit
def scaled_matmul_kernel(a_desc, b_desc, a_scale_desc, b_scale_desc, c_desc, steps, STAGES: gl.constexpr):
    """A program computes a block of C."""
    BLOCK: gl.constexpr = a_desc.block_shape[0]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK, BLOCK], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK, BLOCK], b_desc.layout)
    a_scale_smem = gl.allocate_shared_memory(gl.uint8, [STAGES, 32, 16], a_scale_desc.layout)
    b_scale_smem = gl.allocate_shared_memory(gl.uint8, [STAGES, 32, 16], b_scale_desc.layout)
    descs = (a_desc, b_desc, a_scale_desc, b_scale_desc)
    smems = (a_smem, b_smem, a_scale_smem, b_scale_smem)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    row, column = gl.program_id(0), gl.program_id(1)
    for step in gl.static_range(STAGES - 1):
        start_loads(descs, smems, row, column, step, steps, full, STAGES)

    acc = allocate_tensor_memory(gl.float32, [BLOCK, BLOCK], TensorMemoryLayout([BLOCK, BLOCK], col_stride=1))
    a_scale = allocate_tensor_memory(gl.uint8, [BLOCK, 4], TensorMemoryScalesLayout())
    b_scale = allocate_tensor_memory(gl.uint8, [BLOCK, 4], TensorMemoryScalesLayout())
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        tcgen05_copy(as_scales(a_scale_smem.index(slot)), a_scale)
        tcgen05_copy(as_scales(b_scale_smem.index(slot)), b_scale)
        a, b = a_smem.index(slot), b_smem.index(slot).permute((1, 0))
        bars = [empty.index(slot)]
        tcgen05_mma_scaled(a, b, acc, a_scale, b_scale, "e4m3", "e4m3", use_acc=step > 0, mbarriers=bars)
        before = step - 1
        mbarrier.wait(empty.index(before % STAGES), before // STAGES & 1, pred=step > 0)
        start_loads(descs, smems, row, column, step + STAGES - 1, steps, full, STAGES)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)

    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c_smem.store(acc.load(acc.get_reg_layout()).to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row * BLOCK, column * BLOCK], c_smem)
    tma.store_wait(0)


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of x as e4m3, and a scale for each 32 of them: the exponent of a power of two, plus 127."""
    blocks = x.view(x.shape[0], -1, VECTOR)
    # The largest element of a block gets an exponent of at most 8, and e4m3 ends at 448.
    exponents = torch.frexp(blocks.abs().amax(dim=2).clamp(min=2.0**-100))[1] - 9
    values = torch.ldexp(blocks, -exponents[:, :, None]).clamp(-448, 448)
    return values.view(x.shape).to(torch.float8_e4m3fn), (exponents + 127).to(torch.uint8)


def dequantize(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The numbers that elements and scales stand for."""
    return values.double() * torch.exp2(scales.double() - 127).repeat_interleave(VECTOR, dim=1)


def pack(scales: torch.Tensor) -> torch.Tensor:
    """Scales [rows, K / 32] in the order of tensor memory: [rows / 128, K / 128, 32, 4, 4], as rows of 16 bytes."""
    rows, columns = scales.shape
    blocks = scales.view(rows // 128, 4, 32, columns // 4, 4).permute(0, 3, 2, 1, 4)
    return blocks.reshape(-1, 16).contiguous()


def scaled_matmul(
    a: torch.Tensor, a_scales: torch.Tensor, b: torch.Tensor, b_scales: torch.Tensor
) -> torch.Tensor:
    """A @ B.T of quantized matrices."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=torch.float16, device=a.device)
    swizzled = gl.NVMMASharedLayout.get_default_for([BLOCK, BLOCK], gl.float8e4nv)
    of_c = gl.NVMMASharedLayout.get_default_for([BLOCK, BLOCK], gl.float16)
    plain = gl.NVMMASharedLayout(0, 8, 2)
    blocks = (
        (a, [BLOCK, BLOCK], swizzled),
        (b, [BLOCK, BLOCK], swizzled),
        (pack(a_scales), [32, 16], plain),
        (pack(b_scales), [32, 16], plain),
        (c, [BLOCK, BLOCK], of_c),
    )
    descriptors = [TensorDescriptor.from_tensor(*each) for each in blocks]
    scaled_matmul_kernel[(m // BLOCK, n // BLOCK)](*descriptors, k // BLOCK, STAGES)
    return c


def main() -> None:
    """Compare with torch."""
    target = triton.runtime.driver.active.get_current_target()
    if target.backend != "cuda" or target.arch not in (100, 103):
        print("skipped: the GPU is not of the architecture Blackwell")
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for m, n, k in ((128, 128, 128), (256, 128, 640)):
        # The columns have different magnitudes, so that the scales matter.
        a, b = (torch.randn(rows, k, device=device) * torch.rand(k, device=device).exp2() for rows in (m, n))
        (a, a_scales), (b, b_scales) = quantize(a), quantize(b)
        found = scaled_matmul(a, a_scales, b, b_scales)
        expected = dequantize(a, a_scales) @ dequantize(b, b_scales).T
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-2)
        print(f"[{m}, {k}] @ [{n}, {k}].T: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
