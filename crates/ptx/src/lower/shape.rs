//! Lowers `arange`, and ops that only permute or select registers.

use smallvec::SmallVec;
use tilewright_ir::{Inst, Value};
use tilewright_layout::{Input, Layout};

use super::Lowering;
use super::builder::{Scalar, Width};

impl Lowering<'_> {
    pub(super) fn lower_arange(&mut self, inst: Inst, start: i64) {
        let layout = self.layout(self.kernel.insts[inst].results[0]);
        let images = [layout.bases(Input::Lane), layout.bases(Input::Warp)].concat();
        let thread_part = self.linear(&images);
        let scalars: Vec<Scalar> = (0..layout.registers())
            .map(|register| {
                let own = layout.at(&[(Input::Register, register)]);
                self.displaced(thread_part, &images, own).plus(Width::B32, start as u64)
            })
            .collect();
        self.set_result(inst, scalars);
    }

    pub(super) fn lower_broadcast(&mut self, inst: Inst, tile: Value) {
        let result = self.kernel.insts[inst].results[0];
        let (from, to) = (&self.ty(tile).shape, &self.ty(result).shape);
        let axes = (0..to.len()).filter(|&axis| from[axis] != to[axis]);
        let collapsed = axes.fold(self.layout(result).clone(), |layout, axis| layout.collapse(axis));
        let scalars = self.get_in(tile, Some(&collapsed));
        self.set_result(inst, scalars);
    }

    /// Lowers a slice to some of the registers of a thread.
    pub(super) fn lower_slice(&mut self, inst: Inst, tile: Value, starts: &[i64], steps: &[i64]) {
        let own = self.get(tile);
        let layout = self.layout(self.kernel.insts[inst].results[0]);
        let unsigned = |numbers: &[i64]| -> SmallVec<[u32; 6]> {
            numbers
                .iter()
                .map(|number| u32::try_from(*number).expect("the verifier checks the slice"))
                .collect()
        };
        let number = layout.slice_number(&self.ty(tile).shape, &unsigned(steps), &unsigned(starts));
        let (count, first) = (layout.registers() as usize, (number * layout.registers()) as usize);
        self.set_result(inst, own[first..first + count].to_vec());
    }

    /// Permutes the registers of the operand. `see` returns the layout of the result in the
    /// operand's registers, which are reordered to the result's layout.
    pub(super) fn rename(&mut self, inst: Inst, tile: Value, see: impl FnOnce(&Layout) -> Layout) {
        let own = self.get(tile);
        let result = self.kernel.insts[inst].results[0];
        let (Some(from), Some(to)) = (self.layout_of(tile), self.layout_of(result)) else {
            // All elements of the result equal the scalar.
            let count = self.count(result);
            return self.set_result(inst, vec![own[0]; count]);
        };
        let registers =
            to.registers_from(&see(from)).expect("a pass inserts convert_layout where threads differ");
        let scalars: Vec<Scalar> = registers.iter().map(|&register| own[register as usize]).collect();
        self.set_result(inst, scalars);
    }
}
