"""The rows of `cpu_rows.py`: for each, a launch of a kernel and the same computation by torch.

Each row says where the outputs go, since fresh pages can cost more than the kernel:

- `into`: both sides write into an output that exists, torch by its `out=` variants or in place;
- `fresh`: both allocate the output in each call, because torch has no variant that writes into one. `cpu_rows.py` sets
  the allocator to keep its pages, so that calls after the first find them.

Temporaries of torch, where the computation is several functions, are allocated in either case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cpu_kernels
import kernels
import torch
import triton
from torch import Tensor
from torch.nn import functional

POINTWISE_BLOCK = 1024
NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int32: "int32",
    torch.int8: "int8",
}
TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Absolute and relative differences that the results may have; elements of other types are equal."""
MAX_SHIFT_OF_FREQUENCY = 0.01
"""Difference between the share of elements that a dropout keeps and its probability."""


@dataclass(frozen=True)
class Case:
    """The tensors and calls of one row.

    `fused` is the computation as a function of `operands` that returns a new tensor, for `torch.compile`; `None` if the
    computation is one function of a library anyway. `check` replaces the comparison of both results.
    """

    ours: Callable[[], Tensor]
    theirs: Callable[[], Tensor]
    tolerance: float = 0.0
    fused: Callable[..., Tensor] | None = None
    operands: tuple[Any, ...] = ()
    check: Callable[[Tensor], None] | None = None


@dataclass(frozen=True)
class Row:
    """A line of the table, with the function that makes its case."""

    kernel: str
    size: str
    dtype: str
    output: str
    make: Callable[[], Case]

    @property
    def name(self) -> str:
        """The name that `--only` searches."""
        return f"{self.kernel} {self.size} {self.dtype}"


ROWS: list[Row] = []
"""All rows, in the order of the table."""


def add_row(
    kernel: str, size: str, dtype: torch.dtype, output: str, make: Callable[..., Case], *arguments: Any
) -> None:
    """Appends a row whose case is `make(*arguments, dtype)`."""
    ROWS.append(Row(kernel, size, NAMES[dtype], output, lambda: make(*arguments, dtype)))


def random(dtype: torch.dtype, *shape: int) -> Tensor:
    """Returns normal variates, or for an integer type all its numbers with the same probability."""
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max, shape, dtype=dtype)


def launch_pointwise(kernel: Any, size: int, *arguments: Any) -> None:
    """Launches a pointwise kernel on `size` elements."""
    kernel[(triton.cdiv(size, POINTWISE_BLOCK),)](*arguments, BLOCK=POINTWISE_BLOCK)


# Pointwise


def add(size: int, dtype: torch.dtype) -> Case:
    x, y = random(dtype, size), random(dtype, size)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)

    def run() -> Tensor:
        launch_pointwise(kernels.add_kernel, size, x, y, ours, size)
        return ours

    return Case(
        run, lambda: torch.add(x, y, out=theirs), TOLERANCES.get(dtype, 0.0), lambda a, b: a + b, (x, y)
    )


def activation(
    kernel: Any, into: Callable[[Tensor, Tensor], Tensor], fused: Any, size: int, dtype: torch.dtype
) -> Case:
    """A function of one tensor; `into` writes torch's result into its second argument."""
    x = random(dtype, size)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)

    def run() -> Tensor:
        launch_pointwise(kernel, size, x, ours, size)
        return ours

    return Case(run, lambda: into(x, theirs), TOLERANCES[dtype], fused, (x,))


def gelu(approximate: str, size: int, dtype: torch.dtype) -> Case:
    kernel = {"none": cpu_kernels.gelu_erf_kernel, "tanh": cpu_kernels.gelu_tanh_kernel}[approximate]
    return activation(
        kernel,
        lambda x, out: torch._C._nn.gelu(x, approximate=approximate, out=out),
        lambda x: functional.gelu(x, approximate=approximate),
        size,
        dtype,
    )


def silu(size: int, dtype: torch.dtype) -> Case:
    return activation(
        cpu_kernels.silu_kernel, lambda x, out: torch._C._nn.silu(x, out=out), functional.silu, size, dtype
    )


