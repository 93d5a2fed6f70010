//! The function again, with each value in the layouts that it is wanted in: values that are computed again once for each
//! layout, all others once, with a `relayout` for each further layout.
//!
//! A `relayout` stands behind all else in the block of its value, as late as its first use allows: so loads are issued before
//! the first of them is waited for, and nothing is converted in a loop that could be converted before it.

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, BlockData, Function, Inst, Op, Value};

use crate::demand::{Decided, Demands};
use crate::layouts::{LayoutId, Layouts};
use crate::plan::Product;
use crate::rules::{Role, Slot, role, slots};

/// The new function with its side tables.
pub struct Rebuilt {
    /// The function.
    pub function: Function,
    /// The layout of each tile.
    pub layouts: SecondaryMap<Value, Option<LayoutId>>,
    /// The instruction of the old function that an instruction was made of.
    pub origins: SecondaryMap<Inst, Option<Inst>>,
}

/// Builds the function again.
pub fn rebuild(decided: &Decided<'_>, demands: &Demands, layouts: &mut Layouts) -> Rebuilt {
    let old = decided.function;
    let mut function = Function::new(old.name.clone());
    function.span = old.span;
    function.parameters.clone_from(&old.parameters);
    function.results.clone_from(&old.results);
    function.locations = old.locations.clone();
    let mut rebuild = Rebuild {
        decided,
        demands,
        layouts,
        new: function,
        versions: FxHashMap::default(),
        homes: SecondaryMap::new(),
        of_value: SecondaryMap::new(),
        origins: SecondaryMap::new(),
        staged: FxHashMap::default(),
    };
    let entry = rebuild.new.entry;
    for parameter in &old.blocks[old.entry].parameters {
        rebuild.parameter(entry, *parameter, None);
    }
    rebuild.block(old.entry, entry, true);
    Rebuilt { function: rebuild.new, layouts: rebuild.of_value, origins: rebuild.origins }
}

struct Rebuild<'a, 'f> {
    decided: &'a Decided<'f>,
    demands: &'a Demands,
    layouts: &'a mut Layouts,
    new: Function,
    /// The new value of an old one in a layout; of scalars without one.
    versions: FxHashMap<(Value, Option<LayoutId>), Value>,
    /// The block that holds a new value.
    homes: SecondaryMap<Value, Option<Block>>,
    of_value: SecondaryMap<Value, Option<LayoutId>>,
    origins: SecondaryMap<Inst, Option<Inst>>,
    /// The operands of scalar products, by the value that they are made of.
    staged: FxHashMap<(Value, LayoutId), Value>,
}

impl Rebuild<'_, '_> {
    fn parameter(&mut self, block: Block, old: Value, layout: Option<LayoutId>) {
        let data = &self.decided.function.values[old];
        let new = self.new.add_parameter(block, data.ty.clone(), data.name.clone());
        self.define(old, layout, new, block);
    }

    fn define(&mut self, old: Value, layout: Option<LayoutId>, new: Value, block: Block) {
        self.versions.insert((old, layout), new);
        self.homes[new] = Some(block);
        self.of_value[new] = layout;
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
        let new = self.relayout(from, home);
        self.define(old, layout, new, home);
        new
    }

    fn relayout(&mut self, from: Value, home: Block) -> Value {
        let ty = self.new.ty(from).clone();
        let location =
            self.new.defining_inst(from).map(|inst| self.new.insts[inst].location).unwrap_or_default();
        let inst = self.new.create_inst(Op::Relayout {}, smallvec![from], smallvec![], [ty], location);
        self.new.blocks[home].insts.push(inst);
        self.new.insts[inst].results[0]
    }

