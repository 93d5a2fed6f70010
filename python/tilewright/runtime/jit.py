"""``@jit``: makes a kernel of a Python function.

The class here gathers the properties of the function that Python knows. Its base class, in Rust, does a launch, from
``kernel[grid](...)`` on.
"""

from __future__ import annotations

import functools
import os
from _weakrefset import WeakSet

from tilewright import _environment, _native
from tilewright._kept_names import kept
from tilewright.errors import LaunchTypeError, LaunchValueError, TritonError, hide_own_frames
from tilewright.language._constexpr import constexpr
from tilewright.language._types import dtype, pointer_type
from tilewright.runtime._plain_values import plain
from tilewright.runtime._tensors import MockTensor as MockTensor
from tilewright.runtime._tensors import TensorWrapper as TensorWrapper
from tilewright.runtime._tensors import reinterpret as reinterpret

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable
    from typing import Any, Generic, overload

    from tilewright.runtime._kernel_types import JitDecorator, Launcher
    from tilewright.runtime._kernel_types import P as P
    from tilewright.runtime._kernel_types import R as R
else:
    # The module typing would cost a quarter of the import of tilewright.
    from types import GenericAlias

    class _Generic:
        __class_getitem__ = classmethod(GenericAlias)

    P = R = None
    Generic = {(P, R): _Generic}

    def overload(function):  # noqa: D103
        return function


_functions: WeakSet[JITFunction[..., Any]] = WeakSet()
"""All kernels, by whose names a variant that was described in another process finds its functions."""

_OF_BINDER = frozenset(
    (
        "compute_cache_key",
        "create_function_from_signature",
        "native_specialize_impl",
        "serialize_specialization_data",
    )
)


_OF_UTILS = frozenset(("find_paths_if", "get_iterable_path", "is_namedtuple", "type_canonicalisation_dict"))

TRITON_MODULE = "triton.language"
GLUON_MODULE = "triton.experimental.gluon.language"


def __getattr__(name: str) -> object:
    return kept(globals(), name, _find)


def _find(name: str) -> object:
    # Not imported with the package: launches need none of it.
    if name in _OF_UTILS:
        from tilewright import _utils

        return getattr(_utils, name)
    if name == "knobs":
        from tilewright import knobs

        return knobs
    if name in ("driver", "get_cuda_stream", "get_current_device", "set_current_device"):
        from tilewright.runtime.driver import driver

        return driver if name == "driver" else getattr(driver, name)
    if name == "get_cache_key":
        from tilewright.runtime.cache import get_cache_key

        return get_cache_key
    if name == "get_cache_invalidating_env_vars":
        from tilewright._C import libtriton

        return libtriton.get_cache_invalidating_env_vars
    if name == "JitFunctionInfo":
        from tilewright.runtime._hooks import JitFunctionInfo

        return JitFunctionInfo
    if name == "DependenciesFinder":
        from tilewright.runtime._cache_key import DependenciesFinder

        return DependenciesFinder
    if name in _OF_BINDER:
        from tilewright.runtime import _binder

        return getattr(_binder, name)
    if name == "_replace_jit_callables":
        from tilewright.runtime._binder import _without_functions

        return _without_functions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


