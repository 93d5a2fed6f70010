"""`tl.core.extern_elementwise`: functions of libdevice by their symbols, in functions that say `@tl.core.extern`."""

from __future__ import annotations

import pytest

import tilewright

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

FUNCTIONS = """
core = tl.core

TABLE = tl.constexpr({
    (core.dtype("fp32"),): ("__nv_sqrtf", core.dtype("fp32")),
    (core.dtype("fp64"),): ("__nv_sqrt", core.dtype("fp64")),
})

@core.extern
def root(arg0, _semantic=None):
    return core.extern_elementwise("libdevice", "", [arg0], TABLE, is_pure=True, _semantic=_semantic)

@core.extern
def power(arg0, arg1, _builder=None):
    return core.extern_elementwise("", "", [arg0, arg1], {
        (core.dtype("fp32"), core.dtype("int32")): ("__nv_powif", core.dtype("fp32")),
        (core.dtype("fp32"), core.dtype("fp32")): ("__nv_powf", core.dtype("fp32")),
        (core.dtype("fp64"), core.dtype("fp64")): ("__nv_pow", core.dtype("fp64")),
    }, is_pure=True, _builder=_builder)

@core.builtin
def infinite(arg0, _semantic=None):
    return core.extern_elementwise("", "", [arg0], {
        (core.dtype("fp32"),): ("__nv_isinff", core.dtype("int32")),
    }, is_pure=True, _semantic=_semantic).to(core.int1, _semantic=_semantic)

@core.extern
def high(arg0, arg1, signed: core.constexpr, _semantic=None):
    symbol = "__nv_mulhi" if signed else "__nv_umulhi"
    return core.extern_elementwise("", "", [arg0, arg1], {
        (core.dtype("int32"), core.dtype("int32")): (symbol, core.dtype("int32")),
    }, is_pure=True, _semantic=_semantic)

@core.extern
def largest(arg0, arg1, _semantic=None):
    return core.extern_elementwise("", "", [arg0, arg1], {
        (core.dtype("uint32"), core.dtype("uint32")): ("__nv_umax", core.dtype("uint32")),
        (core.dtype("fp64"), core.dtype("fp64")): ("__nv_fmax", core.dtype("fp64")),
    }, is_pure=True, _semantic=_semantic)

@triton.jit
def kernel(x_ptr, k_ptr, o_ptr, w_ptr, i_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, k = tl.load(x_ptr + at), tl.load(k_ptr + at)
    tl.store(o_ptr + at, root(x))
    tl.store(o_ptr + N + at, power(x, k))
    tl.store(o_ptr + 2 * N + at, power(x, 1.5))
    tl.store(o_ptr + 3 * N + at, infinite(x / 0.0).to(tl.float32))
    tl.store(w_ptr + at, power(x.to(tl.float64), x))
    tl.store(w_ptr + N + at, root(x.to(tl.float64)))
    tl.store(w_ptr + 2 * N + at, largest(x.to(tl.float64), 1.25))
    tl.store(i_ptr + at, high(k * 1000000007, k * 998244353, True))
    tl.store(i_ptr + N + at, high(k * 1000000007, k * 998244353, False))
    tl.store(i_ptr + 2 * N + at, largest(k.to(tl.uint32, bitcast=True), tl.full([], 7, tl.uint32)))

@triton.jit
def direct(x_ptr, o_ptr):
    x = tl.load(x_ptr)
    double = tl.core.dtype("fp64")
    y = core.extern_elementwise("", "", [x, x], {(double, double): ("__nv_hypot", double)}, False)
    tl.store(o_ptr, y)
"""


