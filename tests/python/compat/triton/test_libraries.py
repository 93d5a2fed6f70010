"""Libraries in the style of those that people use, through ``tilewright run``: forward and backward equal torch's."""

from __future__ import annotations

import pytest
from conftest import ROOT, environment_of

pytest.importorskip("torch")

LIBRARIES = ROOT / "tests" / "libraries"


@pytest.mark.parametrize("name", ["normkit", "matkit", "losskit"])
def test_library(device, run, tmp_path, name):
    path = f"{LIBRARIES}:{environment_of()['PYTHONPATH']}"
    # The first of the two counts, where both are set.
    caches = dict.fromkeys(("TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_DIR"), str(tmp_path))
    environment = {"PYTHONPATH": path, **caches}
    for _ in range(2 if name == "normkit" else 1):
        # The second time, what was tuned is on the disk.
        done = run("-m", "tilewright", "run", LIBRARIES / name / "check.py", env=environment)
        err = "".join(line for line in done.err.splitlines(True) if not line.startswith("tilewright: "))
        assert (done.code, done.out, err) == (0, "fine\n", "")
    assert any(tmp_path.rglob("*.autotune.json")) == (name == "normkit")
