"""Traces of Gluon launches: the simulator's events are what the program states, and a hang names both sides."""

from __future__ import annotations

import collections
import importlib.util
import itertools
import json
import math
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import tilewright
from tilewright import sanitizer

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
viz = pytest.importorskip("tilewright.viz")

from traced import Traced  # noqa: E402

PARTITIONS = """
import tilewright as triton
from tilewright.experimental import gluon
from tilewright.experimental.gluon import language as gl
from tilewright.experimental.gluon.language.nvidia.ampere import async_copy, mbarrier


@gluon.jit
def produce(x_ptr, n, memory, full, empty, BLOCK: gl.constexpr, layout: gl.constexpr):
    for block in range(gl.cdiv(n, BLOCK)):
        offsets = block * BLOCK + gl.arange(0, BLOCK, layout=layout)
        mbarrier.wait(empty, block % 2 ^ 1)  # empty
        memory.store(gl.load(x_ptr + offsets, mask=offsets < n, other=0.0))
        mbarrier.arrive(full, count=1)  # arrives at full


@gluon.jit
def consume(n, memory, full, empty, BLOCK: gl.constexpr, layout: gl.constexpr):
    acc = gl.zeros([BLOCK], gl.float32, layout)
    for block in range(gl.cdiv(n, BLOCK)):
        mbarrier.wait(full, block % 2)  # full
        acc += memory.load(layout)
        mbarrier.arrive(empty, count=1)  # arrives at empty
    return acc


@gluon.jit
def total(x_ptr, out_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    of_one_warp: gl.constexpr = gl.BlockedLayout([4], [32], [1], [0])
    memory = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full, empty = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    acc = gl.warp_specialize(
        [
            (consume, (n, memory, full, empty, BLOCK, layout)),
            (produce, (x_ptr, n, memory, full, empty, BLOCK, of_one_warp)),
        ],
        worker_num_warps=[1],
        worker_num_regs=[40],
    )
    gl.store(out_ptr + gl.arange(0, BLOCK, layout=layout), acc)


@gluon.jit
def fetch(x_ptr, memory, block, n, BLOCK: gl.constexpr, STAGES: gl.constexpr, layout: gl.constexpr):
    offsets = block * BLOCK + gl.arange(0, BLOCK, layout=layout)
    async_copy.async_load(memory.index(block % STAGES), x_ptr + offsets, mask=offsets < n)
    async_copy.commit_group()


@gluon.jit
def ring(x_ptr, out_ptr, n, BLOCK: gl.constexpr, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    memory = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    for block in gl.static_range(STAGES - 1):
        fetch(x_ptr, memory, block, n, BLOCK, STAGES, layout)
    acc = gl.zeros([BLOCK], gl.float32, layout)
    for block in range(gl.cdiv(n, BLOCK)):
        fetch(x_ptr, memory, block + STAGES - 1, n, BLOCK, STAGES, layout)
        async_copy.wait_group(STAGES - 1)
        acc += memory.index(block % STAGES).load(layout)
    gl.store(out_ptr + gl.arange(0, BLOCK, layout=layout), acc)


@gluon.jit
def overlapping(out_ptr):
    offsets = gl.arange(0, 1, layout=gl.BlockedLayout([1], [32], [4], [0])) + gl.program_id(0) // 2
    gl.store(out_ptr + offsets, gl.program_id(0).to(gl.float32))
"""


