//! Translates a module to the blocks of a program, and inlines calls.
//!
//! An op becomes one step with the same op, unless [`Lowering::inst`] has another case for it.

use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::{
    Block as IrBlock, Dtype, Element, ElementwiseFn, FuncId, Function, Inst, InstData, Module, Op, OpFamily,
    Shape, Type, Value, Wait, loop_may_wait, may_wait,
};

use crate::assembly::{Assembler, AssemblyCode, AssemblyError};
use crate::program::combine::later_elements;
use crate::program::{
    Action, Block, BlockId, Combine, InlineAssembly, Parameter, Program, Slot, Step, Strategy, TypeId, Use,
};
use crate::tuning::ASSUMED_TRIP_COUNT;
use crate::types::TileType;

const MAX_CALL_DEPTH: usize = 64;

/// The maximum number of steps. Only nested calls exceed it in practice: each level multiplies the
/// inlined copies.
const MAX_STEPS: usize = 4_000_000;

/// The maximum nesting of regions. It bounds the stack of the executor.
const MAX_NESTING: usize = 256;

type Result<T = ()> = std::result::Result<T, Box<Diagnostic>>;

/// Lowers the kernel. With `symbolic`, a uniform tile shares the slot of its scalar.
pub(crate) fn lower(module: &Module, symbolic: bool, assembler: Option<&dyn Assembler>) -> Result<Program> {
    lower_with(module, symbolic, assembler, false)
}

/// Lowers the kernel for sanitized launches, with a step for each barrier and each hint. Omits the
/// hints in regions that compute on whole tiles.
pub(crate) fn lower_whole(module: &Module, assembler: Option<&dyn Assembler>) -> Result<Program> {
    lower_with(module, true, assembler, true)
}

fn lower_with(
    module: &Module,
    symbolic: bool,
    assembler: Option<&dyn Assembler>,
    is_whole: bool,
) -> Result<Program> {
    let kernel = module.kernel();
    let program = Program {
        name: kernel.name.clone(),
        parameters: Vec::new(),
        types: Vec::new(),
        slots: Vec::new(),
        blocks: vec![Block::default(), Block::default()],
        in_place: Vec::new(),
        written: None,
        preamble: 0,
        body: 1,
        sites: Vec::new(),
        sources: module.sources.clone(),
        estimate: 0,
        measured: AtomicU64::new(0),
        waits: may_wait(module) == Wait::Likely,
        waiting_loops: Vec::new(),
        symbolic,
    };
    let mut lowering = Lowering {
        module,
        assembler,
        is_whole,
        program,
        function: kernel,
        slots: FxHashMap::default(),
        types: FxHashMap::default(),
        callers: SmallVec::new(),
        block: 1,
        depth: 0,
        nesting: 0,
        steps: 0,
        weight: 1,
        tile: None,
    };
    for (index, &value) in kernel.blocks[kernel.entry].parameters.iter().enumerate() {
        // A kernel has scalar parameters. A program for [`Program::evaluate`] may also have tiles.
        let slot = lowering.define(value, kernel.ty(value).is_scalar());
        let name = kernel.parameters[index].name.clone();
        lowering.program.parameters.push(Parameter { name, slot });
    }
    let results = lowering.insts(kernel.entry)?;
    lowering.program.blocks[lowering.program.body as usize].yields = results;
    Ok(lowering.program)
}

#[derive(Clone, Copy)]
struct Location {
    slot: Slot,
    /// True if all elements are equal. The value may then share the slot of the scalar.
    uniform: bool,
}

/// An operand of a dot.
struct DotOperand {
    value: Value,
    /// True if the dot swaps its last two axes.
    is_transposed: bool,
    /// The wider float type to which the dot casts the elements.
    cast: Option<Dtype>,
}

struct Lowering<'a> {
    module: &'a Module,
    assembler: Option<&'a dyn Assembler>,
    /// True if barriers and hints become steps.
    is_whole: bool,
    program: Program,
    function: &'a Function,
    slots: FxHashMap<Value, Location>,
    /// The index in [`Program::types`] of each type so far.
    types: FxHashMap<Type, TypeId>,
    /// The call sites through which `function` is inlined, innermost first.
    callers: SmallVec<[Span; 2]>,
    /// The block to which steps are appended.
    block: BlockId,
    /// The number of calls around the current instruction, and the number of regions.
    depth: usize,
    nesting: usize,
    steps: usize,
    /// The estimated number of executions of the current block in one program of the grid.
    weight: u64,
    /// The shape of each value, in a region that computes on whole tiles (see [`Strategy::Tree`]).
    tile: Option<Shape>,
}

