"""``triton.autotune``, ``triton.heuristics``: the values of compile-time arguments that the program does not choose.

Both wrap a kernel, or each other, and launch it with more keyword arguments. ``_tuning.py`` does a tuning, from the
first launch for a key to the choice; ``_tuning_cache.py`` keeps its results.
"""

from __future__ import annotations

import os
import sys
from _weakrefset import WeakSet

from tilewright import _native
from tilewright.errors import AutotunerError as AutotunerError
from tilewright.errors import (
    LaunchStateError,
    LaunchTypeError,
    LaunchValueError,
    TritonError,
    hide_own_frames,
)
from tilewright.errors import OutOfResources as OutOfResources
from tilewright.errors import PTXASError as PTXASError
from tilewright.runtime._config import Config as Config
from tilewright.runtime.jit import JITFunction, KernelInterface, MockTensor, P, R

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from tilewright.runtime._kernel_types import AutotuneDecorator, HeuristicsDecorator, Launcher

    driver: Any
    get_cache_manager: Any
    knobs: Any


def __getattr__(name: str) -> Any:
    # These modules are imported at their first use. A tuning reads the attributes of this module,
    # so that a program may
    # replace them.
    if name == "driver":
        from tilewright.runtime.driver import driver

        return driver
    if name == "knobs":
        from tilewright import knobs

        return knobs
    if name in ("get_cache_manager", "triton_key"):
        from tilewright.runtime import cache

        return getattr(cache, name)
    if name == "get_cache_invalidating_env_vars":
        from tilewright._C import libtriton

        return libtriton.get_cache_invalidating_env_vars
    if name in ("builtins", "hashlib", "inspect", "json", "time"):
        import importlib

        return importlib.import_module(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


_wrappers: WeakSet[_Wrapper[..., Any]] = WeakSet()


class _WrapperType(type):
    """The metaclass of the two classes below: a program may replace ``run``, which then holds for existing wrappers."""

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "run":
            for wrapper in list(_wrappers):
                if cls in type(wrapper).__mro__:
                    wrapper._choose_kind()


class _Wrapper(_native.Wrapper, KernelInterface[P, R], metaclass=_WrapperType):
    """The common part of an autotuner and heuristics: a kernel beneath, and the identity of its function.

    The base class launches if arguments only have to be added; else it calls ``run``.
    """

    fn: Any
    arg_names: list[str]
    __name__: str
    __qualname__: str

    if TYPE_CHECKING:
        # The base class in Rust defines this method.
        def __getitem__(self, grid: Any) -> Launcher[P]: ...

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("run", "__dict__"):
            self._set_kind("own")
        super().__setattr__(name, value)
        self._forget_settings()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._forget_settings()

    def _choose_kind(self) -> None:
        """Makes the base class launch, unless ``run`` is the program's."""
        is_ours = "run" not in vars(self)
        self._set_kind(_OWN_RUNS.get(type(self).run, "own") if is_ours else "own")

    def _wrap(self, fn: Any, arg_names: list[str]) -> None:
        _wrappers.add(self)
        self._choose_kind()
        self.fn = fn
        self.arg_names = arg_names
        base = fn
        while not hasattr(base, "__code__") and hasattr(base, "fn"):
            base = base.fn
        self.base_fn = base
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(self, name, getattr(base, name, None))

    def _made_kernel(self, options: dict[str, Any]) -> _Wrapper[..., Any]:
        """Makes the function beneath a kernel, if it is none: ``@triton.jit`` is above."""
        if isinstance(self.fn, _NoKernel):
            self.fn = JITFunction(self.fn.fn, **options)
        elif isinstance(self.fn, _Wrapper):
            self.fn._made_kernel(options)
        return self

    def _is_to_be_interpreted(self) -> bool:
        """Returns whether Python runs the body of the kernel beneath."""
        beneath = self.fn
        while isinstance(beneath, _Wrapper):
            beneath = beneath.fn
        return isinstance(beneath, JITFunction) and beneath._is_to_be_interpreted()

    def _resolved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The kernel beneath all wrappers that only add arguments, and the arguments that they make of these."""
        return self, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises the error about a missing grid, as the kernel beneath does."""
        return self.fn(*args, **kwargs)

    def __reduce__(self) -> str:
        """Copies and pickles like a function: as itself, and by its name."""
        return str(self.__qualname__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__module__}:{self.__qualname__})"


