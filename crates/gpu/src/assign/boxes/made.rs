//! Tensor maps that the kernel makes itself: of a tensor whose place or shape the host does not know.
//!
//! ```text
//! %base = load …                                 %m = make_tensor_map %base, %M, %K, %stride
//! for … { … load %base + rows * %stride … }  =>  for … { … tensor_box …, %m, … }
//! ```
//! A map costs about a microsecond, which a loop pays back: it is made outside of one that the access stands in, where base,
//! strides and extents are known. That these are aligned has to be known when the kernel is compiled, as of what a descriptor says of
//! a pointer and strides that the kernel loads.

use std::fmt;

use smallvec::SmallVec;
use tilewright_ir::{Block, Inst, Op, Value};

use super::demand::is_kernel_parameter;
use super::masks::{Bound, bounds};
use super::{Search, is_written};
use tilewright_gpu_ir::TensorMapPlan;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term};

/// A tensor map of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapId {
    /// One that the launch makes.
    Launch(usize),
    /// One that the kernel makes.
    Made(usize),
}

impl fmt::Display for MapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(number) => write!(f, "T{number}"),
            Self::Made(number) => write!(f, "M{number}"),
        }
    }
}

/// A tensor map that the kernel makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MadeMap {
    /// How: the arguments are these scalars.
    pub plan: TensorMapPlan,
    /// What it is made of.
    pub parts: Vec<Value>,
    /// One that is known last, in the block where the map is made.
    pub last: Value,
}

/// A map that is being looked for.
pub struct Making {
    /// The block where it would be made, and those around it.
    around: Vec<Block>,
    parts: Vec<Value>,
}

impl Making {
    /// Whether what is in a block is known where the map is made.
    pub fn is_around(&self, block: Block) -> bool {
        self.around.contains(&block)
    }

    /// The number of a part.
    pub fn number(&mut self, value: Value) -> u32 {
        let place = self.parts.iter().position(|part| *part == value).unwrap_or_else(|| {
            self.parts.push(value);
            self.parts.len() - 1
        });
        place as u32
    }
}

impl Search<'_> {
    /// The block that a value is defined in.
    pub(super) fn block_of(&self, value: Value) -> Option<Block> {
        self.structure.parents.block_of_value(self.evolution.function, value)
    }

    /// The tensor map that the kernel can make for a load or store, and where its box begins.
    pub(super) fn made(&mut self, inst: Inst) -> Option<(MadeMap, SmallVec<[Form; 5]>)> {
        let any_base = ScalarEvolution::exact(self.evolution.function).with_any_base().keeping_descriptions();
        let launch = std::mem::replace(&mut self.evolution, any_base);
        let found = self.made_of_any_base(inst);
        self.evolution = launch;
        self.making = None;
        found
    }

    fn made_of_any_base(&mut self, inst: Inst) -> Option<(MadeMap, SmallVec<[Form; 5]>)> {
        let function = self.evolution.function;
        let operands = &function.insts[inst].operands;
        let address = self.evolution.address(operands[0])?;
        let bounds = match operands.get(if is_written(function, inst) { 2 } else { 1 }) {
            Some(mask) => bounds(&mut self.evolution, *mask)?,
            None => Vec::new(),
        };
        let rank = function.ty(operands[0]).rank();
        let parts = parts(&address.offset.form, &bounds, rank)?;
        // Of its arguments alone, a launch can make the map, or does not want one.
        if parts.iter().chain([&address.base]).all(|part| is_kernel_parameter(function, *part)) {
            return None;
        }
        // From the access outwards.
        let mut around: Vec<Block> = self.structure.parents.block(inst).into_iter().collect();
        while let Some(owner) = around.last().and_then(|block| self.structure.parents.owner(*block)) {
            around.push(self.structure.parents.block(owner)?);
        }
        let place = |value: Value| {
            let block = self.block_of(value)?;
            Some((around.iter().position(|other| *other == block)?, value))
        };
        let places = parts.into_iter().chain([address.base]).map(place).collect::<Option<Vec<_>>>()?;
        let (innermost, last) = places.into_iter().min_by_key(|(place, _)| *place)?;
        let is_loop = |block: &Block| {
            let owner = self.structure.parents.owner(*block);
            owner.is_some_and(|owner| matches!(function.insts[owner].op, Op::For { .. } | Op::While {}))
        };
        if !around[..innermost].iter().any(is_loop) {
            return None;
        }
        around.drain(..innermost);
        self.making = Some(Making { around, parts: Vec::new() });
        let (plan, coordinates) = self.access(inst).ok()?;
        let parts = self.making.take()?.parts;
        Some((MadeMap { plan, parts, last }, coordinates))
    }
}

/// What strides and extents are made of.
fn parts(offset: &Form, bounds: &[Bound], rank: usize) -> Option<Vec<Value>> {
    let mut parts = Vec::new();
    let mut add = |number: &Form| {
        for atom in number.terms().flat_map(|(product, _)| product) {
            match atom {
                Term::Value(value) => parts.push(*value),
                // What moves with each iteration is made in none.
                Term::Axis(_) | Term::Element(..) | Term::Iteration(_) => return None,
            }
        }
        Some(())
    };
    for axis in 0..rank {
        add(&offset.factor_of(Term::Axis(axis))?.0)?;
    }
    for bound in bounds {
        let Bound::Below(axis, below) = bound else { continue };
        let from = bounds.iter().find_map(|other| match other {
            Bound::From(other, from) if other == axis => Some(from),
            Bound::From(..) | Bound::Below(..) => None,
        });
        // An index plus where it begins, less the extent, is less than 0.
        let extent = match from {
            Some(from) => from.minus(below)?,
            None => below
                .terms()
                .filter(|(_, factor)| *factor < 0)
                .try_fold(Form::default(), |sum, (product, factor)| {
                    sum.plus(&Form::term(product.clone(), factor))
                })?,
        };
        add(&extent)?;
    }
    Some(parts)
}
