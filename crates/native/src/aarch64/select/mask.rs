//! Selects instructions for operations on masks, which are vectors of 32-bit lanes.

use regalloc2::VReg;

use super::{Arg, Selector, o};
use crate::{
    CompileError,
    ir::{Lane, MaskBinary, Value},
};

/// The lane width in the keys of [`Selector::mask_parts`] for masks as integers.
const BITS: usize = 0;

impl Selector<'_> {
    pub(super) fn ones(&mut self) -> VReg {
        self.vector_bits(u64::MAX)
    }

    pub(super) fn zeros(&mut self) -> VReg {
        self.vector_bits(0)
    }

    /// Returns part `part` of a mask, with lanes of the width of `lane`.
    pub(super) fn mask_part(&mut self, mask: Value, lane: Lane, part: usize) -> Result<VReg, CompileError> {
        if lane.bytes() == 4 || self.known(mask).is_some() {
            return self.read(mask, 0);
        }
        let key = (mask, lane.bytes(), part);
        if let Some(&register) = self.mask_parts.get(&key) {
            return Ok(register);
        }
        let mask = self.read(mask, 0)?;
        let register = if lane.bytes() == 8 {
            self.widened(mask, Lane::I32, true)[part]
        } else {
            self.truncated(&[mask], Lane::I32, lane.integer())
        };
        self.mask_parts.insert(key, register);
        Ok(register)
    }

    /// Converts lanes that are all ones or all zeros to a mask.
    pub(super) fn mask_of_lanes(&mut self, parts: &[VReg], lane: Lane) -> VReg {
        match (parts, lane.bytes()) {
            (&[low, high], _) => self.compute(o::UZP1.lanes(Lane::I32), &[low, high]),
            (parts, 4) => parts[0],
            (parts, _) => self.extended(parts[0], lane.integer(), Lane::I32, true),
        }
    }

    pub(super) fn inverted(&mut self, x: VReg) -> VReg {
        self.compute(o::NOT.whole(), &[x])
    }

    pub(super) fn mask_binary(
        &mut self,
        result: Value,
        function: MaskBinary,
        x: Value,
        y: Value,
    ) -> Result<(), CompileError> {
        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
        let register = match function {
            MaskBinary::And => self.compute(o::AND_VECTOR.whole(), &[x, y]),
            MaskBinary::Or => self.compute(o::ORR_VECTOR.whole(), &[x, y]),
            MaskBinary::Xor => self.compute(o::EOR_VECTOR.whole(), &[x, y]),
            // The instruction complements its second operand.
            MaskBinary::AndNot => self.compute(o::BIC_VECTOR.whole(), &[y, x]),
        };
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn mask_not(&mut self, result: Value, x: Value) -> Result<(), CompileError> {
        let x = self.read(x, 0)?;
        let register = self.inverted(x);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn mask_select(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let condition = self.read(operands[0], 0)?;
        let (x, y) = (self.read(operands[1], 0)?, self.read(operands[2], 0)?);
        let register = self.modify(o::BSL.whole(), condition, &[x, y]);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn first_lanes(&mut self, result: Value, count: Value) -> Result<(), CompileError> {
        let count = self.read(count, 0)?;
        // Saturates the count of 64 bits to 32 bits.
        let count = self.compute(o::FMOV_D_X, &[count]);
        let count = self.compute(o::SQXTN_S, &[count]);
        let counts = self.compute(o::DUP_ELEMENT.element(4, 0).whole(), &[count]);
        let indices = (0..self.function.lanes as u32).flat_map(u32::to_le_bytes).collect();
        let indices = self.constant(indices);
        let register = self.compute(o::CMGT.lanes(Lane::I32), &[counts, indices]);
        self.set(result, 0, register);
        Ok(())
    }

    /// Returns a vector with `1 << i` in its 32-bit lane i.
    fn weights(&mut self) -> VReg {
        let weights = (0..self.function.lanes).flat_map(|lane| (1u32 << lane).to_le_bytes()).collect();
        self.constant(weights)
    }

    pub(super) fn mask_of_bits(&mut self, result: Value, bits: Value) -> Result<(), CompileError> {
        let bits = self.read(bits, 0)?;
        let copies = self.broadcast(Lane::I32, bits);
        let weights = self.weights();
        let register = self.compute(o::CMTST.lanes(Lane::I32), &[copies, weights]);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn mask_bits(&mut self, result: Value, mask: Value) -> Result<(), CompileError> {
        let register = self.lane_bits(mask)?;
        self.set(result, 0, register);
        Ok(())
    }

    /// Returns an integer whose bit i is lane i of a mask.
    pub(super) fn lane_bits(&mut self, mask: Value) -> Result<VReg, CompileError> {
        if let Some(&register) = self.mask_parts.get(&(mask, BITS, 0)) {
            return Ok(register);
        }
        let register = self.read(mask, 0)?;
        let weights = self.weights();
        let chosen = self.compute(o::AND_VECTOR.whole(), &[register, weights]);
        let sum = self.compute(o::ADDV_S, &[chosen]);
        let bits = self.compute_int(o::FMOV_W_S, &[sum]);
        self.mask_parts.insert((mask, BITS, 0), bits);
        Ok(bits)
    }

    /// Reads a constant of 128 bits from memory.
    pub(super) fn constant(&mut self, bytes: Vec<u8>) -> VReg {
        let index = self.out.constants.index(bytes);
        let def = self.vector();
        self.emit(o::LDR_Q_LITERAL, &[Arg::Def(super::Field::D, def), Arg::Constant(index)]);
        def
    }
}
