"""``triton._C.libtriton.linear_layout``: linear layouts, by their name in the official native module."""

from tilewright.tools.linear_layout import LinearLayout

__all__ = ["LinearLayout"]
