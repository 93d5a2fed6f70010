"""Gluon for Blackwell on the simulator: programs take over programs that have not begun (`clc`), against torch."""

from __future__ import annotations

import pytest
import torch
from conftest import DEVICE, ROOT
from test_gluon_blackwell import assemble
from tilewright.experimental.gluon.language.nvidia.blackwell import clc, mbarrier

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


@gluon.jit
def allocate():
    """The memory of a response, and its mbarrier."""
    response = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    return response, ready


@gluon.jit
def request(response, ready):
    clc.try_cancel(response, ready)
    mbarrier.expect(ready, 16)


@gluon.jit
def add_block(x_ptr, y_ptr, number, BLOCK: gl.constexpr, layout: gl.constexpr):
    """Adds 2 x to a block of y, so that a block that two programs add is wrong."""
    i = number * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + i, gl.load(y_ptr + i) + 2 * gl.load(x_ptr + i))


@gluon.jit
def add(x_ptr, y_ptr, began_ptr, BLOCK: gl.constexpr):
    """Adds in each program, and in each that it takes over. The grid has three axes."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    columns, rows = gl.num_programs(0), gl.num_programs(1)
    x, y, z = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    gl.store(began_ptr + (z * rows + y) * columns + x, 1)
    response, ready = allocate()
    phase = 0
    has_work = True
    while has_work:
        request(response, ready)
        add_block(x_ptr, y_ptr, (z * rows + y) * columns + x, BLOCK, layout)
        mbarrier.wait(ready, phase)
        phase ^= 1
        result = clc.load_result(response)
        has_work = result.is_canceled()
        x, y, z = result.program_id(0), result.program_id(1), result.program_id(2)
    mbarrier.invalidate(ready)


def launch(kernel, grid, *options, block=64, num_programs=None, **keywords):
    """Runs a kernel on small numbers, and checks its sums; returns the handle and the number of programs that began."""
    programs = num_programs or torch.Size(grid).numel()
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(-8, 9, (programs * block,), generator=generator).float() for _ in range(2))
    expected, began = y + 2 * x, torch.zeros(programs, dtype=torch.int32)
    handle = kernel[grid](x, y, began, block, *options, **keywords)
    assert torch.equal(y, expected)
    return handle, int(began.sum())


@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_each_program_runs_once(num_warps):
    grid = (31, 5, 3)
    handle, began = launch(add, grid, num_warps=num_warps)
    assert 0 < began < torch.Size(grid).numel()
    assert "clusterlaunchcontrol.try_cancel" in handle.asm["ptx"]


def test_the_assembler_accepts_the_code(tmp_path):
    handle, _ = launch(add, (64,), num_warps=4)
    assert ".target sm_100a" in handle.asm["ptx"]
    assemble(handle, tmp_path)


@gluon.jit
def next_number(response, ready, phase):
    """Returns the response, and a number that only a canceled program has."""
    mbarrier.wait(ready, phase)
    result = clc.load_result(response)
    return result, gl.where(result.is_canceled(), result.program_id(0), -1)


@gluon.jit
def add_in_functions(x_ptr, y_ptr, began_ptr, BLOCK: gl.constexpr):
    """The loop carries a response, and functions return it."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    gl.store(began_ptr + gl.program_id(0), 1)
    response, ready = allocate()
    request(response, ready)
    add_block(x_ptr, y_ptr, gl.program_id(0), BLOCK, layout)
    result, number = next_number(response, ready, 0)
    phase = 1
    while result.is_canceled():
        request(response, ready)
        add_block(x_ptr, y_ptr, number, BLOCK, layout)
        result, number = next_number(response, ready, phase)
        phase ^= 1


def test_a_loop_carries_a_response():
    launch(add_in_functions, (200,))


