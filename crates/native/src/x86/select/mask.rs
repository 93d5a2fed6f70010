//! Selects instructions for operations on masks.

use iced_x86::{Code as C, OpKind};
use regalloc2::VReg;

use super::{Arg, Condition, INTS, MASKS, Memory, Selector, Size, imm8};
use crate::{
    CompileError,
    ir::{Lane, MaskBinary, Value},
    x86::instruction::imm32,
};

impl Selector<'_> {
    /// Emits an instruction whose result is a new mask register.
    pub(super) fn compute_mask(&mut self, code: C, rest: &[Arg]) -> VReg {
        let def = self.register(MASKS);
        let mut args: smallvec::SmallVec<[Arg; 5]> = smallvec::SmallVec::new();
        args.push(Arg::Def(def, Size::K));
        args.extend_from_slice(rest);
        self.emit(code, &args);
        def
    }

    /// Returns a vector of AVX2 whose bits are all 1.
    pub(super) fn ones(&mut self) -> VReg {
        let first = Arg::First(Size::Y);
        self.compute(C::VEX_Vpcmpeqd_ymm_ymm_ymmm256, Size::Y, &[first, first])
    }

    pub(super) fn zeros(&mut self) -> VReg {
        let code = self.by_isa(C::EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32, C::VEX_Vpxor_xmm_xmm_xmmm128);
        let first = Arg::First(Size::X);
        self.compute(code, Size::X, &[first, first])
    }

    pub(super) fn mask_constant(&mut self, value: bool) -> VReg {
        if self.is_avx512() {
            let code = if value { C::VEX_Kxnorw_kr_kr_kr } else { C::VEX_Kxorw_kr_kr_kr };
            let first = Arg::First(Size::K);
            self.compute_mask(code, &[first, first])
        } else if value {
            self.ones()
        } else {
            self.zeros()
        }
    }

    /// Returns part `part` of a mask: a mask register with AVX-512, and with AVX2 a vector with
    /// lanes of the width of `lane`.
    pub(super) fn mask_part(&mut self, mask: Value, lane: Lane, part: usize) -> Result<VReg, CompileError> {
        let is_direct = if self.is_avx512() { part == 0 } else { lane.bytes() == 4 };
        if is_direct || self.known(mask).is_some() {
            return self.read(mask, 0);
        }
        let key = (mask, lane.bytes(), part);
        if let Some(&register) = self.mask_parts.get(&key) {
            return Ok(register);
        }
        let mask = self.read(mask, 0)?;
        let register = if self.is_avx512() {
            self.compute_mask(C::VEX_Kshiftrw_kr_kr_imm8, &[Arg::Use(mask, Size::K), imm8(8)])
        } else {
            match lane.bytes() {
                8 => {
                    let half = if part == 0 { mask } else { self.high_half(mask) };
                    self.compute(C::VEX_Vpmovsxdq_ymm_xmmm128, Size::Y, &[Arg::Use(half, Size::X)])
                }
                bytes => {
                    let high = self.high_half(mask);
                    let args = [Arg::Use(mask, Size::X), Arg::Use(high, Size::X)];
                    let words = self.compute(C::VEX_Vpackssdw_xmm_xmm_xmmm128, Size::X, &args);
                    if bytes == 2 {
                        words
                    } else {
                        let args = [Arg::Use(words, Size::X); 2];
                        self.compute(C::VEX_Vpacksswb_xmm_xmm_xmmm128, Size::X, &args)
                    }
                }
            }
        };
        self.mask_parts.insert(key, register);
        Ok(register)
    }

    pub(super) fn high_half(&mut self, x: VReg) -> VReg {
        let args = [Arg::Use(x, Size::Y), imm8(1)];
        self.compute(C::VEX_Vextracti128_xmmm128_ymm_imm8, Size::X, &args)
    }

    /// Joins the masks of two parts with 64-bit lanes.
    pub(super) fn join_masks(&mut self, low: VReg, high: VReg) -> VReg {
        if self.is_avx512() {
            return self
                .compute_mask(C::VEX_Kunpckbw_kr_kr_kr, &[Arg::Use(high, Size::K), Arg::Use(low, Size::K)]);
        }
        self.even_lanes(low, high)
    }

    /// Returns the low halves of the 64-bit lanes of two vectors of AVX2.
    pub(super) fn even_lanes(&mut self, low: VReg, high: VReg) -> VReg {
        let args = [Arg::Use(low, Size::Y), Arg::Use(high, Size::Y), imm8(0x88)];
        let mixed = self.compute(C::VEX_Vshufps_ymm_ymm_ymmm256_imm8, Size::Y, &args);
        let args = [Arg::Use(mixed, Size::Y), imm8(0xd8)];
        self.compute(C::VEX_Vpermq_ymm_ymmm256_imm8, Size::Y, &args)
    }

    pub(super) fn inverted(&mut self, x: VReg) -> VReg {
        let ones = self.ones();
        self.compute(C::VEX_Vpxor_ymm_ymm_ymmm256, Size::Y, &[Arg::Use(x, Size::Y), Arg::Use(ones, Size::Y)])
    }

    fn combined(&mut self, function: MaskBinary, x: VReg, y: VReg) -> VReg {
        if self.is_avx512() {
            let code = match function {
                MaskBinary::And => C::VEX_Kandw_kr_kr_kr,
                MaskBinary::Or => C::VEX_Korw_kr_kr_kr,
                MaskBinary::Xor => C::VEX_Kxorw_kr_kr_kr,
                MaskBinary::AndNot => C::VEX_Kandnw_kr_kr_kr,
            };
            return self.compute_mask(code, &[Arg::Use(x, Size::K), Arg::Use(y, Size::K)]);
        }
        let code = match function {
            MaskBinary::And => C::VEX_Vpand_ymm_ymm_ymmm256,
            MaskBinary::Or => C::VEX_Vpor_ymm_ymm_ymmm256,
            MaskBinary::Xor => C::VEX_Vpxor_ymm_ymm_ymmm256,
            MaskBinary::AndNot => C::VEX_Vpandn_ymm_ymm_ymmm256,
        };
        self.compute(code, Size::Y, &[Arg::Use(x, Size::Y), Arg::Use(y, Size::Y)])
    }

    pub(super) fn mask_binary(
        &mut self,
        result: Value,
        function: MaskBinary,
        x: Value,
        y: Value,
    ) -> Result<(), CompileError> {
        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
        let register = self.combined(function, x, y);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn mask_not(&mut self, result: Value, x: Value) -> Result<(), CompileError> {
        let x = self.read(x, 0)?;
        let register = if self.is_avx512() {
            self.compute_mask(C::VEX_Knotw_kr_kr, &[Arg::Use(x, Size::K)])
        } else {
            self.inverted(x)
        };
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn mask_select(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let condition = self.read(operands[0], 0)?;
        let (x, y) = (self.read(operands[1], 0)?, self.read(operands[2], 0)?);
        let register = if self.is_avx512() {
            let first = self.combined(MaskBinary::And, condition, x);
            let second = self.combined(MaskBinary::AndNot, condition, y);
            self.combined(MaskBinary::Or, first, second)
        } else {
            let args = [Arg::Use(y, Size::Y), Arg::Use(x, Size::Y), Arg::Use(condition, Size::Y)];
            self.compute(C::VEX_Vblendvps_ymm_ymm_ymmm256_ymm, Size::Y, &args)
        };
        self.set(result, 0, register);
        Ok(())
    }

    /// Clamps a count to the range from 0 to the number of lanes.
    fn limited_count(&mut self, count: VReg) -> VReg {
        let lanes = self.function.lanes as i64;
        let sign = self.modify_int(C::Sar_rm64_imm8, count, &[imm8(63)]);
        let args = [Arg::Use(sign, Size::R64), Arg::Use(count, Size::R64)];
        let count = self.compute_int(C::VEX_Andn_r64_r64_rm64, Size::R64, &args);
        let limit = self.int_constant(lanes);
        let limit_operand = Arg::Immediate(OpKind::Immediate8to64, lanes);
        self.emit(C::Cmp_rm64_imm8, &[Arg::Use(count, Size::R64), limit_operand]);
        let code = Condition::Greater.conditional_move();
        self.modify_int(code, count, &[Arg::Use(limit, Size::R64)])
    }

    pub(super) fn first_lanes(&mut self, result: Value, count: Value) -> Result<(), CompileError> {
        let count = self.read(count, 0)?;
        let count = self.limited_count(count);
        let register = if self.is_avx512() {
            let ones = self.int_constant(0xffff);
            let args = [Arg::Use(ones, Size::R32), Arg::Use(count, Size::R32)];
            let bits = self.compute_int(C::VEX_Bzhi_r32_rm32_r32, Size::R32, &args);
            self.compute_mask(C::VEX_Kmovw_kr_r32, &[Arg::Use(bits, Size::R32)])
        } else {
            let counts = self.broadcast(Lane::I32, count);
            let indices: Vec<u8> = (0..8u32).flat_map(u32::to_le_bytes).collect();
            let indices = self.out.constants.index(indices);
            let args = [Arg::Use(counts, Size::Y), Arg::Memory(Memory::constant(indices, false))];
            self.compute(C::VEX_Vpcmpgtd_ymm_ymm_ymmm256, Size::Y, &args)
        };
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn mask_of_bits(&mut self, result: Value, bits: Value) -> Result<(), CompileError> {
        let bits = self.read(bits, 0)?;
        let register = if self.is_avx512() {
            self.compute_mask(C::VEX_Kmovw_kr_r32, &[Arg::Use(bits, Size::R32)])
        } else {
            let copies = self.broadcast(Lane::I32, bits);
            let weights: Vec<u8> = (0..8u32).flat_map(|lane| (1u32 << lane).to_le_bytes()).collect();
            let weights = self.out.constants.index(weights);
            let weights = Arg::Memory(Memory::constant(weights, false));
            let args = [Arg::Use(copies, Size::Y), weights];
            let chosen = self.compute(C::VEX_Vpand_ymm_ymm_ymmm256, Size::Y, &args);
            let args = [Arg::Use(chosen, Size::Y), weights];
            self.compute(C::VEX_Vpcmpeqd_ymm_ymm_ymmm256, Size::Y, &args)
        };
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn mask_bits(&mut self, result: Value, mask: Value) -> Result<(), CompileError> {
        let mask = self.read(mask, 0)?;
        let register = self.bits_of(mask);
        self.set(result, 0, register);
        Ok(())
    }

    /// Returns an integer whose bit i is lane i of a mask.
    pub(super) fn bits_of(&mut self, mask: VReg) -> VReg {
        if self.is_avx512() {
            self.compute_int(C::VEX_Kmovw_r32_kr, Size::R32, &[Arg::Use(mask, Size::K)])
        } else {
            self.compute_int(C::VEX_Vmovmskps_r32_ymm, Size::R32, &[Arg::Use(mask, Size::Y)])
        }
    }

    /// Returns the address `on` if bit `bit` of the integer `bits` is set, otherwise `off`.
    pub(super) fn choose_address(&mut self, bits: VReg, bit: usize, on: VReg, off: VReg) -> VReg {
        debug_assert!(on.class() == INTS && off.class() == INTS, "addresses are integers");
        let immediate = imm32(1 << bit);
        self.emit(C::Test_rm64_imm32, &[Arg::Use(bits, Size::R64), immediate]);
        self.modify_int(Condition::NotEqual.conditional_move(), off, &[Arg::Use(on, Size::R64)])
    }
}
