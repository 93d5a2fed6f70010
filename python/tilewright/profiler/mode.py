"""The modes of sessions (``triton.profiler.mode``): the options of Triton, and those with an effect here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

metric_types = ("cycle",)
granularities = (
    "cta", "warp", "warp_2", "warp_4", "warp_8", "warp_group", "warp_group_2", "warp_group_4", "warp_group_8",
)  # fmt: skip
buffer_types = ("shared", "global")
buffer_strategies = ("circular", "flush")
sampling_strategies = ("none", "selective")


class Optimize(Enum):
    """Parts that records may omit. A record here is as small as it gets, so none of them has an effect."""

    TIMESHIFT = "time_shift"
    SCHED_STORES = "sched_stores"
    SCHED_BARRIERS = "sched_barriers"
    CLOCK32 = "clock32"


optimizations = tuple(one.value for one in Optimize)


@dataclass(frozen=True)
class BaseMode:
    """A mode by its name."""

    name: str


@dataclass(frozen=True)
class PCSampling(BaseMode):
    """Samples of the program counter, which are not taken here: such a session measures launches."""

    name: str = field(default="pcsampling", init=False)
    interval: int = 1000


@dataclass(frozen=True)
class InstrumentationMode(BaseMode):
    """Scopes inside of kernels. Records are made for programs, whatever the granularity, and go to global memory.

    With ``sampling_strategy="selective"``, ``sampling_options="0,2"`` names the programs that are kept.
    """

    metric_type: str = "cycle"
    sampling_strategy: str = "none"
    sampling_options: str = ""
    granularity: str = "cta"
    buffer_strategy: str = "flush"
    buffer_type: str = "global"
    buffer_size: int = 0
    optimizations: list[Optimize | str] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = {
            "metric_type": metric_types,
            "sampling_strategy": sampling_strategies,
            "granularity": granularities,
            "buffer_strategy": buffer_strategies,
            "buffer_type": buffer_types,
        }
        for name, values in known.items():
            if str(getattr(self, name)).rpartition(".")[2].lower() not in values:
                raise ValueError(f"unknown {name} '{getattr(self, name)}': it is one of {', '.join(values)}")
        for one in self.optimizations:
            Optimize(one)
        _ = self.programs

    @property
    def programs(self) -> frozenset[int] | None:
        """The programs whose records are kept, or None for all."""
        if self.sampling_strategy != "selective" or not self.sampling_options:
            return None
        try:
            return frozenset(int(word) for word in self.sampling_options.split(","))
        except ValueError:
            raise ValueError(f"sampling_options are numbers, '0,2', not '{self.sampling_options}'") from None


@dataclass(frozen=True)
class Default(InstrumentationMode):
    """Instrumentation with the default options."""

    name: str = field(default="default", init=False)


@dataclass(frozen=True)
class MMA(InstrumentationMode):
    """Instrumentation of matrix products: the same scopes of the program."""

    name: str = field(default="mma", init=False)


def instrumentation(mode: BaseMode | str | None) -> InstrumentationMode:
    """Returns the mode of an instrumented session: an object, or its name with options,
    ``"default:sampling_strategy=selective:sampling_options=0,2"``."""
    if mode is None:
        return Default()
    if isinstance(mode, InstrumentationMode):
        return mode
    if not isinstance(mode, str):
        raise ValueError(f"an instrumented session takes no mode {mode!r}")
    name, *options = mode.split(":")
    kinds = {"": Default, "default": Default, "mma": MMA}
    if name.lower() not in kinds:
        raise ValueError(f"unknown mode '{name}': it is default or mma")
    given: dict[str, object] = {}
    for option in options:
        key, has_value, value = option.partition("=")
        if key not in InstrumentationMode.__dataclass_fields__ or key == "name" or not has_value:
            raise ValueError(f"unknown option '{option}' of a mode")
        if key == "buffer_size":
            given[key] = int(value)
        elif key == "optimizations":
            given[key] = [one for one in value.split(",") if one]
        else:
            given[key] = value
    return kinds[name.lower()](**given)  # type: ignore[arg-type]
