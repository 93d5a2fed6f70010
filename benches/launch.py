"""Time a launch from Python to the call of the CUDA driver, with a stand-in for its library: microseconds a call."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMITS = {5: 1.5, 20: 3.0}
"""Microseconds that are asked for, by the number of arguments."""

KERNELS = """
import tilewright as triton
import tilewright.language as tl

@triton.jit
def kernel5(p0, p1, p2, n, BLOCK: tl.constexpr):
    tl.store(p0 + tl.arange(0, BLOCK), tl.load(p1 + tl.arange(0, BLOCK)) + tl.load(p2) + n)

@triton.jit
def kernel20(p0, p1, p2, p3, p4, p5, p6, p7, n0, n1, n2, n3, n4, n5, n6, n7, s0, s1, s2, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(p0 + at, tl.load(p1) + tl.load(p2) + tl.load(p3) + tl.load(p4) + tl.load(p5) + tl.load(p6) + tl.load(p7))
    tl.store(p0 + at, n0 + n1 + n2 + n3 + n4 + n5 + n6 + n7 + s0 + s1 + s2)
"""


class Tensor:
    """Memory of a GPU, as far as a launch looks."""

    def __init__(self, address: int, dtype: object) -> None:
        self.address = address
        self.dtype = dtype
        self.device = "cuda:0"

    def data_ptr(self) -> int:
        """Where it is."""
        return self.address


def stub_library() -> Path:
    """The stand-in, built if need be."""
    command = ["cargo", "build", "--quiet", "--release", "-p", "tilewright-cuda-stub"]
    subprocess.run(command, check=True, cwd=HERE.parent)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
    return HERE.parent / target / "release" / "libtilewright_cuda_stub.so"


def launchers() -> dict[int, Callable[[], object]]:
    """A launch for each number of arguments, the compile-time one among them."""
    import linecache

    linecache.cache["<bench>"] = (len(KERNELS), None, KERNELS.splitlines(keepends=True), "<bench>")
    names: dict[str, object] = {}
    exec(compile(KERNELS, "<bench>", "exec"), names)
    dtype = names["tl"].float32  # type: ignore[attr-defined]
    tensors = [Tensor(0x1000 * (index + 1), dtype) for index in range(8)]
    few, many = names["kernel5"], names["kernel20"]
    numbers, strides = [17, 33, 65, 129, 257, 513, 1025, 2049], [3, 5, 7]
    return {
        5: lambda: few[(1,)](*tensors[:3], 17, BLOCK=128),  # type: ignore[index]
        20: lambda: many[(1,)](*tensors, *numbers, *strides, BLOCK=128),  # type: ignore[index]
    }


def samples(rounds: int) -> dict[int, list[float]]:
    """Microseconds a call, for each number of arguments and round; measured in a process with the stand-in."""
    environment = {**os.environ, "TILEWRIGHT_LIBCUDA": str(stub_library()), "TILEWRIGHT_DEVICE": "cuda"}
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {int(count): found for count, found in json.loads(done.stdout).items()}


def measure(rounds: int, calls: int = 20_000) -> dict[int, list[float]]:
    """As ``samples``, in this process."""
    found: dict[int, list[float]] = {}
    for count, launch in launchers().items():
        launch()
        found[count] = []
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(calls):
                launch()
            found[count].append((time.perf_counter() - start) / calls * 1e6)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(int(sys.argv[2]))))
    else:
        for count, times in samples(9).items():
            print(f"{count} arguments: {statistics.median(times):.2f} µs a launch, {LIMITS[count]} asked for")
