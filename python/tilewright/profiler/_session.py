"""The sessions of the profiler: a tree of scopes each, to which launches are added when they are taken from the native
module."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from tilewright import _native
from tilewright._measurements import MEASUREMENTS
from tilewright.profiler._records import Memory, Records, complain

Number = int | float


class Node:
    """A scope, or a kernel in it."""

    def __init__(self, name: str, parent: Node | None = None) -> None:
        self.name = name
        self.parent = parent
        self.children: dict[str, Node] = {}
        self.metrics: dict[str, Any] = {}

    def child(self, name: str) -> Node:
        """The scope of this name in this one."""
        return self.children.setdefault(name, Node(name, self))

    def add(self, metrics: dict[str, Any]) -> None:
        """Adds numbers; other values replace the earlier ones."""
        for name, value in metrics.items():
            value = as_number(value)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self.metrics[name] = self.metrics.get(name, 0) + value
            else:
                self.metrics[name] = value

    def take_in(self, other: Node) -> None:
        """Adds the measurements of another tree."""
        self.add(other.metrics)
        for name, child in other.children.items():
            self.child(name).take_in(child)

    def as_json(self) -> dict[str, Any]:
        """Returns the node in the form of hatchet's literal trees."""
        return {
            "frame": {"name": self.name, "type": "function"},
            "metrics": self.metrics,
            "children": [child.as_json() for child in self.children.values()],
        }


def as_number(value: Any) -> Any:
    """Returns a metric as a number, also from a tensor of one element."""
    if isinstance(value, (int, float, str)):
        return value
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(
            f"a metric is a number, a text or a tensor of one element, not {type(value).__name__}"
        )
    return item()


class Session:
    """The measurements between ``start`` and ``finalize``."""

    def __init__(self, number: int, name: str, context: str, data: str, hook: Any) -> None:
        self.number = number
        self.name = name
        self.context = context
        self.data = data
        self.hook = hook
        self.phases = {0: Node("ROOT")}
        """The measurements of each phase that was not cleared."""
        self.phase = 0
        self.is_active = True
        self.events: list[dict[str, Any]] = []
        self.devices: dict[str, dict[str, Any]] = {}
        self.process = os.getpid()

    @property
    def root(self) -> Node:
        """The node to which launches are added: the tree of the current phase."""
        return self.phases.setdefault(self.phase, Node("ROOT"))

    def whole(self) -> Node:
        """The tree of all phases."""
        root = Node("ROOT")
        for one in self.phases.values():
            root.take_in(one)
        return root


class _Scope:
    """The node to which launches of a thread belong now: a path of names, and the metrics of the next launch."""

    def __init__(
        self, path: tuple[str, ...], sessions: tuple[int, ...], metrics: dict[str, Any] | None = None
    ) -> None:
        self.path = path
        self.sessions = sessions
        self.metrics = metrics


class _Thread(threading.local):
    def __init__(self) -> None:
        self.path: list[str] = []
        self.state: list[str] = []


