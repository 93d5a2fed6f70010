"""``triton.language.extra.cpu.libdevice``: the same functions as ``triton.language.extra.libdevice``."""

from tilewright.language.extra.libdevice import *  # noqa: F403
from tilewright.language.extra.libdevice import __all__ as __all__
