"""``triton.tools.compile`` and ``triton.tools.link``: C files that launch kernels in programs without Python."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_library import c_library
from conftest import DEVICE, PATIENCE, ROOT, environment_of

from tilewright.errors import TritonError
from tilewright.tools.compile import CompileArgs, compile_kernel
from tilewright.tools.link import (
    HeaderParser,
    LinkerError,
    gen_signature,
    gen_signature_with_full_args,
)

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="the programs choose their devices")

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=mask) + tl.load(y_ptr + i, mask=mask), mask=mask)


@triton.autotune([triton.Config({"BLOCK": 32})], key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, scale, BLOCK: tl.constexpr = 32):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        down, across = k + tl.arange(0, BLOCK)[:, None], k + tl.arange(0, BLOCK)[None, :]
        a = tl.load(a_ptr + rows * K + across, mask=(rows < M) & (across < K), other=0.0)
        b = tl.load(b_ptr + down * N + columns, mask=(down < K) & (columns < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows * N + columns, total * scale, mask=(rows < M) & (columns < N))


@triton.jit
def every_type(stream, flag, byte, word, wide, half, real, large, ONE, TEXT: tl.constexpr):
    tl.static_assert(TEXT == "x")


@triton.jit
def keyword(x_ptr, register):
    tl.store(x_ptr, register)


@triton.jit
def copy_rows(x_ptr, rows, columns):
    tl.store(x_ptr, rows + columns)


@triton.jit
def multiply(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total)


@triton.jit
def clash(a, a_shape_0):
    a.store([0], a.load([0]) * a_shape_0)
"""

ADD = {
    "kernel_name": "add_kernel",
    "signature": "*fp32:16, *fp32:16, *fp32:16, i32, 256",
    "grid": "(n + BLOCK - 1) / BLOCK, 1, 1",
    "out_name": "add",
    "target": ["cpu", "cuda:90:32"],
    "num_warps": 4,
}

MATMUL = {
    "kernel_name": "matmul_kernel",
    "signature": "*fp16:16, *fp16:16, *fp32:16, i32, i32, i32, fp32, 32",
    "grid": "(M + 31) / 32, (N + 31) / 32, 1",
    "out_name": "matmul",
    "target": ["cpu", "cuda:90:32"],
    "num_warps": 4,
}

MULTIPLY = {
    "kernel_name": "multiply",
    "signature": "tensordesc<fp16[64, 32]>, tensordesc<fp16[32,64]>, tensordesc<fp32[64, 64]>, i32, 64, 64, 32",
    "grid": "cdiv(c.shape[0], BM), cdiv(c.shape[1], BN), 1",
    "target": ["cpu", "cuda:90:32"],
    "num_warps": 4,
}

STAND_IN = (ROOT / "tests" / "python" / "support" / "launch_printer.c").read_text()
"""A library that prints the launches; one on the device `tpu` fails."""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    # In this process, `triton` may be the official package.
    path.write_text(
        KERNELS.replace("import triton", "import tilewright as triton", 1).replace(
            "import triton.language", "import tilewright.language"
        )
    )
    return path


@pytest.fixture
def compiled(kernels: Path, tmp_path: Path) -> Callable[..., tuple[str, list[Path]]]:
    """Compiles a kernel into the folder `build`."""

    def make(base: dict[str, Any], **other: Any) -> tuple[str, list[Path]]:
        settings = {**base, **other}
        name = settings.get("out_name") or settings["kernel_name"]
        path = tmp_path / "build" / name
        return compile_kernel(CompileArgs(path=str(kernels), out_path=path, **settings))

    return make


@pytest.fixture
def link(run: Any, tmp_path: Path) -> Callable[..., Any]:
    def start(*arguments: Any) -> Any:
        return run("-m", "tilewright", "run", "-m", "triton.tools.link", *arguments, cwd=tmp_path)

    return start


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Compiles C files and `main.c` with the strictest warnings."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")

    def make(main: str, *more: Any) -> Path:
        folder = tmp_path / "build"
        (folder / "main.c").write_text(main)
        program = folder / "main"
        _cc("-std=c11", "-pedantic", "-O1", *sorted(folder.glob("*.c")), "-o", program, *more)
        return program

    return make


