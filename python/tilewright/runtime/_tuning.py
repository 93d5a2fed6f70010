"""Finds the fastest configuration of a kernel: compiles all together, then runs a race.

All configurations are compiled first, in parallel on a GPU. One that cannot be compiled or run is eliminated, with
its error. Then they race in rounds: in each round every configuration runs, more often from round to round. It is
eliminated as soon as the confidence interval of its median is above that of the fastest. A slow configuration is thus
eliminated after a few runs, and only close competitors are measured for the time ``rep``. The rounds distribute
changes of the clock rate, such as by the temperature, equally over all configurations.

A user's own ``do_bench``, the benchmarker of another driver, and CUDA graphs time one configuration after the other
instead. On the simulator the time is that of the simulation: it grows with the number of executed instructions, and
does not depend on the latencies of a GPU.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import _benchmark, _native
from tilewright.errors import CompilationError, OutOfResources, PTXASError, TritonError
from tilewright.runtime._config import Config
from tilewright.runtime._tuning_report import Progress

QUANTILES = (0.5, 0.2, 0.8)

FAILED = [float("inf")] * 3

_REP = 100.0
"""The maximum number of milliseconds that a configuration is measured, unless ``rep`` says otherwise."""

_HOPELESS = 3.0
"""A configuration has no second run if its first takes more than this many times as long as the fastest first run."""

_CLOSE_ENOUGH = 0.01
"""The relative width of a confidence interval below which more runs do not change a choice that matters."""


class Outcome:
    """The result of a tuning."""

    def __init__(self, known: dict[Config, list[float]]) -> None:
        self.timings: dict[Config, list[float]] = dict(known)
        self.failures: dict[Config, Exception] = {}
        self.not_compiled: set[Config] = set()
        """The failures that occur in each attempt."""


class Trial:
    """A launch that can be made with each configuration."""

    def __init__(
        self, tuner: Any, nargs: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.tuner = tuner
        self.nargs = nargs
        self.args = args
        self.kwargs = kwargs
        self.programs: dict[int, Any] = {}

    def arguments(self, config: Config) -> dict[str, Any]:
        """The keyword arguments of the launch with a configuration."""
        return {**self.kwargs, **config.all_kwargs()}

    def prepare(self, config: Config) -> None:
        """Runs the hooks before a launch, which are not part of its time."""
        every = {**self.nargs, **self.arguments(config)}
        if config.pre_hook is not None:
            config.pre_hook(every)
        self.tuner.pre_hook(every)

    def launch(self, config: Config) -> None:
        """The launch itself."""
        self.launcher(config)()

    def launcher(self, config: Config) -> Callable[[], Any]:
        """The function that launches with a configuration, for a clock: its arguments are put together once."""
        return functools.partial(self.tuner.fn.run, *self.args, **self.arguments(config))

    def finish(self, config: Config, exception: Exception | None = None) -> None:
        """Runs the hooks after a launch."""
        self.tuner.post_hook({**self.nargs, **self.arguments(config)}, exception=exception)

    def hooks(self, config: Config) -> tuple[Callable[[], Any], Callable[[Exception | None], Any]]:
        """The hooks before and after a launch, for a clock; functions that do nothing if there are none."""
        if config.pre_hook is None and not self.tuner._has_hooks():
            return _benchmark.nothing, _benchmark.nothing_after
        return lambda: self.prepare(config), lambda error: self.finish(config, error)

    def call(self, config: Config) -> None:
        """Launches with the hooks before and after."""
        self.prepare(config)
        try:
            self.launch(config)
        except Exception as error:
            self.finish(config, error)
            raise
        self.finish(config)

    def compile(self, configs: Sequence[Config]) -> tuple[dict[Config, Any], dict[Config, Exception]]:
        """The compiled kernels, and the errors of those that do not compile.

        The hook of a configuration may change the arguments that all share, so it is not compiled while others are.
        """
        compiled: dict[Config, Any] = {}
        failures: dict[Config, Exception] = {}

        def keep(config: Config, make: Callable[[], Any]) -> None:
            try:
                compiled[config] = make()
            except Exception as error:
                failures[config] = error

        together = [config for config in configs if config.pre_hook is None]
        if _native.device() == "cpu" or len(together) < 2:
            # Compiling a kernel for the CPU takes less time than starting a thread.
            together = []
        if together:
            import os
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(len(together), os.cpu_count() or 1)) as pool:
                tasks = [(config, pool.submit(self._compiler(config))) for config in together]
                for config, task in tasks:
                    if isinstance(error := task.exception(), TritonError):
                        # The frames are those of the pool.
                        failures[config] = error.with_traceback(None)
                    else:
                        keep(config, task.result)
        for config in configs:
            if config not in compiled and config not in failures:
                if config.pre_hook is not None:
                    config.pre_hook({**self.nargs, **self.arguments(config)})
                keep(config, self._compiler(config))
        return compiled, failures

    def identity(self, config: Config, kernel: Any) -> Any:
        """A key that two configurations share only if their launches do the same; nothing if that is not known."""
        if not isinstance(kernel, _native.CompiledKernel) or "cpu" not in kernel._stages():
            return None
        fn, kwargs = self._resolved(config)
        grid = kwargs.get("grid")
        if callable(grid):
            try:
                grid = grid({**dict(zip(fn.arg_names, self.args, strict=False)), **kwargs})
            except Exception:
                # The grid function needs arguments that only the launch has.
                return None
        # Kernels with the same code number share their code. Kernels with different numbers may
        # have equal code.
        number = kernel._code_number
        text = self.programs.get(number)
        if text is None:
            text = self.programs[number] = kernel._stage("cpu")
        return text, str(grid)

    def _resolved(self, config: Config) -> tuple[Any, dict[str, Any]]:
        """Returns the kernel beneath the heuristics, and the arguments with those that heuristics compute."""
        from tilewright.runtime.autotuner import _Wrapper

        fn, kwargs = self.tuner.fn, self.arguments(config)
        return fn._resolved(self.args, kwargs) if isinstance(fn, _Wrapper) else (fn, kwargs)

    def _compiler(self, config: Config) -> Callable[[], Any]:
        """The function that compiles a configuration, on any thread; the heuristics are computed on this one."""
        try:
            fn, kwargs = self._resolved(config)
        except Exception as raised:
            error = raised

            def fail() -> None:
                raise error

            return fail

        kwargs.pop("warmup", None)

        def make() -> Any:
            # A lock has the choice only, not the other configurations.
            _native.lock_suspend()
            try:
                kernel = fn.warmup(*self.args, **kwargs)
            finally:
                _native.lock_resume()
            if hasattr(kernel, "_init_handles"):
                # This also assembles the cubin, which takes longer than all earlier stages.
                kernel._init_handles()
            return kernel

        return make


def tune(trial: Trial, configs: Sequence[Config], known: dict[Config, list[float]]) -> Outcome:
    """Times configurations, except those whose times are known."""
    outcome = Outcome(known)
    if not configs:
        return outcome
    tuner = trial.tuner
    with Progress(tuner, len(configs)) as progress:
        if len(configs) + len(known) == 1:
            # There is no choice: the single configuration is not measured.
            outcome.timings[configs[0]] = [float("nan")] * 3
            return outcome
        progress.say("compiles")
        compiled, outcome.failures = trial.compile(configs)
        outcome.not_compiled.update(outcome.failures)
        runnable = [config for config in configs if config not in outcome.failures]
        if _has_own_benchmarker(tuner):
            _time_one_by_one(trial, runnable, outcome, progress)
        else:
            twins = _twins(trial, runnable, compiled)
            _race(trial, list(twins), outcome, progress)
            for config, others in twins.items():
                for twin in others:
                    outcome.timings[twin] = outcome.timings.get(config, FAILED)
                    if config in outcome.failures:
                        outcome.failures[twin] = outcome.failures[config]
    for config in outcome.failures:
        outcome.timings[config] = list(FAILED)
    return outcome


def measure(trial: Trial, config: Config) -> list[float]:
    """Returns the median and the percentiles of one configuration; infinite if it does not compile or fit."""
    outcome = Outcome({})
    with Progress(trial.tuner, 1) as progress:
        _, outcome.failures = trial.compile([config])
        if not outcome.failures:
            if _has_own_benchmarker(trial.tuner):
                _time_one_by_one(trial, [config], outcome, progress)
            else:
                # Without competitors, a configuration runs for its whole time.
                _race(trial, [config], outcome, progress)
    for error in outcome.failures.values():
        if not isinstance(error, (CompilationError, OutOfResources, PTXASError)):
            raise error
    return outcome.timings.get(config, list(FAILED))


def _twins(
    trial: Trial, configs: Sequence[Config], compiled: dict[Config, Any]
) -> dict[Config, list[Config]]:
    """Returns the configurations to measure, each with its duplicates: on the processor, which has no warps, those with
    the same program and grid."""
    twins: dict[Config, list[Config]] = {}
    first: dict[Any, Config] = {}
    for config in configs:
        identity = None
        if config.pre_hook is None:
            identity = trial.identity(config, compiled[config])
        if identity is not None and identity in first:
            twins[first[identity]].append(config)
        else:
            twins[config] = []
            if identity is not None:
                first[identity] = config
    return twins


def benchmarker(tuner: Any) -> Callable[..., Any]:
    """The function that times others for an autotuner: ``bench(fn, quantiles=...)``."""
    from tilewright.runtime import autotuner

    if tuner._do_bench is not None:
        bench: Callable[..., Any] = tuner._do_bench
        return bench
    if tuner.use_cuda_graph:
        rep = _REP if tuner.num_reps is None else tuner.num_reps
        return functools.partial(_benchmark.do_bench_cudagraph, rep=rep)
    options = {"warmup": tuner.num_warmups, "rep": tuner.num_reps}
    given = {name: value for name, value in options.items() if value is not None}
    return functools.partial(autotuner.driver.active.get_benchmarker(), **given)


def _has_own_benchmarker(tuner: Any) -> bool:
    """Returns whether the user's function, graphs or another driver is to time instead of the race."""
    from tilewright.runtime import autotuner

    if tuner._do_bench is not None or tuner.use_cuda_graph:
        return True
    return autotuner.driver.active.get_benchmarker() is not _benchmark.do_bench


