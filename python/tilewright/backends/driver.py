"""``triton.backends.driver``: the base classes of drivers, which programs may derive theirs from."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeAlias

    Benchmarker: TypeAlias = Callable[..., Sequence[float]]
else:
    Benchmarker = object


def _is_descriptor(arg: Any) -> bool:
    """Returns whether a type of a signature is a tensor descriptor's."""
    return isinstance(arg, str) and arg.startswith("tensordesc")


def decompose_descriptor(arg: Any) -> list[Any]:
    """The arguments for a tensor descriptor in a kernel that makes no tensor map; extents and strides occur twice."""
    options = [arg.padding == "nan", arg.round_f32_to_tf32]
    return [arg.base, *arg.shape, *arg.strides, *options, *arg.shape, *arg.strides]


def _expanded(descriptor: str, is_map: bool, descriptor_type: str) -> list[str]:
    """The types of the arguments that replace a tensor descriptor."""
    import re

    found = re.match(r"tensordesc(?:_im2col)?<([^[>]*)\[([^\]]*)\]", descriptor)
    if found is None:
        raise AssertionError(f"Malformed tensor descriptor type: {descriptor}")
    rank_of_input = re.search(r",input_rank=(\d+)", descriptor)
    rank = int(rank_of_input[1]) if rank_of_input else found[2].count(",") + 1
    parts = [descriptor_type] if is_map else [f"*{found[1]}", *["i64"] * (2 * rank), "i1", "i1"]
    return [*parts, *["i32"] * rank, *["i64"] * rank]


def expand_signature(signature: Iterable[Any], tensordesc_meta: Any, descriptor_type: str) -> list[Any]:
    """The types of a launch's arguments: a tensor descriptor is a tensor map or its parts, then extents and strides."""
    found: list[Any] = []
    for ty in signature:
        if _is_descriptor(ty):
            found += _expanded(ty, bool(tensordesc_meta), descriptor_type)
        elif isinstance(ty, tuple):
            found.append(tuple(expand_signature(ty, tensordesc_meta, descriptor_type)))
        else:
            found.append(ty)
    return found


class DriverBase(metaclass=ABCMeta):
    """The interface of ``triton.runtime.driver.active``."""

    @classmethod
    @abstractmethod
    def is_active(cls) -> bool:
        """Returns whether this machine has the device."""

    @abstractmethod
    def map_python_to_cpp_type(self, ty: str) -> str:
        """The type of C for a type of a signature: ``int32_t`` for ``i32``."""

    @abstractmethod
    def get_current_target(self) -> Any:
        """The target that kernels are compiled for."""

    @abstractmethod
    def get_active_torch_device(self) -> Any:
        """The device on which tensors for kernels are made."""

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
        """Returns zeros on the device of tensors for kernels."""
        import torch

        return torch.zeros(size, dtype=torch.int8, device=self.get_active_torch_device())
