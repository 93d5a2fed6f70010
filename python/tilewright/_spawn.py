"""Processes that multiprocessing starts anew, under ``tilewright run``: they too have tilewright as their Triton.

Such a process imports the program before it does anything else, so the name ``triton`` must be taken before that.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tilewright._import_hook import when_imported


def install(device: str | None) -> None:
    """Lets processes begin with what ``tilewright run`` does, once multiprocessing is imported."""

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
