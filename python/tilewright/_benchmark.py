"""Measures how long a function takes: on a GPU by events, elsewhere by the clock of the host.

On a GPU the L2 cache is overwritten before each run, so that it contains no data of the function, and the host waits
for the GPU only after the last run. On other devices a run has ended when the function returns, and caches are not
cleared, as in a program on the processor. On the simulator the clock of the host measures the time of the simulation.

The number of runs is computed from the wall time of a few runs, including the clearing of the cache, which takes most
of that time if the function is short.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

from tilewright import _native

_MIN_RUNS = 1
_MAX_RUNS = 100_000
"""The maximum number of runs, however fast a function is."""


def quantile(samples: Sequence[float], fraction: float) -> float:
    """A quantile, between two samples by linear interpolation."""
    ordered = sorted(samples)
    if not 0 <= fraction <= 1:
        raise ValueError(f"a quantile is between 0 and 1, not {fraction}")
    place = fraction * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    # Equal neighbors need no interpolation, which would make infinities NaN.
    if ordered[low] == ordered[high]:
        return ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(
    samples: Sequence[float], quantiles: Sequence[float] | None = None, return_mode: str = "mean"
) -> Any:
    """What ``do_bench`` returns of its samples."""
    if quantiles is not None:
        found = [quantile(samples, fraction) for fraction in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return list(samples)
    if return_mode == "min":
        return min(samples)
    if return_mode == "max":
        return max(samples)
    return sum(samples) / len(samples) if return_mode == "mean" else quantile(samples, 0.5)


def _check_mode(return_mode: str) -> None:
    if return_mode not in ("min", "max", "mean", "median", "all"):
        raise ValueError(f"return_mode is 'min', 'max', 'mean', 'median' or 'all', not {return_mode!r}")


def nothing() -> None:
    """The hook before a run that does nothing."""


def nothing_after(_error: Exception | None) -> None:
    """The hook after a run that does nothing."""


class HostClock:
    """Times functions that have done their work when they return."""

    estimating_runs = 1
    """How many runs a first estimate takes: one of a slow function is enough here."""

    def wait(self) -> None:
        """Returns when all work is done."""

    def estimate(self, fn: Callable[[], Any], count: int, before: Callable[[], Any]) -> float:
        """Returns the milliseconds that a run takes with all that is around it: the mean of ``count`` runs."""
        began = time.perf_counter()
        self.sample(fn, count, before)
        return (time.perf_counter() - began) * 1e3 / count

    def sample(
        self,
        fn: Callable[[], Any],
        count: int,
        before: Callable[[], Any] = nothing,
        after: Callable[[Exception | None], Any] = nothing_after,
    ) -> list[float]:
        """The milliseconds of each of ``count`` runs, without the time of ``before`` and ``after``."""
        times = []
        for _ in range(count):
            before()
            began = time.perf_counter_ns()
            try:
                fn()
            except Exception as error:
                after(error)
                raise
            times.append((time.perf_counter_ns() - began) * 1e-6)
            after(None)
        return times


class GpuClock(HostClock):
    """Times work on the current stream of torch's device, by events."""

    estimating_runs = 5
    """A single run would mostly show how long the host takes to launch it."""

    def __init__(self, interface: Any, driver: Any) -> None:
        self.interface = interface
        self.driver = driver

    @functools.cached_property
    def cache(self) -> Any:
        """The buffer whose writing clears the second-level cache, allocated when a run first needs it."""
        return self.driver.get_empty_cache_for_benchmark()

    def wait(self) -> None:
        """Returns when all work is done."""
        self.interface.synchronize()

    def estimate(self, fn: Callable[[], Any], count: int, before: Callable[[], Any]) -> float:
        """Returns the milliseconds that a run takes with all that is around it: the mean of ``count`` runs.

        Two events enclose all runs, so that the GPU's waiting for the host counts. The first writes to a new buffer
        count as well; a later run takes a little less, so that the whole keeps below its budget.
        """
        start, end = (self.interface.Event(enable_timing=True) for _ in range(2))
        cache = self.cache
        start.record()
        for _ in range(count):
            before()
            self.driver.clear_cache(cache)
            fn()
        end.record()
        self.wait()
        return float(start.elapsed_time(end)) / count

    def sample(
        self,
        fn: Callable[[], Any],
        count: int,
        before: Callable[[], Any] = nothing,
        after: Callable[[Exception | None], Any] = nothing_after,
    ) -> list[float]:
        """The milliseconds of each of ``count`` runs, without the time of ``before`` and ``after``."""
        event = self.interface.Event
        events = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
        for start, end in events:
            before()
            self.driver.clear_cache(self.cache)
            # A GPU stalls at intervals while it fetches submitted work. This first record absorbs a stall
            # that otherwise is between the two events of every second run: an addition of 5 µs took
            # 4.7 or 5.3 µs, depending on the number of submissions before it (H100, 2026-11-28).
            start.record()
            start.record()
            try:
                fn()
            except Exception as error:
                after(error)
                raise
            end.record()
            after(None)
        self.wait()
        return [start.elapsed_time(end) for start, end in events]


