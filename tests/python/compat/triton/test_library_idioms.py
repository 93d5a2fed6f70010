"""Idioms of public libraries: results known at compile time, bare pointers, look-back scans."""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def blocks(n, size):
    return (n + size - 1) // size


@triton.jit
def chosen(n):
    if n > 4:
        return 0.5
    else:
        return 2.0


@triton.jit
def through_a_name(n):
    half = n // 2
    return half


@triton.jit
def compile_time_results(out_ptr, N: tl.constexpr):
    width: tl.constexpr = blocks(N, 16) * 16
    tl.static_assert(blocks(N, 16) == 3)
    tl.static_assert(tl.cdiv(N, 16) == 3)
    half = tl.full((8,), 3.0, tl.float16) * chosen(N)
    tl.static_assert(half.dtype == tl.float16)
    # A name makes a run-time value of it.
    tl.static_assert((tl.full((8,), 3.0, tl.float16) * (through_a_name(N) * 1.0)).dtype == tl.float32)
    tl.store(out_ptr + tl.arange(0, blocks(width, 3)), width)
    tl.store(out_ptr + 16 + tl.arange(0, 8), half.to(tl.int32))


def test_what_a_function_computes_of_compile_time_values_is_one(device):
    out = torch.zeros(24, dtype=torch.int32, device=device)
    compile_time_results[(1,)](out, N=47)
    assert out.tolist() == [48] * 16 + [1] * 8


@triton.jit
def annotated_run_time_values(out_ptr, n, B: tl.constexpr):
    total: tl.constexpr = n * B
    for i in range(n):
        place: tl.constexpr = i * 2
        tl.store(out_ptr + place, total + i)


def test_the_annotation_of_a_name_demands_no_compile_time_value(device):
    out = torch.zeros(6, dtype=torch.int32, device=device)
    annotated_run_time_values[(1,)](out, 3, B=8)
    assert out.tolist() == [24, 0, 25, 0, 26, 0]


@triton.jit
def doubled(x_ptr, out_ptr, n, B: tl.constexpr):
    offsets = tl.arange(0, B)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2, mask=offsets < n)


class Pointer:
    """An address and a dtype: all that a launch needs on a GPU."""

    def __init__(self, tensor, offset):
        self.address = tensor.data_ptr() + offset * tensor.element_size()
        self.dtype = tensor.dtype

    def data_ptr(self):
        return self.address


class OwnStorage(Pointer):
    """One that says to be its own storage, of no known size."""

    def untyped_storage(self):
        return self


def test_pointers_that_do_not_say_whose_memory_it_is(device):
    x = torch.randn(100, device=device)
    for kind in (Pointer, OwnStorage):
        out = torch.zeros(100, device=device)
        doubled[(1,)](kind(x, 10), kind(out, 10), 90, B=128)
        assert torch.equal(out, torch.cat([torch.zeros(10, device=device), x[10:] * 2]))


def test_pointers_into_tensors_whose_elements_no_kernel_knows(device):
    x = torch.randn(50, dtype=torch.complex64, device=device)
    out = torch.zeros_like(x)
    parts = [Pointer(x, 0), Pointer(out, 10)]
    for part in parts:
        part.dtype = torch.float32
    doubled[(1,)](*parts, 80, B=128)
    assert torch.equal(out, torch.cat([torch.zeros_like(x[:10]), x[:40] * 2]))


@triton.constexpr_function
def bits_of(dtype):
    return tl.core.get_int_dtype(dtype.primitive_bitwidth, False)


@triton.jit
def as_bits(x_ptr, out_ptr, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    word: tl.constexpr = bits_of(x.dtype)
    tl.store(out_ptr + tl.arange(0, B), x.to(word, bitcast=True).to(tl.int32, bitcast=True))


def test_integer_types_are_asked_for_on_the_host_too(device):
    assert tl.get_int_dtype(16, True) == tl.int16
    x, out = torch.randn(16, device=device), torch.zeros(16, dtype=torch.int32, device=device)
    as_bits[(1,)](x, out, B=16)
    assert torch.equal(out, x.view(torch.int32))


@triton.jit
def scan_with_look_back(x_ptr, out_ptr, state_ptr, n, B: tl.constexpr):
    """A prefix sum in one pass: each program adds what those before it have published, sums of their own or of all."""
    pid = tl.program_id(0)
    offsets = pid * B + tl.arange(0, B)
    for row in range(2):
        x = tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=0)
        sums, total = tl.cumsum(x, 0), tl.sum(x)
        states = state_ptr + row * tl.num_programs(0)
        tl.store(states + pid, total * 4 + 1)
        before = total * 0
        at = pid - 1
        while at >= 0:
            found = tl.load(states + at, volatile=True)
            while found == 0:
                found = tl.load(states + at, volatile=True)
            before += found // 4
            at = tl.where((found & 3) == 2, -1, at - 1)
        tl.store(states + pid, (before + total) * 4 + 2)
        tl.store(out_ptr + row * n + offsets, sums + before, mask=offsets < n)


def test_programs_that_wait_for_each_other_do_so_with_all_their_warps(device):
    torch.manual_seed(0)
    x = torch.randint(0, 100, (2, 500), dtype=torch.int32, device=device)
    out, state = torch.zeros_like(x), torch.zeros(2 * 4, dtype=torch.int32, device=device)
    scan_with_look_back[(4,)](x, out, state, 500, B=128, num_warps=8)
    assert torch.equal(out, x.cumsum(1).to(torch.int32))


def test_one_thread_loads_what_others_may_write_meanwhile():
    signature = dict.fromkeys(("x_ptr", "out_ptr", "state_ptr"), "*i32") | {"n": "i32", "B": "constexpr"}
    source = triton.compiler.ASTSource(scan_with_look_back, signature, {"B": 128})
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    ptx = triton.compile(source, target=target, options={"num_warps": 8}).asm["ptx"]
    assert ptx.count("ld.relaxed.sys.global.b32") == 2
    assert "ld.volatile" not in ptx
