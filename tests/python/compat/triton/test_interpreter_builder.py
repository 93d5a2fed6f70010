"""Programs that replace parts of ``triton.runtime.interpreter``: their functions see and may change each operation."""

import contextlib

import numpy as np
import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.errors import OutOfBoundsError
from tilewright.language.standard import (
    _elementwise_max,
    _elementwise_min,
    _or_combine,
    _sum_combine,
    _xor_combine,
)
from tilewright.runtime import interpreter
from tilewright.runtime.interpreter import GridExecutor, _implicit_cvt, interpreter_builder


@triton.jit(interpret=True)
def kernel(x_ptr, y_ptr, out_ptr, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n, other=1.5)
    y = tl.load(y_ptr + tl.arange(0, B)[:, None])
    total = tl.zeros((B, B), tl.float32)
    total = tl.dot(y * tl.expand_dims(x, 0), total + 1, total, input_precision="ieee")
    tl.store(out_ptr + at[:, None] * B + tl.arange(0, B)[None, :], total, mask=(at < n)[:, None])
    tl.store(out_ptr + n * B, n)


NAMES = [
    "create_make_range",
    "create_masked_load",
    "create_masked_store",
    "create_expand_dims",
    "create_addptr",
    "create_dot",
    "binary_op",
]
N, B = 27, 16


@contextlib.contextmanager
def watched(calls, change=None):
    """Puts functions around what the builder has."""

    def wrap(name, real):
        def call(*args):
            if change is not None:
                args = change(name, args)
            result = real(*args)
            calls.append((name, args, result))
            return result

        return call

    real = {name: getattr(interpreter_builder, name) for name in NAMES}
    try:
        for name in NAMES:
            setattr(interpreter_builder, name, wrap(name, real[name]))
        yield
    finally:
        for name in NAMES:
            setattr(interpreter_builder, name, real[name])


def launched(dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(N, generator=generator).to(dtype) for _ in range(2))
    out = torch.full((N * B + 1,), -1.0)
    kernel[(triton.cdiv(N, B),)](x, y, out, N, B=B)
    for row in range(N):
        inside = x[row // B * B : row // B * B + B].double()
        total = inside.sum() + 1.5 * (B - len(inside))
        torch.testing.assert_close(
            out[row * B : row * B + B].double(), (y[row % B].double() * total).expand(B), rtol=1e-5, atol=1e-5
        )
    assert out[N * B] == N
    return out


def test_each_operation_is_seen_and_gives_the_same_bits():
    plain, calls = launched(), []
    with watched(calls):
        assert torch.equal(launched(), plain)
    seen = [name for name, _, _ in calls]
    assert set(seen) == set(NAMES)
    assert {name: seen.count(name) for name in NAMES if name != "binary_op"} == {
        "create_make_range": 6,
        "create_masked_load": 4,
        "create_masked_store": 4,
        "create_expand_dims": 10,
        "create_addptr": 10,
        "create_dot": 2,
    }
    operators = {args[2].__name__ for name, args, _ in calls if name == "binary_op"}
    assert operators == {"multiply", "add", "less"}
    pointers, mask, other, *_ = next(args for name, args, _ in calls if name == "create_masked_load")
    assert pointers.data.dtype == np.uint64
    assert (np.diff(pointers.data.astype(np.int64)) == 4).all()
    assert mask.data.shape == other.data.shape == (B,)
    assert mask.data.all()
    assert (other.data == 1.5).all()
    before = len(calls)
    assert torch.equal(launched(), plain)
    assert len(calls) == before


def test_what_a_program_changes_holds():
    def change(name, args):
        if name == "create_masked_store" and args[0].data.size > 1:
            # Only the first column.
            only = np.zeros_like(args[2].data)
            only[:, 0] = args[2].data[:, 0]
            return (args[0], args[1], interpreter.TensorHandle(only, args[2].dtype), *args[3:])
        if name == "create_make_range":
            return (0, args[1])
        return args

    out = torch.zeros(N * B + 1)
    plain = torch.zeros(N * B + 1)
    x, y = torch.ones(N), torch.ones(N)
    kernel[(2,)](x, y, plain, N, B=B)
    with watched([], change):
        kernel[(2,)](x, y, out, N, B=B)
    grid = out[: N * B].reshape(N, B)
    assert torch.equal(grid[:, 0], plain[: N * B].reshape(N, B)[:, 0])
    assert not grid[:, 1:].any()


@triton.jit(interpret=True)
def all_kinds(x_ptr, out_ptr):
    at = tl.arange(0, 8)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x + x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int64", "uint8"])
def test_elements_that_a_program_gives_are_taken(dtype):
    dtype = getattr(torch, dtype)
    x = torch.tensor([0, 1, 1, 0, 3, 5, 7, 40]).to(dtype)

    def change(name, args):
        if name == "binary_op":
            flipped = interpreter.TensorHandle(args[0].data[::-1].copy(), args[0].dtype)
            return (flipped, args[1], args[2])
        return args

    out = torch.zeros(8, dtype=dtype)
    with watched([], change):
        all_kinds[(1,)](x, out)
    assert torch.equal(out, x.flip(0) + x)


@triton.jit(interpret=True)
def too_far(x_ptr, out_ptr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, 16))))


