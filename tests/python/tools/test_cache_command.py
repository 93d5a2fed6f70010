"""``tilewright cache``, and the rows of the fault table of ``docs/cache.md`` for whole programs: cubins by a stand-in
for the driver, timings of tuners on the CPU. The tests of ``crates/cuda`` have the other rows of cubins."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import environment_of

PROCESSES = 16

LAUNCH = """
import os
import sys
import time

import tilewright as triton
import tilewright.language as tl

class Tensor:
    dtype = tl.float32
    device = "cuda:0"

    def data_ptr(self):
        return 0x10_0000

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

for block in map(int, sys.argv[1:]):
    print(scale[(1,)](Tensor(), 77, BLOCK=block).asm["cubin"][:4])
"""

TUNE = """
import os
import sys

import numpy as np
import tilewright as triton
import tilewright.language as tl

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

def launch():
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    tuner = triton.autotune(configs=configs, key=["n"], cache_results=True, warmup=1, rep=1)(scale)
    tuner[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](np.ones(64, np.float32), 64)
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def command(run, folder):
    """Runs ``tilewright cache``."""

    def start(*words: object, **variables: str):
        environment = {"TILEWRIGHT_CACHE_DIR": str(folder), **variables}
        return run("-m", "tilewright", "cache", *words, env=environment)

    return start


@pytest.fixture
def launch(stub, tmp_path, folder):
    """Starts a program that launches a kernel with some sizes of its block."""
    path, log = tmp_path / "launch.py", tmp_path / "assemblies"
    path.write_text(LAUNCH)

    class Launch:
        def start(self, *blocks: int, pause: int = 0, **variables: str) -> subprocess.Popen[str]:
            machine = {
                "TILEWRIGHT_LIBCUDA": str(stub),
                "TILEWRIGHT_STUB_CUDA": f"assemblies={log},pause={pause}",
                "TILEWRIGHT_CACHE_DIR": str(folder),
            }
            words = [sys.executable, path, *map(str, blocks)]
            environment = environment_of({**machine, **variables})
            return subprocess.Popen(
                words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )

        def __call__(self, *blocks: int, **variables: str) -> str:
            """Returns the text on stderr."""
            program = self.start(*blocks, **variables)
            out, err = program.communicate()
            assert (program.returncode, out.count("ELF")) == (0, len(blocks)), err
            return err

        def assemblies(self) -> int:
            """The number of assemblies since the last call."""
            lines = log.read_text().splitlines() if log.exists() else []
            log.unlink(missing_ok=True)
            return len(lines)

    return Launch()


def finish(programs: list[subprocess.Popen[str]]) -> None:
    """Waits for programs that have to succeed without a word."""
    for program in programs:
        _, err = program.communicate()
        assert (program.returncode, err) == (0, "")


def cubins(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("tilewright-2/?/*") if len(path.name) == 64)


def flip(path: Path, index: int) -> None:
    data = bytearray(path.read_bytes())
    data[index] ^= 1
    path.write_bytes(data)


def give_away(path: Path) -> None:
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("only the superuser can give files to another user")
    os.chown(path, 65534, 65534)


# --- Cubins ---


def test_processes_assemble_once(launch):
    finish([launch.start(256, pause=500) for _ in range(PROCESSES)])
    assert launch.assemblies() == 1
    launch(256)
    assert launch.assemblies() == 0


def test_killed_assemblers_stop_no_other_process(launch, folder):
    """The processes are killed while one assembles and the others wait."""
    programs = [launch.start(256, pause=60_000) for _ in range(4)]
    while launch.assemblies() == 0:
        time.sleep(0.02)
    waiting = launch.start(256)
    for program in programs:
        program.send_signal(signal.SIGKILL)
    for program in programs:
        program.communicate()
    finish([waiting])
    assert launch.assemblies() == 1
    assert len(cubins(folder)) == 1


@pytest.mark.parametrize("index", [0, 20, 60, 90, -1])
def test_a_damaged_cubin_is_assembled_anew(launch, command, folder, index):
    launch(256)
    (path,) = cubins(folder)
    assert command("verify").code == 0
    flip(path, index)
    done = command("verify")
    assert done.code == 1
    assert done.out == f"{path}: damaged\n{folder}: 1 file, 1 damaged\n"
    assert "`tilewright cache gc`" in done.err
    launch.assemblies()
    assert launch(256) == ""
    assert launch.assemblies() == 1
    assert command("verify").code == 0


