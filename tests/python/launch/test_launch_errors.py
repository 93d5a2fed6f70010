"""Mistakes at a launch: the class of the exception, and the whole text."""

from __future__ import annotations

import copy
import textwrap
from pathlib import Path

import numpy as np
import pytest
from conftest import error_text

import tilewright as triton
from tilewright import errors

KERNEL = """
@triton.jit
def fill(x_ptr, value, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), value)
"""


@pytest.fixture
def fill(module):
    return module(KERNEL).fill


def check(call, kinds, code, text):
    with pytest.raises(errors.TritonError) as caught:
        call()
    error = caught.value
    for kind in kinds:
        assert isinstance(error, kind)
    assert error_text(error) == textwrap.dedent(text).strip("\n")
    assert error.code == code
    assert error.diagnostics == (str(error),)
    [diagnostic] = error.diagnostics
    assert diagnostic.code == code
    assert diagnostic.startswith(f"error[{code}]: {diagnostic.message}\n")
    if diagnostic.file is not None:
        assert f"{diagnostic.file}:{diagnostic.line}:{diagnostic.column}\n" in diagnostic
    assert all(f"= note: {note}\n" in f"{diagnostic}\n" for note in diagnostic.notes)
    assert diagnostic.hint is None or f"= help: {diagnostic.hint}" in diagnostic


X = np.zeros(8, np.float32)


def test_missing_argument(fill):
    check(
        lambda: fill[(1,)](X, 1.0),
        [errors.LaunchError, TypeError],
        "TW0101",
        """
        error[TW0101]: kernel 'fill' is launched without argument 'BLOCK'
         --> k.py:2:24
          |
        2 | def fill(x_ptr, value, BLOCK: tl.constexpr):
          |                        ^^^^^^^^^^^^^^^^^^^ no value for this parameter
          |
          = help: a compile-time value is passed by keyword: `fill[grid](..., BLOCK=1024)`
        """,
    )


def test_too_many_arguments(fill):
    check(
        lambda: fill[(1,)](X, 1.0, 8, 9),
        [errors.LaunchError, TypeError],
        "TW0107",
        """
        error[TW0107]: kernel 'fill' takes 3 arguments, and 4 were given
         --> k.py:2:5
          |
        2 | def fill(x_ptr, value, BLOCK: tl.constexpr):
          |     ^^^^ defined here
          |
          = note: its parameters are 'x_ptr', 'value', 'BLOCK'
          = help: options such as num_warps are passed by keyword
        """,
    )


def test_argument_given_twice(fill):
    check(
        lambda: fill[(1,)](X, 1.0, x_ptr=X, BLOCK=8),
        [errors.LaunchError, TypeError],
        "TW0107",
        """
        error[TW0107]: kernel 'fill' got two values for argument 'x_ptr'
         --> k.py:2:10
          |
        2 | def fill(x_ptr, value, BLOCK: tl.constexpr):
          |          ^^^^^ this parameter
          |
          = help: pass 'x_ptr' by position or by keyword, not both
        """,
    )


def test_unknown_option(fill):
    check(
        lambda: fill[(1,)](X, 1.0, BLOCK=8, num_warp=8),
        [errors.LaunchError, KeyError],
        "TW0102",
        """
        error[TW0102]: 'num_warp' is neither a parameter of kernel 'fill' nor a launch option
         --> k.py:2:5
          |
        2 | def fill(x_ptr, value, BLOCK: tl.constexpr):
          |     ^^^^ defined here
          |
          = note: the parameters are 'x_ptr', 'value', 'BLOCK'
          = help: did you mean 'num_warps'?
        """,
    )


def test_option_with_an_invalid_value(fill):
    check(
        lambda: fill[(1,)](X, 1.0, BLOCK=8, num_warps=0),
        [errors.LaunchError, ValueError],
        "TW0108",
        """
        error[TW0108]: the launch option num_warps is 0
         |
         = note: found 0 of type int, expected a power of two
         = help: num_warps: warps of a program; the default is 4
        """,
    )


