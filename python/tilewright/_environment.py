"""Warns of environment variables that configure the official Triton but have no effect here, and of misspelled ones.

Other modules read the variables that have an effect: ``crates/runtime/src/knobs.rs``, ``crates/cuda/src/settings.rs``
and ``knobs.py``.
"""

from __future__ import annotations

import os

from _tilewright_startup import VARIABLE, parse_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_STAGES = "TILEWRIGHT_DUMP=all writes every stage of a kernel to stderr, TRITON_KERNEL_DUMP=1 to files"
_NO_LLVM = "tilewright has no LLVM and no MLIR"
_NO_PTXAS = "the driver of the GPU assembles kernels, and no ptxas is called"
_NO_CC = "launches need no C compiler"
_PROFILES = "profiles are kept by the host, in memory that grows"
_NO_AMD = "there is no code for GPUs of AMD"
_CHECKED = "every access is checked on the CPU and on simulated GPUs (TILEWRIGHT_DEVICE=sim:sm_90), without a variable"

WITHOUT_EFFECT = {
    "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE": _NO_AMD,
    "AMDGCN_ENABLE_DUMP": _NO_AMD,
    "AMDGCN_SCALARIZE_PACKED_FOPS": _NO_AMD,
    "AMDGCN_USE_BUFFER_ATOMICS": _NO_AMD,
    "AMDGCN_USE_BUFFER_OPS": _NO_AMD,
    "DISABLE_LLVM_OPT": _NO_LLVM,
    "DISABLE_PTXAS_OPT": _NO_PTXAS,
    "LLVM_ENABLE_TIMING": _NO_LLVM,
    "LLVM_EXTRACT_DI_LOCAL_VARIABLES": _NO_LLVM,
    "LLVM_IR_ENABLE_DUMP": f"{_NO_LLVM}; {_STAGES}",
    "LLVM_PASS_PLUGIN_PATH": _NO_LLVM,
    "MLIR_DUMP_PATH": f"{_NO_LLVM}; {_STAGES}",
    "MLIR_ENABLE_DIAGNOSTICS": f"{_NO_LLVM}; every finding is told anyway",
    "MLIR_ENABLE_DUMP": f"{_NO_LLVM}; {_STAGES}",
    "MLIR_ENABLE_REMARK": _NO_LLVM,
    "MLIR_ENABLE_TIMING": _NO_LLVM,
    "NVPTX_ENABLE_DUMP": _STAGES,
    "PTXAS_OPTIONS": _NO_PTXAS,
    "TRITON_ALWAYS_COMPILE": "only machine code is kept on disk; TILEWRIGHT_CACHE_DIR names another folder",
    "TRITON_AMD_CODEGEN_PATH": _NO_AMD,
    "TRITON_BACKENDS_IN_TREE": "all devices are part of the package",
    "TRITON_CONSAN_INIT_ALLOCATIONS": _CHECKED,
    "TRITON_CPU_UKERNELS_LIB": "products of matrices are part of tilewright",
    "TRITON_CUDACRT_PATH": _NO_CC,
    "TRITON_CUDART_PATH": _NO_CC,
    "TRITON_CUPTI_LIB_BLACKWELL_PATH": "TRITON_CUPTI_LIB_PATH names the folder of CUPTI for every GPU",
    "TRITON_DISABLE_LINE_INFO": "the lines of the source are always in the code, and cost nothing at run time",
    "TRITON_DISABLE_OPENMP": "TILEWRIGHT_NUM_THREADS is the number of threads",
    "TRITON_DISABLE_PTXAS_OPT": _NO_PTXAS,
    "TRITON_DUMP_MIR": _NO_LLVM,
    "TRITON_DUMP_PTXAS_LOG": _NO_PTXAS,
    "TRITON_ENABLE_ASAN": _CHECKED,
    "TRITON_ENABLE_EXPERIMENTAL_CONSAN": _CHECKED,
    "TRITON_ENABLE_HW_TRACE": _PROFILES,
    "TRITON_ENABLE_LLVM_DEBUG": _NO_LLVM,
    "TRITON_ENABLE_NVTX": "scopes of triton.profiler are not sent to NVTX",
    "TRITON_ENABLE_PYTHON_STACKTRACE": "findings show the chain of calls anyway",
    "TRITON_FPSAN_HOMOMORPHIC_CASTS": "there is no sanitizer of floating point yet",
    "TRITON_FRONT_END_DEBUGGING": "errors of the compiler are shown whole anyway",
    "TRITON_HIP_USE_ASYNC_COPY": _NO_AMD,
    "TRITON_HIP_USE_BLOCK_PINGPONG": _NO_AMD,
    "TRITON_HIP_USE_COEXEC_SCHEDULER": _NO_AMD,
    "TRITON_HIP_USE_EXPERT_SCHEDULING": _NO_AMD,
    "TRITON_HIP_USE_IN_THREAD_TRANSPOSE": _NO_AMD,
    "TRITON_HSA_RUNTIME_LIBRARY": _NO_AMD,
    "TRITON_HSA_RUNTIME_PATH": _NO_AMD,
    "TRITON_INSTRUMENTATION_MODE": 'a session says it: proton.start(backend="instrumentation", mode=...)',
    "TRITON_KERNEL_OVERRIDE": "stages are not read from files; `tilewright compile kernel.gpu --emit ptx` takes a text",
    "TRITON_LIBDEVICE_PATH": "the functions of libdevice are part of tilewright",
    "TRITON_LIBHIP_PATH": _NO_AMD,
    "TRITON_LLVM_DEBUG_ONLY": _NO_LLVM,
    "TRITON_OVERRIDE_ARCH": "code is made for the GPU that runs it; TILEWRIGHT_DEVICE=sim:sm_80 simulates another",
    "TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY": _STAGES,
    "TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY": _STAGES,
    "TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT": _STAGES,
    "TRITON_PLUGIN_PATHS": "there are no plugins",
    "TRITON_PLUGIN_VERSION_CHECK": "there are no plugins",
    "TRITON_PROFILE_BUFFER_SIZE": _PROFILES,
    "TRITON_PROFILE_METRIC_BUFFER_SIZE": _PROFILES,
    "TRITON_REPRODUCER_PATH": _NO_LLVM,
    "TRITON_ROCPROFILER_SDK_INCLUDE_PATH": _NO_AMD,
    "TRITON_ROCPROFILER_SDK_LIBRARY": _NO_AMD,
    "TRITON_ROCPROFILER_SDK_LIB_PATH": _NO_AMD,
    "TRITON_ROCTRACER_LIBRARY": _NO_AMD,
    "TRITON_ROCTRACER_LIB_PATH": _NO_AMD,
    "TRITON_ROCTX_LIBRARY": _NO_AMD,
    "TRITON_ROCTX_LIB_PATH": _NO_AMD,
    "TRITON_STORE_BINARY_ONLY": "only the machine code is kept on disk anyway",
    "TRITON_SWAP_MIR": _NO_LLVM,
    "TRITON_SWAP_MIR_ENABLE_MISCHED": _NO_LLVM,
    "USE_IR_LOC": "lines are those of the Python source",
}
"""Variables that are documented for Triton and have no effect here, each with its replacement."""

