"""``triton.tools.gsan``: names that programs import, and that tilewright does without."""

from tilewright._missing import missing_names

__getattr__ = missing_names(
    "tilewright.tools.gsan",
    "main",
    hint="every access is checked on the CPU and the simulator, whatever the program asks for",
)
