"""Flame graphs: writes weighted stacks as an SVG, as an HTML page, or in the folded format of other tools."""

from __future__ import annotations

from html import escape
from typing import Any

_WIDTH = 1200
_HEIGHT = 18
_MIN_DRAWN_WIDTH = 0.3

_STYLE = """<style>
svg{background:#fff}text{fill:#111;pointer-events:none}g{cursor:pointer}
rect{stroke:#fff;stroke-width:.5}g:hover rect{stroke:#000;stroke-width:1.5}
@media (prefers-color-scheme:dark){svg,body{background:#16181d}rect{stroke:#16181d;filter:brightness(.8)}
g:hover rect{stroke:#fff}}
</style>"""

_ZOOM = """<script><![CDATA[
// A click makes a box as wide as the graph; a click on the first row shows all again.
const boxes = [...document.querySelectorAll("g")].map((group) => {
  const rect = group.querySelector("rect"), text = group.querySelector("text");
  const name = group.querySelector("title").textContent.replace(/: [^:]*$/, "");
  const at = (attribute) => Number(rect.getAttribute(attribute));
  return {group, rect, text, name, left: at("x"), top: at("y"), width: at("width")};
});
function zoom(chosen) {
  const factor = WIDTH / chosen.width, end = chosen.left + chosen.width;
  for (const box of boxes) {
    const isAround = box.left <= chosen.left + 0.01 && box.left + box.width >= end - 0.01 && box.top < chosen.top;
    const isWithin = box.left >= chosen.left - 0.01 && box.left + box.width <= end + 0.01 && box.top >= chosen.top;
    box.group.style.display = isAround || isWithin ? "" : "none";
    const left = isAround ? 0 : (box.left - chosen.left) * factor, width = isAround ? WIDTH : box.width * factor;
    box.rect.setAttribute("x", left);
    box.rect.setAttribute("width", width);
    box.text.setAttribute("x", left + 3);
    const room = Math.max(Math.floor((width - 6) / 6.7), 0);
    box.text.textContent = box.name.length <= room ? box.name : room > 2 ? box.name.slice(0, room - 1) + "…" : "";
  }
}
for (const box of boxes) box.group.addEventListener("click", () => zoom(box));
]]></script>"""


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
    """Draws an SVG with a box for each frame, as wide as its weight in nanoseconds.

    Under the mouse, a frame is named in full, and a click zooms. The colors follow the color scheme of the reader.
    """
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
    script = _ZOOM.replace("WIDTH", str(_WIDTH))
    if not is_html:
        return "\n".join([head, _STYLE, *boxes, script, "</svg>\n"])
    # An HTML parser also ends a script at `</script>`, but does not know CDATA sections.
    script = script.replace("<![CDATA[", "").replace("]]>", "")
    svg = "\n".join([head, _STYLE, *boxes, "</svg>", script, ""])
    top = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>flame graph</title></head>\n'
    return f"{top}<body>\n{svg}</body></html>\n"


def _draw(frame: _Frame, whole: float, start: float, depth: int, boxes: list[str]) -> int:
    from tilewright._profile import duration

    width = _WIDTH * frame.weight / whole
    if width < _MIN_DRAWN_WIDTH and depth:
        return depth
    left, top = _WIDTH * start / whole, depth * _HEIGHT + 4
    hue = 8 + sum(frame.name.encode()) % 48
    # Sums of fractions of a launch are rounded as the launch is.
    about = f"{frame.name}: {duration(round(frame.weight, 3))}, {100 * frame.weight / whole:.1f}%"
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
