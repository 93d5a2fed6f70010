//! Encodes instructions with their assigned registers, and patches jumps and constants.

use iced_x86::{Code as Opcode, Encoder, Instruction, OpKind, Register};
use regalloc2::{Allocation, RegClass};

use super::{
    Isa, X86,
    instruction::{Condition, Plain},
    registers::{self, SAVED, SAVED_VECTORS, SHADOW_BYTES, Size},
};
use crate::{
    Code, CompileError,
    encode::{self, moved_registers, written_registers},
    select::{self, MachineInst},
};

type Assigned<'a> = select::Assigned<'a, X86>;

/// The size of a unit of spill slots in bytes.
const UNIT: usize = 8;

/// The alignment of loops in bytes: the window of the caches of decoded instructions.
const LOOP_ALIGNMENT: usize = 32;

/// The size of the smallest page, in bytes.
const PAGE: usize = 4096;

/// The frame of the function:
///
/// ```text
/// rsp → bytes of called functions (also scratch), spill slots, saved vectors
/// rbp → saved general registers directly below
/// ```
#[derive(Debug)]
struct Frame {
    /// The saved general registers.
    saved: Vec<usize>,
    saved_vectors: Vec<usize>,
    /// The offset of the first spill slot from `rsp`.
    spills: usize,
    /// The offset of the first saved vector register from `rsp`.
    vectors: usize,
    /// The size in bytes, without the saved general registers.
    size: usize,
    /// The alignment of `rsp` in bytes.
    alignment: usize,
    /// False if the function needs no frame.
    is_needed: bool,
}

pub fn encode(function: &Assigned<'_>) -> Result<Code, CompileError> {
    let frame = Frame::new(function);
    let mut writer = Writer {
        function,
        frame,
        encoder: Encoder::new(64),
        position: 0,
        block_offsets: vec![0; function.selected.program.blocks()],
        jumps: Vec::new(),
        constants: Vec::new(),
    };
    let origins = encode::write(&mut writer, function)?;
    writer.finish(origins)
}

impl Frame {
    fn new(function: &Assigned<'_>) -> Self {
        let [written, written_vectors] = written_registers(function);
        let saved: Vec<usize> = SAVED.iter().copied().filter(|&register| written[register]).collect();
        let saved_vectors: Vec<usize> = SAVED_VECTORS.filter(|&register| written_vectors[register]).collect();
        let has_calls = function.selected.insts.iter().any(|inst| matches!(inst, MachineInst::Call(_)));
        let alignment = UNIT * registers::slots(function.isa)[RegClass::Float as usize];
        let shadow = if has_calls { SHADOW_BYTES } else { 0 };
        let spills = function.selected.scratch_bytes.max(shadow).next_multiple_of(alignment);
        let vectors = (spills + UNIT * function.output.num_spillslots).next_multiple_of(16);
        let size = (vectors + 16 * saved_vectors.len()).next_multiple_of(alignment);
        let is_needed = size > 0 || has_calls || !saved.is_empty();
        Self { saved, saved_vectors, spills, vectors, size, alignment, is_needed }
    }
}

struct Writer<'a> {
    function: &'a Assigned<'a>,
    frame: Frame,
    encoder: Encoder,
    position: usize,
    block_offsets: Vec<usize>,
    /// The offset of the end of each jump, whose last 4 bytes are the distance, and its target
    /// block.
    jumps: Vec<(usize, usize)>,
    /// The distances to constants: the offset of the distance, the offset of the next instruction,
    /// the index of the constant, and the number of bytes to add.
    constants: Vec<(usize, usize, usize, i32)>,
}

