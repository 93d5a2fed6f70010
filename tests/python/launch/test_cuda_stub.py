"""The path of a launch to the CUDA driver, with a stand-in for its library that remembers launches and runs nothing."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import ctypes
import os

import tilewright as triton
import tilewright.language as tl
from tilewright.runtime import driver

stub = ctypes.CDLL(os.environ["TILEWRIGHT_LIBCUDA"])

def launches():
    buffer = ctypes.create_string_buffer(1 << 16)
    length = stub.tilewright_stub_take_launches(buffer, len(buffer))
    return buffer.raw[:length].decode().splitlines()

class Array:
    def __init__(self, address, typestr="<f4"):
        self.__cuda_array_interface__ = dict(data=(address, False), typestr=typestr, shape=(100,), version=3)

class Tensor:
    dtype = tl.float32
    device = "cuda:0"

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address

@triton.jit
def scale(x_ptr, out_ptr, factor, is_on, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(is_on, x * factor, x), mask=mask)
"""


@pytest.fixture
def program(run, stub, tmp_path):
    """Runs lines after ``PROGRAM`` on a machine as the stub's words describe it."""

    def start(lines: str, words: str = "record=1", **variables: str):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + lines)
        machine = {"TILEWRIGHT_LIBCUDA": str(stub), "TILEWRIGHT_STUB_CUDA": words}
        return run(path, env={"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), **machine, **variables})

    return start


def test_a_launch_arrives_as_it_was_asked_for(program):
    done = program(
        """
x, out = Array(0x10_0000), Tensor(0x20_0000)
handle = scale[(3, 2)](x, out, 1.5, True, 77, BLOCK=256, num_warps=8, stream=0xabc0)
handle[(1,)](x, out, 1.5, False, 78)
handle[(1,)](x, out, 1.5, False, 79, 256, stream=7)
scale[(0,)](x, out, 1.5, True, 77, BLOCK=256)
print("\\n".join(launches()))
print(handle.n_regs, handle.n_spills, handle.n_max_threads, handle.metadata.shared, handle.metadata.num_warps)
print(handle.metadata.target, list(handle.asm), ".target sm_90a" in handle.asm["ptx"], handle.asm["cubin"][:4])
"""
    )
    # Two addresses, the number 1.5, a byte for the bool, and an int.
    addresses = "00001000000000000000200000000000"
    assert done.out.splitlines() == [
        "scale grid=[3, 2, 1] block=[256, 1, 1] shared=0 stream=0xabc0 context=0x1000 attributes=[] "
        f"parameters={addresses}0000c03f010000004d000000",
        "scale grid=[1, 1, 1] block=[256, 1, 1] shared=0 stream=0x0 context=0x1000 attributes=[] "
        f"parameters={addresses}0000c03f000000004e000000",
        "scale grid=[1, 1, 1] block=[256, 1, 1] shared=0 stream=0x7 context=0x1000 attributes=[] "
        f"parameters={addresses}0000c03f000000004f000000",
        "32 0 1024 0 8",
        "GPUTarget(backend='cuda', arch=90, warp_size=32) "
        "['ast', 'ir', 'opt', 'gpu', 'ptx', 'cubin'] True b'\\x7fELF'",
    ], done.err


def test_tensor_maps_are_made_of_the_arguments(program):
    done = program(
        """
@triton.jit
def multiply(a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, B: tl.constexpr):
    rows, columns, ks = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B), tl.arange(0, B)
    c = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        a = tl.load(a_ptr + rows[:, None] * sam + (k + ks)[None, :], mask=(rows < M)[:, None] & (k + ks < K)[None, :])
        b = tl.load(b_ptr + (k + ks)[:, None] * sbk + columns[None, :], mask=(columns < N)[None, :])
        c = tl.dot(a, b, c)
    tl.store(c_ptr + rows[:, None] * B + columns[None, :], c)

def launch(a, sam):
    multiply[(1,)](Tensor(a), Tensor(0x20_0000), Tensor(0x30_0000), 100, 48, 96, sam, 64, B=32)
    data = bytes.fromhex(launches()[0].rpartition("=")[2])
    words = [int.from_bytes(data[place:place + 8], "little") for place in range(0, len(data) // 8 * 8, 8)]
    start = words.index(a if sam > 0 else 0x20_0000, 2)
    maps = [words[place:place + 16] for place in range(start, len(words) - 15, 16)]
    assert (0x210 + 8 * start) % 64 == 0
    for address, element, rank, *rest in maps:
        shape, strides, block, swizzle = rest[:2], rest[5:6], rest[9], rest[12]
        print(hex(address), element, rank, shape, strides, [block & 0xffff_ffff, block >> 32], swizzle)
    print(len(data))

launch(0x10_0000, 128)
launch(0x11_0000, 256)
launch(0x10_0000, 128)
# Rows that go backwards are no tensor of a map: the others are.
launch(0x10_0000, -128)
launch(0x10_0000, 128)
# The context of the driver is a matter of the thread, and a new one has none.
from threading import Thread
(thread := Thread(target=launch, args=(0x11_0000, 512))).start()
thread.join()
"""
    )
    b = "0x200000 7 2 [48, 2147483647] [256] [32, 32] 3"
    c = "0x300000 7 2 [2147483647, 2147483647] [128] [32, 32] 3"
    first = f"0x100000 7 2 [96, 100] [512] [32, 32] 3\n{b}\n{c}\n432"
    second = f"0x110000 7 2 [96, 100] [1024] [32, 32] 3\n{b}\n{c}\n432"
    third = second.replace("[1024]", "[2048]")
    expected = [first, second, first, f"{b}\n{c}\n304", first, third]
    assert done.out.splitlines() == "\n".join(expected).splitlines(), (done.out, done.err)


FORMS = """
@triton.jit
def multiply(a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    c = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        depth = k * BK + ks
        a = tl.load(a_ptr + (rows % M)[:, None] * sam + depth[None, :], mask=(depth < K)[None, :], other=0.0)
        b = tl.load(b_ptr + depth[:, None] * sbk + (columns % N)[None, :], mask=(depth < K)[:, None], other=0.0)
        c = tl.dot(a, b, c)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c_ptr + rows[:, None] * scm + columns[None, :], c.to(c_ptr.dtype.element_ty), mask=inside)

class Half(Tensor):
    dtype = tl.float16

def launch(N, sam, sbk):
    tensors = [Half(place << 20) for place in (1, 2, 3)]
    numbers = 1000, N, 200, sam, sbk, 272
    multiply[(8, 2)](*tensors, *numbers, 128, 256, 64, num_warps=8)
    line, = launches()
    # After three pointers and six numbers come the maps and the flag that blocks are in pairs.
    data = bytes.fromhex(line.rpartition("=")[2])
    words = [int.from_bytes(data[place:place + 8], "little") for place in range(0, len(data) // 8 * 8, 8)]
    bases = [words[place] >> 20 for place in range(6, len(words) - 15) if words[place] in (1 << 20, 2 << 20, 3 << 20)]
    print("maps of", bases, "in clusters:", "[2, 1, 1]" in line)
"""


def test_loads_have_tensor_maps_where_stores_have_none(program):
    lines = """
launch(264, 200, 264)
launch(259, 200, 264)
launch(264, 201, 264)
launch(259, 200, 265)
launch(259, 201, 265)
launch(259, 200, 272)
launch(264, 200, 264)
"""
    expected = [
        "maps of [1, 2, 3] in clusters: True",
        # Rows of C end within 16 bytes: those of A and B begin inside of sectors as before.
        "maps of [1, 2] in clusters: True",
        "maps of [2, 3] in clusters: True",
        # A tile of A is too small to be shared.
        "maps of [1] in clusters: False",
        "maps of [] in clusters: False",
        "maps of [1, 2] in clusters: True",
        "maps of [1, 2, 3] in clusters: True",
    ]
    assert (first := program(FORMS + lines)).out.splitlines() == expected, first.err
    # Every form is in the cache on disk: a second process has no need of an assembler.
    again = program(FORMS + lines, "record=1,fail=cuLinkAddData_v2:218")
    assert again.out.splitlines() == expected, again.err
    # One that the first has not assembled is not found.
    other = program(FORMS + "launch(264, 200, 265)", "record=1,fail=cuLinkAddData_v2:218")
    assert "the driver's assembler refuses the PTX" in other.err, other.out


def test_a_profile_names_the_form(profiled):
    lines = """
for N in (264, 259, 259):
    tensors = [Half(place << 20) for place in (1, 2, 3)]
    multiply[(8, 2)](*tensors, 1000, N, 200, 200, 264, 272, 128, 256, 64, num_warps=8)
"""
    _, data = profiled(FORMS + lines, "records=3")
    forms = [data["kernels"][launch["kernel"]]["form"] for launch in data["launches"]]
    assert forms[0].endswith("BK=64)")
    assert forms[1:] == [f"{forms[0]} without tensor copies to c_ptr (its rows end within 16 bytes)"] * 2


def test_a_cache_that_cannot_be_used_is_one_line(program, tmp_path):
    (tmp_path / "file").write_text("")
    done = program(
        """
for factor in (1, 2.5):
    scale[(1,)](Tensor(0x10_0000), Tensor(0x20_0000), factor, True, 77, BLOCK=256)
print(len(launches()))
""",
        TILEWRIGHT_CACHE_DIR=str(tmp_path / "file"),
    )
    assert done.out == "2\n", done.err
    assert done.err.startswith("tilewright: the kernel cache cannot be used: "), done.err
    assert len(done.err.splitlines()) == 1


def test_the_driver_is_what_programs_ask(program):
    done = program(
        """
active = driver.active
print(active.get_current_target(), active.get_current_device(), active.get_current_stream(0))
print(active.get_device_capability(), active.utils.get_device_properties(1)["multiprocessor_count"])
active.set_current_device(1)
print(active.get_current_device(), active.utils.is_stream_capturing(0))
""",
        "devices=2,capability=8.0,capturing=1",
    )
    assert done.out.splitlines() == [
        "GPUTarget(backend='cuda', arch=80, warp_size=32) 0 0",
        "(8, 0) 132",
        "1 True",
    ], done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "devices=0",
            "the NVIDIA driver (CUDA 12.8) finds no GPU: there is none, or CUDA_VISIBLE_DEVICES hides it",
        ),
        (
            "version=11040",
            "the NVIDIA driver is too old: it supports CUDA 11.4, and CUDA 11.8 is needed; update the driver",
        ),
        (
            "capability=7.0",
            "GPU 0 (Stub GPU) has compute capability 7.0 (sm_70); 7.5 (sm_75) or newer is needed",
        ),
        (
            "fail=cuInit:803",
            "the NVIDIA driver (CUDA 12.8) does not start: cuInit returns CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): "
            "system has unsupported display driver / cuda driver combination; library and kernel module are of "
            "different releases, as after an update: restart the machine",
        ),
    ],
)
def test_a_machine_that_cannot_run_kernels_says_so_in_a_line(program, words, said):
    launch = "scale[(1,)](Array(0), Array(0), 1.5, True, 77, BLOCK=256)\n"
    done = program(
        f"try:\n    {launch}except triton.TritonError as error:\n    print(error.code, error)\n", words
    )
    assert done.out.splitlines()[0] == "TW0109 error[TW0109]: device 'cuda:0' is not available"
    assert f"note: {said}" in done.out
    # Programs that name no device run on the CPU there.
    assert program("print(driver.active.get_current_target().backend)", words).out == "cpu\n"


