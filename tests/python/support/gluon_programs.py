"""Programs of the examples of Gluon in `tests/reference/gluon.md`."""

from __future__ import annotations

import re

import numpy as np

# The begin of each example of Gluon.
GLUON_IMPORTS = """\
import torch
import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl
from tilewright.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from tilewright.experimental.gluon.language.nvidia.hopper import (
    cluster, fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait,
)
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout, TensorMemoryScalesLayout, allocate_tensor_memory, clc, tcgen05_commit, tcgen05_copy,
    tcgen05_mma, tcgen05_mma_barrier_count, tcgen05_mma_scaled, tensor_memory_descriptor_type,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col
"""

# The first lines of each kernel of Gluon, as the page says.
GLUON_PRELUDE = """\
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    matrix: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    tmem_layout: gl.constexpr = TensorMemoryLayout([128, 64], 1)
    x = gl.load(x_ptr + 1 + gl.arange(0, 4, layout=layout))
"""


def gluon_offsets(name: str, shape: tuple[int, ...]) -> str:
    """The offsets of a tile's elements in row-major order, in the layout of the tile."""
    layout = f"{name}.type.layout"
    if not shape:
        return ""
    if len(shape) == 1:
        return f" + gl.arange(0, {shape[0]}, layout={layout})"
    rows, columns = shape
    return (
        f" + gl.arange(0, {rows}, layout=gl.SliceLayout(1, {layout}))[:, None] * {columns}"
        f" + gl.arange(0, {columns}, layout=gl.SliceLayout(0, {layout}))[None, :]"
    )


def definitions(lines: list[str]) -> int:
    """Returns the number of the first lines that define functions for the kernel: up to the last empty line."""
    if not lines or not lines[0].startswith("@"):
        return 0
    return max(number for number, line in enumerate(lines) if not line) + 1


def gluon_kernel(
    lines: list[str],
    values: list[tuple[int, str, np.ndarray]],
    parameters: str = "x_ptr, x_desc, out_desc, pixels_desc",
) -> str:
    """A kernel of Gluon with these lines, which stores the values, each after its line."""
    outputs = "".join(f", out{index}" for index in range(len(values)))
    first = definitions(lines)
    text = [GLUON_IMPORTS, "\n", *(f"{line}\n" for line in lines[:first])]
    text.append(f"@gluon.jit\ndef kernel({parameters}{outputs}):\n{GLUON_PRELUDE}")
    for number, line in enumerate(lines[first:], first):
        text.append(f"    {line}\n")
        for index, (at, name, value) in enumerate(values):
            if at == number:
                text.append(f"    gl.store(out{index}{gluon_offsets(name, value.shape)}, {name})\n")
    return "".join(text)


def in_gluon(lines: list[str]) -> list[str]:
    """Returns the lines of an example of ``tl`` as lines of Gluon, where each new tile has a layout of the page."""
    return [_line_in_gluon(line) for line in lines]


def _line_in_gluon(line: str) -> str:
    line = line.replace("tl.debug_barrier", "gl.barrier").replace("tl.", "gl.")
    line = line.replace("@triton.jit", "@gluon.jit")
    for axis, index in ((1, r"\[:, None\]"), (0, r"\[None, :\]")):
        slice_layout = f"gl.SliceLayout({axis}, matrix)"
        line = re.sub(rf"gl\.arange\(([^()]*)\)(?={index})", rf"gl.arange(\1, layout={slice_layout})", line)
    line = re.sub(r"gl\.arange\(([^()]*)\)(?!\[)", r"gl.arange(\1, layout=layout)", line)

    def made(match: re.Match[str]) -> str:
        layout = "matrix" if re.search(r"\d, \d", match[2]) else "layout"
        return f"gl.{match[1]}({match[2]}{match[3]}, layout={layout})"

    return re.sub(r"gl\.(full|zeros)\(([(\[][\d, ]+[)\]])((?:, [^(),]+)*)\)", made, line)
