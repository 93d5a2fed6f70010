"""The Rust example that serves a layer of a transformer gives torch's numbers, on the CPU and in the simulator.

``cargo test`` builds the example, and its inputs follow from formulas that this file repeats.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")

PROGRAM = ROOT / "target/debug/examples/transformer"

SEQUENCES, STEPS = 4, 40
HEADS, KV_HEADS, HEAD = 4, 2, 64
HIDDEN, INNER = HEADS * HEAD, 512


def numbers(count: int, seed: int, scale: float) -> torch.Tensor:
    i = np.arange(count, dtype=np.int64)
    number = ((i * 7919 + seed * 104729) % 1009).astype(np.float32) / np.float32(1009) - np.float32(0.5)
    return torch.from_numpy(number * np.float32(scale))


def weight(rows: int, columns: int, seed: int, scale: float) -> torch.Tensor:
    return numbers(rows * columns, seed, scale).half().double().view(rows, columns)


def rotated(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Rotates the halves of each head by its position, with the base 10000."""
    x = x.view(SEQUENCES, STEPS, heads, HEAD)
    frequency = 10000.0 ** (-2 * torch.arange(HEAD // 2, dtype=torch.float64) / HEAD)
    angle = (torch.arange(STEPS)[:, None] * frequency)[None, :, None]
    first, second = x.split(HEAD // 2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def layer() -> torch.Tensor:
    """Computes the layer for all tokens in fp64, and returns the output of the last one."""
    norm = torch.nn.functional.rms_norm
    steps = [numbers(SEQUENCES * HIDDEN, 100 + step, 4.0).view(SEQUENCES, HIDDEN) for step in range(STEPS)]
    x = torch.stack(steps, 1).double()
    sizes = [HIDDEN, KV_HEADS * HEAD, KV_HEADS * HEAD]
    qkv = norm(x, (HIDDEN,), weight(1, HIDDEN, 1, 2.0)[0], 1e-5) @ weight(HIDDEN, sum(sizes), 2, 0.2)
    query, key, value = qkv.split(sizes, -1)
    query, key = rotated(query, HEADS), rotated(key, KV_HEADS)
    value = value.view(SEQUENCES, STEPS, KV_HEADS, HEAD)
    groups = HEADS // KV_HEADS
    attention = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.repeat_interleave(groups, 2).transpose(1, 2),
        value.repeat_interleave(groups, 2).transpose(1, 2),
        is_causal=True,
    )
    attention = attention.transpose(1, 2).reshape(SEQUENCES, STEPS, HIDDEN)
    residual = x + attention @ weight(HIDDEN, HIDDEN, 3, 0.2)
    hidden = norm(residual, (HIDDEN,), weight(1, HIDDEN, 4, 2.0)[0], 1e-5)
    gate, up = hidden @ weight(HIDDEN, INNER, 5, 0.2), hidden @ weight(HIDDEN, INNER, 6, 0.2)
    out = residual + torch.nn.functional.silu(gate) * up @ weight(INNER, HIDDEN, 7, 0.2)
    return out[:, -1]


@pytest.mark.parametrize("device", ["cpu", "sim:sm_80", "sim:sm_90"])
def test_the_transformer_layer_gives_the_numbers_of_torch(device: str, tmp_path: Path) -> None:
    if not PROGRAM.is_file():
        pytest.skip("`cargo test` has not built the example")
    output = tmp_path / "out.bin"
    subprocess.run([PROGRAM, "--device", device, "--output", output], check=True, timeout=300)
    found = torch.from_numpy(np.fromfile(output, np.float32)).view(SEQUENCES, HIDDEN).double()
    # The activations between the kernels are fp16.
    torch.testing.assert_close(found, layer(), atol=2e-3, rtol=0)
