"""``triton.backends.driver``: the base classes of drivers, which programs may derive theirs from."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Benchmarker: TypeAlias = Callable[..., Sequence[float]]
else:
    Benchmarker = object


class DriverBase(metaclass=ABCMeta):
    """What ``triton.runtime.driver.active`` can be asked."""

    @classmethod
    @abstractmethod
    def is_active(cls) -> bool:
        """Whether this machine has the device."""

    @abstractmethod
    def map_python_to_cpp_type(self, ty: str) -> str:
        """The type of C for a type of a signature: ``int32_t`` for ``i32``."""

    @abstractmethod
    def get_current_target(self) -> Any:
        """What kernels are compiled for."""

    @abstractmethod
    def get_active_torch_device(self) -> Any:
        """Where tensors for kernels are made."""

    @abstractmethod
    def get_benchmarker(self) -> Any:
        """The function that times a kernel."""

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> Any:
        """Memory for a profiler's records."""
        raise NotImplementedError


class GPUDriver(DriverBase):
    """The driver of a GPU that torch knows as ``cuda``."""

    def __init__(self) -> None:
        import torch

        self.get_device_capability = torch.cuda.get_device_capability
        self.get_current_stream = lambda device: torch.cuda.current_stream(device).cuda_stream
        self.get_current_device = torch.cuda.current_device
        self.set_current_device = torch.cuda.set_device

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        """The arguments: a tensor map is one of them already."""
        return args

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> Any:
        """Zeros where tensors for kernels are made."""
        import torch

        return torch.zeros(size, dtype=torch.int8, device=self.get_active_torch_device())
