"""``triton.compile``, and what torch Inductor does with its result: launches by number, copies between processes."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from helpers import to_device, to_host

import tilewright as triton
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource, CompiledKernel
from tilewright.runtime import driver

PROGRAM = """
import ctypes, os, pickle

import tilewright as triton
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource
from tilewright.runtime import driver

stub = ctypes.CDLL(os.environ["TILEWRIGHT_LIBCUDA"])

def launches():
    buffer = ctypes.create_string_buffer(1 << 16)
    length = stub.tilewright_stub_take_launches(buffer, len(buffer))
    return buffer.raw[:length].decode().splitlines()

def parameters():
    return [line.partition("parameters=")[2] for line in launches()]

class Tensor:
    dtype = tl.float32
    def __init__(self, address, device="cuda:0"):
        self.address, self.device = address, device
    def data_ptr(self):
        return self.address

@triton.jit
def scale(x_ptr, out_ptr, factor, is_on, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(is_on, x * factor, x), mask=mask)

TYPES = {"x_ptr": "*fp32", "out_ptr": "*fp32", "factor": "fp32", "is_on": "u1", "n": "i32", "BLOCK": "constexpr"}
ALIGNED = {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}
H100 = GPUTarget("cuda", 90, 32)

def compiled(**options):
    return triton.compile(ASTSource(scale, TYPES, {"BLOCK": 256}, ALIGNED), target=H100, options=options)

def run(kernel, *args, grid=(1, 1, 1), stream=0, metadata=None, enter=None, exit=None):
    kernel.run(*grid, stream, kernel.function, kernel.packed_metadata, metadata, enter, exit, *args)
"""


@pytest.fixture
def program(run, stub, tmp_path):
    """Runs lines after ``PROGRAM`` on a machine as the stub's words describe it."""

    def start(lines: str, words: str = "record=1", **variables: str):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + lines)
        variables = {"TILEWRIGHT_LIBCUDA": str(stub), "TILEWRIGHT_STUB_CUDA": words, **variables}
        variables = {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), **variables}
        return run(path, env=variables)

    return start


def test_run_reaches_the_driver_with_what_it_was_given(program):
    done = program(
        """
kernel = compiled(num_warps=8)
args = (0x10_0000, Tensor(0x20_0000), 1.5, True, 77)
run(kernel, *args, 256, grid=(3, 2, 1), stream=0xabc0)
run(kernel, *args, stream=7)
kernel[(5,)](None, *args[1:])
kernel[4](*args, 256, stream=9)
run(kernel, *args, grid=(0, 1, 1))
print("\\n".join(launches()))
pdl = compiled(launch_pdl=True, launch_cooperative_grid=True)
run(pdl, *args)
print(launches()[0].partition("attributes=")[2].partition(" parameters")[0])
"""
    )
    addresses = "00001000000000000000200000000000"
    rest = "0000c03f010000004d000000"
    head = "block=[256, 1, 1] shared=0"
    tail = f"context=0x1000 attributes=[] parameters={addresses}{rest}"
    null = tail.replace("0000100000000000", "0000000000000000")
    assert done.out.splitlines() == [
        f"scale grid=[3, 2, 1] {head} stream=0xabc0 {tail}",
        f"scale grid=[1, 1, 1] {head} stream=0x7 {tail}",
        f"scale grid=[5, 1, 1] {head} stream=0x0 {null}",
        f"scale grid=[4, 1, 1] {head} stream=0x9 {tail}",
        "[6: [1, 0, 0], 2: [1, 0, 0]]",
    ], done.err


