//! Chooses the registers of a thread, if fewer let one more block run on a multiprocessor at a
//! time.
//!
//! Only the assembler knows how many registers a kernel takes and spills, so the choice takes
//! several attempts. A runtime only assembles: [`Multiprocessor::assemble`] says with which limits,
//! and which result it loads.

use std::borrow::Cow;

use smallvec::SmallVec;
use tilewright_gpu_ir::Tuning;
use tilewright_gpu_ir::target::THREAD_REGISTERS;

/// The registers of each thread are a multiple of this.
const REGISTER_UNIT: u32 = 8;

/// The resources that the blocks on a multiprocessor share.
#[derive(Clone, Copy, Debug)]
pub struct Multiprocessor {
    /// 32-bit registers.
    pub registers: u32,
    /// Resident threads.
    pub threads: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// The bytes of shared memory that a block takes for itself.
    pub reserved_bytes: u32,
    /// The thresholds of its target.
    pub tuning: &'static Tuning,
}

/// An assembled kernel: the resources of a block, and the number of blocks on a multiprocessor
/// at a time.
#[derive(Clone, Copy, Debug)]
pub struct Occupancy {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Spilled registers of a thread.
    pub spills: u32,
    /// Blocks that run on a multiprocessor at a time.
    pub blocks: u32,
}

/// The verdict on an attempt at fewer registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The additional block compensates the spills.
    Accept,
    /// A higher limit may spill less.
    Continue,
    /// No other limit is worth an attempt.
    Stop,
}

impl Occupancy {
    /// Returns the register limits with which one more block fits, best first.
    ///
    /// There are none unless registers are the scarce resource and the limit leaves most of them
    /// ([`Tuning::max_register_loss`]).
    fn register_limits(&self, multiprocessor: &Multiprocessor) -> SmallVec<[u32; 2]> {
        let more = self.blocks + 1;
        let shared_bytes = more * (self.shared_bytes + multiprocessor.reserved_bytes);
        let exceeds = more * self.threads > multiprocessor.threads
            || more > multiprocessor.blocks
            || shared_bytes > multiprocessor.shared_bytes;
        if exceeds {
            return SmallVec::new();
        }
        // Two dependent dots of 128 x 64 by 8 warps need the limit that is avoided elsewhere.
        let most = multiprocessor.registers / (more * self.threads) / REGISTER_UNIT * REGISTER_UNIT;
        let limits = [most.saturating_sub(REGISTER_UNIT), most];
        let loss = multiprocessor.tuning.max_register_loss;
        let is_tried = |limit: &u32| most < self.registers && limit * loss >= self.registers * (loss - 1);
        limits
            .into_iter()
            .skip(usize::from(most < multiprocessor.tuning.avoided_register_limit))
            .filter(is_tried)
            .collect()
    }
}

impl Multiprocessor {
    /// Assembles a kernel with the number of registers that suits this multiprocessor.
    ///
    /// `max_registers` is the program's limit, which no other one replaces. Without it, PTX whose
    /// code does not depend on the number of registers is assembled again with each limit that may
    /// let one more block run at a time. PTX that spills with unused registers is assembled again
    /// for one block ([`for_one_block`]). `assemble` gets PTX, and whether it is another attempt. An
    /// attempt may fail, because an instruction takes more registers than the limit; the first
    /// result stays then.
    pub fn assemble<K, E>(
        &self,
        ptx: &str,
        max_registers: Option<u32>,
        mut assemble: impl FnMut(&str, bool) -> Result<(K, Occupancy), E>,
    ) -> Result<K, E> {
        if let Some(limit) = max_registers {
            let limited = with_max_registers(ptx, limit).map_or(Cow::Borrowed(ptx), Cow::Owned);
            return Ok(assemble(&limited, false)?.0);
        }
        let (kernel, first) = assemble(ptx, false)?;
        if let Some(ptx) = for_one_block(ptx, first.registers, first.spills, self.registers / first.threads) {
            let attempt = assemble(&ptx, true).ok().filter(|(_, attempt)| attempt.spills < first.spills);
            return Ok(attempt.map_or(kernel, |(kernel, _)| kernel));
        }
        for limit in first.register_limits(self) {
            let Some(limited) = with_max_registers(ptx, limit) else { break };
            let Ok((denser, attempt)) = assemble(&limited, true) else { continue };
            match self.judge(&first, &attempt) {
                Verdict::Accept => return Ok(denser),
                Verdict::Continue => {}
                Verdict::Stop => break,
            }
        }
        Ok(kernel)
    }

