"""``triton.tools.build_extern``: names that programs import, and that tilewright does without."""

from tilewright._missing import missing_names

__getattr__ = missing_names(
    "tilewright.tools.build_extern",
    "ExternLibrary LLVMDisassembler Libdevice Symbol build convert_type to_unsigned",
    hint="tl.extra.libdevice has the functions of the device library",
)
