//! Defines functions: values, instructions and blocks in tables with typed indices.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::entity::{PrimaryMap, entity_impl, packed_option::PackedOption};
use tilewright_base::{SourceMap, Span};

use crate::dialect::{Dialect, Operation, Tile};
use crate::ops::{Effect, Op, OpFamily, Regions};
use crate::scaled::ScaledFormats;

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

/// A source location, with the calls that led to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(u32);
entity_impl!(Location, "loc");

/// A function of a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FuncId(u32);
entity_impl!(FuncId, "func");

/// The definition of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definition {
    /// The result with this index of an instruction.
    Result(Inst, u32),
    /// The parameter with this index of a block.
    Parameter(Block, u32),
}

/// A value's type, origin and name.
#[derive(Clone, Debug)]
pub struct ValueData<D: Dialect = Tile> {
    /// The type.
    pub ty: D::Type,
    /// The definition.
    pub definition: Definition,
    /// The user's name of the value.
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
    /// The source location.
    pub location: PackedOption<Location>,
}

impl<D: Dialect> InstData<D> {
    /// Replaces operands by other values.
    pub fn replace_operands(&mut self, replaced: &FxHashMap<Value, Value>) {
        for operand in &mut self.operands {
            if let Some(new) = replaced.get(operand) {
                *operand = *new;
            }
        }
    }
}

/// A value that a loop carries from one iteration to the next, or that the executed region of a
/// branch yields.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The initial value of a loop; a branch has none.
    pub initial: Option<Value>,
    /// The parameter of each region of a loop that receives the value; the regions of a branch have
    /// no parameters.
    pub parameters: SmallVec<[Value; 2]>,
    /// The yielded values. The body of a loop yields one value, for the next iteration. Each region
    /// of a branch yields one value.
    pub yielded: SmallVec<[Value; 2]>,
    /// The result of the instruction.
    pub result: Value,
}

/// The index of the first carried value among the operands, and among the parameters of a region.
/// `region` is the first region that yields carried values.
#[derive(Clone, Copy)]
struct CarriedIndices {
    operand: usize,
    parameter: usize,
    region: usize,
}

/// The position of an op in the schedule of a software-pipelined loop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stage {
    /// The ops of stage `n` run `n` steps after the ops of stage 0 of the same iteration. A step is
    /// one iteration of the pipelined loop.
    pub stage: u32,
    /// The ops of one step run in ascending order; ops with equal order run in text order.
    pub order: u32,
}

/// A straight sequence of instructions; the last one is the terminator.
#[derive(Clone, Default, Debug)]
pub struct BlockData {
    /// The values that the block receives when it is entered.
    pub parameters: SmallVec<[Value; 4]>,
    /// The instructions.
    pub insts: Vec<Inst>,
}

/// A source location, and the call that it was inlined at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LocationData {
    /// The span.
    pub span: Span,
    /// The call at which the function around the span was inlined, if it was inlined.
    pub caller: PackedOption<Location>,
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name in the signature.
    pub name: Arc<str>,
    /// A number that divides the value (for a pointer, the address in bytes); 1 if none is known.
    pub divisibility: u32,
}

/// A function: its signature, and a body that ends in `return`.
#[derive(Clone, Debug)]
pub struct Function<D: Dialect = Tile> {
    /// The name.
    pub name: String,
    /// The definition in the source.
    pub span: Option<Span>,
    /// The name and the known properties of each parameter of the entry block.
    pub parameters: Vec<Parameter>,
    /// True if the optimizer does not inline the function; a back end may still do so.
    pub noinline: bool,
    /// The formats of A and B, if the function computes a dot with scales. Its parameters are A, the
    /// scales of A, B and the scales of B. A back end may replace a call by [`Op::DotScaled`] with an
    /// accumulator of zeros.
    ///
    /// [`Op::DotScaled`]: crate::Op::DotScaled
    pub scaled_dot: Option<ScaledFormats>,
    /// The types of the results.
    pub results: Vec<D::Type>,
    /// The body.
    pub entry: Block,
    /// Every value.
    pub values: PrimaryMap<Value, ValueData<D>>,
    /// Every instruction; those that are in no block are dead.
    pub insts: PrimaryMap<Inst, InstData<D>>,
    /// Every block.
    pub blocks: PrimaryMap<Block, BlockData>,
    /// Every source location.
    pub locations: PrimaryMap<Location, LocationData>,
    /// The schedule of the loops that are to be pipelined: the stage of each op of their bodies.
    pub schedule: FxHashMap<Inst, Stage>,
}

