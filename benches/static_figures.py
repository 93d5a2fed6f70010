"""Registers, spills and instructions beside the official compiler: ``python static_figures.py`` in `benches`.

Needs no GPU: both write PTX for `sm_90a`, and one assembler, that of the official triton's package, judges both. A line
is a kernel with its figures, ours and theirs; after each family are the geometric means of the ratios ours / theirs.
Less is better.

The official compiler is slow, so `static_figures.json` keeps its results for each kernel and version; `--record`
writes it anew. A kernel that has changed since is compiled again.

`--libraries FOLDER` compares kernels of public libraries instead (`library_kernels.py`); the folder has their
clones. With `--keep FOLDER` the texts of both compilers stay there, and the official one compiles no kernel twice.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import importlib
import importlib.util
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import library_kernels
from gpu.sides import TILEWRIGHT, TRITON, load

HERE = Path(__file__).resolve().parent
RECORD = HERE / "static_figures.json"
CONSTANT = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?|'\w*'|tl\.\w+|None|True|False")


@dataclass(frozen=True)
class Kernel:
    """A kernel and the types of its arguments: `*fp16:16` is a pointer that 16 divides, 1024 a constant."""

    family: str
    file: str
    name: str
    arguments: str
    num_warps: int = 4
    num_stages: int = 1

    def __str__(self) -> str:
        constants = [word for word in self.arguments.split(",") if CONSTANT.fullmatch(word)]
        dtypes = [word for word in self.arguments.split(",") if word.startswith("*")][:1]
        return f"{self.name} {' '.join(dtypes).removesuffix(':16')} {'x'.join(constants)}"

    @property
    def path(self) -> Path:
        """The file."""
        return next(HERE.parent.glob(f"*/{self.file}.py"))

    @property
    def key(self) -> str:
        """The key of its figures, without the file's text."""
        return f"{self.file}::{self.name} {self.arguments} w{self.num_warps} s{self.num_stages}"

    @property
    def version(self) -> str:
        """A number that changes with the code of the kernel and of the functions of its file that it calls.

        Comments and docstrings do not change it.
        """
        text = self.path.read_text(encoding="utf-8")
        functions = {item.name: item for item in ast.parse(text).body if isinstance(item, ast.FunctionDef)}
        found: dict[str, str] = {}
        wanted = [self.name]
        while wanted:
            name = wanted.pop()
            if name in functions and name not in found:
                function = functions[name]
                if ast.get_docstring(function) is not None:
                    del function.body[0]
                found[name] = ast.unparse(function)
                wanted += [node.id for node in ast.walk(function) if isinstance(node, ast.Name)]
        return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]


