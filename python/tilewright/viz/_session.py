"""The file of traced launches: one for a process, until it is cleared."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from pathlib import Path

from tilewright import _native

_lock = threading.RLock()
_recorder: _native.TraceRecorder | None = None
_loaded: Path | None = None
_folder: str | None = None
_pid = 0
_count = 0


def recorder() -> _native.TraceRecorder:
    """The file that launches are recorded to; a new one after a clear, a load or a fork."""
    global _recorder, _loaded, _count, _pid
    with _lock:
        if _recorder is None or _pid != os.getpid():
            _count += 1
            _recorder = _native.TraceRecorder(temporary_folder() / f"{_count}.twtrace")
            _loaded = None
            _pid = os.getpid()
        return _recorder


def temporary_folder() -> Path:
    """The folder for files of this process; it is removed at the end."""
    global _folder
    if _folder is None or _pid not in (0, os.getpid()):
        _folder = tempfile.mkdtemp(prefix="tilewright-viz-")
        atexit.register(_remove, _folder, os.getpid())
    return Path(_folder)


def _remove(folder: str, owner: int) -> None:
    # A child of a fork inherits the exit handler, not the folder.
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


def path() -> Path | None:
    """Returns the file of the trace, if there is one."""
    with _lock:
        if _loaded is not None:
            return _loaded
        return None if _recorder is None else Path(_recorder.path)


def clear() -> None:
    """Forgets the trace."""
    global _recorder, _loaded
    with _lock:
        if _recorder is not None and _pid == os.getpid():
            Path(_recorder.path).unlink(missing_ok=True)
        _recorder = _loaded = None


def save(path: str | os.PathLike[str]) -> None:
    """Writes the trace to a file, which ``load`` and ``python -m tilewright.viz`` read."""
    found = globals()["path"]()
    if found is None:
        raise ValueError(
            "there is no trace to save: launch a kernel that is decorated with @triton_viz.trace first"
        )
    shutil.copyfile(found, path)


def load(path: str | os.PathLike[str]) -> None:
    """Makes ``launch`` show the trace in a saved file."""
    global _loaded
    found = Path(path).absolute()
    _native.TraceFile(found)
    with _lock:
        clear()
        _loaded = found
