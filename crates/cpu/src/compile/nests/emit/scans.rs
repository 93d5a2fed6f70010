//! Emits scans of the elements of a row, with the results of `run/kernels/scan.rs`.

use tilewright_native::ir::{Compare, Lane, Value};

use super::super::vectors::{Elements, elements};
use super::{Body, Emitter};
use crate::program::{Action, Slot, Step, Strategy};
use crate::tuning::SCAN_BLOCK;

pub(super) struct Scan {
    result: Slot,
    /// The total so far, in all lanes.
    pub total: Value,
    /// The lanes of each vector of the block before each level of the scan.
    block: Vec<Vec<Value>>,
}

impl Emitter<'_> {
    /// Emits the initial totals of the scans of a loop.
    pub(super) fn begin_scans(&mut self, results: &[Slot]) {
        let scan = |&result: &Slot| {
            let Action::Scan { strategy: Strategy::Kernel(combine), .. } = self.definitions[&result].action
            else {
                unreachable!("a nest has no other scans")
            };
            let total = self.identity(combine, self.ty(result).dtype());
            Scan { result, total, block: Vec::new() }
        };
        self.scans = results.iter().map(scan).collect();
    }

    /// Returns a vector of a scan. The caller requests the vectors of a row in order.
    pub(super) fn scanned(&mut self, step: &Step, body: &mut Body) -> Value {
        let Action::Scan { strategy: Strategy::Kernel(combine), .. } = step.action else {
            unreachable!("a nest has no other scans")
        };
        let result = step.results[0];
        let dtype = self.ty(result).dtype();
        let mut value = self.element(step.operands[0].slot, body);
        let lanes = self.lanes();
        let index = self.scans.iter().position(|scan| scan.result == result).expect("the loop has begun it");
        let vector = body.offset % SCAN_BLOCK.max(lanes) / lanes;
        let mut block = std::mem::take(&mut self.scans[index].block);
        block.truncate(vector);
        let mut levels = Vec::new();
        let mut distance = 1;
        while distance < SCAN_BLOCK {
            let level = levels.len();
            levels.push(value);
            if distance >= lanes {
                if let Some(before) = vector.checked_sub(distance / lanes) {
                    value = self.vectors.combine(combine, dtype, block[before][level], value);
                }
            } else {
                let shift = |x: Value| self.build(|builder| builder.rotate((lanes - distance) as u8, x));
                let first = self.build(|builder| {
                    let (indices, count) =
                        (builder.iota(Lane::I32), builder.constant(Lane::I32, distance as u64));
                    builder.compare(Compare::Lt, indices, count)
                });
                let shifted = shift(value);
                let select = |x: Value, y: Value| self.build(|builder| builder.select(first, x, y));
                value = match vector.checked_sub(1) {
                    Some(before) => {
                        let shifted = select(shift(block[before][level]), shifted);
                        self.vectors.combine(combine, dtype, shifted, value)
                    }
                    None => select(value, self.vectors.combine(combine, dtype, shifted, value)),
                };
            }
            distance *= 2;
        }
        block.push(levels);
        let total = self.scans[index].total;
        if (vector + 1) * lanes >= SCAN_BLOCK {
            let last = self.build(|builder| builder.rotate((lanes - 1) as u8, value));
            let last = self.vectors.first(dtype, last);
            let last = self.vectors.splat(dtype, last);
            self.scans[index].total = self.vectors.combine(combine, dtype, total, last);
        }
        self.scans[index].block = block;
        debug_assert!(matches!(elements(dtype), Elements::Lanes(_)), "no kernel scans booleans");
        self.vectors.combine(combine, dtype, total, value)
    }
}
