//! Decodes the 32-bit instruction descriptor of `tcgen05.mma` (PTX ISA, section 9.7.16.4.2).

use tilewright_ptx::isa::{ScaleVectorSize, ScaledDotKind, TensorDotKind};

use super::{Element, Major};
use crate::fault::FaultKind;

/// The kind of a `tcgen05.mma`: its element types, and the block size of its scale factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorKind {
    /// Without scale factors.
    Plain(TensorDotKind),
    /// With scale factors.
    Scaled(ScaledDotKind, Option<ScaleVectorSize>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorOperand {
    pub element: Element,
    pub major: Major,
    pub is_negated: bool,
}

/// The scale factors of a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleFactors {
    /// The scale factors of a row of A, or of a column of B.
    pub count: usize,
    /// True for powers of two (ue8m0), false for ue4m3.
    pub is_power: bool,
    /// The first byte of the factors of A in each cell.
    pub byte_a: usize,
    /// The first byte of the factors of B in each cell.
    pub byte_b: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorDot {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: TensorOperand,
    pub b: TensorOperand,
    pub d: Element,
    /// True if an integer result is clamped.
    pub clamps: bool,
    pub scales: Option<ScaleFactors>,
}

impl TensorDot {
    /// Decodes the descriptor for one block, or for a pair of blocks.
    ///
    /// # Errors
    /// If it is invalid, or the simulator does not support the dot.
    pub fn decode(bits: u32, kind: TensorKind, is_pair: bool) -> Result<Self, FaultKind> {
        let field = |low: u32, width: u32| (bits >> low & ((1 << width) - 1)) as usize;
        if field(2, 1) == 1 {
            return Err(FaultKind::Unsupported("`tcgen05.mma` with a sparse A".into()));
        }
        let operand = |code: usize, negated: u32, major: u32| {
            let element = operand_element(kind, code);
            let element =
                element.ok_or_else(|| invalid(bits, "the type of A or B does not exist for this kind"))?;
            let major = if field(major, 1) == 1 { Major::Mn } else { Major::K };
            Ok(TensorOperand { element, major, is_negated: field(negated, 1) == 1 })
        };
        let d =
            result_element(kind, field(4, 2)).ok_or_else(|| invalid(bits, "the type of D does not exist"))?;
        let is_integer = d == Element::S32;
        let dot = Self {
            m: field(24, 5) * 16,
            n: field(17, 6) * 8,
            k: depth(kind),
            a: operand(field(7, 3), 13, 15)?,
            b: operand(field(10, 3), 14, 16)?,
            d,
            clamps: is_integer && field(3, 1) == 1,
            scales: match kind {
                TensorKind::Plain(_) => None,
                TensorKind::Scaled(kind, size) => Some(scale_factors(bits, kind, size)?),
            },
        };
        if is_integer && (dot.a.is_negated || dot.b.is_negated) {
            return Err(invalid(bits, "integer operands cannot be negated"));
        }
        dot.check_shape(bits, is_pair)?;
        Ok(dot)
    }

    /// Checks the shape: PTX ISA, section 9.7.16.2.1.
    fn check_shape(&self, bits: u32, is_pair: bool) -> Result<(), FaultKind> {
        let Self { m, n, .. } = *self;
        let has_rows = match (is_pair, self.scales) {
            (false, None) => m == 64 || m == 128,
            (false, Some(_)) => m == 128,
            (true, _) => m == 128 || m == 256,
        };
        let multiple = match (is_pair, m) {
            (false, 64) => 8,
            (false, _) | (true, 256) => 16,
            (true, _) => 32,
        };
        let multiple = if self.scales.is_some() && !is_pair { 8 } else { multiple };
        if has_rows && n != 0 && n <= 256 && n.is_multiple_of(multiple) {
            return Ok(());
        }
        Err(invalid(bits, &format!("the shape m{m}n{n} does not exist")))
    }
}

/// Returns the number of elements of a row of A.
fn depth(kind: TensorKind) -> usize {
    match kind {
        TensorKind::Plain(TensorDotKind::Tf32) => 8,
        TensorKind::Plain(TensorDotKind::F16) => 16,
        TensorKind::Plain(TensorDotKind::F8f6f4 | TensorDotKind::I8)
        | TensorKind::Scaled(ScaledDotKind::Mxf8f6f4, _) => 32,
        TensorKind::Scaled(ScaledDotKind::Mxf4 | ScaledDotKind::Mxf4nvf4, _) => 64,
    }
}

fn result_element(kind: TensorKind, code: usize) -> Option<Element> {
    match (kind, code) {
        (TensorKind::Scaled(..), _) => Some(Element::F32),
        (TensorKind::Plain(TensorDotKind::I8), 2) => Some(Element::S32),
        (TensorKind::Plain(TensorDotKind::F16 | TensorDotKind::F8f6f4), 0) => Some(Element::F16),
        (TensorKind::Plain(TensorDotKind::F16 | TensorDotKind::Tf32 | TensorDotKind::F8f6f4), 1) => {
            Some(Element::F32)
        }
        (TensorKind::Plain(_), _) => None,
    }
}

fn operand_element(kind: TensorKind, code: usize) -> Option<Element> {
    let narrow = [
        Some(Element::E4m3),
        Some(Element::E5m2),
        None,
        Some(Element::E2m3),
        Some(Element::E3m2),
        Some(Element::E2m1),
    ];
    match (kind, code) {
        (TensorKind::Plain(TensorDotKind::F16), 0) => Some(Element::F16),
        (TensorKind::Plain(TensorDotKind::F16), 1) => Some(Element::Bf16),
        (TensorKind::Plain(TensorDotKind::Tf32), 2) => Some(Element::Tf32),
        (TensorKind::Plain(TensorDotKind::I8), 0) => Some(Element::U8),
        (TensorKind::Plain(TensorDotKind::I8), 1) => Some(Element::S8),
        (TensorKind::Plain(TensorDotKind::F8f6f4) | TensorKind::Scaled(ScaledDotKind::Mxf8f6f4, _), _) => {
            narrow.get(code).copied().flatten()
        }
        (TensorKind::Scaled(ScaledDotKind::Mxf4 | ScaledDotKind::Mxf4nvf4, _), 1) => Some(Element::E2m1),
        (TensorKind::Plain(_) | TensorKind::Scaled(..), _) => None,
    }
}

fn scale_factors(
    bits: u32,
    kind: ScaledDotKind,
    size: Option<ScaleVectorSize>,
) -> Result<ScaleFactors, FaultKind> {
    let field = |low: u32, width: u32| (bits >> low & ((1 << width) - 1)) as usize;
    let is_power = field(23, 1) == 1;
    let count = match (kind, size) {
        (ScaledDotKind::Mxf8f6f4, _) => 1,
        (ScaledDotKind::Mxf4nvf4, Some(ScaleVectorSize::X4 | ScaleVectorSize::Block16)) => 4,
        (ScaledDotKind::Mxf4 | ScaledDotKind::Mxf4nvf4, _) => 2,
    };
    if kind != ScaledDotKind::Mxf8f6f4 && field(31, 1) == 1 {
        return Err(FaultKind::Unsupported("`tcgen05.mma` with a k of 96 elements".into()));
    }
    if !is_power && kind != ScaledDotKind::Mxf4nvf4 {
        return Err(invalid(bits, "the scale factors have to be of ue8m0"));
    }
    let (byte_a, byte_b) = (field(29, 2), field(4, 2));
    if !byte_a.is_multiple_of(count) || !byte_b.is_multiple_of(count) {
        return Err(invalid(bits, "the scale factors of a row are not in one cell"));
    }
    Ok(ScaleFactors { count, is_power, byte_a, byte_b })
}

fn invalid(bits: u32, reason: &str) -> FaultKind {
    FaultKind::Illegal(format!("the instruction descriptor {bits:#010x} of tcgen05.mma is invalid: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_compilers_are_decoded() {
        // m128n256k16, bf16 x bf16 -> f32, B is MN-major.
        let bits = 8 << 24 | 32 << 17 | 1 << 16 | 1 << 10 | 1 << 7 | 1 << 4;
        let dot = TensorDot::decode(bits, TensorKind::Plain(TensorDotKind::F16), false).unwrap();
        assert_eq!((dot.m, dot.n, dot.k, dot.d), (128, 256, 16, Element::F32));
        assert_eq!((dot.a.element, dot.a.major), (Element::Bf16, Major::K));
        assert_eq!((dot.b.element, dot.b.major), (Element::Bf16, Major::Mn));
        // A pair of blocks has twice the rows.
        let pair = bits & !(31 << 24) | 16 << 24;
        assert_eq!(TensorDot::decode(pair, TensorKind::Plain(TensorDotKind::F16), true).unwrap().m, 256);
        assert!(TensorDot::decode(pair, TensorKind::Plain(TensorDotKind::F16), false).is_err());
    }

    #[test]
    fn scale_factors_are_decoded() {
        let bits = 1 << 29 | 8 << 24 | 1 << 23 | 16 << 17 | 2 << 4 | 5 << 10;
        let kind = TensorKind::Scaled(ScaledDotKind::Mxf8f6f4, None);
        let dot = TensorDot::decode(bits, kind, false).unwrap();
        let scales = ScaleFactors { count: 1, is_power: true, byte_a: 1, byte_b: 2 };
        assert_eq!((dot.a.element, dot.b.element, dot.scales), (Element::E4m3, Element::E2m1, Some(scales)));
        assert!(TensorDot::decode(bits & !(1 << 23), kind, false).is_err(), "the factors are of ue4m3");
        let fp4 = 8 << 24 | 16 << 17 | 1 << 10 | 1 << 7;
        let kind = TensorKind::Scaled(ScaledDotKind::Mxf4nvf4, Some(ScaleVectorSize::Block16));
        let dot = TensorDot::decode(fp4, kind, false).unwrap();
        let scales = ScaleFactors { count: 4, is_power: false, byte_a: 0, byte_b: 0 };
        assert_eq!((dot.k, dot.scales), (64, Some(scales)));
        assert!(TensorDot::decode(fp4 | 2 << 29, kind, false).is_err(), "four factors begin at byte 2");
    }

    #[test]
    fn forbidden_descriptors_are_faults() {
        let plain = TensorKind::Plain(TensorDotKind::F16);
        let valid = 4 << 24 | 1 << 17 | 1 << 4;
        assert!(TensorDot::decode(valid, plain, false).is_ok());
        for bits in [
            valid | 1 << 2,
            valid | 2 << 7,
            valid & !(31 << 24),
            valid & !(63 << 17),
            8 << 24 | 1 << 17 | 1 << 4,
        ] {
            assert!(TensorDot::decode(bits, plain, false).is_err(), "{bits:#x}");
        }
    }
}
