"""``gluon.language``: the names of Gluon's language; those of ``triton.language`` among them are the same objects."""

from __future__ import annotations

from tilewright import language as _triton_language
from tilewright.experimental.gluon import _layouts as _values
from tilewright.experimental.gluon import _names
from tilewright.experimental.gluon._modules import add_modules
from tilewright.experimental.gluon._runtime import jit
from tilewright.language import core, math, semantic, standard
from tilewright.language.extra import libdevice
from tilewright.runtime.jit import constexpr_function

_shared = {
    name: value
    for module in (standard, math, semantic, core, _triton_language)
    for name, value in vars(module).items()
    if not name.startswith("__")
}

add_modules(
    __name__,
    _names.MODULES,
    {
        "tl": {**_shared, "libdevice": libdevice},
        "gluon": {"constexpr_function": constexpr_function, "jit": jit},
        "_layouts": vars(_values),
        "_core": {"to_linear_layout": constexpr_function(_values.to_linear_layout)},
        "nvidia.rubin": {"TensorMemoryScalesLayout": _values.RubinTensorMemoryScalesLayout},
    },
    _names.CLASSES,
)
