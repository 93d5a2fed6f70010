//! Describes the element of a tile at given coordinates by a form: a polynomial or a formula.
//!
//! For example, the offsets `pid * 64 + arange(0, 64)` have the form `64 * program + coordinate`,
//! and the mask `offsets < n` the formula `n - 1 - 64 * program - coordinate >= 0`.
//!
//! A quotient, minimum or choice is a variable with a definition. An integer that the analysis does
//! not follow, such as a loaded one, is an opaque variable: any number of its range.
//!
//! This file shares the polynomials of `tilewright_ir`, but not its scalar evolution. Here,
//! coordinates may be any polynomials, and variables have definitions, which the solver needs for
//! exact answers.

use rustc_hash::FxHashMap;
use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{Definition, Dtype, Element, ElementwiseFn, Function, Inst, Op, Parents, Value};

use super::logic::Formula;
use super::variables::{Poly, Var};
use crate::analysis::{Assumptions, AxisInfo, analyze_assuming};

/// The rounding of a quotient.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rounding {
    /// To the next lower integer.
    Down,
    /// Towards zero, for integers of this type.
    TowardsZero(Dtype),
}

/// The meaning of a variable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A scalar parameter, divided by its known divisibility.
    Parameter(usize),
    /// The index of the program along an axis of the grid.
    Program(u8),
    /// The extent of the grid along an axis.
    Programs(u8),
    /// The coordinate along an axis of the tile that is accessed.
    Coordinate(usize),
    /// The index of the iteration of a loop, from zero.
    Iteration(Inst),
    /// The final trip count of a loop.
    Trips(Inst),
    /// The current value of a carried value while its increment is computed.
    Marker(Value),
    /// An element that the analysis does not follow, at these coordinates.
    Opaque(Value, Vec<Poly>),
    /// A variable that its definition determines.
    Defined,
}

#[derive(Debug)]
pub struct Variable {
    /// The meaning.
    pub kind: Kind,
    /// A formula about the variable that is always true.
    pub definition: Formula,
    /// The variables from which the value is computed: those of the definition or, for a remainder,
    /// those of the quotient, the dividend and the divisor.
    pub(super) inputs: Vec<Var>,
}

/// A pointer parameter, by index, and an offset in elements.
pub type TensorElement = (usize, Poly);

/// The reason why the analysis does not follow a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UntrackedPointer {
    /// The pointer is cast from an integer or loaded.
    Unknown(Value),
    /// The pointer may point to one of several tensors.
    Several(Value),
    /// A cast gives the pointer another element size than that of the tensor.
    OtherSize(Value),
}

/// The forms of a function's values.
pub struct Forms<'a> {
    pub(super) function: &'a Function,
    pub(super) infos: SecondaryMap<Value, AxisInfo>,
    pub(super) variables: Vec<Variable>,
    pub(super) vars_by_kind: FxHashMap<Kind, Var>,
    pub(super) known: FxHashMap<(Value, Vec<Poly>), Poly>,
    pub(super) quotients: FxHashMap<(Poly, Poly, Rounding), (Poly, Poly)>,
    pub(super) parents: Parents,
    /// The carried values whose progressions are being computed: the value, the coordinates, the
    /// marker and, for a pointer, its parameter.
    pub(super) carrying: Vec<(Value, Vec<Poly>, Poly, Option<usize>)>,
}

impl<'a> Forms<'a> {
    /// Creates the forms of a function. The results of calls are opaque.
    pub fn new(function: &'a Function) -> Self {
        let assumptions = Assumptions { no_signed_overflow: true, ..Assumptions::default() };
        Self {
            function,
            infos: analyze_assuming(function, assumptions),
            variables: Vec::new(),
            vars_by_kind: FxHashMap::default(),
            known: FxHashMap::default(),
            quotients: FxHashMap::default(),
            parents: Parents::new(function),
            carrying: Vec::new(),
        }
    }

