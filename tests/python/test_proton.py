"""``triton.profiler``: the tree of scopes and launches, on each device, and that Triton's own viewer reads it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs, profiler
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
    (event,) = json.loads(path.with_suffix(".chrome_trace").read_text())["traceEvents"]
    assert (event["name"], event["args"]["scope"]) == ("add", ["a"])


def test_a_session_can_be_looked_at(launch):
    session = profiler.start("never written")
    launch()
    assert nodes(profiler.data.get(session)[0])["add",]["count"] == 1
    with profiler.scope("a"):
        assert profiler.context.depth(session) == 1
    profiler.data.clear(session)
    assert "add" not in {path[-1] for path in nodes(profiler.data.get(session)[0]) if path}


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
    with pytest.raises(Exception, match="language"):
        profiler.language()


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
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    assert "outer" in made.stdout
    assert "add_1000" in made.stdout
