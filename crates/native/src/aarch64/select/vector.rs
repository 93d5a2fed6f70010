//! Selects instructions for operations on vectors.

use regalloc2::VReg;

use super::{Opcode, Selector, o};
use crate::{
    CompileError,
    aarch64::immediates,
    ir::{Binary, Compare, Lane, Op, Unary, Value},
    select::lane_parts,
};

fn unsupported(operation: impl std::fmt::Debug, lane: Lane) -> CompileError {
    CompileError::Unsupported(format!("{operation:?} of {lane:?}"))
}

/// Returns the instruction that fills a vector with copies of 64 constant bits, if there is one.
fn move_vector(bits: u64) -> Option<Opcode> {
    let bytes = bits.to_le_bytes();
    if bytes.iter().all(|byte| matches!(byte, 0 | 0xff)) {
        let flags = bytes.iter().enumerate().map(|(at, byte)| u32::from(byte & 1) << at).sum();
        return Some(o::MOVI_64.with(immediates::vector_byte(flags)));
    }
    if bytes.iter().all(|&byte| byte == bytes[0]) {
        return Some(o::MOVI_8.whole().with(immediates::vector_byte(bytes[0].into())));
    }
    if let Some(float) = immediates::double(bits) {
        return Some(o::FMOV_64.with(immediates::vector_byte(float)));
    }
    let word = bits as u32;
    if u64::from(word) != bits >> 32 {
        return None;
    }
    if word >> 16 == word & 0xffff
        && let Some(shift) = (0..2).find(|shift| word & 0xffff & !(0xff << (8 * shift)) == 0)
    {
        let byte = (word & 0xffff) >> (8 * shift);
        return Some(o::MOVI_16.whole().with(shift << 13 | immediates::vector_byte(byte)));
    }
    for (opcode, word) in [(o::MOVI_32, word), (o::MVNI_32, !word)] {
        if let Some(shift) = (0..4).find(|shift| word & !(0xff << (8 * shift)) == 0) {
            let byte = word >> (8 * shift);
            return Some(opcode.whole().with(shift << 13 | immediates::vector_byte(byte)));
        }
    }
    let float = immediates::single(word)?;
    Some(o::FMOV_32.whole().with(immediates::vector_byte(float)))
}