class KernelInterface(Generic[P, R]):
    """An object that launches: ``kernel[grid](...)``, ``kernel.run(..., grid=, warmup=)``, ``kernel.warmup(...)``."""

    run: Callable[..., Any]

    # Because of `[grid]`, Python would take it for an endless sequence.
    __iter__ = None

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compiles without running; dtypes may replace tensors."""
        args = tuple(map(MockTensor.wrap_dtype, args))
        kwargs = {name: MockTensor.wrap_dtype(value) for name, value in kwargs.items()}
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid: Any) -> Launcher[P]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            try:
                return self.run(*args, grid=grid, warmup=False, **kwargs)
            except TritonError as error:
                hide_own_frames(error)
                raise error

        return launch


class KernelParam:
    """A parameter of a kernel."""

    def __init__(
        self,
        num: int,
        param: inspect.Parameter,
        do_not_specialize: bool = False,
        do_not_specialize_on_alignment: bool = False,
    ) -> None:
        self.num = num
        self._param = param
        self.name: str = param.name
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment
        self.has_default: bool = param.default is not param.empty
        self.default: Any = param.default
        self.annotation: str = "" if param.annotation is param.empty else _annotation_text(param.annotation)
        last = self.annotation.rpartition(".")[2]
        self.is_constexpr: bool = last == "constexpr" or "constexpr[" in self.annotation
        self.is_const: bool = last == "const" or self.annotation.startswith("*k")
        self.annotation_type: str = _annotation_type(self.annotation)

    def __repr__(self) -> str:
        return f"KernelParam({self._param})"


def _annotation_text(annotation: Any) -> str:
    """Returns an annotation as text: ``constexpr`` for ``tl.constexpr``, ``i64`` for ``tl.int64``, strings as is."""
    if isinstance(annotation, str):
        return annotation.strip().strip("'\"")
    if isinstance(annotation, type):
        return annotation.__name__
    if isinstance(annotation, dtype):
        return mangle_type(annotation)
    return str(annotation)


def _annotation_type(annotation: str) -> str:
    """Returns the type that an annotation forces upon an argument, as in a signature: ``i64``; empty if none."""
    name = annotation.rpartition(".")[2]
    name = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}.get(name, name)
    if name.startswith(("int", "uint")) and name[-1:].isdigit():
        name = name.replace("uint", "u").replace("int", "i")
    name = {"i1": "u1", "bool": "u1"}.get(name, name)
    return name if name in _SCALARS else ""


_normalize_ty = _annotation_type

_SCALARS = frozenset(
    ("u1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"),
)


def mangle_type(arg: Any, specialize: bool = False) -> str:
    """The type of an argument as a signature writes it: ``*fp32``, ``i32``."""
    if isinstance(arg, pointer_type):
        return f"*{mangle_type(arg.element_ty)}"
    if isinstance(arg, dtype):
        if arg.is_int():
            return "u1" if arg.is_int1() else arg.mangle()
        return arg.name
    described: str = _native.describe_argument(arg)
    return described


class JITCallable:
    """A function with a source that can become a kernel, or that kernels can call."""

    fn: Any
    _src: str | None
    raw_src: list[str]
    """The lines of the source as they are in the file, decorators included."""
    starting_line_number: Any
    file_name: Any
    def_file_line_number: Any
    def_file_col_number: Any

    @property
    def src(self) -> str:
        """The source, from the ``def`` on; empty if the function has none, as interpreted ones may."""
        return _from_definition(self._src or "")

    @src.setter
    def src(self, _value: str) -> None:
        raise AttributeError(
            "src is not set directly: call _unsafe_update_src(text), which forgets what was compiled"
        )

    def _get_src(self) -> str:
        return self.src

    def _set_src(self) -> None:
        """Does nothing: the source is read with the function."""

    def parse(self) -> Any:
        """The syntax tree of the function, as Python's ``ast`` has it."""
        import ast

        return ast.parse(self.src)

    def get_capture_scope(self) -> dict[str, Any]:
        """The globals and the variables around the function."""
        import inspect

        return {**self.fn.__globals__, **inspect.getclosurevars(self.fn).nonlocals}


@functools.lru_cache
def _from_definition(text: str) -> str:
    return text[max(text.find("def "), 0) :]


def get_def_line_number(raw_src: list[str], starting_line_number: int) -> int:
    """The line of the ``def`` in a source that begins with decorators."""
    for number, line in enumerate(raw_src):
        if line.strip().startswith("def "):
            return starting_line_number + number
    return starting_line_number


def get_def_col_number(raw_src_str: str) -> int:
    """The column of the ``def`` in its line, counted from 1."""
    for line in raw_src_str.splitlines():
        if line.strip().startswith("def "):
            return line.find("def ") + 1
    return 1


