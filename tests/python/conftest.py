"""What the tests across the Python boundary share: the device, modules made of text, programs in their own process."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT.parent / "shared" / "seed-programs"

_numbers = itertools.count()


@pytest.fixture(params=["cpu"])
def device(request: pytest.FixtureRequest) -> str:
    """Where kernels run."""
    return str(request.param)


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], ModuleType]:
    """Imports a text as a module: ``np``, ``triton`` and ``tl`` are there already; line 1 is the first of the text."""

    def load(text: str) -> ModuleType:
        path = tmp_path / "k.py"
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        spec = importlib.util.spec_from_file_location(f"k{next(_numbers)}", path)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        prelude = "import numpy as np\nimport tilewright as triton\nimport tilewright.language as tl\n"
        exec(prelude, made.__dict__)
        # Python keeps the lines of a file of this name from an earlier test otherwise.
        import linecache

        linecache.checkcache(str(path))
        spec.loader.exec_module(made)
        return made

    return load


class Result:
    """How a program ended."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr


@pytest.fixture
def run() -> Callable[..., Result]:
    """Runs ``python <arguments>``; what is in ``env`` is added to the environment."""

    def start(*arguments: Any, env: dict[str, str] | None = None, cwd: Path | None = None) -> Result:
        command = [sys.executable, *map(str, arguments)]
        environment = environment_of(env)
        return Result(
            subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=240)
        )

    return start


def environment_of(more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for programs: UTF-8, no colours, and tilewright where this process has it from."""
    import tilewright

    package = str(Path(tilewright.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", "NO_COLOR": "1", **(more or {})}


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Writes a program, named ``script.py`` unless it says otherwise."""

    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return write


def error_text(error: BaseException) -> str:
    """The text of an error, with the file's name alone."""
    lines = str(error).splitlines()
    return "\n".join(_without_folder(line) for line in lines)


def _without_folder(line: str) -> str:
    arrow, found, place = line.partition("--> ")
    return f"{arrow}{found}{place.rpartition('/')[2]}" if found else line
