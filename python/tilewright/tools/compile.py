"""``triton.tools.compile``: names that programs import, and that something else replaces."""

from tilewright._replaced_names import refuse_command, replaced_names

_INSTEAD = (
    "ahead-of-time compilation is the command tilewright compile kernel.py::fn --signature ... --emit ptx"
)

__getattr__ = replaced_names(
    "tilewright.tools.compile",
    "CompileArgs compile_kernel main",
    instead=_INSTEAD,
)

if __name__ == "__main__":
    refuse_command("tilewright.tools.compile", _INSTEAD)
