"""Launches of autotuned kernels and heuristics: the native way is what ``run`` does, whatever a program changes."""

from __future__ import annotations

import copy
import pickle
import weakref

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.errors import LaunchValueError


@triton.jit
def scale(x_ptr, o_ptr, n, FACTOR: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + at, tl.load(x_ptr + at, at < n) * FACTOR + EVEN, at < n)


def configs(*blocks: int, **options) -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}, **options) for block in blocks]


def grid(n: int):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


IS_EVEN = {"EVEN": lambda args: int(args["n"] % 2 == 0)}

STACKS = {
    "autotune": lambda: triton.autotune(configs(32), key=["n"])(scale),
    "heuristics": lambda: triton.heuristics(IS_EVEN)(scale),
    "autotune over heuristics": lambda: triton.autotune(configs(16, 32), key=["n"])(
        triton.heuristics(IS_EVEN)(scale)
    ),
    "heuristics over autotune": lambda: triton.heuristics(IS_EVEN)(
        triton.autotune(configs(16, 32), key=["n"])(scale)
    ),
}


@pytest.mark.parametrize("stack", STACKS)
def test_a_launch_is_what_run_does(stack):
    kernel = STACKS[stack]()
    extra = {} if "heuristics" in stack else {"EVEN": 1}
    extra |= {} if "autotune" in stack else {"BLOCK": 32}
    for n in (100, 101, 100, 100):
        x = np.arange(n, dtype=np.float32)
        for dtype in (np.float32, np.int32):
            expected = x.astype(dtype) * 3 + (extra.get("EVEN", n % 2 == 0))
            launched, ran = np.zeros(n, dtype), np.zeros(n, dtype)
            kernel[grid(n)](x.astype(dtype), launched, n, FACTOR=3, **extra)
            kernel.run(x.astype(dtype), o_ptr=ran, n=n, FACTOR=3, **extra, grid=grid(n), warmup=False)
            np.testing.assert_array_equal(launched, expected)
            np.testing.assert_array_equal(ran, expected)


def test_heuristics_see_the_arguments_and_each_other():
    seen = []

    def first(args):
        seen.append(dict(args))
        return 2

    kernel = triton.heuristics({"FACTOR": first, "EVEN": lambda args: args["FACTOR"] + 5})(scale)
    x, o = np.ones(32, np.float32), np.zeros(32, np.float32)
    for _ in range(2):
        kernel[(1,)](x, o, 32, BLOCK=32, num_warps=2)
        np.testing.assert_array_equal(o, 9)
        assert {"x_ptr", "o_ptr", "n", "BLOCK", "num_warps"} <= seen[-1].keys()
        assert seen[-1]["n"] == 32
    # Heuristics run for arguments that the program passes as well.
    kernel[(1,)](x, o, 32, BLOCK=32, EVEN=100)
    np.testing.assert_array_equal(o, 9)


def test_what_a_program_changes_counts():
    kernel = triton.autotune(configs(32), key=["n"])(scale)
    x, o = np.ones(64, np.float32), np.zeros(64, np.float32)
    sizes = []

    def spy(meta):
        sizes.append((meta["BLOCK"], meta["num_warps"]))
        return (triton.cdiv(64, meta["BLOCK"]),)

    def launch():
        kernel[spy](x, o, 64, FACTOR=2, EVEN=0)

    launch()
    kernel.configs[0].kwargs["BLOCK"] = 16
    launch()
    kernel.configs[0].num_warps = 8
    launch()
    kernel.configs = configs(64)
    launch()
    kernel.configs[0].pre_hook = lambda args: args["o_ptr"].fill(7)
    x[:] = np.nan
    launch()
    assert [size for size, _ in sizes] == [32, 16, 16, 64, 64]
    assert sizes[2][1] == 8
    calls = []
    kernel.run = lambda *args, **kwargs: calls.append((len(args), sorted(kwargs)))
    launch()
    assert calls == [(3, ["EVEN", "FACTOR", "grid", "warmup"])]


