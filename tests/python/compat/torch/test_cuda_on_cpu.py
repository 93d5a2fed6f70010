"""Programs that say ``cuda`` on a machine without a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

NOTICE = (
    "tilewright: this machine has no CUDA device: what the program puts on 'cuda' is on the CPU "
    "(`tilewright run --device cuda` refuses that)\n"
)

MOVES = """
import torch, triton
a = torch.arange(4.0)
assert not a.is_cuda and a.is_cpu and a.device == torch.device("cpu")
for b in (a.cuda(), a.to("cuda"), a.to(torch.device("cuda:0")), a.to(device="cuda"), a.cuda(0), a.to(0)):
    assert b.is_cuda and not b.is_cpu and b.device == torch.device("cuda:0") and b.get_device() == 0
    assert b.data_ptr() != a.data_ptr() and torch.equal(a, b)
    assert f"{b.device} {b.device.type} {b.device.index}" == "cuda:0 cuda 0"
    # Results are on the device of their operands.
    made = (torch.empty_like(b), b.new_zeros(2), torch.cat([b, b]), b.split(2)[0])
    for c in (b + 1, b[1:], b.clone(), b.view(2, 2), *made):
        assert c.is_cuda, c
    assert b.cuda() is b and b.to("cuda") is b and b.to(torch.float64).is_cuda
    d = b.cpu()
    assert not d.is_cuda and d.data_ptr() != b.data_ptr() and d.device.type == "cpu"
    b += 5
    assert d[0] == 0 and a[0] == 0 and b.cpu().numpy()[0] == 5
    assert a.to(b).is_cuda and not b.to(a).is_cuda
    assert torch.zeros(3, device=b.device).is_cuda and not torch.zeros(3, device=a.device).is_cuda
    assert repr(b) == "tensor([5., 6., 7., 8.])"
for x in (
    torch.rand(3, device="cuda"), torch.tensor([1], device="cuda"), torch.randint(0, 3, (2,), device="cuda:0"),
    torch.empty(2, 2, dtype=torch.float16, device=torch.device("cuda")), torch.ones(2, device=0),
    torch.zeros(2, device="cuda", pin_memory=False), torch.full((2,), 3, device="cuda"),
):
    assert x.is_cuda
with torch.device("cuda"):
    assert torch.ones(2).is_cuda
torch.set_default_device("cuda")
assert torch.ones(2).is_cuda and torch.tensor([1]).is_cuda
torch.set_default_device("cpu")
assert not torch.ones(2).is_cuda

model = torch.nn.Linear(3, 2).cuda()
assert next(model.parameters()).is_cuda
y = model(torch.ones(1, 3, device="cuda"))
assert y.is_cuda
y.sum().backward()
assert model.weight.grad is not None
import copy, io
assert torch.nn.Parameter(torch.ones(2, device="cuda")).is_cuda and torch.nn.Parameter(torch.ones(2)).is_cpu
assert copy.deepcopy(model.weight).is_cuda and copy.deepcopy(a).is_cpu
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
assert torch.load(file, map_location="cuda")["weight"].is_cuda
file.seek(0)
assert not torch.load(file, map_location="cpu")["weight"].is_cuda
model = model.to("cpu")
assert not next(model.parameters()).is_cuda
print("fine")
"""

FUNCTIONS = """
import torch, triton
assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
torch.cuda.synchronize()
torch.cuda.set_device(0)
torch.cuda.empty_cache()
torch.cuda.manual_seed(0)
torch.cuda.manual_seed_all(0)
properties = torch.cuda.get_device_properties(torch.device("cuda"))
assert properties.multi_processor_count >= 1 and properties.total_memory > 0
assert torch.cuda.get_device_capability() == (8, 0) and torch.cuda.get_device_name()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) >= 0
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    x = torch.ones(3, device="cuda")
stream.wait_stream(torch.cuda.current_stream())
assert torch._C._cuda_getCurrentRawStream(0) == 0
stream.synchronize()
with torch.cuda.device(0):
    pass
DEVICE = triton.runtime.driver.active.get_active_torch_device()
assert torch.rand(3, device=DEVICE).device == DEVICE == x.device
assert triton.runtime.driver.active.get_device_interface() is torch.cuda
properties = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
assert {"multiprocessor_count", "max_num_regs", "max_shared_mem", "warpSize"} <= set(properties)
print("fine")
"""

LAUNCH = """
import torch, triton, triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

