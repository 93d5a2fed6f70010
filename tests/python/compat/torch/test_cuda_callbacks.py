"""Programs that say ``cuda`` without a GPU: where torch calls back, threads, autocast, random numbers, classes."""

from __future__ import annotations

import pytest
from test_cuda_on_cpu import NOTICE

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

AUTOGRAD = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

seen = []

class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.is_cuda and torch.zeros(2, device="cuda").is_cuda
        y = x * 2
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        # Nothing is said of gradients, nor of what was saved; what is made here without a device is on the CPU.
        assert g.is_cuda and g.device.type == "cuda" and x.is_cuda and y.is_cuda and (g + 1).is_cuda
        assert torch.zeros(3, device="cuda").is_cuda and torch.empty_like(g).is_cuda
        assert not torch.zeros(3).is_cuda and not g.cpu().is_cuda and torch.cuda.is_available()
        # Programs that trace a function here make fake tensors, which consist of tensors without memory.
        with FakeTensorMode():
            assert torch.zeros(3, device="cuda").device.type == "cuda" and torch.zeros(3).device.type == "cpu"
        seen.append("backward")
        return g + torch.zeros(3, device=g.device)

def start():
    return torch.ones(3, device="cuda", requires_grad=True)

x = start()
F.apply(x).sum().backward()
assert x.grad.is_cuda and x.grad.tolist() == [1, 1, 1]
torch.autograd.backward(F.apply(start()).sum())
x = start()
assert torch.autograd.grad(F.apply(x).sum(), x)[0].is_cuda
assert seen == ["backward"] * 3

x = start()
x.register_hook(lambda g: seen.append(g.device.type))
x.register_post_accumulate_grad_hook(lambda p: seen.append((p.is_cuda, p.grad.is_cuda)))
model = torch.nn.Linear(3, 3).cuda()
model.register_full_backward_hook(lambda m, before, after: seen.append(after[0].is_cuda))
model(x).sum().backward()
assert seen[3:] == [True, "cuda", (True, True)], seen

for reentrant in (False, True):
    seen.clear()
    def f(x):
        seen.append((x.is_cuda, torch.zeros(1, device="cuda").is_cuda))
        return x.sin()
    y = checkpoint(f, start(), use_reentrant=reentrant)
    assert y.is_cuda
    y.sum().backward()
    assert seen == [(True, True)] * 2

with torch.autograd.graph.saved_tensors_hooks(lambda t: t.to("cuda") * torch.ones(1, device="cuda"), lambda t: t):
    y = start().exp()
y.sum().backward()

class Same(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x)
    backward = staticmethod(lambda ctx, g: g)

assert Same.apply(start()).is_cuda
for transform in (torch.vmap, torch.func.grad):
    def f(x):
        assert x.is_cuda
        return x.sum()
    assert transform(f)(start()).is_cuda
assert torch.autograd.functional.jacobian(lambda a: a * 2, torch.ones(2, device="cuda")).is_cuda

# The CPU is the CPU.
x = torch.ones(3, requires_grad=True)
x.register_hook(lambda g: seen.append(g.device.type))
(x * 2).sum().backward()
assert seen[-1] == "cpu" and not x.grad.is_cuda

class Derived(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert torch.zeros(1, device="cuda").is_cuda
        return super().__torch_function__(func, types, args, kwargs or {})

x = torch.ones(3, device="cuda").as_subclass(Derived)
assert type(x + 1) is Derived and (x + 1).is_cuda and x[0].is_cuda and x.device.type == "cuda"
assert type(x.cpu()) is Derived and not x.cpu().is_cuda
print("fine")
"""

SAVED_TENSORS = """
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y, torch.ones(1))
        return y

    @staticmethod
    def backward(ctx, g):
        y, one = ctx.saved_tensors
        return g * y

x = torch.ones(3, 3, device="cuda", requires_grad=True)
on_cpu = torch.ones(3, 3, requires_grad=True)
factor = torch.tensor(2.0)

# Autograd saves results before the program has them, and views that C++ makes of arguments.
def saved(function, *args):
    seen = []
    with saved_tensors_hooks(lambda t: (seen.append(t.device.type), t)[1], lambda t: t):
        result = function(*args)
    assert result.device.type == args[0].device.type
    return seen

