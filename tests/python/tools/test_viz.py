"""Traces of launches: what is recorded is what the programs do, and the server of the page tells it."""

from __future__ import annotations

import base64
import ctypes
import html
import json
import math
import re
import subprocess
import sys
import urllib.error
import urllib.request
import zlib

import pytest
from conftest import PATIENCE, PROGRAMS

import tilewright
from tilewright import sanitizer

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
viz = pytest.importorskip("tilewright.viz")

from traced import Traced  # noqa: E402

KERNELS = """
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=7)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)

@triton.jit
def gather(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + lanes)
    tl.store(out_ptr + lanes, tl.load(x_ptr + index, mask=index >= 0))

@triton.jit
def count(out_ptr, n):
    tl.atomic_add(out_ptr + tl.program_id(0) % 2, 1)

@triton.jit
def race(out_ptr):
    tl.store(out_ptr + tl.program_id(0) // 2, tl.program_id(0))

@triton.jit
def outside(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0)

@triton.jit
def product(a_ptr, b_ptr, c_ptr, K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, 16)
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, BLOCK):
        j = k + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i[:, None] * K + j[None, :])
        b = tl.load(b_ptr + j[:, None] * 16 + i[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * 16 + i[None, :], acc)
    tl.store(c_ptr + 256 + tl.arange(0, 16), tl.sum(acc, axis=1))

@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes))

@triton.jit
def shows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    print("x", x)
    tl.store(out_ptr + offsets, x * 2, mask=mask)
"""


@pytest.fixture
def kernels(module):
    viz.clear()
    viz.config.reset()
    yield module(KERNELS)
    viz.clear()
    viz.config.reset()


def test_values_masks_and_places_are_those_of_the_program(kernels, device):
    x, y = torch.rand(40, device=device), torch.rand(40, device=device)
    out = torch.zeros(40, device=device)
    viz.trace(kernels.add)[(3,)](x, y, out, 40, BLOCK=16)
    assert torch.equal(out, x + y)
    traced = Traced()
    assert traced.about["grid"] == [3, 1, 1]
    assert [program[0] for program in traced.about["programs"]] == [0, 1, 2]
    for program in range(3):
        first, second = traced.find(program, "load")
        (store,) = traced.find(program, "store")
        here = range(16 * program, min(16 * program + 16, 40))
        expected = np.full(16, 7.0)
        expected[: len(here)] = x[list(here)].cpu()
        assert np.array_equal(
            traced.value(program, first, "result").astype("float32"), expected.astype("float32")
        )
        touched = traced.touched(program, store)
        assert touched["tensor"] == 2
        assert touched["mask"] == [int(16 * program + lane < 40) for lane in range(16)]
        assert touched["places"][: len(here)] == list(here)
        written = traced.value(program, store, "operand")[: len(here)]
        assert np.array_equal(written.astype("float32"), (x + y)[list(here)].cpu().numpy())
        assert traced.touched(program, second)["tensor"] == 1
    assert traced.elements(2, False) == [0] * 40
    assert np.array_equal(np.array(traced.elements(2, True), "float32"), out.cpu().numpy())
    assert {op["kind"]: op["masked"] for op in traced.ops if op["isAccess"]} == {"load": 8, "store": 8}


DTYPES = [
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "bool",
    "float8_e4m3fn",
    "float8_e5m2",
]


@pytest.mark.parametrize("name", DTYPES)
def test_elements_of_every_type(kernels, name):
    dtype = getattr(torch, name)
    torch.manual_seed(1)
    x = torch.randint(0, 2, (32,)).bool() if name == "bool" else (8 * torch.randn(32)).to(dtype)
    out = torch.zeros(32).to(dtype)
    viz.trace(kernels.copy)[(1,)](x, out, BLOCK=32)
    traced = Traced()
    # Narrow floats are written with as many digits as tell them apart as fp32.
    wide = "float64" if name == "float64" or not dtype.is_floating_point else "float32"
    expected = x.to(torch.float64).numpy().astype(wide)
    loaded = traced.value(0, traced.find(0, "load")[0], "result")
    assert np.array_equal(loaded.astype(wide), expected)
    assert np.array_equal(np.array(traced.elements(1, True), "float64").astype(wide), expected)


