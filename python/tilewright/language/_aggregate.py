"""``triton.aggregate``: classes whose instances are values in a kernel, with annotated fields and methods.

The compiler queries the fields of a class here, and the meaning of a name in it. For Python the class does not change.
"""

from __future__ import annotations

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    _Class = TypeVar("_Class", bound=type)

__all__ = ["_aggregate", "aggregate"]


def aggregate(cls: _Class) -> _Class:
    """Makes a class usable in kernels: its annotated names are its fields.

    A field that is annotated ``tl.constexpr`` is known at compile time; one that is annotated ``tl.tensor`` is a scalar
    or tile. ``__init__`` gives each field its value; a class that does not define one takes its fields as arguments,
    those of its bases first. Methods are ``@triton.jit`` or ``@triton.constexpr_function``. An instance does not change
    once it is made: ``tl.aggregate_replace`` copies it with other values.
    """
    if not isinstance(cls, type):
        raise TypeError(f"@triton.aggregate takes a class, not a {type(cls).__name__}")
    described: Any = cls
    own = vars(cls).get("_tilewright_init", vars(cls).get("__init__"))
    described._tilewright_fields = tuple(_fields(cls))
    described._tilewright_defaults = _defaults(cls)
    described._tilewright_init = own
    described.__triton_aggregate__ = True
    described.__aggregate_fields__ = tuple(name for name, *_ in described._tilewright_fields)
    described.__aggregate_defaults__ = dict(described._tilewright_defaults)
    described.__init__ = _constructor(cls, own)
    described.__setattr__ = _set_field
    return cls


_aggregate = aggregate


def _constructor(cls: Any, own: Any) -> Callable[..., None]:
    """Returns the ``__init__`` that Python calls and that ends with final fields: the class's, or a generated one."""
    import functools

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if own is None:
            for name, value in _bound_fields(cls, args, kwargs).items():
                setattr(self, name, value)
        else:
            if _native.interpreted_program() is not None:
                args, kwargs = _passed(own, args, kwargs)
            own.__get__(self, type(self))(*args, **kwargs)
            if _native.interpreted_program() is not None:
                _return(self)
        # The constructor of a base class sets only its own fields; that of the class itself checks
        # all fields.
        if type(self) is cls:
            missing = [name for name in cls.__aggregate_fields__ if not hasattr(self, name)]
            if missing:
                raise AttributeError(
                    f"constructor for {cls.__name__} did not initialize attribute '{missing[0]}'"
                )
            object.__setattr__(self, "_tilewright_is_final", True)

    if own is not None:
        functools.update_wrapper(__init__, getattr(own, "fn", own))
        return __init__
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    import inspect

    parameter = inspect.Parameter
    defaults: dict[str, Any] = cls._tilewright_defaults
    parameters = [parameter("self", parameter.POSITIONAL_OR_KEYWORD)]
    for name in cls.__aggregate_fields__:
        before = parameters[-1]
        # A field without a default after one with a default is a keyword parameter of the shown
        # signature.
        is_keyword = before.default is not parameter.empty and name not in defaults
        kind = parameter.KEYWORD_ONLY if is_keyword else before.kind
        parameters.append(parameter(name, kind, default=defaults.get(name, parameter.empty)))
    __init__.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return __init__


