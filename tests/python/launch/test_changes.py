"""Changes by a program between launches, or while one is prepared: memory that moves, variables, attributes."""

from __future__ import annotations

import dataclasses
import fractions
import itertools
import math
import types

import numpy as np
import pytest
from conftest import DEVICE

import tilewright as triton
import tilewright.language as tl
from tilewright.runtime import _cache_key


@triton.jit
def fill(out_ptr, value, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)


@triton.jit
def target_of(out_ptr):
    target: tl.constexpr = tl.target_info.current_target()
    tl.store(out_ptr, target.arch if target.backend == "cuda" else 0)


def test_launches_run_on_the_device_that_is_selected_last():
    out = np.zeros(1, np.int32)
    try:
        for device, arch in (("sim:sm_80", 80), ("cpu", 0), ("sim:sm_90", 90), ("sim:sm_80", 80), ("cpu", 0)):
            triton.runtime.set_device(device)
            target_of[(1,)](out)
            assert out[0] == arch, device
    finally:
        triton.runtime.set_device(DEVICE)


RESIZES = """
import numpy as np
import torch
import tilewright as triton
import tilewright.language as tl

x = torch.zeros(1 << 22)
x_ptr = x.data_ptr()

def resize():
    x.untyped_storage().resize_(0)

@triton.constexpr_function
def at_compile_time():
    resize()
    return 1

@triton.jit
def fill(out_ptr, value, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)

@triton.jit
def fill_late(out_ptr, value, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value + at_compile_time())

class Index:
    def __index__(self):
        resize()
        return 1

class Interface:
    @property
    def __array_interface__(self):
        resize()
        return np.zeros(4).__array_interface__

@triton.jit
def two(out_ptr, other_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1)

def grid(meta):
    resize()
    return (1024,)

def enter(metadata):
    resize()

y = torch.zeros(1 << 22)
handle = fill.warmup(y, 1.0, BLOCK=4096)
try:
    {launch}
except triton.runtime.errors.OutOfBoundsError as error:
    print("refused")
"""


@pytest.mark.parametrize(
    "launch",
    [
        "fill[grid](x, 1.0, BLOCK=4096)",
        "handle[grid](x, 1.0)",
        "fill_late[(1024,)](x, 1.0, BLOCK=4096)",
        "fill[(1024,)](x, Index(), BLOCK=4096)",
        "two[(1024,)](x, Interface(), BLOCK=4096)",
        "handle[(1024,)](x, Index())",
        "triton.knobs.runtime.launch_enter_hook.add(enter); fill[(1024,)](x, 1.0, BLOCK=4096)",
    ],
)
def test_memory_that_is_freed_while_a_launch_is_prepared(run_forked, script, launch):
    pytest.importorskip("torch")
    done = run_forked(script(RESIZES.replace("{launch}", launch)))
    assert (done.code, done.out) == (0, "refused\n"), done.err


def test_memory_of_a_default_that_moves():
    torch = pytest.importorskip("torch")
    scale = torch.full((4,), 3.0)

    @triton.jit
    def kernel(out_ptr, scale_ptr=scale):
        tl.store(out_ptr, tl.load(scale_ptr))

    out = torch.zeros(1)
    kernel[(1,)](out)
    assert out.item() == 3
    scale.set_(torch.full((4,), 7.0))
    kernel[(1,)](out)
    assert out.item() == 7
    scale.untyped_storage().resize_(0)
    with pytest.raises(triton.runtime.errors.OutOfBoundsError):
        kernel[(1,)](out)


@dataclasses.dataclass(frozen=True)
class Cfg:
    s: object


class Slots:
    __slots__ = ("s",)

    def __init__(self, s):
        self.s = s

    def __eq__(self, other):
        return self.s == other.s

    def __hash__(self):
        return hash(self.s)


