"""Modules below ``triton`` that programs and libraries import: caches, knobs, allocators, compiling ahead, tools."""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import ON_GPU

import tilewright as triton
import tilewright.language as tl
from tilewright import errors, knobs
from tilewright.runtime import _allocation, cache


@triton.jit
def fill(o_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr = 16):
    """Documented."""
    tl.store(o_ptr + tl.arange(0, BLOCK), VALUE)


NAMES = {
    "triton": "AsyncCompileMode Config FutureKernel JITFunction KernelInterface MockTensor TensorWrapper autotune "
    "heuristics reinterpret set_allocator",
    "triton.runtime": "Autotuner Heuristics OutOfResources RedisRemoteCacheBackend RemoteCacheBackend driver",
    "triton.runtime.autotuner": "Autotuner AutotunerError Config Heuristics OutOfResources PTXASError autotune",
    "triton.runtime.cache": "CacheManager FileCacheManager RemoteCacheManager RemoteCacheBackend get_cache_manager "
    "get_dump_manager get_override_manager get_cache_key knobs make_so_cache_key triton_key _base32",
    "triton.runtime.errors": "AutotunerError InterpreterError OutOfResources PTXASError",
    "triton.runtime.jit": "JITCallable JitFunctionInfo KernelParam MockTensor TensorWrapper ConstexprFunction "
    "BoundConstexprFunction get_full_name convert_to_tuple_if_list mangle_type constexpr_function",
    "triton.runtime._allocation": "NullAllocator Allocator Buffer set_profile_allocator has_profile_allocator",
    "triton.runtime.build": "compile_module_from_src platform_key",
    "triton.compiler.compiler": "ASTSource CompileTimer CompiledKernel LazyDict convert_type_repr make_backend",
    "triton.knobs": "base_knobs HookChain JITHook NvidiaTool CompileTimes setenv toenv env propagate_env redis",
    "triton.tools.mxfp": "MXFP4Tensor MXScaleTensor fp8e8m0_to_float32",
    "triton.tools.disasm": "extract get_sass",
    "triton.tools.link": "HeaderParser",
    "triton.tools.compile": "compile_kernel",
    "triton.tools.build_extern": "build",
    "triton.tools.gsan": "main",
    "triton.testing": "Benchmark Mark assert_close do_bench do_bench_cudagraph do_bench_proton perf_report nvsmi",
    "triton.language.core": "CONSTEXPR_0",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_can_be_imported(name):
    module = importlib.import_module(name.replace("triton", "tilewright", 1))
    for attribute in NAMES[name].split():
        getattr(module, attribute)


def test_what_is_not_there_says_what_to_do():
    from tilewright.runtime.build import compile_module_from_src
    from tilewright.tools import link

    with pytest.raises(NotImplementedError, match="tilewright compiles no C"):
        compile_module_from_src("", "f")
    with pytest.raises(
        NotImplementedError, match=r"python -m triton\.tools\.link writes the whole source file"
    ):
        link.make_global_decl(None)


def test_kernels_as_callables():
    from tilewright.runtime.jit import JITCallable, convert_to_tuple_if_list, get_full_name

    assert isinstance(fill, JITCallable)
    assert fill.src.startswith("def fill(")
    with open(__file__) as file:
        lines = file.readlines()
    assert (
        lines[fill.def_file_line_number - 1]
        == "def fill(o_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr = 16):\n"
    )
    assert fill.raw_src[fill.def_file_line_number - fill.starting_line_number][
        fill.def_file_col_number - 1 :
    ].startswith("def fill(")
    tree = fill.parse()
    assert isinstance(tree, ast.Module)
    assert tree.body[0].name == "fill"
    assert fill.get_capture_scope()["tl"] is tl
    assert get_full_name(fill.fn) == f"{__name__}.fill"
    assert convert_to_tuple_if_list([1, [2, (3,)]]) == (1, (2, (3,)))


def test_files_of_a_key(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "d"))
    monkeypatch.setenv("TRITON_OVERRIDE_DIR", str(tmp_path / "o"))
    key = "00ff" * 16
    manager = cache.get_cache_manager(key)
    assert isinstance(manager, cache.FileCacheManager)
    assert manager.cache_dir == str(tmp_path / "c" / cache._base32(key))
    assert manager.get_file("a.txt") is None
    path = manager.put("text", "a.txt", binary=False)
    assert path == manager.get_file("a.txt")
    assert open(path).read() == "text"
    assert open(manager.put(b"\x00\x01", "a.txt"), "rb").read() == b"\x00\x01"
    assert os.listdir(manager.cache_dir) == ["a.txt"]
    assert manager.has_file("a.txt")
    gone = os.path.join(manager.cache_dir, "gone")
    manager.put_group("k", {"a.txt": path, "gone": gone})
    assert manager.get_group("k") == {"a.txt": path}
    assert manager.get_group("other") is None
    assert cache.get_dump_manager(key).put("d", "x").startswith(str(tmp_path / "d"))
    # A user's own files are never written to.
    assert not os.path.exists(cache.get_override_manager(key).cache_dir)