def test_a_compiled_kernel_has_what_torch_asks_for(program):
    done = program(
        """
kernel = compiled(num_warps=8, num_stages=2)
print(isinstance(kernel, triton.compiler.CompiledKernel), kernel.module, kernel.function)
print(".target sm_90a" in kernel.asm["ptx"], kernel.asm["cubin"][:4], kernel.kernel == kernel.asm["cubin"])
print(list(kernel.asm))
kernel._init_handles()
print(kernel.module > 0, kernel.function > 0, kernel.n_regs, kernel.n_spills, kernel.n_max_threads)
print(kernel.metadata.num_warps, kernel.metadata.num_stages, kernel.metadata.num_ctas, kernel.metadata.cluster_dims)
print(kernel.metadata.target, kernel.metadata.name, kernel.metadata.shared, kernel.metadata.global_scratch_size)
print(kernel.packed_metadata, kernel.num_warps, kernel.shared, len(bytes.fromhex(kernel.hash)))
print(kernel.src.fn is scale, kernel.src.signature["n"], kernel.src.constants, kernel.launch_metadata((1, 1, 1), 0))
print(isinstance(kernel.metadata, tuple), pickle.loads(pickle.dumps(kernel.metadata)) == kernel.metadata)
print(compiled(num_warps=8, num_stages=2).hash == kernel.hash, compiled(num_warps=4, num_stages=2).hash == kernel.hash)
""",
        "registers=40,local=16",
    )
    assert done.out.splitlines() == [
        "True None None",
        "True b'\\x7fELF' True",
        "['ast', 'ir', 'opt', 'gpu', 'ptx', 'cubin']",
        "True True 40 4 1024",
        "8 2 1 (1, 1, 1)",
        "GPUTarget(backend='cuda', arch=90, warp_size=32) scale 0 None",
        "(8, 1, 0) 8 0 32",
        "True i32 {(5,): 256} None",
        "True True",
        "True False",
    ], done.err


def test_a_kernel_goes_to_another_process_as_its_dict(program):
    done = program(
        """
kernel = compiled(num_warps=2)
state = {**kernel.__dict__, "metadata": kernel.metadata._asdict(), "run": None}
del state["src"]
state = pickle.loads(pickle.dumps(state))
other = triton.compiler.CompiledKernel.__new__(triton.compiler.CompiledKernel)
other.__dict__.update({**state, "src": kernel.src, "metadata": type(kernel.metadata)(**state["metadata"])})
other._init_handles()
run(other, 16, 32, 2.0, False, 5)
print(launches()[0], other.asm["ptx"] == kernel.asm["ptx"], other.hash == kernel.hash)
"""
    )
    assert done.out == (
        "scale grid=[1, 1, 1] block=[64, 1, 1] shared=0 stream=0x0 context=0x1000 attributes=[] "
        "parameters=1000000000000000200000000000000000000040" + "00" * 4 + "05000000 True True\n"
    ), done.err


def test_hooks_are_called_around_a_launch(program):
    done = program(
        """
scale.launch_metadata = lambda grid, metadata, args: {"flops": grid[0] * args["n"], "warps": metadata.num_warps}
kernel = compiled()
triton.knobs.runtime.launch_enter_hook.add(lambda data: print("enter", sorted(data.get().items(), key=str)[0]))
triton.knobs.runtime.launch_exit_hook.add(lambda data: print("exit", data.get()["warps"], data.get()["name"]))
kernel[(3,)](16, 32, 2.0, False, 5)
run(kernel, 16, 32, 2.0, False, 5, metadata="data", enter=lambda data: print("first", data, len(launches())))
"""
    )
    assert done.out.splitlines() == ["enter ('flops', 15)", "exit 4 scale", "first data 1"], done.err