    /// Judges an attempt at fewer registers against the kernel without a limit.
    fn judge(&self, first: &Occupancy, attempt: &Occupancy) -> Verdict {
        let most_spills = first.spills + self.tuning.spills_for_one_more_block;
        let is_denser = attempt.blocks > first.blocks;
        if is_denser && attempt.spills <= most_spills {
            Verdict::Accept
        } else if is_denser && attempt.spills <= most_spills + self.tuning.spills_for_another_attempt {
            Verdict::Continue
        } else {
            Verdict::Stop
        }
    }
}

/// Returns the PTX to assemble in place of PTX that spills although the register file has
/// `available` registers for each thread of a block, which are more than the kernel takes.
///
/// The assembler has then limited registers to make room for more blocks, down to 32 a thread. It
/// does not if the PTX states that one block is enough.
#[must_use]
pub fn for_one_block(ptx: &str, registers: u32, spills: u32, available: u32) -> Option<String> {
    let has_unused = registers + REGISTER_UNIT <= available.min(THREAD_REGISTERS);
    let states_limit = [".maxnreg", ".minnctapersm"].iter().any(|directive| ptx.contains(directive));
    (spills > 0 && has_unused && !states_limit)
        .then(|| ptx.replacen(".reqntid", ".minnctapersm 1\n.reqntid", 1))
}