def _first_definition(text: str) -> tuple[str | None, int]:
    """The name of the first function of a text, and the lines before its ``def``."""
    import re

    found = re.search(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", text, re.MULTILINE)
    return (found[1], text.count("\n", 0, found.start())) if found else (None, 0)


def _place(name: str, doc: str) -> Any:
    """An attribute with the position of the source, for errors and debuggers; programs that make kernels assign it."""

    def fget(self: JITFunction[..., Any]) -> Any:
        return self.__dict__[f"_{name}"]

    def fset(self: JITFunction[..., Any], value: Any) -> None:
        self.__dict__[f"_{name}"] = value
        self._replace_native_source()

    return property(fget, fset, doc=doc)


def get_full_name(fn: Any) -> str:
    """The name of a function with that of its module."""
    return f"{fn.__module__}.{fn.__qualname__}"


def convert_to_tuple_if_list(item: Any) -> Any:
    """Lists within lists as tuples within tuples, for keys."""
    return tuple(map(convert_to_tuple_if_list, item)) if isinstance(item, list) else item


class JITFunction(_native.JitKernel, JITCallable, KernelInterface[P, R]):
    """A kernel, or a function that kernels call."""

    if TYPE_CHECKING:
        # The base class in Rust defines both.
        def __getitem__(self, grid: Any) -> Launcher[P]: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...  # noqa: D102
        @overload
        def __call__(self, *args: Any, **kwargs: Any) -> R: ...  # noqa: D102, F811
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # noqa: D102, F811

    file_name = _place("file_name", "The file that the function is in.")
    starting_line_number = _place(
        "starting_line_number", "The line of its first decorator, or of the ``def``."
    )
    def_file_line_number = _place("def_file_line_number", "The line of the ``def``.")
    def_file_col_number = _place("def_file_col_number", "The column of the ``def``, counted from 1.")

    def __init__(
        self,
        fn: Callable[..., Any],
        version: Any = None,
        do_not_specialize: Any = None,
        do_not_specialize_on_alignment: Any = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[Any], str] | None = None,
        launch_metadata: Any = None,
        interpret: bool | None = None,
    ) -> None:
        import inspect
        import threading

        unspecialized, unaligned = do_not_specialize or [], do_not_specialize_on_alignment or []
        self.fn = fn
        self.module: str = fn.__module__
        self.version = version
        self.signature = inspect.signature(fn)
        self.do_not_specialize = unspecialized
        self.do_not_specialize_on_alignment = unaligned
        for name, param in self.signature.parameters.items():
            if param.kind is param.VAR_KEYWORD:
                raise LaunchTypeError(
                    f"@triton.jit takes no function with a '**' parameter, such as '**{name}' of '{fn.__name__}': name "
                    "the parameters"
                )
        self.params: list[KernelParam] = [
            KernelParam(
                number,
                param,
                number in unspecialized or name in unspecialized,
                number in unaligned or name in unaligned,
            )
            for number, (name, param) in enumerate(self.signature.parameters.items())
        ]
        self.arg_names: list[str] = [param.name for param in self.params]
        self.constexprs: list[int] = [param.num for param in self.params if param.is_constexpr]
        self.debug = debug
        self.noinline = noinline
        self.launch_metadata = launch_metadata
        self._repr = repr
        self._interpret = interpret if interpret is not None or not is_interpreting() else True
        self._is_replaced = False
        self._src, self.raw_src, first_line = None, [], fn.__code__.co_firstlineno
        try:
            self._src, self.raw_src, first_line = _source(fn)
        except LaunchValueError:
            # An interpreted function can run without its source.
            if not self._interpret:
                raise
        # The name of the function in its source; a text that replaces the source may have another one.
        self._code_name: str = fn.__code__.co_name
        self.file_name = fn.__code__.co_filename
        self.starting_line_number = first_line
        self.def_file_line_number = get_def_line_number(self.raw_src, first_line)
        self.def_file_col_number = get_def_col_number("".join(self.raw_src))
        self.hash: str | None = None
        self.kernel: Any = None
        self.pre_run_hooks: list[Callable[..., Any]] = []
        # Inductor resets this attribute before it sends a kernel from a compile worker.
        self.used_global_vals: dict[Any, Any] | None = {}
        self._hash_lock = threading.RLock()

        # Attributes that users read from functions.
        self.__name__: str = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__module__ = fn.__module__
        self.__doc__ = fn.__doc__
        self.__globals__ = fn.__globals__
        # `inspect.signature`, `inspect.getsource` and doctest read this attribute.
        self.__wrapped__ = fn
        self._fn_name = f"{fn.__module__}.{fn.__qualname__}"

        self._define_native()
        _functions.add(self)
        if "TILEWRIGHT_LOCK" in os.environ:
            _prepare_lock()

    def _define_native(self) -> None:
        """Describes the function to the native part; one that was unpickled without its function is described later."""
        self._define(
            name=self._code_name,
            file=shown_name(self.file_name),
            text=self._src or "",
            first_line=self._first_line,
            removed_columns=self._removed_columns,
            noinline=bool(self.noinline),
            debug=bool(self.debug),
            params=[
                (
                    p.name,
                    p.is_constexpr,
                    p.annotation_type,
                    p.do_not_specialize,
                    p.do_not_specialize_on_alignment,
                    int(p._param.kind),
                )
                for p in self.params
            ],
        )

    def _is_to_be_interpreted(self) -> bool:
        """Returns whether Python runs the body: checked when the kernel is made and at its first launch."""
        is_interpreted = self._interpret
        if is_interpreted is None:
            import sys

            # A program that does not import the knobs has not assigned one: the first launch does
            # not wait for the import.
            knobs = sys.modules.get("tilewright.knobs")
            is_interpreted = is_interpreting() or bool(knobs and knobs.runtime.interpret)
        if not is_interpreted:
            _environment.say_missing_stages()
        return bool(is_interpreted)

    @property
    def _first_line(self) -> int:
        """The line of the file at which the source begins."""
        return int(max(self.def_file_line_number - _first_definition(self._src or "")[1], 1))

    @property
    def _removed_columns(self) -> int:
        """The columns that the lines of the source have in the file, and not in the text."""
        return int(max(self.def_file_col_number - 1, 0))

    def _unsafe_update_src(self, new_src: str) -> None:
        """Replaces the source, from the ``def`` on, and forgets compiled variants.

        The first function of the text counts, whatever its name is. The parameters stay those of the function. Kernels
        that call it and were compiled before keep the old one.
        """
        self._src = new_src
        self._is_replaced = True
        self._code_name = _first_definition(new_src)[0] or self._code_name
        self.hash = None
        self._replace_native_source()

    def _replace_native_source(self) -> None:
        """Passes a changed source or position to the native part."""
        if self._is_defined():
            self._replace_source(
                name=self._code_name,
                file=shown_name(self.file_name),
                text=self._src or "",
                first_line=self._first_line,
                removed_columns=self._removed_columns,
            )

    @property
    def cache_key(self) -> str:
        """A digest of the source and its position, the globals that it reads, and tilewright's version."""
        known: tuple[str, Any] | None = self.__dict__.get("_known_key")
        if known is not None and known[1] is not None and _native.is_unchanged(known[1]):
            return known[0]
        from tilewright.runtime._cache_key import cache_key

        self._known_key: tuple[str, Any] = cache_key(self)
        return self._known_key[0]

    @property
    def type(self) -> constexpr:
        """Returns the type of a compile-time value, as which kernels pass functions."""
        found = self.__dict__.get("_type")
        if found is None:
            found = self.__dict__.setdefault("_type", constexpr(self))
        return found  # type: ignore[no-any-return]

    def repr(self, specialization: Any) -> str:
        """The name of a compiled variant."""
        return self._fn_name if self._repr is None else self._repr(specialization)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Returns itself: a kernel has no ``self``; a method of an aggregate has one.

        ``help()`` shows an object that has this method as a function.
        """
        if instance is not None and hasattr(type(instance), "_tilewright_fields"):
            import types

            return types.MethodType(self, instance)
        return self

    def _warmup_in_mode(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Does the same as ``warmup``, on a thread of the ``triton.AsyncCompileMode`` that is active, if one is."""
        from tilewright.runtime._async_compile import active_mode

        def compiled() -> Any:
            return self.run(*args, grid=grid, warmup=True, **kwargs)

        mode = active_mode.get()
        if mode is None:
            return compiled()
        described = [str(_native.describe_argument(arg)) for arg in (*args, *kwargs.values())]
        key = (
            self.cache_key,
            *described,
            repr([value for value in kwargs.values() if not hasattr(value, "dtype")]),
        )
        return mode.submit((*key, tuple(kwargs)), compiled)

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Calls ``hook(*args, **kwargs)`` before each launch."""
        self.pre_run_hooks.append(hook)
        self._set_pre_run_hooks(tuple(self.pre_run_hooks))

    @property
    def device_caches(self) -> dict[Any, tuple[dict[Any, Any], dict[Any, str], Any, Any, Callable[..., Any]]]:
        """A cache and a binder for each device, for tools that compile as launches do; see ``_binder.py``."""
        found = self.__dict__.get("_device_caches")
        if found is None:
            from tilewright.runtime._binder import DeviceCaches

            found = self.__dict__.setdefault("_device_caches", DeviceCaches(self))
        return found  # type: ignore[no-any-return]

    def create_binder(self) -> tuple[dict[Any, Any], dict[Any, str], Any, Any, Callable[..., Any]]:
        """Returns a function that binds arguments as launches do, for tools that look at it; see ``_binder.py``."""
        from tilewright.compiler import ASTSource, CompiledKernel, compile
        from tilewright.runtime import _binder

        # Tools that bind arguments compile by these attributes.
        self.ASTSource, self.CompiledKernel, self.compile = ASTSource, CompiledKernel, compile
        return _binder.create_binder(self)

    def _pack_args(
        self, backend: Any, kwargs: Any, bound_args: Any, specialization: Any, options: Any
    ) -> tuple[Any, Any, Any, Any]:
        from tilewright.runtime import _binder

        return _binder.pack_args(self, backend, kwargs, bound_args, specialization, options)

    def _do_compile(
        self, key: str, signature: Any, device: Any, constexprs: Any, options: Any, attrs: Any, warmup: bool
    ) -> Any:
        from tilewright.runtime import _binder

        return _binder.do_compile(self, signature, constexprs, attrs, options)

    def _call_hook(
        self,
        hook: Any,
        key: str,
        signature: Any,
        target: Any,
        device: Any,
        constants: Any,
        options: Any,
        configs: Any,
        is_warmup: bool,
    ) -> bool | None:
        from tilewright.runtime import _hooks

        named = dict(zip(self.arg_names, (constants.get((n,)) for n in range(len(self.params))), strict=True))
        return None if hook is None else _hooks._call(hook, self, named, is_warmup)

    def preload(self, specialization_data: str) -> Any:
        """Compiles a variant that was described in another process: ``compile["specialization_data"]`` of a hook."""
        from tilewright.runtime import _binder

        return _binder.preload(self, specialization_data)

    def is_gluon(self) -> bool:
        """Returns whether this is a function of the Gluon language: never."""
        return False

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Copies and pickles like a function: as itself, and by its name.

        A kernel from which Inductor has removed the function is its attributes; it only describes a kernel.
        """
        attributes = dict(self.__dict__)
        if attributes["fn"] is not None:
            return self.__qualname__
        for name in ("__globals__", "__wrapped__", "pre_run_hooks", "_device_caches", "_known_key", "_type"):
            attributes.pop(name, None)
        return _native.JitKernel.__new__, (type(self),), attributes

    def __repr__(self) -> str:
        return f"JITFunction({self.module}:{self.__qualname__})"


