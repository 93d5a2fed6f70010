"""Locks: `tilewright lock` writes what a program compiles and tunes, `run --locked` launches only that."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment_of

HELPERS = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(3)


@triton.jit
def scaled(x):
    return x * FACTOR
"""

PROGRAM = """
import sys

import numpy as np
import triton
import triton.language as tl
from helpers import scaled


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, scaled(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64, 128)], key=["n"])
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + BLOCK, mask=i < n)


@triton.jit
def dot(a_ptr, b_ptr, c_ptr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(c_ptr + i, tl.dot(tl.load(a_ptr + i), tl.load(b_ptr + i)))


def main(block, n=1000):
    x = np.arange(n, dtype=np.float32)
    out, other = np.empty_like(x), np.empty_like(x)
    scale[(triton.cdiv(n, block),)](x, out, n, BLOCK=block)
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, other, n)
    a = np.ones((32, 32), np.float16)
    c = np.empty((32, 32), np.float32)
    dot[(1,)](a, a, c, SIZE=32)
    assert (out == 3 * x).all() and (other == x + tuned.best_config.kwargs["BLOCK"]).all() and (c == 32).all()
    print("tuned", tuned.best_config.kwargs["BLOCK"])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
"""

PRODUCT = """
import sys

import numpy as np
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, stride, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows * stride + k + columns, mask=(rows < M) & (k + columns < K), other=0.0)
        b = tl.load(b_ptr + (k + rows) * stride + columns, mask=(k + rows < K) & (columns < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows * N + columns, total, mask=(rows < M) & (columns < N))


for stride in map(int, sys.argv[1:]):
    a = np.ones((64, stride), np.float16)
    c = np.empty((64, 64), np.float32)
    product[(1,)](a, a, c, 64, 64, 64, stride, BLOCK=64)
    assert (c == 64).all()
"""


class Project:
    """A folder with a program, and the commands that work on it."""

    def __init__(self, folder: Path, run: Any) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.program = folder / "program.py"
        self.lock = folder / "program.lock"
        self._run = run
        self.program.write_text(PROGRAM)
        (folder / "helpers.py").write_text(HELPERS)

    def command(self, *words: Any, **settings: Any) -> Any:
        return self._run("-m", "tilewright", *map(str, words), **settings)

    def write_lock(self, *options: str, block: int = 64, **settings: Any) -> Any:
        made = self.command("lock", *options, "-o", self.lock, self.program, block, **settings)
        assert made.code == 0, made.err
        return made

    def run_locked(self, *arguments: Any, options: tuple[str, ...] = (), **settings: Any) -> Any:
        return self.command("run", f"--locked={self.lock}", *options, self.program, *arguments, **settings)

    def content(self) -> dict[str, Any]:
        return json.loads(self.lock.read_text())

    @property
    def artifacts(self) -> Path:
        return self.lock.with_suffix(".artifacts")


@pytest.fixture
def project(tmp_path: Path, run: Any) -> Project:
    return Project(tmp_path / "project", run)


@pytest.fixture
def without_compiler(project: Project) -> dict[str, str]:
    """An environment in which tuning ends the program. A launch outside of the lock is an error anyway."""
    folder = project.folder / "poison"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import tilewright.runtime._tuning as tuning\n"
        "def tune(*_arguments):\n    raise SystemExit('a configuration was measured')\n"
        "tuning.tune = tune\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder), environment_of()["PYTHONPATH"]])}


def test_locked_launches_neither_compile_nor_tune(project: Project, without_compiler: dict[str, str]) -> None:
    made = project.write_lock()
    assert "program.lock: 3 kernels, 1 tuned choice" in made.out
    lock = project.content()
    assert sorted(entry["launches"]["kernel"] for entry in lock["entries"]) == ["dot", "scale", "tuned"]
    (choice,) = lock["choices"]
    assert (choice["kernel"], choice["key"][0], len(choice["timings"])) == ("tuned", "1000", 3)
    # The lock decides, not the speed of the machine.
    other = next(block for block in ("32", "64", "128") if block != choice["config"]["BLOCK"])
    locked = project.run_locked(64, env=without_compiler)
    assert (locked.code, locked.out.strip()) == (0, f"tuned {choice['config']['BLOCK']}"), locked.err
    choice["config"]["BLOCK"] = other
    project.lock.write_text(json.dumps(lock))
    locked = project.run_locked(64, env=without_compiler)
    assert locked.code == 1
    assert "error[TW0119]: this launch of kernel 'tuned' is not in the lock" in locked.err
    tuned = project.command("run", project.program, 64, env=without_compiler)
    assert "a configuration was measured" in tuned.err


