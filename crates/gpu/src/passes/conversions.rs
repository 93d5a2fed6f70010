//! Lowers ops that move elements between warps to copies through shared memory. These ops are:
//!
//! - conversions of layouts
//! - reductions, scans (`scans.rs`), and exchanges, merges and histograms (`butterfly.rs`)
//! - gathers
//! - atomic operations whose result several threads need
//! - `wgmma`s whose operands have a layout that the instruction does not read (`wgmma_operands.rs`)
//!
//! ```text
//! %y = convert_layout %x                  %b = alloc ; local_store %b, %x ; %y = local_load %b
//! %y = convert_layout %x ; mma_sync %y    %b = alloc ; local_store %b, %x ; mma_sync %b
//! %s = reduce %x {scope = block}          %p = reduce %x {scope = warp} ; %b = alloc ;
//!                                         local_store %b, %p ; %q = local_load %b ;
//!                                         %s = reduce %q {scope = block}
//! %s = scan %x {scope = block}            see `scans.rs`
//! %y = atomic_rmw … {everywhere}          %x = atomic_rmw … ; %b = alloc ; local_store %b, %x ;
//!                                         %y = local_load %b
//! %x = … ; %y = movement %x, %i           %x = … ; %b = alloc ; local_store %b, %x ;
//!                                         %y = movement %b, %i
//! %p = wgmma %x, … ; %s = wgmma_wait %p   %b = alloc ; local_store %b, %x ; fence_proxy ;
//!                                         %p = wgmma %b, … ; %s = wgmma_wait %p
//! ```
//! Each buffer ends with a `dealloc` after its last use. A value that only dots read stays in
//! shared memory, and the dots load it. The remaining `convert_layout` ops rename registers or
//! shuffle within warps.

use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::{SmallVec, smallvec};
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{self as ir, Block, Cursor, Inst, OpFamily, Operation, Parents, Use, Uses, Value};
use tilewright_layout::{
    ConvertError, Exchange, Input, Layout, Plan, SwizzleMode, bank_use, convert, shared_plan,
    spread_over_lanes, swizzled,
};

use super::boxed::contiguous_axis;
use super::prune::prune;
use super::wgmma_operands::{Staged, without_repeated_fences};
use crate::remarks::{self, RemarkReason};
use crate::tile::legality::at;
use tilewright_gpu_ir::box_layout::rows_of_box;
use tilewright_gpu_ir::commutation::exchange_of_reduction;
use tilewright_gpu_ir::layout_rules::{
    MAX_PARTIAL_RESULTS, default_layout, element_bits, line_layout, reduced_layout, rows,
};
use tilewright_gpu_ir::target::{ACCESS_BYTES, Feature};
use tilewright_gpu_ir::{
    Buffer, Deferred, Function, Gpu, GpuOp, Header, LayoutId, Module, Op, Padding, Scope, Type,
};

const WORD_BITS: u32 = 32;

/// Lowers the ops of a kernel that move elements between warps.
///
/// # Errors
/// If such an op is in a partition of the warps. The barrier between its store and its load would
/// be one of the whole block.
pub fn lower_conversions(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let roles = OperandRoles::new(function);
    let entry = function.entry;
    let moved = SecondaryMap::new();
    let staged = Staged::new(header, function);
    let mut pass = Pass {
        header,
        cursor: Cursor::at_start(function, entry),
        roles,
        moved,
        staged,
        partition_warps: 0,
        refused: None,
    };
    let has_transposes = pass.staged.has_transposes();
    pass.block(entry);
    let refused = pass.refused;
    if has_transposes {
        prune(pass.cursor.function);
    }
    let Some((inst, name)) = refused else { return Ok(()) };
    let message = format!("`{name}` between the warps of a partition is not supported");
    Err(Box::new(
        at(pass.cursor.function, inst, Code::NotOnThisDevice, message).hint("pass the tile through a ring"),
    ))
}

/// The lowering of a conversion.
enum Lowering {
    /// No element leaves its warp.
    WithinWarps,
    /// The value goes through a buffer with this layout. The flag is true if `ldmatrix` loads it.
    Through(Layout, bool),
    /// The value goes to a buffer with this layout, which dots read.
    To(Layout),
}

