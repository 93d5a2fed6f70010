//! Encodes instructions with their assigned registers, and patches jumps and constants.

use std::ops::Range;

use regalloc2::{Allocation, RegClass};

use super::{
    Aarch64,
    instruction::{Condition, Field, Plain},
    opcodes as o,
    opcodes::Opcode,
    registers::{FRAME, LINK, SAVED, SAVED_VECTORS, STACK, TEMPORARIES, ZERO},
};
use crate::{
    Code, CompileError,
    allocate::register_index,
    encode::{self, moved_registers, written_registers},
    select::{self, MachineInst},
};

type Assigned<'a> = select::Assigned<'a, Aarch64>;

/// The size of a unit of spill slots in bytes.
const UNIT: usize = 8;

/// The alignment of the first instruction of a loop, in bytes.
const LOOP_ALIGNMENT: usize = 32;

/// The size of the smallest page, in bytes.
const PAGE: usize = 4096;

const WORD: usize = 4;

/// The register for far addresses and offsets.
const TEMPORARY: u32 = TEMPORARIES[0];

/// The encodings of conditional jumps and of loads of constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// One instruction, with a reach of 1 MiB.
    Near,
    /// Several instructions. A jump reaches 128 MiB, and a load of a constant reaches 4 GiB.
    Far,
}

/// The frame of the function:
///
/// ```text
/// sp → spill slots, saved vector registers, saved general registers, frame pointer, return address
/// ```
#[derive(Debug)]
struct Frame {
    /// The pairs of saved general registers.
    saved: Vec<[u32; 2]>,
    saved_vectors: Vec<[u32; 2]>,
    /// The size of the spill slots in bytes, a multiple of 16.
    size: usize,
    /// False if the function needs no frame.
    is_needed: bool,
}

pub fn encode(function: &Assigned<'_>) -> Result<Code, CompileError> {
    match encode_within(function, Reach::Near)? {
        Some(code) => Ok(code),
        None => encode_within(function, Reach::Far)?
            .ok_or_else(|| CompileError::Encoding("the code has more than 128 MiB".into())),
    }
}

/// Encodes a function. Returns `None` if a jump or a constant is out of reach.
fn encode_within(function: &Assigned<'_>, reach: Reach) -> Result<Option<Code>, CompileError> {
    let mut writer = Writer {
        function,
        frame: Frame::new(function),
        reach,
        words: Vec::new(),
        block_offsets: vec![0; function.selected.program.blocks()],
        jumps: Vec::new(),
        constants: Vec::new(),
    };
    let origins = encode::write(&mut writer, function)?;
    Ok(writer.finish(origins))
}

impl Frame {
    fn new(function: &Assigned<'_>) -> Self {
        let [written, written_vectors] = written_registers(function);
        let saved = Self::pairs(SAVED, &written);
        let saved_vectors = Self::pairs(SAVED_VECTORS, &written_vectors);
        let has_calls = function.selected.insts.iter().any(|inst| matches!(inst, MachineInst::Call(_)));
        let size = (UNIT * function.output.num_spillslots).next_multiple_of(16);
        let is_needed = size > 0 || has_calls || !saved.is_empty() || !saved_vectors.is_empty();
        Self { saved, saved_vectors, size, is_needed }
    }

    /// Returns the registers of a range that the function writes, in pairs. Another register of the
    /// range may complete the last pair.
    fn pairs(range: Range<usize>, written: &[bool]) -> Vec<[u32; 2]> {
        let (mut saved, rest): (Vec<usize>, Vec<usize>) = range.partition(|&register| written[register]);
        if saved.len() % 2 == 1 {
            saved.extend(rest.first());
        }
        saved.chunks_exact(2).map(|pair| [pair[0] as u32, pair[1] as u32]).collect()
    }
}

struct Writer<'a> {
    function: &'a Assigned<'a>,
    frame: Frame,
    reach: Reach,
    words: Vec<u32>,
    block_offsets: Vec<usize>,
    /// For each jump: its index in `words`, its target, and its condition, if any.
    jumps: Vec<(usize, usize, Option<Condition>)>,
    /// For each load of a constant: the index in `words`, and the index of the constant.
    constants: Vec<(usize, usize)>,
}

fn field(register: u32, field: Field) -> u32 {
    register << field as u32
}

