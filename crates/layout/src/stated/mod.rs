//! The layout classes of Gluon, each with its linear layout.
//!
//! A [`StatedLayout`] belongs to a tile in registers, a [`StatedBuffer`] to shared memory. Each
//! prints as the Python expression that makes the object.

mod clusters;
mod fp4_padding;
mod parse;
mod tensor_memory;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::banks::padded_bank_use;
use crate::blocked::{blocked, coalesced};
use crate::f2::Columns;
use crate::map::Layout;
use crate::memory::{SwizzleMode, swizzled};
use crate::space::{Hardware, Input, Tile};
use crate::tensor_core::{Fragment, Mma};

use fp4_padding::FP4_INTERVAL;

pub use clusters::Division;
pub use tensor_memory::TensorMemoryBlock;

/// A size for each axis, or a list of axes.
pub type Sizes = SmallVec<[u32; 3]>;

/// The images of the bits of a hardware index: the coordinates that each bit contributes.
pub type Bases = Vec<Sizes>;

/// A layout of a tile in registers, as a program states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatedLayout {
    /// See [`blocked`].
    Blocked {
        /// The number of elements of a thread along each axis.
        size_per_thread: Sizes,
        /// The number of lanes of a warp along each axis.
        threads_per_warp: Sizes,
        /// The number of warps of a block along each axis.
        warps_per_cta: Sizes,
        /// The axes from the fastest to the slowest.
        order: Sizes,
        /// For each bit of a block's rank, its coordinates in the grid of parts. Each block holds
        /// one part of the tile.
        cga: Bases,
    },
    /// The layout `parent` without the axis `dim`.
    Slice {
        /// The removed axis.
        dim: u32,
        /// The layout with the axis `dim`.
        parent: Arc<Self>,
    },
    /// A linear layout, stated by its bases.
    Linear {
        /// The bases of the registers, of the lanes and of the warps.
        bases: [Bases; 3],
        /// The bases of the blocks of a cluster.
        blocks: Bases,
        /// The extents of the tile.
        shape: Sizes,
    },
    /// Operand A or B of a dot whose accumulator has the layout `parent`.
    DotOperand {
        /// 0 for operand A, 1 for operand B.
        index: u32,
        /// The layout of the accumulator.
        parent: Arc<Self>,
        /// The number of elements in a 32-bit register; 0 for a blocked parent.
        k_width: u32,
    },
    /// The accumulator of `mma.sync` or `wgmma`.
    Mma {
        /// 2 for `mma.sync`, 3 for `wgmma`.
        version: u32,
        /// The number of warps along M and along N. With three numbers, the first one is the number
        /// along the leading axis.
        warps_per_cta: Sizes,
        /// The extents of the instruction for one warp: `[M, N]`, `[M, N, K]` or `[1, M, N]`.
        instr_shape: Sizes,
        /// The bases of the blocks, as in [`StatedLayout::Blocked`].
        cga: Bases,
    },
    /// The accumulator of `wgmma`s in flight. After a wait, it becomes a tile of the layout
    /// `accumulator`.
    InFlight {
        /// The layout of the accumulator.
        accumulator: Arc<Self>,
    },
}

