//! The function in the language of the GPU path: each value in the layouts that it is wanted in. Values that are
//! rematerialized are made once for each layout, all others once, with a `convert_layout` for each further layout.
//!
//! A `convert_layout` stands behind all else in the block of its value, as late as its first use allows: so loads are issued
//! before the first of them is waited for, and nothing is converted in a loop that could be converted before it.

mod tensor_boxes;

use cranelift_entity::{PrimaryMap, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, CacheModifier, Carried, Inst, MemoryScope, MemorySemantics, OpFamily, Value,
};

use crate::assign::coalescing::{AccessShape, equal_registers};
use crate::assign::cost::LayoutCosts;
use crate::assign::mma_selection::Product;
use crate::assign::propagation::{Decided, Demands};
use crate::remarks;
use tilewright_gpu_ir::{Deferred, Function, GpuOp, Header, LayoutId, MmaShape, Module, Op, Scope, Type};

/// Builds the module of a kernel.
pub fn rewrite(
    source: &ir::Module,
    decided: &Decided<'_>,
    demands: &Demands,
    costs: &mut LayoutCosts,
) -> Module {
    let old = decided.function;
    let mut function = Function::new(old.name.clone());
    function.span = old.span;
    function.parameters.clone_from(&old.parameters);
    function.results = old.results.iter().cloned().map(Type::scalar).collect();
    function.locations = old.locations.clone();
    let mut rewrite = Rewrite {
        decided,
        demands,
        costs,
        new: function,
        header: Header::new(decided.target, decided.num_warps),
        ids: FxHashMap::default(),
        versions: FxHashMap::default(),
        homes: SecondaryMap::new(),
        staged: FxHashMap::default(),
        tensor_maps: Vec::new(),
        made_maps: Vec::new(),
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
    decided: &'a Decided<'f>,
    demands: &'a Demands,
    costs: &'a mut LayoutCosts,
    new: Function,
    header: Header,
    /// The layouts of the module, by the number that they were weighed under.
    ids: FxHashMap<LayoutId, LayoutId>,
    /// The new value of an old one in a layout; of scalars without one.
    versions: FxHashMap<(Value, Option<LayoutId>), Value>,
    /// The block that holds a new value.
    homes: SecondaryMap<Value, Option<Block>>,
    /// The operands of products of single elements, by the new value that they are made of.
    staged: FxHashMap<(Value, LayoutId), Value>,
    /// The parameters that are tensor maps.
    tensor_maps: Vec<Value>,
    /// Those that the kernel makes, from where one is needed on.
    made_maps: Vec<Option<Value>>,
}

impl Rewrite<'_, '_> {
    /// The type of an old value in a layout.
    fn ty(&mut self, old: Value, layout: Option<LayoutId>) -> Type {
        let tile = self.decided.function.ty(old).clone();
        let layout = layout.filter(|_| !tile.is_scalar()).map(|layout| {
            let Self { header, costs, .. } = self;
            *self.ids.entry(layout).or_insert_with(|| header.layouts.add(costs.get(layout).clone()))
        });
        Type::registers(tile, layout)
    }

    fn parameter(&mut self, block: Block, old: Value, layout: Option<LayoutId>) {
        let ty = self.ty(old, layout);
        let name = self.decided.function.values[old].name.clone();
        let new = self.new.add_parameter(block, ty, name);
        self.define(old, layout, new, block);
    }

    fn define(&mut self, old: Value, layout: Option<LayoutId>, new: Value, block: Block) {
        self.versions.insert((old, layout), new);
        self.homes[new] = Some(block);
        if self.new.values[new].name.is_none() {
            self.new.values[new].name.clone_from(&self.decided.function.values[old].name);
        }
    }

    /// The layouts that a value exists in.
    fn layouts_of(&self, value: Value) -> SmallVec<[Option<LayoutId>; 2]> {
        if self.decided.function.ty(value).is_scalar() {
            return smallvec![None];
        }
        let wanted = &self.demands.of_value[value];
        let count = if self.decided.cheap.has(value) { wanted.len() } else { wanted.len().min(1) };
        wanted[..count].iter().map(|layout| Some(*layout)).collect()
    }

    /// The new value of an old one in a layout, converted if there is none yet.
    fn get(&mut self, old: Value, layout: Option<LayoutId>) -> Value {
        let layout = if self.decided.function.ty(old).is_scalar() { None } else { layout };
        if let Some(new) = self.versions.get(&(old, layout)) {
            return *new;
        }
        let native = self.demands.of_value[old].first().copied();
        let from =
            *self.versions.get(&(old, native)).expect("a value is made in each layout that it is wanted in");
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

    /// An operand of a product of single elements: it goes through shared memory from any layout, its own even.
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

    /// Copies a block. The terminators of some regions are made by the instruction that has the region.
    fn block(&mut self, old: Block, new: Block, with_terminator: bool) {
        let function = self.decided.function;
        let insts = &function.blocks[old].insts;
        let count = if with_terminator { insts.len() } else { insts.len().saturating_sub(1) };
        for inst in &insts[..count] {
            match function.insts[*inst].op.family() {
                OpFamily::Promise => {}
                OpFamily::Identity => self.identity(*inst),
                OpFamily::Loop => self.repeat(*inst, new),
                OpFamily::Branch => self.branch(*inst, new),
                // tidy: wildcard because all other ops are straight code
                _ => self.straight(*inst, new),
            }
        }
    }

    /// Straight code: once for each layout of the result.
    fn straight(&mut self, inst: Inst, block: Block) {
        let function = self.decided.function;
        let data = &function.insts[inst];
        let first = data.results.first();
        let layouts = first.map_or_else(|| smallvec![None], |result| self.layouts_of(*result));
        for layout in layouts {
            let operands = (0..data.operands.len()).map(|place| {
                let wanted = self.demands.of_operand(self.decided, self.costs, (inst, place), layout);
                self.get(data.operands[place], wanted)
            });
            let mut operands: SmallVec<[Value; 4]> = operands.collect();
            if let Some(boxed) = self.decided.boxes.of(inst) {
                operands[0] = tensor_boxes::mark(self, inst, boxed, operands[0], block);
            }
            if let Some(planned) = self.decided.products.of(inst)
                && planned.product == Product::Fma
            {
                for (place, layout) in planned.operands.into_iter().enumerate() {
                    let layout = layout.expect("every operand of single elements has a layout");
                    operands[place] = self.staged(data.operands[place], operands[place], layout);
                }
            }
            let regions = data.regions.iter().map(|region| self.scalar_region(*region)).collect();
            let layouts: SmallVec<[Option<LayoutId>; 1]> = (0..data.results.len())
                .map(|place| if place == 0 { layout } else { self.layouts_of(data.results[place])[0] })
                .collect();
            let mut copy = self.push(inst, block, operands, regions, &layouts);
            if matches!(self.new.insts[copy].op, Op::Gpu(GpuOp::Wgmma { .. })) {
                copy = self.finish(copy, block);
            }
            for (place, result) in data.results.iter().enumerate() {
                self.define(*result, layouts[place], self.new.insts[copy].results[place], block);
            }
        }
    }

    /// Waits for an asynchronous product where it is begun: a later pass puts something between.
    fn finish(&mut self, product: Inst, block: Block) -> Inst {
        let (begun, location) = (self.new.insts[product].results[0], self.new.insts[product].location);
        let ty = self.new.ty(begun).clone();
        let Type::Registers { tile, layout: Some(layout) } = ty.clone() else {
            unreachable!("a product is a tile, found {ty}")
        };
        self.new.values[begun].ty = Type::Pending { tile, layout };
        let op = GpuOp::WgmmaWait { pending: Deferred(Some(0)) }.into();
        let inst = self.new.create_inst(op, smallvec![begun], smallvec![], [ty], location);
        self.new.blocks[block].insts.push(inst);
        inst
    }

    /// A region of scalars, as reductions have.
    fn scalar_region(&mut self, old: Block) -> Block {
        let new = self.new.blocks.push(BlockData::default());
        for parameter in &self.decided.function.blocks[old].parameters {
            self.parameter(new, *parameter, None);
        }
        self.block(old, new, true);
        new
    }

    /// Appends an instruction made of an old one, its results in these layouts.
    fn push(
        &mut self,
        old: Inst,
        block: Block,
        operands: SmallVec<[Value; 4]>,
        regions: SmallVec<[Block; 2]>,
        layouts: &[Option<LayoutId>],
    ) -> Inst {
        let data = &self.decided.function.insts[old];
        let types: SmallVec<[Type; 2]> =
            data.results.iter().zip(layouts).map(|(result, layout)| self.ty(*result, *layout)).collect();
        let op = self.op(old, operands.first().copied(), layouts.first().copied().flatten());
        let copy = self.new.create_inst(op, operands, regions, types, data.location);
        self.new.blocks[block].insts.push(copy);
        copy
    }

    /// The op with what is decided about it, for the new first operand and the layout of the result.
    fn op(&self, old: Inst, first: Option<Value>, result: Option<LayoutId>) -> Op {
        let Decided { function, addresses, certain, products, target, .. } = *self.decided;
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
            // Others write what is read here: were each warp to load for itself, their ways could part, at loops with barriers too.
            ir::Op::Load { cache, volatile, .. }
                if (volatile || cache == CacheModifier::Volatile) && self.is_word_for_all(old, result) =>
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
            ir::Op::Dot { precision, max_imprecise_acc } => {
                match products.of(old).expect("every product is planned").product {
                    Product::MmaSync { mma, warps } => GpuOp::MmaSync {
                        instruction: MmaShape { m: mma.m, n: mma.n, k: mma.k },
                        // Those along a batch are said where there are several.
                        warps: warps[usize::from(warps[0] == 1)..]
                            .iter()
                            .map(|count| i64::from(*count))
                            .collect(),
                        precision,
                        max_imprecise_acc,
                        matrix_a: false,
                        matrix_b: false,
                    },
                    Product::Wgmma { mma, warps } => GpuOp::Wgmma {
                        instruction: MmaShape { m: mma.m, n: mma.n, k: mma.k },
                        warps: warps.iter().map(|count| i64::from(*count)).collect(),
                        max_imprecise_acc,
                        transposed_a: false,
                        transposed_b: false,
                    },
                    Product::Fma => GpuOp::FmaDot { precision, max_imprecise_acc },
                }
            }
            // tidy: wildcard because about other ops nothing is decided
            other => return Op::Tile(other),
        };
        Op::Gpu(op)
    }

    /// The bits of the register in which a thread loads from one address: as far as accesses of several elements trust the
    /// pointers and the mask. What is given elsewhere is a number as all others, and wraps around.
    fn equal_loads(&self, load: Inst, layout: Option<LayoutId>) -> u32 {
        let Decided { function, addresses, certain, .. } = *self.decided;
        let Some(layout) = layout else { return 0 };
        let operands = function.insts[load].operands.iter().enumerate();
        let infos =
            operands.map(|(place, value)| if place == 2 { &certain[*value] } else { &addresses[*value] });
        infos.fold(u32::MAX, |bits, info| bits & equal_registers(self.costs.get(layout), info))
    }

    /// Whether an instruction loads a scalar that one thread can load for all.
    fn is_word_for_all(&self, load: Inst, layout: Option<LayoutId>) -> bool {
        let function = self.decided.function;
        let data = &function.insts[load];
        let dtype = function.ty(data.results[0]).dtype();
        layout.is_none() && data.operands.len() <= 2 && dtype.is_some_and(|dtype| dtype.bits() >= 16)
    }

    /// The value itself.
    fn identity(&mut self, inst: Inst) {
        let data = &self.decided.function.insts[inst];
        let (operand, result) = (data.operands[0], data.results[0]);
        for layout in self.layouts_of(result) {
            let new = self.get(operand, layout);
            self.versions.insert((result, layout), new);
        }
    }

    fn repeat(&mut self, inst: Inst, block: Block) {
        let function = self.decided.function;
        let data = &function.insts[inst];
        // Each carried value once for each layout.
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
            operands.push(self.get(initial.expect("a loop begins with what it carries"), *layout));
        }
        let mut regions: SmallVec<[Block; 2]> = smallvec![];
        let last = data.regions.len() - 1;
        for (number, region) in data.regions.iter().enumerate() {
            let new = self.new.blocks.push(BlockData::default());
            if bounds > 0 {
                self.parameter(new, function.blocks[*region].parameters[0], None);
            }
            for (carried, layout) in &carried {
                self.parameter(new, carried.parameters[number], *layout);
            }
            self.block(*region, new, number != last);
            if number == last {
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
        for (place, (carried, layout)) in carried.iter().enumerate() {
            self.define(carried.result, *layout, self.new.insts[copy].results[place], block);
        }
    }

    fn branch(&mut self, inst: Inst, block: Block) {
        let function = self.decided.function;
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
        for (place, result) in data.results.iter().enumerate() {
            self.define(*result, layouts[place], self.new.insts[copy].results[place], block);
        }
    }

    /// Ends a region with values in the layouts of the instruction's results.
    fn terminate(&mut self, old: Block, new: Block, yielded: Vec<(Value, Option<LayoutId>)>) {
        let operands = yielded.into_iter().map(|(value, layout)| self.get(value, layout)).collect();
        if let Some(inst) = self.decided.function.terminator(old) {
            self.push(inst, new, operands, smallvec![], &[]);
        }
    }
}
