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
use tilewright_ir::{Element, Inst, Value};
use tilewright_layout::{Layout, Placement};

use super::builder::{Scalar, Width, destinations};
use super::control::jump;
use super::integer::Bitwise;
use super::matrix_descriptor::{DEPTH_BYTES, MatrixForm};
use super::memory::{Words, plain_load};
use super::{LANES, Lowered, Lowering, memory_bits};
use crate::isa::{
    self, Address, Comparison, Condition, CtaGroup, DestinationVector, LaneMulticast, LeftOperand, RegisterId,
    RepetitionCount, ScalarType, Source, SourceVector, StateSpace, TensorDotKind, TensorMemoryCopyShape,
    TensorMemoryShape,
};

/// The bits of a cell of tensor memory.
const CELL_BITS: u32 = 32;
/// The warps that together access all lanes.
const WARPS: u32 = 4;
/// The unit of addresses in descriptors, in bytes.
const DESCRIPTOR_UNIT: u32 = 16;
/// The version of descriptors of shared memory, in their high word.
const DESCRIPTOR_VERSION: u32 = 1 << 14;
const GROUP: CtaGroup = CtaGroup::One;

/// An operand of a dot in shared memory.
struct SharedOperand {
    placement: Placement,
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
enum LeftMatrix<'p> {
    Shared(SharedOperand),
    /// The address of the first element.
    TensorMemory(Scalar, &'p TensorMemory),
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
        (ScalarType::F32, true) | (ScalarType::Bf16 | ScalarType::E5m2, false) => 1,
        (ScalarType::Tf32, false) => 2,
        _ => 0,
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
        self.in_first_warp(|lowering| {
            lowering.builder.emit(isa::Tcgen05Alloc {
                group: GROUP,
                sync_aligned: true,
                space: Some(StateSpace::SharedCta),
                ty: ScalarType::B32,
                destination: place,
                columns: i64::from(columns).into(),
            });
            lowering.builder.emit(isa::Tcgen05RelinquishAllocPermit { group: GROUP, sync_aligned: true });
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
        self.fence_before_synchronization();
        self.wait();
        self.fence_after_synchronization();
        self.in_first_warp(|lowering| {
            lowering.builder.emit(isa::Tcgen05Dealloc {
                group: GROUP,
                sync_aligned: true,
                ty: ScalarType::B32,
                address,
                columns: i64::from(columns).into(),
            });
        });
        Ok(())
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

    pub(super) fn lower_tcgen05_mma(
        &mut self,
        inst: Inst,
        [a, b, acc]: [Value; 3],
        use_acc: Value,
        transposed: [bool; 2],
    ) -> Lowered {
        self.require(inst, Feature::Tcgen05)?;
        let memory = self.tensor_memory_of(acc).clone();
        let block = memory.block;
        let types = self.mma_types([a, b, acc]).ok_or_else(|| self.no_op(inst))?;
        let left = match self.kernel.ty(a).as_tensor_memory() {
            Some(left) => LeftMatrix::TensorMemory(self.scalar(a), left),
            None => LeftMatrix::Shared(self.shared_operand(inst, (a, 0, block.rows), transposed[0])?),
        };
        let right = self.shared_operand(inst, (b, 1, block.columns), transposed[1])?;
        let is_left_transposed = matches!(&left, LeftMatrix::Shared(shared) if shared.is_mn_major);
        let [d_ty, a_ty, b_ty] = types;
        let layout = type_code(d_ty, true) << 4
            | type_code(a_ty, false) << 7
            | type_code(b_ty, false) << 10
            | u32::from(is_left_transposed) << 15
            | u32::from(right.is_mn_major) << 16
            | (block.columns / 8) << 17
            | (block.rows / 16) << 24;
        let kind = match a_ty {
            ScalarType::F16 | ScalarType::Bf16 => TensorDotKind::F16,
            ScalarType::Tf32 => TensorDotKind::Tf32,
            _ => TensorDotKind::F8f6f4,
        };
        let [rows, columns] = [memory.shape[0], memory.shape[1]];
        let depth = self.tile(a).shape[usize::from(!transposed[0])];
        let step = DEPTH_BYTES / right.bytes;
        let (start, initial) = (self.scalar(acc), self.scalar(use_acc));
        let elected = self.elected();
        self.fence_after_synchronization();
        for row in (0..rows).step_by(block.rows as usize) {
            for column in (0..columns).step_by(block.columns as usize) {
                let place = start.plus(Width::B32, memory.block_address(row, column).into());
                let d = self.builder.address(Width::B32, place);
                for k in (0..depth).step_by(step as usize) {
                    let accumulates = if k == 0 { initial } else { Scalar::TRUE };
                    let accumulate = Condition::Predicate(self.builder.predicate(accumulates));
                    let a = self.left_operand(&left, row, k);
                    let b = self.builder.register(Width::B64, right.at([k, column])).into();
                    let layout = self.builder.register(Width::B32, Scalar::constant(layout.into())).into();
                    let dot = isa::Tcgen05Mma {
                        group: GROUP,
                        kind,
                        shift_a: false,
                        collector: None,
                        d,
                        a,
                        b,
                        layout,
                        disabled_lanes: None,
                        accumulate,
                        scale_d: None,
                    };
                    self.builder.emit_if(Some(elected), dot);
                }
            }
        }
        Ok(())
    }

    fn left_operand(&mut self, left: &LeftMatrix<'_>, row: u32, k: u32) -> LeftOperand {
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
        let form = MatrixForm::of_tensor_dot(memory, mn_axis, extent, bits).ok_or_else(|| {
            let operand = ["A", "B"][mn_axis];
            let what = format!(
                "operand {operand} of `tcgen05_mma`, {}, has a layout that no matrix descriptor describes: {memory}",
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
        let bytes = memory_bits(self.element(value)) / 8;
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
        let elected = self.elected();
        self.fence_after_synchronization();
        for column in (0..to.slot_columns()).step_by(columns as usize) {
            let place = start.plus(Width::B32, column.into());
            let destination = self.builder.address(Width::B32, place);
            let descriptor = matrix.at(to.element_at(column));
            let copy = isa::Tcgen05Cp {
                group: GROUP,
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

    pub(super) fn lower_tcgen05_commit(&mut self, inst: Inst, [barriers, slot]: [Value; 2]) -> Lowered {
        self.require(inst, Feature::Tcgen05)?;
        let elected = self.elected();
        let mbarrier = self.mbarrier(barriers, slot);
        let commit = isa::Tcgen05Commit {
            group: GROUP,
            arrive_one: true,
            space: Some(StateSpace::SharedCluster),
            multicast: false,
            ty: ScalarType::B64,
            mbarrier,
            mask: None,
        };
        self.builder.emit_if(Some(elected), commit);
        Ok(())
    }
}

/// Returns the elements that a cell can hold.
fn cell_words(element: Element) -> Words {
    Words::new(element, (CELL_BITS / memory_bits(element)) as usize)
}
