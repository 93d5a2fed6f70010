"""Time kernels on the CPU beside torch: one table of many rows, and a check for regressions.

    python benches/cpu_rows.py                            # all rows, for 1 and 2 threads
    python benches/cpu_rows.py --only softmax --threads 1
    python benches/cpu_rows.py --json before.json         # and later:
    python benches/cpu_rows.py --compare before.json      # exit status 1 if a ratio fell by more than 10 %
    python benches/cpu_rows.py --compare before.json after.json

Every row is checked against torch before it is timed. Then tilewright and torch run in turn, round by round, in one
process for each number of threads. The times are of one call: the processor time of the whole process, with all its
threads, and the wall time. A ratio is torch / tilewright, the median of the rounds' ratios: more is better.

The column `best` has the ratio of the least processor times, which other programs on the machine disturb least: with
two threads on two cores, a thread of OpenMP spins while another program has the core of its peer. `cpu_cases.py` has
the rows and says what the column `output` means.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FALL = 0.9
"""A ratio fell if it is below this much of the ratio before."""
MAX_ROW_SECONDS = 3.0
"""Seconds that the rounds of one row may take; rows of slow calls have fewer rounds than the option says."""
MIN_ROUNDS = 3
PART_SECONDS = 0.002
"""Seconds of a part of a round, in which other programs often leave the machine to this one."""
BUSY_LOAD = 0.5
"""Running processes of other programs, on average of a minute, above which the machine counts as busy."""
SETTLE_SECONDS = 0.001
MAX_SETTLES = 50

KEEP_PAGES = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
"""Variables of glibc by which freed memory stays in the process: outputs that both sides allocate have pages."""


@dataclass(frozen=True)
class Times:
    """Seconds a call of one side in one round: of processors, on the wall, and of processors in the best part."""

    cpu: float
    wall: float
    best: float


@dataclass(frozen=True)
class Result:
    """A measured line of the table. Times are seconds a call; a ratio is torch / tilewright.

    `low` and `high` are the range of the rounds' ratios by processor time, `ratio_best` is the ratio of the least
    processor times. The fields of `compiled` are of the function that `torch.compile` returns. A row that failed has an
    `error` and no times.
    """

    row: str
    size: str
    dtype: str
    output: str
    threads: int
    ours_cpu: float = math.nan
    torch_cpu: float = math.nan
    ratio_cpu: float = math.nan
    low: float = math.nan
    high: float = math.nan
    ours_best: float = math.nan
    torch_best: float = math.nan
    ratio_best: float = math.nan
    ours_wall: float = math.nan
    torch_wall: float = math.nan
    ratio_wall: float = math.nan
    compiled_cpu: float | None = None
    compiled_ratio_cpu: float | None = None
    compiled_ratio_wall: float | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """The name of the row, without the threads."""
        return f"{self.row} {self.size} {self.dtype}"

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the row in another run."""
        return self.name, self.threads


def settle() -> None:
    """Waits until the threads of the process are idle, since those of OpenMP spin for a while after their work."""
    for _ in range(MAX_SETTLES):
        start = time.process_time()
        time.sleep(SETTLE_SECONDS)
        if time.process_time() - start < SETTLE_SECONDS / 5:
            return


def time_calls(run: Callable[[], object], count: int, parts: int = 1) -> Times:
    """Returns the times of `parts` times `count` calls, after one that warms the caches."""
    settle()
    run()
    best = math.inf
    start_wall, start_cpu = time.perf_counter(), time.process_time()
    part_cpu = start_cpu
    for _ in range(parts):
        for _ in range(count):
            run()
        now = time.process_time()
        best, part_cpu = min(best, now - part_cpu), now
    wall, cpu = time.perf_counter() - start_wall, part_cpu - start_cpu
    return Times(cpu / (parts * count), wall / (parts * count), best / count)


