"""Reads the sources of the reference in `tests/reference`: pages, topics, names and their examples."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from conftest import ROOT

SOURCES = ROOT / "tests" / "reference"

FIELDS = ("Shapes: ", "Types: ", "Error: ", "About: ")

PRELUDE = "x = tl.load(x_ptr + 1 + tl.arange(0, 4))"


@dataclasses.dataclass
class ReferencePage:
    """A page of the reference: the name of its file, its title, and a sentence about it."""

    name: str
    title: str
    about: str = ""


@dataclasses.dataclass
class Mistake:
    """A wrong use of a function: the code or the class of its error, what is wrong, and lines of a program."""

    code: str
    about: str
    lines: list[str]


@dataclasses.dataclass
class Example:
    """A name below ``triton.language`` or ``triton``, and lines of a program that show it."""

    page: ReferencePage
    topic: str
    path: str
    lines: list[str]
    # The statements about its shapes, types and errors, by the first word.
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    mistakes: list[Mistake] = dataclasses.field(default_factory=list)

    def definitions(self) -> int:
        """How many of the first lines define a function for the kernel to use."""
        return self.lines.index("") + 1 if self.lines[0].startswith("@") else 0

    def values(self) -> Iterator[tuple[int, str, Any, str]]:
        """Each value that is stated: the number of its line, its name, the value, and the text of the value."""
        for number, line in enumerate(self.lines):
            code, _, comment = line.partition("  # ")
            if not comment or " = " not in code or line.startswith(" "):
                continue
            names = [name.strip() for name in code.split(" = ")[0].split(",")]
            stated = ast.literal_eval(f"({comment},)" if len(names) > 1 else f"[{comment}]")
            assert len(stated) == len(names), f"{self.path}: {line}"
            texts = [comment] * len(names)
            yield from ((number, *each) for each in zip(names, stated, texts, strict=True))


def read_examples(name: str = "examples.md") -> list[Example]:
    """The examples of a source, in the order of the file."""
    page, topic, found = ReferencePage("", ""), "", list[Example]()
    of_topic: dict[str, str] = {}
    in_code = False
    for line in (SOURCES / name).read_text().splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif in_code:
            found[-1].lines.append(line)
        elif line.startswith("### "):
            found.append(Example(page, topic, line[4:].strip(), [], dict(of_topic)))
        elif line.startswith("## "):
            topic, of_topic = line[3:].strip(), {}
        elif begun := re.match(r"# (\w+): (.*)", line):
            page, topic = ReferencePage(begun[1], begun[2]), ""
        elif not topic:
            page.about += " " * bool(page.about) + line
        elif line.startswith(FIELDS):
            field, _, text = line.partition(": ")
            is_of_topic = not found or found[-1].topic != topic
            (of_topic if is_of_topic else found[-1].fields)[field] = text
        elif mistake := re.fullmatch(r"Raises: (\w+) (?:for )?(.*): `(.*)`", line):
            found[-1].mistakes.append(Mistake(mistake[1], mistake[2], mistake[3].split("; ")))
    return found
