//! Computes the width of global accesses, and their cost in a layout.

use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use tilewright_ir::{AtomicKind, DeviceFn, Dtype, Function, Inst, Op, Value};
use tilewright_layout::{Input, Layout, Vector, blocked, f2};
use tilewright_opt::analysis::AxisInfo;

use crate::cost_model::access_cost;
use crate::remarks::RemarkReason;
use tilewright_gpu_ir::layout_rules::{LANES, default_layout, element_bits};
use tilewright_gpu_ir::target::{ACCESS_BYTES, Feature, GpuTarget, SECTOR_BYTES};
use tilewright_gpu_ir::tuning::Tuning;

/// The minimum number of bytes of a `cp.async`.
const MIN_COPY_BYTES: u32 = 4;

pub type Infos = SecondaryMap<Value, AxisInfo>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessShape {
    /// The axes from the fastest in memory to the slowest.
    pub order: SmallVec<[usize; 6]>,
    /// The number of elements along each axis that one access may move.
    pub widths: SmallVec<[u32; 6]>,
    /// The number of consecutive elements along each axis that are contiguous in memory.
    runs: SmallVec<[u32; 6]>,
    /// True if the offset of each element from the common pointer takes two registers.
    has_wide_offsets: bool,
    pub bytes: u32,
    /// The minimum number of elements of a thread. For a possible asynchronous copy, these are the
    /// elements of the smallest copy ([`MIN_COPY_BYTES`]), else 1. In a tile with fewer elements
    /// for each thread, threads hold copies, which cost no instructions.
    min_elements: u32,
    tuning: &'static Tuning,
}

impl AccessShape {
    /// Analyzes an access to global memory. Returns `None` for other instructions.
    pub fn of(function: &Function, inst: Inst, infos: &Infos, target: GpuTarget) -> Option<Self> {
        let data = &function.insts[inst];
        let (pointer_index, mask_index) = match &data.op {
            Op::Load { .. } => (0, 1),
            Op::Store { .. } | Op::AtomicRmw { .. } => (0, 2),
            Op::Device { function: DeviceFn::CopyAsync { .. } } => (2, 3),
            // These ops access single elements, so the mask does not matter.
            Op::AtomicCas { .. } | Op::AtomicLoad { .. } | Op::AtomicStore { .. } => (0, usize::MAX),
            // tidy: wildcard because no other op accesses global memory
            _ => return None,
        };
        let ty = function.ty(data.operands[pointer_index]);
        if ty.is_scalar() {
            return None;
        }
        let dtype = || ty.element.pointee().expect("the verifier checks that accesses take pointers");
        let max_bytes = match &data.op {
            // Asynchronous copies move at most 16 bytes.
            Op::Device { .. } => ACCESS_BYTES,
            Op::AtomicRmw { kind, .. } => atomic_bytes(*kind, dtype(), target),
            Op::AtomicCas { .. } | Op::AtomicLoad { .. } | Op::AtomicStore { .. } => 0,
            // tidy: wildcard because the others are plain accesses
            _ => target.access_bytes(),
        };
        let (pointer, mask) = (data.operands[pointer_index], data.operands.get(mask_index).copied());
        let bytes = dtype().bytes() as u32;
        let info = &infos[pointer];
        let width = |axis: usize| {
            let same_mask = mask.map_or(u32::MAX, |mask| infos[mask].constancy(axis));
            let aligned = info.divisibility(axis).min(u64::from(max_bytes)) as u32 / bytes;
            let width = info.contiguity(axis).min(same_mask).min(aligned.max(1)).max(1);
            1 << width.ilog2()
        };
        let axes = 0..ty.rank();
        let mut order: SmallVec<[usize; 6]> = axes.clone().rev().collect();
        // The sort is stable: the last axis is the fastest if the contiguity is unknown.
        order.sort_by_key(|axis| std::cmp::Reverse(info.contiguity(*axis)));
        Some(Self {
            order,
            widths: axes.clone().map(width).collect(),
            runs: axes.map(|axis| info.contiguity(axis)).collect(),
            has_wide_offsets: has_wide_offsets(function, pointer),
            bytes,
            min_elements: match &data.op {
                Op::Load { .. } if target.features.has(Feature::CpAsync) => (MIN_COPY_BYTES / bytes).max(1),
                // tidy: wildcard because only loads are copied asynchronously
                _ => 1,
            },
            tuning: target.tuning,
        })
    }

