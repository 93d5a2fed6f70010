"""Tuned launches whose choice is known: what they notice at the next launch, and what processes keep for each other."""

from __future__ import annotations

import json

import pytest
from conftest import DEVICE
from test_autotune import Bench, arrays, grid, scale, tuned

import tilewright as triton
from tilewright.runtime.autotuner import Config

pytestmark = pytest.mark.skipif(DEVICE.startswith("cuda"), reason="numpy arrays are tuned with")

PROCESS = """
import sys
import numpy as np
import tilewright as triton
import tilewright.language as tl
from tilewright.runtime import _tuning

launcher, launched = _tuning.Trial.launcher, []

def spy(trial, config):
    launched.append(config.kwargs["BLOCK"])
    return launcher(trial, config)

_tuning.Trial.launcher = spy

@triton.autotune([triton.Config({"BLOCK": int(block)}) for block in sys.argv[1:]], key=["n"], cache_results=True)
@triton.jit
def copy(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

x = np.arange(100, dtype=np.float32)
o = np.zeros(100, dtype=np.float32)
copy[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, o, 100)
assert (x == o).all()
print(sorted(set(launched)), len(copy.configs_timings))
"""


@pytest.mark.skipif(DEVICE != "cpu", reason="what is kept is the same for all devices")
def test_another_process_times_nothing(run, script, tmp_path):
    program = script(PROCESS)
    cache = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}

    def times(*blocks, **more):
        done = run("-W", "always", program, *blocks, env=cache | more)
        assert done.code == 0, done.err
        return done.out.strip(), done.err

    assert times(16, 64) == ("[16, 64] 2", "")
    assert times(16, 64) == ("[] 2", "")
    assert times(16, 32, 64) == ("[32] 3", "")
    # A cache that cannot be is no reason to fail.
    (tmp_path / "file").write_text("")
    out, err = times(16, 64, TRITON_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert out == "[16, 64] 2"
    assert "LaunchWarning: timings are not kept on disk: " in err


@pytest.mark.skipif(DEVICE != "cpu", reason="what is kept is the same for all devices")
def test_a_file_of_timings_that_is_broken_is_made_anew(run, script, tmp_path):
    """Whatever is in it; and the variable of tilewright comes before Triton's."""
    program = script(PROCESS)
    cache = {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "TRITON_CACHE_DIR": str(tmp_path / "other")}
    assert run(program, 16, 32, env=cache).out.startswith("[16, 32]")
    (path,) = tmp_path.rglob("*.autotune.json")
    assert path.is_relative_to(tmp_path / "cache")
    whole = path.read_text()
    rows = json.loads(whole)["configs_timings"]
    of_nan = json.dumps({"configs_timings": {name: [float("nan")] * 3 for name in rows}})
    too_large = f'{{"configs_timings": {{"a": [1{"0" * 400}, 1, 1]}}}}'
    for text in (whole[:40], "[" * 100_000, of_nan, too_large, "null", '{"configs_timings": [1]}'):
        path.write_text(text)
        done = run(program, 16, 32, env=cache)
        assert done.code == 0, done.err
        assert done.out.startswith("[16, 32]"), text[:50]
    assert run(program, 16, 32, env=cache).out.startswith("[] ")


@pytest.mark.skipif(DEVICE != "cpu", reason="what is kept is the same for all devices")
def test_processes_that_time_at_once_keep_what_all_have_found(run, script, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    program = script(PROCESS)
    cache = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(run, program, 8, other, env=cache) for other in (16, 32, 64)]
        assert [task.result().code for task in tasks] == [0, 0, 0]
    (path,) = (tmp_path / "cache").rglob("*.autotune.json")
    found = {json.loads(row)["BLOCK"] for row in json.loads(path.read_text())["configs_timings"]}
    # A row written between the reading and the writing of another process is lost, which costs a measurement later.
    assert 8 in found
    assert found <= {8, 16, 32, 64}
    assert not list((tmp_path / "cache").rglob("tmp.*"))


def test_timings_of_another_process_are_kept(device, tmp_path, monkeypatch):
    """Of one that has timed other configurations meanwhile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    x, o = arrays(32)

    def meanwhile(fn, quantiles):
        fn()
        if not nested:
            nested.append(tuned(Bench(), (64, 128), cache_results=True))
            nested[0][grid](x, o, 32)
        return [1.0] * 3

    nested = []
    configs = [Config({"BLOCK": block}) for block in (16, 32)]
    triton.autotune(configs, key=["n"], do_bench=meanwhile, cache_results=True)(scale)[grid](x, o, 32)
    (path,) = tmp_path.rglob("*.autotune.json")
    rows = json.loads(path.read_text())["configs_timings"]
    assert {json.loads(row)["BLOCK"] for row in rows} == {16, 32, 64, 128}


def test_launches_follow_what_a_program_changes(device):
    """A launch whose choice is known looks at nothing twice; what is changed is seen at the next one."""
    torch = pytest.importorskip("torch")
    seen = []

    def even(args):
        seen.append(args)
        return args["n"] % args["BLOCK"] == 0

    def factor(value, block=16):
        return Config({"BLOCK": block, "FACTOR": value})

    configs = [factor(1), factor(1, 32)]
    functions = {"EVEN": even}
    tune = triton.autotune(configs, key=["n"], do_bench=lambda fn, quantiles: [1.0] * 3)
    kernel = tune(triton.heuristics(functions)(scale))
    x = torch.arange(1.0, 33.0)

    def times(n=32):
        """Checks the factors of launches; each launch calls the function once."""
        for _ in range(3):
            o = torch.zeros(32)
            count = len(seen)
            kernel[(2,)](x, o, n)
            assert len(seen) == count + 1
            assert (seen[-1]["n"], seen[-1]["BLOCK"], seen[-1]["grid"], seen[-1]["warmup"]) == (
                n,
                16,
                (2,),
                False,
            )
            assert seen[-1]["o_ptr"] is o
            (found,) = set((o[:n] / x[:n]).tolist())
        return found

    kernel[(2,)](x, torch.zeros(32), 32)
    assert times() == 1
    configs[0].kwargs["FACTOR"] = 2
    assert times() == 2
    configs[0].kwargs = {"BLOCK": 16, "FACTOR": 3}
    assert times() == 3
    (key,) = kernel.cache
    kernel.cache[key] = factor(4)
    assert times() == 4
    assert kernel.best_config is kernel.cache[key]
    kernel.cache = {key: factor(5)}
    assert times() == 5
    kernel.configs = [factor(6)]
    assert times() == 6
    kernel.configs = configs
    assert times() == 5
    # Other numbers have another key, by turns.
    count = len(seen)
    kernel[(2,)](x, torch.zeros(32), 31)
    assert len(seen) > count
    kernel.cache[(31, *key[1:])] = factor(7)
    for _ in range(3):
        assert (times(31), times(32)) == (7, 5)
    # A dict that the program keeps is its own.
    assert {args["n"] for args in seen} == {31, 32}
    functions["EVEN"] = lambda args: even(args) and False
    assert times() == 5
    kernel.fn.values = {"EVEN": even}
    assert times() == 5
    kernel.fn = triton.heuristics({"FACTOR": lambda args: 8, "EVEN": even})(scale)
    # Heuristics have the last word.
    assert times() == 8