def test_the_run_command_says_in_a_line_what_a_machine_lacks(run, stub, script):
    path = script("print('not reached')")
    variables = {"TILEWRIGHT_LIBCUDA": str(stub), "TILEWRIGHT_STUB_CUDA": "devices=0"}
    done = run("-m", "tilewright", "run", "--device", "cuda", path, env=variables)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "error[TW0109]: device 'cuda:0' is not available",
        " |",
        " = note: the NVIDIA driver (CUDA 12.8) finds no GPU: there is none, or CUDA_VISIBLE_DEVICES hides it",
        " = help: use device 'cpu', or a simulated GPU such as 'sim:sm_90'",
    ]


def test_failures_of_the_driver_are_exceptions(program):
    launch = "scale[(1,)](Array(0), Array(0), 1.5, True, 77, BLOCK=256, num_warps=4)\n"
    caught = (
        f"try:\n    {launch}except triton.TritonError as error:\n    print(type(error).__name__, error)\n"
    )
    failed = program(caught, "fail=cuLaunchKernel:719").out
    assert failed.startswith("ExecutionError error[TW0207]: kernel `scale`: cuLaunchKernel returns ")
    assert program(caught, "threads=64").out == (
        "OutOfResources out of resource: threads, Required: 128, Hardware limit: 64. Reducing block sizes or "
        "`num_stages` may help.\n"
    )
    refused = program(caught, "fail=cuLinkAddData_v2:218", TILEWRIGHT_CACHE_LIMIT="0").out
    assert refused.startswith("PTXASError kernel `scale`: the driver's assembler refuses the PTX: ")


