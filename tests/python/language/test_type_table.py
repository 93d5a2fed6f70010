"""The types of functions and operators against those of the official package: each cell of `official_types.txt`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterable

import pytest
import torch
from helpers import module
from type_cases import CODES, HELPERS, TEMPLATES, Case, cases, prologue, read_table, short

import tilewright as triton
import tilewright.language as tl
from tilewright.runtime.interpreter import interpret


def kernel_of(numbered: list[Case], end: str = ""):
    """A kernel that prints the type of each case, with its number."""
    names = "\n".join(map(str, numbered))
    lines = []
    for number, case in enumerate(numbered):
        told = f"r{number}" if case.is_statement else f"r{number}.dtype, r{number}.shape"
        lines.append(f"    r{number} = {case}\n    tl.static_print('@', {number}, {told})\n")
    text = f"{HELPERS}@triton.jit\ndef kernel(memory):\n{prologue(names)}{''.join(lines)}{end}"
    return module(text).kernel


def printed_types(printed: str, numbered: list[Case]) -> dict[Case, str]:
    """The types that such a kernel has printed; "-" for a case without output."""
    found = dict.fromkeys(numbered, "-")
    for line in printed.splitlines():
        _, number, rest = line.split(" ", 2)
        case = numbered[int(number)]
        if case.is_statement:
            found[case] = "ok"
        else:
            dtype, _, shape = rest.rpartition(" (")
            extents = tuple(int(n) for n in shape.rstrip("),").split(", ") if n)
            found[case] = short(dtype, extents, (4,))
    return found


def types_of(wanted: Iterable[Case]) -> dict[Case, str]:
    """The type of each case, or "-" where the compiler refuses it: it reads on after an error."""
    numbered = list(wanted)
    printed = io.StringIO()
    # No code is wanted: the compilation ends after the last type.
    end = "    tl.static_assert(False)\n"
    with contextlib.redirect_stdout(printed), contextlib.suppress(triton.CompilationError):
        kernel_of(numbered, end).warmup(torch.uint8, grid=(1,))
    return printed_types(printed.getvalue(), numbered)


# Why a type is not the official one, or why what the official package refuses is taken: the reason, a pattern of
# expressions, the kinds of difference (`taken`, `refused`, `other`), and element types; one operand has one of these.
FP8 = frozenset(name for name in CODES if name.startswith("float8"))
NARROW = FP8 | {"float16", "bfloat16"}
ANY = frozenset(CODES)
INTENDED = (
    (
        "float8e4b15 is a byte in the official IR: its operators are refused there or have type fp16",
        r".*",
        ("taken", "refused", "other"),
        {"float8e4b15"},
    ),
    (
        "an accumulator of another type than the result's is refused at once; there a later pass fails",
        r"tl\.dot\(mX, mX, m[XY]\b.*",
        ("refused",),
        ANY,
    ),
    (
        "bits of floats are taken by a cast: a bitwise operation of floats is most often a mistake",
        r"tl\.atomic_(and|or|xor)\(pX, .*",
        ("refused",),
        {"float32", "float64"},
    ),
    ("uint8 is multiplied as int8 is", r"tl\.dot\(.*", ("taken",), {"uint8"}),
    (
        "`out_dtype` is ignored also where it is bf16",
        r"tl\.dot\(mX, mX, out_dtype=dY\)",
        ("taken",),
        {"bfloat16"},
    ),
    (
        "functions of floats take every float",
        r"tl\.(exp2?|log2?|sin|cos|sqrt(_rn)?|rsqrt|floor|ceil|erf|sigmoid|div_rn)\(.*",
        ("taken",),
        NARROW | {"float64"},
    ),
    (
        "fp8 is converted from and to every number, also as a condition and in memory",
        r"(X\.to|tl\.(sum|cumsum|full|where|load|store|atomic_\w+|cast|rand\w*|atomic_poll))\(.*",
        ("taken",),
        FP8,
    ),
    (
        "integers are true where they are not 0, and floats",
        r"not sX|s?[XK] (and|or) s?[XY]|sX and K|X\.logical_\w+\(.*|tl\.assume\(sX\)|tl\.store\(pX, X, K\)",
        ("taken",),
        ANY,
    ),
    (
        "tiles of different types are put together in their common type",
        r"tl\.(cat|join|interleave)\(X, [YK].*",
        ("taken",),
        ANY,
    ),
    ("integers of any signs are divided in fp32", r"s?X / s?[YK]|K / X", ("taken",), ANY),
    (
        "the common type of the operands counts, not the first one's",
        r"tl\.(umulhi|cdiv)\(.*",
        ("taken",),
        ANY,
    ),
    ("integers of any width are counted", r"tl\.histogram\(X, 4.*", ("taken",), ANY),
    (
        "16 bits are enough for each atomic operation, tiles broadcast, and values are converted",
        r"tl\.atomic_\w+\(ps?X, .*",
        ("taken",),
        ANY,
    ),
    ("numbers that are no integers seed a generator by their value", r"tl\.rand\w*\(.*", ("taken",), ANY),
    ("floats are there already", r"tl\.uint_to_uniform_float\(X\)", ("taken",), {"float32", "float64"}),
    ("every integer of 64 bits wraps", r"tl\.full\(.*, K, dX\)", ("taken",), ANY),
    (
        "a plus sign, a sum of a scalar, an `or` of all elements, a sort along any axis, equal pointers, more axes",
        r"\+X|tl\.sum\(sX\)|tl\.sort\(mX, 0\)|tl\.reduce_or\(X\)|pX == p[XY]|tl\.broadcast\(X, mX.*",
        ("taken",),
        ANY,
    ),
)


def reasons(case: Case, kind: str) -> list[str]:
    """Why a case may differ in this way."""
    operands = {case.x, case.column} & ANY
    return [
        reason
        for reason, pattern, kinds, types in INTENDED
        if kind in kinds and operands & types and re.fullmatch(pattern, case.template)
    ]


@pytest.fixture(scope="module")
def types() -> dict[Case, str]:
    """The type of every case here."""
    if os.environ.get("TRITON_INTERPRET"):
        pytest.skip("only the compiler reads on after an error")
    with warnings.catch_warnings():
        # `and` of tiles evaluates both.
        warnings.simplefilter("ignore")
        return {case: kind for template in TEMPLATES for case, kind in types_of(cases(template)).items()}


@pytest.fixture(scope="module")
def differences(types) -> list[tuple[Case, str, str, str]]:
    """Each case whose type is not the official one: how it differs, the official type, the type here."""
    official = read_table()
    assert official.keys() == types.keys()
    found = []
    for case, kind in types.items():
        right = official[case]
        if right != kind:
            how = "taken" if right == "-" else "refused" if kind == "-" else "other"
            found.append((case, how, right, kind))
    return found


def test_types_are_the_official_ones(differences):
    unintended = [
        f"{case} with {case.x}, {case.column}: {right} officially, {kind} here"
        for case, how, right, kind in differences
        if not reasons(case, how)
    ]
    assert not unintended, f"{len(unintended)} differences:\n" + "\n".join(unintended[:50])


def test_each_reason_for_a_difference_is_needed(differences):
    given = {reason for case, how, *_ in differences for reason in reasons(case, how)}
    assert given == {reason for reason, *_ in INTENDED}


@pytest.mark.filterwarnings("ignore:warning.TW0050")
def test_types_are_the_same_when_interpreted(types):
    """Some operands of each expression; but for those that wait, and those that Python decides by itself."""
    for template in TEMPLATES:
        if template in ("K or sX", "tl.atomic_poll(psX, sY)", "tl.atomic_poll(psX, K)"):
            continue
        taken = [case for case in cases(template) if types[case] != "-"]
        some = taken[len(template) % 5 :: 5]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            interpret(kernel_of(some))[(1,)](torch.zeros(1 << 14, dtype=torch.uint8))
        assert printed_types(printed.getvalue(), some) == {case: types[case] for case in some}


@triton.jit
def bits_kernel(x_ptr, y_ptr, cas_ptr, joined_ptr, cat_ptr, full_ptr, before_ptr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(joined_ptr + i[:, None] * 2 + tl.arange(0, 2)[None, :], tl.join(x, y).to(tl.int32))
    tl.store(cat_ptr + tl.arange(0, 16), tl.cat(y, x).to(tl.int32))
    tl.store(full_ptr + i, tl.full((8,), 300, tl.int8).to(tl.int32) + tl.full((8,), -1, tl.uint8))
    before = tl.atomic_cas(cas_ptr, 4294967295, 1)
    tl.store(before_ptr, before.to(tl.int64))
    tl.store(before_ptr + 1, tl.atomic_cas(cas_ptr, 1, before).to(tl.int64))


def test_bits_of_one_width_have_the_sign_of_what_comes_first(device):
    x = torch.arange(-100, 100, 25, dtype=torch.int8)
    y = torch.arange(20, 255, 30, dtype=torch.uint8)
    cas = torch.tensor([-1], dtype=torch.int32).view(torch.uint32)
    joined, cat = torch.zeros(8, 2, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    full, before = torch.zeros(8, dtype=torch.int32), torch.zeros(2, dtype=torch.int64)
    tensors = [each.to(device) for each in (x, y, cas, joined, cat, full, before)]
    bits_kernel[(1,)](*tensors)
    cas, joined, cat, full, before = (each.cpu() for each in tensors[2:])
    assert joined.tolist() == torch.stack([x, y.view(torch.int8)], 1).tolist()
    assert cat.tolist() == torch.cat([y, x.view(torch.uint8)]).tolist()
    # 300 as int8 is 44, and -1 as uint8 is 255.
    assert full.tolist() == [44 + 255] * 8
    # The second value is a tensor of int32, as the number 1 is one.
    assert (before.tolist(), cas.view(torch.int32).tolist()) == ([-1, 1], [-1])


@triton.jit
def floats_kernel(x_ptr, n_ptr, quotient_ptr, scanned_ptr, best_ptr, dot_ptr, steps):
    i = tl.arange(0, 32)
    x = tl.load(x_ptr + i)
    n = tl.load(n_ptr + i)
    tl.store(quotient_ptr + i, tl.fdiv(x, n))
    tl.store(quotient_ptr + 32 + i, tl.fdiv(n, x, ieee_rounding=True))
    tl.store(quotient_ptr + 64 + i, tl.fdiv(n.to(tl.float64), 3) + tl.fdiv(7, x))
    total = x
    for _ in range(steps):
        total = tl.cumsum(total, 0)
    tl.store(scanned_ptr + i, total)
    tl.store(best_ptr + tl.arange(0, 4), tl.topk(x, 4))
    tile = i[:, None] * 32 + i[None, :]
    a = (tile % 7 - 3).to(tl.bfloat16)
    tl.store(dot_ptr + tile, tl.dot(a, a, out_dtype=tl.float16))


def test_values_of_what_has_the_official_type(device):
    x = torch.tensor([1 - 2 * (k % 2) + k % 3 for k in range(32)], dtype=torch.bfloat16)
    x = torch.where(x == 0, 4, x).to(torch.bfloat16)
    n = torch.arange(1, 33, dtype=torch.int16)
    quotient, scanned = torch.zeros(96, dtype=torch.float64), torch.zeros(32, dtype=torch.bfloat16)
    best, dot = torch.zeros(4), torch.zeros(32, 32)
    tensors = [each.to(device) for each in (x, n, quotient, scanned, best, dot)]
    floats_kernel[(1,)](*tensors, 1)
    quotient, scanned, best, dot = (each.cpu() for each in tensors[2:])
    wide, whole = x.double(), n.double()
    truth = torch.cat([wide / whole, whole / wide, whole / 3 + 7 / wide])
    torch.testing.assert_close(quotient, truth, rtol=2e-7, atol=0)
    assert scanned.tolist() == wide.cumsum(0).tolist()
    assert best.tolist() == wide.topk(4).values.tolist()
    a = (torch.arange(1024).reshape(32, 32) % 7 - 3).double()
    assert dot.tolist() == (a @ a).tolist()
