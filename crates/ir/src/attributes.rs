//! Typed attributes of ops, and their text forms.

use std::fmt::Write;

use half::{bf16, f16};
use smallvec::SmallVec;
use tilewright_layout::StatedLayout;

use crate::device::DeviceFn;
use crate::elementwise::ElementwiseFn;
use crate::function::FuncId;
use crate::scaled::{ScaledFormat, ScaledFormats};
use crate::types::{Dtype, Element, Shape};

/// An attribute: a value that is part of the op, can be compared, and round-trips through text.
pub trait Attribute: Sized + Clone + Eq {
    /// Writes the text form.
    fn print(&self, out: &mut String);
    /// Parses the text form; `None` if the text is malformed.
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! number_attributes {
    ($($ty:ty)*) => {$(
        impl Attribute for $ty {
            fn print(&self, out: &mut String) {
                write!(out, "{self}").expect("writing to a string does not fail");
            }
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}
number_attributes!(bool u8 u32 i64);

impl Attribute for String {
    fn print(&self, out: &mut String) {
        write!(out, "{self:?}").expect("writing to a string does not fail");
    }
    fn parse(text: &str) -> Option<Self> {
        let mut chars = text.strip_prefix('"')?.strip_suffix('"')?.chars();
        let mut value = String::new();
        while let Some(c) = chars.next() {
            value.push(match c {
                '\\' => match chars.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    '0' => '\0',
                    'u' => {
                        let digits: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                        char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                    }
                    other => other,
                },
                other => other,
            });
        }
        Some(value)
    }
}

impl Attribute for DeviceFn {
    fn print(&self, out: &mut String) {
        self.to_string().print(out);
    }
    fn parse(text: &str) -> Option<Self> {
        DeviceFn::read(&String::parse(text)?)
    }
}

impl Attribute for StatedLayout {
    fn print(&self, out: &mut String) {
        self.to_string().print(out);
    }
    fn parse(text: &str) -> Option<Self> {
        String::parse(text)?.parse().ok()
    }
}

impl Attribute for Dtype {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }
    fn parse(text: &str) -> Option<Self> {
        Dtype::parse(text)
    }
}

impl Attribute for Element {
    fn print(&self, out: &mut String) {
        write!(out, "{self}").expect("writing to a string does not fail");
    }
    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('*') {
            Some(pointee) => Dtype::parse(pointee).map(Element::Pointer),
            None => Dtype::parse(text).map(Element::Value),
        }
    }
}

impl Attribute for ElementwiseFn {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }
    fn parse(text: &str) -> Option<Self> {
        ElementwiseFn::parse(text)
    }
}

impl Attribute for FuncId {
    fn print(&self, out: &mut String) {
        write!(out, "{self}").expect("writing to a string does not fail");
    }
    fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("func")?.parse().ok().map(FuncId::from_u32)
    }
}

/// A list of integers: a permutation, hint values.
pub type IntList = SmallVec<[i64; 4]>;

fn print_list(items: impl Iterator<Item = impl std::fmt::Display>, out: &mut String) {
    out.push('[');
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(out, "{separator}{item}").expect("writing to a string does not fail");
    }
    out.push(']');
}

fn parse_list<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|item| item.trim().parse().ok()).collect()
}

impl Attribute for IntList {
    fn print(&self, out: &mut String) {
        print_list(self.iter(), out);
    }
    fn parse(text: &str) -> Option<Self> {
        parse_list(text).map(SmallVec::from_vec)
    }
}

impl Attribute for Shape {
    fn print(&self, out: &mut String) {
        print_list(self.iter(), out);
    }
    fn parse(text: &str) -> Option<Self> {
        parse_list(text).map(|extents| extents.into_iter().collect())
    }
}

/// A number of a known type, as its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Literal {
    /// The type.
    pub dtype: Dtype,
    /// The bits; those above the width are zero.
    pub bits: u64,
}

impl Literal {
    /// Returns an integer, wrapped to the width of the type, which must be an integer type.
    pub fn int(dtype: Dtype, value: i128) -> Self {
        debug_assert!(dtype.is_int());
        Self { dtype, bits: value as u64 & mask(dtype.bits()) }
    }

    /// Returns a boolean.
    pub fn bool(value: bool) -> Self {
        Self { dtype: Dtype::I1, bits: u64::from(value) }
    }

