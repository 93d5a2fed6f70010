//! Writes the program of each block, for stated layouts (Gluon).
//!
//! ```text
//! BlockedLayout(…, cga_layout=[[1]]), two blocks    ──>    BlockedLayout(…)
//! %i = arange 0..512 : [512]                               %i = arange 0..256 + rank * 256 : [256]
//! %x = load %p + %i : [512]                                %x = load %p + %i : [256]
//! ```
//! The layout of a value states each block's part ([`Division`]). The pass gives values the extents
//! and layouts of parts, and adds the offset of the part to indices and coordinates. A tile without
//! a stated layout is written once for each division that its uses need. If several blocks hold a
//! part, the one with the lowest rank writes to global memory.
//!
//! | file | contents |
//! |---|---|
//! | `device` | shared memory, copies, `mbarrier`s and dots |
//! | `tensor_memory` | tensor memory, and the dots of pairs of blocks |
//! | `exchange` | reductions of parts that different blocks hold |
//! | `barriers` | the barriers of the cluster that the program does not state |

mod barriers;
mod device;
mod exchange;
mod tensor_memory;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_base::{Code, Diagnostic};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_ir::{
    Block, BlockData, Cursor, Dtype, ElementwiseFn, Function, Inst, InstData, Op, OpFamily, Parents,
    Position, Shape, ShapeOp, StatedLayout, Type, Uses, Value,
};
use tilewright_layout::{Division, Sizes};

use super::division::power_of_two_in;
use super::legality::at;

type Written<T = ()> = Result<T, Box<Diagnostic>>;

/// Rewrites a kernel to the program of each block of a cluster of `blocks` blocks.
///
/// The grid of the result has `blocks` blocks along the first axis for each program.
///
/// # Errors
/// If an op needs another block's elements, and no exchange exists for it.
pub fn divide(function: &mut Function, blocks: u32) -> Written {
    let mut writer = Writer::new(function, blocks)?;
    let entry = writer.cursor.function.entry;
    let insts = writer.cursor.function.blocks[entry].insts.clone();
    writer.write_rank();
    writer.insts(entry, &insts)?;
    writer.set_types();
    let replaced = std::mem::take(&mut writer.replaced);
    writer.cursor.function.replace_uses(&replaced, |_| false);
    barriers::insert(writer.cursor.function);
    Ok(())
}

struct Writer<'f> {
    cursor: Cursor<'f>,
    blocks: u32,
    parents: Parents,
    uses: Uses,
    /// The division of each value that has a stated layout.
    divisions: FxHashMap<Value, Division>,
    /// The parts of values without a stated layout.
    made: FxHashMap<(Value, Division), Value>,
    /// The division of the tiles of each allocation and view of shared memory.
    memories: FxHashMap<Value, Division>,
    scalars: FxHashMap<OfRank, Value>,
    /// The number of entry instructions that compute scalars of the rank.
    prologue: usize,
    replaced: FxHashMap<Value, Value>,
    is_in_worker: bool,
    /// True if the kernel has dots of pairs of blocks.
    has_pairs: bool,
}

/// A scalar that depends on the rank of a block.
#[derive(Clone, PartialEq, Eq, Hash)]
enum OfRank {
    /// The index of the program along the first axis of the grid.
    Program,
    /// The rank of the block in its cluster.
    Rank,
    /// The rank's bits in this mask.
    Masked(u32),
    /// True if the rank has no bit in this mask.
    Lacks(u32),
    /// 1 if the rank has a bit in this mask, else 0.
    IsOther(u32),
    /// The offset of a part along an axis. The sizes are the contributions of the rank's bits.
    Offset(Sizes),
}

impl<'f> Writer<'f> {
    fn new(function: &'f mut Function, blocks: u32) -> Written<Self> {
        let mut divisions = FxHashMap::default();
        for (value, data) in &function.values {
            let Some(layout) = data.ty.layout.as_ref().filter(|_| !data.ty.is_scalar()) else { continue };
            let misfit = |message: String| match function.defining_inst(value) {
                Some(inst) => Box::new(at(function, inst, Code::LayoutMismatch, message)),
                None => Box::new(Diagnostic::new(Code::LayoutMismatch, message)),
            };
            if layout.blocks() != blocks {
                let found = layout.blocks();
                return Err(misfit(format!(
                    "{layout} is for {found} blocks, but the cluster of the kernel has {blocks}"
                )));
            }
            divisions.insert(value, layout.division(&data.ty.shape).map_err(misfit)?);
        }
        let (parents, uses) = (Parents::new(function), Uses::new(function));
        let has_pairs = tensor_memory::has_pairs(function);
        let entry = function.entry;
        let cursor = Cursor::at_start(function, entry);
        Ok(Self {
            cursor,
            blocks,
            parents,
            uses,
            divisions,
            made: FxHashMap::default(),
            memories: FxHashMap::default(),
            scalars: FxHashMap::default(),
            prologue: 0,
            replaced: FxHashMap::default(),
            is_in_worker: false,
            has_pairs,
        })
    }