@pytest.fixture(autouse=True)
def cleared(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    viz.clear()
    yield
    viz.clear()


def load(path, text=None):
    if text is not None:
        path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Program(Traced):
    """The events of a program of a simulated launch, with their facts by role."""

    def list(self, program=0):
        for number, event in enumerate(self.events(program)):
            op = self.ops[event[0]]
            facts = {
                value["role"]: form[1]
                for value, form in zip(op["values"], event[2:], strict=True)
                if len(form) > 1
            }
            line = op["places"][0][1] if op["places"] else 0
            yield {"name": op["name"], "number": number, "line": line, **facts}

    def places(self, program, event, tensor):
        """The elements of a tensor that an event accesses."""
        found = self.touched(program, event["number"])
        lanes = zip(found["mask"], found["tensors"], found["places"], strict=True)
        return [place for is_active, own, place in lanes if is_active and own == tensor]


def line_of(text, mark):
    (found,) = (number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}"))
    return found


def test_partitions_wait_for_each_other(tmp_path):
    module = load(tmp_path / "partitions.py", PARTITIONS)
    x, out = torch.randn(1400), torch.empty(512)
    viz.trace(module.total)[(1,)](x, out, 1400, 512)
    torch.testing.assert_close(out, torch.nn.functional.pad(x, (0, 136)).view(3, 512).sum(0))
    traced = Program()
    about = traced.about
    assert (about["device"], about["warps"], about["failed"], about["interpreted"]) == (
        "sim:sm_90",
        8,
        False,
        False,
    )
    events = list(traced.list())
    by_name = collections.defaultdict(list)
    for event in events:
        by_name[event["name"]].append(event)
    # The worker, warp 4, loads each element once; the four warps of the default partition store.
    assert {event["warp"] for event in by_name["load"]} == {4}
    loaded = [place for event in by_name["load"] for place in traced.places(0, event, 0)]
    assert sorted(loaded) == list(range(1400))
    assert {event["warp"] for event in by_name["store"]} == {0, 1, 2, 3}
    stored = [place for event in by_name["store"] for place in traced.places(0, event, 1)]
    assert sorted(stored) == list(range(512))
    # An arrival completes each phase, and each warp waits for it afterwards.
    full, empty = (line_of(PARTITIONS, f"arrives at {name}") for name in ("full", "empty"))
    arrivals = {(event["line"], event["phase"]): event for event in by_name["arrive"]}
    assert set(arrivals) == set(itertools.product((full, empty), range(3)))
    assert all(event["count"] == 1 and event["completes"] == 1 for event in by_name["arrive"])
    assert {event["warp"] for event in by_name["arrive"] if event["line"] == full} == {4}
    waits = {(event["line"], event["warp"], event["phase"]): event for event in by_name["wait"]}
    of_consumers = itertools.product([line_of(PARTITIONS, "full")], range(4), range(3))
    # The first wait of the producer is for the phase before the first one.
    of_producer = itertools.product([line_of(PARTITIONS, "empty")], [4], range(-1, 2))
    assert set(waits) == {*of_consumers, *of_producer}
    for (line, _, phase), wait in waits.items():
        if phase >= 0:
            arrival = arrivals[full if line == line_of(PARTITIONS, "full") else empty, phase]
            assert arrival["number"] < wait["number"]
            assert arrival["barrier"] == wait["barrier"]
    # A warp that begins to wait goes on later, for the same phase.
    for event in by_name["blocked"]:
        assert waits[event["line"], event["warp"], event["phase"]]["number"] > event["number"]


def test_copies_of_a_ring_fill_its_slots_in_turn(tmp_path):
    module = load(tmp_path / "ring.py", PARTITIONS)
    n, block, stages = 900, 256, 3
    x, out = torch.randn(n), torch.empty(block)
    viz.trace(module.ring)[(1,)](x, out, n, block, stages)
    traced = Program()
    slots = collections.defaultdict(list)
    groups = collections.Counter()
    for event in traced.list():
        if event["name"] == "copy_to_shared":
            slots[event["memory"] // (4 * block)].append(traced.places(0, event, 0))
        groups[event["name"], event.get("warp"), event.get("count")] += 1
    steps = math.ceil(n / block)
    for slot in range(stages):
        filled = sorted(place for places in slots[slot] for place in places)
        expected = [
            at
            for step in range(slot, steps + stages - 1, stages)
            for at in range(step * block, (step + 1) * block)
        ]
        assert filled == [at for at in expected if at < n]
    for warp in range(4):
        assert groups["commit_copies", warp, None] == steps + stages - 1
        assert groups["wait_copies", warp, stages - 1] == steps


@pytest.fixture(scope="module")
def example():
    return load(ROOT / "examples" / "57_gluon_warp_specialize.py")


def traced_matmul(example, monkeypatch, m, n, k):
    monkeypatch.setattr(example, "matmul_kernel", viz.trace(example.matmul_kernel))
    a, b = (torch.randn(shape).half() for shape in ((m, k), (n, k)))
    torch.testing.assert_close(example.matmul(a, b).double(), a.double() @ b.double().T, rtol=2e-3, atol=2e-2)
    return Program()


def test_tensor_copies_and_dots(example, monkeypatch):
    m, n, k = 70, 64, 72
    traced = traced_matmul(example, monkeypatch, m, n, k)
    names = [tensor["name"] for tensor in traced.about["tensors"]]
    a, c = (next(at for at, name in enumerate(names) if name.startswith(f"{which}_desc")) for which in "ac")
    steps, block_k = math.ceil(k / example.BLOCK_K), example.BLOCK_K
    written = []
    for program in range(2):
        events = list(traced.list(program))
        rows = range(program * 64, min(m, program * 64 + 64))
        copies = [event for event in events if event["name"] == "copy_to_shared"]
        boxes = [places for event in copies if (places := traced.places(program, event, a))]
        expected = [
            [
                row * k + column
                for row in rows
                for column in range(step * block_k, min(k, (step + 1) * block_k))
            ]
            for step in range(steps)
        ]
        assert [sorted(places) for places in boxes] == expected
        # Both copies of a step arrive at `full`; the last of them completes the phase.
        arrived = [event for event in events if event["name"] == "complete"]
        assert [event["bytes"] for event in arrived] == [64 * block_k * 2] * 2 * steps
        assert [event["completes"] for event in arrived] == [0, 1] * steps
        # A dot of depth 32 is two instructions of m64n64k16, in each of four warps.
        dots = [(event["warp"], event["count"]) for event in events if event["name"] == "dot"]
        assert sorted(dots) == sorted((warp, block_k // 16) for warp in range(4) for _ in range(steps))
        for event in events:
            if event["name"] == "copy_to_global":
                written += traced.places(program, event, c)
    assert sorted(written) == list(range(m * n))
    assert traced.overlaps(c)["races"] == []


def test_the_code_of_the_launch_has_layouts_buffers_and_barriers(example, monkeypatch):
    traced = traced_matmul(example, monkeypatch, 64, 64, 32)
    code = json.loads(traced.file.layouts(0, 75))
    memory = {entry["name"]: entry for entry in code["memory"]}
    assert [memory[name]["slots"] for name in ("a_smem", "b_smem", "full", "empty")] == [3] * 4
    assert memory["a_smem"]["tile"] == "fp16[64, 32]"
    assert memory["a_smem"]["slotBytes"] == 64 * 32 * 2
    assert [part["name"] for part in code["partitions"]] == ["default", "worker 1", "idle"]
    assert [part["warps"] for part in code["partitions"]] == [4, 1, 3]
    text = (ROOT / "examples" / "57_gluon_warp_specialize.py").read_text().splitlines()

    def uses(name):
        found = memory[name]["uses"]
        return {
            (use["action"], use["partition"], text[use["line"] - 1].strip().split("(")[0]) for use in found
        }

    assert uses("full") == {
        ("init", 0, "mbarrier.init"),
        ("wait", 0, "mbarrier.wait"),
        ("arrive", 1, "mbarrier.expect"),
        ("bytes", 1, "tma.async_load"),
    }
    assert uses("empty") == {
        ("init", 0, "mbarrier.init"),
        ("wait", 1, "mbarrier.wait"),
        ("arrive", 0, "mbarrier.arrive"),
    }
    assert {use[:2] for use in uses("a_smem")} == {("write", 1), ("read", 0)}
    # The accumulator is in the layout of wgmma: the row and the column of each register, lane and warp bit.
    layouts = {layout["id"]: layout for layout in code["layouts"]}
    (line,) = (line for line in code["lines"] if "%acc = for_loop" in line)
    found = layouts[re.search(r"@(L\d+)", line)[1]]
    assert found["lane"] == [2, 4, 64, 128, 256]
    assert found["warp"] == [16 * 64, 32 * 64]


def test_races_between_programs_are_findings(tmp_path, capsys):
    module = load(tmp_path / "race.py", PARTITIONS)
    viz.trace(module.overlapping, clients="race_detector")[(4,)](torch.zeros(2))
    traced = Traced()
    assert traced.overlaps(0)["races"] == [0, 1]
    (finding,) = traced.about["findings"]
    assert finding["check"] == "race"
    assert finding["code"] == "TW0221"
    assert "two programs race" in capsys.readouterr().err
    assert len(sanitizer.reports()) == 1
    sanitizer.clear()


def test_a_trace_is_kept_and_becomes_a_page(tmp_path):
    module = load(tmp_path / "kept.py", PARTITIONS)
    viz.trace(module.total)[(1,)](torch.randn(100), torch.empty(256), 100, 256)
    before = Traced()
    viz.save(tmp_path / "kept.twtrace")
    viz.clear()
    viz.load(tmp_path / "kept.twtrace")
    viz.load(tmp_path / "kept.twtrace", append=True)
    for launch in range(2):
        again = Traced(launch)
        assert again.about == before.about
        assert again.events(0) == before.events(0)
        assert again.file.layouts(launch, 90) == before.file.layouts(0, 90)
    viz.save_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count('data-part="launch=1') >= 3


@pytest.fixture
def hanging(tmp_path):
    wrong = PARTITIONS.replace("mbarrier.wait(empty, block % 2 ^ 1)", "mbarrier.wait(empty, block % 2)")
    assert wrong != PARTITIONS
    return load(tmp_path / "hang.py", wrong)


def test_a_hang_names_both_sides(hanging):
    x, out = torch.randn(700), torch.empty(256)
    with pytest.raises(tilewright.TritonError, match="deadlock: every warp waits for another one") as raised:
        viz.trace(hanging.total)[(1,)](x, out, 700, 256)
    text = str(raised.value)
    lines = {
        name: line_of(PARTITIONS, name) for name in ("full", "empty", "arrives at full", "arrives at empty")
    }
    assert (
        f"warps 0 to 3 (default) wait in line {lines['full']} for phase 0 of `full`, which lacks 1 of 1 arrivals: "
        f"only mbarrier_arrive_times in line {lines['arrives at full']} (worker 1) arrives there"
    ) in text
    assert (
        f"warp 4 (worker 1) waits in line {lines['empty']} for phase 0 of `empty`, which lacks 1 of 1 arrivals: "
        f"only mbarrier_arrive_times in line {lines['arrives at empty']} (default) arrives there"
    ) in text
    traced = Program()
    assert traced.about["failed"]
    assert traced.about["failure"] == text
    assert traced.about["programs"][0][1] & 4
    events = list(traced.list())
    stuck = {(event["warp"], event["line"], event["phase"]) for event in events if event["name"] == "blocked"}
    assert stuck == {(4, lines["empty"], 0), *((warp, lines["full"], 0) for warp in range(4))}
    assert not [event for event in events if event["name"] in ("wait", "load")]


def test_explain_lists_buffers_and_barriers(tmp_path):
    command = [sys.executable, "-m", "tilewright", "explain", "examples/51_gluon_async_copy.py::row_norms"]
    signature = "*fp32:16,*fp32:16,i32,i32,16,64,3"
    page = tmp_path / "page.html"
    made = subprocess.run(
        [*command, "-s", signature, "-o", str(page)], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1]
    )
    ring = next(entry for entry in data["memory"] if entry["name"] == "smem")
    assert (ring["slots"], ring["tile"], ring["slotBytes"]) == (3, "fp32[16, 64]", 16 * 64 * 4)
    lines = (ROOT / "examples" / "51_gluon_async_copy.py").read_text().splitlines()
    used = {(use["action"], lines[use["line"] - 1].strip().split("(")[0]) for use in ring["uses"]}
    assert used == {("write", "async_copy.async_load"), ("read", "x = smem.index")}
    assert data["partitions"] == []