def test_arguments_that_do_not_fit_are_refused(program):
    done = program(
        """
kernel = compiled()
good = [16, 32, 2.0, False, 5]
for place, value in [(0, "text"), (0, -1), (1, Tensor(64, "cpu")), (2, "1.5"), (4, 1 << 31), (4, 1.5)]:
    args = good.copy()
    args[place] = value
    try:
        run(kernel, *args)
    except triton.TritonError as error:
        print(error.code, error.diagnostics[0].message, "|", error.diagnostics[0].notes[0])
for args in [good[:3], good + [1, 2]]:
    try:
        run(kernel, *args)
    except triton.TritonError as error:
        print(error.code, error.diagnostics[0].message)
try:
    kernel.run(1, 1, 1, 0, 4711, kernel.packed_metadata, None, None, None, *good)
except triton.TritonError as error:
    print(error.code, error.diagnostics[0].message)
try:
    run(kernel, *good, grid=(1, 70000, 1))
except triton.TritonError as error:
    print(error.code)
print(launches())
"""
    )
    refused = "of kernel 'scale' cannot be passed | found"
    counted = "; parameters are counted from 0"
    assert done.out.splitlines() == [
        f"TW0105 parameter 0 {refused} a str, expected a tensor or an address{counted}",
        f"TW0105 parameter 0 {refused} the int -1, expected an address of 64 bits{counted}",
        "TW0106 parameter 1 of kernel 'scale' is on device 'cpu' | found a Tensor in main memory, which the GPU cannot "
        f"read{counted}",
        f"TW0105 parameter 2 {refused} a str, expected a number of type fp32{counted}",
        f"TW0105 parameter 4 {refused} the int 2147483648, expected a number of type int32{counted}",
        f"TW0105 parameter 4 {refused} a float, expected a number of type int32{counted}",
        "TW0105 kernel 'scale' is launched with 3 arguments, and takes 6 (5 without compile-time values)",
        "TW0105 kernel 'scale' is launched with 7 arguments, and takes 6 (5 without compile-time values)",
        "TW0105 no kernel with the handle 0x1267 is loaded",
        "TW0103",
        "[]",
    ], done.err


def test_numbers_are_passed_in_their_types(program):
    """Against the bytes that Python's own ``struct`` makes."""
    done = program(
        """
import struct
PTX = ".version 7.0\\n.target sm_80\\n.visible .entry k(%s)\\n{ ret; }\\n"
FORMATS = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "fp16": "e",
           "fp32": "f", "fp64": "d", "i1": "?", "u1": "?"}
VALUES = {"fp16": 1.25, "fp32": -3.5, "fp64": 1e300, "i1": True, "u1": False}
utils = driver.active.utils
names = list(FORMATS)
values = [VALUES.get(name, 100 + number) for number, name in enumerate(names)]
bits = [8 * struct.calcsize(FORMATS[name]) for name in names]
listed = ", ".join(f".param .b{size} p{number}" for number, size in enumerate(bits))
module, function, *resources = utils.load_binary("k", (PTX % listed).encode(), 0, 0)
from tilewright.backends.nvidia.driver import annotate_arguments, make_kernel_signature
signature = ["constexpr", tuple(names[:3]), *names[3:]]
args = ["unused", tuple(values[:3]), *values[3:]]
utils.launch(2, 1, 1, 5, function, False, False, (2, 1, 1024), "data", print, None, None, None,
             annotate_arguments(signature), make_kernel_signature(signature), args)
line = launches()[0]
expected = struct.pack("@" + "".join(FORMATS[name] for name in names), *values)
print(bytes.fromhex(line.partition("parameters=")[2]) == expected, line.partition(" stream")[0], resources)

# Kernels of the official compiler take two more addresses.
text = (PTX % ".param .b64 a, .param .b64 b, .param .b64 c").encode()
_, function, *_ = utils.load_binary("k", text, 0, 0)
utils.launch(1, 1, 1, 0, function, False, False, (4, 2, 0), None, None, None, 0x77, None,
             annotate_arguments(["*fp32"]), make_kernel_signature(["*fp32"]), [0x55])
print(launches()[0])
utils.unload_module(module)
try:
    utils.unload_module(module)
except triton.TritonError as error:
    print(error.code)
print(utils.cuOccupancyMaxActiveClusters(function, 0, 4))
try:
    utils.build_signature_metadata(["i128"])
except triton.TritonError as error:
    print(error.diagnostics[0].message)
"""
    )
    # One more line comes from the hook.
    words = [f"{address:02x}" + "00" * 7 for address in (0x55, 0x77, 0)]
    assert done.out.splitlines() == [
        "data",
        "True k grid=[2, 1, 1] block=[64, 1, 1] shared=1024 [32, 0, 1024]",
        "k grid=[2, 1, 1] block=[128, 1, 1] shared=0 stream=0x0 context=0x1000 attributes=[4: [2, 1, 1]] "
        f"parameters={''.join(words)}",
        "TW0105",
        "33",
        "'i128' is not a type that a kernel's arguments can have",
    ], done.err


