"""``triton.backends.compiler``: what kernels are compiled for."""

from __future__ import annotations

from typing import NamedTuple

from tilewright._missing import missing_names

__getattr__ = missing_names("tilewright.backends.compiler", "BaseBackend Language")


class GPUTarget(NamedTuple):
    """A kind of device: ``GPUTarget("cuda", 90, 32)``, ``GPUTarget("cpu", "x86_64", 1)``."""

    backend: str
    arch: int | str
    warp_size: int
