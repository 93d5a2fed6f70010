"""Skipped tests are counted and named at the end of a run."""

from types import SimpleNamespace

from conftest import skipped_by_reason


def report(test, reason):
    return SimpleNamespace(nodeid=f"tests/python/{test}", longrepr=("/x/test_a.py", 3, f"Skipped: {reason}"))


def test_each_reason_has_its_tests():
    reports = [
        report("test_b.py", "there is no chromedriver"),
        report("test_a.py::test_x[1]", "a GPU is needed"),
        report("test_a.py::test_x[2]", "a GPU is needed"),
        report("test_a.py::test_y", "a GPU is needed"),
        # Another process has collected the same file.
        report("test_b.py", "there is no chromedriver"),
    ]
    assert skipped_by_reason(reports) == [
        "4 skipped, for 2 reasons",
        "    3  a GPU is needed",
        "       test_a.py::test_x, test_a.py::test_y",
        "    1  there is no chromedriver",
        "       test_b.py",
    ]
    assert skipped_by_reason(reports[:1])[0] == "1 skipped, for 1 reason"
    assert skipped_by_reason([]) == []
