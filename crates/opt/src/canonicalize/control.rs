//! Simplifies branches on constants, short loops, and carried values that never change.

use tilewright_ir::{Block, Carried, ElementwiseFn, Inst, Literal, Op, Value};

use super::{Canonicalizer, Operands};

/// The trip count of a loop, if it is known to be 0 or 1.
enum Trips {
    None,
    One,
    Unknown,
}

impl Canonicalizer<'_> {
    pub(super) fn for_loop(&mut self, inst: Inst) {
        let data = &self.function.insts[inst];
        let (operands, results, regions) =
            (data.operands.clone(), data.results.clone(), data.regions.clone());
        let (&[lower, upper, step, ref carried @ ..], &[body]) = (&operands[..], &regions[..]) else {
            return self.out.push(inst);
        };
        match self.trips(lower, upper, step) {
            Trips::None => {
                self.changed = true;
                self.replace_all(&results, carried);
            }
            Trips::One => {
                self.changed = true;
                let parameters = self.function.blocks[body].parameters.clone();
                self.replace_all(&parameters[..1], &[lower]);
                self.replace_all(&parameters[1..], carried);
                let yielded = self.splice(body);
                self.replace_all(&results, &yielded);
            }
            Trips::Unknown => {
                self.replace_invariants(inst);
                self.block(body);
                self.out.push(inst);
            }
        }
    }

    fn trips(&self, lower: Value, upper: Value, step: Value) -> Trips {
        let number = |value| self.constant(value).and_then(Literal::as_int);
        let Some(step) = number(step).filter(|&step| step != 0) else { return Trips::Unknown };
        if lower == upper {
            return Trips::None;
        }
        let (Some(lower), Some(upper)) = (number(lower), number(upper)) else { return Trips::Unknown };
        let distance = if step > 0 { upper - lower } else { lower - upper };
        if distance <= 0 {
            Trips::None
        } else if distance <= step.abs() {
            Trips::One
        } else {
            Trips::Unknown
        }
    }

    pub(super) fn while_loop(&mut self, inst: Inst) {
        let data = &self.function.insts[inst];
        let (carried, results, regions) = (data.operands.clone(), data.results.clone(), data.regions.clone());
        let &[condition, body] = &regions[..] else { return self.out.push(inst) };
        let holds = self.function.yielded(condition).first().map(|&value| self.aliases.resolve(value));
        let parameters = self.function.blocks[condition].parameters.clone();
        if holds.is_some_and(|holds| self.is_constant(holds, |constant| constant.bits == 0)) {
            // The condition region, which may store, runs once. The body is dropped.
            self.changed = true;
            self.replace_all(&parameters, &carried);
            self.splice(condition);
            self.replace_all(&results, &carried);
            return;
        }
        self.replace_invariants(inst);
        self.block(condition);
        self.block(body);
        self.out.push(inst);
    }

    /// Replaces a carried value that never changes by its initial value.
    fn replace_invariants(&mut self, inst: Inst) {
        let all: Vec<Carried> = self.function.carried(inst).collect();
        for carried in all {
            let (Some(before), &[after]) = (carried.initial, &carried.yielded[..]) else { continue };
            let after = self.aliases.resolve(after);
            let is_unchanged = after == before || carried.parameters.last() == Some(&after);
            if !is_unchanged {
                continue;
            }
            for copy in carried.parameters.into_iter().chain([carried.result]) {
                if self.uses.of(copy) > 0 {
                    self.changed = true;
                }
                self.aliases.replace(self.function, copy, before);
            }
        }
    }

    pub(super) fn if_else(&mut self, inst: Inst) {
        let data = &self.function.insts[inst];
        let (results, mut regions) = (data.results.clone(), data.regions.clone());
        let &[mut condition] = &data.operands[..] else { return self.out.push(inst) };
        if regions.len() != 2 {
            return self.out.push(inst);
        }
        if let Some(constant) = self.constant(condition) {
            self.changed = true;
            let taken = if constant.bits != 0 { regions[0] } else { regions[1] };
            let yielded = self.splice(taken);
            self.replace_all(&results, &yielded);
            return;
        }
        if let Some(inner) = self.argument_of(condition, ElementwiseFn::Not) {
            condition = inner;
            regions.swap(0, 1);
            self.function.insts[inst].operands[0] = condition;
            self.function.insts[inst].regions.clone_from(&regions);
            self.changed = true;
        }
        for &region in &regions {
            self.block(region);
        }
        self.hoist_constants(&regions);
        self.out.push(inst);
        self.if_results(inst, condition, &regions);
    }

    /// Moves constants before an `if` that has only constants in its regions.
    fn hoist_constants(&mut self, regions: &[Block]) {
        let is_constant =
            |inst: &Inst| matches!(self.function.insts[*inst].op, Op::Constant { .. } | Op::Yield {});
        if regions.iter().all(|&region| self.function.blocks[region].insts.iter().all(is_constant)) {
            for &region in regions {
                let insts = &mut self.function.blocks[region].insts;
                let constants = insts.len().saturating_sub(1);
                self.changed |= constants > 0;
                self.out.extend(insts.drain(..constants));
            }
        }
    }

    /// Replaces a result for which both regions yield the same value. If the regions are empty,
    /// replaces other scalar results by a `select`.
    fn if_results(&mut self, inst: Inst, condition: Value, regions: &[Block]) {
        let all: Vec<Carried> = self.function.carried(inst).collect();
        let is_empty = regions.iter().all(|&region| self.function.blocks[region].insts.len() == 1);
        for Carried { yielded, result, .. } in all {
            let [x, y] = yielded[..] else { continue };
            if self.uses.of(result) == 0 {
                continue;
            }
            if x == y {
                self.replace(result, x);
            } else if is_empty && self.function.ty(result).is_scalar() {
                let ty = self.function.ty(result).clone();
                let value =
                    self.make(Op::Elementwise { function: ElementwiseFn::Select }, &[condition, x, y], &ty);
                self.replace(result, value);
            }
        }
    }

    /// Moves the instructions of a region before the current one. Returns the yielded values.
    fn splice(&mut self, region: Block) -> Operands {
        let mut insts = std::mem::take(&mut self.function.blocks[region].insts);
        let Some(terminator) = insts.pop() else { return Operands::new() };
        self.insts(&insts);
        self.aliases.resolve_operands(self.function, terminator);
        self.function.insts[terminator].operands.clone()
    }

    fn replace_all(&mut self, old: &[Value], new: &[Value]) {
        for (&old, &new) in old.iter().zip(new) {
            self.aliases.replace(self.function, old, new);
        }
    }
}
