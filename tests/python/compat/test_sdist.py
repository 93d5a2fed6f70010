"""The source distribution has each file that cargo and the crates read, and the file that pip installs beside them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import DEVICE, PATIENCE, ROOT

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="once is enough")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of the source distribution."""
    if shutil.which("cargo") is None:
        pytest.skip("a source distribution is made with cargo")
    pytest.importorskip("maturin")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "maturin", "sdist", "--out", folder]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=PATIENCE)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        for member in archive.getmembers():
            assert member.isfile(), f"{member.name} is not a plain file"
            assert not member.name.startswith("/"), member.name
            assert ".." not in Path(member.name).parts, member.name
        archive.extractall(folder)
    return next(path for path in folder.iterdir() if path.is_dir())


def test_cargo_resolves_the_crates(unpacked):
    manifest = unpacked / "crates" / "python" / "Cargo.toml"
    command = ["cargo", "metadata", "--format-version", "1", "--offline", "--manifest-path", manifest]
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", cwd=unpacked, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    local = [package for package in json.loads(done.stdout)["packages"] if package["source"] is None]
    assert "tilewright-python" in {package["name"] for package in local}
    for package in local:
        assert Path(package["manifest_path"]).is_relative_to(unpacked)
        for target in package["targets"]:
            assert Path(target["src_path"]).is_file(), target["src_path"]


def test_each_source_of_the_crates_is_there(unpacked):
    missing = []
    for crate in (unpacked / "crates").iterdir():
        sources = ROOT / "crates" / crate.name / "src"
        files = [path.relative_to(ROOT) for path in sources.rglob("*") if path.is_file()]
        missing += [str(path) for path in files if not (unpacked / path).is_file()]
    assert missing == []


def test_files_that_crates_include_are_there(unpacked):
    included = set()
    for source in unpacked.glob("crates/*/src/**/*.rs"):
        code = re.sub(r"^ *//.*", "", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for path in re.findall(r'include(?:_str|_bytes)?!\("([^"]*)"\)', code):
            included.add(source.parent / path)
    names = {path.name for path in included}
    assert {"layouts.js", "page.html"} <= names
    assert [str(path) for path in included if not path.is_file()] == []


def test_pages_of_diagnostics_are_there(unpacked):
    pages = list((ROOT / "docs" / "diagnostics").glob("*.md"))
    assert pages
    for page in pages:
        packed = unpacked / "crates" / "base" / "pages" / page.name
        assert packed.read_bytes() == page.read_bytes()


def test_what_the_wheel_installs_is_there(unpacked):
    folder = ROOT / "python" / "tilewright.data"
    files = {path.relative_to(ROOT) for path in folder.rglob("*") if path.is_file()}
    files |= {Path("python/_tilewright_startup", name) for name in ("__init__.py", "distribution.py")}
    assert [str(path) for path in files if not (unpacked / path).is_file()] == []
    assert (unpacked / "python/tilewright.data/purelib/tilewright_startup.pth").is_file()
