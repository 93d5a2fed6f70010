//! Builds the layouts of the fragments of tensor core instructions. The PTX ISA defines them in
//! "Matrix Fragments for mma" and "Matrix Fragments for `wgmma.mma_async`". All shapes follow one
//! pattern:
//!
//! A warp is eight groups of four lanes. In an operand, the four lanes of a group are along `k`.
//! Each lane has one 32-bit word of elements, or one 64-bit element. In the accumulator, the four
//! lanes are along `n`, and each lane has two elements. The eight groups are along `m`, but along
//! `n` in operand B. Further registers repeat this pattern, first for rows 8 to 15, then along the
//! other axis.

use smallvec::SmallVec;

use crate::map::Layout;
use crate::space::Input;

/// The shape `m × n × k` of a matrix instruction of the tensor cores. With `m` of 8 or 16, the
/// instruction is `mma.sync` of one warp. With `m` of 64, it is `wgmma` of a warpgroup, 16 rows for
/// each of its four warps.
///
/// The elements of an operand's fragment are in the order of the bits of its registers. A 32-bit
/// register has two 16-bit elements, or four 8-bit elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mma {
    /// Rows of A and of the accumulator: 8, 16 or 64.
    pub m: u32,
    /// Columns of B and of the accumulator: 8, for `wgmma` also 16 to 256.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Bits of an element of A and B: 4, 8, 16, 32 (TF32) or 64.
    pub operand_bits: u32,
}

impl Mma {
    /// Creates the instruction `m × n × k` with operand elements of this width in bits.
    pub const fn new(m: u32, n: u32, k: u32, operand_bits: u32) -> Self {
        Self { m, n, k, operand_bits }
    }

    /// Returns the layout of operand A, a tile `[m, k]`.
    ///
    /// # Panics
    /// If no instruction has this shape.
    pub fn a(self) -> Layout {
        let word = self.elements_per_word();
        let rows = count(0, Input::Lane, 8);
        count(1, Input::Register, word)
            .product(&count(1, Input::Lane, 4))
            .product(&rows)
            .product(&self.upper_rows())
            .product(&count(1, Input::Register, self.words_of_k()))
    }

    /// Returns the layout of operand B, a tile `[k, n]`.
    ///
    /// # Panics
    /// If no instruction has this shape, or if the instruction reads B only from shared memory.
    pub fn b(self) -> Layout {
        assert!(self.m < 64 && self.n == 8, "{self:?} takes no operand B from registers");
        count(0, Input::Register, self.elements_per_word())
            .product(&count(0, Input::Lane, 4))
            .product(&count(1, Input::Lane, 8))
            .product(&count(0, Input::Register, self.words_of_k()))
    }

    /// Returns the layout of the accumulator, a tile `[m, n]`.
    ///
    /// # Panics
    /// If no instruction has this shape.
    pub fn accumulator(self) -> Layout {
        assert!(self.n >= 8 && self.n.is_power_of_two(), "no instruction has the shape {self:?}");
        count(1, Input::Register, 2)
            .product(&count(1, Input::Lane, 4))
            .product(&count(0, Input::Lane, 8))
            .product(&self.upper_rows())
            .product(&count(1, Input::Register, self.n / 8))
    }

    /// Returns the layout of a fragment of a larger dot. The shape is `[.., M, K]`, `[.., K, N]` or
    /// `[.., M, N]`. `warps` has the number of warps along M and along N, the lowest warp bits
    /// along M. For `wgmma`, the number along M includes the four warps of a warpgroup. With three
    /// numbers, the first one is along the leading axis, and the highest warp bits are along it.
    ///
    /// If the warps do not cover the tile, further registers repeat the fragment, the last axis
    /// fastest. Warps that need the same elements of an operand hold copies.
    ///
    /// # Panics
    /// If an axis is shorter than the instruction's, or no instruction has this shape.
    pub fn layout(self, fragment: Fragment, shape: &[u32], warps: impl AsRef<[u32]>) -> Layout {
        let (batches, warps) = match *warps.as_ref() {
            [m, n] => (1, [m, n]),
            [batches, m, n] => (batches, [m, n]),
            ref other => panic!("warps lie along two or three axes, found {other:?}"),
        };
        let along = |axis: usize, size: u32| count(axis, Input::Warp, size);
        let copies = |size: u32| Layout::replicated(2, Input::Warp, size);
        let (m, n) = (warps[0] / (self.m / 16).max(1), warps[1]);
        assert!(m > 0, "{self:?} needs the four warps of a warpgroup along M");
        let layout = match fragment {
            Fragment::A => self.a().product(&along(0, m)).product(&copies(n)),
            Fragment::B => self.b().product(&copies(m)).product(&along(1, n)),
            Fragment::Accumulator => self.accumulator().product(&along(0, m)).product(&along(1, n)),
        };
        let batch_axes = shape.len() - 2;
        let instruction = match fragment {
            Fragment::A => [self.m, self.k],
            Fragment::B => [self.k, self.n],
            Fragment::Accumulator => [self.m, self.n],
        };
        let fits = shape[batch_axes..].iter().zip(instruction).all(|(size, least)| *size >= least);
        assert!(fits, "{shape:?} is smaller than the {fragment:?} of {self:?}");
        let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
        let layout = (0..batch_axes).fold(layout, |layout, _| layout.insert_axis(0));
        let layout = if batches > 1 {
            assert!(
                batch_axes > 0 && shape[0] >= batches,
                "axis 0 of {shape:?} is shorter than its {batches} warps"
            );
            layout.product(&Layout::identity(shape.len(), 0, Input::Warp, batches))
        } else {
            layout
        };
        layout.cover(shape, &order)
    }

    /// Returns [`layout`](Self::layout), with the lowest warp bits along N if `n_first`.
    ///
    /// # Panics
    /// In the cases in which [`layout`](Self::layout) panics.
    pub fn layout_by(
        self,
        fragment: Fragment,
        shape: &[u32],
        warps: impl AsRef<[u32]>,
        n_first: bool,
    ) -> Layout {
        let layout = self.layout(fragment, shape, warps.as_ref());
        match (n_first, warps.as_ref()) {
            (true, [.., m, n]) => layout.with_exchanged_warps(m.ilog2(), n.ilog2()),
            _ => layout,
        }
    }

    /// Returns whether the lowest warp bits are along N in a result of
    /// [`layout_by`](Self::layout_by). Returns false if both orders of the bits have the same
    /// layout.
    pub fn is_n_first(self, accumulator: &Layout, warps: impl AsRef<[u32]>) -> bool {
        let shape = accumulator.output().shape();
        self.m < 64 && self.layout(Fragment::Accumulator, &shape, warps) != *accumulator
    }

    /// Returns the layout of rows 8 to 15, in further registers, and of further warps.
    fn upper_rows(self) -> Layout {
        assert!(matches!(self.m, 8 | 16 | 64), "no instruction has the shape {self:?}");
        count(0, Input::Register, self.m.min(16) / 8).product(&count(0, Input::Warp, (self.m / 16).max(1)))
    }

    fn elements_per_word(self) -> u32 {
        (32 / self.operand_bits).max(1)
    }

    fn words_of_k(self) -> u32 {
        let times = self.k / (4 * self.elements_per_word());
        assert!(times > 0 && self.k.is_power_of_two(), "no instruction has the shape {self:?}");
        times
    }
}

/// The fragments of a matrix multiplication, each with its own layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// The left operand.
    A,
    /// The right operand.
    B,
    /// The accumulator, and the result.
    Accumulator,
}

fn count(axis: usize, input: Input, size: u32) -> Layout {
    Layout::identity(2, axis, input, size)
}
