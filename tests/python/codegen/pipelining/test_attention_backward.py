"""The backward pass of attention in the forms of `benches`: its results, and what its loops wait for."""

import re
import sys

import pytest
from conftest import DEVICE, ROOT

sys.path.append(str(ROOT / "benches"))

pytest.importorskip("torch")

from gpu import attention_cases, products
from gpu.sides import TILEWRIGHT

BLOCKS = {"32x128 w4 s3": 8, "64x128 w8 s3": 8, "64x64 w4 s2": 4}
"""Configurations, and the warps that the kernel has with heads of 64."""


@pytest.fixture(scope="module")
def side():
    return products.Side(TILEWRIGHT)


def product_loops(ptx):
    """The loops with asynchronous products."""
    found = re.findall(r"^(\$loop_\d+):\n(.*?bra\s+\1;)", ptx, re.MULTILINE | re.DOTALL)
    return [body for _, body in found if "wgmma" in body]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_warpgroups_wait_once_an_iteration(blocks, causal, side, device):
    problem = attention_cases.backward(1, 256, 64, causal)
    (config,) = attention_cases.blocks(blocks)
    run = side.launcher(problem, config)
    assert products.wrong(problem, run, problem.expected()) == ""
    if DEVICE != "sim:sm_90":
        return
    loops = product_loops(run().asm["ptx"])
    assert len(loops) >= 2
    for loop in loops[-2:]:
        # Of the operands and what is read in lines, together; and of two warpgroups, that slots are free.
        assert loop.count("mbarrier.try_wait") == (2 if BLOCKS[blocks] == 8 else 1)
        assert loop.count("bar.sync") == (0 if BLOCKS[blocks] == 8 else 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head", [64, 128])
def test_tutorial(head, causal, side, device):
    problem = attention_cases.tutorial_backward(1, 256, head, causal)
    run = side.launcher(problem, attention_cases.TUTORIAL[0])
    assert products.wrong(problem, run, problem.expected()) == ""
    if DEVICE == "sim:sm_90":
        # Pointers that a loop carries are boxes of tensors, those of the last blocks before the diagonal too.
        loops = product_loops(run()[1].asm["ptx"])
        assert loops
        assert "cp.async.bulk" in loops[-1]
        assert not re.search(r"cp\.async\.c[ag]", loops[-1])