def measure_sides(sides: list[Callable[[], object]], rounds: int, seconds: float) -> list[list[Times]]:
    """Returns the times of all sides for each round, in which each side runs for about `seconds`."""
    once = []
    for run in sides:
        run()
        once.append(max(time_calls(run, 1).wall, 1e-7))
    counts = [max(1, int(min(seconds, PART_SECONDS) / duration)) for duration in once]
    parts = [max(1, int(seconds / (count * duration))) for count, duration in zip(counts, once, strict=True)]
    plans = list(zip(sides, counts, parts, strict=True))
    of_round = sum((count * part + 1) * each for count, part, each in zip(counts, parts, once, strict=True))
    rounds = min(rounds, max(MIN_ROUNDS, int(MAX_ROW_SECONDS / of_round)))
    return [[time_calls(*plan) for plan in plans] for _ in range(rounds)]


def compile_fused(case: Any) -> Callable[[], object] | None:
    """Returns the call of what `torch.compile` makes of a case, after a comparison with torch; `None` without one."""
    import torch

    if case.fused is None:
        return None
    torch._dynamo.reset()
    compiled = torch.compile(case.fused, dynamic=False)
    if case.check is None:
        check_result(compiled(*case.operands), case.theirs(), case.tolerance)
    return lambda: compiled(*case.operands)


def check_result(result: Any, expected: Any, tolerance: float) -> None:
    """Raises an error if two tensors differ by more than an absolute and relative tolerance."""
    import torch

    torch.testing.assert_close(result, expected, atol=tolerance, rtol=tolerance)


def measure_row(row: Any, options: argparse.Namespace, threads: int) -> Result:
    """Checks and times one row of `cpu_cases.py`."""
    import torch

    torch.manual_seed(0)
    case = row.make()
    if case.check is None:
        check_result(case.ours(), case.theirs(), case.tolerance)
    else:
        case.check(case.ours())
    compiled = None
    try:
        compiled = compile_fused(case) if options.compile else None
    except Exception as error:
        print(f"{row.name}: torch.compile is left out: {type(error).__name__}: {error}", file=sys.stderr)
    sides = [case.ours, case.theirs] + ([] if compiled is None else [compiled])
    measured = measure_sides(sides, options.rounds, options.seconds)

    def median(side: int, clock: str) -> float:
        return statistics.median(getattr(times[side], clock) for times in measured)

    def ratios(side: int, clock: str) -> list[float]:
        return [getattr(times[side], clock) / max(getattr(times[0], clock), 1e-9) for times in measured]

    best = [min(times[side].best for times in measured) for side in range(len(sides))]
    result = Result(
        row=row.kernel,
        size=row.size,
        dtype=row.dtype,
        output=row.output,
        threads=threads,
        ours_cpu=median(0, "cpu"),
        torch_cpu=median(1, "cpu"),
        ratio_cpu=statistics.median(ratios(1, "cpu")),
        low=min(ratios(1, "cpu")),
        high=max(ratios(1, "cpu")),
        ours_best=best[0],
        torch_best=best[1],
        ratio_best=best[1] / max(best[0], 1e-9),
        ours_wall=median(0, "wall"),
        torch_wall=median(1, "wall"),
        ratio_wall=statistics.median(ratios(1, "wall")),
    )
    if compiled is None:
        return result
    return replace(
        result,
        compiled_cpu=median(2, "cpu"),
        compiled_ratio_cpu=statistics.median(ratios(2, "cpu")),
        compiled_ratio_wall=statistics.median(ratios(2, "wall")),
    )


def run_child(options: argparse.Namespace) -> None:
    """Measures the rows whose names standard input lists, and prints each result as a line of JSON."""
    import tilewright

    tilewright.install_as_triton()
    import cpu_cases
    import torch

    threads = options.child_threads
    torch.set_num_threads(threads)
    names = set(json.load(sys.stdin))
    for row in cpu_cases.ROWS:
        if row.name not in names:
            continue
        try:
            result = measure_row(row, options, threads)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            result = Result(row.kernel, row.size, row.dtype, row.output, threads, error=message)
        print(json.dumps(asdict(result)), flush=True)
        gc.collect()


