"""Runs random programs of `random_dots` and compares what they leave with binary64.

    python tests/python/support/fuzz_dots.py 0..1000                  # programs of these seeds
    python tests/python/support/fuzz_dots.py 17 --plain loops dtype   # one, with some plain decisions

Each runs on ``--devices``, and its PTX for sm_90 is assembled where there is a ptxas. One that fails is shrunk, and
written to ``--out`` as a file that runs by itself. Programs run in a process of their own, which a panic or a hang
ends.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

PATIENCE = 900
"""Seconds after which a program counts as hung."""


# The code of the child process.


def judge(tensor: Any, expected: Any, is_exact: bool) -> str:
    """The error in a result; nothing if it is right."""
    import torch

    expected = expected.to(tensor.dtype).double()
    found = tensor.cpu().double()
    limit = 0.0 if is_exact else 0.02 * float(expected.nan_to_num(0, 0, 0).abs().max()) + 1e-3
    # Numbers too large for the type are infinite on both sides.
    is_same = (found == expected) | (found.isnan() & expected.isnan()) | ((found - expected).abs() <= limit)
    if is_same.all():
        return ""
    wrong = torch.nonzero(~is_same)
    places = ", ".join(
        f"{place}: {found[tuple(place)]} for {expected[tuple(place)]}" for place in wrong[:3].tolist()
    )
    return f"{len(wrong)} of {found.numel()} are wrong, {places}"


def module_of(text: str) -> Any:
    """The module of a program's text."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="random_product_", delete=False) as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("random_product", file.name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, Path(file.name)


def launch(program: Any, device: str = "cpu", **options: Any) -> tuple[Any, list[str]]:
    """Runs a program where kernels run; gives the compiled kernel and what is wrong."""
    module, path = module_of(program.text)
    try:
        handle, bound = module.launch(device, **options)
    finally:
        path.unlink()
    wrong = []
    for name, expected in program.expected.items():
        result = bound.get(f"{name}_ptr", bound.get(f"{name}_desc"))
        fault = judge(getattr(result, "base", result), expected, not program.is_soft)
        wrong += [f"{name}: {fault}"] if fault else []
    return handle, wrong


def assembled(ptx: str) -> str:
    """The assembler's error; nothing if there is no assembler."""
    package = importlib.util.find_spec("triton")
    beside = Path(package.origin).parent / "backends/nvidia/bin/ptxas" if package else None
    tool = os.environ.get("TILEWRIGHT_PTXAS") or (beside if beside and beside.exists() else None)
    if not tool:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.ptx"
        text.write_text(ptx)
        command = [tool, "-arch=sm_90a", text, "-o", Path(folder) / "kernel.cubin"]
        found = subprocess.run(command, capture_output=True, text=True)
    return found.stderr if found.returncode else ""


def outcome(seed: int, plain: list[str], devices: list[str]) -> dict:
    """The outcome of a program: `failure` names the device and the kind of error."""
    from random_dots import Program

    from tilewright import _native
    from tilewright.runtime.errors import OutOfResources

    program = Program(seed, frozenset(plain))
    result: dict = {"taken": program.decisions.taken, "text": program.text, "refused": []}
    for device in devices:
        if device == "sim:sm_80" and "float8" in program.text and "e4" in program.text:
            continue
        _native.set_device(device)
        try:
            # Every fourth is sanitized: it races nowhere, and reads nothing that is not there.
            handle, wrong = launch(program, **({"sanitize": True} if seed % 4 == 0 else {}))
        except OutOfResources:
            result["refused"].append(device)
            continue
        except BaseException as error:  # A panic is no `Exception`.
            return result | {"failure": f"{device}: {type(error).__name__}", "said": str(error)}
        if wrong:
            return result | {"failure": f"{device}: wrong", "said": "\n".join(wrong)}
        if device == "sim:sm_90" and (said := assembled(handle.asm["ptx"])):
            return result | {"failure": "ptxas", "said": said}
    return result


def serve() -> None:
    """Answers one line for each line."""
    import torch

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        seed, plain, devices = json.loads(line)
        answers.write(json.dumps(outcome(seed, plain, devices)) + "\n")
        answers.flush()


# The code of the parent process.


