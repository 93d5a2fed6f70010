"""``triton.testing``: timing, reports, comparisons, limits. No time is asserted: clocks return what the test says."""

from __future__ import annotations

import contextlib
import csv
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as triton
from tilewright import _benchmark, _device_limits, _native, _perf_report, errors, testing
from tilewright.runtime import _tuning


class Clock:
    """A clock on which each run takes ``next`` milliseconds, and clearing the cache before it ``around``."""

    def __init__(self, first=1):
        self.next = first
        self.around = 0
        self.counts = []
        self.elapsed = 0.0

    estimating_runs = 1

    def wait(self):
        pass

    def estimate(self, fn, count, before):
        began = self.elapsed
        self.sample(fn, count, before)
        return (self.elapsed - began) / count

    def sample(self, fn, count, before=None, after=None):
        self.counts.append(count)
        times = []
        for _ in range(count):
            if before:
                before()
            fn()
            self.elapsed += self.next + self.around
            times.append(float(self.next))
        return times


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(_benchmark, "clock", lambda: made)
    return made


def test_quantiles():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 10, 101):
        samples = rng.normal(size=count)
        for fraction in (0.0, 0.2, 0.5, 0.77, 1.0):
            expected = np.quantile(samples, fraction)
            assert _benchmark.quantile(list(samples), fraction) == pytest.approx(
                expected, rel=1e-12, abs=1e-12
            )
    assert _benchmark.quantile([float("inf")] * 3, 0.3) == float("inf")
    with pytest.raises(ValueError, match="between 0 and 1, not 50"):
        _benchmark.quantile([1.0], 50)


def test_what_do_bench_returns():
    samples = [3.0, 1.0, 2.0, 6.0]
    summary = _benchmark.summary
    assert summary(samples) == 3.0
    assert summary(samples, return_mode="median") == 2.5
    assert (summary(samples, return_mode="min"), summary(samples, return_mode="max")) == (1.0, 6.0)
    assert summary(samples, return_mode="all") == samples
    assert summary(samples, [0.5, 0.0, 1.0]) == [2.5, 1.0, 6.0]
    assert summary(samples, [0.5]) == 2.5
    both = (testing.do_bench, testing.do_bench_cudagraph)
    for bench in (*both, testing.do_bench_proton, testing.do_bench_cudagraph_proton):
        with pytest.raises(ValueError, match=r"return_mode is 'min'.* not 'average'"):
            bench(lambda: None, return_mode="average")


def test_how_often_a_function_runs(clock):
    calls = []
    clock.next = 5
    assert testing.do_bench(lambda: calls.append(1), warmup=25, rep=100) == 5.0
    # Once to compile, once to estimate, for 25 ms to warm up without the clock, and for 100 ms.
    assert clock.counts == [1, 20]
    assert len(calls) == sum(clock.counts) + 1 + 5
    clock.next = 1000
    del clock.counts[:]
    testing.do_bench(lambda: None, warmup=25, rep=100)
    assert clock.counts[-1] == 1


def test_the_budget_of_do_bench_is_wall_time(clock):
    """A run of 0.01 ms after 0.09 ms in which the cache is cleared runs 1,000 times in 100 ms, not 10,000 times."""
    clock.next, clock.around = 0.01, 0.09
    calls = []
    assert testing.do_bench(lambda: calls.append(1), warmup=25, rep=100) == pytest.approx(0.01)
    assert clock.counts[-1] == pytest.approx(1000, abs=1)
    assert len(calls) - sum(clock.counts) == pytest.approx(1 + 250, abs=1)


class Timeline:
    """A GPU and its host, on which a run takes ``run`` milliseconds of both, and clearing the cache ``clear``."""

    def __init__(self, run, clear):
        self.run, self.clear = run, clear
        self.now = 0.0
        self.runs = 0

    def launch(self):
        self.runs += 1
        self.now += self.run

    def event(self, enable_timing):
        return TimelineEvent(self)

    def synchronize(self):
        pass

    def clear_cache(self, cache):
        assert cache == "cache"
        self.now += self.clear

    def get_empty_cache_for_benchmark(self):
        return "cache"

    def perf_counter(self):
        return self.now * 1e-3


class TimelineEvent:
    def __init__(self, timeline):
        self.timeline = timeline
        self.at = None

    def record(self):
        self.at = self.timeline.now

    def elapsed_time(self, end):
        return end.at - self.at