def measure_rows(names: list[str], threads: int, options: argparse.Namespace) -> Iterator[Result]:
    """Yields the results of the rows, which a process with this number of threads measures."""
    if not names:
        return
    command = [sys.executable, str(Path(__file__).resolve()), "--child-threads", str(threads)]
    command += ["--rounds", str(options.rounds), "--seconds", str(options.seconds)]
    command += ["--compile"] if options.compile else []
    environment = {
        **os.environ,
        **KEEP_PAGES,
        "TILEWRIGHT_NUM_THREADS": str(threads),
        "TILEWRIGHT_DEVICE": "cpu",
    }
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(names))
        child.stdin.close()
        for line in child.stdout:
            yield Result(**json.loads(line))
    if child.returncode != 0:
        raise SystemExit(f"the process of {threads} threads ended with status {child.returncode}")


def list_rows(only: str) -> list[str]:
    """Returns the names of the rows that contain a text."""
    import tilewright

    tilewright.install_as_triton()
    import cpu_cases

    return [row.name for row in cpu_cases.ROWS if only in row.name]


# Reports


def duration(seconds: float) -> str:
    """A time with three digits, in µs or ms."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 999.5e-6 else f"{seconds * 1e3:.4g} ms"


def cells_of(result: Result, *, has_compiled: bool) -> list[str]:
    """The cells of one line of the table."""
    begin = [result.row, result.dtype, result.size, result.output, str(result.threads)]
    if result.error:
        return [*begin, f"failed: {result.error.splitlines()[0][:80]}"]
    cells = [
        *begin,
        duration(result.ours_cpu),
        duration(result.torch_cpu),
        f"{result.ratio_cpu:.2f}",
        f"{result.low:.2f} to {result.high:.2f}",
        f"{result.ratio_best:.2f}",
        duration(result.ours_wall),
        duration(result.torch_wall),
        f"{result.ratio_wall:.2f}",
    ]
    if has_compiled:
        missing = result.compiled_cpu is None
        cells += ["", ""] if missing else [duration(result.compiled_cpu), f"{result.compiled_ratio_cpu:.2f}"]
    return cells


def columns_of(*, has_compiled: bool) -> list[tuple[str, int]]:
    """The headings of the table, with the widths of their columns."""
    columns = [("row", 24), ("dtype", 5), ("size", 11), ("output", 6), ("threads", 7)]
    columns += [("ours cpu", 8), ("torch cpu", 9), ("ratio", 6), ("spread", 14), ("best", 5)]
    columns += [("ours wall", 9), ("torch wall", 10), ("wall ratio", 10)]
    return columns + ([("compiled cpu", 12), ("compiled ratio", 14)] if has_compiled else [])


def print_line(cells: Iterable[str], columns: list[tuple[str, int]]) -> None:
    """Prints one line of the table, which is Markdown."""
    padded = [cell.ljust(width) for cell, (_, width) in zip(cells, columns, strict=False)]
    print(f"| {' | '.join(padded)} |", flush=True)


def print_summary(results: list[Result]) -> None:
    """Prints the geometric mean of the ratios, and how many rows are not slower than torch."""
    for threads in sorted({result.threads for result in results}):
        done = [result for result in results if result.threads == threads and not result.error]
        if done:
            won = sum(result.ratio_cpu >= 1 for result in done)
            print(
                f"{threads} thread{'s' * (threads > 1)}: geometric mean of {len(done)} ratios "
                f"{statistics.geometric_mean(result.ratio_cpu for result in done):.2f} by processor time, "
                f"{statistics.geometric_mean(result.ratio_best for result in done):.2f} by the best, "
                f"{statistics.geometric_mean(result.ratio_wall for result in done):.2f} by wall time; "
                f"{won} rows at 1 or above by processor time"
            )


def has_fallen(old: Result, new: Result) -> bool:
    """Returns whether both ratios by processor time fell, or the row failed: one of both can fall by a disturbance."""
    is_lower = new.ratio_cpu < FALL * old.ratio_cpu and new.ratio_best < FALL * old.ratio_best
    return new.error != "" or is_lower


def fallen(before: list[Result], after: list[Result]) -> list[tuple[Result, Result]]:
    """Returns the rows of both runs that fell."""
    known = {result.key: result for result in before if not result.error}
    pairs = [(known[result.key], result) for result in after if result.key in known]
    return [(old, new) for old, new in pairs if has_fallen(old, new)]


def print_fallen(pairs: list[tuple[Result, Result]]) -> None:
    """Prints what `fallen` found."""
    if not pairs:
        print(f"no ratio fell below {FALL} of the ratio before")
    for old, new in pairs:
        label = f"{new.name}, threads: {new.threads}"
        if new.error:
            print(f"failed: {label}: {new.error.splitlines()[0]}")
            continue
        print(
            f"fell: {label}: {old.ratio_cpu:.2f} to {new.ratio_cpu:.2f}; "
            f"ours {duration(old.ours_cpu)} to {duration(new.ours_cpu)}, "
            f"torch {duration(old.torch_cpu)} to {duration(new.torch_cpu)}"
        )


def read_results(path: Path) -> list[Result]:
    """Reads the results of a file that `--json` wrote."""
    return [Result(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))["results"]]


def write_results(path: Path, results: list[Result], options: argparse.Namespace, load: float) -> None:
    """Writes the results, with what they depend on; `load` is of the machine before the run."""
    import torch

    import tilewright

    about = {
        "machine": processor_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tilewright": tilewright.__version__,
        "load": load,
        "rounds": options.rounds,
        "seconds": options.seconds,
    }
    content = {"about": about, "results": [asdict(result) for result in results]}
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def processor_name() -> str:
    """Returns the name of the processor and the number of its hardware threads."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} hardware threads"


