"""The throughput cases: for each, what tilewright and torch are asked to compute.

Both sides allocate their output in each call, as the wrappers of Triton's tutorials and torch's functions do. In a case
with `into`, both write into an existing output: without the cost of fresh pages, that shows the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import kernels
import torch
import triton

Run = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """One computation, done by a kernel and by torch; `floor` is the required ratio torch / kernel time."""

    name: str
    floor: float | None
    kernel: Run
    torch: Run
    tolerance: float = 1e-5


def vector_add(size: int = 1 << 24, block: int = 1024, *, into: bool = False) -> Case:
    """Vector addition."""
    x, y = torch.rand(size), torch.rand(size)
    ours = torch.empty_like(x) if into else None
    theirs = torch.empty_like(x) if into else None

    def kernel() -> torch.Tensor:
        out = torch.empty_like(x) if ours is None else ours
        kernels.add_kernel[(triton.cdiv(size, block),)](x, y, out, size, BLOCK=block)
        return out

    name = f"vector add {size} fp32{' into' if into else ''}"
    return Case(name, None if into else 0.9, kernel, lambda: torch.add(x, y, out=theirs))


def softmax(rows: int = 1823, cols: int = 781, *, into: bool = False) -> Case:
    """Softmax over rows."""
    x = torch.randn(rows, cols)
    ours = torch.empty_like(x) if into else None
    theirs = torch.empty_like(x) if into else None
    block = triton.next_power_of_2(cols)

    def kernel() -> torch.Tensor:
        out = torch.empty_like(x) if ours is None else ours
        kernels.softmax_kernel[(rows,)](out, x, x.stride(0), cols, BLOCK=block)
        return out

    name = f"softmax {rows}x{cols} fp32{' into' if into else ''}"
    return Case(name, None if into else 0.9, kernel, lambda: torch.softmax(x, dim=1, out=theirs))


def layer_norm(rows: int = 1024, cols: int = 1024) -> Case:
    """Layer norm over rows."""
    x, weight, bias = torch.randn(rows, cols), torch.rand(cols), torch.rand(cols)
    block = triton.next_power_of_2(cols)

    def kernel() -> torch.Tensor:
        out = torch.empty_like(x)
        kernels.layer_norm_kernel[(rows,)](x, weight, bias, out, x.stride(0), cols, 1e-5, BLOCK=block)
        return out

    def reference() -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (cols,), weight, bias)

    return Case(f"layer norm {rows}x{cols} fp32", 0.8, kernel, reference)


def matmul(size: int = 512, dtype: torch.dtype = torch.float32, floor: float = 0.6) -> Case:
    """Matrix product."""
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    block_m, block_n, block_k = 64, 64, 64
    grid = (triton.cdiv(size, block_m), triton.cdiv(size, block_n))

    def kernel() -> torch.Tensor:
        out = torch.empty_like(a)
        strides = (*a.stride(), *b.stride(), *out.stride())
        kernels.matmul_kernel[grid](
            a, b, out, size, size, size, *strides, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k
        )
        return out

    name = {torch.float32: "fp32", torch.float16: "fp16"}[dtype]
    tolerance = 1e-4 if dtype == torch.float32 else 1e-1
    return Case(f"matmul {size}^3 {name}", floor, kernel, lambda: torch.matmul(a, b), tolerance)


def attention(batch: int = 1, heads: int = 2, rows: int = 512, head: int = 64) -> Case:
    """Attention forward."""
    q, k, v = (torch.randn(batch, heads, rows, head) for _ in range(3))
    block_m, block_n = 64, 64
    grid = (rows // block_m, batch * heads)

    def kernel() -> torch.Tensor:
        out = torch.empty_like(q)
        kernels.attention_kernel[grid](
            q,
            k,
            v,
            out,
            q.stride(1),
            q.stride(2),
            rows,
            head**-0.5,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            HEAD=head,
        )
        return out

    def reference() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return Case(f"attention {batch}x{heads}x{rows}x{head} fp32", 0.8, kernel, reference)


def all_cases() -> list[Case]:
    """Every case, in the order of the table."""
    return [
        vector_add(),
        vector_add(into=True),
        softmax(),
        softmax(into=True),
        layer_norm(),
        matmul(),
        matmul(dtype=torch.float16, floor=1.0),
        attention(),
    ]


def interpreter_cases() -> list[Case]:
    """Cases that an interpreter can run in reasonable time: the same, with a smaller vector."""
    return [vector_add(1 << 22), softmax(), layer_norm(), matmul(), attention()]