@gluon.jit
def add_in_a_ring(x_ptr, y_ptr, began_ptr, BLOCK: gl.constexpr):
    """The responses alternate between two slots, whose mbarriers are in an array."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    gl.store(began_ptr + gl.program_id(0), 1)
    responses = gl.allocate_shared_memory(gl.int64, [2, 2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = mbarrier.allocate_mbarrier(batch=2)
    for slot in gl.static_range(2):
        mbarrier.init(ready.index(slot), count=1)
    request(responses.index(0), ready.index(0))
    number = gl.program_id(0)
    step = 0
    has_work = True
    while has_work:
        slot = step % 2
        add_block(x_ptr, y_ptr, number, BLOCK, layout)
        mbarrier.wait(ready.index(slot), step // 2 & 1)
        result = clc.load_result(responses.index(slot))
        has_work = result.is_canceled()
        number = result.program_id(0)
        step += 1
        if has_work:
            request(responses.index(step % 2), ready.index(step % 2))


def test_responses_in_a_ring():
    launch(add_in_a_ring, (150,))


@gluon.jit
def add_in_a_cluster(x_ptr, y_ptr, began_ptr, BLOCK: gl.constexpr):
    """Two blocks run a program, and each gets the response."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0], [[1]])
    gl.store(began_ptr + gl.program_id(0), 1)
    response = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0], [[0]]))
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    number = gl.program_id(0)
    phase = 0
    has_work = True
    while has_work:
        request(response, ready)
        add_block(x_ptr, y_ptr, number, BLOCK, layout)
        mbarrier.wait(ready, phase)
        phase ^= 1
        result = clc.load_result(response)
        has_work = result.is_canceled()
        number = result.program_id(0)


def test_a_cluster_takes_over_programs(tmp_path):
    handle, began = launch(add_in_a_cluster, (160,), num_ctas=2)
    assert 0 < began < 160
    assert ".multicast::cluster::all" in handle.asm["ptx"]
    assemble(handle, tmp_path)


@gluon.jit
def schedule(response, ready, empty):
    """The worker that requests the programs: it waits until the other warps have read the last response."""
    step = 0
    has_work = True
    while has_work:
        mbarrier.wait(empty, step & 1 ^ 1)
        request(response, ready)
        mbarrier.wait(ready, step & 1)
        has_work = clc.load_result(response).is_canceled()
        step += 1


@gluon.jit
def compute(x_ptr, y_ptr, response, ready, empty, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    number = gl.program_id(0)
    step = 0
    has_work = True
    while has_work:
        add_block(x_ptr, y_ptr, number, BLOCK, layout)
        mbarrier.wait(ready, step & 1)
        result = clc.load_result(response)
        mbarrier.arrive(empty, count=1)
        has_work = result.is_canceled()
        number = result.program_id(0)
        step += 1


@gluon.jit
def add_in_partitions(x_ptr, y_ptr, began_ptr, BLOCK: gl.constexpr):
    gl.store(began_ptr + gl.program_id(0), 1)
    response, ready = allocate()
    empty = mbarrier.allocate_mbarrier()
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [(compute, (x_ptr, y_ptr, response, ready, empty, BLOCK)), (schedule, (response, ready, empty))],
        [1],
        [24],
    )


def test_a_worker_requests_programs():
    launch(add_in_partitions, (100,))