/// Returns the PTX with a limit of registers, or none if it states one: partitions of warps
/// exchange registers, so their number is part of the code.
///
/// The directive follows from the size of a block, which each kernel of the compiler states.
fn with_max_registers(ptx: &str, count: u32) -> Option<String> {
    (!ptx.contains(".maxnreg")).then(|| ptx.replacen(".reqntid", &format!(".maxnreg {count}\n.reqntid"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assembles a kernel that takes `registers`, or its limit, and returns the limits of all
    /// attempts with the one that was chosen (0 for none). An attempt at 120 registers spills.
    fn attempts(ptx: &str, registers: u32, max_registers: Option<u32>) -> (Vec<u32>, u32) {
        let mut limits = Vec::new();
        let chosen = HOPPER.assemble(ptx, max_registers, |ptx, is_again| {
            let stated = ptx.split_once(".maxnreg ").map(|(_, rest)| rest.lines().next().unwrap());
            let limit: u32 = stated.map_or(0, |text| text.parse().unwrap());
            assert_eq!(is_again, !limits.is_empty());
            limits.push(limit);
            let registers = if limit == 0 { registers } else { limit };
            let spills = if limit == 120 { 10 } else { 0 };
            let blocks = HOPPER.registers / (registers * 256);
            if limit == 40 {
                return Err("too few for an instruction");
            }
            Ok((limit, Occupancy { threads: 256, shared_bytes: 0, registers, spills, blocks }))
        });
        (limits, chosen.unwrap())
    }

    #[test]
    fn the_compiler_chooses_the_registers_of_a_kernel() {
        let plain = ".visible .entry k()\n.reqntid 256, 1, 1\n{\n}";
        // With 120 it spills, so 128 is tried.
        assert_eq!(attempts(plain, 161, None), (vec![0, 120, 128], 128));
        assert_eq!(attempts(plain, 64, None), (vec![0, 48], 48));
        // The program's own limit stays.
        assert_eq!(attempts(plain, 161, Some(160)), (vec![160], 160));
        // Partitions of warps have the number of registers in their code.
        let partitioned = plain.replace(".reqntid", ".maxnreg 168\n.reqntid");
        assert_eq!(attempts(&partitioned, 161, None), (vec![168], 168));
        assert_eq!(attempts(&partitioned, 161, Some(160)), (vec![168], 168));
        // The assembler refuses the limit.
        assert_eq!(attempts(plain, 48, None), (vec![0, 40], 0));
    }

    #[test]
    fn a_kernel_that_spills_with_unused_registers_is_assembled_for_one_block() {
        let plain = ".visible .entry k()\n.reqntid 256, 1, 1\n{\n}";
        let spills = |ptx: &str, better: u32| {
            let mut texts = Vec::new();
            let spills = HOPPER.assemble(ptx, None, |ptx, _| {
                texts.push(ptx.to_owned());
                let (registers, spills) = if texts.len() == 1 { (32, 2347) } else { (248, better) };
                let occupancy = Occupancy { threads: 256, shared_bytes: 0, registers, spills, blocks: 1 };
                Ok::<_, ()>((spills, occupancy))
            });
            (texts.len(), texts.last().unwrap().contains(".minnctapersm 1\n.reqntid 256"), spills.unwrap())
        };
        assert_eq!(spills(plain, 115), (2, true, 115));
        // The first result stays, if the second is no better.
        assert_eq!(spills(plain, 2347), (2, true, 2347));
        // The PTX states the number of blocks.
        let stated = plain.replace(".reqntid", ".minnctapersm 2\n.reqntid");
        assert_eq!(spills(&stated, 115), (1, false, 2347));
        // No registers are unused, or nothing is spilled.
        assert_eq!(for_one_block(plain, 255, 4, 256), None);
        assert_eq!(for_one_block(plain, 120, 4, 128).map(|_| ()), Some(()));
        assert_eq!(for_one_block(plain, 128, 4, 128), None);
        assert_eq!(for_one_block(plain, 32, 0, 256), None);
    }

    /// An A100 has the same numbers as an H200.
    const HOPPER: Multiprocessor = Multiprocessor {
        registers: 65_536,
        threads: 2048,
        blocks: 32,
        shared_bytes: 228 << 10,
        reserved_bytes: 1 << 10,
        tuning: &tilewright_gpu_ir::HOPPER,
    };

    #[test]
    fn one_more_block_is_tried_where_registers_are_what_it_lacks() {
        let tried = |blocks, threads, registers, shared_bytes| {
            let occupancy = Occupancy { threads, shared_bytes, registers, spills: 0, blocks };
            occupancy.register_limits(&HOPPER).to_vec()
        };
        assert_eq!(tried(1, 256, 161, 0), [120, 128]);
        assert_eq!(tried(3, 512, 35, 0), [32]);
        assert_eq!(tried(5, 256, 48, 0), [40]);
        // A third of the registers may go, and that only by the second attempt.
        assert_eq!(tried(1, 256, 190, 0), [128]);
        // Half of the registers are too few.
        assert!(tried(1, 256, 255, 0).is_empty());
        // The threads are all there.
        assert!(tried(4, 512, 32, 0).is_empty());
        // The limit of blocks, and another one, which leaves registers.
        assert!(tried(32, 32, 64, 0).is_empty());
        assert!(tried(1, 256, 100, 0).is_empty());
        // Shared memory.
        assert_eq!(tried(1, 256, 161, 113 << 10), [120, 128]);
        assert!(tried(1, 256, 161, 114 << 10).is_empty());
    }

    #[test]
    fn a_block_more_is_worth_a_few_spills() {
        let occupancy =
            |blocks, spills| Occupancy { threads: 256, shared_bytes: 0, registers: 128, spills, blocks };
        let verdict = |blocks, spills| HOPPER.judge(&occupancy(1, 2), &occupancy(blocks, spills));
        assert_eq!(verdict(2, 6), Verdict::Accept);
        assert_eq!(verdict(2, 7), Verdict::Continue);
        assert_eq!(verdict(2, 38), Verdict::Continue);
        assert_eq!(verdict(2, 39), Verdict::Stop);
        assert_eq!(verdict(1, 0), Verdict::Stop);
    }
}
