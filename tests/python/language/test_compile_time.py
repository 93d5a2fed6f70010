"""Functions that run while a kernel is compiled (``constexpr_function``): what they see of values at run time."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])

WIDTHS = {tl.float16: 2, tl.float32: 4, tl.int8: 1}


@triton.constexpr_function
def dtype_of(x):
    return x.dtype


@triton.constexpr_function
def pointee_of(x):
    return x.dtype.element_ty


@triton.constexpr_function
def block_of(x):
    return x.block_shape


@triton.constexpr_function
def shape_of(x):
    return x.shape


@triton.constexpr_function
def kind_of(x):
    """1 for a descriptor, 2 for a pointer, 3 for a tile, 4 for a scalar, 5 for what is known."""
    if isinstance(x, tl.tensor_descriptor):
        return 1
    if not isinstance(x, tl.tensor):
        return 5
    return 2 if x.dtype.is_ptr() else 3 if len(x.shape) > 0 else 4


@triton.constexpr_function
def bytes_of(x):
    """With a dict and a loop, which the language has not."""
    count = 1
    for extent in x.block_shape if isinstance(x, tl.tensor_descriptor) else x.shape:
        count *= int(extent)
    return count * WIDTHS[x.dtype]


@triton.constexpr_function
def first_of(pair, *, swap=False):
    a, b = pair
    return b if swap else a


@triton.jit
def looks_at_arguments(d, p, t, n, out):
    v = tl.load(p + tl.arange(0, 8))
    tl.store(out, kind_of(d))
    tl.store(out + 1, kind_of(p))
    tl.store(out + 2, kind_of(v))
    tl.store(out + 3, kind_of(n))
    tl.store(out + 4, kind_of(None))
    tl.store(out + 5, bytes_of(d))
    tl.store(out + 6, bytes_of(v))
    tl.store(out + 7, dtype_of(d) == tl.float32)
    tl.store(out + 8, pointee_of(x=p) == tl.float16)
    tl.store(out + 9, tl.sum(tl.full(shape_of(v), 3, dtype_of(v))).to(tl.int32))
    tl.store(out + 10, block_of(d)[0] * 100 + block_of(d)[1])
    tl.store(out + 11, tl.sum(tl.arange(0, block_of(d)[1])))
    # The function returns the value that it was given.
    tl.store(out + 12, first_of((n, d)) + tl.load(first_of((d, t), swap=True)[0]))
    tl.store(out + 13, tl.sum(tl.sum(first_of((d, n)).load([0, 0]), 1), 0).to(tl.int32))
    tl.store(out + 14, shape_of(d)[1] * 10 + kind_of(shape_of(d)[0]))


@INTERPRETED
def test_types_and_shapes_of_values_at_run_time(interpret, device):
    kernel = triton.JITFunction(looks_at_arguments.fn, interpret=interpret)
    a = torch.arange(4 * 8, dtype=torch.float32, device=device).reshape(4, 8)
    p = torch.ones(8, dtype=torch.float16, device=device)
    t = torch.full((1,), 40, dtype=torch.int32, device=device)
    out = torch.zeros(15, dtype=torch.int32, device=device)
    kernel[(1,)](TensorDescriptor.from_tensor(a, [4, 8]), p, (t, 3), 9, out)
    expected = [1, 2, 3, 4, 5, 128, 16, 1, 1, 24, 408, 28, 49, int(a.sum()), 84]
    assert out.tolist() == expected


class Pair(NamedTuple):
    """A pointer and another value."""

    pointer: tl.tensor
    count: int


@triton.constexpr_function
def of_fields(pair):
    return (pair.pointer.dtype.element_ty.primitive_bitwidth, pair.count)


@triton.aggregate
class Source:
    """A pointer and a number of elements."""

    pointer: tl.tensor
    count: tl.constexpr

    @triton.constexpr_function
    def size(self, more=0):
        return {tl.float32: 4}[self.pointer.dtype.element_ty] * self.count + more


@triton.jit
def looks_into_parts(pointer, out):
    bits, count = of_fields(Pair(pointer, 3))
    tl.store(out, bits * 10 + count)
    tl.store(out + 1, Source(pointer, 8).size(more=1))


@INTERPRETED
def test_parts_of_tuples_and_objects(interpret, device):
    kernel = triton.JITFunction(looks_into_parts.fn, interpret=interpret)
    out = torch.zeros(2, dtype=torch.int32, device=device)
    kernel[(1,)](torch.zeros(4, device=device), out)
    assert out.tolist() == [323, 33]


@triton.constexpr_function
def adds(x):
    return x + 1


@triton.constexpr_function
def compares(x):
    return 1 if x == 3 else 2


@triton.constexpr_function
def chooses(x):
    return 1 if x else 2


@triton.constexpr_function
def converts(x):
    return x.to(tl.float32)


@triton.constexpr_function
def knows_no_such_name(x):
    return x.data_ptr()


@triton.constexpr_function
def is_wrong(x):
    raise ValueError(f"not {x.dtype}")


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        (adds, "TW0008", "'add' needs the value of int32, which is known at run time only"),
        (compares, "TW0008", "a comparison needs the value"),
        (chooses, "TW0008", "'bool' needs the value"),
        (converts, "TW0008", "'to' needs the value"),
        (knows_no_such_name, "TW0020", "has no attribute 'data_ptr'"),
        (is_wrong, "TW0020", "not int32"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_needs_the_value_says_so(function, code, says):
    wanted = tl.constexpr(function)

    @triton.jit
    def kernel(n, out):
        tl.store(out, wanted(n))

    with pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](7, torch.zeros(1, dtype=torch.int32))
    assert caught.value.code == code
    assert says in str(caught.value)


KEPT: list = []


@triton.constexpr_function
def keeps(x):
    KEPT.append(x)
    return x


@triton.constexpr_function
def gives_kept(*arguments):
    return KEPT[0]


@triton.constexpr_function
def gives_both(*arguments):
    return (*arguments[:1], KEPT[0])


@pytest.mark.parametrize("passed", [0, 1, 2])
@pytest.mark.parametrize("function", [gives_kept, gives_both], ids=lambda function: function.__name__)
@pytest.mark.parametrize("is_of_this_kernel", [True, False])
def test_a_value_of_another_call_is_refused(function, passed, is_of_this_kernel):
    """Its index may be that of an argument of the call, which is another value."""
    wanted, own, count = tl.constexpr(function), tl.constexpr(is_of_this_kernel), tl.constexpr(passed)

    @triton.jit
    def other(x, out):
        tl.store(out, keeps(tl.load(x)))

    @triton.jit
    def kernel(x, out):
        a, b = tl.load(x), tl.load(x + 1)
        if own:
            a = keeps(a)
        if count == 0:
            tl.store(out, a + wanted())
        elif count == 1:
            tl.store(out, a + wanted(b))
        else:
            tl.store(out, a + wanted(b, a))

    KEPT.clear()
    x, out = torch.tensor([5, 7]), torch.zeros(1, dtype=torch.int64)
    if not is_of_this_kernel:
        other[(1,)](x, out)
        assert (len(KEPT), out.item()) == (1, 5)
    with pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](x, out)
    assert caught.value.code == "TW0020"
    assert (
        f"function '{function.__name__}' returned a run-time value that is no argument of this call"
        in str(caught.value)
    )


@INTERPRETED
def test_values_that_a_function_returns_are_its_arguments(interpret, device):
    """In another order, nested, and the same one several times."""

    def turned(a, b, c):
        return (c, (a, 3), a, b)

    wanted = tl.constexpr(triton.constexpr_function(turned))

    def kernel(x, out):
        a, b, c = tl.load(x), tl.load(x + 1), tl.load(x + 2)
        first, pair, third, last = wanted(a, b, c)
        tl.store(out, ((first * 10 + pair[0]) * 10 + third) * 10 + last + pair[1] * 10000)

    x, out = torch.tensor([5, 7, 9], device=device), torch.zeros(1, dtype=torch.int64, device=device)
    triton.JITFunction(kernel, interpret=interpret)[(1,)](x, out)
    assert out.item() == 39557
