//! Asynchronous dots of warpgroups. PTX ISA: "Asynchronous Warpgroup Level Matrix
//! Multiply-Accumulate Instructions: `wgmma.mma_async`, `wgmma.fence`, `wgmma.commit_group`,
//! `wgmma.wait_group`".
//!
//! The instruction accumulates in registers that no other instruction may access before the wait.
//! So a dot starts with new registers, to which the initial accumulator is copied. Zeros are not
//! copied. Registers in which a loop carries the accumulator for only the dot are used directly.
//! Further dots on a `pending` accumulator may start before the wait, in the same registers.

use std::ops::Range;

use rustc_hash::FxHashSet;
use tilewright_base::{Code, Diagnostic};
use tilewright_gpu_ir::Feature;
use tilewright_gpu_ir::{GpuOp, MmaShape, Op, Type};
use tilewright_ir as ir;
use tilewright_ir::{Definition, Inst, Value};
use tilewright_layout::{Fragment, Input, Layout, Mma, Placement};

use super::builder::{Scalar, Width};
use super::dot::DotOperand;
use super::float::Float;
use super::integer::Bitwise;
use super::matrix_descriptor::{DEPTH_BYTES, MatrixForm};
use super::memory::Words;
use super::{LANES, Lowered, Lowering, memory_bits};
use crate::isa::{self, Accumulators, Comparison, MatrixShape, RegisterId, ScalarType, Source, Sources};

/// The number of rows of A that an instruction reads.
const ROWS: u32 = 64;
/// The number of warps of a warpgroup.
const GROUP_WARPS: u32 = 4;
const GROUP_THREADS: u32 = GROUP_WARPS * LANES;
/// The unit of addresses in descriptors, in bytes.
const DESCRIPTOR_UNIT: u32 = 16;
/// A NaN that no instruction produces.
const NO_RESULT: u64 = 0xffed_cba9;

/// An operand in shared memory.
struct SharedMatrix {
    placement: Placement,
    form: MatrixForm,
    bytes: u32,
    /// The descriptor of this warpgroup's first part of the matrix.
    descriptor: Scalar,
    /// The first row and column that the dot reads.
    start: [u32; 2],
}

/// The parts of A and B in shared memory that a dot reads.
pub(super) struct WgmmaWindow {
    /// The first row and column of A, and those of B.
    pub starts: [[u32; 2]; 2],
    /// The extent along K.
    pub depth: u32,
}

/// The source of A.
enum Left {
    /// Registers: the words of each fragment of A, adjacent along K.
    Words(Vec<Sources>),
    Shared(SharedMatrix),
}

/// The operands that the instructions of one dot share.
struct WgmmaDot {
    shape: MmaShape,
    types: [ScalarType; 3],
    left: Left,
    right: SharedMatrix,
}

/// The division of the accumulator into parts. An instruction adds one step along K to one part.
#[derive(Clone, Copy)]
struct Parts<'a> {
    /// The layout of the accumulator.
    layout: &'a Layout,
    /// The elements of each part in a thread.
    held: u32,
    /// The number of parts of a thread along N.
    columns: u32,
    /// The number of steps along K.
    depth: u32,
}

impl SharedMatrix {
    /// Returns the descriptor of the part at these coordinates. They are relative to the
    /// warpgroup's first part.
    fn at(&self, [row, column]: [u32; 2]) -> Scalar {
        let coordinates = [self.start[0] + row, self.start[1] + column];
        let offset = self.placement.apply(self.placement.input().index(&coordinates)) * self.bytes;
        self.descriptor.plus(Width::B64, u64::from(offset / DESCRIPTOR_UNIT))
    }
}