def test_a_launch_outside_of_the_lock_says_how_it_differs(project: Project) -> None:
    project.write_lock()
    other = project.run_locked(128)
    assert other.code == 1
    assert "this launch of kernel 'scale' is not in the lock" in other.err
    assert "note: BLOCK: 128 here, 64 in the lock\n" in other.err
    sizes = project.run_locked(64, 992)
    assert "note: n: i32:16 here, i32 in the lock\n" in sizes.err
    allowed = project.run_locked(128, env={"TILEWRIGHT_LOCK_POLICY": "warn"})
    assert allowed.code == 0
    line = "tilewright: this launch of kernel 'scale' is not in the lock: BLOCK: 128 here, 64 in the lock"
    assert allowed.err.strip() == line
    helpers = project.folder / "helpers.py"
    helpers.write_text(HELPERS.replace("constexpr(3)", "constexpr(4)"))
    changed = project.run_locked(64)
    assert "note: the kernel, a function that it calls or a value that it reads has changed" in changed.err
    helpers.write_text(f"# A comment.\n{HELPERS}")
    assert project.run_locked(64).code == 0
    renamed = (
        project.program.read_text()
        .replace("scale(x_ptr", "rescale(x_ptr")
        .replace("    scale[", "    rescale[")
    )
    project.program.write_text(renamed)
    assert "note: the lock has the kernels dot, scale, tuned" in project.run_locked(64).err


def test_locks_do_not_depend_on_the_place_of_the_program(project: Project, tmp_path: Path, run: Any) -> None:
    other = Project(tmp_path / "another" / "place", run)
    texts = []
    for each in (project, other):
        each.write_lock("--target", "cpu", "--target", "sm_80", "--target", "sm_90", "--target", "sm_100")
        lock = each.content()
        lock["choices"] = [{**choice, "timings": None, "config": None} for choice in lock["choices"]]
        lock["entries"] = [entry for entry in lock["entries"] if entry["launches"]["kernel"] != "tuned"]
        texts.append(lock)
    assert texts[0] == texts[1]
    assert str(tmp_path) not in project.lock.read_text()
    for artifact in project.artifacts.iterdir():
        assert str(tmp_path).encode() not in artifact.read_bytes(), artifact.name


def test_kernels_are_compiled_for_other_targets(project: Project) -> None:
    targets = ("sm_80", "sm_90", "sm_100")
    made = project.write_lock(*(word for target in targets for word in ("--target", target)))
    entries = project.content()["entries"]
    assert sorted({entry["launches"]["target"] for entry in entries}) == ["sm_100", "sm_80", "sm_90a"]
    assert len(entries) == 9
    if "no cubins" in made.err:
        pytest.skip("there is no ptxas")
    for entry in entries:
        assert set(entry["code"]) == {"ir", "opt", "gpu", "ptx", "cubin"}
        cubin = (project.artifacts / f"{entry['code']['cubin']}.cubin").read_bytes()
        assert cubin.startswith(b"\x7fELF")
    verified = project.command("lock", "verify", project.lock)
    assert (verified.code, verified.out.split(": ")[1].strip()) == (0, "9 kernels, 0 with other code")
    for target in ("sm_80", "sm_90"):
        locked = project.run_locked(64, options=("--device", f"sim:{target}"))
        assert locked.code == 0, locked.err
    missing = project.run_locked(64, options=("--device", "sim:sm_75"))
    assert "note: target: sm_75 here, sm_" in missing.err