def test_tensors_are_where_the_device_is(program):
    numpy = "import numpy as np\nx = np.zeros(100, np.float32)\n"
    launch = "scale[(1,)](x, Array(0), 1.5, True, 77, BLOCK=256)\n"
    caught = (
        f"try:\n    {launch}except triton.TritonError as error:\n    print(error.diagnostics[0].message)\n"
    )
    assert program(numpy + caught).out == "argument 'x_ptr' of kernel 'scale' is on device 'cpu'\n"
    refused = program("x = Array(0)\n" + caught, TILEWRIGHT_DEVICE="cpu").out
    assert refused == "argument 'x_ptr' of kernel 'scale' is on device 'cuda:0'\n"


# Tensors that torch takes for tensors of a GPU: each is one of the processor that came back by DLPack with another
# device written into its description.
TORCH_PROGRAM = """
import torch

torch.cuda._lazy_init = lambda: None
torch._C._cuda_getCurrentRawStream = lambda device: 0x70 + device
if os.environ.get("TEST_WITHOUT_EXCHANGE"):
    del torch.Tensor.__dlpack_c_exchange_api__
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

def on_gpu(tensor, number=0):
    capsule = torch.utils.dlpack.to_dlpack(tensor)
    (ctypes.c_int32 * 2).from_address(pointer_of(capsule, b"dltensor") + 8)[:] = 2, number
    return torch.utils.dlpack.from_dlpack(capsule)

@triton.jit
def take(x_ptr, y_ptr):
    pass
"""