    fn data(&self, inst: Inst) -> &InstData {
        &self.cursor.function.insts[inst]
    }

    fn data_mut(&mut self, inst: Inst) -> &mut InstData {
        &mut self.cursor.function.insts[inst]
    }

    fn error(&self, inst: Inst, code: Code, message: impl Into<String>) -> Box<Diagnostic> {
        Box::new(at(self.cursor.function, inst, code, message))
    }

    fn unsupported(&self, inst: Inst, what: &str) -> Box<Diagnostic> {
        let message = format!("{what} would need elements of other blocks of the cluster");
        let hint = "give the tile a layout whose cga_layout does not split this axis";
        Box::new(at(self.cursor.function, inst, Code::LayoutMismatch, message).hint(hint))
    }

    fn go_before(&mut self, inst: Inst) {
        let block = self.parents.block(inst).expect("the instruction is in a block");
        self.cursor.go_before(block, inst);
        self.cursor.use_location_of(inst);
    }

    fn insts(&mut self, block: Block, insts: &[Inst]) -> Written {
        for inst in insts {
            self.inst(block, *inst)?;
            let is_worker = matches!(self.data(*inst).op, Op::StartWorkers { .. });
            let outer = self.is_in_worker;
            self.is_in_worker |= is_worker;
            if self.data(*inst).op.family() != OpFamily::Reduction {
                for region in self.data(*inst).regions.clone() {
                    let inner = self.cursor.function.blocks[region].insts.clone();
                    self.insts(region, &inner)?;
                }
            }
            self.is_in_worker = outer;
        }
        Ok(())
    }

    /// Writes the program index and the block rank at the start of the entry.
    fn write_rank(&mut self) {
        let entry = self.cursor.function.entry;
        self.cursor.enter(entry);
        let number = self.cursor.value(Op::ProgramId { axis: 0 }, &[], Type::scalar(Dtype::I32));
        let blocks = self.cursor.int(Dtype::I32, self.blocks);
        let program = self.cursor.scalar(ElementwiseFn::IntDiv, &[number, blocks], Dtype::I32);
        let rank = self.cursor.scalar(ElementwiseFn::IntRem, &[number, blocks], Dtype::I32);
        self.prologue = self.cursor.position().index;
        self.scalars.extend([(OfRank::Program, program), (OfRank::Rank, rank)]);
    }

