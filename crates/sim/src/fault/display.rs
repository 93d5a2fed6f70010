//! Writes the texts of faults.

use std::fmt;

use super::{BarrierWait, Fault, FaultKind, Polling, Waiting};
use crate::memory::Space;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.kind)?;
        if let Some(location) = &self.location {
            write!(f, "  at {location}")?;
            if let Some(instruction) = &self.instruction {
                write!(f, ": {instruction}")?;
            }
            writeln!(f)?;
        }
        let [x, y, z] = self.block;
        write!(f, "  in kernel {}, block ({x}, {y}, {z}), warp {}", self.kernel, self.warp)?;
        match self.lane {
            Some(lane) => write!(f, ", lane {lane}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// Writes a line for each group of lanes: its position and its instruction.
fn write_waiting(f: &mut fmt::Formatter<'_>, waiting: &[Waiting]) -> fmt::Result {
    for Waiting { block, warp, lanes, location, instruction, barrier } in waiting {
        write!(
            f,
            "\n  block {block} of the cluster, warp {warp}, lanes {lanes:#010x}, at {location}: {instruction}"
        )?;
        if let Some(BarrierWait { block, offset, phase, arrivals: (missing, needed), bytes }) = barrier {
            write!(f, " (for phase {phase} of the mbarrier at {offset:#x} of block {block}, which lacks ")?;
            write!(f, "{missing} of {needed} arrivals and {bytes} bytes)")?;
        }
    }
    Ok(())
}

fn does(is_store: bool) -> &'static str {
    if is_store { "writes" } else { "reads" }
}

/// Writes the rest of the message of [`FaultKind::Starved`]: the polling blocks, and those that
/// cannot begin.
fn starved(
    f: &mut fmt::Formatter<'_>,
    waiting: &[Polling],
    not_begun: u64,
    next: Option<[u32; 3]>,
) -> fmt::Result {
    if let Some([x, y, z]) = next {
        write!(
            f,
            " for programs that cannot begin: {not_begun} programs, from ({x}, {y}, {z}) on, need a multiprocessor that becomes \
             free only when a running program ends"
        )?;
    } else {
        write!(f, ", and no other program is left that could write the memory that they poll")?;
    }
    for Polling { block: [x, y, z], address, location, instruction } in waiting {
        write!(
            f,
            "\n  program ({x}, {y}, {z}) polls global memory at {address:#x}, at {location}: {instruction}"
        )?;
    }
    Ok(())
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { space, is_store, address, bytes, nearest } => {
                write!(
                    f,
                    "out of bounds: {} {bytes} bytes of {space} memory at {address:#x}",
                    does(*is_store)
                )?;
                match nearest {
                    None => write!(f, ", far from every allocation of the launch"),
                    Some((_, distance)) if *space != Space::Global => {
                        write!(f, ", {distance} bytes past the end")
                    }
                    Some((number, distance)) if *distance < 0 => {
                        write!(f, ", {} bytes before allocation {number}", distance.unsigned_abs())
                    }
                    Some((number, distance)) => {
                        write!(f, ", {distance} bytes past the end of allocation {number}")
                    }
                }
            }
            Self::Misaligned { space, is_store, address, alignment } => write!(
                f,
                "misaligned: {} {space} memory at {address:#x}, which is not a multiple of {alignment}",
                does(*is_store)
            ),
            Self::ReadOnly { address } => write!(f, "writes read-only memory at {address:#x}"),
            Self::Unwritten { offset } => {
                write!(f, "reads uninitialized shared memory at {offset:#x}")
            }
            Self::Race { offset, first, is_write } => write!(
                f,
                "race: {} shared memory at {offset:#x}, which {} {} without synchronization in between, at {}: {}",
                does(*is_write),
                first.agent,
                if first.is_write { "wrote" } else { "read" },
                first.location,
                first.instruction
            ),
            Self::TensorMemoryRace { lane, column, first, is_write } => write!(
                f,
                "race: {} tensor memory at lane {lane}, column {column}, which {} {} without synchronization in \
                 between, at {}: {}",
                does(*is_write),
                first.agent,
                if first.is_write { "wrote" } else { "read" },
                first.location,
                first.instruction
            ),
            Self::UnwrittenTensorMemory { lane, column } => {
                write!(f, "reads uninitialized tensor memory at lane {lane}, column {column}")
            }
            Self::GlobalRace { address, first, block, is_write, .. } => write!(
                f,
                "race: {} global memory at {address:#x}, which {} of block {block:?} {} without synchronization in \
                 between, at {}: {}",
                does(*is_write),
                first.agent,
                if first.is_write { "wrote" } else { "read" },
                first.location,
                first.instruction
            ),
            Self::UnwrittenGlobal { address, .. } => {
                write!(f, "reads uninitialized global memory at {address:#x}")
            }
            Self::MissingProxyFence { offset, write } => write!(
                f,
                "missing fence.proxy.async: the asynchronous proxy accesses shared memory at {offset:#x}, which {} wrote \
                 through the generic proxy, at {}: {}",
                write.agent, write.location, write.instruction
            ),
            Self::EndedBlock { rank, access } => write!(
                f,
                "the last warp of block {rank} of the cluster exits while {} may access its shared memory, at {}: {}",
                access.agent, access.location, access.instruction
            ),
            Self::DivergentBarrier { present, missing } => write!(
                f,
                "divergent barrier: lanes {present:#010x} of the warp are here, and wait for lanes {missing:#010x}, \
                 which cannot arrive"
            ),
            Self::Deadlock { waiting } => {
                write!(f, "deadlock: every warp waits for another one")?;
                write_waiting(f, waiting)
            }
            Self::Starved { waiting, resident, not_begun, next } => {
                write!(f, "the launch hangs: all {resident} programs that have begun wait")?;
                starved(f, waiting, *not_begun, *next)
            }
            Self::Trap => write!(f, "the kernel executed `trap`"),
            Self::Assertion { message, file, line, function } => {
                write!(f, "assertion failed: {message}, {file}:{line}, in {function}")
            }
            Self::Unsupported(what) => write!(f, "the simulator does not support {what}"),
            Self::Illegal(what) => write!(f, "{what}"),
            Self::Cancelled { waiting } => {
                write!(f, "the launch was cancelled")?;
                write_waiting(f, waiting)
            }
        }
    }
}