def test_variants_for_tensors_without_tensor_maps_are_locked(project: Project) -> None:
    """Rows of 66 elements are no multiple of 16 bytes; the launch has the same types as one with rows of 72."""
    project.program.write_text(PRODUCT)
    on_hopper = ("--device", "sim:sm_90")
    one, both = (project.folder / name for name in ("one.lock", "both.lock"))
    for lock, strides in ((one, (72,)), (both, (72, 66))):
        made = project.command("lock", *on_hopper, "-o", lock, project.program, *strides)
        assert made.code == 0, made.err
    compared = project.command("lock", "diff", one, both)
    assert [line[0] for line in compared.out.splitlines()] == ["+"]
    assert "without_tensor_maps=load:0 load:1" in compared.out
    for lock, strides in ((one, (72, 88)), (both, (66, 72))):
        locked = project.command("run", f"--locked={lock}", *on_hopper, project.program, *strides)
        assert locked.code == 0, locked.err
    missing = project.command("run", f"--locked={one}", *on_hopper, project.program, 66)
    assert "note: without_tensor_maps: load:0 load:1 here, unset in the lock" in missing.err
    verified = project.command("lock", "verify", both)
    assert verified.code == 0, verified.out


def test_processes_of_the_program_are_recorded(project: Project) -> None:
    project.program.write_text(
        PROGRAM.replace(
            "    main(*map(int, sys.argv[1:]))",
            "    import subprocess\n"
            "    if len(sys.argv) == 2:\n"
            "        rank = [sys.executable, __file__, '128', '4096']\n"
            "        ranks = [subprocess.Popen(rank) for _ in range(3)]\n"
            "        assert all(rank.wait() == 0 for rank in ranks)\n"
            "    main(*map(int, sys.argv[1:]))\n",
        )
    )
    project.write_lock()
    lock = project.content()
    blocks = {entry["launches"]["arguments"].get("BLOCK") for entry in lock["entries"]}
    assert {"64", "128"} <= blocks
    assert sorted(choice["key"][0] for choice in lock["choices"]) == ["1000", "4096"]


