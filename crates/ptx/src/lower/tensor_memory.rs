//! Lowers the ops on tensor memory: PTX ISA, "`TensorCore` 5th Generation Family Instructions".
//!
//! An address of tensor memory has the lane in its high half and the column in its low half. The
//! asynchronous instructions of different threads are ordered only by fences: one before and one
//! after the synchronization of the threads. So each op has a fence on the sides on which threads
//! may synchronize. A `tcgen05.commit` includes the fence after the dots.

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_gpu_ir::tensor_memory::{TensorMemoryMove, TensorMemoryTransfer};
use tilewright_gpu_ir::{Feature, TensorMemory};
use tilewright_ir::{Element, Inst, Operation, ScaledFormat, ScaledKind, Value};
use tilewright_layout::{Layout, Placement};

use super::builder::{Scalar, Width, destinations};
use super::control::jump;
use super::integer::Bitwise;
use super::matrix_descriptor::{DEPTH_BYTES, MatrixForm};
use super::memory::{Words, plain_load};
use super::{LANES, Lowered, Lowering, memory_bits};
use crate::isa::{
    self, Address, Comparison, Condition, CtaGroup, DestinationVector, LaneMulticast, LeftOperand, Predicate,
    RegisterId, RepetitionCount, ScalarType, ScaleVectorSize, ScaledDotKind, Source, SourceVector,
    SpecialRegister, StateSpace, TensorDotKind, TensorMemoryCopyShape, TensorMemoryShape,
};

/// The bits of a cell of tensor memory.
const CELL_BITS: u32 = 32;
/// The warps that together access all lanes.
const WARPS: u32 = 4;
/// The unit of addresses in descriptors, in bytes.
const DESCRIPTOR_UNIT: u32 = 16;
/// The version of descriptors of shared memory, in their high word.
const DESCRIPTOR_VERSION: u32 = 1 << 14;
/// The first PTX version with `.kind::mxf4nvf4`.
const NVF4_SINCE: (u32, u32) = (8, 7);
/// The scales of a cell.
const SCALES_IN_CELL: u32 = 4;

/// An operand of a dot in shared memory.
struct SharedOperand {
    placement: Placement,
    /// The bytes of an element and of its share of the padding.
    bytes: u32,
    /// The descriptor of the first part.
    descriptor: Scalar,
    is_mn_major: bool,
}

impl SharedOperand {
    /// Returns the descriptor of the part at these coordinates.
    fn at(&self, coordinates: [u32; 2]) -> Scalar {
        let offset = self.placement.apply(self.placement.input().index(&coordinates)) * self.bytes;
        self.descriptor.plus(Width::B64, u64::from(offset / DESCRIPTOR_UNIT))
    }
}

/// The operand A of a dot.
enum LeftMatrix {
    Shared(SharedOperand),
    /// The address of the first element.
    TensorMemory(Scalar, TensorMemory),
}

impl LeftMatrix {
    /// Returns the bytes of an element.
    fn bytes(&self) -> u32 {
        match self {
            Self::Shared(shared) => shared.bytes,
            Self::TensorMemory(_, memory) => memory_bits(memory.element) / 8,
        }
    }
}

/// The operands of a dot of tensor memory.
pub(super) struct TensorDotOperands {
    pub a: Value,
    pub b: Value,
    pub acc: Value,
    pub use_acc: Value,
    /// True if the operand is the transpose of its buffer, for A and for B.
    pub transposed: [bool; 2],
}

/// A dot of tensor memory, whose operands are lowered.
struct TensorDot {
    left: LeftMatrix,
    right: SharedOperand,
    /// The accumulator.
    memory: TensorMemory,
    /// The number of instructions along K.
    steps: u32,
    /// The address of the accumulator.
    start: Scalar,
    /// False if the result starts from zeros.
    initial: Scalar,
}

impl TensorDot {
    fn is_left_transposed(&self) -> bool {
        matches!(&self.left, LeftMatrix::Shared(shared) if shared.is_mn_major)
    }

    /// Returns the instruction descriptor without the types.
    fn layout(&self) -> u32 {
        let TensorMemory { block, cta_group, .. } = &self.memory;
        u32::from(self.is_left_transposed()) << 15
            | u32::from(self.right.is_mn_major) << 16
            | (block.columns / 8) << 17
            | (block.rows * cta_group / 16) << 24
    }
}