STRIDES = "i32:16,1,i32:16,1,i32:16,1"
KERNELS = [
    *(
        Kernel("others", "kernels", "add_kernel", f"*{t}:16,*{t}:16,*{t}:16,i32:16,1024")
        for t in ("fp32", "fp16")
    ),
    Kernel("others", "kernels", "add_kernel", "*fp16,*fp16,*fp16,i32,1024"),
    Kernel("others", "bandwidth_kernels", "transpose", "*fp32:16,*fp32:16,i32:16,i32:16,32"),
    Kernel("others", "bandwidth_kernels", "transpose", "*fp16:16,*fp16:16,i32:16,i32:16,64"),
    Kernel("others", "bandwidth_kernels", "gather", "*fp32:16,*i32:16,*fp32:16,1024"),
    Kernel("others", "bandwidth_kernels", "atomic_histogram", "*i32:16,*i32:16,1024"),
    *(
        Kernel("reductions", "kernels", "softmax_kernel", f"*fp32:16,*fp32:16,i32:16,i32,{n}", num_warps=w)
        for n, w in ((1024, 4), (4096, 8), (16384, 16))
    ),
    *(
        Kernel(
            "reductions",
            "kernels",
            "layer_norm_kernel",
            f"*fp16:16,*fp16:16,*fp16:16,*fp16:16,i32:16,i32,fp32,{n}",
            num_warps=w,
        )
        for n, w in ((1024, 4), (4096, 8), (16384, 8))
    ),
    Kernel("reductions", "bandwidth_kernels", "cumsum", "*fp32:16,*fp32:16,i32:16,1024"),
    Kernel("reductions", "bandwidth_kernels", "cumsum", "*fp32:16,*fp32:16,i32:16,4096", num_warps=8),
    Kernel("reductions", "bandwidth_kernels", "column_sums", "*fp16:16,*fp32:16,i32:16,i32:16,64,64"),
    Kernel(
        "reductions",
        "bandwidth_kernels",
        "cross_entropy",
        "*bf16:16,*i64:16,*fp32:16,i32:16,32768",
        num_warps=16,
    ),
    Kernel("reductions", "bandwidth_kernels", "topk", "*fp32:16,*fp32:16,1024,16"),
    Kernel("reductions", "bandwidth_kernels", "sort", "*fp32:16,*fp32:16,256,4"),
    Kernel("reductions", "bandwidth_kernels", "histogram", "*i32:16,*i32:16,256,4096"),
    Kernel(
        "reductions",
        "bandwidth_kernels",
        "layer_norm_backward",
        "*fp16:16,*fp16:16,*fp16:16,*fp32:16,*fp32:16,*fp16:16,*fp32:16,*fp32:16,4096",
        num_warps=8,
    ),
    *(
        Kernel(
            "products",
            "kernels",
            "matmul_kernel",
            f"*{t}:16,*{t}:16,*{t}:16,i32:16,i32:16,i32:16,{STRIDES},{m},{n},{k}",
            num_warps=w,
            num_stages=s,
        )
        for t in ("fp16", "bf16")
        for m, n, k, w, s in (
            (128, 256, 64, 8, 3),
            (128, 128, 64, 8, 3),
            (64, 128, 64, 4, 3),
            (16, 128, 128, 4, 4),
        )
    ),
    *(
        Kernel(
            "products",
            "kernels",
            "attention_kernel",
            f"*fp16:16,*fp16:16,*fp16:16,*fp16:16,i32:16,i32:16,i32:16,fp32,128,{n},{head}",
            num_warps=w,
            num_stages=3,
        )
        for n, head, w in ((64, 64, 4), (64, 128, 8))
    ),
    Kernel("others", "04_dropout", "dropout_kernel", "*fp16:16,*fp16:16,i32:16,fp32,i32,1024"),
    Kernel("others", "11_gated_activations", "forward_kernel", "*bf16:16,*bf16:16,i32:16,'swiglu',1024"),
    Kernel(
        "others", "11_gated_activations", "backward_kernel", "*bf16:16,*bf16:16,*bf16:16,i32:16,'geglu',1024"
    ),
    Kernel(
        "others",
        "13_rotary_embedding",
        "rotate_kernel",
        "*bf16:16,*bf16:16,*bf16:16,*bf16:16,i32:16,i32:16,i32:16,i32:16,i32:16,i32:16,0,32,64",
    ),
    Kernel(
        "reductions",
        "10_rms_norm",
        "forward_kernel",
        "*bf16:16,*bf16:16,*bf16:16,*fp32:16,i32:16,fp32,4096",
        8,
    ),
    Kernel(
        "reductions",
        "10_rms_norm",
        "backward_kernel",
        "*bf16:16,*bf16:16,*bf16:16,*fp32:16,*bf16:16,*fp32:16,i32,i32:16,4096",
        num_warps=8,
    ),
    Kernel(
        "reductions",
        "14_cross_entropy",
        "loss_and_gradient",
        "*bf16:16,*i64:16,*fp32:16,fp32,i32,i32:16,-100,4096",
    ),
    Kernel("reductions", "12_layer_norm_backward", "sum_of_parts", "*fp32:16,*fp16:16,i32,i32:16,32,128"),
    Kernel(
        "reductions",
        "30_single_pass_scan",
        "scan",
        "*fp32:16,*fp32:16,*i32:16,*i32:16,*fp32:16,*fp32:16,i32,1024",
    ),
    Kernel("reductions", "32_top_k_gating", "gate_kernel", "*fp32:16,*fp32:16,*i32:16,i32,16,64,4"),
    *(
        Kernel(
            "products",
            "40_attention",
            name,
            f"{pointers},i32:16,fp32,{causal},{queries},{keys},{width}",
            warps,
            2,
        )
        for width, warps in ((64, 4), (128, 8))
        for causal in (0, 1)
        for name, pointers, queries, keys in (
            ("forward_kernel", "*fp16:16,*fp16:16,*fp16:16,*fp16:16,*fp32:16", 128, 64),
            ("dk_dv_kernel", ",".join(["*fp16:16"] * 4 + ["*fp32:16"] * 2 + ["*fp16:16"] * 2), 64, 128),
            ("dq_kernel", ",".join(["*fp16:16"] * 4 + ["*fp32:16"] * 2 + ["*fp16:16"]), 128, 64),
        )
    ),
    Kernel(
        "products",
        "25_int4_weights",
        "int4_kernel",
        "*fp16:16,*i32:16,*fp16:16,*fp16:16,*fp16:16,i32,i32:16,i32:16,128,16,128,128",
        num_stages=3,
    ),
    Kernel(
        "products",
        "41_paged_decode_attention",
        "part_kernel",
        "*fp16:16,*fp16:16,*fp16:16,*i32:16,*i32:16,*fp32:16,*fp32:16,i32,i32,fp32,8,16,64,128",
        num_stages=2,
    ),
    Kernel(
        "products",
        "42_chunked_linear_attention",
        "attention_kernel",
        "*fp32:16,*fp32:16,*fp32:16,*fp32:16,*fp32:16,i32:16,64,64,64",
    ),
    Kernel(
        "products",
        "24_stream_k_matmul",
        "stream_k_kernel",
        "*fp16:16,*fp16:16,*fp32:16,i32:16,i32:16,i32:16,128,128,64",
        8,
        3,
    ),
    *(
        Kernel(
            "products",
            "product_kernels",
            "matmul",
            f"*{t}:16,*{t}:16,*{c}:16,i32:16,i32:16,i32:16,{orders},i32:16,1,{size},8,tl.{acc},0",
            warps,
            3,
        )
        for t, c, acc, size, warps in (
            ("bf16", "bf16", "float32", "128,128,64", 4),
            ("fp8e4nv", "fp16", "float32", "128,256,128", 8),
            ("i8", "i32", "int32", "128,256,128", 8),
            ("fp32", "fp32", "float32", "128,128,32", 4),
        )
        for orders in ("i32:16,1,i32:16,1", "i32:16,1,1,i32:16")
    ),
    Kernel(
        "products",
        "product_kernels",
        "matmul",
        "*fp16:16,*fp16:16,*fp16:16,i32,i32,i32,i32,1,i32,1,i32,1,128,128,64,8,tl.float32,0",
        8,
        3,
    ),
    *(
        Kernel(
            "products",
            "product_kernels",
            "int8_weights",
            f"*bf16:16,*i8:16,*fp32:16,*bf16:16,i32,i32:16,i32:16,i32:16,i32:16,i32:16,{m},64,128",
            num_stages=4,
        )
        for m in (16, 64)
    ),
    Kernel(
        "products",
        "product_kernels",
        "int4_weights",
        "*bf16:16,*u8:16,*bf16:16,*bf16:16,i32,i32:16,i32:16,i32:16,i32:16,i32:16,i32:16,128,16,64,128",
        num_stages=4,
    ),
    Kernel(
        "products",
        "product_kernels",
        "split_k",
        "*fp16:16,*fp16:16,*fp32:16,i32:16,i32:16,i32:16,128,64,64,16",
        4,
        4,
    ),
    Kernel(
        "products",
        "product_kernels",
        "chained",
        "*fp16:16,*fp16:16,*fp16:16,*fp16:16,i32:16,i32:16,i32:16,i32:16,i32:16,128,64,128",
        8,
        3,
    ),
    Kernel(
        "products",
        "product_kernels",
        "mixture_of_experts",
        "*bf16:16,*bf16:16,*bf16:16,*i32:16,*i32:16,i32:16,i32:16,i32:16,i32:16,i32:16,i32:16,i32:16,64,128,64,8,2",
        4,
        4,
    ),
    *(
        Kernel(
            "products",
            "attention_kernels",
            "attention_backward",
            f"*fp16:16,*fp16:16,*fp16:16,*fp16:16,*fp32:16,*fp32:16,*fp16:16,*fp16:16,*fp16:16,fp32,4096,{head},{causal},{blocks}",
            warps,
            stages,
        )
        for head in (64, 128)
        for causal in (0, 1)
        for blocks, warps, stages in (("32,128", 4, 5), ("64,128", 8, 3))
    ),
    Kernel(
        "products",
        "20_batched_matmul",
        "batched_kernel",
        "*fp16:16,*fp16:16,*fp16:16,i32:16,i32:16,i32:16,i32:16,i32:16,1,i32:16,i32:16,1,i32:16,i32:16,1,128,128,64",
        8,
        3,
    ),
    Kernel(
        "products",
        "21_grouped_matmul",
        "grouped_kernel",
        "*i64:16,*i32:16,i32,tl.float16,128,128,64",
        8,
        3,
    ),
]