def _passed(own: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a constructor in an interpreted kernel, as a call passes them in a compiled one."""
    import inspect

    bound = inspect.signature(getattr(own, "fn", own)).bind(None, *args, **kwargs)
    for name, parameter in bound.signature.parameters.items():
        if name in bound.arguments:
            is_known = _kind(parameter.annotation)[0] == "constexpr"
            bound.arguments[name] = _native.interpret_passed(bound.arguments[name], is_known)
    return bound.args[1:], bound.kwargs


def _bound_fields(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the value of each field from the arguments of a generated constructor."""
    names: tuple[str, ...] = cls.__aggregate_fields__
    if len(args) > len(names):
        raise TypeError(
            f"{cls.__name__}.__init__() takes {len(names) + 1} positional arguments but {len(args) + 1} were given"
        )
    bound = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in bound:
            raise TypeError(f"{cls.__name__}.__init__() got multiple values for argument '{name}'")
        if name not in names:
            raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument '{name}'")
        bound[name] = value
    bound = {**cls._tilewright_defaults, **bound}
    for name in names:
        if name not in bound:
            raise TypeError(f"{cls.__name__}.__init__() missing required argument: '{name}'")
    return {name: bound[name] for name in names}


def _set_field(self: Any, name: str, value: Any) -> None:
    """``self.name = value``, which only the constructor may do."""
    cls: Any = type(self)
    if name not in cls.__aggregate_fields__:
        raise AttributeError(f"{cls.__name__} has no attribute '{name}'")
    if "_tilewright_is_final" in vars(self):
        raise AttributeError(
            f"cannot assign to field '{name}' on immutable aggregate {cls.__name__}; "
            "use aggregate_replace() to construct a modified copy"
        )
    if _native.interpreted_program() is not None:
        value = _field_value(cls, name, value)
    object.__setattr__(self, name, value)


def _field_value(cls: Any, name: str, value: Any) -> Any:
    """The value that a field of an interpreted kernel's instance takes."""
    from tilewright.language._constexpr import constexpr
    from tilewright.runtime._interpreted_values import is_of_run_time

    kind = next(kind for field, kind, _ in cls._tilewright_fields if field == name)
    if kind == "constexpr" and is_of_run_time(value):
        what = "a compile-time value, as its annotation `tl.constexpr` requires"
        hint = f"annotate the field `{name}: tl.tensor` if its value is known at run time only"
    elif kind == "tensor" and isinstance(value, tuple):
        what, hint = "a tensor, as its annotation `tl.tensor` requires", None
    elif kind == "constexpr":
        is_number = isinstance(value, _native.tensor)
        return constexpr(_native.interpret_known(value)) if is_number else value
    else:
        return value if kind == "aggregate" else _native.interpret_assign(value)
    message = f"the field '{name}' of '{cls.__name__}' takes {what}"
    raise _native.interpret_mistake("TW0005", message, "this is something else", hint)


def _return(self: Any) -> None:
    """Ends a constructor in an interpreted kernel: what a call gives is known at run time only, but for constants."""
    for name in type(self).__aggregate_fields__:
        if name in vars(self):
            object.__setattr__(self, name, _native.interpret_passed(getattr(self, name), False))


def aggregate_replace(obj: Any, **fields: Any) -> Any:
    """Returns a copy of an instance with other values of these fields."""
    cls: Any = type(obj)
    if "_tilewright_fields" not in vars(cls):
        raise TypeError(f"aggregate_replace() expects an aggregate instance, got {cls}")
    for name in fields:
        if name not in cls.__aggregate_fields__:
            raise TypeError(f"{cls.__name__} has no field '{name}'")
    if _native.interpreted_program() is not None:
        fields = {name: _field_value(cls, name, value) for name, value in fields.items()}
    return instance(cls, {**{name: getattr(obj, name) for name in cls.__aggregate_fields__}, **fields})


def _fields(cls: type) -> Iterator[tuple[str, str, type | None]]:
    """Yields each field of a class and of its bases: its name, its kind, and the class of an aggregate."""
    import inspect

    found: dict[str, tuple[type, Any]] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            found[name] = (base, annotation)
    for name, (base, annotation) in found.items():
        yield name, *_kind(_evaluated(annotation, base))


def _defaults(cls: type) -> dict[str, Any]:
    """The default values of the fields of an aggregate."""
    import inspect

    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name in inspect.get_annotations(base):
            value = vars(base).get(name, inspect.Parameter.empty)
            is_value = not callable(value) or hasattr(value, "dtype")
            if value is not inspect.Parameter.empty and is_value and not hasattr(type(value), "__get__"):
                found[name] = value
    return found


def _evaluated(annotation: Any, base: type) -> Any:
    """The object that a textual annotation names, if it can be found."""
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
    """A class member: its kind, its ``JITFunction`` or value, and the function that Python calls at compile time."""
    mro = cls.__mro__
    if after is not None:
        mro = mro[mro.index(after) + 1 :] if after in mro else ()
    if name == "__init__":
        # Returns the constructor that the program wrote, and not the wrapper that Python calls.
        inits = (
            vars(base).get("_tilewright_init", vars(base).get(name)) for base in mro if base is not object
        )
        own = next((init for init in inits if init is not None), None) if after else next(inits, None)
        return None if own is None else _described(own)
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
    """Returns the source of a method, and the function that Python calls if all arguments are known."""
    from tilewright.runtime.jit import ConstexprFunction, JITFunction

    if isinstance(raw, ConstexprFunction):
        return _jit(raw.fn), raw
    return (raw if isinstance(raw, JITFunction) else _jit(raw)), None


def _jit(function: Callable[..., Any]) -> Any:
    """Returns the function as a ``JITFunction``; the same each time, as long as the function lives."""
    from tilewright.runtime.jit import JITFunction

    known = vars(function).get("_tilewright_jit")
    if known is None:
        known = JITFunction(function)
        function._tilewright_jit = known  # type: ignore[attr-defined]
    return known


def fields(instance: Any) -> list[Any] | None:
    """Returns the values of an instance's fields; compile-time values as ``tl.constexpr``."""
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
    object.__setattr__(made, "_tilewright_is_final", True)
    return made