assert saved(torch.exp, x) == saved(torch.sigmoid, x) == ["cuda"]
assert saved(torch.exp, on_cpu) == ["cpu"]
assert saved(torch.mul, x, factor) == ["cpu"] and saved(torch.mul, x, 2 * x) == ["cuda"] * 2
assert set(saved(torch.nn.functional.linear, x, x, x[0])) == {"cuda"}
assert saved(Exp.apply, x) == ["cuda", "cpu"] and saved(Exp.apply, on_cpu) == ["cpu"] * 2

# The recomputation, where the devices of tensors must be the same, happens in the backward pass.
def layers(x):
    y = Exp.apply(x) * factor * torch.tensor(0.5)
    y = torch.nn.functional.linear(y.tanh(), x, x[0])
    return torch.nn.functional.layer_norm(y.softmax(-1), (3,))

for argument in (x, on_cpu, x * 1):
    layers(argument.detach().requires_grad_()).sum().backward()
    y = checkpoint(layers, argument, use_reentrant=False)
    assert y.is_cuda == argument.is_cuda
    y.sum().backward()
assert x.grad.is_cuda and not on_cpu.grad.is_cuda

with save_on_cpu():
    y = (x * x).exp()
y.sum().backward()
assert not factor.is_cuda and (x * factor).is_cuda and not (on_cpu * factor).is_cuda
print("fine")
"""

THREADS = """
import threading, torch
from concurrent.futures import ThreadPoolExecutor
from torch.utils.data import DataLoader, TensorDataset

x = torch.ones(3, device="cuda")

def work(_=None):
    assert x.is_cuda and (x + 1).is_cuda and torch.zeros(3, device="cuda").is_cuda and not torch.zeros(3).is_cuda
    return x.device

with ThreadPoolExecutor(2) as pool:
    assert list(pool.map(work, range(4))) == [torch.device("cuda:0")] * 4

class Mine(threading.Thread):
    def run(self):
        self.result = work()

thread = Mine()
thread.start()
thread.join()
assert thread.result.type == "cuda"
torch.set_default_device("cuda")
with ThreadPoolExecutor(1) as pool:
    # A default device is one of its thread.
    assert not pool.submit(lambda: torch.ones(2).is_cuda).result()
torch.set_default_device(None)
for options in ({}, {"pin_memory": True}, {"num_workers": 1, "pin_memory": True}):
    for (batch,) in DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, **options):
        assert batch.to("cuda", non_blocking=True).is_cuda
print("fine")
"""

AUTOCAST = """
import torch
from torch.nn import functional as F

a = torch.randn(4, 4, device="cuda")
for dtype in (torch.float16, torch.bfloat16):
    with torch.autocast("cuda", dtype=dtype):
        assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is dtype
        m = a @ a
        linear = torch.nn.Linear(4, 4).cuda()
        conv = torch.nn.Conv2d(1, 2, 3).cuda()(torch.ones(1, 1, 8, 8, device="cuda"))
        lower = [
            m, linear(a), conv, m.relu(), m + 1, F.avg_pool2d(conv, 2), torch.einsum("ij,jk->ik", a, a),
            F.scaled_dot_product_attention(a[None], a[None], a[None]), torch.nn.GRU(4, 4).cuda()(a[None])[0],
            torch.mv(a, a[0]), F.avg_pool3d(m[None, None, None].expand(1, 1, 4, 4, 4), 2),
        ]
        assert [x.dtype for x in lower] == [dtype] * len(lower), [x.dtype for x in lower]
        target = torch.zeros(4, dtype=torch.long, device="cuda")
        full = [
            m.softmax(-1), F.log_softmax(m, -1), m.exp(), m.log(), m**2, m.sum(), m.cumsum(0), m.norm(), m + a,
            F.layer_norm(m, (4,)), F.mse_loss(m, m), F.cross_entropy(m, target), torch.cat([m, a]),
        ]
        assert [x.dtype for x in full] == [torch.float32] * len(full), [x.dtype for x in full]
        assert all(x.is_cuda for x in lower + full)
        # It is no autocast of the CPU.
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
        with torch.autocast("cuda", enabled=False):
            assert (a @ a).dtype is torch.float32
        assert (a @ a).dtype is dtype
    assert (a @ a).dtype is torch.float32 and not torch.is_autocast_enabled("cpu")

@torch.autocast("cuda")
def decorated():
    return (a @ a).dtype

