"""Mistakes in kernels: the class, the code, the exact columns, the facts and the hint of each diagnostic.

In the text of a kernel, «…» marks what the carets must stand under; `helpers_errors.failing` checks that.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import module
from helpers_errors import facts, failing, lines, unmarked

import tilewright

X = torch.zeros(128)

HEADER = """@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
"""

# Name: (code, facts that must be told, lines of the kernel).
MISTAKES = {
    "undefined name": ("TW0001", ["undefined_thing"], "    tl.store(x_ptr + i, x + «undefined_thing»)"),
    "misspelt name": ("TW0001", ["blok"], "    bloc = BLOCK\n    tl.store(x_ptr + «blok», 1.0)"),
    "name that one branch defines": (
        "TW0001",
        ["y"],
        "    if tl.program_id(0) == 0:\n        y = 1.0\n    tl.store(x_ptr + i, x + «y»)",
    ),
    "unknown function of the language": ("TW0015", ["lod"], "    tl.store(x_ptr + i, tl.«lod»(x_ptr + i))"),
    "incompatible shapes": ("TW0004", ["[128]", "[64]"], "    tl.store(x_ptr + i, x «+» tl.arange(0, 64))"),
    "incompatible shapes of matrices": (
        "TW0004",
        ["[128, 1]", "[2, 64]"],
        "    y = x[:, None] «*» tl.zeros((2, 64), tl.float32)",
    ),
    "incompatible shapes in where": (
        "TW0004",
        ["[128]", "[64]"],
        "    y = «tl.where»(x > 0, x, tl.zeros((64,), tl.float32))",
    ),
    "index out of range": ("TW0014", ["128", "-128"], "    y = x[«128»]"),
    "index known at run time": ("TW0014", ["int32", "compile"], "    y = «x[tl.program_id(0)]»"),
    "slice without elements": ("TW0014", ["128"], "    y = x[«8:8»]"),
    "slice known at run time": ("TW0014", ["int32"], "    y = x[«tl.program_id(0):8»]"),
    "slice by a step of zero": ("TW0014", ["zero"], "    y = x[«::0»]"),
    "too many indices": ("TW0014", ["2 axes"], "    y = «x»[0, 1:3]"),
    "index of a scalar": ("TW0014", ["scalar"], "    y = «tl.load(x_ptr)[0]»"),
    "join of other shapes": ("TW0004", ["[128]", "[64]"], "    y = «tl.join»(x, x[:64])"),
    "split of other than two": ("TW0004", ["128", "2"], "    y = tl.split(«x»)"),
    "cat of other shapes": ("TW0004", ["[128]", "[64, 2]"], "    y = «tl.cat»(x, x.reshape(64, 2))"),
    "cat along no axis": ("TW0016", ["axis 1"], "    y = tl.cat(x, x, dim=«1»)"),
    "gather by floats": ("TW0005", ["fp32", "int32"], "    y = tl.gather(x, «x», 0)"),
    "gather of other shapes": ("TW0004", ["[128]", "[128, 1]"], "    y = «tl.gather»(x, i[:, None], 0)"),
    "gather along no axis": ("TW0016", ["axis 1"], "    y = tl.gather(x, i, «1»)"),
    "arange backwards": ("TW0006", ["64", "0"], "    y = «tl.arange»(64, 0)"),
    "mask of another shape": (
        "TW0007",
        ["[64]", "[128]"],
        "    y = «tl.load»(x_ptr + i, mask=tl.arange(0, 64) < 3)",
    ),
    "mask that is no boolean": ("TW0007", ["int32"], "    y = tl.load(x_ptr + i, mask=«i»)"),
    "mask of a store": ("TW0007", ["[2]", "[128]"], "    «tl.store»(x_ptr + i, x, mask=tl.arange(0, 2) < 1)"),
    "other without mask": ("TW0007", [], "    y = tl.load(x_ptr + i, other=«0.0»)"),
    "load of a number": ("TW0005", ["int32"], "    y = tl.load(«i»)"),
    "float as an offset": ("TW0014", ["fp32"], "    y = tl.load(x_ptr + «x»)"),
    "store of a pointer": ("TW0013", ["*fp32", "fp32"], "    «tl.store»(x_ptr + i, x_ptr + i)"),
    "store to a number": ("TW0005", ["fp32"], "    tl.store(«x», x)"),
    "comparison with a tensor that was passed for a number": (
        "TW0005",
        ["int32[128]", "tensor"],
        "    y = i «<» x_ptr",
    ),
    "stride of a pointer": ("TW0015", ["stride", "*fp32", "address"], "    y = x_ptr.«stride»(0)"),
    "size of a pointer": ("TW0015", ["size", "address"], "    y = x_ptr.«size»"),
    "shift of a compile-time float": ("TW0020", ["'float' and 'int'"], "    y = «1.5 << 2»"),
    "store of a tile to one place": ("TW0013", ["[128]"], "    «tl.store»(x_ptr, x)"),
    "bitwise operator on floats": ("TW0005", ["fp32"], "    y = x «&» 1"),
    "complement of a float": ("TW0005", ["fp32"], "    y = ~«x»"),
    "sum of pointers": ("TW0014", ["pointers", "*fp32"], "    y = x_ptr «+» x_ptr"),
    "product of a pointer": ("TW0005", ["pointer"], "    y = «x_ptr» * 2"),
    "division of different signedness": ("TW0005", ["int32", "uint32"], "    y = i «//» i.to(tl.uint32)"),
    "remainder of different signedness": (
        "TW0005",
        ["int64", "uint8"],
        "    y = i.to(tl.int64) «%» i.to(tl.uint8)",
    ),
    "floor division of floats": ("TW0005", ["fp32"], "    y = x «//» 2"),
    "negative number and unsigned tensor": ("TW0016", ["-1", "uint32"], "    y = i.to(tl.uint32) «+» -1"),
    "number too large": ("TW0016", ["300", "int8"], "    y = i.to(tl.int8) «+» 300"),
    "condition that is a tile": ("TW0005", ["[128]"], "    if «x > 0»:\n        tl.store(x_ptr + i, x)"),
    "dot of vectors": ("TW0019", ["[128]"], "    y = «tl.dot»(x, x)"),
    "dot of different types": (
        "TW0019",
        ["fp16", "fp32"],
        "    a = tl.zeros((16, 16), tl.float16)\n    y = «tl.dot»(a, a.to(tl.float32))",
    ),
    "dot of shapes that do not fit": (
        "TW0019",
        ["[16, 32]", "[16, 32]"],
        "    a = tl.zeros((16, 32), tl.float16)\n    y = «tl.dot»(a, a)",
    ),
    "reshape to another size": ("TW0004", ["128", "256"], "    y = «tl.reshape»(x, (16, 16))"),
    "axis that is not there": ("TW0016", ["3", "`sum`"], "    y = tl.sum(x, axis=«3»)"),
    "axis of a method": ("TW0016", ["3", "`max`"], "    y = x.max(«3»)"),
    "axis that is a string": ("TW0016", ["'x'", "`max`"], '    y = tl.max(x, «"x"»)'),
    "shape known at run time": (
        "TW0008",
        ["`zeros`"],
        "    y = tl.zeros(«(4, tl.program_id(0))», tl.float32)",
    ),
    "range that ends at a float": ("TW0016", ["64.0"], "    y = tl.arange(0, «BLOCK / 2»)"),
    "too few arguments": ("TW0009", ["end"], "    y = «tl.arange(0)»"),
    "unknown keyword": ("TW0009", ["masc"], "    y = tl.load(x_ptr + i, «masc»=i < 3)"),
    "attribute that is not there": ("TW0015", ["shap"], "    y = x.«shap»"),
    "power of a tensor": ("TW0005", ["**"], "    y = x «**» 2"),
    "static assertion": ("TW0017", ["blocks of 64"], '    tl.static_assert(«BLOCK == 64», "blocks of 64")'),
    "compile-time division by zero": ("TW0020", ["zero"], "    y = «1 // (BLOCK - 128)»"),
    "python that kernels do not have": ("TW0003", [], "    «try»:\n        pass\n    finally:\n        pass"),
    "break": ("TW0003", ["break"], "    for k in range(3):\n        «break»"),
    "global variable": ("TW0023", ["LIMIT"], "    y = x + «LIMIT»"),
    "string as a number": ("TW0005", ["str"], '    y = x + «"one"»'),
    "tile too large": ("TW0022", ["1048576"], "    y = tl.zeros(«(2048, 1024)», tl.float32)"),
}
CLASSES = {
    "TW0003": tilewright.compiler.errors.UnsupportedLanguageConstruct,
    "TW0017": tilewright.compiler.errors.CompileTimeAssertionFailure,
}
# These findings say all: there is nothing to advise.
WITHOUT_HINT = {
    "static assertion",
    "compile-time division by zero",
    "incompatible shapes of matrices",
    "arange backwards",
    "axis that is not there",
    "axis of a method",
    "axis that is a string",
    "reshape to another size",
    "shift of a compile-time float",
    "python that kernels do not have",
    "index out of range",
    "slice without elements",
    "slice by a step of zero",
    "cat along no axis",
    "gather along no axis",
    "string as a number",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    code, expected, body = MISTAKES[name]
    text = "LIMIT = 3\n\n\n" + HEADER + body + "\n"
    found = failing(text, X, error=CLASSES.get(code), BLOCK=128)
    assert found[0].code == code, found[0]
    assert [fact for fact in expected if fact not in facts(found[0])] == [], found[0]
    assert found[0].hint or name in WITHOUT_HINT, found[0]


def test_a_block_size_that_is_no_constexpr():
    text = """@triton.jit
