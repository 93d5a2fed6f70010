"""Warns of environment variables that configure the official Triton but have no effect here.

Other modules read the variables that have an effect: ``crates/runtime/src/knobs.rs``, ``crates/cuda/src/settings.rs``
and ``knobs.py``.
"""

from __future__ import annotations

import os

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


def say_what_has_no_effect() -> None:
    """Prints a line on stderr for each such variable that is set, if a program might rely on it."""
    for name in WITHOUT_EFFECT.keys() & os.environ.keys():
        if os.environ[name].lower() in _OFF:
            continue
        import sys

        print(f"tilewright: {name} is set and has no effect: {WITHOUT_EFFECT[name]}", file=sys.stderr)


def asks_for_sanitizer() -> bool:
    """Returns whether the sanitizer is to check launches."""
    return bool(os.environ.get("TILEWRIGHT_SANITIZE"))
