"""What the library's reductions combine with, as kernels' own functions: programs pass them to ``tl.reduce``."""

from tilewright import language as tl
from tilewright.runtime.jit import jit


@jit
def _sum_combine(a, b):  # type: ignore[no-untyped-def]
    return a + b


@jit
def _xor_combine(a, b):  # type: ignore[no-untyped-def]
    return a ^ b


@jit
def _or_combine(a, b):  # type: ignore[no-untyped-def]
    return a | b


@jit
def _elementwise_max(a, b):  # type: ignore[no-untyped-def]
    return tl.maximum(a, b)


@jit
def _elementwise_min(a, b):  # type: ignore[no-untyped-def]
    return tl.minimum(a, b)
