"""Every name that Triton 3.9 exports, and that torch takes from it, is there; ``public_names.txt`` lists them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch
from conftest import ROOT

import tilewright as triton
from tilewright import _environment, _native, knobs

NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()

ANSWERED = re.compile(
    r"triton\.(runtime\.build\.(?!platform_key)|tools\.(build_extern|gsan)\."
    r"|tools\.link\.make_|testing\.(cublas|cuda_memcheck)$|_C\.libtriton\.ir\.(builder|pass_manager)$|_C\.libtriton\.nvidia\.device_malloc$"
    r"|backends\.nvidia\.compiler\.get_llvm_flags$|compiler\.code_generator\.(CodeGenerator|ast_to_ttir)$"
    r"|language\.extra\.cuda\.utils\.convert_custom_float8$|language\.semantic\.TritonSemantic$)"
)
"""Names that have a replacement, which their error names."""


def resolve(name: str) -> object:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["tilewright", *parts[1:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_every_name_is_there():
    missing, answered = [], []
    for name in NAMES:
        try:
            found = resolve(name)
        except AttributeError as error:
            missing.append(f"{name}: {error}")
            continue
        if isinstance(found, _native.Missing):
            answered.append(name)
    assert missing == []
    assert answered == [name for name in NAMES if ANSWERED.match(name)]


def test_replaced_names_say_by_what():
    for name in filter(ANSWERED.match, NAMES):
        with pytest.raises(NotImplementedError) as raised:
            resolve(name)()
        assert " = help: " in str(raised.value), name
        assert isinstance(raised.value, triton.TritonError)
        assert raised.value.code == "TW0117", name


@pytest.mark.parametrize("name", ["build_extern", "gsan"])
def test_replaced_commands_say_by_what(name, run):
    """And do not end well without having done anything."""
    own = run("-m", f"tilewright.tools.{name}", "x.py")
    as_triton = run("-m", "tilewright", "run", "-m", f"triton.tools.{name}", "x.py")
    for done in (own, as_triton):
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"tilewright: python -m triton.tools.{name} is no command of tilewright: ")


def test_variables_are_followed_or_answered(run):
    """Those of the knobs and the documentation: each is read by something, or a line says that it has no effect."""
    for name in _environment.WITHOUT_EFFECT:
        assert name == name.upper()
    environment = {"MLIR_ENABLE_DUMP": "1", "TRITON_ALWAYS_COMPILE": "1", "TRITON_DISABLE_LINE_INFO": "0"}
    done = run("-c", "import tilewright, tilewright.language", env=environment)
    lines = sorted(done.err.splitlines())
    assert [line.split(":")[1] for line in lines] == [
        " MLIR_ENABLE_DUMP is set and has no effect",
        " TRITON_ALWAYS_COMPILE is set and has no effect",
    ]


def test_wrong_names_and_values_of_own_variables_are_answered(run, tmp_path):
    environment = {
        "TILEWRIGHT_DEVISE": "cpu",
        "TILEWRIGHT_FOO": "1",
        "TILEWRIGHT_MACHINE_CODE": "maybe",
        "TILEWRIGHT_DEBUG": "yes",
        "TILEWRIGHT_PORTABLE": "off",
        "TILEWRIGHT_DUMP": "irr",
        "TILEWRIGHT_SEEDS": "3",
        "TILEWRIGHT_AS_TRITON": "triton,vis",
        "TRITON_INTERPRET": "2",
        "TRITON_DEBUG": "True",
    }
    done = run("-c", "import tilewright, tilewright.language", env=environment, cwd=tmp_path)
    assert done.err.splitlines() == [
        "tilewright: TILEWRIGHT_AS_TRITON is 'triton,vis', expected 0, 1, or some of triton,viz,cuda",
        "tilewright: TILEWRIGHT_DEVISE is no variable of tilewright; did you mean 'TILEWRIGHT_DEVICE'?",
        "tilewright: TILEWRIGHT_DUMP is 'irr', which is no stage, so every stage goes to this folder; "
        "did you mean 'ir'?",
        "tilewright: TILEWRIGHT_FOO is no variable of tilewright",
        "tilewright: TILEWRIGHT_MACHINE_CODE is 'maybe', expected 0 or 1: it counts as 0",
        "tilewright: TRITON_INTERPRET is '2', expected 0 or 1: it counts as 0",
    ]
    done = run("-c", "import tilewright", env={"TILEWRIGHT_DUMP": "sass"}, cwd=tmp_path)
    assert done.err == (
        "tilewright: TILEWRIGHT_DUMP is 'sass', which is no stage of a launch, so every stage goes to this folder; "
        "`tilewright explain` shows the SASS\n"
    )
    (tmp_path / "irr").mkdir()
    for value in ("irr", "stages", "./irr", "ir,opt", "all", "1", "0", ""):
        done = run("-c", "import tilewright", env={"TILEWRIGHT_DUMP": value}, cwd=tmp_path)
        assert done.err == "", value


@pytest.mark.parametrize(
    ("stages", "device", "missing"),
    [
        ("ptx", "cpu", "no stage ptx: they have ast, ir, opt, cpu, asm; TILEWRIGHT_DEVICE=sim:sm_90"),
        ("gpu,ir,ptx", "cpu", "none of the stages gpu, ptx: "),
        ("asm,gpu", "sim:sm_90", "no stage asm: they have ast, ir, opt, gpu, ptx\n"),
        ("opt", "cpu", None),
        ("all", "cpu", None),
        ("./ptx", "cpu", None),
    ],
)
def test_a_stage_that_the_device_does_not_have_is_named(stages, device, missing, run, script):
    program = """
        import numpy as np, tilewright as triton, tilewright.language as tl

        @triton.jit
        def one(x_ptr):
            tl.store(x_ptr, 1)

        @triton.jit
        def two(x_ptr):
            tl.store(x_ptr, 2)

        one[(1,)](np.zeros(1, np.int32))
        two[(1,)](np.zeros(1, np.int32))
    """
    path = script(program)
    environment = {"TILEWRIGHT_DUMP": stages, "TILEWRIGHT_DEVICE": device}
    done = run(path, env=environment, cwd=path.parent)
    assert done.code == 0
    note = f"tilewright: TILEWRIGHT_DUMP is '{stages}', but kernels on {device} have {missing}"
    assert done.err.count("tilewright: ") == (missing is not None)
    assert (note in done.err) == (missing is not None)


def test_each_own_variable_is_known():
    """Of those that the code and the documentation name."""
    root = ROOT
    files = [
        *root.glob("python/tilewright/**/*.py"),
        *root.glob("crates/*/src/**/*.rs"),
        *root.glob("docs/*.md"),
    ]
    named = {name for file in files for name in re.findall(r"\bTILEWRIGHT_[A-Z_]+\b", file.read_text())}
    known = _environment.KNOWN | {f"TILEWRIGHT_{name}" for name in _environment._OF_DEVELOPMENT}
    assert {name for name in named - known if "_TEST_" not in name and not name.endswith("_")} == set()
    assert named >= _environment.KNOWN


def test_each_variable_of_a_knob_is_read_or_answered():
    """By the launcher or the commands, by Python code that reads the knob, or by the line that says what is there."""
    root = ROOT
    package = root / "python" / "tilewright"
    files = [*package.rglob("*.py"), *root.glob("crates/*/src/**/*.rs")]
    own = {package / "knobs.py", package / "_environment.py"}
    readers = "\n".join(file.read_text() for file in files if file not in own)
    unread = []
    for group, knob in vars(knobs).items():
        if not isinstance(knob, knobs.Knobs):
            continue
        for name, descriptor in knob.knob_descriptors.items():
            variable = descriptor.variable
            is_read = variable in readers or f"knobs.{group}.{name}" in readers
            if not is_read and variable not in _environment.WITHOUT_EFFECT:
                unread.append(variable)
            assert not (f"knobs.{group}.{name}" in readers and variable in _environment.WITHOUT_EFFECT), (
                variable
            )
    assert unread == []


def test_descriptor_types():
    core = triton.language.core
    block = triton.language.block_type(triton.language.float16, [16, 32])
    one = core.tensor_descriptor_type(block, None, None)
    assert one == core.tensor_descriptor_type(block, None, None)
    assert one != core.tensor_descriptor_type(triton.language.block_type(triton.language.float16, [16, 16]))
    assert len({one, core.tensor_descriptor_type(block)}) == 1


GLUON = dict(
    line.split(": ") for line in (Path(__file__).parent / "gluon_names.txt").read_text().splitlines()
)
"""The names of Gluon of Triton 3.9, by module."""


def test_names_of_gluon():
    """Each is there; a call of what only Gluon has says that there is no Gluon."""
    wrong, calls = [], 0
    for module, names in GLUON.items():
        found = importlib.import_module(module.replace("triton", "tilewright", 1))
        for name in names.split():
            value = getattr(found, name, None)
            if value is None:
                wrong.append(f"{module}.{name}")
            elif isinstance(value, _native.Missing):
                calls += 1
                with pytest.raises(NotImplementedError, match=rf"TW0117.*gluon.*\b{name} is not available"):
                    value()
    assert wrong == []
    assert calls > 100
    gl = importlib.import_module("tilewright.experimental.gluon.language")
    assert gl.constexpr is triton.language.constexpr
    assert gl.float16 is triton.language.float16
    assert (
        importlib.import_module("tilewright.experimental.gluon.language.nvidia.hopper.tma")
        is gl.nvidia.hopper.tma
    )
    assert gl.nvidia.blackwell.mbarrier is gl.nvidia.hopper.mbarrier
    assert not hasattr(gl, "nothing")


def test_layouts_of_gluon_are_values():
    gl = importlib.import_module("tilewright.experimental.gluon.language")
    blocked = gl.BlockedLayout([1, 4], [8, 4], [4, 1], order=[1, 0])
    assert blocked == gl.BlockedLayout([1, 4], [8, 4], gl.constexpr([4, 1]), [1, 0])
    assert blocked != gl.BlockedLayout([1, 4], [8, 4], [4, 1], [0, 1])
    rows = gl.SliceLayout(1, parent=blocked)
    assert (blocked.rank, rows.rank, rows.parent.threads_per_warp) == (2, 1, [8, 4])
    assert {rows: 1}[gl.SliceLayout(1, blocked)] == 1
    assert gl.NVMMASharedLayout(128, 16, rank=2).transposed is False
    for use in (lambda: gl.AutoLayout().rank, lambda: gl.shared_memory_descriptor()):
        with pytest.raises(NotImplementedError, match="TW0117"):
            use()


def test_kernels_of_gluon_are_kernels():
    gluon = importlib.import_module("tilewright.experimental.gluon")
    gl = importlib.import_module("tilewright.experimental.gluon.language")

    @gluon.jit(do_not_specialize=["n"])
    def fill(out_ptr, n, layout: gl.constexpr):
        gl.store(out_ptr + gl.arange(0, 128, layout), n)

    assert isinstance(fill, triton.JITFunction)
    assert fill.is_gluon()
    assert [param.name for param in fill.params] == ["out_ptr", "n", "layout"]
    tuned = triton.autotune([triton.Config({"n": 1}), triton.Config({"n": 2})], key=[])(fill)
    layout, out = gl.BlockedLayout([1], [32], [4], [0]), torch.zeros(128, dtype=torch.int32)
    fill[(1,)](out, 3, layout)
    assert (out == 3).all()
    tuned[(1,)](out, layout=layout)
    assert set(out.tolist()) <= {1, 2}
    assert fill.warmup(torch.int32, 3, layout, grid=(1,)).asm["gpu"].startswith("gpu sm_90a, 4 warps")


def test_missing_parts_of_gluon_are_errors_in_kernels():
    gluon = importlib.import_module("tilewright.experimental.gluon")
    gl = importlib.import_module("tilewright.experimental.gluon.language")

    @gluon.jit
    def packed(out_ptr):
        gl.fp4_to_fp(out_ptr, gl.float16, 0)

    with pytest.raises((NotImplementedError, triton.CompilationError), match="fp4_to_fp") as raised:
        packed[(1,)](torch.zeros(1, dtype=torch.int32))
    assert raised.value.code.startswith("TW0")


def test_knobs_of_every_group():
    for group in (
        "build",
        "redis",
        "cache",
        "compilation",
        "autotuning",
        "runtime",
        "language",
        "nvidia",
        "amd",
    ):
        assert getattr(knobs, group).knobs
