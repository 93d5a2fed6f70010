"""Time launches of 10^4 programs on the CPU, traced and not: what ``triton_viz.trace`` costs.

Both launches run the same kernel on the same arrays, compiled before; they take turns, so that a busy machine slows
both. Of each the median is taken, of the processor time of all threads (which others on the machine do not change) and
of the time on the wall. A traced launch has everything in it: the elements of the tensors before and after, the
tables, values of 256 programs, the accesses of all, the writing of the file.

``python benches/trace.py [programs]``; it exits with 1 if a traced launch takes more than 3 times as long.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

import tilewright as triton
import tilewright.language as tl
from tilewright import viz

LIMIT = 3.0
ROUNDS = 9


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Three accesses, an addition: an untraced program is as short as programs are."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Loads from pointers that are only known element by element."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets, mask=offsets < n, other=0)
    tl.store(out_ptr + offsets, tl.load(x_ptr + index), mask=offsets < n)


@triton.jit
def softmax(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Reductions and functions."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    x = tl.exp(x - tl.max(x))
    tl.store(out_ptr + offsets, x / tl.sum(x))


@triton.jit
def product(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """A loop with a product of matrices of 16 by 16."""
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    first = tl.program_id(0) % 64 * 256
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(4):
        acc = tl.dot(tl.load(x_ptr + first + k * 256 + at), tl.load(y_ptr + first + k * 256 + at), acc)
    tl.store(out_ptr + first + at, acc)


CASES = [
    ("add", add, 16),
    ("add", add, 128),
    ("add", add, 1024),
    ("gather", gather, 16),
    ("gather", gather, 256),
    ("softmax", softmax, 256),
    ("product", product, 16),
]


def clocked(launch) -> tuple[float, float]:
    """Milliseconds of all threads, and on the wall."""
    wall, threads = time.perf_counter(), time.process_time()
    launch()
    return 1e3 * (time.process_time() - threads), 1e3 * (time.perf_counter() - wall)


def main() -> int:
    """Prints a table."""
    programs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    generator = np.random.default_rng(0)
    worst = 0.0
    print(f"{programs} programs; milliseconds of processor time | on the wall")
    print(
        f"{'kernel':16}{'untraced':>10}{'traced':>10}{'ratio':>8} | {'untraced':>10}{'traced':>10}{'ratio':>8}"
    )
    for name, kernel, block in CASES:
        n = max(programs * block, 1 << 15)
        x, out = generator.random(n, np.float32), np.zeros(n, np.float32)
        y = generator.integers(0, n, n, np.int32) if kernel is gather else generator.random(n, np.float32)
        traced = viz.trace(kernel)

        def plain(kernel=kernel, arguments=(x, y, out, n, block)) -> None:
            kernel[(programs,)](*arguments)

        def recorded(traced=traced, arguments=(x, y, out, n, block)) -> None:
            traced[(programs,)](*arguments)

        times: dict[str, list[tuple[float, float]]] = {"plain": [], "recorded": []}
        for round_ in range(ROUNDS + 2):
            viz.clear()
            for which, launch in (("plain", plain), ("recorded", recorded)):
                found = clocked(launch)
                if round_ >= 2:
                    times[which].append(found)
        columns = []
        for clock in (0, 1):
            without, with_trace = (statistics.median(time[clock] for time in times[which]) for which in times)
            columns.append(f"{without:10.2f}{with_trace:10.2f}{with_trace / without:8.2f}")
            worst = max(worst, with_trace / without if clock == 0 else 0.0)
        print(f"{name + ' ' + str(block):16}{columns[0]} | {columns[1]}")
    viz.clear()
    print(f"at most {worst:.2f} times the processor time; {LIMIT:.0f} times are allowed")
    return worst > LIMIT


if __name__ == "__main__":
    sys.exit(main())
