"""``triton.runtime.driver``: the active device, and what programs ask of it."""

from __future__ import annotations

from tilewright import _native
from tilewright._missing import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tilewright.backends.compiler import GPUTarget


_LACKING = frozenset(
    (
        "build_signature_metadata",
        "cuOccupancyMaxActiveClusters",
        "fill_tma_descriptor_im2col",
        "fill_tma_descriptor_tiled",
        "launch",
        "load_binary",
        "unload_module",
    )
)


class _Utils:
    """What programs ask the driver for."""

    def __getattr__(self, name: str) -> _native.Missing:
        if name in _LACKING:
            return missing(f"triton.runtime.driver.active.utils.{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def get_device_properties(self, device: int | None = None) -> dict[str, int]:
        """What a multiprocessor has; programs choose their grids by it."""
        return dict(_native.device_properties(device))

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor compute capability; the processor has none."""
        return _native.device_capability(device)

    def get_current_device(self) -> int:
        """The number of the GPU that this thread works on."""
        return _native.current_device()

    def set_current_device(self, device: int) -> None:
        """Has this thread work on another GPU."""
        _native.set_current_device(device)

    def get_default_stream(self) -> int:
        """The stream of launches that name none, where torch is not there."""
        return 0

    def set_printf_fifo_size(self, size: int) -> None:
        """Sets the bytes that hold what kernels print until it is shown."""
        _native.set_printf_fifo_size(size)

    def is_stream_capturing(self, stream: int) -> bool:
        """Whether a stream is being captured into a graph."""
        return _native.is_stream_capturing(stream)


class Driver:
    """The device that kernels run on: the chosen one, else the first GPU, else the processor."""

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

        is_on_gpu = _native.device().startswith("cuda")
        if is_on_gpu or _cuda_on_cpu.is_active():
            return torch.device("cuda", self.get_current_device())
        return torch.device("cpu")

    def get_current_device(self) -> int:
        """The number of the GPU that this thread works on; 0 for other devices."""
        return _native.current_device()

    def set_current_device(self, device: int) -> None:
        """Has this thread work on another GPU."""
        _native.set_current_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        """The stream that launches go to: torch's current one.

        Devices other than a GPU have none: a launch there returns when it is done.
        """
        if not _native.device().startswith("cuda"):
            return 0
        import sys

        torch = sys.modules.get("torch")
        current = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        return int(current(self.get_current_device() if device is None else device)) if current else 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor compute capability; the processor has none."""
        return _native.device_capability(device)

    def get_device_interface(self) -> Any:
        """The module of torch that belongs to the device."""
        import torch

        return torch.cuda if _native.device().startswith("cuda") else torch.cpu

    def get_empty_cache_for_benchmark(self) -> Any:
        """Memory to write over between measurements, so that no data of a kernel stays in the cache."""
        import torch

        return torch.empty(32 * 1024 * 1024, dtype=torch.int64, device=self.get_active_torch_device())

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
        self.default: Any = Driver()
        self.active: Any = self.default

    def set_active(self, driver: Any) -> None:
        """Chooses a driver."""
        self.active = driver

    def reset_active(self) -> None:
        """Back to the default."""
        self.active = self.default

    def set_active_to_cpu(self) -> None:
        """Chooses the processor."""
        _native.set_device("cpu")
        self.active = self.default

    def set_active_to_gpu(self) -> None:
        """Chooses the first GPU."""
        _native.set_device("cuda")
        self.active = self.default

    def get_active_gpus(self) -> list[Any]:
        """The drivers of GPUs that are active."""
        return [self.default] if _native.device().startswith("cuda") else []


driver = DriverConfig()
"""Where programs start: ``triton.runtime.driver.active``."""
