"""Kernels that memory limits, beside the official triton: ``python -m gpu.bandwidth`` in `benches`, on a GPU.

Both are in one process. A round is the median of 30 launches, each after the L2 cache was overwritten; the ratio is
that of triton's time to ours, the median of three rounds with their range. Results are compared with torch's first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gpu.sides import TILEWRIGHT, TRITON, load

KERNELS = Path(__file__).resolve().parents[1] / "bandwidth_kernels.py"
Launch = Callable[[ModuleType], Any]


@dataclass
class Case:
    """A kernel on its data, how its result is checked, and what it adds to, which is zero before the check."""

    name: str
    launch: Launch
    is_right: Callable[[], bool]
    sums: tuple[torch.Tensor, ...] = ()


def microseconds(run: Callable[[], Any], scratch: torch.Tensor) -> float:
    """The median time of a launch whose data is not in the cache."""
    times = []
    for _ in range(30):
        scratch.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def cases() -> Iterator[Case]:
    """The kernels, at sizes that do not fit the cache."""
    for n in (1024, 4096):
        x = torch.randn(8192, n, device="cuda")
        o = torch.empty_like(x)
        yield Case(
            f"row cumsum fp32 8192x{n}",
            lambda k, x=x, o=o, n=n: k.cumsum[(8192,)](x, o, n, BLOCK=n, num_warps=4 if n < 2048 else 8),
            lambda x=x, o=o: torch.allclose(o, x.cumsum(1), atol=1e-2),
        )
    for n, rows, warps in ((256, 4, 4), (1024, 1, 4), (2048, 1, 8)):
        x = torch.randn(16384, n, device="cuda")
        o = torch.empty_like(x)
        yield Case(
            f"row sort fp32 16384x{n}",
            lambda k, x=x, o=o, n=n, r=rows, w=warps: k.sort[(16384 // r,)](x, o, n, r, num_warps=w),
            lambda x=x, o=o: torch.equal(o, x.sort(1).values),
        )
    x = torch.randn(16384, 1024, device="cuda")
    best = torch.empty(16384, 16, device="cuda")
    yield Case(
        "row top-k 16 of fp32 16384x1024",
        lambda k: k.topk[(16384,)](x, best, 1024, 16),
        lambda: torch.equal(best, x.topk(16, 1).values),
    )
    keys = torch.randint(0, 256, (2**26,), device="cuda", dtype=torch.int32)
    counts = torch.zeros(256, dtype=torch.int32, device="cuda")
    yield Case(
        "histogram of 2^26 int32 in 256 bins",
        lambda k: k.histogram[(2**26 // 4096,)](keys, counts, 256, 4096),
        lambda: torch.equal(counts, torch.bincount(keys, minlength=256).int()),
        (counts,),
    )
    wide = torch.randint(0, 65536, (2**24,), device="cuda", dtype=torch.int32)
    many = torch.zeros(65536, dtype=torch.int32, device="cuda")
    yield Case(
        "histogram of 2^24 int32 by atomics",
        lambda k: k.atomic_histogram[(2**24 // 1024,)](wide, many, 1024),
        lambda: torch.equal(many, torch.bincount(wide, minlength=65536).int()),
        (many,),
    )
    m = torch.randn(16384, 8192, device="cuda", dtype=torch.float16)
    sums = torch.empty(8192, device="cuda")
    yield Case(
        "column sums fp16 16384x8192",
        lambda k: k.column_sums[(128,)](m, sums, 16384, 8192, 64, 64),
        lambda: torch.allclose(sums, m.float().sum(0), atol=1.0),
    )
    for dtype, block in ((torch.float32, 32), (torch.float16, 64)):
        x = torch.randn(8192, 8192, device="cuda", dtype=dtype)
        o = torch.empty_like(x)
        yield Case(
            f"transpose {dtype} 8192x8192 in {block}x{block}",
            lambda k, x=x, o=o, b=block: k.transpose[(8192 // b, 8192 // b)](x, o, 8192, 8192, b),
            lambda x=x, o=o: torch.equal(o, x.T),
        )
    logits = torch.randn(4096, 32000, device="cuda", dtype=torch.bfloat16)
    target = torch.randint(0, 32000, (4096,), device="cuda")
    loss = torch.empty(4096, device="cuda")
    yield Case(
        "cross entropy bf16 4096x32000",
        lambda k: k.cross_entropy[(4096,)](logits, target, loss, 32000, BLOCK=32768, num_warps=16),
        lambda: torch.allclose(
            loss, torch.nn.functional.cross_entropy(logits.float(), target, reduction="none"), atol=1e-2
        ),
    )
    rows = torch.randn(16384, 1024, device="cuda")
    index = torch.randint(0, 1024, (16384, 1024), device="cuda", dtype=torch.int32)
    taken = torch.empty_like(rows)
    yield Case(
        "gather fp32 16384x1024",
        lambda k: k.gather[(16384,)](rows, index, taken, 1024),
        lambda: torch.equal(taken, rows.gather(1, index.long())),
    )
    a, g = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    w = torch.randn(4096, device="cuda", dtype=torch.float16)
    mean, rstd = a.float().mean(1), torch.rsqrt(a.float().var(1, unbiased=False) + 1e-5)
    dx, dw, db = torch.empty_like(a), torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda")
    yield Case(
        "layer norm backward fp16 4096x4096 by atomics",
        lambda k: k.layer_norm_backward[(4096,)](g, a, w, mean, rstd, dx, dw, db, 4096, num_warps=8),
        lambda: torch.allclose(db, g.float().sum(0), atol=0.5),
        (dw, db),
    )


def measure(case: Case, sides: dict[str, ModuleType], scratch: torch.Tensor, rounds: int) -> dict[str, Any]:
    """The times of both sides in each round, in microseconds, of those that are right."""
    found: dict[str, Any] = {"name": case.name, "times": {}, "errors": {}}
    for package, kernels in sides.items():
        for total in case.sums:
            total.zero_()
        case.launch(kernels)
        if case.is_right():
            found["times"][package] = []
        else:
            found["errors"][package] = "wrong"
    for _ in range(rounds):
        for package, times in found["times"].items():
            times.append(microseconds(lambda k=sides[package]: case.launch(k), scratch))
    return found


def line(found: dict[str, Any]) -> str:
    """A line of the table."""
    if found["errors"]:
        return f"| {found['name']} | {found['errors']} |"
    rounds = list(zip(found["times"][TRITON], found["times"][TILEWRIGHT], strict=True))
    ratios = [theirs / ours for theirs, ours in rounds]
    theirs, ours = (statistics.median(side) for side in zip(*rounds, strict=True))
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return (
        f"| {found['name']} | {theirs:.1f} us | {ours:.1f} us | {statistics.median(ratios):.2f} | {spread} |"
    )


def main() -> int:
    """Check each kernel on both sides, time them in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="a file for everything that was measured")
    options = parser.parse_args()
    torch.manual_seed(0)
    sides = {package: load(package, KERNELS) for package in (TRITON, TILEWRIGHT)}
    scratch = torch.empty(2**26, device="cuda")
    print("| case | triton | tilewright | ratio | spread |\n|---|---|---|---|---|")
    everything = []
    for case in cases():
        found = measure(case, sides, scratch, options.rounds)
        everything.append(found)
        print(line(found), flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    return int(any(found["errors"] for found in everything))


if __name__ == "__main__":
    sys.exit(main())
