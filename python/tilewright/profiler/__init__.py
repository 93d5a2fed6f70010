"""``triton.profiler`` (proton): scopes around launches, and what they took, as a tree that ``proton-viewer`` reads.

Sessions, scopes and hooks have the names of Triton's. What is measured is what ``tilewright profile`` measures: the
wall time of a launch on the CPU, events on a GPU, an estimate by a model on the simulator.
"""

from tilewright._missing import missing_names
from tilewright.profiler import context, data, flags, hooks, language, mode, specs
from tilewright.profiler.profile import DEFAULT_PROFILE_NAME, activate, deactivate, finalize, profile, start
from tilewright.profiler.scope import cpu_timed_scope, enter_scope, exit_scope, scope
from tilewright.profiler.state import enter_state, exit_state, metadata_state, state

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "context",
    "cpu_timed_scope",
    "data",
    "deactivate",
    "enter_scope",
    "enter_state",
    "exit_scope",
    "exit_state",
    "finalize",
    "flags",
    "hooks",
    "language",
    "metadata_state",
    "mode",
    "profile",
    "scope",
    "specs",
    "start",
    "state",
]

__getattr__ = missing_names(
    "tilewright.profiler",
    "metric configure_runtime",
    hint="metrics of scopes are numbers or tensors of one element: proton.scope(name, {'flops': n})",
)
