"""The products of `gpu/products.py`: their kernels, data, configurations, and what is asked of each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

BENCHES = Path(__file__).resolve().parents[1]
FILES = {
    **{
        name: BENCHES / f"{name}.py"
        for name in (
            "product_kernels",
            "descriptor_kernels",
            "attention_kernels",
            "attention_tutorial_kernels",
            "several_dots_kernels",
            "moe_kernels",
            "serving_kernels",
            "gluon_attention",
            "gluon_matmul",
        )
    },
    **{
        name: BENCHES.parent / "examples" / f"{name}.py"
        for name in ("20_batched_matmul", "24_stream_k_matmul")
    },
}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Config = dict[str, int]


@dataclass
class Problem:
    """A kernel on its data. `arguments` also hears which side asks, for what each has a class of its own for."""

    kernel: str
    arguments: Callable[[Config, ModuleType], tuple[Any, ...]]
    grid: Callable[[Config], tuple[int, ...]]
    out: torch.Tensor
    torch: Callable[[], torch.Tensor] | None
    expected: Callable[[], torch.Tensor]
    tolerance: float
    constants: dict[str, Any] = field(default_factory=dict)
    """A string with `tl.` is a name of the language."""
    file: str = "product_kernels"
    adds: bool = False
    """The kernel adds to its output, which each launch finds at zero when it is checked."""
    first: Problem | None = None
    """A problem that is launched before, and timed with this one."""
    then: Callable[[Config], Problem] | None = None
    """Makes the problem that is launched after a configuration of this one, and timed with it."""


@dataclass
class Row:
    """A line of the table: its unit of work, the required ratios to triton and torch, and how to make its data."""

    name: str
    unit: str
    work: float
    asked: float
    asked_torch: float | None
    configs: list[Config]
    make: Callable[[], Problem]


def blocks(*shapes: str) -> list[Config]:
    """Configurations written as `128x256x64 w8 s3`: the block, warps, stages; `g` is the group of the order, 8."""
    found = []
    for shape in shapes:
        size, *options = shape.split()
        m, n, k = map(int, size.split("x"))
        numbers = {word[0]: int(word[1:]) for word in options}
        found.append(
            {
                "BLOCK_M": m,
                "BLOCK_N": n,
                "BLOCK_K": k,
                "num_warps": numbers.get("w", 4),
                "num_stages": numbers.get("s", 3),
            }
        )
    return found


LARGE = blocks(
    *("128x256x64 w8 s3", "128x256x64 w8 s4", "128x128x64 w4 s3", "128x128x64 w8 s4"),
    *("256x128x64 w8 s3", "64x256x64 w4 s4"),
)
SMALL = blocks(
    *("128x128x64 w8 s4", "128x64x64 w4 s4", "64x128x64 w4 s4", "64x64x64 w4 s4"),
    *("64x32x64 w4 s5", "32x64x64 w4 s5", "64x128x64 w4 s5", "128x64x64 w4 s5"),
)
BYTES = blocks("128x256x128 w8 s3", "128x256x128 w8 s4", "128x128x128 w4 s4", "128x128x64 w4 s4")
WORDS = blocks(
    *("128x128x32 w4 s3", "128x128x32 w8 s4", "128x256x32 w8 s3", "128x256x32 w8 s4"),
    *("256x128x32 w8 s3", "64x128x32 w4 s4"),
)
DECODE = blocks(
    "16x64x128 w4 s4", "16x64x256 w4 s3", "16x32x256 w4 s4", "16x128x128 w4 s4", "16x64x128 w4 s6"
)
INT4 = blocks("16x64x128 w4 s4", "16x128x128 w4 s4", "16x32x128 w4 s5", "16x64x128 w2 s4")
CHAINED = [
    {"BLOCK_M": 128, "BLOCK_N": n, "num_warps": warps, "num_stages": 3}
    for n, warps in ((64, 4), (64, 8), (128, 8))
]


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers of the size of 1; integers from -8 to 7."""
    if dtype == torch.int8:
        return torch.randint(-8, 8, shape, device=DEVICE, dtype=dtype)
    if max(shape) > 8192:
        return torch.randn(shape, device=DEVICE, dtype=dtype)
    return torch.randn(shape, device=DEVICE).to(dtype)


