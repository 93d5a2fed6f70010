"""Prints once, on stderr, that the tensors that a program puts on ``cuda`` are on the CPU or the simulator."""

from __future__ import annotations

import os
import sys

_MARK = "TILEWRIGHT_ANNOUNCED"
"""A file that exists once a process of this program has printed the line; set for the processes that it starts."""

_is_announced = False


def is_announced() -> bool:
    """Returns whether the program has said ``cuda``."""
    return _is_announced


def once_for_children() -> None:
    """Makes only the first of this process and its children print the line."""
    if _MARK in os.environ:
        return
    import atexit
    import contextlib
    import tempfile

    mark = os.path.join(tempfile.gettempdir(), f"tilewright-announced-{os.getpid()}")
    os.environ[_MARK] = mark
    owner = os.getpid()

    def remove() -> None:
        # A forked child also runs the exit handlers of its parent.
        if os.getpid() == owner:
            with contextlib.suppress(OSError):
                os.remove(mark)

    remove()
    atexit.register(remove)


def announce() -> None:
    """Prints the line on stderr, once."""
    global _is_announced
    if _is_announced:
        return
    _is_announced = True
    if (mark := os.environ.get(_MARK)) is not None:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        except OSError:
            # Without the mark, other processes may print the line again: that is better than no
            # line.
            pass
    from tilewright import _native

    device = _native.device()
    where = f"on the GPU that {device} simulates" if device.startswith("sim") else "on the CPU"
    print(
        f"tilewright: this machine has no CUDA device: what the program puts on 'cuda' is {where} "
        "(`tilewright run --device cuda` refuses that)",
        file=sys.stderr,
        flush=True,
    )
