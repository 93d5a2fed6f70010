"""Tracks memory of torch that is not initialized.

While tracking is on, tensors of ``torch.empty`` and similar functions count as unwritten until an operation of torch or
a kernel writes to them. The memory of other tensors counts as written. A mode of torch sees the operations that the
program calls through the dispatcher, but not those that these operations call internally.
"""

from __future__ import annotations

import weakref

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_mode: Any = None

_EMPTY = (
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::empty_permuted",
)


def watch() -> None:
    """Starts to watch, if torch is imported."""
    global _mode
    if _mode is not None:
        return
    try:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
    except ImportError:
        return

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        """Sees each operation of torch."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            schema = func._schema
            if schema.name in _EMPTY:
                _allocated(torch, result)
                return result
            if schema.is_mutable:
                named = {argument.name: argument for argument in schema.arguments}
                for argument, value in zip(schema.arguments, args, strict=False):
                    _written(torch, argument, value)
                for name, value in kwargs.items():
                    _written(torch, named[name], value)
            elif not any(item.alias_info is not None for item in schema.returns):
                for value in result if isinstance(result, (tuple, list)) else (result,):
                    _is_new(torch, value)
            return result

    _mode = Watch()
    _mode.__enter__()
    _to_numpy(torch)


def unwatch() -> None:
    """Ends the watch."""
    global _mode
    if _mode is not None:
        mode, _mode = _mode, None
        mode.__exit__(None, None, None)
        _native.sanitizer_freed(0, 2**64 - 1)


def _is_on_host(torch: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type == "cpu"


def _allocated(torch: Any, tensor: Any) -> None:
    if not _is_on_host(torch, tensor):
        return
    storage = tensor.untyped_storage()
    address, size = storage.data_ptr(), storage.nbytes()
    if size:
        _native.sanitizer_allocated(address, size)
        weakref.finalize(storage, _native.sanitizer_freed, address, size).atexit = False


def _is_new(torch: Any, tensor: Any) -> None:
    """Marks a result that an operation has filled: its memory may be that of a deleted tensor."""
    if _is_on_host(torch, tensor):
        storage = tensor.untyped_storage()
        _native.sanitizer_freed(storage.data_ptr(), storage.nbytes())


def _written(torch: Any, argument: Any, value: Any) -> None:
    if argument.alias_info is None or not argument.alias_info.is_write:
        return
    for tensor in value if isinstance(value, (tuple, list)) else (value,):
        if _is_on_host(torch, tensor) and tensor.numel():
            last = sum(
                (extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
            _native.sanitizer_written(tensor.data_ptr(), (last + 1) * tensor.element_size())


_numpy: Any = None


def _to_numpy(torch: Any) -> None:
    """Marks a tensor that becomes a numpy array as written, because writes of numpy are not observed."""
    global _numpy
    if _numpy is not None:
        return
    _numpy = torch.Tensor.numpy

    def numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_on_host(torch, self):
            storage = self.untyped_storage()
            _native.sanitizer_written(storage.data_ptr(), storage.nbytes())
        return _numpy(self, *args, **kwargs)

    torch.Tensor.numpy = numpy