@pytest.mark.parametrize(("run", "clear"), [(0.01, 0.09), (0.5, 0.1), (40.0, 0.1)])
def test_do_bench_keeps_its_budgets_on_a_gpu(monkeypatch, run, clear):
    """``warmup`` and ``rep`` are wall time with the clearing of the cache, as in Triton."""
    timeline = Timeline(run, clear)
    interface = SimpleNamespace(Event=timeline.event, synchronize=timeline.synchronize)
    monkeypatch.setattr(_benchmark, "clock", lambda: _benchmark.GpuClock(interface, timeline))
    found = testing.do_bench(timeline.launch, warmup=25, rep=100, return_mode="all")
    assert found == pytest.approx([run] * len(found))
    assert len(found) == max(int(100 / (run + clear) + 1e-6), 1)
    # One run compiles, five give the estimate, and the warm-up does not clear the cache.
    assert timeline.runs == 1 + 5 + int(25 / (run + clear) + 1e-6) + len(found)
    assert timeline.now <= 25 + 100 + 7 * (run + clear)


def test_the_race_of_the_tuner_keeps_its_budget(monkeypatch):
    """The time between runs counts: restoring tensors and clearing the cache."""
    timelines = {"a": Timeline(0.02, 0.18), "b": Timeline(0.0201, 0.18)}
    shared = next(iter(timelines.values()))

    class Noisy:
        def sample(self, launch, count, before, after):
            times = []
            for number in range(count):
                before()
                began = shared.now
                launch()
                # The times differ too much for an early end.
                times.append((shared.now - began) * (1 + number % 7))
                shared.now += shared.clear
                after(None)
            return times

    monkeypatch.setattr(_benchmark, "clock", Noisy)
    monkeypatch.setattr(_tuning, "time", SimpleNamespace(perf_counter=shared.perf_counter))
    launches = dict.fromkeys(timelines, 0)

    def launcher(config):
        def launch():
            launches[config] += 1
            shared.now += timelines[config].run

        return launch

    tuner = SimpleNamespace(_place="cuda:0", num_reps=30)
    trial = SimpleNamespace(
        tuner=tuner, launcher=launcher, hooks=lambda config: (lambda: None, lambda error: None)
    )
    outcome = SimpleNamespace(failures={}, timings={})
    progress = SimpleNamespace(step=lambda config: None, best=lambda config, time: None)
    _tuning._race(trial, list(timelines), outcome, progress)
    for name in timelines:
        assert launches[name] * 0.2 == pytest.approx(30, abs=1.0)


