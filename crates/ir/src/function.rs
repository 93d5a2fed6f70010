//! Functions: values, instructions and blocks in dense tables keyed by typed indices.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::entity::{PrimaryMap, entity_impl, packed_option::PackedOption};
use tilewright_base::{SourceMap, Span};

use crate::dialect::{Dialect, Operation, Tile};
use crate::ops::{Effect, Regions};

/// A value: the result of an instruction or a parameter of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(u32);
entity_impl!(Value, "v");

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inst(u32);
entity_impl!(Inst, "inst");

/// A block: the body of a function or a region of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u32);
entity_impl!(Block, "block");

/// A place in the user's source, with the calls that led there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(u32);
entity_impl!(Location, "loc");

/// A function of a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FuncId(u32);
entity_impl!(FuncId, "func");

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definition {
    /// The result with this number of an instruction.
    Result(Inst, u32),
    /// The parameter with this number of a block.
    Parameter(Block, u32),
}

/// A value's type, origin and name.
#[derive(Clone, Debug)]
pub struct ValueData<D: Dialect = Tile> {
    /// The type.
    pub ty: D::Type,
    /// Where it comes from.
    pub definition: Definition,
    /// What the user calls it.
    pub name: Option<Arc<str>>,
}

/// An instruction: an op applied to operands.
#[derive(Clone, Debug)]
pub struct InstData<D: Dialect = Tile> {
    /// The op and its attributes.
    pub op: D::Op,
    /// The operands.
    pub operands: SmallVec<[Value; 4]>,
    /// The results.
    pub results: SmallVec<[Value; 1]>,
    /// The regions.
    pub regions: Regions,
    /// Where in the source it comes from.
    pub location: PackedOption<Location>,
}

/// A straight sequence of instructions; the last one is the terminator.
#[derive(Clone, Default, Debug)]
pub struct BlockData {
    /// The values that it is entered with.
    pub parameters: SmallVec<[Value; 4]>,
    /// The instructions.
    pub insts: Vec<Inst>,
}

/// A place in the source, and the call that it was inlined at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LocationData {
    /// The place.
    pub span: Span,
    /// Where the function that it is in was called, if it was inlined.
    pub caller: PackedOption<Location>,
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name in the signature.
    pub name: Arc<str>,
    /// The value (a pointer's address in bytes) is known to be a multiple of this.
    pub divisibility: u32,
}

/// A function: its signature, and a body that ends in `return`.
#[derive(Clone, Debug)]
pub struct Function<D: Dialect = Tile> {
    /// The name.
    pub name: String,
    /// The definition in the source.
    pub span: Option<Span>,
    /// What is known of each parameter of the entry block.
    pub parameters: Vec<Parameter>,
    /// Whether calls of it stay calls; a back end may put its body in their place all the same.
    pub noinline: bool,
    /// The types that it returns.
    pub results: Vec<D::Type>,
    /// The body.
    pub entry: Block,
    /// Every value.
    pub values: PrimaryMap<Value, ValueData<D>>,
    /// Every instruction; those that no block holds are dead.
    pub insts: PrimaryMap<Inst, InstData<D>>,
    /// Every block.
    pub blocks: PrimaryMap<Block, BlockData>,
    /// Every place in the source.
    pub locations: PrimaryMap<Location, LocationData>,
}

