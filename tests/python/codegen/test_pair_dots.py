"""Dots that two blocks of a cluster compute together on Blackwell (`cta_group::2`), beside torch in binary64."""

from __future__ import annotations

import re

import pytest
from conftest import DEVICE
from support.assembler import find_assembler, spilled_bytes

import tilewright as triton
import tilewright.language as tl

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def blackwell(device):
    """Runs a test on the simulator of a Blackwell GPU."""
    if device != "cpu":
        pytest.skip("these kernels have run on the simulator only")
    triton.runtime.set_device("sim:sm_100")
    yield
    triton.runtime.set_device(DEVICE)


def numbers(*shape, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def groups(kernel):
    """The numbers of blocks for which the instructions on tensor memory are."""
    lines = kernel.asm["ptx"].splitlines()
    return {int(found) for line in lines for found in re.findall(r"tcgen05.*cta_group::(\d)", line)}


def assemble(kernel, folder):
    """Checks that NVIDIA's assembler accepts the code of a launch, without spills."""
    assembler = find_assembler()
    if assembler is not None:
        assert spilled_bytes(assembler, kernel.asm["ptx"], folder) == 0


def check(found, a, b, expected=None):
    """Compares with A @ B of binary64. Each addition in fp32 may have an error of one unit in the last place."""
    a, b = a.double(), b.double()
    expected = a @ b if expected is None else expected
    bound = (a.abs() @ b.abs() + expected.abs()) * (a.shape[1] + 2) * 2.0**-23
    error = (found.double() - expected).abs()
    assert (error <= bound).all(), f"{(error > bound).sum()} elements are wrong, by up to {error.max()}"


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    KIND: tl.constexpr, TRANSPOSED: tl.constexpr, EPILOGUE: tl.constexpr, RESTART: tl.constexpr,
):  # fmt: skip
    """C = A @ B. B is [K, N], or [N, K] if it is transposed. `RESTART` adds each dot in registers."""
    tiles = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    if TRANSPOSED:
        b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    else:
        b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        first = k * BLOCK_K
        left = K - first
        if KIND == "descriptors":
            a = a_desc.load([pid_m * BLOCK_M, first])
        else:
            a_ptrs = a_ptr + rows[:, None] * K + first + depth[None, :]
            a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        if KIND == "scattered":
            # The order of the columns is no box of a tensor.
            mixed = columns ^ 1
            b_ptrs = b_ptr + (first + depth)[:, None] * N + mixed[None, :]
            b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (mixed[None, :] < N), other=0.0)
        elif KIND == "descriptors":
            if TRANSPOSED:
                b = b_desc.load([pid_n * BLOCK_N, first]).T
            else:
                b = b_desc.load([first, pid_n * BLOCK_N])
        elif TRANSPOSED:
            b_ptrs = b_ptr + columns[None, :] * K + (first + depth)[:, None]
            b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        else:
            b_ptrs = b_ptr + (first + depth)[:, None] * N + columns[None, :]
            b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        if RESTART:
            acc = acc * 0.5 + tl.dot(a, b)
        else:
            acc = tl.dot(a, b, acc)
    if EPILOGUE:
        acc += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
        acc = tl.maximum(acc, 0.0)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=mask)


