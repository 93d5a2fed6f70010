//! Builds the function in the GPU dialect, in the layouts that uses demand.
//!
//! A rematerialized value is computed once for each layout. Another value is computed once, with a
//! `convert_layout` for each further layout.
//!
//! A `convert_layout` is in the block of its value, just before the first use. If this use is in a
//! loop or branch, the conversion is before it, so no loop converts a value from outside. A
//! conversion waits for its value: as it is placed late, earlier loads are issued before that wait.

mod clusters;
mod device;
mod partitions;
mod tensor_boxes;
mod tensor_memory;

use cranelift_entity::{PrimaryMap, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, CacheModifier, Carried, Inst, IntList, MemoryScope, MemorySemantics, OpFamily,
    ScaledFormats, StatedLayout, Value,
};
use tilewright_layout::Mma;

use crate::assign::coalescing::{AccessShape, equal_registers};
use crate::assign::cost::LayoutCosts;
use crate::assign::mma_selection::DotInstruction;
use crate::assign::propagation::{AssignContext, Demands};
use crate::remarks;
use tilewright_gpu_ir::{Deferred, Function, GpuOp, Header, LayoutId, MmaShape, Module, Op, Scope, Type};

pub(super) use device::barrier_operand;
pub(super) use tensor_memory::check_moves;

pub fn rewrite(
    source: &ir::Module,
    context: &AssignContext<'_>,
    demands: &Demands,
    costs: &mut LayoutCosts,
) -> Module {
    let old = context.function;
    let mut function = Function::new(old.name.clone());
    function.span = old.span;
    function.parameters.clone_from(&old.parameters);
    function.results = old.results.iter().cloned().map(Type::scalar).collect();
    function.locations = old.locations.clone();
    let mut rewrite = Rewrite {
        context,
        demands,
        costs,
        new: function,
        header: Header::new(context.target, context.num_warps),
        ids: FxHashMap::default(),
        versions: FxHashMap::default(),
        homes: SecondaryMap::new(),
        staged: FxHashMap::default(),
        tensor_maps: Vec::new(),
        made_maps: Vec::new(),
        memory: device::SharedAllocations::new(old),
    };
    let entry = rewrite.new.entry;
    for parameter in &old.blocks[old.entry].parameters {
        rewrite.parameter(entry, *parameter, None);
    }
    tensor_boxes::declare(&mut rewrite);
    rewrite.block(old.entry, entry, true);
    let Rewrite { new, header, .. } = rewrite;
    let mut functions = PrimaryMap::new();
    let entry = functions.push(new);
    Module { header, functions, entry, sources: source.sources.clone() }
}

struct Rewrite<'a, 'f> {
    context: &'a AssignContext<'f>,
    demands: &'a Demands,
    costs: &'a mut LayoutCosts,
    new: Function,
    header: Header,
    /// The layout id of the module for each layout id of [`LayoutCosts`].
    ids: FxHashMap<LayoutId, LayoutId>,
    /// The new value for each old value and layout; scalars have no layout.
    versions: FxHashMap<(Value, Option<LayoutId>), Value>,
    /// The block that defines each new value.
    homes: SecondaryMap<Value, Option<Block>>,
    /// The converted operands of FMA dots, by the value and the new layout.
    staged: FxHashMap<(Value, LayoutId), Value>,
    /// The parameters that are tensor maps.
    tensor_maps: Vec<Value>,
    /// The addresses of the maps that the kernel makes; `None` until the first use.
    made_maps: Vec<Option<Value>>,
    /// The shared memory that the program allocates itself.
    memory: device::SharedAllocations,
}

impl Rewrite<'_, '_> {
    fn ty(&mut self, old: Value, layout: Option<LayoutId>) -> Type {
        let stated = self.context.function.ty(old);
        let is_in_flight = matches!(stated.layout.as_deref(), Some(StatedLayout::InFlight { .. }));
        let tile = stated.with_layout(None);
        let layout = layout.filter(|_| !tile.is_scalar()).map(|layout| {
            let Self { header, costs, .. } = self;
            *self.ids.entry(layout).or_insert_with(|| header.layouts.add(costs.get(layout).clone()))
        });
        match layout {
            Some(layout) if is_in_flight => Type::Pending { tile, layout },
            layout => Type::registers(tile, layout),
        }
    }

