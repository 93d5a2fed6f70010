"""``triton.language.math``: the elementary functions."""

from tilewright.language._builtin import functions

# Older versions had the functions of libdevice here as well.
_FUNCTIONS = {**functions("extra.libdevice."), **functions("math.")}
globals().update(_FUNCTIONS)

__all__ = list(_FUNCTIONS)
