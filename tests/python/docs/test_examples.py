"""Every example runs, and finds that its results are right: each compares itself with torch or numpy."""

from __future__ import annotations

import pytest
from conftest import ON_GPU, ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, run_forked, device):
    if ON_GPU and "import torch" not in example.read_text():
        pytest.skip("its arrays are the host's")
    result = run_forked(example)
    assert result.code == 0, result.err
    assert result.out
