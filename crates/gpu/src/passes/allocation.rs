//! Allocates shared memory by liveness: buffers that are live together are disjoint. Ranges are
//! assigned first fit, the largest buffer first.
//!
//! A kernel may write one buffer while accesses to another are in flight. A common range would then
//! cost a barrier. So such buffers are disjoint, too, if the kernel then needs at most
//! `cheap_shared_bytes`, or no more bytes than before. Otherwise, only such buffers in loops get
//! disjoint ranges, under the same condition.

use std::collections::BTreeSet;
use std::ops::Range;

use cranelift_entity::SecondaryMap;
use tilewright_base::{Code, Diagnostic};
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Value};

use super::memory_effects::{Effect, MemoryLocation, effects, walk};
use crate::cost_model;
use crate::tile::legality::at;
use tilewright_gpu_ir::alignment::{Alignments, MBARRIER_BYTES};
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{Deferred, Function, GpuOp, InstData, Layouts, Module, Op, Type};

/// The minimum alignment of a buffer in bytes: that of the widest access.
///
/// A buffer is aligned to its size, rounded up to a power of two, up to [`BANKS_BYTES`]. Its users
/// may need a larger alignment ([`Alignments`]).
const ALIGNMENT: u64 = 16;
/// The bytes of one word in each of the 32 banks.
const BANKS_BYTES: u64 = 128;
/// The maximum number of tiles that the error lists.
const MAX_LISTED_TILES: usize = 8;

/// Gives all buffers of a kernel their offsets in shared memory.
///
/// # Errors
/// If the kernel needs more shared memory than the target has.
pub fn allocate_shared_memory(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let analysis = SlotAnalysis::new(module.kernel(), false);
    let buffers = Buffers::new(&module.header.layouts, &analysis);
    // Keep existing offsets, because the barriers were inserted for them.
    if buffers.list.iter().all(|(inst, _)| alloc_range(module.kernel(), *inst).is_some()) {
        return Ok(());
    }
    let in_sequence = in_sequence(&analysis);
    let limit = u64::from(module.header.target.max_shared_bytes);
    let least = buffers.place(&buffers.in_use);
    let most = least.bytes.max(module.header.target.tuning.cheap_shared_bytes.min(limit));
    let everywhere = &buffers.in_use | &in_sequence;
    let in_loops: BTreeSet<(Inst, Inst)> = everywhere
        .iter()
        .filter(|(a, b)| buffers.loops[*a].and(buffers.loops[*b]).is_some())
        .copied()
        .collect();
    let candidates = [&everywhere, &(&buffers.in_use | &in_loops)].map(|apart| buffers.place(apart));
    let placed = candidates.into_iter().find(|placed| placed.bytes <= most).unwrap_or(least);
    if placed.bytes > limit {
        return Err(Box::new(too_much(module, &buffers, placed.bytes)));
    }
    module.header.shared_bytes = placed.bytes as u32;
    if module.header.min_blocks > 0 {
        let blocks = cost_model::blocks_by_shared_memory(module.header.shared_bytes, module.header.target);
        let blocks = blocks.min(module.header.min_blocks);
        module.header.min_blocks = if blocks > 1 { blocks } else { 0 };
    }
    let function = &mut module.functions[module.entry];
    for (inst, _) in &buffers.list {
        if let Some((start, _)) = placed.ranges[*inst] {
            function.insts[*inst].op = GpuOp::Alloc { offset: Deferred(Some(start as u32)) }.into();
        }
    }
    Ok(())
}

/// Returns the minimum bytes of shared memory that hold the buffers of a kernel.
pub fn least_shared_bytes(module: &Module) -> u64 {
    least_bytes(&module.header.layouts, module.kernel())
}

/// Returns the bytes of shared memory that a kernel needs. It includes the mbarriers that the
/// lowering of rings adds, so a kernel that fits now also fits later.
pub fn least_bytes(layouts: &Layouts, function: &Function) -> u64 {
    let buffers = Buffers::new(layouts, &SlotAnalysis::new(function, false));
    buffers.place(&buffers.in_use).bytes + mbarrier_bytes(function)
}

/// Returns an upper bound of the bytes of the `mbarrier`s of rings. Each slot may get a full and an
/// empty `mbarrier`.
fn mbarrier_bytes(function: &Function) -> u64 {
    let mut bytes = 0;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::Alloc { .. }))
            && let Type::Ring(ring) = function.ty(data.results[0])
        {
            bytes += 2 * u64::from(ring.slots * MBARRIER_BYTES).next_multiple_of(ALIGNMENT);
        }
    });
    bytes
}