/// A layout of a tile in shared memory, as a program states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatedBuffer {
    /// Rows along `order[0]`, which consist of vectors of `vec` elements. Vector `v` of row `r` is
    /// at position `v ^ (r / per_phase % max_phase)` of the row.
    Swizzled {
        /// The number of elements of a vector.
        vec: u32,
        /// The number of consecutive rows that have the same permutation.
        per_phase: u32,
        /// The number of permutations.
        max_phase: u32,
        /// The axes from the fastest to the slowest.
        order: Sizes,
        /// The bases of the blocks, as in [`StatedLayout::Blocked`].
        cga: Bases,
    },
    /// The swizzle of tensor copies and `wgmma`; see [`swizzled`].
    Nvmma {
        /// The bytes of a swizzled row: 32, 64 or 128; 0 without a swizzle.
        swizzle_byte_width: u32,
        /// The number of bits of an element.
        element_bitwidth: u32,
        /// The number of axes.
        rank: u32,
        /// True if the first of the last two axes is contiguous.
        transposed: bool,
        /// True if each eight bytes, of elements of 4 bits, are followed by as many unused bytes. The
        /// swizzle is that of the bytes with this padding.
        fp4_padded: bool,
        /// The bases of the blocks, as in [`StatedLayout::Blocked`].
        cga: Bases,
    },
    /// A linear layout, stated by the bases of the offset.
    Linear {
        /// The coordinates that each bit of the offset contributes.
        offset_bases: Bases,
        /// The coordinates that each bit of the rank of a block contributes.
        block_bases: Bases,
    },
    /// A linear layout with padding after each interval of elements.
    Padded {
        /// Intervals, each with the padding after it, in elements. Paddings of several pairs add up
        /// at an offset at which their intervals end.
        intervals: Bases,
        /// The coordinates that each bit of the offset without padding contributes.
        offset_bases: Bases,
        /// The extents of the buffer.
        shape: Sizes,
    },
    /// Tensor memory, in blocks of rows and columns.
    TensorMemory {
        /// The extents of a block.
        block: [u32; 2],
        /// The distance of adjacent elements of a row, in elements.
        column_stride: u32,
        /// True if two blocks of a cluster compute a tile together.
        two_ctas: bool,
        /// As for [`StatedLayout::Blocked`].
        cga: Bases,
    },
    /// Tensor memory for the scales of a dot, each of 8 bits.
    TensorMemoryScales {
        /// As for [`StatedLayout::Blocked`].
        cga: Bases,
    },
}

/// The reason why a layout does not fit a tile: one sentence.
pub type Misfit = String;

