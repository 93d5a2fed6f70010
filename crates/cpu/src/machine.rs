//! The machine of one thread: executes the steps of a program for one point of the grid after the other.
#![allow(clippy::inline_always, reason = "a value that is not returned through memory is not moved there")]

use std::cell::{Cell, RefCell};

use smallvec::SmallVec;

use crate::fault::{Fault, FaultKind, Outcome};
use crate::kernels::dot::Scratch;
use crate::launch::{Argument, Control};
use crate::memory::{Region, advise_large_pages, finish_stores};
use crate::ops;
use crate::program::{Action, Block, BlockId, Program, Slot, Step, Use};
use crate::tile::Tile;
use crate::value::{Affine, Form, Source, TileType, Value};

/// The values of a program and where it stands in the grid.
pub(crate) struct Machine<'a> {
    pub program: &'a Program,
    pub arguments: &'a [Argument<'a>],
    /// The memory of all arguments, for pointers of unknown origin.
    pub regions: &'a [Region<'a>],
    pub control: Control<'a>,
    grid: [u32; 3],
    pub id: [u32; 3],
    /// The number of programs of the launch.
    programs: usize,
    slots: Vec<Value>,
    /// Values on the way from the end of a region to its beginning or to the results.
    stack: Vec<Value>,
    scratch: Option<Box<Scratch>>,
    /// The addresses of regions for which large pages were asked.
    advised: RefCell<SmallVec<[u64; 2]>>,
}

/// As many bytes as the caches of common processors do not hold.
const LARGER_THAN_CACHES: usize = 48 << 20;

/// What a thread keeps from one machine to the next, so that nothing is allocated.
#[derive(Default)]
struct Spare {
    slots: Vec<Value>,
    stack: Vec<Value>,
    scratch: Option<Box<Scratch>>,
}

thread_local! {
    static SPARE: Cell<Spare> =
        const { Cell::new(Spare { slots: Vec::new(), stack: Vec::new(), scratch: None }) };
}

