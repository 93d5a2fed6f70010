"""Names of Triton that this version does not have yet: programs can import them, and using one says which it is."""

from __future__ import annotations

from types import ModuleType

from tilewright.errors import NotAvailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


class Missing:
    """Stands for a function or class that is not there yet; a call or an attribute says so."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.__name__ = self.__qualname__ = path.rpartition(".")[2]

    def _refuse(self) -> NoReturn:
        raise NotAvailableError(f"{self._path} is not available in this version of tilewright")

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        # Probes for protocols (copying, signatures, doctests) get the answer of any other object.
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()

    # isinstance(x, triton.runtime.Autotuner) is a question that has an answer: no.
    def __instancecheck__(self, _instance: Any) -> bool:
        return False

    def __subclasscheck__(self, _subclass: Any) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self._path}, not available in this version of tilewright>"


class MissingModule(ModuleType):
    """A module whose public names are all missing yet."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return Missing(f"{self.__name__}.{name}")


def missing_names(module: str, names: str) -> Callable[[str], Missing]:
    """The ``__getattr__`` of a module some of whose names, separated by spaces, are missing yet."""
    known = frozenset(names.split())

    def __getattr__(name: str) -> Missing:
        if name in known:
            return Missing(f"{module.replace('tilewright', 'triton', 1)}.{name}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
