"""The decorator, the attributes of a kernel, and what the free names of a kernel mean."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import inspect
import math
import os
import pickle
import pydoc
from pathlib import Path

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl

GLOBAL = tl.constexpr(3)
ANNOTATED: tl.constexpr = tl.constexpr(4)
PLAIN = 5
PAIR = (tl.constexpr(1), tl.constexpr(2))
DTYPE = tl.float32


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: int
    offset: int = 1


SETTINGS = Settings(scale=10)
Point = collections.namedtuple("Point", "x y")


@triton.jit
def documented(x_ptr, n, BLOCK: tl.constexpr = 8):
    """Stores a number."""
    tl.store(x_ptr + tl.arange(0, BLOCK), n)


def test_attributes():
    assert documented.__name__ == "documented"
    assert documented.__qualname__ == "documented"
    assert documented.__doc__ == "Stores a number."
    assert documented.__module__ == __name__
    assert documented.fn.__name__ == "documented"
    assert documented.arg_names == ["x_ptr", "n", "BLOCK"]
    assert [param.is_constexpr for param in documented.params] == [False, False, True]
    assert [param.has_default for param in documented.params] == [False, False, True]
    assert documented.params[2].default == 8
    assert documented.constexprs == [2]
    assert documented.src.startswith("def documented(x_ptr, n, BLOCK: tl.constexpr = 8):\n")
    assert documented.raw_src[0] == "@triton.jit\n"
    assert documented.raw_src[1].startswith("def documented")
    assert len(documented.cache_key) == 64
    assert isinstance(documented, triton.JITFunction)
    assert isinstance(documented, triton.KernelInterface)
    assert triton.jit(documented) is documented
    assert repr(documented) == f"JITFunction({__name__}:documented)"


def value_of(kernel, *args, dtype=np.float32, **kwargs):
    """The number that a kernel stores to its first argument."""
    y = np.zeros(1, dtype)
    kernel[(1,)](y, *args, **kwargs)
    return y[0]


def test_globals():
    @triton.jit
    def kernel(y_ptr):
        tl.store(y_ptr, GLOBAL * 1000 + ANNOTATED * 100 + PAIR[1] * 10 + math.floor(math.pi))

    assert value_of(kernel) == 3423


@pytest.mark.parametrize("line", ["N = 5", "N: tl.constexpr = 5", "N: 'tl.constexpr' = 5"])
def test_plain_globals_are_refused_unless_allowed(line, run, script):
    # As in Triton, an annotation leaves a number what it is.
    path = script(
        f"""
        import numpy as np, triton, triton.language as tl
        {line}
        @triton.jit
        def kernel(y_ptr):
            tl.store(y_ptr, N)
        y = np.zeros(1, np.int32)
        kernel[(1,)](y)
        print(y[0])
        """
    )
    refused = run("-m", "tilewright", "run", path)
    assert refused.code == 1
    assert "error[TW0023]: the global variable 'N' is not a constexpr" in refused.err
    allowed = run("-m", "tilewright", "run", path, env={"TRITON_ALLOW_NON_CONSTEXPR_GLOBALS": "1"})
    assert (allowed.code, allowed.out) == (0, "5\n")


def test_attributes_of_objects():
    @triton.jit
    def kernel(y_ptr, point: tl.constexpr):
        tl.store(y_ptr, SETTINGS.scale * 10 + SETTINGS.offset + point[1])

    assert value_of(kernel, Point(3, 4)) == 105


def test_objects_as_constexprs():
    @triton.jit
    def kernel(y_ptr, settings: tl.constexpr):
        tl.store(y_ptr, settings.scale)

    y = np.zeros(1, np.int32)
    first = kernel[(1,)](y, Settings(6))
    assert y[0] == 6
    assert kernel[(1,)](y, Settings(6)) is first
    assert kernel[(1,)](y, Settings(7)) is not first
    assert y[0] == 7


def test_closures():
    def make(step):
        held = tl.constexpr(step)

        @triton.jit
        def kernel(y_ptr):
            tl.store(y_ptr, held * 2)

        return kernel

    assert value_of(make(4)) == 8
    assert value_of(make(5)) == 10


CHANGING = tl.constexpr(1)


@triton.jit
def inner():
    return CHANGING * 10


def test_variables_that_change_are_seen(monkeypatch):
    held = tl.constexpr(2)

    @triton.jit
    def kernel(y_ptr):
        tl.store(y_ptr, inner() + held)

    assert value_of(kernel) == 12
    monkeypatch.setitem(globals(), "CHANGING", tl.constexpr(5))
    assert value_of(kernel) == 52
    held = tl.constexpr(3)
    assert value_of(kernel) == 53

    @triton.jit
    def other():
        return 7

    monkeypatch.setitem(globals(), "inner", other)
    assert value_of(kernel) == 10


def test_kernels_are_garbage_like_any_object():
    import gc
    import weakref

    def make():
        @triton.jit
        def kernel(y_ptr):
            tl.store(y_ptr, 1)

        value_of(kernel)
        kernel.itself = kernel
        return weakref.ref(kernel)

    reference = make()
    gc.collect()
    assert reference() is None


@triton.constexpr_function
def halve(n):
    return n // 2


def test_constexpr_functions():
    @triton.jit
    def kernel(y_ptr, N: tl.constexpr):
        size: tl.constexpr = halve(N)
        tl.store(y_ptr, tl.sum(tl.full((size,), 1, tl.int32)))

    assert value_of(kernel, 16) == 8
    assert halve(tl.constexpr(9)) == 4

    @triton.constexpr_function
    def fails(n):
        raise ValueError("not so")

    @triton.jit
    def failing(y_ptr):
        tl.store(y_ptr, fails(1))

    with pytest.raises(triton.CompilationError) as caught:
        value_of(failing)
    assert caught.value.code == "TW0020"


def test_cdiv_and_next_power_of_2():
    assert [triton.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [triton.next_power_of_2(n) for n in (0, 1, 2, 3, 781, 1024)] == [0, 1, 2, 4, 1024, 1024]

    @triton.jit
    def kernel(y_ptr, n, N: tl.constexpr):
        size: tl.constexpr = triton.next_power_of_2(N)
        tl.store(y_ptr, triton.cdiv(n, 4) * 100 + size)

    assert value_of(kernel, 9, 5) == 308


def test_plain_functions_are_refused():
    def helper(x):
        return x

    @triton.jit
    def kernel(y_ptr):
        tl.store(y_ptr, helper(1))

    with pytest.raises(triton.CompilationError) as caught:
        value_of(kernel)
    assert caught.value.code == "TW0010"


def test_language_names_come_from_anywhere():
    from tilewright.language.extra import libdevice
    from tilewright.language.extra.cuda import libdevice as cuda_libdevice
    from tilewright.language.math import exp
    from tilewright.language.semantic import num_programs

    @triton.jit
    def kernel(y_ptr):
        tl.store(
            y_ptr,
            exp(0.0) + num_programs(0) + libdevice.tanh(0.0) + cuda_libdevice.tanh(0.0) + tl.math.exp(0.0)
            + triton.language.exp(0.0) + tl.core.exp(0.0) + tl.extra.libdevice.tanh(0.0),
        )  # fmt: skip

    assert value_of(kernel) == 5


def test_methods_in_classes_and_indented_functions():
    class Kernels:
        @triton.jit
        def fill(y_ptr):
            # A comment that is indented less.
            """
            A string that is indented less."""
            tl.store(y_ptr, 6)

    assert value_of(Kernels.fill) == 6


def test_what_wraps_a_function_below_the_decorator_is_looked_through():
    """Its source is what is compiled, under its own name and with its own closure."""

    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    number = tl.constexpr(7)

    @triton.jit
    @twice
    @twice
    def inner(o_ptr, offset: tl.constexpr):
        tl.store(o_ptr, number + offset)

    assert value_of(inner, 2) == 9
    assert inner.arg_names == ["o_ptr", "offset"]


def test_a_kernel_is_shown_and_copied_like_a_function():
    assert inspect.signature(documented) == documented.signature == inspect.signature(documented.fn)
    assert repr(tl.constexpr) == "<class 'tilewright.language.constexpr'>"
    assert inspect.getsource(documented).startswith("@triton.jit\ndef documented(")
    shown = pydoc.plain(pydoc.render_doc(documented)).splitlines()
    assert shown[2:] == [f"documented{documented.signature}", "    Stores a number."]
    for copied in (
        copy.copy(documented),
        copy.deepcopy([documented])[0],
        pickle.loads(pickle.dumps(documented)),
    ):
        assert copied is documented

    class Holder:
        kernel = documented

    assert Holder.kernel is Holder().kernel is documented


def test_a_kernel_without_its_function_is_its_attributes():
    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr, n)

    # The steps of torch's Inductor before it sends a kernel to another process.
    kernel.fn = kernel.__globals__ = kernel.used_global_vals = kernel._hash_lock = None
    sent = pickle.loads(pickle.dumps(kernel))
    assert type(sent) is type(kernel)
    assert sent.arg_names == ["x_ptr", "n", "BLOCK"]
    assert sent.constexprs == [2]
    assert sent.src == kernel.src


def test_options_of_the_decorator():
    @triton.jit(noinline=True)
    def helper(x):
        return x + 1

    @triton.jit(debug=True)
    def kernel(y_ptr, n):
        assert n < 5, "too large"
        tl.store(y_ptr, helper(n))

    assert value_of(kernel, 2) == 3
    with pytest.raises(triton.errors.DeviceAssertionError, match="too large"):
        value_of(kernel, 7)


def test_static_print_goes_through_python(capsys):
    @triton.jit
    def kernel(y_ptr, N: tl.constexpr):
        tl.static_print("N is", N)
        tl.store(y_ptr, N)

    value_of(kernel, 3)
    value_of(kernel, 3)
    assert capsys.readouterr().out == "N is 3\n"


def test_garbage_is_collected_while_kernels_are_made(run, script):
    program = script(
        """