impl StatedLayout {
    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        match self {
            Self::Blocked { order, .. } => order.len(),
            Self::Slice { parent, .. } => parent.rank().saturating_sub(1),
            Self::Linear { shape, .. } => shape.len(),
            Self::DotOperand { parent, .. } | Self::InFlight { accumulator: parent } => parent.rank(),
            Self::Mma { warps_per_cta, .. } => warps_per_cta.len(),
        }
    }

    /// Returns the number of warps that hold the tile.
    pub fn warps(&self) -> u32 {
        match self {
            Self::Blocked { warps_per_cta, .. } | Self::Mma { warps_per_cta, .. } => {
                warps_per_cta.iter().product()
            }
            Self::Slice { parent, .. }
            | Self::DotOperand { parent, .. }
            | Self::InFlight { accumulator: parent } => parent.warps(),
            Self::Linear { bases: [_, _, warps], .. } => 1 << warps.len(),
        }
    }

    /// Returns the rows and the columns that a warp computes in one `mma.sync` or `wgmma`. Returns
    /// `None` if the layout is not that of an accumulator.
    pub fn instruction_extents(&self) -> Option<[u32; 2]> {
        match self {
            Self::Mma { instr_shape, .. } => match instr_shape[..] {
                [1, rows, columns] | [rows, columns] | [rows, columns, _] => Some([rows, columns]),
                _ => None,
            },
            Self::InFlight { accumulator } => accumulator.instruction_extents(),
            Self::Blocked { .. } | Self::Slice { .. } | Self::Linear { .. } | Self::DotOperand { .. } => None,
        }
    }

    /// Returns the linear layout of a tile, without registers that only hold copies.
    ///
    /// # Errors
    /// Returns the reason why the layout is invalid or does not fit the tile. Examples: another
    /// rank, a size that is not a power of two, or a shape without an instruction.
    pub fn linear(&self, shape: &[u32]) -> Result<Layout, Misfit> {
        self.check_rank(shape)?;
        check_extents(shape)?;
        if self.blocks() > 1 {
            check_sizes(shape, shape.len())?;
            let division = self.division(shape)?;
            let part = self.of_block().linear(&division.part)?;
            return Ok(division.enclose(&part, shape));
        }
        let layout = match self {
            Self::Blocked { size_per_thread, threads_per_warp, warps_per_cta, order, .. } => {
                for sizes in [size_per_thread, threads_per_warp, warps_per_cta] {
                    check_sizes(sizes, shape.len())?;
                }
                let order = axes(order)?;
                blocked(shape, size_per_thread, threads_per_warp, warps_per_cta, &order)
            }
            Self::Slice { dim, parent } => {
                let mut whole = Sizes::from_slice(shape);
                whole.insert((*dim as usize).min(shape.len()), 1);
                parent.linear(&whole)?.remove_axis(*dim as usize)
            }
            Self::Linear { bases, shape: own, .. } => {
                let [registers, lanes, warps] = bases.each_ref().map(|bases| images(bases, own));
                let tile = Tile::new(own);
                let columns: Columns = [registers?, lanes?, warps?].into_iter().flatten().collect();
                let bits = |at: usize| bases[at].len() as u32;
                let input = Hardware::new(&[
                    (Input::Register, bits(0)),
                    (Input::Lane, bits(1)),
                    (Input::Warp, bits(2)),
                ]);
                let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
                Layout::new(input, tile, columns).cover(shape, &order)
            }
            Self::DotOperand { index, parent, k_width } => dot_operand(*index, parent, *k_width, shape)?,
            Self::InFlight { accumulator } => accumulator.linear(shape)?,
            Self::Mma { version, warps_per_cta, instr_shape, .. } => {
                let mma = instruction(*version, instr_shape, 16)?;
                fragment(mma, Fragment::Accumulator, shape, warps_per_cta)?
            }
        };
        Ok(layout.without_duplicate_registers())
    }

    /// Returns the layout of the tile with its axes permuted. Returns `None` except for a blocked
    /// layout: other results depend on the shape of the tile.
    #[must_use]
    pub fn transposed(&self, permutation: &[usize]) -> Option<Self> {
        let Self::Blocked { size_per_thread, threads_per_warp, warps_per_cta, order, cga } = self else {
            return None;
        };
        let permuted = |sizes: &Sizes| -> Sizes { permutation.iter().map(|axis| sizes[*axis]).collect() };
        let position = |axis: &u32| permutation.iter().position(|from| *from == *axis as usize);
        Some(Self::Blocked {
            size_per_thread: permuted(size_per_thread),
            threads_per_warp: permuted(threads_per_warp),
            warps_per_cta: permuted(warps_per_cta),
            order: order.iter().map(|axis| position(axis).map(|at| at as u32)).collect::<Option<_>>()?,
            cga: cga.iter().map(permuted).collect(),
        })
    }

    /// Returns a layout in which neighboring lanes hold neighboring vectors along the last axis.
    ///
    /// # Panics
    /// If a number is not a power of two.
    #[must_use]
    pub fn coalesced(shape: &[u32], warps: u32) -> Self {
        /// The maximum number of elements of a vector: 16 bytes of fp32.
        const VECTOR: u32 = 4;
        const LANES: u32 = 32;
        let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
        let elements = shape.iter().product::<u32>() / (LANES * warps);
        Self::of_linear(&coalesced(shape, &order, elements.clamp(1, VECTOR), LANES, warps))
    }

    /// Returns the layout of a join of two tiles of this shape. The new last axis, of extent 2, is
    /// in registers.
    ///
    /// # Errors
    /// In the cases in which [`StatedLayout::linear`] returns an error.
    pub fn joined(&self, shape: &[u32]) -> Result<Self, Misfit> {
        let joined: Sizes = shape.iter().copied().chain([2]).collect();
        match self {
            Self::Slice { dim, parent } if *dim as usize == shape.len() => {
                if parent.splits_registers(&joined) {
                    return Ok((**parent).clone());
                }
            }
            Self::Blocked { size_per_thread, threads_per_warp, warps_per_cta, order, cga } => {
                let with = |sizes: &Sizes, last: u32| sizes.iter().copied().chain([last]).collect();
                return Ok(Self::Blocked {
                    size_per_thread: with(size_per_thread, 2),
                    threads_per_warp: with(threads_per_warp, 1),
                    warps_per_cta: with(warps_per_cta, 1),
                    order: [shape.len() as u32].into_iter().chain(order.iter().copied()).collect(),
                    cga: cga.iter().map(|basis| with(basis, 0)).collect(),
                });
            }
            Self::Slice { .. }
            | Self::Linear { .. }
            | Self::DotOperand { .. }
            | Self::Mma { .. }
            | Self::InFlight { .. } => {}
        }
        let Self::Linear { mut bases, mut blocks, .. } = Self::of_linear(&self.linear(shape)?) else {
            return Err(format!("{self} is no linear layout"));
        };
        for basis in bases.iter_mut().flatten().chain(&mut blocks) {
            basis.push(0);
        }
        let mut last = Sizes::from_elem(0, joined.len());
        last[shape.len()] = 1;
        bases[0].insert(0, last);
        Ok(Self::Linear { bases, blocks, shape: joined })
    }

    /// Returns whether each thread can split a tile along its last axis. If so, the layout of the
    /// halves is the slice of this layout. The axis must have extent 2, the layout must be blocked,
    /// and each thread must hold both elements in consecutive registers.
    pub fn splits_registers(&self, shape: &[u32]) -> bool {
        let Self::Blocked { size_per_thread, threads_per_warp, warps_per_cta, order, .. } = self else {
            return false;
        };
        let Some(last) = shape.len().checked_sub(1).filter(|last| order.first() == Some(&(*last as u32)))
        else {
            return false;
        };
        [size_per_thread, threads_per_warp, warps_per_cta].map(|sizes| sizes.get(last).copied())
            == [Some(2), Some(1), Some(1)]
    }

    /// Returns the layout of class `Linear` with these bases.
    pub fn of_linear(layout: &Layout) -> Self {
        let tile = layout.output();
        let bases_of = |input: Input| -> Bases {
            let coordinates = layout.bases(input).iter().map(|column| tile.coordinates(*column));
            coordinates.map(|each| each.iter().copied().collect()).collect()
        };
        Self::Linear {
            bases: [Input::Register, Input::Lane, Input::Warp].map(bases_of),
            blocks: bases_of(Input::Block),
            shape: tile.shape().iter().copied().collect(),
        }
    }

    /// Returns the additional wavefronts for each wavefront without bank conflicts.
    ///
    /// # Errors
    /// In the cases in which [`StatedLayout::linear`] returns an error.
    pub fn bank_conflicts(
        &self,
        memory: &StatedBuffer,
        shape: &[u32],
        element_bits: u32,
    ) -> Result<u32, Misfit> {
        if self.blocks() > 1 {
            let (own, other) = (self.division(shape)?, memory.division(shape)?);
            if own != other {
                return Err(format!("the blocks hold other parts with {self} than with {memory}"));
            }
            return self.of_block().bank_conflicts(&memory.of_block(), &own.part, element_bits);
        }
        let (linear, own) = (memory.linear(shape, element_bits)?, self.linear(shape)?);
        let width = memory.padding().map(|(interval, padding)| interval.min(padding)).min();
        let padded =
            |offset: u32| memory.padding().fold(offset, |sum, (interval, by)| sum + offset / interval * by);
        let bits = element_bits.max(8);
        let used = padded_bank_use(&linear, &own, bits, (width.unwrap_or(u32::MAX), &padded));
        Ok(used.wavefronts / used.least_wavefronts.max(1) - 1)
    }

    fn check_rank(&self, shape: &[u32]) -> Result<(), Misfit> {
        if self.rank() == shape.len() {
            return Ok(());
        }
        Err(format!("{self} has {} axes, but the tile has {}", self.rank(), shape.len()))
    }
}

