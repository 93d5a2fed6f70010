"""The simulator of a GPU as the device of programs: results, faults, what it counts."""

from __future__ import annotations

import re

import pytest

SCALE = """
import numpy as np
import tilewright as triton
import tilewright.language as tl

@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, 2 * x, mask=offsets < n)

x, out = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
"""

TARGETS = ("sim:sm_80", "sim:sm_90")


@pytest.fixture
def program(run, tmp_path):
    """Runs lines after ``SCALE`` with ``tilewright run`` and these options."""

    def start(lines: str, *options: str, **variables: str):
        path = tmp_path / "program.py"
        path.write_text(SCALE + lines)
        return run("-m", "tilewright", *(options or ("run",)), path, env=variables)

    return start


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_runs_on_it(program, target):
    lines = """
handle = scale[(2,)](x, out, 300, BLOCK=256)
assert (out == 2 * x).all()
handle[(1,)](out, x, 300)
assert (x[:256] == 2 * out[:256]).all() and (x[256:] == range(256, 300)).all()
print(handle.metadata.target, handle.metadata.shared, handle.n_spills, handle.n_regs > 0, list(handle.asm))
print(triton.runtime.driver.active.get_current_target())
"""
    chosen = program(lines, "run", "--device", target)
    target_tuple = f"GPUTarget(backend='cuda', arch={target[-2:]}, warp_size=32)"
    stages = "['ast', 'ir', 'opt', 'gpu', 'ptx']"
    assert chosen.out.splitlines() == [f"{target_tuple} 0 0 True {stages}", target_tuple], chosen.err
    assert program(lines, TILEWRIGHT_DEVICE=target).out == chosen.out


