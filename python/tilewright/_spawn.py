"""Installs tilewright in processes that a program starts under ``tilewright run``, and in Inductor's compile workers.

In these processes ``import triton`` imports tilewright, too. Each Python that starts with the environment of the
program runs ``_subprocess/sitecustomize.py`` first. Processes of multiprocessing import the program before anything
else and may ignore the environment. Their command lines are therefore changed to install tilewright before the import.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from _tilewright_startup import VARIABLE
from tilewright._import_hook import when_imported

_COMPILE_WORKER = (
    "import runpy, sys, tilewright; tilewright.install_as_triton(); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


_SUBPROCESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_subprocess")


def install_in_compile_workers() -> None:
    """Makes the processes in which torch's Inductor compiles begin with ``install_as_triton()``."""

    def wrap(pool: ModuleType) -> None:
        subprocess = pool.subprocess

        class Subprocess:
            def __getattr__(self, name: str) -> Any:
                return getattr(subprocess, name)

            def Popen(self, command: list[str], *args: Any, **kwargs: Any) -> Any:
                if command[:1] == [sys.executable] and command[1:2] and command[1].endswith("__main__.py"):
                    command = [sys.executable, "-c", _COMPILE_WORKER, *command[1:]]
                return subprocess.Popen(command, *args, **kwargs)

        pool.subprocess = Subprocess()  # type: ignore[attr-defined]

    when_imported("torch._inductor.compile_worker.subproc_pool", wrap)


def pass_constants_in_interpret_mode() -> None:
    """Makes Inductor's wrappers of a user's kernels pass compile-time values in interpret mode.

    Inductor leaves them to the compiler, and with ``TRITON_INTERPRET=1`` calls the function without them.
    """

    def wrap(heuristics: ModuleType) -> None:
        user_autotune = heuristics.user_autotune

        def with_constants(configs: Any, triton_meta: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            decorate = user_autotune(configs, triton_meta, *args, **kwargs)

            def made(fn: Any) -> Any:
                wrapper = decorate(fn)
                if wrapper.triton_interpret:
                    for config in wrapper.configs:
                        config.kwargs = {**triton_meta.get("constants", {}), **config.kwargs}
                return wrapper

            return made

        heuristics.user_autotune = with_constants  # type: ignore[attr-defined]

    when_imported("torch._inductor.runtime.triton_heuristics", wrap)


def install(device: str | None, parts: tuple[str, ...]) -> None:
    """Makes new processes begin as this one: by the variable, which ``sitecustomize.py`` reads in each Python."""
    os.environ[VARIABLE] = ",".join(parts)
    if device is not None:
        os.environ["TILEWRIGHT_DEVICE"] = device
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _SUBPROCESS not in before:
        os.environ["PYTHONPATH"] = os.pathsep.join([_SUBPROCESS, *filter(None, before)])

    def prepared(command: list[str]) -> list[str]:
        if "-c" not in command:
            return command
        code = command.index("-c") + 1
        first = "import _tilewright_startup; _tilewright_startup.watch(''); "
        return [*command[:code], first + command[code], *command[code + 1 :]]

    def wrap_spawn(spawn: ModuleType) -> None:
        command_line = spawn.get_command_line
        spawn.get_command_line = lambda **arguments: prepared(command_line(**arguments))  # type: ignore[attr-defined]

    def wrap_forkserver(forkserver: ModuleType) -> None:
        # The fork server builds its command line inside a method that passes the command line to
        # `util.spawnv_passfds`. The method uses no other function of `util`, so replace this
        # function.
        util = forkserver.util

        class Util:
            def __getattr__(self, name: str) -> Any:
                return getattr(util, name)

            def spawnv_passfds(self, path: Any, args: list[str], passfds: Any) -> Any:
                return util.spawnv_passfds(path, prepared(args), passfds)

        forkserver.util = Util()  # type: ignore[attr-defined]

    when_imported("multiprocessing.spawn", wrap_spawn)
    when_imported("multiprocessing.forkserver", wrap_forkserver)