def test_choices_can_be_taken_away():
    kernel = triton.autotune(configs(16, 32), key=["n"])(scale)
    x, o = np.ones(64, np.float32), np.zeros(64, np.float32)
    kernel[grid(64)](x, o, 64, FACTOR=2, EVEN=0)
    (key,) = kernel.cache
    assert key == (64, "float32", "float32")
    other = triton.Config({"BLOCK": 64})
    kernel.cache[key] = other
    kernel[grid(64)](x, o, 64, FACTOR=2, EVEN=0)
    assert kernel.best_config is other
    kernel.cache.clear()
    kernel[grid(64)](x, o, 64, FACTOR=2, EVEN=0)
    assert kernel.cache[key] in kernel.configs


def test_what_both_set_is_refused_each_time():
    kernel = triton.autotune(configs(16), key=["n"])(scale)
    x, o = np.ones(64, np.float32), np.zeros(64, np.float32)
    for _ in range(2):
        with pytest.raises(LaunchValueError, match="Conflicting meta-parameters: BLOCK"):
            kernel[(4,)](x, o, 64, FACTOR=2, EVEN=0, BLOCK=16)


def test_a_class_of_the_programs_own_runs_its_own():
    class Counting(triton.runtime.Heuristics):
        count = 0

        def run(self, *args, **kwargs):
            type(self).count += 1
            return super().run(*args, **kwargs)

    kernel = Counting(scale, scale.arg_names, IS_EVEN)
    x, o = np.ones(32, np.float32), np.zeros(32, np.float32)
    kernel[(1,)](x, o, 32, FACTOR=2, BLOCK=32)
    np.testing.assert_array_equal(o, 3)
    assert Counting.count == 1


def test_configurations_travel_after_launches():
    config = configs(32, num_warps=2)[0]
    kernel = triton.autotune([config], key=["n"])(scale)
    x, o = np.ones(32, np.float32), np.zeros(32, np.float32)
    kernel[grid(32)](x, o, 32, FACTOR=2, EVEN=0)
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config
        assert other.all_kwargs() == config.all_kwargs()


# --- The arguments that launches remember ---


@pytest.fixture
def tuned():
    """A decorator whose choice depends on the dtype and on ``n``, and the numbers of what was chosen."""
    torch = pytest.importorskip("torch")
    chosen = []

    def prune(configs, named_args, **_):
        number = (named_args["x_ptr"].dtype == torch.float64) * 2 + (named_args["n"] > 50)
        chosen.append(number)
        return [configs[number]]

    kernel = triton.autotune(
        configs(16, 32, 64, 128), key=["n"], prune_configs_by={"early_config_prune": prune}
    )
    return kernel, chosen


@pytest.mark.parametrize("is_computed", [False, True])
def test_a_launch_takes_the_choice_for_its_dtypes_and_numbers(tuned, is_computed):
    """Whichever came before: launches guess by the numbers, and look at the dtypes when they have read them."""
    import torch

    decorate, chosen = tuned
    kernel = decorate(triton.heuristics(IS_EVEN)(scale) if is_computed else scale)
    extra = {} if is_computed else {"EVEN": 0}
    rng = np.random.default_rng(0)
    kinds = [(dtype, n) for dtype in (torch.float32, torch.float64) for n in (40, 100)]
    grids = [grid, lambda n: (triton.cdiv(n, 16),)]
    for number in [0, 0, 2, 0, 2, 2, 1, 3, 1, 0, *rng.integers(0, 4, 20).tolist()]:
        dtype, n = kinds[number]
        x, o = torch.arange(n, dtype=dtype), torch.zeros(n, dtype=dtype)
        kernel[grids[int(rng.integers(2))](n)](x, o, n, FACTOR=3, **extra)
        assert kernel.best_config is kernel.configs[number]
        assert torch.equal(o, x * 3 + (1 if is_computed else 0))
    # Each was chosen once.
    assert sorted(chosen) == [0, 1, 2, 3]
    # Clearing the cache forgets the choices.
    kernel.cache.clear()
    kernel[grid(40)](x := torch.ones(40), torch.zeros(40), 40, FACTOR=3, **extra)
    assert chosen[4:] == [0]
    # A choice that the program makes counts.
    ((key, _),) = kernel.cache.items()
    kernel.cache[key] = kernel.configs[3]
    kernel[grid(40)](x, torch.zeros(40), 40, FACTOR=3, **extra)
    assert kernel.best_config is kernel.configs[3]
    kernel.cache = {key: kernel.configs[1]}
    kernel[grid(40)](x, torch.zeros(40), 40, FACTOR=3, **extra)
    assert kernel.best_config is kernel.configs[1]


