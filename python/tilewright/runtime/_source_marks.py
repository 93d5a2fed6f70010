"""Errors that mark a part of the program's source: the text with carets, and the arguments of a call in it."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import NamedTuple

from tilewright.errors import Diagnostic, TritonError, from_diagnostics
from tilewright.runtime.jit import shown_name


class Mark(NamedTuple):
    """Columns of a line, from 1; ``end`` is the column after the last one."""

    file: str
    line: int
    column: int
    end: int


def marked(
    code: str,
    kind: str,
    message: str,
    mark: Mark | None,
    label: str,
    notes: Sequence[str],
    hint: str | None,
) -> TritonError:
    """Returns the error with a code, its message, the marked source, notes and a hint."""
    lines = [f"error[{code}]: {message}"]
    margin = ""
    if mark is None:
        lines.append(" |")
    else:
        margin = " " * len(str(mark.line))
        text = linecache.getline(mark.file, mark.line).rstrip()
        lines += [
            f"{margin}--> {shown_name(mark.file)}:{mark.line}:{mark.column}",
            f"{margin} |",
            f"{mark.line} | {text}",
            f"{margin} | {' ' * (mark.column - 1)}{'^' * (mark.end - mark.column)} {label}",
            f"{margin} |",
        ]
    lines += [f"{margin} = note: {note}" for note in notes]
    lines += [] if hint is None else [f"{margin} = help: {hint}"]
    about = Diagnostic(
        "\n".join(lines),
        code=code,
        message=lines[0],
        **dict(zip(("file", "line", "column", "end_column"), mark or (None,) * 4, strict=True)),
        label=label if mark else "",
        labels=(),
        notes=tuple(notes),
        hint=hint,
    )
    return from_diagnostics(kind, (about,))


def instruction_range(code: CodeType, instruction: int, line: int) -> tuple[int, int, int | None, int | None]:
    """Returns the first and last line of an instruction, and its first and last column, in bytes, if they are known."""
    if hasattr(code, "co_positions"):
        number = instruction // 2
        for first, last, column, end in itertools.islice(code.co_positions(), number, number + 1):
            if first is not None and last is not None and column is not None and end is not None:
                return first, last, column, end
    return line, line, None, None


def characters(text: str, offset: int) -> int:
    """The number of characters of the first bytes of a line: Python states columns in bytes of UTF-8."""
    return len(text.encode()[:offset].decode(errors="ignore"))


def program_frame() -> FrameType | None:
    """Returns the innermost frame outside of this package."""
    package = __name__.partition(".")[0]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    return frame


class Call:
    """A call in the source of the program."""

    def __init__(self, file: str, node: ast.Call) -> None:
        self.file = file
        self.node = node

    @staticmethod
    def of_frame(frame: FrameType | None, argument: str) -> Call | None:
        """Returns the call that a frame executes; nothing if its source is not known.

        Python 3.10 keeps no columns: there, it is a call of the line, or of a decorator of the function in the line,
        that names the argument.
        """
        if frame is None:
            return None
        file = frame.f_code.co_filename
        try:
            tree = ast.parse("".join(linecache.getlines(file, frame.f_globals)))
        except (SyntaxError, ValueError):
            return None
        first, last, column, end = instruction_range(frame.f_code, frame.f_lasti, frame.f_lineno)
        for node in _calls(tree, frame.f_lineno) if column is None else ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            found = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
            has_argument = any(keyword.arg == argument for keyword in node.keywords)
            if found == (first, last, column, end) or (column is None and has_argument):
                return Call(file, node)
        return None

    def function(self) -> Call | None:
        """Returns the call whose result this one calls, such as that of a decorator with arguments."""
        return Call(self.file, self.node.func) if isinstance(self.node.func, ast.Call) else None

    def value(self, name: str, index: int | None = None) -> ast.expr | None:
        """Returns the expression of an argument, by its name or its index."""
        for keyword in self.node.keywords:
            if keyword.arg == name:
                return keyword.value
        before = self.node.args if index is None else self.node.args[: index + 1]
        if index is None or len(before) <= index or any(isinstance(one, ast.Starred) for one in before):
            return None
        return before[index]

    def argument(self, name: str, index: int | None = None) -> Mark:
        """Marks an argument with its name; if it is not found, a dictionary of arguments, or else the call."""
        named = [one for one in self.node.keywords if one.arg == name]
        if not named and (value := self.value(name, index)) is not None:
            return self.mark(value)
        of_dictionaries = [one for one in self.node.keywords if one.arg is None]
        return self.mark(next(iter(named or of_dictionaries), self.node))

    def text(self, within: ast.expr, text: str) -> Mark:
        """Marks a string in an expression, or the expression if the string is not there."""
        strings = (node for node in ast.walk(within) if isinstance(node, ast.Constant) and node.value == text)
        return self.mark(next(strings, within))

    def mark(self, node: ast.expr | ast.keyword) -> Mark:
        """Marks an expression, or its first line."""
        text = linecache.getline(self.file, node.lineno)
        is_one_line = node.end_lineno == node.lineno and node.end_col_offset is not None
        end = characters(text, node.end_col_offset or 0) if is_one_line else len(text.rstrip())
        return Mark(self.file, node.lineno, characters(text, node.col_offset) + 1, end + 1)


def _calls(tree: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yields the calls that contain a line, and the decorators of the function that is defined there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or line):
            yield node
        elif isinstance(node, ast.FunctionDef) and node.lineno == line:
            yield from node.decorator_list