x = torch.arange(5, dtype=torch.float32).cuda()
assert x.is_cuda
y = torch.empty_like(x)
double[(1,)](x, y, 5, BLOCK=8)
torch.cuda.synchronize()
double[(1,)](y, triton.reinterpret(y, tl.float32), 5, BLOCK=8)
print(y.cpu().tolist())
"""


@pytest.mark.parametrize("text", [MOVES, FUNCTIONS])
def test_programs_find_what_a_gpu_gives(run, script, text):
    done = run("-m", "tilewright", "run", script(text))
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)


CAPABILITY = """
import torch, triton
found = torch.cuda.get_device_capability(), torch.cuda.get_device_capability(torch.device("cuda:0"))
properties = torch.cuda.get_device_properties(0)
assert isinstance(properties, torch.cuda._CudaDeviceProperties)
print(*found, (properties.major, properties.minor), torch.cuda.get_arch_list())
try:
    torch.cuda.get_device_capability(1)
except AssertionError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("device", "capability"),
    [("cpu", (8, 0)), ("sim:sm_75", (7, 5)), ("sim:sm_90", (9, 0)), ("sim:sm_120", (12, 0))],
)
def test_the_compute_capability_is_that_of_the_simulated_gpu(run_forked, script, device, capability):
    """Libraries choose their kernels by it, and a simulated GPU runs what its architecture has."""
    done = run_forked("-m", "tilewright", "run", script(CAPABILITY), env={"TILEWRIGHT_DEVICE": device})
    architecture = "sm_{}{}".format(*capability)
    expected = f"{capability} {capability} {capability} ['{architecture}']\nInvalid device id\n"
    assert (done.code, done.out) == (0, expected), done.err


TARGET = """
import sys, torch, triton, triton.language as tl
from triton.backends import backends
from triton.compiler import ASTSource
from triton.language import target_info
from triton.runtime import driver

@triton.jit
def ask(out_ptr, value: tl.constexpr):
    tl.store(out_ptr, target_info.is_cuda())
    tl.store(out_ptr + 1, target_info.cuda_capability_geq(8, 0))
    tl.store(out_ptr + 2, value)

active = driver.active
target, (major, minor) = active.get_current_target(), torch.cuda.get_device_capability()
print(target, active.get_device_capability() == active.utils.get_device_capability() == (major, minor))
assert target_info.is_cuda() and target_info.cuda_capability_geq(major, minor)
assert not target_info.cuda_capability_geq(major, minor + 1)
assert [name for name, backend in backends.items() if name != "cpu" and backend.driver.is_active()] == ["nvidia"]
properties = torch.cuda.get_device_properties()
print(properties.multi_processor_count, properties.gcnArchName == properties.name)
assert active.utils.get_device_properties(0)["multiprocessor_count"] == properties.multi_processor_count
out = torch.zeros(3, dtype=torch.int32, device="cuda")
ask[(1,)](out, 1)
print(out.tolist())
# A kernel that is compiled for the driver's target can be launched.
compiled = triton.compile(ASTSource(ask, {"out_ptr": "*i32", "value": "constexpr"}, {"value": 2}), target=target)
assert ".target sm_" in compiled.asm["ptx"] and compiled.metadata.target == target
compiled[(1,)](out)
print(out.tolist())
"""


@pytest.mark.parametrize(
    ("device", "arch", "multiprocessors"), [("cpu", 80, 108), ("sim:sm_75", 75, 40), ("sim:sm_90", 90, 132)]
)
def test_the_target_is_the_gpu_whose_capability_torch_says(run_forked, script, device, arch, multiprocessors):
    """The data sheets of A100, T4 and H100 say how many multiprocessors they have."""
    done = run_forked("-m", "tilewright", "run", "--device", device, script(TARGET))
    is_new = int(arch >= 80)
    expected = f"""\
GPUTarget(backend='cuda', arch={arch}, warp_size=32) True
{multiprocessors} True
[1, {is_new}, 1]
[1, {is_new}, 2]
"""
    assert (done.code, done.out) == (0, expected), done.err


FAKES = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx, snapshot_fake

