"""``triton.language.extra``: functions beyond the language proper."""

from tilewright.language.extra import cpu, cuda, hip, libdevice

__all__ = ["cpu", "cuda", "hip", "libdevice"]
