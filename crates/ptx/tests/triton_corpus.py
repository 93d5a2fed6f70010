"""Compiles kernels with the official Triton, without a GPU, and writes the PTX of each for several targets.

Usage: triton_corpus.py DIRECTORY. The test `official_triton` runs it where Triton is installed. The kernels are made to
use as many different instructions as possible, not to be useful.
"""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def arithmetic(x, y, z, out, n, BLOCK: tl.constexpr):
    """Integer and floating-point arithmetic, transcendental functions, selects, casts."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(x + i, mask=mask, other=1.0)
    b = tl.load(y + i, mask=mask, other=2.0, eviction_policy="evict_first")
    c = tl.load(z + i, mask=mask, other=3, cache_modifier=".cg") + tl.load(z + i, mask=mask, volatile=True)
    v = tl.exp(a) + tl.log(b) + tl.sin(a) * tl.cos(b) + tl.sqrt(tl.abs(a)) + tl.rsqrt(b) + a / b
    v += tl.fma(a, b, v) + tl.maximum(a, b) - tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    v += tl.erf(a) + tl.floor(b) + tl.ceil(a) + tl.exp2(a) + tl.log2(b) + tl.div_rn(a, b) + tl.sqrt_rn(b)
    w = c * 7 // 3 + c % 5 + (c << 3) + (c >> 1) + (c & 255) + (c | 3) + (c ^ 21) + ~c
    w += tl.umulhi(c.to(tl.uint32), 123457).to(tl.int32)
    wide = c.to(tl.int64) * c + w
    v = tl.where(wide > 100, v, a.to(tl.float16).to(tl.float32)) + wide.to(tl.float64).to(tl.float32)
    v += a.to(tl.bfloat16).to(tl.float32) + w.to(tl.int8).to(tl.float32) + c.to(tl.uint16).to(tl.float32)
    tl.store(out + i, v, mask=mask, eviction_policy="evict_last")


@triton.jit
def softmax(out, x, stride, columns, BLOCK: tl.constexpr):
    """Reductions through shuffles and shared memory."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < columns, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, v / tl.sum(v, 0), mask=i < columns)


@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """A pipelined matrix product through pointers."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    kk = tl.arange(0, K)
    pa = a + i[:, None] * k + kk[None, :]
    pb = b + kk[:, None] * n + j[None, :]
    acc = tl.zeros((M, N), dtype=tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32)
    for step in tl.range(0, tl.cdiv(k, K), num_stages=STAGES):
        ta = tl.load(pa, mask=kk[None, :] < k - step * K, other=0.0)
        tb = tl.load(pb, mask=kk[:, None] < k - step * K, other=0.0)
        acc = tl.dot(ta, tb, acc)
        pa += K
        pb += K * n
    tl.store(
        c + i[:, None] * n + j[None, :], acc.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n)
    )


@triton.jit
def matmul_descriptor(
    a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr
):
    """A pipelined matrix product through descriptors made on the device."""
    da = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[M, K])
    db = tl.make_tensor_descriptor(b, shape=[k, n], strides=[n, 1], block_shape=[K, N])
    dc = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    i = tl.program_id(0) * M
    j = tl.program_id(1) * N
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(k, K), num_stages=STAGES):
        acc = tl.dot(da.load([i, step * K]), db.load([step * K, j]), acc)
    dc.store([i, j], acc.to(c.dtype.element_ty))


@triton.jit
def atomics(x, y, out, n, BLOCK: tl.constexpr):
    """Every atomic operation, of several types, semantics and scopes."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask)
    tl.atomic_add(x + i, v, mask=mask)
    tl.atomic_add(y + i % 7, v.to(tl.float16), mask=mask, sem="relaxed")
    w = tl.atomic_max(out + i, i, mask=mask, sem="acquire", scope="cta")
    w += tl.atomic_min(out + i, w, mask=mask, sem="release", scope="sys")
    w += tl.atomic_and(out + i, w, mask=mask) + tl.atomic_or(out + i, w) + tl.atomic_xor(out + i, w)
    w += tl.atomic_xchg(out + i, w, mask=mask)
    tl.atomic_cas(out, 0, tl.sum(w, 0))
    tl.atomic_max(x + i, v, mask=mask)


@triton.jit
def combine(a, b):
    """A function that does not commute."""
    return a * 3 + b


