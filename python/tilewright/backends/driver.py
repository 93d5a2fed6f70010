"""``triton.backends.driver``."""

from tilewright.runtime.driver import Driver as DriverBase

__all__ = ["DriverBase", "GPUDriver"]

GPUDriver = DriverBase
