"""`triton_viz.launch`: the port at which it serves the page of a trace, and its result."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from conftest import PATIENCE, environment_of

viz = pytest.importorskip("tilewright.viz")


def test_a_port_in_use_and_a_wrong_one(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot be served at port {port} .*TILEWRIGHT_VIZ_PORT"):
            viz.launch(port=port, block=False)
        monkeypatch.setenv("TILEWRIGHT_VIZ_PORT", str(port))
        with pytest.raises(OSError, match="in use"):
            viz.launch(block=False)
    for wrong in ("abc", "-1", "65536"):
        monkeypatch.setenv("TILEWRIGHT_VIZ_PORT", wrong)
        with pytest.raises(ValueError, match=f"TILEWRIGHT_VIZ_PORT is '{wrong}'"):
            viz.launch(block=False)


PROGRAM = """
import tilewright.viz

tilewright.viz.launch(block=False)
"""


@pytest.mark.parametrize(
    ("port", "said"), [("abc", "'abc', expected a port"), ("80000", "'80000', expected a port")]
)
def test_a_wrong_port_is_told_without_frames_of_tilewright(run, script, port, said):
    path = script(PROGRAM)
    done = run("-m", "tilewright", "run", path, env={"TILEWRIGHT_VIZ_PORT": port})
    assert done.code == 1
    assert re.findall(r'File "(.*?)"', done.err) == [str(path)], done.err
    assert f"ValueError: TILEWRIGHT_VIZ_PORT is {said}" in done.err.splitlines()[-1]


def test_a_port_in_use_is_told_without_frames_of_tilewright(run, script):
    path = script(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("-m", "tilewright", "run", path, env={"TILEWRIGHT_VIZ_PORT": port})
    assert re.findall(r'File "(.*?)"', done.err) == [str(path)], done.err
    assert f"cannot be served at port {port} of 127.0.0.1" in done.err.splitlines()[-1]


@pytest.fixture
def saved(module, tmp_path):
    made = module("""
        @triton.jit
        def fill(x_ptr, BLOCK: tl.constexpr):
            tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
    """)
    viz.clear()
    viz.trace(made.fill)[(1,)](np.zeros(8, np.float32), BLOCK=8)
    viz.save(tmp_path / "saved.twtrace")
    viz.clear()
    return tmp_path / "saved.twtrace"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no.twtrace"], "cannot read no.twtrace: there is no such file"),
        ([".", "-o", "p.html"], "cannot read .: Is a directory"),
        (["saved.twtrace", "-o", "no/p.html"], "cannot write no/p.html: there is no such folder"),
        (["saved.twtrace", "--port", "80000"], "the port is 80000, expected 0 to 65535; 0 is any free one"),
        (
            ["saved.twtrace"],
            "TILEWRIGHT_VIZ_PORT is 'abc', expected a port from 0 to 65535; 0 is any free one",
        ),
    ],
)
def test_mistakes_of_the_command_are_a_line(saved, run, arguments, said):
    done = run("-m", "tilewright.viz", *arguments, cwd=saved.parent, env={"TILEWRIGHT_VIZ_PORT": "abc"})
    assert (done.code, done.out, done.err) == (1, "", f"error: {said}\n")


def test_errors_of_files_name_the_given_path(saved, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        viz.load(tmp_path / "no.twtrace")
    assert error.value.filename == str(tmp_path / "no.twtrace")
    viz.load(saved)
    with pytest.raises(FileNotFoundError) as error:
        viz.save_html(tmp_path / "no" / "p.html")
    assert error.value.filename == str(tmp_path / "no" / "p.html")
    viz.clear()


@pytest.mark.skipif(os.name == "nt", reason="the system has no signal of this kind")
def test_the_command_serves_until_ctrl_c_whatever_the_variable_is(saved):
    with subprocess.Popen(
        [sys.executable, "-m", "tilewright.viz", saved],
        stderr=subprocess.PIPE,
        env=environment_of({"TILEWRIGHT_VIZ_WAIT": "0", "TILEWRIGHT_VIZ_PORT": "0"}),
        text=True,
    ) as command:
        assert "the trace is at http://127.0.0.1:" in command.stderr.readline()
        assert "serving until Ctrl-C" in command.stderr.readline()
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE) == 0


def test_an_empty_trace_is_said(capfd):
    viz.clear()
    assert viz.launch(block=False) == []
    assert "the trace is empty: put `@triton_viz.trace` above" in capfd.readouterr().err


def test_launch_returns_the_kernels_that_failed(module):
    made = module("""
        @triton.jit
        def fill(x_ptr, BLOCK: tl.constexpr):
            tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
    """)
    viz.clear()
    viz.trace(made.fill)[(1,)](np.zeros(8, np.float32), BLOCK=8)
    assert viz.launch(block=False) == []
    with pytest.raises(IndexError):
        viz.trace(made.fill)[(1,)](np.zeros(8, np.float32), BLOCK=16)
    assert viz.launch(block=False) == ["fill"]
    viz.clear()
