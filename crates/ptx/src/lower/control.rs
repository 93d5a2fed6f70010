//! Loops and branches: labels, and registers that carry values.
//!
//! A loop may add one amount to all elements of an integer or pointer tile. Then it carries one
//! register for those that differ by constants. Example: `p` for `p`, `p + 4` and `p + 8`. Narrow
//! elements that were unpacked from words are carried as words.

use tilewright_base::Diagnostic;
use tilewright_gpu_ir::{GpuOp, Op, Type};
use tilewright_ir as ir;
use tilewright_ir::{Block, Dtype, Element, ElementwiseFn, Inst, OpFamily, Operation, Value};

use super::arithmetic::Integer;
use super::builder::{Scalar, Width};
use super::memory::Words;
use super::{Lowered, Lowering, memory_bits};
use crate::isa::{self, BranchTarget, Comparison, LabelId, RegisterId};
use crate::passes::Line;

/// A register that carries one or more registers of a value.
struct Carried {
    /// The index of the carried value.
    value: usize,
    width: Width,
    register: RegisterId,
    /// The value's registers for which `register` is carried, with the constant added to it.
    members: Vec<(usize, u64)>,
    /// True if `register` is a word of narrow elements.
    is_word: bool,
}

/// The statements of a branch, and the values that it yields.
type Branch = (Vec<Line>, Vec<Vec<Scalar>>);

/// A copy to a register.
type Move = (Width, RegisterId, Scalar);

/// The counter of a loop. `bounds` has the lower bound, the upper bound and the step.
struct Counter {
    width: Width,
    signed: bool,
    register: RegisterId,
    bounds: [Scalar; 3],
    ending: Ending,
}

/// The loop condition. No variant can overflow. The assembler recognizes and unrolls the first two.
#[derive(Clone, Copy)]
enum Ending {
    /// The loop continues if the next index is before the bound. The next index fits into its
    /// register.
    NextIndex,
    /// A register counts the remaining iterations.
    Countdown(RegisterId),
    /// The loop continues while the distance to the bound exceeds the step.
    Distance,
}

/// Returns a jump to a label.
pub(super) fn jump(target: LabelId) -> isa::Bra {
    isa::Bra { uniform: false, target: BranchTarget(target) }
}

