"""``triton.runtime.interpreter``: programs ask whether something is an ``InterpretedFunction``; nothing is, yet."""

from __future__ import annotations

from tilewright.runtime.jit import KernelInterface


class InterpretedFunction(KernelInterface[object]):
    """A kernel that Python runs; still to come."""
