//! Turns loads of boxes (`tensor_box`) into tensor copies to shared memory. The tile must go to a
//! buffer that the tensor memory accelerator can write.
//!
//! ```text
//! %p = tensor_box %q, %map, %i, %j                    %e = acquire %r
//! %x = load %p, %mask                                 tensor_fill %e, %map, %i, %j
//! …                                            ──>    publish %e
//! %b = alloc ; local_store %b, %x                     %b = take %r
//! … ; dealloc %b                                      … ; release %b
//! ```
//! A [ring](super::rings) of one slot replaces the buffer. The ring lives as long as the buffer, or
//! around its loops if this costs little memory ([`ring_lifetimes`]). Tensor copies also replace
//! copies of threads to the slots of a ring:
//!
//! ```text
//! copy_async %e, %p, %m and splat %c           ──>    tensor_fill %e, %map, %i if %c else -2^31, %j
//! ```
//! If the condition is false, the box is outside of the tensor, and the slot gets zeros. Slots that
//! a loop fills but does not take are taken and released after the loop. Tensor maps without copies
//! are removed. After this pass, no `tensor_box` is left.

mod ring_lifetimes;
mod row_loads;

use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, ElementwiseFn, Inst, OpFamily, Operation, Parents, Uses, Value};

use super::boxed::{Boxed, is_of_rows, map_for, mask_coordinate, place_of_condition, transposed};
use super::{device_tensor_maps, prune};
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::box_layout::BoxLayout;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::{Buffer, Deferred, Function, GpuOp, Header, Module, Op, Type};

/// Turns loads and copies of threads into tensor copies.
pub fn use_tensor_copies(module: &mut Module) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    if header.target.features.has(Feature::Tma) {
        let (parents, uses) = (Parents::new(function), Uses::new(function));
        let mut pass = Pass { header, function, parents, uses, made: Vec::new() };
        for store in pass.of_op(|op| matches!(op, GpuOp::LocalStore {})) {
            pass.store(store);
        }
        pass.rings();
        let mut made = pass.made;
        made.extend(row_loads::load_rows(header, function));
        ring_lifetimes::choose(header, function, &made);
        remove_needless_fences(function);
    }
    let mut can_gather_rows = false;
    function.walk(function.entry, &mut |inst| can_gather_rows |= is_of_rows(function, inst));
    erase_marks(function);
    if can_gather_rows {
        // Rows that go through shared memory leave their masks and addresses unused.
        prune::prune(function);
    }
    remove_unused_maps(header, function);
    device_tensor_maps::remove_unused(header, function);
    device_tensor_maps::order_stores(module);
}

struct Pass<'m> {
    header: &'m mut Header,
    function: &'m mut Function,
    parents: Parents,
    uses: Uses,
    /// The `alloc` and `dealloc` of each ring that replaced a buffer.
    made: Vec<(Inst, Inst)>,
}

struct FoundLoad {
    load: Inst,
    boxed: Boxed,
    alloc: Inst,
    store: Inst,
    dealloc: Inst,
    buffer: Buffer,
    block: Block,
}

