"""`dot_scaled`: dots of microscaled matrices (OCP MX), written in the kernel language.

Elements times their scale are exact in bf16, or in tf32 if a matrix holds fp16: every target has dots of these types.
The compiler may replace a call of `_scaled_dot` by an instruction that applies the scales.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def _element_type(format):
    if format == "e4m3":
        return tl.float8e4nv
    if format == "e5m2":
        return tl.float8e5
    if format == "bf16":
        return tl.bfloat16
    return tl.float16


@triton.jit
def _nibbles(x, axis: tl.constexpr):
    """Unpacks the two 4-bit numbers of each byte, the low one first, along an axis, whose extent doubles."""
    rank: tl.constexpr = len(x.shape)
    shifts = tl.reshape(4 * tl.arange(0, 2), (1,) * (axis + 1) + (2,) + (1,) * (rank - axis - 1))
    pairs = (tl.expand_dims(x, axis + 1) >> shifts.to(tl.uint8)) & 15
    before: tl.constexpr = x.shape[:axis]
    after: tl.constexpr = x.shape[axis + 1:]
    return tl.reshape(pairs, (*before, 2 * x.shape[axis], *after))


@triton.jit
def _from_e2m1(x):
    """Converts e2m1 numbers (a sign, two bits of exponent, one bit of mantissa) to fp32."""
    # One multiplication copies the bits to two positions: the sign is bit 31 of fp32, and the magnitude is at bit 22.
    bits = x.to(tl.uint32) * (1 << 28 | 1 << 22) & (1 << 31 | 7 << 22)
    # The factor corrects the bias of the exponent.
    return bits.to(tl.float32, bitcast=True) * 2.0**126


@triton.jit
def _elements(x, format: tl.constexpr, packed_axis: tl.constexpr):
    """Converts the elements of a matrix to fp32."""
    tl.static_assert(
        format == "e2m1" or format == "e4m3" or format == "e5m2" or format == "bf16" or format == "fp16",
        "dot_scaled takes the formats e2m1, e4m3, e5m2, bf16 and fp16",
    )
    if format == "e2m1":
        tl.static_assert(x.dtype == tl.uint8, "dot_scaled takes e2m1 as uint8, two numbers a byte")
        return _from_e2m1(_nibbles(x, packed_axis))
    else:
        element: tl.constexpr = _element_type(format)
        if x.dtype == element:
            return x.to(tl.float32)
        else:
            tl.static_assert(
                x.dtype.is_int() and x.dtype.primitive_bitwidth == element.primitive_bitwidth,
                "an operand of dot_scaled has the type of its format, or is its bits as unsigned integers",
            )
            return x.to(element, bitcast=True).to(tl.float32)


@triton.jit
def _factors(scale, fast_math: tl.constexpr):
    """Converts scales to fp32. A byte b is 2**(b - 127), and 255 is NaN."""
    if scale.dtype.is_floating():
        return scale.to(tl.float32)
    else:
        tl.static_assert(scale.dtype.primitive_bitwidth == 8, "dot_scaled takes scales of 8 bits")
        byte = scale.to(tl.uint8, bitcast=True).to(tl.uint32)
        # The scale of byte 0, 2**-127, is subnormal in fp32.
        bits = tl.where(byte == 0, 1 << 22, byte << 23)
        if not fast_math:
            bits = tl.where(byte == 255, 0x7fc00000, bits)
        return bits.to(tl.float32, bitcast=True)


@triton.jit
def _scaled(x, scale, axis: tl.constexpr, fast_math: tl.constexpr):
    """Multiplies a matrix by its scales, each for a group of elements along an axis. The last axis of the scales has one
    element per group."""
    if scale is None:
        return x
    else:
        rank: tl.constexpr = len(x.shape)
        factors = _factors(scale, fast_math)
        if axis != rank - 1:
            order: tl.constexpr = (1, 0) if rank == 2 else (0, 2, 1)
            factors = tl.permute(factors, order)
        groups: tl.constexpr = factors.shape[axis]
        tl.static_assert(
            groups > 0 and x.shape[axis] % groups == 0,
            "dot_scaled takes a scale for each group of 32 elements along K: lhs_scale is [M, K / 32], rhs_scale [N, K / 32]",
        )
        before: tl.constexpr = factors.shape[:axis]
        after: tl.constexpr = factors.shape[axis + 1:]
        size: tl.constexpr = x.shape[axis] // groups
        wide = tl.broadcast_to(tl.expand_dims(factors, axis + 1), (*before, groups, size, *after))
        return x * tl.reshape(wide, x.shape)


@triton.jit
def _scaled_dot(
    lhs, lhs_scale, rhs, rhs_scale, lhs_format: tl.constexpr, rhs_format: tl.constexpr, lhs_k_pack: tl.constexpr,
    rhs_k_pack: tl.constexpr, fast_math: tl.constexpr,
):
    """lhs @ rhs of microscaled matrices, or of stacks of them."""
    rank: tl.constexpr = len(lhs.shape)
    a = _elements(lhs, lhs_format, rank - 1 if lhs_k_pack else rank - 2)
    b = _elements(rhs, rhs_format, rank - 2 if rhs_k_pack else rank - 1)
    a = _scaled(a, lhs_scale, rank - 1, fast_math)
    b = _scaled(b, rhs_scale, rank - 2, fast_math)
    if lhs_format != "fp16" and rhs_format != "fp16":
        a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
    return tl.dot(a, b, input_precision="tf32", out_dtype=tl.float32)


@triton.jit
def dot_scaled(
    lhs, lhs_scale, lhs_format: tl.constexpr, rhs, rhs_scale, rhs_format: tl.constexpr, acc=None,
    fast_math: tl.constexpr = False, lhs_k_pack: tl.constexpr = True, rhs_k_pack: tl.constexpr = True,
    out_dtype: tl.constexpr = tl.float32,
):
    """acc + lhs @ rhs of microscaled matrices (or stacks of them): groups of 32 elements along K share a scale.

    A format is "e2m1" (uint8, two numbers a byte, along K or, without `lhs_k_pack` or `rhs_k_pack`, along M or N), "e4m3",
    "e5m2", "bf16" or "fp16". Scales are uint8, the exponent of a power of two plus 127, [M, K / 32] and [N, K / 32], or
    float8e4nv, or None; 255 is NaN, if not `fast_math`. Products are exact, sums are in fp32."""
    result = _scaled_dot(
        lhs, lhs_scale, rhs, rhs_scale, lhs_format, rhs_format, lhs_k_pack, rhs_k_pack, fast_math
    )
    if acc is not None:
        result += acc.to(tl.float32)
    return result.to(out_dtype)
