"""``triton.compiler.compiler``: the compiled kernel, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from tilewright import _native
from tilewright._missing import missing_names
from tilewright._native import CompiledKernel as CompiledKernel
from tilewright.runtime.cache import triton_key as triton_key

__getattr__ = missing_names(
    "tilewright.compiler.compiler", "ASTSource CompileTimer IRSource compile get_cache_key make_backend parse"
)


class KernelMetadata(SimpleNamespace):
    """The options that a kernel was compiled with, and what it takes of the device."""

    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(vars(self))

    def _asdict(self) -> dict[str, Any]:
        return dict(vars(self))


class AsmDict(Mapping[str, "str | bytes"]):
    """The text of each stage of a compiled kernel, made when it is asked for; of ``cubin`` the bytes."""

    # Programs ask for the stages by the names of the official compiler.
    _ALIASES = {"source": "ast", "ttir": "ir", "ttgir": "opt"}  # noqa: RUF012

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel

    def __getitem__(self, stage: str) -> str | bytes:
        stages = self._kernel._stages()
        name = stage if stage in stages else self._ALIASES.get(stage)
        if name not in stages:
            raise KeyError(f"{stage!r}: a kernel for this device has {', '.join(stages)}")
        return self._kernel._stage(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernel._stages())

    def __len__(self) -> int:
        return len(self._kernel._stages())


class LazyDict:
    """A dict some of whose entries are computed when the whole is asked for."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Any, tuple[Any, ...]]] = []

    def get(self) -> dict[str, Any]:
        """The dict."""
        for function, args in self.extras:
            self.data = self.data | function(*args)
        self.extras.clear()
        return self.data

    def add(self, func: Any, args: tuple[Any, ...]) -> None:
        """Adds the entries that a function returns."""
        self.extras.append((func, args))


def max_shared_mem(device: int | None = None) -> int:
    """The shared memory of a multiprocessor."""
    return _native.device_properties(device)["max_shared_mem"]
