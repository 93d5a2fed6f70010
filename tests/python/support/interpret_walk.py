"""A plugin for pytest that runs tests of the language in interpret mode, but for the differences that are meant.

TRITON_INTERPRET=1 python -m pytest -p interpret_walk tests/python/language/test_operators.py
"""

from __future__ import annotations

import pytest
from interpret_differences import DIFFERENCES, NEVER_ENDS, NOT_OF_KERNELS, SLOW

from tilewright.runtime import _interpreted

FIXTURES_OF_PROGRAMS = {"run", "run_forked", "script"}
"""Tests that take these start a Python of their own, and launch nothing here."""

_replacements = _interpreted.replacements
_launches = 0
_counts: list[int] = []


def _name(item):
    """``control::test_loops[cpu-3]``."""
    return f"{item.path.stem.removeprefix('test_')}::{item.name}"


def _reasons(item, known):
    names = _name(item), _name(item).partition("[")[0]
    return [(name, known[name]) for name in names if name in known]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leaves out what launches nothing or takes too long, and expects what differs to fail: no entry is stale."""
    files = {item.path.stem.removeprefix("test_") for item in items}
    used, dropped = set(), []
    for item in items:
        for name, reason in _reasons(item, DIFFERENCES):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, run=reason is not NEVER_ENDS))
            used.add(name)
        slow = _reasons(item, SLOW)
        used.update(name for name, _ in slow)
        is_of_kernels = not (slow or _name(item).partition("::")[0] in NOT_OF_KERNELS)
        if not is_of_kernels or FIXTURES_OF_PROGRAMS & set(item.fixturenames):
            dropped.append(item)
    stale = [
        name for name in {**DIFFERENCES, **SLOW} if name.partition("::")[0] in files and name not in used
    ]
    if stale:
        raise pytest.UsageError(f"no test has the name of these differences: {', '.join(stale)}")
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in set(dropped)]


def _counted(kernel):
    """Each launch asks this once."""
    global _launches
    _launches += 1
    return _replacements(kernel)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Counts the kernels that a test launches."""
    before = _launches
    try:
        return (yield)
    finally:
        _counts.append(_launches - before)


def pytest_configure():
    """Counts from here on."""
    _interpreted.replacements = _counted


def pytest_terminal_summary(terminalreporter):
    """Says how many tests launched something, and how many launches there were."""
    launching = sum(count > 0 for count in _counts)
    terminalreporter.write_line(
        f"{launching} tests launched {sum(_counts)} interpreted kernels, {len(_counts) - launching} launched none"
    )
