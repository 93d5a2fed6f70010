//! Addresses that no two iterations share: those of a tile that moves by whole steps, so that what one iteration stores no later
//! one loads.
//!
//! An address is a sum of the indices of loops and the coordinates in the tile, each times a constant, and of what is the same
//! everywhere. No two are equal if these are digits: each factor is more than all smaller ones can add up to.
//!
//! And tiles of addresses that are the same but for a constant, as the two halves of rows: no element of one is an element of the
//! other if no difference of two coordinates makes up for it.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, ElementwiseFn, Inst, OpFamily, Operation, Value, constant_int};

use tilewright_gpu_ir::{Function, GpuOp, Op};

/// More than this a sum may not reach, so that it does not wrap around.
const MOST: i128 = i32::MAX as i128;

/// How many differences are tried to make up for a constant.
const MOST_TRIALS: usize = 64;

/// What an integer is made of, or a pointer, counted in elements.
#[derive(Clone, Default, Debug)]
struct Sum {
    /// The factors of the coordinates.
    axes: SmallVec<[i128; 4]>,
    /// The factors of the indices of loops.
    loops: SmallVec<[(Inst, i128); 2]>,
    /// The factors of what is computed once.
    rest: SmallVec<[(Value, i128); 2]>,
    constant: i128,
}

/// Adds factors of things.
fn add_factors<T: Copy + PartialEq, const N: usize>(
    to: &mut SmallVec<[(T, i128); N]>,
    more: &[(T, i128)],
    sign: i128,
) where
    [(T, i128); N]: smallvec::Array<Item = (T, i128)>,
{
    for &(thing, factor) in more {
        match to.iter_mut().find(|(own, _)| *own == thing) {
            Some((_, own)) => *own += sign * factor,
            None => to.push((thing, sign * factor)),
        }
    }
    to.retain(|(_, factor)| *factor != 0);
}

impl Sum {
    fn plus(mut self, other: &Self, sign: i128) -> Self {
        if self.axes.len() < other.axes.len() {
            self.axes.resize(other.axes.len(), 0);
        }
        for (factor, more) in self.axes.iter_mut().zip(&other.axes) {
            *factor += sign * more;
        }
        add_factors(&mut self.loops, &other.loops, sign);
        add_factors(&mut self.rest, &other.rest, sign);
        self.constant += sign * other.constant;
        self
    }

    fn times(mut self, number: i128) -> Option<Self> {
        let coordinates = self.axes.iter_mut().chain(self.loops.iter_mut().map(|(_, factor)| factor));
        let rest = self.rest.iter_mut().map(|(_, factor)| factor);
        for factor in coordinates.chain(rest).chain([&mut self.constant]) {
            *factor = factor.checked_mul(number).filter(|product| product.abs() <= MOST)?;
        }
        Some(self)
    }
}

/// The loops of a kernel.
pub struct Iterations<'a> {
    function: &'a Function,
    /// The loops around each access.
    around: FxHashMap<Inst, SmallVec<[Inst; 2]>>,
    /// The loop that each index belongs to.
    indices: FxHashMap<Value, Inst>,
    /// The loops around the instruction that defines a value, their number.
    depths: FxHashMap<Value, usize>,
    /// What is known already.
    sums: RefCell<FxHashMap<Value, Option<Sum>>>,
}

impl<'a> Iterations<'a> {
    /// Looks for loops.
    pub fn new(function: &'a Function) -> Self {
        let mut found = Self {
            function,
            around: FxHashMap::default(),
            indices: FxHashMap::default(),
            depths: FxHashMap::default(),
            sums: RefCell::default(),
        };
        found.block(function.entry, &mut smallvec![]);
        found
    }

    fn block(&mut self, block: Block, loops: &mut SmallVec<[Inst; 2]>) {
        let function = self.function;
        self.depths.extend(function.blocks[block].parameters.iter().map(|&value| (value, loops.len())));
        for &inst in &function.blocks[block].insts {
            let data = &function.insts[inst];
            self.depths.extend(data.results.iter().map(|&value| (value, loops.len())));
            let family = data.op.info().family;
            if matches!(family, OpFamily::Load | OpFamily::Store | OpFamily::Atomic) {
                self.around.insert(inst, loops.clone());
            }
            if family == OpFamily::Loop {
                loops.push(inst);
                if let (Op::Tile(ir::Op::For { .. }), Some(&body)) = (&data.op, data.regions.first()) {
                    self.indices.extend(function.blocks[body].parameters.first().map(|&index| (index, inst)));
                }
            }
            for &region in &data.regions {
                self.block(region, loops);
            }
            if family == OpFamily::Loop {
                loops.pop();
            }
        }
    }