def check(names, device):
    kernel, direct = names["kernel"], names["direct"]
    n = 64
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2.0, n).astype(np.float32)
    k = rng.integers(-9, 9, n).astype(np.int32)
    made = [np.zeros(4 * n, np.float32), np.zeros(3 * n, np.float64), np.zeros(3 * n, np.int32)]
    arrays = [torch.from_numpy(a).to(device) for a in (x, k, *made)]
    kernel[(1,)](*arrays, n)
    single, double, whole = (a.cpu().numpy() for a in arrays[2:])
    x64, k64 = x.astype(np.float64), k.astype(np.int64)
    np.testing.assert_array_equal(single[:n], np.sqrt(x))
    np.testing.assert_allclose(single[n : 2 * n], x64**k64, rtol=1e-6)
    np.testing.assert_allclose(single[2 * n : 3 * n], x64**1.5, rtol=1e-6)
    assert (single[3 * n :] == 1.0).all()
    np.testing.assert_allclose(double[:n], x64**x64, rtol=1e-14)
    np.testing.assert_array_equal(double[n : 2 * n], np.sqrt(x64))
    np.testing.assert_array_equal(double[2 * n :], np.maximum(x64, 1.25))
    a, b = (k * np.int32(1000000007)).astype(np.int64), (k * np.int32(998244353)).astype(np.int64)
    np.testing.assert_array_equal(whole[:n], (a * b) >> 32)
    unsigned = (a.astype(np.uint32).astype(np.uint64) * b.astype(np.uint32).astype(np.uint64)) >> np.uint64(
        32
    )
    np.testing.assert_array_equal(whole[n : 2 * n].view(np.uint32), unsigned)
    np.testing.assert_array_equal(whole[2 * n :].view(np.uint32), np.maximum(k.view(np.uint32), 7))
    x = torch.tensor([3.0], dtype=torch.float64, device=device)
    o = torch.zeros_like(x)
    direct[(1,)](x, o)
    assert abs(o.item() - 3.0 * 2.0**0.5) < 1e-14


def test_functions_of_libdevice_by_symbol(module, device):
    check(vars(module(FUNCTIONS)), device)


def test_the_same_interpreted(module, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    names = vars(
        module(FUNCTIONS.replace("@triton.jit\ndef direct", "@triton.jit(interpret=False)\ndef direct"))
    )
    check(names, "cpu")


BAD = """
@triton.jit
def kernel(x_ptr, K: tl.constexpr):
    x = tl.load(x_ptr)
    f32 = tl.core.dtype("fp32")
    f64 = tl.core.dtype("fp64")
    {line}
    tl.store(x_ptr, x)
"""


@pytest.mark.parametrize(
    ("call", "code", "phrase"),
    [
        ('"", "", [x], {(f32,): ("__nv_sqrtt", f32)}, True', "TW0026", "did you mean `__nv_sqrt`?"),
        ('"nvshmem", "", [x], {(f32,): ("nvshmem_p", f32)}, True', "TW0026", 'of library "nvshmem"'),
        ('"", "", [x], {(f32,): ("__nv_sincosf", f32)}, True', "TW0026", "inline_asm_elementwise"),
        ('"", "", [x], {(f64,): ("__nv_sqrt", f64)}, True', "TW0005", "Expect one of (fp64), got (fp32)"),
        ('"", "", [x, x], {(f32,): ("__nv_sqrtf", f32)}, True', "TW0009", "2 arguments"),
        ('"", "", [x], {}, True', "TW0016", "is empty"),
        ('"", "", [x], {(f32,): ("__nv_sqrt", f32)}, True', "TW0005", "is fp64, and declared as fp32"),
        (
            '"", "", [x], {(f32,): ("__nv_sqrtf", f64)}, True',
            "TW0005",
            "gives fp32, and is declared to give fp64",
        ),
        ('"", "", [x], {(f32,): ("__nv_fmodf", f32)}, True', "TW0005", "takes 2 arguments"),
        ('"", "", [x], {f32: "__nv_sqrtf"}, True', "TW0016", "must be a dict of types and symbols"),
        ('"", "", [x], K, True', "TW0016", "must be a dict of types and symbols"),
        ('"", "", [x], {**K}, True', "TW0003", "'**' in a dict"),
        ('"", "", [x_ptr], {(f32,): ("__nv_sqrtf", f32)}, True', "TW0005", "got (*fp32)"),
    ],
)
def test_what_is_wrong_is_said(module, call, code, phrase):
    kernel = module(BAD.format(line=f"x = tl.core.extern_elementwise({call})")).kernel
    with pytest.raises(tilewright.TritonError) as caught:
        kernel[(1,)](torch.ones(1), 3)
    assert caught.value.code == code, str(caught.value)
    assert phrase in str(caught.value)


def test_outside_of_a_kernel(module):
    names = vars(module(FUNCTIONS))
    with pytest.raises(tilewright.TritonError, match="extern_elementwise"):
        names["core"].extern_elementwise("", "", [], {}, True)
    with pytest.raises(RuntimeError):
        names["root"](1.0)
