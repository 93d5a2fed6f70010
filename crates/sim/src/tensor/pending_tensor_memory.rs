//! Records the instructions of a warp on tensor memory in flight.

use rustc_hash::FxHashSet;

use super::register_access::WgmmaRegisterAccess;
use crate::fault::FaultKind;
use crate::memory::Clock;
use crate::registers::Slot;

#[derive(Default)]
pub(crate) struct PendingTensorMemory {
    /// The clocks of the last load, of the last store, and of the last dot or copy. Operations of
    /// one field are ordered.
    load: Option<Clock>,
    store: Option<Clock>,
    dot: Option<Clock>,
    /// The registers that loads in flight write.
    loading: FxHashSet<Slot>,
    /// Copies of these registers. Compilers emit copies that nothing reads before the wait.
    copies: FxHashSet<Slot>,
}

impl PendingTensorMemory {
    /// Records a dot or a copy.
    pub fn begin_dot(&mut self, clock: Clock) {
        self.dot = Some(clock);
    }

    pub fn begin_load(&mut self, clock: Clock, registers: &[Slot]) {
        self.load = Some(clock);
        self.loading.extend(registers);
        for slot in registers {
            self.copies.remove(slot);
        }
    }

    pub fn begin_store(&mut self, clock: Clock) {
        self.store = Some(clock);
    }

    /// Returns the clock of the last dot or copy.
    pub fn last_dot(&self) -> Option<Clock> {
        self.dot.clone()
    }

    /// Waits for the loads, or for the stores. Returns the clock of the last one in flight.
    pub fn wait(&mut self, for_loads: bool) -> Option<Clock> {
        if !for_loads {
            return self.store.take();
        }
        self.loading.clear();
        self.copies.clear();
        self.load.take()
    }

    /// Checks the accesses of another instruction to registers of loads in flight.
    ///
    /// # Errors
    /// If an access reads or writes such a register, or reads a copy of one.
    pub fn check_accesses(&mut self, accesses: &[WgmmaRegisterAccess]) -> Result<(), FaultKind> {
        if self.loading.is_empty() {
            return Ok(());
        }
        let fault = |does: &str| {
            Err(FaultKind::Illegal(format!(
                "a register is {does} that a tcgen05.ld in flight writes: a tcgen05.wait::ld is missing"
            )))
        };
        let is_pending = |slot: &Slot| self.loading.contains(slot) || self.copies.contains(slot);
        let mut results = Vec::new();
        for access in accesses {
            match access {
                WgmmaRegisterAccess::Read(slot) if is_pending(slot) => return fault("read"),
                WgmmaRegisterAccess::Read(_) => {}
                WgmmaRegisterAccess::Write { slot: to, .. } | WgmmaRegisterAccess::Copy { to, .. }
                    if self.loading.contains(to) =>
                {
                    return fault("written");
                }
                WgmmaRegisterAccess::Write { slot, .. } => results.push((*slot, false)),
                WgmmaRegisterAccess::Copy { from, to } => results.push((*to, is_pending(from))),
            }
        }
        for (slot, _) in &results {
            self.copies.remove(slot);
        }
        self.copies.extend(results.iter().filter(|(_, is_copy)| *is_copy).map(|(slot, _)| *slot));
        Ok(())
    }
}
