"""Runs first in each Python of a program under ``tilewright run``: its children have tilewright as their Triton, too.

``tilewright run`` puts the folder of this file on ``PYTHONPATH``. Python imports a module of this name at its start;
this file then imports the module that it hides.
"""

import os
import sys


def _watch() -> None:
    """Reads the variable that ``tilewright run`` sets."""
    try:
        from _tilewright_startup import watch
    except ImportError:
        # Another installation of Python, which has no tilewright.
        return
    watch("")


def _import_next() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            # The import system reads this entry after the import.
            sys.modules["sitecustomize"] = own


_watch()
_import_next()
