//! Selects instructions for a function. This file has the code that is the same for all processors.
//!
//! An integer uses a general register. A vector uses one vector register, or two if its lanes have
//! 64 bits; these registers are the *parts* of the vector. A vector of 8- or 16-bit lanes is packed
//! into the low bytes of its register. The architecture determines the registers of masks.
//!
//! A constant has no register: each use loads the constant from memory or computes it again. Only
//! loops with free registers keep constants in registers.
//!
//! An instruction whose result has only one use, later in the same block, may be *pending* until
//! that use. One machine instruction may then do the work of the pending instruction and of its
//! use. An example is an addition that loads an operand.

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

/// The class of general registers.
pub const INTS: RegClass = RegClass::Int;
/// The class of vector registers.
pub const VECTORS: RegClass = RegClass::Float;

/// An architecture: its registers, the instructions of each operation, and their encoding.
pub trait Machine: Sized + Debug {
    /// An instruction.
    type Plain: Debug;
    /// A condition on the flags.
    type Condition: Copy + Debug;
    /// An instruction set of the architecture.
    type Isa: Copy + Debug;

    /// The register of the first argument of a function.
    const ARGUMENT: usize;
    /// The register of the result of a function.
    const RESULT: usize;

    /// Returns the registers that the allocator may assign.
    fn environment(isa: Self::Isa) -> MachineEnv;
    /// Returns the registers that a call overwrites, except the register of its result.
    fn call_clobbers(isa: Self::Isa) -> PRegSet;
    /// Returns the sizes of spill slots by class, in units of 8 bytes.
    fn slots(isa: Self::Isa) -> [usize; 3];
    /// Returns the number of vector registers.
    fn vector_registers(isa: Self::Isa) -> usize;
    /// Returns the class of the registers of masks.
    fn mask_class(isa: Self::Isa) -> RegClass;

