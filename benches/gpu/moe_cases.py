"""Mixtures of experts for `gpu/products.py`: bf16, fp8 and int8 with scales, and weights of 4 bits (mxfp4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch

from gpu.product_cases import DEVICE, Config, Problem, Row, blocks

SCALE_BLOCK = 128
WIDE = blocks(
    *("128x256x64 w8 s3", "128x128x64 w8 s4", "128x128x64 w4 s3", "64x128x64 w4 s4", "64x64x32 w4 s3"),
)
BYTES = blocks(
    *("128x256x128 w8 s3", "128x128x128 w8 s4", "128x128x128 w4 s3", "64x128x128 w4 s3", "64x128x128 w4 s4"),
)
PACKED = blocks(
    *("128x256x128 w8 s3", "128x128x128 w8 s3", "64x256x128 w8 s3", "64x128x128 w4 s3", "16x128x128 w4 s3"),
    *("16x256x128 w8 s3", "16x64x256 w4 s3"),
)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The values of a weight of 4 bits without its sign."""


@dataclass
class Routing:
    """The experts that tokens chose, and the tiles that follow from them."""

    tokens: int
    count: int
    top: int

    def __post_init__(self) -> None:
        self.pairs = self.tokens * self.top
        scores = torch.rand(self.tokens, self.count, device=DEVICE)
        self.chosen = scores.topk(self.top, 1).indices.flatten()

    @cache  # noqa: B019 - it lives as long as the row
    def tiles(self, block: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The pairs, sorted by expert and padded to tiles; the expert of each tile; the number of rows."""
        order, of_tile = [], []
        for expert in range(self.count):
            mine = (self.chosen == expert).nonzero().flatten().int()
            padded = -(-mine.numel() // block) * block
            order.append(torch.nn.functional.pad(mine, (0, padded - mine.numel()), value=self.pairs))
            of_tile += [expert] * (padded // block)
        rows = torch.tensor([len(of_tile) * block], dtype=torch.int32, device=DEVICE)
        return torch.cat(order), torch.tensor(of_tile, dtype=torch.int32, device=DEVICE), rows

    def grid(self, n: int, config: Config) -> tuple[int]:
        """A program for each tile of the result."""
        return (len(self.tiles(config["BLOCK_M"])[1]) * -(-n // config["BLOCK_N"]),)

    def expected(self, x: torch.Tensor, w: torch.Tensor, n: int) -> torch.Tensor:
        """The result for x and weights without scales."""
        found = torch.empty(self.pairs, n, device=DEVICE)
        for expert in range(self.count):
            mine = (self.chosen == expert).nonzero().flatten()
            found[mine] = x[mine // self.top].float() @ w[expert].float().T
        return found

    def __hash__(self) -> int:
        return id(self)


def quantized(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers of the size of 1 for bf16 and fp8; integers from -8 to 7."""
    if dtype == torch.int8:
        return torch.randint(-8, 8, shape, device=DEVICE, dtype=dtype)
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).to(dtype)


def some_scales(*shape: int) -> torch.Tensor:
    """Scales from 1/2 to 1."""
    return torch.rand(shape, device=DEVICE) * 0.5 + 0.5


