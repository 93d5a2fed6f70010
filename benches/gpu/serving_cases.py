"""Kernels of serving engines for `gpu/products.py`: their data and configurations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from gpu.attention_cases import LOG2_E
from gpu.product_cases import DEVICE, Config, Problem, Row, random, tiles

FILE = "serving_kernels"
HALF, BRAIN = torch.float16, torch.bfloat16


def blocks(axes: str, *shapes: str) -> list[Config]:
    """Configurations written as `32x16x128 w4 s3 k8`: the blocks, warps, stages, splits of K."""
    found = []
    for shape in shapes:
        size, *options = shape.split()
        numbers = {word[0]: int(word[1:]) for word in options}
        config = {f"BLOCK_{axis}": int(n) for axis, n in zip(axes, size.split("x"), strict=True)}
        if "k" in numbers:
            config["SPLIT_K"] = numbers["k"]
        found.append({**config, "num_warps": numbers["w"], "num_stages": numbers["s"]})
    return found


def integers(values: list[int]) -> torch.Tensor:
    """Integers of 32 bits on the device."""
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


# --- Low-rank adapters ---


def adapters(tokens: int, count: int) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """The adapter of each token; the tokens by adapter, with starts, sizes and adapters."""
    of_token = torch.randint(0, count, (tokens,), device=DEVICE).sort().values
    # The tokens of a request are neighbors, so runs of them have an adapter.
    runs = of_token.view(-1, min(tokens, 16))
    of_token = runs[torch.randperm(len(runs), device=DEVICE)].flatten()
    order = of_token.argsort(stable=True).int()
    sizes = of_token.bincount(minlength=count)
    starts = (sizes.cumsum(0) - sizes).int()
    return of_token, (order, starts, sizes.int(), integers(list(range(count))))


def shrink(tokens: int, hidden: int, rank: int, count: int) -> Problem:
    """x @ A.T by adapter, the sums split along K."""
    of_token, segments = adapters(tokens, count)
    x = random(tokens, hidden, dtype=BRAIN)
    a = random(count, rank, hidden, dtype=BRAIN)
    y = torch.zeros(tokens, rank, device=DEVICE)
    strides = (x.stride(0), *a.stride()[:2], y.stride(0))

    def expected() -> torch.Tensor:
        found = torch.empty_like(y)
        for adapter in range(count):
            mine = of_token == adapter
            found[mine] = 0.5 * x[mine].float() @ a[adapter].float().T
        return found

    return Problem(
        "lora_shrink",
        lambda c, _: (
            *(x, a, y, *segments, rank, hidden, 0.5, *strides),
            hidden % (c["BLOCK_K"] * c["SPLIT_K"]) == 0,
        ),
        lambda c: (c["SPLIT_K"] * -(-tokens // c["BLOCK_M"]) * -(-rank // c["BLOCK_N"]), count),
        y,
        None,
        expected,
        2e-2,
        file=FILE,
        adds=True,
    )


def expand(tokens: int, hidden: int, rank: int, count: int) -> Problem:
    """out += y @ B.T by adapter."""
    of_token, segments = adapters(tokens, count)
    y = torch.randn(tokens, rank, device=DEVICE)
    b = random(count, hidden, rank, dtype=BRAIN)
    out = torch.zeros(tokens, hidden, device=DEVICE, dtype=BRAIN)
    strides = (y.stride(0), *b.stride()[:2], out.stride(0))

    def expected() -> torch.Tensor:
        found = torch.empty(out.shape, device=DEVICE)
        for adapter in range(count):
            mine = of_token == adapter
            found[mine] = y[mine] @ b[adapter].float().T
        return found

    return Problem(
        "lora_expand",
        lambda c, _: (y, b, out, *segments, hidden, rank, *strides, rank % c["BLOCK_K"] == 0),
        lambda c: (-(-tokens // c["BLOCK_M"]) * -(-hidden // c["BLOCK_N"]), count),
        out,
        None,
        expected,
        3e-2,
        file=FILE,
        adds=True,
    )


def low_rank(small: bool) -> Iterator[Row]:
    """Adapters of a layer of 4096 columns. The work is the bytes of operands and results."""
    tokens, hidden, count = (64, 176, 3) if small else (4096, 4096, 8)
    for rank in (16,) if small else (16, 64):
        shapes = [
            *(f"32x{rank}x128 w4 s3 k8", f"32x{rank}x256 w4 s2 k8", f"64x{rank}x128 w4 s3 k4"),
            *(f"64x{rank}x64 w4 s4 k4", f"32x{rank}x64 w4 s3 k8", f"16x{rank}x64 w4 s3 k2"),
        ]
        # x and A are read, y is added to in fp32.
        work = 2.0 * (tokens * hidden + count * rank * hidden) + 8.0 * tokens * rank
        yield Row(
            f"serving: adapters shrink, {tokens} tokens, {hidden} to {rank}",
            "GB/s",
            work,
            1.0,
            None,
            blocks("MNK", *shapes),
            lambda rank=rank: shrink(tokens, hidden, rank, count),
        )
        shapes = [
            *(f"64x128x{rank} w4 s2", f"64x256x{rank} w8 s2", f"128x128x{rank} w8 s2"),
            *(f"64x128x{rank} w8 s2", f"32x128x{rank} w4 s2", f"16x64x{rank} w4 s2"),
        ]
        # y (fp32) and B are read, the output is read and written.
        work = 4.0 * tokens * rank + 2.0 * count * rank * hidden + 4.0 * tokens * hidden
        yield Row(
            f"serving: adapters expand, {tokens} tokens, {rank} to {hidden}",
            "GB/s",
            work,
            1.0,
            None,
            blocks("MNK", *shapes),
            lambda rank=rank: expand(tokens, hidden, rank, count),
        )


# --- Weights of 4 bits ---

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The columns of a word's nibbles, from the lowest."""


