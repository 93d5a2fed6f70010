"""Options and variables of triton-cpu: each has its effect, or its reason to have none."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.language.extra.cpu import libdevice

PROGRAM = """
import pathlib
import time
import numpy as np
import tilewright as triton
import tilewright.language as tl

@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * 2)

def pool(expected):
    # A thread takes its name as its first step, and a launch that needs none of it does not wait for that.
    for _ in range(1000):
        names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
        count = sum(name.startswith("tilewright-") for name in names)
        if count >= expected:
            break
        time.sleep(0.01)
    return count

x = np.ones(1 << 22, np.float32)
launch = double[(1 << 10,)]
"""


def run(program, **variables):
    unset = ("TILEWRIGHT_NUM_THREADS", "TILEWRIGHT_DEVICE", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | variables
    command = [sys.executable, "-c", PROGRAM + program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists the names of threads")
def test_threads_of_a_launch():
    program = """
counts = []
launch(x, BLOCK=1 << 12, num_cpu_threads=1)
counts.append(pool(0))
launch(x, BLOCK=1 << 12, num_cpu_threads=3)
counts.append(pool(2))
tuned = triton.autotune([triton.Config({"BLOCK": 1 << 12}, num_cpu_threads=3)], key=[])(double)
tuned[(1 << 10,)](x)
counts.append(pool(2))
launch(x, BLOCK=1 << 12)
counts.append(pool(6))
print(counts, set(x))
"""
    # The thread that launches is one of them. A pool keeps its threads, and launches with a maximum of 3 share one.
    counts = [0, 2, 2, 2 + 4]
    assert run(program, TRITON_CPU_MAX_THREADS="5") == (f"{counts} {{{np.float32(16)!r}}}", "")


def test_variables_choose_the_device():
    program = "print(triton.runtime.driver.active.get_current_target().backend)"
    for variables in ({"TRITON_CPU_BACKEND": "1"}, {"TRITON_DEFAULT_BACKEND": "cpu"}):
        assert run(program, **variables) == ("cpu", "")
    both = {"TRITON_CPU_BACKEND": "1", "TILEWRIGHT_DEVICE": "sim:sm_90"}
    assert run(program, **both) == ("cuda", "")
    _, said = run(program, TRITON_DEFAULT_BACKEND="amd", TRITON_CPU_MAX_THREADS="many")
    assert "TRITON_DEFAULT_BACKEND is 'amd', expected cpu or nvidia" in said
    assert "TRITON_CPU_MAX_THREADS is 'many', expected an integer from 0 to 1024" in said


def test_options_without_effect_and_wrong_values():
    @triton.jit
    def kernel(x_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets)
        tl.store(x_ptr + offsets, libdevice.tanh(x) + tl.extra.cpu.libdevice.tanh(x))

    x = np.linspace(-2, 2, 64, dtype=np.float32)
    for options in ({"vec_lib": "libsleef"}, {"ukernels": "OneDNN"}, {"enable_fast_math": False}):
        y = x.copy()
        kernel[(1,)](y, BLOCK=64, **options)
        np.testing.assert_allclose(y, 2 * np.tanh(x), rtol=1e-6)
    for wrong in (-1, "all", 1.5):
        with pytest.raises(triton.TritonError) as caught:
            kernel[(1,)](x, BLOCK=64, num_cpu_threads=wrong)
        assert caught.value.code == "TW0108"


def test_configurations_name_their_threads():
    config = triton.Config({"BLOCK": 64}, num_cpu_threads=2)
    assert config.all_kwargs()["num_cpu_threads"] == 2
    assert "num_cpu_threads: 2" in str(config)
    assert "num_cpu_threads" not in str(triton.Config({"BLOCK": 64}))
