"""``triton.language.semantic``: programs import functions of the language from here; they are those of ``tl``."""

from tilewright.language.core import *  # noqa: F403
from tilewright.language.core import __all__ as __all__
