//! Reductions within warps. A thread combines its registers, then shuffles or `redux.sync` combine
//! the lanes.
//!
//! If the function commutes, all registers come first. Otherwise, the order of the axis matters, so
//! the levels of a scan ([`super::scan`]) reduce the elements.

use smallvec::SmallVec;
use tilewright_base::Diagnostic;
use tilewright_gpu_ir::Scope;
use tilewright_gpu_ir::{commutes, redux_function};
use tilewright_ir::{Dtype, ElementwiseFn as F, Inst, Value};
use tilewright_layout::{Input, Layout, Parts, Reduction, Step};

use super::builder::{Scalar, Width, only};
use super::scan::{AxisScan, Wanted};
use super::{Elements, LANES, Lowered, Lowering};
use crate::isa::{self, ScalarType, ShuffleMode, WarpReduction};

/// A step that combined registers whose indices differ in `partner`. Bit `pivot` is the highest bit
/// of `partner`. The register without it represents the pair.
#[derive(Clone, Copy)]
struct Joined {
    pivot: u32,
    partner: u32,
}

/// Returns the register that represents `register` after these steps.
fn canonical(joined: &[Joined], register: u32) -> u32 {
    joined.iter().fold(register, |register, step| {
        if register >> step.pivot & 1 == 1 { register ^ step.partner } else { register }
    })
}