impl StatedBuffer {
    /// Returns the layout of class `Linear` with these bases.
    pub fn of_linear(layout: &Layout) -> Self {
        let tile = layout.output();
        let bases = |input: Input| -> Bases {
            let columns = layout.bases(input).iter();
            columns.map(|at| tile.coordinates(*at).iter().copied().collect()).collect()
        };
        Self::Linear { offset_bases: bases(Input::Offset), block_bases: bases(Input::Block) }
    }

    /// Returns a candidate for the layout of the buffer with its axes permuted. It has the class of
    /// this layout. `permutation[i]` is the axis that becomes axis `i`.
    /// [`StatedBuffer::with_linear`] checks the candidate.
    #[must_use]
    pub fn transposed(&self, permutation: &[usize]) -> Self {
        let mut own = self.clone();
        if let Self::Swizzled { cga, .. } | Self::Nvmma { cga, .. } = &mut own {
            for basis in cga.iter_mut().filter(|basis| basis.len() == permutation.len()) {
                *basis = permutation.iter().map(|from| basis[*from]).collect();
            }
        }
        match &mut own {
            Self::Swizzled { order, .. } => {
                let position = |axis: &u32| permutation.iter().position(|from| *from == *axis as usize);
                *order = order.iter().map(|axis| position(axis).map_or(*axis, |at| at as u32)).collect();
            }
            Self::Nvmma { transposed, .. } => *transposed ^= permutation == [1, 0],
            Self::Linear { .. }
            | Self::Padded { .. }
            | Self::TensorMemory { .. }
            | Self::TensorMemoryScales { .. } => {}
        }
        own
    }

