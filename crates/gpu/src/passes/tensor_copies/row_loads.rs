//! Turns loads of gathered rows to registers into tensor copies. Threads then load the rows from
//! shared memory.
//!
//! ```text
//! %p = tensor_box %q, %map, %rows, %j                 %e = acquire %r
//! %x = load %p, %mask                                 tensor_fill %e, %map, %rows, %j ; publish %e
//! …                                            ──>    …
//! use %x                                              %b = take %r ; %x = local_load %b ; release %b
//!                                                     use %x
//! ```
//! [`super`] handles rows that go to a buffer, and `pipelining` rows that go to a ring. The wait
//! for a copy is before the first use, so copies of several tiles run concurrently.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Parents, Uses};

use super::{Header, Inst, Op, Pass, ir};
use crate::passes::allocation::least_bytes;
use crate::passes::boxed::{Boxed, is_of_rows, map_for};
use crate::passes::tensor_maps::map_plan;
use crate::passes::tensor_stores::staging;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::{Buffer, Deferred, Function, GpuOp, Padding, Type};

/// Turns the remaining loads of rows into tensor copies. Returns the `alloc` and `dealloc` of their
/// rings.
pub(super) fn load_rows(header: &mut Header, function: &mut Function) -> Vec<(Inst, Inst)> {
    let mut made = Vec::new();
    let mut loads = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::Load { volatile: false, .. }))
            && function.defining_inst(data.operands[0]).is_some_and(|mark| is_of_rows(function, mark))
        {
            loads.push(inst);
        }
    });
    for load in loads {
        let (original, maps) = (function.clone(), header.tensor_maps.clone());
        let found = stage(header, function, load).and_then(|store| {
            let (parents, uses) = (Parents::new(function), Uses::new(function));
            let (header, function) = (&mut *header, &mut *function);
            let mut pass = Pass { header, function, parents, uses, made: Vec::new() };
            let found =
                pass.find(store).ok_or("it is in a partition of warps, or in the condition of a loop")?;
            let map = map_for(pass.header, pass.function, &found.boxed).ok_or(NO_LAYOUT)?;
            pass.replace(&found, map);
            let rings = pass.made;
            let limit = u64::from(header.target.max_shared_bytes);
            if least_bytes(&header.layouts, function) > limit {
                Err("shared memory is full")
            } else {
                Ok(rings)
            }
        });
        if found.is_err() {
            *function = original;
            header.tensor_maps = maps;
        }
        let found = found.map(|rings| made.extend(rings));
        let tile = || function.ty(function.insts[load].results[0]).as_registers();
        let subject = || remarks::subject(function, load, tile());
        remarks::about("tensor_copies", function, load, subject, || match found {
            Ok(()) => RemarkReason::done("by tensor copies of rows", "threads load them from shared memory"),
            Err(reason) => RemarkReason::missed("no tensor copies of rows", reason),
        });
    }
    made
}

const NO_LAYOUT: &str = "tensor copies support no layout of the tile in shared memory";

/// Sends a load through a buffer that tensor copies can fill. Returns the store to the buffer.
fn stage(header: &mut Header, function: &mut Function, load: Inst) -> Result<Inst, &'static str> {
    let loaded = function.insts[load].results[0];
    let mark = function.defining_inst(function.insts[load].operands[0]).ok_or(NO_LAYOUT)?;
    let ty = function.ty(loaded).clone();
    let tile = ty.as_registers().ok_or(NO_LAYOUT)?;
    let (_, plan) = map_plan(header, function, function.insts[mark].operands[1]).ok_or(NO_LAYOUT)?;
    let axis = plan.contiguous_axis().ok_or(NO_LAYOUT)?;
    let (memory, pieces) = staging(&tile.shape, axis, element_bits(tile)).ok_or(NO_LAYOUT)?;
    let (element, shape) = (tile.element, tile.shape.clone());
    let boxed = Boxed {
        mark,
        axes: (0..tile.rank()).collect(),
        shape: shape.clone(),
        boxes: pieces,
        is_written: false,
    };
    boxed.plan(header, function).ok_or(NO_LAYOUT)?;
    let layout = header.layouts.add(memory);
    let buffer = Type::Buffer(Buffer { slots: 1, element, shape, layout, padding: Padding::default() });
    let location = function.insts[load].location;
    let op = GpuOp::Alloc { offset: Deferred(None) };
    let alloc = function.create_inst(op.into(), smallvec![], smallvec![], Some(buffer), location);
    let memory = function.insts[alloc].results[0];
    let mut create = |op: GpuOp, operands: SmallVec<[ir::Value; 4]>, result: Option<Type>| {
        function.create_inst(op.into(), operands, smallvec![], result, location)
    };
    let store = create(GpuOp::LocalStore {}, smallvec![memory, loaded], None);
    let read = create(GpuOp::LocalLoad { matrix: false }, smallvec![memory], Some(ty));
    let end = create(GpuOp::Dealloc {}, smallvec![memory], None);
    let new = function.insts[read].results[0];
    function.copy_name(loaded, new);
    function.replace_uses(&FxHashMap::from_iter([(loaded, new)]), |inst| inst == store);
    let block = Parents::new(function).block(load).ok_or(NO_LAYOUT)?;
    let uses = |inst: &Inst| {
        let mut is_used = function.insts[*inst].operands.contains(&new);
        for region in &function.insts[*inst].regions {
            function.walk(*region, &mut |inner| is_used |= function.insts[inner].operands.contains(&new));
        }
        is_used
    };
    let insts = &function.blocks[block].insts;
    let from = insts.iter().position(|inst| *inst == load).ok_or(NO_LAYOUT)? + 1;
    let first = insts[from..].iter().position(uses).map_or(from, |place| from + place);
    function.blocks[block].insts.splice(first..first, [alloc, store, read, end]);
    Ok(store)
}
