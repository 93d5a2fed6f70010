"""Runs programs in forks of a process that has imported torch, because to import torch takes seconds.

A fork runs one program as the process ``python <arguments>`` would: ``script.py …``, ``-m module …`` or ``-c text``.
Python and torch read some variables of the environment only when they start. A program that sets one of these, or is
about what happens when torch is imported, needs a process of its own.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

AT_START = ("PYTHON", "TORCH", "OMP_", "MKL_", "LD_", "MALLOC_")
"""Beginnings of the names of variables that count only when a process starts; `PYTHONPATH` counts in a fork too."""


class ForkServer:
    """The process that is forked, from the side of the tests."""

    def __init__(self, environment: dict[str, str]) -> None:
        # A group of its own, so that a program that hangs ends with all that it started.
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(
        self, arguments: list[str], environment: dict[str, str], folder: Path, patience: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``python <arguments>`` in a folder, like ``subprocess.run`` with captured output."""
        with tempfile.TemporaryDirectory() as outputs:
            out, err = (Path(outputs) / name for name in ("out", "err"))
            request = [arguments, environment, str(folder), str(out), str(err)]
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], patience)[0]:
                self.end()
                raise subprocess.TimeoutExpired(arguments, patience)
            code = int(self.process.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())

    def end(self) -> None:
        """Ends the process, and a program that it still runs."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def _next_program() -> Any:
    """Forks for each request, and returns the request in the fork; in the process itself it returns none at the end."""
    while request := sys.stdin.buffer.raw.readline():  # type: ignore[attr-defined]
        if not (child := os.fork()):
            return json.loads(request)
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))
    return None


def _become(environment: dict[str, str], folder: str, out: str, err: str) -> None:
    """Takes on what a new process would have been started with."""
    # After the folder of the program are those of the variable.
    before, after = (
        found.split(os.pathsep) for found in (os.environ["PYTHONPATH"], environment["PYTHONPATH"])
    )
    sys.path[1 : 1 + len(before)] = after
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, opened in enumerate(
        (os.open(os.devnull, os.O_RDONLY), os.open(out, flags), os.open(err, flags))
    ):
        os.dup2(opened, number)
        os.close(opened)


def _start(arguments: list[str]) -> None:
    """Runs a program as ``__main__``; its modules, its `sys.argv` and its `sys.path` are those of a new process."""
    kind, *rest = arguments
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path[0] = os.getcwd()
        # What Python itself calls, so that tracebacks are the same.
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        return
    if kind == "-c":
        text, *rest = rest
        file = "<string>"
        sys.path[0] = ""
    else:
        text = Path(kind).read_text()
        file = main.__dict__["__file__"] = kind
        sys.path[0] = str(Path(kind).resolve().parent)
    sys.argv = [kind, *rest]
    exec(compile(text, file, "exec"), main.__dict__)


def _main() -> None:
    import torch  # noqa: F401

    # All objects so far live as long as the process; the garbage collector of a fork can skip them.
    gc.collect()
    gc.freeze()
    if request := _next_program():
        arguments, *rest = request
        _become(*rest)
        try:
            _start(arguments)
        except Exception as error:
            # Without the frames of this file, which a process of its own does not have.
            trace = error.__traceback__
            while trace and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            sys.exit(1)


if __name__ == "__main__":
    _main()