    /// Returns a stated layout with this linear layout. The result has the class of this layout if
    /// `linear` fits it. Otherwise it is a `SharedLinearLayout`.
    #[must_use]
    pub fn with_linear(&self, linear: &Layout, element_bits: u32) -> Self {
        let shape = linear.output().shape();
        let mut own = self.clone();
        if let Self::Nvmma { rank, .. } = &mut own {
            *rank = shape.len() as u32;
        }
        let is_own = own.rank() == shape.len()
            && own.linear(&shape, element_bits).is_ok_and(|other| other.columns() == linear.columns());
        if is_own { own } else { Self::of_linear(linear) }
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        match self {
            Self::Swizzled { order, .. } => order.len(),
            Self::Nvmma { rank, .. } => *rank as usize,
            Self::Linear { offset_bases, block_bases } => {
                offset_bases.first().or(block_bases.first()).map_or(0, SmallVec::len)
            }
            Self::Padded { shape, .. } => shape.len(),
            Self::TensorMemory { .. } | Self::TensorMemoryScales { .. } => 2,
        }
    }

    /// Returns whether there is padding between elements.
    pub fn is_padded(&self) -> bool {
        self.padding().next().is_some()
    }

    /// Returns the intervals with padding, each with the padding after it, in elements.
    pub fn padding(&self) -> impl Iterator<Item = (u32, u32)> {
        let (intervals, of_fp4): (&[Sizes], _) = match self {
            Self::Padded { intervals, .. } => (intervals, None),
            Self::Nvmma { fp4_padded: true, .. } => (&[], Some((FP4_INTERVAL, FP4_INTERVAL))),
            Self::Swizzled { .. }
            | Self::Nvmma { .. }
            | Self::Linear { .. }
            | Self::TensorMemory { .. }
            | Self::TensorMemoryScales { .. } => (&[], None),
        };
        intervals.iter().map(|pair| (pair[0], pair[1])).chain(of_fp4)
    }

