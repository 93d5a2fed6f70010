"""``triton.runtime.driver``: the active device, and what programs ask of it."""

from __future__ import annotations

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tilewright.backends.compiler import GPUTarget


class _Utils:
    """What programs ask the driver for."""

    def get_device_properties(self, _device: int | None = None) -> dict[str, int]:
        """What a multiprocessor has; programs choose their grids by it."""
        return dict(_native.device_properties())

    def get_current_device(self) -> int:
        """The number of the active device."""
        return 0

    def set_current_device(self, _device: int) -> None:
        """There is one."""


class CpuDriver:
    """The processor as a device."""

    def __init__(self) -> None:
        self.utils = _Utils()

    @staticmethod
    def is_active() -> bool:
        """Always there."""
        return True

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        from tilewright.backends.compiler import GPUTarget

        backend, architecture, warp_size = _native.current_target()
        return GPUTarget(backend, architecture, warp_size)

    def get_active_torch_device(self) -> Any:
        """Where tensors for kernels are made.

        While programs that say ``cuda`` are run on the processor, this is that ``cuda`` device: then all that a program
        makes is in one place, however it says it.
        """
        import torch

        from tilewright import _cuda_on_cpu

        return torch.device("cuda", 0) if _cuda_on_cpu.is_active() else torch.device("cpu")

    def get_current_device(self) -> int:
        """The number of the active device."""
        return 0

    def set_current_device(self, _device: int) -> None:
        """There is one."""

    def get_current_stream(self, _device: int | None = None) -> int:
        """The processor has no streams: a launch returns when it is done."""
        return 0

    def get_device_capability(self, _device: int | None = None) -> tuple[int, int]:
        """The processor has no compute capability."""
        return (0, 0)

    def get_device_interface(self) -> Any:
        """The module of torch that belongs to the device."""
        import torch

        return torch.cpu

    def get_empty_cache_for_benchmark(self) -> Any:
        """Memory to write over between measurements, so that no data of a kernel stays in the cache."""
        import torch

        return torch.empty(32 * 1024 * 1024, dtype=torch.int64)

    def clear_cache(self, cache: Any) -> None:
        """Writes over the memory of ``get_empty_cache_for_benchmark``."""
        cache.zero_()

    def get_benchmarker(self) -> Any:
        """The function that times a kernel."""
        from tilewright import testing

        return testing.do_bench


class DriverConfig:
    """The active driver, and how to choose another."""

    def __init__(self) -> None:
        self.default: Any = CpuDriver()
        self.active: Any = self.default

    def set_active(self, driver: Any) -> None:
        """Chooses a driver."""
        self.active = driver

    def reset_active(self) -> None:
        """Back to the default."""
        self.active = self.default

    def set_active_to_cpu(self) -> None:
        """Chooses the processor."""
        self.active = self.default


driver = DriverConfig()
"""Where programs start: ``triton.runtime.driver.active``."""
