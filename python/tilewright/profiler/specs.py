"""The limits of GPUs from their data sheets, for the utilization that a viewer shows."""

from __future__ import annotations

_FLOPS_PER_CLOCK = {
    "80": {8: 4096, 16: 2048, 32: 1024},
    "86": {8: 1024, 16: 512, 32: 256},
    "89": {8: 2048, 16: 1024, 32: 512},
    "90": {8: 8192, 16: 4096, 32: 2048},
    "100": {8: 16384, 16: 8192, 32: 4096},
}
"""Operations of the tensor cores of a multiprocessor in a clock, dense, by architecture and bits; of fp32 as TF32."""


def max_flops(device_type: str, arch: str, width: int, num_sms: int, clock_rate: float) -> float:
    """Operations a second; the clock rate is in kHz."""
    if device_type != "CUDA" or str(arch) not in _FLOPS_PER_CLOCK:
        raise ValueError(
            f"no peak is known of {device_type} {arch}: there are CUDA {', '.join(_FLOPS_PER_CLOCK)}"
        )
    return _FLOPS_PER_CLOCK[str(arch)][width] * num_sms * clock_rate * 1e3


def max_bps(device_type: str, arch: str, bus_width: int, memory_clock_rate: float) -> float:
    """Bytes a second: ``bus_width`` bits twice a clock, whose rate is in kHz."""
    if device_type != "CUDA":
        raise ValueError(f"no bandwidth is known of {device_type} {arch}")
    return 2 * bus_width * memory_clock_rate * 1e3 / 8
