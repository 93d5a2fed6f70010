//! Defines the values in the slots of a running program.
//!
//! The type of a value is that of its slot. A scalar is always [`Form::Uniform`]. A tile has any
//! form that represents its elements, and no result depends on the form.

use crate::run::argument::Argument;
use crate::run::tile::Tile;
use crate::types::{SYMBOLIC_RANK, TileType};

/// The elements `base + Σ strides[axis] * index[axis]`, modulo `2^width` of the element type.
///
/// `base` is extended to 64 bits as its type requires, and strides are sign-extended. The stride of
/// an axis of extent 1 is 0, and at least one stride is not 0. For pointers, base and strides are
/// in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Affine {
    pub base: i64,
    pub strides: [i64; SYMBOLIC_RANK],
}

/// A mask that is true where the index is in `low..high` along every axis. The box is neither empty
/// nor the whole tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BoxMask {
    pub low: [u32; SYMBOLIC_RANK],
    pub high: [u32; SYMBOLIC_RANK],
}

/// The representation of a value's elements.
#[derive(Clone, Debug)]
#[repr(u64)]
pub(crate) enum Form {
    /// All elements have these bits. The bits above the width of the type are zero.
    Uniform(u64),
    /// Integers or pointers in arithmetic progression.
    Affine(Affine),
    /// Booleans that are true in a box.
    Box(BoxMask),
    /// Elements in memory.
    Dense(Tile),
    /// Elements in user memory at these addresses, which have all been checked. Only a dot reads
    /// the elements. The memory does not change before the dot reads it ([`Program::in_place`]).
    ///
    /// [`Program::in_place`]: crate::program::Program::in_place
    InPlace(Affine),
}

/// The kernel argument from which a pointer is derived.
///
/// It fills a word, like the tag of a [`Form`], because values are copied word by word. Store
/// forwarding fails for a word that was stored in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Provenance(u64);

impl Provenance {
    /// The provenance of pointers from integers or several arguments, and of other values.
    pub(crate) const UNKNOWN: Provenance = Provenance(u64::MAX);

    pub(crate) fn argument(index: usize) -> Self {
        Self(index as u64)
    }

    pub(crate) fn index(self) -> Option<usize> {
        (self != Self::UNKNOWN).then_some(self.0 as usize)
    }

    /// Returns the provenance of a pointer with either of two provenances.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::UNKNOWN }
    }
}

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

    /// Returns the value of a launch argument for a parameter of type `ty`.
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