# Each kernel marks what its fault is about.
FAULTS = """
import mmap
import numpy as np
import tilewright as triton
import tilewright.language as tl

@triton.jit
def copy(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * stride, mask=i < n), mask=i < n)

@triton.jit
def both(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < m))

@triton.jit
def far(x_ptr, y_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * stride) + tl.load(y_ptr + i * stride))

@triton.jit
def walk(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    place = x_ptr + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(steps):
        total += tl.load(place)
        place += BLOCK
    tl.store(out_ptr + tl.arange(0, BLOCK), total)

@triton.jit
def fetch(p, i):
    return tl.load(p + i)

@triton.jit
def helped(x_ptr, out_ptr, i):
    tl.store(out_ptr, fetch(x_ptr, i))

@triton.jit
def promised(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    start = tl.multiple_of(tl.load(x_ptr), 16)
    tl.store(out_ptr + i, tl.load(x_ptr + start + i))

@triton.jit
def made_up(address, out_ptr):
    tl.store(out_ptr, tl.load(address.to(tl.int64).to(tl.pointer_type(tl.float32))))

def numbers(count, dtype=np.float32, offset=0):
    # In pages of its own, with nothing of ours around.
    return np.frombuffer(mmap.mmap(-1, 1 << 20), dtype, count, offset)

x, out = numbers(100), numbers(300)
try:
    CALL
except triton.TritonError as error:
    (found,) = error.diagnostics
    text = open(__file__).read().splitlines()[found.line - 1]
    print(found.code, found.message)
    print(text[found.column - 1 : found.end_column - 1])
    print(found.label)
    print(*found.notes[:-2], sep="\\n")
    print(found.hint)
"""
MASK = "mask the access, `tl.load(…, mask=…)`, where the tile extends past the end of the tensor"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("call", "message", "text", "label", "note", "hint"),
    [
        (
            "copy[(1,)](x, out, 300, 1, BLOCK=128)",
            "TW0201 load out of bounds of `x_ptr`",
            "tl.load(x_ptr + i * stride, mask=i < n)",
            "reads element 100 of `x_ptr`",
            "`x_ptr` has the elements 0 to 99 (400 bytes); the offset in elements is 100",
            MASK,
        ),
        (
            "copy[(1,)](numbers(102), numbers(512), 304, 1, BLOCK=512)",
            "TW0201 load out of bounds of `x_ptr`",
            "tl.load(x_ptr + i * stride, mask=i < n)",
            "reads element 102 of `x_ptr`",
            "`x_ptr` has the elements 0 to 101 (408 bytes); the offset in elements is 102",
            MASK,
        ),
        (
            "copy[(1,)](x, out, 300, 2**24, BLOCK=64)",
            "TW0201 load out of bounds of `x_ptr`",
            "tl.load(x_ptr + i * stride, mask=i < n)",
            "reads element 16777216 of `x_ptr`",
            "`x_ptr` has the elements 0 to 99 (400 bytes); the offset in elements is 16777216",
            MASK,
        ),
        (
            "copy[(3,)](numbers(400), out, 400, 1, BLOCK=128)",
            "TW0201 store out of bounds of `out_ptr`",
            "tl.store(out_ptr + i, tl.load(x_ptr + i * stride, mask=i < n), mask=i < n)",
            "writes element 300 of `out_ptr`",
            "`out_ptr` has the elements 0 to 299 (1200 bytes); the offset in elements is 300",
            MASK.replace("load", "store"),
        ),
        (
            "both[(1,)](x, numbers(50), out, 100, 60, BLOCK=128)",
            "TW0201 load out of bounds of `y_ptr`",
            "tl.load(y_ptr + i, mask=i < m)",
            "reads element 50 of `y_ptr`",
            "`y_ptr` has the elements 0 to 49 (200 bytes); the offset in elements is 50",
            MASK,
        ),
        (
            "far[(1,)](x, numbers(50), out, 2**24, BLOCK=32)",
            "TW0201 load outside of the memory of every argument",
            "tl.store(out_ptr + i, tl.load(x_ptr + i * stride) + tl.load(y_ptr + i * stride))",
            "reads at address 0x",
            "the line reads through `x_ptr` or `y_ptr`; the address is near none of them",
            MASK,
        ),
        (
            "walk[(1,)](x, out, 9, BLOCK=16)",
            "TW0201 load out of bounds of `x_ptr`",
            "tl.load(place)",
            "reads element 100 of `x_ptr`",
            "`x_ptr` has the elements 0 to 99 (400 bytes); the offset in elements is 100",
            MASK,
        ),
        (
            "helped[(1,)](x[50:], out, -51)",
            "TW0201 load out of bounds of `x_ptr`",
            "tl.load(p + i)",
            "reads element -51 of `x_ptr`",
            "`x_ptr` has the elements -50 to 49 (400 bytes); the offset in elements is -51",
            "mask the access, `tl.load(…, mask=…)`, where the offset is less than that of the first element",
        ),
        (
            "out.flags.writeable = False\n    copy[(1,)](x, out, 100, 1, BLOCK=128)",
            "TW0201 store to `out_ptr`, which may only be read",
            "tl.store(out_ptr + i, tl.load(x_ptr + i * stride, mask=i < n), mask=i < n)",
            "writes here",
            "the memory of `out_ptr` is read-only: a numpy array that is not writeable, or a shared slice of Rust",
            "pass memory that may be written: `&mut` in Rust, `array.copy()` in Python",
        ),
        (
            "made_up[(1,)](2**40, out)",
            "TW0201 load outside of the memory of every argument",
            "tl.load(address.to(tl.int64).to(tl.pointer_type(tl.float32)))",
            "reads at address 0x10000000000",
            "the pointer was cast from an integer, or derived from several arguments",
            "derive the pointer from the argument whose memory it points into",
        ),
        (
            "made_up[(1,)](2**40 + 1, out)",
            "TW0201 load outside of the memory of every argument",
            "tl.load(address.to(tl.int64).to(tl.pointer_type(tl.float32)))",
            "reads at address 0x10000000001",
            "the pointer was cast from an integer, or derived from several arguments",
            "derive the pointer from the argument whose memory it points into",
        ),
        (
            "made_up[(1,)](0, out)",
            "TW0201 load through a null pointer",
            "tl.load(address.to(tl.int64).to(tl.pointer_type(tl.float32)))",
            "reads at address 0x0",
            "the pointer was cast from an integer, or derived from several arguments",
            "derive the pointer from the argument whose memory it points into",
        ),
        (
            "x = numbers(4000, np.int32)\n    x[0] = 5\n    promised[(1,)](x, numbers(1024, np.int32), BLOCK=1024)",
            "TW0207 misaligned load of `x_ptr`",
            "tl.load(x_ptr + start + i)",
            "reads 16 bytes at element 5 of `x_ptr`",
            "the address, 0x, is no multiple of 16",
            "the kernel computes the address: check the promises of `tl.multiple_of` and `tl.max_contiguous`, and "
            "casts to pointers of wider types",
        ),
        (
            "copy[(1,)](numbers(100, offset=1), out, 100, 1, BLOCK=128)",
            "TW0207 misaligned load of `x_ptr`",
            "tl.load(x_ptr + i * stride, mask=i < n)",
            "reads 4 bytes at element 0 of `x_ptr`",
            "the address, 0x, is no multiple of 4",
            "pass memory that begins at a multiple of 4 bytes, as a copy of the array does",
        ),
    ],
    ids=[
        "load",
        "vector",
        "far",
        "store",
        "one of two",
        "none of two",
        "carried",
        "inlined",
        "read only",
        "integer",
        "odd integer",
        "null",
        "promise",
        "array",
    ],
)
def test_a_fault_names_argument_and_access(run, script, target, call, message, text, label, note, hint):
    done = run(script(FAULTS.replace("CALL", call)), env={"TILEWRIGHT_DEVICE": target})
    # The system chooses the addresses of the arrays.
    shown = re.sub(r"0x7[0-9a-f]{11}", "0x", done.out)
    assert shown.splitlines() == [message, text, label, note, hint], done.err


