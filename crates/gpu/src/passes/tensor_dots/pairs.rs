//! Divides the operands of dots between the two blocks of a pair (`.cta_group::2`).
//!
//! In a divided program (`tile/cluster.rs`), the blocks `2 * i` and `2 * i + 1` of a cluster are a
//! pair. If a dot has the same B in both, one instruction computes the rows of both. Each block
//! has its rows of A and of the accumulator, and half of the columns of B:
//!
//! ```text
//! mbarrier_init %full {arrivals = 2}        mbarrier_init %full {arrivals = 4}
//!                                           cluster_arrive ; cluster_wait
//! mbarrier_expect %full, %s                 mbarrier_arrive_at %full, %s, %lead
//! tensor_load %a, …, %full, %s, %i, %k  =>  tensor_load_to %a, …, %full, %s, %i, %k {at_lead}
//! tensor_load %b, …, %full, %s, %k, %j      tensor_load_to %b, …, %full, %s, %k, %j + %odd * n/2 {at_lead}
//! mbarrier_wait %full, %s, %p               mbarrier_wait %full, %s, %p | %odd
//! ```
//! The copies of both blocks signal the barrier of the first one, which starts the dots. Nothing
//! arrives at the barrier of the other one. That block waits for parity 1, the phase before the
//! first, which counts as complete.
//!
//! Assumes that rings are lowered. Guarantees that the blocks run the same dots in the same order:
//! control flow, slots and phases do not depend on the rank. A block fills a slot again only after
//! the first block has waited for it: for the other block, either a dot completes at its barrier
//! `empty`, or, without a dot, a barrier of the cluster follows the wait.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Cursor, Dtype, ElementwiseFn, Inst, Operation, Parents, Position, Value};
use tilewright_layout::{Layout, SwizzleMode, swizzled};

use crate::passes::boxed::is_of_rows;
use crate::passes::rank_dependence::RankDependence;
use crate::passes::tensor_maps::launch_map_index;
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::box_layout::BoxLayout;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::{Buffer, Function, GpuOp, Header, Op, ProgramOrder, TensorMemory, Type};

/// The rows of the accumulator in a block.
const BLOCK_ROWS: u32 = 128;
/// The blocks of a pair.
pub const PAIR: u32 = 2;
/// The operands of a tensor load before its coordinates.
const BEFORE_COORDINATES: usize = 4;

/// The reason why each block computes its dots itself.
pub struct PairRefusal {
    /// The instruction that prevents pairs; `None` for the dots.
    pub inst: Option<Inst>,
    pub reason: &'static str,
}

type Found<T> = Result<T, PairRefusal>;

fn refuse<T>(inst: Inst, reason: &'static str) -> Found<T> {
    Err(PairRefusal { inst: Some(inst), reason })
}

/// The division of a kernel's operands between the blocks of a pair.
pub struct PairPlan {
    /// The initializations of the barriers at which copies of operands arrive.
    inits: Vec<Inst>,
    waits: Vec<Inst>,
    /// The waits for operands of no dot.
    waits_without_dot: Vec<Inst>,
    copies: Vec<OperandCopy>,
    /// The halves of each buffer of B.
    halves: BTreeMap<Value, Half>,
    /// The entry-block index of the first op that signals another block, or of the op around it.
    first: usize,
}

/// A copy of an operand, and the arrival that announces its bytes.
struct OperandCopy {
    expect: Inst,
    load: Inst,
    /// The buffer of the operand.
    root: Value,
}

/// The half of a buffer of B.
struct Half {
    /// The axis of the columns of B.
    axis: usize,
    buffer: Buffer,
    layout: Layout,
    /// The tensor map whose box changes, with the extents and the swizzle of the half's boxes.
    map: Option<(usize, SwizzleMode, SmallVec<[u32; 5]>)>,
}

/// The values of a kernel whose pairs of blocks compute dots.
#[derive(Clone, Copy)]
pub struct PairValues {
    /// The rank of the first block of the pair.
    pub lead: Value,
    /// 1 in the second block of the pair, else 0.
    pub odd: Value,
}

/// Returns whether the blocks of a kernel may be pairs.
pub fn has_pairs(header: &Header) -> bool {
    header.cluster.is_multiple_of(PAIR)
        && !header.explicit
        && header.order == ProgramOrder::AsLaunched
        && header.target.features.has(Feature::Tcgen05)
}

