//! Translates the functions of the op `device`, with which a program states its shared memory,
//! copies and barriers (Gluon).

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, BlockData, CacheModifier, DeviceFn, Dtype, Element, Function, Inst, SharedTiles, Value};

use super::Rewrite;
use crate::assign::coalescing::AccessShape;
use tilewright_gpu_ir::{Buffer, Deferred, GpuOp, Op, Type};

/// The shared memory that a program allocates.
#[derive(Default)]
pub struct SharedAllocations {
    /// The new value of each allocation.
    values: FxHashMap<Value, Value>,
    /// The allocations whose last use is in an instruction, nested ones included, of the block of
    /// the allocation.
    ends: SecondaryMap<Inst, SmallVec<[Value; 2]>>,
    /// The allocations to which threads copy by `cp.async`.
    copied: FxHashSet<Value>,
}

impl SharedAllocations {
    /// Finds the lifetime of each allocation of a function.
    pub fn new(function: &Function) -> Self {
        let mut found = Self::default();
        found.block(function, function.entry);
        found
    }

    fn block(&mut self, function: &Function, block: Block) {
        let mut last: Vec<(Value, Inst)> = Vec::new();
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            for region in &data.regions {
                self.block(function, *region);
            }
            for (value, end) in &mut last {
                if uses(function, *inst, *value) {
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

/// Returns whether an instruction or one within it uses a value.
fn uses(function: &Function, inst: Inst, value: Value) -> bool {
    let data = &function.insts[inst];
    let mut found = data.operands.contains(&value);
    for region in &data.regions {
        function.walk(*region, &mut |inner| found |= function.insts[inner].operands.contains(&value));
    }
    found
}

impl Rewrite<'_, '_> {
    /// Ends the lifetimes of the allocations whose last use is in an instruction.
    pub(super) fn free_after(&mut self, inst: Inst, block: Block) {
        for memory in self.memory.ends[inst].clone() {
            let Some(value) = self.memory.values.get(&memory).copied() else { continue };
            if let Type::Mbarrier { .. } = self.new.ty(value) {
                self.append(inst, block, Op::Tile(ir::Op::Barrier {}), smallvec![], &[]);
            } else if self.memory.copied.contains(&memory) {
                // Copies that the program does not wait for, such as those beyond the last block.
                self.append(inst, block, GpuOp::WaitGroup { pending: 0 }.into(), smallvec![], &[]);
            }
            self.append(inst, block, GpuOp::Dealloc {}.into(), smallvec![value], &[]);
        }
    }

    /// Appends an instruction at the location of an old one, and returns its result, if any.
    fn append(
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

    /// Returns the type of the buffer for tiles.
    fn buffer(&mut self, tiles: &SharedTiles) -> Type {
        let is_barrier = tiles.dtype == Dtype::I64 && tiles.shape[..] == [1];
        if is_barrier {
            return Type::Mbarrier { slots: tiles.slots };
        }
        let layout = tiles.layout.linear(&tiles.shape, tiles.dtype.bits());
        let layout = self.header.layouts.add(layout.expect("the frontend checks the layout"));
        Type::Buffer(Buffer {
            slots: tiles.slots,
            element: Element::Value(tiles.dtype),
            shape: tiles.shape.clone(),
            layout,
        })
    }

    /// Returns the buffer that the operands `index` (memory) and `index + 1` (slot) select.
    fn tile_at(&mut self, inst: Inst, block: Block, index: usize) -> Value {
        let (memory, slot) = self.place(inst, index);
        let Type::Buffer(buffer) = self.new.ty(memory).clone() else { return memory };
        if buffer.slots == 1 {
            return memory;
        }
        let ty = Type::Buffer(Buffer { slots: 1, ..buffer });
        let found = self.append(inst, block, GpuOp::Slot {}.into(), smallvec![memory, slot], &[ty]);
        found.expect("a slot is a value")
    }

    /// Returns the allocation and the slot that operands select.
    fn place(&mut self, inst: Inst, index: usize) -> (Value, Value) {
        let operands = &self.context.function.insts[inst].operands;
        let (memory, slot) = (operands[index], operands[index + 1]);
        let memory = self.memory.values.get(&memory).copied().expect("an allocation dominates its uses");
        (memory, self.get(slot, None))
    }

    /// Returns a tile that the program gives, in its own layout.
    fn tile(&mut self, inst: Inst, index: usize) -> Value {
        let operand = self.context.function.insts[inst].operands[index];
        let layout = self.demands.of_operand(self.context, self.costs, (inst, index), None);
        self.get(operand, layout)
    }

    /// Translates a function.
    pub(super) fn device(&mut self, inst: Inst, block: Block) {
        let data = &self.context.function.insts[inst];
        let ir::Op::Device { function } = &data.op else { unreachable!("only `device` has this family") };
        let function = function.clone();
        let result = data.results.first().copied();
        match function {
            DeviceFn::Allocate { tiles } => {
                let ty = self.buffer(&tiles);
                let op = GpuOp::Alloc { offset: Deferred(None) }.into();
                let value = self.append(inst, block, op, smallvec![], &[ty]).expect("an allocation is a value");
                let old = result.expect("an allocation has a result");
                self.new.values[value].name.clone_from(&self.context.function.values[old].name);
                self.memory.values.insert(old, value);
            }
            // The end of the lifetime invalidates the barriers.
            DeviceFn::KeepAlive {} | DeviceFn::MbarrierInvalidate { .. } => {}
            DeviceFn::Load { .. } => {
                let buffer = self.tile_at(inst, block, 0);
                let old = result.expect("a load has a result");
                let layout = self.layouts_of(old)[0];
                let ty = self.ty(old, layout);
                let op = GpuOp::LocalLoad { matrix: false }.into();
                let value = self.append(inst, block, op, smallvec![buffer], &[ty]).expect("a load is a value");
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
            DeviceFn::TensorStoreWait { pending } => {
                let op = GpuOp::TensorStoreWait { pending, complete: false }.into();
                self.append(inst, block, op, smallvec![], &[]);
            }
            DeviceFn::MbarrierInit { .. }
            | DeviceFn::MbarrierExpect { .. }
            | DeviceFn::MbarrierArrive { .. }
            | DeviceFn::MbarrierWait { .. }
            | DeviceFn::ArriveCopies { .. } => self.mbarrier(inst, block, &function),
            DeviceFn::TensorLoad { .. } | DeviceFn::TensorStore { .. } | DeviceFn::Mma { .. } => {
                unreachable!("the frontend does not emit {} yet", function.name())
            }
        }
    }

    fn copy_async(&mut self, inst: Inst, block: Block) {
        let pointer = self.tile(inst, 2);
        let context = self.context;
        let data = &context.function.insts[inst];
        self.memory.copied.insert(data.operands[0]);
        let shape = AccessShape::of(context.function, inst, context.addresses, context.target)
            .expect("a copy accesses global memory");
        let layout = self.new.ty(pointer).layout().expect("pointers have a layout");
        let (axis, width) = shape.vector_axis_and_width(self.header.layouts.get(layout));
        let mut operands: SmallVec<[Value; 4]> = smallvec![self.tile_at(inst, block, 0), pointer];
        if let Some(mask) = data.operands.get(3) {
            let pointer_layout = self.demands.of_operand(context, self.costs, (inst, 2), None);
            operands.push(self.get(*mask, pointer_layout));
        }
        let op = GpuOp::CopyAsync { cache: CacheModifier::Default, axis, width }.into();
        self.append(inst, block, op, operands, &[]);
    }

    fn mbarrier(&mut self, inst: Inst, block: Block, function: &DeviceFn) {
        let (barriers, slot) = self.place(inst, 0);
        let place: SmallVec<[Value; 4]> = smallvec![barriers, slot];
        match function {
            DeviceFn::MbarrierInit { arrivals, .. } => {
                self.append(inst, block, GpuOp::MbarrierInit { arrivals: *arrivals }.into(), place, &[]);
                // The copies of the asynchronous proxy arrive at it, too.
                self.append(inst, block, GpuOp::FenceProxy {}.into(), smallvec![], &[]);
                self.append(inst, block, Op::Tile(ir::Op::Barrier {}), smallvec![], &[]);
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
                self.predicated(inst, block, 2, |rewrite, block| {
                    for _ in 0..*arrivals {
                        let op = GpuOp::MbarrierExpect { bytes: 0 }.into();
                        rewrite.append(inst, block, op, place.clone(), &[]);
                    }
                });
            }
            DeviceFn::ArriveCopies { .. } => {
                self.append(inst, block, GpuOp::MbarrierArriveCopies {}.into(), place, &[]);
            }
            DeviceFn::MbarrierWait { .. } => {
                let phase = self.get(self.context.function.insts[inst].operands[2], None);
                self.predicated(inst, block, 3, |rewrite, block| {
                    let operands = smallvec![barriers, slot, phase];
                    rewrite.append(inst, block, GpuOp::MbarrierWait {}.into(), operands, &[]);
                });
            }
            // tidy: wildcard because the caller passes functions of barriers alone
            other => unreachable!("{} is no function of barriers", other.name()),
        }
    }

    /// Emits instructions that run if the operand `index`, an int1, is true.
    fn predicated(
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
        let branch = self.new.create_inst(op, smallvec![condition], regions.into_iter().collect(), [], location);
        self.new.blocks[block].insts.push(branch);
    }
}
