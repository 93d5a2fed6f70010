"""``triton.backends.nvidia.compiler``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright import knobs
from tilewright._replaced_names import replaced_names
from tilewright.backends.compiler import BaseBackend, CompileOptions, GPUTarget, Language
from tilewright.errors import PTXASError

__all__ = [
    "CUDABackend",
    "CUDAOptions",
    "GPUTarget",
    "Language",
    "PTXASError",
    "file_hash",
    "get_ptx_version_from_options",
    "get_ptxas",
    "get_ptxas_version",
    "min_dot_size",
    "ptx_get_version",
    "sm_arch_from_capability",
]

__getattr__ = replaced_names(
    "tilewright.backends.nvidia.compiler",
    "get_features get_llvm_flags",
    instead="the PTX of a kernel is in kernel.asm['ptx']; tilewright writes it without LLVM",
)


def min_dot_size(target: GPUTarget) -> Callable[[Any, Any], tuple[int, int, int]]:
    """A function of the types of a dot's operands: the smallest M, N and K of a dot on this target."""

    def smallest(lhs_type: Any, rhs_type: Any) -> tuple[int, int, int]:
        bits = lhs_type.scalar.primitive_bitwidth
        if bits != rhs_type.scalar.primitive_bitwidth:
            raise AssertionError("lhs and rhs bitwidth must be the same")
        # M and N have no minimum: they are padded to the shape of the tensor cores' instructions.
        return (1, 1, {8: 32, 32: 8, 64: 4}.get(bits, 16))

    return smallest


def get_ptxas(arch: int) -> knobs.NvidiaTool:
    """The assembler of the CUDA toolkit for a compute capability; an error if none is installed."""
    tool: knobs.NvidiaTool = knobs.nvidia.ptxas if arch < 90 else knobs.nvidia.ptxas_blackwell
    return tool


def get_ptxas_version(arch: int = 80) -> str:
    """The version text of the assembler; ``TRITON_MOCK_PTX_VERSION`` replaces it."""
    import subprocess

    mocked: str | None = knobs.nvidia.mock_ptx_version
    if mocked is not None:
        return mocked
    return subprocess.check_output([get_ptxas(arch).path, "--version"], text=True)


def ptx_get_version(cuda_version: str) -> int:
    """Returns the version of PTX of a release of CUDA: 85 for "12.6"."""
    major, minor = map(int, cuda_version.split("."))
    if major < 10:
        raise RuntimeError(f"Triton only support CUDA 10.0 or higher, but got CUDA version: {cuda_version}")
    if major >= 13:
        return 90 + (major - 13) * 10 + minor
    # CUDA 12.6 has the PTX version of CUDA 12.5.
    return {10: 63, 11: 70, 12: 80}[major] + minor - (major == 12 and minor >= 6)


def get_ptx_version_from_options(options: Any, arch: int) -> int:
    """Returns the version of PTX in the options, else that of the assembler."""
    version: int | None = options.ptx_version
    return ptx_get_version(get_ptxas(arch).version) if version is None else version


def sm_arch_from_capability(capability: int) -> str:
    """The name of a target for the assembler: ``sm_90a``."""
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


@functools.cache
def file_hash(path: str) -> str:
    """A digest of a file."""
    import hashlib

    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class CUDAOptions(CompileOptions):
    """The options of a compilation for a GPU."""


class CUDABackend(BaseBackend):
    """Compiles for GPUs of NVIDIA."""

    binary_ext = "cubin"

    def __init__(self, target: GPUTarget) -> None:
        if not str(target.arch).isdigit():
            raise ValueError(
                f"the arch of a GPUTarget for 'cuda' is a compute capability such as 90, not {target.arch!r}"
            )
        super().__init__(GPUTarget(target.backend, int(target.arch), int(target.warp_size)))

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Returns whether this back end compiles for a target."""
        return target.backend == "cuda"

    def parse_options(self, options: dict[str, Any]) -> CUDAOptions:
        """The options with their defaults, those that depend on the GPU among them."""
        capability = int(self.target.arch)
        parsed = {**super().parse_options(options).__dict__, "warp_size": 32}
        if options.get("arch") is None:
            parsed["arch"] = f"sm{capability}"
        if options.get("supported_fp8_dtypes") is None:
            native = ("fp8e4nv",) if capability >= 89 else ()
            parsed["supported_fp8_dtypes"] = ("fp8e4b15", *native, "fp8e5")
        if options.get("max_num_imprecise_acc_default") is None:
            # Tensor cores of 9.0 may accumulate fp8 dots in fewer bits.
            parsed["max_num_imprecise_acc_default"] = 1 << 30 if capability == 90 else 0
        return CUDAOptions(**parsed)
