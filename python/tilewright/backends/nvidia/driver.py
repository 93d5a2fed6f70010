"""``triton.backends.nvidia.driver``: GPUs, device code on them, and its launchers."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any

from tilewright import _native
from tilewright._native import TensorMap as PyCUtensorMap
from tilewright.backends.driver import decompose_descriptor, expand_signature
from tilewright.runtime.driver import CudaUtils, Driver, ty_to_cpp

__all__ = [
    "ARG_CONSTEXPR",
    "ARG_KERNEL",
    "ARG_TUPLE",
    "CudaDriver",
    "CudaLauncher",
    "CudaUtils",
    "PyCUtensorMap",
    "PyKernelArg",
    "annotate_arguments",
    "decompose_descriptor",
    "expand_signature",
    "libcuda_dirs",
    "library_dirs",
    "make_kernel_signature",
    "make_tensordesc_arg",
    "ty_to_cpp",
]


class _ArgumentKind(IntEnum):
    ARG_CONSTEXPR = 0
    ARG_KERNEL = 1
    ARG_TUPLE = 2


ARG_CONSTEXPR, ARG_KERNEL, ARG_TUPLE = _ArgumentKind


def libcuda_dirs() -> list[str]:
    """The folders that have the CUDA driver; an error if none has."""
    import os
    import subprocess

    from tilewright import knobs

    if chosen := knobs.nvidia.libcuda_path:
        return [chosen]
    name = "libcuda.so.1"
    try:
        known = subprocess.check_output(["/sbin/ldconfig", "-p"], text=True, errors="ignore").splitlines()
    except (OSError, subprocess.CalledProcessError):
        known = []
    found = [os.path.dirname(line.split()[-1]) for line in known if name in line]
    found = found or os.environ.get("LD_LIBRARY_PATH", "").split(":")
    found = [folder for folder in found if folder and os.path.exists(os.path.join(folder, name))]
    if not found:
        raise AssertionError(
            f"there is no {name}: the CUDA driver is not installed, or /sbin/ldconfig does not know it"
        )
    return found


def library_dirs() -> list[str]:
    """The folders of the libraries that a launch needs: those of the driver."""
    return libcuda_dirs()


class PyKernelArg:
    """The type in which ``driver.active.utils.launch`` takes an argument."""

    def __init__(self, nested_tuple: list[PyKernelArg] | None, type: int = ARG_CONSTEXPR) -> None:
        self.nested_tuple = nested_tuple
        self.type = type


def annotate_arguments(signature: Any) -> list[PyKernelArg]:
    """Returns the type in which each argument of a signature is taken."""
    annotated = []
    for ty in signature:
        if isinstance(ty, tuple):
            annotated.append(PyKernelArg(annotate_arguments(ty), ARG_TUPLE))
        else:
            annotated.append(PyKernelArg(None, ARG_CONSTEXPR if ty == "constexpr" else ARG_KERNEL))
    return annotated


def make_kernel_signature(signature: Any) -> bytes:
    """The types that a launch passes for a signature, for ``driver.active.utils.launch``."""

    def passed(types: Any) -> list[str]:
        parts = (passed(ty) if isinstance(ty, tuple) else [ty] for ty in types if ty != "constexpr")
        return [ty for part in parts for ty in part]

    return _native.build_signature_metadata(passed(signature))


class CudaLauncher(_native.CudaLauncher):
    """``compiled.run``: launches device code with the arguments of a source's signature."""

    def __new__(cls, src: Any, metadata: Any, kernel: _native.CompiledKernel | None = None) -> CudaLauncher:
        """Makes a launcher for the run-time types of a source; with a kernel that was compiled for this GPU."""
        cooperative = bool(getattr(metadata, "launch_cooperative_grid", False))
        programmatic = bool(getattr(metadata, "launch_pdl", False))
        return super().__new__(cls, src.passed_types(), cooperative, programmatic, kernel)


class CudaDriver(Driver):
    """The driver that torch chooses if there is a GPU; a device that the user names has priority."""

    @staticmethod
    def is_active() -> bool:
        """Returns whether there is a GPU to compile for, or the processor takes its place."""
        from tilewright import _cuda_on_cpu

        return _native.has_gpu() or _torch_has_gpu() or _cuda_on_cpu.is_active()


def _torch_has_gpu() -> bool:
    """Returns whether torch sees a GPU: a forked process, such as Inductor's, cannot query the driver itself."""
    from tilewright import _cuda_on_cpu

    torch = sys.modules.get("torch")
    return torch is not None and not _cuda_on_cpu.is_active() and bool(torch.cuda.is_available())


# The numbers of element types in a tensor map that a kernel writes, each with the driver's number
# of the type.
_HOST_ELEMENT_TYPES = {8: 10, 9: 8, 10: 9}
_TF32 = 11


def make_tensordesc_arg(arg: Any, metadata: dict[str, Any] | None, _: Any = None) -> list[Any]:
    """The arguments for a tensor descriptor: a tensor map, extents and strides; without metadata its parts."""
    if metadata is None:
        return decompose_descriptor(arg)
    shape = list(arg.shape)
    if metadata["fp4_padded"]:
        shape[-1] *= 2
    element = metadata["elem_type"]
    parts: list[Any] = [
        arg.base.data_ptr(),
        metadata["swizzle"],
        metadata["elem_size"],
        _TF32 if arg.round_f32_to_tf32 else _HOST_ELEMENT_TYPES.get(element, element),
        list(metadata["block_size"]),
        shape,
        list(arg.strides),
        int(arg.padding == "nan"),
    ]
    if metadata.get("is_im2col", False):
        steps = [1] * len(shape) if arg.element_strides is None else list(arg.element_strides)
        lower, upper = list(arg.pixel_box_lower_corner), list(arg.pixel_box_upper_corner)
        made = CudaUtils.fill_tma_descriptor_im2col(*parts, lower, upper, steps)
    else:
        made = CudaUtils.fill_tma_descriptor_tiled(*parts)
    return [made, *arg.shape, *arg.strides]
