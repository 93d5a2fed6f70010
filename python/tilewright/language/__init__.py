"""The language of kernels: ``import triton.language as tl``.

What is here are names. Inside a kernel the compiler knows them; the functions come from its own table (see
``_builtin.py``), the types and classes from ``core.py``. ``__init__.pyi`` is generated from the same table.
"""

from tilewright._missing import missing_names
from tilewright.language import core, extra, math, semantic, standard
from tilewright.language import random as random
from tilewright.language.core import *  # noqa: F403
from tilewright.language.core import __all__ as _core_names

# Kernels of other years say tl.libdevice.
libdevice = extra.libdevice

__all__ = [*_core_names, "core", "extra", "libdevice", "math", "random", "semantic", "standard"]

_lacking = missing_names(
    "triton.language",
    "abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas "
    "atomic_load atomic_max atomic_min atomic_or atomic_poll atomic_store atomic_xchg atomic_xor bitonic_merge "
    "broadcast broadcast_to cast cat cdiv ceil clamp cos cumprod cumsum debug_barrier device_assert "
    "div_rn dot dot_scaled erf exp exp2 expand_dims expect_zero fdiv flip floor fma full gather histogram "
    "inline_asm_elementwise interleave join load load_tensor_descriptor log log2 make_block_ptr "
    "make_tensor_descriptor map_elementwise max max_constancy max_contiguous maximum min minimum mul multiple_of "
    "num_programs pair_uniform_to_normal permute philox philox_impl program_id rand rand4x randint randint4x randn "
    "randn4x ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze static_assert "
    "static_print store store_tensor_descriptor sub sum swizzle2d to_tensor topk trans umulhi uint_to_uniform_float "
    "unsqueeze view where xor_sum zeros zeros_like tensor_descriptor_type tuple_type",
)


def __getattr__(name: str) -> object:
    # Loaded when it is asked for: it needs the runtime, which needs the language.
    if name == "target_info":
        import importlib

        return importlib.import_module("tilewright.language.target_info")
    return _lacking(name)