    /// Returns the element at each offset without padding.
    ///
    /// # Errors
    /// If the layout does not fit a buffer of this shape or element width.
    pub fn linear(&self, shape: &[u32], element_bits: u32) -> Result<Layout, Misfit> {
        check_extents(shape)?;
        check_sizes(shape, shape.len())?;
        if self.blocks() > 1 {
            if self.rank() != shape.len() {
                return Err(format!("{self} has {} axes, but the buffer has {}", self.rank(), shape.len()));
            }
            let division = self.division(shape)?;
            let part = self.of_block().linear(&division.part, element_bits)?;
            return Ok(division.enclose(&part, shape));
        }
        match self {
            Self::Swizzled { vec, per_phase, max_phase, order, .. } => {
                check_sizes(&[*vec, *per_phase, *max_phase], 3)?;
                if order.len() != shape.len() {
                    return Err(format!(
                        "{self} has {} axes, but the buffer has {}",
                        order.len(),
                        shape.len()
                    ));
                }
                Ok(permuted_rows(shape, &axes(order)?, [*vec, *per_phase, *max_phase]))
            }
            Self::Nvmma { fp4_padded: true, .. } => self.fp4_padded(shape, element_bits),
            Self::Nvmma { swizzle_byte_width, element_bitwidth, rank, transposed, .. } => {
                if *rank as usize != shape.len() {
                    return Err(format!("{self} has {rank} axes, but the buffer has {}", shape.len()));
                }
                if *rank == 0 || !matches!(element_bitwidth, 8 | 16 | 32 | 64) {
                    return Err(format!(
                        "{self} needs a rank of at least 1, and elements of 8, 16, 32 or 64 bits"
                    ));
                }
                if *element_bitwidth != element_bits {
                    return Err(format!(
                        "{self} is for elements of {element_bitwidth} bits, but the buffer's have {element_bits}"
                    ));
                }
                let mode = match swizzle_byte_width {
                    0 => SwizzleMode::None,
                    32 => SwizzleMode::Bytes32,
                    64 => SwizzleMode::Bytes64,
                    128 => SwizzleMode::Bytes128,
                    other => return Err(format!("a swizzled row has 0, 32, 64 or 128 bytes, found {other}")),
                };
                let mut order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
                if *transposed && order.len() >= 2 {
                    order.swap(0, 1);
                }
                let row = shape[order[0]] * element_bits / 8;
                match mode.row_bytes() {
                    Some(bytes) if row < bytes => Err(format!(
                        "{self} needs rows of at least {bytes} bytes, but those of the buffer have {row}"
                    )),
                    _ => Ok(swizzled(shape, &order, element_bits, mode)),
                }
            }
            Self::TensorMemory { .. } | Self::TensorMemoryScales { .. } => {
                Err(format!("{self} is a layout of tensor memory, not of shared memory"))
            }
            Self::Padded { shape: own, .. } if own[..] != *shape => {
                Err(format!("{self} is for buffers {own:?}, found {shape:?}"))
            }
            Self::Linear { offset_bases, .. } | Self::Padded { offset_bases, .. } => {
                let tile = Tile::new(shape);
                let columns: Columns = images(offset_bases, shape)?.into_iter().collect();
                let bits = columns.len() as u32;
                let layout = Layout::new(Hardware::new(&[(Input::Offset, bits)]), tile.clone(), columns);
                if layout.is_injective() && layout.is_surjective() {
                    return Ok(layout);
                }
                Err(format!("{self} does not give each element of the buffer one offset"))
            }
        }
    }
}

/// Returns the layout of a buffer whose rows [`StatedBuffer::Swizzled`] permutes.
fn permuted_rows(shape: &[u32], order: &[usize], [vec, per_phase, max_phase]: [u32; 3]) -> Layout {
    let layout = Layout::strided(shape, order);
    let Some((fast, slow)) = order.first().zip(order.get(1)) else { return layout };
    let row_bits = shape[*fast].ilog2();
    let mut columns = Columns::from_slice(layout.columns());
    for bit in 0..max_phase.ilog2() {
        // Bit `bit` of the vector's index is XOR-ed with bit `bit` of `row / per_phase`.
        let (chunk, row) = (vec.ilog2() + bit, per_phase.ilog2() + bit);
        if chunk < row_bits && row < shape[*slow].ilog2() {
            let image = columns[chunk as usize];
            columns[(row_bits + row) as usize] ^= image;
        }
    }
    layout.with_bases(Input::Offset, &columns)
}

fn dot_operand(index: u32, parent: &StatedLayout, k_width: u32, shape: &[u32]) -> Result<Layout, Misfit> {
    let fragment_of = [Fragment::A, Fragment::B].get(index as usize).copied();
    let operand = fragment_of.ok_or_else(|| format!("operand_index is 0 or 1, found {index}"))?;
    let k_axis = shape.len() - 1 - index as usize;
    match parent {
        StatedLayout::Mma { version, warps_per_cta, instr_shape, .. } => {
            let bits = 32_u32.checked_div(k_width).filter(|bits| bits.is_power_of_two() && *bits >= 2);
            let bits = bits.ok_or_else(|| format!("k_width is 1, 2, 4, 8 or 16, found {k_width}"))?;
            if operand == Fragment::B && *version == 3 {
                return Err("operand B of wgmma is in shared memory; a DotOperandLayout of its \
                            accumulator has operand_index 0"
                    .into());
            }
            fragment(instruction(*version, instr_shape, bits)?, operand, shape, warps_per_cta)
        }
        StatedLayout::Blocked { .. } => {
            // Each thread holds all elements along K that its accumulator needs.
            let mut accumulator = Sizes::from_slice(shape);
            accumulator[k_axis] = 1;
            let line = parent.linear(&accumulator)?;
            Ok(line.broadcast(k_axis, shape[k_axis]))
        }
        other => Err(format!("the parent of an operand is the layout of an accumulator, found {other}")),
    }
}

