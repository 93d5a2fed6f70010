"""``triton.knobs``: settings that programs read and set, each backed by an environment variable.

A knob is read from the environment at each use, unless the program has assigned a value; an assigned value is
written to the environment as well, so that child processes see it. ``with knobs.runtime.scope():`` undoes changes.

The compiler and the launcher read the environment at the first launch of each kernel, when a knob is assigned, and in
``refresh_knobs()``. The settings then apply to later launches of all kernels. A program that changes ``os.environ``
while it runs therefore has to call ``refresh_knobs()``, or to assign the knob instead.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_TRUE = frozenset(("1", "true", "yes", "on", "y"))

_variable = _native.environment_variable
"""Reads a variable in a tenth of the time of ``os.environ``: programs read knobs at each launch."""


class _Flag:
    """A knob that is on or off."""

    def __init__(self, variable: str, default: bool | None = False) -> None:
        self.variable = variable
        self.default = default

    def __get__(self, group: Knobs | None, owner: type) -> Any:
        """Returns the value for a group; an assigned value is in the group's ``__dict__`` and has priority."""
        return self if group is None else self.read()

    def read(self) -> Any:
        """Returns the value in the environment."""
        text = _variable(self.variable)
        return self.default if text is None else text.lower() in _TRUE

    def write(self, value: Any) -> str:
        """The text for the environment."""
        return "1" if value else "0"


class _Text(_Flag):
    """A knob that is a text, or None."""

    def __init__(self, variable: str, default: str | None = None) -> None:
        self.variable = variable
        self.text = default

    def read(self) -> Any:
        """Returns the value in the environment."""
        text = _variable(self.variable)
        return self.text if text is None else text

    def write(self, value: Any) -> str:
        """The text for the environment."""
        return str(value)


class _Folder(_Text):
    """A knob that is a folder below the home folder of Triton."""

    def __init__(self, variable: str, name: str, ours: str | None = None) -> None:
        super().__init__(variable, name)
        self.ours = ours
        """The variable that has priority over Triton's."""

    def read(self) -> Any:
        """Returns the value in the environment."""
        # An empty variable counts as unset.
        text = (_variable(self.ours) if self.ours else None) or _variable(self.variable)
        return text or _below_home(_variable("TRITON_HOME"), _variable("HOME"), self.text or "")


@functools.lru_cache
def _below_home(triton_home: str | None, _home: str | None, name: str) -> str:
    """Returns a folder below the home folder of Triton. Variables of the environment determine the home folder."""
    return os.path.join(triton_home or os.path.expanduser("~"), ".triton", name)


class _Number(_Text):
    """A knob that is a whole number."""

    def __init__(self, variable: str, default: int) -> None:
        super().__init__(variable, str(default))

    def read(self) -> Any:
        """Returns the value in the environment."""
        text = super().read()
        try:
            return int(text)
        except ValueError:
            raise RuntimeError(f"Unable to use {self.variable}={text!r}: expected int") from None


class _Choice(_Text):
    """A knob that is on, off, or left to the compiler."""

    def read(self) -> Any:
        """Returns the value in the environment."""
        text = _variable(self.variable)
        return None if text is None else text.lower() in _TRUE

    def write(self, value: Any) -> str:
        """The text for the environment."""
        return "1" if value else "0"


class _Class(_Text):
    """A knob that is a class, named ``module:Class``."""

    def read(self) -> Any:
        """The class that the environment names."""
        text = _variable(self.variable)
        if not text:
            return None
        name, found, attribute = text.partition(":")
        if not found:
            raise RuntimeError(f"Unable to use {self.variable}={text!r}: expected module:Class")
        module = sys.modules.get(name)
        try:
            if module is None:
                import importlib

                module = importlib.import_module(name)
            return getattr(module, attribute)
        except (ImportError, AttributeError, ValueError) as error:
            from tilewright.errors import LaunchStateError

            raise LaunchStateError(f"Unable to use {self.variable}={text!r}: {error}") from None

    def write(self, value: Any) -> str:
        """The text for the environment."""
        return f"{value.__module__}:{value.__qualname__}"