@gluon.jit
def mistaken(x_ptr, y_ptr, began_ptr, BLOCK: gl.constexpr, MISTAKE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    gl.store(began_ptr + gl.program_id(0), 1)
    response, ready = allocate()
    number = gl.program_id(0)
    phase = 0
    has_work = True
    while has_work:
        clc.try_cancel(response, ready)
        if MISTAKE == "again":
            clc.try_cancel(response, ready)
        if MISTAKE == "arrive":
            mbarrier.arrive(ready, count=1)
        elif MISTAKE != "expect":
            mbarrier.expect(ready, 8 if MISTAKE == "bytes" else 16)
        add_block(x_ptr, y_ptr, number, BLOCK, layout)
        if MISTAKE != "wait":
            mbarrier.wait(ready, phase)
        if MISTAKE != "phase":
            phase ^= 1
        result = clc.load_result(response)
        has_work = result.is_canceled()
        number = gl.program_id(0) if MISTAKE == "number" else result.program_id(0)


def test_without_a_mistake():
    launch(mistaken, (90,), "none")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("wait", r"clc_load_result uses %response while it is being copied to: add an mbarrier_wait"),
        ("again", r"clc_try_cancel uses %response while it is being copied to: add an mbarrier_wait"),
        ("expect", r"mbarrier_wait waits for %ready, but nothing arrives there|whose phases expect none"),
        ("arrive", r"clc_try_cancel signals 16 bytes at %ready, whose phases expect none"),
        ("bytes", r"a phase of %ready that expects 8 bytes, but clc_try_cancel signals 16"),
    ],
)
def test_mistakes_that_the_compiler_finds(mistake, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        launch(mistaken, (90,), mistake)
    assert raised.value.code == "TW0029"


def test_a_wait_for_the_phase_before_is_found():
    """The parity does not change, so the second wait returns before the response is there."""
    with pytest.raises(tilewright.TritonError) as raised:
        launch(mistaken, (90,), "phase")
    assert raised.value.code in ("TW0029", "TW0207")


def test_a_program_that_runs_the_wrong_work_is_wrong():
    """The sums tell which programs ran."""
    with pytest.raises(AssertionError):
        launch(mistaken, (90,), "number")


@gluon.jit
def misuse(x_ptr, KIND: gl.constexpr):
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    response = gl.allocate_shared_memory(gl.int64, [2], flat)
    if KIND == "dtype":
        clc.try_cancel(gl.allocate_shared_memory(gl.int32, [2], flat), ready)
    elif KIND == "shape":
        clc.try_cancel(gl.allocate_shared_memory(gl.int64, [4], flat), ready)
    elif KIND == "slots":
        clc.load_result(gl.allocate_shared_memory(gl.int64, [2, 2], flat))
    elif KIND == "registers":
        clc.try_cancel(gl.arange(0, 2, layout=gl.BlockedLayout([1], [32], [4], [0])), ready)
    elif KIND == "order":
        clc.load_result(
            gl.allocate_shared_memory(gl.int64, [2], gl.PaddedSharedLayout([[1, 1]], [[1]], [], [2]))
        )
    elif KIND == "barrier":
        clc.try_cancel(response, response)
    elif KIND == "axis":
        clc.load_result(response).program_id(3)
    elif KIND == "attribute":
        clc.load_result(response).program_ids(0)
    elif KIND == "load":
        response.is_canceled()


@gluon.jit
def next_program(x_ptr):
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    response = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    request(response, ready)
    mbarrier.wait(ready, 0)
    gl.store(x_ptr, clc.load_result(response).program_id(0))


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("dtype", "TW0016", r"`result` of `try_cancel` must be shared memory for two int64"),
        ("shape", "TW0016", r"`result` of `try_cancel` must be shared memory for two int64"),
        ("slots", "TW0016", r"`src` of `load_result` must be shared memory for one tile"),
        ("registers", "TW0016", r"`result` of `try_cancel` must be shared memory"),
        ("order", "TW0028", r"does not place the two int64 next to each other"),
        ("barrier", "TW0016", r"`barrier` of `try_cancel` must be an mbarrier"),
        ("axis", "TW0016", r"`dim` of `program_id` must be 0, 1 or 2"),
        ("attribute", "TW0015", r"a response of `try_cancel` has no attribute .program_ids."),
        ("load", "TW0015", r"no attribute .is_canceled."),
    ],
)
def test_misuses_have_their_codes(kind, code, message):
    with pytest.raises(tilewright.TritonError, match=message) as raised:
        misuse[(1,)](torch.zeros(1, dtype=torch.int32), kind)
    assert raised.value.code == code


def test_other_gpus_say_that_they_lack_it():
    tilewright.runtime.set_device("sim:sm_90")
    with pytest.raises(tilewright.TritonError, match="clc_try_cancel") as raised:
        next_program[(1,)](torch.zeros(1, dtype=torch.int32))
    assert raised.value.code == "TW0024"


@pytest.mark.parametrize("target", ["sm_100", "sm_103"])
def test_the_example(run, target):
    example = ROOT / "examples/63_gluon_cluster_launch_control.py"
    done = run("-m", "tilewright", "run", "--device", f"sim:{target}", example)
    assert done.code == 0, done.err
    tiles, programs = map(int, done.out.splitlines()[-1].split(": ")[1].split()[::3])
    assert 0 < programs < tiles == 152
