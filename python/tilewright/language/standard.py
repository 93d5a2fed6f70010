"""``triton.language.standard``: the library functions of the language; they are those of ``tl``."""

from __future__ import annotations

from tilewright.language.core import *  # noqa: F403
from tilewright.language.core import __all__ as __all__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COMBINING = ("_sum_combine", "_xor_combine", "_or_combine", "_elementwise_max", "_elementwise_min")


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: it needs the runtime, which needs the language.
    if name in _COMBINING:
        from tilewright.language import _combining

        return getattr(_combining, name)
    raise AttributeError(f"module 'triton.language.standard' has no attribute {name!r}", name=name)
