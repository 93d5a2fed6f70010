//! Values of a running program: what a slot holds.
//!
//! A value does not know its type; the slot does ([`TileType`](crate::types::TileType)). A scalar is always
//! [`Form::Uniform`]. A tile has any form that describes it: the forms are equal in meaning, and no result depends on which
//! one a tile has.

use crate::run::argument::Argument;
use crate::run::tile::Tile;
use crate::types::{SYMBOLIC_RANK, TileType};

/// Elements `base + Σ strides[axis] * index[axis]`, modulo 2 to the width of the element type.
///
/// `base` is the element at the origin, extended to 64 bits as its type says (the bits as they are for 64-bit types);
/// strides are sign-extended from the element's width. A stride along an axis of extent 1 is 0, and not all are.
/// Pointers count in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Affine {
    pub base: i64,
    pub strides: [i64; SYMBOLIC_RANK],
}

/// True where the index is in `low..high` along every axis. Neither empty nor the whole tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BoxMask {
    pub low: [u32; SYMBOLIC_RANK],
    pub high: [u32; SYMBOLIC_RANK],
}

/// How the elements of a value are represented.
#[derive(Clone, Debug)]
#[repr(u64)]
pub(crate) enum Form {
    /// All elements have these bits; those above the width are zero.
    Uniform(u64),
    /// Integers or pointers in arithmetic progression.
    Affine(Affine),
    /// Booleans that are true in a box.
    Box(BoxMask),
    /// Elements in memory.
    Dense(Tile),
}

/// The provenance of a pointer: the argument of the kernel that it is derived from.
///
/// It is a whole word, as the tag of a [`Form`] is: values are copied by words, and store forwarding fails where a word is
/// read of which only a part has just been written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Provenance(u64);

impl Provenance {
    /// Derived from an integer or from several arguments; also that of values that are not pointers.
    pub(crate) const UNKNOWN: Provenance = Provenance(u64::MAX);

    /// The argument with this number.
    pub(crate) fn argument(index: usize) -> Self {
        Self(index as u64)
    }

    /// The number of the argument.
    pub(crate) fn index(self) -> Option<usize> {
        (self != Self::UNKNOWN).then_some(self.0 as usize)
    }

    /// The provenance of a pointer that is one of two.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::UNKNOWN }
    }
}

/// What a slot holds.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub form: Form,
    pub provenance: Provenance,
}

impl Value {
    /// The value of an empty slot.
    pub(crate) const EMPTY: Value = Value { form: Form::Uniform(0), provenance: Provenance::UNKNOWN };

    pub(crate) fn uniform(bits: u64) -> Self {
        Form::Uniform(bits).into()
    }

    /// The value of an argument of a launch, for a parameter of this type.
    pub(crate) fn of_argument(index: usize, argument: &Argument<'_>, ty: &TileType) -> Self {
        match argument {
            Argument::Pointer { address, .. } => {
                Self::uniform(*address).with_provenance(Provenance::argument(index))
            }
            Argument::Scalar(bits) => Self::uniform(ty.number.truncate(*bits)),
        }
    }

    pub(crate) fn dense(tile: Tile) -> Self {
        Form::Dense(tile).into()
    }

    /// The bits of a scalar.
    pub(crate) fn scalar(&self) -> u64 {
        match self.form {
            Form::Uniform(bits) => bits,
            _ => unreachable!("scalars are uniform"),
        }
    }

    #[must_use]
    pub(crate) fn with_provenance(mut self, provenance: Provenance) -> Self {
        self.provenance = provenance;
        self
    }
}

impl From<Form> for Value {
    fn from(form: Form) -> Self {
        Self { form, provenance: Provenance::UNKNOWN }
    }
}
