"""The process that measures one case: correctness, then times, of torch, the official triton and tilewright in turn.

Events are written line by line, as JSON, into a file, so that a process that dies or hangs loses one size at most:
`begin` with the case and size, `side` with the side that is about to run, `row` with the result.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from gpu import cases, sides
from gpu.report import Row, first_line
from gpu.sides import SIDES, TILEWRIGHT, TORCH, TRITON

LAUNCHES = (5, 20)
"""Numbers of arguments for which a launch is timed."""

CASES = (*cases.THROUGHPUT, "launch", "ptx", "cubin")
"""The measurements; a process does one of them."""

BROKEN = 3
"""The exit status after a fault that leaves the GPU unusable for this process."""


class Journal:
    """The events of the measurement, for the process that started this one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def say(self, **line: Any) -> None:
        """Writes a line, for good."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


class Broken(Exception):
    """The GPU no longer responds to this process."""


class Session:
    """The sides of one process, and how they are run."""

    def __init__(self, journal: Journal, rounds: int) -> None:
        self.journal = journal
        self.rounds = rounds
        self.kernels: dict[str, Any] = {}
        self.missing: dict[str, str] = {}
        for side in (TRITON, TILEWRIGHT):
            try:
                self.kernels[side] = sides.load(side)
            except Exception as error:
                self.missing[side] = first_line(error)

    def attempt(self, row: Row, side: str, work: Callable[[], Any]) -> Any:
        """What `work` returns; None if it fails, which the row then says."""
        if side in row.errors:
            return None
        self.journal.say(side=side)
        try:
            return work()
        except Exception as error:
            row.errors[side] = first_line(error)
            self._check_device(row)
            return None

    def _check_device(self, row: Row) -> None:
        import torch

        try:
            torch.cuda.synchronize()
        except Exception as error:
            self.journal.say(row=asdict(row))
            raise Broken(str(error)) from error

    def start(self, row: Row) -> Row:
        """Begins a row."""
        self.journal.say(begin=asdict(row))
        row.errors.update(self.missing)
        return row

    def in_turn(self, row: Row, times: dict[str, Callable[[], float]]) -> None:
        """Times the sides round by round, each round in another order; the first round warms up and is given up."""
        found: dict[str, list[float]] = {side: [] for side in times}
        for number in range(self.rounds + 1):
            order = list(times)[number % len(times) :] + list(times)[: number % len(times)] if times else []
            for side in order:
                micros = self.attempt(row, side, times[side])
                if micros is not None and number > 0:
                    found[side].append(micros)
        row.rounds.update({side: rounds for side, rounds in found.items() if side not in row.errors})

    def finish(self, row: Row) -> None:
        """Ends a row."""
        self.journal.say(row=asdict(row))


# --- Throughput ---


class EventClock:
    """Times work on the GPU by CUDA events, each call with nothing of its data in the L2 cache."""

    def __init__(self, calls: int = 40) -> None:
        import torch

        self.torch = torch
        # More than any cache.
        self.flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
        self.events = [
            [torch.cuda.Event(enable_timing=True) for _ in range(calls)] for _ in ("before", "after")
        ]

    def microseconds(self, run: Callable[[], object]) -> float:
        """The median of some calls.

        The GPU is kept busy until all of them are in its queue, so that no time of the host is in the figure.
        """
        self.torch.cuda._sleep(5_000_000)
        for before, after in zip(*self.events, strict=True):
            self.flush.zero_()
            before.record()
            run()
            after.record()
        self.torch.cuda.synchronize()
        return statistics.median(
            1e3 * before.elapsed_time(after) for before, after in zip(*self.events, strict=True)
        )


def launcher(kernels: Any, problem: cases.Problem) -> Callable[[], object]:
    """One launch."""
    kernel = getattr(kernels, problem.kernel)
    named = {**problem.constexprs, **problem.options}
    return lambda: kernel[problem.grid](*problem.args, **named)


def check(run: Callable[[], object], problem: cases.Problem, expected: Any, returns: bool) -> None:
    """Runs once and compares every element; an element that was not written is NaN, and never equal."""
    import torch

    problem.out.fill_(float("nan"))
    result = run()
    torch.cuda.synchronize()
    found = result if returns else problem.out
    torch.testing.assert_close(found.float(), expected, atol=problem.tolerance, rtol=problem.tolerance)


def throughput(session: Session, name: str, step: int, skip: int) -> None:
    """Measures the sizes of a case, without the first few."""
    import torch

    clock = EventClock()
    for case in cases.throughput(name, step)[skip:]:
        measure_size(session, clock, case)
        torch.cuda.empty_cache()


def measure_size(session: Session, clock: EventClock, case: cases.Case) -> None:
    """The row of a case at one size; its tensors live as long as this call."""
    import torch

    row = session.start(Row(case.name, case.size, case.unit, case.work, case.asked))
    torch.manual_seed(0)
    problem = case.prepare()
    expected = problem.reference()
    runs: dict[str, Callable[[], object]] = {TORCH: problem.torch}
    runs |= {side: launcher(kernels, problem) for side, kernels in session.kernels.items()}
    for side, run in runs.items():
        session.attempt(row, side, partial(check, run, problem, expected, returns=side == TORCH))
    timed = {side: partial(clock.microseconds, run) for side, run in runs.items() if side not in row.errors}
    session.in_turn(row, timed)
    session.finish(row)


# --- Launches ---


def host_microseconds(run: Callable[[], object], calls: int = 200) -> float:
    """Microseconds a call as the caller sees them; the median of ten times as many calls.

    200 launches fit into the queue of the driver: with more, the host would wait for the GPU.
    """
    import torch

    samples = []
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        samples.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(samples)


def launches(session: Session, skip: int) -> None:
    """The host's cost of a launch, from Python."""
    for arguments in LAUNCHES[skip:]:
        row = session.start(Row("launch of an empty kernel", f"{arguments} arguments", "µs", 0.0, None))
        problem = cases.empty(arguments)
        sides_of = session.kernels.items()
        session.in_turn(
            row, {side: partial(host_microseconds, launcher(kernels, problem)) for side, kernels in sides_of}
        )
        session.finish(row)