/// Divides the operands of all dots of a kernel, if possible.
///
/// # Errors
/// The reason why each block computes its dots itself.
pub fn plan(header: &Header, function: &Function) -> Found<PairPlan> {
    let analysis = SlotAnalysis::new(function, false);
    let ranked = RankDependence::of(function, header.cluster);
    Planner { header, function, analysis, ranked }.plan()
}

struct Planner<'a> {
    header: &'a Header,
    function: &'a Function,
    analysis: SlotAnalysis<'a>,
    ranked: RankDependence,
}

/// The buffers of the operands of all dots.
#[derive(Default)]
struct Operands {
    left: BTreeSet<Value>,
    /// The buffers of B, each with the axis of its columns.
    right: BTreeMap<Value, usize>,
}

impl Operands {
    fn contains(&self, root: Value) -> bool {
        self.left.contains(&root) || self.right.contains_key(&root)
    }
}

impl Planner<'_> {
    fn plan(&self) -> Found<PairPlan> {
        let operands = self.operands()?;
        self.check_users(&operands)?;
        let copies = self.copies(&operands)?;
        let full: BTreeSet<Value> = copies.iter().map(|copy| self.operand(copy.load, 2)).collect();
        let (mut inits, mut waits) = (Vec::new(), Vec::new());
        for inst in self.insts() {
            let data = &self.function.insts[inst];
            if data.operands.first().is_none_or(|barriers| !full.contains(barriers)) {
                continue;
            }
            match data.op {
                Op::Gpu(GpuOp::MbarrierInit { .. }) if data.operands.len() == 1 => inits.push(inst),
                Op::Gpu(GpuOp::MbarrierWait {}) => waits.push(inst),
                Op::Gpu(GpuOp::MbarrierExpect { .. }) => {
                    if !copies.iter().any(|copy| copy.expect == inst) {
                        return refuse(inst, "it announces bytes of several copies");
                    }
                }
                // tidy: wildcard because copies of pairs do not count other arrivals
                _ => return refuse(inst, "other data arrives at the barrier of an operand"),
            }
        }
        let waits_without_dot = self.waits_without_dot(&waits, &copies);
        let used = copies.iter().flat_map(|copy| [copy.expect, copy.load]).chain(waits.iter().copied());
        let first = used.filter_map(|inst| self.entry_index(inst)).min();
        let Some(first) = first else {
            return Err(PairRefusal { inst: None, reason: "nothing copies its operands" });
        };
        for &inst in &inits {
            let is_early = self.function.position_in(self.function.entry, inst).is_some_and(|at| at < first);
            if !is_early {
                return refuse(inst, "the barriers of an operand are initialized after the first copy");
            }
        }
        self.check_ranks(&copies, &waits, &operands)?;
        let halves = operands.right.iter().map(|(root, axis)| Ok((*root, self.half(*root, *axis, &copies)?)));
        let halves = halves.collect::<Found<_>>()?;
        Ok(PairPlan { inits, waits, waits_without_dot, copies, halves, first })
    }

    fn insts(&self) -> Vec<Inst> {
        let mut insts = Vec::new();
        self.function.walk(self.function.entry, &mut |inst| insts.push(inst));
        insts
    }

    fn operand(&self, inst: Inst, index: usize) -> Value {
        self.function.insts[inst].operands[index]
    }

    fn entry_index(&self, inst: Inst) -> Option<usize> {
        let entry = self.function.entry;
        self.function.position_in(entry, self.analysis.ancestor_in(entry, inst)?)
    }

    /// Returns the buffers of the operands, if a pair has an instruction for each dot.
    fn operands(&self) -> Found<Operands> {
        let mut operands = Operands::default();
        for inst in self.insts() {
            let data = &self.function.insts[inst];
            match &data.op {
                Op::Gpu(GpuOp::Wgmma { transposed_b, formats, .. }) => {
                    let Type::Pending { tile, .. } = self.function.ty(data.results[0]) else {
                        return refuse(inst, "its result is not in flight");
                    };
                    if formats.is_some() {
                        return refuse(inst, "its operands have scales");
                    }
                    let memory = TensorMemory::of_accumulator(tile);
                    let Some(memory) = memory.filter(|memory| memory.block.rows == BLOCK_ROWS) else {
                        return refuse(inst, "a block has fewer than 128 rows of its result");
                    };
                    if memory.block.columns != memory.shape[1] {
                        return refuse(inst, "its result has more columns than an instruction");
                    }
                    let roots = [0, 1].map(|index| self.analysis.root(data.operands[index]));
                    let [Some(left), Some(right)] = roots else {
                        return refuse(inst, "threads compute an operand");
                    };
                    let axis = usize::from(!transposed_b);
                    operands.left.insert(left);
                    if *operands.right.entry(right).or_insert(axis) != axis {
                        return refuse(inst, "another dot reads the transpose of its B");
                    }
                }
                Op::Gpu(
                    GpuOp::WarpSpecialize { .. }
                    | GpuOp::MulticastLoads {}
                    | GpuOp::TensorLoadTo { .. }
                    | GpuOp::GatherBlocks { .. }
                    | GpuOp::MbarrierArriveAt { .. }
                    | GpuOp::ClusterArrive {}
                    | GpuOp::ClusterWait {},
                ) => return refuse(inst, "the kernel synchronizes warps or blocks in another way"),
                // tidy: wildcard because other ops do not concern the blocks of a cluster
                _ => {}
            }
        }
        match operands.left.iter().find(|root| operands.right.contains_key(root)) {
            Some(root) => Err(PairRefusal {
                inst: self.function.defining_inst(*root),
                reason: "it is A of a dot and B of another one",
            }),
            None => Ok(operands),
        }
    }

    /// Checks that only tensor copies write operands, and that only dots read them.
    fn check_users(&self, operands: &Operands) -> Found<()> {
        let mut freed = FxHashSet::default();
        for inst in self.insts() {
            let data = &self.function.insts[inst];
            let about = data.operands.iter().filter_map(|operand| self.analysis.root(*operand));
            let about: Vec<Value> = about.filter(|root| operands.contains(*root)).collect();
            if about.is_empty() {
                continue;
            }
            match &data.op {
                Op::Gpu(GpuOp::Dealloc {}) => freed.extend(about),
                Op::Gpu(GpuOp::Slot {} | GpuOp::Wgmma { .. }) => {}
                Op::Gpu(GpuOp::TensorLoad {}) if !is_of_rows(self.function, inst) => {}
                Op::Gpu(GpuOp::TensorLoad {}) => return refuse(inst, "it gathers rows of an operand"),
                // tidy: wildcard because other ops are accesses of threads
                _ => return refuse(inst, "threads access an operand"),
            }
        }
        let left = operands.left.iter().chain(operands.right.keys()).find(|root| !freed.contains(*root));
        match left {
            Some(root) => Err(PairRefusal {
                inst: self.function.defining_inst(*root),
                reason: "copies of it may be in flight when the kernel ends",
            }),
            None => Ok(()),
        }
    }

    /// Returns the copies of the operands, each with its own arrival.
    fn copies(&self, operands: &Operands) -> Found<Vec<OperandCopy>> {
        let loads = self
            .insts()
            .into_iter()
            .filter(|inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::TensorLoad {})));
        let loads: Vec<(Inst, Option<Value>)> =
            loads.map(|load| (load, self.analysis.root(self.operand(load, 0)))).collect();
        let is_operand = |root: &Option<Value>| root.is_some_and(|root| operands.contains(root));
        let full: BTreeSet<Value> = loads
            .iter()
            .filter(|(_, root)| is_operand(root))
            .map(|(load, _)| self.operand(*load, 2))
            .collect();
        let mut copies: Vec<OperandCopy> = Vec::new();
        for (load, root) in loads {
            if !full.contains(&self.operand(load, 2)) {
                continue;
            }
            let Some(root) = root.filter(|root| operands.contains(*root)) else {
                return refuse(load, "it shares the barrier of an operand, and threads read it");
            };
            let Some(expect) = self.expect_of(load) else {
                return refuse(load, "no arrival of its own announces its bytes");
            };
            if copies.iter().any(|copy| copy.expect == expect) {
                return refuse(load, "no arrival of its own announces its bytes");
            }
            copies.push(OperandCopy { expect, load, root });
        }
        match operands
            .left
            .iter()
            .chain(operands.right.keys())
            .find(|root| copies.iter().all(|copy| copy.root != **root))
        {
            Some(root) => Err(PairRefusal {
                inst: self.function.defining_inst(*root),
                reason: "no tensor copy fills it",
            }),
            None => Ok(copies),
        }
    }

    /// Returns the last arrival before a copy at its slot of the barrier, in the block of the copy.
    fn expect_of(&self, load: Inst) -> Option<Inst> {
        let insts = &self.function.blocks[self.analysis.block_of_inst(load)].insts;
        let before = insts.iter().take_while(|inst| **inst != load);
        let expect = *before
            .filter(|inst| {
                let data = &self.function.insts[**inst];
                let is_expect = matches!(data.op, Op::Gpu(GpuOp::MbarrierExpect { .. }));
                is_expect && data.operands[..2] == self.function.insts[load].operands[2..4]
            })
            .last()?;
        let Op::Gpu(GpuOp::MbarrierExpect { bytes }) = self.function.insts[expect].op else { return None };
        let buffer = self.function.ty(self.operand(load, 0)).as_memory()?;
        (bytes == buffer.slot_bytes()).then_some(expect)
    }

    /// Returns the waits for operands that no dot of these operands follows, in the same block and
    /// before the next wait. The last iterations of a loop may copy operands of no dot.
    fn waits_without_dot(&self, waits: &[Inst], copies: &[OperandCopy]) -> Vec<Inst> {
        let has_dot = |wait: Inst| {
            let barriers = self.operand(wait, 0);
            let is_its = |operand: &Value| {
                let root = self.analysis.root(*operand);
                copies.iter().any(|copy| Some(copy.root) == root && self.operand(copy.load, 2) == barriers)
            };
            let insts = &self.function.blocks[self.analysis.block_of_inst(wait)].insts;
            let later = insts.iter().skip_while(|inst| **inst != wait).skip(1);
            let until_next = later.map(|inst| &self.function.insts[*inst]).take_while(|data| {
                !matches!(data.op, Op::Gpu(GpuOp::MbarrierWait {})) || data.operands[0] != barriers
            });
            let mut dots = until_next.filter(|data| matches!(data.op, Op::Gpu(GpuOp::Wgmma { .. })));
            dots.any(|data| data.operands[..2].iter().any(is_its))
        };
        waits.iter().copied().filter(|wait| !has_dot(*wait)).collect()
    }

    /// Checks that the blocks of a pair run the same copies of B and the same dots.
    fn check_ranks(&self, copies: &[OperandCopy], waits: &[Inst], operands: &Operands) -> Found<()> {
        for copy in copies {
            let [expect, load] = [copy.expect, copy.load].map(|inst| &self.function.insts[inst]);
            let own = load.operands[BEFORE_COORDINATES..].iter();
            let is_right = operands.right.contains_key(&copy.root);
            if is_right && own.chain([&load.operands[1]]).any(|value| self.ranked.contains(*value)) {
                return refuse(copy.load, "the blocks of a pair need different columns of B");
            }
            if [expect.operands[1], load.operands[3]].iter().any(|value| self.ranked.contains(*value)) {
                return refuse(copy.load, "its slot depends on the block");
            }
        }
        for &wait in waits {
            if self.function.insts[wait].operands[1..].iter().any(|value| self.ranked.contains(*value)) {
                return refuse(wait, "its phase depends on the block");
            }
        }
        for inst in self.insts() {
            let data = &self.function.insts[inst];
            match &data.op {
                Op::Gpu(GpuOp::Slot {}) => {
                    let root = self.analysis.root(data.operands[0]);
                    let is_operand = root.is_some_and(|root| operands.contains(root));
                    if is_operand && self.ranked.contains(data.operands[1]) {
                        return refuse(inst, "its slot depends on the block");
                    }
                }
                Op::Gpu(
                    GpuOp::Wgmma { .. }
                    | GpuOp::WgmmaInit {}
                    | GpuOp::WgmmaWait { .. }
                    | GpuOp::WgmmaWaitEarlier { .. }
                    | GpuOp::TensorLoad {}
                    | GpuOp::MbarrierExpect { .. }
                    | GpuOp::MbarrierWait {},
                ) => self.check_control(inst)?,
                // tidy: wildcard because a block may run other ops without the other block
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that loops and branches around an instruction are equal in all blocks.
    fn check_control(&self, inst: Inst) -> Found<()> {
        let mut block = self.analysis.block_of_inst(inst);
        while let Some(owner) = self.analysis.owner(block) {
            let data = &self.function.insts[owner];
            let conditions = self.function.conditions(owner).iter();
            let conditions = conditions.flat_map(|region| self.function.yielded(*region));
            let own = data.operands[..data.op.info().operands.len()].iter();
            if own.chain(conditions).any(|value| self.ranked.contains(*value)) {
                return refuse(owner, "its trip count or condition depends on the block");
            }
            block = self.analysis.block_of_inst(owner);
        }
        Ok(())
    }

    /// Returns the half of a buffer of B along the axis of its columns.
    fn half(&self, root: Value, axis: usize, copies: &[OperandCopy]) -> Found<Half> {
        let load = copies.iter().find(|copy| copy.root == root).map(|copy| copy.load);
        let load = load.ok_or(PairRefusal { inst: None, reason: "no tensor copy fills it" })?;
        let Type::Buffer(buffer) = self.function.ty(root) else {
            return refuse(load, "it does not fill a buffer");
        };
        let tile = buffer.tile();
        let bits = element_bits(&tile);
        let Some(boxes) = BoxLayout::of(self.header.layouts.get(buffer.layout), bits) else {
            return refuse(load, "its tile does not consist of boxes");
        };
        let part = |(own, extent): (usize, u32)| if own == axis { extent / PAIR } else { extent };
        let shape: ir::Shape = tile.shape.iter().copied().enumerate().map(part).collect();
        let has_rows_along_k = boxes.order[0] != axis;
        let swizzle = if has_rows_along_k || boxes.row <= shape[axis] {
            boxes.swizzle
        } else {
            SwizzleMode::widest(shape[axis] * bits / 8)
        };
        if !has_rows_along_k && swizzle == SwizzleMode::None {
            return refuse(load, "half of a row of B is shorter than the rows of an instruction");
        }
        let layout = swizzled(&shape, &boxes.order, bits, swizzle);
        let Some(half) = BoxLayout::of(&layout, bits).filter(|half| half.order == boxes.order) else {
            return refuse(load, "half of its tile does not consist of boxes");
        };
        let extents = half.extents(&shape);
        let is_same = extents == boxes.extents(&tile.shape) && swizzle == boxes.swizzle;
        let map = if is_same { None } else { Some((self.own_map(root, load)?, swizzle, extents)) };
        let buffer = Buffer { shape, ..buffer.clone() };
        Ok(Half { axis, buffer, layout, map })
    }

    /// Returns the tensor map of the launch of a buffer, if it is for no other buffer.
    fn own_map(&self, root: Value, load: Inst) -> Found<usize> {
        let map = self.operand(load, 1);
        let Some(index) = launch_map_index(self.header, self.function, map) else {
            return refuse(load, "the kernel makes its tensor map");
        };
        for inst in self.insts() {
            let data = &self.function.insts[inst];
            let is_load = matches!(data.op, Op::Gpu(GpuOp::TensorLoad {}))
                && self.analysis.root(data.operands[0]) == Some(root);
            if data.operands.contains(&map) != is_load {
                return refuse(inst, "a tensor map is for B and for another tile");
            }
        }
        Ok(index)
    }
}

impl PairPlan {
    /// Divides the operands. Adds the barrier of the cluster before the first arrival in another
    /// block. Dots still have the types of one block.
    pub fn divide(&self, header: &mut Header, function: &mut Function) -> PairValues {
        let entry = function.entry;
        let mut cursor = Cursor::at_start(function, entry);
        let number = Type::scalar(ir::Type::scalar(Dtype::I32));
        let block = cursor.value(ir::Op::ProgramId { axis: 0 }, &[], number);
        let [odd, lead] = [1, (header.cluster - 1) & !1].map(|mask| {
            let mask = cursor.int(Dtype::I32, mask);
            cursor.scalar(ElementwiseFn::And, &[block, mask], Dtype::I32)
        });
        let no_others = cursor.int(Dtype::I32, 0);
        let shifts: BTreeMap<Value, Value> = self
            .halves
            .iter()
            .map(|(root, half)| {
                let columns = cursor.int(Dtype::I32, half.buffer.shape[half.axis]);
                (*root, cursor.scalar(ElementwiseFn::Mul, &[odd, columns], Dtype::I32))
            })
            .collect();
        let added = cursor.position().index;
        cursor.go_to(Position { block: entry, index: self.first + added });
        cursor.emit(GpuOp::ClusterArrive {}, &[], []);
        cursor.emit(GpuOp::ClusterWait {}, &[], []);
        for (root, half) in &self.halves {
            half.set_type(header, function, *root);
        }
        for &init in &self.inits {
            if let Op::Gpu(GpuOp::MbarrierInit { arrivals }) = &mut function.insts[init].op {
                *arrivals *= PAIR;
            }
        }
        let parents = Parents::new(function);
        let block_of = |inst: Inst| parents.block(inst).expect("an instruction is in a block");
        for &wait in &self.waits {
            let mut cursor = Cursor::before(function, block_of(wait), wait);
            cursor.use_location_of(wait);
            let phase = cursor.function.insts[wait].operands[2];
            let phase = cursor.scalar(ElementwiseFn::Or, &[phase, odd], Dtype::I32);
            function.insts[wait].operands[2] = phase;
            if self.waits_without_dot.contains(&wait) {
                let mut cursor = Cursor::after(function, block_of(wait), wait);
                cursor.emit(GpuOp::ClusterArrive {}, &[], []);
                cursor.emit(GpuOp::ClusterWait {}, &[], []);
            }
        }
        for copy in &self.copies {
            if let Some((half, shift)) = self.halves.get(&copy.root).zip(shifts.get(&copy.root)) {
                let mut cursor = Cursor::before(function, block_of(copy.load), copy.load);
                cursor.use_location_of(copy.load);
                let data = &cursor.function.insts[copy.load];
                let index = data.operands.len() - half.buffer.shape.len() + half.axis;
                let own = data.operands[index];
                let shifted = cursor.scalar(ElementwiseFn::Add, &[own, *shift], Dtype::I32);
                function.insts[copy.load].operands[index] = shifted;
            }
            copy.signal(function, [lead, no_others]);
        }
        PairValues { lead, odd }
    }
}

impl OperandCopy {
    /// Makes the copy, and the arrival for its bytes, signal the first block of the pair.
    fn signal(&self, function: &mut Function, [lead, no_others]: [Value; 2]) {
        let buffer = function.insts[self.load].operands[0];
        let bytes = function.ty(buffer).as_memory().expect("a copy fills a buffer").slot_bytes();
        let expect = &mut function.insts[self.expect];
        expect.op = GpuOp::MbarrierArriveAt { arrivals: 1, bytes }.into();
        expect.operands.push(lead);
        let data = &mut function.insts[self.load];
        data.op = GpuOp::TensorLoadTo { offsets: 0, at_lead: true }.into();
        data.operands.insert(BEFORE_COORDINATES, no_others);
    }
}

impl Half {
    /// Gives a buffer of B and its slots the type of the half, and its tensor map the box.
    fn set_type(&self, header: &mut Header, function: &mut Function, root: Value) {
        let buffer = Buffer { layout: header.layouts.add(self.layout.clone()), ..self.buffer.clone() };
        let mut slots = Vec::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if matches!(data.op, Op::Gpu(GpuOp::Slot {})) && data.operands[0] == root {
                slots.push(data.results[0]);
            }
        });
        for slot in slots {
            function.values[slot].ty = Type::Buffer(Buffer { slots: 1, ..buffer.clone() });
        }
        function.values[root].ty = Type::Buffer(buffer);
        if let Some((index, swizzle, extents)) = &self.map {
            let plan = &mut header.tensor_maps[*index];
            let own = plan.strides.len() - extents.len();
            let copied = plan.copied.as_mut().expect("the map of a copy has a box");
            copied.extents[own..].copy_from_slice(extents);
            copied.swizzle = *swizzle;
        }
    }
}

