"""Tuples and NamedTuples as arguments of a launch, and functions whose calls stay calls."""

from __future__ import annotations

import collections
import gc
import random
import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import errors


class View(NamedTuple):
    ptr: Any
    shape: tuple
    stride: tuple = (1,)


class Closure(NamedTuple):
    fn: tl.constexpr
    captured: tuple


Pair = collections.namedtuple("Pair", "first second")


@triton.jit
def increment(values):
    return tl.tuple([v + 1 for v in values])


@triton.jit
def store_each(ptrs, values):
    for i in tl.static_range(len(values)):
        tl.store(ptrs[i], values[i])


@triton.jit
def increment_each(unused, ptrs, c: tl.constexpr, values, last):
    store_each(ptrs, increment(values))


@pytest.mark.parametrize("size", range(5))
def test_tuples_of_every_length(size):
    values = tuple(i + 1 for i in range(size))
    results = tuple(np.zeros(1, np.float32) for _ in values)
    increment_each[(1,)](0, results, 0, values, 0)
    assert [r[0] for r in results] == [v + 1 for v in values]


def test_each_length_and_form_is_another_specialization():
    @triton.jit
    def count(y_ptr, t):
        total = 0
        for v in t:
            total += v
        tl.store(y_ptr, total + 100 * len(t))

    y = np.zeros(1, np.int64)
    handles = []
    for t in [(), (5,), (5, 7), (1, 7), (16, 7), (1 << 40, 7), (5.5, 7), (True, 7), Pair(5, 7), [5, 7]]:
        handles.append(count[(1,)](y, t))
        assert y[0] == int(sum(t)) + 100 * len(t), t
    assert handles[-1] is handles[2], "a list is a tuple"
    assert len({id(handle) for handle in handles}) == len(handles) - 1
    again = count[(1,)](y, (9, 11))
    assert again is handles[2]
    assert y[0] == 220


def test_unpacking_and_making_tuples():
    @triton.jit
    def kernel(x_ptrs, y_ptrs, values):
        x0, x1 = x_ptrs
        a, b, none = values
        tl.static_assert(none is None)
        tl.store(x0, a)
        tl.store(x1, b)
        y = y_ptrs[0], y_ptrs[1], y_ptrs[-1]
        pair = a, 10, b
        for i in tl.static_range(3):
            tl.store(y[i], pair[i])

    x = tuple(np.zeros(1, np.float32) for _ in range(2))
    y = tuple(np.zeros(1, np.float32) for _ in range(3))
    kernel[(1,)](x, y, (2.0, 3.0, None))
    assert [float(v[0]) for v in (*x, *y)] == [2, 3, 2, 10, 3]


@triton.jit
def inner(ptr, c: tl.constexpr, nested):
    tl.static_assert(nested[1] is None)
    tl.store(ptr + 5, c)
    tl.store(ptr + 6, nested[0])
    tl.store(ptr + 7, tl.load(nested[2][0]))
    tl.store(ptr + 8, nested[2][1][0])
    tl.store(ptr + 9, tl.load(nested[2][1][2]))


@triton.jit
def outer(ptr, n, nested, c: tl.constexpr, value, single):
    tl.static_assert(n is None)
    tl.static_assert(nested[1][1] is None)
    tl.static_assert(nested[1][3] == 4)
    tl.store(ptr + 0, tl.load(nested[0]))
    tl.store(ptr + 1, nested[1][0])
    tl.store(ptr + 2, tl.load(nested[1][2]))
    tl.store(ptr + 3, c + value)
    tl.store(ptr + 4, tl.load(single[0]))
    inner(ptr, 15, (-1, None, nested))


def test_nested_tuples_of_everything():
    a, b, c = (np.array([v], np.int32) for v in (8, 12, 10))
    z = np.zeros(10, np.int32)
    outer[(1,)](z, None, (a, (1, None, b, tl.constexpr(4))), 20, 1, (c,))
    np.testing.assert_array_equal(z, [8, 1, 12, 21, 10, 15, -1, 8, 1, 12])


