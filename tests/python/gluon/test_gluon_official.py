"""The programs of the reference and of the examples are programs of the official Gluon: that package compiles them.

It compiles for sm_90 without a GPU, in a process of its own. Nothing runs: the tests of the reference and of the
examples compare the results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from gluon_programs import gluon_kernel
from reference_examples import Example
from reference_pages import GLUON
from test_gluon_programs import RUNS, source_of

OLDER = (
    "async_copy_global_to_shared",
    "async_copy_global_to_shared_im2col",
    "async_copy_shared_to_global",
    "cluster.arrive",
    "cluster.wait",
    "_reinterpret",
)
"""The names that the official package no longer has."""

BLACKWELL = ("gluon.blackwell.", "gluon.tensor_memory_descriptor.", "gluon.clc")
"""The begins of the names that only Blackwell has."""

COMPILE = """
import importlib.util, json, sys, types
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import GluonASTSource, GluonJITFunction, language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

TARGET = GPUTarget("cuda", int(sys.argv[1]), 32)
TYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.int32: "i32"}
done = set()

def type_of(value):
    if isinstance(value, torch.Tensor):
        return "*" + TYPES[value.dtype]
    if hasattr(value, "__mangle__"):
        return value.__mangle__()
    return "fp32" if isinstance(value, float) else "i32"

def launch(kernel, *arguments, **options):
    pairs = [*zip(kernel.params, arguments, strict=True)]
    constants = {each.name: value for each, value in pairs if each.is_constexpr}
    types = {each.name: "constexpr" if each.is_constexpr else type_of(value) for each, value in pairs}
    key = (kernel.__name__, kernel.src, str(types), str(constants), str(options))
    if key not in done:
        done.add(key)
        made = triton.compile(GluonASTSource(kernel, types, constants), target=TARGET, options=options)
        assert "ld" in made.asm["ptx"] or "st" in made.asm["ptx"] or "ret" in made.asm["ptx"]

GluonJITFunction.__getitem__ = lambda kernel, _grid: lambda *arguments, **options: launch(kernel, *arguments, **options)
triton.runtime.driver.set_active(types.SimpleNamespace(get_current_target=lambda: TARGET))
torch.testing.assert_close = lambda *_arguments, **_options: None
layout = gl.NVMMASharedLayout(128, 16, 2)
matrix = TensorDescriptor.from_tensor(torch.zeros(64, 64).half(), [64, 64], layout)
pixels = TensorDescriptorIm2Col.from_tensor(
    torch.zeros(2, 8, 8, 64).half(), [64, 64], layout, pixel_box_lower_corner=[-1, -1], pixel_box_upper_corner=[-1, -1]
)
wrong = {}
for path in json.load(sys.stdin):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(program)
        if hasattr(program, "main"):
            program.main()
        else:
            names = [each.name for each in program.kernel.params]
            of = {"pixels_desc": pixels}
            values = [torch.zeros(128) if name.endswith("_ptr") else of.get(name, matrix) for name in names]
            launch(program.kernel, *values)
    except Exception as error:
        wrong[path] = str(error)[-500:]
print("\\n" + json.dumps([len(done), wrong]))
"""


def compile_officially(programs, tmp_path, arch=90):
    """Compiles programs by the official package; returns the number of kernels, and the errors by program."""
    paths = []
    for name, text in programs.items():
        for own, other in (
            ("import tilewright as triton", "import triton"),
            ("from tilewright", "from triton"),
        ):
            text = text.replace(own, other)
        paths.append(str(tmp_path / f"{name}.py"))
        (tmp_path / f"{name}.py").write_text(text)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("TRITON", "PYTHON"))
    }
    done = subprocess.run(
        [sys.executable, "-I", "-c", COMPILE, str(arch)],
        input=json.dumps(paths),
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path / "cache")},
    )
    if "No module named 'triton" in done.stderr:
        pytest.skip("the official triton is not installed")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def is_current(example: Example) -> bool:
    """Returns whether the official package still has a name."""
    return not example.path.endswith(OLDER)


def test_the_official_package_compiles_the_programs(tmp_path):
    programs = {
        f"reference_{number}": gluon_kernel(each.lines, [])
        for number, each in enumerate(GLUON)
        if is_current(each) and not each.path.startswith(BLACKWELL)
    }
    programs |= {path.stem: path.read_text() for path in sorted((ROOT / "examples").glob("5*_gluon_*.py"))}
    programs |= {f"program_{number}": source_of(body) for number, (_, body) in enumerate(RUNS.values())}
    count, wrong = compile_officially(programs, tmp_path)
    assert wrong == {}
    # Two entries of the reference may show one program.
    assert count >= len({*programs.values()})


def test_the_official_package_compiles_the_programs_for_blackwell(tmp_path):
    programs = {
        f"reference_{number}": gluon_kernel(each.lines, [])
        for number, each in enumerate(GLUON)
        if is_current(each) and each.path.startswith(BLACKWELL)
    }
    programs |= {path.stem: path.read_text() for path in sorted((ROOT / "examples").glob("6*_gluon_*.py"))}
    count, wrong = compile_officially(programs, tmp_path, 100)
    assert wrong == {}
    assert count >= len({*programs.values()})
