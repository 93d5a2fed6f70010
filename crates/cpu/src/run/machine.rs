//! Executes the steps of a program on one thread, point by point of the grid.
#![allow(clippy::inline_always, reason = "a value that is constructed in place is not moved through memory")]

use std::cell::{Cell, RefCell};

use smallvec::SmallVec;

use crate::program::{Action, Block, BlockId, Program, Slot, Step, Use};
use crate::run::argument::Argument;
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::interrupt::Control;
use crate::run::kernels::dot::Scratch;
use crate::run::memory::{Region, advise_large_pages, fence_stores};
use crate::run::observer::{End, Observe, Observer, Unit};
use crate::run::ops;
use crate::run::ops::dot::Counter;
use crate::run::ops::nest::NestArgument;
use crate::run::tile::Tile;
use crate::run::value::{Affine, Form, Provenance, Value};
use crate::tuning::LARGER_THAN_CACHES;
use crate::types::TileType;

/// The slots of a running program, and its position in the grid.
pub(crate) struct Machine<'a> {
    pub program: &'a Program,
    pub arguments: &'a [Argument<'a>],
    /// The memory that pointers of unknown provenance may access.
    pub regions: &'a [Region<'a>],
    pub control: Control<'a>,
    pub grid: [u32; 3],
    pub id: [u32; 3],
    programs: usize,
    slots: Vec<Value>,
    /// The values that a block has yielded, for the parameters of the next block or the results of
    /// the step.
    stack: Vec<Value>,
    scratch: Option<Box<Scratch>>,
    /// The arguments of the executed nests, by the index of the nest.
    pub arguments_of_nests: Vec<Option<NestArgument>>,
    /// The addresses of the regions for which huge pages were advised.
    advised: RefCell<SmallVec<[u64; 2]>>,
    observers: Vec<Box<dyn Observer + 'a>>,
    observed_by: &'a [&'a dyn Observe],
}

