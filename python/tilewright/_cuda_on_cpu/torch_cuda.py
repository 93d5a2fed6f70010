"""Stand-ins for the functions of ``torch.cuda`` that programs call, while ``cuda`` is the processor.

A launch on the processor returns when it is done, so there is nothing to wait for: streams are empty shells, and events
read the clock. An unavailable function raises one sentence that names it.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from types import FrameType, SimpleNamespace, TracebackType
from typing import Any, NoReturn

from tilewright import _native
from tilewright._cuda_on_cpu import graphs, random_state
from tilewright._cuda_on_cpu.announcement import announce, is_announced
from tilewright._host_event import HostEvent
from tilewright._import_hook import when_imported

CAPABILITY = (8, 0)
"""The capability that programs see while the processor runs kernels: it has all types, but not the newest features."""


def capability() -> tuple[int, int]:
    """Returns the compute capability of the simulated GPU, else a constant: a processor has none."""
    of_device = _native.device_capability(None)
    return CAPABILITY if of_device == (0, 0) else of_device


def named_properties() -> dict[str, int]:
    """The properties by which a program chooses its grid.

    All are those of the device that runs kernels, but the multiprocessors are those of the GPU whose capability the
    program sees, since it divides its work by them.
    """
    return {
        **_native.device_properties(),
        "multiprocessor_count": _native.multiprocessors_of(*capability()),
    }


class _Scope:
    """A context that changes nothing."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        announce()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Stream(_Scope):
    """A stream: work that is launched on it is done at once."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    device_type = 1
    priority = 0

    def __init__(self, device: Any = None, *_args: Any, **_kwargs: Any) -> None:
        _check_device(device)
        super().__init__()

    @property
    def device(self) -> Any:
        """Its device."""
        return sys.modules["torch"].device("cuda", 0)

    def synchronize(self) -> None:
        """Returns at once: all work is done."""

    def wait_stream(self, _stream: Any) -> None:
        """Returns at once: all work is done."""

    def wait_event(self, _event: Any) -> None:
        """Returns at once: all work is done."""

    def record_event(self, event: Event | None = None) -> Event:
        """Notes the time in an event."""
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        """Returns True: all work is done."""
        return True


class ExternalStream(Stream):
    """A stream of another library, which is like all others here."""

    def __init__(self, stream_ptr: int = 0, device: Any = None, **_kwargs: Any) -> None:
        super().__init__(device)
        self.cuda_stream = stream_ptr


class Event(HostEvent):
    """A point in time."""

    device = property(lambda _self: sys.modules["torch"].device("cuda", 0))
    cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        announce()
        super().__init__(*args, **kwargs)


class _DeviceProperties(SimpleNamespace):
    """Properties that print as torch prints those of a GPU."""

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


def get_device_properties(device: Any = None) -> Any:
    """The processor's properties, by the names of a GPU's."""
    import uuid

    if not is_torch(sys._getframe(1)):
        announce()
    _check_device(device, "Invalid device id")
    properties = named_properties()
    major, minor = capability()
    shared_memory = properties["max_shared_mem"]
    return _DeviceProperties(
        name=_processor_name(),
        gcnArchName=_processor_name(),
        major=major,
        minor=minor,
        total_memory=_memory(),
        multi_processor_count=properties["multiprocessor_count"],
        max_threads_per_block=1024,
        max_threads_per_multi_processor=properties.get("max_threads_per_sm", 2048),
        regs_per_multiprocessor=properties["max_num_regs"],
        shared_memory_per_block=shared_memory,
        shared_memory_per_block_optin=shared_memory,
        shared_memory_per_multiprocessor=shared_memory,
        warp_size=properties["warpSize"],
        clock_rate=properties.get("sm_clock_rate", 0),
        memory_clock_rate=properties.get("mem_clock_rate", 0),
        memory_bus_width=properties.get("mem_bus_width", 0),
        L2_cache_size=4 * 1024 * 1024,
        is_integrated=1,
        is_multi_gpu_board=0,
        uuid=uuid.UUID(int=0),
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def _check_device(device: Any, invalid: str | None = None) -> None:
    """Refuses a second GPU."""
    torch = sys.modules["torch"]
    index = device if isinstance(device, int) else None
    if isinstance(device, (str, torch.device)):
        index = torch.device(device).index
    if index is None or index == 0 or (index < 0 and invalid is None):
        return
    if invalid is not None:
        raise AssertionError(invalid)
    kind = getattr(torch, "AcceleratorError", RuntimeError)
    raise kind("CUDA error: invalid device ordinal")


def _processor_name() -> str:
    """Returns the name of the processor's model."""
    import platform

    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, name = line.partition(":")
                if key.strip() == "model name" and name.strip():
                    return name.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int:
    import os

    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def is_torch(caller: FrameType) -> bool:
    """Returns whether the caller is code of torch itself."""
    name = str(caller.f_globals.get("__name__", ""))
    return name == "torch" or name.startswith("torch.")


