"""A reader who types each command of `docs/first-kernel.md` sees the output that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from conftest import ROOT, environment_of

PAGE = (ROOT / "docs" / "first-kernel.md").read_text()


def test_each_command_prints_what_the_page_shows(tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, start in (("python", sys.executable), ("tilewright", f"{sys.executable} -m tilewright")):
        (commands / name).write_text(f'#!/bin/sh\nexec {start} "$@"\n')
        (commands / name).chmod(0o755)
    (tmp_path / "kernels.py").write_text(re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)[0])
    environment = environment_of({"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"})
    sessions = re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(sessions) >= 6
    for session in sessions:
        lines = session.splitlines()
        script = "\n".join(line[2:] for line in lines if line.startswith("$ "))
        result = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        printed = iter((result.stdout + result.stderr).splitlines())
        for line in lines:
            if line.startswith("$ ") or line == "…":
                continue
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            assert any(re.fullmatch(pattern, found) for found in printed), (
                f"{script}: no {line!r} in\n{result.stdout}{result.stderr}"
            )
