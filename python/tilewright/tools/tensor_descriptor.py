"""``triton.tools.tensor_descriptor``: descriptors made on the host, still to come."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.errors import NotAvailableError


class TensorDescriptor:
    """Stands for the descriptors of Triton: torch asks whether objects are such. Making one says so."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotAvailableError(
            "triton.tools.tensor_descriptor.TensorDescriptor is not available in this version of tilewright: pass the "
            "tensor, and make the descriptor in the kernel with tl.make_tensor_descriptor"
        )

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Any, padding: str = "zero", **options: Any) -> NoReturn:
        """Says that there are none yet."""
        TensorDescriptor(tensor, block_shape, padding, **options)
        raise AssertionError
