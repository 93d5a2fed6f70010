"""Sessions: ``start``, ``activate``, ``deactivate``, ``finalize``, and ``profile`` as a decorator."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.profiler._session import SESSIONS, Node, Session

DEFAULT_PROFILE_NAME = "proton"
"""The default name of a session."""

_CONTEXTS = ("shadow", "python")
_DATA = ("tree", "trace")
_PROGRAMS = 1 << 20
"""The first number of the tracks of programs; lower ones are of threads."""

_FORMATS = ("hatchet", "hatchet_msgpack", "chrome_trace")
_BACKENDS = ("cupti", "instrumentation", "rocprofiler", "roctracer")


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: Any = None,
) -> int | None:
    """Begins a session; returns its number, or None if ``TRITON_PROTON_DISABLE=1`` is set.

    ``context`` groups launches: by the scopes of the program (``"shadow"``) or by its Python functions
    (``"python"``). ``data`` is ``"tree"`` or ``"trace"``, which ``finalize`` writes. ``hook="triton"`` adds the
    entries of the kernels' ``launch_metadata``. ``backend="instrumentation"`` records scopes inside of kernels
    (``triton.profiler.language``), with the options in ``mode``; other backends name ways to time launches, and are
    ignored, since the device decides.
    """
    from tilewright import knobs
    from tilewright.profiler.hooks import Hook, HookManager, InstrumentationHook, LaunchHook
    from tilewright.profiler.mode import instrumentation

    if knobs.proton.disable:
        return None
    context, data = context or "shadow", data or "tree"
    for what, found, known in (("context", context, _CONTEXTS), ("data", data, _DATA)):
        if found not in known:
            raise ValueError(f"unknown {what} '{found}': it is one of {', '.join(known)}")
    if backend is not None and backend not in _BACKENDS:
        raise ValueError(f"unknown backend '{backend}': it is one of {', '.join(_BACKENDS)}, or None")
    if hook is not None and hook != "triton" and not isinstance(hook, Hook):
        raise ValueError(f"unknown hook '{hook}': it is 'triton', a Hook or None")
    hooks: list[Any] = [LaunchHook() if hook == "triton" or (context == "python" and hook is None) else hook]
    if backend == "instrumentation":
        hooks.append(InstrumentationHook(instrumentation(mode)))
    if not SESSIONS.known:
        atexit.unregister(finalize_at_exit)
        atexit.register(finalize_at_exit)
    number = SESSIONS.start(name or DEFAULT_PROFILE_NAME, context, data, hooks[0])
    for made in hooks:
        if made is not None:
            HookManager.register(made, number)
    return number


def activate(session: int | None = None) -> None:
    """Makes a session measure again, or all."""
    from tilewright.profiler.hooks import HookManager

    SESSIONS.set_active(session, True)
    HookManager.activate(session)


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Makes a session measure nothing, or all, until it is activated."""
    from tilewright.profiler.hooks import HookManager

    HookManager.deactivate(session)
    SESSIONS.set_active(session, False)


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """Ends a session, or all, and writes its measurements.

    A tree goes to ``<name>.hatchet``, a trace to ``<name>.chrome_trace``; ``output_format="hatchet_msgpack"`` writes
    the tree as MessagePack.
    """
    from tilewright.profiler.data import msgpack
    from tilewright.profiler.hooks import HookManager

    if output_format and output_format not in _FORMATS:
        raise ValueError(f"unknown output_format '{output_format}': it is one of {', '.join(_FORMATS)}")
    failure: OSError | None = None
    for ended in SESSIONS.remove(session):
        HookManager.unregister(ended.number)
        kind = output_format or ("chrome_trace" if ended.data == "trace" else "hatchet")
        content = trace(ended) if kind == "chrome_trace" else tree(ended, ended.whole())
        coded = msgpack(content) if kind == "hatchet_msgpack" else json.dumps(content).encode()
        try:
            Path(f"{ended.name}.{kind}").write_bytes(coded)
        except OSError as error:
            # Write the other sessions. This one is kept, so that the program can finalize it again.
            SESSIONS.keep(ended)
            failure = error
    if failure is not None:
        raise failure


def finalize_at_exit() -> None:
    """Writes the measurements of a program that ends without ``finalize``: by an error, or by an exit."""
    for number, session in list(SESSIONS.known.items()):
        SESSIONS.collect()
        if session.process != os.getpid() or not session.events:
            continue
        try:
            finalize(number)
        except OSError as error:
            print(f"tilewright: cannot write the profile '{session.name}': {error}", file=sys.stderr)


def configure_runtime() -> None:
    """Chooses between libraries of a device's vendor; there is only one, so this does nothing."""


def tree(session: Session, root: Node | None) -> list[Any]:
    """A tree of a session as hatchet's literals, and its devices."""
    root = Node("ROOT") if root is None else root
    root.metrics.setdefault("count", 0)
    root.metrics.setdefault("time (ns)", 0)
    return [root.as_json(), session.devices]


def trace(session: Session) -> dict[str, Any]:
    """The launches as events for Perfetto and chrome://tracing."""
    devices = {
        name: number for number, name in enumerate(dict.fromkeys(one["device"] for one in session.events))
    }
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        for name, number in devices.items()
    ]
    for event in session.events:
        common = {"ph": "X", "pid": devices[event["device"]]}
        if event["ns"] is not None:
            times = {"ts": event["start"] / 1000, "dur": event["ns"] / 1000}
            args = {"scope": list(event["path"]), "grid": event["grid"]}
            events.append(
                {
                    **common,
                    **times,
                    "name": event["name"],
                    "cat": "kernel",
                    "tid": event["thread"],
                    "args": args,
                }
            )
        if (records := event.get("records")) is not None and records.intervals:
            # The clock of records has another zero point than the launch: assume that the first
            # scope begins with the launch.
            first = min(one.start for one in records.intervals)
            pid = devices[event["device"]]
            for program in sorted({one.program for one in records.intervals}):
                track = {"tid": _PROGRAMS + program, "args": {"name": f"program {program}"}}
                events.append({"ph": "M", "name": "thread_name", "pid": pid, **track})
            for one in records.intervals:
                begin = event["start"] / 1000 + (one.start - first) / 1000
                times = {"ts": begin, "dur": (one.end - one.start) / 1000}
                args = {"scope": list(one.path), "kernel": event["name"]}
                named = {"tid": _PROGRAMS + one.program, "cat": "scope", "name": one.path[-1], "args": args}
                events.append({**common, **times, **named})
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
    """Wraps each call of a function in a session: ``@profile`` or ``@profile(name=...)``."""
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
