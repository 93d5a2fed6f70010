"""Programs with longer loops begin first: each runs once, whatever the grid. Those that may wait keep their order."""

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

TILE = 16


@triton.jit
def triangle(x_ptr, out_ptr, runs_ptr, count, KIND: tl.constexpr, TILE: tl.constexpr):
    """Sums of products of the blocks on one side of the diagonal, or as KIND says."""
    row = tl.program_id(0)
    line = tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)
    i = tl.arange(0, TILE)
    place = i[:, None] * TILE + i[None, :]
    acc = tl.zeros((TILE, TILE), tl.float32)
    if KIND == "grows" or KIND == "two loops":
        first, last = 0, (row + 1) * TILE
    elif KIND == "falls":
        first, last = row * TILE, count * TILE
    elif KIND == "minimum":
        first, last = 0, tl.minimum((row * TILE + 2 * TILE) // 2, count * TILE)
    elif KIND == "band":
        first, last = row * TILE, row * TILE + 2 * TILE
    elif KIND == "other axis":
        first, last = 0, (row + tl.program_id(1)) * TILE
    else:
        first, last = 0, (row + 1) * TILE
        while tl.load(runs_ptr, volatile=True) < 0:
            pass
    for start in range(first, last, TILE):
        x = tl.load(x_ptr + (start // TILE % count) * TILE * TILE + place)
        acc = tl.dot(x, x, acc)
    if KIND == "two loops":
        for _ in range(row * TILE, row * TILE + TILE, TILE):
            acc = tl.dot(tl.load(x_ptr + place), tl.load(x_ptr + place), acc)
    number = line * tl.num_programs(0) + row
    tl.store(out_ptr + number * TILE * TILE + place, acc)
    tl.atomic_add(runs_ptr + number, 1)


def steps(kind, row, line, grid):
    """The blocks that a program adds up."""
    count = grid[0]
    return {
        "grows": range(row + 1),
        "two loops": [*range(row + 1), 0],
        "waits": range(row + 1),
        "falls": range(row, count),
        "minimum": range(-(-min((row * TILE + 2 * TILE) // 2, count * TILE) // TILE)),
        "band": range(row, row + 2),
        "other axis": range(row + line % grid[1]),
    }[kind]


ORDERS = {
    "grows": "longest CTA first by descending id",
    "two loops": "longest CTA first by descending id",
    "minimum": "longest CTA first by descending id",
    "falls": "longest CTA first by ascending id",
    "band": "",
    "other axis": "",
    "waits": "",
}
GRIDS = [(1, 1, 1), (5, 3, 2), (3, 35, 1), (40, 1, 1), (2, 1, 19), (7, 17, 3)]


@pytest.mark.parametrize("kind", ORDERS)
def test_each_program_runs_once(kind, device):
    torch.manual_seed(0)
    for grid in GRIDS:
        count, lines = grid[0], grid[1] * grid[2]
        x = torch.randint(-2, 3, (count, TILE, TILE)).half()
        out = torch.full((lines, count, TILE, TILE), torch.nan, device=device)
        runs = torch.zeros(lines, count, dtype=torch.int32, device=device)
        handle = triangle[grid](x.to(device), out, runs, count, kind, TILE)
        assert (runs == 1).all()
        squares = x.double() @ x.double()
        for line in range(lines):
            for row in range(count):
                blocks = [step % count for step in steps(kind, row, line, grid)]
                expected = squares[blocks].sum(0) if blocks else torch.zeros(TILE, TILE)
                assert torch.equal(out[line, row].cpu().double(), expected.double())
        if "gpu" in handle.asm:
            header = handle.asm["gpu"].splitlines()[0]
            assert ORDERS[kind] in header
            assert ("longest CTA first" in header) == bool(ORDERS[kind])


@triton.jit
def says_its_number(out_ptr, TILE: tl.constexpr):
    i = tl.arange(0, TILE)
    place = i[:, None] * TILE + i[None, :]
    acc = tl.zeros((TILE, TILE), tl.float32)
    for _ in range(tl.program_id(0)):
        x = tl.load(out_ptr + place).to(tl.float16)
        acc = tl.dot(x, x, acc)
    tl.store(out_ptr + place, acc)
    tl.device_print("number", tl.program_id(1))


def test_a_program_says_its_own_number(device, capfd):
    says_its_number[(2, 3)](torch.zeros(TILE, TILE, device=device), TILE)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    lines = sorted(line for line in capfd.readouterr().out.splitlines() if "number" in line)
    assert lines == sorted(f"pid ({x}, {y}, 0) idx () number: {y}" for x in range(2) for y in range(3))


@triton.jit
def takes_turns(v_ptr, out_ptr, flag_ptr, TILE: tl.constexpr, GROUP: tl.constexpr):
    """Later programs have longer loops, and each group of them waits for the last program of the group before it."""
    pid = tl.program_id(0)
    i = tl.arange(0, TILE)
    place = i[:, None] * TILE + i[None, :]
    v = tl.load(v_ptr + place)
    acc = tl.zeros((TILE, TILE), tl.float32)
    for _ in range(pid // GROUP):
        acc = tl.dot(v, v, acc)
    tl.atomic_poll(flag_ptr + pid // GROUP, 1)
    tl.store(out_ptr + pid * TILE * TILE + place, acc)
    tl.atomic_add(flag_ptr + (pid + 1) // GROUP, 1, mask=(pid + 1) % GROUP == 0)


def test_programs_that_poll_keep_their_order(device):
    # More programs of 32 warps than 132 multiprocessors hold. The simulator would take minutes for more and smaller
    # programs that poll, or for groups of one.
    group = 16
    programs = 132 * 2 + group
    v = torch.eye(TILE, dtype=torch.float16, device=device)
    out = torch.full((programs, TILE, TILE), torch.nan, device=device)
    flags = torch.zeros(-(-programs // group) + 1, dtype=torch.int32, device=device)
    flags[0] = 1
    handle = takes_turns[(programs,)](v, out, flags, TILE, group, num_warps=32)
    assert flags.tolist() == [1] * (programs // group + 1) + [0] * (programs % group > 0)
    pid = torch.arange(programs)
    steps = pid // group
    assert torch.equal(out.cpu().diagonal(dim1=1, dim2=2), steps[:, None].expand(-1, TILE).float())
    if "gpu" in handle.asm:
        assert "longest CTA first" not in handle.asm["gpu"].splitlines()[0]