def clock() -> HostClock | GpuClock:
    """The clock for work on the active device."""
    from tilewright.runtime.driver import driver

    if not _native.device().startswith("cuda"):
        return HostClock()
    _need_torch()
    return GpuClock(driver.active.get_device_interface(), driver.active)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise _native.not_available(
            "timing on a GPU needs torch, whose events and memory it uses",
            "pip install torch, or give the autotuner a do_bench of your own",
        ) from error


@overload
def do_bench(
    fn: Callable[[], Any],
    warmup: float = ...,
    rep: float = ...,
    grad_to_none: Sequence[Any] | None = ...,
    quantiles: None = ...,
    return_mode: Literal["min", "max", "mean", "median"] = ...,
) -> float: ...
@overload
def do_bench(
    fn: Callable[[], Any],
    warmup: float = ...,
    rep: float = ...,
    grad_to_none: Sequence[Any] | None = ...,
    quantiles: Sequence[float] | None = ...,
    return_mode: str = ...,
) -> Any: ...
def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    *,
    percentiles: Sequence[float] | None = None,
    fast_flush: bool = True,
    record_clocks: bool = False,
    device_type: str | None = None,
) -> Any:
    """How many milliseconds a function takes.

    It is run for about ``warmup`` milliseconds first, and then measured for about ``rep``, once at least. The result
    is the mean of the runs, or what ``return_mode`` says: ``"min"``, ``"max"``, ``"median"`` or a list of ``"all"``;
    with ``quantiles=[0.5, 0.2, 0.8]`` these, as a list. Gradients of the tensors in ``grad_to_none`` are dropped before
    each run. Older releases of Triton have the arguments after ``return_mode``: ``percentiles`` are quantiles, and the
    others change no measurement here.
    """
    quantiles = percentiles if quantiles is None else quantiles
    _check_mode(return_mode)
    timer = clock()

    def before() -> None:
        for tensor in grad_to_none or ():
            tensor.grad = None

    before()
    fn()
    timer.wait()
    estimate = max(timer.estimate(fn, timer.estimating_runs, before), 1e-6)
    if timer.estimating_runs == 1 and estimate < rep / 20:
        # The time of a single run of a short function is not reliable.
        estimate = max(timer.estimate(fn, 5, before), 1e-6)
    for _ in range(min(int(warmup / estimate), _MAX_RUNS)):
        before()
        fn()
    runs = min(max(int(rep / estimate), _MIN_RUNS), _MAX_RUNS)
    return summary(timer.sample(fn, runs, before), quantiles, return_mode)


@overload
def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = ...,
    grad_to_none: Sequence[Any] | None = ...,
    quantiles: None = ...,
    return_mode: Literal["min", "max", "mean", "median"] = ...,
) -> float: ...
@overload
def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = ...,
    grad_to_none: Sequence[Any] | None = ...,
    quantiles: Sequence[float] | None = ...,
    return_mode: str = ...,
) -> Any: ...
def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """How many milliseconds a function takes when a CUDA graph launches it, which costs the processor nothing.

    The graph has as many runs as take about ``rep`` milliseconds when the host launches them, since capturing takes as
    long, and is launched ten times; a sample is the mean of a graph. Without a GPU there are no graphs, and this is
    ``do_bench``.
    """
    _check_mode(return_mode)
    if not _native.device().startswith("cuda"):
        return do_bench(fn, 0, rep, grad_to_none, quantiles, return_mode)
    _need_torch()
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        # The first call compiles and loads kernels, which a graph cannot capture.
        fn()
        for tensor in grad_to_none or ():
            tensor.detach_()
            tensor.requires_grad_(True)
            tensor.grad = None
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(5):
            fn()
        torch.cuda.synchronize()
        estimate = (time.perf_counter() - began) * 1e3 / 5
        runs = min(max(int(rep / max(estimate, 1e-6)), 1), _MAX_RUNS)
        times = _replay(torch, _graph(torch, fn, runs, grad_to_none), 10)
    return summary([elapsed / runs for elapsed in times], quantiles, return_mode)


@contextlib.contextmanager
def cuda_graph_without_gc(*args: Any, **kwargs: Any) -> Iterator[None]:
    """``torch.cuda.graph`` without the collection of garbage and the emptied cache that it begins with."""
    import gc

    import torch

    collect, empty_cache = gc.collect, torch.cuda.empty_cache
    gc.collect = lambda *_args: 0
    torch.cuda.empty_cache = lambda: None
    try:
        with torch.cuda.graph(*args, **kwargs):
            yield
    finally:
        gc.collect, torch.cuda.empty_cache = collect, empty_cache


def _graph(torch: Any, fn: Callable[[], Any], runs: int, grad_to_none: Sequence[Any] | None) -> Any:
    graph = torch.cuda.CUDAGraph()
    with cuda_graph_without_gc(graph):
        for _ in range(runs):
            for tensor in grad_to_none or ():
                tensor.grad = None
            fn()
    torch.cuda.synchronize()
    return graph


def _replay(torch: Any, graph: Any, count: int) -> list[float]:
    times = []
    for _ in range(count):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times
