"""Makes ``import triton`` import tilewright in tests, and has fixtures for tests of kernels.

The ini option ``tilewright_as_triton`` makes ``pytest`` the same as ``tilewright run -m pytest``.

``device`` is the device of the tensors of a test, ``tilewright_sanitize`` checks launches. The device depends on
``TILEWRIGHT_DEVICE``, so that the same tests can run on the CPU and on a simulated GPU.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilewright.sanitizer import Found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the ini option."""
    parser.addini(
        "tilewright_as_triton",
        "import triton imports tilewright (TILEWRIGHT_AS_TRITON)",
        "bool",
        default=False,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begins before any test module or ``conftest.py`` is imported; the variable has priority over the option."""
    import os

    from _tilewright_startup import VARIABLE, parse_parts
    from tilewright import _run

    is_wanted = early_config.getini("tilewright_as_triton")
    try:
        parts = parse_parts(os.environ.get(VARIABLE, "1" if is_wanted else "0"))
        failure = _run._prepare(None, parts=parts) if parts else None
    except (ImportError, ValueError) as error:
        failure = str(error)
    if failure is not None:
        raise pytest.UsageError(failure)


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
