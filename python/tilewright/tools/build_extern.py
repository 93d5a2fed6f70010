"""``triton.tools.build_extern``: names that programs import, and that something else replaces."""

from tilewright._replaced_names import refuse_command, replaced_names

_INSTEAD = "tl.extra.libdevice has the functions of the device library"

__getattr__ = replaced_names(
    "tilewright.tools.build_extern",
    "ExternLibrary LLVMDisassembler Libdevice Symbol build convert_type to_unsigned",
    instead=_INSTEAD,
)

if __name__ == "__main__":
    refuse_command("tilewright.tools.build_extern", _INSTEAD)
