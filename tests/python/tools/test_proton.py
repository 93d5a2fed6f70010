"""``triton.profiler``: the tree of scopes and launches, on each device, and that Triton's own viewer reads it."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import PATIENCE, ROOT, environment_of
from helpers import check_trace

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs, profiler
from tilewright.profiler import language as pl
from tilewright.profiler import viewer


def metadata(grid, kernel, args):
    n = args["n"]
    return {"name": f"add_{n}", "flops32": n, "bytes": 12 * n, "other": object()}


@triton.jit(launch_metadata=metadata)
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@pytest.fixture
def launch(device):
    n = 1000
    if device == "cuda":
        import torch

        arrays = [torch.ones(n, device="cuda") for _ in range(3)]
    else:
        arrays = [np.ones(n, np.float32) for _ in range(3)]
    return lambda: add[(8,)](*arrays, n, BLOCK=128)


@pytest.fixture(autouse=True)
def no_session():
    """Sessions of one test are not those of the next."""
    yield
    for number in list(profiler._session.SESSIONS.known):
        profiler._session.SESSIONS.remove(number)
    profiler.hooks.HookManager.unregister()
    profiler._session.SESSIONS.thread.path.clear()


def nodes(tree):
    """The paths of a tree with their metrics."""
    found = {}

    def add(node, path):
        path = (*path, node["frame"]["name"])
        found[path[1:]] = node["metrics"]
        for child in node["children"]:
            add(child, path)

    add(tree, ())
    return found


def written(path):
    return nodes(json.loads(path.with_suffix(".hatchet").read_text())[0])


def test_launches_are_counted_in_their_scopes(launch, tmp_path):
    launch()
    path = tmp_path / "out"
    session = profiler.start(str(path))
    launch()
    with profiler.scope("outer", {"tokens": 7}):
        launch()
        with profiler.scope("inner"):
            launch()
            launch()
        launch()
    profiler.finalize(session)
    launch()
    found = written(path)
    assert {path: metrics.get("count") for path, metrics in found.items()} == {
        (): 0,
        ("add",): 1,
        ("outer",): None,
        ("outer", "add"): 2,
        ("outer", "inner"): None,
        ("outer", "inner", "add"): 2,
    }
    assert found["outer",] == {"tokens": 7}
    assert all(metrics["time (ns)"] > 0 for path, metrics in found.items() if path and path[-1] == "add")


def test_the_hook_takes_what_launches_say(launch, tmp_path):
    path = tmp_path / "out"
    profiler.start(str(path), hook="triton")
    launch()
    launch()
    profiler.finalize()
    assert not knobs.runtime.launch_enter_hook.calls
    metrics = written(path)["add_1000",]
    assert (metrics["count"], metrics["flops32"], metrics["bytes"]) == (2, 2000, 24000)
    assert "other" not in metrics


def test_what_is_deactivated_is_not_counted(launch, tmp_path):
    path = tmp_path / "out"
    session = profiler.start(str(path), hook="triton")
    launch()
    profiler.deactivate(session)
    launch()
    profiler.activate(session)
    launch()
    profiler.finalize(session)
    assert written(path)["add_1000",]["count"] == 2


def test_sessions_are_independent(launch, tmp_path):
    first, second = profiler.start(str(tmp_path / "first")), profiler.start(str(tmp_path / "second"))
    assert first != second
    launch()
    profiler.deactivate(first)
    launch()
    profiler.finalize()
    assert written(tmp_path / "first")["add",]["count"] == 1
    assert written(tmp_path / "second")["add",]["count"] == 2


def test_decorators_and_states(launch, tmp_path):
    path = tmp_path / "out"

    @profiler.scope("layer")
    def layer():
        launch()

    @profiler.profile(name=str(path))
    def step():
        layer()
        with profiler.state("warm"):
            layer()
        with profiler.cpu_timed_scope("timed"):
            launch()

    step()
    found = written(path)
    assert found["layer", "add"]["count"] == 1
    assert found["layer", "warm", "add"]["count"] == 1
    assert found["timed",]["cpu_time (ns)"] > 0


def test_functions_of_python_may_be_the_context(launch, tmp_path):
    path = tmp_path / "out"
    profiler.start(str(path), context="python")

    def here():
        launch()

    here()
    profiler.finalize()
    (kernel,) = (names for names in written(path) if names and names[-1].startswith("add"))
    assert any("test_proton.py:here@" in name for name in kernel)


def test_a_trace_has_the_launches(launch, tmp_path):
    path = tmp_path / "out"
    profiler.start(str(path), data="trace")
    with profiler.scope("a"):
        launch()
    profiler.finalize()
    launches = check_trace(json.loads(path.with_suffix(".chrome_trace").read_text()))
    assert [(event["name"], event["args"]["scope"]) for event in launches] == [("add", ["a"])]


def test_a_session_can_be_looked_at(launch):
    session = profiler.start("never written")
    launch()
    assert nodes(profiler.data.get(session)[0])["add",]["count"] == 1
    with profiler.scope("a"):
        assert profiler.context.depth(session) == 1
    profiler.data.clear(session)
    assert "add" not in {path[-1] for path in nodes(profiler.data.get(session)[0]) if path}


def test_phases_are_read_and_cleared_one_by_one(launch, tmp_path):
    session = profiler.start(str(tmp_path / "out"))
    launch()
    assert not profiler.data.is_phase_complete(session, 0)
    assert profiler.data.advance_phase(session) == 1
    launch()
    launch()

    def counts():
        trees = [nodes(profiler.data.get(session, phase)[0]) for phase in range(3)]
        return [tree.get(("add",), {}).get("count") for tree in trees]

    assert counts() == [1, 2, None]
    assert [profiler.data.is_phase_complete(session, phase) for phase in range(2)] == [True, False]
    assert profiler.data.advance_phase(session) == 2
    launch()
    profiler.data.clear(session, 0)
    assert counts() == [None, 2, 1]
    profiler.finalize(session)
    # Phases that were not cleared are written as one.
    assert written(tmp_path / "out")["add",]["count"] == 3
    session = profiler.start("never written")
    for _ in range(2):
        launch()
        profiler.data.advance_phase(session)
    profiler.data.clear(session, 1, clear_up_to_phase=True)
    assert counts() == [None] * 3
    assert profiler.data.advance_phase(12345) is None


VALUES = [
    *(
        None,
        True,
        False,
        0.1,
        -0.0,
        float("inf"),
        "",
        "ä" * 15,
        "a" * 31,
        "a" * 32,
        "a" * 255,
        "a" * 256,
        "a" * 65536,
    ),
    *(
        sign * (1 << bits) + by
        for bits in (0, 5, 7, 8, 15, 16, 31, 32, 62)
        for sign in (1, -1)
        for by in (-1, 0, 1)
    ),
    *((1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)),
    *([0] * count for count in (0, 15, 16, 65535, 65536)),
    *({str(key): [key] for key in range(count)} for count in (0, 15, 16, 65536)),
]


def test_messagepack_says_what_json_says(launch, tmp_path):
    msgpack = pytest.importorskip("pip._vendor.msgpack")
    # Maps of any size may be read.
    given = {"strict_map_key": False, "max_map_len": 1 << 20, "max_array_len": 1 << 20}
    for value in VALUES:
        coded = profiler.data.msgpack(value)
        assert msgpack.unpackb(coded, **given) == value
        # Each has its shortest form.
        assert coded == msgpack.packb(value)
    assert msgpack.unpackb(profiler.data.msgpack(1 << 64)) == 2.0**64
    session = profiler.start(str(tmp_path / "out"))
    with profiler.scope("a", {"flops": 1}):
        launch()
    assert msgpack.unpackb(profiler.data.get_msgpack(session)) == profiler.data.get(session)
    whole = profiler.data.get(session)
    profiler.finalize(session, "hatchet_msgpack")
    assert msgpack.unpackb((tmp_path / "out.hatchet_msgpack").read_bytes()) == whole
    assert profiler.data.get_msgpack(session) == b"\xc0"


def test_metrics_are_read_where_they_are_given():
    torch = pytest.importorskip("torch")
    given = {"flops": torch.tensor(3.0), "bytes": 4, "kind": "x"}
    assert profiler.metric.transform_tensor_metrics(given) == ({"flops": 3.0, "bytes": 4, "kind": "x"}, {})
    profiler.metric.set_metric_kernels()
    profiler.configure_runtime()


def test_mistakes():
    with pytest.raises(ValueError, match="unknown data 'heap'"):
        profiler.start(data="heap")
    with pytest.raises(ValueError, match="unknown context"):
        profiler.start(context="moon")
    with pytest.raises(ValueError, match="unknown hook"):
        profiler.start(hook="jax")
    with pytest.raises(RuntimeError, match="entered none"):
        profiler.exit_scope()
    profiler.enter_scope("a")
    with pytest.raises(RuntimeError, match="in scope 'a'"):
        profiler.exit_scope("b")
    profiler.start("x")
    with pytest.raises(TypeError, match="a metric is a number"):
        profiler.enter_scope("b", metrics={"n": [1]})
    with pytest.raises(ValueError, match="unknown backend 'nvml'"):
        profiler.start(backend="nvml")
    with pytest.raises(ValueError, match="unknown mode 'fast'"):
        profiler.start(backend="instrumentation", mode="fast")
    with pytest.raises(ValueError, match="unknown granularity 'thread'"):
        profiler.mode.Default(granularity="thread")
    with pytest.raises(ValueError, match="unknown semantic 'cuda'"):
        profiler.language.enable_semantic("cuda")
    with pytest.raises(ValueError, match="unknown output_format 'xml'"):
        profiler.finalize(output_format="xml")


def test_it_can_be_switched_off(launch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_PROTON_DISABLE", "1")
    assert profiler.start("off") is None
    launch()
    profiler.finalize()
    assert not list(tmp_path.iterdir())


def test_the_viewer_sums_what_is_below():
    leaf = {
        "frame": {"name": "k"},
        "metrics": {"count": 2, "time (ns)": 4e6, "bytes": 8e6, "flops16": 4e9},
        "children": [],
    }
    root = {"frame": {"name": "ROOT"}, "metrics": {"count": 0, "time (ns)": 0}, "children": [leaf, leaf]}
    assert viewer.metric(root, "time/ms") == 8
    assert viewer.metric(root, "avg_time/us") == 2000
    assert viewer.metric(root, "gbyte/s") == pytest.approx(2.0)
    assert viewer.metric(root, "tflop16/s") == pytest.approx(1.0)
    assert viewer.format_tree(root, ["time/ms", "count"]).splitlines()[2] == "├─ 4.000 2.000 k"


def test_tritons_viewer_reads_the_file(launch, tmp_path):
    command = shutil.which("proton-viewer", path=os.path.dirname(sys.executable))
    if command is None or not all(map(importlib.util.find_spec, ("pandas", "hatchet"))):
        pytest.skip("proton-viewer, pandas and llnl-hatchet are not all installed")
    path = tmp_path / "out"
    profiler.start(str(path), hook="triton")
    with profiler.scope("outer"):
        launch()
    profiler.finalize()
    made = subprocess.run(
        [command, "-m", "time/us,gbyte/s,count", f"{path}.hatchet"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert made.returncode == 0, made.stderr
    assert "outer" in made.stdout
    assert "add_1000" in made.stdout


@triton.jit
def scoped(x, out, n, BLOCK: tl.constexpr):
    with pl.scope("all"):
        total = tl.zeros((BLOCK,), tl.float32)
        for i in range(n):
            with pl.scope("load"):
                part = tl.load(x + i * BLOCK + tl.arange(0, BLOCK))
            total += part
        pl.enter_scope("store")
        tl.store(out + tl.program_id(0), tl.sum(total, 0))
        pl.exit_scope("store")


@pytest.fixture
def launch_scoped(device):
    n = 5
    if device == "cuda":
        import torch

        x, out = torch.ones(64 * n, device="cuda"), torch.zeros(6, device="cuda")
    else:
        x, out = np.ones(64 * n, np.float32), np.zeros(6, np.float32)

    def launch(grid=(2, 3)):
        scoped[grid](x, out, n, BLOCK=64)
        assert out.tolist()[: grid[0]] == [64 * n] * grid[0]

    return launch


def test_scopes_in_kernels_are_counted_and_timed(launch_scoped, tmp_path):
    # Without a session they are nothing.
    launch_scoped()
    path = tmp_path / "out"
    session = profiler.start(str(path), backend="instrumentation")
    launch_scoped()
    launch_scoped()
    profiler.deactivate(session)
    launch_scoped()
    profiler.finalize(session)
    launch_scoped()
    found = written(path)
    scopes = {
        names[1:]: metrics for names, metrics in found.items() if names[:1] == ("scoped",) and names[1:]
    }
    assert {names: metrics["scopes"] for names, metrics in scopes.items()} == {
        ("all",): 2 * 6,
        ("all", "load"): 2 * 6 * 5,
        ("all", "store"): 2 * 6,
    }
    assert found["scoped",]["count"] == 2
    for metrics in scopes.values():
        # A program of each launch; clocks of some GPUs tick seldom.
        assert metrics["normalized_cycles"] == pytest.approx(metrics["cycles"] / 6)
        assert metrics["cycles"] >= 0
    assert sum(metrics["cycles"] for metrics in scopes.values()) > 0


def test_scopes_of_some_programs_are_kept_as_tracks(launch_scoped, tmp_path):
    path = tmp_path / "out"
    mode = profiler.mode.Default(sampling_strategy="selective", sampling_options="0,5")
    profiler.start(str(path), data="trace", backend="instrumentation", mode=mode)
    launch_scoped()
    profiler.finalize()
    events = check_trace(json.loads(path.with_suffix(".chrome_trace").read_text()))
    scopes = [event for event in events if event["cat"] == "scope"]
    tracks = {event["tid"] for event in scopes}
    assert len(tracks) == 2
    for track in tracks:
        names = sorted(event["name"] for event in scopes if event["tid"] == track)
        assert names == ["all", *["load"] * 5, "store"]


def test_scopes_that_do_not_match_are_said(device, tmp_path, capfd):
    @triton.jit
    def lopsided(out):
        pl.enter_scope("store")
        tl.store(out, 1)
        pl.exit_scope("stores")

    if device == "cuda":
        import torch

        out = torch.zeros(1, device="cuda", dtype=torch.int32)
    else:
        out = np.zeros(1, np.int32)
    profiler.start(str(tmp_path / "out"), backend="instrumentation")
    lopsided[(1,)](out)
    profiler.finalize()
    lines = capfd.readouterr().err.splitlines()
    assert lines == [
        "warning: scope 'store' in a kernel was begun and not ended; scope 'stores' was ended and not begun",
        "warning: scope 'stores' in a kernel was ended and not begun",
    ]


def test_a_profile_that_cannot_be_written_is_kept(launch, tmp_path):
    session = profiler.start(str(tmp_path / "not there" / "out"))
    launch()
    with pytest.raises(FileNotFoundError, match="not there"):
        profiler.finalize(session)
    launch()
    (tmp_path / "not there").mkdir()
    profiler.finalize(session)
    assert written(tmp_path / "not there" / "out")["add",]["count"] == 1


@pytest.fixture
def profile_file(tmp_path):
    """A profile whose rates are known."""

    def kernel(name, milliseconds, **metrics):
        own = {"count": 2, "time (ns)": milliseconds * 1e6, **metrics}
        return {"frame": {"name": name}, "metrics": own, "children": []}

    inner = {
        "frame": {"name": "/a/b.py:inner@7"},
        "metrics": {},
        "children": [kernel("slow", 3, flops16=6e9)],
    }
    children = [inner, kernel("fast", 1, flops8=2e9, bytes=8e6)]
    root = {"frame": {"name": "ROOT"}, "metrics": {"count": 0, "time (ns)": 0}, "children": children}
    path = tmp_path / "known.hatchet"
    path.write_text(json.dumps([root, {}]))
    return str(path)


def test_programs_read_profiles(profile_file, capsys):
    tree, metrics = viewer.parse(["time/ms", "tflop16/s"], profile_file)
    viewer.print_tree(tree, metrics, format="file_function")
    assert capsys.readouterr().out.splitlines() == [
        "time/ms tflop16/s",
        "4.000 1.500 ROOT",
        "├─ 3.000 2.000 b.py:inner@7",
        "│  └─ 3.000 2.000 slow",
        "└─ 1.000 0.000 fast",
    ]
    expected = {"tflop/s": 2, "tflop8/s": 0.5, "gbyte/s": 2, "time/%": 100, "avg_time/us": 1000, "count": 4}
    for name, value in expected.items():
        assert viewer.metric(tree, name) == pytest.approx(value), name
    viewer.parse(["time/ms"], profile_file, depth=1)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "4.000 ROOT",
        "├─ 3.000 /a/b.py:inner@7",
        "└─ 1.000 fast",
    ]
    only, _ = viewer.parse("time/ms", profile_file, include="slow")
    assert [child["frame"]["name"] for child in only["children"]] == ["/a/b.py:inner@7"]
    without, _ = viewer.parse("time/ms", profile_file, exclude="inner")
    assert [child["frame"]["name"] for child in without["children"]] == ["fast"]
    above, _ = viewer.parse("time/ms", profile_file, threshold=0.5)
    assert [child["frame"]["name"] for child in above["children"]] == ["/a/b.py:inner@7"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "time/h"], "unknown unit in 'time/h'"),
        (["-m", "flops64"], "the profile has no 'flops64': it has bytes, count, flops16, flops8, time (ns)"),
        (
            ["-m", "tme/ms"],
            "it has bytes, count, flops16, flops8, time (ns), and from these time/s, time/ms, ",
        ),
        (["-m", "tme/ms"], "; did you mean 'time/ms'?"),
        (["-m", "tflops16/s"], "; did you mean 'tflop16/s'?"),
        (["-i", "("], "missing )"),
    ],
)
def test_mistakes_of_the_viewer_are_a_line(profile_file, capsys, arguments, said):
    assert viewer.main([*arguments, profile_file]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_every_metric_that_the_viewer_suggests_can_be_printed(profile_file):
    tree, _ = viewer.read(profile_file)
    derived = viewer._derived(viewer.names_below(tree))
    assert {"avg_time/us", "time/%", "gbyte/s", "tflop16/s", "flop/s"} < set(derived)
    viewer.parse(derived, profile_file)


def test_a_profile_that_cannot_be_read_is_a_line(capsys, tmp_path):
    assert viewer.main([str(tmp_path / "no.hatchet")]) == 1
    assert capsys.readouterr().err == f"error: cannot read {tmp_path / 'no.hatchet'}: there is no such file\n"
    assert viewer.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: cannot read {tmp_path}: Is a directory\n"


def test_the_output_of_the_viewer_may_be_closed_early(profile_file):
    with subprocess.Popen(
        [sys.executable, "-m", "tilewright.profiler.viewer", profile_file],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_of(),
        text=True,
    ) as command:
        command.stdout.close()
        assert command.stderr.read() == ""
        assert command.wait(PATIENCE) == 0


SCRIPT = """
import sys
import numpy as np
import triton
import triton.language as tl
import triton.profiler as proton

