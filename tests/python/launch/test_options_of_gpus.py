"""Options of a launch that concern the code of a GPU: refused, warned of, or accepted in silence."""

from __future__ import annotations

import warnings

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
            found = error.diagnostics[0]
            hint = f" | {found.hint}" if found.hint and found.hint.startswith("use ") else ""
            return f"{error.code} {found.message} | {'; '.join(found.notes)}{hint}"
    return " ".join(str(one.message).splitlines()[0] for one in caught) or "nothing"
"""

GPUS = ("sim:sm_80", "sim:sm_90")

SILENT = [
    {"num_ctas": 1},
    {"num_ctas": 2},
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
    ("ptx_version", 88),
    ("min_shared_mem", 1024),
    ("clc", True),
    ("sched4reg", True),
    # Options of releases 2.1 to 3.3.
    ("cluster_dims", (1, 1, 1)),
    ("enable_persistent", True),
    ("enable_warp_specialization", True),
    ("num_buffers_warp_spec", 3),
    ("num_consumer_groups", 2),
    ("optimize_epilogue", True),
    ("reg_dec_producer", 40),
    ("reg_inc_consumer", 240),
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
print(launch(kernel, min_shared_mem=64, clc=True))
""",
        target,
    )
    assert lines[: len(SILENT)] == ["nothing"] * len(SILENT)
    warned = lines[len(SILENT) :]

    def warning(name, value):
        return f"warning[TW0115]: the launch option {name}={value} of kernel 'kernel' has no effect"

    assert warned[:-1:2] == [warning(*option) for option in WITHOUT_EFFECT]
    assert set(warned[1:-1:2]) == {"nothing nothing"}
    assert warned[-1] == f"{warning('clc', True)} {warning('min_shared_mem', 64)}"


def test_a_warning_of_an_option_that_is_an_error_is_raised_again(run, script):
    path = script(
        """
        import warnings
        import numpy as np
        import tilewright as triton

        @triton.jit
        def kernel(x_ptr):
            pass

        warnings.simplefilter("error", triton.LaunchWarning)
        for _ in range(2):
            try:
                kernel[(1,)](np.zeros(4), min_shared_mem=4096)
            except triton.LaunchWarning:
                print("raised")
        """
    )
    done = run(path, env={"TILEWRIGHT_DEVICE": "sim:sm_90"})
    assert done.out == "raised\nraised\n", done.err


def test_a_warning_points_at_the_launch_and_the_kernel(run, script):
    path = script(
        """
        import numpy as np
        import tilewright as triton

        @triton.jit
        def kernel(x_ptr):
            pass

        x = np.zeros(4)
        kernel[(1,)](x, min_shared_mem=4096)
        kernel[(1,)](x, min_shared_mem=4096)
        """
    )
    done = run(path, env={"TILEWRIGHT_DEVICE": "sim:sm_90"})
    assert done.err == (
        f"{path}:9: LaunchWarning: warning[TW0115]: "
        "the launch option min_shared_mem=4096 of kernel 'kernel' has no effect\n"
        f" --> {path}:5:5\n"
        "  |\n"
        "5 | def kernel(x_ptr):\n"
        "  |     ^^^^^^ this kernel\n"
        "  |\n"
        "  = note: min_shared_mem: minimum bytes of shared memory; the code does not depend on it\n"
        "  = help: a launch without it does the same: a block gets the shared memory that it needs\n"
        "  kernel[(1,)](x, min_shared_mem=4096)\n"
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
for options in [
    dict(warp_size=64),
    dict(num_warps=64),
    dict(num_warps=3),
    dict(num_ctas=3),
    dict(num_ctas=32),
    dict(num_stages=65),
]:
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
            f"'{name}'"
            for arch in shown
        ),
        f"TW0108 the launch option warp_size is 64, for {name} | expected 32: {threads}",
        f"TW0108 the launch option num_warps is 64, for {name} | expected a power of two from 1 to 32: {threads} "
        "| use 32",
        "TW0108 the launch option num_warps is 3 | found 3 of type int, expected a power of two | use 2 or 4",
        "TW0108 the launch option num_ctas is 3 | found 3 of type int, expected a power of two | use 2 or 4",
        f"TW0108 the launch option num_ctas is 32, for {name} | expected a power of two from 1 to 16: a cluster has at "
        "most 16 blocks | use 16",
        f"TW0108 the launch option num_stages is 65, for {name} | expected an int from 0 to 64: each stage takes "
        "shared memory",
        "TW0108",
        f"sm{other}",
    ]


CLUSTER = """
import torch

@triton.jit
def product(a_ptr, b_ptr, c_ptr, num_ctas: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    sums = tl.zeros([M, N], tl.float32)
    for k in range(0, K, 16):
        inner = k + tl.arange(0, 16)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
        sums = tl.dot(a, b, sums)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sums * num_ctas)

configs = [triton.Config({}, num_ctas=2, num_warps=4), triton.Config({}, num_ctas=4, num_warps=2)]

@triton.autotune(configs, key=[], warmup=1, rep=1)
@triton.jit
def tuned(x_ptr, num_ctas: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, 64), num_ctas * 10)
"""


def test_a_program_for_a_cluster_is_divided_or_run_by_one_block(module, device):
    torch = pytest.importorskip("torch")
    names = module(CLUSTER)
    torch.manual_seed(0)
    a, b = (torch.randn(size, device=device).to(torch.float16) for size in ((32, 32), (32, 64)))
    c = torch.zeros(32, 64, device=device)
    for ctas, warps in ((2, 4), (16, 1), (4, 8), (2, 1)):
        c.zero_()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = names.product[(1,)](a, b, c, M=32, N=64, K=32, num_ctas=ctas, num_warps=warps)
        torch.testing.assert_close(c, ctas * (a.float() @ b.float()), rtol=1e-3, atol=1e-2 * ctas)
        target = made.metadata.target
        is_gpu = target.backend != "cpu"
        is_divided = is_gpu and target.arch >= 90 and ctas <= 8
        is_one = is_gpu and not is_divided
        assert made.metadata.num_warps == (max(warps, min(8, warps * ctas)) if is_one else warps)
        blocks = ctas if is_divided else 1
        assert made.metadata.num_ctas == made.num_ctas == blocks
        assert made.metadata.cluster_dims == (blocks, 1, 1)
    x = torch.zeros(64, dtype=torch.int32, device=device)
    names.tuned[(1,)](x)
    assert x.tolist() == [10 * names.tuned.best_config.num_ctas] * 64