    /// Whether no two iterations of the loops around two accesses through one pointer share an address.
    pub fn are_disjoint(&self, pointer: Value, accesses: [Inst; 2]) -> bool {
        let Some(sum) = self.sum(pointer) else { return false };
        let Some(tile) = self.function.ty(pointer).as_registers() else { return false };
        let has_all = |inst: &Inst| {
            let around = self.around.get(inst);
            around.is_some_and(|around| {
                around.iter().all(|inst| sum.loops.iter().any(|(own, factor)| own == inst && *factor != 0))
            })
        };
        if !accesses.iter().all(has_all) {
            return false;
        }
        // Factors, and how far a digit goes: none for without end.
        let mut digits: SmallVec<[(i128, Option<i128>); 4]> = smallvec![];
        for (&factor, &extent) in sum.axes.iter().zip(tile.shape.iter()) {
            if factor != 0 && extent > 1 {
                digits.push((factor.abs(), Some(i128::from(extent) - 1)));
            }
        }
        for &(inst, factor) in &sum.loops {
            let Some((step, last)) = self.steps(inst) else { return false };
            if last == Some(0) {
                continue;
            }
            if last.is_none() && factor.abs() != 1 {
                // The product may wrap around.
                return false;
            }
            digits.push((factor.abs() * step, last));
        }
        digits.sort_unstable();
        let mut most = Some(0);
        for (factor, last) in digits {
            let Some(below) = most.filter(|&below| below < factor && factor <= MOST) else { return false };
            most = last.map(|last| below + factor * last).filter(|&most| most <= MOST);
        }
        true
    }

    /// Whether no address of one tile of pointers is one of another, where both are made in one iteration.
    pub fn are_apart(&self, a: Value, b: Value) -> bool {
        let (Some(one), Some(other)) = (self.sum(a), self.sum(b)) else { return false };
        let [Some(a), Some(b)] = [a, b].map(|pointer| self.function.ty(pointer).as_registers()) else {
            return false;
        };
        let between = one.clone().plus(&other, -1);
        let is_one_form = between.axes.iter().all(|factor| *factor == 0) && between.loops.is_empty();
        if !is_one_form || !between.rest.is_empty() || a.shape.len() != b.shape.len() {
            return false;
        }
        let extents = a.shape.iter().zip(b.shape.iter()).map(|(a, b)| i128::from(*a.max(b)) - 1);
        let mut digits: SmallVec<[(i128, i128); 4]> =
            one.axes.iter().map(|factor| factor.abs()).zip(extents).filter(|digit| digit.0 != 0).collect();
        digits.sort_unstable();
        // Sums in 32 bits that wrap around stay different then.
        let most: i128 = digits.iter().map(|(factor, last)| factor * last).sum();
        most + between.constant.abs() <= MOST && !makes_up(between.constant, &digits, &mut 0)
    }

    /// The step of a loop without its sign, and the number of its last iteration, if both bounds are known. Else it counts up
    /// from zero or more, so that an index and a number below the step add up to what an unsigned number can hold.
    fn steps(&self, inst: Inst) -> Option<(i128, Option<i128>)> {
        let operands = &self.function.insts[inst].operands;
        let [lower, upper, step] = [0, 1, 2].map(|place| constant_int(self.function, operands[place]));
        let step = step.filter(|&step| step != 0)?;
        let counts_up = lower.is_some_and(|lower| lower >= 0) && step > 0;
        if upper.is_none() && !counts_up || lower.is_none() {
            return None;
        }
        let distance =
            lower.zip(upper).map(|(lower, upper)| if step > 0 { upper - lower } else { lower - upper });
        Some((step.abs(), distance.map(|distance| (distance - 1).max(0) / step.abs())))
    }

    fn sum(&self, value: Value) -> Option<Sum> {
        let known = self.sums.borrow().get(&value).cloned();
        known.unwrap_or_else(|| {
            let sum = self.find_sum(value);
            self.sums.borrow_mut().insert(value, sum.clone());
            sum
        })
    }

