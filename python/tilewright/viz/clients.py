"""The clients of ``triton_viz``: with the public package, they select the parts of a trace.

In tilewright, every client records the whole trace: accesses are checked in every launch, and the page counts and times
each line and marks races. The sanitizer and the race detector also sanitize the launches.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Client:
    """A client for ``trace(clients=...)``; options are accepted."""

    NAME = "client"
    CHECKS: tuple[str, ...] = ()
    """The sanitizer checks that the client requests (docs/sanitizers.md)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Tracer(Client):
    """Records the events of each program."""

    NAME = "tracer"


class Sanitizer(Client):
    """Finds accesses out of bounds, races, reads of unwritten memory, NaN: all that is checked."""

    NAME = "sanitizer"
    CHECKS = ("bounds", "race", "init", "alignment", "overflow", "nan")


class Profiler(Client):
    """Counts and times lines."""

    NAME = "profiler"


class RaceDetector(Client):
    """Finds programs that race for an element."""

    NAME = "race_detector"
    CHECKS = ("race",)


_BY_NAME = {client.NAME: client for client in (Tracer, Sanitizer, Profiler, RaceDetector)}


def checks_of(clients: Any) -> frozenset[str]:
    """The sanitizer checks that these clients request; an object that is not a client is an error."""
    found: set[str] = set()
    for client in clients if isinstance(clients, (list, tuple, set)) else [clients]:
        if client is None:
            continue
        if isinstance(client, Client) or (isinstance(client, type) and issubclass(client, Client)):
            found.update(client.CHECKS)
            continue
        if not isinstance(client, str):
            raise TypeError(
                f"a client of triton_viz.trace is a name or a Client, not {type(client).__name__}"
            )
        if client.lower() not in _BY_NAME:
            known = ", ".join(repr(name) for name in sorted(_BY_NAME))
            raise ValueError(f"triton_viz.trace knows no client {client!r}; it knows {known}")
        found.update(_BY_NAME[client.lower()].CHECKS)
    return frozenset(found)