    /// Returns a scalar of the rank, written once at the start of the entry.
    fn of_rank(&mut self, wanted: OfRank) -> Value {
        if let Some(value) = self.scalars.get(&wanted) {
            return *value;
        }
        let rank = self.scalars[&OfRank::Rank];
        let entry = self.cursor.function.entry;
        let before = self.cursor.function.blocks[entry].insts.len();
        let outer = self.cursor.enter(entry);
        self.cursor.go_to(Position { block: entry, index: self.prologue });
        let made = match &wanted {
            OfRank::Program | OfRank::Rank => unreachable!("`write_rank` writes these"),
            OfRank::Masked(mask) => {
                let mask = self.cursor.int(Dtype::I32, *mask);
                self.cursor.scalar(ElementwiseFn::And, &[rank, mask], Dtype::I32)
            }
            OfRank::Lacks(mask) => {
                let (mask, zero) = (self.cursor.int(Dtype::I32, *mask), self.cursor.int(Dtype::I32, 0));
                let bits = self.cursor.scalar(ElementwiseFn::And, &[rank, mask], Dtype::I32);
                self.cursor.scalar(ElementwiseFn::Eq, &[bits, zero], Dtype::I1)
            }
            OfRank::IsOther(mask) => {
                let (mask, one) = (self.cursor.int(Dtype::I32, *mask), self.cursor.int(Dtype::I32, 1));
                let bits = self.cursor.scalar(ElementwiseFn::And, &[rank, mask], Dtype::I32);
                self.cursor.scalar(ElementwiseFn::Min, &[bits, one], Dtype::I32)
            }
            OfRank::Offset(elements) => {
                let mut sum = None;
                for (bit, each) in elements.iter().enumerate().filter(|(_, each)| **each != 0) {
                    let mask = self.cursor.int(Dtype::I32, 1 << bit);
                    let bits = self.cursor.scalar(ElementwiseFn::And, &[rank, mask], Dtype::I32);
                    // The basis is a power of two or a sum of powers of two.
                    let (factor, divisor) =
                        if each % (1 << bit) == 0 { (each >> bit, 1) } else { (*each, 1 << bit) };
                    let mut term = bits;
                    for (function, number) in [(ElementwiseFn::IntDiv, divisor), (ElementwiseFn::Mul, factor)]
                    {
                        if number != 1 {
                            let number = self.cursor.int(Dtype::I32, number);
                            term = self.cursor.scalar(function, &[term, number], Dtype::I32);
                        }
                    }
                    sum = Some(match sum {
                        None => term,
                        Some(sum) => self.cursor.scalar(ElementwiseFn::Add, &[sum, term], Dtype::I32),
                    });
                }
                sum.unwrap_or_else(|| self.cursor.int(Dtype::I32, 0))
            }
        };
        let added = self.cursor.function.blocks[entry].insts.len() - before;
        self.prologue += added;
        let moved = if outer.block == entry { added } else { 0 };
        self.cursor.go_to(Position { index: outer.index + moved, ..outer });
        self.scalars.insert(wanted, made);
        made
    }

    /// Returns the offset of a block's part along an axis; `None` for 0.
    fn offset(&mut self, division: &Division, axis: usize) -> Option<Value> {
        let elements: Sizes = division.bases.iter().map(|basis| basis[axis]).collect();
        let is_zero = elements.iter().all(|each| *each == 0);
        (!is_zero).then(|| self.of_rank(OfRank::Offset(elements)))
    }

    /// Returns the division of a tile; without one, each block holds the whole tile.
    fn division(&self, value: Value) -> Division {
        let whole = || Division::whole(&self.cursor.function.ty(value).shape, self.blocks);
        self.divisions.get(&value).cloned().unwrap_or_else(whole)
    }

    fn part(&self, value: Value) -> Type {
        let ty = self.cursor.function.ty(value);
        let Some(division) = self.divisions.get(&value) else { return ty.clone() };
        let layout = ty.layout.as_ref().map(|layout| layout.of_block().into());
        ty.with_shape(division.part.iter().copied().collect()).with_layout(layout)
    }

    /// Gives the divided values the types of their parts.
    fn set_types(&mut self) {
        for value in self.divisions.keys().copied().collect::<Vec<_>>() {
            let ty = self.part(value);
            self.cursor.function.values[value].ty = ty;
        }
    }

    fn take(&mut self, inst: Inst, division: &Division) -> Written {
        for index in 0..self.data(inst).operands.len() {
            let operand = self.data(inst).operands[index];
            let taken = self.taken(inst, operand, division)?;
            self.data_mut(inst).operands[index] = taken;
        }
        Ok(())
    }

    /// Returns the part of an operand. Scalars are the same in all blocks.
    fn taken(&mut self, inst: Inst, operand: Value, division: &Division) -> Written<Value> {
        let ty = self.cursor.function.ty(operand).clone();
        if ty.is_scalar() {
            return Ok(operand);
        }
        match self.divisions.get(&operand) {
            Some(own) if own == division => Ok(operand),
            Some(_) => {
                let layout = ty.layout.as_deref().map_or("this".to_owned(), ToString::to_string);
                let message = format!("an operand with {layout} is in other blocks than the result");
                let hint = "use layouts with the same cga_layout for all tiles of an operation";
                Err(Box::new(at(self.cursor.function, inst, Code::LayoutMismatch, message).hint(hint)))
            }
            None => self.computed(inst, operand, division),
        }
    }

