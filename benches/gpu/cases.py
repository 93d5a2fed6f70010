"""The measurements: for each case and size the kernel, its arguments and options, and torch's counterpart.

The sizes are those of Triton's tutorials. Both implementations get the same grid, options and tensors; every side but
torch's layer norm and attention, which have no `out=`, writes into memory that is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

ROWS = 4096
"""Rows of softmax and layer norm."""


@dataclass(frozen=True)
class Problem:
    """One launch, and what it must compute."""

    kernel: str
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    out: Any
    torch: Callable[[], Any]
    reference: Callable[[], Any]
    """The result in the precision that the others are compared with."""
    tolerance: float = 0.0
    """Absolute and relative, of each element."""
    constexprs: dict[str, int] = field(default_factory=dict)
    options: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A case at one size; `prepare` makes the tensors."""

    name: str
    size: str
    unit: str
    work: float
    asked: float | None
    prepare: Callable[[], Problem]


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _random(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.randn(shape, device="cuda", dtype=torch.float32).to(getattr(torch, dtype))


def vector_add(exponent: int) -> Case:
    """Vector addition."""
    size, block = 1 << exponent, 1024

    def prepare() -> Problem:
        import torch

        x, y, theirs = _random(size), _random(size), _random(size)
        out = torch.empty_like(x)
        return Problem(
            kernel="add_kernel",
            grid=(-(-size // block),),
            args=(x, y, out, size),
            out=out,
            torch=lambda: torch.add(x, y, out=theirs),
            reference=lambda: x + y,
            constexprs={"BLOCK": block},
            options={"num_warps": 4},
        )

    return Case("vector add fp32", f"2^{exponent}", "GB/s", 3 * 4 * size, 1.0, prepare)


def softmax(cols: int) -> Case:
    """Softmax over rows."""
    block = _power_of_two(cols)

    def prepare() -> Problem:
        import torch

        x, theirs = _random(ROWS, cols), _random(ROWS, cols)
        out = torch.empty_like(x)
        return Problem(
            kernel="softmax_kernel",
            grid=(ROWS,),
            args=(out, x, x.stride(0), cols),
            out=out,
            torch=lambda: torch.softmax(x, dim=1, out=theirs),
            reference=lambda: torch.softmax(x.double(), dim=1).float(),
            tolerance=1e-5,
            constexprs={"BLOCK": block},
            options={"num_warps": 4 if block < 2048 else 8 if block < 4096 else 16},
        )

    return Case("softmax fp32, 4096 rows", str(cols), "GB/s", 2 * 4 * ROWS * cols, 1.0, prepare)


def layer_norm(cols: int) -> Case:
    """Layer norm over rows."""
    block = _power_of_two(cols)

    def prepare() -> Problem:
        import torch

        x, weight, bias = (_random(*shape, dtype="float16") for shape in ((ROWS, cols), (cols,), (cols,)))
        out = torch.empty_like(x)

        def norm(*tensors: Any) -> Any:
            return torch.nn.functional.layer_norm(tensors[0], (cols,), *tensors[1:], 1e-5)

        return Problem(
            kernel="layer_norm_kernel",
            grid=(ROWS,),
            args=(x, weight, bias, out, x.stride(0), cols, 1e-5),
            out=out,
            torch=lambda: norm(x, weight, bias),
            reference=lambda: norm(x.float(), weight.float(), bias.float()),
            tolerance=4e-3,
            constexprs={"BLOCK": block},
            options={"num_warps": min(max(block // 256, 1), 8)},
        )

    return Case("layer norm fp16, 4096 rows", str(cols), "GB/s", 2 * 2 * ROWS * cols, 1.0, prepare)


def matmul(size: int, columns: int = 128) -> Case:
    """Matrix product in blocks of 128 rows and `columns` columns, and steps of 64."""
    blocks = {"BLOCK_M": 128, "BLOCK_N": columns, "BLOCK_K": 64}

    def prepare() -> Problem:
        import torch

        a = _random(size, size, dtype="float16")
        # The elements of the product are of the size of 1 for every depth.
        b = (_random(size, size) * size**-0.5).half()
        out, theirs = torch.empty_like(a), torch.empty_like(a)
        return Problem(
            kernel="matmul_kernel",
            grid=(-(-size // blocks["BLOCK_M"]), -(-size // blocks["BLOCK_N"])),
            args=(a, b, out, size, size, size, *a.stride(), *b.stride(), *out.stride()),
            out=out,
            torch=lambda: torch.matmul(a, b, out=theirs),
            reference=lambda: torch.matmul(a.float(), b.float()),
            tolerance=1e-2,
            constexprs=blocks,
            options={"num_warps": 8, "num_stages": 3},
        )

    return Case("matmul fp16", str(size), "TFLOP/s", 2.0 * size**3, None, prepare)


def attention(rows: int, batch: int = 4, heads: int = 16, head: int = 64) -> Case:
    """Attention forward, not causal."""
    blocks = {"BLOCK_M": 128, "BLOCK_N": 64, "HEAD": head}

    def prepare() -> Problem:
        import torch

        q, k, v = (_random(batch, heads, rows, head, dtype="float16") for _ in range(3))
        out = torch.empty_like(q)
        attend = torch.nn.functional.scaled_dot_product_attention
        return Problem(
            kernel="attention_kernel",
            grid=(rows // blocks["BLOCK_M"], batch * heads),
            args=(q, k, v, out, q.stride(1), q.stride(2), rows, head**-0.5),
            out=out,
            torch=lambda: attend(q, k, v),
            reference=lambda: attend(q.float(), k.float(), v.float()),
            tolerance=1e-2,
            constexprs=blocks,
            options={"num_warps": 4, "num_stages": 3},
        )

    work = 4.0 * batch * heads * rows * rows * head
    return Case(f"attention fp16, {batch}x{heads} heads of {head}", str(rows), "TFLOP/s", work, None, prepare)


def throughput(name: str, step: int) -> list[Case]:
    """The sizes of one of `THROUGHPUT`; every `step`-th, the last among them."""
    sizes: dict[str, Callable[[], Iterator[Case]]] = {
        "add": lambda: map(vector_add, range(12, 28)),
        "softmax": lambda: (softmax(128 * i) for i in range(2, 101)),
        "layer-norm": lambda: (layer_norm(512 * i) for i in range(2, 33)),
        "matmul": lambda: (matmul(256 * i) for i in range(1, 17)),
        "attention": lambda: (attention(1024 * i) for i in (1, 2, 4, 8)),
    }
    return list(sizes[name]())[::-1][::step][::-1]


THROUGHPUT = ("add", "softmax", "layer-norm", "matmul", "attention")
"""The names of the cases that are measured by CUDA events."""


def compiled() -> list[Case]:
    """The kernels whose compilation is timed."""
    wide = matmul(1024, columns=256)
    wide = replace(wide, size=f"{wide.size} in 128x256x64")
    return [vector_add(20), softmax(896), layer_norm(1024), matmul(1024), wide, attention(1024)]


def empty(arguments: int) -> Problem:
    """An empty kernel: three quarters of the arguments are tensors, the others numbers."""
    x = _random(1024)
    tensors = arguments * 3 // 4
    args = (*[x] * tensors, *range(100, 100 + arguments - tensors))
    return Problem(f"empty_{arguments}_kernel", (1,), args, x, lambda: x, lambda: x)
