//! Finds the axes of tiles over which one loop of a nest can run.
//!
//! Two axes belong to one *dimension* if an op relates their elements index by index. For example,
//! a broadcast relates the axis of a vector to the last axis of a matrix.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::Op;

use crate::program::{Action, Program, Slot, Step};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Dimension(u32);

/// The dimension of each axis of each tile of a program. Union-find merges the dimensions.
pub(super) struct Dimensions {
    numbers: FxHashMap<(Slot, usize), u32>,
    parents: Vec<u32>,
    /// The slots of tiles that are uniform for all inputs of the program.
    uniform: FxHashSet<Slot>,
}

impl Dimensions {
    pub fn new(program: &Program) -> Self {
        let mut dimensions =
            Self { numbers: FxHashMap::default(), parents: Vec::new(), uniform: FxHashSet::default() };
        dimensions.find_uniform(program);
        for step in program.blocks.iter().flat_map(|block| &block.steps) {
            dimensions.relate(program, step);
        }
        for index in 0..dimensions.parents.len() as u32 {
            dimensions.parents[index as usize] = dimensions.root(index);
        }
        dimensions
    }

    /// Returns the dimension of an axis, or `None` if no op reads or computes the tile.
    pub fn of(&self, slot: Slot, axis: usize) -> Option<Dimension> {
        self.numbers.get(&(slot, axis)).map(|&number| Dimension(self.parents[number as usize]))
    }

    /// Returns whether a tile is uniform for all inputs. Steps read such a tile as a tile of any
    /// shape.
    pub fn is_uniform(&self, slot: Slot) -> bool {
        self.uniform.contains(&slot)
    }

    fn find_uniform(&mut self, program: &Program) {
        let is_elementwise = |step: &&Step| {
            matches!(
                step.op(),
                Some(Op::Elementwise { .. } | Op::Cast { .. } | Op::Bitcast { .. } | Op::PtrAdd {})
            )
        };
        loop {
            let count = self.uniform.len();
            let steps = program.blocks.iter().flat_map(|block| &block.steps);
            for step in steps.filter(is_elementwise) {
                let mut operands = step.operands.iter().map(|operand| operand.slot);
                if operands.all(|slot| program.ty(slot).is_scalar() || self.is_uniform(slot)) {
                    let tiles = step.results.iter().filter(|slot| !program.ty(**slot).is_scalar());
                    self.uniform.extend(tiles);
                }
            }
            if self.uniform.len() == count {
                return;
            }
        }
    }

    fn number(&mut self, slot: Slot, axis: usize) -> u32 {
        *self.numbers.entry((slot, axis)).or_insert_with(|| {
            self.parents.push(self.parents.len() as u32);
            self.parents.len() as u32 - 1
        })
    }

    fn root(&mut self, mut number: u32) -> u32 {
        while self.parents[number as usize] != number {
            let next = self.parents[self.parents[number as usize] as usize];
            self.parents[number as usize] = next;
            number = next;
        }
        number
    }

    fn merge(&mut self, (slot, axis): (Slot, usize), (other, place): (Slot, usize)) {
        if self.is_uniform(slot) || self.is_uniform(other) {
            return;
        }
        let (x, y) = (self.number(slot, axis), self.number(other, place));
        let (x, y) = (self.root(x), self.root(y));
        self.parents[x as usize] = y;
    }

    fn relate(&mut self, program: &Program, step: &Step) {
        let shape = |slot: Slot| program.ty(slot).shape();
        for slot in step.operands.iter().map(|operand| operand.slot).chain(step.results.iter().copied()) {
            for axis in 0..shape(slot).len() {
                self.number(slot, axis);
            }
        }
        let (Some(first), Some(&result)) =
            (step.operands.first().map(|operand| operand.slot), step.results.first())
        else {
            self.relate_equal(program, step);
            return;
        };
        match &step.action {
            Action::Op(Op::ExpandDims { axis }) => {
                for from in 0..shape(first).len() {
                    self.merge((first, from), (result, from + usize::from(from >= *axis as usize)));
                }
            }
            Action::Op(Op::Broadcast { .. }) => {
                for axis in 0..shape(first).len() {
                    if shape(first)[axis] == shape(result)[axis] {
                        self.merge((first, axis), (result, axis));
                    }
                }
            }
            Action::Op(Op::Transpose { permutation }) => {
                for (axis, &from) in permutation.iter().enumerate() {
                    if !shape(first).is_empty() {
                        self.merge((first, from as usize), (result, axis));
                    }
                }
            }
            Action::Op(Op::Reshape { .. }) => {
                let long = |slot: Slot| {
                    let axes = shape(slot).iter().copied().enumerate();
                    axes.filter(|&(_, extent)| extent > 1).collect::<Vec<_>>()
                };
                let (from, to) = (long(first), long(result));
                let is_same = from.iter().map(|axis| axis.1).eq(to.iter().map(|axis| axis.1));
                for (&(axis, _), &(place, _)) in from.iter().zip(&to).filter(|_| is_same) {
                    self.merge((first, axis), (result, place));
                }
            }
            // A splat may share the slot of its scalar, which has no axes.
            Action::Reduce { axis, .. } if !shape(first).is_empty() => {
                for &result in &step.results {
                    for place in 0..shape(result).len() {
                        self.merge((first, place + usize::from(place >= *axis)), (result, place));
                    }
                }
            }
            Action::Op(
                Op::Elementwise { .. }
                | Op::Cast { .. }
                | Op::Bitcast { .. }
                | Op::PtrAdd {}
                | Op::Load { .. }
                | Op::Store { .. },
            )
            | Action::Scan { .. } => self.relate_equal(program, step),
            // tidy: wildcard because the other ops relate no axes, or no nest executes them
            _ => {}
        }
    }

    /// Merges the dimensions of tiles whose elements correspond index by index.
    fn relate_equal(&mut self, program: &Program, step: &Step) {
        let slots = step.operands.iter().map(|operand| operand.slot).chain(step.results.iter().copied());
        let tiles: Vec<Slot> = slots.filter(|&slot| !program.ty(slot).is_scalar()).collect();
        for pair in tiles.windows(2) {
            for axis in 0..program.ty(pair[0]).shape().len().min(program.ty(pair[1]).shape().len()) {
                self.merge((pair[0], axis), (pair[1], axis));
            }
        }
    }
}