impl<D: Dialect> Function<D> {
    /// Returns a function with an empty body and no parameters.
    pub fn new(name: impl Into<String>) -> Self {
        let mut blocks = PrimaryMap::new();
        let entry = blocks.push(BlockData::default());
        Self {
            name: name.into(),
            span: None,
            parameters: Vec::new(),
            noinline: false,
            scaled_dot: None,
            results: Vec::new(),
            entry,
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            blocks,
            locations: PrimaryMap::new(),
            schedule: FxHashMap::default(),
        }
    }

    /// Returns the type of a value.
    pub fn ty(&self, value: Value) -> &D::Type {
        &self.values[value].ty
    }

    /// Returns the instruction with this result.
    pub fn defining_inst(&self, value: Value) -> Option<Inst> {
        match self.values[value].definition {
            Definition::Result(inst, _) => Some(inst),
            Definition::Parameter(..) => None,
        }
    }

    /// Returns the op with this result.
    pub fn defining_op(&self, value: Value) -> Option<&D::Op> {
        self.defining_inst(value).map(|inst| &self.insts[inst].op)
    }

    /// Returns the result of an instruction with exactly one result.
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

    /// Adds an instruction that is in no block yet.
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

    /// Returns the index of an instruction in a block, if it is in the block.
    pub fn position_in(&self, block: Block, inst: Inst) -> Option<usize> {
        self.blocks[block].insts.iter().position(|other| *other == inst)
    }

    /// Replaces values with others in the operands of all instructions, except those for which
    /// `is_excepted` returns true.
    pub fn replace_uses(&mut self, replaced: &FxHashMap<Value, Value>, is_excepted: impl Fn(Inst) -> bool) {
        for (inst, data) in &mut self.insts {
            if !is_excepted(inst) {
                data.replace_operands(replaced);
            }
        }
    }

    /// Turns a value that another instruction or a block has defined into result `index` of `inst`.
    pub fn redefine(&mut self, result: Value, inst: Inst, index: usize) {
        self.insts[inst].results[index] = result;
        self.values[result].definition = Definition::Result(inst, index as u32);
    }

    /// Copies the name of a value to another value.
    pub fn copy_name(&mut self, from: Value, to: Value) {
        self.values[to].name = self.values[from].name.clone();
    }

    /// Returns the terminator of a block, if it has one.
    pub fn terminator(&self, block: Block) -> Option<Inst> {
        self.blocks[block]
            .insts
            .last()
            .copied()
            .filter(|&inst| self.insts[inst].op.info().effect == Effect::Terminator)
    }

    /// Returns the operands of a block's terminator; none if the block has no terminator.
    pub fn yielded(&self, block: Block) -> &[Value] {
        self.terminator(block).map_or(&[], |inst| &self.insts[inst].operands)
    }

    /// Returns the types of the parameters of the body.
    pub fn parameter_types(&self) -> impl Iterator<Item = &D::Type> {
        self.blocks[self.entry].parameters.iter().map(|&value| self.ty(value))
    }

    /// Checks that values have these types. The error is one sentence that lists the types of the
    /// values and the expected types.
    pub fn check_types(&self, values: &[Value], types: &[D::Type], what: &str) -> Result<(), String> {
        let found: Vec<&D::Type> = values.iter().map(|&value| self.ty(value)).collect();
        if found == types.iter().collect::<Vec<_>>() {
            Ok(())
        } else {
            Err(format!("{what} are {found:?}, expected {types:?}"))
        }
    }

