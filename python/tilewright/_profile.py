"""``tilewright profile``: runs a Python program as ``tilewright run`` does, and reports the time of its kernels.

On the CPU each op is timed. On the simulator a simple model of a GPU estimates times from counters. On a GPU kernels
are timed by CUPTI if it is available, else by events before and after each launch.
"""

from __future__ import annotations

import atexit
import json
import linecache
import math
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from tilewright._arguments import CHECKED, ProgramParser
from tilewright._files import write_file
from tilewright._flame import flame_graph, folded
from tilewright._output import print_result

_DESCRIPTION = """\
Run a Triton program, and report the time of its kernels

On the CPU: the time of each op and line. On the simulator of a GPU (--device sim:sm_90): sectors, bank conflicts,
tensor cores, and what they would take on a GPU by a simple model. On a GPU: the time of each kernel, by CUPTI where it
is there (TILEWRIGHT_CUPTI names it), else by events."""


def parser() -> ProgramParser:
    """The parser of ``tilewright profile``."""
    from tilewright._run import LOCK_ENDINGS, add_locked

    made = ProgramParser("tilewright profile", _DESCRIPTION, {"--locked": LOCK_ENDINGS})
    made.add_option(
        "--device",
        metavar="<device>",
        help="where kernels run: cpu, cuda, cuda:1, sim:sm_90; as for `tilewright run`",
    )
    made.add_option(
        "--gpu",
        metavar="<name>",
        help="the GPU that launches on the simulator are estimated for: H200, A100, L4, RTX4090 ...",
    )
    made.add_option("--json", metavar="<file>", help="write all of it as JSON; - is stdout")
    made.add_option(
        "--flame", metavar="<file>", help="write a flame graph: .svg or .html; .folded for other tools"
    )
    made.add_option(
        "--trace",
        metavar="<file>",
        help="write a trace for Perfetto (ui.perfetto.dev) and chrome://tracing",
    )
    made.add_option(
        "--lines",
        metavar="<number>",
        type=int,
        default=8,
        help="how many lines of a kernel the table has (8)",
    )
    made.add_option("--report", metavar="<file>", help="write the table to a file instead of stderr")
    add_locked(made)
    return made


def main(arguments: list[str]) -> int:
    """Runs the program; writes the measurements when it has ended."""
    command = parser()
    wanted = command.parse(arguments)
    if not wanted.program:
        command.error("no program to profile")
    if (failure := _check(wanted)) is not None:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    if (diagnostic := _check_gpu(wanted.gpu)) is not None:
        print(diagnostic, file=sys.stderr)
        return 2

    from tilewright import _run
    from tilewright._measurements import MEASUREMENTS

    if wanted.locked is not None and not _run.can_read_lock(_run.set_lock(wanted.locked)):
        return 1
    MEASUREMENTS.begin_command(wanted.gpu)
    atexit.register(_finish, wanted)
    _run.end_in_order()
    device = [] if wanted.device is None else ["--device", wanted.device]
    lock = [] if wanted.locked is None else [f"--locked={wanted.locked}"]
    return _run.main([CHECKED, *device, *lock, wanted.kind or "--", *wanted.program])


def _check(wanted: Namespace) -> str | None:
    """Returns the error in the options, before a program runs for long.

    Paths become absolute: the program may change folders.
    """
    if wanted.lines < 0:
        return f"--lines is a number of lines, not '{wanted.lines}'"
    if wanted.flame is not None and not wanted.flame.endswith((".svg", ".html", ".folded")):
        return f"--flame takes a .svg, .html or .folded file, not '{wanted.flame}'"
    for name in ("json", "flame", "trace", "report"):
        path = getattr(wanted, name)
        if path is None or (path == "-" and name == "json"):
            continue
        setattr(wanted, name, os.path.abspath(path))
        try:
            with open(path, "a"):
                pass
        except OSError as error:
            return f"cannot write {path}: {error.strerror}"
    return None


def _check_gpu(name: str | None) -> str | None:
    """Returns the diagnostic about an unknown GPU."""
    from tilewright import _native
    from tilewright.errors import TritonError

    try:
        _native.take_profile(name)
    except TritonError as error:
        return str(error)
    return None


