"""``triton.compiler.compiler``: compiling for described types, and the compiled kernels."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tilewright import _native
from tilewright._kept_names import kept
from tilewright.compiler import _older
from tilewright.compiler._source import ASTSource, IRSource, warn_of_unknown_options
from tilewright.errors import (
    CompilationError,
    LaunchStateError,
    LaunchTypeError,
    OutOfResources,
)
from tilewright.runtime.cache import triton_key as triton_key

__all__ = [
    "ASTSource",
    "AsmDict",
    "CompilationError",
    "CompiledKernel",
    "IRSource",
    "KernelMetadata",
    "LazyDict",
    "compile",
    "filter_traceback",
    "get_cache_key",
    "make_backend",
    "max_shared_mem",
    "triton_key",
]


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tilewright.runtime.jit import KernelInterface

_ELSEWHERE = {
    "BaseBackend": "backends.compiler",
    "GPUTarget": "backends.compiler",
    "Language": "backends.compiler",
    "backends": "backends",
    "driver": "runtime.driver",
    "get_cache_invalidating_env_vars": "_C.libtriton",
    "get_cache_manager": "runtime.cache",
    "get_dump_manager": "runtime.cache",
    "get_override_manager": "runtime.cache",
    "get_sass": "tools.disasm",
    "ir": "_C.libtriton",
}
"""The names that programs import from here, and the modules that have them."""


def __getattr__(name: str) -> Any:
    return kept(globals(), name, _find)


def _find(name: str) -> Any:
    import importlib

    if name == "knobs":
        return importlib.import_module("tilewright.knobs")
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"tilewright.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def parse(full_name: Any, ext: str, context: Any = None) -> str | bytes:
    """The content of a stage's file: text for ``ptx`` and tilewright's own stages, bytes for ``cubin``."""
    from pathlib import Path

    if ext in ("ttir", "ttgir", "llir", "amdgcn", "hsaco"):
        raise _native.not_available(
            f"a file of stage {ext!r} is not read: tilewright has no MLIR",
            "its stages are ir, opt, gpu, ptx and cubin",
        )
    return Path(full_name).read_bytes() if ext == "cubin" else Path(full_name).read_text()


def _raise_error(err: BaseException, *args: Any, **kwargs: Any) -> None:
    """Raises an error that was stored."""
    raise err


_metadata_classes: dict[tuple[str, ...], Any] = {}


def KernelMetadata(**entries: Any) -> Any:
    """The options that a kernel was compiled with, and its resources, as a named tuple.

    The sizes of scratch memory are None: kernels have no parameter for it.
    """
    from collections import namedtuple

    scratch = {"global_scratch_size": None, "profile_scratch_size": None}
    alignments = {"global_scratch_align": 1, "profile_scratch_align": 1}
    entries = {**scratch, **alignments, "tensordesc_meta": (), **entries}
    fields = tuple(sorted(entries))
    if fields not in _metadata_classes:
        plain: Any = namedtuple("KernelMetadata", list(fields))  # type: ignore[misc]
        # The class is in no module, so pickle could not find it.
        restore = {
            "__slots__": (),
            "__reduce__": lambda metadata: (_restored_metadata, (metadata._asdict(),)),
        }
        _metadata_classes[fields] = type("KernelMetadata", (plain,), restore)
    return _metadata_classes[fields](**entries)


def _restored_metadata(entries: dict[str, Any]) -> Any:
    return KernelMetadata(**entries)


class AsmDict(Mapping[str, "str | bytes"]):
    """The text of each stage of a compiled kernel, made at its first use; of ``cubin`` the bytes."""

    # The names of the stages in the official compiler, which programs use.
    _ALIASES = {"source": "ast", "ttir": "ir", "ttgir": "gpu"}  # noqa: RUF012

    def __init__(
        self,
        kernel: _native.CompiledKernel | None,
        texts: dict[str, str | bytes] | None = None,
        assemble: tuple[str, int | None, tuple[int, int]] | None = None,
    ) -> None:
        """Makes the stages of a kernel, or of texts; ``assemble``: name, maximum registers and block."""
        self._kernel = kernel
        self._texts = texts or {}
        self._assemble = assemble
        self._found: dict[str, str | bytes] = {}
        """The stages that were read, by the name that the program has for them."""

    def __getitem__(self, stage: str) -> str | bytes:
        found = self._found.get(stage)
        if found is None:
            name = self._name(stage)
            if name not in self._texts:
                self._texts[name] = self._make(stage, name)
            found = self._found[stage] = self._texts[name]
        return found

    def get(self, stage: str, default: Any = None) -> Any:
        """The text of a stage, or the default if a kernel for this device does not have the stage."""
        found = self._found.get(stage)
        if found is not None:
            return found
        is_assembled = self._assemble is not None and stage == "cubin"
        return self[stage] if stage in self or is_assembled else default

    @functools.cached_property
    def _stages(self) -> tuple[str, ...]:
        stages = list(self._texts) if self._kernel is None else self._kernel._stages()
        if self._assemble is not None and "cubin" not in stages and _native.has_gpu():
            stages.append("cubin")
        return tuple(stages)

    def _make(self, stage: str, name: str) -> str | bytes:
        if name == "cubin" and self._assemble is not None:
            kernel, registers, block = self._assemble
            return _native.assemble(kernel, str(self["ptx"]), registers, block)
        if self._kernel is None or name not in self._kernel._stages():
            raise KeyError(f"{stage!r}: a kernel for this device has {', '.join(self)}")
        return self._kernel._stage(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, stage: object) -> bool:
        return self._name(str(stage)) in self._stages

    def _name(self, stage: str) -> str:
        """Our name of a stage. A CPU kernel has no ``gpu`` stage: ``ttgir`` is its last text before code."""
        name = self._ALIASES.get(stage, stage)
        return "opt" if stage == "ttgir" and name not in self._stages else name

    def __reduce__(self) -> Any:
        """Pickles the stages as texts: the kernel itself stays in its process."""
        stages = self._texts if self._kernel is None else self._kernel._stages()
        return (AsmDict, (None, {stage: self[stage] for stage in stages}, self._assemble))


class LazyDict:
    """A dict some of whose entries are computed when the whole is requested."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Any, tuple[Any, ...]]] = []

    def get(self) -> dict[str, Any]:
        """The dict."""
        for function, args in self.extras:
            self.data = self.data | function(*args)
        self.extras.clear()
        return self.data

    def add(self, func: Any, args: tuple[Any, ...]) -> None:
        """Adds the entries that a function returns."""
        self.extras.append((func, args))


