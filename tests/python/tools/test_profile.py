"""``tilewright profile``: what is counted is exact on the CPU and in the simulator, and the files can be read."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from conftest import PATIENCE, ROOT, environment_of
from helpers import check_trace

from tilewright._flame import flame_graph
from tilewright._profile import duration

PROGRAM = """
import numpy as np
import tilewright as triton
import tilewright.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a = tl.load(x + at, mask=mask)
    b = tl.load(y + at, mask=mask)
    tl.store(out + at, a + b, mask=mask)


@triton.jit
def product(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))


x, y, out = (np.ones(1000, np.float32) for _ in range(3))
for _ in range(3):
    add[(8,)](x, y, out, 1000, BLOCK=128)
a, b, c = (np.ones((32, 32), np.float16) for _ in range(3))
product[(1,)](a, b, c, 32)
print(out[999], c[0, 0])
"""


def profile(tmp_path, *options, program=PROGRAM, code=0, device="cpu", **variables):
    """Runs the command on a program; gives what it said, and the JSON."""
    script = tmp_path / "program.py"
    script.write_text(program)
    data = tmp_path / "profile.json"
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "tilewright",
            "profile",
            "--device",
            device,
            "--json",
            str(data),
            *options,
            str(script),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "TILEWRIGHT_DEVICE"} | variables,
        timeout=PATIENCE,
    )
    assert made.returncode == code, made.stderr
    return made, json.loads(data.read_text()) if data.exists() and data.stat().st_size else None


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    files = ["--flame", str(folder / "flame.svg"), "--trace", str(folder / "trace.json")]
    made, data = profile(folder, *files)
    assert made.stdout == "2.0 32.0\n"
    return made.stderr, data, folder


def kernel(data, name):
    (found,) = (one for one in data["kernels"] if one["name"] == name)
    return found


def test_bytes_and_operations_of_the_cpu_are_exact(on_cpu):
    _, data, _ = on_cpu
    add = kernel(data, "add")
    # 1000 of 1024 lanes, three times: masked lanes move nothing.
    assert (add["launches"], add["read"], add["written"]) == (3, 3 * 2 * 4000, 3 * 4000)
    assert add["flops"] == 3 * 1024
    product = kernel(data, "product")
    assert (product["read"], product["written"]) == (2 * 32 * 32 * 2, 32 * 32 * 2)
    assert product["flops"] >= 2 * 32**3
    dot = next(step for step in product["steps"] if step["name"] == "dot")
    assert (dot["executions"], dot["flops"]) == (1, 2 * 32**3)


def test_lines_are_those_of_the_source(on_cpu):
    _, data, _ = on_cpu
    rows = PROGRAM.splitlines()
    lines = kernel(data, "product")["lines"]
    assert any("tl.dot" in line["text"] for line in lines)
    for line in lines:
        assert line["place"] == str(line["line"])
        assert rows[line["line"] - 1].strip() == line["text"]


@pytest.mark.skipif(os.environ.get("TILEWRIGHT_MACHINE_CODE") == "0", reason="machine code is off")
def test_a_nest_is_one_row_with_its_lines(on_cpu):
    said, data, _ = on_cpu
    (step,) = kernel(data, "add")["steps"]
    assert step["machineCode"], "the profiler runs the machine code of other launches"
    assert step["executions"] == 3 * 8
    (row,) = kernel(data, "add")["lines"]
    first = next(at for at, text in enumerate(PROGRAM.splitlines(), 1) if "at = tl.program_id" in text)
    assert (row["line"], row["place"], row["text"]) == (first, f"{first}-{first + 4}", "machine code")
    assert row["ns"] == step["ns"] > 0
    assert f"program.py:{first}-{first + 4}: machine code  [program_id(0) + " in said


def test_without_machine_code_each_op_is_a_row(tmp_path):
    made, data = profile(tmp_path, TILEWRIGHT_MACHINE_CODE="0")
    assert made.stdout == "2.0 32.0\n"
    add = kernel(data, "add")
    assert not any(step["machineCode"] for step in add["steps"])
    assert {"load", "store"} <= {step["name"] for step in add["steps"]}
    assert (add["read"], add["written"]) == (3 * 2 * 4000, 3 * 4000)


def test_lines_of_a_nest_are_ranges():
    from tilewright._profile import _ranges

    assert _ranges([("/a/k.py", 7), ("/a/k.py", 5), ("/a/k.py", 6), ("/a/k.py", 9)]) == "5-7,9"
    assert _ranges([("/a/k.py", 7), ("/b/m.py", 7), ("/b/m.py", 8)]) == "7,m.py:7-8"


def test_the_times_of_steps_are_within_the_launches(on_cpu):
    _, data, _ = on_cpu
    for one in data["kernels"]:
        launches = [launch for launch in data["launches"] if data["kernels"][launch["kernel"]] is one]
        assert len(launches) == one["launches"]
        threads = os.cpu_count() or 1
        assert (
            0 < sum(step["ns"] for step in one["steps"]) <= threads * sum(launch["ns"] for launch in launches)
        )


def test_the_table_names_kernels_and_lines(on_cpu):
    text, _, _ = on_cpu
    assert "add(x: *fp32, y: *fp32, out: *fp32, n: int32, BLOCK=128) on cpu" in text
    assert "tl.dot(tl.load(a + at), tl.load(b + at)" in text


def test_flame_graph_and_trace_can_be_read(on_cpu):
    _, _, folder = on_cpu
    svg = ElementTree.parse(folder / "flame.svg").getroot()
    titles = [title.text for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0].startswith("all: ")
    assert any(title.startswith("product(") for title in titles)
    assert svg.find("{http://www.w3.org/2000/svg}script") is not None
    assert "prefers-color-scheme:dark" in (folder / "flame.svg").read_text()
    launches = check_trace(json.loads((folder / "trace.json").read_text()))
    assert [event["name"] for event in launches] == ["add"] * 3 + ["product"]
    assert all(event["dur"] > 0 for event in launches)
    starts = [event["ts"] for event in launches]
    assert starts == sorted(starts)


def test_sums_of_fractions_are_rounded_as_the_launch_is():
    # The table shows 283985 ns as "283.99 us", and a sum slightly below it would be "283.98 us".
    fractions = [283985 * share for share in (0.1, 0.2, 0.3, 0.4)]
    lines = [(["kernel", f"line {index}"], weight - 1e-11) for index, weight in enumerate(fractions)]
    assert sum(weight for _, weight in lines) < 283985
    assert f"kernel: {duration(283985)}, 100.0%" in flame_graph(lines)


def test_the_flame_graph_has_the_rows_of_the_table(tmp_path):
    # Without machine code, a kernel has several lines.
    flame = tmp_path / "flame.svg"
    made, data = profile(tmp_path, "--flame", str(flame), TILEWRIGHT_MACHINE_CODE="0")
    text = made.stderr
    row = re.compile(r" *([\d.]+ \w+) +([\d.]+%) +(\d+) +([\d.]+ \w+) +\S+ +\S+  (.* on cpu.*)")
    table = {match[5]: match.groups()[:4] for match in map(row.fullmatch, text.splitlines()) if match}
    # A first launch includes compilation: it is a row, and so is what comes after it.
    launches = {name: int(cells[2]) for name, cells in table.items()}
    add, product = (kernel(data, name)["form"] for name in ("add", "product"))
    assert launches == {
        f"{add} on cpu, first launch": 1,
        f"{add} on cpu": 2,
        f"{product} on cpu, first launch": 1,
    }
    svg = "{http://www.w3.org/2000/svg}"
    boxes = []
    for group in ElementTree.parse(flame).iter(f"{svg}g"):
        name, _, about = group.find(f"{svg}title").text.rpartition(": ")
        rect = group.find(f"{svg}rect")
        left, top, width = (float(rect.get(key)) for key in ("x", "y", "width"))
        boxes.append((name, about, left, top, width))
    step = boxes[1][3] - boxes[0][3]

    def within(box):
        left, right = box[2] - 0.1, box[2] + box[4] - 0.1
        return [one for one in boxes if one[3] == box[3] + step and left <= one[2] < right]

    rows = within(boxes[0])
    assert {name: about for name, about, *_ in rows} == {
        name: f"{cells[0]}, {cells[1]}" for name, cells in table.items()
    }
    assert sum(float(cells[1][:-1]) for cells in table.values()) == pytest.approx(100, abs=0.2)
    assert sum(box[4] for box in rows) == pytest.approx(boxes[0][4], abs=0.1)
    for box in rows:
        section = text.partition(f"\n{box[0].partition(' on')[0]}\n")[2].partition("\n\n")[0]
        shares = [float(share) for share in re.findall(r"([\d.]+)% +\S+ +\S+  program", section)]
        drawn = [100 * line[4] / box[4] for line in within(box)]
        assert len(drawn) > 1 or len(shares) == 1
        assert drawn == pytest.approx(shares[: len(drawn)], abs=1)


def test_only_a_clock_on_the_host_sees_first_launches(tmp_path):
    made, _ = profile(tmp_path, device="sim:sm_80")
    assert "first launch" not in made.stderr


def test_a_loop_is_no_part_of_what_it_repeats(tmp_path):
    program = PROGRAM.split("x, y, out =")[0] + (
        "\n@triton.jit\ndef total(x, out, n):\n    s = 0.0\n    for i in range(n):\n"
        "        s += tl.sum(tl.load(x + i * 64 + tl.arange(0, 64)), 0)\n    tl.store(out, s)\n"
        "x, out = np.ones(640, np.float32), np.zeros(1, np.float32)\ntotal[(1,)](x, out, 10)\nprint(out[0])\n"
    )
    made, data = profile(tmp_path, program=program)
    assert made.stdout == "640.0\n"
    one = kernel(data, "total")
    assert one["read"] == 640 * 4
    loads = [step for step in one["steps"] if "load" in step["name"]]
    assert sum(step["executions"] for step in loads) == 10
    (loop,) = (step for step in one["steps"] if "loop" in step["name"] and "fused" not in step["name"])
    assert loop["executions"] == 1


@pytest.mark.parametrize("device", ["sim:sm_80", "sim:sm_90"])
def test_the_simulator_counts_sectors(tmp_path, device):
    made, data = profile(tmp_path, device=device)
    assert made.stdout == "2.0 32.0\n"
    add, product = kernel(data, "add"), kernel(data, "product")
    # 4000 bytes are 125 sectors; there are two loads and a store.
    assert add["sim"]["total"]["sectors"] == 3 * 3 * 125
    assert product["sim"]["total"]["tensor"] == 2 * 32**3
    # Only global memory counts, not the shared memory to which asynchronous copies write.
    assert (add["read"], add["written"]) == (3 * 2 * 4000, 3 * 4000)
    assert (product["read"], product["written"]) == (2 * 32 * 32 * 2, 32 * 32 * 2)
    estimate = add["sim"]["estimate"]
    assert estimate["gpu"] == {"sim:sm_80": "A100", "sim:sm_90": "H100"}[device]
    assert estimate["memoryBytes"] == 3 * 3 * 4000
    longest = max(estimate["busy"].values())
    assert estimate["busy"][estimate["bound"]] == longest
    assert estimate["ns"] == pytest.approx(longest / estimate["clock"])
    assert "roofline" in made.stderr
    assert "sectors" in made.stderr


def test_the_model_is_of_the_gpu_that_is_named(tmp_path):
    _, slow = profile(tmp_path, "--gpu", "A10", device="sim:sm_80")
    _, fast = profile(tmp_path, "--gpu=a100", device="sim:sm_80")
    times = [kernel(one, "add")["sim"]["estimate"] for one in (slow, fast)]
    assert [one["gpu"] for one in times] == ["A10", "A100"]
    assert times[0]["busy"]["memory"] > times[1]["busy"]["memory"]
    made, _ = profile(tmp_path, "--gpu", "A100", device="cpu")
    assert "warning: --gpu A100 has no effect: no kernel ran on a simulated GPU" in made.stderr


def test_an_error_of_the_program_is_its_own(tmp_path):
    made, data = profile(tmp_path, program=PROGRAM + "\nraise SystemExit(3)\n", code=3)
    assert kernel(data, "add")["launches"] == 3
    assert "add(" in made.stderr
    made, data = profile(tmp_path, program="print(1)\n")
    assert made.stderr == "no launch was completed\n"


def test_a_reader_may_close_the_pipe(tmp_path):
    (tmp_path / "program.py").write_text(re.sub(r"^print\(.*\n", "", PROGRAM, flags=re.MULTILINE))
    command = f"{shlex.quote(sys.executable)} -m tilewright profile --json - program.py | :"
    made = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment_of(),
        timeout=PATIENCE,
    )
    assert "BrokenPipeError" not in made.stderr
    assert "Exception ignored" not in made.stderr


def test_mistakes(tmp_path):
    for options, expected in (
        (["--gpu", "Voodoo2"], "error[TW0109]: there is no model of a GPU 'Voodoo2'\n"),
        (["--flame", "x.png"], ".svg"),
        (["--json", str(tmp_path / "no" / "x.json")], "cannot write"),
        (["--lines", "many"], "argument --lines: invalid int value: 'many'"),
        (["--lines=-1"], "--lines is a number of lines"),
        (["--what"], "unknown option '--what'"),
        (
            ["--flam", "x.svg"],
            "unknown option '--flam'; did you mean `--flame`?\nhelp: `tilewright profile --help`",
        ),
        ([], "no program to profile"),
    ):
        arguments = [*options, "program.py"] if options else []
        made = subprocess.run(
            [sys.executable, "-m", "tilewright", "profile", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert made.returncode == 2, made.stderr
        assert expected in made.stderr
        assert made.stderr.count("error") == 1
        assert "Traceback" not in made.stderr


COUNTED = (
    PROGRAM.split("x, y, out =")[0]
    + """

