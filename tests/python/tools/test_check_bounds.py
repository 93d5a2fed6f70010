"""`tilewright check`: whether accesses are in bounds for every grid and size; counterexamples are shown and run."""

from __future__ import annotations

import re
import shlex

import pytest
import torch
from conftest import ON_GPU, ROOT

from tilewright import sanitizer

PROGRAM = """
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2)


@triton.jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, tl.load(x_ptr + index, mask=i < n), mask=i < n)
    clamped = tl.minimum(tl.maximum(index, 0), n - 1)
    tl.store(out_ptr + i, tl.load(x_ptr + clamped, mask=i < n), mask=i < n)


@triton.jit
def rows(x_ptr, out_ptr, M, N, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, mask=i < N, other=0.0)
    tl.store(out_ptr + row, tl.sum(x))


@triton.jit
def blocks(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (tl.program_id(0) * BLOCK, 0), (BLOCK, 16), (1, 0))
    d = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, 16])
    for j in range(0, tl.cdiv(N, 16)):
        d.store([tl.program_id(0) * BLOCK, j * 16], tl.load(p, boundary_check=(0, 1)))
        p = tl.advance(p, (0, 16))
    tl.store(out_ptr + tl.where(M * N > 5, 5, 0), 1.0)
    k = 0
    while k < N:
        tl.store(out_ptr + k, 2.0)
        k += 1


@triton.jit
def described(d, out_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    d.store([row, 0], d.load([row, 16]))
    tl.store(out_ptr + tl.program_id(0), 1.0)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    grid_n = tl.cdiv(N, BN)
    pid_m, pid_n = pid // grid_n, pid % grid_n
    m = (pid_m * BM + tl.arange(0, BM)) % M
    n = (pid_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a = a_ptr + m[:, None] * sa + k[None, :]
    b = b_ptr + k[:, None] * sb + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=k[None, :] < K - i * BK, other=0.0)
        y = tl.load(b, mask=k[:, None] < K - i * BK, other=0.0)
        acc += tl.dot(x, y)
        a += BK
        b += BK * sb
    m, n = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + m[:, None] * sc + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
"""

SCALE = ("::scale", "--signature", "*fp32,*fp32,i32,BLOCK=64", "--extent", "x_ptr=n", "--extent", "out_ptr=n")


@pytest.fixture
def check(run, script):
    path = script(PROGRAM)

    def check(kernel, *options):
        return run("-m", "tilewright", "check", f"{path}{kernel}", *options)

    return check


def test_a_counterexample_is_shown_and_confirmed(check):
    result = check(*SCALE)
    assert result.code == 1, result.out + result.err
    assert "load from `x_ptr`: in bounds for every size" in result.out
    assert "store to `out_ptr`: out of bounds for some sizes" in result.out
    assert "1 in bounds for every size, 1 out of bounds for some, 0 not decided" in result.out
    assert "error[TW0227]: `out_ptr` is accessed out of bounds for some sizes" in result.err
    assert "tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2)\n" in result.err
    assert "    ^^^" in result.err
    assert "with n = " in result.err
    assert "a run with these numbers on the CPU ends with" in result.err
    assert "panicked" not in result.err


def test_what_is_stated_decides(check):
    whole = check(*SCALE, "--assume", "n % BLOCK == 0", "--grid", "cdiv(n, BLOCK)")
    assert whole.code == 0, whole.out + whole.err
    assert "2 in bounds for every size, 0 out of bounds for some" in whole.out
    # A multiple of 16 is none of 64, and the example says so.
    sixteen = check(*SCALE[:2], "*fp32,*fp32,i32:16,BLOCK=64", *SCALE[3:], "--grid", "cdiv(n, BLOCK)")
    assert sixteen.code == 1
    assert "with n = 16" in sixteen.err


def test_data_and_clamps(check):
    options = ["--signature", "*fp32,*i32,*fp32,i32,BLOCK=64"]
    extents = [part for name in ("x_ptr", "index_ptr", "out_ptr") for part in ("--extent", f"{name}=n")]
    result = check("::gather", *options, *extents)
    assert result.code == 0, result.out + result.err
    lines = [line.split(": ", 1)[1] for line in result.out.splitlines()]
    assert sum("in bounds for every size" in line for line in lines[:-1]) == 4
    (undecided,) = [line for line in lines[:-1] if "not decided" in line]
    assert "it depends on data: `index` is read from memory, line 14" in undecided
    assert check("::gather", *options, *extents, "--strict").code == 1


