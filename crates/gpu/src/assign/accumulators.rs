//! Finds accumulators that stay in flight between the `wgmma`s of a program (Gluon).
//!
//! A wait such as `warpgroup_mma_wait(1, deps=[acc])` leaves one group pending. It returns a tile
//! in the source, but the dot that writes the tile may still be in flight. There are two cases:
//!
//! - Only further dots, waits and loops use the result: it stays an accumulator in flight. So does
//!   each loop-carried value that it becomes. A `WgmmaInit` before the loop puts the initial tile
//!   of such a loop-carried value in flight.
//! - Another op uses the result: the wait is for the dot of this tile.

use cranelift_entity::EntitySet;
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{Block, Cursor, DeviceFn, Function, Inst, Op, OpFamily, Use, Uses, Value};

use crate::tile::legality::at;

/// Changes the types of accumulators in flight, and inserts `WgmmaInit`s for tiles.
///
/// # Errors
/// If a use needs the tile of an accumulator that is in flight.
pub fn keep_in_flight(function: &mut Function) -> Result<(), Box<Diagnostic>> {
    let uses = Uses::new(function);
    let mut found = InFlight { uses, values: EntitySet::new() };
    while found.extend(function) {}
    found.check(function)?;
    for (value, data) in &mut function.values {
        if found.values.contains(value) {
            data.ty = data.ty.in_flight();
        }
    }
    found.start(function, function.entry);
    Ok(())
}

struct InFlight {
    uses: Uses,
    values: EntitySet<Value>,
}

impl InFlight {
    /// Adds the accumulators in flight that follow from those found. Returns whether it added an
    /// accumulator.
    fn extend(&mut self, function: &Function) -> bool {
        let mut new = Vec::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            match &data.op {
                Op::Device { function: DeviceFn::Wgmma { .. } | DeviceFn::WgmmaInit {} } => {
                    new.push(data.results[0]);
                }
                Op::Device { function: DeviceFn::WgmmaWait { pending: 1.. } } => {
                    let result = data.results[0];
                    if self.uses.of(result).iter().all(|other| continues(function, *other)) {
                        new.push(result);
                    }
                }
                op if matches!(op.family(), OpFamily::Loop | OpFamily::Branch) => {
                    for carried in function.carried(inst) {
                        if carried.yielded.iter().any(|value| self.values.contains(*value)) {
                            new.extend(carried.parameters);
                            new.push(carried.result);
                        }
                    }
                }
                // tidy: wildcard because no other op passes accumulators on
                _ => {}
            }
        });
        new.retain(|value| !self.values.contains(*value));
        for value in &new {
            self.values.insert(*value);
        }
        !new.is_empty()
    }

    /// Refuses uses that need the tile of an accumulator in flight.
    fn check(&self, function: &Function) -> Result<(), Box<Diagnostic>> {
        for value in function.values.keys().filter(|value| self.values.contains(*value)) {
            for other in self.uses.of(value) {
                if !continues(function, *other) {
                    let message = "an accumulator is used while a warpgroup_mma may still add to it";
                    let hint = "wait for it: `acc = warpgroup_mma_wait(0, deps=[acc])`";
                    let found = at(function, other.inst, Code::SharedMemoryMisuse, message).hint(hint);
                    return Err(Box::new(found));
                }
            }
        }
        Ok(())
    }

    /// Puts tiles of a block in flight. These are accumulators of dots, and values that loops or
    /// branches carry with accumulators in flight.
    fn start(&self, function: &mut Function, block: Block) {
        for inst in function.blocks[block].insts.clone() {
            for region in function.insts[inst].regions.clone() {
                self.start(function, region);
            }
            match &function.insts[inst].op {
                Op::Device { function: DeviceFn::Wgmma { .. } } => self.operand(function, block, inst, 0),
                op if matches!(op.family(), OpFamily::Loop | OpFamily::Branch) => {
                    let first = if matches!(op, Op::For { .. }) { 3 } else { 0 };
                    let is_loop = op.family() == OpFamily::Loop;
                    let regions = function.insts[inst].regions.clone();
                    for number in 0..function.insts[inst].results.len() {
                        if !self.values.contains(function.insts[inst].results[number]) {
                            continue;
                        }
                        if is_loop {
                            self.operand(function, block, inst, first + number);
                        }
                        // The first region of a `while` yields only its condition.
                        for region in regions.iter().skip(usize::from(is_loop) * (regions.len() - 1)) {
                            if let Some(end) = function.terminator(*region) {
                                self.operand(function, *region, end, number);
                            }
                        }
                    }
                }
                // tidy: wildcard because no other op takes accumulators
                _ => {}
            }
        }
    }

    fn operand(&self, function: &mut Function, block: Block, inst: Inst, index: usize) {
        let value = function.insts[inst].operands[index];
        if self.values.contains(value) {
            return;
        }
        let ty = function.ty(value).in_flight();
        let op = Op::Device { function: DeviceFn::WgmmaInit {} };
        let started = Cursor::before(function, block, inst).value(op, &[value], ty);
        function.insts[inst].operands[index] = started;
    }
}

/// Returns whether a use leaves an accumulator in flight, or waits for it.
fn continues(function: &Function, other: Use) -> bool {
    match &function.insts[other.inst].op {
        Op::Device { function: DeviceFn::Wgmma { .. } } => other.operand == 0,
        Op::Device { function: DeviceFn::WgmmaWait { .. } } => true,
        // tidy: wildcard because other ops need the tile
        op => matches!(op.family(), OpFamily::Loop | OpFamily::Terminator),
    }
}
