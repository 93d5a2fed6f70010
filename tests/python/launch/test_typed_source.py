"""Kernels whose text is in no file: from exec, python -c, linecache; and kernels whose text is replaced."""

import inspect
import linecache
import subprocess
import sys
import types

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


MADE = """\
def made(x_ptr, n, N: tl.constexpr = 4):
    # FACTOR is a name of the function's globals.
    tl.store(x_ptr + tl.arange(0, N), helper(n) * FACTOR)


def not_this_one(x_ptr, n, N):
    tl.store(x_ptr, -1)
"""


@triton.jit
def helper(x):
    return x + 1


def _nothing():
    pass


def made_of_text(text, parameters, **names):
    """A kernel whose function has another code, as programs that make kernels do."""
    scope = {"tl": tl, "triton": triton, **names}
    function = types.FunctionType(_nothing.__code__, scope)
    function.__signature__ = inspect.signature(parameters)
    function.__module__, function.__name__ = __name__, "made"
    kernel = triton.JITFunction(function)
    kernel._unsafe_update_src(text)
    return kernel


@pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("head", ["", "@triton.jit\n", "\n\n"], ids=["def", "decorated", "later"])
def test_the_first_function_of_a_text_counts(head, interpret, device, monkeypatch):
    if interpret:
        monkeypatch.setenv("TRITON_INTERPRET", "1")

    def parameters(x_ptr, n, N: tl.constexpr = 4):
        pass

    x = torch.zeros(4, device=device)
    kernel = made_of_text(head + MADE, parameters, FACTOR=tl.constexpr(3), helper=helper)
    kernel[(1,)](x, 5)
    assert x.tolist() == [18] * 4
    kernel._unsafe_update_src("def other(x_ptr, n, N: tl.constexpr = 4):\n    tl.store(x_ptr, n)\n")
    kernel[(1,)](x, 5)
    assert x.tolist() == [5, 18, 18, 18]


def test_the_key_of_a_text_follows_what_it_reads():
    def parameters(x_ptr, n, N: tl.constexpr = 4):
        pass

    keys = [
        made_of_text(MADE, parameters, FACTOR=tl.constexpr(factor), helper=helper).cache_key
        for factor in (3, 4, 3)
    ]
    assert keys[0] == keys[2] != keys[1]


def test_the_place_of_a_text_can_be_said():
    def parameters(x_ptr, n):
        pass

    kernel = made_of_text("def made(x_ptr, n):\n    tl.store(x_ptr, n.missing)\n", parameters)
    kernel.raw_src = ["    def made(x_ptr, n):\n", "        tl.store(x_ptr, n.missing)\n"]
    kernel.file_name, kernel.starting_line_number = "generated.py", 40
    kernel.def_file_line_number, kernel.def_file_col_number = 41, 5
    assert kernel.raw_src[0] == "    def made(x_ptr, n):\n"
    assert (kernel.file_name, kernel.starting_line_number) == ("generated.py", 40)
    assert (kernel.def_file_line_number, kernel.def_file_col_number) == (41, 5)
    with pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](torch.zeros(1), 5)
    # The line after the `def`.
    assert "generated.py:42:" in str(caught.value)
