"""Time a launch from Python to the call of the CUDA driver, with a stand-in for its library: microseconds a call.

Timed is ``kernel[grid](...)`` as programs write it, from the subscript to the return of the stand-in's
``cuLaunchKernelEx``: binding, reading every tensor and number, specialization, the look at the variables that the
kernel was compiled with, torch's current stream, the parameters. Nothing is left out. There are two kinds of tensors:

torch
    ``torch.Tensor`` objects on ``cuda:0``. No GPU is needed: each is a tensor of the processor that torch took back by
    DLPack with another device written into its description, so all that a launch asks of it are torch's own
    functions, as of any CUDA tensor. One function does need a GPU, the one that tells the current stream
    (``torch._C._cuda_getCurrentRawStream``): the built-in ``abs``, also from an int to an int, replaces it.
class
    Objects of a class in Python that has ``data_ptr()`` and ``dtype``, such as wrappers of tensors. ``data_ptr()`` is
    a call of a Python function then, which the line ``data_ptr`` gives by itself.

Then come the attributes and calls by which a program asks a handle, a kernel, the driver and the knobs between its
launches. ``python benches/launch.py --table`` prints all of them, in nanoseconds of the second and later accesses; with
``TILEWRIGHT_DEVICE=cpu`` or ``sim:sm_90`` those of this device, in place of the stand-in.
"""

from __future__ import annotations

import ctypes
import functools
import json
import linecache
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
LIMITS = {5: 1.5, 20: 3.0}
"""The permitted microseconds, by the number of arguments."""

ATTRIBUTE_LIMIT = 1.0
"""The permitted microseconds for an attribute that was read before."""

NOT_KEPT = {
    "knobs": "a listing of a whole group: as many reads as it has knobs",
    "get_empty_cache_for_benchmark": "it allocates memory",
    "copy": "a new group of knobs",
    "reset": "it changes the environment",
}
"""Names that are left out, and why."""

PROGRAM = """
import tilewright as triton
import tilewright.language as tl

@triton.jit
def kernel5(p0, p1, p2, n, BLOCK: tl.constexpr):
    tl.store(p0 + tl.arange(0, BLOCK), tl.load(p1 + tl.arange(0, BLOCK)) + tl.load(p2) + n)

@triton.jit
def kernel20(p0, p1, p2, p3, p4, p5, p6, p7, n0, n1, n2, n3, n4, n5, n6, n7, s0, s1, s2, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(p0 + at, tl.load(p1) + tl.load(p2) + tl.load(p3) + tl.load(p4) + tl.load(p5) + tl.load(p6) + tl.load(p7))
    tl.store(p0 + at, n0 + n1 + n2 + n3 + n4 + n5 + n6 + n7 + s0 + s1 + s2)

def launch5(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        kernel5[grid](a, b, c, 17, BLOCK=128)

def launch20(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        kernel20[grid](a, b, c, d, e, f, g, h, 17, 33, 65, 129, 257, 513, 1025, 2049, 3, 5, 7, BLOCK=128)

@triton.jit
def kernel_dtype(p0, p1, p2, n, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(p0 + at, (tl.load(p1 + at).to(DTYPE) + tl.load(p2).to(DTYPE)).to(tl.float32) + n)

def launch_dtype(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        kernel_dtype[grid](a, b, c, 17, BLOCK=128, DTYPE=tl.float32)

def data_ptr(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        a.data_ptr()

# Five tensors, as they are tuned and what their compile-time arguments are computed from.

def kernel(p0, p1, p2, p3, p4, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(p0 + at, tl.load(p1 + at) + tl.load(p2) + tl.load(p3) + tl.load(p4) + n)

def is_even(args):
    return args["n"] % 2 == 0

configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((128, 4), (64, 2))]
tune = triton.autotune(configs, key=["n"], do_bench=lambda fn, quantiles: [1.0, 1.0, 1.0])
compute = triton.heuristics({"EVEN": is_even})
plain = triton.jit(kernel)
computed = compute(triton.jit(kernel))
tuned = tune(triton.jit(kernel))
both = tune(compute(triton.jit(kernel)))

def launch_plain(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        plain[grid](a, b, c, d, e, 18, BLOCK=128, EVEN=True)

def launch_computed(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        computed[grid](a, b, c, d, e, 18, BLOCK=128)

def launch_tuned(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        tuned[grid](a, b, c, d, e, 18, EVEN=True)

def launch_both(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        both[grid](a, b, c, d, e, 18)

def function_alone(calls, grid, a, b, c, d, e, f, g, h):
    for _ in range(calls):
        is_even({"p0": a, "p1": b, "p2": c, "p3": d, "p4": e, "n": 18, "BLOCK": 128, "grid": grid, "warmup": False})
"""

