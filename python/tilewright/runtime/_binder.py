"""The steps of a launch with its arguments, in Python: the parts that tools around Triton take from ``runtime.jit``.

Launches themselves are in the native module, and follow the same rules.
"""

from __future__ import annotations

from tilewright import _native
from tilewright.errors import LaunchTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable
    from typing import Any


def native_specialize_impl(
    backend: Any, arg: Any, is_const: bool = False, specialize_value: bool = True, align: bool = True
) -> tuple[Any, Any]:
    """Returns the type of an argument in a signature, and its other specialization: ``("*fp32", "D")``."""
    from tilewright.language._constexpr import constexpr

    if arg is None:
        return ("constexpr", None)
    if isinstance(arg, tuple):
        parts = [native_specialize_impl(backend, item, is_const, specialize_value, align) for item in arg]
        types, keys = tuple(part[0] for part in parts), tuple(part[1] for part in parts)
        fields = getattr(arg, "_fields", None)
        return (type(arg)(*types) if fields else types, type(arg)(*keys) if fields else keys)
    if isinstance(arg, constexpr):
        return ("constexpr", arg)
    if hasattr(arg, "cache_key") and hasattr(arg, "fn"):
        return ("constexpr", arg.cache_key)
    if isinstance(arg, int) and not isinstance(arg, bool):
        if arg == 1 and specialize_value:
            return ("constexpr", 1)
        kind = str(_native.describe_argument(arg))
        return (kind, backend.get_int_specialization(arg, align=align) if specialize_value else None)
    kind = str(_native.describe_argument(arg))
    if hasattr(arg, "data_ptr"):
        key = backend.get_tensor_specialization(arg, align=align) if specialize_value else None
        return (f"*k{kind[1:]}" if is_const and kind.startswith("*") else kind, key)
    return (kind, None)


def create_function_from_signature(
    sig: inspect.Signature, kparams: list[Any], backend: Any
) -> Callable[..., tuple[dict[str, Any], list[tuple[Any, Any]], dict[str, Any]]]:
    """Returns a function that binds the arguments of a launch.

    It returns them by name, the type and the specialization of each, and the options.
    """

    def bind(*args: Any, **kwargs: Any) -> tuple[dict[str, Any], list[tuple[Any, Any]], dict[str, Any]]:
        options = {name: value for name, value in kwargs.items() if name not in sig.parameters}
        try:
            bound = sig.bind(*args, **{name: kwargs[name] for name in kwargs if name in sig.parameters})
        except TypeError as error:
            raise LaunchTypeError(str(error)) from None
        bound.apply_defaults()
        return dict(bound.arguments), specialized(kparams, backend, bound.arguments), options

    return bind