def test_call_without_a_grid(fill):
    check(
        lambda: fill(X, 1.0, BLOCK=8),
        [errors.LaunchError, RuntimeError],
        "TW0104",
        """
        error[TW0104]: kernel 'fill' is called without a grid
         --> k.py:2:5
          |
        2 | def fill(x_ptr, value, BLOCK: tl.constexpr):
          |     ^^^^ this is a kernel
          |
          = note: a kernel runs once for every program of a grid
          = help: write `fill[grid](...)`, with the number of programs as grid
        """,
    )
    with pytest.raises(errors.LaunchStateError):
        fill.run(X, 1.0, BLOCK=8)


@pytest.mark.parametrize(
    ("grid", "headline"),
    [
        ((-4,), "the grid has -4 programs along axis 0"),
        ((1, 1, 1, 1), "the grid has 4 axes"),
        ((), "the grid has 0 axes"),
        ((1.5,), "the grid is a tuple with a float in it"),
        ([1, "2"], "the grid is a list with a str in it"),
        ("128", "the grid is a str"),
        (None, "the grid is None"),
        ((1 << 31, 1), "the grid has 2147483648 programs along axis 0"),
        ((1 << 200,), f"the grid has {2**127 - 1} programs along axis 0"),
        (lambda meta: None, "the grid is a function that returns None"),
        (lambda meta: max, "the grid is a function that returns a function"),
    ],
)
def test_invalid_grids(fill, grid, headline):
    with pytest.raises(errors.LaunchValueError) as caught:
        fill[grid](X, 1.0, BLOCK=8)
    assert caught.value.code == "TW0103"
    assert str(caught.value).splitlines()[0] == f"error[TW0103]: {headline}"


@pytest.mark.parametrize(
    ("grid", "found", "advice"),
    [
        ((1.5,), "(1.5,)", "triton.cdiv"),
        ([1, "2"], "[1, '2']", "kernel[(triton.cdiv(n, BLOCK_SIZE),)]"),
        (lambda meta: meta["BLOCK"] / 4, "2.0", "triton.cdiv"),
        (lambda meta: None, "None", "lambda meta:"),
        (["x" * 100], "['" + "x" * 58 + "…", "kernel[(triton.cdiv(n, BLOCK_SIZE),)]"),
    ],
)
def test_an_invalid_grid_is_shown(fill, grid, found, advice):
    with pytest.raises(errors.LaunchValueError) as caught:
        fill[grid](X, 1.0, BLOCK=8)
    note, help = str(caught.value).splitlines()[2:]
    assert f"found {found}, expected an int, a tuple or list of 1 to 3 ints" in note
    assert advice in help


def test_a_list_for_a_constexpr(module):
    kernels = module("""
        @triton.jit
        def fill(x_ptr, BLOCK: tl.constexpr):
            tl.store(x_ptr + tl.program_id(0) * BLOCK, 1.0)
    """)
    with pytest.raises(errors.LaunchTypeError) as caught:
        kernels.fill[(1,)](X, BLOCK=[1, 2])
    headline = "argument 'BLOCK' of kernel 'fill' is a list of 2 numbers, and is used as a number"
    assert str(caught.value).splitlines()[0] == f"error[TW0105]: {headline}"
    assert "pass one number" in str(caught.value)


def test_negative_grid_text(fill):
    check(
        lambda: fill[(-4,)](X, 1.0, BLOCK=8),
        [errors.LaunchError, ValueError],
        "TW0103",
        """
        error[TW0103]: the grid has -4 programs along axis 0
         |
         = note: found the grid (-4,)
         = help: the number of programs must not be negative; `triton.cdiv(n, BLOCK_SIZE)` covers n elements
        """,
    )


def test_exceptions_of_a_grid_function_pass(fill):
    class Mine(Exception):
        pass

    def grid(meta):
        raise Mine("mine")

    with pytest.raises(Mine, match="mine"):
        fill[grid](X, 1.0, BLOCK=8)