def test_what_is_not_finite_or_not_exact_is_text(kernels):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    viz.trace(kernels.copy)[(1,)](x, torch.zeros(4), BLOCK=4)
    assert [str(element) for element in Traced().elements(0, True)] == ["nan", "inf", "-inf", "-0.0"]
    big = torch.tensor([2**60 + 1, -(2**60) - 1, 5, 0])
    viz.trace(kernels.copy)[(1,)](big, torch.zeros_like(big), BLOCK=4)
    assert Traced(1).elements(1, True) == [str(2**60 + 1), str(-(2**60) - 1), 5, 0]


def test_places_that_values_name(kernels):
    rng = np.random.default_rng(2)
    index = torch.from_numpy(rng.integers(-1, 50, 64).astype("int32"))
    x, out = torch.rand(50), torch.zeros(64)
    viz.config.programs = 1
    viz.trace(kernels.gather)[(4,)](x, index, out, BLOCK=16)
    traced = Traced()
    assert [program[1] & 1 for program in traced.about["programs"]] == [1, 0, 0, 1]
    for program in range(4):
        loads = traced.find(program, "load")
        touched = traced.touched(program, loads[1])
        part = index[16 * program : 16 * program + 16].tolist()
        assert touched["mask"] == [int(at >= 0) for at in part]
        assert [at for at, mask in zip(touched["places"], touched["mask"], strict=True) if mask] == [
            at for at in part if at >= 0
        ]
    readers = [len({lane // 16 for lane in range(64) if index[lane] == at}) for at in range(50)]
    assert traced.overlaps(0)["readers"] == readers
    assert traced.overlaps(0)["races"] == []


def test_races_and_atomics(kernels):
    out = torch.zeros(3, dtype=torch.int32)
    viz.trace(kernels.race)[(6,)](out)
    viz.trace(kernels.count)[(6,)](out, 6)
    assert Traced(0).overlaps(0)["writers"] == [2, 2, 2]
    assert Traced(0).overlaps(0)["races"] == [0, 1, 2]
    assert Traced(1).overlaps(0)["atomics"] == [3, 3, 0]
    assert Traced(1).overlaps(0)["races"] == []
    who = json.loads(Traced(0).file.who(0, 0, 1))
    assert [program for _, program, _ in who["accesses"]] == [2, 3]


def test_views_of_one_storage_and_strides(kernels):
    storage = torch.zeros(64)
    x, out = storage[:32], storage.view(32, 2).t()[1]
    viz.trace(kernels.copy)[(1,)](x, storage[16:48], BLOCK=32)
    touched = Traced().overlaps(0)
    # The second view shares half of the first one.
    assert touched["readers"] == [1] * 32
    assert touched["writers"] == [0] * 16 + [1] * 16
    assert out.stride() == (2,)
    square = torch.rand(8, 4).t()
    viz.trace(kernels.copy)[(1,)](square, torch.zeros(32), BLOCK=32)
    traced = Traced(1)
    assert traced.about["tensors"][0]["strides"] == [1, 4]
    touched = traced.touched(0, traced.find(0, "load")[0])
    assert touched["places"] == [(lane % 4) * 8 + lane // 4 for lane in range(32)]


def test_the_programs_of_each_element(kernels):
    from tilewright.viz import _answers

    def programs(launch, tensor):
        numbers = {"launch": launch, "tensor": tensor}
        return json.loads(_answers.answer(Traced().file, "programs", numbers) or "null")

    # The last program is masked; tensors that are not accessed have no program.
    x = torch.rand(40)
    viz.trace(kernels.add)[(3,)](x, torch.rand(40), torch.zeros(40), 36, BLOCK=16)
    assert programs(0, 2) == {"programs": [[at // 16] if at < 36 else [] for at in range(40)]}
    # Elements that programs share have each of them, up to four.
    viz.trace(kernels.race)[(6,)](torch.zeros(3, dtype=torch.int32))
    assert programs(1, 0) == {"programs": [[0, 1], [2, 3], [4, 5]]}
    viz.trace(kernels.count)[(12,)](torch.zeros(3, dtype=torch.int32), 12)
    assert programs(2, 0) == {"programs": [[0, 2, 4, 6], [1, 3, 5, 7], []]}
    # A launch in place, and a view with strides of another tensor's memory.
    storage = torch.rand(4, 8)
    viz.trace(kernels.copy)[(1,)](storage.t()[:2], storage[0], BLOCK=4)
    assert programs(3, 0) == {"programs": [[0], [], [], [], [0], [], [], []]}
    assert programs(3, 1) == {"programs": [[0]] * 4 + [[]] * 4}
    out = torch.zeros(32)
    viz.trace(kernels.copy)[(1,)](out, out, BLOCK=32)
    assert programs(4, 0) == programs(4, 1) == {"programs": [[0]] * 32}
    assert programs(9, 0) is programs(0, 9) is None
    # More elements than are analyzed.
    big = torch.zeros(1 << 21)
    viz.trace(kernels.copy)[(1,)](big, big, BLOCK=1024)
    assert programs(5, 0) == {"tooLarge": True}


def test_loops_products_and_reductions(kernels):
    torch.manual_seed(3)
    a, b = torch.randn(16, 48), torch.randn(48, 16)
    c = torch.zeros(272)
    viz.trace(kernels.product)[(1,)](a, b, c, K=48, BLOCK=16)
    traced = Traced()
    loop = [event for event in traced.events(0) if traced.ops[event[0]]["kind"] == "loop"]
    assert [event[2] for event in loop] == [["uniform", 0], ["uniform", 16], ["uniform", 32]]
    dots = traced.find(0, "dot")
    assert len(dots) == 3
    acc = np.zeros((16, 16))
    for number, dot in enumerate(dots):
        part = slice(16 * number, 16 * number + 16)
        assert np.array_equal(traced.value(0, dot, "a").astype("float32"), a[:, part].numpy())
        assert np.array_equal(traced.value(0, dot, "b").astype("float32"), b[part].numpy())
        assert np.allclose(traced.value(0, dot, "acc"), acc, atol=1e-4)
        acc = acc + a[:, part].numpy().astype("float64") @ b[part].numpy().astype("float64")
        assert np.allclose(traced.value(0, dot, "result"), acc, atol=1e-4)
    (reduction,) = traced.find(0, "reduce")
    assert traced.value(0, reduction, "operand").shape == (16, 16)
    assert np.allclose(traced.value(0, reduction, "result"), acc.sum(1), atol=1e-3)
    # The line of the call, not that of the library.
    assert (
        "tl.sum"
        in traced.about["files"][0]["text"].splitlines()[
            traced.ops[traced.events(0)[reduction][0]]["places"][-1][1]
            - traced.about["files"][0]["firstLine"]
        ]
    )


def test_a_launch_that_fails_is_recorded_up_to_there(kernels):
    x = torch.zeros(40)
    with pytest.raises(tilewright.TritonError, match="out of bounds"):
        viz.trace(kernels.outside)[(3,)](x, 40, BLOCK=16)
    traced = Traced()
    assert traced.about["failed"]
    assert "TW0201" in traced.about["failure"]
    flags = {program: flags for program, flags, _ in traced.about["programs"]}
    assert flags[2] & 4
    (store,) = traced.find(2, "store")
    touched = traced.touched(2, store)
    assert touched["places"] == [32, 33, 34, 35, 36, 37, 38, 39, *[-1] * 8]
    assert [bytes // 4 for bytes in touched["bytes"]] == list(range(32, 48))


def test_many_programs_are_sampled(kernels):
    x = torch.rand(16 * 1000)
    viz.config.programs = 10
    viz.trace(kernels.add)[(1000,)](x, x, torch.zeros_like(x), x.numel(), BLOCK=16)
    traced = Traced()
    assert len(traced.about["programs"]) == 1000
    assert [number for number, flags, _ in traced.about["programs"] if flags & 1] == [
        *range(0, 1000, 100),
        999,
    ]
    assert traced.overlaps(2)["writers"] == [1] * x.numel()
    assert [op["events"] for op in traced.ops if op["isAccess"]] == [1000] * 3


def test_decorators_tuners_and_names(kernels, module, monkeypatch):
    # Another test of this process may have imported the official package.
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    text = """
import triton_viz
from triton_viz.clients import Sanitizer, Tracer
from triton_viz.core import config as cfg
from triton_viz.interpreter import record_builder

@triton_viz.trace(clients=Tracer())
@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0 + EVEN, mask=offsets < n)

@triton_viz.trace
@triton.jit
def plain(x_ptr):
    tl.store(x_ptr, 3.0)

@triton_viz.trace("sanitizer", backend="triton")
@triton.jit
def named(x_ptr):
    tl.store(x_ptr, 4.0)
"""
    tilewright.install_as_triton()
    found = module(text)
    x = torch.zeros(64)
    found.tuned[lambda meta: (tilewright.cdiv(64, meta["BLOCK"]),)](x, 64)
    assert x.eq(2).all()
    # The timings are no launches of the program.
    assert len(json.loads(Traced().file.list())) == 1
    assert dict(Traced().about["constants"])["BLOCK"] in ("16", "32")
    found.plain[(1,)](x)
    found.named[(1,)](x_ptr=x)
    assert x[0] == 4
    assert [launch["kernel"] for launch in json.loads(Traced().file.list())] == ["tuned", "plain", "named"]
    assert found.plain.arg_names == ["x_ptr"]
    found.record_builder.reset()
    found.plain[(1,)](x)
    assert [launch["kernel"] for launch in json.loads(Traced().file.list())] == ["plain"]
    with pytest.raises(ValueError, match="no client 'tracr'"):
        viz.trace("tracr")
    with pytest.raises(TypeError, match="takes a kernel"):
        viz.trace(len)
    with pytest.raises(AttributeError, match="no setting 'progams'"):
        viz.config.progams = 3


def test_saved_traces(kernels, tmp_path):
    with pytest.raises(ValueError, match="no trace to save"):
        viz.save(tmp_path / "none.twtrace")
    x = torch.rand(16)
    viz.trace(kernels.copy)[(1,)](x, torch.zeros(16), BLOCK=16)
    viz.save(tmp_path / "one.twtrace")
    viz.clear()
    viz.load(tmp_path / "one.twtrace")
    assert Traced().about["kernel"] == "copy"
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a tilewright trace"):
        viz.load(tmp_path / "other")
    # A launch begins a new trace.
    viz.trace(kernels.race)[(2,)](torch.zeros(1, dtype=torch.int32))
    assert Traced().about["kernel"] == "race"


def parts_of(page):
    """The answers that a page has, by part and request."""
    found = re.findall(r'<script type="application/octet-stream" data-part="(.*?)">(.*?)</script>', page)
    return {html.unescape(name): json.loads(zlib.decompress(base64.b64decode(part))) for name, part in found}


def test_a_page_is_one_file(kernels, tmp_path, run):
    from tilewright.viz import _answers

    path = tmp_path / "page.html"
    with pytest.raises(ValueError, match="no trace to save"):
        viz.save_html(path)
    out = torch.zeros(3, dtype=torch.int32)
    viz.trace(kernels.count)[(300,)](out, 300)
    a, b, c = torch.randn(16, 32), torch.randn(32, 16), torch.zeros(272)
    viz.trace(kernels.product)[(1,)](a, b, c, K=32, BLOCK=16)
    viz.trace(kernels.copy)[(1,)](out, out, BLOCK=2)
    with pytest.raises(tilewright.TritonError, match="out of bounds"):
        viz.trace(kernels.outside)[(3,)](torch.zeros(40), 40, BLOCK=16)
    viz.save_html(path)
    page = path.read_text()
    parts = parts_of(page)
    trace = Traced().file

    def said(name, **numbers):
        """The answer of the server; the page has the same."""
        found = json.loads(_answers.answer(trace, name, numbers) or "null")
        of_part = {key: numbers.pop(key) for key in ("launch", "program", "tensor") if key in numbers}
        part = parts["&".join(f"{key}={value}" for key, value in of_part.items())]
        request = "&".join([name, *(f"{key}={value}" for key, value in numbers.items())])
        assert part.get(request, part.get(name)) == found
        return found

    launches = said("launches")
    assert [launch["kernel"] for launch in launches] == ["count", "product", "copy", "outside"]
    values = 0
    for launch in range(4):
        about = said("launch", launch=launch)
        for target in (75, 80, 89, 90, 100):
            assert said("layouts", launch=launch, target=target)
        for tensor, each in enumerate(about["tensors"]):
            said("overlaps", launch=launch, tensor=tensor)
            said("programs", launch=launch, tensor=tensor)
            for after in (0, 1):
                assert said("elements", launch=launch, tensor=tensor, after=after)
            for place in range(math.prod(each["shape"])):
                said("who", launch=launch, tensor=tensor, place=place)
        for program, _, _ in about["programs"]:
            for event, (op, *_) in enumerate(said("program", launch=launch, program=program)["events"]):
                if about["ops"][op]["isAccess"]:
                    said("touched", launch=launch, program=program, event=event)
                for value in range(len(about["ops"][op]["values"])):
                    values += (
                        said("value", launch=launch, program=program, event=event, value=value) is not None
                    )
    assert values > 900
    # The page asks for nothing else: scripts, styles and pictures are in it, and a policy forbids others.
    assert set(re.findall(r'(?:src|href)="(.*?)[#:]', page)) == {"", "data"}
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    # The command writes the same page.
    viz.save(tmp_path / "one.twtrace")
    done = run("-m", "tilewright.viz", tmp_path / "one.twtrace", "-o", tmp_path / "other.html")
    assert done.code == 0, done.err
    assert (tmp_path / "other.html").read_text() == page


def kernels_of_trace():
    return [launch["kernel"] for launch in json.loads(Traced().file.list())]


def test_loaded_traces_are_added_or_replace(kernels, tmp_path):
    x, out = torch.arange(16.0), torch.zeros(16)
    counts = torch.zeros(2, dtype=torch.int32)
    viz.trace(kernels.copy)[(1,)](x, out, BLOCK=16)
    viz.trace(kernels.count)[(4,)](counts, 4)
    viz.save(tmp_path / "two.twtrace")
    viz.clear()
    viz.trace(kernels.race)[(4,)](torch.zeros(2, dtype=torch.int32))
    # Added to a recorded trace, which goes on: the launches keep their programs and elements.
    viz.load(tmp_path / "two.twtrace", append=True)
    assert kernels_of_trace() == ["race", "copy", "count"]
    viz.trace(kernels.copy)[(1,)](-x, out, BLOCK=16)
    assert kernels_of_trace() == ["race", "copy", "count", "copy"]
    assert Traced(0).overlaps(0)["races"] == [0, 1]
    assert Traced(1).elements(1, True) == list(range(16))
    assert Traced(2).overlaps(0)["atomics"] == [2, 2]
    assert Traced(3).value(0, Traced(3).find(0, "load")[0], "result").tolist() == [-at for at in range(16)]
    # The whole trace is saved, and added to a loaded trace; numbers may need more than one byte.
    viz.save(tmp_path / "four.twtrace")
    viz.load(tmp_path / "two.twtrace")
    assert kernels_of_trace() == ["copy", "count"]
    for _ in range(33):
        viz.load(tmp_path / "four.twtrace", append=True)
    assert kernels_of_trace() == ["copy", "count", *["race", "copy", "count", "copy"] * 33]
    assert Traced(132).overlaps(0)["atomics"] == [2, 2]
    # A trace whose writer has stopped within a chunk.
    whole = (tmp_path / "two.twtrace").read_bytes()
    (tmp_path / "half.twtrace").write_bytes(whole[: whole.rindex(b"DONE") + 13])
    viz.load(tmp_path / "half.twtrace")
    viz.load(tmp_path / "two.twtrace", append=True)
    assert kernels_of_trace() == ["copy", "count"] * 2
    # A file that is no trace changes nothing.
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a tilewright trace"):
        viz.load(tmp_path / "other", append=True)
    assert kernels_of_trace() == ["copy", "count"] * 2
    viz.clear()
    viz.load(tmp_path / "two.twtrace", append=True)
    assert kernels_of_trace() == ["copy", "count"]
    assert (tmp_path / "two.twtrace").read_bytes() == whole


def test_a_kernel_that_calls_python(kernels, capsys):
    x, out = torch.arange(10.0), torch.zeros(10)
    viz.trace(kernels.shows)[(3,)](x, out, 10, BLOCK=4)
    assert torch.equal(out, 2 * x)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["x [0. 1. 2. 3.]", "x [4. 5. 6. 7.]", "x [8. 9. 0. 0.]"]
    traced = Traced()
    assert traced.about["interpreted"]
    assert [program[0] for program in traced.about["programs"]] == [0, 1, 2]
    (load,), (store,) = traced.find(2, "load"), traced.find(2, "store")
    assert traced.value(2, load, "result").tolist() == [8, 9, 0, 0]
    assert traced.value(2, store, "operand").tolist() == [16, 18, 0, 0]
    touched = traced.touched(2, store)
    assert (touched["tensor"], touched["mask"], touched["places"]) == (1, [1, 1, 0, 0], [8, 9, -1, -1])
    assert traced.overlaps(1)["writers"] == [1] * 10
    lines = traced.about["files"][0]["text"].splitlines()
    place = traced.ops[traced.events(2)[store][0]]["places"][0]
    assert "tl.store" in lines[place[1] - traced.about["files"][0]["firstLine"]]


def test_an_interpreted_launch_that_fails(kernels):
    with pytest.raises(tilewright.TritonError, match="out of bounds"):
        viz.trace(kernels.shows)[(3,)](torch.arange(10.0), torch.zeros(9), 10, BLOCK=4)
    assert "TW0201" in Traced().about["failure"]


def ask(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return response.headers["Content-Type"], response.read()


def test_the_server(kernels, monkeypatch):
    from tilewright.viz import _answers, _server

    x = torch.rand(16)
    viz.trace(kernels.copy)[(1,)](x, torch.zeros(16), BLOCK=16)
    url = _server.serve()
    try:
        kind, page = ask(url)
        assert kind.startswith("text/html")
        # Everything that the page needs is in the package.
        for name in re.findall(r'(?:src|href)="([^"#]+)"', page.decode()):
            assert ask(url + name)[1]
        assert b"http" not in re.sub(rb"http://www.w3.org/2000/svg", b"", page)
        assert json.loads(ask(f"{url}api/launches")[1])[0]["kernel"] == "copy"
        assert json.loads(ask(f"{url}api/program?launch=0&program=0")[1])["hasValues"]
        viz.trace(kernels.race)[(2,)](torch.zeros(1, dtype=torch.int32))
        assert len(json.loads(ask(f"{url}api/launches")[1])) == 2
        wrong = [
            "none.html",
            "../__init__.py",
            "%2e%2e/__init__.py",
            "api/program?launch=9&program=0",
            "api/none",
        ]
        for path in [*wrong, "api/program", "api/program?program=x", f"api/launch?launch={2**70}"]:
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(url + path)
            assert caught.value.code in (400, 404)
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(url, host="evil.example")
        assert caught.value.code == 403

        # A mistake of the server is an answer too.
        def fails(*_):
            raise RuntimeError("a mistake")

        monkeypatch.setattr(_answers, "answer", fails)
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(f"{url}api/launches")
        assert (caught.value.code, caught.value.read()) == (500, b"a mistake")
    finally:
        _server.stop()


def test_import_is_lazy():
    code = "import tilewright, sys; print([name for name in sys.modules if 'viz' in name or name == 'http.server'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == "[]\n"


BUGGY = """
@triton.jit
def accumulate(x_ptr, acc_ptr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + lanes))
    tl.store(acc_ptr, tl.load(acc_ptr) + total)

@triton.jit
def windows(out_ptr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * (BLOCK - 2)
    for step in range(2):
        tl.store(out_ptr + step * 32 + first + tl.arange(0, BLOCK), tl.program_id(0) + step)

@triton.jit
def quotient(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes)
    y = tl.load(y_ptr + lanes)
    tl.store(out_ptr + lanes, x / y)

@triton.jit
def ordered(flag_ptr, out_ptr):
    if tl.program_id(0) == 0:
        tl.store(out_ptr, 3)
        tl.atomic_xchg(flag_ptr, 1, sem="release")
    else:
        while tl.atomic_cas(flag_ptr, 1, 1, sem="acquire") != 1:
            pass
        tl.store(out_ptr + 1, tl.load(out_ptr))
"""


@pytest.fixture
def buggy(module):
    viz.clear()
    viz.config.reset()
    yield module(BUGGY)
    viz.clear()
    viz.config.reset()


def line_of(traced, place):
    file = traced.about["files"][place[0]]
    return file["text"].splitlines()[place[1] - file["firstLine"]]


def test_what_a_sanitizer_finds_is_in_the_trace(buggy):
    out = torch.zeros(64, dtype=torch.int32)
    with sanitizer.sanitize(raises=False) as found:
        viz.trace(buggy.windows)[(3,)](out, BLOCK=8)
    expected = torch.zeros(64, dtype=torch.int32)
    for step in range(2):
        for program in range(3):
            expected[32 * step + 6 * program :][:8] = program + step
    assert torch.equal(out, expected)
    traced = Traced()
    assert traced.about["checks"] == "bounds,race,init,alignment,overflow,nan"
    (race,) = traced.about["findings"]
    (report,) = found.reports
    assert (race["check"], race["code"], race["text"]) == ("race", "TW0221", str(report))
    assert "tl.store(out_ptr + step" in line_of(traced, race["place"])
    assert race["place"] == race["other"]
    # Programs 1 and 2, each in both steps; every element that two of them write, with the other program.
    assert race["count"] == report.count == 4
    assert race["occurrences"] == [
        [program, 0, 32 * step + 6 * program + at, program - 1]
        for program in (1, 2)
        for step in (0, 1)
        for at in (0, 1)
    ]
    # The place of the finding is that of an op, and its program wrote what the trace says.
    stores = traced.find(1, "store")
    op = traced.ops[traced.events(1)[stores[0]][0]]
    assert race["place"] in [place[:3] for place in op["places"]]
    assert traced.touched(1, stores[1])["places"] == list(range(38, 46))
    assert traced.value(1, stores[1], "operand").tolist() in (2, [2] * 8)


def test_findings_are_those_of_a_launch_that_is_not_traced(buggy):
    def run(kernels, wrap):
        with sanitizer.sanitize(raises=False) as found:
            acc, y = torch.zeros(1), torch.tensor([1.0, 0.0, 2.0, 0.0] * 4)
            x = torch.empty(16)
            x[:9] = 0
            # The unwritten elements are finite.
            ctypes.memset(x.data_ptr() + 36, 0x3F, 28)
            wrap(kernels.accumulate)[(4,)](torch.ones(32), acc, BLOCK=8)
            wrap(kernels.quotient)[(2,)](x, y, torch.zeros(16), BLOCK=8)
        return [(str(report), report.count) for report in found.reports]

    plain, traced = run(buggy, lambda kernel: kernel), run(buggy, viz.trace)
    assert plain == traced
    found = Traced(1).about["findings"]
    assert [one["check"] for one in found] == ["nan", "init"]
    assert found[0]["occurrences"] == [[program, -1, -1, -1] for program in (0, 1)]
    assert found[0]["lane"] == [1]
    assert found[1]["occurrences"] == [[1, 0, place, -1] for place in range(9, 16)]
    reads, writes = Traced(0).about["findings"]
    for race, access in ((reads, "tl.load(acc_ptr)"), (writes, "tl.store(acc_ptr")):
        assert race["occurrences"] == [[program, 1, 0, program - 1] for program in (1, 2, 3)]
        column = race["place"][2] - 1
        assert line_of(Traced(0), race["place"])[column:].startswith(access)


def test_clients_have_launches_sanitized(buggy, kernels, capfd):
    sanitizer.clear()
    acc, ones = torch.zeros(1), torch.ones(32)
    viz.trace(clients=viz.Sanitizer())(buggy.accumulate)[(4,)](ones, acc, BLOCK=8)
    assert Traced(0).about["findings"][0]["check"] == "race"
    assert capfd.readouterr().err.count("error[TW0221]") == 2
    # The same again is counted, and not said again.
    viz.trace(buggy.accumulate, "race_detector")[(4,)](ones, acc, BLOCK=8)
    assert Traced(1).about["checks"] == "race"
    assert capfd.readouterr().err == ""
    viz.trace(buggy.accumulate, clients=[viz.Tracer, "profiler"])[(4,)](ones, acc, BLOCK=8)
    assert (Traced(2).about["checks"], Traced(2).about["findings"]) == ("", [])
    viz.config.disable_sanitizer = True
    viz.trace("sanitizer")(buggy.accumulate)[(4,)](ones, acc, BLOCK=8)
    assert Traced(3).about["checks"] == ""
    viz.config.reset()
    x = torch.zeros(16)
    with pytest.raises(tilewright.TritonError, match="out of bounds"):
        viz.trace("sanitizer")(kernels.outside)[(2,)](x, 16, BLOCK=16)
    assert "TW0201" in Traced(4).about["failure"]
    # Accesses that the sanitizer knows to be ordered are no finding, though programs share the element.
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    viz.trace("sanitizer")(buggy.ordered)[(2,)](flag, out)
    assert Traced(5).about["findings"] == []
    assert Traced(5).overlaps(1)["races"] == [0]
    assert out.tolist() == [3, 3]
    sanitizer.clear()


def test_a_traced_launch_has_the_checks_of_its_option(buggy):
    sanitizer.clear()
    acc, ones = torch.zeros(1), torch.ones(32)
    with pytest.raises(sanitizer.SanitizerError, match="TW0221"):
        viz.trace(buggy.accumulate)[(4,)](ones, acc, BLOCK=8, sanitize="race")
    assert acc.item() == 32
    assert Traced(0).about["checks"] == "race"
    reads, writes = Traced(0).about["findings"]
    for race, access in ((reads, "tl.load(acc_ptr)"), (writes, "tl.store(acc_ptr")):
        assert race["occurrences"] == [[program, 1, 0, program - 1] for program in (1, 2, 3)]
        assert line_of(Traced(0), race["place"])[race["place"][2] - 1 :].startswith(access)
    # The launch has these checks and no others, whatever else is on.
    with sanitizer.sanitize("race", raises=False) as found:
        viz.trace(buggy.accumulate)[(4,)](ones, acc, BLOCK=8, sanitize="nan")
    assert not found.reports
    assert (Traced(1).about["checks"], Traced(1).about["findings"]) == ("nan", [])
    viz.trace("sanitizer")(buggy.accumulate)[(4,)](ones, acc, BLOCK=8, sanitize="nan,init")
    assert (Traced(2).about["checks"], Traced(2).about["findings"]) == ("init,nan", [])
    assert not sanitizer.reports()


def test_a_kernel_that_calls_breakpoint(module, monkeypatch):
    viz.clear()
    stopped = []
    monkeypatch.setattr(sys, "breakpointhook", lambda *args, **kwargs: stopped.append(args))
    kernel = module("""
@triton.jit
def looks(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    breakpoint()
    tl.store(x_ptr + tl.arange(0, 4), x + 1)
""").looks
    x = torch.zeros(4)
    viz.trace(kernel)[(2,)](x)
    assert len(stopped) == 2
    assert Traced().about["interpreted"]
    assert x.tolist() == [2, 2, 2, 2]
    viz.clear()


def test_sharing_says_what_it_does_instead(capfd):
    viz.clear()
    viz.launch(share=True, block=False)
    assert "publishes nothing: save the trace with `triton_viz.save(path)`" in capfd.readouterr().err
    viz.launch(block=False)
    assert "share" not in capfd.readouterr().err


def test_a_launch_keeps_within_its_budget(kernels):
    x = torch.rand(64 * 100)
    viz.config.value_bytes, viz.config.max_bytes = 4096, 1 << 14
    viz.trace(kernels.gather)[(100,)](x, torch.randperm(6400, dtype=torch.int32), torch.zeros(6400), BLOCK=64)
    traced = Traced()
    from tilewright.viz import _session

    # The tables and the elements of the tensors come on top of what is kept of programs.
    text = len(json.dumps(traced.about)) + len(traced.about["files"][0]["text"])
    assert _session.path().stat().st_size < 6 * 4 * 6400 + (1 << 14) + text + 8192
    assert 0 < len(traced.about["programs"]) <= 100
    assert any(flags & 2 for _, flags, _ in traced.about["programs"])


@pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the programs are not beside this checkout")
def test_traced_programs(run):
    done = run("-m", "tilewright", "run", PROGRAMS / "001_dot_traced.py")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "MAX DIFFERENCE:  0.0"
    assert re.search(r"the trace is at http://127\.0\.0\.1:\d+/", done.err)
    done = run("-m", "tilewright", "run", PROGRAMS / "001_add_2d_traced.py")
    assert done.code == 0, done.err
    done = run("-m", "tilewright", "run", PROGRAMS / "001_add_traced.py")
    assert done.code == 0, done.err
    for line in ("PID NUMBER:  [0]", "MASK:  [ True  True  True  True]", "offsets:  [0 1 2 3]"):
        assert line in done.out.splitlines()
    assert "[11., 22., 33., 44., 44., 33., 22., 11.,  0., 11.]" in done.out
    done = run("-m", "tilewright", "run", PROGRAMS / "001_swap_neighbours_traced.py")
    assert done.code == 0, done.err
    assert "Output: tensor([11, 10, 13, 12, 15, 14]" in done.out


@pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the programs are not beside this checkout")
def test_the_program_that_prints_types(run):
    pytest.importorskip("tabulate")
    done = run("-m", "tilewright", "run", PROGRAMS / "001_dtypes_table.py")
    assert done.code == 0, done.err
    for row in (r"x_ptr +\| pointer<fp32>", r"n_elements +\| +int32", r"mask +\| +int1", r"output +\| +fp32"):
        assert re.search(row, done.out), done.out