    /// Returns a floating-point number rounded to nearest even. Returns `None` for integer types
    /// and the 8-bit formats, whose constants are casts of wider constants.
    pub fn float(dtype: Dtype, value: f64) -> Option<Self> {
        let bits = match dtype {
            Dtype::F64 => value.to_bits(),
            Dtype::F32 => u64::from((value as f32).to_bits()),
            Dtype::F16 => u64::from(f16::from_f32(round_to_odd(value)).to_bits()),
            Dtype::BF16 => u64::from(bf16::from_f32(round_to_odd(value)).to_bits()),
            _ => return None,
        };
        Some(Self { dtype, bits })
    }

    /// Returns the integer, sign-extended for signed types; `None` for floating point.
    pub fn as_int(self) -> Option<i128> {
        let bits = self.dtype.bits();
        if self.dtype.is_float() {
            None
        } else if self.dtype.is_signed() {
            Some(i128::from((self.bits << (64 - bits)) as i64 >> (64 - bits)))
        } else {
            Some(i128::from(self.bits))
        }
    }

    /// Returns the number as fp64; `None` for integers and the 8-bit formats.
    pub fn as_float(self) -> Option<f64> {
        match self.dtype {
            Dtype::F64 => Some(f64::from_bits(self.bits)),
            Dtype::F32 => Some(f64::from(f32::from_bits(self.bits as u32))),
            Dtype::F16 => Some(f16::from_bits(self.bits as u16).to_f64()),
            Dtype::BF16 => Some(bf16::from_bits(self.bits as u16).to_f64()),
            _ => None,
        }
    }
}

/// Rounds to fp32 towards zero, and sets the last bit if the result is inexact. A second rounding
/// then yields the same as a single rounding of `value`. The format of the second rounding must
/// have at least two fewer bits of significand.
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    let away = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(away)) | 1)
}

