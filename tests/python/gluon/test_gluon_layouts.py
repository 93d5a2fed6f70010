"""Layouts of Gluon: where each element of a tile is, against the official package, and their errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import torch

import tilewright
from tilewright import _native
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl

BLOCKED = "gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])"
MMA = "gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])"
WGMMA = "gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])"

REGISTERS = [
    (BLOCKED, [32, 64]),
    (BLOCKED, [4, 8]),
    ("gl.BlockedLayout([2, 1], [8, 4], [1, 4], [0, 1])", [64, 32]),
    ("gl.BlockedLayout([1, 2, 2], [4, 4, 2], [1, 2, 2], [2, 0, 1])", [8, 16, 16]),
    ("gl.BlockedLayout([8], [32], [4], [0])", [256]),
    (f"gl.SliceLayout(1, {BLOCKED})", [64]),
    (f"gl.SliceLayout(0, {BLOCKED})", [128]),
    (MMA, [64, 64]),
    (MMA, [16, 16]),
    (f"gl.SliceLayout(1, {MMA})", [64]),
    (f"gl.DotOperandLayout(0, {MMA}, 2)", [64, 32]),
    (f"gl.DotOperandLayout(1, {MMA}, 2)", [32, 64]),
    (f"gl.DotOperandLayout(0, {MMA}, 4)", [64, 64]),
    (f"gl.DotOperandLayout(1, {MMA}, 1)", [32, 64]),
    (f"gl.DotOperandLayout(0, {MMA}, 8)", [64, 64]),
    (f"gl.DotOperandLayout(1, {MMA}, 8)", [64, 32]),
    ("gl.NVMMADistributedLayout([2, 0], [2, 2, 1], [1, 16, 8])", [4, 32, 16]),
    (WGMMA, [64, 64]),
    (WGMMA, [128, 32]),
    (f"gl.SliceLayout(0, {WGMMA})", [64]),
    (f"gl.DotOperandLayout(0, {WGMMA}, 2)", [64, 64]),
    (
        "gl.DistributedLinearLayout([[1], [32]], [[2], [4], [8], [16], [0]], [[64], [0]], [], [128])",
        [128],
    ),
]

BUFFERS = [
    ("gl.SwizzledSharedLayout(1, 1, 1, [1, 0])", [8, 16]),
    ("gl.SwizzledSharedLayout(1, 1, 1, [0, 1])", [8, 16]),
    ("gl.SwizzledSharedLayout(4, 1, 8, [1, 0])", [16, 64]),
    ("gl.SwizzledSharedLayout(8, 2, 4, [1, 0])", [16, 32]),
    ("gl.SwizzledSharedLayout(4, 1, 4, [0, 1])", [32, 16]),
    ("gl.NVMMASharedLayout(128, 16, 2)", [16, 64]),
    ("gl.NVMMASharedLayout(64, 16, 2)", [16, 32]),
    ("gl.NVMMASharedLayout(32, 32, 2)", [16, 8]),
    ("gl.NVMMASharedLayout(0, 16, 2)", [8, 16]),
    ("gl.SharedLinearLayout([[0, 1], [0, 2], [1, 0], [2, 2]])", [4, 4]),
]

# Shape, element type, whether the first axis is the fastest, and the bases of the blocks of a cluster.
DEFAULTS = [
    (shape, dtype, transposed, [])
    for shape in (
        [64, 64],
        [64, 32],
        [64, 8],
        [1, 64],
        [4, 128],
        [64, 4],
        [4, 8, 64],
        [2, 64, 16],
        [64],
        [16],
    )
    for dtype in ("float16", "float32", "int8", "float8e5")
    for transposed in (False, True)
] + [
    (shape, "float16", transposed, blocks)
    for shape in ([64, 64], [128, 32], [16, 128])
    for transposed in (False, True)
    for blocks in ([[1, 0]], [[0, 1]], [[0, 1], [0, 2]], [[1, 0], [0, 1]], [[0, 0]])
]

OFFICIAL = """
import json, sys
from triton.experimental.gluon import language as gl
cases, defaults = json.load(sys.stdin)
views = [eval(text).format_tensor_view(shape) for text, shape in cases]
default = gl.NVMMASharedLayout.get_default_for
layouts = [default(shape, getattr(gl, dtype), flag, cga_layout=blocks) for shape, dtype, flag, blocks in defaults]
widths = [layout.swizzle_byte_width for layout in layouts]
print(json.dumps([views, widths]))
"""


@pytest.fixture(scope="module")
def official():
    """The tables of the layouts, and the widths of the default layouts, by the official package."""
    cases = [*REGISTERS, *BUFFERS]
    done = subprocess.run(
        [sys.executable, "-I", "-c", OFFICIAL],
        input=json.dumps([cases, DEFAULTS]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("the official triton is not installed")
    views, widths = json.loads(done.stdout)
    return {(text, tuple(shape)): view for (text, shape), view in zip(cases, views, strict=True)}, widths


@pytest.fixture
def official_views(official):
    """The tables of the official package, by layout and shape."""
    return official[0]


def places(text, shape):
    """The elements in row-major order, each with the hardware indices that hold it."""
    layout = eval(text, {"gl": gl})
    bases = dict(_native.gluon_layout_bases(layout._text, shape, getattr(layout, "element_bitwidth", 32)))
    found = {}
    inputs = [(name, len(bases[name])) for name in ("register", "lane", "warp", "offset")]
    for place in range(1 << sum(bits for _, bits in inputs)):
        at, index, rest = [0] * len(shape), {}, place
        for name, bits in inputs:
            index[name] = rest & ((1 << bits) - 1)
            rest >>= bits
            for bit, basis in enumerate(bases[name]):
                if index[name] >> bit & 1:
                    at = [a ^ b for a, b in zip(at, basis, strict=True)]
        flat = 0
        for coordinate, extent in zip(at, shape, strict=True):
            flat = flat * extent + coordinate
        found.setdefault(flat, set()).add(
            (index["warp"] * 32 + index["lane"], index["register"], index["offset"])
        )
    return [found[flat] for flat in sorted(found)]


def test_elements_are_where_the_official_package_has_them(official_views):
    wrong = []
    for text, shape in REGISTERS:
        cells = re.findall(r"[^,\[\]]+", official_views[text, tuple(shape)].replace("\n", ","))
        expected = [
            {(int(thread), int(register)) for thread, register in re.findall(r"T\s*(\d+):\s*(\d+)", cell)}
            for cell in cells
            if "T" in cell
        ]
        found = [{(thread, register) for thread, register, _ in cell} for cell in places(text, shape)]
        if "DotOperandLayout(1" in text:
            # The registers of operand B repeat along N first here, and along K first there.
            found, expected = (
                [{thread for thread, _ in cell} for cell in cells] for cells in (found, expected)
            )
        if found != expected:
            wrong.append(text)
    assert wrong == []


def test_buffers_are_those_of_the_official_package(official_views):
    wrong = []
    for text, shape in BUFFERS:
        cells = re.findall(r"\(\s*(\d+):\s*(\d+)\)", official_views[text, tuple(shape)])
        # The table lists the element at each offset.
        expected = [int(row) * shape[1] + int(column) for row, column in cells]
        offsets = {
            offset: element for element, cell in enumerate(places(text, shape)) for _, _, offset in cell
        }
        found = [offsets[offset] for offset in sorted(offsets)]
        if found != expected:
            wrong.append((text, found[:20], expected[:20]))
    assert wrong == []


CONFLICTS = [
    (
        "gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])",
        "gl.SwizzledSharedLayout(1, 1, 1, [0, 1])",
        "float32",
    ),
    (
        "gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])",
        "gl.SwizzledSharedLayout(1, 1, 1, [1, 0])",
        "float32",
    ),
    (
        "gl.BlockedLayout([8, 1], [8, 4], [1, 4], [0, 1])",
        "gl.SwizzledSharedLayout(8, 1, 8, [1, 0])",
        "float16",
    ),
    (
        "gl.BlockedLayout([1, 8], [32, 1], [4, 1], [1, 0])",
        "gl.SwizzledSharedLayout(1, 1, 1, [1, 0])",
        "float16",
    ),
    ("gl.BlockedLayout([1, 8], [32, 1], [4, 1], [1, 0])", "gl.NVMMASharedLayout(128, 16, 2)", "float16"),
    (
        "gl.BlockedLayout([1, 2], [32, 1], [4, 1], [1, 0])",
        "gl.SwizzledSharedLayout(1, 1, 1, [1, 0])",
        "float32",
    ),
    ("gl.BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0])", "gl.SwizzledSharedLayout(1, 1, 1, [1, 0])", "int8"),
    (MMA, "gl.SwizzledSharedLayout(4, 1, 8, [1, 0])", "float32"),
]

CONFLICTS_OF_OFFICIAL = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource


@gluon.jit
def kernel(TILE: gl.constexpr, MEMORY: gl.constexpr, TYPE: gl.constexpr):
    x = gl.full([128, 64], 0, TYPE, TILE)
    memory = gl.allocate_shared_memory(TYPE, [128, 64], MEMORY, x)
    gl.static_print(gl.bank_conflicts(x.type, memory.type))


for tile, memory, dtype in json.load(sys.stdin):
    values = eval(tile), eval(memory), getattr(gl, dtype)
    names = ("TILE", "MEMORY", "TYPE")
    source = GluonASTSource(
        kernel, dict.fromkeys(names, "constexpr"), {(index,): value for index, value in enumerate(values)}
    )
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
"""


