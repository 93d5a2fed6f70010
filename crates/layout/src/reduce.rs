//! Derives the steps of reductions and scans along an axis from the layout.
//!
//! A reduction of `2^n` elements takes `n` steps. A step is a mask `p` of hardware-index bits. It
//! combines the elements at the hardware indices `x` and `x ^ p`, which differ only along the axis.
//! Example: 4 lanes hold 8 elements in 2 registers each. The steps are register 1, lane 1 and lane
//! 2. The highest bits of `p` select the hardware:
//! - Register bits: a thread combines two of its registers.
//! - Lane bits: two lanes exchange elements with a shuffle.
//! - Warp bits: two warps exchange elements through shared memory.
//!
//! A *line* is the elements that differ only in the coordinate along the axis. Each warp reduces
//! its elements of a line to one *part* of the line.

use smallvec::SmallVec;

use crate::f2::{self, Columns, Span};
use crate::map::Layout;
use crate::space::Input;

/// A step of a reduction or a scan: the XOR of the partners' hardware indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// XOR-ed to the register index.
    pub register: u32,
    /// XOR-ed to the lane index: the mask of a `shfl.bfly`, or 0.
    pub lane: u32,
    /// XOR-ed to the warp index, or 0.
    pub warp: u32,
    /// XOR-ed to the block index, or 0.
    pub block: u32,
    /// The XOR between the coordinates of the partners along the axis.
    pub coordinate: u32,
}

impl Step {
    /// Returns the highest input that the step changes: register, lane, warp or block.
    pub fn reach(&self) -> Input {
        match self {
            Self { block: 1.., .. } => Input::Block,
            Self { warp: 1.., .. } => Input::Warp,
            Self { lane: 1.., .. } => Input::Lane,
            _ => Input::Register,
        }
    }

    fn new(layout: &Layout, axis: usize, place: u32) -> Self {
        let part = |input| layout.input().part(place, input);
        Self {
            register: part(Input::Register),
            lane: part(Input::Lane),
            warp: part(Input::Warp),
            block: part(Input::Block),
            coordinate: layout.output().coordinate(layout.apply(place), axis),
        }
    }
}

/// The layout conversion by which warps exchange partial results. The last axis of both layouts is
/// the part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The layout of the parts after the steps within warps. A thread has one register for each of
    /// its elements of the result.
    pub partials: Layout,
    /// The layout after the exchange. Every thread has all parts of its elements, those of one
    /// element in consecutive registers.
    pub gathered: Layout,
}

impl Exchange {
    /// Returns the exchange that replaces the steps between warps, or `None` without such steps.
    /// `registers` are the register bits that distinguish elements of the result.
    fn after(steps: &[Step], layout: &Layout, axis: usize, registers: &[u32]) -> Option<Self> {
        let within = steps.iter().filter(|step| step.reach() <= Input::Lane).count();
        let parts = (steps.len() - within) as u32;
        if parts == 0 {
            return None;
        }
        let coordinates = Span::of(&steps.iter().map(|step| step.coordinate).collect::<Columns>());
        let kept: Columns = registers.iter().map(|register| layout.apply(*register)).collect();
        let kept = layout.with_bases(Input::Register, &kept);
        let rest = kept.remove_axis(axis);
        let column = |(element, rest): (&u32, &u32)| {
            let steps = coordinates.solve(layout.output().coordinate(*element, axis));
            let part = steps.expect("the steps reach every coordinate") >> within;
            rest << parts | part as u32
        };
        let columns = kept.columns().iter().zip(rest.columns()).map(column).collect();
        let last = rest.output().rank();
        let every = Layout::identity(last + 1, last, Input::Register, 1 << parts);
        let gathered = every.product(&rest.insert_axis(last));
        let partials = Layout::new(*kept.input(), gathered.output().clone(), columns);
        Some(Self { partials, gathered })
    }
}

/// A reduction along an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduction {
    /// The steps within a thread, then within a warp, then between warps. After a step, both
    /// partners have the combined value. The steps never combine replicas of one element.
    pub steps: SmallVec<[Step; 12]>,
    /// The layout of the result, without the axis. Its register `r` is register `registers[r]` of
    /// the source after all steps.
    pub result: Layout,
    /// The registers of the source that become the result.
    pub registers: SmallVec<[u32; 16]>,
    /// The conversion that replaces the steps between warps, or `None` without such steps. After
    /// the exchange, each thread combines the parts of a line.
    pub exchange: Option<Exchange>,
}

