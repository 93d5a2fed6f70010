"""``triton.language.extra.cuda.gdc``: order between a kernel and the one that was launched before it."""

from tilewright.language.extra import cuda

_FUNCTIONS = {name: getattr(cuda, name) for name in ("gdc_launch_dependents", "gdc_wait")}
globals().update(_FUNCTIONS)

__all__ = list(_FUNCTIONS)