def multiply(
    shape,
    block,
    kind="descriptors",
    dtype=torch.float16,
    transposed=False,
    epilogue=False,
    restart=False,
    **options,
):
    """Multiplies random matrices, and checks the result; gives the kernel."""
    (m, n, k), (block_m, block_n, block_k) = shape, block
    a = numbers(m, k, dtype=dtype, seed=0)
    b = numbers(*((n, k) if transposed else (k, n)), dtype=dtype, seed=1)
    bias = numbers(n, dtype=torch.float32, seed=2)
    c = torch.full((m, n), float("nan"))
    grid = (-(-m // block_m) * -(-n // block_n),)
    options = {"num_ctas": 2, **options}
    kernel = matmul[grid](a, b, c, bias, m, n, k, *block, kind, transposed, epilogue, restart, **options)
    right = b.T if transposed else b
    expected = None
    if kind == "scattered":
        right = right[:, torch.arange(n) ^ 1]
    if epilogue:
        expected = (a.double() @ right.double() + bias.double()).clamp(min=0)
    if restart:
        expected = torch.zeros(m, n, dtype=torch.float64)
        for first in range(0, k, block_k):
            part = a[:, first : first + block_k].double() @ right[first : first + block_k].double()
            expected = expected * 0.5 + part
    check(c, a, right, expected)
    assert kernel.metadata.num_ctas == options["num_ctas"]
    return kernel


@pytest.mark.parametrize("kind", ["descriptors", "pointers"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_columns(tmp_path, columns, transposed, kind):
    """Each block copies half of the columns of B, contiguous along N or along K."""
    warps = 8 if columns == 256 else 4
    kernel = multiply((256, columns, 192), (256, columns, 64), kind, transposed=transposed, num_warps=warps)
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)


@pytest.mark.parametrize("shape", [(264, 136, 72), (512, 264, 40), (16, 8, 328), (256, 128, 64)])
def test_remainders(tmp_path, shape):
    """Rows, columns and K end within a tile. One or no iteration is in range of the pipeline."""
    kernel = multiply(shape, (256, 128, 64), "pointers")
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_types(tmp_path, dtype):
    depth = 128 if dtype.itemsize == 1 else 64
    kernel = multiply((256, 128, 3 * depth), (256, 128, depth), dtype=dtype, transposed=dtype.itemsize == 1)
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)


@pytest.mark.parametrize("stages", [1, 2, 4, 6])
@pytest.mark.parametrize("iterations", [1, 2, 3, 9])
def test_iterations(iterations, stages):
    """Rings of several depths, which the loop fills more or less often than they have slots."""
    kernel = multiply((256, 64, 64 * iterations), (256, 64, 64), num_stages=stages)
    assert groups(kernel) <= {1, 2}


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_pipelined_loops_have_pairs(stages):
    assert groups(multiply((256, 64, 640), (256, 64, 64), num_stages=stages)) == {2}


def test_an_epilogue_follows_the_loop(tmp_path):
    kernel = multiply((512, 256, 128), (256, 128, 64), epilogue=True)
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)


def test_threads_read_the_accumulator_of_each_dot(tmp_path):
    """The next dot overwrites it in both blocks."""
    kernel = multiply((256, 64, 320), (256, 64, 64), restart=True)
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)


@pytest.mark.parametrize("kind", ["descriptors", "pointers"])
def test_a_cluster_has_two_pairs(tmp_path, kind):
    kernel = multiply((512, 128, 192), (512, 64, 64), kind, num_ctas=4)
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)


def test_each_block_has_two_blocks_of_rows(tmp_path):
    kernel = multiply((512, 64, 192), (512, 64, 64), num_warps=8)
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)


@pytest.mark.parametrize("rows", [128, 64])
def test_short_tiles(rows):
    """A block has 64 or 32 rows."""
    assert 2 not in groups(multiply((rows, 32, 128), (rows, 32, 64)))


def test_threads_load_b():
    assert groups(multiply((256, 128, 192), (256, 128, 64), "scattered")) == {1}


def test_blocks_with_different_columns():
    """The program is divided along N, so the blocks need different B."""
    assert groups(multiply((128, 256, 192), (128, 256, 64))) == {1}


def test_one_block():
    assert groups(multiply((256, 64, 192), (128, 64, 64), num_ctas=1)) == {1}


@triton.jit
def persistent(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Each program computes several tiles of C."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    tiles = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles, tl.num_programs(0)):
        pid_m, pid_n = tile // tiles, tile % tiles
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([pid_m * BLOCK_M, k * BLOCK_K])
            b = b_desc.load([k * BLOCK_K, pid_n * BLOCK_N])
            acc = tl.dot(a, b, acc)
        rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=mask)


@pytest.mark.parametrize("programs", [1, 2])
def test_a_program_computes_several_tiles(tmp_path, programs):
    m, n, k = 512, 128, 200
    a, b = numbers(m, k, dtype=torch.float16, seed=0), numbers(k, n, dtype=torch.float16, seed=1)
    c = torch.full((m, n), float("nan"))
    kernel = persistent[(programs,)](a, b, c, m, n, k, 256, 64, 64, num_ctas=2)
    check(c, a, b)
    assert groups(kernel) == {2}
    assemble(kernel, tmp_path)
