"""Descriptors of tensors whose places a kernel loads: nothing else than the descriptor says how they are aligned."""

from __future__ import annotations

import os

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

IS_GPU = (os.environ.get("TILEWRIGHT_DEVICE") or "").startswith("sim:sm_90")


@triton.jit
def products(
    addresses, sizes, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, LOADED: tl.constexpr
):
    which = tl.program_id(0)
    if LOADED:
        M, N, K = tl.load(sizes + which * 4), tl.load(sizes + which * 4 + 1), tl.load(sizes + which * 4 + 2)
    stride = tl.load(sizes + which * 4 + 3)
    a_ptr = tl.load(addresses + which * 3).to(tl.pointer_type(tl.float16))
    b_ptr = tl.load(addresses + which * 3 + 1).to(tl.pointer_type(tl.float16))
    c_ptr = tl.load(addresses + which * 3 + 2).to(tl.pointer_type(tl.float32))
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride, 1], [BM, BN])
    for m in range(0, M, BM):
        for n in range(0, N, BN):
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for k in range(0, K, BK):
                acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
            c.store([m, n], acc)


@pytest.mark.parametrize("loaded", [False, True])
def test_products_of_loaded_matrices(device, loaded):
    shapes, stride = [(40, 24, 48), (16, 56, 40), (33, 17, 9)] if loaded else [(33, 48, 32)] * 2, 64
    generator = torch.Generator().manual_seed(9)

    def matrix(rows, dtype):
        return torch.randint(-3, 4, (rows, stride), generator=generator).to(dtype).to(device)

    halves, floats = torch.float16, torch.float32
    made = [(matrix(m, halves), matrix(n, halves), matrix(m, floats)) for m, n, _ in shapes]
    expected = []
    for (a, b, c), (_, n, k) in zip(made, shapes, strict=True):
        expected.append(c.double())
        expected[-1][:, :n] = a[:, :k].double() @ b[:, :k].double().T
    addresses = torch.tensor([[x.data_ptr() for x in of] for of in made], dtype=torch.int64, device=device)
    sizes = torch.tensor([[*shape, stride] for shape in shapes], dtype=torch.int32, device=device)
    handle = products[(len(shapes),)](
        addresses, sizes, *shapes[0], 32, 32, 32, loaded, num_warps=4, num_stages=3
    )
    for (_, _, c), right in zip(made, expected, strict=True):
        assert torch.equal(c.double(), right)
    if IS_GPU and not loaded:
        # Not an element at a time.
        assert "cp.async.bulk.tensor.2d.shared::cluster.global" in handle.asm["ptx"]
        assert "ld.global.b16" not in handle.asm["ptx"]


@triton.jit
def add_one(x_ptr, out_ptr, shift, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr + shift, [n], [1], [BLOCK])
    target = tl.make_tensor_descriptor(out_ptr + shift, [n], [1], [BLOCK])
    target.store([0], source.load([0]) + 1)


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_what_the_launch_gives_is_not_believed(device, shift):
    x = torch.arange(40, dtype=torch.float32).to(device)
    out = torch.zeros(40, device=device)
    add_one[(1,)](x, out, shift, 29, 32)
    expected = torch.zeros(40)
    expected[shift : shift + 29] = x.cpu()[shift : shift + 29] + 1
    assert torch.equal(out.cpu(), expected)
