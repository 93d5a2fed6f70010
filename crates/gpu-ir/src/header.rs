//! What stands at the head of a module: what it is for, what it takes, and its layouts.
//!
//! ```text
//! gpu sm_90a, 4 warps, 32768 bytes of shared memory
//! L0 = [128] register (1) (2) lane (4) (8) (16) (32) (64) warp (0) (0)
//! ```
//! Behind the bytes stands `, 3 stages` where loops are still to be pipelined, `, no contraction` where products and sums are
//! rounded one by one, `, synchronized` when barriers stand wherever threads have to wait for each other, `, pairs` when blocks are
//! launched in pairs, `, clusters of 2` when a program is so many blocks, `, last programs first` where programs begin in another order
//! than their blocks, and `, 2 blocks a multiprocessor` where registers are to leave room for so many. Behind the layouts stand the tensor maps ([`TensorMapPlan`]) that the last parameters of the kernel are
//! (`T0 = …`), and those that the kernel makes itself (`M0 = …`), where `p0` is the first of the scalars that it makes the map of.

use std::fmt::Write;

use super::layouts::Layouts;
use super::tensor_maps::TensorMapPlan;
use crate::target::{GpuTarget, MOST_WARPS};

/// In which order the programs of a grid begin.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ProgramOrder {
    /// As their blocks do, the first axis fastest.
    #[default]
    AsLaunched,
    /// All with the first number along the first axis before those with the next one.
    FirstFirst,
    /// All with the last number along the first axis before those with the one before.
    LastFirst,
}

/// The most stages of a pipeline, which is more blocks than a multiprocessor holds.
const MAX_COUNT: u32 = tilewright_ir::LoopOptions::MAX_STAGES;

const FIRST_FIRST: &str = "first programs first";
const LAST_FIRST: &str = "last programs first";

/// The head of a module.
#[derive(Clone, Debug)]
pub struct Header {
    /// The kind of GPU.
    pub target: GpuTarget,
    /// The warps of a block: a power of two, or with roles the sum of theirs.
    pub num_warps: u32,
    /// The shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The stages of the software pipelines of loops that do not say it themselves; none behind the pass that makes them.
    pub stages: u32,
    /// Whether a product that is added to something may be rounded once instead of twice.
    pub contraction: bool,
    /// Whether barriers stand wherever threads have to wait for each other: from the pass on that inserts them. The verifier
    /// demands them from then on.
    pub synchronized: bool,
    /// Whether blocks are launched in pairs, or as if they were: the last parameter, behind the tensor maps, says how many programs
    /// there are along the first axis if they are, else 0. Blocks of the launch behind the last program do nothing.
    pub paired: bool,
    /// So many blocks are to have room for their registers on a multiprocessor; 0 if the assembler decides.
    pub min_blocks: u32,
    /// The blocks of a cluster, which are a program together; 1 where a block is one. The grid has so many times as many blocks along the
    /// first axis as there are programs.
    pub cluster: u32,
    /// In which order programs begin.
    pub order: ProgramOrder,
    /// The layouts that types name.
    pub layouts: Layouts,
    /// The tensor maps that the last parameters of the kernel are.
    pub tensor_maps: Vec<TensorMapPlan>,
    /// The tensor maps that the kernel makes (`make_tensor_map`): their arguments are the operands of that.
    pub made_maps: Vec<TensorMapPlan>,
}

impl Default for Header {
    fn default() -> Self {
        Self::new(GpuTarget::ALL[0], 4)
    }
}

impl Header {
    /// Of a kernel for a target, with so many warps in a block.
    pub fn new(target: GpuTarget, num_warps: u32) -> Self {
        Self {
            target,
            num_warps,
            shared_bytes: 0,
            stages: 0,
            contraction: true,
            synchronized: false,
            paired: false,
            min_blocks: 0,
            cluster: 1,
            order: ProgramOrder::AsLaunched,
            layouts: Layouts::default(),
            tensor_maps: Vec::new(),
            made_maps: Vec::new(),
        }
    }

    /// How many blocks may fill a buffer together.
    pub fn sharing_blocks(&self) -> u32 {
        self.cluster.max(2)
    }

