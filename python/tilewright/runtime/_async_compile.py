"""``triton.AsyncCompileMode``: warm-ups within it compile on other threads.

    with triton.AsyncCompileMode(ThreadPoolExecutor(8)):
        handles = [kernel.warmup(..., BLOCK=block, grid=(1,)) for block in (64, 128, 256)]

Each ``warmup`` returns a ``FutureKernel`` at once, and leaving the mode waits for all of them. A launch still compiles
its kernel itself.
"""

from __future__ import annotations

from contextvars import ContextVar

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future
    from typing import Any

active_mode: ContextVar[AsyncCompileMode | None] = ContextVar("active_async_compile_mode", default=None)

# Warm-ups look for a mode only in programs that import this module.
_native.note_async_mode()


class FutureKernel:
    """A kernel that is being compiled. Reading an attribute waits for the end of the compilation."""

    def __init__(
        self,
        finalize_compile: Callable[[Any], None] | None,
        cleanup_compile: Callable[[], None] | None,
        future: Future[Any],
    ) -> None:
        self._finalize = finalize_compile
        self._cleanup = cleanup_compile
        self.future = future
        self.kernel: Any = None

    def result(self, ignore_errors: bool = False) -> Any:
        """Waits for the compiled kernel and returns it, or raises the error of its compilation."""
        if self.kernel is not None:
            return self.kernel
        try:
            kernel = self.future.result()
        except Exception:
            if self._cleanup is not None:
                self._cleanup()
            if ignore_errors:
                return None
            raise
        if self._finalize is not None:
            self._finalize(kernel)
        self.kernel = kernel
        return kernel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.result(), name)

    # Because of `[grid]`, Python would take it for an endless sequence.
    __iter__ = None

    def __getitem__(self, grid: Any) -> Any:
        return self.result()[grid]


class AsyncCompileMode:
    """Makes warm-ups compile on an executor of threads; ``ignore_errors`` ignores those that fail."""

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor = executor
        self.ignore_errors = ignore_errors
        self.future_kernels: dict[Any, FutureKernel] = {}
        self.raw_futures: list[Future[Any]] = []

    def submit(
        self,
        key: Any,
        compile_fn: Callable[[], Any],
        finalize_fn: Callable[[Any], None] | None = None,
        cleanup_fn: Callable[[], None] | None = None,
    ) -> FutureKernel:
        """Submits a compilation; one with an earlier key returns the same kernel."""
        if key not in self.future_kernels:
            future = self.executor.submit(compile_fn)
            future._key = key  # type: ignore[attr-defined]
            self.raw_futures.append(future)
            self.future_kernels[key] = FutureKernel(finalize_fn, cleanup_fn, future)
        return self.future_kernels[key]

    def __enter__(self) -> AsyncCompileMode:
        if active_mode.get() is not None:
            raise RuntimeError("Another AsyncCompileMode is already active")
        active_mode.set(self)
        return self

    def __exit__(self, *_exception: object) -> None:
        active_mode.set(None)
        errors = []
        for kernel in self.future_kernels.values():
            try:
                kernel.result(self.ignore_errors)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
