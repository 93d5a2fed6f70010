"""Kernels of Gluon whose warps run different functions, against torch."""

from __future__ import annotations

import re

import pytest
import torch
from tilewright.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from tilewright.experimental.gluon.nvidia.hopper import TensorDescriptor

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl


@pytest.fixture(autouse=True)
def hopper():
    """Skips a test of what sm_90 has and the device lacks."""
    if tilewright.runtime.driver.active.get_current_target().arch == 80:
        pytest.skip("the device has no tensor copies")


@gluon.jit
def load_operands(a_desc, b_desc, m, n, K, a_memory, b_memory, full, empty):
    BK: gl.constexpr = a_desc.block_type.shape[1]
    STAGES: gl.constexpr = a_memory.shape[0]
    for turn in range(gl.cdiv(K, BK)):
        slot = turn % STAGES
        mbarrier.wait(empty.index(slot), turn // STAGES % 2 ^ 1)
        mbarrier.expect(full.index(slot), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [m, turn * BK], full.index(slot), a_memory.index(slot))
        tma.async_load(b_desc, [n, turn * BK], full.index(slot), b_memory.index(slot))


@gluon.jit
def multiply(K, BK: gl.constexpr, a_memory, b_memory, full, empty, layout: gl.constexpr):
    STAGES: gl.constexpr = a_memory.shape[0]
    acc = gl.zeros([a_memory.shape[1], b_memory.shape[1]], gl.float32, layout)
    for turn in range(gl.cdiv(K, BK)):
        slot = turn % STAGES
        mbarrier.wait(full.index(slot), turn // STAGES % 2)
        acc = warpgroup_mma(a_memory.index(slot), b_memory.index(slot).permute((1, 0)), acc)
        mbarrier.arrive(empty.index(slot), count=1)
    return acc


@gluon.jit
def matmul(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr, REGISTERS: gl.constexpr):
    """C = A @ B.T: one warp loads, the warps of the kernel multiply."""
    BM: gl.constexpr = a_desc.block_type.shape[0]
    BK: gl.constexpr = a_desc.block_type.shape[1]
    BN: gl.constexpr = b_desc.block_type.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    a_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], a_desc.layout)
    b_memory = gl.allocate_shared_memory(gl.float16, [STAGES, BN, BK], b_desc.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    acc = gl.warp_specialize(
        [
            (multiply, (K, BK, a_memory, b_memory, full, empty, layout)),
            (load_operands, (a_desc, b_desc, m, n, K, a_memory, b_memory, full, empty)),
        ],
        [1],
        REGISTERS,
    )
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(stage))
        mbarrier.invalidate(empty.index(stage))
    c_memory = gl.allocate_shared_memory(gl.float16, [BM, BN], c_desc.layout)
    c_memory.store(acc.to(gl.float16))
    fence_async_shared()
    tma.async_store(c_desc, [m, n], c_memory)
    tma.store_wait(0)


@pytest.mark.parametrize("registers", [None, (24,)])
def test_matmul(device, registers):
    M, N, K = 128, 256, 320
    generator = torch.Generator().manual_seed(4)
    a = torch.randn(M, K, generator=generator).half().to(device)
    b = torch.randn(N, K, generator=generator).half().to(device)
    c = torch.empty(M, N, device=device, dtype=torch.float16)
    layout = gl.NVMMASharedLayout(128, 16, 2)
    blocks = (a, [64, 64]), (b, [128, 64]), (c, [64, 128])
    descriptors = [TensorDescriptor.from_tensor(tensor, block, layout) for tensor, block in blocks]
    handle = matmul[(2, 2)](*descriptors, K, 3, registers)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2e-3, atol=2e-2)
    ptx = handle.asm["ptx"]
    assert ("setmaxnreg" in ptx) == (registers is not None)


BLOCK: gl.constexpr = gl.constexpr(256)


