"""Operators that programs define (``torch.library``), while ``cuda`` is the processor (see the package).

Torch's dispatcher calls their kernels without the mode, so the mode is enabled again for each kernel. The dispatcher
only sees tensors of the CPU: a kernel for ``cuda`` runs if an argument is marked.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright._cuda_on_cpu.device_marks import Marks

NAMESPACES_OF_TORCH = ("aten", "prims", "prim")
"""The namespaces of torch's own operators: `overrides.py` handles programs' kernels for them."""

_ANY = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
_WATCHED = ("CPU", "CUDA", "Autograd", "AutogradCPU", *_ANY)


def watch_operators(torch: Any, mark: Marks, switched_on: Callable[[], Any]) -> None:
    """Watches registrations of ``torch.library`` from now on, by any of its interfaces."""
    library = torch.library.Library
    real = library.impl
    all_kernels: dict[tuple[str, str], _Kernels] = {}

    def with_mode(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with switched_on(), mark.assuming((args, tuple(kwargs.values()))):
                return function(*args, **kwargs)

        return call

    @functools.wraps(real)
    def impl(
        self: Any, op_name: Any, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False, **options: Any
    ) -> None:
        key = dispatch_key or self.dispatch_key or _ANY[1]
        is_of_program = isinstance(fn, types.FunctionType) and fn is not torch.library.fallthrough_kernel
        if not is_of_program or self.ns in NAMESPACES_OF_TORCH or key not in _WATCHED:
            real(self, op_name, fn, dispatch_key, with_keyset=with_keyset, **options)
            return
        fn = with_mode(fn)
        name = (self.ns, _name_of(op_name))
        kernels = all_kernels.setdefault(name, _Kernels("::".join(name), mark))
        if key != "CPU":
            real(self, op_name, fn, key, with_keyset=with_keyset, **options)
        if key not in ("CPU", "CUDA", *_ANY):
            return
        kernels.by_key[key] = (fn, with_keyset)
        if key in ("CPU", "CUDA") and not kernels.is_requested:
            real(self, op_name, kernels.choose, "CPU", with_keyset=True)
            kernels.is_requested = True

    library.impl = impl


class _Kernels:
    """The kernels of one operator."""

    def __init__(self, name: str, mark: Marks) -> None:
        self.name = name
        self.mark = mark
        self.by_key: dict[str, tuple[Callable[..., Any], bool]] = {}
        self.is_requested = False
        """True if the dispatcher calls ``choose`` to select a kernel."""

    def choose(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernel that a machine with a GPU would run."""
        is_marked = self.mark.any((*args, *kwargs.values()))
        # Without a kernel for the GPU, a kernel for the CPU can run: both devices have the same
        # memory here.
        for key in ("CUDA", *_ANY, "CPU") if is_marked else ("CPU", *_ANY):
            if key in self.by_key:
                kernel, takes_keyset = self.by_key[key]
                return kernel(keyset, *args, **kwargs) if takes_keyset else kernel(*args, **kwargs)
        raise NotImplementedError(
            f"Could not run '{self.name}' with arguments from the 'CPU' backend: it only has a kernel for 'cuda'"
        )


def _name_of(operator: Any) -> str:
    """The name of an operator and of its overload, without the namespace."""
    if isinstance(operator, str):
        return operator.split("::")[-1]
    schema = operator._schema
    name: str = schema.name.split("::")[-1]
    return f"{name}.{schema.overload_name}" if schema.overload_name else name
