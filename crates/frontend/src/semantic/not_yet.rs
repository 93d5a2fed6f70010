//! The names of `triton.language` that are known but not there yet. Their use gives a diagnostic that names the feature.

use super::table::Place;

/// Names that wait for one feature.
pub(super) struct Family {
    /// The feature.
    pub docs: &'static [&'static str],
    /// Where the names stand.
    pub places: &'static [Place],
    /// The names, with their parameters.
    pub signatures: &'static [&'static str],
}

const ROOT: &[Place] = &[Place::Root];
const METHOD: &[Place] = &[Place::Root, Place::Method];

pub(super) static NOT_YET: &[Family] = &[
    Family {
        docs: &["scans"],
        places: METHOD,
        signatures: &[
            "associative_scan(input, axis, combine_fn, reverse=False)",
            "cumsum(input, axis=0, reverse=False, dtype: constexpr=None)",
            "cumprod(input, axis=0, reverse=False, dtype: constexpr=None)",
        ],
    },
    Family {
        docs: &["sorting"],
        places: METHOD,
        signatures: &[
            "sort(x, dim: constexpr=None, descending: constexpr=0)",
            "topk(x, k: constexpr, dim: constexpr=None, descending: constexpr=True)",
            "bitonic_merge(x, dim: constexpr=None, descending: constexpr=0)",
            "flip(x, dim=None)",
        ],
    },
    Family {
        docs: &["gathering elements of a tile"],
        places: METHOD,
        signatures: &["gather(src, index, axis)", "histogram(input, num_bins, mask=None)"],
    },
    Family {
        docs: &["joining and splitting tiles"],
        places: METHOD,
        signatures: &[
            "join(a, b)",
            "split(a)",
            "cat(input, other, can_reorder=False, dim=0)",
            "interleave(a, b)",
        ],
    },
    Family {
        docs: &["block pointers"],
        places: METHOD,
        signatures: &[
            "make_block_ptr(base, shape, strides, offsets, block_shape, order)",
            "advance(base, offsets)",
        ],
    },
    Family {
        docs: &["tensor descriptors"],
        places: ROOT,
        signatures: &[
            "make_tensor_descriptor(base, shape, strides, block_shape, padding_option='zero')",
            "load_tensor_descriptor(desc, offsets)",
            "store_tensor_descriptor(desc, offsets, value)",
            "_experimental_make_tensor_descriptor(base, shape, strides, block_shape)",
            "_experimental_descriptor_load(desc, offsets, shape, dtype)",
            "_experimental_descriptor_store(desc, value, offsets)",
        ],
    },
    Family {
        docs: &["printing from a running kernel"],
        places: ROOT,
        signatures: &["device_print(prefix, *args, hex=False)"],
    },
    Family {
        docs: &["inline assembly and functions of your own on each element"],
        places: ROOT,
        signatures: &[
            "inline_asm_elementwise(asm, constraints, args, dtype, is_pure, pack)",
            "map_elementwise(scalar_fn, *args, pack=1)",
        ],
    },
    Family {
        docs: &["products of scaled 4- and 8-bit matrices"],
        places: ROOT,
        signatures: &[
            "dot_scaled(lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, acc=None, fast_math=False, \
             lhs_k_pack=True, rhs_k_pack=True, out_dtype=tl.float32)",
        ],
    },
    Family {
        docs: &["assertions on values of an intermediate tile"],
        places: ROOT,
        signatures: &["expect_zero(x, mask)"],
    },
    Family {
        docs: &["functions of the CUDA machine"],
        places: ROOT,
        signatures: &[
            "extra.cuda.globaltimer()",
            "extra.cuda.smid()",
            "extra.cuda.num_threads()",
            "extra.cuda.num_warps()",
            "extra.cuda.gdc_wait()",
            "extra.cuda.gdc_launch_dependents()",
        ],
    },
    Family {
        docs: &["asking for the target while compiling"],
        places: ROOT,
        signatures: &[
            "target_info.current_target()",
            "target_info.cuda_capability_geq(major, minor=0)",
            "target_info.is_cuda()",
            "target_info.is_hip()",
        ],
    },
    Family {
        docs: &["a function of libdevice that has no definition in the kernel language"],
        places: &[Place::Libdevice],
        signatures: LIBDEVICE,
    },
];