class Child:
    """The process in which programs run; a new one starts after a crash."""

    def __init__(self, devices: list[str]) -> None:
        self.devices = devices
        self.process: subprocess.Popen[str] | None = None

    def run(self, seed: int, plain: frozenset[str] = frozenset()) -> dict:
        if self.process is None:
            command = [sys.executable, __file__, "--serve"]
            self.said = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True
            )
        process = self.process
        process.stdin.write(json.dumps([seed, sorted(plain), self.devices]) + "\n")
        process.stdin.flush()
        timer = _Timer(process)
        answer = process.stdout.readline()
        is_late = timer.stop()
        if answer:
            result = json.loads(answer)
            if "failure" in result:
                result["said"] = self.panic() + result["said"]
            return result
        process.wait()
        self.process = None
        self.said.seek(0)
        said = self.panic() or self.said.read()[-4000:]
        return {"failure": "hangs" if is_late else "crashes", "said": said, "taken": {}, "refused": []}

    def panic(self) -> str:
        """The position and the first words of the last panic."""
        self.said.seek(0)
        _, found, text = self.said.read().rpartition("panicked at ")
        self.said.seek(0, os.SEEK_END)
        lines = text.splitlines()[:2]
        return " ".join(lines[::-1]) + "\n" if found else ""


class _Timer:
    """Ends a process that hangs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        import threading

        self.is_late = False
        self.timer = threading.Timer(PATIENCE, self.end, [process])
        self.timer.start()

    def end(self, process: subprocess.Popen[str]) -> None:
        self.is_late = True
        process.kill()

    def stop(self) -> bool:
        self.timer.cancel()
        return self.is_late


def kind(result: dict) -> str:
    """A text that failures with the same cause share: numbers and names of values are left out."""
    said = result.get("said", "").splitlines() or [""]
    first = "" if result["failure"].endswith("wrong") else re.sub(r"%\w+|\d+", "", said[0])
    return f"{result['failure']}: {first}"


def shrink(child: Child, seed: int, plain: frozenset[str], failure: str) -> frozenset[str]:
    """Makes decisions plain as long as the program fails as it did."""
    from random_dots import Program

    def open_decisions(plain: frozenset[str]) -> list[str]:
        taken = Program(seed, plain).decisions.taken
        return [name for name, place in taken.items() if place and name not in plain]

    names = open_decisions(plain)
    size = max(len(names) // 2, 1)
    while names:
        for start in range(0, len(names), size):
            fewer = plain | frozenset(names[start : start + size])
            found = child.run(seed, fewer)
            if found.get("failure") and kind(found) == failure:
                plain = fewer
        names = open_decisions(plain)
        if size == 1:
            break
        size = max(size // 2, 1)
    return plain


def explore(seeds: range, plain: frozenset[str], child: Child, out: Path, shrinks: bool) -> int:
    """Runs programs and reports; gives how many fail."""
    counts: Counter[str] = Counter()
    known: Counter[str] = Counter()
    began = time.monotonic()
    for seed in seeds:
        result = child.run(seed, plain)
        counts["programs"] += 1
        counts.update(f"refused by {device}" for device in result["refused"])
        if failure := result.get("failure"):
            known[kind(result)] += 1
            print(f"seed {seed}: {failure}\n{result['said'][:1500]}", flush=True)
            # A failure that was seen twice has been shrunk.
            smaller = (
                shrink(child, seed, plain, kind(result)) if shrinks and known[kind(result)] < 3 else plain
            )
            report(seed, smaller, result, child, out)
        if counts["programs"] % 20 == 0:
            print(
                f"{seed}: {dict(counts)}, {sum(known.values())} failed, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    print(f"{dict(counts)} in {time.monotonic() - began:.0f} s; failures: {dict(known)}")
    return sum(known.values())


def report(seed: int, plain: frozenset[str], result: dict, child: Child, out: Path) -> None:
    """Writes the file of a program that fails."""
    from random_dots import Program

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"product_{seed}.py"
    said = "".join(f"# {line}\n" for line in f"{result['failure']}\n{result['said']}".splitlines()[:40])
    path.write_text(Program(seed, plain).text + "\n" + said)
    print(f"{path}: python {__file__} {seed} --plain {' '.join(sorted(plain))}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", nargs="?", help="a seed, or two with .. between them")
    parser.add_argument("--plain", nargs="*", default=[], help="decisions that take their plainest option")
    parser.add_argument("--devices", nargs="*", default=["cpu", "sim:sm_90", "sim:sm_80"])
    parser.add_argument("--out", type=Path, default=Path("build/random-dots"))
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return 0
    first, _, end = chosen.seeds.partition("..")
    seeds = range(int(first), int(end) if end else int(first) + 1)
    child = Child(chosen.devices)
    return min(explore(seeds, frozenset(chosen.plain), child, chosen.out, not chosen.no_shrink), 1)


if __name__ == "__main__":
    sys.exit(main())
