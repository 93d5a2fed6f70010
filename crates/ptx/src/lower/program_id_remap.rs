//! The program ids along the axes of the grid. They are the block ids, or computed from these if
//! the longest programs start first.
//!
//! Blocks start in id order, the first axis fastest. The longest programs have the smallest or
//! largest id along the first axis. The other axes' ids are divided into groups, whose programs
//! read much of the same memory. In a group, the first axis's id changes slowest, so its longest
//! programs start first. Example: `a0 b0 a1 b1`, then `c0 d0 c1 d1`, where 0 and 1 are ids along
//! the first axis.

use tilewright_gpu_ir::ProgramOrder;
use tilewright_ir::Dtype;

use super::Lowering;
use super::arithmetic::Integer;
use super::builder::{Scalar, Width};
use crate::isa::{Comparison, SpecialRegister};

const OWN: [SpecialRegister; 3] = [SpecialRegister::CtaidX, SpecialRegister::CtaidY, SpecialRegister::CtaidZ];
const COUNTS: [SpecialRegister; 3] =
    [SpecialRegister::NctaidX, SpecialRegister::NctaidY, SpecialRegister::NctaidZ];

impl Lowering<'_> {
    /// Returns the program id along an axis.
    pub(super) fn program_id_along(&mut self, axis: usize) -> Scalar {
        match self.program_ids {
            Some(numbers) => numbers[axis],
            None => self.special(OWN[axis]),
        }
    }

    /// Computes the ids, once, for a kernel whose longest programs start first.
    pub(super) fn remap_program_ids(&mut self) {
        let order = self.program.header.order;
        if order == ProgramOrder::AsLaunched {
            return;
        }
        let (width, ty) = (Width::B32, Integer::of(Dtype::U32));
        let own = OWN.map(|register| self.special(register));
        let [steps, rows, planes] = COUNTS.map(|register| self.special(register));
        let tuning = self.target().tuning;
        let builder = &mut self.builder;
        let lines = builder.mul(width, rows, planes);
        let line = builder.mul(width, rows, own[2]);
        let line = builder.add(width, line, own[1]);
        let position = builder.mul(width, steps, line);
        let position = builder.add(width, position, own[0]);

        let group = builder.quotient(ty, Scalar::constant(tuning.ordered_group_programs), steps);
        let group = builder.extremum(width, false, true, group, Scalar::constant(tuning.ordered_group));
        let group = builder.extremum(width, false, false, group, lines);
        let group_programs = builder.mul(width, steps, group);
        let number = builder.quotient(ty, position, group_programs);
        let before = builder.mul(width, number, group_programs);
        let position = builder.sub(width, position, before);
        let first = builder.mul(width, number, group);
        let left = builder.sub(width, lines, first);
        let size = builder.extremum(width, false, false, left, group);
        let turn = builder.quotient(ty, position, size);
        let before = builder.mul(width, turn, size);
        let line = builder.sub(width, position, before);
        let line = builder.add(width, line, first);
        let step = if order == ProgramOrder::DescendingIds {
            let last = steps.plus(width, u64::MAX);
            builder.sub(width, last, turn)
        } else {
            turn
        };
        let plane = builder.quotient(ty, line, rows);
        let before = builder.mul(width, plane, rows);
        let row = builder.sub(width, line, before);

        // A number beyond 32 bits keeps the launch order.
        let high = builder.mul_high(width, false, steps, lines);
        let fits = builder.compare(width, false, Comparison::Eq, high, Scalar::constant(0));
        let [x, y, z] = own;
        let numbers =
            [(step, x), (row, y), (plane, z)].map(|(ordered, own)| builder.select(width, fits, ordered, own));
        self.program_ids = Some(numbers);
    }
}
