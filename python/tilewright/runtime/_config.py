"""``triton.Config``: one choice of compile-time arguments and options for an autotuned kernel."""

from __future__ import annotations

import sys

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import TypedDict, Unpack

    class OlderOptions(TypedDict, total=False):
        """Options of releases 2.1 to 3.3, which were experiments; ``tl.range(warp_specialize=True)`` replaces them."""

        enable_persistent: bool
        enable_warp_specialization: bool
        num_buffers_warp_spec: int
        num_consumer_groups: int
        reg_dec_producer: int
        reg_inc_consumer: int


_NUM_WARPS, _NUM_STAGES, _NUM_CTAS, _MAXNREG, _IR_OVERRIDE, _NUM_CPU_THREADS = map(
    _native.default_option,
    ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override", "num_cpu_threads"),
)

_OLDER_OPTIONS = (
    "enable_persistent",
    "enable_warp_specialization",
    "num_buffers_warp_spec",
    "num_consumer_groups",
    "reg_dec_producer",
    "reg_inc_consumer",
)
"""The names of ``OlderOptions``."""


class Config:
    """One choice of compile-time arguments and options for an autotuned kernel."""

    # The code, the instruction and the line that made the configuration, for errors. It is no entry of `__dict__`, so
    # it is neither compared nor pickled, and a copy has none.
    __slots__ = ("__dict__", "__weakref__", "_made_at")

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = _NUM_WARPS,
        num_stages: int = _NUM_STAGES,
        num_ctas: int = _NUM_CTAS,
        maxnreg: int | None = _MAXNREG,
        pre_hook: Callable[..., Any] | None = None,
        ir_override: str | None = _IR_OVERRIDE,
        num_cpu_threads: int = _NUM_CPU_THREADS,
        **older: Unpack[OlderOptions],
    ) -> None:
        frame = sys._getframe(1)
        object.__setattr__(self, "_made_at", (frame.f_code, frame.f_lasti, frame.f_lineno))
        for name, value in older.items():
            if name not in _OLDER_OPTIONS:
                raise TypeError(f"triton.Config has no argument {name!r}")
            if value:
                import warnings

                from tilewright.errors import LaunchWarning

                text = f"{name}={value!r} of triton.Config has no effect: later releases of Triton do not have it"
                warnings.warn(text, LaunchWarning, stacklevel=2)
        if not hasattr(kwargs, "items"):
            raise TypeError(
                "the first argument of triton.Config is a dict of compile-time arguments, such as {'BLOCK': 128}, "
                f"found {kwargs!r}"
            )
        self.kwargs = kwargs
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override
        self.num_cpu_threads = num_cpu_threads

    _merged: tuple[tuple[str, ...], tuple[Any, ...], dict[str, Any], int, bool] | None = None
    """The names and values of ``all_kwargs()``, ``kwargs``, its size, and whether there is a hook."""

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value
        self.__dict__.pop("_merged", None)

    def _merge(self) -> None:
        found = self.all_kwargs()
        # Launches compare names by identity: intern them, as Python interns the names of keywords.
        names = tuple(sys.intern(name) if type(name) is str else name for name in found)
        values = tuple(found.values())
        self.__dict__["_merged"] = (names, values, self.kwargs, len(self.kwargs), self.pre_hook is not None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_merged"}

    def _options(self) -> dict[str, Any]:
        return {
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
            "ir_override": self.ir_override,
        }

    def all_kwargs(self) -> dict[str, Any]:
        """The compile-time arguments and the options that are set."""
        found = dict(self.kwargs)
        found["num_warps"] = self.num_warps
        found["num_ctas"] = self.num_ctas
        found["num_stages"] = self.num_stages
        if self.maxnreg is not None:
            found["maxnreg"] = self.maxnreg
        if self.ir_override is not None:
            found["ir_override"] = self.ir_override
        if self.num_cpu_threads != _NUM_CPU_THREADS:
            found["num_cpu_threads"] = self.num_cpu_threads
        return found

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state.get("kwargs", {}))  # type: ignore[misc]
        object.__delattr__(self, "_made_at")
        self.__dict__.update(state)

    def __hash__(self) -> int:
        return hash((*self.all_kwargs().items(), self.pre_hook))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return (self.all_kwargs(), self.pre_hook) == (other.all_kwargs(), other.pre_hook)

    def __str__(self) -> str:
        options = {**self.kwargs, **self._options()}
        if self.num_cpu_threads != _NUM_CPU_THREADS:
            options["num_cpu_threads"] = self.num_cpu_threads
        return ", ".join(f"{name}: {value}" for name, value in options.items())

    def __repr__(self) -> str:
        return f"Config({self})"


# The module in Triton: programs pickle it by this name.
Config.__module__ = "tilewright.runtime.autotuner"