    /// The text: whole lines.
    pub fn print(&self) -> String {
        let Self { target, num_warps, shared_bytes, stages, contraction, .. } = self;
        let Self { synchronized, paired, min_blocks, cluster, order, layouts, .. } = self;
        let stages = if *stages == 0 { String::new() } else { format!(", {stages} stages") };
        let contraction = if *contraction { "" } else { ", no contraction" };
        let synchronized = if *synchronized { ", synchronized" } else { "" };
        let paired = if *paired { ", pairs" } else { "" };
        let cluster = if *cluster == 1 { String::new() } else { format!(", clusters of {cluster}") };
        let order = match order {
            ProgramOrder::AsLaunched => String::new(),
            ProgramOrder::FirstFirst => format!(", {FIRST_FIRST}"),
            ProgramOrder::LastFirst => format!(", {LAST_FIRST}"),
        };
        let blocks =
            if *min_blocks == 0 { String::new() } else { format!(", {min_blocks} blocks a multiprocessor") };
        let mut text = format!(
            "gpu {}, {num_warps} warps, {shared_bytes} bytes of shared memory{stages}{contraction}{synchronized}{paired}{cluster}{order}{blocks}\n",
            target.name
        );
        for (id, layout) in layouts.iter() {
            writeln!(text, "{id} = {layout}").expect("writing to a string does not fail");
        }
        for (letter, maps) in [('T', &self.tensor_maps), ('M', &self.made_maps)] {
            for (number, map) in maps.iter().enumerate() {
                writeln!(text, "{letter}{number} = {map}").expect("writing to a string does not fail");
            }
        }
        text
    }

    /// Reads the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let expected = "expected `gpu sm_90a, 4 warps, 0 bytes of shared memory`";
        let first = lines.next().and_then(|line| line.strip_prefix("gpu ")).ok_or(expected)?;
        let mut parts = first.split(", ");
        let target = GpuTarget::named(parts.next().unwrap_or_default()).map_err(|error| error.to_string())?;
        let mut number = |unit: &str| {
            let part = parts.next().and_then(|part| part.strip_suffix(unit));
            part.and_then(|number| number.parse::<u32>().ok()).ok_or(expected)
        };
        let num_warps = number(" warps")?;
        let shared_bytes = number(" bytes of shared memory")?;
        let (mut stages, mut min_blocks, mut cluster) = (0, 0, 1);
        let (mut contraction, mut synchronized, mut paired) = (true, false, false);
        let mut order = ProgramOrder::AsLaunched;
        for word in parts {
            match word {
                "no contraction" if contraction => contraction = false,
                "synchronized" if !synchronized => synchronized = true,
                "pairs" if !paired => paired = true,
                FIRST_FIRST => order = ProgramOrder::FirstFirst,
                LAST_FIRST => order = ProgramOrder::LastFirst,
                _ if cluster == 1 && word.starts_with("clusters of ") => {
                    cluster = word["clusters of ".len()..].parse().map_err(|_| expected)?;
                }
                _ => {
                    let counts = [(" stages", &mut stages), (" blocks a multiprocessor", &mut min_blocks)];
                    let counted =
                        counts.into_iter().find_map(|(what, count)| Some((word.strip_suffix(what)?, count)));
                    let parsed = counted.and_then(|(number, count)| Some((number.parse().ok()?, count)));
                    match parsed {
                        Some((number, count)) if *count == 0 && (1..=MAX_COUNT).contains(&number) => {
                            *count = number;
                        }
                        _ => return Err(expected.into()),
                    }
                }
            }
        }
        if !(1..=16).contains(&cluster) {
            return Err(format!("a cluster has 1 to 16 blocks, found {cluster}"));
        }
        if !(1..=MOST_WARPS).contains(&num_warps) {
            return Err(format!("a block has 1 to {MOST_WARPS} warps, found {num_warps}"));
        }
        let (mut layouts, mut tensor_maps, mut made_maps) = (Layouts::default(), Vec::new(), Vec::new());
        for line in lines {
            let (name, layout) = line.split_once(" = ").ok_or("expected `L0 = [..]`, or a function")?;
            if let Some(letter) = ["T", "M"].into_iter().find(|letter| name.starts_with(letter)) {
                let maps = if letter == "T" { &mut tensor_maps } else { &mut made_maps };
                let map = TensorMapPlan::parse(layout).filter(TensorMapPlan::is_consistent);
                let is_next = name == format!("{letter}{}", maps.len());
                maps.push(map.filter(|_| is_next).ok_or_else(|| format!("{name}: this is no tensor map"))?);
                continue;
            }
            let layout = layout.parse().map_err(|error| format!("{name}: {error}"))?;
            let next = layouts.iter().count();
            let id = layouts.add(layout);
            if id.to_string() != name || id.as_u32() as usize != next {
                return Err(format!("{name}: layouts are numbered in order, and each stands once"));
            }
        }
        let head = Self { target, num_warps, shared_bytes, stages, contraction, ..Self::default() };
        Ok(Self { synchronized, paired, min_blocks, cluster, order, layouts, tensor_maps, made_maps, ..head })
    }
}
