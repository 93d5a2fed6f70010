//! Plans the loops to pipeline. A [plan](LoopPlan) has the loads of a loop, the buffers that slots
//! replace, and the ops that run ahead.

use std::collections::BTreeSet;

use cranelift_entity::EntitySet;
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{
    Block, CacheModifier, Definition, Dtype, Effect, Inst, OpFamily, Operation, ShapeOp, Uses, Value,
};
use tilewright_layout::{Input, Layout, copy_plan, shared_plan};

use super::super::boxed::{Boxed, contiguous_axis};
use super::loop_body::{LoopBody, Step};
use super::loop_plan::{Destination, Group, Level, LoopPlan, MAX_LEVELS, RingLoad};
use crate::passes::global_memory::GlobalAccesses;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::box_layout::rows_of_box;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::{Buffer, Function, GpuOp, LayoutId, Module, Op, Type};

/// The bytes that one `cp.async` of a thread may move.
const COPY_BYTES: std::ops::RangeInclusive<u32> = 4..=16;
const WORD_BITS: u32 = 32;

/// Returns the plan of a loop that already has a schedule and copies.
pub fn plan_of_text(module: &Module, inst: Inst, block: Block) -> LoopPlan {
    let function = module.kernel();
    let (uses, global) = (Uses::new(function), GlobalAccesses::new(module));
    let body = LoopBody::new(module, inst, &uses, &global);
    let step = body.as_ref().and_then(|body| match body.step()? {
        Step::Constant(step) => Some(step),
        Step::Unknown => None,
    });
    let iterations = body.and_then(|body| body.iterations(step?));
    LoopPlan {
        inst,
        block,
        stages: 0,
        step,
        iterations,
        loads: Vec::new(),
        groups: Vec::new(),
        late: None,
        in_flight: None,
        fusion: None,
        follows: false,
    }
}

/// Returns the loops to pipeline, outer loops first. With `nested_boxes`, tensor copies may fill
/// rings of nested loops.
pub fn plans(module: &Module, stages: u32, nested_boxes: bool) -> Vec<LoopPlan> {
    let function = module.kernel();
    let mut loops = Vec::new();
    find_loops(function, function.entry, &mut loops);
    let say = |inst: Inst, because: &dyn Fn() -> RemarkReason| {
        remarks::about("pipelining", function, inst, || "loop".into(), because);
    };
    let requested = |inst: Inst| match function.insts[inst].op.as_tile() {
        Some(ir::Op::For { options }) if options.num_stages > 0 => (options.num_stages, true),
        // tidy: wildcard because a loop that requests no stages gets those of the launch
        _ => (stages, false),
    };
    loops.retain(|(inst, _)| {
        let is_pipelined = requested(*inst).0 > 1;
        if !is_pipelined {
            say(*inst, &|| RemarkReason::note("not pipelined", "num_stages is 1"));
        }
        is_pipelined
    });
    if loops.is_empty() {
        return Vec::new();
    }
    let uses = Uses::new(function);
    let global = GlobalAccesses::new(module);
    let plan = |(inst, block): (Inst, Block)| {
        let (stages, is_requested) = requested(inst);
        let plan = LoopBody::new(module, inst, &uses, &global)
            .ok_or("it orders accesses to memory: a barrier, or an atomic that acquires or releases")
            .and_then(|body| LoopBody { nested_boxes, ..body }.plan(block, stages, is_requested));
        match plan {
            Ok(plan) => Some(plan),
            Err(reason) => {
                say(inst, &|| RemarkReason::missed("not pipelined", reason));
                None
            }
        }
    };
    loops.into_iter().filter_map(plan).collect()
}

/// Finds the counted loops that all warps run. Skips loops in a `while` condition, which carries no
/// values to its next test.
pub(super) fn find_loops(function: &Function, block: Block, loops: &mut Vec<(Inst, Block)>) {
    for inst in &function.blocks[block].insts {
        let data = &function.insts[*inst];
        if matches!(data.op.as_tile(), Some(ir::Op::For { .. })) {
            loops.push((*inst, block));
        }
        if data.op.info().family != OpFamily::Partitions {
            let is_while = matches!(data.op.as_tile(), Some(ir::Op::While {}));
            let regions = data.regions.iter().skip(usize::from(is_while));
            regions.for_each(|region| find_loops(function, *region, loops));
        }
    }
}

