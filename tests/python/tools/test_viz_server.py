"""The port at which the page of a trace is served."""

from __future__ import annotations

import socket

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
    for wrong in ("abc", "-1", "65536", ""):
        monkeypatch.setenv("TILEWRIGHT_VIZ_PORT", wrong)
        with pytest.raises(ValueError, match=f"TILEWRIGHT_VIZ_PORT is '{wrong}'"):
            viz.launch(block=False)