class _KernelClass(type):
    """Counts the native objects that launches and warm-ups return as a ``CompiledKernel`` as well."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, _native.CompiledKernel)


class CompiledKernel(metaclass=_KernelClass):
    """The result of ``triton.compile``: a kernel for the types of its source, which torch launches by this protocol.

    The native object that launches and warm-ups return has the same attributes.

    ``run(grid_0, grid_1, grid_2, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook, *args)``
    launches it; so does ``kernel[grid](*args)``. The arguments are one for each parameter, or one for each that is no
    compile-time value. It is loaded at the first use of ``run``, ``n_regs`` or ``kernel[grid]``.
    """

    # The native kernel is not in `__dict__`, because programs pickle that.
    __slots__ = ("__dict__", "__weakref__", "_compiled", "_is_of_launch")
    # Because of `[grid]`, Python would take it for an endless sequence.
    __iter__ = None

    _compiled: _native.CompiledKernel | None
    _is_of_launch: bool
    src: Any
    metadata: Any
    asm: AsmDict
    name: str
    hash: str

    def __new__(cls, *_args: Any, **_kwargs: Any) -> CompiledKernel:
        """Makes an empty kernel: torch fills in the dict of one that another process has compiled."""
        made = super().__new__(cls)
        made._compiled = None
        made._is_of_launch = False
        return made

    def __init__(self, src: ASTSource, native: _native.CompiledKernel, target: Any, hash: str) -> None:
        """Makes a kernel of the compiler's result for a source."""
        self._compiled = native
        self.src = src
        self.metadata = native.metadata._replace(target=target, hash=hash)
        self.packed_metadata = make_backend(target).pack_metadata(self.metadata)
        self.hash = hash
        self.name = native.name
        assemble = None
        if target.backend == "cuda":
            block = (self.metadata.num_warps * self.metadata.warp_size, self.metadata.shared)
            assemble = (self.metadata.name, self.metadata.maxnreg, block)
        self.asm = AsmDict(native, assemble=assemble)
        self.metadata_group: dict[str, str] = {}
        self.module: int | None = None
        self.function: int | None = None
        self._module_pid: int | None = None
        self._run: Callable[..., None] | None = None

    @property
    def kernel(self) -> str | bytes:
        """The code that the device runs: the simulator runs PTX."""
        binary = _binary_of(self.metadata.target)
        native = self._compiled if self._is_of_launch else None
        return self.asm[binary if native is None or binary in native._stages() else "ptx"]

    num_warps = property(lambda self: self.metadata.num_warps)
    num_stages = property(lambda self: self.metadata.num_stages)
    num_ctas = property(lambda self: self.metadata.num_ctas)
    cluster_dims = property(lambda self: self.metadata.cluster_dims)
    shared = property(lambda self: self.metadata.shared)

    n_regs = property(lambda self: self._resources()[0], doc="Registers of a thread.")
    n_spills = property(lambda self: self._resources()[1], doc="Registers that are kept in memory.")
    n_max_threads = property(
        lambda self: self._resources()[2], doc="The most threads that a program may have."
    )

    def _resources(self) -> tuple[int, int, int]:
        self._init_handles()
        return self._loaded_resources

    def _init_handles(self) -> None:
        """Loads the code into the device, between the two loading hooks, unless a launch has loaded it already."""
        if self.module is not None:
            return
        from tilewright.knobs import runtime

        is_loaded = self._is_of_launch and self._compiled is not None and self._compiled._is_launched
        about = (self.name, self.metadata_group, self.hash)
        if runtime.kernel_load_start_hook is not None and not is_loaded:
            runtime.kernel_load_start_hook(None, None, *about)
        self._load_code()
        if runtime.kernel_load_end_hook is not None and not is_loaded:
            runtime.kernel_load_end_hook(self.module, self.function, *about)

    def _load_code(self) -> None:
        is_simulated = _native.device().startswith("sim")
        is_here = self.metadata.target.backend == "cpu" or is_simulated or _takes_cpu_for_gpu()
        if self._is_of_launch or is_here:
            self._load_here()
        else:
            self._load_on_gpu()

    def _load_here(self) -> None:
        """Loads a kernel of a launch, or one for the processor or the simulator, which run the native kernel itself."""
        native = self._compiled
        if native is None or (not self._is_of_launch and _takes_cpu_for_gpu()):
            native = self._compiled = self._compiled_from_text()
        if not self._is_of_launch or not self._load_handle(native):
            self._loaded_resources = (native.n_regs, native.n_spills, native.n_max_threads)
            self._run = _launcher_here(native, self.src)
            native._note_load()
            self.module = self.function = 0

    def _load_handle(self, native: _native.CompiledKernel) -> bool:
        """Loads the kernel of a launch, whose source is known here; returns False if it is not for a GPU."""
        from tilewright.backends.nvidia.driver import CudaLauncher

        number = native._load()
        if number is None:
            return False
        self._loaded_resources = (native.n_regs, native.n_spills, native.n_max_threads)
        self._run = self._launched_by(CudaLauncher(self.src, self.metadata, native))
        self.module, self.function, self._module_pid = number, number, os.getpid()
        return True

    def _launched_by(self, launcher: Any) -> Callable[..., None]:
        """Makes a built-in function of a launcher of ours, which gets launch metadata here; another stays as it is."""
        if not isinstance(launcher, _native.CudaLauncher):
            return launcher  # type: ignore[no-any-return]
        import weakref

        # A strong reference from the launcher to the kernel would be a cycle, which keeps both
        # alive.
        known = weakref.ref(self)

        def describe(grid: Any, stream: Any, args: tuple[Any, ...]) -> LazyDict | None:
            kernel = known()
            return None if kernel is None else kernel.launch_metadata(grid, stream, *args)

        launcher._set_describe(describe)
        return launcher._function()

    def _with_tensor_maps(self, gpu: int) -> _native.CompiledKernel | None:
        """The kernel for launches on a GPU that make tensor maps for it, if it has dots that use them."""
        import re

        if int(self.metadata.target.arch) < 90 or not re.search(r"= dot\b", str(self.asm.get("ir", ""))):
            return None
        native = self._compiled_from_text(gpu)
        return native if native._takes_tensor_maps() else None

    def _compiled_from_text(self, gpu: int | None = None) -> _native.CompiledKernel:
        """Compiles the text of the IR that another process sent: it does not send programs of the processor."""
        if "ir" not in self.asm:
            raise LaunchStateError(
                f"kernel '{self.name}' was compiled in another process, and its IR was not sent with it"
            )
        if not self.src.fn._is_defined():
            self.src.fn._define_native()
        target = self.metadata.target
        known = (name for name, _ in _native.compile_options() if hasattr(self.metadata, name))
        options = {name: value for name in known if (value := getattr(self.metadata, name)) is not None}
        backend, capability = target.backend, 0 if target.backend == "cpu" else int(target.arch)
        if _takes_cpu_for_gpu():
            backend, capability = "cpu", 0
        text = str(self.asm["ir"])
        return _native.compile_ir(self.src.fn, backend, capability, self.src.arguments(), options, text, gpu)

    def _load_on_gpu(self) -> None:
        from tilewright.runtime.driver import driver

        # Without a GPU this raises an error with the reason.
        device = driver.active.get_current_device()
        native = self._with_tensor_maps(device)
        if native is not None and self._load_handle(native):
            return
        binary = self.kernel
        limit = max_shared_mem(device)
        if self.metadata.shared > limit:
            raise OutOfResources(self.metadata.shared, limit, "shared memory")
        loaded = driver.active.utils.load_binary(self.metadata.name, binary, self.metadata.shared, device)
        module, function, *resources = loaded
        threads = self.metadata.num_warps * self.metadata.warp_size
        if threads > resources[2]:
            driver.active.utils.unload_module(module)
            raise OutOfResources(threads, resources[2], "threads")
        self._loaded_resources = tuple(resources)
        self._run = self._launched_by(driver.active.launcher_cls(self.src, self.metadata))
        self.module, self.function, self._module_pid = module, function, os.getpid()

    def __del__(self) -> None:
        """Unloads the code, unless this process was forked from the one that loaded it."""
        module = self.__dict__.get("module")
        if module and self._module_pid == os.getpid():
            self.module = None
            _native.unload_module(module)

    @property
    def run(self) -> Callable[..., None]:
        """The function that launches it."""
        if self._run is None:
            self._init_handles()
        return self._run  # type: ignore[return-value]

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> LazyDict | None:
        """The launch metadata for hooks; nothing if no hook is called before launches."""
        # Only a program that has imported the knobs has a hook.
        knobs = sys.modules.get("tilewright.knobs")
        hook = None if knobs is None else knobs.runtime.launch_enter_hook
        if hook is None or not getattr(hook, "calls", True):
            return None
        names = getattr(getattr(self.src, "fn", None), "arg_names", ())
        return describe_launch(self, grid, stream, dict(zip(names, args, strict=False)))

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """A function that launches it with a grid, by default on torch's current stream."""
        self._init_handles()
        knobs, driver = _runtime_knobs(), _driver()
        grid = (grid,) if isinstance(grid, int) else tuple(grid)
        grid += (1,) * (3 - len(grid))

        def launch(*args: Any, stream: Any = None) -> None:
            if stream is None:
                stream = driver.active.get_current_stream(driver.active.get_current_device())
            metadata = self.launch_metadata(grid, stream, *args)
            hooks = (knobs.launch_enter_hook, knobs.launch_exit_hook)
            self.run(*grid, stream, self.function, self.packed_metadata, metadata, *hooks, *args)

        return launch

    def __repr__(self) -> str:
        return repr(self._compiled) if self._compiled is not None else f"<compiled kernel {self.name}>"


