"""``gluon.jit``: kernels that state their layouts. On the device ``cpu`` they run on the simulator."""

from __future__ import annotations

from tilewright.compiler.compiler import ASTSource
from tilewright.runtime.jit import JITFunction, P, R, constexpr_function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["GluonASTSource", "GluonJITFunction", "constexpr_function", "jit"]

HINT = "write it as a kernel of triton.language with @triton.jit, or guard the launch by `except NotImplementedError`"


class GluonJITFunction(JITFunction[P, R]):
    """A Gluon kernel, or a function that Gluon kernels call."""

    def is_gluon(self) -> bool:
        """Returns True."""
        return True

    def _is_to_be_interpreted(self) -> bool:
        """Gluon kernels are never interpreted by Python: the simulator runs them."""
        return False


class GluonASTSource(ASTSource):
    """A Gluon kernel for ``triton.compile``."""


def jit(fn: Any = None, **options: Any) -> Any:
    """Makes a function a Gluon kernel; the options are those of ``triton.jit``."""

    def decorate(function: Callable[..., Any]) -> GluonJITFunction[..., Any]:
        return GluonJITFunction(function, **options)

    return decorate if fn is None else decorate(fn)
