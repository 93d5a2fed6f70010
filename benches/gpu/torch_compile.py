"""torch.compile with tilewright as its Triton, beside the official one: ``python -m gpu.torch_compile`` in `benches`.

Each case runs in a process of its own for each side, one after the other, with empty caches. It computes in three
ways: eagerly in fp32, which is the truth; eagerly in bf16; and compiled in bf16, which may be twice as far off as the
second, by the norm of each result. The steps that follow are timed twice: as the host sees them, one after the other,
and on the GPU only, which has a step in its queue before it begins. Ratios are the official triton's time to ours.

``--device cpu --small`` runs the side of tilewright without a GPU: Inductor writes Triton for the CPU as well.

A case takes up to a minute a side, most of it compilation. To save time, ``--only CASE --sides SIDE`` runs a
part, and ``--caches FOLDER`` keeps the compiled code: of a second run with it, the steps
count and not the time until the first.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from gpu.sides import TILEWRIGHT, TRITON


@dataclass
class Case:
    """A function to compile, and its inputs."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    trained: list[torch.Tensor] = field(default_factory=list)
    """Of these the gradients are computed and, by a second compiled function, an update; the result is a loss then."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of torch.compile."""
    mixed: bool = True
    """True if matrix products are in bf16."""


@torch.no_grad()
def update(
    parameters: list[torch.Tensor], gradients: Iterable[torch.Tensor], momenta: list[torch.Tensor]
) -> None:
    """A step of gradient descent with momentum."""
    for parameter, gradient, momentum in zip(parameters, gradients, momenta, strict=True):
        momentum.mul_(0.9).add_(gradient)
        parameter.sub_(momentum, alpha=1e-4)


# --- A small GPT ---


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    def __init__(self, words: int, steps: int, width: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(steps, width)
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def gpt(device: str, small: bool) -> Case:
    words, batch, steps, width, layers = (300, 2, 32, 64, 1) if small else (16384, 8, 1024, 768, 4)
    model = GPT(words, steps, width, layers).to(device)
    tokens = torch.randint(0, words, (batch, steps + 1), device=device)

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())

    return Case(loss, (tokens,), list(model.parameters()), mixed=not small)


# --- A residual network ---


class Residual(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.skip = nn.Identity() if stride == 1 else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.skip(x))


