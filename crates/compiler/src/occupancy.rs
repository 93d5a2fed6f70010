//! Chooses the number of registers of a thread.
//!
//! The assembler makes the first choice. Other limits are then tried in three cases:
//!
//! - With fewer registers, one more block fits on a multiprocessor.
//! - The kernel spills, and its PTX states how many blocks must fit (`.minnctapersm`). Fewer
//!   registers may spill less.
//! - The kernel spills although registers are unused, and its PTX has no `.minnctapersm`. The
//!   assembler is told to use more registers.
//!
//! Only the assembler knows how many registers a kernel needs and spills. A runtime passes its
//! assembler to [`Multiprocessor::assemble`], which chooses the limits, and loads the result.

use std::borrow::Cow;

use smallvec::SmallVec;
use tilewright_gpu_ir::Tuning;
use tilewright_gpu_ir::target::THREAD_REGISTERS;

/// The number of registers of a thread is rounded up to a multiple of this number.
const REGISTER_UNIT: u32 = 8;

/// The resources of a multiprocessor, which its resident blocks share.
#[derive(Clone, Copy, Debug)]
pub struct Multiprocessor {
    /// The number of 32-bit registers.
    pub registers: u32,
    /// The maximum number of resident threads.
    pub threads: u32,
    /// The maximum number of resident blocks.
    pub blocks: u32,
    /// The number of bytes of shared memory.
    pub shared_bytes: u32,
    /// The number of bytes of shared memory that the system reserves for each block.
    pub reserved_bytes: u32,
    /// The tuning table of the GPU.
    pub tuning: &'static Tuning,
}

/// The resources of an assembled kernel, and the number of its blocks that fit on a multiprocessor.
#[derive(Clone, Copy, Debug)]
pub struct Occupancy {
    /// The number of threads of a block.
    pub threads: u32,
    /// The number of bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// The number of registers of a thread.
    pub registers: u32,
    /// The number of registers that a thread spills.
    pub spills: u32,
    /// The number of blocks that run on a multiprocessor at the same time.
    pub blocks: u32,
}

/// The verdict on an attempt with fewer registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The attempt is chosen: one more block is worth more than the spills cost.
    Accept,
    /// The attempt spills too much, but the next, higher limit may spill less.
    Continue,
    /// The attempt is rejected, and no further limit is tried.
    Stop,
}