@pytest.mark.parametrize("variables", [{}, {"TEST_WITHOUT_EXCHANGE": "1"}], ids=["exchange", "attributes"])
def test_tensors_of_torch_are_read(program, variables):
    pytest.importorskip("torch")
    names = {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "bfloat16": "bf16", "bool": "u1"}
    names |= {f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)} | {"uint8": "u8"}
    names |= {f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}
    done = program(
        TORCH_PROGRAM
        + f"""
for name in {list(names)}:
    x = on_gpu(torch.zeros(40, dtype=getattr(torch, name)))
    print(name, take[(1,)](x, torch.nn.Parameter(x, requires_grad=False)))
    assert launches()[0].endswith((x.data_ptr().to_bytes(8, "little") * 2).hex())
zeros = torch.zeros(40)
x, *views = on_gpu(zeros), *(on_gpu(zeros[start:]) for start in (4, 8, 1))
same, as_well, other = (take[(1,)](x, view) for view in views)
assert same is as_well is not other
assert all("stream=0x70 " in launch for launch in launches())
x4 = torch.zeros(4)
for other in (x4, on_gpu(x4, 1), torch.zeros(4, device="meta"), on_gpu(x4.cfloat())):
    try:
        take[(1,)](x, other)
    except triton.TritonError as error:
        print(error.diagnostics[0].message)
""",
        TILEWRIGHT_DEVICE="cuda",
        **variables,
    )
    expected = [f"{name} <compiled kernel take(x_ptr: *{ty}, y_ptr: *{ty})>" for name, ty in names.items()]
    refused = "argument 'y_ptr' of kernel 'take' is"
    assert done.out.splitlines() == [
        *expected,
        f"{refused} on device 'cpu'",
        f"{refused} on device 'cuda:1'",
        f"{refused} on device 'meta'",
        f"{refused} a tensor of torch.complex64",
    ], done.err


@pytest.fixture
def profiled(run, stub, tmp_path):
    """Runs lines after ``PROGRAM`` in ``tilewright profile``, and returns the output and the measurements."""

    def start(lines: str, words: str = "", **variables: str):
        path, data = tmp_path / "program.py", tmp_path / "profile.json"
        path.write_text(PROGRAM + lines)
        machine = {
            "TILEWRIGHT_LIBCUDA": str(stub),
            "TILEWRIGHT_CUPTI": str(stub),
            "TILEWRIGHT_STUB_CUDA": words,
        }
        environment = {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), **machine, **variables}
        command = ("-m", "tilewright", "profile", "--device", "cuda", "--json", data, path)
        done = run(*command, env=environment)
        assert done.code == 0, done.err
        return done, json.loads(data.read_text())

    return start


LAUNCHES = """
for n in (77, 78):
    scale[(3,)](Tensor(0x10_0000), Tensor(0x20_0000), 1.5, True, n, BLOCK=256)
"""


def test_kernels_are_timed_by_cupti(profiled):
    done, data = profiled(LAUNCHES, "records=2")
    # The stand-in says of each launch that it took 1500 ns, and begins one every 10 microseconds.
    assert [(launch["ns"], launch["by"]) for launch in data["launches"]] == [(1500, "cupti")] * 2
    first, second = (launch["start"] for launch in data["launches"])
    assert second - first == 10_000
    assert data["notes"] == []
    assert data["kernels"][0]["ns"] == 3000
    assert "3.00 us 100.0%         2     1.50 us" in done.err


