"""Pointers loaded from memory, to every type; parameters that are `tl.const`; all hints of loads and stores."""

import numpy as np
import pytest
import torch
from helpers import DTYPES, assert_same, empty, moderate_values, module, sample, to_device, to_host
from helpers_errors import facts, failing

import tilewright as triton
import tilewright.language as tl

TYPES = {name: getattr(tl, name) for name in DTYPES}


@triton.jit
def by_address(addresses, out, DTYPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    one = tl.load(addresses + tl.program_id(0)).to(tl.pointer_type(DTYPE))
    tl.store(out + tl.program_id(0) * N + i, tl.load(one + i))
    both = tl.load(addresses + tl.arange(0, 2)).to(tl.pointer_type(DTYPE))
    tile = tl.load(both[:, None] + i[None, :], mask=(i < N - 1)[None, :], other=1)
    tl.store(out + 2 * N + tl.arange(0, 2)[:, None] * N + i[None, :], tile)


@pytest.mark.parametrize("address", [torch.int64, torch.uint64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pointers_in_memory_to_every_type(dtype, address, device):
    values = [np.resize(sample(dtype, 16, seed), 16) for seed in (1, 2)]
    tensors = [to_device(x, dtype, device) for x in values]
    addresses = torch.tensor([x.data_ptr() for x in tensors], dtype=torch.int64).view(address).to(device)
    out = empty((4, 16), dtype, device)
    by_address[(2,)](addresses, out, TYPES[dtype], 16)
    expected = np.stack(values * 2)
    expected[2:, 15] = 1
    assert_same(to_host(out), expected)


@triton.jit
def hinted(x, out, n, LOAD: tl.constexpr, STORE: tl.constexpr, EVICT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(
        x + i, mask=i < n, other=2, cache_modifier=LOAD, eviction_policy=EVICT, volatile=LOAD == ".cv"
    )
    first = tl.load(x, mask=n > 5, other=7.0, cache_modifier=LOAD)
    tl.store(out + i, a + first, mask=i < n, cache_modifier=STORE, eviction_policy=EVICT)


@pytest.mark.parametrize("evict", ["", "evict_first", "evict_last", "evict_normal"])
def test_hints_of_every_kind(evict, device):
    x = moderate_values("float32", 16, 1)
    given = to_device(x, "float32", device)
    for load in ("", ".ca", ".cg", ".cv", ".cs"):
        for store in ("", ".wb", ".cg", ".cs", ".wt"):
            if evict not in ("", "evict_first") and (load or store):
                continue
            for n in (16, 4):
                out = torch.zeros(16, device=device)
                hinted[(1,)](given, out, n, load, store, evict, 16)
                expected = np.zeros(16, np.float32)
                expected[:n] = x[:n] + (x[0] if n > 5 else np.float32(7))
                assert_same(to_host(out), expected, load, store, n)


@triton.jit
def reads_alone(x: tl.const, y, n: "tl.const", BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = x + i
    for _ in range(2):
        tl.store(y + i, tl.load(p, mask=i < tl.load(n)))
        p += 1


def test_a_constant_pointer_is_read(device):
    x = moderate_values("float32", 20, 1)
    out = torch.ones(16, device=device)
    n = torch.tensor([9], dtype=torch.int32, device=device)
    reads_alone[(1,)](to_device(x, "float32", device), out, n, 16)
    assert_same(to_host(out), np.where(np.arange(16) < 9, x[1:17], 0).astype(np.float32))


# Name: (parameters, lines of the kernel).
STORES = {
    "of a scalar": ("x: tl.const, y", "tl.store(«x», 1.0)"),
    "of a tile": ("x: tl.const, y", "tl.store(«x + tl.arange(0, 16)[:, None]», 1.0)"),
    "by text": ('x: "const *fp32", y', "tl.store(«x», 1.0)"),
    "in a loop": (
        "x: tl.const, y",
        "p = x\n    for i in range(3):\n        tl.store(«p», 1.0)\n        p += 1",
    ),
    "after a branch": (
        "x: tl.const, y",
        "p = y\n    if tl.program_id(0) > 0:\n        p = x + 1\n    tl.store(«p», 1.0)",
    ),
    "through a block pointer": (
        "x: tl.const, y",
        "p = tl.make_block_ptr(x, (16,), (1,), (0,), (16,), (0,))\n    tl.store(«p», 1.0, boundary_check=(0,))",
    ),
    "of a function's result": ("x: tl.const, y", "tl.store(«moved(x, 2)», 1.0)"),
    "in a tuple": ("x: tl.const, y", "t = (y, (x,))\n    tl.atomic_add(«t[1][0]», 1.0)"),
    "of a choice": ("x: tl.const, y", "tl.store(«tl.where(tl.load(y) > 0, x, y)», 1.0)"),
    "of a half": (
        "x: tl.const, y",
        "a, b = tl.split(x + tl.arange(0, 32).reshape(16, 2))\n    tl.store(«b», 1.0)",
    ),
    "of a slice": ("x: tl.const, y", "p = x + tl.arange(0, 32)\n    tl.store(«p[::2]», 1.0)"),
    "of gathered pointers": (
        "x: tl.const, y",
        "p = tl.gather(x + tl.arange(0, 16), 15 - tl.arange(0, 16), 0)\n    tl.store(«p», 1.0)",
    ),
    "through a descriptor": (
        "x: tl.const, y",
        "d = tl.make_tensor_descriptor(x, [16], [1], [16])\n    «d.store([0], tl.zeros((16,), tl.float32))»",
    ),
}


CALLED = """@triton.jit
def moved(p, n):
    return p + n


@triton.jit
def stores(p):
    # Of memory that may be written, this is right.
    tl.store(p, 1.0)


"""


def test_a_function_may_store_to_what_is_not_constant(device):
    x, y = torch.zeros(4, device=device), torch.zeros(4, device=device)
    text = f"{CALLED}@triton.jit\ndef kernel(x: tl.const, y):\n    tl.load(moved(x, 1))\n    stores(moved(y, 1))\n"
    module(text).kernel[(1,)](x, y)
    assert y.tolist() == [0, 1, 0, 0]


def test_a_function_stores_to_a_constant_pointer():
    text = f"{CALLED}@triton.jit\ndef kernel(x: tl.const, y):\n    stores(y)\n    stores(x)\n"
    found = failing(text.replace("store(p,", "store(«p»,"), torch.zeros(4), torch.zeros(4))
    assert found[0].code == "TW0013"
    assert "comes from `x`" in facts(found[0])


@pytest.mark.parametrize("name", STORES)
def test_a_store_to_a_constant_pointer_is_a_mistake(name):
    parameters, lines = STORES[name]
    text = f"{CALLED}@triton.jit\ndef kernel({parameters}):\n    {lines}\n"
    found = failing(text, torch.zeros(32), torch.zeros(32))
    assert found[0].code == "TW0013"
    assert "Cannot store to a constant pointer" in facts(found[0])
    assert "`x`" in facts(found[0]) or "declared `tl.const`" in facts(found[0])
