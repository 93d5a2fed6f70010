"""The command ``tilewright``. The commands in Python are ``run``, ``profile``, ``bench``, ``lock`` and ``sim report``,
which run Python programs; ``tuning``, which works on tuning files; and ``activate``, ``deactivate`` and ``status``,
which work on this installation of Python. The other commands are in Rust."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Runs the command line of this process."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        from tilewright import _run

        return _run.main(arguments[1:])
    if arguments[:1] == ["profile"]:
        from tilewright import _profile

        return _profile.main(arguments[1:])
    if arguments[:1] == ["bench"]:
        from tilewright import _bench_command, _output

        return _output.run_command(_bench_command.main, arguments[1:])
    if arguments[:1] == ["lock"]:
        from tilewright import _lock

        if not arguments[1:] or arguments[1] not in _lock.COMMANDS_OF_FILES:
            return _lock.main(arguments[1:])
    if arguments[:1] == ["tuning"]:
        from tilewright import _output, _tuning_command

        return _output.run_command(_tuning_command.main, arguments[1:])
    if arguments[:2] == ["sim", "report"]:
        from tilewright import _run

        return _run.main(arguments[2:], _run.report_parser())
    if arguments[:1] and arguments[0] in ("activate", "deactivate", "status"):
        from tilewright import _activate, _output

        return _output.run_command(getattr(_activate, arguments[0]), arguments[1:])

    from tilewright import _native

    # `compile --run` and `explain --run` start this interpreter.
    os.environ.setdefault("PYTHON", sys.executable)
    if arguments[:1] == ["explain"]:
        _name_tools()
    return _native.command_line(arguments)


def _name_tools() -> None:
    """Names the tools of the packages of NVIDIA and Triton for ``explain``, which searches no packages."""
    import contextlib
    import shutil

    from tilewright import knobs

    def name_tool(program: str) -> None:
        with contextlib.suppress(RuntimeError):
            path = getattr(knobs.nvidia, program).path
            os.environ.setdefault(f"TRITON_{program.upper()}_PATH", str(path))

    name_tool("ptxas")
    ptxas = os.environ.get("TILEWRIGHT_PTXAS") or os.environ.get("TRITON_PTXAS_PATH")
    if not ptxas:
        return
    folder = ptxas if os.path.isdir(ptxas) else os.path.dirname(ptxas)
    disassemblers = ("nvdisasm", "cuobjdump")
    # A disassembler beside the assembler has the same release, and comes first.
    if not any(shutil.which(program, path=folder) for program in disassemblers):
        for program in disassemblers:
            name_tool(program)


if __name__ == "__main__":
    code = main()
    # With `-i`, the interpreter continues after the program, and prints the prompt.
    if not sys.flags.inspect:
        sys.exit(code)
