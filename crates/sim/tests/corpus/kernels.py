"""The kernels of the simulator's corpus: matmuls and attention, with tensor core instructions and pipelined copies.

`python kernels.py .` compiles them with the official triton (3.9; no GPU is needed) and writes one `.ptx` for each,
with the bytes of its dynamic shared memory in the first line. The script removes debug sections, references to them,
and the directories of files.
"""

import re
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel


@triton.jit
def matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_cm,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    OUT: tl.constexpr,
):
    """C[m, n] = A[m, k] B[k, n], all row-major, any m, n, k."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a + rows[:, None] * stride_am + depth[None, :]
    b_at = b + depth[:, None] * stride_bk + columns[None, :]
    total = tl.zeros((BM, BN), dtype=OUT)
    for step in range(tl.cdiv(k, BK)):
        left = k - step * BK
        x = tl.load(a_at, mask=(rows[:, None] < m) & (depth[None, :] < left), other=0.0)
        y = tl.load(b_at, mask=(depth[:, None] < left) & (columns[None, :] < n), other=0.0)
        total = tl.dot(x, y, total, out_dtype=OUT)
        a_at += BK
        b_at += BK * stride_bk
    c_at = c + rows[:, None] * stride_cm + columns[None, :]
    tl.store(c_at, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def matmul_descriptor(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B through tensor descriptors made on the host; C in the inputs' type."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        x = a.load([row, step * BK])
        y = b.load([step * BK, column])
        total = tl.dot(x, y, total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def matmul_descriptor_t(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B^T through tensor descriptors made on the host."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        x = a.load([row, step * BK])
        y = b.load([column, step * BK])
        total = tl.dot(x, y.T, total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def matmul_specialized(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """`matmul_descriptor`, specialized into warps that load and warps that multiply."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(k, BK), warp_specialize=True):
        total = tl.dot(a.load([row, step * BK]), b.load([step * BK, column]), total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def matmul_made_descriptor(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B^T in fp16, through tensor descriptors that the kernel makes."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    out = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        total = tl.dot(left.load([row, step * BK]), right.load([column, step * BK]).T, total)
    out.store([row, column], total.to(tl.float16))


@triton.jit
def attention(q, k, v, o, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """One head: O = softmax(scale Q K^T) V, all [length, D] row-major, length a multiple of BN."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    depth = tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + depth[None, :])
    largest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, length, BN):
        y = tl.load(k + (start + columns)[None, :] * D + depth[:, None])
        z = tl.load(v + (start + columns)[:, None] * D + depth[None, :])
        score = tl.dot(x, y) * (scale * 1.44269504)
        now = tl.maximum(largest, tl.max(score, 1))
        p = tl.math.exp2(score - now[:, None])
        shrink = tl.math.exp2(largest - now)
        weight = weight * shrink + tl.sum(p, 1)
        total = tl.dot(p.to(z.dtype), z, total * shrink[:, None])
        largest = now
    tl.store(o + rows[:, None] * D + depth[None, :], (total / weight[:, None]).to(o.dtype.element_ty))


def attention_sm90(**options):
    """Attention with blocks of 64 and heads of 64, for sm_90."""
    signature = {
        "q": "*fp16",
        "k": "*fp16",
        "v": "*fp16",
        "o": "*fp16",
        "length": "i32",
        "scale": "fp32",
        "BM": "constexpr",
        "BN": "constexpr",
        "D": "constexpr",
    }
    names = list(signature)
    constants = {(names.index(name),): value for name, value in {"BM": 64, "BN": 64, "D": 64}.items()}
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in ("q", "k", "v", "o", "length")}
    source = ASTSource(attention, signature, constants, attrs)
    return compile_kernel(source, target=GPUTarget("cuda", 90, 32), options=options)


def pointers(capability, element, result, block, aligned=True, **options):
    """A matmul through pointers; `aligned` is true if all sizes are multiples of 16."""
    bm, bn, bk = block
    signature = {
        "a": f"*{element}",
        "b": f"*{element}",
        "c": f"*{result}",
        "m": "i32",
        "n": "i32",
        "k": "i32",
        "stride_am": "i32",
        "stride_bk": "i32",
        "stride_cm": "i32",
        "BM": "constexpr",
        "BN": "constexpr",
        "BK": "constexpr",
        "OUT": "constexpr",
    }
    out = tl.int32 if result == "i32" else tl.float32
    values = {"BM": bm, "BN": bn, "BK": bk, "OUT": out}
    names = list(signature)
    constants = {(names.index(name),): value for name, value in values.items()}
    attrs = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name in ("a", "b", "c", "stride_am", "stride_bk", "stride_cm") + ("m", "n", "k") * aligned
    }
    source = ASTSource(matmul, signature, constants, attrs)
    return compile_kernel(source, target=GPUTarget("cuda", capability, 32), options=options)


def descriptors(kernel, element, block, transposed, **options):
    """A matmul through descriptors, for sm_90."""
    bm, bn, bk = block
    b_block = [bn, bk] if transposed else [bk, bn]
    signature = {
        "a": f"tensordesc<{element}{[bm, bk]}>",
        "b": f"tensordesc<{element}{b_block}>",
        "c": f"tensordesc<{element}{[bm, bn]}>",
        "k": "i32",
        "BM": "constexpr",
        "BN": "constexpr",
        "BK": "constexpr",
    }
    names = list(signature)
    constants = {(names.index(name),): value for name, value in {"BM": bm, "BN": bn, "BK": bk}.items()}
    source = ASTSource(kernel, signature, constants, {})
    return compile_kernel(source, target=GPUTarget("cuda", 90, 32), options=options)


def made_descriptors(block, **options):
    """A matmul through descriptors that the kernel makes, for sm_90."""
    signature = dict.fromkeys("abc", "*fp16") | dict.fromkeys("mnk", "i32")
    signature |= dict.fromkeys(("BM", "BN", "BK"), "constexpr")
    names = list(signature)
    constants = {(names.index(name),): value for name, value in zip(("BM", "BN", "BK"), block, strict=True)}
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in "abcmnk"}
    source = ASTSource(matmul_made_descriptor, signature, constants, attrs)
    return compile_kernel(source, target=GPUTarget("cuda", 90, 32), options=options)


def main(out):
    """Writes the PTX of all kernels."""
    out.mkdir(exist_ok=True)
    made = {
        "sm80_fp16": pointers(80, "fp16", "fp32", (64, 64, 32), num_warps=4, num_stages=3),
        "sm80_tf32": pointers(80, "fp32", "fp32", (32, 32, 32), aligned=False, num_warps=4, num_stages=3),
        "sm80_int8": pointers(80, "i8", "i32", (64, 32, 64), num_warps=4, num_stages=2),
        "sm90_bf16": pointers(90, "bf16", "fp32", (64, 64, 32), num_warps=4, num_stages=3),
        "sm90_fp8": pointers(90, "fp8e4nv", "fp32", (64, 32, 64), num_warps=4, num_stages=3),
        "sm90_tma": descriptors(matmul_descriptor, "fp16", (64, 128, 64), False, num_warps=4, num_stages=3),
        "sm90_tma_transposed": descriptors(
            matmul_descriptor_t, "fp16", (128, 64, 32), True, num_warps=8, num_stages=2
        ),
        "sm90_specialized": descriptors(
            matmul_specialized, "fp16", (64, 64, 64), False, num_warps=4, num_stages=3
        ),
        "sm90_tma_made": made_descriptors((64, 32, 64), num_warps=4, num_stages=2),
        "sm90_attention": attention_sm90(num_warps=4, num_stages=2),
    }
    for name, kernel in made.items():
        text = kernel.asm["ptx"].split("\t.section")[0]
        text = re.sub(r", function_name .*", "", text)
        text = re.sub(r'(\.file\s+\d+) ".*/', r'\1 "', text)
        shared = kernel.metadata.shared
        (out / f"{name}.ptx").write_text(f"// {shared} bytes of dynamic shared memory\n{text.rstrip()}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
