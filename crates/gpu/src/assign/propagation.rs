//! Collects the layouts that the uses of each value demand. The walk goes back from each op with a
//! selected layout to the values that are rematerialized for it.

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, Carried, Function, Inst, Op, OpFamily, Value};

use crate::assign::boxes::{MapId, TensorBoxes};
use crate::assign::coalescing::Infos;
use crate::assign::cost::LayoutCosts;
use crate::assign::equivalence::Classes;
use crate::assign::mma_selection::{DotInstruction, DotPlans};
use crate::assign::rematerialization::Rematerializable;
use crate::assign::selection::LayoutChoice;
use crate::assign::workers::Workers;
use tilewright_gpu_ir::LayoutId;
use tilewright_gpu_ir::layout_rules::{default_layout, operand_layout, reduced_layout};
use tilewright_gpu_ir::target::GpuTarget;

pub struct Demands {
    /// The layouts that the uses of a value demand. The first layout of a value that is not
    /// rematerialized is that of its definition.
    pub of_value: SecondaryMap<Value, SmallVec<[LayoutId; 2]>>,
    /// The selected layouts of classes and accesses.
    choice: LayoutChoice,
}

pub struct AssignContext<'a> {
    pub function: &'a Function,
    pub rematerializable: &'a Rematerializable,
    pub classes: &'a Classes,
    pub dots: &'a DotPlans,
    pub boxes: &'a TensorBoxes,
    /// The axis information under the assumption that integers in addresses do not overflow.
    pub addresses: &'a Infos,
    /// The axis information without assumptions.
    pub certain: &'a Infos,
    pub target: GpuTarget,
    pub num_warps: u32,
    /// The workers that the program starts.
    pub workers: &'a Workers,
}

impl AssignContext<'_> {
    /// Returns the number of warps that run an instruction.
    pub fn warps_at(&self, inst: Inst) -> u32 {
        match self.workers.warps_at[inst] {
            0 => self.num_warps,
            of_worker => of_worker,
        }
    }
}

impl Demands {
    pub fn new(context: &AssignContext<'_>, choice: LayoutChoice, layouts: &mut LayoutCosts) -> Self {
        let demands = Self { of_value: SecondaryMap::new(), choice };
        let mut walk = DemandWalk { context, layouts, demands, carrier: SecondaryMap::new() };
        walk.record_definitions(context.function.entry);
        walk.block(context.function.entry);
        walk.demands
    }

    /// Returns the layout in which an instruction is executed. Returns `None` if no layout was
    /// selected, as for a rematerialized instruction.
    pub fn executed_in(&self, context: &AssignContext<'_>, inst: Inst) -> Option<LayoutId> {
        if let Some(class) = class_of_tensor_store(context, inst) {
            return Some(self.choice.of_class[class]);
        }
        if let Some(own) = self.choice.of_access[inst] {
            return Some(own);
        }
        let class = context.classes.of_inst(inst).or_else(|| {
            let result = *context.function.insts[inst].results.first()?;
            context.classes.of_value(result)
        });
        class.map(|class| self.choice.of_class[class])
    }

    /// Returns the layout in which an instruction demands its operand.
    ///
    /// `result` is the layout of the result, for instructions whose operands have the same layout.
    pub fn of_operand(
        &self,
        context: &AssignContext<'_>,
        layouts: &mut LayoutCosts,
        (inst, index): (Inst, usize),
        result: Option<LayoutId>,
    ) -> Option<LayoutId> {
        let function = context.function;
        let data = &function.insts[inst];
        let operand = function.ty(data.operands[index]);
        if operand.is_scalar() {
            return None;
        }
        match data.op.family() {
            OpFamily::Dot => {
                let plan = context.dots.of(inst).expect("every dot has a plan");
                let is_any = index < 2 && plan.instruction == DotInstruction::Fma;
                let in_registers = plan.operand(index).filter(|_| !is_any);
                in_registers.or_else(|| self.any_layout(context, layouts, (inst, index)))
            }
            OpFamily::Movement if index == 0 => self.any_layout(context, layouts, (inst, index)),
            OpFamily::Shape => match result {
                Some(result) => {
                    let demanded = operand_layout(&data.op, operand, layouts.get(result))?;
                    Some(layouts.add(demanded))
                }
                // A tile of one element becomes a scalar.
                None => Some(layouts.add(default_layout(&operand.shape, context.warps_at(inst)))),
            },
            OpFamily::Pointwise | OpFamily::Identity | OpFamily::Movement | OpFamily::Scan => result,
            OpFamily::Load if context.rematerializable.contains(data.results[0]) => result,
            OpFamily::Load | OpFamily::Store | OpFamily::Atomic | OpFamily::Check | OpFamily::Reduction => {
                self.executed_in(context, inst)
            }
            OpFamily::Memory => self.any_layout(context, layouts, (inst, index)),
            OpFamily::Source
            | OpFamily::Loop
            | OpFamily::Branch
            | OpFamily::Scalar
            | OpFamily::Promise
            | OpFamily::Barrier
            | OpFamily::Partitions
            | OpFamily::Call
            | OpFamily::Terminator => None,
        }
    }