@functools.cache
def _prepare_lock() -> None:
    """Prepares the kernels of the lock in the background: the first launch of each then takes less time."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_native.lock_end_preparation)
    _native.lock_prepare()


def is_interpreting() -> bool:
    """Returns whether an environment variable requests interpret mode."""
    import os

    variables = (os.environ.get(name, "") for name in ("TILEWRIGHT_INTERPRET", "TRITON_INTERPRET"))
    return any(value.lower() in ("1", "true", "yes", "on", "y") for value in variables)


def shown_name(file_name: str) -> str:
    """Returns the name of a file in findings. A notebook has a file for each cell, shown by the cell's number."""
    import sys

    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if name_of is not None and (found := name_of(file_name)) is not None:
        return " ".join(found)
    # Bytes of a path that are not UTF-8 are shown escaped.
    return file_name.encode(errors="surrogateescape").decode(errors="replace")


def _source(fn: Callable[..., Any]) -> tuple[str, list[str], int]:
    """Returns the text of a function without its indentation, its lines with it, and the number of the first."""
    import inspect

    try:
        lines, first_line = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        from tilewright.runtime._typed_source import source_lines

        found = source_lines(fn)
        if found is None:
            raise LaunchValueError(
                f"the source of '{getattr(fn, '__name__', fn)}' is not available: @triton.jit compiles the source of a "
                "function, so it must be defined in a file or in a notebook cell, or the text that is given to exec() "
                "must still be the value of a variable"
            ) from None
        lines, first_line = found
    prefix = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    # Lines with less indentation are comments, or continue a string or an expression: they stay unchanged.
    return "".join(line.removeprefix(prefix) for line in lines), lines, max(first_line, 1)


