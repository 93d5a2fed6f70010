"""``trace``: kernels whose launches are recorded."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from tilewright import _native
from tilewright.runtime.autotuner import Autotuner, Heuristics
from tilewright.runtime.jit import JITFunction, KernelInterface
from tilewright.viz import _session, clients
from tilewright.viz._config import config
from tilewright.viz._tensors import HostCopies, describe


class Trace(KernelInterface[Any]):
    """A kernel whose launches are recorded; what else it is asked for, the kernel answers."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.base_fn = getattr(fn, "fn", fn)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Launches on the CPU, and records what the programs do."""
        if warmup:
            return self.fn.run(*args, grid=grid, warmup=True, **kwargs)
        kernel, kwargs = _resolved(self.fn, args, {**kwargs, "grid": grid})
        grid = kwargs.pop("grid")
        kwargs.pop("warmup", None)
        if (call := _python_call(kernel)) is not None:
            raise _native.needs_interpreter(kernel, *call)
        copies = HostCopies()
        args = tuple(copies.of(arg) for arg in args)
        kwargs = {name: copies.of(value) for name, value in kwargs.items()}
        try:
            return _record(kernel, grid, args, kwargs)
        finally:
            copies.bring_back()

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        """Compiles without running."""
        return self.fn.warmup(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("fn", "base_fn"):
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __repr__(self) -> str:
        return f"Trace({self.fn!r})"


def trace(kernel: Any = None, *args: Any, clients: Any = None, client: Any = None, **_options: Any) -> Any:
    """Has the launches of a kernel recorded: ``@trace``, ``@trace()``, ``@trace("tracer")``, ``trace(kernel)[grid]``.

    It stands above ``@triton.jit`` and ``@triton.autotune``. Whatever ``clients`` a program names, everything is
    recorded; other options of the public triton-viz are accepted.
    """
    wanted = [*(clients if isinstance(clients, (list, tuple)) else [clients]), client, *args]
    if kernel is None or isinstance(kernel, (str, _clients.Client, list, tuple)) or _is_client(kernel):
        wanted += kernel if isinstance(kernel, (list, tuple)) else [kernel]
        _clients.check(wanted)
        return _traced
    _clients.check(wanted)
    return _traced(kernel)


_clients = clients


def _is_client(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, _clients.Client)


def _traced(kernel: Any) -> Trace:
    if isinstance(kernel, Trace):
        return kernel
    if not isinstance(kernel, (JITFunction, Autotuner, Heuristics)):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise TypeError(
            f"triton_viz.trace takes a kernel, and '{name}' is none: put @triton_viz.trace above @triton.jit (and "
            "above @triton.autotune)"
        )
    return Trace(kernel)


def _resolved(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[JITFunction[Any], dict[str, Any]]:
    """The kernel beneath tuners and heuristics, and the arguments that they make of these; tunes if need be."""
    while not isinstance(fn, JITFunction):
        kwargs = fn._chosen(args, kwargs) if isinstance(fn, Autotuner) else fn._computed(args, dict(kwargs))
        fn = fn.fn
    return fn, dict(kwargs)


def _python_call(kernel: JITFunction[Any]) -> tuple[str, int, tuple[int, int]] | None:
    """The first call of a function of Python's that only an interpreter can run: its name, line and columns."""
    known = kernel.__globals__
    tree = ast.parse(kernel._src)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _PYTHON:
            name = node.func.id
            if known.get(name, getattr(builtins, name)) is getattr(builtins, name):
                line = kernel._src.splitlines()[node.lineno - 1].encode()
                end = node.end_col_offset if node.end_lineno == node.lineno else len(line)
                return name, node.lineno - 1, (node.col_offset, end or len(line))
    return None


_PYTHON = frozenset(("print", "breakpoint"))


def _record(kernel: JITFunction[Any], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    named = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
    for param in kernel.params:
        if param.has_default:
            named.setdefault(param.name, param.default)
    tensors = describe({name: named[name] for name in kernel.arg_names if name in named})
    recorder = _session.recorder()
    number = recorder.next_launch()
    kept = [
        (index, tensor)
        for index, tensor in enumerate(tensors)
        if _elements(tensor.shape) * tensor.size <= config.tensor_bytes
    ]
    for index, tensor in kept:
        recorder.snapshot(number, index, False, tensor.content())
    handle = recorder.launch(
        kernel,
        (1,) if grid is None else grid,
        args,
        kwargs,
        number=number,
        programs=config.programs,
        value_bytes=config.value_bytes,
        all_bytes=config.max_bytes,
        tensors=[tensor.parts() for tensor in tensors],
        constants=[
            (p.name, repr(named[p.name])) for p in kernel.params if p.is_constexpr and p.name in named
        ],
    )
    for index, tensor in kept:
        recorder.snapshot(number, index, True, tensor.content())
    return handle


def _elements(shape: list[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
