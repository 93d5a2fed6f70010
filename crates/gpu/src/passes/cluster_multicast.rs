//! Multicasts tensor copies to the blocks of a cluster.
//!
//! In a divided program (`tile/cluster.rs`), all blocks need a tile whose coordinates do not depend
//! on the block.
//!
//! ```text
//! tensor_load %slot, %map, %full, …            ──>    cluster_arrive ; cluster_wait
//! …                                                   multicast_loads %buffer, %full, %empty, %condition
//!                                                     tensor_load %slot, %map, %full, …
//!                                                     … ; cluster_arrive ; … ; cluster_wait
//! ```
//! Otherwise, a cluster is a pair of blocks that run neighboring programs. Each block of a pair
//! compares its box coordinates and trip counts with the other block's. It recomputes the other
//! block's integers from `program_id ^ 1` before the first copy. If all are equal, each block
//! copies half of a tile to both blocks. The L2 cache then delivers the tile once.
//!
//! The last parameter of a kernel for pairs is the number of programs along axis 0. It is 0 in a
//! launch without pairs, which disables sharing. Blocks past the last program exit at once.
//!
//! Sharing is faster if the L2 cache limits the kernel. This happens if rows begin within a sector,
//! because each of them is read with an extra sector. Only the launch knows most strides. So the
//! pass skips an undivided kernel only if all strides are known whole sectors. It also skips an
//! undivided kernel whose rings do not share their full and empty `mbarrier`s.
//!
//! A divided program always runs as a cluster of two or more blocks. A value that does not depend
//! on the rank is equal in all of them. So without comparisons, each block copies its part of such
//! a tile to all blocks. If pairs of blocks compute the dots (`tensor_dots/pairs.rs`), the pass does
//! nothing, because a block then needs only half of the tile.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir as ir;
use tilewright_ir::{
    Cursor, Definition, Dtype, ElementwiseFn, Inst, Operation, Position, Value, Wait, Waiting, may_wait,
};

use super::boxed::is_of_rows;
use super::rank_dependence::RankDependence;
use super::tensor_dots::pairs;
use super::tensor_maps::launch_map_index;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::box_layout::BoxLayout;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::{Feature, SECTOR_BYTES};
use tilewright_gpu_ir::{Function, Gpu, GpuOp, Header, Module, Op, ProgramOrder, TensorMapPlan, Type};

/// The maximum divisor of arguments that a specialization records.
const MAX_KNOWN_DIVISOR: u32 = 16;

/// Multicasts tensor copies to the blocks of a cluster that need the same box.
pub fn share_copies(module: &mut Module) {
    let may_wait = may_wait(module) != Wait::Never;
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    // Programs that wait for each other could deadlock if they also copied for each other. Blocks
    // of one program wait for the same event.
    if may_wait && header.cluster == 1 {
        return;
    }
    let is_done = header.paired || has_multicast_loads(function);
    // The blocks of a pair must be neighboring programs.
    let is_ordered = header.order != ProgramOrder::AsLaunched;
    if is_done || is_ordered || !header.target.features.has(Feature::Wgmma) || header.tensor_maps.is_empty() {
        return;
    }
    if pairs::has_pairs(header) && pairs::plan(header, function).is_ok() {
        return;
    }
    let Some(found) = Found::of(header, function) else { return };
    let blocks = header.sharing_blocks();
    for shared in &found.shared {
        remarks::about(
            "cluster_multicast",
            function,
            shared.load,
            || "tensor_load".into(),
            || match header.cluster {
                1 => RemarkReason::done(
                    "multicast to both blocks of the cluster",
                    "both may need the same box of the tensor",
                ),
                blocks => RemarkReason::done(
                    format!("multicast to the {blocks} blocks of the cluster"),
                    "all need the same box of the tensor",
                ),
            },
        );
        if let Parts::Of { map, axis } = shared.parts {
            let plan = &mut header.tensor_maps[map];
            let copied = plan.copied.as_mut().expect("the map of a copy has a box");
            copied.extents[axis] /= blocks;
        }
    }
    header.paired = header.cluster == 1;
    let first = Position { block: function.entry, index: found.first };
    let cursor = Cursor::new(function, first);
    Writer { cursor, partners: FxHashMap::default() }.write(&found, header.paired);
}

