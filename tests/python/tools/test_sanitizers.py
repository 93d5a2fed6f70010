"""The sanitizers find planted bugs, each at its line, and nothing in programs that are right.

Line and carets are found by what the kernel's text has between « and ».
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import torch
from conftest import DEVICE, ON_GPU, ROOT

import tilewright as triton
from tilewright import _pytest_plugin, sanitizer
from tilewright.errors import LaunchWarning, OutOfBoundsError, SanitizerError

pytestmark = pytest.mark.skipif(ON_GPU, reason="the sanitizers work on the CPU and in the simulator")
ON_CPU = DEVICE == "cpu"

tilewright_sanitize = _pytest_plugin.tilewright_sanitize
"""The package need not be installed for the tests."""


def marked(module, text):
    """The kernel of a text, the lines of what is between « and » in it, and the text beneath."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) for _ in range(line.count("«"))]
    made = module(text.replace("«", "").replace("»", ""))
    return made.kernel, lines


def found(kernel, grid, *args, **options):
    """The reports of a launch."""
    with sanitizer.sanitize(raises=False) as seen:
        kernel[grid](*args, **options)
    return seen.reports


ACCUMULATOR = """
@triton.jit
def kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0))
    «tl.store(total_ptr + 3, tl.load(total_ptr + 3) + part)»
"""


def test_1_a_race_on_an_accumulator(module, device):
    kernel, (line,) = marked(module, ACCUMULATOR.lstrip())
    x, total = torch.ones(256, device=device), torch.zeros(8, device=device)
    reports = found(kernel, (4,), x, total, 256, BLOCK=64)
    assert {report.code for report in reports} == {"TW0221"}
    assert {report.line for report in reports} == {report.other_line for report in reports} == {line}
    for report in reports:
        assert (report.check, report.argument, report.index) == ("race", "total_ptr", 3)
        assert report.program != report.other_program
        assert "tl.atomic_add" in str(report)


def test_the_same_by_atomics_is_clean(module, device, tilewright_sanitize):
    text = ACCUMULATOR.replace(
        "«tl.store(total_ptr + 3, tl.load(total_ptr + 3) + part)»", "tl.atomic_add(total_ptr + 3, part)"
    )
    x, total = torch.ones(256, device=device), torch.zeros(8, device=device)
    module(text).kernel[(4,)](x, total, 256, BLOCK=64)
    assert total[3] == 256


OUT_OF_BOUNDS = {
    "one lane of one program": (
        """
@triton.jit
def kernel(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i)
    tl.store(out_ptr + i, «tl.load(x_ptr + index)»)
""",
        lambda: [
            torch.zeros(10),
            (torch.arange(256) % 10).where(torch.arange(256) != 165, torch.tensor(10)),
            torch.zeros(256),
        ],
        {"BLOCK": 64},
        (4,),
        ("`x_ptr`", "element 10"),
    ),
    "missing mask": (
        """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    «tl.store(out_ptr + i, x + 1.0)»
""",
        lambda: [torch.zeros(100), torch.zeros(100), 100],
        {"BLOCK": 64},
        (2,),
        ("`out_ptr`", "element 100"),
    ),
    "off by one in a loop": (
        """
@triton.jit
def kernel(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(0, n + 1):
        total += «tl.load(x_ptr + i)»
    tl.store(out_ptr, total)
""",
        lambda: [torch.zeros(7), torch.zeros(1), 7],
        {},
        (1,),
        ("`x_ptr`", "element 7"),
    ),
    "wrong stride": (
        """
@triton.jit
def kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = «tl.load(x_ptr + row * rows + i, mask=i < columns, other=0.0)»
    tl.store(out_ptr + row, tl.sum(x))
""",
        lambda: [torch.zeros(12, 5), torch.zeros(12), 12, 5],
        {"BLOCK": 8},
        (12,),
        ("`x_ptr`", "element 60"),
    ),
}


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_2_to_5_out_of_bounds(name, module, device):
    """Found before it happens: nothing is written there, and the launch ends."""
    text, make, options, grid, words = OUT_OF_BOUNDS[name]
    kernel, (line,) = marked(module, text.lstrip())
    # A host that lends numpy's memory knows where it ends; torch's allocations end where their tensors do.
    with pytest.raises(OutOfBoundsError) as caught, sanitizer.sanitize(raises=False):
        kernel[grid](*make(), **options)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.line == line
    for word in words:
        assert word in str(caught.value)


