"""``triton.tools.link``: names that programs import, and that tilewright does without."""

from tilewright._missing import missing_names

__getattr__ = missing_names(
    "tilewright.tools.link",
    "HeaderParser KernelLinkerMeta LinkerError main",
    hint="tilewright makes no C headers; triton.compile(...).asm has the code of a kernel",
)