def _unless_torch_asks(real: Callable[..., Any], answer: Any) -> Callable[..., Any]:
    """Returns ``answer`` to programs and the truth to torch itself, which would call the driver next."""

    def function(*args: Any, **kwargs: Any) -> Any:
        if is_torch(sys._getframe(1)):
            return real(*args, **kwargs)
        return answer() if callable(answer) else answer

    function.__name__, function.__doc__ = real.__name__, real.__doc__
    return function


def _answer_for_triton(module: Any) -> None:
    """``torch.utils._triton.has_triton``, by which libraries decide whether they have kernels.

    The original function queries torch's interface of each device, and that of ``cuda`` says that there is no Triton. A
    program in which tilewright is Triton gets True; torch itself still gets the original answer, since Inductor
    compiles for the CPU here.
    """
    from tilewright._alias import is_installed

    real = module.has_triton

    def has_triton(**kwargs: Any) -> bool:
        if is_torch(sys._getframe(1)) or not (module.has_triton_package() and is_installed()):
            return bool(real(**kwargs))
        from torch._inductor.config import triton_disable_device_detection

        return not triton_disable_device_detection

    has_triton.__doc__ = real.__doc__
    has_triton.cache_clear, has_triton.cache_info = real.cache_clear, real.cache_info  # type: ignore[attr-defined]
    module.has_triton = has_triton


def _returning(value: Any) -> Callable[..., Any]:
    def function(*_args: Any, **_kwargs: Any) -> Any:
        if not is_torch(sys._getframe(1)):
            announce()
        return value

    return function


