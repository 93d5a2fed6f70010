"""Mistakes that new users make, and what they are told: the whole texts are in ``snapshots/advice.txt``."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ON_GPU
from helpers import module

import tilewright

SNAPSHOT = Path(__file__).parent / "snapshots" / "advice.txt"

# Name: (lines of the kernel, the text before it).
CASES = {
    "arange without tl": ("    i = arange(0, 128)\n", ""),
    "load without tl": ("    x = load(x_ptr)\n", ""),
    "float32 without tl": ("    x = tl.zeros((128,), float32)\n", ""),
    "math without tl": ("    x = math.exp2(tl.load(x_ptr))\n", ""),
    "relu without anything": ("    x = relu(tl.load(x_ptr))\n", ""),
    "shape of a pointer": ("    n = x_ptr.shape[0]\n", ""),
    "length of a pointer": ("    n = len(x_ptr)\n", ""),
    "element of a pointer": ("    x = x_ptr[0]\n", ""),
    "append": ("    acc = []\n    acc.append(tl.load(x_ptr))\n", ""),
    "break": ("    for i in range(4):\n        if i > 2:\n            break\n", ""),
    "endless loop": ("    while True:\n        break\n", ""),
    "continue": ("    for i in range(4):\n        continue\n", ""),
    "tl.round": ("    x = tl.round(tl.load(x_ptr))\n", ""),
    "tl.tanh": ("    x = tl.tanh(tl.load(x_ptr))\n", ""),
    "tl.pow": ("    x = tl.pow(tl.load(x_ptr), 2)\n", ""),
    "tl.float": ("    x = tl.load(x_ptr).to(tl.float)\n", ""),
    "tl.mean": ("    x = tl.mean(tl.load(x_ptr))\n", ""),
    "integer accumulator of a tile": (
        "    acc = 0\n    for i in range(4):\n        acc += tl.load(x_ptr + i + tl.arange(0, 8))\n",
        "",
    ),
    "integer accumulator of a float": (
        "    acc = 0\n    for i in range(4):\n        acc += tl.load(x_ptr + i)\n",
        "",
    ),
    "scalar accumulator of a matrix": (
        "    acc = 0.0\n    for i in range(4):\n        acc += tl.zeros((8, 16), tl.float16)\n",
        "",
    ),
    "32-bit accumulator": (
        "    acc = 0\n    for i in range(4):\n        acc += tl.full((), 1, tl.int64)\n",
        "",
    ),
    "stored result of a function without return": (
        "    y = helper(tl.load(x_ptr))\n    tl.store(x_ptr, y)\n",
        "@triton.jit\ndef helper(x):\n    y = x + 1\n\n\n",
    ),
    "sum with a function without return": (
        "    y = helper(tl.load(x_ptr)) + 1\n",
        "@triton.jit\ndef helper(x):\n    y = x + 1\n\n\n",
    ),
    "torch.relu": ("    y = torch.relu(tl.load(x_ptr))\n", "import torch\n\n\n"),
    "plain helper": ("    y = helper(tl.load(x_ptr))\n", "def helper(x):\n    return x\n\n\n"),
    "breakpoint": ("    breakpoint()\n", ""),
    "any": ("    y = any(tl.load(x_ptr + tl.arange(0, 4)) > 0)\n", ""),
    "signedness": ("    i = tl.arange(0, 8)\n    y = i // i.to(tl.uint32)\n", ""),
    "bits of a float": ("    y = tl.load(x_ptr) & 1\n", ""),
    "product of a pointer": ("    y = x_ptr * 2\n", ""),
    "int of a value": ("    y = int(tl.load(x_ptr) * 2)\n", ""),
    "float of a value": ("    y = float(tl.program_id(0))\n", ""),
    "bool of a value": ("    y = bool(tl.program_id(0))\n", ""),
    "round": ("    y = round(tl.load(x_ptr))\n", ""),
    "divmod": ("    y = divmod(tl.program_id(0), 3)\n", ""),
    "item of a pointer": ("    x_ptr[3] = 1.0\n", ""),
    "item of a tile": ("    x = tl.zeros((8,), tl.float32)\n    x[3] = 1.0\n", ""),
    "launch in a kernel": (
        "    f[(1,)](x_ptr)\n",
        "@triton.jit\ndef f(x):\n    tl.store(x, 1.0)\n\n\n",
    ),
    "in": ("    y = tl.program_id(0) in (1, 2)\n", ""),
    "unpacked tile": ("    a, b = tl.arange(0, 2)\n", ""),
    "loop over a tile": ("    for x in tl.arange(0, 4):\n        pass\n", ""),
    "loop over a number": ("    for x in tl.program_id(0):\n        pass\n", ""),
    "global tensor": (
        "    y = tl.load(WEIGHTS + tl.arange(0, 4))\n",
        "import torch\n\nWEIGHTS = torch.zeros(4)\n\n\n",
    ),
    "global array": ("    y = TABLE[0]\n", "import numpy as np\n\nTABLE = np.zeros(4)\n\n\n"),
    "global dict": ("    y = SIZES['n']\n", "SIZES = {'n': 4}\n\n\n"),
    "tl.tensor": ("    y = tl.tensor(3)\n", ""),
    "tl.float32 as a function": ("    y = tl.float32(tl.program_id(0))\n", ""),
    "f-string of a run-time value": ("    n = tl.program_id(0)\n    tl.static_print(f'{n}')\n", ""),
    "field assignment": ("    x = tl.load(x_ptr)\n    x.y = 3\n", ""),
    "recursion": (
        "    y = fact(3)\n",
        "@triton.jit\ndef fact(n):\n    return n * fact(n - 1 + tl.program_id(0))\n\n\n",
    ),
}


def told(name):
    """The error that a user sees, without the folder of the file."""
    body, before = CASES[name]
    made = module(f"{before}@triton.jit\ndef kernel(x_ptr):\n{body}")
    with pytest.raises(tilewright.CompilationError) as raised:
        made.kernel[(1,)](torch.zeros(128))
    return str(raised.value).replace(made.__file__, "kernel.py")


def test_texts():
    """TILEWRIGHT_BLESS=1 writes the file."""
    found = "\n\n".join(f"===== {name}\n{told(name)}" for name in CASES) + "\n"
    if os.environ.get("TILEWRIGHT_BLESS"):
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text(), "TILEWRIGHT_BLESS=1 accepts the new texts"


# --- Warnings ---

WARNED = {
    "mask = i < n & i > 3": ("TW0051", "n & i"),
    "mask = (i < n) and (i > 3)": ("TW0050", "'and' of tiles"),
    "mask = (i < n) or n > 3 or (i > 3)": ("TW0050", "'or' of tiles"),
}
NOT_WARNED = [
    "mask = (i < n) & (i > 3)",
    "mask = 0 < i < 4",
    "mask = i < (n & 7) < 9",
    "mask = (i < 4) & (n > 3 and n < 9)",
]


@pytest.mark.parametrize("line", WARNED)
def test_warnings_are_given_once(line):
    text = f"@triton.jit\ndef kernel(x_ptr, n, K: tl.constexpr):\n    i = tl.arange(0, 8)\n    {line}\n"
    kernel = module(text).kernel
    code, phrase = WARNED[line]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel[(1,)](torch.zeros(8), 5, K=1)
        kernel[(1,)](torch.zeros(8), 5, K=2)
    assert {code in str(w.message) and phrase in str(w.message) for w in caught} == {True}
    places = [str(w.message) for w in caught]
    assert len(places) == len(set(places))
    assert "help:" in places[0]


@pytest.mark.parametrize("line", NOT_WARNED)
def test_what_is_meant_so_is_not_warned_of(line):
    text = f"@triton.jit\ndef kernel(x_ptr, n):\n    i = tl.arange(0, 8)\n    {line}\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(text).kernel[(1,)](torch.zeros(8), 5)


def test_a_warning_that_is_an_error_stops_the_launch():
    text = "@triton.jit\ndef kernel(x_ptr, n):\n    i = tl.arange(0, 8)\n    mask = (i < n) and (i > 1)\n"
    kernel = module(text).kernel
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(tilewright.LaunchWarning, match="TW0050"):
            kernel[(1,)](torch.zeros(8), 5)


# --- Arguments ---

COPY = """@triton.jit
def kernel(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    tl.store(out_ptr + i, tl.load(x_ptr + i))
"""


@pytest.mark.parametrize("use", ["x_ptr + i", "x_ptr"])
@pytest.mark.parametrize(
    "items",
    [
        pytest.param([1.0, 2.0, 3.0, 4.0], id="floats"),
        pytest.param(list(np.ones(4, np.float32)), id="numpy-floats"),
        pytest.param(list(np.arange(4)), id="numpy-ints"),
    ],
)
def test_a_list_for_a_tensor(use, items):
    with pytest.raises(TypeError) as raised:
        module(COPY.replace("x_ptr + i", use)).kernel[(1,)](items, torch.zeros(4))
    text = str(raised.value)
    assert "argument 'x_ptr' of kernel 'kernel' is a list of 4 numbers, and is used as a tensor" in text
    assert "torch.tensor(" in text
    assert "def kernel(x_ptr, out_ptr):" in text


def test_a_masked_array():
    masked = np.ma.masked_array(np.zeros(4, np.float32), mask=[1, 0, 0, 1])
    with pytest.raises(TypeError, match=r"masked.*\n(.*\n)*.*\.filled\("):
        module(COPY).kernel[(1,)](masked, torch.zeros(4))


def test_an_array_that_must_not_be_written():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    out = torch.zeros(4)
    module(COPY).kernel[(1,)](array, out)
    with pytest.raises(IndexError) as raised:
        module(COPY).kernel[(1,)](out, array)
    assert "store to `out_ptr`, which may only be read" in str(raised.value)
    assert "`array.copy()`" in str(raised.value)


def test_views_that_torch_negates_or_conjugates_when_they_are_read():
    numbers = torch.tensor([1 + 2j, 3 - 4j, 1j, 2.0])
    out = torch.zeros(4)
    for view in (numbers.conj().imag, numbers[::2].conj().imag):
        assert view.is_neg()
        with pytest.raises(TypeError, match=r"negat(.*\n)*.*resolve_neg"):
            module(COPY).kernel[(1,)](view, out)
    view = numbers.conj().imag
    module(COPY).kernel[(1,)](view.resolve_neg(), out)
    assert out.tolist() == view.tolist()
    module(COPY).kernel[(1,)](torch.arange(8.0)[::2], out)
    assert out.tolist() == [0, 1, 2, 3]


WRAPS = """@triton.jit
def row(x_ptr, n, stride):
    return tl.load(x_ptr + n * stride)


@triton.jit
def kernel(x_ptr, n, stride):
    tl.store(x_ptr, row(x_ptr, n, stride))
"""


def test_an_offset_that_has_wrapped():
    with pytest.raises(IndexError) as raised:
        module(WRAPS).kernel[(1,)](torch.zeros(128), 70000, 60000)
    text = str(raised.value)
    assert f"in 64 bits the offset may have been {70000 * 60000}" in text
    assert "row.to(tl.int64) * stride" in text


@pytest.mark.skipif(ON_GPU, reason="a GPU checks no access")
def test_an_access_out_of_bounds_in_a_helper_shows_both_lines(device):
    with pytest.raises(Exception, match="out of bounds") as raised:
        module(WRAPS).kernel[(1,)](torch.zeros(128, device=device), 1000, 1000)
    text = str(raised.value)
    assert "return tl.load(x_ptr + n * stride)" in text
    assert "tl.store(x_ptr, row(x_ptr, n, stride))" in text
