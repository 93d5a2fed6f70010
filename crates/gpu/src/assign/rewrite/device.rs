//! Translates the `device` functions of shared memory, copies and barriers (Gluon).

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, CacheModifier, DeviceFn, Dtype, Element, Function, InputPrecision, Inst, IntList,
    SharedTiles, StatedLayout, Value,
};

use super::Rewrite;
use super::tensor_boxes::device_map;
use super::tensor_memory::tensor_memory;
use crate::assign::boxes::{MapId, places_of_copy};
use crate::assign::coalescing::AccessShape;
use tilewright_gpu_ir::{Buffer, Deferred, GpuOp, MmaShape, Op, Padding, TensorMemory, Type};

#[derive(Default)]
pub struct SharedAllocations {
    /// The new value of each allocation and view.
    values: FxHashMap<Value, Value>,
    /// The allocation of each view.
    viewed: FxHashMap<Value, Value>,
    /// The allocations whose lifetime ends at each instruction of their block. The instruction, or
    /// one in its regions, is the last use. A wait for asynchronous accesses uses each allocation.
    ends: SecondaryMap<Inst, SmallVec<[Value; 2]>>,
    /// The allocations to which threads copy by `cp.async`.
    copied: FxHashSet<Value>,
    /// The allocations that tensor copies fill, or that other blocks access. They live to the end
    /// of the kernel, because only phases of `mbarrier`s tell when a copy has arrived.
    filled: FxHashSet<Value>,
    /// The allocations and views that the program uses as `mbarrier`s.
    barriers: FxHashSet<Value>,
    /// The block in which all threads have met since the last read of shared memory.
    all_have_read: Option<Block>,
    /// True while the translated worker does not read shared memory.
    pub(super) has_no_reads: bool,
}

impl SharedAllocations {
    pub fn new(function: &Function) -> Self {
        let mut found = Self::default();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if let ir::Op::Device { function: DeviceFn::View { .. } } = data.op {
                found.viewed.insert(data.results[0], found.allocation(data.operands[0]));
            }
            found.barriers.extend(barrier_operand(function, inst).map(|index| data.operands[index]));
        });
        found.block(function, function.entry);
        found
    }

    /// Returns whether a thread may have read shared memory since the last barrier.
    fn read_since_barrier(&self, block: Block) -> bool {
        !self.has_no_reads && self.all_have_read != Some(block)
    }

    fn allocation(&self, memory: Value) -> Value {
        self.viewed.get(&memory).copied().unwrap_or(memory)
    }

    fn block(&mut self, function: &Function, block: Block) {
        let mut last: Vec<(Value, Inst)> = Vec::new();
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            for region in &data.regions {
                self.block(function, *region);
            }
            let is_wait = contains(function, *inst, is_wait);
            for (value, end) in &mut last {
                let uses_it = |function: &Function, inst: Inst| {
                    function.insts[inst].operands.iter().any(|operand| self.allocation(*operand) == *value)
                };
                if is_wait || contains(function, *inst, uses_it) {
                    *end = *inst;
                }
            }
            if let ir::Op::Device { function: DeviceFn::Allocate { .. } } = data.op {
                last.push((data.results[0], *inst));
            }
        }
        for (value, end) in last {
            self.ends[end].push(value);
        }
    }
}

/// Returns the index of the operand that names the memory of an `mbarrier`.
pub(in crate::assign) fn barrier_operand(function: &Function, inst: Inst) -> Option<usize> {
    let ir::Op::Device { function } = &function.insts[inst].op else { return None };
    match function {
        DeviceFn::MbarrierInit { .. }
        | DeviceFn::MbarrierInvalidate { .. }
        | DeviceFn::MbarrierExpect { .. }
        | DeviceFn::MbarrierArrive { .. }
        | DeviceFn::MbarrierWait { .. }
        | DeviceFn::ArriveCopies { .. }
        | DeviceFn::TrackCopies { .. }
        | DeviceFn::ArriveFrom { .. }
        | DeviceFn::RemoteArrive { .. }
        | DeviceFn::TensorCommit { .. } => Some(0),
        DeviceFn::TensorLoad { .. }
        | DeviceFn::MulticastLoad { .. }
        | DeviceFn::WindowLoad { .. }
        | DeviceFn::ClcTryCancel { .. } => Some(2),
        // tidy: wildcard because other functions use no mbarrier
        _ => None,
    }
}