    pub fn variable(&self, var: Var) -> &Variable {
        &self.variables[var.0 as usize]
    }

    /// Returns the variable of a kind, which is created if necessary.
    pub fn var_of(&mut self, kind: Kind) -> Var {
        if let Some(&var) = self.vars_by_kind.get(&kind) {
            return var;
        }
        let var = self.push(kind.clone(), Formula::TRUE, Vec::new());
        self.vars_by_kind.insert(kind, var);
        var
    }

    pub(super) fn push(&mut self, kind: Kind, definition: Formula, inputs: Vec<Var>) -> Var {
        let var = Var(self.variables.len() as u32);
        self.variables.push(Variable { kind, definition, inputs });
        var
    }

    /// Creates a variable with a definition, which the closure builds from the variable.
    pub fn define(&mut self, definition: impl FnOnce(&Poly) -> Formula) -> Poly {
        let var = self.push(Kind::Defined, Formula::TRUE, Vec::new());
        let definition = definition(&Poly::var(var));
        let inputs = definition.vars();
        let variable = &mut self.variables[var.0 as usize];
        (variable.definition, variable.inputs) = (definition, inputs);
        Poly::var(var)
    }

    /// Returns the polynomial of a scalar parameter.
    pub fn parameter(&mut self, index: usize) -> Poly {
        let divisibility = i128::from(self.function.parameters[index].divisibility.max(1));
        let var = self.var_of(Kind::Parameter(index));
        Poly::var(var).scaled(divisibility).expect("a coefficient of 32 bits fits")
    }

    /// Returns the polynomial of an integer parameter. Fails with a message that lists the integer
    /// parameters if there is none of this name.
    pub fn named(&mut self, name: &str) -> Result<Poly, String> {
        let function = self.function;
        let parameters = || function.parameters.iter().zip(&function.blocks[function.entry].parameters);
        let is_int = |value: &Value| function.ty(*value).dtype().is_some_and(Dtype::is_int);
        let index = parameters().position(|(parameter, value)| *parameter.name == *name && is_int(value));
        index.map(|index| self.parameter(index)).ok_or_else(|| {
            let known: Vec<&str> = parameters()
                .filter(|(_, value)| is_int(value))
                .map(|(parameter, _)| &*parameter.name)
                .collect();
            format!("the kernel has no integer '{name}'; it has {}", listed(&known))
        })
    }

    /// Returns the message that the kernel has no tensor of this name.
    pub fn no_pointer(&self, name: &str) -> String {
        let function = self.function;
        let parameters = function.parameters.iter().zip(&function.blocks[function.entry].parameters);
        let pointers = parameters.filter(|(_, value)| function.ty(**value).element.pointee().is_some());
        let known: Vec<&str> = pointers.map(|(parameter, _)| &*parameter.name).collect();
        format!("the kernel has no tensor '{name}'; it has {}", listed(&known))
    }

    /// Returns the index of the program along an axis.
    pub fn program(&mut self, axis: u8) -> Poly {
        Poly::var(self.var_of(Kind::Program(axis)))
    }

    /// Returns the extent of the grid along an axis.
    pub fn programs(&mut self, axis: u8) -> Poly {
        Poly::var(self.var_of(Kind::Programs(axis)))
    }

    /// Returns the index of the current iteration of a loop.
    pub fn iteration(&mut self, inst: Inst) -> Poly {
        Poly::var(self.var_of(Kind::Iteration(inst)))
    }

    pub(super) fn opaque(&mut self, value: Value, at: &[Poly]) -> Poly {
        let kind = Kind::Opaque(value, at.to_vec());
        if let Some(&var) = self.vars_by_kind.get(&kind) {
            return Poly::var(var);
        }
        let var = self.var_of(kind);
        let range = self.infos[value].range;
        let dtype = self.function.ty(value).dtype().and_then(Dtype::int_range);
        if let Some((low, high)) = dtype {
            let (low, high) = (range.low.max(low), range.high.min(high));
            if low <= high {
                self.variables[var.0 as usize].definition = Formula::within(&Poly::var(var), low, high);
            }
        }
        Poly::var(var)
    }

