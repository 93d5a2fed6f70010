"""``triton.language.standard``: the library functions of the language; they are those of ``tl``."""

from tilewright.language.core import *  # noqa: F403
from tilewright.language.core import __all__ as __all__
