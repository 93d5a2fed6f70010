"""Lock the examples: time the first launch of each kernel from the lock, or print a digest of the lock.

The programs are the examples: norms, attention, matmuls, gating and sampling, 30 kernels and more. A first process
writes the lock. Its autotuners take their first configuration, so that the lock depends on no time.

Then each run is a process of its own, which launches from the lock. Tuning ends such a process, and so does a launch
that is not in the lock: nothing is compiled, tuned or assembled. Timed is ``kernel[grid](...)`` as programs write it,
for each launch that returns a new compiled kernel. The first of them is the first launch of the process. A second
launch on copies of the tensors takes the time of the execution, which is subtracted. The table has milliseconds, each
the least of the runs.

    python benches/locked_examples.py [--runs N] [--device DEVICE] [PROGRAM ...]

With ``--digest``, there are no runs: the program prints the digest of a lock for the CPU and three GPUs, as
``tilewright lock digest`` does. The lock has no cubins, which depend on the assembler. Each machine must print the same
digest, if its version of tilewright is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

LIMIT = 5.0
"""The permitted milliseconds."""

WITHOUT_CUBINS = """
import sys

from tilewright import _lock

_lock.assemble = lambda path: None
sys.exit(_lock.main(sys.argv[1:]))
"""
"""``tilewright lock`` without an assembler."""

TARGETS = ("cpu", "sm_80", "sm_90", "sm_100")
"""The targets of the lock whose digest is printed."""


def child(report: str, clock_name: str, programs: list[str]) -> None:
    """Runs the programs, and writes the times of first launches in their order."""
    import torch

    from tilewright.runtime import _tuning
    from tilewright.runtime.autotuner import Autotuner
    from tilewright.runtime.jit import JITFunction

    def take_first(_trial: Any, configs: Sequence[Any], known: dict[Any, list[float]]) -> _tuning.Outcome:
        return _tuning.Outcome(
            {**known, **{config: [float(index)] * 3 for index, config in enumerate(configs)}}
        )

    def refuse(*_arguments: Any) -> NoReturn:
        raise SystemExit("a configuration was measured")

    clock = getattr(time, clock_name)
    times: list[tuple[str, float, float]] = []
    seen: set[int] = set()
    handles = []

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        # With the strides of the tensor, which may be a view.
        storage = value.untyped_storage().clone()
        return value.new_empty(0).set_(storage, value.storage_offset(), value.size(), value.stride())

    def time_launches(of: type) -> None:
        subscript = of.__getitem__

        def timed(self: Any, grid: Any) -> Any:
            def launch(*args: Any, **kwargs: Any) -> Any:
                copies = [copied(arg) for arg in args], {name: copied(arg) for name, arg in kwargs.items()}
                start = clock()
                handle = subscript(self, grid)(*args, **kwargs)
                first = clock() - start
                if handle is not None and id(handle) not in seen:
                    seen.add(id(handle))
                    # An object that lives keeps its id.
                    handles.append(handle)
                    start = clock()
                    subscript(self, grid)(*copies[0], **copies[1])
                    second = clock() - start
                    times.append((f"{Path(program).stem}: {self.__name__}", first * 1e3, second * 1e3))
                return handle

            return launch

        of.__getitem__ = timed  # type: ignore[attr-defined]

    _tuning.tune = refuse if report else take_first
    if report:
        time_launches(JITFunction)
        time_launches(Autotuner)
    for program in programs:
        sys.argv = [program]
        runpy.run_path(program, run_name="__main__")
    if report:
        Path(report).write_text(json.dumps(times))


def main() -> int:
    """Writes the lock, runs the processes and prints the times; returns 1 if one is above the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", help="the programs; default: the examples for all devices")
    parser.add_argument("--runs", type=int, default=5, help="the number of processes (5)")
    parser.add_argument("--device", default="cpu", help="the device of the launches (cpu)")
    parser.add_argument(
        "--processor-time", action="store_true", help="time the launching thread, on a busy machine"
    )
    parser.add_argument("--digest", action="store_true", help="print the digest of the lock")
    given = parser.parse_args()
    programs = given.programs or [
        str(path) for path in sorted(EXAMPLES.glob("*.py")) if "gluon" not in path.name
    ]
    clock = "thread_time" if given.processor_time else "perf_counter"
    runs: list[list[tuple[str, float, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        lock, report = f"{folder}/program.lock", f"{folder}/report.json"
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": f"{folder}/cache"}
        if not given.device.startswith("cuda"):
            # The examples take a GPU if there is one.
            environment["CUDA_VISIBLE_DEVICES"] = ""
        command = [sys.executable, "-m", "tilewright"]
        where = ["--device", given.device]

        def run(*words: str) -> None:
            subprocess.run([*command, *words], check=True, env=environment, stdout=subprocess.DEVNULL)

        targets = [word for target in TARGETS for word in ("--target", target)] if given.digest else []
        words = [*where, *targets, "-o", lock, __file__, "--child", "", clock, *programs]
        lock_command = [sys.executable, "-c", WITHOUT_CUBINS] if given.digest else [*command, "lock"]
        subprocess.run([*lock_command, *words], check=True, env=environment, stdout=subprocess.DEVNULL)
        if given.digest:
            digest = subprocess.run(
                [*command, "lock", "digest", lock], check=True, capture_output=True, text=True
            )
            print(digest.stdout.split()[0])
            return 0
        for _ in range(given.runs):
            run("run", f"--locked={lock}", *where, __file__, "--child", report, clock, *programs)
            runs.append(json.loads(Path(report).read_text()))
    best = []
    for index, (name, *_) in enumerate(runs[0]):
        second = min(run[index][2] for run in runs)
        best.append((name, max(min(run[index][1] for run in runs) - second, 0.0), second))
    print("first launch - second launch, second launch, in ms:")
    name, first, second = best[0]
    print(f"{first:7.2f} {second:7.2f}  {name}, the first launch of the process")
    for name, first, second in sorted(best[1:], key=lambda row: -row[1]):
        print(f"{first:7.2f} {second:7.2f}  {name}")
    slow = sum(first > LIMIT for _, first, _ in best)
    print(f"{len(best)} kernels, {slow} above {LIMIT} ms, sum {sum(first for _, first, _ in best):.1f} ms")
    return int(slow > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(main())
