"""``triton.backends.compiler``: the targets of compilations, and their options."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from tilewright import _native


@dataclass(frozen=True)
class GPUTarget:
    """A kind of device: ``GPUTarget("cuda", 90, 32)``, ``GPUTarget("cpu", "x86_64", 0)``."""

    backend: str
    arch: int | str
    warp_size: int


class Language(Enum):
    """The language of a kernel; only the first is compiled here."""

    TRITON = 0
    GLUON = 1


class Backend(NamedTuple):
    """The classes for a kind of device."""

    compiler: type[BaseBackend]
    driver: type


class CompileOptions:
    """The options of a compilation: every option is an attribute, whether it was set or not."""

    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)

    def hash(self) -> str:
        """Returns a digest of all options."""
        import hashlib

        text = "_".join(f"{name}-{value}" for name, value in sorted(self.__dict__.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in sorted(self.__dict__.items()))
        return f"{type(self).__name__}({listed})"


class BaseBackend(metaclass=ABCMeta):
    """A compiler for targets of one kind."""

    binary_ext: str
    """The last stage of a compiled kernel, which the device runs."""

    supports_native_tensor_specialization = True

    def __init__(self, target: GPUTarget) -> None:
        self.target = target
        if not self.supports_target(target):
            raise ValueError(f"{type(self).__name__} does not compile for {target}")

    @staticmethod
    @abstractmethod
    def supports_target(target: GPUTarget) -> bool:
        """Returns whether this back end compiles for a target."""

    def hash(self) -> str:
        """Returns a text that stays the same as long as the back end makes the same code of a kernel."""
        return f"tilewright-{_native.__version__}-{self.target.backend}-{self.target.arch}"

    def parse_options(self, options: dict[str, Any]) -> CompileOptions:
        """Returns the options with their defaults; unknown names are ignored."""
        known = dict(_native.compile_options())
        given = {name: value for name, value in options.items() if name in known and value is not None}
        return CompileOptions(**{**known, **given, "backend_name": self.target.backend})

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        """The numbers that a launch needs: warps, blocks of a program's cluster, and bytes of shared memory."""
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    # Tools call both on every back end, and there is nothing to do.
    def add_stages(self, stages: dict[str, Any], options: Any, language: Language) -> None:  # noqa: B027
        """Adds none: ``triton.compile`` runs all stages itself, and has the text of each in ``asm``."""

    def load_dialects(self, context: Any) -> None:  # noqa: B027
        """Does nothing: there are no dialects."""

    def get_module_map(self) -> dict[str, Any]:
        """Returns an empty dict: the language is the same on every device."""
        return {}

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        """Returns an empty dict."""
        return {}

    @staticmethod
    def parse_attr(desc: str) -> list[list[Any]]:
        """The attributes of an argument that the letters of its specialization name."""
        return [["tt.divisibility", 16]] if "D" in desc else []

    @staticmethod
    def get_int_specialization(arg: int, **kwargs: Any) -> str:
        """``D`` for a multiple of 16."""
        return "D" if arg % 16 == 0 and kwargs.get("align", False) else ""

    @staticmethod
    def get_tensor_specialization(arg: Any, **kwargs: Any) -> str:
        """``D`` for memory at a multiple of 16 bytes."""
        return "D" if arg.data_ptr() % 16 == 0 and kwargs.get("align", False) else ""
