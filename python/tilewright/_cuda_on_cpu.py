"""Runs programs that say ``cuda`` on the processor.

``tilewright run`` switches this on where torch finds no GPU; :func:`use_cpu_as_cuda` does the same for a program that
is started in another way. It works by torch's own override mechanism, a ``TorchFunctionMode``, which sees every call of
torch's functions and of the methods and attributes of tensors:

- A tensor that a program puts on ``cuda`` is made on the CPU and marked. The mark goes on to what is computed from it;
  ``x.is_cuda``, ``x.device`` (``cuda:0``) and ``x.get_device()`` answer by it. So ``x.device == DEVICE``,
  ``device=x.device``, ``assert x.is_cuda`` and ``f"{x.device}"`` are what they are on a machine with a GPU, while
  ``print(x)`` shows a tensor without ``device=``, because that is what it is.
- ``.cuda()``, ``.cpu()`` and ``.to(...)`` copy when the mark changes, as they do between two memories.
- The functions of ``torch.cuda`` that programs call get stand-ins (see ``_torch_cuda.py``).

The mode is one of a thread, and torch takes it off while a call that it saw runs. So it is switched on in each new
thread, and again where torch calls back into the program: hooks and ``backward`` of autograd, and
``__torch_function__`` of classes derived from tensors. Gradients come from C++ without a mark: within the backward pass
of a marked tensor, a tensor that is neither marked nor known to be on the CPU counts as marked.

A launch with tensors of both devices is refused, as on a GPU. But it is one machine with one memory, and some programs
work here that fail on a GPU: ``x.numpy()`` of a tensor on ``cuda``, operations of torch on tensors of both devices,
launches with tensors of the CPU alone, generators of the other device. Random numbers of ``cuda`` come from the
generator of the CPU: they are not those of a GPU, and ``torch.cuda.manual_seed`` seeds both.

Not in reach: threads that were running when torch was imported or that ``threading`` did not start; and
``__torch_dispatch__`` and what ``torch.compile`` compiles, which see the CPU.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright._cuda_marks import Marks

_NOTICE = (
    "tilewright: this machine has no CUDA device: what the program puts on 'cuda' is on the CPU "
    "(`tilewright run --device cuda` refuses that)"
)

_active = False
_is_announced = False


def is_active() -> bool:
    """Whether programs that say ``cuda`` run on the processor."""
    return _active


def is_announced() -> bool:
    """Whether the program has said ``cuda``."""
    return _is_announced


def announce() -> None:
    """Says so on stderr, once."""
    global _is_announced
    if not _is_announced:
        _is_announced = True
        print(_NOTICE, file=sys.stderr, flush=True)


def use_cpu_as_cuda() -> None:
    """From now on, what this program puts on ``cuda`` is on the CPU, if torch finds no GPU.

    ``tilewright run`` does this; call it where a program is started in another way, best before it imports torch. It
    holds for this thread and for those started from now on. One line on stderr says so when ``cuda`` is first used.
    """
    from tilewright._import_hook import when_imported

    def put_cuda_on_cpu(torch: ModuleType) -> None:
        install(torch)

    when_imported("torch", put_cuda_on_cpu)


def install(torch: Any) -> None:
    """Switches it on for this process, if torch finds no GPU."""
    global _active
    if _active or torch.cuda.is_available():
        return
    from tilewright import _native, _torch_autocast, _torch_classes, _torch_cuda
    from tilewright._cuda_marks import Marks

    _active = True
    mark = Marks(torch, _torch_autocast.install(torch))
    mode = _make_mode(torch, mark)
    _torch_cuda.install(torch)
    _torch_classes.install(torch, mark)
    torch.compile = _compile_past(mode, mark, torch)
    torch.load = mark.loading(torch.load)
    torch.nn.Parameter.__new__ = staticmethod(mark.parameters(torch.nn.Parameter.__new__))
    _watch_callbacks(torch, mark, mode)
    _watch_new_threads(mode)
    _native.set_torch_function_mode(mark.is_on_cpu)
    mode.__enter__()


# Attributes and methods whose results hold no tensors.
_PLAIN_ATTRIBUTES = "shape dtype ndim layout requires_grad is_leaf grad_fn itemsize nbytes is_sparse names"
_PLAIN_METHODS = (
    "size stride dim numel nelement data_ptr element_size is_contiguous is_floating_point item tolist storage_offset "
    "__len__ __bool__ __int__ __float__ __index__ __hash__ __repr__ __format__"
)


def _make_mode(torch: Any, mark: Marks) -> Any:
    from torch.overrides import TorchFunctionMode

    tensor = torch.Tensor

    def plain(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    handlers: dict[Any, Callable[..., Any]] = {
        tensor.cuda: mark.cuda,
        tensor.cpu: mark.cpu,
        tensor.to: mark.to,
        tensor.type: mark.type,
        tensor.get_device: lambda func, args, kwargs: 0 if mark.has(args[0]) else func(*args, **kwargs),
        tensor.pin_memory: mark.pin_memory,
        tensor.is_pinned: lambda _func, args, _kwargs: mark.is_pinned(args[0]),
        tensor.record_stream: lambda _func, _args, _kwargs: None,
        tensor.is_cuda.__get__: lambda _func, args, _kwargs: mark.has(args[0]),
        tensor.is_cpu.__get__: mark.is_cpu,
        tensor.device.__get__: mark.device,
        tensor.data.__set__: mark.set_data,
        tensor.untyped_storage: mark.untyped_storage,
        tensor.register_hook: plain,
        torch.as_tensor: mark.as_tensor,
        torch.asarray: mark.as_tensor,
    }
    for name in _PLAIN_ATTRIBUTES.split():
        if hasattr(tensor, name):
            handlers[getattr(tensor, name).__get__] = plain
    for name in _PLAIN_METHODS.split():
        handlers[getattr(tensor, name)] = plain
    handle: Any = handlers.get
    otherwise = mark.call
    is_enabled: Any = torch._C._is_torch_function_enabled
    disabled: Any = torch._C._disabled_torch_function_impl

    def looks_into(kind: Any) -> bool:
        return kind is not tensor and kind.__torch_function__ is not disabled

    class CudaOnCpu(TorchFunctionMode):  # type: ignore[misc]
        """Sees every call of torch's API in this thread."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if types and (len(types) > 1 or types[0] is not tensor) and is_enabled():
                # Parameters and the like look into nothing; properties name the class, whatever it is.
                kinds = [kind for kind in types if issubclass(kind, tensor) and looks_into(kind)]
                if kinds:
                    return self._to_classes(kinds, func, types, args, kwargs or {})
            return handle(func, otherwise)(func, args, kwargs or {})

        def _to_classes(
            self, kinds: list[Any], func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            """What torch does next for tensors of derived classes, with this mode on: it is the program's code."""
            with self:
                for kind in kinds:
                    result = kind.__torch_function__(func, types, args, kwargs)
                    if result is not NotImplemented:
                        return result
            return func(*args, **kwargs)

    return CudaOnCpu()


def _watch_new_threads(mode: Any) -> None:
    """Switches the mode on in each thread that the program starts."""
    import threading

    stack_length = importlib.import_module("torch.overrides")._len_torch_function_stack
    real = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(self: Any) -> None:
        mode.__enter__()
        try:
            real(self)
        finally:
            if stack_length() > 0:
                mode.__exit__(None, None, None)

    threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]