def _time_one_by_one(trial: Trial, configs: Sequence[Config], outcome: Outcome, progress: Progress) -> None:
    bench = benchmarker(trial.tuner)
    for config in configs:
        progress.step(config)
        try:
            found = bench(lambda config=config: trial.call(config), quantiles=QUANTILES)
        except Exception as error:
            outcome.failures[config] = error
            continue
        listed = list(found) if isinstance(found, (list, tuple)) else [found]
        outcome.timings[config] = [float(value) for value in (listed + listed[-1:] * 2)[:3]]
        progress.best(config, outcome.timings[config][0])


class Contender:
    """A configuration in the race."""

    def __init__(self, config: Config, launch: Callable[[], Any]) -> None:
        self.config = config
        self.launch = launch
        self.samples: list[float] = []
        self.spent = 0.0
        self.is_in = True

    def affordable(self, count: int, budget: float) -> int:
        """Returns as many of ``count`` runs as fit its wall time, by the mean of earlier runs; at least one."""
        rest = budget - self.spent
        if not self.samples or count * self.spent <= rest * len(self.samples):
            return count
        return max(int(rest * len(self.samples) / self.spent), 1)

    def interval(self) -> tuple[float, float]:
        """A confidence interval of the median."""
        return interval(self.samples)

    def median(self) -> float:
        """Returns the estimate of the median."""
        return _benchmark.quantile(self.samples, 0.5)


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """A confidence interval of the median of a distribution, of 99 % from eight samples on.

    It depends only on ranks, because times are not normally distributed. Fewer samples have no ranks that are far
    enough apart; their range is widened by its own length, or by a twentieth of the median.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if count < 8:
        middle = _benchmark.quantile(ordered, 0.5)
        margin = max(ordered[-1] - ordered[0], middle * (0.5 if count == 1 else 0.05))
        return ordered[0] - margin, ordered[-1] + margin
    rank = max(int((count - 2.576 * count**0.5) / 2), 0)
    return ordered[rank], ordered[count - 1 - rank]


def _race(trial: Trial, configs: Sequence[Config], outcome: Outcome, progress: Progress) -> None:
    is_on_host = str(trial.tuner._place) == "cpu"
    clock = _benchmark.HostClock() if is_on_host else _benchmark.clock()
    budget = _REP if trial.tuner.num_reps is None else float(trial.tuner.num_reps)
    contenders = [Contender(config, trial.launcher(config)) for config in configs]

    def sample(contender: Contender, count: int) -> list[float]:
        config = contender.config
        began = time.perf_counter()
        try:
            return clock.sample(contender.launch, count, *trial.hooks(config))
        except Exception as error:
            outcome.failures[config] = error
            contender.is_in = False
            return []
        finally:
            contender.spent += (time.perf_counter() - began) * 1e3

    # The caches are cold in the first run of each configuration, so it eliminates only those that
    # are far slower.
    first: dict[Contender, float] = {}
    for contender in contenders:
        progress.step(contender.config)
        if times := sample(contender, 1):
            first[contender] = times[0]
    least = min(first.values(), default=0.0)
    for contender, elapsed in first.items():
        if elapsed > max(_HOPELESS * least, 1.0) and contender is contenders[0]:
            # The first run of all also started the threads and raised the clock rate of the device:
            # repeat it.
            elapsed = min([elapsed, *sample(contender, 1)])
        contender.spent = 0.0
        if elapsed > max(_HOPELESS * least, 1.0) and contender.config not in outcome.failures:
            contender.is_in = False
            contender.samples = [elapsed]
    bound = min((timing[2] for timing in outcome.timings.values()), default=float("inf"))
    standing = [contender for contender in contenders if contender.is_in]
    # The machine may delay a single run of a short kernel.
    count = 5 if least < 1.0 else 3 if least < 10.0 else 1
    while sampled := [contender for contender in standing if _needs_more(contender, budget)]:
        for contender in sampled:
            contender.samples += sample(contender, contender.affordable(count, budget))
        standing = [contender for contender in standing if contender.is_in]
        if not standing:
            break
        best = min(standing, key=Contender.median)
        progress.best(best.config, best.median())
        highest = min(best.interval()[1], bound)
        standing = [c for c in standing if c.interval()[0] <= highest]
        if standing == [best] and bound == float("inf") and len(contenders) > 1:
            break
        count *= 2
    for contender in contenders:
        if contender.config not in outcome.failures:
            ordered = sorted(contender.samples)
            outcome.timings[contender.config] = [_benchmark.quantile(ordered, q) for q in QUANTILES]


def _needs_more(contender: Contender, budget: float) -> bool:
    if not contender.samples:
        return True
    low, high = contender.interval()
    is_precise = len(contender.samples) >= 8 and high - low <= _CLOSE_ENOUGH * contender.median()
    return not is_precise and contender.spent < budget
