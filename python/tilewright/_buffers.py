"""Lets kernels take Python's buffers as arguments: ``array.array``, ``bytearray``, ``memoryview`` and others."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple
else:
    from collections import namedtuple

_KINDS = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efd", "f"),
    "?": "b",
}
"""The kind of the elements in ``__array_interface__``, by their format in ``struct``."""

if TYPE_CHECKING:

    class Format(NamedTuple):
        """The format of elements, in the place of a dtype."""

        name: str

else:
    Format = namedtuple("Format", ("name",))


class BufferArray:
    """A buffer as an array. It keeps the memory of the buffer at its address."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.dtype = Format(repr(view.format))
        native = "<" if sys.byteorder == "little" else ">"
        order, letter = view.format[:-1], view.format[-1:]
        kind = _KINDS.get(letter) if order in ("", "@", "=", native) else None
        self.__array_interface__: dict[str, Any] = {
            "data": (address_of(view), view.readonly),
            "typestr": f"{native}{kind}{view.itemsize}" if kind else f"|V{view.itemsize}",
            "shape": view.shape,
            "strides": view.strides,
            "version": 3,
        }


def address_of(view: memoryview) -> int:
    """The address of the first element of a view."""
    import ctypes

    class PyBuffer(ctypes.Structure):
        """The structure ``Py_buffer`` of Python's stable interface."""

        _fields_ = (
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p),
            *((name, ctypes.c_void_p) for name in ("shape", "strides", "suboffsets", "internal")),
        )

    buffer, strided = PyBuffer(), 0x18
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), strided)
    try:
        return buffer.buf or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def as_array(value: Any) -> BufferArray | None:
    """The buffer of an object as an array; ``None`` for an object without elements in a buffer."""
    try:
        view = memoryview(value)
    except (TypeError, BufferError, ValueError):
        return None
    return BufferArray(view) if view.ndim and not view.suboffsets else None
