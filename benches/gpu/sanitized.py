"""One small launch of each mechanism under `compute-sanitizer`: ``python -m gpu.sanitized`` in `benches`, on a GPU.

Prints a table: what each tool found in each kernel, and by which instructions the kernel copies and multiplies (where
sizes allow no tensor maps, a launch takes another form than the one that is told of). Each launch is a process of its
own, several at once, and its result is checked as well, beside one that a process without a tool made: under racecheck
the libraries' products in half precision end in errors of the tool. Two kernels have planted mistakes that the tools
must find. The exit status is 0 if these were found and nothing else was.

`--side triton` asks the same of the official compiler's kernels: racecheck does not know every way in which warps hand
memory to each other, and what it says of both is said of the pattern. `--keep FOLDER` keeps what the tools print.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gpu import attention_cases, product_cases
from gpu.product_cases import DEVICE, FILES, Config, Problem, blocks, product
from gpu.products import Side, wrong
from gpu.sides import TILEWRIGHT

BENCHES = Path(__file__).resolve().parents[1]
FILES["bandwidth_kernels"] = BENCHES / "bandwidth_kernels.py"
FILES["sanitized_kernels"] = BENCHES / "sanitized_kernels.py"
TOOLS = ("memcheck", "racecheck", "synccheck")
SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazard|ERROR SUMMARY: (\d+) error")
INSTRUCTIONS = {
    "wgmma": r"wgmma\.mma_async",
    "mma": r"\smma\.sync",
    "tensor copies": r"cp\.async\.bulk\.tensor[\w.:]*\.shared::\w+\.global",
    "tensor stores": r"cp\.async\.bulk\.tensor[\w.:]*\.global\.shared",
    "tensor reductions": r"cp\.reduce\.async\.bulk\.tensor",
    "cp.async": r"cp\.async\.c[ag]",
    "mbarriers": r"mbarrier\.init",
    "setmaxnreg": r"setmaxnreg",
    "atomics": r"\s(?:atom|red)\.global|\s(?:atom|red)\.[\w.]*global",
    "shared atomics": r"\s(?:atom|red)\.[\w.]*shared",
}
HALF, BRAIN, FP8 = torch.float16, torch.bfloat16, torch.float8_e4m3fn


@dataclass
class Case:
    """A launch, and the tool that must find a mistake in it, if one is planted."""

    make: Callable[[], Problem]
    config: Config
    kernel: str = "matmul"
    planted: str = ""


def by(programs: int, problem: Problem) -> Problem:
    """By so few programs that each has several tiles."""
    return replace(problem, grid=lambda _: (programs,))


def simple(
    kernel: str,
    arguments: tuple[Any, ...],
    grid: tuple[int, ...],
    out: torch.Tensor,
    expected: Callable[[], torch.Tensor],
    *,
    adds: bool = False,
    file: str = "bandwidth_kernels",
    **constants: Any,
) -> Problem:
    """A kernel that has one configuration."""
    return Problem(
        kernel, lambda *_: arguments, lambda _: grid, out, None, expected, 2e-2, constants, file, adds
    )


def scan() -> Problem:
    """Running sums of rows, by four warps."""
    x = torch.randn(8, 1024, device=DEVICE)
    out = torch.empty_like(x)
    return simple("cumsum", (x, out, 1024), (8,), out, lambda: x.cumsum(1), BLOCK=1024)


def sort() -> Problem:
    """Sorted rows."""
    x = torch.randn(8, 1024, device=DEVICE)
    out = torch.empty_like(x)
    return simple("sort", (x, out, 1024, 1), (8,), out, lambda: x.sort(1).values)


def gather() -> Problem:
    """Elements of a row by their numbers."""
    x = torch.randn(8, 1024, device=DEVICE)
    index = torch.randint(0, 1024, (8, 1024), device=DEVICE, dtype=torch.int32)
    out = torch.empty_like(x)
    return simple("gather", (x, index, out, 1024), (8,), out, lambda: x.gather(1, index.long()))


def transpose() -> Problem:
    """Tiles that change their layout through shared memory."""
    x = torch.randn(128, 128, device=DEVICE)
    out = torch.empty_like(x)
    return simple("transpose", (x, out, 128, 128, 32), (4, 4), out, lambda: x.T)


def column_sums() -> Problem:
    """Sums between warps."""
    x = torch.randn(256, 128, device=DEVICE, dtype=HALF)
    out = torch.empty(128, device=DEVICE)
    return simple("column_sums", (x, out, 256, 128, 64, 64), (2,), out, lambda: x.float().sum(0))


def histogram(kernel: str) -> Problem:
    """Counts, in shared memory or by atomics of global memory."""
    keys = torch.randint(0, 256, (16384,), device=DEVICE, dtype=torch.int32)
    out = torch.zeros(256, dtype=torch.int32, device=DEVICE)
    sizes = (256, 4096) if kernel == "histogram" else (1024,)
    return simple(
        kernel, (keys, out, *sizes), (16384 // sizes[-1],), out, lambda: torch.bincount(keys, minlength=256)
    )


def flags() -> Problem:
    """Programs that wait for each other, and a lock."""
    n = 16
    flag, data, out = (torch.zeros(size, device=DEVICE, dtype=torch.int32) for size in (n + 1, n * 128, 128))
    return simple(
        "hand_over",
        (flag, data, out, n),
        (n,),
        out,
        lambda: torch.full_like(out, n),
        file="sanitized_kernels",
    )


def planted(kernel: str) -> Problem:
    """A kernel with a mistake."""
    out = torch.zeros(1024 if kernel == "races" else 1000, device=DEVICE, dtype=torch.int32)
    return simple(kernel, (out,), (1,), out, lambda: out, file="sanitized_kernels")


def specialized(config: Config) -> Config:
    """With warps of their own for copies."""
    return {**config, "SPECIALIZE": True}


def forward(causal: bool, dtype: torch.dtype = HALF) -> Callable[[], Problem]:
    """The forward pass of attention."""
    return lambda: attention_cases.forward(2, 512, 64, causal, dtype)


def backward(causal: bool) -> Callable[[], Problem]:
    """The backward pass of attention."""
    return lambda: attention_cases.backward(2, 256, 64, causal)


WIDE = blocks("128x128x64 w4 s3")[0]
PAIR = blocks("128x256x64 w8 s3")[0]
LITTLE = blocks("16x64x128 w4 s4")[0]
SHAPES = [(256, 256, 256), (128, 384, 192)]
CASES = {
    "fp16 matmul": Case(lambda: product(256, 256, 256, HALF, "nn"), WIDE),
    "fp16 matmul, two warpgroups": Case(lambda: product(256, 512, 256, HALF, "nt"), PAIR),
    "bf16 matmul, A transposed": Case(lambda: product(256, 256, 256, BRAIN, "tn"), WIDE),
    "fp16 matmul, odd sizes": Case(lambda: product(195, 199, 203, HALF, "nn"), WIDE),
    "fp16 matmul, rows off a sector": Case(lambda: product(200, 200, 200, HALF, "nn"), WIDE),
    "fp16 matmul of 16 rows": Case(lambda: product(16, 256, 512, HALF, "nn"), LITTLE),
    "fp16 matmul of 16 rows, off a sector": Case(lambda: product(16, 250, 506, HALF, "nn"), LITTLE),
    "fp8 matmul": Case(lambda: product(256, 256, 256, FP8, "nt"), blocks("128x128x128 w4 s3")[0]),
    "fp8 matmul, B row-major": Case(
        lambda: product(256, 256, 256, FP8, "nn"), blocks("128x128x128 w4 s3")[0]
    ),
    "int8 matmul": Case(lambda: product(256, 256, 256, torch.int8, "nt"), blocks("128x128x128 w4 s3")[0]),
    "tf32 matmul": Case(lambda: product(256, 256, 256, torch.float32, "nt"), blocks("128x128x32 w4 s3")[0]),
    "tf32 matmul, B row-major": Case(
        lambda: product(256, 256, 256, torch.float32, "nn"), blocks("128x128x32 w8 s3")[0]
    ),
    "persistent descriptors": Case(
        lambda: by(3, product_cases.descriptors(512, HALF)), WIDE, "matmul_descriptors"
    ),
    "persistent, specialized": Case(
        lambda: by(3, product_cases.descriptors(512, HALF)), specialized(WIDE), "matmul_descriptors"
    ),
    "persistent, specialized, two warpgroups": Case(
        lambda: by(3, product_cases.descriptors(512, HALF)), specialized(PAIR), "matmul_descriptors"
    ),
    "pointers, specialized": Case(lambda: product(256, 256, 256, HALF, "nn"), specialized(PAIR)),
    "divided between two blocks": Case(
        lambda: product(256, 512, 256, HALF, "nn"), {**blocks("256x256x64 w8 s3")[0], "num_ctas": 2}
    ),
    "divided between four blocks": Case(
        lambda: product(512, 512, 256, BRAIN, "nt"), {**blocks("256x256x64 w4 s3")[0], "num_ctas": 4}
    ),
    "int8 weights": Case(lambda: product_cases.decode(16, 512, 8), LITTLE, "int8_weights"),
    "int4 weights": Case(lambda: product_cases.decode(16, 512, 4), LITTLE, "int4_weights"),
    "split-K by atomics": Case(
        lambda: product_cases.split(64, 64, 2048, 8), blocks("64x64x64 w4 s3")[0], "split_k"
    ),
    "split-K by descriptors": Case(
        lambda: product_cases.split_descriptors(64, 64, 2048, 8),
        blocks("64x64x64 w4 s3")[0],
        "split_k_descriptors",
    ),
    "stream-K": Case(
        lambda: by(5, product_cases.stream(256, 256, 512)), blocks("64x128x64 w4 s3")[0], "stream_k_kernel"
    ),
    "chained": Case(lambda: product_cases.chain(256, 256, 128), product_cases.CHAINED[0], "chained"),
    "batched": Case(lambda: product_cases.batch(2, 192), blocks("64x64x64 w4 s3")[0], "batched_kernel"),
    "grouped": Case(lambda: product_cases.grouped(SHAPES), blocks("128x128x64 w4 s3")[0], "grouped"),
    "grouped descriptors": Case(
        lambda: product_cases.grouped_descriptors([*SHAPES, (72, 136, 72)]),
        blocks("64x128x64 w4 s3")[0],
        "grouped_descriptors",
    ),
    "mixture of experts": Case(
        lambda: product_cases.experts(64, 4, 2, 256, 256), blocks("64x128x64 w4 s3")[0], "mixture_of_experts"
    ),
    "attention": Case(forward(causal=False), attention_cases.blocks("128x64 w8 s3")[0], "attention_forward"),
    "attention, causal": Case(
        forward(causal=True), attention_cases.blocks("128x64 w4 s3")[0], "attention_forward"
    ),
    "attention, fp8": Case(
        forward(causal=False, dtype=torch.float8_e5m2),
        attention_cases.blocks("128x64 w8 s3")[0],
        "attention_forward",
    ),
    "attention, divided between two blocks": Case(
        forward(causal=True),
        {**attention_cases.blocks("128x64 w4 s3")[0], "num_ctas": 2},
        "attention_forward",
    ),
    "attention, specialized": Case(
        forward(causal=False), specialized(attention_cases.blocks("128x64 w8 s3")[0]), "attention_forward"
    ),
    "attention backward": Case(
        backward(causal=False), attention_cases.blocks("64x128 w8 s2")[0], "attention_backward"
    ),
    "attention backward, causal": Case(
        backward(causal=True), attention_cases.blocks("32x64 w4 s3")[0], "attention_backward"
    ),
    "scan": Case(scan, {}, "cumsum"),
    "sort": Case(sort, {}, "sort"),
    "gather": Case(gather, {}, "gather"),
    "transpose": Case(transpose, {}, "transpose"),
    "column sums": Case(column_sums, {}, "column_sums"),
    "histogram": Case(lambda: histogram("histogram"), {}, "histogram"),
    "histogram by atomics": Case(lambda: histogram("atomic_histogram"), {}, "atomic_histogram"),
    "flags and a lock": Case(flags, {}, "hand_over"),
    "planted: a store out of bounds": Case(lambda: planted("overruns"), {}, "overruns", "memcheck"),
    "planted: no barrier": Case(lambda: planted("races"), {}, "races", "racecheck"),
}


def problem_of(name: str) -> Problem:
    """The problem of a launch: of the same numbers in each process."""
    torch.manual_seed(0)
    problem = CASES[name].make()
    # Others are not looked at.
    assert problem.kernel == CASES[name].kernel
    return problem


def launch(name: str, package: str, expected_file: Path) -> int:
    """Launches a kernel once, and says by which instructions it is made; the status says whether it is right."""
    case, problem = CASES[name], problem_of(name)
    side = Side(package)
    expected = torch.load(expected_file, map_location=DEVICE)
    handles: list[Any] = []
    run = side.launcher(problem, case.config)
    error = wrong(problem, lambda: handles.append(run()), expected)
    ptx = handles[0].asm["ptx"] if DEVICE == "cuda" or "ptx" in handles[0].asm else ""
    print("made of:", ", ".join(word for word, form in INSTRUCTIONS.items() if re.search(form, ptx)))
    print("result:", "" if case.planted else error)
    return int(bool(error) and not case.planted)


@dataclass
class Found:
    """The report of a tool about a launch."""

    cell: str
    made_of: str
    is_bad: bool


def own_process(
    tool: list[str], name: str, what: list[str], limit: float
) -> subprocess.CompletedProcess[str]:
    """Runs this module for one launch, under a tool."""
    environment = {
        **os.environ,
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "PYTHONPATH": os.pathsep.join([str(BENCHES), os.environ.get("PYTHONPATH", "")]),
    }
    command = [*tool, sys.executable, "-m", "gpu.sanitized", "--launch", name, *what]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=limit, cwd=BENCHES, env=environment, check=False
    )


def expect(name: str, file: Path, options: argparse.Namespace) -> Path:
    """The expected results of a launch, computed without a tool."""
    process = own_process([], name, ["--expect", str(file)], options.limit)
    if process.returncode != 0:
        raise RuntimeError(f"{name}: {process.stderr}")
    return file


def check(name: str, tool: str, expected: Future[Path], options: argparse.Namespace) -> Found:
    """A launch under a tool."""
    # The libraries' kernels have findings of their own.
    chosen = options.kernels.format(CASES[name].kernel)
    sanitizer = [options.sanitizer, "--tool", tool, *chosen.split()]
    what = ["--expected", str(expected.result()), "--side", options.side]
    try:
        process = own_process(sanitizer, name, what, options.limit)
    except subprocess.TimeoutExpired:
        return Found("no answer", "", True)
    text = process.stdout + process.stderr
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        file = options.keep / f"{name}-{tool}.txt".replace(" ", "_")
        file.write_text(text[:20000], encoding="utf-8")
    made_of = re.search(r"^made of: (.*)$", text, re.MULTILINE)
    result = re.search(r"^result: ?(.*)$", text, re.MULTILINE)
    summary = SUMMARY.search(text)
    planted = CASES[name].planted
    if summary is None or (result is None and not planted):
        return Found(f"failed ({process.returncode})", "", True)
    count = int(summary.group(1) or summary.group(2))
    error = result.group(1) if result else ""
    is_bad = bool(error) or (count > 0) != (planted == tool)
    cell = f"{count}{f', {error}' if error else ''}{' ✗' if is_bad else ''}"
    return Found(cell, made_of.group(1) if made_of else "", is_bad)


def main() -> int:
    """Run the tools over the launches that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="launches with one of these in their names")
    parser.add_argument("--tools", nargs="*", default=TOOLS)
    parser.add_argument("--side", default=TILEWRIGHT)
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--limit", type=float, default=60, help="seconds for each launch")
    parser.add_argument("--keep", type=Path, help="a folder for what the tools print")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--kernels", default="--kernel-name kne={}", help="how a tool is told of a kernel")
    parser.add_argument("--launch", help="only launch one, without a tool")
    parser.add_argument("--expected", type=Path, help="what that launch is to give")
    parser.add_argument("--expect", type=Path, help="a file for what it is to give; nothing is launched")
    options = parser.parse_args()
    if options.expect:
        torch.save(problem_of(options.launch).expected(), options.expect)
        return 0
    if options.launch:
        return launch(options.launch, options.side, options.expected)
    names = [name for name in CASES if any(word in name for word in options.only)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        # They stand first in the queue, so that no worker waits for one that has not begun.
        expected = {
            name: pool.submit(expect, name, Path(folder) / f"{number}.pt", options)
            for number, name in enumerate(names)
        }
        jobs = {
            (name, tool): pool.submit(check, name, tool, expected[name], options)
            for name in names
            for tool in options.tools
        }
        print(f"| launch | made of | {' | '.join(options.tools)} |\n|---|---|{'---|' * len(options.tools)}")
        bad = 0
        for name in names:
            found = [jobs[name, tool].result() for tool in options.tools]
            bad += sum(one.is_bad for one in found)
            cells = [name, max((one.made_of for one in found), key=len), *(one.cell for one in found)]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{len(jobs)} launches, {bad} bad")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
