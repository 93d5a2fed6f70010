//! Turns stores of boxes (`tensor_box`) into tensor copies from shared memory.
//!
//! ```text
//! for %tile … {                                        %s = alloc
//!   …                                                  for %tile … {
//!   %b = alloc ; local_store %b, %x                      …
//!   %y = local_load %b ; dealloc %b                      tensor_store_wait ; local_store %s, %x
//!   %p = tensor_box %q, %map, %i, %j            ──>      fence_proxy ; tensor_store %s, %map, %i, %j
//!   store %p, %y, %mask                                }
//! }                                                    tensor_store_wait ; dealloc %s
//! ```
//! One thread starts the copy. It waits only before the buffer is written again, or at the end. A
//! persistent kernel computes the next tile meanwhile. Threads write the tile from its layout in
//! registers, usually that of an accumulator, without a conversion.
//!
//! **Candidates** are stores that would go through shared memory, or that write fewer than 16 bytes
//! at a time. Stores of gathered rows are always candidates if the target can copy rows.
//!
//! **Atomic operations** on a box are candidates (`tensor_reduce`) if their results are unused and
//! they order no accesses. Their access width does not matter, because one copy combines a whole
//! box. If all tensor stores combine by the same operation, they do not wait for each other.
//!
//! **Order.** No barrier orders writes of the asynchronous proxy, so only tensor stores may access
//! their argument. The kernel has no other atomic operations and no assembly with effects, which
//! could signal other programs. Two tensor stores of one iteration that write different elements
//! need no order. Otherwise, the later one waits by a `tensor_store_wait` that is `complete`.
//!
//! **Maps that the kernel makes** may be unable to express a store: see
//! [`super::tensor_store_fallback`].
//!
//! **Shared memory** may be too small for a buffer during the whole loop. Then the buffer lives
//! only around the store, and the thread waits at once.

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::analysis::scalar_evolution::ScalarEvolution;
use tilewright_ir::{AtomicKind, Block, Effect, Inst, MemoryScope, MemorySemantics, OpFamily, Uses, Value};
use tilewright_layout::{Layout, SwizzleMode, swizzled};

use super::allocation::least_bytes;
use super::boxed::{Boxed, is_of_rows, map_for};
use super::global_memory::GlobalAccesses;
use super::tensor_maps::map_plan;
use super::tensor_store_fallback::{self, Around};
use crate::assign::boxes::MapId;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::box_layout::BoxLayout;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::{ACCESS_BYTES, Feature};
use tilewright_gpu_ir::{
    Buffer, Deferred, Function, GpuOp, Header, Module, Op, Padding, Type, is_tensor_reduction,
};

pub fn use_tensor_stores(module: &mut Module) {
    let has_maps = !module.header.tensor_maps.is_empty() || !module.header.made_maps.is_empty();
    if !module.header.target.features.has(Feature::Tma) || !has_maps {
        return;
    }
    let found = find(module);
    if found.is_empty() {
        return;
    }
    let limit = u64::from(module.header.target.max_shared_bytes);
    let (original, maps) = (module.functions[module.entry].clone(), module.header.clone());
    for lives_on in [true, false] {
        let Module { header, functions, entry, .. } = &mut *module;
        let mut writer = Writer { header, function: &mut functions[*entry], lives_on, ends: Vec::new() };
        for store in &found {
            writer.store(store);
        }
        writer.end();
        let bytes = least_bytes(&header.layouts, &functions[*entry]);
        let fits = bytes <= limit;
        for store in &found {
            say(&original, store.inst, || match (fits, lives_on) {
                (true, true) => RemarkReason::done("by a tensor copy", "the next ops run during the copy"),
                (true, false) => {
                    RemarkReason::done("by a tensor copy, waited for at once", "shared memory is full")
                }
                (false, _) => RemarkReason::missed(
                    if lives_on { "no tensor copy during the next ops" } else { "no tensor copy" },
                    format!("{bytes} bytes of shared memory would be needed, but the target has {limit}"),
                ),
            });
        }
        if fits {
            return;
        }
        functions[*entry] = original.clone();
        header.tensor_maps.clone_from(&maps.tensor_maps);
        header.made_maps.clone_from(&maps.made_maps);
    }
}

fn say(function: &Function, inst: Inst, because: impl FnOnce() -> RemarkReason) {
    let tile = || function.ty(function.insts[inst].operands[1]).as_registers();
    remarks::about("tensor_stores", function, inst, || remarks::subject(function, inst, tile()), because);
}