def test_tensor_maps(program):
    done = program(
        """
utils = driver.active.utils
def words(map):
    data = bytes(map)
    return [int.from_bytes(data[i:i + 8], "little") for i in range(0, 56, 8)]
# bf16, 100 rows of 256, copied in blocks of 64 x 64 with a swizzle of 128 bytes.
tiled = utils.fill_tma_descriptor_tiled(0x4000, 3, 2, 9, [64, 64], [100, 256], [256, 1], 0)
print(words(tiled))
print(words(utils.fill_tma_descriptor_im2col(0x4000, 0, 2, 6, [128, 64], [8, 20, 30, 64], [38400, 1920, 64, 1], 0,
                                             [-2, -1], [-1, -1], [1, 1, 1, 1])))
LISTED = ".param .b64 x, .param .align 64 .b8 map[128], .param .b32 n"
PTX = ".version 8.0\\n.target sm_90\\n.visible .entry k(%s)\\n{ ret; }\\n" % LISTED
_, function, *_ = utils.load_binary("k", PTX, 0, 0)
from tilewright.backends.nvidia.driver import annotate_arguments, make_kernel_signature
types = ["*bf16", "nvTmaDesc", "i32"]
utils.launch(1, 1, 1, 0, function, False, False, (4, 1, 0), None, None, None, None, None,
             annotate_arguments(types), make_kernel_signature(types), [0x11, tiled, 7])
data = bytes.fromhex(parameters()[0])
start = data.index(bytes(tiled))
print(data[:8].hex(), (0x210 + start) % 64, data[start + 128:].hex())
for shape, element in [([100, 256], 13), ([100, 1 << 33], 9), ([100], 9)]:
    try:
        utils.fill_tma_descriptor_tiled(0x4000, 3, 2, element, [64, 64], shape, [256, 1], 0)
    except (ValueError, triton.TritonError) as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""
    )
    assert done.out.splitlines() == [
        "[16384, 9, 2, 256, 100, 0, 0]",
        f"[16384, 6, 4, 64, 128, {(1 << 64) - 1}, {(1 << 64) - 2}]",
        "1100000000000000 0 07000000",
        "ValueError there is no element type 13",
        "ExecutionError error[TW0207]: invalid tensor map: axis 0 has 8589934592 elements, and 1 to 2^32 are allowed",
        "ValueError a tensor map has 1 extents and 2 strides",
    ], done.err


def test_products_get_tensor_maps_where_we_launch_them(program):
    """The texts, which torch's own launchers may take, are without; a launch has those that describe its tensors."""
    done = program(
        """
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    offs_m, offs_n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None] * sam + offs_k[None, :] * sak
    b_ptrs = b_ptr + offs_k[:, None] * sbk + offs_n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        inside = offs_k < K - k * BK
        a = tl.load(a_ptrs, mask=(offs_m < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(offs_n < N)[None, :] & inside[:, None], other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)

names = product.arg_names
types = dict(zip(names, ["*fp16"] * 2 + ["*fp32"] + ["i32"] * 4 + ["constexpr", "i32"] + ["constexpr"] * 4))
aligned = {(place,): [["tt.divisibility", 16]] for place, ty in enumerate(types.values()) if ty != "constexpr"}
source = ASTSource(product, types, {"sak": 1, "sbn": 1, "BM": 128, "BN": 128, "BK": 64}, aligned)
kernel = triton.compile(source, target=H100, options={"num_warps": 4, "num_stages": 3})
for off_a, off_all in ((0, 0), (8, 0), (8, 8)):
    run(kernel, (1 << 20) + off_a, (1 << 21) + off_all, (1 << 22) + off_all, 256, 256, 256, 256, 256)
    print(len(parameters()[0]) // 2)
print(kernel.asm["ptx"].count(".param .align 64"), kernel.asm["gpu"].count("\\nT"))

# As torch takes it from another process.
import copy
state = copy.copy(kernel.__dict__)
state["asm"] = pickle.loads(pickle.dumps(kernel.asm))
sent = type(kernel).__new__(type(kernel))
sent.__dict__.update({**state, "module": None, "function": None, "_run": None})
run(sent, 1 << 20, 1 << 21, 1 << 22, 256, 256, 256, 256, 256)
print(len(parameters()[0]) // 2)
kernel.module = None
"""
    )
    plain = 3 * 8 + 5 * 4
    with_maps, without_one, without, texts, sent = done.out.splitlines()
    assert int(with_maps) >= plain + 2 * 128, done.err
    assert int(without_one) == int(with_maps) - 128, done.err
    assert (without, texts, sent) == (str(plain), "0 0", with_maps), done.err


def test_what_a_gpu_lacks_is_said_by_type(program):
    done = program(
        """
try:
    run(compiled(num_warps=4), 16, 32, 2.0, False, 5)
except triton.OutOfResources as error:
    print(error)
""",
        "threads=64",
    )
    assert done.out == (
        "out of resource: threads, Required: 128, Hardware limit: 64. Reducing block sizes or `num_stages` may help.\n"
    ), done.err
    without = program(
        """
kernel = compiled()
print("cubin" in kernel.asm, ".entry scale" in kernel.asm["ptx"])
for ask in (lambda: kernel.asm["cubin"], lambda: kernel.n_regs, lambda: kernel.run):
    try:
        ask()
    except triton.TritonError as error:
        print(error.code, error.diagnostics[0].message)
""",
        "devices=0",
    )
    line = "TW0109 device 'cuda:0' is not available"
    assert without.out.splitlines() == ["False True", line, line, line], without.err


def test_a_cache_that_cannot_be_used_is_warned_of(program):
    done = program(
        "run(compiled(), 16, 32, 2.0, False, 5)\nprint(len(launches()))\n", TILEWRIGHT_CACHE_DIR="/dev/null"
    )
    assert done.out == "1\n", done.err
    assert "LaunchWarning: the kernel cache cannot be used: /dev/null/tilewright-2/" in done.err


def test_a_launch_returns_what_can_be_launched_by_number(program):
    """The driver gets the same arguments either way; the code is loaded once."""
    done = program(
        """
x, out = Tensor(0x10_0000), Tensor(0x20_0000)
handle = scale[(3,)](x, out, 1.5, True, 77, 256, num_warps=8)
run(handle, x, out, 1.5, True, 77, grid=(3, 1, 1))
handle[(3,)](x, out, 1.5, True, 77)
lines = launches()
print(len(lines), len(set(lines)), lines[0].partition(" stream")[0])
print(handle.function > 0, handle.module > 0, handle.packed_metadata, stub.tilewright_stub_count_live())
print(handle.kernel == handle.asm["cubin"], handle.n_regs, handle.src.signature["factor"])
"""
    )
    assert done.out.splitlines()[:2] == [
        "3 1 scale grid=[3, 1, 1] block=[256, 1, 1] shared=0",
        "True True (8, 1, 0) 1",
    ], done.err
    assert done.out.splitlines()[2:] == ["True 32 fp32"], done.err


def test_a_module_is_unloaded_with_its_kernel(program):
    done = program(
        """
kernels = [compiled(num_warps=warps) for warps in (1, 2, 4)]
before = stub.tilewright_stub_count_live()
for kernel in kernels:
    kernel._init_handles()
run(kernel, 16, 32, 2.0, False, 5)
print(stub.tilewright_stub_count_live() - before)
del kernels, kernel
print(stub.tilewright_stub_count_live() - before)
"""
    )
    assert done.out == "3\n0\n", done.err


# --- On every device ---


@triton.jit
def _add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)