/// The ops of an iteration from which values are computed, by index.
#[derive(Default)]
struct Slice {
    insts: BTreeSet<usize>,
    parameters: BTreeSet<u32>,
    loads: BTreeSet<usize>,
}

impl LoopBody<'_> {
    /// Returns the plan, or the reason why the loop is not pipelined.
    fn plan(&self, outer: Block, stages: u32, is_requested: bool) -> Result<LoopPlan, &'static str> {
        let step = match self.step().ok_or("its iterations cannot be counted ahead")? {
            Step::Constant(step) => Some(step),
            Step::Unknown => None,
        };
        let insts = &self.function.blocks[self.block].insts;
        let (mut pipelined, has_dot) = self.feeding_dots();
        if is_requested && !has_dot {
            pipelined = insts.iter().copied().filter(|inst| self.is_load(*inst)).collect();
        }
        if pipelined.is_empty() {
            return Err("no load of it feeds a dot, and it does not request stages (tl.range(num_stages=…))");
        }
        let is_possible = |load: &RingLoad| {
            let is_possible = self.levels(&[load.inst]).is_some();
            self.say(load.inst, || {
                if is_possible {
                    load.because()
                } else {
                    RemarkReason::missed("stays a load", "its address depends on ops that cannot run ahead")
                }
            });
            is_possible
        };
        let found = pipelined.into_iter().filter_map(|inst| {
            let found = self.ring_load(inst);
            if found.is_none() {
                self.say(inst, || RemarkReason::missed("stays a load", self.obstacle(inst)));
            }
            found
        });
        let loads: Vec<RingLoad> = found.filter(is_possible).collect();
        if loads.is_empty() {
            return Err("none of its loads can be copied ahead");
        }
        let group = |lead: u32, chosen: &dyn Fn(usize) -> bool| {
            let indices: Vec<usize> = (0..loads.len()).filter(|index| chosen(*index)).collect();
            let levels = self
                .levels(&indices.iter().map(|index| loads[*index].inst).collect::<Vec<_>>())
                .ok_or("addresses depend on too long a chain of loads")?;
            Ok(Group { loads: indices, lead, levels })
        };
        let all = group(0, &|_| true)?;
        let late = self.late_dots(&loads).filter(|_| all.levels.len() == 1);
        let mut groups = match &late {
            Some(late) => {
                let is_late = |index: usize| late.loads.contains(&index);
                vec![group(1, &|index| !is_late(index))?, group(0, &is_late)?]
            }
            None => vec![all],
        };
        groups.retain(|group| !group.loads.is_empty());
        let is_simple = late.is_none() && groups.iter().all(|group| group.levels.len() == 1);
        let in_flight = self.dots_in_flight(&loads).filter(|_| is_simple);
        if in_flight.is_some() {
            for group in &mut groups {
                group.lead = 1;
            }
        }
        let (inst, block, fusion, follows) = (self.inst, outer, None, false);
        let iterations = step.and_then(|step| self.iterations(step));
        Ok(LoopPlan {
            inst,
            block,
            stages,
            step,
            iterations,
            loads,
            groups,
            late,
            in_flight,
            fusion,
            follows,
        })
    }

    fn say(&self, load: Inst, because: impl FnOnce() -> RemarkReason) {
        let function = self.function;
        let tile = function.insts[load].results.first().and_then(|result| function.ty(*result).tile());
        let subject = || remarks::subject(function, load, tile.as_ref());
        remarks::about("pipelining", function, load, subject, because);
    }

    /// Returns the reason why a load cannot go through a ring.
    fn obstacle(&self, load: Inst) -> &'static str {
        let result = self.function.insts[load].results[0];
        let dtype = self.function.ty(result).as_registers().and_then(ir::Type::dtype);
        if !self.may_move(load) {
            "it is volatile, or a store or atomic of the loop may touch what it loads"
        } else if dtype == Some(Dtype::I1) {
            "its elements are booleans"
        } else {
            "less than 4 bytes are contiguous in global and in shared memory: cp.async copies no less"
        }
    }

    fn is_load(&self, inst: Inst) -> bool {
        matches!(self.function.insts[inst].op, Op::Gpu(GpuOp::Load { .. }))
    }

    /// Returns the loads that the body's dots depend on, in text order. Also returns whether the
    /// body has dots.
    fn feeding_dots(&self) -> (Vec<Inst>, bool) {
        let function = self.function;
        let mut work = Vec::new();
        let mut blocks = vec![self.block];
        while let Some(block) = blocks.pop() {
            for inst in &function.blocks[block].insts {
                let data = &function.insts[*inst];
                if data.op.info().family == OpFamily::Dot {
                    work.extend(&data.operands[..2]);
                }
                if data.op.info().family == OpFamily::Branch {
                    blocks.extend(&data.regions);
                }
            }
        }
        let has_dot = !work.is_empty();
        let mut seen = EntitySet::new();
        let mut loads = BTreeSet::new();
        while let Some(value) = work.pop() {
            let Some(inst) = function.defining_inst(value).filter(|_| seen.insert(value)) else { continue };
            let Some(index) = self.index(inst) else { continue };
            let data = &function.insts[inst];
            match &data.op {
                Op::Gpu(GpuOp::Load { .. }) => {
                    loads.insert(index);
                }
                Op::Gpu(GpuOp::Alloc { .. }) => {
                    let stores = self.uses.users(value).map(|user| &function.insts[user]);
                    let stores = stores.filter(|user| matches!(user.op, Op::Gpu(GpuOp::LocalStore {})));
                    work.extend(stores.map(|store| store.operands[1]));
                }
                op if op.info().family == OpFamily::Loop => {}
                // tidy: wildcard because other ops depend on their operands only
                _ => work.extend(&data.operands),
            }
        }
        let insts = &function.blocks[self.block].insts;
        (loads.into_iter().map(|index| insts[index]).collect(), has_dot)
    }

    /// Plans a load through a ring. Returns `None` if neither a tensor copy nor `cp.async` can copy
    /// the load.
    fn ring_load(&self, inst: Inst) -> Option<RingLoad> {
        let function = self.function;
        let data = &function.insts[inst];
        let &Op::Gpu(GpuOp::Load { cache, axis, width, .. }) = &data.op else { return None };
        let result = data.results[0];
        let tile = function.ty(result).as_registers()?.clone();
        let layout = self.header.layouts.get(function.ty(result).layout()?);
        let dtype = tile.element.value()?;
        if cache == CacheModifier::Volatile || dtype == Dtype::I1 || !self.may_move(inst) {
            return None;
        }
        let vector = AccessVector { layout, axis, width, bytes: dtype.bytes() as u32 };
        let has_zeros = data.operands.get(2).is_none_or(|other| self.is_zero(*other));
        if let Some((destination, buffer, stored)) = self.buffer_of(result).filter(|_| has_zeros) {
            let memory = self.header.layouts.get(buffer.layout).clone();
            let Destination::Buffer { store, alloc, .. } = &destination else { return None };
            let tile = function.insts[*store].operands[1];
            let boxed = Boxed::of_load(self.header, function, inst, tile, &memory);
            if let Some((memory, boxed)) = self
                .box_of_stored_vector(inst, *alloc, &buffer)
                .filter(|_| boxed.is_none() && self.may_have_boxes())
            {
                let Buffer { element, shape, .. } = buffer;
                return Some(RingLoad {
                    inst,
                    destination,
                    element,
                    shape,
                    memory,
                    axis,
                    width,
                    boxed: Some(boxed),
                });
            }
            if let Some(boxed) = boxed.filter(|_| self.may_have_boxes()) {
                let Buffer { element, shape, .. } = buffer;
                return Some(RingLoad {
                    inst,
                    destination,
                    element,
                    shape,
                    memory,
                    axis,
                    width,
                    boxed: Some(boxed),
                });
            }
            let stored = self.header.layouts.get(stored);
            let widest = |memory: Layout| Some((vector.widest_copy(stored, &memory)?, memory));
            let other = self.memory_of_copies(*alloc, stored, &vector);
            let copies = [Some(memory), other].into_iter().flatten().filter_map(widest);
            // The last maximum wins, so reverse the order.
            let copy = copies.rev().max_by_key(|((_, width), _)| *width);
            if let Some(((axis, width), memory)) = copy {
                let Buffer { element, shape, .. } = buffer;
                return Some(RingLoad {
                    inst,
                    destination,
                    element,
                    shape,
                    memory,
                    axis,
                    width,
                    boxed: None,
                });
            }
        }
        let destination = Destination::Registers;
        if let Some((memory, boxed)) = self.box_of_fragment(inst).filter(|_| has_zeros) {
            let ir::Type { element, shape, .. } = tile;
            let boxed = Some(boxed);
            return Some(RingLoad { inst, destination, element, shape, memory, axis, width, boxed });
        }
        if let Some((memory, boxed)) = self.box_of_vector(inst).filter(|_| has_zeros) {
            let (ir::Type { element, shape, .. }, boxed) = (tile, Some(boxed));
            return Some(RingLoad { inst, destination, element, shape, memory, axis, width, boxed });
        }
        let others = (0..tile.rank()).rev().filter(|other| *other != axis as usize);
        let order: SmallVec<[usize; 6]> = [axis as usize].into_iter().chain(others).collect();
        let planned = shared_plan(layout, layout, element_bits(&tile)).ok().map(|plan| plan.memory);
        let memories = planned.into_iter().chain([Layout::strided(&tile.shape, &order)]);
        let (memory, (axis, width)) = memories
            .filter_map(|memory| Some((vector.widest_copy(layout, &memory)?, memory)))
            .map(|(access, memory)| (memory, access))
            .max_by_key(|(_, (_, width))| *width)?;
        let ir::Type { element, shape, .. } = tile;
        Some(RingLoad { inst, destination, element, shape, memory, axis, width, boxed: None })
    }

    /// Returns a buffer layout for wide copies by threads, if only `local_load`s of one layout read
    /// the buffer.
    fn memory_of_copies(&self, alloc: Inst, stored: &Layout, vector: &AccessVector<'_>) -> Option<Layout> {
        let function = self.function;
        let mut readers = self.uses.users(function.insts[alloc].results[0]).filter(|user| {
            let op = function.insts[*user].op.as_gpu();
            !matches!(op, Some(GpuOp::LocalStore {} | GpuOp::Dealloc {}))
        });
        let loaded = |reader: Inst| {
            let data = &function.insts[reader];
            let is_plain = matches!(data.op, Op::Gpu(GpuOp::LocalLoad { matrix: false }));
            function.ty(*data.results.first().filter(|_| is_plain)?).layout()
        };
        let layout = loaded(readers.next()?)?;
        let is_one = readers.all(|reader| loaded(reader) == Some(layout));
        let (to, bits) = (self.header.layouts.get(layout), vector.bytes * 8);
        let plan = copy_plan(stored, to, bits, &vector.run_in(stored)).ok().filter(|_| is_one);
        plan.map(|plan| plan.memory)
    }

    /// Returns whether tensor copies may fill the slots of the loop. The `mbarrier`s of a ring are
    /// initialized once. So a nested loop's ring keeps its memory for the whole kernel.
    /// `nested_boxes` must permit this.
    fn may_have_boxes(&self) -> bool {
        self.nested_boxes || self.function.blocks[self.function.entry].insts.contains(&self.inst)
    }

    /// Returns the slot layout and the box of a load in a dot operand's layout.
    fn box_of_fragment(&self, load: Inst) -> Option<(Layout, Boxed)> {
        let function = self.function;
        let result = function.insts[load].results[0];
        let is_fragment = |user: Inst| {
            let data = &function.insts[user];
            matches!(data.op, Op::Gpu(GpuOp::Wgmma { .. })) && data.operands[0] == result
        };
        let tile = function.ty(result).as_registers()?;
        let axis = contiguous_axis(self.header, function, result)?;
        let takes_words = || {
            let layout = self.header.layouts.get(function.ty(result).layout()?);
            Some(tile.rank() == 2 && layout.vector_along(axis).width() * element_bits(tile) >= WORD_BITS)
        };
        let is_fragment = self.uses.users(result).all(is_fragment)
            || takes_words() == Some(true) && self.makes_operand(result);
        if !is_fragment || !self.may_have_boxes() {
            return None;
        }
        let memory = rows_of_box(&tile.shape, axis, element_bits(tile));
        let boxed = Boxed::of_load(self.header, function, load, result, &memory)?;
        Some((memory, boxed))
    }

    /// Returns whether a value becomes an operand of `mma.sync` in registers.
    fn makes_operand(&self, value: Value) -> bool {
        self.uses.users(value).any(|user| {
            let data = &self.function.insts[user];
            match data.op.info().family {
                OpFamily::Dot => matches!(data.op, Op::Gpu(GpuOp::MmaSync { .. })),
                OpFamily::Pointwise | OpFamily::Shape => self.makes_operand(data.results[0]),
                // tidy: wildcard because other ops exchange data between threads
                _ => false,
            }
        })
    }

    /// Returns the slot layout and the box of a vector read from a buffer.
    ///
    /// The vector is too short for bank conflicts to matter. The slot may have further axes of one
    /// element.
    fn box_of_stored_vector(&self, load: Inst, alloc: Inst, buffer: &Buffer) -> Option<(Layout, Boxed)> {
        let function = self.function;
        let is_read = |user: Inst| {
            let op = function.insts[user].op.as_gpu();
            let is_own = matches!(op, Some(GpuOp::LocalStore {} | GpuOp::Dealloc {}));
            is_own || matches!(op, Some(GpuOp::LocalLoad { matrix: false }))
        };
        let loaded = function.insts[load].results[0];
        let shape = &function.ty(loaded).as_registers()?.shape;
        let axis = (0..buffer.shape.len()).find(|axis| buffer.shape[*axis] > 1)?;
        let is_vector = shape.len() == 1 && buffer.shape[axis] == shape[0];
        let mut users = self.uses.users(function.insts[alloc].results[0]);
        if !is_vector || !users.all(is_read) {
            return None;
        }
        let boxed = Boxed::of_load(self.header, function, load, loaded, &Layout::strided(shape, &[0]))?;
        let coordinates = function.insts[boxed.mark].operands.len() - 2;
        let others = (0..buffer.shape.len()).rev().filter(|other| *other != axis);
        let order: SmallVec<[usize; 6]> = [axis].into_iter().chain(others).collect();
        (coordinates >= order.len()).then(|| (Layout::strided(&buffer.shape, &order), boxed))
    }

    /// Returns the slot layout and the box of a vector that is loaded to registers.
    fn box_of_vector(&self, load: Inst) -> Option<(Layout, Boxed)> {
        let loaded = self.function.insts[load].results[0];
        let shape = &self.function.ty(loaded).as_registers()?.shape;
        if shape.len() != 1 || !self.may_have_boxes() {
            return None;
        }
        let memory = Layout::strided(shape, &[0]);
        let boxed = Boxed::of_load(self.header, self.function, load, loaded, &memory)?;
        Some((memory, boxed))
    }

    /// Returns the buffer that is a loaded tile's only user, and the stored tile's layout.
    fn buffer_of(&self, loaded: Value) -> Option<(Destination, Buffer, LayoutId)> {
        let function = self.function;
        let (mut value, mut shapes) = (loaded, SmallVec::new());
        let store = loop {
            let user = self.uses.only(value)?.inst;
            self.index(user)?;
            match &function.insts[user].op {
                Op::Gpu(GpuOp::LocalStore {}) => break user,
                Op::Tile(op) => match op.as_shape() {
                    Some(
                        ShapeOp::Transpose { .. } | ShapeOp::Reshape { .. } | ShapeOp::ExpandDims { .. },
                    ) => {
                        shapes.push(user);
                        value = function.insts[user].results[0];
                    }
                    Some(ShapeOp::Broadcast { .. } | ShapeOp::Slice { .. }) | None => return None,
                },
                Op::Gpu(_) => return None,
            }
        };
        let memory = function.insts[store].operands[0];
        let alloc = self.local_buffer(memory)?;
        let Type::Buffer(buffer) = function.ty(memory) else { return None };
        let destination = Destination::Buffer { shapes, alloc, store };
        Some((destination, buffer.clone(), function.ty(value).layout()?))
    }

    /// Returns the `alloc` of a buffer that the body stores to once and deallocates.
    fn local_buffer(&self, memory: Value) -> Option<Inst> {
        let function = self.function;
        let alloc = function.defining_inst(memory).filter(|inst| self.index(*inst).is_some())?;
        let is_buffer = matches!(function.insts[alloc].op, Op::Gpu(GpuOp::Alloc { .. }))
            && matches!(function.ty(memory), Type::Buffer(buffer) if buffer.slots == 1);
        let count = |is_it: fn(&GpuOp) -> bool| {
            let users = self.uses.users(memory);
            users.filter(|user| function.insts[*user].op.as_gpu().is_some_and(is_it)).count()
        };
        let stores = count(|op| {
            matches!(op, GpuOp::LocalStore {} | GpuOp::LocalHistogram {} | GpuOp::CopyAsync { .. })
        });
        let ends = count(|op| matches!(op, GpuOp::Dealloc {}));
        (is_buffer && stores == 1 && ends == 1).then_some(alloc)
    }

    /// Returns whether a value is a zero, or a tile of zeros.
    fn is_zero(&self, value: Value) -> bool {
        let Some(inst) = self.function.defining_inst(value) else { return false };
        let data = &self.function.insts[inst];
        match data.op.as_tile() {
            Some(ir::Op::Constant { value }) => value.bits == 0,
            // Zero has no bit set in any type, so it stays zero.
            Some(ir::Op::Splat { .. } | ir::Op::Broadcast { .. } | ir::Op::Cast { .. }) => {
                self.is_zero(data.operands[0])
            }
            // tidy: wildcard because the results of other ops are not known
            _ => false,
        }
    }

    /// Returns whether a load may run in an earlier iteration.
    fn may_move(&self, load: Inst) -> bool {
        let is_plain = matches!(self.function.insts[load].op, Op::Gpu(GpuOp::Load { volatile: false, .. }));
        is_plain && !self.writes.iter().any(|write| self.global.may_alias(load, *write))
    }

    /// Returns the ops that run ahead for copies. Level 0 computes the operands of the copies, and
    /// each further level the operands of the previous level's loads. Returns `None` if an op
    /// cannot run ahead, or if the chain of loads is too long.
    fn levels(&self, copies: &[Inst]) -> Option<Vec<Level>> {
        let insts = &self.function.blocks[self.block].insts;
        let mut levels = Vec::new();
        let mut loads = copies.to_vec();
        while !loads.is_empty() {
            if levels.len() == MAX_LEVELS {
                return None;
            }
            let mut roots = Vec::new();
            for load in &loads {
                let operands = &self.function.insts[*load].operands;
                // Copies ignore `other`: they fill masked-off elements with zeros.
                roots.extend(operands.iter().take(if levels.is_empty() { 2 } else { 3 }));
            }
            let slice = self.slice(roots)?;
            let at = |index: usize| insts[index];
            let next = slice.loads.into_iter().map(at).collect();
            let parameters = slice.parameters.into_iter().collect();
            levels.push(Level { loads, insts: slice.insts.into_iter().map(at).collect(), parameters });
            loads = next;
        }
        Some(levels)
    }

    /// Returns the ops that compute values, if they can run in another iteration.
    fn slice(&self, mut work: Vec<Value>) -> Option<Slice> {
        let function = self.function;
        let mut slice = Slice::default();
        let mut seen = EntitySet::new();
        while let Some(value) = work.pop() {
            if !seen.insert(value) {
                continue;
            }
            let inst = match function.values[value].definition {
                Definition::Parameter(block, 0) if block == self.block => continue,
                Definition::Parameter(block, index) if block == self.block => {
                    slice.parameters.insert(index);
                    work.push(function.yielded(block)[index as usize - 1]);
                    continue;
                }
                Definition::Parameter(..) => continue,
                Definition::Result(inst, _) => inst,
            };
            let Some(index) = self.index(inst) else { continue };
            let data = &function.insts[inst];
            match &data.op {
                Op::Gpu(GpuOp::Load { .. }) if self.may_move(inst) => {
                    slice.loads.insert(index);
                }
                Op::Gpu(GpuOp::LocalLoad { .. }) => {
                    // This is a conversion through shared memory.
                    let alloc = self.local_buffer(data.operands[0])?;
                    slice.insts.extend([index, self.index(alloc)?]);
                    for user in self.uses.users(data.operands[0]) {
                        let is_end = matches!(function.insts[user].op, Op::Gpu(GpuOp::Dealloc {}));
                        let is_store = matches!(function.insts[user].op, Op::Gpu(GpuOp::LocalStore {}));
                        if is_store {
                            work.push(function.insts[user].operands[1]);
                        }
                        if is_end || is_store {
                            slice.insts.insert(self.index(user)?);
                        }
                    }
                }
                op if op.info().effect == Effect::Pure => {
                    let in_memory = |value: &Value| function.ty(*value).as_memory().is_some();
                    if data.operands.iter().any(in_memory) {
                        return None;
                    }
                    slice.insts.insert(index);
                    work.extend(&data.operands);
                }
                // tidy: wildcard because ops with effects do not run ahead
                _ => return None,
            }
        }
        Some(slice)
    }
}