impl Pass<'_> {
    fn of_op(&self, is_it: fn(&GpuOp) -> bool) -> Vec<Inst> {
        let mut found = Vec::new();
        self.function.walk(self.function.entry, &mut |inst| {
            if self.function.insts[inst].op.as_gpu().is_some_and(is_it) {
                found.push(inst);
            }
        });
        found
    }

    fn store(&mut self, store: Inst) {
        if let Some(found) = self.find(store)
            && let Some(map) = map_for(self.header, self.function, &found.boxed)
        {
            self.replace(&found, map);
        }
    }

    /// Finds the load of a box whose only use is a store to a buffer.
    fn find(&self, store: Inst) -> Option<FoundLoad> {
        let function = &*self.function;
        let &[buffer, value] = &function.insts[store].operands[..] else { return None };
        let (loaded, axes) = transposed(function, value)?;
        if !self.is_used_once(value, loaded) {
            return None;
        }
        let load = function.defining_inst(loaded)?;
        let Op::Gpu(GpuOp::Load { volatile: false, .. }) = function.insts[load].op else { return None };
        let mark = function.defining_inst(function.insts[load].operands[0])?;
        let Op::Gpu(GpuOp::TensorBox {}) = function.insts[mark].op else { return None };
        let alloc = function.defining_inst(buffer)?;
        let Op::Gpu(GpuOp::Alloc { .. }) = function.insts[alloc].op else { return None };
        let Type::Buffer(ty) = function.ty(buffer).clone() else { return None };
        let mut dealloc = None;
        for user in self.uses.users(buffer) {
            match function.insts[user].op {
                Op::Gpu(GpuOp::Dealloc {}) => dealloc = Some(user),
                Op::Gpu(
                    GpuOp::LocalLoad { .. }
                    | GpuOp::MmaSync { .. }
                    | GpuOp::FmaDot { .. }
                    | GpuOp::Wgmma { .. },
                ) => {}
                Op::Gpu(GpuOp::LocalStore {}) if user == store => {}
                // tidy: wildcard because anything else may write to the buffer, or forward it
                _ => return None,
            }
        }
        let (dealloc, block) = (dealloc?, self.parents.block(store)?);
        let is_one_block = [load, alloc, dealloc].iter().all(|inst| self.parents.block(*inst) == Some(block));
        let is_only_use = ty.slots == 1 && !self.is_in_partition_or_condition(block);
        let layout = BoxLayout::of(self.header.layouts.get(ty.layout), element_bits(&ty.tile()))?;
        let boxed = Boxed { mark, axes, shape: ty.shape.clone(), boxes: layout, is_written: false };
        let found = FoundLoad { load, boxed, alloc, store, dealloc, buffer: ty, block };
        (is_one_block && is_only_use).then_some(found)
    }

    /// Returns whether `value` comes from `first` by transposes of tiles with one use each.
    fn is_used_once(&self, mut value: Value, first: Value) -> bool {
        loop {
            if self.uses.count(value) != 1 {
                return false;
            }
            if value == first {
                return true;
            }
            let inst = self.function.defining_inst(value).expect("the tile is a transpose");
            value = self.function.insts[inst].operands[0];
        }
    }

    /// Replaces thread copies to the slots of rings by tensor copies. For each ring, replaces all
    /// copies or none.
    fn rings(&mut self) {
        let mut rings: BTreeMap<Value, Vec<Inst>> = BTreeMap::new();
        for copy in self.of_op(|op| matches!(op, GpuOp::CopyAsync { .. })) {
            let slot = self.function.insts[copy].operands[0];
            if let Some(acquire) = self.function.defining_inst(slot)
                && let Op::Gpu(GpuOp::Acquire {}) = self.function.insts[acquire].op
                && let ring = self.function.insts[acquire].operands[0]
                && let Some(alloc) = self.function.defining_inst(ring)
                // The barriers of a ring are initialized once.
                && self.parents.block(alloc) == Some(self.function.entry)
            {
                rings.entry(ring).or_default().push(copy);
            }
        }
        for (ring, copies) in rings {
            let Some(found) = copies.iter().map(|copy| self.fill(*copy)).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let Some(maps) = found
                .iter()
                .map(|(boxed, _)| map_for(self.header, self.function, boxed))
                .collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            for ((copy, (boxed, condition)), map) in copies.into_iter().zip(found).zip(maps) {
                self.replace_copy(copy, &boxed, condition, map);
            }
            self.drain_ring(ring);
        }
    }

    /// Takes and releases the slots that a loop filled for iterations past its end.
    ///
    /// Otherwise, the memory could not be reused until the end of the kernel.
    fn drain_ring(&mut self, ring: Value) {
        let is_end = |inst: &Inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::Dealloc {}));
        let entry = self.function.entry;
        let Some(end) = self.uses.users(ring).find(is_end) else { return };
        let left = self.left_in(entry, ring).filter(|_| self.parents.block(end) == Some(entry));
        let (Some(left), Type::Ring(buffer)) = (left, self.function.ty(ring)) else { return };
        let slot = Type::Full(Buffer { slots: 1, ..buffer.clone() });
        let mut new: SmallVec<[Inst; 8]> = smallvec![];
        for _ in 0..left {
            let take = self.create(GpuOp::Take {}, smallvec![ring], Some(slot.clone()), end);
            let taken = self.function.insts[take].results[0];
            let release = self.create(GpuOp::Release {}, smallvec![taken], None, end);
            new.extend([take, release]);
        }
        new.push(end);
        self.exchange(entry, end, &new);
    }

    /// Returns how many more slots a block publishes than it takes. Returns `None` if branches
    /// differ, or if an iteration publishes and takes different numbers.
    fn left_in(&self, block: Block, ring: Value) -> Option<i64> {
        let function = &*self.function;
        let mut left = 0;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match &data.op {
                Op::Gpu(GpuOp::Publish {}) => {
                    let acquire = &function.insts[function.defining_inst(data.operands[0])?];
                    let Op::Gpu(GpuOp::Acquire {}) = acquire.op else { return None };
                    left += i64::from(acquire.operands[0] == ring);
                }
                Op::Gpu(GpuOp::Take {}) => left -= i64::from(data.operands[0] == ring),
                // tidy: wildcard because no other op publishes or takes a slot
                _ => {}
            }
            let mut regions = data.regions.iter().map(|region| self.left_in(*region, ring));
            if let Some(first) = regions.next() {
                let in_each = first?;
                let is_branch = data.op.info().family == OpFamily::Branch;
                if (in_each != 0 && !is_branch) || regions.any(|other| other != Some(in_each)) {
                    return None;
                }
                left += in_each;
            }
        }
        Some(left)
    }

    /// Returns the box of an asynchronous copy, and the condition of the copy.
    fn fill(&self, copy: Inst) -> Option<(Boxed, Option<Value>)> {
        let function = &*self.function;
        let operands = &function.insts[copy].operands;
        let slot = function.ty(operands[0]).as_memory()?;
        let boxes = BoxLayout::of(self.header.layouts.get(slot.layout), element_bits(&slot.tile()))?;
        let (pointer, axes) = transposed(function, operands[1])?;
        let mark = function.defining_inst(pointer)?;
        let Op::Gpu(GpuOp::TensorBox {}) = function.insts[mark].op else { return None };
        let condition = operands.get(2).and_then(|mask| self.condition(*mask));
        let fits = slot.slot_bytes().is_multiple_of(boxes.alignment)
            && !self.is_in_partition_or_condition(self.parents.block(copy)?);
        fits.then(|| (Boxed { mark, axes, shape: slot.shape.clone(), boxes, is_written: false }, condition))
    }

    /// Returns the scalar condition that a mask adds to the load's mask.
    fn condition(&self, mask: Value) -> Option<Value> {
        let function = &*self.function;
        let data = &function.insts[function.defining_inst(mask)?];
        match &data.op {
            Op::Tile(ir::Op::Splat { .. }) => Some(data.operands[0]),
            Op::Tile(op) if op.family() == OpFamily::Shape => self.condition(data.operands[0]),
            Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::And, .. }) => {
                data.operands.iter().find_map(|operand| self.condition(*operand))
            }
            // tidy: wildcard because any other part of the mask is that of the load, which the box
            // replaces
            _ => None,
        }
    }

    fn replace_copy(&mut self, copy: Inst, boxed: &Boxed, condition: Option<Value>, map: Value) {
        let slot = self.function.insts[copy].operands[0];
        let mut coordinates = boxed.coordinates(self.function, boxed.mark);
        let mut new: SmallVec<[Inst; 3]> = smallvec![];
        if let Some(condition) = condition {
            let location = self.function.insts[copy].location;
            let place = place_of_condition(self.function, &coordinates);
            new.extend(mask_coordinate(self.function, condition, coordinates[place], location));
            coordinates[place] = self.function.insts[new[1]].results[0];
        }
        let operands = [slot, map].into_iter().chain(coordinates).collect();
        new.push(self.create(GpuOp::TensorFill {}, operands, None, copy));
        let block = self.parents.block(copy).expect("an instruction is in a block");
        self.exchange(block, copy, &new);
    }

    /// Returns whether a block is in a partition or is the condition of a loop.
    fn is_in_partition_or_condition(&self, mut block: Block) -> bool {
        while let Some(owner) = self.parents.owner(block) {
            let data = &self.function.insts[owner];
            let is_condition = matches!(data.op, Op::Tile(ir::Op::While {})) && data.regions[0] == block;
            if is_condition || matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. })) {
                return true;
            }
            block = self.parents.block(owner).expect("an instruction with regions is in a block");
        }
        false
    }

    fn create(
        &mut self,
        op: GpuOp,
        operands: SmallVec<[Value; 4]>,
        result: Option<Type>,
        like: Inst,
    ) -> Inst {
        let location = self.function.insts[like].location;
        self.function.create_inst(op.into(), operands, smallvec![], result, location)
    }

    fn replace(&mut self, found: &FoundLoad, map: Value) {
        let slot = Buffer { slots: 1, ..found.buffer.clone() };
        let alloc = self.create(
            GpuOp::Alloc { offset: Deferred(None) },
            smallvec![],
            Some(Type::Ring(slot.clone())),
            found.alloc,
        );
        let ring = self.function.insts[alloc].results[0];
        let acquire =
            self.create(GpuOp::Acquire {}, smallvec![ring], Some(Type::Empty(slot.clone())), found.load);
        let empty = self.function.insts[acquire].results[0];
        let mut operands: SmallVec<[Value; 4]> = smallvec![empty, map];
        operands.extend(found.boxed.coordinates(self.function, found.boxed.mark));
        let fill = self.create(GpuOp::TensorFill {}, operands, None, found.load);
        let publish = self.create(GpuOp::Publish {}, smallvec![empty], None, found.load);
        let take = self.create(GpuOp::Take {}, smallvec![ring], Some(Type::Full(slot)), found.store);
        let taken = self.function.insts[take].results[0];
        let release = self.create(GpuOp::Release {}, smallvec![taken], None, found.dealloc);
        let end = self.create(GpuOp::Dealloc {}, smallvec![ring], None, found.dealloc);
        let old = self.function.insts[found.store].operands[0];
        for user in self.uses.users(old) {
            for operand in &mut self.function.insts[user].operands {
                if *operand == old {
                    *operand = taken;
                }
            }
        }
        let mut value = self.function.insts[found.store].operands[1];
        while let Some(inst) = self.function.defining_inst(value).filter(|inst| *inst != found.load) {
            value = self.function.insts[inst].operands[0];
            let block = self.parents.block(inst).expect("an instruction is in a block");
            self.exchange(block, inst, &[]);
        }
        self.exchange(found.block, found.load, &[alloc, acquire, fill, publish]);
        self.exchange(found.block, found.alloc, &[]);
        let first = self.first_use(found, taken);
        self.exchange(found.block, first, &[take, first]);
        self.exchange(found.block, found.store, &[]);
        self.exchange(found.block, found.dealloc, &[release, end]);
        self.made.push((alloc, end));
    }

    /// Returns the first instruction that uses a slot, itself or in its regions.
    ///
    /// The wait for the slot is inserted before it, so earlier instructions run during the copy.
    fn first_use(&self, found: &FoundLoad, slot: Value) -> Inst {
        let function = &*self.function;
        let insts = &function.blocks[found.block].insts;
        let uses = |inst: &Inst| {
            let data = &function.insts[*inst];
            let mut is_used = data.operands.contains(&slot);
            for region in &data.regions {
                function.walk(*region, &mut |inner| {
                    is_used |= function.insts[inner].operands.contains(&slot);
                });
            }
            is_used && *inst != found.store
        };
        insts.iter().copied().find(uses).unwrap_or(found.dealloc)
    }

    fn exchange(&mut self, block: Block, old: Inst, new: &[Inst]) {
        let insts = &mut self.function.blocks[block].insts;
        let index = insts.iter().position(|inst| *inst == old).expect("the instruction is in this block");
        insts.splice(index..=index, new.iter().copied());
        for inst in new {
            self.parents.set_block(*inst, block);
        }
    }
}

