"""``triton.language.extra.cuda``: functions that only CUDA devices have."""

from tilewright.language._builtin import functions
from tilewright.language.extra.cuda import libdevice

_FUNCTIONS = functions("extra.cuda.")
globals().update(_FUNCTIONS)

__all__ = ["libdevice", *_FUNCTIONS]

from tilewright.language.extra.cuda import gdc, utils  # noqa: E402

__all__ += ["gdc", "utils"]
