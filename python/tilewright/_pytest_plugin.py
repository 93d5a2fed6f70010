"""Makes ``import triton`` import tilewright in tests, and has fixtures for tests of kernels.

The ini option ``tilewright_as_triton`` makes ``pytest`` the same as ``tilewright run -m pytest``.

``device`` is the device of the tensors of a test, ``tilewright_sanitize`` checks launches. The device depends on
``TILEWRIGHT_DEVICE``, so that the same tests can run on the CPU and on a simulated GPU. With ``TILEWRIGHT_SANITIZE``,
or under ``tilewright run --sanitize``, a test fails if the sanitizer finds anything.
"""

from __future__ import annotations

import sys

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from tilewright.sanitizer import Found, Report


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

    try:
        is_wanted = early_config.getini("tilewright_as_triton")
    except (ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"{early_config.inipath}: tilewright_as_triton: {error}") from None
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
def tilewright_sanitize(request: pytest.FixtureRequest) -> Iterator[Found]:
    """Checks every launch of the test, which fails if there are findings.

    A test removes the findings that it expects: ``tilewright_sanitize.take()`` returns them.
    """
    from tilewright import sanitizer

    names = vars(request.module).values()
    if sanitizer.has_other_triton() and any(value is sys.modules["triton"] for value in names):
        pytest.fail(
            "tilewright_sanitize checks launches of tilewright, and `import triton` imports another package: set "
            "tilewright_as_triton in the ini file of pytest, or run `tilewright run -m pytest`",
            pytrace=False,
        )
    with sanitizer.sanitize(raises=False) as found:
        yield found
    # If a test passed, its findings have made it fail already (`pytest_runtest_call`). These findings are of
    # a test that failed for another reason, or of the teardown of another fixture.
    if found.reports:
        _fail(found.reports, found.dropped)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begins to collect the findings of a test: its report has them, so they are not printed."""
    if (sanitizer := _program_sanitizer()) is not None:
        sanitizer.set_aside()
        sanitizer.print_findings(False)


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fails a test that has findings, unless it has failed before: this hook runs after the test."""
    if (sanitizer := _program_sanitizer()) is not None:
        _fail(*sanitizer.set_aside())
    elif "tilewright_sanitize" in getattr(item, "funcargs", ()):
        from tilewright import _native
        from tilewright.sanitizer import Report

        found, dropped = _native.sanitizer_reports(True)
        _fail([Report(one) for one in found], dropped)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fails the teardown of a test that failed otherwise, or whose fixtures have findings as they end."""
    if (sanitizer := _program_sanitizer()) is not None:
        sanitizer.print_findings(True)
        _fail(*sanitizer.set_aside())


def _program_sanitizer() -> ModuleType | None:
    """The module of the sanitizer, if it checks the whole program."""
    sanitizer = sys.modules.get("tilewright.sanitizer")
    return sanitizer if sanitizer is not None and sanitizer.is_begun() else None


def _fail(reports: Sequence[Report], dropped: int) -> None:
    from tilewright.errors import SanitizerError

    if reports:
        pytest.fail(str(SanitizerError(reports, dropped)), pytrace=False)
