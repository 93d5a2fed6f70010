//! Proves that global accesses of different iterations or pointers do not overlap.
//!
//! If each iteration moves a tile of pointers past all its addresses, iterations share no address.
//! An element's offset is a sum of constant factors times iteration counts and coordinates. Its
//! other terms are the same everywhere. Offsets are unique if counts and coordinates act like
//! digits: each factor exceeds the greatest sum of smaller terms. Example:
//! `1024 * i + 32 * row + column`, with 32 rows and 32 columns.
//!
//! Two tiles of pointers may differ by a constant, like the halves of rows. They share no address
//! if no two offsets in a tile differ by this constant.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::analysis::addresses::Address;
use tilewright_ir::analysis::scalar_evolution::{ScalarEvolution, Term};
use tilewright_ir::{Block, Inst, OpFamily, Operation, Value, constant_int};

use tilewright_gpu_ir::{Function, Gpu};

/// The maximum distance between two offsets, because forms are modulo 2^32.
const MAX_DISTANCE: i128 = i32::MAX as i128;

/// The maximum number of coordinate differences that the search tries for a constant.
const MAX_TRIALS: usize = 64;

/// An address that is linear in coordinates and iteration counts. The base and the other terms are
/// the same in all iterations and for all elements.
struct LinearAddress {
    address: Address,
    /// The factor of the coordinate along each axis of the tile.
    axes: SmallVec<[i128; 4]>,
    /// The factors of iteration counts.
    loops: SmallVec<[(Inst, i128); 2]>,
}

#[derive(Default)]
pub struct Iterations {
    /// The loops around each access.
    around: FxHashMap<Inst, SmallVec<[Inst; 2]>>,
    /// The address of each pointer that accesses use.
    addresses: FxHashMap<Value, LinearAddress>,
}

impl Iterations {
    pub fn new(function: &Function) -> Self {
        let mut found = Self::default();
        found.block(function, function.entry, &mut smallvec![]);
        let mut evolution = ScalarEvolution::modulo_word(function).with_any_base();
        let pointers = found.around.keys().map(|inst| function.insts[*inst].operands[0]);
        found.addresses = pointers
            .filter_map(|pointer| Some((pointer, linear_address(&mut evolution, pointer)?)))
            .collect();
        found
    }

    fn block(&mut self, function: &Function, block: Block, loops: &mut SmallVec<[Inst; 2]>) {
        for &inst in &function.blocks[block].insts {
            let data = &function.insts[inst];
            let family = data.op.info().family;
            if matches!(family, OpFamily::Load | OpFamily::Store | OpFamily::Atomic) {
                self.around.insert(inst, loops.clone());
            }
            if family == OpFamily::Loop {
                loops.push(inst);
            }
            for &region in &data.regions {
                self.block(function, region, loops);
            }
            if family == OpFamily::Loop {
                loops.pop();
            }
        }
    }

    /// Returns whether two accesses through a pointer share no address in different iterations.
    pub fn are_disjoint(&self, function: &Function, pointer: Value, accesses: [Inst; 2]) -> bool {
        let Some(address) = self.addresses.get(&pointer) else { return false };
        let Some(tile) = function.ty(pointer).as_registers() else { return false };
        let has_all = |inst: &Inst| {
            let around = self.around.get(inst);
            around.is_some_and(|around| {
                around.iter().all(|inst| address.loops.iter().any(|(own, _)| own == inst))
            })
        };
        if !accesses.iter().all(has_all) {
            return false;
        }
        // The factor of each digit, and its maximum if known.
        let mut digits: SmallVec<[(i128, Option<i128>); 4]> = smallvec![];
        for (&factor, &extent) in address.axes.iter().zip(tile.shape.iter()) {
            if factor != 0 && extent > 1 {
                digits.push((factor.abs(), Some(i128::from(extent) - 1)));
            }
        }
        for &(inst, factor) in &address.loops {
            let Some((step, last)) = steps(function, inst) else { return false };
            if last == Some(0) {
                continue;
            }
            if last.is_none() && factor.abs() != step {
                // The offset may wrap around.
                return false;
            }
            digits.push((factor.abs(), last));
        }
        digits.sort_unstable();
        let mut most = Some(0);
        for (factor, last) in digits {
            let is_digit = |below: &i128| *below < factor && factor <= MAX_DISTANCE;
            let Some(below) = most.filter(is_digit) else { return false };
            most = last.map(|last| below + factor * last).filter(|&most| most <= MAX_DISTANCE);
        }
        true
    }

