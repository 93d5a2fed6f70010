//! Plans conversions within warps, with warp shuffles.
//!
//! In one shuffle, every lane sends one element and receives one element:
//!
//! ```text
//! lane 0: a b       lane 0: a c     shuffle 0 moves a and d: each lane sends to itself
//! lane 1: c d  ──>  lane 1: b d     shuffle 1 moves b and c: each lane sends to the other one
//! ```
//! Elements 0 and 3 (`a` and `d`) are a subspace `U` of the tile. Each shuffle moves one coset of
//! `U` (section 5.4 of Zhou et al., "Linear Layouts"). In the span of the elements that a warp
//! needs, `U` is a complement of the target's registers.
//!
//! A lane of the source may hold several elements of a shuffle. Then its replicas, the lanes with
//! the same elements, send the others. So the planner minimizes the intersection of `U` with the
//! source's registers.
//!
//! The sending lane, its register and the receiving register are affine functions of the receiving
//! lane. If a register depends on the lane, conditional swaps of registers ([`Select`]) select it.

use smallvec::SmallVec;

use crate::f2::{self, Columns, Span};
use crate::map::{Layout, Transfer};
use crate::space::{Hardware, Input};

/// A conditional change of a register index: `r` becomes `r ^ registers` in some threads. The
/// threads are those in which `lane & lanes` and `warp & warps` together have an odd number of set
/// bits. Example: `lanes: 1` selects the odd lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Select {
    /// The bits of the lane that the condition reads.
    pub lanes: u32,
    /// The bits of the warp that the condition reads.
    pub warps: u32,
    /// The mask that is XOR-ed to the register index if the condition holds.
    pub registers: u32,
}

impl Select {
    /// Returns the mask that this thread XORs to a register index.
    pub fn in_thread(&self, lane: u32, warp: u32) -> u32 {
        let holds = (lane & self.lanes).count_ones() + (warp & self.warps).count_ones();
        if holds % 2 == 1 { self.registers } else { 0 }
    }
}

/// A shuffle of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Round {
    /// The register that a lane sends, before the selects of [`ShufflePlan::give`].
    pub register: u32,
    /// The mask that is XOR-ed to each lane's source lane in [`ShufflePlan::source_lane`].
    pub lane: u32,
}

/// A conversion within warps. Each thread (`lane`, `warp`) computes the following, where `...`
/// repeats the XOR for each select:
/// ```text
/// given[i]    = source[rounds[i].register ^ give.in_thread(lane, warp)...]
/// received[i] = shuffle(given[i], from lane source_lane(lane, warp) ^ rounds[i].lane)
/// result[r]   = received[results[r] ^ take.in_thread(lane, warp)...]
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShufflePlan {
    /// The selects that change the index of the register that a thread sends.
    pub give: SmallVec<[Select; 4]>,
    /// The shuffles.
    pub rounds: SmallVec<[Round; 16]>,
    /// The source lane of a thread: a map from (lane, warp) to lane.
    pub source_lane: Transfer,
    /// The shuffle that delivers each result register, before the selects of `take`.
    pub results: SmallVec<[u32; 16]>,
    /// The selects that change the index of the delivering shuffle.
    pub take: SmallVec<[Select; 4]>,
    /// The number of consecutive shuffles with the same source lane, a power of two. Elements
    /// narrower than 32 bits are packed into words within these shuffles.
    pub rounds_per_lane: u32,
}

impl ShufflePlan {
    /// Returns whether all shuffles are butterflies: the source is the own lane XOR a constant. A
    /// butterfly whose constant is 0 needs no instruction.
    pub fn is_butterfly(&self) -> bool {
        let is_own = |(bit, base): (usize, &u32)| *base == 1 << bit;
        self.source_lane.bases(Input::Lane).iter().enumerate().all(is_own)
            && self.source_lane.bases(Input::Warp).iter().all(|base| *base == 0)
    }

    /// Returns the number of 32-bit shuffles of a thread, for elements of this width.
    pub fn shuffles(&self, element_bits: u32) -> u32 {
        let words = (self.rounds_per_lane * element_bits).div_ceil(32);
        let is_butterfly = self.is_butterfly();
        let lanes = self.rounds.iter().step_by(self.rounds_per_lane as usize);
        lanes.filter(|round| !is_butterfly || round.lane != 0).count() as u32 * words
    }

    /// Returns how many elements of this width travel in one word.
    pub fn elements_per_word(&self, element_bits: u32) -> u32 {
        self.rounds_per_lane.min(32 / element_bits.min(32))
    }

