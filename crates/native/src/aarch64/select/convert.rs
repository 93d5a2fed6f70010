//! Selects instructions for conversions between lane types.

use regalloc2::VReg;
use smallvec::{SmallVec, smallvec};

use super::{Opcode, Selector, o};
use crate::{
    CompileError,
    ir::{Conversion, Lane, Value},
    select::lane_parts,
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
        let mut parts = Parts::new();
        for part in 0..lane_parts(from) {
            parts.push(self.read(x, part)?);
        }
        let parts = match conversion {
            Conversion::Bitcast => parts,
            Conversion::SignExtend | Conversion::ZeroExtend => {
                let is_signed = conversion == Conversion::SignExtend;
                if to.bytes() == 8 {
                    let words = self.extended(parts[0], from, Lane::I32, is_signed);
                    SmallVec::from(self.widened(words, Lane::I32, is_signed))
                } else {
                    smallvec![self.extended(parts[0], from, to, is_signed)]
                }
            }
            Conversion::Truncate => smallvec![self.truncated(&parts, from, to)],
            Conversion::SignedToFloat | Conversion::UnsignedToFloat => {
                let is_signed = conversion == Conversion::SignedToFloat;
                self.int_to_float(&parts, from, to, is_signed)?
            }
            Conversion::FloatToSigned => self.float_to_int(&parts, from, to)?,
            Conversion::FloatToFloat => match (from, to) {
                (Lane::F32, Lane::F64) => SmallVec::from(self.single_to_double(parts[0])),
                (Lane::F64, Lane::F32) => smallvec![self.double_to_single(parts[0], parts[1])],
                // tidy: wildcard because the verifier rejects the other types
                _ => return Err(unsupported(conversion, from, to)),
            },
            Conversion::HalfToFloat => smallvec![self.compute(o::FCVTL_HALF, &[parts[0]])],
            Conversion::FloatToHalf => smallvec![self.compute(o::FCVTN_HALF, &[parts[0]])],
        };
        if parts.len() != lane_parts(to) {
            return Err(unsupported(conversion, from, to));
        }
        for (part, &register) in parts.iter().enumerate() {
            self.set(result, part, register);
        }
        Ok(())
    }

    /// Extends lanes to twice their width, in two registers.
    pub(super) fn widened(&mut self, x: VReg, from: Lane, is_signed: bool) -> [VReg; 2] {
        let opcode = if is_signed { o::SSHLL } else { o::USHLL };
        let opcode = opcode.left(from.bytes(), 0);
        [self.compute(opcode, &[x]), self.compute(opcode.whole(), &[x])]
    }

    /// Extends lanes to at most 32 bits, in one register.
    pub(super) fn extended(&mut self, x: VReg, from: Lane, to: Lane, is_signed: bool) -> VReg {
        let opcode = if is_signed { o::SSHLL } else { o::USHLL };
        let (mut register, mut bytes) = (x, from.bytes());
        while bytes < to.bytes() {
            register = self.compute(opcode.left(bytes, 0), &[register]);
            bytes *= 2;
        }
        register
    }

    /// Truncates lanes to their low bits.
    pub(super) fn truncated(&mut self, parts: &[VReg], from: Lane, to: Lane) -> VReg {
        let (mut register, mut bytes) = (parts[0], from.bytes());
        if let [low, high] = *parts {
            register = self.compute(o::UZP1.lanes(Lane::I32), &[low, high]);
            bytes = 4;
        }
        while bytes > to.bytes() {
            bytes /= 2;
            register = self.compute(o::XTN.size(bytes), &[register]);
        }
        register
    }

    pub(super) fn single_to_double(&mut self, x: VReg) -> [VReg; 2] {
        [self.compute(o::FCVTL, &[x]), self.compute(o::FCVTL.whole(), &[x])]
    }

    pub(super) fn double_to_single(&mut self, low: VReg, high: VReg) -> VReg {
        let low = self.compute(o::FCVTN, &[low]);
        self.modify(o::FCVTN.whole(), low, &[high])
    }

    fn int_to_float(
        &mut self,
        parts: &[VReg],
        from: Lane,
        to: Lane,
        is_signed: bool,
    ) -> Result<Parts, CompileError> {
        let opcode = if is_signed { o::SCVTF } else { o::UCVTF }.lanes(to);
        match (from, to) {
            (Lane::I32, Lane::F32) | (Lane::I64, Lane::F64) => Ok(self.each_part(opcode, parts)),
            (Lane::I32, Lane::F64) => {
                let wide = self.widened(parts[0], Lane::I32, is_signed);
                Ok(self.each_part(opcode, &wide))
            }
            (Lane::I64, Lane::F32) => {
                // Converting through binary64 would round twice.
                let opcode = if is_signed { o::SCVTF_S_X } else { o::UCVTF_S_X };
                let mut result = None;
                for index in 0..4 {
                    let int = self.element_to_int(Lane::I64, parts[index / 2], index % 2);
                    let float = self.compute(opcode, &[int]);
                    result = Some(match result {
                        None => float,
                        Some(lanes) => self.insert(Lane::F32, lanes, index, float),
                    });
                }
                Ok(result.into_iter().collect())
            }
            // tidy: wildcard because the verifier rejects the other types
            _ => Err(unsupported("an integer to a float", from, to)),
        }
    }

    fn float_to_int(&mut self, parts: &[VReg], from: Lane, to: Lane) -> Result<Parts, CompileError> {
        match (from, to) {
            (Lane::F32, Lane::I32) | (Lane::F64, Lane::I64) => {
                Ok(self.each_part(o::FCVTZS.lanes(from), parts))
            }
            (Lane::F32, Lane::I64) => {
                let wide = self.single_to_double(parts[0]);
                Ok(self.each_part(o::FCVTZS.lanes(Lane::F64), &wide))
            }
            (Lane::F64, Lane::I32) => {
                let wide = self.each_part(o::FCVTZS.lanes(from), parts);
                Ok(smallvec![self.truncated(&wide, Lane::I64, to)])
            }
            // tidy: wildcard because the verifier rejects the other types
            _ => Err(unsupported("a float to an integer", from, to)),
        }
    }

    fn each_part(&mut self, opcode: Opcode, parts: &[VReg]) -> Parts {
        parts.iter().map(|&part| self.compute(opcode, &[part])).collect()
    }
}

fn unsupported(conversion: impl std::fmt::Debug, from: Lane, to: Lane) -> CompileError {
    CompileError::Unsupported(format!("{conversion:?} from {from:?} to {to:?}"))
}