impl Writer<'_> {
    fn inst(&mut self, opcode: Opcode, fields: &[(u32, Field)]) {
        let bits = fields.iter().fold(0, |bits, &(register, at)| bits | field(register, at));
        self.words.push(opcode.0 | bits);
    }

    /// Moves a constant to `TEMPORARY`.
    fn temporary(&mut self, value: u64) {
        for (index, opcode) in move_constant(value) {
            self.words.push(opcode.0 | index << 21 | field(TEMPORARY, Field::D));
        }
    }

    /// Loads or stores `bytes` bytes of a register at an offset in the frame.
    fn spill(&mut self, opcode: Opcode, register: usize, bytes: usize, offset: usize) {
        let fields = [(register as u32, Field::D), (STACK, Field::N)];
        if let Some(opcode) = opcode.offset(bytes, offset as i64) {
            self.inst(opcode, &fields);
        } else {
            self.temporary(offset as u64);
            self.inst(opcode.index(false), &[fields[0], fields[1], (TEMPORARY, Field::M)]);
        }
    }

    fn finish(mut self, origins: Vec<(usize, u32)>) -> Option<Code> {
        let limit = |distance: i64, bits: u32| {
            let limit = 1 << (bits - 1);
            (-limit..limit).contains(&distance).then_some(distance as u32 & (u32::MAX >> (32 - bits)))
        };
        for &(at, block, condition) in &self.jumps {
            let distance = self.block_offsets[block] as i64 - at as i64;
            self.words[at] |= match condition {
                Some(_) => limit(distance, 19)? << 5,
                None => limit(distance, 26)?,
            };
        }
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let instruction_bytes = bytes.len();
        let offsets = self.function.selected.constants.append(&mut bytes);
        for &(at, constant) in &self.constants {
            let distance = offsets[constant] - WORD * at;
            let mut patch = |index: usize, bits: u32| {
                let word = self.words[index] | bits;
                bytes[WORD * index..][..WORD].copy_from_slice(&word.to_le_bytes());
            };
            if self.reach == Reach::Near {
                patch(at, limit((distance / WORD) as i64, 19)? << 5);
            } else {
                let distance = u32::try_from(distance).ok()?;
                patch(at + 1, (distance & 0xffff) << 5);
                patch(at + 2, (distance >> 16) << 5);
            }
        }
        let spill_bytes = UNIT * self.function.output.num_spillslots;
        Some(Code { bytes, instruction_bytes, spill_bytes, origins })
    }
}

/// Returns the instructions that move a constant to a register. Each one encodes 16 bits; the
/// integer is the index of these bits, from 0 to 3.
pub fn move_constant(value: u64) -> Vec<(u32, Opcode)> {
    let parts: Vec<u32> = (0..4).map(|index| (value >> (16 * index)) as u32 & 0xffff).collect();
    let count = |part: u32| parts.iter().filter(|&&other| other == part).count();
    let (rest, first) = if count(0xffff) > count(0) { (0xffff, o::MOVN) } else { (0, o::MOVZ) };
    let mut insts = Vec::new();
    for (index, &part) in parts.iter().enumerate().filter(|&(_, &part)| part != rest) {
        let inst = match (insts.is_empty(), rest) {
            (true, 0) => o::MOVZ.with(part << 5),
            (true, _) => o::MOVN.with((part ^ 0xffff) << 5),
            (false, _) => o::MOVK.with(part << 5),
        };
        insts.push((index as u32, inst));
    }
    if insts.is_empty() {
        insts.push((0, first));
    }
    insts
}