/// Removes proxy fences if no thread writes shared memory that the asynchronous proxy reads.
fn remove_needless_fences(function: &mut Function) {
    let analysis = SlotAnalysis::new(function, false);
    let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let roots = data.operands.iter().filter_map(|value| analysis.root(*value));
        match &data.op {
            Op::Gpu(GpuOp::LocalStore {} | GpuOp::LocalHistogram {} | GpuOp::CopyAsync { .. }) => {
                written.extend(roots);
            }
            Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::TensorStore {} | GpuOp::TensorReduce { .. }) => {
                read.extend(roots);
            }
            // tidy: wildcard because no other op writes shared memory by threads, or reads it by
            // the asynchronous proxy
            _ => {}
        }
    });
    if read.is_empty() || written.intersection(&read).next().is_some() {
        return;
    }
    let is_there = |op: &Op| matches!(op, Op::Gpu(GpuOp::MbarrierInit { .. } | GpuOp::TensorLoad {}));
    if function.insts.values().any(|data| is_there(&data.op)) {
        // The fences may be for the initialization of mbarriers.
        return;
    }
    let Function { blocks, insts, .. } = function;
    for block in blocks.values_mut() {
        block.insts.retain(|inst| !matches!(insts[*inst].op, Op::Gpu(GpuOp::FenceProxy {})));
    }
}