/// Returns the instruction with this shape for one warp and operand elements of `bits` bits.
fn instruction(version: u32, shape: &[u32], bits: u32) -> Result<Mma, Misfit> {
    let found = match (version, shape) {
        (2, [16, 8] | [16, 8, _] | [1, 16, 8]) => Some(Mma::new(16, 8, 256 / bits, bits)),
        (3, [16, n] | [16, n, _]) if n.is_power_of_two() && (8..=256).contains(n) => {
            Some(Mma::new(64, *n, 256 / bits, bits))
        }
        _ => None,
    };
    found.ok_or_else(|| format!("no instruction of version {version} has the shape {shape:?}"))
}

fn fragment(mma: Mma, fragment: Fragment, shape: &[u32], warps: &[u32]) -> Result<Layout, Misfit> {
    check_sizes(shape, shape.len())?;
    let least = match fragment {
        Fragment::A => [mma.m, mma.k],
        Fragment::B => [mma.k, mma.n],
        Fragment::Accumulator => [mma.m, mma.n],
    };
    if shape.len() < 2 {
        return Err(format!("a tile {shape:?} is no operand or result of a dot"));
    }
    check_sizes(warps, warps.len())?;
    if !(2..=3).contains(&warps.len()) || warps[warps.len() - 2] < (mma.m / 16).max(1) {
        return Err(format!("{warps:?} warps do not run an instruction of {} rows", mma.m));
    }
    // If the tile is smaller than the instruction's, copies of its elements fill the instruction's
    // tile.
    let mut whole = Sizes::from_slice(shape);
    if let [batches, _, _] = *warps {
        whole[0] = whole[0].max(batches);
    }
    for (size, own) in whole[shape.len() - 2..].iter_mut().zip(least) {
        *size = own.max(*size);
    }
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    // The lowest warp bits are along N for `mma.sync`, along M for `wgmma`.
    Ok(mma.layout_by(fragment, &whole, warps, mma.m == 16).cover(shape, &order))
}

/// The binary logarithm of the maximum number of elements of a tile.
const MAX_TILE_BITS: u32 = 24;

fn check_extents(shape: &[u32]) -> Result<(), Misfit> {
    if let Some((axis, extent)) = shape.iter().enumerate().find(|(_, extent)| !extent.is_power_of_two()) {
        return Err(format!(
            "axis {axis} of the tile has {extent} elements, which is no power of two; layouts are for powers of two"
        ));
    }
    let bits: u32 = shape.iter().map(|extent| extent.ilog2()).sum();
    if bits > MAX_TILE_BITS { Err(format!("a tile {shape:?} has too many elements")) } else { Ok(()) }
}

fn check_sizes(sizes: &[u32], rank: usize) -> Result<(), Misfit> {
    if sizes.len() != rank {
        return Err(format!("expected {rank} sizes, found {sizes:?}"));
    }
    match sizes.iter().find(|size| !size.is_power_of_two()) {
        Some(size) => Err(format!("sizes are powers of two, found {size}")),
        None => Ok(()),
    }
}

/// Returns the axes of an order, which must be a permutation.
fn axes(order: &[u32]) -> Result<SmallVec<[usize; 6]>, Misfit> {
    let seen = order.iter().fold(0_u64, |seen, axis| seen | 1_u64.checked_shl(*axis).unwrap_or(0));
    if seen == (1 << order.len()) - 1 {
        return Ok(order.iter().map(|axis| *axis as usize).collect());
    }
    Err(format!("order lists every axis once, found {order:?}"))
}

