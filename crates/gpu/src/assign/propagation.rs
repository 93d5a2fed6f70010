//! Which layouts each value is wanted in: backwards from what is executed in a layout that is decided.

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, Function, Inst, Op, Value};

use crate::assign::coalescing::Infos;
use crate::assign::cost::LayoutCosts;
use crate::assign::equivalence::Classes;
use crate::assign::mma_selection::Product;
use crate::assign::mma_selection::Products;
use crate::assign::rematerialization::Rematerializable;
use crate::assign::selection::Choice;
use crate::language::LayoutId;
use crate::layout_rules::{Role, default_layout, operand_layout, reduced_layout, role, slots};
use crate::target::Target;

/// The layout that each instruction is executed in and its operands are wanted in.
pub struct Demands {
    /// The layouts that a value is wanted in. A value that is not computed again has one to begin with, its first.
    pub of_value: SecondaryMap<Value, SmallVec<[LayoutId; 2]>>,
    /// The layout that each operand of an instruction is wanted in; of values that are computed again, for a result in the
    /// layout asked for.
    choice: Choice,
}

/// Everything that is decided about layouts before the function is rewritten.
pub struct Decided<'a> {
    pub function: &'a Function,
    pub cheap: &'a Rematerializable,
    pub classes: &'a Classes,
    pub products: &'a Products,
    /// What is known of values that addresses are made of: they do not overflow.
    pub addresses: &'a Infos,
    /// What is known of all values.
    pub certain: &'a Infos,
    pub target: Target,
    pub num_warps: u32,
}

impl Demands {
    /// Follows the demands of everything that is not computed again.
    pub fn new(decided: &Decided<'_>, choice: Choice, layouts: &mut LayoutCosts) -> Self {
        let demands = Self { of_value: SecondaryMap::new(), choice };
        let mut walk = Walk { decided, layouts, demands, slot_of: SecondaryMap::new() };
        walk.natives(decided.function.entry);
        walk.block(decided.function.entry);
        walk.demands
    }

    /// The layout that an instruction is executed in, if it is not computed again and one layout says it all.
    pub fn executed_in(&self, decided: &Decided<'_>, inst: Inst) -> Option<LayoutId> {
        if let Some(own) = self.choice.of_access[inst] {
            return Some(own);
        }
        let class = decided.classes.of_inst(inst).or_else(|| {
            let result = *decided.function.insts[inst].results.first()?;
            decided.classes.of_value(result)
        });
        class.map(|class| self.choice.of_class[class])
    }

    /// The layout that an operand is wanted in, for a result in `result` (of instructions that are computed again) or for an
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
        match role(&data.op) {
            Role::Dot => {
                let product = decided.products.of(inst).expect("every product is planned");
                if place == 2 {
                    Some(product.accumulator)
                } else if product.product != Product::Fma {
                    Some(product.operands[place])
                } else if decided.cheap.has(data.operands[place]) {
                    Some(layouts.add(default_layout(&operand.shape, decided.num_warps)))
                } else {
                    self.of_value[data.operands[place]].first().copied()
                }
            }
            Role::Shape => match result {
                Some(result) => {
                    let wanted = operand_layout(&data.op, operand, layouts.get(result))?;
                    Some(layouts.add(wanted))
                }
                // A tile of one element becomes a scalar.
                None => Some(layouts.add(default_layout(&operand.shape, decided.num_warps))),
            },
            Role::Pointwise | Role::Identity => result,
            Role::Load | Role::Sink | Role::Reduce => self.executed_in(decided, inst),
            Role::Source | Role::Loop | Role::Branch | Role::Scalar | Role::Promise | Role::Call => None,
        }
    }

    fn class_layout(&self, decided: &Decided<'_>, value: Value) -> Option<LayoutId> {
        decided.classes.of_value(value).map(|class| self.choice.of_class[class])
    }
}

struct Walk<'a, 'f> {
    decided: &'a Decided<'f>,
    layouts: &'a mut LayoutCosts,
    demands: Demands,
    /// Of values that a loop carries and that are computed again: the loop and the number.
    slot_of: SecondaryMap<Value, Option<(Inst, u32)>>,
}

impl Walk<'_, '_> {
    /// Notes the layout that each value is made in that is not computed again.
    fn natives(&mut self, block: Block) {
        let (function, decided) = (self.decided.function, self.decided);
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            for region in &data.regions {
                self.natives(*region);
            }
            if role(&data.op) == Role::Loop {
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
                    // tidy: wildcard because all others are executed in the layout of their class
                    _ => self.demands.class_layout(decided, *result),
                };
                self.demands.of_value[*result] = native.into_iter().collect();
            }
        }
    }

    fn carried(&mut self, inst: Inst) {
        for (number, slot) in slots(self.decided.function, inst).into_iter().enumerate() {
            let values: SmallVec<[Value; 3]> = slot.parameters.into_iter().chain([slot.result]).collect();
            for value in values {
                match self.demands.class_layout(self.decided, value) {
                    Some(layout) => self.demands.of_value[value] = smallvec![layout],
                    None => self.slot_of[value] = Some((inst, number as u32)),
                }
            }
        }
    }

    fn block(&mut self, block: Block) {
        let function = self.decided.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match role(&data.op) {
                Role::Loop => self.carries(*inst),
                Role::Branch => self.yields(*inst),
                Role::Pointwise
                | Role::Identity
                | Role::Source
                | Role::Shape
                | Role::Load
                | Role::Sink
                | Role::Dot
                | Role::Reduce
                | Role::Scalar
                | Role::Promise
                | Role::Call => self.straight(*inst),
            }
            for region in &data.regions {
                self.block(*region);
            }
        }
    }

    /// What is computed again is wanted by its users alone; promises are not kept.
    fn straight(&mut self, inst: Inst) {
        let (function, decided) = (self.decided.function, self.decided);
        let data = &function.insts[inst];
        let first = data.results.first();
        let is_computed_again =
            first.is_some_and(|result| decided.cheap.has(*result) && !function.ty(*result).is_scalar());
        if !is_computed_again && role(&data.op) != Role::Promise {
            let result = first.and_then(|result| self.demands.of_value[*result].first().copied());
            self.operands(inst, result);
        }
    }

    fn carries(&mut self, inst: Inst) {
        for slot in slots(self.decided.function, inst) {
            if let Some(layout) = self.demands.class_layout(self.decided, slot.result) {
                self.want(slot.initial, layout);
                self.want(slot.yielded, layout);
            }
        }
    }

    fn yields(&mut self, inst: Inst) {
        let function = self.decided.function;
        let data = &function.insts[inst];
        for (number, result) in data.results.iter().enumerate() {
            let Some(layout) = self.demands.class_layout(self.decided, *result) else { continue };
            for region in &data.regions {
                self.want(function.yielded(*region)[number], layout);
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
        if let Some((inst, number)) = self.slot_of[value] {
            let slot = &slots(function, inst)[number as usize];
            for other in slot.parameters.iter().chain([&slot.initial, &slot.yielded, &slot.result]) {
                self.want(*other, layout);
            }
        } else if let Some(inst) = function.defining_inst(value) {
            self.operands(inst, Some(layout));
        }
    }
}
