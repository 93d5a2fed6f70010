"""Values of interpreted kernels as text and as arrays: they print as arrays of numpy do."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_NUMPY = {
    "int1": "bool", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint8": "u1", "uint16": "u2",
    "uint32": "u4", "uint64": "u8", "fp16": "f2", "fp32": "f4", "fp64": "f8", "pointer": "u8",
}  # fmt: skip

_STRUCT = {
    "int1": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
    "uint64": "Q", "fp16": "e", "fp32": "f", "fp64": "d", "pointer": "Q",
}  # fmt: skip


class TensorHandle:
    """The elements of a tensor: ``data`` is an array of numpy, with one element for a scalar."""

    def __init__(self, data: Any, dtype: Any) -> None:
        self.data = data
        self.dtype = dtype
        self.tensor: Any = None
        self.attr: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> Any:
        """The type of an element."""
        dtype = self.dtype
        return dtype.scalar

    def clone(self) -> TensorHandle:
        """A copy."""
        return TensorHandle(self.data.copy(), self.dtype)

    def set_attr(self, key: str, value: Any) -> None:
        """Stores an attribute."""
        self.attr[key] = value


def handle(tensor: Any) -> TensorHandle:
    """The elements of a tensor; needs numpy."""
    made = TensorHandle(array(tensor), tensor.dtype)
    made.tensor = tensor
    return made


def array(tensor: Any) -> Any:
    """The elements as an array of numpy. Formats that numpy lacks are widened to 32 bits."""
    import numpy

    data, name, shape = tensor._elements()
    shape = shape or (1,)
    if name in _NUMPY:
        return numpy.frombuffer(data, dtype=_NUMPY[name]).reshape(shape).copy()
    if name == "bf16":
        bits = numpy.frombuffer(data, dtype="u2").astype("u4") << 16
        return bits.view("f4").reshape(shape)
    values = [_decoded(byte, tensor.dtype) for byte in data]
    return numpy.array(values, dtype="f4").reshape(shape)


def _decoded(byte: int, dtype: Any) -> float:
    """The value of an 8-bit float."""
    digits, bias = dtype.fp_mantissa_width, dtype.exponent_bias
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = (byte & 0x7F) >> digits, byte & ((1 << digits) - 1)
    name = dtype.name
    if name in ("fp8e4b8", "fp8e5b16"):
        if byte == 0x80:
            return float("nan")
    elif name == "fp8e5" and exponent == 31:
        return sign * float("inf") if mantissa == 0 else float("nan")
    elif name == "fp8e4nv" and byte & 0x7F == 0x7F:
        return float("nan")
    if exponent == 0:
        return float(sign * mantissa * 2.0 ** (1 - bias - digits))
    return float(sign * (1 + mantissa / (1 << digits)) * 2.0 ** (exponent - bias))


def text(tensor: Any) -> str:
    """Formats a tensor for ``print``."""
    try:
        return str(array(tensor))
    except ModuleNotFoundError:
        return _plain(tensor)


def representation(tensor: Any) -> str:
    """Formats a tensor for a debugger."""
    return f"tensor({text(tensor)}, {tensor.type})"


def _plain(tensor: Any) -> str:
    """Formats the elements in brackets, without numpy."""
    data, name, shape = tensor._elements()
    if name == "bf16":
        pairs = (data[at : at + 2] for at in range(0, len(data), 2))
        values: Iterator[Any] = (struct.unpack("<f", b"\0\0" + pair)[0] for pair in pairs)
    elif name in _STRUCT:
        values = (value for (value,) in struct.iter_unpack(f"<{_STRUCT[name]}", data))
    else:
        values = (_decoded(byte, tensor.dtype) for byte in data)

    def nested(shape: tuple[int, ...]) -> str:
        if len(shape) == 1:
            return f"[{' '.join(str(next(values)) for _ in range(shape[0]))}]"
        return f"[{' '.join(nested(shape[1:]) for _ in range(shape[0]))}]"

    return nested(shape or (1,))