class Sessions:
    """All sessions of the process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.known: dict[int, Session] = {}
        self.next = 0
        self.scopes: dict[int, _Scope] = {}
        self.thread = _Thread()
        self.notes: set[str] = set()

    def start(self, name: str, context: str, data: str, hook: Any) -> int:
        """Begins a session."""
        with self.lock:
            self.collect()
            number, self.next = self.next, self.next + 1
            self.known[number] = Session(number, name, context, data, hook)
            self._changed()
            return number

    def of(self, number: int | None) -> list[Session]:
        """The session with a number, or all."""
        if number is None:
            return list(self.known.values())
        return [self.known[number]] if number in self.known else []

    def set_active(self, number: int | None, is_active: bool) -> None:
        """Makes sessions measure, or not."""
        with self.lock:
            self.collect()
            for session in self.of(number):
                session.is_active = is_active
            self._changed()

    def remove(self, number: int | None) -> list[Session]:
        """Ends sessions."""
        with self.lock:
            self.collect()
            ended = self.of(number)
            for session in ended:
                del self.known[session.number]
            self._changed()
            return ended

    def keep(self, session: Session) -> None:
        """Restores an ended session that could not be written; it measures nothing more."""
        with self.lock:
            session.is_active = False
            self.known[session.number] = session

    def _changed(self) -> None:
        MEASUREMENTS.set_measured(any(session.is_active for session in self.known.values()))
        self.mark()

    def mark(self, metrics: dict[str, Any] | None = None, name: str | None = None) -> None:
        """Sets the node to which launches of this thread belong from now on."""
        with self.lock:
            active = tuple(number for number, session in self.known.items() if session.is_active)
            number = 0
            if active:
                number = len(self.scopes) + 1
                path = (*self.thread.path, *self.thread.state, *(() if name is None else (name,)))
                self.scopes[number] = _Scope(path, active, metrics)
            _native.set_profile_scope(number)

    def call_stack(self) -> tuple[str, ...]:
        """The functions of Python that lead here, outermost first."""
        from pathlib import Path

        own = str(Path(__file__).parents[1])
        frames: list[str] = []
        frame = sys._getframe(1)
        found: Any = frame
        while found is not None:
            code = found.f_code
            if not code.co_filename.startswith(own):
                frames.append(f"{code.co_filename}:{code.co_name}@{found.f_lineno}")
            found = found.f_back
        return tuple(reversed(frames))

    def collect(self, memory: Memory | None = None, programs: frozenset[int] | None = None) -> None:
        """Takes the measurements so far, and adds them to the sessions.

        ``memory`` has the scopes that the last launch recorded; only those of ``programs`` are kept.
        """
        with self.lock:
            taken = MEASUREMENTS.take()
            # `take` waits for the launches, so their records are complete.
            records = None if memory is None else memory.take(programs)
            if records is not None:
                complain(records)
            kernels = taken["kernels"]
            for note in taken["notes"]:
                # `tilewright profile` prints the notes at its end.
                if note not in self.notes and not MEASUREMENTS.has_command:
                    self.notes.add(note)
                    print(note, file=sys.stderr)
            for launch in taken["launches"]:
                scope = self.scopes.get(launch["scope"])
                if scope is None:
                    # The thread was started before the session: its launches belong to no scope.
                    active = tuple(number for number, session in self.known.items() if session.is_active)
                    scope = _Scope((), active)
                for number in scope.sessions:
                    session = self.known.get(number)
                    # A thread keeps the sessions of its scope when another thread ends or deactivates them.
                    if session is not None and session.is_active:
                        is_last = records is not None and launch is taken["launches"][-1]
                        _add(session, scope, launch, kernels[launch["kernel"]], records if is_last else None)


def _add(
    session: Session, scope: _Scope, launch: dict[str, Any], kernel: dict[str, Any], records: Records | None
) -> None:
    node = session.root
    for name in scope.path:
        node = node.child(name)
    metrics = dict(scope.metrics or {})
    name = metrics.pop("name", None) or kernel["name"]
    node = node.child(name)
    kind, number = _device_of(kernel)
    # An unknown time is omitted, because 0 would count as a measurement.
    time = {} if launch["ns"] is None else {"time (ns)": launch["ns"]}
    node.add({"count": 1, **time, **metrics})
    node.metrics.update(device_type=kind, device_id=str(number))
    session.devices.setdefault(kind, {}).setdefault(str(number), _about(kernel))
    event = {"name": name, "device": kernel["device"], "path": scope.path, "phase": session.phase}
    session.events.append({**launch, **event})
    if records is not None:
        session.events[-1]["records"] = records
        for path, metrics in records.summary():
            inner = node
            for part in path:
                inner = inner.child(part)
            inner.add(metrics)


def _device_of(kernel: dict[str, Any]) -> tuple[str, int]:
    """Type and number, as proton-viewer knows them. It only knows GPUs, so a simulated one is a GPU."""
    name, _, rest = kernel["device"].partition(":")
    if name == "cuda":
        return "CUDA", int(rest or 0)
    return ("CUDA" if name == "sim" else "CPU"), 0


def _about(kernel: dict[str, Any]) -> dict[str, Any]:
    """The numbers from which a viewer computes utilization; those of a simulated GPU's model, clocks in kHz."""
    properties = _native.device_properties()
    arch = "".join(character for character in kernel["target"] if character.isdigit()) or kernel["target"]
    about = {
        "arch": arch,
        "bus_width": properties["mem_bus_width"],
        "clock_rate": properties["sm_clock_rate"],
        "memory_clock_rate": properties["mem_clock_rate"],
        "num_sms": properties["multiprocessor_count"],
    }
    if (sim := kernel.get("sim")) is not None:
        estimate = sim["estimate"]
        about["clock_rate"] = round(estimate["clock"] * 1e6)
        about["num_sms"] = estimate["of"]
        # The bus moves `bus_width` bits twice a clock.
        about["memory_clock_rate"] = round(estimate["bandwidth"] * 1e6 * 8 / (2 * about["bus_width"]))
    return about


SESSIONS = Sessions()