cuda = torch.device("cuda", 0)
real = torch.ones(3, device="cuda")
fakes = FakeTensorMode(allow_non_fake_inputs=True)
fake = fakes.from_tensor(real)
with fakes:
    made = torch.empty(3, 4, device="cuda")
    with torch.device("cuda"):
        layer = torch.nn.Linear(4, 2)
    for one in (made, made + 1, made.detach(), made.cuda(), layer(made), real + 1, real.cpu().cuda(), fake * real):
        assert type(one).__name__ == "FakeTensor" and one.device == cuda and one.is_cuda and not one.is_cpu, one
    assert made.cpu().device.type == made.to("cpu").device.type == "cpu"
for one in (fake, fake.detach(), snapshot_fake(fake), made.detach(), snapshot_fake(made), fake.clone()):
    assert one.device == cuda and one.is_cuda and one.get_device() == 0, one
# Real tensors are not changed by it.
assert real.is_cuda and (real + 1).is_cuda and torch.ones(3).is_cpu

def function(a, b):
    return (a * b + 1 + torch.zeros(3, device="cuda")).sum()

for mode in ("real", "fake", "symbolic"):
    with torch.device("cuda"):
        traced = make_fx(function, tracing_mode=mode)(torch.ones(3), torch.ones(3))
        result = traced(torch.full((3,), 2.0), torch.ones(3))
    assert result.is_cuda and result.item() == 9, mode
print("fine")
"""


def test_fake_tensors_are_on_the_device_that_they_say(run_forked, script):
    done = run_forked("-m", "tilewright", "run", script(FAKES))
    assert (done.code, done.out) == (0, "fine\n"), done.err


GENERATED = """
import torch, triton, triton.language as tl
from torch._C import _cuda_getCurrentRawStream as get_raw_stream

guards = torch._C._dynamo.guards

@triton.jit
def double(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at))

x = torch.arange(8.0, device="cuda", requires_grad=True)
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    guards.assert_size_stride(x, (8,), (1,))
    part = guards._reinterpret_tensor(x[1:], (2, 2), (2, 1), 3)
    assert part.is_cuda and part.data_ptr() == x.data_ptr() + 16 and not part.requires_grad
    out = guards._empty_strided_cuda((2, 2), (1, 2), torch.float32)
    assert out.is_cuda and out.stride() == (1, 2)
    double[(1,)](part, out, 4)
    assert get_raw_stream(0) == 0
print(out.tolist(), guards._reinterpret_tensor(x.detach().cpu(), (2,), (3,), 1))
try:
    torch.cuda._DeviceGuard(1).__enter__()
except RuntimeError as error:
    print(error)
"""


def test_programs_that_torch_compile_wrote_run(run_forked, script):
    done = run_forked("-m", "tilewright", "run", script(GENERATED))
    expected = "[[8.0, 12.0], [10.0, 14.0]] tensor([1., 4.])\nCUDA error: invalid device ordinal\n"
    assert (done.code, done.out, done.err) == (0, expected, NOTICE)


HAS_TRITON = """
from torch.utils._triton import has_triton, has_triton_package
import torch.utils._triton as module, torch._dynamo.utils

assert has_triton_package() and has_triton() and has_triton(include_cpu=True) and module.has_triton()
# Torch itself hears that there is no GPU, whoever asked before.
has_triton.cache_clear()
assert eval("has_triton()", vars(torch._dynamo.utils)) is False
with torch._inductor.config.patch(triton_disable_device_detection=True):
    assert not has_triton()
assert has_triton()
compiled = torch.compile(lambda x: torch.softmax(x.exp(), 0) + x.sum(), backend="aot_eager")
x = torch.linspace(0, 1, 7, device="cuda")
torch.testing.assert_close(compiled(x), torch.softmax(x.exp(), 0) + x.sum())
assert compiled(x).is_cuda and has_triton() and eval("has_triton()", vars(torch._dynamo.utils)) is False
print("fine")
"""


def test_libraries_hear_that_there_is_triton(run, script, tmp_path):
    done = run("-m", "tilewright", "run", script(HAS_TRITON), env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)


def test_without_tilewright_as_triton_torch_answers(run, script):
    """The answer is torch's where a program says ``cuda`` and its Triton is not tilewright."""
    text = (
        "import sys, tilewright\n"
        "tilewright.use_cpu_as_cuda()\n"
        "sys.modules['triton'] = None\n"
        "from torch.utils._triton import has_triton, has_triton_package\n"
        "print(has_triton_package(), has_triton())\n"
    )
    done = run("-c", text)
    assert (done.code, done.out) == (0, "False False\n"), done.err


