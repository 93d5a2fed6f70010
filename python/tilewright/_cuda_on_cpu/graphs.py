"""``torch.cuda.CUDAGraph``, while ``cuda`` is the processor: a list of captured operations and launches.

As on a GPU, only replays write the results of captured work: a capture notes launches and in-place operations, and
computes other operations once for the tensors that they return. A replay does all of it again, on the same memory.

Code that torch has compiled (``torch.compile``) bypasses the mode that notes operations, so a call of it in a capture
is an error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from tilewright import _native
from tilewright._cuda_on_cpu.announcement import announce

_capturing: CUDAGraph | None = None


def is_capturing() -> bool:
    """Returns whether a graph captures the program's launches now."""
    return _capturing is not None


def note_launch(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Notes a launch."""
    if _capturing is not None:
        _capturing._steps.append(lambda: kernel[grid](*args, **kwargs))


def refuse_compiled_code() -> None:
    """Raises an error: a capture does not see code that torch has compiled."""
    raise _native.not_available(
        "a capture into a torch.cuda.CUDAGraph of code that torch.compile has compiled is not available where 'cuda' "
        "is the CPU",
        "capture the function that is not compiled, or launch the compiled one again",
    )


class CUDAGraph:
    """Operations and launches that a replay does again as a whole."""

    def __init__(self, keep_graph: bool = False) -> None:
        announce()
        self._steps: list[Callable[[], Any]] = []
        self._pool = (0, id(self))
        self._mode: Any = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_options: Any) -> None:
        """Begins to note the program's operations and launches."""
        global _capturing
        if _capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self._pool = pool or self._pool
        self._steps = []
        self._mode = _make_mode(self._steps)
        self._mode.__enter__()
        _capturing = self
        _native.set_capturing(True)

    def capture_end(self) -> None:
        """Ends it."""
        global _capturing
        if _capturing is not self:
            raise RuntimeError("CUDA error: the graph is not being captured")
        _native.set_capturing(False)
        _capturing = None
        self._mode.__exit__(None, None, None)

    def instantiate(self) -> None:
        """Does nothing: there is nothing to prepare."""

    def replay(self) -> None:
        """Does all of it again."""
        torch = sys.modules["torch"]
        with torch.no_grad():
            for step in self._steps:
                step()

    def reset(self) -> None:
        """Forgets the captured work."""
        self._steps = []

    def pool(self) -> tuple[int, int]:
        """The key by which another graph may share this graph's memory."""
        return self._pool

    def register_generator_state(self, generator: Any) -> None:
        """Does nothing: replays draw new numbers anyway."""

    def enable_debug_mode(self) -> None:
        """Does nothing: there is nothing to dump."""


def _make_mode(steps: list[Callable[[], Any]]) -> Any:
    """Makes the mode that notes the operations of torch."""
    modes = importlib.import_module("torch.utils._python_dispatch")
    tree_leaves = importlib.import_module("torch.utils._pytree").tree_leaves
    torch = sys.modules["torch"]

    def tensors(value: Any) -> list[Any]:
        return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]

    class Capture(modes.TorchDispatchMode):  # type: ignore[misc, name-defined]
        """Sees every operation that reaches a kernel."""

        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if not hasattr(func, "_schema"):
                # A higher-order operator, such as that of `wrap_triton`, is captured by the
                # launches that it makes.
                return func(*args, **kwargs)
            if func.name() == "aten::_local_scalar_dense":
                raise RuntimeError(
                    "CUDA error: operation not permitted when stream is capturing: the program reads a value of a "
                    "tensor"
                )
            written = _written(func, args, kwargs)
            if written is not None:
                steps.append(lambda: func(*args, **kwargs))
                return written
            result = func(*args, **kwargs)
            is_view = any(argument.alias_info for argument in func._schema.arguments)
            outputs = tensors(result)
            if outputs and not is_view:
                steps.append(lambda: _assign(outputs, tensors(func(*args, **kwargs))))
            elif func._schema.is_mutable:
                # The operation changes its arguments. A capture on a GPU would not have run it, as
                # this one has.
                steps.append(lambda: func(*args, **kwargs))
            return result

    return Capture()


def _assign(outputs: list[Any], values: list[Any]) -> None:
    for output, value in zip(outputs, values, strict=True):
        output.copy_(value)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments that an operation returns if it only writes to them; nothing for another operation."""
    schema = func._schema
    if not schema.is_mutable or not schema.returns:
        return None
    named = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    by_alias = {
        tuple(argument.alias_info.before_set): named.get(argument.name)
        for argument in schema.arguments
        if argument.alias_info and argument.alias_info.is_write
    }
    results = [
        by_alias.get(tuple(result.alias_info.before_set)) if result.alias_info else None
        for result in schema.returns
    ]
    if any(result is None for result in results):
        return None
    return results[0] if len(results) == 1 else tuple(results)
