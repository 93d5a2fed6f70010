"""``triton_viz.core``: the names that programs import from it."""

from __future__ import annotations

from tilewright.viz._config import config
from tilewright.viz._session import clear, load, save
from tilewright.viz._trace import Trace, trace
from tilewright.viz.clients import Client

__all__ = ["Client", "Trace", "clear", "config", "load", "save", "trace"]