/// Replaces marks (`tensor_box`) with the pointers that they mark.
fn erase_marks(function: &mut Function) {
    let mut marks = SecondaryMap::new();
    let mut any = false;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::TensorBox {}) = data.op {
            marks[data.results[0]] = Some(data.operands[0]);
            any = true;
        }
    });
    if !any {
        return;
    }
    for data in function.insts.values_mut() {
        for operand in &mut data.operands {
            while let Some(pointers) = marks[*operand] {
                *operand = pointers;
            }
        }
    }
    let Function { blocks, insts, .. } = function;
    for block in blocks.values_mut() {
        block.insts.retain(|inst| !matches!(insts[*inst].op, Op::Gpu(GpuOp::TensorBox {})));
    }
}

fn remove_unused_maps(header: &mut Header, function: &mut Function) {
    let parameters = function.blocks[function.entry].parameters.clone();
    let Some(first) = parameters.len().checked_sub(header.tensor_maps.len()) else { return };
    let mut is_used = vec![false; header.tensor_maps.len()];
    function.walk(function.entry, &mut |inst| {
        for operand in &function.insts[inst].operands {
            if let Some(number) = parameters[first..].iter().position(|parameter| parameter == operand) {
                is_used[number] = true;
            }
        }
    });
    if is_used.iter().all(|used| *used) {
        return;
    }
    let mut keep = std::iter::repeat_n(true, first).chain(is_used.iter().copied());
    function.blocks[function.entry].parameters.retain(|_| keep.next().unwrap_or(true));
    let mut keep = std::iter::repeat_n(true, first).chain(is_used.iter().copied());
    function.parameters.retain(|_| keep.next().unwrap_or(true));
    let mut keep = is_used.iter().copied();
    header.tensor_maps.retain(|_| keep.next().unwrap_or(true));
    let entry = function.entry;
    for (number, parameter) in function.blocks[entry].parameters.clone().into_iter().enumerate() {
        function.values[parameter].definition = Definition::Parameter(entry, number as u32);
    }
}
