"""Programs that are divided between the blocks of a cluster (`num_ctas`), and those that cannot be."""

import pytest
import torch
from conftest import DEVICE

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

HAS_CLUSTERS = "sm_90" in DEVICE or DEVICE.startswith("cuda")


def expect_blocks(kernel, count):
    """How many blocks a program was divided between, on a device that has clusters."""
    found = (kernel.metadata.num_ctas, kernel.metadata.cluster_dims)
    assert found == ((count, (count, 1, 1)) if HAS_CLUSTERS else (1, (1, 1, 1)))


def expect_shared(kernel, is_shared=True):
    """Checks whether the blocks copy once the data that all of them need."""
    if HAS_CLUSTERS:
        assert (".multicast::cluster" in kernel.asm["ptx"]) == is_shared


@triton.jit
def place(M, N, GRID: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Which tile a program has, by one, two or three axes of the grid."""
    if GRID == 1:
        tiles = tl.cdiv(N, BLOCK_N)
        return tl.program_id(0) // tiles, tl.program_id(0) % tiles
    elif GRID == 2:
        return tl.program_id(0), tl.program_id(1)
    else:
        return tl.program_id(2), tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)


@triton.jit
def product(
    a_ptr, b_ptr, bias_ptr, c_ptr, sums_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    GRID: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    BIAS: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """C = A @ B [+ bias] of any size, and the sums of its rows or columns in each tile."""
    pid_m, pid_n = place(M, N, GRID, BLOCK_M, BLOCK_N)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * stride_bk + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    if BIAS:
        acc += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :].to(tl.float32)
    if SUMS == "rows":
        tl.atomic_add(sums_ptr + rows, tl.sum(acc, 1), mask=rows < M)
    elif SUMS == "columns":
        tl.atomic_add(sums_ptr + columns, tl.sum(acc, 0), mask=columns < N)
    if SUMS == "":
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(
            c_ptr + rows[:, None] * stride_cm + columns[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask
        )


def multiply(device, shape, blocks, grid=1, dtype=torch.float16, bias=False, sums="", **options):
    """Runs a product and compares it with torch's; gives the kernel."""
    (m, n, k), (block_m, block_n, block_k) = shape, blocks
    a, b = (torch.randn(size).to(dtype) for size in ((m, k), (k, n)))
    added = torch.randn(n).to(torch.float16)
    expected = a.double() @ b.double() + (added.double() if bias else 0.0)
    c = torch.full((m, n), float("nan"), dtype=torch.float32, device=device)
    total = torch.zeros(m if sums == "rows" else n, dtype=torch.float32, device=device)
    tiles = (-(-m // block_m), -(-n // block_n))
    grids = {1: (tiles[0] * tiles[1],), 2: tiles, 3: (tiles[1], 1, tiles[0])}
    a, b, added = (x.to(device) for x in (a, b, added))
    kernel = product[grids[grid]](
        a, b, added, c, total, m, n, k, a.stride(0), b.stride(0), c.stride(0),
        grid, block_m, block_n, block_k, bias, sums, **options,
    )  # fmt: skip
    if sums:
        expected, c = expected.sum(1 if sums == "rows" else 0), total
    torch.testing.assert_close(c.double().cpu(), expected, rtol=2e-3, atol=2e-2)
    return kernel


@pytest.mark.parametrize("grid", [1, 2, 3])
@pytest.mark.parametrize("ctas", [2, 4])
def test_a_product_is_divided_whatever_the_grid(ctas, grid, device):
    kernel = multiply(device, (256, 384, 128), (128, 128, 64), grid, num_ctas=ctas)
    expect_blocks(kernel, ctas)


@pytest.mark.parametrize(("blocks", "ctas", "warps"), [
    ((256, 256, 64), 2, 8), ((256, 128, 64), 2, 4), ((128, 256, 64), 2, 8), ((256, 256, 64), 4, 4),
    ((64, 64, 32), 4, 4), ((32, 256, 32), 8, 4), ((256, 32, 32), 8, 1),
])  # fmt: skip
def test_rows_or_columns_are_divided(blocks, ctas, warps, device):
    kernel = multiply(device, (272, 264, 200), blocks, num_ctas=ctas, num_warps=warps)
    expect_blocks(kernel, ctas)


@pytest.mark.parametrize("shape", [(1, 1, 1), (129, 131, 67), (300, 100, 33)])
def test_odd_sizes(shape, device):
    expect_blocks(multiply(device, shape, (128, 128, 64), num_ctas=2), 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_elements_of_other_types(dtype, device):
    expect_blocks(multiply(device, (144, 160, 96), (128, 128, 32), dtype=dtype, num_ctas=2), 2)


@pytest.mark.parametrize("sums", ["", "rows", "columns"])
def test_epilogues_divide_the_axis_that_they_leave(sums, device):
    """The sums of rows need all columns, so rows are divided even where columns are more, and the other way round."""
    for blocks in ((128, 256, 32), (256, 128, 32)):
        expect_blocks(
            multiply(device, (256, 256, 64), blocks, bias=True, sums=sums, num_ctas=2, num_warps=8), 2
        )


@pytest.mark.parametrize(("blocks", "ctas"), [
    ((256, 256, 64), 2), ((256, 512, 64), 4), ((512, 256, 64), 4), ((128, 128, 64), 2),
])  # fmt: skip
@pytest.mark.parametrize("depth", [8, 64, 200, 520])
def test_what_all_blocks_need_is_copied_once(blocks, ctas, depth, device):
    """Loops shorter and longer than the ring."""
    kernel = multiply(device, (520, 264, depth), blocks, num_ctas=ctas, num_warps=8, num_stages=3)
    expect_blocks(kernel, ctas)
    expect_shared(kernel)


def test_what_threads_read_each_block_copies(device):
    """The arrivals that hand slots over to other blocks do not order what threads read."""
    kernel = multiply(device, (256, 256, 128), (128, 64, 32), dtype=torch.float32, num_ctas=2)
    expect_blocks(kernel, 2)
    expect_shared(kernel, False)


@triton.jit
def by_descriptors(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """C = A @ B.T by a few programs with many tiles each."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles_n, tl.num_programs(0), flatten=True):
        row, column = tile // tiles_n * BLOCK_M, tile % tiles_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            acc = tl.dot(a_desc.load([row, k * BLOCK_K]), b_desc.load([column, k * BLOCK_K]).T, acc)
        c_desc.store([row, column], acc.to(c_desc.dtype))


@pytest.mark.parametrize(("ctas", "blocks"), [(2, (128, 128, 64)), (2, (256, 256, 64)), (4, (256, 128, 32))])
def test_descriptors_in_persistent_programs(ctas, blocks, device):
    m, n, k = 520, 504, 200
    a, b = (torch.randn(size).to(torch.float16).to(device) for size in ((m, k), (n, k)))
    c = torch.full((m, n), float("nan"), dtype=torch.float16, device=device)
    kernel = by_descriptors[(3,)](a, b, c, m, n, k, *blocks, num_ctas=ctas, num_warps=8)
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=1e-2, atol=5e-2)
    expect_blocks(kernel, ctas)


@triton.jit
def by_given_descriptors(
    a_desc, b_desc, c_desc, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """C = A @ B.T, a tile a program, with descriptors that the launch gives."""
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        acc = tl.dot(a_desc.load([row, k * BLOCK_K]), b_desc.load([column, k * BLOCK_K]).T, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@pytest.mark.parametrize(("ctas", "blocks"), [(2, (256, 256, 64)), (4, (512, 256, 64))])
def test_descriptors_of_the_launch(ctas, blocks, device):
    m, n, k = 520, 504, 200
    a, b = (torch.randn(size).to(torch.float16).to(device) for size in ((m, k), (n, k)))
    c = torch.full((m, n), float("nan"), dtype=torch.float16, device=device)
    make = TensorDescriptor.from_tensor
    block_m, block_n, block_k = blocks
    grid = (-(-m // block_m), -(-n // block_n))
    descriptors = make(a, [block_m, block_k]), make(b, [block_n, block_k]), make(c, [block_m, block_n])
    kernel = by_given_descriptors[grid](*descriptors, k, *blocks, num_ctas=ctas, num_warps=8)
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=1e-2, atol=5e-2)
    expect_blocks(kernel, ctas)
    expect_shared(kernel)


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, COUNT: tl.constexpr, HEAD: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The forward pass for one head a program along axis 1."""
    start = tl.program_id(1) * COUNT * HEAD
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inner = tl.arange(0, BLOCK_N)
    head = tl.arange(0, HEAD)
    q = tl.load(q_ptr + start + rows[:, None] * HEAD + head[None, :])
    most = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], tl.float32)
    end = (tl.program_id(0) + 1) * BLOCK_M if CAUSAL else COUNT
    for first in range(0, end, BLOCK_N):
        k = tl.load(k_ptr + start + (first + inner)[None, :] * HEAD + head[:, None])
        scores = tl.dot(q, k) * (1.44269504 / HEAD**0.5)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= first + inner[None, :], scores, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        weights = tl.math.exp2(scores - new[:, None])
        factor = tl.math.exp2(most - new)
        total = total * factor + tl.sum(weights, 1)
        v = tl.load(v_ptr + start + (first + inner)[:, None] * HEAD + head[None, :])
        acc = tl.dot(weights.to(v.dtype), v, acc * factor[:, None])
        most = new
    tl.store(
        o_ptr + start + rows[:, None] * HEAD + head[None, :],
        (acc / total[:, None]).to(o_ptr.dtype.element_ty),
    )
    tl.store(lse_ptr + tl.program_id(1) * COUNT + rows, most + tl.math.log2(total))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ctas", [2, 4])
def test_attention_is_divided_by_its_queries(ctas, causal, device):
    heads, count, head = 2, 256, 64
    q, k, v = (torch.randn(heads, count, head).to(torch.float16).to(device) for _ in range(3))
    o = torch.full_like(q, float("nan"))
    lse = torch.full((heads, count), float("nan"), device=device)
    kernel = attention[(count // 128, heads)](q, k, v, o, lse, count, head, 128, 64, causal, num_ctas=ctas)
    scores = q.double() @ k.double().transpose(1, 2) / head**0.5
    if causal:
        scores = scores.masked_fill(torch.ones(count, count, device=device).triu(1).bool(), -float("inf"))
    torch.testing.assert_close(o.double(), scores.softmax(2) @ v.double(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(lse.double(), scores.logsumexp(2) * 1.44269504, rtol=1e-3, atol=1e-3)
    expect_blocks(kernel, ctas)
    # In four blocks, each warpgroup has 32 rows: too few for the instructions that read what others have copied.
    expect_shared(kernel, ctas == 2)


@triton.jit
def once(a_ptr, c_ptr, count_ptr, total_ptr, SIZE: tl.constexpr):
    """Statements without an axis to be divided along run once: a count of programs, and a mark for each."""
    numbers = tl.arange(0, SIZE)
    places = numbers[:, None] * SIZE + numbers[None, :]
    a = tl.load(a_ptr + places)
    tl.store(c_ptr + places, tl.dot(a, a, input_precision="ieee"))
    tl.atomic_add(count_ptr, 1, sem="relaxed")
    tl.store(total_ptr + tl.program_id(0), tl.program_id(0) * 1000 + tl.num_programs(0))


@pytest.mark.parametrize("ctas", [2, 4])
def test_what_has_no_axis_is_done_by_the_first_block(ctas, device):
    a = torch.randn(64, 64).to(torch.float32).to(device)
    c, count = torch.zeros(64, 64, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    total = torch.zeros(5, dtype=torch.int32, device=device)
    kernel = once[(5,)](a, c, count, total, 64, num_ctas=ctas)
    torch.testing.assert_close(c.double(), a.double() @ a.double(), rtol=1e-4, atol=1e-4)
    assert (count.tolist(), total.tolist()) == ([5], [number * 1000 + 5 for number in range(5)])
    expect_blocks(kernel, ctas)


@triton.jit
def whole(a_ptr, c_ptr, out_ptr, lock_ptr, CASE: tl.constexpr, SIZE: tl.constexpr):
    """A product, and something that the blocks of a program would have to ask each other for."""
    numbers = tl.arange(0, SIZE)
    places = numbers[:, None] * SIZE + numbers[None, :]
    a = tl.load(a_ptr + places)
    c = tl.dot(a, a, input_precision="ieee")
    if CASE == "sum":
        tl.store(out_ptr, tl.sum(c))
    elif CASE == "sort":
        c = tl.sort(tl.reshape(c, [SIZE * SIZE]))
        tl.store(out_ptr + tl.arange(0, SIZE * SIZE), c)
    elif CASE == "chain":
        tl.store(
            out_ptr + places, tl.dot(a, c, input_precision="ieee") + tl.dot(c, a, input_precision="ieee")
        )
    elif CASE == "number":
        number = tl.atomic_add(lock_ptr, 1)
        tl.store(out_ptr + number * SIZE * SIZE + places, c)
    elif CASE == "signal":
        tl.store(out_ptr + places, c)
        tl.atomic_xchg(lock_ptr, 1)
    elif CASE == "memory":
        tl.store(out_ptr + places, c)
        tl.debug_barrier()
        tl.store(c_ptr + places, tl.load(out_ptr + numbers[None, :] * SIZE + numbers[:, None]))
    elif CASE == "scope":
        tl.atomic_add(out_ptr + places, c, sem="relaxed", scope="cta")
    elif CASE == "in place":
        tl.store(out_ptr + places, tl.load(out_ptr + numbers[None, :] * SIZE + numbers[:, None]) + c)


@pytest.mark.parametrize("case", ["sum", "sort", "chain", "number", "signal", "memory", "scope", "in place"])
def test_what_needs_other_blocks_is_not_divided(case, device):
    size = 32
    a = torch.randn(size, size).to(torch.float32).to(device)
    c, out = (torch.zeros(size, size, device=device) for _ in range(2))
    lock = torch.zeros(1, dtype=torch.int32, device=device)
    kernel = whole[(1,)](a, c, out, lock, case, size, num_ctas=2)
    square = a.double() @ a.double()
    found = out.double()
    if case == "sum":
        found, square = found[0, 0], square.sum()
    elif case == "sort":
        square = square.flatten().sort().values.reshape(size, size)
    elif case == "chain":
        square = 2 * a.double() @ square
    elif case == "memory":
        torch.testing.assert_close(c.double(), square.T, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found, square, rtol=1e-3, atol=1e-3)
    assert lock.item() == (case in ("number", "signal"))
    expect_blocks(kernel, 1)


@triton.jit
def accumulated(a_ptr, c_ptr, SIZE: tl.constexpr):
    """C += A @ A, each block with its own part of C."""
    numbers = tl.arange(0, SIZE)
    places = numbers[:, None] * SIZE + numbers[None, :]
    c_ptrs = c_ptr + places
    a = tl.load(a_ptr + places)
    tl.store(c_ptrs, tl.dot(a, a, tl.load(c_ptrs), input_precision="ieee"))


def test_a_part_that_is_loaded_and_stored_by_its_block(device):
    a, c = (torch.randn(64, 64).to(device) for _ in range(2))
    expected = c.double() + a.double() @ a.double()
    expect_blocks(accumulated[(1,)](a, c, 64, num_ctas=2), 2)
    torch.testing.assert_close(c.double(), expected, rtol=1e-3, atol=1e-3)


def test_the_grid_has_a_limit_that_counts_blocks(device):
    if not HAS_CLUSTERS:
        pytest.skip("the device has no clusters")
    a = torch.zeros(64, 64, device=device)
    with pytest.raises(Exception, match=r"TW0103[\s\S]*has 2147483648 blocks along axis 0"):
        accumulated[(2**30,)](a, a.clone(), 64, num_ctas=2)
