"""``autotune`` and ``heuristics``: what is chosen, what is run to choose it, what is kept.

No time decides anything here: the functions that time return what the test says.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICE, ON_GPU

import tilewright as triton
import tilewright.language as tl
from tilewright import errors
from tilewright.runtime.autotuner import Autotuner, Config, Heuristics

pytestmark = pytest.mark.skipif(DEVICE.startswith("cuda"), reason="numpy arrays are tuned with")


@triton.jit
def scale(x_ptr, o_ptr, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr = 1, EVEN: tl.constexpr = False):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(o_ptr + i, tl.load(x_ptr + i) * FACTOR)
    else:
        tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) * FACTOR, mask=i < n)


@triton.jit
def accumulate(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(o_ptr + i, mask=i < n) + tl.load(x_ptr + i, mask=i < n), mask=i < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def arrays(n, dtype=np.float32):
    return np.arange(n, dtype=dtype), np.zeros(n, dtype=dtype)


class Bench:
    """Times a launch by what its configuration says: the fastest is the one whose BLOCK is ``best``."""

    def __init__(self, best=32):
        self.best = best
        self.tuner = None
        self.timed = []

    def __call__(self, fn, quantiles):
        assert quantiles == (0.5, 0.2, 0.8)
        blocks = []
        run = self.tuner.fn.run

        class Spy:
            def run(_, *args, **kwargs):
                blocks.append(kwargs["BLOCK"])
                return run(*args, **kwargs)

        inner, self.tuner.fn = self.tuner.fn, Spy()
        try:
            fn()
        finally:
            self.tuner.fn = inner
        self.timed += blocks
        return [abs(blocks[0] - self.best) + 1.0] * 3


def tuned(bench, blocks=(16, 32, 64), kernel=scale, key=("n",), **options):
    configs = [block if isinstance(block, Config) else Config({"BLOCK": block}) for block in blocks]
    bench.tuner = triton.autotune(configs=configs, key=list(key), do_bench=bench, **options)(kernel)
    return bench.tuner


def test_the_fastest_is_taken_once_a_key(device):
    bench = Bench()
    kernel = tuned(bench)
    x, o = arrays(100)
    kernel[grid](x, o, 100)
    assert bench.timed == [16, 32, 64]
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    np.testing.assert_array_equal(o, x)
    bench.best = 64
    kernel[grid](x, o, 100)
    assert len(bench.timed) == 3
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    x, o = arrays(90)
    kernel[grid](x, o, n=90)
    assert (len(bench.timed), kernel.best_config.kwargs["BLOCK"]) == (6, 64)
    # Another dtype is another key.
    kernel[grid](np.arange(100, dtype=np.int32), np.zeros(100, np.float32), 100)
    assert len(bench.timed) == 9
    assert list(kernel.cache) == [
        (100, "float32", "float32"),
        (90, "float32", "float32"),
        (100, "int32", "float32"),
    ]
    assert [timing[0] for timing in kernel.configs_timings.values()] == [49, 33, 1]
    assert kernel.bench_time > 0
    assert kernel.nargs is None


def test_the_race_runs_what_it_measures(device):
    """Without a function that times, whatever is chosen gives the right numbers, and slow ones are run seldom."""
    kernel = triton.autotune(
        [Config({"BLOCK": b}, num_warps=w) for b in (16, 64) for w in (1, 2)], ["n"], rep=2
    )(scale)
    x, o = arrays(200)
    kernel[grid](x, o, 200, FACTOR=3)
    np.testing.assert_array_equal(o, x * 3)
    assert kernel.best_config in kernel.configs
    times = kernel.configs_timings
    assert times.keys() == set(kernel.configs)
    assert times[kernel.best_config][0] == min(timing[0] for timing in times.values()) > 0
    assert "BLOCK: 64, num_warps: 2" in kernel.timings_table()


def test_what_is_far_behind_leaves_the_race():
    from tilewright import _benchmark
    from tilewright.runtime import _tuning

    rng = np.random.default_rng(0)
    runs = {}

    class Clock:
        def sample(self, fn, count, before, after):
            fn()
            return [current[0] * (1 + abs(rng.normal(0, 0.02))) for _ in range(count)]

    current = [0.0]
    speeds = {16: 1.0, 32: 1.2, 64: 4.0, 128: 1.001}

    class Inner:
        arg_names = ["n", "BLOCK"]  # noqa: RUF012
        __name__ = "inner"

        def run(self, n, BLOCK, **_):
            runs[BLOCK] = runs.get(BLOCK, 0) + 1
            current[0] = speeds[BLOCK]

        warmup = run

    # Without a limit of time: the race ends when the interval is small enough, on an idle machine as well.
    before = _benchmark.clock
    _benchmark.clock = Clock
    try:
        kernel = Autotuner(
            Inner(), ["n", "BLOCK"], [Config({"BLOCK": b}) for b in speeds], ["n"], None, None, rep=math.inf
        )
        outcome = _tuning.tune(_tuning.Trial(kernel, {"n": 1}, (1,), {"grid": (1,)}), kernel.configs, {})
    finally:
        _benchmark.clock = before
    medians = {config.kwargs["BLOCK"]: timing[0] for config, timing in outcome.timings.items()}
    assert min(medians, key=medians.get) in (16, 128)
    assert medians[64] > medians[32] > medians[16]
    # 64 is compiled and run once, 32 is out after the first round.
    assert runs[64] < runs[32] < runs[16]


def test_the_processor_has_no_warps(device):
    """Configurations that compile to the same program for the same grid are measured once."""
    from tilewright.runtime import _tuning

    def prepared(configs, of_grid=grid):
        kernel = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(scale)
        kernel = triton.autotune(configs, [])(kernel)
        x, o = arrays(64)
        trial = _tuning.Trial(kernel, {"x_ptr": x, "o_ptr": o, "n": 64}, (x, o, 64), {"grid": of_grid})
        compiled, failures = trial.compile(configs)
        assert not failures
        return [[config, *others] for config, others in _tuning._twins(trial, configs, compiled).items()]

    configs = [Config({"BLOCK": b}, num_warps=w) for b in (16, 32) for w in (1, 2)]
    one_by_one = [[config] for config in configs]
    assert prepared(configs) == (one_by_one if DEVICE != "cpu" else [configs[:2], configs[2:]])
    # The grid may follow what the program does not.
    assert prepared(configs, lambda meta: (meta["num_warps"],)) == one_by_one
    hooked = [Config({"BLOCK": 16}, num_warps=w, pre_hook=lambda kwargs: None) for w in (1, 2)]
    assert prepared(hooked) == [[config] for config in hooked]


def test_intervals_hold_the_median():
    from tilewright.runtime._tuning import interval

    rng = np.random.default_rng(1)
    for count in (8, 20, 100):
        held = 0
        for _ in range(400):
            low, high = interval(list(rng.exponential(1.0, count)))
            held += low <= np.log(2) <= high
        assert held > 400 * 0.97
    assert interval([1.0]) == (0.5, 1.5)
    low, high = interval([1.0, 1.0, 3.0])
    assert (low, high) == (-1.0, 5.0)


def test_a_configuration_that_fails_is_reported_and_skipped(device):
    bench = Bench(best=0)
    # No tile has 0 elements; a parameter that the kernel does not have is an error of the launch.
    kernel = tuned(bench, (16, 0, Config({"BLOCK": 64, "NOTHING": 1})))
    x, o = arrays(50)
    with pytest.warns(
        errors.LaunchWarning, match=r"autotuning 'scale' skips 2 of 3 configurations"
    ) as caught:
        kernel[grid](x, o, 50)
    text = str(caught[0].message)
    assert "BLOCK: 0, num_warps" in text
    assert "CompilationError: error[TW" in text
    assert caught[0].filename == __file__
    assert kernel.best_config.kwargs == {"BLOCK": 16}
    np.testing.assert_array_equal(o, x)
    assert kernel.configs_timings[kernel.configs[1]] == [float("inf")] * 3
    assert kernel.timings_table().splitlines()[-1].split()[0] == "-"


def test_a_configuration_that_fails_when_it_runs_is_skipped(device):
    if DEVICE.startswith("cuda"):
        pytest.skip("accesses are not checked")

    @triton.autotune([Config({"BLOCK": 64}), Config({"BLOCK": 32})], key=["n"])
    @triton.jit
    def unmasked(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(o_ptr + i, tl.load(x_ptr + i))

    x, o = arrays(32)
    with pytest.warns(errors.LaunchWarning, match="OutOfBoundsError"):
        unmasked[grid](x, o, 32)
    assert unmasked.best_config.kwargs == {"BLOCK": 32}
    np.testing.assert_array_equal(o, x)


def test_when_all_fail(device):
    x, o = arrays(32)
    kernel = tuned(Bench(), (0, -16))
    with pytest.raises(errors.CompilationError, match="TW0006"):
        kernel[grid](x, o, 32)
    kernel = tuned(Bench(), (0, Config({"BLOCK": 16, "NOTHING": 1})))
    with pytest.raises(
        errors.AutotunerError, match=r"no configuration of 'scale' runs:\n  BLOCK: 0, .*\n  BLOCK: 16"
    ):
        kernel[grid](x, o, 32)
    # An argument that the launch itself lacks is an error of the launch.
    with pytest.raises(TypeError, match=r"'n'|o_ptr"):
        tuned(Bench())[(1,)](x)


def test_names_in_the_configuration_and_in_the_call(device):
    x, o = arrays(32)
    for blocks in ((16, 32), (16,)):
        kernel = tuned(Bench(), blocks)
        with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
            kernel[grid](x, o, 32, BLOCK=16)
        with pytest.raises(ValueError, match="Conflicting meta-parameters: num_warps"):
            kernel[grid](x, o, 32, num_warps=8)
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        tuned(Bench())[grid](x, o, 32, 16)


def test_pruning(device):
    asked = []

    def early(configs, named_args, **kwargs):
        asked.append((len(configs), sorted(named_args), sorted(kwargs)))
        return [config for config in configs if config.kwargs["BLOCK"] < 256]

    def model(x_ptr, o_ptr, n, BLOCK, num_warps, num_stages, num_ctas, **_):
        return -BLOCK

    bench = Bench(best=16)
    prune = {"early_config_prune": early, "perf_model": model, "top_k": 2}
    kernel = tuned(bench, (16, 32, 64, 128, 256), prune_configs_by=prune)
    x, o = arrays(60)
    kernel[grid](x, o, n=60)
    assert asked == [(5, ["o_ptr", "x_ptr"], ["grid", "n", "warmup"])]
    assert bench.timed == [128, 64]
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert len(kernel.warmup(x, o, 60, grid=(1,))) == 2

    bench = Bench(best=16)
    kernel = tuned(bench, (16, 32, 64, 128), prune_configs_by={"perf_model": model, "top_k": 0.5})
    kernel[grid](x, o, 60)
    assert bench.timed == [128, 64]
    kernel = tuned(bench, (16, 32), prune_configs_by={"perf_model": model, "top_k": "two"})
    with pytest.raises(TypeError, match="top_k"):
        kernel[grid](x, o, 60)
    kernel = tuned(bench, (16, 32), prune_configs_by={"early_config_prune": lambda *_, **__: []})
    with pytest.raises(errors.AutotunerError, match="No valid autotuner configs after pruning"):
        kernel[grid](x, o, 60)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arguments_that_the_kernel_changes(device, library):
    def made(values):
        return values if library == "numpy" else pytest.importorskip("torch").from_numpy(values)

    x, o = map(made, arrays(40))
    kernel = tuned(Bench(), kernel=accumulate, reset_to_zero=["o_ptr"])
    kernel[grid](x, o, 40)
    np.testing.assert_array_equal(o, x)
    kernel[grid](x, o, 40)
    # A launch that tunes nothing zeros nothing.
    np.testing.assert_array_equal(o, x * 2)

    kernel = tuned(Bench(), kernel=accumulate, restore_value=["o_ptr"])
    kernel[grid](x, o, 40)
    np.testing.assert_array_equal(o, x * 3)
    # By the race too, which runs it many times.
    kernel = triton.autotune([Config({"BLOCK": b}) for b in (16, 32)], [], restore_value=["o_ptr"], rep=1)(
        accumulate
    )
    kernel[grid](x, o, 40)
    np.testing.assert_array_equal(o, x * 4)

    with pytest.raises(ValueError, match="reset_to_zero of the autotuner of 'accumulate' names 'y_ptr'"):
        tuned(Bench(), kernel=accumulate, reset_to_zero=["y_ptr"])


def test_reinterpreted_tensors_are_zeroed_and_restored(device):
    torch = pytest.importorskip("torch")
    x, o = torch.ones(20, dtype=torch.int32), torch.full((20,), 7, dtype=torch.int32)
    wrapped = triton.reinterpret(o, tl.uint32)
    tuned(Bench(), kernel=accumulate, reset_to_zero=["o_ptr"])[grid](x, wrapped, 20)
    assert o.tolist() == [1] * 20
    tuned(Bench(), kernel=accumulate, restore_value=["o_ptr"])[grid](x, wrapped, 20)
    assert o.tolist() == [2] * 20


def test_an_argument_that_is_left_out_need_not_be_restored(device):
    @triton.jit
    def maybe(x_ptr, o_ptr, n, bias_ptr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

    x, o = arrays(16)
    tuned(Bench(), kernel=maybe, restore_value=["bias_ptr"], reset_to_zero=["bias_ptr"])[grid](x, o, 16, None)
    np.testing.assert_array_equal(o, x)


def test_hooks(device):
    log = []

    def before(kwargs, reset_only=False):
        log.append(("before", kwargs["BLOCK"], reset_only))

    def after(kwargs, exception):
        log.append(("after", kwargs["BLOCK"], type(exception).__name__))

    def of_config(kwargs):
        log.append(("config", kwargs["BLOCK"], kwargs["n"]))

    bench = Bench(best=16)
    configs = (Config({"BLOCK": 16}, pre_hook=of_config), 32)
    kernel = tuned(bench, configs, pre_hook=before, post_hook=after)
    x, o = arrays(20)
    kernel[grid](x, o, 20)
    assert kernel.user_defined_pre_hook is True
    assert log == [
        # Compiled with what the hook changes.
        ("config", 16, 20),
        ("config", 16, 20),
        ("before", 16, False),
        ("after", 16, "NoneType"),
        ("before", 32, False),
        ("after", 32, "NoneType"),
        ("before", 16, True),
        ("config", 16, 20),
    ]
    del log[:]
    kernel[grid](x, o, 20)
    assert log == [("config", 16, 20)]


def test_the_hook_after_a_failure(device):
    seen = []
    bench = Bench()
    kernel = tuned(bench, (16, 32), post_hook=lambda kwargs, exception: seen.append(exception))

    def fail(fn, quantiles):
        inner, kernel.fn = kernel.fn, None
        try:
            fn()
        finally:
            kernel.fn = inner

    kernel._do_bench = fail
    x, o = arrays(20)
    with pytest.raises(AttributeError):
        kernel[grid](x, o, 20)
    assert [type(error) for error in seen] == [AttributeError] * 2


def test_heuristics(device):
    seen = []

    def even(args):
        seen.append(sorted(args))
        return args["n"] % args["BLOCK"] == 0

    values = {"BLOCK": lambda args: triton.next_power_of_2(args["n"]), "EVEN": even}
    kernel = triton.heuristics(values)(scale)
    assert isinstance(kernel, Heuristics)
    assert (kernel.values, kernel.fn, kernel.arg_names) == (values, scale, scale.arg_names)
    for n in (32, 33):
        x, o = arrays(n)
        handle = kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, o, n)
        np.testing.assert_array_equal(o, x)
        assert handle is not None
    assert "BLOCK" in seen[0]
    assert "x_ptr" in seen[0]
    compiled = kernel.warmup(x, o, 64, grid=(1,))
    assert "mask" not in compiled.asm["ir"]


def test_all_orders_of_decorators(device):
    def even(args):
        return args["n"] % args.get("BLOCK", 1) == 0

    heuristics = triton.heuristics({"EVEN": even})
    x, o = arrays(64)
    for order in ("aj", "ah", "ha", "jah", "jha", "ajh", "hja", "haj"):
        bench = Bench()
        kernel = scale if "j" not in order else scale.fn
        tuner = None
        for letter in reversed(order):
            if letter == "j":
                kernel = triton.jit(kernel)
            elif letter == "h":
                kernel = heuristics(kernel)
            else:
                configs = [Config({"BLOCK": block}) for block in (16, 32)]
                kernel = tuner = triton.autotune(configs, key=["n"], do_bench=bench)(kernel)
        bench.tuner = tuner
        o[:] = 0
        kernel[grid](x, o, 64)
        np.testing.assert_array_equal(o, x, err_msg=order)
        assert tuner.best_config.kwargs == {"BLOCK": 32}
        assert tuner.base_fn is scale.fn
        assert kernel.__name__ == "scale"
    with pytest.raises(TypeError, match=r"'scale' is tuned, and is no kernel: write @triton.jit"):
        triton.autotune([Config({"BLOCK": 16})], [])(scale.fn)[(1,)](x, o, 64)
    with pytest.raises(TypeError, match="decorates a kernel, not a int"):
        triton.heuristics({})(3)


def test_a_jit_above_gives_its_options():
    kernel = triton.jit(triton.autotune([Config({"BLOCK": 16})], [])(scale.fn), do_not_specialize=["n"])
    assert isinstance(kernel, Autotuner)
    assert kernel.fn.do_not_specialize == ["n"]


def test_configs(device):
    kernel = triton.autotune(configs=[], key=None)(scale)
    assert [str(config) for config in kernel.configs] == [str(Config({}))]
    x, o = arrays(16)
    kernel[(1,)](x, o, 16, 16)
    np.testing.assert_array_equal(o, x)
    with pytest.raises(TypeError, match=r"has a dict: write\s+triton.Config"):
        triton.autotune(configs=[{"BLOCK": 16}], key=[])(scale)
    one = Config({"BLOCK": 16}, num_warps=8)
    for twin in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert (twin, hash(twin), str(twin)) == (one, hash(one), str(one))
    assert one != Config({"BLOCK": 16})
    assert pickle.loads(pickle.dumps(named)) is named
    assert copy.deepcopy(named) is named


@triton.autotune([Config({"BLOCK": 16})], key=[])
@triton.jit
def named(o_ptr, BLOCK: tl.constexpr):
    tl.store(o_ptr + tl.arange(0, BLOCK), 1.0)


def test_printing(device, capsys, monkeypatch):
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    x, o = arrays(32)
    kernel = tuned(Bench(), (16, 32))
    kernel[grid](x, o, 32)
    lines = capsys.readouterr().out.splitlines()
    settings = "num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None, ir_override: None"
    assert lines[:4] == [
        f"Autotuning kernel scale with config BLOCK: 16, {settings}",
        f"Autotuning kernel scale with config BLOCK: 32, {settings}",
        "Triton autotuning for function scale,",
        "with key as (32, 'float32', 'float32'),",
    ]
    assert lines[4].startswith("finished after ")
    assert lines[5] == f"best config selected: BLOCK: 32, {settings};"
    kernel[grid](x, o, 32)
    assert capsys.readouterr().out == ""
    monkeypatch.delenv("TRITON_PRINT_AUTOTUNING")
    monkeypatch.setenv("TILEWRIGHT_PRINT_AUTOTUNING_TABLE", "1")
    kernel[grid](x, o, 31)
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "     ms     20 %     80 %  configuration",
        f" 1.0000   1.0000   1.0000  BLOCK: 32, {settings}",
    ]


def test_progress_on_a_terminal(device, monkeypatch):
    from tilewright.runtime import _tuning_report

    class Terminal:
        text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(_tuning_report, "_QUIET", -1.0)
    monkeypatch.setenv("COLUMNS", "60")
    x, o = arrays(32)
    tuned(Bench(), (16, 32))[grid](x, o, 32)
    shown = terminal.text.split("\r")
    assert "tilewright: autotuning scale: 1/2" in [line.rstrip() for line in shown]
    assert all(len(line) < 60 for line in shown)
    assert shown[-1] == ""
    assert not shown[-2].strip()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_timings_on_disk(device, cache):
    x, o = arrays(32)
    bench = Bench(best=40)
    tuned(bench, (16, 32), cache_results=True)[grid](x, o, 32)
    assert bench.timed == [16, 32]
    (path,) = Path(cache).rglob("*.autotune.json")
    stored = json.loads(path.read_text())
    assert list(stored) == ["key", "device", "configs_timings", "crc32"]
    assert len(stored["configs_timings"]) == 2
    # Another process would find the same.
    bench = Bench()
    again = tuned(bench, (16, 32), cache_results=True)
    again[grid](x, o, 32)
    assert bench.timed == []
    assert again.best_config.kwargs == {"BLOCK": 32}
    # One more configuration is one more to time; also where the environment says so.
    bench = Bench(best=64)
    more = tuned(bench, (16, 32, 64), cache_results=True)
    more[grid](x, o, 32)
    assert bench.timed == [64]
    assert more.best_config.kwargs == {"BLOCK": 64}
    assert len(more.configs_timings) == 3
    # Another key, and another kernel.
    bench = Bench()
    tuned(bench, (16, 32), cache_results=True)[grid](x, o, 31)
    assert bench.timed == [16, 32]
    bench = Bench()
    tuned(bench, (16, 32), kernel=accumulate, cache_results=True)[grid](x, o, 32)
    assert bench.timed == [16, 32]
    # Without the wish, nothing is read or written.
    bench = Bench()
    tuned(bench, (16, 32))[grid](x, o, 32)
    assert bench.timed == [16, 32]


def test_timings_on_disk_by_the_environment(device, cache, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    x, o = arrays(32)
    for expected in ([16, 32], []):
        bench = Bench()
        kernel = tuned(bench, (16, 32))
        kernel[grid](x, o, 32)
        assert bench.timed == expected
    # A broken file is as none; so is one with other contents.
    (path,) = Path(cache).rglob("*.autotune.json")
    for text in ("{", '{"configs_timings": 3}', '{"configs_timings": {"a": ["x"]}}', "[]"):
        path.write_text(text)
        bench = Bench()
        tuned(bench, (16, 32))[grid](x, o, 32)
        assert bench.timed == [16, 32]
    # A hook is code that no file can tell from another.
    bench = Bench()
    configs = (Config({"BLOCK": 16}, pre_hook=lambda kwargs: None), 32)
    tuned(bench, configs)[grid](x, o, 32)
    assert bench.timed == [16, 32]


def test_timings_are_kept_unless_the_environment_refuses(device, cache, monkeypatch):
    monkeypatch.delenv("TRITON_CACHE_AUTOTUNING", raising=False)
    x, o = arrays(32)
    configs = [Config({"BLOCK": block}) for block in (16, 32)]

    def timed():
        return triton.autotune(configs=configs, key=["n"])(scale)

    timed()[grid](x, o, 32)
    (path,) = cache.rglob("*.autotune.json")
    # A file without a checksum, as a user writes it, is believed.
    known = json.loads(path.read_text())
    del known["crc32"]
    assert len(known["configs_timings"]) == 2
    for order in (1, -1):
        names = list(known["configs_timings"])[::order]
        known["configs_timings"] = {name: [float(place)] * 3 for place, name in enumerate(names)}
        path.write_text(json.dumps(known))
        kernel = timed()
        kernel[grid](x, o, 32)
        assert f'"BLOCK": {kernel.best_config.kwargs["BLOCK"]},' in names[0]
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "0")
    path.unlink()
    timed()[grid](x, o, 32)
    assert not any(cache.rglob("*.autotune.json"))
    # A function of the program's own may measure anything.
    monkeypatch.delenv("TRITON_CACHE_AUTOTUNING")
    for _ in range(2):
        bench = Bench()
        tuned(bench, (16, 32))[grid](x, o, 32)
        assert bench.timed == [16, 32]
    # The program did not request the file, so there is no warning that the disk refuses.
    blocked = cache.parent / "file"
    blocked.write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(blocked))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        timed()[grid](x, o, 32)
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    with pytest.warns(errors.LaunchWarning, match="timings are not kept on disk") as caught:
        timed()[grid](x, o, 32)
    assert {one.filename for one in caught} == {__file__}
    # A variable that names no class is an error, whose traceback is the program's.
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "missing_module:Own")
    with pytest.raises(errors.LaunchStateError, match="TRITON_CACHE_MANAGER") as raised:
        timed()[grid](x, o, 32)
    assert len(raised.traceback) <= 2


def test_the_only_one_is_not_timed(device, cache):
    def first(configs, named_args, **kwargs):
        return configs[:1]

    x, o = arrays(32)
    bench = Bench()
    kernel = tuned(bench, (16, 32), prune_configs_by={"early_config_prune": first}, cache_results=True)
    kernel[grid](x, o, 32)
    assert (bench.timed, kernel.best_config.kwargs) == ([], {"BLOCK": 16})
    assert kernel.timings_table().splitlines()[-1].split()[0] == "-"
    # If there is a choice later, it is timed as the others are.
    kernel = tuned(bench, (16, 32), cache_results=True)
    kernel[grid](x, o, 32)
    assert (bench.timed, kernel.best_config.kwargs) == ([16, 32], {"BLOCK": 32})


def test_what_does_not_compile_is_remembered(device, cache):
    x, o = arrays(32)
    with pytest.warns(errors.LaunchWarning, match="skips 1 of 2"):
        tuned(Bench(), (16, 0), cache_results=True)[grid](x, o, 32)
    bench = Bench()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned(bench, (16, 0), cache_results=True)[grid](x, o, 32)
    assert bench.timed == []


def test_libraries_may_look_inside(device, cache):
    """The attributes of an autotuner that derived classes and torch use."""
    import inspect

    class Derived(Autotuner):
        def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs):
            super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs)
            self.looked_up = []

        def run(self, *args, **kwargs):
            named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
            key = [named[name] for name in self.keys if name in named]
            key += [str(arg.dtype) for name, arg in named.items() if hasattr(arg, "dtype")]
            self.cache[tuple(key)] = Config({"BLOCK": 128})
            return super().run(*args, **kwargs)

    kernel = Derived(scale, scale.arg_names, [Config({"BLOCK": b}) for b in (16, 32)], ["n"], None, None)
    x, o = arrays(50)
    kernel[grid](x, o, 50)
    assert kernel.best_config.kwargs == {"BLOCK": 128}

    kernel = triton.autotune([Config({"BLOCK": 16})], key=["n"])(scale)
    defaults = inspect.signature(Autotuner.__init__).parameters
    assert (kernel.num_warmups, kernel.num_reps, kernel.use_cuda_graph) == (
        defaults["warmup"].default,
        defaults["rep"].default,
        defaults["use_cuda_graph"].default,
    )
    assert (kernel.perf_model, kernel.early_config_prune, kernel.configs_top_k) == (None, None, 1.0)
    assert (kernel.user_defined_pre_hook, kernel.user_defined_post_hook) == (False, False)
    assert (kernel.keys, kernel.fn, kernel.base_fn) == (["n"], scale, scale.fn)
    assert kernel.do_bench.func is triton.testing.do_bench
    kernel = triton.autotune([Config({"BLOCK": 16})], key=["n"], warmup=1, rep=2)(scale)
    assert kernel.do_bench.keywords == {"warmup": 1, "rep": 2}
    low, middle, high = sorted(kernel._bench(x, o, 50, config=kernel.configs[0], grid=(4,), warmup=False))
    assert 0 < low <= middle <= high < float("inf")
    assert kernel._bench(x, o, 50, config=Config({"BLOCK": 0}), grid=(4,)) == [float("inf")] * 3
    with pytest.raises(KeyError, match="nothing"):
        kernel._bench(x, o, 50, config=Config({"BLOCK": 16, "nothing": 1}), grid=(4,))

    bench = Bench()
    kernel = tuned(bench, (16, 32))
    assert kernel._bench(x, o, 50, config=kernel.configs[1], grid=(4,)) == [1.0] * 3
    calls = []
    assert kernel.check_disk_cache((1,), kernel.configs, lambda: calls.append(1)) is False
    assert calls == [1]


def test_a_custom_driver_times(device, monkeypatch):
    from tilewright.runtime.driver import driver

    calls = []

    def bench(fn, quantiles, warmup=25, rep=100):
        calls.append((warmup, rep))
        fn()
        return [float(len(calls))] * 3

    monkeypatch.setattr(type(driver.active), "get_benchmarker", lambda self: bench)
    kernel = triton.autotune([Config({"BLOCK": b}) for b in (16, 32)], key=[], rep=7)(scale)
    x, o = arrays(32)
    kernel[grid](x, o, 32)
    assert calls == [(25, 7)] * 2
    assert kernel.best_config.kwargs == {"BLOCK": 16}


def test_threads_tune_once(device):
    import threading

    bench = Bench()
    kernel = tuned(bench)
    x, o = arrays(64)
    threads = [threading.Thread(target=lambda: kernel[grid](x, o, 64)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.timed == [16, 32, 64]


def test_choices_are_of_a_device(device):
    class Elsewhere(np.ndarray):
        device = "elsewhere"

    bench = Bench(best=16)
    kernel = tuned(bench, (16, 32))
    x, o = arrays(32)
    kernel[grid](x, o, 32)
    bench.best = 32
    chosen = []
    for view in (Elsewhere, np.ndarray, Elsewhere):
        kernel[grid](x.view(view), o, 32)
        chosen.append((kernel.best_config.kwargs["BLOCK"], len(kernel.cache)))
    assert chosen == [(32, 1), (16, 1), (32, 1)]
    assert len(bench.timed) == 4


@triton.jit
def converted(o, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, at.to(o.dtype.element_ty), mask=at < n)


def test_a_torch_dtype_may_be_a_compile_time_value(device):
    torch = pytest.importorskip("torch")
    configs = [Config({"BLOCK": block}) for block in (16, 32)]
    kernel = triton.autotune(configs=configs, key=["n"])(converted)
    o = torch.zeros(50, device="cuda" if ON_GPU else "cpu")
    kernel[lambda meta: (triton.cdiv(50, meta["BLOCK"]),)](o, 50, DTYPE=torch.bfloat16)
    assert o.tolist() == list(range(50))
    kernel[lambda meta: (triton.cdiv(50, meta["BLOCK"]),)](o, 50, torch.float16)
    # In a warm-up, a dtype is a tensor elsewhere.
    assert len(kernel.warmup(torch.float32, 50, torch.bfloat16)) == 2
    assert len(kernel.warmup(torch.float32, 50, DTYPE=torch.bfloat16)) == 2
