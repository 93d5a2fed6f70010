"""The modules below ``gluon``, each made from a table of names, since all of their functions raise the same error."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tilewright import _native
from tilewright._native import Missing
from tilewright.experimental.gluon._runtime import HINT
from tilewright.language._builtin import NAMES, LanguageFunction

_PATHS = {
    "_core": "gluon",
    "_standard": "gluon",
    "nvidia.ampere.async_copy": "gluon.async_copy",
    "nvidia.ampere.mbarrier": "gluon.mbarrier",
    "nvidia.hopper.mbarrier": "gluon.mbarrier",
    "nvidia.hopper.tma": "gluon.tma",
    "nvidia.hopper.cluster": "gluon.cluster",
    "nvidia.ampere": "gluon.hopper",
    "nvidia.hopper": "gluon.hopper",
    "nvidia.blackwell": "gluon.blackwell",
    "nvidia.blackwell.clc": "gluon.clc",
}
"""The modules whose functions the compiler knows, each with its path there."""


class _AbsentType(type):
    """The class of the types of run-time values in Gluon kernels; their constructors raise an error."""

    def __call__(cls, *_args: Any, **_kwargs: Any) -> Any:
        raise _native.not_available(f"{cls.__doc__} is not available in this version of tilewright", HINT)


def add_modules(
    package: str, table: dict[str, dict[str, str]], known: dict[str, dict[str, Any]], classes: str = ""
) -> None:
    """Makes the modules of a table below a package, and fills the package for an empty name.

    A row of a module says which modules its names come from; those of ``known`` are the objects there, others are made:
    types (``classes``: ``module:name``) and functions, which raise an error when they are called.
    """
    types = frozenset(classes.split())
    made: dict[tuple[str, str], Any] = {}
    modules = {name: _module(package, name, table) for name in table}

    def item(home: str, name: str) -> Any:
        if name in known.get(home, ()):
            return known[home][name]
        if (home, name) not in made:
            # Programs import a name of a private module from its package.
            public = [part for part in home.split(".") if part and not part.startswith("_")]
            module = ".".join([package.replace("tilewright", "triton", 1), *public])
            path = f"{module}.{name}"
            is_type = f"{home}:{name}" in types
            own = f"{_PATHS[home]}.{name}" if home in _PATHS else ""
            if own in NAMES:
                parameters, doc, _ = NAMES[own]
                made[home, name] = LanguageFunction(own, parameters, doc, module)
            else:
                made[home, name] = (
                    _AbsentType(name, (), {"__doc__": path}) if is_type else Missing(path, HINT)
                )
        return made[home, name]

    for module_name, rows in table.items():
        names, public = vars(modules[module_name]), set[str]()
        for home, listed in rows.items():
            for name in listed.split():
                if home == "modules":
                    name, _, other = name.partition("=")
                    names[name] = modules[other or f"{module_name}.{name}".lstrip(".")]
                else:
                    names[name] = item(home, name)
                public.add(name)
        names["__all__"] = sorted(name for name in public if not name.startswith("_"))


def _module(package: str, name: str, table: dict[str, dict[str, str]]) -> ModuleType:
    """Makes a module of the table, which imports find from now on; the package itself exists already."""
    if not name:
        return sys.modules[package]
    path = f"{package}.{name}"
    module = ModuleType(
        path, f"``{path.replace('tilewright', 'triton', 1)}``: names that kernels of Gluon use."
    )
    is_package = any(other.startswith(f"{name}.") for other in table)
    module.__spec__ = ModuleSpec(path, None, is_package=is_package)
    module.__package__ = path if is_package else path.rpartition(".")[0]
    if is_package:
        module.__path__ = []
    sys.modules[path] = module
    return module