@triton.jit
def _pick(parts, out_ptr, which: tl.constexpr = 0):
    tl.store(out_ptr, tl.load(parts[which]) + parts[2])


TYPES = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
CPU = GPUTarget("cpu", "x86_64", 0)


def test_a_compiled_kernel_runs(device):
    target = driver.active.get_current_target()
    kernel = triton.compile(ASTSource(_add, TYPES, {"BLOCK": 64}), target=target)
    assert isinstance(kernel, CompiledKernel)
    numbers = np.arange(100, dtype=np.float32)
    x, y = to_device(numbers, "float32", device), to_device(numbers / 2, "float32", device)
    out = to_device(np.zeros(100, np.float32), "float32", device)
    seen: list[object] = []
    hooks = (seen.append, lambda _: seen.append(to_host(out)[99]))
    kernel.run(2, 1, 1, 0, kernel.function, kernel.packed_metadata, "data", *hooks, x, y, out, 100, 64)
    assert to_host(out).tolist() == (numbers * 1.5).tolist()
    assert seen == ["data", 148.5]
    out[:] = 0
    kernel[(2,)](x, y, out, 70)
    assert to_host(out).tolist() == np.where(numbers < 70, numbers * 1.5, 0).tolist()
    assert kernel.n_regs > 0
    assert kernel.metadata.target == target