def test_kernels_run(run_forked, script):
    done = run_forked("-m", "tilewright", "run", script(LAUNCH))
    assert (done.code, done.out, done.err) == (0, "[0.0, 4.0, 8.0, 12.0, 16.0]\n", NOTICE)


TWO_DEVICES = """
import torch, triton, triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets))

on_cpu, on_cuda = torch.ones(4), torch.ones(4, device="cuda")
out = torch.zeros_like(on_cuda)
for y in (on_cpu, torch.nn.Parameter(on_cpu), on_cpu[:]):
    try:
        add[(1,)](on_cuda, y, out, BLOCK=4)
    except ValueError as error:
        assert isinstance(error, triton.TritonError) and error.code == "TW0106"
        [finding] = error.diagnostics
        assert finding.message == (
            "kernel 'add' gets tensors on two devices: 'x_ptr', 'out_ptr' on 'cuda:0', 'y_ptr' on 'cpu'"
        ), finding.message
        assert "`.to('cuda')`" in finding.hint
    else:
        raise AssertionError
assert out.tolist() == [0.0] * 4
# A GPU reads memory that is pinned; and all on one device is no mixture.
add[(1,)](on_cuda, torch.ones(8).pin_memory()[4:], out, BLOCK=4)
assert out.tolist() == [2.0] * 4
add[(1,)](on_cpu, on_cpu, torch.empty(4), BLOCK=4)
add.warmup(on_cuda, on_cpu, out, BLOCK=4, grid=(1,))


@triton.jit
def double(x_ptr, sum_ptr, out_ptr, BLOCK: tl.constexpr, WITH_SUM: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    if WITH_SUM:
        tl.store(sum_ptr, tl.sum(x))
    tl.store(out_ptr + offsets, 2 * x)


# A tensor without elements, which programs pass for an unused result, has a null pointer, which is on no device.
double[(1,)](on_cuda, torch.empty(0), out, BLOCK=4, WITH_SUM=False)
assert out.tolist() == [2.0] * 4 and out.is_cuda
print("fine")
"""


def test_a_launch_with_tensors_of_two_devices_is_refused(run_forked, script):
    done = run_forked("-m", "tilewright", "run", script(TWO_DEVICES))
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)


HISTOGRAMS = """
import torch

numbers = torch.tensor([0, 1, 1, 3, 4, 4, 4], device="cuda")
for counts in (torch.histc(numbers, bins=5, min=0, max=4), numbers.histc(5, min=0, max=4)):
    assert counts.tolist() == [1, 2, 0, 1, 3] and counts.dtype == torch.int64 and counts.is_cuda
counts = numbers.float().histc(bins=5)
assert counts.tolist() == [1.0, 2.0, 0.0, 1.0, 3.0] and counts.is_cuda
try:
    numbers.cpu().histc(bins=5)
except NotImplementedError:
    print("fine")
"""


def test_integers_on_cuda_have_a_histogram(run_forked, script):
    # A GPU has one of integers, and torch on a CPU only of floats.
    done = run_forked("-m", "tilewright", "run", script(HISTOGRAMS))
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)


OPERATORS = """
import torch
import torch._inductor.inductor_prims

cuda = torch.device("cuda")
seeds = torch.ops.prims.inductor_seeds(3, cuda)
assert seeds.shape == (3,) and seeds.is_cuda
assert torch.ops.prims.inductor_seeds.default(3, cuda).is_cuda
host = torch.ones(3)
moved = torch.ops.aten.to.device(host, cuda, torch.float32)
assert moved.is_cuda and not host.is_cuda and moved.data_ptr() != host.data_ptr()
back = torch.ops.aten.to.device(moved, torch.device("cpu"), torch.float32)
assert moved.is_cuda and not back.is_cuda and back.tolist() == [1.0, 1.0, 1.0]
assert not torch.ops.prims.inductor_seeds(3, torch.device("cpu")).is_cuda
print("fine")
"""