_OFF = frozenset(("", "0", "false", "no", "off", "n"))


_ON = frozenset(("1", "true", "yes", "on", "y"))

SWITCHES = frozenset(
    (
        "TILEWRIGHT_CACHE_SHARED",
        "TILEWRIGHT_DEBUG",
        "TILEWRIGHT_INTERPRET",
        "TILEWRIGHT_MACHINE_CODE",
        "TILEWRIGHT_PORTABLE",
        "TILEWRIGHT_PRINT_AUTOTUNING_TABLE",
        "TILEWRIGHT_PUBLIC_TRITON_VIZ",
        "TILEWRIGHT_STRICT",
        "TILEWRIGHT_VIZ_WAIT",
    )
)
"""The variables of tilewright that are on or off."""

_TRITON_SWITCHES = frozenset(
    (
        "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS",
        "TRITON_CACHE_AUTOTUNING",
        "TRITON_CPU_BACKEND",
        "TRITON_DEBUG",
        "TRITON_DEFAULT_FP_FUSION",
        "TRITON_FORCE_DISABLE_FP_FUSION",
        "TRITON_INTERPRET",
        "TRITON_KERNEL_DUMP",
        "TRITON_PRINT_AUTOTUNING",
        "TRITON_PROTON_DISABLE",
    )
)
"""The variables of Triton that are on or off, and have an effect."""

KNOWN = SWITCHES | {
    "TILEWRIGHT_AS_TRITON",
    "TILEWRIGHT_CACHE_DIR",
    "TILEWRIGHT_CACHE_LIMIT",
    "TILEWRIGHT_CUPTI",
    "TILEWRIGHT_DEVICE",
    "TILEWRIGHT_DUMP",
    "TILEWRIGHT_DUMP_DIR",
    "TILEWRIGHT_LOCK",
    "TILEWRIGHT_LOCK_POLICY",
    "TILEWRIGHT_LOCK_RECORD",
    "TILEWRIGHT_LIBCUDA",
    "TILEWRIGHT_NUM_THREADS",
    "TILEWRIGHT_PTXAS",
    "TILEWRIGHT_SANITIZE",
    "TILEWRIGHT_TUNING",
    "TILEWRIGHT_TUNING_MAX_DISTANCE",
    "TILEWRIGHT_TUNING_RECORD",
    "TILEWRIGHT_VIZ_PORT",
}
"""Every variable of tilewright that a user may set."""