struct AccessVector<'a> {
    layout: &'a Layout,
    axis: u32,
    width: u32,
    bytes: u32,
}

impl AccessVector<'_> {
    /// Returns the positions in `reshaped` of the registers that one access spans.
    fn run_in(&self, reshaped: &Layout) -> SmallVec<[u32; 4]> {
        let vector = self.layout.vector_along(self.axis as usize).at_most(self.width);
        let registers = vector.registers(0);
        let bits = 0..registers.len().ilog2();
        bits.map(|bit| reshaped.at(&[(Input::Register, registers[1 << bit])])).collect()
    }

    /// Returns the axis and width of the widest `cp.async` to a buffer. `reshaped` is the tile's
    /// layout after its shape ops.
    fn widest_copy(&self, reshaped: &Layout, memory: &Layout) -> Option<(u32, u32)> {
        let runs = |layout: &Layout, axis: u32, width: u32| {
            let vector = layout.vector_along(axis as usize);
            (vector.width() >= width).then(|| vector.at_most(width).registers(0))
        };
        let offsets = reshaped.offsets_in(memory);
        let offset = |register: u32| offsets.at(&[(Input::Register, register)]);
        let rank = reshaped.output().rank() as u32;
        let mut width = self.width.min(COPY_BYTES.end() / self.bytes);
        while COPY_BYTES.contains(&(width * self.bytes)) {
            let own = runs(self.layout, self.axis, width)?;
            let is_run = (0..).zip(&own).all(|(index, register)| offset(*register) == index);
            if is_run && reshaped.vector_in(memory).width() >= width {
                let axis = (0..rank).find(|axis| runs(reshaped, *axis, width).as_ref() == Some(&own));
                if let Some(axis) = axis {
                    return Some((axis, width));
                }
            }
            width /= 2;
        }
        None
    }
}
