"""``triton._C.libtriton.nvidia``: names that programs import, and that other modules replace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tilewright._native import Missing
from tilewright._replaced_names import replaced_names

_INSTEAD = "tilewright has no MLIR and no LLVM; `tilewright compile --emit` shows the stages of a kernel"

__getattr__ = replaced_names(
    "tilewright._C.libtriton.nvidia",
    "copy_device_to_host copy_host_to_device device_free device_malloc has_extern_deps passes set_nvvm_reflect_ftz "
    "synchronize",
    instead=f"tensors of torch are memory on a GPU; {_INSTEAD}",
)

cublas = SimpleNamespace(
    CublasLt=Missing(
        "triton._C.libtriton.nvidia.cublas.CublasLt", "torch.matmul and torch._scaled_mm are cuBLAS"
    )
)
"""Matrix multiplication by the vendor's library."""


def load_dialects(context: Any) -> None:
    """Does nothing: there are no dialects."""