@pytest.mark.parametrize("make", [Cfg, Slots])
def test_equal_objects_with_different_parts_are_compiled_apart(make):
    kinds = []

    @triton.constexpr_function
    def kind(value):
        kinds.append(type(value))
        return 1

    @triton.jit
    def kernel(out_ptr, cfg: tl.constexpr):
        tl.store(out_ptr, kind(cfg.s))

    out = np.zeros(1, np.float32)
    kernel[(1,)](out, make(2))
    kernel[(1,)](out, make(2.0))
    kernel[(1,)](out, make(2))
    kernel[(1,)](out, make(True))
    kernel[(1,)](out, make(1))
    assert kinds == [int, float, bool, int]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cfg(2),
        lambda: Cfg((1, 2.0, "x")),
        lambda: Cfg(Cfg(1)),
        lambda: Slots(5),
        lambda: range(4),
        lambda: fractions.Fraction(1, 3),
    ],
)
def test_equal_objects_share_code(make):
    @triton.jit
    def kernel(out_ptr, cfg: tl.constexpr):
        tl.store(out_ptr, 1)

    out = np.zeros(1, np.float32)
    assert kernel[(1,)](out, make()) is kernel[(1,)](out, make())


def test_zeros_of_both_signs_are_different_parts():
    @triton.jit
    def kernel(out_ptr, cfg: tl.constexpr):
        tl.store(out_ptr, cfg.s)

    out = np.zeros(1, np.float32)
    kernel[(1,)](out, Cfg(0.0))
    assert not np.signbit(out[0])
    kernel[(1,)](out, Cfg(-0.0))
    assert np.signbit(out[0])


SIZE = tl.constexpr(1000)
LIST = [tl.constexpr(1), tl.constexpr(2)]


class Namespace:
    x = tl.constexpr(1)


settings = types.SimpleNamespace(x=tl.constexpr(1), inner=types.SimpleNamespace(y=tl.constexpr(5)))
config = types.ModuleType("config")
config.BLOCK = tl.constexpr(4)


def test_an_equal_value_is_no_change():
    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, SIZE)

    out = np.zeros(1, np.float32)
    handles = set()
    for _ in range(4):
        globals()["SIZE"] = tl.constexpr(int("1000"))
        handles.add(kernel[(1,)](out))
    assert len(handles) == 1
    globals()["SIZE"] = tl.constexpr(1000.0)
    handles.add(kernel[(1,)](out))
    globals()["SIZE"] = tl.constexpr(5)
    handles.add(kernel[(1,)](out))
    assert len(handles) == 3
    assert out[0] == 5


@triton.jit
def read_settings(out_ptr):
    tl.store(out_ptr, settings.x + settings.inner.y)


@triton.jit
def read_class(out_ptr):
    tl.store(out_ptr, Namespace.x)


@triton.jit
def read_module(out_ptr):
    tl.store(out_ptr, config.BLOCK)


@triton.jit
def read_list(out_ptr):
    tl.store(out_ptr, LIST[1])


@triton.jit
def calls_read_class(out_ptr):
    read_class(out_ptr)


@pytest.mark.parametrize(
    ("kernel", "change", "before", "after"),
    [
        (read_settings, lambda: setattr(settings, "x", tl.constexpr(10)), 6, 15),
        (read_settings, lambda: setattr(settings.inner, "y", tl.constexpr(1)), 15, 11),
        (read_class, lambda: setattr(Namespace, "x", tl.constexpr(8)), 1, 8),
        (calls_read_class, lambda: setattr(Namespace, "x", tl.constexpr(9)), 8, 9),
        (read_module, lambda: setattr(config, "BLOCK", tl.constexpr(16)), 4, 16),
        (read_list, lambda: LIST.__setitem__(1, tl.constexpr(20)), 2, 20),
    ],
)
def test_attributes_that_change_are_seen(kernel, change, before, after):
    out = np.zeros(1, np.float32)
    first = kernel[(1,)](out)
    assert kernel[(1,)](out) is first
    assert out[0] == before
    change()
    kernel[(1,)](out)
    assert out[0] == after


def test_attributes_of_arguments_that_change_are_seen():
    class Mutable:
        x = 1

    @triton.jit
    def kernel(out_ptr, cfg: tl.constexpr):
        tl.store(out_ptr, cfg.x)

    out = np.zeros(1, np.float32)
    cfg = Mutable()
    kernel[(1,)](out, cfg)
    assert out[0] == 1
    cfg.x = 2
    kernel[(1,)](out, cfg)
    assert out[0] == 2


