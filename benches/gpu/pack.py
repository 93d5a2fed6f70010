"""`make gpu`: everything that the suite needs on a machine with a GPU, in one folder.

The folder has the shape of the source tree, so that relative paths stay valid: `benches`, `tests`, the wheels,
the compiled tests of the driver's crate and of `tests/kernels`, a list of all files, and `__main__.py`, which makes it
a program.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60_000_000
"""Bytes that the folder may take."""

SOURCES = (
    "pyproject.toml",
    "benches/*.py",
    "benches/gpu/*.py",
    "tests/kernels/*.md",
    "tests/python/**/*.py",
    "tests/python/**/*.txt",
    "tests/reference/*.md",
    "tests/libraries/**/*.py",
    "docs/differences-from-numpy.md",
    "examples/*.py",
    # The table of functions, from which a test reads the permitted error of each.
    "crates/ir/src/elementwise.rs",
)

MAIN = '''"""Run the suite: `python3 {name} --out FOLDER`; `--help` says what else."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).resolve().parent / "benches" / "gpu"), run_name="__main__")
'''


def rust_programs() -> dict[str, Path]:
    """The compiled tests and the example of the driver's crate, and the test that runs the pages of kernels."""
    command = [
        "cargo",
        "build",
        "--release",
        "--package",
        "tilewright-cuda",
        "--package",
        "tilewright-testkit",
    ]
    command += ["--test", "device", "--example", "smoke", "--test", "pages"]
    command += ["--message-format", "json-render-diagnostics"]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    messages = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    programs = {
        message["target"]["name"]: Path(message["executable"])
        for message in messages
        if message.get("executable")
    }
    return {name: programs[name] for name in ("device", "smoke", "pages")}


def newest_wheel(folder: Path) -> Path:
    """The wheel that was built last."""
    wheels = sorted(folder.glob("tilewright-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit(f"there is no wheel in {folder}: `make wheel` builds it")
    return wheels[-1]


def made_of() -> str:
    """The commit, and whether the tree was changed since."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "a tree without git"


def pack(out: Path, wheel: Path, tools: list[Path], programs: dict[str, Path]) -> int:
    """Fills the folder, which it empties first; returns its size in bytes."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    files = {path.relative_to(ROOT): path for pattern in SOURCES for path in ROOT.glob(pattern)}
    files |= {Path("wheels") / path.name: path for path in (wheel, *tools)}
    files |= {Path("bin") / name: path for name, path in programs.items()}
    for name, path in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, out / name)
    (out / "__main__.py").write_text(MAIN.format(name=out.name), encoding="utf-8")
    sizes = {
        path.relative_to(out).as_posix(): path.stat().st_size for path in out.rglob("*") if path.is_file()
    }
    manifest = {"made_of": made_of(), "files": dict(sorted(sizes.items()))}
    (out / "pack.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return sum(sizes.values())


def main() -> int:
    """Packs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="the folder")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="where the wheel of tilewright is")
    parser.add_argument("--tools", type=Path, help="where the wheels of the tests' tools are")
    parser.add_argument("--no-rust", action="store_true", help="leave the compiled tests out")
    options = parser.parse_args()
    tools = sorted(options.tools.glob("*.whl")) if options.tools else []
    programs = {} if options.no_rust else rust_programs()
    size = pack(options.out, newest_wheel(options.wheels), tools, programs)
    if size > LIMIT:
        print(f"{options.out} takes {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}", file=sys.stderr)
        return 1
    print(
        f"{options.out}: {size / 1e6:.1f} MB. On a machine with a GPU: python3 {options.out.name} --out FOLDER"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