class OnGpu:
    __cuda_array_interface__ = {"data": (0, False), "typestr": "<f4", "shape": (8,), "version": 3}  # noqa: RUF012


def test_array_on_another_device(fill):
    # Otherwise the kernel would run where the array says that it is.
    triton.runtime.set_device("cpu")
    check(
        lambda: fill[(1,)](OnGpu(), 1.0, BLOCK=8),
        [errors.LaunchError, ValueError],
        "TW0106",
        """
        error[TW0106]: argument 'x_ptr' of kernel 'fill' is on device 'cuda:0'
         --> k.py:2:10
          |
        2 | def fill(x_ptr, value, BLOCK: tl.constexpr):
          |          ^^^^^ this parameter
          |
          = note: found a tensor on 'cuda:0', expected one on 'cpu', where the kernel runs
          = help: move it with `.to('cpu')`
        """,
    )


def test_tensor_without_memory(fill):
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.LaunchValueError) as caught:
        fill[(1,)](torch.empty(8, device="meta"), 1.0, BLOCK=8)
    assert caught.value.code == "TW0106"


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("abc", "the string 'abc'"),
        (object(), "of class 'object'"),
        ({}, "of class 'dict'"),
        (np.zeros(8, np.complex64), "an array of dtype complex64"),
        (np.zeros(8, ">f4"), "an array of dtype float32 in another byte order"),
        (np.zeros(8, "M8[s]"), "an array of dtype datetime64[s]"),
        (1 << 130, "an int of more than 128 bits"),
        (1 << 64, f"the int {1 << 64}, which 64 bits do not hold"),
        (-(1 << 63) - 1, f"the int {-(1 << 63) - 1}, which 64 bits do not hold"),
        (triton.language.float32, "fp32, a compile-time value of type dtype"),
    ],
)
def test_arguments_of_unsupported_types(fill, argument, found):
    with pytest.raises(errors.LaunchTypeError) as caught:
        fill[(1,)](argument, 1.0, BLOCK=8)
    assert caught.value.code == "TW0105"
    assert str(caught.value).splitlines()[0] == f"error[TW0105]: argument 'x_ptr' of kernel 'fill' is {found}"


def test_unhashable_constexpr(fill):
    with pytest.raises(errors.LaunchTypeError) as caught:
        fill[(1,)](X, 1.0, BLOCK={})
    headline = "error[TW0105]: argument 'BLOCK' of kernel 'fill' is of class 'dict', which has no hash"
    assert str(caught.value).splitlines()[0] == headline


def test_tensor_for_a_constexpr(fill):
    with pytest.raises(errors.LaunchTypeError) as caught:
        fill[(1,)](X, 1.0, BLOCK=X)
    assert caught.value.code == "TW0105"


def test_read_only_arrays_are_read_and_not_written(fill):
    frozen = np.arange(8, dtype=np.float32)
    frozen.flags.writeable = False
    check(
        lambda: fill[(1,)](frozen, 5.0, BLOCK=8),
        [errors.OutOfBoundsError],
        "TW0201",
        """
        error[TW0201]: store to `x_ptr`, which may only be read
         --> k.py:3:5
          |
        3 |     tl.store(x_ptr + tl.arange(0, BLOCK), value)
          |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ writes here
          |
          = note: the memory of `x_ptr` is read-only: a numpy array that is not writeable, or a shared slice of Rust
          = note: in program (0, 0, 0), at element [0] of the tile
          = help: pass memory that may be written: `&mut` in Rust, `array.copy()` in Python
        """,
    )
    np.testing.assert_array_equal(frozen, np.arange(8))


def test_compilation_errors_have_their_classes(module):
    kernels = module(
        """
        @triton.jit
        def undefined(x_ptr):
            tl.store(x_ptr, nothing)

        @triton.jit
        def asserts(x_ptr):
            tl.static_assert(1 == 2, "no")

        @triton.jit
        def unsupported(x_ptr):
            try:
                pass
            finally:
                pass
        """
    )
    for kernel, kind, code in [
        (kernels.undefined, errors.CompilationError, "TW0001"),
        (kernels.asserts, errors.CompileTimeAssertionFailure, "TW0017"),
        (kernels.unsupported, errors.UnsupportedLanguageConstruct, "TW0003"),
    ]:
        with pytest.raises(errors.CompilationError) as caught:
            kernel[(1,)](X)
        assert type(caught.value) is kind
        assert caught.value.code == code


