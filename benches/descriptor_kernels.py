"""Products by tensor descriptors: sums added to memory, and descriptors of tensors that the kernel itself finds."""

import triton
import triton.language as tl


@triton.jit
def split_k_descriptors(
    a_desc, b_desc, c_desc, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """C += A @ B.T, each program with a part of K."""
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.program_id(2), tl.cdiv(K, BLOCK_K), SPLIT_K):
        acc = tl.dot(a_desc.load([row, k * BLOCK_K]), b_desc.load([column, k * BLOCK_K]).T, acc)
    c_desc.atomic_add([row, column], acc)


@triton.jit
def grouped_descriptors(
    addresses_ptr, sizes_ptr, strides_ptr, GROUPS,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Products A @ B.T of different sizes by a fixed number of programs; addresses and sizes are in memory."""
    tile = tl.program_id(0)
    first = 0
    for group in range(GROUPS):
        M = tl.load(sizes_ptr + group * 3)
        N = tl.load(sizes_ptr + group * 3 + 1)
        K = tl.load(sizes_ptr + group * 3 + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        if tile >= first and tile < first + tiles:
            a_ptr = tl.load(addresses_ptr + group * 3).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(addresses_ptr + group * 3 + 1).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(addresses_ptr + group * 3 + 2).to(tl.pointer_type(tl.float16))
            stride_a = tl.load(strides_ptr + group * 3)
            stride_b = tl.load(strides_ptr + group * 3 + 1)
            stride_c = tl.load(strides_ptr + group * 3 + 2)
            a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_a, 1], [BLOCK_M, BLOCK_K])
            b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [stride_b, 1], [BLOCK_N, BLOCK_K])
            c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_c, 1], [BLOCK_M, BLOCK_N])
            while tile >= first and tile < first + tiles:
                row = (tile - first) // tiles_n * BLOCK_M
                column = (tile - first) % tiles_n * BLOCK_N
                acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                for k in range(tl.cdiv(K, BLOCK_K)):
                    acc = tl.dot(a_desc.load([row, k * BLOCK_K]), b_desc.load([column, k * BLOCK_K]).T, acc)
                c_desc.store([row, column], acc.to(tl.float16))
                tile += tl.num_programs(0)
        first += tiles
