//! Checks that accesses of other agents to shared memory precede its end.
//!
//! The memory exists until the last warp of the block exits. Accesses by other blocks and by
//! pending copies must be ordered before that exit.

use crate::fault::{Cause, Outcome};
use crate::memory::Clock;
use crate::memory::shadow::{Proxy, Record};

/// The last access of each agent to the shared memory of a block.
pub(crate) struct ClusterAccesses {
    rank: usize,
    /// The step and the instruction of each agent's last access. Step 0 means none.
    last: Vec<(u32, u32)>,
    has_ended: bool,
}

impl ClusterAccesses {
    pub fn new(rank: usize, agents: usize) -> Self {
        Self { rank, last: vec![(0, 0); agents], has_ended: false }
    }

    /// Records an access, which is a fault if the block has ended.
    pub fn note(&mut self, agent: usize, step: u32, instruction: u32) -> Outcome {
        if self.has_ended {
            return self.too_late(agent, (step, instruction));
        }
        self.last[agent] = (step, instruction);
        Ok(())
    }

    /// Records the exit of the last warp, which is a fault if an access is not ordered before it.
    /// `known` is the joined clock of the warps.
    pub fn end(&mut self, known: &Clock) -> Outcome {
        self.has_ended = true;
        let unknown = |(agent, (step, _)): &(usize, &(u32, u32))| !known.knows(*agent, *step);
        match self.last.iter().enumerate().find(unknown) {
            Some((agent, &access)) => self.too_late(agent, access),
            None => Ok(()),
        }
    }

    fn too_late(&self, agent: usize, (step, instruction): (u32, u32)) -> Outcome {
        let access = Record {
            agent: agent as u32,
            step,
            instruction,
            proxy: Proxy::Generic,
            is_atomic: false,
            is_write: false,
        };
        Err(Cause::EndedBlock { rank: self.rank, access }.into())
    }
}
