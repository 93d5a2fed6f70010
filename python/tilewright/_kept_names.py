"""Names of modules that are found at their first use, and then kept as ordinary globals.

A module whose ``__getattr__`` imports the object would otherwise import it again at each access.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def kept(names: dict[str, Any], name: str, find: Callable[[str], Any]) -> Any:
    """Returns the object that a function finds for a name, and keeps it in the globals of a module."""
    # Another thread, or the import of a submodule, may have defined the name meanwhile.
    return names.setdefault(name, find(name))
