"""``triton.language.standard``: the library functions of the language; they are those of ``tl``."""

from __future__ import annotations

from tilewright import _native
from tilewright.language._builtin import LanguageFunction
from tilewright.language.core import *  # noqa: F403
from tilewright.language.core import __all__ as __all__

for _name, _parameters in _native.combining_functions():
    globals()[_name] = LanguageFunction(
        f"standard.{_name}",
        _parameters,
        "A function that the library's reductions combine with: pass it to tl.reduce.",
    )
