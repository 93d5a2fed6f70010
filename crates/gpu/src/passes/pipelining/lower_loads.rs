//! Lowers the loads of a loop to copies to slots of [rings](crate::passes::rings). Each copy is in
//! the iteration that takes its slot.
//!
//! ```text
//! for %i … {                              %r = alloc : ring<3, …>
//!   %x = load %p(%i), %m(%i)              for %i … {
//!   %b = alloc                              %e = acquire %r
//!   local_store %b, %x                      copy_async %e, %p(%i), %m(%i) ; publish %e
//!   wgmma … %b …                    =>      %b = take %r
//!   dealloc %b                              wgmma … %b …
//! }                                         release %b
//!                                         } ; dealloc %r
//! ```
//! The pointers and masks of the copies are computed separately, so copies can run in an earlier
//! stage.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{Definition, Effect, ElementwiseFn, Inst, Operation, Value};

use super::super::boxed::map_for;
use super::dots;
use super::loop_plan::{Destination, Group, RingLoad};
use super::loop_rewriter::LoopRewriter;
use tilewright_gpu_ir::{Function, GpuOp, Op, Type};

/// An op that fills slots, or that computes an operand of a copy to slots.
pub(super) struct FillOp {
    pub inst: Inst,
    /// The number of stages from the takes of the slot to the last stage.
    pub lead: u32,
    /// Level 0 has the copies and the ops of their operands. Level 1 has the loads among these,
    /// with the ops of their operands, and so on.
    pub level: u32,
}

