"""Calls a function when a module has been imported for the first time. Does not itself import the module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Loader:
    """Loads a module by its own loader, and then calls the function."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Restore the original loader, so that the module does not see this hook.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder:
    """Finds the module by the other finders, and wraps its loader to call the function."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = _Loader(spec.loader, self._then)
            spec.loader = loader
        return spec


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    """Calls ``then(module)`` once the module is imported; at once if it is already."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        finder: Any = _Finder(name, then)
        sys.meta_path.insert(0, finder)
