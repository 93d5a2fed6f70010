//! The operands of dots with scales (`dot_scaled`, `tcgen05_mma_scaled`): their formats, and the
//! instructions.

use crate::types::Dtype;

/// The format of the elements of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScaledFormat {
    /// 8 bits with three bits of mantissa.
    E4m3,
    /// 8 bits with two bits of mantissa.
    E5m2,
    /// 4 bits; a byte of a tile has two elements along K, the first in its low half.
    E2m1,
}

impl ScaledFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::E4m3, Self::E5m2, Self::E2m1];

    /// Returns the name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
            Self::E2m1 => "e2m1",
        }
    }

    /// Returns the format with a name of the language.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Returns the number of elements of a byte of a tile.
    pub fn in_byte(self) -> u32 {
        if self == Self::E2m1 { 2 } else { 1 }
    }

    /// Returns whether tiles of this type hold the elements: the type of the format, or bytes.
    pub fn is_held_by(self, dtype: Dtype) -> bool {
        match dtype {
            Dtype::I8 | Dtype::U8 => true,
            Dtype::F8E4NV => self == Self::E4m3,
            Dtype::F8E5 => self == Self::E5m2,
            // tidy: wildcard because the other types have other formats
            _ => false,
        }
    }
}

/// The formats of A and B of a dot with scales.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScaledFormats(pub [ScaledFormat; 2]);

/// The instruction of a dot with scales.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScaledKind {
    /// Operands of 8 bits, or of 4 bits with padding: a power of two scales 32 elements.
    Mxf8f6f4,
    /// Operands of 4 bits: a power of two scales 32 elements.
    Mxf4,
    /// Operands of 4 bits: a scale of the format e4m3 is for 16 elements.
    Nvf4,
}

impl ScaledKind {
    /// Returns the kind for these formats of A and B, which may have padding in memory, and this
    /// type of the scales.
    ///
    /// # Errors
    /// Returns the rule that the operands violate.
    pub fn of(
        formats: [ScaledFormat; 2],
        is_padded: [bool; 2],
        scales: [Dtype; 2],
    ) -> Result<Self, &'static str> {
        let is_power = match scales {
            [Dtype::F8E4NV, Dtype::F8E4NV] => false,
            [Dtype::U8 | Dtype::I8, Dtype::U8 | Dtype::I8] => true,
            // tidy: wildcard because scales have no other types
            _ => return Err("the scales of both operands are uint8 (powers of two), or both fp8e4nv"),
        };
        let is_narrow = formats.map(|format| format == ScaledFormat::E2m1);
        match (is_narrow, is_padded) {
            ([true, true], [false, false]) if is_power => Ok(Self::Mxf4),
            ([true, true], [false, false]) => Ok(Self::Nvf4),
            // tidy: wildcard because other operands have no scales of this type
            _ if !is_power => Err("scales of fp8e4nv are for two operands of e2m1 without padding"),
            (narrow, padded) if narrow == padded => Ok(Self::Mxf8f6f4),
            ([true, _], [false, _]) | ([_, true], [_, false]) => {
                Err("an operand of e2m1 beside one of 8 bits is in shared memory with `fp4_padded=True`")
            }
            // tidy: wildcard because the arms above have the other combinations
            _ => Err("only an operand of e2m1 has `fp4_padded=True`"),
        }
    }

    /// Returns the number of elements along K that share a scale.
    pub fn block(self) -> u32 {
        match self {
            Self::Mxf8f6f4 | Self::Mxf4 => 32,
            Self::Nvf4 => 16,
        }
    }

    /// Returns the number of elements along K of one instruction.
    pub fn depth(self) -> u32 {
        match self {
            Self::Mxf8f6f4 => 32,
            Self::Mxf4 | Self::Nvf4 => 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_formats_padding_and_scales() {
        use Dtype::{F8E4NV, U8};
        use ScaledFormat::{E2m1, E4m3, E5m2};
        let of = |formats, padded, scale| ScaledKind::of(formats, padded, [scale; 2]);
        assert_eq!(of([E4m3, E5m2], [false; 2], U8), Ok(ScaledKind::Mxf8f6f4));
        assert_eq!(of([E4m3, E2m1], [false, true], U8), Ok(ScaledKind::Mxf8f6f4));
        assert_eq!(of([E2m1, E2m1], [true; 2], U8), Ok(ScaledKind::Mxf8f6f4));
        assert_eq!(of([E2m1, E2m1], [false; 2], U8), Ok(ScaledKind::Mxf4));
        assert_eq!(of([E2m1, E2m1], [false; 2], F8E4NV), Ok(ScaledKind::Nvf4));
        for (formats, padded, scale) in [
            ([E4m3, E2m1], [false, false], U8),
            ([E4m3, E4m3], [true, false], U8),
            ([E4m3, E4m3], [false, false], F8E4NV),
            ([E2m1, E2m1], [true, true], F8E4NV),
            ([E2m1, E2m1], [true, false], U8),
            ([E2m1, E2m1], [false, false], Dtype::F16),
        ] {
            assert!(of(formats, padded, scale).is_err(), "{formats:?} {padded:?} {scale}");
        }
    }
}