def test_out_of_bounds(module):
    kernel = module(
        """
        @triton.jit
        def copy(x_ptr, y_ptr, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))
        """
    ).copy
    x, y = np.zeros(12, np.float32), np.zeros(16, np.float32)
    check(
        lambda: kernel[(2,)](x, y, BLOCK=8),
        [errors.OutOfBoundsError, IndexError, RuntimeError],
        "TW0201",
        """
        error[TW0201]: load out of bounds of `x_ptr`
         --> k.py:4:31
          |
        4 |     tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))
          |                               ^^^^^^^^^^^^^^^^^^^^^^^^ reads element 12 of `x_ptr`
          |
          = note: `x_ptr` has the elements 0 to 11 (48 bytes); the offset in elements is 12
          = note: in program (1, 0, 0), at element [4] of the tile
          = help: mask the access, `tl.load(…, mask=…)`, where the tile extends past the end of the tensor
        """,
    )


def test_out_of_bounds_of_a_tensor_whose_elements_share_memory(module):
    """As the gradient that `sum()` gives back."""
    torch = pytest.importorskip("torch")
    kernel = module(
        """
        @triton.jit
        def copy(x_ptr, y_ptr, BLOCK: tl.constexpr):
            offsets = tl.arange(0, BLOCK)
            tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))
        """
    ).copy
    x = torch.ones(4, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(x.sum(), x)
    with pytest.raises(errors.OutOfBoundsError) as caught:
        kernel[(1,)](gradient, torch.zeros(32), BLOCK=32)
    assert "`x_ptr` is a tensor of shape [4, 8] with strides [0, 0]: elements share memory" in str(
        caught.value
    )
    assert "help: pass `x_ptr.contiguous()`" in str(caught.value)
    kernel[(1,)](gradient.contiguous(), torch.zeros(32), BLOCK=32)


def test_language_functions_outside_of_a_kernel():
    with pytest.raises(RuntimeError) as caught:
        triton.language.load(None)
    assert isinstance(caught.value, errors.LaunchStateError)
    assert str(caught.value) == textwrap.dedent(
        """\
        error[TW0111]: 'tl.load' is called outside of a kernel
         |
         = note: the functions of the language are compiled; Python cannot run them
         = help: call it in a function that is decorated with @triton.jit"""
    )


def test_functions_without_source():
    namespace = {"triton": triton}
    with pytest.raises(ValueError, match="the source of 'f' is not available"):
        exec("@triton.jit\ndef f(): pass", namespace)


def test_replaced_names_say_what_replaced_them():
    from tilewright.testing import cuda_memcheck

    with pytest.raises(NotImplementedError) as caught:
        cuda_memcheck(lambda: None)
    assert isinstance(caught.value, errors.TritonError)
    first, *_, hint = str(caught.value).splitlines()
    assert (
        first == "error[TW0117]: triton.testing.cuda_memcheck is not available in this version of tilewright"
    )
    assert "compute-sanitizer checks a program on a GPU" in hint
    # The traceback ends in the line of the program.
    assert caught.traceback[-1].path == Path(__file__)
    with pytest.raises(
        NotImplementedError, match="a file of stage 'ttir' is not read: tilewright has no MLIR"
    ):
        triton.compiler.compiler.parse("f", "ttir", None)
    assert copy.deepcopy(cuda_memcheck).__name__ == "cuda_memcheck"
    assert not isinstance(3, cuda_memcheck)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        triton.nonsense
    with pytest.raises(AttributeError) as caught:
        triton.cdivv
    assert (caught.value.name, caught.value.obj) == ("cdivv", triton)
