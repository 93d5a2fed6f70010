//! Selects instructions for conversions between lane types.

use iced_x86::Code as C;
use regalloc2::VReg;
use smallvec::SmallVec;

use super::{Arg, Memory, Selector, Size, imm8, lane_parts};
use crate::{
    CompileError,
    ir::{Binary, Conversion, Lane, Op, Value},
    x86::Isa,
};

type Parts = SmallVec<[VReg; 2]>;

impl Selector<'_> {
    pub(super) fn convert(
        &mut self,
        result: Value,
        conversion: Conversion,
        to: Lane,
        x: Value,
    ) -> Result<(), CompileError> {
        let from = self.lane(x)?;
        let parts = match conversion {
            Conversion::Bitcast => {
                let mut parts = Parts::new();
                for part in 0..lane_parts(from) {
                    parts.push(self.read(x, part)?);
                }
                parts
            }
            Conversion::SignExtend | Conversion::ZeroExtend => {
                let is_signed = conversion == Conversion::SignExtend;
                let code = extension(self.isa, from, to, is_signed)?;
                self.widen(x, from, to, code)?
            }
            Conversion::Truncate => {
                let mut parts = Parts::new();
                for part in 0..lane_parts(from) {
                    parts.push(self.read(x, part)?);
                }
                self.truncated(&parts, from, to)
            }
            Conversion::SignedToFloat | Conversion::UnsignedToFloat => {
                let is_signed = conversion == Conversion::SignedToFloat;
                self.int_to_float(x, from, to, is_signed)?
            }
            Conversion::FloatToSigned => self.float_to_int(x, from, to)?,
            Conversion::FloatToFloat => match (from, to) {
                (Lane::F32, Lane::F64) => {
                    let code =
                        self.by_isa(C::EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae, C::VEX_Vcvtps2pd_ymm_xmmm128);
                    self.widen(x, from, to, code)?
                }
                (Lane::F64, Lane::F32) => {
                    let code =
                        self.by_isa(C::EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er, C::VEX_Vcvtpd2ps_xmm_ymmm256);
                    self.narrow_value(x, code)?
                }
                // tidy: wildcard because the verifier rejects the other types
                _ => return Err(unsupported(conversion, from, to)),
            },
            Conversion::HalfToFloat => {
                let code = self.by_isa(C::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, C::VEX_Vcvtph2ps_ymm_xmmm128);
                let x = self.operand(x, 0, None)?;
                let size = self.size(to);
                SmallVec::from_slice(&[self.compute(code, size, &[x])])
            }
            Conversion::FloatToHalf => {
                let code = self
                    .by_isa(C::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, C::VEX_Vcvtps2ph_xmmm128_ymm_imm8);
                let x = Arg::Use(self.read(x, 0)?, self.size(from));
                let size = self.size(to);
                // Rounds to nearest even.
                SmallVec::from_slice(&[self.compute(code, size, &[x, imm8(0)])])
            }
        };
        if parts.len() != lane_parts(to) {
            return Err(unsupported(conversion, from, to));
        }
        for (part, &register) in parts.iter().enumerate() {
            self.set(result, part, register);
        }
        Ok(())
    }

    /// Returns the upper half of the lanes, in the low bits of a new register.
    pub(super) fn high_half_of(&mut self, x: VReg, lane: Lane) -> VReg {
        let (code, from, count) = match (self.isa, lane.bytes()) {
            (Isa::Avx512, 1) => (C::EVEX_Vpsrldq_xmm_xmmm128_imm8, Size::X, 8),
            (Isa::Avx512, 2) => (C::EVEX_Vextracti32x4_xmmm128_k1z_ymm_imm8, Size::Y, 1),
            (Isa::Avx512, _) => (C::EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8, Size::Z, 1),
            (Isa::Avx2, 1) => (C::VEX_Vpsrldq_xmm_xmm_imm8, Size::X, 4),
            (Isa::Avx2, 2) => (C::VEX_Vpsrldq_xmm_xmm_imm8, Size::X, 8),
            (Isa::Avx2, _) => return self.high_half(x),
        };
        let size = self.half_size(lane);
        self.compute(code, size, &[Arg::Use(x, from), imm8(count)])
    }

    /// Returns half of the lanes of a one-register vector. The operand may be memory.
    fn half_operand(&mut self, x: Value, lane: Lane, half: usize) -> Result<Arg, CompileError> {
        if let Some(inst) = self.find_pending(x)
            && let Op::Load { address, .. } = inst.op
        {
            let memory = self.memory(address, &inst.operands)?;
            if half == 1 {
                self.take_pending(x);
            }
            return Ok(Arg::Memory(memory.plus((half * self.register_bytes(lane) / 2) as i32)));
        }
        let register = self.read(x, 0)?;
        let register = if half == 0 { register } else { self.high_half_of(register, lane) };
        Ok(Arg::Use(register, self.half_size(lane)))
    }

    /// Applies an instruction that widens lanes from `from` to `to`.
    fn widen(&mut self, x: Value, from: Lane, to: Lane, code: C) -> Result<Parts, CompileError> {
        let size = self.size(to);
        let mut parts = Parts::new();
        if lane_parts(to) == 1 {
            // The instruction reads exactly the bytes of the lanes, so any pending load may be its
            // operand.
            let x = match self.find_pending(x) {
                Some(inst) if matches!(inst.op, Op::Load { .. }) => {
                    let Op::Load { address, .. } = inst.op else { return Err(unsupported("Load", from, to)) };
                    let memory = self.memory(address, &inst.operands)?;
                    self.take_pending(x);
                    Arg::Memory(memory)
                }
                // tidy: wildcard because other vectors are in registers
                _ => Arg::Use(self.read(x, 0)?, self.size(from)),
            };
            parts.push(self.compute(code, size, &[x]));
        } else {
            for half in 0..2 {
                let x = self.half_operand(x, from, half)?;
                parts.push(self.compute(code, size, &[x]));
            }
        }
        Ok(parts)
    }

    /// Narrows both parts of a vector to half, and joins them.
    fn narrow_value(&mut self, x: Value, code: C) -> Result<Parts, CompileError> {
        let registers = [self.read(x, 0)?, self.read(x, 1)?];
        Ok(SmallVec::from_slice(&[self.narrow(registers, code)]))
    }

    fn narrow(&mut self, parts: [VReg; 2], code: C) -> VReg {
        let (half, full) = (self.half_size(Lane::I32), self.full());
        let [low, high] = parts.map(|x| self.compute(code, half, &[Arg::Use(x, full)]));
        self.join_halves(low, high)
    }

    pub(super) fn extended(&mut self, x: VReg, from: Lane, to: Lane, is_signed: bool) -> VReg {
        let Ok(code) = extension(self.isa, from, to, is_signed) else { return x };
        let size = self.size(to);
        self.compute(code, size, &[Arg::Use(x, self.size(from))])
    }

    /// Truncates lanes to their low bits.
    pub(super) fn truncated(&mut self, parts: &[VReg], from: Lane, to: Lane) -> Parts {
        let register = match self.isa {
            Isa::Avx512 => self.truncated_512(parts, from, to),
            Isa::Avx2 => self.truncated_256(parts, from, to),
        };
        SmallVec::from_slice(&[register])
    }

    fn truncated_512(&mut self, parts: &[VReg], from: Lane, to: Lane) -> VReg {
        let (code, size, from) = match (from, to) {
            (Lane::I16, _) => (C::EVEX_Vpmovwb_xmmm128_k1z_ymm, Size::X, Size::Y),
            (Lane::I32, Lane::I8) => (C::EVEX_Vpmovdb_xmmm128_k1z_zmm, Size::X, Size::Z),
            (Lane::I32, _) => (C::EVEX_Vpmovdw_ymmm256_k1z_zmm, Size::Y, Size::Z),
            (_, Lane::I8) => (C::EVEX_Vpmovqb_xmmm64_k1z_zmm, Size::X, Size::Z),
            (_, Lane::I16) => (C::EVEX_Vpmovqw_xmmm128_k1z_zmm, Size::X, Size::Z),
            (..) => (C::EVEX_Vpmovqd_ymmm256_k1z_zmm, Size::Y, Size::Z),
        };
        let narrow: Parts =
            parts.iter().map(|&part| self.compute(code, size, &[Arg::Use(part, from)])).collect();
        let [low, high] = narrow[..] else { return narrow[0] };
        match to {
            Lane::I8 => {
                let args = [Arg::Use(low, Size::X), Arg::Use(high, Size::X)];
                self.compute(C::EVEX_Vpunpcklqdq_xmm_k1z_xmm_xmmm128b64, Size::X, &args)
            }
            Lane::I16 => {
                let args = [Arg::Use(low, Size::Y), Arg::Use(high, Size::X), imm8(1)];
                self.compute(C::EVEX_Vinserti32x4_ymm_k1z_ymm_xmmm128_imm8, Size::Y, &args)
            }
            // tidy: wildcard because the only other narrow lanes have 32 bits
            _ => self.join_halves(low, high),
        }
    }

    fn truncated_256(&mut self, parts: &[VReg], from: Lane, to: Lane) -> VReg {
        let (mut register, mut from) = (parts[0], from);
        if let [low, high] = *parts {
            register = self.even_lanes(low, high);
            from = Lane::I32;
        }
        if from == Lane::I32 && to.bytes() < 4 {
            // Gathers the low bytes of each half, then joins the halves.
            let bytes = if to == Lane::I8 { 1 } else { 2 };
            let half: Vec<u8> = (0..16)
                .map(|at| if at < 4 * bytes { (at / bytes * 4 + at % bytes) as u8 } else { 0x80 })
                .collect();
            let order = self.out.constants.index([half.clone(), half].concat());
            let args = [Arg::Use(register, Size::Y), Arg::Memory(Memory::constant(order, false))];
            let packed = self.compute(C::VEX_Vpshufb_ymm_ymm_ymmm256, Size::Y, &args);
            let high = self.high_half(packed);
            let args = [Arg::Use(packed, Size::X), Arg::Use(high, Size::X)];
            let code = if bytes == 1 {
                C::VEX_Vpunpckldq_xmm_xmm_xmmm128
            } else {
                C::VEX_Vpunpcklqdq_xmm_xmm_xmmm128
            };
            return self.compute(code, Size::X, &args);
        }
        if from == Lane::I16 && to == Lane::I8 {
            let order: Vec<u8> = (0..16).map(|at| if at < 8 { 2 * at } else { 0x80 }).collect();
            let order = Memory::constant(self.out.constants.index(order), false);
            let args = [Arg::Use(register, Size::X), Arg::Memory(order)];
            return self.compute(C::VEX_Vpshufb_xmm_xmm_xmmm128, Size::X, &args);
        }
        register
    }

    fn int_to_float(
        &mut self,
        x: Value,
        from: Lane,
        to: Lane,
        is_signed: bool,
    ) -> Result<Parts, CompileError> {
        if self.is_avx512() {
            let code = |signed, unsigned| if is_signed { signed } else { unsigned };
            return match (from, to) {
                (Lane::I32, Lane::F32) => {
                    let code = code(
                        C::EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er,
                        C::EVEX_Vcvtudq2ps_zmm_k1z_zmmm512b32_er,
                    );
                    self.each_part(x, code)
                }
                (Lane::I64, Lane::F64) => {
                    let code = code(
                        C::EVEX_Vcvtqq2pd_zmm_k1z_zmmm512b64_er,
                        C::EVEX_Vcvtuqq2pd_zmm_k1z_zmmm512b64_er,
                    );
                    self.each_part(x, code)
                }
                (Lane::I32, Lane::F64) => {
                    let code = code(
                        C::EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er,
                        C::EVEX_Vcvtudq2pd_zmm_k1z_ymmm256b32_er,
                    );
                    self.widen(x, from, to, code)
                }
                (Lane::I64, Lane::F32) => {
                    let code = code(
                        C::EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er,
                        C::EVEX_Vcvtuqq2ps_ymm_k1z_zmmm512b64_er,
                    );
                    self.narrow_value(x, code)
                }
                // tidy: wildcard because the verifier rejects the other types
                _ => Err(unsupported("an integer to a float", from, to)),
            };
        }
        match (from, to, is_signed) {
            (Lane::I32, Lane::F32, true) => self.each_part(x, C::VEX_Vcvtdq2ps_ymm_ymmm256),
            (Lane::I32, Lane::F64, true) => self.widen(x, from, to, C::VEX_Vcvtdq2pd_ymm_xmmm128),
            (Lane::I32, _, false) => {
                let x = self.read(x, 0)?;
                let parts = self.unsigned_32_to_binary64(x)?;
                if to == Lane::F64 {
                    return Ok(SmallVec::from_slice(&parts));
                }
                // binary64 represents the integers exactly, so only this conversion rounds.
                Ok(SmallVec::from_slice(&[self.narrow(parts, C::VEX_Vcvtpd2ps_xmm_ymmm256)]))
            }
            (Lane::I64, _, _) => {
                let mut parts = Parts::new();
                for part in 0..2 {
                    let x = self.read(x, part)?;
                    parts.push(self.int_64_to_float(x, to, is_signed)?);
                }
                if to == Lane::F64 {
                    return Ok(parts);
                }
                Ok(SmallVec::from_slice(&[self.join_halves(parts[0], parts[1])]))
            }
            // tidy: wildcard because the verifier rejects the other types
            _ => Err(unsupported("an integer to a float", from, to)),
        }
    }

    fn each_part(&mut self, x: Value, code: C) -> Result<Parts, CompileError> {
        let lane = self.lane(x)?;
        let size = self.size(lane);
        let mut parts = Parts::new();
        for part in 0..lane_parts(lane) {
            let broadcast = super::tables::can_broadcast(self.isa, lane).then_some(lane.bytes());
            let x = self.operand(x, part, broadcast)?;
            parts.push(self.compute(code, size, &[x]));
        }
        Ok(parts)
    }

    /// Converts unsigned 32-bit lanes with AVX2 as `(x - 2^31) + 2^31`, which is exact.
    fn unsigned_32_to_binary64(&mut self, x: VReg) -> Result<[VReg; 2], CompileError> {
        let flipped = self.binary_constant(Binary::Xor, Lane::I32, x, 1 << 31)?;
        let high = self.high_half(flipped);
        let offset = f64::from(1u32 << 31).to_bits();
        let mut parts = [flipped, high];
        for part in &mut parts {
            let args = [Arg::Use(*part, Size::X)];
            let float = self.compute(C::VEX_Vcvtdq2pd_ymm_xmmm128, Size::Y, &args);
            *part = self.binary_constant(Binary::Add, Lane::F64, float, offset)?;
        }
        Ok(parts)
    }

    /// Converts the 4 lanes of a register of 64-bit integers with AVX2, to a register of binary64
    /// or half a register of binary32.
    fn int_64_to_float(&mut self, x: VReg, to: Lane, is_signed: bool) -> Result<VReg, CompileError> {
        if is_signed {
            return self.signed_64_to_float(x, to);
        }
        // From 2^63 on, the integer is halved first and the result is doubled, exactly. The lowest
        // bit also keeps the bit that was shifted out, so the rounding is the same.
        let half = self.shifted(Binary::Shr, Lane::I64, x, 1)?;
        let lowest = self.binary_constant(Binary::And, Lane::I64, x, 1)?;
        let half = self.binary_registers(Binary::Or, Lane::I64, half, lowest)?;
        let size = Size::Y;
        let args = [Arg::Use(x, size), Arg::Use(half, size), Arg::Use(x, size)];
        let chosen = self.compute(C::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm, size, &args);
        let float = self.signed_64_to_float(chosen, to)?;
        let twice = self.binary_registers(Binary::Add, to, float, float)?;
        let (signs, blend) = if to == Lane::F64 {
            (x, C::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm)
        } else {
            // The high 32 bits, with the sign.
            let high = self.high_half(x);
            let args = [Arg::Use(x, Size::X), Arg::Use(high, Size::X), imm8(0xdd)];
            let signs = self.compute(C::VEX_Vshufps_xmm_xmm_xmmm128_imm8, Size::X, &args);
            (signs, C::VEX_Vblendvps_ymm_ymm_ymmm256_ymm)
        };
        let args = [Arg::Use(float, size), Arg::Use(twice, size), Arg::Use(signs, size)];
        Ok(self.compute(blend, size, &args))
    }

    fn signed_64_to_float(&mut self, x: VReg, to: Lane) -> Result<VReg, CompileError> {
        self.reserve_scratch(64);
        self.emit(C::VEX_Vmovdqu_ymmm256_ymm, &[Arg::Memory(Memory::scratch(0)), Arg::Use(x, Size::Y)]);
        let (code, store) = match to {
            Lane::F64 => (C::VEX_Vcvtsi2sd_xmm_xmm_rm64, C::VEX_Vmovsd_m64_xmm),
            Lane::F32 => (C::VEX_Vcvtsi2ss_xmm_xmm_rm64, C::VEX_Vmovss_m32_xmm),
            // tidy: wildcard because the result is a float
            _ => return Err(unsupported("an integer to a float", Lane::I64, to)),
        };
        let zero = self.zeros();
        for lane in 0..4 {
            let from = Arg::Memory(Memory::scratch(8 * lane));
            let float = self.compute(code, Size::X, &[Arg::Use(zero, Size::X), from]);
            let at = Memory::scratch(32 + lane * to.bytes() as i32);
            self.emit(store, &[Arg::Memory(at), Arg::Use(float, Size::X)]);
        }
        Ok(match to {
            Lane::F64 => {
                self.compute(C::VEX_Vmovupd_ymm_ymmm256, Size::Y, &[Arg::Memory(Memory::scratch(32))])
            }
            // tidy: wildcard because the other float has 32 bits
            _ => self.compute(C::VEX_Vmovups_xmm_xmmm128, Size::X, &[Arg::Memory(Memory::scratch(32))]),
        })
    }

    fn float_to_int(&mut self, x: Value, from: Lane, to: Lane) -> Result<Parts, CompileError> {
        if self.is_avx512() {
            return match (from, to) {
                (Lane::F32, Lane::I32) => self.each_part(x, C::EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae),
                (Lane::F64, Lane::I64) => self.each_part(x, C::EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae),
                (Lane::F32, Lane::I64) => self.widen(x, from, to, C::EVEX_Vcvttps2qq_zmm_k1z_ymmm256b32_sae),
                (Lane::F64, Lane::I32) => self.narrow_value(x, C::EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae),
                // tidy: wildcard because the verifier rejects the other types
                _ => Err(unsupported("a float to an integer", from, to)),
            };
        }
        match (from, to) {
            (Lane::F32, Lane::I32) => self.each_part(x, C::VEX_Vcvttps2dq_ymm_ymmm256),
            (Lane::F64, Lane::I32) => self.narrow_value(x, C::VEX_Vcvttpd2dq_xmm_ymmm256),
            (Lane::F32 | Lane::F64, Lane::I64) => {
                let mut parts = Parts::new();
                for part in 0..lane_parts(from) {
                    let x = self.read(x, part)?;
                    parts.extend(self.float_register_to_int_64(x, from));
                }
                Ok(parts)
            }
            // tidy: wildcard because the verifier rejects the other types
            _ => Err(unsupported("a float to an integer", from, to)),
        }
    }

    /// Converts the floats of a register to 64-bit integers with AVX2, one by one.
    fn float_register_to_int_64(&mut self, x: VReg, from: Lane) -> Parts {
        self.reserve_scratch(64);
        let code =
            if from == Lane::F64 { C::VEX_Vcvttsd2si_r64_xmmm64 } else { C::VEX_Vcvttss2si_r64_xmmm32 };
        let lanes = 32 / from.bytes() as i32;
        self.emit(C::VEX_Vmovups_ymmm256_ymm, &[Arg::Memory(Memory::scratch(0)), Arg::Use(x, Size::Y)]);
        // The last lane is first, so that a result overwrites only floats that were read.
        for lane in (0..lanes).rev() {
            let at = Memory::scratch(lane * from.bytes() as i32);
            let int = self.compute_int(code, Size::R64, &[Arg::Memory(at)]);
            let to = Memory::scratch(8 * lane);
            self.emit(C::Mov_rm64_r64, &[Arg::Memory(to), Arg::Use(int, Size::R64)]);
        }
        (0..lanes / 4)
            .map(|part| {
                let at = Arg::Memory(Memory::scratch(32 * part));
                self.compute(C::VEX_Vmovdqu_ymm_ymmm256, Size::Y, &[at])
            })
            .collect()
    }
}

