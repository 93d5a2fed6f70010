"""``triton.runtime.driver``: the active device, and the functions that programs call on it."""

from __future__ import annotations

import functools
import sys

from tilewright import _native
from tilewright.backends.driver import GPUDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tilewright.backends.compiler import GPUTarget


def ty_to_cpp(ty: str) -> str:
    """Returns the type of C that an argument of a launch is read as: ``int32_t`` for ``i32``."""
    if ty.startswith("*"):
        return "CUdeviceptr"
    if ty == "nvTmaDesc" or ty.startswith("tensordesc"):
        return "CUtensorMap"
    if ty in ("fp16", "bf16", "fp32", "f32", "fp64"):
        return "double"
    bits = {"1": "8"}.get(ty[1:], ty[1:])
    if ty[:1] in ("i", "u") and bits in ("8", "16", "32", "64"):
        return f"{'u' * (ty[0] == 'u')}int{bits}_t"
    raise KeyError(ty)


@functools.lru_cache
def _target(backend: str, architecture: int | str, warp_size: int) -> GPUTarget:
    from tilewright.backends.compiler import GPUTarget

    return GPUTarget(backend, architecture, warp_size)


@functools.lru_cache
def _torch_device(kind: str, index: int | None = None) -> Any:
    import torch

    return torch.device(kind, index)


@functools.lru_cache
def _torch_interface(kind: str) -> Any:
    import torch

    from tilewright._host_event import CpuInterface

    module = getattr(torch, kind)
    return CpuInterface(module) if kind == "cpu" else module


@functools.lru_cache
def _properties(_device: str, number: int | None) -> dict[str, int]:
    return _native.device_properties(number)


@functools.lru_cache
def _launcher_class() -> Any:
    from tilewright.backends.nvidia.driver import CudaLauncher

    return CudaLauncher


def _is_cuda_on_cpu() -> bool:
    """Returns whether programs that say ``cuda`` run on the processor; only they have imported the module."""
    module = sys.modules.get("tilewright._cuda_on_cpu")
    return module is not None and bool(module.is_active())


def _is_device_cuda() -> bool:
    """Returns whether tensors for kernels are on a device that the program names ``cuda``."""
    return _native.device().startswith("cuda") or _is_cuda_on_cpu()


def _claimed_gpu() -> Any:
    """The properties of the claimed GPU while ``cuda`` is the processor or the simulator; nothing otherwise."""
    if not _is_cuda_on_cpu() or _native.device().startswith("cuda"):
        return None
    from tilewright._cuda_on_cpu import torch_cuda

    return torch_cuda


def _capability(device: int | None = None) -> tuple[int, int]:
    """Returns the major and minor compute capability of a device, as torch states it."""
    claimed = _claimed_gpu()
    return _native.device_capability(device) if claimed is None else claimed.capability()


