"""The simulator of a GPU as the device of programs: results, faults, what it counts."""

from __future__ import annotations

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
    """Runs lines behind ``SCALE`` with ``tilewright run`` and these options."""

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


def test_a_fault_names_the_line_of_the_kernel_and_of_the_ptx(program):
    done = program(
        """
try:
    scale[(2,)](x, out, 301, BLOCK=256)
except IndexError as error:
    print(error.code, type(error).__name__, error.diagnostics[0].line, *error.diagnostics[0].notes, sep="\\n")
""",
        TILEWRIGHT_DEVICE="sim:sm_80",
    )
    code, name, line, place, program_id, ptx = done.out.splitlines()
    assert (code, name, line) == ("TW0201", "OutOfBoundsError", "9")
    assert place == "it reaches 4 bytes beyond the memory of `x_ptr`"
    assert program_id.startswith("in program (1, 0, 0), warp ")
    assert ptx.startswith("at line ")
    assert "ld.global" in ptx


def test_what_it_counts_is_a_table(program, tmp_path):
    lines = "for _ in range(3):\n    scale[(2,)](x, out, 300, BLOCK=256)\n"
    done = program(lines, "sim", "report")
    assert (done.code, done.out) == (0, "")
    head, *rest = done.err.splitlines()
    assert head == "3 launches together of scale: 6 blocks of 128 threads, 0 bytes of shared memory"
    # Each launch reads 300 numbers and writes as many.
    assert any(line.endswith("; 3600 bytes read, 3600 written") for line in rest), done.err
    assert any("program.py:9): " in line and "ld.global" in line for line in rest), done.err
    path = tmp_path / "report"
    assert program(lines, "run", "--device=sim:sm_80", f"--report={path}").err == ""
    assert path.read_text().startswith(head)
    assert (
        program(lines, "run", "--device=cpu", "--report").err == "no kernel was launched on the simulator\n"
    )


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

threading.Timer(1.0, _thread.interrupt_main).start()
try:
    spin[(1,)](out)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert program(lines, TILEWRIGHT_DEVICE="sim:sm_80").out == "interrupted\n"
