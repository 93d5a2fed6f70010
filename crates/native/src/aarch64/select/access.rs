//! Selects instructions for operations on memory.

use regalloc2::VReg;

use super::{Arg, Field, Opcode, Selector, o};
use crate::{
    CompileError,
    ir::{Address, Lane, Op, Value},
    select::lane_parts,
};

#[derive(Clone, Copy, Debug)]
struct Memory {
    base: VReg,
    /// The index, and the count of its left shift.
    index: Option<(VReg, u32)>,
    offset: i64,
}

/// The condition under which each lane is accessed.
#[derive(Clone, Copy, Debug)]
enum Guard {
    /// All lanes.
    All,
    /// Lane i only if bit i of this integer is set.
    Bits(VReg),
}

impl Selector<'_> {
    /// Returns the address of an access from the first operands.
    fn memory(&mut self, address: Address, operands: &[Value]) -> Result<Memory, CompileError> {
        let mut offset = i64::from(address.offset);
        let mut index = None;
        if address.indexed {
            let scaled = self
                .known_int(operands[1])
                .and_then(|value| value.checked_mul(i64::from(address.scale))?.checked_add(offset));
            match scaled {
                Some(sum) => offset = sum,
                None => index = Some((self.read(operands[1], 0)?, address.scale.trailing_zeros())),
            }
        }
        Ok(Memory { base: self.read(operands[0], 0)?, index, offset })
    }

    fn without_index(&mut self, memory: Memory) -> Memory {
        match memory.index {
            None => memory,
            Some((index, shift)) => {
                let base = self.compute_int(o::ADD.with(shift << 10), &[memory.base, index]);
                Memory { base, index: None, ..memory }
            }
        }
    }

    /// Computes an address in a register.
    fn address_of(&mut self, memory: Memory) -> VReg {
        let memory = self.without_index(memory);
        self.add_constant(memory.base, memory.offset)
    }

    /// Loads or stores `bytes` bytes of a register.
    fn access(&mut self, opcode: Opcode, bytes: usize, register: Arg, memory: Memory) {
        let mut memory = memory;
        if let Some((index, shift)) = memory.index
            && memory.offset == 0
            && (shift == 0 || 1 << shift == bytes)
        {
            let address = [Arg::Use(Field::N, memory.base), Arg::Use(Field::M, index)];
            self.emit(opcode.index(shift > 0), &[register, address[0], address[1]]);
            return;
        }
        memory = self.without_index(memory);
        let (opcode, base) = match opcode.offset(bytes, memory.offset) {
            Some(opcode) => (opcode, memory.base),
            None => (opcode.with(1 << 24), self.address_of(memory)),
        };
        self.emit(opcode, &[register, Arg::Use(Field::N, base)]);
    }

    /// Returns the operands after those of the address.
    fn after_address(address: Address, operands: &[Value]) -> &[Value] {
        &operands[1 + usize::from(address.indexed)..]
    }

    pub(super) fn prefetch(&mut self, address: Address, operands: &[Value]) -> Result<(), CompileError> {
        let memory = self.memory(address, operands)?;
        let address = self.address_of(memory);
        self.emit(o::PRFM, &[Arg::Use(Field::N, address)]);
        Ok(())
    }

    pub(super) fn int_load(
        &mut self,
        result: Value,
        bytes: u8,
        address: Address,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let opcode = match bytes {
            1 => o::LDRB,
            2 => o::LDRH,
            4 => o::LDR_W,
            8 => o::LDR_X,
            // tidy: wildcard because the verifier rejects other widths
            _ => return Err(CompileError::Unsupported(format!("a load of {bytes} bytes"))),
        };
        let memory = self.memory(address, operands)?;
        let register = self.int();
        self.access(opcode, bytes.into(), Arg::Def(Field::D, register), memory);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn int_store(
        &mut self,
        bytes: u8,
        address: Address,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let opcode = match bytes {
            1 => o::STRB,
            2 => o::STRH,
            4 => o::STR_W,
            8 => o::STR_X,
            // tidy: wildcard because the verifier rejects other widths
            _ => return Err(CompileError::Unsupported(format!("a store of {bytes} bytes"))),
        };
        let memory = self.memory(address, operands)?;
        let value = self.read(Self::after_address(address, operands)[0], 0)?;
        self.access(opcode, bytes.into(), Arg::Use(Field::D, value), memory);
        Ok(())
    }

    fn part_addresses(&mut self, lane: Lane, memory: Memory) -> Vec<Memory> {
        let parts = lane_parts(lane);
        let memory = if parts > 1 { self.without_index(memory) } else { memory };
        let bytes = self.register_bytes(lane) as i64;
        (0..parts as i64).map(|part| Memory { offset: memory.offset + part * bytes, ..memory }).collect()
    }

    fn guard(&mut self, mask: Value) -> Result<Guard, CompileError> {
        match self.known(mask) {
            Some(Op::MaskConstant(true)) => Ok(Guard::All),
            // tidy: wildcard because other masks are in registers
            _ => Ok(Guard::Bits(self.lane_bits(mask)?)),
        }
    }

    /// Loads a lane into a vector if its bit in the mask is set.
    fn load_lane(&mut self, input: VReg, lane: Lane, index: usize, from: VReg, on: (Guard, usize)) -> VReg {
        let def = self.vector();
        let opcode = o::LD1.memory_element(lane.bytes(), index);
        self.lane_access(opcode, Arg::Tied { def, input }, from, on);
        def
    }

    /// Loads or stores a lane if its bit in the mask is set.
    fn lane_access(&mut self, opcode: Opcode, register: Arg, at: VReg, (guard, bit): (Guard, usize)) {
        let at = Arg::Use(Field::N, at);
        match guard {
            Guard::All => self.emit(opcode, &[register, at]),
            Guard::Bits(bits) => self.emit(opcode, &[register, at, Arg::Guard(bits, bit as u32)]),
        }
    }

    pub(super) fn load(
        &mut self,
        result: Value,
        lane: Lane,
        address: Address,
        is_masked: bool,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let memory = self.memory(address, operands)?;
        let guard =
            if is_masked { self.guard(Self::after_address(address, operands)[0])? } else { Guard::All };
        for (part, at) in self.part_addresses(lane, memory).into_iter().enumerate() {
            let register = match guard {
                Guard::All => {
                    let bytes = self.register_bytes(lane);
                    let opcode = match bytes {
                        4 => o::LDR_S,
                        8 => o::LDR_D,
                        _ => o::LDR_Q,
                    };
                    let register = self.vector();
                    self.access(opcode, bytes, Arg::Def(Field::D, register), at);
                    register
                }
                Guard::Bits(_) => {
                    let first = self.address_of(at);
                    let mut register = self.zeros();
                    for index in 0..self.register_lanes(lane) {
                        let from = self.add_constant(first, (index * lane.bytes()) as i64);
                        let bit = part * self.register_lanes(lane) + index;
                        register = self.load_lane(register, lane, index, from, (guard, bit));
                    }
                    register
                }
            };
            self.set(result, part, register);
        }
        Ok(())
    }

    fn register_lanes(&self, lane: Lane) -> usize {
        self.function.lanes / lane_parts(lane)
    }

    pub(super) fn store(
        &mut self,
        address: Address,
        is_masked: bool,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let memory = self.memory(address, operands)?;
        let rest = Self::after_address(address, operands);
        let lane = self.lane(rest[0])?;
        let guard = if is_masked { self.guard(rest[1])? } else { Guard::All };
        for (part, at) in self.part_addresses(lane, memory).into_iter().enumerate() {
            let register = Arg::Use(Field::D, self.read(rest[0], part)?);
            match guard {
                Guard::All => {
                    let bytes = self.register_bytes(lane);
                    let opcode = match bytes {
                        4 => o::STR_S,
                        8 => o::STR_D,
                        _ => o::STR_Q,
                    };
                    self.access(opcode, bytes, register, at);
                }
                Guard::Bits(_) => {
                    let first = self.address_of(at);
                    for index in 0..self.register_lanes(lane) {
                        let to = self.add_constant(first, (index * lane.bytes()) as i64);
                        let bit = part * self.register_lanes(lane) + index;
                        let opcode = o::ST1.memory_element(lane.bytes(), index);
                        self.lane_access(opcode, register, to, (guard, bit));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn load_splat(
        &mut self,
        result: Value,
        lane: Lane,
        address: Address,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let memory = self.memory(address, operands)?;
        let at = self.address_of(memory);
        let size = (lane.bytes().trailing_zeros()) << 10;
        let register = self.compute(o::LD1R.with(size).whole(), &[at]);
        for part in 0..lane_parts(lane) {
            self.set(result, part, register);
        }
        Ok(())
    }

    /// Returns `base` plus the offset of each lane.
    fn lane_addresses(&mut self, base: VReg, offsets: Value) -> Result<Vec<VReg>, CompileError> {
        let mut addresses = Vec::new();
        for index in 0..self.function.lanes {
            let half = self.register_lanes(Lane::I64);
            let offsets = self.read(offsets, index / half)?;
            let offset = self.element_to_int(Lane::I64, offsets, index % half);
            addresses.push(self.compute_int(o::ADD, &[base, offset]));
        }
        Ok(addresses)
    }

    pub(super) fn gather(
        &mut self,
        result: Value,
        lane: Lane,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let base = self.read(operands[0], 0)?;
        let guard = self.guard(operands[2])?;
        let addresses = self.lane_addresses(base, operands[1])?;
        let lanes = self.register_lanes(lane);
        for (part, addresses) in addresses.chunks(lanes).enumerate() {
            let mut register = self.zeros();
            for (index, &from) in addresses.iter().enumerate() {
                register = self.load_lane(register, lane, index, from, (guard, part * lanes + index));
            }
            self.set(result, part, register);
        }
        Ok(())
    }

    pub(super) fn scatter(&mut self, operands: &[Value]) -> Result<(), CompileError> {
        let lane = self.lane(operands[2])?;
        let base = self.read(operands[0], 0)?;
        let guard = self.guard(operands[3])?;
        let addresses = self.lane_addresses(base, operands[1])?;
        let lanes = self.register_lanes(lane);
        for (bit, &to) in addresses.iter().enumerate() {
            let register = Arg::Use(Field::D, self.read(operands[2], bit / lanes)?);
            let opcode = o::ST1.memory_element(lane.bytes(), bit % lanes);
            self.lane_access(opcode, register, to, (guard, bit));
        }
        Ok(())
    }
}
