//! Loops and branches: labels, and registers that carry values around and out.
//!
//! Registers of a tile of integers or pointers that differ by constants are carried as one: it is tried, and if the body does
//! not keep the differences, the loop is built again with each register for itself.

use tilewright_base::Diagnostic;
use tilewright_gpu::language::Type;
use tilewright_ir::{Block, Element, Inst, Value};

use super::builder::{Line, Scalar, Width};
use super::{Lowered, Lowering};
use crate::isa::{self, Comparison, LabelId, RegisterId, Target};

/// A register that carries one or more registers of a value around a loop.
struct Carried {
    /// Which of the carried values.
    value: usize,
    width: Width,
    register: RegisterId,
    /// The registers of the value that it stands for, and what each has more.
    members: Vec<(usize, u64)>,
}

/// The statements of a branch, and the values that it yields.
type Branch = (Vec<Line>, Vec<Vec<Scalar>>);

/// A copy to a register.
type Move = (Width, RegisterId, Scalar);

/// The counter of a loop.
struct Counter {
    width: Width,
    signed: bool,
    register: RegisterId,
    bounds: [Scalar; 3],
}

/// A jump.
pub(super) fn jump(target: LabelId) -> isa::Bra {
    isa::Bra { uniform: false, target: Target(target) }
}

