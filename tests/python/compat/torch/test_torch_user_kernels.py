"""``torch.compile`` of functions that launch kernels of the user, on the processor, with Inductor's pool."""

from __future__ import annotations

import pytest

PROGRAM = """
import tilewright
tilewright.install_as_triton()
import torch
import torch._inductor.config as config
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

# Else what is around the kernels is C++. More than one thread is a pool of processes.
config.cpu_backend, config.compile_threads = "triton", 2

@triton.jit
def add(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + at, tl.load(x_ptr + at, at < n) + tl.load(y_ptr + at, at < n), at < n)

@triton.jit
def increase(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, at < n) + tl.load(y_ptr + at, at < n), at < n)

tuned = triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])(add)

def launched_tuned(x, y):
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return (out * 2).sin()

@triton_op("tilewright_test::add", mutates_args={})
def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add)[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK=128)
    return out

@triton_op("tilewright_test::increase", mutates_args={"x"})
def increase_op(x: torch.Tensor, y: torch.Tensor) -> None:
    wrap_triton(increase)[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)

def increased(x, y):
    increase_op(x, y)
    return x * 2

torch.manual_seed(0)
x, y = torch.randn(1000), torch.randn(1000)
assert torch.equal(add_op(x, y), x + y)
torch.testing.assert_close(torch.compile(launched_tuned, fullgraph=True)(x, y), (2 * (x + y)).sin())
eager = torch.compile(lambda x, y: add_op(x, y) * 2, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(eager(x, y), (x + y) * 2)
z = x.clone()
torch.testing.assert_close(torch.compile(increased, fullgraph=True)(z, y), (x + y) * 2)
torch.testing.assert_close(z, x + y)

from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors
accesses = identify_accessed_tensors(add, dict(x_ptr=x, y_ptr=y, o_ptr=z, n=1000, BLOCK=128), {}).read_writes
print(sorted(dep.name for dep in accesses.reads), sorted(dep.name for dep in accesses.writes))
accesses = identify_accessed_tensors(increase, dict(x_ptr=x, y_ptr=y, n=1000, BLOCK=128), {}).read_writes
print(sorted(dep.name for dep in accesses.reads), sorted(dep.name for dep in accesses.writes))
"""


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_torch_compiles_functions_that_launch(interpret, run, script, tmp_path):
    """Nothing is said on stderr: torch finds out which arguments a kernel changes, and the pool's kernels run here."""
    pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    env = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "TILEWRIGHT_DEVICE": "cpu",
        "TRITON_INTERPRET": interpret,
    }
    done = run(script(PROGRAM), env=env)
    assert done.out.splitlines() == ["['x_ptr', 'y_ptr'] ['o_ptr']", "['x_ptr', 'y_ptr'] ['x_ptr']"], done.err
    assert "identify_accessed_tensors" not in done.err
