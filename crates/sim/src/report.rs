//! What a launch did: the counts of each instruction, and the tables that a kernel author reads.

use std::collections::BTreeMap;
use std::fmt;

use crate::counters::StepCounters;
use crate::decode::Class;
use crate::fault::Location;

/// What was counted of one instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Where it stands.
    pub location: Location,
    /// Its opcode with the modifiers.
    pub opcode: String,
    /// Its text.
    pub text: String,
    /// What it counts as.
    pub class: Class,
    /// What was counted, over all warps.
    pub counters: StepCounters,
}

/// The report of a launch. Its `Display` is a table of the classes, and one of the lines that move memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The name of the kernel.
    pub kernel: String,
    /// How many blocks ran.
    pub blocks: u64,
    /// Threads of a block.
    pub threads_per_block: u64,
    /// Bytes of shared memory of a block.
    pub shared_bytes: usize,
    /// Every instruction of the kernel, in the order of the program.
    pub instructions: Vec<Instruction>,
    /// What the blocks have printed, those that have, in the order of the grid.
    pub printed: Vec<String>,
}

impl Report {
    /// All counts together.
    pub fn total(&self) -> StepCounters {
        let mut total = StepCounters::default();
        for instruction in &self.instructions {
            total.add(&instruction.counters);
        }
        total
    }

    /// The counts of each class that was executed.
    pub fn by_class(&self) -> BTreeMap<Class, StepCounters> {
        self.grouped(|instruction| instruction.class)
    }

    /// The counts of each line of the kernel's source: file and line, `None` where the PTX does not say.
    pub fn by_line(&self) -> BTreeMap<Option<(String, u32)>, StepCounters> {
        self.grouped(|instruction| instruction.location.kernel.clone())
    }

    fn grouped<K: Ord>(&self, key: impl Fn(&Instruction) -> K) -> BTreeMap<K, StepCounters> {
        let mut groups = BTreeMap::<K, StepCounters>::new();
        for instruction in self.instructions.iter().filter(|instruction| instruction.counters.executions > 0)
        {
            groups.entry(key(instruction)).or_default().add(&instruction.counters);
        }
        groups
    }

    /// How often warps waited at a barrier of the block or the cluster.
    pub fn barriers(&self) -> u64 {
        let is_barrier = |instruction: &&Instruction| {
            let opcode = instruction.opcode.as_str();
            opcode.starts_with("barrier.") || opcode.starts_with("bar.sync") || opcode.starts_with("bar.red")
        };
        self.instructions.iter().filter(is_barrier).map(|instruction| instruction.counters.executions).sum()
    }

    /// Passes through shared memory that bank conflicts cost.
    pub fn bank_conflicts(&self) -> u64 {
        let total = self.total();
        total.wavefronts - total.ideal_wavefronts
    }

    /// Sectors that requests touched beyond those that their bytes fill.
    pub fn excess_sectors(&self) -> u64 {
        let total = self.total();
        total.sectors - total.ideal_sectors
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, blocks, threads_per_block, shared_bytes, .. } = self;
        writeln!(
            f,
            "{kernel}: {blocks} blocks of {threads_per_block} threads, {shared_bytes} bytes of shared memory"
        )?;
        writeln!(f, "\n{:<14} {:>12} {:>14}", "class", "warp instr.", "thread instr.")?;
        for (class, counters) in self.by_class() {
            writeln!(f, "{:<14} {:>12} {:>14}", class.to_string(), counters.executions, counters.lanes)?;
        }
        let total = self.total();
        writeln!(f, "{:<14} {:>12} {:>14}", "all", total.executions, total.lanes)?;
        writeln!(
            f,
            "\nglobal memory: {} requests, {} sectors, {} if coalesced; {} bytes read, {} written",
            total.global_requests, total.sectors, total.ideal_sectors, total.bytes_read, total.bytes_written
        )?;
        writeln!(
            f,
            "shared memory: {} wavefronts, {} of them for bank conflicts",
            total.wavefronts,
            self.bank_conflicts()
        )?;
        if total.tensor_operations > 0 {
            writeln!(f, "tensor cores: {} operations", total.tensor_operations)?;
        }
        self.memory_table(f)
    }
}

impl Report {
    /// The instructions that touch memory, those that waste most first.
    fn memory_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waste = |counters: &StepCounters| {
            (counters.sectors - counters.ideal_sectors) + (counters.wavefronts - counters.ideal_wavefronts)
        };
        let touches =
            |instruction: &&Instruction| instruction.counters.sectors + instruction.counters.wavefronts > 0;
        let mut rows: Vec<_> = self.instructions.iter().filter(touches).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(waste(&row.counters)));
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:>10} {:>10} {:>10} {:>10} {:>10}  where",
            "requests", "sectors", "excess", "wavefronts", "conflicts"
        )?;
        for row in rows {
            let counters = &row.counters;
            writeln!(
                f,
                "{:>10} {:>10} {:>10} {:>10} {:>10}  {}: {}",
                counters.executions,
                counters.sectors,
                counters.sectors - counters.ideal_sectors,
                counters.wavefronts,
                counters.wavefronts - counters.ideal_wavefronts,
                row.location,
                row.text
            )?;
        }
        Ok(())
    }
}
