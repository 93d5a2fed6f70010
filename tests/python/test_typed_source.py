"""Kernels whose text is in no file: from exec, python -c, linecache; and kernels whose text is replaced."""

import linecache
import subprocess
import sys

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

TEXT = """
import tilewright as triton
import tilewright.language as tl


@triton.jit
def helper(x):
    return x + 1


@triton.jit
def k(x_ptr):
    tl.store(x_ptr, helper(tl.load(x_ptr)))
"""


def test_exec(device):
    names = {}
    exec(TEXT, names)
    x = torch.zeros(1, device=device)
    names["k"][(1,)](x)
    assert x.item() == 1


def test_exec_of_two_functions_of_one_name(device):
    def made(value):
        text = TEXT.replace("x + 1", f"x + {value}")
        names = {}
        exec(text, names)
        return names["k"]

    first, second = made(10), made(20)
    x = torch.zeros(1, device=device)
    first[(1,)](x)
    second[(1,)](x)
    assert x.item() == 30


def test_a_text_that_is_gone():
    with pytest.raises(ValueError, match="the source of 'helper' is not available"):
        exec(TEXT.replace("x + 1", "x + 3.25"), {})


def test_linecache(device):
    name = "<a cell of a notebook>"
    linecache.cache[name] = (len(TEXT), None, TEXT.splitlines(keepends=True), name)
    names = {}
    exec(compile(TEXT, name, "exec"), names)
    x = torch.zeros(1, device=device)
    names["k"][(1,)](x)
    assert x.item() == 1


def test_python_c():
    text = f"{TEXT}\nimport torch\nx = torch.zeros(1)\nk[(1,)](x)\nprint(x.item())\n"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "1.0\n"


def test_an_interactive_console():
    text = f"""
import code, torch
console = code.InteractiveConsole()
for source in {TEXT.strip().split(chr(10) * 3)!r}:
    console.runsource(source + "\\n", symbol="exec")
console.runsource("import torch; x = torch.zeros(1); k[(1,)](x); print(x.item())")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1:] == ["1.0"], done.stderr


@triton.jit
def replaced(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), PLACEHOLDER)  # noqa: F821


def test_a_replaced_text(device):
    x = torch.zeros(4, device=device)
    kernel = triton.JITFunction(replaced.fn)
    for number in (3, 7):
        kernel._unsafe_update_src(replaced.src.replace("PLACEHOLDER", str(number)))
        kernel[(1,)](x, N=4)
        assert x.tolist() == [number] * 4
    assert kernel.src.startswith("def replaced")
    assert "PLACEHOLDER" in replaced.src
    with pytest.raises(AttributeError, match="_unsafe_update_src"):
        kernel.src = "def replaced(x_ptr, N): pass"
