//! Decides whether each access of a kernel is in bounds for all grids and sizes.
//!
//! [`check`] takes a kernel and a statement: the number of elements of each tensor as an expression
//! of the scalar parameters, and conditions on the parameters and the grid. Each access is in
//! bounds for all sizes, out of bounds for the returned sizes, or undecided for the returned
//! reason. `forms.rs` converts addresses and masks to polynomials and formulas. `solver.rs` then
//! searches for integers with which the program accesses an element outside of the tensor.
//!
//! The check assumes that no signed integer wraps
//! ([`Assumptions::no_signed_overflow`](crate::analysis::Assumptions)), and relies on the kernel's
//! own assumptions.

mod definitions;
mod forms;
mod logic;
mod loops;
mod simplex;
mod solver;
mod statement;
mod variables;

use tilewright_ir::{Block, Function, Inst, Op, OpFamily, Value};

use forms::{Forms, Kind, UntrackedPointer};
use logic::Formula;
use solver::Answer;
pub use statement::{Condition, Expression, Operator, Relation, Statement};
use variables::{Poly, Var};

/// The result for an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The instruction.
    pub inst: Inst,
    /// The index of the parameter from which the pointer is derived, if it is known.
    pub parameter: Option<usize>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of the check of an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The access is in bounds for all grids and sizes that satisfy the statement.
    Proved,
    /// The access is out of bounds for these numbers.
    Refuted(Counterexample),
    /// The check cannot decide.
    Undecided(Reason),
}

/// Numbers for which an access is out of bounds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counterexample {
    /// The index and the value of each integer parameter.
    pub arguments: Vec<(usize, i128)>,
    /// The index of the program along each axis of the grid.
    pub program: [i128; 3],
    /// The extents of the grid.
    pub grid: [i128; 3],
    /// The coordinates of the element in the accessed tile.
    pub lane: Vec<i128>,
    /// The index of the iteration of each enclosing loop, the outermost first.
    pub iterations: Vec<i128>,
    /// The index of the accessed element, counted from the passed pointer.
    pub index: i128,
    /// The number of elements of the tensor.
    pub extent: i128,
}

/// The reason why an access is undecided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The extent of the tensor is not stated.
    NoExtent,
    /// The access depends on a value that the analysis does not follow, such as a loaded value.
    Opaque(Value),
    /// The analysis does not follow the mask, or the condition of an enclosing branch or loop.
    Condition,
    /// The pointer is cast from an integer, or loaded.
    Pointer,
    /// The pointer may point to one of several tensors.
    SeveralTensors,
    /// The access uses another element size than the tensor.
    OtherSize,
    /// A function that is not inlined, or assembly, may access memory.
    Hidden,
    /// The solver found neither a proof nor a counterexample.
    Open,
}

/// Checks each access of a kernel, in program order. A call, and volatile assembly, count as
/// accesses that are undecided ([`Reason::Hidden`]). Fails with a message if the statement does not
/// fit the kernel, for example if it names an unknown parameter.
pub fn check(function: &Function, statement: &Statement) -> Result<Vec<Finding>, String> {
    let mut forms = Forms::new(function);
    let mut known = Vec::new();
    for condition in &statement.conditions {
        known.push(statement::claim(condition, &mut forms, &statement.constants)?);
    }
    for axis in 0..3_u8 {
        let (program, programs) = (forms.program(axis), forms.programs(axis));
        known.push(Formula::at_most(&Poly::default(), &program));
        known.push(Formula::below(&program, &programs));
        if !statement.grid.is_empty() {
            let extent = match statement.grid.get(usize::from(axis)) {
                Some(extent) => extent.poly(&mut forms, &statement.constants)?,
                None => Poly::constant(1),
            };
            known.push(Formula::equal(&programs, &extent));
        }
    }
    let mut extents = vec![None; function.parameters.len()];
    for (name, extent) in &statement.extents {
        let index = function.parameters.iter().position(|parameter| *parameter.name == **name);
        let is_pointer = |index: &usize| {
            function.ty(function.blocks[function.entry].parameters[*index]).element.pointee().is_some()
        };
        let index = index.filter(is_pointer).ok_or_else(|| forms.no_pointer(name))?;
        let extent = extent.poly(&mut forms, &statement.constants)?;
        known.push(Formula::at_most(&Poly::default(), &extent));
        extents[index] = Some(extent);
    }
    let mut walk =
        Walk { function, forms, extents, known, path: Vec::new(), loops: Vec::new(), found: Vec::new() };
    walk.block(function.entry);
    Ok(walk.found)
}