WRAPPED = ("launch_plain", "launch_computed", "launch_tuned", "launch_both", "function_alone")
"""The last is what the program's own function takes with the dict that it is given, which nothing can save."""


class Tensor:
    """Memory of a GPU, as far as a launch looks."""

    def __init__(self, address: int, dtype: object) -> None:
        self.address = address
        self.dtype = dtype
        self.device = "cuda:0"

    def data_ptr(self) -> int:
        """The address of the tensor."""
        return self.address


def torch_tensors(count: int) -> list[object]:
    """Tensors of torch that are on a GPU, as far as torch knows."""
    import torch

    torch.cuda._lazy_init = lambda: None
    torch._C._cuda_getCurrentRawStream = abs
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensors = []
    for _ in range(count):
        capsule = torch.utils.dlpack.to_dlpack(torch.zeros(128))
        # The second field of a `DLTensor`, after the address, is the kind of the device; 2 is CUDA.
        ctypes.c_int32.from_address(pointer_of(capsule, b"dltensor") + 8).value = 2
        tensors.append(torch.utils.dlpack.from_dlpack(capsule))
    return tensors


def stub_library() -> Path:
    """The stand-in, built if need be."""
    command = ["cargo", "build", "--quiet", "--release", "-p", "tilewright-cuda-stub"]
    subprocess.run(command, check=True, cwd=HERE.parent)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
    return HERE.parent / target / "release" / "libtilewright_cuda_stub.so"


def samples(rounds: int, kind: str = "torch") -> dict[int, list[float]]:
    """Microseconds a launch, for each number of arguments and round."""
    found = measured(rounds, kind)
    return {count: found[f"launch{count}"] for count in LIMITS}


def measured(rounds: int, kind: str) -> dict[str, list[float]]:
    """As ``measure``, in a process with the stand-in."""
    found: dict[str, list[float]] = in_child(["--measure", str(rounds), kind])
    return found


def in_child(arguments: list[str]) -> Any:
    """The output of this file in a process with the stand-in."""
    environment = {**os.environ, "TILEWRIGHT_LIBCUDA": str(stub_library()), "TILEWRIGHT_DEVICE": "cuda"}
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure(rounds: int, kind: str, batches: int = 21, calls: int = 500) -> dict[str, list[float]]:
    """Microseconds a call in each round, for each function of the program.

    A round is the median of batches that are shorter than the time for which the system takes a processor away.
    """
    linecache.cache["<bench>"] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), "<bench>")
    names: dict[str, Callable[..., None]] = {}
    exec(compile(PROGRAM, "<bench>", "exec"), names)
    if kind == "torch":
        tensors = torch_tensors(8)
    else:
        dtype = names["tl"].float32  # type: ignore[attr-defined]
        tensors = [Tensor(0x1000 * (index + 1), dtype) for index in range(8)]

    def batch(name: str, calls: int) -> float:
        start = time.perf_counter()
        names[name](calls, (1,), *tensors)
        return (time.perf_counter() - start) / calls * 1e6

    found: dict[str, list[float]] = {}
    for name in ("launch5", "launch20", "launch_dtype", "data_ptr", *WRAPPED):
        batch(name, 1)
        found[name] = [statistics.median(batch(name, calls) for _ in range(batches)) for _ in range(rounds)]
    return found


def reads_of(label: str, thing: Any) -> dict[str, Callable[[], Any]]:
    """A function for each public attribute of an object, which reads it."""
    listed = [name for name in dir(thing) if not name.startswith("_")]
    found: dict[str, Callable[[], Any]] = {}
    for name in {*listed, *getattr(thing, "knob_descriptors", ())}:
        if name not in NOT_KEPT and f"{label}.{name}" not in NOT_KEPT:
            found[f"{label}.{name}"] = functools.partial(getattr, thing, name)
    return found


