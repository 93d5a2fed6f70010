"""The answers to the requests of the page, as JSON."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from typing import Any

from tilewright import _native

_MAX_ELEMENTS = 1 << 20
_MAX_LANES = 1 << 22
_MAX_PROGRAMS = 4
"""The maximum number of programs that ``programs`` lists for an element."""

Accesses = list[tuple[int, int, int, int]]
"""Op, program, lane and element of each access to a tensor."""


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
        return trace.layouts(launch, numbers.get("target", 0))
    if name == "who":
        return trace.who(launch, numbers["tensor"], numbers["place"])
    return None


def _programs(trace: _native.TraceFile, launch: int, tensor: int) -> str | None:
    about = json.loads(trace.launch(launch) or "null")
    if about is None or tensor >= len(about["tensors"]):
        return None
    return programs_of(about["tensors"][tensor], find_accesses(trace, launch, about, [tensor])[tensor])


def programs_of(tensor: dict[str, Any], accesses: Accesses | None) -> str:
    """The answer to ``programs``: the first programs that access each element, ascending."""
    if accesses is None:
        return json.dumps({"tooLarge": True})
    programs: list[list[int]] = [[] for _ in range(math.prod(tensor["shape"]))]
    for _, program, _, place in accesses:
        found = programs[place]
        if len(found) < _MAX_PROGRAMS and program not in found:
            found.append(program)
    return json.dumps({"programs": programs})


def find_accesses(
    trace: _native.TraceFile, launch: int, about: dict[str, Any], tensors: Iterable[int]
) -> dict[int, Accesses | None]:
    """The accesses to these tensors of a launch; none for a tensor that has too many."""
    found: dict[int, Accesses | None] = dict.fromkeys(tensors)
    if sum(op["lanes"] for op in about["ops"]) > _MAX_LANES:
        return found
    for tensor in found:
        if math.prod(about["tensors"][tensor]["shape"]) <= _MAX_ELEMENTS:
            found[tensor] = []
    wanted = {tensor: accesses for tensor, accesses in found.items() if accesses is not None}
    addresses, sharing = _memory(about, wanted)
    for program, _, _ in about["programs"]:
        events = json.loads(trace.program(launch, program) or "null")["events"]
        for event, (op, *_) in enumerate(events):
            touched = about["ops"][op]["isAccess"] and trace.touched(launch, program, event)
            if not touched:
                continue
            lanes = json.loads(touched)
            base = addresses[lanes["tensor"]] if lanes["tensor"] >= 0 else 0
            each = zip(lanes["mask"], lanes["tensors"], lanes["places"], lanes["bytes"], strict=True)
            for lane, (is_active, tensor, place, distance) in enumerate(each):
                if not is_active or tensor < 0:
                    continue
                if tensor in wanted:
                    wanted[tensor].append((op, program, lane, place))
                for other, places in sharing[tensor] if base is not None else ():
                    if (place := places.get(base + distance)) is not None:
                        wanted[other].append((op, program, lane, place))
    return found


def _memory(
    about: dict[str, Any], wanted: Iterable[int]
) -> tuple[list[int | None], list[list[tuple[int, dict[int, int]]]]]:
    """The address of each tensor, and the wanted tensors that share its memory.

    The latter have their elements by address. An access counts for all tensors that share memory.
    """
    values = {parameter["name"]: parameter["value"] for parameter in about["parameters"]}
    tensors = about["tensors"]
    addresses = [values.get(tensor["name"]) for tensor in tensors]
    ranges = [_range(*each) for each in zip(tensors, addresses, strict=True)]
    sharing: list[list[tuple[int, dict[int, int]]]] = [[] for _ in tensors]
    for other in wanted:
        is_near = [other != at and _meet(ranges[other], each) for at, each in enumerate(ranges)]
        if any(is_near):
            places = _places(tensors[other], addresses[other])
            for at in itertools.compress(range(len(tensors)), is_near):
                sharing[at].append((other, places))
    return addresses, sharing


def _range(tensor: dict[str, Any], address: int | None) -> range:
    """The addresses of a tensor."""
    if address is None or 0 in tensor["shape"]:
        return range(0)
    ends = [(extent - 1) * stride for extent, stride in zip(tensor["shape"], tensor["strides"], strict=True)]
    low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return range(address + tensor["size"] * low, address + tensor["size"] * (high + 1))


def _meet(first: range, second: range) -> bool:
    return max(first.start, second.start) < min(first.stop, second.stop)


def _places(tensor: dict[str, Any], address: int | None) -> dict[int, int]:
    """The elements of a tensor by their addresses."""
    if address is None:
        return {}
    offsets = [0]
    for extent, stride in zip(tensor["shape"], tensor["strides"], strict=True):
        offsets = [offset + index * stride for offset in offsets for index in range(extent)]
    return {address + tensor["size"] * offset: place for place, offset in enumerate(offsets)}