impl Reduction {
    /// Derives the reduction of a value with this layout along an axis.
    ///
    /// # Panics
    /// If the layout does not hold every element.
    pub fn along(layout: &Layout, axis: usize) -> Self {
        let removed = layout.remove_axis(axis);
        // Vectors of this null space change the coordinate along the axis or select another
        // replica. The echelon form is by the highest bit, so vectors with only register bits come
        // first.
        let mut reached = Span::new();
        let mut steps = SmallVec::<[Step; 12]>::new();
        for place in removed.kernel() {
            if reached.insert(layout.apply(place)) {
                steps.push(Step::new(layout, axis, place));
            }
        }
        assert_eq!(reached.rank() as u32, layout.output().bits_of(axis), "the layout holds every element");
        let kept = kept_registers(&removed);
        let result = removed.without_duplicate_registers();
        let registers = (0..result.registers()).map(|register| f2::multiply(&kept, register)).collect();
        let exchange = Exchange::after(&steps, layout, axis, &kept);
        Self { steps, result, registers, exchange }
    }

    /// Returns the steps of one level of hardware.
    pub fn steps_of(&self, reach: Input) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.reach() == reach)
    }
}

/// Returns the register bits that distinguish elements of the result.
fn kept_registers(result: &Layout) -> Columns {
    let free = result.free_bits(Input::Register);
    (0..result.bits_of(Input::Register)).map(|bit| 1 << bit).filter(|register| free & register == 0).collect()
}

/// A level of a scan. A block is a run of elements here, not a thread block. Level `i` combines
/// each pair of adjacent blocks of `2^i` elements. Example: level 0 of `a b c d` combines `a b` and
/// `c d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScanStep {
    /// The step to the element at the same position in the pair's other block.
    pub step: Step,
    /// A hardware index is in the later block if these bits have odd parity.
    pub later: u32,
}

/// A scan along an axis. It has a level for each bit of the coordinate, lowest first. Each hardware
/// index holds the prefix of its element and the total of its block. A level needs only the total
/// of the partner:
/// ```text
/// for each step:
///     other = total of the partner
///     if the index is later: prefix = combine(other, prefix), total = combine(other, total)
///     else:                  total = combine(total, other)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The levels, from adjacent elements to halves of the axis.
    pub steps: SmallVec<[ScanStep; 12]>,
    /// The exchange of the warps' totals, which replaces the levels between warps. The scan has an
    /// exchange if it is contiguous and crosses warps. The parts are in the order of the scan. A
    /// thread combines the totals of earlier parts with its prefixes. The last coordinate in
    /// [`Exchange::partials`] is the index of the thread's own part.
    pub exchange: Option<Exchange>,
}

impl Scan {
    /// Derives the scan of a value with this layout along an axis.
    ///
    /// # Panics
    /// If the layout does not hold every element.
    pub fn along(layout: &Layout, axis: usize) -> Self {
        let tile = layout.output();
        let places = layout.right_inverse().expect("the layout holds every element");
        let bits = tile.shift(axis)..tile.shift(axis) + tile.bits_of(axis);
        let step = |bit: u32| ScanStep {
            step: Step::new(layout, axis, places.apply(1 << bit)),
            later: layout
                .columns()
                .iter()
                .enumerate()
                .fold(0, |mask, (place, column)| mask | (column >> bit & 1) << place),
        };
        let levels: SmallVec<[ScanStep; 12]> = bits.map(step).collect();
        let steps: SmallVec<[Step; 12]> = levels.iter().map(|level| level.step).collect();
        let is_contiguous = steps.is_sorted_by_key(Step::reach);
        let kept = kept_registers(&layout.remove_axis(axis));
        let exchange = is_contiguous.then(|| Exchange::after(&steps, layout, axis, &kept)).flatten();
        Self { steps: levels, exchange }
    }

    /// Returns whether the levels are within threads, then within warps, then between warps. Then
    /// lanes exchange only totals of threads, and warps only totals of warps.
    pub fn is_contiguous(&self) -> bool {
        self.steps.is_sorted_by_key(|level| level.step.reach())
    }
}