def readers_of(kernel: Any, tensors: list[Any]) -> dict[str, Callable[[], Any]]:
    """A function for each attribute, and for each call without an effect, that a program has between its launches."""
    import tilewright as triton
    import tilewright.compiler.compiler
    import tilewright.runtime.driver
    import tilewright.testing
    from tilewright import knobs

    handle = kernel[(1,)](*tensors, 17, BLOCK=128)
    compiled = triton.compile(handle.src)
    active = triton.runtime.driver.active
    objects = {
        "triton": triton,
        "triton.runtime": triton.runtime,
        "triton.compiler.compiler": tilewright.compiler.compiler,
        "triton.testing": tilewright.testing,
        "handle": handle,
        "handle.metadata": handle.metadata,
        "handle.src": handle.src,
        "compiled": compiled,
        "kernel": kernel,
        "kernel.params[0]": kernel.params[0],
        "driver": triton.runtime.driver,
        "active": active,
        "active.utils": active.utils,
    }
    groups = {f"knobs.{name}": group for name, group in vars(knobs).items() if isinstance(group, knobs.Knobs)}
    readers: dict[str, Callable[[], Any]] = {}
    for label, thing in (objects | groups).items():
        readers |= reads_of(label, thing)
    for stage in (*handle.asm, "ttir", "ttgir", "ptx", "cubin"):
        readers[f"handle.asm[{stage!r}]"] = functools.partial(handle.asm.__getitem__, stage)
        readers[f"handle.asm.get({stage!r})"] = functools.partial(handle.asm.get, stage)
        readers[f"{stage!r} in handle.asm"] = functools.partial(handle.asm.__contains__, stage)
    for name in dir(active):
        if name.startswith("get_") and name not in NOT_KEPT:
            readers[f"active.{name}()"] = getattr(active, name)
    return readers | {
        "handle._init_handles()": handle._init_handles,
        "handle[grid]": lambda: handle[(1,)],
        "handle.launch_metadata(...)": lambda: handle.launch_metadata((1, 1, 1), 0, *tensors),
        "compiled._init_handles()": compiled._init_handles,
        "kernel[grid]": lambda: kernel[(1,)],
        "kernel.warmup(...)": lambda: kernel.warmup(*tensors, 17, BLOCK=128, grid=(1,)),
        "active.utils.get_device_properties(0)": lambda: active.utils.get_device_properties(0),
        "isinstance(handle, CompiledKernel)": lambda: isinstance(handle, triton.compiler.CompiledKernel),
    }


def attributes(batches: int = 15, calls: int = 200) -> dict[str, float]:
    """Microseconds of the second and later accesses to each attribute of ``readers_of``: the shortest batch."""
    linecache.cache["<bench>"] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), "<bench>")
    names: dict[str, Any] = {}
    exec(compile(PROGRAM, "<bench>", "exec"), names)
    if os.environ.get("TILEWRIGHT_DEVICE") == "cuda":
        tensors = torch_tensors(3)
    else:
        import torch

        tensors = [torch.zeros(128) for _ in range(3)]
    readers = readers_of(names["kernel5"], tensors)

    def batch(read: Callable[[], Any]) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            read()
        return (time.perf_counter() - start) / calls * 1e6

    found: dict[str, float] = {}
    for label, read in readers.items():
        try:
            read()
        except (RuntimeError, AttributeError, LookupError):
            # There is no such stage for the device, or no such program of the CUDA toolkit.
            continue
        found[label] = min(batch(read) for _ in range(batches))
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attributes"]:
        print(json.dumps(attributes()))
    elif sys.argv[1:2] == ["--table"]:
        here = os.environ.get("TILEWRIGHT_DEVICE", "cuda") != "cuda"
        for name, elapsed in sorted((attributes() if here else in_child(["--attributes"])).items()):
            print(f"{name:60} {elapsed * 1000:6.0f} ns")
    elif sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(int(sys.argv[2]), sys.argv[3])))
    else:
        for kind in ("torch", "class"):
            for name, times in measured(25, kind).items():
                print(f"{kind:5} {name:15} {statistics.median(times):.3f} µs")
        print(", ".join(f"{count} arguments: {limit} µs permitted" for count, limit in LIMITS.items()))
        times = in_child(["--attributes"])
        print(f"{len(times)} attributes, {ATTRIBUTE_LIMIT} µs permitted; the slowest:")
        for name, elapsed in sorted(times.items(), key=lambda row: -row[1])[:8]:
            print(f"  {name:36} {elapsed:.3f} µs")
