"""``triton.language.random``: random numbers; the functions are those of ``tl``."""

from tilewright.language import core
from tilewright.language._constexpr import constexpr

N_ROUNDS_DEFAULT = constexpr(10)

_NAMES = [
    "pair_uniform_to_normal",
    "philox",
    "philox_impl",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
]
_NAMES += ["randn4x", "uint_to_uniform_float"]
_FUNCTIONS = {name: getattr(core, name) for name in _NAMES if hasattr(core, name)}
globals().update(_FUNCTIONS)

__all__ = ["N_ROUNDS_DEFAULT", *_FUNCTIONS]