fn alloc_bytes(function: &Function, inst: Inst) -> Option<u32> {
    let data = &function.insts[inst];
    let Op::Gpu(GpuOp::Alloc { .. }) = data.op else { return None };
    match function.ty(data.results[0]) {
        Type::Buffer(buffer) | Type::Ring(buffer) => Some(buffer.bytes()),
        Type::Mbarrier { slots } => Some(slots * MBARRIER_BYTES),
        Type::Registers { .. }
        | Type::Empty(_)
        | Type::Full(_)
        | Type::Pending { .. }
        | Type::TensorMemory(_) => None,
    }
}

/// Returns an allocation's memory and its range in bytes. Returns `None` for other instructions,
/// and before the offset is assigned.
pub fn alloc_range(function: &Function, inst: Inst) -> Option<(Value, Range<u64>)> {
    let data = &function.insts[inst];
    let bytes = u64::from(alloc_bytes(function, inst)?);
    let Op::Gpu(GpuOp::Alloc { offset: Deferred(Some(start)) }) = data.op else { return None };
    Some((data.results[0], u64::from(start)..u64::from(start) + bytes))
}

/// Returns the error for a kernel that needs too much shared memory. It lists the tiles at the
/// point of the highest use.
fn too_much(module: &Module, buffers: &Buffers, bytes: u64) -> Diagnostic {
    let (function, target) = (module.kernel(), module.header.target);
    let limit = target.max_shared_bytes;
    let analysis = SlotAnalysis::new(function, false);
    let mut parts: Vec<(Inst, u32)> = buffers.together();
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let is_tile =
        |inst: &Inst| !matches!(function.ty(function.insts[*inst].results[0]), Type::Mbarrier { .. });
    let barriers: u32 = parts.iter().filter(|(inst, _)| !is_tile(inst)).map(|(_, bytes)| bytes).sum();
    parts.retain(|(inst, _)| is_tile(inst));
    let described = |(inst, bytes): &(Inst, u32)| match function.ty(function.insts[*inst].results[0]) {
        Type::Buffer(buffer) if buffer.slots > 1 => {
            format!("{bytes} bytes: {} tiles of {}", buffer.slots, buffer.tile())
        }
        ty => ty.tile().map_or_else(|| format!("{bytes} bytes"), |tile| format!("{bytes} bytes: {tile}")),
    };
    let message = format!("the kernel needs {bytes} bytes of shared memory, and {} has {limit}", target.name);
    let largest = parts.first().map_or(buffers.list[0].0, |(inst, _)| *inst);
    let mut diagnostic = at(function, origin(&analysis, largest), Code::OutOfSharedMemory, message);
    if let (Some(label), Some(part)) = (&mut diagnostic.primary, parts.first()) {
        label.text = described(part);
    }
    for part in parts.iter().skip(1).take(MAX_LISTED_TILES - 1) {
        if let Some(span) = function.call_chain(origin(&analysis, part.0)).into_iter().next() {
            diagnostic = diagnostic.secondary(span, described(part));
        }
    }
    let mut list: Vec<String> = parts.iter().take(MAX_LISTED_TILES).map(described).collect();
    if parts.len() > MAX_LISTED_TILES {
        let rest: u32 = parts[MAX_LISTED_TILES..].iter().map(|(_, bytes)| bytes).sum();
        list.push(format!("{rest} bytes in {} smaller tiles", parts.len() - MAX_LISTED_TILES));
    }
    list.extend((barriers > 0).then(|| format!("{barriers} bytes of barriers")));
    diagnostic
        .note(format!("in use at one time: {}", list.join("; ")))
        .note(format!("found {bytes} bytes, expected at most {limit}"))
        .hint("use smaller blocks, or a smaller num_stages")
}

/// Returns the instruction, usually a load, whose tile goes to a buffer. Returns the allocation if
/// nothing writes the buffer.
fn origin(analysis: &SlotAnalysis<'_>, alloc: Inst) -> Inst {
    let function = analysis.function;
    let memory = function.insts[alloc].results[0];
    let mut writer = None;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let is_store = matches!(data.op, Op::Gpu(GpuOp::LocalStore {})) || data.op.info().phase.starts_fill();
        if writer.is_none() && is_store && analysis.alloc(data.operands[0]) == Some(memory) {
            writer = Some(inst);
        }
    });
    let Some(mut inst) = writer else { return alloc };
    while let Op::Gpu(GpuOp::LocalStore {} | GpuOp::ConvertLayout {}) | Op::Tile(ir::Op::Transpose { .. }) =
        &function.insts[inst].op
    {
        let value = function.insts[inst].operands.last().copied();
        let Some(made) = value.and_then(|value| function.defining_inst(value)) else { break };
        inst = made;
    }
    inst
}

