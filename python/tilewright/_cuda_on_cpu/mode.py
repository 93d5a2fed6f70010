"""The mode of torch that sees every call of a program, and the points at which it has to be switched on again."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from tilewright._cuda_on_cpu.classes import drawn_from
from tilewright._cuda_on_cpu.device_marks import is_fake
from tilewright._cuda_on_cpu.graphs import is_capturing, refuse_compiled_code
from tilewright._cuda_on_cpu.operators import watch_operators

if TYPE_CHECKING:
    from tilewright._cuda_on_cpu.device_marks import Marks

# Attributes and methods whose results hold no tensors.
_PLAIN_ATTRIBUTES = "shape dtype ndim layout requires_grad is_leaf grad_fn itemsize nbytes is_sparse names"
_PLAIN_METHODS = (
    "size stride dim numel nelement data_ptr element_size is_contiguous is_floating_point item tolist storage_offset "
    "__len__ __bool__ __int__ __float__ __index__ __hash__ __repr__ __format__"
)


class _PastMode(threading.local):
    """If ``holds``, this thread runs a compiled function: the mode stays off, in nested backward passes too."""

    holds = False


_past_mode = _PastMode()


def make_mode(torch: Any, mark: Marks) -> Any:
    """Makes the mode, which belongs to one thread; it is not on yet."""
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
        torch.histc: mark.histogram,
        tensor.histc: mark.histogram,
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
            if args and type(args[0]) is not tensor and is_fake(args[0]):
                return func(*args, **(kwargs or {}))
            if kwargs and "generator" in kwargs:
                kwargs = {**kwargs, "generator": drawn_from(kwargs["generator"])}
            if types and (len(types) > 1 or types[0] is not tensor) and is_enabled():
                # Parameters and the like have the default `__torch_function__`; properties name the class in any case.
                kinds = [kind for kind in types if issubclass(kind, tensor) and looks_into(kind)]
                if kinds:
                    return self._to_classes(kinds, func, types, args, kwargs or {})
            return handle(func, otherwise)(func, args, kwargs or {})

        def _to_classes(
            self, kinds: list[Any], func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            """Calls ``__torch_function__`` of derived classes with this mode on: it is the program's code."""
            with self:
                for kind in kinds:
                    result = kind.__torch_function__(func, types, args, kwargs)
                    if result is not NotImplemented:
                        return result
            return func(*args, **kwargs)

    return CudaOnCpu()


def watch_new_threads(mode: Any) -> None:
    """Switches the mode on in each thread that the program starts."""
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


def watch_callbacks(torch: Any, mark: Marks, mode: Any) -> None:
    """Switches the mode on where torch's C++ calls the program, and marks the tensors that it passes."""
    stack = importlib.import_module("torch.overrides")._get_current_function_mode_stack

    @contextmanager
    def switched_on() -> Iterator[None]:
        if _past_mode.holds or any(other is mode for other in stack()):
            yield
        else:
            with mode:
                yield

    mark.overrides.switched_on = switched_on
    variable = torch.autograd.Variable
    engine: Any = type(variable._execution_engine)

    class Engine(engine):  # type: ignore[misc]
        """Runs backward passes: hooks and ``backward`` of the program's functions."""

        def run_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
            with switched_on(), mark.assuming([tensors]) as holds:
                if not holds:
                    return super().run_backward(tensors, *args, **kwargs)
                return mark.overrides.call(super().run_backward, (tensors, *args), kwargs)

    variable._execution_engine = Engine()

    def calling_back(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with switched_on():
                return function(*args, **kwargs)

        return call

    hooks = torch.autograd.graph.saved_tensors_hooks
    real_init, real_enter, real_exit = hooks.__init__, hooks.__enter__, hooks.__exit__

    @functools.wraps(real_init)
    def init(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        real_init(self, calling_back(lambda tensor: pack_hook(mark.saved(tensor))), calling_back(unpack_hook))

    @functools.wraps(real_enter)
    def enter(self: Any) -> Any:
        result = real_enter(self)
        mark.enter_hooks()
        return result

    @functools.wraps(real_exit)
    def leave(self: Any, *error: Any) -> Any:
        mark.leave_hooks()
        return real_exit(self, *error)

    hooks.__init__, hooks.__enter__, hooks.__exit__ = init, enter, leave

    # Tensors that C++ makes of the arguments have no marks: views of inputs that a function returns unchanged, tensors
    # of a transform, tensors of another library.
    real_apply = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with mark.calling((args, kwargs)) if mark.hooks else nullcontext():
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
    watch_operators(torch, mark, switched_on)


def _watch_classes(tensor: Any, name: str, mark: Marks) -> None:
    """Marks tensors of derived classes: torch does not show modes their construction."""
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


def compile_past(mode: Any, mark: Marks, torch: Any) -> Any:
    """Wraps ``torch.compile``: compiled functions run without the mode, because the mode must not be compiled.

    If an argument is marked, the results are marked, and the tensors that the function passes to kernels count as
    marked: the mode does not see how they are made. A compiled function that itself moves tensors has to say ``cpu``.
    """
    real = torch.compile
    past = _past(mode, mark)
    _compile_backward_past(torch, past)

    @functools.wraps(real)
    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compile(function, **options)
        compiled = real(model, **options)
        if isinstance(compiled, type):
            # Torch has compiled the calls of the instances, and returns the class itself.
            for name in ("__call__", "_call_impl"):
                if name in vars(compiled):
                    setattr(compiled, name, past(vars(compiled)[name]))
            return compiled
        if isinstance(compiled, torch.nn.Module):
            compiled.forward = past(compiled.forward)
            return compiled
        return past(compiled)

    return compile


def _past(mode: Any, mark: Marks) -> Callable[[Any], Any]:
    """Returns a decorator: the decorated function runs with the mode off."""
    overrides = importlib.import_module("torch.overrides")

    def past(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if (
                overrides._len_torch_function_stack() == 0
                or overrides._get_current_function_mode() is not mode
            ):
                return function(*args, **kwargs)
            if is_capturing():
                refuse_compiled_code()
            arguments = (args, tuple(kwargs.values()))
            before = _past_mode.holds
            overrides._pop_mode()
            _past_mode.holds = True
            try:
                # Computed before the call: torch empties a list of gradients, so that they do not outlive their use.
                with mark.assuming(arguments) as marked:
                    result = function(*args, **kwargs)
            finally:
                _past_mode.holds = before
                overrides._push_mode(mode)
            return mark.as_found(result, marked)

        return call

    return past


def _compile_backward_past(torch: Any, past: Callable[[Any], Any]) -> None:
    """Does the same for the backward passes of compiled functions, which torch may compile at their first run."""
    node = torch.autograd.function.BackwardCFunction

    def where_compiled(real: Any) -> Any:
        compiled = past(real)

        @functools.wraps(real)
        def apply(self: Any, *args: Any) -> Any:
            is_compiled = hasattr(getattr(self, "_forward_cls", None), "_aot_id")
            return (compiled if is_compiled else real)(self, *args)

        return apply

    # C++ calls one of these methods, depending on the release of torch and on the function.
    for name in ("apply", "apply_boxed"):
        if hasattr(node, name):
            setattr(node, name, where_compiled(getattr(node, name)))
