//! Defines the builders of programs: a trait for semantic rules, and one that emits IR.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tilewright_base::Span;
use tilewright_base::entity::packed_option::PackedOption;

use crate::attributes::{
    CacheModifier, EvictionPolicy, Failure, GridDependency, HintKind, InputPrecision, IntList, Literal,
    MachineQuantity, Rounding,
};
use crate::elementwise::ElementwiseFn;
use crate::function::{Block, Function, InstData, Location, LocationData, Value};
use crate::ops::{Op, Regions};
use crate::rule_input::{RegionTypes, RuleError, RuleErrorKind, RuleInput};
use crate::types::{Element, Shape, Type};

/// The results of an op.
pub type Results<V> = SmallVec<[V; 1]>;

/// Creates values by ops.
///
/// All methods after [`emit`](Self::emit) call `emit`. The doc of an op in [`OPS`](crate::OPS)
/// defines the meaning of its method. The error of the method is the error of the op's type rule.
pub trait Builder {
    /// A scalar or a tile.
    type Value: Clone;
    /// A region of an op, such as the function of a reduction.
    type Region;

    /// Returns the type of a value.
    fn type_of(&self, value: &Self::Value) -> Type;

    /// Creates the results of an op.
    fn emit(
        &mut self,
        op: Op,
        operands: SmallVec<[Self::Value; 4]>,
        regions: SmallVec<[Self::Region; 2]>,
    ) -> Result<Results<Self::Value>, RuleError>;

    /// Creates the only result of an op without regions.
    fn emit_one(&mut self, op: Op, operands: SmallVec<[Self::Value; 4]>) -> Result<Self::Value, RuleError> {
        let mut results = self.emit(op, operands, SmallVec::new())?;
        results.pop().ok_or_else(|| RuleError::new("the op has no result", RuleErrorKind::Types))
    }

