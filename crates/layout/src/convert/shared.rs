//! Plans conversions through a buffer in shared memory. The source is stored to the buffer, and the
//! target is loaded from it. The swizzle of the buffer makes both accesses wide and free of bank
//! conflicts.
//!
//! An offset has three parts. From the lowest bits, they are the index in the vector, the bank, and
//! the line of 128 bytes. Example: for fp16 in vectors of 8, bits 0 to 2 are the index in the
//! vector, and bits 3 to 5 the bank. The columns of the buffer are a basis of the tile's space,
//! split into the same three parts. Section 5.5 of Zhou et al., "Linear Layouts", derives two rules
//! from the spans of these parts:
//! - An access can move a whole vector if the vector's elements are registers of one thread. No
//!   lane or warp bit may map into the vector.
//! - The memory serves some lanes of a warp together. They conflict if their offsets have the same
//!   bank and different lines. The *access span* of a side is the span of the bases of these lanes
//!   and of the vector. The side has no conflict if its access span intersects the span of the
//!   lines only in zero.
//!
//! The memory serves twice as many lanes together if each lane accesses the same vector as one of
//! its neighbors, as `banks.rs` says.
//!
//! The planner chooses the lines with [`f2::complement_avoiding`]. The tile has enough dimensions
//! for this, because lanes that are served together move at most 128 bytes.

use crate::convert::ConvertError;
use crate::f2::{self, Columns, Span};
use crate::map::{Layout, Transfer};
use crate::memory::{CHUNK_BYTES, LINE_BYTES, buffer};
use crate::query::Vector;
use crate::space::Input;

/// The log2 of the bytes of a bank's word.
const LOG_WORD_BYTES: usize = 2;

/// A conversion through a buffer in shared memory. Every thread executes `store`, waits at a
/// barrier, and executes `load`. Only threads whose [`Layout::free_bits`] of the source are 0 need
/// to store. The others hold copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPlan {
    /// The element at each offset.
    pub memory: Layout,
    /// The stores of the source, only of the registers in [`Layout::representatives`].
    pub store: Access,
    /// The loads of the target, only of the registers in [`Layout::representatives`].
    pub load: Access,
    /// The size of the buffer in bytes. The alignment is 128 bytes, or the size if the size is
    /// smaller.
    pub bytes: u32,
}

/// The accesses of a block's threads to a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The registers of each instruction.
    pub vector: Vector,
    /// Maps each hardware index to an offset in elements. A vector is at the offset of its first
    /// register. The map is linear: an index has the XOR of the offsets of its register and its
    /// thread.
    pub offsets: Transfer,
    /// The wavefronts of each instruction.
    pub wavefronts: u32,
}

impl Access {
    /// Returns the offset of access `number`, relative to the offset of the thread's register 0.
    pub fn start(&self, number: u32) -> Start {
        let register = self.vector.registers(number)[0];
        let offset = self.offsets.at(&[(Input::Register, register)]);
        let threads = [Input::Lane, Input::Warp].into_iter().flat_map(|input| self.offsets.bases(input));
        let varying = threads.fold(0, |any, base| any | base);
        Start { xor: offset & varying, add: offset & !varying }
    }
}

/// The offset of an access as a function of its thread's offset: `(offset ^ xor) + add`. An
/// instruction's immediate offset can hold `add`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Start {
    /// The bits of the register's offset that some thread's offset also sets.
    pub xor: u32,
    /// The bits of the register's offset that no thread's offset sets.
    pub add: u32,
}

/// Plans a conversion through shared memory.
///
/// # Errors
/// Returns [`ConvertError::AcrossBlocks`] if the layouts differ in the elements that a block holds.
///
/// # Panics
/// If the layouts are of different tiles, or an element does not have 8, 16, 32, 64 or 128 bits.
pub fn shared_plan(from: &Layout, to: &Layout, element_bits: u32) -> Result<SharedPlan, ConvertError> {
    plan(from, to, element_bits, from.bases(Input::Register), |candidate| (0, candidate.cost))
}

/// Plans a conversion whose stores are asynchronous copies from global memory.
///
/// A copy moves elements that are contiguous in global memory: the registers that `run` spans. The
/// widest copies have priority over bank conflicts, because they request more of a sector at once.
///
/// # Errors
/// As [`shared_plan`].
///
/// # Panics
/// As [`shared_plan`].
pub fn copy_plan(
    from: &Layout,
    to: &Layout,
    element_bits: u32,
    run: &[u32],
) -> Result<SharedPlan, ConvertError> {
    plan(from, to, element_bits, run, |candidate| (usize::MAX - candidate.widths[0], candidate.cost))
}

