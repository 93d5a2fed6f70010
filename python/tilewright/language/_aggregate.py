"""``triton.aggregate``: classes whose instances are values in a kernel, with annotated fields and methods.

The compiler asks here what the fields of a class are, and what a name is in it. A class stays what it is to Python.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    _Class = TypeVar("_Class", bound=type)

__all__ = ["_aggregate", "aggregate"]


def aggregate(cls: _Class) -> _Class:
    """Makes a class one that kernels can use: its annotated names are its fields.

    A field that is annotated ``tl.constexpr`` is known at compile time; one that is annotated ``tl.tensor`` is a scalar
    or tile. ``__init__`` gives each field its value; methods are ``@triton.jit`` or ``@triton.constexpr_function``.
    """
    if not isinstance(cls, type):
        raise TypeError(f"@triton.aggregate takes a class, not a {type(cls).__name__}")
    cls._tilewright_fields = tuple(_fields(cls))  # type: ignore[attr-defined]
    cls.__triton_aggregate__ = True  # type: ignore[attr-defined]
    return cls


_aggregate = aggregate


def _fields(cls: type) -> Iterator[tuple[str, str, type | None]]:
    """Each field of a class and of its bases: its name, what it may hold, and the class of an aggregate."""
    import inspect

    found: dict[str, tuple[type, Any]] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            found[name] = (base, annotation)
    for name, (base, annotation) in found.items():
        yield name, *_kind(_evaluated(annotation, base))


def _evaluated(annotation: Any, base: type) -> Any:
    """What an annotation stands for that is given as a text, where it can be found."""
    if not isinstance(annotation, str):
        return annotation
    import sys

    names = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
    try:
        return eval(annotation, dict(names), dict(vars(base)))
    except Exception:
        return annotation


def _kind(annotation: Any) -> tuple[str, type | None]:
    from tilewright.language import _constexpr, core

    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    last = name.partition("[")[0].rpartition(".")[2]
    if annotation is _constexpr.constexpr or last == "constexpr":
        return "constexpr", None
    if annotation is core.tensor or last == "tensor":
        return "tensor", None
    if isinstance(annotation, type) and "_tilewright_fields" in vars(annotation):
        return "aggregate", annotation
    return "any", None


def member(cls: type, after: type | None, name: str) -> tuple[str, Any, Any] | None:
    """What a name is in a class: a kind, a ``JITFunction`` or value, and what Python can call at compile time."""
    mro = cls.__mro__
    if after is not None:
        mro = mro[mro.index(after) + 1 :] if after in mro else ()
    for base in mro:
        if base is not object and name in vars(base):
            return _described(vars(base)[name])
    return None


def _described(raw: Any) -> tuple[str, Any, Any]:
    import functools
    import types

    if isinstance(raw, property):
        return ("property", *_function(raw.fget))
    if isinstance(raw, functools.cached_property):
        return ("property", *_function(raw.func))
    if isinstance(raw, classmethod):
        return ("class", *_function(raw.__func__))
    if isinstance(raw, staticmethod):
        inner = raw.__func__
        return "static", _jit(inner) if isinstance(inner, types.FunctionType) else inner, None
    from tilewright.runtime.jit import ConstexprFunction, JITFunction

    if isinstance(raw, (types.FunctionType, JITFunction, ConstexprFunction)):
        return ("method", *_function(raw))
    return "static", raw, None


def _function(raw: Any) -> tuple[Any, Any]:
    """The source of a method, and what Python calls instead where all arguments are known."""
    from tilewright.runtime.jit import ConstexprFunction, JITFunction

    if isinstance(raw, ConstexprFunction):
        return _jit(raw.fn), raw
    return (raw if isinstance(raw, JITFunction) else _jit(raw)), None


def _jit(function: Callable[..., Any]) -> Any:
    """The function as one of kernels; the same each time, as long as the function lives."""
    from tilewright.runtime.jit import JITFunction

    known = vars(function).get("_tilewright_jit")
    if known is None:
        known = JITFunction(function)
        function._tilewright_jit = known  # type: ignore[attr-defined]
    return known


def fields(instance: Any) -> list[Any] | None:
    """The values of an instance's fields, those that are known at compile time as ``tl.constexpr``."""
    from tilewright.language._constexpr import constexpr

    values = []
    for name, kind, _ in type(instance)._tilewright_fields:
        try:
            value = getattr(instance, name)
        except AttributeError:
            return None
        values.append(constexpr(value) if kind == "constexpr" else value)
    return values


def instance(cls: type, values: dict[str, Any]) -> Any:
    """The instance of a class with these fields."""
    made: Any = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made