@triton.jit
def inside(view, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    return (rows < view.shape[0]) & (columns < view.shape[1])


@triton.jit
def pointers(view, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    return view.ptr + rows * view.stride[0] + columns * view.stride[1]


@triton.jit
def remade(shape, ptr, stride):
    return View(ptr, shape=shape, stride=stride)


@triton.jit
def apply(closure, x, y, BLOCK: tl.constexpr):
    x = remade(x.shape, x.ptr, x.stride)
    values = tl.load(pointers(x, BLOCK), mask=inside(x, BLOCK), other=0)
    tl.store(pointers(y, BLOCK), closure.fn(values, *closure.captured), mask=inside(y, BLOCK))


@triton.jit
def times(x, factor):
    return x * tl.load(factor)


@pytest.mark.parametrize("shape", [(32, 32), (17, 5), (1, 64)])
def test_named_tuples(shape):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x, y, factor = torch.randn(64, 64), torch.zeros(shape), torch.tensor([5.5])
    views = View(x, x.shape, x.stride()), View(y, y.shape, y.stride())
    handle = apply[(1,)](Closure(times, (factor,)), *views, BLOCK=64)
    torch.testing.assert_close(y, x[: shape[0], : shape[1]] * 5.5)
    assert "%x.ptr: *fp32" in handle.asm["ir"]
    assert "x: (ptr=*fp32, shape=(i32, i32), stride=(i32, constexpr))" in repr(handle)


def test_named_tuples_in_the_program():
    pair = Pair(tl.constexpr(3), tl.constexpr(4))

    @triton.jit
    def kernel(y_ptr, c: tl.constexpr, t):
        d = Pair(second=7, first=t.second)
        tl.store(y_ptr + 0, pair.first * 10 + pair.second)
        tl.store(y_ptr + 1, c.first * 10 + c[1])
        tl.store(y_ptr + 2, d.first * 10 + d[1])
        view = View(y_ptr, (4,))
        tl.store(view.ptr + 3, view.shape[0] * 10 + view.stride[0])
        if t.first > 5:
            d = Pair(t.first, 0)
        for _ in range(3):
            d = Pair(d.first + 1, d.second)
        tl.store(y_ptr + 4, d.first * 10 + d.second)
        tl.static_assert(hasattr(t, "first") and not hasattr(t, "third"))

    y = np.zeros(5, np.int32)
    kernel[(1,)](y, Pair(5, 6), Pair(2, 8))
    np.testing.assert_array_equal(y, [34, 56, 87, 41, 117])
    kernel[(1,)](y, Pair(5, 6), Pair(6, 8))
    assert y[4] == 90


def test_other_fields_are_another_specialization():
    other = collections.namedtuple("Other", "second first")

    @triton.jit
    def kernel(y_ptr, t):
        tl.store(y_ptr, t.first)

    y = np.zeros(1, np.int32)
    kernel[(1,)](y, Pair(3, 4))
    assert y[0] == 3
    kernel[(1,)](y, other(3, 4))
    assert y[0] == 4


def test_a_tuple_for_a_constexpr_stays_a_constant():
    @triton.jit
    def kernel(y_ptr, shape: tl.constexpr, names: tl.constexpr):
        offsets = tl.arange(0, shape[0])[:, None] * shape.columns + tl.arange(0, shape.columns)[None, :]
        tl.static_assert(names == ("a", "b"))
        tl.store(y_ptr + offsets, offsets)

    shape = collections.namedtuple("Shape", "rows columns")(4, 8)
    y = np.zeros(32, np.int32)
    handle = kernel[(1,)](y, shape, ("a", "b"))
    np.testing.assert_array_equal(y, np.arange(32))
    assert "%shape" not in handle.asm["ir"]
    with pytest.raises(errors.LaunchTypeError) as caught:
        kernel[(1,)](y, (y, 8), ("a", "b"))
    assert caught.value.code == "TW0105"


def test_what_the_code_knows_of_an_item():
    @triton.jit
    def kernel(ptrs, values):
        tl.store(ptrs[0], values[0] + values[1])

    @triton.jit(do_not_specialize=["values"])
    def plain(ptrs, values):
        tl.store(ptrs[0], values[0] + values[1])

    memory = np.zeros(64, np.int32)
    at = -memory.ctypes.data // 4 % 4
    aligned, unaligned = memory[at:], memory[at + 1 :]

    def head(kernel, ptr, values):
        ir = kernel.warmup((ptr,), values, grid=(1,)).asm["ir"]
        return ir.splitlines()[0].split("(", 1)[1].removesuffix(") {")

    assert (
        head(kernel, aligned, (1, 32))
        == "%ptrs.0: *int32 {divisibility = 16}, %values.1: int32 {divisibility = 16}"
    )
    assert head(kernel, unaligned, (3, 5)) == "%ptrs.0: *int32, %values.0: int32, %values.1: int32"
    assert head(kernel, unaligned, (True, np.int8(3))) == "%ptrs.0: *int32, %values.0: int1, %values.1: int8"
    assert head(plain, unaligned, (1, 32)) == "%ptrs.0: *int32, %values.0: int32, %values.1: int32"
    assert head(kernel, unaligned, (1, tl.constexpr(32))) == "%ptrs.0: *int32"


def test_dtypes_stand_for_tensors_in_a_warmup():
    torch = pytest.importorskip("torch")
    handle = store_each.warmup((torch.float32, torch.float16), (1.0, 2.0), grid=(1,))
    assert "ptrs: (*fp32, *fp16)" in repr(handle)


@pytest.mark.parametrize(
    ("argument", "place", "found"),
    [
        ((1, "abc"), "[1]", "the string 'abc'"),
        ((1, (2, object())), "[1][1]", "of class 'object'"),
        (Pair(1, {}), ".second", "of class 'dict'"),
        ([Pair((), Pair(3, tl.float32))], "[0].second.second", "fp32, a compile-time value of type dtype"),
        ((np.zeros(8, np.complex64),), "[0]", "an array of dtype complex64"),
        ((1 << 80,), "[0]", f"the int {1 << 80}, which 64 bits do not hold"),
    ],
)
def test_unsupported_items_are_named(argument, place, found):
    with pytest.raises(errors.LaunchTypeError) as caught:
        store_each[(1,)](argument, ())
    assert caught.value.code == "TW0105"
    headline = str(caught.value).splitlines()[0]
    assert headline == f"error[TW0105]: argument 'ptrs{place}' of kernel 'store_each' is {found}"


def test_an_item_on_another_device_is_named():
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.LaunchValueError) as caught:
        store_each[(1,)]((torch.empty(8, device="meta"),), (1,))
    assert caught.value.code == "TW0106"
    assert "argument 'ptrs[0]' of" in str(caught.value)


def test_a_tuple_for_an_annotated_parameter():
    @triton.jit
    def kernel(y_ptr, n: tl.int64):
        tl.store(y_ptr, n)

    with pytest.raises(errors.LaunchTypeError, match="a tuple, and the parameter is declared as int64"):
        kernel[(1,)](np.zeros(1), (1, 2))


def test_lists_in_themselves_are_refused():
    endless: list[Any] = []
    endless.append(endless)

    @triton.jit
    def kernel(y_ptr, c: tl.constexpr):
        tl.store(y_ptr, len(c))

    @triton.jit
    def reads_it(y_ptr):
        tl.store(y_ptr, len(endless))

    y = np.zeros(1, np.int32)
    for launch in [
        lambda: store_each[(1,)](endless, ()),
        lambda: kernel[(1,)](y, endless),
        lambda: kernel[(1,)](y, tl.constexpr(endless)),
        lambda: reads_it[(1,)](y),
    ]:
        with pytest.raises(
            (errors.LaunchError, triton.CompilationError, RecursionError),
            match="more than 64 tuples or lists",
        ):
            launch()


def test_accesses_out_of_bounds_name_the_item():
    @triton.jit
    def kernel(ptrs, args):
        tl.store(ptrs[0] + tl.arange(0, 4), 1)
        tl.load(args.first[1] + tl.arange(0, 8) - 2)

    x, y = np.zeros(4, np.int32), np.zeros(4, np.int32)
    with pytest.raises(errors.OutOfBoundsError, match=r"store out of bounds of `ptrs\[0\]`"):
        kernel[(1,)]((x[:2].copy(), y), Pair((x, y), 0))
    with pytest.raises(errors.OutOfBoundsError, match=r"store out of bounds of `ptrs\[0\]`"):
        kernel[(1,)]((np.zeros(1, np.int32), y), Pair((x, y), 0))

    @triton.jit
    def read(out_ptr, args):
        tl.store(out_ptr + tl.arange(0, 8), tl.load(args.first[1] + tl.arange(0, 8) - 2))

    with pytest.raises(errors.OutOfBoundsError, match=r"load out of bounds of `args.first\[1\]`"):
        read[(1,)](np.zeros(8, np.int32), Pair((x, y), 0))


def test_a_handle_takes_tuples_of_its_form_only():
    @triton.jit
    def kernel(t, y_ptr, c: tl.constexpr):
        tl.store(y_ptr, t.first[0] + t.first[1] + t.second + c)

    y = np.zeros(1, np.int32)
    handle = kernel[(1,)](Pair((1, 5), 16), y, 100)
    assert y[0] == 122
    handle[(1,)](Pair((1, 7), 32), y)
    assert y[0] == 140
    for t, place in [
        (Pair((2, 5), 16), ".first[0]"),
        (Pair((1, 5), 17), ".second"),
        (Pair((1, 5, 5), 16), ".first"),
        (((1, 5), 16), ""),
        (5, ""),
    ]:
        with pytest.raises(errors.LaunchTypeError) as caught:
            handle[(1,)](t, y)
        assert str(caught.value).startswith(f"error[TW0105]: argument 't{place}' is not what this handle"), t


class Runs:
    """A number whose conversion runs code of the program."""

    def __init__(self, action):
        self.action = action

    def __index__(self):
        self.action()
        return 5


def test_tensors_that_code_of_an_argument_moves():
    torch = pytest.importorskip("torch")

    @triton.jit
    def kernel(ptrs, n):
        tl.store(ptrs[0], n)
        tl.store(ptrs[1][0], n + 1)

    x, y = torch.zeros(4), torch.zeros(4)

    def move():
        x.set_(torch.zeros(4096))
        y.set_(torch.zeros(4096))
        gc.collect()

    kernel[(1,)]((x, [y]), Runs(move))
    assert (x[0], y[0]) == (5, 6)


def test_a_list_that_another_thread_empties():
    @triton.jit
    def kernel(ptrs, n):
        for i in range(n):
            tl.store(ptrs[0] + tl.arange(0, 1024), i)

    kernel[(1,)]([np.zeros(1024, np.int32)], 5)
    # So large that its memory is unmapped when it is freed.
    items, is_launched = [np.zeros(1 << 24, np.int32)], threading.Event()

    def empty():
        is_launched.wait()
        items.clear()

    thread = threading.Thread(target=empty)
    thread.start()
    interval = sys.getswitchinterval()
    try:
        # No other thread runs until the launch releases the GIL.
        sys.setswitchinterval(100)
        is_launched.set()
        kernel[(1,)](items, 20001)
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert items == []


@pytest.mark.parametrize("seed", range(20))
def test_random_trees(seed):
    """The sum of the leaves, each weighted by its place, against Python's."""
    rng = random.Random(seed)
    leaves: list[float] = []

    def tree(depth):
        kinds = ["array", "int", "one", "float", "bool", "none", "constexpr"]
        kind = rng.choice(kinds + ["tuple", "pair", "list"] * 2 if depth else kinds)
        value = rng.randrange(2, 100)
        if kind in ("tuple", "list"):
            items = [tree(depth - 1) for _ in range(rng.randrange(4))]
            return tuple(items) if kind == "tuple" else items
        if kind == "pair":
            return Pair(tree(depth - 1), tree(depth - 1))
        if kind == "none":
            return None
        leaves.append({"one": 1, "bool": value % 2}.get(kind, value))
        return {
            "array": np.array([value], np.int32),
            "int": value,
            "one": 1,
            "float": float(value),
            "bool": value % 2 == 1,
            "constexpr": tl.constexpr(value),
        }[kind]

    def code(value, path):
        if isinstance(value, Pair):
            return code(value.first, f"{path}.first") + code(value[1], f"{path}[1]")
        if isinstance(value, (tuple, list)):
            return [line for i, item in enumerate(value) for line in code(item, f"{path}[{i}]")]
        if value is None:
            return [f"tl.static_assert({path} is None)"]
        return [f"total = total * 3 + {f'tl.load({path})' if isinstance(value, np.ndarray) else path}"]

    value = tuple(tree(3) for _ in range(4))
    body = "\n    ".join(["total = 0.0", *code(value, "t"), "tl.store(y_ptr, total.to(tl.float64))"])
    source = f"def kernel(y_ptr, t):\n    {body.replace('0.0', 'tl.full((), 0, tl.float64)')}\n"
    expected = 0.0
    for leaf in leaves:
        expected = expected * 3 + leaf
    y = np.zeros(1)
    _compiled(source)[(1,)](y, value)
    assert y[0] == expected


def _compiled(source):
    import linecache

    name = f"<tree {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"tl": tl}
    exec(compile(source, name, "exec"), names)
    return triton.jit(names["kernel"])


@triton.jit(noinline=True)
def swap(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + offsets, mask=offsets < n), tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, y, mask=offsets < n)
    tl.store(y_ptr + offsets, x, mask=offsets < n)
    return n - 1