def swiglu(size: int, dtype: torch.dtype) -> Case:
    gate, up = random(dtype, size), random(dtype, size)
    ours, theirs = torch.empty_like(gate), torch.empty_like(gate)

    def run() -> Tensor:
        launch_pointwise(cpu_kernels.swiglu_kernel, size, gate, up, ours, size)
        return ours

    def reference() -> Tensor:
        torch._C._nn.silu(gate, out=theirs)
        return torch.mul(theirs, up, out=theirs)

    return Case(run, reference, 2 * TOLERANCES[dtype], lambda g, u: functional.silu(g) * u, (gate, up))


def dropout(size: int, dtype: torch.dtype) -> Case:
    x, p = random(dtype, size), 0.5
    seeds = itertools.count()

    def run() -> Tensor:
        out = torch.empty_like(x)
        launch_pointwise(cpu_kernels.dropout_kernel, size, x, out, size, p, next(seeds))
        return out

    def check(result: Tensor) -> None:
        kept = result != 0
        torch.testing.assert_close(result, torch.where(kept, x / (1 - p), 0.0))
        assert abs(kept.float().mean().item() - (1 - p)) < MAX_SHIFT_OF_FREQUENCY

    return Case(
        run,
        lambda: functional.dropout(x, p),
        fused=lambda x: functional.dropout(x, p),
        operands=(x,),
        check=check,
    )


def select(size: int, dtype: torch.dtype) -> Case:
    x, y = random(dtype, size), random(dtype, size)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)
    is_greater = torch.empty(size, dtype=torch.bool)

    def run() -> Tensor:
        launch_pointwise(cpu_kernels.where_kernel, size, x, y, ours, size)
        return ours

    def reference() -> Tensor:
        return torch.where(torch.gt(x, y, out=is_greater), x, y, out=theirs)

    return Case(run, reference, fused=lambda x, y: torch.where(x > y, x, y), operands=(x, y))


def shift(size: int, dtype: torch.dtype) -> Case:
    x = random(dtype, size)
    ours, theirs, right = (torch.empty_like(x) for _ in range(3))

    def run() -> Tensor:
        launch_pointwise(cpu_kernels.shift_kernel, size, x, ours, size)
        return ours

    def reference() -> Tensor:
        torch.bitwise_left_shift(x, 5, out=theirs)
        torch.bitwise_right_shift(x, 3, out=right)
        return torch.bitwise_xor(theirs, right, out=theirs)

    return Case(run, reference, fused=lambda x: (x << 5) ^ (x >> 3), operands=(x,))


def relu_backward(size: int, dtype: torch.dtype) -> Case:
    grad, x = random(dtype, size), random(dtype, size)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)

    def run() -> Tensor:
        launch_pointwise(cpu_kernels.relu_backward_kernel, size, grad, x, ours, size)
        return ours

    def reference() -> Tensor:
        return torch.ops.aten.threshold_backward.grad_input(grad, x, 0, grad_input=theirs)

    return Case(run, reference, fused=lambda grad, x: torch.where(x > 0, grad, 0.0), operands=(grad, x))


def clamp_backward(size: int, dtype: torch.dtype) -> Case:
    grad, x = random(dtype, size), random(dtype, size)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)

    def run() -> Tensor:
        launch_pointwise(cpu_kernels.clamp_backward_kernel, size, grad, x, ours, size, -1.0, 1.0)
        return ours

    def reference() -> Tensor:
        return torch.ops.aten.hardtanh_backward.grad_input(grad, x, -1, 1, grad_input=theirs)

    def fused(grad: Tensor, x: Tensor) -> Tensor:
        return torch.where((x > -1.0) & (x < 1.0), grad, 0.0)

    return Case(run, reference, fused=fused, operands=(grad, x))


def adam(size: int, dtype: torch.dtype) -> Case:
    """A step of Adam in place; both sides begin with the same parameters and take one step a call."""
    rate, beta1, beta2, eps = 1e-3, 0.9, 0.999, 1e-8
    start, grad = random(dtype, size), random(dtype, size)
    ours, mean, square = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    theirs = torch.nn.Parameter(start.clone())
    theirs.grad = grad.clone()
    optimizer = torch.optim.Adam([theirs], rate, (beta1, beta2), eps, fused=True)
    steps = itertools.count(1)

    def run() -> Tensor:
        step = next(steps)
        step_size, root = rate / (1 - beta1**step), (1 - beta2**step) ** 0.5
        launch_pointwise(
            cpu_kernels.adam_kernel, size, ours, grad, mean, square, size, step_size, beta1, beta2, eps, root
        )
        return ours

    def reference() -> Tensor:
        optimizer.step()
        return theirs.detach()

    return Case(run, reference, TOLERANCES[dtype])


