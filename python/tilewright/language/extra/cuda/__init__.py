"""``triton.language.extra.cuda``: what only CUDA devices have."""

from tilewright.language.extra.cuda import libdevice

__all__ = ["libdevice"]
