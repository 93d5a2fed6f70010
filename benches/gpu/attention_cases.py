"""Attention for `gpu/products.py`: its data and configurations, and what is asked of each row."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpu.product_cases import DEVICE, Config, Problem, Row, specialized

LOG2_E = 1.4426950408889634


def blocks(*shapes: str) -> list[Config]:
    """Configurations written as `128x64 w8 s3`: both blocks, warps, stages."""
    words = [shape.replace("x", " ").split() for shape in shapes]
    return [
        {"BLOCK_M": int(m), "BLOCK_N": int(n), "num_warps": int(w[1:]), "num_stages": int(s[1:])}
        for m, n, w, s in words
    ]


FORWARD = blocks(
    *("128x64 w4 s3", "128x64 w8 s3", "128x64 w8 s4", "128x128 w8 s2", "128x128 w8 s3"),
    *("128x32 w4 s4", "64x64 w4 s2", "64x64 w4 s3", "64x32 w4 s4"),
)
BACKWARD = blocks(
    *("32x128 w4 s5", "32x128 w4 s3", "32x128 w8 s3", "64x128 w8 s2", "64x128 w8 s3", "64x64 w4 s3"),
    *("64x64 w4 s2", "32x64 w4 s3"),
)
# As the public tutorial has it.
TUTORIAL: list[Config] = [
    {"BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32, "num_warps": 4, "num_stages": 5}
]


def flat(x: torch.Tensor) -> torch.Tensor:
    """[heads, steps, head] as the kernels see it."""
    return x.reshape(-1, x.shape[-1])


def operands(heads: int, steps: int, head: int) -> list[torch.Tensor]:
    """Q, K, V of fp16."""
    return [torch.randn(1, heads, steps, head, device=DEVICE, dtype=torch.float16) for _ in range(3)]


def forward(heads: int, steps: int, head: int, causal: bool, dtype: torch.dtype) -> Problem:
    """The forward pass; V of 8 bits is stored by columns."""
    q, k, v = operands(heads, steps, head)
    is_byte = dtype.itemsize == 1
    mine = [flat(x).to(dtype) for x in (q, k, v)]
    if is_byte:
        q, k, v = (x.to(dtype).half() for x in (q, k, v))
        mine[2] = v.transpose(2, 3).contiguous().reshape(-1, steps).to(dtype)
    out = torch.empty(heads * steps, head, device=DEVICE, dtype=torch.float16)
    lse = torch.empty(heads * steps, device=DEVICE)

    def arguments(config: Config, package: ModuleType) -> tuple[Any, ...]:
        make = importlib.import_module(f"{package.__name__}.tools.tensor_descriptor").TensorDescriptor
        m, n = config["BLOCK_M"], config["BLOCK_N"]
        shapes = ([m, head], [n, head], [head, n] if is_byte else [n, head], [m, head])
        descriptors = [make.from_tensor(x, shape) for x, shape in zip((*mine, out), shapes, strict=True)]
        return *descriptors, lse, head**-0.5

    def reference() -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return Problem(
        "attention_forward",
        arguments,
        lambda config: (steps // config["BLOCK_M"], heads),
        out,
        None if is_byte else reference,
        lambda: flat(reference()[0]),
        # P of 8 bits has three digits; that of the first rows, which have few keys, does not average out.
        0.5 if is_byte else 0.1,
        {"STEPS": steps, "HEAD": head, "CAUSAL": int(causal), "V_BY_COLUMNS": int(is_byte)},
        file="attention_kernels",
    )


def log_sum_exp(q: torch.Tensor, k: torch.Tensor, causal: bool) -> torch.Tensor:
    """In units of log 2, of each query."""
    steps, head = q.shape[-2:]
    hidden = torch.ones(steps, steps, device=DEVICE, dtype=torch.bool).triu(1)
    found = []
    for a, b in zip(q[0], k[0], strict=True):
        scores = (a.float() @ b.float().T) * head**-0.5
        found.append(torch.logsumexp(scores.masked_fill_(hidden, -torch.inf) if causal else scores, 1))
    return torch.cat(found) * LOG2_E


def backward(heads: int, steps: int, head: int, causal: bool) -> Problem:
    """The backward pass; what the forward one keeps is there already. The output is dQ, dK and dV."""
    q, k, v = (x.requires_grad_() for x in operands(heads, steps, head))
    do = torch.randn_like(q)
    o = scaled_dot_product_attention(q, k, v, is_causal=causal)
    out = torch.empty(3, heads * steps, head, device=DEVICE, dtype=torch.float16)
    with torch.no_grad():
        lse = log_sum_exp(q, k, causal)
        delta = flat(o.float() * do).sum(1)
        scaled = flat(k * (head**-0.5 * LOG2_E))
        inputs = (flat(q.detach()), scaled, flat(v.detach()), flat(do), lse, delta)

    def gradients() -> torch.Tensor:
        return torch.autograd.grad(o, (q, k, v), do, retain_graph=True)[0]

    return Problem(
        "attention_backward",
        lambda _, package: (*inputs, *out, head**-0.5),
        lambda config: (steps // config["BLOCK_N"], heads),
        out,
        gradients,
        lambda: torch.stack([flat(x) for x in torch.autograd.grad(o, (q, k, v), do, retain_graph=True)]),
        0.2,
        {"STEPS": steps, "HEAD": head, "CAUSAL": int(causal)},
        file="attention_kernels",
    )


def tutorial_backward(heads: int, steps: int, head: int, causal: bool) -> Problem:
    """The backward pass in the tutorial's form, with the kernel that it launches before."""
    q, k, v = (x.requires_grad_() for x in operands(heads, steps, head))
    do = torch.randn_like(q)
    o = scaled_dot_product_attention(q, k, v, is_causal=causal)
    out = torch.empty(3, 1, heads, steps, head, device=DEVICE, dtype=torch.float16)
    with torch.no_grad():
        lse = log_sum_exp(q, k, causal)
        delta = torch.empty_like(lse)
        scaled = k * (head**-0.5 * LOG2_E)
        inputs = (q.detach(), scaled, v.detach(), head**-0.5, do, *out, lse, delta)
        result = o.detach().contiguous()

    def gradients() -> torch.Tensor:
        return torch.autograd.grad(o, (q, k, v), do, retain_graph=True)[0]

    sums = Problem(
        "output_sums",
        lambda _, package: (result, do, delta, steps),
        lambda config: (steps // 128, heads),
        delta,
        None,
        lambda: delta,
        0.1,
        {"HEAD": head, "BLOCK_M": 128},
        file="attention_tutorial_kernels",
    )
    return Problem(
        "tutorial_backward",
        lambda _, package: (*inputs, *q.stride(), heads, steps),
        lambda config: (steps // config["BLOCK_N1"], 1, heads),
        out,
        gradients,
        lambda: torch.stack(torch.autograd.grad(o, (q, k, v), do, retain_graph=True)),
        0.2,
        {"SLICES": 2, "HEAD": head, "CAUSAL": int(causal)},
        file="attention_tutorial_kernels",
        first=sums,
    )


def rows(small: bool) -> Iterator[Row]:
    """Both passes, by heads, masks and lengths."""
    heads = 2 if small else 64
    sizes = (128,) if small else (1024, 2048, 4096, 8192, 16384)
    kinds = [(head, causal) for head in ((16, 32) if small else (64, 128)) for causal in (False, True)]

    def work(steps: int, head: int, causal: bool, products: int) -> float:
        return 2.0 * products * heads * steps * steps * head / (2 if causal else 1)

    def name(kind: str, steps: int, head: int, causal: bool) -> str:
        return f"attention {kind} {steps}, {heads} heads of {head}{', causal' if causal else ''}"

    for head, causal in kinds:
        for n in sizes:
            yield Row(
                name("fp16", n, head, causal),
                "TFLOP/s",
                work(n, head, causal, 2),
                1.15,
                1.0 if n >= 4096 else None,
                FORWARD,
                lambda n=n, head=head, causal=causal: forward(heads, n, head, causal, torch.float16),
            )
    for head in sorted({head for head, _ in kinds}):
        for specialize, what in ((list, "not specialized"), (specialized, "specialized")):
            n = sizes[-2:][0]
            yield Row(
                f"switch: {name('fp16', n, head, False)}, {what}",
                "TFLOP/s",
                work(n, head, False, 2),
                1.0,
                None,
                specialize(FORWARD),
                lambda n=n, head=head: forward(heads, n, head, False, torch.float16),
            )
        for n in sizes[-2:-1] or sizes:
            yield Row(
                name("fp8", n, head, False),
                "TFLOP/s",
                work(n, head, False, 2),
                1.0,
                None,
                FORWARD,
                lambda n=n, head=head: forward(heads, n, head, False, torch.float8_e5m2),
            )
    for head, causal in kinds:
        for n in sizes if small else (1024, 4096, 8192):
            yield Row(
                name("backward fp16", n, head, causal),
                "TFLOP/s",
                work(n, head, causal, 5),
                3.0 if head == 128 else 1.2,
                None,
                BACKWARD,
                lambda n=n, head=head, causal=causal: backward(heads, n, head, causal),
            )
        n = 128 if small else 4096
        yield Row(
            name("backward in the tutorial's form fp16", n, head, causal),
            "TFLOP/s",
            work(n, head, causal, 5),
            3.0 if head == 128 else 1.2,
            None,
            TUTORIAL,
            lambda n=n, head=head, causal=causal: tutorial_backward(heads, n, head, causal),
        )