@gluon.jit
def load_blocks(x_ptr, y_ptr, n, memory, full, empty, layout: gl.constexpr):
    for turn in range(gl.cdiv(n, BLOCK)):
        offsets = turn * BLOCK + gl.arange(0, BLOCK, layout=layout)
        mbarrier.wait(empty, turn % 2 ^ 1)
        memory.index(0).store(gl.load(x_ptr + offsets, mask=offsets < n, other=0.0))
        memory.index(1).store(gl.load(y_ptr + offsets, mask=offsets < n, other=0.0))
        mbarrier.arrive(full, count=1)


@gluon.jit
def store_blocks(out_ptr, n, memory, full, empty, layout: gl.constexpr):
    for turn in range(gl.cdiv(n, BLOCK)):
        offsets = turn * BLOCK + gl.arange(0, BLOCK, layout=layout)
        mbarrier.wait(full, turn % 2)
        gl.store(out_ptr + offsets, memory.index(2).load(layout), mask=offsets < n)
        mbarrier.arrive(empty, count=1)


@gluon.jit
def add_blocks(n, memory, loaded, taken, full, empty, layout: gl.constexpr):
    total = gl.zeros([BLOCK], gl.float32, layout)
    for turn in range(gl.cdiv(n, BLOCK)):
        mbarrier.wait(loaded, turn % 2)
        found = memory.index(0).load(layout) + memory.index(1).load(layout)
        mbarrier.arrive(taken, count=1)
        mbarrier.wait(empty, turn % 2 ^ 1)
        memory.index(2).store(found)
        mbarrier.arrive(full, count=1)
        total += found
    return total, n