def test_only_what_a_form_reads_makes_it_stale():
    @triton.jit
    def kernel(out_ptr, cfg: tl.constexpr):
        tl.store(out_ptr, cfg.x)

    out = np.zeros(1, np.float32)
    cfgs = [type("Cfg", (), {"x": number})() for number in range(3)]
    handles = [kernel[(1,)](out, cfg) for cfg in cfgs]
    cfgs[1].x = 10
    again = [kernel[(1,)](out, cfg) for cfg in cfgs]
    assert [one is other for one, other in zip(handles, again, strict=True)] == [True, False, True]


def test_a_property_that_changes_each_time_is_read_each_time():
    numbers = itertools.count()

    class Restless:
        @property
        def x(self):
            return next(numbers)

    @triton.jit
    def kernel(out_ptr, cfg: tl.constexpr):
        tl.store(out_ptr, cfg.x)

    seen = set()
    cfg = Restless()
    for _ in range(3):
        out = np.zeros(1, np.float32)
        kernel[(1,)](out, cfg)
        seen.add(out[0])
    assert len(seen) == 3


def test_arguments_that_never_come_to_rest_are_an_error():
    class Restless:
        numbers = itertools.count()

        def __index__(self):
            return next(self.numbers)

    @triton.jit
    def kernel(out_ptr, N: tl.constexpr):
        tl.store(out_ptr, N)

    with pytest.raises(RuntimeError, match="change while it is launched"):
        kernel[(1,)](np.zeros(1, np.float32), Restless())


OFFSET = tl.constexpr(1)


@triton.jit
def helper(x):
    return x + OFFSET


@triton.jit
def with_helper(out_ptr):
    tl.store(out_ptr, helper(settings.x))


def test_the_cache_key_covers_what_is_read(monkeypatch):
    keys = [with_helper.cache_key, with_helper.cache_key]
    assert keys[0] == keys[1]
    monkeypatch.setitem(globals(), "OFFSET", tl.constexpr(2))
    keys.append(with_helper.cache_key)
    monkeypatch.setattr(settings, "x", tl.constexpr(77))
    keys.append(with_helper.cache_key)

    @triton.jit
    def other(x):
        return x - OFFSET

    monkeypatch.setitem(globals(), "helper", other)
    keys.append(with_helper.cache_key)
    monkeypatch.setattr(triton._native, "__version__", "0.0.0")
    keys.append(with_helper.cache_key)
    assert len(set(keys)) == len(keys) - 1


def test_the_cache_key_is_that_of_the_present_program(monkeypatch):
    """A kept key is compared with one that is computed anew, after changes of all that a kernel reads."""
    factors, nested = [1, 2], (3, [4])
    cell = 5

    @triton.jit
    def kernel(out_ptr, N: tl.constexpr = 6, *, M: tl.constexpr = 7):
        tl.store(out_ptr, helper(settings.x) + cell + N + M + missing)  # noqa: F821

    @triton.jit
    def of_lists(out_ptr):
        tl.store(out_ptr, factors[0] + nested[1][0])

    def key(kernel=kernel):
        kept = kernel.cache_key
        assert kept == kernel.cache_key == _cache_key.cache_key(kernel)[0]
        keys.append(kept)

    keys: list[str] = []
    key()
    monkeypatch.setitem(globals(), "missing", tl.constexpr(1))
    key()
    for change in (lambda: None, lambda: factors.append(9), lambda: nested[1].append(1)):
        change()
        key(of_lists)
    cell = 10
    key()
    kernel.fn.__defaults__ = (11,)
    key()
    kernel.fn.__kwdefaults__["M"] = 12
    key()
    monkeypatch.setattr(settings, "x", tl.constexpr(78))
    key()
    helper_before = helper.src
    helper._unsafe_update_src(helper_before.replace("+", "*"))
    key()
    helper._unsafe_update_src(helper_before)
    monkeypatch.setattr(helper, "noinline", True)
    key()
    kernel.starting_line_number += 1
    key()
    assert len(set(keys)) == len(keys)


def test_the_cache_key_covers_functions_without_code_of_python():
    def key_of(function):
        at_compile_time = triton.constexpr_function(function)

        @triton.jit
        def kernel(out_ptr, N: tl.constexpr):
            tl.store(out_ptr, at_compile_time(N))

        return kernel.cache_key

    keys = [key_of(function) for function in (math.log2, math.sqrt, tl.core.get_int_dtype)]
    assert len(set(keys)) == 3
    assert key_of(math.log2) == keys[0]
