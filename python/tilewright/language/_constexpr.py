"""``tl.constexpr``: a value that is known when a kernel is compiled, with the operators of Python."""

from __future__ import annotations

import operator

from tilewright import _native
from tilewright.language._types import base_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    _T = TypeVar("_T")

__all__ = ["_unwrap_if_constexpr", "const", "constexpr", "constexpr_type", "must_use_result"]


class constexpr_type(base_type):
    """The type of one compile-time value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, constexpr_type) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value}]"

    def mangle(self) -> str:
        """The part of a mangled name that encodes this type."""
        own = getattr(self.value, "mangle", None)
        return f"c{own() if own else repr(self.value)}"


def _unwrap_if_constexpr(value: Any) -> Any:
    """The plain Python value; tuples and lists are unwrapped inside as well."""
    if isinstance(value, constexpr):
        return value.value
    if isinstance(value, list):
        return [_unwrap_if_constexpr(item) for item in value]
    if type(value) is tuple:
        return tuple(_unwrap_if_constexpr(item) for item in value)
    return value


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    def method(self: constexpr, other: Any) -> constexpr:
        if isinstance(other, _native.tensor):
            return NotImplemented  # type: ignore[no-any-return]
        return constexpr(function(self.value, _unwrap_if_constexpr(other)))

    return method


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    def method(self: constexpr, other: Any) -> constexpr:
        if isinstance(other, _native.tensor):
            return NotImplemented  # type: ignore[no-any-return]
        return constexpr(function(_unwrap_if_constexpr(other), self.value))

    return method


class constexpr:
    """A value that is known when a kernel is compiled; as an annotation, a parameter that takes one."""

    _tilewright_path = "constexpr"
    # The module that programs import it from: signatures are shown with it.
    __module__ = "tilewright.language"

    def __new__(cls, value: Any = None) -> Any:
        # As in a compiled kernel, a run-time value stays one.
        return value if isinstance(value, _native.tensor) else super().__new__(cls)

    def __init__(self, value: Any) -> None:
        while isinstance(value, constexpr):
            value = value.value
        self.value: Any = value

    @property
    def type(self) -> constexpr_type:
        """The type of this one value."""
        return constexpr_type(self.value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash((self.value, constexpr_type(self.value)))

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.value[_unwrap_if_constexpr(key)]

    def __eq__(self, other: object) -> constexpr:  # type: ignore[override]
        if isinstance(other, _native.tensor):
            return NotImplemented
        return constexpr(self.value == _unwrap_if_constexpr(other))

    def __ne__(self, other: object) -> constexpr:  # type: ignore[override]
        if isinstance(other, _native.tensor):
            return NotImplemented
        return constexpr(self.value != _unwrap_if_constexpr(other))

    __add__ = _binary(operator.add)
    __radd__ = _reflected(operator.add)
    __sub__ = _binary(operator.sub)
    __rsub__ = _reflected(operator.sub)
    __mul__ = _binary(operator.mul)
    __rmul__ = _reflected(operator.mul)
    __truediv__ = _binary(operator.truediv)
    __rtruediv__ = _reflected(operator.truediv)
    __floordiv__ = _binary(operator.floordiv)
    __rfloordiv__ = _reflected(operator.floordiv)
    __mod__ = _binary(operator.mod)
    __rmod__ = _reflected(operator.mod)
    __pow__ = _binary(operator.pow)
    __rpow__ = _reflected(operator.pow)
    __lshift__ = _binary(operator.lshift)
    __rlshift__ = _reflected(operator.lshift)
    __rshift__ = _binary(operator.rshift)
    __rrshift__ = _reflected(operator.rshift)
    __and__ = _binary(operator.and_)
    __rand__ = _reflected(operator.and_)
    __or__ = _binary(operator.or_)
    __ror__ = _reflected(operator.or_)
    __xor__ = _binary(operator.xor)
    __rxor__ = _reflected(operator.xor)
    __lt__ = _binary(operator.lt)
    __le__ = _binary(operator.le)
    __gt__ = _binary(operator.gt)
    __ge__ = _binary(operator.ge)
    __rlt__ = _reflected(operator.lt)
    __rle__ = _reflected(operator.le)
    __rgt__ = _reflected(operator.gt)
    __rge__ = _reflected(operator.ge)

    def __neg__(self) -> constexpr:
        return constexpr(-self.value)

    def __pos__(self) -> constexpr:
        return constexpr(+self.value)

    def __invert__(self) -> constexpr:
        return constexpr(~self.value)

    def __not__(self) -> constexpr:
        return constexpr(not self.value)

    def logical_and(self, other: Any) -> constexpr:
        """``self and other``."""
        return constexpr(self.value and _unwrap_if_constexpr(other))

    def logical_or(self, other: Any) -> constexpr:
        """``self or other``."""
        return constexpr(self.value or _unwrap_if_constexpr(other))


class const:
    """As an annotation, a pointer to data that the kernel does not write."""

    _tilewright_path = "const"


def must_use_result(x: _T, s: Any = True) -> Any:
    """Marks a function whose result must not be ignored; also ``@must_use_result("why")``."""
    if isinstance(x, str):
        return lambda function: must_use_result(function, x)
    x._must_use_result = s  # type: ignore[attr-defined]
    return x
