"""``triton.tools``."""

from tilewright.tools import tensor_descriptor
from tilewright.tools.linear_layout import LinearLayout

__all__ = ["LinearLayout", "tensor_descriptor"]
