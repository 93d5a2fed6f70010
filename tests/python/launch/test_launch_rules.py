"""Rules of a launch beyond its arguments: warnings, handles, hooks, knobs, what compile-time code raises."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import LaunchWarning


@pytest.fixture
def fill():
    @triton.jit
    def fill(out_ptr, value, BLOCK: tl.constexpr):
        tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)

    return fill


def test_an_empty_grid_is_warned_of_once(fill):
    out = np.zeros(4, np.float32)

    def launch():
        for _ in range(3):
            fill[(0,)](out, 1.0, BLOCK=4)
            fill[lambda meta: (0, 1)](out, 1.0, BLOCK=4)

    with pytest.warns(LaunchWarning) as caught:
        launch()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert text.startswith("warning[TW0112]: kernel 'fill' is launched with the empty grid (0, 1, 1)\n")
    assert "test_launch_rules.py:" in text
    assert "^^^^ this kernel does not run" in text
    assert not out.any()


def test_a_grid_that_is_no_tuple_is_warned_of_once(fill):
    out = np.zeros(512, np.float32)

    def launch():
        for _ in range(3):
            fill[128](out, 1.0, BLOCK=4)

    with pytest.warns(LaunchWarning) as caught:
        launch()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert text.startswith("warning[TW0113]: kernel 'fill' is launched with the int 128 as its grid\n")
    assert "^^^^ it runs 128 programs" in text
    assert "write `fill[(128,)](...)`" in text
    assert out.all()


def test_usual_grids_are_not_warned_of(fill):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for grid in [(1,), [1], lambda meta: (1,), (1, 1, 1)]:
            fill[grid](np.zeros(4, np.float32), 1.0, BLOCK=4)


def test_warnings_may_be_errors(fill):
    out = np.zeros(4, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(LaunchWarning, match="TW0113"):
            fill[1](out, 1.0, BLOCK=4)
    assert not out.any()


@pytest.mark.parametrize("grid", [(0,), 128])
def test_a_warning_of_a_grid_that_is_an_error_is_raised_again(fill, grid):
    out = np.zeros(512, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(LaunchWarning):
                fill[grid](out, 1.0, BLOCK=4)
    assert not out.any()
    with pytest.warns(LaunchWarning) as caught:
        _ = [fill[grid](out, 1.0, BLOCK=4) for _ in range(2)]
    assert len(caught) == 1


def test_a_warning_of_a_compilation_that_is_an_error_is_raised_again():
    @triton.jit
    def kernel(out_ptr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out_ptr + i, 1.0, mask=(i > 1) and (i < 3))

    out = np.zeros(4, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(LaunchWarning, match="TW0050"):
                kernel[(1,)](out, BLOCK=4)
    assert not out.any()


def test_floats_of_numpy_are_python_floats():
    @triton.jit
    def kernel(out_ptr, x):
        tl.static_assert(x.dtype == tl.float32)
        tl.store(out_ptr, x)

    out = np.zeros(1, np.float32)
    kernel[(1,)](out, np.float64(0.1))
    assert kernel[(1,)](out, 0.1) is kernel[(1,)](out, np.float64(0.1))
    assert out[0] == np.float32(0.1)


def test_keyword_only_parameters():
    @triton.jit
    def kernel(out_ptr, x=1, *, y, z=3):
        tl.store(out_ptr, x * 100 + y * 10 + z)

    out = np.zeros(1, np.float32)
    kernel[(1,)](out, 4, y=5)
    assert out[0] == 453
    with pytest.raises(triton.TritonError) as caught:
        kernel[(1,)](out, 4, 5)
    assert caught.value.code == "TW0107"
    assert "takes 2 arguments by position, and 3 were given" in str(caught.value)
    with pytest.raises(TypeError, match="TW0101"):
        kernel[(1,)](out, 4)


def test_positional_only_parameters():
    @triton.jit
    def kernel(out_ptr, num_warps, /, x, *, y=1):
        tl.store(out_ptr, num_warps * 100 + x * 10 + y)

    out = np.zeros(1, np.float32)
    kernel[(1,)](out, 4, 5)
    assert out[0] == 451
    # As in Python, a keyword of such a name is another thing: here the option.
    kernel[(1,)](out, 3, x=5, num_warps=8)
    assert out[0] == 351
    for launch in (lambda: kernel[(1,)](out_ptr=out, x=5), lambda: kernel[(1,)](4, out_ptr=out, x=5)):
        with pytest.raises(TypeError) as caught:
            launch()
        assert caught.value.code == "TW0101"
        assert "takes argument 'out_ptr' by position, not by keyword" in str(caught.value)


@triton.jit
def scaled(out_ptr, SCALE: tl.constexpr, x, y=2):
    tl.store(out_ptr, SCALE * 100 + x * 10 + y)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((3, 4), {}),
        ((7, 3, 4), {}),
        ((3,), {"y": 4}),
        ((3,), {"y": 4, "SCALE": 7}),
        ((), {"x": 3, "y": 4}),
        ((7,), {"x": 3, "y": 4}),
        ((3, 4), {"num_warps": 4}),
    ],
)
def test_arguments_of_handles(args, kwargs):
    out = np.zeros(1, np.float32)
    handle = scaled.warmup(out, 7, 5, 5)
    handle[(1,)](out, *args, **kwargs)
    assert out[0] == 734
    seen = {}

    def grid(meta):
        seen.update(meta)
        return (1,)

    handle[grid](out, *args, **kwargs)
    assert {name: seen[name] for name in ("SCALE", "x", "y")} == {"SCALE": 7, "x": 3, "y": 4}
    assert seen["out_ptr"] is out


def test_defaults_of_handles():
    out = np.zeros(1, np.float32)
    scaled.warmup(out, 7, 5)[(1,)](out, 3)
    assert out[0] == 732


@pytest.mark.parametrize(
    ("args", "kwargs", "code"),
    [
        ((3, 4), {"num_wraps": 4}, "TW0102"),
        ((3, 4, 5, 6), {}, "TW0107"),
        ((3,), {"x": 4}, "TW0105"),
        ((7, 3), {"x": 4}, "TW0107"),
        ((), {}, "TW0101"),
        ((8, 3, 4), {}, "TW0105"),
    ],
)
def test_wrong_arguments_of_handles(args, kwargs, code):
    out = np.zeros(1, np.float32)
    handle = scaled.warmup(out, 7, 5, 5)
    with pytest.raises(triton.runtime.errors.LaunchError) as caught:
        handle[(1,)](out, *args, **kwargs)
    assert caught.value.code == code


def test_exceptions_of_compile_time_functions_are_the_cause():
    @triton.constexpr_function
    def fails(x):
        raise LookupError(f"no {x}")

    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, fails(3))

    with pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](np.zeros(1, np.float32))
    cause = caught.value.__cause__
    assert isinstance(cause, LookupError)
    assert cause.__traceback__.tb_frame.f_code is not None
    assert "no 3" in str(caught.value)


def test_exceptions_of_properties_are_told():
    class Settings:
        @property
        def size(self):
            raise RuntimeError("the file is missing")

        @property
        def other(self):
            return self.missing

    settings = Settings()

    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, settings.size)

    @triton.jit
    def other(out_ptr):
        tl.store(out_ptr, settings.other)

    with pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](np.zeros(1, np.float32))
    assert "reading 'size' of an object of class 'Settings' raised RuntimeError: the file is missing" in str(
        caught.value
    )
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(
        triton.CompilationError, match="AttributeError: 'Settings' object has no attribute 'mi"
    ):
        other[(1,)](np.zeros(1, np.float32))


@pytest.fixture
def knobs():
    yield triton.knobs
    for group in (triton.knobs.runtime, triton.knobs.compilation, triton.knobs.language):
        group.reset()


def test_knobs_set_from_python_have_an_effect(knobs, monkeypatch):
    import os

    @triton.jit
    def kernel(out_ptr):
        tl.device_assert(tl.load(out_ptr) == 1, "it is not 1")

    monkeypatch.delenv("TRITON_DEBUG", raising=False)
    out = np.zeros(1, np.float32)
    kernel[(1,)](out)
    knobs.runtime.debug = True
    with pytest.raises(AssertionError):
        kernel[(1,)](out)
    assert knobs.runtime.reset() is knobs.runtime
    assert "TRITON_DEBUG" not in os.environ
    kernel[(1,)](out)
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        with pytest.raises(AssertionError):
            kernel[(1,)](out)
    kernel[(1,)](out)
    knobs.runtime.debug = True
    del knobs.runtime.debug
    kernel[(1,)](out)


def test_the_environment_is_read_when_it_is_asked_for(knobs, monkeypatch):
    @triton.jit(debug=True)
    def checked(out_ptr):
        tl.device_assert(tl.load(out_ptr) == 1, "it is not 1")

    kernel = triton.jit(checked.fn)
    monkeypatch.delenv("TRITON_DEBUG", raising=False)
    out = np.zeros(1, np.float32)
    knobs.refresh_knobs()
    kernel[(1,)](out)
    checked[(1,)](out, debug=False)
    with pytest.raises(AssertionError):
        checked[(1,)](out)
    monkeypatch.setenv("TRITON_DEBUG", "1")
    knobs.refresh_knobs()
    # Whoever sets it wants it, whatever a launch says.
    for launch in (lambda: kernel[(1,)](out), lambda: checked[(1,)](out, debug=False)):
        with pytest.raises(AssertionError):
            launch()
    monkeypatch.delenv("TRITON_DEBUG")
    knobs.refresh_knobs()
    kernel[(1,)](out)


PLAIN = 3


def test_plain_globals_may_be_allowed(knobs):
    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, PLAIN)

    out = np.zeros(1, np.float32)
    with pytest.raises(triton.CompilationError):
        kernel[(1,)](out)
    knobs.compilation.allow_non_constexpr_globals = True
    kernel[(1,)](out)
    assert out[0] == 3


def test_a_variable_that_is_set_before_the_first_launch_counts(monkeypatch, knobs):
    monkeypatch.setenv("TRITON_DEBUG", "1")

    @triton.jit
    def kernel(out_ptr):
        tl.device_assert(tl.load(out_ptr) == 1, "it is not 1")

    with pytest.raises(AssertionError):
        kernel[(1,)](np.zeros(1, np.float32))


def test_launch_hooks(knobs, fill):
    seen = []

    def enter(metadata):
        seen.append(("enter", metadata.get()["name"]))

    def leave(metadata):
        seen.append(("exit", metadata.get()["name"]))

    knobs.runtime.launch_enter_hook.add(enter)
    knobs.runtime.launch_exit_hook.add(leave)
    out = np.zeros(4, np.float32)
    fill[(1,)](out, 1.0, BLOCK=4)
    assert seen == [("enter", "fill"), ("exit", "fill")]
    knobs.runtime.launch_enter_hook.remove(enter)
    knobs.runtime.launch_exit_hook.remove(leave)
    fill[(1,)](out, 1.0, BLOCK=4)
    assert len(seen) == 2
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook = enter
        fill[(1,)](out, 1.0, BLOCK=4)
    assert len(seen) == 3
    fill[(1,)](out, 1.0, BLOCK=4)
    assert len(seen) == 3


def test_compile_hooks(knobs, fill):
    seen = []

    def before(*, key, repr, fn, compile, is_manual_warmup, already_compiled):
        seen.append((fn.name.rpartition(".")[2], is_manual_warmup, already_compiled, compile["key"] == key))
        assert "fill[num_warps=4, num_ctas=1, num_stages=3](out_ptr: *fp32" in repr
        return compile["constants"][2,] == 8

    knobs.runtime.jit_cache_hook = before
    knobs.runtime.jit_post_compile_hook = lambda **about: seen.append(about["compile"]["signature"])
    out = np.zeros(8, np.float32)
    fill[(1,)](out, 1.0, BLOCK=4)
    fill[(1,)](out, 1.0, BLOCK=4)
    assert seen == [
        ("fill", False, False, True),
        {"out_ptr": "*fp32", "value": "fp32", "BLOCK": "constexpr"},
    ]
    assert fill[(1,)](out, 2.0, BLOCK=8) is None
    assert out.tolist() == [1] * 4 + [0] * 4


@triton.jit
def doubled(x):
    return x * 2


@triton.jit
def described(out_ptr, pair, SHAPE: tl.constexpr, DTYPE: tl.constexpr, FN: tl.constexpr, empty=None, *rest):
    value = FN(tl.load(pair[0])) + pair[1] + SHAPE[1]
    for i in tl.static_range(len(rest)):
        value += tl.load(rest[i])
    tl.store(out_ptr, value.to(DTYPE))


def test_a_form_is_described_to_hooks_and_made_of_its_description(knobs):
    described_to = []
    knobs.runtime.jit_cache_hook = lambda **about: described_to.append(about["compile"]) or False
    x, out = np.full(1, 4, np.float32), np.zeros(1, np.float32)
    arguments = (out, (x, 1), (2, 3), tl.float32, doubled, None, x, x)
    described[(1,)](*arguments, num_warps=2)
    assert out[0] == 8 + 1 + 3 + 8
    (compile,) = described_to
    assert compile["signature"]["pair"] == ("*fp32", "constexpr")
    assert compile["constants"][1, 1] == 1
    assert compile["num_warps"] == 2
    text = compile["specialization_data"]
    assert isinstance(text, str)
    out[0] = 0
    again = described.preload(text)
    assert again.metadata.num_warps == 2
    again[(1,)](*arguments[:6], (x, x))
    assert out[0] == 8 + 1 + 3 + 8
    with pytest.raises(TypeError, match=r"is of kernel .*described"):
        doubled.preload(text)


def test_hooks_that_are_not_there_yet_say_so(knobs):
    with pytest.raises(NotImplementedError, match="add_stages_inspection_hook"):
        knobs.runtime.add_stages_inspection_hook = print


@pytest.mark.parametrize(
    ("text", "count"), [("many", None), ("0", None), ("-3", None), ("99999999", "1024"), ("2", "2")]
)
def test_numbers_of_threads_are_checked(run, script, text, count):
    program = script(
        """
        from tilewright.runtime.driver import driver
        print(driver.active.utils.get_device_properties(0)["multiprocessor_count"])
        print(driver.active.utils.get_device_properties(0)["multiprocessor_count"])
        """
    )
    done = run(program, env={"TILEWRIGHT_NUM_THREADS": text})
    if text == "2":
        assert done.err == ""
    else:
        assert done.err.startswith(
            f"tilewright: TILEWRIGHT_NUM_THREADS is '{text}', expected an int from 1 to 1024: running on {count or ''}"
        )
        assert done.err.count("\n") == 1
    assert count is None or done.out == f"{count}\n{count}\n"


class Hostile:
    def __init__(self, **interface):
        array = np.zeros(4, np.float32)
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, **interface}


@pytest.mark.parametrize(
    "interface",
    [
        {"shape": (1 << 62, 1 << 62)},
        {"shape": (2, 2), "strides": (4,)},
        {"shape": (1 << 40,), "strides": (1 << 40,)},
        {"shape": (3,), "strides": (-(1 << 62),)},
        {"data": ((1 << 64) - 4, False), "shape": (1 << 10,)},
    ],
)
def test_arrays_that_state_the_impossible(fill, interface):
    with pytest.raises(TypeError, match="TW0105"):
        fill[(1,)](Hostile(**interface), 1.0, BLOCK=4)


def test_dlpack_says_what_must_not_be_written(fill):
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **how):
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = np.zeros(4, np.float32)
    fill[(1,)](Wrapped(array), 1.0, BLOCK=4)
    assert array.all()
    try:
        array.__dlpack__(max_version=(1, 0))
    except TypeError:
        pytest.skip("this numpy has no versions of DLPack")
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    with pytest.raises(triton.TritonError, match=r"read-only|may only be read"):
        fill[(1,)](Wrapped(array), 1.0, BLOCK=4)
    assert not array.any()
