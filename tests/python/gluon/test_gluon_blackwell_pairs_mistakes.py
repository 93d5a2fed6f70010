"""Planted mistakes in Gluon kernels of pairs of blocks: the compiler, the verifier or the simulator finds each."""

from __future__ import annotations

import pytest
import torch
from conftest import DEVICE
from test_gluon_blackwell_pairs import descriptors, numbers, store
from tilewright.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tma,
)
from tilewright.experimental.gluon.language.nvidia.hopper import cluster

import tilewright
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl


@pytest.fixture(autouse=True)
def blackwell(device):
    """Runs a test on the simulator of a Blackwell GPU."""
    if device != "cpu":
        pytest.skip("these kernels have run on the simulator only")
    tilewright.runtime.set_device("sim:sm_100")
    yield
    tilewright.runtime.set_device(DEVICE)


PAIR = TensorMemoryLayout([128, 64], 1, [[1, 0]], two_ctas=True)
SINGLE = TensorMemoryLayout([128, 64], 1, [[1, 0]])


@gluon.jit(do_not_specialize=["is_there"])
def copied(a_desc, b_desc, c_ptr, is_there, LAYOUT: gl.constexpr, MISTAKE: gl.constexpr):
    """The operands are copied by tensor copies."""
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    acc = allocate_tensor_memory(gl.float32, [256, 64], LAYOUT)
    full = mbarrier.allocate_mbarrier(two_ctas=MISTAKE != "own" and MISTAKE != "own, by a predicate")
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    there = is_there != 0 if MISTAKE == "own, by a predicate" else True
    mbarrier.expect(full, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=there)
    tma.async_load(a_desc, [0, 0], full, a, pred=there)
    tma.async_load(b_desc, [0, 0], full, b, pred=there)
    if MISTAKE != "no wait":
        mbarrier.wait(full, 0, pred=there)
    tcgen05_mma(a, b.permute((1, 0)), acc, use_acc=False, mbarriers=[done])
    if MISTAKE != "no wait for the dot":
        mbarrier.wait(done, 0)
    layout: gl.constexpr = acc.get_reg_layout()
    store(c_ptr, acc.load(layout), layout)


def launch_copied(mistake):
    a, b = numbers(256, 32, dtype=torch.float16), numbers(64, 32, dtype=torch.float16, seed=1)
    c = torch.zeros(256, 64)
    copied[(1,)](*descriptors(a, b, 32), c, 1, PAIR, mistake, num_ctas=2)
    torch.testing.assert_close(c, a.float() @ b.float().T)