@dataclass(frozen=True)
class Figures:
    """The assembler's figures of a kernel. Accesses are instructions that read or write global memory."""

    registers: int
    spilled: int
    instructions: int
    accesses: int


def assembled(ptx: str, tools: Path) -> Figures:
    """The figures of one text."""
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        text.write_text(ptx)
        command = [tools / "ptxas", "-v", "-arch=sm_90a", text, "-o", cubin]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        sass = subprocess.run(
            [tools / "cuobjdump", "-sass", cubin], capture_output=True, text=True, check=True
        ).stdout
    instructions = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass, re.MULTILINE)
    real = [word for word in instructions if word != "NOP"]
    return Figures(
        registers=int(re.search(r"Used (\d+) registers", report)[1]),  # type: ignore[index]
        spilled=sum(map(int, re.findall(r"(\d+) bytes spill", report))),
        instructions=len(real),
        accesses=sum(word.startswith(("LDG", "STG", "LDGSTS", "RED", "ATOMG")) for word in real),
    )


def compiler(package: str) -> Callable[[Kernel], str]:
    """From kernels to PTX, by one of the two."""
    modules: dict[str, ModuleType] = {}
    compile_function = function_compiler(package)

    def compile_kernel(kernel: Kernel) -> str:
        if kernel.file not in modules:
            modules[kernel.file] = load(package, kernel.path)
        return compile_function(getattr(modules[kernel.file], kernel.name), kernel)

    return compile_kernel