def resnet(device: str, small: bool) -> Case:
    widths, batch, size = ((8, 8, 16), 2, 16) if small else ((64, 64, 128, 256, 512), 128, 112)
    stem = [
        nn.Conv2d(3, widths[0], 7, 2, 3, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    body = [Residual(before, after) for before, after in itertools.pairwise(widths)]
    layers = [*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100)]
    model = nn.Sequential(*layers).to(device, memory_format=torch.channels_last)
    images = torch.randn(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (batch,), device=device)

    def loss(images: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(images).float(), labels)

    return Case(loss, (images,), list(model.parameters()), mixed=not small)


# --- A mixture of experts ---


def experts(device: str, small: bool) -> Case:
    """Each token goes to two experts: softmax, top-k, gates, and what is scattered back."""
    tokens, width, inner, count = (48, 32, 64, 4) if small else (4096, 1024, 2048, 8)
    x = torch.randn(tokens, width, device=device)
    router = torch.randn(width, count, device=device) * width**-0.5
    up = torch.randn(count, width, 2 * inner, device=device) * width**-0.5
    down = torch.randn(count, inner, width, device=device) * inner**-0.5
    weights = [w.requires_grad_() for w in (router, up, down)]

    def loss(x: torch.Tensor) -> torch.Tensor:
        # In fp32, so that all three ways choose the same experts.
        with torch.autocast(x.device.type, enabled=False):
            gates, chosen = (x @ router).softmax(-1).topk(2)
        gates = gates / gates.sum(-1, keepdim=True)
        # As in training with a capacity: places by a running count, and those past the capacity are dropped.
        flat = chosen.flatten()
        place = (functional.one_hot(flat, count).cumsum(0) - 1).gather(1, flat[:, None])[:, 0]
        capacity = tokens * 2 // count
        fits = place < capacity
        place = torch.where(fits, flat * capacity + place, count * capacity)
        source = torch.arange(tokens, device=x.device).repeat_interleave(2)
        slots = x.new_zeros(count * capacity + 1, width).index_copy(0, place, x[source])
        a, b = (slots[:-1].view(count, capacity, width) @ up).chunk(2, -1)
        y = ((functional.silu(a) * b) @ down).flatten(0, 1)
        y = torch.cat((y, y.new_zeros(1, width)))
        mixed = torch.zeros_like(x).index_add(0, source, (y[place] * gates.flatten()[:, None]).to(x.dtype))
        return (mixed * x).mean()

    return Case(loss, (x,), weights, mixed=not small)


# --- Single operations ---


def scatter(device: str, small: bool) -> Case:
    """Sums by index: atomic operations."""
    rows, width, many = (50, 16, 200) if small else (50_000, 256, 400_000)
    source = torch.randn(many, width, device=device)
    index = torch.randint(0, rows, (many,), device=device)

    def sums(source: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = source.new_zeros(rows, width)
        added = zeros.index_add(0, index, source * 2)
        scattered = zeros.scatter_add(0, index[:, None].expand_as(source), source.sin())
        largest = zeros.scatter_reduce(0, index[:, None].expand_as(source), source, "amax")
        return added, scattered, largest

    return Case(sums, (source, index), mixed=False)


def scans(device: str, small: bool) -> Case:
    """Running sums and sorting, of rows that one program holds and of longer ones."""
    rows, n = (20, 100) if small else (16384, 512)
    x = torch.randn(rows, n, device=device)
    long = torch.randn(4, 3000 if small else 2**20, device=device)

    def scanned(x: torch.Tensor, long: torch.Tensor) -> tuple[torch.Tensor, ...]:
        order = torch.sort(x * 2, dim=1, stable=True)
        counts = (x > 0).cumsum(1)
        return order.values, order.indices, counts, x.cumsum(1), long.sin().cumsum(1), x.logcumsumexp(1)

    return Case(scanned, (x, long), mixed=False)


AUTOTUNED = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}


def matmul(device: str, small: bool) -> Case:
    """The templates of matrix products, with operations fused after them."""
    m, n, k = (48, 80, 64) if small else (4096, 4096, 4096)
    a, b, bias = (torch.randn(shape, device=device) for shape in ((m, k), (k, n), (n,)))

    def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.relu(a @ b + bias)

    return Case(product, (a, b, bias), options=AUTOTUNED, mixed=not small)


def attention(device: str, small: bool) -> Case:
    """The templates of attention, forward and backward, with a score of one's own and a mask of blocks."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    batch, heads, steps, width = (1, 2, 128, 16) if small else (4, 16, 2048, 64)
    q, k, v = (torch.randn(batch, heads, steps, width, device=device, requires_grad=True) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, steps, steps, device=device)

    def nearer(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score - (i - j) * 0.01

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        dtype = (
            torch.get_autocast_dtype(q.device.type) if torch.is_autocast_enabled(q.device.type) else q.dtype
        )
        o = flex_attention(*(x.to(dtype) for x in (q, k, v)), score_mod=nearer, block_mask=mask)
        return (o.float() * o.float().detach().cos()).mean()

    return Case(loss, (q, k, v), [q, k, v])


CASES: dict[str, Callable[[str, bool], Case]] = {
    "training step of a GPT": gpt,
    "training step of a ResNet": resnet,
    "mixture of experts": experts,
    "scatter, index_add": scatter,
    "cumsum, sort": scans,
    "max-autotune matmul": matmul,
    "flex_attention": attention,
}
ON_A_GPU_ALONE = ("flex_attention",)
"""Torch has templates in C++ for the CPU, and no backward pass."""


# --- One case on one side ---


def results(case: Case, function: Callable[..., Any], mixed: bool) -> list[torch.Tensor]:
    """The results of the function, and the gradients."""
    device = case.inputs[0].device.type
    with torch.autocast(device, torch.bfloat16) if mixed else contextlib.nullcontext():
        found = function(*case.inputs)
    if case.trained:
        return [found.detach(), *torch.autograd.grad(found, case.trained)]
    return [found] if isinstance(found, torch.Tensor) else list(found)


def distance(found: torch.Tensor, true: torch.Tensor) -> float:
    """The norm of the difference beside that of the truth; infinite where only one has NaN or another shape."""
    if found.shape != true.shape:
        return float("inf")
    if not true.is_floating_point():
        return 0.0 if torch.equal(found, true) else float("inf")
    found, true = found.double(), true.double()
    size = true.norm().item()
    error = (found - true).norm().item() / size if size else found.norm().item()
    return error if error == error else float("inf")


def check(case: Case, compiled: Callable[..., Any]) -> str:
    """How far off the results are; raises if one is further off than the eager ones excuse."""
    truth = results(case, case.function, mixed=False)
    eager = results(case, case.function, mixed=case.mixed)
    found = results(case, compiled, mixed=case.mixed)
    worst = (0.0, 0.0)
    for place, (of_compiled, of_eager, true) in enumerate(zip(found, eager, truth, strict=True)):
        error, excused = distance(of_compiled, true), distance(of_eager, true)
        if error > 2 * excused + 1e-4:
            raise AssertionError(f"result {place} is off by {error:.1e}, eagerly by {excused:.1e}")
        worst = max(worst, (error, excused))
    return f"{worst[0]:.1e} ({worst[1]:.1e})"


def on_the_host(step: Callable[[], Any], device: str, least: float) -> float:
    """Milliseconds a step as its caller sees them; the median of batches of ten, for at least `least` seconds."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(3):
        step()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begun < least:
        wait()
        start = time.perf_counter()
        for _ in range(10):
            step()
        wait()
        times.append((time.perf_counter() - start) * 100)
    return statistics.median(times)


def on_the_gpu(step: Callable[[], Any], host: float) -> float:
    """Milliseconds a step between events, the median of 20; the GPU is kept busy until the step is in its queue."""
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int(host * 1.5 * 2e6))
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def measure(side: str, name: str, device: str, small: bool) -> dict[str, Any]:
    """Runs a case in this process, whose Triton `side` is."""
    if side == TILEWRIGHT:
        import tilewright

        tilewright.install_as_triton()
    import torch._inductor.config as inductor

    if device == "cpu":
        inductor.cpu_backend = "triton"
        # Code for the CPU stays in its process, and torch does not time possible fusions there.
        inductor.compile_threads = 1
        inductor.benchmark_epilogue_fusion = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    case = CASES[name](device, small)
    begun = time.perf_counter()
    compiled = torch.compile(case.function, options=case.options or None, dynamic=False)
    errors = check(case, compiled)
    momenta = [torch.zeros_like(parameter) for parameter in case.trained]
    compiled_update = torch.compile(update, dynamic=False)

    def step() -> None:
        _, *gradients = results(case, compiled, mixed=case.mixed)
        if case.trained:
            compiled_update(case.trained, gradients, momenta)

    step()
    seconds = time.perf_counter() - begun
    host = on_the_host(step, device, 0.0 if small else 1.0)
    found = {"errors": errors, "seconds": seconds, "host": host}
    return {**found, "gpu": on_the_gpu(step, host)} if device == "cuda" else found


