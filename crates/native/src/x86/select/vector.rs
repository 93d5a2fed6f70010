//! Selects instructions for operations on vectors.

use iced_x86::Code as C;
use regalloc2::VReg;

use super::{Arg, Masking, Memory, Selector, Size, imm8, lane_parts, tables};
use crate::{
    CompileError,
    ir::{Binary, Compare, Lane, Op, Unary, Value},
    x86::Isa,
};

/// The predicates of `vcmpps` and `vpcmpd`. They raise no exception for a quiet NaN. Except for
/// [`NOT_EQUAL`], they are false for NaN.
const EQUAL: u8 = 0;
const NOT_EQUAL: u8 = 4;
const LESS_FLOAT: u8 = 0x11;
const LESS_OR_EQUAL_FLOAT: u8 = 0x12;
const LESS_INT: u8 = 1;
const LESS_OR_EQUAL_INT: u8 = 2;

/// The rounding modes of `vroundps` and `vrndscaleps`, without an exception for inexact results.
const ROUND_DOWN: u8 = 9;
const ROUND_UP: u8 = 10;

fn unsupported(operation: impl std::fmt::Debug, lane: Lane) -> CompileError {
    CompileError::Unsupported(format!("{operation:?} of {lane:?}"))
}

impl Selector<'_> {
    /// Returns the bytes of a constant vector.
    fn constant_bytes(&self, op: Op) -> Vec<u8> {
        let (lane, of_lane): (Lane, &dyn Fn(u64) -> u64) = match op {
            Op::Constant(lane, ref bits) => (lane, &|_| *bits),
            Op::Iota(lane) => (lane, &|index| index),
            // tidy: wildcard because other operations are not constants
            _ => (Lane::I8, &|_| 0),
        };
        (0..self.function.lanes as u64)
            .flat_map(|index| of_lane(index).to_le_bytes().into_iter().take(lane.bytes()))
            .collect()
    }

    /// Returns a memory operand for a part of a constant. It is one element if the lanes are equal
    /// and fit in `broadcast` bytes, otherwise the lanes of a register of `size`.
    pub(super) fn constant_memory(
        &mut self,
        op: Op,
        part: usize,
        size: Size,
        broadcast: Option<usize>,
    ) -> Memory {
        let mut bytes = self.constant_bytes(op);
        if let (Op::Constant(lane, _), Some(width)) = (op, broadcast)
            && width >= lane.bytes()
        {
            bytes.truncate(width);
            return Memory::constant(self.out.constants.index(bytes), true);
        }
        let length = match size {
            Size::Z => 64,
            Size::Y => 32,
            // tidy: wildcard because the other vectors have 128 bits
            _ => 16,
        };
        let start = (part * length) % bytes.len();
        bytes.drain(..start);
        bytes.truncate(length);
        bytes.resize(length, 0);
        Memory::constant(self.out.constants.index(bytes), false)
    }

    pub(super) fn vector_constant(&mut self, op: Op, part: usize) -> VReg {
        if let Op::Constant(lane, bits) = op {
            if bits == 0 {
                return self.zeros();
            }
            if bits == u64::MAX >> (64 - 8 * lane.bytes()) {
                if !self.is_avx512() {
                    return self.ones();
                }
                let (first, code) = (Arg::First(Size::Z), C::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8);
                return self.compute(code, Size::Z, &[first, first, imm8(0xff)]);
            }
            if let Some(code) = tables::broadcast_load(self.isa, lane) {
                let bytes = bits.to_le_bytes()[..lane.bytes()].to_vec();
                let memory = Memory::constant(self.out.constants.index(bytes), false);
                return self.compute(code, self.size(lane), &[Arg::Memory(memory)]);
            }
        }
        let full = self.full();
        let memory = self.constant_memory(op, part, full, None);
        let code = self.by_isa(C::EVEX_Vmovdqu32_zmm_k1z_zmmm512, C::VEX_Vmovdqu_ymm_ymmm256);
        self.compute(code, full, &[Arg::Memory(memory)])
    }

    /// Returns the size of the element that a memory operand can copy to all lanes, if any.
    fn broadcast_bytes(&self, lane: Lane) -> Option<usize> {
        tables::can_broadcast(self.isa, lane).then_some(lane.bytes())
    }

    fn lane_operand(&mut self, value: Value, part: usize) -> Result<Arg, CompileError> {
        let lane = self.lane(value)?;
        let broadcast = self.broadcast_bytes(lane);
        self.operand(value, part, broadcast)
    }

    fn is_memory(&self, value: Value) -> bool {
        let broadcast = self.lane(value).ok().and_then(|lane| self.broadcast_bytes(lane));
        self.can_be_memory(value, broadcast)
    }

    /// Copies the low bits of a general register to all lanes.
    pub(super) fn broadcast(&mut self, lane: Lane, x: VReg) -> VReg {
        let from = if lane.bytes() == 8 { Size::R64 } else { Size::R32 };
        let size = self.size(lane);
        if let Some(code) = tables::broadcast_int(self.isa, lane) {
            return self.compute(code, size, &[Arg::Use(x, from)]);
        }
        let code = if lane.bytes() == 8 { C::VEX_Vmovq_xmm_rm64 } else { C::VEX_Vmovd_xmm_rm32 };
        let low = self.compute(code, Size::X, &[Arg::Use(x, from)]);
        match tables::broadcast_lane(self.isa, lane) {
            Some(code) => self.compute(code, size, &[Arg::Use(low, Size::X)]),
            None => low,
        }
    }

    pub(super) fn splat(&mut self, result: Value, lane: Lane, x: Value) -> Result<(), CompileError> {
        let x = self.read(x, 0)?;
        let register = self.broadcast(lane, x);
        for part in 0..lane_parts(lane) {
            self.set(result, part, register);
        }
        Ok(())
    }

    pub(super) fn first(&mut self, result: Value, x: Value) -> Result<(), CompileError> {
        let lane = self.lane(x)?;
        let x = Arg::Use(self.read(x, 0)?, Size::X);
        let register = if lane.bytes() == 8 {
            let code = self.by_isa(C::EVEX_Vmovq_rm64_xmm, C::VEX_Vmovq_rm64_xmm);
            self.compute_int(code, Size::R64, &[x])
        } else {
            let code = self.by_isa(C::EVEX_Vmovd_rm32_xmm, C::VEX_Vmovd_rm32_xmm);
            let low = self.compute_int(code, Size::R32, &[x]);
            match lane.bytes() {
                1 => self.compute_int(C::Movzx_r32_rm8, Size::R32, &[Arg::Use(low, Size::R8)]),
                2 => self.compute_int(C::Movzx_r32_rm16, Size::R32, &[Arg::Use(low, Size::R16)]),
                _ => low,
            }
        };
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn unary(&mut self, result: Value, function: Unary, x: Value) -> Result<(), CompileError> {
        let lane = self.lane(x)?;
        let size = self.size(lane);
        for part in 0..lane_parts(lane) {
            let x = self.lane_operand(x, part)?;
            let mode = match function {
                Unary::Sqrt => None,
                Unary::Floor => Some(ROUND_DOWN),
                Unary::Ceil => Some(ROUND_UP),
            };
            let register = match mode {
                None => {
                    let code = tables::square_root(self.isa, lane);
                    self.compute(code.ok_or_else(|| unsupported(function, lane))?, size, &[x])
                }
                Some(mode) => {
                    let code = tables::round(self.isa, lane);
                    self.compute(code.ok_or_else(|| unsupported(function, lane))?, size, &[x, imm8(mode)])
                }
            };
            self.set(result, part, register);
        }
        Ok(())
    }

    pub(super) fn binary(
        &mut self,
        result: Value,
        function: Binary,
        x: Value,
        y: Value,
    ) -> Result<(), CompileError> {
        use Binary as F;
        let lane = self.lane(x)?;
        if lane.is_float() && !is_float_function(function)
            || !lane.is_float() && matches!(function, F::Div | F::Scale)
        {
            return Err(unsupported(function, lane));
        }
        let is_commutative = matches!(
            function,
            F::Add | F::Mul | F::And | F::Or | F::Xor | F::MulHighSigned | F::MulHighUnsigned
        );
        let (x, y) = if is_commutative && self.is_memory(x) && !self.is_memory(y) { (y, x) } else { (x, y) };
        if let (F::Shl | F::Shr | F::Sar, Some(count)) = (function, self.known_bits(y))
            && let Some(code) = match function {
                F::Shl => tables::shl_immediate(self.isa, lane),
                F::Shr => tables::shr_immediate(self.isa, lane),
                // tidy: wildcard because the other shift is to the right
                _ => tables::sar_immediate(self.isa, lane),
            }
        {
            let size = self.size(lane);
            for part in 0..lane_parts(lane) {
                let x = if self.is_avx512() {
                    self.lane_operand(x, part)?
                } else {
                    Arg::Use(self.read(x, part)?, size)
                };
                let register = self.compute(code, size, &[x, imm8(count.min(255) as u8)]);
                self.set(result, part, register);
            }
            return Ok(());
        }
        for part in 0..lane_parts(lane) {
            let register = self.binary_part(function, lane, x, y, part)?;
            self.set(result, part, register);
        }
        Ok(())
    }

    fn binary_part(
        &mut self,
        function: Binary,
        lane: Lane,
        x: Value,
        y: Value,
        part: usize,
    ) -> Result<VReg, CompileError> {
        use Binary as F;
        let size = self.size(lane);
        if let Some(code) = tables::binary(self.isa, function, lane) {
            let is_bitwise = matches!(function, F::And | F::Or | F::Xor | F::AndNot);
            let x = Arg::Use(self.read(x, part)?, size);
            let y = if is_bitwise && self.is_avx512() && lane.bytes() < 4 {
                self.operand(y, part, Some(4))?
            } else {
                self.lane_operand(y, part)?
            };
            return Ok(self.compute(code, size, &[x, y]));
        }
        let (x, y) = (self.read(x, part)?, self.read(y, part)?);
        match (function, lane) {
            (F::Mul, Lane::I8) => {
                let [x, y] = [x, y].map(|x| self.extended(x, Lane::I8, Lane::I16, false));
                let product = self.binary_registers(F::Mul, Lane::I16, x, y)?;
                Ok(self.truncated(&[product], Lane::I16, Lane::I8)[0])
            }
            (F::MulHighSigned | F::MulHighUnsigned, Lane::I8) => {
                let is_signed = function == F::MulHighSigned;
                let [x, y] = [x, y].map(|x| self.extended(x, Lane::I8, Lane::I16, is_signed));
                let product = self.binary_registers(F::Mul, Lane::I16, x, y)?;
                let high = self.shifted(F::Shr, Lane::I16, product, 8)?;
                Ok(self.truncated(&[high], Lane::I16, Lane::I8)[0])
            }
            (F::Shl | F::Shr | F::Sar, Lane::I8 | Lane::I16) => {
                let wide = if self.is_avx512() { Lane::I16 } else { Lane::I32 };
                let x = self.extended(x, lane, wide, function == F::Sar);
                let y = self.extended(y, lane, wide, false);
                let shifted = self.binary_registers(function, wide, x, y)?;
                Ok(self.truncated(&[shifted], wide, lane)[0])
            }
            (F::Sar, Lane::I64) => {
                // AVX2 has no arithmetic right shift of 64-bit lanes. The code complements negative
                // numbers before and after a logical shift.
                let zero = self.zeros();
                let args = [Arg::Use(zero, size), Arg::Use(x, size)];
                let sign = self.compute(C::VEX_Vpcmpgtq_ymm_ymm_ymmm256, size, &args);
                let flipped = self.binary_registers(F::Xor, lane, x, sign)?;
                let shifted = self.binary_registers(F::Shr, lane, flipped, y)?;
                self.binary_registers(F::Xor, lane, shifted, sign)
            }
            (F::Mul, Lane::I64) => self.multiply_64(x, y),
            (F::Scale, Lane::F32) => {
                // `2^y` may be out of range, so the code multiplies by two powers of two. Only the
                // second multiplication rounds: the first product is normal, or the result is 0 or
                // infinite.
                let exponent = self.compute(C::VEX_Vcvtps2dq_ymm_ymmm256, size, &[Arg::Use(y, size)]);
                let half = self.shifted(F::Sar, Lane::I32, exponent, 1)?;
                let rest = self.binary_registers(F::Sub, Lane::I32, exponent, half)?;
                let mut product = x;
                for exponent in [half, rest] {
                    let biased = self.binary_constant(F::Add, Lane::I32, exponent, 127)?;
                    let factor = self.shifted(F::Shl, Lane::I32, biased, 23)?;
                    product = self.binary_registers(F::Mul, Lane::F32, product, factor)?;
                }
                Ok(product)
            }
            (F::Lesser | F::LesserUnsigned | F::Greater | F::GreaterUnsigned, Lane::I64) => {
                let is_signed = matches!(function, F::Lesser | F::Greater);
                let greater = self.greater_64(x, y, is_signed)?;
                let (on, off) =
                    if matches!(function, F::Lesser | F::LesserUnsigned) { (y, x) } else { (x, y) };
                let args = [Arg::Use(off, size), Arg::Use(on, size), Arg::Use(greater, size)];
                Ok(self.compute(C::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm, size, &args))
            }
            (F::MulHighSigned | F::MulHighUnsigned, Lane::I32) => {
                self.multiply_high_32(function == F::MulHighSigned, x, y)
            }
            (F::MulHighSigned | F::MulHighUnsigned, Lane::I64) => {
                self.multiply_high_64(function == F::MulHighSigned, x, y)
            }
            // tidy: wildcard because the verifier rejects the other types
            _ => Err(unsupported(function, lane)),
        }
    }

    pub(super) fn binary_registers(
        &mut self,
        function: Binary,
        lane: Lane,
        x: VReg,
        y: VReg,
    ) -> Result<VReg, CompileError> {
        let size = self.size(lane);
        let code = tables::binary(self.isa, function, lane).ok_or_else(|| unsupported(function, lane))?;
        Ok(self.compute(code, size, &[Arg::Use(x, size), Arg::Use(y, size)]))
    }

    pub(super) fn binary_constant(
        &mut self,
        function: Binary,
        lane: Lane,
        x: VReg,
        bits: u64,
    ) -> Result<VReg, CompileError> {
        let size = self.size(lane);
        let code = tables::binary(self.isa, function, lane).ok_or_else(|| unsupported(function, lane))?;
        let broadcast = self.broadcast_bytes(lane);
        let memory = self.constant_memory(Op::Constant(lane, bits), 0, size, broadcast);
        Ok(self.compute(code, size, &[Arg::Use(x, size), Arg::Memory(memory)]))
    }

    /// Shifts all lanes by a constant below their width.
    pub(super) fn shifted(
        &mut self,
        function: Binary,
        lane: Lane,
        x: VReg,
        count: u8,
    ) -> Result<VReg, CompileError> {
        let code = match function {
            Binary::Shl => tables::shl_immediate(self.isa, lane),
            Binary::Shr => tables::shr_immediate(self.isa, lane),
            // tidy: wildcard because the other shift is to the right
            _ => tables::sar_immediate(self.isa, lane),
        };
        let size = self.size(lane);
        let code = code.ok_or_else(|| unsupported(function, lane))?;
        Ok(self.compute(code, size, &[Arg::Use(x, size), imm8(count)]))
    }

    /// Multiplies the low 32 bits of 64-bit lanes.
    fn multiply_halves(&mut self, is_signed: bool, x: VReg, y: VReg) -> VReg {
        let code = match (self.isa, is_signed) {
            (Isa::Avx512, false) => C::EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64,
            (Isa::Avx512, true) => C::EVEX_Vpmuldq_zmm_k1z_zmm_zmmm512b64,
            (Isa::Avx2, false) => C::VEX_Vpmuludq_ymm_ymm_ymmm256,
            (Isa::Avx2, true) => C::VEX_Vpmuldq_ymm_ymm_ymmm256,
        };
        let size = self.full();
        self.compute(code, size, &[Arg::Use(x, size), Arg::Use(y, size)])
    }

    /// Multiplies 64-bit lanes: `xl * yl + ((xh * yl + xl * yh) << 32)`.
    fn multiply_64(&mut self, x: VReg, y: VReg) -> Result<VReg, CompileError> {
        let lane = Lane::I64;
        let x_high = self.shifted(Binary::Shr, lane, x, 32)?;
        let y_high = self.shifted(Binary::Shr, lane, y, 32)?;
        let first = self.multiply_halves(false, x_high, y);
        let second = self.multiply_halves(false, x, y_high);
        let middle = self.binary_registers(Binary::Add, lane, first, second)?;
        let middle = self.shifted(Binary::Shl, lane, middle, 32)?;
        let low = self.multiply_halves(false, x, y);
        self.binary_registers(Binary::Add, lane, low, middle)
    }

    /// Returns the high halves of products of 32-bit lanes, separately for even and odd lanes.
    fn multiply_high_32(&mut self, is_signed: bool, x: VReg, y: VReg) -> Result<VReg, CompileError> {
        let lane = Lane::I64;
        let even = self.multiply_halves(is_signed, x, y);
        let x_odd = self.shifted(Binary::Shr, lane, x, 32)?;
        let y_odd = self.shifted(Binary::Shr, lane, y, 32)?;
        let odd = self.multiply_halves(is_signed, x_odd, y_odd);
        let even = self.shifted(Binary::Shr, lane, even, 32)?;
        let odd = self.binary_constant(Binary::And, lane, odd, 0xffff_ffff_0000_0000)?;
        self.binary_registers(Binary::Or, lane, even, odd)
    }

    /// Returns the high halves of products of 64-bit lanes. Source: Warren, Hacker's Delight,
    /// section 8-2.
    fn multiply_high_64(&mut self, is_signed: bool, x: VReg, y: VReg) -> Result<VReg, CompileError> {
        let lane = Lane::I64;
        let low_mask = 0xffff_ffff;
        let x_high = self.shifted(Binary::Shr, lane, x, 32)?;
        let y_high = self.shifted(Binary::Shr, lane, y, 32)?;
        let low = self.multiply_halves(false, x, y);
        let carry = self.shifted(Binary::Shr, lane, low, 32)?;
        let first = self.multiply_halves(false, x_high, y);
        let first = self.binary_registers(Binary::Add, lane, first, carry)?;
        let first_low = self.binary_constant(Binary::And, lane, first, low_mask)?;
        let second = self.multiply_halves(false, x, y_high);
        let second = self.binary_registers(Binary::Add, lane, second, first_low)?;
        let high = self.multiply_halves(false, x_high, y_high);
        let first_high = self.shifted(Binary::Shr, lane, first, 32)?;
        let second_high = self.shifted(Binary::Shr, lane, second, 32)?;
        let high = self.binary_registers(Binary::Add, lane, high, first_high)?;
        let mut high = self.binary_registers(Binary::Add, lane, high, second_high)?;
        if is_signed {
            for [factor, other] in [[x, y], [y, x]] {
                let sign = self.signs_64(factor)?;
                let correction = self.binary_registers(Binary::And, lane, sign, other)?;
                high = self.binary_registers(Binary::Sub, lane, high, correction)?;
            }
        }
        Ok(high)
    }

    /// Returns 64-bit lanes filled with the sign of the operand's lanes.
    pub(super) fn signs_64(&mut self, x: VReg) -> Result<VReg, CompileError> {
        if self.is_avx512() {
            return self.shifted(Binary::Sar, Lane::I64, x, 63);
        }
        let zero = self.zeros();
        let args = [Arg::Use(zero, Size::Y), Arg::Use(x, Size::Y)];
        Ok(self.compute(C::VEX_Vpcmpgtq_ymm_ymm_ymmm256, Size::Y, &args))
    }

    /// Compares 64-bit lanes with AVX2: `x > y`.
    fn greater_64(&mut self, x: VReg, y: VReg, is_signed: bool) -> Result<VReg, CompileError> {
        let (x, y) = if is_signed {
            (x, y)
        } else {
            let sign = 1 << 63;
            (
                self.binary_constant(Binary::Xor, Lane::I64, x, sign)?,
                self.binary_constant(Binary::Xor, Lane::I64, y, sign)?,
            )
        };
        let args = [Arg::Use(x, Size::Y), Arg::Use(y, Size::Y)];
        Ok(self.compute(C::VEX_Vpcmpgtq_ymm_ymm_ymmm256, Size::Y, &args))
    }

    pub(super) fn multiply_add(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let (mut x, mut y, z) = (operands[0], operands[1], operands[2]);
        let lane = self.lane(x)?;
        let size = self.size(lane);
        let isa = self.isa;
        if self.is_memory(x) {
            std::mem::swap(&mut x, &mut y);
        }
        // Each `fma` instruction overwrites one operand. The code chooses an operand without later
        // uses.
        let is_last = |value: Value| self.uses.is_last(value, self.position) && !self.is_memory(value);
        let code = |code: Option<C>| code.ok_or_else(|| unsupported("MultiplyAdd", lane));
        let (code, tied, middle, last) = if is_last(z) {
            (code(tables::fma231(isa, lane))?, z, x, y)
        } else if self.is_memory(y) && !self.is_memory(z) {
            if is_last(x) || self.is_memory(x) {
                (code(tables::fma132(isa, lane))?, x, z, y)
            } else {
                (code(tables::fma231(isa, lane))?, z, x, y)
            }
        } else if is_last(y) && !is_last(x) {
            (code(tables::fma213(isa, lane))?, y, x, z)
        } else {
            (code(tables::fma213(isa, lane))?, x, y, z)
        };
        for part in 0..lane_parts(lane) {
            let input = self.read(tied, part)?;
            let middle = Arg::Use(self.read(middle, part)?, size);
            let last = self.lane_operand(last, part)?;
            let def = self.vector();
            self.emit(code, &[Arg::Tied { def, input, size }, middle, last]);
            self.set(result, part, def);
        }
        Ok(())
    }

    pub(super) fn compare(
        &mut self,
        result: Value,
        function: Compare,
        x: Value,
        y: Value,
    ) -> Result<(), CompileError> {
        let lane = self.lane(x)?;
        let mut parts = [None; 2];
        for (part, mask) in parts.iter_mut().enumerate().take(lane_parts(lane)) {
            *mask = Some(if self.is_avx512() {
                self.compare_512(function, lane, x, y, part)?
            } else {
                self.compare_256(function, lane, x, y, part)?
            });
        }
        let register = match parts {
            [Some(low), Some(high)] => self.join_masks(low, high),
            [Some(only), _] => only,
            [None, _] => return Err(unsupported(function, lane)),
        };
        self.set(result, 0, register);
        Ok(())
    }

    fn compare_512(
        &mut self,
        function: Compare,
        lane: Lane,
        x: Value,
        y: Value,
        part: usize,
    ) -> Result<VReg, CompileError> {
        let is_unsigned = matches!(function, Compare::LtUnsigned | Compare::LeUnsigned);
        let table = if is_unsigned { tables::compare_unsigned } else { tables::compare_signed };
        let code = table(self.isa, lane).ok_or_else(|| unsupported(function, lane))?;
        let predicate = predicate(function, lane);
        let x = Arg::Use(self.read(x, part)?, self.size(lane));
        let y = self.lane_operand(y, part)?;
        Ok(self.compute_mask(code, &[x, y, imm8(predicate)]))
    }

    /// Compares lanes with AVX2. The mask has lanes of the width of `lane`, but at least 32 bits.
    fn compare_256(
        &mut self,
        function: Compare,
        lane: Lane,
        x: Value,
        y: Value,
        part: usize,
    ) -> Result<VReg, CompileError> {
        use Compare as F;
        let size = Size::Y;
        if lane.is_float() {
            let code = tables::compare_signed(self.isa, lane).ok_or_else(|| unsupported(function, lane))?;
            if matches!(function, F::LtUnsigned | F::LeUnsigned) {
                return Err(unsupported(function, lane));
            }
            let predicate = predicate(function, lane);
            let x = Arg::Use(self.read(x, part)?, size);
            let y = self.lane_operand(y, part)?;
            return Ok(self.compute(code, size, &[x, y, imm8(predicate)]));
        }
        let (mut x, mut y) = (self.read(x, part)?, self.read(y, part)?);
        let is_unsigned = matches!(function, F::LtUnsigned | F::LeUnsigned);
        let mut function = function;
        if lane.bytes() < 4 {
            [x, y] = [x, y].map(|x| self.extended(x, lane, Lane::I32, !is_unsigned));
            // Zero-extended lanes are not negative, so signed comparisons are correct.
            function = match function {
                F::LtUnsigned => F::Lt,
                F::LeUnsigned => F::Le,
                F::Eq | F::Ne | F::Lt | F::Le => function,
            };
        }
        let wide = if lane == Lane::I64 { Lane::I64 } else { Lane::I32 };
        let code = |code: Option<C>| code.ok_or_else(|| unsupported(function, lane));
        let equal = code(tables::compare_equal(self.isa, wide))?;
        let greater = code(tables::compare_greater(self.isa, wide))?;
        let pair = |x, y| [Arg::Use(x, size), Arg::Use(y, size)];
        let (mask, is_inverted) = match function {
            F::Eq => (self.compute(equal, size, &pair(x, y)), false),
            F::Ne => (self.compute(equal, size, &pair(x, y)), true),
            F::Lt => (self.compute(greater, size, &pair(y, x)), false),
            F::Le => (self.compute(greater, size, &pair(x, y)), true),
            F::LtUnsigned if wide == Lane::I64 => (self.greater_64(y, x, false)?, false),
            F::LeUnsigned if wide == Lane::I64 => (self.greater_64(x, y, false)?, true),
            F::LtUnsigned => {
                let greatest = self.binary_registers(Binary::GreaterUnsigned, wide, x, y)?;
                (self.compute(equal, size, &pair(greatest, x)), true)
            }
            F::LeUnsigned => {
                let least = self.binary_registers(Binary::LesserUnsigned, wide, x, y)?;
                (self.compute(equal, size, &pair(least, x)), false)
            }
        };
        Ok(if is_inverted { self.inverted(mask) } else { mask })
    }

    pub(super) fn select(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let (mask, x, y) = (operands[0], operands[1], operands[2]);
        let lane = self.lane(x)?;
        let size = self.size(lane);
        let code = tables::blend(self.isa, lane).ok_or_else(|| unsupported("Select", lane))?;
        for part in 0..lane_parts(lane) {
            let mask = self.mask_part(mask, lane, part)?;
            let register = if self.is_avx512() {
                self.select_512(lane, mask, x, y, part)?
            } else {
                let y = Arg::Use(self.read(y, part)?, size);
                let x = self.lane_operand(x, part)?;
                self.compute(code, size, &[y, x, Arg::Use(mask, size)])
            };
            self.set(result, part, register);
        }
        Ok(())
    }

    fn select_512(
        &mut self,
        lane: Lane,
        mask: VReg,
        x: Value,
        y: Value,
        part: usize,
    ) -> Result<VReg, CompileError> {
        let size = self.size(lane);
        let def = self.vector();
        let table = |code: Option<C>| code.ok_or_else(|| unsupported("Select", lane));
        // A masked load waits for its mask, which makes loops over memory slow. `x` and `y` are
        // therefore loaded without masks; only a constant `x` may be memory.
        let is_zeroing = self.known_bits(y) == Some(0);
        let x = match self.known(x) {
            Some(_) if is_zeroing => self.operand(x, part, None)?,
            Some(_) => self.lane_operand(x, part)?,
            None => Arg::Use(self.read(x, part)?, size),
        };
        if is_zeroing {
            // The masked move sets the other lanes to 0.
            let move_masked = table(tables::load(self.isa, lane))?;
            self.emit_masked(move_masked, &[Arg::Def(def, size), x], Masking::By { mask, zeroing: true });
            return Ok(def);
        }
        let y = Arg::Use(self.read(y, part)?, size);
        let blend = table(tables::blend(self.isa, lane))?;
        self.emit_masked(blend, &[Arg::Def(def, size), y, x], Masking::By { mask, zeroing: false });
        Ok(def)
    }

    pub(super) fn rotate(&mut self, result: Value, count: u8, x: Value) -> Result<(), CompileError> {
        let lane = self.lane(x)?;
        let lanes = self.function.lanes;
        let count = usize::from(count) % lanes;
        let size = self.size(lane);
        let first = self.read(x, 0)?;
        if count == 0 {
            for part in 0..lane_parts(lane) {
                let register = self.read(x, part)?;
                self.set(result, part, register);
            }
            return Ok(());
        }
        let bytes = (count * lane.bytes()) as u8;
        let twice = [Arg::Use(first, size), Arg::Use(first, size)];
        let register = match (self.isa, lane.bytes()) {
            (_, 8) => return self.rotate_parts(result, count, x),
            (Isa::Avx512, 4) => {
                let code = C::EVEX_Valignd_zmm_k1z_zmm_zmmm512b32_imm8;
                self.compute(code, size, &[twice[0], twice[1], imm8(count as u8)])
            }
            (Isa::Avx512, 2) => {
                let indices: Vec<u8> =
                    (0..lanes).flat_map(|lane| (((lane + count) % lanes) as u16).to_le_bytes()).collect();
                let indices = Memory::constant(self.out.constants.index(indices), false);
                let load = C::EVEX_Vmovdqu16_ymm_k1z_ymmm256;
                let indices = self.compute(load, size, &[Arg::Memory(indices)]);
                let args = [Arg::Use(indices, size), twice[0]];
                self.compute(C::EVEX_Vpermw_ymm_k1z_ymm_ymmm256, size, &args)
            }
            (Isa::Avx512, _) => {
                let code = C::EVEX_Vpalignr_xmm_k1z_xmm_xmmm128_imm8;
                self.compute(code, size, &[twice[0], twice[1], imm8(bytes)])
            }
            (Isa::Avx2, 4) => {
                let indices: Vec<u8> =
                    (0..lanes).flat_map(|lane| (((lane + count) % lanes) as u32).to_le_bytes()).collect();
                let indices = Memory::constant(self.out.constants.index(indices), false);
                let indices = self.compute(C::VEX_Vmovdqu_ymm_ymmm256, size, &[Arg::Memory(indices)]);
                self.compute(C::VEX_Vpermd_ymm_ymm_ymmm256, size, &[Arg::Use(indices, size), twice[0]])
            }
            (Isa::Avx2, 2) => {
                let code = C::VEX_Vpalignr_xmm_xmm_xmmm128_imm8;
                self.compute(code, size, &[twice[0], twice[1], imm8(bytes)])
            }
            (Isa::Avx2, _) => {
                let indices: Vec<u8> = (0..16).map(|lane| ((lane + count) % lanes) as u8).collect();
                let indices = Memory::constant(self.out.constants.index(indices), false);
                let args = [twice[0], Arg::Memory(indices)];
                self.compute(C::VEX_Vpshufb_xmm_xmm_xmmm128, size, &args)
            }
        };
        self.set(result, 0, register);
        Ok(())
    }

    /// Rotates 64-bit lanes across their two registers.
    fn rotate_parts(&mut self, result: Value, count: usize, x: Value) -> Result<(), CompileError> {
        let half = self.function.lanes / 2;
        let parts = [self.read(x, 0)?, self.read(x, 1)?];
        for part in 0..2 {
            let first = part * half + count;
            let low = parts[first / half % 2];
            let high = parts[(first / half + 1) % 2];
            let count = (first % half) as u8;
            let register = if count == 0 {
                low
            } else if self.is_avx512() {
                let args = [Arg::Use(high, Size::Z), Arg::Use(low, Size::Z), imm8(count)];
                self.compute(C::EVEX_Valignq_zmm_k1z_zmm_zmmm512b64_imm8, Size::Z, &args)
            } else {
                // Both registers rotate by `count` lanes. The last `count` lanes of the result are
                // those of `high`.
                let selector = (0..4).fold(0, |bits, lane| bits | (((lane + count) % 4) << (2 * lane)));
                let [low, high] = [low, high].map(|x| {
                    let args = [Arg::Use(x, Size::Y), imm8(selector)];
                    self.compute(C::VEX_Vpermq_ymm_ymmm256_imm8, Size::Y, &args)
                });
                let from_high = 0xffu8 << (2 * (4 - count));
                let args = [Arg::Use(low, Size::Y), Arg::Use(high, Size::Y), imm8(from_high)];
                self.compute(C::VEX_Vpblendd_ymm_ymm_ymmm256_imm8, Size::Y, &args)
            };
            self.set(result, part, register);
        }
        Ok(())
    }
}

fn is_float_function(function: Binary) -> bool {
    use Binary as F;
    match function {
        F::Add
        | F::Sub
        | F::Mul
        | F::Div
        | F::Scale
        | F::Lesser
        | F::Greater
        | F::And
        | F::Or
        | F::Xor
        | F::AndNot => true,
        F::LesserUnsigned
        | F::GreaterUnsigned
        | F::Shl
        | F::Shr
        | F::Sar
        | F::MulHighSigned
        | F::MulHighUnsigned => false,
    }
}

fn predicate(function: Compare, lane: Lane) -> u8 {
    match function {
        Compare::Eq => EQUAL,
        Compare::Ne => NOT_EQUAL,
        Compare::Lt if lane.is_float() => LESS_FLOAT,
        Compare::Le if lane.is_float() => LESS_OR_EQUAL_FLOAT,
        Compare::Lt | Compare::LtUnsigned => LESS_INT,
        Compare::Le | Compare::LeUnsigned => LESS_OR_EQUAL_INT,
    }
}
