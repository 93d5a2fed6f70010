//! Selects instructions for the operations of a function.
//!
//! An integer is a general register. A vector is one vector register, or two if its lanes have 64
//! bits: its parts. Lanes of 8 and 16 bits are in the low bits of the register. A mask is a mask
//! register with AVX-512; with AVX2 it is a vector register of 32-bit lanes, all ones or zeros.
//!
//! Constants have no register of their own, except in loops with free registers: each use reads them
//! from memory or makes them again. A load or a comparison of integers with one use in its block is pending until that use, which may
//! include it in its own instruction.

mod access;
mod convert;
mod integer;
mod mask;
mod vector;

use iced_x86::Code as C;
use regalloc2::{Operand, PReg, RegClass, VReg};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    constants::Constants,
    instruction::{Arg, Condition, MachineInst, Masking, Memory, imm8, plain},
    registers::{self, INTS, MASKS, RAX, Size, VECTORS},
    tables,
};
use crate::{
    CompileError, Isa,
    allocate::{Flow, Program},
    ir::{Block, Function, Inst, Lane, Op, Target, Terminator, Type, Value},
    layout::{Layout, MachineBlock},
    loop_constants::{LoopConstants, loop_constants},
    uses::{Position, TERMINATOR, Uses},
};

/// The instructions of a function before register allocation.
#[derive(Debug)]
pub struct Selected {
    /// The operands of the instructions, and the blocks.
    pub program: Program,
    /// The instructions.
    pub insts: Vec<MachineInst>,
    /// The constants in memory.
    pub constants: Constants,
    /// The size of the scratch area in bytes.
    pub scratch_bytes: usize,
    /// True if the function has stores that bypass the caches.
    pub has_streaming_stores: bool,
}

