"""What a session has measured so far, while it goes on."""

from __future__ import annotations

from typing import Any

from tilewright.profiler._session import SESSIONS, Node


def get(session: int | None = 0, phase: int = 0) -> Any:
    """The tree of a session as hatchet's literals, and its devices; None if there is no such session."""
    from tilewright.profiler.profile import tree

    SESSIONS.collect()
    found = SESSIONS.of(session)
    return tree(found[0]) if found else None


def clear(session: int | None = 0, phase: int = 0, clear_up_to_phase: bool = False) -> None:
    """Forgets what a session has measured so far."""
    SESSIONS.collect()
    for found in SESSIONS.of(session):
        found.root = Node("ROOT")
        found.events.clear()
