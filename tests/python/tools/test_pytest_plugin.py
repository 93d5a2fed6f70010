"""Plain ``pytest`` with tilewright as Triton: by the ini option and by the variable, also where warnings are errors."""

from __future__ import annotations

import pytest
from conftest import DEVICE, environment_of
from wheels import ENTRY_POINTS

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="once is enough")

TESTS = """
import numpy as np
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

def test_a_kernel():
    x = np.arange(100, dtype=np.float32)
    y = np.zeros_like(x)
    add[(1,)](x, y, 100, BLOCK=128)
    assert (y == x + 1).all()

def test_who_triton_is():
    assert tl.__name__ == "tilewright.language"
"""

CONFTEST = """
import triton
assert triton.language.__name__ == "tilewright.language", triton
"""

PLAIN = ("-m", "pytest")
UNDER_RUN = ("-m", "tilewright", "run", "-m", "pytest")


@pytest.fixture
def run_pytest(run, script, tmp_path):
    """Runs pytest on a project; pytest finds the plugin as that of an installed distribution."""
    site = "site/tilewright-0.dist-info"
    script("Metadata-Version: 2.1\nName: tilewright\nVersion: 0\n", f"{site}/METADATA")
    script(ENTRY_POINTS, f"{site}/entry_points.txt")
    # Pytest wants to rewrite the assertions of each module of a distribution with plugins.
    script("tilewright/__init__.py,,\n_tilewright_startup/__init__.py,,\n", f"{site}/RECORD")
    script("raise RuntimeError('the official triton was imported')\n", "site/triton/__init__.py")
    script(TESTS, "project/test_kernels.py")

    def start(ini, command=PLAIN, conftest="", **env):
        script(f"[pytest]\n{ini}\n", "project/pytest.ini")
        script(conftest, "project/conftest.py")
        path = f"{tmp_path / 'site'}:{environment_of()['PYTHONPATH']}"
        # Other plugins have warnings of their own.
        others = ["-p", "no:xdist", "-p", "no:timeout", "-p", "no:cacheprovider"]
        return run(*command, "-q", *others, env={"PYTHONPATH": path, **env}, cwd=tmp_path / "project")

    return start


@pytest.mark.parametrize("warnings", ["", "filterwarnings = error"])
@pytest.mark.parametrize(
    ("ini", "command", "env"),
    [
        pytest.param("tilewright_as_triton = true", PLAIN, {}, id="ini"),
        pytest.param("", PLAIN, {"TILEWRIGHT_AS_TRITON": "1"}, id="variable"),
        pytest.param("", UNDER_RUN, {}, id="run"),
        pytest.param("tilewright_as_triton = true", ("-W", "error", *PLAIN), {}, id="errors of Python"),
    ],
)
def test_tests_that_import_triton_have_tilewright(run_pytest, ini, command, env, warnings):
    done = run_pytest(f"{ini}\n{warnings}", command, CONFTEST, **env)
    assert (done.code, done.err) == (0, ""), done.out + done.err
    assert "2 passed in" in done.out
    assert "warning" not in done.out.lower()


def test_the_variable_has_priority_over_the_option(run_pytest):
    done = run_pytest("tilewright_as_triton = true", TILEWRIGHT_AS_TRITON="0")
    assert done.code == 2
    assert "RuntimeError: the official triton was imported" in done.out


@pytest.mark.parametrize("ini", ["", "tilewright_as_triton = false"])
def test_without_the_option_triton_is_the_official_one(run_pytest, ini):
    done = run_pytest(ini)
    assert done.code == 2
    assert "RuntimeError: the official triton was imported" in done.out


def test_processes_that_a_test_starts_have_tilewright_too(run_pytest, script):
    script(
        """
        import subprocess, sys

        def test_child():
            code = "import triton; print(triton.language.__name__)"
            assert subprocess.check_output([sys.executable, "-c", code], text=True) == "tilewright.language\\n"
        """,
        "project/test_kernels.py",
    )
    done = run_pytest("tilewright_as_triton = true")
    assert done.code == 0, done.out


def test_a_mistake_ends_pytest_with_its_text(run_pytest, script):
    done = run_pytest("", TILEWRIGHT_AS_TRITON="yes")
    assert (done.code, done.out) == (4, "")
    assert "ERROR: TILEWRIGHT_AS_TRITON is 'yes', expected 0, 1, or some of triton,viz,cuda" in done.err
    done = run_pytest("", TILEWRIGHT_SANITIZE="rice")
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("ERROR: error[TW0108]: TILEWRIGHT_SANITIZE: no check is called 'rice'")
    done = run_pytest("tilewright_as_triton = yess")
    assert (done.code, done.out) == (4, "")
    assert "pytest.ini: tilewright_as_triton: invalid truth value 'yess'" in done.err
    script("import sys, types; sys.modules['triton'] = types.ModuleType('triton')\n", "site/early.py")
    done = run_pytest("tilewright_as_triton = true", (*PLAIN, "-p", "early"))
    assert (done.code, done.out) == (4, "")
    assert "ERROR: the official triton is already imported" in done.err
    assert "Traceback" not in done.err