assert decorated() is torch.float16
scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
assert scaler.is_enabled()
model = torch.nn.Linear(4, 4).cuda()
before = model.weight.detach().clone()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with torch.autocast("cuda"):
    loss = model(a).square().mean()
scaled = scaler.scale(loss)
assert scaled.item() == loss.item() * 8
scaled.backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
scaler.update()
assert scaler.get_scale() == 8 and not torch.equal(before, model.weight)
print("fine")
"""

RANDOM = """
import io
import pickle
import torch
from tilewright._cuda_on_cpu import random_state

g = torch.Generator(device="cuda").manual_seed(3)
a = torch.randn(2, device="cuda", generator=g)
assert a.is_cuda and g.device == torch.device("cuda:0") and g.initial_seed() == 3
assert torch.equal(a, torch.randn(2, device="cuda", generator=g.manual_seed(3)))
assert torch.Generator().device.type == "cpu" and type(torch.Generator()) is type(torch.default_generator)
for one in (g, torch.Generator(), torch.default_generator):
    assert isinstance(one, torch.Generator)
assert not isinstance(1, torch.Generator) and torch.cuda.default_generators[0].device.type == "cuda"
default = torch.cuda.default_generators[0]
default.manual_seed(4)
a = torch.randn(2, device="cuda", generator=default)
b = torch.randn(2, device="cuda")
torch.cuda.manual_seed(4)
assert torch.equal(a, torch.randn(2, device="cuda"))
state = torch.cuda.get_rng_state()
assert torch.equal(b, torch.empty(2, device="cuda").normal_(generator=torch.cuda.default_generators[0]))
torch.cuda.set_rng_state(state)
assert torch.equal(b, torch.randn(2, device="cuda", generator=default))
a = torch.randperm(9, generator=torch.manual_seed(2))
assert torch.equal(a, torch.randperm(9, generator=default.manual_seed(2)))
torch.cuda.manual_seed(1)
assert torch.cuda.initial_seed() == 1
a = torch.rand(2, device="cuda")
torch.cuda.manual_seed_all(1)
assert torch.equal(a, torch.rand(2, device="cuda"))
state = torch.cuda.get_rng_state()
a = torch.rand(2, device="cuda")
torch.cuda.set_rng_state(state, "cuda")
assert torch.equal(a, torch.rand(2, device="cuda"))
# As on a GPU, a state is a seed and an offset. Libraries that draw themselves add to the offset.
assert (state.dtype, state.shape) == (torch.uint8, (16,))
seed, offset = state.view(torch.int64).tolist()
assert seed == 1 and offset % 4 == 0
for kept in (state, state.clone(), pickle.loads(pickle.dumps(state))):
    torch.cuda.set_rng_state(kept)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.equal(a, torch.rand(2, device="cuda"))
file = io.BytesIO()
torch.save(state, file)
file.seek(0)
# Another process does not know it, and reads it all the same; but not a copy that has lost the bytes after the 16.
random_state._kept.clear()
random_state._names.clear()
torch.cuda.set_rng_state(torch.load(file))
assert torch.equal(a, torch.rand(2, device="cuda"))
try:
    torch.cuda.set_rng_state(state.clone())
except RuntimeError as error:
    assert "a copy of one that is not known any more" in str(error)
else:
    assert False
for one, by in ((torch.cuda.default_generators[0], None), (g, g)):
    before = one.get_state()
    first = torch.rand(3, device="cuda", generator=by)
    after = one.get_state()
    assert not torch.equal(before, after)
    one.set_state(before)
    assert torch.equal(first, torch.rand(3, device="cuda", generator=by))
    assert torch.equal(one.get_state(), after)
    drawn = after.clone()
    words = drawn.view(torch.int64)
    words[1] += 12
    one.set_state(drawn)
    assert torch.equal(one.get_state(), drawn) and one.get_offset() == words[1]
    assert one.clone_state().get_offset() == words[1]
    numbers = torch.rand(3, device="cuda", generator=by)
    one.set_state(drawn)
    assert torch.equal(numbers, torch.rand(3, device="cuda", generator=by))
    one.manual_seed(5)
    assert one.get_state().view(torch.int64).tolist() == [5, 0]
    one.set_offset(8)
    assert one.get_state().view(torch.int64).tolist() == [5, 8]
    try:
        one.set_state(torch.get_rng_state())
    except RuntimeError as error:
        assert "RNG state is wrong size" in str(error)
    else:
        assert False
    one.set_state(before)