@functools.cache
def _runtime_knobs() -> Any:
    from tilewright import knobs

    return knobs.runtime


@functools.cache
def _driver() -> Any:
    from tilewright.runtime.driver import driver

    return driver


def _takes_cpu_for_gpu() -> bool:
    """Returns whether the processor runs kernels for a GPU, because the program takes it for one."""
    from tilewright import _cuda_on_cpu

    return _cuda_on_cpu.is_active() and _native.device() == "cpu"


def of_launch(native: _native.CompiledKernel) -> CompiledKernel:
    """The kernel that a launch has compiled, as ``triton.compile`` returns it."""
    source = ASTSource.of_arguments(*native._source())
    kernel = CompiledKernel(source, native, native.metadata.target, native.hash)
    kernel._is_of_launch = True
    return kernel


def describe_launch(kernel: CompiledKernel, grid: Any, stream: Any, arguments: dict[str, Any]) -> LazyDict:
    """The launch metadata for hooks, with the entries that the kernel's ``launch_metadata`` adds."""
    kernel._init_handles()
    found = LazyDict({"name": kernel.name, "function": kernel.function, "stream": stream})
    describe = getattr(getattr(kernel.src, "fn", None), "launch_metadata", None)
    if describe is not None:
        found.add(describe, (grid, kernel.metadata, arguments))
    return found