    fn parameter(&mut self, block: Block, old: Value, layout: Option<LayoutId>) {
        let ty = self.ty(old, layout);
        let name = self.context.function.values[old].name.clone();
        let new = self.new.add_parameter(block, ty, name);
        self.define(old, layout, new, block);
    }

    fn define(&mut self, old: Value, layout: Option<LayoutId>, new: Value, block: Block) {
        self.versions.insert((old, layout), new);
        self.homes[new] = Some(block);
        if self.new.values[new].name.is_none() {
            self.new.values[new].name.clone_from(&self.context.function.values[old].name);
        }
    }

    fn layouts_of(&self, value: Value) -> SmallVec<[Option<LayoutId>; 2]> {
        if self.context.function.ty(value).is_scalar() {
            return smallvec![None];
        }
        let demanded = &self.demands.of_value[value];
        let count = if self.context.rematerializable.contains(value) {
            demanded.len()
        } else {
            demanded.len().min(1)
        };
        demanded[..count].iter().map(|layout| Some(*layout)).collect()
    }

    /// Returns the new value of an old value in a layout. Adds a conversion if necessary.
    fn get(&mut self, old: Value, layout: Option<LayoutId>) -> Value {
        let layout = if self.context.function.ty(old).is_scalar() { None } else { layout };
        if let Some(new) = self.versions.get(&(old, layout)) {
            return *new;
        }
        let first = self.demands.of_value[old].first().copied();
        let from = *self.versions.get(&(old, first)).expect("a value is computed in its first layout");
        let home = self.homes[from].expect("every value is in a block");
        let new = self.convert((old, layout), from, home);
        self.define(old, layout, new, home);
        new
    }

    fn convert(&mut self, (old, layout): (Value, Option<LayoutId>), from: Value, home: Block) -> Value {
        let ty = self.ty(old, layout);
        let location =
            self.new.defining_inst(from).map(|inst| self.new.insts[inst].location).unwrap_or_default();
        let op = GpuOp::ConvertLayout {}.into();
        let inst = self.new.create_inst(op, smallvec![from], smallvec![], [ty], location);
        self.new.blocks[home].insts.push(inst);
        self.new.insts[inst].results[0]
    }

    /// Returns an operand of an FMA dot after a `convert_layout`. The conversion goes through
    /// shared memory even if the layouts are equal.
    fn staged(&mut self, old: Value, from: Value, layout: LayoutId) -> Value {
        if let Some(new) = self.staged.get(&(from, layout)) {
            return *new;
        }
        let home = self.homes[from].expect("every value is in a block");
        let new = self.convert((old, Some(layout)), from, home);
        self.homes[new] = Some(home);
        self.new.values[new].name = self.new.values[from].name.clone();
        self.staged.insert((from, layout), new);
        new
    }

    /// Copies a block. Without `with_terminator`, the caller adds the terminator.
    fn block(&mut self, old: Block, new: Block, with_terminator: bool) {
        let function = self.context.function;
        let insts = &function.blocks[old].insts;
        let count = if with_terminator { insts.len() } else { insts.len().saturating_sub(1) };
        for inst in &insts[..count] {
            match function.insts[*inst].op.family() {
                OpFamily::Promise => {}
                OpFamily::Identity => self.identity(*inst),
                OpFamily::Memory => self.device(*inst, new),
                OpFamily::Loop => self.copy_loop(*inst, new),
                OpFamily::Branch => self.branch(*inst, new),
                OpFamily::Partitions => self.workers(*inst, new),
                // tidy: wildcard because other ops have no control flow
                _ => self.straight(*inst, new),
            }
            self.free_after(*inst, new);
        }
    }

