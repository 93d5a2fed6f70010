//! Finds reads of registers that some path reaches without an unguarded write.
//!
//! Only these reads are checked at run time, and most kernels have none.

use tilewright_ptx::isa::{Access, Instruction, RegisterId};

use super::{Action, Decoder, Step};
use crate::registers::Slot;

pub(super) struct StepRegisters {
    step: u32,
    /// The guard, which all lanes of a group read.
    guard: Option<Slot>,
    reads: Vec<Slot>,
    writes: Vec<Slot>,
}

/// The registers to check or to mark when a step executes.
#[derive(Default)]
pub(crate) struct Watched {
    /// The guard, and the registers that the executing lanes read, if they may be uninitialized.
    pub guard: Option<(Slot, Box<str>)>,
    pub reads: Vec<(Slot, Box<str>)>,
    pub writes: Vec<Slot>,
}

impl Decoder<'_> {
    pub(super) fn named(&mut self, register: RegisterId) -> Slot {
        let slot = self.register(register);
        if !self.names.contains_key(&slot) {
            let name = self.frame().function.registers[register].name.clone();
            self.names.insert(slot, name);
        }
        slot
    }

    /// Records the registers of the last pushed step.
    pub(super) fn note_registers(&mut self, instruction: &Instruction) {
        let mut registers = Vec::new();
        instruction.visit_registers(|register, access| registers.push((register, access)));
        let step = self.steps.len() as u32 - 1;
        let guard = self.steps[step as usize].guard.map(|(slot, _)| slot);
        let mut noted = StepRegisters { step, guard, reads: Vec::new(), writes: Vec::new() };
        for (register, access) in registers {
            let slot = self.named(register);
            match access {
                Access::Read if matches!(instruction, Instruction::Call(_)) => {}
                Access::Read => noted.reads.push(slot),
                // A matrix instruction may ignore its old accumulators, so a register that is read
                // and written counts as written.
                Access::Write | Access::ReadWrite => noted.writes.push(slot),
            }
        }
        self.step_registers.push(noted);
    }

    /// Attaches the registers to check or mark to each step. Returns whether any must be checked.
    /// `entries` are the first steps of the called functions.
    pub(super) fn watch_registers(&mut self, entries: &[u32]) -> bool {
        let by_step = self.registers_by_step();
        let blocks = blocks(&self.steps, entries);
        let words = self.slots.div_ceil(64) as usize;
        let mut known: Vec<Option<Vec<u64>>> = vec![None; blocks.len()];
        known[0] = Some(vec![0; words]);
        for &entry in entries {
            // All calls of a function share its registers, so these count as initialized.
            known[block_of(&blocks, entry)] = Some(vec![u64::MAX; words]);
        }
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for index in 0..blocks.len() {
                let Some(mut state) = known[index].clone() else { continue };
                for step in blocks[index].clone() {
                    self.transfer(step, by_step[step as usize], &mut state);
                }
                for next in successors(&self.steps, blocks[index].end - 1) {
                    let Some(next) = blocks.binary_search_by_key(&next, |block| block.start).ok() else {
                        continue;
                    };
                    has_changed |= meet(&mut known[next], &state);
                }
            }
        }
        self.attach(&by_step, &blocks, known)
    }

    fn registers_by_step(&self) -> Vec<Option<usize>> {
        let mut by_step = vec![None; self.steps.len()];
        for (index, registers) in self.step_registers.iter().enumerate() {
            by_step[registers.step as usize] = Some(index);
        }
        by_step
    }

    /// Marks the results of a step as initialized, unless it has a guard.
    fn transfer(&self, step: u32, registers: Option<usize>, state: &mut [u64]) {
        let Some(index) = registers else { return };
        if self.steps[step as usize].guard.is_none() {
            for slot in &self.step_registers[index].writes {
                state[slot.0 as usize / 64] |= 1 << (slot.0 % 64);
            }
        }
    }

    fn attach(
        &mut self,
        by_step: &[Option<usize>],
        blocks: &[std::ops::Range<u32>],
        known: Vec<Option<Vec<u64>>>,
    ) -> bool {
        let mut doubtful = rustc_hash::FxHashSet::default();
        for (block, state) in blocks.iter().zip(known) {
            let Some(mut state) = state else { continue };
            for step in block.clone() {
                let Some(index) = by_step[step as usize] else { continue };
                let is_doubtful = |slot: &Slot| state[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 0;
                let named = |slot: Slot| (slot, self.names.get(&slot).cloned().unwrap_or_default());
                let registers = &self.step_registers[index];
                let guard = registers.guard.filter(is_doubtful).map(named);
                let reads: Vec<_> = registers.reads.iter().copied().filter(is_doubtful).map(named).collect();
                if guard.is_some() || !reads.is_empty() {
                    doubtful.extend(guard.iter().chain(&reads).map(|(slot, _)| *slot));
                    self.steps[step as usize].watched =
                        Some(Box::new(Watched { guard, reads, writes: Vec::new() }));
                }
                self.transfer(step, by_step[step as usize], &mut state);
            }
        }
        for registers in &self.step_registers {
            let writes: Vec<_> =
                registers.writes.iter().copied().filter(|slot| doubtful.contains(slot)).collect();
            if !writes.is_empty() {
                self.steps[registers.step as usize].watched.get_or_insert_default().writes = writes;
            }
        }
        !doubtful.is_empty()
    }
}

/// Returns the steps that may follow a step.
fn successors(steps: &[Step], step: u32) -> Vec<u32> {
    let is_guarded = steps[step as usize].guard.is_some();
    let mut next = match &steps[step as usize].action {
        Action::Branch(target) => vec![*target],
        Action::Choose { targets, .. } => targets.clone(),
        Action::Exit | Action::Return => Vec::new(),
        Action::Compute(_)
        | Action::Execute(_)
        | Action::Call(_)
        | Action::Barrier(_)
        | Action::ClusterArrive
        | Action::ClusterWait
        | Action::Nothing => return vec![step + 1],
    };
    if is_guarded {
        next.push(step + 1);
    }
    next
}

fn ends_block(action: &Action) -> bool {
    matches!(action, Action::Branch(_) | Action::Choose { .. } | Action::Exit | Action::Return)
}

fn blocks(steps: &[Step], entries: &[u32]) -> Vec<std::ops::Range<u32>> {
    let end = steps.len() as u32;
    let mut starts: Vec<u32> = entries.iter().copied().chain([0]).collect();
    for (at, step) in (0..).zip(steps) {
        if ends_block(&step.action) {
            starts.push(at + 1);
            starts.extend(successors(steps, at));
        }
    }
    starts.retain(|start| *start < end);
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().copied().skip(1).chain([end]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

fn block_of(blocks: &[std::ops::Range<u32>], step: u32) -> usize {
    blocks.binary_search_by_key(&step, |block| block.start).expect("an entry begins a block")
}

/// Intersects `known` with the registers of another path. Returns whether it changed.
fn meet(known: &mut Option<Vec<u64>>, state: &[u64]) -> bool {
    let Some(known) = known else {
        *known = Some(state.to_vec());
        return true;
    };
    let mut is_news = false;
    for (known, state) in known.iter_mut().zip(state) {
        is_news |= *known & !state != 0;
        *known &= state;
    }
    is_news
}
