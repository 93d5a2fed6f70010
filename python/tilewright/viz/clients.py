"""The clients of ``triton_viz``: what a program wants to know of its kernels.

A trace here records all of it at once: accesses are checked in every launch, the page counts and times each line and
marks races. So a client is a name, and any of them gives the whole trace.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Client:
    """What ``trace(clients=...)`` takes; options are accepted."""

    NAME = "client"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Tracer(Client):
    """Records what each program does."""

    NAME = "tracer"


class Sanitizer(Client):
    """Finds accesses out of bounds."""

    NAME = "sanitizer"


class Profiler(Client):
    """Counts and times lines."""

    NAME = "profiler"


class RaceDetector(Client):
    """Finds programs that race for an element."""

    NAME = "race_detector"


NAMES = frozenset(client.NAME for client in (Tracer, Sanitizer, Profiler, RaceDetector))


def check(clients: Any) -> None:
    """Refuses what is no client."""
    for client in clients if isinstance(clients, (list, tuple, set)) else [clients]:
        is_class = isinstance(client, type) and issubclass(client, Client)
        if client is None or isinstance(client, Client) or is_class:
            continue
        if not isinstance(client, str):
            raise TypeError(
                f"a client of triton_viz.trace is a name or a Client, not {type(client).__name__}"
            )
        if client.lower() not in NAMES:
            known = ", ".join(repr(name) for name in sorted(NAMES))
            raise ValueError(f"triton_viz.trace knows no client {client!r}; it knows {known}")
