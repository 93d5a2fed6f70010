"""Keeps names that the ``__getattr__`` of a module finds at their first use as ordinary globals of the module.

Without this, the module's ``__getattr__`` would import the object again at each access.
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