assert torch.get_rng_state().numel() > 16
state = torch.cuda.get_rng_state_all()
with torch.random.fork_rng(devices=[0]):
    torch.rand(2, device="cuda")
assert torch.equal(state[0], torch.cuda.get_rng_state())
print("fine")
"""

CLASSES = """
import numpy as np, torch

a = torch.ones(3, pin_memory=True)
assert a.is_pinned() and a.cuda(non_blocking=True).is_cuda and not torch.ones(3).is_pinned()
b = torch.ones(3)
assert b.pin_memory().is_pinned() and b.pin_memory().data_ptr() != b.data_ptr()
x = torch.ones(3, device="cuda")
assert x.type() == "torch.cuda.FloatTensor" and b.type() == "torch.FloatTensor"
assert b.type("torch.cuda.HalfTensor").type() == "torch.cuda.HalfTensor" and x.type(torch.float16).is_cuda
assert b.type(torch.cuda.FloatTensor).is_cuda and not x.type("torch.FloatTensor").is_cuda
assert torch.cuda.FloatTensor(3).is_cuda and torch.cuda.LongTensor([1, 2]).dtype is torch.int64
assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(b, torch.cuda.FloatTensor)
assert x.untyped_storage().device == x.device and b.untyped_storage().device == b.device
for stream in (torch.Stream(device="cuda"), torch.cuda.ExternalStream(0), torch.accelerator.current_stream()):
    stream.synchronize()
    assert isinstance(stream, torch.Stream) and stream.device == x.device
assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
assert torch.accelerator.current_accelerator().type == "cuda" and torch.accelerator.current_device_index() == 0
torch.accelerator.synchronize()
assert torch.cuda.is_initialized() and torch.cuda.get_arch_list() == ["sm_80"]
torch.cuda.memory_summary(), torch.cuda.memory_stats()["allocated_bytes.all.peak"], torch.cuda.memory_snapshot()
torch.cuda.reset_peak_memory_stats(), torch.cuda.reset_accumulated_memory_stats()
properties = torch.cuda.get_device_properties(0)
assert properties.uuid and properties.name == torch.cuda.get_device_name() and properties.warp_size == 32
assert repr(properties).startswith("_CudaDeviceProperties(name='")

# There is one GPU.
def fails(call):
    try:
        call()
    except (RuntimeError, AssertionError) as error:
        return str(error)
    raise AssertionError("it did not fail")

for call in (
    lambda: torch.ones(2, device="cuda:1"), lambda: b.cuda(1), lambda: b.to("cuda:1"), lambda: b.to(device=1),
    lambda: torch.cuda.set_device(1), lambda: torch.nn.Linear(2, 2).to("cuda:1"), lambda: torch.Generator("cuda:1"),
):
    assert fails(call).startswith("CUDA error: invalid device ordinal")
assert fails(lambda: torch.cuda.get_device_name(1)) == "Invalid device id"
for name in ("current_blas_handle", "cudart"):
    text = fails(getattr(torch.cuda, name))
    assert text.startswith(f"tilewright: torch.cuda.{name} is not available where 'cuda' is the CPU"), text

# One memory and one machine: this works here, and fails on a GPU.
assert x.numpy()[0] == 1 and np.asarray(x)[0] == 1 and (x + b).is_cuda

# But two memories, where programs rely on it.
array = np.zeros(2)
y = torch.as_tensor(array, device="cuda")
y += 1
z = torch.as_tensor(b, device="cuda")
z += 1
assert array[0] == 0 and b[0] == 1 and z.is_cuda and not b.is_cuda
assert not b.copy_(x).is_cuda and x.copy_(b).is_cuda and x.to("meta").device.type == "meta"
print("fine")
"""

COMPILED = """
import copy, io, torch, torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode

x = torch.ones(3, device="cuda")
assert torch.compile(lambda x: x * 2, backend="eager")(x).is_cuda
assert torch.compile(torch.nn.Linear(3, 3).cuda(), backend="eager")(x).is_cuda
with FakeTensorMode():
    torch.zeros(3, device="cuda") + 1
with torch.device("cuda"):
    assert torch.nn.Linear(2, 2).weight.is_cuda