    /// Returns the part of a tile without a stated layout.
    fn computed(&mut self, user: Inst, value: Value, division: &Division) -> Written<Value> {
        if division.is_whole() {
            return Ok(value);
        }
        let key = (value, division.clone());
        if let Some(made) = self.made.get(&key) {
            return Ok(*made);
        }
        let refused = |writer: &Self| {
            let message = "the blocks of the cluster need parts of a tile without a layout";
            let hint = "state its layout: `gl.set_auto_layout(x, layout)`";
            Box::new(at(writer.cursor.function, user, Code::LayoutMismatch, message).hint(hint))
        };
        let Some(inst) = self.cursor.function.defining_inst(value) else { return Err(refused(self)) };
        let Some(block) = self.parents.block(inst) else { return Err(refused(self)) };
        let InstData { mut op, mut operands, .. } = self.data(inst).clone();
        let shape: Shape = division.part.iter().copied().collect();
        let ty = self.cursor.function.ty(value).with_shape(shape.clone());
        let made = if let Op::Arange { start, end } = &mut op {
            let extent = i64::from(shape[0]);
            *end = *start + extent;
            let first = self.offset(division, 0).expect("the division is not whole");
            self.go_after(block, inst);
            let range = self.cursor.value(op, &[], ty.clone());
            let first = self.cursor.value(Op::Splat { shape }, &[first], ty.clone());
            self.cursor.elementwise(ElementwiseFn::Add, &[range, first], ty)
        } else {
            let inner = match &mut op {
                Op::Splat { shape: own } => {
                    own.clone_from(&shape);
                    division.clone()
                }
                Op::Broadcast { shape: own } => {
                    own.clone_from(&shape);
                    let from = self.cursor.function.ty(operands[0]).shape.clone();
                    broadcast(division, &from)
                }
                Op::ExpandDims { axis } => division.without_axis(*axis as usize),
                Op::Transpose { permutation } => {
                    let axes: Vec<usize> = permutation.iter().map(|axis| *axis as usize).collect();
                    transposed(division, &axes)
                }
                op if op.family() == OpFamily::Pointwise && op.is_pure() => division.clone(),
                // tidy: wildcard because the part of another op's result needs all its operands
                _ => return Err(refused(self)),
            };
            for operand in &mut operands {
                *operand = self.taken(user, *operand, &inner)?;
            }
            self.go_after(block, inst);
            self.cursor.value(op, &operands, ty)
        };
        self.made.insert(key, made);
        Ok(made)
    }

    fn go_after(&mut self, block: Block, inst: Inst) {
        self.cursor.go_after(block, inst);
        self.cursor.use_location_of(inst);
        // Skip the instructions that the pass wrote after `inst`, because the new one may use them.
        let made = |writer: &Self, inst: Inst| writer.parents.block(inst).is_none();
        let insts = &self.cursor.function.blocks[block].insts;
        let mut index = self.cursor.position().index;
        while insts.get(index).is_some_and(|inst| made(self, *inst)) {
            index += 1;
        }
        self.cursor.go_to(Position { block, index });
    }

    fn inst(&mut self, block: Block, inst: Inst) -> Written {
        let op = self.data(inst).op.clone();
        match op.family() {
            OpFamily::Scalar => self.scalar(inst, &op),
            OpFamily::Load | OpFamily::Store | OpFamily::Atomic => self.access(inst, &op)?,
            OpFamily::Source | OpFamily::Shape | OpFamily::Pointwise | OpFamily::Identity => {
                self.compute(inst, &op)?;
            }
            OpFamily::Reduction | OpFamily::Scan | OpFamily::Movement => self.combine(inst, &op)?,
            OpFamily::Memory => self.device(block, inst)?,
            OpFamily::Dot => return Err(self.unsupported(inst, "`tl.dot`")),
            // Each block checks its parts of checked tiles.
            OpFamily::Check
            | OpFamily::Promise
            | OpFamily::Barrier
            | OpFamily::Call
            | OpFamily::Partitions
            | OpFamily::Loop
            | OpFamily::Branch
            | OpFamily::Terminator => {}
        }
        Ok(())
    }

    /// Replaces the index and the number of programs along the first axis.
    fn scalar(&mut self, inst: Inst, op: &Op) {
        match op {
            Op::ProgramId { axis: 0 } => {
                let result = self.data(inst).results[0];
                self.replaced.insert(result, self.scalars[&OfRank::Program]);
            }
            Op::NumPrograms { axis: 0 } => {
                self.go_before(inst);
                let number = self.cursor.value(op.clone(), &[], Type::scalar(Dtype::I32));
                let blocks = self.cursor.int(Dtype::I32, self.blocks);
                let data = self.data_mut(inst);
                data.op = Op::Elementwise { function: ElementwiseFn::IntDiv };
                data.operands = smallvec![number, blocks];
            }
            // tidy: wildcard because other scalars are the same in all blocks
            _ => {}
        }
    }