def _cc(*arguments: Any) -> None:
    include = ROOT / "crates" / "c" / "include"
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-I", include, *arguments]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def _run(program: Path, *arguments: Any, env: dict[str, str] | None = None) -> str:
    environment = {name: value for name, value in environment_of().items() if name != "TILEWRIGHT_DEVICE"}
    done = subprocess.run(
        [*map(str, (program, *arguments))],
        capture_output=True,
        text=True,
        env={**environment, **(env or {})},
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _packed(source: Path) -> bytes:
    """The packed lock in a source file."""
    array = re.search(r"tw_packed\[\] = \{(.*?)\}", source.read_text(), re.DOTALL)
    assert array is not None
    return bytes(int(number) for number in array[1].replace("\n", "").split(",") if number.strip())


def test_the_command_writes_a_header_and_a_source(run, tmp_path):
    (tmp_path / "kernel.py").write_text(KERNELS)
    signature, grid = "*fp32:16, *fp32:16, *fp32:16, i32, 1024", "(n + 1023) / 1024, 1, 1"
    options = ["--kernel-name", "add_kernel", "--signature", signature, "--grid", grid]
    options += ["--out-name", "add", "--out-path", "build/add", "--num-warps", "4"]
    command = ("-m", "triton.tools.compile", "kernel.py", *options, "--target", "cuda:90:32")
    done = run("-m", "tilewright", "run", *command, cwd=tmp_path)
    assert done.code == 0, done.err
    name, _, files = done.out.strip().partition(": ")
    assert re.fullmatch(r"add_[0-9a-f]{8}_0d1d2d34", name)
    assert done.out in (ROOT / "docs" / "ahead-of-time.md").read_text()
    stem = name.replace("add_", "build/add.", 1)
    assert files == f"{stem}.h, {stem}.c"
    text = (tmp_path / f"{stem}.h").read_text()
    assert f"tw_result {name}(CUstream stream, CUdeviceptr x_ptr, CUdeviceptr y_ptr, " in text
    assert f"tw_result load_{name}(void);" in text
    assert "BLOCK = 1024, num_warps = 4, num_stages = 3" in text
    assert str(tmp_path) not in text + (tmp_path / f"{stem}.c").read_text()
    parser = HeaderParser()
    parser.extract_linker_meta(text)
    parser.extract_linker_meta(text)
    ((algorithm, (meta,)),) = parser.kernels.items()
    assert algorithm == "add_1024_warps4xstages3"
    assert (meta.orig_kernel_name, meta.suffix, meta.num_specs) == ("add", "1024_warps4xstages3", 3)
    assert list(meta.sizes) == [16, 16, 16, None]
    assert gen_signature(meta) == gen_signature_with_full_args(meta)
    assert gen_signature(meta) == "CUdeviceptr x_ptr, CUdeviceptr y_ptr, CUdeviceptr out_ptr, int32_t n"


def test_equal_inputs_give_equal_bytes(compiled, link, tmp_path):
    name, files = compiled(ADD)
    first = [file.read_bytes() for file in files]
    assert link("build/add.*.h", *files[:1], "-o", "build/add").code == 1
    assert link(files[0], "-o", "build/add").code == 0
    linked = [(tmp_path / "build" / f"add.{end}").read_bytes() for end in "hc"]
    again, others = compiled(ADD, out_name="add")
    assert (again, others) == (name, files)
    assert [file.read_bytes() for file in files] == first
    # The header that the first call has written has no variants.
    assert link(files[0], "build/add.h", files[0], "-o", "build/add").code == 0
    assert [(tmp_path / "build" / f"add.{end}").read_bytes() for end in "hc"] == linked
    assert compiled(ADD, num_stages=4)[0] != name


def test_the_packed_lock_is_a_lock_of_the_kernel(compiled, run, tmp_path):
    """A program of Python launches its kernel, and compiles nothing."""
    _, files = compiled(ADD)
    with tarfile.open(fileobj=io.BytesIO(_packed(files[1]))) as archive:
        members = archive.getmembers()
        assert members[0].name == "tilewright.lock"
        assert {(one.mtime, one.uid, one.gid, one.mode) for one in members} == {(0, 0, 0, 0o644)}
        for one in members:
            path = tmp_path / one.name.replace("artifacts/", "tilewright.artifacts/")
            path.parent.mkdir(exist_ok=True)
            file = archive.extractfile(one)
            assert file is not None
            path.write_bytes(file.read())
    lock = tmp_path / "tilewright.lock"
    assert run("-m", "tilewright", "lock", "verify", lock).code == 0
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nfrom kernels import add_kernel\n"
        "x = np.arange(1000, dtype=np.float32)\nout = np.empty_like(x)\n"
        "add_kernel[(4,)](x, x, out, 1000, BLOCK=256)\n"
        "print((out == 2 * x).all())\n"
    )
    done = run("-m", "tilewright", "run", f"--locked={lock}", "--device", "cpu", program)
    assert (done.code, done.out) == (0, "True\n"), done.err


