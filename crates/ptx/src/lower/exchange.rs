//! Exchanges of elements along an axis within a warp. Exchanges between a thread's registers need
//! no instruction; those between lanes need shuffles. Histograms in shared memory are here, too.
//!
//! In a bitonic merge, a coordinate bit gives the sort direction of a block. If it is a register
//! bit, the direction is a constant. If it is a thread bit, the code may complement descending
//! blocks before and after the merge, so that all comparisons have one direction. This needs enough
//! steps within a thread (`Tuning::complemented_bits`).

use tilewright_ir::{Inst, Value};
use tilewright_layout::{Input, Layout, Scan, ScanStep};

use super::builder::{Scalar, Width};
use super::integer::Bitwise;
use super::{Lowered, Lowering};
use crate::isa::{self, AtomicOperation, Comparison, ScalarType, StateSpace};

/// Masks of an element's register, lane and warp index. The parity of the register bits is a
/// constant; code computes that of the lane and warp bits.
#[derive(Clone, Copy)]
struct Parity {
    registers: u32,
    lanes: u32,
    warps: u32,
}

impl Parity {
    fn new(layout: &Layout, places: u32) -> Self {
        let part = |input| layout.input().part(places, input);
        Self { registers: part(Input::Register), lanes: part(Input::Lane), warps: part(Input::Warp) }
    }

    fn of_register(self, register: u32) -> bool {
        (register & self.registers).count_ones() % 2 == 1
    }

    fn is_fixed(self) -> bool {
        self.lanes | self.warps == 0
    }
}

