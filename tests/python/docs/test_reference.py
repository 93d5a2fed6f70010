"""`docs/reference` has every name of the language, each with an example that says the truth.

``TILEWRIGHT_BLESS=1`` writes the pages anew from the table of the compiler and from `tests/reference`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from conftest import DEVICE, ROOT
from gluon_programs import GLUON_IMPORTS, definitions, gluon_kernel
from reference_examples import PRELUDE, Example
from reference_pages import (
    GLUON,
    GLUON_HOST,
    GLUON_NAMES,
    GLUON_SHARED,
    HOST,
    INDEX,
    LANGUAGE,
    NAMES,
    Renderer,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

import tilewright as triton
from tilewright.experimental.gluon import language as gl

FOLDER = ROOT / "docs" / "reference"
SURFACE = ROOT.parent / "shared" / "api-surface.md"

# The begin of each example of the host.
HOST_PRELUDE = """\
import sys
import tilewright
import tilewright.viz
import torch
import tilewright as triton
import tilewright.language as tl
sys.modules["triton_viz"] = tilewright.viz


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x + y, mask=i < n)


x, y, out = torch.arange(100.0), torch.ones(100), torch.zeros(100)
"""


def test_every_name_has_an_example():
    written = [example.path for example in LANGUAGE]
    assert sorted(set(written)) == sorted(written)
    assert sorted(NAMES) == sorted(written)
    assert all(example.lines for example in LANGUAGE + HOST + GLUON + GLUON_HOST)
    # The reference of Gluon has attributes of values as well.
    functions = [example.path for example in GLUON if "About" not in example.fields]
    assert sorted(GLUON_NAMES) == sorted(functions)


def test_the_pages_are_up_to_date():
    """And say of every name its shapes and types, and of each function of numbers how far it may be off."""
    renderer = Renderer()
    pages = {f"{name}.md": text for name, text in renderer.pages().items()}
    assert sorted(renderer.missing) == []
    if os.environ.get("TILEWRIGHT_BLESS"):
        FOLDER.mkdir(exist_ok=True)
        for old in FOLDER.glob("*.md"):
            old.unlink()
        for name, text in pages.items():
            (FOLDER / name).write_text(text)
    found = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    assert found == pages, "TILEWRIGHT_BLESS=1 writes them"


def test_the_pages_have_every_name_of_the_api():
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


def load(source, path):
    """Runs a program from a file, as its kernels need their source."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted({example.page.name for example in LANGUAGE}))
def test_examples_say_the_truth(page, device, tmp_path):
    wrong = []
    for index, example in enumerate(each for each in LANGUAGE if each.page.name == page):
        source, values = kernel_of(example)
        module = load(source, tmp_path / f"example_{index}.py")
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


def launch_gluon(kernel: object, outputs: list[torch.Tensor], device: str) -> None:
    """Launches a kernel of the page: with the numbers 0 to 127, and descriptors of ones, of zeros and of pixels."""
    x = torch.arange(128, dtype=torch.float32, device=device)
    layout = gl.NVMMASharedLayout(128, 16, 2)
    matrices = [make(64, 64, dtype=torch.float16, device=device) for make in (torch.ones, torch.zeros)]
    images = torch.ones(2, 8, 8, 64, dtype=torch.float16, device=device)
    corners = {"pixel_box_lower_corner": [-1, -1], "pixel_box_upper_corner": [-1, -1]}
    pixels = TensorDescriptorIm2Col.from_tensor(images, [64, 64], layout, **corners)
    descriptors = [TensorDescriptor.from_tensor(each, [64, 64], layout) for each in matrices]
    kernel[(1,)](x, *descriptors, pixels, *outputs)


@contextlib.contextmanager
def device_of(example: Example, device: str) -> Iterator[None]:
    """Selects the simulator of a GPU that has the instructions of an example."""
    blackwell = ("gluon.blackwell.", "gluon.tensor_memory_", "gluon.clc")
    is_simulated = device == "cpu" and example.path.startswith(blackwell)
    if is_simulated:
        triton.runtime.set_device("sim:sm_100")
    try:
        yield
    finally:
        if is_simulated:
            triton.runtime.set_device(DEVICE)


def test_examples_of_gluon_say_the_truth(device, tmp_path):
    if triton.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")
    wrong = []
    for index, example in enumerate(GLUON):
        values = [(number, name, np.array(value)) for number, name, value, _ in example.values()]
        module = load(gluon_kernel(example.lines, values), tmp_path / f"gluon_{index}.py")
        kinds = {"f": torch.float32, "i": torch.int32}
        outputs = [
            torch.zeros(value.shape, dtype=kinds[value.dtype.kind], device=device) for *_, value in values
        ]
        try:
            with device_of(example, device):
                launch_gluon(module.kernel, outputs, device)
        except Exception as error:
            wrong.append(f"{example.path}: {error}")
            continue
        for output, (_, name, value) in zip(outputs, values, strict=True):
            if not np.array_equal(output.cpu().numpy(), value):
                wrong.append(f"{example.path}: {name} is {output.tolist()}")
    assert not wrong, "\n".join(wrong)