class NvidiaTool:
    """A program of the CUDA toolkit."""

    def __init__(self, path: str, version: str) -> None:
        self.path = path
        self.version = version

    @staticmethod
    def from_path(path: str) -> NvidiaTool | None:
        """Returns the program at a path; nothing if it does not print its release."""
        import re
        import subprocess

        try:
            text = subprocess.check_output([path, "--version"], stderr=subprocess.STDOUT, text=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        found = re.search(r"release (\d+\.\d+)", text)
        return None if found is None else NvidiaTool(path, found[1])


def _programs_of_packages(program: str) -> list[str]:
    """Returns the paths of a program in the packages of the CUDA toolkit that torch depends on, then in Triton's."""
    import glob
    import importlib.util

    from tilewright._alias import find_official

    packages = ((importlib.util.find_spec("nvidia"), ("*",)), (find_official(), ("backends", "nvidia")))
    return [
        path
        for package, parts in packages
        if package is not None
        for folder in package.submodule_search_locations or ()
        for path in sorted(glob.glob(os.path.join(folder, *parts, "bin", program)))
    ]


class _Tool(_Text):
    """A knob that is a program of the CUDA toolkit; tilewright itself needs none."""

    def __init__(self, variable: str, program: str) -> None:
        super().__init__(variable)
        self.program = program
        self.found: dict[tuple[str | None, ...], NvidiaTool | None] = {}
        """The program, or None if there is none, by the variables that name its path."""

    def read(self) -> Any:
        """Returns the program that the environment names, else the one that is found."""
        # Tilewright's own variable names the program or its folder, for `explain` as well.
        own = _variable("TILEWRIGHT_PTXAS") if self.program == "ptxas" else None
        variables = (own, _variable(self.variable), _variable("PATH"))
        if variables not in self.found:
            self.found[variables] = self._find(own, variables[1])
        tool = self.found[variables]
        if tool is None:
            raise RuntimeError(f"Cannot find {self.program}: set {self.variable} to its path")
        return tool

    def _find(self, own: str | None, named: str | None) -> NvidiaTool | None:
        import shutil

        own = os.path.join(own, self.program) if own and os.path.isdir(own) else own
        places = [own, named, shutil.which(self.program), os.path.join("/usr/local/cuda/bin", self.program)]
        places += _programs_of_packages(self.program)
        for place in filter(None, places):
            if os.path.isfile(place) and (tool := NvidiaTool.from_path(place)) is not None:
                return tool
        return None

    def write(self, value: Any) -> str:
        """The text for the environment."""
        return str(getattr(value, "path", value))


class _Env:
    """The class of ``knobs.env``. Assigning ``knobs.env`` to a knob undoes the earlier assignment."""


env = _Env()

propagate_env = True
"""True if a knob that is assigned is written to the environment, where child processes find it."""


class Knobs:
    """A group of knobs.

    Its ``__dict__`` holds the values that a program has assigned, and those of knobs without a variable. A knob that
    has a variable is an attribute of the group's own class, and read where ``__dict__`` has nothing.
    """

    __slots__ = ("__dict__", "_environment", "_knobs", "_plain")

    _knobs: dict[str, _Flag]
    _plain: dict[str, Any]
    _environment: dict[str, str | None]

    def __init__(self, knobs: dict[str, _Flag], plain: dict[str, Any] | None = None) -> None:
        object.__setattr__(self, "_knobs", knobs)
        object.__setattr__(self, "_plain", plain or {})
        object.__setattr__(self, "_environment", {})
        self.__dict__.update(self._plain)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"there is no knob {name!r}; there are {', '.join([*self._knobs, *self._plain])}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if value is env:
            delattr(self, name)
            return
        knob = self._knobs.get(name)
        self.__dict__[name] = value
        if knob is not None and value is not None and propagate_env:
            self._environment.setdefault(knob.variable, os.environ.get(knob.variable))
            os.environ[knob.variable] = knob.write(value)
        self._changed()

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop(name, None)
        if name in self._plain:
            self.__dict__[name] = self._plain[name]
        elif name in self._knobs:
            self._restore(self._knobs[name].variable)
        self._changed()

    def _restore(self, *variables: str) -> None:
        """Restores the values that variables of the environment had before the program assigned others."""
        before = self._environment
        for variable in variables:
            if variable not in before:
                continue
            text = before.pop(variable)
            if text is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = text

    def _changed(self) -> None:
        """Makes the compiler and the launcher read the environment anew."""
        _native.reload_knobs()

    @property
    def knobs(self) -> dict[str, Any]:
        """Every knob of the group with its value."""
        found: dict[str, Any] = {}
        for name in [*self._knobs, *self._plain]:
            try:
                found[name] = getattr(self, name)
            except RuntimeError:
                # The value of the knob is the path of a program that is not installed.
                found[name] = None
        return found

    @property
    def knob_descriptors(self) -> dict[str, Any]:
        """The knobs of the group that have environment variables."""
        return dict(self._knobs)

    def copy(self) -> Knobs:
        """Returns a separate copy of the group; assignments to it reach the environment."""
        twin = type(self)(self._knobs, self._plain)
        twin._replace_assigned(self.__dict__)
        return twin

    def _replace_assigned(self, values: dict[str, Any]) -> None:
        assigned = dict(values)
        self.__dict__.clear()
        self.__dict__.update(assigned)

    def reset(self) -> Knobs:
        """Forgets assigned values, and restores the environment."""
        self._replace_assigned(self._plain)
        for value in self._plain.values():
            if isinstance(value, HookChain):
                value.calls.clear()
        self._restore(*self._environment.copy())
        self._changed()
        return self

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Undoes changes within it on leaving, in the environment too."""
        variables = [knob.variable for knob in self._knobs.values()]
        environment = {variable: os.environ.get(variable) for variable in variables}
        assigned, before = dict(self.__dict__), dict(self._environment)
        try:
            yield
        finally:
            self._replace_assigned(assigned)
            self._environment.clear()
            self._environment.update(before)
            for variable, text in environment.items():
                if text is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = text
            self._changed()


class HookChain:
    """A list of functions that are called in order: ``knobs.runtime.launch_enter_hook.add(function)``."""

    def __init__(self, reversed: bool = False) -> None:
        self.calls: list[Callable[..., Any]] = []
        self.reversed = reversed

    def add(self, func: Callable[..., Any]) -> None:
        """Adds a function, once."""
        if func not in self.calls:
            self.calls.append(func)
        runtime._changed()

    def remove(self, func: Callable[..., Any]) -> None:
        """Removes a function, if it is there."""
        if func in self.calls:
            self.calls.remove(func)
        runtime._changed()

    def __bool__(self) -> bool:
        """Returns whether there is a hook: torch prepares launch metadata for hooks if there seems to be one."""
        return bool(self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Calls all functions."""
        for function in self.calls[::-1] if self.reversed else list(self.calls):
            function(*args, **kwargs)


class _NoHooks(HookChain):
    """A hook that is never called."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def add(self, func: Callable[..., Any]) -> None:
        """Raises an error: there is nothing to hook."""
        raise _no_hook(self.name)


def _no_hook(name: str) -> Exception:
    return _native.not_available(
        f"triton.knobs.runtime.{name} is not available in this version of tilewright",
        "kernels are not unloaded while their program runs; the stages of a kernel are in kernel.warmup(...).asm",
    )


class CompileTimes:
    """The microseconds of a compilation, for ``knobs.compilation.listener``."""

    def __init__(
        self, ir_initialization: int, lowering_stages: list[tuple[str, int]], store_results: int
    ) -> None:
        self.ir_initialization = ir_initialization
        self.lowering_stages = lowering_stages
        self.store_results = store_results

    @property
    def total_lowering(self) -> int:
        """Returns the microseconds of all stages."""
        return sum(microseconds for _, microseconds in self.lowering_stages)

    @property
    def total(self) -> int:
        """Returns all microseconds."""
        return self.ir_initialization + self.total_lowering + self.store_results


class _Runtime(Knobs):
    """The knobs of launches; hooks among them cost nothing while there are none."""

    _WITHOUT_EFFECT = ("add_stages_inspection_hook", "kernel_unload_hook")

    def __setattr__(self, name: str, value: Any) -> None:
        if value not in (None, env) and name in self._WITHOUT_EFFECT:
            raise _no_hook(name)
        super().__setattr__(name, value)

    def _changed(self) -> None:
        super()._changed()

        def is_any(*hooks: Any) -> bool:
            return any(hook is not None and bool(getattr(hook, "calls", True)) for hook in hooks)

        launch = is_any(self.launch_enter_hook, self.launch_exit_hook)
        load = is_any(self.kernel_load_start_hook, self.kernel_load_end_hook)
        _native.set_hooks(launch, is_any(self.jit_cache_hook, self.jit_post_compile_hook), load)


class _Language(Knobs):
    """The knobs of the language."""

    def fp_fusion_enabled(self, requested: bool | None = None) -> bool:
        """Returns whether a multiplication and an addition may become one operation with one rounding."""
        if self.force_disable_fp_fusion:
            return False
        return bool(self.default_fp_fusion if requested is None else requested)


class _Compilation(Knobs):
    """The knobs of compiling."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "listener" and value not in (None, env):
            import warnings

            from tilewright.errors import LaunchWarning

            text = (
                "knobs.compilation.listener is not called in this version of tilewright; "
                "knobs.runtime.jit_post_compile_hook is, after each compilation"
            )
            warnings.warn(text, LaunchWarning, stacklevel=2)
        super().__setattr__(name, value)


class _Cache(Knobs):
    """The knobs of cached files."""

    def get_triton_dir(self, dirname: str) -> str:
        """A folder below the home folder of Triton."""
        return os.path.join(self.home_dir, ".triton", dirname)


def _group(base: type[Knobs], knobs: dict[str, _Flag], plain: dict[str, Any] | None = None) -> Any:
    """Makes a group with a class of its own, whose attributes are the knobs."""
    own: type[Knobs] = type(base.__name__, (base,), dict(knobs))
    return own(knobs, plain)


build = _group(
    Knobs,
    {
        "cc": _Text("CC"),
        "cudacrt_path": _Text("TRITON_CUDACRT_PATH"),
        "cudart_path": _Text("TRITON_CUDART_PATH"),
    },
    {"impl": None, "backend_dirs": frozenset()},
)
redis = _group(
    Knobs,
    {
        "key_format": _Text("TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}"),
        "host": _Text("TRITON_REDIS_HOST", "localhost"),
        "port": _Number("TRITON_REDIS_PORT", 6379),
    },
)
cache = _group(
    _Cache,
    {
        "home_dir": _Text("TRITON_HOME", os.path.expanduser("~")),
        "dump_dir": _Folder("TRITON_DUMP_DIR", "dump"),
        "override_dir": _Folder("TRITON_OVERRIDE_DIR", "override"),
        "dir": _Folder("TRITON_CACHE_DIR", "cache", ours="TILEWRIGHT_CACHE_DIR"),
        "manager_class": _Class("TRITON_CACHE_MANAGER"),
        "remote_manager_class": _Class("TRITON_REMOTE_CACHE_BACKEND"),
    },
)
compilation = _group(
    _Compilation,
    {
        "override": _Flag("TRITON_KERNEL_OVERRIDE"),
        "dump_ir": _Flag("TRITON_KERNEL_DUMP"),
        "store_binary_only": _Flag("TRITON_STORE_BINARY_ONLY"),
        "always_compile": _Flag("TRITON_ALWAYS_COMPILE"),
        "disable_line_info": _Flag("TRITON_DISABLE_LINE_INFO"),
        "front_end_debugging": _Flag("TRITON_FRONT_END_DEBUGGING"),
        "allow_non_constexpr_globals": _Flag("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"),
        "enable_asan": _Flag("TRITON_ENABLE_ASAN"),
        "dump_ir_extract_di_local_variables": _Flag("LLVM_EXTRACT_DI_LOCAL_VARIABLES"),
        "use_ir_loc": _Text("USE_IR_LOC"),
        "fpsan_homomorphic_casts": _Flag("TRITON_FPSAN_HOMOMORPHIC_CASTS"),
    },
    {"instrumentation_mode": "", "listener": None},
)
autotuning = _group(
    Knobs,
    {
        "cache": _Flag("TRITON_CACHE_AUTOTUNING", None),
        "print": _Flag("TRITON_PRINT_AUTOTUNING"),
        "print_table": _Flag("TILEWRIGHT_PRINT_AUTOTUNING_TABLE"),
    },
    {"listener": None},
)
runtime = _group(
    _Runtime,
    {
        "interpret": _Flag("TRITON_INTERPRET"),
        "debug": _Flag("TRITON_DEBUG"),
        "override_arch": _Text("TRITON_OVERRIDE_ARCH"),
    },
    {
        "launch_enter_hook": HookChain(),
        "launch_exit_hook": HookChain(reversed=True),
        "kernel_load_start_hook": HookChain(),
        "kernel_load_end_hook": HookChain(reversed=True),
        "jit_cache_hook": None,
        "jit_post_compile_hook": None,
        "add_stages_inspection_hook": None,
        "kernel_unload_hook": _NoHooks("kernel_unload_hook"),
    },
)
language = _group(
    _Language,
    {
        "fp32_default": _Text("TRITON_F32_DEFAULT"),
        "default_fp_fusion": _Flag("TRITON_DEFAULT_FP_FUSION", True),
        "force_disable_fp_fusion": _Flag("TRITON_FORCE_DISABLE_FP_FUSION"),
    },
)
nvidia = _group(
    Knobs,
    {
        "cuobjdump": _Tool("TRITON_CUOBJDUMP_PATH", "cuobjdump"),
        "nvdisasm": _Tool("TRITON_NVDISASM_PATH", "nvdisasm"),
        "ptxas": _Tool("TRITON_PTXAS_PATH", "ptxas"),
        "ptxas_blackwell": _Tool("TRITON_PTXAS_BLACKWELL_PATH", "ptxas"),
        "dump_nvptx": _Flag("NVPTX_ENABLE_DUMP"),
        "disable_ptxas_opt": _Flag("DISABLE_PTXAS_OPT"),
        "ptxas_options": _Text("PTXAS_OPTIONS"),
        "mock_ptx_version": _Text("TRITON_MOCK_PTX_VERSION"),
        "dump_ptxas_log": _Flag("TRITON_DUMP_PTXAS_LOG"),
        "libdevice_path": _Text("TRITON_LIBDEVICE_PATH"),
        "libcuda_path": _Text("TRITON_LIBCUDA_PATH"),
    },
)
amd = _group(
    Knobs,
    {
        "codegen_path": _Text("TRITON_AMD_CODEGEN_PATH"),
        "use_buffer_ops": _Flag("AMDGCN_USE_BUFFER_OPS", True),
        "use_buffer_atomics": _Flag("AMDGCN_USE_BUFFER_ATOMICS", True),
        "buffer_ops_analyze_small_tensor_range": _Flag("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE"),
        "dump_amdgcn": _Flag("AMDGCN_ENABLE_DUMP"),
        "libhip_path": _Text("TRITON_LIBHIP_PATH"),
        "use_block_pingpong": _Choice("TRITON_HIP_USE_BLOCK_PINGPONG"),
        "use_in_thread_transpose": _Choice("TRITON_HIP_USE_IN_THREAD_TRANSPOSE"),
        "use_async_copy": _Choice("TRITON_HIP_USE_ASYNC_COPY"),
        "use_coexec_scheduler": _Choice("TRITON_HIP_USE_COEXEC_SCHEDULER"),
        "use_expert_scheduling": _Choice("TRITON_HIP_USE_EXPERT_SCHEDULING"),
        "scalarize_packed_fops": _Flag("AMDGCN_SCALARIZE_PACKED_FOPS"),
        "dump_mir": _Text("TRITON_DUMP_MIR"),
        "swap_mir": _Text("TRITON_SWAP_MIR"),
        "swap_mir_enable_misched": _Flag("TRITON_SWAP_MIR_ENABLE_MISCHED"),
    },
)
proton = _group(
    Knobs,
    {
        "disable": _Flag("TRITON_PROTON_DISABLE"),
        "cupti_lib_dir": _Text("TRITON_CUPTI_LIB_PATH"),
        "cupti_lib_blackwell_dir": _Text("TRITON_CUPTI_LIB_BLACKWELL_PATH"),
        "hsa_runtime_path": _Text("TRITON_HSA_RUNTIME_PATH"),
        "hsa_runtime_library": _Text("TRITON_HSA_RUNTIME_LIBRARY"),
        "rocprofiler_sdk_include_path": _Text("TRITON_ROCPROFILER_SDK_INCLUDE_PATH"),
        "rocprofiler_sdk_lib_path": _Text("TRITON_ROCPROFILER_SDK_LIB_PATH"),
        "rocprofiler_sdk_library": _Text("TRITON_ROCPROFILER_SDK_LIBRARY"),
        "roctracer_lib_path": _Text("TRITON_ROCTRACER_LIB_PATH"),
        "roctracer_library": _Text("TRITON_ROCTRACER_LIBRARY"),
        "roctx_lib_path": _Text("TRITON_ROCTX_LIB_PATH"),
        "roctx_library": _Text("TRITON_ROCTX_LIBRARY", "libroctx64.so"),
        "profile_buffer_size": _Number("TRITON_PROFILE_BUFFER_SIZE", 67_108_864),
        "profile_metric_buffer_size": _Number("TRITON_PROFILE_METRIC_BUFFER_SIZE", 67_108_864),
        "enable_nvtx": _Flag("TRITON_ENABLE_NVTX", True),
        "enable_hw_trace": _Flag("TRITON_ENABLE_HW_TRACE"),
    },
)

base_knobs = Knobs

JITHook = object
"""The name of the type of a compile hook."""


def setenv(key: str, value: str | None) -> None:
    """Sets a variable of the environment, or removes it."""
    if value is None:
        os.environ.pop(key, None)
    elif propagate_env:
        os.environ[key] = value


def toenv(val: Any) -> tuple[str | None] | None:
    """The text of a value for a variable of the environment; nothing if it has none."""
    if val is None:
        return (None,)
    if isinstance(val, bool):
        return ("1" if val else "0",)
    if isinstance(val, (str, int)):
        return (str(val),)
    return (f"{val.__module__}:{val.__name__}",) if isinstance(val, type) else None


def refresh_knobs() -> None:
    """Reads the environment anew for later launches, after a program has changed ``os.environ``."""
    runtime._changed()
