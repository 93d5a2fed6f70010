//! Selects instructions for a function, with the code that all processors share.
//!
//! An integer has a general register. A vector has one vector register, or two if its lanes have 64
//! bits: its *parts*. Lanes of 8 or 16 bits are packed in the low bytes. The architecture
//! determines the registers of masks. Each use of a constant loads or computes it again, except
//! that a loop of one block keeps vector constants in free registers.
//!
//! A result with one use, later in the block, may be *pending* until that use, and one machine
//! instruction may do both:
//!
//! ```text
//! v2 = load f32 [v0]
//! v3 = add f32 v1, v2      vaddps v3, v1, [v0]
//! ```

use std::fmt::Debug;

use regalloc2::{MachineEnv, Operand, Output, PReg, PRegSet, RegClass, VReg};
use rustc_hash::FxHashMap;

use crate::{
    Code, CompileError,
    allocate::{Flow, Program},
    constants::Constants,
    ir::{Block, Function, Inst, Lane, Op, Target, Terminator, Type, Value},
    layout::{Layout, MachineBlock},
    loop_constants::{LoopConstants, loop_constants},
    uses::{Position, TERMINATOR, Uses},
};

pub const INTS: RegClass = RegClass::Int;
pub const VECTORS: RegClass = RegClass::Float;

/// An architecture: its registers, the instructions of each operation, and their encoding.
pub trait Machine: Sized + Debug {
    type Plain: Debug;
    type Condition: Copy + Debug;
    type Isa: Copy + Debug;

    const ARGUMENT: usize;
    const RESULT: usize;

    fn environment(isa: Self::Isa) -> MachineEnv;
    /// Returns the registers that a call overwrites, except the register of its result.
    fn call_clobbers(isa: Self::Isa) -> PRegSet;
    /// Returns the sizes of spill slots by class, in units of 8 bytes.
    fn slots(isa: Self::Isa) -> [usize; 3];
    fn vector_registers(isa: Self::Isa) -> usize;
    fn mask_class(isa: Self::Isa) -> RegClass;

