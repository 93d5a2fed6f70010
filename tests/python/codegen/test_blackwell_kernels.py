"""Our code for Blackwell: the kernels with which the simulator is tested, beside torch.

The kernels and their cases are those of `official_blackwell.py`, which the official compiler compiles in a test of the
simulator. Here, tilewright compiles them for `sm_100`. The simulator runs them, and `ptxas` assembles them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from support.assembler import find_assembler, spilled_bytes

torch = pytest.importorskip("torch")

CASES = ROOT / "crates/ptx/tests"
LEFT_OUT = {
    "pairs": "tested with the pairs of Gluon; `ptxas` spills registers of the one of 256 columns",
    "cancellations": "tested with cluster launch control of Gluon",
    "other_targets": "the same kernels again, for other targets",
}
WITHOUT_TENSOR_MEMORY = {"int8"}
"""No `tcgen05.mma` of this compiler multiplies these types."""
SCALED = {
    "mxfp8": ".kind::mxf8f6f4.block_scale",
    "mxfp8_e5m2": ".kind::mxf8f6f4.block_scale",
    "mxfp8_wide": ".kind::mxf8f6f4.block_scale",
    "mxfp8_mxfp4": ".kind::mxf8f6f4.block_scale",
    "mxfp4": ".kind::mxf4.block_scale",
    "mxfp4_wide": ".kind::mxf4.block_scale",
    "nvfp4": ".kind::mxf4nvf4.block_scale",
}
"""The instructions of the kernels with scales."""


def run_cases(folder):
    """Runs each case on the device of the environment, and writes its PTX. Prints the wrong ones."""
    sys.path.append(str(CASES))
    import official_blackwell

    for make in official_blackwell.CASES.values():
        for case in () if make.__name__ in LEFT_OUT else make():
            compiled = case.kernel[case.grid](*case.arguments, **case.constants, **case.options)
            (folder / f"{case.name}.ptx").write_text(compiled.asm["ptx"])
            result, expected = case.arguments[case.output].double(), case.expected
            largest = expected.abs().max()
            error = (result - expected).abs() / expected.abs().clamp(min=largest / 16)
            if not (error <= case.tolerance).all():
                print(f"{case.name}: the largest error is {error.max()}")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The folder with the PTX of all cases, whose results were right."""
    folder = tmp_path_factory.mktemp("blackwell")
    folders = os.pathsep.join([str(ROOT / "tests/python"), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "TILEWRIGHT_DEVICE": "sim:sm_100",
        "TILEWRIGHT_AS_TRITON": "1",
        "PYTHONPATH": folders,
    }
    command = [sys.executable, __file__, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return folder


def test_results_are_those_of_torch(compiled):
    assert len(list(compiled.glob("*.ptx"))) >= 30


def test_dots_run_on_tensor_memory(compiled):
    without = {path.stem for path in compiled.glob("*.ptx") if "tcgen05.mma" not in path.read_text()}
    assert without == WITHOUT_TENSOR_MEMORY


def test_instructions_apply_scales(compiled):
    for name, kind in SCALED.items():
        text = (compiled / f"{name}.ptx").read_text()
        assert f"tcgen05.mma.cta_group::1{kind}" in text, name
        assert "kind::f16" not in text, name


def test_the_assembler_spills_nothing(compiled, tmp_path):
    assembler = find_assembler()
    if assembler is None:
        pytest.skip("there is no ptxas")
    spilled = {
        path.stem: spilled_bytes(assembler, path.read_text(), tmp_path) for path in compiled.glob("*.ptx")
    }
    assert {name for name, count in spilled.items() if count} == set()


if __name__ == "__main__":
    run_cases(Path(sys.argv[1]))
