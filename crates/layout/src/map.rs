//! A linear map between two named spaces, and what every such map has: application, composition, inverses.

use crate::f2::{self, Columns, Span};
use crate::space::{Hardware, Input, Space, Tile};

/// A linear map over F2 from `I` to `O`. It is given by its bases: the image of each bit of the input.
///
/// `I` and `O` are [`Hardware`] or [`Tile`]; [`Layout`], [`Placement`] and [`Transfer`] are the three that occur.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Map<I, O> {
    input: I,
    output: O,
    columns: Columns,
}

/// Which element of a tile each place holds: the layout of a value in registers, or of a buffer in memory.
pub type Layout = Map<Hardware, Tile>;

/// In which place each element of a tile is: the inverse of a [`Layout`].
pub type Placement = Map<Tile, Hardware>;

/// From which place of one layout to which of another an element goes: two layouts of one tile, composed.
pub type Transfer = Map<Hardware, Hardware>;

impl<I: Space, O: Space> Map<I, O> {
    /// The map that sends bit `i` of the input to `columns[i]`.
    ///
    /// # Panics
    /// If there is not one column for each bit of the input, or a column is outside of the output.
    pub fn new(input: I, output: O, columns: Columns) -> Self {
        assert_eq!(columns.len(), input.bits() as usize, "a column for each bit of the input");
        let bits = output.bits();
        assert!(
            columns.iter().all(|column| u64::from(*column) < 1 << bits),
            "a column is outside of the output"
        );
        Self { input, output, columns }
    }

    /// The space that the map goes from.
    pub fn input(&self) -> &I {
        &self.input
    }

    /// The space that the map goes to.
    pub fn output(&self) -> &O {
        &self.output
    }

    /// The image of each bit of the input.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// The image of a vector.
    pub fn apply(&self, vector: u32) -> u32 {
        f2::multiply(&self.columns, vector)
    }

    /// This map, then another.
    ///
    /// # Panics
    /// If the other does not start where this one ends.
    #[must_use]
    pub fn then<P: Space>(&self, next: &Map<O, P>) -> Map<I, P> {
        assert_eq!(self.output, next.input, "the second map has to start where the first ends");
        let columns = self.columns.iter().map(|column| next.apply(*column)).collect();
        Map { input: self.input.clone(), output: next.output.clone(), columns }
    }

    /// The dimension of the image.
    pub fn rank(&self) -> u32 {
        f2::rank(&self.columns) as u32
    }

    /// Whether every vector of the output is an image.
    pub fn is_surjective(&self) -> bool {
        self.rank() == self.output.bits()
    }

    /// Whether different vectors have different images.
    pub fn is_injective(&self) -> bool {
        self.rank() == self.input.bits()
    }

    /// A basis of the vectors that the map sends to zero.
    pub fn kernel(&self) -> Columns {
        f2::kernel(&self.columns)
    }

    /// The inverse map, if the map is a bijection.
    pub fn inverse(&self) -> Option<Map<O, I>> {
        let columns = f2::inverse(&self.columns, self.output.bits())?;
        Some(Map { input: self.output.clone(), output: self.input.clone(), columns })
    }

    /// The map that sends every vector of the output to one vector with that image, if the map is surjective. Where
    /// there is a choice it uses the lowest bits of the input that will do: registers before lanes before warps.
    pub fn right_inverse(&self) -> Option<Map<O, I>> {
        let columns = f2::right_inverse(&Span::of(&self.columns), self.output.bits())?;
        Some(Map { input: self.output.clone(), output: self.input.clone(), columns })
    }

    /// From each vector of this map's input to one of `other`'s input with the same image, if the images of this map are
    /// images of the other.
    ///
    /// # Panics
    /// If the maps go to different spaces.
    pub fn relative_to<J: Space>(&self, other: &Map<J, O>) -> Option<Map<I, J>> {
        assert_eq!(self.output, other.output, "the maps have to go to the same space");
        let span = Span::of(&other.columns);
        let columns: Option<Columns> =
            self.columns.iter().map(|column| span.solve(*column).map(|sum_of| sum_of as u32)).collect();
        Some(Map { input: self.input.clone(), output: other.input.clone(), columns: columns? })
    }
}

impl<O: Space> Map<Hardware, O> {
    /// The images of the bits of one input, lowest first.
    pub fn bases(&self, input: Input) -> &[u32] {
        &self.columns[self.input.range(input)]
    }

    /// The number of bits of one input.
    pub fn bits_of(&self, input: Input) -> u32 {
        self.input.bits_of(input)
    }

    /// The image of the place with these parts; parts that are not named are 0.
    pub fn at(&self, parts: &[(Input, u32)]) -> u32 {
        self.apply(self.input.place(parts))
    }

    /// The map with the inputs that are listed alone; the others are 0.
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

    /// The map with other bases for one input, as many as are given.
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
