"""``triton.language.semantic``: programs import functions of the language from here; they are those of ``tl``."""

from tilewright._replaced_names import replaced_names
from tilewright.language.core import *  # noqa: F403
from tilewright.language.core import __all__ as __all__

__getattr__ = replaced_names(
    "tilewright.language.semantic",
    "IncompatibleTypeErrorImpl TritonSemantic",
    instead="functions of triton.language are those of the compiler, and have no other implementation",
)