def test_operators_take_the_device_by_its_place(run_forked, script):
    done = run_forked("-m", "tilewright", "run", script(OPERATORS))
    assert (done.code, done.out, done.err) == (0, "fine\n", NOTICE)


def test_programs_that_do_not_say_cuda_hear_nothing(run, script):
    done = run("-m", "tilewright", "run", script("import torch\nprint(torch.ones(2) + 1)\n"))
    assert (done.code, done.out, done.err) == (0, "tensor([2., 2.])\n", "")


def test_nothing_happens_without_the_command(run, script):
    path = script(
        "import tilewright, torch\nprint(torch.cuda.is_available())\ntorch.ones(2, device='cuda')\n"
    )
    done = run(path)
    assert done.code == 1
    assert done.out == "False\n"
    assert NOTICE not in done.err


BETWEEN_PROCESSES = """
import torch
from multiprocessing.reduction import ForkingPickler

for x in (torch.arange(3.0), torch.arange(3.0, device="cuda"), torch.nn.Parameter(torch.ones(3, device="cuda"))):
    y = ForkingPickler.loads(ForkingPickler.dumps(x))
    assert y.device == x.device and torch.equal(x, y) and type(y) is type(x), (x, y)
print("fine")
"""


def test_what_is_sent_to_another_process_stays_on_its_device(run, script):
    done = run("-m", "tilewright", "run", script(BETWEEN_PROCESSES))
    assert (done.code, done.out) == (0, "fine\n"), done.err


PADDED = """
import sys, warnings, numpy as np, torch, triton, triton.language as tl

@triton.jit
def run(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at))

@triton.jit
def fused(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2 + 1)

@triton.jit
def block(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < N, other=-2))

@triton.jit
def gathered(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, 16)
    last = tl.load(out_ptr + 1000).to(tl.int32)
    picked = tl.where(at == 5, N, at + last)
    tl.store(out_ptr + at, tl.load(x_ptr + picked, mask=at != 3, other=-2))

@triton.jit
def one(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.load(x_ptr + N))

@triton.jit
def atomic(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.atomic_load(x_ptr + N))

@triton.jit
def put(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(x_ptr + N, 1.0)

@triton.jit
def add(x_ptr, out_ptr, N: tl.constexpr):
    tl.atomic_add(x_ptr + N, 1.0)

x = torch.arange(1.0, 101.0, device="cuda")
padded = np.concatenate([np.arange(1.0, 101.0), np.zeros(28)])
cases = [
    (run, 128, padded),
    (run, 128, padded),
    (fused, 128, 2 * padded + 1),
    (block, 128, padded),
    (block, 112, np.where(np.arange(128) < 112, padded, -2)),
    (gathered, 127, np.where(np.arange(16) == 5, 0, np.where(np.arange(16) == 3, -2, padded[:16]))),
    (one, 100, padded[100:101]),
    (one, 127, padded[127:]),
    (atomic, 110, padded[110:111]),
    (one, -1, None),
    (gathered, -1, None),
    (put, 100, None),
    (add, 100, None),
]
# Other tests check accesses beyond the padding: on a simulated GPU they may reach another tensor.
if sys.argv[1] == "cpu":
    cases += [(run, 256, None), (one, 128, None), (gathered, 128, None), (block, 128, None, x[1:])]
for kernel, n, expected, *other in cases:
    # So large that it is far from the others.
    out = torch.zeros(1 << 17, device="cuda")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            kernel[(1,)](*(other or [x]), out, n)
        except IndexError as error:
            print(kernel.__name__, n, error.code)
            continue
    lines = [str(warning.message).splitlines()[0] for warning in told]
    assert all("tl.load" in str(warning.message) or "tl.atomic_load" in str(warning.message) for warning in told)
    found = out[: len(expected)].cpu().numpy() if expected is not None else None
    print(kernel.__name__, n, expected is not None and bool((found == expected).all()), lines)
# A view ends where its storage does.
out = torch.zeros(1 << 17, device="cuda")
with warnings.catch_warnings():
    warnings.simplefilter("error")
    one[(1,)](x[:50], out, 60)
    assert out[0] == 61
"""

TOLD = "['warning[TW0201]: load out of bounds of `x_ptr`']"