def test_a_fault_names_its_warp_and_the_line_of_the_ptx(program):
    done = program(
        """
try:
    scale[(2,)](x, out, 301, BLOCK=256)
except IndexError as error:
    print(error.code, type(error).__name__, error.diagnostics[0].line, *error.diagnostics[0].notes, sep="\\n")
""",
        TILEWRIGHT_DEVICE="sim:sm_80",
    )
    code, name, line, _, program_id, ptx = done.out.splitlines()
    assert (code, name, line) == ("TW0201", "OutOfBoundsError", "9")
    assert program_id.startswith("in program (1, 0, 0), warp ")
    assert ptx.startswith("at line ")
    assert "ld.global" in ptx


LOOPS = """
import torch
import tilewright as triton
import tilewright.language as tl

@triton.jit
def total(n, step):
    sum = 0
    for i in range(0, n, step):
        sum += i
    return sum

@triton.jit
def endless(out_ptr, n, step):
    tl.store(out_ptr, total(n, step))

@triton.jit
def trapped(out_ptr, n, step):
    for i in range(0, n, step): tl.inline_asm_elementwise("trap; mov.u32 $0, $1;", "=r,r", [i], tl.int32, False, 1)

for kernel, step in ((endless, 0), (trapped, 1)):
    out = torch.zeros(1, dtype=torch.int32)
    try:
        kernel[(1,)](out, 5, step)
    except RuntimeError as error:
        (found,) = error.diagnostics
        lines = [line.strip() for line in open(__file__)]
        places = [found.line, *(label[1] for label in found.labels)]
        print(found.code, found.message, *(lines[place - 1] for place in places), sep="; ")
"""


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80", "sim:sm_90"])
def test_a_loop_with_a_step_of_zero_is_named(run, tmp_path, target):
    script = tmp_path / "loops.py"
    script.write_text(LOOPS)
    done = run(script, env={"TILEWRIGHT_DEVICE": target})
    endless, trapped = done.out.splitlines()
    where = "for i in range(0, n, step):; tl.store(out_ptr, total(n, step))"
    assert endless == f"TW0205; the step of a loop is zero; {where}"
    assert trapped.startswith("TW0207; ")
    assert "loop" not in trapped.split(";")[1]


