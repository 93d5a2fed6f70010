//! Operands of dots, and dots by scalar multiply-adds (`fma_dot`).

use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_gpu_ir::{Feature, fma_operand_layout};
use tilewright_ir::{Dtype, Element, Inst, Value};
use tilewright_layout::{Input, Layout};

use super::builder::{Scalar, Width};
use super::float::Float;
use super::integer::integer;
use super::shared_memory::{Loads, SharedTile};
use super::{Lowered, Lowering};
use crate::isa::{self, MultiplyMode};

/// The source of the registers of an operand.
pub(super) enum DotOperand {
    /// Registers that hold the operand.
    Registers(Rc<[Scalar]>),
    /// Shared memory, from which instructions load registers when needed.
    Shared(Box<SharedTile>),
}

/// The arithmetic of the multiply-adds of a dot.
#[derive(Clone, Copy)]
enum Arithmetic {
    Float(Float),
    Integer,
}

impl Lowering<'_> {
    /// Returns the source of an operand: its registers, or the buffer in this layout.
    pub(super) fn operand(&self, value: Value, layout: &Layout, loads: Loads) -> DotOperand {
        match self.kernel.ty(value).as_memory() {
            Some(buffer) => DotOperand::Shared(Box::new(self.shared_tile(value, buffer, layout, loads))),
            None => DotOperand::Registers(self.get(value)),
        }
    }

    /// Returns a register of an operand, and loads it if necessary.
    pub(super) fn fetch(&mut self, operand: &mut DotOperand, register: u32) -> Scalar {
        match operand {
            DotOperand::Registers(registers) => registers[register as usize],
            DotOperand::Shared(shared) => self.read(shared, register),
        }
    }

    /// Computes a dot by scalar multiply-adds, along K in ascending order.
    pub(super) fn lower_fma_dot(&mut self, inst: Inst, [a, b, acc]: [Value; 3]) -> Lowered {
        let result = self.kernel.insts[inst].results[0];
        let layout = self.layout(result);
        let mut sums = self.get_in(acc, Some(layout)).to_vec();
        let rank = layout.output().rank();
        let depth = self.tile(a).shape[rank - 1];
        let [left, right] = [0, 1].map(|place| fma_operand_layout(layout, place, depth));
        let (left_places, right_places) = (registers_by_element(&left), registers_by_element(&right));
        let [mut from_left, mut from_right] =
            [(a, &left), (b, &right)].map(|(value, layout)| self.operand(value, layout, Loads::Vectors));
        let dtypes = [a, b, acc].map(|value| self.dtype(value));
        let arithmetic = match Float::of(dtypes[2]) {
            Some(float) if float != Float::F16 => Arithmetic::Float(float),
            None if dtypes[2].is_int() => Arithmetic::Integer,
            _ => return Err(self.unsupported(inst, &format!("a dot that accumulates in {}", dtypes[2]))),
        };
        let places: Vec<_> = (0..sums.len() as u32)
            .map(|register| layout.coordinates(&[(Input::Register, register)]))
            .collect();
        let is_fp32 = matches!(arithmetic, Arithmetic::Float(Float::F32));
        for k in 0..depth {
            let mut factors = |this: &mut Self, place: &SmallVec<[u32; 6]>| {
                let mut coordinates = place.clone();
                coordinates[rank - 1] = k;
                let x = left_places[&left.output().index(&coordinates)];
                coordinates[rank - 2] = k;
                coordinates[rank - 1] = place[rank - 1];
                let y = right_places[&right.output().index(&coordinates)];
                [this.fetch(&mut from_left, x), this.fetch(&mut from_right, y)]
            };
            let refuse = |this: &Self| this.unsupported(inst, &format!("a dot of {}", dtypes[0]));
            if is_fp32 && self.has(Feature::PackedFp32) {
                let factors: Vec<[Scalar; 2]> = places.iter().map(|place| factors(self, place)).collect();
                let next = self.multiply_add_pairs([dtypes[0], dtypes[1]], &factors, &sums);
                sums = next.ok_or_else(|| refuse(self))?;
                continue;
            }
            for (place, sum) in places.iter().zip(&mut sums) {
                let [x, y] = factors(self, place);
                let next = self.multiply_add(arithmetic, [dtypes[0], dtypes[1]], [x, y, *sum]);
                *sum = next.ok_or_else(|| refuse(self))?;
            }
        }
        self.set(result, sums);
        Ok(())
    }

    /// Adds fp32 products to a thread's accumulators, in pairs if possible.
    fn multiply_add_pairs(
        &mut self,
        dtypes: [Dtype; 2],
        factors: &[[Scalar; 2]],
        sums: &[Scalar],
    ) -> Option<Vec<Scalar>> {
        let mut widened = [0, 1].map(|_| Vec::with_capacity(sums.len()));
        for pair in factors {
            for ((column, dtype), factor) in widened.iter_mut().zip(dtypes).zip(*pair) {
                column.push(self.widen(dtype, factor)?);
            }
        }
        let [x, y] = widened.map(Rc::<[Scalar]>::from);
        let columns = [Rc::clone(&x), Rc::clone(&y), Rc::from(sums)];
        Some(self.fma_in_pairs(&columns).unwrap_or_else(|| {
            let elements = x.iter().zip(y.iter()).zip(sums);
            elements.map(|((x, y), sum)| self.builder.fma(Float::F32, *x, *y, *sum)).collect()
        }))
    }

    fn multiply_add(
        &mut self,
        arithmetic: Arithmetic,
        dtypes: [Dtype; 2],
        factors_and_sum: [Scalar; 3],
    ) -> Option<Scalar> {
        match arithmetic {
            Arithmetic::Float(float) => {
                let mut widened: SmallVec<[Scalar; 2]> = SmallVec::new();
                for (dtype, operand) in dtypes.into_iter().zip(factors_and_sum) {
                    widened.push(if float == Float::F64 { operand } else { self.widen(dtype, operand)? });
                }
                Some(self.builder.fma(float, widened[0], widened[1], factors_and_sum[2]))
            }
            Arithmetic::Integer => {
                let [a, b, c] = factors_and_sum.map(|operand| self.builder.source(Width::B32, operand));
                let ty = integer(Width::B32, true);
                Some(self.builder.pure(Width::B32, |d| isa::Mad {
                    mode: Some(MultiplyMode::Lo),
                    carry_out: false,
                    rounding: None,
                    ftz: false,
                    saturate: false,
                    ty,
                    d,
                    a,
                    b,
                    c,
                }))
            }
        }
    }

    /// Returns the element type of a value of numbers.
    pub(super) fn dtype(&self, value: Value) -> Dtype {
        match self.element(value) {
            Element::Value(dtype) => dtype,
            Element::Pointer(_) => panic!("the operands of a dot are numbers"),
        }
    }
}

/// Maps each element of the first thread to its register.
fn registers_by_element(layout: &Layout) -> FxHashMap<u32, u32> {
    (0..layout.registers()).map(|register| (layout.at(&[(Input::Register, register)]), register)).collect()
}
