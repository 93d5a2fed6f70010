//! Reductions and scans along an axis, read off the layout: which steps stay in a thread, which in a warp, which need
//! shared memory.
//!
//! Halving an axis `n` times needs `n` steps. A step is a place `p` that moves to another coordinate of the axis and to the
//! same coordinate of every other: places `x` and `x ^ p` hold the two halves. Where `p` is a register, a thread combines two
//! of its registers; where it has bits of the lane, two lanes exchange by a shuffle; where it has bits of the warp, by shared
//! memory.

use smallvec::SmallVec;

use crate::f2::{self, Columns, Span};
use crate::map::Layout;
use crate::space::Input;

/// One step of a reduction or a scan: what to XOR to a place to find its partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// XOR-ed to the register's number.
    pub register: u32,
    /// XOR-ed to the lane's number: the mask of a `shfl.bfly`, or 0.
    pub lane: u32,
    /// XOR-ed to the warp's number, or 0.
    pub warp: u32,
    /// XOR-ed to the block's number, or 0.
    pub block: u32,
    /// How the coordinate along the axis changes, by XOR.
    pub coordinate: u32,
}

impl Step {
    /// How far the step reaches.
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

/// How warps tell each other what each of them has combined: a conversion. The tile has the axes of the result and a last one
/// that counts the parts of a line, as many as its elements are spread over warps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Which part each thread has when the steps within warps are done. Its registers are those of the result.
    pub partials: Layout,
    /// Every thread has all parts of the elements of its result: the parts of one element in consecutive registers.
    pub gathered: Layout,
}

impl Exchange {
    /// The exchange after the steps within warps, if others follow. `registers` are the register bits that are left.
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
    /// The steps, those within a thread first, then those within a warp, then between warps. After the steps up to one, both
    /// partners have the combined value. Replicas are not combined with each other.
    pub steps: SmallVec<[Step; 12]>,
    /// The layout of the result, without the axis. Register `r` of it is register `registers[r]` of the source after all
    /// steps.
    pub result: Layout,
    /// Which registers of the source become the result.
    pub registers: SmallVec<[u32; 16]>,
    /// What takes the place of the steps between warps: after the conversion each thread combines consecutive registers.
    pub exchange: Option<Exchange>,
}

impl Reduction {
    /// The reduction of a value with this layout along an axis.
    ///
    /// # Panics
    /// If the layout does not hold every element.
    pub fn along(layout: &Layout, axis: usize) -> Self {
        let removed = layout.remove_axis(axis);
        // A kernel vector of the layout without the axis moves along the axis, or between replicas. The kernel is in
        // echelon form by its highest bit: what a register can do comes first.
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

    /// The steps of one reach.
    pub fn steps_of(&self, reach: Input) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.reach() == reach)
    }
}

/// The register bits that hold different elements of the result.
fn kept_registers(result: &Layout) -> Columns {
    let free = result.free_bits(Input::Register);
    (0..result.bits_of(Input::Register)).map(|bit| 1 << bit).filter(|register| free & register == 0).collect()
}

/// One level of a scan: blocks of `2^i` consecutive elements combine in pairs to blocks of `2^(i+1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScanStep {
    /// The partner: the same element of the other block of the pair.
    pub step: Step,
    /// A place is in the later block of its pair if the bits of the place in this mask have odd parity.
    pub later: u32,
}

/// A scan along an axis: for each bit of the coordinate, the lowest first, how the two halves of a block meet. With the
/// total of its own block beside its own prefix, each place needs of its partner the partner's total alone:
/// ```text
/// for each step:
///     other = total of the partner
///     if the place is later: prefix = combine(other, prefix), total = combine(other, total)
///     else:                  total = combine(total, other)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The levels, from neighbours to halves of the axis.
    pub steps: SmallVec<[ScanStep; 12]>,
    /// What takes the place of the levels between warps, if the scan is contiguous: the exchange of the totals. The parts are
    /// in the order of the scan, so a thread combines the totals before its own part with its prefixes. Which part is its own
    /// is the last coordinate in the layout of the partial totals.
    pub exchange: Option<Exchange>,
}

impl Scan {
    /// The scan of a value with this layout along an axis.
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

    /// Whether the levels reach further and further: first within a thread, then within a warp, then between warps. Then
    /// each thread scans its registers, and lanes and warps exchange but the totals of threads and of warps.
    pub fn is_contiguous(&self) -> bool {
        self.steps.is_sorted_by_key(|level| level.step.reach())
    }
}