/// Plans a conversion by the candidate with the lowest rank. A store moves registers that `run`
/// spans.
fn plan(
    from: &Layout,
    to: &Layout,
    element_bits: u32,
    run: &[u32],
    rank: impl Fn(&Candidate) -> (usize, u32),
) -> Result<SharedPlan, ConvertError> {
    assert_eq!(from.output(), to.output(), "a conversion keeps the tile");
    assert!(
        element_bits.is_power_of_two() && (8..=128).contains(&element_bits),
        "elements have 8 to 128 bits"
    );
    let (store, load) = (Side::new(from), Side::new(to));
    let held = store.all();
    let same_elements = f2::rank(&held) == f2::rank(&load.all())
        && f2::complement(&held, &load.all()).is_empty()
        && from.bases(Input::Block) == to.bases(Input::Block);
    if !same_elements {
        return Err(ConvertError::AcrossBlocks);
    }
    let planner = Planner {
        held: &held,
        most: (CHUNK_BYTES * 8 / element_bits).ilog2() as usize,
        log_bytes: (element_bits / 8).ilog2() as usize,
    };
    let store = Side { registers: run, ..store };
    let narrow = planner.common_vector(&store, &load);
    let candidates = [
        Some(planner.buffer(&store, &load, &narrow, &[])),
        planner.widened(&store, &load, &narrow),
        planner.widened(&load, &store, &narrow).map(|candidate| Candidate {
            widths: [candidate.widths[1], candidate.widths[0]],
            wavefronts: [candidate.wavefronts[1], candidate.wavefronts[0]],
            ..candidate
        }),
    ];
    let best = candidates.into_iter().flatten().min_by_key(rank);
    let best = best.expect("the first candidate is always there");
    let bytes = (element_bits / 8) << best.columns.len();
    let memory = buffer(from.output(), best.columns);
    let access = |layout: &Layout, side: usize| {
        // Each block of a cluster has its own buffer.
        let layout = layout.restrict(&[Input::Register, Input::Lane, Input::Warp]);
        let vector = layout.vector_in(&memory).at_most(1 << best.widths[side]);
        Access { vector, offsets: layout.offsets_in(&memory), wavefronts: best.wavefronts[side] }
    };
    let (store, load) = (access(from, 0), access(to, 1));
    debug_assert_eq!([store.vector.width(), load.vector.width()], best.widths.map(|width| 1 << width));
    Ok(SharedPlan { memory, store, load, bytes })
}

struct Side<'a> {
    registers: &'a [u32],
    lanes: &'a [u32],
    /// The bases of the lanes, then of the warps.
    threads: Columns,
}

impl<'a> Side<'a> {
    fn new(layout: &'a Layout) -> Self {
        let threads = [layout.bases(Input::Lane), layout.bases(Input::Warp)].concat();
        Self {
            registers: layout.bases(Input::Register),
            lanes: layout.bases(Input::Lane),
            threads: threads.into(),
        }
    }

    fn all(&self) -> Columns {
        f2::independent(&concat(&[self.registers, &self.threads]))
    }

    /// Returns the bases of the lanes that are served together in accesses of `2^log_bytes` bytes.
    fn served_together(&self, log_bytes: usize) -> &[u32] {
        let bits = LINE_BYTES.ilog2() as usize - log_bytes.max(LOG_WORD_BYTES);
        let have_equal_neighbors = self.lanes.iter().take(2).any(|base| *base == 0);
        let merged = usize::from(log_bytes > LOG_WORD_BYTES && have_equal_neighbors);
        &self.lanes[..(bits + merged).min(self.lanes.len())]
    }
}

/// A candidate for the buffer, and its cost.
struct Candidate {
    columns: Columns,
    /// The log2 of the number of elements of an access.
    widths: [usize; 2],
    /// The wavefronts of one instruction.
    wavefronts: [u32; 2],
    /// The sum of the wavefronts and the instructions of a warp, over both sides.
    cost: u32,
}

struct Planner<'a> {
    /// A basis of the elements that a block holds.
    held: &'a [u32],
    /// The log2 of the number of elements of the widest access.
    most: usize,
    /// The log2 of the bytes of an element.
    log_bytes: usize,
}

