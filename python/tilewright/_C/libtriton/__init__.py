"""``triton._C.libtriton``: the names that programs import from the official native module."""

from __future__ import annotations

import os

from tilewright._C.libtriton import ir, linear_layout, nvidia
from tilewright.runtime._binder import native_specialize_impl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "get_cache_invalidating_env_vars",
    "getenv",
    "getenv_bool",
    "ir",
    "linear_layout",
    "native_specialize_impl",
    "nvidia",
]

_TRUE = frozenset(("1", "true", "yes", "on", "y"))


def getenv(name: str, default: str = "") -> str:
    """Returns a variable of the environment."""
    return os.environ.get(name, default)


def getenv_bool(name: str, default: bool = False) -> bool:
    """Returns whether a variable of the environment is on."""
    text = os.environ.get(name)
    return default if text is None else text.lower() in _TRUE


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """The variables that are set and change the code of kernels."""
    names = ("TRITON_DEFAULT_FP_FUSION", "TRITON_FORCE_DISABLE_FP_FUSION", "TRITON_F32_DEFAULT")
    return {name: os.environ[name] for name in (*names, "TRITON_OVERRIDE_ARCH") if name in os.environ}


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"triton._C.libtriton has no {name!r} in tilewright, which is no MLIR: `tilewright compile --emit` shows the "
        "stages of a kernel",
        name=name,
    )