def _launcher_here(native: _native.CompiledKernel, src: ASTSource) -> Callable[..., None]:
    """``run`` of a kernel for the processor or the simulator."""

    def run(
        grid_0: int,
        grid_1: int,
        grid_2: int,
        _stream: Any,
        _function: Any,
        _packed_metadata: Any,
        launch_metadata: Any,
        enter_hook: Any,
        exit_hook: Any,
        *args: Any,
    ) -> None:
        if enter_hook:
            enter_hook(launch_metadata)
        native[(grid_0, grid_1, grid_2)](*src.complete(args))
        if exit_hook:
            exit_hook(launch_metadata)

    return run


def compile(
    src: ASTSource | KernelInterface[..., Any] | str,
    target: Any = None,
    options: dict[str, Any] | None = None,
    _env_vars: dict[str, str] | None = None,
    **older: Unpack[_older.OlderArguments],
) -> CompiledKernel:
    """Compiles a kernel for the types of a source; no tensor and no GPU is needed.

    ``target`` is a ``GPUTarget``, by default that of the active device. ``options`` are those of a launch
    (``num_warps``, ``num_stages``, …); an unknown name is ignored with a ``LaunchWarning``. Release 2 of Triton
    describes the source by arguments: ``compile(kernel, signature="*fp32,i32", constants={"BLOCK": 128})``.
    """
    from tilewright.backends.compiler import GPUTarget
    from tilewright.runtime.driver import driver
    from tilewright.runtime.jit import KernelInterface

    if isinstance(src, KernelInterface):
        src, options, of_capability = _older.of_function(src, options, older)
        target = target or of_capability
    elif older:
        raise TypeError(f"triton.compile has no argument {next(iter(older))!r}")
    if target is None:
        target = driver.active.get_current_target()
    if not isinstance(target, GPUTarget):
        raise LaunchTypeError(f"target of triton.compile is a GPUTarget, not a {type(target).__name__}")
    backend = make_backend(target)
    source: Any = src if isinstance(src, ASTSource) else IRSource(src, None, backend)
    given = {**(options or {}), **source.parse_options()}
    warn_of_unknown_options(given)
    parsed = backend.parse_options(given)
    given = {name: value for name, value in given.items() if value is not None}
    capability = 0 if target.backend == "cpu" else int(target.arch)
    native = _native.compile(source.fn, target.backend, capability, source.arguments(), given)
    key = get_cache_key(source, backend, parsed, _env_vars or {})
    import hashlib

    return CompiledKernel(source, native, backend.target, hashlib.sha256(key.encode()).hexdigest())


