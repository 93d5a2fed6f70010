//! Defines the types of slots, with derived properties.

use smallvec::SmallVec;
use tilewright_ir::{Dtype, Element, Shape, Type};

/// The maximum rank of symbolic tiles (affine tiles and box masks, `run/symbolic.rs`).
pub(crate) const SYMBOLIC_RANK: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct TileType {
    /// The element type.
    pub element: Element,
    /// The size of an element in bytes.
    pub size: usize,
    /// For pointer elements, the size of the pointee in bytes. For other elements, it is 1.
    pub pointee: usize,
    pub number: Number,
    pub extents: Extents,
}

/// The type in which elements are computed: `uint64` for pointers, otherwise the element type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub dtype: Dtype,
    /// 64 minus the width in bits.
    unused: u32,
    signed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Extents {
    /// The extents. For a scalar, the list is empty.
    pub shape: Shape,
    /// The number of elements.
    pub elements: usize,
    /// True if the rank is at most [`SYMBOLIC_RANK`], so the tile may be symbolic.
    pub may_be_symbolic: bool,
    /// The number of axes, capped at [`SYMBOLIC_RANK`].
    pub rank: usize,
    /// The last index along each of the first `rank` axes. For the other axes, it is 0.
    pub last: [i64; SYMBOLIC_RANK],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub number: Number,
    pub extents: &'a Extents,
}

impl Number {
    pub(crate) fn new(dtype: Dtype) -> Self {
        Self { dtype, unused: 64 - dtype.bits(), signed: dtype.is_signed() }
    }

    /// Returns whether the type is an integer of at least 8 bits, or a pointer.
    #[inline]
    pub(crate) fn may_be_affine(self) -> bool {
        self.dtype.is_int() && self.unused < 63
    }

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        64 - self.unused
    }

    #[inline]
    pub(crate) fn is_signed(self) -> bool {
        self.signed
    }

    #[inline]
    pub(crate) fn is_bool(self) -> bool {
        self.unused == 63
    }

    #[inline]
    pub(crate) fn truncate(self, bits: u64) -> u64 {
        bits << self.unused >> self.unused
    }

    #[inline]
    pub(crate) fn sign_extend(self, bits: u64) -> i64 {
        (bits << self.unused) as i64 >> self.unused
    }

    /// Extends the bits of a number to 64 bits: sign-extends a signed number, zero-extends others.
    #[inline]
    pub(crate) fn extend(self, bits: u64) -> i64 {
        if self.signed { self.sign_extend(bits) } else { self.truncate(bits) as i64 }
    }

    /// Returns whether the type represents all numbers from `low` to `high`.
    #[inline]
    pub(crate) fn contains(self, low: i64, high: i64) -> bool {
        let is_itself = |value: i64| self.extend(value as u64) == value;
        // Large `uint64` numbers are negative as an `i64`, so negative bounds of unsigned types are
        // rejected.
        is_itself(low) && is_itself(high) && (self.signed || low >= 0)
    }
}

impl Extents {
    pub(crate) fn new(shape: Shape) -> Self {
        let mut extents = Self {
            elements: shape.elements(),
            may_be_symbolic: shape.len() <= SYMBOLIC_RANK,
            rank: shape.len().min(SYMBOLIC_RANK),
            last: [0; SYMBOLIC_RANK],
            shape,
        };
        for (axis, &extent) in extents.shape.iter().enumerate().take(SYMBOLIC_RANK) {
            extents.last[axis] = i64::from(extent) - 1;
        }
        extents
    }
}

impl TileType {
    pub(crate) fn new(ty: &Type) -> Self {
        Self::with_shape(ty.element, ty.shape.clone())
    }

    pub(crate) fn with_shape(element: Element, shape: Shape) -> Self {
        Self {
            element,
            size: element.bytes(),
            pointee: element.pointee().map_or(1, Dtype::bytes),
            number: Number::new(element.value().unwrap_or(Dtype::U64)),
            extents: Extents::new(shape),
        }
    }

    /// Returns the type of a tile with elements of another type and the same extents.
    pub(crate) fn of(&self, dtype: Dtype) -> Self {
        Self {
            element: Element::Value(dtype),
            size: dtype.bytes(),
            pointee: 1,
            number: Number::new(dtype),
            extents: self.extents.clone(),
        }
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        View { number: self.number, extents: &self.extents }
    }

    /// Returns the type in which elements are computed (see [`Number`]).
    #[inline]
    pub(crate) fn dtype(&self) -> Dtype {
        self.number.dtype
    }

    #[inline]
    pub(crate) fn shape(&self) -> &[u32] {
        &self.extents.shape
    }

    #[inline]
    pub(crate) fn elements(&self) -> usize {
        self.extents.elements
    }

    #[inline]
    pub(crate) fn is_scalar(&self) -> bool {
        self.extents.shape.is_empty()
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.extents.elements * self.size
    }

    pub(crate) fn is_pointer(&self) -> bool {
        matches!(self.element, Element::Pointer(_))
    }

    /// Returns the coordinates of the element with a row-major index.
    pub(crate) fn lane(&self, mut element: usize) -> SmallVec<[u32; 4]> {
        let mut lane: SmallVec<[u32; 4]> = SmallVec::from_elem(0, self.shape().len());
        for (index, &extent) in lane.iter_mut().zip(self.shape()).rev() {
            let extent = extent.max(1) as usize;
            *index = (element % extent) as u32;
            element /= extent;
        }
        lane
    }
}