def test_a_finding_stands_in_the_kernel():
    with watched([]), pytest.raises(OutOfBoundsError) as caught:
        too_far[(1,)](torch.zeros(10), torch.zeros(1))
    assert "tl.load(x_ptr + tl.arange(0, 16))" in str(caught.value)
    assert "real(*args)" not in str(caught.value)


def test_a_program_may_run_the_grid_itself(monkeypatch):
    order = []

    def call(self, *args_dev, **kwargs):
        import inspect

        args, named = self._init_args_hst(args_dev, kwargs)
        interpreter._patch_lang(self.fn)
        given = inspect.getcallargs(self.fn, *args, **named)
        converted = {
            name: arg if name in self.constexprs else _implicit_cvt(arg) for name, arg in given.items()
        }
        assert converted["x_ptr"].handle.data[0] == args[0].data_ptr()
        assert self.constexprs == ["B"]
        interpreter_builder.set_grid_dim(*self.grid)
        for x in reversed(range(self.grid[0])):
            interpreter_builder.set_grid_idx(x, 0, 0)
            order.append(interpreter_builder.grid_idx)
            self.fn(**converted)
        self._restore_args_dev(args_dev, args, kwargs, named)

    plain = launched()
    real = GridExecutor.__call__
    monkeypatch.setattr(GridExecutor, "__call__", call)
    assert torch.equal(launched(), plain)
    assert order == [(1, 0, 0), (0, 0, 0)]

    def around(self, *args, **kwargs):
        order.append(len(args))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", around)
    assert torch.equal(launched(), plain)
    assert order[2:] == [5]
    monkeypatch.undo()
    assert torch.equal(launched(), plain)
    assert len(order) == 3
    with pytest.raises(TypeError, match="not an argument of the kernel"):
        _implicit_cvt(torch.ones(3))


@triton.jit
def reductions(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(out_ptr, tl.reduce(x, 0, _sum_combine))
    tl.store(out_ptr + 1, tl.reduce(x, 0, _elementwise_max))
    tl.store(out_ptr + 2, tl.reduce(x, 0, combine_fn=_elementwise_min, keep_dims=False))
    tl.store(out_ptr + 3, tl.reduce(x.to(tl.int32), 0, _xor_combine))
    tl.store(out_ptr + 4, tl.reduce(x.to(tl.int32), 0, _or_combine))


def test_what_the_library_combines_with_can_be_passed(device):
    x = torch.tensor([3.0, -1, 4, 1, -5, 9, 2, 6], device=device)
    numbers = x.cpu().numpy().astype(np.int32)
    expected = [19, 9, -5, np.bitwise_xor.reduce(numbers), np.bitwise_or.reduce(numbers)]
    for kernel in (reductions, interpreter.interpret(reductions)):
        out = torch.zeros(5, device=device)
        kernel[(1,)](x, out)
        assert out.tolist() == expected
    assert tl.standard._sum_combine is _sum_combine
