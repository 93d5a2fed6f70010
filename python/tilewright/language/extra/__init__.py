"""``triton.language.extra``: functions beyond the language proper."""

from tilewright.language.extra import cuda, hip, libdevice

__all__ = ["cuda", "hip", "libdevice"]
