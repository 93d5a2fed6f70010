//! Accesses to global memory: which axis is contiguous, how wide an access may be, what it costs in a layout.

use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use tilewright_ir::{AtomicKind, Dtype, Function, Inst, Op, Value};
use tilewright_layout::{Input, Layout, Vector, blocked, f2};
use tilewright_opt::analysis::AxisInfo;

use crate::cost_model::access_cost;
use crate::remarks::Because;
use tilewright_gpu_ir::layout_rules::{LANES, default_layout, element_bits};
use tilewright_gpu_ir::target::{ACCESS_BYTES, Feature, GpuTarget, SECTOR_BYTES};
use tilewright_gpu_ir::tuning::Tuning;

/// The least that an asynchronous copy of a thread moves: a load that is to go through a ring must move so much.
const LEAST_COPY_BYTES: u32 = 4;

/// What is known of every value.
pub type Infos = SecondaryMap<Value, AxisInfo>;

/// What a load or store of a tile allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessShape {
    /// The axes from the fastest in memory to the slowest.
    pub order: SmallVec<[usize; 6]>,
    /// Of each axis, how many elements along it may be accessed at once.
    pub widths: SmallVec<[u32; 6]>,
    /// Of each axis, how many elements along it are next to each other in memory.
    runs: SmallVec<[u32; 6]>,
    /// Whether the offset of each element from a pointer that they have in common takes two registers.
    has_wide_offsets: bool,
    /// The size of an element.
    pub bytes: u32,
    /// So many elements a thread has at least, where there are fewer elements than threads: loads of these cost no more
    /// instructions, as warps would hold copies.
    least: u32,
    tuning: &'static Tuning,
}

impl AccessShape {
    /// Of an access to global memory of a tile; none for anything else.
    pub fn of(function: &Function, inst: Inst, infos: &Infos, target: GpuTarget) -> Option<Self> {
        let data = &function.insts[inst];
        let ty = function.ty(*data.operands.first()?);
        if ty.is_scalar() {
            return None;
        }
        let dtype = || ty.element.pointee().expect("the verifier checks that accesses take pointers");
        let (mask_place, most) = match &data.op {
            Op::Load { .. } => (1, ACCESS_BYTES),
            Op::Store { .. } => (2, ACCESS_BYTES),
            Op::AtomicRmw { kind, .. } => (2, atomic_bytes(*kind, dtype(), target)),
            // An element at a time, whatever the mask.
            Op::AtomicCas { .. } | Op::AtomicLoad { .. } | Op::AtomicStore { .. } => (usize::MAX, 0),
            // tidy: wildcard because nothing else accesses memory
            _ => return None,
        };
        let (pointer, mask) = (data.operands[0], data.operands.get(mask_place).copied());
        let bytes = dtype().bytes() as u32;
        let info = &infos[pointer];
        let width = |axis: usize| {
            let same_mask = mask.map_or(u32::MAX, |mask| infos[mask].constancy(axis));
            let aligned = info.divisibility(axis).min(u64::from(most)) as u32 / bytes;
            let width = info.contiguity(axis).min(same_mask).min(aligned.max(1)).max(1);
            1 << width.ilog2()
        };
        let axes = 0..ty.rank();
        let mut order: SmallVec<[usize; 6]> = axes.clone().rev().collect();
        // Stable: where nothing is known the last axis is the fastest.
        order.sort_by_key(|axis| std::cmp::Reverse(info.contiguity(*axis)));
        Some(Self {
            order,
            widths: axes.clone().map(width).collect(),
            runs: axes.map(|axis| info.contiguity(axis)).collect(),
            has_wide_offsets: has_wide_offsets(function, pointer),
            bytes,
            least: match &data.op {
                Op::Load { .. } if target.features.has(Feature::CpAsync) => (LEAST_COPY_BYTES / bytes).max(1),
                // tidy: wildcard because only loads are copied asynchronously
                _ => 1,
            },
            tuning: target.tuning,
        })
    }