def test_tuples_and_defaults():
    source = ASTSource(_pick, {"parts": ("*i32", "*i32", "i32"), "out_ptr": "*i32"}, {(0, 2): 7})
    kernel = triton.compile(source, target=CPU)
    x, out = np.array([3], np.int32), np.zeros(1, np.int32)
    kernel[(1,)]((x, x, 7), out)
    assert out[0] == 10
    # Arguments that are part of the code are not looked at, as in Triton.
    kernel[(1,)]((x + 1, x, None), out)
    assert out[0] == 11
    with pytest.raises(
        TypeError, match=r"is launched with 3 arguments, and takes 2 \(2 without compile-time values\)"
    ):
        kernel[(1,)]((x, x, 7), out, 0)
    assert source.passed_types() == [("*i32", "*i32", "constexpr"), "*i32"]


def test_sources_as_older_releases_have_them():
    """Compile-time values only by their index, out of the signature; pointers that are only read have a ``k``."""
    types = {"x_ptr": "*kfp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
    kernel = triton.compile(ASTSource(_add, types, {4: 64}), target=CPU)
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernel[(1, 1, 1)](x, x, out, 64)
    assert out.tolist() == (x * 2).tolist()


def test_the_same_types_make_the_same_code_as_a_launch():
    """A source says in words what a launch sees of its arguments."""
    x = np.zeros(128, np.float32)
    warm = _add.warmup(x, x, x, 128, BLOCK=128, grid=(1,))
    hint = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
    aligned = {(place,): hint for place in range(4)} if x.ctypes.data % 16 == 0 else {(3,): hint}
    made = triton.compile(ASTSource(_add, TYPES, {(4,): 128}, aligned), target=CPU)
    assert made.asm["ir"] == warm.asm["ir"]
    plain = triton.compile(ASTSource(_add, TYPES, {"BLOCK": 128}), target=CPU)
    assert plain.asm["ir"] != warm.asm["ir"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: ASTSource(_add, ["*fp32"]),
            "the signature of an ASTSource is a dict from the names of parameters",
        ),
        (lambda: ASTSource(_add, {"z": "*fp32"}), "kernel '_add' has no parameter 'z'"),
        (lambda: ASTSource(_add, TYPES, {"B": 1}), "kernel '_add' has no parameter 'B'"),
        (lambda: ASTSource(_add, TYPES, attrs=()), "attrs of an ASTSource is a dict, not a tuple"),
        (lambda: ASTSource(_add, TYPES), "has neither a type nor a value for parameter 'BLOCK'"),
        (
            lambda: ASTSource(_add, {**TYPES, "n": 5}, {"BLOCK": 1}),
            "a type of a signature is a str or a tuple",
        ),
        (lambda: ASTSource(_add, {**TYPES, "n": "i33"}, {"BLOCK": 1}), "'i33' does not describe an argument"),
        (
            lambda: ASTSource(_add, {**TYPES, "n": "nvTmaDesc"}, {"BLOCK": 1}),
            "is not available",
        ),
        (lambda: "kernel.ttir", "tilewright reads no MLIR"),
    ],
)
def test_a_source_that_says_too_little_is_refused(make, said):
    with pytest.raises(triton.TritonError, match=said.replace("(", r"\(").replace("[", r"\[")):
        triton.compile(make(), target=CPU)