impl LoopRewriter<'_> {
    /// Lowers the loads. Returns the ops that fill slots or compute their operands, in text order.
    pub(super) fn lower_loads(&mut self) -> Vec<FillOp> {
        let plan = self.plan;
        if !plan.follows {
            self.make_rings();
        }
        let before = std::mem::take(&mut self.out);
        let mut fills = Vec::new();
        for group in &plan.groups {
            self.fill_group(group, &mut fills);
        }
        let takes = self.take_slots();
        self.remove_fences();
        if plan.late.is_some() || plan.in_flight.is_some() {
            dots::join_accumulators(self.function, self.body);
            dots::release_after_waits(self.function, self.body);
        }
        let ahead = fills.iter().map(|fill| fill.inst).chain(takes);
        self.function.blocks[self.body].insts.splice(0..0, ahead);
        let live = self.remove_dead();
        fills.retain(|fill| live.contains(&fill.inst));
        if let Op::Tile(ir::Op::For { options }) = &mut self.function.insts[plan.inst].op {
            options.num_stages = 1;
        }
        self.location = self.function.insts[plan.inst].location;
        // A sibling successor uses and deallocates the same rings.
        if !plan.has_sibling() {
            for ring in self.rings.clone() {
                self.emit(GpuOp::Dealloc {}, &[ring], None);
            }
        }
        let after = std::mem::take(&mut self.out);
        let (inst, block) = plan.scope_of_rings();
        self.insert_around(block, inst, before, after);
        fills
    }

    /// Emits the copies of a group of loads, after the loads that they depend on.
    fn fill_group(&mut self, group: &Group, fills: &mut Vec<FillOp>) {
        let parameters = self.function.blocks[self.body].parameters.clone();
        let mut loaded: FxHashMap<Value, Value> = FxHashMap::default();
        for (level_index, level) in group.levels.iter().enumerate().rev() {
            let mut copies = std::mem::take(&mut loaded);
            let mut carried = Vec::new();
            for &index in &level.parameters {
                let own = parameters[index as usize];
                let ty = self.function.ty(own).clone();
                let name = self.function.values[own].name.clone();
                let parameter = self.function.add_parameter(self.body, ty.clone(), name);
                let initial = self.function.insts[self.plan.inst].operands[index as usize + 2];
                self.function.insts[self.plan.inst].operands.push(initial);
                self.add_result(self.plan.inst, ty);
                copies.insert(own, parameter);
                carried.push(index);
            }
            for inst in &level.insts {
                self.copy(*inst, &mut copies);
            }
            if level_index == 0 {
                self.fill_slots(group, &copies);
            } else {
                for load in &level.loads {
                    self.copy(*load, &mut copies);
                    let result = self.function.insts[*load].results[0];
                    loaded.insert(result, copies[&result]);
                }
            }
            let end = self.function.terminator(self.body).expect("a body yields");
            for index in carried {
                let next = self.function.insts[end].operands[index as usize - 1];
                let next = copies.get(&next).copied().unwrap_or(next);
                self.function.insts[end].operands.push(next);
            }
            let (lead, level) = (group.lead, level_index as u32);
            fills.extend(std::mem::take(&mut self.out).into_iter().map(|inst| FillOp { inst, lead, level }));
        }
    }

    /// Fills the next slot of each ring of a group.
    fn fill_slots(&mut self, group: &Group, copies: &FxHashMap<Value, Value>) {
        for &load in &group.loads {
            let slot = self.acquire(load);
            self.fill(load, slot, copies);
            self.emit(GpuOp::Publish {}, &[slot], None);
        }
    }

    /// Fills a slot by a tensor copy or by `copy_async`.
    fn fill(&mut self, load_index: usize, slot: Value, copies: &FxHashMap<Value, Value>) {
        let load = &self.plan.loads[load_index];
        let data = self.function.insts[load.inst].clone();
        let Op::Gpu(GpuOp::Load { cache, .. }) = data.op else { unreachable!("rings replace loads") };
        let copy = |value: &Value| copies.get(value).copied().unwrap_or(*value);
        let mut pointer = copy(&data.operands[0]);
        if let Some(boxed) = &load.boxed
            && let Some(mark) = self.function.defining_inst(pointer)
            && let Some(map) = map_for(self.header, self.function, boxed)
        {
            let coordinates = boxed.coordinates(self.function, mark);
            let operands: Vec<Value> = [slot, map].into_iter().chain(coordinates).collect();
            self.emit(GpuOp::TensorFill {}, &operands, None);
            return;
        }
        let mut mask = data.operands.get(1).map(copy);
        if let Destination::Buffer { shapes, .. } = &load.destination {
            for shape in shapes {
                pointer = self.reshaped(pointer, *shape);
                mask = mask.map(|mask| self.reshaped(mask, *shape));
            }
        }
        let op = GpuOp::CopyAsync { cache, axis: load.axis, width: load.width };
        let operands: Vec<Value> = [slot, pointer].into_iter().chain(mask).collect();
        self.emit(op, &operands, None);
    }

    /// Applies a shape op to another tile.
    fn reshaped(&mut self, value: Value, shape_op: Inst) -> Value {
        let data = self.function.insts[shape_op].clone();
        let result = self.function.ty(data.results[0]).clone();
        let shape = result.as_registers().expect("shape ops are on registers").shape.clone();
        let tile = self
            .function
            .ty(value)
            .as_registers()
            .expect("pointers and masks are in registers")
            .with_shape(shape);
        self.value(data.op, &[value], Type::registers(tile, result.layout()))
    }

    /// Takes slots at the start of an iteration, in place of the buffers and loads.
    fn take_slots(&mut self) -> Vec<Inst> {
        let plan = self.plan;
        let mut gone: FxHashSet<Inst> = FxHashSet::default();
        let mut after: FxHashMap<Inst, Vec<Inst>> = FxHashMap::default();
        let mut before: BTreeMap<Inst, Inst> = BTreeMap::new();
        for (index, load) in plan.loads.iter().enumerate() {
            self.location = self.function.insts[load.inst].location;
            let ty = Type::Full(self.slot_type(load, 1));
            let ring = self.rings[index];
            match &load.destination {
                Destination::Buffer { shapes, alloc, store } => {
                    let data = &mut self.function.insts[*alloc];
                    data.op = GpuOp::Take {}.into();
                    data.operands = smallvec![ring];
                    let slot = data.results[0];
                    self.function.values[slot].ty = ty;
                    self.out.push(*alloc);
                    gone.extend(shapes.iter().chain([&load.inst, alloc, store]));
                }
                Destination::Registers => {
                    let slot = self.value(GpuOp::Take {}, &[ring], ty);
                    let takes = std::mem::take(&mut self.out);
                    let read = self.read(load, slot);
                    self.emit(GpuOp::Release {}, &[slot], None);
                    let mut others = std::mem::replace(&mut self.out, takes);
                    if let Some(read) = read {
                        before.insert(load.inst, read);
                        others.retain(|inst| *inst != read);
                    }
                    after.insert(load.inst, others);
                }
            }
        }
        self.release_slots();
        let takes = std::mem::take(&mut self.out);
        let mut rest = Vec::new();
        for inst in std::mem::take(&mut self.function.blocks[self.body].insts) {
            rest.extend(before.get(&inst));
            rest.extend((!gone.contains(&inst)).then_some(inst));
            rest.extend(after.get(&inst).into_iter().flatten());
        }
        self.function.blocks[self.body].insts = rest;
        takes
    }

    /// Reads a slot in place of a load. A load with `other` becomes a selection, and the read is
    /// returned.
    fn read(&mut self, load: &RingLoad, slot: Value) -> Option<Inst> {
        let data = self.function.insts[load.inst].clone();
        let op = GpuOp::LocalLoad { matrix: false };
        let &[_, mask, other] = &data.operands[..] else {
            let data = &mut self.function.insts[load.inst];
            (data.op, data.operands) = (op.into(), smallvec![slot]);
            return None;
        };
        let ty = self.function.ty(data.results[0]).clone();
        let read = self.emit(op, &[slot], Some(ty));
        let value = self.function.insts[read].results[0];
        let data = &mut self.function.insts[load.inst];
        data.op = GpuOp::Elementwise { function: ElementwiseFn::Select, equal_registers: 0 }.into();
        data.operands = smallvec![mask, value, other];
        Some(read)
    }

    /// Releases slots in place of the `dealloc`s of the buffers that they replace.
    fn release_slots(&mut self) {
        for inst in self.function.blocks[self.body].insts.clone() {
            let data = &self.function.insts[inst];
            let is_slot = |value: &Value| matches!(self.function.ty(*value), Type::Full(_));
            if matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && is_slot(&data.operands[0]) {
                self.function.insts[inst].op = GpuOp::Release {}.into();
            }
        }
    }

    /// Removes fences of removed stores. Rings have their own fences.
    fn remove_fences(&mut self) {
        let mut has_store = false;
        let mut insts = std::mem::take(&mut self.function.blocks[self.body].insts);
        insts.retain(|inst| {
            let data = &self.function.insts[*inst];
            if matches!(data.op, Op::Gpu(GpuOp::FenceProxy {})) {
                return std::mem::take(&mut has_store);
            }
            let mut note = |inst: Inst| {
                has_store |= matches!(self.function.insts[inst].op, Op::Gpu(GpuOp::LocalStore {}));
            };
            note(*inst);
            data.regions.iter().for_each(|region| self.function.walk(*region, &mut note));
            true
        });
        self.function.blocks[self.body].insts = insts;
    }

    /// Removes unused ops of the body, such as pointers of loads. Returns the others.
    fn remove_dead(&mut self) -> FxHashSet<Inst> {
        let (inst, body) = (self.plan.inst, self.body);
        let function = &mut *self.function;
        let mut used: FxHashSet<Value> = FxHashSet::default();
        function.walk(function.entry, &mut |other| {
            if function.blocks[body].insts.contains(&other) {
                return;
            }
            used.extend(function.insts[other].operands.iter().copied());
        });
        let insts = &function.blocks[body].insts;
        let yielded = function.yielded(body).to_vec();
        let parameters = function.blocks[body].parameters[1..].to_vec();
        let results = function.insts[inst].results.clone();
        let mut live: FxHashSet<Inst> = FxHashSet::default();
        let mut count = usize::MAX;
        while count != used.len() + live.len() {
            count = used.len() + live.len();
            for (index, value) in yielded.iter().enumerate() {
                if used.contains(&parameters[index]) || used.contains(&results[index]) {
                    used.insert(*value);
                }
            }
            for inst in insts.iter().rev() {
                let data = &function.insts[*inst];
                let effect = data.op.info().effect;
                let is_live = match &data.op {
                    Op::Gpu(GpuOp::LocalStore {} | GpuOp::Dealloc {})
                        if is_buffer(function, data.operands[0]) =>
                    {
                        used.contains(&data.operands[0])
                    }
                    Op::Gpu(
                        GpuOp::Alloc { .. } | GpuOp::LocalLoad { .. } | GpuOp::Load { volatile: false, .. },
                    ) => data.results.iter().any(|value| used.contains(value)),
                    // tidy: wildcard because the effects of other ops decide
                    _ => {
                        let is_plain = effect == Effect::Pure && data.regions.is_empty();
                        !is_plain || data.results.iter().any(|value| used.contains(value))
                    }
                };
                if is_live && effect != Effect::Terminator && live.insert(*inst) {
                    used.extend(&data.operands);
                }
            }
        }
        let end = function.terminator(body).expect("a body yields");
        for (index, value) in yielded.iter().enumerate() {
            let is_gone = match function.values[*value].definition {
                Definition::Result(maker, _) => insts.contains(&maker) && !live.contains(&maker),
                Definition::Parameter(..) => false,
            };
            if is_gone {
                function.insts[end].operands[index] = parameters[index];
            }
        }
        function.blocks[body].insts.retain(|inst| *inst == end || live.contains(inst));
        live
    }
}

/// Returns whether a value is a buffer, not a slot of a ring.
fn is_buffer(function: &Function, value: Value) -> bool {
    matches!(function.ty(value), Type::Buffer(buffer) if buffer.slots == 1)
}