    /// Returns the values that a loop carries or a branch yields, in the order of its results.
    /// Other instructions have none.
    pub fn carried(&self, inst: Inst) -> impl Iterator<Item = Carried> + '_ {
        let numbers = 0..self.insts[inst].results.len();
        let places = self.carried_indices(inst);
        places
            .into_iter()
            .flat_map(move |places| numbers.clone().map(move |number| self.carried_at(inst, places, number)))
    }

    /// Returns the carried value of `inst` whose result or region parameter is `value`. Returns
    /// `None` if `value` is the index of a loop, or if `inst` is neither a loop nor a branch.
    /// `value` must be a result of `inst` or a parameter of its regions.
    pub fn carried_by(&self, inst: Inst, value: Value) -> Option<Carried> {
        let places = self.carried_indices(inst)?;
        let number = match self.values[value].definition {
            Definition::Result(_, number) => number as usize,
            // The index of a loop precedes the carried values.
            Definition::Parameter(_, number) => (number as usize).checked_sub(places.parameter)?,
        };
        Some(self.carried_at(inst, places, number))
    }

    /// Returns those regions of a loop that yield the loop's condition.
    pub fn conditions(&self, inst: Inst) -> &[Block] {
        let end = self.carried_indices(inst).map_or(0, |places| places.region);
        &self.insts[inst].regions[..end]
    }

    /// Removes the carried values for which `keep` is false, with their results, operands,
    /// parameters and yielded values.
    pub fn retain_carried(&mut self, inst: Inst, keep: impl Fn(&Carried) -> bool) {
        let Some(places) = self.carried_indices(inst) else { return };
        let keep: SmallVec<[bool; 8]> = self.carried(inst).map(|carried| keep(&carried)).collect();
        retain(&mut self.insts[inst].operands, places.operand, &keep);
        retain(&mut self.insts[inst].results, 0, &keep);
        for (index, &result) in self.insts[inst].results.iter().enumerate() {
            self.values[result].definition = Definition::Result(inst, index as u32);
        }
        for (number, region) in self.insts[inst].regions.clone().into_iter().enumerate() {
            retain(&mut self.blocks[region].parameters, places.parameter, &keep);
            for (index, &parameter) in self.blocks[region].parameters.iter().enumerate() {
                self.values[parameter].definition = Definition::Parameter(region, index as u32);
            }
            if number >= places.region
                && let Some(terminator) = self.terminator(region)
            {
                retain(&mut self.insts[terminator].operands, 0, &keep);
            }
        }
    }

    fn carried_indices(&self, inst: Inst) -> Option<CarriedIndices> {
        let data = &self.insts[inst];
        let region = match data.op.info().family {
            OpFamily::Loop => data.regions.len() - 1,
            OpFamily::Branch => 0,
            // tidy: wildcard because no other op carries values.
            _ => return None,
        };
        let parameters = data.regions.first().map_or(0, |region| self.blocks[*region].parameters.len());
        let parameter = parameters.saturating_sub(data.results.len());
        Some(CarriedIndices { operand: data.op.info().operands.len(), parameter, region })
    }

    fn carried_at(&self, inst: Inst, places: CarriedIndices, number: usize) -> Carried {
        let data = &self.insts[inst];
        let parameter =
            |region: &Block| self.blocks[*region].parameters.get(places.parameter + number).copied();
        let yielded = |region: &Block| self.yielded(*region).get(number).copied();
        Carried {
            initial: data.operands.get(places.operand + number).copied(),
            parameters: data.regions.iter().filter_map(parameter).collect(),
            yielded: data.regions[places.region..].iter().filter_map(yielded).collect(),
            result: data.results[number],
        }
    }

    /// Returns the span of an instruction and of the calls that it was inlined through, innermost
    /// first.
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

    /// Copies a region. For a value that is defined outside of the region, the copy uses the value
    /// itself.
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
            if let Some(stage) = self.schedule.get(&inst).copied() {
                self.schedule.insert(new, stage);
            }
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

    /// Visits every instruction in a block and its nested regions, outer before inner, in order.
    pub fn walk(&self, block: Block, each: &mut impl FnMut(Inst)) {
        for &inst in &self.blocks[block].insts {
            each(inst);
            for &region in &self.insts[inst].regions {
                self.walk(region, each);
            }
        }
    }
}

/// Retains the first `skipped` items, and each later item for which `keep` is not false.
fn retain<const N: usize>(items: &mut SmallVec<[Value; N]>, skipped: usize, keep: &[bool])
where
    [Value; N]: smallvec::Array<Item = Value>,
{
    let mut index = 0;
    items.retain(|_| {
        let kept = index < skipped || keep.get(index - skipped).copied().unwrap_or(true);
        index += 1;
        kept
    });
}

