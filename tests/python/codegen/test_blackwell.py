"""Pairs of fp32 numbers and accesses of 32 bytes: the code for `sm_100`, and its results beside numpy's."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

import tilewright as triton
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource


@triton.jit
def polynomial(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, ALIGNMENT: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < tl.multiple_of(n, 16)
    x = tl.load(tl.multiple_of(x_ptr, ALIGNMENT) + offsets, mask=mask)
    y = tl.load(tl.multiple_of(y_ptr, ALIGNMENT) + offsets, mask=mask)
    tl.store(tl.multiple_of(out_ptr, ALIGNMENT) + offsets, (x * y + 1.5) * x - y, mask=mask)


def text(arch, alignment):
    types = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32")
    constants = {"BLOCK": 1024, "ALIGNMENT": alignment}
    signature = {**types, "n": "i32", **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(polynomial, signature, constants)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["ptx"]


def test_a_hint_about_addresses_gives_accesses_of_32_bytes():
    wide = text(100, 32)
    assert (wide.count("ld.global.v8.b32"), wide.count("st.global.v8.b32")) == (2, 1)
    assert ".version 8.8" in wide
    for arch, alignment in ((100, 16), (90, 32)):
        narrow = text(arch, alignment)
        assert (narrow.count("ld.global.v4.b32"), narrow.count("st.global.v4.b32")) == (4, 2)


def test_adjacent_elements_are_pairs():
    assert text(100, 16).count(".f32x2") == 4 * 1024 // 128 // 2
    assert ".f32x2" not in text(90, 16)
    assert ".f32x2" not in text(120, 16)


def results():
    """Launches on the device of the environment; numpy's results have the same bits."""
    rng = np.random.default_rng(0)
    memory = np.zeros(3 * 2048 + 8, np.float32)
    first = -memory.ctypes.data // 4 % 8
    x, y, out = memory[first : first + 3 * 2048].reshape(3, 2048)
    x[:], y[:] = rng.normal(size=(2, 2048)).astype(np.float32)
    for n, alignment in ((2048, 32), (2000, 32), (2032, 16)):
        out[:] = 0
        polynomial[(2,)](x, y, out, n, BLOCK=1024, ALIGNMENT=alignment)
        expected = np.zeros(2048, np.float32)
        expected[:n] = ((x * y + np.float32(1.5)) * x - y)[:n]
        np.testing.assert_array_equal(out, expected)
    print("equal")


def test_results_on_a_simulated_gpu():
    command = [sys.executable, __file__]
    environment = {**os.environ, "TILEWRIGHT_DEVICE": "sim:sm_100"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "equal\n", done.stderr


if __name__ == "__main__":
    results()
