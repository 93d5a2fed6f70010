"""torch.compile with tilewright as its Triton, beside the official one: ``python -m gpu.torch_compile`` in `benches`.

Each case runs in a process of its own for each side, one after the other, with empty caches. It computes in three
ways: eagerly in fp32, which is the truth; eagerly in bf16; and compiled in bf16, which may be twice as far off as the
second, by the norm of each result. The steps that follow are timed twice: as the host sees them, one after the other,
and on the GPU only, which has a step in its queue before it begins. Ratios are the official triton's time to ours.

``--device cpu`` compares Inductor's two ways for the CPU: its C++, and its Triton with tilewright. Then both sides have
the number of threads of ``OMP_NUM_THREADS``, products are in fp32, and ``--repeat`` gives medians of several processes.
``--small`` has sizes for tests, and ``--device cuda-on-cpu`` makes ``cuda`` the CPU as `tilewright run` does.

A case takes up to a minute a side, most of it compilation. To save time, ``--only CASE --sides SIDE`` runs a
part, and ``--caches FOLDER`` keeps the compiled code: of a second run with it, the steps
count and not the time until the first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from gpu.sides import TILEWRIGHT, TRITON
from gpu.torch_models import CASES, ON_A_GPU_ALONE, Case, update

CPP = "cpp"
"""The side of Inductor's own code for the CPU, in C++."""
CUDA_ON_CPU = "cuda-on-cpu"
"""The device `cuda`, which `tilewright run` makes the CPU."""

# --- One case on one side ---


def results(case: Case, function: Callable[..., Any], mixed: bool) -> list[torch.Tensor]:
    """The results of the function, and the gradients."""
    device = case.inputs[0].device.type
    torch.manual_seed(0)
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


def check(found: list[torch.Tensor], eager: list[torch.Tensor], truth: list[torch.Tensor]) -> str:
    """How far off the results are; raises if one is further off than the eager ones excuse."""
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


def measure(side: str, name: str, device: str, size: str) -> dict[str, Any]:
    """Runs a case in this process, whose Triton `side` is."""
    has_gpu = device == "cuda"
    if side == TILEWRIGHT:
        import tilewright

        tilewright.install_as_triton()
        if device == CUDA_ON_CPU:
            tilewright.use_cpu_as_cuda()
            device = "cuda"
    import torch._inductor.config as inductor

    if device == "cpu" and side == TILEWRIGHT:
        inductor.cpu_backend = "triton"
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    case = CASES[name](device, size)
    truth, eager = (results(case, case.function, mixed) for mixed in (False, case.mixed))
    begun = time.perf_counter()
    compiled = torch.compile(case.function, options=case.options or None, dynamic=False)
    found = results(case, compiled, mixed=case.mixed)
    first = time.perf_counter() - begun
    errors = check(found, eager, truth)
    momenta = [torch.zeros_like(parameter) for parameter in case.trained]
    compiled_update = torch.compile(update, dynamic=False)

    def step() -> None:
        _, *gradients = results(case, compiled, mixed=case.mixed)
        if case.trained:
            compiled_update(case.trained, gradients, momenta)

    begun = time.perf_counter()
    step()
    seconds = first + time.perf_counter() - begun
    host = on_the_host(step, device, 0.0 if size == "small" else 1.0)
    times = {"errors": errors, "seconds": seconds, "host": host}
    return {**times, "gpu": on_the_gpu(step, host)} if has_gpu else times


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


def in_turns(sides: Iterable[str], name: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The medians of several processes for each side, the sides by turns; the spread is that of the steps."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(options.repeat):
        for side, found in runs.items():
            found.append(in_a_process(side, name, options))
    medians = {}
    for side, found in runs.items():
        failed = [one for one in found if "failed" in one]
        medians[side] = dict((failed or found)[0])
        for clock in ("gpu", "host", "seconds"):
            times = [one[clock] for one in found if clock in one]
            if times and not failed:
                medians[side][clock] = statistics.median(times)
                medians[side][f"{clock} spread"] = max(times) / min(times)
    return medians


def row(name: str, sides: dict[str, dict[str, Any]]) -> str:
    """A line of the table."""
    columns = [name]
    for clock in ("gpu", "host"):
        times = [found.get(clock) for found in sides.values()]
        columns += ["" if taken is None else f"{taken:.3f} ms" for taken in times]
        columns.append(f"{times[0] / times[1]:.2f}" if len(times) == 2 and all(times) else "")
    columns += [f"{found['seconds']:.1f} s" if "seconds" in found else "" for found in sides.values()]
    columns += [f"{found['host spread']:.2f}" if "host spread" in found else "" for found in sides.values()]
    columns += [found.get("errors") or f"failed: {found['failed']}" for found in sides.values()]
    return "| " + " | ".join(columns).replace("\n", " ") + " |"


def main() -> int:
    """Runs what the command line says; the status is 1 if tilewright failed in a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="only these cases")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu", CUDA_ON_CPU))
    parser.add_argument("--small", action="store_true", help="sizes for a test")
    parser.add_argument("--repeat", type=int, default=1, help="processes for each side (%(default)s)")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a process (%(default)s)")
    parser.add_argument("--sides", nargs="*", choices=(TRITON, CPP, TILEWRIGHT), help="only these sides")
    parser.add_argument(
        "--caches", metavar="FOLDER", help="keep what was compiled there; else it is forgotten"
    )
    parser.add_argument("--json", type=Path, help="a file for the times on the GPU")
    parser.add_argument(
        "--one", nargs="+", metavar=("SIDE", "CASE"), help="what the processes are started with"
    )
    options = parser.parse_args()
    if options.one:
        side, *names = options.one
        size = "small" if options.small else "gpu" if options.device == "cuda" else "cpu"
        for name in names:
            print(json.dumps(measure(side, name, options.device, size)), flush=True)
        return 0
    sides = {"cuda": (TRITON, TILEWRIGHT), "cpu": (CPP, TILEWRIGHT), CUDA_ON_CPU: (TILEWRIGHT,)}[
        options.device
    ]
    sides = tuple(side for side in sides if side in (options.sides or sides))
    head = [
        "case",
        *(column for clock in ("GPU", "host") for column in (*(f"{clock}: {s}" for s in sides), "ratio")),
    ]
    head += [
        f"{what}: {side}"
        for what in ("until the first step", "slowest by fastest", "off by (eagerly)")
        for side in sides
    ]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
    failed = False
    everything = []
    for name in options.only or CASES:
        if name in ON_A_GPU_ALONE and options.device != "cuda":
            continue
        found = in_turns(sides, name, options)
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
