"""``triton.backends``: back ends of the official Triton register here; programs look which there are."""

from __future__ import annotations

from typing import Any

from tilewright._missing import missing_names

backends: dict[str, Any] = {}
"""Empty: the back ends of tilewright are part of it."""

__getattr__ = missing_names("tilewright.backends", "Backend BaseBackend DriverBase")
