"""Models and operations in plain torch, as cases for `gpu.torch_compile`: each makes a function and its inputs.

The sizes are "small" for tests, "cpu" for one thread of a CPU, and "gpu".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional


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


def gpt(device: str, size: str) -> Case:
    words, batch, steps, width, layers = {
        "small": (300, 2, 32, 64, 1),
        "cpu": (4096, 2, 128, 256, 2),
        "gpu": (16384, 8, 1024, 768, 4),
    }[size]
    model = GPT(words, steps, width, layers).to(device)
    tokens = torch.randint(0, words, (batch, steps + 1), device=device)

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())

    return Case(loss, (tokens,), list(model.parameters()), mixed=size == "gpu")


# --- A block of Llama ---


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.scale


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of `x[batch, head, step, channel]`."""
    steps, width = x.shape[-2:]
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, device=x.device) / width)
    angles = torch.arange(steps, device=x.device)[:, None] * frequencies
    cos, sin = angles.cos().repeat(1, 2).to(x.dtype), angles.sin().repeat(1, 2).to(x.dtype)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class LlamaBlock(nn.Module):
    """Attention whose keys and values serve two heads each, and SwiGLU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.channels = heads, width // heads
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(2))
        self.q, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.kv = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, width = x.shape
        y = self.norms[0](x)
        q = self.q(y).view(batch, steps, self.heads, self.channels).transpose(1, 2)
        k, v = self.kv(y).view(batch, steps, 2, self.heads // 2, self.channels).permute(2, 0, 3, 1, 4)
        k, v = (part.repeat_interleave(2, 1) for part in (rotated(k), v))
        mixed = functional.scaled_dot_product_attention(rotated(q), k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def llama(device: str, size: str) -> Case:
    batch, steps, width, heads = (2, 24, 64, 4) if size == "small" else (1, 256, 512, 8)
    model = LlamaBlock(width, heads).to(device).requires_grad_(False)
    return Case(model, (torch.randn(batch, steps, width, device=device),), mixed=False)


# --- Encoders and decoders ---


class Attention(nn.Module):
    """Attention of `x` to `source`, with a bias of each pair of positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.v, self.out = (nn.Linear(width, width) for _ in range(3))
        # A bias of the keys would have no effect, since softmax ignores what all scores have in common.
        self.k = nn.Linear(width, width, bias=False)

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        q, k, v = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, source), (self.v, source))
        )
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        mixed = (scores if bias is None else scores + bias).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Norms after the residual sums, as in BERT, or before their branches, as in ViT."""

    def __init__(self, width: int, heads: int, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = Attention(width, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norms[0](x) if self.norm_first else x
        x = x + self.attention(y, y, bias)
        x = x if self.norm_first else self.norms[0](x)
        y = self.norms[1](x) if self.norm_first else x
        x = x + self.down(functional.gelu(self.up(y)))
        return x if self.norm_first else self.norms[1](x)


class BERT(nn.Module):
    def __init__(self, words: int, steps: int, width: int, layers: int) -> None:
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(count, width) for count in (words, steps, 2))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, width // 32, norm_first=False) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.places(places) + self.kinds((places > 7).long()))
        bias = torch.where(places < lengths[:, None], 0.0, float("-inf"))[:, None, None]
        for layer in self.layers:
            x = layer(x, bias)
        return x, self.pooler(x[:, 0]).tanh()


def bert(device: str, size: str) -> Case:
    words, batch, steps, width, layers = (100, 2, 20, 64, 1) if size == "small" else (8192, 4, 128, 256, 2)
    model = BERT(words, steps, width, layers).to(device).requires_grad_(False)
    tokens = torch.randint(0, words, (batch, steps), device=device)
    return Case(model, (tokens, torch.randint(4, steps + 1, (batch,), device=device)), mixed=False)


class T5(nn.Module):
    """An encoder and a decoder of one layer each, with biases by the bucket of a distance."""

    def __init__(self, words: int, width: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.distances = nn.ModuleList(nn.Embedding(16, heads) for _ in range(2))
        self.attentions = nn.ModuleList(Attention(width, heads) for _ in range(3))
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(7))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(2))

    def bias(self, steps: int, causal: bool) -> torch.Tensor:
        places = torch.arange(steps, device=self.words.weight.device)
        distance = places - places[:, None]
        near = distance.abs().clamp(max=3)
        far = (distance.abs().clamp(min=1).float() / 4).log2().clamp(0, 3).long()
        bias = self.distances[causal](near + far + 8 * (distance > 0)).permute(2, 0, 1)
        return bias.masked_fill(distance > 0, float("-inf")) if causal else bias

    def feed(self, x: torch.Tensor, index: int) -> torch.Tensor:
        y = functional.relu(self.up[index](self.norms[2 + index](x)))
        return x + self.down[index](y)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x, y = self.words(tokens), self.words(targets)
        z = self.norms[0](x)
        x = self.feed(x + self.attentions[0](z, z, self.bias(x.shape[1], False)), 0)
        source = self.norms[1](x)
        z = self.norms[4](y)
        y = y + self.attentions[1](z, z, self.bias(y.shape[1], True))
        y = self.feed(y + self.attentions[2](self.norms[5](y), source), 1)
        return self.norms[6](y) @ self.words.weight.T


def t5(device: str, size: str) -> Case:
    words, batch, steps, width = (90, 2, 18, 32) if size == "small" else (4096, 4, 128, 256)
    model = T5(words, width, 4).to(device)
    tokens, targets = (torch.randint(0, words, (batch, n), device=device) for n in (steps, steps - 5))

    def loss(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(
            model(tokens, targets[:, :-1]).flatten(0, 1), targets[:, 1:].flatten()
        )

    return Case(loss, (tokens, targets), list(model.parameters()), mixed=False)


class ViT(nn.Module):
    def __init__(self, size: int, patch: int, width: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(
            *(EncoderLayer(width, width // 32, norm_first=True) for _ in range(layers))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
        return self.head(self.layers(x)[:, 0])


def vit(device: str, size: str) -> Case:
    batch, pixels, patch, width, layers = (2, 16, 4, 32, 1) if size == "small" else (4, 128, 16, 256, 2)
    model = ViT(pixels, patch, width, layers).to(device).requires_grad_(False)
    return Case(model, (torch.randn(batch, 3, pixels, pixels, device=device),), mixed=False)


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


def resnet(device: str, size: str) -> Case:
    widths, batch, pixels = {
        "small": ((8, 8, 16), 2, 16),
        "cpu": ((32, 32, 64, 128), 4, 64),
        "gpu": ((64, 64, 128, 256, 512), 128, 112),
    }[size]
    stem = [
        nn.Conv2d(3, widths[0], 7, 2, 3, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    body = [Residual(before, after) for before, after in itertools.pairwise(widths)]
    layers = [*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100)]
    model = nn.Sequential(*layers).to(device, memory_format=torch.channels_last)
    images = torch.randn(batch, 3, pixels, pixels, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (batch,), device=device)

    def loss(images: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(images).float(), labels)

    return Case(loss, (images,), list(model.parameters()), mixed=size == "gpu")


# --- A mixture of experts ---


def experts(device: str, size: str) -> Case:
    """Each token goes to two experts: softmax, top-k, gates, and what is scattered back."""
    tokens, width, inner, count = {
        "small": (48, 32, 64, 4),
        "cpu": (256, 128, 256, 8),
        "gpu": (4096, 1024, 2048, 8),
    }[size]
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

    return Case(loss, (x,), weights, mixed=size == "gpu")


# --- Single operations ---


def scatter(device: str, size: str) -> Case:
    """Sums by index: atomic operations."""
    rows, width, many = (50, 16, 200) if size == "small" else (50_000, 256, 400_000)
    source = torch.randn(many, width, device=device)
    index = torch.randint(0, rows, (many,), device=device)

    def sums(source: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = source.new_zeros(rows, width)
        added = zeros.index_add(0, index, source * 2)
        scattered = zeros.scatter_add(0, index[:, None].expand_as(source), source.sin())
        largest = zeros.scatter_reduce(0, index[:, None].expand_as(source), source, "amax")
        return added, scattered, largest

    return Case(sums, (source, index), mixed=False)


def scans(device: str, size: str) -> Case:
    """Running sums and sorting, of rows that one program holds and of longer ones."""
    rows, n = (20, 100) if size == "small" else (16384, 512)
    x = torch.randn(rows, n, device=device)
    long = torch.randn(4, 3000 if size == "small" else 2**20, device=device)

    def scanned(x: torch.Tensor, long: torch.Tensor) -> tuple[torch.Tensor, ...]:
        order = torch.sort(x * 2, dim=1, stable=True)
        counts = (x > 0).cumsum(1)
        return order.values, order.indices, counts, x.cumsum(1), long.sin().cumsum(1), x.logcumsumexp(1)

    return Case(scanned, (x, long), mixed=False)


def convolutions(device: str, size: str) -> Case:
    """Convolutions with groups, dilation, one and three dimensions, transposed ones, and pools, with gradients."""
    batch, channels, pixels = (2, 8, 12) if size == "small" else (8, 64, 64)
    weights = [
        (torch.randn(shape, device=device) / 8).requires_grad_()
        for shape in ((16, channels, 3, 3), (16, 4, 3, 3), (16, 8, 2, 2), (8, 8, 5), (4, 8, 3, 3, 3))
    ]

    def loss(x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(functional.conv2d(x, weights[0], stride=2, padding=1))
        x = functional.silu(functional.conv2d(x, weights[1], dilation=2, padding=2, groups=4))
        x = functional.conv_transpose2d(x, weights[2], stride=2)
        x = functional.avg_pool2d(functional.max_pool2d(x, 3, 1, 1), 2)
        line = functional.conv1d(functional.pad(x.flatten(2), (2, 2), "constant"), weights[3])
        cube = functional.conv3d(x.unsqueeze(2).expand(-1, -1, 3, -1, -1), weights[4], padding=1)
        up = functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        return line.square().mean() + cube.tanh().mean() + up.abs().mean()

    return Case(loss, (torch.randn(batch, channels, pixels, pixels, device=device),), weights, mixed=False)


def dropout(device: str, size: str) -> Case:
    """Random numbers of torch itself, so that compiled and eager results are equal; `results` sets the seed."""
    rows, width = (24, 40) if size == "small" else (4096, 1024)
    weight = torch.randn(width, width, device=device, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        kept = functional.dropout(x @ weight, 0.25)
        noise = torch.rand_like(x) + torch.randn_like(x) + torch.bernoulli(torch.full_like(x, 0.5))
        return (kept * noise.detach()).mean()

    return Case(
        loss, (torch.randn(rows, width, device=device),), [weight], {"fallback_random": True}, mixed=False
    )


AUTOTUNED = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}


def matmul(device: str, size: str) -> Case:
    """The templates of matrix products, with operations fused after them."""
    m, n, k = (48, 80, 64) if size == "small" else (4096, 4096, 4096)
    a, b, bias = (torch.randn(shape, device=device) for shape in ((m, k), (k, n), (n,)))

    def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.relu(a @ b + bias)

    return Case(product, (a, b, bias), options=AUTOTUNED, mixed=size == "gpu")


def attention(device: str, size: str) -> Case:
    """The templates of attention, forward and backward, with a score of one's own and a mask of blocks."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    batch, heads, steps, width = (1, 2, 128, 16) if size == "small" else (4, 16, 2048, 64)
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


CASES: dict[str, Callable[[str, str], Case]] = {
    "training step of a GPT": gpt,
    "training step of a ResNet": resnet,
    "mixture of experts": experts,
    "Llama block": llama,
    "BERT": bert,
    "training step of a T5": t5,
    "ViT": vit,
    "convolutions": convolutions,
    "dropout": dropout,
    "scatter, index_add": scatter,
    "cumsum, sort": scans,
    "max-autotune matmul": matmul,
    "flex_attention": attention,
}
ON_A_GPU_ALONE = ("flex_attention",)
"""Torch has templates in C++ for the CPU, and no backward pass."""
