//! Lowering: from a module to the blocks of a program, with calls inlined.

use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::{
    Block as IrBlock, CacheModifier, Element, ElementwiseFn, EvictionPolicy, Failure, FuncId, Function,
    HintKind, InputPrecision, Inst, IntList, Literal, LoopOptions, Module, Op, OpVisitor, Rounding, Shape,
    Type, TypeList, Value, visit,
};

use crate::kernels::reduce::Combine;
use crate::program::{Action, Block, BlockId, How, Parameter, Program, Reduce, Slot, Step, TypeId, Use};
use crate::value::TileType;

/// Calls nested deeper than this are refused: only recursion nests so deeply.
const MAX_CALL_DEPTH: usize = 64;

/// More steps than this are refused: only calls that multiply make so many.
const MAX_STEPS: usize = 4_000_000;

/// Regions nested deeper than this are refused, so that the executor does not run out of stack.
const MAX_NESTING: usize = 256;

/// How often a loop is guessed to run.
const GUESSED_ITERATIONS: u64 = 8;

type Result<T = ()> = std::result::Result<T, Box<Diagnostic>>;

/// Lowers the kernel. Nothing is known yet of the last uses.
///
/// With `symbolic`, a tile that is known to be uniform is read from the slot of its scalar.
pub(crate) fn lower(module: &Module, symbolic: bool) -> Result<Program> {
    let kernel = module.kernel();
    let program = Program {
        name: kernel.name.clone(),
        parameters: Vec::new(),
        types: Vec::new(),
        slots: Vec::new(),
        blocks: vec![Block::default(), Block::default()],
        preamble: 0,
        body: 1,
        sites: Vec::new(),
        sources: module.sources.clone(),
        estimate: 0,
        measured: AtomicU64::new(0),
        symbolic,
    };
    let mut lowering = Lowering {
        module,
        program,
        function: kernel,
        slots: FxHashMap::default(),
        types: FxHashMap::default(),
        chain: SmallVec::new(),
        block: 1,
        depth: 0,
        nesting: 0,
        steps: 0,
        weight: 1,
        tile: None,
    };
    for (index, &value) in kernel.blocks[kernel.entry].parameters.iter().enumerate() {
        let slot = lowering.define(value, true);
        let name = kernel.parameters[index].name.clone();
        lowering.program.parameters.push(Parameter { name, slot });
    }
    lowering.insts(kernel.entry)?;
    Ok(lowering.program)
}

/// Where a value is.
#[derive(Clone, Copy)]
struct Known {
    slot: Slot,
    /// Whether all elements are known to be the same, so that the slot may be shared with the scalar.
    uniform: bool,
}

struct Lowering<'a> {
    module: &'a Module,
    program: Program,
    /// The function that is being lowered, the slots of its values, and the calls that led to it.
    function: &'a Function,
    slots: FxHashMap<Value, Known>,
    types: FxHashMap<Type, TypeId>,
    chain: SmallVec<[Span; 2]>,
    /// Where steps go.
    block: BlockId,
    depth: usize,
    nesting: usize,
    steps: usize,
    /// How often the current block is guessed to run per program.
    weight: u64,
    /// In the combine region of a reduction by whole tiles: the shape that stands for a scalar.
    tile: Option<Shape>,
}