/// One instruction of a dot.
struct TensorDotStep {
    /// The first row of the accumulator.
    row: u32,
    /// The first column of the accumulator.
    column: u32,
    /// The number of the instruction along K.
    index: u32,
    d: Address,
    a: LeftOperand,
    b: Source,
    accumulate: Condition,
}

/// Returns the number of repetitions of an instruction that moves this number of registers.
fn repetitions(registers: usize, shape: TensorMemoryShape) -> RepetitionCount {
    match registers / shape.registers() {
        1 => RepetitionCount::X1,
        2 => RepetitionCount::X2,
        4 => RepetitionCount::X4,
        8 => RepetitionCount::X8,
        16 => RepetitionCount::X16,
        32 => RepetitionCount::X32,
        64 => RepetitionCount::X64,
        _ => RepetitionCount::X128,
    }
}

/// Returns the shape of the instructions of a move, and the distance of its second address.
fn shape_of(transfer: TensorMemoryTransfer) -> (TensorMemoryShape, Option<Source>) {
    match transfer {
        TensorMemoryTransfer::L32x32b => (TensorMemoryShape::L32x32b, None),
        TensorMemoryTransfer::L16x64b => (TensorMemoryShape::L16x64b, None),
        TensorMemoryTransfer::L16x128b => (TensorMemoryShape::L16x128b, None),
        TensorMemoryTransfer::L16x256b => (TensorMemoryShape::L16x256b, None),
        TensorMemoryTransfer::L16x32bx2(split) => {
            (TensorMemoryShape::L16x32bx2, Some(i64::from(split).into()))
        }
    }
}

/// Returns the code of an element type in the instruction descriptor: of D, or of A and B.
fn type_code(ty: ScalarType, is_result: bool) -> u32 {
    match (ty, is_result) {
        (ScalarType::F32, true) | (ScalarType::Bf16 | ScalarType::E5m2 | ScalarType::S8, false) => 1,
        (ScalarType::Tf32, false) | (ScalarType::S32, true) => 2,
        _ => 0,
    }
}

/// Returns the code of the format of A or B in the instruction descriptor of a dot with scales.
fn scaled_type_code(format: ScaledFormat, kind: ScaledKind) -> u32 {
    match (format, kind) {
        (ScaledFormat::E4m3, _) => 0,
        (ScaledFormat::E5m2, _) | (ScaledFormat::E2m1, ScaledKind::Mxf4 | ScaledKind::Nvf4) => 1,
        (ScaledFormat::E2m1, ScaledKind::Mxf8f6f4) => 5,
    }
}