import gc

import numpy as np
import tilewright as triton
import tilewright.language as tl

gc.set_threshold(1, 1, 1)

def make():
    @triton.jit
    def kernel(y_ptr, N: tl.constexpr):
        tl.store(y_ptr, N)

    return kernel

y = np.zeros(1, np.float32)
for n in range(60):
    kernel = make()
    for m in range(3):
        kernel[(1,)](y, N=n + m)
print(y[0])
"""
    )
    done = run(program)
    assert done.out == "61.0\n", (done.code, done.err)


def test_a_program_may_lie_in_a_path_that_is_no_utf8(run, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/no \xff\xe9"))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("the file system only takes names in UTF-8")
    path = folder / "script.py"
    path.write_text(
        """
import numpy as np
import tilewright as triton
import tilewright.language as tl

@triton.jit
def kernel(y_ptr, N: tl.constexpr):
    tl.store(y_ptr, N)
    if N == 2:
        tl.store(y_ptr, missing)

y = np.zeros(1, np.float32)
kernel[(1,)](y, N=1)
print(y[0], flush=True)
kernel[(1,)](y, N=2)
"""
    )
    done = run(path)
    assert done.out == "1.0\n", done.err
    assert "'missing' is not defined" in done.err
    assert "UnicodeEncodeError" not in done.err