def test_a_graph_takes_as_long_as_rep(monkeypatch):
    """The graph has the runs that take ``rep`` milliseconds, and is launched ten times."""
    timeline = Timeline(0.25, 0.0)
    captured = []

    class Graph:
        def replay(self):
            for run in captured:
                run()

    @contextlib.contextmanager
    def graph(_graph):
        before = timeline.now, timeline.runs
        yield
        captured.extend([timeline.launch] * (timeline.runs - before[1]))
        timeline.now, timeline.runs = before

    cuda = SimpleNamespace(
        CUDAGraph=Graph,
        Event=timeline.event,
        Stream=lambda: None,
        empty_cache=lambda: None,
        graph=graph,
        stream=lambda _stream: contextlib.nullcontext(),
        synchronize=timeline.synchronize,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(_native, "device", lambda: "cuda:0")
    monkeypatch.setattr(_benchmark, "time", SimpleNamespace(perf_counter=timeline.perf_counter))
    assert testing.do_bench_cudagraph(timeline.launch, rep=20) == pytest.approx(0.25)
    assert len(captured) == 20 / 0.25
    assert timeline.now == pytest.approx(0.25 * 6 + 10 * 20)


def test_do_bench_runs_for_real():
    calls = []
    found = testing.do_bench(lambda: calls.append(1), warmup=1, rep=1, quantiles=[0.5, 0.2, 0.8])
    assert len(calls) > 3
    assert 0 <= found[1] <= found[0] <= found[2]
    assert isinstance(testing.do_bench_cudagraph(lambda: None, rep=1), float)
    with pytest.raises(ZeroDivisionError):
        testing.do_bench(lambda: 1 / 0)


def test_gradients_are_dropped(clock):
    class Tensor:
        grad = 1

    tensor = Tensor()
    seen = []

    def fn():
        seen.append(tensor.grad)
        tensor.grad = 1

    testing.do_bench(fn, grad_to_none=[tensor])
    assert set(seen) == {None}


def report(**options):
    settings = {
        "x_names": ["n"],
        "x_vals": [1, 2, 4],
        "line_arg": "provider",
        "line_vals": ["a", "b"],
        "line_names": ["A", "B"],
        "plot_name": "lines",
        "args": {"scale": 10},
        "styles": [("blue", "-"), ("green", "--")],
        "x_log": True,
        "ylabel": "GB/s",
    }
    bench = triton.testing.Benchmark(**{**settings, **options})

    @triton.testing.perf_report(bench)
    def benchmark(n, provider, scale):
        value = n * scale + (0.5 if provider == "b" else 0)
        return (value, value - 1, value + 1) if provider == "a" else value

    return benchmark


TABLE = """lines:
   n   A     B
0  1  10  10.500000
1  2  20  20.500000
2  4  40  40.500000
"""


@pytest.fixture
def without(monkeypatch):
    def block(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return block


def test_reports_without_pandas_and_matplotlib(tmp_path, capsys, without):
    without("pandas", "matplotlib", "matplotlib.pyplot")
    with pytest.warns(UserWarning, match="plot is not drawn: matplotlib is not installed"):
        assert report().run(print_data=True, save_path=str(tmp_path / "out")) is None
    lines = capsys.readouterr().out.split()
    assert lines == TABLE.split()
    rows = list(csv.reader((tmp_path / "out" / "lines.csv").open()))
    assert rows == [
        ["n", "A", "B"],
        ["1", "10", "10.500000"],
        ["2", "20", "20.500000"],
        ["4", "40", "40.500000"],
    ]
    with pytest.raises(ImportError, match="pip install pandas"):
        report().run(return_df=True)
    # A report that draws nothing needs neither.
    report().run(print_data=True)
    assert capsys.readouterr().out.split() == TABLE.split()


def test_reports_with_pandas(tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    frame = report().run(print_data=True, return_df=True, diff_col=True)
    assert list(frame.columns) == ["n", "A", "B", "Diff"]
    assert capsys.readouterr().out == "lines:\n" + frame.to_string() + "\n"
    assert list(frame["Diff"]) == [0.5] * 3
    mark = report()
    mark.benchmarks = [mark.benchmarks, mark.benchmarks]
    frames = mark.run(return_df=True)
    assert len(frames) == 2
    pandas.testing.assert_frame_equal(frames[0], frame[["n", "A", "B"]])


def test_plots(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    report().run(save_path=str(tmp_path), save_precision=2)
    assert (tmp_path / "lines.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "lines.csv").read_text().splitlines()[1] in ("1,10,10.50", "1,10.00,10.50")
    html = (tmp_path / "results.html").read_text()
    assert html == '<html><body>\n<image src="lines.png"/>\n</body></html>\n'

    import matplotlib.pyplot as plt

    drawn = []
    plt_close = plt.close
    plt.close = lambda figure: drawn.append(figure)
    try:
        report(styles=None, x_log=False, y_log=True).run(save_path=str(tmp_path))
    finally:
        plt.close = plt_close
    (axes,) = drawn[0].axes
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlabel()) == ("linear", "log", "n")
    assert [list(line.get_ydata()) for line in axes.lines] == [[10, 20, 40], [10.5, 20.5, 40.5]]
    assert len(axes.collections) == 1
    plt_close(drawn[0])


def test_several_arguments_vary():
    seen = []
    bench = triton.testing.Benchmark(["m", "k"], [(1, 2), 3], "p", ["x"], ["X"], "", {})
    mark = triton.testing.perf_report([bench])(lambda m, k, p, extra: seen.append((m, k, p, extra)) or 1.0)
    mark.run(extra=7)
    assert seen == [(1, 2, "x", 7), (3, 3, "x", 7)]
    assert mark(1, 2, "y", 3) == 1.0
    bench.x_vals = [(1, 2, 3)]
    with pytest.raises(ValueError, match=r"expected 2 values for \['m', 'k'\], got \(1, 2, 3\)"):
        mark.run(extra=7)


def test_close():
    triton.testing.assert_close(np.float32([1, 2]), np.float32([1.005, 2]))
    with pytest.raises(AssertionError):
        triton.testing.assert_close(np.float32([1, 2]), np.float32([1.02, 2]))
    triton.testing.assert_close(np.float32([100]), np.float32([101]), rtol=0.02, atol=lambda dtype: 0.0)
    with pytest.raises(AssertionError):
        triton.testing.assert_close(np.int32([1, 2]), np.int32([1, 3]))


# 10^12 operations a second that the vendor states, dense, with multiprocessors and boost clock in kHz.
DATA_SHEETS = [
    ((8, 0), 108, 1_410_000, "float16", 312),
    ((8, 0), 108, 1_410_000, "float32", 156),
    ((8, 0), 108, 1_410_000, "int8", 624),
    ((9, 0), 132, 1_830_000, "bfloat16", 989),
    ((9, 0), 132, 1_830_000, "float8_e4m3fn", 1979),
    ((7, 0), 80, 1_530_000, "float16", 125),
    ((8, 9), 142, 2_520_000, "float16", 366),
]


@pytest.fixture
def gpu(monkeypatch):
    def pretend(capability, multiprocessors, **properties):
        monkeypatch.setattr(_native, "device", lambda: "cuda:0")
        monkeypatch.setattr(_native, "device_capability", lambda number=None: capability)
        values = {"multiprocessor_count": multiprocessors, **properties}
        monkeypatch.setattr(_native, "device_properties", lambda number=None: values)

    return pretend


@pytest.mark.parametrize(("capability", "count", "clock", "dtype", "stated"), DATA_SHEETS)
def test_tensor_cores(gpu, capability, count, clock, dtype, stated):
    gpu(capability, count)
    assert triton.testing.get_max_tensorcore_tflops(dtype, clock) == pytest.approx(stated, rel=0.01)


def test_other_limits(gpu):
    gpu((9, 0), 132, mem_clock_rate=2_619_000, mem_bus_width=5120)
    # An H100 SXM: 67 of fp32, 134 of fp16 without tensor cores, 3350 GB/s.
    assert triton.testing.get_max_simd_tflops("float32", 1_980_000) == pytest.approx(67, rel=0.01)
    assert triton.testing.get_max_simd_tflops("float16", 1_980_000) == pytest.approx(134, rel=0.01)
    assert triton.testing.get_dram_gbps() == pytest.approx(3350, rel=0.01)
    with pytest.raises(ValueError, match="takes float32, int32, float16, bfloat16, not float64"):
        triton.testing.get_max_simd_tflops("float64", 1)
    with pytest.raises(ValueError, match="no operations on float64"):
        triton.testing.get_max_tensorcore_tflops("float64", 1)
    gpu((6, 1), 20)
    with pytest.raises(ValueError, match=r"no GPU of compute capability \(6, 1\)"):
        triton.testing.get_max_simd_tflops("float32", 1)


def test_limits_are_about_gpus():
    if _native.device().startswith("cuda"):
        pytest.skip("this machine has one")
    for function in (
        triton.testing.get_dram_gbps,
        lambda: triton.testing.get_max_simd_tflops("float32", 1),
        lambda: triton.testing.get_max_tensorcore_tflops("float16", 1),
    ):
        with pytest.raises(errors.LaunchStateError, match="is about a GPU, and kernels run on"):
            function()


def test_clocks_are_set_and_freed(monkeypatch, gpu):
    gpu((9, 0), 132, mem_bus_width=5120)
    commands = []

    def output(command, text=False):
        commands.append(command[3:])
        return "1980, 2619\n" if "--query-gpu=clocks.current.sm,clocks.current.memory" in command else ""

    monkeypatch.setattr("subprocess.check_output", output)
    with triton.testing.set_gpu_clock(1980, 2619) as (tflops, gbps):
        assert (tflops, gbps) == (pytest.approx(1070, rel=0.01), pytest.approx(3352, rel=0.01))
    assert commands[1] == ["--lock-gpu-clocks=1980,1980"]
    assert commands[-3:] == [["-pm", "0"], ["-rgc"], ["-rmc"]]
    with pytest.raises(errors.LaunchStateError, match="runs at 1980 and 2619 MHz instead of 1350"):
        triton.testing.set_gpu_clock().__enter__()
    assert _device_limits.nvsmi(["clocks.current.sm", "clocks.current.memory"]) == [1980, 2619]


def test_the_gpu_clock_asks_torch(monkeypatch):
    """Events around each run, the first recorded twice, the cache cleared before; one wait for all."""
    log = []

    class Event:
        count = 0

        def __init__(self, enable_timing):
            Event.count += 1
            self.number = Event.count

        def record(self):
            log.append(f"event {self.number}")

        def elapsed_time(self, end):
            return float(end.number - self.number)

    class Interface:
        pass

    Interface.Event = Event
    Interface.synchronize = staticmethod(lambda: log.append("wait"))

    class Driver:
        def get_empty_cache_for_benchmark(self):
            return "cache"

        def clear_cache(self, cache):
            log.append(f"clear {cache}")

    timer = _benchmark.GpuClock(Interface, Driver())
    times = timer.sample(
        lambda: log.append("run"), 2, lambda: log.append("before"), lambda error: log.append(error)
    )
    assert times == [1.0, 1.0]
    assert log == [
        *("before", "clear cache", "event 1", "event 1", "run", "event 2", None),
        *("before", "clear cache", "event 3", "event 3", "run", "event 4", None),
        "wait",
    ]
    del log[:]
    # An estimate has two events around all of its runs, each with all that is around it.
    assert timer.estimate(lambda: log.append("run"), 2, lambda: log.append("before")) == 0.5
    run = ("before", "clear cache", "run")
    assert log == ["event 5", *run, *run, "event 6", "wait"]
    del log[:]
    with pytest.raises(ZeroDivisionError):
        timer.sample(lambda: 1 / 0, 2, after=lambda error: log.append(type(error)))
    assert log[-1] is ZeroDivisionError


def test_all_names_are_there():
    for name in testing.__all__:
        assert callable(getattr(testing, name)), name
    assert Path(_perf_report.__file__).parent == Path(testing.__file__).parent
