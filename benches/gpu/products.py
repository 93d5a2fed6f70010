"""Products of matrices and attention, beside the official triton and torch: ``python -m gpu.products`` in `benches`.

Each side takes the best of the same configurations. Every configuration is checked against torch before it is
timed; a time is a median of launches whose data is not in the L2 cache, and the sides take turns. Before a launch
the cache is filled by reading: lines that were written would have to go to memory first, which takes a third of the
time of a decode. `--only` selects rows by a part of their names, `--list` shows them, `--compile 3/8` only compiles an
eighth of them for the official compiler, whose cache then has them: that many such processes at once save time.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gpu import (
    attention_cases,
    gluon_cases,
    moe_cases,
    product_cases,
    serving_cases,
    several_dots_cases,
    state_space_cases,
)
from gpu.measure import EventClock
from gpu.product_cases import DEVICE, FILES, Config, Problem, Row
from gpu.sides import TILEWRIGHT, TORCH, TRITON, load


def rows(small: bool = False) -> Iterator[Row]:
    """All rows; the small ones have the same kernels at sizes that a simulated GPU can run."""
    yield from product_cases.rows(small)
    yield from attention_cases.rows(small)
    yield from several_dots_cases.rows(small)
    yield from moe_cases.rows(small)
    yield from serving_cases.rows(small)
    yield from state_space_cases.rows(small)
    yield from gluon_cases.rows(small)


class ReadingClock(EventClock):
    """Times work with nothing of its data in the L2 cache, and nothing there that was written."""

    def __init__(self, calls: int) -> None:
        super().__init__(calls)
        numbers = self.flush.zero_().view(torch.int64)
        found = torch.empty((), dtype=torch.int64, device=numbers.device)
        self.flush = Reader(lambda: torch.amax(numbers, dim=0, out=found))


@dataclass
class Reader:
    """The replacement of the memory that is overwritten elsewhere."""

    zero_: Callable[[], object]


class Side:
    """The kernels of one implementation."""

    def __init__(self, package: str) -> None:
        self.package = importlib.import_module(package)
        self.language = importlib.import_module(f"{package}.language")
        self.files: dict[str, ModuleType] = {}

    def call(self, problem: Problem, config: Config) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The kernel, its arguments, and what is passed by name."""
        if problem.file not in self.files:
            self.files[problem.file] = load(self.package.__name__, FILES[problem.file])
        kernel = getattr(self.files[problem.file], problem.kernel)
        if self.package.__name__ == TRITON:
            # The official side's own specialization hangs or fails on such a GPU: it is measured without.
            config = {name: value for name, value in config.items() if name != "SPECIALIZE"}
        constants = {name: self.constant(value) for name, value in problem.constants.items()}
        return kernel, problem.arguments(config, self.package), {**constants, **config}

    def constant(self, value: Any) -> Any:
        """A compile-time value; `"tl.int32"` is the dtype of this side."""
        named = isinstance(value, str) and value.startswith("tl.")
        return getattr(self.language, value.removeprefix("tl.")) if named else value

    def launcher(self, problem: Problem, config: Config) -> Callable[[], object]:
        """One launch."""
        kernel, arguments, named = self.call(problem, config)
        launch = kernel[problem.grid(config)]
        if problem.then is not None:
            then = self.launcher(problem.then(config), {})
            return lambda: (launch(*arguments, **named), then())
        if problem.first is None:
            return lambda: launch(*arguments, **named)
        first = self.launcher(problem.first, {})
        return lambda: (first(), launch(*arguments, **named))

    def compile(self, problem: Problem, config: Config) -> None:
        """Compiles, without a launch."""
        kernel, arguments, named = self.call(problem, config)
        kernel.warmup(*arguments, grid=problem.grid(config), **named)
        if problem.first is not None:
            self.compile(problem.first, {})
        if problem.then is not None:
            self.compile(problem.then(config), {})


def wrong(problem: Problem, run: Callable[[], object], expected: torch.Tensor) -> str:
    """The error of the result, empty if there is none; it is relative to the whole result's size."""
    problem.out.fill_(0 if problem.adds or not problem.out.is_floating_point() else float("nan"))
    run()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    scale = expected.float().abs().mean().item() * 4
    error = (problem.out.float() - expected.float()).abs().max().item() / max(scale, 1e-30)
    return "" if error <= problem.tolerance else f"wrong by {error:.2g}"


def shown(config: Config) -> str:
    """A configuration as it is written above."""
    sizes = "x".join(str(size) for name, size in config.items() if name.startswith("BLOCK_"))
    splits = "".join(f" split {count}" for name, count in config.items() if name.startswith("SPLIT"))
    stages = config.get("num_stages", config.get("STAGES"))
    return f"{sizes}{splits} w{config['num_warps']} s{stages}".strip()