    fn straight(&mut self, inst: Inst, block: Block) {
        let function = self.context.function;
        let data = &function.insts[inst];
        let first = data.results.first();
        let layouts = first.map_or_else(|| smallvec![None], |result| self.layouts_of(*result));
        for layout in layouts {
            let operands = (0..data.operands.len()).map(|index| {
                let demanded = self.demands.of_operand(self.context, self.costs, (inst, index), layout);
                self.get(data.operands[index], demanded)
            });
            let mut operands: SmallVec<[Value; 4]> = operands.collect();
            if let Some(boxed) = self.context.boxes.of(inst) {
                operands[0] = tensor_boxes::mark(self, inst, boxed, operands[0], block);
            }
            if let Some(plan) = self.context.dots.of(inst)
                && plan.instruction == DotInstruction::Fma
            {
                for (index, layout) in plan.operands.into_iter().enumerate() {
                    let layout = layout.expect("every operand of an FMA dot has a layout");
                    operands[index] = self.staged(data.operands[index], operands[index], layout);
                }
            }
            let regions = data.regions.iter().map(|region| self.scalar_region(*region)).collect();
            let layouts: SmallVec<[Option<LayoutId>; 1]> = (0..data.results.len())
                .map(|index| if index == 0 { layout } else { self.layouts_of(data.results[index])[0] })
                .collect();
            let mut copy = self.push(inst, block, operands, regions, &layouts);
            if matches!(self.new.insts[copy].op, Op::Gpu(GpuOp::Wgmma { .. })) {
                copy = self.wait_for_dot(copy, block);
            }
            for (index, result) in data.results.iter().enumerate() {
                self.define(*result, layouts[index], self.new.insts[copy].results[index], block);
            }
        }
    }

    /// Waits for an asynchronous dot right after its start. A later pass moves ops between the dot
    /// and the wait.
    fn wait_for_dot(&mut self, dot: Inst, block: Block) -> Inst {
        let (pending, location) = (self.new.insts[dot].results[0], self.new.insts[dot].location);
        let ty = self.new.ty(pending).clone();
        let Type::Registers { tile, layout: Some(layout) } = ty.clone() else {
            unreachable!("the result of a dot is a tile, found {ty}")
        };
        self.new.values[pending].ty = Type::Pending { tile, layout };
        let op = GpuOp::WgmmaWait { pending: Deferred(Some(0)) }.into();
        let inst = self.new.create_inst(op, smallvec![pending], smallvec![], [ty], location);
        self.new.blocks[block].insts.push(inst);
        inst
    }

    /// Copies a region of scalars, such as that of a reduction.
    fn scalar_region(&mut self, old: Block) -> Block {
        let new = self.new.blocks.push(BlockData::default());
        for parameter in &self.context.function.blocks[old].parameters {
            self.parameter(new, *parameter, None);
        }
        self.block(old, new, true);
        new
    }

    /// Appends a copy of an old instruction, with results in these layouts.
    fn push(
        &mut self,
        old: Inst,
        block: Block,
        operands: SmallVec<[Value; 4]>,
        regions: SmallVec<[Block; 2]>,
        layouts: &[Option<LayoutId>],
    ) -> Inst {
        let data = &self.context.function.insts[old];
        let types: SmallVec<[Type; 2]> =
            data.results.iter().zip(layouts).map(|(result, layout)| self.ty(*result, *layout)).collect();
        let op = self.op(old, operands.first().copied(), layouts.first().copied().flatten());
        let copy = self.new.create_inst(op, operands, regions, types, data.location);
        self.new.blocks[block].insts.push(copy);
        copy
    }

