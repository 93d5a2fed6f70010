"""Times vLLM's kernel for top-k and top-p on the CPU beside the functions of torch that vLLM has for it.

    OMP_NUM_THREADS=1 python benches/vllm_topk.py

The variable sets the threads of both sides. The script needs vLLM, with tilewright active as Triton (docs/vllm.md).
Both sides take the same logits, in turns; copies of the logits are not timed. Before, the script compares the elements
that both keep with a sort in binary64.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

VOCABULARY = 131_072
TOP_K, TOP_P = 50, 0.9
BISECTIONS = 18


def kept_by_sort(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Returns which elements of each row top-k and then top-p keep, in binary64."""
    values, order = logits.double().sort(dim=-1, descending=True)
    ranks = torch.arange(logits.shape[1])
    if k is not None:
        values = values.masked_fill(ranks >= k[:, None], -float("inf"))
    if p is not None:
        probabilities = values.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        values = values.masked_fill(before >= p[:, None], -float("inf"))
    return torch.zeros_like(values, dtype=torch.bool).scatter_(-1, order, values > -float("inf"))


def check(logits: torch.Tensor, found: torch.Tensor, expected: torch.Tensor) -> None:
    """Checks that each row keeps the largest elements, up to a pivot as near as the kernel's bisection is."""
    kept = found > -float("inf")
    assert torch.equal(found[kept], logits[kept])
    for row, (mask, other) in enumerate(zip(kept, expected, strict=True)):
        probabilities = logits[row].double().softmax(0)
        assert probabilities[mask].min() >= probabilities[~mask].max()
        distance = abs(probabilities[mask].min() - probabilities[other].min())
        assert distance <= probabilities.max() * 2.0**-BISECTIONS


def measure(logits: torch.Tensor, sides: list[Callable[[torch.Tensor], torch.Tensor]]) -> list[list[float]]:
    """Returns the milliseconds of each side in each round."""
    work = torch.empty_like(logits)
    rounds: list[list[float]] = []
    for _ in range(11 if logits.shape[0] == 1 else 7):
        times = []
        for side in sides:
            work.copy_(logits)
            start = time.perf_counter()
            side(work)
            times.append((time.perf_counter() - start) * 1e3)
        rounds.append(times)
    return rounds


def main() -> None:
    """Prints a row of the table for each batch and each choice of filters."""
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch
    from vllm.v1.sample.ops.topk_topp_triton import apply_top_k_top_p_triton

    threads = torch.get_num_threads()
    print("| threads | batch | filters | torch, ms | tilewright, ms | torch / tilewright | spread |")
    print("|---|---|---|---|---|---|---|")
    for batch in (1, 16, 64):
        logits = torch.randn(batch, VOCABULARY, generator=torch.Generator().manual_seed(batch)) * 3
        every_k, every_p = torch.full((batch,), TOP_K, dtype=torch.int32), torch.full((batch,), TOP_P)
        for name, k, p in (("k", every_k, None), ("p", None, every_p), ("k and p", every_k, every_p)):

            def kernel(x, k=k, p=p):
                return apply_top_k_top_p_triton(x, k, p)

            def torch_functions(x, k=k, p=p):
                return apply_top_k_top_p_pytorch(x, k, p, allow_cpu_sync=True)

            expected = kept_by_sort(logits, k, p)
            check(logits, kernel(logits.clone()), expected)
            assert torch.equal(torch_functions(logits.clone()) > -float("inf"), expected)
            rounds = measure(logits, [torch_functions, kernel])
            theirs, ours = (statistics.median(times) for times in zip(*rounds, strict=True))
            ratios = sorted(times[0] / times[1] for times in rounds)
            figures = f"{theirs:.1f} | {ours:.1f} | {statistics.median(ratios):.2f}"
            print(f"| {threads} | {batch} | {name} | {figures} | {ratios[0]:.2f}-{ratios[-1]:.2f} |")


if __name__ == "__main__":
    main()
