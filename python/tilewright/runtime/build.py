"""``triton.runtime.build``: compiling C at run time, which tilewright does not do.

The launchers and drivers that the official package builds here are part of the native module. The names exist for
programs that import them; using one raises an error.
"""

from __future__ import annotations

from tilewright._replaced_names import replaced_names

__getattr__ = replaced_names(
    "tilewright.runtime.build",
    "compile_module_from_file compile_module_from_src compile_so_from_file compile_so_from_src _build _compile_so "
    "_compile_so_from_file _compile_so_from_src _find_compiler _get_cache_manager _get_file_extension "
    "_language_from_filename _library_flag _load_module_from_path",
    instead="tilewright compiles no C: its launchers are part of the package; for C of your own, "
    "torch.utils.cpp_extension or setuptools build it",
)


def platform_key() -> str:
    """The parts of the platform that machine code depends on besides its source."""
    import platform

    return ",".join([platform.machine(), platform.system(), *platform.architecture()])