/// A buffer that the blocks may fill together.
struct Shared {
    buffer: Value,
    full: Value,
    empty: Value,
    /// One of the loads that fill the buffer.
    load: Inst,
    same: Same,
    parts: Parts,
}

fn has_multicast_loads(function: &Function) -> bool {
    let mut found = false;
    function.walk(function.entry, &mut |inst| {
        found |= matches!(function.insts[inst].op, Op::Gpu(GpuOp::MulticastLoads {}));
    });
    found
}

#[derive(Clone, Default)]
struct Same {
    values: BTreeSet<Value>,
    seen: FxHashSet<Value>,
}

/// The buffers that blocks can share, and the instructions that use their barriers.
struct Found {
    shared: Vec<Shared>,
    /// The entry-block index of the first copy, or of the op around it.
    first: usize,
    /// The index in the entry block after which no block arrives at another block's barriers.
    last: usize,
}

impl Found {
    fn of(header: &Header, function: &Function) -> Option<Self> {
        let analysis = SlotAnalysis::new(function, false);
        let is_divided = header.cluster > 1;
        let barriers = Barriers::of(&analysis, is_divided)?;
        let entry = &function.blocks[function.entry].insts;
        let in_entry =
            |inst: Inst| function.position_in(function.entry, analysis.ancestor_in(function.entry, inst)?);
        let indices: Vec<usize> = barriers.uses.iter().map(|inst| in_entry(*inst)).collect::<Option<_>>()?;
        let first = barriers.filling.iter().filter_map(|inst| in_entry(*inst)).min()?;
        let last = indices.into_iter().max()?;
        let early = entry[..first].iter().copied().collect();
        let ranked = is_divided.then(|| RankDependence::of(function, header.cluster));
        let trace = Trace { analysis: &analysis, early, ranked, depends: RefCell::default() };
        let mut always = Same::default();
        for bound in &barriers.bounds {
            trace.same(*bound, &mut always)?;
        }
        let loads = barriers.loads.values().flatten();
        let maps = loads.map(|load| launch_map_index(header, function, function.insts[*load].operands[1]));
        let maps: BTreeSet<usize> = maps.collect::<Option<_>>()?;
        if !is_divided && maps.iter().all(|map| is_of_sectors(&header.tensor_maps[*map], function)) {
            return None;
        }
        let mut shared = Vec::new();
        for (buffer, loads) in &barriers.loads {
            let mut same = always.clone();
            let is_known = loads.iter().all(|load| {
                let coordinates = &function.insts[*load].operands[4..];
                // Each block gathers its own rows.
                !is_of_rows(function, *load)
                    && coordinates.iter().all(|value| trace.same(*value, &mut same).is_some())
            });
            if is_divided && is_read_by_threads(&analysis, *buffer) {
                continue;
            }
            let Some((full, empty)) = barriers.group(function, loads) else { continue };
            let Some(parts) = parts(header, function, *buffer, loads) else { continue };
            if is_known {
                shared.push(Shared { buffer: *buffer, full, empty, load: loads[0], same, parts });
            }
        }
        // A cluster barrier precedes the first copy to a shared buffer. The shared buffers and
        // their `mbarrier`s must exist before it.
        let is_shared =
            |barriers: Value| shared.iter().any(|shared| [shared.full, shared.empty].contains(&barriers));
        let filling = barriers.filling.iter().filter(|inst| is_shared(barriers_of(function, **inst)));
        let first = filling.filter_map(|inst| in_entry(*inst)).min()?;
        let is_made = |inst: &Inst| {
            let data = &function.insts[*inst];
            matches!(data.op, Op::Gpu(GpuOp::MbarrierInit { .. })) && is_shared(data.operands[0])
                || data.results.iter().any(|result| shared.iter().any(|shared| shared.buffer == *result))
        };
        (!entry[first..].iter().any(is_made)).then_some(Self { shared, first, last })
    }
}

