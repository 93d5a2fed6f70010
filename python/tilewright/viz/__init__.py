"""Traces of launches, and the web page that shows them: ``triton_viz`` for programs that import it.

::

    @triton_viz.trace
    @triton.jit
    def kernel(...): ...

    kernel[grid](...)
    triton_viz.launch()

A traced kernel runs on the CPU, compiled, whatever device it is for otherwise, and a Gluon kernel on the simulator. The
events of its programs go to a file, whose format ``crates/trace`` documents. ``launch`` serves the page on this machine
only, and needs no network.
"""

from __future__ import annotations

from tilewright._kept_names import kept
from tilewright.viz._config import config
from tilewright.viz._session import clear, load, save
from tilewright.viz._trace import Trace, trace
from tilewright.viz.clients import Profiler, RaceDetector, Sanitizer, Tracer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tilewright.viz._html import save_html
    from tilewright.viz._server import launch

__all__ = [
    "Profiler",
    "RaceDetector",
    "Sanitizer",
    "Trace",
    "Tracer",
    "clear",
    "config",
    "launch",
    "load",
    "save",
    "save_html",
    "trace",
]


def __getattr__(name: str) -> object:
    return kept(globals(), name, _find)


def _find(name: str) -> object:
    if name == "launch":
        # A program that only records needs no HTTP.
        from tilewright.viz._server import launch

        return launch
    if name == "save_html":
        from tilewright.viz._html import save_html

        return save_html
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