def test_targets_and_options():
    source = ASTSource(_add, TYPES, {"BLOCK": 64})
    with pytest.raises(triton.TritonError, match="no code can be made for a GPU of compute capability 70"):
        triton.compile(source, target=GPUTarget("cuda", 70, 32))
    with pytest.raises(ValueError, match="is a compute capability such as 90, not 'gfx942'"):
        triton.compile(source, target=GPUTarget("cuda", "gfx942", 32))
    with pytest.raises(RuntimeError, match=r"0 compatible backends for target \(hip\)"):
        triton.compile(source, target=GPUTarget("hip", "gfx942", 64))
    with pytest.raises(TypeError, match=r"target of triton\.compile is a GPUTarget, not a str"):
        triton.compile(source, target="sm_90")
    with pytest.raises(triton.TritonError, match="num_warps"):
        triton.compile(source, target=CPU, options={"num_warps": 0})
    with pytest.warns(
        triton.LaunchWarning, match="passes over the option 'num_warp', .*; did you mean 'num_warps'"
    ):
        triton.compile(source, target=CPU, options={"num_warp": 8})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The options that torch passes.
        options = {
            "num_warps": 2,
            "num_stages": 1,
            "debug": False,
            "sanitize_overflow": False,
            "maxnreg": None,
        }
        kernel = triton.compile(source, target=GPUTarget("cuda", "80", 32), options=options)
    assert kernel.metadata.target.arch == 80
    assert ".target sm_80" in kernel.asm["ptx"]
    assert kernel.packed_metadata == (2, 1, kernel.metadata.shared)


def test_back_ends_are_listed():
    backends = triton.backends.backends
    assert sorted(backends) == ["cpu", "nvidia"]
    for backend in backends.values():
        made = backend.driver()
        assert isinstance(made, triton.backends.DriverBase)
        assert issubclass(backend.compiler, triton.backends.BaseBackend)
    backend = triton.compiler.make_backend(GPUTarget("cuda", 90, 32))
    assert isinstance(backend, backends["nvidia"].compiler)
    options = backend.parse_options({"num_warps": 8, "waves": 1})
    assert (options.num_warps, options.num_stages, hasattr(options, "waves")) == (8, 3, False)
    assert "fp8e4nv" in options.supported_fp8_dtypes
    assert options.hash() != backend.parse_options({}).hash()
    assert backend.parse_attr("D") == [["tt.divisibility", 16]]
    cpu = backends["cpu"].driver()
    driver.set_active(cpu)
    try:
        assert driver.active.get_current_target().backend == "cpu"
    finally:
        driver.reset_active()
    assert not isinstance(driver.active, backends["cpu"].driver)


def test_stages_survive_a_copy():
    kernel = triton.compile(ASTSource(_add, TYPES, {"BLOCK": 64}), target=CPU)
    copied = pickle.loads(pickle.dumps(kernel.asm))
    assert dict(copied) == dict(kernel.asm)
    assert copied["ttir"] == kernel.asm["ir"]
    with pytest.raises(KeyError, match="a kernel for this device has ast, ir, opt, cpu, asm"):
        kernel.asm["ptx"]