    /// The layout that suits the access: runs of its width along the fastest axis, but no wider than what leaves every
    /// thread something to do; lanes and warps side by side along the fastest axis, then along the next. With `reduced`, warps
    /// lie along that axis last, so that each may have all of it.
    ///
    /// Where a thread has many elements and accesses them in less than a word, by offsets of two registers, lanes lie along the
    /// fastest axis for a sector alone, and the thread has what is next along it: these offsets are constants apart, while
    /// each row has its own.
    pub fn layout(&self, shape: &[u32], num_warps: u32, reduced: Option<usize>) -> Layout {
        let elements: u32 = shape.iter().product();
        let per_thread = (elements / (LANES * num_warps)).max(self.least);
        let Some(first) = self.order.first() else { return default_layout(shape, num_warps) };
        let ones: SmallVec<[u32; 6]> = SmallVec::from_elem(1, shape.len());
        let mut widths = ones.clone();
        widths[*first] = self.widths[*first].min(shape[*first]).min(per_thread);
        let bytes = widths[*first] * self.bytes;
        let side_by_side = SECTOR_BYTES / bytes;
        let is_narrow = self.has_wide_offsets
            && bytes < LEAST_COPY_BYTES
            && per_thread >= self.tuning.narrow_access_elements
            && self.runs[*first] >= SECTOR_BYTES / self.bytes
            && elements / shape[*first] >= LANES * num_warps / side_by_side;
        let most_along = |axis: usize| if is_narrow && axis == *first { side_by_side } else { u32::MAX };
        let mut left: SmallVec<[u32; 6]> = shape.iter().zip(&widths).map(|(size, own)| size / own).collect();
        let mut spread = |mut count: u32, order: &[usize]| {
            let mut sizes = ones.clone();
            for axis in order {
                sizes[*axis] = count.min(left[*axis]).min(most_along(*axis));
                count /= sizes[*axis];
                left[*axis] /= sizes[*axis];
            }
            // The others hold copies.
            sizes[*first] *= count;
            sizes
        };
        let mut order_of_warps = self.order.clone();
        order_of_warps.sort_by_key(|axis| reduced == Some(*axis) || is_narrow && axis == first);
        let (lanes, warps) = (spread(LANES, &self.order), spread(num_warps, &order_of_warps));
        blocked(shape, &widths, &lanes, &warps, &self.order)
    }

    /// The [layout](Self::layout) with fewer elements a thread, where that has warps with copies so that loads may be copied
    /// asynchronously; None elsewhere.
    pub fn without_copies(&self, shape: &[u32], num_warps: u32) -> Option<Layout> {
        let has_copies = shape.iter().product::<u32>() / (LANES * num_warps) < self.least;
        has_copies.then(|| Self { least: 1, ..self.clone() }.layout(shape, num_warps, None))
    }

    /// The axis that each access of a thread goes along, and the elements that it moves, by a layout of the pointers.
    pub fn vector_axis_and_width(&self, layout: &Layout) -> (u32, u32) {
        let (axis, vector) = self.vector(layout);
        (axis as u32, vector.width())
    }