def test_a_lock_that_is_damaged_is_never_used(project: Project) -> None:
    project.write_lock()
    text = project.lock.read_text()
    for damaged, message in (
        (text[: len(text) // 2], "is not a lock file: EOF while parsing"),
        (
            text.replace('"format": 1', '"format": 2', 1),
            "has format 2, and this version of tilewright reads format 1",
        ),
        ("[]", 'is not a lock file: it has no "format"'),
        (text.replace('"opt": "', '"opt": "../', 1), "is not the hash of an artifact"),
    ):
        project.lock.write_text(damaged)
        found = project.run_locked(64)
        assert found.code == 1
        assert "error[TW0120]" in found.err
        assert message in found.err
    project.lock.write_text(text)
    for artifact in project.artifacts.glob("*.opt"):
        content = artifact.read_bytes()
        artifact.write_bytes(content[:-1] + b" ")
        assert project.command("lock", "verify", project.lock).code == 1
        artifact.write_bytes(content)
    assert project.run_locked(64).code == 0
    shutil.rmtree(project.artifacts)
    assert "cannot be read" in project.run_locked(64).err
    project.lock.unlink()
    assert "error[TW0120]" in project.run_locked(64).err


def test_verify_finds_code_that_another_compiler_made(project: Project) -> None:
    project.write_lock("--target", "sm_90")
    lock = project.content()
    entry = next(entry for entry in lock["entries"] if entry["launches"]["kernel"] == "scale")
    ptx = project.artifacts / f"{entry['code']['ptx']}.ptx"
    other = next(entry for entry in lock["entries"] if entry["launches"]["kernel"] == "dot")
    entry["code"]["ptx"] = other["code"]["ptx"]
    project.lock.write_text(json.dumps(lock))
    verified = project.command("lock", "verify", project.lock)
    assert verified.code == 1
    assert "scale(" in verified.out
    assert "the locked `ptx` differs" in verified.out
    assert ptx.exists()


@pytest.mark.parametrize("value", ["many", "-1", "4294967360"])
def test_verify_refuses_an_option_that_no_launch_can_set(project: Project, value: str) -> None:
    project.write_lock("--target", "sm_90")
    lock = project.content()
    entry = next(entry for entry in lock["entries"] if entry["launches"]["kernel"] == "scale")
    assert entry["launches"]["options"]["maxnreg"] == "None"
    entry["launches"]["options"]["maxnreg"] = value
    project.lock.write_text(json.dumps(lock))
    verified = project.command("lock", "verify", project.lock)
    assert verified.code == 1
    assert "error[TW0120]: the lock's entry for scale(" in verified.err
    assert "has no valid options" in verified.err


def test_verify_finds_a_choice_without_a_kernel(project: Project) -> None:
    project.write_lock()
    verified = project.command("lock", "verify", project.lock)
    assert (verified.code, verified.out.split(": ")[1]) == (0, "3 kernels, 0 with other code\n")
    lock = project.content()
    (choice,) = lock["choices"]
    for name, value in (("config", {**choice["config"], "BLOCK": "4096"}), ("target", "sm_90a")):
        lock["choices"] = [{**choice, name: value}]
        project.lock.write_text(json.dumps(lock))
        verified = project.command("lock", "verify", project.lock)
        assert verified.code == 1
        first, last = verified.out.splitlines()
        assert first.startswith("tuned(1000, ")
        assert first.endswith(": no kernel of the lock has this configuration")
        assert last.endswith(": 3 kernels, 0 with other code, 1 tuned choice without a kernel")


def test_locks_are_compared_and_merged(project: Project) -> None:
    project.write_lock()
    first = project.folder / "first.lock"
    shutil.copy(project.lock, first)
    shutil.copytree(project.artifacts, first.with_suffix(".artifacts"))
    project.write_lock(block=128)
    compared = project.command("lock", "diff", first, project.lock)
    assert compared.code == 1
    lines = compared.out.splitlines()
    assert any(line.startswith("- scale(BLOCK=64, ") for line in lines)
    assert any(line.startswith("+ scale(BLOCK=128, ") for line in lines)
    assert project.command("lock", "diff", first, first).code == 0
    lock = json.loads(first.read_text())
    # Each tuning may have chosen differently: the merge takes one choice only.
    lock["choices"] = []
    first.write_text(json.dumps(lock))
    merged = project.folder / "merged.lock"
    done = project.command("lock", "merge", first, project.lock, "-o", merged)
    assert done.code == 0, done.err
    for block in (64, 128):
        locked = project.command("run", f"--locked={merged}", project.program, block)
        assert locked.code == 0, locked.err
    conflict = json.loads(project.lock.read_text())
    conflict["choices"][0]["config"] = {"BLOCK": "1"}
    first.write_text(json.dumps(conflict))
    refused = project.command("lock", "merge", first, project.lock, "-o", merged)
    assert refused.code == 1
    assert "has other code or another choice for tuned" in refused.err
    assert "help: write both locks with one version of tilewright, and with the same choices" in refused.err


def test_the_digest_of_a_lock_is_that_of_its_code(project: Project) -> None:
    project.write_lock()
    copy = project.folder / "copy.lock"
    packed = project.folder / "packed.tar"
    lock = project.content()
    lock["choices"][0]["timings"] = {}
    copy.write_text(json.dumps(lock))
    shutil.copytree(project.artifacts, copy.with_suffix(".artifacts"))
    assert project.command("lock", "pack", project.lock, "-o", packed).code == 0

    def digests() -> list[str]:
        done = project.command("lock", "digest", project.lock, copy, packed)
        assert done.code == 0, done.err
        lines = [line.split("  ") for line in done.out.splitlines()]
        assert [path for _, path in lines] == [str(project.lock), str(copy), str(packed)]
        return [digest for digest, _ in lines]

    first, *others = digests()
    assert others == [first, first]
    lock["choices"][0]["config"]["BLOCK"] = "4096"
    copy.write_text(json.dumps(lock))
    changed = digests()
    assert changed[0] == changed[2] == first != changed[1]
    damaged = next(project.artifacts.glob("*.opt"))
    damaged.write_bytes(damaged.read_bytes() + b" ")
    refused = project.command("lock", "digest", project.lock)
    assert (refused.code, refused.out) == (1, "")
    assert "is damaged" in refused.err


def test_a_packed_lock_is_one_file(project: Project, without_compiler: dict[str, str]) -> None:
    project.write_lock()
    packed = project.folder / "packed.tar"
    assert project.command("lock", "pack", project.lock, "-o", packed).code == 0
    first = packed.read_bytes()
    with tarfile.open(packed) as archive:
        members = archive.getnames()
    artifacts = sorted(path.name for path in project.artifacts.iterdir())
    assert members == ["tilewright.lock", *(f"artifacts/{name}" for name in artifacts)]
    assert project.command("lock", "pack", packed, "-o", packed).code == 0
    assert packed.read_bytes() == first
    listed = [project.command("lock", "list", path).out for path in (project.lock, packed)]
    assert listed[0] == listed[1]
    assert project.command("lock", "verify", packed).code == 0
    shutil.rmtree(project.artifacts)
    project.lock.unlink()
    locked = project.command("run", f"--locked={packed}", project.program, 64, env=without_compiler)
    assert locked.code == 0, locked.err
    for damaged in (first[: len(first) // 2], first[:600] + b"x" + first[601:], b"tilewright.lock"):
        packed.write_bytes(damaged)
        refused = project.command("run", f"--locked={packed}", project.program, 64)
        assert refused.code == 1
        assert "error[TW0120]" in refused.err, refused.err


def test_a_program_that_fails_has_no_lock(project: Project) -> None:
    failed = project.command("lock", "-o", project.lock, project.program, 0)
    assert failed.code == 1
    assert "no lock is written, because the program ended with 1" in failed.err
    assert not project.lock.exists()
    idle = project.command("lock", "-o", project.lock, "-c", "print('no kernel')")
    assert idle.code == 1
    assert "the program has launched no kernel" in idle.err
    assert not project.lock.exists()
    assert not project.artifacts.exists()
    project.lock.write_text("an earlier lock")
    project.command("lock", "-o", project.lock, "-c", "print('no kernel')")
    assert project.lock.read_text() == "an earlier lock"
    unknown = project.command("lock", "--target", "sm_1", project.program)
    assert unknown.code == 2
    assert "no target 'sm_1'" in unknown.err


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("missing/a.lock", "cannot write missing/a.lock: No such file or directory"),
        ("helpers.py/a.lock", "cannot write helpers.py/a.lock: Not a directory"),
        ("folder", "cannot write folder: Is a directory"),
        ("a.tar", "a lock is no archive: write a.lock, then `tilewright lock pack a.lock -o a.tar`"),
    ],
)
def test_the_program_does_not_run_if_its_lock_cannot_be_written(
    project: Project, output: str, text: str
) -> None:
    (project.folder / "folder").mkdir()
    before = sorted(project.folder.iterdir())
    refused = project.command("lock", "-o", output, "-c", "print('it runs')", cwd=project.folder)
    assert (refused.code, refused.out, refused.err) == (2, "", f"error: {text}\n")
    assert sorted(project.folder.iterdir()) == before


def test_a_misspelled_command_is_no_program(project: Project) -> None:
    wrong = project.command("lock", "lst", project.lock)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err == "error: no file 'lst'; did you mean `tilewright lock list`?\n"
    (project.folder / "lst").write_text("print('ran')\n")
    assert project.command("lock", "lst", cwd=project.folder).out == "ran\n"


@pytest.mark.parametrize("command", [("profile",), ("sim", "report", "--device", "cpu")])
def test_other_commands_launch_from_a_lock(
    project: Project, command: tuple[str, ...], without_compiler: dict[str, str]
) -> None:
    project.write_lock()
    done = project.command(*command, f"--locked={project.lock}", project.program, 64, env=without_compiler)
    assert (done.code, done.out.split()[0]) == (0, "tuned"), done.err
    missing = project.command(*command, f"--locked={project.lock}", project.program, 128)
    assert missing.code == 1
    assert "error[TW0119]: this launch of kernel 'scale' is not in the lock" in missing.err
    project.lock.rename(project.folder / "tilewright.lock")
    project.artifacts.rename(project.folder / "tilewright.artifacts")
    default = project.command(
        *command, "--locked", project.program, 64, cwd=project.folder, env=without_compiler
    )
    assert default.code == 0, default.err
    loose = project.command(*command, "--locked", "my.lock", project.program)
    assert loose.code == 2
    assert "follows '=' without a space: --locked=my.lock" in loose.err


@pytest.mark.parametrize("command", [("run",), ("profile",), ("sim", "report")])
def test_a_lock_that_cannot_be_read_is_told_before_the_program_runs(
    project: Project, command: tuple[str, ...]
) -> None:
    project.program.write_text("print('runs')\n")
    for name, said in (("no.lock", "cannot be read"), ("program.py", "is not a lock file")):
        done = project.command(*command, f"--locked={name}", "program.py", cwd=project.folder)
        assert (done.code, done.out) == (1, "")
        assert re.match(rf"error\[TW0120\]: .*{re.escape(name)} {said}", done.err), done.err
        assert "Traceback" not in done.err
        assert "launch" not in done.err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            ("bench", "--locked=a.lock", "a.py::f", "b.py::f"),
            "the variable TILEWRIGHT_LOCK=<file> makes both",
        ),
        (("lock", "--locked=a.lock", "a.py"), "the program compiles and tunes"),
        (("tuning", "export", "-o", "a.json", "--locked=a.lock", "a.py"), "tunes nothing"),
    ],
)
def test_a_command_without_locks_gives_advice(project: Project, words: tuple[str, ...], advice: str) -> None:
    done = project.command(*words)
    assert done.code == 2
    first = done.err.splitlines()[0]
    assert first.startswith("error: unknown option '--locked=a.lock': ")
    assert advice in first


