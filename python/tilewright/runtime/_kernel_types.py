"""The types of kernels and decorators for type checkers: nothing imports this module at run time."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from tilewright._native import CompiledKernel
from tilewright.runtime.autotuner import Autotuner, Heuristics
from tilewright.runtime.jit import JITFunction, KernelInterface

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Launcher(Protocol[P]):
    """``kernel[grid]``: it takes the arguments of the kernel and the options of a launch.

    An argument for a parameter that is annotated ``tl.constexpr`` is a plain value, and parameters may be left to a
    ``triton.Config``: the second overload takes the calls that the first one refuses.
    """

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> CompiledKernel: ...
    @overload
    def __call__(
        self,
        *args: Any,
        num_warps: int = ...,
        num_stages: int = ...,
        num_ctas: int = ...,
        maxnreg: int | None = ...,
        **kwargs: Any,
    ) -> CompiledKernel: ...


class JitDecorator(Protocol):
    """``@triton.jit(...)`` with options."""

    def __call__(self, fn: Callable[P, R]) -> JITFunction[P, R]: ...


class AutotuneDecorator(Protocol):
    """``@triton.autotune(...)``; if ``@triton.jit`` is above it, it takes a function."""

    @overload
    def __call__(self, fn: KernelInterface[P, R]) -> Autotuner[P, R]: ...
    @overload
    def __call__(self, fn: FunctionType) -> Autotuner[..., object]: ...


class HeuristicsDecorator(Protocol):
    """``@triton.heuristics(...)``; if ``@triton.jit`` is above it, it takes a function."""

    @overload
    def __call__(self, fn: KernelInterface[P, R]) -> Heuristics[P, R]: ...
    @overload
    def __call__(self, fn: FunctionType) -> Heuristics[..., object]: ...