    /// Returns the polynomial of an element of an integer tile.
    pub fn int(&mut self, value: Value, at: &[Poly]) -> Poly {
        if let Some(constant) = self.infos[value].constant {
            return Poly::constant(constant);
        }
        let key = (value, at.to_vec());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.find_int(value, at);
        let found = found.unwrap_or_else(|| self.opaque(value, at));
        self.known.insert(key, found.clone());
        found
    }

    fn find_int(&mut self, value: Value, at: &[Poly]) -> Option<Poly> {
        let function = self.function;
        let inst = match function.values[value].definition {
            Definition::Parameter(block, index) if block == function.entry => {
                return function.ty(value).is_scalar().then(|| self.parameter(index as usize));
            }
            Definition::Parameter(block, _) => return self.region_parameter(value, block, at),
            Definition::Result(inst, _) => inst,
        };
        let data = &function.insts[inst];
        if let Some(coordinates) = self.moved(inst, at) {
            return Some(self.int(data.operands[0], &coordinates));
        }
        match &data.op {
            Op::Constant { value } => value.as_int().map(Poly::constant),
            Op::ProgramId { axis } => Some(self.program(*axis)),
            Op::NumPrograms { axis } => Some(self.programs(*axis)),
            Op::Arange { start, .. } => at.first()?.offset(i128::from(*start)),
            Op::Elementwise { function } => self.elementwise(*function, value, &data.operands, at),
            Op::Cast { .. } => self.cast(data.operands[0], value, at),
            Op::Hint { .. } => Some(self.int(data.operands[0], at)),
            Op::If { .. } => {
                let carried = function.carried_by(inst, value)?;
                let &[x, y] = &carried.yielded[..] else { return None };
                let condition = self.condition(data.operands[0], &[]);
                let (x, y) = (self.int(x, at), self.int(y, at));
                Some(self.choice(&condition, &x, &y))
            }
            Op::For { .. } | Op::While { .. } => {
                let carried = function.carried_by(inst, value)?;
                let (initial, step) = self.progression(inst, &carried, at)?;
                let trips = self.trips(inst);
                initial.plus_times(&step.times(&trips)?, 1)
            }
            // tidy: wildcard because the results of the others are not followed
            _ => None,
        }
    }

    /// Returns the coordinates in the operand of the element that an op moves to `at`. Returns
    /// `None` if the op moves no elements, or to data-dependent coordinates, or if a coefficient
    /// overflows.
    fn moved(&mut self, inst: Inst, at: &[Poly]) -> Option<Vec<Poly>> {
        let function = self.function;
        let data = &function.insts[inst];
        match &data.op {
            Op::Splat { .. } => Some(Vec::new()),
            Op::ExpandDims { axis } => {
                let mut from = at.to_vec();
                from.remove(*axis as usize);
                Some(from)
            }
            Op::Broadcast { .. } => {
                let extents = &function.ty(data.operands[0]).shape;
                let one =
                    |(at, &extent): (&Poly, &u32)| if extent == 1 { Poly::default() } else { at.clone() };
                Some(at.iter().zip(extents.iter()).map(one).collect())
            }
            Op::Slice { starts, steps, .. } => at
                .iter()
                .zip(starts.iter().zip(steps))
                .map(|(at, (&start, &step))| at.scaled(i128::from(step))?.offset(i128::from(start)))
                .collect(),
            Op::Transpose { permutation } if permutation.is_empty() => Some(at.to_vec()),
            Op::Transpose { permutation } => {
                let mut from = vec![Poly::default(); at.len()];
                for (at, &axis) in at.iter().zip(permutation) {
                    from[axis as usize] = at.clone();
                }
                Some(from)
            }
            Op::Reshape { shape } => {
                let from = function.ty(data.operands[0]).shape.to_vec();
                self.reshaped(&from, shape, at)
            }
            // tidy: wildcard because the others do not move elements, or move them to
            // data-dependent coordinates
            _ => None,
        }
    }

