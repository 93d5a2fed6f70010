//! Types of values: element types, shapes, and tiles of elements.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_layout::StatedLayout;

macro_rules! dtypes {
    ($($variant:ident $name:literal $bits:literal $kind:ident $doc:literal;)*) => {
        /// The type of a number in memory and in a tile.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Dtype {
            $(#[doc = $doc] $variant,)*
        }

        impl Dtype {
            /// Every element type.
            pub const ALL: &[Dtype] = &[$(Dtype::$variant,)*];

            /// Returns the name that Triton prints, such as `fp32`.
            pub fn name(self) -> &'static str {
                match self { $(Dtype::$variant => $name,)* }
            }

            /// Returns the width in bits; 1 for booleans.
            pub fn bits(self) -> u32 {
                match self { $(Dtype::$variant => $bits,)* }
            }

            /// Returns the family of the type.
            pub fn kind(self) -> DtypeKind {
                match self { $(Dtype::$variant => DtypeKind::$kind,)* }
            }
        }
    };
}

/// The families of element types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DtypeKind {
    /// `int1`.
    Bool,
    /// Signed integers, two's complement.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Floating point.
    Float,
}

dtypes! {
    I1 "int1" 1 Bool "A boolean, stored as one byte that is 0 or 1.";
    I8 "int8" 8 Signed "8-bit signed integer.";
    I16 "int16" 16 Signed "16-bit signed integer.";
    I32 "int32" 32 Signed "32-bit signed integer.";
    I64 "int64" 64 Signed "64-bit signed integer.";
    U8 "uint8" 8 Unsigned "8-bit unsigned integer.";
    U16 "uint16" 16 Unsigned "16-bit unsigned integer.";
    U32 "uint32" 32 Unsigned "32-bit unsigned integer.";
    U64 "uint64" 64 Unsigned "64-bit unsigned integer.";
    F8E5 "fp8e5" 8 Float "E5M2 with infinities and NaNs (OCP FP8).";
    F8E4NV "fp8e4nv" 8 Float "E4M3 with NaNs and no infinities (OCP FP8).";
    F8E4B15 "fp8e4b15" 8 Float "E4M3 with bias 15, no infinities and no NaNs.";
    F8E4B8 "fp8e4b8" 8 Float "E4M3 with bias 8, one NaN, no infinities and no negative zero.";
    F8E5B16 "fp8e5b16" 8 Float "E5M2 with bias 16, one NaN, no infinities and no negative zero.";
    F16 "fp16" 16 Float "IEEE binary16.";
    BF16 "bf16" 16 Float "bfloat16.";
    F32 "fp32" 32 Float "IEEE binary32.";
    F64 "fp64" 64 Float "IEEE binary64.";
}

impl Dtype {
    /// Returns the size of an element in bytes, in memory and in a tile.
    pub fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// Returns whether the type is floating point.
    pub fn is_float(self) -> bool {
        self.kind() == DtypeKind::Float
    }

    /// Returns whether the type is one of the 8-bit floating-point formats.
    pub fn is_fp8(self) -> bool {
        self.is_float() && self.bits() == 8
    }

    /// Returns whether the type is an integer type, `int1` included.
    pub fn is_int(self) -> bool {
        !self.is_float()
    }

    /// Returns whether the type is `int1`.
    pub fn is_bool(self) -> bool {
        self == Dtype::I1
    }

    /// Returns whether the type is a signed integer type.
    pub fn is_signed(self) -> bool {
        self.kind() == DtypeKind::Signed
    }

    /// Returns the smallest and largest value of an integer type (0 and 1 for `int1`). Returns
    /// `None` for floating point.
    pub fn int_range(self) -> Option<(i128, i128)> {
        let bits = self.bits();
        match self.kind() {
            DtypeKind::Float => None,
            DtypeKind::Signed => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
            DtypeKind::Bool | DtypeKind::Unsigned => Some((0, (1 << bits) - 1)),
        }
    }

    /// Returns the type with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of an element of a tile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Element {
    /// A number.
    Value(Dtype),
    /// The address of a number of this type in global memory.
    Pointer(Dtype),
}

impl Element {
    /// Returns the number type; `None` for a pointer.
    pub fn value(self) -> Option<Dtype> {
        match self {
            Element::Value(dtype) => Some(dtype),
            Element::Pointer(_) => None,
        }
    }

    /// Returns the pointee of a pointer; `None` for a number.
    pub fn pointee(self) -> Option<Dtype> {
        match self {
            Element::Value(_) => None,
            Element::Pointer(dtype) => Some(dtype),
        }
    }

