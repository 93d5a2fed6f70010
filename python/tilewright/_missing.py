"""Names of Triton that this version does not have yet: programs can import them, and using one says which it is."""

from __future__ import annotations

from types import ModuleType

from tilewright._native import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_HINTS = {
    "compile": "kernel.warmup(..., grid=(1,)) compiles without running; the stages are in its .asm",
}


def missing(path: str, hint: str | None = None) -> Missing:
    """What stands for a name of Triton."""
    return Missing(path, hint or _HINTS.get(path.rpartition(".")[2]))


class MissingModule(ModuleType):
    """A module whose public names are all missing yet."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return missing(f"{self.__name__}.{name}")


def missing_names(module: str, names: str, hint: str | None = None) -> Callable[[str], Missing]:
    """The ``__getattr__`` of a module some of whose names, separated by spaces, are missing yet."""
    known = frozenset(names.split())

    def __getattr__(name: str) -> Missing:
        if name in known:
            return missing(f"{module.replace('tilewright', 'triton', 1)}.{name}", hint)
        import sys

        # With these Python says which name is near.
        own = sys.modules[module.replace("triton", "tilewright", 1)]
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=own)

    return __getattr__