def kernel(x_ptr, BLOCK):
    i = tl.arange(0, «BLOCK»)
    tl.store(x_ptr + i, 1.0)
"""
    (found,) = failing(text, X, 64)
    assert found.code == "TW0008"
    assert "BLOCK: tl.constexpr" in found.hint


def test_an_extent_that_is_no_constexpr():
    text = """@triton.jit
def kernel(x_ptr, M, N: tl.constexpr):
    tl.store(x_ptr, tl.sum(tl.zeros(«(N, M)», dtype=tl.float32)))
"""
    (found,) = failing(text, X, 64, 16)
    assert found.code == "TW0008"
    assert lines(found)[1] == found.line - 1
    assert "M: tl.constexpr" in found.hint


def test_an_argument_that_is_none():
    text = """@triton.jit
def kernel(x_ptr, y_ptr):
    tl.store(x_ptr, tl.load(«y_ptr»))
"""
    (found,) = failing(text, X, None)
    assert found.code == "TW0005"
    assert lines(found)[1] == found.line - 1
    assert "None is passed for this parameter" in facts(found)


def test_a_plain_python_function():
    text = """def helper(x):
    return x + 1


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, «helper»(tl.load(x_ptr)))
"""
    (found,) = failing(text, X)
    assert found.code == "TW0010"
    assert "helper" in found.message
    assert "@triton.jit" in found.hint


def test_a_name_that_changes_its_type_in_a_loop():
    text = """@triton.jit
