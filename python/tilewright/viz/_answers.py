"""The answers to the requests of the page, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tilewright import _native

_MAX_ELEMENTS = 1 << 20
_MAX_LANES = 1 << 22
_MAX_PROGRAMS = 4
"""The maximum number of programs that ``programs`` lists for an element."""


def answer(trace: _native.TraceFile | None, name: str, numbers: dict[str, int]) -> str | None:
    """Returns the JSON that answers a request of the page."""
    if trace is None:
        return "[]" if name == "launches" else None
    launch = numbers.get("launch", 0)
    if name == "launches":
        return trace.list()
    if name == "launch":
        return trace.launch(launch)
    if name == "program":
        return trace.program(launch, numbers["program"])
    if name == "value":
        return trace.value(launch, numbers["program"], numbers["event"], numbers["value"])
    if name == "touched":
        return trace.touched(launch, numbers["program"], numbers["event"])
    if name == "elements":
        return trace.elements(launch, numbers["tensor"], bool(numbers.get("after", 0)))
    if name == "overlaps":
        return trace.overlaps(launch, numbers["tensor"])
    if name == "programs":
        return _programs(trace, launch, numbers["tensor"])
    if name == "layouts":
        return trace.layouts(launch, numbers["target"])
    if name == "who":
        return trace.who(launch, numbers["tensor"], numbers["place"])
    return None


def _programs(trace: _native.TraceFile, launch: int, tensor: int) -> str | None:
    """For each element, the first programs that access it, ascending."""
    about = json.loads(trace.launch(launch) or "null")
    if about is None or tensor >= len(about["tensors"]):
        return None
    accesses = accesses_of(trace, launch, about, tensor)
    if accesses is None:
        return json.dumps({"tooLarge": True})
    programs: list[list[int]] = [[] for _ in range(_count(about["tensors"][tensor]))]
    for _, program, _, place in accesses:
        found = programs[place]
        if len(found) < _MAX_PROGRAMS and program not in found:
            found.append(program)
    return json.dumps({"programs": programs})


def accesses_of(
    trace: _native.TraceFile, launch: int, about: dict[str, Any], tensor: int
) -> list[tuple[int, int, int, int]] | None:
    """Op, program, lane and element of each access to a tensor; none if there are too many."""
    if _count(about["tensors"][tensor]) > _MAX_ELEMENTS:
        return None
    lanes = sum(op["lanes"] for op in about["ops"])
    return None if lanes > _MAX_LANES else list(_accesses(trace, launch, about, tensor))


def _accesses(
    trace: _native.TraceFile, launch: int, about: dict[str, Any], tensor: int
) -> Iterator[tuple[int, int, int, int]]:
    values = {parameter["name"]: parameter["value"] for parameter in about["parameters"]}
    addresses = [values.get(other["name"]) for other in about["tensors"]]
    # Tensors may share memory, and an access counts for each of them.
    places = _places(about["tensors"][tensor], addresses[tensor])
    for program, _, _ in about["programs"]:
        events = json.loads(trace.program(launch, program) or "{}")["events"]
        for event, (op, *_) in enumerate(events):
            if not about["ops"][op]["isAccess"]:
                continue
            touched = json.loads(trace.touched(launch, program, event) or "null")
            if touched is None:
                continue
            base = addresses[touched["tensor"]] if touched["tensor"] >= 0 else 0
            for lane, is_active in enumerate(touched["mask"]):
                if not is_active:
                    continue
                place = touched["places"][lane] if touched["tensors"][lane] == tensor else None
                if place is None and base is not None:
                    place = places.get(base + touched["bytes"][lane])
                if place is not None:
                    yield op, program, lane, place


def _places(tensor: dict[str, Any], address: int | None) -> dict[int, int]:
    """The elements of a tensor by their addresses."""
    if address is None:
        return {}
    offsets = [0]
    for extent, stride in zip(tensor["shape"], tensor["strides"], strict=True):
        offsets = [offset + index * stride for offset in offsets for index in range(extent)]
    return {address + tensor["size"] * offset: place for place, offset in enumerate(offsets)}


def _count(tensor: dict[str, Any]) -> int:
    count = 1
    for extent in tensor["shape"]:
        count *= extent
    return count