def test_torch_launches_what_it_has_compiled(run, script, stub, tmp_path):
    """Inductor's own classes around a kernel, as on a machine with a GPU."""
    pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    path = script(
        """
        import tilewright
        tilewright.install_as_triton()
        import ctypes, os, pickle
        import triton, triton.language as tl
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from torch._inductor.runtime import triton_heuristics, triton_helpers
        from torch._inductor.runtime.hints import AttrsDescriptorWrapper

        @triton.jit
        def double(in_ptr, out_ptr, xnumel, XBLOCK: tl.constexpr):
            index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
            tl.store(out_ptr + index, tl.load(in_ptr + index, index < xnumel) * 2, index < xnumel)

        triton_helpers.set_driver_to_gpu()
        print(type(triton.runtime.driver.active).__name__)
        types = {"in_ptr": "*fp32", "out_ptr": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}
        attrs = AttrsDescriptorWrapper(divisible_by_16=(0, 1))
        source = ASTSource(double, types, {"XBLOCK": 512}, attrs)
        options = {"num_warps": 4, "num_stages": 1, "debug": False, "sanitize_overflow": False, "launch_pdl": False}
        kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        meta = {"signature": types, "constants": {"XBLOCK": 512}, "configs": [attrs], "device": 0}
        meta["device_type"] = "cuda"
        config = triton.Config({"XBLOCK": 512}, num_warps=4, num_stages=1)
        result = triton_heuristics.TritonCompileResult(kernel, config, meta, {"grid_type": "Grid1D"})
        state = result.__getstate__()
        del state["kernel"]["src"]
        other = object.__new__(type(result))
        state = pickle.loads(pickle.dumps(state))
        state["kernel"]["src"] = source
        other.__setstate__(state)
        stub = ctypes.CDLL(os.environ["TILEWRIGHT_LIBCUDA"])
        for made in (result, other):
            launcher = made.make_launcher()
            print(launcher.n_regs, launcher.n_spills, launcher.shared)
            launcher(0x1000, 0x2000, 1200, stream=3)
            buffer = ctypes.create_string_buffer(1 << 16)
            length = stub.tilewright_stub_take_launches(buffer, len(buffer))
            print(buffer.raw[:length].decode(), end="")
        """
    )
    environment = {"TILEWRIGHT_LIBCUDA": str(stub), "TILEWRIGHT_STUB_CUDA": "record=1"}
    done = run(path, env={**environment, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")})
    launch = (
        "double grid=[3, 1, 1] block=[128, 1, 1] shared=0 stream=0x3 context=0x1000 attributes=[] "
        "parameters=00100000000000000020000000000000b0040000"
    )
    assert done.out.splitlines() == ["CudaDriver", "32 0 0", launch, "32 0 0", launch], done.err


def test_torch_compiles(run, script, tmp_path, device):
    """The whole way: torch traces a function, writes kernels, has them compiled, and launches them."""
    pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    path = script(
        f"""
        import tilewright
        tilewright.install_as_triton()
        import torch
        import torch._inductor.config as config
        import triton, triton.language as tl
        config.cpu_backend, config.compile_threads = "triton", 1

        @triton.jit
        def triple(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, offsets < n) * 3, offsets < n)

        def function(x, y, index):
            own = torch.empty_like(x)
            triple[(triton.cdiv(x.numel(), 256),)](x, own, x.numel(), BLOCK=256)
            return (
                (own + y).relu(),
                torch.softmax(x, 1),
                torch.nn.functional.layer_norm(y, (33,)),
                x.argmax(1),
                (index // 3, index % 5, x[index]),
            )

        torch.manual_seed(0)
        x, y = torch.randn(40, 33, device="{device}"), torch.randn(40, 33, device="{device}")
        arguments = x, y, torch.randint(0, 40, (20,), device="{device}")
        torch.testing.assert_close(torch.compile(function)(*arguments), function(*arguments))
        print("compiled")
        """
    )
    done = run(path, env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert done.out == "compiled\n", done.err
