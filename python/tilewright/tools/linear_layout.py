"""Linear layouts over F2: which element of a tile each register, lane and warp holds, as values to compute with."""

from tilewright._native import LinearLayout

__all__ = ["LinearLayout"]