/// Returns whether threads, not only the asynchronous proxy, read the slots of a buffer.
///
/// Arrivals that release a slot to other blocks do not order accesses of threads.
fn is_read_by_threads(analysis: &SlotAnalysis<'_>, buffer: Value) -> bool {
    let function = analysis.function;
    let mut found = false;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let is_asynchronous = matches!(
            data.op,
            Op::Gpu(GpuOp::TensorLoad {} | GpuOp::Slot {} | GpuOp::Wgmma { .. } | GpuOp::Dealloc {})
        );
        found |=
            !is_asynchronous && data.operands.iter().any(|operand| analysis.root(*operand) == Some(buffer));
    });
    found
}

/// The division of a tile into one part for each block.
enum Parts {
    /// Each block copies an equal number of the tile's boxes.
    Boxes,
    /// The tile is one box, of which each block copies an equal part. The extent of the map's box
    /// along `axis` is divided by the number of blocks.
    Of { map: usize, axis: usize },
}

/// Returns the division of a tile; `None` if impossible or the tile is too small.
fn parts(header: &Header, function: &Function, buffer: Value, loads: &[Inst]) -> Option<Parts> {
    let blocks = header.sharing_blocks();
    let tuning = header.target.tuning;
    let least = if header.cluster > 1 { tuning.cluster_bytes } else { tuning.paired_bytes };
    let Type::Buffer(memory) = function.ty(buffer) else { return None };
    let tile = memory.tile();
    let boxes = BoxLayout::of(header.layouts.get(memory.layout), element_bits(&tile))?;
    if boxes.bytes * boxes.count < least {
        return None;
    }
    if boxes.count.is_multiple_of(blocks) {
        return Some(Parts::Boxes);
    }
    let axis = *boxes.order.last()?;
    let is_whole = boxes.count == 1
        && boxes.order.len() > 1
        && tile.shape[axis].is_multiple_of(blocks)
        && (boxes.bytes / blocks).is_multiple_of(boxes.alignment);
    let map = function.insts[loads[0]].operands[1];
    let number = launch_map_index(header, function, map)?;
    // Other copies by the map would also copy only a part.
    let mut is_own = true;
    function.walk(function.entry, &mut |inst| {
        is_own &= !function.insts[inst].operands.contains(&map) || loads.contains(&inst);
    });
    let own = header.tensor_maps[number].strides.len().checked_sub(boxes.order.len())?;
    (is_whole && is_own).then_some(Parts::Of { map: number, axis: own + axis })
}

/// Returns whether all rows begin at the same offset in a sector.
fn is_of_sectors(plan: &TensorMapPlan, function: &Function) -> bool {
    let needed = i64::from((SECTOR_BYTES / plan.element.bytes() as u32).min(MAX_KNOWN_DIVISOR));
    let known = |argument: &u32| i64::from(function.parameters[*argument as usize].divisibility);
    let contiguous = plan.contiguous_axis();
    let strides = plan.strides.iter().enumerate().filter(|(axis, _)| Some(*axis) != contiguous);
    strides.flat_map(|(_, stride)| &stride.0).all(|product| {
        let factors = product.arguments.iter().map(known);
        factors.fold(product.factor, i64::saturating_mul) % needed == 0
    })
}

/// The groups of rings that tensor copies fill, each with full and empty barriers.
///
/// An undivided kernel has one group.
struct Barriers {
    /// The empty barriers of each group, by its full barriers.
    groups: BTreeMap<Value, Value>,
    /// The loads to each buffer.
    loads: BTreeMap<Value, Vec<Inst>>,
    /// The instructions that fill slots: tensor loads, and the `mbarrier_expect`s of their bytes.
    filling: Vec<Inst>,
    uses: Vec<Inst>,
    /// The bounds of the loops around the uses.
    bounds: Vec<Value>,
}