@triton.jit
def swaps(ptrs, n, m, BLOCK: tl.constexpr):
    n = swap(ptrs[0], ptrs[1], n, BLOCK)
    n = swap(ptrs[1], ptrs[2], n, BLOCK)
    if m > 0:
        swap(ptrs[0], ptrs[2], m, BLOCK)


@pytest.mark.parametrize("m", [0, 3])
def test_calls_of_noinline_functions_stay(m):
    arrays = [np.arange(8, dtype=np.float32) + 10 * i for i in range(3)]
    x, y, z = (a.copy() for a in arrays)
    y[:5], x[:5] = x[:5].copy(), y[:5].copy()
    z[:4], y[:4] = y[:4].copy(), z[:4].copy()
    z[:m], x[:m] = x[:m].copy(), z[:m].copy()
    opt = swaps[(1,)](tuple(arrays), 5, m, BLOCK=8).asm["opt"]
    np.testing.assert_array_equal(arrays, [x, y, z])
    assert opt.count("= call ") == 3
    assert opt.count("@swap(") == 1, "lowered once for one signature"


def test_faults_in_noinline_functions_name_the_argument_and_the_calls():
    with pytest.raises(errors.OutOfBoundsError) as caught:
        swaps[(1,)](
            (np.zeros(8, np.float32), np.zeros(4, np.float32), np.zeros(8, np.float32)), 8, 0, BLOCK=8
        )
    text = str(caught.value)
    assert "load out of bounds of `ptrs[1]`" in text
    assert text.count("called from here") == 1


