"""The code on the pages of the tutorials is that of the programs in `examples`, which `test_examples.py` runs."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
EXCERPTS = [
    pytest.param(page, code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S))
]


@pytest.mark.parametrize(("page", "code"), EXCERPTS)
def test_an_excerpt_is_in_its_program(page, code):
    """The program is the first that the page links."""
    program = re.search(r"\.\./\.\./examples/\w+\.py", page.read_text())[0]
    assert "\n" + code in (page.parent / program).read_text()


def test_the_index_has_every_tutorial():
    linked = re.findall(r"^\| \[[^]]+\]\(([\w-]+\.md)\)", (PAGES[0].parent / "index.md").read_text(), re.M)
    assert sorted(linked) == [page.name for page in PAGES if page.name != "index.md"]
    assert len(EXCERPTS) >= 2 * len(linked)
