"""``triton.runtime.interpreter``: kernels that Python runs, and the names that programs import.

A kernel is interpreted where ``TRITON_INTERPRET=1`` or ``TILEWRIGHT_INTERPRET=1`` is set when it is made or first
launched, or with ``@triton.jit(interpret=True)``. See ``docs/interpret-mode.md``.
"""

from __future__ import annotations

from tilewright import _native
from tilewright.runtime._tensor_text import TensorHandle
from tilewright.runtime.jit import JITFunction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "GridExecutor",
    "InterpretedFunction",
    "InterpreterBuilder",
    "TensorHandle",
    "hook",
    "interpret",
    "interpreter_builder",
]

hook = _native.InterpretHook
"""``with hook(function):`` calls ``function(name, keywords, operands, result, program)`` after each operation."""


class _Interpreted(type):
    """``isinstance(kernel, InterpretedFunction)`` holds of each kernel that is interpreted."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, JITFunction) and instance._is_to_be_interpreted()

    def __call__(cls, fn: Callable[..., Any], **options: Any) -> Any:
        return interpret(fn, **options)


class InterpretedFunction(metaclass=_Interpreted):
    """A kernel that Python runs. Making one is ``@triton.jit(interpret=True)``."""


_OPTIONS = ["version", "launch_metadata", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline"]


def interpret(kernel: Any, **options: Any) -> JITFunction[Any]:
    """A kernel, or a function, as a kernel that Python runs, whatever the environment says.

    The options of ``@triton.jit`` are those of the kernel, where none are given.
    """
    names = (*_OPTIONS, "repr")
    given = {name: options[name] for name in names if name in options}
    if not isinstance(kernel, JITFunction):
        return JITFunction(kernel, interpret=True, **given)
    own = {name: getattr(kernel, name) for name in _OPTIONS}
    return JITFunction(kernel.fn, interpret=True, **{**own, "repr": kernel._repr, **given})


class GridExecutor:
    """Runs an interpreted function for each program of a grid."""

    def __init__(self, fn: Any, arg_names: list[str], grid: Any, pre_run_hooks: Any = ()) -> None:
        self.fn = fn
        self.arg_names = arg_names
        self.grid = grid
        self.pre_run_hooks = pre_run_hooks

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launches it."""
        for function in self.pre_run_hooks:
            function(*args, **kwargs)
        interpret(self.fn).run(*args, grid=self.grid, warmup=False, **kwargs)


class InterpreterBuilder:
    """What programs ask for while a kernel is interpreted."""

    @property
    def grid_idx(self) -> tuple[int, int, int] | None:
        """The program that runs now; nothing outside of a kernel."""
        found = _native.interpreted_program()
        return None if found is None else (found[0][0], found[0][1], found[0][2])

    @property
    def grid_dim(self) -> tuple[int, int, int] | None:
        """How many programs there are."""
        found = _native.interpreted_program()
        return None if found is None else (found[1][0], found[1][1], found[1][2])


interpreter_builder = InterpreterBuilder()