/// The buffers of a function, and the pairs that are live together.
struct Buffers {
    /// The buffers with their bytes, the largest first.
    list: Vec<(Inst, u32)>,
    /// The live range of each buffer, as indices of instructions in program order.
    lives: SecondaryMap<Inst, (u32, u32)>,
    in_use: BTreeSet<(Inst, Inst)>,
    /// The innermost loop around the `alloc` of each buffer.
    loops: SecondaryMap<Inst, Option<Inst>>,
    /// The alignments that the uses of each buffer need.
    alignments: Alignments,
}

struct Placement {
    /// The first byte of each buffer, and the byte after its last one.
    ranges: SecondaryMap<Inst, Option<(u64, u64)>>,
    bytes: u64,
}

impl Buffers {
    fn new(layouts: &Layouts, analysis: &SlotAnalysis<'_>) -> Self {
        let function = analysis.function;
        let mut numbering = Numbering::new(function);
        numbering.block(function.entry);
        let mut list: Vec<(Inst, u32)> = Vec::new();
        list.extend(numbering.order.iter().filter_map(|inst| Some((*inst, alloc_bytes(function, *inst)?))));
        let mut in_use = BTreeSet::new();
        let ranges: Vec<(Inst, (u32, u32))> =
            list.iter().map(|(inst, _)| (*inst, numbering.live_range(*inst))).collect();
        let mut lives = SecondaryMap::new();
        for (number, (a, (start, end))) in ranges.iter().enumerate() {
            lives[*a] = (*start, *end);
            // The live ranges are sorted by their start.
            let during = ranges[number + 1..].iter().take_while(|(_, (start, _))| start <= end);
            in_use.extend(during.map(|(b, _)| pair(*a, *b)));
        }
        in_use.extend(in_other_partitions(analysis, &list));
        list.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let alignments = Alignments::new(layouts, analysis);
        Self { list, lives, in_use, loops: numbering.loops, alignments }
    }

    /// Returns the buffers at the point of the highest use.
    fn together(&self) -> Vec<(Inst, u32)> {
        let beside = |one: Inst| {
            let is_there = |other: &&(Inst, u32)| {
                let is_before = self.lives[other.0].0 <= self.lives[one].0;
                other.0 == one || is_before && self.in_use.contains(&pair(one, other.0))
            };
            self.list.iter().filter(is_there).copied().collect::<Vec<_>>()
        };
        let sets = self.list.iter().map(|(inst, _)| beside(*inst));
        sets.max_by_key(|set| set.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>()).unwrap_or_default()
    }

    /// Assigns ranges first fit, the largest buffer first. Pairs in `apart` get disjoint ranges.
    fn place(&self, apart: &BTreeSet<(Inst, Inst)>) -> Placement {
        let mut neighbours: SecondaryMap<Inst, Vec<Inst>> = SecondaryMap::new();
        for (a, b) in apart {
            neighbours[*a].push(*b);
            neighbours[*b].push(*a);
        }
        let mut ranges: SecondaryMap<Inst, Option<(u64, u64)>> = SecondaryMap::new();
        let mut total = 0;
        for (inst, bytes) in &self.list {
            let mut taken: Vec<(u64, u64)> =
                neighbours[*inst].iter().filter_map(|other| ranges[*other]).collect();
            taken.sort_unstable();
            let bytes = u64::from(*bytes);
            let needed = u64::from(self.alignments.of(*inst));
            let alignment = bytes.next_power_of_two().clamp(ALIGNMENT, BANKS_BYTES).max(needed);
            let mut start = 0;
            for (from, to) in taken {
                if start + bytes <= from {
                    break;
                }
                start = start.max(to.next_multiple_of(alignment));
            }
            ranges[*inst] = Some((start, start + bytes));
            total = total.max(start + bytes);
        }
        Placement { ranges, bytes: total }
    }
}