/// A store that a tensor copy can replace.
struct FoundStore {
    inst: Inst,
    /// The stored tile, before its conversion for the store.
    value: Value,
    conversion: SmallVec<[Inst; 4]>,
    block: Block,
    /// The entry instruction around the store; `None` if the store is in the entry block.
    outermost: Option<Inst>,
    boxed: Boxed,
    memory: Layout,
    /// The combining operation of an atomic store.
    reduction: Option<AtomicKind>,
    /// True if the copy has to wait for earlier copies.
    waits: bool,
    /// True if the copy waits until earlier copies have written the tensor. Otherwise, it waits
    /// until they have read their buffers.
    complete: bool,
    /// The scope of a tensor map that the kernel makes.
    around: Option<Around>,
}

struct StoreAnalysis<'m> {
    module: &'m Module,
    function: &'m Function,
    uses: Uses,
    /// The stores, with their blocks and the entry instructions around them.
    stores: Vec<(Inst, Block, Option<Inst>)>,
}

fn find(module: &Module) -> Vec<FoundStore> {
    let function = module.kernel();
    let mut search = StoreAnalysis { module, function, uses: Uses::new(function), stores: Vec::new() };
    search.block(function.entry, None, false);
    let mut found: Vec<FoundStore> = Vec::new();
    for (inst, block, outermost) in search.stores.clone() {
        match search.store(inst, block, outermost) {
            None => {}
            Some(Ok(store)) => found.push(store),
            Some(Err(reason)) => say(function, inst, || RemarkReason::note("no tensor copy", reason)),
        }
    }
    if found.is_empty() {
        return found;
    }
    let global = GlobalAccesses::new(module);
    let can_be_copy = |store: &FoundStore, all: &[FoundStore]| {
        let reason = search.obstacle(&global, store, all);
        if let Some(reason) = reason {
            say(function, store.inst, || RemarkReason::missed("no tensor copy", reason));
        }
        reason.is_none()
    };
    // A store that stays may prevent other stores from becoming copies.
    loop {
        let kept: Vec<bool> = found.iter().map(|store| can_be_copy(store, &found)).collect();
        if kept.iter().all(|kept| *kept) {
            break;
        }
        let mut kept = kept.into_iter();
        found.retain(|_| kept.next().unwrap_or(false));
    }
    order(&search, &mut found);
    let stores: Vec<Inst> = found.iter().map(|store| store.inst).collect();
    for store in &mut found {
        if let Some(around) = &mut store.around {
            around.look_through(&module.header, function, &stores);
        }
    }
    found
}

/// Decides which stores wait for other stores.
fn order(search: &StoreAnalysis<'_>, found: &mut [FoundStore]) {
    // Reductions by one kind of operation commute.
    let kind = found.first().and_then(|store| store.reduction);
    let commute = kind.is_some() && found.iter().all(|store| store.reduction == kind);
    for number in 0..found.len() {
        let (before, rest) = found.split_at_mut(number);
        let store = &mut rest[0];
        // A store by a kernel's map waits only in one branch, so a later store cannot rely on its
        // wait.
        let last = before.iter().rfind(|other| other.around.is_none());
        let is_first = last.is_none_or(|last| last.block != store.block);
        let may_meet = |other: &FoundStore| {
            other.block != store.block
                || !commute && other.is_same_tensor(search, store) && !search.are_apart(other, store)
        };
        let is_made = store.around.is_some();
        store.waits = is_made || store.outermost.is_some() && is_first || before.iter().any(may_meet);
        store.complete = is_made || !commute;
    }
}

impl FoundStore {
    /// Returns whether both stores go to the same argument of the kernel.
    fn is_same_tensor(&self, search: &StoreAnalysis<'_>, other: &Self) -> bool {
        search.base(self.boxed.mark) == search.base(other.boxed.mark)
    }
}

