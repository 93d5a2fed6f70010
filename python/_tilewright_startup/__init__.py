"""Makes ``import triton`` import tilewright in a process, before the first line of its program.

A line of a ``.pth`` file calls :func:`watch` when Python starts, so this module imports nothing, not even
``__future__``. Only a program that imports ``triton`` (or torch, where the CPU replaces ``cuda``) pays for more: the
import then loads tilewright.

Two ``.pth`` files have such a line. ``tilewright_startup.pth`` is part of tilewright's wheel and acts on the variable;
``tilewright_as_triton.pth`` is written by ``tilewright activate``, or installed with the distribution ``triton``.

pytest: PYTEST_DONT_REWRITE, because this module is imported before pytest.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

VARIABLE = "TILEWRIGHT_AS_TRITON"
"""The environment variable that decides for one process and its children."""

TRITON_VERSION = "3.9.0"
"""The version of Triton whose API tilewright has."""

PARTS = ("triton", "viz", "cuda")
"""Replaceable parts: ``triton`` itself, ``triton_viz``, and, where torch finds no GPU, its device ``cuda``."""

_OFF = ("", "0")
_FIRST_IMPORT = {"triton": "triton", "viz": "triton_viz", "cuda": "torch"}


def parse_parts(text: str) -> tuple[str, ...]:
    """Returns the parts that a value of the variable names: none for ``0``, all for ``1``; raises ``ValueError``."""
    if text in _OFF:
        return ()
    if text == "1":
        return PARTS
    # A list may end with a comma.
    words = [word.strip() for word in text.split(",") if word.strip()] or [text]
    for word in words:
        if word not in PARTS:
            raise ValueError(f"{VARIABLE} is {text!r}, expected 0, 1, or some of {','.join(PARTS)}")
    return tuple(part for part in PARTS if part == "triton" or part in words)


class Watch:
    """Begins tilewright at the first import of a module that it replaces; other finders then find the module."""

    def __init__(self, text: str) -> None:
        self.text = text

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if fullname not in _FIRST_IMPORT.values():
            return None
        try:
            parts = parse_parts(self.text)
        except ValueError as error:
            raise ImportError(str(error), name=fullname) from None
        if fullname not in [_FIRST_IMPORT[part] for part in parts]:
            return None
        from importlib.util import find_spec

        try:
            from tilewright import _alias

            _alias.begin(parts)
        except Exception as error:
            if type(error).__module__ == "tilewright.errors":
                # The error is about a variable: frames of tilewright tell nothing.
                raise error.with_traceback(None) from None
            raise
        return find_spec(fullname)


def watch(text: str) -> None:
    """Waits for an import of the parts; the variable, where it is set, is read in place of ``text``."""
    import os

    text = os.environ.get(VARIABLE, text)
    if text not in _OFF and not any(isinstance(finder, Watch) for finder in sys.meta_path):
        finder: Any = Watch(text)
        sys.meta_path.insert(0, finder)


def waiting_parts() -> tuple[str, ...]:
    """Returns the parts that an import of this process would begin; none after tilewright has begun."""
    for finder in sys.meta_path:
        if isinstance(finder, Watch):
            return parse_parts(finder.text)
    return ()


def unwatch() -> None:
    """Ends the waiting: tilewright has begun."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Watch)]