def test_without_a_mistake():
    launch_copied("none")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            "own",
            r"tcgen05_mma reads %a of both blocks, but this block has not waited for the tensor_load of the other",
        ),
        ("no wait", r"tcgen05_mma uses %a while it is being copied to"),
        (
            "no wait for the dot",
            r"tmem_load reads %acc while a tcgen05_mma writes it: add an mbarrier_wait for %done",
        ),
    ],
)
def test_mistakes_that_the_verifier_finds(mistake, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        launch_copied(mistake)
    assert raised.value.code == "TW0029"


def test_a_dot_before_the_copies_of_the_other_block_is_a_race():
    """The verifier follows no copies with a predicate; the simulator sees the write of the other block."""
    with pytest.raises(tilewright.TritonError, match="race") as raised:
        launch_copied("own, by a predicate")
    assert raised.value.code == "TW0207"


@gluon.jit
def stored(pointer, shape: gl.constexpr, bases: gl.constexpr):
    """A matrix in shared memory, to which the threads of each block store a part."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], bases)
    rows = gl.arange(0, shape[0], layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, shape[1], layout=gl.SliceLayout(0, layout))
    tile = gl.load(pointer + rows[:, None] * shape[1] + columns[None, :])
    memory: gl.constexpr = gl.NVMMASharedLayout(32, 16, 2, cga_layout=bases)
    return gl.allocate_shared_memory(tile.dtype, shape, memory, tile)


@gluon.jit(do_not_specialize=["is_awaited"])
def by_threads(
    a_ptr, b_ptr, c_ptr, is_awaited, LAYOUT: gl.constexpr, BASES: gl.constexpr, MISTAKE: gl.constexpr
):
    """The operands are stored by threads."""
    bar = mbarrier.allocate_mbarrier(two_ctas=MISTAKE == "shared barrier")
    mbarrier.init(bar, count=1)
    cluster.barrier()
    a = stored(a_ptr, (256, 32), BASES[0])
    b = stored(b_ptr, (64, 32), BASES[1]).permute((1, 0))
    acc = allocate_tensor_memory(gl.float32, [256, 64], LAYOUT)
    if MISTAKE == "mixed":
        other = allocate_tensor_memory(
            gl.float32, [256, 64], TensorMemoryLayout([128, 64], 1, [[1, 0]], two_ctas=not LAYOUT.two_ctas)
        )
        other.store(gl.full([256, 64], 0.0, gl.float32, other.get_reg_layout()))
    if MISTAKE != "no fence":
        fence_async_shared(cluster=True)
    if MISTAKE != "no barrier":
        cluster.barrier()
    tcgen05_mma(a, b, acc, use_acc=False, mbarriers=[] if MISTAKE == "no commit" else [bar])
    mbarrier.wait(bar, 0, pred=is_awaited != 0)
    layout: gl.constexpr = acc.get_reg_layout()
    if MISTAKE != "no end":
        store(c_ptr, acc.load(layout), layout)


def launch_by_threads(mistake="none", layout=PAIR, a_bases=((1, 0),), b_bases=((1, 0),), blocks=2):
    a, b = numbers(256, 32, dtype=torch.float16), numbers(64, 32, dtype=torch.float16, seed=1)
    c = torch.zeros(256, 64)
    bases = [[*map(list, each)] for each in (a_bases, b_bases)]
    # The verifier does not follow waits with a predicate.
    is_awaited = int(mistake not in ("no wait", "no end"))
    by_threads[(1,)](a, b, c, is_awaited, layout, bases, mistake, num_ctas=blocks)
    torch.testing.assert_close(c, a.float() @ b.float().T)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("none", None),
        (
            "no barrier",
            r"tcgen05_mma reads %a of both blocks, but this block has not waited for the local_store",
        ),
        ("no fence", r"tcgen05_mma reads %a by the asynchronous proxy"),
        ("no commit", r"tmem_load reads %acc while a tcgen05_mma writes it: add a tcgen05_commit"),
        ("no wait", r"tensor memory"),
        # The blocks free their tensor memory while the dot writes it.
        ("no end", r"tensor memory"),
    ],
)
def test_stores_of_both_blocks_precede_the_dot(mistake, message):
    if message is None:
        launch_by_threads(mistake)
        return
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        launch_by_threads(mistake)
    assert raised.value.code == ("TW0207" if mistake in ("no wait", "no end") else "TW0029")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a_bases": ((0, 0),)}, "the cga_layout of `a` of `tcgen05_mma` does not fit the accumulator's"),
        ({"a_bases": ((0, 1),)}, "the cga_layout of `a` of `tcgen05_mma` does not fit the accumulator's"),
        ({"b_bases": ((0, 0),)}, "the cga_layout of `b` of `tcgen05_mma` does not fit the accumulator's"),
        ({"b_bases": ((0, 1),)}, "the cga_layout of `b` of `tcgen05_mma` does not fit the accumulator's"),
        ({"layout": SINGLE}, "the cga_layout of `b` of `tcgen05_mma` does not fit the accumulator's"),
        ({"mistake": "shared barrier"}, "dots arrive at an mbarrier that each block has itself"),
        ({"mistake": "mixed"}, "other tensor memory of the kernel is for pairs"),
        (
            {"layout": TensorMemoryLayout([128, 64], 1, [[0, 1]], two_ctas=True)},
            "does not divide the rows between the two blocks of a pair",
        ),
        (
            {"layout": TensorMemoryLayout([128, 64], 1, two_ctas=True)},
            "does not divide the rows between the two blocks of a pair",
        ),
        (
            {"layout": TensorMemoryLayout([128, 32], 1, [[1, 0]], two_ctas=True)},
            "a dot of two blocks has one block of columns, not 2",
        ),
        ({"layout": TensorMemoryLayout([128, 64], 1)}, "is for 1 block, but the kernel has 2 blocks"),
        ({"blocks": 1, "a_bases": (), "b_bases": ()}, "is for 2 blocks, but the kernel has 1 block"),
    ],
)
def test_layouts_that_do_not_fit(changes, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        launch_by_threads(**changes)
    assert raised.value.code == "TW0028"


def test_what_is_missing():
    @gluon.jit
    def count(out_ptr, PAIRS: gl.constexpr):
        a = gl.allocate_shared_memory(gl.float16, [64, 64], gl.NVMMASharedLayout(128, 16, 2))
        gl.store(out_ptr, tcgen05_mma_barrier_count([a], multicast=False, two_ctas=PAIRS))

    out = torch.zeros(1, dtype=torch.int32)
    count[(1,)](out, False)
    assert out.item() == 1
    with pytest.raises(tilewright.TritonError, match="in a kernel of one block") as raised:
        count[(1,)](out, True)
    assert raised.value.code == "TW0016"


@gluon.jit
def in_a_worker(a, b, acc):
    tcgen05_mma(a, b, acc, use_acc=False)


@gluon.jit
def waits(acc):
    pass


@gluon.jit
def awaited_in_a_worker(LAYOUT: gl.constexpr):
    a = gl.allocate_shared_memory(gl.float16, [256, 32], gl.NVMMASharedLayout(64, 16, 2, cga_layout=[[1, 0]]))
    b = gl.allocate_shared_memory(gl.float16, [32, 64], gl.NVMMASharedLayout(64, 16, 2, cga_layout=[[0, 1]]))
    acc = allocate_tensor_memory(gl.float32, [256, 64], LAYOUT)
    gl.warp_specialize([(waits, (acc,)), (in_a_worker, (a, b, acc))], worker_num_warps=[1])


def test_a_worker_cannot_make_the_barriers_of_both_blocks():
    with pytest.raises(
        tilewright.TritonError, match="of two blocks in a worker, without `mbarriers`"
    ) as raised:
        awaited_in_a_worker[(1,)](PAIR, num_ctas=2)
    assert raised.value.code == "TW0030"
