"""The limits of a GPU, in bytes and in operations per second, computed from its architecture and its clock rates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright import _native
from tilewright.errors import LaunchStateError, LaunchValueError

_TENSOR_CORE_OPERATIONS = {
    # The number of fp16 multiply-adds of a quarter of a multiprocessor in a cycle, by compute capability.
    (7, 0): 256,
    (7, 5): 256,
    (8, 0): 512,
    (8, 6): 256,
    (8, 9): 256,
    (9, 0): 1024,
    (10, 0): 2048,
    (12, 0): 256,
}

_SIMD_OPERATIONS = {
    # The numbers of fp32 and fp16 multiply-adds without tensor cores.
    (7, 0): (32, 64),
    (8, 0): (32, 128),
    (8, 6): (64, 64),
    (9, 0): (64, 128),
    (10, 0): (64, 128),
    (12, 0): (64, 64),
}


def _need_gpu(function: str) -> None:
    """Checks that kernels run on a GPU: the properties of other devices are not limits, but help to choose a grid."""
    if not _native.device().startswith("cuda"):
        raise LaunchStateError(f"{function} is about a GPU, and kernels run on {_native.device()!r}")


def _of_capability(table: dict[tuple[int, int], Any], device: int | None, asked: str) -> tuple[Any, int]:
    """Returns the entry of the newest architecture that is not newer than the device's, and the device's quarters."""
    _need_gpu(asked)
    capability = _native.device_capability(device)
    known = [entry for entry in table if entry <= capability]
    if not known:
        raise LaunchValueError(f"{asked} knows no GPU of compute capability {capability}")
    return table[max(known)], _native.device_properties(device)["multiprocessor_count"] * 4


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """10^12 operations a second of the tensor cores, dense, at a clock in kHz."""
    operations, quarters = _of_capability(_TENSOR_CORE_OPERATIONS, device, "get_max_tensorcore_tflops")
    name = _name(dtype)
    is_old = _native.device_capability(device) < (8, 0)
    if name in ("float32", "tf32", "int32") and not is_old:
        operations //= 2
    elif name == "bfloat16" and not is_old:
        pass
    elif name in ("int8", "uint8") or "float8" in name or name.startswith("fp8"):
        operations *= 2
    elif name != "float16":
        raise LaunchValueError(f"the tensor cores of this GPU have no operations on {name}")
    return float(quarters * clock_rate * operations * 1e-9)


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """10^12 operations a second without tensor cores, at a clock in kHz."""
    (single, half), quarters = _of_capability(_SIMD_OPERATIONS, device, "get_max_simd_tflops")
    names = {"float32": single, "int32": single // 2, "float16": half, "bfloat16": half}
    if _name(dtype) not in names:
        raise LaunchValueError(f"get_max_simd_tflops takes {', '.join(names)}, not {_name(dtype)}")
    return float(quarters * clock_rate * names[_name(dtype)] * 1e-9)


def get_dram_gbps(device: int | None = None) -> float:
    """10^9 bytes a second between a GPU and its memory, which has two transfers a cycle."""
    _need_gpu("get_dram_gbps")
    properties = _native.device_properties(device)
    return properties["mem_clock_rate"] * properties["mem_bus_width"] * 2 / 1e6 / 8


def nvsmi(attrs: list[str]) -> list[int]:
    """Queries the first GPU by ``nvidia-smi``: ``nvsmi(["clocks.max.sm"])``."""
    import subprocess

    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"]
    text = subprocess.check_output(command, text=True)
    return [int(value) for value in text.split(",")]


@contextmanager
def set_gpu_clock(ref_sm_clock: int = 1350, ref_mem_clock: int = 1215) -> Iterator[tuple[float, float]]:
    """Fixes the clocks of the first GPU, in MHz; within, 10^12 fp16 operations and 10^9 bytes a second at these clocks.

    It needs the right to set clocks, which root has. They are free again afterwards.
    """
    import subprocess

    def smi(*options: str) -> None:
        subprocess.check_output(["nvidia-smi", "-i", "0", *options])

    try:
        smi("-pm", "1")
        smi(f"--lock-gpu-clocks={ref_sm_clock},{ref_sm_clock}")
        smi(f"--lock-memory-clocks={ref_mem_clock},{ref_mem_clock}")
        sm, memory = nvsmi(["clocks.current.sm", "clocks.current.memory"])
        if abs(sm - ref_sm_clock) > 10 or abs(memory - ref_mem_clock) > 10:
            raise LaunchStateError(
                f"the GPU runs at {sm} and {memory} MHz instead of {ref_sm_clock} and {ref_mem_clock}"
            )
        bus = _native.device_properties(0)["mem_bus_width"]
        tflops = get_max_tensorcore_tflops("float16", ref_sm_clock * 1e3, 0)
        # The memory clock in kHz, two transfers in each cycle, and the bus width in bits give GB/s.
        yield tflops, ref_mem_clock * 1e3 * bus * 2 / 1e6 / 8
    finally:
        smi("-pm", "0")
        smi("-rgc")
        smi("-rmc")