def test_other_settings_of_the_process_stay(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_LOCK_RECORD", str(tmp_path / "other"))
    compiled(ADD, target="cpu")
    assert os.environ["TILEWRIGHT_LOCK_RECORD"] == str(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert "TILEWRIGHT_LOCK" not in os.environ


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"kernel_name": "add_kernl"}, "TW0110", "did you mean 'add_kernel'?"),
        ({"signature": "*fp32, *fp32, *fp32, i32"}, "TW0105", "4 items, but kernel 'add_kernel' has 5 param"),
        ({"signature": "*fp31, *fp32, *fp32, i32, 64"}, "TW0105", "'*fp31' does not describe parameter 'x_p"),
        ({"signature": "*fp32:8, *fp32, *fp32, i32, 64"}, "TW0105", "a hint is 16 (a multiple of 16) or 1"),
        ({"signature": "*fp32:1, *fp32, *fp32, i32, 64"}, "TW0105", "the hint 1 is for integers"),
        ({"signature": "*fp32, *fp32, *fp32, fp32:16, 64"}, "TW0105", "16 is for pointers and integers"),
        ({"signature": "*fp32, *fp32, *fp32, i32, i32"}, "TW0105", "a tl.constexpr, which needs a value"),
        ({"signature": "tensordesc<fp32>, *fp32, *fp32, i32, 64"}, "TW0105", "written as tensordesc<fp16[64, 32]>"),
        ({"signature": "tensordesc<fp32[7]>, *fp32, *fp32, i32, 64"}, "TW0105", "tensordesc<fp16[64, 32]>"),
        ({"signature": "*fp32, *fp32, *fp32, i32, tensordesc<fp32[8]>"}, "TW0105", "tl.constexpr, which needs a value"),
        ({"signature": "nvTmaDesc, *fp32, *fp32, i32, 64"}, "TW0105", "C passes no tensor maps"),
        (
            {"kernel_name": "clash", "signature": "tensordesc<fp32[8]>, i32", "grid": "1, 1, 1"},
            "TW0105",
            "'a_shape_0' is the name of a parameter and of a part of a tensor descriptor in C",
        ),
        ({"grid": ""}, "TW0103", "the grid is '', expected three expressions"),
        ({"grid": "n, 1"}, "TW0103", "expected three expressions"),
        ({"grid": "(n, 1), 1"}, "TW0103", "expected three expressions"),
        ({"grid": "m, 1, 1"}, "TW0103", "the grid has the name 'm', which is no parameter"),
        ({"grid": "n // 4 / 2, 1, 1"}, "TW0103", "has '//', which is no operator of C"),
        ({"grid": "m / 4, 1, 1"}, "TW0103", "the grid has the name 'm', which is no parameter"),
        ({"grid": "x_ptr, 1, 1"}, "TW0103", "this is a tensor"),
        ({"grid": "n // 0, 1, 1"}, "TW0103", "the grid divides by 0"),
        ({"grid": "k, 1"}, "TW0103", "write three expressions: --grid 'cdiv(n, 1024), 1, 1'"),
        (
            {"kernel_name": "copy_rows", "signature": "*i32, i32, i32", "grid": "k, 1, 1"},
            "TW0103",
            "write the programs along three axes: --grid 'cdiv(rows, 64), 1, 1'",
        ),
        ({"target": "hip:gfx942:64"}, "TW0109", "no target 'hip:gfx942:64'"),
        ({"target": "cuda:33:32"}, "TW0109", "the targets are cpu, sm_75"),
        ({"target": "sm_90", "num_warps": 3}, "TW0108", "num_warps is 3"),
        ({"out_name": "a-b"}, "TW0105", "the kernel's name 'a-b' is no name in C"),
        (
            {"kernel_name": "keyword", "signature": "*i32, i32", "grid": "1, 1, 1"},
            "TW0105",
            "parameter 'register' is no name in C",
        ),
    ],
)  # fmt: skip
def test_wrong_inputs_of_compile(changes, code, message, compiled, tmp_path):
    with pytest.raises(TritonError) as raised:
        compiled({**ADD, **changes})
    assert raised.value.code == code
    assert message in str(raised.value)
    assert not (tmp_path / "build").exists()


