"""``triton.language.extra.hip``: queries of the machine, for kernels on GPUs of AMD."""

from tilewright.language._builtin import functions
from tilewright.language.extra.hip import libdevice

_FUNCTIONS = functions("extra.hip.")
globals().update(_FUNCTIONS)

__all__ = ["libdevice", *_FUNCTIONS]

from tilewright.language.extra.hip import utils  # noqa: E402

__all__ += ["utils"]