def specialized(kparams: list[Any], backend: Any, values: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Returns the type of each argument, and its other specialization."""
    found = []
    for param in kparams:
        value = values[param.name]
        if param.is_constexpr:
            found.append(("constexpr", value))
            continue
        aligned = not param.do_not_specialize_on_alignment
        kind, key = native_specialize_impl(
            backend, value, param.is_const, not param.do_not_specialize, aligned
        )
        found.append((param.annotation_type or kind if kind != "constexpr" else kind, key))
    return found


def compute_cache_key(kernel_key_cache: dict[Any, str], specialization: Any, options: Any) -> str:
    """Returns the text that identifies a variant of a kernel; kept in a dict."""
    key = (tuple(specialization), str(options))
    if key not in kernel_key_cache:
        kernel_key_cache[key] = str(_without_functions(specialization)) + str(options)
    return kernel_key_cache[key]


def _without_functions(obj: Any) -> Any:
    """Replaces kernels by their identity, which does not depend on their address in memory."""
    if isinstance(obj, (list, tuple)):
        items = [_without_functions(item) for item in obj]
        return type(obj)(*items) if hasattr(obj, "_fields") else type(obj)(items)
    return obj.cache_key if hasattr(obj, "cache_key") else obj


def serialize_specialization_data(
    name: str, signature: Any, constants: Any, attrs: Any, options: Any, key: str, target: Any
) -> str:
    """Describes a variant of a kernel as text, which ``JITFunction.preload`` compiles in another process."""
    import json

    constants = {str(place): _plain(value) for place, value in constants.items()}
    found = {
        "name": name,
        "signature": signature,
        "constants": constants,
        "attrs": [[list(place), value] for place, value in attrs.items()],
        "options": options if isinstance(options, dict) else options.__dict__,
        "key": key,
        "target": [target.backend, target.arch, target.warp_size],
    }
    return json.dumps(found)


def _plain(value: Any) -> Any:
    """Converts a compile-time value to JSON."""
    from tilewright.language._constexpr import constexpr
    from tilewright.language._types import dtype
    from tilewright.runtime.jit import JITFunction

    if isinstance(value, constexpr):
        return {"constexpr": _plain(value.value)}
    if isinstance(value, dtype):
        return {"dtype": str(value)}
    if isinstance(value, JITFunction):
        return {"jit_function": _registered_name(value)}
    if isinstance(value, (tuple, list)):
        return {"tuple": [_plain(item) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"object": repr(value)}


def _registered_name(function: Any) -> str:
    return f"{function.module}:{function.fn.__qualname__}"


def _from_plain(value: Any) -> Any:
    """Converts a compile-time value from JSON."""
    if not isinstance(value, dict):
        return value
    from tilewright.language._constexpr import constexpr
    from tilewright.language._types import dtype
    from tilewright.runtime import jit

    [(kind, held)] = value.items()
    if kind == "constexpr":
        return constexpr(_from_plain(held))
    if kind == "dtype":
        return dtype(held)
    if kind == "tuple":
        return tuple(map(_from_plain, held))
    if kind == "jit_function":
        for function in jit._functions:
            if _registered_name(function) == held:
                return function
        raise LaunchTypeError(
            f"the data names the function '{held}', which the program has not: import it first"
        )
    raise LaunchTypeError(f"the data has {held} as a compile-time value, which has no textual form")


def create_binder(kernel: Any) -> tuple[dict[Any, Any], dict[Any, str], Any, Any, Callable[..., Any]]:
    """Returns empty caches for the variants of a kernel and their keys, the target, its back end, and the binder."""
    from tilewright.backends.compiler import GPUTarget
    from tilewright.compiler.compiler import make_backend

    target = GPUTarget(*_native.current_target())
    backend = make_backend(target)
    return {}, {}, target, backend, create_function_from_signature(kernel.signature, kernel.params, backend)


class DeviceCaches(dict):  # type: ignore[type-arg]
    """The result of ``create_binder`` for each device that a tool requests.

    A tool keeps what it compiles there. Launches keep their variants in the native module, and ``clear`` drops both.
    """

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self._kernel = kernel

    def __missing__(self, device: Any) -> Any:
        self[device] = made = self._kernel.create_binder()
        return made

    def clear(self) -> None:
        """Drops all variants."""
        super().clear()
        self._kernel.clear_cache()


def pack_args(
    kernel: Any,
    backend: Any,
    kwargs: dict[str, Any],
    bound_args: dict[str, Any],
    specialization: Any,
    options: Any,
) -> tuple[Any, dict[str, Any], dict[tuple[int, ...], Any], dict[tuple[int, ...], Any]]:
    """Converts bound arguments to those of ``ASTSource``: options, types, compile-time values, attributes."""
    from tilewright._utils import find_paths_if, get_iterable_path

    parsed = backend.parse_options(kwargs)
    types = [kind for kind, _ in specialization]
    keys = [key for _, key in specialization]
    signature = dict(zip(kernel.arg_names, types, strict=True))
    values = list(bound_args.values())
    places = find_paths_if(types, lambda _, kind: kind == "constexpr")
    constants = {place: get_iterable_path(values, place) for place in places}
    others = find_paths_if(keys, lambda place, key: isinstance(key, str) and place not in constants)
    attrs = {place: backend.parse_attr(get_iterable_path(keys, place)) for place in others}
    return parsed, signature, constants, attrs


def do_compile(
    kernel: Any, signature: Any, constants: Any, attrs: Any, options: Any, target: Any = None
) -> Any:
    """Compiles a described variant of a kernel."""
    from tilewright.compiler.compiler import ASTSource, compile

    given = options if isinstance(options, dict) else dict(options.__dict__)
    given.pop("backend_name", None)
    return compile(ASTSource(kernel, signature, constants, attrs), target=target, options=given)


def preload(kernel: Any, specialization_data: str) -> Any:
    """Compiles the variant of a kernel that ``serialize_specialization_data`` has described."""
    import ast
    import json

    from tilewright.backends.compiler import GPUTarget

    found = json.loads(specialization_data)
    if found["name"] != kernel._fn_name:
        raise LaunchTypeError(f"the data is of kernel '{found['name']}', not of '{kernel._fn_name}'")

    constants = {ast.literal_eval(place): _from_plain(value) for place, value in found["constants"].items()}
    signature = {name: _tuples(kind) for name, kind in found["signature"].items()}
    attrs = {tuple(place): value for place, value in found["attrs"]}
    target = GPUTarget(*found["target"])
    known = {name for name, _ in _native.compile_options()}
    options = {name: _tuples(value) for name, value in found["options"].items() if name in known}
    return do_compile(kernel, signature, constants, attrs, options, target)


def _tuples(value: Any) -> Any:
    """Converts the lists of JSON back to tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
