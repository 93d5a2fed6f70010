"""Diagnostics in tests: what a finding says as one text, and kernels whose text marks the columns to be underlined."""

from __future__ import annotations

import linecache

import pytest
from helpers import PRELUDE, module

import tilewright


def facts(finding) -> str:
    """All that a finding tells but its hint: the message, what is written beside the carets, the notes."""
    return "\n".join(
        [finding.message, finding.label, *(label[3] for label in finding.labels), *finding.notes]
    )


def lines(finding) -> list[int]:
    """The lines that a finding points to, the blamed one first."""
    return [finding.line, *(label[1] for label in finding.labels)]


def underlined(finding) -> str | None:
    """The text above the carets; None where it spans lines."""
    if finding.end_column is None:
        return None
    return linecache.getline(finding.file, finding.line)[finding.column - 1 : finding.end_column - 1]


def failing(text: str, *arguments, error=None, grid=(1,), **constants) -> list:
    """The findings of the launch of `kernel` in this text, where «…» marks what the first is to underline.

    The line, the column and the underlined text of the first finding are checked here.
    """
    marked = PRELUDE + text
    start, end = marked.index("«"), marked.index("»")
    kernel = module(unmarked(text)).kernel
    with pytest.raises(error or tilewright.CompilationError) as raised:
        kernel[grid](*arguments, **constants)
    found = raised.value.diagnostics
    line = marked.count("\n", 0, start) + 1
    column = start - (marked.rfind("\n", 0, start) + 1) + 1
    where = (found[0].line, found[0].column, underlined(found[0]))
    assert where == (line, column, marked[start + 1 : end]), str(raised.value)
    return list(found)


def unmarked(text: str) -> str:
    """The text without its marks."""
    return text.replace("«", "").replace("»", "")