    /// Returns the layout in which an operand is stored: its definition's or the default.
    fn any_layout(
        &self,
        context: &AssignContext<'_>,
        layouts: &mut LayoutCosts,
        (inst, index): (Inst, usize),
    ) -> Option<LayoutId> {
        let operand = context.function.insts[inst].operands[index];
        if context.rematerializable.contains(operand) {
            let shape = &context.function.ty(operand).shape;
            Some(layouts.add(default_layout(shape, context.warps_at(inst))))
        } else {
            self.of_value[operand].first().copied()
        }
    }

    fn class_layout(&self, context: &AssignContext<'_>, value: Value) -> Option<LayoutId> {
        context.classes.of_value(value).map(|class| self.choice.of_class[class])
    }
}

/// Returns the class of the stored value, if the kernel makes the store's tensor map.
///
/// Threads store only tiles that the copy cannot store. A separate layout for them would keep
/// addresses live in registers that dots need.
fn class_of_tensor_store(context: &AssignContext<'_>, inst: Inst) -> Option<usize> {
    let Op::Store { .. } = context.function.insts[inst].op else { return None };
    let MapId::Device(_) = context.boxes.of(inst)?.map else { return None };
    context.classes.of_value(context.function.insts[inst].operands[1])
}

struct DemandWalk<'a, 'f> {
    context: &'a AssignContext<'f>,
    layouts: &'a mut LayoutCosts,
    demands: Demands,
    /// The loop that carries a rematerialized value.
    carrier: SecondaryMap<Value, Option<Inst>>,
}

impl DemandWalk<'_, '_> {
    fn record_definitions(&mut self, block: Block) {
        let (function, context) = (self.context.function, self.context);
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            for region in &data.regions {
                self.record_definitions(*region);
            }
            if data.op.family() == OpFamily::Loop {
                self.carried(*inst);
                continue;
            }
            for result in &data.results {
                if function.ty(*result).is_scalar() || context.rematerializable.contains(*result) {
                    continue;
                }
                let layout = match &data.op {
                    op if op.family() == OpFamily::Dot => context.dots.of(*inst).map(|plan| plan.accumulator),
                    Op::Reduce { axis } => {
                        let operand = self.demands.executed_in(context, *inst);
                        operand.map(|operand| {
                            let reduced = reduced_layout(self.layouts.get(operand), *axis);
                            self.layouts.add(reduced)
                        })
                    }
                    Op::Load { .. } => self.demands.executed_in(context, *inst),
                    op if op.family() == OpFamily::Atomic => self.demands.executed_in(context, *inst),
                    // tidy: wildcard because other ops are executed in the layout of their class
                    _ => self.demands.class_layout(context, *result),
                };
                self.demands.of_value[*result] = layout.into_iter().collect();
            }
        }
    }

    fn carried(&mut self, inst: Inst) {
        for Carried { parameters, result, .. } in self.context.function.carried(inst) {
            for value in parameters.into_iter().chain([result]) {
                match self.demands.class_layout(self.context, value) {
                    Some(layout) => self.demands.of_value[value] = smallvec![layout],
                    None => self.carrier[value] = Some(inst),
                }
            }
        }
    }

    fn block(&mut self, block: Block) {
        let function = self.context.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match data.op.family() {
                OpFamily::Loop | OpFamily::Branch => self.demand_carried(*inst),
                // tidy: wildcard because all other ops are straight code
                _ => self.straight(*inst),
            }
            for region in &data.regions {
                self.block(*region);
            }
        }
    }

    /// Demands the operands of an instruction that is neither rematerialized nor removed.
    fn straight(&mut self, inst: Inst) {
        let (function, context) = (self.context.function, self.context);
        let data = &function.insts[inst];
        let first = data.results.first();
        let is_rematerialized = first.is_some_and(|result| {
            context.rematerializable.contains(*result) && !function.ty(*result).is_scalar()
        });
        if !is_rematerialized && data.op.family() != OpFamily::Promise {
            let result = first.and_then(|result| self.demands.of_value[*result].first().copied());
            self.demand_operands(inst, result);
        }
    }

    fn demand_carried(&mut self, inst: Inst) {
        for Carried { initial, yielded, result, .. } in self.context.function.carried(inst) {
            if let Some(layout) = self.demands.class_layout(self.context, result) {
                initial.into_iter().chain(yielded).for_each(|value| self.demand(value, layout));
            }
        }
    }

    /// Demands the operands of an instruction whose result has the layout `result`.
    fn demand_operands(&mut self, inst: Inst, result: Option<LayoutId>) {
        let function = self.context.function;
        for index in 0..function.insts[inst].operands.len() {
            if let Some(layout) = self.demands.of_operand(self.context, self.layouts, (inst, index), result) {
                self.demand(function.insts[inst].operands[index], layout);
            }
        }
    }

    /// Demands a value in a layout, and the operands of a rematerialized value.
    fn demand(&mut self, value: Value, layout: LayoutId) {
        let function = self.context.function;
        if function.ty(value).is_scalar() || self.demands.of_value[value].contains(&layout) {
            return;
        }
        self.demands.of_value[value].push(layout);
        if !self.context.rematerializable.contains(value) {
            return;
        }
        if let Some(inst) = self.carrier[value] {
            let carried = function.carried_by(inst, value).expect("the loop carries the value");
            let inside = carried.parameters.into_iter().chain(carried.yielded);
            inside
                .chain(carried.initial)
                .chain([carried.result])
                .for_each(|other| self.demand(other, layout));
        } else if let Some(inst) = function.defining_inst(value) {
            self.demand_operands(inst, Some(layout));
        }
    }
}