impl Lowering<'_> {
    /// Returns the type that a value has at run time.
    fn ty(&mut self, value: Value) -> TypeId {
        let mut ty = self.function.ty(value).clone();
        // A scalar from outside of the region also gets the shape of the tiles. It is uniform, so
        // no step reads its shape.
        if let Some(shape) = &self.tile {
            ty.shape = shape.clone();
        }
        let types = &mut self.program.types;
        *self.types.entry(ty).or_insert_with_key(|ty| {
            types.push(TileType::new(ty));
            types.len() as TypeId - 1
        })
    }

    /// Allocates the slot of a value.
    fn define(&mut self, value: Value, uniform: bool) -> Slot {
        let ty = self.ty(value);
        let slot = self.program.slots.len() as Slot;
        self.program.slots.push(ty);
        self.slots.insert(value, Location { slot, uniform });
        slot
    }

    fn uses(&mut self, values: &[Value]) -> SmallVec<[Use; 4]> {
        values
            .iter()
            .map(|&value| Use { slot: self.slots[&value].slot, ty: self.ty(value), last: false })
            .collect()
    }

    /// Returns whether all values are scalars or known to be uniform.
    fn are_uniform(&self, values: &[Value]) -> bool {
        self.tile.is_none() && values.iter().all(|value| self.slots[value].uniform)
    }

    fn inst(&mut self, inst: Inst) -> Result {
        let function = self.function;
        let data = &function.insts[inst];
        match &data.op {
            op @ (Op::Hint { .. } | Op::Barrier { .. }) if self.is_whole && self.tile.is_none() => {
                let operands = self.uses(&data.operands);
                self.step(inst, Action::Op(op.clone()), operands, SmallVec::new())
            }
            // The result of a hint is its operand.
            Op::Hint { .. } => {
                let location = self.slots[&data.operands[0]];
                self.alias(inst, &[location]);
                Ok(())
            }
            // `assume` has no effect. A program runs on one thread and needs no barrier. `insts`
            // reads the operands of terminators.
            Op::Assume { .. } | Op::Barrier { .. } | Op::Yield { .. } | Op::Return { .. } => Ok(()),
            Op::Call { callee, .. } => self.inline(inst, *callee),
            Op::Splat { .. }
            | Op::ExpandDims { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
                if self.program.symbolic && self.are_uniform(&data.operands) =>
            {
                // Moving the elements of a uniform tile does not change the tile.
                let slot = self.slots[&data.operands[0]].slot;
                self.alias(inst, &[Location { slot, uniform: true }]);
                Ok(())
            }
            Op::Dot { .. } => {
                let [a, b] = [0, 1].map(|index| self.dot_operand(data.operands[index]));
                let operands = self.uses(&[a.value, b.value, data.operands[2]]);
                let transposed = [a.is_transposed, b.is_transposed];
                let casts = [a.cast, b.cast];
                self.step(inst, Action::Dot { transposed, casts }, operands, SmallVec::new())
            }
            Op::DotScaled { .. } => Err(refused_dot(&self.call_chain(inst))),
            Op::Reduce { axis } => {
                let axis = *axis as usize;
                let (strategy, blocks) = self.reduction(data, axis)?;
                let operands = self.uses(&data.operands);
                self.step(inst, Action::Reduce { axis, strategy, code: None }, operands, blocks)
            }
            Op::InlineAsm { text, constraints, dtypes, pack }
            | Op::VolatileAsm { text, constraints, dtypes, pack } => {
                let arguments: Vec<Element> =
                    data.operands.iter().map(|value| function.ty(*value).element).collect();
                let (results, pack) = (&dtypes.0[..], *pack);
                let code = AssemblyCode { text, constraints, results, arguments: &arguments, pack };
                let nothing = || Err(AssemblyError::Unknown("no assembler is configured".into()));
                let assembled = self.assembler.map_or_else(nothing, |assembler| assembler.assemble(&code));
                let code = assembled.map_err(|error| refused_assembly(&self.call_chain(inst), error))?;
                let assembly = InlineAssembly { code, pack, is_pure: data.op.is_pure() };
                let operands = self.uses(&data.operands);
                self.step(inst, Action::Assembly(assembly), operands, SmallVec::new())
            }
            Op::Map { pack } => {
                let pack = *pack as usize;
                let (strategy, blocks) = self.map(data, pack)?;
                let operands = self.uses(&data.operands);
                self.step(inst, Action::Map { pack, strategy }, operands, blocks)
            }
            Op::Scan { axis, reverse } => {
                let (axis, reverse) = (*axis as usize, *reverse);
                let (strategy, blocks) = self.scan(data, axis)?;
                let operands = self.uses(&data.operands);
                self.step(inst, Action::Scan { axis, reverse, strategy }, operands, blocks)
            }
            // tidy: wildcard because any other op is executed without specialization.
            op => {
                let is_loop = !matches!(op, Op::If { .. });
                let mut blocks = SmallVec::new();
                for &region in &data.regions {
                    blocks.push(if is_loop { self.loop_region(region)? } else { self.region(region)? });
                }
                let waits = || loop_may_wait(self.module, function, inst) == Wait::Likely;
                if matches!(op, Op::While {}) && waits() {
                    self.program.waiting_loops.extend(blocks.first());
                }
                let operands = self.uses(&data.operands);
                self.step(inst, Action::Op(op.clone()), operands, blocks)
            }
        }
    }

    fn step(
        &mut self,
        inst: Inst,
        action: Action,
        operands: SmallVec<[Use; 4]>,
        blocks: SmallVec<[BlockId; 2]>,
    ) -> Result {
        let callers = self.call_chain(inst);
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(too_large(&callers));
        }
        let function = self.function;
        let data = &function.insts[inst];
        let is_elementwise = matches!(
            data.op,
            Op::Elementwise { .. } | Op::Cast { .. } | Op::Bitcast { .. } | Op::PtrAdd { .. }
        );
        let all_uniform = is_elementwise && self.are_uniform(&data.operands);
        let mut results: SmallVec<[Slot; 1]> = SmallVec::new();
        for &value in &data.results {
            let uniform = all_uniform || function.ty(value).is_scalar();
            results.push(self.define(value, uniform));
        }
        let cost = self.cost(&action, &operands, &results);
        self.program.estimate = self.program.estimate.saturating_add(self.weight.saturating_mul(cost));
        if self.program.sites.last() != Some(&callers) {
            self.program.sites.push(callers);
        }
        let site = self.program.sites.len() as u32 - 1;
        let step = Step { action, operands, results, blocks, kills: SmallVec::new(), site };
        self.program.blocks[self.block as usize].steps.push(step);
        Ok(())
    }

    fn call_chain(&self, inst: Inst) -> SmallVec<[Span; 2]> {
        self.function.call_chain(inst).into_iter().chain(self.callers.iter().copied()).collect()
    }

    /// Estimates the time of one execution of a step, in nanoseconds.
    fn cost(&self, action: &Action, operands: &[Use], results: &[Slot]) -> u64 {
        let types = results.iter().map(|&slot| self.program.ty(slot));
        let types = types.chain(operands.iter().map(|operand| &self.program.types[operand.ty as usize]));
        let elements = types.map(|ty| ty.elements() as u64).max().unwrap_or(1);
        match action {
            Action::Dot { transposed, .. } => {
                let a = self.program.types[operands[0].ty as usize].shape();
                let k = a[a.len() - 1 - usize::from(transposed[0])];
                self.program.ty(results[0]).elements() as u64 * u64::from(k) / 16
            }
            Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Op(Op::Elementwise { .. } | Op::Cast { .. } | Op::Load { .. } | Op::Store { .. }) => {
                10 + elements / 8
            }
            Action::Op(Op::Bitonic { high, low, .. }) => 10 + elements * u64::from(high - low + 1) / 4,
            Action::Op(op)
                if matches!(op.family(), OpFamily::Movement | OpFamily::Scan | OpFamily::Reduction) =>
            {
                10 + elements
            }
            Action::Map { .. } => 10 + 100 * elements,
            Action::Assembly(_) => 10_000 + 100 * elements,
            Action::Op(_) | Action::Sort(_) | Action::Fused(_) | Action::Nest(_) => 10,
        }
    }

    fn insts(&mut self, block: IrBlock) -> Result<SmallVec<[Use; 4]>> {
        let function = self.function;
        for &inst in &function.blocks[block].insts {
            self.inst(inst)?;
        }
        Ok(self.uses(function.yielded(block)))
    }

    fn region(&mut self, region: IrBlock) -> Result<BlockId> {
        let id = self.program.blocks.len() as BlockId;
        self.program.blocks.push(Block::default());
        let outer = std::mem::replace(&mut self.block, id);
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(too_large(&self.callers));
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

    /// Lowers a region that may run several times.
    fn loop_region(&mut self, region: IrBlock) -> Result<BlockId> {
        let outer = self.weight;
        self.weight = outer.saturating_mul(ASSUMED_TRIP_COUNT);
        let block = self.region(region);
        self.weight = outer;
        block
    }

    /// Makes the results of an instruction share the slots of other values.
    fn alias(&mut self, inst: Inst, values: &[Location]) {
        for (&result, &location) in self.function.insts[inst].results.iter().zip(values) {
            self.slots.insert(result, location);
        }
    }

    /// Lowers the body of the callee in place of a call.
    fn inline(&mut self, inst: Inst, callee: FuncId) -> Result {
        let callers = self.call_chain(inst);
        if self.depth >= MAX_CALL_DEPTH {
            return Err(too_large(&callers));
        }
        let arguments = &self.function.insts[inst].operands;
        let callee = &self.module.functions[callee];
        let parameters = callee.blocks[callee.entry].parameters.iter().copied();
        let slots = parameters.zip(arguments.iter().map(|value| self.slots[value])).collect();
        self.depth += 1;
        let outer = std::mem::replace(&mut self.function, callee);
        let outer_slots = std::mem::replace(&mut self.slots, slots);
        let outer_callers = std::mem::replace(&mut self.callers, callers);
        let returned = self.insts(callee.entry).map(|_| {
            let values = callee.yielded(callee.entry).iter();
            values.map(|value| self.slots[value]).collect::<SmallVec<[Location; 4]>>()
        });
        self.depth -= 1;
        (self.function, self.slots, self.callers) = (outer, outer_slots, outer_callers);
        self.alias(inst, &returned?);
        Ok(())
    }

    /// Returns the combine function of a region, if the region only applies one elementwise
    /// function to its two parameters.
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

    /// Returns whether a block, or a callee, has an op with regions or an impure op. Also returns
    /// true if calls are nested too deeply.
    fn has_control(&self, function: &Function, block: IrBlock, depth: usize) -> bool {
        depth > MAX_CALL_DEPTH
            || function.blocks[block].insts.iter().any(|&inst| match &function.insts[inst].op {
                Op::Call { callee, .. } => {
                    let callee = &self.module.functions[*callee];
                    self.has_control(callee, callee.entry, depth + 1)
                }
                // tidy: wildcard because the effect and the regions of the op decide.
                op => !op.is_pure() && !op.is_terminator() || !function.insts[inst].regions.is_empty(),
            })
    }

    /// Returns the strategy of a reduction along an axis, and the blocks of its combine region.
    fn reduction(&mut self, data: &InstData, axis: usize) -> Result<(Strategy, SmallVec<[BlockId; 2]>)> {
        let region = data.regions[0];
        let ty = self.function.ty(data.operands[0]);
        if let Some(combine) = self.combine(region) {
            let is_bitwise = matches!(combine, Combine::And | Combine::Or | Combine::Xor);
            if ty.dtype().is_some_and(|dtype| !dtype.is_float() || !is_bitwise) {
                return Ok((Strategy::Kernel(combine), SmallVec::new()));
            }
        }
        // In a region that computes on whole tiles, the region of a nested reduction computes
        // element by element.
        if self.has_control(self.function, region, 0) || self.tile.is_some() {
            return Ok((Strategy::Sequential, SmallVec::from_slice(&[self.loop_region(region)?])));
        }
        let rest = ty.shape.elements() / (ty.shape[axis].max(1) as usize);
        let mut extent = ty.shape[axis] as usize;
        let mut levels = SmallVec::new();
        while extent > 1 {
            self.tile = Some(Shape::from([(rest * (extent / 2)) as u32]));
            let level = self.region(region);
            self.tile = None;
            levels.push(level?);
            extent = extent.div_ceil(2);
        }
        Ok((Strategy::Tree, levels))
    }

    /// Returns the strategy of a scan along an axis, and the blocks of its combine region.
    fn scan(&mut self, data: &InstData, axis: usize) -> Result<(Strategy, SmallVec<[BlockId; 2]>)> {
        let region = data.regions[0];
        let ty = self.function.ty(data.operands[0]);
        if let Some(combine) = self.combine(region)
            && ty.dtype().is_some_and(|dtype| combine.can_scan(dtype))
        {
            return Ok((Strategy::Kernel(combine), SmallVec::new()));
        }
        if self.has_control(self.function, region, 0) || self.tile.is_some() {
            return Ok((Strategy::Sequential, SmallVec::from_slice(&[self.loop_region(region)?])));
        }
        let n = ty.shape[axis] as usize;
        let rest = ty.shape.elements() / n.max(1);
        let mut levels = SmallVec::new();
        for level in 0..n.next_power_of_two().ilog2() as usize {
            self.tile = Some(Shape::from([(rest * later_elements(n, level)) as u32]));
            let block = self.region(region);
            self.tile = None;
            levels.push(block?);
        }
        Ok((Strategy::Tree, levels))
    }

    /// Returns the strategy of a `map`, and the block of its region. The block takes whole tiles if
    /// `pack` is 1, no region around the `map` does so, and [`Self::has_control`] is false.
    /// Otherwise, it takes `pack` elements of each tile.
    fn map(&mut self, data: &InstData, pack: usize) -> Result<(Strategy, SmallVec<[BlockId; 2]>)> {
        let region = data.regions[0];
        if pack > 1 || self.has_control(self.function, region, 0) || self.tile.is_some() {
            return Ok((Strategy::Sequential, SmallVec::from_slice(&[self.loop_region(region)?])));
        }
        let elements = self.function.ty(data.operands[0]).shape.elements();
        self.tile = Some(Shape::from([elements as u32]));
        let block = self.region(region);
        self.tile = None;
        Ok((Strategy::Tree, SmallVec::from_slice(&[block?])))
    }

    /// Returns how a dot reads an operand. The dot itself swaps axes and widens elements, so it
    /// reads through the ops that do only this.
    ///
    /// A widening outside of the block of the dot is an exception: it may run less often than the
    /// dot, for example before a loop.
    fn dot_operand(&self, mut value: Value) -> DotOperand {
        let (mut is_transposed, mut cast) = (false, None);
        while let Some(inst) = self.function.defining_inst(value) {
            let inst = &self.function.insts[inst];
            match &inst.op {
                Op::Transpose { permutation } if matches!(permutation[..], [1, 0] | [0, 2, 1]) => {
                    is_transposed = !is_transposed;
                }
                Op::Cast { .. } if self.widens(inst.operands[0], value) && self.is_of_block(value) => {
                    cast = cast.or(self.function.ty(value).dtype());
                }
                // tidy: wildcard because no other op only swaps axes or widens elements
                _ => break,
            }
            value = inst.operands[0];
        }
        DotOperand { value, is_transposed, cast }
    }

    /// Returns whether a cast converts numbers of 8 or 16 bits exactly to a wider float type.
    fn widens(&self, from: Value, to: Value) -> bool {
        let dtype = |value| self.function.ty(value).dtype();
        match (dtype(from), dtype(to)) {
            (Some(from), Some(to)) => {
                to.is_float() && from.bits() >= 8 && from.bytes() <= 2 && from.bytes() < to.bytes()
            }
            _ => false,
        }
    }

    fn is_of_block(&self, value: Value) -> bool {
        let slot = self.slots[&value].slot;
        self.program.blocks[self.block as usize].steps.iter().any(|step| step.results.contains(&slot))
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
        // tidy: wildcard because the region of any other combine function is executed step by step.
        _ => return None,
    })
}

