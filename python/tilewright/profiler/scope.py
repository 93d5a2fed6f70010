"""Scopes: parts of a program that group launches, and their metrics."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

from tilewright.profiler._session import SESSIONS, Node

_numbers = itertools.count()


def _nodes() -> list[Node]:
    """The current node of this thread in each active session."""
    found = []
    with SESSIONS.lock:
        for session in SESSIONS.known.values():
            if session.is_active:
                node = session.root
                for name in SESSIONS.thread.path:
                    node = node.child(name)
                found.append(node)
    return found


def enter_scope(name: str, *, metrics: dict[str, Any] | None = None) -> int | None:
    """Begins a scope in the one that this thread is in; returns a number, or None if no session measures."""
    SESSIONS.thread.path.append(name)
    nodes = _nodes()
    for node in nodes:
        node.add(metrics or {})
    SESSIONS.mark()
    return next(_numbers) if nodes else None


def exit_scope(name: str | None = None, *, metrics: dict[str, Any] | None = None) -> int | None:
    """Ends the scope that this thread is in."""
    if not SESSIONS.thread.path:
        raise RuntimeError("exit_scope without a scope: this thread has entered none")
    if name is not None and SESSIONS.thread.path[-1] != name:
        raise RuntimeError(
            f"exit_scope('{name}') in scope '{SESSIONS.thread.path[-1]}', which was entered last"
        )
    nodes = _nodes()
    for node in nodes:
        node.add(metrics or {})
    SESSIONS.thread.path.pop()
    SESSIONS.mark()
    return next(_numbers) if nodes else None


class scope:
    """A scope as a context or a decorator: ``with scope("layer", {"flops": n}):``."""

    def __init__(self, name: str, metrics: dict[str, Any] | None = None) -> None:
        self.name = name
        self.metrics = metrics
        self.id: int | None = None

    def __enter__(self) -> scope:
        self.id = enter_scope(self.name, metrics=self.metrics)
        return self

    def __exit__(self, *_exception: object) -> None:
        exit_scope(self.name)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function: its calls are in the scope."""

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.name, self.metrics):
                return func(*args, **kwargs)

        return wrapper


class cpu_timed_scope(scope):
    """A scope whose time on the host is measured as well, as ``cpu_time (ns)``."""

    def __init__(self, name: str, metrics: dict[str, Any] | None = None) -> None:
        super().__init__(name, metrics)
        if metrics and "cpu_time (ns)" in metrics:
            raise ValueError("a cpu_timed_scope measures 'cpu_time (ns)' itself")
        self._began = 0

    def __enter__(self) -> cpu_timed_scope:
        super().__enter__()
        self._began = time.perf_counter_ns()
        return self

    def __exit__(self, *_exception: object) -> None:
        exit_scope(self.name, metrics={"cpu_time (ns)": time.perf_counter_ns() - self._began})
