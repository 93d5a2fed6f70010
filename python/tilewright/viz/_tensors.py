"""The tensors among the arguments of a launch: their addresses, their contents, and their copies in main memory."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any, NamedTuple

from tilewright import _native

_DTYPES = {
    "i1": "int1",
    "u1": "int1",
    **{
        f"{mark}{bits}": f"{name}{bits}"
        for mark, name in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
}


class Described(NamedTuple):
    """The description of a tensor in a trace."""

    name: str
    dtype: str
    size: int
    address: int
    shape: list[int]
    strides: list[int]
    """The strides in elements."""

    array: Any

    def parts(self) -> tuple[str, str, int, int, list[int], list[int]]:
        """The fields, in the order of the native module."""
        return self.name, self.dtype, self.size, self.address, self.shape, self.strides

    def content(self) -> bytes:
        """The elements, row after row."""
        with _plain_torch(self.array):
            if hasattr(self.array, "__array_interface__") and not hasattr(self.array, "detach"):
                import numpy

                return numpy.ascontiguousarray(self.array).tobytes()
            # This does not use numpy: the sanitizer marks memory as written if it becomes an array
            # of numpy.
            dense = self.array.detach().contiguous()
            return ctypes.string_at(dense.data_ptr(), dense.numel() * dense.element_size())


def _plain_torch(array: Any) -> Any:
    """Makes torch tell the true properties of a tensor within it, without stand-ins."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return nullcontext()
    return torch._C.DisableTorchFunction()


def describe(named: dict[str, Any]) -> list[Described]:
    """The tensors among arguments, those within tuples and descriptors included."""
    found: list[Described] = []
    for name, value in named.items():
        _add(name, value, found)
    return found


def _add(name: str, value: Any, found: list[Described]) -> None:
    if isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            _add(f"{name}.{number}", item, found)
        return
    array = value
    if not _is_array(array):
        # The value is a descriptor, or reinterprets memory as another dtype: use its base.
        array = getattr(value, "base", None)
        if not _is_array(array):
            return
    pointee = str(_native.describe_argument(value if _is_array(value) else array))
    if not pointee.startswith("*"):
        return
    dtype = _DTYPES.get(pointee.lstrip("*k"), pointee.lstrip("*k"))
    with _plain_torch(array):
        if hasattr(array, "data_ptr"):
            address, size = int(array.data_ptr()), int(array.element_size())
            strides = [int(stride) for stride in array.stride()]
        else:
            address, size = int(array.__array_interface__["data"][0]), int(array.itemsize)
            strides = [int(stride) // size for stride in array.strides]
        shape = [int(extent) for extent in array.shape]
    found.append(Described(name, dtype, size, address, shape, strides, array))


def _is_array(value: Any) -> bool:
    is_torch = hasattr(value, "data_ptr") and hasattr(value, "stride") and hasattr(value, "element_size")
    return is_torch or hasattr(value, "__array_interface__")


class HostCopies:
    """Copies in main memory of the tensors that are on a GPU, while a traced kernel works on them."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[Any, Any]] = {}
        self._torch: Any = None

    def of(self, value: Any) -> Any:
        """Returns the argument in main memory: itself if it is there."""
        if isinstance(value, tuple):
            items = [self.of(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        with _plain_torch(value) as plain:
            if (plain is None and not hasattr(value, "is_cuda")) or not getattr(value, "is_cuda", False):
                return value
            import torch

            self._torch = torch
            # Views of one storage stay views of one.
            storage = value.untyped_storage()
            if storage.data_ptr() not in self._storages:
                self._storages[storage.data_ptr()] = (storage, storage.cpu())
            copy = self._storages[storage.data_ptr()][1]
            like = torch.empty(0, dtype=value.dtype)
            return like.set_(copy, value.storage_offset(), value.shape, value.stride())

    def bring_back(self) -> None:
        """Copies the results of the kernel back to the original tensors."""
        if self._torch is not None:
            with self._torch._C.DisableTorchFunction():
                for storage, copy in self._storages.values():
                    storage.copy_(copy)
