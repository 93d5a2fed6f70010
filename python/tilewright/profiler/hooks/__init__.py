"""What a session has called around launches: ``LaunchHook`` takes what the kernels' ``launch_metadata`` says."""

from tilewright.profiler.hooks.hook import Hook, HookManager
from tilewright.profiler.hooks.instrumentation import InstrumentationHook
from tilewright.profiler.hooks.launch import LaunchHook

__all__ = ["Hook", "HookManager", "InstrumentationHook", "LaunchHook"]