impl<'a> Machine<'a> {
    /// A machine that has run the preamble. Fails as a step may fail.
    pub(crate) fn new(
        program: &'a Program,
        arguments: &'a [Argument<'a>],
        regions: &'a [Region<'a>],
        grid: [u32; 3],
        control: Control<'a>,
    ) -> Outcome<Self> {
        let Spare { mut slots, stack, scratch } = SPARE.try_with(Cell::take).unwrap_or_default();
        if slots.len() < program.slots.len() {
            slots.resize(program.slots.len(), Value::EMPTY);
        }
        let programs = grid.iter().fold(1_usize, |count, &extent| count.saturating_mul(extent as usize));
        let advised = RefCell::default();
        let mut machine = Self {
            program,
            arguments,
            regions,
            control,
            grid,
            id: [0; 3],
            programs,
            slots,
            stack,
            scratch,
            advised,
        };
        for (index, (parameter, argument)) in program.parameters.iter().zip(arguments).enumerate() {
            let value = match argument {
                Argument::Pointer { address, .. } => {
                    Value::uniform(*address).with_source(Source::argument(index))
                }
                Argument::Scalar(bits) => Value::uniform(machine.ty(parameter.slot).number.truncate(*bits)),
            };
            machine.slots[parameter.slot as usize] = value;
        }
        machine.run(program.preamble)?;
        Ok(machine)
    }

    /// Runs the program at a point of the grid.
    pub(crate) fn run_at(&mut self, id: [u32; 3]) -> Outcome {
        self.id = id;
        self.run(self.program.body)
    }

    /// The type of a slot.
    pub(crate) fn ty(&self, slot: Slot) -> &'a TileType {
        self.program.ty(slot)
    }

    /// The type of an operand.
    pub(crate) fn type_of(&self, operand: Use) -> &'a TileType {
        &self.program.types[operand.ty as usize]
    }

    /// What is known of an operand, which stays where it is. To leave a symbolic form behind in a slot that nobody reads
    /// any more does no harm.
    #[inline]
    pub(crate) fn form(&self, operand: Use) -> &Form {
        &self.slots[operand.slot as usize].form
    }

    /// What is known of the value of a slot.
    #[inline]
    pub(crate) fn form_of(&self, slot: Slot) -> &Form {
        &self.slots[slot as usize].form
    }

    /// Where the pointers of an operand come from.
    #[inline]
    pub(crate) fn source(&self, operand: Use) -> Source {
        self.slots[operand.slot as usize].source
    }

    /// The value of an operand: moved out if this is its last use.
    #[inline]
    pub(crate) fn take(&mut self, operand: Use) -> Value {
        let slot = &mut self.slots[operand.slot as usize];
        if operand.last { std::mem::replace(slot, Value::EMPTY) } else { slot.clone() }
    }

    /// Lets go of operands that were looked at and not taken.
    pub(crate) fn release(&mut self, operands: &[Use]) {
        for operand in operands.iter().filter(|operand| operand.last) {
            self.slots[operand.slot as usize] = Value::EMPTY;
        }
    }

    /// Lets go of what slots hold.
    #[inline]
    pub(crate) fn clear(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.slots[slot as usize] = Value::EMPTY;
        }
    }

    /// The operand with this number, if it is there.
    pub(crate) fn take_optional(&mut self, step: &Step, index: usize) -> Option<Value> {
        step.operands.get(index).map(|&operand| self.take(operand))
    }

    /// The tile of an operand that is dense: moved out if this is its last use. None if it has another form.
    #[inline(always)]
    pub(crate) fn take_tile(&mut self, operand: Use) -> Option<Tile> {
        match &mut self.slots[operand.slot as usize].form {
            // What stays behind is an empty tile, which nobody reads.
            Form::Dense(tile) if operand.last => Some(std::mem::take(tile)),
            Form::Dense(tile) => Some(tile.clone()),
            Form::Uniform(_) | Form::Affine(_) | Form::Box(_) => None,
        }
    }

    /// The tile that a slot had in the program before, or else a new one of so many bytes. It is to be written.
    #[inline(always)]
    pub(crate) fn tile_for(&mut self, slot: Slot, bytes: usize) -> Tile {
        match &mut self.slots[slot as usize].form {
            Form::Dense(tile) if tile.bytes().len() == bytes && tile.is_unique() => std::mem::take(tile),
            _ => Tile::new(bytes),
        }
    }

    /// Gives a slot its value. It is made in place: a value is large for something that is moved so often.
    #[inline(always)]
    pub(crate) fn set(&mut self, slot: Slot, value: Value) {
        if self.program.symbolic {
            self.slots[slot as usize] = value;
        } else {
            self.slots[slot as usize] = self.written_out(slot, value);
        }
    }

    /// Gives a slot a value whose elements are all the same, and of no known origin.
    #[inline(always)]
    pub(crate) fn set_uniform(&mut self, slot: Slot, bits: u64) {
        if self.program.symbolic {
            let value = &mut self.slots[slot as usize];
            value.form = Form::Uniform(bits);
            value.source = Source::UNKNOWN;
        } else {
            self.set(slot, Value::uniform(bits));
        }
    }

    /// Gives a slot pointers that are all the same.
    #[inline(always)]
    pub(crate) fn set_pointer(&mut self, slot: Slot, address: u64, source: Source) {
        self.set_uniform(slot, address);
        self.slots[slot as usize].source = source;
    }

    /// Gives a slot pointers in arithmetic progression.
    #[inline(always)]
    pub(crate) fn set_pointers(&mut self, slot: Slot, pointers: Affine, source: Source) {
        if self.program.symbolic {
            let value = &mut self.slots[slot as usize];
            value.form = Form::Affine(pointers);
            value.source = source;
        } else {
            self.set(slot, Value::from(Form::Affine(pointers)).with_source(source));
        }
    }

    /// Gives a slot a value that is written out, and of no known origin.
    #[inline(always)]
    pub(crate) fn set_dense(&mut self, slot: Slot, tile: Tile) {
        let value = &mut self.slots[slot as usize];
        value.form = Form::Dense(tile);
        value.source = Source::UNKNOWN;
    }

    #[cold]
    fn written_out(&self, slot: Slot, value: Value) -> Value {
        let ty = self.ty(slot);
        if ty.is_scalar() {
            return value;
        }
        let source = value.source;
        Value::dense(ops::dense::write_out(ty, value)).with_source(source)
    }

    /// Whether a store of so many bytes by each program of the launch to a region is one of so much data that the first
    /// of it has left the caches before anybody can read it.
    #[inline]
    pub(crate) fn passes_caches(&self, region: &Region<'_>, bytes: usize) -> bool {
        let passes =
            region.len() >= LARGER_THAN_CACHES && bytes.saturating_mul(self.programs) >= LARGER_THAN_CACHES;
        if passes && !self.advised.borrow().contains(&region.address()) {
            self.advised.borrow_mut().push(region.address());
            advise_large_pages(region);
        }
        passes
    }

    /// Memory for products of tiles.
    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }

    /// Executes the steps of a block. Its parameters are set.
    pub(crate) fn run(&mut self, block: BlockId) -> Outcome {
        let block: &'a Block = &self.program.blocks[block as usize];
        self.clear(&block.kills);
        let mut steps = &block.steps[..];
        while let [step, rest @ ..] = steps {
            steps = rest;
            if let Action::Chain(chain) = &step.action {
                let (members, others) = rest.split_at(chain.members);
                if ops::chain::chain(self, chain, members)? {
                    steps = others;
                }
                continue;
            }
            self.single(step)?;
        }
        Ok(())
    }

    /// Executes a step by itself.
    pub(crate) fn single(&mut self, step: &'a Step) -> Outcome {
        self.step(step).map_err(|fault| fault.in_step(step))?;
        self.clear(&step.kills);
        Ok(())
    }

    /// The block with this number.
    pub(crate) fn block(&self, block: BlockId) -> &'a Block {
        &self.program.blocks[block as usize]
    }

    fn step(&mut self, step: &'a Step) -> Outcome {
        match &step.action {
            Action::Constant(bits) => self.set_uniform(step.results[0], *bits),
            Action::ProgramId(axis) => {
                self.set_uniform(step.results[0], self.id[*axis as usize].into());
            }
            Action::NumPrograms(axis) => {
                self.set_uniform(step.results[0], self.grid[*axis as usize].into());
            }
            Action::Arange(start) => ops::shape::arange(self, step, *start),
            Action::Splat => ops::shape::splat(self, step),
            Action::ExpandDims(axis) => ops::shape::expand_dims(self, step, *axis),
            Action::Broadcast => ops::shape::broadcast(self, step),
            Action::Reshape => ops::shape::reshape(self, step),
            Action::Transpose(permutation) => ops::shape::transpose(self, step, permutation),
            Action::Elementwise(function) => ops::elementwise::elementwise(self, step, *function),
            Action::Cast(rounding) => ops::cast::cast(self, step, *rounding),
            Action::Bitcast => ops::cast::bitcast(self, step),
            Action::PtrAdd => ops::cast::ptr_add(self, step),
            Action::Load(_) => return ops::memory::load(self, step),
            Action::Store => return ops::memory::store(self, step),
            Action::Dot(transposed) => ops::dot::dot(self, step, *transposed),
            Action::Reduce(reduce) => return ops::reduce::reduce(self, step, reduce),
            Action::Assert(message) => return ops::control::assert(self, step, message),
            Action::For(body) => return self.for_loop(step, *body),
            Action::While(condition, body) => return self.while_loop(step, *condition, *body),
            Action::If(then, otherwise) => return self.if_else(step, *then, *otherwise),
            // `run` treats it, because it passes over steps.
            Action::Chain(_) => {}
        }
        Ok(())
    }

    /// Puts operands onto the stack.
    pub(crate) fn push(&mut self, uses: &[Use]) {
        for &operand in uses {
            let value = self.take(operand);
            self.stack.push(value);
        }
    }

    /// Moves as many values as there are slots from the stack to them.
    pub(crate) fn pop_into(&mut self, slots: &[Slot]) {
        let first = self.stack.len() - slots.len();
        for (value, &slot) in self.stack.drain(first..).zip(slots) {
            self.slots[slot as usize] = value;
        }
    }

    /// Counts from lower to upper, in the mathematical sense: the counter does not wrap.
    fn for_loop(&mut self, step: &'a Step, body: BlockId) -> Outcome {
        let [lower, upper, stride, carried @ ..] = &step.operands[..] else {
            unreachable!("the verifier checks that a loop has bounds")
        };
        let number = self.type_of(*lower).number;
        let [lower, upper, stride] = [lower, upper, stride].map(|&operand| {
            let bits = self.take(operand).scalar();
            if number.is_signed() { i128::from(number.extend(bits)) } else { i128::from(bits) }
        });
        if stride == 0 {
            return Err(Fault::new(FaultKind::LoopStep));
        }
        self.push(carried);
        let block = self.block(body);
        let [index, parameters @ ..] = &block.parameters[..] else {
            unreachable!("the verifier checks that the body takes the counter")
        };
        let mut counter = lower;
        while if stride > 0 { counter < upper } else { counter > upper } {
            self.pop_into(parameters);
            self.slots[*index as usize] = Value::uniform(number.truncate(counter as u64));
            self.run(body)?;
            self.push(&block.yields);
            self.control.check()?;
            counter += stride;
        }
        self.pop_into(&step.results);
        Ok(())
    }

    fn while_loop(&mut self, step: &'a Step, condition: BlockId, body: BlockId) -> Outcome {
        self.push(&step.operands);
        let (condition_block, body_block) = (self.block(condition), self.block(body));
        loop {
            let first = self.stack.len() - step.operands.len();
            for (index, &slot) in condition_block.parameters.iter().enumerate() {
                self.slots[slot as usize] = self.stack[first + index].clone();
            }
            self.run(condition)?;
            if self.take(condition_block.yields[0]).scalar() == 0 {
                break;
            }
            self.pop_into(&body_block.parameters);
            self.run(body)?;
            self.push(&body_block.yields);
            self.control.check()?;
        }
        self.pop_into(&step.results);
        Ok(())
    }

    fn if_else(&mut self, step: &'a Step, then: BlockId, otherwise: BlockId) -> Outcome {
        let chosen = if self.take(step.operands[0]).scalar() == 0 { otherwise } else { then };
        self.run(chosen)?;
        self.push(&self.block(chosen).yields);
        self.pop_into(&step.results);
        Ok(())
    }

    /// Sets the parameters of a block, runs it, and leaves what it yields on the stack.
    pub(crate) fn call(&mut self, block: BlockId, parameters: impl IntoIterator<Item = Value>) -> Outcome {
        let data = self.block(block);
        for (value, &slot) in parameters.into_iter().zip(&data.parameters) {
            self.slots[slot as usize] = value;
        }
        self.run(block)?;
        self.push(&data.yields);
        Ok(())
    }

    /// The last value of the stack.
    pub(crate) fn pop(&mut self) -> Value {
        self.stack.pop().unwrap_or(Value::EMPTY)
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        finish_stores();
        // Whatever is in the slots is never read again; what matters is that buffers are let go.
        let slots = &mut self.slots[..self.program.slots.len()];
        for value in slots.iter_mut().filter(|value| matches!(value.form, Form::Dense(_))) {
            *value = Value::EMPTY;
        }
        self.stack.clear();
        let spare = Spare {
            slots: std::mem::take(&mut self.slots),
            stack: std::mem::take(&mut self.stack),
            scratch: self.scratch.take(),
        };
        // While the thread ends there is nothing to keep it for.
        let _ = SPARE.try_with(|kept| kept.set(spare));
    }
}
