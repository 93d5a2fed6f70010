//! A linear map over F2 between two spaces, with composition and inverses.

use crate::f2::{self, Columns, Span};
use crate::space::{Hardware, Input, Space, Tile};

/// A linear map over F2, represented by the image of each input bit.
///
/// `I` and `O` are [`Hardware`] or [`Tile`]; the combinations in use are [`Layout`], [`Placement`]
/// and [`Transfer`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Map<I, O> {
    input: I,
    output: O,
    columns: Columns,
}

/// The element at each hardware index, for registers or for a buffer.
pub type Layout = Map<Hardware, Tile>;

/// The hardware index of each element of a tile: the inverse of a [`Layout`].
pub type Placement = Map<Tile, Hardware>;

/// Maps hardware indices of one layout to those of another layout of the tile.
pub type Transfer = Map<Hardware, Hardware>;

impl<I: Space, O: Space> Map<I, O> {
    /// Creates the map that sends bit `i` of the input to `columns[i]`.
    ///
    /// # Panics
    /// If the number of columns is not the number of input bits, or a column is outside of the
    /// output.
    pub fn new(input: I, output: O, columns: Columns) -> Self {
        assert_eq!(columns.len(), input.bits() as usize, "a map needs one column for each bit of its input");
        let bits = output.bits();
        assert!(
            columns.iter().all(|column| u64::from(*column) < 1 << bits),
            "a column is outside of the output"
        );
        Self { input, output, columns }
    }

    /// Returns the input space.
    pub fn input(&self) -> &I {
        &self.input
    }

    /// Returns the output space.
    pub fn output(&self) -> &O {
        &self.output
    }

    /// Returns the image of each bit of the input.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Returns the image of a vector.
    pub fn apply(&self, vector: u32) -> u32 {
        f2::multiply(&self.columns, vector)
    }

    /// Composes the maps: applies this map, then `next`.
    ///
    /// # Panics
    /// If the input space of `next` differs from the output space of this map.
    #[must_use]
    pub fn then<P: Space>(&self, next: &Map<O, P>) -> Map<I, P> {
        assert_eq!(self.output, next.input, "the second map has to start where the first ends");
        let columns = self.columns.iter().map(|column| next.apply(*column)).collect();
        Map { input: self.input.clone(), output: next.output.clone(), columns }
    }

    /// Returns the dimension of the image.
    pub fn rank(&self) -> u32 {
        f2::rank(&self.columns) as u32
    }

    /// Returns whether every vector of the output is an image.
    pub fn is_surjective(&self) -> bool {
        self.rank() == self.output.bits()
    }

    /// Returns whether different vectors have different images.
    pub fn is_injective(&self) -> bool {
        self.rank() == self.input.bits()
    }

    /// Returns a basis of the vectors that the map sends to zero.
    pub fn kernel(&self) -> Columns {
        f2::kernel(&self.columns)
    }

    /// Returns the inverse map, if the map is a bijection.
    pub fn inverse(&self) -> Option<Map<O, I>> {
        let columns = f2::inverse(&self.columns, self.output.bits())?;
        Some(Map { input: self.output.clone(), output: self.input.clone(), columns })
    }

    /// Returns a map from each output vector to one of its preimages. Returns `None` if this map is
    /// not surjective. Registers are preferred to lanes, and lanes to warps.
    pub fn right_inverse(&self) -> Option<Map<O, I>> {
        let columns = f2::right_inverse(&Span::of(&self.columns), self.output.bits())?;
        Some(Map { input: self.output.clone(), output: self.input.clone(), columns })
    }

    /// Returns a map from inputs of this map to inputs of `other` with equal images. Returns `None`
    /// if an image of this map is not an image of `other`.
    ///
    /// # Panics
    /// If the maps have different output spaces.
    pub fn relative_to<J: Space>(&self, other: &Map<J, O>) -> Option<Map<I, J>> {
        assert_eq!(self.output, other.output, "the maps have to go to the same space");
        let span = Span::of(&other.columns);
        let columns: Option<Columns> =
            self.columns.iter().map(|column| span.solve(*column).map(|sum_of| sum_of as u32)).collect();
        Some(Map { input: self.input.clone(), output: other.input.clone(), columns: columns? })
    }
}

impl<O: Space> Map<Hardware, O> {
    /// Returns the images of the bits of one input, lowest first.
    pub fn bases(&self, input: Input) -> &[u32] {
        &self.columns[self.input.range(input)]
    }

    /// Returns the number of bits of one input.
    pub fn bits_of(&self, input: Input) -> u32 {
        self.input.bits_of(input)
    }

    /// Returns the image of the hardware index with these parts; other parts are 0.
    pub fn at(&self, parts: &[(Input, u32)]) -> u32 {
        self.apply(self.input.place(parts))
    }

    /// Restricts the map to these inputs; the result has no bits of the other inputs.
    #[must_use]
    pub fn restrict(&self, inputs: &[Input]) -> Self {
        let mut columns = Columns::new();
        let mut bits = [(Input::Register, 0); Input::ALL.len()];
        for (slot, input) in bits.iter_mut().zip(Input::ALL) {
            if inputs.contains(&input) {
                columns.extend_from_slice(self.bases(input));
                *slot = (input, self.bits_of(input));
            }
        }
        Self { input: Hardware::new(&bits), output: self.output.clone(), columns }
    }

    /// Replaces the bases of one input.
    #[must_use]
    pub fn with_bases(&self, input: Input, bases: &[u32]) -> Self {
        let bits = Input::ALL
            .map(|each| (each, if each == input { bases.len() as u32 } else { self.bits_of(each) }));
        let columns = Input::ALL
            .into_iter()
            .flat_map(|each| if each == input { bases } else { self.bases(each) })
            .copied()
            .collect();
        Self::new(Hardware::new(&bits), self.output.clone(), columns)
    }
}