def test_many_write_one_file(tmp_path):
    """A concurrent reader finds the old file or the new one."""
    knobs_of = knobs.cache
    with knobs_of.scope():
        knobs_of.dir = str(tmp_path)
        manager = cache.get_cache_manager("ab" * 32)
        texts = [str(number) * 20_000 for number in range(4)]
        manager.put(texts[0], "f")
        found = []

        def write(text):
            for _ in range(20):
                manager.put(text, "f")
                found.append(open(manager.get_file("f")).read())

        threads = [threading.Thread(target=write, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(found) <= set(texts)
    assert len(found) == 80


class Remote(cache.RemoteCacheBackend):
    """Keeps files in memory."""

    files: dict = {}  # noqa: RUF012

    def __init__(self, key):
        self.key = key

    def get(self, filenames):
        return {name: self.files[self.key, name] for name in filenames if (self.key, name) in self.files}

    def put(self, filename, data):
        self.files[self.key, filename] = data


class Own(cache.FileCacheManager):
    """A class of a program."""


def test_other_managers(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_MANAGER", f"{__name__}:Own")
    assert type(cache.get_cache_manager("ab" * 32)) is Own
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "nonsense")
    with pytest.raises(RuntimeError, match="expected module:Class"):
        cache.get_cache_manager("ab" * 32)
    for value, reason in (
        ("missing_module:Own", "No module named 'missing_module'"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (":Own", "Empty module name"),
    ):
        monkeypatch.setenv("TRITON_CACHE_MANAGER", value)
        with pytest.raises(errors.LaunchStateError, match=f"TRITON_CACHE_MANAGER='{value}'.*{reason}"):
            cache.get_cache_manager("ab" * 32)
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "tilewright.runtime.cache:RemoteCacheManager")
    monkeypatch.setenv("TRITON_REMOTE_CACHE_BACKEND", "tilewright.runtime.cache:RedisRemoteCacheBackend")
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(errors.LaunchStateError, match=r"TRITON_REMOTE_CACHE_BACKEND.*the package redis"):
        cache.get_cache_manager("ab" * 32)
    monkeypatch.delenv("TRITON_REMOTE_CACHE_BACKEND")
    with pytest.raises(RuntimeError, match="TRITON_REMOTE_CACHE_BACKEND"):
        cache.get_cache_manager("ab" * 32)
    monkeypatch.setenv("TRITON_REMOTE_CACHE_BACKEND", f"{__name__}:Remote")
    manager = cache.get_cache_manager("ab" * 32)
    assert manager.get_file("a") is None
    manager.put("text", "a")
    group = {"a": manager.put("text", "a")}
    manager.put_group("g", group)
    os.unlink(group["a"])
    assert open(manager.get_group("g")["a"]).read() == "text"
    assert open(manager.get_file("a")).read() == "text"


def test_knobs(monkeypatch, tmp_path):
    assert (knobs.redis.port, knobs.redis.host) == (6379, "localhost")
    monkeypatch.setenv("TRITON_REDIS_PORT", "many")
    with pytest.raises(RuntimeError, match=r"TRITON_REDIS_PORT='many': expected int"):
        knobs.redis.port
    assert knobs.amd.use_async_copy is None
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "0")
    assert knobs.amd.use_async_copy is False
    assert len(knobs.proton.knobs) == 16
    assert "dir" in knobs.cache.knob_descriptors
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert knobs.cache.get_triton_dir("cache") == str(tmp_path / ".triton" / "cache")
    with knobs.autotuning.scope():
        knobs.autotuning.print = True
        assert os.environ["TRITON_PRINT_AUTOTUNING"] == "1"
        knobs.autotuning.print = knobs.env
        assert knobs.autotuning.print is False
    assert "TRITON_PRINT_AUTOTUNING" not in os.environ
    knobs.setenv("TRITON_TEST_OF_SETENV", "x")
    assert os.environ["TRITON_TEST_OF_SETENV"] == "x"
    knobs.setenv("TRITON_TEST_OF_SETENV", None)
    assert "TRITON_TEST_OF_SETENV" not in os.environ
    assert (knobs.toenv(True), knobs.toenv(3), knobs.toenv(None)) == (("1",), ("3",), (None,))
    with knobs.compilation.scope(), pytest.warns(errors.LaunchWarning, match=r"listener is not called"):
        knobs.compilation.listener = print
    with pytest.raises(NotImplementedError, match="kernel_unload_hook is not available"):
        knobs.runtime.kernel_unload_hook.add(print)


def test_hooks_around_the_loading_of_kernels(device):
    """A kernel is loaded at its first launch, or when its handles are first used."""
    memory = torch.zeros(16, dtype=torch.float32, device="cuda" if ON_GPU else "cpu")

    @triton.jit
    def put(o_ptr, VALUE: tl.constexpr):
        tl.store(o_ptr, VALUE)

    put[(1,)](memory, 1)
    seen = []

    def start(module, function, name, metadata_group, hash):
        seen.append(("start", module, function, name, hash))

    def end(module, function, name, metadata_group, hash):
        assert module is not None
        seen.append(("end", name, hash))

    hooks = knobs.runtime.kernel_load_start_hook, knobs.runtime.kernel_load_end_hook
    for hook, function in zip(hooks, (start, end), strict=True):
        hook.add(function)

    def calls(act):
        found = act()
        made, seen[:] = list(seen), []
        return found, made

    try:
        # It was launched before there were hooks.
        assert calls(lambda: put[(1,)](memory, 1))[1] == []
        handle, made = calls(lambda: put[(1,)](memory, 2))
        assert made == [("start", None, None, "put", handle.hash), ("end", "put", handle.hash)]
        assert calls(lambda: put[(1,)](memory, 2))[1] == []
        handle, made = calls(lambda: put.warmup(memory, 3, grid=(1,)))
        assert made == []
        assert [call[0] for call in calls(lambda: handle[(1,)](memory, 3))[1]] == ["start", "end"]
        source = triton.compiler.ASTSource(put, {"o_ptr": "*fp32", "VALUE": "constexpr"}, {"VALUE": 7})
        compiled, made = calls(lambda: triton.compile(source))
        assert made == []
        assert [call[0] for call in calls(lambda: compiled[(1,)](memory))[1]] == ["start", "end"]
        assert memory[0] == 7
        assert calls(lambda: compiled[(1,)](memory))[1] == []
    finally:
        for hook, function in zip(hooks, (start, end), strict=True):
            hook.remove(function)
    assert calls(lambda: put[(1,)](memory, 9))[1] == []


def test_names_of_types():
    """Against the figures of the official tables."""
    from tilewright import _utils

    names = {
        "bool": "u1",
        "i1": "u1",
        "float8_e4m3fn": "fp8e4nv",
        "float8e5": "fp8e5",
        "half": "fp16",
        "double": "fp64",
    }
    names |= {
        "int": "i32",
        "int64": "i64",
        "uint8": "u8",
        "bf16": "bf16",
        "void": "void",
        "float8e5b16": "fp8e5b16",
    }
    for name, short in names.items():
        assert _utils.type_canonicalisation_dict[name] == short
    bits = {
        "fp8e4nv": 8,
        "float8_e5m2fnuz": 8,
        "bfloat16": 16,
        "u1": 1,
        "bool": 1,
        "int": 32,
        "fp64": 64,
        "void": 0,
    }
    for name, count in bits.items():
        assert _utils.get_primitive_bitwidth(name) == count, name
    assert _utils.canonicalize_dtype(torch.float16) == "fp16"
    assert _utils.canonicalize_ptr_dtype(torch.int8, True) == "*ki8"
    assert _utils.validate_block_shape([16, 4]) == 64
    with pytest.raises(ValueError, match="Shape element 1 must be a power of 2"):
        _utils.validate_block_shape([16, 3])


def test_names_of_the_nvidia_back_end(monkeypatch):
    from tilewright.backends.driver import expand_signature
    from tilewright.backends.nvidia import compiler

    assert [compiler.sm_arch_from_capability(number) for number in (80, 90, 100)] == [
        "sm_80",
        "sm_90a",
        "sm_100a",
    ]
    versions = {"10.2": 65, "11.8": 78, "12.5": 85, "12.6": 85, "12.8": 87, "13.0": 90, "13.2": 92}
    assert {version: compiler.ptx_get_version(version) for version in versions} == versions
    smallest = compiler.min_dot_size(compiler.GPUTarget("cuda", 90, 32))
    kinds = {tl.int8: 32, tl.float16: 16, tl.float32: 8, tl.float64: 4}
    for kind, k in kinds.items():
        block = tl.block_type(kind, [16, 16])
        assert smallest(block, block) == (1, 1, k)
    monkeypatch.setenv("TRITON_MOCK_PTX_VERSION", "8.7")
    assert compiler.get_ptxas_version() == "8.7"
    descriptor = "tensordesc<fp16[16, 32]>"
    parts = ["*fp16", *["i64"] * 4, "i1", "i1", "i32", "i32", "i64", "i64"]
    assert expand_signature(("i32", (descriptor,)), None, "nvTmaDesc") == ["i32", tuple(parts)]
    mapped = ["nvTmaDesc", "i32", "i32", "i64", "i64"]
    assert expand_signature([descriptor], [{}], "nvTmaDesc") == mapped


def test_statistics_of_times():
    from tilewright import testing

    times = [4.0, 1.0, 3.0, 2.0]
    for mode, found in {"min": 1.0, "max": 4.0, "mean": 2.5, "median": 2.5, "all": times}.items():
        assert testing._summarize_statistics(times, None, mode) == found
    assert testing._summarize_statistics(times, [0.5], "mean") == 2.5
    assert testing._summarize_statistics(times, [0.0, 1.0], "mean") == [1.0, 4.0]
    assert testing._quantile(times, [0.5]) == [2.5]


def test_arguments_one_by_one_or_as_a_list():
    from tilewright.language.core import _unwrap_iterable

    assert _unwrap_iterable([[1, 2]]) == [1, 2]
    assert _unwrap_iterable((1, 2)) == (1, 2)
    assert _unwrap_iterable([1]) == [1]
    assert _unwrap_iterable(tl.constexpr([3, 4])) == [3, 4]


def test_what_programs_replace_in_the_autotuner(tmp_path, monkeypatch):
    """A tuning asks the module for them, and a ``run`` that a program puts into the class counts for all kernels."""
    from tilewright.runtime import autotuner

    memory = torch.zeros(16, device="cuda" if ON_GPU else "cpu")

    def tuned():
        configs = [triton.Config({"VALUE": value}) for value in (1, 2)]
        return triton.autotune(configs, key=[], cache_results=True)(fill)

    asked = []

    def manager(key):
        asked.append(key)
        return cache.FileCacheManager(key)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = tuned()
    with monkeypatch.context() as replaced:
        replaced.setattr(autotuner, "get_cache_manager", manager)
        kernel[(1,)](memory)
    assert len(asked) == 1
    assert "get_cache_manager" not in vars(autotuner)

    calls = []

    def run(self, *args, **kwargs):
        calls.append(kwargs["grid"])
        return self.fn.run(*args, **kwargs, VALUE=5)

    with monkeypatch.context() as replaced:
        replaced.setattr(autotuner.Autotuner, "run", run)
        kernel[(1,)](memory)
        tuned()[(2,)](memory)
        assert (calls, memory[0]) == ([(1,), (2,)], 5)
    kernel[(1,)](memory)
    assert len(calls) == 2
    assert memory[0] in (1, 2)


def test_tools_of_the_toolkit(monkeypatch, tmp_path):
    program = tmp_path / "ptxas"
    program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.86'\n")
    program.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(program))
    assert (knobs.nvidia.ptxas.path, knobs.nvidia.ptxas.version) == (str(program), "12.9")
    # `lock` reads this knob; the variable, which `explain` reads too, names a file or a folder.
    other = tmp_path / "other" / "ptxas"
    other.parent.mkdir()
    shutil.copy(program, other)
    for named in (other, other.parent):
        monkeypatch.setenv("TILEWRIGHT_PTXAS", str(named))
        assert knobs.nvidia.ptxas.path == str(other)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(
        "os.path.isfile", lambda path: str(path).startswith(str(tmp_path)) and "none" not in str(path)
    )
    with pytest.raises(RuntimeError, match="Cannot find nvdisasm: set TRITON_NVDISASM_PATH"):
        knobs.nvidia.nvdisasm
    assert knobs.nvidia.knobs["nvdisasm"] is None


