//! Selects instructions for operations on memory.

use iced_x86::Code as C;
use regalloc2::VReg;

use super::{Arg, Masking, Memory, Selector, Size, imm8, lane_parts, tables};
use crate::{
    CompileError,
    ir::{Address, Lane, Value},
    x86::instruction::{Base, imm32},
};

/// The largest offset of an address. The offsets of all bytes of a vector then fit in 32 bits.
const MAX_OFFSET: i64 = i32::MAX as i64 - 256;

impl Selector<'_> {
    /// Returns the memory operand of an access from its first operands.
    pub(super) fn memory(&mut self, address: Address, operands: &[Value]) -> Result<Memory, CompileError> {
        let mut offset = i64::from(address.offset);
        let mut index = None;
        if address.indexed {
            let scaled = self
                .known_int(operands[1])
                .and_then(|value| value.checked_mul(i64::from(address.scale))?.checked_add(offset))
                .filter(|&sum| i32::try_from(sum).is_ok());
            match scaled {
                Some(sum) => offset = sum,
                None => index = Some((self.read(operands[1], 0)?, Size::R64, address.scale)),
            }
        }
        let base = self.read(operands[0], 0)?;
        let memory = Memory { base: Base::Register(base), index, offset: offset as i32, is_broadcast: false };
        if offset <= MAX_OFFSET {
            return Ok(memory);
        }
        Ok(Memory::at(self.compute_int(C::Lea_r64_m, Size::R64, &[Arg::Memory(memory)])))
    }

    /// Returns the operands after those of the address.
    fn after_address(address: Address, operands: &[Value]) -> &[Value] {
        &operands[1 + usize::from(address.indexed)..]
    }

    pub(super) fn int_load(
        &mut self,
        result: Value,
        bytes: u8,
        address: Address,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let memory = Arg::Memory(self.memory(address, operands)?);
        let (code, size) = match bytes {
            1 => (C::Movzx_r32_rm8, Size::R32),
            2 => (C::Movzx_r32_rm16, Size::R32),
            4 => (C::Mov_r32_rm32, Size::R32),
            8 => (C::Mov_r64_rm64, Size::R64),
            // tidy: wildcard because the verifier rejects other widths
            _ => return Err(CompileError::Unsupported(format!("a load of {bytes} bytes"))),
        };
        let register = self.compute_int(code, size, &[memory]);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn int_store(
        &mut self,
        bytes: u8,
        address: Address,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        self.force_loads()?;
        let memory = Arg::Memory(self.memory(address, operands)?);
        let value = self.read(Self::after_address(address, operands)[0], 0)?;
        let (code, size) = match bytes {
            1 => (C::Mov_rm8_r8, Size::R8),
            2 => (C::Mov_rm16_r16, Size::R16),
            4 => (C::Mov_rm32_r32, Size::R32),
            8 => (C::Mov_rm64_r64, Size::R64),
            // tidy: wildcard because the verifier rejects other widths
            _ => return Err(CompileError::Unsupported(format!("a store of {bytes} bytes"))),
        };
        self.emit(code, &[memory, Arg::Use(value, size)]);
        Ok(())
    }

    fn instruction(code: Option<C>, what: &str, lane: Lane) -> Result<C, CompileError> {
        code.ok_or_else(|| CompileError::Unsupported(format!("{what} of {lane:?}")))
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
        let size = self.size(lane);
        let mask = is_masked.then(|| Self::after_address(address, operands)[0]);
        for part in 0..lane_parts(lane) {
            let at = Arg::Memory(memory.plus((part * self.register_bytes(lane)) as i32));
            let register = match mask {
                None => {
                    let code = Self::instruction(tables::load(self.isa, lane), "a load", lane)?;
                    self.compute(code, size, &[at])
                }
                Some(mask) if self.is_avx512() => {
                    let code = Self::instruction(tables::load(self.isa, lane), "a load", lane)?;
                    let mask = self.mask_part(mask, lane, part)?;
                    let def = self.vector();
                    let masking = Masking::By { mask, zeroing: true };
                    self.emit_masked(code, &[Arg::Def(def, size), at], masking);
                    def
                }
                Some(mask) => match tables::load_masked(self.isa, lane) {
                    Some(code) => {
                        let mask = self.mask_part(mask, lane, part)?;
                        self.compute(code, size, &[Arg::Use(mask, size), at])
                    }
                    None => self.load_lanes(lane, memory, mask)?,
                },
            };
            self.set(result, part, register);
        }
        Ok(())
    }

    /// Computes an address in a register.
    fn address_of(&mut self, memory: Memory) -> VReg {
        self.compute_int(C::Lea_r64_m, Size::R64, &[Arg::Memory(memory)])
    }

    /// Loads lanes of 8 or 16 bits one by one. A masked-off lane loads zeros from the scratch area.
    fn load_lanes(&mut self, lane: Lane, memory: Memory, mask: Value) -> Result<VReg, CompileError> {
        self.reserve_scratch(8);
        let mask = self.read(mask, 0)?;
        let bits = self.bits_of(mask);
        self.emit(C::Mov_rm64_imm32, &[Arg::Memory(Memory::scratch(0)), imm32(0)]);
        let off = self.address_of(Memory::scratch(0));
        let code = if lane == Lane::I8 {
            C::VEX_Vpinsrb_xmm_xmm_r32m8_imm8
        } else {
            C::VEX_Vpinsrw_xmm_xmm_r32m16_imm8
        };
        let mut register = self.zeros();
        for index in 0..self.function.lanes {
            let on = self.address_of(memory.plus((index * lane.bytes()) as i32));
            let from = self.choose_address(bits, index, on, off);
            let args = [Arg::Use(register, Size::X), Arg::Memory(Memory::at(from)), imm8(index as u8)];
            register = self.compute(code, Size::X, &args);
        }
        Ok(register)
    }

    /// Stores one lane of the low 128 bits of a vector.
    fn store_lane(&mut self, lane: Lane, register: VReg, index: usize, to: Memory) {
        let (code, index) = match lane.bytes() {
            1 => (C::VEX_Vpextrb_r32m8_xmm_imm8, index),
            2 => (C::VEX_Vpextrw_r32m16_xmm_imm8, index),
            4 => (C::VEX_Vpextrd_rm32_xmm_imm8, index),
            _ => (C::VEX_Vpextrq_rm64_xmm_imm8, index),
        };
        self.emit(code, &[Arg::Memory(to), Arg::Use(register, Size::X), imm8(index as u8)]);
    }

    pub(super) fn store(
        &mut self,
        address: Address,
        is_masked: bool,
        is_streaming: bool,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        self.force_loads()?;
        let memory = self.memory(address, operands)?;
        let rest = Self::after_address(address, operands);
        let value = rest[0];
        let lane = self.lane(value)?;
        let size = self.size(lane);
        self.out.has_streaming_stores |= is_streaming;
        for part in 0..lane_parts(lane) {
            let at = Arg::Memory(memory.plus((part * self.register_bytes(lane)) as i32));
            let register = Arg::Use(self.read(value, part)?, size);
            if !is_masked {
                let code = if is_streaming { tables::store_streaming } else { tables::store };
                let code = Self::instruction(code(self.isa, lane), "a store", lane)?;
                self.emit(code, &[at, register]);
                continue;
            }
            let mask = rest[1];
            if self.is_avx512() {
                let code = Self::instruction(tables::store(self.isa, lane), "a store", lane)?;
                let mask = self.mask_part(mask, lane, part)?;
                self.emit_masked(code, &[at, register], Masking::By { mask, zeroing: false });
            } else if let Some(code) = tables::store_masked(self.isa, lane) {
                let mask = self.mask_part(mask, lane, part)?;
                self.emit(code, &[at, Arg::Use(mask, size), register]);
            } else {
                self.store_lanes(lane, memory, value, mask)?;
            }
        }
        Ok(())
    }

    /// Stores lanes of 8 or 16 bits one by one. A masked-off lane is stored to the scratch area.
    fn store_lanes(
        &mut self,
        lane: Lane,
        memory: Memory,
        value: Value,
        mask: Value,
    ) -> Result<(), CompileError> {
        self.reserve_scratch(8);
        let mask = self.read(mask, 0)?;
        let bits = self.bits_of(mask);
        let off = self.address_of(Memory::scratch(0));
        let register = self.read(value, 0)?;
        for index in 0..self.function.lanes {
            let on = self.address_of(memory.plus((index * lane.bytes()) as i32));
            let to = self.choose_address(bits, index, on, off);
            self.store_lane(lane, register, index, Memory::at(to));
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
        let memory = Arg::Memory(self.memory(address, operands)?);
        let code = Self::instruction(tables::broadcast_load(self.isa, lane), "a load", lane)?;
        let register = self.compute(code, self.size(lane), &[memory]);
        for part in 0..lane_parts(lane) {
            self.set(result, part, register);
        }
        Ok(())
    }

    pub(super) fn gather(
        &mut self,
        result: Value,
        lane: Lane,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        let base = self.read(operands[0], 0)?;
        let is_wide = lane.bytes() == 8;
        let full = self.full();
        // A register of 64-bit offsets has half the lanes of a vector.
        let size = match (is_wide, self.is_avx512()) {
            (true, _) => full,
            (false, true) => Size::Y,
            (false, false) => Size::X,
        };
        let mut halves = [base; 2];
        for (part, half) in halves.iter_mut().enumerate() {
            let offsets = self.read(operands[1], part)?;
            let input = self.zeros();
            let def = self.vector();
            let memory = Memory {
                base: Base::Register(base),
                index: Some((offsets, full, 1)),
                offset: 0,
                is_broadcast: false,
            };
            let (to, at) = (Arg::Tied { def, input, size }, Arg::Memory(memory));
            if self.is_avx512() {
                let code =
                    if is_wide { C::EVEX_Vgatherqpd_zmm_k1_vm64z } else { C::EVEX_Vgatherqps_ymm_k1_vm64z };
                // A part has the lanes of a register of 64-bit offsets, so its mask is that of
                // 64-bit lanes.
                let mask = self.mask_part(operands[2], Lane::I64, part)?;
                let consumed = self.register(super::MASKS);
                self.emit_masked(code, &[to, at], Masking::Consumed { mask, def: consumed });
            } else {
                let code =
                    if is_wide { C::VEX_Vgatherqpd_ymm_vm64y_ymm } else { C::VEX_Vgatherqps_xmm_vm64y_xmm };
                let mask = if is_wide || part == 0 {
                    self.mask_part(operands[2], lane, part)?
                } else {
                    let mask = self.read(operands[2], 0)?;
                    self.high_half(mask)
                };
                let consumed = self.vector();
                self.emit(code, &[to, at, Arg::Tied { def: consumed, input: mask, size }]);
            }
            *half = def;
        }
        if is_wide {
            self.set(result, 0, halves[0]);
            self.set(result, 1, halves[1]);
        } else {
            let joined = self.join_halves(halves[0], halves[1]);
            self.set(result, 0, joined);
        }
        Ok(())
    }

    /// Joins two half registers of 32-bit lanes.
    pub(super) fn join_halves(&mut self, low: VReg, high: VReg) -> VReg {
        if self.is_avx512() {
            let args = [Arg::Use(low, Size::Z), Arg::Use(high, Size::Y), imm8(1)];
            self.compute(C::EVEX_Vinserti64x4_zmm_k1z_zmm_ymmm256_imm8, Size::Z, &args)
        } else {
            let args = [Arg::Use(low, Size::Y), Arg::Use(high, Size::X), imm8(1)];
            self.compute(C::VEX_Vinserti128_ymm_ymm_xmmm128_imm8, Size::Y, &args)
        }
    }

    pub(super) fn scatter(&mut self, operands: &[Value]) -> Result<(), CompileError> {
        self.force_loads()?;
        let lane = self.lane(operands[2])?;
        let is_wide = lane.bytes() == 8;
        let base = self.read(operands[0], 0)?;
        if !self.is_avx512() {
            return self.scatter_lanes(base, lane, operands);
        }
        for part in 0..2 {
            let offsets = self.read(operands[1], part)?;
            let memory = Memory {
                base: Base::Register(base),
                index: Some((offsets, Size::Z, 1)),
                offset: 0,
                is_broadcast: false,
            };
            let (value, size, code) = if is_wide {
                (self.read(operands[2], part)?, Size::Z, C::EVEX_Vscatterqpd_vm64z_k1_zmm)
            } else {
                let value = self.read(operands[2], 0)?;
                let value = if part == 0 { value } else { self.high_half_of(value, Lane::I32) };
                (value, Size::Y, C::EVEX_Vscatterqps_vm64z_k1_ymm)
            };
            let mask = self.mask_part(operands[3], Lane::I64, part)?;
            let def = self.register(super::MASKS);
            let args = [Arg::Memory(memory), Arg::Use(value, size)];
            self.emit_masked(code, &args, Masking::Consumed { mask, def });
        }
        Ok(())
    }

    /// Stores lanes one by one. A masked-off lane is stored to the scratch area.
    fn scatter_lanes(&mut self, base: VReg, lane: Lane, operands: &[Value]) -> Result<(), CompileError> {
        self.reserve_scratch(8);
        let mask = self.read(operands[3], 0)?;
        let bits = self.bits_of(mask);
        let off = self.address_of(Memory::scratch(0));
        for quarter in 0..4 {
            let (part, is_high) = (quarter / 2, quarter % 2 == 1);
            let mut offsets = self.read(operands[1], part)?;
            if is_high {
                offsets = self.high_half(offsets);
            }
            let wide = lane.bytes() == 8;
            let mut value = self.read(operands[2], if wide { part } else { 0 })?;
            if if wide { is_high } else { part == 1 } {
                value = self.high_half(value);
            }
            for index in 0..2 {
                let args = [Arg::Use(offsets, Size::X), imm8(index as u8)];
                let offset = self.compute_int(C::VEX_Vpextrq_rm64_xmm_imm8, Size::R64, &args);
                let memory = Memory {
                    base: Base::Register(base),
                    index: Some((offset, Size::R64, 1)),
                    offset: 0,
                    is_broadcast: false,
                };
                let on = self.address_of(memory);
                let to = self.choose_address(bits, 2 * quarter + index, on, off);
                let from = if wide { index } else { 2 * (quarter % 2) + index };
                self.store_lane(lane, value, from, Memory::at(to));
            }
        }
        Ok(())
    }

    pub(super) fn prefetch(&mut self, address: Address, operands: &[Value]) -> Result<(), CompileError> {
        let memory = self.memory(address, operands)?;
        self.emit(C::Prefetcht0_m8, &[Arg::Memory(memory)]);
        Ok(())
    }
}