    fn reshaped(&mut self, from: &[u32], to: &[u32], at: &[Poly]) -> Option<Vec<Poly>> {
        let wide = |shape: &[u32]| (0..shape.len()).filter(|&axis| shape[axis] != 1).collect::<Vec<_>>();
        let (old, new) = (wide(from), wide(to));
        let mut result = vec![Poly::default(); from.len()];
        if old.iter().map(|&axis| from[axis]).eq(new.iter().map(|&axis| to[axis])) {
            for (&old, &new) in old.iter().zip(&new) {
                result[old] = at[new].clone();
            }
            return Some(result);
        }
        let mut linear = Poly::default();
        for (at, &extent) in at.iter().zip(to) {
            linear = linear.scaled(i128::from(extent))?.plus_times(at, 1)?;
        }
        for &axis in old.iter().rev() {
            let extent = i128::from(from[axis]);
            let (quotient, rest) = self.floored(&linear, extent);
            result[axis] = rest;
            linear = quotient;
        }
        Some(result)
    }

    fn cast(&mut self, from: Value, to: Value, at: &[Poly]) -> Option<Poly> {
        let function = self.function;
        let source = function.ty(from).dtype().filter(|dtype| dtype.is_int())?;
        let target = function.ty(to).dtype().filter(|dtype| dtype.is_int() && !dtype.is_bool())?;
        if source.is_bool() {
            let condition = self.condition(from, at);
            return Some(self.choice(&condition, &Poly::constant(1), &Poly::default()));
        }
        let poly = self.int(from, at);
        let (low, high) = target.int_range()?;
        let range = self.infos[from].range;
        let (least, most) = source.int_range()?;
        let fits = low <= range.low.max(least) && range.high.min(most) <= high;
        Some(if fits { poly } else { self.narrowed(poly, target) })
    }

    fn elementwise(
        &mut self,
        function: ElementwiseFn,
        value: Value,
        operands: &[Value],
        at: &[Poly],
    ) -> Option<Poly> {
        use ElementwiseFn as F;
        let dtype = self.function.ty(value).dtype().filter(|dtype| dtype.is_int() && !dtype.is_bool())?;
        if let (F::Select, &[condition, x, y]) = (function, operands) {
            let condition = self.condition(condition, at);
            let (x, y) = (self.int(x, at), self.int(y, at));
            return Some(self.choice(&condition, &x, &y));
        }
        let x = self.int(*operands.first()?, at);
        let second = operands.get(1).copied();
        let y = second.map_or_else(Poly::default, |y| self.int(y, at));
        let exact = match function {
            F::Add => x.plus_times(&y, 1)?,
            F::Sub => x.plus_times(&y, -1)?,
            F::Mul => x.times(&y)?,
            F::Neg => x.scaled(-1)?,
            F::Shl => {
                let shift = y.as_constant().filter(|shift| (0..62).contains(shift))?;
                x.scaled(1 << shift)?
            }
            F::Shr => {
                let shift = y.as_constant().filter(|shift| (0..i128::from(dtype.bits())).contains(shift))?;
                return Some(self.floored(&x, 1 << shift).0);
            }
            F::And => {
                let (x, mask) = if x.as_constant().is_some() { (y, x) } else { (x, y) };
                let divisor = mask.as_constant()?.checked_add(1)?;
                return (divisor > 0 && divisor.count_ones() == 1).then(|| self.floored(&x, divisor).1);
            }
            F::Min => return Some(self.extreme(&x, &y, 1)),
            F::Max => return Some(self.extreme(&x, &y, -1)),
            F::Abs => {
                let condition = Formula::at_most(&Poly::default(), &x);
                let negated = x.scaled(-1)?;
                return Some(self.choice(&condition, &x, &negated));
            }
            F::IntDiv | F::IntRem => {
                let is_nonnegative = self.infos[operands[0]].range.is_nonnegative();
                let (quotient, rest) = self.truncated(&x, &y, dtype, is_nonnegative);
                return Some(if function == F::IntDiv { quotient } else { rest });
            }
            // tidy: wildcard because other functions are not followed
            _ => return None,
        };
        // Signed integers are assumed not to overflow. Unsigned integers wrap.
        Some(if dtype.is_signed() { exact } else { self.narrowed(exact, dtype) })
    }