def test_exit_codes_of_compile(run, tmp_path):
    (tmp_path / "kernel.py").write_text(KERNELS)

    def start(*options: str) -> Any:
        return run("-m", "tilewright", "run", "-m", "triton.tools.compile", *options, cwd=tmp_path)

    needed = ("-n", "add_kernel", "-s", ADD["signature"], "-g", ADD["grid"])
    done = start("kernel.py", *needed[:-2])
    assert (done.code, done.err.splitlines()[0]) == (2, "error: --grid is missing")
    done = start(*needed)
    assert (done.code, done.err.splitlines()[0]) == (2, "error: no file with a kernel")
    done = start("kernel.py", *needed, "--target", "tpu")
    assert (done.code, done.err.splitlines()[0]) == (2, "error[TW0109]: no target 'tpu'")
    done = start("none.py", *needed, "--target", "cpu")
    assert (done.code, done.err.splitlines()[0][:37]) == (1, "error[TW0110]: cannot read none.py: t")
    done = start("kernel.py", *needed, "--target", "cpu", "-o", "kernel.py/add")
    assert done.code == 1
    assert done.err.startswith("error: cannot write ")
    if not os.environ.get("TILEWRIGHT_DEVICE"):
        done = run(
            "-m",
            "tilewright.tools.compile",
            "kernel.py",
            *needed,
            env={"TILEWRIGHT_DEVICE": "cpu"},
            cwd=tmp_path,
        )
        assert done.code == 2
        assert "name the target: --target cuda:90:32" in done.err


def test_wrong_inputs_of_link(compiled, link, tmp_path):
    header = compiled(ADD)[1][0]
    other = compiled(MATMUL)[1][0]
    assert link("-o", "x").code == 2
    assert link(header).err.startswith("error: --out is missing")
    done = link(header, other, "-o", "build/all")
    assert done.code == 1
    assert done.err.startswith("error[TW0108]: the headers are of 2 kernels, expected one\n")
    assert "the kernels are add, matmul" in done.err
    done = link(ROOT / "crates" / "c" / "include" / "tilewright.h", "-o", "build/all")
    assert (done.code, "describes no variant of a kernel" in done.err) == (1, True)
    done = link("none.h", "-o", "build/all")
    assert (done.code, done.err) == (1, "error: cannot open none.h: No such file or directory\n")
    done = link(header, "-o", "build/all", "--prefix", "1")
    assert (done.code, "'1add' is no name in C" in done.err) == (1, True)
    assert not (tmp_path / "build" / "all.h").exists()

    parser = HeaderParser()
    parser.extract_linker_meta(header.read_text())
    wider = compiled(ADD, signature="*fp32, *fp32, *fp32, i64, 256")[1][0].read_text()
    with pytest.raises(LinkerError, match="have different arguments") as raised:
        parser.extract_linker_meta(wider)
    assert raised.value.code == "TW0108"
    same = header.read_text().replace('"hash": "', '"hash": "0')
    with pytest.raises(LinkerError, match="have equal hints, values and options"):
        parser.extract_linker_meta(same)
    for wrong in ('{"format": 2}', '{"format": 1}', "{", '{"format": 1, "kernel": "a b"}', "[]"):
        with pytest.raises(LinkerError, match="the description of a header cannot be read"):
            parser.extract_linker_meta(f"// tilewright-link: {wrong}")