fn images(bases: &Bases, shape: &[u32]) -> Result<Vec<u32>, Misfit> {
    check_sizes(shape, shape.len())?;
    let tile = Tile::new(shape);
    let image = |basis: &Sizes| {
        let fits = basis.len() == shape.len() && basis.iter().zip(shape).all(|(at, size)| at < size);
        fits.then(|| tile.index(basis)).ok_or_else(|| format!("the basis {basis:?} is not in {shape:?}"))
    };
    bases.iter().map(image).collect()
}

struct List<'a>(&'a [u32]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Prints the bases of the blocks as a further argument, unless the list is empty.
struct More<'a>(&'a str, &'a Bases);

impl fmt::Display for More<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(before, bases) = self;
        if bases.is_empty() { Ok(()) } else { write!(f, ", {before}{bases:?}") }
    }
}

impl fmt::Display for StatedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked { size_per_thread, threads_per_warp, warps_per_cta, order, cga } => {
                let [size, threads, warps, order] =
                    [size_per_thread, threads_per_warp, warps_per_cta, order].map(|sizes| List(sizes));
                write!(f, "BlockedLayout({size}, {threads}, {warps}, {order}{})", More("", cga))
            }
            Self::Slice { dim, parent } => write!(f, "SliceLayout({dim}, {parent})"),
            Self::Linear { bases: [registers, lanes, warps], blocks, shape } => {
                let shape = List(shape);
                write!(f, "DistributedLinearLayout({registers:?}, {lanes:?}, {warps:?}, {blocks:?}, {shape})")
            }
            Self::DotOperand { index, parent, k_width } => {
                write!(f, "DotOperandLayout({index}, {parent}, {k_width})")
            }
            Self::InFlight { accumulator } => write!(f, "AccumulatorInFlight({accumulator})"),
            Self::Mma { version, warps_per_cta, instr_shape, cga } => {
                let [warps, shape] = [warps_per_cta, instr_shape].map(|sizes| List(sizes));
                let more = More("", cga);
                write!(f, "NVMMADistributedLayout([{version}, 0], {warps}, {shape}{more})")
            }
        }
    }
}

impl fmt::Display for StatedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Swizzled { vec, per_phase, max_phase, order, cga } => {
                let more = More("", cga);
                write!(f, "SwizzledSharedLayout({vec}, {per_phase}, {max_phase}, {}{more})", List(order))
            }
            Self::Nvmma { swizzle_byte_width, element_bitwidth, rank, transposed, fp4_padded, cga } => {
                let transposed = if *transposed { "True" } else { "False" };
                // The argument `fp4_padded` comes before the bases.
                let more = More("", cga);
                let padded = match (fp4_padded, cga.is_empty()) {
                    (true, _) => ", True",
                    (false, false) => ", False",
                    (false, true) => "",
                };
                write!(
                    f,
                    "NVMMASharedLayout({swizzle_byte_width}, {element_bitwidth}, {rank}, {transposed}{padded}{more})"
                )
            }
            Self::Linear { offset_bases, block_bases } => {
                write!(f, "SharedLinearLayout({offset_bases:?}{})", More("", block_bases))
            }
            Self::Padded { intervals, offset_bases, shape } => {
                write!(f, "PaddedSharedLayout({intervals:?}, {offset_bases:?}, {})", List(shape))
            }
            Self::TensorMemory { block, column_stride, two_ctas, cga } => {
                let pair = if *two_ctas { "True" } else { "False" };
                let pair =
                    if *two_ctas || !cga.is_empty() { format!(", {cga:?}, {pair}") } else { String::new() };
                write!(f, "TensorMemoryLayout({}, {column_stride}{pair})", List(block))
            }
            Self::TensorMemoryScales { cga } if cga.is_empty() => f.write_str("TensorMemoryScalesLayout()"),
            Self::TensorMemoryScales { cga } => write!(f, "TensorMemoryScalesLayout({cga:?})"),
        }
    }
}
