"""``tilewright lock``: runs a program and writes its lock, the compiled kernels and the choices of its tuners.

The program runs in a process of its own. It and the processes that it starts record each kernel in a folder, which
this process then turns into the lock. See ``crates/lock`` for the format.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from tilewright import _native
from tilewright._arguments import CHECKED, ProgramParser
from tilewright.errors import TritonError

DEFAULT = "tilewright.lock"
"""The path of the lock, unless an option names another."""

COMMANDS_OF_FILES = ("list", "verify", "diff", "digest", "merge", "pack")
"""The commands that run no program, which are in Rust."""

_DESCRIPTION = """\
Run a Python program, and write its lock: the compiled kernels and the choices of its tuners

`tilewright run --locked` then launches these kernels, and compiles, tunes and assembles nothing. The artifacts of
NAME.lock are in the folder NAME.artifacts beside it; copy both. With --target, each kernel is compiled for these
targets, which need not be in this machine; then the choices of tuners are those of this machine.
Options come before the program: the words after it are the program's own arguments.

    tilewright lock list LOCK              the kernels and choices
    tilewright lock verify LOCK            check artifacts and choices, compile each kernel anew, compare the code
    tilewright lock diff LOCK LOCK         the differences; the exit code is 1 if there are any
    tilewright lock digest LOCK...         equal locks have equal digests, on every machine
    tilewright lock merge LOCK... -o LOCK  one lock of several
    tilewright lock pack LOCK -o FILE      the lock and its artifacts as one file"""


def main(arguments: list[str]) -> int:
    """Runs the program and writes its lock; returns the exit code."""
    parser = ProgramParser("tilewright lock", _DESCRIPTION)
    parser.refusals["--locked"] = "the program compiles and tunes, to write a new lock"
    parser.add_option(
        "--target",
        action="append",
        default=[],
        metavar="<target>",
        help="compile for this target, such as sm_90 or cpu; may be repeated; otherwise for the device of each launch",
    )
    parser.add_option(
        "--output", "-o", default=DEFAULT, metavar="<file>", help=f"the lock to write ({DEFAULT})"
    )
    parser.add_option(
        "--device", metavar="<device>", help="where the program runs its kernels; see `tilewright run --help`"
    )
    given = parser.parse(arguments)
    if not given.program:
        parser.error("no program to run")
    if (name := _near_command(given)) is not None:
        print(f"error: no file '{given.program[0]}'; did you mean `tilewright lock {name}`?", file=sys.stderr)
        return 2
    known = _native.target_names()
    for target in given.target:
        if target not in known:
            print(f"error: no target '{target}': expected one of {', '.join(known)}", file=sys.stderr)
            return 2
    if (failure := _check_output(Path(given.output))) is not None:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="tilewright-lock-") as folder:
        Path(folder, "targets").write_text("".join(f"{target}\n" for target in given.target))
        environment = {name: value for name, value in os.environ.items() if name != "TILEWRIGHT_LOCK"}
        code = run_program(given, {**environment, "TILEWRIGHT_LOCK_RECORD": folder})
        if code:
            print(f"tilewright: no lock is written, because the program ended with {code}", file=sys.stderr)
            return code
        try:
            return _write(folder, Path(given.output))
        except TritonError as error:
            print(error, file=sys.stderr)
            return 1


def run_program(given: Namespace, environment: dict[str, str]) -> int:
    """Runs the program of a command line with these variables; returns its exit code."""
    command = [sys.executable, "-m", "tilewright", "run", CHECKED]
    command += ["--device", given.device] if given.device is not None else []
    command += [given.kind] if given.kind else []
    with subprocess.Popen([*command, *given.program], env=environment) as process:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                # The terminal sends Ctrl-C to the program as well.
                continue
            return 128 - code if code < 0 else code


def _write(folder: str, path: Path) -> int:
    """Writes the lock of a recording, and prints what it has."""
    if not _files(folder, "entries"):
        failed = [file.read_text().strip() for file in _files(folder, "failures")]
        for failure in failed or ["the program has launched no kernel"]:
            print(f"error: {failure}", file=sys.stderr)
        print("tilewright: no lock is written, because it would have no kernel", file=sys.stderr)
        return 1
    kernels, choices, failures = _native.lock_collect(folder, str(path))
    assemble(path)
    for failure in failures:
        print(f"error: {failure.strip()}", file=sys.stderr)
    print(f"{path}: {kernels} kernel{'s' * (kernels != 1)}, {choices} tuned choice{'s' * (choices != 1)}")
    return int(bool(failures))


def _near_command(given: Namespace) -> str | None:
    """Returns the command that the user may have meant, if the program does not exist but resembles a command."""
    import difflib

    name: str = given.program[0]
    if given.kind or name == "-" or name.endswith(".py") or os.path.exists(name):
        return None
    return next(iter(difflib.get_close_matches(name, COMMANDS_OF_FILES, 1)), None)


def _files(folder: str, kind: str) -> list[Path]:
    """Returns the files of one kind in a recording. Names of unfinished files begin with a dot."""
    return sorted(file for file in Path(folder, kind).glob("*") if not file.name.startswith("."))


def _check_output(path: Path) -> str | None:
    """Returns why no lock can be written to a path, if so. The check precedes the run of the program."""
    if path.suffix == ".tar":
        other = path.with_suffix(".lock")
        return f"a lock is no archive: write {other}, then `tilewright lock pack {other} -o {path}`"
    if path.is_dir():
        return f"cannot write {path}: {os.strerror(errno.EISDIR)}"
    if not path.parent.exists():
        return f"cannot write {path}: {os.strerror(errno.ENOENT)}"
    if not path.parent.is_dir():
        return f"cannot write {path}: {os.strerror(errno.ENOTDIR)}"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"cannot write {path}: {os.strerror(errno.EACCES)}"
    return None


def assemble(path: Path) -> None:
    """Assembles the kernels for GPUs that this machine does not have, if there is an assembler."""
    import json

    lock = json.loads(path.read_text())
    missing = [one for one in lock["entries"] if "ptx" in one["code"] and "cubin" not in one["code"]]
    if not missing:
        return
    from tilewright import knobs

    try:
        ptxas = knobs.nvidia.ptxas.path
    except RuntimeError as error:
        targets = ", ".join(sorted({one["launches"]["target"] for one in missing}))
        print(
            f"tilewright: the lock has PTX, and no cubins for {targets}: {error}, or install nvidia-cuda-nvcc",
            file=sys.stderr,
        )
        return
    _native.lock_assemble(str(path), str(ptxas))