MAIN = r"""
#include <stdio.h>

#include "add.h"

#define CHECK(call) \
    do { \
        int code = call; \
        if (code != 0) \
            printf("%d: %s\n", code, add_error()); \
    } while (0)

int main(void)
{
    CUstream stream = (CUstream)7;
    printf("%d algorithms%s\n", add_get_num_algos(), add_error());
    CHECK(add_default(stream, 16, 32, 48, 1000));
    add_set_device("sim:sm_90");
    CHECK(add(stream, 16, 32, 48, 1, 0));
    CHECK(add(stream, 16, 32, 48, 4096, 0));
    CHECK(add(stream, 16, 32, 40, 4096, 0));
    CHECK(add(stream, 16, 32, 40, 4096, 1));
    CHECK(add(stream, 16, 32, 48, 4096, 1));
    CHECK(add(stream, 16, 32, 48, 4096, 2));
    CHECK(add_with_grid(stream, 5, 6, 7, 16, 32, 40, 1000, 0));
    CHECK(add(NULL, 0, 0, 0, 0, 0));
    CHECK(add(NULL, 0, 0, 0, -1000, 0));
    add_set_device("tpu");
    CHECK(add(NULL, 0, 0, 0, 1000, 0));
    unload_add();
    CHECK(load_add());
    unload_add();
    unload_add();
    return 0;
}
"""


def test_launches_take_the_most_specific_variant(compiled, link, build, tmp_path):
    variants = {
        "*fp32, *fp32, *fp32, i32, 256": "cpu",
        "*fp32:16, *fp32:16, *fp32:16, i32:16, 256": "sm_80",
        "*fp32:16, *fp32:16, *fp32:16, i32:1, 256": "sm_80",
        "*fp32:16, *fp32:16, *fp32:16, i32:16, 1024": "sm_80",
    }
    headers = [compiled(ADD, signature=text, target=target)[1][0] for text, target in variants.items()]
    assert link(*headers, "-o", "build/add").code == 0
    (tmp_path / "build" / "library.c").write_text(STAND_IN)
    program = build(MAIN)
    pointers = "x_ptr *fp32 16 1, y_ptr *fp32 32 1, out_ptr *fp32"
    general = f"stream 7, {pointers} 48 1, n int"
    refused = "no variant of add_1024_warps4xstages3 fits the arguments: compile one without hints"
    expected = f"""\
2 algorithms
open
add_kernel cpu (4, 1, 1) {general} 1000
open
add_kernel sim:sm_90 (1, 1, 1) stream 7, {pointers} 48 1
open
add_kernel sim:sm_90 (16, 1, 1) {general} 4096
add_kernel sim:sm_90 (16, 1, 1) stream 7, {pointers} 40 1, n int 4096
1: {refused}
open
add_kernel sim:sm_90 (4, 1, 1) {general} 4096
1: algo_id of add is not from 0 to 1
add_kernel sim:sm_90 (5, 6, 7) stream 7, {pointers} 40 1, n int 1000
1: the grid of NAME has -2 programs along axis 0
719: refused
"""
    closed = "close\n" * 4
    found = re.sub(r"of add_[0-9a-f]{8}_\w+ has", "of NAME has", _run(program))
    assert found == expected + closed + "open\n" * 4 + closed
    # The variable sets the default of the device.
    found = _run(program, env={"TILEWRIGHT_DEVICE": "cuda:3"})
    assert found.splitlines()[2].startswith("add_kernel cuda:3 (4, 1, 1)")


def test_every_type_of_an_argument(compiled, build, tmp_path):
    """And a parameter with the name of the stream."""
    name, files = compiled(
        {
            "kernel_name": "every_type",
            "signature": "*i64, i1, u8, i16, u64, fp16, fp32, fp64, i32:1, 'x'",
            "grid": "(byte + (wide > 2)), sizeof(int32_t) * ONE, 1",
            "target": "cpu",
        }
    )
    assert name.endswith("_012345678c9")
    assert f"{name}(CUstream stream_, CUdeviceptr stream, int8_t flag, uint8_t byte" in files[0].read_text()
    (tmp_path / "build" / "library.c").write_text(STAND_IN)
    main = f'#include "{files[0].name}"\nint main(void) {{ return {name}(0, 0, 1, 2, -3, 4, 0.5f, 1.5f, 2.5); }}\n'
    assert _run(build(main)) == (
        "open\nevery_type cpu (3, 4, 1) stream 0, stream *i64 0 0, flag bool 1, byte int 2, word int -3, "
        "wide int 4, half real 0.5, real real 1.5, large real 2.5\n"
    )