    fn find_sum(&self, value: Value) -> Option<Sum> {
        let rank = self.function.ty(value).as_registers()?.shape.len();
        if let Some(&inst) = self.indices.get(&value) {
            let lower = self.sum(self.function.insts[inst].operands[0])?;
            return Some(lower.plus(&Sum { loops: smallvec![(inst, 1)], ..Sum::default() }, 1));
        }
        if let Some(constant) = constant_int(self.function, value) {
            return Some(Sum { axes: smallvec![0; rank], constant, ..Sum::default() });
        }
        self.parts(value, rank).or_else(|| {
            let is_fixed = rank == 0 && self.depths.get(&value) == Some(&0);
            is_fixed.then(|| Sum { rest: smallvec![(value, 1)], ..Sum::default() })
        })
    }

    /// The sum that an instruction says it is.
    fn parts(&self, value: Value, rank: usize) -> Option<Sum> {
        let data = &self.function.insts[self.function.defining_inst(value)?];
        let operands = &data.operands;
        match &data.op {
            Op::Tile(ir::Op::Arange { start, .. }) => {
                Some(Sum { axes: smallvec![1], constant: i128::from(*start), ..Sum::default() })
            }
            Op::Tile(ir::Op::Splat { .. }) => {
                let scalar = self.sum(operands[0])?;
                Some(Sum { axes: smallvec![0; rank], ..scalar })
            }
            Op::Tile(ir::Op::ExpandDims { axis }) => {
                let mut tile = self.sum(operands[0])?;
                tile.axes.insert(*axis as usize, 0);
                Some(tile)
            }
            Op::Tile(ir::Op::Broadcast { .. }) => {
                let mut tile = self.sum(operands[0])?;
                let shape = &self.function.ty(operands[0]).as_registers()?.shape;
                for (factor, &extent) in tile.axes.iter_mut().zip(shape.iter()) {
                    *factor = if extent == 1 { 0 } else { *factor };
                }
                Some(tile)
            }
            Op::Tile(ir::Op::PtrAdd {}) => Some(self.sum(operands[0])?.plus(&self.sum(operands[1])?, 1)),
            Op::Tile(ir::Op::Cast { .. }) => {
                self.sum(operands[0]).filter(|_| self.is_whole(operands[0], value))
            }
            Op::Tile(ir::Op::Hint { .. }) | Op::Gpu(GpuOp::ConvertLayout {}) => self.sum(operands[0]),
            Op::Gpu(GpuOp::Elementwise { function, .. }) if self.is_whole(value, value) => match function {
                ElementwiseFn::Add => Some(self.sum(operands[0])?.plus(&self.sum(operands[1])?, 1)),
                ElementwiseFn::Sub => Some(self.sum(operands[0])?.plus(&self.sum(operands[1])?, -1)),
                ElementwiseFn::Mul => {
                    let factor = |place: usize| constant_int(self.function, operands[place]);
                    match (factor(0), factor(1)) {
                        (_, Some(factor)) => self.sum(operands[0])?.times(factor),
                        (Some(factor), None) => self.sum(operands[1])?.times(factor),
                        (None, None) => None,
                    }
                }
                // tidy: wildcard because other functions are no sums of their operands
                _ => None,
            },
            // tidy: wildcard because nothing is known of what the others give
            _ => None,
        }
    }

    /// Whether a conversion is one of integers of 32 bits or more that keeps all bits.
    fn is_whole(&self, from: Value, to: Value) -> bool {
        let bits = |value: Value| {
            let dtype = self.function.ty(value).as_registers().and_then(ir::Type::dtype);
            dtype.filter(|dtype| dtype.is_int()).map_or(0, ir::Dtype::bits)
        };
        bits(from) >= 32 && bits(to) >= bits(from)
    }
}

/// Whether differences of digits, each up to so many in either direction and times its factor, may add up to a number. The largest
/// factor is the last.
fn makes_up(number: i128, digits: &[(i128, i128)], trials: &mut usize) -> bool {
    let Some((&(factor, last), smaller)) = digits.split_last() else { return number == 0 };
    let rest: i128 = smaller.iter().map(|(factor, last)| factor * last).sum();
    let from = (number - rest).div_euclid(factor).max(-last);
    let to = (number + rest).div_euclid(factor).min(last);
    (from..=to).any(|difference| {
        *trials += 1;
        *trials > MOST_TRIALS || makes_up(number - difference * factor, smaller, trials)
    })
}
