"""A stand-in for a run-time value in a ``constexpr_function``: a tensor, a pointer or a descriptor of the kernel.

The function runs while the kernel is compiled, so it sees the type and the shape, and no value.
"""

from __future__ import annotations

import math

from tilewright import _native
from tilewright.language._constexpr import constexpr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


class RunTimeValueError(TypeError):
    """A compile-time function needs a value that is known at run time only."""


def _refused(name: str) -> Callable[..., Any]:
    def method(self: RunTimeValue, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise RunTimeValueError(f"{name} needs the value of {self}, which is known at run time only")

    method.__name__ = name
    return method


class RunTimeValue:
    """An argument of a compile-time function with a known type; ``isinstance`` sees the class of the real value."""

    def __init__(self, value_id: int, is_descriptor: bool, attributes: dict[str, Any]) -> None:
        from tilewright.language import core

        self._id = value_id
        self._class = _native.tensor_descriptor if is_descriptor else _native.tensor
        if "numel" in attributes:
            attributes["numel"] = constexpr(math.prod(attributes["shape"]))
            attributes["shape"] = core.tuple([constexpr(extent) for extent in attributes["shape"]])
        elif is_descriptor:
            for name in ("shape", "strides"):
                attributes[name] = core.tuple(attributes[name])
        self.__dict__.update(attributes)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._class

    def __str__(self) -> str:
        return str(self.__dict__.get("type", "a value"))

    def __repr__(self) -> str:
        return f"<{self}, known at run time only>"

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        # As in a kernel, a run-time value is not None.
        return False if other is None else self._compared("==")

    def __ne__(self, other: object) -> bool:
        return True if other is None else self._compared("!=")

    _compared = _refused("a comparison")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(self._class, name):
            _refused(f"'{name}'")(self)
        raise AttributeError(f"a value of type {self} has no attribute {name!r} in a compile-time function")


_OPERATORS = (
    *(
        "add",
        "sub",
        "mul",
        "matmul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "lshift",
        "rshift",
        "and",
        "or",
        "xor",
    ),
)
for _name in (
    "lt",
    "le",
    "gt",
    "ge",
    "neg",
    "pos",
    "invert",
    "bool",
    "int",
    "float",
    "index",
    "len",
    "iter",
    "getitem",
):
    setattr(RunTimeValue, f"__{_name}__", _refused(f"'{_name}'"))
for _name in _OPERATORS:
    setattr(RunTimeValue, f"__{_name}__", _refused(f"'{_name}'"))
    setattr(RunTimeValue, f"__r{_name}__", _refused(f"'{_name}'"))