def operand(rows: int, columns: int, dtype: torch.dtype, order: str, gap: int = 0) -> torch.Tensor:
    """A matrix stored by rows (`n`) or by columns (`t`), with `gap` elements between them."""
    if order == "t":
        return operand(columns, rows, dtype, "n", gap).T
    return random(rows, columns + gap, dtype=dtype)[:, :columns]


def tiles(m: int, n: int) -> Callable[[Config], tuple[int, ...]]:
    """A program for each tile."""
    return lambda c: (-(-m // c["BLOCK_M"]) * -(-n // c["BLOCK_N"]),)


def specialized(configs: list[Config]) -> list[Config]:
    """The same with warps of their own for copies, on the side of tilewright."""
    return [{**config, "SPECIALIZE": True} for config in configs]


def library(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor] | None:
    """The product by torch's library, into fp16 where the operands have 8 bits."""
    if a.dtype == torch.float8_e4m3fn:
        if b.stride(0) != 1:
            return None
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.float16)
    if a.dtype == torch.int8:
        return lambda: torch._int_mm(a, b)
    return lambda: torch.matmul(a, b)


def product(m: int, n: int, k: int, dtype: torch.dtype, orders: str, gap: int = 0) -> Problem:
    """The pointer kernel of the tutorials."""
    a, b = operand(m, k, dtype, orders[0], gap), operand(k, n, dtype, orders[1], gap)
    results = {torch.float8_e4m3fn: torch.float16, torch.int8: torch.int32}
    c = torch.empty(m, n + gap, device=DEVICE, dtype=results.get(dtype, dtype))[:, :n]
    theirs = library(a, b)

    def expected() -> torch.Tensor:
        wide = torch.float32 if dtype in (torch.float32, torch.int8) else torch.float16
        if dtype == torch.bfloat16:
            wide = torch.bfloat16
        return a.to(wide) @ b.to(wide)

    return Problem(
        "matmul",
        lambda c_, _: (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()),
        tiles(m, n),
        c,
        theirs,
        expected,
        0.0 if dtype == torch.int8 else 2e-2,
        {"GROUP": 8, "ACC": "tl.int32" if dtype == torch.int8 else "tl.float32"},
    )


def descriptors(size: int, dtype: torch.dtype) -> Problem:
    """The persistent kernel with descriptors."""
    a, b = operand(size, size, dtype, "n"), operand(size, size, dtype, "n")
    c = torch.empty(size, size, device=DEVICE, dtype=dtype)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if DEVICE == "cuda" else 3

    def arguments(config: Config, package: ModuleType) -> tuple[Any, ...]:
        make = importlib.import_module(
            f"{package.__name__}.tools.tensor_descriptor"
        ).TensorDescriptor.from_tensor
        m, n, k = (config[f"BLOCK_{axis}"] for axis in "MNK")
        return make(a, [m, k]), make(b, [n, k]), make(c, [m, n]), size, size, size

    return Problem(
        "matmul_descriptors",
        arguments,
        lambda config: (min(programs, *tiles(size, size)(config)),),
        c,
        lambda: torch.matmul(a, b.T),
        lambda: a @ b.T,
        2e-2,
        {"GROUP": 8},
    )


def decode(m: int, size: int, bits: int) -> Problem:
    """A layer on few rows: weights of 16, 8 or 4 bits."""
    x = random(m, size, dtype=torch.bfloat16)
    y = torch.empty(m, size, device=DEVICE, dtype=torch.bfloat16)
    if bits == 16:
        return product(m, size, size, torch.bfloat16, "nn")

    def grid(c: Config) -> tuple[int, ...]:
        return (-(-size // c["BLOCK_N"]), -(-m // c["BLOCK_M"]))

    if bits == 8:
        w = torch.randint(-127, 128, (size, size), device=DEVICE, dtype=torch.int8)
        scales = torch.rand(size, device=DEVICE) / 127
        return Problem(
            "int8_weights",
            lambda c, _: (x, w, scales, y, m, size, size, x.stride(0), w.stride(0), y.stride(0)),
            grid,
            y,
            None,
            lambda: (x.float() @ w.float()) * scales,
            3e-2,
        )
    group = 128
    packed = torch.randint(0, 256, (size // 2, size), device=DEVICE, dtype=torch.uint8)
    scales = torch.rand(size // group, size, device=DEVICE).to(torch.bfloat16) / 8

    def expected() -> torch.Tensor:
        w = torch.stack((packed & 15, packed >> 4), 1).reshape(size, size).to(torch.bfloat16) - 8
        return x.float() @ (w * scales.repeat_interleave(group, 0)).float()

    return Problem(
        "int4_weights",
        lambda c, _: (
            *(x, packed, scales, y, m, size, size),
            *(x.stride(0), packed.stride(0), scales.stride(0), y.stride(0)),
        ),
        grid,
        y,
        None,
        expected,
        3e-2,
        {"GROUP_K": group},
    )


def split(m: int, n: int, k: int, parts: int) -> Problem:
    """A product whose sums are split along K."""
    a, b = random(m, k, dtype=torch.float16), random(k, n, dtype=torch.float16)
    c = torch.zeros(m, n, device=DEVICE)
    return Problem(
        "split_k",
        lambda c_, _: (a, b, c, m, n, k),
        lambda config: (*tiles(m, n)(config), parts),
        c,
        lambda: torch.matmul(a, b),
        lambda: a.float() @ b.float(),
        2e-2,
        {"SPLIT_K": parts},
        adds=True,
    )


def split_descriptors(m: int, n: int, k: int, parts: int) -> Problem:
    """A product whose sums are split along K, added up through a descriptor."""
    a, b = random(m, k, dtype=torch.float16), random(n, k, dtype=torch.float16)
    c = torch.zeros(m, n, device=DEVICE)

    def arguments(config: Config, package: ModuleType) -> tuple[Any, ...]:
        make = importlib.import_module(
            f"{package.__name__}.tools.tensor_descriptor"
        ).TensorDescriptor.from_tensor
        bm, bn, bk = (config[f"BLOCK_{axis}"] for axis in "MNK")
        return make(a, [bm, bk]), make(b, [bn, bk]), make(c, [bm, bn]), k

    return Problem(
        "split_k_descriptors",
        arguments,
        lambda config: (-(-m // config["BLOCK_M"]), -(-n // config["BLOCK_N"]), parts),
        c,
        lambda: torch.matmul(a, b.T),
        lambda: a.float() @ b.float().T,
        2e-2,
        {"SPLIT_K": parts},
        file="descriptor_kernels",
        adds=True,
    )


def stream(m: int, n: int, k: int) -> Problem:
    """Stream-K: a program for each multiprocessor."""
    a, b = random(m, k, dtype=torch.float16), random(k, n, dtype=torch.float16)
    c = torch.zeros(m, n, device=DEVICE)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if DEVICE == "cuda" else 3
    return Problem(
        "stream_k_kernel",
        lambda c_, _: (a, b, c, m, n, k),
        lambda config: (programs,),
        c,
        lambda: torch.matmul(a, b),
        lambda: a.float() @ b.float(),
        2e-2,
        file="24_stream_k_matmul",
        adds=True,
    )


def chain(rows: int, keys: int, width: int) -> Problem:
    """Two products, the second of what the first one gives."""
    a, b, c = (random(n, width, dtype=torch.float16) / 4 for n in (rows, keys, keys))
    out = torch.empty_like(a)
    return Problem(
        "chained",
        lambda c_, _: (a, b, c, out, keys, a.stride(0), b.stride(0), c.stride(0), out.stride(0)),
        lambda config: (rows // config["BLOCK_M"],),
        out,
        lambda: (a @ b.T) @ c,
        lambda: (a.float() @ b.float().T).half().float() @ c.float(),
        3e-2,
        {"WIDTH": width},
    )


def batch(count: int, size: int) -> Problem:
    """A product for each matrix of a batch."""
    a, b = (random(count, size, size, dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    return Problem(
        "batched_kernel",
        lambda c_, _: (a, b, c, size, size, size, *a.stride(), *b.stride(), *c.stride()),
        lambda config: (*tiles(size, size)(config), count),
        c,
        lambda: torch.bmm(a, b),
        lambda: a @ b,
        2e-2,
        file="20_batched_matmul",
    )


def grouped(shapes: list[tuple[int, int, int]]) -> Problem:
    """Products of different sizes in one launch; each has a part of one output tensor."""
    pairs = [(random(m, k, dtype=torch.float16), random(k, n, dtype=torch.float16)) for m, n, k in shapes]
    out = torch.empty(sum(m * n for m, n, _ in shapes), device=DEVICE, dtype=torch.float16)
    parts = out.split([m * n for m, n, _ in shapes])
    table = [[a.data_ptr(), b.data_ptr(), c.data_ptr()] for (a, b), c in zip(pairs, parts, strict=True)]
    addresses = torch.tensor(table, dtype=torch.int64, device=DEVICE)
    sizes = torch.tensor(shapes, dtype=torch.int32, device=DEVICE)
    strides = torch.tensor([[k, n, n] for _, n, k in shapes], dtype=torch.int32, device=DEVICE)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if DEVICE == "cuda" else 3
    return Problem(
        "grouped",
        lambda c_, _: (addresses, sizes, strides, len(shapes)),
        lambda config: (programs,),
        out,
        lambda: torch.cat([(a @ b).flatten() for a, b in pairs]),
        lambda: torch.cat([(a @ b).flatten() for a, b in pairs]),
        2e-2,
    )


def grouped_descriptors(shapes: list[tuple[int, int, int]]) -> Problem:
    """Products of different sizes in one launch by descriptors that the kernel makes of what it loads."""
    pairs = [(random(m, k, dtype=torch.float16), random(n, k, dtype=torch.float16)) for m, n, k in shapes]
    out = torch.empty(sum(m * n for m, n, _ in shapes), device=DEVICE, dtype=torch.float16)
    parts = out.split([m * n for m, n, _ in shapes])
    table = [[a.data_ptr(), b.data_ptr(), c.data_ptr()] for (a, b), c in zip(pairs, parts, strict=True)]
    addresses = torch.tensor(table, dtype=torch.int64, device=DEVICE)
    sizes = torch.tensor(shapes, dtype=torch.int32, device=DEVICE)
    strides = torch.tensor([[k, k, n] for _, n, k in shapes], dtype=torch.int32, device=DEVICE)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if DEVICE == "cuda" else 3

    def arguments(_: Config, package: ModuleType) -> tuple[Any, ...]:
        # The memory in which a compiler writes the tensor maps that a kernel makes.
        package.set_allocator(lambda size, _, __: torch.empty(size, device=DEVICE, dtype=torch.int8))
        return addresses, sizes, strides, len(shapes)

    return Problem(
        "grouped_descriptors",
        arguments,
        lambda config: (programs,),
        out,
        lambda: torch.cat([(a @ b.T).flatten() for a, b in pairs]),
        lambda: torch.cat([(a @ b.T).flatten() for a, b in pairs]),
        2e-2,
        file="descriptor_kernels",
    )


def experts(tokens: int, count: int, top: int, n: int, k: int) -> Problem:
    """A mixture of experts: blocks of 64 tokens of one expert, gathered."""
    block = 64
    x = random(tokens, k, dtype=torch.bfloat16)
    w = (torch.randn(count, n, k, device=DEVICE) * k**-0.5).to(torch.bfloat16)
    chosen = torch.rand(tokens, count, device=DEVICE).topk(top, 1).indices.flatten()
    order, of_block = [], []
    for expert in range(count):
        mine = (chosen == expert).nonzero().flatten().int()
        padded = -(-mine.numel() // block) * block
        order.append(torch.nn.functional.pad(mine, (0, padded - mine.numel()), value=tokens * top))
        of_block += [expert] * (padded // block)
    sorted_tokens = torch.cat(order)
    expert_of = torch.tensor(of_block, dtype=torch.int32, device=DEVICE)
    out = torch.empty(tokens * top, n, device=DEVICE, dtype=torch.bfloat16)

    def expected() -> torch.Tensor:
        found = torch.empty(tokens * top, n, device=DEVICE)
        for expert in range(count):
            mine = (chosen == expert).nonzero().flatten()
            found[mine] = x[mine // top].float() @ w[expert].float().T
        return found

    strides = (x.stride(0), w.stride(0), w.stride(1), out.stride(0))
    return Problem(
        "mixture_of_experts",
        lambda c_, _: (x, w, out, sorted_tokens, expert_of, n, k, tokens * top, *strides),
        lambda config: (len(of_block) * -(-n // config["BLOCK_N"]),),
        out,
        None,
        expected,
        2e-2,
        {"GROUP": 8, "TOP_K": top},
    )


def square(
    size: int, dtype: torch.dtype, orders: str, configs: list[Config], asked: tuple[float, float | None]
) -> Row:
    """A row of the pointer kernel on square matrices."""
    names = {"float16": "fp16", "bfloat16": "bf16", "float32": "tf32", "float8_e4m3fn": "fp8"}
    name = str(dtype).removeprefix("torch.")
    return Row(
        f"matmul {names.get(name, name)} {size} {orders}",
        "TFLOP/s",
        2.0 * size**3,
        *asked,
        configs,
        lambda: product(size, size, size, dtype, orders),
    )


def products(small: bool) -> Iterator[Row]:
    """Products as such, by dtype, size and order."""
    half, brain = torch.float16, torch.bfloat16
    for n in (64,) if small else (512, 1024, 2048, 4096, 8192, 16384):
        configs = LARGE if n >= 4096 else SMALL + LARGE[2:4] if n > 512 else SMALL
        yield square(n, half, "nn", configs, (1.05, 0.95 if n >= 4096 else None))
    for n in (64,) if small else (1024, 4096, 8192):
        for orders in ("nt", "tn", "tt"):
            yield square(n, brain, orders, LARGE if n >= 4096 else SMALL, (1.05, 0.95 if n >= 4096 else None))
    for n in (67, 72) if small else (4095, 8200):
        for orders in ("nn", "nt"):
            yield square(n, half, orders, LARGE, (1.05, 0.95))
    for n in (71,) if small else (4095, 8191):
        name = f"matmul fp16 {n} in rows of {n + 1}"
        yield Row(
            name, "TFLOP/s", 2.0 * n**3, 1.05, 0.95, LARGE, lambda n=n: product(n, n, n, half, "nn", gap=1)
        )
    for n in (64,) if small else (4096, 8192):
        name = f"matmul fp16 {n} descriptors, persistent"
        yield Row(name, "TFLOP/s", 2.0 * n**3, 1.05, 1.0, LARGE[:4], lambda n=n: descriptors(n, half))
    n = 64 if small else 8192
    for orders in ("nt", "nn"):
        yield square(n, torch.float8_e4m3fn, orders, BYTES, (1.0, 1.0))
        yield square(n, torch.int8, orders, BYTES, (1.0, None))
        yield square(n // 2, torch.float32, orders, WORDS, (1.0, 0.9))


def decodes(small: bool) -> Iterator[Row]:
    """Few rows by large weights. The work is the bytes of the weights."""
    size = 128 if small else 8192
    for bits in (16, 8, 4):
        for m in (5,) if small else (1, 16, 64):
            configs = DECODE if bits > 4 else INT4
            if m > 16:
                configs = [{**c, "BLOCK_M": 64} for c in configs]
            yield Row(
                f"decode {m}x{size}x{size}, {bits} bits",
                "GB/s",
                size * size * bits / 8,
                1.1,
                None,
                configs,
                lambda m=m, bits=bits: decode(m, size, bits),
            )


def others(small: bool) -> Iterator[Row]:
    """Split-K, stream-K, chains, batches, groups and mixtures of experts."""

    def row(name: str, work: float, configs: list[Config], make: Callable[[], Problem]) -> Row:
        return Row(name, "TFLOP/s", work, 1.0, None, configs, make)

    m, k = (32, 256) if small else (256, 16384)
    yield row(f"split-K fp16 {m}x{m}x{k}", 2.0 * m * m * k, SMALL[:4], lambda: split(m, m, k, 16))
    yield row(
        f"split-K fp16 {m}x{m}x{k}, descriptors",
        2.0 * m * m * k,
        SMALL[:4],
        lambda: split_descriptors(m, m, k, 16),
    )
    few = blocks("128x128x64 w4 s4") + LARGE[2:4] + SMALL[1:3]
    n = 64 if small else 3072
    yield row(f"stream-K fp16 {n}", 2.0 * n**3, few, lambda: stream(n, n, n))
    width, queries, keys = (32, 128, 128) if small else (128, 32768, 4096)
    work = 4.0 * queries * keys * width
    yield row(f"chained fp16 {queries}x{keys}x{width}", work, CHAINED, lambda: chain(queries, keys, width))
    count, size = (2, 48) if small else (64, 1024)
    work = 2.0 * count * size**3
    yield row(f"batched fp16 {count}x{size}", work, LARGE[:4] + SMALL[1:3], lambda: batch(count, size))
    # Multiples of the blocks: the kernel masks nothing.
    shapes = [(1024, 1024, 2048), (1536, 4096, 1024), (3072, 2048, 4096), (512, 2560, 1536)]
    if small:
        shapes = [(64, 128, 128), (128, 256, 64)]
    work = sum(2.0 * m * n * k for m, n, k in shapes)
    yield row("grouped fp16, 4 products", work, few, lambda: grouped(shapes))
    # One with what is left over, which the descriptors bound.
    uneven = [*shapes, (72, 136, 72) if small else (1000, 2056, 1032)]
    yield row(
        "grouped fp16, 5 products, descriptors made in the kernel",
        sum(2.0 * m * n * k for m, n, k in uneven),
        few,
        lambda: grouped_descriptors(uneven),
    )
    tokens, of, columns, depth = (20, 3, 64, 64) if small else (4096, 16, 4096, 2048)
    yield row(
        f"mixture of experts bf16, {tokens} tokens, 2 of {of}",
        2.0 * tokens * 2 * columns * depth,
        blocks(
            *("64x128x64 w4 s4", "64x256x64 w4 s3", "64x256x64 w8 s3", "64x128x128 w4 s3"),
            *("64x256x64 w4 s4", "64x256x64 w4 s5", "64x256x64 w8 s4"),
        ),
        lambda: experts(tokens, of, 2, columns, depth),
    )


def switched(small: bool) -> Iterator[Row]:
    """With warps of their own for copies, and without: the second row of each pair has what the first has not."""
    half = torch.float16
    sizes = (128,) if small else (4096, 8192)
    for n in sizes:
        for specialize in (list, specialized):
            what = "specialized" if specialize is specialized else "not specialized"
            yield Row(
                f"switch: matmul fp16 {n} nn, {what}", "TFLOP/s", 2.0 * n**3, 1.0, None,
                specialize(LARGE), lambda n=n: product(n, n, n, half, "nn"),
            )  # fmt: skip
            yield Row(
                f"switch: matmul fp16 {n} descriptors, persistent, {what}", "TFLOP/s", 2.0 * n**3, 1.0, None,
                specialize(LARGE), lambda n=n: descriptors(n, half),
            )  # fmt: skip


def rows(small: bool) -> Iterator[Row]:
    """All of them."""
    yield from products(small)
    yield from decodes(small)
    yield from others(small)
    yield from switched(small)
