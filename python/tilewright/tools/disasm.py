"""``triton.tools.disasm``: names that programs import, and that tilewright does without."""

from tilewright._missing import missing_names

__getattr__ = missing_names(
    "tilewright.tools.disasm",
    "extract get_sass main parseCtrl path_to_cuobjdump processSassLines",
    hint="cuobjdump -sass shows the machine code in kernel.asm['cubin']",
)
