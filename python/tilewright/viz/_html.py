"""The page of a trace as one file, which needs no server: scripts, styles and answers are in it."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright import _native
from tilewright._files import write_file
from tilewright.viz import _session
from tilewright.viz._answers import Accesses, answer, find_accesses, programs_of

_STATIC = Path(__file__).with_name("static")

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:"
)

_MAX_LISTED = 256
"""The maximum number of accesses to an element that are listed, as in ``crates/trace``."""

_Requests = list[tuple[str, dict[str, int]]]


def save_html(path: str | os.PathLike[str]) -> None:
    """Writes the page of the trace as one HTML file, which a browser opens without a server."""
    found = _session.path()
    if found is None:
        raise ValueError(
            "there is no trace to save: launch a kernel that is decorated with @triton_viz.trace first"
        )
    write_file(os.fspath(path), _page(_native.TraceFile(found)))


def _page(trace: _native.TraceFile) -> str:
    page = (_STATIC / "index.html").read_text(encoding="utf-8")
    # Modules at data URLs have no folder: they import each other by names, which a map resolves.
    modules = {
        file.name: _data_url(
            "text/javascript",
            re.sub(r'( from )"\./', r'\1"', file.read_text(encoding="utf-8")),
        )
        for file in sorted(_STATIC.glob("*.js"))
    }
    icon = _data_url("image/svg+xml", (_STATIC / "icon.svg").read_text(encoding="utf-8"))
    style = (_STATIC / "style.css").read_text(encoding="utf-8")
    answers = (
        f'<script type="application/octet-stream" data-part="{html.escape(name)}">{_packed(part)}</script>\n'
        for name, part in _parts(
            trace, [int(target) for target in re.findall(r'<option value="(\d+)"', page)]
        )
    )
    for tag, inlined in (
        ("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        ('<link rel="stylesheet" href="style.css">', f"<style>\n{style}</style>"),
        (
            '<script type="module" src="app.js"></script>',
            f'<script type="importmap">{json.dumps({"imports": modules})}</script>\n'
            '<script type="module">import "app.js";</script>',
        ),
        ("</body>", f"{''.join(answers)}</body>"),
    ):
        page = page.replace(tag, inlined)
    return page.replace('"icon.svg"', f'"{icon}"')


def _data_url(kind: str, text: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _packed(answers: dict[str, str]) -> str:
    text = ",".join(f"{json.dumps(request)}:{found}" for request, found in answers.items())
    return base64.b64encode(zlib.compress(f"{{{text}}}".encode())).decode()


def _parts(trace: _native.TraceFile, targets: list[int]) -> Iterator[tuple[str, dict[str, str]]]:
    """The answers to all requests of the page: those of a launch, a tensor or a program are a part."""
    yield _part(trace, {}, [("launches", {})])
    for launch in range(len(json.loads(trace.list()))):
        about = json.loads(trace.launch(launch) or "null")
        # A simulated launch has the layouts of the code that ran, whatever target is selected.
        is_simulated = about["device"] is not None
        layouts: _Requests = [
            ("layouts", {} if is_simulated else {"target": target})
            for target in (targets[:1] if is_simulated else targets)
        ]
        yield _part(trace, {"launch": launch}, [("launch", {}), *layouts])
        tensors = about["tensors"]
        for tensor, accesses in find_accesses(trace, launch, about, range(len(tensors))).items():
            requests: _Requests = [("overlaps", {}), *(("elements", {"after": after}) for after in (0, 1))]
            name, part = _part(trace, {"launch": launch, "tensor": tensor}, requests)
            yield name, {**part, "programs": programs_of(tensors[tensor], accesses), **_who(accesses)}
        for program, _, _ in about["programs"]:
            yield _part(
                trace, {"launch": launch, "program": program}, _of_program(trace, launch, about, program)
            )


def _part(
    trace: _native.TraceFile, numbers: dict[str, int], requests: _Requests
) -> tuple[str, dict[str, str]]:
    part = {}
    for name, others in requests:
        found = answer(trace, name, numbers | others)
        if found is not None:
            part["&".join([name, *_text(others)])] = found
    return "&".join(_text(numbers)), part


def _text(numbers: dict[str, int]) -> list[str]:
    return [f"{name}={number}" for name, number in numbers.items()]


def _of_program(trace: _native.TraceFile, launch: int, about: dict[str, Any], program: int) -> _Requests:
    requests: _Requests = [("program", {})]
    events = json.loads(trace.program(launch, program) or "null")["events"]
    for event, (op, _, *forms) in enumerate(events):
        if about["ops"][op]["isAccess"]:
            requests.append(("touched", {"event": event}))
        # The page shows the scalars of simulated events from their summaries.
        shapes = [value["shape"] for value in about["ops"][op]["values"]]
        requests += [
            ("value", {"event": event, "value": value})
            for value, form in enumerate(forms)
            if form and (shapes[value] or about["device"] is None)
        ]
    return requests


def _who(accesses: Accesses | None) -> dict[str, str]:
    """The answers to ``who``; the one without an element is that of elements without accesses."""
    if accesses is None:
        return {}
    found: dict[int, list[list[int]]] = {}
    for op, program, lane, place in accesses:
        found.setdefault(place, []).append([op, program, lane])

    def text(each: list[list[int]]) -> str:
        return f'{{"count":{len(each)},"partial":false,"accesses":{each[:_MAX_LISTED]}}}'

    return {"who": text([]), **{f"who&place={place}": text(each) for place, each in found.items()}}
