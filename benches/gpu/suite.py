"""The suite that `python3 build/gpu` runs on a machine with a GPU: device tests, benchmarks, one table.

It needs Python 3.10 or newer, torch and the official triton, and the NVIDIA driver: neither Rust, nor a network, nor
pytest. The exit status is 0 if everything passed and every size of the demanded cases reached its required ratio, 1 if
not, and 2 if there is no GPU: then only the pack is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from gpu import measure, report
from gpu.report import Check, Row
from gpu.sides import TILEWRIGHT, TORCH, TRITON

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = "pack.json"
GPU = "GPU"
NO_GPU = 2
PRODUCTS, BANDWIDTH, TORCH_COMPILE = COMPARED = ("products", "bandwidth", "torch_compile")
"""The modules that compare with the official compiler by themselves."""
SANITIZERS = "sanitized"
PARTS = ("tests", *measure.CASES, *COMPARED, SANITIZERS)
COMPILING = 600
"""Seconds without a row in which `torch.compile` may compile for both sides."""
ATTEMPTS = 3
"""Processes that a case may end before the rest of its sizes is given up."""


class Suite:
    """One run of the suite: what it was told, where it writes, and what it has found so far."""

    def __init__(self, options: argparse.Namespace, scratch: Path, log: IO[str]) -> None:
        self.options = options
        self.scratch = scratch
        self.log = log
        self.start = time.monotonic()
        self.checks: list[Check] = []
        self.rows: list[Row] = []

    def left(self) -> float:
        """Seconds that are left."""
        return self.options.limit - (time.monotonic() - self.start)

    def note(self, name: str, passed: bool, outcome: str) -> None:
        """Adds a line to the result, and shows it."""
        self.checks.append(Check(name, passed, outcome))
        self.say(f"{name}: {outcome}")

    def say(self, text: str) -> None:
        """Shows how far the suite is."""
        print(f"[{time.monotonic() - self.start:4.0f} s] {text}", flush=True)

    def environment(self, **more: str) -> dict[str, str]:
        """That of the processes: tilewright from the pack, empty caches, nothing written beside the sources."""
        path = [str(self.scratch / "site"), str(ROOT / "benches"), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUTF8": "1",
            "TILEWRIGHT_DEVICE": "cuda",
            "TILEWRIGHT_CACHE_DIR": str(self.scratch / "cache"),
            "TRITON_CACHE_DIR": str(self.scratch / "triton-cache"),
            **more,
        }

    def run(
        self,
        command: Sequence[str | Path],
        environment: dict[str, str],
        limit: float,
        *,
        alive: Path | None = None,
        output: IO[str] | None = None,
    ) -> str | int:
        """The exit status of a process, or why it was ended: it took longer, or `alive` was not written for as long."""
        self.log.write(f"\n$ {' '.join(map(str, command))}\n")
        self.log.flush()
        process = subprocess.Popen(
            [*map(str, command)],
            env=environment,
            cwd=ROOT,
            stdout=output or self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        begun = time.time()
        while process.poll() is None:
            time.sleep(0.05)
            last = alive.stat().st_mtime if alive is not None and alive.exists() else begun
            silent = time.time() - max(last, begun) > limit
            if silent or self.left() < 0:
                # With the processes that it has started.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"no answer in {limit:.0f} s" if silent else "the time of the suite is over"
        return process.returncode

    # --- The pack ---

    def unpack(self) -> bool:
        """Returns whether all files of the pack exist; puts its wheels where Python finds them."""
        try:
            manifest = json.loads((ROOT / MANIFEST).read_text(encoding="utf-8"))
        except OSError:
            self.note("pack", False, f"there is no {MANIFEST} in {ROOT}: `make gpu` makes a pack")
            return False
        lacking = [
            name
            for name, size in manifest["files"].items()
            if not (ROOT / name).is_file() or (ROOT / name).stat().st_size != size
        ]
        if lacking:
            self.note("pack", False, f"missing or cut off: {', '.join(lacking[:3])} ({len(lacking)} in all)")
            return False
        for wheel in sorted((ROOT / "wheels").glob("*.whl")):
            # The tools of the tests stay out of sight of the benchmarks.
            folder = "site" if wheel.name.startswith("tilewright-") else "tools"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.scratch / folder)
        self.note("pack", True, f"{len(manifest['files'])} files of {manifest['made_of']}")
        return True

    def look(self) -> bool:
        """Returns whether there is a GPU; checks that everything can be imported, and that tables can be made."""
        journal = self.scratch / "look.json"
        ended = self.measure("look", journal, 0)
        found = next((line["found"] for line in _lines(journal) if "found" in line), None)
        if found is None:
            self.note("machine", False, f"Python ended with {ended}; the log says why")
            return False
        for name, error in found["missing"].items():
            # Without the official triton, its column stays empty; nothing works without the others.
            self.note(f"import {name}", name == TRITON, error)
        versions = [
            f"{name} {found[name]}" for name in ("python", TORCH, TRITON, TILEWRIGHT) if name in found
        ]
        self.note("versions", True, ", ".join(versions))
        site = self.scratch / "site"
        if "from" in found and Path(found["from"]) != site.resolve():
            self.note("tilewright", False, f"imported from {found['from']}, not from the pack")
        self._check_tables()
        if "gpu" not in found:
            text = "there is none that torch can use: no device test, no measurement"
            self.note(GPU, self.options.dry, text)
            return False
        self.note(GPU, True, found["gpu"])
        return True

    def _check_tables(self) -> None:
        fake = [
            Row("a case", str(size), "GB/s", 4e6, 1.0, {TORCH: [2.0], TRITON: [4.0], TILEWRIGHT: [2.0]})
            for size in (1, 2)
        ]
        fake.append(Row("another", "1", "ms", 0.0, None, {}, {TILEWRIGHT: "an | error"}))
        whole = report.terminal([], fake) + report.markdown([], fake) + json.dumps(report.as_json([], fake))
        expected = ("2000", "2.00 (2.00 to 2.00)", "an / error", "1.0 at 2 of 2")
        passed = all(text in whole for text in expected)
        self.note("tables", passed, "made of invented times" if passed else "figures are missing")

    # --- Device tests ---

    def rust_tests(self) -> None:
        """The compiled tests of the driver's crate and of the kernels in tests/kernels, where they are in the pack."""
        programs: dict[str, list[str]] = {
            "smoke": [],
            "device": ["--test-threads=1"],
            "pages": ["--exact", "kernels_on_the_gpu", "--nocapture"],
        }
        for name, arguments in programs.items():
            program = ROOT / "bin" / name
            if not program.exists():
                self.note(f"bin/{name}", True, "not in this pack")
                continue
            if not os.access(program, os.X_OK):
                program.chmod(0o755)
            output = self.scratch / f"{name}.txt"
            with output.open("w+", encoding="utf-8") as file:
                ended = self.run([program, *arguments], self.environment(), 120, output=file)
            text = output.read_text(encoding="utf-8", errors="replace")
            self.log.write(text)
            counts = re.findall(r"test result: \w+\. (\d+ passed; \d+ failed)", text)
            failed = re.findall(r"^test (\S+) \.\.\. FAILED", text, re.MULTILINE)
            said = re.findall(r"^(?:test \S+ \.\.\. )?(\d+ kernels .*|skipped: .*)$", text, re.MULTILINE)
            # The last count is that of all; a test that starts this program again has one of its own.
            outcome = "; ".join([*counts[-1:], *failed, *said]) or (text.strip().splitlines() or [""])[-1]
            self.note(f"bin/{name}", ended == 0, outcome if ended == 0 else f"ended with {ended}: {outcome}")

    def python_tests(self) -> None:
        """The tests of kernels in tests/python, on the GPU."""
        if not (self.scratch / "tools" / "pytest").is_dir():
            self.note("tests/python", True, "no pytest in this pack")
            return
        environment = self.environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        environment["PYTHONPATH"] = f"{self.scratch / 'tools'}{os.pathsep}{environment['PYTHONPATH']}"
        found = self.scratch / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-q"]
        workers = self.options.workers
        if workers > 1:
            command += ["-p", "xdist.plugin", "--numprocesses", str(workers), "--max-worker-restart", "100"]
        command += ["--tb=short", "--junitxml", str(found), *self.options.pytest, "tests/python"]
        ended = self.run(command, environment, self.options.tests_limit)
        try:
            root = ElementTree.parse(found).getroot()
        except (OSError, ElementTree.ParseError):
            self.note(
                "tests/python", False, f"pytest ended with {ended} and left no result; the log says why"
            )
            return
        cases = list(root.iter("testcase"))
        bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
        skipped = sum(case.find("skipped") is not None for case in cases)
        outcome = f"{len(cases) - len(bad) - skipped} passed, {len(bad)} failed, {skipped} skipped"
        names = [f"{case.get('classname', '')}.{case.get('name')}".strip(".") for case in bad]
        self.log.write("".join(f"FAILED {name}\n" for name in names))
        self.note("tests/python", ended == 0, "; ".join([outcome, *names[:3]]))

    # --- Benchmarks ---

    def measure(self, case: str, journal: Path, skip: int) -> str | int:
        """How a process that measures ended."""
        command = [sys.executable, "-m", "gpu.measure", case, "--journal", journal]
        for name, value in (("skip", skip), ("step", self.options.step), ("rounds", self.options.rounds)):
            command += [f"--{name}", str(value)]
        # A cache would answer in place of the compiler: ours, and the driver's, which keeps what it assembled from PTX.
        cold = {"TILEWRIGHT_CACHE_LIMIT": "0", "CUDA_CACHE_DISABLE": "1"}
        more = cold if case in ("ptx", "cubin") else {}
        return self.run(command, self.environment(**more), self.options.silence, alive=journal)

    def benchmark(self, case: str) -> None:
        """The rows of a case; a process that dies or hangs costs the size that it was at."""
        rows: list[Row] = []
        for attempt in range(ATTEMPTS):
            journal = self.scratch / f"{case}-{attempt}.json"
            ended = self.measure(case, journal, len(rows))
            found, unfinished, finished = read_journal(journal)
            rows += found
            if finished:
                break
            why = ended if isinstance(ended, str) else f"the process ended with status {ended}"
            if unfinished is not None:
                row, side = unfinished
                row.errors[side] = why
                rows.append(row)
            elif not found:
                rows.append(Row(case, "all", "", 0.0, 1.0, {}, {TILEWRIGHT: f"nothing was measured: {why}"}))
                break
        else:
            last = rows[-1]
            rows.append(Row(last.case, "rest", last.unit, 0.0, last.asked, {}, {TILEWRIGHT: "given up"}))
        self.rows += rows
        failed = sum(not row.passed for row in rows)
        self.say(f"{case}: {len(rows)} rows, {failed} fall short")

    def compare(self, part: str) -> None:
        """The rows of a module that has both sides and checks them first, and writes what it found after each row."""
        if any(check.name == f"import {TRITON}" for check in self.checks):
            self.note(part, True, "not compared without the official triton")
            return
        begin = [sys.executable, "-m", f"gpu.{part}"]
        rounds = ["--rounds", str(self.options.rounds)]
        if part == PRODUCTS:
            # The official compiler is slow: what it makes lies in its cache then.
            parts = self.options.workers
            commands = [[*begin, "--compile", f"{number}/{parts}"] for number in range(parts)]
            with ThreadPoolExecutor(parts) as pool:
                list(pool.map(lambda command: self.run(command, self.environment(), self.left()), commands))
        silence = max(self.options.silence, COMPILING) if part == TORCH_COMPILE else self.options.silence
        found = self.scratch / f"{part}.json"
        command = [*begin, "--json", found, *(rounds if part != TORCH_COMPILE else [])]
        ended = self.run(command, self.environment(), silence, alive=found)
        try:
            rows = [compared_row(part, row) for row in json.loads(found.read_text(encoding="utf-8"))]
        except (OSError, ValueError):
            rows = []
        if not rows or (ended != 0 and all(row.passed for row in rows)):
            why = f"the process ended with {ended}"
            rows.append(Row(part, "rest", "", 0.0, 1.0, {}, {TILEWRIGHT: why}))
        self.rows += rows
        self.say(f"{part}: {len(rows)} rows, {sum(not row.passed for row in rows)} fall short")

    def sanitizers(self) -> None:
        """Checks that the tools of compute-sanitizer find the planted mistakes, and nothing else."""
        if shutil.which("compute-sanitizer") is None:
            self.note(SANITIZERS, True, "there is no compute-sanitizer here")
            return
        table = self.scratch / f"{SANITIZERS}.txt"
        command = [sys.executable, "-m", f"gpu.{SANITIZERS}", "--jobs", str(self.options.workers)]
        with table.open("w", encoding="utf-8") as output:
            ended = self.run(command, self.environment(), self.left(), output=output)
        text = table.read_text(encoding="utf-8")
        self.log.write(text)
        self.note(SANITIZERS, ended == 0, (text.splitlines() or [f"the process ended with {ended}"])[-1])

    def write(self, out: Path) -> None:
        """The files, and the table on the terminal."""
        text = report.terminal(self.checks, self.rows)
        (out / "results.md").write_text(report.markdown(self.checks, self.rows), encoding="utf-8")
        whole = report.as_json(self.checks, self.rows)
        (out / "results.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
        print(f"\n{text}\nwritten to {out}", flush=True)
        self.log.write(f"\n{text}")


def compared_row(part: str, found: dict[str, Any]) -> Row:
    """A row of a module that compares by itself.

    A side of `gpu.products` has a time if one of its configurations is right, and else its first error.
    """
    if part != PRODUCTS:
        return Row(found["name"], "", "µs", 0.0, 1.0, found["times"], found["errors"])
    errors: dict[str, str] = {}
    for name, error in found["errors"].items():
        side = name.split()[0]
        if side not in found["times"]:
            errors.setdefault(side, error)
    size = found["config"].get(TILEWRIGHT, "all")
    asked = (found["asked"], found["times"], errors, found["asked_torch"])
    return Row(found["name"], size, found["unit"], found["work"], *asked)


def read_journal(path: Path) -> tuple[list[Row], tuple[Row, str] | None, bool]:
    """The rows that a process finished, the one that it was at and the side that it ran, and whether it got through."""
    rows: list[Row] = []
    current: dict[str, Any] | None = None
    side = TILEWRIGHT
    finished = False
    for line in _lines(path):
        if "begin" in line:
            current, side = line["begin"], TILEWRIGHT
        elif "side" in line:
            side = line["side"]
        elif "row" in line:
            rows.append(Row(**line["row"]))
            current = None
        finished = finished or line.get("finished", False)
    return rows, None if current is None else (Row(**current), side), finished


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; the last one may be cut off."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="build/gpu", description=__doc__)
    default = os.environ.get("OUT") or "results"
    parser.add_argument("--out", type=Path, default=Path(default), help="folder for the tables and the log")
    parser.add_argument("--dry", action="store_true", help="only check the pack: needs no GPU")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="only these parts")
    parser.add_argument(
        "--step", type=int, default=1, help="measure each STEP-th size of each case (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each comparison (%(default)s)")
    parser.add_argument(
        "--workers", type=int, default=min(8, os.cpu_count() or 1), help="processes that test"
    )
    parser.add_argument("--limit", type=float, default=3600, help="seconds for everything (%(default)s)")
    parser.add_argument("--tests-limit", type=float, default=600, help="seconds for the tests (%(default)s)")
    parser.add_argument(
        "--silence", type=float, default=120, help="seconds that a size may take (%(default)s)"
    )
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="the rest is for pytest")
    return parser.parse_args()


def main() -> int:
    """Runs the suite."""
    options = arguments()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    wanted = options.only or PARTS
    with (
        tempfile.TemporaryDirectory(prefix="tilewright-gpu-") as scratch,
        (out / "log.txt").open("w", encoding="utf-8") as log,
    ):
        suite = Suite(options, Path(scratch), log)
        has_gpu = suite.unpack() and suite.look()
        if has_gpu and not options.dry:
            if "tests" in wanted:
                suite.rust_tests()
                suite.python_tests()
            for case in measure.CASES:
                if case in wanted:
                    suite.benchmark(case)
            for part in COMPARED:
                if part in wanted:
                    suite.compare(part)
            if SANITIZERS in wanted:
                suite.sanitizers()
        suite.write(out)
    return status(suite.checks, suite.rows)


def status(checks: list[Check], rows: list[Row]) -> int:
    """The exit status."""
    failed = [check.name for check in checks if not check.passed]
    if failed == [GPU]:
        return NO_GPU
    return 0 if not failed and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