    /// Returns the layout in which the access is cheapest.
    ///
    /// A thread has a vector along the fastest axis, narrower if threads would otherwise be idle.
    /// Lanes, then warps, follow along the fastest axis, then along the next axes. Example: in
    /// `[64, 64]` with vectors of 8, 8 lanes are along a row, and a warp covers 4 rows. Warps are
    /// along the axis `reduced` last, so that a warp has all its elements if possible.
    ///
    /// Lanes cover only one sector along the fastest axis if all of these conditions hold:
    ///
    /// - A thread has many elements, and each offset takes two registers.
    /// - An access moves fewer than 4 bytes.
    /// - Memory is contiguous for at least a sector.
    /// - The other axes have enough elements for the remaining lanes and warps.
    ///
    /// A thread's further elements are then along the fastest axis, where offsets differ by
    /// constants. Elements of other rows would need separate offsets.
    pub fn layout(&self, shape: &[u32], num_warps: u32, reduced: Option<usize>) -> Layout {
        let elements: u32 = shape.iter().product();
        let per_thread = (elements / (LANES * num_warps)).max(self.min_elements);
        let Some(first) = self.order.first() else { return default_layout(shape, num_warps) };
        let ones: SmallVec<[u32; 6]> = SmallVec::from_elem(1, shape.len());
        let mut widths = ones.clone();
        widths[*first] = self.widths[*first].min(shape[*first]).min(per_thread);
        let bytes = widths[*first] * self.bytes;
        let lanes_of_sector = SECTOR_BYTES / bytes;
        let is_narrow = self.has_wide_offsets
            && bytes < MIN_COPY_BYTES
            && per_thread >= self.tuning.narrow_access_elements
            && self.runs[*first] >= SECTOR_BYTES / self.bytes
            && elements / shape[*first] >= LANES * num_warps / lanes_of_sector;
        let max_along = |axis: usize| if is_narrow && axis == *first { lanes_of_sector } else { u32::MAX };
        let mut left: SmallVec<[u32; 6]> = shape.iter().zip(&widths).map(|(size, own)| size / own).collect();
        let mut spread = |mut count: u32, order: &[usize]| {
            let mut sizes = ones.clone();
            for axis in order {
                sizes[*axis] = count.min(left[*axis]).min(max_along(*axis));
                count /= sizes[*axis];
                left[*axis] /= sizes[*axis];
            }
            // The remaining lanes or warps hold copies.
            sizes[*first] *= count;
            sizes
        };
        let mut order_of_warps = self.order.clone();
        order_of_warps.sort_by_key(|axis| reduced == Some(*axis) || is_narrow && axis == first);
        let (lanes, warps) = (spread(LANES, &self.order), spread(num_warps, &order_of_warps));
        blocked(shape, &widths, &lanes, &warps, &self.order)
    }

    /// Returns [`layout`](Self::layout) without the copies that only asynchronous loads need.
    /// Returns `None` without such copies.
    pub fn without_copies(&self, shape: &[u32], num_warps: u32) -> Option<Layout> {
        let has_copies = shape.iter().product::<u32>() / (LANES * num_warps) < self.min_elements;
        has_copies.then(|| Self { min_elements: 1, ..self.clone() }.layout(shape, num_warps, None))
    }

    /// Returns the axis of a thread's vector accesses, and their width in elements.
    pub fn vector_axis_and_width(&self, layout: &Layout) -> (u32, u32) {
        let (axis, vector) = self.vector(layout);
        (axis as u32, vector.width())
    }

    /// Returns a remark with the width of an access, and why it is not wider.
    pub fn because(&self, function: &Function, inst: Inst, infos: &Infos, layout: &Layout) -> RemarkReason {
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
            // tidy: wildcard because no other op accesses vectors
            _ => None,
        };
        let info = &infos[data.operands[0]];
        let run = self.runs[axis];
        let aligned = info.divisibility(axis);
        if moved >= ACCESS_BYTES {
            let run = if run == u32::MAX { "all elements".into() } else { count(run) };
            let reason = format!("{run} are contiguous, at multiples of {} bytes", aligned.min(1 << 20));
            return RemarkReason::done(decision, reason);
        }
        let constant = mask.map_or(u32::MAX, |mask| infos[*mask].constancy(axis));
        let reason = if run <= width {
            format!("memory is contiguous for only {} along axis {axis}", count(run))
        } else if constant <= width {
            format!("the mask may change after {}", count(constant))
        } else if aligned <= u64::from(moved) {
            format!("addresses are only known to be multiples of {aligned} bytes")
        } else if self.widths[axis] > width {
            format!("the layout gives a thread only {} in a row, so that no thread is idle", count(width))
        } else {
            "no instruction for this operation moves more bytes".to_owned()
        };
        RemarkReason::missed(decision, reason)
    }

    /// Returns the axis of the widest accesses, and their vector.
    fn vector(&self, layout: &Layout) -> (usize, Vector) {
        let along = |axis: usize| (axis, layout.vector_along(axis).at_most(self.widths[axis]));
        // Between equal widths, the faster axis wins.
        let vectors = self.order.iter().rev().map(|axis| along(*axis));
        vectors.max_by_key(|(_, vector)| vector.width()).expect("a tile has an axis")
    }

    /// Estimates the instructions and sectors of the access for a warp.
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

fn has_wide_offsets(function: &Function, pointer: Value) -> bool {
    function.defining_inst(pointer).is_some_and(|inst| {
        let data = &function.insts[inst];
        matches!(data.op, Op::PtrAdd {}) && element_bits(function.ty(data.operands[1])) == 64
    })
}

/// Returns the most bytes of an atomic instruction; 0 if it moves one element. Only additions of
/// floats have vector instructions.
fn atomic_bytes(kind: AtomicKind, dtype: Dtype, target: GpuTarget) -> u32 {
    let has_vectors = target.features.has(Feature::VectorAtomics);
    match (kind, dtype) {
        (AtomicKind::Add, Dtype::F32 | Dtype::F16 | Dtype::BF16) if has_vectors => ACCESS_BYTES,
        // The instruction for `f16x2` adds two elements.
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

/// Returns the register-index bits that do not change the value of an element.
pub fn equal_registers(layout: &Layout, info: &AxisInfo) -> u32 {
    let tile = layout.output();
    let is_in_run =
        |column: u32| (0..tile.rank()).all(|axis| tile.coordinate(column, axis) < info.constancy(axis));
    let bases = layout.bases(Input::Register).iter().enumerate();
    bases.fold(0, |bits, (bit, column)| bits | u32::from(is_in_run(*column)) << bit)
}
