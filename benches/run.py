"""Time tilewright beside torch on the CPU and, where the official triton is importable, beside its interpreter.

Every figure is a ratio: both sides run in turn, round by round, in one process; the table gives the median of the
rounds' ratios and their spread. Correctness is checked before anything is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

THREADS = 2
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """A line of the table; ratio is peer time / tilewright time where there is a peer, else limit / measured."""

    name: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    floor: float | None
    unit: str = "ms"

    @property
    def passed(self) -> bool:
        """Returns whether the median reaches the required ratio."""
        return self.floor is None or self.ratio >= self.floor

    @property
    def asked(self) -> str:
        """The required ratio, as text."""
        return "" if self.floor is None else f"{self.floor:.1f}"


def time_calls(run: Callable[[], object], seconds: float) -> float:
    """Seconds a call, over as many calls as fit into about `seconds`."""
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    count = max(1, int(seconds / max(once, 1e-9)))
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int, seconds: float
) -> list[tuple[float, float]]:
    """Seconds a call of both, in turn, for each round; the first is given up to warm caches."""
    pairs = []
    for index in range(rounds + 1):
        pair = (time_calls(ours, seconds), time_calls(theirs, seconds))
        if index > 0:
            pairs.append(pair)
    return pairs


def row_of(name: str, peer: str, floor: float | None, pairs: list[tuple[float, float]]) -> Row:
    """The line for the rounds of one comparison, in milliseconds."""
    ratios = [theirs / ours for ours, theirs in pairs]
    return Row(
        name=name,
        peer=peer,
        ours=statistics.median(ours for ours, _ in pairs) * 1e3,
        theirs=statistics.median(theirs for _, theirs in pairs) * 1e3,
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        floor=floor,
    )


def throughput(rounds: int, only: str) -> list[Row]:
    """The cases beside torch."""
    import cases
    import torch

    rows = []
    for case in cases.all_cases():
        if only not in case.name:
            continue
        torch.testing.assert_close(case.kernel(), case.torch(), atol=case.tolerance, rtol=case.tolerance)
        rows.append(row_of(case.name, "torch", case.floor, compare(case.kernel, case.torch, rounds, 0.05)))
    return rows


def limit_row(name: str, limit: float, samples: list[float], unit: str) -> Row:
    """A line for a figure that has a limit and no peer."""
    middle = statistics.median(samples)
    return Row(
        name, "limit", middle, limit, limit / middle, limit / max(samples), limit / min(samples), 1.0, unit
    )


def launch_overhead(rounds: int) -> Row:
    """A warm launch with five arguments on a tiny tensor, above the call of an empty Python function."""
    import kernels
    import torch

    x = torch.ones(16)
    out = torch.empty_like(x)

    def launch() -> None:
        kernels.add_kernel[(1,)](x, x, out, 16, BLOCK=16)

    def nothing(a: object, b: object, c: object, d: object, BLOCK: int) -> None:
        pass

    def empty() -> None:
        nothing(x, x, out, 16, BLOCK=16)

    pairs = compare(launch, empty, rounds, 0.05)
    return limit_row(
        "launch above an empty call", 4.0, [(ours - theirs) * 1e6 for ours, theirs in pairs], "µs"
    )


def launch_to_driver(rounds: int) -> list[Row]:
    """A warm launch on a GPU, as far as the call of its driver, which a library replaces."""
    import launch

    return [
        limit_row(f"launch to the driver, {count} arguments", launch.LIMITS[count], samples, "µs")
        for count, samples in launch.samples(rounds).items()
    ]


def compile_time(rounds: int) -> Row:
    """From source to CPU program, for the matrix product, with everything that a fresh kernel needs."""
    import kernels
    import torch
    import triton

    a = torch.ones(64, 64)
    samples = []
    for _ in range(rounds * 5):
        kernel = triton.jit(kernels.matmul_kernel.fn)
        start = time.perf_counter()
        kernel.warmup(
            a,
            a,
            a,
            64,
            64,
            64,
            *a.stride(),
            *a.stride(),
            *a.stride(),
            BLOCK_M=64,
            BLOCK_N=64,
            BLOCK_K=64,
            grid=(1,),
        )
        samples.append((time.perf_counter() - start) * 1e3)
    return limit_row("source to CPU program, matmul", 3.0, samples, "ms")


def import_time(rounds: int) -> Row:
    """`import tilewright`, above the start of Python."""

    def start(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - begin

    samples = [(start("import tilewright") - start("pass")) * 1e3 for _ in range(rounds * 2)]
    return limit_row("import tilewright", 40.0, samples, "ms")


def wheel_size() -> list[Row]:
    """The wheel, where `make wheel` has built one."""
    wheels = sorted((HERE.parent / "dist").glob("tilewright-*.whl"), key=lambda path: path.stat().st_mtime)
    return [limit_row("wheel", 12.0, [path.stat().st_size / 1e6], "MB") for path in wheels[-1:]]


def run_interpreter_cases(only: str, *, is_ours: bool) -> None:
    """In a process of its own, in interpret mode, of tilewright or of the official triton: print the times as JSON."""
    if is_ours:
        import tilewright

        tilewright.install_as_triton()
    import cases
    import torch

    times = {}
    for case in cases.interpreter_cases():
        if only in case.name:
            torch.testing.assert_close(case.kernel(), case.torch(), atol=case.tolerance, rtol=case.tolerance)
            times[case.name] = time_calls(case.kernel, 0.0)
    print(json.dumps(times))


def interpreted(only: str, *, is_ours: bool) -> dict[str, float] | None:
    """Seconds a call of the cases in interpret mode; none if they could not be run."""
    environment = dict(os.environ, TRITON_INTERPRET="1")
    command = [sys.executable, str(Path(__file__).resolve()), "--only", only, "--interpreter-cases"]
    command.append("tilewright" if is_ours else "official")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"interpret mode failed and is left out:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def interpreter(only: str) -> list[Row]:
    """The cases, compiled and interpreted, beside the interpreter of the official triton, one run each: it is slow."""
    if importlib.util.find_spec("triton") is None:
        print("the official triton is not importable: its interpreter is left out", file=sys.stderr)
        return []
    theirs = interpreted(only, is_ours=False)
    ours = [interpreted(only, is_ours=True) for _ in range(3)]
    if theirs is None or None in ours:
        return []

    import cases

    rows = []
    for case in cases.interpreter_cases():
        if only in case.name:
            pairs = [(time_calls(case.kernel, 0.05), theirs[case.name]) for _ in range(3)]
            rows.append(row_of(case.name, "interpreter", None, pairs))
            pairs = [(times[case.name], theirs[case.name]) for times in ours if times is not None]
            rows.append(row_of(f"{case.name} interpreted", "interpreter", 20.0, pairs))
    return rows


def markdown(rows: list[Row]) -> str:
    """The table as Markdown."""
    lines = [
        "| case | beside | tilewright | peer or limit | ratio | spread | required |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {row.peer} | {row.ours:.4g} {row.unit} | {row.theirs:.4g} {row.unit} | {row.ratio:.2f} "
            f"| {row.low:.2f} to {row.high:.2f} | {row.asked} {'✓' if row.passed else '✗'} |"
        )
    return "\n".join(lines) + "\n"


def show(rows: list[Row]) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"tilewright, {THREADS} threads each; ratio = peer / tilewright, more is better")
    for heading in ("case", "beside", "tilewright", "peer or limit", "ratio", "spread", "required"):
        table.add_column(heading, justify="left" if heading in ("case", "beside") else "right", no_wrap=True)
    for row in rows:
        style = "green" if row.passed else "red"
        table.add_row(
            row.name,
            row.peer,
            f"{row.ours:.4g} {row.unit}",
            f"{row.theirs:.4g} {row.unit}",
            f"[{style}]{row.ratio:.2f}[/]",
            f"{row.low:.2f} to {row.high:.2f}",
            row.asked,
        )
    Console(width=120).print(table)


def plot(rows: list[Row], path: Path) -> None:
    """The ratios beside torch and the limits as a bar chart."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [row for row in rows if row.peer != "interpreter"]
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(shown) + 1.5), layout="constrained")
    errors = [[row.ratio - row.low for row in shown], [row.high - row.ratio for row in shown]]
    colors = ["tab:green" if row.passed else "tab:red" for row in shown]
    names = [f"{row.name} ({row.peer})" for row in shown]
    axes.barh(names, [row.ratio for row in shown], xerr=errors, color=colors, capsize=3)
    for index, row in enumerate(shown):
        if row.floor is not None:
            axes.plot([row.floor, row.floor], [index - 0.4, index + 0.4], color="black", linestyle=":")
    axes.invert_yaxis()
    axes.set_xlabel("ratio to the peer or limit; dotted: required")
    figure.savefig(path)
    plt.close(figure)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each comparison")
    parser.add_argument(
        "--out", type=Path, default=HERE.parent / "build" / "bench", help="where the files go"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a figure falls short")
    parser.add_argument("--interpreter-cases", help=argparse.SUPPRESS)
    options = parser.parse_args()

    os.environ.setdefault("TILEWRIGHT_NUM_THREADS", str(THREADS))
    if options.interpreter_cases:
        run_interpreter_cases(options.only, is_ours=options.interpreter_cases == "tilewright")
        return 0

    import torch

    import tilewright

    tilewright.install_as_triton()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    rows = throughput(options.rounds, options.only)
    for figure in (launch_overhead, compile_time, import_time):
        rows += [figure(options.rounds)] if options.only in figure.__name__ else []
    rows += launch_to_driver(options.rounds) if options.only in launch_to_driver.__name__ else []
    rows += wheel_size() + interpreter(options.only)

    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.md").write_text(markdown(rows), encoding="utf-8")
    (options.out / "results.json").write_text(
        json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8"
    )
    plot(rows, options.out / "results.png")
    show(rows)
    print(f"written to {options.out}")
    return 1 if options.strict and not all(row.passed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