_OF_DEVELOPMENT = frozenset(
    (
        "ANNOUNCED",
        "BLESS",
        "COMMIT",
        "MUTATIONS",
        "PATIENCE",
        "RANDOM_NESTS",
        "REPLAY",
        "SEEDS",
        "SHADOW",
        "SHOW",
        "STUB_CUDA",
        "TEST_WHEEL",
        "TRITON_PYTHON",
    )
)
"""Variables of the build and the tests, and those that processes of tilewright pass on, after ``TILEWRIGHT_``."""

_PREFIX = "TILEWRIGHT_"
_STAGE_NAMES = ("ast", "ir", "opt", "cpu", "asm", "gpu", "ptx", "cubin")
_STAGES_OF = {
    "cpu": ("ast", "ir", "opt", "cpu", "asm"),
    "sim": ("ast", "ir", "opt", "gpu", "ptx"),
    "cuda": ("ast", "ir", "opt", "gpu", "ptx", "cubin"),
}
"""The stages of a kernel, by the kind of its device."""


def is_on(name: str) -> bool:
    """Returns whether a switch is on."""
    return os.environ.get(name, "").lower() in _ON


def say_what_has_no_effect() -> None:
    """Prints a line on stderr for each variable that is set and has no effect, or not the one that it seems to have."""
    for name in WITHOUT_EFFECT.keys() & os.environ.keys():
        if os.environ[name].lower() not in _OFF:
            _say(f"{name} is set and has no effect: {WITHOUT_EFFECT[name]}")
    for name in sorted(os.environ):
        value = os.environ[name]
        if name in SWITCHES | _TRITON_SWITCHES:
            if value.lower() not in _ON | _OFF:
                _say(f"{name} is '{value}', expected 0 or 1: it counts as 0")
        elif name == "TILEWRIGHT_DUMP":
            _check_dump(value)
        elif name == VARIABLE:
            _check_parts(value)
        elif name.startswith(_PREFIX) and name not in KNOWN and not _is_of_development(name):
            _say(f"{name} is no variable of tilewright{_guess(name, KNOWN, _PREFIX)}")


def _is_of_development(name: str) -> bool:
    return name.removeprefix(_PREFIX) in _OF_DEVELOPMENT


def _check_parts(value: str) -> None:
    """Warns of a wrong list of parts. If the process waits for ``import triton``, that import will be an error."""
    try:
        parse_parts(value)
    except ValueError as error:
        _say(str(error))


def _check_dump(value: str) -> None:
    """Warns that a value counts as the name of a folder, if the value may be a misspelled stage."""
    import re

    is_folder = not re.fullmatch("[a-z]+", value) or os.path.isdir(value)
    if not is_folder and value == "sass":
        _say(
            "TILEWRIGHT_DUMP is 'sass', which is no stage of a launch, so every stage goes to this folder; "
            "`tilewright explain` shows the SASS"
        )
    if not is_folder and value not in (*_STAGE_NAMES, "all") and (guess := _guess(value, _STAGE_NAMES)):
        _say(f"TILEWRIGHT_DUMP is '{value}', which is no stage, so every stage goes to this folder{guess}")


_has_said_stages = False


def say_missing_stages() -> None:
    """Says once which stages of ``TILEWRIGHT_DUMP`` the kernels of this process lack; called before a compilation."""
    global _has_said_stages
    value = os.environ.get("TILEWRIGHT_DUMP")
    if not value or _has_said_stages:
        return
    from tilewright import _native

    device = _native.device()
    found = _STAGES_OF[device.partition(":")[0]]
    missing = [
        name for name in _STAGE_NAMES if name in map(str.strip, value.split(",")) and name not in found
    ]
    if not missing:
        return
    _has_said_stages = True
    advice = "; TILEWRIGHT_DEVICE=sim:sm_90 compiles for a GPU" if device == "cpu" else ""
    no = f"no stage {missing[0]}" if len(missing) == 1 else f"none of the stages {', '.join(missing)}"
    _say(
        f"TILEWRIGHT_DUMP is '{value}', but kernels on {device} have {no}: they have {', '.join(found)}{advice}"
    )


def _guess(name: str, known: Iterable[str], prefix: str = "") -> str:
    import difflib

    rests = sorted(one.removeprefix(prefix) for one in known)
    near = difflib.get_close_matches(name.removeprefix(prefix), rests, 1, 0.75)
    return f"; did you mean '{prefix}{near[0]}'?" if near else ""


def _say(text: str) -> None:
    import sys

    print(f"tilewright: {text}", file=sys.stderr)


def asks_for_sanitizer() -> bool:
    """Returns whether the sanitizer is to check launches."""
    return bool(os.environ.get("TILEWRIGHT_SANITIZE"))
