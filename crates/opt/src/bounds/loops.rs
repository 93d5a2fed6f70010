//! Finds trip counts, and progressions of loop-carried values.

use tilewright_ir::{Block, Carried, Definition, Inst, Op, OpFamily, Value};

use super::forms::{Forms, Kind, UntrackedPointer};
use super::logic::Formula;
use super::variables::{Poly, Var};

impl Forms<'_> {
    /// Returns the polynomial of a loop index or of a carried value.
    pub(super) fn region_parameter(&mut self, value: Value, block: Block, at: &[Poly]) -> Option<Poly> {
        let function = self.function;
        let inst = self.parents.owner(block)?;
        let data = &function.insts[inst];
        let is_index =
            matches!(data.op, Op::For { .. }) && function.blocks[block].parameters.first() == Some(&value);
        if is_index {
            let (lower, step) = (self.int(data.operands[0], &[]), self.int(data.operands[2], &[]));
            let iteration = self.iteration(inst);
            return lower.plus_times(&step.times(&iteration)?, 1);
        }
        if data.op.family() != OpFamily::Loop {
            return None;
        }
        let carried = function.carried_by(inst, value)?;
        let first = *carried.parameters.first()?;
        let marked = self.carrying.iter().find(|(own, own_at, ..)| *own == first && own_at == at);
        if let Some((_, _, marker, _)) = marked {
            return Some(marker.clone());
        }
        match self.progression(inst, &carried, at) {
            Some((initial, step)) => {
                let iteration = self.iteration(inst);
                initial.plus_times(&step.times(&iteration)?, 1)
            }
            // The parameters of one carried value are equal, so the opaque variable uses the first.
            None => Some(self.opaque(first, at)),
        }
    }

    /// Returns the initial value and the increment of a carried integer with a constant increment.
    pub(super) fn progression(&mut self, inst: Inst, carried: &Carried, at: &[Poly]) -> Option<(Poly, Poly)> {
        let (first, yielded) = (*carried.parameters.first()?, *carried.yielded.first()?);
        if self.carrying.iter().any(|(own, ..)| *own == first) {
            return None;
        }
        let initial = self.int(carried.initial?, at);
        let step = self.with_marker(inst, first, at, None, |forms| Some((None, forms.int(yielded, at))))?.1;
        Some((initial, step))
    }

    /// Returns the tensor, the initial offset and the increment of a carried pointer.
    pub(super) fn moving(
        &mut self,
        inst: Inst,
        carried: &Carried,
        at: &[Poly],
    ) -> Result<(usize, Poly, Poly), UntrackedPointer> {
        let lost = UntrackedPointer::Unknown(carried.result);
        let (&[first, ..], &[yielded, ..]) = (&carried.parameters[..], &carried.yielded[..]) else {
            return Err(lost);
        };
        if self.carrying.iter().any(|(own, ..)| *own == first) {
            return Err(lost);
        }
        let (base, initial) = self.pointer(carried.initial.ok_or(lost)?, at)?;
        let next = self.with_marker(inst, first, at, Some(base), |forms| {
            forms.pointer(yielded, at).ok().map(|(base, place)| (Some(base), place))
        });
        match next {
            Some((Some(next), step)) if next == base => Ok((base, initial, step)),
            _ => Err(lost),
        }
    }

    /// Returns the increment of a carried value, if it is the same in all iterations. `find`
    /// computes the next value from a marker, a new variable.
    fn with_marker(
        &mut self,
        inst: Inst,
        first: Value,
        at: &[Poly],
        base: Option<usize>,
        find: impl FnOnce(&mut Self) -> Option<(Option<usize>, Poly)>,
    ) -> Option<(Option<usize>, Poly)> {
        let var = self.push(Kind::Marker(first), Formula::TRUE, Vec::new());
        // Results with the marker are valid only inside of `find`.
        let known = self.known.clone();
        self.carrying.push((first, at.to_vec(), Poly::var(var), base));
        let found = find(self);
        self.carrying.pop();
        self.known = known;
        let (base, next) = found?;
        let step = next.plus_times(&Poly::var(var), -1)?;
        let is_same = step.vars().all(|var| !self.varies(var, inst));
        is_same.then_some((base, step))
    }

    /// Returns whether a variable may differ between iterations of a loop.
    fn varies(&self, var: Var, inst: Inst) -> bool {
        let mut seen = vec![var];
        let mut next = 0;
        while let Some(&var) = seen.get(next) {
            next += 1;
            let variable = self.variable(var);
            let is_inside = match &variable.kind {
                Kind::Parameter(_)
                | Kind::Program(_)
                | Kind::Programs(_)
                | Kind::Coordinate(_)
                | Kind::Defined => false,
                Kind::Iteration(own) => self.parents.is_inside(*own, inst),
                // The bounds of a `for` loop determine its trip count.
                Kind::Trips(own) => {
                    matches!(self.function.insts[*own].op, Op::While { .. }) && self.is_within(*own, inst)
                }
                Kind::Marker(value) | Kind::Opaque(value, _) => match self.function.values[*value].definition
                {
                    Definition::Result(own, _) => self.is_within(own, inst),
                    Definition::Parameter(block, _) => {
                        self.parents.owner(block).is_some_and(|own| self.parents.is_inside(own, inst))
                    }
                },
            };
            if is_inside {
                return true;
            }
            let at = match &variable.kind {
                Kind::Opaque(_, at) => at.iter().flat_map(Poly::vars).collect(),
                _ => Vec::new(),
            };
            for &input in variable.inputs.iter().chain(&at) {
                if !seen.contains(&input) {
                    seen.push(input);
                }
            }
        }
        false
    }

    /// Returns whether an instruction is in a region of another instruction.
    fn is_within(&self, inst: Inst, outer: Inst) -> bool {
        self.parents.enclosing(inst).any(|owner| owner == outer)
    }

    /// Returns the trip count of a loop.
    pub(super) fn trips(&mut self, inst: Inst) -> Poly {
        let known = self.vars_by_kind.contains_key(&Kind::Trips(inst));
        let var = self.var_of(Kind::Trips(inst));
        let trips = Poly::var(var);
        if known {
            return trips;
        }
        let data = &self.function.insts[inst];
        let mut definition = Formula::at_most(&Poly::default(), &trips);
        let mut inputs = Vec::new();
        if let (Op::For { .. }, &[lower, upper, step, ..]) = (&data.op, &data.operands[..]) {
            let [lower, upper, step] = [lower, upper, step].map(|value| self.int(value, &[]));
            inputs = lower.vars().chain(upper.vars()).chain(step.vars()).collect();
            let none = Formula::All(vec![
                Formula::Zero(trips.clone()),
                // The sign of a variable step is unknown, so the bounds are not restricted.
                match step.as_constant() {
                    Some(step) if step > 0 => Formula::at_most(&upper, &lower),
                    Some(_) => Formula::at_most(&lower, &upper),
                    None => Formula::TRUE,
                },
            ]);
            let last = trips.offset(-1).and_then(|last| lower.plus_times(&last.times(&step)?, 1));
            let end = trips.times(&step).and_then(|end| lower.plus_times(&end, 1));
            let some = match (last, end) {
                (Some(last), Some(end)) => Formula::All(vec![
                    Formula::below(&Poly::default(), &trips),
                    counted(&last, &upper, &step),
                    counted(&end, &upper, &step).negated(),
                ]),
                _ => Formula::below(&Poly::default(), &trips),
            };
            definition = Formula::All(vec![definition, Formula::Any(vec![none, some])]);
        }
        let variable = &mut self.variables[var.0 as usize];
        (variable.definition, variable.inputs) = (definition, inputs);
        trips
    }

    /// Returns a formula that holds in the regions of a loop: the iteration is not negative and, in
    /// a `for` loop, the index has not reached the upper bound.
    pub fn counting(&mut self, inst: Inst) -> Formula {
        let data = &self.function.insts[inst];
        let iteration = self.iteration(inst);
        let started = Formula::at_most(&Poly::default(), &iteration);
        let (Op::For { .. }, &[lower, upper, step, ..]) = (&data.op, &data.operands[..]) else {
            return started;
        };
        let [lower, upper, step] = [lower, upper, step].map(|value| self.int(value, &[]));
        let index = step.times(&iteration).and_then(|moved| lower.plus_times(&moved, 1));
        let within = index.map_or(Formula::Unknown, |index| counted(&index, &upper, &step));
        Formula::All(vec![started, within])
    }
}

/// Returns the formula that an index is below the upper bound or, for a negative step, above it.
fn counted(index: &Poly, upper: &Poly, step: &Poly) -> Formula {
    match step.as_constant() {
        Some(step) if step > 0 => Formula::below(index, upper),
        Some(_) => Formula::below(upper, index),
        None => {
            let zero = Poly::default();
            Formula::Any(vec![
                Formula::All(vec![Formula::below(&zero, step), Formula::below(index, upper)]),
                Formula::All(vec![Formula::below(step, &zero), Formula::below(upper, index)]),
            ])
        }
    }
}
