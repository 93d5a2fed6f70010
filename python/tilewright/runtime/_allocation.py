"""Memory that kernels ask the program for; no device here needs any."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_allocator: Any = None


def set_allocator(allocator: Any) -> None:
    """Sets the function ``(size, alignment, stream) -> buffer`` that gives kernels memory."""
    global _allocator
    _allocator = allocator