impl StoreAnalysis<'_> {
    fn block(&mut self, block: Block, outermost: Option<Inst>, apart: bool) {
        let function = self.function;
        for &inst in &function.blocks[block].insts {
            let data = &function.insts[inst];
            if matches!(data.op, Op::Gpu(GpuOp::Store { .. } | GpuOp::AtomicRmw { .. })) && !apart {
                self.stores.push((inst, block, outermost));
            }
            let is_while = matches!(data.op, Op::Tile(ir::Op::While {}));
            let has_partitions = matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. }));
            for (number, region) in data.regions.iter().enumerate() {
                // Neither partitions nor conditions of `while` loops can have these barriers.
                let is_apart = has_partitions || is_while && number == 0;
                self.block(*region, outermost.or(Some(inst)), apart || is_apart);
            }
        }
    }

    /// Returns a store that a tensor copy can replace; `None` if it has no box. The error is the
    /// reason why a tensor copy cannot replace it.
    fn store(
        &self,
        inst: Inst,
        block: Block,
        outermost: Option<Inst>,
    ) -> Option<Result<FoundStore, &'static str>> {
        let function = self.function;
        let (width, reduction) = match function.insts[inst].op {
            Op::Gpu(GpuOp::Store { width, .. }) => (width, None),
            Op::Gpu(GpuOp::AtomicRmw { width, kind, .. }) => (width, Some(kind)),
            // tidy: wildcard because only stores and atomic operations can become tensor copies
            _ => return None,
        };
        let &[pointers, stored, ..] = &function.insts[inst].operands[..] else { return None };
        let mark = function.defining_inst(pointers)?;
        let Op::Gpu(GpuOp::TensorBox {}) = function.insts[mark].op else { return None };
        let tile = function.ty(stored).as_registers()?;
        let (value, conversion) = self.converted(stored, block);
        if reduction.is_some() && !self.is_reduction(inst) {
            return Some(Err(
                "the atomic operation returns a result, orders accesses, or has no tensor copy",
            ));
        }
        if reduction.is_none()
            && !is_of_rows(function, mark)
            && conversion.is_empty()
            && width as usize * tile.element.bytes() >= ACCESS_BYTES as usize
        {
            return Some(Err("threads already store 16 bytes at a time"));
        }
        let bits = element_bits(tile);
        let rank = tile.rank();
        let (map, plan) = self.map(mark)?;
        let around = match map {
            MapId::Launch(_) => None,
            MapId::Device(_) => Some(Around::new(function, (inst, mark))?),
        };
        let axis = plan.contiguous_axis()?.checked_sub(plan.strides.len() - rank)?;
        let Some((memory, layout)) = staging(&tile.shape, axis, bits) else {
            return Some(Err("tensor copies support no layout of the tile in shared memory"));
        };
        let shape = tile.shape.clone();
        let boxed = Boxed { mark, axes: (0..rank).collect(), shape, boxes: layout, is_written: true };
        let (waits, complete) = (false, false);
        Some(Ok(FoundStore {
            inst,
            value,
            conversion,
            block,
            outermost,
            boxed,
            memory,
            reduction,
            waits,
            complete,
            around,
        }))
    }

    /// Returns whether a tensor copy may execute an atomic operation.
    fn is_reduction(&self, inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        let Op::Gpu(GpuOp::AtomicRmw { kind, sem, scope, .. }) = data.op else { return false };
        let tile = self.function.ty(data.operands[1]).as_registers();
        sem == MemorySemantics::Relaxed
            && scope != MemoryScope::System
            && data.results.iter().all(|result| self.uses.count(*result) == 0)
            && tile.and_then(ir::Type::dtype).is_some_and(|dtype| is_tensor_reduction(kind, dtype))
    }

    /// Returns a value before its layout conversion, and the conversion's instructions. Returns
    /// another value itself, without instructions.
    fn converted(&self, value: Value, block: Block) -> (Value, SmallVec<[Inst; 4]>) {
        let function = self.function;
        let is_in_block = |inst: &Inst| function.blocks[block].insts.contains(inst);
        let conversion = || {
            let load = function.defining_inst(value)?;
            if self.uses.count(value) != 1 || function.insts[load].results.len() != 1 {
                return None;
            }
            if matches!(function.insts[load].op, Op::Gpu(GpuOp::ConvertLayout {})) {
                return Some((function.insts[load].operands[0], smallvec![load]));
            }
            let Op::Gpu(GpuOp::LocalLoad { .. }) = function.insts[load].op else { return None };
            let buffer = function.insts[load].operands[0];
            let alloc = function.defining_inst(buffer)?;
            let Op::Gpu(GpuOp::Alloc { .. }) = function.insts[alloc].op else { return None };
            let users: SmallVec<[Inst; 4]> = self.uses.users(buffer).collect();
            let &[store, other, dealloc] = &users[..] else { return None };
            let is = |inst: Inst, op: fn(&GpuOp) -> bool| function.insts[inst].op.as_gpu().is_some_and(op);
            let is_conversion = other == load
                && is(store, |op| matches!(op, GpuOp::LocalStore {}))
                && is(dealloc, |op| matches!(op, GpuOp::Dealloc {}));
            let insts: SmallVec<[Inst; 4]> = smallvec![alloc, store, load, dealloc];
            let from = function.insts[store].operands[1];
            (is_conversion && insts.iter().all(is_in_block)).then_some((from, insts))
        };
        conversion().unwrap_or((value, SmallVec::new()))
    }

    /// Returns the id and the plan of the map of a `tensor_box` or a copy.
    fn map(&self, inst: Inst) -> Option<(MapId, &tilewright_gpu_ir::TensorMapPlan)> {
        map_plan(&self.module.header, self.function, *self.function.insts[inst].operands.get(1)?)
    }

    /// Returns the kernel argument with the tensor of a `tensor_box` or a copy.
    fn base(&self, inst: Inst) -> Option<Value> {
        let (MapId::Launch(_), plan) = self.map(inst)? else { return None };
        self.function.blocks[self.function.entry].parameters.get(plan.base as usize).copied()
    }

    /// Returns why other instructions prevent a tensor copy.
    fn obstacle(
        &self,
        global: &GlobalAccesses<'_>,
        store: &FoundStore,
        all: &[FoundStore],
    ) -> Option<&'static str> {
        let function = self.function;
        let base = self.base(store.boxed.mark)?;
        let mut reason = None;
        function.walk(function.entry, &mut |inst| {
            if all.iter().any(|other| other.inst == inst) {
                return;
            }
            let data = &function.insts[inst];
            let may_meet = |place: usize| global.may_derive_from(data.operands[place], base);
            let meets = match &data.op {
                Op::Gpu(op) => match op {
                    GpuOp::Load { .. } | GpuOp::Store { .. } => may_meet(0),
                    GpuOp::CopyAsync { .. } => may_meet(1),
                    GpuOp::TensorLoad {}
                    | GpuOp::TensorFill {}
                    | GpuOp::TensorStore {}
                    | GpuOp::TensorReduce { .. } => match self.base(inst) {
                        Some(other) => other == base,
                        None => may_meet(1),
                    },
                    op if op.info().family == OpFamily::Atomic => {
                        reason = Some(
                            "the kernel has atomic operations, which may signal that the tensor is written",
                        );
                        false
                    }
                    // tidy: wildcard because the others touch no global memory
                    _ => false,
                },
                Op::Tile(op) => {
                    let is_known =
                        matches!(op, ir::Op::Barrier {}) || matches!(op.info().family, OpFamily::Check);
                    if op.info().effect == Effect::Write && !is_known {
                        reason = Some("the kernel has assembly or calls with effects");
                    }
                    false
                }
            };
            if meets {
                reason = Some("other instructions of the kernel access the same argument");
            }
        });
        reason
    }

    /// Returns whether two stores of one iteration go to different elements of one tensor.
    fn are_apart(&self, a: &FoundStore, b: &FoundStore) -> bool {
        let function = self.function;
        if self.map(a.boxed.mark).map(|(number, _)| number)
            != self.map(b.boxed.mark).map(|(number, _)| number)
        {
            return false;
        }
        let [from, to] = [a, b].map(|store| store.boxed.coordinates(function, store.boxed.mark));
        let own = from.len() - a.boxed.shape.len();
        let mut evolution = ScalarEvolution::new(function);
        from.iter().zip(&to).enumerate().any(|(place, (from, to))| {
            let extent = |store: &FoundStore| {
                place.checked_sub(own).map_or(1, |axis| i128::from(store.boxed.shape[axis]))
            };
            let distance =
                evolution.form(*from).minus(&evolution.form(*to)).and_then(|form| form.as_constant());
            distance.is_some_and(|distance| distance >= extent(b) || -distance >= extent(a))
        })
    }
}

