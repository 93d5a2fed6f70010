"""Each name of the language with arguments that it does not expect: a result, or a finding in the user's line."""

import ast
import os
import random

import pytest
import torch
from helpers import module
from reference_examples import PRELUDE, read_examples

import tilewright

ODD = """
x.to(tl.float16); x.to(tl.float8e4nv); x.to(tl.bfloat16); x.to(tl.int1); x.to(tl.int8); x.to(tl.uint64); x == 2
tl.arange(0, 8); tl.arange(0, 8)[:, None]; tl.zeros((2, 2, 4), tl.int64); tl.zeros((), tl.float32); x[:3]; x.T
tl.full((4,), float("nan"), tl.float32); tl.full((4,), -9223372036854775808, tl.int64); tl.program_id(0)
x_ptr; x_ptr + tl.arange(0, 4); x_ptr.to(tl.int64); x_ptr.to(tl.pointer_type(tl.int8)); tl.load(x_ptr) > 0
0; 3; -1; -100; 1024; 2147483648; 1 << 62; 18446744073709551616; 1 << 200; -(1 << 63) - 1
1.5; -0.0; 1e400; float("nan"); -float("inf"); True; False; None; ""; "abc"; "tf32"; "é\\n"; b"abc"; 1j
(); (4,); (0, 4); (-1, 4); (1 << 40, 4); (1, 1, 1, 1, 1, 1, 1, 1, 1, 4); (None,); (x, "a"); (1.5,); [[4]]
tl.float32; tl.float8e5; tl.int1; tl.void; tl.block_type(tl.float32, [4]); tl.constexpr(None); x.shape; x.dtype
tl; tl.load; tl.tensor; tl.sum; range(4); tl.range(4); slice(0, 2); max; int; lambda a, b: a + b; {}; {1: 2}; ...
tl.make_block_ptr(x_ptr, (4, 4), (4, 1), (0, 0), (2, 2), (1, 0)); x if True else None; f"{4}"; not x
tl.make_tensor_descriptor(x_ptr, [4, 4], [4, 1], [2, 4]); tl.philox(1, 2, 3, 4, 5)
"""
ARGUMENTS = [text.strip() for line in ODD.strip().splitlines() for text in line.split(";")]


def kernels(seed):
    """For each example, its kernel with one odd argument in the place of another, or one that is left out or added."""
    chosen = random.Random(seed)
    for example in read_examples():
        count = example.definitions()
        tree = ast.parse("\n".join(example.lines[count:]))
        name = example.path.rpartition(".")[2]
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
        ]
        if not calls:
            continue
        call = chosen.choice(calls)
        odd = chosen.choice(ARGUMENTS)
        place = chosen.randrange(len(call.args) + len(call.keywords) + 1)
        if place < len(call.args):
            call.args[place] = ast.parse(odd, mode="eval").body
        elif place < len(call.args) + len(call.keywords):
            call.keywords[place - len(call.args)].value = ast.parse(odd, mode="eval").body
        elif call.args and chosen.random() < 0.5:
            call.args.pop()
        else:
            call.args.append(ast.parse(odd, mode="eval").body)
        body = "\n".join(f"    {line}" for line in [PRELUDE, *ast.unparse(tree).splitlines()])
        defined = "\n".join(example.lines[:count])
        head = "from tilewright.language.extra import libdevice\n\n\n"
        yield example.topic, f"{head}{defined}\n\n@triton.jit\ndef kernel(x_ptr, i_ptr):\n{body}\n"


SEEDS = range(*map(int, os.environ.get("TILEWRIGHT_SEEDS", "0..3").split("..")))
TEXTS: dict[str, list[str]] = {}
for seed in SEEDS:
    for topic, text in kernels(seed):
        TEXTS.setdefault(topic, []).append(text)


@pytest.mark.parametrize("topic", TEXTS)
def test_odd_arguments(topic):
    refused = []
    for text in TEXTS[topic]:
        made = module(text)
        x, i = torch.arange(16, dtype=torch.float32), torch.zeros(16, dtype=torch.int32)
        try:
            made.kernel[(1,)](x, i)
        except tilewright.errors.TritonError as error:
            refused.append((text, made.__file__, error))
    for text, file, error in refused:
        finding = error.diagnostics[0]
        assert (finding.code[:2], finding.file) == ("TW", file), f"{text}\n{error}"
        assert finding.line > 8, f"{text}\n{error}"
        assert finding.column > 1, f"{text}\n{error}"