@pytest.mark.parametrize(
    ("words", "option", "suggestion"),
    [
        (
            ["program.py", "-o", "my.lock"],
            "-o my.lock",
            "tilewright lock -o my.lock program.py …`; write -- ",
        ),
        (
            ["program.py", "9", "--output=my.lock"],
            "--output=my.lock",
            "lock --output=my.lock program.py …`; ",
        ),
        (
            ["-o", "a.lock", "program.py", "--target", "cpu"],
            "--target cpu",
            "lock --target cpu program.py …`",
        ),
        (["-m", "program", "-o", "my.lock"], "-o my.lock", "lock -o my.lock -m program …`\n"),
        (["-c", "pass", "--device", "cpu"], "--device cpu", "lock --device cpu -c …`\n"),
    ],
)
def test_an_option_after_the_program_is_warned_of(
    project: Project, words: list[str], option: str, suggestion: str
) -> None:
    project.program.write_text("import sys\nprint(sys.argv[1:])\n")
    done = project.command("lock", *words, cwd=project.folder)
    first, second, _ = done.err.split("\n", 2)
    assert first == f"warning: the program gets '{option}', which is also an option of `tilewright lock`"
    assert second.startswith("help: options of `tilewright lock` come before the program: `")
    assert suggestion in f"{second}\n"
    if "-c" not in words:
        last = words[words.index(option.split()[0]) :]
        assert str(last)[1:] in done.out


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "my.lock", "program.py", "-o", "out.txt"],
        ["--output=my.lock", "program.py", "-o", "out.txt"],
        ["--", "program.py", "-o", "out.txt"],
        ["program.py", "--", "-o", "out.txt"],
        ["program.py", "--help", "-i"],
    ],
)
def test_an_option_of_the_program_is_not_warned_of(project: Project, words: list[str]) -> None:
    project.program.write_text("import sys\nprint(sys.argv[1:])\n")
    done = project.command("lock", *words, cwd=project.folder)
    assert "warning:" not in done.err
    start = words.index("program.py") + 1
    assert done.out == f"{words[start:]}\n"


