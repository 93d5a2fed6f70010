"""``triton.backends``: the compilers and drivers of the kinds of devices, as torch uses them."""

from __future__ import annotations

from tilewright._kept_names import kept
from tilewright.backends.driver import DriverBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tilewright.backends.compiler import Backend, BaseBackend

    backends: dict[str, Backend]

__all__ = ["Backend", "BaseBackend", "DriverBase", "backends"]


def __getattr__(name: str) -> object:
    return kept(globals(), name, _find)


def _find(name: str) -> object:
    # Not imported with the package: only torch uses it.
    if name in ("Backend", "BaseBackend"):
        from tilewright.backends import compiler

        return getattr(compiler, name)
    if name == "backends":
        from tilewright.backends.compiler import Backend
        from tilewright.backends.cpu import compiler as cpu_compiler
        from tilewright.backends.cpu import driver as cpu_driver
        from tilewright.backends.nvidia import compiler as nvidia_compiler
        from tilewright.backends.nvidia import driver as nvidia_driver

        return {
            "nvidia": Backend(nvidia_compiler.CUDABackend, nvidia_driver.CudaDriver),
            "cpu": Backend(cpu_compiler.CPUBackend, cpu_driver.CPUDriver),
        }
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
