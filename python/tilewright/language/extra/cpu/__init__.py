"""``triton.language.extra.cpu``: what kernels written for triton-cpu import."""

from tilewright.language.extra.cpu import libdevice

__all__ = ["libdevice"]