impl Lowering<'_> {
    pub(super) fn lower_wgmma(
        &mut self,
        inst: Inst,
        [a, b, acc]: [Value; 3],
        transposed: [bool; 2],
        (shape, warps): (MmaShape, [u32; 2]),
        (max_imprecise_acc, window): (u32, WgmmaWindow),
    ) -> Lowered {
        let types = self.wgmma_types(inst, [a, b, acc], shape)?;
        let layout = self.layout(self.kernel.insts[inst].results[0]);
        let left = match self.kernel.ty(a).as_memory() {
            Some(_) => {
                let matrix = self.shared_matrix(inst, (a, 0, ROWS), transposed[0], layout)?;
                Left::Shared(SharedMatrix { start: window.starts[0], ..matrix })
            }
            None => Left::Words(self.left_words(a, types, shape, warps)),
        };
        let right = self.shared_matrix(inst, (b, 1, shape.n), transposed[1], layout)?;
        let right = SharedMatrix { start: window.starts[1], ..right };
        let dot = WgmmaDot { shape, types, left, right };
        let depth = window.depth / shape.k;
        let columns = (self.tile(acc).shape[1] / (shape.n * warps[1])).max(1);
        let parts = Parts { layout, held: shape.m * shape.n / GROUP_THREADS, columns, depth };
        let is_wide = self.width(acc) == Width::B32;
        let steps = exact_steps(types, shape, max_imprecise_acc).filter(|_| is_wide);
        let begins = steps.is_none() && self.is_zero(acc);
        let sums = if begins { self.sums_of(acc, layout) } else { self.accumulators(inst, acc, layout) };
        if let Some(steps) = steps {
            for first in (0..depth).step_by(steps as usize) {
                self.multiply_apart(&dot, &parts, &sums, first..depth.min(first + steps));
            }
        } else {
            self.multiply_parts(&dot, &parts, &sums, (0..depth, !begins));
        }
        self.builder.emit(isa::WgmmaCommitGroup {});
        self.set_result(inst, sums.into_iter().map(Scalar::from).collect::<Vec<_>>());
        Ok(())
    }

    /// Emits the instructions of all parts for a range of steps along K. Without `accumulates`,
    /// each part's first instruction overwrites the registers.
    fn multiply_parts(
        &mut self,
        dot: &WgmmaDot,
        parts: &Parts<'_>,
        sums: &[RegisterId],
        (steps, accumulates): (Range<u32>, bool),
    ) {
        let Parts { layout, held, columns, depth } = *parts;
        let shape = dot.shape;
        let count = layout.registers() / held;
        // Earlier writes of the registers precede the dot.
        self.builder.emit(isa::WgmmaFence {});
        for (part, sums) in (0..count).zip(sums.chunks(sums.len() / count as usize)) {
            let place = layout.coordinates(&[(Input::Register, part * held)]);
            for k in steps.clone() {
                let a = match &dot.left {
                    Left::Words(words) => words[(part / columns * depth + k) as usize].clone(),
                    Left::Shared(matrix) => self.descriptor(matrix.at([place[0], k * shape.k])).into(),
                };
                let b = self.descriptor(dot.right.at([k * shape.k, place[1]]));
                let accumulates = accumulates || k != steps.start;
                self.multiply_group(dot, sums, (a, b), accumulates);
            }
        }
    }

    /// Computes steps along K in separate registers, waits, and adds the result.
    fn multiply_apart(&mut self, dot: &WgmmaDot, parts: &Parts<'_>, sums: &[RegisterId], steps: Range<u32>) {
        let own: Vec<RegisterId> = sums.iter().map(|_| self.builder.fresh(Width::B32)).collect();
        self.multiply_parts(dot, parts, &own, (steps, false));
        self.builder.emit(isa::WgmmaCommitGroup {});
        self.builder.emit(isa::WgmmaWaitGroup { n: 0.into() });
        for (sum, own) in sums.iter().zip(own) {
            let total = self.builder.add_rn(Float::F32, (*sum).into(), own.into());
            self.builder.assign(Width::B32, *sum, total);
        }
    }

    /// Returns the types of D, A and B. Fails without `wgmma`, for other types or shapes, and if
    /// the first warp does not begin a warpgroup.
    fn wgmma_types(
        &self,
        inst: Inst,
        [a, b, acc]: [Value; 3],
        shape: MmaShape,
    ) -> Result<[ScalarType; 3], Box<Diagnostic>> {
        self.require(inst, Feature::Wgmma)?;
        let types = self.mma_types([a, b, acc]).filter(|types| has_types(*types)).ok_or_else(|| {
            let [a, b, acc] = [a, b, acc].map(|value| self.dtype(value));
            self.unsupported(inst, &format!("`wgmma` of {a} and {b} that accumulates in {acc}"))
        })?;
        let tile = self.tile(acc);
        if tile.rank() != 2 || shape.m != ROWS || shape.k * memory_bits(self.element(a)) != DEPTH_BYTES * 8 {
            return Err(self.unsupported(inst, &format!("`wgmma` of {tile} by {shape:?}")));
        }
        if !self.warps.first.is_multiple_of(GROUP_WARPS) {
            return Err(self.unsupported(inst, "`wgmma` by warps that are not a warpgroup"));
        }
        Ok(types)
    }

    /// Returns whether an accumulator is zeros, which the instruction need not read.
    fn is_zero(&self, acc: Value) -> bool {
        ir::constant_of(self.kernel, acc).is_some_and(|value| value.bits == 0)
    }

    /// Returns uninitialized registers for an accumulator.
    fn sums_of(&mut self, acc: Value, layout: &Layout) -> Vec<RegisterId> {
        let in_word = if self.width(acc) == Width::B16 { 2 } else { 1 };
        (0..layout.registers() / in_word).map(|_| self.builder.fresh(Width::B32)).collect()
    }

    /// Returns the registers of a dot's accumulator, with the initial values.
    fn accumulators(&mut self, inst: Inst, acc: Value, layout: &Layout) -> Vec<RegisterId> {
        if let Type::Pending { .. } = self.kernel.ty(acc) {
            let own = self.get(acc);
            own.iter().map(|scalar| scalar.base.expect("a dot in flight is in registers")).collect()
        } else {
            let own = self.get_in(acc, Some(layout));
            if let Some(carried) = self.carried_for(inst, acc, &own) {
                return carried;
            }
            let in_word = if self.width(acc) == Width::B16 { 2 } else { 1 };
            let words = Words::new(self.element(acc), in_word);
            let copy = |elements: &[Scalar]| {
                let word = self.builder.pack(words, elements);
                let register = self.builder.fresh(Width::B32);
                self.builder.assign(Width::B32, register, word);
                register
            };
            own.chunks(in_word).map(copy).collect()
        }
    }

    /// Returns a loop's registers of an accumulator, if the dot may accumulate there. The dot is in
    /// the loop's body, and the only reader of the accumulator. Returns `None` for a body's only
    /// dot, whose copies the assembler removes.
    fn carried_for(&self, dot: Inst, acc: Value, scalars: &[Scalar]) -> Option<Vec<RegisterId>> {
        let Definition::Parameter(body, _) = self.kernel.values[acc].definition else { return None };
        let insts = &self.kernel.blocks[body].insts;
        let is_dot = |inst: &&Inst| matches!(self.kernel.insts[**inst].op, Op::Gpu(GpuOp::Wgmma { .. }));
        let may_accumulate = body != self.kernel.entry
            && insts.contains(&dot)
            && insts.iter().filter(is_dot).count() > 1
            && self.reads.of(acc) == 1
            && self.width(acc) == Width::B32;
        let own = scalars.iter().map(|scalar| scalar.base.filter(|_| scalar.offset == 0));
        let own: Vec<RegisterId> = own.collect::<Option<_>>().filter(|_| may_accumulate)?;
        let distinct: FxHashSet<RegisterId> = own.iter().copied().collect();
        (distinct.len() == own.len()).then_some(own)
    }

    /// Returns the words of each fragment of A in registers. A fragment is a step along K of a part
    /// along M.
    fn left_words(
        &mut self,
        a: Value,
        types: [ScalarType; 3],
        shape: MmaShape,
        warps: [u32; 2],
    ) -> Vec<Sources> {
        let mma = Mma::new(shape.m, shape.n, shape.k, memory_bits(self.element(a)));
        let layout = mma.layout(Fragment::A, &self.tile(a).shape, warps);
        let held = shape.m * shape.k / GROUP_THREADS;
        let mut operand = DotOperand::Registers(self.get_in(a, Some(&layout)));
        let parts = 0..layout.registers() / held;
        parts.map(|part| self.fragment(&mut operand, types[1], a, part, held)).collect()
    }

    /// Returns an operand in shared memory: the buffer, or its transpose. Each instruction reads
    /// `extent` elements along `mn_axis`, which is not reduced. `sums` is the layout of the
    /// accumulator, which gives each warpgroup's position.
    fn shared_matrix(
        &mut self,
        inst: Inst,
        (value, mn_axis, extent): (Value, usize, u32),
        is_transposed: bool,
        sums: &Layout,
    ) -> Result<SharedMatrix, Box<Diagnostic>> {
        let own = self.layout(value);
        let memory = &if is_transposed { own.transpose(&[1, 0]) } else { own.clone() };
        let bits = memory_bits(self.element(value));
        let form = MatrixForm::of(memory, mn_axis, extent, bits).ok_or_else(|| {
            let operand = ["A", "B"][mn_axis];
            let what = format!(
                "operand {operand} of `wgmma`, {}, has a layout that no matrix descriptor describes: {memory}",
                self.kernel.ty(value)
            );
            let hint = "in Gluon, allocate it with an `NVMMASharedLayout`, such as \
                        `gl.NVMMASharedLayout.get_default_for(shape, dtype)`";
            Box::new(self.located(inst, Diagnostic::new(Code::LayoutMismatch, what)).hint(hint))
        })?;
        let placement = memory.inverse().expect("the verifier checks that a buffer holds each element once");
        let bytes = bits / 8;
        // Lane and warp bits of a warpgroup add no offset, because it addresses one matrix.
        let own = LANES.ilog2() + GROUP_WARPS.ilog2();
        let mut images = vec![0; own as usize];
        for &image in &sums.bases(Input::Warp)[GROUP_WARPS.ilog2() as usize..] {
            let mut coordinates = [0; 2];
            coordinates[mn_axis] = sums.output().coordinate(image, mn_axis);
            images.push(placement.apply(memory.output().index(&coordinates)) * bytes);
        }
        let thread = self.thread_position(images, self.scalar(value));
        let address = self.shared_position(&thread, 0);
        let unit = self.builder.shr(Width::B32, false, address, DESCRIPTOR_UNIT.ilog2());
        let unit = self.builder.bitwise(Bitwise::And, Width::B32, unit, Scalar::constant(0x3fff));
        let [low, high] = form.words().map(|word| Scalar::constant(word.into()));
        let low = self.builder.bitwise(Bitwise::Or, Width::B32, unit, low);
        let descriptor = self.join_words(Width::B64, &[low, high]);
        Ok(SharedMatrix { placement, form, bytes, descriptor, start: [0, 0] })
    }

    fn descriptor(&mut self, descriptor: Scalar) -> Source {
        Source::Register(self.builder.register(Width::B64, descriptor))
    }

    /// Emits one `wgmma` instruction.
    fn multiply_group(
        &mut self,
        dot: &WgmmaDot,
        sums: &[RegisterId],
        (a, b): (Sources, Source),
        accumulates: bool,
    ) {
        let WgmmaDot { shape, types: [d_ty, a_ty, b_ty], left, right } = dot;
        let is_integer = *d_ty == ScalarType::S32;
        let is_half = matches!(a_ty, ScalarType::F16 | ScalarType::Bf16);
        let sign = (!is_integer).then(|| Source::from(1));
        let transposed = |form: &MatrixForm| is_half.then(|| Source::from(i64::from(form.is_mn_major)));
        let transpose_a = match left {
            Left::Words(_) => None,
            Left::Shared(matrix) => transposed(&matrix.form),
        };
        let accumulates = if accumulates { Scalar::TRUE } else { Scalar::FALSE };
        let accumulates = self.builder.register(Width::Pred, accumulates);
        self.builder.emit(isa::Wgmma {
            shape: MatrixShape { m: shape.m, n: shape.n, k: shape.k },
            d_ty: *d_ty,
            a_ty: *a_ty,
            b_ty: *b_ty,
            operation: None,
            saturate: false,
            d: Accumulators(sums.to_vec()),
            a,
            b,
            scale_d: accumulates.into(),
            scale_a: sign,
            scale_b: sign,
            transpose_a,
            transpose_b: transposed(&right.form),
        });
    }

    pub(super) fn lower_wgmma_init(&mut self, inst: Inst, acc: Value) -> Lowered {
        self.require(inst, Feature::Wgmma)?;
        let layout = self.layout(acc);
        let sums = self.accumulators(inst, acc, layout);
        self.set_result(inst, sums.into_iter().map(Scalar::from).collect::<Vec<_>>());
        Ok(())
    }

    pub(super) fn lower_wgmma_wait_earlier(&mut self, inst: Inst, dot: Value, pending: u32) -> Lowered {
        self.require(inst, Feature::Wgmma)?;
        self.builder.emit(isa::WgmmaWaitGroup { n: i64::from(pending).into() });
        let registers = self.get(dot);
        self.set_result(inst, registers);
        Ok(())
    }

    pub(super) fn lower_wgmma_wait(
        &mut self,
        inst: Inst,
        dot: Value,
        after: Option<Value>,
        pending: Option<u32>,
    ) -> Lowered {
        self.require(inst, Feature::Wgmma)?;
        let pending = pending.ok_or_else(|| self.unsupported(inst, "`wgmma_wait` without a number"))?;
        if let Some(after) = after {
            self.keep_after(after);
        }
        self.builder.emit(isa::WgmmaWaitGroup { n: i64::from(pending).into() });
        let registers = self.get(dot);
        let result = self.kernel.insts[inst].results[0];
        if self.width(result) != Width::B16 {
            self.set(result, registers);
            return Ok(());
        }
        let words = Words::new(self.element(result), 2);
        let halves = registers.iter().flat_map(|&word| self.builder.unpack(words, word));
        let halves: Vec<Scalar> = halves.collect();
        self.set(result, halves);
        Ok(())
    }
}

