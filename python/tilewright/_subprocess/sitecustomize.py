"""Runs first in each Python of a program under ``tilewright run``: its children have tilewright as their Triton, too.

``tilewright run`` puts the folder of this file on ``PYTHONPATH``. Python imports a module of this name at its start;
this file then imports the module that it hides.
"""

import os
import sys


def _prepare() -> None:
    device = os.environ.get("TILEWRIGHT_RUN")
    # `python -m tilewright ...` installs itself.
    if device is None or sys.orig_argv[1:3] == ["-m", "tilewright"]:
        return
    try:
        from tilewright import _run
    except ImportError:
        # Another installation of Python, which has no tilewright.
        return
    _run._prepare(device or None)


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


_prepare()
_import_next()
