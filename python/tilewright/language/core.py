"""The classes of the language, and what programs import from ``triton.language.core``."""

from __future__ import annotations

import enum

from tilewright import _native
from tilewright.language._aggregate import *  # noqa: F403
from tilewright.language._aggregate import __all__ as _aggregate_names
from tilewright.language._builtin import LanguageFunction, functions
from tilewright.language._constexpr import *  # noqa: F403
from tilewright.language._constexpr import __all__ as _constexpr_names
from tilewright.language._types import *  # noqa: F403
from tilewright.language._types import __all__ as _type_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

TRITON_MAX_TENSOR_NUMEL = 1048576
"""The most elements that a block may have."""

# Programs write it as the default of a parameter.
CONSTEXPR_0 = constexpr(0)  # noqa: F405


class _OnlyInKernels:
    """Something that only the compiler makes."""

    _tilewright_path: str

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise _native.outside_kernel(f"tl.{self._tilewright_path}")


class base_value:
    """The base of values at run time of a kernel."""


class tensor(_OnlyInKernels, base_value):
    """A block of values, or one value, at run time of a kernel."""

    _tilewright_path = "tensor"


class tensor_descriptor_base(_OnlyInKernels, base_value):
    """A tensor in memory that is accessed by blocks."""

    _tilewright_path = "tensor_descriptor"


class tensor_descriptor(tensor_descriptor_base):
    """A tensor in memory that is accessed by blocks, made inside a kernel."""


class tuple(_OnlyInKernels, base_value):
    """A tuple with values at run time of a kernel."""

    _tilewright_path = "tuple"


class range:
    """A loop over integers inside a kernel, with wishes for its compilation."""

    _tilewright_path = "range"

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: int | None = None,
        loop_unroll_factor: int | None = None,
        disallow_acc_multi_buffer: bool = False,
        flatten: bool = False,
        warp_specialize: bool = False,
        disable_licm: bool = False,
    ) -> None:
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step
        self.num_stages = num_stages
        self.loop_unroll_factor = loop_unroll_factor
        self.disallow_acc_multi_buffer = disallow_acc_multi_buffer
        self.flatten = flatten
        self.warp_specialize = warp_specialize
        self.disable_licm = disable_licm

    def __iter__(self) -> Iterator[Any]:
        raise _native.outside_kernel("tl.range")


class static_range:
    """A loop over integers that is unrolled while a kernel is compiled."""

    _tilewright_path = "static_range"

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step

    def __iter__(self) -> Iterator[Any]:
        raise _native.outside_kernel("tl.static_range")


class condition:
    """The condition of a ``while`` inside a kernel, with wishes for its compilation."""

    _tilewright_path = "condition"

    def __init__(self, arg1: Any, disable_licm: bool = False) -> None:
        self.condition = arg1
        self.disable_licm = disable_licm


class slice:
    """A slice of compile-time bounds."""

    _tilewright_path = "slice"

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start = start
        self.stop = stop
        self.step = step


class PropagateNan(enum.Enum):
    """What ``maximum``, ``minimum`` and ``clamp`` do with a NaN."""

    NONE = 0
    ALL = 0xFFFF


PROPAGATE_NAN = PropagateNan


def builtin(fn: _Function) -> _Function:
    """Extends the compiler of the official Triton; here nothing could call the function."""
    return fn


def extern(fn: _Function) -> _Function:
    """Extends the compiler of the official Triton; here nothing could call the function."""
    return fn


def dispatch(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Calls a function of a device library; only kernels could."""
    raise _native.outside_kernel("tl.core.dispatch")


def extern_elementwise(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Calls a function of a device library for each element; only kernels could."""
    raise _native.outside_kernel("tl.core.extern_elementwise")


def is_builtin(fn: Any) -> bool:
    """Whether this is a function of the language."""
    return isinstance(fn, LanguageFunction)


_NAMES = [
    *_aggregate_names,
    *_constexpr_names,
    *_type_names,
    "PROPAGATE_NAN",
    "TRITON_MAX_TENSOR_NUMEL",
    "PropagateNan",
    "base_value",
    "builtin",
    "condition",
    "dispatch",
    "extern",
    "extern_elementwise",
    "is_builtin",
    "range",
    "slice",
    "static_range",
    "tensor",
    "tensor_descriptor",
    "tensor_descriptor_base",
    "tuple",
]

# The compiler's table has the classes as well: inside kernels, some are called like functions.
_FUNCTIONS = {name: function for name, function in functions().items() if name not in _NAMES}
globals().update(_FUNCTIONS)

__all__ = [*_NAMES, *_FUNCTIONS]