/// The functions of one compilation; the entry is the kernel.
#[derive(Clone, Debug)]
pub struct Module<D: Dialect = Tile> {
    /// The header.
    pub header: D::Header,
    /// The functions.
    pub functions: PrimaryMap<FuncId, Function<D>>,
    /// The kernel.
    pub entry: FuncId,
    /// The source that spans point into.
    pub sources: Arc<SourceMap>,
}

impl Module {
    /// Returns whether the program states layouts or operations of a GPU (Gluon). The compiler then
    /// chooses no layout of its own.
    pub fn states_layouts(&self) -> bool {
        self.functions.values().any(|function| {
            function.values.values().any(|value| value.ty.layout.is_some())
                || function
                    .insts
                    .values()
                    .any(|inst| matches!(inst.op, Op::Device { .. } | Op::StartWorkers { .. }))
        })
    }
}

impl<D: Dialect> Module<D> {
    /// Returns a module with the default header of its dialect.
    pub fn new(functions: PrimaryMap<FuncId, Function<D>>, entry: FuncId, sources: Arc<SourceMap>) -> Self {
        Self { header: D::Header::default(), functions, entry, sources }
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &Function<D> {
        &self.functions[self.entry]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPS: &str = r#"kernel func0 @k(%n: int32, %c: int1) {
  %a, %b = for_loop %n, %n, %n, %n, %n {options = "stages=0 unroll=0"} (%i: int32, %x: int32, %y: int32) {
    yield_values %y, %i
  } : int32, int32
  %d = while_loop %a (%v: int32) {
    yield_values %c
  } (%w: int32) {
    yield_values %b
  } : int32
  %e = if_else %c () {
    yield_values %d
  } () {
    yield_values %n
  } : int32
  return_values
}
"#;

    fn loops() -> Function {
        let module = crate::parse(LOOPS).expect("it is well-formed");
        module.kernel().clone()
    }

    /// Returns, for each carried value, the names of its initial value, parameters, yielded values
    /// and result.
    fn names(function: &Function, inst: Inst) -> Vec<String> {
        let name = |value: &Value| function.values[*value].name.as_deref().unwrap_or("?").to_owned();
        let list = |values: &[Value]| values.iter().map(name).collect::<String>();
        let carried = function.carried(inst);
        let line = |carried: Carried| {
            let before = list(carried.initial.as_slice());
            let (inside, next) = (list(&carried.parameters), list(&carried.yielded));
            format!("{before} {inside} {next} {}", name(&carried.result))
        };
        carried.map(line).collect()
    }

    #[test]
    fn what_is_carried() {
        let function = loops();
        let insts = &function.blocks[function.entry].insts;
        assert_eq!(names(&function, insts[0]), ["n x y a", "n y i b"]);
        assert_eq!(names(&function, insts[1]), ["a vw b d"]);
        assert_eq!(names(&function, insts[2]), ["  dn e"]);
        assert_eq!(names(&function, insts[3]), [""; 0]);
        assert_eq!(function.conditions(insts[0]), []);
        assert_eq!(function.conditions(insts[1]), [function.insts[insts[1]].regions[0]]);
    }

    #[test]
    fn it_is_found_by_its_results_and_parameters() {
        let function = loops();
        let inst = function.blocks[function.entry].insts[0];
        let data = &function.insts[inst];
        let parameters = &function.blocks[data.regions[0]].parameters;
        let by = |value| function.carried_by(inst, value).map(|carried| carried.result);
        assert_eq!(by(parameters[0]), None);
        assert_eq!(by(parameters[2]), Some(data.results[1]));
        assert_eq!(by(data.results[0]), Some(data.results[0]));
    }

    #[test]
    fn what_is_not_kept_is_gone_everywhere() {
        let mut function = loops();
        let inst = function.blocks[function.entry].insts[0];
        let [first, second] = function.insts[inst].results[..] else { panic!("it has two results") };
        function.retain_carried(inst, |carried| carried.result == second);
        assert_eq!(names(&function, inst), ["n y i b"]);
        assert_eq!(function.insts[inst].operands.len(), 4);
        assert_eq!(function.values[second].definition, Definition::Result(inst, 0));
        assert!(!function.insts[inst].results.contains(&first));
    }
}