@triton.jit
def sums(out, n, *ptrs):
    total = tl.zeros((16,), tl.float32)
    i = tl.arange(0, 16)
    for j in tl.static_range(len(ptrs)):
        total += tl.load(ptrs[j] + i, mask=i < n, other=0.0)
    tl.store(out + i, total)


@triton.jit
def scales(out, /, n=2, *rest, SCALE: tl.constexpr = 10, more=3):
    first, (pointer, shift) = rest
    tl.store(out, (tl.load(pointer) + shift + first + n) * SCALE + more)


@pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])
def test_any_number_of_arguments(interpret):
    kernel = triton.JITFunction(sums.fn, interpret=interpret)
    rng = np.random.default_rng(0)
    for count in (0, 1, 2, 5, 2):
        xs = [rng.standard_normal(16, np.float32) for _ in range(count)]
        out = np.full(16, 9, np.float32)
        kernel[(1,)](out, 12, *xs)
        expected = np.zeros(16, np.float32)
        for x in xs:
            expected[:12] += x[:12]
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
    kernel = triton.JITFunction(scales.fn, interpret=interpret)
    out, x = np.zeros(1, np.float32), np.full(1, 5, np.float32)
    for keywords, expected in (
        ({}, (5 + 7 + 1 + 2) * 10 + 3),
        ({"SCALE": 100}, (5 + 7 + 1 + 2) * 100 + 3),
        ({"more": 1, "num_warps": 2}, (5 + 7 + 1 + 2) * 10 + 1),
    ):
        kernel[(1,)](out, 2, 1, (x, 7), **keywords)
        assert out[0] == expected


