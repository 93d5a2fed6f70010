"""Functions that a session calls around launches: ``LaunchHook`` takes the metrics of kernels' ``launch_metadata``."""

from tilewright.profiler.hooks.hook import Hook, HookManager
from tilewright.profiler.hooks.instrumentation import InstrumentationHook
from tilewright.profiler.hooks.launch import LaunchHook

__all__ = ["Hook", "HookManager", "InstrumentationHook", "LaunchHook"]