/// Allocations that a thread reuses for its next machine.
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
    pub(crate) fn new(
        program: &'a Program,
        arguments: &'a [Argument<'a>],
        regions: &'a [Region<'a>],
        grid: [u32; 3],
        control: Control<'a>,
    ) -> Outcome<Self> {
        let mut machine = Self::idle(program, arguments, regions, grid, control);
        for (index, (parameter, argument)) in program.parameters.iter().zip(arguments).enumerate() {
            machine.slots[parameter.slot as usize] =
                Value::of_argument(index, argument, machine.ty(parameter.slot));
        }
        machine.run(program.preamble)?;
        Ok(machine)
    }

    /// Creates a machine whose parameters have no values yet.
    pub(crate) fn idle(
        program: &'a Program,
        arguments: &'a [Argument<'a>],
        regions: &'a [Region<'a>],
        grid: [u32; 3],
        control: Control<'a>,
    ) -> Self {
        let Spare { mut slots, stack, mut scratch } = SPARE.try_with(Cell::take).unwrap_or_default();
        if let Some(scratch) = &mut scratch {
            scratch.begin_launch();
        }
        if slots.len() < program.slots.len() {
            slots.resize(program.slots.len(), Value::EMPTY);
        }
        let programs = grid.iter().fold(1_usize, |count, &extent| count.saturating_mul(extent as usize));
        let advised = RefCell::default();
        Self {
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
            arguments_of_nests: Vec::new(),
            advised,
            observers: Vec::new(),
            observed_by: &[],
        }
    }

    /// Runs the program once, at a point of the grid, and returns its results.
    pub(crate) fn evaluate(
        &mut self,
        id: [u32; 3],
        inputs: impl IntoIterator<Item = Value>,
    ) -> Outcome<SmallVec<[Value; 1]>> {
        self.id = id;
        for (parameter, value) in self.program.parameters.iter().zip(inputs) {
            self.slots[parameter.slot as usize] = value;
        }
        self.run(self.program.preamble)?;
        self.run(self.program.body)?;
        let results = &self.block(self.program.body).yields;
        Ok(results.iter().map(|&result| self.take(result)).collect())
    }

    /// Runs the program at a point of the grid and at up to `most - 1` points after it along x.
    /// Returns the number of programs, at least 1.
    pub(crate) fn run_from(&mut self, id: [u32; 3], most: u32) -> Outcome<u32> {
        if let Some(nest) = self.program.whole_nest()
            && self.observers.is_empty()
            && self.control.machine_code
        {
            self.id = id;
            let executed = ops::nest::execute_repeatedly(self, nest, most);
            if executed > 0 {
                return Ok(executed);
            }
        }
        self.run_at(id).map(|()| 1)
    }

    /// Runs the program at a point of the grid.
    pub(crate) fn run_at(&mut self, id: [u32; 3]) -> Outcome {
        self.id = id;
        if self.observers.is_empty() {
            return self.run(self.program.body);
        }
        self.notify(|observer, machine| observer.begin(machine));
        let outcome = self.run(self.program.body);
        self.notify_in_reverse(|observer, _| observer.end(outcome.is_err()));
        outcome
    }

    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Creates the observers that this machine calls from its next program on.
    pub(crate) fn observe(&mut self, by: &'a [&'a dyn Observe]) {
        self.observed_by = by;
        self.observers = by.iter().map(|observed| observed.observer()).collect();
    }

    fn notify(&mut self, mut call: impl FnMut(&mut (dyn Observer + 'a), &Self)) {
        let mut observers = std::mem::take(&mut self.observers);
        for observer in &mut observers {
            call(&mut **observer, self);
        }
        self.observers = observers;
    }

    /// Calls each observer, the last one first.
    fn notify_in_reverse(&mut self, mut call: impl FnMut(&mut (dyn Observer + 'a), &Self)) {
        let mut observers = std::mem::take(&mut self.observers);
        for observer in observers.iter_mut().rev() {
            call(&mut **observer, self);
        }
        self.observers = observers;
    }

    /// Records a load from padding.
    #[cold]
    pub(crate) fn note_padded_read(&self, fault: Box<Fault>, step: &Step) {
        if let Some(padded) = self.control.padded {
            let [x, y, z] = self.id.map(u64::from);
            let [along_x, along_y, _] = self.grid.map(u64::from);
            padded.note(x + along_x * (y + along_y * z), fault.in_step(step));
        }
    }

    /// Returns whether no program of the launch can change the memory of a region.
    pub(crate) fn is_constant(&self, region: &Region<'_>) -> bool {
        let written = self.program.written.as_ref();
        written.is_some_and(|parameters| {
            parameters.iter().all(|&index| match &self.arguments[index] {
                Argument::Pointer { region: written, .. } => !written.overlaps(region),
                Argument::Scalar(_) => false,
            })
        })
    }

    pub(crate) fn ty(&self, slot: Slot) -> &'a TileType {
        self.program.ty(slot)
    }

    pub(crate) fn type_of(&self, operand: Use) -> &'a TileType {
        &self.program.types[operand.ty as usize]
    }

    /// Returns the form of an operand, without moving it out. The caller need not release the slot
    /// of a symbolic form, which holds no memory.
    #[inline]
    pub(crate) fn form(&self, operand: Use) -> &Form {
        &self.slots[operand.slot as usize].form
    }

    /// Returns the value of an operand without moving it out.
    pub(crate) fn value(&self, operand: Use) -> &Value {
        &self.slots[operand.slot as usize]
    }

    pub(crate) fn value_of(&self, slot: Slot) -> &Value {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn form_of(&self, slot: Slot) -> &Form {
        &self.slots[slot as usize].form
    }

    #[inline]
    pub(crate) fn provenance(&self, operand: Use) -> Provenance {
        self.slots[operand.slot as usize].provenance
    }

    /// Returns the value of an operand, moved out if this is its last use.
    #[inline]
    pub(crate) fn take(&mut self, operand: Use) -> Value {
        let slot = &mut self.slots[operand.slot as usize];
        if operand.last { std::mem::replace(slot, Value::EMPTY) } else { slot.clone() }
    }

    /// Empties the slots that a step uses for the last time, for steps that do not move their
    /// operands out.
    pub(crate) fn release(&mut self, operands: &[Use]) {
        for operand in operands.iter().filter(|operand| operand.last) {
            self.slots[operand.slot as usize] = Value::EMPTY;
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.slots[slot as usize] = Value::EMPTY;
        }
    }

    pub(crate) fn take_optional(&mut self, step: &Step, index: usize) -> Option<Value> {
        step.operands.get(index).map(|&operand| self.take(operand))
    }

    /// Returns the tile of a dense operand, moved out at its last use. Returns `None` for other
    /// forms.
    #[inline(always)]
    pub(crate) fn take_tile(&mut self, operand: Use) -> Option<Tile> {
        match &mut self.slots[operand.slot as usize].form {
            // The dead slot keeps an empty tile.
            Form::Dense(tile) if operand.last => Some(std::mem::take(tile)),
            Form::Dense(tile) => Some(tile.clone()),
            Form::Uniform(_) | Form::Affine(_) | Form::Box(_) | Form::InPlace(_) => None,
        }
    }

    /// Returns a tile of `bytes` bytes to write. Reuses the tile that is still in the slot, if it
    /// has this size and no other owner.
    #[inline(always)]
    pub(crate) fn tile_for(&mut self, slot: Slot, bytes: usize) -> Tile {
        match &mut self.slots[slot as usize].form {
            Form::Dense(tile) if tile.bytes().len() == bytes && tile.is_unique() => std::mem::take(tile),
            _ => Tile::new(bytes),
        }
    }

    /// Sets a slot. It is inlined, so that the value is constructed in the slot: moving the value
    /// would take longer than computing it.
    #[inline(always)]
    pub(crate) fn set(&mut self, slot: Slot, value: Value) {
        if self.program.symbolic {
            self.slots[slot as usize] = value;
        } else {
            self.slots[slot as usize] = self.materialized(slot, value);
        }
    }

    #[inline(always)]
    pub(crate) fn set_uniform(&mut self, slot: Slot, bits: u64) {
        if self.program.symbolic {
            let value = &mut self.slots[slot as usize];
            value.form = Form::Uniform(bits);
            value.provenance = Provenance::UNKNOWN;
        } else {
            self.set(slot, Value::uniform(bits));
        }
    }

    #[inline(always)]
    pub(crate) fn set_pointer(&mut self, slot: Slot, address: u64, provenance: Provenance) {
        self.set_uniform(slot, address);
        self.slots[slot as usize].provenance = provenance;
    }

    #[inline(always)]
    pub(crate) fn set_pointers(&mut self, slot: Slot, pointers: Affine, provenance: Provenance) {
        if self.program.symbolic {
            let value = &mut self.slots[slot as usize];
            value.form = Form::Affine(pointers);
            value.provenance = provenance;
        } else {
            self.set(slot, Value::from(Form::Affine(pointers)).with_provenance(provenance));
        }
    }

    #[inline(always)]
    pub(crate) fn set_dense(&mut self, slot: Slot, tile: Tile) {
        let value = &mut self.slots[slot as usize];
        value.form = Form::Dense(tile);
        value.provenance = Provenance::UNKNOWN;
    }

    #[cold]
    fn materialized(&self, slot: Slot, value: Value) -> Value {
        let ty = self.ty(slot);
        if ty.is_scalar() {
            return value;
        }
        let provenance = value.provenance;
        Value::dense(ops::materialize::materialize(ty, value)).with_provenance(provenance)
    }

    /// Returns whether stores to a region should be non-temporal, if each program stores `bytes`
    /// bytes. They should be if the launch stores more than the caches hold. In that case, also
    /// advises huge pages for the region.
    #[inline]
    pub(crate) fn non_temporal(&self, region: &Region<'_>, bytes: usize) -> bool {
        let is_large =
            region.len() >= LARGER_THAN_CACHES && bytes.saturating_mul(self.programs) >= LARGER_THAN_CACHES;
        if is_large && !self.advised.borrow().contains(&region.address()) {
            self.advised.borrow_mut().push(region.address());
            advise_large_pages(region);
        }
        is_large
    }

    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }

    /// Executes the steps of a block whose parameters are set.
    pub(crate) fn run(&mut self, block: BlockId) -> Outcome {
        if !self.observers.is_empty() {
            return self.run_observed(block);
        }
        let block: &'a Block = &self.program.blocks[block as usize];
        self.clear(&block.kills);
        let mut steps = &block.steps[..];
        while let [step, rest @ ..] = steps {
            steps = rest;
            if let Action::Fused(group) = &step.action {
                let (members, others) = rest.split_at(group.members);
                if ops::fused::execute(self, group, members)? {
                    steps = others;
                }
                continue;
            }
            if let Action::Nest(nest) = &step.action {
                if self.control.machine_code && ops::nest::execute(self, nest) {
                    steps = &rest[nest.members..];
                }
                continue;
            }
            self.single(step)?;
        }
        Ok(())
    }

    /// Executes the steps of a block, with the observers around each step.
    #[cold]
    fn run_observed(&mut self, id: BlockId) -> Outcome {
        let block = self.block(id);
        self.clear(&block.kills);
        self.notify(|observer, machine| observer.enter(machine, id));
        let mut next = 0;
        while next < block.steps.len() {
            let unit = Unit::at(id, block, next);
            next += 1;
            let (is_group, is_allowed) = match unit.step().action {
                Action::Fused(_) => (true, self.observers.iter().all(|observer| observer.allows_fusion())),
                Action::Nest(_) => {
                    let all_allow = self.observers.iter().all(|observer| observer.allows_nests());
                    (true, all_allow && self.control.machine_code)
                }
                // tidy: wildcard because the other actions execute one step
                _ => (false, true),
            };
            if !is_allowed {
                continue;
            }
            if let Action::Nest(nest) = &unit.step().action {
                for step in self.observed_by.iter().flat_map(|by| by.before_nest(nest)) {
                    // A fault leaves the observers without a result. The machine reports it when it
                    // executes the nest or its members.
                    let _ = ops::execute(self, step);
                }
            }
            self.notify(|observer, machine| observer.before(machine, &unit));
            let outcome = self.unit(&unit);
            let end = match outcome {
                Ok(true) => End::Done,
                Ok(false) => End::LeftToMembers,
                Err(_) => End::Failed,
            };
            self.notify_in_reverse(|observer, machine| observer.after(machine, &unit, end));
            if outcome? {
                next = unit.members.end;
                if !is_group {
                    self.clear(&unit.step().kills);
                }
            }
        }
        Ok(())
    }

    /// Executes a step, a nest or a fused group. Returns false, without an effect, if the operands
    /// do not allow the nest or the fused group.
    fn unit(&mut self, unit: &Unit<'a>) -> Outcome<bool> {
        match &unit.step().action {
            Action::Fused(group) => ops::fused::execute(self, group, unit.steps()),
            Action::Nest(nest) => Ok(ops::nest::execute(self, nest)),
            Action::Op(_)
            | Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Sort(_)
            | Action::Assembly(_) => {
                ops::execute(self, unit.step()).map_err(|fault| fault.in_step(unit.step()))?;
                Ok(true)
            }
        }
    }

    /// Executes a single step. It is inlined with the match on ops, because a call per step costs
    /// measurable time.
    #[inline(always)]
    pub(crate) fn single(&mut self, step: &'a Step) -> Outcome {
        ops::execute(self, step).map_err(|fault| fault.in_step(step))?;
        self.clear(&step.kills);
        Ok(())
    }

    pub(crate) fn block(&self, block: BlockId) -> &'a Block {
        &self.program.blocks[block as usize]
    }

    pub(crate) fn push(&mut self, uses: &[Use]) {
        for &operand in uses {
            let value = self.take(operand);
            self.stack.push(value);
        }
    }

    /// Moves the last values of the stack to slots.
    pub(crate) fn pop_into(&mut self, slots: &[Slot]) {
        let first = self.stack.len() - slots.len();
        for (value, &slot) in self.stack.drain(first..).zip(slots) {
            self.slots[slot as usize] = value;
        }
    }

    /// Runs a loop. The counter has 128 bits, so that it does not wrap.
    pub(crate) fn for_loop(&mut self, step: &'a Step) -> Outcome {
        let body = step.blocks[0];
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
        if let Some(product) = &block.product
            && stride > 0
        {
            let iterations = usize::try_from((upper - lower + stride - 1) / stride).unwrap_or(0);
            let values = Counter { number, lower, stride, iterations };
            counter += stride * self.multiply_first_iterations(block, product, values)? as i128;
        }
        while if stride > 0 { counter < upper } else { counter > upper } {
            self.pop_into(parameters);
            self.slots[*index as usize] = Value::uniform(number.truncate(counter as u64));
            let left = (upper - counter).unsigned_abs().div_ceil(stride.unsigned_abs());
            let executed = self.run_iterations(body, u32::try_from(left).unwrap_or(u32::MAX))?;
            self.push(&block.yields);
            self.control.check()?;
            counter += stride * i128::from(executed);
        }
        self.pop_into(&step.results);
        Ok(())
    }

    /// Runs up to `most` iterations. The parameters of the body are set for the first iteration.
    /// Afterwards, the yielded slots have the values of the last iteration. Returns the number of
    /// iterations, at least 1.
    fn run_iterations(&mut self, body: BlockId, most: u32) -> Outcome<u32> {
        if let Some((nest, bound)) = self.program.iterated_nest(body)
            && self.observers.is_empty()
            && self.control.machine_code
        {
            let executed = ops::nest::execute_repeatedly(self, nest, most.min(bound));
            if executed > 0 {
                return Ok(executed);
            }
        }
        self.run(body).map(|()| 1)
    }

    pub(crate) fn while_loop(&mut self, step: &'a Step) -> Outcome {
        let (condition, body) = (step.blocks[0], step.blocks[1]);
        let may_wait = self.program.waiting_loops.contains(&condition);
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
            if may_wait {
                self.control.wait()?;
            } else {
                self.control.check()?;
            }
        }
        self.pop_into(&step.results);
        Ok(())
    }

    pub(crate) fn if_else(&mut self, step: &'a Step) -> Outcome {
        let is_false = self.take(step.operands[0]).scalar() == 0;
        let chosen = step.blocks[usize::from(is_false)];
        self.run(chosen)?;
        self.push(&self.block(chosen).yields);
        self.pop_into(&step.results);
        Ok(())
    }

    /// Sets the parameters of a block, runs it, and leaves its yields on the stack.
    pub(crate) fn call(&mut self, block: BlockId, parameters: impl IntoIterator<Item = Value>) -> Outcome {
        let data = self.block(block);
        for (value, &slot) in parameters.into_iter().zip(&data.parameters) {
            self.slots[slot as usize] = value;
        }
        self.run(block)?;
        self.push(&data.yields);
        Ok(())
    }

    pub(crate) fn assign(&mut self, slot: Slot, value: Value) {
        self.slots[slot as usize] = value;
    }

    /// Returns the last `count` values of the stack, which a loop carries.
    pub(crate) fn carried(&mut self, count: usize) -> &mut [Value] {
        let first = self.stack.len() - count;
        &mut self.stack[first..]
    }

    pub(crate) fn pop(&mut self) -> Value {
        self.stack.pop().unwrap_or(Value::EMPTY)
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        fence_stores();
        // Nothing reads the values any more. Only dense tiles hold memory.
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
        // While the thread ends, the thread-local may no longer exist.
        let _ = SPARE.try_with(|kept| kept.set(spare));
    }
}
