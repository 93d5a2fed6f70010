"""``triton.language.core``: every name of the language. The functions are those of the compiler's table.

``core.pyi`` is generated from the same table.
"""

from __future__ import annotations

from tilewright import _native
from tilewright.language._aggregate import *  # noqa: F403
from tilewright.language._aggregate import __all__ as _aggregate_names
from tilewright.language._aggregate import aggregate_replace as _replace
from tilewright.language._builtin import NAMES, LanguageFunction, functions
from tilewright.language._classes import *  # noqa: F403
from tilewright.language._classes import CONSTEXPR_0 as CONSTEXPR_0
from tilewright.language._classes import __all__ as _class_names
from tilewright.language._classes import _unwrap_iterable as _unwrap_iterable
from tilewright.language._constexpr import *  # noqa: F403
from tilewright.language._constexpr import __all__ as _constexpr_names
from tilewright.language._constexpr import _unwrap_if_constexpr
from tilewright.language._types import *  # noqa: F403
from tilewright.language._types import __all__ as _type_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

for _name in _class_names:
    # Pickle and programs look up the classes in this module.
    if getattr(globals()[_name], "__module__", None) == "tilewright.language._classes":
        globals()[_name].__module__ = __name__

tensor = _native.tensor
"""A block of values, or one value, at run time of a kernel."""

tensor_descriptor = _native.tensor_descriptor
"""A tensor in memory that is accessed by blocks, made inside a kernel."""

_NAMES = sorted(
    {*_aggregate_names, *_constexpr_names, *_type_names, *_class_names, "tensor", "tensor_descriptor"}
)

# The methods of a tensor; only kernels can call them.
for _path, (_parameters, _doc, _is_method) in NAMES.items():
    if _is_method:
        setattr(tensor, _path.rpartition(".")[2], LanguageFunction(_path, _parameters, _doc))


class _HostFunction(LanguageFunction):
    """A function of compile-time values, which functions of the host call as well."""

    def __call__(self, bitwidth: Any, signed: Any) -> Any:
        """The integer type with ``bitwidth`` bits."""
        prefix = "int" if _unwrap_if_constexpr(signed) else "uint"
        # `int1` has no sign; an invalid width raises an error that lists the widths.
        width = _unwrap_if_constexpr(bitwidth)
        return dtype("int1" if width == 1 else f"{prefix}{width}")  # noqa: F405


class _AggregateReplace(LanguageFunction):
    """The copy of an aggregate with other fields, which programs make on the host as well."""

    def __call__(self, obj: Any, **fields: Any) -> Any:
        """The copy."""
        return _replace(obj, **fields)


# The compiler's table also has the classes, because kernels call some of them like functions.
_FUNCTIONS = {name: function for name, function in functions().items() if name not in _NAMES}
_FUNCTIONS["get_int_dtype"] = _HostFunction("get_int_dtype", *NAMES["get_int_dtype"][:2])
_FUNCTIONS["aggregate_replace"] = _AggregateReplace("aggregate_replace", *NAMES["aggregate_replace"][:2])
globals().update(_FUNCTIONS)

__all__ = [*_NAMES, *_FUNCTIONS]