impl Lowering<'_> {
    fn fence_after_synchronization(&mut self) {
        self.builder.emit(isa::Tcgen05FenceAfter {});
    }

    fn fence_before_synchronization(&mut self) {
        self.builder.emit(isa::Tcgen05FenceBefore {});
    }

    /// Emits code that only the first warp of the block executes.
    fn in_first_warp(&mut self, emit: impl FnOnce(&mut Self)) {
        let after = self.builder.label("tensor_memory");
        if self.warps.count > 1 {
            let thread = self.thread();
            let lanes = Scalar::constant(LANES.into());
            let is_other = self.builder.compare(Width::B32, false, Comparison::Ge, thread, lanes);
            let guard = self.builder.predicate(is_other);
            self.builder.emit_if(Some(guard), isa::Bra { uniform: true, ..jump(after) });
        }
        emit(self);
        self.builder.place(after);
    }

    pub(super) fn lower_tcgen05_alloc(&mut self, inst: Inst, buffer: Value, columns: u32) -> Lowered {
        self.require(inst, Feature::Tcgen05)?;
        let place = self.scalar(buffer);
        let place = self.builder.address(Width::B32, place);
        let group = self.cta_group();
        self.in_first_warp(|lowering| {
            lowering.builder.emit(isa::Tcgen05Alloc {
                group,
                sync_aligned: true,
                space: Some(StateSpace::SharedCta),
                ty: ScalarType::B32,
                destination: place,
                columns: i64::from(columns).into(),
            });
            lowering.builder.emit(isa::Tcgen05RelinquishAllocPermit { group, sync_aligned: true });
        });
        self.fence_before_synchronization();
        self.wait();
        self.fence_after_synchronization();
        let register = self.builder.fresh(Width::B32);
        let load = plain_load(destinations(&[register]), place, ScalarType::B32);
        self.builder.emit(isa::Ld { space: Some(StateSpace::Shared), ..load });
        self.tensor_memory = Some(register.into());
        Ok(())
    }

    pub(super) fn lower_tcgen05_dealloc(&mut self, inst: Inst, columns: u32) -> Lowered {
        self.require(inst, Feature::Tcgen05)?;
        let start = self.tensor_memory_start(inst)?;
        let address = self.builder.register(Width::B32, start).into();
        let group = self.cta_group();
        self.fence_before_synchronization();
        self.wait();
        self.fence_after_synchronization();
        self.in_first_warp(|lowering| {
            lowering.builder.emit(isa::Tcgen05Dealloc {
                group,
                sync_aligned: true,
                ty: ScalarType::B32,
                address,
                columns: i64::from(columns).into(),
            });
        });
        Ok(())
    }

    /// Returns the `.cta_group` of all instructions of the kernel on tensor memory.
    fn cta_group(&self) -> CtaGroup {
        let is_pair =
            |value: Value| self.kernel.ty(value).as_tensor_memory().is_some_and(TensorMemory::is_of_pair);
        if self.kernel.values.keys().any(is_pair) { CtaGroup::Two } else { CtaGroup::One }
    }

    /// Returns the condition for the thread that starts dots, copies and commits. Of a pair of blocks,
    /// the thread is in the first one.
    fn elected_in_group(&mut self) -> Predicate {
        let elected = self.elected();
        if self.cta_group() == CtaGroup::One {
            return elected;
        }
        let rank = self.special(SpecialRegister::ClusterCtaRank);
        let (bit, zero) = (self.mask(rank, 1), Scalar::constant(0));
        let is_first = self.builder.compare(Width::B32, false, Comparison::Eq, bit, zero);
        let elected = Scalar::from(elected.register).plus(Width::Pred, u64::from(elected.negated));
        let both = self.builder.bitwise(Bitwise::And, Width::Pred, elected, is_first);
        self.builder.predicate(both)
    }

    fn tensor_memory_start(&self, inst: Inst) -> Result<Scalar, Box<Diagnostic>> {
        self.tensor_memory.ok_or_else(|| self.unsupported(inst, "tensor memory before `tcgen05_alloc`"))
    }

    /// Returns the address of an allocation of tensor memory.
    pub(super) fn lower_tensor_memory(&mut self, inst: Inst, offset: Option<u32>) -> Lowered {
        let offset = offset.ok_or_else(|| self.unsupported(inst, "tensor memory without an offset"))?;
        let address = self.tensor_memory_start(inst)?.plus(Width::B32, offset.into());
        self.set_result(inst, [address]);
        Ok(())
    }

    fn tensor_memory_of(&self, value: Value) -> &'_ TensorMemory {
        self.kernel.ty(value).as_tensor_memory().expect("the verifier checks what is in tensor memory")
    }

    /// Returns the instructions that move a tile, and the address for this warp.
    fn tensor_memory_move(
        &mut self,
        inst: Inst,
        [memory, tile]: [Value; 2],
    ) -> Result<(TensorMemoryMove, Scalar), Box<Diagnostic>> {
        self.require(inst, Feature::Tcgen05)?;
        if !self.warps.first.is_multiple_of(WARPS) {
            return Err(self.unsupported(inst, "an access to tensor memory by warps that are no warpgroup"));
        }
        let found = TensorMemoryMove::new(self.tensor_memory_of(memory), self.layout(tile));
        let found = found.expect("the verifier checks the layout");
        let mut images = vec![0; LANES.ilog2() as usize];
        images.extend_from_slice(&found.warps);
        let of_warp = self.linear(&images);
        let start = self.scalar(memory);
        Ok((found, self.builder.add(Width::B32, start, of_warp)))
    }

    pub(super) fn lower_tmem_load(&mut self, inst: Inst, memory: Value) -> Lowered {
        let result = self.kernel.insts[inst].results[0];
        let (moves, start) = self.tensor_memory_move(inst, [memory, result])?;
        let (shape, split) = shape_of(moves.transfer);
        let element = self.element(result);
        let words = cell_words(element);
        self.fence_after_synchronization();
        let mut loaded: Vec<(RegisterId, &[u32])> = Vec::new();
        for part in &moves.parts {
            let cells = part.registers.chunks(moves.in_cell as usize);
            let own: Vec<RegisterId> = cells.clone().map(|_| self.builder.fresh(Width::B32)).collect();
            let address = self.builder.address(Width::B32, start.plus(Width::B32, part.address.into()));
            self.builder.emit(isa::Tcgen05Ld {
                shape,
                count: repetitions(own.len(), shape),
                pack: false,
                ty: ScalarType::B32,
                d: DestinationVector(own.clone()),
                address,
                split,
            });
            loaded.extend(own.into_iter().zip(cells));
        }
        self.builder.emit(isa::Tcgen05WaitLd {});
        self.fence_before_synchronization();
        let mut elements = vec![Scalar::constant(0); self.count(result)];
        for (cell, registers) in loaded {
            let found = self.builder.unpack(words, cell.into());
            for (register, element) in registers.iter().zip(found) {
                elements[*register as usize] = element;
            }
        }
        self.set(result, elements);
        Ok(())
    }

    pub(super) fn lower_tmem_store(&mut self, inst: Inst, memory: Value, tile: Value) -> Lowered {
        let (moves, start) = self.tensor_memory_move(inst, [memory, tile])?;
        let (shape, split) = shape_of(moves.transfer);
        let element = self.element(tile);
        let words = cell_words(element);
        let elements = self.get(tile);
        self.fence_after_synchronization();
        for part in &moves.parts {
            let mut cells: SmallVec<[Source; 4]> = SmallVec::new();
            for registers in part.registers.chunks(moves.in_cell as usize) {
                let mut own: Vec<Scalar> =
                    registers.iter().map(|register| elements[*register as usize]).collect();
                own.resize((CELL_BITS / memory_bits(element)) as usize, Scalar::constant(0));
                let word = self.builder.pack(words, &own);
                cells.push(self.builder.register(Width::B32, word).into());
            }
            let address = self.builder.address(Width::B32, start.plus(Width::B32, part.address.into()));
            self.builder.emit(isa::Tcgen05St {
                shape,
                count: repetitions(cells.len(), shape),
                unpack: false,
                ty: ScalarType::B32,
                address,
                split,
                a: SourceVector(cells),
            });
        }
        self.builder.emit(isa::Tcgen05WaitSt {});
        self.fence_before_synchronization();
        Ok(())
    }

    pub(super) fn lower_tcgen05_mma(&mut self, inst: Inst, operands: &TensorDotOperands) -> Lowered {
        let TensorDotOperands { a, b, acc, .. } = *operands;
        let types = self.mma_types([a, b, acc]).ok_or_else(|| self.no_op(inst))?;
        let [d_ty, a_ty, b_ty] = types;
        if d_ty == ScalarType::S32 && !self.has(Feature::Tcgen05Integers) {
            return Err(self.unsupported(inst, "`tcgen05_mma` of integers"));
        }
        let dot = self.tensor_dot(inst, operands)?;
        let group = self.cta_group();
        let layout = dot.layout()
            | type_code(d_ty, true) << 4
            | type_code(a_ty, false) << 7
            | type_code(b_ty, false) << 10;
        let kind = match a_ty {
            ScalarType::F16 | ScalarType::Bf16 => TensorDotKind::F16,
            ScalarType::Tf32 => TensorDotKind::Tf32,
            ScalarType::S8 | ScalarType::U8 => TensorDotKind::I8,
            _ => TensorDotKind::F8f6f4,
        };
        self.dot_steps(&dot, |lowering, guard, step| {
            let layout = lowering.builder.register(Width::B32, Scalar::constant(layout.into())).into();
            let instruction = isa::Tcgen05Mma {
                group,
                kind,
                shift_a: false,
                collector: None,
                d: step.d,
                a: step.a,
                b: step.b,
                layout,
                disabled_lanes: None,
                accumulate: step.accumulate,
                scale_d: None,
            };
            lowering.builder.emit_if(Some(guard), instruction);
        });
        Ok(())
    }

    pub(super) fn lower_tcgen05_mma_scaled(
        &mut self,
        inst: Inst,
        operands: &TensorDotOperands,
        scales: [Value; 2],
        formats: [ScaledFormat; 2],
    ) -> Lowered {
        let is_padded = [operands.a, operands.b].map(|value| self.is_padded(value));
        let kind = ScaledKind::of(formats, is_padded, scales.map(|scale| self.dtype(scale)));
        let kind = kind.map_err(|rule| self.unsupported(inst, rule))?;
        if kind == ScaledKind::Nvf4 {
            self.module.version = self.module.version.max(NVF4_SINCE);
        }
        let dot = self.tensor_dot(inst, operands)?;
        let group = self.cta_group();
        for (index, is_mn_major) in [dot.is_left_transposed(), dot.right.is_mn_major].into_iter().enumerate()
        {
            if is_mn_major && formats[index] == ScaledFormat::E2m1 {
                let what = format!("operand {} of e2m1 is not contiguous along K", ["A", "B"][index]);
                let found = Diagnostic::new(Code::LayoutMismatch, what);
                let hint = "store B as [N, K / 2], and pass `b.permute((1, 0))`";
                return Err(Box::new(self.located(inst, found).hint(hint)));
            }
        }
        let (instruction_kind, vector_size) = match kind {
            ScaledKind::Mxf8f6f4 => (ScaledDotKind::Mxf8f6f4, ScaleVectorSize::X1),
            ScaledKind::Mxf4 => (ScaledDotKind::Mxf4, ScaleVectorSize::X2),
            ScaledKind::Nvf4 => (ScaledDotKind::Mxf4nvf4, ScaleVectorSize::X4),
        };
        let [a_code, b_code] = formats.map(|format| scaled_type_code(format, kind));
        let is_power = u32::from(kind != ScaledKind::Nvf4);
        let layout = dot.layout() | a_code << 7 | b_code << 10 | is_power << 23;
        let memories = scales.map(|scale| self.tensor_memory_of(scale).clone());
        let starts = scales.map(|scale| self.scalar(scale));
        let in_step = kind.depth() / kind.block();
        self.dot_steps(&dot, |lowering, guard, step| {
            // The scales of a step are in one cell, from a byte on that the descriptor states.
            let first = step.index * in_step;
            let byte = first % SCALES_IN_CELL;
            let layout = layout | byte << 4 | byte << 29;
            let layout = lowering.builder.register(Width::B32, Scalar::constant(layout.into())).into();
            let mut address = |operand: usize, row: u32| {
                let offset = memories[operand].block_address(row, first);
                lowering.builder.address(Width::B32, starts[operand].plus(Width::B32, offset.into()))
            };
            let [scales_a, scales_b] = [address(0, step.row), address(1, step.column)];
            let instruction = isa::Tcgen05MmaScaled {
                group,
                kind: instruction_kind,
                block_scale: true,
                vector_size: Some(vector_size),
                collector: None,
                d: step.d,
                a: step.a,
                b: step.b,
                layout,
                scales_a,
                scales_b,
                accumulate: step.accumulate,
            };
            lowering.builder.emit_if(Some(guard), instruction);
        });
        Ok(())
    }

    /// Returns whether a buffer has padding: an operand of e2m1.
    fn is_padded(&self, value: Value) -> bool {
        self.kernel.ty(value).as_memory().is_some_and(|buffer| !buffer.padding.is_none())
    }

    /// Returns the operands of a dot.
    fn tensor_dot(&mut self, inst: Inst, operands: &TensorDotOperands) -> Result<TensorDot, Box<Diagnostic>> {
        self.require(inst, Feature::Tcgen05)?;
        let TensorDotOperands { a, b, acc, use_acc, transposed } = *operands;
        let memory = self.tensor_memory_of(acc).clone();
        let block = memory.block;
        let left = match self.kernel.ty(a).as_tensor_memory().cloned() {
            Some(left) => LeftMatrix::TensorMemory(self.scalar(a), left),
            None => LeftMatrix::Shared(self.shared_operand(inst, (a, 0, block.rows), transposed[0])?),
        };
        // Each block of a pair has a part of the columns of B.
        let columns = block.columns / memory.cta_group;
        let right = self.shared_operand(inst, (b, 1, columns), transposed[1])?;
        let depth = self.tile(a).shape[usize::from(!transposed[0])];
        let step = DEPTH_BYTES / left.bytes();
        let (start, initial) = (self.scalar(acc), self.scalar(use_acc));
        Ok(TensorDot { left, right, memory, steps: depth / step, start, initial })
    }

    /// Emits the instructions of a dot, each by `each`, for the thread of the predicate.
    fn dot_steps(&mut self, dot: &TensorDot, mut each: impl FnMut(&mut Self, Predicate, TensorDotStep)) {
        let TensorDot { left, right, memory, start, initial, .. } = dot;
        let [rows, columns] = [memory.shape[0], memory.shape[1]];
        let [left_step, right_step] = [left.bytes(), right.bytes].map(|bytes| DEPTH_BYTES / bytes);
        let elected = self.elected_in_group();
        self.fence_after_synchronization();
        for row in (0..rows).step_by(memory.block.rows as usize) {
            for column in (0..columns).step_by(memory.block.columns as usize) {
                let place = start.plus(Width::B32, memory.block_address(row, column).into());
                let d = self.builder.address(Width::B32, place);
                for index in 0..dot.steps {
                    let accumulates = if index == 0 { *initial } else { Scalar::TRUE };
                    let accumulate = Condition::Predicate(self.builder.predicate(accumulates));
                    let a = self.left_operand(left, row, index * left_step);
                    let descriptor = right.at([index * right_step, column]);
                    let b = self.builder.register(Width::B64, descriptor).into();
                    each(self, elected, TensorDotStep { row, column, index, d, a, b, accumulate });
                }
            }
        }
    }

    fn left_operand(&mut self, left: &LeftMatrix, row: u32, k: u32) -> LeftOperand {
        match left {
            LeftMatrix::Shared(shared) => {
                let descriptor = self.builder.register(Width::B64, shared.at([row, k]));
                LeftOperand::Descriptor(descriptor.into())
            }
            LeftMatrix::TensorMemory(start, memory) => {
                let within = k % memory.block.columns * memory_bits(memory.element) / CELL_BITS;
                let offset = memory.block_address(row, k) + within;
                let address: Address =
                    self.builder.address(Width::B32, start.plus(Width::B32, offset.into()));
                LeftOperand::TensorMemory(address)
            }
        }
    }

    /// Returns an operand in shared memory: the buffer, or its transpose. Each instruction reads
    /// `extent` elements along `mn_axis`, the axis that is not reduced.
    fn shared_operand(
        &mut self,
        inst: Inst,
        (value, mn_axis, extent): (Value, usize, u32),
        is_transposed: bool,
    ) -> Result<SharedOperand, Box<Diagnostic>> {
        let own = self.layout(value);
        let memory = &if is_transposed { own.transpose(&[1, 0]) } else { own.clone() };
        let bits = memory_bits(self.element(value));
        let form = if self.is_padded(value) {
            MatrixForm::of_padded(memory, mn_axis, extent)
        } else {
            MatrixForm::of_tensor_dot(memory, mn_axis, extent, bits)
        };
        let form = form.ok_or_else(|| {
            let (operand, name) = (["A", "B"][mn_axis], self.kernel.insts[inst].op.name());
            let what = format!(
                "operand {operand} of `{name}`, {}, has a layout that no matrix descriptor describes: {memory}",
                self.kernel.ty(value)
            );
            let hint = "in Gluon, allocate it with an `NVMMASharedLayout`, such as \
                        `gl.NVMMASharedLayout.get_default_for(shape, dtype)`";
            Box::new(self.located(inst, Diagnostic::new(Code::LayoutMismatch, what)).hint(hint))
        })?;
        Ok(self.described(value, memory, form))
    }

    /// Returns a matrix in shared memory with the descriptor of this form.
    fn described(&mut self, value: Value, memory: &Layout, form: MatrixForm) -> SharedOperand {
        let padding = if self.is_padded(value) { 2 } else { 1 };
        let bytes = memory_bits(self.element(value)) / 8 * padding;
        let placement = memory.inverse().expect("the verifier checks that a buffer holds each element once");
        let address = self.scalar(value);
        let unit = self.builder.shr(Width::B32, false, address, DESCRIPTOR_UNIT.ilog2());
        let unit = self.builder.bitwise(Bitwise::And, Width::B32, unit, Scalar::constant(0x3fff));
        let [low, high] = form.words();
        let low = self.builder.bitwise(Bitwise::Or, Width::B32, unit, Scalar::constant(low.into()));
        let high = Scalar::constant((high | DESCRIPTOR_VERSION).into());
        let descriptor = self.join_words(Width::B64, &[low, high]);
        SharedOperand { placement, bytes, descriptor, is_mn_major: form.is_mn_major }
    }

    pub(super) fn lower_tcgen05_copy(&mut self, inst: Inst, [source, memory]: [Value; 2]) -> Lowered {
        self.require(inst, Feature::Tcgen05)?;
        let to = self.tensor_memory_of(memory).clone();
        let from = self.layout(source).clone();
        let bits = memory_bits(self.element(source));
        let form = if to.holds_scales() {
            MatrixForm::of_scales(&from)
        } else {
            MatrixForm::of_tensor_dot(&from, 0, to.block.rows, bits).filter(|form| !form.is_mn_major)
        };
        let form = form.ok_or_else(|| {
            let what = format!(
                "the source of `tcgen05_copy`, {}, has a layout that no copy to tensor memory reads: {from}",
                self.kernel.ty(source)
            );
            let hint = if to.holds_scales() {
                "give each 32 rows 16 contiguous bytes: four scales along K of rows 32 apart, as in a \
                 [rows / 128, K / 4, 32, 4, 4] array of scales"
            } else {
                "allocate it with an `NVMMASharedLayout` that is not transposed"
            };
            Box::new(self.located(inst, Diagnostic::new(Code::LayoutMismatch, what)).hint(hint))
        })?;
        let matrix = self.described(source, &from, form);
        let (shape, multicast, columns) = if to.holds_scales() {
            (TensorMemoryCopyShape::L32x128b, Some(LaneMulticast::Quarters), 4)
        } else {
            (TensorMemoryCopyShape::L128x256b, None, DEPTH_BYTES * 8 / CELL_BITS)
        };
        let start = self.scalar(memory);
        let (elected, group) = (self.elected_in_group(), self.cta_group());
        self.fence_after_synchronization();
        for column in (0..to.slot_columns()).step_by(columns as usize) {
            let place = start.plus(Width::B32, column.into());
            let destination = self.builder.address(Width::B32, place);
            let descriptor = matrix.at(to.element_at(column));
            let copy = isa::Tcgen05Cp {
                group,
                shape,
                multicast,
                format: None,
                destination,
                source: self.builder.register(Width::B64, descriptor).into(),
            };
            self.builder.emit_if(Some(elected), copy);
        }
        Ok(())
    }

    pub(super) fn lower_tcgen05_commit(
        &mut self,
        inst: Inst,
        [barriers, slot]: [Value; 2],
        pair: bool,
    ) -> Lowered {
        self.require(inst, Feature::Tcgen05)?;
        let (elected, group) = (self.elected_in_group(), self.cta_group());
        let mask = pair.then(|| self.mask_of_pair());
        let mbarrier = self.mbarrier(barriers, slot);
        let commit = isa::Tcgen05Commit {
            group,
            arrive_one: true,
            space: Some(StateSpace::SharedCluster),
            multicast: pair,
            ty: ScalarType::B64,
            mbarrier,
            mask,
        };
        self.builder.emit_if(Some(elected), commit);
        Ok(())
    }

    /// Returns the mask of the two blocks of the own pair.
    fn mask_of_pair(&mut self) -> Source {
        let both = Scalar::constant(0b11);
        let blocks = self.program.header.cluster;
        if blocks == 2 {
            return self.builder.source(Width::B16, both);
        }
        let rank = self.special(SpecialRegister::ClusterCtaRank);
        let first = self.mask(rank, blocks - 2);
        let [a, b] = [both, first].map(|value| self.builder.source(Width::B32, value));
        let mask = self.builder.pure(Width::B32, |d| isa::Shl { ty: ScalarType::B32, d, a, b });
        let mask = self.low_half(mask);
        self.builder.source(Width::B16, mask)
    }
}

/// Returns the elements that a cell can hold.
fn cell_words(element: Element) -> Words {
    Words::new(element, (CELL_BITS / memory_bits(element)) as usize)
}
