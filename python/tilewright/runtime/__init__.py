"""``triton.runtime``: kernels, devices, tuning."""

from tilewright._native import set_device
from tilewright.runtime import autotuner, cache, errors, interpreter, jit
from tilewright.runtime._tensors import MockTensor, TensorWrapper, reinterpret
from tilewright.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from tilewright.runtime.cache import RedisRemoteCacheBackend, RemoteCacheBackend
from tilewright.runtime.driver import driver
from tilewright.runtime.errors import InterpreterError, OutOfResources
from tilewright.runtime.jit import JITFunction, KernelInterface

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "RedisRemoteCacheBackend",
    "RemoteCacheBackend",
    "TensorWrapper",
    "autotune",
    "autotuner",
    "cache",
    "driver",
    "errors",
    "heuristics",
    "interpreter",
    "jit",
    "reinterpret",
    "set_device",
]
