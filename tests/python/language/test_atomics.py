"""Atomic operations: every kind on every type, and programs that wait for each other by them.

Sums of floats are of numbers that are exact in any order; other sums may differ in the last bits from run to run.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from conftest import DEVICE, ON_GPU, ROOT, error_text
from helpers import FLOATS, TORCH, assert_same, bits, is_float, module, to_device, to_host

import tilewright as triton
import tilewright.language as tl

INTEGERS = ("int16", "uint16", "int32", "uint32", "int64", "uint64")
KINDS = ("add", "and", "or", "xor", "max", "min", "xchg")
PAIRS = [(kind, dtype) for kind in KINDS for dtype in INTEGERS]
PAIRS += [(kind, dtype) for kind in ("add", "max", "min", "xchg") for dtype in FLOATS]
SEMANTICS = ("acq_rel", "acquire", "release", "relaxed")
SCOPES = ("gpu", "cta", "sys")


@triton.jit
def operate(pointer, value, mask, KIND: tl.constexpr):
    if KIND == "add":
        return tl.atomic_add(pointer, value, mask=mask)
    elif KIND == "and":
        return tl.atomic_and(pointer, value, mask=mask)
    elif KIND == "or":
        return tl.atomic_or(pointer, value, mask=mask)
    elif KIND == "xor":
        return tl.atomic_xor(pointer, value, mask=mask)
    elif KIND == "max":
        return tl.atomic_max(pointer, value, mask=mask)
    elif KIND == "min":
        return tl.atomic_min(pointer, value, mask=mask)
    else:
        return tl.atomic_xchg(pointer, value, mask=mask)


@triton.jit
def apply_kernel(x_ptr, value_ptr, old_ptr, place_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(place_ptr + i, mask=i < n, other=0)
    value = tl.load(value_ptr + i, mask=i < n)
    old = operate(x_ptr + place, value, i < n, KIND)
    tl.store(old_ptr + i, old)


@triton.jit
def contend_kernel(x_ptr, value_ptr, n, BINS, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    operate(x_ptr + i % BINS, tl.load(value_ptr + i, mask=i < n), i < n, KIND)


def values_of(dtype: str, count: int, seed: int) -> np.ndarray:
    """Small numbers of both signs, as float32 carries them where numpy has no type of its own."""
    numbers = np.random.default_rng(seed).integers(-40, 40, count)
    if is_float(dtype):
        numbers = numbers / 4
        return numbers.astype({"float64": np.float64, "float16": np.float16}.get(dtype, np.float32))
    return numbers.astype(dtype)


def combined(kind: str, x, y):
    functions = {
        "add": np.add,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "max": np.maximum,
        "min": np.minimum,
        "xchg": lambda _, y: y,
    }
    return functions[kind](x, y)


@pytest.mark.parametrize(("kind", "dtype"), PAIRS)
def test_each_kind_on_each_type(kind, dtype, device):
    n, block = 100, 128
    x, value = values_of(dtype, n, 1), values_of(dtype, n, 2)
    place = np.random.default_rng(3).permutation(n).astype(np.int32)
    memory = to_device(x, dtype, device)
    old = torch.full((block,), 7, dtype=torch.int32).to(TORCH[dtype]).to(device)
    apply_kernel[(1,)](memory, to_device(value, dtype, device), old, to_device(place, "int32", device), n,
                       KIND=kind, BLOCK=block)  # fmt: skip
    expected = x.copy()
    expected[place] = combined(kind, x[place], value)
    assert_same(to_host(memory), expected, kind, dtype)
    assert_same(to_host(old)[:n], x[place], kind, dtype)
    assert not to_host(old)[n:].any(), "where the mask does not hold the result is 0"


@pytest.mark.parametrize(("kind", "dtype"), [pair for pair in PAIRS if pair[0] != "xchg"])
def test_programs_and_elements_that_meet_at_one_address(kind, dtype, device):
    n, bins, block = 180, 7, 64
    x, value = values_of(dtype, bins, 4), values_of(dtype, n, 5)
    memory = to_device(x, dtype, device)
    contend_kernel[(3,)](memory, to_device(value, dtype, device), n, bins, KIND=kind, BLOCK=block)
    expected = x.copy()
    for i in range(n):
        expected[i % bins] = combined(kind, expected[i % bins], value[i])
    assert_same(to_host(memory), expected, kind, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_extrema_of_floats_are_in_total_order(dtype, device):
    """-NaN < -inf < … < -0.0 < 0.0 < … < inf < NaN, as the bits are in order."""
    numbers = torch.tensor([0.0, -0.0, 1.5, -1.5, float("inf"), -float("inf"), float("nan"), -float("nan")])
    numbers[-1] = torch.copysign(numbers[-1], torch.tensor(-1.0))
    numbers = numbers.to(TORCH[dtype])
    word = {16: torch.int16, 32: torch.int32, 64: torch.int64}[bits(dtype)]
    pairs = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    x, y = numbers[pairs[:, 0]], numbers[pairs[:, 1]]

    def key(numbers):
        raw = numbers.view(word).to(torch.int64)
        return torch.where(raw < 0, -(raw & (2 ** (bits(dtype) - 1) - 1)) - 1, raw)

    for kind in ("max", "min"):
        memory, old = x.clone().to(device), torch.zeros(64, dtype=TORCH[dtype], device=device)
        place = torch.arange(64, dtype=torch.int32, device=device)
        apply_kernel[(1,)](memory, y.to(device), old, place, 64, KIND=kind, BLOCK=64)
        takes_y = key(y) > key(x) if kind == "max" else key(y) < key(x)
        assert torch.equal(memory.cpu().view(word), torch.where(takes_y, y, x).view(word)), kind
        assert torch.equal(old.cpu().view(word), x.view(word)), kind


@triton.jit
def swap_kernel(x_ptr, expected_ptr, value_ptr, old_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    old = tl.atomic_cas(x_ptr + i, tl.load(expected_ptr + i), tl.load(value_ptr + i))
    tl.store(old_ptr + i, old)
    j = BLOCK + i[:, None] * 0 + tl.arange(0, 2)[None, :]
    tl.atomic_cas(x_ptr + j, 3, 4)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_compare_and_swap(dtype, device):
    block = 32
    x = values_of(dtype, block + 2, 6)
    x[block:] = [3, 5]
    expected, value = x[:block].copy(), values_of(dtype, block, 7)
    expected[::3] += 1
    memory, old = to_device(x, dtype, device), to_device(x[:block] * 0, dtype, device)
    swap_kernel[(1,)](
        memory, to_device(expected, dtype, device), to_device(value, dtype, device), old, BLOCK=block
    )
    after = x.copy()
    after[:block] = np.where(expected == x[:block], value, x[:block])
    after[block:] = [4, 5]
    assert_same(to_host(memory), after, dtype)
    assert_same(to_host(old), x[:block], dtype)


@triton.jit
def tickets_kernel(count_ptr, out_ptr, sums_ptr, N: tl.constexpr):
    pid = tl.program_id(0)
    first = tl.atomic_add(count_ptr, N)
    tl.store(out_ptr + first + tl.arange(0, N), pid)
    # A tile in a tile of programs: rows are shared, columns are not.
    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, N)[None, :]
    old = tl.atomic_add(sums_ptr + rows * N + columns, rows + 1)
    tl.store(out_ptr + tl.num_programs(0) * N + pid * 4 * N + rows * N + columns, old)
    # As methods, and with one address for a whole tile.
    place = (count_ptr + 1 + tl.zeros([N], tl.int32)).atomic_add(1)
    tl.store(out_ptr + tl.num_programs(0) * 5 * N + pid * N + tl.arange(0, N), place)


@pytest.mark.parametrize("warps", [1, 4])
def test_old_values_are_a_permutation(warps, device):
    programs, n = 6, 16
    count = torch.zeros(2, dtype=torch.int32, device=device)
    out = torch.full((programs * n * 6,), -1, dtype=torch.int32, device=device)
    sums = torch.zeros(4 * n, dtype=torch.int32, device=device)
    tickets_kernel[(programs,)](count, out, sums, N=n, num_warps=warps)
    assert count.tolist() == [programs * n] * 2
    blocks = out[: programs * n].view(programs, n).cpu()
    assert sorted(blocks[:, 0].tolist()) == list(range(programs))
    assert (blocks == blocks[:, :1]).all()
    olds = out[programs * n : programs * n * 5].view(programs, 4, n).cpu()
    for row in range(4):
        multiples = torch.arange(programs)[:, None].expand(programs, n) * (row + 1)
        assert torch.equal(olds[:, row].sort(dim=0).values, multiples.to(torch.int32))
    assert sorted(out[programs * n * 5 :].tolist()) == list(range(programs * n))


@triton.jit
def orders_kernel(x_ptr, y_ptr, out_ptr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    i = tl.arange(0, 32)
    tl.store(y_ptr + 31 - i, i)
    old = tl.atomic_add(x_ptr, 1, sem=SEM, scope=SCOPE)
    tl.atomic_xchg(x_ptr + 1 + i, old + i, sem=SEM, scope=SCOPE)
    swapped = tl.atomic_cas(x_ptr + 1 + i, i + 5, -i, sem=SEM, scope=SCOPE)
    tl.store(out_ptr + i, swapped + tl.load(y_ptr + i))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("sem", SEMANTICS)
def test_every_order_and_scope(sem, scope, device):
    x = torch.full((33,), 5, dtype=torch.int32, device=device)
    y, out = (
        torch.zeros(32, dtype=torch.int32, device=device),
        torch.zeros(32, dtype=torch.int32, device=device),
    )
    orders_kernel[(1,)](x, y, out, SEM=sem, SCOPE=scope)
    assert x.tolist() == [6, *(-i for i in range(32))]
    assert out.tolist() == [5 + 31] * 32


@triton.jit
def convert_kernel(x_ptr, y_ptr, m_ptr):
    # Values are converted and broadcast as those of a store; a mask may be a scalar.
    tl.atomic_add(x_ptr + tl.arange(0, 4), 2.9)
    tl.atomic_add(y_ptr + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], tl.arange(0, 4)[None, :])
    tl.atomic_add(m_ptr + tl.arange(0, 4), 1, mask=tl.program_id(0) == 1)
    tl.atomic_add(m_ptr, 10, mask=tl.program_id(0) == 0)
    tl.atomic_add(m_ptr + 1, 10, False)


def test_values_are_converted_and_broadcast(device):
    x = torch.zeros(4, dtype=torch.int32, device=device)
    y = torch.zeros(4, 4, dtype=torch.float16, device=device)
    m = torch.zeros(4, dtype=torch.int32, device=device)
    convert_kernel[(2,)](x, y, m)
    assert x.tolist() == [4] * 4
    assert torch.equal(y.cpu(), 2 * torch.arange(4).half().expand(4, 4))
    assert m.tolist() == [11, 1, 1, 1]


@triton.jit
def wide_kernel(x_ptr, value_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(x_ptr + i, tl.load(value_ptr + i), mask=i < n, sem="relaxed")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [512, 496, 493])
def test_sums_that_are_vectors_on_some_targets(n, dtype, device):
    """Several elements of a thread that lie together are one instruction, if the mask is the same for them."""
    x, value = values_of(dtype, 512, 8), values_of(dtype, 512, 9)
    memory = to_device(x, dtype, device)
    wide_kernel[(1,)](memory, to_device(value, dtype, device), n, BLOCK=512)
    expected = x.copy()
    expected[:n] += value[:n]
    assert_same(to_host(memory), expected, dtype, n)


@triton.jit
def lock_kernel(lock_ptr, x_ptr, count_ptr, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    # Other threads load what these store.
    tl.store(x_ptr + BLOCK - 1 - i, x * 3 + tl.load(count_ptr))
    tl.store(count_ptr, tl.load(count_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


@pytest.mark.parametrize("programs", [5, 40])
def test_a_lock_protects_what_all_threads_load_and_store(programs, device):
    lock, count = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
    x = torch.arange(64, dtype=torch.int32, device=device)
    lock_kernel[(programs,)](lock, x, count, BLOCK=64)
    expected = np.arange(64, dtype=np.int32)
    for count_before in range(programs):
        expected = (expected * np.int32(3) + np.int32(count_before))[::-1]
    assert (lock.item(), count.item()) == (0, programs)
    assert_same(to_host(x), expected)


@triton.jit
def barrier_kernel(count_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    pid, programs = tl.program_id(0), tl.num_programs(0)
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + pid * BLOCK + i, pid + i)
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1)
    while tl.atomic_add(count_ptr, 0) < programs:
        pass
    # The first programs read what the last ones wrote.
    other = programs - 1 - pid
    tl.store(out_ptr + pid * BLOCK + i, tl.load(x_ptr + other * BLOCK + i))


@pytest.mark.parametrize("programs", [3, 50])
def test_a_barrier_between_all_programs(programs, device):
    count = torch.zeros(1, dtype=torch.int32, device=device)
    x, out = (torch.zeros(programs, 32, dtype=torch.int32, device=device) for _ in range(2))
    barrier_kernel[(programs,)](count, x, out, BLOCK=32)
    expected = (programs - 1 - torch.arange(programs))[:, None] + torch.arange(32)[None, :]
    assert torch.equal(out.cpu(), expected.to(torch.int32))


def test_a_barrier_between_a_thousand_programs():
    count = torch.zeros(1, dtype=torch.int32)
    x, out = (torch.zeros(1000, 4, dtype=torch.int32) for _ in range(2))
    barrier_kernel[(1000,)](count, x, out, BLOCK=4)
    expected = (999 - torch.arange(1000))[:, None] + torch.arange(4)[None, :]
    assert torch.equal(out, expected.to(torch.int32))


@triton.jit
def pipeline_kernel(flag_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr, WAY: tl.constexpr):
    """Each program takes what the next one stores: the last one begins."""
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    if pid == tl.num_programs(0) - 1:
        x = i * 0
    else:
        if WAY == "poll":
            tl.atomic_poll(flag_ptr + pid + 1, 1)
        elif WAY == "load":
            while tl.atomic_load(flag_ptr + pid + 1) != 1:
                pass
        else:
            while tl.load(flag_ptr + pid + 1, volatile=True) != 1:
                pass
            tl.debug_barrier()
        x = tl.load(x_ptr + (pid + 1) * BLOCK + BLOCK - 1 - i)
    tl.store(x_ptr + pid * BLOCK + i, x + i)
    if WAY == "volatile":
        tl.debug_barrier()
        tl.atomic_xchg(flag_ptr + pid, 1)
    else:
        tl.atomic_store(flag_ptr + pid, 1)


@pytest.mark.parametrize("way", ["poll", "load", "volatile"])
def test_each_program_waits_for_one_that_begins_later(way, device):
    programs, block = 20, 32
    flags = torch.zeros(programs, dtype=torch.int32, device=device)
    x = torch.zeros(programs, block, dtype=torch.int32, device=device)
    pipeline_kernel[(programs,)](flags, x, x, BLOCK=block, WAY=way)
    row, rows = np.zeros(block, np.int32), []
    for _ in range(programs):
        row = row[::-1] + np.arange(block, dtype=np.int32)
        rows.append(row)
    assert_same(to_host(x), np.stack(rows[::-1]))


@triton.jit
def scan_kernel(x_ptr, out_ptr, sums_ptr, states_ptr, n, BLOCK: tl.constexpr):
    """A scan in one pass: a program looks back at the sums of those before it until one has its prefix."""
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + pid * BLOCK + i, mask=pid * BLOCK + i < n, other=0)
    total = tl.sum(x, 0)
    tl.store(sums_ptr + 2 * pid, total)
    tl.atomic_xchg(states_ptr + pid, 1 if pid > 0 else 0, sem="release")
    before = total * 0
    other = pid - 1
    while other >= 0:
        state = tl.atomic_add(states_ptr + other, 0, sem="acquire")
        if state == 2:
            before += tl.load(sums_ptr + 2 * other + 1)
            other = -1
        elif state == 1:
            before += tl.load(sums_ptr + 2 * other)
            other -= 1
    tl.store(sums_ptr + 2 * pid + 1, before + total)
    tl.atomic_xchg(states_ptr + pid, 2, sem="release")
    lower = i[None, :] <= i[:, None]
    prefix = tl.sum(tl.where(lower, x[None, :], 0), 1)
    tl.store(out_ptr + pid * BLOCK + i, before + prefix, mask=pid * BLOCK + i < n)


def test_a_scan_that_looks_back(device):
    n, block = 500, 32
    x = torch.randint(-50, 50, (n,), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    programs = triton.cdiv(n, block)
    out, sums = (
        torch.zeros_like(x, device=device),
        torch.zeros(2 * programs, dtype=torch.int32, device=device),
    )
    states = torch.zeros(programs, dtype=torch.int32, device=device)
    scan_kernel[(programs,)](x.to(device), out, sums, states, n, BLOCK=block)
    assert torch.equal(out.cpu(), x.cumsum(0).to(torch.int32))


@triton.jit
def split_kernel(a_ptr, b_ptr, c_ptr, K: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr):
    i, k = tl.arange(0, BLOCK), tl.program_id(0) * PART + tl.arange(0, PART)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * BLOCK + i[None, :])
    tl.atomic_add(c_ptr + i[:, None] * BLOCK + i[None, :], tl.dot(a, b))


def test_a_product_of_matrices_split_along_k(device):
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randint(-4, 5, shape, generator=generator).half() for shape in ((16, 64), (64, 16)))
    c = torch.zeros(16, 16, dtype=torch.float32, device=device)
    split_kernel[(4,)](a.to(device), b.to(device), c, K=64, PART=16, BLOCK=16)
    assert torch.equal(c.cpu(), a.float() @ b.float())


@triton.jit
def last_program_kernel(x_ptr, parts_ptr, count_ptr, out_ptr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """The program that ends last sums up the stores of all: no program waits."""
    pid = tl.program_id(0)
    tl.store(parts_ptr + pid, tl.sum(tl.load(x_ptr + pid * BLOCK + tl.arange(0, BLOCK)), 0))
    if tl.atomic_add(count_ptr, 1) == PROGRAMS - 1:
        tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, PROGRAMS)), 0))


def test_the_last_program_sees_what_all_have_stored(device):
    x = torch.arange(8 * 32, dtype=torch.int32, device=device)
    parts, count, out = (torch.zeros(n, dtype=torch.int32, device=device) for n in (8, 1, 1))
    last_program_kernel[(8,)](x, parts, count, out, BLOCK=32, PROGRAMS=8)
    assert out.item() == x.sum().item()


@triton.jit
def timeout_kernel(flag_ptr, out_ptr, timeout):
    tl.store(out_ptr, tl.atomic_poll(flag_ptr, 1, timeout_ns=0).to(tl.int32))
    tl.store(out_ptr + 1, tl.atomic_poll(flag_ptr, 1, sem="relaxed", timeout_ns=timeout).to(tl.int32))
    tl.store(out_ptr + 2, tl.atomic_poll(flag_ptr, 3, timeout_ns=0).to(tl.int32))
    tl.store(out_ptr + 3, flag_ptr.atomic_poll(3, scope="sys").to(tl.int32))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_poll_ends_at_the_value_or_in_time(dtype, device):
    flag = torch.full((1,), 3, dtype=torch.int32).to(TORCH[dtype]).to(device)
    out = torch.full((4,), -1, dtype=torch.int32, device=device)
    timeout_kernel[(1,)](flag, out, 20_000)
    assert out.tolist() == [0, 0, 1, 1]


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.atomic_load(x_ptr + i, mask=i < n)
    tl.atomic_store(out_ptr + i, x, mask=i < n)
    tl.atomic_store(out_ptr + BLOCK, tl.atomic_load(x_ptr), sem="relaxed", scope="cta")


@pytest.mark.parametrize("dtype", ["int1", "int8", "uint8", *INTEGERS, *FLOATS])
def test_atomic_loads_and_stores_of_every_type(dtype, device):
    x = values_of("int32", 64, 10) % 2 == 1 if dtype == "int1" else values_of(dtype, 64, 10)
    memory, out = to_device(x, dtype, device), to_device(np.concatenate([x, x[:1]]) * 0 == 1, dtype, device)
    out = torch.zeros(65, dtype=TORCH[dtype], device=device)
    copy_kernel[(1,)](memory, out, 50, BLOCK=64)
    expected = np.concatenate([x, x[:1]])
    expected[50:64] = 0
    assert_same(to_host(out), expected, dtype)


MISTAKES = {
    "sem": ("tl.atomic_add(x_ptr, 1, sem='sequential')", '`sem` of `atomic_add` cannot be "sequential"'),
    "scope": ("tl.atomic_add(x_ptr, 1, scope='warp')", '`scope` of `atomic_add` cannot be "warp"'),
    "load-sem": ("tl.atomic_load(x_ptr, sem='release')", '`sem` of `atomic_load` cannot be "release"'),
    "float-and": (
        "tl.atomic_and(x_ptr.to(tl.pointer_type(tl.float32)), 1)",
        "`atomic_and` does not support fp32",
    ),
    "int8": ("tl.atomic_add(x_ptr.to(tl.pointer_type(tl.int8)), 1)", "`atomic_add` does not support int8"),
    "int1": ("tl.atomic_cas(x_ptr.to(tl.pointer_type(tl.int1)), 1, 0)", "`atomic_cas` does not support int1"),
    "number": ("tl.atomic_add(1, 1)", "`atomic_add` takes a pointer or a tile of pointers"),
    "tile": ("tl.atomic_add(x_ptr, tl.arange(0, 4))", "cannot be stored through one pointer"),
    "mask": (
        "tl.atomic_add(x_ptr, 1, mask=tl.arange(0, 4) < 2)",
        "the mask has shape [4] and the pointer is a scalar",
    ),
    "poll": ("tl.atomic_poll(x_ptr + tl.arange(0, 4), 1)", "`atomic_poll` waits for one integer"),
    "time": ("tl.atomic_poll(x_ptr, 1, timeout_ns=1.5)", "`timeout_ns` is a number of nanoseconds"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(name):
    call, message = MISTAKES[name]
    head = "import tilewright as triton\nimport tilewright.language as tl\n\n\n"
    text = f"{head}@triton.jit\ndef kernel(x_ptr):\n    {call}\n"
    with pytest.raises(triton.CompilationError) as raised:
        module(text).kernel[(1,)](torch.zeros(4, dtype=torch.int32))
    assert message in error_text(raised.value)


@triton.jit
def outside_kernel(x_ptr, KIND: tl.constexpr):
    i = tl.arange(0, 8)
    if KIND == "add":
        tl.atomic_add(x_ptr + i, 1)
    elif KIND == "cas":
        tl.atomic_cas(x_ptr + i, 0, 1)
    elif KIND == "load":
        tl.atomic_load(x_ptr + i)
    elif KIND == "poll":
        tl.atomic_poll(x_ptr + 9, 1)
    else:
        tl.atomic_store(x_ptr + i, 1)


@pytest.mark.parametrize("kind", ["add", "cas", "load", "store", "poll"])
def test_what_is_outside_of_an_argument_is_refused_and_nothing_is_written(kind):
    x = torch.zeros(5, dtype=torch.int32)
    with pytest.raises(triton.errors.OutOfBoundsError, match="out of bounds of `x_ptr`"):
        outside_kernel[(1,)](x, KIND=kind)
    assert not x.any()


@triton.jit
def wait_forever_kernel(x_ptr):
    while tl.atomic_add(x_ptr, 0) == 0:
        pass


@pytest.mark.parametrize("programs", [1, 30])
def test_ctrl_c_ends_programs_that_wait_in_vain(programs, run, script):
    path = script(f"""
        import os, signal, threading, time
        import torch
        from test_atomics import wait_forever_kernel

        x = torch.zeros(1, dtype=torch.int32)
        try:
            # Wherever the signal comes, it is in here.
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            wait_forever_kernel[({programs},)](x)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    tests = ROOT / "tests/python"
    folders = [tests / "language", tests / "support", tests, os.environ.get("PYTHONPATH", "")]
    done = run(path, env={"PYTHONPATH": os.pathsep.join(map(str, folders))})
    assert done.out == "interrupted\n", done.err