def test_any_number_of_arguments_around_the_launch():
    """The arguments have their parameter's name where a grid, a tuner or a hook asks for them."""
    x = np.ones(16, np.float32)
    out = np.zeros(16, np.float32)
    seen = []

    def grid(arguments):
        seen.append(len(arguments["ptrs"]))
        return (1,)

    handle = sums[grid](out, 16, x, x)
    assert seen == [2]
    handle[(1,)](out, 16, (x, x))
    assert out.tolist() == [2.0] * 16
    tuned = triton.autotune([triton.Config({}, num_warps=w) for w in (2, 4)], key=["n"])(sums)
    for count in (3, 1):
        tuned[grid](out, 16, *[x] * count)
        assert out.tolist() == [float(count)] * 16
    assert sums.arg_names == ["out", "n", "ptrs"]
    with pytest.raises(TypeError, match="takes argument 'ptrs' by position, not by keyword"):
        sums[(1,)](out, 16, ptrs=(x,))
    with pytest.raises(TypeError, match=r"without argument 'n'"):
        sums[(1,)](out)


def test_any_number_of_keywords_is_refused():
    with pytest.raises(TypeError, match=r"'\*\*options' of 'kernel'"):

        @triton.jit
        def kernel(out, **options):
            tl.store(out, 1)
