"""`docs/reference.md` has every name of the language, each with an example that says the truth.

``TILEWRIGHT_BLESS=1`` writes the page anew from the table of the compiler and `tests/reference/examples.md`.
"""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
import torch
from conftest import ROOT
from reference_examples import PRELUDE, Example, read_examples
from reference_types import table

from tilewright import _native

PAGE = ROOT / "docs" / "reference.md"
SURFACE = ROOT.parent / "shared" / "api-surface.md"
NAMES = {path: (parameters, doc, is_method) for path, parameters, doc, is_method in _native.language_names()}
ROWS = {name: row for _, name, *row in _native.elementwise_functions()}
EXAMPLES = read_examples()
# Fields that the page lacks.
MISSING: set[str] = set()

HEAD = """\
# Reference of the language

Every function of `triton.language` (`tl`): what it does, on which element types, how exact it is, and an example.
Written by a test from the table of the compiler and from `tests/reference/examples.md`, whose examples run on each
device.

Unless it says otherwise, a function takes scalars and tiles, broadcasts its operands to one shape, and converts them to
a common type. Tables say which element types a function takes, and what its result is then, as the compiler says it;
types that are not there are refused. fp8 are all types of 8 bits. A value after `#` is what the line gives. In each
example `x_ptr` points to the fp32 numbers 0 to 15, `i_ptr` to sixteen int32 zeros, `x` is the tile
`[1.0, 2.0, 3.0, 4.0]`, and `libdevice` is `tl.extra.libdevice`.
"""


def shown(path: str) -> str:
    """How a program writes the name."""
    if path.startswith(("tensor.", "dtype.")):
        return path
    return "tl." + path


# The rows of functions that have another row's name outside of libdevice.
ROW_OF = {"extra.libdevice.exp": "accurate_exp", "extra.libdevice.sqrt": "sqrt_rn"}

# The topics whose names compute with numbers, and say how far they may be off.
MATH = ("Arithmetic and comparison", "Functions of floats", "`tl.math`", "`tl.extra.libdevice`")


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


def entry(example: Example) -> str:
    """The entry of a name on the page."""
    parameters, doc, is_method = NAMES[example.path]
    rows = table(example, parameters)
    fields = {"Shapes": example.fields.get("Shapes", ""), "Types": example.fields.get("Types", "")}
    if rows:
        fields["Types"] = "as the table says."
    if example.topic in MATH:
        fields["Error"] = error(example)
    MISSING.update(f"{example.path}: no {name.lower()}" for name, text in fields.items() if not text)
    text = [f"### `{shown(example.path)}{' '.join(parameters.split())}`", "", " ".join(doc.split())]
    if is_method:
        text[-1] += " Also a method of tensors."
    text += ["", *(f"- {name}: {said}" for name, said in fields.items())]
    if rows:
        text += ["", *rows]
    return "\n".join([*text, "", "```python", *example.lines, "```", ""])


def render() -> str:
    text, topic = [HEAD], ""
    for example in EXAMPLES:
        if example.topic != topic:
            topic = example.topic
            text.append(f"## {topic}\n")
        text.append(entry(example))
    return "\n".join(text)


def test_every_name_has_an_example():
    written = [example.path for example in EXAMPLES]
    assert sorted(set(written)) == sorted(written)
    assert sorted(NAMES) == sorted(written)
    assert all(example.lines for example in EXAMPLES)


