"""Mistakes in what decorates a kernel, ``autotune``, ``heuristics``, ``Config``, ``jit``: errors say what to write."""

from __future__ import annotations

import copy
import pickle
import sys
import traceback
import warnings

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import errors
from tilewright.viz._trace import Trace

X = np.zeros(8, np.float32)


@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2.0, mask=i < n)


def tuned(configs, key=("n",), **more):
    return triton.autotune(configs, list(key), **more)(double)


ONE = triton.Config({"BLOCK": 64})

# The expression, the error, and its text.
MISTAKES = {
    "a number for a dict": (lambda: triton.Config(64), TypeError, "is a dict of compile-time arguments"),
    "one for a list": (lambda: tuned(ONE), TypeError, r"write configs=\[triton.Config\(...\), ...\]"),
    "a number for a list": (lambda: tuned(3), TypeError, "is a list of triton.Config, found a int"),
    "a dict for a config": (lambda: tuned([{"BLOCK": 64}]), TypeError, "and has a dict"),
    "no grid": (
        lambda: tuned([ONE])(X, 8),
        errors.LaunchStateError,
        "TW0104.*'double' is called without a grid",
    ),
    "no kernel": (
        lambda: triton.autotune([ONE], ["n"])(double.fn)[(1,)](X, 8),
        errors.LaunchTypeError,
        "write @triton.jit on the line above",
    ),
    "no kernel and no grid": (
        lambda: triton.autotune([ONE], ["n"])(double.fn)(X, 8),
        errors.LaunchTypeError,
        "write @triton.jit on the line above",
    ),
    "a number to be zeroed": (
        lambda: tuned([ONE, triton.Config({"BLOCK": 8})], reset_to_zero=["n"])[(1,)](X, 8),
        errors.LaunchValueError,
        "names 'n', which is 8 in this launch",
    ),
    "a misspelt tensor": (
        lambda: tuned([ONE], reset_to_zero="x"),
        errors.LaunchValueError,
        "reset_to_zero .*names 'x', which is no parameter; its parameters are x_ptr, n, BLOCK",
    ),
    "a misspelt tensor to be restored": (
        lambda: tuned([ONE], restore_value=["x_ptr", "x_prt"]),
        errors.LaunchValueError,
        "restore_value .*names 'x_prt', which is no parameter; did you mean 'x_ptr'",
    ),
    "a misspelt key": (
        lambda: tuned([ONE], ["nn"]),
        errors.LaunchValueError,
        "key .*names 'nn', which is no parameter; did you mean 'n'",
    ),
    "an unknown key": (
        lambda: tuned([ONE], ["n", "width"]),
        errors.LaunchValueError,
        "its parameters are x_ptr, n, BLOCK",
    ),
    "a list for heuristics": (
        lambda: triton.heuristics([("BLOCK", len)])(double),
        TypeError,
        "takes a dict of functions .*, found a list",
    ),
    "a number for a function": (
        lambda: triton.heuristics({"BLOCK": 64})(double),
        TypeError,
        "takes a dict of functions .*, found 64 for 'BLOCK'",
    ),
    "heuristics without a grid": (
        lambda: triton.heuristics({"BLOCK": lambda arguments: 64})(double)(X, 8),
        errors.LaunchStateError,
        "TW0104.*'double' is called without a grid",
    ),
    "options of a launch": (
        lambda: triton.jit(num_warps=4),
        TypeError,
        "takes no num_warps.*kernel.grid.*num_warps=4",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    make, error, says = MISTAKES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.LaunchWarning)
        with pytest.raises(error, match=f"(?s){says}"):
            make()


WRONG_NAMES = """
@triton.autotune(
    configs=[{configs}],
    key=["n"],
)
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2.0, mask=i < n)
"""


WITH_COLUMNS = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 keeps no columns of a call")


@pytest.mark.parametrize(
    ("configs", "line", "marked", "hint"),
    [
        ('triton.Config({"BLOKC": 64})', 2, '"BLOKC"', "did you mean 'BLOCK'?"),
        ('triton.Config({"BLOKC": 64}), triton.Config({"BLOKC": 8})', 2, '"BLOKC"', "did you mean 'BLOCK'?"),
        pytest.param(
            "triton.Config(dict(\n        BLOCK=8, num_warp=8))",
            3,
            "num_warp",
            "did you mean 'num_warps'?",
            marks=WITH_COLUMNS,
        ),
        pytest.param(
            'triton.Config({"BLO" "KC": 64}, num_warps=4)',
            2,
            None,
            "did you mean 'BLOCK'?",
            marks=WITH_COLUMNS,
        ),
        ('*[triton.Config({"BLOCK": 8, "colour": c}) for c in (1, 2)]', 2, '"colour"', "options are"),
    ],
)
def test_a_wrong_name_of_a_configuration_is_marked_there(configs, line, marked, hint, module):
    text = WRONG_NAMES.replace("{configs}", configs).lstrip()
    made = module(text)
    with pytest.raises(
        errors.LaunchKeyError, match=r"of a triton\.Config is neither a parameter of"
    ) as caught:
        made.fill[(1,)](X, 8)
    (about,) = caught.value.diagnostics
    assert (about.code, about.line) == ("TW0102", line)
    source = text.splitlines()[line - 1]
    if marked is None:
        marked = source[source.index("triton.Config") : -2]
    assert source[about.column - 1 : about.end_column - 1] == marked
    assert about.hint.startswith(hint)
    shown = str(about).splitlines()
    assert shown[1].endswith(f"k.py:{line}:{about.column}")
    assert shown[3] == f"{line} | {source}"
    assert shown[4].index("^") - 4 == about.column - 1
    assert any("kernel 'fill' is defined at " in note for note in about.notes)


def test_a_wrong_name_of_one_configuration_is_part_of_the_warning(module):
    made = module(
        WRONG_NAMES.replace("{configs}", 'triton.Config({"BLOCK": 8}), triton.Config({"BLOKC": 8})')
    )
    with pytest.warns(errors.LaunchWarning, match="skips 1 of 2") as caught:
        made.fill[(1,)](X, 8)
    assert str(caught[0].message).endswith("k.py:2; did you mean 'BLOCK'?")


def test_a_copy_of_a_configuration_has_no_line():
    config = triton.Config({"BLOKC": 64})
    assert "_made_at" not in vars(config)
    for other in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config
        with pytest.raises(errors.LaunchKeyError, match="note: the configuration is BLOKC: 64, num_warps: 4"):
            tuned([other])[(1,)](X, 8)


@triton.jit
def beyond(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + 5000 + tl.arange(0, BLOCK), 1.0)


CONFIGS = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})]


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(lambda: triton.autotune(CONFIGS, key=["n"])(beyond)[(1,)](X, 8), id="launch"),
        pytest.param(lambda: triton.autotune(CONFIGS, key=["m"])(beyond), id="key"),
        pytest.param(lambda: Trace(beyond)[(1,)](X, 8, BLOCK=16), id="trace"),
    ],
)
def test_at_most_one_frame_of_tilewright_is_shown(mistake):
    """The function that the program calls, if it is one of Python."""
    with pytest.raises(errors.TritonError) as caught:
        mistake()
    frames = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[0] == __file__
    assert len([name for name in frames if "/tilewright/" in name]) <= 1, frames


def test_no_frame_of_tilewright_is_shown_by_the_run_command(script, run):
    program = script(
        """
        import numpy as np
        import triton
        import triton.language as tl

        @triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
        @triton.jit
        def beyond(x_ptr, n, BLOCK: tl.constexpr):
            tl.store(x_ptr + 5000 + tl.arange(0, BLOCK), 1.0)

        beyond[(1,)](np.zeros(8, np.float32), 8)
        """
    )
    done = run("-m", "tilewright", "run", program)
    assert done.err.count('  File "') == 1
    assert "error[TW0201]" in done.err
