"""The hook ``"triton"``: entries of a kernel's ``launch_metadata`` (name, flops, bytes) become metrics of the
launch."""

from __future__ import annotations

from typing import Any

from tilewright.compiler.compiler import LazyDict
from tilewright.profiler._session import SESSIONS
from tilewright.profiler.hooks.hook import Hook
from tilewright.profiler.state import metadata_state

_FLOPS_WIDTHS = (8, 16, 32, 64)
_METRICS = frozenset(("bytes", "flops", *(f"flops{width}" for width in _FLOPS_WIDTHS)))


class LaunchHook(Hook):
    """Names launches and gives them metrics from ``launch_metadata``; other entries of it are left out."""

    priority = 100

    def enter(self, metadata: LazyDict) -> None:
        """Computes the metadata in a separate state, because the computation may launch kernels."""
        with metadata_state():
            known: dict[str, Any] = metadata.get()
        metrics = {name: value for name, value in known.items() if name in _METRICS}
        if isinstance(name := known.get("name"), str):
            metrics["name"] = name
        outer = list(SESSIONS.thread.path)
        if any(session.context == "python" for session in SESSIONS.known.values()):
            SESSIONS.thread.path[:] = [*SESSIONS.call_stack(), *outer]
        SESSIONS.mark(metrics)
        SESSIONS.thread.path[:] = outer

    def exit(self, metadata: LazyDict) -> None:
        """Assigns later launches to the enclosing scope again."""
        SESSIONS.mark()