def test_what_it_counts_is_a_table(program, tmp_path):
    lines = "for _ in range(3):\n    scale[(2,)](x, out, 300, BLOCK=256)\n"
    done = program(lines, "sim", "report")
    assert (done.code, done.out) == (0, "")
    head, *rest = done.err.splitlines()
    form = "scale(x_ptr: *fp32, out_ptr: *fp32, n: int32, BLOCK=256)"
    assert head == f"3 launches together of {form}: 6 blocks of 128 threads, 0 bytes of shared memory"
    # Each launch reads 300 numbers and writes as many.
    assert any(line.endswith("; 3600 bytes read, 3600 written") for line in rest), done.err
    assert any("program.py:9: ld.global" in line for line in rest), done.err
    path = tmp_path / "report"
    assert program(lines, "run", "--device=sim:sm_80", f"--report={path}").err == ""
    assert path.read_text().startswith(head)
    assert (
        program(lines, "run", "--device=cpu", "--report").err == "no kernel was launched on the simulator\n"
    )


TRANSPOSE = """
import torch, triton, triton.language as tl

@triton.jit
def transpose(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x_ptr + row[:, None] * n + column[None, :])
    tl.store(o_ptr + column[:, None] * n + row[None, :], tl.trans(tile))

for dtype in (torch.float32, torch.float16, torch.uint8):
    for block in (16, 32, 64)[dtype == torch.uint8 :]:
        for warps in (1, 2, 4, 8):
            x = torch.arange(64 * 64).reshape(64, 64).to(dtype)
            o = torch.empty_like(x)
            transpose[(64 // block, 64 // block)](x, o, 64, block, num_warps=warps)
            assert torch.equal(o, x.T)
"""


def test_transposed_copies_move_each_sector_once(run, tmp_path):
    script = tmp_path / "transpose.py"
    script.write_text(TRANSPOSE)
    done = run("-m", "tilewright", "sim", "report", str(script))
    assert done.code == 0, done.err
    found = re.findall(r"(\d+) sectors, (\d+) if coalesced", done.err)
    assert len(found) == 32, done.err
    assert all(sectors == coalesced for sectors, coalesced in found), done.err


def test_a_helper_keeps_its_line(run, tmp_path):
    script = tmp_path / "helper.py"
    script.write_text(
        """import torch, triton, triton.language as tl

@triton.jit
def helper(p, i, limit):
    tl.device_assert(i < limit, "far")
    return tl.load(p + i)

@triton.jit
def kernel(p, o, limit, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, helper(p, i, limit) + tl.sum(tl.where(i < 3, 1.0, 0.0)))

import sys
x = torch.zeros(64)
kernel[(1,)](x, torch.empty(64), int(sys.argv[1]), 64, debug=True)
"""
    )
    done = run("-m", "tilewright", "sim", "report", str(script), "64")
    assert done.code == 0, done.err
    assert f"{script}:6: ld.global" in done.err, done.err
    assert re.search(rf"{script}:11: .*st\.global", done.err), done.err
    assert "standard.py" not in done.err, "the library's code counts for the line that calls it"
    done = run("-m", "tilewright", "run", "--device=sim:sm_90", str(script), "40")
    places = re.findall(r"(?:-->|:::) (.*)", done.err)
    assert places == [f"{script}:5:5", f"{script}:11:21"], done.err
    assert "called from here" in done.err


def test_the_stages_are_dumped(program, tmp_path):
    folder = tmp_path / "dump"
    variables = {
        "TILEWRIGHT_DUMP": "gpu,ptx",
        "TILEWRIGHT_DUMP_DIR": str(folder),
        "TILEWRIGHT_DEVICE": "sim:sm_90",
    }
    assert program("scale[(1,)](x, out, 9, BLOCK=16)\n", **variables).code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["scale-0.gpu", "scale-0.ptx"]
    assert ".target sm_90a" in (folder / "scale-0.ptx").read_text()


def test_ctrl_c_ends_a_launch(program):
    lines = """
import _thread, threading

@triton.jit
def spin(x_ptr):
    while tl.load(x_ptr) == 0:
        pass

try:
    # Wherever the signal comes, it is in here.
    threading.Timer(1.0, _thread.interrupt_main).start()
    spin[(1,)](out)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert program(lines, TILEWRIGHT_DEVICE="sim:sm_80").out == "interrupted\n"
