"""Tilewright: the Triton language, compiler and launcher, written from scratch in Rust.

``import tilewright as triton`` and ``import tilewright.language as tl`` run programs written for Triton; so does
``tilewright run script.py``, without a change to them.

pytest: PYTEST_DONT_REWRITE, because ``tilewright run -m pytest`` imports this module before pytest.
"""

import sys

from tilewright import _environment, errors, runtime
from tilewright import language as language
from tilewright._alias import install_as_triton
from tilewright._kept_names import kept
from tilewright._native import __version__
from tilewright.errors import (
    CompilationError,
    InterpreterError,
    LaunchWarning,
    OutOfResources,
    TritonError,
)
from tilewright.language.core import aggregate, must_use_result
from tilewright.runtime import (
    Config,
    JITFunction,
    KernelInterface,
    MockTensor,
    TensorWrapper,
    autotune,
    heuristics,
    reinterpret,
)
from tilewright.runtime._allocation import set_allocator
from tilewright.runtime.jit import constexpr_function, jit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tilewright import backends, compiler, experimental, knobs, sanitizer, testing, tools, tuning, viz
    from tilewright._cuda_on_cpu import use_cpu_as_cuda
    from tilewright.compiler import compile
    from tilewright.runtime._async_compile import AsyncCompileMode, FutureKernel

__all__ = [
    "AsyncCompileMode",
    "CompilationError",
    "Config",
    "FutureKernel",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "LaunchWarning",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "__version__",
    "aggregate",
    "autotune",
    "backends",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "errors",
    "experimental",
    "heuristics",
    "install_as_triton",
    "jit",
    "knobs",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "sanitizer",
    "set_allocator",
    "testing",
    "tools",
    "tuning",
    "use_cpu_as_cuda",
    "viz",
]

_LAZY = frozenset(
    (
        "backends",
        "compiler",
        "experimental",
        "knobs",
        "sanitizer",
        "testing",
        "tools",
        "tuning",
        "utils",
        "viz",
    )
)
"""Modules that are imported at their first use: most programs need none of them."""


def __getattr__(name: str) -> object:
    return kept(globals(), name, _find)


def _find(name: str) -> object:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"tilewright.{name}")
    if name == "use_cpu_as_cuda":
        from tilewright._cuda_on_cpu import use_cpu_as_cuda

        return use_cpu_as_cuda
    if name in ("AsyncCompileMode", "FutureKernel"):
        from tilewright.runtime import _async_compile

        return getattr(_async_compile, name)
    if name == "_C":
        import importlib

        # Programs use `triton._C.libtriton` without importing the submodule, so it is imported
        # here.
        importlib.import_module("tilewright._C.libtriton")
        return importlib.import_module("tilewright._C")
    if name == "compile":
        from tilewright.compiler import compile

        return compile
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """``x / y``, rounded up."""
    return (x + y - 1) // y


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least ``n``; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


_environment.say_what_has_no_effect()

# Kernels may call these functions too, even with values that are known only at run time.
cdiv._tilewright_path = "builtins.triton.cdiv"
next_power_of_2._tilewright_path = "builtins.triton.next_power_of_2"

# This call is last, because the sanitizer uses the names that are defined above.
if _environment.asks_for_sanitizer():
    __getattr__("sanitizer")._begin_by_environment()  # type: ignore[attr-defined]