def test_shared_functions_of_gluon_say_the_truth(device, tmp_path):
    """The functions of ``tl`` do in Gluon as there."""
    wrong = []
    for index, example in enumerate(GLUON_SHARED):
        stated = [(number, name, np.array(value), text) for number, name, value, text in example.values()]
        program = gluon_kernel(example.lines, [each[:3] for each in stated], "x_ptr, i_ptr")
        module = load(program, tmp_path / f"shared_{index}.py")
        x = torch.arange(16, dtype=torch.float32, device=device)
        zeros = torch.zeros(16, dtype=torch.int32, device=device)
        kinds = [torch.float64 if value.dtype.kind == "f" else torch.int64 for _, _, value, _ in stated]
        outputs = [
            torch.zeros(value.shape, dtype=kind, device=device)
            for (_, _, value, _), kind in zip(stated, kinds, strict=True)
        ]
        try:
            module.kernel[(1,)](x, zeros, *outputs)
        except Exception as error:
            wrong.append(f"{example.path}: {error}")
            continue
        for output, (_, _, value, text) in zip(outputs, stated, strict=True):
            if not agrees(output.cpu().numpy(), value, text):
                wrong.append(f"{example.path}: {text} is {output.tolist()}")
    assert not wrong, "\n".join(wrong)


def test_mistakes_of_gluon_have_their_codes(device, tmp_path):
    """A line with a value is stored, so that the compiler does not drop it."""
    if triton.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")
    wrong, number = [], 0
    for example in GLUON:
        for mistake in example.mistakes:
            number += 1
            lines = example.lines[: definitions(example.lines)] + mistake.lines
            module = load(gluon_kernel(lines, []), tmp_path / f"mistake_{number}.py")
            try:
                with device_of(example, device):
                    launch_gluon(module.kernel, [], device)
            except triton.TritonError as error:
                found = error.code
            else:
                found = "no error"
            if found != mistake.code:
                wrong.append(f"{example.path}: {found}, not {mistake.code}: {'; '.join(mistake.lines)}")
    assert number > 30
    assert not wrong, "\n".join(wrong)


def program_of(examples: list[Example], prelude: str) -> str:
    """A program that runs each example in a function of its own."""
    lines = []
    for number, example in enumerate(examples):
        checks = [f"    assert {name} == {value!r}, {name}" for _, name, value, _ in example.values()]
        body = [f"    {line}" if line else "" for line in example.lines]
        lines += [f"def example_{number}(x, y, out):", *body, *checks, "", ""]
    calls = [f"example_{number}(x.clone(), y.clone(), out.clone())" for number in range(len(examples))]
    return "\n".join([prelude, "", *lines, *calls, "print('done')", ""])


def test_examples_of_gluon_on_the_host_say_the_truth(tmp_path):
    """And their mistakes raise the errors that the page names."""
    lines = ["x, y, out = (torch.arange(128.0), torch.ones(128), torch.zeros(128))"]
    load(program_of(GLUON_HOST, GLUON_IMPORTS + "\n".join(lines)), tmp_path / "gluon_host.py")
    scope = load(GLUON_IMPORTS + "\n".join(lines) + "\n", tmp_path / "mistakes.py").__dict__
    for mistake in [mistake for example in GLUON_HOST for mistake in example.mistakes]:
        with pytest.raises((AssertionError, ValueError, triton.TritonError)) as raised:
            exec("\n".join(mistake.lines), scope)
        assert mistake.code in (getattr(raised.value, "code", None), type(raised.value).__name__)


def test_examples_of_the_host_say_the_truth(tmp_path, run):
    """In a process of their own, because some change the process."""
    (tmp_path / "examples.py").write_text(program_of(HOST, HOST_PRELUDE))
    result = run("examples.py", cwd=tmp_path)
    assert result.code == 0, result.err
    assert result.out.endswith("done\n")


def test_the_errors_of_the_index(tmp_path):
    """Each row of the table of errors is a line that raises its code."""
    rows = re.findall(r"^\|[^|]*\| `(.*)` \| \[(TW\d+)\]", INDEX, re.M)
    assert len(rows) >= 8
    for number, (line, code) in enumerate(rows):
        source = kernel_of(Example(LANGUAGE[0].page, "", "", [f"y = {line}"]))[0]
        kernel = load(source, tmp_path / f"error_{number}.py").kernel
        with pytest.raises(triton.TritonError) as caught:
            kernel[(1,)](torch.arange(16.0), torch.zeros(16, dtype=torch.int32))
        assert caught.value.code == code, line