impl Lowering<'_> {
    /// The type of a value, as it is at run time.
    fn ty(&mut self, value: Value) -> TypeId {
        let mut ty = self.function.ty(value).clone();
        // What is defined outside of a region by whole tiles stays a scalar; it is uniform, so that its shape is not read.
        if let Some(shape) = &self.tile {
            ty.shape = shape.clone();
        }
        let types = &mut self.program.types;
        *self.types.entry(ty).or_insert_with_key(|ty| {
            types.push(TileType::new(ty));
            types.len() as TypeId - 1
        })
    }

    /// The slot of a value that is being defined.
    fn define(&mut self, value: Value, uniform: bool) -> Slot {
        let ty = self.ty(value);
        let slot = self.program.slots.len() as Slot;
        self.program.slots.push(ty);
        self.slots.insert(value, Known { slot, uniform });
        slot
    }

    fn uses(&mut self, values: &[Value]) -> SmallVec<[Use; 4]> {
        values
            .iter()
            .map(|&value| Use { slot: self.slots[&value].slot, ty: self.ty(value), last: false })
            .collect()
    }

    /// Whether values are scalars or known to be uniform.
    fn are_uniform(&self, values: &[Value]) -> bool {
        self.tile.is_none() && values.iter().all(|value| self.slots[value].uniform)
    }

    /// Adds the step of an op that only moves elements: there is nothing to do if they are all the same.
    fn moving(&mut self, inst: Inst, from: Value, action: Action) -> Result {
        if self.program.symbolic && self.are_uniform(&[from]) {
            let slot = self.slots[&from].slot;
            self.alias(inst, &[Known { slot, uniform: true }]);
            return Ok(());
        }
        self.step(inst, action)
    }

    /// Adds the step of an instruction whose operands are read in order.
    fn step(&mut self, inst: Inst, action: Action) -> Result {
        let operands = self.uses(&self.function.insts[inst].operands);
        self.step_with(inst, action, operands)
    }

    fn step_with(&mut self, inst: Inst, action: Action, operands: SmallVec<[Use; 4]>) -> Result {
        let chain = self.call_chain(inst);
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(too_large(&chain));
        }
        let function = self.function;
        let is_elementwise =
            matches!(action, Action::Elementwise(_) | Action::Cast(_) | Action::Bitcast | Action::PtrAdd);
        let data = &function.insts[inst];
        let all_uniform = is_elementwise && self.are_uniform(&data.operands);
        let mut results: SmallVec<[Slot; 1]> = SmallVec::new();
        for &value in &data.results {
            let uniform = all_uniform || function.ty(value).is_scalar();
            results.push(self.define(value, uniform));
        }
        self.program.estimate = self
            .program
            .estimate
            .saturating_add(self.weight.saturating_mul(self.cost(&action, &operands, &results)));
        if self.program.sites.last() != Some(&chain) {
            self.program.sites.push(chain);
        }
        let site = self.program.sites.len() as u32 - 1;
        let step = Step { action, operands, results, kills: SmallVec::new(), site };
        self.program.blocks[self.block as usize].steps.push(step);
        Ok(())
    }

    /// The place of an instruction and the calls that led there, innermost first.
    fn call_chain(&self, inst: Inst) -> SmallVec<[Span; 2]> {
        self.function.call_chain(inst).into_iter().chain(self.chain.iter().copied()).collect()
    }

    /// A guess of the nanoseconds that a step takes.
    fn cost(&self, action: &Action, operands: &[Use], results: &[Slot]) -> u64 {
        let types = results.iter().map(|&slot| self.program.ty(slot));
        let types = types.chain(operands.iter().map(|operand| &self.program.types[operand.ty as usize]));
        let elements = types.map(|ty| ty.elements() as u64).max().unwrap_or(1);
        match action {
            Action::Dot(transposed) => {
                let a = self.program.types[operands[0].ty as usize].shape();
                let k = a[a.len() - 1 - usize::from(transposed[0])];
                self.program.ty(results[0]).elements() as u64 * u64::from(k) / 16
            }
            Action::Elementwise(_)
            | Action::Cast(_)
            | Action::Reduce(_)
            | Action::Load(_)
            | Action::Store => 10 + elements / 8,
            _ => 10,
        }
    }

    /// Lowers the instructions of a block and gives its terminator's operands.
    fn insts(&mut self, block: IrBlock) -> Result<SmallVec<[Use; 4]>> {
        let function = self.function;
        for &inst in &function.blocks[block].insts {
            visit(function, inst, self)?;
        }
        Ok(self.uses(function.yielded(block)))
    }

    /// Lowers a region to a block of its own.
    fn region(&mut self, region: IrBlock) -> Result<BlockId> {
        let id = self.program.blocks.len() as BlockId;
        self.program.blocks.push(Block::default());
        let outer = std::mem::replace(&mut self.block, id);
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(too_large(&self.chain));
        }
        let function = self.function;
        let mut parameters: SmallVec<[Slot; 4]> = SmallVec::new();
        for &value in &function.blocks[region].parameters {
            parameters.push(self.define(value, function.ty(value).is_scalar()));
        }
        let yields = self.insts(region)?;
        let block = &mut self.program.blocks[id as usize];
        (block.parameters, block.yields) = (parameters, yields);
        self.block = outer;
        self.nesting -= 1;
        Ok(id)
    }

    /// Lowers a region that is guessed to run several times.
    fn repeated(&mut self, region: IrBlock) -> Result<BlockId> {
        let outer = self.weight;
        self.weight = outer.saturating_mul(GUESSED_ITERATIONS);
        let block = self.region(region);
        self.weight = outer;
        block
    }

    /// Makes a value stand for another.
    fn alias(&mut self, inst: Inst, values: &[Known]) {
        for (&result, &known) in self.function.insts[inst].results.iter().zip(values) {
            self.slots.insert(result, known);
        }
    }

    /// The function of a combine region that is one op of the table on its two parameters.
    fn combine(&self, region: IrBlock) -> Option<Combine> {
        let data = &self.function.blocks[region];
        let [inst, _] = data.insts[..] else { return None };
        let inst = &self.function.insts[inst];
        let Op::Elementwise { function } = inst.op else { return None };
        let [left, right] = data.parameters[..] else { return None };
        let is_plain = inst.operands[..] == [left, right] || inst.operands[..] == [right, left];
        if !is_plain || self.function.yielded(region) != &inst.results[..] {
            return None;
        }
        combine_of(function)
    }

    /// Whether a block has control flow in it or calls.
    fn has_control(&self, region: IrBlock) -> bool {
        let function = self.function;
        function.blocks[region].insts.iter().any(|&inst| match &function.insts[inst].op {
            Op::Call { callee, .. } => self.callee_has_control(*callee, 0),
            // tidy: wildcard because the effect of the row and the regions decide.
            op => !op.is_pure() && !op.is_terminator() || !function.insts[inst].regions.is_empty(),
        })
    }

    fn callee_has_control(&self, callee: FuncId, depth: usize) -> bool {
        let function = &self.module.functions[callee];
        depth > MAX_CALL_DEPTH
            || function.blocks[function.entry].insts.iter().any(|&inst| match &function.insts[inst].op {
                Op::Call { callee, .. } => self.callee_has_control(*callee, depth + 1),
                // tidy: wildcard because the effect of the row and the regions decide.
                op => !op.is_pure() && !op.is_terminator() || !function.insts[inst].regions.is_empty(),
            })
    }

    fn how(&mut self, region: IrBlock, tiles: &[Value], axis: usize) -> Result<How> {
        if let Some(combine) = self.combine(region) {
            let is_bitwise = matches!(combine, Combine::And | Combine::Or | Combine::Xor);
            let dtype = self.function.ty(tiles[0]).dtype();
            if dtype.is_some_and(|dtype| !dtype.is_float() || !is_bitwise) {
                return Ok(How::Kernel(combine));
            }
        }
        // A reduction inside of a combine region has tiles in place of scalars already.
        if self.has_control(region) || self.tile.is_some() {
            return Ok(How::Elements(self.repeated(region)?));
        }
        let ty = self.function.ty(tiles[0]);
        let rest = ty.shape.elements() / (ty.shape[axis].max(1) as usize);
        let mut extent = ty.shape[axis] as usize;
        let mut levels = Vec::new();
        while extent > 1 {
            self.tile = Some(Shape::from([(rest * (extent / 2)) as u32]));
            let level = self.region(region);
            self.tile = None;
            levels.push(level?);
            extent = extent.div_ceil(2);
        }
        Ok(How::Tiles(levels))
    }

    /// An operand of dot, and whether it is to be transposed: a transposition is not carried out for it.
    fn dot_operand(&self, value: Value) -> (Value, bool) {
        let Some(inst) = self.function.defining_inst(value) else { return (value, false) };
        let inst = &self.function.insts[inst];
        let swaps = match &inst.op {
            Op::Transpose { permutation } => matches!(permutation[..], [1, 0] | [0, 2, 1]),
            // tidy: wildcard because only a transposition swaps axes.
            _ => false,
        };
        if swaps { (inst.operands[0], true) } else { (value, false) }
    }
}

