"""``docs/diagnostics``: the index has every page, and each Python session ends in the error that the page shows."""

from __future__ import annotations

import os
import re
import warnings

import pytest
from conftest import ROOT

import tilewright
from tilewright import _native

KERNEL = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)

@triton.jit
def joins(x_ptr, n):
    i = tl.arange(0, 8)
    tl.store(x_ptr + i, 1.0, mask=(i < n) and (i > 3))

@triton.jit
def chains(x_ptr, n):
    i = tl.arange(0, 8)
    tl.store(x_ptr + i, 1.0, mask=i < n & i > 3)

@triton.must_use_result("it changes no tile")
@triton.jit
def doubled(x):
    return x * 2

@triton.jit
def discards(x_ptr):
    x = tl.load(x_ptr)
    doubled(x)
    tl.store(x_ptr, x)

@triton.jit
def odd(x_ptr):
    i = tl.arange(0, 100)
    tl.store(x_ptr + i, 1.0)

@triton.jit
def named(x_ptr):
    n = 16
    tl.store(x_ptr + tl.arange(0, n), 2.0)
"""

OF_PAGES = "\n".join(
    block.replace("from triton.", "from tilewright.")
    for pages in ("TW022*.md", "TW002[89].md", "TW0030.md")
    for page in sorted((ROOT / "docs" / "diagnostics").glob(pages))
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
)
"""The kernels that pages of the sanitizer and of Gluon show."""

# Ctrl-C, running out of memory and what needs a GPU have tests of their own.
APART = {"TW0204", "TW0206", "TW0207"}

INDEX = """\
# Diagnostics

Each error in a kernel or its launch has a code, and so has each finding about a kernel.
`tilewright explain TW0201` prints its page: the cause, an example, and the fix. A Python exception
has the code as `error.code`. Codes are never reused.
A test writes this index from the titles of the pages.
"""

GROUPS = {
    "TW000": "Errors in the source of a kernel",
    "TW005": "Warnings about the source of a kernel",
    "TW010": "The launch",
    "TW020": "The running kernel",
    "TW022": "Findings of sanitizers",
}
"""The headings of the index, by the codes at which they begin."""

SESSIONS = [
    pytest.param(statement, shown, id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs" / "diagnostics").glob("*.md"))
    for block in re.findall(r"```pycon\n(.*?)```", page.read_text(), re.DOTALL)
    for number, (statement, shown) in enumerate(
        re.findall(r">>> (.*)\n(?:(?!>>>).*\n)*?(\w+\.errors\..*)", block)
    )
    if page.stem not in APART
]


@pytest.mark.parametrize(("statement", "shown"), SESSIONS)
def test_sessions(module, statement, shown, monkeypatch, request):
    torch = pytest.importorskip("torch")
    if "TW0052" in shown:
        monkeypatch.setenv("TILEWRIGHT_PORTABLE", "1")
        _native.reload_knobs()
        request.addfinalizer(_native.reload_knobs)
        request.addfinalizer(monkeypatch.undo)
    names = vars(module(KERNEL + OF_PAGES))
    names.update(torch=torch, tilewright=tilewright, x=torch.ones(100), out=torch.zeros(100), n=100)
    with warnings.catch_warnings():
        # Pages show warnings as well.
        warnings.simplefilter("error", tilewright.LaunchWarning)
        with pytest.raises((tilewright.TritonError, tilewright.LaunchWarning)) as caught:
            exec(statement, names)
    kind = type(caught.value)
    assert f"{kind.__module__}.{kind.__qualname__}: {str(caught.value).splitlines()[0]}" == shown


OF_TUNERS = ("TW0121", "TW0122")
"""The codes whose pages have a program and its error."""


@pytest.mark.parametrize("code", OF_TUNERS)
def test_programs(code, tmp_path, run):
    pytest.importorskip("torch")
    page = (ROOT / "docs" / "diagnostics" / f"{code}.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "example.py").write_text(program)
    done = run("-m", "tilewright", "run", "example.py", cwd=tmp_path)
    assert done.code == 1
    assert done.err.replace(f"{tmp_path}{os.sep}", "").endswith(
        f"tilewright.errors.LaunchValueError: {shown}"
    )


def test_the_index_is_up_to_date():
    """``TILEWRIGHT_BLESS=1`` writes it."""
    folder = ROOT / "docs" / "diagnostics"
    lines = [INDEX]
    for page in sorted(folder.glob("TW*.md")):
        code, title = page.read_text().splitlines()[0].removeprefix("# ").split(": ", 1)
        assert code == page.stem
        for begin in [begin for begin in GROUPS if code.startswith(begin)]:
            if f"## {GROUPS[begin]}" not in lines:
                lines += [f"## {GROUPS[begin]}", "", "| code | meaning |", "|---|---|"]
        lines.append(f"| [{code}]({code}.md) | {title} |")
    text = "\n".join(lines).replace(" |\n##", " |\n\n##") + "\n"
    if os.environ.get("TILEWRIGHT_BLESS"):
        (folder / "index.md").write_text(text)
    assert (folder / "index.md").read_text() == text
