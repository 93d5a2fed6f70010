//! Defines the element types, and the attributes that all types share.

use tilewright_ir::{Dtype, Type};

use crate::types::LanguageType;
use crate::value::Constant;

/// The names of the element types.
pub(super) const DTYPES: &[(&str, Dtype)] = &[
    ("int1", Dtype::I1),
    ("int8", Dtype::I8),
    ("int16", Dtype::I16),
    ("int32", Dtype::I32),
    ("int64", Dtype::I64),
    ("uint8", Dtype::U8),
    ("uint16", Dtype::U16),
    ("uint32", Dtype::U32),
    ("uint64", Dtype::U64),
    ("float8e5", Dtype::F8E5),
    ("float8e4nv", Dtype::F8E4NV),
    ("float8e4b15", Dtype::F8E4B15),
    ("float8e4b8", Dtype::F8E4B8),
    ("float8e5b16", Dtype::F8E5B16),
    ("float16", Dtype::F16),
    ("bfloat16", Dtype::BF16),
    ("float32", Dtype::F32),
    ("float64", Dtype::F64),
];

/// Returns the name of an element type in `tl`.
pub(super) fn dtype_name(dtype: Dtype) -> &'static str {
    DTYPES.iter().find(|(_, known)| *known == dtype).map_or("float32", |(name, _)| name)
}

/// Returns a compile-time value of the language by its name.
pub(super) fn named_constant(name: &str) -> Option<Constant> {
    if let Some((_, dtype)) = DTYPES.iter().find(|(known, _)| *known == name) {
        return Some(Constant::dtype(*dtype));
    }
    match name {
        "void" => Some(LanguageType::Void.into_constant()),
        "pi32_t" => Some(Constant::Type(Type::pointer(Dtype::I32))),
        "TRITON_MAX_TENSOR_NUMEL" => Some(Constant::Int(tilewright_ir::MAX_TILE_ELEMENTS as i128)),
        "N_ROUNDS_DEFAULT" => Some(Constant::Int(10)),
        "PropagateNan.NONE" => Some(Constant::Int(0)),
        "PropagateNan.ALL" => Some(Constant::Int(0xFFFF)),
        _ => None,
    }
}

/// Returns the shared attributes: the values of `KIND` and `SIGNEDNESS`, and lists of types.
pub(super) fn type_constants() -> Vec<(&'static str, Constant)> {
    let names = |has: fn(Dtype) -> bool| {
        let all = Dtype::ALL.iter().copied().filter(|dtype| has(*dtype));
        Constant::Tuple(all.map(|dtype| Constant::Str(dtype.name().into())).collect())
    };
    let number = Constant::Int;
    vec![
        ("KIND.BOOLEAN", number(0)),
        ("KIND.INTEGRAL", number(1)),
        ("KIND.FLOATING", number(2)),
        ("SIGNEDNESS.SIGNED", number(0)),
        ("SIGNEDNESS.UNSIGNED", number(1)),
        ("SINT_TYPES", names(|dtype| dtype.is_int() && dtype.is_signed())),
        ("UINT_TYPES", names(|dtype| dtype.is_int() && !dtype.is_signed())),
        ("FP_TYPES", names(Dtype::is_float)),
        ("STANDARD_FP_TYPES", names(|dtype| dtype.is_float() && !dtype.is_fp8())),
        ("OTHER_TYPES", Constant::Tuple(std::iter::once(Constant::Str("void".into())).collect())),
    ]
}
