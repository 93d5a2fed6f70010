"""Provides ``triton.runtime.interpreter``: interpreted kernels and the names that programs import.

A kernel is interpreted if ``TRITON_INTERPRET=1`` or ``TILEWRIGHT_INTERPRET=1`` is set at its definition or first
launch, or with ``@triton.jit(interpret=True)``. See ``docs/interpret-mode.md``.
"""

from __future__ import annotations

import functools
import itertools
import threading

from tilewright import _native
from tilewright.errors import InterpreterError
from tilewright.runtime import _interpreter_builder
from tilewright.runtime._interpreter_builder import InterpreterBuilder, interpreter_builder
from tilewright.runtime._tensor_text import TensorHandle
from tilewright.runtime.jit import JITFunction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "RESERVED_KWS",
    "GridExecutor",
    "InterpretedFunction",
    "InterpreterBuilder",
    "InterpreterError",
    "TensorHandle",
    "hook",
    "interpret",
    "interpreter_builder",
]

hook = _native.InterpretHook
"""``with hook(function):`` calls ``function(name, keywords, operands, result, program)`` after each operation."""


class _Interpreted(type):
    """Makes ``isinstance(kernel, InterpretedFunction)`` true for interpreted kernels."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, JITFunction) and instance._is_to_be_interpreted()

    def __call__(cls, fn: Callable[..., Any], **options: Any) -> Any:
        return interpret(fn, **options)


class InterpretedFunction(metaclass=_Interpreted):
    """A kernel that Python runs. A call creates one, as ``@triton.jit(interpret=True)`` does."""


_OPTIONS = [
    "version",
    "launch_metadata",
    "do_not_specialize",
    "do_not_specialize_on_alignment",
    "debug",
    "noinline",
]


def interpret(kernel: Any, **options: Any) -> JITFunction[..., Any]:
    """Returns an interpreted kernel of a kernel or function, whatever the environment says.

    Options of ``@triton.jit`` that are not passed are those of the kernel.
    """
    names = (*_OPTIONS, "repr")
    given = {name: options[name] for name in names if name in options}
    if not isinstance(kernel, JITFunction):
        return JITFunction(kernel, interpret=True, **given)
    own = {name: getattr(kernel, name) for name in _OPTIONS}
    return JITFunction(kernel.fn, interpret=True, **{**own, "repr": kernel._repr, **given})


RESERVED_KWS = ["num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "grid", "maxnreg"]
"""The launch options that are not arguments of the function."""


class GridExecutor:
    """Runs an interpreted function for each program of a grid.

    A program may replace ``__call__``. Launches of interpreted kernels then call the replacement with an executor whose
    ``fn`` is the function that Python runs.
    """

    def __init__(self, fn: Any, arg_names: list[str], grid: Any, pre_run_hooks: Any = ()) -> None:
        self.fn = fn
        self.arg_names = arg_names
        self.grid = grid
        self.pre_run_hooks = pre_run_hooks
        params = getattr(fn, "params", ())
        self.constexprs = [param.name for param in params if param.is_constexpr]
        # The values of the parameters in the body, if a launch created this executor.
        self._bound: tuple[list[tuple[Any, Any]], tuple[Any, ...], dict[str, Any]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Runs the function for each program of the grid."""
        if self._bound is not None:
            _, positional, named = self._bound
            for z, y, x in itertools.product(*(range(extent) for extent in reversed(self.grid))):
                interpreter_builder.set_grid_idx(x, y, z)
                self.fn(*positional, **named)
            return
        for function in self.pre_run_hooks:
            function(*args, **kwargs)
        interpret(self.fn).run(*args, grid=self.grid, warmup=False, **kwargs)

    def _init_args_hst(self, args_dev: Any, kwargs: Any) -> tuple[Any, Any]:
        """Returns the arguments; the launch has already copied GPU tensors to main memory."""
        return args_dev, kwargs

    def _restore_args_dev(self, args_dev: Any, args_hst: Any, kwargs: Any, kwargs_hst: Any) -> None:
        """Does nothing: the launch copies results back to the GPU."""


_call = GridExecutor.__call__
_executing = threading.local()


def _implicit_cvt(arg: Any) -> Any:
    """Returns the value of a launch argument in the body; a number becomes a scalar of its natural type."""
    if isinstance(arg, tuple):
        items = [_implicit_cvt(item) for item in arg]
        return type(arg)(*items) if hasattr(arg, "_fields") else tuple(items)
    if isinstance(arg, (bool, int, float)):
        return _native.interpret_assign(arg)
    for given, value in getattr(_executing, "bound", ()):
        if given is arg:
            return value
    if hasattr(arg, "data_ptr"):
        raise TypeError("this tensor is not an argument of the kernel that this thread interprets")
    return arg


def _patch_lang(fn: Any) -> None:
    """Does nothing: the language has the same meaning in every function."""


def _replacements(kernel: Any) -> tuple[Any, Any]:
    """Returns the replacements by a program: one for operations and one for the call of :class:`GridExecutor`."""
    around = _interpreter_builder.around if _interpreter_builder.is_replaced() else None
    executor = None if GridExecutor.__call__ is _call else functools.partial(_execute, kernel)
    return around, executor


def _execute(kernel: Any, grid: Any, fn: Any, objects: Any, positional: Any, named: dict[str, Any]) -> None:
    """Runs the programs of a grid by the program's replacement of :class:`GridExecutor`."""
    executor = GridExecutor(fn, list(kernel.arg_names), tuple(grid))
    executor.constexprs = [param.name for param in kernel.params if param.is_constexpr]
    pairs = dict(zip(kernel.arg_names, objects, strict=True))
    by_name = {name: pairs[name] for name in named}
    by_place = [value for name, value in pairs.items() if name not in named]
    bound = [*zip(by_place, positional, strict=True), *((by_name[name], named[name]) for name in named)]
    executor._bound = bound, positional, named
    before = getattr(_executing, "bound", ())
    _executing.bound = bound
    try:
        executor(*by_place, **by_name)
    finally:
        _executing.bound = before