def metadata(grid, kernel, args):
    return {"flops32": args["n"]}

@triton.jit(launch_metadata=metadata)
def fill(out, n, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), n)

fill[(1,)](np.zeros(16, np.int32), 7, B=16)
print(sys.argv[1:], __name__)

def test_fill():
    fill[(1,)](np.zeros(16, np.int32), 7, B=16)
"""


def test_the_command_profiles_programs_and_tests(run, script, tmp_path):
    path = script(SCRIPT, "test_it.py")
    command = ("-m", "tilewright.profiler.proton", "-n", tmp_path / "out", "-k", "triton")
    done = run(*command, path, "-x", "1", env={"TILEWRIGHT_DEVICE": "cpu"})
    assert (done.code, done.out) == (0, "['-x', '1'] __main__\n"), done.err
    assert written(tmp_path / "out")["fill",]["flops32"] == 7
    done = run(*command, "pytest", "-q", "-p", "no:cacheprovider", path, env={"TILEWRIGHT_DEVICE": "cpu"})
    assert done.code == 0, done.out + done.err
    assert written(tmp_path / "out")["fill",]["count"] == 2
    path.write_text(SCRIPT + "raise ValueError(3)\n")
    done = run(*command, path, env={"TILEWRIGHT_DEVICE": "cpu"})
    assert done.code == 1
    assert done.err.endswith("ValueError: 3\n")
    assert written(tmp_path / "out")["fill",]["count"] == 1
    done = run("-m", "tilewright.profiler.proton", "no.py")
    assert (done.code, done.err) == (2, "error: cannot read no.py: there is no such file\n")


ENDS = {
    "falls out": ("", 0),
    "an error": ("raise ValueError(3)", 1),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT)", -2),
    "a kernel that is stopped": (
        "threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start(); spin()",
        -2,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_without_finalize_has_its_profile(end, run, script, tmp_path):
    line, code = ENDS[end]
    path = script(
        f"""
        import os, signal, sys, threading
        import numpy as np
        import triton, triton.language as tl, triton.profiler as proton

        @triton.jit
        def fill(x_ptr, value):
            tl.store(x_ptr, value)

        @triton.jit
        def count(x_ptr, n):
            total = 0
            for i in range(n):
                total += i % 7
            tl.store(x_ptr, total)

        def spin():
            count[(1,)](np.zeros(1, np.int32), 2_000_000_000)

        proton.start({str(tmp_path / "out")!r})
        with proton.scope("outer"):
            fill[(1,)](np.zeros(1, np.int32), 3)
            if os.fork() == 0:
                # The child must not write the measurements of its parent.
                sys.exit(0)
            os.wait()
            {line or "pass"}
        """
    )
    done = run("-m", "tilewright", "run", "--device", "cpu", path)
    assert done.code == code, done.err
    assert written(tmp_path / "out")["outer", "fill"]["count"] == 1


@pytest.mark.parametrize("command", ["proton", "profile", "report"])
def test_a_program_that_is_told_to_end_has_its_profile(command, run, script, tmp_path):
    path = script(SCRIPT + "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n")
    out = tmp_path / "out"
    options = {
        "proton": ("-m", "tilewright.profiler.proton", "-n", out),
        "profile": ("-m", "tilewright", "profile", "--device", "cpu", "--json", out),
        "report": ("-m", "tilewright", "run", "--device", "sim:sm_90", f"--report={out}"),
    }
    done = run(*options[command], path, env={"TILEWRIGHT_DEVICE": "cpu"})
    assert done.code == 143, done.err
    assert "fill" in (out.with_suffix(".hatchet") if command == "proton" else out).read_text()


def test_the_compiler_without_python_has_each_name_for_kernels():
    """`compile`, `explain` and `check` read a module of their own in place of `triton.profiler.language`."""
    text = (ROOT / "crates/frontend/src/stdlib/profiler_language.py").read_text()
    without = {
        node.name for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    functions = {name for name, value in vars(pl).items() if isinstance(value, triton.JITFunction)}
    assert without == {name for name in functions if not name.startswith("_")} | {"scope"}


def test_scopes_are_compiled_without_python(run, script):
    path = script(
        """
        import triton, triton.language as tl
        import triton.profiler.language as pl

        @triton.jit
        def kernel(x):
            pl.enter_scope("whole")
            with pl.scope("load"):
                value = tl.load(x)
            tl.store(x, value + 1)
            pl.exit_scope("whole")
        """
    )
    done = run("-m", "tilewright", "check", f"{path}::kernel", "-s", "*fp32", "--extent", "x=1")
    assert done.code == 0, done.err
    assert "2 in bounds for every size" in done.out + done.err
