"""The program's position in the tree of a session."""

from __future__ import annotations

from tilewright.profiler._session import SESSIONS


def depth(session: int | None = 0) -> int | None:
    """Returns how many scopes this thread is in; None if there is no such session."""
    return len(SESSIONS.thread.path) if SESSIONS.of(session) else None
