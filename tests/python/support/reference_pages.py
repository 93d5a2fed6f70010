"""Writes the pages of `docs/reference` from the table of the compiler and from `tests/reference`."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable

from conftest import ROOT
from gluon_programs import in_gluon
from reference_examples import Example, read_examples
from reference_types import table

from tilewright import _native

ALL_NAMES = {
    path: (parameters, doc, is_method) for path, parameters, doc, is_method in _native.language_names()
}
NAMES = {path: row for path, row in ALL_NAMES.items() if not path.startswith("gluon.")}
GLUON_NAMES = {path: row for path, row in ALL_NAMES.items() if path.startswith("gluon.")}
ROWS = {name: row for _, name, *row in _native.elementwise_functions()}
LANGUAGE = read_examples()
HOST = read_examples("host.md")
GLUON = read_examples("gluon.md")
GLUON_HOST = read_examples("gluon_host.md")
for each in GLUON:
    each.path = f"gluon.{each.path}"


def shared_examples() -> list[Example]:
    """The examples of the functions that `gl` has from `tl`, as lines of Gluon."""
    gl = importlib.import_module("tilewright.experimental.gluon.language")
    tl = importlib.import_module("tilewright.language")
    own = {each.path: each for each in read_examples("gluon_shared.md")}
    page = next(iter(own.values())).page
    lines = {each.path: in_gluon(each.lines) for each in LANGUAGE} | {
        path: each.lines for path, each in own.items()
    }
    shared = [name for name in gl.__all__ if name in lines and getattr(gl, name) is getattr(tl, name, None)]
    return [Example(page, "", name, lines[name]) for name in shared]


GLUON_SHARED = shared_examples()

EVERY = LANGUAGE + GLUON + GLUON_SHARED + GLUON_HOST + HOST
"""The examples of all pages."""

# The common part of the reference; the table of its errors is tested.
INDEX = """\
# Reference

Every function of `triton.language` (`tl`), a page for each family: its signature, the shapes and
types that it takes, how exact it is, and an example. Three pages have the functions of `triton`
that a program calls on the host, and three those of [Gluon](../gluon.md). A test writes the pages
from the tables of the compiler, and runs every example.

## How to read an entry

Unless an entry says otherwise, a function takes scalars and tiles, broadcasts its operands to one
shape, and converts them to a common type. A table shows the result for each element type that the
compiler accepts, and the error for the others. "fp8" is every float of 8 bits. The text after `#`
is the value that the line computes. In each example of the language, `x_ptr` points to the fp32
numbers 0 to 15, `i_ptr` to sixteen int32 zeros, `x` is the tile `[1.0, 2.0, 3.0, 4.0]`, and
`libdevice` is `tl.extra.libdevice`.

## Errors that every function reports

| mistake | example | error |
|---|---|---|
| shapes that do not broadcast | `x + tl.arange(0, 8)` | [TW0004](../diagnostics/TW0004.md) |
| an operand of a type that the entry does not list | `tl.exp(x_ptr)` | [TW0005](../diagnostics/TW0005.md) |
| a mask of another shape | `tl.load(x_ptr, mask=x > 0)` | [TW0007](../diagnostics/TW0007.md) |
| a run-time value where a constant is required | `tl.arange(0, tl.load(i_ptr))` | [TW0008](../diagnostics/TW0008.md) |
| an argument too few, too many, or misspelled | `tl.exp(x, x)` | [TW0009](../diagnostics/TW0009.md) |
| an unknown function | `tl.exponential(x)` | [TW0015](../diagnostics/TW0015.md) |
| a value outside of the documented choices | `tl.sum(x, axis=1)` | [TW0016](../diagnostics/TW0016.md) |
| an access outside of the tensor | `tl.atomic_add(i_ptr + 16, 1)` | [TW0201](../diagnostics/TW0201.md) |

