"""Wheels for tests that install: tilewright as it is imported here, without a build, and small packages.

``TILEWRIGHT_TEST_WHEEL`` names a wheel of ``make wheel`` to install instead.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from conftest import ROOT

import tilewright
from _tilewright_startup.distribution import with_record

PACKAGES = Path(tilewright.__file__).resolve().parents[1]

ENTRY_POINTS = """\
[console_scripts]
tilewright = tilewright.__main__:main
[pytest11]
tilewright = tilewright._pytest_plugin
"""
"""Those of `pyproject.toml`."""


def tilewright_wheel(folder: Path) -> Path:
    """Writes a wheel with the layout of `make wheel`; its packages are those of this process."""
    if built := os.environ.get("TILEWRIGHT_TEST_WHEEL"):
        return Path(shutil.copy(ROOT / built, folder))
    version = tilewright.__version__
    files = {}
    for package in ("tilewright", "_tilewright_startup", "triton-stubs"):
        for path in (PACKAGES / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                files[path.relative_to(PACKAGES).as_posix()] = path.read_bytes()
    for path in (PACKAGES / "tilewright.data").rglob("*.pth"):
        inner = path.relative_to(PACKAGES / "tilewright.data").as_posix()
        files[f"tilewright-{version}.data/{inner}"] = path.read_bytes()
    return wheel(folder, "tilewright", version, files, entry_points=ENTRY_POINTS)


def wheel(
    folder: Path, name: str, version: str, files: dict[str, bytes], needs: str = "", entry_points: str = ""
) -> Path:
    """Writes a pure wheel."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    texts = {
        f"{info}/METADATA": metadata + (needs and f"Requires-Dist: {needs}\n"),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, data in files.items():
            archive.writestr(inner, data)
        # pip writes a record of its own when it installs, from the files that it finds in this one.
        unhashed = "".join(f"{inner},,\n" for inner in files)
        for inner, text in with_record(texts, info).items():
            archive.writestr(inner, unhashed + text if inner.endswith("/RECORD") else text)
    return path