@triton.jit
def copy(x, out, STRIDE: tl.constexpr, SWAP: tl.constexpr):
    rows, columns = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    at = rows * 32 + columns
    tl.store(out + (columns * 32 + rows if SWAP else at), tl.load(x + at * STRIDE))


@triton.jit
def pick(x, index, out):
    at = tl.arange(0, 32)
    table = tl.load(x + tl.arange(0, 1024))
    tl.store(out + at, tl.gather(table, tl.load(index + at), 0))


x, out = np.arange(8192, dtype=np.float32), np.zeros(1024, np.float32)
copy[(1,)](x, out, STRIDE=1, SWAP=False)
copy[(1,)](x, out, STRIDE=8, SWAP=False)
for stride in (32, 1):
    index = np.arange(32, dtype=np.int32) * stride
    pick[(1,)](x, index, out, num_warps=1 if stride == 32 else 2)
    assert (out[:32] == index).all()
a, b, c = (np.ones((64, 64), np.float16) for _ in range(3))
product[(1,)](a, b, c, 64)
"""
)


def test_what_the_simulator_counts_is_what_is_counted_by_hand(tmp_path):
    _, data = profile(tmp_path, "--gpu", "A100", program=COUNTED, device="sim:sm_80")
    of = {one["form"]: one["sim"] for one in data["kernels"]}

    def line(form, text):
        (kernel,) = (one for one in data["kernels"] if form in one["form"])
        (row,) = (row for row in kernel["lines"] if text in row["text"])
        return row["counts"]

    # 4096 bytes are 128 sectors of 32 bytes, for the load and for the store.
    assert line("STRIDE=1", "tl.store")["sectors"] == 2 * 128
    # Of every eighth number, each is in a sector of its own: 1024 and not 128.
    apart = line("STRIDE=8", "tl.store")
    assert (apart["sectors"], apart["idealSectors"]) == (1024 + 128, 2 * 128)
    (product,) = (sim for form, sim in of.items() if form.startswith("product"))
    assert product["total"]["tensor"] == 2 * 64**3
    estimate = product["estimate"]
    assert estimate["memoryBytes"] == 3 * 64 * 64 * 2
    assert estimate["intensity"] == pytest.approx(estimate["operations"] / estimate["memoryBytes"])
    # Numbers of fp16 on an A100: 312 Tflop/s, 1555 GB/s; at 21.3 flop/byte the memory is the roof.
    assert estimate["roof"] == pytest.approx(
        min(312e3, estimate["intensity"] * estimate["bandwidth"]), rel=0.02
    )


def test_bank_conflicts_are_those_of_the_indices(tmp_path):
    _, data = profile(tmp_path, program=COUNTED, device="sim:sm_80")
    excess = {}
    for one in data["kernels"]:
        if one["name"] == "pick":
            total = one["sim"]["total"]
            excess[one["threads"]] = total["wavefronts"] - total["idealWavefronts"]
    # Words that are 128 bytes apart are all in one bank: 32 lanes take 31 wavefronts too many. Neighbors take one.
    assert excess == {32: 31, 64: 0}


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n", 130, "KeyboardInterrupt"),
        ("add[(9,)](x, y, out, 3000, BLOCK=128)\n", 1, "error[TW0201]: load out of bounds of `x`"),
    ],
    ids=["interrupted", "out_of_bounds"],
)
def test_what_ran_before_the_end_is_written(tmp_path, ending, code, said):
    program = f"import os, signal, time\n{PROGRAM}\n{ending}"
    script = tmp_path / "program.py"
    script.write_text(program)
    data = tmp_path / "profile.json"
    command = [
        sys.executable,
        "-m",
        "tilewright",
        "profile",
        "--device",
        "cpu",
        "--json",
        str(data),
        str(script),
    ]
    made = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    # A process that Ctrl-C ends says so by the signal.
    assert made.returncode in (code, -2 if code == 130 else code), made.stderr
    assert said in made.stderr
    measured = json.loads(data.read_text())
    assert kernel(measured, "add")["launches"] == 3
    assert kernel(measured, "product")["launches"] == 1


def test_each_configuration_of_an_autotuner_is_a_row(tmp_path):
    tuned = """