[All diagnostics](../diagnostics/index.md) lists the other codes.
"""

# The rows of functions that have another row's name outside of libdevice.
ROW_OF = {"extra.libdevice.exp": "accurate_exp", "extra.libdevice.sqrt": "sqrt_rn"}

# The pages whose names compute with numbers, and say how far they may be off.
MATH = ("arithmetic", "math", "libdevice")


def exactness(path: str) -> str:
    """The statement of the table of elementwise functions about a function."""
    row = ROWS.get(ROW_OF.get(path, path.rpartition(".")[2]))
    if row is None or path.startswith(("tensor.", "dtype.", "target_info.")):
        return ""
    _, domain, ulps, slope = row
    if ulps is None:
        return f"Takes {domain}. Exact, rounded once."
    more = f" (fp32: plus {slope:g} for each unit of |x|)" if slope else ""
    return (
        f"Takes {domain}. Within {ulps:g} ulp of the exact result{more}; narrower types are computed in fp32."
    )


def error(example: Example) -> str:
    """How far a function may be off: as its row says, or its entry, or its description."""
    if said := exactness(example.path):
        return said
    if "Error" in example.fields:
        return example.fields["Error"]
    doc = " ".join(NAMES[example.path][1].split())
    if found := re.search(r"(?:\d+ ulp|an error of|\d+e-\d+ relative)[^.]*", doc):
        return f"{found[0]}."
    return "exact, rounded once." if re.search(r"\brounded\b|\bexact\b", doc) else ""


def mistakes(example: Example) -> list[str]:
    """The table of the wrong uses and their errors, after an empty line."""
    if not example.mistakes:
        return []
    text = ["", "| mistake | example | error |", "|---|---|---|"]
    for mistake in example.mistakes:
        is_code = mistake.code.startswith("TW")
        code = f"[{mistake.code}](../diagnostics/{mistake.code}.md)" if is_code else f"`{mistake.code}`"
        text.append(f"| {mistake.about} | `{'; '.join(mistake.lines)}` | {code} |")
    return text


def shared_names() -> list[str]:
    """The section of the names that `gl` has from `tl`."""
    gl = importlib.import_module("tilewright.experimental.gluon.language")
    tl = importlib.import_module("tilewright.language")
    functions = {each.path for each in GLUON_SHARED}
    shared = [name for name in gl.__all__ if getattr(gl, name) is getattr(tl, name, None)]
    types = [f"`{name}`" for name in shared if name not in functions]
    about = "[Another page](gluon_shared.md) has the functions of `triton.language` that `gl` has as well. These types "
    about += f"and values are those of `triton.language`, too: {' '.join(types)}."
    return ["## Names of `triton.language`", "", *wrapped(about), ""]


def missing_names() -> list[str]:
    """The section of the names of the official package that are missing here."""
    about = (
        "Names of Gluon in Triton 3.9 that this version lacks. Programs can import them; a call on the host raises "
        "[TW0117](../diagnostics/TW0117.md)."
    )
    text = ["## Names that are missing", "", *wrapped(about), "", "| module | names |", "|---|---|"]
    rows: dict[str, list[str]] = {}
    for module, names in read_names("gluon_missing.txt").items():
        short = module.removeprefix("triton.experimental.gluon.")
        if short.split(".")[0] != "amd" and not short.startswith("language.amd"):
            rows.setdefault(" ".join(f"`{name}`" for name in names), []).append(f"`{short}`")
    text += [f"| {' '.join(modules)} | {names} |" for names, modules in rows.items()]
    more = (
        "The functions of the modules `amd` are missing. The classes are types of values in kernels, which annotations "
        "may name; the functions below a class are its methods, which a kernel cannot call."
    )
    return [*text, "", *wrapped(more), ""]


def read_names(file: str) -> dict[str, list[str]]:
    """The names of a table of the official package, by module."""
    folder = ROOT / "tests" / "python" / "compat" / "triton"
    rows = [line.split(": ") for line in (folder / file).read_text().splitlines()]
    return {module: names.split() for module, names in rows}


def wrapped(text: str, indent: str = "") -> list[str]:
    """The lines of a paragraph or of an item of a list."""
    return textwrap.wrap(
        " ".join(text.split()),
        100,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def name_of(example: Example) -> str:
    """How a program writes the name."""
    if example in HOST:
        return "triton." + example.path
    if example in GLUON_HOST:
        return gluon_host_name(example.path)
    if example in GLUON:
        return gluon_name(example.path)
    if example in GLUON_SHARED:
        return f"gl.{example.path}"
    return ("" if example.path.startswith(("tensor.", "dtype.")) else "tl.") + example.path


def gluon_name(path: str) -> str:
    """How a program writes a function of Gluon: those of modules with the name of the module, the others of `gl`."""
    path = path.removeprefix("gluon.")
    return f"gl.{path}" if "." not in path else path.removeprefix("hopper.")


def gluon_host_name(path: str) -> str:
    """How a program writes a name of the host below ``triton.experimental.gluon``."""
    if path.startswith("language."):
        return re.sub(r"^gl\.nvidia\.\w+\.", "", f"gl.{path.removeprefix('language.')}")
    return path.removeprefix("nvidia.hopper.") if path.startswith("nvidia.") else f"gluon.{path}"


def anchor(example: Example) -> str:
    """The anchor of the heading of an entry, by the rule of code hosts."""
    return "".join(c for c in name_of(example).lower() if c.isalnum() or c in "_-")


def call(name: str, parameters: list[str]) -> list[str]:
    """The signature of a function, one parameter on each line if it is long."""
    line = f"{name}({', '.join(parameters)})"
    return [line] if len(line) <= 80 else [f"{name}(", *(f"    {each}," for each in parameters), ")"]


def split_parameters(text: str) -> list[str]:
    """The parameters in a text such as `(x, shape=(1, 2))`."""
    found, depth = [""], 0
    for character in " ".join(text.split())[1:-1]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [each.strip() for each in found if each.strip()]


class Renderer:
    """Writes pages, and remembers the fields that they lack."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def entry(self, example: Example, level: str) -> list[str]:
        """The lines of a name of the language."""
        parameters, doc, is_method = NAMES[example.path]
        rows = table(example, parameters)
        fields = {"Shapes": example.fields.get("Shapes", ""), "Types": example.fields.get("Types", "")}
        if rows:
            fields["Types"] = "as the table says."
        if example.page.name in MATH:
            fields["Error"] = error(example)
        self.missing.update(f"{example.path}: no {name.lower()}" for name, text in fields.items() if not text)
        text = [f"{level} `{name_of(example)}`", "", "```python"]
        text += [*call(name_of(example), split_parameters(parameters)), "```", ""]
        text += [*wrapped(doc + " Also a method of tensors." * is_method), ""]
        for name, said in fields.items():
            text += wrapped(f"- {name}: {said}", indent="  ")
        return [*text, *(["", *rows] if rows else []), "", "```python", *example.lines, "```", ""]

    def gluon_entry(self, example: Example, level: str) -> list[str]:
        """The lines of a function or an attribute of kernels of Gluon."""
        name, signature = name_of(example), list[str]()
        if example.path in GLUON_NAMES:
            parameters, doc, _ = GLUON_NAMES[example.path]
            names = ("shared_memory_descriptor", "tensor_memory_descriptor", "clc_result")
            classes = tuple(f"gluon.{class_name}." for class_name in names)
            is_method = example.path.startswith(classes)
            listed = split_parameters(parameters)[1 if is_method else 0 :]
            signature = ["```python", *call(name, listed), "```", ""]
        else:
            doc = example.fields.get("About", "")
        fields = {field: example.fields.get(field, "") for field in ("Shapes", "Types")}
        self.missing.update(
            f"{example.path}: no {field.lower()}" for field, said in fields.items() if not said
        )
        if not doc:
            self.missing.add(f"{example.path}: no description")
        text = [f"{level} `{name}`", "", *signature, *wrapped(doc), ""]
        for field, said in fields.items():
            text += wrapped(f"- {field}: {said}", indent="  ")
        return [*text, *mistakes(example), "", "```python", *example.lines, "```", ""]

    def host_entry(self, example: Example, level: str) -> list[str]:
        """The lines of a name of the host."""
        root = "tilewright.experimental.gluon" if example in GLUON_HOST else "tilewright"
        value = host_value(example.path, root)
        doc = (inspect.getdoc(value) or "").replace("``", "`")
        # A class of Gluon describes its fields in the second paragraph.
        doc = doc if example in GLUON_HOST else doc.partition("\n\n")[0]
        if not doc:
            self.missing.add(f"{example.path}: no docstring")
        text = [f"{level} `{name_of(example)}`", ""]
        if callable(value):
            text += ["```python", *call(name_of(example), host_parameters(value)), "```", ""]
        return [*text, *wrapped(doc), *mistakes(example), "", "```python", *example.lines, "```", ""]

    def shared_entry(self, example: Example, level: str) -> list[str]:
        """The lines of a function that Gluon shares with Triton: its shapes and types are in the entry there."""
        parameters, doc, _ = NAMES[example.path]
        other = next(each for each in LANGUAGE if each.path == example.path)
        link = f"[`{name_of(other)}`]({other.page.name}.md#{anchor(other)})"
        text = [f"{level} `{name_of(example)}`", "", "```python"]
        text += [*call(name_of(example), split_parameters(parameters)), "```", ""]
        text += wrapped(f"{doc} Shapes and types are those of {link}.")
        return [*text, "", "```python", *example.lines, "```", ""]

    def writer(self, example: Example) -> Callable[[Example, str], list[str]]:
        """The method that writes an entry."""
        if example in GLUON:
            return self.gluon_entry
        if example in GLUON_SHARED:
            return self.shared_entry
        return self.host_entry if example in HOST + GLUON_HOST else self.entry

    def pages(self) -> dict[str, str]:
        """The text of each page, by the name of its file."""
        found = {"index": INDEX + "\n" + contents()}
        for page in pages():
            examples = [example for example in EVERY if example.page is page]
            has_topics = len({example.topic for example in examples}) > 1
            text, topic = [f"# {page.title}", "", *wrapped(page.about), ""], ""
            for example in examples:
                if has_topics and example.topic != topic:
                    topic = example.topic
                    text += [f"## {topic}", ""]
                text += self.writer(example)(example, "###" if has_topics else "##")
            if page.name == "gluon":
                text += [*shared_names(), *missing_names()]
            found[page.name] = "\n".join(text)
        return found


