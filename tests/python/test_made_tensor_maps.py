"""Tensor descriptors that the host does not know: the kernel makes their tensor maps where the GPU copies by these."""

from __future__ import annotations

import pytest
import torch

import tilewright as triton
import tilewright.language as tl


def integers(generator, *shape, dtype=torch.float16):
    """Numbers whose products and sums are exact."""
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def table(tensors, device):
    """The addresses of tensors, a row each."""
    rows = [[tensor.data_ptr() for tensor in row] for row in tensors]
    return torch.tensor(rows, dtype=torch.int64, device=device)


def check_maps(handle, count):
    """How many maps the kernel makes where the target copies by them; others run the same programs by other means."""
    ptx = handle.asm.get("ptx", "")
    if ".target sm_90a" in ptx:
        assert ptx.count("tensormap.cp_fenceproxy") == count
        assert ("cp.async.bulk.tensor" in ptx) == (count > 0)


@triton.jit
def grouped(
    addresses_ptr, sizes_ptr, GROUPS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, IN: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    first = 0
    for group in range(GROUPS):
        M = tl.load(sizes_ptr + group * 6)
        N = tl.load(sizes_ptr + group * 6 + 1)
        K = tl.load(sizes_ptr + group * 6 + 2)
        tiles_n = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * tiles_n
        if tile >= first and tile < first + tiles:
            a_ptr = tl.load(addresses_ptr + group * 3).to(tl.pointer_type(IN))
            b_ptr = tl.load(addresses_ptr + group * 3 + 1).to(tl.pointer_type(IN))
            c_ptr = tl.load(addresses_ptr + group * 3 + 2).to(tl.pointer_type(tl.float32))
            stride_a = tl.load(sizes_ptr + group * 6 + 3)
            stride_b = tl.load(sizes_ptr + group * 6 + 4)
            stride_c = tl.load(sizes_ptr + group * 6 + 5)
            a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_a, 1], [BM, BK])
            if TRANSPOSED:
                b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride_b, 1], [BN, BK])
            else:
                b = tl.make_tensor_descriptor(b_ptr, [K, N], [stride_b, 1], [BK, BN])
            c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_c, 1], [BM, BN])
            while tile >= first and tile < first + tiles:
                row = (tile - first) // tiles_n * BM
                column = (tile - first) % tiles_n * BN
                acc = tl.zeros((BM, BN), dtype=tl.float32)
                for k in range(0, K, BK):
                    if TRANSPOSED:
                        acc = tl.dot(a.load([row, k]), b.load([column, k]).T, acc)
                    else:
                        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
                c.store([row, column], acc)
                tile += tl.num_programs(0)
        first += tiles


def run_grouped(device, shapes, dtype, transposed, blocks, warps, stages):
    generator = torch.Generator().manual_seed(17)
    made, sizes, expected = [], [], []
    for m, n, k in shapes:
        # Rows are longer than what is multiplied: what is behind it is not to be read as if it were there.
        stride_k, stride_n = (k + 47) // 16 * 16, (n + 47) // 16 * 16
        a = integers(generator, max(m, 1), stride_k)
        b = (
            integers(generator, max(n, 1), stride_k)
            if transposed
            else integers(generator, max(k, 1), stride_n)
        )
        c = integers(generator, max(m, 1), stride_n, dtype=torch.float32)
        right = b[:n, :k].double().T if transposed else b[:k, :n].double()
        expected.append(c.double())
        expected[-1][:m, :n] = a[:m, :k].double() @ right
        made.append([a.to(dtype).to(device), b.to(dtype).to(device), c.to(device)])
        sizes.append([m, n, k, stride_k, b.stride(0), stride_n])
    sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
    handle = grouped[(2,)](
        table(made, device), sizes, len(shapes), *blocks, getattr(tl, str(dtype).removeprefix("torch.")),
        transposed, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    for (_, _, c), right in zip(made, expected, strict=True):
        assert torch.equal(c.cpu().double(), right)
    return handle


@pytest.mark.parametrize(
    ("dtype", "transposed", "blocks", "warps", "stages", "maps"),
    [
        (torch.float16, True, (64, 32, 32), 4, 3, 3),
        (torch.float16, False, (64, 64, 64), 4, 2, 3),
        (torch.bfloat16, False, (64, 128, 32), 8, 3, 3),
        (torch.float32, True, (32, 32, 32), 4, 2, 3),
        # Its operands do not go through shared memory.
        (torch.float16, True, (16, 16, 16), 1, 1, 1),
    ],
)
def test_products_of_different_sizes(device, dtype, transposed, blocks, warps, stages, maps):
    shapes = [(70, 40, 72), (64, 64, 32), (1, 33, 65), (17, 130, 8)]
    handle = run_grouped(device, shapes, dtype, transposed, blocks, warps, stages)
    check_maps(handle, maps)


def test_products_of_nothing(device):
    # A tensor of no rows is none that a map describes; so is one of no columns, which is 0.
    shapes = [(40, 32, 16), (0, 32, 16), (24, 24, 0), (24, 0, 16), (33, 17, 24)]
    handle = run_grouped(device, shapes, torch.float16, True, (32, 32, 32), 4, 3)
    check_maps(handle, 3)


@triton.jit
def of_one_list(
    addresses_ptr, out_ptr, M, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    which = tl.program_id(0)
    a_ptr = tl.load(addresses_ptr + which * 2).to(tl.pointer_type(tl.float16))
    b_ptr = tl.load(addresses_ptr + which * 2 + 1).to(tl.pointer_type(tl.float16))
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride, 1], [BN, BK])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([0, k]), b.load([0, k]).T, acc)
    rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    tl.store(out_ptr + which * BM * BN + rows * BN + columns, acc)