/// Selects the instructions of a function.
pub fn select(
    function: &Function,
    isa: Isa,
    uses: &Uses,
    layout: &Layout,
    reachable: &[Block],
) -> Result<Selected, CompileError> {
    let mut selector = Selector {
        function,
        isa,
        uses,
        out: Selected {
            program: Program::new(&layout.successors, registers::call_clobbers(isa), registers::slots(isa)),
            insts: Vec::new(),
            constants: Constants::default(),
            scratch_bytes: 0,
            has_streaming_stores: false,
        },
        values: vec![[None; 2]; function.types.len()],
        known: vec![None; function.types.len()],
        pending: Vec::new(),
        position: (Block(0), 0),
        mask_parts: FxHashMap::default(),
        loop_constants: FxHashMap::default(),
        hoisted: FxHashMap::default(),
    };
    selector.loop_constants =
        loop_constants(function, uses, reachable, registers::vector_count(isa), &|value| {
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

/// Returns whether an operation is a constant, which each use makes again.
fn is_constant(op: &Op) -> bool {
    matches!(op, Op::IntConstant(_) | Op::Constant(..) | Op::Iota(_) | Op::MaskConstant(_))
}

/// A function during selection.
struct Selector<'a> {
    function: &'a Function,
    isa: Isa,
    uses: &'a Uses,
    out: Selected,
    /// The registers of each value's parts.
    values: Vec<[Option<VReg>; 2]>,
    /// The operations of constants.
    known: Vec<Option<Op>>,
    /// The instructions of this block whose use will include them, in their order.
    pending: Vec<(Value, &'a Inst)>,
    /// The position of the current instruction.
    position: Position,
    /// The masks of this block for lanes of other widths: mask, bytes of a lane, part.
    mask_parts: FxHashMap<(Value, usize, usize), VReg>,
    /// The constants that have registers in loops.
    loop_constants: LoopConstants,
    /// The registers of the parts of these constants, by the block of the loop.
    hoisted: FxHashMap<(Block, Value, usize), VReg>,
}

impl<'a> Selector<'a> {
    fn is_avx512(&self) -> bool {
        self.isa == Isa::Avx512
    }

    /// Returns the number of registers of a value.
    fn parts(&self, value: Value) -> usize {
        match self.function.ty(value) {
            Type::Vector(lane) => lane_parts(lane),
            Type::Int | Type::Mask => 1,
        }
    }

    /// Returns the number of vector registers of a value.
    fn vectors_of(&self, value: Value) -> usize {
        vector_registers(self.isa, self.function.ty(value))
    }

    fn class(&self, value: Value) -> RegClass {
        match self.function.ty(value) {
            Type::Int => INTS,
            Type::Vector(_) => VECTORS,
            Type::Mask => self.mask_class(),
        }
    }

    fn mask_class(&self) -> RegClass {
        if self.is_avx512() { MASKS } else { VECTORS }
    }

    /// Returns the lane type of a vector.
    fn lane(&self, value: Value) -> Result<Lane, CompileError> {
        match self.function.ty(value) {
            Type::Vector(lane) => Ok(lane),
            other => Err(CompileError::Unsupported(format!("an operation on vectors with {other:?}"))),
        }
    }

    /// Returns the part of a vector register that holds lanes of a type.
    fn size(&self, lane: Lane) -> Size {
        match (self.isa, lane) {
            (Isa::Avx512, Lane::I8) | (Isa::Avx2, Lane::I8 | Lane::I16) => Size::X,
            (Isa::Avx512, Lane::I16) | (Isa::Avx2, _) => Size::Y,
            (Isa::Avx512, _) => Size::Z,
        }
    }

    /// Returns the part of a vector register with half the lanes of a type of at most 32 bits.
    fn half_size(&self, lane: Lane) -> Size {
        if self.is_avx512() && lane.bytes() == 4 { Size::Y } else { Size::X }
    }

    /// Returns the part of a vector register with all its bits.
    fn full(&self) -> Size {
        if self.is_avx512() { Size::Z } else { Size::Y }
    }

    /// Chooses by the instruction set.
    fn by_isa<T>(&self, avx512: T, avx2: T) -> T {
        if self.is_avx512() { avx512 } else { avx2 }
    }

    fn register(&mut self, class: RegClass) -> VReg {
        self.out.program.register(class)
    }

    fn vector(&mut self) -> VReg {
        self.register(VECTORS)
    }

    fn int(&mut self) -> VReg {
        self.register(INTS)
    }

    fn set(&mut self, value: Value, part: usize, register: VReg) {
        self.values[value.0 as usize][part] = Some(register);
    }

    /// Reserves bytes at the bottom of the frame. Sequences that use them do not overlap.
    fn reserve_scratch(&mut self, bytes: usize) {
        self.out.scratch_bytes = self.out.scratch_bytes.max(bytes);
    }

    fn emit(&mut self, code: C, args: &[Arg]) {
        self.emit_masked(code, args, Masking::All);
    }

    fn emit_masked(&mut self, code: C, args: &[Arg], masking: Masking) {
        debug_assert!(code != C::INVALID, "the ISA has the instruction");
        let (inst, operands) = plain(code, args, masking);
        self.push(MachineInst::Plain(inst), &operands, Flow::Next);
    }

    fn push(&mut self, inst: MachineInst, operands: &[Operand], flow: Flow) {
        let is_call = matches!(inst, MachineInst::Call(_));
        self.out.program.push(operands, flow, is_call);
        self.out.insts.push(inst);
    }

    /// Emits an instruction whose first operand is its result, a new vector register.
    fn compute(&mut self, code: C, size: Size, rest: &[Arg]) -> VReg {
        let def = self.vector();
        let mut args: SmallVec<[Arg; 5]> = SmallVec::new();
        args.push(Arg::Def(def, size));
        args.extend_from_slice(rest);
        self.emit(code, &args);
        def
    }

    /// Emits an instruction whose first operand is its result, a new general register.
    fn compute_int(&mut self, code: C, size: Size, rest: &[Arg]) -> VReg {
        let def = self.int();
        let mut args: SmallVec<[Arg; 5]> = SmallVec::new();
        args.push(Arg::Def(def, size));
        args.extend_from_slice(rest);
        self.emit(code, &args);
        def
    }

    /// Emits an instruction that overwrites its first operand, a general register.
    fn modify_int(&mut self, code: C, input: VReg, rest: &[Arg]) -> VReg {
        let def = self.int();
        let mut args: SmallVec<[Arg; 5]> = SmallVec::new();
        args.push(Arg::Tied { def, input, size: Size::R64 });
        args.extend_from_slice(rest);
        self.emit(code, &args);
        def
    }

    /// Returns the operation of a constant.
    fn known(&self, value: Value) -> Option<Op> {
        self.known[value.0 as usize]
    }

    /// Returns the register of a constant's part in this loop.
    fn hoisted(&self, value: Value, part: usize) -> Option<VReg> {
        let (block, index) = self.position;
        if index == TERMINATOR { None } else { self.hoisted.get(&(block, value, part)).copied() }
    }

    /// Makes the constants of a loop before the jump that enters it.
    fn hoist_constants(&mut self, from: Block, header: Block) {
        if from == header {
            return;
        }
        for value in self.loop_constants.get(&header).cloned().unwrap_or_default() {
            let Some(op) = self.known(value) else { continue };
            let mut register = self.vector_constant(op, 0);
            self.hoisted.insert((header, value, 0), register);
            if self.parts(value) == 2 {
                if matches!(op, Op::Iota(_)) {
                    register = self.vector_constant(op, 1);
                }
                self.hoisted.insert((header, value, 1), register);
            }
        }
    }

    /// Returns the value of a constant integer.
    fn known_int(&self, value: Value) -> Option<i64> {
        match self.known(value) {
            Some(Op::IntConstant(value)) => Some(value),
            // tidy: wildcard because only integers have such a value
            _ => None,
        }
    }

    /// Returns the value of a constant integer of 32 bits.
    fn known_i32(&self, value: Value) -> Option<i32> {
        self.known_int(value).and_then(|value| i32::try_from(value).ok())
    }

    /// Returns the bits of a constant whose lanes are equal.
    fn known_bits(&self, value: Value) -> Option<u64> {
        match self.known(value) {
            Some(Op::Constant(_, bits)) => Some(bits),
            // tidy: wildcard because the lanes of other values may differ
            _ => None,
        }
    }

    /// Removes and returns the pending instruction of a value.
    fn take_pending(&mut self, value: Value) -> Option<&'a Inst> {
        let index = self.pending.iter().position(|&(pending, _)| pending == value)?;
        Some(self.pending.remove(index).1)
    }

    fn find_pending(&self, value: Value) -> Option<&'a Inst> {
        self.pending.iter().find(|&&(pending, _)| pending == value).map(|&(_, inst)| inst)
    }

    /// Emits a value's pending instruction on its own.
    fn force(&mut self, value: Value) -> Result<(), CompileError> {
        if let Some(inst) = self.take_pending(value) {
            self.inst_now(inst)?;
        }
        Ok(())
    }

    /// Emits the pending loads, because the next instruction may write their memory.
    fn force_loads(&mut self) -> Result<(), CompileError> {
        let loads: Vec<Value> = self
            .pending
            .iter()
            .filter(|(_, inst)| matches!(inst.op, Op::Load { .. } | Op::LoadSplat { .. }))
            .map(|&(value, _)| value)
            .collect();
        loads.into_iter().try_for_each(|value| self.force(value))
    }

    /// Returns the register of a part of a value. The value is no constant and not pending.
    fn assigned(&self, value: Value, part: usize) -> Result<VReg, CompileError> {
        self.values[value.0 as usize][part]
            .ok_or_else(|| CompileError::Unsupported(format!("{value:?}, which no instruction defines")))
    }

    /// Returns a register with an integer, or with a part of a vector or mask.
    fn read(&mut self, value: Value, part: usize) -> Result<VReg, CompileError> {
        if let Some(register) = self.hoisted(value, part) {
            return Ok(register);
        }
        if let Some(op) = self.known(value) {
            return Ok(match op {
                Op::IntConstant(value) => self.int_constant(value),
                Op::MaskConstant(value) => self.mask_constant(value),
                // tidy: wildcard because the other constants are vectors
                _ => self.vector_constant(op, part),
            });
        }
        self.force(value)?;
        self.assigned(value, part)
    }

    /// Returns an operand of `size` that may be memory, with a part of a vector.
    /// `broadcast` is the number of bytes that the instruction can copy from memory to all lanes.
    fn operand(&mut self, value: Value, part: usize, broadcast: Option<usize>) -> Result<Arg, CompileError> {
        let lane = self.lane(value)?;
        let size = self.size(lane);
        if let Some(register) = self.hoisted(value, part) {
            return Ok(Arg::Use(register, size));
        }
        if let Some(op) = self.known(value) {
            return Ok(Arg::Memory(self.constant_memory(op, part, size, broadcast)));
        }
        if let Some(inst) = self.find_pending(value)
            && let Some(memory) = self.pending_memory(inst, part, broadcast)?
        {
            if part + 1 == self.parts(value) {
                self.take_pending(value);
            }
            return Ok(Arg::Memory(memory));
        }
        Ok(Arg::Use(self.read(value, part)?, size))
    }

    /// Returns whether [`Self::operand`] is memory.
    fn can_be_memory(&self, value: Value, broadcast: Option<usize>) -> bool {
        if self.known(value).is_some() {
            return self.hoisted(value, 0).is_none();
        }
        let Some(inst) = self.find_pending(value) else { return false };
        match inst.op {
            Op::Load { lane, .. } => self.fills_register(lane),
            Op::LoadSplat { lane, .. } => broadcast == Some(lane.bytes()),
            // tidy: wildcard because other instructions read no vector of memory
            _ => false,
        }
    }

    /// Returns whether the lanes have at least the 128 bits that a memory operand reads.
    fn fills_register(&self, lane: Lane) -> bool {
        self.is_avx512() || lane != Lane::I8
    }

    fn pending_memory(
        &mut self,
        inst: &Inst,
        part: usize,
        broadcast: Option<usize>,
    ) -> Result<Option<Memory>, CompileError> {
        match inst.op {
            Op::Load { lane, address, .. } if self.fills_register(lane) => {
                let memory = self.memory(address, &inst.operands)?;
                Ok(Some(memory.plus((part * self.register_bytes(lane)) as i32)))
            }
            Op::LoadSplat { lane, address } if broadcast == Some(lane.bytes()) => {
                Ok(Some(Memory { is_broadcast: true, ..self.memory(address, &inst.operands)? }))
            }
            // tidy: wildcard because other instructions read no vector of memory
            _ => Ok(None),
        }
    }

    /// Returns the bytes of the lanes in one register.
    fn register_bytes(&self, lane: Lane) -> usize {
        self.function.lanes * lane.bytes() / lane_parts(lane)
    }

    fn block(&mut self, index: usize, block: MachineBlock, layout: &Layout) -> Result<(), CompileError> {
        self.mask_parts.clear();
        let mut arguments = [Vec::new(), Vec::new()];
        match block {
            MachineBlock::Prologue => {
                self.out.program.begin_block(index, Vec::new());
                let argument = self.int();
                let fixed = PReg::new(registers::ARGUMENTS[0], INTS);
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
        // The edge blocks read registers only.
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
                let condition = self.condition(*condition)?;
                self.push(MachineInst::Branch(condition), &[], Flow::Branch);
            }
            Terminator::Return(value) => {
                let value = self.read(*value, 0)?;
                let fixed = Operand::reg_fixed_use(value, PReg::new(RAX, INTS));
                self.push(MachineInst::Return, &[fixed], Flow::Return);
            }
        }
        Ok(())
    }

    /// Returns whether a value has one use, which is later in its block.
    fn has_one_local_use(&self, value: Value) -> bool {
        let uses = self.uses.of(value);
        uses.count == 1 && uses.is_local
    }

    /// Selects the instructions of an operation, or leaves it to its use.
    fn inst(&mut self, inst: &'a Inst) -> Result<(), CompileError> {
        if is_constant(&inst.op) || !self.uses.is_live(inst) {
            return Ok(());
        }
        let may_wait =
            matches!(inst.op, Op::Load { masked: false, .. } | Op::LoadSplat { .. } | Op::IntCompare(_));
        if let (true, Some(result)) = (may_wait, inst.result)
            && self.has_one_local_use(result)
        {
            self.pending.push((result, inst));
            return Ok(());
        }
        self.inst_now(inst)
    }

    /// Selects the instructions of an operation.
    fn inst_now(&mut self, inst: &'a Inst) -> Result<(), CompileError> {
        let operands = inst.operands.as_slice();
        let result = || {
            inst.result.ok_or_else(|| CompileError::Unsupported(format!("{:?} without a result", inst.op)))
        };
        match inst.op {
            Op::IntConstant(_) | Op::Constant(..) | Op::Iota(_) | Op::MaskConstant(_) => Ok(()),
            Op::IntBinary(function) => self.int_binary(result()?, function, operands[0], operands[1]),
            Op::IntCompare(_) => self.int_compare(result()?, inst),
            Op::IntSelect => self.int_select(result()?, operands),
            Op::IntExtend { bits, signed } => self.int_extend(result()?, bits, signed, operands[0]),
            Op::IntLoad { bytes, address } => self.int_load(result()?, bytes, address, operands),
            Op::IntStore { bytes, address } => self.int_store(bytes, address, operands),
            Op::Splat(lane) => self.splat(result()?, lane, operands[0]),
            Op::First => self.first(result()?, operands[0]),
            Op::Unary(function) => self.unary(result()?, function, operands[0]),
            Op::Binary(function) => self.binary(result()?, function, operands[0], operands[1]),
            Op::MultiplyAdd => self.multiply_add(result()?, operands),
            Op::Compare(function) => self.compare(result()?, function, operands[0], operands[1]),
            Op::Select => self.select(result()?, operands),
            Op::Convert(conversion, lane) => self.convert(result()?, conversion, lane, operands[0]),
            Op::Rotate(count) => self.rotate(result()?, count, operands[0]),
            Op::Load { lane, address, masked } => self.load(result()?, lane, address, masked, operands),
            Op::Store { address, masked, streaming } => self.store(address, masked, streaming, operands),
            Op::Prefetch { address } => self.prefetch(address, operands),
            Op::LoadSplat { lane, address } => self.load_splat(result()?, lane, address, operands),
            Op::Gather(lane) => self.gather(result()?, lane, operands),
            Op::Scatter => self.scatter(operands),
            Op::MaskBinary(function) => self.mask_binary(result()?, function, operands[0], operands[1]),
            Op::MaskNot => self.mask_not(result()?, operands[0]),
            Op::MaskSelect => self.mask_select(result()?, operands),
            Op::FirstLanes => self.first_lanes(result()?, operands[0]),
            Op::MaskOfBits => self.mask_of_bits(result()?, operands[0]),
            Op::MaskBits => self.mask_bits(result()?, operands[0]),
            Op::Call { function } => self.call(inst.result, function, operands),
        }
    }
}

/// Returns the number of vector registers of a value of a type.
pub fn vector_registers(isa: Isa, ty: Type) -> usize {
    match (ty, isa) {
        (Type::Vector(lane), _) => lane_parts(lane),
        (Type::Mask, Isa::Avx2) => 1,
        (Type::Mask, Isa::Avx512) | (Type::Int, _) => 0,
    }
}

/// Returns the number of registers of a vector.
fn lane_parts(lane: Lane) -> usize {
    if lane.bytes() == 8 { 2 } else { 1 }
}