@gluon.jit
def conflicts_of(TILE: gl.constexpr, MEMORY: gl.constexpr, TYPE: gl.constexpr, EXPECTED: gl.constexpr):
    x = gl.full([128, 64], 0, TYPE, TILE)
    memory = gl.allocate_shared_memory(TYPE, [128, 64], MEMORY, x)
    gl.static_assert(gl.bank_conflicts(x.type, memory.type) == EXPECTED)
    tile: gl.constexpr = gl.distributed_type(TYPE, [128, 64], TILE)
    shared: gl.constexpr = gl.shared_memory_descriptor_type(TYPE, [128, 64], MEMORY, [128, 64])
    gl.static_assert(gl.bank_conflicts(tile, shared) == EXPECTED)


def test_bank_conflicts_are_those_of_the_official_package(device, tmp_path):
    program = tmp_path / "conflicts.py"
    program.write_text(CONFLICTS_OF_OFFICIAL)
    done = subprocess.run(
        [sys.executable, "-I", program],
        # A kernel in the cache prints nothing.
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        input=json.dumps(CONFLICTS),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("the official triton is not installed")
    expected = [int(line) for line in done.stdout.split()]
    assert len(expected) == len(CONFLICTS)
    assert len(set(expected)) > 2
    for (tile, memory, dtype), conflicts in zip(CONFLICTS, expected, strict=True):
        conflicts_of[(1,)](eval(tile), eval(memory), getattr(gl, dtype), conflicts)


@gluon.jit
def mismatched(layout: gl.constexpr, shared: gl.constexpr):
    x = gl.full([64, 64], 0, gl.float32, layout)
    memory = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
    gl.bank_conflicts(x.type, memory.type)


def test_bank_conflicts_of_other_types_are_an_error(device):
    with pytest.raises(tilewright.CompilationError, match="is not accessed by") as raised:
        mismatched[(1,)](eval(BLOCKED), gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    assert raised.value.code == "TW0005"


def test_views_name_threads():
    table = gl.BlockedLayout([2], [32], [1], [0]).format_tensor_view([64])
    assert table.splitlines()[0].split()[:6] == ["l0", "r0", "l0", "r1", "l1", "r0"]
    assert "l31 r1  (63)" in gl.BlockedLayout([2], [32], [1], [0]).format_hardware_view([64])


def test_default_layouts_of_tensor_copies():
    assert gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16) == gl.NVMMASharedLayout(128, 16, 2)
    assert gl.NVMMASharedLayout.get_default_for([64, 32], gl.float16) == gl.NVMMASharedLayout(64, 16, 2)
    assert gl.NVMMASharedLayout.get_default_for([64, 8], gl.float32) == gl.NVMMASharedLayout(32, 32, 2)
    assert gl.NVMMASharedLayout.get_default_for([8, 8], gl.float16) == gl.NVMMASharedLayout(0, 16, 2)


def test_default_layouts_are_those_of_the_official_package(official):
    wrong = []
    for (shape, dtype, transposed, blocks), width in zip(DEFAULTS, official[1], strict=True):
        layout = gl.NVMMASharedLayout.get_default_for(
            shape, getattr(gl, dtype), transposed, cga_layout=blocks
        )
        if (layout.swizzle_byte_width, layout.rank, layout.transposed) != (width, len(shape), transposed):
            wrong.append((shape, dtype, transposed, blocks, width, layout))
    assert wrong == []


@gluon.jit
def default_width(
    out, SHAPE: gl.constexpr, DTYPE: gl.constexpr, TRANSPOSED: gl.constexpr, BLOCKS: gl.constexpr
):
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(SHAPE, DTYPE, TRANSPOSED, cga_layout=BLOCKS)
    gl.store(out, layout.swizzle_byte_width)


def test_kernels_and_the_host_choose_equal_default_layouts():
    wrong = []
    for shape, dtype, transposed, blocks in DEFAULTS:
        dtype = getattr(gl, dtype)
        expected = gl.NVMMASharedLayout.get_default_for(shape, dtype, transposed, cga_layout=blocks)
        out = torch.zeros(1, dtype=torch.int32)
        default_width[(1,)](out, tuple(shape), dtype, transposed, tuple(map(tuple, blocks)), num_warps=1)
        if out.item() != expected.swizzle_byte_width:
            wrong.append((shape, dtype, transposed, blocks, out.item(), expected))
    assert wrong == []


@gluon.jit
def mixed(out_ptr, wide: gl.constexpr, narrow: gl.constexpr):
    x = gl.arange(0, 256, layout=wide)
    y = gl.arange(0, 256, layout=narrow)
    gl.store(out_ptr + x, x + y)


@gluon.jit
def expanded(out_ptr, layout: gl.constexpr):
    x = gl.arange(0, 64, layout=layout)
    gl.store(out_ptr + x[:, None], x[:, None])


@gluon.jit
def arranged(out_ptr, layout: gl.constexpr):
    x = gl.arange(0, 64, layout=layout)
    gl.store(out_ptr + x, x)


def test_layouts_that_do_not_fit_are_errors(device):
    out = torch.zeros(256, dtype=torch.int32, device=device)
    one, two = gl.BlockedLayout([1], [32], [4], [0]), gl.BlockedLayout([2], [32], [4], [0])
    matrix = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    for kernel, arguments, expected in [
        (mixed, (one, two), r"must have one layout, found BlockedLayout\(\[1\].*BlockedLayout\(\[2\]"),
        (expanded, (one,), r"needs a tile whose layout is a SliceLayout\(1"),
        (arranged, (matrix,), "has 2 axes, but the tile has 1"),
        (arranged, (gl.BlockedLayout([1], [32], [8], [0]),), "is for 8 warps, but the kernel has 4"),
        (arranged, (gl.BlockedLayout([3], [32], [4], [0]),), "powers of two, found 3"),
        (arranged, (gl.SwizzledSharedLayout(1, 1, 1, [0]),), "expected a layout of registers"),
    ]:
        with pytest.raises(tilewright.CompilationError, match=expected) as raised:
            kernel[(1,)](out, *arguments)
        assert raised.value.code == "TW0028", expected
    with pytest.raises(tilewright.CompilationError) as raised:
        mixed[(1,)](out, one, two)
    # The message draws both layouts.
    assert "w0 l0 r0   w0 l0 r1   w0 l1 r0" in str(raised.value)
    assert "w0 l0 r0   w0 l1 r0   w0 l2 r0" in str(raised.value)


@gluon.jit
def introspection(x_ptr, out_ptr, layout: gl.constexpr):
    i = gl.arange(0, 256, layout=layout)
    x = gl.load(x_ptr + i)
    own: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    gl.static_assert(x.type.layout == layout)
    gl.static_assert(own == layout)
    gl.static_assert(x.type.layout == own)
    gl.static_assert(gl.arange(0, 256, layout=own).type.layout == layout)
    linear: gl.constexpr = gl.to_linear_layout(layout, [256])
    y = gl.convert_layout(x, linear, assert_trivial=True)
    z = gl.convert_layout(y, x.type.layout) + gl.full_like(x, 1.0)
    gl.store(out_ptr + i, z + gl.zeros([256], gl.float32, layout))


def test_kernels_read_layouts(device):
    x = torch.randn(256, device=device)
    out = torch.empty_like(x)
    introspection[(1,)](x, out, gl.BlockedLayout([2], [32], [4], [0]))
    torch.testing.assert_close(out, x + 1)
