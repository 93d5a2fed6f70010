"""``trace``: kernels whose launches are recorded."""

from __future__ import annotations

import ast
import builtins
import sys
from typing import Any

from tilewright import _native
from tilewright.runtime.autotuner import Autotuner, Heuristics
from tilewright.runtime.jit import JITFunction, KernelInterface
from tilewright.viz import _session, clients
from tilewright.viz._config import config
from tilewright.viz._tensors import HostCopies, describe


class Trace(KernelInterface[..., Any]):
    """A kernel whose launches are recorded; other attributes are the kernel's."""

    def __init__(self, fn: Any, checks: frozenset[str] = frozenset()) -> None:
        self.checks = checks
        """The checks of these launches, besides the checks of every launch."""
        self.fn = fn
        self.base_fn = getattr(fn, "fn", fn)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Launches on the CPU, and records the events of the programs."""
        if warmup:
            return self.fn.run(*args, grid=grid, warmup=True, **kwargs)
        kernel, kwargs = _resolved(self.fn, args, {**kwargs, "grid": grid})
        grid = kwargs.pop("grid")
        kwargs.pop("warmup", None)
        copies = HostCopies()
        args = tuple(copies.of(arg) for arg in args)
        kwargs = {name: copies.of(value) for name, value in kwargs.items()}
        try:
            return _record(kernel, grid, args, kwargs, self.checks)
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
    """Records the launches of a kernel: ``@trace``, ``@trace()``, ``@trace("tracer")``, ``trace(kernel)[grid]``.

    It is placed above ``@triton.jit`` and ``@triton.autotune``. Whatever ``clients`` a program names, everything is
    recorded; with ``"sanitizer"`` and ``"race_detector"`` among them launches are sanitized as well, and the page marks
    the findings. Other options of the public triton-viz are accepted.
    """
    wanted = [*(clients if isinstance(clients, (list, tuple)) else [clients]), client, *args]
    if kernel is None or isinstance(kernel, (str, _clients.Client, list, tuple)) or _is_client(kernel):
        wanted += kernel if isinstance(kernel, (list, tuple)) else [kernel]
        checks = _checks(wanted)
        return lambda kernel: _traced(kernel, checks)
    return _traced(kernel, _checks(wanted))


_clients = clients


def _is_client(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, _clients.Client)


def _checks(wanted: list[Any]) -> frozenset[str]:
    """The sanitizer checks that the clients request."""
    checks = _clients.checks_of(wanted)
    if "init" in checks and "torch" in sys.modules:
        # Memory that torch.empty makes from now on counts as unwritten.
        from tilewright import _sanitizer_torch

        _sanitizer_torch.watch()
    return checks


def _traced(kernel: Any, checks: frozenset[str]) -> Trace:
    if isinstance(kernel, Trace):
        return Trace(kernel.fn, kernel.checks | checks)
    if not isinstance(kernel, (JITFunction, Autotuner, Heuristics)):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise TypeError(
            f"triton_viz.trace takes a kernel, and '{name}' is none: put @triton_viz.trace above @triton.jit (and "
            "above @triton.autotune)"
        )
    return Trace(kernel, checks)


def _resolved(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[JITFunction[..., Any], dict[str, Any]]:
    """Returns the kernel beneath tuners and heuristics, and the arguments that they make of these; tunes if needed."""
    while not isinstance(fn, JITFunction):
        kwargs = fn._chosen(args, kwargs) if isinstance(fn, Autotuner) else fn._computed(args, dict(kwargs))
        fn = fn.fn
    return fn, dict(kwargs)


def _calls_python(kernel: JITFunction[..., Any]) -> bool:
    """Returns whether a kernel calls a Python function that only an interpreter can run."""
    source: str | None = kernel._src
    if source is None:
        return False
    known = kernel.__globals__
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _PYTHON:
            name = node.func.id
            if known.get(name, getattr(builtins, name)) is getattr(builtins, name):
                return True
    return False


_PYTHON = frozenset(("print", "breakpoint"))


def _record(
    kernel: JITFunction[..., Any],
    grid: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    checks: frozenset[str],
) -> Any:
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
    constants = [(p.name, repr(named[p.name])) for p in kernel.params if p.is_constexpr and p.name in named]
    grid = (1,) if grid is None else grid
    try:
        if kernel._is_to_be_interpreted() or _calls_python(kernel):
            from tilewright.viz import _interpreted

            return _interpreted.record(kernel, grid, args, kwargs, number, tensors, constants)
        # The option `sanitize` of a launch replaces the checks of the clients.
        is_own = kwargs.get("sanitize") is not None
        is_off = is_own or config.disable_sanitizer or not config.enable_sanitizer
        return _told(
            recorder.launch,
            kernel,
            grid,
            args,
            kwargs,
            number=number,
            programs=config.programs,
            value_bytes=config.value_bytes,
            all_bytes=config.max_bytes,
            tensors=[tensor.parts() for tensor in tensors],
            constants=constants,
            checks="none" if is_off or not checks else ",".join(sorted(checks)),
        )
    finally:
        # The contents after a failed launch are recorded too: they include its writes.
        for index, tensor in kept:
            recorder.snapshot(number, index, True, tensor.content())


def _told(launch: Any, *args: Any, **kwargs: Any) -> Any:
    """Launches, and prints the findings of clients if no sanitizer of the whole program does."""
    if kwargs["checks"] == "none" or _native.sanitizer_checks():
        return launch(*args, **kwargs)
    from tilewright import sanitizer

    before = len(sanitizer.reports())
    try:
        return launch(*args, **kwargs)
    finally:
        for report in sanitizer.reports()[before:]:
            print(f"{report}\n", file=sys.stderr)


def _elements(shape: list[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