impl Writer<'_> {
    fn inst(&mut self, instruction: &Instruction) -> Result<(), CompileError> {
        let length = self
            .encoder
            .encode(instruction, self.position as u64)
            // The names of all instructions would add 350 KB to the binary, so the message has a
            // number.
            .map_err(|error| CompileError::Encoding(format!("{}: {error}", instruction.code() as usize)))?;
        self.position += length;
        Ok(())
    }

    fn registers(&mut self, code: Opcode, registers: &[Register]) -> Result<(), CompileError> {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        for (slot, &register) in registers.iter().enumerate() {
            instruction.set_op_kind(slot as u32, OpKind::Register);
            instruction.set_op_register(slot as u32, register);
        }
        self.inst(&instruction)
    }

    /// Encodes an instruction with a register and the memory at `base + offset`.
    fn memory(
        &mut self,
        code: Opcode,
        register: Register,
        is_store: bool,
        base: Register,
        offset: i64,
    ) -> Result<(), CompileError> {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        let (at_register, at_memory) = if is_store { (1, 0) } else { (0, 1) };
        instruction.set_op_kind(at_register, OpKind::Register);
        instruction.set_op_register(at_register, register);
        instruction.set_op_kind(at_memory, OpKind::Memory);
        instruction.set_memory_base(base);
        instruction.set_memory_index_scale(1);
        instruction.set_memory_displacement64(offset as u64);
        instruction.set_memory_displ_size(u32::from(offset != 0));
        self.inst(&instruction)
    }

    fn immediate(&mut self, code: Opcode, register: Register, value: i64) -> Result<(), CompileError> {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        instruction.set_op0_kind(OpKind::Register);
        instruction.set_op0_register(register);
        if code == Opcode::Mov_r64_imm64 {
            instruction.set_op1_kind(OpKind::Immediate64);
            instruction.set_immediate64(value as u64);
        } else {
            instruction.set_op1_kind(OpKind::Immediate32to64);
            instruction.set_immediate32to64(value);
        }
        self.inst(&instruction)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.encoder.write_u8(byte);
        }
        self.position += bytes.len();
    }

    /// Pads the code to a multiple of `alignment` bytes with no-ops.
    fn align(&mut self, alignment: usize) {
        const NOPS: [&[u8]; 9] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
            &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
        ];
        let mut rest = self.position.next_multiple_of(alignment) - self.position;
        while rest > 0 {
            let length = rest.min(NOPS.len());
            self.bytes(NOPS[length - 1]);
            rest -= length;
        }
    }

    fn finish(mut self, origins: Vec<(usize, u32)>) -> Result<Code, CompileError> {
        let mut bytes = self.encoder.take_buffer();
        debug_assert!(bytes.len() == self.position, "the encoder wrote what it counted");
        let instruction_bytes = bytes.len();
        let offsets = self.function.selected.constants.append(&mut bytes);
        let mut patch = |at: usize, distance: i64| {
            let distance = i32::try_from(distance)
                .map_err(|_| CompileError::Encoding("the code has more than 2 GiB".into()))?;
            bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
            Ok::<(), CompileError>(())
        };
        for &(after, block) in &self.jumps {
            patch(after - 4, self.block_offsets[block] as i64 - after as i64)?;
        }
        for &(at, after, constant, added) in &self.constants {
            patch(at, offsets[constant] as i64 + i64::from(added) - after as i64)?;
        }
        let spill_bytes = UNIT * self.function.output.num_spillslots;
        Ok(Code { bytes, instruction_bytes, spill_bytes, origins })
    }
}