def function_compiler(package: str) -> Callable[[Any, Kernel], str]:
    """From functions with the types of a kernel to PTX, by one of the two."""
    triton = importlib.import_module(package)
    source: Any = importlib.import_module(f"{package}.compiler").ASTSource
    language = importlib.import_module(f"{package}.language")
    target = importlib.import_module(f"{package}.backends.compiler").GPUTarget("cuda", 90, 32)
    # The first compilation imports the backends. Under pytest, Python 3.11 cannot parse modules in several threads.
    _ = importlib.import_module(f"{package}.backends").backends

    def compile_function(function: Any, kernel: Kernel) -> str:
        types, constants, attributes = {}, {}, {}
        for place, (name, word) in enumerate(
            zip(function.arg_names, kernel.arguments.split(","), strict=True)
        ):
            dtype, _, divisor = word.partition(":")
            if CONSTANT.fullmatch(dtype):
                of_language = dtype.startswith("tl.")
                value = getattr(language, dtype[3:]) if of_language else ast.literal_eval(dtype)
                dtype, constants[(place,)] = "constexpr", value
            elif divisor:
                attributes[(place,)] = [["tt.divisibility", int(divisor)]]
            types[name] = dtype
        options = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages}
        if package == TRITON:
            # A version that the assembler of the package knows.
            options["ptx_version"] = 87
        made = triton.compile(source(function, types, constants, attributes), target=target, options=options)
        return str(made.asm["ptx"])

    return compile_function


