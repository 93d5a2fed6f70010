"""The C library of tilewright, which programs of tests link."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import ROOT


def c_library() -> Path:
    """The C library, if cargo has built it; the variable LIBTILEWRIGHT_C names it, too."""
    ending = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    target = ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target")
    found = [Path(os.environ["LIBTILEWRIGHT_C"])] if os.environ.get("LIBTILEWRIGHT_C") else []
    for kind in ("debug", "release"):
        found += [
            target / kind / f"libtilewright_c.{ending}",
            target / kind / "deps" / f"libtilewright_c.{ending}",
        ]
    for path in found:
        if path.exists():
            return path
    pytest.skip("cargo has not built libtilewright_c")
