"""torch.compile with tilewright as its Triton and without a C++ compiler.

The cases are those of `benches/gpu/torch_models.py` in small; each compares itself with eager torch. Without a GPU, the
device `cuda` is the CPU, and Inductor writes Triton for the CPU.
"""

from __future__ import annotations

import json
import os

import pytest
from conftest import DEVICE, ROOT, environment_of

torch = pytest.importorskip("torch")

GROUPS = {
    "models": ["Llama block", "BERT", "ViT"],
    "training steps": ["training step of a GPT", "training step of a ResNet"],
    "encoder and decoder": ["training step of a T5", "mixture of experts"],
    "operations": ["convolutions", "dropout", "scatter, index_add", "cumsum, sort", "max-autotune matmul"],
}

RANDOM = """
import torch
from torch.nn.functional import dropout

def draw(x):
    return dropout(x, 0.25), torch.rand_like(x), torch.randn_like(x)

def repeated():
    torch.manual_seed(1)
    return compiled(x)

x = torch.full((500, 200), 3.0, device="cuda")
compiled = torch.compile(draw)
kept, uniform, normal = repeated()
assert sorted(kept.unique().tolist()) == [0, 4] and abs((kept == 0).float().mean() - 0.25) < 0.01
assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
assert abs(uniform.var() - 1 / 12) < 0.01 and abs(normal.mean()) < 0.02 and abs(normal.var() - 1) < 0.03
assert not torch.equal(compiled(x)[1], uniform)
assert all(map(torch.equal, repeated(), (kept, uniform, normal)))
print("drawn")
"""


@pytest.fixture
def without_compiler(tmp_path):
    """The environment of a machine without a C++ compiler, with a cache of its own for compiled code."""
    path = os.pathsep.join([str(ROOT / "benches"), environment_of()["PYTHONPATH"]])
    # One thread: barriers between threads of torch are slow while other tests run.
    variables = {"PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    return {**variables, "CXX": "/bin/false", "CC": "/bin/false"}


MODELS = [
    pytest.param(group, marks=() if group == "operations" and DEVICE == "cpu" else pytest.mark.nightly)
    for group in GROUPS
]


@pytest.mark.parametrize("group", MODELS)
def test_compiled_results_are_those_of_eager_torch(group, run, device, without_compiler):
    device = "cuda-on-cpu" if device == "cpu" else device
    # On a GPU, eager torch draws other numbers than Inductor's kernels, with the official triton too.
    names = [name for name in GROUPS[group] if (device, name) != ("cuda", "dropout")]
    arguments = (
        "-m",
        "gpu.torch_compile",
        "--small",
        "--device",
        device,
        "--one",
        "tilewright",
        *names,
    )
    done = run(*arguments, env=without_compiler)
    assert done.code == 0, done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    assert len(found) == len(names)
    assert all(case["errors"] for case in found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_random_numbers_have_their_distribution(run, script, without_compiler):
    done = run("-m", "tilewright", "run", script(RANDOM), env=without_compiler)
    assert done.out == "drawn\n", done.err
