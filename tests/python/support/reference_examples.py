"""Reads `tests/reference/examples.md`: the topics of the reference, its names and their examples."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import Any

from conftest import ROOT

EXAMPLES = ROOT / "tests" / "reference" / "examples.md"

FIELDS = ("Shapes: ", "Types: ", "Error: ")

PRELUDE = "x = tl.load(x_ptr + 1 + tl.arange(0, 4))"


@dataclasses.dataclass
class Example:
    """A name of the language below ``triton.language``, and lines of a kernel that show it."""

    topic: str
    path: str
    lines: list[str]
    # The statements about its shapes, types and errors, by the first word.
    fields: dict[str, str] = dataclasses.field(default_factory=dict)

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


def read_examples() -> list[Example]:
    """The examples, in the order of the file."""
    topic, found = "", list[Example]()
    of_topic: dict[str, str] = {}
    for line in EXAMPLES.read_text().splitlines():
        if line.startswith("### "):
            found.append(Example(topic, line[4:].strip(), [], dict(of_topic)))
        elif line.startswith("## "):
            topic, of_topic = line[3:].strip(), {}
        elif line.startswith(FIELDS):
            name, _, text = line.partition(": ")
            is_of_topic = not found or found[-1].topic != topic
            (of_topic if is_of_topic else found[-1].fields)[name] = text
        elif line.startswith("    ") or (found and found[-1].lines and not line):
            found[-1].lines.append(line[4:])
    for example in found:
        while example.lines and not example.lines[-1]:
            example.lines.pop()
    return found