    /// Returns the formula of an element of a boolean tile.
    pub fn condition(&mut self, value: Value, at: &[Poly]) -> Formula {
        use ElementwiseFn as F;
        let function = self.function;
        if let Some(constant) = self.infos[value].constant {
            return if constant == 0 { Formula::FALSE } else { Formula::TRUE };
        }
        let Some(inst) = function.defining_inst(value) else { return Formula::Unknown };
        let data = &function.insts[inst];
        if let Some(coordinates) = self.moved(inst, at) {
            return self.condition(data.operands[0], &coordinates);
        }
        let is_int = |value: Value| function.ty(value).dtype().is_some_and(Dtype::is_int);
        let is_bool = |value: Value| function.ty(value).is_bool();
        match (&data.op, &data.operands[..]) {
            (Op::Elementwise { function: F::And | F::Mul | F::Min }, &[x, y]) => {
                Formula::All(vec![self.condition(x, at), self.condition(y, at)])
            }
            (Op::Elementwise { function: F::Or | F::Max }, &[x, y]) => {
                Formula::Any(vec![self.condition(x, at), self.condition(y, at)])
            }
            (Op::Elementwise { function: F::Not }, &[x]) => self.condition(x, at).negated(),
            (Op::Elementwise { function: F::Xor | F::Ne | F::Eq }, &[x, y]) if is_bool(x) => {
                let (x, y) = (self.condition(x, at), self.condition(y, at));
                let same = Formula::Any(vec![
                    Formula::All(vec![x.clone(), y.clone()]),
                    Formula::All(vec![x.negated(), y.negated()]),
                ]);
                if data.op.name() == F::Eq.name() { same } else { same.negated() }
            }
            (Op::Elementwise { function: F::Select }, &[condition, x, y]) => {
                let condition = self.condition(condition, at);
                let negated = condition.negated();
                let (x, y) = (self.condition(x, at), self.condition(y, at));
                Formula::Any(vec![Formula::All(vec![condition, x]), Formula::All(vec![negated, y])])
            }
            (Op::Elementwise { function: comparison }, &[x, y]) if is_int(x) && !is_bool(x) => {
                let (x, y) = (self.int(x, at), self.int(y, at));
                match comparison {
                    F::Lt => Formula::below(&x, &y),
                    F::Le => Formula::at_most(&x, &y),
                    F::Gt => Formula::below(&y, &x),
                    F::Ge => Formula::at_most(&y, &x),
                    F::Eq => Formula::equal(&x, &y),
                    F::Ne => Formula::equal(&x, &y).negated(),
                    // tidy: wildcard because no other function of integers returns a boolean
                    _ => Formula::Unknown,
                }
            }
            (Op::Cast { .. }, &[from]) if is_int(from) && !is_bool(from) => {
                Formula::equal(&self.int(from, at), &Poly::default()).negated()
            }
            (Op::Cast { .. } | Op::Hint { .. }, &[from]) if is_bool(from) => self.condition(from, at),
            // tidy: wildcard because the results of the others are not followed
            _ => Formula::Unknown,
        }
    }