def load_average() -> float:
    """Returns how many processes ran in the last minute on average; 0 where the system does not count them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def keep_better(results: list[Result], again: Iterable[Result]) -> list[Result]:
    """Returns the results, each replaced by its second measurement if that has a higher ratio."""
    better = {result.key: result for result in results}
    for result in again:
        first = better[result.key]
        if not result.error and (first.error or result.ratio_best > first.ratio_best):
            better[result.key] = result
    return list(better.values())


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="rows whose name contains this")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each row")
    parser.add_argument("--seconds", type=float, default=0.03, help="seconds of each side in each round")
    parser.add_argument("--compile", action="store_true", help="also time torch.compile, which takes minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    parser.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="print the rows whose ratio fell since a file was written; of two files, nothing is measured",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--child-threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()

    if options.child_threads is not None:
        run_child(options)
        return 0
    if options.compare and len(options.compare) > 2:
        parser.error(f"--compare takes one or two files, not {len(options.compare)}")
    if options.compare and len(options.compare) == 2:
        pairs = fallen(*map(read_results, options.compare))
        print_fallen(pairs)
        return 1 if pairs else 0
    names = list_rows(options.only)
    if options.list:
        print("\n".join(names))
        return 0
    if not names:
        parser.error(f"no row has '{options.only}' in its name; --list prints the names")
    if options.compile and shutil.which(os.environ.get("CXX", "g++")) is None:
        print("torch.compile is left out: there is no C++ compiler (CXX, else g++)", file=sys.stderr)
        options.compile = False

    load = load_average()
    if load > BUSY_LOAD:
        print(
            f"the machine is busy (load {load:.1f}): times of two threads are of torch's threads that wait for a core",
            file=sys.stderr,
        )
    before = read_results(options.compare[0]) if options.compare else []
    columns = columns_of(has_compiled=options.compile)
    print_line((heading for heading, _ in columns), columns)
    print_line(("-" * width for _, width in columns), columns)
    results = []
    for threads in options.threads:
        for result in measure_rows(names, threads, options):
            results.append(result)
            print_line(cells_of(result, has_compiled=options.compile), columns)
    print()
    print_summary(results)

    pairs = fallen(before, results)
    for threads in options.threads if pairs else []:
        # Another program may have disturbed a row: a ratio fell only if it is as low in a second measurement.
        doubtful = [new.name for _, new in pairs if new.threads == threads]
        results = keep_better(results, measure_rows(doubtful, threads, options))
    pairs = fallen(before, results)
    if options.compare:
        print_fallen(pairs)
    if options.json is not None:
        write_results(options.json, results, options, load)
    return 1 if pairs or any(result.error for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
