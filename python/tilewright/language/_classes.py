"""The classes of the language: loops, tuples, the types of tuples and descriptors, bases for ``isinstance``."""

from __future__ import annotations

import builtins
import enum
import operator

from tilewright import _native
from tilewright.language._builtin import LanguageFunction
from tilewright.language._constexpr import _unwrap_if_constexpr, constexpr
from tilewright.language._types import base_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn, TypeAlias, TypeVar

    from tilewright.language._types import block_type
    from tilewright.language.core import tensor

    _Function = TypeVar("_Function", bound=Callable[..., object])
    _Integer: TypeAlias = tensor | constexpr | int

__all__ = [
    "PROPAGATE_NAN",
    "TRITON_MAX_TENSOR_NUMEL",
    "PropagateNan",
    "base_value",
    "builtin",
    "condition",
    "dispatch",
    "extern",
    "is_builtin",
    "range",
    "slice",
    "static_range",
    "tensor_descriptor_base",
    "tensor_descriptor_type",
    "tuple",
    "tuple_type",
]

TRITON_MAX_TENSOR_NUMEL = 1048576
"""The maximum number of elements of a block."""

# Programs use this as the default of a parameter.
CONSTEXPR_0 = constexpr(0)


class _BaseValue(type):
    """The metaclass that makes the native classes of run-time values count as derived from these."""

    _covers: Any = ()

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or isinstance(instance, cls._covers)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(cls, subclass) or issubclass(subclass, cls._covers)


class base_value(metaclass=_BaseValue):
    """The base of run-time values of a kernel."""

    _covers: Any = (_native.tensor, _native.tensor_descriptor)


def _unwrap_iterable(x: Any) -> Any:
    """Returns the arguments of a call as a list; it takes them one by one or as one list."""
    x = _unwrap_if_constexpr(x)
    if len(x) == 1:
        try:
            iter(x[0])
        except TypeError:
            return x
        return x[0]
    return x


class tensor_descriptor_base(base_value):
    """A tensor in memory that is accessed by blocks."""

    _tilewright_path = "tensor_descriptor"
    _covers: Any = (_native.tensor_descriptor,)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise _native.outside_kernel(f"tl.{self._tilewright_path}")


class tensor_descriptor_type(base_type):
    """The type of a tensor descriptor: that of its blocks, and those of its extents and strides."""

    _tilewright_path = "tensor_descriptor_type"

    def __init__(self, block_type: block_type, shape_type: Any = None, strides_type: Any = None) -> None:
        self.block_type = block_type
        self.shape_type = shape_type
        self.strides_type = strides_type

    def __str__(self) -> str:
        return f"tensor_descriptor<{self.block_type}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tensor_descriptor_type) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(str(self))

    def _parts(self) -> Any:
        return [self.block_type, self.shape_type, self.strides_type]

    def mangle(self) -> str:
        """The part of a mangled name that encodes this type."""
        return f"TD{self.block_type.mangle()}"