def test_the_official_triton_has_tools_of_the_toolkit(monkeypatch, tmp_path):
    from importlib.machinery import PathFinder

    folder = tmp_path / "triton" / "backends" / "nvidia" / "bin"
    folder.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").touch()
    program = folder / "nvdisasm"
    program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.88'\n")
    program.chmod(0o755)
    monkeypatch.delenv("TRITON_NVDISASM_PATH", raising=False)
    # A tool on the path comes first, and so does one of the toolkit or of NVIDIA's packages.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr("sys.meta_path", [PathFinder])
    isfile = os.path.isfile
    monkeypatch.setattr("os.path.isfile", lambda path: str(path).startswith(str(tmp_path)) and isfile(path))
    assert knobs.nvidia.nvdisasm.path == str(program)


def test_allocators():
    assert isinstance(_allocation._NULL_ALLOCATOR, _allocation.NullAllocator)
    with pytest.raises(RuntimeError, match=r"no allocator was set. Use triton.set_allocator"):
        _allocation._NULL_ALLOCATOR(1, 1, None)

    def allocate(size, alignment, stream):
        return bytearray(size)

    triton.set_allocator(allocate)
    try:
        assert len(_allocation._allocator(3, 1, None)) == 3
    finally:
        triton.set_allocator(_allocation._NULL_ALLOCATOR)
    assert not _allocation.has_profile_allocator()
    _allocation.set_profile_allocator(allocate)
    assert _allocation.has_profile_allocator()
    _allocation.set_profile_allocator(None)
    assert not _allocation.has_profile_allocator()