impl Occupancy {
    /// Returns the register limits with which one more block fits, in the order of the attempts.
    /// Returns none if anything else prevents another block. A limit removes at most 1 /
    /// [`Tuning::max_register_loss`] of a thread's registers.
    fn register_limits(&self, multiprocessor: &Multiprocessor) -> SmallVec<[u32; 2]> {
        let more = self.blocks + 1;
        let shared_bytes = more * (self.shared_bytes + multiprocessor.reserved_bytes);
        let exceeds = more * self.threads > multiprocessor.threads
            || more > multiprocessor.blocks
            || shared_bytes > multiprocessor.shared_bytes;
        if exceeds {
            return SmallVec::new();
        }
        // The assembler schedules poorly at `avoided_register_limit`. From this limit on, `most` -
        // 8 is tried first. A kernel with two dependent dots of 128 x 64 and 8 warps still needs
        // `most`.
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
    /// `assemble` assembles a PTX text. Its second argument is false for the first attempt and true
    /// for later attempts.
    ///
    /// If `max_registers` is given, there is one attempt. Its limit is the one that the PTX states
    /// or, if the PTX states none, `max_registers`. Without `max_registers`, the first attempt
    /// assembles the PTX unchanged, and further attempts follow:
    ///
    /// - If the kernel spills and another directive may help ([`against_spills`]), there is one
    ///   more attempt, with that directive.
    /// - Otherwise, if the PTX states no limit, the kernel is assembled with the limits that let
    ///   one more block fit. The attempts end when one is accepted, or when the result shows that
    ///   no further limit is worth an attempt. An attempt may fail because an instruction needs
    ///   more registers than the limit; such an attempt is skipped.
    ///
    /// If no further attempt is accepted, the result of the first attempt is returned.
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
        if let Some(ptx) = against_spills(ptx, first.registers, first.spills, self.registers / first.threads)
        {
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

    /// Compares an attempt with fewer registers (`attempt`) to the attempt without a limit
    /// (`first`).
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

/// Returns PTX that may spill less than the given PTX. `available` is the number of registers of
/// the multiprocessor divided by the number of threads of a block.
///
/// Returns `None` if nothing is spilled, if the PTX states a register limit, or if neither of two
/// cases applies:
///
/// - The PTX states no number of blocks, and registers are unused. The assembler has limited the
///   registers to make room for more blocks, down to 32 for each thread. The directive
///   `.minnctapersm 1` tells the assembler that one block on a multiprocessor is enough.
/// - The PTX states a number of blocks, and a thread uses fewer than [`THREAD_REGISTERS`]
///   registers. A slightly lower limit may spill less, because the assembler schedules poorly at
///   some limits ([`Tuning::avoided_register_limit`]). For example, attention of 64x64 by 5 warps
///   spills 28 bytes with 128 registers, and none with 120 (ptxas 13.0, 2026-11-28).
#[must_use]
pub fn against_spills(ptx: &str, registers: u32, spills: u32, available: u32) -> Option<String> {
    const BLOCKS: &str = ".minnctapersm ";
    if spills == 0 || ptx.contains(".maxnreg") {
        return None;
    }
    if let Some((before, rest)) = ptx.split_once(BLOCKS) {
        let limit = registers.next_multiple_of(REGISTER_UNIT) - REGISTER_UNIT;
        let (_, after) = rest.split_once('\n').filter(|_| registers < THREAD_REGISTERS)?;
        return Some(format!("{before}.maxnreg {limit}\n{after}"));
    }
    let has_unused = registers + REGISTER_UNIT <= available.min(THREAD_REGISTERS);
    has_unused.then(|| ptx.replacen(".reqntid", &format!("{BLOCKS}1\n.reqntid"), 1))
}

/// Returns the PTX with a register limit, before `.reqntid` (the size of a block). Returns `None`
/// if the PTX states a limit, because partitions that exchange registers depend on it.
fn with_max_registers(ptx: &str, count: u32) -> Option<String> {
    (!ptx.contains(".maxnreg")).then(|| ptx.replacen(".reqntid", &format!(".maxnreg {count}\n.reqntid"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assembles a kernel of 256 threads with a mock assembler. Returns the limits of all attempts
    /// (0 without a limit) and the chosen limit.
    ///
    /// A thread uses `registers`, or the limit in the PTX. With the limit 120, it spills 10
    /// registers. With the limit 40, the assembler fails.
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
        // Spills at the limit 120. Expected next: 128.
        assert_eq!(attempts(plain, 161, None), (vec![0, 120, 128], 128));
        assert_eq!(attempts(plain, 64, None), (vec![0, 48], 48));
        // With `max_registers`, that limit is the only attempt.
        assert_eq!(attempts(plain, 161, Some(160)), (vec![160], 160));
        // Partitions of warps exchange registers, so their PTX states a limit.
        let partitioned = plain.replace(".reqntid", ".maxnreg 168\n.reqntid");
        assert_eq!(attempts(&partitioned, 161, None), (vec![168], 168));
        assert_eq!(attempts(&partitioned, 161, Some(160)), (vec![168], 168));
        // The assembler fails at the limit 40. Expected: the first result.
        assert_eq!(attempts(plain, 48, None), (vec![0, 40], 0));
    }

    #[test]
    fn a_kernel_that_spills_is_assembled_again() {
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
        // The second attempt spills as much. Expected: the first result.
        assert_eq!(spills(plain, 2347), (2, true, 2347));
        // The PTX states a number of blocks. Expected: a register limit in its place.
        let stated = plain.replace(".reqntid", ".minnctapersm 2\n.reqntid");
        assert_eq!(
            against_spills(&stated, 128, 7, 256).as_deref(),
            Some(&*plain.replace(".reqntid", ".maxnreg 120\n.reqntid"))
        );
        assert_eq!(against_spills(&stated, 255, 7, 256), None);
        assert_eq!(against_spills(&plain.replace(".reqntid", ".maxnreg 168\n.reqntid"), 120, 7, 256), None);
        // In the first and third cases, no registers are unused. In the last case, nothing is
        // spilled.
        assert_eq!(against_spills(plain, 255, 4, 256), None);
        assert_eq!(against_spills(plain, 120, 4, 128).map(|_| ()), Some(()));
        assert_eq!(against_spills(plain, 128, 4, 128), None);
        assert_eq!(against_spills(plain, 32, 0, 256), None);
    }

    /// The multiprocessor of an H200. An A100 has the same limits, except for shared memory.
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
        // A limit removes at most a third of the 190 registers: 128 does, and 120 does not.
        assert_eq!(tried(1, 256, 190, 0), [128]);
        // The limit 128 would remove half of the 255 registers.
        assert!(tried(1, 256, 255, 0).is_empty());
        // The blocks already use all threads of the multiprocessor.
        assert!(tried(4, 512, 32, 0).is_empty());
        // The multiprocessor already has its maximum of 32 blocks.
        assert!(tried(32, 32, 64, 0).is_empty());
        // Two blocks with 100 registers for each thread would fit, so something else limits the
        // blocks.
        assert!(tried(1, 256, 100, 0).is_empty());
        // Two blocks with 113 KiB of shared memory fit; two with 114 KiB do not.
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
