"""torch.compile with tilewright as its Triton, on cases of `benches/gpu/torch_compile.py` in small.

Each compares itself with eager torch. Without a GPU, Inductor writes Triton for the CPU.
"""

from __future__ import annotations

import json
import os

import pytest
from conftest import ROOT, environment_of

CASES = {
    "scatter, index_add": "atomic sums",
    "cumsum, sort": "scans and sorts, also in parts",
    "mixture of experts": "a training step, and an update of its parameters",
    "max-autotune matmul": "templates, timed and chosen",
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_results_are_those_of_eager_torch(case, run, device, tmp_path):
    path = os.pathsep.join([str(ROOT / "benches"), environment_of()["PYTHONPATH"]])
    variables = {"PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    arguments = ("-m", "gpu.torch_compile", "--small", "--device", device, "--one", "tilewright", case)
    done = run(*arguments, env=variables)
    assert done.code == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert found["errors"]