def get_cache_key(src: Any, backend: Any, backend_options: Any, env_vars: dict[str, str]) -> str:
    """A key that no other compilation has."""
    variables = sorted(env_vars.items())
    return f"{triton_key()}-{src.hash()}-{backend.hash()}-{backend_options.hash()}-{variables}"


def make_backend(target: Any) -> Any:
    """The back end that compiles for a target."""
    from tilewright.backends import backends

    for backend in backends.values():
        if backend.compiler.supports_target(target):
            return backend.compiler(target)
    raise RuntimeError(
        f"0 compatible backends for target ({target.backend}): tilewright compiles for 'cuda' and 'cpu'"
    )


@functools.lru_cache
def _binary_of(target: Any) -> str:
    """The stage of the code that a target runs."""
    return str(make_backend(target).binary_ext)


class CompileTimer:
    """Measures the stages of a compilation, for ``knobs.compilation.listener``."""

    def __init__(self) -> None:
        import time

        self._now = time.perf_counter
        self.start = self._now()
        self.ir_initialization_end: float | None = None
        self.lowering_stage_ends: list[tuple[str, float]] = []

    def finished_ir_initialization(self) -> None:
        """Notes that the source has become IR."""
        self.ir_initialization_end = self._now()

    def stage_finished(self, stage_name: str) -> None:
        """Notes that a stage has ended."""
        self.lowering_stage_ends.append((stage_name, self._now()))

    def end(self) -> Any:
        """Returns the times in microseconds."""
        from tilewright.knobs import CompileTimes

        last = self.ir_initialization_end or self.start
        initialization = last - self.start
        stages = []
        for name, ended in self.lowering_stage_ends:
            stages.append((name, int((ended - last) * 1e6)))
            last = ended
        return CompileTimes(int(initialization * 1e6), stages, int((self._now() - last) * 1e6))


def convert_type_repr(x: str) -> str:
    """A type of MLIR, ``!tt.ptr<f32>``, as signatures write it: ``*f32``."""
    import re

    found = re.fullmatch(r"!tt\.ptr<([^,>]+(?:<.*>)?)(?:,.*)?>", x)
    return f"*{convert_type_repr(found[1])}" if found else x


def filter_traceback(e: BaseException) -> None:
    """Does nothing: the compiler is not written in Python, and leaves no frames."""


def max_shared_mem(device: int | None = None) -> int:
    """The shared memory of a multiprocessor."""
    return _native.device_properties(device)["max_shared_mem"]