def waiting(program: str) -> str:
    """Returns a program that first waits for the thread which prepares the kernels of a lock.

    The thread begins with the first kernel, which is in the module ``helpers``.
    """
    first, main = "from helpers import scaled\n", 'if __name__ == "__main__":\n'
    tasks = "import os, time\nothers = set(os.listdir('/proc/self/task'))\n"
    wait = "while set(os.listdir('/proc/self/task')) - others:\n    time.sleep(0.01)\n"
    return program.replace(first, tasks + first).replace(main, wait + main)


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the system does not list the threads of a process"
)
def test_the_kernels_of_a_lock_are_prepared_before_their_launch(
    project: Project, without_compiler: dict[str, str]
) -> None:
    project.write_lock("--target", "cpu")
    # A launch of a kernel that is not prepared would read its artifacts.
    gone = f"import shutil\nshutil.rmtree({str(project.artifacts)!r})\n"
    main = 'if __name__ == "__main__":\n'
    project.program.write_text(waiting(PROGRAM).replace(main, gone + main))
    saved = project.folder / "saved"
    shutil.copytree(project.artifacts, saved)
    locked = project.run_locked(64, env=without_compiler)
    assert locked.code == 0, locked.err
    shutil.copytree(saved, project.artifacts)
    elsewhere = project.run_locked(64, env={**without_compiler, "TILEWRIGHT_DEVICE": "sim:sm_90"})
    assert "sm_90a here, cpu in the lock" in elsewhere.err


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the system does not list the threads of a process"
)
def test_the_kernels_of_a_gpu_are_prepared_after_the_first_launch(
    project: Project, without_compiler: dict[str, str]
) -> None:
    simulated = {"TILEWRIGHT_DEVICE": "sim:sm_90"}
    project.write_lock("--target", "sm_90")
    wait = """    import pathlib, shutil, time
    while any("tilewright-lock" in path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")):
        time.sleep(0.01)
"""
    # A launch of a kernel that is not prepared would read its artifacts.
    gone = f"    shutil.rmtree({str(project.artifacts)!r})\n"
    tuned = "    tuned[lambda"
    project.program.write_text(PROGRAM.replace(tuned, wait + gone + tuned))
    locked = project.run_locked(64, env={**without_compiler, **simulated})
    assert locked.code == 0, locked.err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_process_with_a_lock_may_fork(project: Project) -> None:
    project.write_lock("--target", "cpu")
    main = 'if __name__ == "__main__":\n'
    text = project.program.read_text()
    fork = "    import os\n    child = os.fork()\n"
    wait = "    if child:\n        assert os.waitpid(child, 0)[1] == 0\n"
    project.program.write_text(text.replace(main, main + fork) + wait)
    locked = project.run_locked(64)
    assert (locked.code, locked.out.count("tuned")) == (0, 2), locked.err


