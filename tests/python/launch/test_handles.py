"""Results of launches and warm-ups have all that ``triton.compile`` returns: sources, launches by handle, hooks."""

from __future__ import annotations

import gc
import weakref
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import to_host

import tilewright as triton
import tilewright.language as tl
from tilewright import _native
from tilewright.compiler import ASTSource
from tilewright.errors import LaunchKeyError


@triton.jit
def _square(x):
    return x * x


@triton.jit
def _add(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


class Pair(NamedTuple):
    x: object
    n: object


@triton.jit
def _mixed(
    pair, more, out_ptr, n, F: tl.constexpr, T: tl.constexpr, S: tl.constexpr, N: tl.constexpr, start=0
):
    offsets = start + tl.arange(0, 32)
    x = F(tl.load(pair.x + offsets, mask=offsets < pair.n, other=0)).to(T)
    if S == "twice" and N is None:
        x = x * more[1][0] + n
    tl.store(out_ptr + offsets, x, mask=offsets < more[0])


SURFACE = (
    "asm cluster_dims function hash kernel launch_metadata metadata metadata_group module n_max_threads n_regs "
    "n_spills name num_ctas num_stages num_warps packed_metadata run shared src"
).split()


def to_device(values, device):
    return torch.from_numpy(values).to(device)


def launched(device, **options):
    x, out = to_device(np.arange(100, dtype=np.float32), device), to_device(np.zeros(100, np.float32), device)
    return x, out, _add[(2,)](x, out, 100, 2.5, BLOCK=64, **options)


def test_attributes_are_made_once(device):
    """Programs read them before each launch: the fused-softmax tutorial asks for ``metadata.shared``."""
    _, _, handle = launched(device)
    driver = triton.runtime.driver.active
    for read in (
        lambda: handle.metadata,
        lambda: handle.asm,
        lambda: handle.hash,
        lambda: handle.src,
        lambda: handle.asm["source"],
        lambda: handle.asm["ttir"],
        lambda: handle.asm.get("ttgir"),
        lambda: handle.run,
        lambda: handle.packed_metadata,
        lambda: _add.cache_key,
        lambda: _add.signature,
        lambda: _add.params,
        lambda: _add.src,
        lambda: _add.type,
        lambda: _add.device_caches,
        driver.get_current_target,
        driver.get_active_torch_device,
        driver.get_device_interface,
        driver.get_benchmarker,
        lambda: driver.launcher_cls,
    ):
        assert read() is read()


def test_a_warm_up_finds_the_kernel_of_a_launch(device):
    x, out, handle = launched(device)
    for grid in ({}, {"grid": (1,)}, {"grid": lambda meta: (meta["BLOCK"],)}):
        assert _add.warmup(x, out, 100, 2.5, BLOCK=64, **grid) is handle
        assert _add.warmup(x, out, n=100, factor=2.5, **grid, BLOCK=64) is handle
    warmup = _add.warmup
    assert warmup(x, out, 100, 2.5, 64, grid=(1,)) is handle
    with pytest.raises(LaunchKeyError, match="blocks"):
        _add.warmup(x, out, 100, 2.5, BLOCK=64, blocks=1)


def test_the_stages_of_a_handle_are_those_of_its_device(device):
    handle = launched(device)[2]
    stages = tuple(handle.asm)
    assert len(handle.asm) == len(stages)
    assert [stage for stage in stages if stage not in handle.asm] == []
    for _ in range(2):
        assert handle.asm.get("hsaco", "none") == "none"
        assert ("cpu" in handle.asm) == (handle.metadata.target.backend == "cpu")
        assert handle.asm["ttgir"] == handle.asm["gpu" if "gpu" in stages else "opt"]
        with pytest.raises(KeyError, match="hsaco"):
            handle.asm["hsaco"]


def test_the_properties_of_a_device_are_a_dict_of_the_caller():
    utils = triton.runtime.driver.active.utils
    found = utils.get_device_properties(0)
    expected = dict(found)
    found.clear()
    assert utils.get_device_properties(0) == expected == _native.device_properties(0)


def test_names_of_modules_are_found_once():
    for module, name in (
        (triton, "compile"),
        (triton, "use_cpu_as_cuda"),
        (triton.backends, "backends"),
        (triton.compiler.compiler, "driver"),
        (triton.runtime.jit, "get_current_device"),
        (triton.runtime.cache, "default_cache_dir"),
    ):
        found = getattr(module, name)
        assert vars(module)[name] is found
    with pytest.raises(AttributeError, match="compil"):
        triton.compil


def test_all_handles_have_the_same_attributes(device):
    x, out, handle = launched(device, num_warps=8)
    warm = _add.warmup(x, out, 100, 2.5, BLOCK=64, num_warps=8, grid=(1,))
    compiled = triton.compile(handle.src, options={"num_warps": 8})
    stages = set(handle.asm)
    for made in (handle, warm, compiled):
        # To assemble what is compiled for a GPU takes one.
        names = SURFACE if made is not compiled else sorted({*SURFACE} - {"kernel"})
        assert [name for name in names if not hasattr(made, name)] == []
        assert made.packed_metadata == (8, 1, made.metadata.shared)
        assert (made.num_warps, made.num_stages, made.num_ctas, made.cluster_dims) == (8, 3, 1, (1, 1, 1))
        assert made.src.fn is _add
        assert isinstance(made, triton.compiler.CompiledKernel)
        assert stages <= set(made.asm)
    assert handle.kernel in (handle.asm[stage] for stage in ("cpu", "ptx", "cubin") if stage in handle.asm)
    assert handle.module is not None
    assert handle.function is not None
    with pytest.raises(AttributeError, match="no attribute 'n_registers'"):
        handle.n_registers
    with pytest.raises(AttributeError, match="no attribute '_repr_html_'"):
        handle._repr_html_


@pytest.mark.parametrize("by", ["run", "grid"])
def test_a_handle_is_launched_by_the_protocol_of_torch(device, by):
    x, out, handle = launched(device)
    warm = _add.warmup(x, out, 100, 2.5, BLOCK=64, grid=(1,))
    for made in (handle, warm):
        for rest in ((), (64,)):
            out[:] = 0
            if by == "run":
                arguments = (made.function, made.packed_metadata, None, None, None, x, out, 100, 2.5, *rest)
                made.run(2, 1, 1, 0, *arguments)
            else:
                made[(2,)](x, out, 100, 2.5, *rest)
            np.testing.assert_array_equal(to_host(out), np.arange(100) * np.float32(2.5))


def test_the_source_of_a_launch_compiles_to_the_same_code(device):
    """Tuples, fields, functions, types, strings, ``None``, multiples of 16, and what is 1."""
    x, out = to_device(np.arange(20, dtype=np.int32), device), to_device(np.zeros(32, np.float32), device)
    forms = [
        (Pair(x, 16), (20, (3, None)), out, 7, _square, tl.float32, "twice", None),
        (Pair(x, 1), (16, (1.5, None)), out, 1, tl.abs, tl.float16, "once", (1, "a")),
        (Pair(x[1:], 19), (1, (True, None)), out, 1 << 40, _square, tl.int32, "twice", None, 3),
    ]
    for form in forms:
        handle = _mixed[(1,)](*form)
        source = handle.src
        again = triton.compile(source, target=handle.metadata.target)
        assert again.asm["ir"] == handle.asm["ir"]
        assert again.hash
        copied = ASTSource(_mixed, source.signature, source.constants, source.attrs)
        assert copied.hash() == source.hash()
    assert handle.src.signature["pair"] == ("*i32", "i32")
    assert handle.src.signature["pair"]._fields == ("x", "n")
    assert handle.src.signature["n"] == "i64"
    # Multiples of 16 are marked, within tuples too; the number 1 is part of the code.
    first, second = (_mixed.warmup(*form, grid=(1,)).src for form in forms[:2])
    assert first.attrs[(0, 1)] == [["tt.divisibility", 16]]
    assert (second.constants[(0, 1)], second.constants[(3,)]) == (1, 1)


@pytest.fixture
def hooks():
    runtime = triton.knobs.runtime
    with runtime.scope():
        yield runtime


def test_hooks_get_what_the_kernel_says_of_its_launch(hooks, device):
    def describe(grid, metadata, arguments):
        return {"flops": grid[0] * arguments["BLOCK"], "warps": metadata.num_warps, "n": arguments["n"]}

    kernel = triton.jit(_add.fn, launch_metadata=describe)
    x, out = to_device(np.ones(100, np.float32), device), to_device(np.zeros(100, np.float32), device)
    seen = []
    hooks.launch_enter_hook = lambda data: seen.append(("enter", data, to_host(out).sum()))
    hooks.launch_exit_hook = lambda data: seen.append(("exit", data))
    handle = kernel[lambda meta: (2,)](x, out, 100, 2.5, BLOCK=64, num_warps=2)
    handle[(3,)](x, out, n=100, factor=2.5)
    (_, first, before), (_, same), (_, second, _), (_, last) = seen
    assert (before, first is same, second is last) == (0, True, True)
    found, again = first.get(), second.get()
    assert (found["name"], found["function"] is not None, found["stream"]) == ("_add", True, 0)
    assert (found["flops"], found["warps"], found["n"]) == (128, 2, 100)
    assert (again["flops"], again["warps"], again["n"]) == (192, 2, 100)


def test_a_hook_that_raises_stops_the_launch(hooks, device):
    x, out = to_device(np.ones(100, np.float32), device), to_device(np.zeros(100, np.float32), device)

    def stop(data):
        raise RuntimeError("not now")

    hooks.launch_enter_hook = stop
    with pytest.raises(RuntimeError, match="not now"):
        _add[(2,)](x, out, 100, 2.5, BLOCK=64)
    assert to_host(out).sum() == 0


def test_a_handle_and_what_was_asked_of_it_are_garbage_together():
    kernel = triton.jit(_add.fn)
    x, out = np.ones(100, np.float32), np.zeros(100, np.float32)
    handle = kernel[(2,)](x, out, 100, 2.5, BLOCK=64)
    handle.run(2, 1, 1, 0, handle.function, handle.packed_metadata, None, None, None, x, out, 100, 2.5)
    source = weakref.ref(handle.src)
    assert source() is not None
    kernel.clear_cache()
    del handle, kernel
    gc.collect()
    assert source() is None
