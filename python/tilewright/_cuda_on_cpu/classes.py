"""Stand-ins for classes of torch that are made for a device, while ``cuda`` is the processor."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from tilewright._cuda_on_cpu import random_state
from tilewright._cuda_on_cpu.announcement import announce
from tilewright._cuda_on_cpu.torch_cuda import Event, Stream, is_torch

_LEGACY = "Float Double Half BFloat16 Long Int Short Byte Char Bool"


def install(torch: Any, mark: Any) -> None:
    """Puts the stand-ins into ``torch``."""
    torch.Generator = _generator(torch, mark)
    torch.Stream, torch.Event = _of_cuda(torch.Stream, Stream), _of_cuda(torch.Event, Event)
    _legacy_tensors(torch, mark)
    _storages(torch, mark)


def _generator(torch: Any, mark: Any) -> Any:
    real: Any = torch.Generator
    names = real.__name__, real.__qualname__, real.__module__, real.__doc__

    class Kind(type(real)):  # type: ignore[misc]
        """Other generators, such as ``torch.default_generator``, are generators too."""

        def __instancecheck__(cls, value: Any) -> bool:
            return type.__instancecheck__(real, value)

        def __call__(cls, device: Any = "cpu") -> Any:
            if not mark.is_cuda(device):
                return real(device)
            announce()
            made = super().__call__("cpu")
            made._tilewright_on_cuda = True
            return made

    class Generator(real, metaclass=Kind):  # type: ignore[misc]
        """Random numbers of the CPU, which call themselves those of ``cuda``."""

        _tilewright_on_cuda = False

        @property
        def device(self) -> Any:
            """Its device."""
            return mark.cuda0 if self._tilewright_on_cuda else super().device

        def get_state(self) -> Any:
            """As on a GPU, 16 bytes."""
            return random_state.get(super())

        def set_state(self, state: Any) -> Any:
            """Takes what ``get_state`` has returned."""
            random_state.put(super(), state)
            return self

        def get_offset(self) -> int:
            """The second half of the state."""
            return random_state.offset_of(super())

        def set_offset(self, offset: int) -> None:
            """Changes the second half of the state."""
            random_state.put_offset(super(), offset)

        def clone_state(self) -> Any:
            """Another one with the same state."""
            made = Generator(self.device)
            made.set_state(self.get_state())
            return made

        def __reduce__(self) -> Any:
            return _restored_generator, (str(self.device), self.get_state())

    Generator.__name__, Generator.__qualname__, Generator.__module__, Generator.__doc__ = names
    if hasattr(torch.cuda, "default_generators"):
        torch.cuda.default_generators = (_named(Generator, torch.default_generator),)
    return Generator


def _restored_generator(device: str, state: Any) -> Any:
    made = sys.modules["torch"].Generator(device)
    made.set_state(state)
    return made


_OF_STATES: dict[str, Callable[..., Any]] = {
    "get_state": random_state.get,
    "set_state": random_state.put,
    "get_offset": random_state.offset_of,
    "set_offset": random_state.put_offset,
}


def _named(kind: Any, default: Any) -> Any:
    """The default generator of ``cuda``: that of the CPU."""

    class Default(kind):  # type: ignore[misc]
        """Passes all attributes on."""

        def __getattribute__(self, name: str) -> Any:
            if name in (
                "device",
                "__class__",
                "_tilewright_on_cuda",
                "_tilewright_stands_for",
                "clone_state",
            ):
                return super().__getattribute__(name)
            if name in ("get_state", "set_state", "get_offset", "set_offset"):
                return functools.partial(_OF_STATES[name], default)
            return getattr(default, name)

    made = type.__call__(Default, "cpu")
    made._tilewright_on_cuda = True
    made._tilewright_stands_for = default
    return made


def drawn_from(generator: Any) -> Any:
    """Returns the generator that torch draws from for this one."""
    return getattr(generator, "_tilewright_stands_for", generator)


def _of_cuda(real: Any, stand_in: Any) -> Any:
    """A class that makes the stand-in for ``cuda``, and the real thing for others."""

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, (real, stand_in))

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            device = str(kwargs.get("device", args[0] if args else "cuda"))
            return (stand_in if device.startswith(("cuda", "0")) else real)(*args, **kwargs)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    made = Kind(real.__name__, (), {"__doc__": real.__doc__})
    made.__module__, made.__qualname__ = real.__module__, real.__qualname__
    return made


def _legacy_tensors(torch: Any, mark: Any) -> None:
    """``torch.cuda.FloatTensor`` and the like: names of types, which can be called."""

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            made: Any = cls
            return isinstance(value, torch.Tensor) and mark.has(value) and value.dtype is made.dtype

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            announce()
            made: Any = cls
            return mark.set(made.real(*args, **kwargs), True)

    for short in _LEGACY.split():
        name = short + "Tensor"
        real = getattr(torch, name, None)
        if real is None:
            continue
        made = Kind(
            name, (), {"real": real, "dtype": real.dtype, "is_cuda": True, "__module__": "torch.cuda"}
        )
        setattr(torch.cuda, name, made)

    real_default = torch.set_default_tensor_type

    def set_default_tensor_type(kind: Any) -> None:
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        if name.startswith("torch.cuda."):
            torch.set_default_device("cuda")
            kind = name.replace("torch.cuda.", "torch.", 1)
        real_default(kind)

    torch.set_default_tensor_type = set_default_tensor_type


def _storages(torch: Any, mark: Any) -> None:
    """``x.untyped_storage().device``; torch itself, which saves storages, gets the true device."""
    kind = torch.UntypedStorage
    real = kind.device

    def device(self: Any) -> Any:
        if mark.is_storage_marked(self) and not is_torch(sys._getframe(1)):
            return mark.cuda0
        return real.__get__(self)

    def is_cuda(self: Any) -> bool:
        return mark.is_storage_marked(self) and not is_torch(sys._getframe(1))

    kind.device, kind.is_cuda = property(device), property(is_cuda)
