"""`tilewright activate`, the variable and the distribution `triton`, in a virtual environment without Rust or torch.

Everything comes from local files: pip has no index here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from conftest import DEVICE, PATIENCE, ROOT, Result
from wheels import PACKAGES, tilewright_wheel, wheel

import tilewright
from _tilewright_startup import distribution
from tilewright import _activate

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="once is enough")

VERSION = f"3.9.0+tilewright.{tilewright.__version__}"

KERNEL = """
import numpy as np
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

x = np.arange(1000, dtype=np.float32)
y = np.zeros_like(x)
add[(triton.cdiv(1000, 256),)](x, y, 1000, BLOCK=256)
assert (y == x + 1).all()
print(tl.__name__)
"""

NAMES = """
import importlib.metadata as metadata, importlib.util, os
spec = importlib.util.find_spec("triton")
import triton, triton.backends
assert spec.origin == triton.__file__ == triton.__spec__.origin, (spec.origin, triton.__file__)
assert os.path.isfile(triton.__file__)
assert list(spec.submodule_search_locations) == list(triton.__path__)
assert metadata.version("triton").startswith(triton.__version__ + "+tilewright."), metadata.version("triton")
points = {point.name: point.load() for point in metadata.entry_points(group="triton.backends")}
assert points.keys() == triton.backends.backends.keys(), points
assert all(module.__name__ == f"tilewright.backends.{name}" for name, module in points.items()), points
print(triton.__version__)
"""


class Environment:
    """A virtual environment; programs in it see neither this checkout nor other installed packages."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        self.wheels = wheels
        self.work = folder / "work"
        names = {"base": str(folder), "platbase": str(folder)}
        self.site_packages = Path(
            sysconfig.get_path("purelib", "venv" if "venv" in sysconfig.get_scheme_names() else None, names)
        )

    def python(self, *arguments: object, env: dict[str, str] | None = None) -> Result:
        """Runs Python in an empty folder."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TILEWRIGHT_", "PYTHON"))
        }
        bin_folder = self.folder / ("Scripts" if os.name == "nt" else "bin")
        fixed = {
            "PATH": str(bin_folder),
            "PYTHONUTF8": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
        }
        done = subprocess.run(
            [str(bin_folder / "python"), *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=self.work,
            env={**kept, **fixed, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
            timeout=PATIENCE,
        )
        return Result(done)

    def tilewright(self, *arguments: str, env: dict[str, str] | None = None) -> Result:
        return self.python("-m", "tilewright", *arguments, env=env)

    def pip(self, *arguments: object, code: int = 0) -> str:
        """Runs pip; returns what it prints."""
        done = self.python("-m", "pip", "--disable-pip-version-check", *arguments)
        assert done.code == code, done.out + done.err
        return done.out

    def install(self, *names: str) -> None:
        self.pip("install", "--quiet", "--find-links", self.wheels, *names)

    def files(self) -> dict[str, bytes]:
        """Every file of ``site-packages`` and of the folder of commands, with its content."""
        found = [
            path
            for path in self.site_packages.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ]
        return {str(path): path.read_bytes() for path in found}

    def imported(self, **env: str) -> str:
        """What ``import triton`` imports, as the last line of the program's output or error."""
        done = self.python("-c", "import triton, triton.language as tl; print(tl.__name__)", env=env)
        return (done.out or done.err).splitlines()[-1]