    /// Returns the size of an element of a tile in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Element::Value(dtype) => dtype.bytes(),
            Element::Pointer(_) => 8,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Value(dtype) => write!(f, "{dtype}"),
            Element::Pointer(dtype) => write!(f, "*{dtype}"),
        }
    }
}

/// The extents of a tile, outermost first; empty for a scalar.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Shape(pub SmallVec<[u32; 4]>);

impl Shape {
    /// Returns the shape of a scalar.
    pub fn scalar() -> Self {
        Self::default()
    }

    /// Returns the number of elements; 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.0.iter().map(|&extent| extent as usize).product()
    }

    /// Returns the shape without one axis.
    #[must_use]
    pub fn without(&self, axis: usize) -> Self {
        let mut extents = self.0.clone();
        extents.remove(axis);
        Self(extents)
    }
}

impl std::ops::Deref for Shape {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.0
    }
}

impl<const N: usize> From<[u32; N]> for Shape {
    fn from(extents: [u32; N]) -> Self {
        Self(SmallVec::from_slice(&extents))
    }
}

impl FromIterator<u32> for Shape {
    fn from_iter<I: IntoIterator<Item = u32>>(extents: I) -> Self {
        Self(extents.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, extent) in self.iter().enumerate() {
            write!(f, "{}{extent}", if axis == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The type of a value: a scalar or a tile of elements.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type {
    /// The element.
    pub element: Element,
    /// The extents; empty for a scalar.
    pub shape: Shape,
    /// The layout of a tile, if the program states it (Gluon).
    pub layout: Option<Arc<StatedLayout>>,
}

impl Type {
    /// Returns the type of scalars or tiles without a stated layout.
    pub fn new(element: Element, shape: Shape) -> Self {
        Self { element, shape, layout: None }
    }

    /// Returns the type of a scalar number.
    pub fn scalar(dtype: Dtype) -> Self {
        Self::new(Element::Value(dtype), Shape::scalar())
    }

    /// Returns the type of a scalar pointer.
    pub fn pointer(pointee: Dtype) -> Self {
        Self::new(Element::Pointer(pointee), Shape::scalar())
    }

    /// Returns the type of a tile of numbers.
    pub fn tile(dtype: Dtype, shape: impl Into<Shape>) -> Self {
        Self::new(Element::Value(dtype), shape.into())
    }

    /// Returns the type with this layout.
    #[must_use]
    pub fn with_layout(&self, layout: Option<Arc<StatedLayout>>) -> Self {
        Self { layout, ..self.clone() }
    }

    /// Returns whether the type is a scalar (number or pointer).
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number type, or `None` for pointers.
    pub fn dtype(&self) -> Option<Dtype> {
        self.element.value()
    }

    /// Returns the type with this shape and layout, and another element.
    #[must_use]
    pub fn with_element(&self, element: Element) -> Self {
        Self { element, ..self.clone() }
    }

    /// Returns the type with this shape and numbers of the type `dtype`.
    #[must_use]
    pub fn with_dtype(&self, dtype: Dtype) -> Self {
        self.with_element(Element::Value(dtype))
    }

    /// Returns the type with this element and another shape, without a layout.
    #[must_use]
    pub fn with_shape(&self, shape: Shape) -> Self {
        Self::new(self.element, shape)
    }

    /// Returns whether the type is a scalar or tile of booleans.
    pub fn is_bool(&self) -> bool {
        self.dtype() == Some(Dtype::I1)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.element)?;
        if !self.is_scalar() {
            write!(f, "{}", self.shape)?;
        }
        self.layout.as_ref().map_or(Ok(()), |layout| write!(f, "<{layout}>"))
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for &dtype in Dtype::ALL {
            assert_eq!(Dtype::parse(dtype.name()), Some(dtype));
        }
        assert_eq!(Type::tile(Dtype::F32, [16, 32]).to_string(), "fp32[16, 32]");
        assert_eq!(Type::pointer(Dtype::BF16).to_string(), "*bf16");
    }

    #[test]
    fn integer_ranges() {
        assert_eq!(Dtype::I8.int_range(), Some((-128, 127)));
        assert_eq!(Dtype::U64.int_range(), Some((0, i128::from(u64::MAX))));
        assert_eq!(Dtype::I1.int_range(), Some((0, 1)));
        assert_eq!(Dtype::F16.int_range(), None);
    }
}
