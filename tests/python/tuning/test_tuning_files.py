"""Tuning files: the choice follows the documented rule, a launch with an entry measures nothing.

The tests write the files by hand, and compute the nearest entry by brute force in decimal numbers.
"""

from __future__ import annotations

import json
import platform
import random
import subprocess
import sys
import warnings
from decimal import Decimal, localcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import DEVICE, ON_GPU, environment_of

import tilewright as triton
import tilewright.language as tl
from tilewright import errors, tuning
from tilewright.runtime import _tuning, _tuning_files
from tilewright.runtime.autotuner import Config

pytestmark = pytest.mark.skipif(ON_GPU, reason="numpy arrays are tuned with")


@triton.jit
def mark(o_ptr, M, N, MODE, TAG: tl.constexpr, OTHER: tl.constexpr = 0):
    tl.store(o_ptr, TAG + OTHER)


def entry(key: dict[str, Any], tag: int = 0, **fields: Any) -> dict[str, Any]:
    return {"kernel": "mark", "device": DEVICE, "key": key, "config": {"TAG": tag}, **fields}


def write(path: Path, *entries: Any, **fields: Any) -> Path:
    path.write_text(json.dumps({"format": 1, "entries": list(entries), **fields}))
    return path


@pytest.fixture(autouse=True)
def _without_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tuning_files, "loaded", {})
    for name in ("", "_MAX_DISTANCE", "_RECORD"):
        monkeypatch.delenv(f"TILEWRIGHT_TUNING{name}", raising=False)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test in which measuring a configuration is an error."""

    def tune(*_arguments: Any) -> Any:
        raise AssertionError("a configuration was measured")

    monkeypatch.setattr(_tuning, "tune", tune)


def tuner(*tags: int, key: tuple[str, ...] = ("M", "N"), kernel: Any = mark, **options: Any) -> Any:
    configs = [Config({"TAG": tag}) for tag in tags or (901, 902)]
    bench = options.pop("do_bench", lambda fn, quantiles: [1.0, 1.0, 1.0])
    return triton.autotune(configs, list(key), do_bench=bench, **options)(kernel)


def launch(kernel: Any, m: Any = 64, n: Any = 64, mode: Any = 1, dtype: Any = np.int32) -> int:
    out = np.zeros(1, dtype)
    kernel[(1,)](out, m, n, mode)
    return int(out[0])


def nearest(keys: list[dict[str, int]], given: dict[str, int]) -> int:
    """The index of the nearest key: the smallest sum of |log2 a - log2 b|, then smaller numbers."""

    def rank(index: int) -> Any:
        key = keys[index]
        logs = [abs(Decimal(key[name]).ln() - Decimal(given[name]).ln()) for name in given]
        # 50 digits compute the sum; sums that differ after the 30th are equal.
        return round(sum(logs) / Decimal(2).ln(), 30), [key[name] for name in given]

    with localcontext() as context:
        context.prec = 50
        return min(range(len(keys)), key=rank)


@pytest.mark.usefixtures("poisoned")
def test_a_launch_takes_the_nearest_entry(device, tmp_path):
    draw = random.Random(1)
    sizes = [1, 2, 3, 16, 24, 48, 64, 96, 100, 128, 1000, 4096]
    keys = [{"M": m, "N": n} for m, n in {(draw.choice(sizes), draw.choice(sizes)) for _ in range(24)}]
    draw.shuffle(keys)
    tuning.load(write(tmp_path / "t.json", *(entry(key, tag) for tag, key in enumerate(keys, 1))))
    kernel = tuner()
    given = [dict(keys[3])] + [{"M": draw.choice(sizes), "N": draw.choice(sizes)} for _ in range(40)]
    given += [{"M": draw.randrange(1, 5000), "N": draw.randrange(1, 5000)} for _ in range(20)]
    for one in given:
        expected = nearest(keys, one) + 1
        assert launch(kernel, one["M"], one["N"]) == expected, one
        assert kernel.best_config.kwargs == {"TAG": expected}
        assert launch(kernel, one["M"], one["N"]) == expected, "from the cache of the tuner"
    assert launch(kernel, keys[3]["M"], keys[3]["N"]) == 4


def test_the_device_of_a_launch_on_a_machine_with_a_gpu(monkeypatch):
    names = {0: "NVIDIA H100 80GB HBM3", 1: "NVIDIA A100-SXM4-80GB"}
    stub = SimpleNamespace(
        device=lambda: "cuda:0",
        device_name=names.__getitem__,
        device_capability={0: (9, 0), 1: (8, 0)}.__getitem__,
    )
    monkeypatch.setattr(_tuning_files, "_native", stub)
    kernel = tuner()
    arguments = {"o_ptr": np.zeros(1, np.int32), "M": 64, "N": np.int64(8), "MODE": 1, "TAG": 2}
    found = {}
    for place in (None, "cpu", SimpleNamespace(index=0), SimpleNamespace(index=1)):
        kernel._place = place
        launched = _tuning_files.launch_of(kernel, arguments)
        assert (launched.key, launched.dtypes) == ({"M": 64, "N": 8}, {"o_ptr": "int32"})
        found[str(place)] = (launched.device, launched.target)
    assert found == {
        "None": ("cpu", platform.machine()),
        "cpu": ("cpu", platform.machine()),
        "namespace(index=0)": ("NVIDIA_H100_80GB_HBM3", "sm_90"),
        "namespace(index=1)": ("NVIDIA_A100-SXM4-80GB", "sm_80"),
    }


def test_the_autotuner_keeps_the_choice(device, tmp_path, monkeypatch):
    path = write(tmp_path / "t.json", entry({"M": 64, "N": 64}, 1))
    monkeypatch.setenv("TILEWRIGHT_TUNING", str(path))
    kernel = tuner()
    assert launch(kernel) == 1
    path.unlink()
    monkeypatch.setattr(_tuning_files, "choose", lambda *_arguments: pytest.fail("chosen twice"))
    assert launch(kernel) == 1


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("keys", "given", "expected"),
    [
        # 32 and 128 are equally far from 64: the smaller one.
        ([(128, 64), (32, 64)], (64, 64), 2),
        # The first name of the autotuner's key counts first.
        ([(128, 32), (64, 64), (32, 128)], (65, 63), 2),
        ([(128, 32), (32, 128)], (64, 64), 2),
        # 96 lies at equal ratios between 64 and 144, where logarithms in binary64 may differ.
        ([(144, 1), (64, 1)], (96, 1), 2),
        ([(2**70, 1), (1, 1)], (2**36, 1), 1),
        # 0 and negative numbers are near themselves only.
        ([(0, 1), (64, 1)], (1, 1), 2),
        ([(64, 1), (0, 1)], (0, 1), 2),
        ([(64, 1), (-3, 1), (3, 1)], (-3, 1), 2),
        # A float that is an int is the same number.
        ([(64.0, 1), (65, 1)], (64, 1), 1),
        ([(0.5, 1), (0.25, 1)], (0.4, 1), 1),
    ],
    ids=str,
)
def test_numbers(device, tmp_path, keys, given, expected):
    entries = [entry({"M": m, "N": n}, tag) for tag, (m, n) in enumerate(keys, 1)]
    tuning.load(write(tmp_path / "t.json", *entries))
    assert launch(tuner(), *given) == expected


def test_values_that_are_not_numbers_must_be_equal(device, tmp_path, monkeypatch):
    entries = [entry({"M": 64, "MODE": mode}, tag) for tag, mode in enumerate((1, True, None, 64, 0), 1)]
    tuning.load(write(tmp_path / "t.json", *entries))
    kernel = tuner(key=("M", "MODE"))
    assert launch(kernel, mode=2) == 1
    assert launch(kernel, mode=np.int64(63)) == 4
    assert launch(kernel, mode=False) in (901, 902)
    # Each with a tuner of its own: for a dict, 1 and True are the same key.
    assert launch(tuner(key=("M", "MODE")), mode=True) == 2
    assert launch(tuner(key=("M", "MODE")), mode=np.bool_(True)) == 2
    assert launch(tuner(key=("M", "MODE")), mode=None) == 3


def test_entries_for_other_launches_do_not_count(device, tmp_path):
    key = {"M": 64, "N": 64}
    others = [
        entry(key, 1, kernel="other"),
        entry(key, 2, device="NVIDIA_H100_80GB_HBM3"),
        entry(key, 3, target="sm_75"),
        entry(key, 4, dtypes={"o_ptr": "float64"}),
        entry(key, 5, dtypes={"o_ptr": "int32", "x_ptr": "int32"}),
        entry(key, 6, source="0123456789abcdef"),
    ]
    tuning.load(write(tmp_path / "t.json", *others))
    assert launch(tuner()) in (901, 902), "an entry for other launches was taken"
    tuning.load(write(tmp_path / "f.json", entry({"M": 1, "N": 64}, 7)))
    assert launch(tuner()) == 7
    assert launch(tuner(), dtype=np.float64) == 4


@pytest.mark.usefixtures("poisoned")
def test_of_equal_keys_the_entry_that_states_more_counts(device, tmp_path):
    key = {"M": 64, "N": 64}
    stated = entry(key, 2, dtypes={"o_ptr": "int32"})
    tuning.load(write(tmp_path / "t.json", entry(key, 1), stated))
    assert launch(tuner()) == 2
    assert launch(tuner(), dtype=np.int64) == 1


@pytest.mark.parametrize(("limit", "expected"), [(0, [1, 9, 9]), (1, [1, 1, 9]), (1.59, [1, 1, 1])])
@pytest.mark.parametrize("is_variable", [False, True])
def test_the_maximum_distance(device, tmp_path, monkeypatch, limit, expected, is_variable):
    path = write(tmp_path / "t.json", entry({"M": 64, "N": 64}, 1))
    if is_variable:
        monkeypatch.setenv("TILEWRIGHT_TUNING", str(path))
        monkeypatch.setenv("TILEWRIGHT_TUNING_MAX_DISTANCE", str(limit))
    else:
        tuning.load(path, max_distance=limit)
    kernel = tuner(9, 8, do_bench=Fastest(9))
    # 128 is at distance 1 from 64, 192 at log2(3), which is 1.585.
    assert [launch(kernel, m) for m in (64, 128, 192)] == expected


class Fastest:
    """Times launches: the first of two is the fastest."""

    def __init__(self, best: int) -> None:
        self.best = best
        self.count = 0

    def __call__(self, fn: Any, quantiles: Any) -> list[float]:
        fn()
        self.count += 1
        return [float(self.count)] * 3


def test_a_launch_without_entry_is_tuned(device, tmp_path):
    tuning.load(write(tmp_path / "t.json", entry({"M": 64, "MODE": 3}, 1)))
    bench = Fastest(5)
    kernel = tuner(5, 6, key=("M", "MODE"), do_bench=bench)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch(kernel, mode=None) == 5
    assert bench.count == 2
    assert launch(kernel, mode=3) == 1
    assert bench.count == 2


def test_a_file_for_other_names_warns_once(device, tmp_path):
    tuning.load(write(tmp_path / "t.json", entry({"E": 8, "M": 64, "N": 64}, 1)))
    kernel = tuner()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert {launch(kernel), launch(kernel, 65)} <= {901, 902}
    (warning,) = found
    assert warning.category is errors.LaunchWarning
    assert "the key of its entries is E, M, N, that of the autotuner is M, N" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.usefixtures("poisoned")
def test_the_environment_is_before_the_program(device, tmp_path, monkeypatch):
    key = {"M": 64, "N": 64}
    first = write(tmp_path / "1.json", entry(key, 1))
    second = write(tmp_path / "2.json", entry(key, 2), entry({"M": 4, "N": 4}, 3))
    monkeypatch.setenv("TILEWRIGHT_TUNING", f"{first}:{second}:")
    tuning.load(write(tmp_path / "4.json", entry(key, 4), entry({"M": 1000, "N": 4}, 5)))
    kernel = tuner()
    assert [launch(kernel, *given) for given in ((64, 64), (4, 4), (1000, 4))] == [1, 3, 5]


@pytest.mark.usefixtures("poisoned")
def test_a_file_that_is_loaded_again_is_read_again(device, tmp_path):
    path = tmp_path / "t.json"
    for tag in (1, 2):
        tuning.load(write(path, entry({"M": 64, "N": 64}, tag)))
        assert launch(tuner()) == tag


@pytest.mark.usefixtures("poisoned")
def test_a_single_configuration_is_a_default(device, tmp_path):
    early = tuner(9)
    tuning.load(write(tmp_path / "t.json", entry({"M": 64, "N": 64}, 1)), max_distance=0)
    for kernel in (early, tuner(9)):
        assert [launch(kernel, m) for m in (64, 65, 64)] == [1, 9, 1]


@pytest.mark.usefixtures("poisoned")
def test_the_hook_of_the_configurations_runs(device, tmp_path):
    calls = []

    def hook(arguments: dict[str, Any]) -> None:
        calls.append(arguments["TAG"])

    configs = [Config({"TAG": tag}, pre_hook=hook) for tag in (901, 902)]
    tuning.load(write(tmp_path / "t.json", entry({"M": 64}, 1), entry({"M": 1}, 902)))
    kernel = triton.autotune(configs, ["M"])(mark)
    assert (launch(kernel), launch(kernel, 1), calls) == (1, 902, [1, 902])
    assert kernel.best_config is configs[1]
    other = triton.autotune([configs[0], Config({"TAG": 7})], ["M"])(mark)
    with pytest.raises(errors.LaunchValueError, match=r"t.json .* have different hooks") as caught:
        launch(other)
    assert caught.value.code == "TW0108"


@pytest.mark.usefixtures("poisoned")
def test_an_entry_that_pruning_drops_is_not_taken(device, tmp_path):
    def keep_small(configs: list[Config], arguments: dict[str, Any], **_more: Any) -> list[Config]:
        return [config for config in configs if config.kwargs["TAG"] <= arguments["M"]]

    tuning.load(write(tmp_path / "t.json", *(entry({"M": tag}, tag) for tag in (4, 16, 64))))
    kernel = tuner(key=("M",), prune_configs_by={"early_config_prune": keep_small})
    assert [launch(kernel, m) for m in (64, 60, 15, 5)] == [64, 16, 4, 4]


@pytest.mark.usefixtures("poisoned")
def test_options_and_heuristics(device, tmp_path):
    fields = {"config": {"TAG": 3, "num_warps": 2, "num_stages": 1}}
    tuning.load(write(tmp_path / "t.json", entry({"M": 64, "N": 64}, **fields)))
    added = triton.heuristics({"OTHER": lambda arguments: 10 * arguments["TAG"]})(mark)
    kernel = tuner(kernel=added)
    assert launch(kernel) == 33
    assert (kernel.best_config.num_warps, kernel.best_config.num_stages) == (2, 1)


@pytest.mark.parametrize(
    ("config", "code", "kind", "text"),
    [
        ({"TAGG": 1}, "TW0102", errors.LaunchKeyError, "'TAGG' of an entry of the tuning file"),
        ({"TAG": 1, "num_warp": 4}, "TW0102", errors.LaunchKeyError, "did you mean 'num_warps'"),
        ({"num_warps": 4}, "TW0108", errors.LaunchValueError, "has no 'TAG'"),
        ({"TAG": 1, "N": 3}, "TW0108", errors.LaunchValueError, "sets 'N', which the launch passes"),
        ({"TAG": "64"}, "TW0108", errors.LaunchValueError, """is "64", a text, but the tuner's conf"""),
        (
            {"TAG": 64.0},
            "TW0108",
            errors.LaunchValueError,
            "a float, but the tuner's configurations have an int",
        ),
        ({"TAG": True}, "TW0108", errors.LaunchValueError, "is true, a bool, but"),
        ({"TAG": None}, "TW0108", errors.LaunchValueError, "is null, no value, but"),
        ({"TAG": 1, "num_warps": 0}, "TW0108", errors.LaunchValueError, "the launch option num_warps is 0"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("poisoned")
def test_a_configuration_that_the_kernel_does_not_take(device, tmp_path, config, code, kind, text):
    tuning.load(write(tmp_path / "bad.json", entry({"M": 64, "N": 64}, config=config)))
    with pytest.raises(kind) as caught:
        launch(tuner())
    assert caught.value.code == code
    assert text in str(caught.value)
    if "launch option num_warps" not in text:
        assert "bad.json" in str(caught.value)
        assert f"kernel 'mark' on {DEVICE} with M=64, N=64" in str(caught.value)


@pytest.mark.parametrize(
    ("known", "value"),
    [
        (tl.constexpr(1), 2),
        (np.int64(1), 2),
        (1.5, 2),
        (False, 1),
        (None, 2),
        (tl.float16, "fp16"),
    ],
)
def test_types_that_may_differ(known, value):
    tuned = SimpleNamespace(configs=[Config({"TAG": known})])
    one = _tuning_files.Entry("mark", DEVICE, {}, {"TAG": value, "OTHER": "x"})
    _tuning_files._check_types(tuned, _tuning_files.TuningFile("a.json", [one]), one)


GOOD = entry({"M": 64, "N": 64}, 1)

BAD = {
    "empty": ("", "it is not JSON: Expecting value"),
    "truncated": (json.dumps({"format": 1, "entries": [GOOD]})[:-9], "it is not JSON"),
    "nested": ("[" * 100_000, "it is not JSON"),
    "not UTF-8": (b'{"format": 1, "entries": ["\xff"]}', "it is not JSON: 'utf-8' codec"),
    "a name twice": ('{"format": 1, "format": 1, "entries": []}', "an object has the name 'format' twice"),
    "a list": ([GOOD], "it is not an object with"),
    "without entries": ({"format": 1}, "it is not an object with"),
    "entries as an object": ({"format": 1, "entries": {"a": GOOD}}, "it is not an object with"),
    "another version": ({"format": 2, "entries": [GOOD]}, "its format is 2, expected 1"),
    "no version": ({"entries": [GOOD]}, "its format is null, expected 1"),
    "true as version": ({"format": True, "entries": []}, "its format is true, expected 1"),
    "unknown field": ({"format": 1, "entries": [], "more": 1}, "it has the unknown field 'more'"),
    "a number for an entry": ([GOOD, 3], "entry 2 is 3, expected an object"),
    "unknown field of an entry": (
        [{**GOOD, "dtype": "x"}],
        "entry 1 of kernel 'mark' has the unknown field 'dtype'",
    ),
    "no kernel": (
        [{name: value for name, value in GOOD.items() if name != "kernel"}],
        "entry 1 has no field 'kernel'",
    ),
    "a number for a kernel": ([{**GOOD, "kernel": 3}], "'kernel' of entry 1 is 3, expected a name"),
    "a list for a key": ([{**GOOD, "key": [64]}], "'key' of entry 1 of kernel 'mark' is [64], expected an"),
    "a list in a key": ([entry({"M": [64]})], "expected an object of texts, finite numbers, bools and null"),
    "NaN in a key": ([entry({"M": float("nan")})], "'key' of entry 1 of kernel 'mark' is {\"M\": NaN}"),
    "infinity in a configuration": ([entry({}, float("inf"))], "'config' of entry 1 of kernel 'mark'"),
    "a configuration as text": ([entry({}, config="TAG=1")], "'config' of entry 1 of kernel 'mark'"),
    "dtypes as a list": ([entry({}, dtypes=["int32"])], "expected an object with the dtype of each tensor"),
    "a NaN for a time": (
        [GOOD, entry({}, median_ms=float("nan"))],
        "'median_ms' of entry 2 of kernel 'mark' is NaN, expected a time of at least 0",
    ),
    "a negative time": ([entry({}, median_ms=-1.0)], "'median_ms' of entry 1 of kernel 'mark' is -1.0"),
    "a bool for a time": ([entry({}, median_ms=True)], "'median_ms' of entry 1 of kernel 'mark' is true"),
    "an infinite time": (
        json.dumps({"format": 1, "entries": [entry({}, median_ms=0)]}).replace('ms": 0', 'ms": 1e999'),
        "'median_ms' of entry 1 of kernel 'mark' is Infinity",
    ),
    "duplicates": (
        [GOOD, entry({"M": 1}), {**GOOD, "key": {"N": 64.0, "M": 64}, "config": {"TAG": 2}}],
        f"entries 1 and 3 are for the same launches, kernel 'mark' on {DEVICE} with N=64.0, M=64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("is_variable", [False, True])
def test_invalid_files(device, tmp_path, monkeypatch, name, is_variable):
    content, text = BAD[name]
    path = tmp_path / "bad.json"
    if isinstance(content, list) and name != "a list":
        write(path, *content)
    else:
        data = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    monkeypatch.setenv("TILEWRIGHT_TUNING", str(path) if is_variable else "")
    with pytest.raises(errors.LaunchValueError) as caught:
        launch(tuner()) if is_variable else tuning.load(path)
    message = str(caught.value)
    assert caught.value.code == "TW0108"
    assert message.startswith(f"error[TW0108]: the tuning file {path} cannot be used: ")
    assert text in message, message
    assert caught.value.diagnostics[0].hint in message


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    for path, text in ((tmp_path / "no.json", "No such file"), (tmp_path, "directory")):
        with pytest.raises(errors.LaunchValueError, match=text) as caught:
            tuning.load(path)
        assert caught.value.code == "TW0108"
    path = write(tmp_path / "t.json", GOOD)
    monkeypatch.setenv("TILEWRIGHT_TUNING", str(path))
    for limit in ("-1", "nan", "far"):
        monkeypatch.setenv("TILEWRIGHT_TUNING_MAX_DISTANCE", limit)
        with pytest.raises(errors.LaunchValueError, match=f"TUNING_MAX_DISTANCE is '{limit}'"):
            launch(tuner())
    for number in (-1, float("nan"), "1", True):
        with pytest.raises(errors.LaunchValueError, match="max_distance is"):
            tuning.load(path, max_distance=number)


def test_the_text_is_sorted_and_has_a_line_for_each_entry(tmp_path):
    entries = [
        entry({"N": n, "M": m}, 1, median_ms=0.5, dtypes={"o_ptr": "int32"})
        for m in (64, 9, 128, 10)
        for n in (2, 10)
    ]
    entries += [entry({"MODE": mode}) for mode in ("é", True, None, 1.5)]
    path = write(tmp_path / "t.json", *entries)
    found = _tuning_files.read(str(path))
    text = _tuning_files.render(found)
    random.Random(2).shuffle(found)
    assert _tuning_files.render(found) == text
    lines = text.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ('{"format": 1, "entries": [', "]}", len(entries) + 2)
    rows = [json.loads(line.removesuffix(",")) for line in lines[1:-1]]
    assert [list(row) for row in rows] == [sorted(row) for row in rows]
    assert all(one in rows for one in entries)
    keys = [(row["key"]["M"], row["key"]["N"]) for row in rows if "M" in row["key"]]
    assert keys == sorted(keys)
    path.write_text(text)
    assert _tuning_files.render(_tuning_files.read(str(path))) == text
    assert json.loads(_tuning_files.render([])) == {"format": 1, "entries": []}


# -- commands --


def command(*words: Any, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
    given = [sys.executable, "-m", "tilewright", *map(str, words)]
    done = subprocess.run(given, capture_output=True, text=True, env=environment_of(environment), cwd=cwd)
    return done.returncode, done.stdout, done.stderr


PROGRAM = """
import sys

import numpy as np
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64, 128)], key=["n"])
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + BLOCK, mask=i < n)


for n in map(int, sys.argv[1:]):
    x, out = np.arange(n, dtype=np.float32), np.empty(n, np.float32)
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    print(n, int(out[0]))
"""

POISON = """
import tilewright.runtime._tuning as tuning

def tune(trial, configs, known):
    if configs:
        raise SystemExit("a configuration was measured")
    return real(trial, configs, known)

real, tuning.tune = tuning.tune, tune
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "TRITON_CACHE_AUTOTUNING": "1"}


@pytest.fixture
def without_tuning(tmp_path: Path) -> dict[str, str]:
    """Variables with which measuring a configuration ends the program."""
    folder = tmp_path / "poison"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(POISON)
    return {"PYTHONPATH": f"{folder}:{environment_of()['PYTHONPATH']}", "TRITON_CACHE_AUTOTUNING": "0"}


def test_export(device, tmp_path, program, environment, without_tuning):
    path = tmp_path / "tuned.json"
    code, out, err = command("tuning", "export", "-o", path, program, 1000, 100, 1000, **environment)
    assert (code, err) == (0, "")
    assert out.endswith(f"{path}: 2 entries\n")
    chosen = dict(line.split() for line in out.splitlines()[:3])
    rows = json.loads(path.read_text())["entries"]
    assert [row["key"] for row in rows] == [{"n": 100}, {"n": 1000}]
    for row in rows:
        target = "sm_90" if DEVICE == "sim:sm_90" else row["target"]
        assert row == {
            "kernel": "tuned",
            "device": DEVICE,
            "target": target,
            "dtypes": {"x_ptr": "float32", "out_ptr": "float32"},
            "key": row["key"],
            "config": {
                "BLOCK": int(chosen[str(row["key"]["n"])]),
                "num_warps": 4,
                "num_ctas": 1,
                "num_stages": row["config"]["num_stages"],
            },
            "median_ms": row["median_ms"],
        }
        assert row["median_ms"] > 0
    # The timings are on disk: a second export measures nothing and writes equal bytes.
    again = tmp_path / "again.json"
    poisoned = {**environment, "PYTHONPATH": without_tuning["PYTHONPATH"]}
    code, _, err = command("tuning", "export", "--output", again, program, 100, 1000, **poisoned)
    assert (code, err) == (0, "")
    assert again.read_bytes() == path.read_bytes()
    # The file decides, not the speed of the machine.
    for row in rows:
        row["config"]["BLOCK"] = 256
    path.write_text(json.dumps({"format": 1, "entries": rows[1:]}))
    used = {**without_tuning, "TILEWRIGHT_TUNING": str(path), "TRITON_PRINT_AUTOTUNING": "1"}
    code, out, err = command("run", program, 1000, 700, **used)
    assert code == 0, err
    assert [line for line in out.splitlines() if line[0].isdigit()] == ["1000 256", "700 256"]
    assert out.count(f"measured nothing: {path}, key n=1000,\nbest config selected: BLOCK: 256, ") == 2
    # An export runs without the file.
    code, out, err = command("tuning", "export", "-o", again, program, 1000, **{**environment, **used})
    assert "a configuration was measured" in err
    assert "no file is written, because the program ended with 1" in err


def test_export_with_the_digest_of_the_source(tmp_path, program, environment):
    path = tmp_path / "tuned.json"
    assert command("tuning", "export", "--source", "-o", path, program, 100, **environment)[0] == 0
    (row,) = json.loads(path.read_text())["entries"]
    used = {**environment, "TILEWRIGHT_TUNING": str(path), "TRITON_PRINT_AUTOTUNING": "1"}
    assert len(row["source"]) == 16
    assert "measured nothing" in command("run", program, 90, **used)[1]
    program.write_text(PROGRAM.replace("+ BLOCK, mask", "+ BLOCK + 0, mask"))
    code, out, _ = command("run", program, 90, **used)
    assert (code, "measured nothing" in out, "finished after" in out) == (0, False, True)


def test_exports_that_fail(tmp_path, program, environment):
    path = tmp_path / "tuned.json"
    code, _, err = command("tuning", "export", "-o", path, program, **environment)
    assert (code, err) == (1, "error: no autotuner of the program has made a choice\n")
    code, _, err = command("tuning", "export", "-o", path, program, "x", **environment)
    assert code == 1
    assert "no file is written, because the program ended with 1" in err
    code, _, err = command("tuning", "export", "-o", tmp_path / "no" / "t", program, 100, **environment)
    assert code == 1
    assert err.startswith("error: cannot write ")
    for words in (
        ["export", program],
        ["export", "-o", path],
        ["merge", "-o", path],
        ["import", "x"],
        ["no"],
    ):
        code, out, err = command("tuning", *words)
        assert (code, out) == (2, ""), words
        assert err.startswith("error: ")
    assert not path.exists()
    assert command("tuning")[0] == command("tuning", "merge", "--help")[0] == 0


def test_a_lock_has_the_choices_of_files(tmp_path, program, environment, without_tuning):
    row = entry({"n": 100}, kernel="tuned", device="cpu", config={"BLOCK": 64})
    path, lock = write(tmp_path / "t.json", row), tmp_path / "program.lock"
    measures_nothing = {**environment, **without_tuning}
    used = {**measures_nothing, "TILEWRIGHT_TUNING": str(path)}
    code, out, err = command("lock", "-o", lock, program, 100, 90, **used)
    assert code == 0, err
    assert "1 kernel, 2 tuned choices" in out
    # The lock needs the file only for configurations that the autotuner does not have.
    for variables in (measures_nothing, used):
        code, out, err = command("run", f"--locked={lock}", program, 100, 90, **variables)
        assert (code, out) == (0, "100 64\n90 64\n"), err


def merged(tmp_path: Path, *tables: list[dict[str, Any]]) -> tuple[int, Any, str]:
    paths = [write(tmp_path / f"{number}.json", *rows) for number, rows in enumerate(tables)]
    target = tmp_path / "merged.json"
    target.unlink(missing_ok=True)
    code, _, err = command("tuning", "merge", *paths, "-o", target)
    return code, json.loads(target.read_text())["entries"] if target.exists() else None, err


def test_merge(tmp_path):
    a, b = entry({"M": 1}, 1, median_ms=0.5), entry({"M": 1}, 2, median_ms=0.25)
    same, other = entry({"M": 2}, 3), entry({"M": 3}, 4)
    for tables in ([a, same], [b, same, other]), ([b, same, other], [a, same]):
        assert merged(tmp_path, *tables) == (0, [b, same, other], "")
    # Equal times: the choice does not depend on the order of the files.
    tie = entry({"M": 1}, 3, median_ms=0.25)
    assert merged(tmp_path, [b], [tie]) == merged(tmp_path, [tie], [b]) == (0, [b], "")
    # Without a time, equal configurations are no conflict, and the known time is kept.
    unknown = entry({"M": 1}, 2)
    assert merged(tmp_path, [unknown], [b])[1] == [b]
    code, found, err = merged(tmp_path, [unknown], [a])
    assert (code, found) == (1, None)
    expected = f"error[TW0108]: two entries choose differently for kernel 'mark' on {DEVICE} with M=1\n"
    assert err.startswith(expected)
    assert f"note: {tmp_path / '0.json'}: TAG=2\n" in err
    assert f"note: {tmp_path / '1.json'}: TAG=1\n" in err
    code, found, err = merged(tmp_path, [a], [{**a, "median_ms": float("nan")}])
    assert (code, found) == (1, None)
    assert f"the tuning file {tmp_path / '1.json'} cannot be used: 'median_ms' of entry 1" in err


def test_list(tmp_path):
    rows = [entry({"M": 1}, 1, median_ms=0.5), entry({}, 2, target="sm_90", dtypes={"o_ptr": "int32"})]
    code, out, err = command("tuning", "list", write(tmp_path / "t.json", *rows))
    assert (code, err) == (0, "")
    title, first, second = out.splitlines()
    assert title.split() == ["kernel", "device", "dtypes", "key", "configuration", "ms"]
    assert first.split() == ["mark", DEVICE, "-", "M=1", "TAG=1", "0.5"]
    assert second.split() == ["mark", DEVICE, "(sm_90)", "o_ptr=int32", "-", "TAG=2", "-"]


# -- files of vLLM and SGLang --

TILES = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "num_warps": 4, "num_stages": 3}

FOREIGN = {
    "E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8.json": {"E": 8, "N": 7168, "dtype": "fp8_w8a8"},
    "E=64,N=896,device_name=Intel(R)_Arc(TM)_Pro.json": {"E": 64, "N": 896},
    "N=512,K=7168,device_name=NVIDIA_A100-SXM4-80GB,dtype=fp8_w8a8,block_shape=[128,128].json": {
        "N": 512, "K": 7168, "dtype": "fp8_w8a8", "block_shape": "[128, 128]",
    },
    "N=512,K=7168,device_name=NVIDIA_L40S,dtype=int8_w8a8,block_shape=[128, 128].json": {
        "N": 512, "K": 7168, "dtype": "int8_w8a8", "block_shape": "[128, 128]",
    },
    "E=16,N=1024,device_name=NVIDIA_B200,dtype=fp8_w8a8,per_channel_quant=True.json": {
        "E": 16, "N": 1024, "dtype": "fp8_w8a8", "per_channel_quant": True,
    },
    "E=257,N=256,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128, 128]_down.json": {
        "E": 257, "N": 256, "dtype": "fp8_w8a8", "block_shape": "[128, 128]", "down": True,
    },
    "headdim=64,dstate=128,device_name=NVIDIA_H100_80GB_HBM3,cache_dtype=float32.json": {
        "headdim": 64, "dstate": 128, "cache_dtype": "float32",
    },
}  # fmt: skip


def test_import(tmp_path):
    expected = []
    for number, (name, key) in enumerate(FOREIGN.items()):
        rows: dict[str, Any] = {"triton_version": "3.4.0"} if number % 2 else {}
        for m in (1, 64, 4096):
            config = {**TILES, "BLOCK_SIZE_M": 16 + number}
            rows[str(m)] = config
            device_name = name.partition("device_name=")[2].partition(",")[0].removesuffix(".json")
            row = {"kernel": "fused_moe_kernel", "device": device_name, "key": {**key, "M": m}}
            expected.append({**row, "config": config})
        # A tuner that found nothing writes null.
        (tmp_path / name).write_text(json.dumps({**rows, "8192": None}))
    target = tmp_path / "tuned.json"
    words = ["tuning", "import", *FOREIGN, "--kernel", "fused_moe_kernel", "-o", target]
    code, out, err = command(*words, cwd=tmp_path)
    assert (code, out, err) == (0, f"{target}: {len(expected)} entries\n", "")
    found = json.loads(target.read_text())["entries"]
    assert len(found) == len(expected)
    assert all(row in found for row in expected)
    first = next(iter(FOREIGN))
    code, _, err = command(
        "tuning", "import", first, "--kernel", "k", "-o", target, "--rename", "dtype=", "--rename", "M=EM",
        cwd=tmp_path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    keys = [row["key"] for row in json.loads(target.read_text())["entries"]]
    assert keys == [{"E": 8, "N": 7168, "EM": m} for m in (1, 64, 4096)]
    for rename, text in (
        ("X=Y", "--rename X: the files have only E, M, N, dtype"),
        ("M=N", "--rename: N is"),
        ("M", "--rename M: expected M=<new>, or M= to leave the value out"),
    ):
        words = ["tuning", "import", first, "--kernel", "k", "-o", target, "--rename", rename]
        code, _, err = command(*words, cwd=tmp_path)
        assert (code, text in err) == (2, True), err


@pytest.mark.usefixtures("poisoned")
def test_an_imported_file_chooses(device, tmp_path):
    name = f"N=64,device_name={DEVICE}.json"
    (tmp_path / name).write_text(json.dumps({str(m): {"TAG": m} for m in (1, 16, 256)}))
    target = tmp_path / "tuned.json"
    assert command("tuning", "import", name, "--kernel", "mark", "-o", target, cwd=tmp_path)[0] == 0
    tuning.load(target)
    kernel = tuner()
    assert [launch(kernel, m) for m in (1, 3, 5, 63, 65, 9999)] == [1, 1, 16, 16, 256, 256]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("E=8,N=2,device_name=X.json", '{"1": {"A": 1}', "it is not JSON"),
        ("E=8,N=2,device_name=X.json", "[1]", "it is not an object that maps"),
        ("E=8,N=2,device_name=X.json", '{"1": 3}', "the configuration of '1' is not an object"),
        ("E=8,N=2,device_name=X.json", '{"1": {"A": NaN}}', "the configuration of '1' is not an object"),
        ("E=8,N=2,device_name=X.json", '{"best": {"A": 1}}', "it has the name 'best'"),
        ("E=8,N=2,device_name=X.json", '{"1": {}, "01": {}}', "it has the name '01'"),
        ("E=8,N=2,device_name=X.json", '{"1": {}, "1": {}}', "an object has the name '1' twice"),
        ("E=8,N=2.json", "{}", "its name states no device_name"),
        ("E=8,M=2,device_name=X.json", "{}", "its name is not of the form"),
        ("default.json", "{}", "its name is not of the form"),
    ],
    ids=str,
)
def test_files_that_cannot_be_imported(tmp_path, name, content, text):
    (tmp_path / name).write_text(content)
    code, out, err = command("tuning", "import", name, "--kernel", "k", "-o", "t.json", cwd=tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith(f"error[TW0108]: the tuning file {name} cannot be used: ")
    assert text in err
    assert not (tmp_path / "t.json").exists()


def test_imports_that_conflict_name_both_files(tmp_path):
    for folder, tile in (("triton_3_1_0", 16), ("triton_3_2_0", 32)):
        (tmp_path / folder).mkdir()
        text = json.dumps({"1": {"BLOCK_SIZE_M": tile}})
        (tmp_path / folder / "E=8,N=2,device_name=X.json").write_text(text)
    paths = sorted(tmp_path.glob("*/*.json"))
    code, _, err = command("tuning", "import", *paths, "--kernel", "k", "-o", tmp_path / "t.json")
    assert code == 1
    assert all(f"note: {path}: BLOCK_SIZE_M=" in err for path in paths)
