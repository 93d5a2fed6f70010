"""The types that each function takes and returns, by the compiler: a call on a tile of each element type.

A name is called with a tile for each parameter that has no default, and if the compiler refuses all those, as its
example calls it. A type that the compiler refuses is not taken; one that it takes has a result type in the IR.
"""

from __future__ import annotations

import re

import torch
from helpers import module
from helpers_conformance import DTYPES, IR_NAMES
from reference_examples import Example

import tilewright as triton

# The tile that functions are called with.
SHAPE = "[2, 4]"

FUNCTION = """@triton.jit
def of_{dtype}(memory, x_ptr):
    i_ptr = memory.to(tl.pointer_type(tl.int32))
    p = {pointer} + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]
    {tile}
    {line}


"""
FULL = "x = tl.load(p)"

# How names are called that take more than tiles; `p` points to the tile.
CALLS = {
    "load": "tl.load(p)",
    **{f"atomic_{name}": f"tl.atomic_{name}(p, x)" for name in "add and or xor max min xchg".split()},
    "atomic_cas": "tl.atomic_cas(p, x, x)",
    "atomic_load": "tl.atomic_load(p)",
    "full": "tl.full([2, 4], 1, x.dtype)",
    "zeros": "tl.zeros([2, 4], x.dtype)",
    "broadcast_to": "tl.broadcast_to(x, 3, 2, 4)",
    "reshape": "tl.reshape(x, 4, 2)",
    "view": "tl.view(x, 4, 2)",
    "trans": "tl.trans(x)",
    "permute": "tl.permute(x, 1, 0)",
    "gather": "tl.gather(x, tl.load(i_ptr + tl.arange(0, 6)[None, :] + tl.arange(0, 2)[:, None] * 0), 1)",
    "histogram": "tl.histogram(tl.reshape(x, 8), 16)",
    "dot": "tl.dot(x, tl.trans(x))",
}
HEAD = "from tilewright.language.extra import libdevice\n\n\n"


def calls(example: Example, parameters: str) -> list[str]:
    """The lines to try."""
    if example.path in CALLS:
        return [f"result = {CALLS[example.path]}"]
    found = []
    if not example.path.startswith(
        ("tensor.", "dtype.", "tensor_descriptor.", "target_info.", "PropagateNan")
    ):
        required = [each for each in re.split(r",\s*", parameters.strip("()")) if each and "=" not in each]
        if required and not any(each.startswith("*") for each in required):
            found.append(f"result = tl.{example.path}({', '.join(['x'] * len(required))})")
    plain = [line for line in example.lines if line and not line.startswith((" ", "@", "def "))]
    if len(plain) == 1 and len(example.lines) == 1:
        code = plain[0].partition("  # ")[0]
        targets, separator, value = code.partition(" = ")
        if separator and "," not in targets and re.search(r"\bx\b", value) and "x_ptr" not in value:
            found.append(f"result = {value}")
    return found


def types_of(line: str) -> tuple[dict[str, str], list[str]]:
    """The type of the result for each element type that the line takes, and the codes of the errors of the others."""
    left, codes = list(DTYPES), set[str]()
    while left:
        functions = [
            FUNCTION.format(
                dtype=dtype, tile=FULL, line=line, pointer=f"memory.to(tl.pointer_type(tl.{dtype}))"
            )
            for dtype in left
        ]
        body = "".join(f"    of_{dtype}(memory, x_ptr)\n" for dtype in left)
        text = HEAD + "".join(functions) + "@triton.jit\ndef kernel(memory, x_ptr):\n" + body
        kernel = module(text).kernel
        try:
            handle = kernel.warmup(torch.uint8, torch.float32, grid=(1,))
        except triton.CompilationError as error:
            refused = set(re.findall(r"\bof_(\w+)\(memory, x_ptr\)", str(error)))
            if not refused:
                return {}, []
            codes.update(re.findall(r"error\[(TW\d+)\]", str(error)))
            left = [dtype for dtype in left if dtype not in refused]
            continue
        parts = re.split(r"^(?:kernel )?func\d+ @([^(]+)\(", handle.asm["ir"], flags=re.M)
        bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
        types = {
            dtype: re.search(r"^  %result = .* : ([\w*\[\], ]+)$", bodies[f"of_{dtype}"], re.M)
            for dtype in left
        }
        return {dtype: found[1] for dtype, found in types.items() if found}, sorted(codes)
    return {}, []


def table(example: Example, parameters: str) -> list[str]:
    """The rows of types that a name takes and gives; none where it takes no tile."""
    for line in calls(example, parameters):
        types, codes = types_of(line)
        if not types:
            continue
        groups: dict[str, list[str]] = {}
        for dtype, found in types.items():
            element, _, shape = found.partition("[")
            same = "the same" if element == IR_NAMES[dtype] else element
            groups.setdefault(same + (f" [{shape}" if shape else ""), []).append(IR_NAMES[dtype])
        rows = [f"| `x` {SHAPE} of | `{line.removeprefix('result = ')}` is |", "|---|---|"]
        rows += [f"| {summed_up(names)} | {result} |" for result, names in groups.items()]
        errors = ", ".join(f"[{code}](../diagnostics/{code}.md)" for code in codes)
        return [*rows, f"| other types | refused: {errors} |"] if errors else rows
    return []


FAMILIES = {
    "any type": list(IR_NAMES.values()),
    "integers": [name for name in IR_NAMES.values() if "int" in name and name != "int1"],
    "fp8": [name for name in IR_NAMES.values() if name.startswith("fp8")],
}


def summed_up(names: list[str]) -> str:
    """Element types, whole families by their name."""
    for family, members in FAMILIES.items():
        if set(members) <= set(names):
            first = next(index for index, name in enumerate(names) if name in members)
            names = [name for name in names if name not in members]
            names.insert(first, family)
    return ", ".join(names)