def test_grids_are_computed_as_in_python(compiled, build, tmp_path):
    settings = {
        "kernel_name": "copy_rows",
        "signature": "*i32, i32, i64",
        "grid": "cdiv(rows, 64) % 5, min(columns // 2, 7) - rows // 100, next_power_of_2(rows)",
        "target": "cpu",
    }
    name, files = compiled(settings)
    (tmp_path / "build" / "library.c").write_text(STAND_IN)
    sizes = [(100, 9), (1000, 1), (-64, 3), (650, 16), ((1 << 31) - 1, (1 << 63) - 1)]
    calls = "".join(f'    printf("%d\\n", {name}(0, 0, {one}, {other}LL));\n' for one, other in sizes)
    main = f'#include <stdio.h>\n#include "{files[0].name}"\nint main(void)\n{{\n{calls}    return 0;\n}}\n'
    found = _run(build(main)).splitlines()
    grids = [
        (
            -(-rows // 64) % 5,
            min(columns // 2, 7) - rows // 100,
            1 << (rows - 1).bit_length() if rows > 0 else 0,
        )
        for rows, columns in sizes
    ]
    # An empty grid launches nothing; a negative one is an error.
    assert [line for line in found if line in ("0", "1")] == [str(int(min(grid) < 0)) for grid in grids]
    launched = [", ".join(map(str, grid)) for grid in grids if min(grid) > 0]
    assert len(launched) == 2
    assert re.findall(r"copy_rows cpu \((.*?)\)", "\n".join(found)) == launched


def test_a_descriptor_is_passed_in_parts(compiled, link, build, tmp_path):
    name, files = compiled(MULTIPLY, target="cpu")
    parts = {
        one: f"CUdeviceptr {one}, int32_t {one}_shape_0, int32_t {one}_shape_1, int64_t {one}_strides_0"
        for one in "abc"
    }
    assert (
        f"tw_result {name}(CUstream stream, {', '.join(parts.values())}, int32_t K);" in files[0].read_text()
    )
    assert link(files[0], "-o", "build/multiply").code == 0
    (tmp_path / "build" / "library.c").write_text(STAND_IN)
    arguments = "16, 70, 56, 64, 32, 56, 40, 40, 48, 129, 40, 40, 56"
    main = f'#include "multiply.h"\nint main(void) {{ return multiply_default(0, {arguments}); }}\n'
    passed = [
        f"{one}.base *{ty} {address} 1, {one}.shape[0] int {rows}, {one}.shape[1] int {columns}, "
        f"{one}.strides[0] int {stride}"
        for one, ty, address, rows, columns, stride in (
            ("a", "fp16", 16, 70, 56, 64),
            ("b", "fp16", 32, 56, 40, 40),
            ("c", "fp32", 48, 129, 40, 40),
        )
    ]
    assert _run(build(main)) == f"open\nmultiply cpu (3, 1, 1) stream 0, {', '.join(passed)}, K int 56\n"


def test_headers_beside_cuda_and_in_cpp(compiled, build, tmp_path):
    name, files = compiled(ADD, target="cpu")
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "cuda.h").write_text(
        "#pragma once\n#define CUDA_VERSION 12080\n"
        "typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_UNKNOWN = 999 } CUresult;\n"
        "typedef unsigned long long CUdeviceptr_v2;\ntypedef CUdeviceptr_v2 CUdeviceptr;\n"
        "typedef struct CUstream_st *CUstream;\n"
    )
    own, cuda = f'#include "{files[0].name}"\n', "#include <cuda.h>\n"
    languages = [("c", "c11")]
    languages += [("c++", "c++17")] if shutil.which("c++") else []
    for includes, result in ((own, "int"), (cuda + own, "CUresult"), (own + cuda + own, "int")):
        text = f"{includes}{result} launch(CUstream s, CUdeviceptr p) {{ return {name}(s, p, p, p, 3); }}\n"
        for language, standard in languages:
            source = folder / "user.txt"
            source.write_text(text)
            options = ("-x", language, f"-std={standard}", "-pedantic", "-fsyntax-only", "-I", folder)
            _cc(*options, "-I", files[0].parent, source)


PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "add.h"
#include "matmul.h"

/* Memory at a multiple of 16 bytes, with the content of a file. */
static CUdeviceptr read_file(const char *folder, const char *name, size_t size)
{
    char path[4096];
    void *memory = aligned_alloc(16, (size + 15) / 16 * 16);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || memory == NULL || fread(memory, 1, size, file) != size)
        exit(3);
    fclose(file);
    return (CUdeviceptr)(uintptr_t)memory;
}

