"""The command ``tilewright``: ``run`` runs a Python program and lives here, the rest is the same in Rust."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line of this process."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        from tilewright import _run

        return _run.main(arguments[1:])
    from tilewright import _native

    return _native.command_line(arguments)


if __name__ == "__main__":
    sys.exit(main())
