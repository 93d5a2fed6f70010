"""Fixtures of the tests across the Python boundary: the device, modules made of text, programs in their own process."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Modules that tests of several folders share.
sys.path.insert(0, str(ROOT / "tests/python/support"))

from fork_server import AT_START, ForkServer  # noqa: E402

PROGRAMS = ROOT.parent / "shared" / "seed-programs"

DEVICE = os.environ.get("TILEWRIGHT_DEVICE") or "cpu"
"""The device that kernels run on, by the variable that programs read too: `cpu`, `sim:sm_90`, `cuda`."""

ON_GPU = DEVICE.startswith("cuda")

WITH_CHECKED_ACCESSES = frozenset(("test_faults.py",))
"""The faults of these tests would end a process's work on a GPU, which does not check accesses; the simulator checks
them, in other words, and has tests of its own."""

WITH_OWN_DEVICE = frozenset(("blackwell",))
"""Fixtures that choose a simulated GPU: their tests give the same on each device, and the CPU's run has them."""

PATIENCE = 900
"""Seconds after which a program counts as hung. The machine may be slow and busy: no test passes because of it."""

# A test measures the configurations that it tunes, whatever ran before.
os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "0")

_numbers = itertools.count()


def pytest_configure() -> None:
    """A shell starts what runs in the background with Ctrl-C ignored, and every child would inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On another device than the CPU only the tests that take ``device`` are run: the rest is about no other."""
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:
        # Processes that share the tests must name them alike: none by the address of a function.
        raise pytest.UsageError(f"give ids to the parameters of {unstable[0]}")
    dropped = [] if DEVICE == "cpu" else [item for item in items if not _is_for_device(item)]
    config.hook.pytest_deselected(items=dropped)
    gone = set(dropped)
    items[:] = [item for item in items if item not in gone]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Counts the skipped tests at the end of a run, and names them by the reason."""
    if lines := skipped_by_reason(terminalreporter.stats.get("skipped", [])):
        title, *rest = lines
        terminalreporter.section(title, yellow=True)
        for line in rest:
            terminalreporter.write_line(line)


def skipped_by_reason(reports: Iterable[Any]) -> list[str]:
    """A title with the number of skipped tests, then for each reason its number and its tests without parameters."""
    tests: dict[str, set[str]] = {}
    for report in reports:
        # Of a skip the file, the line and the reason.
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        # Each process that shares the tests collects a file, and reports that it is skipped as a whole.
        tests.setdefault(reason.removeprefix("Skipped: "), set()).add(report.nodeid)
    count = sum(map(len, tests.values()))
    if not count:
        return []
    lines = [f"{count} skipped, for {len(tests)} reason{'s' if len(tests) > 1 else ''}"]
    for reason, found in sorted(tests.items(), key=lambda item: (-len(item[1]), item[0])):
        names = dict.fromkeys(name.partition("[")[0].rpartition("/")[2] for name in sorted(found))
        lines += [f"{len(found):5}  {reason}", f"       {', '.join(names)}"]
    return lines


@pytest.fixture(autouse=True)
def _same_inputs() -> None:
    """Seeds generators, so that a test without a seed draws the same values in each run, however many tests run."""
    random.seed(0)
    # Only those libraries that a test has imported: some tests are about programs that have none.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def _is_for_device(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    lists_devices = any("device" in _parameters(mark) for mark in item.iter_markers("parametrize"))
    takes_it = "device" in fixtures and not lists_devices and WITH_OWN_DEVICE.isdisjoint(fixtures)
    return takes_it and item.path.name not in WITH_CHECKED_ACCESSES


def _parameters(mark: pytest.Mark) -> list[str]:
    names = mark.args[0]
    return names.replace(",", " ").split() if isinstance(names, str) else list(names)


@pytest.fixture(params=[DEVICE])
def device() -> Iterator[str]:
    """The device of the tensors that kernels work on: the simulator of a GPU works on the host's memory."""
    yield "cuda" if ON_GPU else "cpu"
    if ON_GPU:
        _leave_if_the_gpu_is_lost()


def _leave_if_the_gpu_is_lost() -> None:
    """After a fault on the GPU every call of this process fails, and so would every test that follows."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        if "PYTEST_XDIST_WORKER" in os.environ:
            # The test counts as failed, and a new process goes on with the others.
            os._exit(1)
        pytest.exit(f"the GPU no longer responds to this process: {error}", returncode=3)


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
            subprocess.run(
                command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=PATIENCE
            )
        )

    return start


def environment_of(more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for programs: UTF-8, no colors, and tilewright where this process has it from."""
    import tilewright

    package = str(Path(tilewright.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", "NO_COLOR": "1", **(more or {})}


@pytest.fixture(scope="session")
def _fork_server() -> Iterator[ForkServer]:
    server = ForkServer(environment_of())
    yield server
    server.end()


@pytest.fixture
def run_forked(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """As ``run``, in a fork of a process that has torch already; for programs that only use torch."""
    if ON_GPU or not hasattr(os, "fork") or not importlib.util.find_spec("torch"):
        return request.getfixturevalue("run")
    server = request.getfixturevalue("_fork_server")

    def start(*arguments: Any, env: dict[str, str] | None = None, cwd: Path | None = None) -> Result:
        late = [name for name in env or {} if name.startswith(AT_START) and name != "PYTHONPATH"]
        assert not late, f"{late} count only when a process starts: use `run`"
        return Result(server.run([*map(str, arguments)], environment_of(env), cwd or Path.cwd(), PATIENCE))

    return start


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
    """The text of an error, with file names without their folders."""
    lines = str(error).splitlines()
    return "\n".join(_without_folder(line) for line in lines)


def _without_folder(line: str) -> str:
    arrow, found, place = line.partition("--> ")
    return f"{arrow}{found}{place.rpartition('/')[2]}" if found else line


@pytest.fixture(scope="session")
def stub() -> Path:
    """The stand-in for the driver's library."""
    if sys.platform != "linux" or shutil.which("cargo") is None:
        pytest.skip("the stand-in for the driver is built with cargo, for Linux")
    target = ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target") / "cuda-stub"
    # A folder of its own: in the usual one it would wait for the builds of `make test` that go on at the same time.
    command = ["cargo", "build", "--quiet", "-p", "tilewright-cuda-stub", "--target-dir", target]
    subprocess.run(command, check=True, cwd=ROOT)
    return target / "debug" / "libtilewright_cuda_stub.so"