impl Lowering<'_> {
    pub(super) fn lower_for(&mut self, inst: Inst, bounds: [Value; 3], carried: &[Value]) -> Lowered {
        let region = self.kernel.insts[inst].regions[0];
        let parameters = &self.kernel.blocks[region].parameters;
        let dtype = self.ty(bounds[0]).dtype().expect("the verifier checks that bounds are integers");
        let width = self.width(bounds[0]);
        let [lower, upper, step] = bounds.map(|bound| self.scalar(bound));
        let location = self.builder.location;
        let mut apart = vec![false; carried.len()];
        loop {
            let groups = self.begin(carried, &parameters[1..], &apart);
            let register = self.builder.fresh_inside(width);
            self.builder.assign(width, register, lower);
            let counter =
                Counter { width, signed: dtype.is_signed(), register, bounds: [lower, upper, step] };
            self.set(parameters[0], [Scalar::from(register)]);
            let enters = self.enters(&counter);
            self.builder.open(true);
            self.block(region)?;
            self.builder.location = location;
            let head = self.builder.label("loop");
            let Some(mut moves) = self.next(&groups, region, &parameters[1..], &mut apart) else {
                self.builder.close();
                continue;
            };
            let goes_on = self.goes_on(&counter);
            moves.push((width, register, self.builder.add(width, register.into(), step)));
            self.builder.assign_all(&moves);
            let again = (goes_on != Scalar::TRUE).then(|| self.builder.predicate(goes_on));
            if goes_on != Scalar::FALSE {
                self.builder.emit_if(again, jump(head));
            }
            let lines = self.builder.close();
            self.place_loop(head, enters, lines);
            self.end(inst, &groups, &parameters[1..]);
            return Ok(());
        }
    }

    /// Whether a loop is entered. A step of zero stops the kernel.
    fn enters(&mut self, counter: &Counter) -> Scalar {
        let Counter { width, signed, bounds: [lower, upper, step], .. } = *counter;
        let is_zero = self.builder.compare(width, signed, Comparison::Eq, step, Scalar::constant(0));
        if is_zero != Scalar::FALSE {
            let guard = (is_zero != Scalar::TRUE).then(|| self.builder.predicate(is_zero));
            self.builder.emit_if(guard, isa::Trap {});
        }
        let is_up = self.is_up(counter);
        let up = self.builder.compare(width, signed, Comparison::Lt, lower, upper);
        let down = self.builder.compare(width, signed, Comparison::Gt, lower, upper);
        self.builder.select(Width::Pred, is_up, up, down)
    }

    fn is_up(&mut self, counter: &Counter) -> Scalar {
        let Counter { width, signed, bounds: [.., step], .. } = *counter;
        self.builder.compare(width, signed, Comparison::Gt, step, Scalar::constant(0))
    }

    /// Whether there is another iteration: more is left than the step, which no overflow can change.
    fn goes_on(&mut self, counter: &Counter) -> Scalar {
        let Counter { width, signed, register, bounds: [_, upper, step] } = *counter;
        let own = Scalar::from(register);
        if step == Scalar::constant(1) {
            let next = self.builder.add(width, own, step);
            return self.builder.compare(width, signed, Comparison::Lt, next, upper);
        }
        let is_up = self.is_up(counter);
        let (up, down) = (self.builder.sub(width, upper, own), self.builder.sub(width, own, upper));
        let left = self.builder.select(width, is_up, up, down);
        let minus = self.builder.sub(width, Scalar::constant(0), step);
        let distance = self.builder.select(width, is_up, step, minus);
        self.builder.compare(width, false, Comparison::Gt, left, distance)
    }

    pub(super) fn lower_while(&mut self, inst: Inst, carried: &[Value]) -> Lowered {
        let [condition, body] = [0, 1].map(|region| self.kernel.insts[inst].regions[region]);
        let parameters = &self.kernel.blocks[body].parameters;
        let mut apart = vec![false; carried.len()];
        loop {
            let groups = self.begin(carried, parameters, &apart);
            let (head, exit) = (self.builder.label("while"), self.builder.label("end"));
            for (&own, &other) in self.kernel.blocks[condition].parameters.iter().zip(parameters) {
                let scalars = self.get_in(other, self.layout_of(own));
                self.set(own, scalars);
            }
            self.builder.open(true);
            self.block(condition)?;
            let holds = self.scalar(self.kernel.yielded(condition)[0]);
            let fails = holds.plus(Width::Pred, 1);
            let leaves = (fails.as_constant().is_none()).then(|| self.builder.predicate(fails));
            if fails != Scalar::FALSE {
                self.builder.emit_if(leaves, jump(exit));
            }
            self.block(body)?;
            let Some(moves) = self.next(&groups, body, parameters, &mut apart) else {
                self.builder.close();
                continue;
            };
            self.builder.assign_all(&moves);
            self.builder.emit(jump(head));
            let lines = self.builder.close();
            self.builder.place(head);
            self.builder.append(lines);
            self.builder.place(exit);
            self.end(inst, &groups, parameters);
            return Ok(());
        }
    }

    /// Gives the carried values registers with their first values, and sets the parameters of the body.
    fn begin(&mut self, carried: &[Value], parameters: &[Value], apart: &[bool]) -> Vec<Carried> {
        let mut groups: Vec<Carried> = Vec::new();
        let mut moves = Vec::new();
        for (value, (&first, &parameter)) in carried.iter().zip(parameters).enumerate() {
            let scalars = self.get_in(first, self.layout_of(parameter));
            let width = self.width(first);
            let is_sum = self.is_sum(first);
            let is_pending = matches!(self.kernel.ty(first), Type::Pending { .. });
            let own = groups.len();
            let mut bases: Vec<Scalar> = Vec::new();
            let mut inside = Vec::with_capacity(scalars.len());
            for (register, &scalar) in scalars.iter().enumerate() {
                let base = Scalar { base: scalar.base, offset: 0 };
                let is_joint = is_sum && !apart[value] && scalar.base.is_some();
                let known = bases.iter().position(|&other| is_joint && other == base);
                let offset = if is_joint { scalar.offset } else { 0 };
                let group = known.unwrap_or_else(|| {
                    let start = if is_joint { base } else { scalar };
                    // The registers of a product under way may not be touched, and nobody else reads them.
                    let under_way = scalar.base.filter(|_| is_pending);
                    let fresh = under_way.unwrap_or_else(|| self.builder.fresh_inside(width));
                    if under_way.is_none() {
                        moves.push((width, fresh, start));
                    }
                    bases.push(start);
                    groups.push(Carried { value, width, register: fresh, members: Vec::new() });
                    bases.len() - 1
                });
                let group = &mut groups[own + group];
                group.members.push((register, offset));
                inside.push(Scalar::from(group.register).plus(width, offset));
            }
            self.set(parameter, inside);
        }
        self.builder.assign_all(&moves);
        groups
    }

    /// The copies to the registers that carry what the body yields; none, with a note in `apart`, if registers that are
    /// carried as one no longer differ by the same constants.
    fn next(
        &mut self,
        groups: &[Carried],
        region: Block,
        parameters: &[Value],
        apart: &mut [bool],
    ) -> Option<Vec<Move>> {
        let yielded = self.kernel.yielded(region);
        let mut moves = Vec::with_capacity(groups.len());
        let mut fits = true;
        for group in groups {
            let scalars = self.get_in(yielded[group.value], self.layout_of(parameters[group.value]));
            let base = |&(register, offset): &(usize, u64)| {
                scalars[register].plus(group.width, offset.wrapping_neg())
            };
            let first = base(&group.members[0]);
            if group.members.iter().any(|member| base(member) != first) {
                apart[group.value] = true;
                fits = false;
            }
            moves.push((group.width, group.register, first));
        }
        fits.then_some(moves)
    }

    /// A loop that is tested at its end, behind a test whether it is entered.
    fn place_loop(&mut self, head: LabelId, enters: Scalar, lines: Vec<Line>) {
        if enters == Scalar::FALSE {
            return;
        }
        let exit = self.builder.label("end");
        if enters != Scalar::TRUE {
            let skips = self.builder.predicate(enters.plus(Width::Pred, 1));
            self.builder.emit_if(Some(skips), jump(exit));
        }
        self.builder.place(head);
        self.builder.append(lines);
        self.builder.place(exit);
    }

    /// The results of a loop are what the registers carry at its end.
    fn end(&mut self, inst: Inst, groups: &[Carried], parameters: &[Value]) {
        self.builder.adopt(groups.iter().map(|group| group.register));
        for (&result, &parameter) in self.kernel.insts[inst].results.iter().zip(parameters) {
            let scalars = self.get_in(parameter, self.layout_of(result));
            self.set(result, scalars);
        }
    }

    pub(super) fn lower_if(&mut self, inst: Inst, condition: Value) -> Lowered {
        let regions = [0, 1].map(|region| self.kernel.insts[inst].regions[region]);
        let condition = self.scalar(condition);
        if let Some(holds) = condition.as_constant() {
            let region = regions[usize::from(holds == 0)];
            self.block(region)?;
            self.leave(inst, region);
            return Ok(());
        }
        let [then, otherwise] = regions;
        let (then_lines, first) = self.branch(inst, then)?;
        let (else_lines, second) = self.branch(inst, otherwise)?;
        let moves = self.merge(inst, &first, &second);
        let then_lines = self.with_moves(then_lines, &moves[0]);
        let else_lines = self.with_moves(else_lines, &moves[1]);
        let (middle, end) = (self.builder.label("else"), self.builder.label("endif"));
        let skips = self.builder.predicate(condition.plus(Width::Pred, 1));
        self.builder.emit_if(Some(skips), jump(if else_lines.is_empty() { end } else { middle }));
        self.builder.append(then_lines);
        if !else_lines.is_empty() {
            self.builder.emit(jump(end));
            self.builder.place(middle);
            self.builder.append(else_lines);
        }
        self.builder.place(end);
        Ok(())
    }

    /// The results are what a region yields.
    fn leave(&mut self, inst: Inst, region: Block) {
        for (&result, &value) in self.kernel.insts[inst].results.iter().zip(self.kernel.yielded(region)) {
            let scalars = self.get_in(value, self.layout_of(result));
            self.set(result, scalars);
        }
    }

    /// A branch, and what it yields.
    fn branch(&mut self, inst: Inst, region: Block) -> Result<Branch, Box<Diagnostic>> {
        self.builder.open(false);
        self.block(region)?;
        let results = &self.kernel.insts[inst].results;
        let yielded = self.kernel.yielded(region).iter().zip(results);
        let scalars =
            yielded.map(|(&value, &result)| self.get_in(value, self.layout_of(result)).to_vec()).collect();
        Ok((self.builder.close(), scalars))
    }

    fn with_moves(&mut self, lines: Vec<Line>, moves: &[Move]) -> Vec<Line> {
        self.builder.open(false);
        self.builder.append(lines);
        self.builder.assign_all(moves);
        self.builder.close()
    }

    /// Sets the results of a branch; the copies to the registers that are needed for that, in either branch.
    fn merge(&mut self, inst: Inst, first: &[Vec<Scalar>], second: &[Vec<Scalar>]) -> [Vec<Move>; 2] {
        let mut moves = [Vec::new(), Vec::new()];
        for (index, &result) in self.kernel.insts[inst].results.iter().enumerate() {
            let width = self.width(result);
            let is_sum = self.is_sum(result);
            // What one register has in either branch, less what its user adds.
            let mut known: Vec<([Scalar; 2], RegisterId)> = Vec::new();
            let mut scalars = Vec::with_capacity(first[index].len());
            for (&a, &b) in first[index].iter().zip(&second[index]) {
                if a == b {
                    scalars.push(a);
                    continue;
                }
                let offset = if is_sum && a.base.is_some() { a.offset } else { 0 };
                let pair = if offset == 0 {
                    [a, b]
                } else {
                    [a, b].map(|scalar| scalar.plus(width, offset.wrapping_neg()))
                };
                let register = known.iter().find(|(other, _)| *other == pair).map(|(_, register)| *register);
                let register = register.unwrap_or_else(|| {
                    let register = self.builder.fresh(width);
                    known.push((pair, register));
                    for (moves, scalar) in moves.iter_mut().zip(pair) {
                        moves.push((width, register, scalar));
                    }
                    register
                });
                scalars.push(Scalar::from(register).plus(width, offset));
            }
            self.set(result, scalars);
        }
        moves
    }

    /// Whether registers of a value may be a register plus a constant.
    fn is_sum(&self, value: Value) -> bool {
        match self.kernel.ty(value) {
            Type::Registers { tile, .. } => match tile.element {
                Element::Pointer(_) => true,
                Element::Value(dtype) => dtype.is_int() && !dtype.is_bool(),
            },
            Type::Pending { .. } => false,
            Type::Buffer(_) | Type::Ring(_) | Type::Empty(_) | Type::Full(_) | Type::Mbarrier { .. } => true,
        }
    }
}