    /// Writes a global access. If several blocks have a part, one of them changes memory.
    fn access(&mut self, inst: Inst, op: &Op) -> Written {
        let operands = self.data(inst).operands.clone();
        let tile = operands.iter().copied().find(|value| self.divisions.contains_key(value));
        let division = self.division(tile.unwrap_or(operands[0]));
        self.take(inst, &division)?;
        let changes = matches!(
            op,
            Op::Store { .. } | Op::AtomicRmw { .. } | Op::AtomicCas { .. } | Op::AtomicStore { .. }
        );
        let copies = division.copies();
        if !changes || copies == 0 {
            return Ok(());
        }
        if self.data(inst).results.iter().any(|result| !self.uses.of(*result).is_empty()) {
            let message = "several blocks of the cluster would get the result of one atomic operation";
            let hint = "let it return into memory that all blocks load, or split its tile by cga_layout";
            return Err(Box::new(at(self.cursor.function, inst, Code::NotOnThisDevice, message).hint(hint)));
        }
        let mut mask = self.of_rank(OfRank::Lacks(copies));
        let place = op.info().operands.len();
        let own = self.data(inst).operands.get(place).copied();
        let like = self.part(self.data(inst).operands[0]).with_dtype(Dtype::I1);
        self.go_before(inst);
        if !like.is_scalar() {
            let plain = like.with_layout(None);
            mask = self.cursor.value(Op::Splat { shape: like.shape.clone() }, &[mask], plain);
        }
        if let Some(own) = own {
            let ty = self.part(own);
            let ty = if ty.layout.is_none() { ty } else { like };
            mask = self.cursor.elementwise(ElementwiseFn::And, &[own, mask], ty);
            self.data_mut(inst).operands[place] = mask;
        } else {
            self.data_mut(inst).operands.push(mask);
        }
        Ok(())
    }

    fn compute(&mut self, inst: Inst, op: &Op) -> Written {
        let Some(result) = self.data(inst).results.first().copied() else { return Ok(()) };
        let Some(division) = self.divisions.get(&result).cloned() else { return Ok(()) };
        let shape: Shape = division.part.iter().copied().collect();
        if let Op::SetLayout { layout } = op {
            self.data_mut(inst).op = Op::SetLayout { layout: layout.of_block() };
            let operand = self.data(inst).operands[0];
            if self.divisions.get(&operand).is_some_and(|own| *own != division) {
                return Err(self.unsupported(inst, "a conversion between layouts with different cga_layouts"));
            }
            return self.take(inst, &division);
        }
        let Some(shape_op) = op.as_shape() else {
            if let Op::Hint { kind, values } = op {
                // A part begins at a multiple of its extent, so hints hold for runs inside the
                // part.
                let part = division.part.iter().map(|extent| i64::from(*extent));
                let values = values.iter().zip(part).map(|(value, part)| power_of_two_in(*value).min(part));
                self.data_mut(inst).op = Op::Hint { kind: *kind, values: values.collect() };
            }
            if let Op::Arange { .. } | Op::Splat { .. } = op {
                // A range or a splat with a stated layout: the part gets the layout.
                let layout = self.cursor.function.ty(result).layout.clone().expect("it is divided");
                let plain = self.cursor.function.ty(result).with_layout(None);
                self.go_before(inst);
                let operands = self.data(inst).operands.clone();
                let whole = self.cursor.value(op.clone(), &operands, plain);
                let made = self.cursor.function.defining_inst(whole).expect("it is made here");
                let block = self.parents.block(inst).expect("the instruction is in a block");
                self.parents.set_block(made, block);
                let part = self.computed(inst, whole, &division)?;
                let data = self.data_mut(inst);
                (data.op, data.operands) = (Op::SetLayout { layout: layout.of_block() }, smallvec![part]);
                return Ok(());
            }
            return self.take(inst, &division);
        };
        let from = self.cursor.function.ty(self.data(inst).operands[0]).shape.clone();
        let (inner, new) = match shape_op {
            ShapeOp::ExpandDims { axis } => (division.without_axis(*axis as usize), op.clone()),
            ShapeOp::Broadcast { .. } => (broadcast(&division, &from), Op::Broadcast { shape }),
            ShapeOp::Transpose { permutation } => {
                let axes: Vec<usize> = permutation.iter().map(|axis| *axis as usize).collect();
                (transposed(&division, &axes), op.clone())
            }
            ShapeOp::Reshape { .. } => {
                // The result's layout follows from the operand's, so each block has the same
                // elements of both.
                (self.division(self.data(inst).operands[0]), Op::Reshape { shape })
            }
            ShapeOp::Slice { starts, steps, shape: whole } => {
                let inner = self.division(self.data(inst).operands[0]);
                let is_all = |axis: usize| starts[axis] == 0 && steps[axis] == 1 && whole[axis] == from[axis];
                if (0..from.len()).any(|axis| inner.splits(axis) && !is_all(axis)) {
                    return Err(self.unsupported(inst, "a part of a tile"));
                }
                (inner, Op::Slice { starts: starts.clone(), steps: steps.clone(), shape })
            }
        };
        self.data_mut(inst).op = new;
        self.take(inst, &inner)
    }