def test_the_page_is_up_to_date():
    """And says of every name its shapes and types, and of each function of numbers how far it may be off."""
    page = render()
    assert sorted(MISSING) == []
    if os.environ.get("TILEWRIGHT_BLESS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "TILEWRIGHT_BLESS=1 writes it"


def test_the_page_has_every_name_of_the_api():
    """The names of the public API, functions and methods, from the list that the project goes by."""
    if not SURFACE.exists():
        pytest.skip("the list is not part of the project")
    text = SURFACE.read_text()
    sections = text[text.index("## 2.") : text.index("## 6.")]
    listed = re.findall(
        r"^- `tl\.((?:math\.|random\.)?\w+)\(.*— (?:builtin|jit|constexpr_function)", sections, re.M
    )
    methods = re.findall(r"^- `tensor\.(\w+)\(", sections, re.M)
    libdevice = re.findall(r"`(\w+)\(arg0", sections)
    others = re.findall(r"`(\w+)\(", sections[sections.index("`triton.language.extra.cuda`") :])
    assert len(listed) > 100
    assert len(libdevice) > 190
    of_methods = {
        path.removeprefix("tensor.") for path, row in NAMES.items() if row[2] or path.startswith("tensor.")
    }
    last = {path.rpartition(".")[2] for path in NAMES}
    missing = [name for name in listed if name not in NAMES and name.removeprefix("random.") not in NAMES]
    missing += [f"tensor.{name}" for name in methods if name not in of_methods]
    missing += [f"libdevice.{name}" for name in libdevice if f"extra.libdevice.{name}" not in NAMES]
    # Names of target_info that are defined elsewhere.
    missing += [name for name in others if name not in last | {"constexpr_function"}]
    assert missing == []


def kernel_of(example: Example) -> tuple[str, list[tuple[str, np.ndarray]]]:
    """A kernel that stores each value that the example states, and these values with their texts."""
    values = [(number, name, np.array(value), text) for number, name, value, text in example.values()]
    outputs = ", ".join(f"out{index}" for index in range(len(values)))
    head = ["import tilewright as triton", "import tilewright.language as tl"]
    head += ["from tilewright.language.extra import libdevice", *example.lines[: example.definitions()]]
    lines = ["@triton.jit", f"def kernel(x_ptr, i_ptr{', ' if outputs else ''}{outputs}):", f"    {PRELUDE}"]
    for number, line in enumerate(example.lines):
        if number < example.definitions():
            continue
        lines.append(f"    {line}")
        for index, (at, name, value, _) in enumerate(values):
            if at == number:
                lines.append(f"    tl.store(out{index}{offsets(value.shape)}, {name})")
    return "\n".join(head + lines) + "\n", [(text, value) for _, _, value, text in values]


def offsets(shape: tuple[int, ...]) -> str:
    """The places of a tile's elements in row-major order."""
    text = ""
    for axis, extent in enumerate(shape):
        index = ", ".join(":" if other == axis else "None" for other in range(len(shape)))
        stride = int(np.prod(shape[axis + 1 :]))
        text += f" + tl.arange(0, {extent})[{index}] * {stride}"
    return text


def agrees(actual: np.ndarray, value: np.ndarray, text: str) -> bool:
    """Returns whether the numbers are those written, to the last digit that is written."""
    if value.dtype.kind in "biu":
        return np.array_equal(actual, value)
    digits = max((len(part) for part in re.findall(r"\.(\d+)", text)), default=0)
    if "e" in text.replace("True", "").replace("False", ""):
        return np.allclose(actual, value, rtol=10.0**-digits, atol=0, equal_nan=True)
    return np.allclose(actual, value, rtol=1e-6, atol=0.51 * 10.0**-digits, equal_nan=True)


@pytest.mark.parametrize("topic", sorted({example.topic for example in EXAMPLES}))
def test_examples_say_the_truth(topic, device, tmp_path):
    import importlib.util

    wrong = []
    for index, example in enumerate(each for each in EXAMPLES if each.topic == topic):
        source, values = kernel_of(example)
        path = tmp_path / f"example_{index}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.arange(16, dtype=torch.float32, device=device)
        zeros = torch.zeros(16, dtype=torch.int32, device=device)
        outputs = [
            torch.zeros(
                value.shape, dtype=torch.float64 if value.dtype.kind == "f" else torch.int64, device=device
            )
            for _, value in values
        ]
        try:
            module.kernel[(1,)](x, zeros, *outputs)
        except Exception as error:
            wrong.append(f"{example.path}: {error}")
            continue
        for output, (text, value) in zip(outputs, values, strict=True):
            actual = output.cpu().numpy()
            if not agrees(actual, value, text):
                wrong.append(f"{example.path}: {text} is {actual.tolist()}")
    assert not wrong, "\n".join(wrong)