# ruff recognizes `overload` only if the module imports the name itself.
@overload
def jit(fn: Callable[P, R]) -> JITFunction[P, R]: ...  # noqa: D103
@overload
def jit(  # noqa: D103, F811
    *,
    version: Any = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Any = None,
    do_not_specialize: Any = None,
    do_not_specialize_on_alignment: Any = None,
    debug: bool | None = None,
    noinline: bool | None = None,
    interpret: bool | None = None,
) -> JitDecorator: ...
def jit(  # noqa: F811
    fn: Any = None,
    *,
    version: Any = None,
    repr: Any = None,
    launch_metadata: Any = None,
    do_not_specialize: Any = None,
    do_not_specialize_on_alignment: Any = None,
    debug: bool | None = None,
    noinline: bool | None = None,
    interpret: bool | None = None,
    **unknown: Any,
) -> Any:
    """Makes a function a kernel: ``@triton.jit``, or ``@triton.jit(noinline=True)``.

    Its body is compiled, not run by Python. It may use the functions of ``triton.language``, other ``@jit``
    functions, and globals declared ``tl.constexpr``. With ``noinline=True``, calls from other functions stay calls, for
    smaller code on a GPU; results are the same. With ``interpret=True`` Python runs the body (docs/interpret-mode.md).
    """
    # Programs read the options from `inspect.signature`.
    options = {
        "version": version,
        "repr": repr,
        "launch_metadata": launch_metadata,
        "do_not_specialize": do_not_specialize,
        "do_not_specialize_on_alignment": do_not_specialize_on_alignment,
        "debug": debug,
        "noinline": noinline,
        "interpret": interpret,
    }
    for name in unknown:
        raise TypeError(
            f"@triton.jit takes no {name}, but {', '.join(options)}; options of a launch are passed with it, "
            "`kernel[grid](..., num_warps=4)`, or set in a triton.Config"
        )
    if fn is None:
        return lambda function: jit(function, **options)
    if isinstance(fn, JITFunction):
        return fn
    if hasattr(fn, "_made_kernel"):
        # `fn` is the result of @triton.autotune or @triton.heuristics.
        return fn._made_kernel(options)
    if not hasattr(fn, "__code__"):
        raise TypeError(f"@triton.jit takes a function, not a {type(fn).__name__}")
    if hasattr(fn, "__wrapped__"):
        import inspect

        # The kernel is the function that `functools.wraps` wraps: its source is compiled, and the
        # wrapper is never called.
        fn = inspect.unwrap(fn)
    return JITFunction(fn, **options)


