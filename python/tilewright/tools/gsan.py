"""``triton.tools.gsan``: names that programs import, and that something else replaces."""

from tilewright._replaced_names import refuse_command, replaced_names

_INSTEAD = "every access is checked on the CPU and the simulator, whatever the program asks for"

__getattr__ = replaced_names(
    "tilewright.tools.gsan",
    "main",
    instead=_INSTEAD,
)

if __name__ == "__main__":
    refuse_command("tilewright.tools.gsan", _INSTEAD)
