//! Defines the types of the arguments of device code, their names and their encodings.

use tilewright_ir::Dtype;

use super::invalid;
use crate::{Error, parse_dtype};

/// The type of a parameter of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentType {
    /// An address.
    Pointer,
    /// A number.
    Number(Dtype),
    /// A tensor map, by value.
    TensorMap,
}

/// The types of numbers. The byte of a type is its index here plus 2. Byte 0 is a tensor map, and
/// byte 1 a pointer.
const NUMBERS: [Dtype; 13] = [
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::U8,
    Dtype::U16,
    Dtype::U32,
    Dtype::U64,
    Dtype::F16,
    Dtype::BF16,
    Dtype::F32,
    Dtype::F64,
    Dtype::I1,
];

impl ArgumentType {
    /// Parses the name of a type: `*fp32`, `i32`, `nvTmaDesc`.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let number = || parse_dtype(name).filter(|dtype| NUMBERS.contains(dtype)).map(Self::Number);
        let parsed = match name {
            "nvTmaDesc" => Some(Self::TensorMap),
            _ if name.starts_with('*') => Some(Self::Pointer),
            _ => number(),
        };
        parsed.ok_or_else(|| {
            invalid(format!("'{name}' is not a type that a kernel's arguments can have")).into()
        })
    }

    /// Returns the byte that encodes the type.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::TensorMap => 0,
            Self::Pointer => 1,
            Self::Number(dtype) => {
                let place = NUMBERS.iter().position(|&known| known == dtype);
                place.expect("`parse` returns no other types") as u8 + 2
            }
        }
    }

    /// Returns the type that a byte encodes; `None` if the byte encodes no type.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::TensorMap),
            1 => Some(Self::Pointer),
            _ => NUMBERS.get(usize::from(byte) - 2).copied().map(Self::Number),
        }
    }
}

/// The run-time arguments of one parameter of the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Slot {
    /// A compile-time value. It is part of the code, so the kernel has no parameter for it.
    Constexpr,
    /// One argument.
    Passed(ArgumentType),
    /// A tuple: the arguments of each item.
    Tuple(Vec<Slot>),
}

impl Slot {
    /// Parses the name of a type, or `constexpr`.
    pub fn parse(name: &str) -> Result<Self, Error> {
        if name == "constexpr" { Ok(Self::Constexpr) } else { ArgumentType::parse(name).map(Self::Passed) }
    }

    /// Reads the next byte of a signature, which encodes an [`ArgumentType`].
    pub fn from_next_byte(bytes: &mut impl Iterator<Item = u8>) -> Result<Self, Error> {
        let ty = bytes.next().and_then(ArgumentType::from_byte);
        let message = || "the signature of the launch ends too early or has an unknown type".into();
        ty.map(Self::Passed).ok_or_else(|| invalid(message()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_base::Code;

    #[test]
    fn every_type_has_a_name_and_a_byte() {
        for (name, expected) in [
            ("nvTmaDesc", ArgumentType::TensorMap),
            ("*fp32", ArgumentType::Pointer),
            ("i8", ArgumentType::Number(Dtype::I8)),
            ("u64", ArgumentType::Number(Dtype::U64)),
            ("bf16", ArgumentType::Number(Dtype::BF16)),
            ("u1", ArgumentType::Number(Dtype::I1)),
        ] {
            assert_eq!(ArgumentType::parse(name).unwrap(), expected, "{name}");
        }
        let known: Vec<_> = (0..=u8::MAX).map_while(ArgumentType::from_byte).collect();
        assert_eq!(known.len(), NUMBERS.len() + 2);
        for (byte, ty) in known.into_iter().enumerate() {
            assert_eq!(usize::from(ty.to_byte()), byte);
        }
        for name in ["fp8e5", "nonsense", ""] {
            assert_eq!(ArgumentType::parse(name).unwrap_err().code(), Some(Code::InvalidArgument), "{name}");
        }
    }

    #[test]
    fn a_signature_that_is_too_short_is_refused() {
        let mut bytes = [1_u8].into_iter();
        assert_eq!(Slot::from_next_byte(&mut bytes).unwrap(), Slot::Passed(ArgumentType::Pointer));
        assert_eq!(Slot::from_next_byte(&mut bytes).unwrap_err().code(), Some(Code::InvalidArgument));
        assert_eq!(Slot::parse("constexpr").unwrap(), Slot::Constexpr);
    }
}
