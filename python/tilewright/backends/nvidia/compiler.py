"""``triton.backends.nvidia.compiler``."""

from __future__ import annotations

from typing import Any

from tilewright.backends.compiler import BaseBackend, CompileOptions, GPUTarget


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
        """Whether it compiles for a target."""
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
            # Sums of fp8 products on tensor cores of 9.0 may be kept in fewer bits.
            parsed["max_num_imprecise_acc_default"] = 1 << 30 if capability == 90 else 0
        return CUDAOptions(**parsed)
