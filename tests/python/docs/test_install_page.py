"""The files of `docs/install.md` install tilewright: the `Dockerfile`, `environment.yml`, and the commands of pip.

Neither Docker nor conda is used: a virtual environment is the base image and the environment of conda. Pip has no
index, and takes the wheels from `dist`, as the page says.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import venv
from pathlib import Path

import pytest
from conftest import DEVICE, PATIENCE, ROOT
from wheels import tilewright_wheel

import tilewright
from _tilewright_startup import distribution

pytestmark = pytest.mark.skipif(DEVICE != "cpu" or os.name == "nt", reason="once is enough")

PAGE = (ROOT / "docs" / "install.md").read_text()
PROGRAM = re.search(
    r"^```python file=kernels.py\n(.*?)^```$", (ROOT / "docs" / "first-kernel.md").read_text(), re.M | re.S
)[1]
PRINTED = "largest difference from numpy: 0.0\n"


def fence(language: str) -> str:
    """The only block of the page in this language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return text


class Machine:
    """A folder with the wheels in `dist`, and a virtual environment that is active for its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        (self.folder / "dist").mkdir(parents=True)
        distribution.write_wheel(str(tilewright_wheel(self.folder / "dist")))
        try:
            venv.create(folder / "env", with_pip=True)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"a virtual environment cannot be made: {error}")
        self.env = folder / "env"
        (site_packages,) = self.env.glob("lib/python*/site-packages")
        libraries = Path(pytest.importorskip("numpy").__file__).parents[1]
        for path in libraries.glob("numpy*"):
            (site_packages / path.name).symlink_to(path, target_is_directory=True)

    def sh(self, command: str, cwd: Path | None = None) -> str:
        """Runs a command, which must succeed; returns what it prints."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TILEWRIGHT_", "PYTHON"))
        }
        fixed = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = subprocess.run(
            ["sh", "-euc", command],
            cwd=cwd or self.folder,
            env={**kept, **fixed, "PATH": f"{self.env / 'bin'}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def machine(started):
    """The machine; a test leaves neither wheel installed."""
    yield started
    started.sh("python -m pip uninstall --quiet --yes triton tilewright")


def test_the_instructions_of_the_dockerfile(machine, tmp_path):
    root = tmp_path / "root"
    (machine.folder / "kernels.py").write_text(PROGRAM)
    current = root
    printed = ""
    for line in fence("dockerfile").splitlines():
        instruction, _, words = line.partition(" ")
        if instruction == "FROM":
            assert re.fullmatch(r"python:3\.1\d-slim", words)
        elif instruction == "WORKDIR":
            current = root / words.lstrip("/")
            current.mkdir(parents=True)
        elif instruction == "COPY":
            source, target = words.split()
            folder = root / target.lstrip("/") if target.startswith("/") else current / target
            # Docker makes the folder, and takes a target with a slash at its end as one.
            assert target.endswith("/")
            folder.mkdir(parents=True, exist_ok=True)
            machine.sh(f"cp {source} {shlex.quote(str(folder))}")
        elif instruction == "RUN":
            root.mkdir(exist_ok=True)
            printed = machine.sh(
                words.replace(" /wheels/", f" {shlex.quote(str(root))}/wheels/"), cwd=current
            )
        elif instruction == "CMD":
            printed = machine.sh(shlex.join(re.findall(r'"([^"]*)"', words)), cwd=current)
        else:
            assert line.startswith("#"), line
    assert printed == PRINTED


def test_conda_installs_the_list_of_pip(machine):
    """Conda writes the list into a file beside `environment.yml`, and runs this command there."""
    listed = re.findall(r"^      - (\./dist/.*)$", fence("yaml"), re.M)
    built = sorted(path.name for path in (machine.folder / "dist").iterdir())
    assert len(listed) == len(built) == 2
    version = re.escape(tilewright.__version__)
    assert re.fullmatch(rf"\./dist/tilewright-{version}-cp310-abi3-manylinux[\w.]*\.whl", listed[0])
    # The wheel of the page is that of `make wheel`; the tests have one for any platform.
    assert listed[1] == f"./dist/{built[1]}"
    (machine.folder / "condaenv.requirements.txt").write_text(f"./dist/{built[0]}\n{listed[1]}\n")
    machine.sh("python -m pip install -U -r condaenv.requirements.txt --exists-action=b")
    machine.sh("tilewright status")
    (machine.folder / "kernels.py").write_text(PROGRAM)
    assert machine.sh("python kernels.py") == PRINTED


def test_the_commands_of_pip(machine, tmp_path):
    """First only the wheel of tilewright, then both wheels."""
    (session,) = re.findall(r"^```\n(python -m venv .*?)^```$", PAGE, re.M | re.S)
    make, first, both, status = session.splitlines()
    assert make == "python -m venv ~/kernels && . ~/kernels/bin/activate"
    assert status == "tilewright status"
    machine.sh(first)
    assert "No module named 'triton'" in machine.sh("! python -c 'import triton'")
    assert "tilewright" in machine.sh("tilewright run -c 'import triton; print(triton.__file__)'")
    machine.sh(both)
    assert machine.sh(status).startswith(f"import triton:        tilewright {tilewright.__version__}")
    assert machine.sh("pip check") == "No broken requirements found.\n"


def test_the_makefile_builds_the_wheels_of_the_page():
    assert f"tilewright-{tilewright.__version__}-cp310-abi3-" in PAGE
    assert distribution.WHEEL_NAME.format(version=distribution.version_for(tilewright.__version__)) in PAGE
    assert "\nmake wheel " in PAGE
