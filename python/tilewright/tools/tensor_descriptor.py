"""``triton.tools.tensor_descriptor``: descriptors of tensors that the host makes and kernels get as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import _native
from tilewright.errors import TensorDescriptorError

ALIGNMENT = 16
"""The alignment in bytes of the address and of each row of the tensor, and the minimum size of a row of a block."""


@dataclass
class TensorDescriptor:
    """A tensor in memory, and the shape of the blocks in which a kernel accesses it.

    ``shape`` and ``strides`` are in elements, and the last stride is 1. A kernel calls ``load`` and ``store`` of it;
    elements outside of the tensor are loaded as ``padding`` ("zero" or "nan"), and are never stored.
    """

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        if self.round_f32_to_tf32:
            raise _native.not_available(
                "round_f32_to_tf32 of TensorDescriptor is not available",
                "kernels load fp32 as it is; tl.dot rounds it",
            )
        self.shape, self.strides = [int(x) for x in self.shape], [int(x) for x in self.strides]
        self.block_shape = [int(x) for x in self.block_shape]
        rank = len(self.shape)
        if rank == 0:
            raise TensorDescriptorError("rank must not be zero: a TensorDescriptor has 1 to 5 axes")
        if rank > 5:
            raise TensorDescriptorError(f"rank cannot be more than 5: the tensor has {rank} axes")
        self._check_rank()
        if self.padding not in ("zero", "nan"):
            raise TensorDescriptorError(
                f'padding of a TensorDescriptor is "zero" or "nan", not {self.padding!r}'
            )
        self._check_memory()
        self._check_block()

    def _check_rank(self) -> None:
        rank = len(self.shape)
        for name in ("strides", "block_shape"):
            if len(getattr(self, name)) != rank:
                raise TensorDescriptorError(
                    f"rank mismatch: shape has {rank} items, and {name} has {len(getattr(self, name))}"
                )

    def _check_memory(self) -> None:
        address, size = _address(self.base), _element_size(self.base)
        if address is not None and address % ALIGNMENT:
            raise _misaligned(
                f"base must be 16-byte aligned: the tensor begins at {address:#x}; copy it with .clone()"
            )
        for axis, stride in enumerate(self.strides[:-1]):
            if stride * size % ALIGNMENT:
                raise _misaligned(
                    f"strides must be 16-byte aligned: that of axis {axis} is {stride} elements, {stride * size} bytes"
                )
        if self.strides[-1] != 1:
            raise TensorDescriptorError(
                f"Last dimension must be contiguous: its stride is {self.strides[-1]}; describe x.T, or copy the "
                "tensor with .contiguous()"
            )
        if self.padding == "nan" and "float" not in str(self.base.dtype):
            raise TensorDescriptorError(
                f"Padding option `nan` is only supported for floating point tensors, not for {self.base.dtype}"
            )

    def _check_block(self) -> None:
        # The minimum width of a block is checked at the launch, and not here: programs create
        # descriptors with a block
        # of ones, and a hook of the autotuner sets the block.
        for axis, extent in enumerate(self.block_shape):
            if extent <= 0 or extent & (extent - 1):
                raise TensorDescriptorError(
                    f"Shape element {axis} must be a power of 2: block_shape is {self.block_shape}"
                )

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: list[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """Describes a whole tensor, with its layout in memory."""
        shape = list(tensor.shape)
        if hasattr(tensor, "stride"):
            strides = list(tensor.stride())
        else:
            strides = [step // tensor.itemsize for step in tensor.strides]
        return TensorDescriptor(tensor, shape, strides, block_shape, padding, round_f32_to_tf32)


def _misaligned(what: str) -> TensorDescriptorError:
    error = TensorDescriptorError(f"error[TW0223]: {what}")
    error.code = "TW0223"
    return error


def _address(base: Any) -> int | None:
    """The address of a tensor; None of one without memory, such as the tensors that torch traces with."""
    if type(base).__name__ in ("FakeTensor", "FunctionalTensor"):
        return None
    if hasattr(base, "data_ptr"):
        return int(base.data_ptr())
    interface = getattr(base, "__array_interface__", None)
    return interface["data"][0] if interface else None


def _element_size(base: Any) -> int:
    if hasattr(base, "element_size"):
        return int(base.element_size())
    return int(base.dtype.itemsize)
