"""``triton.knobs``: settings that programs read and set, each backed by an environment variable.

A knob is read from the environment when it is asked for, unless the program has assigned a value; an assigned value is
written to the environment as well, so that child processes see it. ``with knobs.runtime.scope():`` takes changes back.

The compiler and the launcher read the environment at the first launch of each kernel, when a knob is assigned, and in
``refresh_knobs()``; what they read then counts for all kernels, also for those that were launched before. So a
program that changes ``os.environ`` while it runs calls ``refresh_knobs()``, or assigns the knob.
"""

from __future__ import annotations

import os

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

_TRUE = frozenset(("1", "true", "yes", "on", "y"))


class _Flag:
    """A knob that is on or off."""

    def __init__(self, variable: str, default: bool = False) -> None:
        self.variable = variable
        self.default = default

    def read(self) -> Any:
        """The value that the environment says."""
        text = os.environ.get(self.variable)
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
        """The value that the environment says."""
        return os.environ.get(self.variable, self.text)

    def write(self, value: Any) -> str:
        """The text for the environment."""
        return str(value)


class _Folder(_Text):
    """A knob that is a folder below the home folder of Triton."""

    def read(self) -> Any:
        """The value that the environment says."""
        text = os.environ.get(self.variable)
        if text is not None:
            return text
        home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
        return os.path.join(home, ".triton", self.text or "")