    /// Returns whether the selects of `take` never separate the elements that one word carries.
    pub fn takes_words(&self, elements_per_word: u32) -> bool {
        self.take.iter().all(|select| select.registers & (elements_per_word - 1) == 0)
    }

    /// Returns the cost of the plan. The unit is half the issue time of a shuffle: the issue time
    /// of a select.
    pub(super) fn cost(&self, element_bits: u32) -> u32 {
        let together = self.elements_per_word(element_bits);
        let given = self.give.len() as u32 * (self.rounds.len() as u32).div_ceil(together);
        let taken = self.take.len() as u32 * self.results.len() as u32;
        let taken = if self.takes_words(together) { taken.div_ceil(together) } else { taken };
        2 * self.shuffles(element_bits) + (given + taken) * element_bits.div_ceil(32)
    }
}

/// Plans a conversion within warps. Returns `None` if an element has to leave its warp, or shuffles
/// cannot deliver an element to every lane. The second case occurs only if several warps have
/// copies of the source, and the elements of a warp are in few lanes.
///
/// # Panics
/// If the layouts are not of one tile, or differ in the number of lanes, warps or blocks.
pub fn shuffle_plan(from: &Layout, to: &Layout) -> Option<ShufflePlan> {
    assert_eq!(from.output(), to.output(), "a conversion keeps the tile");
    for input in [Input::Lane, Input::Warp, Input::Block] {
        assert_eq!(from.bits_of(input), to.bits_of(input), "a conversion keeps the number of {input}s");
    }
    if from.bases(Input::Block) != to.bases(Input::Block) {
        return None;
    }
    let source = Source::new(from);
    let (registers, lanes) = (to.bases(Input::Register), to.bases(Input::Lane));
    let needed: Columns = lanes.iter().chain(registers).copied().collect();
    if !needed.iter().all(|element| source.held.contains(*element)) {
        return None;
    }
    let cosets = coset_basis(source.registers, registers);
    let round = round_space(&source, &cosets, &needed, lanes);
    let givers = source.givers(round)?;

    // Returns the register that holds an element, before the selects of `give`, and the lane that
    // sends it.
    let origin = |element: u32| {
        let (register, lane) = source.place(element)?;
        Some((register ^ f2::multiply(&givers.registers, lane), lane))
    };
    let known = |element: &u32| origin(*element).expect("the warp holds every element that it needs");
    let (round_registers, round_lanes): (Columns, Columns) = cosets.iter().map(known).unzip();
    let between = from.bases(Input::Warp).iter().zip(to.bases(Input::Warp)).map(|(a, b)| origin(a ^ b));
    let (warp_registers, warp_lanes): (Columns, Columns) =
        between.collect::<Option<Vec<_>>>()?.into_iter().unzip();

    // Returns the index of the shuffle that moves an element, and the lane that sends the element.
    // The plan later XORs [`Round::lane`] to this lane.
    let mut target = Span::of(&cosets);
    target.extend(&givers.elements);
    let destination = |element: &u32| {
        let sum_of = target.solve(*element).expect("cosets and round span what the warp needs");
        let (round, giver) = (sum_of & ((1 << cosets.len()) - 1), sum_of >> cosets.len());
        (round as u32, f2::multiply(&givers.lanes, giver as u32))
    };
    let result_rounds: Columns = registers.iter().map(|element| destination(element).0).collect();
    let (lane_rounds, lane_sources): (Columns, Columns) = lanes.iter().map(destination).unzip();

    let rounds = 0..1_u32 << cosets.len();
    let each_round = |round| Round {
        register: f2::multiply(&round_registers, round),
        lane: f2::multiply(&round_lanes, round),
    };
    let bits = |input| (input, from.bits_of(input));
    Some(ShufflePlan {
        give: selects(&givers.registers, &warp_registers),
        rounds: rounds.map(each_round).collect(),
        source_lane: Transfer::new(
            Hardware::new(&[bits(Input::Lane), bits(Input::Warp)]),
            Hardware::new(&[bits(Input::Lane)]),
            lane_sources.into_iter().chain(warp_lanes).collect(),
        ),
        results: (0..to.registers()).map(|register| f2::multiply(&result_rounds, register)).collect(),
        take: selects(&lane_rounds, &[]),
        rounds_per_lane: 1 << round_lanes.iter().take_while(|lane| **lane == 0).count(),
    })
}