fn mask(bits: u32) -> u64 {
    if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

impl Attribute for Literal {
    fn print(&self, out: &mut String) {
        let result = match (self.as_int(), self.as_float()) {
            (Some(value), _) => write!(out, "{value}"),
            (_, Some(value)) if value.is_finite() => write!(out, "{value:?}"),
            _ => write!(out, "{:#x}", self.bits),
        };
        result.and_then(|()| write!(out, ":{}", self.dtype)).expect("writing to a string does not fail");
    }
    fn parse(text: &str) -> Option<Self> {
        let (value, dtype) = text.rsplit_once(':')?;
        let dtype = Dtype::parse(dtype.trim())?;
        if let Some(hex) = value.strip_prefix("0x") {
            let bits = u64::from_str_radix(hex, 16).ok()?;
            return (bits & !mask(dtype.bits()) == 0).then_some(Self { dtype, bits });
        }
        if dtype.is_float() {
            return Self::float(dtype, value.parse().ok()?);
        }
        let value: i128 = value.parse().ok()?;
        let (low, high) = dtype.int_range()?;
        (low..=high).contains(&value).then(|| Self::int(dtype, value))
    }
}

macro_rules! choices {
    ($($(#[doc = $doc:literal])* $name:ident { $($(#[$meta:meta])* $variant:ident = $text:literal,)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum $name {
            $($(#[$meta])* $variant,)*
        }
        impl $name {
            /// Every choice.
            pub const ALL: &[$name] = &[$($name::$variant,)*];
            /// Returns the name of the choice in the text form; for most choices, it is Triton's
            /// name.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
            /// Returns the choice with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.name() == name)
            }
        }
        impl Attribute for $name {
            fn print(&self, out: &mut String) {
                write!(out, "{:?}", self.name()).expect("writing to a string does not fail");
            }
            fn parse(text: &str) -> Option<Self> {
                Self::from_name(&String::parse(text)?)
            }
        }
    )*};
}

choices! {
    /// The caches that a load or store goes through (PTX ISA, "Cache Operators").
    CacheModifier {
        /// The target's default.
        #[default]
        Default = "",
        /// Cache at all levels.
        All = ".ca",
        /// Cache at L2 and below.
        Global = ".cg",
        /// Streaming: likely to be accessed once.
        Streaming = ".cs",
        /// Do not cache; every access fetches again.
        Volatile = ".cv",
        /// Write back at all levels.
        WriteBack = ".wb",
        /// Write through.
        WriteThrough = ".wt",
    }
    /// The eviction priority of a cache line (PTX ISA, "Cache Eviction Priority Hints").
    EvictionPolicy {
        /// The target's default.
        #[default]
        Default = "",
        /// Evict late.
        Last = "evict_last",
        /// Evict early.
        First = "evict_first",
    }
    /// The function of an atomic operation on the old value and its operand.
    AtomicKind {
        /// The sum. Integers wrap, floats round to nearest even.
        #[default]
        Add = "add",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// The larger of the two values. Floats compare by IEEE's totalOrder: -0 is below 0, and a
        /// NaN is beyond the infinity of its sign.
        Max = "max",
        /// The smaller of the two values, in the same order.
        Min = "min",
        /// The operand.
        Exchange = "exchange",
    }
    /// The order of an atomic operation relative to the other accesses of its program. The
    /// observers in its scope see this order.
    MemorySemantics {
        /// Acquire and release.
        #[default]
        AcquireRelease = "acq_rel",
        /// It happens before the accesses that follow it.
        Acquire = "acquire",
        /// It happens after the accesses that precede it.
        Release = "release",
        /// Unordered.
        Relaxed = "relaxed",
    }
    /// The observers of the order of an atomic operation.
    MemoryScope {
        /// All programs on the device.
        #[default]
        Gpu = "gpu",
        /// Only the program itself.
        Cta = "cta",
        /// The host and other devices, too.
        System = "sys",
    }
    /// The rounding of a narrowing floating-point cast.
    Rounding {
        /// To nearest, ties to even.
        #[default]
        NearestEven = "rtne",
        /// Towards zero.
        TowardsZero = "rtz",
    }
    /// The use of tensor cores by a dot of fp32 operands.
    InputPrecision {
        /// TF32 inputs.
        #[default]
        Tf32 = "tf32",
        /// Three TF32 dots.
        Tf32x3 = "tf32x3",
        /// IEEE fp32.
        Ieee = "ieee",
        /// Three bf16 dots.
        Bf16x3 = "bf16x3",
        /// Six bf16 dots.
        Bf16x6 = "bf16x6",
    }
    /// A promise of the program about the values of a tile.
    HintKind {
        /// Each value is a multiple of the number given for each axis.
        #[default]
        MultipleOf = "multiple_of",
        /// Runs of the length given for each axis are contiguous.
        MaxContiguous = "max_contiguous",
        /// Runs of the length given for each axis are constant.
        MaxConstancy = "max_constancy",
        /// A field of a tensor descriptor. A GPU accepts the field if it is a multiple of the first
        /// number. The unit of this number is a byte for a pointer, and an element for a stride.
        /// The second number is the index of the field: 0 for the base, `n` for the stride of axis
        /// `n - 1`. The compiler relies on the promise if the field comes from memory, but not if
        /// the launch passes it.
        Described = "described",
    }
    /// A property of the executing machine.
    MachineQuantity {
        /// Nanoseconds of a clock that all programs share, int64.
        #[default]
        GlobalTimer = "globaltimer",
        /// The index of the multiprocessor that runs the program, int32.
        Multiprocessor = "smid",
    }
    /// The synchronization of a grid with the grids before and after it, whose execution may
    /// overlap with its own.
    GridDependency {
        /// Waits until the grids before it are complete and their writes are visible.
        #[default]
        Wait = "wait",
        /// Lets the grids after it start.
        LaunchDependents = "launch_dependents",
    }
}

impl MemorySemantics {
    /// Returns whether the operation happens before the accesses that follow it.
    pub fn acquires(self) -> bool {
        matches!(self, Self::Acquire | Self::AcquireRelease)
    }

    /// Returns whether the operation happens after the accesses that precede it.
    pub fn releases(self) -> bool {
        matches!(self, Self::Release | Self::AcquireRelease)
    }
}

/// The error that a failed assertion reports.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// An assertion of the program, with its message.
    Assertion(String),
    /// The divisor of an integer division is zero.
    DivisionByZero,
    /// The index of a gather is out of bounds; the axis has this number of elements.
    IndexOutOfBounds(u32),
}

impl Failure {
    /// Returns the message of the failure.
    pub fn message(&self) -> String {
        match self {
            Failure::Assertion(message) => message.clone(),
            Failure::DivisionByZero => "integer division by zero".into(),
            Failure::IndexOutOfBounds(extent) => {
                format!("an index of `gather` is out of bounds of an axis of {extent} elements")
            }
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Assertion(message) => write!(f, "{message:?}"),
            Failure::DivisionByZero => f.write_str("division_by_zero"),
            Failure::IndexOutOfBounds(extent) => write!(f, "index_out_of_bounds({extent})"),
        }
    }
}

impl Attribute for Failure {
    fn print(&self, out: &mut String) {
        write!(out, "{self}").expect("writing to a string does not fail");
    }
    fn parse(text: &str) -> Option<Self> {
        match text {
            "division_by_zero" => Some(Failure::DivisionByZero),
            _ => match text.strip_prefix("index_out_of_bounds(").and_then(|text| text.strip_suffix(')')) {
                Some(extent) => extent.parse().ok().map(Failure::IndexOutOfBounds),
                None => String::parse(text).map(Failure::Assertion),
            },
        }
    }
}

/// `none` is the text of an op without scales.
impl Attribute for Option<ScaledFormats> {
    fn print(&self, out: &mut String) {
        match self {
            Some(ScaledFormats([a, b])) => out.extend([a.name(), " x ", b.name()]),
            None => out.push_str("none"),
        }
    }
    fn parse(text: &str) -> Option<Self> {
        if text.trim() == "none" {
            return Some(None);
        }
        let (a, b) = text.split_once(" x ")?;
        Some(Some(ScaledFormats([ScaledFormat::named(a.trim())?, ScaledFormat::named(b.trim())?])))
    }
}

impl Attribute for ScaledFormat {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }
    fn parse(text: &str) -> Option<Self> {
        Self::named(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<A: Attribute + std::fmt::Debug>(value: A) {
        let mut text = String::new();
        value.print(&mut text);
        assert_eq!(A::parse(&text), Some(value), "{text}");
    }

    #[test]
    fn attributes_round_trip() {
        round_trip(String::from("a\"b\\c\nd\té\u{1}"));
        round_trip(Shape::from([16, 32]));
        round_trip(IntList::from_slice(&[-1, 7]));
        round_trip(CacheModifier::Streaming);
        round_trip(None::<ScaledFormats>);
        round_trip(Some(ScaledFormats([ScaledFormat::E2m1, ScaledFormat::E5m2])));
        round_trip(Failure::Assertion(String::from("division_by_zero")));
        round_trip(Failure::DivisionByZero);
        round_trip(Failure::IndexOutOfBounds(16));
        round_trip(Element::Pointer(Dtype::F16));
        for &dtype in Dtype::ALL {
            for bits in [0, 1, mask(dtype.bits()), mask(dtype.bits()) >> 1, 0x7fc0_0001 & mask(dtype.bits())]
            {
                round_trip(Literal { dtype, bits });
            }
        }
    }

    #[test]
    fn literals_wrap_and_extend() {
        assert_eq!(Literal::int(Dtype::I8, 200).as_int(), Some(-56));
        assert_eq!(Literal::int(Dtype::U8, -1).as_int(), Some(255));
        assert_eq!(Literal::float(Dtype::F16, 1.5).and_then(Literal::as_float), Some(1.5));
        assert_eq!(Literal::parse("300:int8"), None);
    }

    #[test]
    fn floats_are_rounded_once() {
        let just_above_a_tie = 1.0 + 2.0_f64.powi(-11) + 2.0_f64.powi(-40);
        assert_eq!(
            Literal::float(Dtype::F16, just_above_a_tie).and_then(Literal::as_float),
            Some(1.0 + 2.0_f64.powi(-10))
        );
        let just_above_a_tie = 1.0 + 2.0_f64.powi(-8) + 2.0_f64.powi(-40);
        assert_eq!(
            Literal::float(Dtype::BF16, just_above_a_tie).and_then(Literal::as_float),
            Some(1.0 + 2.0_f64.powi(-7))
        );
        assert_eq!(Literal::float(Dtype::F16, 1e300).and_then(Literal::as_float), Some(f64::INFINITY));
        assert_eq!(Literal::float(Dtype::BF16, -1e-300).and_then(Literal::as_float), Some(-0.0));
    }
}
