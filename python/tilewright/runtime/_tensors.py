"""Objects that stand for tensors: without memory, or with another dtype."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MockTensor:
    """Replaces a tensor where only its dtype counts: ``kernel.warmup(MockTensor(torch.float32), ...)``."""

    def __init__(self, dtype: Any, shape: Any = None) -> None:
        self.dtype = dtype
        self.shape = [1] if shape is None else shape

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        """Returns a ``MockTensor`` for a torch dtype, anything else unchanged."""
        kind = type(arg)
        return MockTensor(arg) if (kind.__module__, kind.__name__) == ("torch", "dtype") else arg

    def stride(self) -> tuple[int, ...]:
        """Returns the strides of a contiguous tensor."""
        strides = [1]
        for extent in self.shape[1:][::-1]:
            strides.append(strides[-1] * extent)
        return tuple(strides[::-1])

    @staticmethod
    def data_ptr() -> int:
        """Returns an aligned address that is no memory."""
        return 0

    @staticmethod
    def ptr_range() -> int:
        """Returns 0: there is no memory."""
        return 0


class TensorWrapper:
    """A tensor whose memory is read as another dtype; see ``reinterpret``."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.dtype = dtype
        self.base = base
        self.data = base.data
        self.device = base.device
        self.shape = base.shape

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.base.data_ptr())

    def untyped_storage(self) -> Any:
        """The memory that the tensor is part of."""
        return self.base.untyped_storage()

    def stride(self, *args: Any) -> Any:
        """Returns the strides of the tensor."""
        return self.base.stride(*args)

    def element_size(self) -> int:
        """The size of an element."""
        return int(self.base.element_size())

    def cpu(self) -> TensorWrapper:
        """Returns the same in main memory."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        """Returns the same on a device."""
        return TensorWrapper(self.base.to(device), self.dtype)

    def clone(self) -> TensorWrapper:
        """Returns a copy."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def copy_(self, other: Any) -> None:
        """Copies the values of another tensor."""
        self.base.copy_(other.base)

    def zero_(self) -> None:
        """Sets all to zero."""
        self.base.zero_()

    def new_empty(self, sizes: Any) -> TensorWrapper:
        """Returns an uninitialized tensor of another shape."""
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """Returns a tensor whose memory is read as another dtype of the same size, such as an 8-bit float."""
    if isinstance(tensor, TensorWrapper):
        return tensor.base if dtype == tensor.base.dtype else TensorWrapper(tensor.base, dtype)
    if hasattr(tensor, "data_ptr"):
        return TensorWrapper(tensor, dtype)
    raise TypeError(f"a {type(tensor).__name__} cannot be reinterpreted")
