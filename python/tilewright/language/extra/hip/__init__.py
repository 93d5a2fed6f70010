"""``triton.language.extra.hip``: what kernels for GPUs of AMD ask of the machine."""

from tilewright.language._builtin import functions
from tilewright.language.extra.hip import libdevice

_FUNCTIONS = functions("extra.hip.")
globals().update(_FUNCTIONS)

__all__ = ["libdevice", *_FUNCTIONS]

from tilewright.language.extra.hip import utils  # noqa: E402

__all__ += ["utils"]
