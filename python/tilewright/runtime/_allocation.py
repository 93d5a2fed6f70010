"""Memory that a program gives to kernels: ``triton.set_allocator``.

No kernel of tilewright needs such memory, on any device, so the function is stored and never called. Programs that set
one for descriptors run as they are. Using the allocator before one is set is an error, as with Triton.
"""

from __future__ import annotations

from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Buffer(Protocol):
        """Memory."""

        def data_ptr(self) -> int:
            """The address of the memory."""

    class Allocator(Protocol):
        """A function that allocates memory."""

        def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer:
            """Returns ``size`` bytes, aligned, for work on a stream."""
else:

    class Buffer:
        """Memory: it has ``data_ptr()``."""

    class Allocator:
        """A function that allocates memory: ``(size, alignment, stream) -> Buffer``."""


class NullAllocator:
    """The allocator until a program sets one."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer:
        """Raises an error: no allocator is set."""
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. Use triton.set_allocator to "
            "specify an allocator."
        )


class _AllocatorWrapper:
    """A function that calls the allocator of the current context."""

    def __init__(self, allocator: Any) -> None:
        self._allocator: ContextVar[Any] = ContextVar("allocator", default=allocator)

    def get(self) -> Any:
        """The function."""
        return self._allocator.get()

    def set(self, allocator: Any) -> None:
        """Sets it."""
        self._allocator.set(allocator)

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        """Allocates memory."""
        return self.get()(size, alignment, stream)


_NULL_ALLOCATOR = NullAllocator()
_allocator = _AllocatorWrapper(_NULL_ALLOCATOR)
_profile_allocator = _AllocatorWrapper(_NULL_ALLOCATOR)


def set_allocator(allocator: Any) -> None:
    """Sets the function ``(size, alignment, stream) -> buffer`` that allocates memory for kernels."""
    _allocator.set(allocator)


def set_profile_allocator(allocator: Any) -> None:
    """Sets the function that allocates memory for a profiler's records; None unsets it."""
    _profile_allocator.set(_NULL_ALLOCATOR if allocator is None else allocator)


def has_profile_allocator() -> bool:
    """Returns whether a program has set a profile allocator."""
    return _profile_allocator.get() is not _NULL_ALLOCATOR