static void write_file(const char *folder, const char *name, CUdeviceptr memory, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite((void *)(uintptr_t)memory, 1, size, file) != size || fclose(file) != 0)
        exit(3);
}

static void check(int code, const char *message)
{
    if (code != 0) {
        printf("%d: %s\n", code, message);
        exit(1);
    }
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    const char *folder = words[2];
    add_set_device(words[1]);
    matmul_set_device(words[1]);
    CUdeviceptr x = read_file(folder, "x", 4000), y = read_file(folder, "y", 4004);
    CUdeviceptr out = read_file(folder, "out", 4000), shifted = read_file(folder, "out", 4000);
    check(load_add(), add_error());
    check(add_default(NULL, x, y, out, 1000), add_error());
    /* No multiple of 16, so the other variant. */
    check(add(NULL, x, y + 4, shifted, 1000, 0), add_error());
    write_file(folder, "added", out, 4000);
    write_file(folder, "shifted", shifted, 4000);
    unload_add();
    CUdeviceptr a = read_file(folder, "a", 2 * 70 * 50), b = read_file(folder, "b", 2 * 50 * 40);
    CUdeviceptr c = read_file(folder, "c", 4 * 70 * 40);
    check(matmul_default(NULL, a, b, c, 70, 40, 50, 0.5f), matmul_error());
    write_file(folder, "multiplied", c, 4 * 70 * 40);
    /* A device that the lock has no code for. */
    matmul_set_device("sim:sm_80");
    if (matmul_default(NULL, a, b, c, 70, 40, 50, 0.5f) != 719 || strstr(matmul_error(), "TW0119") == NULL)
        return 4;
    return 0;
}
"""


@pytest.mark.parametrize("place", ["cpu", "sim:sm_90"])
def test_a_c_program_launches_kernels(place, compiled, link, build, tmp_path):
    library = c_library()
    general = "*fp32, *fp32, *fp32, i32, 256"
    headers = [compiled(ADD)[1][0], compiled(ADD, signature=general)[1][0]]
    assert link(*headers, "-o", "build/add").code == 0
    assert link(compiled(MATMUL)[1][0], "-o", "build/matmul").code == 0
    program = build(PROGRAM, library, f"-Wl,-rpath,{library.parent}")

    x, y = np.arange(1000, dtype=np.float32), np.arange(1001, dtype=np.float32) ** 2
    a, b = (
        np.random.default_rng(1).integers(-8, 8, shape).astype(np.float16) for shape in ((70, 50), (50, 40))
    )
    inputs = {"x": x, "y": y, "out": np.zeros_like(x), "a": a, "b": b, "c": np.zeros((70, 40), np.float32)}
    for name, array in inputs.items():
        array.tofile(tmp_path / name)
    _run(program, place, tmp_path)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "added", np.float32), x + y[:-1])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "shifted", np.float32), x + y[1:])
    product = np.fromfile(tmp_path / "multiplied", np.float32).reshape(70, 40)
    np.testing.assert_array_equal(product, a.astype(np.float32) @ b.astype(np.float32) * np.float32(0.5))


DESCRIPTORS = r"""
#include "multiply.h"