/// The functions of libdevice; one that `lib/libdevice.py` or a row of the table defines is not looked at.
const LIBDEVICE: &[&str] = &[
    "acos(arg0)",
    "acosh(arg0)",
    "asin(arg0)",
    "asinh(arg0)",
    "atan(arg0)",
    "atan2(arg0, arg1)",
    "atanh(arg0)",
    "brev(arg0)",
    "byte_perm(arg0, arg1, arg2)",
    "clz(arg0)",
    "cospi(arg0)",
    "cyl_bessel_i0(arg0)",
    "cyl_bessel_i1(arg0)",
    "erfc(arg0)",
    "erfcinv(arg0)",
    "erfcx(arg0)",
    "erfinv(arg0)",
    "ffs(arg0)",
    "ilogb(arg0)",
    "j0(arg0)",
    "j1(arg0)",
    "jn(arg0, arg1)",
    "ldexp(arg0, arg1)",
    "lgamma(arg0)",
    "logb(arg0)",
    "nextafter(arg0, arg1)",
    "norm3d(arg0, arg1, arg2)",
    "norm4d(arg0, arg1, arg2, arg3)",
    "normcdf(arg0)",
    "normcdfinv(arg0)",
    "popc(arg0)",
    "rcbrt(arg0)",
    "remainder(arg0, arg1)",
    "rhypot(arg0, arg1)",
    "scalbn(arg0, arg1)",
    "sinpi(arg0)",
    "tgamma(arg0)",
    "y0(arg0)",
    "y1(arg0)",
    "yn(arg0, arg1)",
    "add_rd(arg0, arg1)",
    "add_ru(arg0, arg1)",
    "add_rz(arg0, arg1)",
    "div_rd(arg0, arg1)",
    "div_ru(arg0, arg1)",
    "div_rz(arg0, arg1)",
    "fma_rd(arg0, arg1, arg2)",
    "fma_ru(arg0, arg1, arg2)",
    "fma_rz(arg0, arg1, arg2)",
    "mul_rd(arg0, arg1)",
    "mul_ru(arg0, arg1)",
    "mul_rz(arg0, arg1)",
    "sub_rd(arg0, arg1)",
    "sub_ru(arg0, arg1)",
    "sub_rz(arg0, arg1)",
    "sqrt_rd(arg0)",
    "sqrt_ru(arg0)",
    "sqrt_rz(arg0)",
    "rcp_rd(arg0)",
    "rcp_ru(arg0)",
    "rcp_rz(arg0)",
    "double2float_rd(arg0)",
    "double2float_ru(arg0)",
    "int2float_rd(arg0)",
    "int2float_ru(arg0)",
    "int2float_rz(arg0)",
    "ll2double_rd(arg0)",
    "ll2double_ru(arg0)",
    "ll2double_rz(arg0)",
    "ll2float_rd(arg0)",
    "ll2float_ru(arg0)",
    "ll2float_rz(arg0)",
    "uint2float_rd(arg0)",
    "uint2float_ru(arg0)",
    "uint2float_rz(arg0)",
    "ull2double_rd(arg0)",
    "ull2double_ru(arg0)",
    "ull2double_rz(arg0)",
    "ull2float_rd(arg0)",
    "ull2float_ru(arg0)",
    "ull2float_rz(arg0)",
    "hadd(arg0, arg1)",
    "rhadd(arg0, arg1)",
    "hiloint2double(arg0, arg1)",
    "mul24(arg0, arg1)",
    "rcp64h(arg0)",
    "rnorm3d(arg0, arg1, arg2)",
    "rnorm4d(arg0, arg1, arg2, arg3)",
    "sad(arg0, arg1, arg2)",
];
