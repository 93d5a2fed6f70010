"""Options of a launch that concern the code of a GPU: refused, warned of, or accepted in silence."""

from __future__ import annotations

import pytest

PROGRAM = """
import sys, warnings
import numpy as np
import tilewright as triton
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget

def make():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)
    return kernel

x = np.arange(100, dtype=np.float32)

def launch(kernel, **options):
    out = np.zeros(100, np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            kernel[(1,)](x, out, 100, BLOCK=128, **options)
            assert (out == x + 1).all()
        except triton.TritonError as error:
            return f"{error.code} {error.diagnostics[0].message} | {'; '.join(error.diagnostics[0].notes)}"
    return " ".join(str(one.message).splitlines()[0] for one in caught) or "nothing"
"""

GPUS = ("sim:sm_80", "sim:sm_90")

SILENT = [
    {"num_ctas": 1},
    {"warp_size": 32},
    {"enable_fp_fusion": True},
    {"enable_fp_fusion": False},
    {"extern_libs": {"libdevice": "/usr/lib/libdevice.10.bc"}},
    {"waves_per_eu": 2, "matrix_instr_nonkdim": 16, "kpack": 2, "allow_flush_denorm": True},
    {"schedule_hint": "x", "llvm_fn_attrs": "y", "wgp_cu_mode": "cu"},
    {"ptx_version": None, "maxnreg": None, "arch": None},
    {"launch_pdl": True, "launch_cooperative_grid": True},
]

WITHOUT_EFFECT = [
    ("num_ctas", 2),
    ("ptx_version", 88),
    ("min_shared_mem", 1024),
    ("clc", True),
    ("sched4reg", True),
]


@pytest.fixture
def program(run, tmp_path):
    def start(lines: str, target: str):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + lines)
        done = run(path, env={"TILEWRIGHT_DEVICE": target})
        assert done.code == 0, done.err
        return done.out.splitlines()

    return start


def test_the_cpu_takes_what_gpus_take(program):
    options = [
        *SILENT,
        *({name: value} for name, value in WITHOUT_EFFECT),
        {"warp_size": 64, "arch": "gfx942"},
    ]
    options += [{"num_warps": 64}]
    lines = program(f"for options in {options!r}:\n    print(launch(make(), **options))\n", "cpu")
    assert lines == ["nothing"] * len(options)


@pytest.mark.parametrize("target", GPUS)
def test_what_has_no_effect_is_warned_of_once_a_kernel(program, target):
    lines = program(
        f"""
for options in {SILENT!r}:
    print(launch(make(), **options))
for name, value in {WITHOUT_EFFECT!r}:
    kernel = make()
    print(launch(kernel, **{{name: value}}))
    print(launch(kernel, **{{name: value}}), launch(kernel, num_warps=8, **{{name: value}}))
kernel = make()
print(launch(kernel, num_ctas=2, clc=True))
""",
        target,
    )
    assert lines[: len(SILENT)] == ["nothing"] * len(SILENT)
    warned = lines[len(SILENT) :]

    def warning(name, value):
        return f"warning[TW0115]: the launch option {name}={value} of kernel 'kernel' has no effect"

    assert warned[:-1:2] == [warning(*option) for option in WITHOUT_EFFECT]
    assert set(warned[1:-1:2]) == {"nothing nothing"}
    assert warned[-1] == f"{warning('clc', True)} {warning('num_ctas', 2)}"


def test_a_warning_points_at_the_launch_and_the_kernel(run, script):
    path = script(
        """
        import numpy as np
        import tilewright as triton

        @triton.jit
        def kernel(x_ptr):
            pass

        x = np.zeros(4)
        kernel[(1,)](x, num_ctas=4)
        kernel[(1,)](x, num_ctas=4)
        """
    )
    done = run(path, env={"TILEWRIGHT_DEVICE": "sim:sm_90"})
    assert done.err == (
        f"{path}:9: LaunchWarning: warning[TW0115]: the launch option num_ctas=4 of kernel 'kernel' has no effect\n"
        f" --> {path}:5:5\n"
        "  |\n"
        "5 | def kernel(x_ptr):\n"
        "  |     ^^^^^^ this kernel\n"
        "  |\n"
        "  = note: num_ctas: blocks in a cluster; not available yet\n"
        "  = help: a launch without it does the same: each program is one block, in no cluster\n"
        "  kernel[(1,)](x, num_ctas=4)\n"
    )


def test_options_of_the_code_are_in_the_hash_and_those_of_the_launch_are_not(program):
    options = [
        {},
        {"enable_fp_fusion": False},
        {"maxnreg": 64},
        {"num_stages": 2},
        {"num_warps": 8},
        {"debug": True},
    ]
    lines = program(
        f"""
def hashed(**options):
    return make().warmup(x, x, 100, BLOCK=128, grid=(1,), **options).hash

print(len({{hashed(**options) for options in {options!r}}}))
print(hashed() == hashed(num_warps=4, maxnreg=None) == hashed(launch_pdl=True))
""",
        "sim:sm_90",
    )
    assert lines == [str(len(options)), "True"]


@pytest.mark.parametrize("target", GPUS)
def test_what_contradicts_the_target_is_refused(program, target):
    capability = target[-2:]
    other = {"80": "90", "90": "80"}[capability]
    good = [f"sm{capability}", f"sm_{capability}", f"sm_{capability}a", capability, int(capability)]
    bad = [f"sm{other}", int(other), f"gfx{capability}", "hopper", ""]
    lines = program(
        f"""
for arch in {good!r}:
    print(launch(make(), arch=arch))
for arch in {bad!r}:
    print(launch(make(), arch=arch))
for options in [dict(warp_size=64), dict(num_warps=64)]:
    print(launch(make(), **options))
source = make().warmup(x, x, 100, BLOCK=128, grid=(1,)).src
try:
    triton.compile(source, target=GPUTarget("cuda", {other}, 32), options=dict(arch="sm{capability}"))
except triton.TritonError as error:
    print(error.code)
print(triton.compile(source, target=GPUTarget("cuda", {other}, 32), options=dict(arch="sm{other}")).metadata.arch)
""",
        target,
    )
    name = {"80": "sm_80", "90": "sm_90a"}[capability]
    shown = [f"'{arch}'" if isinstance(arch, str) else arch for arch in bad]
    threads = "a warp has 32 threads, and a block at most 1024"
    assert lines == [
        *["nothing"] * len(good),
        *(
            f"TW0108 the launch option arch is {arch}, for {name} | a kernel is compiled for its target; expected "
            f"'sm{capability}'"
            for arch in shown
        ),
        f"TW0108 the launch option warp_size is 64, for {name} | expected 32: {threads}",
        f"TW0108 the launch option num_warps is 64, for {name} | expected a power of two from 1 to 32: {threads}",
        "TW0108",
        f"sm{other}",
    ]
