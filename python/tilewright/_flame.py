"""Flame graphs: writes weighted stacks as an SVG, as an HTML page, or in the folded format of other tools."""

from __future__ import annotations

from html import escape
from typing import Any

_WIDTH = 1200
_HEIGHT = 18
_MIN_DRAWN_WIDTH = 0.3


class _Frame:
    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = 0.0
        self.inner: dict[str, _Frame] = {}


def folded(stacks: list[tuple[list[str], float]]) -> str:
    """A line a stack, ``a;b;c 120``, as flame graph tools read them."""
    lines = [
        f"{';'.join(name.replace(';', ',') for name in names)} {round(weight)}" for names, weight in stacks
    ]
    return "\n".join(lines) + "\n"


def flame_graph(stacks: list[tuple[list[str], float]], is_html: bool = False) -> str:
    """An SVG with a box for each frame, as wide as its weight in nanoseconds; under the mouse it is named in full."""
    root = _Frame("all")
    for names, weight in stacks:
        root.weight += weight
        frame = root
        for name in names:
            frame = frame.inner.setdefault(name, _Frame(name))
            frame.weight += weight
    boxes: list[str] = []
    depth = _draw(root, root.weight or 1.0, 0.0, 0, boxes)
    height = (depth + 1) * _HEIGHT + 8
    box = f'viewBox="0 0 {_WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="monospace" font-size="11">'
    style = "<style>rect{stroke:#fff;stroke-width:.5}g:hover rect{stroke:#000;stroke-width:1.5}</style>"
    svg = "\n".join([head, style, *boxes, "</svg>\n"])
    if not is_html:
        return svg
    top = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>flame graph</title></head>\n'
    return f"{top}<body>\n{svg}</body></html>\n"


def _draw(frame: _Frame, whole: float, start: float, depth: int, boxes: list[str]) -> int:
    from tilewright._profile import duration

    width = _WIDTH * frame.weight / whole
    if width < _MIN_DRAWN_WIDTH and depth:
        return depth
    left, top = _WIDTH * start / whole, depth * _HEIGHT + 4
    hue = 8 + sum(frame.name.encode()) % 48
    about = f"{frame.name}: {duration(frame.weight)}, {100 * frame.weight / whole:.1f}%"
    shown = (
        frame.name
        if len(frame.name) * 6.7 < width - 6
        else frame.name[: max(int((width - 6) / 6.7) - 1, 0)] + "…"
    )
    label: Any = escape(shown) if width > 26 else ""
    boxes.append(
        f'<g><title>{escape(about)}</title><rect x="{left:.2f}" y="{top}" width="{max(width, 0.5):.2f}" '
        f'height="{_HEIGHT - 1}" fill="hsl({hue} 80% 70%)"/><text x="{left + 3:.2f}" y="{top + 12}">{label}</text></g>'
    )
    deepest = depth
    for inner in sorted(frame.inner.values(), key=lambda one: -one.weight):
        deepest = max(deepest, _draw(inner, whole, start, depth + 1, boxes))
        start += inner.weight
    return deepest