def test_a_cubin_of_another_user_is_one_line(launch, command, folder):
    launch(256)
    (path,) = cubins(folder)
    give_away(path)
    assert "not trusted: it belongs to user 65534" in command("ls").out
    launch.assemblies()
    trusting = {"TILEWRIGHT_CACHE_SHARED": "1"}
    assert (launch(256, **trusting), launch.assemblies()) == ("", 0)
    (line,) = launch(256).splitlines()
    assert line.startswith(f"tilewright: the kernel cache cannot be used: {path}: it belongs to user 65534")
    assert launch.assemblies() == 1
    assert (launch(256), launch.assemblies()) == ("", 0)
    for part in (path.parent, path.parent.parent):
        give_away(part)
        assert str(part) in launch(256)
        assert launch.assemblies() == 1


# --- The command ---


def test_cubins_are_listed_shown_and_removed(launch, command, folder):
    empty = command("ls")
    assert (empty.code, empty.out) == (0, f"0 files, 0 bytes of 1.0 GiB, in {folder}\n")
    for block in (256, 512):
        launch(block)
    old, new = sorted(cubins(folder), key=lambda path: path.stat().st_mtime_ns)
    os.utime(old, (time.time() - 7300,) * 2)
    first, *rows, last = command("ls").out.splitlines()
    assert first.split() == ["kind", "key", "kernel", "target", "size", "last", "use"]
    number = r"\d+\.\d KiB|\d+ bytes"
    for row, path, age in zip(rows, (new, old), ("now", "2 hours ago"), strict=True):
        assert re.fullmatch(rf"cubin +{path.name[:12]}  scale +sm_90 +({number}) +{age}", row), row
    assert last.startswith("2 files, ")
    shown = command("show", old.name[:12]).out.splitlines()
    values = dict(line.split(": ", 1) for line in shown)
    size = old.stat().st_size
    assert values.pop("driver").startswith("CUDA 12.8")
    assert values == {
        "kind": "cubin",
        "key": old.name,
        "kernel": "scale",
        "target": "sm_90",
        "options": "-O4, line info",
        "size": f"{size} bytes",
        "last use": "2 hours ago",
        "state": "usable",
        "file": str(old),
    }
    removed = command("gc", "--limit", "0", TILEWRIGHT_CACHE_LIMIT="1000")
    assert removed.code == 0
    assert removed.out.startswith("removed 2 files, ")
    assert removed.out.endswith(f"; left 0 files, 0 bytes, in {folder}\n")


def test_the_limit_is_that_of_the_environment(launch, command, folder):
    launch(256, 512)
    assert command("gc").out.startswith("removed 0 files, 0 bytes; left 2 files, ")
    assert command("gc", TILEWRIGHT_CACHE_LIMIT="0").out.startswith("removed 2 files, ")


def test_clearing_removes_only_files_of_the_cache(launch, command, run, folder, tmp_path):
    launch(256)
    tuning(run, tmp_path, folder)("launch()")
    digest = folder / ("A" * 52)
    kept = [
        folder / "notes.txt",
        folder / "JSON" / "x.autotune.json",
        # The official Triton has kernels and timings in folders of the same names.
        digest / "kernel.cubin",
        digest / "tmp.pid_1",
        folder / ("B" * 52) / "other.autotune.json",
    ]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"configs_timings": [[{}, [1.0]]]}')
    old = folder / "tilewright-1" / "a"
    old.mkdir(parents=True)
    (old / ("a" * 64)).write_text("old")
    # The cubin of the old format is not listed.
    assert command("ls").out.count("\n") == 4
    cleared = command("clear")
    assert (cleared.code, cleared.err) == (0, "")
    assert cleared.out.startswith("removed 3 files, ")
    assert all(path.exists() for path in kept)
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == sorted(kept)
    assert command("clear").out == f"removed 0 files, 0 bytes; left 0 files, 0 bytes, in {folder}\n"