tuned = triton.autotune([triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"])(add)
tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, out, 1000)
"""
    _, data = profile(tmp_path, program=PROGRAM.split("for _ in range(3):\n")[0] + tuned)
    forms = {one["form"].rpartition(", ")[2] for one in data["kernels"]}
    assert forms == {"BLOCK=64)", "BLOCK=128)"}


# The kernel is compiled anew before each launch, so that a later compilation may get the memory of an earlier one.
COMPILATIONS = (
    PROGRAM[: PROGRAM.index("@triton.jit\ndef product")]
    + """
x, y, out = (np.ones(1000, np.float32) for _ in range(3))
for launch in range(24):
    add.clear_cache()
    add[(8,)](x, y, out, 1000, BLOCK=128, num_warps=1 << launch % 3)
"""
)


def test_launches_with_other_code_have_their_own_counters(tmp_path):
    """Each compilation is a row with one launch of 8 blocks, and with the threads that the launch requested."""
    _, data = profile(tmp_path, program=COMPILATIONS, device="sim:sm_80")
    found = [(row["launches"], row["threads"], row["sim"]["blocks"]) for row in data["kernels"]]
    assert found == [(1, 32 << launch % 3, 8) for launch in range(24)]


WITH_SESSIONS = """
import os, signal, time
import numpy as np
import triton, triton.language as tl, triton.profiler as proton


@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


x = np.zeros(1000, np.float32)


def launch():
    add[(8,)](x, 1000, BLOCK=128)


launch()
first = START
launch()
launch()
PAUSE
launch()
GO_ON
launch()
END
"""

START = {"START": "proton.start('first')"}
DEACTIVATE = {"PAUSE": "proton.deactivate(first)", "GO_ON": "proton.activate(first)"}
SESSIONS = {
    "open": ("cpu", START, 0, 4),
    "finalized": ("cpu", START | {"GO_ON": "proton.finalize(first)"}, 0, 3),
    "deactivated": ("sim:sm_80", START | DEACTIVATE | {"END": "proton.finalize(first)"}, 0, 3),
    "interrupted": (
        "sim:sm_80",
        START | {"END": "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"},
        130,
        4,
    ),
    "terminated": ("cpu", START | {"END": "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)"}, 143, 4),
}


@pytest.mark.parametrize("sessions", SESSIONS)
def test_the_sessions_of_the_program_take_no_launch_from_the_table(tmp_path, sessions):
    """The program launches 5 times; its session has those between its start, its end and its pauses."""
    device, parts, code, in_session = SESSIONS[sessions]
    program = WITH_SESSIONS
    for part in ("START", "PAUSE", "GO_ON", "END"):
        program = program.replace(part, parts.get(part, "None"))
    (tmp_path / "program.py").write_text(program)
    options = ["--device", device, "--gpu", "A100", "--json", "out.json", "program.py"]
    made = subprocess.run(
        [sys.executable, "-m", "tilewright", "profile", *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment_of(),
        timeout=PATIENCE,
    )
    # A process that Ctrl-C ends says so by the signal.
    assert made.returncode in (code, -2 if code == 130 else code), made.stderr
    rows = re.findall(r"% +(\d+) .*BLOCK=128\) on ", made.stderr)
    assert sum(map(int, rows)) == 5, made.stderr
    measured = json.loads((tmp_path / "out.json").read_text())
    (row,) = measured["kernels"]
    assert row["launches"] == len(measured["launches"]) == 5
    # Each launch loads and stores 1000 floats.
    assert (row["read"], row["written"]) == (20_000, 20_000)
    assert row["ns"] == pytest.approx(sum(one["ns"] for one in measured["launches"]))
    tree, _ = json.loads((tmp_path / "first.hatchet").read_text())
    assert [child["metrics"]["count"] for child in tree["children"]] == [in_session]


def test_a_profile_in_parts_is_the_profile(tmp_path):
    """A session takes the counters after each launch; their sum is what one profile of all launches has."""
    found = []
    loop = "for _ in range(3):\n"
    for replaced in (loop, f"{loop}    triton.profiler.start({str(tmp_path / 'session')!r})\n"):
        program = PROGRAM.replace(loop, replaced, 1).replace(
            "import tilewright as triton", "import tilewright as triton, tilewright.profiler"
        )
        _, data = profile(tmp_path, program=program, device="sim:sm_90")
        found.append(data["kernels"])
    for whole, parts in zip(*found, strict=True):
        expected, sim = whole.pop("sim"), parts.pop("sim")
        estimate, summed = expected.pop("estimate"), sim.pop("estimate")
        for one in (expected, sim):
            one["lines"].sort(key=lambda line: (line["file"], line["line"]))
        assert sim == expected
        assert summed.pop("busy") == pytest.approx(estimate.pop("busy"))
        for name, value in estimate.items():
            assert summed[name] == (value if isinstance(value, str) else pytest.approx(value)), name
        assert (parts["launches"], parts["read"]) == (whole["launches"], whole["read"])
