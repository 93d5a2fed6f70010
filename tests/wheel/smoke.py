"""Checks an installed wheel: ``python tests/wheel/smoke.py`` in an environment with tilewright and numpy.

The release workflow runs it on each platform, and ``tests/python/compat/triton/test_activate.py`` in a virtual
environment. It needs neither torch nor a compiler, and leaves the environment as it was.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

KERNEL = """
import numpy as np
import triton
import triton.language as tl

assert tl.__name__ == "tilewright.language", tl.__name__

@triton.jit
def add_dot(x_ptr, y_ptr, a_ptr, output_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tile = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(a_ptr + tile)
    corner = tl.sum(tl.dot(a, a))
    tl.store(output_ptr + offsets, total + corner, mask=mask)

random = np.random.default_rng(1)
x, y = (random.integers(-8, 8, 1000).astype(np.float32) for _ in range(2))
a = random.integers(-2, 3, (16, 16)).astype(np.float16)
output = np.empty_like(x)
add_dot[(triton.cdiv(1000, 256),)](x, y, a, output, 1000, BLOCK=256)
expected = x + y + (a.astype(np.float32) @ a.astype(np.float32)).sum()
assert (output == expected).all(), np.abs(output - expected).max()
"""


def python(*arguments: object, code: int = 0, **env: str) -> str:
    """Runs Python in an empty folder, with these variables; returns what it prints."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TILEWRIGHT_")}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**inherited, **env},
            timeout=600,
        )
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def main() -> None:
    """Runs the checks; the first that fails raises."""
    version = importlib.metadata.version("tilewright")
    printed = python("-m", "tilewright", "--version")
    assert printed.startswith(f"tilewright {version}"), printed
    assert "sim:sm_90" in python("-m", "tilewright", "devices")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(KERNEL)
        python("-m", "tilewright", "run", program, TILEWRIGHT_DEVICE="cpu")
        python("-m", "tilewright", "run", program, TILEWRIGHT_DEVICE="sim:sm_90")

        assert "No module named 'triton'" in python("-c", "import triton", code=1)
        python("-m", "tilewright", "activate")
        try:
            python(program)
            python("-m", "pip", "check")
        finally:
            python("-m", "tilewright", "deactivate")
        assert "No module named 'triton'" in python("-c", "import triton", code=1)
    print(printed.strip(), "works")


if __name__ == "__main__":
    main()