@pytest.mark.skipif(ON_GPU, reason="its arrays are the host's")
def test_asynchronous_compilation(device):
    o = np.zeros(16, np.float32)
    with ThreadPoolExecutor(2) as pool:
        with triton.AsyncCompileMode(pool) as mode:
            handles = [fill.warmup(o, VALUE=value, grid=(1,)) for value in (1, 2, 2)]
            assert all(isinstance(handle, triton.FutureKernel) for handle in handles)
            assert handles[1] is handles[2]
            assert len(mode.future_kernels) == 2
            with pytest.raises(RuntimeError, match="already active"):
                triton.AsyncCompileMode(pool).__enter__()
        assert handles[0].result().name == handles[0].name == "fill"
        handles[1][(1,)](o, 2, 16)
        np.testing.assert_array_equal(o, 2)
        with pytest.raises(errors.CompilationError), triton.AsyncCompileMode(pool):
            fill.warmup(o, VALUE=1, BLOCK=-1, grid=(1,))
        with triton.AsyncCompileMode(pool, ignore_errors=True):
            failed = fill.warmup(o, VALUE=1, BLOCK=-1, grid=(1,))
        assert failed.result(ignore_errors=True) is None
    assert not isinstance(fill.warmup(o, VALUE=3, grid=(1,)), triton.FutureKernel)