impl<D: Dialect> Function<D> {
    /// A function with an empty body and no parameters.
    pub fn new(name: impl Into<String>) -> Self {
        let mut blocks = PrimaryMap::new();
        let entry = blocks.push(BlockData::default());
        Self {
            name: name.into(),
            span: None,
            parameters: Vec::new(),
            noinline: false,
            results: Vec::new(),
            entry,
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            blocks,
            locations: PrimaryMap::new(),
        }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &D::Type {
        &self.values[value].ty
    }

    /// The instruction whose result a value is.
    pub fn defining_inst(&self, value: Value) -> Option<Inst> {
        match self.values[value].definition {
            Definition::Result(inst, _) => Some(inst),
            Definition::Parameter(..) => None,
        }
    }

    /// The op whose result a value is.
    pub fn defining_op(&self, value: Value) -> Option<&D::Op> {
        self.defining_inst(value).map(|inst| &self.insts[inst].op)
    }

    /// The only result of an instruction.
    pub fn result(&self, inst: Inst) -> Option<Value> {
        match self.insts[inst].results[..] {
            [result] => Some(result),
            _ => None,
        }
    }

    /// Adds a parameter to a block.
    pub fn add_parameter(&mut self, block: Block, ty: D::Type, name: Option<Arc<str>>) -> Value {
        let index = self.blocks[block].parameters.len() as u32;
        let value = self.values.push(ValueData { ty, definition: Definition::Parameter(block, index), name });
        self.blocks[block].parameters.push(value);
        value
    }

    /// Adds an instruction that stands in no block yet.
    pub fn create_inst(
        &mut self,
        op: D::Op,
        operands: SmallVec<[Value; 4]>,
        regions: Regions,
        result_types: impl IntoIterator<Item = D::Type>,
        location: PackedOption<Location>,
    ) -> Inst {
        let inst = self.insts.push(InstData { op, operands, results: SmallVec::new(), regions, location });
        for (index, ty) in result_types.into_iter().enumerate() {
            let definition = Definition::Result(inst, index as u32);
            let value = self.values.push(ValueData { ty, definition, name: None });
            self.insts[inst].results.push(value);
        }
        inst
    }

    /// The terminator of a block, if it has one.
    pub fn terminator(&self, block: Block) -> Option<Inst> {
        self.blocks[block]
            .insts
            .last()
            .copied()
            .filter(|&inst| self.insts[inst].op.info().effect == Effect::Terminator)
    }

    /// The operands of a block's terminator; empty if it has none.
    pub fn yielded(&self, block: Block) -> &[Value] {
        self.terminator(block).map_or(&[], |inst| &self.insts[inst].operands)
    }

    /// The types of the parameters of the body.
    pub fn parameter_types(&self) -> impl Iterator<Item = &D::Type> {
        self.blocks[self.entry].parameters.iter().map(|&value| self.ty(value))
    }

    /// Checks that values have these types; the error is one sentence that says what they are.
    pub fn check_types(&self, values: &[Value], types: &[D::Type], what: &str) -> Result<(), String> {
        let found: Vec<&D::Type> = values.iter().map(|&value| self.ty(value)).collect();
        if found == types.iter().collect::<Vec<_>>() {
            Ok(())
        } else {
            Err(format!("{what} are {found:?}, expected {types:?}"))
        }
    }

    /// The span of an instruction and of the calls that it was inlined through, innermost first.
    pub fn call_chain(&self, inst: Inst) -> Vec<Span> {
        let mut chain = Vec::new();
        let mut next = self.insts[inst].location;
        while let Some(location) = next.expand() {
            let data = self.locations[location];
            chain.push(data.span);
            next = data.caller;
        }
        chain
    }

    /// A copy of a region; what it uses from outside stays as it is.
    pub fn clone_region(&mut self, region: Block) -> Block {
        let mut copies = FxHashMap::default();
        self.clone_into(region, &mut copies)
    }

    fn clone_into(&mut self, region: Block, copies: &mut FxHashMap<Value, Value>) -> Block {
        let copy = self.blocks.push(BlockData::default());
        for parameter in self.blocks[region].parameters.clone() {
            let ValueData { ty, name, .. } = self.values[parameter].clone();
            copies.insert(parameter, self.add_parameter(copy, ty, name));
        }
        for inst in self.blocks[region].insts.clone() {
            let InstData { op, operands, results, regions, location } = self.insts[inst].clone();
            let operands = operands.iter().map(|value| *copies.get(value).unwrap_or(value)).collect();
            let regions = regions.iter().map(|inner| self.clone_into(*inner, copies)).collect();
            let types: Vec<D::Type> = results.iter().map(|result| self.ty(*result).clone()).collect();
            let new = self.create_inst(op, operands, regions, types, location);
            for (place, result) in results.into_iter().enumerate() {
                let made = self.insts[new].results[place];
                let name = self.values[result].name.clone();
                self.values[made].name = name;
                copies.insert(result, made);
            }
            self.blocks[copy].insts.push(new);
        }
        copy
    }

    /// Every instruction in a block and in the regions inside it, outer before inner, in order.
    pub fn walk(&self, block: Block, each: &mut impl FnMut(Inst)) {
        for &inst in &self.blocks[block].insts {
            each(inst);
            for &region in &self.insts[inst].regions {
                self.walk(region, each);
            }
        }
    }
}

/// The functions of one compilation; the entry is the kernel.
#[derive(Clone, Debug)]
pub struct Module<D: Dialect = Tile> {
    /// What stands at its head.
    pub header: D::Header,
    /// The functions.
    pub functions: PrimaryMap<FuncId, Function<D>>,
    /// The kernel.
    pub entry: FuncId,
    /// The source that spans point into.
    pub sources: Arc<SourceMap>,
}

impl<D: Dialect> Module<D> {
    /// A module with nothing at its head.
    pub fn new(functions: PrimaryMap<FuncId, Function<D>>, entry: FuncId, sources: Arc<SourceMap>) -> Self {
        Self { header: D::Header::default(), functions, entry, sources }
    }

    /// The kernel.
    pub fn kernel(&self) -> &Function<D> {
        &self.functions[self.entry]
    }
}