struct Walk<'a> {
    function: &'a Function,
    forms: Forms<'a>,
    extents: Vec<Option<Poly>>,
    /// The conditions of the statement, and the bounds of the program's index, of the grid and of
    /// the extents.
    known: Vec<Formula>,
    /// The conditions under which the program reaches the current instruction.
    path: Vec<Formula>,
    loops: Vec<Inst>,
    found: Vec<Finding>,
}

impl Walk<'_> {
    fn block(&mut self, block: Block) {
        let function = self.function;
        let depth = self.path.len();
        for &inst in &function.blocks[block].insts {
            let data = &function.insts[inst];
            match (data.op.family(), &data.op) {
                (OpFamily::Load | OpFamily::Store | OpFamily::Atomic, _) => {
                    let (parameter, outcome) = self.access(inst);
                    self.found.push(Finding { inst, parameter, outcome });
                }
                (OpFamily::Call, _) | (_, Op::VolatileAsm { .. }) => {
                    let outcome = Outcome::Undecided(Reason::Hidden);
                    self.found.push(Finding { inst, parameter: None, outcome });
                }
                (OpFamily::Promise, _) => {
                    let condition = self.forms.condition(data.operands[0], &[]);
                    self.path.push(condition);
                }
                (OpFamily::Branch, _) => {
                    let condition = self.forms.condition(data.operands[0], &[]);
                    let negated = condition.negated();
                    for (&region, claim) in data.regions.iter().zip([condition, negated]) {
                        self.region(region, claim);
                    }
                }
                (OpFamily::Loop, _) => self.loop_(inst),
                // tidy: wildcard because no other op accesses memory or runs regions that do
                _ => {}
            }
        }
        self.path.truncate(depth);
    }

    fn region(&mut self, region: Block, claim: Formula) {
        self.path.push(claim);
        self.block(region);
        self.path.pop();
    }

    fn loop_(&mut self, inst: Inst) {
        let function = self.function;
        let data = &function.insts[inst];
        let counting = self.forms.counting(inst);
        self.loops.push(inst);
        match data.regions[..] {
            [condition, body] => {
                self.region(condition, counting.clone());
                let holds = function.yielded(condition).first().copied();
                let holds = holds.map_or(Formula::TRUE, |value| self.forms.condition(value, &[]));
                self.region(body, Formula::All(vec![counting, holds]));
            }
            [body] => self.region(body, counting),
            _ => {}
        }
        self.loops.pop();
    }

    fn access(&mut self, inst: Inst) -> (Option<usize>, Outcome) {
        let function = self.function;
        let data = &function.insts[inst];
        let pointer = data.operands[0];
        let info = data.op.info();
        let is_masked = info.optional.first() == Some(&"mask");
        let mask = data.operands.get(info.operands.len()).copied().filter(|_| is_masked);
        let mut claims = Vec::new();
        let mut at = Vec::new();
        for (axis, &extent) in function.ty(pointer).shape.iter().enumerate() {
            let coordinate = Poly::var(self.forms.var_of(Kind::Coordinate(axis)));
            claims.push(Formula::within(&coordinate, 0, i128::from(extent) - 1));
            at.push(if extent == 1 { Poly::default() } else { coordinate });
        }
        let (parameter, place) = match self.forms.pointer(pointer, &at) {
            Ok(found) => found,
            Err(lost) => {
                let reason = match lost {
                    UntrackedPointer::Unknown(_) => Reason::Pointer,
                    UntrackedPointer::Several(_) => Reason::SeveralTensors,
                    UntrackedPointer::OtherSize(_) => Reason::OtherSize,
                };
                return (None, Outcome::Undecided(reason));
            }
        };
        if let Some(mask) = mask {
            claims.push(self.forms.condition(mask, &at));
        }
        claims.extend(self.path.iter().cloned());
        let Some(extent) = self.extents[parameter].clone() else {
            return (Some(parameter), Outcome::Undecided(Reason::NoExtent));
        };
        let rank = at.len();
        (Some(parameter), self.decide(&claims, (&place, &extent), rank))
    }

    /// Searches for numbers with which an element is outside of the tensor.
    fn decide(&mut self, claims: &[Formula], (place, extent): (&Poly, &Poly), rank: usize) -> Outcome {
        let mut outcome = Outcome::Proved;
        for outside in [Formula::below(place, &Poly::default()), Formula::at_most(extent, place)] {
            if outside.truth() == Some(false) {
                continue;
            }
            let mut all = vec![outside.clone()];
            all.extend(claims.iter().cloned());
            let mut vars: Vec<Var> = all.iter().flat_map(Formula::vars).collect();
            vars = self.forms.closure(vars);
            self.add_known(&mut all, &mut vars);
            // The solver splits earlier formulas first, so the definitions are in the order of
            // their use.
            all.extend(vars.iter().map(|&var| self.forms.variable(var).definition.clone()));
            match solver::solve(&all, &|var| self.rank(var)) {
                Answer::Never => {}
                Answer::Found(values) => {
                    if let Some(reason) = self.opaque(&vars, claims) {
                        return Outcome::Undecided(reason);
                    }
                    let value = |var: Var| values.get(&var).copied().unwrap_or(0);
                    return match self.counterexample(&value, (place, extent), rank) {
                        Some(found) => Outcome::Refuted(found),
                        None => Outcome::Undecided(Reason::Open),
                    };
                }
                Answer::Undecided => {
                    outcome = Outcome::Undecided(self.opaque(&vars, claims).unwrap_or(Reason::Open));
                }
            }
        }
        outcome
    }

    /// Adds the formulas of `known` that involve one of the variables, and the variables of these
    /// formulas, until nothing changes.
    fn add_known(&self, all: &mut Vec<Formula>, vars: &mut Vec<Var>) {
        let mut left: Vec<&Formula> = self.known.iter().collect();
        loop {
            // A quotient has its dividend only in its definition, so all dependences count.
            let is_near =
                |claim: &&Formula| self.forms.closure(claim.vars()).iter().any(|var| vars.contains(var));
            let (near, far): (Vec<_>, Vec<_>) = left.into_iter().partition(is_near);
            let is_last = near.is_empty();
            for claim in near {
                all.push(claim.clone());
                *vars = self.forms.closure(vars.iter().copied().chain(claim.vars()));
            }
            left = far;
            if is_last {
                // A condition that is never true makes all accesses in bounds. With it, the solver
                // finds a contradiction.
                all.extend(left.into_iter().filter(|claim| claim.truth() == Some(false)).cloned());
                return;
            }
        }
    }

    /// Returns the rank of a variable. The solver chooses sizes first, then the grid and the
    /// program, then the rest.
    fn rank(&self, var: Var) -> u32 {
        match self.forms.variable(var).kind {
            Kind::Parameter(_) => 0,
            Kind::Programs(_) => 1,
            Kind::Program(_) => 2,
            Kind::Trips(_) | Kind::Iteration(_) => 3,
            Kind::Coordinate(_) => 4,
            Kind::Marker(_) | Kind::Opaque(..) | Kind::Defined => 5,
        }
    }

    /// Returns the opaque variable or unknown condition, if any, that may exclude the numbers.
    fn opaque(&self, vars: &[Var], claims: &[Formula]) -> Option<Reason> {
        let value = vars.iter().find_map(|&var| match &self.forms.variable(var).kind {
            Kind::Opaque(value, _) | Kind::Marker(value) => Some(*value),
            Kind::Parameter(_)
            | Kind::Program(_)
            | Kind::Programs(_)
            | Kind::Coordinate(_)
            | Kind::Iteration(_)
            | Kind::Trips(_)
            | Kind::Defined => None,
        });
        let is_unknown = || claims.iter().any(Formula::has_unknown);
        value.map(Reason::Opaque).or_else(|| is_unknown().then_some(Reason::Condition))
    }

    fn counterexample(
        &mut self,
        value: &impl Fn(Var) -> i128,
        (place, extent): (&Poly, &Poly),
        rank: usize,
    ) -> Option<Counterexample> {
        let some = |var: Var| Some(value(var));
        let mut found = Counterexample {
            index: place.evaluate(&some)?,
            extent: extent.evaluate(&some)?,
            ..Counterexample::default()
        };
        for (index, &parameter) in self.function.blocks[self.function.entry].parameters.iter().enumerate() {
            let ty = self.function.ty(parameter);
            if let Some(dtype) = ty.dtype().filter(|dtype| dtype.is_int()) {
                let number = self.forms.parameter(index).evaluate(&some)?;
                let (low, high) = dtype.int_range()?;
                (low..=high).contains(&number).then_some(())?;
                found.arguments.push((index, number));
            }
        }
        for axis in 0..3_u8 {
            found.program[usize::from(axis)] = self.forms.program(axis).evaluate(&some)?;
            let programs = self.forms.programs(axis).evaluate(&some)?;
            found.grid[usize::from(axis)] = programs.max(found.program[usize::from(axis)] + 1);
        }
        for axis in 0..rank {
            let coordinate = self.forms.var_of(Kind::Coordinate(axis));
            found.lane.push(value(coordinate));
        }
        for &inst in &self.loops.clone() {
            found.iterations.push(self.forms.iteration(inst).evaluate(&some)?);
        }
        Some(found)
    }
}