    /// See [`Op::Constant`].
    fn constant(&mut self, value: Literal) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Constant { value }, smallvec![])
    }

    /// See [`Op::ProgramId`].
    fn program_id(&mut self, axis: u8) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::ProgramId { axis }, smallvec![])
    }

    /// See [`Op::NumPrograms`].
    fn num_programs(&mut self, axis: u8) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::NumPrograms { axis }, smallvec![])
    }

    /// See [`Op::Arange`].
    fn arange(&mut self, start: i64, end: i64) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Arange { start, end }, smallvec![])
    }

    /// See [`Op::Splat`].
    fn splat(&mut self, scalar: Self::Value, shape: Shape) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Splat { shape }, smallvec![scalar])
    }

    /// See [`Op::ExpandDims`].
    fn expand_dims(&mut self, tile: Self::Value, axis: u32) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::ExpandDims { axis }, smallvec![tile])
    }

    /// See [`Op::Broadcast`].
    fn broadcast(&mut self, tile: Self::Value, shape: Shape) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Broadcast { shape }, smallvec![tile])
    }

    /// See [`Op::Reshape`].
    fn reshape(&mut self, tile: Self::Value, shape: Shape) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Reshape { shape }, smallvec![tile])
    }

    /// See [`Op::Slice`].
    fn slice(
        &mut self,
        tile: Self::Value,
        starts: IntList,
        steps: IntList,
        shape: Shape,
    ) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Slice { starts, steps, shape }, smallvec![tile])
    }

    /// See [`Op::Gather`].
    fn gather(&mut self, tile: Self::Value, index: Self::Value, axis: u32) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Gather { axis }, smallvec![tile, index])
    }

    /// See [`Op::Transpose`].
    fn transpose(&mut self, tile: Self::Value, permutation: IntList) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Transpose { permutation }, smallvec![tile])
    }

    /// See [`Op::Elementwise`], for functions of one operand.
    fn unary(&mut self, function: ElementwiseFn, x: Self::Value) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Elementwise { function }, smallvec![x])
    }

    /// See [`Op::Elementwise`], for functions of two operands.
    fn binary(
        &mut self,
        function: ElementwiseFn,
        x: Self::Value,
        y: Self::Value,
    ) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Elementwise { function }, smallvec![x, y])
    }

    /// See [`Op::Elementwise`], for functions of three operands.
    fn ternary(
        &mut self,
        function: ElementwiseFn,
        x: Self::Value,
        y: Self::Value,
        z: Self::Value,
    ) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Elementwise { function }, smallvec![x, y, z])
    }

    /// See [`Op::Cast`].
    fn cast(
        &mut self,
        value: Self::Value,
        element: Element,
        rounding: Rounding,
    ) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Cast { element, rounding }, smallvec![value])
    }

    /// See [`Op::Bitcast`].
    fn bitcast(&mut self, value: Self::Value, element: Element) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Bitcast { element }, smallvec![value])
    }

    /// See [`Op::PtrAdd`].
    fn ptr_add(&mut self, pointer: Self::Value, offset: Self::Value) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::PtrAdd {}, smallvec![pointer, offset])
    }

    /// See [`Op::Load`]. Without a mask, `other` is ignored.
    fn load(
        &mut self,
        pointer: Self::Value,
        mask: Option<Self::Value>,
        other: Option<Self::Value>,
        (cache, eviction, volatile): (CacheModifier, EvictionPolicy, bool),
    ) -> Result<Self::Value, RuleError> {
        let other = if mask.is_some() { other } else { None };
        let operands = std::iter::once(pointer).chain(mask).chain(other).collect();
        self.emit_one(Op::Load { cache, eviction, volatile }, operands)
    }

    /// See [`Op::Store`].
    fn store(
        &mut self,
        pointer: Self::Value,
        value: Self::Value,
        mask: Option<Self::Value>,
        (cache, eviction): (CacheModifier, EvictionPolicy),
    ) -> Result<(), RuleError> {
        let operands = [pointer, value].into_iter().chain(mask).collect();
        self.emit(Op::Store { cache, eviction }, operands, SmallVec::new()).map(|_| ())
    }

    /// See [`Op::Dot`].
    fn dot(
        &mut self,
        a: Self::Value,
        b: Self::Value,
        acc: Self::Value,
        precision: InputPrecision,
        max_imprecise_acc: u32,
    ) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Dot { precision, max_imprecise_acc }, smallvec![a, b, acc])
    }

    /// See [`Op::Reduce`].
    fn reduce(
        &mut self,
        tiles: SmallVec<[Self::Value; 4]>,
        axis: u32,
        combine: Self::Region,
    ) -> Result<Results<Self::Value>, RuleError> {
        self.emit(Op::Reduce { axis }, tiles, smallvec![combine])
    }

    /// See [`Op::Map`].
    fn map(
        &mut self,
        tiles: SmallVec<[Self::Value; 4]>,
        pack: u32,
        function: Self::Region,
    ) -> Result<Results<Self::Value>, RuleError> {
        self.emit(Op::Map { pack }, tiles, smallvec![function])
    }

    /// See [`Op::Scan`].
    fn scan(
        &mut self,
        tiles: SmallVec<[Self::Value; 4]>,
        axis: u32,
        reverse: bool,
        combine: Self::Region,
    ) -> Result<Results<Self::Value>, RuleError> {
        self.emit(Op::Scan { axis, reverse }, tiles, smallvec![combine])
    }

    /// See [`Op::Hint`].
    fn hint(
        &mut self,
        value: Self::Value,
        kind: HintKind,
        values: IntList,
    ) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Hint { kind, values }, smallvec![value])
    }

    /// See [`Op::Assume`].
    fn assume(&mut self, condition: Self::Value) -> Result<(), RuleError> {
        self.emit(Op::Assume {}, smallvec![condition], SmallVec::new()).map(|_| ())
    }

    /// See [`Op::Barrier`].
    fn barrier(&mut self) -> Result<(), RuleError> {
        self.emit(Op::Barrier {}, smallvec![], SmallVec::new()).map(|_| ())
    }

    /// See [`Op::Assert`].
    fn assert(
        &mut self,
        condition: Self::Value,
        mask: Option<Self::Value>,
        failure: Failure,
    ) -> Result<(), RuleError> {
        let operands = std::iter::once(condition).chain(mask).collect();
        self.emit(Op::Assert { failure }, operands, SmallVec::new()).map(|_| ())
    }

    /// See [`Op::Machine`].
    fn machine(&mut self, quantity: MachineQuantity) -> Result<Self::Value, RuleError> {
        self.emit_one(Op::Machine { quantity }, SmallVec::new())
    }

    /// See [`Op::Dependency`].
    fn dependency(&mut self, action: GridDependency) -> Result<(), RuleError> {
        self.emit(Op::Dependency { action }, SmallVec::new(), SmallVec::new()).map(|_| ())
    }

    /// See [`Op::Print`].
    fn print(&mut self, value: Option<Self::Value>, prefix: String, digits: u32) -> Result<(), RuleError> {
        let op = Op::Print { prefix, digits, extents: IntList::new() };
        self.emit(op, value.into_iter().collect(), SmallVec::new()).map(|_| ())
    }
}

/// A builder that appends instructions to a block.
#[derive(Debug)]
pub struct IrBuilder {
    /// The function under construction.
    pub function: Function,
    block: Block,
    location: PackedOption<Location>,
}

