"""Gluon programs for `gpu/products.py`: their data, and one row for each size and configuration."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpu.attention_cases import LOG2_E
from gpu.product_cases import DEVICE, Config, Problem, Row, tiles

ASKED = 0.97
"""The ratio to the official compiler: the program states everything that decides its time."""


def make_descriptors(package: ModuleType, *blocks: tuple[torch.Tensor, list[int]]) -> list[Any]:
    """Descriptors of tensors and their blocks, whose rows are swizzled in groups of 128 bytes."""
    gluon = f"{package.__name__}.experimental.gluon"
    layout = importlib.import_module(f"{gluon}.language").NVMMASharedLayout(128, 16, 2)
    make = importlib.import_module(f"{gluon}.nvidia.hopper").TensorDescriptor.from_tensor
    return [make(tensor, block, layout) for tensor, block in blocks]


def matmul(size: int, rows: int, columns: int, depth: int) -> Problem:
    """A @ B.T in blocks of `rows` x `columns`, `depth` elements of K at a time."""
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def arguments(_: Config, package: ModuleType) -> tuple[Any, ...]:
        blocks = (a, [rows, depth]), (b, [columns, depth]), (c, [rows, columns])
        return *make_descriptors(package, *blocks), size, size, size

    return Problem(
        "matmul",
        arguments,
        lambda _: tiles(size, size)({"BLOCK_M": rows, "BLOCK_N": columns}),
        c,
        lambda: torch.matmul(a, b.T),
        lambda: a @ b.T,
        2e-2,
        {"GROUP": 8},
        file="gluon_matmul",
    )


def attention(heads: int, length: int, head: int, queries: int, keys: int, causal: bool) -> Problem:
    """Attention forward in blocks of `queries` by `keys` rows."""
    q, k, v = (torch.randn(heads, length, head, device=DEVICE, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)

    def arguments(_: Config, package: ModuleType) -> tuple[Any, ...]:
        tensors = (q, queries), (k, keys), (v, keys), (out, queries)
        blocks = [(tensor.view(-1, head), [rows, head]) for tensor, rows in tensors]
        return *make_descriptors(package, *blocks), length, head**-0.5 * LOG2_E

    def reference() -> torch.Tensor:
        return scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]

    return Problem(
        "attention",
        arguments,
        lambda _: (length // queries, heads),
        out,
        reference,
        reference,
        0.1,
        {"IS_CAUSAL": causal},
        file="gluon_attention",
    )


def rows(small: bool) -> Iterator[Row]:
    """The matmul, then attention. A configuration is the block, the slots of each ring, and the warps."""
    matmuls = ((128, 128, 64, 4, 4), (128, 256, 64, 3, 8))
    for size in (256,) if small else (4096, 8192):
        for m, n, k, slots, warps in matmuls:
            yield Row(
                f"Gluon matmul fp16 {size}, {m}x{n}x{k}",
                "TFLOP/s",
                2.0 * size**3,
                ASKED,
                None,
                [{"STAGES": slots, "num_warps": warps}],
                lambda size=size, m=m, n=n, k=k: matmul(size, m, n, k),
            )
    heads, lengths = (1, (256,)) if small else (64, (1024, 4096, 16384))
    attentions = ((64, 128, 64, 2, 4), (64, 128, 128, 2, 8), (128, 128, 64, 2, 8), (128, 128, 128, 2, 8))
    for head, queries, keys, slots, warps in attentions:
        for length in lengths:
            for causal in (False, True):
                work = 4.0 * heads * length**2 * head * (0.5 if causal else 1.0)
                yield Row(
                    f"Gluon attention {length}, {head}, {queries}x{keys}{', causal' if causal else ''}",
                    "TFLOP/s",
                    work,
                    ASKED,
                    None,
                    [{"STAGES": slots, "num_warps": warps}],
                    lambda shape=(heads, length, head, queries, keys, causal): attention(*shape),
                )
