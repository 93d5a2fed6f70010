"""``triton.language.extra.libdevice``: more elementary functions, by the names of CUDA's device library."""

from tilewright.language._builtin import functions

_FUNCTIONS = functions("extra.libdevice.")
globals().update(_FUNCTIONS)

__all__ = list(_FUNCTIONS)