def kernel(x_ptr, n):
    total = 0
    for i in range(n):
        «total» = total + tl.load(x_ptr + i)
    tl.store(x_ptr, total)
"""
    found = failing(text, X, 4)[0]
    assert found.code == "TW0011"
    assert "int32" in facts(found)
    assert "fp32" in facts(found)
    assert "total" in found.message
    assert found.hint


def test_a_name_that_changes_its_shape_in_a_while_loop():
    text = """@triton.jit
def kernel(x_ptr, n):
    x = tl.zeros((16,), tl.float32)
    while n > 0:
        «x» = x[:, None] + x[None, :]
        n -= 1
"""
    found = failing(text, X, 4)[0]
    assert found.code == "TW0011"
    assert "[16]" in facts(found)
    assert "[16, 16]" in facts(found)


def test_a_name_of_different_types_after_the_branches():
    text = """@triton.jit
def kernel(x_ptr, n):
    if n > 0:
        y = tl.arange(0, 4)
    else:
        «y» = 1.0
    tl.store(x_ptr + tl.arange(0, 4), y)
"""
    found = failing(text, X, 4)[0]
    assert found.code == "TW0018"
    assert "y" in found.message
    assert "[4]" in facts(found)


def test_return_types_that_differ():
    text = """@triton.jit
def helper(x, n):
    if n > 0:
        return x
    return «x.to(tl.int32)»


@triton.jit
def kernel(x_ptr, n):
    tl.store(x_ptr, helper(tl.load(x_ptr), n))
"""
    found = failing(text, X, 4)[0]
    assert found.code == "TW0012"
    assert "fp32" in facts(found)
    assert "int32" in facts(found)


def test_an_error_in_a_helper_shows_the_calls_that_led_there():
    text = """@triton.jit
def inner(a, b):
    return a «+» b


@triton.jit
def outer(a):
    return inner(a, tl.arange(0, 64))


@triton.jit
def kernel(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(x_ptr + tl.arange(0, N), outer(x))
"""
    (found,) = failing(text, X, N=128)
    assert found.code == "TW0004"
    assert [label[3] for label in found.labels].count("called from here") == 2
    source = open(module(unmarked(text)).__file__).read().splitlines()
    calls = [k + 1 for k, line in enumerate(source) if "return inner(" in line or "outer(x)" in line]
    assert set(calls) <= set(lines(found))


def test_the_same_helper_called_rightly_and_wrongly():
    text = """@triton.jit
def inner(a, b):
    return a «+» b


@triton.jit
def kernel(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    y = inner(x, x)
    z = inner(y, tl.arange(0, 64))
"""
    (found,) = failing(text, X, N=128)
    assert "called from here" in facts(found)


def test_arguments_that_do_not_fit_a_helper():
    text = """@triton.jit
def helper(a, b, c=1):
    return a + b + c


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, {call})
"""
    for call, word in (
        ("«helper(1.0)»", "b"),
        ("helper(1.0, 2.0, 3.0, «4.0»)", "4"),
        ("helper(1.0, 2.0, «d»=3.0)", "d"),
        ("helper(1.0, 2.0, «a»=3.0)", "a"),
    ):
        found = failing(text.format(call=call), X)[0]
        assert found.code == "TW0009"
        assert word in facts(found)


def test_a_keyword_for_a_parameter_before_the_slash():
    text = """@triton.jit
def helper(a, /, b):
    return a + b


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, helper(1.0, b=2.0) + helper(«a»=1.0, b=2.0))
"""
    [found] = failing(text, X)
    assert (found.code, found.message) == ("TW0009", "helper takes 'a' by position, not by keyword")


def test_recursion():
    text = """@triton.jit