impl Selector<'_> {
    pub(super) fn vector_bits(&mut self, bits: u64) -> VReg {
        match move_vector(bits) {
            Some(opcode) => self.compute(opcode, &[]),
            None => self.constant([bits.to_le_bytes(); 2].concat()),
        }
    }

    fn copies(&mut self, lane: Lane, bits: u64) -> VReg {
        let width = 8 * lane.bytes();
        let bits = bits & u64::MAX >> (64 - width);
        self.vector_bits((0..64).step_by(width).fold(0, |all, at| all | bits << at))
    }

    pub(super) fn vector_constant(&mut self, op: Op, part: usize) -> VReg {
        match op {
            Op::Constant(lane, bits) => self.copies(lane, bits),
            Op::Iota(lane) => {
                let mut bytes: Vec<u8> = (0..self.function.lanes as u64)
                    .flat_map(|index| index.to_le_bytes().into_iter().take(lane.bytes()))
                    .skip(16 * part)
                    .take(16)
                    .collect();
                bytes.resize(16, 0);
                self.constant(bytes)
            }
            // tidy: wildcard because other operations are not constant vectors
            _ => self.zeros(),
        }
    }

    /// Copies the low bits of a general register to all lanes.
    pub(super) fn broadcast(&mut self, lane: Lane, x: VReg) -> VReg {
        self.compute(o::DUP.element(lane.bytes(), 0).whole(), &[x])
    }

    pub(super) fn splat(&mut self, result: Value, lane: Lane, x: Value) -> Result<(), CompileError> {
        let x = self.read(x, 0)?;
        let register = self.broadcast(lane, x);
        for part in 0..lane_parts(lane) {
            self.set(result, part, register);
        }
        Ok(())
    }

    /// Returns the bits of a lane of a register, extended with zeros.
    pub(super) fn element_to_int(&mut self, lane: Lane, x: VReg, index: usize) -> VReg {
        let opcode = match (lane.bytes(), index) {
            (8, 0) => o::FMOV_X_D,
            (4, 0) => o::FMOV_W_S,
            (8, _) => o::UMOV.element(8, index).whole(),
            (bytes, _) => o::UMOV.element(bytes, index),
        };
        self.compute_int(opcode, &[x])
    }

    /// Replaces a lane of a register by the first lane of another register.
    pub(super) fn insert(&mut self, lane: Lane, x: VReg, index: usize, first: VReg) -> VReg {
        self.modify(o::INS_ELEMENT.element(lane.bytes(), index), x, &[first])
    }

    pub(super) fn first(&mut self, result: Value, x: Value) -> Result<(), CompileError> {
        let lane = self.lane(x)?;
        let x = self.read(x, 0)?;
        let register = self.element_to_int(lane, x, 0);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn unary(&mut self, result: Value, function: Unary, x: Value) -> Result<(), CompileError> {
        let lane = self.lane(x)?;
        if !lane.is_float() {
            return Err(unsupported(function, lane));
        }
        let opcode = match function {
            Unary::Sqrt => o::FSQRT,
            Unary::Floor => o::FRINTM,
            Unary::Ceil => o::FRINTP,
        };
        for part in 0..lane_parts(lane) {
            let x = self.read(x, part)?;
            let register = self.compute(opcode.lanes(lane), &[x]);
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
        let lane = self.lane(x)?;
        let count = match function {
            Binary::Shl | Binary::Shr | Binary::Sar => self.known_bits(y),
            // tidy: wildcard because other functions have no counts
            _ => None,
        };
        for part in 0..lane_parts(lane) {
            let left = self.read(x, part)?;
            let register = if let Some(count) = count {
                self.shifted(function, lane, left, count)
            } else {
                let right = self.read(y, part)?;
                self.binary_part(function, lane, left, right)?
            };
            self.set(result, part, register);
        }
        Ok(())
    }

    fn binary_part(&mut self, function: Binary, lane: Lane, x: VReg, y: VReg) -> Result<VReg, CompileError> {
        use Binary as F;
        let plain = |selector: &mut Self, opcode: Opcode| Ok(selector.compute(opcode.lanes(lane), &[x, y]));
        let bits = |selector: &mut Self, opcode: Opcode| Ok(selector.compute(opcode.whole(), &[x, y]));
        match (function, lane) {
            (F::And, _) => bits(self, o::AND_VECTOR),
            (F::Or, _) => bits(self, o::ORR_VECTOR),
            (F::Xor, _) => bits(self, o::EOR_VECTOR),
            // The instruction complements its second operand.
            (F::AndNot, _) => Ok(self.compute(o::BIC_VECTOR.whole(), &[y, x])),
            (F::Add, Lane::F32 | Lane::F64) => plain(self, o::FADD),
            (F::Sub, Lane::F32 | Lane::F64) => plain(self, o::FSUB),
            (F::Mul, Lane::F32 | Lane::F64) => plain(self, o::FMUL),
            (F::Div, Lane::F32 | Lane::F64) => plain(self, o::FDIV),
            (F::Scale, Lane::F32) => Ok(self.scale(x, y)),
            (F::Lesser, Lane::F32 | Lane::F64) => Ok(self.extremum(o::FCMGT.lanes(lane), [y, x], x, y)),
            (F::Greater, Lane::F32 | Lane::F64) => Ok(self.extremum(o::FCMGT.lanes(lane), [x, y], x, y)),
            (_, Lane::F32 | Lane::F64) | (F::Div | F::Scale, _) => Err(unsupported(function, lane)),
            (F::Add, _) => plain(self, o::ADD_VECTOR),
            (F::Sub, _) => plain(self, o::SUB_VECTOR),
            (F::Mul, Lane::I64) => Ok(self.by_lanes(o::MUL, x, y)),
            (F::Mul, _) => plain(self, o::MUL_VECTOR),
            (F::Lesser, Lane::I64) => Ok(self.extremum(o::CMGT.lanes(lane), [y, x], x, y)),
            (F::Greater, Lane::I64) => Ok(self.extremum(o::CMGT.lanes(lane), [x, y], x, y)),
            (F::LesserUnsigned, Lane::I64) => Ok(self.extremum(o::CMHI.lanes(lane), [y, x], x, y)),
            (F::GreaterUnsigned, Lane::I64) => Ok(self.extremum(o::CMHI.lanes(lane), [x, y], x, y)),
            (F::Lesser, _) => plain(self, o::SMIN),
            (F::Greater, _) => plain(self, o::SMAX),
            (F::LesserUnsigned, _) => plain(self, o::UMIN),
            (F::GreaterUnsigned, _) => plain(self, o::UMAX),
            (F::Shl | F::Shr | F::Sar, _) => Ok(self.shifted_by(function, lane, x, y)),
            (F::MulHighSigned, Lane::I64) => Ok(self.by_lanes(o::SMULH, x, y)),
            (F::MulHighUnsigned, Lane::I64) => Ok(self.by_lanes(o::UMULH, x, y)),
            (F::MulHighSigned, _) => Ok(self.multiply_high(o::SMULL, lane, x, y)),
            (F::MulHighUnsigned, _) => Ok(self.multiply_high(o::UMULL, lane, x, y)),
        }
    }

    /// Returns the lanes of `x` where a comparison is true, and the lanes of `y` elsewhere.
    fn extremum(&mut self, compare: Opcode, compared: [VReg; 2], x: VReg, y: VReg) -> VReg {
        let mask = self.compute(compare, &compared);
        self.modify(o::BSL.whole(), mask, &[x, y])
    }

    fn shifted(&mut self, function: Binary, lane: Lane, x: VReg, count: u64) -> VReg {
        let bytes = lane.bytes();
        let width = 8 * bytes as u64;
        let whole = |opcode: Opcode| if bytes >= 4 { opcode.whole() } else { opcode };
        match function {
            _ if count == 0 => x,
            Binary::Shl if count >= width => self.zeros(),
            Binary::Shl => self.compute(whole(o::SHL.left(bytes, count as usize)), &[x]),
            // A shift by the width inserts zeros, or the sign, everywhere.
            Binary::Shr => self.compute(whole(o::USHR.right(bytes, count.min(width) as usize)), &[x]),
            // tidy: wildcard because the other shift inserts the sign
            _ => self.compute(whole(o::SSHR.right(bytes, count.min(width) as usize)), &[x]),
        }
    }

    fn shifted_by(&mut self, function: Binary, lane: Lane, x: VReg, count: VReg) -> VReg {
        let width = self.copies(lane, 8 * lane.bytes() as u64);
        // The instruction reads the low 8 bits of a count as a signed number. Counts above the
        // width therefore become the width.
        let count = if lane == Lane::I64 {
            self.extremum(o::CMHI.lanes(lane), [width, count], count, width)
        } else {
            self.compute(o::UMIN.lanes(lane), &[count, width])
        };
        let opcode = if function == Binary::Sar { o::SSHL } else { o::USHL };
        // A negative count shifts to the right.
        let count =
            if function == Binary::Shl { count } else { self.compute(o::NEG_VECTOR.lanes(lane), &[count]) };
        self.compute(opcode.lanes(lane), &[x, count])
    }

    /// Applies an instruction on general registers to each 64-bit lane.
    fn by_lanes(&mut self, opcode: Opcode, x: VReg, y: VReg) -> VReg {
        let [low, high] = [0, 1].map(|index| {
            let [x, y] = [x, y].map(|x| self.element_to_int(Lane::I64, x, index));
            self.compute_int(opcode, &[x, y])
        });
        let low = self.compute(o::FMOV_D_X, &[low]);
        self.modify(o::INS.element(8, 1), low, &[high])
    }

    /// Returns the high halves of the products of lanes of at most 32 bits.
    fn multiply_high(&mut self, opcode: Opcode, lane: Lane, x: VReg, y: VReg) -> VReg {
        let opcode = opcode.size(lane.bytes());
        let low = self.compute(opcode, &[x, y]);
        if lane == Lane::I32 {
            let high = self.compute(opcode.whole(), &[x, y]);
            self.compute(o::UZP2.lanes(lane), &[low, high])
        } else {
            self.compute(o::SHRN.right(lane.bytes(), 8 * lane.bytes()), &[low])
        }
    }

    /// Multiplies binary32 by powers of two, exactly, in binary64.
    fn scale(&mut self, x: VReg, y: VReg) -> VReg {
        const BIAS: u64 = 1023;
        let exponents = self.compute(o::FCVTZS.lanes(Lane::F32), &[y]);
        let bias = self.copies(Lane::I32, BIAS);
        let exponents = self.compute(o::ADD_VECTOR.lanes(Lane::I32), &[exponents, bias]);
        let exponents = self.widened(exponents, Lane::I32, true);
        let x = self.single_to_double(x);
        let [low, high] = [0, 1].map(|part| {
            let factor = self.shifted(Binary::Shl, Lane::I64, exponents[part], 52);
            self.compute(o::FMUL.lanes(Lane::F64), &[x[part], factor])
        });
        self.double_to_single(low, high)
    }

    pub(super) fn multiply_add(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let lane = self.lane(operands[0])?;
        if !lane.is_float() {
            return Err(unsupported("MultiplyAdd", lane));
        }
        for part in 0..lane_parts(lane) {
            let (x, y) = (self.read(operands[0], part)?, self.read(operands[1], part)?);
            let accumulator = self.read(operands[2], part)?;
            let register = self.modify(o::FMLA.lanes(lane), accumulator, &[x, y]);
            self.set(result, part, register);
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
        use Compare as F;
        let lane = self.lane(x)?;
        // The instructions only compare by "greater than", so less-than comparisons swap their
        // operands.
        let (opcode, is_swapped) = match (function, lane.is_float()) {
            (F::Eq | F::Ne, true) => (o::FCMEQ, false),
            (F::Lt, true) => (o::FCMGT, true),
            (F::Le, true) => (o::FCMGE, true),
            (F::LtUnsigned | F::LeUnsigned, true) => return Err(unsupported(function, lane)),
            (F::Eq | F::Ne, false) => (o::CMEQ, false),
            (F::Lt, false) => (o::CMGT, true),
            (F::Le, false) => (o::CMGE, true),
            (F::LtUnsigned, false) => (o::CMHI, true),
            (F::LeUnsigned, false) => (o::CMHS, true),
        };
        let mut parts = Vec::new();
        for part in 0..lane_parts(lane) {
            let (x, y) = (self.read(x, part)?, self.read(y, part)?);
            let operands = if is_swapped { [y, x] } else { [x, y] };
            parts.push(self.compute(opcode.lanes(lane), &operands));
        }
        let mask = self.mask_of_lanes(&parts, lane);
        let mask = if function == F::Ne { self.inverted(mask) } else { mask };
        self.set(result, 0, mask);
        Ok(())
    }

    pub(super) fn select(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let (mask, x, y) = (operands[0], operands[1], operands[2]);
        let lane = self.lane(x)?;
        let is_last = |value: Value| self.uses.is_last(value, self.position) && self.known(value).is_none();
        let is_mask_kept = lane.bytes() != 4 || !is_last(mask);
        let (overwrites_x, overwrites_y) = (is_last(x), is_last(y));
        for part in 0..lane_parts(lane) {
            let mask = self.mask_part(mask, lane, part)?;
            let (x, y) = (self.read(x, part)?, self.read(y, part)?);
            // Each instruction overwrites one operand. The code chooses an operand without later
            // uses.
            let register = if is_mask_kept && overwrites_y {
                self.modify(o::BIT.whole(), y, &[x, mask])
            } else if is_mask_kept && overwrites_x {
                self.modify(o::BIF.whole(), x, &[y, mask])
            } else {
                self.modify(o::BSL.whole(), mask, &[x, y])
            };
            self.set(result, part, register);
        }
        Ok(())
    }

    pub(super) fn rotate(&mut self, result: Value, count: u8, x: Value) -> Result<(), CompileError> {
        let lane = self.lane(x)?;
        let lanes = self.function.lanes;
        let count = usize::from(count) % lanes;
        if lane.bytes() == 8 {
            let parts = [self.read(x, 0)?, self.read(x, 1)?];
            for part in 0..2 {
                let first = 2 * part + count;
                let (low, high) = (parts[first / 2 % 2], parts[(first / 2 + 1) % 2]);
                let register = if first.is_multiple_of(2) { low } else { self.extract(low, high, 8) };
                self.set(result, part, register);
            }
            return Ok(());
        }
        let mut register = self.read(x, 0)?;
        if count > 0 {
            // Copies of narrow lanes fill the rest of the register.
            let bytes = lanes * lane.bytes();
            if bytes < 16 {
                register = self.compute(o::DUP_ELEMENT.element(bytes, 0).whole(), &[register]);
            }
            register = self.extract(register, register, count * lane.bytes());
        }
        self.set(result, 0, register);
        Ok(())
    }

    /// Returns 16 consecutive bytes of two registers, from byte `first` of `low` on.
    fn extract(&mut self, low: VReg, high: VReg, first: usize) -> VReg {
        self.compute(o::EXT.whole().with((first as u32) << 11), &[low, high])
    }
}