class Knobs:
    """A group of knobs."""

    def __init__(self, knobs: dict[str, _Flag], plain: dict[str, Any] | None = None) -> None:
        self.__dict__["_knobs"] = knobs
        self.__dict__["_plain"] = plain or {}
        self.__dict__["_set"] = dict(plain or {})
        self.__dict__["_environment"] = {}

    def __getattr__(self, name: str) -> Any:
        assigned: dict[str, Any] = self.__dict__["_set"]
        if name in assigned:
            return assigned[name]
        knobs: dict[str, _Flag] = self.__dict__["_knobs"]
        if name in knobs:
            return knobs[name].read()
        raise AttributeError(
            f"there is no knob {name!r}; there are {', '.join([*knobs, *self.__dict__['_plain']])}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        knob = self.__dict__["_knobs"].get(name)
        self.__dict__["_set"][name] = value
        if knob is not None and value is not None:
            self.__dict__["_environment"].setdefault(knob.variable, os.environ.get(knob.variable))
            os.environ[knob.variable] = knob.write(value)
        self._changed()

    def __delattr__(self, name: str) -> None:
        self.__dict__["_set"].pop(name, None)
        if name in self.__dict__["_plain"]:
            self.__dict__["_set"][name] = self.__dict__["_plain"][name]
        elif name in self.__dict__["_knobs"]:
            self._restore(self.__dict__["_knobs"][name].variable)
        self._changed()

    def _restore(self, *variables: str) -> None:
        """Gives variables of the environment the values that they had before the program assigned others."""
        before: dict[str, str | None] = self.__dict__["_environment"]
        for variable in variables:
            if variable not in before:
                continue
            text = before.pop(variable)
            if text is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = text

    def _changed(self) -> None:
        """The compiler and the launcher read the environment anew."""
        _native.reload_knobs()

    @property
    def knobs(self) -> dict[str, Any]:
        """Every knob of the group with its value."""
        return {name: getattr(self, name) for name in [*self.__dict__["_knobs"], *self.__dict__["_plain"]]}

    def copy(self) -> Knobs:
        """The same group, apart from this one; what is assigned to it reaches the environment."""
        twin = type(self)(self.__dict__["_knobs"], self.__dict__["_plain"])
        twin.__dict__["_set"] = dict(self.__dict__["_set"])
        return twin

    def reset(self) -> Knobs:
        """Forgets what was assigned; the environment is again as it was before."""
        self.__dict__["_set"] = dict(self.__dict__["_plain"])
        for value in self.__dict__["_plain"].values():
            if isinstance(value, HookChain):
                value.calls.clear()
        self._restore(*self.__dict__["_environment"].copy())
        self._changed()
        return self

    def scope(self) -> AbstractContextManager[None]:
        """Takes back on leaving what is changed within, in the environment too."""
        from contextlib import contextmanager

        return contextmanager(self._scope)()

    def _scope(self) -> Iterator[None]:
        variables = [knob.variable for knob in self.__dict__["_knobs"].values()]
        environment = {variable: os.environ.get(variable) for variable in variables}
        before = dict(self.__dict__["_set"]), dict(self.__dict__["_environment"])
        try:
            yield
        finally:
            self.__dict__["_set"], self.__dict__["_environment"] = before
            for variable, text in environment.items():
                if text is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = text
            self._changed()


class HookChain:
    """Functions that are called one after the other: ``knobs.runtime.launch_enter_hook.add(function)``."""

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

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Calls them all."""
        for function in self.calls[::-1] if self.reversed else list(self.calls):
            function(*args, **kwargs)


class _Runtime(Knobs):
    """The knobs of launches; hooks among them cost nothing while there are none."""

    _WITHOUT_EFFECT = ("kernel_load_start_hook", "kernel_load_end_hook", "kernel_unload_hook")

    def __setattr__(self, name: str, value: Any) -> None:
        if value is not None and (name in self._WITHOUT_EFFECT or name == "add_stages_inspection_hook"):
            from tilewright.errors import NotAvailableError

            raise NotAvailableError(
                f"triton.knobs.runtime.{name} is not available in this version of tilewright: kernels for the CPU are "
                "not loaded onto a device, and their stages are in kernel.warmup(...).asm"
            )
        super().__setattr__(name, value)

    def _changed(self) -> None:
        super()._changed()
        hooks = (self.launch_enter_hook, self.launch_exit_hook)
        launch = any(hook is not None and getattr(hook, "calls", True) for hook in hooks)
        compilation = self.jit_cache_hook is not None or self.jit_post_compile_hook is not None
        _native.set_hooks(bool(launch), compilation)


class _Language(Knobs):
    """The knobs of the language."""

    def fp_fusion_enabled(self, requested: bool | None = None) -> bool:
        """Whether a product and a sum may become one operation with one rounding."""
        if self.force_disable_fp_fusion:
            return False
        return bool(self.default_fp_fusion if requested is None else requested)


build = Knobs({"cc": _Text("CC")})
cache = Knobs(
    {
        "home_dir": _Text("TRITON_HOME"),
        "dump_dir": _Folder("TRITON_DUMP_DIR", "dump"),
        "override_dir": _Folder("TRITON_OVERRIDE_DIR", "override"),
        "dir": _Folder("TRITON_CACHE_DIR", "cache"),
    }
)
compilation = Knobs(
    {
        "override": _Flag("TRITON_KERNEL_OVERRIDE"),
        "dump_ir": _Flag("TRITON_KERNEL_DUMP"),
        "store_binary_only": _Flag("TRITON_STORE_BINARY_ONLY"),
        "always_compile": _Flag("TRITON_ALWAYS_COMPILE"),
        "disable_line_info": _Flag("TRITON_DISABLE_LINE_INFO"),
        "front_end_debugging": _Flag("TRITON_FRONT_END_DEBUGGING"),
        "allow_non_constexpr_globals": _Flag("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"),
        "enable_asan": _Flag("TRITON_ENABLE_ASAN"),
    },
    {"instrumentation_mode": "", "listener": None},
)
autotuning = Knobs(
    {"cache": _Flag("TRITON_CACHE_AUTOTUNING"), "print": _Flag("TRITON_PRINT_AUTOTUNING")}, {"listener": None}
)
runtime = _Runtime(
    {
        "interpret": _Flag("TRITON_INTERPRET"),
        "debug": _Flag("TRITON_DEBUG"),
        "override_arch": _Text("TRITON_OVERRIDE_ARCH"),
    },
    {
        "launch_enter_hook": HookChain(),
        "launch_exit_hook": HookChain(reversed=True),
        "kernel_load_start_hook": None,
        "kernel_load_end_hook": None,
        "jit_cache_hook": None,
        "jit_post_compile_hook": None,
        "add_stages_inspection_hook": None,
        "kernel_unload_hook": None,
    },
)
language = _Language(
    {
        "fp32_default": _Text("TRITON_F32_DEFAULT"),
        "default_fp_fusion": _Flag("TRITON_DEFAULT_FP_FUSION", True),
        "force_disable_fp_fusion": _Flag("TRITON_FORCE_DISABLE_FP_FUSION"),
    }
)
nvidia = Knobs(
    {
        "ptxas": _Text("TRITON_PTXAS_PATH"),
        "cuobjdump": _Text("TRITON_CUOBJDUMP_PATH"),
        "nvdisasm": _Text("TRITON_NVDISASM_PATH"),
        "libdevice_path": _Text("TRITON_LIBDEVICE_PATH"),
        "libcuda_path": _Text("TRITON_LIBCUDA_PATH"),
    }
)
amd = Knobs(
    {"use_buffer_ops": _Flag("AMDGCN_USE_BUFFER_OPS", True), "libhip_path": _Text("TRITON_LIBHIP_PATH")}
)
proton = Knobs({"disable": _Flag("TRITON_PROTON_DISABLE")})


def refresh_knobs() -> None:
    """Reads the environment anew, after a program has changed ``os.environ``; for launches from now on."""
    runtime._changed()
