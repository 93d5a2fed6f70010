"""`triton_viz.launch`: the port at which it serves the page of a trace, and its result."""

from __future__ import annotations

import socket

import numpy as np
import pytest

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