# --- Compilation ---


def compile_official(kernels: Any, problem: cases.Problem, *, to_ptx: bool) -> float:
    """Microseconds from source to PTX, or to machine code that is loaded, with an empty cache."""
    import triton

    stages: list[Any] = []
    triton.knobs.compilation.listener = lambda *, times, **_: stages.append(times)
    kernel = triton.jit(getattr(kernels, problem.kernel).fn)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        start = time.perf_counter()
        handle = kernel.warmup(*problem.args, grid=problem.grid, **problem.constexprs, **problem.options)
        compiled = time.perf_counter()
        assert handle.run is not None, "asking for it loads the code"
        loaded = time.perf_counter()
    triton.knobs.compilation.listener = None
    if not to_ptx:
        return (loaded - start) * 1e6
    assembly = sum(taken for stage, taken in stages[-1].lowering_stages if stage == "cubin")
    return (compiled - start) * 1e6 - assembly - stages[-1].store_results


def compile_ours(kernels: Any, problem: cases.Problem) -> float:
    """Microseconds from source to machine code that is loaded; the cache is turned off for this process."""
    import tilewright

    kernel = tilewright.jit(getattr(kernels, problem.kernel).fn)
    start = time.perf_counter()
    handle = kernel.warmup(*problem.args, grid=problem.grid, **problem.constexprs, **problem.options)
    assert handle.asm["cubin"], "asking for it assembles and loads the code"
    return (time.perf_counter() - start) * 1e6


