//! Reports the counters of each instruction, and tables for the author of a kernel.

use std::collections::BTreeMap;
use std::fmt;

use crate::counters::StepCounters;
use crate::decode::Class;
use crate::fault::Location;

/// An instruction and its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// The position of the instruction.
    pub location: Location,
    /// The opcode with its modifiers.
    pub opcode: String,
    /// The PTX text of the instruction; its opcode if the module was loaded without a text.
    pub text: String,
    /// The class under which reports count the instruction.
    pub class: Class,
    /// The counters over all warps.
    pub counters: StepCounters,
}

/// The report of a launch.
///
/// Its `Display` prints a table of the instruction classes, and the totals of global memory, shared
/// memory and tensor cores. It also prints a table of the source lines that access memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The name of the kernel. The caller may replace the name by a description of the variant of
    /// the kernel.
    pub kernel: String,
    /// The number of blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads_per_block: u64,
    /// Bytes of shared memory of a block.
    pub shared_bytes: usize,
    /// Every instruction of the kernel, in the order of the program.
    pub instructions: Vec<Instruction>,
    /// The output of each cluster that has printed, in the order of the grid.
    pub printed: Vec<String>,
}

impl Report {
    /// Returns the sum of all counters.
    pub fn total(&self) -> StepCounters {
        let mut total = StepCounters::default();
        for instruction in &self.instructions {
            total.add(&instruction.counters);
        }
        total
    }

    /// Returns the counters of each executed class.
    pub fn by_class(&self) -> BTreeMap<Class, StepCounters> {
        self.grouped(|instruction| instruction.class)
    }

    /// Returns the counters of each source line (file and line) with executed instructions.
    /// Instructions without `.loc` have the key `None`.
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

    /// Returns how often warps executed a barrier instruction: `bar.sync`, `bar.red`, or any
    /// `barrier` of the block or the cluster, including arrivals.
    pub fn barriers(&self) -> u64 {
        let is_barrier = |instruction: &&Instruction| {
            let opcode = instruction.opcode.as_str();
            opcode.starts_with("barrier.") || opcode.starts_with("bar.sync") || opcode.starts_with("bar.red")
        };
        self.instructions.iter().filter(is_barrier).map(|instruction| instruction.counters.executions).sum()
    }

    /// Returns the additional wavefronts that bank conflicts cause.
    pub fn bank_conflicts(&self) -> u64 {
        let total = self.total();
        total.wavefronts - total.ideal_wavefronts
    }

    /// Returns the sectors that requests touched beyond those that their bytes fill.
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
            total.global_requests,
            total.sectors,
            total.ideal_sectors,
            total.global_bytes_read,
            total.global_bytes_written
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
    /// Writes the source lines that access memory, most wasteful first. A line has a row for each
    /// opcode with excess sectors or bank conflicts, and one for the rest.
    fn memory_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = BTreeMap::<SourceLine, BTreeMap<&str, Row>>::new();
        for instruction in &self.instructions {
            let counters = &instruction.counters;
            if counters.sectors + counters.wavefronts == 0 {
                continue;
            }
            let opcode = if waste(counters) > 0 { instruction.opcode.as_str() } else { "" };
            let line = SourceLine::of(&instruction.location);
            lines.entry(line).or_default().entry(opcode).or_default().add(instruction);
        }
        if lines.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<_> =
            lines.into_iter().map(|(line, rows)| (line, rows.into_values().collect::<Vec<_>>())).collect();
        for (_, rows) in &mut lines {
            rows.sort_by_key(|row| std::cmp::Reverse(row.cost()));
        }
        let cost = |rows: &[Row]| {
            rows.iter().map(Row::cost).fold((0, 0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1))
        };
        lines.sort_by_key(|(_, rows)| std::cmp::Reverse(cost(rows)));
        writeln!(
            f,
            "\n{:>10} {:>10} {:>10} {:>10} {:>10}  where",
            "requests", "sectors", "excess", "wavefronts", "conflicts"
        )?;
        for (line, rows) in lines {
            for row in rows {
                writeln!(f, "{row}  {line}: {}{}", row.opcodes.join(", "), row.ptx_lines(&line))?;
            }
        }
        Ok(())
    }
}

/// Returns the sectors and wavefronts beyond the minimum.
fn waste(counters: &StepCounters) -> u64 {
    (counters.sectors - counters.ideal_sectors) + (counters.wavefronts - counters.ideal_wavefronts)
}

/// The source line, or the PTX line of an instruction without `.loc`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SourceLine<'a> {
    Kernel(&'a str, u32),
    Ptx(u32),
}

impl<'a> SourceLine<'a> {
    fn of(location: &'a Location) -> Self {
        match &location.kernel {
            Some((file, line)) => Self::Kernel(file, *line),
            None => Self::Ptx(location.ptx_line),
        }
    }
}

impl fmt::Display for SourceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(file, line) => write!(f, "{file}:{line}"),
            Self::Ptx(line) => write!(f, "PTX line {line}"),
        }
    }
}

/// The instructions of a row.
#[derive(Default)]
struct Row<'a> {
    counters: StepCounters,
    /// The distinct opcodes, in the order of the program.
    opcodes: Vec<&'a str>,
    ptx_lines: Vec<u32>,
}

impl<'a> Row<'a> {
    fn add(&mut self, instruction: &'a Instruction) {
        self.counters.add(&instruction.counters);
        self.ptx_lines.push(instruction.location.ptx_line);
        if !self.opcodes.contains(&instruction.opcode.as_str()) {
            self.opcodes.push(&instruction.opcode);
        }
    }

    /// Returns the sort key of a row: its waste, then its traffic.
    fn cost(&self) -> (u64, u64) {
        (waste(&self.counters), self.counters.sectors + self.counters.wavefronts)
    }

    /// Returns the PTX lines of the instructions, unless the key is one.
    fn ptx_lines(&self, line: &SourceLine<'_>) -> String {
        match (line, &self.ptx_lines[..]) {
            (SourceLine::Ptx(_), _) | (_, []) => String::new(),
            (SourceLine::Kernel(..), [line]) => format!(" (PTX line {line})"),
            (SourceLine::Kernel(..), [first, .., last]) => {
                format!(" ({} in PTX lines {first} to {last})", self.ptx_lines.len())
            }
        }
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepCounters { executions, sectors, ideal_sectors, wavefronts, ideal_wavefronts, .. } =
            self.counters;
        let (excess, conflicts) = (sectors - ideal_sectors, wavefronts - ideal_wavefronts);
        write!(f, "{executions:>10} {sectors:>10} {excess:>10} {wavefronts:>10} {conflicts:>10}")
    }
}