SPINS = {
    "in the condition": "    while tl.load(flags + pid + 1) == 0:\n        pass\n",
    "carried": "    seen = tl.load(flags + pid + 1)\n    while seen == 0:\n        seen = tl.load(flags + pid + 1)\n",
    "volatile": "    while tl.load(flags + pid + 1, volatile=True) == 0:\n        pass\n",
    "counted": (
        "    count = 0\n    seen = 0\n    while seen != 1:\n        count += 1\n"
        "        seen = tl.load(flags + pid + 1, volatile=True)\n"
    ),
}


@pytest.mark.skipif(ON_GPU, reason="as many programs may be more than the GPU holds")
@pytest.mark.parametrize("form", SPINS)
def test_programs_wait_by_loads(form, device):
    """Each program waits for the next one; there are more programs than threads."""
    if "volatile" not in SPINS[form] and DEVICE != "cpu":
        pytest.skip("a GPU may keep what a plain load found")
    text = f"@triton.jit\ndef kernel(flags):\n    pid = tl.program_id(0)\n{SPINS[form]}    tl.store(flags + pid, 1)\n"
    flags = torch.zeros(41, dtype=torch.int32, device=device)
    flags[40] = 1
    module(text).kernel[(40,)](flags, num_warps=1)
    assert (flags == 1).all()