fn combine_of(function: ElementwiseFn) -> Option<Combine> {
    use ElementwiseFn as F;
    Some(match function {
        F::Add => Combine::Sum,
        F::Mul => Combine::Product,
        F::Min => Combine::Min,
        F::Max => Combine::Max,
        F::MinNan => Combine::MinNan,
        F::MaxNan => Combine::MaxNan,
        F::And => Combine::And,
        F::Or => Combine::Or,
        F::Xor => Combine::Xor,
        // tidy: wildcard because the region of any other combination is run step by step.
        _ => return None,
    })
}

fn too_large(chain: &[Span]) -> Box<Diagnostic> {
    let diagnostic = Diagnostic::new(Code::TooLarge, "the program is too large once its calls are inlined");
    Box::new(match chain.first() {
        Some(&span) => diagnostic.primary(span, ""),
        None => diagnostic,
    })
}

impl OpVisitor for Lowering<'_> {
    type Output = Result;

    fn constant(&mut self, inst: Inst, value: &Literal) -> Result {
        self.step(inst, Action::Constant(value.bits))
    }

    fn program_id(&mut self, inst: Inst, axis: &u8) -> Result {
        self.step(inst, Action::ProgramId(*axis))
    }

    fn num_programs(&mut self, inst: Inst, axis: &u8) -> Result {
        self.step(inst, Action::NumPrograms(*axis))
    }

    fn arange(&mut self, inst: Inst, start: &i64, _end: &i64) -> Result {
        self.step(inst, Action::Arange(*start))
    }

    fn splat(&mut self, inst: Inst, scalar: Value, _shape: &Shape) -> Result {
        self.moving(inst, scalar, Action::Splat)
    }

    fn expand_dims(&mut self, inst: Inst, tile: Value, axis: &u32) -> Result {
        self.moving(inst, tile, Action::ExpandDims(*axis))
    }

    fn broadcast(&mut self, inst: Inst, tile: Value, _shape: &Shape) -> Result {
        self.moving(inst, tile, Action::Broadcast)
    }

    fn reshape(&mut self, inst: Inst, tile: Value, _shape: &Shape) -> Result {
        self.moving(inst, tile, Action::Reshape)
    }

    fn transpose(&mut self, inst: Inst, tile: Value, permutation: &IntList) -> Result {
        self.moving(inst, tile, Action::Transpose(permutation.clone()))
    }

    fn elementwise(&mut self, inst: Inst, _operands: &[Value], function: &ElementwiseFn) -> Result {
        self.step(inst, Action::Elementwise(*function))
    }

    fn cast(&mut self, inst: Inst, _value: Value, _element: &Element, rounding: &Rounding) -> Result {
        self.step(inst, Action::Cast(*rounding))
    }

    fn bitcast(&mut self, inst: Inst, _value: Value, _element: &Element) -> Result {
        self.step(inst, Action::Bitcast)
    }

    fn ptr_add(&mut self, inst: Inst, _pointer: Value, _offset: Value) -> Result {
        self.step(inst, Action::PtrAdd)
    }

    fn load(
        &mut self,
        inst: Inst,
        _pointer: Value,
        _mask: Option<Value>,
        _other: Option<Value>,
        _cache: &CacheModifier,
        _eviction: &EvictionPolicy,
        volatile: &bool,
    ) -> Result {
        self.step(inst, Action::Load(*volatile))
    }

    fn store(
        &mut self,
        inst: Inst,
        _pointer: Value,
        _value: Value,
        _mask: Option<Value>,
        _cache: &CacheModifier,
        _eviction: &EvictionPolicy,
    ) -> Result {
        self.step(inst, Action::Store)
    }

    fn dot(
        &mut self,
        inst: Inst,
        a: Value,
        b: Value,
        acc: Value,
        _precision: &InputPrecision,
        _max_imprecise_acc: &u32,
    ) -> Result {
        let ((a, transpose_a), (b, transpose_b)) = (self.dot_operand(a), self.dot_operand(b));
        let operands = self.uses(&[a, b, acc]);
        self.step_with(inst, Action::Dot([transpose_a, transpose_b]), operands)
    }

    fn reduce(&mut self, inst: Inst, tiles: &[Value], axis: &u32) -> Result {
        let region = self.function.insts[inst].regions[0];
        let axis = *axis as usize;
        let how = self.how(region, tiles, axis)?;
        self.step(inst, Action::Reduce(Box::new(Reduce { axis, how })))
    }

    /// A promise is nothing to do; the value is the value.
    fn hint(&mut self, inst: Inst, value: Value, _kind: &HintKind, _values: &IntList) -> Result {
        let known = self.slots[&value];
        self.alias(inst, &[known]);
        Ok(())
    }

    /// One thread has all elements.
    fn relayout(&mut self, inst: Inst, tile: Value) -> Result {
        let known = self.slots[&tile];
        self.alias(inst, &[known]);
        Ok(())
    }

    /// A promise is nothing to do.
    fn assume(&mut self, _inst: Inst, _condition: Value) -> Result {
        Ok(())
    }

    /// A program runs on one thread, which has come here.
    fn barrier(&mut self, _inst: Inst) -> Result {
        Ok(())
    }

    fn assert(&mut self, inst: Inst, _condition: Value, _mask: Option<Value>, failure: &Failure) -> Result {
        self.step(inst, Action::Assert(failure.clone()))
    }

    /// Lowers the body of the callee in place.
    fn call(&mut self, inst: Inst, arguments: &[Value], callee: &FuncId, _results: &TypeList) -> Result {
        let chain = self.call_chain(inst);
        if self.depth >= MAX_CALL_DEPTH {
            return Err(too_large(&chain));
        }
        let callee = &self.module.functions[*callee];
        let parameters = callee.blocks[callee.entry].parameters.iter().copied();
        let slots = parameters.zip(arguments.iter().map(|value| self.slots[value])).collect();
        self.depth += 1;
        let outer = std::mem::replace(&mut self.function, callee);
        let outer_slots = std::mem::replace(&mut self.slots, slots);
        let outer_chain = std::mem::replace(&mut self.chain, chain);
        let returned = self.insts(callee.entry).map(|_| {
            let values = callee.yielded(callee.entry).iter();
            values.map(|value| self.slots[value]).collect::<SmallVec<[Known; 4]>>()
        });
        self.depth -= 1;
        (self.function, self.slots, self.chain) = (outer, outer_slots, outer_chain);
        self.alias(inst, &returned?);
        Ok(())
    }

    fn for_loop(
        &mut self,
        inst: Inst,
        _lower: Value,
        _upper: Value,
        _step: Value,
        _carried: &[Value],
        _options: &LoopOptions,
    ) -> Result {
        let body = self.repeated(self.function.insts[inst].regions[0])?;
        self.step(inst, Action::For(body))
    }

    fn while_loop(&mut self, inst: Inst, _carried: &[Value]) -> Result {
        let condition = self.repeated(self.function.insts[inst].regions[0])?;
        let body = self.repeated(self.function.insts[inst].regions[1])?;
        self.step(inst, Action::While(condition, body))
    }

    fn if_else(&mut self, inst: Inst, _condition: Value) -> Result {
        let then = self.region(self.function.insts[inst].regions[0])?;
        let otherwise = self.region(self.function.insts[inst].regions[1])?;
        self.step(inst, Action::If(then, otherwise))
    }

    /// The values that a region yields are those of its block.
    fn yield_values(&mut self, _inst: Inst, _values: &[Value]) -> Result {
        Ok(())
    }

    /// The results of the kernel are nobody's; those of a callee are the caller's.
    fn return_values(&mut self, _inst: Inst, _values: &[Value]) -> Result {
        Ok(())
    }
}
