"""Names of modules that are found at their first use, and then kept as ordinary globals.

A module whose ``__getattr__`` imports the object would otherwise import it again at each access.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def kept_in(names: dict[str, Any]) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    """Decorates the ``__getattr__`` of a module, so that it keeps the objects that it finds in the module's globals."""

    def decorate(find: Callable[[str], Any]) -> Callable[[str], Any]:
        def __getattr__(name: str) -> Any:
            # Another thread, or the import of a submodule, may have defined the name meanwhile.
            return names.setdefault(name, find(name))

        return __getattr__

    return decorate