pub(super) struct Pass<'m> {
    pub(super) header: &'m mut Header,
    pub(super) cursor: Cursor<'m, Gpu>,
    roles: OperandRoles,
    moved: SecondaryMap<Value, PackedOption<Value>>,
    /// The operands of asynchronous dots in shared memory.
    pub(super) staged: Staged,
    /// The number of warps of the partition of the current block; 0 outside of partitions.
    partition_warps: u32,
    /// The first instruction that cannot be lowered in its partition.
    refused: Option<(Inst, &'static str)>,
}

impl Pass<'_> {
    fn block(&mut self, block: Block) {
        let outer = self.cursor.enter(block);
        let insts = self.cursor.take_rest();
        let mut buffers: Vec<Value> = Vec::new();
        for parameter in self.cursor.function.blocks[block].parameters.clone() {
            buffers.extend(self.keep(parameter));
        }
        for inst in insts {
            self.cursor.use_location_of(inst);
            buffers.extend(self.stage_operands(inst, block));
            match &self.cursor.function.insts[inst].op {
                Op::Gpu(GpuOp::ConvertLayout {}) => buffers.extend(self.convert(inst, block)),
                &Op::Gpu(GpuOp::Reduce { axis, scope: Scope::Block, .. }) => self.reduce(inst, axis, block),
                Op::Gpu(GpuOp::Scan { scope: Scope::Block, .. }) => self.scan(inst, block),
                Op::Tile(op @ (ir::Op::Bitonic { .. } | ir::Op::Butterfly { .. })) => {
                    let op = op.clone();
                    self.exchange(inst, &op, block);
                }
                &Op::Tile(ir::Op::Histogram { bins }) => self.histogram(inst, bins),
                Op::Tile(op) if op.family() == OpFamily::Movement => {
                    self.goes_through_memory(inst);
                    self.movement(inst);
                }
                Op::Gpu(op) if op.info().family == OpFamily::Atomic => self.atomic(inst),
                // tidy: wildcard because no other op moves elements between threads
                _ => self.cursor.insert(inst),
            }
            let outside = self.partition_warps;
            for (index, region) in self.cursor.function.insts[inst].regions.clone().into_iter().enumerate() {
                if let Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) = &self.cursor.function.insts[inst].op {
                    self.partition_warps = warps[index] as u32;
                }
                self.block(region);
            }
            self.partition_warps = outside;
            for result in self.cursor.function.insts[inst].results.clone() {
                buffers.extend(self.keep(result));
            }
        }
        self.cursor.go_to(outer);
        let insts = std::mem::take(&mut self.cursor.function.blocks[block].insts);
        self.cursor.function.blocks[block].insts = without_repeated_fences(self.cursor.function, insts);
        self.end_lifetimes(block, &buffers);
    }

    /// Stores the source of gathers to shared memory, once. Returns the buffer.
    fn keep(&mut self, value: Value) -> Option<Value> {
        let is_tile = self.cursor.function.ty(value).as_registers().is_some_and(|tile| !tile.is_scalar());
        if !is_tile || !self.roles.is_moved(self.cursor.function, value) {
            return None;
        }
        let memory = rows(&self.layout(value).output().shape());
        let buffer = self.store(value, &memory);
        self.moved[value] = Some(buffer).into();
        Some(buffer)
    }

    fn movement(&mut self, inst: Inst) {
        let operand = &mut self.cursor.function.insts[inst].operands[0];
        *operand = self.moved[*operand].expand().unwrap_or(*operand);
        self.cursor.insert(inst);
    }

    /// Records an instruction of a partition if it needs a barrier of the block. The compiler's
    /// partitions have none. In partitions that a program states, a later pass inserts named
    /// barriers.
    pub(super) fn goes_through_memory(&mut self, inst: Inst) {
        if self.partition_warps != 0 && !self.header.explicit && self.refused.is_none() {
            self.refused = Some((inst, self.cursor.function.insts[inst].op.name()));
        }
    }

    pub(super) fn warps(&self) -> u32 {
        if self.partition_warps == 0 { self.header.num_warps } else { self.partition_warps }
    }

    pub(super) fn layout(&self, value: Value) -> &Layout {
        let id = self.cursor.function.ty(value).layout().expect("a tile has a layout");
        self.header.layouts.get(id)
    }

    fn bits(&self, value: Value) -> u32 {
        element_bits(
            self.cursor.function.ty(value).as_registers().expect("a converted value is in registers"),
        )
    }

    fn buffer(&mut self, value: Value, memory: &Layout) -> Type {
        let tile = self.cursor.function.ty(value).as_registers().expect("a stored value is in registers");
        let (element, shape) = (tile.element, tile.shape.clone());
        let layout = self.header.layouts.add(memory.clone());
        Type::Buffer(Buffer { slots: 1, element, shape, layout, padding: Padding::default() })
    }

    /// Returns a new buffer that holds a value.
    pub(super) fn store(&mut self, value: Value, memory: &Layout) -> Value {
        let ty = self.buffer(value, memory);
        let buffer = self.cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], ty);
        self.cursor.emit(GpuOp::LocalStore {}, &[buffer, value], []);
        buffer
    }

    /// Lowers a conversion, and returns the buffer if dots read it.
    fn convert(&mut self, inst: Inst, block: Block) -> Option<Value> {
        let data = &self.cursor.function.insts[inst];
        let (from, to) = (data.operands[0], data.results[0]);
        let lowering = self.lowering(from, to, block);
        self.remark(inst, from, to, &lowering);
        if !matches!(lowering, Lowering::WithinWarps) {
            self.goes_through_memory(inst);
        }
        match lowering {
            Lowering::WithinWarps => {
                self.cursor.insert(inst);
                None
            }
            Lowering::Through(memory, matrix) => {
                let buffer = self.store(from, &memory);
                let data = &mut self.cursor.function.insts[inst];
                data.op = GpuOp::LocalLoad { matrix }.into();
                data.operands = smallvec![buffer];
                self.cursor.insert(inst);
                self.cursor.emit(GpuOp::Dealloc {}, &[buffer], []);
                None
            }
            Lowering::To(memory) => {
                let ty = self.buffer(from, &memory);
                self.cursor.function.values[to].ty = ty;
                let data = &mut self.cursor.function.insts[inst];
                data.op = GpuOp::Alloc { offset: Deferred(None) }.into();
                data.operands = smallvec![];
                self.cursor.insert(inst);
                self.cursor.emit(GpuOp::LocalStore {}, &[to, from], []);
                Some(to)
            }
        }
    }

    fn remark(&self, inst: Inst, from: Value, to: Value, lowering: &Lowering) {
        let tile = self.cursor.function.ty(from).as_registers();
        let subject = || remarks::subject(self.cursor.function, inst, tile);
        remarks::about("conversions", self.cursor.function, inst, subject, || {
            let (source, target, bits) = (self.layout(from), self.layout(to), self.bits(from));
            let layouts = format!("from {source} to {target}");
            let plan =
                || self.plan(source, target, bits).map_or_else(|_| String::new(), |plan| plan.to_string());
            match lowering {
                Lowering::WithinWarps => {
                    RemarkReason::done(plan(), format!("no element leaves its warp; {layouts}"))
                }
                Lowering::Through(memory, matrix) => {
                    let conflicts = bank_use(memory, source, bits, u32::MAX).conflicts();
                    let by = if *matrix { ", loaded by ldmatrix" } else { "" };
                    let reason =
                        format!("elements change warps; {conflicts} bank conflicts a store; {layouts}");
                    RemarkReason::note(format!("shared memory: {}{by}", plan()), reason)
                }
                Lowering::To(memory) => {
                    let conflicts = bank_use(memory, source, bits, u32::MAX).conflicts();
                    let decision = "shared memory, from where dots read it".to_owned();
                    RemarkReason::note(
                        decision,
                        format!("{conflicts} bank conflicts a store; the buffer is {memory}"),
                    )
                }
            }
        });
    }

    fn plan(&self, from: &Layout, to: &Layout, bits: u32) -> Result<Plan, ConvertError> {
        convert(from, to, bits, self.header.target.tuning.conversion_trip_cost)
    }

    fn lowering(&self, from: Value, to: Value, block: Block) -> Lowering {
        let (source, target, bits) = (self.layout(from), self.layout(to), self.bits(from));
        if self.roles.is_fma_operand(self.cursor.function, to) {
            return Lowering::To(self.fma_memory(source, target, bits, from));
        }
        // A layout distributes a tile within one block.
        let Plan::Shared(plan) = self.plan(source, target, bits).expect("no element leaves its block") else {
            return Lowering::WithinWarps;
        };
        let contiguous = contiguous_axis(self.header, self.cursor.function, from);
        if !self.roles.is_dot_operand(self.cursor.function, to) {
            let boxed = |axis| rows_of_box(&source.output().shape(), axis, bits);
            if let Some(axis) = contiguous.filter(|_| self.roles.is_wgmma_a(self.cursor.function, to)) {
                return Lowering::Through(boxed(axis), false);
            }
            // If the tile was loaded along this axis for `mma_sync`, use the layout of a box.
            // Threads load whole words from it.
            if let Some(axis) =
                contiguous.filter(|_| source.output().rank() == 2 && self.roles.mma_inputs.contains(to))
            {
                let memory = boxed(axis);
                let matrix = self.header.target.features.has(Feature::LdMatrix)
                    && target.matrix_access(&memory, bits).is_some();
                if matrix || target.vector_along(axis).width() * bits >= WORD_BITS {
                    return Lowering::Through(memory, matrix);
                }
            }
            return Lowering::Through(plan.memory, false);
        }
        let swizzled = self.matrix_memory(source, target, bits, contiguous);
        let (memory, matrix) = swizzled.map_or((plan.memory, false), |memory| (memory, true));
        let registers = target.registers() * bits / 32;
        if self.roles.is_used_outside(to, block)
            && registers <= self.header.target.tuning.kept_operand_registers
        {
            Lowering::Through(memory, matrix)
        } else {
            Lowering::To(memory)
        }
    }

    /// Returns the layout of a buffer that an FMA dot reads with the fewest wavefronts and
    /// instructions. A box is preferred, because a tensor copy may fill it.
    fn fma_memory(&self, source: &Layout, target: &Layout, bits: u32, from: Value) -> Layout {
        let shape = source.output().shape();
        let contiguous = contiguous_axis(self.header, self.cursor.function, from);
        let boxes = contiguous.filter(|_| shape.len() == 2).into_iter().flat_map(|axis| {
            let modes = [SwizzleMode::None, SwizzleMode::widest(shape[axis] * bits / 8)];
            modes.map(|mode| swizzled(&shape, &[axis, 1 - axis], bits, mode))
        });
        let memories = boxes.chain([shared_memory(source, target, bits)]);
        let cost = |memory: &Layout| {
            let used = bank_use(memory, target, bits, u32::MAX);
            used.wavefronts + used.instructions
        };
        memories.min_by_key(cost).expect("there is a plan")
    }

    /// Returns the layout of a buffer that `ldmatrix` reads without bank conflicts. Returns `None`
    /// if `ldmatrix` cannot load the operand.
    fn matrix_memory(
        &self,
        source: &Layout,
        target: &Layout,
        bits: u32,
        contiguous: Option<usize>,
    ) -> Option<Layout> {
        if !self.header.target.features.has(Feature::LdMatrix) {
            return None;
        }
        let shape = source.output().shape();
        let rank = shape.len();
        // Rows are along the axis that is contiguous in global memory. Without such an axis, they
        // are along the last axis with the widest vectors of the source.
        let axis = contiguous.or_else(|| (0..rank).max_by_key(|axis| source.vector_along(*axis).width()))?;
        let order: Vec<usize> =
            [axis].into_iter().chain((0..rank).rev().filter(|other| *other != axis)).collect();
        let memory = swizzled(&shape, &order, bits, SwizzleMode::widest(shape[axis] * bits / 8));
        target.matrix_access(&memory, bits).map(|_| memory)
    }

    /// Lowers a reduction. If several warps hold a line along the axis, each warp first reduces its
    /// own elements.
    fn reduce(&mut self, inst: Inst, axis: u32, block: Block) {
        let operands = self.cursor.function.insts[inst].operands.clone();
        let layout = self.layout(operands[0]).clone();
        let Some(Exchange { partials, gathered }) = exchange_of_reduction(
            self.cursor.function,
            self.cursor.function.insts[inst].regions[0],
            &layout,
            axis as usize,
        ) else {
            self.cursor.insert(inst);
            return;
        };
        self.goes_through_memory(inst);
        if partials.output().size(partials.output().rank() - 1) > MAX_PARTIAL_RESULTS {
            self.reduce_in_lines(inst, axis, &layout, block);
            return;
        }
        let widest =
            operands.iter().map(|value| self.bits(*value) / 8).max().expect("a reduction has operands");
        let gathered = spread_over_lanes(&gathered, ACCESS_BYTES / widest).unwrap_or(gathered);
        let shape: tilewright_ir::Shape = partials.output().shape().into_iter().collect();
        let [from, to] = [&partials, &gathered].map(|layout| self.header.layouts.add(layout.clone()));
        let tile = |value: &Value| {
            let tile = self.cursor.function.ty(*value).as_registers().expect("a reduction has tiles");
            tile.with_shape(shape.clone())
        };
        let tiles: Vec<tilewright_ir::Type> = operands.iter().map(tile).collect();
        let region = self.cursor.function.clone_region(self.cursor.function.insts[inst].regions[0]);
        let op = GpuOp::Reduce { axis, scope: Scope::Warp, redux: false };
        let types: Vec<Type> = tiles.iter().map(|tile| Type::registers(tile.clone(), Some(from))).collect();
        let parts = self.cursor.emit_with_regions(op, &operands, smallvec![region], types);
        let types = tiles.into_iter().map(|tile| Type::registers(tile, Some(to))).collect();
        let parts = self.cursor.function.insts[parts].results.clone();
        let loaded = self.through_memory(&parts, |bits| shared_memory(&partials, &gathered, bits), types);
        let data = &mut self.cursor.function.insts[inst];
        let axis = partials.output().rank() as u32 - 1;
        data.op = GpuOp::Reduce { axis, scope: Scope::Block, redux: false }.into();
        data.operands = loaded;
        self.cursor.insert(inst);
    }

    /// Lowers a reduction with more than `MAX_PARTIAL_RESULTS` partial results of a line. If there
    /// are enough lines, converts the operands to a layout in which each warp has whole lines. A
    /// reduction that keeps the order of elements may still exceed the limit.
    fn reduce_in_lines(&mut self, inst: Inst, axis: u32, layout: &Layout, block: Block) {
        let lines = line_layout(&layout.output().shape(), axis as usize, self.warps());
        let to = self.header.layouts.add(lines.clone());
        let data = self.cursor.function.insts[inst].clone();
        let operands: SmallVec<[Value; 4]> =
            data.operands.iter().map(|value| self.converted(*value, to, block)).collect();
        if self.cursor.function.ty(data.results[0]).layout().is_none() {
            self.cursor.function.insts[inst].operands = operands;
            self.reduce(inst, axis, block);
            return;
        }
        let reduced = self.header.layouts.add(reduced_layout(&lines, axis));
        let types: Vec<Type> = data
            .results
            .iter()
            .map(|value| {
                let tile = self.cursor.function.ty(*value).as_registers().expect("a reduction has tiles");
                Type::registers(tile.clone(), Some(reduced))
            })
            .collect();
        let region = self.cursor.function.clone_region(data.regions[0]);
        let copy = self.cursor.function.create_inst(
            data.op,
            operands,
            smallvec![region],
            types,
            self.cursor.location,
        );
        self.reduce(copy, axis, block);
        for (from, result) in self.cursor.function.insts[copy].results.clone().into_iter().zip(data.results) {
            self.convert_to(from, result, block);
        }
    }

    /// Stores values to shared memory, and loads them as other types. One barrier serves all
    /// values. `memory` returns the layout of a buffer for an element width in bits.
    pub(super) fn through_memory(
        &mut self,
        values: &[Value],
        memory: impl Fn(u32) -> Layout,
        types: Vec<Type>,
    ) -> SmallVec<[Value; 4]> {
        let stored: Vec<Value> =
            values.iter().map(|value| self.store(*value, &memory(self.bits(*value)))).collect();
        let mut loaded: SmallVec<[Value; 4]> = smallvec![];
        for (buffer, ty) in stored.iter().zip(types) {
            loaded.push(self.cursor.value(GpuOp::LocalLoad { matrix: false }, &[*buffer], ty));
        }
        for buffer in stored {
            self.cursor.emit(GpuOp::Dealloc {}, &[buffer], []);
        }
        loaded
    }

    pub(super) fn converted(&mut self, value: Value, to: LayoutId, block: Block) -> Value {
        let tile = self.cursor.function.ty(value).as_registers().expect("a converted value is in registers");
        let ty = Type::registers(tile.clone(), Some(to));
        let op = GpuOp::ConvertLayout {}.into();
        let inst =
            self.cursor.function.create_inst(op, smallvec![value], smallvec![], [ty], self.cursor.location);
        let result = self.cursor.function.insts[inst].results[0];
        self.roles.in_registers.insert(result);
        self.convert(inst, block);
        result
    }

    /// Redefines another instruction's result as the conversion of a value.
    pub(super) fn convert_to(&mut self, from: Value, result: Value, block: Block) {
        let op = GpuOp::ConvertLayout {}.into();
        let inst =
            self.cursor.function.create_inst(op, smallvec![from], smallvec![], [], self.cursor.location);
        self.cursor.function.insts[inst].results.push(result);
        self.cursor.function.redefine(result, inst, 0);
        self.roles.in_registers.insert(result);
        self.convert(inst, block);
    }

    /// Lowers an atomic operation. If several threads hold an element, one of them executes the
    /// operation and passes on the result.
    fn atomic(&mut self, inst: Inst) {
        let data = &mut self.cursor.function.insts[inst];
        let was_everywhere = match &mut data.op {
            Op::Gpu(
                GpuOp::AtomicRmw { everywhere, .. }
                | GpuOp::AtomicCas { everywhere, .. }
                | GpuOp::AtomicLoad { everywhere, .. }
                | GpuOp::AtomicPoll { everywhere, .. },
            ) => std::mem::replace(everywhere, false),
            // tidy: wildcard because all threads have the results of other ops
            _ => false,
        };
        let Some(result) = data.results.first().copied().filter(|_| was_everywhere) else {
            return self.cursor.insert(inst);
        };
        let ty = self.cursor.function.ty(result).clone();
        let has_copies = ty.layout().is_none_or(|id| {
            let layout = self.header.layouts.get(id);
            [Input::Lane, Input::Warp].iter().any(|input| layout.free_bits(*input) != 0)
        });
        if !has_copies || self.roles.uses.of(result).is_empty() {
            return self.cursor.insert(inst);
        }
        self.goes_through_memory(inst);
        let data = &self.cursor.function.insts[inst];
        let (op, operands, location) = (data.op.clone(), data.operands.clone(), data.location);
        self.cursor.location = location;
        let done = self.cursor.value(op, &operands, ty.clone());
        // The old instruction becomes the op that gives the result to all threads.
        let tile = ty.as_registers().expect("results of atomic operations are in registers").clone();
        if ty.layout().is_some() {
            let memory = rows(&tile.shape);
            let buffer = self.store(done, &memory);
            self.replace(inst, GpuOp::LocalLoad { matrix: false }.into(), buffer);
            self.cursor.emit(GpuOp::Dealloc {}, &[buffer], []);
            return;
        }
        let shape = tilewright_ir::Shape::from([1]);
        let layout = default_layout(&shape, self.warps());
        let layout = self.header.layouts.add(layout);
        let single = Type::registers(tile.with_shape(shape.clone()), Some(layout));
        let splat = ir::Op::Splat { shape: shape.clone() };
        let splat = self.cursor.value(splat, &[done], single.clone());
        let buffer = self.store(splat, &rows(&shape));
        let loaded = self.cursor.value(GpuOp::LocalLoad { matrix: false }, &[buffer], single);
        self.cursor.emit(GpuOp::Dealloc {}, &[buffer], []);
        self.replace(
            inst,
            tilewright_ir::Op::Reshape { shape: tilewright_ir::Shape::scalar() }.into(),
            loaded,
        );
    }

    /// Changes an instruction to another op with one operand, and appends it.
    fn replace(&mut self, inst: Inst, op: Op, operand: Value) {
        let data = &mut self.cursor.function.insts[inst];
        data.op = op;
        data.operands = smallvec![operand];
        self.cursor.insert(inst);
    }

    /// Ends the lifetime of each buffer of this block after its last use.
    fn end_lifetimes(&mut self, block: Block, buffers: &[Value]) {
        if buffers.is_empty() {
            return;
        }
        let mut last: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
        // The values that the dot in flight of each pending result still reads.
        let mut reads: SecondaryMap<Value, SmallVec<[Value; 2]>> = SecondaryMap::new();
        let insts = self.cursor.function.blocks[block].insts.clone();
        for (index, inst) in insts.iter().enumerate() {
            let mut see = |inst: Inst| {
                let data = &self.cursor.function.insts[inst];
                let mut used: SmallVec<[Value; 8]> = data.operands.iter().copied().collect();
                used.extend(data.operands.iter().flat_map(|operand| reads[*operand].clone()));
                for operand in &used {
                    last[*operand] = Some(index);
                }
                for result in &data.results {
                    if matches!(self.cursor.function.ty(*result), Type::Pending { .. }) {
                        reads[*result].extend(used.iter().copied());
                    }
                }
            };
            see(*inst);
            for region in &self.cursor.function.insts[*inst].regions {
                self.cursor.function.walk(*region, &mut see);
            }
        }
        let mut ends: Vec<(usize, Value)> =
            buffers.iter().filter_map(|buffer| Some((last[*buffer]?, *buffer))).collect();
        ends.sort_unstable();
        for (index, buffer) in ends.into_iter().rev() {
            let op = GpuOp::Dealloc {}.into();
            let location = self.cursor.function.insts[insts[index]].location;
            let end = self.cursor.function.create_inst(op, smallvec![buffer], smallvec![], [], location);
            self.cursor.function.blocks[block].insts.insert(index + 1, end);
        }
    }
}