def geometric_mean(ratios: list[float]) -> float:
    """Of ratios; 1 of none."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


class Comparison:
    """Kernels by both compilers. The official one is asked only for what no record says."""

    def __init__(self, record: Path | None = RECORD) -> None:
        self.tools = Path(importlib.import_module(TRITON).__file__ or "").parent / "backends/nvidia/bin"
        known = record is not None and record.exists()
        self.record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text()) if known else {}

    @functools.cached_property
    def _ours(self) -> Callable[[Kernel], str]:
        return compiler(TILEWRIGHT)

    @functools.cached_property
    def _theirs(self) -> Callable[[Kernel], str]:
        return compiler(TRITON)

    def ours(self, kernel: Kernel) -> Figures:
        """Of our PTX."""
        return assembled(self._ours(kernel), self.tools)

    def milliseconds(self, kernel: Kernel) -> float:
        """Milliseconds of processor time from the source to our PTX, the least of seven runs."""
        times = []
        for _ in range(7):
            begun = time.thread_time()
            self._ours(kernel)
            times.append(time.thread_time() - begun)
        return min(times) * 1e3

    def theirs(self, kernel: Kernel) -> Figures:
        """Of the official PTX."""
        known = self.record.get(kernel.key)
        if known is None or known["version"] != kernel.version:
            found = asdict(assembled(self._theirs(kernel), self.tools))
            known = self.record[kernel.key] = {"version": kernel.version, **found}
        return Figures(**{field.name: known[field.name] for field in fields(Figures)})


class Libraries:
    """Kernels of libraries by both compilers. The texts stay in a folder; the official one is asked once."""

    def __init__(self, clones: Path, kept: Path) -> None:
        self.clones, self.kept = clones, kept
        self.tools = Path(importlib.import_module(TRITON).__file__ or "").parent / "backends/nvidia/bin"
        self.compilers = {package: function_compiler(package) for package in (TILEWRIGHT, TRITON)}
        kept.mkdir(parents=True, exist_ok=True)

    def figures(self, kernel: library_kernels.LibraryKernel, package: str) -> Figures:
        """Of the PTX of one of the two."""
        path = self.clones / kernel.file
        root = self.clones / kernel.file.split("/")[0]
        cut = library_kernels.Cutter(root, package).text(path, kernel.name)
        typed = Kernel(
            kernel.family,
            kernel.file,
            kernel.name,
            kernel.arguments(cut),
            kernel.num_warps,
            kernel.num_stages,
        )
        version = hashlib.sha256(f"{cut}{typed.key}".encode()).hexdigest()[:8]
        file = self.kept / f"{kernel.name}_{version}_of_{package}.py"
        made = file.with_suffix(".ptx")
        if package != TRITON or not made.exists():
            file.write_text(cut, encoding="utf-8")
            spec = importlib.util.spec_from_file_location(file.stem, file)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            made.write_text(self.compilers[package](getattr(module, kernel.name), typed), encoding="utf-8")
        return assembled(made.read_text(encoding="utf-8"), self.tools)


def print_table(rows: Iterable[tuple[str, str, Figures | str, Figures | str]]) -> None:
    """Prints lines with a family, a kernel and its figures, ours and theirs, or an error; after a family the means."""
    names = [field.name for field in fields(Figures)]
    print(f"| kernel | {' | '.join(f'{name}, theirs' for name in names)} |\n|{'---|' * (len(names) + 1)}")
    for family, members in itertools.groupby(rows, lambda row: row[0]):
        ratios: dict[str, list[float]] = {name: [] for name in names}
        for _, kernel, ours, theirs in members:
            if isinstance(ours, str) or isinstance(theirs, str):
                print(f"| {kernel} | ours: {ours}, theirs: {theirs} |", flush=True)
                continue
            pairs = [(getattr(ours, name), getattr(theirs, name)) for name in names]
            print(f"| {kernel} | {' | '.join(f'{a}, {b}' for a, b in pairs)} |", flush=True)
            for name, (a, b) in zip(names, pairs, strict=True):
                if a and b:
                    ratios[name].append(a / b)
        means = [f"**{geometric_mean(ratios[name]):.2f}**" for name in names]
        print(f"| **{family}, ours / theirs** | {' | '.join(means)} |", flush=True)


def of_libraries(
    clones: Path, kept: Path, only: str
) -> Iterator[tuple[str, str, Figures | str, Figures | str]]:
    """The rows of the libraries' kernels."""
    libraries = Libraries(clones, kept)
    for kernel in library_kernels.kernels():
        if only in f"{kernel.family} {kernel}":
            found: list[Figures | str] = []
            for package in (TILEWRIGHT, TRITON):
                try:
                    found.append(libraries.figures(kernel, package))
                except Exception as error:  # One kernel that a compiler refuses is a line of the table.
                    found.append(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
            yield kernel.family, str(kernel), found[0], found[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kernels with this in their line")
    parser.add_argument(
        "--record", action="store_true", help="compile all with the official compiler, and keep that"
    )
    parser.add_argument("--times", action="store_true", help="print the time from source to PTX instead")
    parser.add_argument("--libraries", type=Path, help="a folder with clones of public libraries")
    parser.add_argument("--keep", type=Path, help="where the texts of the libraries' kernels stay")
    options = parser.parse_args()
    if options.libraries:
        with tempfile.TemporaryDirectory() as folder:
            print_table(of_libraries(options.libraries, options.keep or Path(folder), options.only))
        return
    comparison = Comparison(None if options.record else RECORD)
    chosen = [kernel for kernel in KERNELS if options.only in str(kernel)]
    if options.times:
        for kernel in chosen:
            print(f"{comparison.milliseconds(kernel):7.2f} ms  {kernel}", flush=True)
        return
    families = list(dict.fromkeys(kernel.family for kernel in chosen))
    chosen.sort(key=lambda kernel: families.index(kernel.family))
    print_table(
        (kernel.family, str(kernel), comparison.ours(kernel), comparison.theirs(kernel)) for kernel in chosen
    )
    if options.record:
        RECORD.write_text(json.dumps(comparison.record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
