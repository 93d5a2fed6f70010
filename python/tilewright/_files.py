"""Atomic writes of files."""

from __future__ import annotations


def cannot(verb: str, path: object, error: OSError) -> str:
    """Returns the sentence about a file that cannot be read or written, such as ``cannot read x: there is no …``."""
    import errno

    reason = error.strerror
    if error.errno == errno.ENOENT:
        reason = "there is no such file" if verb == "read" else "there is no such folder"
    elif error.errno is not None:
        # The text of an error of the native module also has the number.
        import os

        reason = os.strerror(error.errno)
    return f"cannot {verb} {path}: {reason}"


def write_file(path: str, content: bytes | str, mode: int = 0o666) -> None:
    """Writes a file atomically, text as UTF-8: concurrent readers, and readers after a failure, see the old file.

    The umask removes permissions from ``mode``. Raises the ``OSError`` of the failed step. A file that is not a regular
    one, such as ``/dev/stdout``, is written in place.
    """
    import os
    import tempfile

    data = content if isinstance(content, bytes) else content.encode()
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            file.write(data)
        return
    # A link stays a link, and its target is replaced. The temporary file is in the folder of the target,
    # because a rename works only within a file system.
    given, path = path, os.path.realpath(path)
    try:
        number, temporary = tempfile.mkstemp(prefix="tmp.", dir=os.path.dirname(path))
    except OSError as error:
        raise OSError(error.errno, error.strerror, given) from None
    try:
        with open(number, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


_the_umask: int | None = None


def _umask() -> int:
    """Returns the permission bits that the process removes from new files. Only by setting them can they be read."""
    global _the_umask
    if _the_umask is None:
        import os

        _the_umask = os.umask(0o077)
        os.umask(_the_umask)
    return _the_umask