def test_events_time_what_cupti_does_not(profiled):
    for words, variables, why in (
        ("", {"TILEWRIGHT_CUPTI": "off"}, "TILEWRIGHT_CUPTI switches CUPTI off"),
        ("fail=cuptiActivityEnable:35", {}, "returns CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"),
        ("fail=cuptiActivityFlushAll:999", {}, "returns CUPTI_ERROR_UNKNOWN (999)"),
        ("", {"TILEWRIGHT_CUPTI": "no/libcupti.so"}, "`no/libcupti.so` cannot be opened"),
    ):
        done, data = profiled(LAUNCHES, words, **variables)
        assert [launch["by"] for launch in data["launches"]] == ["events"] * 2
        (note,) = data["notes"]
        assert note.startswith("note: 2 of 2 launches on a GPU are timed by events")
        assert why in note
        assert note in done.err


def test_what_nothing_times_is_said_and_is_not_zero(profiled):
    failing = "fail=cuptiActivityEnable:35,fail=cuEventElapsedTime:700"
    done, data = profiled(LAUNCHES, failing)
    assert [(launch["ns"], launch["by"]) for launch in data["launches"]] == [(None, None)] * 2
    assert (
        "warning[TW0116]: 2 launches were not timed: cuEventElapsedTime returns CUDA_ERROR_ILLEGAL"
        in done.err
    )
    row = next(line for line in done.err.splitlines() if line.endswith("on cuda:0"))
    assert row.split()[:4] == ["-", "-", "2", "-"]
    done, data = profiled(LAUNCHES, "capturing=1")
    assert "warning[TW0116]: 2 launches were not timed: captured into a CUDA graph" in done.err


def test_a_session_has_the_times_of_cupti(program, stub, tmp_path):
    done = program(
        f"""
import json
import triton_profiler_here as proton
session = proton.start({str(tmp_path / "out")!r})
with proton.scope("layer"):
    scale[(3,)](Tensor(0x10_0000), Tensor(0x20_0000), 1.5, True, 77, BLOCK=256)
proton.finalize(session)
""".replace("triton_profiler_here", "tilewright.profiler"),
        TILEWRIGHT_CUPTI=str(stub),
    )
    assert (done.code, done.err) == (0, "")
    tree, devices = json.loads((tmp_path / "out.hatchet").read_text())
    (layer,) = tree["children"]
    (kernel,) = layer["children"]
    assert (kernel["frame"]["name"], kernel["metrics"]["time (ns)"]) == ("scale", 1500)
    assert devices["CUDA"]["0"]["arch"] == "90"


DIVIDED = (
    "import re\n"
    + FORMS.partition("def launch")[0]
    + """
def launch(grid, sam, **options):
    tensors = [Half(place << 20) for place in (1, 2, 3)]
    kernel = multiply[grid](*tensors, 1000, 256, 200, sam, 264, 272, 128, 256, 64, num_warps=8, **options)
    line, = launches()
    size = len(line.rpartition("=")[2]) // 2
    print(kernel.packed_metadata[:2], *re.findall(r"grid=.*?]|4: .*?]", line), size, "bytes")

launch((8, 2), 200)
launch((8, 2), 208, num_ctas=2)
# Another form of the code: A has no tensor map.
launch((8, 2), 201, num_ctas=2)
launch((8, 2), 208, num_ctas=16)
try:
    launch((2**30, 1), 208, num_ctas=2)
except ValueError as error:
    print(str(error).splitlines()[0])
"""
)


def test_a_divided_program_is_launched_as_clusters(program):
    done = program(DIVIDED)
    expected = [
        # Not divided, but in pairs, as rows of A begin inside of sectors: the last parameter counts programs.
        "(8, 1) grid=[8, 2, 1] 4: [2, 1, 1] 436 bytes",
        "(8, 2) grid=[16, 2, 1] 4: [2, 1, 1] 432 bytes",
        "(8, 2) grid=[16, 2, 1] 4: [2, 1, 1] 304 bytes",
        "(8, 1) grid=[8, 2, 1] 4: [2, 1, 1] 436 bytes",
        "error[TW0103]: kernel `multiply`: the grid has 2147483648 blocks along axis 0, "
        "and at most 2147483647 are allowed",
    ]
    assert done.out.splitlines() == expected, (done.out, done.err)
