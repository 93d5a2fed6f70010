"""The file of traced launches: one for a process, until it is cleared."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tilewright import _native

_lock = threading.RLock()
_recorder: _native.TraceRecorder | None = None
_loaded: Path | None = None
"""The launches before those of the recorder."""
_joined: tuple[list[tuple[Path, int]], Path] | None = None
"""The files of the last joined trace with their sizes, and that trace."""
_folder: str | None = None
_pid = 0
_count = 0


def recorder() -> _native.TraceRecorder:
    """The file that launches are recorded to; a new one after a clear, a load or a fork."""
    global _loaded
    with _lock:
        if _recorder is None or _pid != os.getpid():
            _loaded = None
            return _record()
        return _recorder


def _record() -> _native.TraceRecorder:
    global _recorder, _pid
    _recorder = _native.TraceRecorder(_new_file())
    _pid = os.getpid()
    return _recorder


def _new_file() -> Path:
    global _count
    _count += 1
    return temporary_folder() / f"{_count}.twtrace"


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
    global _joined
    with _lock:
        recorded = None if _recorder is None else Path(_recorder.path)
        if _loaded is None or recorded is None:
            return _loaded or recorded
        parts = [(part, part.stat().st_size) for part in (_loaded, recorded)]
        if _joined is None or _joined[0] != parts:
            _remove_own(_joined and _joined[1])
            _joined = (parts, _join(_loaded, recorded))
        return _joined[1]


def _join(*parts: Path) -> Path:
    """Writes the launches of several traces as one trace; the format is that of ``crates/trace``."""
    joined, count = _new_file(), 0
    with open(joined, "wb") as file:
        for part in parts:
            content = part.read_bytes()
            if not count:
                file.write(content[:_MAGIC_BYTES])
            for tag, payload in _chunks(content):
                number, start = _decoded(payload)
                payload = _encoded(count + number) + payload[start:]
                file.write(tag + len(payload).to_bytes(8, "little") + payload)
            count += len(json.loads(_native.TraceFile(part).list()))
    return joined


_MAGIC_BYTES = 8


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The tags and payloads of a trace, without an incomplete last one."""
    at = _MAGIC_BYTES
    while at + 12 <= len(content):
        end = at + 12 + int.from_bytes(content[at + 4 : at + 12], "little")
        if end <= len(content):
            yield content[at : at + 4], content[at + 12 : end]
        at = end


def _decoded(payload: bytes) -> tuple[int, int]:
    """The number in LEB128 at the start of a payload, and its length in bytes."""
    number = length = 0
    while True:
        byte = payload[length]
        number |= (byte & 0x7F) << (7 * length)
        length += 1
        if byte < 0x80:
            return number, length


def _encoded(number: int) -> bytes:
    """The number in LEB128."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def clear() -> None:
    """Forgets the trace."""
    global _recorder, _loaded, _joined
    with _lock:
        recorded = None if _recorder is None else Path(_recorder.path)
        for file in (recorded, _loaded, _joined and _joined[1]):
            _remove_own(file)
        _recorder = _loaded = _joined = None


def _remove_own(file: Path | None) -> None:
    """Removes a file if this process has made it."""
    if file is not None and _folder is not None and _pid == os.getpid() and file.parent == Path(_folder):
        file.unlink(missing_ok=True)


def save(path: str | os.PathLike[str]) -> None:
    """Writes the trace to a file, which ``load`` and ``python -m tilewright.viz`` read."""
    found = globals()["path"]()
    if found is None:
        raise ValueError(
            "there is no trace to save: launch a kernel that is decorated with @triton_viz.trace first"
        )
    shutil.copyfile(found, path)


def load(path: str | os.PathLike[str], append: bool = False) -> None:
    """Makes ``launch`` show the launches of a saved file.

    They replace the trace, and the next launch begins a new one. With ``append`` they are added to
    the trace, as are later launches.
    """
    global _loaded
    found = Path(path).absolute()
    try:
        _native.TraceFile(found)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), os.fspath(path)) from None
    with _lock:
        before = globals()["path"]() if append else None
        joined = found if before is None else _join(before, found)
        clear()
        _loaded = joined
        if append:
            _record()
