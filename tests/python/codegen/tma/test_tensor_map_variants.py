"""Launches whose tensor maps cannot all be made: copies go by those that can, and the profile says which form ran."""

from __future__ import annotations

import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright import _native
from tilewright.tools.tensor_descriptor import TensorDescriptor

HAS_TMA = (os.environ.get("TILEWRIGHT_DEVICE") or "").endswith("sm_90")
ROWS_END = "its rows end within 16 bytes"
NOT_ALIGNED = "its address or a stride is no multiple of 16 bytes, or too large"


class Launched:
    """The forms that were launched, in the order of the launches, and what each has executed."""

    def __enter__(self):
        _native.take_profile()
        _native.start_profile()
        return self

    def __exit__(self, *_):
        _native.stop_profile()
        profile = json.loads(_native.take_profile())
        self.kernels = [profile["kernels"][launch["kernel"]] for launch in profile["launches"]]
        # The text after the arguments: nothing for a handle's own code.
        self.forms = [kernel["form"].partition(" without ")[2] for kernel in self.kernels]

    def executed(self, number, kind):
        return self.kernels[number]["sim"]["classes"].get(kind, [0])[0]


def without(*accesses):
    """The description of a form, for pairs of an access and a reason."""
    said = ", ".join(f"{access} ({reason})" for access, reason in accesses)
    return f"tensor copies {said}" if said else ""


