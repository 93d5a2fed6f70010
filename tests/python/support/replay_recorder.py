"""A pytest plugin that keeps the tile IR of each kernel that the tests compile, for ``cargo xtask replay record``.

Each test writes to a folder of its own below ``TILEWRIGHT_REPLAY``, so that a kernel has the same name in each
recording: the test, the kernel, and how many of that name the test compiled before it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tilewright import knobs


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    folder = (
        re.sub(r"[^\w.-]+", "-", item.nodeid)[:150] + hashlib.sha256(item.nodeid.encode()).hexdigest()[:8]
    )
    os.environ["TILEWRIGHT_DUMP"] = "ir"
    os.environ["TILEWRIGHT_DUMP_DIR"] = str(Path(os.environ["TILEWRIGHT_REPLAY"]) / "raw" / folder)
    knobs.refresh_knobs()


def gather(recording: Path) -> int:
    """Writes each distinct text once to ``ir/``, and to ``index.txt`` which compilation has which.

    Returns the number of distinct texts.
    """
    texts = recording / "ir"
    texts.mkdir(parents=True, exist_ok=True)
    index = []
    written: set[str] = set()
    for folder in sorted((recording / "raw").iterdir()):
        seen: Counter[str] = Counter()
        files = [(re.fullmatch(r"(.*)-(\d+)", path.stem), path) for path in folder.glob("*.ir")]
        numbered = [(found[1], int(found[2]), path) for found, path in files if found]
        for kernel, _, path in sorted(numbered, key=lambda row: row[1]):
            text = path.read_text(encoding="utf-8")
            name = f"{re.sub(r'[^A-Za-z0-9_]', '_', kernel)[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            index.append(f"{folder.name} {kernel} {seen[kernel]} {name}")
            seen[kernel] += 1
            if name not in written:
                written.add(name)
                (texts / f"{name}.ir").write_text(text, encoding="utf-8")
    (recording / "index.txt").write_text("\n".join(index) + "\n", encoding="utf-8")
    return len(written)


if __name__ == "__main__":
    print(f"{gather(Path(os.environ['TILEWRIGHT_REPLAY']))} kernels")