# Rows


def softmax(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x = random(dtype, rows, cols)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        cpu_kernels.softmax_rows_kernel[(rows,)](ours, x, x.stride(0), cols, BLOCK=block)
        return ours

    return Case(
        run,
        lambda: torch.softmax(x, dim=1, out=theirs),
        TOLERANCES[dtype],
        lambda x: torch.softmax(x, dim=1),
        (x,),
    )


def layer_norm(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x, weight, bias = random(dtype, rows, cols), random(dtype, cols), random(dtype, cols)
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        out = torch.empty_like(x)
        kernels.layer_norm_kernel[(rows,)](x, weight, bias, out, x.stride(0), cols, 1e-5, BLOCK=block)
        return out

    def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (cols,), weight, bias, 1e-5)

    operands = (x, weight, bias)
    return Case(run, lambda: reference(*operands), 2 * TOLERANCES[dtype], reference, operands)


def rms_norm(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x, weight = random(dtype, rows, cols), random(dtype, cols)
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        out = torch.empty_like(x)
        cpu_kernels.rms_norm_kernel[(rows,)](x, weight, out, x.stride(0), cols, 1e-5, BLOCK=block)
        return out

    def reference(x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (cols,), weight, 1e-5)

    return Case(run, lambda: reference(x, weight), 2 * TOLERANCES[dtype], reference, (x, weight))


def cross_entropy(rows: int, cols: int, dtype: torch.dtype) -> Case:
    logits, labels = random(dtype, rows, cols), torch.randint(cols, (rows,))
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        loss = torch.empty(rows, dtype=dtype)
        cpu_kernels.cross_entropy_kernel[(rows,)](logits, labels, loss, logits.stride(0), cols, BLOCK=block)
        return loss

    def reference(logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none")

    return Case(run, lambda: reference(logits, labels), TOLERANCES[dtype], reference, (logits, labels))


def reduce_rows(
    kernel: Any,
    reduce: Callable[..., Tensor],
    rows: int,
    cols: int,
    dtype: torch.dtype,
    tolerance: float = 0.0,
) -> Case:
    """A reduction of rows to one number each; `reduce` is torch's, with an `out`."""
    x = random(dtype, rows, cols)
    ours = torch.empty_like(reduce(x, 1))
    theirs = torch.empty_like(ours)
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        kernel[(rows,)](x, ours, x.stride(0), cols, BLOCK=block)
        return ours

    return Case(run, lambda: reduce(x, 1, out=theirs), tolerance, lambda x: reduce(x, 1), (x,))


def row_sum(rows: int, cols: int, dtype: torch.dtype) -> Case:
    return reduce_rows(cpu_kernels.row_sum_kernel, torch.sum, rows, cols, dtype, 50 * TOLERANCES[dtype])


def row_max(rows: int, cols: int, dtype: torch.dtype) -> Case:
    return reduce_rows(cpu_kernels.row_max_kernel, torch.amax, rows, cols, dtype)


def argmax(rows: int, cols: int, dtype: torch.dtype) -> Case:
    return reduce_rows(cpu_kernels.argmax_kernel, torch.argmax, rows, cols, dtype)


def cumsum(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x = random(dtype, rows, cols)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        cpu_kernels.cumsum_kernel[(rows,)](x, ours, x.stride(0), cols, BLOCK=block)
        return ours

    def reference() -> Tensor:
        return torch.cumsum(x, 1, dtype=dtype, out=theirs)

    tolerance = 50 * TOLERANCES.get(dtype, 0.0)
    return Case(run, reference, tolerance, lambda x: torch.cumsum(x, 1, dtype=dtype), (x,))


def sort(rows: int, cols: int, dtype: torch.dtype) -> Case:
    """Sorted rows; torch computes their indices as well."""
    x = random(dtype, rows, cols)
    ours, theirs = torch.empty_like(x), torch.empty_like(x)
    indices = torch.empty(x.shape, dtype=torch.int64)

    def run() -> Tensor:
        cpu_kernels.sort_kernel[(rows,)](x, ours, x.stride(0), cols)
        return ours

    return Case(run, lambda: torch.sort(x, 1, out=(theirs, indices))[0])


def topk(rows: int, cols: int, k: int, dtype: torch.dtype) -> Case:
    """The greatest elements of rows; torch computes their indices as well."""
    x = random(dtype, rows, cols)
    ours, theirs = torch.empty(rows, k, dtype=dtype), torch.empty(rows, k, dtype=dtype)
    indices = torch.empty(rows, k, dtype=torch.int64)

    def run() -> Tensor:
        cpu_kernels.topk_kernel[(rows,)](x, ours, x.stride(0), cols, k)
        return ours

    return Case(run, lambda: torch.topk(x, k, 1, out=(theirs, indices))[0])


def embedding(rows: int, width: int, dtype: torch.dtype) -> Case:
    table, ids = random(dtype, 32000, width), torch.randint(32000, (rows,))
    ours, theirs = torch.empty(rows, width, dtype=dtype), torch.empty(rows, width, dtype=dtype)
    block = triton.next_power_of_2(width)

    def run() -> Tensor:
        cpu_kernels.embedding_kernel[(rows,)](ids, table, ours, width, BLOCK=block)
        return ours

    return Case(
        run,
        lambda: torch.index_select(table, 0, ids, out=theirs),
        fused=lambda table, ids: functional.embedding(ids, table),
        operands=(table, ids),
    )


def quantize(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x = random(dtype, rows, cols)
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        out, scale = torch.empty(rows, cols, dtype=torch.int8), torch.empty(rows)
        cpu_kernels.quantize_rows_kernel[(rows,)](x, out, scale, x.stride(0), cols, BLOCK=block)
        return out

    def reference(x: Tensor) -> Tensor:
        wide = x.float()
        scale = wide.abs().amax(1, keepdim=True) / 127.0
        return (wide / scale).round().to(torch.int8)

    return Case(run, lambda: reference(x), 0.0, reference, (x,))


def dequantize(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x, scale = random(torch.int8, rows, cols), torch.rand(rows, 1)
    ours, theirs = torch.empty(rows, cols, dtype=dtype), torch.empty(rows, cols, dtype=dtype)
    block = triton.next_power_of_2(cols)

    def run() -> Tensor:
        cpu_kernels.dequantize_rows_kernel[(rows,)](x, scale, ours, x.stride(0), cols, BLOCK=block)
        return ours

    return Case(
        run,
        lambda: torch.mul(x, scale, out=theirs),
        TOLERANCES[dtype],
        lambda x, scale: (x * scale).to(dtype),
        (x, scale),
    )


def batch_norm(images: int, channels: int, side: int, dtype: torch.dtype) -> Case:
    x = random(dtype, images, channels, side, side)
    mean, variance, weight, bias = (torch.rand(channels) + 0.5 for _ in range(4))
    plane = side * side
    block = triton.next_power_of_2(plane)

    def run() -> Tensor:
        out = torch.empty_like(x)
        cpu_kernels.batch_norm_kernel[(images * channels,)](
            x, mean, variance, weight, bias, out, channels, plane, 1e-5, BLOCK=block
        )
        return out

    def reference(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.batch_norm(x, mean, variance, weight, bias, eps=1e-5)

    operands = (x, mean, variance, weight, bias)
    return Case(run, lambda: reference(*operands), 2 * TOLERANCES[dtype], reference, operands)


def rope(positions: int, heads: int, width: int, dtype: torch.dtype) -> Case:
    x = random(dtype, positions, heads, width)
    angles = torch.rand(positions, width // 2) * 6.28
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    wide_cos = torch.cat((cos, cos), 1)[:, None, :]
    wide_sin = torch.cat((sin, sin), 1)[:, None, :]

    def run() -> Tensor:
        out = torch.empty_like(x)
        cpu_kernels.rope_kernel[(positions,)](x, cos, sin, out, heads, width // 2)
        return out

    def reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    operands = (x, wide_cos, wide_sin)
    return Case(run, lambda: reference(*operands), 2 * TOLERANCES[dtype], reference, operands)


# Tiles


def column_sum(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x = random(dtype, rows, cols)
    ours, theirs = torch.empty(cols, dtype=dtype), torch.empty(cols, dtype=dtype)
    block_m, block_n = 32, 128

    def run() -> Tensor:
        cpu_kernels.column_sum_kernel[(triton.cdiv(cols, block_n),)](
            x, ours, rows, cols, BLOCK_M=block_m, BLOCK_N=block_n
        )
        return ours

    return Case(
        run,
        lambda: torch.sum(x, 0, out=theirs),
        50 * TOLERANCES[dtype],
        lambda x: torch.sum(x, 0),
        (x,),
    )


def transpose(rows: int, cols: int, dtype: torch.dtype) -> Case:
    x = random(dtype, rows, cols)
    ours, theirs = torch.empty(cols, rows, dtype=dtype), torch.empty(cols, rows, dtype=dtype)
    block = 64

    def run() -> Tensor:
        grid = (triton.cdiv(rows, block), triton.cdiv(cols, block))
        cpu_kernels.transpose_kernel[grid](x, ours, rows, cols, BLOCK=block)
        return ours

    return Case(run, lambda: theirs.copy_(x.t()), fused=lambda x: x.t().contiguous(), operands=(x,))


def int8_vector(n: int, k: int, dtype: torch.dtype) -> Case:
    """int8 weights times a vector; torch dequantizes in fp32 and has one function for bf16."""
    weight, x = random(torch.int8, n, k), random(dtype, 1, k)
    scale = (torch.rand(n) / 1000).to(dtype)

    def run() -> Tensor:
        out = torch.empty(1, n, dtype=dtype)
        cpu_kernels.int8_vector_kernel[(triton.cdiv(n, 16),)](
            weight, scale, x, out, n, k, BLOCK_N=16, BLOCK_K=256
        )
        return out

    def dequantized(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        return (x @ weight.to(dtype).t()) * scale

    def reference() -> Tensor:
        if dtype == torch.bfloat16:
            return torch.ops.aten._weight_int8pack_mm(x, weight, scale)
        return dequantized(x, weight, scale)

    return Case(run, reference, 5 * TOLERANCES[dtype], dequantized, (x, weight, scale))


def int8_dot(m: int, n: int, k: int, dtype: torch.dtype) -> Case:
    """A few vectors times int8 weights; torch dequantizes in fp32 and has one function for bf16."""
    weight, x = random(torch.int8, n, k), random(dtype, m, k)
    scale = (torch.rand(n) / 1000).to(dtype)

    def run() -> Tensor:
        out = torch.empty(m, n, dtype=dtype)
        cpu_kernels.int8_dot_kernel[(triton.cdiv(n, 64),)](
            x, weight, scale, out, n, k, BLOCK_M=m, BLOCK_N=64, BLOCK_K=64
        )
        return out

    def dequantized(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        return (x @ weight.to(dtype).t()) * scale

    def reference() -> Tensor:
        if dtype == torch.bfloat16:
            return torch.ops.aten._weight_int8pack_mm(x, weight, scale)
        return dequantized(x, weight, scale)

    return Case(run, reference, 5 * TOLERANCES[dtype], dequantized, (x, weight, scale))


def matmul(size: int, dtype: torch.dtype) -> Case:
    a, b = random(dtype, size, size), random(dtype, size, size)
    ours, theirs = torch.empty_like(a), torch.empty_like(a)
    block = 64
    grid = (triton.cdiv(size, block), triton.cdiv(size, block))

    def run() -> Tensor:
        strides = (*a.stride(), *b.stride(), *ours.stride())
        kernels.matmul_kernel[grid](
            a, b, ours, size, size, size, *strides, BLOCK_M=block, BLOCK_N=block, BLOCK_K=block
        )
        return ours

    return Case(run, lambda: torch.matmul(a, b, out=theirs), 20 * TOLERANCES[dtype])


def attention(heads: int, rows: int, width: int, dtype: torch.dtype) -> Case:
    q, k, v = (random(dtype, 1, heads, rows, width) for _ in range(3))
    block_m, block_n = 64, 64
    grid = (rows // block_m, heads)

    def run() -> Tensor:
        out = torch.empty_like(q)
        kernels.attention_kernel[grid](
            q,
            k,
            v,
            out,
            q.stride(1),
            q.stride(2),
            rows,
            width**-0.5,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            HEAD=width,
        )
        return out

    return Case(run, lambda: functional.scaled_dot_product_attention(q, k, v), TOLERANCES[dtype])


# The table

FP32, FP64, FP16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
INT32 = torch.int32

for count, label in ((1 << 22, "4M"), (1 << 18, "256k"), (1 << 14, "16k")):
    for dtype in (FP32, BF16, FP16, INT32):
        add_row("add", label, dtype, "into", add, count)
add_row("add", "4M", FP64, "into", add, 1 << 22)
for dtype in (FP32, BF16, FP16):
    add_row("gelu erf", "4M", dtype, "into", gelu, "none", 1 << 22)
for dtype in (FP32, BF16, FP16):
    add_row("gelu tanh", "4M", dtype, "into", gelu, "tanh", 1 << 22)
for dtype in (FP32, BF16, FP16):
    add_row("silu", "4M", dtype, "into", silu, 1 << 22)
for dtype in (FP32, BF16, FP16):
    add_row("swiglu", "4M", dtype, "into", swiglu, 1 << 22)
for dtype in (FP32, BF16):
    add_row("relu backward", "4M", dtype, "into", relu_backward, 1 << 22)
for dtype in (FP32, BF16):
    add_row("clamp backward", "4M", dtype, "into", clamp_backward, 1 << 22)
for dtype in (FP32, BF16):
    add_row("dropout", "4M", dtype, "fresh", dropout, 1 << 22)
add_row("adam step", "4M", FP32, "into", adam, 1 << 22)
add_row("where", "4M", INT32, "into", select, 1 << 22)
add_row("shifts", "4M", INT32, "into", shift, 1 << 22)
for name, output, make in (
    ("softmax", "into", softmax),
    ("layer norm", "fresh", layer_norm),
    ("rms norm", "fresh", rms_norm),
):
    for shape in ((1823, 781), (512, 4096), (64, 32000)):
        for dtype in (FP32, BF16):
            add_row(name, "x".join(map(str, shape)), dtype, output, make, *shape)
for dtype in (FP32, BF16):
    add_row("cross entropy", "256x32000", dtype, "fresh", cross_entropy, 256, 32000)
for name, make in (
    ("row sum", row_sum),
    ("row max", row_max),
    ("column sum", column_sum),
    ("transpose", transpose),
):
    for dtype in (FP32, BF16):
        add_row(name, "4096x1024", dtype, "into", make, 4096, 1024)
add_row("argmax", "2048x1000", FP32, "into", argmax, 2048, 1000)
for dtype in (FP32, INT32):
    add_row("cumsum", "2048x1000", dtype, "into", cumsum, 2048, 1000)
for dtype in (FP32, INT32):
    add_row("sort", "2048x256", dtype, "into", sort, 2048, 256)
add_row("topk 8", "2048x256", FP32, "into", topk, 2048, 256, 8)
for dtype in (FP32, BF16):
    add_row("embedding", "8192x512", dtype, "into", embedding, 8192, 512)
for dtype in (FP32, BF16):
    add_row("quantize rows", "2048x1024", dtype, "fresh", quantize, 2048, 1024)
for dtype in (FP32, BF16):
    add_row("dequantize rows", "2048x1024", dtype, "into", dequantize, 2048, 1024)
for dtype in (FP32, BF16):
    add_row("batch norm", "8x64x56x56", dtype, "fresh", batch_norm, 8, 64, 56)
for dtype in (FP32, BF16):
    add_row("rope", "2048x32x128", dtype, "fresh", rope, 2048, 32, 128)
for dtype in (FP32, BF16):
    add_row("int8 weights, vector", "4096x4096", dtype, "fresh", int8_vector, 4096, 4096)
for dtype in (FP32, BF16):
    add_row("int8 weights, 16 vectors", "2048x2048", dtype, "fresh", int8_dot, 16, 2048, 2048)
for dtype in (FP32, BF16):
    for count in (128, 512, 1024):
        add_row("matmul", f"{count}^3", dtype, "into", matmul, count)
for dtype in (FP32, BF16):
    add_row("attention", "4x1024x64", dtype, "fresh", attention, 4, 1024, 64)