def check_form(launched, number, expected):
    """A launch took this form, and the instructions that it executed are those of it."""
    if not HAS_TMA:
        return
    assert launched.forms[number] == expected
    assert (launched.executed(number, "global store") > 0) == (" to " in expected)
    # Copies of 16 bytes by threads are asynchronous ones as well, so of what threads load there may be no other.
    assert " from " in expected or launched.executed(number, "global load") == 0
    assert launched.executed(number, "asynchronous") > 0 or expected.count(" from ") == 2


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    FORM: tl.constexpr = "masks",
):  # fmt: skip
    """C = A @ B: with all masks, with rows and columns that wrap around, or with columns of C that nothing bounds."""
    tiles_n = tl.cdiv(N, BN)
    offs_m = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    offs_n = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    a_rows, b_columns = offs_m, offs_n
    if FORM == "wraps":
        a_rows, b_columns = offs_m % M, offs_n % N
    acc = tl.dot(tl.zeros((BM, BK), a_ptr.dtype.element_ty), tl.zeros((BK, BN), b_ptr.dtype.element_ty))
    for k in range(tl.cdiv(K, BK)):
        depth = k * BK + offs_k
        a_ptrs = a_ptr + a_rows[:, None] * sam + depth[None, :]
        b_ptrs = b_ptr + depth[:, None] * sbk + b_columns[None, :]
        if FORM == "wraps":
            a = tl.load(a_ptrs, mask=(depth < K)[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=(depth < K)[:, None], other=0.0)
        else:
            a = tl.load(a_ptrs, mask=(a_rows < M)[:, None] & (depth < K)[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=(depth < K)[:, None] & (b_columns < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=acc.dtype)
    inside = (offs_m < M)[:, None]
    if FORM != "unbounded":
        inside = inside & (offs_n < N)[None, :]
    tl.store(c_ptr + offs_m[:, None] * scm + offs_n[None, :], acc.to(c_ptr.dtype.element_ty), mask=inside)


def matrix(rows, columns, stride, dtype, seed, device):
    """Small integers, exact in every type, in rows of `stride` elements; elements between rows are 5."""
    numbers = torch.randint(-3, 4, (rows, stride), generator=torch.Generator().manual_seed(seed))
    numbers[:, columns:] = 5
    return numbers.to(dtype).to(device)[:, :columns]


class Case:
    """A matrix product; `strides` are the rows' lengths in elements."""

    def __init__(self, device, sizes, strides, dtype=torch.float16, out=None, blocks=(64, 64, 32), **options):
        (M, N, K), (sam, sbk, scm) = sizes, strides
        self.numbers, self.blocks, self.options = (M, N, K, sam, sbk, scm), blocks, options
        self.a = matrix(M, K, sam, dtype, 1, device)
        self.b = matrix(K, N, sbk, dtype, 2, device)
        self.whole = torch.full((M + 2, scm), 7, dtype=out or dtype, device=device)
        self.programs = triton.cdiv(M, blocks[0]) * triton.cdiv(N, blocks[1])

    def launch(self, kernel=product):
        c = self.whole[: self.numbers[0]]
        return kernel[(self.programs,)](self.a, self.b, c, *self.numbers, *self.blocks, **self.options)

    def check(self):
        """C is the product, and nothing else was written."""
        M, N = self.numbers[:2]
        expected = (self.a.double() @ self.b.double()).to(self.whole.dtype)
        columns = slice(None, N)
        assert torch.equal(self.whole[:M, columns].double(), expected.double())
        if self.options.get("FORM") != "unbounded":
            assert bool((self.whole[:M, N:].double() == 7).all())
        assert bool((self.whole[M:].double() == 7).all())


def run(*cases, kernel=product):
    """Launches one after the other; gives the forms. The handles are to be one."""
    with Launched() as launched:
        handles = [case.launch(kernel) for case in cases]
    for case in cases:
        case.check()
    assert len({handle._code_number for handle in handles}) == 1
    return launched


ODD = [(72, 67, 40), (65, 131, 33), (3, 5, 7), (127, 99, 65), (64, 84, 24), (129, 3, 2)]


@pytest.mark.parametrize("sizes", ODD, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("form", ["masks", "wraps"])
def test_rows_of_the_result_that_end_within_16_bytes(device, sizes, form):
    case = Case(device, sizes, (72, 136, 144), FORM=form, num_warps=4, num_stages=2)
    check_form(run(case), 0, without(("to c_ptr", ROWS_END)))


def test_each_launch_takes_what_it_can(device):
    # One handle: no number but the stride of C is a multiple of 16, and that is one of all.
    fit, ends = (72, 88, 40), (72, 67, 40)
    aligned, odd = {"a": 40, "b": 88}, {"a": 41, "b": 89}
    cases, forms = [], []
    combinations = list(itertools.product([False, True], repeat=3))
    for a, b, c in [*combinations, *reversed(combinations)]:
        strides = ((odd if a else aligned)["a"], (odd if b else aligned)["b"], 144)
        cases.append(Case(device, ends if c else fit, strides, num_warps=4, num_stages=3))
        unfit = {("from a_ptr", NOT_ALIGNED): a, ("from b_ptr", NOT_ALIGNED): b, ("to c_ptr", ROWS_END): c}
        forms.append([said for said, is_said in unfit.items() if is_said])
    launched = run(*cases)
    for number, unfit in enumerate(forms):
        check_form(launched, number, without(*unfit))


TYPES = [
    # element, result, whether tensor copies would store it
    (torch.float16, torch.float16), (torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.float32), (torch.float32, torch.float16), (torch.int8, torch.int32),
    (torch.int8, torch.int8), (torch.float8_e5m2, torch.float16), (torch.float8_e4m3fn, torch.float32),
]  # fmt: skip


@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(str(dtype)[6:] for dtype in types))
def test_types_of_elements(device, types):
    dtype, out = types
    per_row = 16 // out.itemsize
    fit = 6 * per_row + (per_row if 6 * per_row % 16 == 0 else 0)
    cases = [
        Case(device, (72, N, 40), (64, 144, 144), dtype, out, num_warps=4, num_stages=2)
        for N in (fit if fit % 16 else 67, 67, 69)
    ]
    launched = run(*cases)
    # Only what bounds the rows of C says another form.
    allowed = {"", without(("to c_ptr", ROWS_END))}
    if HAS_TMA:
        assert set(launched.forms) <= allowed
        if out.itemsize == 2:
            assert launched.forms[0] == ""
            assert launched.forms[1:] == [without(("to c_ptr", ROWS_END))] * 2
        for number in range(3):
            assert launched.executed(number, "asynchronous") > 0


def test_rows_that_nothing_bounds(device):
    # The whole block is written, so only the mask of rows ends it.
    case = Case(device, (72, 67, 40), (40, 88, 144), FORM="unbounded", num_warps=4, num_stages=2)
    launched = run(case)
    assert not HAS_TMA or launched.forms == [""]


def test_rows_that_go_backwards(device):
    cases = [Case(device, (72, N, 40), (48, 88, 144), num_warps=4, num_stages=2) for N in (72, 67)]
    for case in cases:
        whole = case.a
        M, N, K, sam, *rest = case.numbers
        case.numbers, case.a = (M, N, K, -sam, *rest), whole[M - 1 :]
    with Launched() as launched:
        for case in cases:
            case.launch()
    backwards = ("from a_ptr", "its rows go backwards in memory")
    unfit = [[backwards], [backwards, ("to c_ptr", ROWS_END)]]
    for number, case in enumerate(cases):
        check_form(launched, number, without(*unfit[number]))
        case.a = matrix(72, 40, 48, torch.float16, 1, device).flip(0)
        case.check()


@triton.jit
def of_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    om, on = tl.program_id(0) // tiles_n * BM, tl.program_id(0) % tiles_n * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([om, k]), b.load([k, on]), acc)
    c.store([om, on], acc.to(c.dtype))


def test_descriptors(device):
    cases = [Case(device, (72, N, 40), (48, 144, 144)) for N in (72, 67, 72, 99)]
    with Launched() as launched:
        for case in cases:
            M, N = case.numbers[:2]
            tensors = (case.a, (64, 32)), (case.b, (32, 64)), (case.whole[:M, :N], (64, 64))
            descs = [TensorDescriptor.from_tensor(tensor, list(block)) for tensor, block in tensors]
            of_descriptors[(case.programs,)](*descs, *case.numbers[:3], 64, 64, 32, num_warps=4, num_stages=2)
    for number, case in enumerate(cases):
        case.check()
        if HAS_TMA:
            is_fit = case.numbers[1] % 8 == 0
            assert (launched.forms[number] == "") == is_fit, launched.forms
            assert is_fit or launched.forms[number].endswith(f"({ROWS_END})")
            assert (launched.executed(number, "global store") == 0) == is_fit
            assert launched.executed(number, "global load") == 0


@pytest.mark.parametrize("strides", [(72, 280, 272), (73, 280, 272), (72, 281, 272)], ids=str)
def test_blocks_in_pairs(device, strides):
    # Rows begin in the middle of sectors, so that blocks share what both copy, in this form or another.
    cases = [
        Case(device, (250, N, 72), strides, blocks=(128, 256, 64), FORM="wraps", num_warps=8)
        for N in (264, 259)
    ]
    run(*cases)


def test_many_threads_at_once(device):
    # Several threads request each form before it is compiled.
    strides = [(40, 88, 144), (41, 88, 144), (40, 89, 144)] * 4
    cases = [
        Case(device, (72, 67 if number % 2 else 72, 40), stride, num_warps=2, num_stages=2)
        for number, stride in enumerate(strides)
    ]
    cases[0].launch()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Case.launch, cases))
    for case in cases:
        case.check()


@triton.jit
def two_products(
    a_ptr, b_ptr, d_ptr, c_ptr, M, N, sa, sb, sd, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """C = (A + D) @ B in two products, of one block."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    rows, columns = (m < M)[:, None], (n < N)[None, :]
    b = tl.load(b_ptr + k[:, None] * sb + n[None, :], mask=columns, other=0.0)
    acc = tl.dot(tl.load(a_ptr + m[:, None] * sa + k[None, :], mask=rows, other=0.0), b)
    acc = tl.dot(tl.load(d_ptr + m[:, None] * sd + k[None, :], mask=rows, other=0.0), b, acc)
    tl.store(c_ptr + m[:, None] * scm + n[None, :], acc.to(c_ptr.dtype.element_ty), mask=rows & columns)


def test_more_forms_than_are_kept(device):
    M, forms = 50, []
    for unfit in itertools.product([0, 1], repeat=4):
        N = 51 if unfit[3] else 56
        sa, sb, sd = 40 + unfit[0], 72 + unfit[1], 40 + unfit[2]
        a, d = (matrix(M, 32, stride, torch.float16, seed, device) for stride, seed in ((sa, 1), (sd, 2)))
        b = matrix(32, N, sb, torch.float16, 3, device)
        c = torch.full((M, 80), 7, dtype=torch.float16, device=device)
        with Launched() as launched:
            two_products[(1,)](a, b, d, c, M, N, sa, sb, sd, 80, 64, 64, 32, num_warps=4)
        assert torch.equal(c[:, :N].double(), (a.double() + d.double()) @ b.double())
        assert bool((c[:, N:] == 7).all())
        forms += launched.forms
    if HAS_TMA:
        assert len(set(forms)) == 9, forms
        assert forms[0] == ""
        assert all("any tensor copies" in form for form in forms[8:]), forms


@triton.autotune(
    configs=[triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=warps) for warps in (2, 4)], key=["M"]
)
@triton.jit
def tuned(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    a = tl.load(a_ptr + m[:, None] * sam + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
    b = tl.load(b_ptr + k[:, None] * sbk + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
    c_ptrs = c_ptr + m[:, None] * scm + n[None, :]
    tl.store(c_ptrs, tl.dot(a, b).to(c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def test_tuned_kernels(device):
    # The choice is made with rows that end within 16 bytes, and holds for others.
    cases = [Case(device, (50, N, 24), (40, 72, 80)) for N in (51, 56, 51)]
    with Launched() as launched:
        for case in cases:
            tuned[(1,)](case.a, case.b, case.whole[:50], *case.numbers)
    for case in cases:
        case.check()
    if HAS_TMA:
        ends = without(("to c_ptr", ROWS_END))
        assert launched.forms[-3:] == [ends, "", ends]
