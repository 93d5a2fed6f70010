"""What tests of kernels may take: ``device``, where tensors for kernels are.

It is that of ``TILEWRIGHT_DEVICE``, so that one run of the tests is on the CPU and another on a simulated GPU.
"""

from __future__ import annotations

import pytest


@pytest.fixture
def device() -> str:
    """The device of torch on which tensors for kernels are made: ``cuda``, or ``cpu`` for the CPU and the simulator."""
    from tilewright import _cuda_on_cpu, _native

    is_cuda = _native.device().startswith("cuda") or _cuda_on_cpu.is_active()
    return "cuda" if is_cuda else "cpu"
