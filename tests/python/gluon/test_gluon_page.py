"""The program of docs/gluon.md prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs/gluon.md"


def test_the_program_of_the_page(run, script):
    program, shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.S).groups()
    done = run("-m", "tilewright", "run", script(program))
    assert (done.code, done.out.strip()) == (0, shown.strip()), done


def test_the_programs_of_the_page_run_together(run, script):
    """The later programs of the page use the imports and the tensors of the first one."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(programs) > 1
    done = run("-m", "tilewright", "run", script("".join(programs)))
    assert done.code == 0, done


def test_commands_that_read_no_gluon_say_so(run, script):
    program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S).group(1)
    kernel = f"{script(program)}::sum_of_blocks"
    signature = ("--signature", "*fp32,*fp32,i32,512,3")
    done = run("-m", "tilewright", "compile", kernel, *signature, "--target", "sm_90", "--emit", "gpu")
    assert done.code == 1
    assert "kernel 'sum_of_blocks'" in done.err
    assert "cannot be compiled without Python" in done.err
