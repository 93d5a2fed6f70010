"""``triton.runtime.errors``."""

from tilewright.errors import (
    AutotunerError,
    DeviceAssertionError,
    ExecutionError,
    InterpreterError,
    LaunchError,
    OutOfBoundsError,
    OutOfResources,
    PTXASError,
    TritonError,
)

__all__ = [
    "AutotunerError",
    "DeviceAssertionError",
    "ExecutionError",
    "InterpreterError",
    "LaunchError",
    "OutOfBoundsError",
    "OutOfResources",
    "PTXASError",
    "TritonError",
]
