"""Processes that a program starts under ``tilewright run``, and those that torch's Inductor compiles in.

They too have tilewright as their Triton. Each Python that is started with the environment of the program runs
``_child/sitecustomize.py`` first. Those of multiprocessing import the program before they do anything else and may be
told to pass over the environment, so their command lines are changed as well: ``triton`` must be taken before that.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from tilewright._import_hook import when_imported

_COMPILE_WORKER = (
    "import runpy, sys, tilewright; tilewright.install_as_triton(); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


_CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_child")


def install_in_compile_workers() -> None:
    """Lets the processes that torch's Inductor starts to compile in begin with ``install_as_triton()``."""

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
    """Lets the wrappers that Inductor makes of a user's kernels pass its compile-time values where it is interpreted.

    Inductor leaves them to the compiler, and with ``TRITON_INTERPRET=1`` calls the function with what is left.
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


def install(device: str | None) -> None:
    """Lets processes begin with what ``tilewright run`` does."""
    os.environ["TILEWRIGHT_RUN"] = device or ""
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _CHILD not in before:
        os.environ["PYTHONPATH"] = os.pathsep.join([_CHILD, *filter(None, before)])

    def prepared(command: list[str]) -> list[str]:
        if "-c" not in command:
            return command
        code = command.index("-c") + 1
        first = f"from tilewright import _run; _run._prepare({device!r}); "
        return [*command[:code], first + command[code], *command[code + 1 :]]

    def wrap_spawn(spawn: ModuleType) -> None:
        command_line = spawn.get_command_line
        spawn.get_command_line = lambda **arguments: prepared(command_line(**arguments))  # type: ignore[attr-defined]

    def wrap_forkserver(forkserver: ModuleType) -> None:
        # The server makes its command line where it starts; all that it takes of `util` there is this function.
        util = forkserver.util

        class Util:
            def __getattr__(self, name: str) -> Any:
                return getattr(util, name)

            def spawnv_passfds(self, path: Any, args: list[str], passfds: Any) -> Any:
                return util.spawnv_passfds(path, prepared(args), passfds)

        forkserver.util = Util()  # type: ignore[attr-defined]

    when_imported("multiprocessing.spawn", wrap_spawn)
    when_imported("multiprocessing.forkserver", wrap_forkserver)
