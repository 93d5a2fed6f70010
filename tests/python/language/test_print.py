"""The output of kernels while they run (``device_print``, ``print``) and at compile time (``static_print``)."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import DEVICE, ON_GPU, PROGRAMS
from helpers import module

import tilewright as triton
import tilewright.language as tl


def printed(capfd):
    """The output of kernels: a GPU sends it after the end of the launch."""
    if ON_GPU:
        torch.cuda.synchronize()
    return capfd.readouterr()


@triton.jit
def prints(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.device_print("VAL:", x)
    tl.device_print("both", x, y)
    print("n", n)
    tl.device_print("only 100%")
    tl.device_print("hex", x, n, hex=True)
    tl.device_print("", i[:, None] * 4 + tl.arange(0, 4)[None, :])


def expected(pid, x, y, n):
    """The lines of one program."""
    head = f"pid ({pid}, 0, 0)"
    idx = [f"{head} idx ({i:>2})" for i in range(len(x))]
    lines = [f"{at} VAL: {v}" for at, v in zip(idx, x, strict=True)]
    lines += [f"{at} both: (operand 0) {v}" for at, v in zip(idx, x, strict=True)]
    lines += [f"{at} both: (operand 1) {v:f}" for at, v in zip(idx, y, strict=True)]
    lines += [f"{head} idx () n: {n}", f"{head} only 100%"]
    lines += [f"{at} hex: (operand 0) 0x{v & 0xFF:02x}" for at, v in zip(idx, x, strict=True)]
    lines += [f"{head} idx () hex: (operand 1) 0x{n:08x}"]
    lines += [f"{head} idx ({i:>2}, {j}): {i * 4 + j}" for i in range(len(x)) for j in range(4)]
    return lines


def test_a_line_for_each_element(device, capfd):
    block, n = 16, 1234
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, block, dtype=np.int8)
    y = np.array([1.5, -0.25, 1e10, np.inf, -np.inf, *rng.normal(size=block - 5)], np.float32)
    prints[(2,)](torch.tensor(x).to(device), torch.tensor(y).to(device), n, BLOCK=block)
    if device == "cuda":
        torch.cuda.synchronize()
    found = printed(capfd).out.splitlines()
    both = [line for pid in range(2) for line in expected(pid, x.tolist(), y.tolist(), n)]
    assert sorted(found) == sorted(both)
    if DEVICE == "cpu":
        assert [line for line in found if line.startswith("pid (1")] == expected(1, x.tolist(), y.tolist(), n)


TYPES = ["int1", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
         "float32", "float64"]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype, device, capfd):
    kernel = module(
        f"@triton.jit\ndef k(x_ptr):\n    x = tl.load(x_ptr + tl.arange(0, 4)).to(tl.{dtype})\n"
        '    tl.device_print("x", x)\n    tl.device_print("x", x, hex=True)\n'
    ).k
    x = torch.tensor([0, 1, -2, 100]).to(device)
    kernel[(1,)](x)
    out = sorted(printed(capfd).out.splitlines())
    if dtype.startswith(("float", "bfloat")):
        values, texts = x.cpu().to(getattr(torch, dtype)), [f"{float(v):f}" for v in x]
        digits = values.element_size() * 2
        bits = {4: torch.int16, 8: torch.int32, 16: torch.int64}[digits]
        raw = [int(v) % (1 << digits * 4) for v in values.view(bits)]
    else:
        width = int(dtype.lstrip("uint"))
        numbers = [v != 0 for v in x.tolist()] if width == 1 else x.tolist()
        signed = dtype.startswith("int") and width > 1
        raw = [int(v) & ((1 << width) - 1) for v in numbers]
        texts = [str(v - (1 << width) if signed and v >> (width - 1) else v) for v in raw]
        digits = max(width, 8) // 4
    lines = [f"pid (0, 0, 0) idx ({i}) x: {text}" for i, text in enumerate(texts)]
    lines += [f"pid (0, 0, 0) idx ({i}) x: 0x{v:0{digits}x}" for i, v in enumerate(raw)]
    assert out == sorted(lines)


@triton.jit
def helper(x):
    print("in a helper:", x)


@triton.jit
def prints_in_loops(n):
    for i in range(n):
        if i % 2 == 1:
            helper(i * 10)


def test_in_control_flow(device, capfd):
    prints_in_loops[(1,)](5)
    assert printed(capfd).out == "".join(f"pid (0, 0, 0) idx () in a helper: {v}\n" for v in (10, 30))


@triton.jit
def prints_and_asserts(x_ptr, n):
    tl.device_print("tile", tl.arange(0, 5))
    tl.store(x_ptr, n)
    tl.device_assert(n < 3, "too many")
    tl.device_print("not reached")


@pytest.mark.skipif(ON_GPU, reason="a fault would end this process's work on the GPU")
def test_what_was_printed_before_a_fault_is_not_lost(device, capfd):
    x = torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match="too many"):
        prints_and_asserts[(1,)](x, 7, debug=True)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == [f"pid (0, 0, 0) idx ({i}) tile: {i}" for i in range(5)]


@pytest.mark.skipif(ON_GPU, reason="a GPU prints when the launch has ended")
def test_output_comes_in_order(device):
    text = (
        "import tilewright as triton, tilewright.language as tl, linecache\n"
        "from helpers import module\n"
        'k = module("@triton.jit\\ndef k(n):\\n    print(\\"n\\", n)\\n").k\n'
        "print('before')\nk[(1,)](7)\nprint('after')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd="tests/python/support", capture_output=True, text=True, check=True
    )
    assert done.stdout == "before\npid (0, 0, 0) idx () n: 7\nafter\n"


def test_a_pointer_and_a_tuple(device, capfd):
    kernel = module(
        "@triton.jit\ndef k(p, n):\n    print('p', p + tl.arange(0, 2))\n    print('t', (n, (n + 1, 2.5)))\n"
    ).k
    x = torch.zeros(4).to(device)
    kernel[(1,)](x, 3)
    out = printed(capfd).out.splitlines()
    addresses = [f"pid (0, 0, 0) idx ({i}) p: {x.data_ptr() + 4 * i:#x}" for i in range(2)]
    assert sorted(out[:2]) == sorted(addresses)
    texts = ["(operand 0) 3", "(operand 1) 4", "(operand 2) 2.500000"]
    assert out[2:] == [f"pid (0, 0, 0) idx () t: {text}" for text in texts]


def test_a_value_without_a_text():
    kernel = module("@triton.jit\ndef k(n):\n    print(n)\n").k
    with pytest.raises(triton.CompilationError, match=re.escape('print("x", x)')):
        kernel[(1,)](3)


# --- While the kernel is compiled ---


@triton.jit
def static_prints(x_ptr, n, N: tl.constexpr, f: tl.constexpr):
    i = tl.arange(0, N)
    tl.static_print(f"N={N}")
    tl.static_print("x", i, n, x_ptr, x_ptr + i, f, None, 1.5, "s", sep="|", end="!\n")
    tl.static_print((i, N, "s"), tl.float32, i.dtype, i.type, i.shape, x_ptr.dtype)


def test_static_print(device, capsys):
    static_prints[(1,)](torch.zeros(8).to(device), 17, N=8, f=True)
    assert capsys.readouterr().out.splitlines() == [
        "N=8",
        "x|int32[constexpr[8]]|int32[]|pointer<fp32>[]|pointer<fp32>[constexpr[8]]|True|None|1.5|s!",
        "(int32[constexpr[8]], 8, 's') fp32 int32 <[8], int32> (8,) pointer<fp32>",
    ]


# --- Users' programs ---


def run_program(name, device):
    """The lines that a program prints."""
    command = [sys.executable, "-m", "tilewright", "run", "--device", device, str(PROGRAMS / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the programs are not here")
class TestPrograms:
    """Programs that print."""

    def test_static_print(self, device):
        out = run_program("001_static_print.py", DEVICE)
        assert out[:2] == ["BLOCK_SIZE=8", "x int32[constexpr[8]]"]
        assert "[ 0,  2,  4,  6,  8, 10, 12, 14]" in out[2]

    @pytest.mark.parametrize(("name", "size"), [("001_device_print.py", 16), ("001_device_print_32.py", 32)])
    def test_device_print(self, name, size, device):
        out = run_program(name, DEVICE)
        lines = [f"pid (0, 0, 0) idx ({i:>2}) VAL: {2 * i}" for i in range(size)]
        assert sorted(out[:size]) == sorted(lines)
        assert out[size] == ""