def test_the_fixture_needs_launches_of_tilewright(run_pytest, script):
    script("", "site/triton/__init__.py")
    script("import triton\n\ndef test_a_kernel(tilewright_sanitize): ...\n", "project/test_kernels.py")
    done = run_pytest("")
    assert done.code == 1
    assert "`import triton` imports another package: set tilewright_as_triton" in done.out
    done = run_pytest("tilewright_as_triton = true")
    assert done.code == 0, done.out
    script("import triton\n\ndef test_a_kernel(): import tilewright\n", "project/test_kernels.py")
    done = run_pytest("", TILEWRIGHT_SANITIZE="1")
    assert "no findings; `import triton` imports another package" in done.err


RACES = """
import numpy as np
import pytest
import tilewright as triton
import tilewright.language as tl

@triton.jit
def add_up(acc, s):
    tl.store(acc, tl.load(acc) + s)

@pytest.fixture
def before():
    add_up[(4,)](np.zeros(1, np.float32), 1.0)

@pytest.fixture
def after():
    yield
    add_up[(4,)](np.zeros(1, np.float32), 1.0)

def test_races(CHECKED):
    add_up[(4,)](np.zeros(1, np.float32), 1.0)

@pytest.mark.xfail(strict=True)
def test_is_expected_to_race(CHECKED):
    add_up[(4,)](np.zeros(1, np.float32), 1.0)

def test_fails_otherwise(CHECKED):
    add_up[(4,)](np.zeros(1, np.float32), 1.0)
    assert 1 + 1 == 3

def test_takes(tilewright_sanitize):
    add_up[(4,)](np.zeros(1, np.float32), 1.0)
    assert {report.code for report in tilewright_sanitize.take()} == {"TW0221"}

def test_is_clean(CHECKED):
    add_up[(1,)](np.zeros(1, np.float32), 1.0)

def test_setup(before):
    pass

def test_teardown(after):
    pass
"""

RACE_TITLE = "error[TW0221]: two programs race for `acc[0]`"


def race_titles_in_reports(out):
    """The lines that begin a report of the race; pytest's summary repeats them in full where it runs in CI."""
    reports, _, _ = out.partition("short test summary info")
    return [line for line in reports.splitlines() if line == RACE_TITLE]


@pytest.mark.parametrize(
    ("command", "env"),
    [
        pytest.param(PLAIN, {"TILEWRIGHT_SANITIZE": "race"}, id="variable"),
        pytest.param(("-m", "tilewright", "run", "--sanitize", "-m", "pytest"), {}, id="run"),
    ],
)
def test_a_test_fails_with_what_the_sanitizer_finds_in_it(run_pytest, script, command, env):
    script(RACES.replace("CHECKED", ""), "project/test_kernels.py")
    done = run_pytest("addopts = -rfEpx", command, **env)
    assert done.code == 1
    ends = [line.split()[:2] for line in done.out.splitlines() if "test_kernels.py::" in line]
    assert sorted((kind, name.rpartition("::")[2]) for kind, name in ends) == [
        ("ERROR", "test_fails_otherwise"),
        ("ERROR", "test_teardown"),
        ("FAILED", "test_fails_otherwise"),
        ("FAILED", "test_races"),
        ("FAILED", "test_setup"),
        ("PASSED", "test_is_clean"),
        ("PASSED", "test_takes"),
        ("PASSED", "test_teardown"),
        ("XFAIL", "test_is_expected_to_race"),
    ]
    # Each has two findings, and no report has them twice.
    assert len(race_titles_in_reports(done.out)) == 2 * 4, done.out
    assert done.err == "tilewright sanitizer: 10 findings: 10 of race\n"


def test_a_test_with_the_fixture_fails_with_its_findings(run_pytest, script):
    script(RACES.replace("CHECKED", "tilewright_sanitize"), "project/test_kernels.py")
    done = run_pytest("addopts = -rfEpx")
    assert done.code == 1
    ends = [line.split()[:2] for line in done.out.splitlines() if "test_kernels.py::" in line]
    assert sorted((kind, name.rpartition("::")[2]) for kind, name in ends) == [
        ("ERROR", "test_fails_otherwise"),
        ("FAILED", "test_fails_otherwise"),
        ("FAILED", "test_races"),
        ("PASSED", "test_is_clean"),
        ("PASSED", "test_setup"),
        ("PASSED", "test_takes"),
        ("PASSED", "test_teardown"),
        ("XFAIL", "test_is_expected_to_race"),
    ]
    assert len(race_titles_in_reports(done.out)) == 4, done.out