/// Returns the layout of a tile for a tensor copy, with the widest possible swizzle.
pub(super) fn staging(shape: &[u32], axis: usize, bits: u32) -> Option<(Layout, BoxLayout)> {
    let order: SmallVec<[usize; 5]> =
        [axis].into_iter().chain((0..shape.len()).rev().filter(|other| *other != axis)).collect();
    let modes = [SwizzleMode::Bytes128, SwizzleMode::Bytes64, SwizzleMode::Bytes32, SwizzleMode::None];
    modes.into_iter().find_map(|mode| {
        let is_long = mode.row_bytes().is_none_or(|bytes| bytes <= shape[axis] * bits / 8);
        let memory = is_long.then(|| swizzled(shape, &order, bits, mode))?;
        let boxes = BoxLayout::of(&memory, bits).filter(|boxes| boxes.order[0] == axis)?;
        // Each box begins at an address that is aligned for the swizzle.
        let is_aligned = boxes.count == 1 || boxes.bytes.is_multiple_of(boxes.alignment);
        is_aligned.then_some((memory, boxes))
    })
}

struct Writer<'m> {
    header: &'m mut Header,
    function: &'m mut Function,
    /// True if buffers live to the end of the kernel. With a map that the kernel makes, buffers
    /// live to the end of the loop. Without [`Around::runs_beside`], they live only around their
    /// stores.
    lives_on: bool,
    /// The buffers that live until the kernel ends.
    ends: Vec<Value>,
}

