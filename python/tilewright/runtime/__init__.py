"""``triton.runtime``: kernels, devices, tuning."""

from tilewright._missing import missing_names
from tilewright._native import set_device
from tilewright.runtime import autotuner, cache, errors, interpreter, jit
from tilewright.runtime.autotuner import Config
from tilewright.runtime.driver import driver
from tilewright.runtime.errors import InterpreterError, OutOfResources
from tilewright.runtime.jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Config",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "autotuner",
    "cache",
    "driver",
    "errors",
    "interpreter",
    "jit",
    "reinterpret",
    "set_device",
]

__getattr__ = missing_names(
    "tilewright.runtime",
    "Autotuner Heuristics autotune heuristics RedisRemoteCacheBackend RemoteCacheBackend",
)
