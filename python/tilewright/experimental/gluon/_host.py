"""``gluon.nvidia`` and ``gluon.amd``: arguments that the host passes to kernels of Gluon."""

from __future__ import annotations

from typing import Any

from tilewright import _native
from tilewright.experimental.gluon._runtime import HINT
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
    """The same for windows of a convolution's input, which this version does not have."""

    def __init__(self, *_args: Any, **_named: Any) -> None:
        raise _native.not_available(
            "TensorDescriptorIm2Col is not available in this version of tilewright", HINT
        )

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