    /// Returns the tensor and the offset to which an element of a pointer tile points.
    pub fn pointer(&mut self, value: Value, at: &[Poly]) -> Result<TensorElement, UntrackedPointer> {
        let function = self.function;
        let lost = UntrackedPointer::Unknown(value);
        let inst = match function.values[value].definition {
            Definition::Parameter(block, index) if block == function.entry => {
                return Ok((index as usize, Poly::default()));
            }
            Definition::Parameter(block, _) => {
                let inst = self.parents.owner(block).ok_or(lost)?;
                let carried = function.carried_by(inst, value).ok_or(lost)?;
                let first = carried.parameters.first().copied().unwrap_or(value);
                let marked = self.carrying.iter().find(|(own, own_at, ..)| *own == first && own_at == at);
                if let Some((_, _, marker, base)) = marked {
                    return base.map(|base| (base, marker.clone())).ok_or(lost);
                }
                let (base, initial, step) = self.moving(inst, &carried, at)?;
                let iteration = self.iteration(inst);
                let moved = step.times(&iteration).and_then(|moved| initial.plus_times(&moved, 1));
                return moved.map(|moved| (base, moved)).ok_or(lost);
            }
            Definition::Result(inst, _) => inst,
        };
        let data = &function.insts[inst];
        if let Some(coordinates) = self.moved(inst, at) {
            return self.pointer(data.operands[0], &coordinates);
        }
        match (&data.op, &data.operands[..]) {
            (Op::PtrAdd {}, &[pointer, offset]) => {
                let (base, place) = self.pointer(pointer, at)?;
                let offset = self.int(offset, at);
                place.plus_times(&offset, 1).map(|place| (base, place)).ok_or(lost)
            }
            (Op::Hint { .. }, &[pointer]) => self.pointer(pointer, at),
            (Op::Cast { .. } | Op::Bitcast { .. }, &[from]) => {
                let size = |element: Element| element.pointee().map(Dtype::bytes);
                match (size(function.ty(from).element), size(function.ty(value).element)) {
                    (Some(one), Some(other)) if one == other => self.pointer(from, at),
                    (Some(_), Some(_)) => Err(UntrackedPointer::OtherSize(value)),
                    _ => Err(lost),
                }
            }
            (Op::Elementwise { function: ElementwiseFn::Select }, &[condition, x, y]) => {
                let condition = self.condition(condition, at);
                self.either(value, &condition, (x, y), at)
            }
            (Op::If { .. }, &[condition]) => {
                let carried = function.carried_by(inst, value).ok_or(lost)?;
                let &[x, y] = &carried.yielded[..] else { return Err(lost) };
                let condition = self.condition(condition, &[]);
                self.either(value, &condition, (x, y), at)
            }
            (Op::For { .. } | Op::While { .. }, _) => {
                let carried = function.carried_by(inst, value).ok_or(lost)?;
                let (base, initial, step) = self.moving(inst, &carried, at)?;
                let trips = self.trips(inst);
                let moved = step.times(&trips).and_then(|moved| initial.plus_times(&moved, 1));
                moved.map(|moved| (base, moved)).ok_or(lost)
            }
            // tidy: wildcard because pointers of the others are not followed
            _ => Err(lost),
        }
    }

    fn either(
        &mut self,
        value: Value,
        condition: &Formula,
        (x, y): (Value, Value),
        at: &[Poly],
    ) -> Result<TensorElement, UntrackedPointer> {
        let ((base, x), (other, y)) = (self.pointer(x, at)?, self.pointer(y, at)?);
        if base != other {
            return Err(UntrackedPointer::Several(value));
        }
        Ok((base, self.choice(condition, &x, &y)))
    }

    /// Returns these variables and, transitively, those of their definitions and inputs.
    pub fn closure(&self, start: impl IntoIterator<Item = Var>) -> Vec<Var> {
        let mut seen: Vec<Var> = Vec::new();
        for var in start {
            if !seen.contains(&var) {
                seen.push(var);
            }
        }
        let mut next = 0;
        while let Some(&var) = seen.get(next) {
            next += 1;
            let variable = self.variable(var);
            for input in variable.definition.vars().into_iter().chain(variable.inputs.iter().copied()) {
                if !seen.contains(&input) {
                    seen.push(input);
                }
            }
        }
        seen
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