impl encode::Writer for Writer<'_> {
    type Machine = X86;

    fn offset(&self) -> usize {
        self.position
    }

    fn begin_block(&mut self, block: usize, is_loop: bool) {
        if is_loop {
            self.align(LOOP_ALIGNMENT);
        }
        self.block_offsets[block] = self.position;
    }

    fn prologue(&mut self) -> Result<(), CompileError> {
        if !self.frame.is_needed {
            return Ok(());
        }
        self.registers(Opcode::Push_r64, &[Register::RBP])?;
        self.registers(Opcode::Mov_r64_rm64, &[Register::RBP, Register::RSP])?;
        for register in self.frame.saved.clone() {
            self.registers(Opcode::Push_r64, &[Size::R64.register(register)])?;
        }
        let (size, alignment) = (self.frame.size, self.frame.alignment);
        // A large frame must not skip the guard page at the end of the stack, so the code accesses
        // each page.
        for offset in (PAGE..=size).step_by(PAGE) {
            self.memory(Opcode::Test_rm64_r64, Register::RSP, true, Register::RSP, -(offset as i64))?;
        }
        if size > 0 {
            self.immediate(Opcode::Sub_rm64_imm32, Register::RSP, size as i64)?;
        }
        self.immediate(Opcode::And_rm64_imm32, Register::RSP, -(alignment as i64))?;
        for (index, register) in self.frame.saved_vectors.clone().into_iter().enumerate() {
            let offset = (self.frame.vectors + 16 * index) as i64;
            let register = Size::X.register(register);
            self.memory(Opcode::VEX_Vmovups_xmmm128_xmm, register, true, Register::RSP, offset)?;
        }
        Ok(())
    }

    fn epilogue(&mut self) -> Result<(), CompileError> {
        if self.function.selected.has_streaming_stores {
            self.registers(Opcode::Sfence, &[])?;
        }
        self.registers(Opcode::VEX_Vzeroupper, &[])?;
        if self.frame.is_needed {
            for (index, register) in self.frame.saved_vectors.clone().into_iter().enumerate() {
                let offset = (self.frame.vectors + 16 * index) as i64;
                let register = Size::X.register(register);
                self.memory(Opcode::VEX_Vmovups_xmm_xmmm128, register, false, Register::RSP, offset)?;
            }
            let offset = -8 * self.frame.saved.len() as i64;
            self.memory(Opcode::Lea_r64_m, Register::RSP, false, Register::RBP, offset)?;
            for register in self.frame.saved.clone().into_iter().rev() {
                self.registers(Opcode::Pop_r64, &[Size::R64.register(register)])?;
            }
            self.registers(Opcode::Pop_r64, &[Register::RBP])?;
        }
        self.registers(Opcode::Retnq, &[])
    }

    fn call(&mut self, function: usize) -> Result<(), CompileError> {
        if self.function.selected.has_streaming_stores {
            self.registers(Opcode::Sfence, &[])?;
        }
        self.registers(Opcode::VEX_Vzeroupper, &[])?;
        self.immediate(Opcode::Mov_r64_imm64, Register::RAX, function as i64)?;
        self.registers(Opcode::Call_rm64, &[Register::RAX])
    }

    fn edit(&mut self, from: Allocation, to: Allocation) -> Result<(), CompileError> {
        let isa = self.function.isa;
        let offset = |slot: regalloc2::SpillSlot, frame: &Frame| (frame.spills + UNIT * slot.index()) as i64;
        let (class, from_register, to_register) = moved_registers(from, to)?;
        let (size, copy, load, store) = match (class, isa) {
            (RegClass::Int, _) => {
                (Size::R64, Opcode::Mov_r64_rm64, Opcode::Mov_r64_rm64, Opcode::Mov_rm64_r64)
            }
            (RegClass::Float, Isa::Avx512) => (
                Size::Z,
                Opcode::EVEX_Vmovaps_zmm_k1z_zmmm512,
                Opcode::EVEX_Vmovaps_zmm_k1z_zmmm512,
                Opcode::EVEX_Vmovaps_zmmm512_k1z_zmm,
            ),
            (RegClass::Float, Isa::Avx2) => (
                Size::Y,
                Opcode::VEX_Vmovaps_ymm_ymmm256,
                Opcode::VEX_Vmovaps_ymm_ymmm256,
                Opcode::VEX_Vmovaps_ymmm256_ymm,
            ),
            (RegClass::Vector, _) => {
                (Size::K, Opcode::VEX_Kmovw_kr_km16, Opcode::VEX_Kmovw_kr_km16, Opcode::VEX_Kmovw_m16_kr)
            }
        };
        match (from_register, to_register) {
            (Some(from), Some(to)) => self.registers(copy, &[size.register(to), size.register(from)]),
            (Some(from), None) => {
                let offset = to.as_stack().map_or(0, |slot| offset(slot, &self.frame));
                self.memory(store, size.register(from), true, Register::RSP, offset)
            }
            (None, Some(to)) => {
                let offset = from.as_stack().map_or(0, |slot| offset(slot, &self.frame));
                self.memory(load, size.register(to), false, Register::RSP, offset)
            }
            (None, None) => Ok(()),
        }
    }

    fn plain(&mut self, plain: &Plain, allocations: &[Allocation]) -> Result<(), CompileError> {
        let mut instruction = plain.assigned(|operand| {
            crate::allocate::register_index(allocations[operand])
                .expect("every operand of an instruction is in a register")
        });
        let Some(constant) = plain.constant else { return self.inst(&instruction) };
        let added = instruction.memory_displacement64() as i32;
        instruction.set_memory_displacement64(self.position as u64);
        let start = self.position;
        self.inst(&instruction)?;
        let at = start + self.encoder.get_constant_offsets().displacement_offset();
        self.constants.push((at, self.position, constant, added));
        Ok(())
    }

    fn jump(&mut self, condition: Option<Condition>, block: usize) {
        match condition {
            Some(condition) => {
                self.bytes(&[0x0f, 0x80 + condition as u8, 0, 0, 0, 0]);
            }
            None => self.bytes(&[0xe9, 0, 0, 0, 0]),
        }
        self.jumps.push((self.position, block));
    }
}