fn refused_assembly(call_chain: &[Span], error: AssemblyError) -> Box<Diagnostic> {
    let mut diagnostic = match error {
        AssemblyError::Wrong(message) => {
            Diagnostic::new(Code::InvalidValue, format!("this inline assembly is not PTX: {message}"))
        }
        AssemblyError::Unknown(message) => Diagnostic::new(
            Code::NotOnThisDevice,
            format!("this inline assembly cannot be run on a CPU: {message}"),
        ),
    };
    for (index, &span) in call_chain.iter().enumerate() {
        diagnostic =
            if index == 0 { diagnostic.primary(span, "") } else { diagnostic.secondary(span, "called here") };
    }
    Box::new(diagnostic)
}

fn refused_dot(call_chain: &[Span]) -> Box<Diagnostic> {
    let message = "`dot_scaled` is an op of the GPU back end, not of a kernel";
    let diagnostic = Diagnostic::new(Code::NotOnThisDevice, message).hint("call `tl.dot_scaled`");
    Box::new(match call_chain.first() {
        Some(&span) => diagnostic.primary(span, ""),
        None => diagnostic,
    })
}

fn too_large(call_chain: &[Span]) -> Box<Diagnostic> {
    let diagnostic = Diagnostic::new(Code::TooLarge, "the program is too large once its calls are inlined");
    Box::new(match call_chain.first() {
        Some(&span) => diagnostic.primary(span, ""),
        None => diagnostic,
    })
}