@triton.jit
def scans(x, out, BLOCK: tl.constexpr):
    """Scans, sorts, histograms, gathers, argument reductions."""
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    s = tl.cumsum(v, 0) + tl.associative_scan(v, 0, combine) + tl.sort(v) + tl.argmax(v, 0)
    s += tl.gather(v, i ^ 5, 0) + tl.flip(v) + tl.histogram(v & 63, BLOCK)
    s += tl.reduce(v, 0, combine) + tl.xor_sum(v, 0)
    j = tl.reshape(s, (16, BLOCK // 16))
    tl.store(out + i, tl.ravel(tl.trans(j)) + tl.ravel(tl.join(i, s))[:, None].sum(1).sum(0))


@triton.jit
def random(seed, out, BLOCK: tl.constexpr):
    """Random numbers."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.rand(seed, i) + tl.randn(seed, i))


@triton.jit
def talk(x, n, BLOCK: tl.constexpr):
    """Printing, assertions, inline assembly."""
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.device_print("v", v, i)
    tl.device_assert(v > 0, "positive")
    v = tl.inline_asm_elementwise(
        "{ .reg .b32 t; mul.lo.u32 t, $1, 3; add.u32 $0, t, 1; }", "=r,r", [v], tl.int32, is_pure=True, pack=1
    )
    while tl.max(v, 0) > 3:
        v = v // 2
    tl.store(x + i, v + tl.extra.cuda.globaltimer().to(tl.int32) + tl.extra.cuda.smid())


@triton.jit
def narrow(x, out, n, BLOCK: tl.constexpr):
    """Conversions of narrow floats."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, (v.to(tl.float32) * 2).to(out.dtype.element_ty), mask=i < n)


SMALL_MATRIX = {"M": 64, "N": 64, "K": 32, "STAGES": 3}
MATRIX = {"M": 128, "N": 128, "K": 64, "STAGES": 3}


def cases():
    """Name, kernel, signature, constants, options, oldest capability."""
    yield "arithmetic", arithmetic, "*fp32 *fp32 *i32 *fp32 i32", {"BLOCK": 1024}, {}, 75
    for dtype, oldest in [("fp16", 75), ("bf16", 80), ("i64", 75), ("fp8e4nv", 90), ("fp8e5", 90)]:
        yield f"narrow_{dtype}", narrow, f"*{dtype} *fp32 i32", {"BLOCK": 512}, {}, oldest
        yield f"widen_{dtype}", narrow, f"*fp32 *{dtype} i32", {"BLOCK": 512}, {}, oldest
    for warps in [1, 8]:
        yield f"softmax_{warps}", softmax, "*fp32 *fp32 i32 i32", {"BLOCK": 1024}, {"num_warps": warps}, 75
    yield "softmax_fp16", softmax, "*fp16 *fp16 i32 i32", {"BLOCK": 2048}, {}, 75
    for dtype, result, oldest in [
        ("fp16", "fp16", 75),
        ("bf16", "fp32", 80),
        ("fp32", "fp32", 80),
        ("i8", "i32", 80),
        ("fp8e5", "fp16", 90),
    ]:
        signature = f"*{dtype} *{dtype} *{result} i32 i32 i32"
        yield f"matmul_{dtype}", matmul, signature, MATRIX if oldest == 90 else SMALL_MATRIX, {}, oldest
    for dtype in ["fp16", "bf16", "fp8e4nv"]:
        signature = f"*{dtype} *{dtype} *{dtype} i32 i32 i32"
        yield f"descriptor_{dtype}", matmul_descriptor, signature, MATRIX, {"num_warps": 8}, 90
    yield "atomics", atomics, "*fp32 *fp16 *i32 i32", {"BLOCK": 512}, {}, 75
    yield "scans", scans, "*i32 *i32", {"BLOCK": 512}, {}, 75
    yield "random", random, "i32 *fp32", {"BLOCK": 512}, {}, 75
    yield "talk", talk, "*i32 i32", {"BLOCK": 256}, {"debug": True}, 75


def main(directory):
    """Writes DIRECTORY/NAME.sm_XX.ptx for each case and target."""
    for name, kernel, signature, constants, options, oldest in cases():
        arguments = [argument for argument in kernel.arg_names if argument not in constants]
        types = dict(zip(arguments, signature.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
        attributes = {}
        for index, argument in enumerate(kernel.arg_names):
            if types[argument] != "constexpr" and (types[argument].startswith("*") or argument in "mnk"):
                attributes[(index,)] = [["tt.divisibility", 16]]
        for capability in [75, 80, 90]:
            if capability < oldest:
                continue
            source = ASTSource(fn=kernel, signature=types, constexprs=dict(constants), attrs=attributes)
            compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            (Path(directory) / f"{name}.sm_{capability}.ptx").write_text(compiled.asm["ptx"])


if __name__ == "__main__":
    main(sys.argv[1])