def test_a_timer_of_stages():
    timer = triton.compiler.compiler.CompileTimer()
    timer.finished_ir_initialization()
    timer.stage_finished("ptx")
    times = timer.end()
    assert [name for name, _ in times.lowering_stages] == ["ptx"]
    assert times.total >= times.total_lowering >= 0
    assert triton.compiler.compiler.convert_type_repr("!tt.ptr<!tt.ptr<f32>, 1>") == "**f32"


def test_4_bit_floats():
    torch = pytest.importorskip("torch")
    from tilewright.tools.mxfp import MXFP4Tensor

    every = MXFP4Tensor(size=(16,))
    every.data = torch.arange(16, dtype=torch.uint8)
    values = every.to(torch.float32)
    # Sign, two bits of exponent with a bias of 1, one of mantissa.
    for code in range(16):
        exponent, mantissa = code >> 1 & 3, code & 1
        size = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
        assert values[code].item() == (-size if code & 8 else size)
    # The nearest; of two as near the one whose last bit is 0.
    for value in (*itertools.chain(np.linspace(-8, 8, 129)), 0.3, -0.1, 100.0):
        code = MXFP4Tensor(data=torch.tensor([value])).data.item()
        distances = [
            (abs(values[c].item() - value), c & 1, c)
            for c in range(16)
            if (c >= 8) == bool(np.signbit(value))
        ]
        assert code == min(distances)[2], value
    assert MXFP4Tensor(data=torch.tensor([-0.0])).data.item() == 8
    for shape, axis in (((4, 6), 0), ((4, 6), 1), ((3, 5), 1)):
        some = MXFP4Tensor(size=shape).random()
        packed = some.to_packed_tensor(axis)
        assert packed.shape[axis] == (shape[axis] + 1) // 2
        assert torch.equal(some.unpack_packed_tensor(packed, axis, shape), some.data)
    assert packed[0, 0].item() == some.data[0, 0].item() + 16 * some.data[0, 1].item()
    with pytest.raises(ValueError, match="either data or size"):
        MXFP4Tensor()


def test_scales():
    torch = pytest.importorskip("torch")
    from tilewright.tools.mxfp import MXScaleTensor, fp8e8m0_to_float32

    given = torch.tensor([1.0, 1.5, 2.0, 0.25, 1e-40, 3e38, float("inf"), float("nan"), 0.0, -1.0])
    scales = MXScaleTensor(data=given)
    assert scales.data.tolist() == [127, 127, 128, 125, 0, 254, 255, 255, 255, 255]
    values = scales.to(torch.float64)
    assert values[:4].tolist() == [1.0, 1.0, 2.0, 0.25]
    assert values[5].item() == 2.0**127
    assert torch.isnan(values[6:]).all()
    some = MXScaleTensor(size=(100,)).random(low=0.5, high=4.0).to(torch.float32)
    assert set(some.tolist()) <= {0.5, 1.0, 2.0, 4.0}
    bytes_ = torch.arange(1, 255, dtype=torch.uint8)
    every = MXScaleTensor(size=(254,))
    every.data = bytes_
    assert torch.equal(fp8e8m0_to_float32(bytes_), every.to(torch.float32))