@pytest.mark.parametrize("is_prepared", [False, True])
def test_faults_in_locked_kernels_name_their_line(project: Project, is_prepared: bool) -> None:
    if is_prepared and not Path("/proc/self/task").exists():
        pytest.skip("the system does not list the threads of a process")
    text = PROGRAM.replace("mask=i < n) + BLOCK, mask=i < n)", "mask=i < n) + BLOCK)")
    text = waiting(text) if is_prepared else text
    project.program.write_text(text.replace("def main(block, n=1000)", "def main(block, n=1024)"))
    project.write_lock("--target", "cpu")
    project.program.write_text(
        project.program.read_text().replace(
            "np.empty_like(x), np.empty_like(x)", "np.empty_like(x), np.empty(9, np.float32)"
        )
    )
    locked = project.run_locked(64)
    line = 1 + text[: text.index("    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + BLOCK)")].count(
        "\n"
    )
    assert locked.code == 1
    assert f"{project.program}:{line}:" in locked.err


def test_a_locked_process_knows_when_a_global_changes(project: Project) -> None:
    project.program.write_text(
        PROGRAM.replace(
            "    main(*map(int, sys.argv[1:]))",
            "    main(64)\n"
            "    if sys.argv[1:] == ['change']:\n"
            "        import helpers\n"
            "        helpers.FACTOR = tl.constexpr(5)\n"
            "        main(64)\n",
        )
    )
    made = project.command("lock", "-o", project.lock, project.program)
    assert made.code == 0, made.err
    assert project.run_locked().code == 0
    changed = project.run_locked("change")
    assert "this launch of kernel 'scale' is not in the lock" in changed.err


