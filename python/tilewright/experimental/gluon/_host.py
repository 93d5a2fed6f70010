"""``gluon.nvidia`` and ``gluon.amd``: arguments that the host passes to kernels of Gluon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class TensorDescriptor:
    """A tensor in memory that kernels access by blocks, with the layout of these in shared memory."""

    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    layout: Any
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    mode = property(lambda _self: "tiled")

    @classmethod
    def from_tensor(cls, tensor: Any, block_shape: Any, layout: Any, *options: Any, **named: Any) -> Any:
        """Describes a tensor of torch."""
        return cls(tensor, tensor.shape, tensor.stride(), block_shape, layout, *options, **named)


@dataclass
class TensorDescriptorIm2Col(TensorDescriptor):
    """The same for windows of a convolution's input."""

    element_strides: Any = None
    pixel_box_lower_corner: Any = None
    pixel_box_upper_corner: Any = None

    mode = property(lambda _self: "im2col")


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
