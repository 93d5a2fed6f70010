"""A kernel whose tiles find no memory ends in an error, and the process goes on."""

import os
import resource
import subprocess
import sys

import pytest
from conftest import PATIENCE

# 24 tiles of 8 MiB are alive at the same time, and the process may have 64 MiB more.
PROGRAM = """
import resource
import numpy as np
import tilewright as triton
import tilewright.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    tiles = ()
    for index in tl.static_range(COUNT):
        tiles = tiles + (tl.load(x_ptr + index + tl.arange(0, BLOCK)),)
    total = tiles[COUNT - 1]
    for index in tl.static_range(COUNT - 1):
        total += tiles[COUNT - 2 - index]
    tl.store(out_ptr + tl.arange(0, BLOCK), total)

block = 1 << 20
x = np.ones(block + 64)
out = np.zeros(block)
kernel[(1,)](x, out, COUNT=2, BLOCK=block)
assert (out == 2).all()
size = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
try:
    kernel[(1,)](x, out, COUNT=24, BLOCK=block)
except triton.errors.ExecutionError as error:
    print(error.code, str(error).splitlines()[0])
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
kernel[(1,)](x, out, COUNT=24, BLOCK=block)
assert (out == 24).all()
print("went on")
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="the system limits no address space")
def test_a_kernel_without_memory_is_an_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    # Machine code keeps no tile in memory.
    env = {**os.environ, "TILEWRIGHT_MACHINE_CODE": "0"}
    command = [sys.executable, str(script)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert run.returncode == 0, run.stderr
    first, last = run.stdout.splitlines()
    assert first.startswith("TW0206 ")
    assert "not enough memory for the tiles of `kernel`" in first
    assert last == "went on"