def test_each_program_makes_its_maps(device):
    # More programs than there are places of a multiprocessor, each with other matrices.
    programs, m, n, k, stride = 9, 30, 27, 50, 64
    generator = torch.Generator().manual_seed(5)
    made = [(integers(generator, m, stride), integers(generator, n, stride)) for _ in range(programs)]
    made = [[a.to(device), b.to(device)] for a, b in made]
    out = torch.zeros(programs, 32, 32, device=device)
    handle = of_one_list[(programs,)](table(made, device), out, m, n, k, stride, 32, 32, 16, num_warps=4)
    for (a, b), found in zip(made, out.cpu(), strict=True):
        expected = a[:, :k].double().cpu() @ b[:, :k].double().cpu().T
        assert torch.equal(found[:m, :n].double(), expected)
        assert not found[m:].any()
        assert not found[:, n:].any()
    check_maps(handle, 2)


@triton.jit
def chained(addresses_ptr, sizes_ptr, STEPS, B: tl.constexpr):
    for step in range(STEPS):
        a_ptr = tl.load(addresses_ptr + step * 3).to(tl.pointer_type(tl.float16))
        b_ptr = tl.load(addresses_ptr + step * 3 + 1).to(tl.pointer_type(tl.float16))
        c_ptr = tl.load(addresses_ptr + step * 3 + 2).to(tl.pointer_type(tl.float16))
        n = tl.load(sizes_ptr + step)
        a = tl.make_tensor_descriptor(a_ptr, [n, n], [n, 1], [B, B])
        b = tl.make_tensor_descriptor(b_ptr, [n, n], [n, 1], [B, B])
        c = tl.make_tensor_descriptor(c_ptr, [n, n], [n, 1], [B, B])
        for row in range(0, n, B):
            for column in range(0, n, B):
                acc = tl.zeros((B, B), dtype=tl.float32)
                for k in range(0, n, B):
                    acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
                c.store([row, column], (acc.to(tl.int32) % 4).to(tl.float16))


def test_copies_see_what_was_stored(device):
    # Each product is multiplied with in the next step, which reads it by another map.
    generator = torch.Generator().manual_seed(3)
    n = 64
    factor = integers(generator, n, n).to(device)
    results = [integers(generator, n, n).to(device)]
    results += [torch.zeros(n, n, dtype=torch.float16, device=device) for _ in range(3)]
    expected = [results[0].cpu().double()]
    steps = [[results[step], factor, results[step + 1]] for step in range(3)]
    for _ in steps:
        product = (expected[-1] @ factor.cpu().double()).to(torch.int64)
        expected.append(torch.fmod(product, 4).double())
    sizes = torch.full((3,), n, dtype=torch.int32, device=device)
    handle = chained[(1,)](table(steps, device), sizes, 3, 32, num_warps=4, num_stages=3)
    for found, right in zip(results, expected, strict=True):
        assert torch.equal(found.cpu().double(), right)
    check_maps(handle, 3)