def _watch_callbacks(torch: Any, mark: Marks, mode: Any) -> None:
    """Switches the mode on where torch's C++ calls the program, and marks what it passes."""
    stack = importlib.import_module("torch.overrides")._get_current_function_mode_stack

    @contextmanager
    def switched_on() -> Iterator[None]:
        if any(other is mode for other in stack()):
            yield
        else:
            with mode:
                yield

    variable = torch.autograd.Variable
    engine: Any = type(variable._execution_engine)

    class Engine(engine):  # type: ignore[misc]
        """Runs backward passes: hooks and ``backward`` of the program's functions."""

        def run_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
            with switched_on(), mark.assuming([tensors]):
                return super().run_backward(tensors, *args, **kwargs)

    variable._execution_engine = Engine()

    def calling_back(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with switched_on():
                return function(*args, **kwargs)

        return call

    hooks = torch.autograd.graph.saved_tensors_hooks
    real_init = hooks.__init__

    @functools.wraps(real_init)
    def init(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        real_init(self, calling_back(pack_hook), calling_back(unpack_hook))

    hooks.__init__ = init

    # What C++ makes of the arguments has no marks: views of inputs that a function returns as they are, tensors of a
    # transform, tensors of another library.
    real_apply = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        result = real_apply.__get__(None, cls)(*args, **kwargs)
        return mark.like_unless_known(result, args)

    torch.autograd.Function.apply = classmethod(apply)
    for name in ("as_subclass", "_make_subclass"):
        _watch_classes(torch.Tensor, name, mark)
    for transform in ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian"):
        _replace(torch, ["func", "_functorch.apis", "_functorch.eager_transforms"], transform, mark.transform)
    torch.vmap = torch.func.vmap
    for transform in ("vjp", "jvp"):
        _replace(torch, ["func", "_functorch.eager_transforms"], transform, mark.assume)
    _replace(torch, ["", "utils.dlpack"], "from_dlpack", mark.assume)


def _watch_classes(tensor: Any, name: str, mark: Marks) -> None:
    """Marks tensors of derived classes: torch does not show modes how they are made."""
    real = getattr(tensor, name)

    @functools.wraps(real)
    def make(*args: Any, **kwargs: Any) -> Any:
        return mark.like_unless_known(real(*args, **kwargs), args)

    is_static = not hasattr(real, "__objclass__")
    setattr(tensor, name, staticmethod(make) if is_static else make)


def _replace(torch: Any, modules: list[str], name: str, wrap: Callable[[Any], Any]) -> None:
    """Wraps a function in the modules of torch that have it."""
    wrapped = None
    for path in modules:
        owner: Any = torch
        for part in path.split("."):
            owner = getattr(owner, part, None) if part else owner
        real = getattr(owner, name, None)
        if real is not None:
            wrapped = wrapped or wrap(real)
            setattr(owner, name, wrapped)


def _compile_past(mode: Any, mark: Marks, torch: Any) -> Any:
    """``torch.compile`` for functions that run past the mode: the compiler would take it for a part of the program.

    What they return is marked if an argument is. A compiled function that itself moves tensors has to say ``cpu``.
    """
    overrides = importlib.import_module("torch.overrides")
    real = torch.compile

    def past(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if (
                overrides._len_torch_function_stack() == 0
                or overrides._get_current_function_mode() is not mode
            ):
                return function(*args, **kwargs)
            overrides._pop_mode()
            try:
                result = function(*args, **kwargs)
            finally:
                overrides._push_mode(mode)
            return mark.like(result, (args, tuple(kwargs.values())))

        return call

    @functools.wraps(real)
    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compile(function, **options)
        compiled = real(model, **options)
        if isinstance(compiled, torch.nn.Module):
            compiled.forward = past(compiled.forward)
            return compiled
        return past(compiled)

    return compile
