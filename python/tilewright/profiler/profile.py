"""Sessions: ``start``, ``activate``, ``deactivate``, ``finalize``, and ``profile`` as a decorator."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.profiler._session import SESSIONS, Session

DEFAULT_PROFILE_NAME = "proton"
"""The name of a session that is given none."""

_CONTEXTS = ("shadow", "python")
_DATA = ("tree", "trace")


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: Any = None,
) -> int | None:
    """Begins a session; returns its number, or None where ``TRITON_PROTON_DISABLE=1`` is set.

    ``context`` says what launches are grouped by: the scopes of the program (``"shadow"``) or its Python functions
    (``"python"``). ``data`` is ``"tree"`` or ``"trace"``, which ``finalize`` writes. ``hook="triton"`` adds
    what the kernels' ``launch_metadata`` says. ``backend`` and ``mode`` name ways to measure of other systems; the way
    here follows from the device.
    """
    from tilewright import knobs
    from tilewright.profiler.hooks import HookManager, LaunchHook

    if knobs.proton.disable:
        return None
    context, data = context or "shadow", data or "tree"
    for what, found, known in (("context", context, _CONTEXTS), ("data", data, _DATA)):
        if found not in known:
            raise ValueError(f"unknown {what} '{found}': it is one of {', '.join(known)}")
    if hook is not None and hook != "triton" and isinstance(hook, str):
        raise ValueError(f"unknown hook '{hook}': it is 'triton', a Hook or None")
    made = LaunchHook() if hook == "triton" or (context == "python" and hook is None) else hook
    number = SESSIONS.start(name or DEFAULT_PROFILE_NAME, context, data, made)
    if made is not None:
        HookManager.register(made, number)
    return number


def activate(session: int | None = None) -> None:
    """Has a session measure again, or all."""
    from tilewright.profiler.hooks import HookManager

    SESSIONS.set_active(session, True)
    HookManager.activate(session)


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Has a session measure nothing, or all, until it is activated."""
    from tilewright.profiler.hooks import HookManager

    HookManager.deactivate(session)
    SESSIONS.set_active(session, False)


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """Ends a session, or all, and writes what it has measured.

    A tree goes to ``<name>.hatchet``, a trace to ``<name>.chrome_trace``.
    """
    from tilewright.profiler.hooks import HookManager

    for ended in SESSIONS.remove(session):
        HookManager.unregister(ended.number)
        kind = output_format or ("chrome_trace" if ended.data == "trace" else "hatchet")
        if kind not in ("hatchet", "chrome_trace"):
            raise ValueError(f"unknown output_format '{kind}': it is 'hatchet' or 'chrome_trace'")
        content = tree(ended) if kind == "hatchet" else trace(ended)
        Path(f"{ended.name}.{kind}").write_text(json.dumps(content))


def tree(session: Session) -> list[Any]:
    """The session as a literal tree of hatchet, and its devices."""
    session.root.metrics.setdefault("count", 0)
    session.root.metrics.setdefault("time (ns)", 0)
    return [session.root.as_json(), session.devices]


def trace(session: Session) -> dict[str, Any]:
    """The launches as events for Perfetto and chrome://tracing."""
    events = [
        {
            "ph": "X",
            "name": event["name"],
            "cat": "kernel",
            "pid": event["device"],
            "tid": event["thread"],
            "ts": event["start"] / 1000,
            "dur": event["ns"] / 1000,
            "args": {"scope": list(event["path"]), "grid": event["grid"]},
        }
        for event in session.events
    ]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def profile(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: Any = None,
) -> Any:
    """A session around each call of a function: ``@profile`` or ``@profile(name=...)``."""
    if func is None:
        return functools.partial(
            profile, name=name, context=context, data=data, backend=backend, mode=mode, hook=hook
        )

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        session = start(name, context=context, data=data, backend=backend, mode=mode, hook=hook)
        try:
            return func(*args, **kwargs)
        finally:
            if session is not None:
                finalize(session)

    return wrapper
