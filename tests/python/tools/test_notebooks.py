"""Kernels in the cells of a notebook: what a cell shows, in the shell that IPython's notebooks and terminals run."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest

pytest.importorskip("IPython")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX has them")

SHELL = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance(colors="nocolor", history_length=0, history_load_length=0)
shell.history_manager.enabled = False
# The attribute that makes a shell one of a notebook.
shell.kernel = object()
cells = []
for source in json.loads(open(sys.argv[1]).read()):
    with capture_output() as shown:
        result = shell.run_cell(source, store_history=True)
    error = result.error_before_exec or result.error_in_exec
    cells.append({
        "out": shown.stdout,
        "err": shown.stderr,
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "value": repr(result.result),
        "html": [output.data.get("text/html") for output in shown.outputs],
    })
print(json.dumps(cells))
"""

BEGIN = """
import numpy as np
import tilewright as triton, tilewright.language as tl
x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
"""


@pytest.fixture
def notebook(run, script, tmp_path):
    """Runs cells; gives for each what it has printed, raised, returned and displayed."""

    def execute(*cells):
        sources = tmp_path / "cells.json"
        sources.write_text(json.dumps([BEGIN, *(textwrap.dedent(cell).strip() for cell in cells)]))
        environment = {"IPYTHONDIR": str(tmp_path / "ipython"), "TILEWRIGHT_DEVICE": "cpu"}
        done = run(script(SHELL, "shell.py"), sources, env=environment)
        assert done.code == 0, done.err
        # Nothing goes past the cells.
        assert done.out.count("\n") == 1, done.out
        return json.loads(done.out)[1:]

    return execute


KERNEL = """
@triton.jit
def k(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, {})
"""
LAUNCH = "k[(1,)](x, y, BLOCK=8); print(y[3])"


def test_a_cell_may_be_run_again_with_another_kernel_and_another_helper(notebook):
    cells = notebook(
        KERNEL.format("tl.load(x_ptr + i) * 2") + LAUNCH,
        KERNEL.format("tl.load(x_ptr + i) * 3") + LAUNCH,
        "@triton.jit\ndef helper(x):\n    return x + 1",
        KERNEL.format("helper(tl.load(x_ptr + i))") + LAUNCH,
        "@triton.jit\ndef helper(x):\n    return x + factor",
        "factor: tl.constexpr = tl.constexpr(10)",
        LAUNCH,
        "factor = tl.constexpr(20)",
        LAUNCH,
        "import asyncio\nawait asyncio.sleep(0)" + KERNEL.format("tl.load(x_ptr + i) * 4") + LAUNCH,
        "%%time" + KERNEL.format("tl.load(x_ptr + i) * 5") + LAUNCH,
        "import pickle\npickle.loads(pickle.dumps(k)) is k",
        "k",
    )
    assert [cell["error"] for cell in cells] == [None] * len(cells)
    printed = [cell["out"].split("\n")[0] for cell in cells]
    assert printed[:11] == ["6.0", "9.0", "", "4.0", "", "", "13.0", "", "23.0", "12.0", "15.0"]
    assert [cell["value"] for cell in cells[-2:]] == ["True", "JITFunction(__main__:k)"]


def test_a_finding_names_the_cell_and_its_line(notebook):
    cells = notebook(
        "@triton.jit\ndef helper(x):\n    return x + tl.zeros((3, 5), tl.float32)",
        KERNEL.format("helper(tl.load(x_ptr + i))") + LAUNCH,
        KERNEL.format("tl.load(x_ptr + 1 + i)") + LAUNCH,
        "k = triton.jit(interpret=True)(k.fn)\nk[(1,)](x, y, BLOCK=8)",
        KERNEL.format("1.0")
        + "    tl.device_assert(tl.load(x_ptr) > 5, 'small')\nk[(1,)](x, y, BLOCK=8, debug=True)",
    )
    _, shapes, bounds, interpreted, asserted = (cell["error"] for cell in cells)
    assert "--> Cell In[2]:3:14\n" in shapes
    assert "::: Cell In[3]:4:25\n" in shapes
    for text in (bounds, interpreted):
        assert "TW0201" in text
        assert "--> Cell In[4]:4:25\n" in text
        assert "reads element 8 of `x_ptr`" in text
    assert "--> Cell In[6]:5:5\n" in asserted
    assert "^^^^ does not hold" in asserted


def test_what_a_kernel_prints_is_below_its_cell(notebook):
    kernel = "@triton.jit\ndef p(x_ptr):\n    tl.static_print('compiles')\n    tl.device_print('x', tl.load(x_ptr))"
    captured = "with contextlib.redirect_stdout(io.StringIO()) as text:\n    p[(1,)](x)\ntext.getvalue()"
    cells = notebook(
        kernel + "\nprint('before'); p[(2,)](x); print('after')",
        "p[(1,)](x);",
        "import contextlib, io\n" + captured,
    )
    line = "pid ({}, 0, 0) idx () x: 0.000000\n"
    assert cells[0]["out"] == "before\ncompiles\n" + line.format(0) + line.format(1) + "after\n"
    assert cells[1]["out"] == line.format(0)
    assert cells[2]["value"] == repr(line.format(0))


def test_a_cell_can_be_interrupted(notebook):
    cells = notebook(
        """
        import signal, threading
        @triton.jit
        def spin(x_ptr, n):
            total = 0.0
            for i in range(n):
                total += i % 7
            tl.store(x_ptr, total)
        """,
        # Wherever the signal comes, it is in the `try`.
        """
        try:
            threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
            spin[(1,)](x, 2_000_000_000)
        except KeyboardInterrupt:
            print("stopped")
        """,
        "spin[(1,)](x, 3); print(x[0])",
    )
    assert cells[1]["out"] == "stopped\n"
    assert cells[2]["out"] == "3.0\n"


def test_a_trace_and_figures_are_shown(notebook):
    cells = notebook(
        "from tilewright import viz",
        KERNEL.format("tl.load(x_ptr + i)") + "viz.trace(k)[(1,)](x, y, BLOCK=8)\nviz.launch()",
        """
        from urllib.request import urlopen
        from tilewright.viz import _server
        b"<title>" in urlopen(_server.serve()).read()
        """,
    )
    assert cells[1]["error"] is None
    (frame,) = cells[1]["html"]
    assert "<iframe" in frame
    assert "http://127.0.0.1:" in frame
    assert cells[2]["value"] == "True"