@gluon.jit
def add(x_ptr, y_ptr, out_ptr, sum_ptr, n, FORM: gl.constexpr):
    """out = x + y: two warps load, the warps of the kernel add, one warp stores."""
    own: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    two: gl.constexpr = gl.BlockedLayout([4], [32], [2], [0])
    one: gl.constexpr = gl.BlockedLayout([4], [32], [1], [0])
    memory = gl.allocate_shared_memory(gl.float32, [3, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    bars = mbarrier.allocate_mbarrier(batch=4)
    for index in range(4):
        mbarrier.init(bars.index(index), count=1)
    loaded, taken, full, empty = bars.index(0), bars.index(1), bars.index(2), bars.index(3)
    if FORM == "pairs":
        total, count = gl.warp_specialize(
            [
                (add_blocks, (n, memory, loaded, taken, full, empty, own)),
                (store_blocks, (out_ptr, n, memory, full, empty, one)),
                (load_blocks, (x_ptr, y_ptr, n, memory, loaded, taken, two)),
            ],
            [1, 2],
        )
    elif FORM == "keywords":
        total, count = gl.warp_specialize(
            default_args=(n, memory, loaded, taken, full, empty, own),
            default_partition=add_blocks,
            worker_args=(x_ptr, y_ptr, out_ptr, n, memory, bars, one),
            worker_partitions=[load_one, store_one],
            worker_num_warps=[1, 1],
            worker_num_regs=[24, 32],
        )
    else:
        total, count = gl.warp_specialize(
            (n, memory, loaded, taken, full, empty, own),
            add_blocks,
            (x_ptr, y_ptr, out_ptr, n, memory, bars, one),
            [load_one, store_one],
            [1, 1],
            [24, 24],
        )
    gl.store(sum_ptr + gl.arange(0, BLOCK, layout=own), total + count)


@gluon.jit
def load_one(x_ptr, y_ptr, out_ptr, n, memory, bars, layout: gl.constexpr):
    load_blocks(x_ptr, y_ptr, n, memory, bars.index(0), bars.index(1), layout)


@gluon.jit
def store_one(x_ptr, y_ptr, out_ptr, n, memory, bars, layout: gl.constexpr):
    store_blocks(out_ptr, n, memory, bars.index(2), bars.index(3), layout)


@pytest.mark.parametrize("form", ["pairs", "keywords", "positions"])
def test_threads_load_and_store(device, form):
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(1000, generator=generator).to(device) for _ in range(2))
    out, total = torch.empty_like(x), torch.empty(256, device=device)
    handle = add[(1,)](x, y, out, total, 1000, form)
    assert torch.equal(out, x + y)
    padded = torch.nn.functional.pad(out, (0, 24)).view(4, 256)
    torch.testing.assert_close(total, padded.sum(0) + 1000)
    assert handle.metadata.num_warps == 4


@gluon.jit
def two_dots(out_ptr, memory, bar, layout: gl.constexpr, first):
    mbarrier.wait(bar, 0)
    acc = gl.zeros([64, 64], gl.float32, layout)
    acc = warpgroup_mma(memory.index(0), memory.index(1), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    rows = first + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    gl.store(out_ptr + rows[:, None] * 64 + columns[None, :], acc)


@gluon.jit
def dots_in_workers(a_desc, b_desc, out_ptr, layout: gl.constexpr):
    """A worker of four warps multiplies as the kernel does; a kernel of one warp loads."""
    memory = gl.allocate_shared_memory(gl.float16, [2, 64, 64], a_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.warp_specialize(
        [
            (load_both, (a_desc, b_desc, memory, bar)),
            (two_dots, (out_ptr, memory, bar, layout, 0)),
            (two_dots, (out_ptr, memory, bar, layout, 64)),
        ],
        [4, 4],
        [64, 64],
    )


@gluon.jit
def load_both(a_desc, b_desc, memory, bar):
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    tma.async_load(a_desc, [0, 0], bar, memory.index(0))
    tma.async_load(b_desc, [0, 0], bar, memory.index(1))


@pytest.mark.parametrize("num_warps", [1, 4])
def test_workers_multiply(device, num_warps):
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.randint(-4, 5, (64, 64), generator=generator).half().to(device) for _ in range(2))
    out = torch.empty(128, 64, device=device)
    shared = gl.NVMMASharedLayout(128, 16, 2)
    descriptors = [TensorDescriptor.from_tensor(tensor, [64, 64], shared) for tensor in (a, b)]
    layout = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    dots_in_workers[(1,)](*descriptors, out, layout, num_warps=num_warps)
    expected = a.float() @ b.float()
    assert torch.equal(out, torch.cat([expected, expected]))


@gluon.jit
def softmax_of_rows(x_ptr, out_ptr, row, layout: gl.constexpr, other: gl.constexpr):
    """Reduces over the warps of a partition, and moves tiles between them."""
    i, j = (
        gl.arange(0, 16, layout=gl.SliceLayout(1, layout)),
        gl.arange(0, 64, layout=gl.SliceLayout(0, layout)),
    )
    for turn in range(2):
        offsets = (row + turn * 32 + i)[:, None] * 64 + j[None, :]
        x = gl.load(x_ptr + offsets)
        e = gl.exp(x - gl.max(x, axis=1)[:, None])
        moved = gl.convert_layout(e, other) * 2
        total = gl.convert_layout(gl.sum(moved, axis=1), gl.SliceLayout(1, layout))
        gl.store(out_ptr + offsets, 2 * e / total[:, None])


@gluon.jit
def softmax_in_partitions(x_ptr, out_ptr, layout: gl.constexpr, other: gl.constexpr):
    gl.warp_specialize(
        [
            (softmax_of_rows, (x_ptr, out_ptr, 0, layout, other)),
            (softmax_of_rows, (x_ptr, out_ptr, 16, layout, other)),
        ],
        [4],
    )


def test_partitions_reduce_among_their_warps(device):
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(7)).to(device)
    out = torch.empty_like(x)
    along, across = (gl.BlockedLayout([1, 2], [2, 16], warps, [1, 0]) for warps in ([1, 4], [4, 1]))
    softmax_in_partitions[(1,)](x, out, along, across)
    torch.testing.assert_close(out, x.softmax(1))


@gluon.jit
def plus(a, b):
    return a + b


@gluon.jit
def tickets_and_scans(counter_ptr, counts_ptr, out_ptr, layout: gl.constexpr):
    """The old value of an atomic operation is in every thread of the partition; a scan is over its warps."""
    x = gl.arange(0, 256, layout=layout)
    for _ in range(2):
        ticket = gl.atomic_add(counter_ptr, 1)
        gl.atomic_add(counts_ptr + x, 1)
        gl.store(out_ptr + ticket * 256 + x, gl.associative_scan(x, 0, plus))


@gluon.jit
def tickets_in_partitions(counter_ptr, counts_ptr, out_ptr, own: gl.constexpr, two: gl.constexpr):
    gl.warp_specialize(
        [
            (tickets_and_scans, (counter_ptr, counts_ptr, out_ptr, own)),
            (tickets_and_scans, (counter_ptr, counts_ptr, out_ptr, two)),
        ],
        [2],
    )


def test_partitions_share_the_results_of_atomic_operations(device):
    counter, counts = (torch.zeros(count, device=device, dtype=torch.int32) for count in (1, 256))
    out = torch.zeros(4, 256, device=device, dtype=torch.int32)
    own, two = (gl.BlockedLayout([1], [32], [warps], [0]) for warps in (4, 2))
    tickets_in_partitions[(1,)](counter, counts, out, own, two)
    assert counter.item() == 4
    assert counts.tolist() == [4] * 256
    assert torch.equal(out.cpu(), torch.arange(256).cumsum(0).int().expand(4, 256))


@gluon.jit
def wide_load(memory, out_ptr, layout: gl.constexpr):
    gl.store(out_ptr + gl.arange(0, 256, layout=layout), memory.load(gl.BlockedLayout([2], [32], [4], [0])))


@gluon.jit
def wrong_layout(out_ptr, layout: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [256], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.warp_specialize([(takes, (0,)), (wide_load, (memory, out_ptr, layout))], [1])


def test_layouts_of_a_worker_are_for_its_warps(device):
    out = torch.empty(256, device=device)
    with pytest.raises(tilewright.CompilationError, match="is for 4 warps, but the worker has 1") as raised:
        wrong_layout[(1,)](out, gl.BlockedLayout([8], [32], [1], [0]))
    assert raised.value.code == "TW0028"


@gluon.jit
def offsets_in(layout: gl.constexpr):
    rows = gl.arange(0, 32, layout=gl.SliceLayout(1, layout))
    return rows[:, None] * 64 + gl.arange(0, 64, layout=gl.SliceLayout(0, layout))[None, :]


@gluon.jit
def exchange(x_ptr, out_ptr, memory, rows: gl.constexpr, columns: gl.constexpr):
    """The warps of the partition load elements that another of them stored."""
    x = gl.load(x_ptr + offsets_in(rows))
    for turn in range(2):
        memory.store(x + turn)
        gl.store(out_ptr + turn * 2048 + offsets_in(columns), memory.load(columns))


@gluon.jit
def exchange_in_worker(x_ptr, out_ptr, rows: gl.constexpr, columns: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    gl.warp_specialize([(takes, (0,)), (exchange, (x_ptr, out_ptr, memory.slice(0, 32), rows, columns))], [2])


def test_the_warps_of_a_worker_exchange_elements_by_memory_of_the_kernel(device):
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(11)).to(device)
    out = torch.zeros(2, 32, 64, device=device)
    rows, columns = (gl.BlockedLayout([1, 1], [1, 32], warps, [1, 0]) for warps in ([2, 1], [1, 2]))
    exchange_in_worker[(1,)](x, out, rows, columns)
    assert torch.equal(out, torch.stack([x, x + 1]))


@gluon.jit
def stores_item(out_ptr, layout: gl.constexpr):
    one = gl.arange(0, 1, layout=layout) + 7
    gl.store(out_ptr, one.item() + gl.max(gl.arange(0, 64, layout=layout), axis=0))


@gluon.jit
def takes_an_item(out_ptr, layout: gl.constexpr):
    gl.warp_specialize([(takes, (0,)), (stores_item, (out_ptr, layout))], [1])


def test_a_worker_of_one_warp_has_an_item(device):
    out = torch.zeros(1, device=device, dtype=torch.int32)
    takes_an_item[(1,)](out, gl.BlockedLayout([1], [32], [1], [0]))
    assert out.item() == 70


@gluon.jit
def arrives(bars):
    for slot in range(2):
        mbarrier.arrive(bars.index(slot))


@gluon.jit
def waits(out_ptr, bars, own):
    for slot in range(2):
        mbarrier.wait(bars.index(slot), 0)
        mbarrier.arrive(own.index(slot))
        mbarrier.wait(own.index(slot), 0)
    gl.store(out_ptr, 1)


@gluon.jit
def initializes_in_a_loop(out_ptr, ENDS: gl.constexpr):
    """Initializes in one loop the mbarriers of a worker, and those that only the default partition has."""
    bars, own = mbarrier.allocate_mbarrier(batch=2), mbarrier.allocate_mbarrier(batch=2)
    for slot in range(2):
        mbarrier.init(own.index(slot), count=1)
        mbarrier.init(bars.index(slot), count=1)
    if ENDS:
        mbarrier.invalidate(bars.index(0))
        mbarrier.init(bars.index(0), count=1)
    gl.warp_specialize([(waits, (out_ptr, bars, own)), (arrives, (bars,))], [1])


def test_a_loop_initializes_the_mbarriers_of_a_worker_and_others(device):
    out = torch.zeros(1, device=device, dtype=torch.int32)
    initializes_in_a_loop[(1,)](out, False)
    assert out.item() == 1


def test_an_mbarrier_of_a_worker_does_not_end_before(device):
    out = torch.zeros(1, device=device, dtype=torch.int32)
    with pytest.raises(tilewright.CompilationError, match="ends before `warp_specialize`") as raised:
        initializes_in_a_loop[(1,)](out, True)
    assert raised.value.code == "TW0030"


@gluon.jit
def requests_registers(WARPS: gl.constexpr, REGISTERS: gl.constexpr):
    gl.warp_specialize([(takes, (0,)), (takes, (0,))], [WARPS], [REGISTERS])


def test_registers_that_a_worker_cannot_have(device):
    with pytest.raises(tilewright.CompilationError, match="take 512 of the") as raised:
        requests_registers[(1,)](8, 256)
    assert raised.value.code == "TW0030"


@pytest.mark.parametrize("own", [1, 2, 8])
def test_registers_of_a_worker_beside_any_warps(device, own):
    handle = requests_registers[(1,)](1, 40, num_warps=own)
    assert "setmaxnreg.dec.sync.aligned.u32 40" in handle.asm["ptx"]


@gluon.jit
def stores_scalar(out_ptr, value):
    gl.store(out_ptr, value)


@gluon.jit
def loads_after_a_wait(flag_ptr, out_ptr):
    while gl.load(flag_ptr, volatile=True) == 0:
        pass
    value = gl.load(flag_ptr + 1)
    gl.warp_specialize([(takes, (0,)), (stores_scalar, (out_ptr, value))], [1])


def test_a_scalar_that_a_worker_uses_is_not_read_after_a_wait(device):
    flag, out = (torch.ones(2, device=device, dtype=torch.int32) for _ in range(2))
    with pytest.raises(tilewright.CompilationError, match="read after a store or a wait") as raised:
        loads_after_a_wait[(1,)](flag, out)
    assert raised.value.code == "TW0030"


@gluon.jit
def waits_first(bar, answer, phase, out_ptr):
    mbarrier.wait(bar, phase)
    mbarrier.arrive(answer, count=1)


@gluon.jit
def arrives_last(bar, answer, phase, out_ptr):
    mbarrier.wait(answer, phase ^ 1)
    mbarrier.arrive(bar, count=1)
    gl.store(out_ptr, gl.num_warps())


@gluon.jit
def handshake(out_ptr, phase, answer_phase):
    bars = mbarrier.allocate_mbarrier(batch=2)
    for index in gl.static_range(2):
        mbarrier.init(bars.index(index), count=1)
    bar, answer = bars.index(0), bars.index(1)
    gl.warp_specialize(
        [(waits_first, (bar, answer, phase, out_ptr)), (arrives_last, (bar, answer, answer_phase, out_ptr))],
        [2],
    )


def test_a_worker_counts_its_own_warps(device):
    out = torch.zeros(1, device=device, dtype=torch.int32)
    handshake[(1,)](out, 0, 0)
    assert out.item() == 2


def test_a_wrong_phase_is_a_hang_that_names_both_sides(device):
    if device != "cpu":
        pytest.skip("a kernel that hangs on a GPU ends the process")
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(tilewright.errors.ExecutionError, match="deadlock") as raised:
        handshake[(1,)](out, 0, 1)
    assert raised.value.code == "TW0207"
    for warp, function in ((0, waits_first), (4, arrives_last)):
        line = function.starting_line_number + 2
        assert re.search(rf"warp {warp}, .*test_gluon_warp_specialize.py:{line}\)", str(raised.value))


@gluon.jit
def one_side(out_ptr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.warp_specialize([(waits_only, (bar,)), (waits_only, (bar,))], [1])


@gluon.jit
def waits_only(bar):
    mbarrier.wait(bar, 0)


def test_a_missing_arrival_is_named(device):
    out = torch.zeros(1, device=device, dtype=torch.int32)
    with pytest.raises(tilewright.CompilationError, match="nothing arrives there") as raised:
        one_side[(1,)](out)
    assert raised.value.code == "TW0029"


@gluon.jit
def takes(x):
    pass


@gluon.jit
def returns(x):
    return x


@gluon.jit
def nests(x):
    gl.warp_specialize([(takes, (x,)), (takes, (x,))], [1])


@gluon.jit
def misuse(x_ptr, n, CASE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    if CASE == "tile":
        tile = gl.arange(0, 128, layout=layout)
        gl.warp_specialize([(takes, (tile,)), (takes, ((tile, 1),))], [1])
    elif CASE == "three warps":
        gl.warp_specialize([(takes, (n,)), (takes, (n,))], [3])
    elif CASE == "warps":
        gl.warp_specialize([(takes, (n,)), (takes, (n,))], [1, 1])
    elif CASE == "registers":
        gl.warp_specialize([(takes, (n,)), (takes, (n,))], [1], [24, 24])
    elif CASE == "many":
        gl.warp_specialize([(takes, (n,)), (takes, (n,)), (takes, (n,))], [16, 16])
    elif CASE == "no tuple":
        gl.warp_specialize([(takes, n), (takes, (n,))], [1])
    elif CASE == "no pair":
        gl.warp_specialize([takes, takes], [1])
    elif CASE == "returns":
        gl.warp_specialize([(returns, (n,)), (returns, (n,))], [1])
    elif CASE == "nested":
        gl.warp_specialize([(takes, (n,)), (nests, (n,))], [1])
    elif CASE == "loop":
        for _ in range(n):
            gl.warp_specialize([(takes, (n,)), (takes, (n,))], [1])
    elif CASE == "twice":
        gl.warp_specialize([(takes, (n,)), (takes, (n,))], [1])
        gl.warp_specialize([(takes, (n,)), (takes, (n,))], [1])
    elif CASE == "computed":
        count = gl.sum(gl.arange(0, 128, layout=layout), 0)
        gl.warp_specialize([(takes, (n,)), (stores, (x_ptr, count))], [1])
    gl.store(x_ptr, n)


@gluon.jit
def stores(x_ptr, x):
    gl.store(x_ptr, x)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("tile", r"a worker takes the tile int32\[128\]"),
        ("three warps", "a worker cannot have 3 warps"),
        ("warps", "1 workers have 2 numbers of warps"),
        ("registers", "1 workers have 2 numbers of registers"),
        ("many", "the partitions have 36 warps"),
        ("no tuple", "the arguments of a partition must be a tuple"),
        ("no pair", "a pair of a function and its arguments"),
        ("returns", "a worker returns int32"),
        ("nested", "a worker of `warp_specialize` calls `warp_specialize`"),
        ("loop", "in a loop or a branch"),
        ("twice", "calls `warp_specialize` twice"),
        ("computed", "compute from a tile"),
    ],
)
def test_misuse(device, case, message):
    x = torch.zeros(1, device=device, dtype=torch.int32)
    with pytest.raises(tilewright.CompilationError, match=message) as raised:
        misuse[(1,)](x, 3, case)
    assert raised.value.code == "TW0030"