    /// Returns the dialect's op for an instruction. The op has decisions such as the access width.
    /// `first` is the new first operand, and `result` the layout of the result.
    fn op(&self, old: Inst, first: Option<Value>, result: Option<LayoutId>) -> Op {
        let AssignContext { function, addresses, certain, dots, target, .. } = *self.context;
        let data = &function.insts[old];
        let (axis, width) = AccessShape::of(function, old, addresses, target)
            .and_then(|shape| {
                let layout = self.header.layouts.get(self.new.ty(first?).layout()?);
                let pointers = function.ty(data.operands[0]);
                let tile = pointers.element.pointee().map(|dtype| pointers.with_dtype(dtype));
                let subject = || remarks::subject(function, old, tile.as_ref());
                remarks::about("coalescing", function, old, subject, || {
                    shape.because(function, old, addresses, layout)
                });
                Some(shape.vector_axis_and_width(layout))
            })
            .unwrap_or((0, 1));
        let op = match data.op.clone() {
            ir::Op::Elementwise { function } => {
                let info = &certain[data.results[0]];
                let bits = result.map_or(0, |layout| equal_registers(self.costs.get(layout), info));
                GpuOp::Elementwise { function, equal_registers: bits }
            }
            // Other programs may write to the address. If each warp loaded the scalar, warps could
            // load different values and diverge around barriers.
            ir::Op::Load { cache, volatile, .. }
                if (volatile || cache == CacheModifier::Volatile)
                    && self.is_scalar_for_block(old, result) =>
            {
                let (sem, scope) = (MemorySemantics::Relaxed, MemoryScope::System);
                GpuOp::AtomicLoad { sem, scope, everywhere: true }
            }
            ir::Op::Load { cache, eviction, volatile } => {
                let changes = volatile || cache == CacheModifier::Volatile;
                let equal_registers = if changes { 0 } else { self.equal_loads(old, result) };
                GpuOp::Load { cache, eviction, volatile, axis, width, equal_registers }
            }
            ir::Op::Store { cache, eviction } => GpuOp::Store { cache, eviction, axis, width },
            ir::Op::AtomicRmw { kind, sem, scope } => {
                GpuOp::AtomicRmw { kind, sem, scope, axis, width, everywhere: true }
            }
            ir::Op::AtomicCas { sem, scope } => GpuOp::AtomicCas { sem, scope, everywhere: true },
            ir::Op::AtomicLoad { sem, scope } => GpuOp::AtomicLoad { sem, scope, everywhere: true },
            ir::Op::AtomicStore { sem, scope } => GpuOp::AtomicStore { sem, scope },
            ir::Op::AtomicPoll { sem, scope } => GpuOp::AtomicPoll { sem, scope, everywhere: true },
            ir::Op::Reduce { axis } => GpuOp::Reduce { axis, scope: Scope::Block, redux: false },
            ir::Op::Scan { axis, reverse } => GpuOp::Scan { axis, reverse, scope: Scope::Block },
            ir::Op::DotScaled { a_format, b_format } => {
                let DotInstruction::Tcgen05 { mma } = dots.of(old).expect("every dot has a plan").instruction
                else {
                    unreachable!("a dot with scales is one of tensor memory")
                };
                self.tensor_memory_dot(mma, Some(ScaledFormats([a_format, b_format])))
            }
            ir::Op::Dot { precision, max_imprecise_acc } => {
                match dots.of(old).expect("every dot has a plan").instruction {
                    DotInstruction::MmaSync { mma, warps } => GpuOp::MmaSync {
                        instruction: MmaShape { m: mma.m, n: mma.n, k: mma.k },
                        // The number of warps along the batch is omitted if it is 1.
                        warps: warps[usize::from(warps[0] == 1)..]
                            .iter()
                            .map(|count| i64::from(*count))
                            .collect(),
                        precision,
                        max_imprecise_acc,
                        matrix_a: false,
                        matrix_b: false,
                    },
                    DotInstruction::Wgmma { mma, warps } => GpuOp::Wgmma {
                        instruction: MmaShape { m: mma.m, n: mma.n, k: mma.k },
                        warps: warps.iter().map(|count| i64::from(*count)).collect(),
                        max_imprecise_acc,
                        transposed_a: false,
                        transposed_b: false,
                        window: IntList::new(),
                        formats: None,
                    },
                    DotInstruction::Tcgen05 { mma } => self.tensor_memory_dot(mma, None),
                    DotInstruction::Fma => GpuOp::FmaDot { precision, max_imprecise_acc },
                }
            }
            // tidy: wildcard because other ops have no decisions
            other => return Op::Tile(other),
        };
        Op::Gpu(op)
    }

    /// Returns a dot whose accumulator a later pass moves to tensor memory.
    fn tensor_memory_dot(&self, mma: Mma, formats: Option<ScaledFormats>) -> GpuOp {
        GpuOp::Wgmma {
            instruction: MmaShape { m: mma.m, n: mma.n, k: mma.k },
            warps: [i64::from(self.context.num_warps), 1].into_iter().collect(),
            max_imprecise_acc: 0,
            transposed_a: false,
            transposed_b: false,
            window: IntList::new(),
            formats,
        }
    }

    /// Returns the register-index bits that change neither the address nor the mask nor `other` of
    /// a load.
    ///
    /// Integers in pointers and masks are assumed not to overflow.
    fn equal_loads(&self, load: Inst, layout: Option<LayoutId>) -> u32 {
        let AssignContext { function, addresses, certain, .. } = *self.context;
        let Some(layout) = layout else { return 0 };
        let operands = function.insts[load].operands.iter().enumerate();
        let infos =
            operands.map(|(index, value)| if index == 2 { &certain[*value] } else { &addresses[*value] });
        infos.fold(u32::MAX, |bits, info| bits & equal_registers(self.costs.get(layout), info))
    }

