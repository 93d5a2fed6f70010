"""Each row of `docs/versions.md`: both forms give equal values, or the older one is the error that the row names."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import warnings

import pytest
import torch
from conftest import ROOT, environment_of

import tilewright as triton

TEXT = (ROOT / "docs" / "versions.md").read_text()

KERNEL = """\
import tilewright as triton
import tilewright.language as tl


@triton.jit
def kernel(x_ptr, i_ptr, out_ptr):
    n = tl.arange(0, 16)
    x = tl.load(x_ptr + n)
    i = tl.load(i_ptr + n)
    a = tl.load(x_ptr + n[:, None] * 16 + n[None, :])
    y = {expression}
    flat = tl.ravel(tl.cast(y, tl.float64) + tl.zeros([1], tl.float64))
    tl.store(out_ptr, tl.sum(tl.cumsum(flat)))
"""

HOST = """\
import warnings

import tilewright

tilewright.install_as_triton()
import torch
import triton
import triton.language as tl
from triton.compiler import ASTSource


@triton.jit
def kernel(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, B), 1.0, mask=tl.arange(0, B) < n)


def f():
    pass


x = torch.ones(4)


def value(code):
    names = dict(globals())
    *first, last = code.split("; ")
    for line in first:
        exec(line, names)
    if last.startswith("from "):
        exec(last, names)
        return names[last.split()[-1]]
    return eval(last, names)


def is_time(value):
    return isinstance(value, float) or (isinstance(value, list) and isinstance(value[0], float))


warnings.simplefilter("ignore", tilewright.LaunchWarning)
for older, newer in ROWS:
    found, expected = value(older), value(newer)
    # Times differ from run to run.
    same = type(found) is type(expected) if is_time(found) else found is expected or found == expected
    assert same, f"{older}: {found!r}, not {expected!r}"
print("done")
"""


def rows(heading: str) -> list[list[str]]:
    """The code of each row below a heading, and the code of its error."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \d\.\d \|", line)]
    return [re.findall(r"`([^`]*)`|(TW\d{4})(?=\])", line) for line in lines]


def computed(expression: str, path) -> float:
    """A number that depends on each element of the value of an expression in a kernel, and on its position."""
    path.write_text(KERNEL.format(expression=expression))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = torch.zeros(1, dtype=torch.float64)
    module.kernel[(1,)](torch.arange(1, 257) / 7, torch.arange(16, dtype=torch.int32) << 27, out)
    return out.item()


def test_every_row(tmp_path):
    in_kernels, on_host = rows("In kernels"), rows("On the host")
    assert len(in_kernels) >= 12
    assert len(on_host) >= 20
    for number, ((older, _), (newer, _)) in enumerate(in_kernels):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            found = computed(older, tmp_path / f"older_{number}.py")
        assert found == computed(newer, tmp_path / f"newer_{number}.py") != 0, older
    program = tmp_path / "host.py"
    program.write_text(f"ROWS = {[(older, newer) for (older, _), (newer, _) in on_host]!r}\n{HOST}")
    result = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment_of(), timeout=600
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    for number, ((older, _), _, (_, code)) in enumerate(rows("Errors that name the newer form")):
        with pytest.raises(triton.TritonError) as caught:
            computed(older, tmp_path / f"refused_{number}.py")
        assert caught.value.code == code, older
