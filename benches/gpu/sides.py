"""The benchmarks' kernels, loaded once for each implementation of the language."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

KERNELS = Path(__file__).resolve().parents[1] / "kernels.py"

TRITON = "triton"
TILEWRIGHT = "tilewright"
TORCH = "torch"
SIDES = (TORCH, TRITON, TILEWRIGHT)
"""In the order of the table. The first has no kernels."""

_names_of_modules = threading.Lock()
"""Held while a name is that of another package: two threads would restore each other's."""


def load(package: str, kernels: Path = KERNELS) -> ModuleType:
    """The module of kernels whose `import triton`, or `import tilewright`, was `package`; both can be in one process.

    `install_as_triton` is for one implementation a process, so only this one module sees the other name.
    """
    with _names_of_modules, _imported_as_triton(package):
        spec = importlib.util.spec_from_file_location(f"{kernels.stem}_of_{package}", kernels)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@contextmanager
def _imported_as_triton(package: str) -> Iterator[None]:
    for part in ("language", "experimental.gluon.language.nvidia.hopper", "experimental.gluon.nvidia.hopper"):
        importlib.import_module(f"{package}.{part}")
    modules = {
        other + name.removeprefix(package): module
        for name, module in sys.modules.items()
        if name == package or name.startswith(f"{package}.")
        for other in (TRITON, TILEWRIGHT)
    }
    before = {name: sys.modules.pop(name, None) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
