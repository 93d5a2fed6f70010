"""Names of Triton that tilewright or torch replace by other names, most of them for compiling C or reading LLVM IR.

Programs can import these names. Using one raises ``NotAvailableError``, which names the replacement.
"""

from __future__ import annotations

from tilewright._native import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def replaced_names(module: str, names: str, instead: str) -> Callable[[str], Missing]:
    """Returns the ``__getattr__`` of a module with replaced names: ``instead`` names the replacement."""
    known = frozenset(names.split())

    def __getattr__(name: str) -> Missing:
        if name in known:
            return Missing(f"{module.replace('tilewright', 'triton', 1)}.{name}", instead)
        import sys

        # `name` and `obj` let Python suggest a similar name.
        own = sys.modules[module]
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=own)

    return __getattr__


def refuse_command(module: str, instead: str) -> None:
    """Ends ``python -m triton.tools...`` with a line that names the replacement."""
    import sys

    name = module.replace("tilewright", "triton", 1)
    sys.exit(f"tilewright: python -m {name} is no command of tilewright: {instead}")