impl Lowering<'_> {
    /// Keeps the following code after the computation of a value.
    ///
    /// To the assembler, a wait for a dot depends on no value. The assembler hoists the wait, but
    /// not across a profiler event (`pmevent`). The event happens only if the value's last element
    /// is [`NO_RESULT`], which no computation produces.
    fn keep_after(&mut self, value: Value) {
        let last = self.get(value).last().copied().expect("a tile has elements");
        self.keep_after_bits(last);
    }

    /// Keeps the following code after the computation of all elements of a value. The guard is the
    /// xor of all elements. If it equals [`NO_RESULT`] by chance, a profiler counts an event.
    pub(super) fn keep_after_all(&mut self, value: Value) {
        let elements: Vec<Scalar> = self.get(value).to_vec();
        let all = elements.into_iter().reduce(|a, b| self.builder.bitwise(Bitwise::Xor, Width::B32, a, b));
        self.keep_after_bits(all.expect("a tile has elements"));
    }

    fn keep_after_bits(&mut self, bits: Scalar) {
        let never = Scalar::constant(NO_RESULT);
        let happens = self.builder.compare(Width::B32, false, Comparison::Eq, bits, never);
        let guard = self.builder.predicate(happens);
        self.builder.emit_if(Some(guard), isa::Pmevent { mask: false, event: 0.into() });
    }
}

/// Returns the steps along K after which an 8-bit float dot adds in fp32. Tensor cores accumulate
/// with fewer bits. Returns `None` if they accumulate all steps.
fn exact_steps([d, a, _]: [ScalarType; 3], shape: MmaShape, max_imprecise_acc: u32) -> Option<u32> {
    let is_imprecise = d == ScalarType::F32 && matches!(a, ScalarType::E4m3 | ScalarType::E5m2);
    (is_imprecise && max_imprecise_acc > 0).then(|| (max_imprecise_acc / shape.k).max(1))
}

/// Returns whether `wgmma` has these types of D, A and B.
fn has_types([d, a, b]: [ScalarType; 3]) -> bool {
    use ScalarType::{Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    match (a, b) {
        (F16, F16) | (E4m3 | E5m2, E4m3 | E5m2) => matches!(d, F16 | F32),
        (Bf16, Bf16) | (Tf32, Tf32) => d == F32,
        // A signed and an unsigned operand need a later PTX version.
        (S8, S8) | (U8, U8) => d == S32,
        // tidy: wildcard because the instruction has no others.
        _ => false,
    }
}