def scaled_experts(routing: Routing, n: int, k: int, dtype: torch.dtype, scales: str) -> Problem:
    """x and weights of one type, with the scales of the name, or none."""
    x, w = quantized((routing.tokens, k), dtype), quantized((routing.count, n, k), dtype)
    out = torch.empty(routing.pairs, n, device=DEVICE, dtype=torch.bfloat16)
    shapes = {
        "": ((1,), (1, 1, 1)),
        "tensor": ((1,), (routing.count, 1, 1)),
        "channel": ((routing.tokens, 1), (routing.count, n, 1)),
        "block": (
            (routing.tokens, -(-k // SCALE_BLOCK)),
            (routing.count, -(-n // SCALE_BLOCK), -(-k // SCALE_BLOCK)),
        ),
    }
    x_scale, w_scale = (some_scales(*shape) for shape in shapes[scales])

    def expected() -> torch.Tensor:
        if scales == "":
            return routing.expected(x, w, n)
        wide_x, wide_w = x.float(), w.float()
        if scales == "block":
            wide_x = wide_x * x_scale.repeat_interleave(SCALE_BLOCK, 1)[:, :k]
            blocks_n = w_scale.repeat_interleave(SCALE_BLOCK, 1)[:, :n]
            return routing.expected(wide_x, wide_w * blocks_n.repeat_interleave(SCALE_BLOCK, 2)[:, :, :k], n)
        return routing.expected(wide_x * x_scale, wide_w * w_scale, n)

    def arguments(config: Config, _: object) -> tuple[object, ...]:
        sizes = (n, k, routing.pairs, x.stride(0), w.stride(0), w.stride(1), out.stride(0))
        strides = (x_scale.stride(0), w_scale.stride(0), w_scale.stride(1))
        return x, w, out, x_scale, w_scale, *routing.tiles(config["BLOCK_M"]), *sizes, *strides

    constants = {"GROUP": 8, "TOP_K": routing.top, "SCALES": scales, "SCALE_BLOCK": SCALE_BLOCK}
    constants["ACC"] = "tl.int32" if dtype == torch.int8 else "tl.float32"
    return Problem(
        "experts",
        arguments,
        lambda config: routing.grid(n, config),
        out,
        None,
        expected,
        2e-2,
        constants,
        file="moe_kernels",
    )


def mxfp4_experts(routing: Routing, n: int, k: int) -> Problem:
    """x of bf16, weights of 4 bits with a scale (a power of two) for each 32 along K."""
    x = quantized((routing.tokens, k), torch.bfloat16)
    w = torch.randint(0, 256, (routing.count, n, k // 2), device=DEVICE, dtype=torch.uint8)
    scales = torch.randint(122, 127, (routing.count, n, k // 32), device=DEVICE, dtype=torch.uint8)
    swizzled = scales.reshape(routing.count, n // 32, 32, k // 32).permute(0, 1, 3, 2).contiguous()
    swizzled = swizzled.reshape(routing.count, n // 32, k)
    out = torch.empty(routing.pairs, n, device=DEVICE, dtype=torch.bfloat16)

    def expected() -> torch.Tensor:
        values = torch.tensor([*E2M1, *(-value for value in E2M1)], device=DEVICE)
        wide = torch.stack((values[(w & 15).long()], values[(w >> 4).long()]), -1).flatten(2)
        factors = torch.exp2(scales.float() - 127).repeat_interleave(32, 2)
        return routing.expected(x, wide * factors, n)

    def arguments(config: Config, _: object) -> tuple[object, ...]:
        sizes = (n, k, routing.pairs, x.stride(0), w.stride(0), w.stride(1), out.stride(0))
        strides = (swizzled.stride(0), swizzled.stride(1))
        return x, w, out, swizzled, *routing.tiles(config["BLOCK_M"]), *sizes, *strides

    return Problem(
        "mxfp4_experts",
        arguments,
        lambda config: routing.grid(n, config),
        out,
        None,
        expected,
        2e-2,
        {"GROUP": 8, "TOP_K": routing.top},
        file="moe_kernels",
    )


def rows(small: bool) -> Iterator[Row]:
    """By type and scales: shapes of Mixtral 8x7B and, for mxfp4, of gpt-oss."""
    count, top = (2, 2) if small else (8, 2)
    tokens, n, k = (16, 256, 256) if small else (4096, 7168, 4096)
    bytes_of = torch.float8_e4m3fn
    kinds = [("bf16", torch.bfloat16, "", WIDE)]
    kinds += [
        (f"fp8, scales by {scales}", bytes_of, scales, BYTES) for scales in ("tensor", "channel", "block")
    ]
    kinds += [("int8, scales by channel", torch.int8, "channel", BYTES)]
    for name, dtype, scales, configs in kinds:
        yield Row(
            f"serving: experts {name}, {tokens} tokens, {top} of {count}",
            "TFLOP/s",
            2.0 * tokens * top * n * k,
            1.0,
            None,
            configs,
            lambda dtype=dtype, scales=scales: scaled_experts(
                Routing(tokens, count, top), n, k, dtype, scales
            ),
        )
    count, top = (2, 2) if small else (32, 4)
    n, k = (256, 256) if small else (5888, 3072)
    for tokens in (16,) if small else (64, 4096):
        yield Row(
            f"serving: experts mxfp4, {tokens} tokens, {top} of {count}",
            "TFLOP/s",
            2.0 * tokens * top * n * k,
            1.0,
            None,
            PACKED,
            lambda tokens=tokens: mxfp4_experts(Routing(tokens, count, top), n, k),
        )