def cupti_folders() -> list[str]:
    """The folders of NVIDIA's Python packages, which torch brings, that have CUPTI."""
    import glob

    below = ("nvidia/cu[0-9]*/lib", "nvidia/cuda_cupti/lib", "triton/backends/nvidia/lib/cupti*")
    found = [glob.glob(os.path.join(folder, path)) for folder in sys.path if folder for path in below]
    return [folder for folders in found for folder in sorted(folders, reverse=True)]


def _finish(wanted: Namespace) -> None:
    from tilewright._measurements import MEASUREMENTS

    profile = complete(MEASUREMENTS.end_command())
    text = table(profile, wanted.lines)
    if wanted.report is not None:
        _write(wanted.report, text)
    else:
        sys.stderr.write(text)
    if wanted.gpu is not None and profile["kernels"] and not any("sim" in one for one in profile["kernels"]):
        text = f"--gpu {wanted.gpu} has no effect: no kernel ran on a simulated GPU (--device sim:sm_90)"
        print(f"warning: {text}", file=sys.stderr)
    for note in profile["notes"]:
        print(note, file=sys.stderr)
    if (path := wanted.json) == "-":
        print_result(json.dumps(profile) + "\n")
    elif path is not None:
        _write(path, json.dumps(profile, indent=1) + "\n")
    if (path := wanted.trace) is not None:
        _write(path, json.dumps(chrome_trace(profile)) + "\n")
    if (path := wanted.flame) is not None:
        stacks = list(_stacks(profile))
        is_page = path.endswith((".svg", ".html"))
        _write(path, flame_graph(stacks, is_html=path.endswith(".html")) if is_page else folded(stacks))


def _write(path: str, text: str) -> None:
    try:
        write_file(path, text)
    except OSError as error:
        print(f"tilewright: cannot write {path}: {error.strerror}", file=sys.stderr)


def complete(profile: dict[str, Any]) -> dict[str, Any]:
    """Completes a profile with derived numbers: time, bytes and operations of each kernel and of each line."""
    for kernel in profile["kernels"]:
        kernel.update(ns=0.0, timed=0, read=0, written=0, flops=0)
        for step in kernel["steps"]:
            for name in ("read", "written", "flops"):
                kernel[name] += step[name]
        if (sim := kernel.get("sim")) is not None:
            kernel["flops"] = sim["estimate"]["operations"]
            kernel["read"] = sum(line["globalRead"] for line in sim["lines"])
            kernel["written"] = sum(line["globalWritten"] for line in sim["lines"])
        kernel["lines"] = _lines(kernel)
    for launch in profile["launches"]:
        if launch["ns"] is not None:
            profile["kernels"][launch["kernel"]]["ns"] += launch["ns"]
            profile["kernels"][launch["kernel"]]["timed"] += 1
    return profile


