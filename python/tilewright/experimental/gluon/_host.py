"""``gluon.nvidia`` and ``gluon.amd``: arguments that the host passes to kernels of Gluon."""

from __future__ import annotations

from typing import Any

from tilewright import _native
from tilewright.errors import TensorDescriptorError
from tilewright.tools import tensor_descriptor


class TensorDescriptor(tensor_descriptor.TensorDescriptor):
    """A tensor in memory that kernels access by blocks, with the layout of a block in shared memory.

    ``shape`` and ``strides`` are in elements; the last stride is 1, and base and rows begin at multiples of 16 bytes.
    Elements outside of the tensor are loaded as zeros, and never stored.
    """

    layout: Any = None

    def __init__(
        self,
        base: Any,
        shape: Any,
        strides: Any,
        block_shape: Any,
        layout: Any,
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        if padding == "nan":
            raise _native.not_available(
                'padding="nan" of TensorDescriptor is not available in Gluon',
                "elements outside of the tensor are loaded as zeros: pass padding='zero', and mask the tile",
            )
        self.layout = layout
        super().__init__(base, shape, strides, block_shape, padding, round_f32_to_tf32)

    mode = property(lambda _self: "tiled")

    @classmethod
    def from_tensor(cls, tensor: Any, block_shape: Any, layout: Any, *options: Any, **named: Any) -> Any:  # type: ignore[override]
        """Describes a tensor of torch."""
        return cls(tensor, tensor.shape, tensor.stride(), block_shape, layout, *options, **named)


class TensorDescriptorIm2Col(TensorDescriptor):
    """A tensor of images of pixels, which kernels copy by pixels (``tma.async_load_im2col``).

    The axes are the images, one to three axes of a window, and the channels. ``block_shape`` has the pixels of a copy
    and their channels. A copy visits the pixels of a bounding box, the last axis fastest, in the steps
    ``element_strides``: the box begins at ``pixel_box_lower_corner`` along each axis of the window, and ends at
    ``pixel_box_upper_corner`` from the last pixel of the tensor on, both included.
    """

    def __init__(
        self,
        base: Any,
        shape: Any,
        strides: Any,
        block_shape: Any,
        layout: Any,
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
        element_strides: Any = None,
        pixel_box_lower_corner: Any = None,
        pixel_box_upper_corner: Any = None,
    ) -> None:
        rank = len(shape)
        if not 3 <= rank <= 5:
            raise TensorDescriptorError(
                f"im2col mode requires rank 3, 4, or 5: images, 1 to 3 axes, and channels; the tensor has {rank} axes"
            )
        self.element_strides = [1] * rank if element_strides is None else [int(x) for x in element_strides]
        self.pixel_box_lower_corner = _corner("pixel_box_lower_corner", pixel_box_lower_corner, rank)
        self.pixel_box_upper_corner = _corner("pixel_box_upper_corner", pixel_box_upper_corner, rank)
        if len(self.element_strides) != rank:
            raise TensorDescriptorError(
                f"element_strides length mismatch: the tensor has {rank} axes, found {self.element_strides}"
            )
        if self.element_strides[-1] != 1 or any(not 0 < step <= 8 for step in self.element_strides):
            raise TensorDescriptorError(
                f"element_strides are from 1 to 8, and 1 for the channels; found {self.element_strides}"
            )
        super().__init__(base, shape, strides, block_shape, layout, padding, round_f32_to_tf32)

    def _check_block(self) -> None:
        super()._check_block()
        pixels, channels = self.block_shape
        if pixels > 1024 or channels > 256:
            raise TensorDescriptorError(
                f"a copy has at most 1024 pixels and 256 channels; block_shape is {self.block_shape}"
            )

    def _check_rank(self) -> None:
        if len(self.block_shape) != 2:
            raise TensorDescriptorError(
                f"im2col: block_shape must be 2D: [pixels, channels], found {self.block_shape}"
            )
        if len(self.strides) != len(self.shape):
            raise TensorDescriptorError(
                f"rank mismatch: shape has {len(self.shape)} items, and strides has {len(self.strides)}"
            )

    mode = property(lambda _self: "im2col")


def _corner(name: str, corner: Any, rank: int) -> list[int]:
    """The offsets of a corner of the bounding box, one for each axis between the images and the channels."""
    axes = rank - 2
    if corner is None:
        raise TensorDescriptorError(f"{name} required for im2col: a list of {axes} offsets")
    offsets = [int(offset) for offset in corner]
    if len(offsets) != axes:
        raise TensorDescriptorError(f"{name} length mismatch: expected {axes} offsets, found {offsets}")
    limit = {1: 32768, 2: 128, 3: 16}[axes]
    for axis, offset in enumerate(offsets):
        if not -limit <= offset < limit:
            raise TensorDescriptorError(f"{name}[{axis}] must be in [{-limit}, {limit - 1}], got {offset}")
    return offsets


MODULES = {
    "amd": {"modules": "cdna5 gfx1250"},
    "amd.cdna5": {
        "_host": "TensorDescriptor",
        "_layouts": "PaddedSharedLayout PartitionedSharedLayout SwizzledSharedLayout",
    },
    "amd.gfx1250": {"_host": "TensorDescriptor"},
    "nvidia": {"modules": "blackwell hopper"},
    "nvidia.blackwell": {"_host": "TensorDescriptor"},
    "nvidia.hopper": {"_host": "TensorDescriptor TensorDescriptorIm2Col", "_layouts": "NVMMASharedLayout"},
}
"""The modules, and the module that each name comes from (see ``_modules.py``)."""
