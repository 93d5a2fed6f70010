"""``triton.tools``."""

from tilewright.tools import tensor_descriptor

__all__ = ["tensor_descriptor"]
