//! Layout propagation from uses to definitions: which layouts the uses of each value demand, from the ops whose layout is selected to the
//! values that are rematerialized for them.

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, Carried, Function, Inst, Op, OpFamily, Value};

use crate::assign::boxes::{MapId, TensorBoxes};
use crate::assign::coalescing::Infos;
use crate::assign::cost::LayoutCosts;
use crate::assign::equivalence::Classes;
use crate::assign::mma_selection::{Product, Products};
use crate::assign::rematerialization::Rematerializable;
use crate::assign::selection::Choice;
use tilewright_gpu_ir::LayoutId;
use tilewright_gpu_ir::layout_rules::{default_layout, operand_layout, reduced_layout};
use tilewright_gpu_ir::target::GpuTarget;

/// The layout that each instruction is executed in and its operands are wanted in.
pub struct Demands {
    /// The layouts that a value is wanted in. A value that is not rematerialized has one to begin with, its first.
    pub of_value: SecondaryMap<Value, SmallVec<[LayoutId; 2]>>,
    /// The layout that each operand of an instruction is wanted in; of values that are rematerialized, for a result in the
    /// layout asked for.
    choice: Choice,
}

/// Everything that is decided about layouts before the function is rewritten.
pub struct Decided<'a> {
    pub function: &'a Function,
    pub cheap: &'a Rematerializable,
    pub classes: &'a Classes,
    pub products: &'a Products,
    pub boxes: &'a TensorBoxes,
    /// What is known of values that addresses are made of: they do not overflow.
    pub addresses: &'a Infos,
    /// What is known of all values.
    pub certain: &'a Infos,
    pub target: GpuTarget,
    pub num_warps: u32,
}

impl Demands {
    /// Follows the demands of everything that is not rematerialized.
    pub fn new(decided: &Decided<'_>, choice: Choice, layouts: &mut LayoutCosts) -> Self {
        let demands = Self { of_value: SecondaryMap::new(), choice };
        let mut walk = Walk { decided, layouts, demands, carrier: SecondaryMap::new() };
        walk.natives(decided.function.entry);
        walk.block(decided.function.entry);
        walk.demands
    }

    /// The layout that an instruction is executed in, if it is not rematerialized and one layout says it all.
    pub fn executed_in(&self, decided: &Decided<'_>, inst: Inst) -> Option<LayoutId> {
        if let Some(class) = copied_as_it_lies(decided, inst) {
            return Some(self.choice.of_class[class]);
        }
        if let Some(own) = self.choice.of_access[inst] {
            return Some(own);
        }
        let class = decided.classes.of_inst(inst).or_else(|| {
            let result = *decided.function.insts[inst].results.first()?;
            decided.classes.of_value(result)
        });
        class.map(|class| self.choice.of_class[class])
    }

    /// The layout that an operand is wanted in, for a result in `result` (of instructions that are rematerialized) or for an
    /// instruction that is executed in its own.
    pub fn of_operand(
        &self,
        decided: &Decided<'_>,
        layouts: &mut LayoutCosts,
        (inst, place): (Inst, usize),
        result: Option<LayoutId>,
    ) -> Option<LayoutId> {
        let function = decided.function;
        let data = &function.insts[inst];
        let operand = function.ty(data.operands[place]);
        if operand.is_scalar() {
            return None;
        }
        match data.op.family() {
            OpFamily::Dot => {
                let product = decided.products.of(inst).expect("every product is planned");
                if place == 2 {
                    Some(product.accumulator)
                } else {
                    let in_registers = product.operands[place].filter(|_| product.product != Product::Fma);
                    in_registers.or_else(|| self.any_layout(decided, layouts, data.operands[place]))
                }
            }
            OpFamily::Movement if place == 0 => self.any_layout(decided, layouts, data.operands[place]),
            OpFamily::Shape => match result {
                Some(result) => {
                    let wanted = operand_layout(&data.op, operand, layouts.get(result))?;
                    Some(layouts.add(wanted))
                }
                // A tile of one element becomes a scalar.
                None => Some(layouts.add(default_layout(&operand.shape, decided.num_warps))),
            },
            OpFamily::Pointwise | OpFamily::Identity | OpFamily::Movement | OpFamily::Scan => result,
            OpFamily::Load if decided.cheap.has(data.results[0]) => result,
            OpFamily::Load | OpFamily::Store | OpFamily::Atomic | OpFamily::Check | OpFamily::Reduction => {
                self.executed_in(decided, inst)
            }
            OpFamily::Source
            | OpFamily::Loop
            | OpFamily::Branch
            | OpFamily::Scalar
            | OpFamily::Promise
            | OpFamily::Barrier
            | OpFamily::Memory
            | OpFamily::Partitions
            | OpFamily::Call
            | OpFamily::Terminator => None,
        }
    }

    /// A layout for an operand that goes through shared memory: the one that it has.
    fn any_layout(
        &self,
        decided: &Decided<'_>,
        layouts: &mut LayoutCosts,
        operand: Value,
    ) -> Option<LayoutId> {
        if decided.cheap.has(operand) {
            let shape = &decided.function.ty(operand).shape;
            Some(layouts.add(default_layout(shape, decided.num_warps)))
        } else {
            self.of_value[operand].first().copied()
        }
    }

