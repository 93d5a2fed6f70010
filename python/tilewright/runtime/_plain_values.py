"""The Python values that a compile-time function gets for its arguments."""

from __future__ import annotations

from tilewright import _native
from tilewright.language._constexpr import constexpr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def plain(value: Any) -> Any:
    """Converts an argument for a compile-time function: to the object in a ``constexpr``, or to the number that
    an interpreted kernel's scalar is known to be.
    """
    if isinstance(value, constexpr):
        return value.value
    if isinstance(value, _native.tensor):
        number = getattr(value, "_known_number", None)
        return value if number is None else number
    return tuple(map(plain, value)) if type(value) is tuple else value