def awq_words(numbers: torch.Tensor) -> torch.Tensor:
    """Eight columns of numbers from 0 to 15 in an int32."""
    nibbles = numbers.unflatten(1, (-1, 8))[..., AWQ_ORDER].long()
    words = (nibbles << (torch.arange(8, device=DEVICE) * 4)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def awq(m: int, n: int, k: int, group: int) -> Problem:
    """A layer on few rows, weights with zeros and scales for groups along K."""
    x = random(m, k, dtype=HALF)
    w = torch.randint(0, 16, (k, n), device=DEVICE, dtype=torch.uint8)
    zeros = torch.randint(0, 16, (k // group, n), device=DEVICE, dtype=torch.uint8)
    scales = (torch.rand(k // group, n, device=DEVICE) / 64).half()
    operands = (x, awq_words(w), awq_words(zeros), scales)
    parts = torch.empty(8, m, n, device=DEVICE)
    y = torch.empty(m, n, device=DEVICE, dtype=HALF)

    def expected() -> torch.Tensor:
        wide = [part.repeat_interleave(group, 0).float() for part in (zeros, scales)]
        return x.float() @ ((w.float() - wide[0]) * wide[1])

    def add_up(config: Config) -> Problem:
        return Problem(
            "add_parts",
            lambda c, _: (parts, y, m * n),
            lambda _: (-(-m * n // 1024),),
            y,
            None,
            expected,
            0.0,
            {"SPLIT_K": config["SPLIT_K"], "BLOCK": 1024},
            file=FILE,
        )

    return Problem(
        "awq_split_k",
        lambda c, _: (*operands, parts, m, n, k, group),
        lambda c: (-(-m // c["BLOCK_M"]) * -(-n // c["BLOCK_N"]), c["SPLIT_K"]),
        y,
        None,
        expected,
        3e-2,
        file=FILE,
        then=add_up,
    )


def weights(small: bool) -> Iterator[Row]:
    """Layers on few rows. The work is the bytes of the weights, with their zeros and scales."""
    n, k, group = (64, 256, 128) if small else (4096, 4096, 128)
    for m in (5,) if small else (16, 64):
        rows = max(m, 16)
        shapes = (
            *(f"{rows}x64x128 w4 s3 k8", f"{rows}x64x64 w4 s4 k8", f"{rows}x128x64 w4 s3 k8"),
            *(f"{rows}x128x128 w8 s3 k4", f"{rows}x32x128 w4 s3 k4", f"{rows}x32x64 w4 s3 k2"),
        )
        yield Row(
            f"serving: AWQ {m}x{n}x{k}, split K",
            "GB/s",
            n * k / 2 + k // group * n * 2.5,
            1.0,
            None,
            blocks("MNK", *shapes),
            lambda m=m: awq(m, n, k, group),
        )


# --- Paged attention ---

PAGE = 16
"""Tokens of a page of the cache."""


@dataclass
class Cache:
    """Keys and values of requests, in pages in a random order."""

    heads: int
    head: int
    lengths: list[int]
    k: torch.Tensor = field(init=False)
    v: torch.Tensor = field(init=False)
    tables: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        columns = -(-max(self.lengths) // PAGE)
        pages = columns * len(self.lengths)
        shape = pages, PAGE, self.heads, self.head
        self.k, self.v = (torch.randn(shape, device=DEVICE, dtype=BRAIN) for _ in range(2))
        self.tables = torch.randperm(pages, device=DEVICE).int().view(-1, columns)

    def of(self, request: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values of a request, [heads, tokens, head] of fp32."""
        k, v = (x[self.tables[request].long()].flatten(0, 1) for x in (self.k, self.v))
        count = self.lengths[request]
        return k[:count].transpose(0, 1).float(), v[:count].transpose(0, 1).float()


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of the last tokens of a request: q is [tokens, heads, head]."""
    group = q.shape[1] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    scores = q.transpose(0, 1).float() @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[1:], device=DEVICE, dtype=torch.bool)
    scores = scores.masked_fill(hidden.triu(1 + k.shape[1] - len(q)), -torch.inf)
    return (torch.softmax(scores, 2) @ v).transpose(0, 1)


def prefix(news: list[int], lengths: list[int], heads: int, kv_heads: int, head: int) -> Problem:
    """New tokens of requests whose other tokens are in the cache."""
    cache = Cache(kv_heads, head, lengths)
    total = sum(news)
    # Scores that differ enough for the splits and steps to have different sums.
    q = torch.randn(total, heads, head, device=DEVICE, dtype=BRAIN) * 2
    k, v = (torch.randn(total, kv_heads, head, device=DEVICE, dtype=BRAIN) for _ in range(2))
    out = torch.empty_like(q)
    starts = integers([sum(news[:i]) for i in range(len(news) + 1)])
    tables, sizes = cache.tables, integers(lengths)
    strides = (*q.stride()[:2], *k.stride()[:2], *cache.k.stride()[:3], tables.stride(0))

    def expected() -> torch.Tensor:
        found = []
        for i, parts in enumerate(zip(q.split(news), k.split(news), v.split(news), strict=True)):
            mine = (x.transpose(0, 1).float() for x in parts[1:])
            kept = (x[:, : lengths[i] - news[i]] for x in cache.of(i))
            found.append(attend(parts[0], *(torch.cat(x, 1) for x in zip(kept, mine, strict=True))))
        return torch.cat(found)

    return Problem(
        "prefix_attention",
        lambda c, _: (
            *(q, k, v, cache.k, cache.v, out, tables, starts, sizes, head**-0.5 * LOG2_E),
            *strides,
        ),
        lambda c: (len(news), heads, -(-max(news) // c["BLOCK_M"])),
        out,
        None,
        expected,
        3e-2,
        {"GROUP": heads // kv_heads, "HEAD": head, "PAGE": PAGE},
        file=FILE,
    )


def paged_decode(lengths: list[int], heads: int, kv_heads: int, head: int) -> Problem:
    """One token of each request over its cache, in splits, and the reduction of the splits."""
    cache = Cache(kv_heads, head, lengths)
    q = torch.randn(len(lengths), heads, head, device=DEVICE, dtype=BRAIN) * 2
    out = torch.empty_like(q)
    parts = torch.empty(len(lengths), heads, 8, head, device=DEVICE)
    lse = torch.empty(len(lengths), heads, 8, device=DEVICE)
    tables, sizes = cache.tables, integers(lengths)
    strides = (*q.stride()[:2], *cache.k.stride()[:3], tables.stride(0))
    shape = {"HEADS": heads, "HEAD": head, "PAGE": PAGE}

    def expected() -> torch.Tensor:
        return torch.cat([attend(q[i : i + 1], *cache.of(i)) for i in range(len(lengths))])

    def reduce(config: Config) -> Problem:
        return Problem(
            "decode_reduce",
            lambda c, _: (parts, lse, out, sizes),
            lambda _: (len(lengths), heads),
            out,
            None,
            expected,
            0.0,
            {**shape, "SPLITS": config["SPLITS"]},
            file=FILE,
        )

    return Problem(
        "paged_decode",
        lambda c, _: (
            *(q, cache.k, cache.v, parts, lse, tables, sizes, head**-0.5 * LOG2_E),
            *strides,
        ),
        lambda c: (len(lengths), kv_heads, c["SPLITS"]),
        out,
        None,
        expected,
        3e-2,
        {**shape, "GROUP": heads // kv_heads, "BLOCK_H": 16},
        file=FILE,
        then=reduce,
    )


def paged(small: bool) -> Iterator[Row]:
    """Prefill over a prefix, and decode; small requests have different lengths."""
    heads, kv_heads, head = (4, 2, 16) if small else (32, 8, 128)
    news, lengths = ([20, 7], [57, 40]) if small else ([512] * 8, [2048] * 8)
    # Two dots for each pair of a query and a key that it sees.
    pairs = sum(n * (m - n) + n * (n + 1) / 2 for n, m in zip(news, lengths, strict=True))
    yield Row(
        f"serving: prefill over pages, {max(news)} new of {max(lengths)}",
        "TFLOP/s",
        4.0 * heads * head * pairs,
        1.0,
        None,
        blocks(
            "MN",
            *("128x64 w4 s2", "128x64 w8 s2", "128x64 w8 s3", "64x64 w4 s3", "128x32 w4 s3"),
            "64x32 w4 s2",
        ),
        lambda: prefix(news, lengths, heads, kv_heads, head),
    )
    lengths = [37, 64] if small else [2048] * 64
    shapes = ("64 w4 s2", "64 w4 s3", "32 w4 s3", "128 w4 s2", "32 w2 s3", "16 w2 s2")
    configs = [
        {**config, "SPLITS": splits}
        for config, splits in zip(blocks("N", *shapes), (4, 4, 4, 4, 8, 2), strict=True)
    ]
    yield Row(
        f"serving: decode over pages, {len(lengths)} requests of {max(lengths)}",
        "GB/s",
        # K and V of bf16.
        4.0 * sum(lengths) * kv_heads * head,
        1.0,
        None,
        configs,
        lambda: paged_decode(lengths, heads, kv_heads, head),
    )


# --- Block scales ---


def block_scaled(m: int, n: int, k: int, size: int) -> Problem:
    """fp8 with scales for 1 x `size` elements of A and `size` x `size` of B."""
    a, b = (random(rows, k, dtype=torch.float8_e4m3fn) for rows in (m, n))
    # By columns, as quantizers of activations write them for such kernels.
    a_scales = (torch.rand(k // size, m, device=DEVICE) + 0.5).T
    b_scales = torch.rand(n // size, k // size, device=DEVICE) + 0.5
    c = torch.empty(m, n, device=DEVICE, dtype=BRAIN)
    operands = (a, b, c, a_scales, b_scales, m, n, k)
    strides = (a.stride(0), b.stride(0), c.stride(0), *a_scales.stride(), b_scales.stride(0))

    def reference() -> torch.Tensor:
        kinds = functional.ScalingType
        scales = (a_scales, kinds.BlockWise1x128, b_scales.T, kinds.BlockWise128x128)
        return functional.scaled_mm(a, b.T, *scales, output_dtype=BRAIN)

    def expected() -> torch.Tensor:
        wide = b_scales.repeat_interleave(size, 0).repeat_interleave(size, 1)
        return (a.float() * a_scales.repeat_interleave(size, 1)) @ (b.float() * wide).T

    return Problem(
        "block_scaled_fp8",
        lambda c, _: (*operands, *strides),
        tiles(m, n),
        c,
        reference,
        expected,
        3e-2,
        {"SCALED_N": size, "SCALED_K": size, "GROUP": 8},
        file=FILE,
    )


def scaled(small: bool) -> Iterator[Row]:
    """The projections of DeepSeek-V3."""
    m, n, k, size = (48, 64, 128, 32) if small else (4096, 4096, 7168, 128)
    yield Row(
        f"serving: fp8 with block scales {m}x{n}x{k}",
        "TFLOP/s",
        2.0 * m * n * k,
        1.0,
        1.0,
        # Blocks have one scale of B.
        blocks("MNK", "32x32x32 w4 s3")
        if small
        else blocks(
            "MNK",
            *("128x128x128 w4 s3", "128x128x128 w8 s3", "128x128x128 w4 s4", "64x128x128 w4 s4"),
            *("64x128x128 w4 s3", "128x64x128 w4 s4"),
        ),
        lambda: block_scaled(m, n, k, size),
    )


# --- Sampling ---


def philox(low: torch.Tensor, high: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """The first word of Philox 4x32, 10 rounds, as numbers of 64 bits."""
    mask = 0xFFFFFFFF
    a, b = 0xD2511F53, 0xCD9E8D57
    words = [counter & mask, *(torch.zeros_like(counter) for _ in range(3))]
    for _ in range(10):
        # The high word is right even where the product wraps around.
        left, right = words[0] * a, words[2] * b
        words = [
            (right >> 32 & mask) ^ words[1] ^ low,
            right & mask,
            (left >> 32 & mask) ^ words[3] ^ high,
            left & mask,
        ]
        low, high = low + 0x9E3779B9 & mask, high + 0xBB67AE85 & mask
    return words[0]


def gumbel(batch: int, vocabulary: int) -> Problem:
    """A token for each request; the last one of several takes the largest logit."""
    # Wide enough that rounding of the noise rarely decides.
    logits = torch.randn(batch, vocabulary, device=DEVICE) * 4
    temperatures = torch.linspace(0.1, 2.0, batch, device=DEVICE)
    if batch > 1:
        temperatures[-1] = 0
    seeds = torch.randint(0, 1 << 62, (batch,), device=DEVICE)
    positions = torch.randint(0, 4096, (batch,), device=DEVICE, dtype=torch.int32)
    columns = -(-vocabulary // 128)
    ids = torch.empty(batch, columns, device=DEVICE, dtype=torch.int64)
    best = torch.empty(batch, columns, device=DEVICE)
    out = torch.empty(batch, device=DEVICE, dtype=torch.int64)

    def expected() -> torch.Tensor:
        keys = philox(seeds & 0xFFFFFFFF, seeds >> 32, positions.long())
        tokens = torch.arange(vocabulary, device=DEVICE).expand(batch, -1)
        words = philox(keys[:, None], torch.zeros_like(keys)[:, None], tokens)
        signed = torch.where(words >= 1 << 31, (1 << 32) - 1 - words, words)
        u = (signed.float() * 4.6566127342e-10).clamp(min=1e-7).double()
        noisy = logits / temperatures[:, None] - torch.log(-torch.log(u))
        return torch.where(temperatures[:, None] == 0, logits, noisy).argmax(1)

    def reduce(config: Config) -> Problem:
        count = -(-vocabulary // config["BLOCK_N"])
        return Problem(
            "gumbel_reduce",
            lambda c, _: (ids, best, out, count, columns),
            lambda _: (batch,),
            out,
            None,
            expected,
            0.0,
            {"BLOCK": 1 << (count - 1).bit_length()},
            file=FILE,
        )

    operands = (logits, temperatures, seeds, positions, ids, best, vocabulary)
    return Problem(
        "gumbel_local",
        lambda c, _: (*operands, logits.stride(0), columns),
        lambda c: (batch, -(-vocabulary // c["BLOCK_N"])),
        out,
        None,
        expected,
        0.0,
        file=FILE,
        then=reduce,
    )


def rejection(counts: list[int], vocabulary: int) -> Problem:
    """Drafts of requests, which are accepted or replaced."""
    drafts, batch, most = sum(counts), len(counts), max(counts)
    logits = torch.randn(drafts, vocabulary, device=DEVICE) * 2
    draft_probs = torch.softmax(logits, 1)
    target_probs = torch.softmax(logits.add_(torch.randn_like(logits) * 0.5), 1)
    tokens = torch.multinomial(draft_probs, 1).flatten().int()
    noise = torch.empty(batch, vocabulary, device=DEVICE).exponential_()
    bonus = torch.randint(0, vocabulary, (batch,), device=DEVICE, dtype=torch.int32)
    uniform = torch.rand(drafts, device=DEVICE)
    recovered = torch.empty(drafts, device=DEVICE, dtype=torch.int32)
    firsts = [sum(counts[:i]) for i in range(batch + 1)]
    starts = integers(firsts)
    out = torch.empty(batch, most + 1, device=DEVICE, dtype=torch.int32)

    def expected() -> torch.Tensor:
        found = torch.zeros(out.shape, dtype=torch.int32)
        of_draft = torch.arange(drafts, device=DEVICE)
        ratios = target_probs[of_draft, tokens.long()] / draft_probs[of_draft, tokens.long()]
        accepted = (ratios >= uniform).tolist()
        for request, count in enumerate(counts):
            mine = range(firsts[request], firsts[request] + count)
            kept = next((i for i, draft in enumerate(mine) if not accepted[draft]), count)
            found[request, :kept] = tokens[mine.start : mine.start + kept]
            last = bonus[request]
            if kept < count:
                more = (target_probs[mine[kept]] - draft_probs[mine[kept]]).clamp(min=0)
                last = (more / noise[request]).argmax()
            found[request, kept] = last
        return found.to(DEVICE)

    def accept(_: Config) -> Problem:
        return Problem(
            "rejection_sample",
            lambda c, _: (
                *(tokens, draft_probs, target_probs, bonus, recovered, uniform, starts, out),
                vocabulary,
            ),
            lambda _: (batch,),
            out,
            None,
            expected,
            0.0,
            {"MAX_DRAFT": most},
            file=FILE,
        )

    return Problem(
        "recovered_tokens",
        lambda c, _: (draft_probs, target_probs, noise, recovered, starts, vocabulary),
        lambda _: (batch, most),
        out,
        None,
        expected,
        0.0,
        file=FILE,
        then=accept,
    )


def sampling(small: bool) -> Iterator[Row]:
    """Tokens of a vocabulary of Llama. The work is the bytes of logits, probabilities and noise."""
    vocabulary = 300 if small else 128256
    shapes = ("1024 w4 s2", "2048 w4 s2", "4096 w8 s2", "8192 w8 s2")
    for batch in (32,) if small else (1, 64):
        yield Row(
            f"serving: Gumbel sampling, {batch} of {vocabulary}",
            "GB/s",
            4.0 * batch * vocabulary,
            1.0,
            None,
            blocks("N", *shapes, "512 w4 s2", "256 w2 s2"),
            lambda batch=batch: gumbel(batch, vocabulary),
        )
    counts = [3, 1, 2, 3] if small else [4] * 64
    yield Row(
        f"serving: rejection sampling, {len(counts)} of {vocabulary}",
        "GB/s",
        # Probabilities of all drafts twice, and the noise of each request.
        4.0 * vocabulary * (2 * sum(counts) + len(counts)),
        1.0,
        None,
        blocks("N", *shapes, "4096 w4 s2", "256 w2 s2"),
        lambda: rejection(counts, vocabulary),
    )


# --- Grouped matmul ---


def grouped(tokens: int, count: int, n: int, k: int) -> Problem:
    """Tokens sorted by expert; the first experts have more of them than the last ones."""
    of_token = (torch.rand(tokens, device=DEVICE) ** 2 * count).long().clamp(max=count - 1)
    ends = of_token.bincount(minlength=count).cumsum(0).int()
    a = random(tokens, k, dtype=BRAIN)
    b = (torch.randn(count, n, k, device=DEVICE, dtype=BRAIN) * k**-0.5).to(BRAIN)
    c = torch.empty(tokens, n, device=DEVICE, dtype=BRAIN)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if DEVICE == "cuda" else 3
    strides = (a.stride(0), *b.stride()[:2], c.stride(0))

    def expected() -> torch.Tensor:
        sizes = of_token.bincount(minlength=count).tolist()
        return torch.cat([x.float() @ w.float().T for x, w in zip(a.split(sizes), b, strict=True)])

    return Problem(
        "grouped_matmul",
        lambda c_, _: (a, b, c, ends, count, n, k, *strides),
        lambda _: (programs,),
        c,
        lambda: functional.grouped_mm(a, b.transpose(1, 2), offs=ends),
        expected,
        2e-2,
        file=FILE,
    )


def experts(small: bool) -> Iterator[Row]:
    """A projection of 16 experts, whose offsets are in memory."""
    tokens, count, n, k = (70, 5, 48, 64) if small else (4096, 16, 2048, 4096)
    yield Row(
        f"serving: grouped bf16, {tokens} tokens of {count} experts, {n}x{k}",
        "TFLOP/s",
        2.0 * tokens * n * k,
        1.0,
        1.0,
        blocks(
            "MNK",
            *("128x128x64 w4 s3", "128x128x64 w8 s4", "128x256x64 w8 s3", "64x128x64 w4 s4"),
            *("64x256x64 w4 s3", "32x32x32 w4 s3"),
        ),
        lambda: grouped(tokens, count, n, k),
    )


def rows(small: bool) -> Iterator[Row]:
    """All kinds."""
    yield from low_rank(small)
    yield from weights(small)
    yield from paged(small)
    yield from scaled(small)
    yield from sampling(small)
    yield from experts(small)
