"""``python -m tilewright.profiler.proton script.py``: a program, or its tests, in a session of the profiler."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

_USAGE = """
    python -m tilewright.profiler.proton [options] script.py [script_args]
    python -m tilewright.profiler.proton [options] pytest [pytest_args]"""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Exceptions and exit code are those of the program; the measurements are written anyway."""
    from tilewright import _run
    from tilewright.profiler.flags import flags
    from tilewright.profiler.profile import DEFAULT_PROFILE_NAME, finalize, start

    parser = argparse.ArgumentParser(
        prog="proton", usage=_USAGE, description="Profiles a program or its tests."
    )
    backends = ("cupti", "rocprofiler", "roctracer", "instrumentation")
    parser.add_argument("-n", "--name", default=DEFAULT_PROFILE_NAME, help="of the session, and of the file")
    parser.add_argument(
        "-b", "--backend", choices=backends, help="instrumentation: scopes inside of kernels, too"
    )
    parser.add_argument("-c", "--context", choices=("shadow", "python"), default="shadow")
    parser.add_argument(
        "-m", "--mode", help="such as default:sampling_strategy=selective:sampling_options=0,2"
    )
    parser.add_argument("-d", "--data", choices=("tree", "trace"), default="tree")
    parser.add_argument("-k", "--hook", choices=("None", "triton"), default="None")
    parser.add_argument("target_args", nargs=argparse.REMAINDER, help="the program, with its arguments")
    given = parser.parse_args(arguments)
    if not given.target_args:
        parser.error("no program to profile")
    if (failure := _run._prepare(None)) is not None:
        print(failure, file=sys.stderr)
        return 1
    target, *rest = given.target_args
    is_pytest = Path(target).name in ("pytest", "py.test")
    if not is_pytest and not Path(target).is_file():
        print(f"error: cannot read {target}: there is no such file", file=sys.stderr)
        return 2
    try:
        session = start(
            str(Path(given.name).absolute()),
            context=given.context,
            data=given.data,
            backend=given.backend,
            mode=given.mode,
            hook=None if given.hook == "None" else given.hook,
        )
    except ValueError as error:
        parser.error(str(error))
    _run.end_in_order()
    flags.command_line = True
    try:
        if is_pytest:
            import pytest

            return int(pytest.main(rest))
        sys.argv = [target, *rest]
        sys.path[0] = str(Path(target).resolve().parent)
        runpy.run_path(target, run_name="__main__")
        return 0
    finally:
        flags.command_line = False
        try:
            # The program may have ended its sessions itself.
            finalize(session)
        except OSError as error:
            print(f"error: cannot write the profile: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