impl Lowering<'_> {
    pub(super) fn lower_reduce(
        &mut self,
        inst: Inst,
        tiles: &[Value],
        axis: usize,
        (scope, redux): (Scope, bool),
    ) -> Lowered {
        let layout = self.layout(tiles[0]);
        if !commutes(self.kernel, self.kernel.insts[inst].regions[0]) {
            return self.reduce_in_order(inst, tiles, (layout, axis), scope);
        }
        let columns: Vec<_> = tiles.iter().map(|&tile| self.get(tile)).collect();
        let mut values: Vec<Elements> = (0..layout.registers() as usize)
            .map(|register| columns.iter().map(|column| column[register]).collect())
            .collect();
        let reduction = Reduction::along(layout, axis);
        if scope == Scope::Block && reduction.exchange.is_some() {
            return Err(self.unsupported(inst, "a reduction between warps that is not lowered"));
        }
        let mut joined: Vec<Joined> = Vec::new();
        for step in reduction.steps_of(Input::Register) {
            self.join_registers(inst, &mut values, &mut joined, *step, (layout, axis))?;
        }
        let kept: Vec<u32> =
            reduction.registers.iter().map(|&register| canonical(&joined, register)).collect();
        if redux {
            let function = self.warp_function(inst);
            for &register in &kept {
                let own = &mut values[register as usize][0];
                *own = self.reduce_warp(function, *own);
            }
        } else {
            for step in reduction.steps_of(Input::Lane) {
                values = self.join_lanes(inst, tiles, &values, (&kept, &joined), *step)?;
            }
        }
        for (operand, &result) in self.kernel.insts[inst].results.iter().enumerate() {
            let own: Vec<Scalar> = kept.iter().map(|&register| values[register as usize][operand]).collect();
            let scalars = if self.layout_of(result).is_some() { own } else { vec![own[0]] };
            self.set(result, scalars);
        }
        Ok(())
    }

    /// Reduces by a function that does not commute.
    fn reduce_in_order(
        &mut self,
        inst: Inst,
        tiles: &[Value],
        (layout, axis): (&Layout, usize),
        scope: Scope,
    ) -> Lowered {
        let parts = Parts::along(layout, axis);
        if scope == Scope::Block && parts.is_some() {
            return Err(self.unsupported(inst, "a reduction between warps that is not lowered"));
        }
        let along = AxisScan { inst, tiles, layout, axis, reverse: false };
        let scanned = self.scan_levels(along, parts.as_ref().map(|parts| parts.levels), Wanted::Totals)?;
        let kept: SmallVec<[u32; 16]> = match parts {
            Some(parts) => parts.registers.iter().copied().collect(),
            None => Reduction::along(layout, axis).registers,
        };
        for (place, &result) in self.kernel.insts[inst].results.iter().enumerate() {
            let total = |register: &u32| scanned.totals[scanned.run[*register as usize] as usize][place];
            let own: Vec<Scalar> = kept.iter().map(total).collect();
            let scalars = if self.layout_of(result).is_some() { own } else { vec![own[0]] };
            self.set(result, scalars);
        }
        Ok(())
    }

    /// Combines the pairs of registers of a step within the thread.
    fn join_registers(
        &mut self,
        inst: Inst,
        values: &mut [Elements],
        joined: &mut Vec<Joined>,
        step: Step,
        (layout, axis): (&Layout, usize),
    ) -> Lowered {
        let partner = canonical(joined, step.register);
        let pivot = partner.ilog2();
        let coordinate =
            |register: u32| layout.output().coordinate(layout.at(&[(Input::Register, register)]), axis);
        for register in (0..values.len() as u32).filter(|register| register >> pivot & 1 == 0) {
            if canonical(joined, register) != register {
                continue;
            }
            let other = canonical(joined, register ^ partner);
            let (left, right) =
                if coordinate(register) < coordinate(other) { (register, other) } else { (other, register) };
            let (left, right) = (values[left as usize].clone(), values[right as usize].clone());
            values[register as usize] = self.combine(inst, &left, &right)?;
        }
        joined.push(Joined { pivot, partner });
        Ok(())
    }

    /// Combines the registers with those of a step's partner lane.
    fn join_lanes(
        &mut self,
        inst: Inst,
        tiles: &[Value],
        values: &[Elements],
        (kept, joined): (&[u32], &[Joined]),
        step: Step,
    ) -> Result<Vec<Elements>, Box<Diagnostic>> {
        let mut next = values.to_vec();
        for &register in kept {
            let partner = &values[canonical(joined, register ^ step.register) as usize];
            let others = self.shuffle_elements(tiles, partner, step.lane);
            next[register as usize] = self.combine(inst, &values[register as usize], &others)?;
        }
        Ok(next)
    }

    /// Returns the elements of the lane whose id differs in the bits `lane`.
    pub(super) fn shuffle_elements(&mut self, tiles: &[Value], own: &[Scalar], lane: u32) -> Elements {
        self.shuffle_elements_from(tiles, own, ShuffleMode::Butterfly, Scalar::constant(lane.into()))
    }

    /// Returns the elements of another lane, which `mode` and `lane` select.
    pub(super) fn shuffle_elements_from(
        &mut self,
        tiles: &[Value],
        own: &[Scalar],
        mode: ShuffleMode,
        lane: Scalar,
    ) -> Elements {
        let pairs = own.iter().zip(tiles);
        pairs.map(|(&own, &tile)| self.shuffle_from(self.width(tile), own, mode, lane)).collect()
    }

    /// Applies the region of the reduction to two elements of each operand.
    pub(super) fn combine(
        &mut self,
        inst: Inst,
        left: &[Scalar],
        right: &[Scalar],
    ) -> Result<Elements, Box<Diagnostic>> {
        let region = self.kernel.insts[inst].regions[0];
        let parameters = &self.kernel.blocks[region].parameters;
        for (&parameter, &scalar) in parameters.iter().zip(left.iter().chain(right)) {
            self.set(parameter, [scalar]);
        }
        self.block(region)?;
        Ok(self.kernel.yielded(region).iter().map(|&value| self.scalar(value)).collect())
    }

    /// Returns the value of the lane whose id differs in the bits `lane`.
    pub(super) fn shuffle(&mut self, width: Width, own: Scalar, lane: u32) -> Scalar {
        self.shuffle_from(width, own, ShuffleMode::Butterfly, Scalar::constant(lane.into()))
    }

    /// Returns the value of another lane, which `mode` and `lane` select.
    pub(super) fn shuffle_from(
        &mut self,
        width: Width,
        own: Scalar,
        mode: ShuffleMode,
        lane: Scalar,
    ) -> Scalar {
        if own.base.is_none() {
            return own;
        }
        let words = self.split_words(width, own);
        let b = self.builder.source(Width::B32, lane);
        // The last lane in the direction of the shuffle.
        let last = if mode == ShuffleMode::Up { 0 } else { i64::from(LANES - 1) };
        let moved: SmallVec<[Scalar; 2]> = words
            .into_iter()
            .map(|word| {
                let a = self.builder.source(Width::B32, word);
                self.builder.pure(Width::B32, |d| isa::Shfl {
                    mode,
                    ty: ScalarType::B32,
                    d: only(d),
                    a,
                    b,
                    c: last.into(),
                    mask: (-1).into(),
                })
            })
            .collect();
        self.join_words(width, &moved)
    }

    /// Splits a value into 32-bit words.
    pub(super) fn split_words(&mut self, width: Width, scalar: Scalar) -> SmallVec<[Scalar; 2]> {
        match width {
            Width::B32 => std::iter::once(scalar).collect(),
            Width::Pred => {
                let word = self.builder.select(Width::B32, scalar, Scalar::constant(1), Scalar::constant(0));
                std::iter::once(word).collect()
            }
            Width::B16 => {
                let half = self.builder.register(width, scalar);
                let a = super::builder::sources(&[half, half]);
                let word =
                    self.builder.pure(Width::B32, |d| isa::Mov { ty: ScalarType::B32, d: d.into(), a });
                std::iter::once(word).collect()
            }
            Width::B64 => {
                let whole = self.builder.register(width, scalar);
                let words = self.builder.pure_many([Width::B32; 2], |d| isa::Mov {
                    ty: ScalarType::B64,
                    d: super::builder::destinations(&d),
                    a: whole.into(),
                });
                words.into_iter().map(Scalar::from).collect()
            }
        }
    }

    /// Joins 32-bit words to a value.
    pub(super) fn join_words(&mut self, width: Width, words: &[Scalar]) -> Scalar {
        match width {
            Width::B32 => words[0],
            Width::Pred => {
                self.builder.compare(Width::B32, true, isa::Comparison::Ne, words[0], Scalar::constant(0))
            }
            Width::B16 => {
                let word = self.builder.register(Width::B32, words[0]);
                let halves = self.builder.pure_many([Width::B16; 2], |d| isa::Mov {
                    ty: ScalarType::B32,
                    d: super::builder::destinations(&d),
                    a: word.into(),
                });
                halves[0].into()
            }
            Width::B64 => {
                let words = [words[0], words[1]].map(|word| self.builder.register(Width::B32, word));
                let a = super::builder::sources(&words);
                self.builder.pure(width, |d| isa::Mov { ty: ScalarType::B64, d: d.into(), a })
            }
        }
    }

    /// Returns the function and types of `redux.sync` for the region.
    fn warp_function(&self, inst: Inst) -> (WarpReduction, ScalarType, Dtype) {
        let found = redux_function(&self.program.header, self.kernel, &self.kernel.insts[inst]);
        let (function, dtype) = found.expect("the verifier checks what redux reduces");
        let ty = if dtype.is_signed() { ScalarType::S32 } else { ScalarType::U32 };
        let (function, ty) = match function {
            F::Add => (WarpReduction::Add, ty),
            F::Min => (WarpReduction::Min, ty),
            F::Max => (WarpReduction::Max, ty),
            F::And => (WarpReduction::And, ScalarType::B32),
            F::Or => (WarpReduction::Or, ScalarType::B32),
            F::Xor => (WarpReduction::Xor, ScalarType::B32),
            // tidy: wildcard because the instruction has no other functions.
            other => unreachable!("redux has no {other:?}"),
        };
        (function, ty, dtype)
    }

    fn reduce_warp(
        &mut self,
        (operation, ty, dtype): (WarpReduction, ScalarType, Dtype),
        own: Scalar,
    ) -> Scalar {
        let a = self.builder.register(Width::B32, own).into();
        let mask = (-1).into();
        let all = self.builder.pure(Width::B32, |d| isa::Redux {
            operation,
            abs: false,
            nan: false,
            ty,
            d,
            a,
            mask,
        });
        if dtype.bits() < 32 { self.builder.extend(all, dtype.bits(), dtype.is_signed()) } else { all }
    }
}
