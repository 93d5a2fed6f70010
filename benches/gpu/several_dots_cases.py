"""Loops with three dots for `gpu/products.py`: their data and configurations, and what is asked of each row."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.functional import silu

from gpu.attention_cases import LOG2_E, blocks
from gpu.product_cases import DEVICE, Problem, Row

CONFIGS = blocks(
    "128x64 w8 s2", "128x64 w8 s3", "128x128 w8 s2", "128x64 w4 s3", "64x64 w4 s2", "64x32 w4 s3"
)


def random(*shape: int) -> torch.Tensor:
    """Numbers of fp16 whose sums stay small."""
    return torch.randn(shape, device=DEVICE, dtype=torch.float16) * 0.25


def gated_mlp(rows: int, hidden: int, width: int) -> Problem:
    """A gated MLP that keeps what is between its dots on the chip."""
    x, gate, up, down = (random(count, width) for count in (rows, hidden, hidden, hidden))
    out = torch.empty(rows, width, device=DEVICE)

    def reference() -> torch.Tensor:
        return (silu(x @ gate.T) * (x @ up.T)) @ down

    return Problem(
        "gated_mlp",
        lambda _, package: (x, gate, up, down, out),
        lambda config: (rows // config["BLOCK_M"],),
        out,
        reference,
        lambda: (silu(x.float() @ gate.float().T) * (x.float() @ up.float().T)) @ down.float(),
        0.1,
        {"HIDDEN": hidden, "WIDTH": width},
        file="several_dots_kernels",
    )


def two_part_attention(queries: int, steps: int, head: int, rope: int) -> Problem:
    """Attention with scores of two parts, as latent attention has them."""
    q, k, v = random(queries, head), random(steps, head), random(steps, head)
    q_rope, k_rope = random(queries, rope), random(steps, rope)
    out = torch.empty(queries, head, device=DEVICE)
    scale = (head + rope) ** -0.5

    def expected() -> torch.Tensor:
        scores = (q.float() @ k.float().T + q_rope.float() @ k_rope.float().T) * scale
        return torch.softmax(scores, 1) @ v.float()

    return Problem(
        "two_part_attention",
        lambda _, package: (q, q_rope, k, k_rope, v, out, scale * LOG2_E),
        lambda config: (queries // config["BLOCK_M"],),
        out,
        None,
        expected,
        0.05,
        {"STEPS": steps, "HEAD": head, "ROPE": rope},
        file="several_dots_kernels",
    )


def rows(small: bool) -> Iterator[Row]:
    """Both, by widths."""
    many, depth = (128, 128) if small else (132 * 128, 8192)
    for width in (32,) if small else (64, 128):
        yield Row(
            f"three dots: gated MLP of {width}",
            "TFLOP/s",
            6.0 * many * depth * width,
            1.0,
            None,
            CONFIGS,
            lambda width=width: gated_mlp(many, depth, width),
        )
        yield Row(
            f"three dots: two-part attention, head of {width}",
            "TFLOP/s",
            2.0 * many * depth * (2 * width + width // 2),
            1.0,
            None,
            CONFIGS,
            lambda width=width: two_part_attention(many, depth, width, width // 2),
        )