/// Returns whether an instruction waits for asynchronous accesses to shared memory.
fn is_wait(function: &Function, inst: Inst) -> bool {
    let ir::Op::Device { function } = &function.insts[inst].op else { return false };
    matches!(
        function,
        DeviceFn::WaitGroup { .. }
            | DeviceFn::MbarrierWait { .. }
            | DeviceFn::TensorStoreWait { .. }
            | DeviceFn::WgmmaWait { .. }
    )
}

/// Returns whether an instruction reads shared memory, waits for a read, or accesses tensor memory.
pub(super) fn reads_shared_memory(function: &Function, inst: Inst) -> bool {
    let ir::Op::Device { function } = &function.insts[inst].op else { return false };
    matches!(
        function,
        DeviceFn::Load { .. }
            | DeviceFn::GatherBlocks { .. }
            | DeviceFn::ClcLoadResult { .. }
            | DeviceFn::Wgmma { .. }
            | DeviceFn::WgmmaWait { .. }
            | DeviceFn::TensorStore { .. }
            | DeviceFn::TensorStoreWait { .. }
            | DeviceFn::TensorMemoryLoad { .. }
            | DeviceFn::TensorMemoryStore { .. }
    )
}

fn contains(function: &Function, inst: Inst, has: impl Fn(&Function, Inst) -> bool) -> bool {
    let mut found = has(function, inst);
    for region in &function.insts[inst].regions {
        function.walk(*region, &mut |inner| found |= has(function, inner));
    }
    found
}

impl Rewrite<'_, '_> {
    /// Ends the lifetimes of the allocations whose last use is in an instruction.
    pub(super) fn free_after(&mut self, inst: Inst, block: Block) {
        for memory in self.memory.ends[inst].clone() {
            let Some(value) = self.memory.values.get(&memory).copied() else { continue };
            // The program itself invalidates `mbarrier`s, or keeps them to the end of the kernel.
            if self.memory.filled.contains(&memory) || self.memory.barriers.contains(&memory) {
                continue;
            }
            if self.memory.copied.contains(&memory) {
                // The program may not have waited for all copies to this memory. For example, it
                // copies for an iteration past the end of a loop.
                self.append(inst, block, GpuOp::WaitGroup { pending: 0 }.into(), smallvec![], &[]);
            }
            self.append(inst, block, GpuOp::Dealloc {}.into(), smallvec![value], &[]);
        }
    }

    /// Appends an instruction at the location of an old one, and returns its result.
    pub(super) fn append(
        &mut self,
        old: Inst,
        block: Block,
        op: Op,
        operands: SmallVec<[Value; 4]>,
        results: &[Type],
    ) -> Option<Value> {
        let location = self.context.function.insts[old].location;
        let inst = self.new.create_inst(op, operands, smallvec![], results.iter().cloned(), location);
        self.new.blocks[block].insts.push(inst);
        self.new.insts[inst].results.first().copied()
    }

    fn buffer(&mut self, memory: Value, tiles: &SharedTiles) -> Type {
        if self.memory.barriers.contains(&memory) {
            return Type::Mbarrier { slots: tiles.slots };
        }
        if let Some(memory) = tensor_memory(tiles) {
            return Type::TensorMemory(memory);
        }
        let layout = tiles.layout.linear(&tiles.shape, tiles.dtype.bits());
        let layout = self.header.layouts.add(layout.expect("the frontend checks the layout"));
        Type::Buffer(Buffer {
            slots: tiles.slots,
            element: Element::Value(tiles.dtype),
            shape: tiles.shape.clone(),
            layout,
            padding: Padding(tiles.layout.padding().collect()),
        })
    }

    /// Returns the buffer that operand `index` (memory) and the next operand (slot) select.
    pub(super) fn tile_at(&mut self, inst: Inst, block: Block, index: usize) -> Value {
        let (memory, slot) = self.place(inst, index);
        let ty = match self.new.ty(memory).clone() {
            Type::Buffer(buffer) if buffer.slots > 1 => Type::Buffer(Buffer { slots: 1, ..buffer }),
            Type::TensorMemory(all) if all.slots > 1 => Type::TensorMemory(TensorMemory { slots: 1, ..all }),
            // tidy: wildcard because other memory has one tile
            _ => return memory,
        };
        let found = self.append(inst, block, GpuOp::Slot {}.into(), smallvec![memory, slot], &[ty]);
        found.expect("a slot is a value")
    }

