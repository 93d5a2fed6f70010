//! Plans tensor maps that the kernel makes itself. The launch does not know the base or the shape
//! of their tensors.
//!
//! ```text
//! %base = load …                                 %m = make_tensor_map %base, %M, %K, %stride
//! for … { … load %base + rows * %stride … }  =>  for … { … tensor_box …, %m, … }
//! ```
//! Making a map takes about a microsecond. So the kernel makes a map before a loop around the
//! access. There, the base, the strides and the extents must be known. Their alignment must be
//! known at compile time. For a base or strides that the kernel loads, a hint states the alignment
//! (`HintKind::Described`).

use std::fmt;

use smallvec::SmallVec;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term};
use tilewright_ir::{Block, Inst, Op, Value};

use super::demand::is_kernel_parameter;
use super::masks::{Bound, bounds};
use super::{Search, is_written};
use tilewright_gpu_ir::TensorMapPlan;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapId {
    /// A map that the launch makes.
    Launch(usize),
    /// A map that the kernel makes.
    Device(usize),
}

impl fmt::Display for MapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(index) => write!(f, "T{index}"),
            Self::Device(index) => write!(f, "M{index}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceMap {
    /// The plan of the map, whose arguments are indices in `inputs`.
    pub plan: TensorMapPlan,
    /// The scalars from which the map is made.
    pub inputs: Vec<Value>,
    /// The input that is defined in the innermost block. The kernel makes the map in this block.
    pub last: Value,
}

/// The position and the inputs of a tensor map that is being planned.
pub struct MapInputs {
    /// The block in which the kernel would make the map, and the blocks around it.
    around: Vec<Block>,
    inputs: Vec<Value>,
}

impl MapInputs {
    /// Returns whether the values of a block are known where the kernel makes the map.
    pub fn is_around(&self, block: Block) -> bool {
        self.around.contains(&block)
    }

    /// Returns the index of an input; adds a new input.
    pub fn index(&mut self, value: Value) -> u32 {
        let index = self.inputs.iter().position(|input| *input == value).unwrap_or_else(|| {
            self.inputs.push(value);
            self.inputs.len() - 1
        });
        index as u32
    }
}

impl Search<'_> {
    pub(super) fn block_of(&self, value: Value) -> Option<Block> {
        self.structure.parents.block_of_value(self.evolution.function, value)
    }

    /// Returns the kernel's tensor map for an access, and the coordinates of the box.
    pub(super) fn device_map(&mut self, inst: Inst) -> Option<(DeviceMap, SmallVec<[Form; 5]>)> {
        let pointers = self.evolution.function.ty(self.evolution.function.insts[inst].operands[0]);
        let bytes = pointers.element.pointee()?.bytes() * pointers.shape.elements();
        if bytes < self.tuning.device_map_bytes as usize {
            return None;
        }
        let any_base = ScalarEvolution::exact(self.evolution.function).with_any_base().keeping_descriptions();
        let launch = std::mem::replace(&mut self.evolution, any_base);
        let found = self.device_map_of_any_base(inst);
        self.evolution = launch;
        self.making = None;
        found
    }

    fn device_map_of_any_base(&mut self, inst: Inst) -> Option<(DeviceMap, SmallVec<[Form; 5]>)> {
        let function = self.evolution.function;
        let operands = &function.insts[inst].operands;
        let address = self.evolution.address(operands[0])?;
        let bounds = match operands.get(if is_written(function, inst) { 2 } else { 1 }) {
            Some(mask) => bounds(&mut self.evolution, *mask)?,
            None => Vec::new(),
        };
        let rank = function.ty(operands[0]).rank();
        let inputs = inputs(&address.offset.form, &bounds, rank)?;
        // The caller has already rejected such a map for the launch.
        if inputs.iter().chain([&address.base]).all(|input| is_kernel_parameter(function, *input)) {
            return None;
        }
        let mut around: Vec<Block> = self.structure.parents.block(inst).into_iter().collect();
        while let Some(owner) = around.last().and_then(|block| self.structure.parents.owner(*block)) {
            around.push(self.structure.parents.block(owner)?);
        }
        let depth = |value: Value| {
            let block = self.block_of(value)?;
            Some((around.iter().position(|other| *other == block)?, value))
        };
        let depths = inputs.into_iter().chain([address.base]).map(depth).collect::<Option<Vec<_>>>()?;
        let (innermost, last) = depths.into_iter().min_by_key(|(depth, _)| *depth)?;
        let is_loop = |block: &Block| {
            let owner = self.structure.parents.owner(*block);
            owner.is_some_and(|owner| matches!(function.insts[owner].op, Op::For { .. } | Op::While {}))
        };
        if !around[..innermost].iter().any(is_loop) {
            return None;
        }
        around.drain(..innermost);
        self.making = Some(MapInputs { around, inputs: Vec::new() });
        let (plan, coordinates) = self.access(inst).ok()?;
        let inputs = self.making.take()?.inputs;
        Some((DeviceMap { plan, inputs, last }, coordinates))
    }
}

/// Returns the scalars that strides and extents depend on. Returns `None` if a stride or an extent
/// depends on an index or an iteration.
fn inputs(offset: &Form, bounds: &[Bound], rank: usize) -> Option<Vec<Value>> {
    let mut inputs = Vec::new();
    let mut add = |form: &Form| {
        for term in form.terms().flat_map(|(product, _)| product) {
            match term {
                Term::Value(value) => inputs.push(*value),
                // The kernel makes the map once, so strides and extents may not change with these
                // terms.
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
        // The bound is `index + start - extent < 0`, and `below` is `start - extent`.
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
    Some(inputs)
}
