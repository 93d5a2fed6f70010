"""Grids of every form, options, and what a launch returns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl


@triton.jit
def mark(y_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    index = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(y_ptr + index, index + 1)


@pytest.mark.parametrize(
    ("grid", "programs"),
    [
        (3, 3),
        ((3,), 3),
        ([3], 3),
        ((2, 3), 6),
        ([2, 3, 2], 12),
        (np.int64(4), 4),
        ((np.int32(2), np.uint8(2)), 4),
        ((tl.constexpr(5),), 5),
        ((triton.cdiv(5, 2),), 3),
        (lambda meta: 2, 2),
        (lambda meta: [2, 2], 4),
        ((0,), 0),
        ((4, 0, 2), 0),
    ],
)
def test_grids(grid, programs):
    y = np.zeros(16, np.int32)
    mark[grid](y)
    np.testing.assert_array_equal(y, [*range(1, programs + 1), *[0] * (16 - programs)])


def test_torch_sizes_are_grids():
    torch = pytest.importorskip("torch")
    y = np.zeros(6, np.int32)
    mark[torch.empty(2, 3).shape](y)
    np.testing.assert_array_equal(y, range(1, 7))


@triton.jit
def fill(y_ptr, n, value=7, BLOCK: tl.constexpr = 4):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, value, mask=offsets < n)


def test_a_grid_function_gets_all_arguments_by_name():
    seen = {}

    def grid(meta):
        seen.update(meta)
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    y = np.zeros(10, np.int32)
    fill[grid](y, n=10, num_warps=8)
    assert seen.pop("y_ptr") is y
    assert seen == {"n": 10, "value": 7, "BLOCK": 4, "num_warps": 8}
    assert y.tolist() == [7] * 10


@triton.jit
def note(y_ptr, a, b, c, BLOCK: tl.constexpr):
    tl.store(y_ptr, a * 1000 + b * 100 + c * 10 + BLOCK)


def test_arguments_go_by_keyword_in_any_order():
    values = {"a": 2, "b": 3, "c": 5, "BLOCK": 8}
    y = np.zeros(1, np.int32)
    # More forms of a call than are remembered, each of them twice.
    for order in 2 * list(itertools.permutations(values)):
        for count in range(len(order)):
            if order[:count] == tuple(values)[:count]:
                y[0] = 0
                positional = (values[name] for name in order[:count])
                note[(1,)](y, *positional, **{name: values[name] for name in order[count:]})
                assert y[0] == 2358, order
    for _ in range(2):
        note[(1,)](y, a=2, b=3, c=5, BLOCK=8)
        assert y[0] == 2358
        note[(1,)](y, c=2, a=3, b=5, BLOCK=8)
        assert y[0] == 3528


def test_a_launch_returns_its_handle():
    y = np.zeros(10, np.int32)
    handle = fill[(3,)](y, 10, num_warps=8, num_stages=2)
    assert isinstance(handle, triton.compiler.CompiledKernel)
    assert handle.name == "fill"
    assert handle.n_regs > 0
    assert handle.n_spills == 0
    assert handle.metadata.num_warps == 8
    assert handle.metadata.num_stages == 2
    assert handle.metadata.shared > 0
    assert handle.metadata.name == "fill"
    assert handle.metadata._asdict()["num_ctas"] == 1
    assert handle.metadata.target == triton.runtime.driver.active.get_current_target()
    assert list(handle.asm) == ["ast", "ir", "opt", "cpu", "asm"]
    assert handle.asm["ir"].startswith("kernel func0 @fill(")
    assert handle.asm["ttir"] == handle.asm["ir"]
    with pytest.raises(KeyError):
        handle.asm["ptx"]
    assert handle.src.fn is fill
    handle._init_handles()


def test_equal_launches_share_a_handle():
    y = np.zeros(16, np.int32)
    first = fill[(1,)](y, 10)
    assert fill[(2,)](y, 11) is first
    # A multiple of 16, another constant, another type, another option.
    others = [
        fill[(1,)](y, 16),
        fill[(1,)](y, 10, BLOCK=8),
        fill[(1,)](y.astype("i8"), 10),
        fill[(1,)](y, 10, num_warps=2),
    ]
    assert len({id(handle) for handle in [first, *others]}) == 5
    fill.clear_cache()
    assert fill[(1,)](y, 10) is not first


@pytest.mark.parametrize("grid", [(3,), 3, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)])
def test_a_handle_launches_with_and_without_constexprs(grid):
    y = np.zeros(10, np.int32)
    handle = fill.warmup(y, 10, 5, BLOCK=4, grid=(1,))
    assert y.sum() == 0
    handle[grid](y, 10, 5)
    assert y.tolist() == [5] * 10
    y[:] = 0
    handle[grid](y, 10, 5, 4)
    assert y.tolist() == [5] * 10
    y[:] = 0
    handle[(3,)](y, 10, value=5, BLOCK=4)
    assert y.tolist() == [5] * 10


def test_a_handle_refuses_what_it_was_not_compiled_for():
    y = np.zeros(16, np.int32)
    handle = fill.warmup(y, 16, 5, BLOCK=4, grid=(1,))
    for arguments in [(y, 16, 5, 8), (y, 15, 5), (y.astype(np.int8), 16, 5), (y,), (y, 16, 5, 4, 4)]:
        with pytest.raises(triton.errors.LaunchError):
            handle[(1,)](*arguments)


def test_do_not_specialize():
    @triton.jit(do_not_specialize=["n"])
    def kernel(y_ptr, n):
        tl.store(y_ptr, n)

    y = np.zeros(1, np.int32)
    first = kernel[(1,)](y, 1)
    assert kernel[(1,)](y, 16) is first
    assert kernel[(1,)](y, 17) is first
    assert y[0] == 17


def test_run_and_hooks():
    y = np.zeros(4, np.int32)
    calls = []

    @triton.jit
    def kernel(y_ptr, n):
        tl.store(y_ptr, n)

    kernel.add_pre_run_hook(lambda *args, **kwargs: calls.append((len(args), kwargs)))
    kernel.run(y, grid=(1,), warmup=False, n=3)
    assert y[0] == 3
    assert calls == [(1, {"n": 3})]


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("counts", [{"num_warps": 128}, {"num_ctas": 64}, {"num_stages": 1000}], ids=str)
def test_any_count_where_there_are_no_warps(counts, interpret):
    """Neither the CPU nor interpret mode has warps, blocks of a cluster or stages."""
    kernel = triton.jit(fill.fn, interpret=interpret)
    y = np.zeros(4, np.int32)
    kernel[(1,)](y, 4, **counts)
    assert y[0] == 7
    for name in counts:
        with pytest.raises(triton.errors.LaunchError, match=rf"TW0108.*{name} is -1"):
            kernel[(1,)](y, 4, **{name: -1})


@pytest.mark.parametrize("interpret", [False, True])
def test_warps_that_are_no_power_of_two_are_refused_everywhere(interpret):
    """Also after a launch that has compiled the kernel: on the CPU, its code does not depend on the warps."""
    kernel = triton.jit(fill.fn, interpret=interpret)
    y = np.zeros(4, np.int32)
    kernel[(1,)](y, 4, num_warps=4)
    for count, near in ((3, "use 2 or 4"), (129, "use 128 or 256")):
        with pytest.raises(
            triton.errors.LaunchValueError, match=rf"(?s)TW0108.*num_warps is {count}\n.*{near}"
        ):
            kernel[(1,)](y, 4, num_warps=count)
    configs = [triton.Config({}, num_warps=count) for count in (3, 5)]
    with pytest.raises(triton.errors.LaunchValueError, match=r"TW0108.*num_warps is 3"):
        triton.autotune(configs, [])(triton.jit(fill.fn))[(1,)](y, 4)


@pytest.mark.parametrize(
    "option", [{"ptx_options": "--fmad=false"}, {"ir_override": "k.ttir"}, {"instrumentation_mode": "fpsan"}]
)
def test_an_option_that_nothing_does_yet_is_refused(option):
    y = np.zeros(4, np.int32)
    (name,) = option
    with pytest.raises(triton.errors.TritonError, match=rf"TW0108.*{name} cannot be set here"):
        fill[(1,)](y, 4, **option)
    fill[(1,)](y, 4, **{name: None})
    assert y[0] == 7