NOTHING = "ModuleNotFoundError: No module named 'triton'"
OURS = "tilewright.language"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels that pip may install."""
    folder = tmp_path_factory.mktemp("wheels")
    distribution.write_wheel(str(tilewright_wheel(folder)))
    wheel(folder, "needs_triton", "1.0", {"needs_triton.py": b"import triton\n"}, needs="triton==3.9.0")
    # Resolvers would prefer tilewright's version of the same name, so the official one is apart.
    (folder / "official").mkdir()
    language = b"__name__ = 'official'\n"
    files = {"triton/__init__.py": b"__version__ = '3.9.0'\n", "triton/language.py": language}
    wheel(folder / "official", "triton", "3.9.0", files)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheels):
    """A virtual environment with tilewright's wheel and the numpy of this process."""
    numpy = pytest.importorskip("numpy")
    folder = tmp_path_factory.mktemp("environment")
    try:
        venv.create(folder, with_pip=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a virtual environment cannot be made: {error}")
    made = Environment(folder, wheels)
    made.work.mkdir()
    libraries = Path(numpy.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (libraries / name).exists():
            (made.site_packages / name).symlink_to(libraries / name, target_is_directory=True)
    made.install("tilewright")
    return made


@pytest.fixture
def environment(installed):
    """The environment; after a test it must be as before."""
    before = installed.files()
    yield installed
    after = installed.files()
    left = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    if left:
        installed.pip("uninstall", "--yes", "triton", "needs_triton")
        installed.tilewright("deactivate")
    assert left == set()


def test_the_first_program_of_the_readme_runs(environment):
    text = (ROOT / "README.md").read_text()
    program = environment.work / "kernels.py"
    program.write_text(re.search(r"^```python kernel=.*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1])
    done = environment.python(program)
    assert (done.code, done.err) == (0, "")
    assert environment.python("-c", "import torch").code == 1


def test_the_smoke_test_of_the_release_passes(environment):
    done = environment.python(ROOT / "tests" / "wheel" / "smoke.py")
    assert done.code == 0, done.err
    assert done.out.startswith(f"tilewright {tilewright.__version__}")


def test_activate_and_back(environment):
    program = environment.work / "program.py"
    program.write_text(KERNEL)
    assert environment.imported() == NOTHING
    done = environment.tilewright("status")
    assert (done.code, done.err) == (1, "")
    assert "import triton:        nothing: no module of this name\n" in done.out
    assert done.out.endswith("\nto change it:         tilewright activate, or tilewright run script.py\n")

    done = environment.tilewright("activate")
    assert (done.code, done.err) == (0, "")
    assert str(environment.site_packages / distribution.PTH) in done.out
    done = environment.python(program)
    assert (done.code, done.out, done.err) == (0, f"{OURS}\n", "")
    done = environment.python("-c", NAMES)
    assert (done.code, done.out) == (0, "3.9.0\n"), done.err
    done = environment.tilewright("status", env={"TILEWRIGHT_AS_TRITON": "0"})
    assert (done.code, done.out.splitlines()[-1]) == (1, "to change it:         unset TILEWRIGHT_AS_TRITON")
    done = environment.tilewright("status")
    assert done.code == 0
    assert "to change it" not in done.out
    for line in (
        f"import triton:        tilewright {tilewright.__version__}, with the API of Triton 3.9.0",
        f"file:                 {environment.site_packages / 'tilewright' / '__init__.py'}",
        "import triton_viz:    nothing",
        f"metadata:             triton {VERSION}",
        "official:             not installed",
        f"activated by:         {environment.site_packages / distribution.PTH}",
    ):
        assert f"{line}\n" in done.out

    assert environment.pip("check") == "No broken requirements found.\n"
    assert re.search(rf"^triton +{re.escape(VERSION)}$", environment.pip("list"), re.MULTILINE)
    environment.install("needs_triton")
    assert environment.pip("check") == "No broken requirements found.\n"
    assert environment.python("-c", "import needs_triton").code == 0

    # A second time changes the parts.
    done = environment.tilewright("activate", "--viz")
    assert done.code == 0
    line = f"`import triton` and `import triton_viz` import tilewright in {environment.folder}\n"
    assert done.out.startswith(line)
    assert "its device 'cuda'" not in done.out
    shown = environment.tilewright("status").out
    assert "import triton_viz:    tilewright.viz\n" in shown
    assert "cuda without a GPU:   none\n" in shown
    assert environment.python("-c", "import triton_viz; triton_viz.trace").code == 0
    done = environment.tilewright("activate", "--cuda")
    assert done.out.startswith(f"`import triton` imports tilewright in {environment.folder}\n")
    assert "where torch finds no GPU, its device 'cuda' is the CPU\n" in done.out
    shown = environment.tilewright("status").out
    assert "import triton_viz:    nothing\n" in shown
    assert "cuda without a GPU:   the CPU\n" in shown

    done = environment.tilewright("deactivate")
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) == 2
    assert environment.imported() == NOTHING
    assert "requires triton, which is not installed" in environment.pip("check", code=1)
    environment.pip("uninstall", "--quiet", "--yes", "needs_triton")
    done = environment.tilewright("deactivate")
    assert (done.code, done.out) == (0, f"tilewright is not activated in {environment.folder}\n")


def test_pip_can_deactivate(environment):
    assert environment.tilewright("activate").code == 0
    environment.pip("uninstall", "--quiet", "--yes", "triton")
    assert environment.imported() == NOTHING


def test_the_distribution_has_the_name_for_resolvers(environment):
    environment.install("needs_triton")
    done = environment.python("-c", NAMES)
    assert (done.code, done.out) == (0, "3.9.0\n"), done.err
    assert environment.pip("check") == "No broken requirements found.\n"
    done = environment.tilewright("status")
    assert (done.code, f"metadata:             triton {VERSION}\n" in done.out) == (0, True)
    environment.pip("uninstall", "--quiet", "--yes", "needs_triton", "triton")
    assert environment.imported() == NOTHING


def test_the_distribution_and_activate_write_the_same(environment):
    def written(before):
        ignored = ("/RECORD", "/INSTALLER", "/REQUESTED")
        return {
            path: data
            for path, data in environment.files().items()
            if path not in before and not path.endswith(ignored)
        }

    before = environment.files()
    environment.install("triton")
    by_pip = written(before)
    assert environment.tilewright("deactivate").code == 0
    assert environment.tilewright("activate").code == 0
    assert written(before) == by_pip
    assert environment.tilewright("deactivate").code == 0


def test_beside_an_official_triton(environment):
    environment.pip("install", "--quiet", environment.wheels / "official" / "triton-3.9.0-py3-none-any.whl")
    official = environment.files()
    assert environment.imported() == "official"
    done = environment.tilewright("status")
    assert (done.code, "import triton:        the official triton\n" in done.out) == (1, True)

    done = environment.tilewright("activate")
    where = f"triton 3.9.0 in {environment.site_packages / 'triton'}"
    assert (done.code, f"hidden, not changed: {where}\n" in done.out) == (0, True), done.out
    assert environment.imported() == OURS
    assert environment.imported(TILEWRIGHT_AS_TRITON="0") == "official"
    done = environment.tilewright("status")
    assert done.code == 0
    assert "metadata:             triton 3.9.0\n" in done.out
    assert f"official:             {where}, hidden\n" in done.out
    assert environment.pip("check") == "No broken requirements found.\n"
    now = environment.files()
    assert now.keys() - official.keys() == {str(environment.site_packages / distribution.PTH)}
    assert all(now[path] == data for path, data in official.items())

    assert environment.tilewright("deactivate").code == 0
    assert environment.imported() == "official"
    assert environment.files() == official
    environment.pip("uninstall", "--quiet", "--yes", "triton")


def test_the_variable_is_for_one_process_and_its_children(environment):
    assert environment.imported(TILEWRIGHT_AS_TRITON="1") == OURS
    for text in ("triton", "triton,", "viz", " cuda , viz"):
        assert environment.imported(TILEWRIGHT_AS_TRITON=text) == OURS
    assert environment.imported(TILEWRIGHT_AS_TRITON="0") == NOTHING
    assert environment.imported(TILEWRIGHT_AS_TRITON="") == NOTHING
    expected = "ImportError: TILEWRIGHT_AS_TRITON is 'on', expected 0, 1, or some of triton,viz,cuda"
    assert environment.imported(TILEWRIGHT_AS_TRITON="on") == expected
    assert environment.imported(TILEWRIGHT_AS_TRITON=",") == expected.replace("'on'", "','")
    done = environment.tilewright("status", env={"TILEWRIGHT_AS_TRITON": "on"})
    assert (done.code, done.out, done.err) == (1, "", expected.replace("ImportError", "tilewright") + "\n")
    code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import triton, {}']))"
    for text, is_found in (("1", True), ("triton,viz", True), ("triton", False)):
        done = environment.python("-c", code.format("triton_viz"), env={"TILEWRIGHT_AS_TRITON": text})
        assert (done.code == 0) == is_found, done.err


def test_children_of_run_have_the_value_of_run(environment):
    code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import triton_viz']))"
    done = environment.tilewright("run", "-c", code, env={"TILEWRIGHT_AS_TRITON": "0"})
    assert (done.code, done.err) == (0, "")


def test_programs_without_triton_import_one_small_module(environment):
    code = "import sys; print(*sorted(sys.modules))"
    before = environment.python("-c", code).out.split()
    assert environment.tilewright("activate", "--viz", "--cuda").code == 0
    after = environment.python("-c", code).out.split()
    assert environment.tilewright("deactivate").code == 0
    assert set(after) - set(before) == {"_tilewright_startup"}


@pytest.mark.parametrize(
    ("parts", "first", "expected"),
    [("triton", "torch", "False"), ("triton,cuda", "triton", "True"), ("1", "torch", "True")],
)
def test_the_device_cuda_is_a_part_of_its_own(run, parts, first, expected):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code = f"import _tilewright_startup as s; s.watch({parts!r}); import {first}, torch, triton; "
    done = run("-c", code + "print(triton.language.__name__, torch.cuda.is_available())")
    assert (done.code, done.out) == (0, f"{OURS} {expected}\n"), done.err


def test_a_checkout_is_activated_by_its_path(environment, tmp_path):
    venv.create(tmp_path / "e", with_pip=False)
    other = Environment(tmp_path / "e", environment.wheels)
    other.work.mkdir()
    done = other.tilewright("activate", env={"PYTHONPATH": str(PACKAGES)})
    assert (done.code, done.err) == (0, "")
    assert other.imported() == OURS
    assert "without effect" not in other.tilewright("status", env={"TILEWRIGHT_AS_TRITON": "1"}).out
    metadata = other.python(
        "-c", "import importlib.metadata as m; print(m.version('triton'), m.requires('triton'))"
    )
    assert metadata.out == f"{VERSION} None\n"
    assert other.tilewright("deactivate").code == 0
    assert other.files() == {}
    # Python reads the variable by a file in `site-packages`, which a checkout on the path does not have.
    for value, is_said in (("1", True), ("0", False)):
        env = {"PYTHONPATH": str(PACKAGES), "TILEWRIGHT_AS_TRITON": value}
        done = other.tilewright("status", env=env)
        assert done.code == 1
        assert f"TILEWRIGHT_AS_TRITON: {value}{', without effect: there is no ' * is_said}" in done.out
        assert ("tilewright_startup.pth, which would read it" in done.out) == is_said


def test_without_tilewright_an_activated_environment_is_silent(environment, tmp_path):
    venv.create(tmp_path / "e", with_pip=False)
    other = Environment(tmp_path / "e", environment.wheels)
    other.work.mkdir()
    (other.site_packages / distribution.PTH).write_text(distribution.pth_text(("triton",)))
    done = other.python("-c", "pass")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert other.imported() == NOTHING


def test_an_unknown_option_is_a_mistake_of_usage(environment):
    for command in ("activate", "deactivate", "status"):
        done = environment.tilewright(command, "--nonsense")
        assert (done.code, done.out) == (2, "")
        help_line = f"help: `tilewright {command} --help` lists the options\n"
        assert done.err == f"error: unknown option '--nonsense'\n{help_line}"


def test_a_file_that_cannot_be_written_is_named(environment):
    path = environment.site_packages / distribution.PTH
    path.mkdir()
    try:
        done = environment.tilewright("activate")
    finally:
        path.rmdir()
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error[TW0118]: cannot change {path}: ")
    assert "  = help: run the command as the owner of the folder" in done.err


def test_a_python_of_the_system_is_changed_on_request_only(tmp_path, monkeypatch, capsys):
    (tmp_path / "EXTERNALLY-MANAGED").write_text("")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert _activate.activate([]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error[TW0118]: the operating system manages the packages of {sys.executable}\n")
    assert f"`activate` would write {tmp_path / distribution.PTH}\n" in error
    assert not (tmp_path / distribution.PTH).exists()
    assert _activate.activate(["--system"]) == 0
    assert (tmp_path / distribution.PTH).exists()
    assert _activate.deactivate([]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["EXTERNALLY-MANAGED"]
