"""Builds the documentation site: `make site` runs Sphinx on the Markdown pages of this folder.

The pages are plain Markdown, which a code host renders too. A hook completes them for the site. The links
of `index.md`, and of a page with a folder of the same name, become its part of the navigation. Links that
lead out of this folder become links to the code host.

Other generators do not fit: mkdocs 1 and its Material theme are no longer developed, Zensical is not stable
before 1.0, and mdBook takes minutes to compile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

ROOT = Path(__file__).parent.parent
CODE = "https://github.com/tilewright/tilewright/blob/main/"

project = "Tilewright"
author = "The tilewright authors"
copyright = author
root_doc = "index"
extensions = ["myst_parser"]
# Headings have the anchors of a code host.
myst_heading_anchors = 4
# `(c)` and quotes stay as they are written.
smartquotes = False
# Each reference must have a target; `make site` makes a warning an error.
nitpicky = True
# Pages show commands, PTX and excerpts of output, which no lexer knows completely.
suppress_warnings = ["misc.highlighting_failure"]

html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_theme = "furo"
html_title = "Tilewright"
html_show_sphinx = False
# No page declares an entry of an index, so the index would be an empty page.
html_use_index = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"source_edit_link": CODE + "docs/{filename}"}

LINK = re.compile(r"(?<=\]\()([^)#\s]+)(#[^)\s]*)?(?=\))")
# A link to a page of the same folder or of one below.
PAGE_LINK = re.compile(r"\[([^]]+)\]\((?!\.\.|\w+://)([^)#\s]+\.md)(?:#[^)\s]*)?\)")
LOG = logging.getLogger(__name__)


def prose(text: str) -> Iterator[tuple[bool, str]]:
    """The lines of a page, each with whether it is outside of blocks of code."""
    in_fence = False
    for line in text.splitlines(keepends=True):
        is_mark = line.lstrip().startswith("```")
        yield not (in_fence or is_mark), line
        in_fence ^= is_mark


def link_to_code(page: Path, line: str) -> str:
    """The line, with links to files outside of this folder as links to the code host."""

    def replaced(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / link[1]))
        if "://" in link[1] or target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists():
            name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
            LOG.warning("%s is not in the project", link[1], location=(name, None))
        return CODE + target.relative_to(ROOT).as_posix() + (link[2] or "")

    return LINK.sub(replaced, line)


def navigation(page: Path, text: str) -> str:
    """The navigation below an index page: the pages that it links.

    On the start page, these are the links of lists below a heading; the heading and the texts of the links are the
    titles of the navigation.
    """
    is_start = page == ROOT / "docs" / "index.md"
    sections: dict[str, list[str]] = {}
    heading = ""
    for is_prose, line in prose(text):
        if is_start and is_prose and line.startswith("## "):
            heading = line[3:].strip()
        for title, target in PAGE_LINK.findall(line) if is_prose and bool(heading) == is_start else []:
            entry = f"{title} <{target}>" if is_start else target
            entries = sections.setdefault(f":caption: {heading}\n" * is_start, [])
            if entry not in entries:
                entries.append(entry)
    tree = "\n```{{toctree}}\n:hidden:\n{}\n{}\n```\n"
    return "".join(tree.format(caption, "\n".join(entries)) for caption, entries in sections.items())


def complete(app: Sphinx, name: str, source: list[str]) -> None:
    """Completes the text of a page before Sphinx parses it."""
    page = Path(app.env.doc2path(name))
    lines = [link_to_code(page, line) if is_prose else line for is_prose, line in prose(source[0])]
    source[0] = "".join(lines)
    if page.name == "index.md" or page.with_suffix("").is_dir():
        source[0] += navigation(page, source[0])


def collapse_navigation(app: Sphinx, name: str, template: str, context: dict[str, Any], page: object) -> None:
    """Leaves out of a page's navigation what other sections have: the site is smaller, and built sooner."""
    whole = context["toctree"]
    context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the hooks; the theme reads the context at the default priority, 500."""
    app.connect("source-read", complete)
    app.connect("html-page-context", collapse_navigation, priority=400)
    return {"parallel_read_safe": True}