fn unsupported(conversion: impl std::fmt::Debug, from: Lane, to: Lane) -> CompileError {
    CompileError::Unsupported(format!("{conversion:?} from {from:?} to {to:?}"))
}

fn extension(isa: Isa, from: Lane, to: Lane, is_signed: bool) -> Result<C, CompileError> {
    let [avx512, avx2] = match (from, to, is_signed) {
        (Lane::I8, Lane::I16, true) => [C::EVEX_Vpmovsxbw_ymm_k1z_xmmm128, C::VEX_Vpmovsxbw_xmm_xmmm64],
        (Lane::I8, Lane::I32, true) => [C::EVEX_Vpmovsxbd_zmm_k1z_xmmm128, C::VEX_Vpmovsxbd_ymm_xmmm64],
        (Lane::I8, Lane::I64, true) => [C::EVEX_Vpmovsxbq_zmm_k1z_xmmm64, C::VEX_Vpmovsxbq_ymm_xmmm32],
        (Lane::I16, Lane::I32, true) => [C::EVEX_Vpmovsxwd_zmm_k1z_ymmm256, C::VEX_Vpmovsxwd_ymm_xmmm128],
        (Lane::I16, Lane::I64, true) => [C::EVEX_Vpmovsxwq_zmm_k1z_xmmm128, C::VEX_Vpmovsxwq_ymm_xmmm64],
        (Lane::I32, Lane::I64, true) => [C::EVEX_Vpmovsxdq_zmm_k1z_ymmm256, C::VEX_Vpmovsxdq_ymm_xmmm128],
        (Lane::I8, Lane::I16, false) => [C::EVEX_Vpmovzxbw_ymm_k1z_xmmm128, C::VEX_Vpmovzxbw_xmm_xmmm64],
        (Lane::I8, Lane::I32, false) => [C::EVEX_Vpmovzxbd_zmm_k1z_xmmm128, C::VEX_Vpmovzxbd_ymm_xmmm64],
        (Lane::I8, Lane::I64, false) => [C::EVEX_Vpmovzxbq_zmm_k1z_xmmm64, C::VEX_Vpmovzxbq_ymm_xmmm32],
        (Lane::I16, Lane::I32, false) => [C::EVEX_Vpmovzxwd_zmm_k1z_ymmm256, C::VEX_Vpmovzxwd_ymm_xmmm128],
        (Lane::I16, Lane::I64, false) => [C::EVEX_Vpmovzxwq_zmm_k1z_xmmm128, C::VEX_Vpmovzxwq_ymm_xmmm64],
        (Lane::I32, Lane::I64, false) => [C::EVEX_Vpmovzxdq_zmm_k1z_ymmm256, C::VEX_Vpmovzxdq_ymm_xmmm128],
        // tidy: wildcard because the verifier rejects the other types
        _ => return Err(unsupported("an extension", from, to)),
    };
    Ok(match isa {
        Isa::Avx512 => avx512,
        Isa::Avx2 => avx2,
    })
}
