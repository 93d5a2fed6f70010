"""``triton.backends.cpu.driver``."""

from __future__ import annotations

import platform
from typing import Any

from tilewright.backends.compiler import GPUTarget
from tilewright.runtime.driver import Driver, _torch_interface


class CPUDriver(Driver):
    """The driver of the processor, whatever other device there is."""

    def get_current_target(self) -> GPUTarget:
        """The processor of this machine."""
        return GPUTarget("cpu", platform.machine(), 0)

    def get_active_torch_device(self) -> Any:
        """Returns main memory."""
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        """Returns 0: there is one processor."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Does nothing: there is one processor."""

    def get_current_stream(self, device: int | None = None) -> int:
        """Returns 0: there are no streams, a launch returns when it is done."""
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Returns (0, 0): a processor has no compute capability."""
        return (0, 0)

    def get_device_interface(self) -> Any:
        """The module of torch that belongs to the processor, with events that measure time."""
        return _torch_interface("cpu")
