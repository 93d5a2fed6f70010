"""The names of ``tl`` as Python objects, outside of kernels."""

from __future__ import annotations

import copy
import inspect
import pickle
import types

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import _generate_stubs, _native

FLOATS = ["bf16", "fp16", "fp32", "fp64", "fp8e4b15", "fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16"]


@pytest.mark.parametrize(
    ("dtype", "name", "bits", "mantissa", "bias"),
    [
        (tl.bfloat16, "bf16", 16, 7, 127),
        (tl.float16, "fp16", 16, 10, 15),
        (tl.float32, "fp32", 32, 23, 127),
        (tl.float64, "fp64", 64, 52, 1023),
        (tl.float8e4b15, "fp8e4b15", 8, 3, 15),
        (tl.float8e4b8, "fp8e4b8", 8, 3, 8),
        (tl.float8e4nv, "fp8e4nv", 8, 3, 7),
        (tl.float8e5, "fp8e5", 8, 2, 15),
        (tl.float8e5b16, "fp8e5b16", 8, 2, 16),
    ],
)
def test_floats(dtype, name, bits, mantissa, bias):
    assert (str(dtype), dtype.name, dtype.primitive_bitwidth) == (name, name, bits)
    assert (dtype.fp_mantissa_width, dtype.exponent_bias, dtype.itemsize) == (mantissa, bias, bits // 8)
    assert dtype.is_floating()
    assert not dtype.is_int()
    assert dtype.is_fp8() == name.startswith("fp8")
    assert dtype.is_standard_floating() == (bits > 8)
    assert dtype.kind() is tl.dtype.KIND.FLOATING


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_ints(bits):
    signed, unsigned = getattr(tl, f"int{bits}"), getattr(tl, f"uint{bits}")
    assert (signed.get_int_min_value(), signed.get_int_max_value()) == (
        -(2 ** (bits - 1)),
        2 ** (bits - 1) - 1,
    )
    assert (unsigned.get_int_min_value(), unsigned.get_int_max_value()) == (0, 2**bits - 1)
    assert signed.int_signedness is tl.dtype.SIGNEDNESS.SIGNED
    assert unsigned.int_signedness is tl.dtype.SIGNEDNESS.UNSIGNED
    assert (signed.mangle(), unsigned.mangle()) == (f"i{bits}", f"u{bits}")
    assert signed.kind() is tl.dtype.KIND.INTEGRAL


def test_every_dtype_is_its_repr():
    dtypes = [value for value in vars(tl).values() if type(value) is tl.dtype]
    assert len(dtypes) == 19
    for dtype in dtypes:
        assert eval(repr(dtype), {"triton": types.SimpleNamespace(language=tl)}) is dtype
        assert tl.dtype(dtype.name) == dtype
        assert hash(tl.dtype(dtype.name)) == hash(dtype)
        assert pickle.loads(pickle.dumps(dtype)) == dtype == copy.deepcopy(dtype)
        assert dtype.scalar is dtype
        assert tl.dtype.is_dtype(dtype.name)
    assert repr(tl.float32) == "triton.language.float32"
    assert tl.int1.is_bool()
    assert tl.int1.get_int_max_value() == 1
    assert tl.void.is_void()
    with pytest.raises(ValueError, match="unknown dtype 'fp31'"):
        tl.dtype("fp31")


def test_pointers_and_blocks():
    pointer = tl.pointer_type(tl.float32)
    assert (str(pointer), pointer.is_ptr(), pointer.element_ty) == ("pointer<fp32>", True, tl.float32)
    assert pointer == tl.pointer_type(tl.float32) != tl.pointer_type(tl.float32, const=True)
    assert tl.pi32_t == tl.pointer_type(tl.int32)
    block = tl.block_type(tl.float16, [4, tl.constexpr(8)])
    assert (str(block), block.shape, block.numel, block.nbytes) == ("<[4, 8], fp16>", (4, 8), 32, 64)
    assert block.is_block()
    assert block.scalar is tl.float16
    assert block.with_element_ty(tl.int8) == tl.block_type(tl.int8, (4, 8))
    assert tl.str_to_ty("*fp32") == pointer
    assert tl.str_to_ty("i64") is tl.int64
    with pytest.raises(ValueError, match="unknown type 'x32'"):
        tl.str_to_ty("x32")


def test_constexpr():
    two, three = tl.constexpr(2), tl.constexpr(tl.constexpr(3))
    assert three.value == 3
    assert repr(three) == "constexpr[3]"
    results = [
        two + three,
        5 - two,
        two * 3,
        two**three,
        7 // two,
        three % 2,
        -two,
        ~two,
        two << 3,
        two | 4,
        1 + two,
    ]
    assert all(isinstance(result, tl.constexpr) for result in results)
    assert [result.value for result in results] == [5, 3, 6, 8, 3, 1, -2, -3, 16, 6, 3]
    assert isinstance(two < three, tl.constexpr)
    assert two < three
    assert two == tl.constexpr(2)
    assert two != three
    assert not tl.constexpr(0)
    assert [*range(two)] == [0, 1]
    assert (int(two), float(two)) == (2, 2.0)
    assert tl.constexpr((1, 2, 3))[two] == 3
    assert list(tl.constexpr([4, 5])) == [4, 5]
    assert tl.constexpr(len)("abc") == 3
    assert len({two, tl.constexpr(2), three}) == 2
    assert two.logical_and(three).value == 3


def test_functions_have_signatures_and_docs():
    assert repr(tl.load) == "<function triton.language.load>"
    parameters = inspect.signature(tl.load).parameters
    assert list(parameters)[:3] == ["pointer", "mask", "other"]
    assert parameters["mask"].default is None
    assert tl.load.__name__ == "load"
    assert tl.load.__doc__.startswith("load(pointer, mask=None")
    assert pickle.loads(pickle.dumps(tl.load)) is tl.load
    for value in vars(tl).values():
        if callable(value) and getattr(value, "__module__", "").startswith("triton.language"):
            inspect.signature(value)


@pytest.mark.parametrize(
    "call",
    [lambda: tl.load(None), lambda: tl.sum(None), lambda: tl.tensor(None, None), lambda: [*tl.range(3)]],
)
def test_calls_outside_of_a_kernel(call):
    with pytest.raises(RuntimeError, match="TW0111"):
        call()


def test_modules():
    from tilewright.language.extra.cuda import libdevice
    from tilewright.language.semantic import num_programs

    assert num_programs is tl.num_programs
    assert libdevice.tanh is tl.extra.libdevice.tanh
    assert tl.math.exp.__module__ == "triton.language.math"
    assert tl.core.load is tl.standard.load is tl.load
    assert tl.random.rand is tl.rand
    assert not tl.target_info.is_cuda()
    for path, *_ in _native.language_names():
        first, _, rest = path.partition(".")
        if not rest:
            assert hasattr(tl, path)
        elif first == "math":
            assert hasattr(tl.math, rest)


def test_every_name_of_triton_is_there():
    # The functions of triton.language 3.9, and those that it dropped.
    for name in (
        "abs add arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_load "
        "atomic_max atomic_min atomic_or atomic_poll atomic_store atomic_xchg atomic_xor broadcast "
        "broadcast_to cast cat cdiv ceil clamp cos cumprod cumsum debug_barrier device_assert device_print "
        "div_rn dot dot_scaled erf exp exp2 expand_dims fdiv flip floor fma full gather histogram "
        "inline_asm_elementwise interleave join load load_tensor_descriptor log log2 make_block_ptr "
        "make_tensor_descriptor map_elementwise max max_constancy max_contiguous maximum min minimum mul "
        "multiple_of num_programs permute philox program_id rand rand4x randint randint4x randn randn4x range "
        "ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze "
        "static_assert static_print static_range store store_tensor_descriptor sub sum swizzle2d tensor "
        "tensor_descriptor to_tensor topk trans tuple umulhi unsqueeze view where xor_sum zeros zeros_like "
        "advance "
    ).split():
        assert hasattr(tl, name), name


def test_stubs_are_those_of_the_table(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["_generate_stubs", "--check"])
    assert _generate_stubs.main() == 0, capsys.readouterr().err


def test_knobs(monkeypatch):
    monkeypatch.delenv("TRITON_DEBUG", raising=False)
    assert triton.knobs.runtime.debug is False
    monkeypatch.setenv("TRITON_DEBUG", "1")
    assert triton.knobs.runtime.debug is True
    import os

    with triton.knobs.runtime.scope():
        triton.knobs.runtime.debug = False
        assert os.environ["TRITON_DEBUG"] == "0"
    assert os.environ["TRITON_DEBUG"] == "1"
    # The values that the scope's end has read are not those of the environment when the test is over.
    monkeypatch.delenv("TRITON_DEBUG")
    triton.knobs.refresh_knobs()
    assert triton.knobs.language.fp_fusion_enabled() is True
    assert triton.knobs.cache.dir.endswith("cache") or "TRITON_CACHE_DIR" in os.environ
    with pytest.raises(AttributeError, match="there is no knob 'nonsense'"):
        triton.knobs.runtime.nonsense


def test_configs():
    config = triton.Config({"BLOCK": 64}, num_warps=8)
    assert config.all_kwargs() == {"BLOCK": 64, "num_warps": 8, "num_ctas": 1, "num_stages": 3}
    assert config == pickle.loads(pickle.dumps(config)) == triton.Config({"BLOCK": 64}, num_warps=8)
    assert hash(config) == hash(triton.Config({"BLOCK": 64}, num_warps=8))
    assert str(config) == (
        "BLOCK: 64, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None, ir_override: None"
    )
    parameters = inspect.signature(triton.Config).parameters
    options = {name: value for name, value in _native.compile_options() if name in parameters}
    assert {name: parameters[name].default for name in options} == options
    names = ["ir_override", "maxnreg", "num_cpu_threads", "num_ctas", "num_stages", "num_warps"]
    assert sorted(options) == names
    assert list(parameters)[:4] == ["kwargs", "num_warps", "num_stages", "num_ctas"]