impl Barriers {
    fn of(analysis: &SlotAnalysis<'_>, is_divided: bool) -> Option<Self> {
        let function = analysis.function;
        let (mut full, mut empty) = (BTreeSet::new(), BTreeSet::new());
        let mut loads: BTreeMap<Value, Vec<Inst>> = BTreeMap::new();
        let (mut filling, mut uses, mut is_plain) = (Vec::new(), Vec::new(), true);
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            match &data.op {
                Op::Gpu(GpuOp::TensorLoad {}) => {
                    full.insert(data.operands[2]);
                    match analysis.root(data.operands[0]) {
                        Some(root) => loads.entry(root).or_default().push(inst),
                        None => is_plain = false,
                    }
                    filling.push(inst);
                }
                Op::Gpu(GpuOp::MbarrierExpect { .. }) => filling.push(inst),
                Op::Gpu(GpuOp::MbarrierArrive {}) => {
                    empty.insert(data.operands[0]);
                }
                Op::Gpu(GpuOp::MbarrierWait {}) => {}
                // A launch with pairs may have more blocks than programs.
                Op::Tile(ir::Op::NumPrograms { axis: 0 }) if is_divided => return,
                Op::Tile(ir::Op::NumPrograms { axis: 0 })
                | Op::Gpu(GpuOp::WarpSpecialize { .. } | GpuOp::MbarrierArriveCopies {}) => {
                    is_plain = false;
                    return;
                }
                // tidy: wildcard because no other op uses an `mbarrier`
                op => {
                    // Programs that branch on values of other programs may not reach the same
                    // copies. Blocks of one program do.
                    is_plain &= is_divided || !observes_others(op);
                    return;
                }
            }
            uses.push(inst);
        });
        let only = |found: BTreeSet<Value>| found.first().copied().filter(|_| found.len() == 1);
        let groups = if is_divided {
            let found: BTreeSet<(Value, Value)> =
                loads.values().flatten().filter_map(|load| group_of(analysis, *load, &empty)).collect();
            let ends: BTreeSet<Value> = found.iter().flat_map(|(full, empty)| [*full, *empty]).collect();
            is_plain &= ends.len() == 2 * found.len();
            found.into_iter().collect()
        } else {
            BTreeMap::from([(only(full)?, only(empty)?)])
        };
        let mut bounds = Vec::new();
        for inst in &uses {
            let mut block = analysis.block_of_inst(*inst);
            while block != function.entry {
                let owner = analysis.owner(block)?;
                let data = &function.insts[owner];
                let Some(ir::Op::For { .. }) = data.op.as_tile() else { return None };
                bounds.extend(&data.operands[..3]);
                block = analysis.block_of_inst(owner);
            }
        }
        let is_about = |inst: &Inst| {
            let barriers = barriers_of(function, *inst);
            groups.iter().any(|(full, empty)| [*full, *empty].contains(&barriers))
        };
        let is_group = is_divided || uses.iter().all(is_about);
        let are_two = groups.iter().all(|(full, empty)| full != empty);
        (is_plain && are_two && is_group).then_some(Self { groups, loads, filling, uses, bounds })
    }

    /// Returns the full and empty barriers of the slots that loads fill. Returns `None` if the full
    /// barriers differ.
    fn group(&self, function: &Function, loads: &[Inst]) -> Option<(Value, Value)> {
        let fulls: BTreeSet<Value> = loads.iter().map(|load| function.insts[*load].operands[2]).collect();
        let full = fulls.first().copied().filter(|_| fulls.len() == 1)?;
        Some((full, *self.groups.get(&full)?))
    }
}

fn barriers_of(function: &Function, inst: Inst) -> Value {
    let data = &function.insts[inst];
    let index = if matches!(data.op, Op::Gpu(GpuOp::TensorLoad {})) { 2 } else { 0 };
    data.operands[index]
}

/// Returns the full and empty barriers of the slot that a load fills.
///
/// The wait for the empty barrier is before the `slot` op, in its block.
fn group_of(analysis: &SlotAnalysis<'_>, load: Inst, empty: &BTreeSet<Value>) -> Option<(Value, Value)> {
    let function = analysis.function;
    let data = &function.insts[load];
    let slot = function.defining_inst(data.operands[0])?;
    let insts = &function.blocks[analysis.block_of_inst(slot)].insts;
    let waits = insts.iter().take_while(|inst| **inst != slot).filter_map(|inst| {
        let wait = &function.insts[*inst];
        let is_wait =
            matches!(wait.op, Op::Gpu(GpuOp::MbarrierWait {})) && wait.operands[1] == data.operands[3];
        (is_wait && empty.contains(&wait.operands[0])).then(|| wait.operands[0])
    });
    Some((data.operands[2], waits.last()?))
}