impl Writer<'_> {
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

    fn store(&mut self, found: &FoundStore) {
        let Some(map) = map_for(self.header, self.function, &found.boxed) else { return };
        let tile = self.function.ty(found.value).as_registers().expect("a stored tile is in registers");
        let (element, shape) = (tile.element, tile.shape.clone());
        let layout = self.header.layouts.add(found.memory.clone());
        let ty = Type::Buffer(Buffer { slots: 1, element, shape, layout, padding: Padding::default() });
        let alloc = self.create(GpuOp::Alloc { offset: Deferred(None) }, smallvec![], Some(ty), found.inst);
        let buffer = self.function.insts[alloc].results[0];
        let around = found.around.as_ref();
        let lives_on = self.lives_on && around.is_none_or(Around::runs_beside);
        let mut new: Vec<Inst> = Vec::new();
        if found.waits && (lives_on || around.is_some()) {
            new.push(self.wait(found.complete, found.inst));
        }
        new.push(self.create(GpuOp::LocalStore {}, smallvec![buffer, found.value], None, found.inst));
        new.push(self.create(GpuOp::FenceProxy {}, smallvec![], None, found.inst));
        if around.is_some() && !lives_on {
            new.push(self.create(GpuOp::FenceGlobal {}, smallvec![], None, found.inst));
        }
        let coordinates = found.boxed.coordinates(self.function, found.boxed.mark);
        let operands = [buffer, map].into_iter().chain(coordinates).collect();
        let op = found.reduction.map_or(GpuOp::TensorStore {}, |kind| GpuOp::TensorReduce { kind });
        new.push(self.create(op, operands, None, found.inst));
        if !lives_on {
            new.insert(0, alloc);
            new.push(self.wait(found.waits && found.complete, found.inst));
            new.push(self.create(GpuOp::Dealloc {}, smallvec![buffer], None, found.inst));
        }
        if let Some(around) = around {
            self.store_made(found, around, (alloc, buffer), lives_on, new);
            return;
        }
        if lives_on {
            self.ends.push(buffer);
            let entry = self.function.entry;
            let place = found.outermost.unwrap_or(found.inst);
            self.exchange(entry, place, &[alloc, place]);
        }
        self.exchange(found.block, found.inst, &new);
        self.function.blocks[found.block].insts.retain(|inst| !found.conversion.contains(inst));
    }

    /// Writes a copy by a kernel's map, if the map can express the store.
    fn store_made(
        &mut self,
        found: &FoundStore,
        around: &Around,
        (alloc, buffer): (Inst, Value),
        lives_on: bool,
        mut new: Vec<Inst>,
    ) {
        let location = self.function.insts[found.inst].location;
        let barrier = ir::Op::Barrier {}.into();
        let barrier = self.function.create_inst(barrier, smallvec![], smallvec![], [], location);
        if lives_on {
            let fence = self.create(GpuOp::FenceGlobal {}, smallvec![], None, found.inst);
            let wait = self.wait(true, found.inst);
            let end = self.create(GpuOp::Dealloc {}, smallvec![buffer], None, found.inst);
            self.exchange(around.block, around.inst, &[alloc, fence, around.inst, wait, end, barrier]);
        } else {
            new.push(barrier);
        }
        let (header, place) = (&*self.header, (found.block, found.inst));
        tensor_store_fallback::store_where_it_fits(
            header,
            self.function,
            place,
            around,
            lives_on,
            &found.conversion,
            new,
        );
    }

    fn wait(&mut self, complete: bool, like: Inst) -> Inst {
        self.create(GpuOp::TensorStoreWait { pending: 0, complete }, smallvec![], None, like)
    }

    fn end(&mut self) {
        let entry = self.function.entry;
        let Some(last) = self.function.terminator(entry).filter(|_| !self.ends.is_empty()) else { return };
        let mut new = vec![self.wait(false, last)];
        for buffer in std::mem::take(&mut self.ends) {
            new.push(self.create(GpuOp::Dealloc {}, smallvec![buffer], None, last));
        }
        new.push(last);
        self.exchange(entry, last, &new);
    }

    fn exchange(&mut self, block: Block, old: Inst, new: &[Inst]) {
        let insts = &mut self.function.blocks[block].insts;
        let index = insts.iter().position(|inst| *inst == old).expect("the instruction is in this block");
        insts.splice(index..=index, new.iter().copied());
    }
}