@pytest.mark.parametrize(
    ("device", "mode"), [("cpu", "0"), ("sim:sm_90", "0"), ("sim:sm_75", "0"), ("cpu", "1")]
)
def test_loads_may_end_in_the_padding_of_a_gpu(run_forked, script, device, mode):
    """They give 0, and each line is told of once; all else that leaves a tensor is an error."""
    path = script(PADDED)
    kind = "sim" if device != "cpu" else "cpu"
    done = run_forked(
        "-m", "tilewright", "run", "--device", device, path, kind, env={"TRITON_INTERPRET": mode}
    )
    expected = f"""\
run 128 True {TOLD}
run 128 True []
fused 128 True {TOLD}
block 128 True {TOLD}
block 112 True []
gathered 127 True {TOLD}
one 100 True {TOLD}
one 127 True []
atomic 110 True {TOLD}
one -1 TW0201
gathered -1 TW0201
put 100 TW0201
add 100 TW0201
"""
    beyond = "run 256 TW0201\none 128 TW0201\ngathered 128 TW0201\nblock 128 TW0201\n"
    assert (done.code, done.out) == (0, expected + beyond * (kind == "cpu")), done.err


@pytest.mark.parametrize("device", ["cpu", "sim:sm_90"])
def test_strict_runs_refuse_loads_from_padding(run_forked, script, device):
    path = script(PADDED)
    command = ["-m", "tilewright", "run", "--device", device]
    for done in (
        run_forked(*command, "--strict", path, "sim"),
        run_forked(*command, path, "sim", env={"TILEWRIGHT_STRICT": "1"}),
        run_forked(*command, "--sanitize=bounds", path, "sim"),
    ):
        lines = done.out.splitlines()
        assert len(lines) == 13, done.err
        assert all(line.endswith(" TW0201") for line in lines), done.out


GRAPHS = """
import torch, triton, triton.language as tl

@triton.jit
def add(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + n)

x, out, count = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda"), torch.zeros(1, device="cuda")
layer, given = torch.nn.Linear(8, 4).cuda(), torch.zeros(2, 8, device="cuda")
graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
assert torch.cuda.CUDAGraph is torch.cuda.graphs.CUDAGraph and isinstance(graph, torch.cuda.CUDAGraph)
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    count += 1
    doubled = x * 2
    add[(1,)](doubled, out, 5, 8)
    total = torch.cat([out[:2], doubled[:2]]).sum()
    part = out.view(2, 4)[1]
with torch.cuda.graph(other, pool=graph.pool()):
    result = layer(given)
assert not torch.cuda.is_current_stream_capturing()
# A capture writes nothing.
print(out.tolist(), count.item(), total.is_cuda)
for start in (0.0, 10.0):
    x.copy_(torch.arange(start, start + 8))
    graph.replay()
    want = 2 * torch.arange(start, start + 8)
    assert torch.equal(doubled.cpu(), want) and torch.equal(out.cpu(), want + 5)
    assert torch.equal(part.cpu(), want[4:] + 5)
    assert total.item() == (want[:2].sum() * 2 + 10).item()
print(count.item())
given.copy_(torch.randn(2, 8))
other.replay()
assert torch.equal(result, layer(given))
compiled = torch.compile(lambda a: a + 1, backend="eager")
compiled(x)
for act in (lambda: x.sum().item(), lambda: compiled(x)):
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            act()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
add[(1,)](x, out, 1, 8)
print(out[0].item(), x.sum().item())
"""


@pytest.mark.parametrize(("device", "mode"), [("cpu", "0"), ("sim:sm_90", "0"), ("cpu", "1")])
def test_graphs_are_captured_and_replayed(run_forked, script, device, mode):
    command = ["-m", "tilewright", "run", "--device", device, script(GRAPHS)]
    done = run_forked(*command, env={"TRITON_INTERPRET": mode})
    expected = f"""\
{[0.0] * 8} 0.0 True
2.0
CUDA error: operation not permitted when stream is capturing: the program reads a value of a tensor
error[TW0117]: a capture into a torch.cuda.CUDAGraph of code that torch.compile has compiled is not available \
where 'cuda' is the CPU
11.0 108.0
"""
    assert (done.code, done.out) == (0, expected), done.err
