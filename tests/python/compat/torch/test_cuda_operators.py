"""Programs that say ``cuda`` without a GPU: the operators that they define for torch."""

from __future__ import annotations

import pytest
from test_cuda_on_cpu import NOTICE

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

KERNELS = """
import torch, triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

@triton.jit
def scale(x_ptr, o_ptr, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + at, tl.load(x_ptr + at, at < n) * by, at < n)

def launch(x, by):
    # Made with the device of a tensor, like one, and by name.
    outs = [torch.empty(x.shape, device=x.device), torch.empty_like(x), x.new_empty(x.shape)]
    outs.append(torch.empty(x.shape, device="cuda"))
    for out in outs:
        wrap_triton(scale)[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), by, BLOCK=64)
        assert x.is_cuda and out.is_cuda and torch.equal(out, outs[0])
    return outs[0]

@triton_op("tilewright_test::scaled", mutates_args={})
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return launch(x, by)

scaled.register_autograd(
    lambda ctx, grad: (launch(grad.contiguous(), ctx.by), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
)

@torch.library.custom_op("tilewright_test::only_cuda", mutates_args=(), device_types="cuda")
def only_cuda(x: torch.Tensor) -> torch.Tensor:
    return launch(x, 3.0)

@torch.library.custom_op("tilewright_test::changed", mutates_args={"x"})
def changed(x: torch.Tensor) -> None:
    assert x.is_cuda
    x.copy_(launch(x, 0.5))

x = torch.arange(100, dtype=torch.float32, device="cuda", requires_grad=True)
y = scaled(x, 2.0)
assert y.is_cuda and torch.equal(y, x * 2)
(y * y).sum().backward()
assert x.grad.is_cuda and torch.equal(x.grad, 8 * x)
assert torch.equal(torch.ops.tilewright_test.scaled(x.detach(), 4.0), x * 4)
z = only_cuda(x.detach())
assert z.is_cuda and torch.equal(z, x * 3)
changed(z)
assert z.is_cuda and torch.equal(z, x * 1.5)
print("fine")
"""

CHOICE = """
import torch

@torch.library.custom_op("tilewright_test::both", mutates_args=())
def both(x: torch.Tensor) -> torch.Tensor:
    assert not x.is_cuda and not torch.empty_like(x).is_cuda
    return x + 1

@both.register_kernel("cuda")
def _(x):
    assert x.is_cuda and torch.zeros(1, device=x.device).is_cuda
    return x + 2

library = torch.library.Library("tilewright_test", "FRAGMENT")
library.define("each(Tensor x, *, float by=1) -> Tensor")
library.impl("each", lambda x, *, by=1: x * by, "CPU")
library.impl("each", lambda x, *, by=1: x * by * 10, "CUDA")
library.define("whole(Tensor x) -> Tensor")

@torch.library.impl("tilewright_test::whole", "CompositeImplicitAutograd")
def whole(x):
    return x + torch.ones(1, device=x.device)

@torch.library.custom_op("tilewright_test::of_gpu", mutates_args=(), device_types="cuda")
def of_gpu(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

cpu, gpu = torch.ones(2), torch.ones(2, device="cuda")
each = torch.ops.tilewright_test.each
assert (both(cpu).tolist(), both(gpu).tolist()) == ([2, 2], [3, 3])
assert (each(cpu, by=2.0).tolist(), each(gpu, by=2.0).tolist()) == ([2, 2], [20, 20])
assert torch.ops.tilewright_test.whole(gpu).is_cuda and not torch.ops.tilewright_test.whole(cpu).is_cuda
assert of_gpu(gpu).is_cuda
try:
    of_gpu(cpu)
except NotImplementedError as error:
    assert "'tilewright_test::of_gpu'" in str(error)
    print("fine")
"""


@pytest.mark.parametrize("text", [KERNELS, CHOICE], ids=["kernels", "choice"])
def test_operators_of_programs_run(run_forked, script, text):
    """Their kernels see the tensors that they get and make on the GPU, and those that say ``cuda`` run."""
    done = run_forked("-m", "tilewright", "run", script(text))
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)
