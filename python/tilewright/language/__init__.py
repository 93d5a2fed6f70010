"""The language of kernels: ``import triton.language as tl``.

This module only has names. The compiler knows them inside a kernel; the functions come from its own table (see
``_builtin.py``), the types and classes from ``core.py``. ``__init__.pyi`` is generated from the same table.
"""

from tilewright.language import core, extra, math, semantic, standard
from tilewright.language import random as random
from tilewright.language.core import *  # noqa: F403
from tilewright.language.core import __all__ as _core_names

# Kernels for older versions use tl.libdevice.
libdevice = extra.libdevice

__all__ = [*_core_names, "core", "extra", "libdevice", "math", "random", "semantic", "standard"]


def __getattr__(name: str) -> object:
    # Imported at its first use: it needs the runtime, which needs the language.
    if name == "target_info":
        import importlib

        return importlib.import_module("tilewright.language.target_info")
    if name == "tensor_descriptor_type":
        return core.tensor_descriptor_type
    import sys

    # With these, Python suggests a similar name.
    own = sys.modules[__name__]
    raise AttributeError(f"module 'triton.language' has no attribute {name!r}", name=name, obj=own)