    fn class_layout(&self, decided: &Decided<'_>, value: Value) -> Option<LayoutId> {
        decided.classes.of_value(value).map(|class| self.choice.of_class[class])
    }
}

/// The class of what is stored by a tensor map that the kernel makes. A copy takes it as it lies in registers; threads store only
/// what the copy cannot, and addresses of elements in another order would keep registers occupied that products need.
fn copied_as_it_lies(decided: &Decided<'_>, inst: Inst) -> Option<usize> {
    let Op::Store { .. } = decided.function.insts[inst].op else { return None };
    let MapId::Device(_) = decided.boxes.of(inst)?.map else { return None };
    decided.classes.of_value(decided.function.insts[inst].operands[1])
}

struct Walk<'a, 'f> {
    decided: &'a Decided<'f>,
    layouts: &'a mut LayoutCosts,
    demands: Demands,
    /// Of values that a loop carries and that are rematerialized: the loop.
    carrier: SecondaryMap<Value, Option<Inst>>,
}

impl Walk<'_, '_> {
    /// Notes the layout that each value is made in that is not rematerialized.
    fn natives(&mut self, block: Block) {
        let (function, decided) = (self.decided.function, self.decided);
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            for region in &data.regions {
                self.natives(*region);
            }
            if data.op.family() == OpFamily::Loop {
                self.carried(*inst);
                continue;
            }
            for result in &data.results {
                if function.ty(*result).is_scalar() || decided.cheap.has(*result) {
                    continue;
                }
                let native = match &data.op {
                    Op::Dot { .. } => decided.products.of(*inst).map(|product| product.accumulator),
                    Op::Reduce { axis } => {
                        let operand = self.demands.executed_in(decided, *inst);
                        operand.map(|operand| {
                            let reduced = reduced_layout(self.layouts.get(operand), *axis);
                            self.layouts.add(reduced)
                        })
                    }
                    Op::Load { .. } => self.demands.executed_in(decided, *inst),
                    op if op.family() == OpFamily::Atomic => self.demands.executed_in(decided, *inst),
                    // tidy: wildcard because all others are executed in the layout of their class
                    _ => self.demands.class_layout(decided, *result),
                };
                self.demands.of_value[*result] = native.into_iter().collect();
            }
        }
    }

    fn carried(&mut self, inst: Inst) {
        for Carried { parameters, result, .. } in self.decided.function.carried(inst) {
            for value in parameters.into_iter().chain([result]) {
                match self.demands.class_layout(self.decided, value) {
                    Some(layout) => self.demands.of_value[value] = smallvec![layout],
                    None => self.carrier[value] = Some(inst),
                }
            }
        }
    }

    fn block(&mut self, block: Block) {
        let function = self.decided.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match data.op.family() {
                OpFamily::Loop | OpFamily::Branch => self.carries(*inst),
                // tidy: wildcard because all other ops are straight code
                _ => self.straight(*inst),
            }
            for region in &data.regions {
                self.block(*region);
            }
        }
    }

    /// What is rematerialized is wanted by its users alone; promises are not kept.
    fn straight(&mut self, inst: Inst) {
        let (function, decided) = (self.decided.function, self.decided);
        let data = &function.insts[inst];
        let first = data.results.first();
        let is_rematerialized =
            first.is_some_and(|result| decided.cheap.has(*result) && !function.ty(*result).is_scalar());
        if !is_rematerialized && data.op.family() != OpFamily::Promise {
            let result = first.and_then(|result| self.demands.of_value[*result].first().copied());
            self.operands(inst, result);
        }
    }

    fn carries(&mut self, inst: Inst) {
        for Carried { initial, yielded, result, .. } in self.decided.function.carried(inst) {
            if let Some(layout) = self.demands.class_layout(self.decided, result) {
                initial.into_iter().chain(yielded).for_each(|value| self.want(value, layout));
            }
        }
    }

    /// Wants the operands of an instruction for a result in this layout.
    fn operands(&mut self, inst: Inst, result: Option<LayoutId>) {
        let function = self.decided.function;
        for place in 0..function.insts[inst].operands.len() {
            if let Some(layout) = self.demands.of_operand(self.decided, self.layouts, (inst, place), result) {
                self.want(function.insts[inst].operands[place], layout);
            }
        }
    }

    fn want(&mut self, value: Value, layout: LayoutId) {
        let function = self.decided.function;
        if function.ty(value).is_scalar() || self.demands.of_value[value].contains(&layout) {
            return;
        }
        self.demands.of_value[value].push(layout);
        if !self.decided.cheap.has(value) {
            return;
        }
        if let Some(inst) = self.carrier[value] {
            let carried = function.carried_by(inst, value).expect("the loop carries it");
            let inside = carried.parameters.into_iter().chain(carried.yielded);
            inside.chain(carried.initial).chain([carried.result]).for_each(|other| self.want(other, layout));
        } else if let Some(inst) = function.defining_inst(value) {
            self.operands(inst, Some(layout));
        }
    }
}
