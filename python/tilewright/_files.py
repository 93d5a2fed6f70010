"""Files that are there as a whole or not at all."""

from __future__ import annotations


def write_file(path: str, content: bytes | str) -> None:
    """Writes a file, text as UTF-8. Who reads at the same time, and who finds it after a failure, has the old file.

    Raises the ``OSError`` of what failed. What is no ordinary file, such as ``/dev/stdout``, is written where it is.
    """
    import os
    import tempfile

    data = content if isinstance(content, bytes) else content.encode()
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            file.write(data)
        return
    # A link stays one. Beside the file, since a file can be renamed only within a file system.
    path = os.path.realpath(path)
    number, temporary = tempfile.mkstemp(prefix="tmp.", dir=os.path.dirname(path))
    try:
        with open(number, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


_the_umask: int | None = None


def _umask() -> int:
    """What the process takes away from the rights of new files; it can be read only by setting it."""
    global _the_umask
    if _the_umask is None:
        import os

        _the_umask = os.umask(0o077)
        os.umask(_the_umask)
    return _the_umask