def _with_device(value: Any, invalid: str | None = None) -> Callable[..., Any]:
    """As ``_returning``, for functions whose first argument is a device; a callable value is called each time."""

    def function(device: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        if not is_torch(sys._getframe(1)):
            announce()
        _check_device(device, invalid)
        return value() if callable(value) else value

    return function


class _Device(_Scope):
    """``with torch.cuda.device(0)``."""

    def __init__(self, device: Any = None) -> None:
        _check_device(device)
        super().__init__()
        self.idx = self.prev_idx = 0


def _not_to_be_had(name: str, instead: str = "") -> NoReturn:
    raise RuntimeError(
        f"tilewright: {name} is not available where 'cuda' is the CPU{instead and ': '}{instead} (this machine has no "
        "CUDA device)"
    )


def _missing(name: str, instead: str = "") -> type:
    """Makes a class or function that raises an error when it is called."""

    def __init__(self: Any, *_args: Any, **_kwargs: Any) -> None:
        _not_to_be_had(f"torch.cuda.{name}", instead)

    return type(name, (), {"__init__": __init__, "__module__": "torch.cuda"})


def _lazy_init() -> None:
    """Raises an error: torch is about to call the driver, for something that has no stand-in."""
    caller = sys._getframe(1)
    module = str(caller.f_globals.get("__name__", ""))
    name = caller.f_code.co_name
    if name in ("__init__", "__new__", "__enter__"):
        made = caller.f_locals.get("self", caller.f_locals.get("cls"))
        name = (made if isinstance(made, type) else type(made)).__name__
    if module.startswith("torch.cuda") and not name.startswith("<"):
        _not_to_be_had(f"torch.cuda.{name}")
    _not_to_be_had("a call of torch")


def _random_functions(torch: Any) -> dict[str, Any]:
    """The functions of random numbers: those of ``cuda`` are the CPU's."""
    default = torch.default_generator

    def get_rng_state(device: Any = "cuda") -> Any:
        _check_device(device)
        return random_state.get(default)

    def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
        _check_device(device)
        random_state.put(default, new_state)

    def set_rng_state_all(new_states: Any) -> None:
        for state in new_states:
            random_state.put(default, state)

    def manual_seed(seed: int) -> None:
        default.manual_seed(int(seed))

    def manual_seed_all(seed: int) -> None:
        default.manual_seed(int(seed))

    def seed() -> None:
        default.seed()

    def seed_all() -> None:
        default.seed()

    def initial_seed() -> int:
        return int(default.initial_seed())

    return {
        "get_rng_state": get_rng_state,
        "get_rng_state_all": lambda: [random_state.get(default)],
        "set_rng_state": set_rng_state,
        "set_rng_state_all": set_rng_state_all,
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed_all,
        "seed": seed,
        "seed_all": seed_all,
        "initial_seed": initial_seed,
    }


def _memory_functions() -> dict[str, Any]:
    """The functions of memory statistics: nothing is counted, so they return 0."""
    names = (
        "max_memory_allocated max_memory_cached max_memory_reserved memory_allocated memory_cached memory_reserved "
        "host_memory_stats"
    )
    made: dict[str, Any] = {name: _with_device(0) for name in names.split()}
    names = (
        "empty_cache empty_host_cache ipc_collect reset_accumulated_memory_stats reset_max_memory_allocated "
        "reset_max_memory_cached reset_peak_memory_stats reset_peak_host_memory_stats set_per_process_memory_fraction "
        "reset_accumulated_host_memory_stats"
    )
    made.update({name: _returning(None) for name in names.split()})
    return {
        **made,
        "memory_stats": lambda device=None: Counter(),
        "memory_stats_as_nested_dict": lambda device=None: {},
        "memory_snapshot": lambda *_: [],
        "memory_summary": _with_device("tilewright: 'cuda' is the CPU: its memory is not counted\n"),
        "mem_get_info": lambda _device=None: (_memory(), _memory()),
    }


def _put(module: Any, stand_ins: dict[str, Any]) -> None:
    for name, stand_in in stand_ins.items():
        if hasattr(module, name):
            setattr(module, name, stand_in)


def install(torch: Any) -> None:
    """Puts the stand-ins into ``torch.cuda`` and ``torch.accelerator``."""
    cuda = torch.cuda
    _native.claim_capability(CAPABILITY[0] * 10 + CAPABILITY[1])
    stream = object.__new__(Stream)
    random, memory = _random_functions(torch), _memory_functions()
    no_graphs = "capture what it does with torch.cuda.graph"
    stand_ins: dict[str, Any] = {
        "CUDAGraph": graphs.CUDAGraph,
        "Event": Event,
        "ExternalStream": ExternalStream,
        "Stream": Stream,
        "can_device_access_peer": _returning(False),
        "current_blas_handle": _missing("current_blas_handle"),
        "current_device": _returning(0),
        "current_stream": _with_device(stream),
        "default_stream": _with_device(stream),
        "device": _Device,
        "device_count": _unless_torch_asks(cuda.device_count, 1),
        "device_of": _Scope,
        "get_arch_list": lambda: [f"sm_{major}{minor}" for major, minor in [capability()]],
        "get_device_capability": _with_device(capability, "Invalid device id"),
        "get_device_name": lambda device=None: get_device_properties(device).name,
        "get_device_properties": get_device_properties,
        "_CudaDeviceProperties": _DeviceProperties,
        "init": _returning(None),
        "is_available": _unless_torch_asks(cuda.is_available, True),
        "is_bf16_supported": _returning(True),
        "is_current_stream_capturing": graphs.is_capturing,
        "is_initialized": _unless_torch_asks(cuda.is_initialized, is_announced),
        "is_tf32_supported": _returning(True),
        "make_graphed_callables": _missing("make_graphed_callables", no_graphs),
        "set_device": _with_device(None),
        "set_stream": _returning(None),
        "stream": _Scope,
        "synchronize": _with_device(None),
        "_exchange_device": _with_device(0),
        "_lazy_init": _lazy_init,
        "_maybe_exchange_device": _with_device(0),
        **random,
        **memory,
    }
    _put(cuda, stand_ins)
    _put(
        getattr(cuda, "graphs", None),
        {"CUDAGraph": graphs.CUDAGraph, "is_current_stream_capturing": graphs.is_capturing},
    )
    # Libraries call this binding of torch.cuda directly to get the handle of the stream.
    _put(torch._C, {"_cuda_getCurrentRawStream": lambda _device=0: 0})
    _put(getattr(cuda, "random", None), random)
    _put(getattr(cuda, "memory", None), memory)
    nothing = _returning(None)
    _put(cuda.nvtx, dict.fromkeys(("range_push", "range_pop", "mark"), nothing))
    _put(getattr(cuda, "profiler", None), {"start": nothing, "stop": nothing, "init": nothing})
    # Pinned memory is emulated, so the warning would mislead.
    warnings.filterwarnings(
        "ignore", message="'pin_memory' argument is set as true but no accelerator is found"
    )
    # Recurrent layers query this function before they choose the memory layout of their weights.
    torch.backends.cudnn.is_acceptable = lambda _tensor: False
    _install_accelerator(torch, stream, memory)
    _install_for_generated_code(torch)
    when_imported("torch.utils._triton", _answer_for_triton)


def _install_accelerator(torch: Any, stream: Stream, memory: dict[str, Any]) -> None:
    module = getattr(torch, "accelerator", None)
    if module is None:
        return
    device = torch.device("cuda")
    _put(
        module,
        {
            **memory,
            "get_memory_info": memory["mem_get_info"],
            "current_accelerator": _unless_torch_asks(module.current_accelerator, device),
            "current_device_idx": _returning(0),
            "current_device_index": _returning(0),
            "current_stream": _with_device(stream),
            "device_count": _unless_torch_asks(module.device_count, 1),
            "device_index": _Device,
            "is_available": _unless_torch_asks(module.is_available, True),
            "set_device_idx": _with_device(None),
            "set_device_index": _with_device(None),
            "set_stream": _returning(None),
            "synchronize": _with_device(None),
        },
    )


def _install_for_generated_code(torch: Any) -> None:
    """Replaces functions that code of ``torch.compile`` calls past torch's functions; people keep such files."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    reinterpret = getattr(guards, "_reinterpret_tensor", None)

    def reinterpret_tensor(tensor: Any, size: Any, stride: Any, offset: int = 0, *args: Any) -> Any:
        if not tensor.is_cuda or args:
            return reinterpret(tensor, size, stride, offset, *args)  # type: ignore[misc]
        return torch.as_strided(tensor.detach(), size, stride, tensor.storage_offset() + offset)

    def empty_strided(size: Any, stride: Any, dtype: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

    _put(guards, {"_reinterpret_tensor": reinterpret_tensor, "_empty_strided_cuda": empty_strided})
