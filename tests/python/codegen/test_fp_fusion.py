"""Multiply-add is rounded once or twice: `enable_fp_fusion`."""

from __future__ import annotations

import pytest

import tilewright as triton
import tilewright.language as tl

torch = pytest.importorskip("torch")


@triton.jit
def multiply_add_kernel(a_ptr, b_ptr, c_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(a_ptr + i) * tl.load(b_ptr + i) + tl.load(c_ptr + i))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_without_fusion_products_are_rounded(device, dtype):
    generator = torch.Generator().manual_seed(3)
    a, b = torch.rand((2, 4096), generator=generator, dtype=torch.float64).to(getattr(torch, dtype))
    # The remainder of a product is the error of the first rounding: zero if there was one rounding.
    c = -(a * b)
    out = torch.ones_like(a).to(device)
    handle = multiply_add_kernel[(1,)](
        a.to(device), b.to(device), c.to(device), out, 4096, enable_fp_fusion=False
    )
    assert handle.metadata.enable_fp_fusion is False
    assert torch.equal(out.cpu().double(), torch.zeros(4096, dtype=torch.float64))


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_the_code_says_so(target):
    def code(**options):
        source = triton.compiler.ASTSource(
            multiply_add_kernel,
            {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32", "out_ptr": "*fp32"},
            {"BLOCK": 128},
        )
        gpu = triton.backends.compiler.GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
        return triton.compile(source, target=gpu, options=options).asm["ptx"]

    # PTX ISA 9.7.3: an instruction with a rounding modifier is never contracted.
    for text, modifier in [
        (code(enable_fp_fusion=False), ".rn"),
        (code(enable_fp_fusion=True), ""),
        (code(), ""),
    ]:
        assert f"mul{modifier}.f32" in text
        assert f"add{modifier}.f32" in text


PROGRAM = """
import numpy as np
import tilewright as triton
import tilewright.language as tl

@triton.jit
def kernel(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))

for options in {}, {"enable_fp_fusion": True}, {"enable_fp_fusion": False}, {"enable_fp_fusion": None}:
    print(kernel[(1,)](np.zeros(8, np.float32), 8, **options).metadata.enable_fp_fusion)
"""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ["True", "True", "False", "True"]),
        ({"TRITON_DEFAULT_FP_FUSION": "0"}, ["False", "True", "False", "False"]),
        ({"TRITON_DEFAULT_FP_FUSION": "1", "TRITON_FORCE_DISABLE_FP_FUSION": "1"}, ["False"] * 4),
    ],
)
def test_the_environment_has_the_last_word_or_the_first(run, tmp_path, variables, expected):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = run(path, env=variables)
    assert done.out.split() == expected, done.err