    /// Returns whether one thread can load a scalar for the block.
    fn is_scalar_for_block(&self, load: Inst, layout: Option<LayoutId>) -> bool {
        let function = self.context.function;
        let data = &function.insts[load];
        let dtype = function.ty(data.results[0]).dtype();
        layout.is_none() && data.operands.len() <= 2 && dtype.is_some_and(|dtype| dtype.bits() >= 16)
    }

    /// Replaces an identity with its operand.
    fn identity(&mut self, inst: Inst) {
        let data = &self.context.function.insts[inst];
        let (operand, result) = (data.operands[0], data.results[0]);
        for layout in self.layouts_of(result) {
            let new = self.get(operand, layout);
            self.versions.insert((result, layout), new);
        }
    }

    fn copy_loop(&mut self, inst: Inst, block: Block) {
        let function = self.context.function;
        let data = &function.insts[inst];
        // Each value is carried once for each layout.
        let carried: Vec<(Carried, Option<LayoutId>)> = function
            .carried(inst)
            .flat_map(|carried| {
                let layouts = self.layouts_of(carried.result);
                layouts.into_iter().map(|layout| (carried.clone(), layout)).collect::<Vec<_>>()
            })
            .collect();
        let bounds = if matches!(data.op, ir::Op::For { .. }) { 3 } else { 0 };
        let mut operands: SmallVec<[Value; 4]> =
            data.operands[..bounds].iter().map(|bound| self.get(*bound, None)).collect();
        for (Carried { initial, .. }, layout) in &carried {
            operands.push(self.get(initial.expect("a loop has initial values"), *layout));
        }
        let mut regions: SmallVec<[Block; 2]> = smallvec![];
        let last = data.regions.len() - 1;
        for (index, region) in data.regions.iter().enumerate() {
            let new = self.new.blocks.push(BlockData::default());
            if bounds > 0 {
                self.parameter(new, function.blocks[*region].parameters[0], None);
            }
            for (carried, layout) in &carried {
                self.parameter(new, carried.parameters[index], *layout);
            }
            self.block(*region, new, index != last);
            if index == last {
                let yielded = carried.iter().map(|(carried, layout)| (carried.yielded[0], *layout)).collect();
                self.terminate(*region, new, yielded);
            }
            regions.push(new);
        }
        let types: Vec<Type> =
            carried.iter().map(|(carried, layout)| self.ty(carried.result, *layout)).collect();
        let op = Op::Tile(data.op.clone());
        let copy = self.new.create_inst(op, operands, regions, types, data.location);
        self.new.blocks[block].insts.push(copy);
        for (index, (carried, layout)) in carried.iter().enumerate() {
            self.define(carried.result, *layout, self.new.insts[copy].results[index], block);
        }
    }

    fn branch(&mut self, inst: Inst, block: Block) {
        let function = self.context.function;
        let data = &function.insts[inst];
        let layouts: Vec<Option<LayoutId>> =
            data.results.iter().map(|result| self.layouts_of(*result)[0]).collect();
        let condition = self.get(data.operands[0], None);
        let mut regions: SmallVec<[Block; 2]> = smallvec![];
        for region in &data.regions {
            let new = self.new.blocks.push(BlockData::default());
            self.block(*region, new, false);
            let yielded = function.yielded(*region).iter().copied().zip(layouts.iter().copied()).collect();
            self.terminate(*region, new, yielded);
            regions.push(new);
        }
        let copy = self.push(inst, block, smallvec![condition], regions, &layouts);
        for (index, result) in data.results.iter().enumerate() {
            self.define(*result, layouts[index], self.new.insts[copy].results[index], block);
        }
    }

    /// Ends a region with values in the layouts of the instruction's results.
    fn terminate(&mut self, old: Block, new: Block, yielded: Vec<(Value, Option<LayoutId>)>) {
        let operands = yielded.into_iter().map(|(value, layout)| self.get(value, layout)).collect();
        if let Some(inst) = self.context.function.terminator(old) {
            self.push(inst, new, operands, smallvec![], &[]);
        }
    }
}
