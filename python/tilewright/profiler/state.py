"""States: names between a scope and its launches, whatever the scope is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright.profiler._session import SESSIONS


def enter_state(name: str) -> None:
    """Assigns later launches of this thread to this state."""
    SESSIONS.thread.state[:] = [name]
    SESSIONS.mark()


def exit_state() -> None:
    """Assigns later launches of this thread to no state."""
    SESSIONS.thread.state.clear()
    SESSIONS.mark()


class state:
    """A state as a context or a decorator; the one around it is restored afterwards."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._outer: list[str] = []

    def __enter__(self) -> state:
        self._outer = list(SESSIONS.thread.state)
        enter_state(self.name)
        return self

    def __exit__(self, *_exception: object) -> None:
        SESSIONS.thread.state[:] = self._outer
        SESSIONS.mark()

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function: its launches belong to the state."""

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.name):
                return func(*args, **kwargs)

        return wrapper


class metadata_state(state):
    """The state of code that computes metrics: ``__proton_launch_metadata``."""

    def __init__(self, kernel_name: Any = None) -> None:
        super().__init__("__proton_launch_metadata")
        self.kernel_name = kernel_name