/// Returns a basis of the span of the target's registers. The coordinates of a vector in this basis
/// are the index of its shuffle. Vectors in the span of the source's registers come first, so
/// consecutive shuffles have one source lane.
fn coset_basis(source: &[u32], target: &[u32]) -> Columns {
    let own = Span::of(source);
    let stay: Columns = target.iter().copied().filter(|column| own.contains(*column)).collect();
    let mut basis = f2::independent(&stay);
    for more in [&f2::intersection(target, source)[..], target] {
        basis.extend(f2::complement(&basis, more));
    }
    basis
}

/// Returns the space `U` of the module comment.
fn round_space(source: &Source, cosets: &[u32], needed: &[u32], lanes: &[u32]) -> Columns {
    let mut preferred = f2::intersection(source.lanes, lanes);
    preferred.extend_from_slice(needed);
    let stay = f2::intersection(source.registers, needed);
    f2::complement_avoiding(cosets, &stay, &preferred, f2::rank(needed) - cosets.len())
}

/// The elements of a warp before the conversion.
struct Source<'a> {
    registers: &'a [u32],
    lanes: &'a [u32],
    /// The span of the registers, inserted first, and of the lanes.
    held: Span,
}

/// The senders of a shuffle: a basis of elements, each with a different lane.
struct Givers {
    elements: Columns,
    lanes: Columns,
    /// The mask that each lane bit XORs to the index of the sent register.
    registers: Columns,
}

impl<'a> Source<'a> {
    fn new(from: &'a Layout) -> Self {
        let (registers, lanes) = (from.bases(Input::Register), from.bases(Input::Lane));
        let mut held = Span::of(registers);
        held.extend(lanes);
        Self { registers, lanes, held }
    }

    /// Returns a register and a lane that hold an element.
    fn place(&self, element: u32) -> Option<(u32, u32)> {
        let sum_of = self.held.solve(element)?;
        let registers = self.registers.len();
        Some(((sum_of & ((1 << registers) - 1)) as u32, (sum_of >> registers) as u32))
    }

    /// Returns a basis of the lanes that hold the same elements as lane 0.
    fn replica_lanes(&self) -> Columns {
        let mut span = Span::of(self.registers);
        let registers = self.registers.len();
        let replicas = |(bit, column): (usize, &u32)| {
            let sum_of = span.insert_or_explain(*column).err()?;
            Some((sum_of >> registers) as u32 | 1 << bit)
        };
        self.lanes.iter().enumerate().filter_map(replicas).collect()
    }

    /// Finds linearly independent lanes that send the elements of a shuffle. An element that
    /// a lane other than 0 holds is sent by that lane, an element of lane 0 by a replica of lane 0.
    /// [`f2::complement_avoiding`] makes the lanes other than 0 independent. Returns `None` if
    /// there are too few replicas.
    fn givers(&self, round: Columns) -> Option<Givers> {
        let mut replicas = self.replica_lanes().into_iter();
        let (mut lanes, mut registers) = (Columns::new(), Columns::new());
        for element in &round {
            let lane = match self.place(*element)?.1 {
                0 => replicas.next()?,
                lane => lane,
            };
            let (register, rest) = self.place(element ^ f2::multiply(self.lanes, lane))?;
            debug_assert_eq!(rest, 0, "the lane holds the element");
            lanes.push(lane);
            registers.push(register);
        }
        // Express the registers as a linear function of the lane. The unit vectors contribute no
        // register.
        let units: Columns = (0..self.lanes.len()).map(|bit| 1 << bit).collect();
        let mut span = Span::of(&lanes);
        debug_assert_eq!(span.rank(), lanes.len(), "no lane gives two elements");
        span.extend(&units);
        let of_lane = |unit: &u32| {
            let sum_of = span.solve(*unit).expect("the unit vectors span every lane");
            f2::multiply(&registers, sum_of as u32)
        };
        let registers = units.iter().map(of_lane).collect();
        Some(Givers { elements: round, lanes, registers })
    }
}

/// Returns the fewest selects for the masks of lane bits and warp bits.
fn selects(lanes: &[u32], warps: &[u32]) -> SmallVec<[Select; 4]> {
    let all: Columns = lanes.iter().chain(warps).copied().collect();
    let image = f2::independent(&all);
    let span = Span::of(&image);
    let reads = |columns: &[u32], number: usize| {
        columns.iter().enumerate().fold(0, |mask, (bit, column)| {
            let sum_of = span.solve(*column).expect("the image contains the columns");
            mask | ((sum_of >> number & 1) as u32) << bit
        })
    };
    let select = |(number, registers): (usize, &u32)| Select {
        lanes: reads(lanes, number),
        warps: reads(warps, number),
        registers: *registers,
    };
    image.iter().enumerate().map(select).collect()
}