/// Returns whether an op's results or trip counts may depend on concurrent programs.
fn observes_others(op: &Op) -> bool {
    op.is_volatile() || !matches!(op.info().waiting, Waiting::Never | Waiting::Reads)
}

/// Decides whether a value is the same in all blocks that share copies.
struct Trace<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The values that depend on the rank; `None` if the program is not divided.
    ranked: Option<RankDependence>,
    /// The instructions of the entry before the first copy.
    early: BTreeSet<Inst>,
    /// The cached results of `depends`.
    depends: RefCell<FxHashMap<Inst, Option<bool>>>,
}

impl Trace<'_> {
    /// Collects the entry-block integers on which a value depends. If they are equal in both blocks
    /// of a pair, so is the value. Returns `None` if the value may differ in any case.
    ///
    /// In a divided program, collects nothing, and returns `None` if the value depends on the rank.
    fn same(&self, value: Value, found: &mut Same) -> Option<()> {
        if let Some(ranked) = &self.ranked {
            return (!ranked.contains(value)).then_some(());
        }
        if !found.seen.insert(value) {
            return Some(());
        }
        let function = self.analysis.function;
        let inst = match function.values[value].definition {
            Definition::Parameter(block, _) if block == function.entry => return Some(()),
            Definition::Parameter(block, 0) => {
                let loop_ = self.analysis.owner(block)?;
                return matches!(function.insts[loop_].op.as_tile(), Some(ir::Op::For { .. })).then_some(());
            }
            Definition::Parameter(..) => return None,
            Definition::Result(inst, _) => inst,
        };
        let operands = self.operands(inst)?;
        if self.analysis.block_of_inst(inst) == function.entry {
            if !self.depends(inst)? {
                return Some(());
            }
            // If only one operand depends on the program id, comparing this operand suffices.
            let data = &function.insts[inst];
            let is_linear = matches!(
                data.op,
                Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Add | ElementwiseFn::Mul, .. })
            );
            let parts = operands.iter().filter(|operand| self.value_depends(**operand) == Some(true)).count();
            if self.early.contains(&inst) && !(is_linear && parts == 1) {
                found.values.insert(value);
                return Some(());
            }
            if operands.is_empty() {
                return None;
            }
        }
        operands.iter().try_for_each(|operand| self.same(*operand, found))
    }

    /// Returns the operands of an integer instruction whose results depend only on them.
    fn operands(&self, inst: Inst) -> Option<&[Value]> {
        let function = self.analysis.function;
        let data = &function.insts[inst];
        let is_function = match &data.op {
            Op::Gpu(GpuOp::Elementwise { .. })
            | Op::Tile(ir::Op::Constant { .. } | ir::Op::Cast { .. } | ir::Op::ProgramId { .. }) => true,
            // tidy: wildcard because results of other ops may differ between blocks
            _ => false,
        };
        let is_integer = |value: &Value| {
            let tile = function.ty(*value).as_registers();
            tile.is_some_and(|tile| {
                tile.is_scalar() && tile.element.value().is_some_and(|dtype| !dtype.is_float())
            })
        };
        (is_function && data.results.iter().chain(&data.operands).all(is_integer)).then_some(&data.operands)
    }

    /// Returns whether an entry instruction depends on the program id along axis 0. Returns `None`
    /// if this is unknown.
    fn depends(&self, inst: Inst) -> Option<bool> {
        if let Some(known) = self.depends.borrow().get(&inst) {
            return *known;
        }
        let depends = self.compute_depends(inst);
        self.depends.borrow_mut().insert(inst, depends);
        depends
    }

    fn compute_depends(&self, inst: Inst) -> Option<bool> {
        let function = self.analysis.function;
        let operands = self.operands(inst)?;
        let mut depends = matches!(function.insts[inst].op, Op::Tile(ir::Op::ProgramId { axis: 0 }));
        for operand in operands {
            depends |= self.value_depends(*operand)?;
        }
        Some(depends)
    }

    fn value_depends(&self, value: Value) -> Option<bool> {
        match self.analysis.function.values[value].definition {
            Definition::Parameter(..) => Some(false),
            Definition::Result(inst, _) => self.depends(inst),
        }
    }
}