assert torch.nn.Parameter(x).device == x.device
assert copy.deepcopy(torch.nn.Linear(2, 2).cuda()).weight.is_cuda
file = io.BytesIO()
torch.save({"a": x, "b": x.cpu()}, file)
for location, expected in ((None, (True, False)), ("cuda", (True, True)), ({"cuda:0": "cpu"}, (True, False))):
    file.seek(0)
    loaded = torch.load(file, map_location=location)
    assert (loaded["a"].is_cuda, loaded["b"].is_cuda) == expected, location
print("fine")
"""

# Launches out of the mode's sight, in both directions, and a class that is compiled, which stays a class.
COMPILED_KERNELS = """
import torch, triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, 2 * tl.load(x_ptr + cols, mask=cols < n), mask=cols < n)

def doubled(x):
    y = torch.empty_like(x)
    double[(1,)](x, y, x.numel(), 64)
    return y

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return doubled(x)

    @staticmethod
    def backward(ctx, gradient):
        return doubled(gradient)

@torch.compile
class Compiled(Double):
    pass

x = torch.linspace(-1, 1, 50, device="cuda").requires_grad_()
assert isinstance(Compiled, type) and Compiled.apply(x).is_cuda
y = torch.compile(lambda x: Double.apply(x).sin(), backend="aot_eager")(x)
assert y.is_cuda
torch.testing.assert_close(y, (2 * x).sin())
y.sum().backward()
torch.testing.assert_close(x.grad, 2 * (2 * x).cos())
assert x.grad.is_cuda and torch.zeros(3, device="cuda").is_cuda and not torch.zeros(3).is_cuda

class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, first, second):
        assert first.is_cuda and second.is_cuda
        return doubled(first.contiguous()) + doubled(second)

# A gradient that compiled code makes, from a list that torch has emptied when it returns.
x.grad = None
first, second = Two.apply(x)
(first.sum() + torch.compile(lambda y: (y * y).sum(), backend="aot_eager")(second)).backward()
torch.testing.assert_close(x.grad, 2 + 12 * x.detach())
print("fine")
"""

# Autotuners of libraries measure kernels while `torch.compile` compiles a function.
MEASURED_WHILE_COMPILING = """
import torch, triton

def measure():
    driver = triton.runtime.driver.active
    interface, cache = driver.get_device_interface(), driver.get_empty_cache_for_benchmark()
    start, end = (interface.Event(enable_timing=True) for _ in range(2))
    start.record()
    driver.clear_cache(cache)
    end.record()
    interface.synchronize()
    assert start.elapsed_time(end) > 0 and start.query()
    return cache.device.type

measured = []

def backend(graph, inputs):
    measured.append(measure())
    return graph.forward

x = torch.ones(3, device="cuda")
assert measure() == "cuda"
assert torch.compile(lambda x: x + 1, backend=backend)(x).is_cuda
assert measured == ["cpu"] and measure() == "cuda"
# Inductor chooses this driver when it compiles a kernel for the CPU.
triton.runtime.driver.set_active(triton.backends.backends["cpu"].driver())
assert measure() == "cpu"
assert triton.runtime.driver.active.get_device_interface().current_device() == torch.cpu.current_device()
print("fine")
"""

CASES = [
    AUTOGRAD,
    SAVED_TENSORS,
    THREADS,
    AUTOCAST,
    RANDOM,
    CLASSES,
    COMPILED,
    COMPILED_KERNELS,
    MEASURED_WHILE_COMPILING,
]


@pytest.mark.parametrize("text", CASES)
def test_programs_find_what_a_gpu_gives(run_forked, script, text):
    done = run_forked("-m", "tilewright", "run", script(text))
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)


@pytest.mark.parametrize("order", ["tilewright, torch", "torch, tilewright"])
def test_without_the_command_a_function_does_it(run, script, order):
    path = script(
        f"""
        import {order}
        tilewright.install_as_triton()
        tilewright.use_cpu_as_cuda()
        tilewright.use_cpu_as_cuda()
        assert torch.ones(2, device="cuda").is_cuda and torch.cuda.is_available()
        print("fine")
        """
    )
    done = run(path)
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)


def test_tracebacks_have_no_frames_of_ours(run, script):
    text = """
    import torch

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return 1 / 0

    F.apply(torch.ones(3, device="cpu" , requires_grad=True)).sum().backward()
    """
    path = script(text)
    direct = run(path)
    path.write_text(path.read_text().replace('"cpu" ', '"cuda"'))
    ours = run("-m", "tilewright", "run", path)
    assert ours.err == NOTICE + direct.err.replace('"cpu" ', '"cuda"')
