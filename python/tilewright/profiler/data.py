"""The measurements of a session that goes on; it may be read and cleared phase by phase."""

from __future__ import annotations

import struct
from typing import Any

from tilewright.profiler._session import SESSIONS, Session


def get(session: int | None = 0, phase: int = 0) -> Any:
    """A phase of a session as hatchet's literals, and its devices; None if there is no such session."""
    from tilewright.profiler.profile import tree

    found = _of(session)
    return tree(found[0], found[0].phases.get(phase)) if found else None


def get_msgpack(session: int | None = 0, phase: int = 0) -> bytes:
    """Returns the result of ``get`` encoded as MessagePack."""
    return msgpack(get(session, phase))


def clear(session: int | None = 0, phase: int = 0, clear_up_to_phase: bool = False) -> None:
    """Forgets the measurements of a phase, or of all up to it."""
    for found in _of(session):
        cleared = [one for one in found.phases if one == phase or (clear_up_to_phase and one < phase)]
        for one in cleared:
            del found.phases[one]
        found.events = [event for event in found.events if event["phase"] not in cleared]


def advance_phase(session: int | None = 0) -> int | None:
    """Begins the next phase, to which later launches are added; returns its number."""
    found = _of(session)
    for one in found:
        one.phase += 1
    return found[0].phase if found else None


def is_phase_complete(session: int | None = 0, phase: int = 0) -> bool:
    """Returns whether a phase gets no more measurements."""
    found = _of(session)
    return bool(found) and phase < found[0].phase


def _of(session: int | None) -> list[Session]:
    SESSIONS.collect()
    return SESSIONS.of(session)


def msgpack(value: Any) -> bytes:
    """Encodes a value of JSON as MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md)."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, str):
        content = value.encode()
        return _head(len(content), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + content
    if isinstance(value, dict):
        parts = [msgpack(one) for item in value.items() for one in item]
        return _head(len(value), 0x80, 16, (None, 0xDE, 0xDF)) + b"".join(parts)
    if isinstance(value, (list, tuple)):
        return _head(len(value), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(msgpack, value))
    raise TypeError(f"MessagePack has no form for a {type(value).__name__}")


def _integer(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack(">b", value)
    for tag, form in (
        ((0xCC, "B"), (0xCD, "H"), (0xCE, "I"), (0xCF, "Q"))
        if value > 0
        else (
            (0xD0, "b"),
            (0xD1, "h"),
            (0xD2, "i"),
            (0xD3, "q"),
        )
    ):
        try:
            return struct.pack(f">B{form}", tag, value)
        except struct.error:
            continue
    # A counter that exceeds 64 bits.
    return msgpack(float(value))


def _head(count: int, short: int, below: int, tags: tuple[int | None, int, int]) -> bytes:
    """The MessagePack header for ``count`` bytes or parts: one byte for few, else a tag and 1, 2 or 4 bytes."""
    if count < below:
        return bytes([short | count])
    for tag, form, bits in zip(tags, "BHI", (8, 16, 32), strict=True):
        if tag is not None and count < 1 << bits:
            return struct.pack(f">B{form}", tag, count)
    raise ValueError(f"MessagePack has no place for {count} parts")
