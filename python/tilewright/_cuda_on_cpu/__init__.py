"""Runs programs that use the device ``cuda`` on the processor.

``tilewright run`` switches this on where torch finds no GPU; :func:`use_cpu_as_cuda` does the same for a program that
is started in another way. It works by torch's own override mechanism, a ``TorchFunctionMode``, which sees every call of
torch's functions and of the methods and attributes of tensors:

- A tensor that a program puts on ``cuda`` is made on the CPU and marked. Results of marked tensors are marked;
  ``x.is_cuda``, ``x.device`` (``cuda:0``) and ``x.get_device()`` read the mark. So ``x.device == DEVICE``,
  ``device=x.device``, ``assert x.is_cuda`` and ``f"{x.device}"`` are what they are on a machine with a GPU, while
  ``print(x)`` shows a tensor without ``device=``, because it is one of the CPU.
- ``.cuda()``, ``.cpu()`` and ``.to(...)`` copy when the mark changes, as they do between two memories.
- The functions of ``torch.cuda`` that programs call get stand-ins (see ``torch_cuda.py``).
- ``torch.compile`` writes Triton, unless the program sets ``torch._inductor.config.cpu_backend`` to another backend.
- A ``torch.cuda.CUDAGraph`` is a list of captured operations, which a replay does again (see ``graphs.py``).
- Kernels that a program registers with torch's dispatcher for ``cuda`` run for marked tensors (see ``overrides.py``).

The mode is one of a thread, and torch takes it off while a call that it saw runs. So it is switched on in each new
thread, and again where torch calls back into the program: hooks and ``backward`` of autograd,
``__torch_function__`` of classes derived from tensors, and kernels of operators that the program defines
(``torch.library``, see ``operators.py``). Gradients come from C++ without a mark: within the backward pass of a marked
tensor, a tensor that is neither marked nor known to be on the CPU counts as marked.

A launch with tensors of both devices is refused, as on a GPU. But it is one machine with one memory, and some programs
work here that fail on a GPU: ``x.numpy()`` of a tensor on ``cuda``, operations of torch on tensors of both devices,
launches with only tensors of the CPU, generators of the other device. Random numbers of ``cuda`` come from the
generator of the CPU: they are not those of a GPU, and ``torch.cuda.manual_seed`` seeds both.

Not covered: threads that were running when torch was imported or that ``threading`` did not start; and
``__torch_dispatch__`` and code that ``torch.compile`` compiles, which see the CPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

_active = False
_mode: Any = None


def is_active() -> bool:
    """Returns whether programs that say ``cuda`` run on the processor."""
    return _active


def is_replaced_here() -> bool:
    """Returns whether this thread can make tensors on ``cuda`` now: not within code that ``torch.compile`` compiles."""
    from torch.overrides import _get_current_function_mode_stack

    return any(mode is _mode for mode in _get_current_function_mode_stack())


def use_cpu_as_cuda() -> None:
    """Puts tensors that this program makes on ``cuda`` from now on onto the CPU, if torch finds no GPU.

    ``tilewright run`` does this; call it where a program is started in another way, best before it imports torch. It
    holds for this thread and for those started from now on. One line on stderr says so when ``cuda`` is first used.
    """
    from tilewright._import_hook import when_imported

    def put_cuda_on_cpu(torch: ModuleType) -> None:
        install(torch)

    when_imported("torch", put_cuda_on_cpu)


def _compile_with_triton(config: Any) -> None:
    """Makes Inductor write Triton for the CPU instead of C++, so that programs on ``cuda`` need no C++ compiler."""
    from tilewright._alias import is_installed

    if is_installed():
        config.cpu_backend = "triton"


def _make_device_current(device_interface: Any) -> None:
    """Gives the CPU the context that Inductor enters to measure fused kernels; torch has it for GPUs only."""
    from contextlib import nullcontext

    device_interface.CpuInterface.device = nullcontext


def install(torch: Any) -> None:
    """Switches it on for this process, if torch finds no GPU."""
    global _active, _mode
    if _active or torch.cuda.is_available():
        return
    # Most programs need none of these modules.
    from tilewright import _native
    from tilewright._cuda_on_cpu import autocast, classes, overrides, torch_cuda
    from tilewright._cuda_on_cpu.device_marks import Marks
    from tilewright._cuda_on_cpu.mode import compile_past, make_mode, watch_callbacks, watch_new_threads
    from tilewright._import_hook import when_imported

    _active = True
    mark = Marks(torch, autocast.install(torch))
    mode = _mode = make_mode(torch, mark)
    torch_cuda.install(torch)
    classes.install(torch, mark)
    mark.keep_between_processes()
    torch.compile = compile_past(mode, mark, torch)
    torch.load = mark.loading(torch.load)
    torch.nn.Parameter.__new__ = staticmethod(mark.parameters(torch.nn.Parameter.__new__))
    watch_callbacks(torch, mark, mode)
    overrides.install(torch, mark.overrides)
    watch_new_threads(mode)
    _native.set_torch_function_mode(mark.is_on_cpu)
    when_imported("torch._inductor.config", _compile_with_triton)
    when_imported("torch._dynamo.device_interface", _make_device_current)
    mode.__enter__()
