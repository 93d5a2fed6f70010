"""Fixtures for tests of kernels: ``device`` is the device of their tensors, ``tilewright_sanitize`` checks launches.

The device depends on ``TILEWRIGHT_DEVICE``, so that the same tests can run on the CPU and on a simulated GPU.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilewright.sanitizer import Found


@pytest.fixture
def device() -> str:
    """The device of torch on which tensors for kernels are made: ``cuda``, or ``cpu`` for the CPU and the simulator."""
    from tilewright import _cuda_on_cpu, _native

    is_cuda = _native.device().startswith("cuda") or _cuda_on_cpu.is_active()
    return "cuda" if is_cuda else "cpu"


@pytest.fixture
def tilewright_sanitize() -> Iterator[Found]:
    """Checks every launch of the test, which fails at its end if there were findings.

    A test removes the findings that it expects: ``tilewright_sanitize.take()`` returns them.
    """
    from tilewright import sanitizer

    with sanitizer.sanitize(raises=False) as found:
        yield found
    if found.reports:
        pytest.fail(str(sanitizer.SanitizerError(found.reports, found.dropped)), pytrace=False)
