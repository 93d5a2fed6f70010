"""Loops that are software-pipelined: every number of stages gives what the program says, whatever feeds products."""

import random

import pytest
import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, OTHER: tl.constexpr, MASK: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    a_ptrs = a_ptr + rows[:, None] * am + depth[None, :] * ak
    b_ptrs = b_ptr + depth[:, None] * bk + cols[None, :] * bn
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        if MASK:
            a = tl.load(a_ptrs, mask=(rows[:, None] < m) & (depth[None, :] < k - start), other=OTHER)
            b = tl.load(b_ptrs, mask=(depth[:, None] < k - start) & (cols[None, :] < n), other=0.0)
        else:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += K * ak
        b_ptrs += K * bk
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc, mask=(rows[:, None] < m) & (cols[None, :] < n))


def small_integers(shape, dtype, seed):
    """Integers whose sums of products are exact in fp32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


def cases():
    """Random tiles, sizes, types, orders in memory, masks, stages and warps."""
    random_ = random.Random(11)
    for seed in range(24):
        dtype = random_.choice([torch.float16, torch.bfloat16, torch.float32])
        tile = [random_.choice([16, 32, 64]) for _ in range(3)]
        iterations = random_.randint(0, 6)
        mask = random_.random() < 0.6
        other = random_.choice([0.0, 0.0, 2.0])
        size = [tile[0], tile[1], tile[2] * iterations]
        if mask:
            size = [max(1, extent - random_.randint(0, 9)) for extent in size]
            size[2] = max(0, tile[2] * iterations - random_.randint(0, 9))
        transposed = random_.random() < 0.5, random_.random() < 0.5
        skew = random_.choice([0, 0, 1, 2, 4])
        stages, warps = random_.choice([1, 2, 2, 3, 3, 4, 5]), random_.choice([1, 2, 4, 8])
        yield pytest.param(
            dtype, tile, size, transposed, (mask, other), skew, stages, warps, seed,
            id=f"{seed}-{str(dtype)[6:]}-{'x'.join(map(str, tile))}-{stages}",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "tile", "size", "transposed", "masks", "skew", "stages", "warps", "seed"), list(cases())
)
def test_random_products(device, dtype, tile, size, transposed, masks, skew, stages, warps, seed):
    m, n, k = size
    mask, other = masks
    a, b = small_integers((m, k), dtype, seed), small_integers((k, n), dtype, seed + 1)
    expected = a.double() @ b.double()

    def placed(x, is_transposed):
        # A row may begin anywhere.
        rows, cols = (x.shape[1], x.shape[0]) if is_transposed else x.shape
        memory = torch.zeros(rows * (cols + skew) + skew, dtype=dtype, device=device)
        view = memory[skew:].view(rows, cols + skew)[:, :cols] if rows else memory[:0].view(rows, cols)
        view = view.T if is_transposed else view
        view.copy_(x)
        return view

    a, b = placed(a, transposed[0]), placed(b, transposed[1])
    c = torch.zeros(m, n, device=device)
    grid = triton.cdiv(m, tile[0]), triton.cdiv(n, tile[1])
    matmul[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), other, mask, *tile, num_stages=stages, num_warps=warps
    )
    assert torch.equal(c.cpu().double(), expected)


@triton.jit
def quantized(a_ptr, b_ptr, scale_ptr, c_ptr, n_blocks, N: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for block in range(n_blocks):
        a = tl.load(a_ptr + rows[:, None] * (n_blocks * K) + block * K + depth[None, :])
        b = tl.load(b_ptr + (block * K + depth)[:, None] * N + cols[None, :])
        scale = tl.load(scale_ptr + block * N + cols)
        acc = tl.dot(a, b.to(tl.float16) * scale[None, :], acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_quantized_weights(device, stages):
    m, n, k, blocks = 16, 64, 32, 5
    a = small_integers((m, k * blocks), torch.float16, 1)
    b = small_integers((k * blocks, n), torch.int8, 2)
    scale = small_integers((blocks, n), torch.float16, 3)
    c = torch.zeros(m, n, device=device)
    quantized[(1,)](*(x.to(device) for x in (a, b, scale)), c, blocks, n, m, k, num_stages=stages)
    expected = a.double() @ (b.double() * scale.double().repeat_interleave(k, 0))
    assert torch.equal(c.cpu().double(), expected)


@triton.jit
def paged(
    q_ptr, k_ptr, table_ptr, rows_ptr, out_ptr, n_pages, M: tl.constexpr, P: tl.constexpr, D: tl.constexpr
):
    rows, page, columns = tl.arange(0, M), tl.arange(0, P), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + columns[None, :])
    for i in range(n_pages):
        # A page of the table, and rows of the page in an order of their own.
        number = tl.load(table_ptr + i)
        row = tl.load(rows_ptr + number * P + page)
        k = tl.load(k_ptr + (number * P + row)[:, None] * D + columns[None, :])
        scores = tl.dot(q, tl.trans(k))
        tl.store(out_ptr + rows[:, None] * (n_pages * P) + i * P + page[None, :], scores)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("n_pages", [0, 1, 6])
def test_paged(device, stages, n_pages):
    m, p, d, pages = 32, 16, 64, 8
    generator = torch.Generator().manual_seed(stages)
    q, k = small_integers((m, d), torch.float16, 5), small_integers((pages * p, d), torch.float16, 6)
    table = torch.randint(0, pages, (max(n_pages, 1),), generator=generator, dtype=torch.int32)[:n_pages]
    rows = torch.stack([torch.randperm(p, generator=generator) for _ in range(pages)]).to(torch.int32)
    out = torch.zeros(m, max(n_pages, 1) * p, device=device)
    paged[(1,)](*(x.to(device) for x in (q, k, table, rows)), out, n_pages, m, p, d, num_stages=stages)
    for i, number in enumerate(table.tolist()):
        page = k[number * p :][rows[number].long()]
        assert torch.equal(out[:, i * p : (i + 1) * p].cpu().double(), q.double() @ page.double().T)


@triton.jit
def asked_for(x_ptr, y_ptr, out_ptr, first, end, step, N: tl.constexpr, STAGES: tl.constexpr):
    columns = tl.arange(0, N)
    total = tl.zeros((N,), dtype=tl.float32)
    for row in tl.range(first, end, step, num_stages=STAGES):
        x = tl.load(x_ptr + row * N + columns, mask=columns < N - 3, other=-1.0)
        y = tl.load(y_ptr + row * N + columns)
        total = total * 2 + x + tl.sum(y, 0)
    tl.store(out_ptr + columns, total)


@pytest.mark.parametrize(
    "bounds", [(0, 7, 1), (0, 7, 3), (6, -1, -1), (5, 0, -2), (3, 3, 1), (0, 1, 1), (2, 100, 99)]
)
@pytest.mark.parametrize("stages", [2, 4])
def test_loops_without_products(device, stages, bounds):
    n = 64
    x, y = small_integers((8, n), torch.float32, 7), small_integers((8, n), torch.float16, 8)
    out = torch.zeros(n, device=device)
    asked_for[(1,)](x.to(device), y.to(device), out, *bounds, n, stages)
    x[:, -3:] = -1
    total = torch.zeros(n)
    for row in range(*bounds):
        total = total * 2 + x[row] + y[row].float().sum()
    assert torch.equal(out.cpu(), total)


@triton.jit
def at_the_end_of_int32(x_ptr, out_ptr, first, end, STEP: tl.constexpr, N: tl.constexpr):
    columns = tl.arange(0, N)
    total = tl.zeros((N,), dtype=tl.float32)
    for i in tl.range(first, end, STEP, num_stages=4):
        total += tl.load(x_ptr + columns) + (i // STEP == 0)
        x_ptr += N
    tl.store(out_ptr + columns, total)


@pytest.mark.parametrize(
    ("first", "end", "step"),
    [
        (2**31 - 4, 2**31 - 1, 1),
        (2**31 - 9, 2**31 - 1, 5),
        (3 - 2**31, -(2**31), -1),
        (-(2**31), 2**31 - 1, 2**30),
    ],
)
def test_counters_that_would_overflow(device, first, end, step):
    count = len(range(first, end, step))
    # Nothing but what the program loads is there to be loaded.
    x = small_integers((count, 64), torch.float32, 9).to(device)
    out = torch.zeros(64, device=device)
    at_the_end_of_int32[(1,)](x, out, first, end, step, 64)
    zeros = sum(abs(i) < abs(step) for i in range(first, end, step))
    assert torch.equal(out.cpu(), x.cpu().sum(0) + zeros)


@triton.jit
def reads_what_it_writes(x_ptr, n, N: tl.constexpr):
    columns = tl.arange(0, N)
    for i in tl.range(0, n, num_stages=3):
        x = tl.load(x_ptr + i * N + columns)
        tl.store(x_ptr + (i + 1) * N + columns, x * 2)


def test_a_loop_that_reads_what_it_writes(device):
    x = torch.ones(9, 64, device=device)
    reads_what_it_writes[(1,)](x, 8, 64, num_warps=1)
    assert torch.equal(x.cpu(), (2.0 ** torch.arange(9))[:, None].expand(9, 64))


@triton.jit
def persistent(a_ptr, b_ptr, c_ptr, n_tiles, k, N: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        a_ptrs = a_ptr + (tile * M + rows)[:, None] * k + depth[None, :]
        acc = tl.zeros((M, N), dtype=tl.float32)
        for start in tl.range(0, k, K, num_stages=3):
            a = tl.load(a_ptrs + start)
            b = tl.load(b_ptr + (start + depth)[:, None] * N + cols[None, :])
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + (tile * M + rows)[:, None] * N + cols[None, :], acc)


def test_a_loop_in_a_loop(device):
    m, n, k, tiles = 32, 32, 96, 5
    a = small_integers((m * tiles, k), torch.bfloat16, 1)
    b = small_integers((k, n), torch.bfloat16, 2)
    c = torch.zeros(m * tiles, n, device=device)
    persistent[(2,)](a.to(device), b.to(device), c, tiles, k, n, m, 32)
    assert torch.equal(c.cpu().double(), a.double() @ b.double())


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, bias_ptr, out_ptr, n, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + columns[None, :])
    highest = tl.full((M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    acc = tl.zeros((M, D), dtype=tl.float32)
    for start in range(0, n, N):
        keys = start + tl.arange(0, N)
        k = tl.load(k_ptr + keys[:, None] * D + columns[None, :], mask=keys[:, None] < n, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * 0.125
        scores += tl.load(
            bias_ptr + rows[:, None] * n + keys[None, :], mask=keys[None, :] < n, other=float("-inf")
        )
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_highest[:, None])
        correction = tl.exp(highest - new_highest)
        total = total * correction + tl.sum(weights, axis=1)
        v = tl.load(v_ptr + keys[:, None] * D + columns[None, :], mask=keys[:, None] < n, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])
        highest = new_highest
    tl.store(out_ptr + rows[:, None] * D + columns[None, :], acc / total[:, None])


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_attention(device, stages):
    m, n, d = 32, 80, 64
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(rows, d, generator=generator).to(torch.float16) for rows in (m, n, n))
    bias = torch.randn(m, n, generator=generator)
    out = torch.zeros(m, d, device=device)
    attention[(1,)](*(x.to(device) for x in (q, k, v, bias)), out, n, m, 32, d, num_stages=stages)
    weights = torch.softmax(q.double() @ k.double().T * 0.125 + bias.double(), 1)
    torch.testing.assert_close(out.cpu().double(), weights @ v.double(), atol=3e-3, rtol=0)


@triton.jit
def few_rows(
    x_ptr, w_ptr, scales_ptr, y_ptr, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Rows wrap around: a tile of one row loads it again and again. A few scales beside each tile of weights."""
    rows = tl.arange(0, M) % m
    cols = tl.program_id(0) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for i in range(tl.cdiv(k, K)):
        at = i * K + depth
        x = tl.load(x_ptr + rows[:, None] * k + at[None, :], mask=at[None, :] < k, other=0.0)
        w = tl.load(w_ptr + at[:, None] * n + cols[None, :], mask=at[:, None] < k, other=0)
        scales = tl.load(scales_ptr + i * n + cols)
        acc = tl.dot(x, w.to(x.dtype) * scales[None, :], acc)
    tl.store(y_ptr + tl.arange(0, M)[:, None] * n + cols[None, :], acc, mask=tl.arange(0, M)[:, None] < m)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("m", [1, 3])
def test_few_rows_and_few_scales(device, m, dtype):
    # From fewer scales than a warp has lanes to as many as a block has threads.
    for n_tile, stages, warps, k in ((16, 3, 1, 80), (32, 4, 4, 96), (128, 2, 4, 64), (64, 3, 2, 33)):
        n, depth = 2 * n_tile, 32
        x = small_integers((m, k), dtype, 1)
        w = small_integers((k, n), torch.int8, 2)
        scales = small_integers((-(-k // depth), n), dtype, 3)
        y = torch.full((m, n), float("nan"), device=device)
        placed = [each.to(device) for each in (x, w, scales)]
        few_rows[(2,)](*placed, y, m, n, k, M=16, N=n_tile, K=depth, num_stages=stages, num_warps=warps)
        wide = w.double() * scales.double().repeat_interleave(depth, 0)[:k]
        assert torch.equal(y.cpu().double(), x.double() @ wide), (n_tile, stages, warps, k)