static int launch(CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, int64_t stride)
{
    return multiply_default(NULL, a, 70, 56, stride, b, 56, 40, 40, c, 70, 40, 40, 56);
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    const char *folder = words[2];
    multiply_set_device(words[1]);
    CUdeviceptr a = read_file(folder, "a", 2 * 70 * 64), b = read_file(folder, "b", 2 * 56 * 40);
    CUdeviceptr c = read_file(folder, "c", 4 * 70 * 40);
    check(launch(a, b, c, 64), multiply_error());
    write_file(folder, "multiplied", c, 4 * 70 * 40);
    /* Neither a pointer nor a stride that a tensor map takes. */
    if (launch(a + 8, b, c, 64) != 719 || strstr(multiply_error(), "a.base: expected *fp16, a multiple of 16") == NULL)
        return 4;
    if (launch(a, b, c, 60) != 719 || strstr(multiply_error(), "a.strides[0]: expected i64, a multiple of 8") == NULL)
        return 5;
    return 0;
}
"""


@pytest.mark.parametrize("place", ["cpu", "sim:sm_90"])
def test_a_c_program_passes_descriptors(place, compiled, link, build, tmp_path):
    """On a simulated GPU, the launch makes tensor maps."""
    library = c_library()
    _, files = compiled(MULTIPLY)
    with tarfile.open(fileobj=io.BytesIO(_packed(files[1]))) as archive:
        member = archive.extractfile("tilewright.lock")
        assert member is not None
        entries = {one["launches"]["target"]: one["launch"] for one in json.load(member)["entries"]}
    assert [one["base"] for one in entries["sm_90a"]["tensor_maps"]] == ["a.base", "b.base", "c.base"]
    assert link(files[0], "-o", "build/multiply").code == 0
    helpers = PROGRAM[PROGRAM.index("/* Memory") : PROGRAM.index("int main(")]
    includes = "".join(f"#include <{name}.h>\n" for name in ("stdio", "stdlib", "string"))
    program = build(
        f"{includes}#include <stdint.h>\n{DESCRIPTORS.replace('static int', helpers + 'static int', 1)}",
        library,
        f"-Wl,-rpath,{library.parent}",
    )

    generator = np.random.default_rng(1)
    a, b = (generator.integers(-8, 8, shape).astype(np.float16) for shape in ((70, 64), (56, 40)))
    a[:, 56:] = np.nan
    for name, array in {"a": a, "b": b, "c": np.zeros((70, 40), np.float32)}.items():
        array.tofile(tmp_path / name)
    _run(program, place, tmp_path)
    product = np.fromfile(tmp_path / "multiplied", np.float32).reshape(70, 40)
    np.testing.assert_array_equal(product, a[:, :56].astype(np.float32) @ b.astype(np.float32))


GPU_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "add.h"

typedef size_t (*taking)(char *, size_t);

int main(void)
{
    static char launches[4096];
    void *driver = dlopen(getenv("TILEWRIGHT_LIBCUDA"), RTLD_NOW);
    taking take = driver != NULL ? (taking)dlsym(driver, "tilewright_stub_take_launches") : NULL;
    CUstream stream = (CUstream)0x77;
    if (take == NULL)
        return 2;
    printf("%d\n", add_default(stream, 0x1000, 0x2000, 0x3000, 1000));
    add_set_device("cuda:1");
    printf("%d\n", add_with_grid(stream, 2, 3, 4, 0x1000, 0x2000, 0x3000, 1000, 0));
    add_set_device("cuda:7");
    printf("%d\n", add_default(stream, 0x1000, 0x2000, 0x3000, 1000));
    printf("%.40s\n", add_error());
    take(launches, sizeof launches - 1);
    printf("%s", launches);
    unload_add();
    return 0;
}
"""


def test_launches_on_gpus_pass_the_stream_and_the_arguments(stub, compiled, link, build):
    """Without a GPU: the stand-in for the driver records them."""
    library = c_library()
    assert link(compiled(ADD, target="cuda:90:32")[1][0], "-o", "build/add").code == 0
    program = build(GPU_PROGRAM, "-Wno-pedantic", library, f"-Wl,-rpath,{library.parent}", "-ldl")
    settings = {
        "TILEWRIGHT_LIBCUDA": str(stub),
        "TILEWRIGHT_STUB_CUDA": "capability=9.0,devices=2,record=1",
    }
    lines = _run(program, env=settings).splitlines()
    assert lines[:4] == ["0", "0", "719", "error[TW0109]: device 'cuda:7' is not av"]
    values = b"".join(number.to_bytes(8, "little") for number in (0x1000, 0x2000, 0x3000))
    parameters = (values + (1000).to_bytes(4, "little")).hex()
    launch = (
        "add_kernel grid={} block=[128, 1, 1] shared=0 stream=0x77 context={} attributes=[] parameters={}"
    )
    assert lines[4:] == [
        launch.format("[4, 1, 1]", "0x1000", parameters),
        launch.format("[2, 3, 4]", "0x2000", parameters),
    ]
