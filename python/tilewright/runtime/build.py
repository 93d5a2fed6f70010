"""``triton.runtime.build``: compiling C at run time, of which tilewright has nothing to compile.

What the official package builds here, launchers and drivers, is part of the native module. The names are there for
programs that import them; using one says so.
"""

from __future__ import annotations

from tilewright._missing import missing_names

__getattr__ = missing_names(
    "tilewright.runtime.build",
    "compile_module_from_file compile_module_from_src compile_so_from_file compile_so_from_src",
    hint="tilewright compiles no C: its launchers are part of the package; for C of your own, "
    "torch.utils.cpp_extension or setuptools build it",
)


def platform_key() -> str:
    """What machine code depends on besides its source."""
    import platform

    return ",".join([platform.machine(), platform.system(), *platform.architecture()])