/// Returns the layout of a buffer that suits both sides of a conversion.
fn shared_memory(source: &Layout, target: &Layout, bits: u32) -> Layout {
    shared_plan(source, target, bits).expect("no element leaves its block").memory
}

/// The uses of values as operands, at the start of the pass.
struct OperandRoles {
    uses: Uses,
    parents: Parents,
    /// The values from which operands of `mma_sync` are computed element by element.
    mma_inputs: EntitySet<Value>,
    /// Values that stay in registers in any case.
    in_registers: EntitySet<Value>,
}

impl OperandRoles {
    fn new(function: &Function) -> Self {
        let mut mma_inputs = EntitySet::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if matches!(data.op, Op::Gpu(GpuOp::MmaSync { .. })) {
                add_inputs(function, &mut mma_inputs, &data.operands[..2]);
            }
        });
        let (uses, parents) = (Uses::new(function), Parents::new(function));
        Self { uses, parents, mma_inputs, in_registers: EntitySet::new() }
    }

    /// Returns whether all uses are A or B of dots that load their operands.
    fn is_dot_operand(&self, function: &Function, value: Value) -> bool {
        let is_operand = |op: &Op| matches!(op, Op::Gpu(GpuOp::FmaDot { .. } | GpuOp::MmaSync { .. }));
        self.has_only(value, |one| one.operand < 2 && is_operand(&function.insts[one.inst].op))
    }

    /// Returns whether all uses are A of `wgmma`.
    fn is_wgmma_a(&self, function: &Function, value: Value) -> bool {
        let is_wgmma = |op: &Op| matches!(op, Op::Gpu(GpuOp::Wgmma { .. }));
        self.has_only(value, |one| one.operand == 0 && is_wgmma(&function.insts[one.inst].op))
    }

    fn has_only(&self, value: Value, holds: impl FnMut(&Use) -> bool) -> bool {
        let uses = self.uses.of(value);
        !uses.is_empty() && !self.in_registers.contains(value) && uses.iter().all(holds)
    }

    /// Returns whether an FMA dot has the value as A or B.
    fn is_fma_operand(&self, function: &Function, value: Value) -> bool {
        let is_fma = |op: &Op| matches!(op, Op::Gpu(GpuOp::FmaDot { .. }));
        self.uses.of(value).iter().any(|one| one.operand < 2 && is_fma(&function.insts[one.inst].op))
    }

    /// Returns whether an op gathers elements of a value.
    fn is_moved(&self, function: &Function, value: Value) -> bool {
        let is_movement = |op: &Op| op.info().family == OpFamily::Movement;
        self.uses.of(value).iter().any(|one| one.operand == 0 && is_movement(&function.insts[one.inst].op))
    }

    fn is_used_outside(&self, value: Value, block: Block) -> bool {
        self.uses.users(value).any(|inst| self.parents.block(inst) != Some(block))
    }
}

/// Adds values, and all values from which they are computed element by element.
fn add_inputs(function: &Function, inputs: &mut EntitySet<Value>, values: &[Value]) {
    let mut work = values.to_vec();
    while let Some(value) = work.pop() {
        if !inputs.insert(value) {
            continue;
        }
        let Some(inst) = function.defining_inst(value) else { continue };
        let family = function.insts[inst].op.info().family;
        if matches!(family, OpFamily::Pointwise | OpFamily::Shape | OpFamily::Identity) {
            work.extend(&function.insts[inst].operands);
        }
    }
}