def pages() -> list:
    """The pages, in the order of their sources."""
    found = []
    for example in EVERY:
        if example.page not in found:
            found.append(example.page)
    return found


def contents() -> str:
    """The table of all names, a row for each page."""
    rows = ["## Pages", "", "| page | names |", "|---|---|"]
    for page in pages():
        links = []
        for example in EVERY:
            if example.page is page:
                short = name_of(example).removeprefix("tl.").removeprefix("extra.")
                links.append(f"[`{short.removeprefix('libdevice.')}`]({page.name}.md#{anchor(example)})")
        rows.append(f"| [{page.title}]({page.name}.md) | {' '.join(links)} |")
    return "\n".join([*rows, ""])


def host_value(path: str, root: str = "tilewright") -> object:
    """The object of the host with this path below a module."""
    value: object = importlib.import_module(root)
    for count, part in enumerate(path.split("."), 1):
        if not hasattr(value, part):
            value = importlib.import_module(f"{root}." + ".".join(path.split(".")[:count]))
        else:
            value = getattr(value, part)
    return value


def host_parameters(value: object) -> list[str]:
    """The parameters of a function or class, without annotations."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(value).parameters.values()
        if each.name != "self"
    ]
    return split_parameters(str(inspect.Signature(parameters)).replace("<factory>", "[]"))