def measure(row: Row, sides: dict[str, Side], rounds: int) -> dict[str, Any]:
    """The times of a row: the best configuration of each side, then all sides in turn."""
    torch.manual_seed(0)
    problem = row.make()
    expected = problem.expected()
    found: dict[str, Any] = {
        "name": row.name,
        "unit": row.unit,
        "work": row.work,
        "asked": row.asked,
        "asked_torch": row.asked_torch,
        "errors": {},
        "config": {},
        "tried": {},
    }
    runs: dict[str, Callable[[], object]] = {}
    quick, clock = ReadingClock(3), ReadingClock(9)
    for name, side in sides.items():
        if name == TILEWRIGHT:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda c, s=side: attempt(lambda: s.compile(problem, c)), row.configs))
        best = float("inf")
        for config in row.configs:
            run = side.launcher(problem, config)
            error = attempt(lambda run=run: wrong(problem, run, expected))
            if error:
                found["errors"][f"{name} {shown(config)}"] = error
                continue
            micros = quick.microseconds(run)
            found["tried"][f"{name} {shown(config)}"] = micros
            if micros < best:
                best, runs[name], found["config"][name] = micros, run, shown(config)
    if problem.torch is not None:
        error = attempt(lambda: "" if problem.torch is None or problem.torch() is not None else "nothing")
        if error:
            found["errors"][TORCH] = error
        else:
            runs[TORCH] = problem.torch
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name in sorted(runs, reverse=turn % 2 == 1):
            micros = clock.microseconds(runs[name])
            if turn > 0:
                times[name].append(micros)
    found["times"] = times
    return found


def attempt(work: Callable[[], str | None]) -> str:
    """What `work` says, or the first line of what it raises."""
    try:
        return work() or ""
    except Exception as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def ratio(times: dict[str, list[float]], name: str) -> float | None:
    """The median of the rounds' ratios, theirs / ours."""
    if name not in times or TILEWRIGHT not in times:
        return None
    return statistics.median(a / b for a, b in zip(times[name], times[TILEWRIGHT], strict=True))


def line(row: Row, found: dict[str, Any]) -> str:
    """A line of the table."""
    times, cells = found["times"], [row.name]
    scale = 1e-6 if row.unit == "TFLOP/s" else 1e-3
    for name in (TORCH, TRITON, TILEWRIGHT):
        if name in times:
            micros = statistics.median(times[name])
            cells.append(f"{micros:.1f} µs ({row.work / micros * scale:.0f})")
        else:
            cells.append("")
    for name, asked in ((TRITON, row.asked), (TORCH, row.asked_torch)):
        value = ratio(times, name)
        mark = "" if asked is None else " ✓" if value is not None and value >= asked else f" of {asked} ✗"
        cells.append("" if value is None else f"{value:.2f}{mark}")
    cells += [found["config"].get(name, "") for name in (TRITON, TILEWRIGHT)]
    return f"| {' | '.join(cells)} |"


def copy_time(size: int) -> float:
    """Microseconds that torch's copy takes to read and write `size` bytes in all, its launch included."""
    source = torch.empty(size // 2, device=DEVICE, dtype=torch.int8)
    target = torch.empty_like(source)
    return ReadingClock(9).microseconds(lambda: target.copy_(source))


def compile_part(chosen: list[Row], part: str) -> None:
    """Compiles for the official side the configurations of one part of the rows."""
    number, parts = map(int, part.split("/"))
    side = Side(TRITON)
    everything = ((row, config) for row in chosen for config in row.configs)
    current: tuple[Row, Problem] | None = None
    for row, config in itertools.islice(everything, number, None, parts):
        if current is None or current[0] is not row:
            current = (row, row.make())
        attempt(lambda problem=current[1], config=config: side.compile(problem, config))


def main() -> int:
    """Measure the rows that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="rows with one of these in their names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="a file for everything that was measured")
    parser.add_argument("--seconds", type=float, default=3600, help="no row is begun after this many seconds")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--compile", help="of these rows, compile a part for the official side: 3/8")
    options = parser.parse_args()
    chosen = [row for row in rows() if any(word in row.name for word in options.only)]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    if options.compile:
        compile_part(chosen, options.compile)
        return 0
    torch.backends.cuda.matmul.allow_tf32 = True
    begun = time.monotonic()
    sides = {name: Side(name) for name in (TRITON, TILEWRIGHT)}
    # Of a gigabyte, and of the weights of a decode: what a launch costs is a large part of the smaller ones.
    copies = {size: copy_time(size << 20) for size in (1024, 128, 64, 32)}
    for size, micros in copies.items():
        print(f"copying {size} MiB: {micros:.1f} µs, {(size << 20) / micros / 1e3:.0f} GB/s")
    print(
        "| case | torch | triton | tilewright | triton / tilewright | torch / tilewright | best: triton | tilewright |"
    )
    print("|---|---|---|---|---|---|---|---|")
    everything = []
    for row in chosen:
        if time.monotonic() - begun > options.seconds:
            print(f"not measured: {row.name}")
            continue
        found = measure(row, sides, options.rounds)
        everything.append(found)
        print(line(row, found), flush=True)
        for name, error in found["errors"].items():
            print(f"  {row.name}: {name}: {error}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