def helper(a):
    return «helper(a)»


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, helper(1.0))
"""
    assert failing(text, X)[0].code == "TW0021"


@pytest.mark.parametrize("called", ["np.exp", "torch.exp", "math.exp"])
def test_a_function_of_another_library_that_the_language_has_too(called):
    text = """import math
import numpy as np
import torch


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, «CALLED»(tl.load(x_ptr)))
"""
    [found] = failing(text.replace("CALLED", called), X)
    assert found.code == "TW0010"
    assert found.hint == "use `tl.exp`, or decorate the function with @triton.jit if it is yours"


TYPES = [
    (np.float16, "class 'float16'", "tl.float16"),
    (np.dtype("int32"), "dtype('int32')", "tl.int32"),
    ("fp16", "'fp16'", "tl.float16`, without quotes"),
    (float, "float", "tl.float32"),
    (print, "print", "a type such as `tl.float32`"),
]


def check_type(given, shown, hint):
    text = """@triton.jit
def kernel(x_ptr, DTYPE: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr).to(«DTYPE»))
"""
    [found] = failing(text, X, DTYPE=given)
    assert found.code == "TW0016"
    assert (found.label, found.notes[0]) == (f"this is {shown}", f"found {shown}, expected a type")
    assert hint in found.hint


@pytest.mark.parametrize(("given", "shown", "hint"), TYPES)
def test_a_type_of_python_or_numpy_for_one_of_the_language(given, shown, hint):
    check_type(given, shown, hint)


@pytest.mark.parametrize(
    ("name", "known"), [("float16", "float16"), ("bool", "int1"), ("float8_e5m2", "float8e5")]
)
def test_a_type_of_torch_for_one_of_the_language(name, known):
    torch = pytest.importorskip("torch")
    check_type(getattr(torch, name), f"torch.{name}", f"tl.{known}`")


def test_several_mistakes_are_all_told():
    text = """@triton.jit
def kernel(x_ptr):
    a = «first_unknown» + 1
    b = second_unknown + 1
    tl.store(x_ptr, tl.arange(3, 0))
"""
    found = failing(text, X)
    assert [finding.code for finding in found] == ["TW0001", "TW0001", "TW0006"]
    assert [finding.line - found[0].line for finding in found] == [0, 1, 2]


def test_columns_count_characters_and_lines_those_of_the_file():
    text = """# Comments and Umlauts before: äöü.


@triton.jit
def kernel(x_ptr):  # ü
    s: tl.constexpr = "äöü"; tl.store(x_ptr, «unbekannt»)
"""
    assert failing(text, X)[0].code == "TW0001"


def test_a_mistake_costs_nothing_but_the_launch():
    text = HEADER + "    tl.store(x_ptr + i, «y»)\n"
    for _ in range(3):
        failing(text, X, BLOCK=128)
    good = module(HEADER + "    tl.store(x_ptr + i, x + 1)\n").kernel
    x = torch.zeros(128)
    good[(1,)](x, BLOCK=128)
    assert (x == 1).all()


# --- Whole texts ---

SNAPSHOTS = Path(__file__).parent / "snapshots"
WHOLE = {
    "shapes": HEADER + "    tl.store(x_ptr + i, x + tl.arange(0, 64))\n",
    "arange": HEADER + "    y = tl.arange(100, 0)\n",
    "undefined": HEADER + "    tl.store(x_ptr + i, x + BLOK)\n",
    "mask": HEADER + "    y = tl.load(x_ptr + i, mask=tl.arange(0, 64) < 3)\n",
    "helper": """@triton.jit
def add(a, b):
    return a + b


@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(x_ptr, add(x, tl.arange(0, 64)))
""",
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_texts(name):
    """Compared with snapshots/; TILEWRIGHT_BLESS=1 writes them."""
    kernel_module = module(WHOLE[name])
    with pytest.raises(tilewright.CompilationError) as raised:
        kernel_module.kernel[(1,)](X, BLOCK=128)
    text = str(raised.value).replace(kernel_module.__file__, "kernel.py").rstrip() + "\n"
    snapshot = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("TILEWRIGHT_BLESS"):
        snapshot.parent.mkdir(exist_ok=True)
        snapshot.write_text(text)
    assert text == snapshot.read_text(), "TILEWRIGHT_BLESS=1 accepts the new text"
    assert raised.value.code == raised.value.diagnostics[0].code