    /// Writes an op that combines elements along an axis.
    fn combine(&mut self, inst: Inst, op: &Op) -> Written {
        let operands = self.data(inst).operands.clone();
        let tile = operands.iter().copied().find(|value| self.divisions.contains_key(value));
        let Some(tile) = tile else { return Ok(()) };
        let division = self.divisions[&tile].clone();
        let name = op.name();
        match op {
            Op::Reduce { axis } if division.splits(*axis as usize) => {
                self.take(inst, &division)?;
                return self.exchange_reduction(inst, *axis as usize, &division);
            }
            Op::Reduce { .. } => return self.take(inst, &division),
            Op::Scan { axis, .. }
            | Op::Butterfly { axis, .. }
            | Op::Bitonic { axis, .. }
            | Op::Gather { axis } => {
                if division.splits(*axis as usize) {
                    return Err(self.unsupported(inst, &format!("`{name}` along an axis that is split")));
                }
                if let Op::Gather { axis } = op {
                    // The index may be longer along the axis.
                    let index = self.division(operands[1]);
                    let axis = *axis as usize;
                    if index.without_axis(axis) != division.without_axis(axis) {
                        return Err(self.unsupported(inst, "`gather` by an index with another cga_layout"));
                    }
                    return Ok(());
                }
            }
            // tidy: wildcard because the check below is for the other ops
            _ => {}
        }
        if !division.is_whole() && matches!(op, Op::Histogram { .. }) {
            return Err(self.unsupported(inst, &format!("`{name}` of a tile that is split")));
        }
        self.take(inst, &division)
    }

    /// Puts an instruction into a branch for blocks without a rank bit in `mask`.
    fn only_in(&mut self, block: Block, inst: Inst, mask: u32) {
        let condition = self.of_rank(OfRank::Lacks(mask));
        let regions: SmallVec<[Block; 2]> =
            (0..2).map(|_| self.cursor.function.blocks.push(BlockData::default())).collect();
        self.go_before(inst);
        let outer = self.cursor.position();
        let own = self.cursor.take_next().expect("the instruction is at the cursor");
        for (index, region) in regions.iter().enumerate() {
            self.cursor.enter(*region);
            if index == 0 {
                self.cursor.insert(own);
                self.parents.set_block(own, *region);
            }
            self.cursor.emit(Op::Yield {}, &[], []);
        }
        self.cursor.go_to(outer);
        let branch = self.cursor.emit_with_regions(Op::If {}, &[condition], regions, []);
        self.parents.set_block(branch, block);
    }
}

/// Returns the division of the operand of a broadcast, given that of the result.
fn broadcast(division: &Division, from: &Shape) -> Division {
    let mut found = division.clone();
    for (axis, extent) in from.iter().enumerate() {
        if *extent == 1 {
            found.part[axis] = 1;
            found.bases.iter_mut().for_each(|basis| basis[axis] = 0);
        }
    }
    found
}

/// Returns the division of the operand of a transpose, given that of the result.
fn transposed(division: &Division, permutation: &[usize]) -> Division {
    let mut found = division.clone();
    for (axis, from) in permutation.iter().enumerate() {
        found.part[*from] = division.part[axis];
        for (basis, own) in found.bases.iter_mut().zip(&division.bases) {
            basis[*from] = own[axis];
        }
    }
    found
}

/// Returns the layout of one element that all threads of a block hold.
fn held_by_all(warps: u32) -> StatedLayout {
    let bits = |count: u32| vec![Sizes::from_slice(&[0]); count as usize];
    StatedLayout::Linear {
        bases: [bits(0), bits(LANES.ilog2()), bits(warps.ilog2())],
        blocks: Vec::new(),
        shape: Sizes::from_slice(&[1]),
    }
}