/// Writes the multicast of the shared buffers.
struct Writer<'f> {
    /// The position before the first copy.
    cursor: Cursor<'f, Gpu>,
    /// The recomputation of each value for the other block.
    partners: FxHashMap<Value, Value>,
}

impl Writer<'_> {
    fn write(mut self, found: &Found, is_paired: bool) {
        let Position { block, index } = self.cursor.position();
        let shares = if is_paired { self.conditions(found) } else { self.always(found) };
        self.cursor.emit(GpuOp::ClusterArrive {}, &[], []);
        self.cursor.emit(GpuOp::ClusterWait {}, &[], []);
        for (Shared { buffer, full, empty, .. }, condition) in shares {
            self.cursor.emit(GpuOp::MulticastLoads {}, &[*buffer, *full, *empty, condition], []);
        }
        let inserted = self.cursor.position().index - index;
        self.cursor.go_to(Position { block, index: found.last + 1 + inserted });
        self.cursor.emit(GpuOp::ClusterArrive {}, &[], []);
        // The last instruction is the return.
        let end = self.cursor.function.blocks[block].insts.len() - 1;
        self.cursor.go_to(Position { block, index: end });
        self.cursor.emit(GpuOp::ClusterWait {}, &[], []);
    }

    /// Returns each buffer, with the condition that both blocks need the same tiles.
    fn conditions<'a>(&mut self, found: &'a Found) -> Vec<(&'a Shared, Value)> {
        let entry = self.cursor.function.entry;
        let number = Type::scalar(ir::Type::scalar(Dtype::I32));
        let programs = self.cursor.function.add_parameter(entry, number.clone(), Some("programs".into()));
        self.cursor.function.parameters.push(ir::Parameter { name: "programs".into(), divisibility: 1 });
        let one = self.cursor.int(Dtype::I32, 1);
        let own = self.cursor.value(ir::Op::ProgramId { axis: 0 }, &[], number);
        let other = self.cursor.scalar(ElementwiseFn::Xor, &[own, one], Dtype::I32);
        let is_there = self.cursor.scalar(ElementwiseFn::Lt, &[other, programs], Dtype::I1);
        let mut shares = Vec::new();
        for shared in &found.shared {
            let mut condition = is_there;
            for value in &shared.same.values {
                let partner = self.partner(*value, other);
                let is_same = self.cursor.scalar(ElementwiseFn::Eq, &[*value, partner], Dtype::I1);
                condition = self.cursor.scalar(ElementwiseFn::And, &[condition, is_same], Dtype::I1);
            }
            shares.push((shared, condition));
        }
        shares
    }

    /// Returns the buffers of a divided program, with the condition `true`.
    fn always<'a>(&mut self, found: &'a Found) -> Vec<(&'a Shared, Value)> {
        let condition = self.cursor.int(Dtype::I1, 1);
        found.shared.iter().map(|shared| (shared, condition)).collect()
    }

    /// Returns the recomputation of an entry value for the block `id`.
    fn partner(&mut self, value: Value, id: Value) -> Value {
        if let Some(known) = self.partners.get(&value) {
            return *known;
        }
        let partner = match self.cursor.function.values[value].definition {
            Definition::Parameter(..) => value,
            Definition::Result(inst, _) => {
                let data = self.cursor.function.insts[inst].clone();
                if let Op::Tile(ir::Op::ProgramId { axis: 0 }) = data.op {
                    id
                } else {
                    let operands: Vec<Value> =
                        data.operands.iter().map(|operand| self.partner(*operand, id)).collect();
                    if operands[..] == data.operands[..] {
                        value
                    } else {
                        let ty = self.cursor.function.ty(value).clone();
                        self.cursor.value(data.op, &operands, ty)
                    }
                }
            }
        };
        self.partners.insert(value, partner);
        partner
    }
}