# --- All of them ---


def in_a_process(side: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The result of `measure` in another process, or the line that it ended with."""
    with contextlib.ExitStack() as ended:
        if options.caches:
            scratch = os.path.join(os.path.abspath(options.caches), side, name.replace(" ", "-"))
        else:
            scratch = ended.enter_context(tempfile.TemporaryDirectory(prefix="torch-compile-"))
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
            "TRITON_CACHE_DIR": f"{scratch}/triton",
            "TILEWRIGHT_CACHE_DIR": f"{scratch}/tilewright",
        }
        command = [sys.executable, "-m", "gpu.torch_compile", "--one", side, name, "--device", options.device]
        command += ["--small"] if options.small else []
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=options.limit)
        except subprocess.TimeoutExpired:
            # With the processes that torch compiles in.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"failed": f"no answer in {options.limit:.0f} s"}
    if process.returncode != 0:
        sys.stderr.write(errors)
        return {"failed": (errors.strip().splitlines() or [f"status {process.returncode}"])[-1][:200]}
    return json.loads(output.splitlines()[-1])


def row(name: str, sides: dict[str, dict[str, Any]]) -> str:
    """A line of the table."""
    columns = [name]
    for clock in ("gpu", "host"):
        times = [found.get(clock) for found in sides.values()]
        columns += ["" if taken is None else f"{taken:.3f} ms" for taken in times]
        columns.append(f"{times[0] / times[1]:.2f}" if len(times) == 2 and all(times) else "")
    columns += [f"{found['seconds']:.1f} s" if "seconds" in found else "" for found in sides.values()]
    columns += [found.get("errors") or f"failed: {found['failed']}" for found in sides.values()]
    return "| " + " | ".join(columns).replace("\n", " ") + " |"


def main() -> int:
    """Runs what the command line says; the status is 1 if tilewright failed in a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="only these cases")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="sizes for a test")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a process (%(default)s)")
    parser.add_argument("--sides", nargs="*", choices=(TRITON, TILEWRIGHT), help="only these sides")
    parser.add_argument(
        "--caches", metavar="FOLDER", help="keep what was compiled there; else it is forgotten"
    )
    parser.add_argument("--json", type=Path, help="a file for the times on the GPU")
    parser.add_argument(
        "--one", nargs=2, metavar=("SIDE", "CASE"), help="what the processes are started with"
    )
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.device, options.small)))
        return 0
    sides = (TRITON, TILEWRIGHT) if options.device == "cuda" else (TILEWRIGHT,)
    sides = tuple(side for side in sides if side in (options.sides or sides))
    head = [
        "case",
        *(column for clock in ("GPU", "host") for column in (*(f"{clock}: {s}" for s in sides), "ratio")),
    ]
    head += [f"{what}: {side}" for what in ("until the first step", "off by (eagerly)") for side in sides]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
    failed = False
    everything = []
    for name in options.only or CASES:
        if name in ON_A_GPU_ALONE and options.device == "cpu":
            continue
        found = {side: in_a_process(side, name, options) for side in sides}
        print(row(name, found), flush=True)
        # In microseconds on the GPU.
        times = {side: [one["gpu"] * 1e3] for side, one in found.items() if "gpu" in one}
        errors = {side: one["failed"] for side, one in found.items() if "failed" in one}
        everything.append({"name": f"torch.compile: {name}", "times": times, "errors": errors})
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
        failed = failed or "failed" in found.get(TILEWRIGHT, {})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