def test_errors_of_the_command_line(launch, command, folder, tmp_path):
    launch(*(2**power for power in range(5, 10)))
    unknown = command("show", "zzz")
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("error: no cached file has a key that begins with `zzz`")
    assert command("show", "").code == 2
    assert command().code == 2
    assert command("gc", "--limit", "many").code == 2
    assert command("nonsense").code == 2
    (tmp_path / "file").write_text("")
    assert command("ls", TILEWRIGHT_CACHE_DIR=str(tmp_path / "file" / "cache")).code == 1
    variables = dict.fromkeys(
        ("TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "HOME", "USERPROFILE"), ""
    )
    nowhere = command("ls", **variables)
    assert (nowhere.code, nowhere.err) == (
        1,
        "error: there is no cache folder: neither HOME nor TILEWRIGHT_CACHE_DIR is set\n",
    )


# --- Timings ---


def tuning(run, tmp_path: Path, folder: Path):
    """Runs lines after ``TUNE``."""
    path = tmp_path / "tune.py"

    def start(lines: str, **variables: str):
        path.write_text(TUNE + lines)
        environment = {"TILEWRIGHT_CACHE_DIR": str(folder), "TRITON_PRINT_AUTOTUNING": "1", **variables}
        return run(path, env=environment)

    return start


@pytest.fixture
def tune(run, tmp_path, folder):
    start = tuning(run, tmp_path, folder)

    def tune(lines: str = "launch()\n", **variables: str) -> tuple[int, str]:
        """Returns the number of configurations that were measured, and the text on stderr."""
        done = start(lines, **variables)
        assert done.code == 0, done.err
        return done.out.count("Autotuning kernel"), done.err

    return tune


def timings(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.autotune.json"))


def is_whole(path: Path) -> bool:
    return len(json.loads(path.read_text())["configs_timings"]) == 2


def test_timings_are_listed_shown_and_removed(tune, command, folder):
    assert tune()[0] == 2
    (path,) = timings(folder)
    stored = json.loads(path.read_text())
    assert stored["device"] == "cpu"
    _, row, last = command("ls").out.splitlines()
    pattern = rf"timings +{path.parent.name[:12]}  scale +cpu +\d+ bytes +now"
    assert re.fullmatch(pattern, row), row
    assert last.startswith("1 file, ")
    shown = command("show", path.parent.name).out.splitlines()
    assert shown[:4] == ["kind: timings", f"key: {path.parent.name}", "kernel: scale", "target: cpu"]
    assert shown[-3] == f"arguments: {stored['key']}"
    milliseconds = [float(line.split(" ms ")[0]) for line in shown[-2:]]
    assert milliseconds == sorted(milliseconds)
    assert all('"BLOCK": ' in line for line in shown[-2:])
    # A use is recorded.
    os.utime(path, (0, 0))
    assert tune()[0] == 0
    assert time.time() - path.stat().st_mtime < 3600
    assert command("gc").out.startswith("removed 0 files")
    assert command("gc", "--limit", "0").out.startswith("removed 1 file, ")
    assert not path.parent.exists()
    assert tune()[0] == 2


def test_processes_that_tune_leave_a_whole_file(tmp_path, folder, command):
    path = tmp_path / "tune.py"
    path.write_text(TUNE + "launch()\n")
    environment = environment_of({"TILEWRIGHT_CACHE_DIR": str(folder)})
    words = [sys.executable, path]
    programs = [
        subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    while any(program.poll() is None for program in programs):
        for path in timings(folder):
            assert is_whole(path), "a reader sees the old file or the new one"
        time.sleep(0.01)
    finish(programs)
    (path,) = timings(folder)
    assert is_whole(path)
    assert os.listdir(path.parent) == [path.name]
    assert command("verify").code == 0


def test_damaged_timings_are_measured_anew(tune, command, folder):
    assert tune()[0] == 2
    (path,) = timings(folder)
    text = path.read_bytes()
    digit = re.search(rb"\d\.\d", text)
    assert digit
    damaged = [b"", text[: len(text) // 2], text[:-4], b"\xff" * 100, b"[" * 100_000]
    # The JSON is valid, and one digit of a time is another.
    damaged.append(
        text[: digit.start()] + b"%d" % (9 - int(text[digit.start() :][:1])) + text[digit.start() + 1 :]
    )
    for data in damaged:
        path.write_bytes(data)
        assert command("verify").code == 1, data[:200]
        assert tune() == (2, ""), data[:200]
        assert command("verify").code == 0
    path.write_bytes(b"{")
    assert command("gc").out.startswith("removed 1 file, 1 byte; left 0 files")


KILLED = """
import signal

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

os.replace = die
launch()
"""


def test_a_killed_writer_leaves_no_timings(run, tmp_path, folder, tune, command):
    done = tuning(run, tmp_path, folder)(KILLED)
    assert done.code == -signal.SIGKILL
    (unfinished,) = [path for path in folder.rglob("*") if path.is_file()]
    assert unfinished.name.startswith("tmp.")
    # The file may belong to a writer that is at work.
    assert command("gc").out.startswith("removed 0 files")
    hour = 3600
    for seconds in (-2 * hour, 2 * hour):
        done = tuning(run, tmp_path, folder)(KILLED)
        for path in folder.rglob("tmp.*"):
            os.utime(path, (time.time() + seconds,) * 2)
        assert re.match(r"removed [12] files?, ", command("gc").out)
        assert not any(folder.iterdir())
    assert tune()[0] == 2
    assert tune()[0] == 0


def test_timings_of_any_time_are_read(tune, command, folder):
    assert tune()[0] == 2
    (path,) = timings(folder)
    for seconds in (0, time.time() + 1e8):
        os.utime(path, (seconds, seconds))
        assert command("gc").out.startswith("removed 0 files")
        assert tune() == (0, "")
        assert abs(time.time() - path.stat().st_mtime) < 3600
    os.utime(path, (time.time() + 1e8,) * 2)
    assert "in the future" in command("ls").out


def test_timings_of_another_user_are_measured_anew(tune, command, folder):
    assert tune()[0] == 2
    (path,) = timings(folder)
    give_away(path)
    assert "not trusted: it belongs to user 65534" in command("ls").out
    assert tune(TILEWRIGHT_CACHE_SHARED="1") == (0, "")
    measured, err = tune()
    assert measured == 2
    assert f"timings are not kept on disk: {path}: it belongs to user 65534" in err
    assert err.count("LaunchWarning") == 1
    assert tune() == (0, "")
    path.chmod(0o666)
    assert tune()[0] == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no umask")
def test_new_timings_may_not_be_written_by_other_users(tune, folder):
    assert tune("os.umask(0)\nlaunch()\n")[0] == 2
    (path,) = timings(folder)
    assert path.stat().st_mode & 0o777 == 0o664
    assert tune() == (0, "")


READ_ONLY = """
# The other user cannot import what the superuser's folder has, so the first launch imports all.
launch()
if os.geteuid() == 0:
    os.seteuid(65534)
os.environ["TILEWRIGHT_CACHE_DIR"] = sys.argv[1]
print("read-only", flush=True)
launch()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permissions of folders")
def test_timings_in_a_read_only_folder(run, folder):
    """The superuser may write each folder, so then the program becomes another user."""
    place = Path(tempfile.mkdtemp())
    path, shared = place / "tune.py", place / "cache"

    def start() -> tuple[int, str]:
        environment = {"TILEWRIGHT_CACHE_DIR": str(folder), "TRITON_PRINT_AUTOTUNING": "1"}
        done = run(path, shared, env=environment)
        assert done.code == 0, done.err
        return done.out.partition("read-only")[2].count("Autotuning kernel"), done.err

    try:
        place.chmod(0o755)
        path.write_text(TUNE + 'os.environ["TILEWRIGHT_CACHE_DIR"] = sys.argv[1]\nlaunch()\n')
        start()
        path.write_text(TUNE + READ_ONLY)
        (file,) = timings(shared)
        file.parent.chmod(0o555)
        assert start() == (0, "")
        file.parent.chmod(0o755)
        shutil.rmtree(file.parent)
        shared.chmod(0o555)
        measured, err = start()
        assert measured == 2
        assert "timings are not kept on disk: [Errno 13] Permission denied" in err
        assert err.count("LaunchWarning") == 1
        assert not timings(shared)
    finally:
        shared.chmod(0o755)
        shutil.rmtree(place)