    pub(super) fn place(&mut self, inst: Inst, index: usize) -> (Value, Value) {
        let operands = &self.context.function.insts[inst].operands;
        let (memory, slot) = (operands[index], operands[index + 1]);
        let memory = self.memory.values.get(&memory).copied().expect("an allocation dominates its uses");
        (memory, self.get(slot, None))
    }

    /// Returns an operand tile in the layout that the program states.
    pub(super) fn tile(&mut self, inst: Inst, index: usize) -> Value {
        let operand = self.context.function.insts[inst].operands[index];
        let layout = self.demands.of_operand(self.context, self.costs, (inst, index), None);
        self.get(operand, layout)
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each function")]
    pub(super) fn device(&mut self, inst: Inst, block: Block) {
        if reads_shared_memory(self.context.function, inst) {
            self.memory.all_have_read = None;
        }
        let data = &self.context.function.insts[inst];
        let ir::Op::Device { function } = &data.op else { unreachable!("only `device` has this family") };
        let function = function.clone();
        let result = data.results.first().copied();
        match function {
            DeviceFn::Allocate { tiles } => {
                let old = result.expect("an allocation has a result");
                let ty = self.buffer(old, &tiles);
                let op = GpuOp::Alloc { offset: Deferred(None) }.into();
                let value =
                    self.append(inst, block, op, smallvec![], &[ty]).expect("an allocation is a value");
                self.new.values[value].name.clone_from(&self.context.function.values[old].name);
                self.memory.values.insert(old, value);
            }
            DeviceFn::View { tiles } => {
                let old = result.expect("a view has a result");
                let ty = self.buffer(old, &tiles);
                let memory = self.memory.values[&data.operands[0]];
                let made = self.append(inst, block, GpuOp::View {}.into(), smallvec![memory], &[ty]);
                self.memory.values.insert(old, made.expect("a view is a value"));
            }
            DeviceFn::KeepAlive {} => {}
            DeviceFn::Load { .. } => {
                let buffer = self.tile_at(inst, block, 0);
                let old = result.expect("a load has a result");
                let layout = self.layouts_of(old)[0];
                let ty = self.ty(old, layout);
                let op = GpuOp::LocalLoad { matrix: false }.into();
                let value =
                    self.append(inst, block, op, smallvec![buffer], &[ty]).expect("a load is a value");
                self.define(old, layout, value, block);
            }
            DeviceFn::Store { .. } => {
                let value = self.tile(inst, 2);
                let buffer = self.tile_at(inst, block, 0);
                self.append(inst, block, GpuOp::LocalStore {}.into(), smallvec![buffer, value], &[]);
            }
            DeviceFn::CopyAsync { .. } => self.copy_async(inst, block),
            DeviceFn::CommitGroup {} => {
                self.append(inst, block, GpuOp::CommitGroup {}.into(), smallvec![], &[]);
            }
            DeviceFn::WaitGroup { pending } => {
                self.append(inst, block, GpuOp::WaitGroup { pending }.into(), smallvec![], &[]);
            }
            DeviceFn::FenceProxy {} => {
                self.append(inst, block, GpuOp::FenceProxy {}.into(), smallvec![], &[]);
            }
            DeviceFn::TensorStoreWait { pending, complete } => {
                let op = GpuOp::TensorStoreWait { pending, complete }.into();
                self.append(inst, block, op, smallvec![], &[]);
            }
            DeviceFn::MbarrierInit { .. }
            | DeviceFn::MbarrierInvalidate { .. }
            | DeviceFn::MbarrierExpect { .. }
            | DeviceFn::MbarrierArrive { .. }
            | DeviceFn::MbarrierWait { .. }
            | DeviceFn::ArriveCopies { .. }
            | DeviceFn::TrackCopies { .. } => self.mbarrier(inst, block, &function),
            DeviceFn::TensorLoad { .. } => self.tensor_load(inst, block, &function),
            DeviceFn::MulticastLoad { .. }
            | DeviceFn::WindowLoad { .. }
            | DeviceFn::ArriveFrom { .. }
            | DeviceFn::RemoteArrive { .. }
            | DeviceFn::GatherBlocks { .. }
            | DeviceFn::ClcTryCancel { .. }
            | DeviceFn::ClcLoadResult { .. }
            | DeviceFn::ClusterArrive {}
            | DeviceFn::ClusterWait {} => self.cluster_function(inst, block, &function),
            DeviceFn::TensorStore { .. } => {
                let mut operands: SmallVec<[Value; 4]> = smallvec![self.tile_at(inst, block, 0)];
                operands.extend(self.tensor(inst, &function));
                self.append(inst, block, GpuOp::TensorStore {}.into(), operands, &[]);
            }
            DeviceFn::Mma {} => self.mma(inst, block),
            DeviceFn::DotFma {} => {
                let op = GpuOp::FmaDot { precision: InputPrecision::Ieee, max_imprecise_acc: 0 };
                self.dot_in_registers(inst, block, op);
            }
            DeviceFn::WgmmaInit {} => self.dot(inst, block, GpuOp::WgmmaInit {}, smallvec![]),
            DeviceFn::WgmmaWait { .. } if !self.is_in_flight(inst) => {
                let (old, value) = (result.expect("a wait has a result"), self.tile(inst, 0));
                let layout = self.layouts_of(old)[0];
                self.define(old, layout, value, block);
            }
            DeviceFn::WgmmaWait { pending } => {
                let ty = result.map(|result| self.context.function.ty(result).layout.as_deref());
                let op = match ty {
                    Some(Some(StatedLayout::InFlight { .. })) => GpuOp::WgmmaWaitEarlier { pending },
                    _ => GpuOp::WgmmaWait { pending: Deferred(Some(pending)) },
                };
                self.dot(inst, block, op, smallvec![]);
            }
            DeviceFn::Wgmma { .. } => self.wgmma(inst, block, &function),
            DeviceFn::TensorMemoryLoad { .. }
            | DeviceFn::TensorMemoryStore { .. }
            | DeviceFn::TensorDot { .. }
            | DeviceFn::TensorDotScaled { .. }
            | DeviceFn::TensorCopy { .. }
            | DeviceFn::TensorCommit { .. } => self.tensor_memory_function(inst, block, &function),
            DeviceFn::JoinWorkers {} => self.wait_for_all_partitions(inst, block),
        }
    }

    fn copy_async(&mut self, inst: Inst, block: Block) {
        let pointer = self.tile(inst, 2);
        let context = self.context;
        let data = &context.function.insts[inst];
        self.memory.copied.insert(self.memory.allocation(data.operands[0]));
        let shape = AccessShape::of(context.function, inst, context.addresses, context.target)
            .expect("a copy accesses global memory");
        let layout = self.new.ty(pointer).layout().expect("pointers have a layout");
        let (axis, width) = shape.vector_axis_and_width(self.header.layouts.get(layout));
        let buffer = self.tile_at(inst, block, 0);
        let width = self.new.ty(buffer).as_memory().map_or(width, |to| width.min(to.padding.max_vector()));
        let mut operands: SmallVec<[Value; 4]> = smallvec![buffer, pointer];
        if let Some(mask) = data.operands.get(3) {
            let pointer_layout = self.demands.of_operand(context, self.costs, (inst, 2), None);
            operands.push(self.get(*mask, pointer_layout));
        }
        let is_kept =
            matches!(data.op, ir::Op::Device { function: DeviceFn::CopyAsync { keeps_in_l1: true, .. } });
        let cache = if is_kept { CacheModifier::All } else { CacheModifier::Default };
        let op = GpuOp::CopyAsync { cache, axis, width }.into();
        self.append(inst, block, op, operands, &[]);
    }

    pub(super) fn tensor(&mut self, inst: Inst, function: &DeviceFn) -> SmallVec<[Value; 4]> {
        let operands = self.context.function.insts[inst].operands.clone();
        let places = places_of_copy(function, operands.len());
        let map = match self.context.boxes.of_copy[&inst] {
            MapId::Launch(index) => self.tensor_maps[index],
            MapId::Device(index) => device_map(self, inst, index),
        };
        let coordinates = operands[operands.len() - places..].iter();
        std::iter::once(map).chain(coordinates.map(|value| self.get(*value, None))).collect()
    }

    fn tensor_load(&mut self, inst: Inst, block: Block, function: &DeviceFn) {
        let (barriers, barrier) = self.place(inst, 2);
        self.keep_allocated(inst, 0);
        let buffer = self.tile_at(inst, block, 0);
        let tensor = self.tensor(inst, function);
        let mut operands: SmallVec<[Value; 4]> = smallvec![buffer, tensor[0], barriers, barrier];
        operands.extend(tensor[1..].iter().copied());
        self.wait_for_reads(inst, block);
        self.predicated(inst, block, 4, |rewrite, block| {
            rewrite.append(inst, block, GpuOp::TensorLoad {}.into(), operands, &[]);
        });
    }

    /// Keeps the memory that an operand names allocated to the end of the kernel.
    pub(super) fn keep_allocated(&mut self, inst: Inst, index: usize) {
        let memory = self.memory.allocation(self.context.function.insts[inst].operands[index]);
        self.memory.filled.insert(memory);
    }

    /// Returns whether the first operand is an accumulator in flight.
    fn is_in_flight(&self, inst: Inst) -> bool {
        let function = self.context.function;
        let layout = function.ty(function.insts[inst].operands[0]).layout.as_deref();
        matches!(layout, Some(StatedLayout::InFlight { .. }))
    }

    /// Appends a barrier before an access of all threads that conflicts with other warps' accesses.
    pub(super) fn wait_for_accesses(&mut self, inst: Inst, block: Block) {
        self.append(inst, block, Op::Tile(ir::Op::Barrier {}), smallvec![], &[]);
        self.memory.all_have_read = None;
    }

    /// Appends a barrier before a copy, if threads may still read the overwritten memory.
    pub(super) fn wait_for_reads(&mut self, inst: Inst, block: Block) {
        if self.memory.read_since_barrier(block) {
            self.append(inst, block, Op::Tile(ir::Op::Barrier {}), smallvec![], &[]);
            self.memory.all_have_read = Some(block);
        }
    }

    /// Appends an op on an accumulator. The accumulator is the first operand of the old
    /// instruction, and the last one of the new.
    fn dot(&mut self, inst: Inst, block: Block, op: GpuOp, mut operands: SmallVec<[Value; 4]>) {
        let data = &self.context.function.insts[inst];
        let old = data.results[0];
        operands.push(self.tile(inst, 0));
        let layout = self.layouts_of(old)[0];
        let ty = self.ty(old, layout);
        let value = self.append(inst, block, op.into(), operands, &[ty]).expect("a dot is a value");
        self.define(old, layout, value, block);
    }

    /// Returns the warps and the instruction's extents of an accumulator.
    fn instruction(&self, accumulator: Value, operand: Dtype) -> (IntList, MmaShape) {
        let layout = self.context.function.ty(accumulator).layout.clone();
        let mut layout = layout.expect("the frontend checks the layout");
        if let StatedLayout::InFlight { accumulator } = &*layout {
            layout = accumulator.clone();
        }
        let (StatedLayout::Mma { version, warps_per_cta, .. }, Some([_, n])) =
            (&*layout, layout.instruction_extents())
        else {
            unreachable!("the frontend checks that {layout} is the layout of a dot")
        };
        let m = if *version == 3 { 64 } else { 16 };
        let shape = MmaShape { m, n, k: 256 / operand.bits() };
        (warps_per_cta.iter().map(|count| i64::from(*count)).collect(), shape)
    }

    fn mma(&mut self, inst: Inst, block: Block) {
        let data = &self.context.function.insts[inst];
        let [a, acc] = [data.operands[0], data.operands[2]];
        let dtype = self.context.function.ty(a).dtype().expect("operands are numbers");
        let (warps, instruction) = self.instruction(acc, dtype);
        let op = GpuOp::MmaSync {
            instruction,
            warps,
            precision: InputPrecision::Tf32,
            max_imprecise_acc: 0,
            matrix_a: false,
            matrix_b: false,
        };
        self.dot_in_registers(inst, block, op);
    }

    fn dot_in_registers(&mut self, inst: Inst, block: Block, op: GpuOp) {
        let result = self.context.function.insts[inst].results[0];
        let operands = (0..3).map(|index| self.tile(inst, index)).collect();
        let layout = self.layouts_of(result)[0];
        let ty = self.ty(result, layout);
        let value = self.append(inst, block, op.into(), operands, &[ty]).expect("a dot is a value");
        self.define(result, layout, value, block);
    }

    fn wgmma(&mut self, inst: Inst, block: Block, function: &DeviceFn) {
        let DeviceFn::Wgmma { b, transposed_b, transposed_a, max_imprecise_acc, window } = function else {
            unreachable!("the caller passes this function")
        };
        let data = &self.context.function.insts[inst];
        let (acc, is_in_memory) = (data.operands[0], data.operands.len() == 5);
        let (warps, instruction) = self.instruction(acc, b.dtype);
        let right = self.tile_at(inst, block, 1);
        let left = if is_in_memory { self.tile_at(inst, block, 3) } else { self.tile(inst, 3) };
        let op = GpuOp::Wgmma {
            instruction,
            warps,
            max_imprecise_acc: *max_imprecise_acc,
            transposed_a: *transposed_a,
            transposed_b: *transposed_b,
            window: window.iter().map(|number| i64::from(*number)).collect(),
            formats: None,
        };
        self.dot(inst, block, op, smallvec![left, right]);
    }

    fn mbarrier(&mut self, inst: Inst, block: Block, function: &DeviceFn) {
        let (barriers, slot) = self.place(inst, 0);
        let place: SmallVec<[Value; 4]> = smallvec![barriers, slot];
        match function {
            DeviceFn::MbarrierInit { arrivals, .. } => {
                self.append(inst, block, GpuOp::MbarrierInit { arrivals: *arrivals }.into(), place, &[]);
                // Copies arrive at the `mbarrier` through the asynchronous proxy, so the
                // initialization needs a fence.
                self.append(inst, block, GpuOp::FenceProxy {}.into(), smallvec![], &[]);
                self.append(inst, block, Op::Tile(ir::Op::Barrier {}), smallvec![], &[]);
                self.memory.all_have_read = Some(block);
            }
            DeviceFn::MbarrierInvalidate { .. } => {
                self.append(inst, block, GpuOp::MbarrierInvalidate {}.into(), place, &[]);
            }
            DeviceFn::MbarrierExpect { bytes, .. } => {
                let op: Op = GpuOp::MbarrierExpect { bytes: *bytes }.into();
                self.predicated(inst, block, 2, |rewrite, block| {
                    rewrite.append(inst, block, op, place, &[]);
                });
            }
            DeviceFn::MbarrierArrive { arrivals, .. } => {
                // One thread arrives, after all threads have reached this point.
                self.append(inst, block, Op::Tile(ir::Op::Barrier {}), smallvec![], &[]);
                let op: Op = GpuOp::MbarrierArriveTimes { arrivals: *arrivals }.into();
                self.predicated(inst, block, 2, |rewrite, block| {
                    rewrite.append(inst, block, op, place, &[]);
                });
            }
            DeviceFn::ArriveCopies { .. } => {
                self.append(inst, block, GpuOp::MbarrierArriveCopies {}.into(), place, &[]);
            }
            DeviceFn::TrackCopies { .. } => {
                self.append(inst, block, GpuOp::MbarrierTrackCopies {}.into(), place, &[]);
            }
            DeviceFn::MbarrierWait { .. } => {
                let phase = self.get(self.context.function.insts[inst].operands[2], None);
                self.predicated(inst, block, 3, |rewrite, block| {
                    let operands = smallvec![barriers, slot, phase];
                    rewrite.append(inst, block, GpuOp::MbarrierWait {}.into(), operands, &[]);
                });
            }
            // tidy: wildcard because the caller passes only functions of barriers
            other => unreachable!("{} is no function of barriers", other.name()),
        }
    }

    /// Emits instructions that run only if the operand `index`, an int1, is true.
    pub(super) fn predicated(
        &mut self,
        inst: Inst,
        block: Block,
        index: usize,
        emit: impl FnOnce(&mut Self, Block),
    ) {
        let function = self.context.function;
        let predicate = function.insts[inst].operands[index];
        if ir::constant_bool(function, predicate) == Some(true) {
            return emit(self, block);
        }
        let condition = self.get(predicate, None);
        let regions = [(); 2].map(|()| self.new.blocks.push(BlockData::default()));
        emit(self, regions[0]);
        for region in regions {
            self.append(inst, region, Op::Tile(ir::Op::Yield {}), smallvec![], &[]);
        }
        let location = function.insts[inst].location;
        let op = Op::Tile(ir::Op::If {});
        let branch =
            self.new.create_inst(op, smallvec![condition], regions.into_iter().collect(), [], location);
        self.new.blocks[block].insts.push(branch);
    }
}
