"""The functions of `triton.language.extra.cuda` that are written in the kernel language: the named
conversions of float8e4b15. `cast` supports the type as well."""

import triton
import triton.language as tl


@triton.jit
def convert_custom_float8_sm70(arg, dst_ty: tl.constexpr, fp_downcast_rounding: tl.constexpr = None):
    """Conversion from or to float8e4b15; the same as `cast`."""
    return tl.cast(arg, dst_ty, fp_downcast_rounding)


@triton.jit
def convert_custom_float8_sm80(arg, dst_ty: tl.constexpr, fp_downcast_rounding: tl.constexpr = None):
    """Conversion from or to float8e4b15; the same as `cast`."""
    return tl.cast(arg, dst_ty, fp_downcast_rounding)
