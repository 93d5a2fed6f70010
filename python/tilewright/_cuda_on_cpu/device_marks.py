"""The marks of tensors that a program takes to be on the GPU, while ``cuda`` is the processor (see the package)."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tilewright._cuda_on_cpu.announcement import announce
from tilewright._cuda_on_cpu.overrides import Overrides

_NAME = "_tilewright_on_cuda"
_PINNED = "_tilewright_is_pinned"


def _rebuilt(rebuild: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A tensor that another process had marked."""
    tensor = rebuild(*args)
    tensor.__dict__[_NAME] = True
    return tensor


def is_fake(value: Any) -> bool:
    """Returns whether a tensor is a ``FakeTensor``: it has no memory, and may claim any device."""
    return type(value).__name__ == "FakeTensor"


class _Assumption(threading.local):
    """If ``holds``, tensors without a mark or its absence count as marked in this thread."""

    holds = False


class _Call(threading.local):
    """The innermost call of torch in this thread, while hooks see the tensors that autograd saves."""

    arguments: Any = None


class Marks:
    """The marks, and the effects of torch's calls on them."""

    def __init__(self, torch: Any, autocast: Any) -> None:
        self.torch = torch
        self.Tensor: Any = torch.Tensor
        self.autocast = autocast
        self.cuda0 = torch.device("cuda", 0)
        self.cpu0 = torch.device("cpu")
        # The default device (`torch.set_default_device`) applies to calls that name no device.
        self.defaults: Any = importlib.import_module("torch.utils._device")
        self.constructors: Any = self.defaults._device_constructors()
        self.stack_length: Any = importlib.import_module("torch.overrides")._len_torch_function_stack
        # The number of threads with an assumption about unmarked tensors: almost always 0.
        self.assumptions = 0
        self.assumption = _Assumption()
        # The number of threads' regions with hooks for saved tensors: almost always 0.
        self.hooks = 0
        self.current = _Call()
        self.lock = threading.Lock()
        self.operators = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
        self.overrides = Overrides(torch, self)
        self.mode_in_force: Any = torch._C._get_dispatch_mode
        self.fake_key: Any = torch._C._TorchDispatchModeKey.FAKE

    def has(self, value: Any) -> bool:
        """Returns whether a tensor is marked."""
        marked = value.__dict__.get(_NAME)
        if marked is None:
            return self.assumptions > 0 and self.assumption.holds and not (is_fake(value) or value.is_meta)
        return bool(marked)

    def is_faking(self) -> bool:
        """Returns whether torch makes fake tensors in this thread, which may be on any device."""
        return self.mode_in_force(self.fake_key) is not None

    def is_on_cpu(self, value: Any) -> bool:
        """Returns whether the program has put a tensor where a GPU cannot read it."""
        return not self.has(value) and not self.is_pinned(value)

    def is_cuda(self, device: Any) -> bool:
        """Returns whether a device, as programs name it, is the GPU; an error if it is a second one."""
        if isinstance(device, str):
            if not device.startswith("cuda"):
                return False
            index = None if device == "cuda" else self.torch.device(device).index
        elif isinstance(device, self.torch.device):
            if device.type != "cuda":
                return False
            index = device.index
        elif isinstance(device, int) and not isinstance(device, bool):
            # An integer is the ordinal of a GPU.
            index = device
        else:
            return False
        if index:
            self.no_such_device()
        return True

    def no_such_device(self) -> NoReturn:
        """Raises the error of a machine with one GPU for ``cuda:1``."""
        kind = getattr(self.torch, "AcceleratorError", RuntimeError)
        raise kind(
            "CUDA error: invalid device ordinal\n"
            "GPU device may be out of range, do you have enough GPUs?\n"
            "(tilewright: 'cuda' is the CPU here, and there is one: 'cuda:0')"
        )

    def set(self, value: Any, marked: bool) -> Any:
        """Marks the tensors of a result, or takes the marks away."""
        if isinstance(value, self.Tensor):
            if type(value) is not self.Tensor and is_fake(value):
                return value
            if marked:
                value.__dict__[_NAME] = True
            elif self.assumptions:
                value.__dict__[_NAME] = False
            else:
                value.__dict__.pop(_NAME, None)
        elif isinstance(value, (tuple, list)):
            for item in value:
                self.set(item, marked)
        elif isinstance(value, dict):
            self.set(list(value.values()), marked)
        return value

    def any(self, values: Iterable[Any]) -> bool:
        """Returns whether there is a marked tensor."""
        tensor = self.Tensor
        for value in values:
            if isinstance(value, tensor):
                # Inlined from `has`, since every call of torch comes here.
                marked = value.__dict__.get(_NAME)
                if marked or (marked is None and self.assumptions and self.has(value)):
                    return True
            elif isinstance(value, (tuple, list)) and self.any(value):
                return True
        return False

    def like(self, result: Any, arguments: Any) -> Any:
        """A result, marked if an argument is."""
        return self.as_found(result, self.any(arguments))

    def as_found(self, result: Any, marked: bool) -> Any:
        """As ``like``, if it is known whether an argument is marked."""
        if marked:
            return self.set(result, True)
        return self.set(result, False) if self.assumptions else result

    def like_unless_known(self, result: Any, arguments: Any) -> Any:
        """As ``like``, for results that may have been made on the CPU on purpose."""
        if not self.any(arguments):
            return result
        for item in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(item, self.Tensor):
                item.__dict__.setdefault(_NAME, True)
        return result

    @contextmanager
    def assuming(self, arguments: Any) -> Iterator[bool]:
        """Counts tensors without a known mark as marked, if an argument is marked."""
        with self.counting(self.any(arguments)) as holds:
            yield holds

    @contextmanager
    def counting(self, holds: bool) -> Iterator[bool]:
        """As ``assuming``, if it is known whether an argument is marked."""
        before = self.assumption.holds
        with self.lock:
            self.assumptions += holds
        self.assumption.holds = holds or before
        try:
            yield holds
        finally:
            self.assumption.holds = before
            with self.lock:
                self.assumptions -= holds

    def enter_hooks(self) -> None:
        """Begins a region in which torch shows the tensors that it saves to hooks of the program."""
        with self.lock:
            self.hooks += 1
            # New tensors of the CPU note that they are: those without a note come from C++.
            self.assumptions += 1

    def leave_hooks(self) -> None:
        """Ends such a region."""
        with self.lock:
            self.hooks -= 1
            self.assumptions -= 1

    @contextmanager
    def calling(self, arguments: Any) -> Iterator[None]:
        """Remembers the arguments of a call, which may save tensors."""
        before = self.current.arguments
        self.current.arguments = arguments
        try:
            yield
        finally:
            self.current.arguments = before

    def saved(self, value: Any) -> Any:
        """Marks a tensor that torch shows to a hook as those that the current call takes.

        The mode has not seen the tensor, if C++ made it: it is a result of the call, a view or a temporary. An
        argument without a mark is on the CPU. A recomputation in the backward pass, where tensors without a known mark
        count as marked, thus finds the devices that the hook has seen in the forward pass.
        """
        arguments = self.current.arguments
        if arguments is None or not isinstance(value, self.Tensor) or _NAME in value.__dict__:
            return value
        found: list[Any] = []
        self._each(arguments, found.append)
        if all(argument is not value for argument in found):
            return self.set(value, self.any(found))
        return value if self.has(value) else self.set(value, False)

    def assume(self, function: Any) -> Any:
        """Wraps a function of torch whose callbacks and results get tensors that C++ made of the arguments."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.assuming((args, tuple(kwargs.values()))) as holds:
                result = function(*args, **kwargs)
            return self.like_unless_known(result, args) if holds else result

        return call

    def transform(self, real: Any) -> Any:
        """Wraps a function of torch that makes such a function of one."""

        @functools.wraps(real)
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            return self.assume(real(function, *args, **kwargs))

        return call

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls any function: its results from marked tensors are marked, unless it names a device."""
        device = None
        if kwargs:
            device = kwargs.get("device")
            if "pin_memory" in kwargs:
                return self._pinned(func, args, kwargs)
        if device is None and self.defaults.CURRENT_DEVICE is not None and func in self.constructors:
            # The default device is a mode of the thread that set it, below the mode of this
            # package.
            device = self.defaults.CURRENT_DEVICE if self.stack_length() > 0 else None
        if device is None and type(func) in self.operators and not self.is_faking():
            for index, argument in enumerate(args):
                if isinstance(argument, self.torch.device):
                    return self._placed(func, args, kwargs, index)
        if device is None:
            if self.overrides.table and self.any((*args, *kwargs.values())):
                with self.overrides.active():
                    result = self._run(func, args, kwargs)
            else:
                result = self._run(func, args, kwargs)
            if args and result is args[0]:
                # The operation was in place, or returned its argument unchanged.
                return result
            if self.any((*args, *kwargs.values()) if kwargs else args):
                return self.set(result, True)
            return self.set(result, False) if self.assumptions else result
        marked = self.is_cuda(device)
        if marked and self.is_faking():
            return func(*args, **kwargs)
        if marked:
            announce()
            kwargs = {**kwargs, "device": self.cpu0}
            return self.set(self.overrides.call(func, args, kwargs), True)
        return self.set(func(*args, **kwargs), False)

    def _placed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int) -> Any:
        """Calls an operator (``torch.ops``) that takes a device as the argument at an index."""
        marked = self.is_cuda(args[index])
        if marked:
            announce()
            args = (*args[:index], self.cpu0, *args[index + 1 :])
        result = self.overrides.call(func, args, kwargs)
        if index > 0 and isinstance(args[0], self.Tensor) and isinstance(result, self.Tensor):
            return self._moved(args[0], result, marked)
        return self.set(result, marked)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.hooks:
            with self.calling((args, kwargs)):
                return self._cast(func, args, kwargs)
        return self._cast(func, args, kwargs)

    def _cast(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.autocast.call(self, func, args, kwargs) if self.autocast.depth else func(*args, **kwargs)

    def _pinned(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A constructor with ``pin_memory``: without a driver, only ``is_pinned`` shows an effect."""
        kwargs = dict(kwargs)
        pinned = kwargs.pop("pin_memory")
        result = self.call(func, args, kwargs)
        if pinned:
            announce()
            result.__dict__[_PINNED] = True
        return result

    def pin_memory(self, _func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        """``x.pin_memory()``: a copy, as it is with a GPU."""
        source = args[0]
        if self.is_pinned(source):
            return source
        announce()
        result = source.clone()
        result.__dict__[_PINNED] = True
        return result

    def is_pinned(self, value: Any) -> bool:
        """``x.is_pinned()``."""
        base = value._base
        return _PINNED in value.__dict__ or (base is not None and _PINNED in base.__dict__)

    def as_tensor(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``torch.as_tensor`` and ``torch.asarray``, which share memory where the device stays the same."""
        source = args[0] if args else None
        was_marked = isinstance(source, self.Tensor) and self.has(source)
        result = self.call(func, args, kwargs)
        device = kwargs.get("device")
        if device is None or self.is_cuda(device) == was_marked:
            return result
        if result is source:
            self.set(source, was_marked)
        return self.set(result.clone(), not was_marked)

    def histogram(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``torch.histc``, which a GPU has for integers too."""
        source: Any = args[0] if args else kwargs.get("input")
        if not self.has(source) or source.is_floating_point() or "out" in kwargs:
            return self.call(func, args, kwargs)
        if args:
            args = (source.double(), *args[1:])
        else:
            kwargs = {**kwargs, "input": source.double()}
        return self.set(func(*args, **kwargs).to(source.dtype), True)

    def _moved(self, source: Any, result: Any, marked: bool) -> Any:
        """The result of a move between the two memories: a copy, if the mark changes."""
        if result is source:
            if self.has(source) == marked:
                return result
            result = source.clone()
        return self.set(result, marked)

    def cuda(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.cuda()``."""
        if self.is_faking():
            return func(*args, **kwargs)
        device = args[1] if len(args) > 1 else kwargs.get("device")
        if device is not None and not self.is_cuda(device):
            raise ValueError(f"Invalid device, must be cuda device, got {device!r}")
        announce()
        return self._moved(args[0], args[0], True)

    def cpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.cpu()``."""
        return self._moved(args[0], func(*args, **kwargs), False)

    def to(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.to(device)``, ``x.to(dtype)``, ``x.to(other)``, and combinations."""
        if self.is_faking():
            return func(*args, **kwargs)
        source, *rest = args
        marked = self.has(source)
        first = rest[0] if rest else None
        if isinstance(first, self.Tensor):
            marked = self.has(first)
        elif isinstance(kwargs.get("other"), self.Tensor):
            marked = self.has(kwargs["other"])
        elif isinstance(first, (str, self.torch.device, int)):
            marked = self.is_cuda(first)
            rest[0] = self.cpu0 if marked else first
        elif kwargs.get("device") is not None:
            marked = self.is_cuda(kwargs["device"])
            kwargs = {**kwargs, "device": self.cpu0} if marked else kwargs
        if marked:
            announce()
            if self.has(source):
                return self._moved(source, self.overrides.call(func, (source, *rest), kwargs), True)
        return self._moved(source, func(source, *rest, **kwargs), marked)

    def type(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.type()`` and ``x.type("torch.cuda.FloatTensor")``."""
        source = args[0]
        kind = args[1] if len(args) > 1 else kwargs.get("dtype")
        marked = self.has(source)
        if kind is None:
            name = func(source)
            return name.replace("torch.", "torch.cuda.", 1) if marked else name
        if isinstance(kind, self.torch.dtype):
            return self._moved(source, func(source, kind), marked)
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        marked = name.startswith("torch.cuda.")
        if marked:
            announce()
        return self._moved(source, func(source, name.replace("torch.cuda.", "torch.", 1)), marked)

    def loading(self, load: Any) -> Any:
        """``torch.load``: of files with tensors of a GPU, and with a ``map_location`` that may be ``cuda``."""

        @functools.wraps(load)
        def past(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(map_location, (str, self.torch.device)):
                marked = self.is_cuda(map_location)
                if marked:
                    announce()
                return self.set(load(f, self.cpu0 if marked else map_location, *args, **kwargs), marked)
            if callable(map_location):
                return load(f, map_location, *args, **kwargs)
            # Files that were saved here contain the marks of tensors; files that were saved on a
            # GPU contain the name
            # of the device.
            on_cuda: set[int] = set()

            def locate(storage: Any, location: str) -> Any:
                location = (map_location or {}).get(location, location)
                if not location.startswith("cuda"):
                    return None if not map_location else storage
                self.is_cuda(location)
                on_cuda.add(storage.data_ptr())
                return storage

            result = load(f, locate, *args, **kwargs)
            if on_cuda:
                announce()
                self._each(result, lambda tensor: self._mark_stored(tensor, on_cuda))
            return result

        return past

    def keep_between_processes(self) -> None:
        """Makes tensors keep their marks when torch sends them to another process: by queues and pools."""
        pickler: Any = importlib.import_module("multiprocessing.reduction").ForkingPickler
        real = importlib.import_module("torch.multiprocessing.reductions").reduce_tensor

        def reduce(tensor: Any) -> Any:
            rebuild, args = real(tensor)
            return (_rebuilt, (rebuild, args)) if self.has(tensor) else (rebuild, args)

        for kind in (self.Tensor, self.torch.nn.Parameter):
            pickler.register(kind, reduce)

    def _mark_stored(self, tensor: Any, addresses: Any) -> None:
        with self.torch._C.DisableTorchFunction():
            address = tensor.untyped_storage().data_ptr()
        if address in addresses:
            self.set(tensor, True)

    def _each(self, value: Any, then: Callable[[Any], None]) -> None:
        """Calls a function with every tensor of a value."""
        if isinstance(value, self.Tensor):
            then(value)
        elif isinstance(value, self.torch.nn.Module):
            for tensor in (*value.parameters(), *value.buffers()):
                then(tensor)
        elif isinstance(value, (tuple, list)):
            for item in value:
                self._each(item, then)
        elif isinstance(value, dict):
            self._each(list(value.values()), then)

    def parameters(self, new: Any) -> Any:
        """``torch.nn.Parameter.__new__``: torch does not show it to modes."""

        @functools.wraps(new)
        def past(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
            return self.like(new(cls, data, requires_grad), [data])

        return past

    def device(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.device``."""
        return self.cuda0 if self.has(args[0]) else func(*args, **kwargs)

    def is_cpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.is_cpu``."""
        return not self.has(args[0]) and func(*args, **kwargs)

    def untyped_storage(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.untyped_storage()``, which knows its device."""
        storage = func(*args, **kwargs)
        storage.__dict__[_NAME] = self.has(args[0])
        return storage

    def is_storage_marked(self, storage: Any) -> bool:
        """Returns whether a storage is one of a marked tensor."""
        return bool(storage.__dict__.get(_NAME, False))

    def set_data(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x.data = y``, by which modules move their parameters."""
        result = func(*args, **kwargs)
        self.set(args[0], self.has(args[1]))
        return result