impl IrBuilder {
    /// Returns a builder that appends to the body of a function.
    pub fn new(function: Function) -> Self {
        let block = function.entry;
        Self { function, block, location: None.into() }
    }

    /// Returns the block that instructions are appended to.
    pub fn block(&self) -> Block {
        self.block
    }

    /// Appends to another block from now on; returns the previous block.
    pub fn switch_to(&mut self, block: Block) -> Block {
        std::mem::replace(&mut self.block, block)
    }

    /// Creates a block with parameters of these types. The builder appends to this block from now
    /// on. Returns the new block and the previous block. The caller passes the previous block to
    /// [`switch_to`](Self::switch_to) when the new block is complete.
    pub fn begin_region(&mut self, parameters: impl IntoIterator<Item = Type>) -> (Block, Block) {
        let block = self.function.blocks.push(crate::BlockData::default());
        for ty in parameters {
            self.function.add_parameter(block, ty, None);
        }
        (block, self.switch_to(block))
    }

    /// Sets the source location of the next instructions, which are not inlined from a call.
    pub fn set_span(&mut self, span: Span) {
        let data = LocationData { span, caller: None.into() };
        // Neighboring instructions mostly share a location.
        let last = self.function.locations.last().filter(|(_, known)| **known == data).map(|(id, _)| id);
        self.location = last.unwrap_or_else(|| self.function.locations.push(data)).into();
    }

    /// Gives a value the user's name, unless it has a name.
    pub fn name(&mut self, value: Value, name: &str) {
        let slot = &mut self.function.values[value].name;
        if slot.is_none() {
            *slot = Some(Arc::from(name));
        }
    }

    /// Ends the current block with its yielded values.
    pub fn yield_values(&mut self, values: impl IntoIterator<Item = Value>) -> Result<(), RuleError> {
        self.emit(Op::Yield {}, values.into_iter().collect(), SmallVec::new()).map(|_| ())
    }

    /// Ends the function with its results.
    pub fn return_values(&mut self, values: impl IntoIterator<Item = Value>) -> Result<(), RuleError> {
        let values: SmallVec<[Value; 4]> = values.into_iter().collect();
        self.function.results = values.iter().map(|&value| self.function.ty(value).clone()).collect();
        self.emit(Op::Return {}, values, SmallVec::new()).map(|_| ())
    }
}

impl IrBuilder {
    /// Converts the operands of an elementwise op without a stated layout to that of the others.
    fn with_stated_layout(
        &mut self,
        op: &Op,
        mut operands: SmallVec<[Value; 4]>,
    ) -> Result<SmallVec<[Value; 4]>, RuleError> {
        let layout = operands.iter().find_map(|value| self.function.ty(*value).layout.clone());
        let Some(layout) = layout.filter(|_| crate::rules::is_elementwise(op.family())) else {
            return Ok(operands);
        };
        for operand in &mut operands {
            let ty = self.function.ty(*operand);
            if !ty.is_scalar() && ty.layout.is_none() {
                *operand = self.emit_one(Op::SetLayout { layout: (*layout).clone() }, smallvec![*operand])?;
            }
        }
        Ok(operands)
    }
}

impl Builder for IrBuilder {
    type Value = Value;
    type Region = Block;

    fn type_of(&self, value: &Value) -> Type {
        self.function.ty(*value).clone()
    }

    fn emit(
        &mut self,
        op: Op,
        operands: SmallVec<[Value; 4]>,
        regions: Regions,
    ) -> Result<Results<Value>, RuleError> {
        let operands = self.with_stated_layout(&op, operands)?;
        let types = infer_types(&self.function, &op, &operands, &regions)?;
        let inst = self.function.create_inst(op, operands, regions, types, self.location);
        self.function.blocks[self.block].insts.push(inst);
        Ok(self.function.insts[inst].results.clone())
    }
}

fn infer_types(
    function: &Function,
    op: &Op,
    operands: &[Value],
    regions: &[Block],
) -> Result<Vec<Type>, RuleError> {
    let types_of =
        |values: &[Value]| -> Vec<Type> { values.iter().map(|&value| function.ty(value).clone()).collect() };
    let region_types: Vec<RegionTypes> = regions
        .iter()
        .map(|&block| RegionTypes {
            parameters: types_of(&function.blocks[block].parameters),
            yields: types_of(function.yielded(block)),
        })
        .collect();
    op.result_types(&RuleInput { operands: &types_of(operands), regions: &region_types })
}

pub(crate) fn expected_types(function: &Function, inst: &InstData) -> Result<Vec<Type>, RuleError> {
    infer_types(function, &inst.op, &inst.operands, &inst.regions)
}