def test_rows_with_a_stride(check):
    options = ["--signature", "*fp32,*fp32,i32,i32,i32,BLOCK=64", "--extent", "x_ptr=(M - 1) * stride + N"]
    options += ["--extent", "out_ptr=M"]
    good = check("::rows", *options, "--assume", "stride >= N", "--grid", "M")
    assert good.code == 0, good.out + good.err
    assert "2 in bounds for every size" in good.out
    every_grid = check("::rows", *options, "--assume", "stride >= N")
    assert every_grid.code == 1
    assert "2 out of bounds for some" in every_grid.out
    not_stated = check("::rows", *options[:4], "--assume", "stride >= N", "--grid", "M")
    assert "the extent of `out_ptr` is not stated: add --extent 'out_ptr=…'" in not_stated.out


def test_block_pointers_descriptors_and_loops(check):
    options = [
        "--signature",
        "*fp32,*fp32,i32,i32,BLOCK=16",
        "--extent",
        "x_ptr=M * N",
        "--extent",
        "out_ptr=M * N",
    ]
    result = check("::blocks", *options, "--assume", "M >= 1 and N >= 1")
    assert result.code == 0, result.out + result.err
    assert "4 in bounds for every size, 0 out of bounds for some, 0 not decided" in result.out
    fewer = check("::blocks", *options)
    assert fewer.code == 1
    assert "with M = " in fewer.err


def test_a_descriptor_of_the_host(check):
    """It says its own extent; the kernel's other tensors do not."""
    options = [
        "--signature",
        "tensordesc<fp32[16, 16]>,*fp32,BLOCK=16",
        "--extent",
        "out_ptr=cdiv(d.shape[0], BLOCK)",
    ]
    result = check("::described", *options, "--grid", "cdiv(d.shape[0], BLOCK)")
    assert result.code == 0, result.out + result.err
    assert "3 in bounds for every size" in result.out
    every_grid = check("::described", *options)
    assert every_grid.code == 1
    assert "not confirmed by a run: the kernel takes a tuple or a descriptor" in every_grid.err


def test_a_matrix_product(check):
    options = ["--signature", "*fp16,*fp16,*fp16,i32,i32,i32,i32,i32,i32,BM=32,BN=32,BK=32"]
    for name, extent in [("a_ptr", "(M-1)*sa+K"), ("b_ptr", "(K-1)*sb+N"), ("c_ptr", "(M-1)*sc+N")]:
        options += ["--extent", f"{name}={extent}"]
    options += ["--assume", "sa >= K and sb >= N and sc >= N and M >= 1 and N >= 1 and K >= 1"]
    result = check("::matmul", *options)
    assert result.code == 0, result.out + result.err
    assert "3 in bounds for every size" in result.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--extent", "y_ptr=n"], "the kernel has no tensor 'y_ptr'; it has x_ptr, out_ptr"),
        (["--extent", "n"], "an extent must be TENSOR=EXPRESSION, not 'n'"),
        (["--extent", "x_ptr=m"], "the kernel has no integer 'm'; it has n"),
        (["--extent", "x_ptr=n +"], "cannot parse 'n +': found the end"),
        (["--assume", "n"], "'n' compares nothing"),
        (["--assume", "n // n == 1"], "the divisor has to be a positive constant"),
        (["--grid", "1,2,3,4"], "a grid has 1, 2 or 3 extents"),
    ],
)
def test_statements_that_are_not_understood(options, words, check):
    result = check("::scale", *SCALE[1:3], *options)
    assert result.code == 2, result.out + result.err
    assert words in result.err


@pytest.mark.skipif(ON_GPU, reason="where the kernel is compiled for does not matter")
def test_from_python(module, device):
    kernel = module(PROGRAM[PROGRAM.index("@triton.jit") :]).scale
    x = torch.zeros(100, device=device)
    load, store = sanitizer.check_bounds(kernel, x, x, 100, BLOCK=64, extents={"x_ptr": "n", "out_ptr": "n"})
    by_access = {found.access: found for found in (load, store)}
    assert by_access["load from `x_ptr`"].verdict == "proved"
    refuted = by_access["store to `out_ptr`"]
    assert refuted.verdict == "refuted"
    assert "TW0227" in refuted.text
    assert refuted.line is not None
    with pytest.raises(ValueError, match="no integer 'm'"):
        sanitizer.check_bounds(kernel, x, x, 100, BLOCK=64, extents={"x_ptr": "m"})


def test_the_page_shows_what_the_command_prints(run, script, tmp_path):
    text = (ROOT / "docs" / "sanitizers.md").read_text()
    shown = re.search(
        r"```python file=scale.py\n(import triton.*?)```[^`]*```console\n\$ tilewright (check .*?)\n(.*?)```",
        text,
        re.S,
    )
    program, command, output = shown.groups()
    script(program, "scale.py")
    result = run("-m", "tilewright", *shlex.split(command), cwd=tmp_path)
    # The page wraps long lines.
    assert " ".join((result.out + result.err).split()) == " ".join(output.split())