def signature(problem: cases.Problem) -> str:
    """The signature for the command `tilewright compile`: a launch would specialize on the same."""
    names = {"float32": "*fp32:16", "float16": "*fp16:16"}

    def of(arg: Any) -> str:
        if hasattr(arg, "dtype"):
            return names[str(arg.dtype).removeprefix("torch.")]
        if isinstance(arg, float):
            return "fp32"
        return "1" if arg == 1 else f"i32{':16' if arg % 16 == 0 else ''}"

    return ",".join(
        [*map(of, problem.args), *(f"{name}={value}" for name, value in problem.constexprs.items())]
    )


def ptx_ours(problem: cases.Problem, target: str) -> float:
    """Microseconds from the file to the file with the PTX, in this process."""
    from tilewright import _native

    with tempfile.TemporaryDirectory() as folder:
        command = ["compile", f"{sides.KERNELS}::{problem.kernel}", "--signature", signature(problem)]
        command += ["--target", target, "--emit", "ptx", "--output", str(Path(folder) / "ptx")]
        command += [
            part for name, value in problem.options.items() for part in ("--option", f"{name}={value}")
        ]
        start = time.perf_counter()
        status = _native.command_line(command)
        taken = (time.perf_counter() - start) * 1e6
    if status != 0:
        raise RuntimeError(f"tilewright compile --emit ptx ended with {status}; the log says why")
    return taken


def compilation(session: Session, skip: int, *, to_ptx: bool) -> None:
    """Time from source to PTX or to machine code, of kernels that no cache knows."""
    import torch

    target = "sm_{}{}".format(*torch.cuda.get_device_capability())
    name = "source to PTX" if to_ptx else "source to machine code"
    for case in cases.compiled()[skip:]:
        row = session.start(Row(name, f"{case.name.split(',')[0]} {case.size}", "ms", 0.0, None))
        problem = case.prepare()
        times: dict[str, Callable[[], float]] = {}
        if TRITON in session.kernels:
            times[TRITON] = partial(compile_official, session.kernels[TRITON], problem, to_ptx=to_ptx)
        if TILEWRIGHT in session.kernels and to_ptx:
            times[TILEWRIGHT] = partial(ptx_ours, problem, target)
        elif TILEWRIGHT in session.kernels:
            times[TILEWRIGHT] = partial(compile_ours, session.kernels[TILEWRIGHT], problem)
        session.in_turn(row, times)
        session.finish(row)


# --- The machine ---


def look_around(session: Session) -> dict[str, Any]:
    """The versions and the GPU of this machine, and what cannot be imported; `gpu` is missing if there is none."""
    found: dict[str, Any] = {"python": platform.python_version(), "missing": dict(session.missing)}
    for name in SIDES:
        try:
            module = __import__(name)
        except Exception as error:
            found["missing"].setdefault(name, first_line(error))
            continue
        found[name] = str(module.__version__)
        if name == TILEWRIGHT:
            found["from"] = str(Path(module.__file__).resolve().parents[1])
    if TORCH not in found:
        return found
    import torch

    if not torch.cuda.is_available():
        return found
    properties = torch.cuda.get_device_properties(0)
    found["gpu"] = f"{properties.name}, sm_{properties.major}{properties.minor}"
    version = ctypes.c_int()
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        found["gpu"] += f", driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return found


def main() -> int:
    """Measures what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=("look", *CASES))
    parser.add_argument("--journal", type=Path, required=True, help="the file to append to")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--step", type=int, default=1, help="measure each STEP-th size")
    parser.add_argument("--skip", type=int, default=0, help="sizes that were measured already")
    options = parser.parse_args()
    with options.journal.open("a", encoding="utf-8") as file:
        journal = Journal(file)
        session = Session(journal, options.rounds)
        try:
            if options.case == "look":
                journal.say(found=look_around(session))
            elif options.case == "launch":
                launches(session, options.skip)
            elif options.case in ("ptx", "cubin"):
                session.rounds = min(session.rounds, 3)
                compilation(session, options.skip, to_ptx=options.case == "ptx")
            else:
                throughput(session, options.case, options.step, options.skip)
        except Broken as error:
            print(f"the GPU no longer responds to this process: {error}", file=sys.stderr)
            return BROKEN
        journal.say(finished=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
