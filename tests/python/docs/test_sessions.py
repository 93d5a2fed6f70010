"""A reader who saves the files of a page and types its commands sees the output that the page shows.

A fence with `file=NAME` is a file of the page. The commands of the fences `console` run in order, in the folder with
these files and with those of the pages that the page links. `…` means any text, and as a line any lines. The
words after `console` are: `excerpt` for commands that no test runs, and `library` for those that need the C library.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from c_library import c_library
from conftest import DEVICE, PATIENCE, ROOT, environment_of

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="once is enough")

FENCE = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.M | re.S)


def sessions(page: Path) -> list[tuple[str, str]]:
    """The sessions of a page that a test runs, each with its kind."""
    found = [
        (info, body) for language, info, body in FENCE.findall(page.read_text()) if language == "console"
    ]
    return [session for session in found if session[0] in ("", "library")]


def files(page: Path) -> dict[str, str]:
    """The files that a page shows, by their names."""
    named = [(re.search(r"\bfile=(\S+)", info), body) for _, info, body in FENCE.findall(page.read_text())]
    return {name[1]: body for name, body in named if name}


PLUGIN = (
    ""
    if importlib.metadata.entry_points(group="pytest11", name="tilewright")
    else "-p tilewright._pytest_plugin"
)
"""In a checkout without metadata, pytest does not find the plugin."""

PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if sessions(page)]


def commands(lines: list[str]) -> list[str]:
    """The commands of a session, with the lines that continue them."""
    found = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("$ "):
            found.append(line[2:])
        elif before.endswith("\\"):
            found[-1] += f"\n{line}"
    return found


def check_output(lines: list[str], printed: str, script: str) -> None:
    """Checks that each line is in what the commands printed, in the order of the page."""
    rest = iter(printed.splitlines())
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("$ ") or before.endswith("\\") or line == "…":
            continue
        pattern = ".*".join(re.escape(part) for part in line.split("…"))
        assert any(re.fullmatch(pattern, found) for found in rest), f"{script}: no {line!r} in\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_each_command_prints_what_the_page_shows(page, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, start in (
        ("python", ""),
        ("tilewright", "-m tilewright"),
        ("pytest", f"-m pytest -p no:cacheprovider {PLUGIN}"),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n')
        (programs / name).chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    linked = re.findall(r"\]\(([\w-]+\.md)", page.read_text())
    shown = {}
    for source in [*(page.parent / name for name in linked), page]:
        shown |= files(source)
    for package in ("torch", "helion", "numpy"):
        if f"import {package}\n" in "".join(files(page).values()) and not importlib.util.find_spec(package):
            pytest.skip(f"there is no {package}")
    for name, text in shown.items():
        (work / name).write_text(text)
    environment = environment_of(
        {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        }
    )
    # As in a shell of a reader: the timings of tuners are cached on disk.
    environment.pop("TRITON_CACHE_AUTOTUNING", None)
    for kind, session in sessions(page):
        lines = session.splitlines()
        script = "\n".join(commands(lines))
        if kind == "library":
            if not shutil.which("cc"):
                continue
            library = c_library()
            script = re.sub(r"^cargo .*\n", "", script)
            script = re.sub(r"(~|\$HOME)/tilewright/target/release", str(library.parent), script)
            script = script.replace("~/tilewright", str(ROOT))
        done = subprocess.run(
            ["sh", "-c", script], cwd=work, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        check_output(lines, done.stdout + done.stderr, script)


def test_the_pages_of_the_first_steps_have_sessions():
    assert len(sessions(ROOT / "docs" / "first-kernel.md")) >= 6
    assert len(PAGES) >= 12
