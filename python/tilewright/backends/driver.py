"""``triton.backends.driver``."""

from tilewright.runtime.driver import CpuDriver as CpuDriver

DriverBase = CpuDriver