/// Adds the barrier of the cluster after which no block signals another one, or reads its memory.
pub fn synchronize_at_end(function: &mut Function) {
    let entry = function.entry;
    let is_shared = |op: &Op| {
        matches!(
            op,
            Op::Gpu(
                GpuOp::Tcgen05Mma { .. }
                    | GpuOp::Tcgen05Commit { .. }
                    | GpuOp::TmemLoad {}
                    | GpuOp::TensorLoadTo { .. }
                    | GpuOp::MbarrierArriveAt { .. }
                    | GpuOp::MbarrierWait {}
            )
        )
    };
    let insts = &function.blocks[entry].insts;
    let last = insts.iter().rposition(|inst| {
        let data = &function.insts[*inst];
        let mut found = is_shared(&data.op);
        for &region in &data.regions {
            function.walk(region, &mut |inner| found |= is_shared(&function.insts[inner].op));
        }
        found
    });
    let after = last.map_or(insts.len() - 1, |last| last + 1);
    let mut cursor = Cursor::at_start(function, entry);
    cursor.go_to(Position { block: entry, index: after });
    cursor.emit(GpuOp::ClusterArrive {}, &[], []);
    // The last instruction is the return.
    let end = cursor.function.blocks[entry].insts.len() - 1;
    cursor.go_to(Position { block: entry, index: end });
    cursor.emit(GpuOp::ClusterWait {}, &[], []);
}