class ConstexprFunction(Generic[P, R]):
    """A Python function that kernels call at compile time, on compile-time values."""

    _tilewright_path: str
    """Set if the language has the function as well."""

    def __init__(self, fn: Callable[P, R]) -> None:
        self.fn = fn
        self.__name__: str = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__module__ = fn.__module__
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...  # noqa: D102
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> R: ...  # noqa: D102, F811
    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: F811
        """Calls the function; ``tl.constexpr`` arguments are unwrapped."""
        # Grid functions call it at each launch: arguments without ``tl.constexpr`` are not copied.
        for arg in args:
            if type(arg) is not int and isinstance(arg, (constexpr, tuple, _native.tensor)):
                args = tuple(map(plain, args))
                break
        if kwargs:
            kwargs = {name: plain(value) for name, value in kwargs.items()}
        return self.fn(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundConstexprFunction(instance, self.fn)

    def __repr__(self) -> str:
        return f"ConstexprFunction({self.__module__}:{self.__qualname__})"


class BoundConstexprFunction(ConstexprFunction[..., R]):
    """A compile-time function bound to an object."""

    def __init__(self, instance: Any, fn: Callable[..., R]) -> None:
        super().__init__(fn)
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Calls the function with the object."""
        return super().__call__(self.__self__, *args, **kwargs)


def constexpr_function(fn: Callable[P, R]) -> ConstexprFunction[P, R]:
    """Makes a Python function callable in kernels at compile time."""
    return ConstexprFunction(fn)