    /// Moves a constant to a new general register. Does not change the flags.
    fn int_constant(selector: &mut Selector<'_, Self>, value: i64) -> VReg;
    /// Sets a new register to a constant mask.
    fn mask_constant(selector: &mut Selector<'_, Self>, value: bool) -> VReg;
    /// Loads or computes a part of a constant vector in a new register.
    fn vector_constant(selector: &mut Selector<'_, Self>, op: Op, part: usize) -> VReg;
    /// Sets the flags, and returns the condition that an integer is not 0. Before the condition is
    /// used, only moves may be emitted.
    fn condition(selector: &mut Selector<'_, Self>, value: Value) -> Result<Self::Condition, CompileError>;
    /// Returns whether an operation may be pending. One machine instruction may then do the work of
    /// the operation and of its only use.
    fn may_wait(op: &Op) -> bool;
    /// Selects the instructions of an operation that is not a constant.
    fn operation<'a>(selector: &mut Selector<'a, Self>, inst: &'a Inst) -> Result<(), CompileError>;

    /// Returns the opposite condition.
    fn negated(condition: Self::Condition) -> Self::Condition;
    /// Encodes a function.
    fn encode(function: &Assigned<'_, Self>) -> Result<Code, CompileError>;
}

/// An instruction before its registers are assigned.
#[derive(Debug)]
pub enum MachineInst<M: Machine> {
    /// Defines the register of the function's argument. The instruction has no code.
    Begin,
    /// An instruction of the processor.
    Plain(M::Plain),
    /// Continues with the only successor.
    Jump,
    /// Continues with the first successor if the condition is true, otherwise with the second
    /// successor.
    Branch(M::Condition),
    /// Calls the function at an address.
    Call(usize),
    /// Ends the function. Its result is in the register [`Machine::RESULT`].
    Return,
}

/// The instructions of a function before register allocation.
#[derive(Debug)]
pub struct Selected<M: Machine> {
    /// The operands of the instructions, and the blocks.
    pub program: Program,
    /// The instructions.
    pub insts: Vec<MachineInst<M>>,
    /// The origin of each instruction, a number for its source position (`Inst::origin`).
    pub origins: Vec<u32>,
    /// The constants in memory.
    pub constants: Constants,
    /// The size in bytes of the scratch area at the bottom of the frame.
    pub scratch_bytes: usize,
    /// True if the function has stores that bypass the caches.
    pub has_streaming_stores: bool,
}

/// A function whose registers are assigned.
#[derive(Debug)]
pub struct Assigned<'a, M: Machine> {
    /// The instruction set.
    pub isa: M::Isa,
    /// The instructions.
    pub selected: &'a Selected<M>,
    /// The assigned registers, and the moves that the allocator inserts between instructions.
    pub output: &'a Output,
    /// True if the encoder records the origins of the instructions.
    pub notes_origins: bool,
}

/// Selects the instructions of a function.
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

/// Returns whether an operation is a constant. Each use loads or computes a constant again.
fn is_constant(op: &Op) -> bool {
    matches!(op, Op::IntConstant(_) | Op::Constant(..) | Op::Iota(_) | Op::MaskConstant(_))
}

/// A function during selection.
pub struct Selector<'a, M: Machine> {
    /// The function.
    pub function: &'a Function,
    /// The instruction set.
    pub isa: M::Isa,
    /// The uses of the function's values.
    pub uses: &'a Uses,
    /// The instructions so far.
    pub out: Selected<M>,
    /// The registers of each value's parts.
    values: Vec<[Option<VReg>; 2]>,
    /// The operation of each value that is a constant.
    known: Vec<Option<Op>>,
    /// The pending instructions of this block, in their order.
    pub pending: Vec<(Value, &'a Inst)>,
    /// The position of the current instruction.
    pub position: Position,
    /// The origin of the current instruction.
    origin: u32,
    /// The registers of masks that were converted in this block to lanes of another width. The key
    /// is the mask, the number of bytes of a lane, and the part.
    pub mask_parts: FxHashMap<(Value, usize, usize), VReg>,
    /// The constants that stay in registers in each innermost loop.
    loop_constants: LoopConstants,
    /// The registers of the constants of `loop_constants`. The key is the block of the loop, the
    /// constant, and the part.
    hoisted: FxHashMap<(Block, Value, usize), VReg>,
}

impl<'a, M: Machine> Selector<'a, M> {
    /// Returns the number of registers of a value.
    pub fn parts(&self, value: Value) -> usize {
        match self.function.ty(value) {
            Type::Vector(lane) => lane_parts(lane),
            Type::Int | Type::Mask => 1,
        }
    }

    /// Returns the number of vector registers of a value.
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

    /// Returns the lane type of a vector.
    pub fn lane(&self, value: Value) -> Result<Lane, CompileError> {
        match self.function.ty(value) {
            Type::Vector(lane) => Ok(lane),
            other => Err(CompileError::Unsupported(format!("an operation on vectors with {other:?}"))),
        }
    }

    /// Creates a register of a class.
    pub fn register(&mut self, class: RegClass) -> VReg {
        self.out.program.register(class)
    }

    /// Creates a vector register.
    pub fn vector(&mut self) -> VReg {
        self.register(VECTORS)
    }

    /// Creates a general register.
    pub fn int(&mut self) -> VReg {
        self.register(INTS)
    }

    /// Sets the register of a part of a value.
    pub fn set(&mut self, value: Value, part: usize, register: VReg) {
        self.values[value.0 as usize][part] = Some(register);
    }

    /// Reserves bytes at the bottom of the frame. All instruction sequences that need such bytes
    /// use the same bytes, because no two of these sequences overlap.
    pub fn reserve_scratch(&mut self, bytes: usize) {
        self.out.scratch_bytes = self.out.scratch_bytes.max(bytes);
    }

    /// Adds an instruction.
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

    /// Returns the register of a part of a constant in the loop of the current block. Returns
    /// `None` if the loop does not keep the constant in a register.
    pub fn hoisted(&self, value: Value, part: usize) -> Option<VReg> {
        let (block, index) = self.position;
        if index == TERMINATOR { None } else { self.hoisted.get(&(block, value, part)).copied() }
    }

    /// Loads or computes the constants of the loop `header`, before a jump that enters the loop
    /// from another block.
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

    /// Returns the value of a constant integer, or `None` for any other value.
    pub fn known_int(&self, value: Value) -> Option<i64> {
        match self.known(value) {
            Some(Op::IntConstant(value)) => Some(value),
            // tidy: wildcard because only constant integers have an integer value
            _ => None,
        }
    }

    /// Returns the bits of one lane of a constant vector with equal lanes. Returns `None` for any
    /// other value.
    pub fn known_bits(&self, value: Value) -> Option<u64> {
        match self.known(value) {
            Some(Op::Constant(_, bits)) => Some(bits),
            // tidy: wildcard because the lanes of other values may differ
            _ => None,
        }
    }

    /// Removes and returns the pending instruction of a value. Returns `None` if the value is not
    /// pending.
    pub fn take_pending(&mut self, value: Value) -> Option<&'a Inst> {
        let index = self.pending.iter().position(|&(pending, _)| pending == value)?;
        Some(self.pending.remove(index).1)
    }

    /// Returns the pending instruction of a value. Returns `None` if the value is not pending.
    pub fn find_pending(&self, value: Value) -> Option<&'a Inst> {
        self.pending.iter().find(|&&(pending, _)| pending == value).map(|&(_, inst)| inst)
    }

    /// Emits the pending instruction of a value by itself. Does nothing if the value is not
    /// pending.
    pub fn force(&mut self, value: Value) -> Result<(), CompileError> {
        if let Some(inst) = self.take_pending(value) {
            M::operation(self, inst)?;
        }
        Ok(())
    }

    /// Returns the register of a part of a value. The value may be neither a constant nor pending.
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

    /// Returns the registers of a jump's arguments.
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
        // Pending arguments are emitted in this block, not in the edge blocks that pass them.
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

    /// Selects the instructions of an operation, or makes the operation pending.
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

/// Returns the number of vector registers of a value of a type.
pub fn vectors_of<M: Machine>(isa: M::Isa, ty: Type) -> usize {
    match ty {
        Type::Int => 0,
        Type::Vector(lane) => lane_parts(lane),
        Type::Mask => usize::from(M::mask_class(isa) == VECTORS),
    }
}

/// Returns the number of registers of a vector.
pub fn lane_parts(lane: Lane) -> usize {
    if lane.bytes() == 8 { 2 } else { 1 }
}