/// Returns the pairs of buffers of different partitions, which run concurrently.
fn in_other_partitions(analysis: &SlotAnalysis<'_>, list: &[(Inst, u32)]) -> Vec<(Inst, Inst)> {
    let is_specialized = |data: &InstData| matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. }));
    if !analysis.function.insts.values().any(is_specialized) {
        return Vec::new();
    }
    let of_partitions = list.iter().filter_map(|(inst, _)| Some((*inst, analysis.partition(*inst)?)));
    let of_partitions: Vec<(Inst, (Inst, usize))> = of_partitions.collect();
    let mut pairs = Vec::new();
    for (number, (a, one)) in of_partitions.iter().enumerate() {
        let others = of_partitions[number + 1..].iter();
        let beside = others.filter(|(_, other)| one.0 == other.0 && one.1 != other.1);
        pairs.extend(beside.map(|(b, _)| pair(*a, *b)));
    }
    pairs
}

fn pair(a: Inst, b: Inst) -> (Inst, Inst) {
    if a < b { (a, b) } else { (b, a) }
}

/// Returns pairs of buffers: the kernel may store to one during accesses to the other.
fn in_sequence(analysis: &SlotAnalysis<'_>) -> BTreeSet<(Inst, Inst)> {
    let mut pairs = BTreeSet::new();
    let alloc = |place: &MemoryLocation| match place {
        MemoryLocation::Shared(slot) => analysis.function.defining_inst(analysis.alloc(slot.root)?),
        MemoryLocation::Global(_) | MemoryLocation::Acquired => None,
    };
    walk(analysis, &mut |inst, open| {
        let effects: Vec<Effect> = effects(analysis, inst)
            .into_iter()
            .filter(|effect| {
                !matches!(
                    effect,
                    Effect::Read(MemoryLocation::Global(_)) | Effect::Write(MemoryLocation::Global(_))
                )
            })
            .collect();
        // Conflicting accesses to one buffer need a barrier wherever the buffer is placed.
        let is_one = |a: MemoryLocation, b: MemoryLocation| alloc(&a).is_some() && alloc(&a) == alloc(&b);
        if open.needs_barrier(&effects, is_one) {
            open.close();
        }
        if let Some(Effect::Write(place)) = effects.first() {
            let others = open.reads.iter().chain(&open.writes).filter_map(alloc);
            pairs.extend(others.zip(std::iter::repeat(alloc(place))).filter_map(|(a, b)| Some(pair(a, b?))));
        }
        open.carry_out(&effects);
    });
    pairs
}

/// Instructions in the order of the text.
pub(super) struct Numbering<'a> {
    function: &'a Function,
    pub order: Vec<Inst>,
    /// The index of each instruction, and the index of the last instruction in its regions.
    numbers: SecondaryMap<Inst, (u32, u32)>,
    /// The innermost loop around each instruction.
    loops: SecondaryMap<Inst, Option<Inst>>,
    enclosing: Vec<Inst>,
    /// The `dealloc` of each `alloc`.
    ends: SecondaryMap<Inst, Option<Inst>>,
}

impl<'a> Numbering<'a> {
    pub fn new(function: &'a Function) -> Self {
        let mut numbering = Self {
            function,
            order: Vec::new(),
            numbers: SecondaryMap::new(),
            loops: SecondaryMap::new(),
            enclosing: Vec::new(),
            ends: SecondaryMap::new(),
        };
        numbering.numbers.resize(function.insts.len());
        numbering.loops.resize(function.insts.len());
        numbering
    }

    pub fn block(&mut self, block: Block) {
        let function = self.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let number = self.order.len() as u32;
            self.order.push(*inst);
            self.loops[*inst] = self.enclosing.last().copied();
            let is_loop = matches!(data.op.as_tile(), Some(ir::Op::For { .. } | ir::Op::While {}));
            if is_loop {
                self.enclosing.push(*inst);
            }
            for region in &data.regions {
                self.block(*region);
            }
            if is_loop {
                self.enclosing.pop();
            }
            if matches!(data.op, Op::Gpu(GpuOp::Dealloc {}))
                && let Some(alloc) = function.defining_inst(data.operands[0])
            {
                self.ends[alloc] = Some(*inst);
            }
            self.numbers[*inst] = (number, self.order.len() as u32 - 1);
        }
    }

    /// Returns the live range of a buffer, up to its `dealloc` or the kernel's end.
    pub fn live_range(&self, alloc: Inst) -> (u32, u32) {
        let end = self.ends[alloc].map_or(u32::MAX, |end| self.numbers[end].1);
        (self.numbers[alloc].0, end)
    }
}