impl Lowering<'_> {
    /// Returns whether the selected bits of a register and of the thread have odd parity.
    fn parity_of(&mut self, parity: Parity, register: u32) -> Scalar {
        let thread = if parity.is_fixed() { Scalar::FALSE } else { self.parity(parity.lanes, parity.warps) };
        thread.plus(Width::Pred, u64::from(parity.of_register(register)))
    }

    /// Returns the partner of each register's element. The element and its partner differ in the
    /// register and lane bits of `place`.
    fn partners(
        &mut self,
        inst: Inst,
        layout: &Layout,
        tile: Value,
        place: u32,
    ) -> Result<Vec<Scalar>, Box<tilewright_base::Diagnostic>> {
        let part = |input| layout.input().part(place, input);
        if part(Input::Warp) != 0 {
            return Err(self.unsupported(inst, "an exchange between warps that is not lowered"));
        }
        let (own, width) = (self.get(tile), self.width(tile));
        let (step, lane) = (part(Input::Register), part(Input::Lane));
        Ok((0..layout.registers())
            .map(|register| {
                let other = own[(register ^ step) as usize];
                if lane == 0 { other } else { self.shuffle(width, other, lane) }
            })
            .collect())
    }

    pub(super) fn lower_butterfly(&mut self, inst: Inst, tile: Value, axis: usize, mask: u32) -> Lowered {
        let layout = self.layout(tile);
        let places = layout.right_inverse().expect("the verifier checks that a layout holds every element");
        let place = places.apply(mask << layout.output().shift(axis));
        let elements = self.partners(inst, layout, tile, place)?;
        self.set_result(inst, elements);
        Ok(())
    }

    pub(super) fn lower_bitonic(
        &mut self,
        inst: Inst,
        tile: Value,
        axis: usize,
        [high, low, block]: [u32; 3],
        descending: bool,
    ) -> Lowered {
        let layout = self.layout(tile);
        let width = self.width(tile);
        let is_signed = self.tile(tile).dtype().is_some_and(tilewright_ir::Dtype::is_signed);
        let levels = Scan::along(layout, axis).steps;
        let direction = levels
            .get(block as usize)
            .map_or(Parity { registers: 0, lanes: 0, warps: 0 }, |level| Parity::new(layout, level.later));
        let mut values: Vec<Scalar> = self.get(tile).to_vec();
        let bits: Vec<&ScanStep> = (low..=high).rev().map(|bit| &levels[bit as usize]).collect();
        if bits.iter().any(|level| level.step.reach() > Input::Lane) {
            return Err(self.unsupported(inst, "an exchange between warps that is not lowered"));
        }
        let is_between_registers =
            |level: &&&ScanStep| level.step.lane == 0 && Parity::new(layout, level.later).is_fixed();
        let least = self.target().tuning.complemented_bits;
        let is_complemented =
            !direction.is_fixed() && bits.iter().filter(is_between_registers).count() >= least;
        let complement = is_complemented.then(|| {
            let thread = self.parity(direction.lanes, direction.warps);
            self.builder.select(width, thread, Scalar::constant(width.cut(u64::MAX)), Scalar::constant(0))
        });
        self.complement(width, &mut values, complement);
        for level in bits {
            let later = Parity::new(layout, level.later);
            let before = values.clone();
            for register in 0..layout.registers() {
                let own = before[register as usize];
                let other = before[(register ^ level.step.register) as usize];
                let other =
                    if level.step.lane == 0 { other } else { self.shuffle(width, other, level.step.lane) };
                let is_later = self.parity_of(later, register);
                let is_reversed = if is_complemented {
                    Scalar::constant(direction.of_register(register).into())
                } else {
                    self.parity_of(direction, register)
                };
                let is_larger = self.builder.bitwise(Bitwise::Xor, Width::Pred, is_later, is_reversed);
                let is_larger = is_larger.plus(Width::Pred, descending.into());
                values[register as usize] = self.extremum_if(width, is_signed, is_larger, [own, other]);
            }
        }
        self.complement(width, &mut values, complement);
        self.set_result(inst, values);
        Ok(())
    }

    fn complement(&mut self, width: Width, values: &mut [Scalar], mask: Option<Scalar>) {
        let Some(mask) = mask else { return };
        for value in values {
            *value = self.builder.bitwise(Bitwise::Xor, width, *value, mask);
        }
    }

    /// Returns the larger of two integers if a condition holds, else the smaller.
    fn extremum_if(&mut self, width: Width, signed: bool, is_larger: Scalar, [a, b]: [Scalar; 2]) -> Scalar {
        if let Some(bit) = is_larger.as_constant() {
            return self.builder.extremum(width, signed, bit == 1, a, b);
        }
        let larger = self.builder.extremum(width, signed, true, a, b);
        let smaller = self.builder.extremum(width, signed, false, a, b);
        self.builder.select(width, is_larger, larger, smaller)
    }

    /// Increments the bin of each element: the buffer's element with the value as index. Ignores
    /// values without a bin, and masked-off elements.
    pub(super) fn lower_local_histogram(&mut self, buffer: Value, tile: Value, mask: Option<Value>) {
        let layout = self.layout(tile);
        let width = self.width(tile);
        let bins = self.layout(buffer).output().size(0);
        let is_first = self.is_first(layout.free_bits(Input::Lane), layout.free_bits(Input::Warp));
        let (own, masks, start) = (self.get(tile), mask.map(|mask| self.get(mask)), self.scalar(buffer));
        for (register, &element) in own.iter().enumerate() {
            let bins = Scalar::constant(bins.into());
            let is_bin = self.builder.compare(width, false, Comparison::Lt, element, bins);
            let counts = self.builder.and(is_first, is_bin);
            let counts = masks.as_ref().map_or(counts, |masks| self.builder.and(counts, masks[register]));
            if counts == Scalar::FALSE {
                continue;
            }
            let number = self.split_words(width, element)[0];
            let offset = self.builder.shl(Width::B32, number, 2);
            let address = self.builder.add(Width::B32, offset, start);
            let address = self.builder.address(Width::B32, address);
            let guard = (counts != Scalar::TRUE).then(|| self.builder.predicate(counts));
            let add = isa::Red {
                semantics: Some(isa::Semantics::Relaxed),
                scope: Some(isa::Scope::Cta),
                space: Some(StateSpace::Shared),
                operation: AtomicOperation::Add,
                no_ftz: false,
                cache_hint: false,
                vector: None,
                ty: ScalarType::U32,
                address,
                b: std::iter::once(isa::Source::from(1)).collect(),
                policy: None,
            };
            self.builder.emit_if(guard, add);
        }
    }
}
