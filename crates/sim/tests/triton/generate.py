"""Writes the PTX of this folder: kernels compiled by the official Triton, for `tests/triton.rs`.

Run it as `python generate.py` where Triton is installed; it needs no GPU. The script removes debug sections and paths
from the text, and keeps the line numbers of this file.
"""

import re
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, out, length, block: tl.constexpr):
    """`out = x + y`."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, i < length) + tl.load(y + i, i < length), i < length)


@triton.jit
def softmax(out, x, n, block: tl.constexpr):
    """The softmax of each row of n elements; each program computes one row."""
    row = tl.program_id(0)
    i = tl.arange(0, block)
    v = tl.load(x + row * n + i, i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + i, e / tl.sum(e, 0), i < n)


@triton.jit
def layer_norm(out, x, w, b, n, eps, block: tl.constexpr):
    """Each row of n elements with mean 0 and variance 1, times w, plus b."""
    row = tl.program_id(0)
    i = tl.arange(0, block)
    v = tl.load(x + row * n + i, i < n, other=0.0)
    mean = tl.sum(v, 0) / n
    d = tl.where(i < n, v - mean, 0.0)
    y = d / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(out + row * n + i, y * tl.load(w + i, i < n) + tl.load(b + i, i < n), i < n)


@triton.jit
def matmul(a, b, c, n, k, side: tl.constexpr, depth: tl.constexpr):
    """`c = a @ b` by square tiles; a has k columns, b and c have n."""
    row = tl.program_id(0) * side + tl.arange(0, side)
    column = tl.program_id(1) * side + tl.arange(0, side)
    acc = tl.zeros((side, side), tl.float32)
    for start in range(0, k, depth):
        i = start + tl.arange(0, depth)
        left = tl.load(a + row[:, None] * k + i[None, :])
        right = tl.load(b + i[:, None] * n + column[None, :])
        acc = tl.dot(left, right, acc, input_precision="ieee")
    tl.store(c + row[:, None] * n + column[None, :], acc)


@triton.jit
def matmul_f16(a, b, c, n, k, side: tl.constexpr, depth: tl.constexpr):
    """`matmul` in fp16, with fp16 accumulators: the compiler splits their registers before the dots are complete."""
    row = tl.program_id(0) * side + tl.arange(0, side)
    column = tl.program_id(1) * side + tl.arange(0, side)
    acc = tl.zeros((side, side), tl.float16)
    for start in range(0, k, depth):
        i = start + tl.arange(0, depth)
        left = tl.load(a + row[:, None] * k + i[None, :])
        right = tl.load(b + i[:, None] * n + column[None, :])
        acc = tl.dot(left, right, acc, out_dtype=tl.float16)
    tl.store(c + row[:, None] * n + column[None, :], acc)


@triton.jit
def histogram(x, out, n, block: tl.constexpr):
    """The histogram of the numbers below 16."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(out + tl.load(x + i, i < n, other=0), 1, i < n)


def ptx(kernel, signature, constants, capability):
    """The PTX of a kernel, without the parts that depend on this machine."""
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    # Pointers are multiples of 16, and so is the length of vectors: else a mask may end within a vector of a thread.
    multiples = [i for i, name in enumerate(signature) if signature[name].startswith("*") or name == "length"]
    aligned = {(i,): [["tt.divisibility", 16]] for i in multiples}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4})
    text = re.sub(r"\t\.section\s+\.debug_\w+\s*\{.*?\}\n", "", compiled.asm["ptx"], flags=re.DOTALL)
    text = re.sub(r'(\.file\s+\d+) "[^"]*/([^"/]+)"', r'\1 "\2"', text)
    return f"// shared {compiled.metadata.shared}\n" + re.sub(r"[ \t]+(?=\n)", "", text)


def capabilities(name):
    """The targets that a kernel is written for."""
    return {"softmax": (80, 90), "layer_norm": (80, 90), "matmul_f16": (90,)}.get(name, (80,))


def main():
    """Writes every file."""
    rows = {"out": "*fp32", "x": "*fp32"}
    mm = lambda ty: {"a": f"*{ty}", "b": f"*{ty}", "c": "*fp32", "n": "i32", "k": "i32"}  # noqa: E731
    cases = [
        ("add", add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "length": "i32"}, {"block": 1024}),
        ("softmax", softmax, {**rows, "n": "i32"}, {"block": 1024}),
        (
            "layer_norm",
            layer_norm,
            {**rows, "w": "*fp32", "b": "*fp32", "n": "i32", "eps": "fp32"},
            {"block": 1024},
        ),
        ("matmul_ieee", matmul, mm("fp32"), {"side": 32, "depth": 16}),
        (
            "matmul_f16",
            matmul_f16,
            {**dict.fromkeys("abc", "*fp16"), "n": "i32", "k": "i32"},
            {"side": 64, "depth": 32},
        ),
        ("histogram", histogram, {"x": "*i32", "out": "*i32", "n": "i32"}, {"block": 256}),
    ]
    for name, kernel, signature, constants in cases:
        for capability in capabilities(name):
            text = ptx(kernel, signature, constants, capability)
            Path(__file__).with_name(f"{name}_sm_{capability}.ptx").write_text(text)


if __name__ == "__main__":
    main()