UNINITIALIZED = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, «tl.load(x_ptr + i, mask=i < n)», mask=i < n)
"""


def test_6_an_uninitialized_read(module, device):
    kernel, (line,) = marked(module, UNINITIALIZED.lstrip())
    with sanitizer.sanitize(raises=False) as seen:
        x, out = torch.empty(100, device=device), torch.empty(100, device=device)
        x[:70] = 1.0
        kernel[(2,)](x, out, 100, BLOCK=64)
    (report,) = seen.reports
    assert (report.check, report.code, report.line) == ("init", "TW0222", line)
    assert (report.argument, report.index, report.program) == ("x_ptr", 70, (1, 0, 0))


def test_what_writes_memory(module, device, tilewright_sanitize):
    """Operations of torch, numpy and kernels write; views of an empty tensor are the same memory."""
    kernel, _ = marked(module, UNINITIALIZED.lstrip())
    a, b, c = (torch.empty(100, device=device) for _ in range(3))
    d, e = torch.empty_like(a), a.new_empty((100,))
    a.fill_(1.0)
    torch.add(a, a, out=b)
    c.view(10, 10)[:, :] = b.view(10, 10)
    kernel[(2,)](c, d, 100, BLOCK=64)
    kernel[(2,)](d, e, 100, BLOCK=64)
    kernel[(2,)](e + 1, torch.empty(100, device=device), 100, BLOCK=64)
    if device == "cpu":
        f = torch.empty(100)
        f.numpy()[:] = 3
        kernel[(2,)](f, torch.empty(100), 100, BLOCK=64)
    assert (d == 2).all()
    assert not tilewright_sanitize.reports
    # The allocator may give the memory of an empty tensor to one that has content.
    for _ in range(20):
        g = torch.empty(100, device=device)
        del g
        kernel[(2,)](torch.ones(100, device=device), d, 100, BLOCK=64)


OVERLAPPING = """
@triton.jit
def kernel(out_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * (BLOCK - 1) + tl.arange(0, BLOCK)
    «tl.store(out_ptr + i, pid)»
"""


def test_7_overlapping_stores(module, device):
    kernel, (line,) = marked(module, OVERLAPPING.lstrip())
    (report,) = found(kernel, (3,), torch.full((100,), -1, dtype=torch.int32, device=device), BLOCK=32)
    assert (report.check, report.line, report.other_line) == ("race", line, line)
    assert (report.argument, report.index) == ("out_ptr", 31)
    assert {report.program, report.other_program} == {(0, 0, 0), (1, 0, 0)}
    assert report.count >= 2


PRODUCER = """
@triton.jit
def kernel(data_ptr, flag_ptr, out_ptr, BLOCK: tl.constexpr, RELAXED: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        «tl.store(data_ptr + i, i + 7)»
        if RELAXED:
            tl.atomic_xchg(flag_ptr, 1, sem="relaxed")
        else:
            tl.atomic_xchg(flag_ptr, 1, sem="release")
    else:
        if RELAXED:
            while tl.atomic_add(flag_ptr, 0, sem="relaxed") == 0:
                pass
        else:
            while tl.atomic_add(flag_ptr, 0, sem="acquire") == 0:
                pass
        tl.store(out_ptr + i, «tl.load(data_ptr + i)»)
"""


@pytest.mark.parametrize("relaxed", [True, False])
def test_8_a_consumer_that_does_not_acquire(relaxed, module, device):
    """A flag that orders nothing says that the data are there when they may not be."""
    kernel, (store, load) = marked(module, PRODUCER.lstrip())
    data, flag, out = (torch.zeros(n, dtype=torch.int32, device=device) for n in (32, 1, 32))
    reports = found(kernel, (2,), data, flag, out, BLOCK=32, RELAXED=relaxed)
    if not relaxed:
        assert (out == torch.arange(32, device=device) + 7).all()
        assert not reports
        return
    (report,) = reports
    assert (report.code, report.line, report.other_line) == ("TW0221", load, store)
    assert (report.program, report.other_program) == ((1, 0, 0), (0, 0, 0))
    assert report.argument == "data_ptr"
    assert "acquire" in str(report)


IN_ONE_TILE = """
@triton.jit
def kernel(x_ptr, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = «tl.load(x_ptr + i)»
    if BARRIER:
        tl.debug_barrier()
    «tl.store(x_ptr + i + 1, x)»
"""


@pytest.mark.parametrize("barrier", [False, True])
def test_9_a_shift_in_one_tile(barrier, module, device):
    """The CPU asks what any compiler may make of it; the simulator runs code in which a barrier is."""
    kernel, (load, store) = marked(module, IN_ONE_TILE.lstrip())
    x = torch.arange(513.0, device=device)
    reports = found(kernel, (1,), x, BARRIER=barrier, BLOCK=512)
    if barrier or not ON_CPU:
        assert not reports
        assert (x[1:] == torch.arange(512.0, device=device)).all()
        return
    assert reports
    for report in reports:
        assert (report.check, report.argument) == ("race", "x_ptr")
        assert {report.line, report.other_line} == {load, store}
        assert "tl.debug_barrier()" in str(report)


SAME_PLACE = """
@triton.jit
def kernel(out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    «tl.store(out_ptr + i // 2, i)»
"""


def test_10_two_lanes_store_to_one_place(module, device):
    kernel, (line,) = marked(module, SAME_PLACE.lstrip())
    reports = found(kernel, (1,), torch.zeros(64, dtype=torch.int32, device=device), BLOCK=128)
    assert reports
    assert {(report.check, report.line, report.other_line) for report in reports} == {("race", line, line)}
    kernel = marked(module, SAME_PLACE.replace(", i)", ", i // 2)").lstrip())[0]
    assert not found(kernel, (1,), torch.zeros(64, dtype=torch.int32, device=device), BLOCK=128)


PROMISE = """
@triton.jit
def kernel(x_ptr, out_ptr, start, BLOCK: tl.constexpr):
    i = «tl.multiple_of(start, 16)» + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.arange(0, BLOCK), «tl.load(x_ptr + i)»)
"""


def test_11_a_misaligned_vector_access(module, device):
    """A promise that does not hold: the CPU checks the promise, the simulator meets the access."""
    kernel, (promise, load) = marked(module, PROMISE.lstrip())
    x, out = torch.zeros(1024, device=device), torch.zeros(512, device=device)
    if not ON_CPU:
        with pytest.raises(triton.errors.ExecutionError, match="misaligned load") as caught:
            found(kernel, (1,), x, out, 5, BLOCK=512)
        assert caught.value.diagnostics[0].line == load
        return
    (report,) = found(kernel, (1,), x, out, 5, BLOCK=512)
    assert (report.check, report.code, report.line) == ("alignment", "TW0223", promise)
    assert not found(kernel, (1,), x, out, 32, BLOCK=512)


def test_11_an_access_between_elements(module, device):
    kernel, (line,) = marked(
        module,
        """
@triton.jit
def kernel(x_ptr, out_ptr):
    p = (x_ptr + 1).to(tl.pointer_type(tl.int32))
    tl.store(out_ptr, «tl.load(p)»)
""".lstrip(),
    )
    x, out = torch.zeros(8, dtype=torch.int8, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    if not ON_CPU:
        with pytest.raises(triton.errors.ExecutionError, match="misaligned load"):
            found(kernel, (1,), x, out)
        return
    (report,) = found(kernel, (1,), x, out)
    assert (report.check, report.line, report.argument) == ("alignment", line, "x_ptr")


NAN = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    ratio = «x / x»
    y = tl.sqrt(ratio) + 1.0
    tl.store(out_ptr + i, y, mask=i < n)
"""

cpu_only = pytest.mark.skipif(not ON_CPU, reason="examples take long in the simulator")


def test_12_nan_of_0_by_0(module):
    """At the op that makes it, not at those that hand it on, nor where a mask leaves it out."""
    kernel, (line,) = marked(module, NAN.lstrip())
    x = torch.ones(100)
    assert not found(kernel, (2,), x, torch.zeros(100), 100, BLOCK=64)
    x[71] = 0
    (report,) = found(kernel, (2,), x, torch.zeros(100), 100, BLOCK=64)
    assert (report.check, report.code, report.line) == ("nan", "TW0225", line)
    assert (report.program, report.lane) == ((1, 0, 0), (7,))
    x[71] = float("nan")
    assert not found(kernel, (2,), x, torch.zeros(100), 100, BLOCK=64), "it comes from memory"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_12_nan_that_is_stored_as_fp8(module, name):
    kernel, (line,) = marked(
        module,
        """
@triton.jit
def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = «x / x»
    tl.store(out_ptr + i, y.to(out_ptr.dtype.element_ty))
""".lstrip(),
    )
    x = torch.ones(32)
    out = torch.empty(32, dtype=getattr(torch, name))
    assert not found(kernel, (1,), x, out, BLOCK=32)
    x[3] = 0
    (report,) = found(kernel, (1,), x, out, BLOCK=32)
    assert (report.check, report.line, report.lane) == ("nan", line, (3,))


def test_12_infinity_of_a_narrow_type(module):
    kernel, (line,) = marked(
        module,
        """
@triton.jit
def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, «(tl.load(x_ptr + i) * 1000.0).to(tl.float16)»)
""".lstrip(),
    )
    (report,) = found(kernel, (1,), torch.full((16,), 100.0), torch.zeros(16, dtype=torch.float16), BLOCK=16)
    assert (report.check, report.line) == ("nan", line)
    assert "infinity" in report.message


OVERFLOW = """
@triton.jit
def kernel(x_ptr, out_ptr, stride, back):
    row = tl.program_id(0)
    offset = «row * stride»
    tl.store(out_ptr + row, tl.load(x_ptr + (offset - offset) + back))
"""


def test_13_an_offset_that_wraps(module):
    kernel, (line,) = marked(module, OVERFLOW.lstrip())
    out = torch.zeros(3)
    (report,) = found(kernel, (3,), torch.zeros(3), out, 1 << 30, 0)
    assert (report.check, report.code, report.line) == ("overflow", "TW0224", line)
    assert report.program == (2, 0, 0)
    assert "2147483648" in str(report)
    assert "tl.int64" in str(report)
    assert not found(kernel, (3,), torch.zeros(3), out, 1 << 29, 0)


OTHER = """
@triton.jit
def kernel(x_ptr, out_ptr, n, FILLED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if FILLED:
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    else:
        x = «tl.load(x_ptr + i, mask=i < n)»
    tl.store(out_ptr + i, x * 2, mask=i < n)
    kept = tl.where(i < n, x, 0.0)
    tl.store(out_ptr, tl.sum(kept))
    «tl.store(out_ptr + 1, tl.sum(x * x))»
"""


@pytest.mark.parametrize("filled", [False, True])
def test_14_a_masked_lane_that_has_no_value(filled, module):
    kernel, (load, store) = marked(module, OTHER.lstrip())
    x = torch.ones(100)
    (*reports,) = (
        one
        for one in found(kernel, (1,), x, torch.zeros(128), 100, FILLED=filled, BLOCK=128)
        if one.check == "init"
    )
    if filled:
        assert not reports
        return
    (report,) = reports
    assert (report.code, report.line) == ("TW0226", store)
    assert f"{load}" in str(report)
    assert "other=" in str(report)


DESCRIPTOR = """
@triton.jit
def kernel(x_ptr, out_ptr, M, N, stride, shift, ROWS: tl.constexpr):
    x = «tl.make_tensor_descriptor(x_ptr + shift, shape=[M, N], strides=[stride, 1], block_shape=[ROWS, 16])»
    i = tl.arange(0, ROWS)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(out_ptr + i, x.load([0, 0]))
"""


@pytest.mark.parametrize(
    ("stride", "shift", "words"),
    [
        (16, 0, ()),
        (20, 0, ()),
        (18, 0, ("stride 0 of a tensor descriptor", "it is 18 elements, 72 bytes")),
        (16, 2, ("the base of a tensor descriptor", "8 bytes after a multiple of 16")),
    ],
)
def test_15_a_misaligned_descriptor(stride, shift, words, module, device):
    """A GPU's tensor copies take none of the last two; what is wrong is named."""
    kernel, (line,) = marked(module, DESCRIPTOR.lstrip())
    x, out = torch.arange(400.0, device=device), torch.zeros(8, 16, device=device)
    reports = found(kernel, (1,), x, out, 8, 16, stride, shift, ROWS=8)
    # It works all the same, without the copies of a GPU.
    assert torch.equal(out, torch.as_strided(x, (8, 16), (stride, 1), shift))
    if not words:
        assert not reports
        return
    (report,) = reports
    assert (report.check, report.code, report.line) == ("alignment", "TW0223", line)
    for word in words:
        assert word in str(report)


def test_15_a_misaligned_descriptor_of_the_host(device):
    """The host's descriptor is refused where it is made."""
    from tilewright.tools.tensor_descriptor import TensorDescriptor

    x = torch.zeros(400, device=device)
    for view, words in [
        (torch.as_strided(x, (8, 16), (16, 1), 1), "base must be 16-byte aligned"),
        (
            torch.as_strided(x, (8, 16), (18, 1)),
            "strides must be 16-byte aligned: that of axis 0 is 18 elements",
        ),
    ]:
        with pytest.raises(triton.errors.TensorDescriptorError, match=words) as caught:
            TensorDescriptor.from_tensor(view, [8, 16])
        assert caught.value.code == "TW0223"
        assert "TW0223" in str(caught.value)


LOCK = """
@triton.jit
def kernel(lock_ptr, count_ptr, x_ptr, sums_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + i)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(count_ptr) == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        x += tl.load(sums_ptr + i)
    tl.store(sums_ptr + i, x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)
"""


def test_a_lock_orders_programs(module, device, tilewright_sanitize):
    x = torch.arange(4 * 64.0, device=device)
    lock, count = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
    sums = torch.zeros(64, device=device)
    module(LOCK).kernel[(4,)](lock, count, x, sums, BLOCK=64)
    assert (sums == x.view(4, 64).sum(0)).all()


def test_without_the_lock_it_races(module, device):
    text = LOCK.replace("    while tl.atomic_cas(lock_ptr, 0, 1) == 1:\n        pass\n", "")
    x = torch.arange(4 * 64.0, device=device)
    lock, count = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
    reports = found(module(text).kernel, (4,), lock, count, x, torch.zeros(64, device=device), BLOCK=64)
    assert "sums_ptr" in {report.argument for report in reports}


def test_what_a_block_raises(module, device):
    kernel, _ = marked(module, OVERLAPPING.lstrip())
    out = torch.zeros(100, dtype=torch.int32, device=device)

    def launch():
        with sanitizer.sanitize("race"):
            kernel[(3,)](out, BLOCK=32)
            assert sanitizer.checks() == ("race",)

    with pytest.raises(SanitizerError, match="TW0221") as caught:
        launch()
    assert caught.value.code == "TW0221"
    assert caught.value.reports[0].kernel == "kernel"
    before = os.environ.get("TILEWRIGHT_SANITIZE")
    assert not before
    assert not sanitizer.checks()
    kernel[(3,)](out, BLOCK=32)
    assert not sanitizer.reports()


def test_the_option_of_a_launch(module, device):
    """Findings are raised at the launch, and no other launch is checked."""
    kernel, (line,) = marked(module, OVERLAPPING.lstrip())
    out = torch.zeros(100, dtype=torch.int32, device=device)
    for checks in (True, "race", "race,init", ("race", "nan"), ["race"]):
        with pytest.raises(SanitizerError, match="TW0221") as caught:
            kernel[(3,)](out, BLOCK=32, sanitize=checks)
        (report,) = caught.value.reports
        assert (report.check, report.line, caught.value.code) == ("race", line, "TW0221")
    for checks in (False, None, "", "init,nan", ()):
        kernel[(3,)](out, BLOCK=32, sanitize=checks)
    kernel[(3,)](out, BLOCK=32)
    assert not sanitizer.checks()
    assert not sanitizer.reports()
    compiled = kernel.warmup(out, BLOCK=32, grid=(3,), sanitize=True)
    compiled[(3,)](out)
    with pytest.raises(SanitizerError, match="TW0221"):
        compiled[(3,)](out, sanitize="race")


def test_the_option_of_a_launch_beside_the_others(module, device):
    """Checks of a launch take the place of those of a block, and its findings are its own."""
    kernel, _ = marked(module, OVERLAPPING.lstrip())
    out = torch.zeros(100, dtype=torch.int32, device=device)
    with sanitizer.sanitize("race", raises=False) as seen:
        kernel[(3,)](out, BLOCK=32, sanitize="nan")
        assert not seen.reports
        with pytest.raises(SanitizerError):
            kernel[(3,)](out, BLOCK=32, sanitize="race", num_warps=2)
        assert not seen.reports
        kernel[(3,)](out, BLOCK=32, num_warps=2)
        assert len(seen.reports) == 1


def test_what_ends_a_launch_goes_before_what_is_found(module, device):
    kernel, _ = marked(
        module,
        """
@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i // 2, i)
    tl.store(x_ptr + i + tl.program_id(0) * 1000, i)
""".lstrip(),
    )
    sanitizer.clear()
    with pytest.raises(OutOfBoundsError):
        kernel[(2,)](torch.zeros(64, dtype=torch.int32, device=device), BLOCK=64, sanitize="race")
    assert {report.code for report in sanitizer.reports()} == {"TW0221"}
    sanitizer.clear()


def test_the_option_of_an_autotuned_kernel(module, device):
    kernel = module(
        """
@triton.autotune(configs=[triton.Config({"BLOCK": 32}, num_warps=2)], key=[])
@triton.jit
def kernel(out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.program_id(0))
"""
    ).kernel
    with pytest.raises(SanitizerError, match="TW0221"):
        kernel[(3,)](torch.zeros(100, dtype=torch.int32, device=device), sanitize=True)


@pytest.mark.parametrize("value", ["rice", 3, ("race", 3), object()])
def test_an_option_that_names_no_check(value, module, device):
    kernel, _ = marked(module, OVERLAPPING.lstrip())
    out = torch.zeros(100, dtype=torch.int32, device=device)
    with pytest.raises(triton.errors.LaunchValueError, match="bounds, race, init, alignment") as caught:
        kernel[(3,)](out, BLOCK=32, sanitize=value)
    assert caught.value.code == "TW0108"


@pytest.mark.skipif(ON_CPU, reason="the simulator runs a kernel on the CPU first")
def test_the_simulator_sees_memory_as_it_was(module, device, capfd):
    """A run on the CPU, which leaves no trace, checks the kernel."""
    kernel, (line,) = marked(
        module,
        """
@triton.jit
def kernel(x_ptr, count_ptr):
    tl.atomic_add(count_ptr, 1)
    x = tl.load(x_ptr)
    tl.store(x_ptr, «x / x» + 1.0)
    tl.device_print("x", x)
""".lstrip(),
    )
    x, count = torch.zeros(1, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    (report,) = found(kernel, (1,), x, count)
    assert (report.check, report.line) == ("nan", line)
    assert count.item() == 1
    assert capfd.readouterr().out.count("x: ") == 1


def test_a_check_that_is_none():
    with pytest.raises(ValueError, match=r"TW0108.*no check is called 'rice'") as caught:
        sanitizer.enable("race", "rice")
    assert caught.value.code == "TW0108"
    lines = str(caught.value).splitlines()
    assert lines[1:] == [
        "  = note: the checks are bounds, race, init, alignment, overflow, nan",
        "  = help: did you mean 'race'?",
    ]
    with pytest.raises(ValueError, match="help: separate checks by commas"):
        sanitizer.enable("thread")


PROGRAM = """
import torch, triton, triton.language as tl

@triton.jit
def shared(x):
    i = tl.program_id(0) * (32 - BY) + tl.arange(0, 32)
    tl.store(x + i, tl.program_id(0))

BY = tl.constexpr(int(__import__("sys").argv[1]))
shared[(3,)](torch.zeros(96))
print("went on")
"""


def test_the_run_command(run, script, device):
    """Findings are printed with their carets, the program goes on, and the exit code says that there are some."""
    path = script(PROGRAM)
    bad = run("-m", "tilewright", "run", "--sanitize", path, "1")
    assert (bad.code, bad.out) == (1, "went on\n"), bad.err
    assert "error[TW0221]" in bad.err
    assert "^^^" in bad.err
    assert "tilewright sanitizer: 1 finding: 1 of race" in bad.err
    good = run("-m", "tilewright", "run", "--sanitize=race,init", path, "0")
    assert (good.code, good.out) == (0, "went on\n"), good.err
    assert "tilewright sanitizer: no findings" in good.err
    wrong = run("-m", "tilewright", "run", "--sanitize=rice", path, "0")
    assert wrong.code == 2
    assert "no check is called 'rice'" in wrong.err
    by_variable = run("-m", "tilewright", "run", path, "1", env={"TILEWRIGHT_SANITIZE": "race"})
    assert "error[TW0221]" in by_variable.err
    wrong = run("-m", "tilewright", "run", path, "0", env={"TILEWRIGHT_SANITIZE": "rice"})
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 3)
    assert wrong.err.startswith("error[TW0108]: TILEWRIGHT_SANITIZE: no check is called 'rice'\n")
    activated = "import _tilewright_startup as s; s.watch('1')\nimport triton"
    wrong = run("-c", activated, env={"TILEWRIGHT_SANITIZE": "rice"})
    assert (wrong.code, wrong.out) == (1, "")
    assert "tilewright.errors.LaunchValueError: error[TW0108]: TILEWRIGHT_SANITIZE" in wrong.err
    frames = [line for line in wrong.err.splitlines() if line.startswith("  File") and "<frozen" not in line]
    assert len(frames) == 2, wrong.err


def test_a_program_that_ends_with_an_error_has_no_empty_summary(run, script):
    failing = script("import triton\nraise ValueError\n")
    for arguments, env in (
        (("-m", "tilewright", "run", "--sanitize", failing), {}),
        (("-m", "tilewright", "run", "--sanitize", "absent.py"), {}),
        ((failing,), {"TILEWRIGHT_SANITIZE": "1"}),
    ):
        if env:
            script("import tilewright\nraise ValueError\n")
        done = run(*arguments, env=env)
        assert done.code != 0
        assert "tilewright sanitizer:" not in done.err
    # With findings there is one.
    racy = script(PROGRAM + "\nraise ValueError\n")
    done = run("-m", "tilewright", "run", "--sanitize", racy, "1")
    assert done.err.endswith("tilewright sanitizer: 1 finding: 1 of race\n")


def test_launches_that_are_not_checked_have_no_empty_summary(run, script):
    env = {"TRITON_INTERPRET": "1"}
    done = run("-m", "tilewright", "run", "--sanitize", script(PROGRAM), "1", env=env)
    assert "is interpreted, and interpret mode checks only" in done.err
    assert "tilewright sanitizer:" not in done.err


@pytest.mark.nightly
@cpu_only
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_clean(example, run_forked):
    result = run_forked("-m", "tilewright", "run", "--sanitize", example)
    assert result.code == 0, result.err
    assert "tilewright sanitizer: no findings" in result.err


def test_interpreted_kernels_have_their_bounds_checked_and_say_so(module):
    kernels = module("""
        @triton.jit(interpret=True)
        def accumulate(x_ptr, acc_ptr, BLOCK: tl.constexpr):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(acc_ptr, tl.load(acc_ptr) + tl.sum(tl.load(x_ptr + at)))
    """)
    x, acc = np.ones(8, np.float32), np.zeros(1, np.float32)
    with sanitizer.sanitize("bounds"), warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels.accumulate[(2,)](x, acc, BLOCK=4)
    with sanitizer.sanitize(raises=False) as found, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            kernels.accumulate[(2,)](x, acc, BLOCK=4)
        with pytest.raises(OutOfBoundsError):
            kernels.accumulate[(3,)](x, acc, BLOCK=4)
    (warning,) = warned
    assert warning.category is LaunchWarning
    assert "'accumulate' is interpreted" in str(warning.message)
    assert warning.filename == __file__
    assert "(race, init, alignment, overflow, nan)" in str(warning.message)
    # Programs of an interpreted kernel run one after the other: what races would be is not looked for.
    assert not [report for report in found.reports if report.check != "bounds"]
    assert acc[0] >= 24
