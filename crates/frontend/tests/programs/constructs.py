"""Every construct of the language that a program may use: material for mutations."""
import triton
import triton.language as tl
import math
from triton.language.extra import libdevice

LIMIT = tl.constexpr(64)
PAIR = tl.constexpr((2, 4))

@triton.constexpr_function
def half(x):
    while x > 8:
        x = x // 2
    return x

@triton.jit
def combine(a, b):
    return a * b + 1

@triton.jit
def pick(a, b, swap, *, flag: tl.constexpr = True):
    if swap > 3:
        return b, (a, 1)
    elif flag:
        return a, (b, 2)
    return a + b, (a, 3)

@triton.jit
def k(x_ptr, y_ptr, n, m, B: tl.constexpr, D: tl.constexpr = half(64)):
    offsets = tl.arange(0, B)
    mask = (offsets < n) & (offsets >= 0)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    low, (high, kind) = pick(n, m, swap=n)
    total = tl.zeros([B], dtype=tl.float32)
    count = 0
    for i in tl.range(0, n, 2, num_stages=2):
        if i % 2 == 0 and n != 3:
            total += x * i
        else:
            total = tl.where(mask, total, -x)
        while count < low:
            count += 1
    for i in tl.static_range(3):
        if i == 1:
            continue_here: tl.constexpr = i
            total = total + i
    values = [v * 2 for v in PAIR if v > 1]
    if n > LIMIT:
        best = tl.max(total, axis=0)
    else:
        best = tl.sum(total, 0) if m > 2 else 1.0
    scale = 0.5 if B > 8 else undefined
    folded = tl.reduce(total, 0, combine)
    wide = total[:, None] + x[None, :]
    assert n > 0, f"n {B:03d}"
    tl.static_assert(len(values) == 2 and D >= 8, "two")
    tl.static_print("B", B, f"{n=}" if False else x)
    if m == 0:
        return
    tl.store(y_ptr + offsets, wide.sum(1) * scale + best + folded + math.pi, mask)
    tl.store(y_ptr, tl.cdiv(n, 4) + (low if low < high < 7 else -high) + kind)