def test_what_is_set_later_is_called(tuned):
    import torch

    decorate, _ = tuned
    called = []
    kernel = decorate(scale)
    x, o = torch.ones(40), torch.zeros(40)
    for _ in range(3):
        kernel[grid(40)](x, o, 40, FACTOR=3, EVEN=0)
    kernel.configs[0].pre_hook = lambda args: called.append(args["n"])
    kernel[grid(40)](x, o, 40, FACTOR=3, EVEN=0)
    assert called == [40]
    kernel.configs[0].pre_hook = None
    kernel[grid(40)](x, o, 40, FACTOR=3, EVEN=0)
    assert called == [40]
    # Hooks of the kernel beneath are called once a launch, also if it was guessed wrong.
    scale.add_pre_run_hook(lambda *_, **__: called.append("run"))
    try:
        kernel[grid(40)](x.double(), o.double(), 40, FACTOR=3, EVEN=0)
        kernel[grid(40)](x, o, 40, FACTOR=3, EVEN=0)
    finally:
        scale.pre_run_hooks.clear()
        scale._set_pre_run_hooks(())
    assert called == [40, "run", "run"]


def test_heuristics_get_a_dict_of_their_own_that_keeps_nothing_alive():
    torch = pytest.importorskip("torch")
    seen = []
    # Later functions see the results of earlier ones.
    values = {"EVEN": lambda args: 0, "FACTOR": lambda args: seen.append(args) or 1}
    kernel = triton.heuristics(values)(scale)
    last = []
    for n in (32, 64, 96):
        x = torch.ones(n)
        last.append(weakref.ref(x))
        kernel[grid(n)](x, torch.zeros(n), n, BLOCK=32)
        del x
    assert [(args["n"], len(args["x_ptr"]), args["EVEN"]) for args in seen] == [
        (32, 32, 0), (64, 64, 0), (96, 96, 0)
    ]  # fmt: skip
    seen.clear()
    assert [reference() for reference in last] == [None] * 3


@pytest.mark.parametrize("is_tuned", [False, True], ids=["heuristics", "autotune"])
def test_another_kernel_in_the_dict_of_a_wrapper_is_launched(is_tuned):
    @triton.jit
    def other(x_ptr, o_ptr, n, FACTOR: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
        tl.store(o_ptr + tl.arange(0, BLOCK), -1.0, mask=tl.arange(0, BLOCK) < n)

    one = [triton.Config({"BLOCK": 64})]
    wrap = triton.autotune(one, key=["n"]) if is_tuned else triton.heuristics({"BLOCK": lambda args: 64})
    kernel = wrap(scale)
    x = np.arange(40, dtype=np.float32)
    for inner, expected in ((scale, x * 3), (other, np.full_like(x, -1)), (scale, x * 3)):
        vars(kernel)["fn"] = inner
        for _ in range(3):
            o = np.zeros_like(x)
            kernel[(1,)](x, o, 40, FACTOR=3, EVEN=0)
            np.testing.assert_array_equal(o, expected)


def test_what_has_a_grid_is_no_sequence():
    compiled = scale.warmup(
        np.zeros(4, np.float32), np.zeros(4, np.float32), 4, FACTOR=3, EVEN=0, BLOCK=4, grid=(1,)
    )
    tuned, guessed = triton.autotune([triton.Config({})], key=[])(scale), triton.heuristics({})(scale)
    for kernel in (scale, compiled, tuned, guessed):
        # A loop would never end.
        with pytest.raises(TypeError, match="not iterable"):
            iter(kernel)
        with pytest.raises(TypeError, match="not iterable"):
            assert 0 in kernel