class tuple_type(base_type):
    """The type of a tuple: those of its items, and the names of its fields."""

    _tilewright_path = "tuple_type"

    def __init__(self, types: Iterable[Any], fields: Iterable[str] | None = None) -> None:
        self.types = [*types]
        self.fields = None if fields is None else [*fields]
        self.name = f"[{','.join(str(item) for item in self.types)}]"

    def __str__(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[Any]:
        return iter(self.types)

    def __getitem__(self, index: int) -> Any:
        return self.types[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple_type) and (self.types, self.fields) == (other.types, other.fields)

    def __hash__(self) -> int:
        return hash(self.name)

    def mangle(self) -> str:
        """The part of a mangled name that encodes this type."""
        return f"T{'_'.join(item.mangle() for item in self.types)}T"


class tuple(list, base_value):  # type: ignore[type-arg]
    """A tuple; in a kernel, its items may be values at run time. On the host it is a list of its items."""

    _tilewright_path = "tuple"
    _covers: Any = ()

    def __init__(self, args: Iterable[Any] = (), type: Any = None) -> None:
        super().__init__(args)
        self.type = tuple_type([getattr(item, "type", None) for item in self]) if type is None else type

    @property
    def values(self) -> list[Any]:
        """The items."""
        return [*self]

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(_unwrap_if_constexpr(index))
        return tuple(found) if isinstance(found, list) and not isinstance(found, tuple) else found

    def __getattr__(self, name: str) -> Any:
        fields = getattr(self.__dict__.get("type"), "fields", None) or []
        if name in fields:
            return self[fields.index(name)]
        raise AttributeError(name)

    def _setitem(self, index: Any, value: Any) -> None:
        self[_unwrap_if_constexpr(index)] = value

    def __add__(self, other: Any) -> tuple:
        return tuple([*self, *other])

    def __mul__(self, times: Any) -> tuple:
        return tuple(self.values * _unwrap_if_constexpr(times))

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((*self,))

    def __repr__(self) -> str:
        return f"({', '.join(repr(item) for item in self)}{',' if len(self) == 1 else ''})"


class range:
    """A loop over integers inside a kernel, with hints for its compilation."""

    _tilewright_path = "range"

    def __init__(
        self,
        arg1: _Integer,
        arg2: _Integer | None = None,
        step: _Integer | None = None,
        num_stages: int | constexpr | None = None,
        loop_unroll_factor: int | constexpr | None = None,
        disallow_acc_multi_buffer: bool | constexpr = False,
        flatten: bool | constexpr = False,
        warp_specialize: bool | constexpr = False,
        disable_licm: bool | constexpr = False,
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

    def __iter__(self) -> Iterator[tensor]:
        if _native.interpreted_program() is None:
            raise _native.outside_kernel("tl.range")
        counter: Iterator[tensor] = _native.interpret_range(self.start, self.end, self.step)
        return counter


class static_range:
    """A loop over integers that is unrolled while a kernel is compiled."""

    _tilewright_path = "static_range"

    def __init__(
        self, arg1: int | constexpr, arg2: int | constexpr | None = None, step: int | constexpr | None = None
    ) -> None:
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step

    def __iter__(self) -> Iterator[int]:
        if _native.interpreted_program() is None:
            raise _native.outside_kernel("tl.static_range")
        import builtins

        bounds = {"start": self.start, "end": self.end, "step": self.step}
        for name, bound in bounds.items():
            if isinstance(bound, _native.tensor) and bound._known_number is None:
                message = f"the {name} of an unrolled range must be known when the kernel is compiled"
                raise _native.interpret_mistake("TW0008", message, "this is known at run time only")
        return iter(builtins.range(*map(operator.index, bounds.values())))


class condition:
    """The condition of a ``while`` inside a kernel, with hints for its compilation."""

    _tilewright_path = "condition"

    def __init__(self, arg1: tensor | constexpr | bool, disable_licm: bool | constexpr = False) -> None:
        self.condition = arg1
        self.disable_licm = disable_licm

    def __bool__(self) -> bool:
        return bool(self.condition)


class slice:
    """A slice of compile-time bounds."""

    _tilewright_path = "slice"

    def __new__(cls, start: Any, stop: Any, step: Any) -> Any:
        # An interpreted kernel uses Python's tuples, which need Python's slices.
        if _native.interpreted_program() is not None:
            return builtins.slice(start, stop, step)
        return super().__new__(cls)

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start = start
        self.stop = stop
        self.step = step


class PropagateNan(enum.Enum):
    """The treatment of a NaN by ``maximum``, ``minimum`` and ``clamp``."""

    NONE = 0
    ALL = 0xFFFF


PROPAGATE_NAN = PropagateNan


def extern(fn: _Function) -> _Function:
    """A function of the program's for kernels, such as one that calls ``extern_elementwise``.

    Triton's compiler runs its body in Python, and passes it ``_semantic``, which is ``None`` here: the body is compiled
    like that of any ``@triton.jit`` function.
    """
    import inspect

    from tilewright.runtime.jit import jit

    if any(param.kind is param.VAR_KEYWORD for param in inspect.signature(fn).parameters.values()):
        # A function that kernels cannot call: the call is an error.
        return fn
    made: Any = jit(fn)
    return made  # type: ignore[no-any-return]


builtin = extern


def dispatch(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Calls a function of a device library; ``extern_elementwise`` does this in a kernel."""
    raise _native.outside_kernel("tl.core.dispatch")


def is_builtin(fn: Any) -> bool:
    """Returns whether this is a function of the language."""
    return isinstance(fn, LanguageFunction)
