"""Kernels that a program registers for ``cuda`` and torch's own operators, while ``cuda`` is the processor.

``torch.library.Library("aten", "IMPL").impl("abs", function, "CUDA")`` takes the place of torch's own kernel for
tensors on a GPU (``operators.py`` handles operators of the program's own). Here these tensors are the
CPU's, and the dispatcher would never call such a function. So a call of torch on ``cuda`` tensors runs under a
``TorchDispatchMode``, below autograd as kernels are: it calls the registered functions, and the CPU's kernels for all
other operators. Programs without registrations pay nothing.

An operator that torch composes of others (``CompositeImplicitAutograd``) is decomposed before a mode sees it. So the
CPU gets kernels of its own for it, which call the function or compose it as torch does.
"""

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright._cuda_on_cpu.operators import NAMESPACES_OF_TORCH

if TYPE_CHECKING:
    from tilewright._cuda_on_cpu.device_marks import Marks

_COMPOSED_BELOW_AUTOGRAD = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


class _State(threading.local):
    """``on`` while the mode is on in this thread."""

    on = False


class Overrides:
    """The registered functions, by the names of their operators."""

    def __init__(self, torch: Any, mark: Marks) -> None:
        self.torch = torch
        self.mark = mark
        self.table: dict[str, list[tuple[object, Callable[..., Any]]]] = {}
        self.state = _State()
        self.compositions: dict[Any, Any] = {}
        self.wholes: dict[str, Any] = {}
        self.mode = _make_mode(self)
        # The mode that sees calls of torch's functions, within the registered functions too.
        self.switched_on: Any = None

    def add(self, owner: object, operator: str, function: Callable[..., Any]) -> None:
        """Registers a function; the latest one replaces earlier ones."""
        self.table.setdefault(operator, []).append((owner, function))

    def remove(self, owner: object) -> None:
        """Forgets the registrations of a library."""
        for operator, found in list(self.table.items()):
            kept = [entry for entry in found if entry[0] is not owner]
            if kept:
                self.table[operator] = kept
            else:
                del self.table[operator]
                self.come_in_pieces(operator)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Treats the operators that torch calls meanwhile as those of ``cuda``."""
        if self.state.on or not self.table:
            yield
            return
        self.state.on = True
        try:
            with self.mode:
                yield
        finally:
            self.state.on = False

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function of torch on tensors of ``cuda``."""
        if not self.table:
            return func(*args, **kwargs)
        with self.active():
            return func(*args, **kwargs)

    def dispatch(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the registered function of an operator, else torch's."""
        before, self.state.on = self.state.on, False
        try:
            found = self.table.get(operator.name())
            if found is not None:
                return self._registered(found[-1][1], args, kwargs)
            key = self._composition(operator)
            if key is None:
                return (operator if _has_tensors(operator, args) else operator.overloadpacket)(
                    *args, **kwargs
                )
            # The operators that this one is composed of may have registered functions as well.
            with self.active():
                return operator._op_dk(key, *args, **kwargs)
        finally:
            self.state.on = before

    def _registered(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = kwargs.get("device")
        if device is not None and device.type == "cpu":
            kwargs = {**kwargs, "device": self.mark.cuda0}
        with self.switched_on(), self.mark.counting(True), self.mark.autocast.left():
            return function(*args, **kwargs)

    def keep_whole(self, name: str) -> None:
        """Gives the CPU kernels for an operator that torch composes of others."""
        has = self.torch._C._dispatch_has_kernel_for_dispatch_key
        composed = "CompositeImplicitAutograd"
        try:
            if has(name, "CPU") or not has(name, composed):
                return
        except RuntimeError:
            # The operator does not exist (yet).
            return
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        operator = getattr(getattr(getattr(self.torch.ops, namespace), packet), overload or "default")
        key = getattr(self.torch._C.DispatchKey, composed)
        modes = importlib.import_module("torch.utils._python_dispatch")

        def compose(*args: Any, **kwargs: Any) -> Any:
            return operator._op_dk(key, *args, **kwargs)

        def differentiable(*args: Any, **kwargs: Any) -> Any:
            if not self.state.on:
                return compose(*args, **kwargs)
            with modes._pop_mode_temporarily():
                return self.dispatch(operator, args, kwargs)

        library = self.wholes[name] = self.torch._C._dispatch_library("IMPL", namespace, "", __file__, 0)
        library.impl(rest, "CPU", compose)
        library.impl(rest, "AutogradCPU", differentiable)

    def come_in_pieces(self, name: str) -> None:
        """Removes these kernels."""
        library = self.wholes.pop(name, None)
        if library is not None:
            library.reset()

    def _composition(self, operator: Any) -> Any:
        """The dispatch key at which torch composes an operator of others below autograd; nothing if it does not."""
        if operator not in self.compositions:
            has = self.torch._C._dispatch_has_kernel_for_dispatch_key
            name = operator.name()
            taken = [argument.alias_info for argument in operator._schema.arguments if argument.alias_info]
            # Views are not decomposed: they compute nothing, and some would call themselves again.
            is_whole = has(name, "CPU") or any(not info.is_write for info in taken)
            keys = [] if is_whole else [key for key in _COMPOSED_BELOW_AUTOGRAD if has(name, key)]
            self.compositions[operator] = getattr(self.torch._C.DispatchKey, keys[0]) if keys else None
        return self.compositions[operator]


def _is_of_torch(function: Callable[..., Any]) -> bool:
    """Returns whether torch itself registers a function, which would be of no use here."""
    module = str(getattr(function, "__module__", ""))
    return module.startswith("torch.") and not module.startswith("torch._library.")


def _has_tensors(operator: Any, args: tuple[Any, ...]) -> bool:
    """Returns whether no declared tensor is a number: torch shows some tensors that it made of numbers as numbers."""
    pairs = zip(operator._schema.arguments, args, strict=False)
    return not any(
        isinstance(value, (bool, int, float, complex)) and argument.type.kind() == "TensorType"
        for argument, value in pairs
    )


def _make_mode(overrides: Overrides) -> Any:
    """Makes the mode; it is not on yet."""
    modes = importlib.import_module("torch.utils._python_dispatch")
    higher_order = importlib.import_module("torch._ops").HigherOrderOperator

    class Dispatch(modes.TorchDispatchMode):  # type: ignore[misc, name-defined]
        """Sees every operator that reaches a kernel."""

        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if isinstance(func, higher_order):
                # Programs register no kernels for these; `wrap_triton` launches by one.
                return func(*args, **(kwargs or {}))
            return overrides.dispatch(func, args, kwargs or {})

    return Dispatch()


def install(torch: Any, overrides: Overrides) -> None:
    """Watches the registrations of programs."""
    library = importlib.import_module("torch.library").Library
    real_impl, real_destroy = library.impl, library._destroy
    owners: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()

    @functools.wraps(real_impl)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: Any = "", **options: Any) -> Any:
        name = op_name if isinstance(op_name, str) else op_name.name()
        name = name if "::" in name else f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key
        key = key if isinstance(key, str) else key.name
        if key == "CPU":
            overrides.come_in_pieces(name)
        result = real_impl(self, op_name, fn, dispatch_key, **options)
        if (
            key != "CUDA"
            or name.partition("::")[0] not in NAMESPACES_OF_TORCH
            or not callable(fn)
            or _is_of_torch(fn)
        ):
            return result
        if options.get("with_keyset"):
            fn = functools.partial(fn, torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA))
        if self not in owners:
            owners[self] = owner = object()
            weakref.finalize(self, overrides.remove, owner).atexit = False
        overrides.keep_whole(name)
        overrides.add(owners[self], name, fn)
        return result

    @functools.wraps(real_destroy)
    def destroy(self: Any) -> None:
        if self in owners:
            overrides.remove(owners.pop(self))
        real_destroy(self)

    library.impl, library._destroy = impl, destroy
