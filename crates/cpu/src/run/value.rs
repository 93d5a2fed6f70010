//! The values in the slots of a running program.
//!
//! A value does not store its type: its slot has the type ([`TileType`](crate::types::TileType)). A
//! scalar is always [`Form::Uniform`]. A tile has any form that represents its elements; no result
//! depends on the form.

use crate::run::argument::Argument;
use crate::run::tile::Tile;
use crate::types::{SYMBOLIC_RANK, TileType};

/// The elements `base + Σ strides[axis] * index[axis]`, modulo `2^width`, where `width` is the
/// number of bits of the element type.
///
/// `base` is the element at index 0 along every axis. It is extended to 64 bits as its type
/// requires; numbers of 64 bits are unchanged. Strides are sign-extended from the width of the
/// element. The stride of an axis of extent 1 is 0, and at least one stride is not 0. For pointers,
/// base and strides are in bytes.
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

/// The provenance of a pointer: the kernel argument from which the pointer is derived.
///
/// The provenance fills a whole word, like the tag of a [`Form`]. Values are copied word by word.
/// If a store has just written only a part of a word, store forwarding to the load of the word
/// fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Provenance(u64);

impl Provenance {
    /// The provenance of pointers that are derived from an integer or from several arguments, and
    /// of values that are not pointers.
    pub(crate) const UNKNOWN: Provenance = Provenance(u64::MAX);

    /// Returns the provenance of an argument.
    pub(crate) fn argument(index: usize) -> Self {
        Self(index as u64)
    }

    /// Returns the index of the argument.
    pub(crate) fn index(self) -> Option<usize> {
        (self != Self::UNKNOWN).then_some(self.0 as usize)
    }

    /// Returns the provenance of a pointer that has either of two provenances: [`Self::UNKNOWN`] if
    /// they differ.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::UNKNOWN }
    }
}

/// The content of a slot.
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

    /// Returns the bits of a scalar.
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