def _lines(kernel: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the measurements by line.

    Machine code that several lines share, a nest, is one row. The time of a fused loop of the executor is divided
    evenly among its lines.
    """
    lines: dict[tuple[str, str], dict[str, Any]] = {}

    def fresh(file: str, line: int, place: str, text: str) -> dict[str, Any]:
        measured = {"ns": 0.0, "read": 0.0, "written": 0.0, "flops": 0.0, "ops": []}
        return lines.setdefault(
            (file, place), {"file": file, "line": line, "place": place, "text": text, **measured}
        )

    def at(file: str, line: int) -> dict[str, Any]:
        text = linecache.getline(file, line).strip() if line else ""
        return fresh(file, line, str(line), text)

    for step in kernel["steps"]:
        if step["machineCode"] and len(step["lines"]) > 1:
            file, line = min(step["lines"])
            row = fresh(file, line, _ranges(step["lines"]), "machine code")
            for name in ("ns", "read", "written", "flops"):
                row[name] += step[name]
            row["ops"].append(step["name"])
            continue
        places = step["lines"] or [["", 0]]
        for file, line in places:
            row = at(file, line)
            for name in ("ns", "read", "written", "flops"):
                row[name] += step[name] / len(places)
            row["ops"].append(step["name"])
    if (sim := kernel.get("sim")) is not None:
        clock = sim["estimate"]["clock"]
        for counted in sim["lines"]:
            row = at(counted["file"], counted["line"])
            row["ns"] += counted["clocks"] / clock
            row["read"] += counted["read"]
            row["written"] += counted["written"]
            row["ops"].append(counted["bound"])
            row["counts"] = counted
    return sorted(lines.values(), key=lambda row: -row["ns"])


def _ranges(lines: list[tuple[str, int]]) -> str:
    """Returns lines as text. Consecutive lines are a range. Only lines outside of the first line's file name a file."""
    file = min(lines)[0]
    ranges: list[list[Any]] = []
    for other, line in sorted(lines):
        if ranges and ranges[-1][0] == other and ranges[-1][2] + 1 == line:
            ranges[-1][2] = line
        else:
            ranges.append([other, line, line])

    def text(other: str, first: int, last: int) -> str:
        numbers = str(first) if first == last else f"{first}-{last}"
        return numbers if other == file else f"{os.path.basename(other)}:{numbers}"

    return ",".join(text(*each) for each in ranges)


def _place(line: dict[str, Any]) -> str:
    return f"{os.path.basename(line['file'])}:{line['place']}"


def duration(nanoseconds: float) -> str:
    """A time with its unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.0f} ns"


def _rate(amount: float, nanoseconds: float) -> str:
    if not amount or not nanoseconds:
        return "-"
    rate = amount / nanoseconds
    return f"{rate:.1f}" if rate >= 10 else f"{rate:.2f}"


def table(profile: dict[str, Any], most_lines: int = 8) -> str:
    """The profile for a terminal."""
    kernels = sorted(profile["kernels"], key=lambda kernel: -kernel["ns"])
    if not kernels:
        return "no launch was completed\n"
    rows = _rows(profile)
    total = sum(row["ns"] for row in rows) or 1.0
    heads = ("time", "share", "launches", "each", "GB/s", "Gflop/s", "kernel")
    parts = ["{:>11} {:>6} {:>9} {:>11} {:>9} {:>9}  {}\n".format(*heads)]
    for row in sorted(rows, key=lambda row: -row["ns"]):
        ns, count = row["ns"], row["launches"]
        times = ("-", "-", count, "-")
        if row["timed"]:
            times = (duration(ns), f"{100 * ns / total:.1f}%", count, duration(ns / row["timed"]))
        rates = (_rate(row["moved"], ns), _rate(row["flops"], ns))
        parts.append("{:>11} {:>6} {:>9} {:>11} {:>9} {:>9}  {}\n".format(*times, *rates, row["name"]))
    for kernel in kernels:
        parts.append(_kernel_text(kernel, most_lines))
    return "".join(parts)


def _rows(profile: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of the table, which are the outermost frames of the flame graph.

    The time of a first launch on the CPU includes the compilation to machine code, so it is a separate row. Bytes and
    operations of a kernel are divided among its rows in proportion to their programs.
    """
    groups: dict[tuple[int, bool], list[dict[str, Any]]] = {}
    programs = [0] * len(profile["kernels"])
    for launch in sorted(profile["launches"], key=lambda launch: launch["start"]):
        number = launch["kernel"]
        is_first = launch["by"] == "clock" and (number, True) not in groups
        groups.setdefault((number, is_first), []).append(launch)
        programs[number] += math.prod(launch["grid"])
    rows = []
    for (number, is_first), launches in groups.items():
        kernel = profile["kernels"][number]
        times = [launch["ns"] for launch in launches if launch["ns"] is not None]
        share = sum(math.prod(launch["grid"]) for launch in launches) / max(programs[number], 1)
        rows.append(
            {
                "name": f"{kernel['form']} on {kernel['device']}{', first launch' if is_first else ''}",
                "kernel": kernel,
                "launches": len(launches),
                "timed": len(times),
                "ns": sum(times),
                "moved": (kernel["read"] + kernel["written"]) * share,
                "flops": kernel["flops"] * share,
            }
        )
    return rows


def _kernel_text(kernel: dict[str, Any], most_lines: int) -> str:
    parts = [f"\n{kernel['form']}\n"]
    if "registers" in kernel:
        about = f"{kernel['registers']} registers, {kernel['spills']} bytes spilled, {kernel['shared']} bytes shared"
        parts.append(f"  {kernel['threads']} threads a block, {about}\n")
    sim = kernel.get("sim")
    if sim is not None:
        parts += _sim_text(kernel, sim)
    if not kernel["lines"] or most_lines == 0:
        return "".join(parts)
    ns = sum(line["ns"] for line in kernel["lines"]) or 1.0
    if sim is None:
        parts.append(f"{'time':>11} {'share':>6} {'GB/s':>9} {'Gflop/s':>9}  line\n")
    else:
        parts.append(f"{'time':>11} {'share':>6} {'sectors':>9} {'excess':>9} {'conflicts':>9}  line\n")
    for line in kernel["lines"][:most_lines]:
        place = _place(line) if line["line"] else "elsewhere"
        first = f"{duration(line['ns']):>11} {100 * line['ns'] / ns:>5.1f}%"
        ops = ", ".join(dict.fromkeys(line["ops"]))
        if sim is None:
            moved = _rate(line["read"] + line["written"], line["ns"])
            middle = f"{moved:>9} {_rate(line['flops'], line['ns']):>9}"
        else:
            counts = line["counts"]
            excess = counts["sectors"] - counts["idealSectors"]
            conflicts = counts["wavefronts"] - counts["idealWavefronts"]
            middle = f"{counts['sectors']:>9} {excess:>9} {conflicts:>9}"
        parts.append(f"{first} {middle}  {place}: {line['text']}  [{ops}]\n")
    if (more := len(kernel["lines"]) - most_lines) > 0:
        parts.append(f"{'':>11} and {more} more line{'s' if more > 1 else ''}\n")
    return "".join(parts)


def _sim_text(kernel: dict[str, Any], sim: dict[str, Any]) -> list[str]:
    estimate, total = sim["estimate"], sim["total"]
    excess = total["sectors"] - total["idealSectors"]
    conflicts = total["wavefronts"] - total["idealWavefronts"]
    busy = sorted(estimate["busy"].items(), key=lambda pair: -pair[1])
    longest = busy[0][1] or 1.0
    shares = ", ".join(
        f"{name} {100 * clocks / longest:.0f}%" for name, clocks in busy if clocks / longest >= 0.005
    )
    achieved = estimate["operations"] / estimate["ns"] if estimate["ns"] else 0.0
    return [
        f"  estimated for {estimate['gpu']}: bound by {estimate['bound']}, "
        f"{estimate['multiprocessors']} of {estimate['of']} multiprocessors have blocks\n",
        f"  work beside the longest: {shares}\n",
        f"  roofline: {estimate['intensity']:.2f} flop/byte, {achieved:.0f} of at most {estimate['roof']:.0f} Gflop/s; "
        f"memory {estimate['memoryBytes'] / 1e6:.2f} MB at {estimate['bandwidth']:.0f} GB/s\n",
        f"  {total['sectors']} sectors, {excess} of them in excess; {total['wavefronts']} wavefronts of shared memory, "
        f"{conflicts} for bank conflicts; {total['tensor']} operations of tensor cores; "
        f"{sim['barriers']} waits at barriers\n",
    ]


def chrome_trace(profile: dict[str, Any]) -> dict[str, Any]:
    """The launches as events of the format that Perfetto and chrome://tracing read; times are in microseconds."""
    kernels = profile["kernels"]
    devices = {device: number for number, device in enumerate(dict.fromkeys(k["device"] for k in kernels))}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": device}}
        for device, number in devices.items()
    ]
    for launch in profile["launches"]:
        if launch["ns"] is None:
            continue
        kernel = kernels[launch["kernel"]]
        events.append(
            {
                "ph": "X",
                "name": kernel["name"],
                "cat": "kernel",
                "pid": devices[kernel["device"]],
                "tid": launch["thread"],
                "ts": launch["start"] / 1000,
                "dur": launch["ns"] / 1000,
                "args": {"form": kernel["form"], "grid": launch["grid"], "scope": launch.get("scopes", [])},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _stacks(profile: dict[str, Any]) -> Iterator[tuple[list[str], float]]:
    """Returns stacks of a row of the table, a line and an op. A line has its share of the time in the table."""
    for row in _rows(profile):
        lines = row["kernel"]["lines"]
        whole = sum(line["ns"] for line in lines)
        if not whole:
            yield [row["name"]], row["ns"]
            continue
        for line in lines:
            place = f"{_place(line)} {line['text']}".strip()
            ops = ", ".join(dict.fromkeys(line["ops"]))
            yield [row["name"], place, ops], row["ns"] * line["ns"] / whole
