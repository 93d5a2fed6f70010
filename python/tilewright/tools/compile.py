"""``triton.tools.compile``: names that programs import, and that tilewright does without."""

from tilewright._missing import missing_names

__getattr__ = missing_names(
    "tilewright.tools.compile",
    "CompileArgs compile_kernel main",
    hint="ahead-of-time compilation is the command tilewright compile kernel.py::fn --signature ... --emit ptx",
)
