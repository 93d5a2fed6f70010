"""``triton.profiler`` (proton): scopes around launches, and their times, as a tree that ``proton-viewer`` reads.

Sessions, scopes and hooks have the names of Triton's. The measurements are those of ``tilewright profile``: the wall
time of a launch on the CPU, events on a GPU, an estimate by a model on the simulator.
"""

from tilewright.profiler import context, data, flags, hooks, language, metric, mode, specs
from tilewright.profiler.profile import (
    DEFAULT_PROFILE_NAME,
    activate,
    configure_runtime,
    deactivate,
    finalize,
    profile,
    start,
)
from tilewright.profiler.scope import cpu_timed_scope, enter_scope, exit_scope, scope
from tilewright.profiler.state import enter_state, exit_state, metadata_state, state

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "configure_runtime",
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
    "metric",
    "mode",
    "profile",
    "scope",
    "specs",
    "start",
    "state",
]
