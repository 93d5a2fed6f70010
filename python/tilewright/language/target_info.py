"""``triton.language.target_info``: queries of a kernel's target, at compile time."""

from tilewright.backends.compiler import GPUTarget
from tilewright.runtime.driver import driver
from tilewright.runtime.jit import constexpr_function

__all__ = [
    "cuda_capability_geq",
    "current_target",
    "is_cuda",
    "is_hip",
    "is_hip_cdna3",
    "is_hip_cdna4",
    "is_hip_gfx1250",
]


@constexpr_function
def current_target() -> GPUTarget:
    """The active target."""
    target: GPUTarget = driver.active.get_current_target()
    return target


@constexpr_function
def is_cuda() -> bool:
    """Returns whether the target is an NVIDIA GPU."""
    return current_target().backend == "cuda"


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Returns whether the target is an NVIDIA GPU of at least this compute capability."""
    target = current_target()
    return target.backend == "cuda" and int(target.arch) >= major * 10 + minor


@constexpr_function
def is_hip() -> bool:
    """Returns whether the target is an AMD GPU."""
    return current_target().backend == "hip"


@constexpr_function
def is_hip_cdna3() -> bool:
    """Returns whether the target is an AMD GPU of this family."""
    return is_hip() and current_target().arch == "gfx942"


@constexpr_function
def is_hip_cdna4() -> bool:
    """Returns whether the target is an AMD GPU of this family."""
    return is_hip() and current_target().arch == "gfx950"


@constexpr_function
def is_hip_gfx1250() -> bool:
    """Returns whether the target is an AMD GPU of this kind."""
    return is_hip() and current_target().arch == "gfx1250"


# In a kernel, the target is the one that the kernel is compiled for.
for _name in __all__:
    globals()[_name]._tilewright_path = f"target_info.{_name}"