    /// What an access moves at once, and what keeps it from more: the instruction that it is of, and what is known of values.
    pub fn because(&self, function: &Function, inst: Inst, infos: &Infos, layout: &Layout) -> Because {
        let (axis, vector) = self.vector(layout);
        let width = vector.width();
        let count =
            |count: u32| if count == 1 { "1 element".to_owned() } else { format!("{count} elements") };
        let moved = width * self.bytes;
        let decision = format!("{moved} bytes an access: {} along axis {axis}", count(width));
        let data = &function.insts[inst];
        let mask = match &data.op {
            Op::Load { .. } => data.operands.get(1),
            Op::Store { .. } | Op::AtomicRmw { .. } => data.operands.get(2),
            // tidy: wildcard because nothing else is accessed in vectors
            _ => None,
        };
        let info = &infos[data.operands[0]];
        let run = self.runs[axis];
        let aligned = info.divisibility(axis);
        if moved >= ACCESS_BYTES {
            let run = if run == u32::MAX { "all".into() } else { count(run) };
            let reason = format!("{run} lie together, at multiples of {} bytes", aligned.min(1 << 20));
            return Because::done(decision, reason);
        }
        let constant = mask.map_or(u32::MAX, |mask| infos[*mask].constancy(axis));
        let reason = if run <= width {
            format!("{} along axis {axis} lie together in memory", count(run))
        } else if constant <= width {
            format!("the mask may change after {}", count(constant))
        } else if aligned <= u64::from(moved) {
            format!("addresses are known to be multiples of {aligned} bytes alone")
        } else if self.widths[axis] > width {
            format!("the layout gives a thread {} in a row, so that every thread has some", count(width))
        } else {
            "the operation moves no more at once".to_owned()
        };
        Because::missed(decision, reason)
    }

    /// The widest accesses, and the axis that they go along.
    fn vector(&self, layout: &Layout) -> (usize, Vector) {
        let along = |axis: usize| (axis, layout.vector_along(axis).at_most(self.widths[axis]));
        // The faster axis wins.
        let vectors = self.order.iter().rev().map(|axis| along(*axis));
        vectors.max_by_key(|(_, vector)| vector.width()).expect("a tile has an axis")
    }

    /// An estimate of what the access costs a warp: its instructions and the sectors that they touch.
    pub fn cost(&self, layout: &Layout) -> u32 {
        let (axis, vector) = self.vector(layout);
        let shift = layout.output().shift(axis);
        let longest = self.runs[axis].ilog2().min(layout.output().bits_of(axis));
        let mut run = vector.width().ilog2();
        let lanes = layout.bases(Input::Lane);
        let mut lanes_along = 0;
        while run < longest && lanes.contains(&(1 << (shift + run))) {
            run += 1;
            lanes_along += 1;
        }
        let runs = 1 << (f2::rank(lanes) - lanes_along);
        let run_bytes = self.bytes << run;
        access_cost(vector.accesses(), runs, run_bytes, self.tuning)
    }
}

/// Whether a tile of pointers is made of offsets of 64 bits.
fn has_wide_offsets(function: &Function, pointer: Value) -> bool {
    function.defining_inst(pointer).is_some_and(|inst| {
        let data = &function.insts[inst];
        matches!(data.op, Op::PtrAdd {}) && element_bits(function.ty(data.operands[1])) == 64
    })
}

/// The most bytes that one atomic operation of a thread moves: PTX has sums of several floats.
fn atomic_bytes(kind: AtomicKind, dtype: Dtype, target: GpuTarget) -> u32 {
    let has_vectors = target.features.has(Feature::VectorAtomics);
    match (kind, dtype) {
        (AtomicKind::Add, Dtype::F32 | Dtype::F16 | Dtype::BF16) if has_vectors => ACCESS_BYTES,
        // A pair.
        (AtomicKind::Add, Dtype::F16) => 4,
        (
            AtomicKind::Add
            | AtomicKind::And
            | AtomicKind::Or
            | AtomicKind::Xor
            | AtomicKind::Max
            | AtomicKind::Min
            | AtomicKind::Exchange,
            _,
        ) => 0,
    }
}

/// The bits of the register that stay within the runs of equal elements.
pub fn equal_registers(layout: &Layout, info: &AxisInfo) -> u32 {
    let tile = layout.output();
    let is_in_run =
        |column: u32| (0..tile.rank()).all(|axis| tile.coordinate(column, axis) < info.constancy(axis));
    let bases = layout.bases(Input::Register).iter().enumerate();
    bases.fold(0, |bits, (bit, column)| bits | u32::from(is_in_run(*column)) << bit)
}