impl Lowering<'_> {
    /// Lowers a `for_loop`.
    pub(super) fn lower_for(&mut self, inst: Inst, bounds: [Value; 3]) -> Lowered {
        let region = self.kernel.insts[inst].regions[0];
        let parameters = &self.kernel.blocks[region].parameters;
        let dtype = self.ty(bounds[0]).dtype().expect("the verifier checks that bounds are integers");
        let width = self.width(bounds[0]);
        let [lower, upper, step] = bounds.map(|bound| self.scalar(bound));
        let location = self.builder.location;
        let groups = self.begin(inst, &parameters[1..]);
        let register = self.builder.fresh(width);
        self.builder.assign(width, register, lower);
        let ending = self.ending(region, width, dtype.is_signed(), [lower, upper, step]);
        let bounds = [lower, upper, step];
        let counter = Counter { width, signed: dtype.is_signed(), register, bounds, ending };
        let enters = self.enters(&counter);
        if enters == Scalar::FALSE {
            self.end(inst, &groups, &parameters[1..]);
            return Ok(());
        }
        let (head, exit) = (self.builder.label("loop"), self.builder.label("end"));
        if enters != Scalar::TRUE {
            let skips = self.builder.predicate(enters.plus(Width::Pred, 1));
            self.builder.emit_if(Some(skips), jump(exit));
        }
        self.set(parameters[0], [Scalar::from(register)]);
        let parameters = &parameters[1..];
        self.builder.place(head);
        self.unpack_words(&groups, parameters);
        self.block(region)?;
        self.builder.location = location;
        let mut moves = self.next(&groups, region, parameters);
        let goes_on = self.goes_on(&counter, &mut moves);
        moves.push((width, register, self.builder.add(width, register.into(), step)));
        self.builder.assign_all(&moves);
        let again = (goes_on != Scalar::TRUE).then(|| self.builder.predicate(goes_on));
        if goes_on != Scalar::FALSE {
            self.builder.emit_if(again, jump(head));
        }
        self.builder.place(exit);
        self.end(inst, &groups, parameters);
        Ok(())
    }

    /// Returns the condition under which a loop has an iteration. Emits a trap for a step of zero.
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

    /// Chooses the condition by which a loop continues. A countdown needs code for the trip count.
    fn ending(
        &mut self,
        body: Block,
        width: Width,
        signed: bool,
        [lower, upper, step]: [Scalar; 3],
    ) -> Ending {
        let Some(step) = step.as_constant() else { return Ending::Distance };
        let is_down = signed && width.signed(step) < 0;
        let size = if is_down { width.cut(step.wrapping_neg()) } else { step };
        if upper.as_constant().is_some_and(|end| fits(width, signed, end, step)) || size == 1 {
            return Ending::NextIndex;
        }
        // The assembler does not unroll loops with dots, which also have no spare register.
        if size == 0 || self.has_dot(body) {
            return Ending::Distance;
        }
        // The trip count is unused without an iteration.
        let (far, near) = if is_down { (lower, upper) } else { (upper, lower) };
        let distance = self.builder.sub(width, far, near);
        let before = self.builder.sub(width, distance, Scalar::constant(1));
        let ty = Integer::of(if width == Width::B64 { Dtype::U64 } else { Dtype::U32 });
        let repeated = self.builder.quotient(ty, before, Scalar::constant(size));
        let trips = self.builder.add(width, repeated, Scalar::constant(1));
        let left = self.builder.fresh(width);
        self.builder.assign(width, left, trips);
        Ending::Countdown(left)
    }

    /// Returns whether a block, or a nested block, has a dot.
    fn has_dot(&self, block: Block) -> bool {
        self.kernel.blocks[block].insts.iter().any(|&inst| {
            let data = &self.kernel.insts[inst];
            data.op.info().family == OpFamily::Dot || data.regions.iter().any(|&inner| self.has_dot(inner))
        })
    }

    /// Returns the condition under which there is another iteration. Adds the countdown's decrement
    /// to `moves`.
    fn goes_on(&mut self, counter: &Counter, moves: &mut Vec<Move>) -> Scalar {
        let Counter { width, signed, register, bounds: [_, upper, step], ending } = *counter;
        let own = Scalar::from(register);
        match ending {
            Ending::NextIndex => {
                let next = self.builder.add(width, own, step);
                let is_down = signed && step.as_constant().is_some_and(|step| width.signed(step) < 0);
                let comparison = if is_down { Comparison::Gt } else { Comparison::Lt };
                self.builder.compare(width, signed, comparison, next, upper)
            }
            Ending::Countdown(left) => {
                let next = self.builder.sub(width, left.into(), Scalar::constant(1));
                moves.push((width, left, next));
                self.builder.compare(width, false, Comparison::Ne, next, Scalar::constant(0))
            }
            Ending::Distance => {
                let is_up = self.is_up(counter);
                let (up, down) = (self.builder.sub(width, upper, own), self.builder.sub(width, own, upper));
                let left = self.builder.select(width, is_up, up, down);
                let minus = self.builder.sub(width, Scalar::constant(0), step);
                let distance = self.builder.select(width, is_up, step, minus);
                self.builder.compare(width, false, Comparison::Gt, left, distance)
            }
        }
    }

    pub(super) fn lower_while(&mut self, inst: Inst) -> Lowered {
        let [condition, body] = [0, 1].map(|region| self.kernel.insts[inst].regions[region]);
        let parameters = &self.kernel.blocks[body].parameters;
        let groups = self.begin(inst, parameters);
        let (head, exit) = (self.builder.label("while"), self.builder.label("end"));
        self.builder.place(head);
        self.unpack_words(&groups, parameters);
        for (&own, &other) in self.kernel.blocks[condition].parameters.iter().zip(parameters) {
            let scalars = self.get_in(other, self.layout_of(own));
            self.set(own, scalars);
        }
        self.block(condition)?;
        let holds = self.scalar(self.kernel.yielded(condition)[0]);
        let fails = holds.plus(Width::Pred, 1);
        let leaves = (fails.as_constant().is_none()).then(|| self.builder.predicate(fails));
        if fails != Scalar::FALSE {
            self.builder.emit_if(leaves, jump(exit));
        }
        self.block(body)?;
        let moves = self.next(&groups, body, parameters);
        self.builder.assign_all(&moves);
        self.builder.emit(jump(head));
        self.builder.place(exit);
        self.end(inst, &groups, parameters);
        Ok(())
    }

    /// Chooses the registers that carry values around a loop. Copies the initial values, and sets
    /// the body's parameters.
    fn begin(&mut self, inst: Inst, parameters: &[Value]) -> Vec<Carried> {
        let mut groups: Vec<Carried> = Vec::new();
        let mut moves = Vec::new();
        let kernel = self.kernel;
        for (value, (carried, &parameter)) in kernel.carried(inst).zip(parameters).enumerate() {
            let first = carried.initial.expect("a loop has an initial value of each carried value");
            let is_joint = self.is_sum(first) && self.is_moved_alike(carried.yielded[0], &carried.parameters);
            // Registers of a dot in flight must not be copied.
            let keeps =
                matches!(self.kernel.ty(first), Type::Pending { .. }) || self.stays_in_registers(inst, first);
            let scalars = self.get_in(first, self.layout_of(parameter));
            let width = self.width(first);
            if let Some(count) = self.elements_in_words(first, &scalars) {
                for (number, elements) in scalars.chunks(count).enumerate() {
                    let word = self.builder.pack(Words::new(self.element(first), count), elements);
                    let register = self.builder.fresh(Width::B32);
                    moves.push((Width::B32, register, word));
                    let start = number * count;
                    let members = (start..start + count).map(|element| (element, 0)).collect();
                    groups.push(Carried { value, width: Width::B32, register, members, is_word: true });
                }
                continue;
            }
            let own = groups.len();
            let mut bases: Vec<Scalar> = Vec::new();
            let mut inside = Vec::with_capacity(scalars.len());
            for (register, &scalar) in scalars.iter().enumerate() {
                let base = Scalar { base: scalar.base, offset: 0 };
                let is_joint = is_joint && scalar.base.is_some();
                let known = bases.iter().position(|&other| is_joint && other == base);
                let offset = if is_joint { scalar.offset } else { 0 };
                let group = known.unwrap_or_else(|| {
                    let start = if is_joint { base } else { scalar };
                    let kept = scalar.base.filter(|_| keeps);
                    let fresh = kept.unwrap_or_else(|| self.builder.fresh(width));
                    if kept.is_none() {
                        moves.push((width, fresh, start));
                    }
                    bases.push(start);
                    groups.push(Carried {
                        value,
                        width,
                        register: fresh,
                        members: Vec::new(),
                        is_word: false,
                    });
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

    /// Returns whether an earlier loop of the block computes a tile for only this loop. Then both
    /// use the same registers. Otherwise, the assembler might keep two copies of an accumulator.
    fn stays_in_registers(&self, inst: Inst, first: Value) -> bool {
        let kernel = self.kernel;
        let Some(before) = kernel.defining_inst(first) else { return false };
        let is_in_a_row = || {
            let holds = |block: &ir::BlockData| [before, inst].iter().all(|inst| block.insts.contains(inst));
            kernel.blocks.values().any(holds)
        };
        kernel.insts[before].op.info().family == OpFamily::Loop
            && self.reads.of(first) == 1
            && self.layout_of(first).is_some()
            && !self.is_sum(first)
            && is_in_a_row()
    }

    /// Returns the elements in a word of a tile that was unpacked from words, or that instructions
    /// convert to words.
    fn elements_in_words(&self, tile: Value, scalars: &[Scalar]) -> Option<usize> {
        let element = self.layout_of(tile).map(|_| self.element(tile))?;
        let count = 32 / memory_bits(element) as usize;
        let is_packed = |word: &[Scalar]| word.len() == count && self.builder.is_word(word);
        (count > 1 && scalars.chunks(count).all(is_packed)).then_some(count)
    }

    /// Unpacks the words that a loop carries. Returns the elements of each such value, with its
    /// index.
    fn elements_of_words(&mut self, groups: &[Carried], values: &[Value]) -> Vec<(usize, Vec<Scalar>)> {
        let mut found: Vec<(usize, Vec<Scalar>)> = Vec::new();
        for group in groups.iter().filter(|group| group.is_word) {
            let words = Words::new(self.element(values[group.value]), group.members.len());
            let elements = self.builder.unpack(words, group.register.into());
            if found.last().is_none_or(|(value, _)| *value != group.value) {
                found.push((group.value, Vec::new()));
            }
            found.last_mut().expect("it was pushed").1.extend(elements);
        }
        found
    }

    /// Sets the parameters of a body that are carried as words.
    fn unpack_words(&mut self, groups: &[Carried], parameters: &[Value]) {
        for (value, elements) in self.elements_of_words(groups, parameters) {
            self.set(parameters[value], elements);
        }
    }

    /// Returns the copies of the yielded values to the carrying registers.
    fn next(&mut self, groups: &[Carried], region: Block, parameters: &[Value]) -> Vec<Move> {
        let yielded = self.kernel.yielded(region);
        let next = |group: &Carried| {
            if group.is_word {
                let value = yielded[group.value];
                let scalars = self.get_in(value, self.layout_of(parameters[group.value]));
                let elements: Vec<Scalar> = group.members.iter().map(|&(place, _)| scalars[place]).collect();
                let word = self.builder.pack(Words::new(self.element(value), elements.len()), &elements);
                return (group.width, group.register, word);
            }
            let scalars = self.get_in(yielded[group.value], self.layout_of(parameters[group.value]));
            let base = |&(register, offset): &(usize, u64)| {
                scalars[register].plus(group.width, offset.wrapping_neg())
            };
            let first = base(&group.members[0]);
            let is_kept = group.members.iter().all(|member| base(member) == first);
            assert!(is_kept, "adding one amount to all elements keeps their differences");
            (group.width, group.register, first)
        };
        groups.iter().map(next).collect()
    }

    /// Returns whether a value is a parameter plus one amount for all elements. The addition wraps
    /// at the width of a register. Scalars always are.
    fn is_moved_alike(&self, value: Value, parameters: &[Value]) -> bool {
        if parameters.contains(&value) || self.layout_of(value).is_none() {
            return true;
        }
        let kernel = self.kernel;
        let Some(inst) = kernel.defining_inst(value) else { return false };
        let data = &kernel.insts[inst];
        let moved = |place: usize, by: usize| {
            self.is_moved_alike(data.operands[place], parameters) && self.is_uniform(data.operands[by])
        };
        let is_whole_register = memory_bits(self.element(value)) >= 32;
        match &data.op {
            Op::Tile(ir::Op::PtrAdd {}) => moved(0, 1),
            Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Add, .. }) => {
                is_whole_register && (moved(0, 1) || moved(1, 0))
            }
            Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Sub, .. }) => {
                is_whole_register && moved(0, 1)
            }
            Op::Tile(ir::Op::For { .. } | ir::Op::While {} | ir::Op::If {}) => {
                let inner = kernel.carried_by(inst, value).expect("the op defines the value");
                let mut yielded = inner.yielded.iter();
                match inner.initial {
                    Some(initial) => {
                        self.is_moved_alike(initial, parameters)
                            && self.is_moved_alike(inner.yielded[0], &inner.parameters)
                    }
                    None => yielded.all(|value| self.is_moved_alike(*value, parameters)),
                }
            }
            // tidy: wildcard because other ops change the differences, or may change them
            _ => false,
        }
    }

    /// Returns whether all elements of a tile are one scalar. Such tiles are `splat`s, perhaps
    /// reshaped.
    fn is_uniform(&self, value: Value) -> bool {
        let Some(inst) = self.kernel.defining_inst(value) else { return false };
        let data = &self.kernel.insts[inst];
        match data.op.info().family {
            OpFamily::Source => !data.operands.is_empty(),
            OpFamily::Shape => self.is_uniform(data.operands[0]),
            // tidy: wildcard because other ops may compute elements that differ
            _ => false,
        }
    }

    /// Sets a loop's results to the carrying registers, after the loop.
    fn end(&mut self, inst: Inst, groups: &[Carried], parameters: &[Value]) {
        self.unpack_words(groups, parameters);
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

    /// Sets the results to the values that a region yields.
    fn leave(&mut self, inst: Inst, region: Block) {
        for (&result, &value) in self.kernel.insts[inst].results.iter().zip(self.kernel.yielded(region)) {
            let scalars = self.get_in(value, self.layout_of(result));
            self.set(result, scalars);
        }
    }

    /// Lowers a branch, and returns its statements and yielded values.
    fn branch(&mut self, inst: Inst, region: Block) -> Result<Branch, Box<Diagnostic>> {
        self.builder.open();
        self.block(region)?;
        let results = &self.kernel.insts[inst].results;
        let yielded = self.kernel.yielded(region).iter().zip(results);
        let scalars =
            yielded.map(|(&value, &result)| self.get_in(value, self.layout_of(result)).to_vec()).collect();
        Ok((self.builder.close(), scalars))
    }

    fn with_moves(&mut self, lines: Vec<Line>, moves: &[Move]) -> Vec<Line> {
        self.builder.open();
        self.builder.append(lines);
        self.builder.assign_all(moves);
        self.builder.close()
    }

    /// Sets the results of an `if_else`. Returns the copies that each branch needs.
    fn merge(&mut self, inst: Inst, first: &[Vec<Scalar>], second: &[Vec<Scalar>]) -> [Vec<Move>; 2] {
        let mut moves = [Vec::new(), Vec::new()];
        for (index, &result) in self.kernel.insts[inst].results.iter().enumerate() {
            let width = self.width(result);
            let is_sum = self.is_sum(result);
            // The pairs of values that one register merges. A common constant is subtracted from
            // both, and added at the uses.
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

    /// Returns whether a scalar of this value may be a register plus a constant.
    fn is_sum(&self, value: Value) -> bool {
        match self.kernel.ty(value) {
            Type::Registers { tile, .. } => match tile.element {
                Element::Pointer(_) => true,
                Element::Value(dtype) => dtype.is_int() && !dtype.is_bool(),
            },
            Type::Pending { .. } => false,
            Type::Buffer(_)
            | Type::Ring(_)
            | Type::Empty(_)
            | Type::Full(_)
            | Type::Mbarrier { .. }
            | Type::TensorMemory(_) => true,
        }
    }
}

/// Returns whether a loop's last index fits its width. It is at most a step after the bound `end`.
fn fits(width: Width, signed: bool, end: u64, step: u64) -> bool {
    let most = i128::from(width.cut(u64::MAX));
    let (end, step, range) = if signed {
        let half = most / 2;
        (i128::from(width.signed(end)), i128::from(width.signed(step)), -half - 1..=half)
    } else {
        (i128::from(end), i128::from(step), 0..=most)
    };
    range.contains(&(end + step - step.signum()))
}
