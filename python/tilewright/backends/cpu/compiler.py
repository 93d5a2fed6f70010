"""``triton.backends.cpu.compiler``."""

from __future__ import annotations

from tilewright.backends.compiler import BaseBackend, GPUTarget


class CPUBackend(BaseBackend):
    """Compiles for the processor."""

    binary_ext = "cpu"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Returns whether this back end compiles for a target."""
        return target.backend == "cpu"
