"""The web page of a trace, served by this process on the loopback interface."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tilewright import _environment, _native
from tilewright.viz import _answers, _session

_STATIC = Path(__file__).with_name("static")

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY = "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'"


class _Traces:
    """The current trace: read again when the file has grown or is another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: Any = None
        self._trace: _native.TraceFile | None = None

    def current(self) -> _native.TraceFile | None:
        """Returns the trace; none if nothing was traced."""
        path = _session.path()
        with self._lock:
            try:
                key = None if path is None else (path, path.stat().st_size, path.stat().st_mtime_ns)
            except FileNotFoundError:
                key = None
            if key != self._key:
                self._trace = None if key is None else _native.TraceFile(key[0])
                self._key = key
            return self._trace


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        # A request whose host name is not this machine's, as by DNS rebinding, gets no answer.
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in ("127.0.0.1", "localhost", "[::1]"):
            self._answer(403, b"only this machine is served", "text/plain")
            return
        url = urlsplit(self.path)
        if url.path.startswith("/api/"):
            self._api(url.path.removeprefix("/api/"), parse_qs(url.query))
            return
        name = url.path.lstrip("/") or "index.html"
        file = _STATIC / name
        if "/" in name or file.suffix not in _TYPES or not file.is_file():
            self._answer(404, b"there is no such page", "text/plain")
            return
        self._answer(200, file.read_bytes(), _TYPES[file.suffix])

    def _api(self, name: str, query: dict[str, list[str]]) -> None:
        try:
            numbers = {key: int(values[0]) for key, values in query.items()}
            text = _answers.answer(self.server.traces.current(), name, numbers)
        except (KeyError, ValueError, OverflowError) as error:
            self._answer(400, str(error).encode(), "text/plain")
            return
        except BaseException as error:
            # The page must get an answer to any error.
            self._answer(500, str(error).encode(), "text/plain")
            raise
        if text is None:
            self._answer(404, b"null", "application/json")
            return
        self._answer(200, text.encode(), "application/json")

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A port that is taken is an error, not shared.
    allow_reuse_address = os.name != "nt"

    def __init__(self, port: int) -> None:
        self.traces = _Traces()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a browser that closes the connection."""


_lock = threading.Lock()
_server: _Server | None = None


def serve(port: int = 0) -> str:
    """Serves the page of the trace in the background; returns its address."""
    global _server
    if not 0 <= port < 1 << 16:
        raise ValueError(f"the port is {port}, expected 0 to 65535; 0 is any free one")
    with _lock:
        if _server is not None and port in (0, _server.server_address[1]):
            return _server.url
        try:
            server = _Server(port)
        except OSError as error:
            message = f"the page of the trace cannot be served at port {port} of 127.0.0.1: {error.strerror}"
            advice = "name another one by `port=` or `TILEWRIGHT_VIZ_PORT`; 0 is any that is free"
            raise OSError(error.errno, f"{message}; {advice}") from None
        threading.Thread(target=server.serve_forever, name="tilewright-viz", daemon=True).start()
        if _server is not None:
            _server.shutdown()
            _server.server_close()
        _server = server
        return server.url


def stop() -> None:
    """Ends the server."""
    global _server
    with _lock:
        if _server is not None:
            _server.shutdown()
            _server.server_close()
            _server = None


def launch(share: bool = False, port: int | None = None, block: bool | None = None, **_options: Any) -> Any:
    """Serves the page of the trace at ``http://127.0.0.1:<port>/``, and prints the address.

    A notebook shows the page below the cell. The program goes on. When it ends, the page is served on until Ctrl-C if a
    user is at the terminal; ``block=True`` waits here, ``block=False`` nowhere, and ``TILEWRIGHT_VIZ_WAIT=1`` or ``0``
    decides if the program does not. ``share=True`` prints how to show the page on another machine: nothing leaves this
    one. Returns the names of the kernels whose launches failed, as Triton-Puzzles expects.
    """
    import json

    from tilewright.errors import hide_own_frames

    try:
        url = serve(_chosen_port() if port is None else port)
    except (OSError, ValueError) as error:
        hide_own_frames(error)
        raise error
    print(f"tilewright: the trace is at {url}", file=sys.stderr, flush=True)
    if share:
        print(
            "tilewright: share=True publishes nothing: save the trace with `triton_viz.save(path)`, send the file, and "
            "open it with `python -m tilewright.viz <path>`; or send the page of `triton_viz.save_html(path)`",
            file=sys.stderr,
            flush=True,
        )
    _show_in_notebook(url)
    trace = _server.traces.current() if _server is not None else None
    launches = [] if trace is None else json.loads(trace.list())
    if _session.path() is None:
        print(
            "tilewright: the trace is empty: put `@triton_viz.trace` above the `@triton.jit` of a launched kernel",
            file=sys.stderr,
            flush=True,
        )
    if block is None:
        variable = "TILEWRIGHT_VIZ_WAIT"
        if _environment.is_on(variable) or (not os.environ.get(variable) and _is_watched()):
            _wait_at_exit()
    elif block:
        wait()
    return [launch["kernel"] for launch in launches if launch["failed"]]


def _chosen_port() -> int:
    text = os.environ.get("TILEWRIGHT_VIZ_PORT") or "0"
    if text.isascii() and text.isdigit() and int(text) < 1 << 16:
        return int(text)
    raise ValueError(f"TILEWRIGHT_VIZ_PORT is {text!r}, expected a port from 0 to 65535; 0 is any free one")


def _show_in_notebook(url: str) -> None:
    """Shows the page in a notebook, if one runs the program: IPython in a terminal has no kernel and cannot show it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return
    from IPython import display

    show: Callable[[Any], Any] = display.display
    show(display.IFrame(url, width="100%", height=720))


def _is_watched() -> bool:
    """Returns whether a user is at a terminal, and the program is about to end."""
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive or "IPython" in sys.modules
    return not is_interactive and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


_waits = False


def _wait_at_exit() -> None:
    global _waits
    if not _waits:
        import atexit

        _waits = True
        # This must run before the folder of the trace is removed: exit handlers run in reverse order.
        _session.temporary_folder()
        atexit.register(wait)


def wait() -> None:
    """Serves until Ctrl-C."""
    try:
        # A user may press Ctrl-C as soon as the line is there.
        print("tilewright: serving until Ctrl-C", file=sys.stderr, flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        stop()
