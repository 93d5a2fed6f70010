"""The source distribution has each file that the crates compile in, and the file that pip installs beside them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from conftest import DEVICE, PATIENCE, ROOT

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="once is enough")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The files of the source distribution, relative to its folder."""
    if shutil.which("cargo") is None:
        pytest.skip("a source distribution is made with cargo")
    pytest.importorskip("maturin")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "maturin", "sdist", "--out", folder]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=PATIENCE)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_files_that_crates_include_from_elsewhere_are_there(names):
    included = set()
    for source in (ROOT / "crates").glob("*/src/**/*.rs"):
        for path in re.findall(r'include_(?:str|bytes)!\("(\.\./[^"]*)"\)', source.read_text()):
            included.add((source.parent / path).resolve().relative_to(ROOT).as_posix())
    assert "python/tilewright/viz/static/layouts.js" in included
    assert included - names == set()


def test_pages_of_diagnostics_are_there(names):
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "diagnostics").glob("*.md")}
    assert pages
    assert pages - names == set()


def test_what_the_wheel_installs_is_there(names):
    folder = ROOT / "python" / "tilewright.data"
    files = {path.relative_to(ROOT).as_posix() for path in folder.rglob("*") if path.is_file()}
    files |= {"python/_tilewright_startup/__init__.py", "python/_tilewright_startup/distribution.py"}
    assert files - names == set()
    assert "python/tilewright.data/purelib/tilewright_startup.pth" in names
