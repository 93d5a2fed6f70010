"""The line on stderr that says, once, that what a program puts on ``cuda`` is on the CPU."""

from __future__ import annotations

import sys

_NOTICE = (
    "tilewright: this machine has no CUDA device: what the program puts on 'cuda' is on the CPU "
    "(`tilewright run --device cuda` refuses that)"
)

_is_announced = False


def is_announced() -> bool:
    """Whether the program has said ``cuda``."""
    return _is_announced


def announce() -> None:
    """Says so on stderr, once."""
    global _is_announced
    if not _is_announced:
        _is_announced = True
        print(_NOTICE, file=sys.stderr, flush=True)
