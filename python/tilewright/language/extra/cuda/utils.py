"""``triton.language.extra.cuda.utils``: queries of the multiprocessor, and conversions of 8-bit floats."""

from tilewright._replaced_names import replaced_names
from tilewright.language.extra import cuda

_FUNCTIONS = {
    name: getattr(cuda, name)
    for name in (
        "convert_custom_float8_sm70",
        "convert_custom_float8_sm80",
        "globaltimer",
        "num_threads",
        "num_warps",
        "smid",
    )
}
globals().update(_FUNCTIONS)

__all__ = list(_FUNCTIONS)

__getattr__ = replaced_names(
    "tilewright.language.extra.cuda.utils",
    "convert_custom_float8 convert_float16_to_fp8e4b15 convert_fp8e4b15_to_float16",
    instead="`x.to(dtype)` converts to and from 8-bit floats",
)