class _NoKernel(KernelInterface[..., object]):
    """A function that is tuned before it is a kernel; ``@triton.jit`` above makes it one."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        import inspect

        self.fn = fn
        self.arg_names = list(inspect.signature(fn).parameters)

    def run(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raises an error: the function is not a kernel."""
        raise LaunchTypeError(
            f"'{self.fn.__name__}' is tuned, and is no kernel: write @triton.jit on the line above its def"
        )

    __call__ = run


def _kernel_of(fn: Any, decorator: str) -> Any:
    """The object that a decorator wraps: a kernel, another wrapper, or a function that is to become a kernel."""
    if hasattr(fn, "run") and hasattr(fn, "arg_names"):
        return fn
    if hasattr(fn, "__code__"):
        return _NoKernel(fn)
    raise TypeError(f"@triton.{decorator} decorates a kernel, not a {type(fn).__name__}")


def _with_stand_ins(
    wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replaces torch dtypes among the arguments of a warm-up by tensors of them; compile-time values stay unchanged."""
    kernel = wrapper.fn
    while not hasattr(kernel, "params") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    values = {param.name for param in getattr(kernel, "params", ()) if param.is_constexpr}
    names = [*wrapper.arg_names, *[None] * len(args)]
    positional = [
        arg if name in values else MockTensor.wrap_dtype(arg) for name, arg in zip(names, args, strict=False)
    ]
    named = {name: arg if name in values else MockTensor.wrap_dtype(arg) for name, arg in kwargs.items()}
    return tuple(positional), named


class Autotuner(_Wrapper[P, R]):
    """A kernel with several configurations: the first launch for a key times them, later ones take the fastest."""

    def __init__(
        self,
        fn: Any,
        arg_names: list[str],
        configs: list[Config],
        key: list[str] | str | None,
        reset_to_zero: list[str] | None,
        restore_value: list[str] | None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: dict[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        import threading

        self._wrap(fn, arg_names)
        self.configs = _checked_configs(configs)
        self.keys = _names(key)
        self.cache: dict[Any, Config] = {}
        """The choice for each key, on the device of the latest launch."""
        self.configs_timings: dict[Config, list[float]] = {}
        """The median and the 20th and 80th percentile of each configuration in the latest tuning, in ms."""
        self.best_config: Config | None = None
        self.bench_time: float | None = None
        self.nargs: dict[str, Any] | None = None
        self.cache_results = cache_results

        self.reset_to_zero = _names(reset_to_zero)
        self.restore_value = _names(restore_value)
        _check_names(
            self, {"key": self.keys, "reset_to_zero": self.reset_to_zero, "restore_value": self.restore_value}
        )
        self.restore_copies: dict[str, Any] = {}
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        self.pre_hook = self._save if pre_hook is None else pre_hook
        self.post_hook = self._restore if post_hook is None else post_hook

        prune = prune_configs_by or {}
        self.perf_model = prune.get("perf_model")
        # torch passes the value under the name of this attribute.
        self.configs_top_k = prune.get("top_k", prune.get("configs_top_k", 1.0))
        self.early_config_prune = prune.get("early_config_prune")

        self.num_warmups = warmup
        self.num_reps = rep
        self.use_cuda_graph = use_cuda_graph
        self._do_bench = do_bench

        self._known_names = frozenset(arg_names)
        self._lock = threading.RLock()
        self._place: Any = None
        self._caches: dict[Any, dict[Any, Config]] = {}
        if not all(config.kwargs.keys() <= self._known_names for config in self.configs):
            from tilewright.runtime._config_errors import has_unknown_names

            if has_unknown_names(self.configs, arg_names):
                # A launch in Rust would report the kernel, not the configuration.
                self._set_kind("own")
        if _has_tuning_files():
            self._look_into_files()

    def _look_into_files(self) -> None:
        """Launches a single configuration in Python, because a launch in Rust makes no choice."""
        if len(self.configs) == 1:
            self._set_kind("own")

    # -- hooks of the arguments that a kernel changes --

    def _save(self, kwargs: dict[str, Any], reset_only: bool = False) -> None:
        """Zeroes the tensors of ``reset_to_zero`` before a launch, and copies those that the launch would change."""
        for name in self.reset_to_zero:
            if self._array(kwargs, name, "reset_to_zero") is not None:
                _fill_with_zeros(kwargs[name])
        if not reset_only:
            names = [n for n in self.restore_value if self._array(kwargs, n, "restore_value") is not None]
            self.restore_copies = {name: _copy_of(kwargs[name]) for name in names}

    def _restore(self, kwargs: dict[str, Any], exception: BaseException | None = None) -> None:
        """Restores the copied tensors after a launch."""
        copies, self.restore_copies = self.restore_copies, {}
        for name, copy in copies.items():
            _assign(kwargs[name], copy)

    def _has_hooks(self) -> bool:
        """Returns whether a launch has hooks."""
        is_own = self.pre_hook != self._save or self.post_hook != self._restore
        return is_own or bool(self.reset_to_zero or self.restore_value)

    def _array(self, kwargs: dict[str, Any], name: str, parameter: str) -> Any:
        if name not in kwargs:
            raise LaunchValueError(
                f"{parameter} of the autotuner of '{self.__name__}' names {name!r}, which the launch does not pass"
            )
        given = kwargs[name]
        if isinstance(given, (int, float, str, tuple, list)):
            raise LaunchValueError(
                f"{parameter} of the autotuner of '{self.__name__}' names {name!r}, which is {given!r} in this launch: "
                "it lists the tensors that the kernel changes"
            )
        return given

    # -- launches --

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launches with the fastest configuration for arguments like these; tunes first if needed."""
        if kwargs.get("warmup"):
            compiled = self.warmup(*args, **{k: v for k, v in kwargs.items() if k != "warmup"})
            return compiled[0] if compiled else None
        try:
            result = self.fn.run(*args, **self._chosen(args, kwargs))
        except TritonError as error:
            named = self._named(error)
            hide_own_frames(named)
            raise named from None
        self.nargs = None
        return result

    def _named(self, error: TritonError) -> TritonError:
        """Returns the error of a launch with the latest configuration, which it names if a name in it is wrong."""
        if self.best_config is None or error.code != "TW0102":
            return error
        from tilewright.runtime._config_errors import named_config

        return named_config(error, self.best_config)

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a launch with those of its configuration; tunes if needed."""
        self.nargs = nargs = dict(zip(self.arg_names, args, strict=False))
        is_chosen = len(self.configs) == 1 and not _has_tuning_files()
        config = self.configs[0] if is_chosen else self._choice(nargs, args, kwargs)
        self.best_config = config
        options = config.all_kwargs()
        merged = {**kwargs, **options}
        if len(merged) != len(kwargs) + len(options):
            raise self._conflict(kwargs.keys() & options.keys(), kwargs)
        if config.pre_hook is not None:
            config.pre_hook({**nargs, **merged})
        return merged

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        """Compiles every configuration that pruning leaves; dtypes may replace tensors."""
        from tilewright.runtime._tuning import Trial

        args, kwargs = _with_stand_ins(self, args, kwargs)
        kwargs = {"grid": (1,), **kwargs}
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        trial = Trial(self, self.nargs, args, kwargs)
        configs = self.prune_configs(kwargs)
        compiled, failures = trial.compile(configs)
        self.nargs = None
        if failures and not compiled:
            from tilewright.runtime._config_errors import named_config

            config, error = next(iter(failures.items()))
            raise named_config(error, config)
        return [compiled[config] for config in configs if config in compiled]

    def _choice(self, nargs: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        """The choice for the values of the key's arguments and the dtypes of all; tunes if there is none."""
        known = self._known_names
        named = nargs.copy()
        for name in kwargs:
            if name in known:
                named[name] = kwargs[name]
        values = [named[name] for name in self.keys if name in named]
        place = None
        for value in named.values():
            dtype = getattr(value, "dtype", None)
            if dtype is not None:
                values.append(_name_of(dtype))
                if place is None:
                    place = getattr(value, "device", None)
        if place != self._place:
            self._move_to(place)
        key = tuple(values)
        try:
            found = self.cache.get(key)
        except TypeError:
            # The value is unhashable, such as a list.
            key = tuple(map(repr, values))
            found = self.cache.get(key)
        if found is None:
            with self._lock:
                found = self.cache.get(key)
                if found is None and _has_tuning_files():
                    found = self._from_files(key, named, args, kwargs)
                if found is None and _native.lock_is_active():
                    found = self._locked(key, kwargs)
                if found is None:
                    found = self._tune(key, nargs, args, kwargs)
        return found

    def _from_files(
        self, key: tuple[Any, ...], named: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Config | None:
        """The choice of the tuning files of this process; nothing if they have none."""
        from tilewright.runtime import _locked_tuning, _tuning, _tuning_files

        found = _tuning_files.choose(self, key, named, kwargs)
        if found is None and len(self.configs) == 1:
            found = self.configs[0]
        elif found in self.configs and _native.lock_is_recording():
            # A lock has choices among the configurations of the tuner only.
            trial = _tuning.Trial(self, self.nargs or {}, args, kwargs)
            _locked_tuning.record_choice(self, key, trial, found)
        if found is not None:
            self.cache[key] = found
        return found

    def _locked(self, key: tuple[Any, ...], kwargs: dict[str, Any]) -> Config | None:
        """The choice in the lock of this process; nothing if the policy permits that it is tuned."""
        from tilewright.runtime import _locked_tuning

        found = _locked_tuning.locked_config(self, key, kwargs)
        if found is not None:
            self.cache[key] = found
        return found

    def _move_to(self, place: Any) -> None:
        """Switches to the choices for the device of the first tensor: a fast one may be slow on another device."""
        with self._lock:
            if self._place is not None:
                self._caches[self._place] = self.cache
                self.cache = self._caches.get(place, {})
            self._place = place

    # -- tuning --

    def _tune(
        self, key: tuple[Any, ...], nargs: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Config:
        import time

        from tilewright.runtime import _locked_tuning, _tuning, _tuning_cache, _tuning_report

        given = {**nargs, **kwargs}
        if conflicts := given.keys() & {name for config in self.configs for name in config.all_kwargs()}:
            raise self._conflict(conflicts, given)
        if _is_capturing():
            raise LaunchStateError(
                f"'{self.__name__}' is to be tuned for key {key}, and a CUDA graph is being captured: launch it once "
                "with such arguments before the capture"
            )
        trial = _tuning.Trial(self, nargs, args, kwargs)
        configs = self.prune_configs(kwargs)
        if self._is_to_be_interpreted():
            # The speed of a body that Python runs does not depend on the configuration in a useful
            # way.
            self.cache[key] = configs[0]
            return configs[0]
        began = time.perf_counter()
        known = _tuning_cache.Results.of(self, key, configs)
        fresh = [config for config in configs if known is None or config not in known.timings]
        _native.lock_suspend()
        try:
            outcome = _tuning.tune(trial, fresh, {} if known is None else known.timings)
        finally:
            _native.lock_resume()
        self.bench_time = time.perf_counter() - began
        self.configs_timings = {config: outcome.timings[config] for config in configs}
        if known is not None and fresh:
            known.store(outcome)
        _tuning_report.report_failures(self, outcome)
        best = min(configs, key=lambda config: self.configs_timings[config][0])
        self.cache[key] = best
        if _native.lock_is_recording():
            _locked_tuning.record_choice(self, key, trial, best)
        if folder := os.environ.get("TILEWRIGHT_TUNING_RECORD"):
            from tilewright.runtime import _tuning_files

            _tuning_files.record(folder, self, {**nargs, **kwargs}, best)
        self.pre_hook({**nargs, **kwargs, **best.all_kwargs()}, reset_only=True)
        _tuning_report.report_choice(self, key, best, is_new=bool(fresh))
        return best

    def check_disk_cache(self, tuning_key: Any, configs: list[Config], bench_fn: Callable[[], Any]) -> bool:
        """Takes the choice from earlier timings on disk; if some are missing, calls ``bench_fn`` and returns False."""
        from tilewright.runtime import _tuning_cache

        known = _tuning_cache.Results.of(self, tuning_key, configs, is_requested=True)
        if known is None or any(config not in known.timings for config in configs):
            bench_fn()
            return False
        self.configs_timings = {config: known.timings[config] for config in configs}
        self.cache[tuning_key] = min(configs, key=lambda config: self.configs_timings[config][0])
        return True

    @property
    def has_own_benchmark(self) -> bool:
        """Returns whether the program passed a timing function."""
        return self._do_bench is not None

    @property
    def do_bench(self) -> Callable[..., Any]:
        """The function that times one that launches: ``do_bench(fn, quantiles=...)``."""
        from tilewright.runtime import _tuning

        return _tuning.benchmarker(self)

    def _bench(self, *args: Any, config: Config, **meta: Any) -> list[float]:
        """The median and the 20th and 80th percentile of one configuration, in ms; infinite if it does not run."""
        from tilewright.runtime import _tuning

        nargs = dict(zip(self.arg_names, args, strict=False))
        if conflicts := meta.keys() & config.kwargs.keys():
            raise self._conflict(conflicts, meta)
        return _tuning.measure(_tuning.Trial(self, nargs, args, meta), config)

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
        """Returns the configurations to measure, by ``prune_configs_by``."""
        nargs = self.nargs or {}
        configs = list(self.configs)
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, nargs, **kwargs))
            if not configs:
                raise AutotunerError(
                    f"No valid autotuner configs after pruning: early_config_prune of '{self.__name__}' returned none "
                    f"of {len(self.configs)}; it must return at least one"
                )
        if self.perf_model is not None:
            top_k = self.configs_top_k
            if isinstance(top_k, float) and top_k <= 1.0:
                top_k = max(int(len(configs) * top_k), 1)
            elif not isinstance(top_k, int):
                raise TypeError(
                    f"top_k of prune_configs_by is a fraction of at most 1.0 or a number of configs, not {top_k!r}"
                )
            if len(configs) > top_k:
                model = self.perf_model
                estimates = [model(**nargs, **kwargs, **config.all_kwargs()) for config in configs]
                order = sorted(range(len(configs)), key=lambda number: estimates[number])
                configs = [configs[number] for number in order[:top_k]]
        return configs

    def timings_table(self) -> str:
        """The timings of the latest tuning, fastest first, as text."""
        from tilewright.runtime import _tuning_report

        return _tuning_report.table(self)

    def _conflict(self, names: set[str], given: dict[str, Any]) -> TritonError:
        from tilewright.runtime._tuner_errors import conflict

        return conflict(self, names, given)


class Heuristics(_Wrapper[P, R]):
    """A kernel some of whose compile-time arguments are computed from the others at each launch."""

    def __init__(
        self, fn: Any, arg_names: list[str], values: dict[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        self._wrap(fn, arg_names)
        self.values = values

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launches with the computed arguments."""
        return self.fn.run(*args, **self._computed(args, kwargs))

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        """Compiles without running; dtypes may replace tensors."""
        args, kwargs = _with_stand_ins(self, args, kwargs)
        return self.fn.warmup(*args, **self._computed(args, kwargs))

    def _computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        for name, function in self.values.items():
            # Each function gets the results of the earlier ones.
            named[name] = kwargs[name] = function(named)
        return kwargs

    def _resolved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        kwargs = self._computed(args, dict(kwargs))
        return self.fn._resolved(args, kwargs) if isinstance(self.fn, _Wrapper) else (self.fn, kwargs)


def _has_tuning_files() -> bool:
    """Returns whether the environment or the program has named tuning files."""
    module = sys.modules.get("tilewright.runtime._tuning_files")
    return bool(os.environ.get("TILEWRIGHT_TUNING") or (module is not None and module.loaded))


def _names(names: list[str] | str | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _check_names(tuner: Autotuner[..., Any], given: dict[str, list[str]]) -> None:
    """Rejects names that no parameter has: such a key would never change, and such a tensor never be reset."""
    for argument, names in given.items():
        for name in names:
            if name not in tuner.arg_names:
                from tilewright.runtime._tuner_errors import unknown_parameter

                raise unknown_parameter(tuner, argument, name)


def _checked_configs(configs: Any) -> list[Config]:
    if isinstance(configs, Config) or not hasattr(configs or (), "__iter__"):
        raise TypeError(
            f"configs of @triton.autotune is a list of triton.Config, found a {type(configs).__name__}: write "
            "configs=[triton.Config(...), ...]"
        )
    found = list(configs or ()) or [Config({})]
    for config in found:
        if not isinstance(config, Config):
            raise TypeError(
                f"configs of @triton.autotune is a list of triton.Config, and has a {type(config).__name__}: write "
                "triton.Config({'BLOCK': 128}, num_warps=4)"
            )
    return found


_dtype_names: dict[Any, str] = {}


def _name_of(dtype: Any) -> str:
    """Caches ``str(dtype)``, which torch makes anew each time."""
    name = _dtype_names.get(dtype)
    if name is None:
        name = _dtype_names[dtype] = str(dtype)
    return name


def _is_capturing() -> bool:
    if not _native.device().startswith("cuda"):
        return False
    from tilewright.runtime.driver import driver

    return _native.is_stream_capturing(driver.active.get_current_stream())


def _fill_with_zeros(array: Any) -> None:
    if hasattr(array, "zero_"):
        array.zero_()
    else:
        array[...] = 0


def _copy_of(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()


def _assign(array: Any, values: Any) -> None:
    if hasattr(array, "copy_"):
        array.copy_(values)
    else:
        array[...] = values


def autotune(
    configs: list[Config],
    key: list[str] | str | None,
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: list[str] | None = None,
    restore_value: list[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> AutotuneDecorator:
    """Makes a kernel choose among configurations: ``@triton.autotune(configs=[triton.Config(...), ...], key=["n"])``.

    The first launch for each value of the arguments in ``key``, and for each combination of dtypes, runs the
    configurations to time them, so a kernel that changes its inputs needs ``reset_to_zero`` (zeroed before each run)
    or ``restore_value`` (brought back after each run), or a ``pre_hook(kwargs, reset_only=False)`` and
    ``post_hook(kwargs, exception)`` of its own.

    ``prune_configs_by`` has ``early_config_prune(configs, named_args, **kwargs)``, which returns those to time, and
    ``perf_model(**all_arguments)``, whose estimates leave ``top_k`` of them. ``do_bench(fn, quantiles)`` times
    in the place of the tuner, ``use_cuda_graph`` by graphs. Timings are kept on disk unless
    ``TRITON_CACHE_AUTOTUNING=0`` says otherwise; those of a ``do_bench`` only with ``cache_results`` or ``=1``.
    """

    def decorator(fn: Any) -> Any:
        kernel = _kernel_of(fn, "autotune")
        try:
            return make(kernel)
        except TritonError as error:
            hide_own_frames(error)
            raise error

    def make(kernel: Any) -> Any:
        return Autotuner(
            kernel,
            kernel.arg_names,
            configs,
            key or [],
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorator


def _check_heuristics(values: Any) -> None:
    found = None
    if not hasattr(values, "items"):
        found = f"a {type(values).__name__}"
    for name, function in values.items() if found is None else ():
        if not callable(function):
            found = f"{function!r} for {name!r}"
    if found is not None:
        raise TypeError(
            "@triton.heuristics takes a dict of functions of the arguments, such as "
            f"{{'EVEN': lambda args: args['n'] % 128 == 0}}, found {found}"
        )


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> HeuristicsDecorator:
    """Computes compile-time arguments at each launch: ``@triton.heuristics({"EVEN": is_even})``.

    Each function gets a dict with all arguments of the launch by their names.
    """

    _check_heuristics(values)

    def decorator(fn: Any) -> Any:
        kernel = _kernel_of(fn, "heuristics")
        return Heuristics(kernel, kernel.arg_names, values)

    return decorator


_OWN_RUNS: dict[Any, str] = {Autotuner.run: "autotuner", Heuristics.run: "heuristics"}
"""The built-in functions, as long as no program replaces them."""