class CudaUtils:
    """The driver functions that programs call: devices, and device code by its handle."""

    @staticmethod
    def load_binary(name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Loads a cubin or PTX.

        Returns the handles of the module and of the kernel, the registers and the spilled registers of a thread, and
        the maximum number of threads of a program.
        """
        return _native.load_binary(name, kernel, shared, device)

    @staticmethod
    def unload_module(module: int) -> None:
        """Unloads a module of ``load_binary``."""
        _native.unload_module(module)

    @staticmethod
    def build_signature_metadata(types: Any) -> bytes:
        """Encodes the types of a launch's arguments for ``launch``."""
        return _native.build_signature_metadata(list(types))

    @staticmethod
    def cuOccupancyMaxActiveClusters(function: int, shared: int, cluster: int) -> int:
        """The number of clusters, of ``cluster`` blocks of 128 threads each, that are resident on the GPU at a time."""
        return _native.cuOccupancyMaxActiveClusters(function, shared, cluster)

    @staticmethod
    def fill_tma_descriptor_tiled(*args: Any) -> _native.TensorMap:
        """A tensor map: address, swizzle, bytes and type of an element, block, shape, strides, 1 to pad with NaN.

        Types and swizzles are the numbers of the driver's header; strides are in elements, the contiguous axis is last.
        """
        return _native.fill_tma_descriptor_tiled(*args)

    # The former name of this function, from before other descriptors existed.
    fill_tma_descriptor = fill_tma_descriptor_tiled

    @staticmethod
    def fill_tma_descriptor_im2col(*args: Any) -> _native.TensorMap:
        """A tensor map for windows of a convolution's input; after the padding corners and steps of the axes."""
        return _native.fill_tma_descriptor_im2col(*args)

    @staticmethod
    def launch(
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: int,
        launch_cooperative_grid: bool,
        launch_pdl: bool,
        kernel_metadata: tuple[int, int, int],
        launch_metadata: Any,
        launch_enter_hook: Any,
        launch_exit_hook: Any,
        global_scratch: Any,
        profile_scratch: Any,
        arg_annotations: Any,
        kernel_signature: bytes,
        kernel_args: Any,
    ) -> None:
        """Launches a kernel that ``load_binary`` has loaded.

        ``kernel_metadata`` is the warps of a program, the blocks of a cluster and the bytes of shared memory. Kernels
        that take scratch memory get it after their arguments, as those of the official compiler do.
        """
        if launch_enter_hook is not None:
            launch_enter_hook(launch_metadata)
        _native.launch_function(
            (grid_x, grid_y, grid_z),
            stream,
            function,
            bool(launch_cooperative_grid),
            bool(launch_pdl),
            kernel_metadata,
            global_scratch,
            profile_scratch,
            arg_annotations,
            kernel_signature,
            tuple(kernel_args),
        )
        if launch_exit_hook is not None:
            launch_exit_hook(launch_metadata)

    def get_device_properties(self, device: int | None = None) -> dict[str, int]:
        """The properties of a multiprocessor, by which programs choose their grids."""
        if (claimed := _claimed_gpu()) is not None:
            named: dict[str, int] = claimed.named_properties()
            return named
        # The program may change its dict.
        return _properties(_native.device(), device).copy()

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor compute capability; the processor has none."""
        return _capability(device)

    def get_current_device(self) -> int:
        """Returns the number of the GPU that this thread works on."""
        return _native.current_device()

    def set_current_device(self, device: int) -> None:
        """Makes this thread work on another GPU."""
        _native.set_current_device(device)

    def get_default_stream(self, device: int | None = None) -> int:
        """Returns the stream of launches that name none, without torch."""
        return 0

    def set_printf_fifo_size(self, size: int) -> None:
        """Sets the size in bytes of the buffer for the output of kernels."""
        _native.set_printf_fifo_size(size)

    def is_stream_capturing(self, stream: int) -> bool:
        """Returns whether a stream is being captured into a graph."""
        return _native.is_stream_capturing(stream)


class Driver(GPUDriver):
    """The device that kernels run on: the chosen one, else the first GPU, else the processor."""

    def __init__(self) -> None:
        self.utils = CudaUtils()

    @property
    def launcher_cls(self) -> Any:
        """The function that makes a launcher of a source and the metadata of its code."""
        return _launcher_class()

    def map_python_to_cpp_type(self, ty: str) -> str:
        """The type of C that an argument of a launch is read as."""
        return ty_to_cpp(ty)

    @staticmethod
    def is_active() -> bool:
        """Returns True."""
        return True

    def get_current_target(self) -> GPUTarget:
        """The target that kernels are compiled for.

        While programs that say ``cuda`` are run on the processor, the GPU whose capability torch tells them.
        """
        if _claimed_gpu() is not None:
            major, minor = _capability()
            return _target("cuda", major * 10 + minor, 32)
        return _target(*_native.current_target())

    def get_active_torch_device(self) -> Any:
        """The device on which tensors for kernels are made.

        While programs that say ``cuda`` are run on the processor, this is that ``cuda`` device: then all tensors of a
        program are on one device, however it names the device.
        """
        if _is_device_cuda():
            return _torch_device("cuda", self.get_current_device())
        return _torch_device("cpu")

    def get_current_device(self) -> int:
        """Returns the number of the GPU that this thread works on; 0 for other devices."""
        return _native.current_device()

    def set_current_device(self, device: int) -> None:
        """Makes this thread work on another GPU."""
        _native.set_current_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        """Returns the stream that launches go to: torch's current one.

        Devices other than a GPU have none: a launch there returns when it is done.
        """
        if not _native.device().startswith("cuda"):
            return 0
        try:
            current = sys.modules["torch"]._C._cuda_getCurrentRawStream
        except (KeyError, AttributeError):  # torch is not imported, or has no GPU
            return 0
        return int(current(_native.current_device() if device is None else device))

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor compute capability; the processor has none."""
        return _capability(device)

    def get_device_interface(self) -> Any:
        """The module of torch that belongs to the device of ``get_active_torch_device``."""
        return _torch_interface("cuda" if _is_device_cuda() else "cpu")

    def get_empty_cache_for_benchmark(self) -> Any:
        """Memory to write over between measurements, so that no data of a kernel stays in the cache."""
        import torch

        device = self.get_active_torch_device()
        if _is_cuda_on_cpu() and not sys.modules["tilewright._cuda_on_cpu"].is_replaced_here():
            # `torch.compile` measures kernels of its own and of libraries while it compiles.
            device = _torch_device("cpu")
        return torch.empty(32 * 1024 * 1024, dtype=torch.int64, device=device)

    def clear_cache(self, cache: Any) -> None:
        """Writes over the memory of ``get_empty_cache_for_benchmark``."""
        cache.zero_()

    def get_benchmarker(self) -> Any:
        """The function that times a kernel."""
        # A program that has imported the module may have replaced `do_bench`.
        testing = sys.modules.get("tilewright.testing")
        if testing is not None:
            return testing.do_bench
        from tilewright import _benchmark

        return _benchmark.do_bench


class DriverConfig:
    """The active driver, and methods to choose another."""

    def __init__(self) -> None:
        self.default: Any = Driver()
        self.active: Any = self.default

    @property
    def utils(self) -> Any:
        """The ``utils`` of the active driver: in release 2, ``triton.runtime.driver`` was that driver."""
        return self.active.utils

    def set_active(self, driver: Any) -> None:
        """Chooses a driver."""
        self.active = driver

    def reset_active(self) -> None:
        """Restores the default driver."""
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
        """Returns the drivers of GPUs that are active."""
        return [self.default] if _native.device().startswith("cuda") else []

    # The functions of `triton.runtime.jit` in release 2.1.

    def get_cuda_stream(self, device: int | None = None) -> Any:
        """Returns the stream of launches on a device."""
        return self.active.get_current_stream(device)

    def get_current_device(self) -> Any:
        """Returns the index of the device of launches."""
        return self.active.get_current_device()

    def set_current_device(self, device: int) -> None:
        """Chooses the device of launches."""
        self.active.set_current_device(device)


driver = DriverConfig()
"""The entry point of programs: ``triton.runtime.driver.active``."""


def __getattr__(name: str) -> Any:
    """Attributes of the driver above.

    ``triton.runtime.driver`` is that driver, until a program imports the module ``triton.runtime.driver``: Python then
    puts the module in its place.
    """
    if name in ("active", "default") or name in vars(DriverConfig):
        return getattr(driver, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
