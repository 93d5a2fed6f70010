"""Tuning and launching a product of matrices, beside the official triton: ``python -m gpu.tuning`` in `benches`.

A program that tunes 18 configurations at each of the sizes runs in a process of its own with empty caches, and once
more with the caches of the first run: the seconds of the whole process, and of the tuning launches only. Then
every configuration is timed with nothing left out, for how far the chosen one is from the best. Last, the host's
time of a launch that does little: plain, with ``heuristics``, tuned, and with both.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from gpu.product_cases import DEVICE, FILES
from gpu.products import shown
from gpu.sides import TILEWRIGHT, TRITON, load

SIZES = (512, 1024, 2048, 4096)
SMALL = (32,)
BLOCKS = [
    (128, 256, 32, 8, 3), (256, 128, 32, 8, 3), (256, 64, 32, 4, 4), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4),
    (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (128, 32, 32, 4, 4), (64, 32, 32, 2, 5), (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3), (256, 64, 64, 4, 4), (64, 256, 64, 4, 4), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4), (128, 32, 64, 4, 4), (64, 32, 64, 2, 5),
]  # fmt: skip
"""Rows, columns and depth of a block, warps and stages: the configurations of the public tutorials."""

ROUNDS = 15
LAUNCHES = 200


class Program:
    """The program of one implementation."""

    def __init__(self, package: str) -> None:
        self.package = importlib.import_module(package)
        self.testing = importlib.import_module(f"{package}.testing")
        self.kernels = load(package, FILES["product_kernels"])
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
        self.configs = [
            self.package.Config(
                {**dict(zip(names, blocks, strict=True)), "GROUP": 8}, num_warps=warps, num_stages=stages
            )
            for *blocks, warps, stages in BLOCKS
        ]
        self.tuned = self.package.autotune(configs=self.configs, key=["M", "N", "K"])(self.kernels.matmul)

    def arguments(self, size: int) -> tuple[Any, ...]:
        """Those of a square product in fp16."""
        a, b, c = (torch.randn(size, size, device=DEVICE, dtype=torch.float16) for _ in range(3))
        return (a, b, c, size, size, size, size, 1, size, 1, size, 1)

    def tune(self, size: int) -> float:
        """Seconds until the first result, which is checked."""
        arguments = self.arguments(size)
        begun = time.perf_counter()
        self.tuned[_grid(size)](*arguments)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - begun
        a, b, c = arguments[:3]
        torch.testing.assert_close(c.float(), a.float() @ b.float(), atol=0.5, rtol=0.01)
        return taken

    def every_time(self, size: int) -> dict[str, float]:
        """Milliseconds of each configuration that runs, all with the same patience, in turn."""
        arguments = self.arguments(size)
        found: dict[str, list[float]] = {}
        for _ in range(3):
            for config in self.configs:
                named = _options(config)
                launch = self.kernels.matmul[_grid(size)]
                try:
                    took = self.testing.do_bench(
                        lambda f=launch, n=named: f(*arguments, **n), warmup=5, rep=20
                    )
                except Exception as error:
                    print(f"{size}: {shown(named)}: {error}", file=sys.stderr)
                    continue
                found.setdefault(shown(named), []).append(took)
        return {config: min(times) for config, times in found.items()}

    def launches(self) -> dict[str, float]:
        """Microseconds of the host for a launch of one small program, by how it is decorated."""
        arguments = self.arguments(16)
        config = self.package.Config({"BLOCK_N": 16, "BLOCK_K": 16, "GROUP": 8}, num_warps=1)
        kernel, chosen = self.kernels.matmul, self.package.heuristics({"BLOCK_M": lambda args: 16})
        tuned = self.package.autotune(configs=[config], key=["M", "N", "K"])
        given = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP": 8}
        rest = {name: value for name, value in given.items() if name != "BLOCK_M"}
        forms: dict[str, tuple[Any, dict[str, int]]] = {
            "plain": (kernel, given),
            "heuristics": (chosen(kernel), rest),
            "tuned": (tuned(kernel), {"BLOCK_M": 16}),
            "both": (tuned(chosen(kernel)), {}),
        }
        runs = {
            name: lambda form=form, named=named: form[1,](*arguments, **named)
            for name, (form, named) in forms.items()
        }
        times: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run()
        for _ in range(ROUNDS):
            for name, run in runs.items():
                times[name].append(_microseconds(run))
        return {name: statistics.median(found) for name, found in times.items()}


def _options(config: Any) -> dict[str, int]:
    return {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}


def _grid(size: int) -> Callable[[dict[str, int]], tuple[int]]:
    return lambda meta: (-(-size // meta["BLOCK_M"]) * -(-size // meta["BLOCK_N"]),)


def _microseconds(launch: Callable[[], object]) -> float:
    """Of one launch; the device has nothing to do before, and its queue has room for all."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(LAUNCHES):
        launch()
    return (time.perf_counter() - begun) / LAUNCHES * 1e6


def in_a_process(side: str, caches: str, *more: str) -> dict[str, Any]:
    """The output of a process, and its seconds."""
    folders = {
        name: os.path.join(caches, name.split("_")[0])
        for name in ("TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_DIR")
    }
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gpu.tuning", "--one", side, *more],
        env={**os.environ, **folders},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - begun}


def compare(sides: tuple[str, ...], small: bool) -> None:
    """Prints the tables."""
    options = ["--small"] if small else []
    print(
        "| side | tuning, s | process, s | a second process: tuning, s | process, s |\n|---|---|---|---|---|"
    )
    found = {}
    for side in sides:
        with tempfile.TemporaryDirectory() as caches:
            first, second = (in_a_process(side, caches, *options) for _ in range(2))
            found[side] = in_a_process(side, caches, "--all", *options)
        times = [
            figure for one in (first, second) for figure in (sum(one["tuning"].values()), one["process"])
        ]
        print("| " + " | ".join([side, *(f"{seconds:.2f}" for seconds in times)]) + " |", flush=True)
    print("\n| side | size | chosen | its time | the best | best / chosen |\n|---|---|---|---|---|---|")
    for side, result in found.items():
        for size, every in result["every"].items():
            chosen = result["chosen"][size]
            best = min(every, key=every.__getitem__)
            figures = f"{every[chosen] * 1e3:.1f} µs | {every[best] * 1e3:.1f} µs, {best}"
            print(f"| {side} | {size} | {chosen} | {figures} | {every[best] / every[chosen]:.3f} |")
    print("\n| side | plain, µs | heuristics | tuned | both |\n|---|---|---|---|---|")
    for side, result in found.items():
        print("| " + " | ".join([side, *(f"{took:.2f}" for took in result["launches"].values())]) + " |")


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="sizes for a test")
    parser.add_argument("--one", metavar="SIDE", help="what the processes are started with")
    parser.add_argument("--all", action="store_true", help="with every configuration and the launches")
    options = parser.parse_args()
    if not options.one:
        compare((TRITON, TILEWRIGHT) if DEVICE == "cuda" else (TILEWRIGHT,), options.small)
        return
    torch.manual_seed(0)
    program = Program(options.one)
    sizes = SMALL if options.small else SIZES
    found: dict[str, Any] = {"tuning": {}, "chosen": {}}
    for size in sizes:
        found["tuning"][size] = program.tune(size)
        found["chosen"][size] = shown(_options(program.tuned.best_config))
    if options.all:
        found["every"] = {size: program.every_time(size) for size in sizes}
        found["launches"] = program.launches()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
