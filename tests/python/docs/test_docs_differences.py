"""Each row and each example of docs/differences-from-numpy.md."""

import re

import numpy as np
import pytest
import torch
from conftest import ROOT
from helpers import module

TEXT = (ROOT / "docs" / "differences-from-numpy.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| `")
]
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
NUMPY = {"fp16": "float16", "fp32": "float32", "fp64": "float64"}
LANGUAGE = {"bool": "int1", "fp16": "float16", "fp32": "float32", "fp64": "float64"}


def value(text):
    """`int32 -7` as an array of one element."""
    dtype, number = text.split()
    return np.array([float(number) if "." in number or number == "nan" else int(number)]).astype(
        NUMPY.get(dtype, dtype)
    )


def shown(array):
    """An array of one element as the table has it."""
    names = {name: short for short, name in NUMPY.items()}
    item = array.item()
    number = repr(float(item)) if array.dtype.kind == "f" else str(int(item))
    return f"{names.get(array.dtype.name, array.dtype.name)} {number}"


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_row(row, device):
    expression, x, y, in_kernel, in_numpy = row
    expression = expression.strip("`")
    with np.errstate(all="ignore"):
        names = {"x": value(x), "y": value(y), **{name: getattr(np, name) for name in ("maximum", "minimum")}}
        found = eval(expression, {**names, "int32": np.int32, "int8": np.int8})
    assert shown(found) == in_numpy
    language = re.sub(r"\b(maximum|minimum|abs)\(", r"tl.\1(", expression)
    language = re.sub(r"\.astype\((\w+)\)", r".to(tl.\1)", language)
    dtype, number = in_kernel.split()
    kernel = module(
        "@triton.jit\ndef k(x_ptr, y_ptr, out_ptr):\n    x = tl.load(x_ptr)\n    y = tl.load(y_ptr)\n"
        f"    z = {language}\n    tl.static_assert(z.dtype == tl.{LANGUAGE.get(dtype, dtype)})\n"
        "    tl.store(out_ptr, z)\n"
    ).k
    out = np.zeros(1, NUMPY.get(dtype, "bool" if dtype == "int1" else dtype))
    arrays = [torch.from_numpy(array).to(device) for array in (names["x"], names["y"], out)]
    kernel[(1,)](*arrays)
    result = arrays[2].cpu().numpy()
    assert (repr(float(result.item())) if result.dtype.kind == "f" else str(int(result.item()))) == number


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example, device):
    lines = "".join(f"    {line}\n" for line in example.splitlines())
    out = torch.zeros(1, dtype=torch.int32, device=device)
    module(f"@triton.jit\ndef k(out_ptr):\n{lines}").k[(1,)](out)
    assert out.item() == int(example.rstrip().rpartition("# ")[2])
