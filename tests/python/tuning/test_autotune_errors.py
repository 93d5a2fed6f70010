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
        "TW0121.*reset_to_zero .*names 'x', which is no parameter.*parameters are 'x_ptr', 'n', 'BLOCK'.*"
        "reset_to_zero lists the tensors",
    ),
    "a misspelt tensor to be restored": (
        lambda: tuned([ONE], restore_value=["x_ptr", "x_prt"]),
        errors.LaunchValueError,
        "TW0121.*restore_value .*names 'x_prt', which is no parameter.*did you mean 'x_ptr'",
    ),
    "a misspelt key": (
        lambda: tuned([ONE], ["nn"]),
        errors.LaunchValueError,
        "TW0121.*key .*names 'nn', which is no parameter.*did you mean 'n'",
    ),
    "an unknown key": (
        lambda: tuned([ONE], ["n", "width"]),
        errors.LaunchValueError,
        "names 'width'.*key lists the parameters",
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


DECORATED = """
@triton.autotune([triton.Config({"nn": 8}), triton.Config({"BLOCK": 64})], {arguments})
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 2.0, mask=tl.arange(0, BLOCK) < n)
"""


@pytest.mark.parametrize(
    ("arguments", "marked", "label"),
    [
        ('key=["n", "nn"]', '"nn"', "in this key"),
        ('["nn"]', '"nn"', "in this key"),
        ('key="nn"', '"nn"', "in this key"),
        ('key=["n" + "n"]', '["n" + "n"]', "in this key"),
        ("key=[], restore_value=['nn']", "'nn'", "in this restore_value"),
        ('**{"key": ["nn"]}', None, "of this autotuner"),
    ],
)
@WITH_COLUMNS
def test_a_wrong_name_of_an_autotuner_is_marked_there(arguments, marked, label, module):
    text = DECORATED.replace("{arguments}", arguments).lstrip()
    with pytest.raises(errors.LaunchValueError, match="names 'nn'") as caught:
        module(text)
    (about,) = caught.value.diagnostics
    source = text.splitlines()[0]
    start = 1 if marked is None else source.index(arguments) + arguments.index(marked)
    end = len(source) if marked is None else start + len(marked)
    assert (about.code, about.line, about.label) == ("TW0121", 1, label)
    assert (about.column - 1, about.end_column - 1) == (start, end)
    assert "kernel 'fill' is defined at " in about.notes[1]
    assert about.notes[1].endswith("k.py:3")


LAUNCHES = """
@triton.autotune([triton.Config({"BLOCK": size}) for size in {sizes}], ["n"])
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 2.0, mask=tl.arange(0, BLOCK) < n)

def launch(x, options=dict(num_warps=8)):
    {launch}
"""


@pytest.mark.parametrize("sizes", ["(16, 32)", "(16,)"])
@pytest.mark.parametrize(
    ("launch", "marked", "names"),
    [
        ("fill[(1,)](x, 8, BLOCK=64)", "BLOCK=64", "BLOCK"),
        ("fill[(1,)](x, n=8, num_warps=4)", "num_warps=4", "num_warps"),
        ("fill.run(x, 8, num_stages=1, BLOCK=64, grid=(1,))", "BLOCK=64", "BLOCK, num_stages"),
        ("fill[(1,)](x, 8, **options)", "**options", "num_warps"),
    ],
)
@WITH_COLUMNS
def test_a_value_that_a_launch_and_its_configurations_set_is_marked(sizes, launch, marked, names, module):
    text = LAUNCHES.replace("{sizes}", sizes).replace("{launch}", launch).lstrip()
    made = module(text)
    with pytest.raises(ValueError, match=f"Conflicting meta-parameters: {names}") as caught:
        made.launch(X)
    (about,) = caught.value.diagnostics
    source = text.splitlines()[6]
    assert (caught.value.code, about.line, source[about.column - 1 : about.end_column - 1]) == (
        "TW0122",
        7,
        marked,
    )
    assert "and the triton.Config at " in about.notes[0]
    assert "k.py:1 sets " in about.notes[0]


def test_a_conflict_is_found_without_source():
    tuner = tuned(CONFIGS)
    with pytest.raises(errors.LaunchValueError, match=r"(?s)TW0122.*passes BLOCK=64, .* sets 16") as caught:
        exec("tuner[(1,)](X, 8, BLOCK=64)", {"tuner": tuner, "X": X})
    assert caught.value.diagnostics[0].file is None


def test_a_conflict_with_a_configuration_of_pruning_is_an_error():
    """The autotuner does not list the configuration that pruning returns."""
    made = [triton.Config({"BLOCK": 32})]
    listed = [triton.Config({}, num_warps=count) for count in (1, 2)]
    tuner = tuned(listed, prune_configs_by={"early_config_prune": lambda *_arguments, **_named: made})
    tuner[(1,)](X, 8)
    with pytest.raises(errors.LaunchValueError, match=r"(?s)TW0122.*passes BLOCK=a list, .* sets 32"):
        tuner[(1,)](X, 8, BLOCK=list(range(100)))


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


@pytest.mark.parametrize(
    ("device", "sizes", "code"),
    [
        ("cpu", (16, 32), "TW0201"),
        # Threads compile for a GPU.
        ("sim:sm_90", (1 << 21, 1 << 22), "TW0022"),
    ],
)
def test_no_frame_of_tilewright_is_shown_by_the_run_command(device, sizes, code, script, run):
    program = script(
        f"""
        import numpy as np
        import triton
        import triton.language as tl

        @triton.autotune([triton.Config({{"BLOCK": size}}) for size in {sizes}], key=["n"])
        @triton.jit
        def beyond(x_ptr, n, BLOCK: tl.constexpr):
            tl.store(x_ptr + 5000 + tl.arange(0, BLOCK), 1.0)

        beyond[(1,)](np.zeros(8, np.float32), 8)
        """
    )
    done = run("-m", "tilewright", "run", "--device", device, program)
    assert done.err.count('  File "') == 1
    assert f"error[{code}]" in done.err