    /// Returns whether two tiles of pointers, computed in one iteration, share no address.
    pub fn are_apart(&self, function: &Function, a: Value, b: Value) -> bool {
        let [Some(one), Some(other)] = [a, b].map(|pointer| self.addresses.get(&pointer)) else {
            return false;
        };
        let [Some(a), Some(b)] = [a, b].map(|pointer| function.ty(pointer).as_registers()) else {
            return false;
        };
        let [one_form, other_form] = [one, other].map(|own| &own.address.offset.form);
        let is_comparable = one.address.base == other.address.base && a.rank() == b.rank();
        let between = one_form.minus(other_form).and_then(|form| form.as_constant());
        let Some(between) = between.filter(|_| is_comparable) else {
            return false;
        };
        let extents = a.shape.iter().zip(b.shape.iter()).map(|(a, b)| i128::from(*a.max(b)) - 1);
        let factors = one.axes.iter().map(|factor| factor.abs());
        let mut digits: SmallVec<[(i128, i128); 4]> =
            factors.zip(extents).filter(|digit| digit.0 != 0).collect();
        digits.sort_unstable();
        let most: i128 = digits.iter().map(|(factor, last)| factor * last).sum();
        most + between.abs() <= MAX_DISTANCE && !is_difference(between, &digits, &mut 0)
    }
}

/// Returns a loop's absolute step, and for constant bounds the last iteration's index.
///
/// Otherwise, the loop counts up from a constant of 0 or more. Then an index plus a number below
/// the step is less than 2^32. Returns `None` for all other loops.
fn steps(function: &Function, inst: Inst) -> Option<(i128, Option<i128>)> {
    let operands = &function.insts[inst].operands;
    let [lower, upper, step] = [0, 1, 2].map(|index| constant_int(function, operands[index]));
    let step = step.filter(|&step| step != 0)?;
    let counts_up = lower.is_some_and(|lower| lower >= 0) && step > 0;
    if upper.is_none() && !counts_up || lower.is_none() {
        return None;
    }
    let distance =
        lower.zip(upper).map(|(lower, upper)| if step > 0 { upper - lower } else { lower - upper });
    Some((step.abs(), distance.map(|distance| (distance - 1).max(0) / step.abs())))
}

/// Returns the address of a pointer. The factors are constants, and the base and the other terms
/// are defined outside of loops.
fn linear_address(evolution: &mut ScalarEvolution<'_, Gpu>, pointer: Value) -> Option<LinearAddress> {
    let function = evolution.function;
    let rank = function.ty(pointer).as_registers()?.rank();
    let address = evolution.address(pointer)?;
    let is_fixed = |value: Value| {
        let mut around = evolution.parents().around_value(function, value);
        !around.any(|inst| function.insts[inst].op.info().family == OpFamily::Loop)
    };
    let (mut axes, mut loops) = (smallvec![0; rank], smallvec![]);
    for (product, factor) in address.offset.form.terms() {
        match product[..] {
            [Term::Axis(own)] => axes[own] = factor,
            [Term::Iteration(inst)] => loops.push((inst, factor)),
            _ => {
                let is_fixed = |term: &Term| matches!(term, Term::Value(value) if is_fixed(*value));
                if !product.iter().all(is_fixed) {
                    return None;
                }
            }
        }
    }
    is_fixed(address.base).then_some(LinearAddress { address, axes, loops })
}

/// Returns whether digit differences, times their factors, may add up to `number`. `digits` has the
/// factor and the greatest difference of each digit, sorted by factor. Returns true if the search
/// takes too long.
fn is_difference(number: i128, digits: &[(i128, i128)], trials: &mut usize) -> bool {
    let Some((&(factor, last), smaller)) = digits.split_last() else { return number == 0 };
    let rest: i128 = smaller.iter().map(|(factor, last)| factor * last).sum();
    let from = (number - rest).div_euclid(factor).max(-last);
    let to = (number + rest).div_euclid(factor).min(last);
    (from..=to).any(|difference| {
        *trials += 1;
        *trials > MAX_TRIALS || is_difference(number - difference * factor, smaller, trials)
    })
}