    /// Moves a constant to a new general register. Does not change the flags.
    fn int_constant(selector: &mut Selector<'_, Self>, value: i64) -> VReg;
    fn mask_constant(selector: &mut Selector<'_, Self>, value: bool) -> VReg;
    fn vector_constant(selector: &mut Selector<'_, Self>, op: Op, part: usize) -> VReg;
    /// Returns the condition that an integer is not 0. Before its use, only moves may be emitted.
    fn condition(selector: &mut Selector<'_, Self>, value: Value) -> Result<Self::Condition, CompileError>;
    /// Returns whether an operation may be pending until its only use.
    fn may_wait(op: &Op) -> bool;
    /// Selects the instructions of an operation that is not a constant.
    fn operation<'a>(selector: &mut Selector<'a, Self>, inst: &'a Inst) -> Result<(), CompileError>;

    fn negated(condition: Self::Condition) -> Self::Condition;
    fn encode(function: &Assigned<'_, Self>) -> Result<Code, CompileError>;
}

#[derive(Debug)]
pub enum MachineInst<M: Machine> {
    /// Defines the register of the function's argument. The instruction has no code.
    Begin,
    Plain(M::Plain),
    /// Continues with the only successor.
    Jump,
    /// Continues with the first successor if the condition is true, otherwise with the second.
    Branch(M::Condition),
    /// Calls the function at an address.
    Call(usize),
    /// Ends the function. Its result is in [`Machine::RESULT`].
    Return,
}

/// The instructions of a function before register allocation.
#[derive(Debug)]
pub struct Selected<M: Machine> {
    pub program: Program,
    pub insts: Vec<MachineInst<M>>,
    /// The origin of each instruction (`Inst::origin`).
    pub origins: Vec<u32>,
    pub constants: Constants,
    /// The size in bytes of the scratch area at the bottom of the frame.
    pub scratch_bytes: usize,
    /// True if the function has stores that bypass the caches.
    pub has_streaming_stores: bool,
}

#[derive(Debug)]
pub struct Assigned<'a, M: Machine> {
    pub isa: M::Isa,
    pub selected: &'a Selected<M>,
    /// The assigned registers, and the moves between instructions.
    pub output: &'a Output,
    /// True if the encoder records the origins of the instructions.
    pub notes_origins: bool,
}

pub fn select<M: Machine>(
    function: &Function,
    isa: M::Isa,
    uses: &Uses,
    layout: &Layout,
    reachable: &[Block],
) -> Result<Selected<M>, CompileError> {
    let mut selector: Selector<'_, M> = Selector {
        function,
        isa,
        uses,
        out: Selected {
            program: Program::new(&layout.successors, M::call_clobbers(isa), M::slots(isa)),
            insts: Vec::new(),
            origins: Vec::new(),
            constants: Constants::default(),
            scratch_bytes: 0,
            has_streaming_stores: false,
        },
        values: vec![[None; 2]; function.types.len()],
        known: vec![None; function.types.len()],
        pending: Vec::new(),
        position: (Block(0), 0),
        origin: 0,
        mask_parts: FxHashMap::default(),
        loop_constants: FxHashMap::default(),
        hoisted: FxHashMap::default(),
    };
    selector.loop_constants = loop_constants(function, uses, reachable, M::vector_registers(isa), &|value| {
        selector.vectors_of(value)
    });
    for &block in reachable {
        for &parameter in &function.block(block).parameters {
            if uses.is_used(parameter) {
                for part in 0..selector.parts(parameter) {
                    let register = selector.register(selector.class(parameter));
                    selector.set(parameter, part, register);
                }
            }
        }
        for inst in &function.block(block).insts {
            if let (Some(result), true) = (inst.result, is_constant(&inst.op)) {
                selector.known[result.0 as usize] = Some(inst.op);
            }
        }
    }
    for (index, &block) in layout.blocks.iter().enumerate() {
        selector.block(index, block, layout)?;
    }
    Ok(selector.out)
}

/// Returns whether an operation is a constant, which each use loads or computes again.
fn is_constant(op: &Op) -> bool {
    matches!(op, Op::IntConstant(_) | Op::Constant(..) | Op::Iota(_) | Op::MaskConstant(_))
}

pub struct Selector<'a, M: Machine> {
    pub function: &'a Function,
    pub isa: M::Isa,
    pub uses: &'a Uses,
    pub out: Selected<M>,
    /// The registers of the parts of each value.
    values: Vec<[Option<VReg>; 2]>,
    /// The operation of each value that is a constant.
    known: Vec<Option<Op>>,
    pub pending: Vec<(Value, &'a Inst)>,
    pub position: Position,
    origin: u32,
    /// The masks that this block has converted to lanes of another width. The key is the mask, the
    /// bytes of a lane, and the part.
    pub mask_parts: FxHashMap<(Value, usize, usize), VReg>,
    /// The constants that stay in registers in each innermost loop.
    loop_constants: LoopConstants,
    /// The registers of `loop_constants`, by loop, constant and part.
    hoisted: FxHashMap<(Block, Value, usize), VReg>,
}

impl<'a, M: Machine> Selector<'a, M> {
    pub fn parts(&self, value: Value) -> usize {
        match self.function.ty(value) {
            Type::Vector(lane) => lane_parts(lane),
            Type::Int | Type::Mask => 1,
        }
    }

    fn vectors_of(&self, value: Value) -> usize {
        vectors_of::<M>(self.isa, self.function.ty(value))
    }

    pub fn class(&self, value: Value) -> RegClass {
        match self.function.ty(value) {
            Type::Int => INTS,
            Type::Vector(_) => VECTORS,
            Type::Mask => M::mask_class(self.isa),
        }
    }

    pub fn lane(&self, value: Value) -> Result<Lane, CompileError> {
        match self.function.ty(value) {
            Type::Vector(lane) => Ok(lane),
            other => Err(CompileError::Unsupported(format!("an operation on vectors with {other:?}"))),
        }
    }

    pub fn register(&mut self, class: RegClass) -> VReg {
        self.out.program.register(class)
    }

    pub fn vector(&mut self) -> VReg {
        self.register(VECTORS)
    }

    pub fn int(&mut self) -> VReg {
        self.register(INTS)
    }

    pub fn set(&mut self, value: Value, part: usize, register: VReg) {
        self.values[value.0 as usize][part] = Some(register);
    }

    /// Reserves bytes at the bottom of the frame. All instruction sequences share these bytes,
    /// because one ends before the next begins.
    pub fn reserve_scratch(&mut self, bytes: usize) {
        self.out.scratch_bytes = self.out.scratch_bytes.max(bytes);
    }

    pub fn push(&mut self, inst: MachineInst<M>, operands: &[Operand], flow: Flow) {
        let is_call = matches!(inst, MachineInst::Call(_));
        self.out.program.push(operands, flow, is_call);
        self.out.insts.push(inst);
        self.out.origins.push(self.origin);
    }

    /// Returns the operation of a constant, or `None` if the value is not a constant.
    pub fn known(&self, value: Value) -> Option<Op> {
        self.known[value.0 as usize]
    }

    /// Returns the register of a constant that the loop of the current block keeps in a register.
    pub fn hoisted(&self, value: Value, part: usize) -> Option<VReg> {
        let (block, index) = self.position;
        if index == TERMINATOR { None } else { self.hoisted.get(&(block, value, part)).copied() }
    }

    /// Loads or computes the constants of the loop `header`, before a jump that enters it.
    fn hoist_constants(&mut self, from: Block, header: Block) {
        if from == header {
            return;
        }
        for value in self.loop_constants.get(&header).cloned().unwrap_or_default() {
            let Some(op) = self.known(value) else { continue };
            let mut register = M::vector_constant(self, op, 0);
            self.hoisted.insert((header, value, 0), register);
            if self.parts(value) == 2 {
                if matches!(op, Op::Iota(_)) {
                    register = M::vector_constant(self, op, 1);
                }
                self.hoisted.insert((header, value, 1), register);
            }
        }
    }

    /// Returns the value of a constant integer.
    pub fn known_int(&self, value: Value) -> Option<i64> {
        match self.known(value) {
            Some(Op::IntConstant(value)) => Some(value),
            // tidy: wildcard because only constant integers have an integer value
            _ => None,
        }
    }

    /// Returns the bits of a lane of a constant vector with equal lanes.
    pub fn known_bits(&self, value: Value) -> Option<u64> {
        match self.known(value) {
            Some(Op::Constant(_, bits)) => Some(bits),
            // tidy: wildcard because the lanes of other values may differ
            _ => None,
        }
    }

    /// Removes and returns the pending instruction of a value, if there is one.
    pub fn take_pending(&mut self, value: Value) -> Option<&'a Inst> {
        let index = self.pending.iter().position(|&(pending, _)| pending == value)?;
        Some(self.pending.remove(index).1)
    }

    /// Returns the pending instruction of a value, if there is one.
    pub fn find_pending(&self, value: Value) -> Option<&'a Inst> {
        self.pending.iter().find(|&&(pending, _)| pending == value).map(|&(_, inst)| inst)
    }

    /// Emits the pending instruction of a value, if there is one.
    pub fn force(&mut self, value: Value) -> Result<(), CompileError> {
        if let Some(inst) = self.take_pending(value) {
            M::operation(self, inst)?;
        }
        Ok(())
    }

    /// Returns the register of a value that is neither constant nor pending.
    pub fn assigned(&self, value: Value, part: usize) -> Result<VReg, CompileError> {
        self.values[value.0 as usize][part]
            .ok_or_else(|| CompileError::Unsupported(format!("{value:?}, which no instruction defines")))
    }

    /// Returns a register with an integer, or with a part of a vector or mask.
    pub fn read(&mut self, value: Value, part: usize) -> Result<VReg, CompileError> {
        if let Some(register) = self.hoisted(value, part) {
            return Ok(register);
        }
        if let Some(op) = self.known(value) {
            return Ok(match op {
                Op::IntConstant(value) => M::int_constant(self, value),
                Op::MaskConstant(value) => M::mask_constant(self, value),
                // tidy: wildcard because the other constants are vectors
                _ => M::vector_constant(self, op, part),
            });
        }
        self.force(value)?;
        self.assigned(value, part)
    }

    /// Returns the number of bytes of the lanes in one register.
    pub fn register_bytes(&self, lane: Lane) -> usize {
        self.function.lanes * lane.bytes() / lane_parts(lane)
    }

    fn block(&mut self, index: usize, block: MachineBlock, layout: &Layout) -> Result<(), CompileError> {
        self.mask_parts.clear();
        let mut arguments = [Vec::new(), Vec::new()];
        match block {
            MachineBlock::Prologue => {
                self.out.program.begin_block(index, Vec::new());
                let argument = self.int();
                let fixed = PReg::new(M::ARGUMENT, INTS);
                self.push(MachineInst::Begin, &[Operand::reg_fixed_def(argument, fixed)], Flow::Next);
                if self.function.block(Block(0)).parameters.iter().any(|&value| self.uses.is_used(value)) {
                    arguments[0].push(argument);
                }
                self.push(MachineInst::Jump, &[], Flow::Branch);
            }
            MachineBlock::Source(source) => {
                let data = self.function.block(source);
                let mut parameters = Vec::new();
                for &parameter in data.parameters.iter().filter(|&&value| self.uses.is_used(value)) {
                    for part in 0..self.parts(parameter) {
                        parameters.push(self.assigned(parameter, part)?);
                    }
                }
                self.out.program.begin_block(index, parameters);
                for (at, inst) in data.insts.iter().enumerate() {
                    self.position = (source, at as u32);
                    self.origin = inst.origin;
                    self.inst(inst)?;
                }
                self.position = (source, TERMINATOR);
                let Some(terminator) = &data.terminator else {
                    return Err(CompileError::Unsupported(format!("{source:?}, which has no terminator")));
                };
                self.terminator(terminator, &layout.successors[index], layout, &mut arguments)?;
            }
            MachineBlock::Edge(source, jump) => {
                self.out.program.begin_block(index, Vec::new());
                self.position = (source, TERMINATOR);
                let terminator = self.function.block(source).terminator.as_ref();
                if let Some(target) = terminator.into_iter().flat_map(crate::uses::jumps).nth(jump) {
                    self.hoist_constants(source, target.block);
                    arguments[0] = self.arguments(target)?;
                }
                self.push(MachineInst::Jump, &[], Flow::Branch);
            }
        }
        self.out.program.end_block(index, arguments);
        Ok(())
    }

    fn arguments(&mut self, target: &Target) -> Result<Vec<VReg>, CompileError> {
        let mut registers = Vec::new();
        let parameters = &self.function.block(target.block).parameters;
        for (&parameter, &argument) in parameters.iter().zip(&target.arguments) {
            if self.uses.is_used(parameter) {
                for part in 0..self.parts(argument) {
                    registers.push(self.read(argument, part)?);
                }
            }
        }
        Ok(registers)
    }

    fn terminator(
        &mut self,
        terminator: &Terminator,
        successors: &[usize],
        layout: &Layout,
        arguments: &mut [Vec<VReg>; 2],
    ) -> Result<(), CompileError> {
        // Pending arguments are emitted in this block, not in edge blocks.
        for target in crate::uses::jumps(terminator) {
            for &argument in &target.arguments {
                self.force(argument)?;
            }
        }
        for (index, target) in crate::uses::jumps(terminator).enumerate() {
            if !matches!(layout.blocks[successors[index]], MachineBlock::Edge(..)) {
                self.hoist_constants(self.position.0, target.block);
                arguments[index] = self.arguments(target)?;
            }
        }
        match terminator {
            Terminator::Jump(_) => self.push(MachineInst::Jump, &[], Flow::Branch),
            Terminator::Branch(condition, ..) => {
                let condition = M::condition(self, *condition)?;
                self.push(MachineInst::Branch(condition), &[], Flow::Branch);
            }
            Terminator::Return(value) => {
                let value = self.read(*value, 0)?;
                let fixed = Operand::reg_fixed_use(value, PReg::new(M::RESULT, INTS));
                self.push(MachineInst::Return, &[fixed], Flow::Return);
            }
        }
        Ok(())
    }

    /// Returns whether a value has only one use, later in its block.
    fn has_one_local_use(&self, value: Value) -> bool {
        let uses = self.uses.of(value);
        uses.count == 1 && uses.is_local
    }

    fn inst(&mut self, inst: &'a Inst) -> Result<(), CompileError> {
        if is_constant(&inst.op) || !self.uses.is_live(inst) {
            return Ok(());
        }
        if let (true, Some(result)) = (M::may_wait(&inst.op), inst.result)
            && self.has_one_local_use(result)
        {
            self.pending.push((result, inst));
            return Ok(());
        }
        M::operation(self, inst)
    }
}

/// Returns the number of vector registers of a type.
pub fn vectors_of<M: Machine>(isa: M::Isa, ty: Type) -> usize {
    match ty {
        Type::Int => 0,
        Type::Vector(lane) => lane_parts(lane),
        Type::Mask => usize::from(M::mask_class(isa) == VECTORS),
    }
}

pub fn lane_parts(lane: Lane) -> usize {
    if lane.bytes() == 8 { 2 } else { 1 }
}