impl encode::Writer for Writer<'_> {
    type Machine = Aarch64;

    fn offset(&self) -> usize {
        WORD * self.words.len()
    }

    fn begin_block(&mut self, block: usize, is_loop: bool) {
        while is_loop && !self.words.len().is_multiple_of(LOOP_ALIGNMENT / WORD) {
            self.words.push(o::NOP.0);
        }
        self.block_offsets[block] = self.words.len();
    }

    fn prologue(&mut self) -> Result<(), CompileError> {
        if !self.frame.is_needed {
            return Ok(());
        }
        self.inst(o::PUSH_PAIR, &[(FRAME, Field::D), (LINK, Field::A)]);
        self.inst(o::MOVE_STACK, &[(FRAME, Field::D)]);
        for [first, second] in self.frame.saved.clone() {
            self.inst(o::PUSH_PAIR, &[(first, Field::D), (second, Field::A)]);
        }
        for [first, second] in self.frame.saved_vectors.clone() {
            self.inst(o::PUSH_PAIR_D, &[(first, Field::D), (second, Field::A)]);
        }
        let stack = [(STACK, Field::D), (STACK, Field::N)];
        // A large frame must not skip the guard page at the end of the stack, so the code accesses
        // each page.
        for _ in 0..self.frame.size / PAGE {
            self.inst(o::SUB_IMMEDIATE.with(addition(PAGE)), &stack);
            self.inst(o::STR_X, &[(ZERO, Field::D), (STACK, Field::N)]);
        }
        if !self.frame.size.is_multiple_of(PAGE) {
            self.inst(o::SUB_IMMEDIATE.with(addition(self.frame.size % PAGE)), &stack);
        }
        Ok(())
    }

    fn epilogue(&mut self) -> Result<(), CompileError> {
        if self.frame.is_needed {
            let pairs = self.frame.saved.len() + self.frame.saved_vectors.len();
            if self.frame.size > 0 {
                let opcode = o::SUB_IMMEDIATE.with(addition(16 * pairs));
                self.inst(opcode, &[(STACK, Field::D), (FRAME, Field::N)]);
            }
            for [first, second] in self.frame.saved_vectors.clone().into_iter().rev() {
                self.inst(o::POP_PAIR_D, &[(first, Field::D), (second, Field::A)]);
            }
            for [first, second] in self.frame.saved.clone().into_iter().rev() {
                self.inst(o::POP_PAIR, &[(first, Field::D), (second, Field::A)]);
            }
            self.inst(o::POP_PAIR, &[(FRAME, Field::D), (LINK, Field::A)]);
        }
        self.inst(o::RET, &[]);
        Ok(())
    }

    fn call(&mut self, function: usize) -> Result<(), CompileError> {
        self.temporary(function as u64);
        self.inst(o::BLR, &[(TEMPORARY, Field::N)]);
        Ok(())
    }

    fn edit(&mut self, from: Allocation, to: Allocation) -> Result<(), CompileError> {
        let (class, from_register, to_register) = moved_registers(from, to)?;
        let (load, store, bytes) = match class {
            RegClass::Int => (o::LDR_X, o::STR_X, 8),
            RegClass::Float | RegClass::Vector => (o::LDR_Q, o::STR_Q, 16),
        };
        let offset = |slot: Allocation| slot.as_stack().map_or(0, |slot| UNIT * slot.index());
        match (from_register, to_register) {
            (Some(from), Some(to)) => {
                let (from, to) = (from as u32, to as u32);
                if class == RegClass::Int {
                    self.inst(o::MOVE, &[(to, Field::D), (from, Field::M)]);
                } else {
                    let fields = [(to, Field::D), (from, Field::N), (from, Field::M)];
                    self.inst(o::ORR_VECTOR.whole(), &fields);
                }
            }
            (Some(from), None) => self.spill(store, from, bytes, offset(to)),
            (None, Some(to)) => self.spill(load, to, bytes, offset(from)),
            (None, None) => {}
        }
        Ok(())
    }

    fn plain(&mut self, plain: &Plain, allocations: &[Allocation]) -> Result<(), CompileError> {
        let register = |operand: u8| {
            let register = register_index(allocations[operand as usize]);
            register.expect("every operand of an instruction is in a register") as u32
        };
        if let Some((operand, bit)) = plain.guard {
            // Skips the next instruction if the bit is 0.
            self.inst(o::TBZ.with(bit << 19 | 2 << 5), &[(register(operand), Field::D)]);
        }
        let bits = plain.registers.iter().fold(0, |bits, &(at, operand)| bits | field(register(operand), at));
        if let Some(constant) = plain.constant {
            self.constants.push((self.words.len(), constant));
            if self.reach == Reach::Far {
                let [base, offset] = TEMPORARIES;
                self.inst(o::ADR, &[(base, Field::D)]);
                self.inst(o::MOVZ, &[(offset, Field::D)]);
                self.inst(o::MOVK.with(1 << 21), &[(offset, Field::D)]);
                self.inst(o::LDR_Q.index(false), &[(base, Field::N), (offset, Field::M)]);
                let load = self.words.len() - 1;
                self.words[load] |= bits;
                return Ok(());
            }
        }
        self.words.push(plain.opcode.0 | bits);
        Ok(())
    }

    fn jump(&mut self, condition: Option<Condition>, block: usize) {
        match condition {
            Some(condition) if self.reach == Reach::Far => {
                // Skips the jump if the condition is false.
                self.words.push(o::B_IF.0 | condition.negated() as u32 | 2 << 5);
                self.jump(None, block);
            }
            _ => {
                self.jumps.push((self.words.len(), block, condition));
                let word = condition.map_or(o::B.0, |condition| o::B_IF.0 | condition as u32);
                self.words.push(word);
            }
        }
    }
}

/// Returns the immediate field of an addition, in which the constant must fit.
fn addition(value: usize) -> u32 {
    super::immediates::addition(value as i64).expect("the constant has 12 bits, or is a page")
}