    /// The operand of a scalar product, which goes through shared memory from any layout, its own even.
    fn staged(&mut self, from: Value, layout: LayoutId) -> Value {
        if let Some(new) = self.staged.get(&(from, layout)) {
            return *new;
        }
        let home = self.homes[from].expect("every value is in a block");
        let new = self.relayout(from, home);
        self.homes[new] = Some(home);
        self.of_value[new] = Some(layout);
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
            match role(&function.insts[*inst].op) {
                Role::Promise => {}
                Role::Identity => self.identity(*inst),
                Role::Loop => self.repeat(*inst, new),
                Role::Branch => self.branch(*inst, new),
                Role::Pointwise
                | Role::Source
                | Role::Shape
                | Role::Load
                | Role::Sink
                | Role::Dot
                | Role::Reduce
                | Role::Scalar
                | Role::Call => self.straight(*inst, new),
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
                let wanted = self.demands.of_operand(self.decided, self.layouts, (inst, place), layout);
                self.get(data.operands[place], wanted)
            });
            let mut operands: SmallVec<[Value; 4]> = operands.collect();
            if let Some(planned) = self.decided.products.of(inst)
                && planned.product == Product::Scalar
            {
                for (operand, layout) in operands.iter_mut().zip(planned.operands) {
                    *operand = self.staged(*operand, layout);
                }
            }
            let regions = data.regions.iter().map(|region| self.scalar_region(*region)).collect();
            let copy = self.push(inst, block, operands, regions);
            for (place, result) in data.results.iter().enumerate() {
                let layout = if place == 0 { layout } else { self.layouts_of(*result)[0] };
                self.define(*result, layout, self.new.insts[copy].results[place], block);
            }
        }
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

    fn push(
        &mut self,
        old: Inst,
        block: Block,
        operands: SmallVec<[Value; 4]>,
        regions: SmallVec<[Block; 2]>,
    ) -> Inst {
        let function = self.decided.function;
        let data = &function.insts[old];
        let types = data.results.iter().map(|result| function.ty(*result).clone());
        let copy = self.new.create_inst(data.op.clone(), operands, regions, types, data.location);
        self.new.blocks[block].insts.push(copy);
        self.origins[copy] = Some(old);
        copy
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
        let carried: Vec<(Slot, Option<LayoutId>)> = slots(function, inst)
            .into_iter()
            .flat_map(|slot| {
                let layouts = self.layouts_of(slot.result);
                let copy = move |layout| {
                    let parameters = slot.parameters.clone();
                    (Slot { parameters, ..slot }, layout)
                };
                layouts.into_iter().map(copy).collect::<Vec<_>>()
            })
            .collect();
        let bounds = if matches!(data.op, Op::For { .. }) { 3 } else { 0 };
        let mut operands: SmallVec<[Value; 4]> =
            data.operands[..bounds].iter().map(|bound| self.get(*bound, None)).collect();
        for (slot, layout) in &carried {
            operands.push(self.get(slot.initial, *layout));
        }
        let mut regions: SmallVec<[Block; 2]> = smallvec![];
        let last = data.regions.len() - 1;
        for (number, region) in data.regions.iter().enumerate() {
            let new = self.new.blocks.push(BlockData::default());
            if bounds > 0 {
                self.parameter(new, function.blocks[*region].parameters[0], None);
            }
            for (slot, layout) in &carried {
                self.parameter(new, slot.parameters[number], *layout);
            }
            self.block(*region, new, number != last);
            if number == last {
                let yielded = carried.iter().map(|(slot, layout)| (slot.yielded, *layout)).collect();
                self.terminate(*region, new, yielded);
            }
            regions.push(new);
        }
        let types = carried.iter().map(|(slot, _)| function.ty(slot.result).clone());
        let copy = self.new.create_inst(data.op.clone(), operands, regions, types, data.location);
        self.new.blocks[block].insts.push(copy);
        for (place, (slot, layout)) in carried.iter().enumerate() {
            self.define(slot.result, *layout, self.new.insts[copy].results[place], block);
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
        let copy = self.push(inst, block, smallvec![condition], regions);
        for (place, result) in data.results.iter().enumerate() {
            self.define(*result, layouts[place], self.new.insts[copy].results[place], block);
        }
    }

    /// Ends a region with values in the layouts of the instruction's results.
    fn terminate(&mut self, old: Block, new: Block, yielded: Vec<(Value, Option<LayoutId>)>) {
        let operands = yielded.into_iter().map(|(value, layout)| self.get(value, layout)).collect();
        if let Some(inst) = self.decided.function.terminator(old) {
            self.push(inst, new, operands, smallvec![]);
        }
    }
}
