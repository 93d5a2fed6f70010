"""Kernels that a program registers for ``cuda`` with torch's dispatcher, on a machine without a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

KERNELS = """
import gc
import torch, triton
import triton.language as tl

called = []

@triton.jit
def absolute(x_ptr, out_ptr, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.abs(x), mask=at < n)

def note(name, *tensors):
    called.append(name)
    assert all(tensor.is_cuda and tensor.device.type == "cuda" for tensor in tensors), name

def abs(x):
    note("abs", x)
    out = torch.empty_like(x)
    absolute[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), 16)
    return out

cpu = torch.randn(37, generator=torch.Generator().manual_seed(1))
gpu = cpu.cuda()
"""

OVERRIDES = (
    KERNELS
    + """
def abs_(x):
    note("abs_", x)
    return x.copy_(abs(x))

def silu_backward(gradient, x):
    note("silu_backward", gradient, x)
    s = torch.sigmoid(x)
    return gradient * s * (1 + x * (1 - s))

def ones(size, *, dtype=None, layout=None, device=None, pin_memory=None):
    note("ones")
    assert device.type == "cuda"
    out = torch.empty(size, device=device, dtype=dtype)
    assert out.is_cuda
    return out.fill_(1)

def fill_(x, value):
    note("fill_", x)
    return x.copy_(torch.tensor(float(value)).expand(x.shape))

def tile(x, dims):
    note("tile", x)
    return torch.cat([x] * dims[0])

def add(x, y, *, alpha=1):
    note("add", x)
    return torch.sub(x, y, alpha=-alpha)

def to_copy(x, *, dtype, **_):
    note("to_copy", x)
    return torch.empty_like(x, dtype=dtype).copy_(x)

def registered(lib):
    functions = {"abs": abs, "abs_": abs_, "silu_backward": silu_backward, "ones": ones, "fill_.Scalar": fill_,
                 "tile": tile, "add.Tensor": add, "_to_copy": to_copy}
    for name, function in functions.items():
        lib.impl(name, function, "CUDA")
    return lib

def took(*names):
    assert called == list(names), called
    called.clear()

lib = registered(torch.library.Library("aten", "IMPL"))
result = torch.abs(gpu)
took("abs")
assert result.is_cuda and torch.equal(result.cpu(), cpu.abs())
again = gpu.clone()
assert again.abs_() is again and torch.equal(again.cpu(), cpu.abs())
took("abs_", "abs")
made = torch.ones(2, 3, device="cuda")
assert made.is_cuda and made.tolist() == [[1.0] * 3] * 2
took("ones", "fill_")
assert gpu.to(torch.float64).dtype is torch.float64
took("to_copy")
assert torch.equal((gpu + 2).cpu(), cpu + 2) and torch.equal((gpu + gpu).cpu(), cpu + cpu)
took("add", "add")
# An operator that torch composes of others, and one in which it fills.
assert torch.equal(torch.tile(gpu, (2,)).cpu(), cpu.repeat(2)) and torch.full((2,), 3, device="cuda").tolist() == [3, 3]
took("tile", "fill_")
# Torch makes a tensor of the number.
numbers = torch.arange(5, device="cuda")
assert torch.bitwise_and(numbers, 6).tolist() == torch.bitwise_and(6, numbers).tolist() == [0, 0, 2, 2, 4]
took()

# Tensors of the CPU are torch's.
watched = cpu.clone().requires_grad_()
torch.tile(watched.abs() + 1, (2,)).sum().backward()
assert torch.equal(watched.grad, 2 * torch.sign(cpu)) and torch.ones(2).is_cpu
took()

# Below autograd, and in the backward pass.
x = gpu.clone().requires_grad_()
y = torch.nn.functional.silu(torch.abs(x))
took("abs")
y.sum().backward()
assert "silu_backward" in called and x.grad.is_cuda
called.clear()
watched.grad = None
torch.nn.functional.silu(watched.abs()).sum().backward()
torch.testing.assert_close(x.grad.cpu(), watched.grad)
took()
with torch.autocast("cuda", dtype=torch.bfloat16):
    a = torch.mm(torch.abs(gpu).reshape(1, -1), gpu.reshape(-1, 1))
took("abs", "to_copy", "to_copy")
assert a.dtype is torch.bfloat16

# Until the library goes.
other = torch.library.Library("aten", "IMPL")
other.impl("neg", lambda x: (note("neg", x), torch.sub(0, x))[1], "CUDA")
lib._destroy()
torch.abs(gpu), torch.tile(gpu, (2,)), torch.ones(2, device="cuda"), gpu + 1
took()
assert torch.equal((-gpu).cpu(), -cpu)
took("neg")
del other
gc.collect()
-gpu
took()
lib = registered(torch.library.Library("aten", "IMPL"))
torch.tile(gpu, (2,))
took("tile")
torch.library.Library("aten", "IMPL").impl("vstack", lambda xs: torch.cat([x[None] for x in xs]), "CPU")
print("done")
"""
)

OWN_OPERATORS = (
    KERNELS
    + """
@torch.library.custom_op("registered::abs", mutates_args=(), device_types="cuda")
def own_abs(x: torch.Tensor) -> torch.Tensor:
    return abs(x)

own_abs.register_autograd(
    lambda ctx, gradient: gradient * torch.sign(ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
x = gpu.clone().requires_grad_()
y = own_abs(x)
assert y.is_cuda and torch.equal(y.detach().cpu(), cpu.abs()) and called == ["abs"]
y.sum().backward()
assert torch.equal(x.grad.cpu(), torch.sign(cpu)) and x.grad.is_cuda
try:
    own_abs(cpu)
except NotImplementedError:
    pass
else:
    raise AssertionError("there is no kernel for the CPU")

lib = torch.library.Library("registered", "FRAGMENT")
lib.define("magnitude(Tensor x, float scale=1.0) -> Tensor")
torch.library.impl(lib, "magnitude", "CUDA")(lambda x, scale=1.0: abs(x) * scale)
torch.library.impl("registered::magnitude", "cpu")(lambda x, scale=1.0: x * 0)
called.clear()
assert torch.equal(torch.ops.registered.magnitude(gpu, 2.0).cpu(), 2 * cpu.abs()) and called == ["abs"]
assert torch.equal(torch.ops.registered.magnitude.default(gpu).cpu(), cpu.abs())
assert not torch.ops.registered.magnitude(cpu).any() and len(called) == 2
print("done")
"""
)


@pytest.mark.parametrize("text", [OVERRIDES, OWN_OPERATORS], ids=["overrides", "own operators"])
def test_what_is_registered_for_cuda_runs_on_the_cpu(run, script, text):
    done = run("-m", "tilewright", "run", script(text))
    assert (done.code, done.out) == (0, "done\n"), done.err
