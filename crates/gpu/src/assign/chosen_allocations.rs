//! Joins allocations among which a program chooses at run time (Gluon). Example: a loop swaps two
//! buffers. They become slots of one allocation. A value that named an allocation becomes the index
//! of its first slot.
//!
//! `stated.rs` refuses allocations that cannot be joined: those for different tiles, in different
//! blocks, or with views.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_ir::{
    Block, Cursor, DeviceFn, Dtype, ElementwiseFn, Function, Inst, Op, OpFamily, SharedTiles, Value,
};

/// Values that may name the same allocation.
struct ChoiceGroup {
    values: FxHashSet<Value>,
    allocations: Vec<(Inst, Value)>,
}

/// Joins the allocations among which the function chooses.
pub fn join_chosen(function: &mut Function) {
    for group in groups(function) {
        join(function, &group);
    }
}

/// Returns the groups whose allocations can be joined.
fn groups(function: &Function) -> Vec<ChoiceGroup> {
    let mut carried = Vec::new();
    let mut allocations = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Device { function: DeviceFn::Allocate { .. } } = data.op {
            allocations.push((inst, data.results[0]));
        }
        if matches!(data.op.family(), OpFamily::Loop | OpFamily::Branch) {
            carried.extend(function.carried(inst).map(|carried| -> SmallVec<[Value; 6]> {
                let values = carried.initial.into_iter().chain(carried.parameters).chain(carried.yielded);
                values.chain([carried.result]).collect()
            }));
        }
    });
    let mut found: Vec<ChoiceGroup> = Vec::new();
    for (inst, value) in &allocations {
        if found.iter().any(|group| group.values.contains(value)) {
            continue;
        }
        let mut values = FxHashSet::from_iter([*value]);
        let mut count = 0;
        while count != values.len() {
            count = values.len();
            for carried in &carried {
                if carried.iter().any(|value| values.contains(value)) {
                    values.extend(carried.iter().copied());
                }
            }
        }
        let own = allocations.iter().filter(|(_, value)| values.contains(value)).copied().collect();
        let group = ChoiceGroup { values, allocations: own };
        if group.values.len() > 1 && is_possible(function, &group, *inst) {
            found.push(group);
        }
    }
    found
}

/// Returns whether a group's allocations are in one block, for equal tiles, and without views.
fn is_possible(function: &Function, group: &ChoiceGroup, first: Inst) -> bool {
    let tiles_of = |inst: Inst| match &function.insts[inst].op {
        Op::Device { function: DeviceFn::Allocate { tiles } } => {
            Some(SharedTiles { slots: 1, ..tiles.clone() })
        }
        // tidy: wildcard because other instructions allocate nothing
        _ => None,
    };
    // The group has only allocations, and values that loops and branches carry.
    let are_known = group.values.iter().all(|value| {
        function.defining_inst(*value).is_none_or(|inst| {
            tiles_of(inst).is_some()
                || matches!(function.insts[inst].op.family(), OpFamily::Loop | OpFamily::Branch)
        })
    });
    let mut has_view = false;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let is_view = matches!(data.op, Op::Device { function: DeviceFn::View { .. } });
        has_view |= is_view && group.values.contains(&data.operands[0]);
    });
    let block = block_of(function, first);
    are_known
        && !has_view
        && group
            .allocations
            .iter()
            .all(|(inst, _)| tiles_of(*inst) == tiles_of(first) && block_of(function, *inst) == block)
}

fn block_of(function: &Function, inst: Inst) -> Option<Block> {
    function.blocks.keys().find(|block| function.position_in(*block, inst).is_some())
}

fn join(function: &mut Function, group: &ChoiceGroup) {
    let Some((first, name)) = group.allocations.first().copied() else { return };
    let Some(block) = block_of(function, first) else { return };
    let mut slots = 0;
    let mut tiles = None;
    let mut starts = Vec::new();
    for (inst, value) in &group.allocations {
        if let Op::Device { function: DeviceFn::Allocate { tiles: own } } = &function.insts[*inst].op {
            starts.push((*value, slots));
            slots += own.slots;
            tiles = Some(own.clone());
        }
    }
    let Some(tiles) = tiles.map(|tiles| SharedTiles { slots, ..tiles }) else { return };
    let ty = function.ty(name).clone();
    let mut cursor = Cursor::before(function, block, first);
    cursor.use_location_of(first);
    let memory = cursor.value(Op::Device { function: DeviceFn::Allocate { tiles } }, &[], ty);
    let indices: FxHashMap<Value, Value> =
        starts.into_iter().map(|(value, start)| (value, cursor.int(Dtype::I32, i128::from(start)))).collect();
    function.copy_name(name, memory);
    let is_replaced = |inst: Inst| group.allocations.iter().any(|(other, _)| *other == inst);
    let mut accesses = Vec::new();
    let blocks: Vec<Block> = function.blocks.keys().collect();
    for block in blocks {
        function.blocks[block].insts.retain(|inst| !is_replaced(*inst));
        accesses.extend(function.blocks[block].insts.iter().map(|inst| (block, *inst)));
    }
    for (block, inst) in accesses {
        let Op::Device { function: device } = &function.insts[inst].op else { continue };
        let device = device.clone();
        let count = function.insts[inst].operands.len();
        for index in device.memory_operands(count).collect::<SmallVec<[usize; 2]>>() {
            let chosen = function.insts[inst].operands[index];
            if !group.values.contains(&chosen) {
                continue;
            }
            function.insts[inst].operands[index] = memory;
            if let DeviceFn::KeepAlive {} = device {
                continue;
            }
            let slot = function.insts[inst].operands[index + 1];
            let mut cursor = Cursor::before(function, block, inst);
            cursor.use_location_of(inst);
            let slot = cursor.scalar(ElementwiseFn::Add, &[chosen, slot], Dtype::I32);
            function.insts[inst].operands[index + 1] = slot;
        }
    }
    function.replace_uses(&indices, |_| false);
}