def test_the_examples_run_from_a_lock(tmp_path: Path, run: Any, without_compiler: dict[str, str]) -> None:
    """Thirty kernels and more: norms, attention, products, sampling. Each example checks its results."""
    driver = tmp_path / "driver.py"
    driver.write_text(
        "import runpy, sys\n"
        f"for path in sorted(__import__('pathlib').Path({str(ROOT / 'examples')!r}).glob('*.py')):\n"
        "    runpy.run_path(str(path), run_name='__main__')\n"
    )
    lock = tmp_path / "examples.lock"
    made = run("-m", "tilewright", "lock", "-o", str(lock), str(driver))
    assert made.code == 0, made.err
    assert len(json.loads(lock.read_text())["entries"]) >= 30
    locked = run("-m", "tilewright", "run", f"--locked={lock}", str(driver), env=without_compiler)
    assert locked.code == 0, locked.err


COMPILED = """
import torch

torch._inductor.config.cpu_backend = "triton"


@torch.compile
def model(x, w):
    return torch.softmax(torch.nn.functional.gelu(x @ w), -1).sum(0)


if __name__ == "__main__":
    x, w = torch.arange(64.0).reshape(8, 8) / 64, torch.eye(8)
    expected = torch.softmax(torch.nn.functional.gelu(x @ w), -1).sum(0)
    torch.testing.assert_close(model(x, w), expected)
"""


@pytest.mark.nightly
def test_kernels_of_torch_compile_are_locked(project: Project, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    project.program.write_text(COMPILED)

    def settings(cache: str) -> dict[str, Any]:
        folder = str(tmp_path / cache)
        # Worker processes compile the kernels.
        return {"env": {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "2"}}

    made = project.command("lock", "-o", project.lock, project.program, **settings("first"))
    assert made.code == 0, made.err
    assert any("softmax" in entry["launches"]["kernel"] for entry in project.content()["entries"])
    locked = project.run_locked(**settings("second"))
    assert locked.code == 0, locked.err


def test_a_description_has_what_a_launcher_needs(project: Project) -> None:
    program = project.folder / "product.py"
    program.write_text(PRODUCT)
    signature = "*fp16:16,*fp16:16,*fp32:16,i32,i32,i32,i32:16,BLOCK=64"
    described = project.command(
        *("compile", f"{program}::product", "--signature", signature, "--target", "sm_90"),
        *("--emit", "json", "--tensor-maps", "--option", "num_stages=3"),
    )
    assert described.code == 0, described.err
    found = json.loads(described.out)
    assert (found["format"], found["kernel"], found["target"]) == (1, "product", "sm_90a")
    assert found["arguments"]["BLOCK"] == "64"
    launch = found["launch"]
    places = {one["name"]: (one["type"], one["offset"], one["bytes"]) for one in launch["parameters"]}
    assert places == {
        "a_ptr": ("*fp16", 0, 8),
        "b_ptr": ("*fp16", 8, 8),
        "c_ptr": ("*fp32", 16, 8),
        "M": ("i32", 24, 4),
        "N": ("i32", 28, 4),
        "K": ("i32", 32, 4),
        "stride": ("i32", 36, 4),
    }
    assert (launch["entry"], launch["cluster"]) == ("product", 1)
    assert launch["threads"] % 32 == 0
    maps = {one["base"]: one for one in launch["tensor_maps"]}
    assert set(maps) == {"a_ptr", "b_ptr"}
    assert sorted(maps["a_ptr"]["extents"]) == ["K", "M"]
    assert sorted(maps["a_ptr"]["strides"]) == ["1", "stride"]
    assert sorted(maps["b_ptr"]["extents"]) == ["K", "N"]
    ptx = project.command(
        *("compile", f"{program}::product", "--signature", signature, "--target", "sm_90"),
        *("--emit", "ptx", "--tensor-maps", "--option", "num_stages=3"),
    )
    assert ptx.out.count("[128]") == len(maps)