impl Planner<'_> {
    /// Returns a basis of the widest vector that both sides can move in one access.
    fn common_vector(&self, a: &Side, b: &Side) -> Columns {
        let mut common: Columns =
            a.registers.iter().copied().filter(|column| b.registers.contains(column)).collect();
        common.extend(f2::intersection(a.registers, b.registers));
        let threads = concat(&[&a.threads, &b.threads]);
        let mut vector = f2::complement(&f2::intersection(&common, &threads), &f2::independent(&common));
        vector.truncate(self.most);
        vector
    }

    /// Returns a buffer in which one access of `wide` moves more than the common vector. Returns
    /// `None` if this is impossible. Elements of lanes that are served together on the other side
    /// come first, so these lanes access neighboring elements.
    fn widened(&self, wide: &Side, other: &Side, narrow: &[u32]) -> Option<Candidate> {
        let together = other.served_together(self.log_bytes + narrow.len());
        let mut preferred = f2::intersection(wide.registers, together);
        preferred.extend(f2::intersection(wide.registers, &other.threads));
        preferred.extend_from_slice(wide.registers);
        // An added element must preserve two conditions:
        // - The span of `narrow` and `extra` intersects the threads of `wide` only in zero. This
        //   needs an element outside of `of_wide`.
        // - The span of `narrow` intersects `of_both` only in zero. `of_both` is the span of
        //   `extra` and of the threads of both sides, and `with_narrow` also contains `narrow`.
        //   This needs an element in both spans or in neither span.
        let mut of_wide = Span::of(&concat(&[narrow, &wide.threads]));
        let mut of_both = Span::of(&concat(&[&wide.threads, &other.threads]));
        let mut with_narrow = of_both.clone();
        with_narrow.extend(narrow);
        let mut extra = Columns::new();
        for element in preferred {
            let is_aligned =
                !of_wide.contains(element) && of_both.contains(element) == with_narrow.contains(element);
            if is_aligned && narrow.len() + extra.len() < self.most {
                extra.push(element);
                for span in [&mut of_wide, &mut of_both, &mut with_narrow] {
                    span.insert(element);
                }
            }
        }
        (!extra.is_empty()).then(|| self.buffer(wide, other, narrow, &extra))
    }

    /// Returns the buffer for accesses `narrow` and `extra` of `wide`, and `narrow` of `other`.
    fn buffer(&self, wide: &Side, other: &Side, narrow: &[u32], extra: &[u32]) -> Candidate {
        let vector = concat(&[narrow, extra]);
        let above = f2::complement(&vector, &concat(&[&wide.threads, &other.threads, self.held]));
        // If the vector is smaller than a word, `fill` completes the word.
        let word = LOG_WORD_BYTES.saturating_sub(self.log_bytes);
        let shared_lanes = f2::intersection(&f2::intersection(wide.lanes, other.lanes), &above);
        let mut fill = f2::independent(&concat(&[&shared_lanes, &above]));
        fill.truncate(word.saturating_sub(vector.len()));
        let low = concat(&[&vector, &fill]);
        let sides = [(wide, vector.len()), (other, narrow.len())];
        let together = sides.map(|(side, width)| side.served_together(self.log_bytes + width));
        // For each side, a basis of its access span: its vector, completed to a word, and its
        // lanes.
        let clear = [0, 1].map(|side| {
            let within = sides[side].1.max(word).min(low.len());
            concat(&[&low[..within], together[side]])
        });
        let line_bits = LINE_BYTES.ilog2() as usize - self.log_bytes;
        let lines = f2::complement_avoiding(
            &f2::intersection(&above, &clear[0]),
            &f2::intersection(&above, &clear[1]),
            &above,
            self.held.len().saturating_sub(line_bits),
        );
        let banks = f2::complement(&concat(&[&lines, &fill]), &above);
        let wavefronts = [0, 1].map(|side| {
            let conflicts = f2::intersection(&clear[side], &lines).len();
            1 << (conflicts + sides[side].0.lanes.len() - together[side].len())
        });
        let cost = sides.iter().zip(wavefronts).map(|((side, width), wavefronts)| {
            let instructions = 1 << (f2::rank(side.registers) - width);
            instructions * (wavefronts + 1)
        });
        Candidate {
            columns: concat(&[&low, &banks, &lines]),
            widths: sides.map(|(_, width)| width),
            wavefronts,
            cost: cost.sum(),
        }
    }
}

fn concat(parts: &[&[u32]]) -> Columns {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}
