"""``gluon.jit``: what it makes of a function has all that a kernel has, but cannot be launched."""

from __future__ import annotations

from tilewright import _native
from tilewright.compiler.compiler import ASTSource
from tilewright.runtime.jit import JITFunction, P, R, constexpr_function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

__all__ = ["GluonASTSource", "GluonJITFunction", "constexpr_function", "jit"]

HINT = "write it as a kernel of triton.language with @triton.jit, or guard the launch by `except NotImplementedError`"


class GluonJITFunction(JITFunction[P, R]):
    """A Gluon kernel, or a function that Gluon kernels call."""

    def is_gluon(self) -> bool:
        """Returns True."""
        return True

    def _refuse(self) -> NoReturn:
        raise _native.not_available(
            f"kernel '{self.__name__}' is a Gluon kernel: Gluon is not available in this version of tilewright",
            HINT,
        )

    def __getitem__(self, grid: Any) -> Any:
        """Returns a function that raises the error of a launch: there is no Gluon."""

        def launch(*_args: Any, **_kwargs: Any) -> NoReturn:
            self._refuse()

        return launch

    def run(self, *_args: Any, **_kwargs: Any) -> Any:
        """Raises an error: there is no Gluon."""
        self._refuse()

    def warmup(self, *_args: Any, **_kwargs: Any) -> Any:
        """Raises an error: there is no Gluon."""
        self._refuse()


class GluonASTSource(ASTSource):
    """A Gluon kernel for ``triton.compile``; its constructor raises an error."""

    def __init__(self, fn: Any, *_args: Any, **_kwargs: Any) -> None:
        raise _native.not_available(
            f"kernel '{getattr(fn, '__name__', fn)}' is not compiled: Gluon is not available in this version of "
            "tilewright",
            HINT,
        )


def jit(fn: Any = None, **options: Any) -> Any:
    """Makes a function a Gluon kernel; the options are those of ``triton.jit``."""

    def decorate(function: Callable[..., Any]) -> GluonJITFunction[..., Any]:
        return GluonJITFunction(function, **options)

    return decorate if fn is None else decorate(fn)
