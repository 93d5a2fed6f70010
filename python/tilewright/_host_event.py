"""Events for devices whose work is done when a launch returns. An event notes the time of the host."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class HostEvent:
    """A point in time, with the methods of torch's events."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._time: int | None = None

    def record(self, _stream: Any = None) -> None:
        """Notes the time."""
        self._time = time.perf_counter_ns()

    def elapsed_time(self, end: HostEvent) -> float:
        """Milliseconds from this event to a later one."""
        if self._time is None or end._time is None:
            raise RuntimeError("both events must be recorded before the time between them is known")
        return (end._time - self._time) / 1e6

    def synchronize(self) -> None:
        """Returns at once: all work is done."""

    def wait(self, _stream: Any = None) -> None:
        """Returns at once: all work is done."""

    def query(self) -> bool:
        """Returns True: all work is done."""
        return True


class CpuInterface:
    """The module ``torch.cpu``, with events that measure time: its own events have no ``elapsed_time``."""

    Event = HostEvent

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
